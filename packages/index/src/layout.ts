/**
 * Layout of a shard in shared memory: offsets, words of a chunk, the rules of access.
 *
 *   header     32 words, written at creation; only H_SLOT_WORDS (it grows) and H_LIFE change
 *   unlinks    one counter per group of buckets: grows when a chain has lost a chunk
 *   setVersion one version per interned worker set: odd while the set is rewritten
 *   setBits    ⌈workerSlotsMax / 32⌉ words per interned worker set
 *   buckets    mix(PARENT, first local hash) → chunk, chained by HNEXT
 *   chunks     56 words each; chunk 0 is the root and holds nothing
 *
 *   chunk  ┌────────┬───────┬──────┬──────┬──────┬──────┬─────┬──────┬─────────┬─────────────────────┐
 *          │ PARENT │ HNEXT │ USED │ MASK │ NEXT │ KIDS │ VER │ HIGH │ SET ×16 │ LOC ×16 (low, high) │
 *          └────────┴───────┴──────┴──────┴──────┴──────┴─────┴──────┴─────────┴─────────────────────┘
 *     PARENT  block above slot 0; 0 = root; −1 = being filled   HNEXT  next chunk of the bucket
 *     USED    slots in use, 0 … 16                              MASK   bit s: chunks may hang below slot s
 *     NEXT    a chunk below slot 15, as a short cut             KIDS   chunks below any slot
 *     VER     grows before slots are used again                 HIGH   slots ever used since VER grew
 *
 * A block id is `chunk << 4 | slot`; 0 stands for the root, and for "none". A worker-set id is 0 (nobody),
 * 1 … N (exactly worker slot id − 1), above N an interned bitmap.
 */

import type { IndexOptions, WordAccess } from './types.ts'

export const MAGIC = 0x484f4d49
export const H_MAGIC = 0
export const H_ACCESS = 1
export const H_SLOTS = 2
export const H_SET_WORDS = 3
/** Words of a bitmap that any worker slot in use needs; only grows. */
export const H_SLOT_WORDS = 4
export const H_CHUNKS_MAX = 5
export const H_CHUNK_BASE = 6
export const H_BUCKET_BASE = 7
export const H_BUCKET_MASK = 8
export const H_SET_VERSION_BASE = 9
export const H_SET_BITS_BASE = 10
export const H_UNLINK_BASE = 11
export const H_UNLINK_MASK = 12
/** Odd while a new writer empties the shard: no walk counts that saw it odd, or saw it change. */
export const H_LIFE = 13
const HEADER_WORDS = 32

export const CHUNK_WORDS = 56
export const CHUNK_SLOTS = 16
export const PARENT = 0
export const HNEXT = 1
export const USED = 2
export const MASK = 3
export const NEXT = 4
export const KIDS = 5
export const VER = 6
export const HIGH = 7
export const SET = 8
export const LOC = 24

export const CAPACITY_BYTES_MIN = 64 << 10
export const CAPACITY_BYTES_MAX = 8 * 2 ** 30
export const WORKER_SLOTS_MAX = 16_384

/** Share of the engine table that may be in use: longer probes above, wasted words below. */
const ENGINE_TABLE_LOAD = 0.7
/** Bytes of a chunk that are touched only when it is used: record, engine hashes, flags. */
export const CHUNK_BYTES = CHUNK_WORDS * 4 + CHUNK_SLOTS * 8 + 2
/** A small shard gets small fixed tables. */
const SMALL_SHARD_BYTES = 4 << 20
const SETS_MIN = 32
const SETS_MAX = 1 << 17
/** Worker sets get this share of the capacity; measured need on wide corpora: a fortieth. */
const SETS_SHARE = 1 / 24
const CHUNKS_MIN = 8

/** Sizes of everything in a shard, derived from its options. */
export interface Layout {
  readonly workerSlotsMax: number
  readonly setWords: number
  readonly setsMax: number
  readonly chunksMax: number
  readonly bucketCount: number
  readonly unlinkCount: number
  /** Entries of the writer's transition cache. */
  readonly transitionCount: number
  readonly engineTableSize: number
  readonly internSize: number
  readonly orphanBytesMax: number
  /** Bytes of the tables whose size does not change. */
  readonly fixedBytes: number
  readonly capacityBytes: number
  readonly sharedBytes: number
}

/** Derives the sizes. Throws RangeError where the options leave no room for 8 chunks. */
export function planLayout(options: IndexOptions): Layout {
  const { capacityBytes, workerSlotsMax } = options
  requireInteger('capacityBytes', capacityBytes, CAPACITY_BYTES_MIN, CAPACITY_BYTES_MAX)
  requireInteger('workerSlotsMax', workerSlotsMax, 1, WORKER_SLOTS_MAX)
  const orphanBytesMax = options.orphanBytesMax ?? Math.floor(capacityBytes / 32)
  requireInteger('orphanBytesMax', orphanBytesMax, 0, capacityBytes)

  const isSmall = capacityBytes < SMALL_SHARD_BYTES
  const setWords = Math.ceil(workerSlotsMax / 32)
  const unlinkCount = isSmall ? 64 : 1024
  const transitionCount = isSmall ? 512 : 16_384
  // Shared: bits, version. Private: members' count, free list, up to 4 words of the intern table.
  const setBytes = setWords * 4 + 4 + 8 + 16
  const setsMax = Math.min(SETS_MAX, Math.max(SETS_MIN, Math.floor((capacityBytes * SETS_SHARE) / setBytes)))
  const internSize = powerOfTwo(setsMax * 1.5)
  const fixedWithoutChunks =
    4 * (HEADER_WORDS + unlinkCount + CHUNK_WORDS) +
    setsMax * (setWords * 4 + 12) +
    internSize * 4 +
    transitionCount * 16 +
    workerSlotsMax * 16 +
    setWords * 8

  const chunkBudget = capacityBytes - fixedWithoutChunks - orphanBytesMax
  const tableBytesPerChunk = (CHUNK_SLOTS * 4) / ENGINE_TABLE_LOAD + 8
  const chunksMax = Math.floor((chunkBudget - ENGINE_TABLE_TAIL_BYTES) / (CHUNK_BYTES + tableBytesPerChunk))
  if (chunksMax < CHUNKS_MIN) {
    throw new RangeError(
      `cannot lay out a shard of ${capacityBytes} bytes: no room for ${CHUNKS_MIN} chunks beside the tables of ${workerSlotsMax} worker slots and ${orphanBytesMax} bytes of orphans`,
    )
  }
  const bucketCount = powerOfTwo(chunksMax)
  const engineTableSize = Math.ceil((chunksMax * CHUNK_SLOTS) / ENGINE_TABLE_LOAD)
  const fixedBytes = fixedWithoutChunks + bucketCount * 4 + engineTableSize * 4 + ENGINE_TABLE_TAIL_BYTES
  const sharedWords =
    HEADER_WORDS + unlinkCount + setsMax * (1 + setWords) + bucketCount + (chunksMax + 1) * CHUNK_WORDS
  return {
    workerSlotsMax,
    setWords,
    setsMax,
    chunksMax,
    bucketCount,
    unlinkCount,
    transitionCount,
    engineTableSize,
    internSize,
    orphanBytesMax,
    fixedBytes,
    capacityBytes,
    sharedBytes: sharedWords * 4,
  }
}

/** The engine table ends with the longest displacement and an empty word. */
export const ENGINE_TABLE_DISPLACEMENT_MAX = 1023
const ENGINE_TABLE_TAIL_BYTES = (ENGINE_TABLE_DISPLACEMENT_MAX + 1) * 4

/** Allocates the shared memory of a layout and writes its header. */
export function createShared(layout: Layout, access: WordAccess): SharedArrayBuffer {
  const memory = new SharedArrayBuffer(layout.sharedBytes)
  const words = new Int32Array(memory)
  let base = HEADER_WORDS
  const place = (header: number, length: number) => {
    words[header] = base
    base += length
  }
  place(H_UNLINK_BASE, layout.unlinkCount)
  place(H_SET_VERSION_BASE, layout.setsMax)
  place(H_SET_BITS_BASE, layout.setsMax * layout.setWords)
  place(H_BUCKET_BASE, layout.bucketCount)
  place(H_CHUNK_BASE, (layout.chunksMax + 1) * CHUNK_WORDS)
  words[H_ACCESS] = access === 'atomic' ? 1 : 0
  words[H_SLOTS] = layout.workerSlotsMax
  words[H_SET_WORDS] = layout.setWords
  words[H_SLOT_WORDS] = 1
  words[H_CHUNKS_MAX] = layout.chunksMax
  words[H_BUCKET_MASK] = layout.bucketCount - 1
  words[H_UNLINK_MASK] = layout.unlinkCount - 1
  Atomics.store(words, H_MAGIC, MAGIC)
  return memory
}

/**
 * Empties a shard whose writer is gone, in place: readers keep the memory and see an empty index.
 * Throws TypeError when the memory was made with other options. Cost: one pass over the memory, but for the
 * first writer.
 */
export function emptyShared(memory: SharedArrayBuffer, layout: Layout): void {
  const words = new Int32Array(memory)
  const isSame =
    memory.byteLength === layout.sharedBytes &&
    Atomics.load(words, H_MAGIC) === MAGIC &&
    words[H_SLOTS] === layout.workerSlotsMax &&
    words[H_CHUNKS_MAX] === layout.chunksMax
  if (!isSame) throw new TypeError('cannot use this memory as a shard: it was made with other options')
  const before = Atomics.load(words, H_LIFE)
  if (before === 0) {
    // The first writer: nothing has been written, and untouched pages cost no memory.
    Atomics.store(words, H_LIFE, 2)
    return
  }
  // A writer that died while it emptied the shard has left the word odd.
  const life = before | 1
  Atomics.store(words, H_LIFE, life)
  words.fill(0, HEADER_WORDS)
  Atomics.store(words, H_SLOT_WORDS, 1)
  Atomics.store(words, H_LIFE, (life + 1) | 0)
}

/** `plain` where the processor keeps loads with loads and stores with stores in order. */
export function defaultAccess(): WordAccess {
  return process.arch === 'x64' ? 'plain' : 'atomic'
}

/** Reads a data word. */
export function load(words: Int32Array, at: number, isAtomic: boolean): number {
  return isAtomic ? Atomics.load(words, at) : words[at]!
}

/** Writes a data word. */
export function save(words: Int32Array, at: number, value: number, isAtomic: boolean): void {
  if (isAtomic) Atomics.store(words, at, value)
  else words[at] = value
}

/** The bucket of the chunk below block `parent` whose first local hash is (low, high). */
export function childBucket(parent: number, low: number, high: number, mask: number): number {
  let h = Math.imul(low ^ Math.imul(parent, 0x9e3779b1), 0x85ebca6b) ^ Math.imul(high, 0x27d4eb2f)
  h ^= h >>> 15
  h = Math.imul(h, 0xc2b2ae35)
  return (h ^ (h >>> 13)) & mask
}

/** The least power of two that is not below `value`. */
export function powerOfTwo(value: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(value)))
}

function requireInteger(name: string, value: number, min: number, max: number): void {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new RangeError(`cannot lay out a shard: ${name} is ${value}, not an integer of ${min} … ${max}`)
  }
}
