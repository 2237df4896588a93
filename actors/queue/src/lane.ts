/** Lanes: which requests wait for the same workers. */

import type { RoutingRequest } from '@homing/placement'

/**
 * Requests that the same workers may take share a lane. `boundWorker`: the worker key to which its session is
 * bound. `isSliced`: it is to be sent in slices.
 */
export function laneOf(request: RoutingRequest, boundWorker: string | undefined, isSliced = false): string {
  const { slice } = request
  // Slices need more room than other requests do, so they find none where those do.
  if (slice !== undefined) return JSON.stringify(['slices', slice.worker])
  if (isSliced) return JSON.stringify(['slices', laneOf(request, boundWorker)])
  const { pinnedInstanceId, pinnedRank, constraints, excludedWorkers, leg } = request
  if (boundWorker !== undefined) return JSON.stringify(boundWorker)
  const allowed = constraints?.allowedInstanceIds
  const required = constraints?.requiredTaints ?? []
  const isAny =
    pinnedInstanceId === undefined &&
    pinnedRank === undefined &&
    allowed === undefined &&
    required.length === 0 &&
    excludedWorkers.length === 0 &&
    leg === undefined
  if (isAny) return ''
  return JSON.stringify([pinnedInstanceId, pinnedRank, allowed, required, excludedWorkers, leg?.kind])
}
