/**
 * Pool states: the codes of the states that a block may be in, beside a worker's own memory. Which of them
 * may follow which is for the caller of the table to say (packages/protocol).
 */

/** 0: nothing was told of the block. */
export const POOL_STATE = { untold: 0, localGpu: 1, inTransit: 2, cxlPooled: 3, evicted: 4 } as const

export type PoolStateCode = (typeof POOL_STATE)[keyof typeof POOL_STATE]

/** Whether a state may follow another. `hasPool`: the change names a pool. */
export type TransitionRule = (from: PoolStateCode, to: PoolStateCode, hasPool: boolean) => boolean
