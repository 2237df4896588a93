/**
 * Layout of a shard in shared memory: its regions, the words of a chunk, how much of each there may be.
 *
 *   header     64 words, written at creation; these change: H_HOLDER_WORDS, H_BUCKETS, H_LIFE, H_LEFT,
 *              H_SPARE_SCRATCH
 *   state      of the writer, in lines of its own
 *   unlinks    one counter per group of buckets: grows by 2 when a chain has lost a chunk, odd while a
 *              bucket of the group is split or joined
 *   owners     holder → worker slot + 1; 0: none
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
 * Regions of the writer alone: the names of blocks and the engine table, links and free chunks, the tables of
 * sets, blocks held by holder, and room for the blocks of one event. Behind the shard are the scratches of
 * readers.
 *
 * Every region is reserved for the capacity and used from its beginning: pages that were never written cost
 * no memory. A block id is `chunk << 4 | slot`; 0 stands for the root, and for "none". A set id is 0 (no
 * holder), 1 … H (exactly holder id − 1), above H an interned bitmap of holders; see holders.ts.
 */

import type { IndexOptions } from './types.ts'
import {
  CHUNK_SLOTS,
  CHUNK_WORDS,
  EVENT_BLOCKS,
  GROUP_SLOTS,
  GROUP_WORDS,
  H_BUCKET_BASE,
  H_CHUNK_BASE,
  H_EVENT_BASE,
  H_FREE_BASE,
  H_FREE_SET_BASE,
  H_FREE_WORD_BASE,
  H_HELD_BASE,
  H_HOLDER_BASE,
  H_INTERN_BASE,
  H_LINK_BASE,
  H_NAME_BASE,
  H_OWNER_BASE,
  H_REBUILD_BASE,
  H_RECENT_BASE,
  H_SCRATCH_BASE,
  H_SEGMENT_BASE,
  H_SEGMENT_INFO_BASE,
  H_SET_BITS_BASE,
  H_SET_BLOCKS_BASE,
  H_SET_HASH_BASE,
  H_SET_VERSION_BASE,
  H_TOUCH_BASE,
  H_TRANSITION_BASE,
  H_UNLINK_BASE,
  HEADER_WORDS,
  RECENT_MAX,
  SEGMENT_INFO_WORDS,
  SEGMENT_LOAD_MAX,
  TOUCH_MAX,
  TOUCH_WORDS,
  TRANSITION_WORDS,
} from './words.ts'

const CAPACITY_BYTES_MIN = 64 << 10
/** A memory has 4 GiB at most; the rest of it is for the scratches of readers. */
const CAPACITY_BYTES_MAX = 3840 * 2 ** 20
/** Five layers each of 16,384 worker keys; see key-layers.ts. */
const WORKER_SLOTS_MAX = 81_920
const HOLDERS_MAX = 32_768

/** Bytes of a chunk that are touched when it is used: record, names, links, free bit. */
export const CHUNK_BYTES = CHUNK_WORDS * 4 + CHUNK_SLOTS * 8 + 8 + 1
/**
 * Buckets per chunk, at most. A chain has 1.3 chunks for a lookup that finds its chunk, 0.7 for one that does
 * not.
 */
const BUCKETS_PER_CHUNK = 1.5
/** A small shard gets small tables. */
const SMALL_SHARD_BYTES = 4 << 20
const SETS_MIN = 32
const SETS_MAX = 1 << 17
/** Worker sets get this share of the capacity; measured need on wide corpora: a fortieth. */
const SETS_SHARE = 1 / 24
const CHUNKS_MIN = 8
/** Entries in a group of the engine table at the highest average load. */
const GROUP_ENTRIES = (GROUP_SLOTS * SEGMENT_LOAD_MAX) / 1000
/** A segment has at most about so many groups: what one step of growth costs is in proportion. */
const SEGMENT_GROUPS_MAX = 1024
/** Words for one entry of a segment that is rebuilt: the block, its mixed hash. */
const REBUILD_WORDS = 4
/** Regions begin at a line of a processor's cache. */
const LINE_WORDS = 16
const EVENT_WORDS = EVENT_BLOCKS * 4

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
  /** Entries of the cache of steps from set to set, at most. */
  readonly transitionsMax: number
  /** Segments of the engine table, a power of two, and the groups of each. */
  readonly segmentCount: number
  readonly segmentGroups: number
  readonly orphanBytesMax: number
  /** Bytes of chunks and side names together, at most. */
  readonly chunkBytesMax: number
  /** Bytes that are in use from the beginning. */
  readonly fixedBytes: number
  readonly capacityBytes: number
  /** For each region: the word of the header that says where it begins, and that beginning. */
  readonly regions: readonly (readonly [header: number, base: number])[]
  /** Words of the header and of all regions. */
  readonly words: number
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
  // Bits, version; blocks of the id, hash, free list, up to 4 words of the intern table.
  const setBytes = setWords * 4 + 4 + 12 + 16
  const setsMax = Math.min(SETS_MAX, Math.max(SETS_MIN, Math.floor((capacityBytes * SETS_SHARE) / setBytes)))
  const eventWords = EVENT_WORDS + TOUCH_MAX * TOUCH_WORDS + RECENT_MAX
  const headBytes = 4 * (HEADER_WORDS + unlinkCount + CHUNK_WORDS + unlinkCount + setWords + eventWords)
  // Owner, holder, blocks held and of the single set; records in two side tables.
  const slotBytes = workerSlotsMax * 4 + holdersMax * 20
  const fixedBytes = headBytes + slotBytes
  const tablesBytesMax = fixedBytes + setsMax * setBytes + transitionsMax * TRANSITION_WORDS * 4

  const chunkBudget = capacityBytes - tablesBytesMax - orphanBytesMax
  const perChunk = CHUNK_BYTES + BUCKETS_PER_CHUNK * 4 + (CHUNK_SLOTS / GROUP_ENTRIES) * GROUP_WORDS * 4
  const groupsWanted = ((chunkBudget / perChunk) * CHUNK_SLOTS) / GROUP_ENTRIES
  const segmentCount = powerOfTwo(Math.max(2, groupsWanted / SEGMENT_GROUPS_MAX))
  // Figures of the segments, what rounding adds to them, and the buffer through which one is rebuilt.
  const perSegment = SEGMENT_INFO_WORDS * 4 + GROUP_WORDS * 4
  const rebuildBytes = (Math.ceil(groupsWanted / segmentCount) + 1) * GROUP_SLOTS * REBUILD_WORDS * 4
  const segmentBytes = segmentCount * perSegment + rebuildBytes
  const chunksMax = Math.floor((chunkBudget - segmentBytes - CHUNK_SLOTS * 8) / perChunk)
  if (chunksMax < CHUNKS_MIN) {
    throw new RangeError(
      `cannot lay out a shard of ${capacityBytes} bytes: no room for ${CHUNKS_MIN} chunks beside the tables of ${workerSlotsMax} worker slots and ${orphanBytesMax} bytes of orphans`,
    )
  }
  const segmentGroups = Math.ceil((chunksMax * CHUNK_SLOTS) / GROUP_ENTRIES / segmentCount)
  const bucketsMin = unlinkCount
  const bucketsMax = bucketsMin + Math.floor(chunksMax * BUCKETS_PER_CHUNK)
  const regions: [header: number, base: number][] = []
  let base = HEADER_WORDS
  const place = (header: number, words: number) => {
    regions.push([header, base])
    base += Math.ceil(words / LINE_WORDS) * LINE_WORDS
  }
  place(H_SCRATCH_BASE, setWords)
  place(H_EVENT_BASE, EVENT_WORDS)
  place(H_TOUCH_BASE, TOUCH_MAX * TOUCH_WORDS)
  place(H_RECENT_BASE, RECENT_MAX)
  place(H_SEGMENT_INFO_BASE, segmentCount * SEGMENT_INFO_WORDS)
  place(H_HELD_BASE, holdersMax)
  place(H_UNLINK_BASE, unlinkCount)
  place(H_OWNER_BASE, holdersMax)
  place(H_HOLDER_BASE, workerSlotsMax)
  place(H_SET_BLOCKS_BASE, holdersMax + 1 + setsMax)
  place(H_SET_HASH_BASE, setsMax)
  place(H_FREE_SET_BASE, setsMax)
  place(H_INTERN_BASE, powerOfTwo(setsMax * 1.5))
  place(H_TRANSITION_BASE, transitionsMax * TRANSITION_WORDS)
  place(H_SET_VERSION_BASE, setsMax)
  place(H_SET_BITS_BASE, setsMax * setWords)
  place(H_FREE_WORD_BASE, (chunksMax >>> 10) + 1)
  // One chunk more: a search for the next free chunk need not know the last.
  place(H_FREE_BASE, ((chunksMax + 1) >>> 5) + 1)
  place(H_LINK_BASE, (chunksMax + 1) * 2)
  place(H_BUCKET_BASE, bucketsMax)
  place(H_REBUILD_BASE, segmentGroups * GROUP_SLOTS * REBUILD_WORDS)
  place(H_SEGMENT_BASE, segmentCount * segmentGroups * GROUP_WORDS)
  place(H_NAME_BASE, (chunksMax + 1) * CHUNK_SLOTS * 2)
  place(H_CHUNK_BASE, (chunksMax + 1) * CHUNK_WORDS)
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
    segmentGroups,
    orphanBytesMax,
    chunkBytesMax: chunksMax * CHUNK_BYTES,
    fixedBytes,
    capacityBytes,
    regions,
    words: base,
  }
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
