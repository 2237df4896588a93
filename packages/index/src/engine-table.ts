/**
 * EngineTable: engine hash → blocks that carry it as their name. Private to the writer.
 *
 *   hashes   low, high of every block slot (8 B), written when the block is named
 *   table    one word per entry: tag | block id, 0 = empty; linear probing, no wrap-around
 *            tag = low bits of the entry's home position, as many as the block id leaves (at most 10)
 *
 * Invariants
 *   T1  An entry lies at home … home + displacementMax, and displacementMax fits into the tag: so the
 *       tag and the position give the home, and deletion shifts back without reading hashes.
 *   T2  No empty word lies between an entry and its home.
 *   T3  `duplicates` = Σ over distinct hashes of (entries of that hash − 1): while it is 0, an entry with
 *       the right hash is the only one.
 *
 * One hash may name several blocks (workers need not agree): `find` continues after a position.
 * An insert that finds no room within displacementMax is refused; the caller records that name elsewhere.
 */

import { CHUNK_SLOTS, ENGINE_TABLE_DISPLACEMENT_MAX } from './layout.ts'

/** `insert`: named; named, and another block carries the same hash; no room. */
export const INSERTED = 0
export const INSERTED_AGAIN = 1
export const NO_ROOM = -1

/** Hashes that `touch` reads ahead at once. */
const TOUCH_MAX = 128

/** Where the set word of block b lies: base + (b >>> 4) · chunkWords + (b & 15). */
export interface TouchedRecords {
  readonly words: Int32Array
  readonly base: number
  readonly chunkWords: number
}

export class EngineTable {
  /** Names of the block slots: low at 2 · block, high behind it. Stale where a block is not named. */
  readonly hashes: Int32Array
  readonly table: Int32Array
  #duplicates = 0
  #sink = 0
  readonly #homes = new Int32Array(TOUCH_MAX)
  readonly #scale: number
  readonly #blockBits: number
  readonly #blockMask: number
  readonly #displacementMax: number

  constructor(chunksMax: number, size: number) {
    const blockSlots = (chunksMax + 1) * CHUNK_SLOTS
    this.#blockBits = Math.ceil(Math.log2(blockSlots))
    this.#blockMask = 2 ** this.#blockBits - 1
    this.#displacementMax = Math.min(ENGINE_TABLE_DISPLACEMENT_MAX, 2 ** (32 - this.#blockBits) - 1)
    this.#scale = size / 2 ** 32
    this.hashes = new Int32Array(blockSlots * 2)
    this.table = new Int32Array(size + ENGINE_TABLE_DISPLACEMENT_MAX + 1)
  }

  /** Entries whose hash another entry has too. */
  get duplicates(): number {
    return this.#duplicates
  }

  /** Where entries of this hash begin. */
  home(low: number, high: number): number {
    let h = Math.imul(low, 0x85ebca6b) ^ Math.imul(high, 0xc2b2ae35)
    h ^= h >>> 16
    h = Math.imul(h, 0x9e3779b1)
    h ^= h >>> 15
    return ((h >>> 0) * this.#scale) | 0
  }

  /** Position of the first entry of this hash, or of the next one after position `after`; −1: none. */
  find(low: number, high: number, after = -1): number {
    const { table, hashes } = this
    const home = this.home(low, high)
    const blockMask = this.#blockMask
    const blockBits = this.#blockBits
    const tag = home & this.#displacementMax
    const end = home + this.#displacementMax
    for (let at = after < 0 ? home : after + 1; at <= end; at++) {
      const entry = table[at]!
      if (entry === 0) return -1
      if (entry >>> blockBits !== tag) continue
      const block = entry & blockMask
      if (hashes[block * 2] === low && hashes[block * 2 + 1] === high) return at
    }
    return -1
  }

  /** The block of the entry at a position. */
  blockAt(position: number): number {
    return this.table[position]! & this.#blockMask
  }

  /**
   * Reads ahead what `find` and `insert` of engineHashes[2 · from …] will need first: independent loads, which
   * the processor overlaps, instead of one miss after the other. With `records`, also the names found there
   * and the set words of their blocks (what a removal needs). At most TOUCH_MAX hashes; the end of what it read.
   */
  touch(engineHashes: Int32Array, from: number, count: number, records: TouchedRecords | undefined): number {
    const { table, hashes } = this
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

  /** Keeps the reads of `touch` from being optimised away. */
  get sink(): number {
    return this.#sink
  }

  /** Names a block that has no name. */
  insert(block: number, low: number, high: number): number {
    const { table, hashes } = this
    const home = this.home(low, high)
    const blockBits = this.#blockBits
    const blockMask = this.#blockMask
    const tag = home & this.#displacementMax
    const end = home + this.#displacementMax
    let again = INSERTED
    for (let at = home; at <= end; at++) {
      const entry = table[at]!
      if (entry === 0) {
        table[at] = (tag << blockBits) | block
        hashes[block * 2] = low
        hashes[block * 2 + 1] = high
        this.#duplicates += again
        return again
      }
      if (again === INSERTED && entry >>> blockBits === tag) {
        const other = entry & blockMask
        if (hashes[other * 2] === low && hashes[other * 2 + 1] === high) again = INSERTED_AGAIN
      }
    }
    return NO_ROOM
  }

  /** Takes the name of a block away. */
  delete(block: number): void {
    const low = this.hashes[block * 2]!
    const high = this.hashes[block * 2 + 1]!
    let at = this.find(low, high)
    while (at >= 0 && this.blockAt(at) !== block) at = this.find(low, high, at)
    if (at < 0) throw new Error(`cannot take the name of block ${block}: it is not in the table`)
    this.deleteAt(at)
  }

  /** Takes the name of the block of the entry at `position` away. */
  deleteAt(position: number): void {
    const { table } = this
    const blockBits = this.#blockBits
    const tagMask = this.#displacementMax
    if (this.#duplicates > 0) {
      const block = this.blockAt(position)
      const low = this.hashes[block * 2]!
      const high = this.hashes[block * 2 + 1]!
      const first = this.find(low, high)
      if (first !== position || this.find(low, high, first) >= 0) this.#duplicates--
    }
    let hole = position
    for (let at = position + 1; ; at++) {
      const entry = table[at]!
      if (entry === 0) break
      const displacement = (at - (entry >>> blockBits)) & tagMask
      if (at - displacement <= hole) {
        table[hole] = entry
        hole = at
      }
    }
    table[hole] = 0
  }
}
