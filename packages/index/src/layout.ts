/**
 * Layout of a shard in shared memory: offsets, words of a chunk, the rules of access.
 *
 *   header     32 words, written at creation; H_HOLDER_WORDS, H_BUCKETS, H_LIFE and H_LEFT change
 *   unlinks    one counter per group of buckets: grows by 2 when a chain has lost a chunk, odd while a
 *              bucket of the group is split or joined
 *   owners     holder → worker slot + 1; 0: nobody's
 *   holders    worker slot → holder + 1; 0: none
 *   setVersion one version per interned set: odd while the set is rewritten
 *   setBits    ⌈holdersMax / 32⌉ words per interned set
 *   buckets    mix(PARENT, first local hash) → chunk, chained by HNEXT; H_BUCKETS of them are in use
 *   chunks     56 words each; chunk 0 is the root and holds nothing
 *
 *   chunk  ┌────────┬───────┬──────┬──────┬──────┬───────┬─────┬───────┬─────────┬─────────────────────┐
 *          │ PARENT │ HNEXT │ USED │ MASK │ NEXT │ FIRST │ VER │ OWN   │ SET ×16 │ LOC ×16 (low, high) │
 *          └────────┴───────┴──────┴──────┴──────┴───────┴─────┴───────┴─────────┴─────────────────────┘
 *     PARENT  block above slot 0; 0 = root; −1 = being filled   HNEXT  next chunk of the bucket
 *     USED    slots in use, 0 … 16                              MASK   bit s: chunks may hang below slot s
 *     NEXT    a chunk below slot 15, as a short cut             FIRST  a chunk below any slot (the writer's)
 *     VER     grows by 2 before slots are used again, odd while the chunk is moved away or grows by a merge
 *     OWN     the writer's: slots ever used since VER grew, and a mark per slot
 *
 * Every region is reserved for the capacity and used from its beginning: pages that were never written cost no
 * memory. A block id is `chunk << 4 | slot`; 0 stands for the root, and for "none". A set id is 0 (nobody),
 * 1 … H (exactly holder id − 1), above H an interned bitmap of holders; see holders.ts.
 */

import type { IndexOptions, WordAccess } from './types.ts'

export const MAGIC = 0x484f4d4a
export const H_MAGIC = 0
export const H_ACCESS = 1
export const H_SLOTS = 2
export const H_HOLDERS = 3
export const H_SET_WORDS = 4
/** Words of a bitmap that any holder in use needs; only grows. */
export const H_HOLDER_WORDS = 5
export const H_CHUNKS_MAX = 6
export const H_CHUNK_BASE = 7
export const H_BUCKET_BASE = 8
/** Buckets in use; see `bucketOf`. */
export const H_BUCKETS = 9
export const H_SET_VERSION_BASE = 10
export const H_SET_BITS_BASE = 11
export const H_UNLINK_BASE = 12
export const H_UNLINK_MASK = 13
export const H_OWNER_BASE = 14
export const H_HOLDER_BASE = 15
/**
 * Odd while a new writer empties the shard, or a holder gets another owner or none. No walk counts that saw it odd, or
 * saw it change.
 */
export const H_LIFE = 16
/** 1: the writer has left for another memory, which readers should ask for; what is here is of that moment. */
export const H_LEFT = 17
/** The number that the door gave to the writer of this memory; see door.ts. */
export const H_DOOR_NUMBER = 18
const HEADER_WORDS = 32

export const CHUNK_WORDS = 56
export const CHUNK_SLOTS = 16
export const PARENT = 0
export const HNEXT = 1
export const USED = 2
export const MASK = 3
export const NEXT = 4
export const FIRST = 5
export const VER = 6
export const OWN = 7
export const SET = 8
export const LOC = 24

export const CAPACITY_BYTES_MIN = 64 << 10
export const CAPACITY_BYTES_MAX = 8 * 2 ** 30
/** Five layers each of 16,384 worker keys; see key-layers.ts. */
export const WORKER_SLOTS_MAX = 81_920
export const HOLDERS_MAX = 32_768

/** Bytes of a chunk that are touched when it is used: record, engine hashes, links, free bit. */
export const CHUNK_BYTES = CHUNK_WORDS * 4 + CHUNK_SLOTS * 8 + 8 + 1
/** Buckets per chunk, at most: chains of 1.3 chunks for who finds, 0.7 for who does not. */
export const BUCKETS_PER_CHUNK = 1.5
/** A small shard gets small tables. */
const SMALL_SHARD_BYTES = 4 << 20
const SETS_MIN = 32
const SETS_MAX = 1 << 17
/** Worker sets get this share of the capacity; measured need on wide corpora: a fortieth. */
const SETS_SHARE = 1 / 24
const CHUNKS_MIN = 8

/** The engine table: load at which a segment grows, by what, and the load of a full shard. */
export const SEGMENT_LOAD_MAX = 0.62
export const SEGMENT_GROWTH = 1.5
const SEGMENT_LOAD_FULL = 0.62
/** Longest way of an entry from its home; a segment ends with as many words, and one that is empty. */
export const DISPLACEMENT_MAX = 255
/** A segment has at most about so many words: what one step of growth costs is in proportion. */
const SEGMENT_WORDS_MAX = 16_384

/** The most that everything in a shard may take, derived from its options. */
export interface Layout {
  readonly workerSlotsMax: number
  readonly holdersMax: number
  readonly setWords: number
  readonly setsMax: number
  readonly chunksMax: number
  readonly bucketsMin: number
  readonly bucketsMax: number
  readonly unlinkCount: number
  /** Entries of the writer's transition cache, at most. */
  readonly transitionsMax: number
  /** Segments of the engine table, a power of two, and the words of each without its tail. */
  readonly segmentCount: number
  readonly segmentWords: number
  readonly orphanBytesMax: number
  /** Bytes of chunks and side names together, at most. */
  readonly chunkBytesMax: number
  /** Bytes that are in use from the beginning. */
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
  const holders = options.holdersMax ?? workerSlotsMax
  requireInteger('holdersMax', holders, 1, HOLDERS_MAX)
  // Spare holders, for worker slots that are cleared and used again while their past is swept.
  const holdersMax = holders + Math.min(holders, Math.max(8, holders >> 3))
  const setWords = Math.ceil(holdersMax / 32)
  const unlinkCount = isSmall ? 64 : 1024
  const transitionsMax = isSmall ? 512 : 16_384
  // Shared: bits, version. Private: blocks of the id, hash, free list, up to 4 words of the intern table.
  const setBytes = setWords * 4 + 4 + 12 + 16
  const setsMax = Math.min(SETS_MAX, Math.max(SETS_MIN, Math.floor((capacityBytes * SETS_SHARE) / setBytes)))
  const headBytes = 4 * (HEADER_WORDS + unlinkCount + CHUNK_WORDS + unlinkCount)
  // Shared: owner, holder. Private: blocks held and of the single set, records in two side tables.
  const slotBytes = workerSlotsMax * 4 + holdersMax * 20
  const fixedBytes = headBytes + slotBytes
  const tablesBytesMax = fixedBytes + setsMax * setBytes + transitionsMax * 16 + setWords * 16

  const chunkBudget = capacityBytes - tablesBytesMax - orphanBytesMax
  const perChunk = CHUNK_BYTES + BUCKETS_PER_CHUNK * 4 + (CHUNK_SLOTS * 4) / SEGMENT_LOAD_FULL
  // Tails of the segments, their sizes and counts, and the buffers through which they are rebuilt.
  const perSegment = (DISPLACEMENT_MAX + 1) * 4 + 24
  const slotsWanted = (chunkBudget / perChunk) * CHUNK_SLOTS
  const segmentCount = powerOfTwo(Math.max(2, slotsWanted / SEGMENT_LOAD_FULL / SEGMENT_WORDS_MAX))
  const segmentWordsWanted = Math.ceil(slotsWanted / SEGMENT_LOAD_FULL / segmentCount)
  const segmentBytes = segmentCount * perSegment + (segmentWordsWanted + DISPLACEMENT_MAX + 1) * 8
  const chunksMax = Math.floor((chunkBudget - segmentBytes - CHUNK_SLOTS * 8) / perChunk)
  if (chunksMax < CHUNKS_MIN) {
    throw new RangeError(
      `cannot lay out a shard of ${capacityBytes} bytes: no room for ${CHUNKS_MIN} chunks beside the tables of ${workerSlotsMax} worker slots and ${orphanBytesMax} bytes of orphans`,
    )
  }
  const segmentWords = Math.ceil((chunksMax * CHUNK_SLOTS) / SEGMENT_LOAD_FULL / segmentCount)
  const bucketsMin = unlinkCount
  const bucketsMax = bucketsMin + Math.floor(chunksMax * BUCKETS_PER_CHUNK)
  const sharedWords =
    HEADER_WORDS +
    unlinkCount +
    holdersMax +
    workerSlotsMax +
    setsMax * (1 + setWords) +
    bucketsMax +
    (chunksMax + 1) * CHUNK_WORDS
  return {
    workerSlotsMax,
    holdersMax,
    setWords,
    setsMax,
    chunksMax,
    bucketsMin,
    bucketsMax,
    unlinkCount,
    transitionsMax,
    segmentCount,
    segmentWords,
    orphanBytesMax,
    chunkBytesMax: chunksMax * CHUNK_BYTES,
    fixedBytes,
    capacityBytes,
    sharedBytes: sharedWords * 4,
  }
}

/** Allocates the shared memory of a layout and writes its header. Throws RangeError when there is none. */
export function createShared(layout: Layout, access: WordAccess): SharedArrayBuffer {
  const memory = new SharedArrayBuffer(layout.sharedBytes)
  const words = new Int32Array(memory)
  let base = HEADER_WORDS
  const place = (header: number, length: number) => {
    words[header] = base
    base += length
  }
  place(H_UNLINK_BASE, layout.unlinkCount)
  place(H_OWNER_BASE, layout.holdersMax)
  place(H_HOLDER_BASE, layout.workerSlotsMax)
  place(H_SET_VERSION_BASE, layout.setsMax)
  place(H_SET_BITS_BASE, layout.setsMax * layout.setWords)
  place(H_BUCKET_BASE, layout.bucketsMax)
  place(H_CHUNK_BASE, (layout.chunksMax + 1) * CHUNK_WORDS)
  words[H_ACCESS] = access === 'atomic' ? 1 : 0
  words[H_SLOTS] = layout.workerSlotsMax
  words[H_HOLDERS] = layout.holdersMax
  words[H_SET_WORDS] = layout.setWords
  words[H_HOLDER_WORDS] = 1
  words[H_CHUNKS_MAX] = layout.chunksMax
  words[H_BUCKETS] = layout.bucketsMin
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
  Atomics.store(words, H_HOLDER_WORDS, 1)
  Atomics.store(words, H_BUCKETS, layout.bucketsMin)
  Atomics.store(words, H_LEFT, 0)
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

/** Mixes block `parent` and a first local hash; the low bits say the bucket and its unlink counter. */
export function childHash(parent: number, low: number, high: number): number {
  let h = Math.imul(low ^ Math.imul(parent, 0x9e3779b1), 0x85ebca6b) ^ Math.imul(high, 0x27d4eb2f)
  h ^= h >>> 15
  h = Math.imul(h, 0xc2b2ae35)
  return h ^ (h >>> 13)
}

/**
 * The bucket of a hash among `buckets`, at least 2: linear hashing. The low bits of the number of a bucket do
 * not change when there are more buckets, so neither does its unlink counter.
 */
export function bucketOf(hash: number, buckets: number): number {
  const mask = -1 >>> Math.clz32(buckets - 1)
  const bucket = hash & mask
  return bucket < buckets ? bucket : bucket & (mask >>> 1)
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
