/** Settings of a simulated engine that keeps copies of its blocks in pooled memory. */

/** A part of `EngineSettings`. */
export interface PoolSettings {
  /** The pool that its blocks go to; −1: none. */
  readonly poolId: number
  /** Ids of the workers that reach the blocks there, beside it; decimal. */
  readonly poolWorkers: readonly string[]
  /** Blocks that the pool has room for; the oldest are evicted. */
  readonly poolBlocks: number
  /** How long blocks are on their way there, in milliseconds of the simulation. */
  readonly poolTransferMs: number
}

export const DEFAULT_POOL_SETTINGS: PoolSettings = {
  poolId: -1,
  poolWorkers: [],
  poolBlocks: 100_000,
  poolTransferMs: 5,
}

/** Of the command line; a part of `ENGINE_OPTIONS`. */
export const POOL_OPTIONS = [
  {
    key: 'poolId',
    name: 'pool',
    group: 'Pooled memory',
    kind: 'integer',
    default: -1,
    min: -1,
    max: 0xffff_ffff,
    env: 'HOMING_ENGINE_POOL',
    help: 'Number of a pool that every block goes to, once it is computed. The events say so: local_gpu, in_transit, cxl_pooled, evicted. -1: there is no pool.',
  },
  {
    key: 'poolWorkers',
    name: 'pool-workers',
    group: 'Pooled memory',
    kind: 'list',
    separator: 'comma',
    placeholder: 'ID',
    unsetMeans: 'no other worker',
    env: 'HOMING_ENGINE_POOL_WORKERS',
    help: 'Id of a worker that reaches the blocks in the pool, beside this engine: the id= of its URL at the router.',
  },
  {
    key: 'poolBlocks',
    name: 'pool-blocks',
    group: 'Pooled memory',
    kind: 'integer',
    default: 100_000,
    min: 1,
    max: 10_000_000,
    unit: 'blocks',
    env: 'HOMING_ENGINE_POOL_BLOCKS',
    help: 'Blocks of each rank that the pool has room for. The oldest are evicted.',
  },
  {
    key: 'poolTransferMs',
    name: 'pool-transfer-ms',
    group: 'Pooled memory',
    kind: 'number',
    default: 5,
    min: 0,
    max: 60_000,
    unit: 'ms',
    env: 'HOMING_ENGINE_POOL_TRANSFER_MS',
    help: 'How long blocks are on their way to the pool, in milliseconds of the simulation. With --speed 0 they are there with the next turn.',
  },
] as const

/** Undefined: they can be used. */
export function faultOfPool({ poolWorkers }: PoolSettings): string | undefined {
  const wrong = poolWorkers.find(id => !/^\d{1,20}$/.test(id) || BigInt(id) >= 2n ** 64n)
  return wrong === undefined
    ? undefined
    : `--pool-workers ${JSON.stringify(wrong)} is no id of a worker: use a whole number below 2^64`
}
