/**
 * Label sample: what a label table says of some blocks, and its pools, for people to look at.
 *
 *   blocks   the records of the blocks that are asked for, RECORDS_EACH_MAX of each
 *   pools    sums over every s-th record, times s; s is 1 where `recordsMax` records are all there are
 *
 * Cost  a search for each block, and at most `recordsMax` records. Ids of workers are read once for each set,
 *       up to `idsMax`: further sets count as empty, and the sample as not whole. Nothing is written.
 */

import type { PlacedRecord } from './label-record.ts'
import type { LabelTable } from './label-table.ts'
import { type MoeLabel, ORPHAN_SLOT } from './label-words.ts'
import { POOL_STATE, type PoolStateCode } from './pool-states.ts'

export interface LabelSampleOptions {
  /** Sequence hashes of blocks, pairs [lo, hi]. */
  readonly hashes: Int32Array
  /** Records that the sums of pools are from. */
  readonly recordsMax: number
  /** Pools that are answered: those with most records. */
  readonly poolsMax: number
  /** Ids of workers that are read. */
  readonly idsMax: number
  /** Another one looks at other records. */
  readonly turn: number
}

export interface LabelSample {
  /** Of all records, by state code; and those of workers that have left. */
  readonly byState: readonly number[]
  readonly orphans: number
  readonly labelledBlocks: number
  /** All records and ids were looked at. */
  readonly isWhole: boolean
  readonly pools: readonly SampledPool[]
  readonly poolsTotal: number
  /** Only those with a record, in their order. */
  readonly blocks: readonly SampledBlock[]
}

export interface SampledPool {
  /** Undefined: the records name none. */
  readonly poolId: number | undefined
  readonly byState: readonly number[]
  readonly orphans: number
  /** Worker slots that have pooled blocks there, and the sets of further workers that reach these. */
  readonly owners: readonly number[]
  readonly workerIds: readonly Int32Array[]
}

export interface SampledBlock {
  /** Position in `hashes`. */
  readonly position: number
  readonly moe: MoeLabel | undefined
  readonly records: readonly SampledRecord[]
}

export interface SampledRecord {
  /** ORPHAN_SLOT: its worker has left. */
  readonly workerSlot: number
  readonly state: PoolStateCode
  readonly poolId: number | undefined
  /** Only of what is pooled. The same array for the same workers. */
  readonly workerIds: Int32Array
}

/** Workers that say something of one block. */
const RECORDS_EACH_MAX = 32
const STATES = Object.keys(POOL_STATE).length
const NO_IDS = new Int32Array(0)

export function sampleLabels(table: LabelTable, options: LabelSampleOptions): LabelSample {
  const { hashes, recordsMax, turn } = options
  const { byState, orphans, labelledBlocks } = table.stats()
  const ids = new SomeIds(options.idsMax)
  const blocks: SampledBlock[] = []
  for (let position = 0; 2 * position < hashes.length; position++) {
    const records: SampledRecord[] = []
    let moe: MoeLabel | undefined
    for (const record of table.recordsAt(hashes[2 * position]!, hashes[2 * position + 1]!, ids.bySet)) {
      moe ??= record.moe
      const { state, poolId } = record.place
      if (state !== POOL_STATE.untold && records.length < RECORDS_EACH_MAX)
        records.push({ workerSlot: record.workerSlot, state, poolId, workerIds: ids.of(record) })
    }
    if (moe !== undefined || records.length > 0) blocks.push({ position, moe, records })
  }
  const stride = Math.max(1, Math.ceil(table.recordPlaces / recordsMax))
  const pools = new Map<number | undefined, Pool>()
  for (const record of table.everyNth(turn % stride, stride, ids.bySet)) {
    const { state, poolId } = record.place
    // A block in a worker's own memory is in no pool.
    if (state <= POOL_STATE.localGpu) continue
    let pool = pools.get(poolId)
    if (pool === undefined) {
      pool = new Pool(poolId)
      pools.set(poolId, pool)
    }
    pool.add(record, stride, ids.of(record))
  }
  const largest = [...pools.values()].sort((one, other) => other.records - one.records)
  return {
    byState,
    orphans,
    labelledBlocks,
    isWhole: stride === 1 && ids.isWhole,
    pools: largest.slice(0, options.poolsMax).map(pool => pool.figures()),
    poolsTotal: pools.size,
    blocks,
  }
}

/** The workers that reach pooled records, up to a number of ids. */
class SomeIds {
  readonly bySet = new Map<number, Int32Array>()
  readonly #taken = new Set<Int32Array>()
  #left: number
  isWhole = true

  constructor(idsMax: number) {
    this.#left = idsMax
  }

  of({ place: { state, workerIds } }: PlacedRecord): Int32Array {
    if (state !== POOL_STATE.cxlPooled || workerIds.length === 0) return NO_IDS
    if (this.#taken.has(workerIds)) return workerIds
    if (workerIds.length / 2 > this.#left) {
      this.isWhole = false
      return NO_IDS
    }
    this.#left -= workerIds.length / 2
    this.#taken.add(workerIds)
    return workerIds
  }
}

class Pool {
  readonly #poolId: number | undefined
  readonly #byState = Array.from({ length: STATES }, () => 0)
  readonly #owners = new Set<number>()
  readonly #workerIds = new Set<Int32Array>()
  #orphans = 0
  records = 0

  constructor(poolId: number | undefined) {
    this.#poolId = poolId
  }

  add({ workerSlot, place: { state } }: PlacedRecord, weight: number, workerIds: Int32Array): void {
    this.records += weight
    this.#byState[state]! += weight
    if (state !== POOL_STATE.cxlPooled) return
    if (workerSlot === ORPHAN_SLOT) this.#orphans += weight
    else this.#owners.add(workerSlot)
    if (workerIds.length > 0) this.#workerIds.add(workerIds)
  }

  figures(): SampledPool {
    return {
      poolId: this.#poolId,
      byState: this.#byState,
      orphans: this.#orphans,
      owners: [...this.#owners],
      workerIds: [...this.#workerIds],
    }
  }
}
