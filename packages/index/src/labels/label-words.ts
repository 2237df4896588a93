/**
 * Label words: how the labels of a shard lie in shared memory.
 *
 *   header │ buckets by sequence hash │ buckets by engine hash │ blocks │ records │ nodes of worker sets
 *
 *   block    next in bucket, sequence hash (2), layer, expert, group, flags, first record
 *   record   next of its block, next in engine bucket, worker slot, engine hash (2), block, state, pool,
 *            worker set, flags
 *   node     next node of the set, ids in it, references and life (of the first node), 6 ids of 2 words
 *
 * Indexes start at 1; 0 is none. Memory that was never written is not taken from the system.
 *
 * Protocol  one writer. It makes VERSION odd while it changes anything, so a reader that saw the same even
 *           version before and after has read one state of a block. Every access of a reader is atomic, and
 *           so is every write, but for those of `clearLabelMemory`: it fills memory whose writer is gone, and
 *           VERSION is odd meanwhile.
 */

/** Memory of the labels of one shard. */
export type LabelMemory = SharedArrayBuffer

/** What expert a block belongs to. All are u32. */
export interface MoeLabel {
  readonly layerId: number
  readonly expertId: number
  readonly expertGroup: number | undefined
  /** What else was said of it, as a text that nothing here reads. */
  readonly members?: string
}

export const L_VERSION = 0
export const L_BLOCKS_MAX = 1
export const L_RECORDS_MAX = 2
export const L_NODES_MAX = 3
export const L_BUCKETS = 4
export const L_ENGINE_BASE = 5
export const L_BLOCK_BASE = 6
export const L_RECORD_BASE = 7
export const L_NODE_BASE = 8
/** Blocks with a label, and records of blocks that are pooled. */
export const L_LABELLED = 9
export const L_POOLED = 10
export const LABEL_HEADER_WORDS = 32

export const BLOCK_WORDS = 8
export const B_NEXT = 0
export const B_SEQUENCE = 1
export const B_LAYER = 3
export const B_EXPERT = 4
export const B_GROUP = 5
export const B_FLAGS = 6
export const B_RECORD = 7
export const IS_LABELLED = 1
export const HAS_GROUP = 2

export const RECORD_WORDS = 10
export const R_NEXT = 0
export const R_ENGINE_NEXT = 1
export const R_SLOT = 2
export const R_ENGINE = 3
export const R_BLOCK = 5
export const R_STATE = 6
export const R_POOL = 7
export const R_SET = 8
export const R_FLAGS = 9
export const IS_HELD = 1
export const HAS_POOL = 2
/** The flags of blocks and records from this bit on: the number of a text (label-texts.ts); 0 is none. */
export const TEXT_SHIFT = 4
/** Worker slot of records whose worker has left. */
export const ORPHAN_SLOT = -1

export const NODE_WORDS = 16
export const N_NEXT = 0
export const N_COUNT = 1
export const N_REFERENCES = 2
/** Changes when a set that begins with this node ends. */
export const N_LIFE = 3
export const N_IDS = 4
export const NODE_IDS = (NODE_WORDS - N_IDS) / 2

/** What a memory of labels is divided by. */
export interface LabelShape {
  /** Worker keys that say something of one block, on the average; 1 … 16. */
  readonly recordsPerBlock: number
  /** Part of the memory for lists of workers that reach pooled blocks; 0 … 0.5. */
  readonly workersShare: number
}

export const LABEL_SHAPE: LabelShape = { recordsPerBlock: 2, workersShare: 1 / 16 }

/** The least memory that holds labels. */
export const LABEL_BYTES_MIN = 4096

/** An empty memory of at most `bytes`. Throws RangeError below LABEL_BYTES_MIN. */
export function createLabelMemory(bytes: number, shape: LabelShape = LABEL_SHAPE): LabelMemory {
  const { recordsPerBlock, workersShare } = shape
  if (!(bytes >= LABEL_BYTES_MIN)) {
    throw new RangeError(`cannot keep labels in ${bytes} bytes: use at least ${LABEL_BYTES_MIN}`)
  }
  const words = Math.floor(bytes / 4) - LABEL_HEADER_WORDS
  const nodesMax = Math.floor((words * workersShare) / NODE_WORDS)
  const perBlock = BLOCK_WORDS + recordsPerBlock * RECORD_WORDS + 2
  const blocksMax = Math.floor((words - nodesMax * NODE_WORDS) / perBlock)
  const buckets = 2 ** Math.floor(Math.log2(blocksMax))
  const engineBase = LABEL_HEADER_WORDS + buckets
  const blockBase = engineBase + buckets
  const recordBase = blockBase + blocksMax * BLOCK_WORDS
  const nodeBase = recordBase + recordsPerBlock * blocksMax * RECORD_WORDS
  const memory = new SharedArrayBuffer(4 * (nodeBase + nodesMax * NODE_WORDS))
  const header = new Int32Array(memory, 0, LABEL_HEADER_WORDS)
  header[L_BLOCKS_MAX] = blocksMax
  header[L_RECORDS_MAX] = recordsPerBlock * blocksMax
  header[L_NODES_MAX] = nodesMax
  header[L_BUCKETS] = buckets
  header[L_ENGINE_BASE] = engineBase
  header[L_BLOCK_BASE] = blockBase
  header[L_RECORD_BASE] = recordBase
  header[L_NODE_BASE] = nodeBase
  return memory
}

/**
 * Makes a memory empty again, whatever its last writer left; readers look again meanwhile. Memory that no
 * writer has changed is left alone: a fill would take all of it from the system.
 */
export function clearLabelMemory(memory: LabelMemory): void {
  const words = new Int32Array(memory)
  const before = Atomics.load(words, L_VERSION)
  if (before === 0) return
  const version = before | 1
  Atomics.store(words, L_VERSION, version)
  Atomics.store(words, L_LABELLED, 0)
  Atomics.store(words, L_POOLED, 0)
  words.fill(0, LABEL_HEADER_WORDS)
  Atomics.store(words, L_VERSION, (version + 1) | 0)
}

/** The bucket of a sequence hash: of 64 bits that are random already. */
export function bucketOf(low: number, high: number, buckets: number): number {
  return (Math.imul(low, 0x9e3779b1) ^ high ^ (low >>> 15)) & (buckets - 1)
}
