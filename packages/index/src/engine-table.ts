/**
 * EngineTable: engine hash → blocks that carry it as their name. Private to the writer.
 *
 *   hashes   low, high of every block slot (8 B), written when the block is named
 *   table    one word per entry: tag | block id, 0 = empty. In segments by the first bits of the hash:
 *
 *            ┌ segment 0 ── size ──┬─ tail ─┐┌ segment 1 ── size ──┬─ tail ─┐ …
 *            each reserved for the capacity and used from its beginning; size grows by half when the
 *            segment is 0.62 full, and shrinks in `shrinkStep`. A step rebuilds one segment: at most 16,384
 *            words, about 0.3 ms. The sizes are out of step on purpose, so that all of them never grow at once.
 *
 *   tag      low bits of the entry's home position, as many as the block id leaves
 *
 * Invariants
 *   T1  An entry lies at home … home + DISPLACEMENT_MAX of its segment; the tail takes what runs over.
 *   T2  No empty word lies between an entry and its home.
 *   T3  `duplicates` = Σ over distinct hashes of (entries of that hash − 1): while it is 0, an entry with
 *       the right hash is the only one.
 *
 * One hash may name several blocks (workers need not agree): `find` continues after a position.
 * An insert that finds no room within DISPLACEMENT_MAX is refused; the caller records that name elsewhere.
 */

import { CHUNK_SLOTS, DISPLACEMENT_MAX, type Layout, SEGMENT_GROWTH, SEGMENT_LOAD_MAX } from './layout.ts'

/** `insert`: named; named, and another block carries the same hash; no room. */
export const INSERTED = 0
export const INSERTED_AGAIN = 1
export const NO_ROOM = -1

/** Hashes that `touch` reads ahead at once. */
const TOUCH_MAX = 128
const SEGMENT_WORDS_MIN = 32
/** Below this load a segment shrinks, to the load after growth. */
const SEGMENT_LOAD_MIN = 0.4
const TAIL_WORDS = DISPLACEMENT_MAX + 1

/** Where the set word of block b lies: base + (b >>> 4) · chunkWords + (b & 15). */
export interface TouchedRecords {
  words: Int32Array
  readonly base: number
  readonly chunkWords: number
}

export class EngineTable {
  /** Names of the block slots: low at 2 · block, high behind it. Stale where a block is not named. */
  hashes: Int32Array
  #table: Int32Array
  #duplicates = 0
  #sink = 0
  /** Words of all segments that were ever used, tails too. */
  #touchedWords = 0
  readonly #sizes: Int32Array
  /** size / 2^32, by segment. */
  readonly #scales: Float64Array
  /** By segment: entries that it takes before it grows; below 0 where it could not. */
  readonly #room: Int32Array
  readonly #touched: Int32Array
  /** Of a segment that is rebuilt: its entries, and their new homes. */
  readonly #buffer: Int32Array
  readonly #rebuiltHomes: Int32Array
  #bufferWords = 0
  readonly #homes = new Int32Array(TOUCH_MAX)
  readonly #segmentBits: number
  readonly #segmentShift: number
  readonly #stride: number
  readonly #strideInverse: number
  readonly #segmentWords: number
  readonly #blockBits: number
  readonly #blockMask: number
  readonly #tagMask: number
  readonly #blockSlots: number

  constructor(layout: Layout) {
    this.#blockSlots = (layout.chunksMax + 1) * CHUNK_SLOTS
    this.#blockBits = Math.ceil(Math.log2(this.#blockSlots))
    this.#blockMask = 2 ** this.#blockBits - 1
    this.#tagMask = Math.min(1023, 2 ** (32 - this.#blockBits) - 1)
    this.#segmentBits = Math.log2(layout.segmentCount)
    this.#segmentShift = 32 - this.#segmentBits
    this.#segmentWords = layout.segmentWords
    this.#stride = layout.segmentWords + TAIL_WORDS
    this.#strideInverse = 1 / this.#stride
    this.#sizes = new Int32Array(layout.segmentCount)
    this.#scales = new Float64Array(layout.segmentCount)
    this.#room = new Int32Array(layout.segmentCount)
    this.#touched = new Int32Array(layout.segmentCount)
    this.#buffer = new Int32Array(this.#stride)
    this.#rebuiltHomes = new Int32Array(this.#stride)
    this.hashes = new Int32Array(this.#blockSlots * 2)
    this.#table = new Int32Array(layout.segmentCount * this.#stride)
  }

  /** Entries whose hash another entry has too. */
  get duplicates(): number {
    return this.#duplicates
  }

  /** Blocks that are named here. */
  get count(): number {
    let count = 0
    for (let segment = 0; segment < this.#sizes.length; segment++) count += this.#countOf(segment)
    return count
  }

  /** Bytes in use but for `hashes`, which the chunks account for: segments and what rebuilds them. */
  get bytes(): number {
    return (this.#touchedWords + this.#bufferWords * 2 + this.#sizes.length * 5) * 4
  }

  /** Where entries of this hash begin. */
  home(low: number, high: number): number {
    const hash = mixed(low, high)
    const segment = hash >>> this.#segmentShift
    const within = ((hash << this.#segmentBits) >>> 0) * this.#scales[segment]!
    return Math.imul(segment, this.#stride) + (within | 0)
  }

  /** Position of the first entry of this hash, or of the next one after position `after`; −1: none. */
  find(low: number, high: number, after = -1): number {
    const home = this.home(low, high)
    return this.#search(home, after < 0 ? home : after + 1, low, high)
  }

  /** As `find`, for hash i of the last `touch`; nothing may have been inserted since. */
  findTouched(i: number, low: number, high: number): number {
    const home = this.#homes[i]!
    return this.#search(home, home, low, high)
  }

  /** The block of the entry at a position. */
  blockAt(position: number): number {
    return this.#table[position]! & this.#blockMask
  }

  /**
   * Reads ahead what `find` and `insert` of engineHashes[2 · from …] will need first: independent loads, which
   * the processor overlaps, instead of one miss after the other. With `records`, also the names found there
   * and the set words of their blocks (what a removal needs). At most TOUCH_MAX hashes; the end of what it read.
   */
  touch(engineHashes: Int32Array, from: number, count: number, records: TouchedRecords | undefined): number {
    const hashes = this.hashes
    const table = this.#table
    const homes = this.#homes
    const length = Math.min(count - from, TOUCH_MAX)
    const blockMask = this.#blockMask
    let sink = 0
    for (let i = 0; i < length; i++) {
      const home = this.home(engineHashes[2 * (from + i)]!, engineHashes[2 * (from + i) + 1]!)
      homes[i] = home
      sink ^= table[home]!
    }
    if (records !== undefined) {
      for (let i = 0; i < length; i++) sink ^= hashes[(table[homes[i]!]! & blockMask) * 2]!
      const { words, base, chunkWords } = records
      for (let i = 0; i < length; i++) {
        const block = table[homes[i]!]! & blockMask
        sink ^= words[base + Math.imul(block >>> 4, chunkWords) + (block & 15)]!
      }
    }
    this.#sink = sink
    return from + length
  }

  /** Reads ahead what `delete` of the blocks `first` … needs. */
  touchBlocks(first: number, count: number): void {
    const hashes = this.hashes
    let sink = 0
    for (let at = 2 * first; at < 2 * (first + count); at += 2) {
      sink ^= this.#table[this.home(hashes[at]!, hashes[at + 1]!)]!
    }
    this.#sink = sink
  }

  /** Keeps the reads of `touch` from being optimised away. */
  get sink(): number {
    return this.#sink
  }

  /** Names a block that has no name. */
  insert(block: number, low: number, high: number): number {
    const hashes = this.hashes
    const hash = mixed(low, high)
    const segment = hash >>> this.#segmentShift
    const blockBits = this.#blockBits
    for (;;) {
      const room = this.#room[segment]!
      if (room <= 0 && this.#grow(segment)) continue
      if (this.#sizes[segment] === 0) return NO_ROOM
      const table = this.#table
      const within = ((hash << this.#segmentBits) >>> 0) * this.#scales[segment]!
      const home = Math.imul(segment, this.#stride) + (within | 0)
      const tag = home & this.#tagMask
      const end = home + DISPLACEMENT_MAX
      let again = INSERTED
      for (let at = home; at <= end; at++) {
        const entry = table[at]!
        if (entry === 0) {
          table[at] = (tag << blockBits) | block
          hashes[block * 2] = low
          hashes[block * 2 + 1] = high
          this.#duplicates += again
          this.#room[segment] = room - 1
          return again
        }
        if (entry >>> blockBits === tag && again === INSERTED) {
          const other = entry & this.#blockMask
          if (hashes[other * 2] === low && hashes[other * 2 + 1] === high) again = INSERTED_AGAIN
        }
      }
      if (!this.#grow(segment)) return NO_ROOM
    }
  }

  /** Takes the name of a block away. */
  delete(block: number): void {
    this.deleteAt(this.#positionOf(block))
  }

  /** Takes the name of the block of the entry at `position` away. */
  deleteAt(position: number): void {
    const table = this.#table
    if (this.#duplicates > 0) {
      const block = this.blockAt(position)
      const low = this.hashes[block * 2]!
      const high = this.hashes[block * 2 + 1]!
      const first = this.find(low, high)
      if (first !== position || this.find(low, high, first) >= 0) this.#duplicates--
    }
    this.#room[this.#segmentOf(position)]!++
    const tagMask = this.#tagMask
    const blockBits = this.#blockBits
    const isTagEnough = tagMask >= DISPLACEMENT_MAX
    let hole = position
    for (let at = position + 1; ; at++) {
      const entry = table[at]!
      if (entry === 0) break
      const home = isTagEnough ? at - ((at - (entry >>> blockBits)) & tagMask) : this.#homeOf(entry)
      if (home <= hole) {
        table[hole] = entry
        hole = at
      }
    }
    table[hole] = 0
  }

  /** A named block goes by another id from now on. */
  relocate(from: number, to: number): void {
    const at = this.#positionOf(from)
    this.#table[at] = (this.#table[at]! & ~this.#blockMask) | to
    this.hashes[to * 2] = this.hashes[from * 2]!
    this.hashes[to * 2 + 1] = this.hashes[from * 2 + 1]!
  }

  /** Segments, for `shrinkStep`. */
  get segmentCount(): number {
    return this.#sizes.length
  }

  /** Makes one segment as small as it may be. */
  shrinkStep(segment: number): void {
    const size = this.#sizes[segment]!
    const count = this.#countOf(segment)
    if (size === 0 || count > size * SEGMENT_LOAD_MIN) return
    const wanted =
      count === 0 ? 0 : Math.max(SEGMENT_WORDS_MIN, Math.ceil((count / SEGMENT_LOAD_MAX) * SEGMENT_GROWTH))
    if (wanted < size) this.#rebuild(segment, wanted)
  }

  /** Moves to arrays of its own in which nothing was touched but what is in use; `blocks` slots are. */
  renew(blocks: number): void {
    const hashes = new Int32Array(this.#blockSlots * 2)
    hashes.set(this.hashes.subarray(0, blocks * 2))
    this.hashes = hashes
    const table = new Int32Array(this.#sizes.length * this.#stride)
    this.#touchedWords = 0
    for (let segment = 0; segment < this.#sizes.length; segment++) {
      const size = this.#sizes[segment]!
      this.#touched[segment] = 0
      if (size === 0) continue
      const base = segment * this.#stride
      table.set(this.#table.subarray(base, base + size + TAIL_WORDS), base)
      this.#touch(segment, size)
    }
    this.#table = table
  }

  /** Checks T1, T2 and the counts. Throws an Error that says what does not hold. */
  audit(): void {
    for (let segment = 0; segment < this.#sizes.length; segment++) {
      const base = segment * this.#stride
      let within = 0
      for (let at = base; at < base + this.#stride; at++) {
        const entry = this.#table[at]!
        if (entry === 0) continue
        within++
        const block = entry & this.#blockMask
        const home = this.home(this.hashes[block * 2]!, this.hashes[block * 2 + 1]!)
        if (at < home || at > home + DISPLACEMENT_MAX || (home & this.#tagMask) !== entry >>> this.#blockBits)
          throw new Error(`entry ${at} of block ${block} is not at its home ${home}`)
        for (let between = home; between < at; between++)
          if (this.#table[between] === 0) throw new Error(`entry ${at} is cut off from its home ${home}`)
      }
      if (within !== this.#countOf(segment)) throw new Error(`segment ${segment}: ${within} entries counted`)
    }
  }

  #search(home: number, from: number, low: number, high: number): number {
    const hashes = this.hashes
    const table = this.#table
    const blockMask = this.#blockMask
    const blockBits = this.#blockBits
    const tag = home & this.#tagMask
    const end = home + DISPLACEMENT_MAX
    for (let at = from; at <= end; at++) {
      const entry = table[at]!
      if (entry === 0) return -1
      if (entry >>> blockBits !== tag) continue
      const block = entry & blockMask
      if (hashes[block * 2] === low && hashes[block * 2 + 1] === high) return at
    }
    return -1
  }

  #segmentOf(position: number): number {
    return ((position + 0.5) * this.#strideInverse) | 0
  }

  #positionOf(block: number): number {
    const low = this.hashes[block * 2]!
    const high = this.hashes[block * 2 + 1]!
    let at = this.find(low, high)
    while (at >= 0 && this.blockAt(at) !== block) at = this.find(low, high, at)
    if (at < 0) throw new Error(`cannot find the name of block ${block}: it is not in the table`)
    return at
  }

  /** The home of an entry where the tag is too short to say it. */
  #homeOf(entry: number): number {
    const block = entry & this.#blockMask
    return this.home(this.hashes[block * 2]!, this.hashes[block * 2 + 1]!)
  }

  #grow(segment: number): boolean {
    const size = this.#sizes[segment]!
    if (size >= this.#segmentWords) return false
    const wanted =
      size === 0
        ? SEGMENT_WORDS_MIN * SEGMENT_GROWTH ** (segment / this.#sizes.length)
        : Math.max(size + 1, size * SEGMENT_GROWTH)
    return this.#rebuild(segment, Math.min(this.#segmentWords, Math.ceil(wanted)))
  }

  /** Gives a segment another size. False, and nothing has changed: an entry would be too far from home. */
  #rebuild(segment: number, size: number): boolean {
    const base = segment * this.#stride
    const before = this.#sizes[segment]!
    const used = before === 0 ? 0 : before + TAIL_WORDS
    const table = this.#table
    const buffer = this.#buffer
    const homes = this.#rebuiltHomes
    let count = 0
    for (let at = base; at < base + used; at++) {
      const entry = table[at]!
      if (entry !== 0) buffer[count++] = entry
    }
    if (used > this.#bufferWords) this.#bufferWords = used
    this.#resize(segment, size)
    // Hashes lie anywhere: a pass of loads that do not wait for each other.
    const hashes = this.hashes
    const blockMask = this.#blockMask
    for (let i = 0; i < count; i++) {
      const block = buffer[i]! & blockMask
      homes[i] = this.home(hashes[block * 2]!, hashes[block * 2 + 1]!)
    }
    table.fill(0, base, base + used)
    const isPlaced = this.#place(count)
    if (!isPlaced) {
      table.fill(0, base, base + this.#stride)
      this.#resize(segment, before)
      for (let i = 0; i < count; i++) homes[i] = this.#homeOf(buffer[i]!)
      this.#place(count)
    }
    this.#touch(segment, this.#sizes[segment]!)
    return isPlaced
  }

  /** Puts the entries of the buffer at their homes or behind, in their order. False: one is too far away. */
  #place(count: number): boolean {
    const table = this.#table
    const buffer = this.#buffer
    const homes = this.#rebuiltHomes
    const blockMask = this.#blockMask
    const blockBits = this.#blockBits
    const tagMask = this.#tagMask
    for (let i = 0; i < count; i++) {
      const home = homes[i]!
      const end = home + DISPLACEMENT_MAX
      let at = home
      while (at <= end && table[at] !== 0) at++
      if (at > end) return false
      table[at] = ((home & tagMask) << blockBits) | (buffer[i]! & blockMask)
    }
    return true
  }

  #countOf(segment: number): number {
    return Math.floor(this.#sizes[segment]! * SEGMENT_LOAD_MAX) - this.#room[segment]!
  }

  #resize(segment: number, size: number): void {
    const count = this.#countOf(segment)
    this.#room[segment] = Math.floor(size * SEGMENT_LOAD_MAX) - count
    this.#sizes[segment] = size
    this.#scales[segment] = size / 2 ** 32
  }

  #touch(segment: number, size: number): void {
    const words = size === 0 ? 0 : size + TAIL_WORDS
    if (words <= this.#touched[segment]!) return
    this.#touchedWords += words - this.#touched[segment]!
    this.#touched[segment] = words
  }
}

function mixed(low: number, high: number): number {
  let h = Math.imul(low, 0x85ebca6b) ^ Math.imul(high, 0xc2b2ae35)
  h ^= h >>> 16
  h = Math.imul(h, 0x9e3779b1)
  return h ^ (h >>> 15)
}
