/**
 * Shard memory: a WebAssembly.Memory with a header, as big as the layout requires, and the operations on it
 * as a whole.
 *
 *   ┌ header ┬ regions of layout.ts ┬ scratch of a reader ┬ scratch of a reader ┬ …
 *
 * It may be sent to any thread in a message. It cannot shrink: to give memory back, the writer goes on in
 * another one. It grows by the scratch of each new reader, which belongs to that reader alone.
 */

import { isDoor } from './door.ts'
import { type Layout, planLayout } from './layout.ts'
import type { IndexMemory, IndexOptions, WordAccess } from './types.ts'
import {
  H_ACCESS,
  H_BUCKETS,
  H_BUCKETS_MAX,
  H_BUCKETS_MIN,
  H_CHUNKS_MAX,
  H_HOLDER_WORDS,
  H_HOLDERS,
  H_LEFT,
  H_LIFE,
  H_MAGIC,
  H_SEGMENT_BITS,
  H_SEGMENT_GROUPS,
  H_SET_WORDS,
  H_SETS_MAX,
  H_SLOTS,
  H_SPARE_SCRATCH,
  H_TRANSITIONS_MAX,
  H_UNLINK_MASK,
  HEADER_WORDS,
  S_BUCKETS_TOUCHED,
  S_SETS_SOFT,
  SETS_SOFT_MIN,
  STATE,
} from './words.ts'

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: {
  readonly Memory: new (limits: { initial: number; maximum: number; shared: true }) => IndexMemory
}

const MAGIC = 0x484f4d4b
const PAGE_WORDS = 16_384
const PAGES_MAX = 65_536

/** Allocates the memory of a layout and writes its header. Throws RangeError when there is none. */
export function createShared(layout: Layout, access: WordAccess): IndexMemory {
  const pages = Math.ceil(layout.words / PAGE_WORDS)
  const memory = new WebAssembly.Memory({ initial: pages, maximum: PAGES_MAX, shared: true })
  const words = new Int32Array(memory.buffer)
  for (const [header, base] of layout.regions) words[header] = base
  words[H_ACCESS] = access === 'atomic' ? 1 : 0
  words[H_SLOTS] = layout.workerSlotsMax
  words[H_HOLDERS] = layout.holdersMax
  words[H_SET_WORDS] = layout.setWords
  words[H_HOLDER_WORDS] = 1
  words[H_CHUNKS_MAX] = layout.chunksMax
  words[H_BUCKETS_MIN] = layout.bucketsMin
  words[H_BUCKETS_MAX] = layout.bucketsMax
  words[H_SETS_MAX] = layout.setsMax
  words[H_TRANSITIONS_MAX] = layout.transitionsMax
  words[H_SEGMENT_BITS] = Math.log2(layout.segmentCount)
  words[H_SEGMENT_GROUPS] = layout.segmentGroups
  words[H_UNLINK_MASK] = layout.unlinkCount - 1
  writeState(words, layout)
  Atomics.store(words, H_MAGIC, MAGIC)
  return memory
}

/** Whether this is the memory of a shard. */
export function isShard(words: Int32Array): boolean {
  return Atomics.load(words, H_MAGIC) === MAGIC
}

/**
 * Empties a shard in place after its writer has ended: readers keep the memory and see an empty index. Throws
 * TypeError when the memory was made with other options. Cost: one pass over the memory; nothing for the
 * first writer.
 */
export function emptyShared(memory: IndexMemory, layout: Layout): void {
  const words = new Int32Array(memory.buffer)
  const isSame =
    words.length >= layout.words &&
    isShard(words) &&
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
  words.fill(0, STATE, layout.words)
  Atomics.store(words, H_HOLDER_WORDS, 1)
  writeState(words, layout)
  Atomics.store(words, H_LEFT, 0)
  Atomics.store(words, H_LIFE, (life + 1) | 0)
}

/** State words that are not 0 when nothing is in the index. */
function writeState(words: Int32Array, layout: Layout): void {
  Atomics.store(words, H_BUCKETS, layout.bucketsMin)
  words[S_BUCKETS_TOUCHED] = layout.bucketsMin
  words[S_SETS_SOFT] = Math.min(SETS_SOFT_MIN, layout.setsMax)
}

/**
 * Room for a reader behind the shard, as a word index: what another reader gave back, if that is enough, or
 * new pages. Throws RangeError when there are no more.
 */
export function takeScratch(memory: IndexMemory, wordCount: number): { base: number; wordCount: number } {
  const header = new Int32Array(memory.buffer, 0, HEADER_WORDS)
  const spare = Atomics.exchange(header, H_SPARE_SCRATCH, 0)
  if (spare !== 0) {
    const spareWords = new Int32Array(memory.buffer)[spare]!
    if (spareWords >= wordCount) return { base: spare, wordCount: spareWords }
  }
  const pages = Math.ceil(wordCount / PAGE_WORDS)
  return { base: memory.grow(pages) * PAGE_WORDS, wordCount: pages * PAGE_WORDS }
}

/** Gives a scratch back for the next reader; its first word says how long it is. */
export function giveScratch(memory: IndexMemory, base: number): void {
  Atomics.store(new Int32Array(memory.buffer, 0, HEADER_WORDS), H_SPARE_SCRATCH, base)
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

/**
 * Memory for one shard that outlives its writers: an empty index to readers, until a BlockIndex is created
 * with it and the same options. Throws RangeError as `BlockIndex.create` does. An index that moves to new
 * memory leaves it for good: where memory is to be given back, use `createIndexDoor`.
 */
export function createIndexMemory(options: IndexOptions): IndexMemory {
  return createShared(planLayout(options), options.access ?? defaultAccess())
}

/** Whether an index shall be made in this memory: it is none, but a door. */
export function isMemory(memory: IndexMemory | SharedArrayBuffer): memory is IndexMemory {
  return !(memory instanceof SharedArrayBuffer && isDoor(memory))
}
