/**
 * Pool states: where a block is between a worker's own memory and a pool that several workers reach, and which
 * changes of it are legal.
 *
 *   untold ──▶ in transit ──▶ pooled ──▶ evicted
 *      └─▶ local ─┘  ▲           │          │
 *                    └───────────┴──────────┘      local: from anywhere; evicted: from any state that was told
 *
 * Only a pooled block is reachable by others. Sources: NVIDIA Dynamo's states of blocks in CXL memory.
 */

/** Codes of the states, as they lie in memory; 0: nothing was told of the block. */
export const POOL_STATE = { untold: 0, localGpu: 1, inTransit: 2, cxlPooled: 3, evicted: 4 } as const

export type PoolStateCode = (typeof POOL_STATE)[keyof typeof POOL_STATE]

const { localGpu, inTransit, cxlPooled, evicted } = POOL_STATE

/** By state: the states that may follow. */
export const POOL_TRANSITIONS: readonly (readonly PoolStateCode[])[] = [
  [localGpu, inTransit],
  [localGpu, inTransit, evicted],
  [localGpu, inTransit, cxlPooled, evicted],
  [localGpu, inTransit, evicted],
  [localGpu, inTransit, evicted],
]

/** `hasPool`: the change names a pool, without which nothing can be on its way to one. */
export function isLegal(from: PoolStateCode, to: PoolStateCode, hasPool: boolean): boolean {
  return POOL_TRANSITIONS[from]!.includes(to) && (to !== inTransit || hasPool)
}
