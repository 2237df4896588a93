/** Lanes: which requests wait for the same workers. */

import type { RoutingRequest } from '@homing/placement'

/**
 * Requests that the same workers may take share a lane. `boundWorker`: the worker key to which its session is
 * bound.
 */
export function laneOf(
  { pinnedInstanceId, pinnedRank, constraints, excludedWorkers, slice }: RoutingRequest,
  boundWorker: string | undefined,
): string {
  if (slice !== undefined) return JSON.stringify(slice.worker)
  if (boundWorker !== undefined) return JSON.stringify(boundWorker)
  const allowed = constraints?.allowedInstanceIds
  const required = constraints?.requiredTaints ?? []
  const isAny =
    pinnedInstanceId === undefined &&
    pinnedRank === undefined &&
    allowed === undefined &&
    required.length === 0 &&
    excludedWorkers.length === 0
  if (isAny) return ''
  return JSON.stringify([pinnedInstanceId, pinnedRank, allowed, required, excludedWorkers])
}
