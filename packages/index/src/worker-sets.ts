/**
 * WorkerSets: interned sets of holders, as the writer sees them from TypeScript. Ids, tables and the protocol
 * with readers are in ../wasm/loops/worker-sets.ts; here is the code that looks at members, and rarely used
 * code.
 */

import type { Layout } from './layout.ts'
import type { Loops } from './loops.ts'
import {
  H_HOLDER_WORDS,
  H_SCRATCH_BASE,
  H_SET_BITS_BASE,
  H_SET_BLOCKS_BASE,
  H_SET_HASH_BASE,
  NO_SET,
  S_INTERN_MASK,
  S_SET_SWEEPS,
  S_SETS_FREE,
  S_SETS_FRESH,
  S_SETS_GARBAGE,
  S_SETS_SOFT,
  S_SETS_TOUCHED,
  S_TRANSITION_MASK,
  TRANSITION_WORDS,
} from './words.ts'

export class WorkerSets {
  readonly #words: Int32Array
  readonly #loops: Loops
  readonly #holders: number
  readonly #setWords: number
  readonly #setsMax: number
  readonly #bitsBase: number
  readonly #blocksBase: number
  readonly #hashBase: number
  readonly #scratchBase: number
  /** What `purge` has answered for the present mask, as long as no ids were given to other sets. */
  readonly #purged = new Map<number, number>()
  #purgedSweeps = 0

  constructor(layout: Layout, words: Int32Array, loops: Loops) {
    this.#words = words
    this.#loops = loops
    this.#holders = layout.holdersMax
    this.#setWords = layout.setWords
    this.#setsMax = layout.setsMax
    this.#bitsBase = words[H_SET_BITS_BASE]!
    this.#blocksBase = words[H_SET_BLOCKS_BASE]!
    this.#hashBase = words[H_SET_HASH_BASE]!
    this.#scratchBase = words[H_SCRATCH_BASE]!
    loops.sizeTables()
  }

  /** Interned sets that some block has. */
  get count(): number {
    return this.#words[S_SETS_FRESH]! - this.#words[S_SETS_FREE]! - this.#words[S_SETS_GARBAGE]!
  }

  /** Bytes of the tables but for the single sets, and of the rows that were ever used. */
  get bytes(): number {
    const words = this.#words
    const cache = (words[S_TRANSITION_MASK]! + 1) * TRANSITION_WORDS
    const tables = words[S_SETS_SOFT]! * 3 + words[S_INTERN_MASK]! + 1 + cache
    return (tables + words[S_SETS_TOUCHED]! * (this.#setWords + 1)) * 4
  }

  has(set: number, holder: number): boolean {
    if (set <= this.#holders) return set === holder + 1
    return ((this.#words[this.#row(set) + (holder >>> 5)]! >>> (holder & 31)) & 1) !== 0
  }

  /** Blocks that have the id. */
  blocksOf(set: number): number {
    return this.#words[this.#blocksBase + set]!
  }

  /** Some member of a set that is not empty; −1: none but `except`. */
  lowest(set: number, except = -1): number {
    if (set <= this.#holders) return set - 1 === except ? -1 : set - 1
    const row = this.#row(set)
    for (let i = 0; i < this.#setWords; i++) {
      let word = this.#words[row + i]!
      if (except >>> 5 === i) word &= ~(1 << (except & 31))
      if (word !== 0) return i * 32 + 31 - Math.clz32(word & -word)
    }
    return -1
  }

  /** The first member of a set above a holder (−1: the first of all); −1: there is none. */
  next(set: number, above: number): number {
    if (set === 0) return -1
    if (set <= this.#holders) return set - 1 > above ? set - 1 : -1
    const row = this.#row(set)
    const wordCount = this.#words[H_HOLDER_WORDS]!
    const from = above + 1
    for (let i = from >>> 5; i < wordCount; i++) {
      let word = this.#words[row + i]!
      if (i === from >>> 5) word &= -1 << (from & 31)
      if (word !== 0) return i * 32 + 31 - Math.clz32(word & -word)
    }
    return -1
  }

  /** Members of a set, ascending. */
  members(set: number): number[] {
    const members: number[] = []
    if (set === 0) return members
    if (set <= this.#holders) return [set - 1]
    const row = this.#row(set)
    const wordCount = this.#words[H_HOLDER_WORDS]!
    for (let i = 0; i < wordCount; i++) {
      for (let word = this.#words[row + i]!; word !== 0; word &= word - 1) {
        members.push(i * 32 + 31 - Math.clz32(word & -word))
      }
    }
    return members
  }

  /** The set of some holders, at least one. NO_SET: no id is free. */
  of(holders: readonly number[]): number {
    const base = this.#scratchBase
    this.#words.fill(0, base, base + this.#setWords)
    for (const holder of holders) this.#words[base + (holder >>> 5)]! |= 1 << (holder & 31)
    return this.#loops.internScratch()
  }

  /**
   * The set without the holders of a mask; the same id when none is in. NO_SET: no id is free. Remembered
   * until `beginPurge`, so the mask must be the same until then.
   */
  purge(set: number, mask: Int32Array): number {
    if (set === 0) return 0
    if (set <= this.#holders) {
      const holder = set - 1
      return ((mask[holder >>> 5]! >>> (holder & 31)) & 1) === 0 ? set : 0
    }
    const words = this.#words
    if (words[S_SET_SWEEPS] !== this.#purgedSweeps) this.beginPurge()
    const known = this.#purged.get(set)
    if (known !== undefined) return known
    const wordCount = words[H_HOLDER_WORDS]!
    const row = this.#row(set)
    let isSame = true
    for (let i = 0; i < wordCount; i++) {
      const word = words[row + i]!
      const kept = word & ~mask[i]!
      words[this.#scratchBase + i] = kept
      if (kept !== word) isSame = false
    }
    const result = isSame ? set : this.#loops.internScratch()
    if (result === NO_SET) return NO_SET
    if (words[S_SET_SWEEPS] !== this.#purgedSweeps) this.beginPurge()
    this.#purged.set(set, result)
    return result
  }

  /** Another mask is used with `purge` from now on. */
  beginPurge(): void {
    this.#purged.clear()
    this.#purgedSweeps = this.#words[S_SET_SWEEPS]!
  }

  /**
   * Copies all sets to other memory, which is still empty. Ids become dense: element s of the result is the
   * new id of interned set H + 1 + s, or 0 when no block has that set.
   */
  copyTo(target: WorkerSets): Int32Array {
    const fresh = this.#words[S_SETS_FRESH]!
    const ids = new Int32Array(fresh)
    const words = target.#words
    const count = this.count
    let soft = words[S_SETS_SOFT]!
    while (soft < count) soft = Math.min(soft * 2, this.#setsMax)
    words[S_SETS_SOFT] = soft
    const singlesEnd = this.#blocksBase + this.#holders + 1
    words.set(this.#words.subarray(this.#blocksBase, singlesEnd), this.#blocksBase)
    let id = 0
    for (let i = 0; i < fresh; i++) {
      const held = this.blocksOf(this.#holders + 1 + i)
      if (held <= 0) continue
      const from = this.#bitsBase + i * this.#setWords
      words.set(this.#words.subarray(from, from + this.#setWords), this.#bitsBase + id * this.#setWords)
      words[this.#blocksBase + this.#holders + 1 + id] = held
      words[this.#hashBase + id] = this.#words[this.#hashBase + i]!
      ids[i] = this.#holders + 1 + id
      id++
    }
    words[S_SETS_FRESH] = id
    words[S_SETS_TOUCHED] = id
    target.#loops.sizeTables()
    return ids
  }

  #row(set: number): number {
    return this.#bitsBase + (set - this.#holders - 1) * this.#setWords
  }
}
