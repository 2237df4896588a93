/** Lanes: which requests wait for the same workers. */

import type { RoutingRequest } from '@homing/router'

/** Requests that the same workers may take share a lane. */
export function laneOf({
  pinnedInstanceId,
  pinnedRank,
  constraints,
  excludedWorkers,
}: RoutingRequest): string {
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
