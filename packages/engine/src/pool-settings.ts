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
  /** The directory that stands for its memory; undefined: this engine only tells. */
  readonly poolDirectory: string | undefined
  /** How long a read out of it takes, in milliseconds of the simulation: this much, and more per token. */
  readonly poolReadMs: number
  readonly poolReadMsPerToken: number
}

export const DEFAULT_POOL_SETTINGS: PoolSettings = {
  poolId: -1,
  poolWorkers: [],
  poolBlocks: 100_000,
  poolTransferMs: 5,
  poolDirectory: undefined,
  poolReadMs: 1,
  poolReadMsPerToken: 0.002,
}

/** How long it takes to read tokens out of the pool, in real milliseconds. Speed 0 does not wait. */
export function poolReadMsOf(
  {
    poolReadMs,
    poolReadMsPerToken,
    speed,
  }: Pick<PoolSettings, 'poolReadMs' | 'poolReadMsPerToken'> & { readonly speed: number },
  tokens: number,
): number {
  return speed === 0 ? 0 : (poolReadMs + poolReadMsPerToken * tokens) / speed
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
  {
    key: 'poolDirectory',
    name: 'pool-dir',
    group: 'Pooled memory',
    kind: 'text',
    default: undefined,
    unsetMeans: 'the engine says that blocks are in the pool, and reads none',
    placeholder: 'DIR',
    env: 'HOMING_ENGINE_POOL_DIR',
    help: 'Directory that stands for the memory of the pool. Engines with the same --pool, --pool-dir, --block-size and --hash-seed read the blocks of each other there, also those of an engine that was killed.',
  },
  {
    key: 'poolReadMs',
    name: 'pool-read-ms',
    group: 'Pooled memory',
    kind: 'number',
    default: 1,
    min: 0,
    max: 60_000,
    unit: 'ms',
    env: 'HOMING_ENGINE_POOL_READ_MS',
    help: 'How long a read of blocks out of the pool takes at least, before a request that has a use for them starts; divided by --speed.',
  },
  {
    key: 'poolReadMsPerToken',
    name: 'pool-read-ms-per-token',
    group: 'Pooled memory',
    kind: 'number',
    default: 0.002,
    min: 0,
    max: 1000,
    unit: 'ms',
    env: 'HOMING_ENGINE_POOL_READ_MS_PER_TOKEN',
    help: 'How much longer it takes for each token that is read. 128 KiB per token at 64 GB/s are 0.002 ms.',
  },
] as const

/** Undefined: they can be used. */
export function faultOfPool(
  settings: PoolSettings & { readonly hashSeed: number; readonly publishesEvents: boolean },
): string | undefined {
  const { poolId, poolWorkers, poolDirectory, hashSeed, publishesEvents } = settings
  if (poolDirectory !== undefined) {
    if (poolId < 0) return '--pool-dir is given without --pool: say which pool is there'
    if (hashSeed < 0)
      return '--pool-dir needs --hash-seed: engines with other hashes find no blocks of each other'
    if (!publishesEvents) return '--pool-dir needs KV events: without them no router knows of the pool'
  }
  const wrong = poolWorkers.find(id => !/^\d{1,20}$/.test(id) || BigInt(id) >= 2n ** 64n)
  return wrong === undefined
    ? undefined
    : `--pool-workers ${JSON.stringify(wrong)} is no id of a worker: use a whole number below 2^64`
}
