/**
 * Pool states: where a block is between a worker's own memory and a pool that several workers reach, and
 * which changes of it are legal. All that read events use this table, so that they cannot differ.
 *
 *   untold ──▶ in_transit ──▶ cxl_pooled ──▶ evicted
 *
 *   local_gpu    from anywhere: it is in the worker's own memory alone
 *   in_transit   from anywhere, with a pool
 *   cxl_pooled   from in_transit only; pool and workers are those that were told on the way there
 *   evicted      from any state that was told; pool and workers are kept for audits, and reach it no more
 *
 * Only a pooled block is reachable by others. Source: the states of NVIDIA Dynamo's blocks in CXL memory.
 */

/** In the order of their codes in packages/index, from 1. */
export const POOL_STATES = ['local_gpu', 'in_transit', 'cxl_pooled', 'evicted'] as const

export type PoolState = (typeof POOL_STATES)[number]

/** `untold`: nothing was said of the block. */
export const POOL_TRANSITIONS: Readonly<Record<PoolState | 'untold', readonly PoolState[]>> = {
  untold: ['local_gpu', 'in_transit'],
  local_gpu: ['local_gpu', 'in_transit', 'evicted'],
  in_transit: ['local_gpu', 'in_transit', 'cxl_pooled', 'evicted'],
  cxl_pooled: ['local_gpu', 'in_transit', 'evicted'],
  evicted: ['local_gpu', 'in_transit', 'evicted'],
}

/** `hasPool`: the change names a pool, without which nothing can be on its way to one. */
export function isLegalTransition(from: PoolState | 'untold', to: PoolState, hasPool: boolean): boolean {
  return POOL_TRANSITIONS[from].includes(to) && (to !== 'in_transit' || hasPool)
}
