/**
 * Open-addressing table from a key of three int32 words to a fixed number of int32 values.
 *
 *   words   entry 0: | key a | key b | key c | value 0 … | entry 1: …      grows, never shrinks
 *   homes   hash buckets: entry + 1, 0 when empty; their number is a power of two; linear probing
 *
 * Invariants
 *   I1  An entry number stays the same from `insert` to `remove`.
 *   I2  No bucket is empty between the home of a key (where its hash points) and its place: removal shifts
 *       later entries back.
 *   I3  At most half of the homes are taken.
 *
 * `words` is replaced when the table grows: read it again after every `insert`.
 */

const KEY_WORDS = 3
const ENTRIES_AT_START = 64

export class KeyTable {
  /** Words per entry. */
  readonly stride: number
  words: Int32Array
  #homes: Int32Array
  #mask: number
  #count = 0
  /** Entries below this number were used at least once. */
  #fresh = 0
  /** First free entry below #fresh, linked through key a; −1 when there is none. */
  #free = -1

  constructor(valueWords: number) {
    this.stride = KEY_WORDS + valueWords
    this.words = new Int32Array(ENTRIES_AT_START * this.stride)
    this.#homes = new Int32Array(ENTRIES_AT_START * 2)
    this.#mask = this.#homes.length - 1
  }

  get count(): number {
    return this.#count
  }

  /** Position in `words` of value `index` of an entry. */
  valueAt(entry: number, index: number): number {
    return entry * this.stride + KEY_WORDS + index
  }

  /** The entry of a key, or −1. */
  find(a: number, b: number, c: number): number {
    const { words, stride } = this
    const homes = this.#homes
    for (let home = mix(a, b, c) & this.#mask; ; home = (home + 1) & this.#mask) {
      const entry = homes[home]! - 1
      if (entry < 0) return -1
      const at = entry * stride
      if (words[at + 1] === b && words[at] === a && words[at + 2] === c) return entry
    }
  }

  /** Adds a key that is not there yet; its values are 0. Returns its entry. */
  insert(a: number, b: number, c: number): number {
    if ((this.#count + 1) * 2 > this.#homes.length) this.#growHomes()
    let entry = this.#free
    if (entry >= 0) {
      this.#free = this.words[entry * this.stride]!
    } else {
      entry = this.#fresh++
      if (this.#fresh * this.stride > this.words.length) {
        const words = new Int32Array(this.words.length * 2)
        words.set(this.words)
        this.words = words
      }
    }
    const at = entry * this.stride
    this.words[at] = a
    this.words[at + 1] = b
    this.words[at + 2] = c
    this.words.fill(0, at + KEY_WORDS, at + this.stride)
    this.#place(entry)
    this.#count++
    return entry
  }

  /** Removes an entry that `find` or `insert` returned. */
  remove(entry: number): void {
    this.#vacate(entry)
    this.words[entry * this.stride] = this.#free
    this.#free = entry
    this.#count--
  }

  /**
   * Changes the key of an entry, which keeps its number and its values. No other entry may have the new key.
   * Another one may have the old key, as after an `insert` of that key.
   */
  rekey(entry: number, a: number, b: number, c: number): void {
    this.#vacate(entry)
    const at = entry * this.stride
    this.words[at] = a
    this.words[at + 1] = b
    this.words[at + 2] = c
    this.#place(entry)
  }

  #vacate(entry: number): void {
    const homes = this.#homes
    const mask = this.#mask
    let hole = this.#homeOf(entry)
    while (homes[hole] !== entry + 1) hole = (hole + 1) & mask
    for (let next = (hole + 1) & mask; homes[next] !== 0; next = (next + 1) & mask) {
      // An entry may move back into the hole unless its home comes after the hole.
      const home = this.#homeOf(homes[next]! - 1)
      if (((next - home) & mask) >= ((next - hole) & mask)) {
        homes[hole] = homes[next]!
        hole = next
      }
    }
    homes[hole] = 0
  }

  #homeOf(entry: number): number {
    const at = entry * this.stride
    return mix(this.words[at]!, this.words[at + 1]!, this.words[at + 2]!) & this.#mask
  }

  #place(entry: number): void {
    let home = this.#homeOf(entry)
    while (this.#homes[home] !== 0) home = (home + 1) & this.#mask
    this.#homes[home] = entry + 1
  }

  #growHomes(): void {
    const old = this.#homes
    this.#homes = new Int32Array(old.length * 2)
    this.#mask = this.#homes.length - 1
    for (const taken of old) if (taken !== 0) this.#place(taken - 1)
  }
}

/** Spreads three words over 32 bits; the finisher is murmur3's. */
function mix(a: number, b: number, c: number): number {
  let h = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca77) ^ Math.imul(c, 0xc2b2ae3d)
  h = Math.imul(h ^ (h >>> 16), 0x7feb352d)
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b)
  return h ^ (h >>> 16)
}
