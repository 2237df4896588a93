/**
 * Label sample: what a label table says of some blocks, and its pools, for people to look at.
 *
 *   blocks   the records of the blocks that are asked for, RECORDS_EACH_MAX of each and `recordsMax` of all
 *   pools    sums over every s-th record, times s; s is 1 where `recordsMax` records are all there are
 *
 * Cost  a search for each block, at most `recordsMax` records of blocks and as many for the sums. Ids of
 *       workers are read once for each set, up to `idsMax` of all: further sets count as empty. Where
 *       anything was left out, the sample is not whole. Nothing is written.
 */

import type { PlacedRecord } from './label-record.ts'
import type { LabelTable } from './label-table.ts'
import { type MoeLabel, ORPHAN_SLOT } from './label-words.ts'
import { POOL_STATE, type PoolStateCode } from './pool-states.ts'

export interface LabelSampleOptions {
  /** Sequence hashes of blocks, pairs [lo, hi]. */
  readonly hashes: Int32Array
  /** Records that the sums of pools are from, and records of blocks. */
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
  const ids = new SomeIds(table, options.idsMax)
  const blocks: SampledBlock[] = []
  let left = recordsMax
  let isCut = false
  for (let position = 0; 2 * position < hashes.length && !(isCut && left === 0); position++) {
    const records: SampledRecord[] = []
    let moe: MoeLabel | undefined
    for (const record of table.recordsAt(hashes[2 * position]!, hashes[2 * position + 1]!)) {
      if (left === 0 || records.length === RECORDS_EACH_MAX) {
        isCut = true
        break
      }
      left--
      moe ??= record.moe
      const { workerSlot, state, poolId } = record
      if (state !== POOL_STATE.untold) records.push({ workerSlot, state, poolId, workerIds: ids.of(record) })
    }
    if (moe !== undefined || records.length > 0) blocks.push({ position, moe, records })
  }
  const stride = Math.max(1, Math.ceil(table.recordPlaces / recordsMax))
  const pools = new Map<number | undefined, Pool>()
  for (const record of table.everyNth(turn % stride, stride)) {
    const { state, poolId } = record
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
    isWhole: stride === 1 && !isCut && ids.isWhole,
    pools: largest.slice(0, options.poolsMax).map(pool => pool.figures()),
    poolsTotal: pools.size,
    blocks,
  }
}

/** The workers that reach pooled records, up to a number of ids. */
class SomeIds {
  readonly #table: LabelTable
  readonly #bySet = new Map<number, Int32Array>()
  #left: number
  isWhole = true

  constructor(table: LabelTable, idsMax: number) {
    this.#table = table
    this.#left = idsMax
  }

  of({ state, workerSet }: PlacedRecord): Int32Array {
    if (state !== POOL_STATE.cxlPooled || workerSet === 0) return NO_IDS
    const known = this.#bySet.get(workerSet)
    if (known !== undefined) return known
    const ids = this.#table.workerIdsOf(workerSet, this.#left)
    if (ids === undefined) {
      this.isWhole = false
      this.#left = 0
    } else this.#left -= ids.length / 2
    this.#bySet.set(workerSet, ids ?? NO_IDS)
    return ids ?? NO_IDS
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

  add({ workerSlot, state }: PlacedRecord, weight: number, workerIds: Int32Array): void {
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
