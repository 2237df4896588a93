/**
 * Label reader: reads the labels of a block from the tables of all shards, on any thread, without waiting.
 *
 * What was read of one block and shard was true at one instant of the call. A shard that never stood still
 * for LABEL_READS_MAX attempts counts as one without labels: a bonus less, never a block too many.
 */

import {
  B_EXPERT,
  B_FLAGS,
  B_GROUP,
  B_LAYER,
  B_NEXT,
  B_RECORD,
  B_SEQUENCE,
  BLOCK_WORDS,
  bucketOf,
  HAS_GROUP,
  IS_LABELLED,
  L_BLOCK_BASE,
  L_BLOCKS_MAX,
  L_BUCKETS,
  L_LABELLED,
  L_NODE_BASE,
  L_NODES_MAX,
  L_POOLED,
  L_RECORD_BASE,
  L_RECORDS_MAX,
  L_VERSION,
  LABEL_HEADER_WORDS,
  type LabelMemory,
  type MoeLabel,
  N_COUNT,
  N_IDS,
  N_LIFE,
  N_NEXT,
  NODE_IDS,
  NODE_WORDS,
  R_NEXT,
  R_SET,
  R_SLOT,
  R_STATE,
  RECORD_WORDS,
} from './label-words.ts'
import { POOL_STATE } from './pool-states.ts'

const LABEL_READS_MAX = 64
/** Longer chains are torn reads, or so unlikely that they may count as such. */
const CHAIN_MAX = 65_536

/** What the tables say of a block. Reused from call to call. */
export class BlockLabels {
  moe: MoeLabel | undefined
  /** The worker slots that have pooled it, each after its shard. −1: the worker has left. */
  readonly owners: number[] = []
  /** The sets of workers that reach it, each as its shard, set and life: see `workerIdsOf`. */
  readonly workerSets: number[] = []

  clear(): void {
    this.moe = undefined
    this.owners.length = 0
    this.workerSets.length = 0
  }
}

export class LabelReader {
  /** By shard. */
  readonly #tables: (Int32Array | undefined)[] = []

  /** Undefined: the shard keeps no labels. */
  setShard(shard: number, memory: LabelMemory | undefined): void {
    if (this.#tables[shard]?.buffer === memory && memory !== undefined) return
    this.#tables[shard] = memory && new Int32Array(memory)
  }

  /** Whether some block has an expert. */
  get hasExperts(): boolean {
    return this.#any(L_LABELLED)
  }

  /** Whether some block is pooled. */
  get hasPooled(): boolean {
    return this.#any(L_POOLED)
  }

  /** Reads what all shards say of the block with this sequence hash. */
  read(low: number, high: number, into: BlockLabels): void {
    into.clear()
    for (const [shard, words] of this.#tables.entries()) {
      if (words === undefined) continue
      const owners = into.owners.length
      const sets = into.workerSets.length
      const { moe } = into
      for (let attempt = 0; attempt < LABEL_READS_MAX; attempt++) {
        const version = Atomics.load(words, L_VERSION)
        const isWhole = (version & 1) === 0 && readBlock(words, shard, low, high, into)
        if (isWhole && Atomics.load(words, L_VERSION) === version) break
        into.owners.length = owners
        into.workerSets.length = sets
        into.moe = moe
      }
    }
  }

  /**
   * The ids in a set of workers, pairs [lo, hi], each once. Undefined: there is no such set any more, or its
   * shard did not stand still.
   */
  workerIdsOf(shard: number, set: number, life: number): readonly number[] | undefined {
    const words = this.#tables[shard]
    if (words === undefined) return undefined
    for (let attempt = 0; attempt < LABEL_READS_MAX; attempt++) {
      const version = Atomics.load(words, L_VERSION)
      if ((version & 1) !== 0) continue
      const ids: number[] = []
      const isSame = lifeOf(words, set) === life
      const isWhole = isSame && readIds(words, set, ids)
      if (Atomics.load(words, L_VERSION) === version) return isWhole ? ids : undefined
    }
    return undefined
  }

  #any(word: number): boolean {
    for (const words of this.#tables) if (words !== undefined && Atomics.load(words, word) > 0) return true
    return false
  }
}

/** False: what was read cannot be one state. */
function readBlock(words: Int32Array, shard: number, low: number, high: number, into: BlockLabels): boolean {
  const blocksMax = words[L_BLOCKS_MAX]!
  let block = Atomics.load(words, LABEL_HEADER_WORDS + bucketOf(low, high, words[L_BUCKETS]!))
  for (let step = 0; block !== 0; step++) {
    if (!(block > 0 && block <= blocksMax) || step > CHAIN_MAX) return false
    const at = words[L_BLOCK_BASE]! + (block - 1) * BLOCK_WORDS
    const isIt =
      Atomics.load(words, at + B_SEQUENCE) === low && Atomics.load(words, at + B_SEQUENCE + 1) === high
    if (isIt) return readRecords(words, shard, at, into)
    block = Atomics.load(words, at + B_NEXT)
  }
  return true
}

function readRecords(words: Int32Array, shard: number, at: number, into: BlockLabels): boolean {
  const flags = Atomics.load(words, at + B_FLAGS)
  if ((flags & IS_LABELLED) !== 0) {
    into.moe ??= {
      layerId: Atomics.load(words, at + B_LAYER) >>> 0,
      expertId: Atomics.load(words, at + B_EXPERT) >>> 0,
      expertGroup: (flags & HAS_GROUP) === 0 ? undefined : Atomics.load(words, at + B_GROUP) >>> 0,
    }
  }
  const recordsMax = words[L_RECORDS_MAX]!
  let record = Atomics.load(words, at + B_RECORD)
  for (let step = 0; record !== 0; step++) {
    if (!(record > 0 && record <= recordsMax) || step > CHAIN_MAX) return false
    const base = words[L_RECORD_BASE]! + (record - 1) * RECORD_WORDS
    if (Atomics.load(words, base + R_STATE) === POOL_STATE.cxlPooled) {
      into.owners.push(shard, Atomics.load(words, base + R_SLOT))
      const set = Atomics.load(words, base + R_SET)
      if (set !== 0) {
        const life = lifeOf(words, set)
        if (life === undefined) return false
        into.workerSets.push(shard, set, life)
      }
    }
    record = Atomics.load(words, base + R_NEXT)
  }
  return true
}

/** Undefined: there cannot be such a set. */
function lifeOf(words: Int32Array, set: number): number | undefined {
  if (!(set > 0 && set <= words[L_NODES_MAX]!)) return undefined
  return Atomics.load(words, words[L_NODE_BASE]! + (set - 1) * NODE_WORDS + N_LIFE)
}

function readIds(words: Int32Array, set: number, ids: number[]): boolean {
  const nodesMax = words[L_NODES_MAX]!
  for (let node = set, step = 0; node !== 0; step++) {
    if (!(node > 0 && node <= nodesMax) || step > nodesMax) return false
    const at = words[L_NODE_BASE]! + (node - 1) * NODE_WORDS
    const count = Atomics.load(words, at + N_COUNT)
    if (!(count >= 0 && count <= NODE_IDS)) return false
    for (let i = 0; i < 2 * count; i++) ids.push(Atomics.load(words, at + N_IDS + i))
    node = Atomics.load(words, at + N_NEXT)
  }
  return true
}
