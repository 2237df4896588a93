/** MoE query: which experts of an MoE model a request wants, and which blocks are theirs. */

import type { MoeLabel } from '@homing/index'

/** Which experts a request wants. */
export interface MoeQuery {
  readonly layerId: number
  /** Empty: any of the layer. */
  readonly expertIds: readonly number[]
  readonly expertGroup: number | undefined
  /** False: if some candidate has matching blocks, only such candidates may take the request. */
  readonly fallbackToUnlabeled: boolean
}

export function matchesExpert(
  { layerId, expertId, expertGroup }: MoeLabel,
  { layerId: layer, expertIds, expertGroup: group }: MoeQuery,
): boolean {
  if (layerId !== layer || (group !== undefined && group !== expertGroup)) return false
  return expertIds.length === 0 || expertIds.includes(expertId)
}
