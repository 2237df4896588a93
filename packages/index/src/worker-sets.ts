/**
 * WorkerSets: interned sets of holders; a block says who holds it with one word. The writer's side.
 *
 *   id 0         nobody
 *   id 1 … H     exactly holder id − 1; no memory
 *   id above H   a bitmap of ≥ 2 holders in shared memory, never changed while a block has the id
 *
 * Adding or removing a holder moves a block to another id. The steps (set, holder, ±) → set are remembered: the
 * last one of each sign, and a direct-mapped cache. A set that no block has is garbage until the next sweep,
 * which runs when ids run out; then the ids are given to other sets. Ids are dense: rows of the bitmaps are used
 * from the first on, the private tables double with them.
 *
 * Protocol: a bitmap is rewritten between two increments of its version (odd meanwhile). A reader that
 * copied it under one even version, and found the id still at the block afterwards, has the set of the block.
 */

import { H_HOLDER_WORDS, H_SET_BITS_BASE, H_SET_VERSION_BASE, type Layout, save } from './layout.ts'

/** No id is free: see `with` and `without`. */
export const NO_SET = -1

const FREE = -1
const SETS_SOFT_MIN = 64
/** A sweep must be able to free this share of the ids, or it is not worth the scan. */
const GARBAGE_SHARE = 1 / 8
const TRANSITION_WORDS = 4
const TRANSITIONS_MIN = 256

export class WorkerSets {
  #words: Int32Array
  readonly #isAtomic: boolean
  readonly #holders: number
  readonly #setWords: number
  readonly #setsMax: number
  readonly #transitionsMax: number
  readonly #bitsBase: number
  readonly #versionBase: number
  /** Blocks that have the id; −1 for an id that is free. Grows with the ids. */
  #blocks: Int32Array
  /** By interned id, from 0: hash of the bitmap. */
  #hashes: Int32Array
  #freeIds: Int32Array
  #intern: Int32Array
  #transitions: Int32Array
  readonly #scratch: Int32Array
  #freeCount = 0
  #fresh = 0
  /** Rows of the shared memory that were ever written. */
  #touched = 0
  #softMax: number
  #garbage = 0
  #withSet = -1
  #withHolder = -1
  #withResult = 0
  #withoutSet = -1
  #withoutHolder = -1
  #withoutResult = 0
  #purgedSet = -1
  #purgedResult = 0
  #purges = 0

  constructor(layout: Layout, words: Int32Array, isAtomic: boolean) {
    this.#words = words
    this.#isAtomic = isAtomic
    this.#holders = layout.holdersMax
    this.#setWords = layout.setWords
    this.#setsMax = layout.setsMax
    this.#transitionsMax = layout.transitionsMax
    this.#bitsBase = words[H_SET_BITS_BASE]!
    this.#versionBase = words[H_SET_VERSION_BASE]!
    this.#scratch = new Int32Array(layout.setWords)
    this.#softMax = Math.min(SETS_SOFT_MIN, layout.setsMax)
    this.#blocks = new Int32Array(layout.holdersMax + 1 + this.#softMax)
    this.#hashes = new Int32Array(this.#softMax)
    this.#freeIds = new Int32Array(this.#softMax)
    this.#intern = new Int32Array(internSize(this.#softMax))
    this.#transitions = new Int32Array(this.#transitionWords())
  }

  /** Interned sets that some block has. */
  get count(): number {
    return this.#fresh - this.#freeCount - this.#garbage
  }

  /** Bytes of the private tables but for the single sets, and of the shared rows that were ever used. */
  get bytes(): number {
    const own = this.#softMax * 3 + this.#intern.length + this.#transitions.length + this.#setWords
    return (own + this.#touched * (this.#setWords + 1)) * 4
  }

  has(set: number, holder: number): boolean {
    if (set <= this.#holders) return set === holder + 1
    return ((this.#words[this.#row(set) + (holder >>> 5)]! >>> (holder & 31)) & 1) !== 0
  }

  /** Blocks that have the id. */
  blocksOf(set: number): number {
    return this.#blocks[set]!
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

  /** The set with `holder` added; the same id when it is in. NO_SET: no id is free. */
  with(set: number, holder: number): number {
    if (set === 0) return holder + 1
    if (set === this.#withSet && holder === this.#withHolder) return this.#withResult
    if (this.has(set, holder)) return set
    const result = this.#step(set, holder, 1)
    if (result === NO_SET) return NO_SET
    this.#withSet = set
    this.#withHolder = holder
    this.#withResult = result
    return result
  }

  /** The set with `holder` taken out; the same id when it is not in. NO_SET: no id is free. */
  without(set: number, holder: number): number {
    if (set <= this.#holders) return set === holder + 1 ? 0 : set
    if (set === this.#withoutSet && holder === this.#withoutHolder) return this.#withoutResult
    if (!this.has(set, holder)) return set
    const result = this.#step(set, holder, 0)
    if (result === NO_SET) return NO_SET
    this.#withoutSet = set
    this.#withoutHolder = holder
    this.#withoutResult = result
    return result
  }

  /** The set of some holders, at least one. NO_SET: no id is free. */
  of(holders: readonly number[]): number {
    this.#scratch.fill(0)
    for (const holder of holders) this.#scratch[holder >>> 5]! |= 1 << (holder & 31)
    return this.#internScratch(this.#words[H_HOLDER_WORDS]!)
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
    if (set === this.#purgedSet) return this.#purgedResult
    const transitions = this.#transitions
    const at = this.#transitionAt(set, this.#purges, 2)
    const key = -1 - this.#purges
    let result: number
    if (transitions[at] === set && transitions[at + 1] === key) {
      result = transitions[at + 2]!
    } else {
      const scratch = this.#scratch
      const wordCount = this.#words[H_HOLDER_WORDS]!
      const row = this.#row(set)
      let isSame = true
      for (let i = 0; i < wordCount; i++) {
        const word = this.#words[row + i]!
        scratch[i] = word & ~mask[i]!
        if (scratch[i] !== word) isSame = false
      }
      result = isSame ? set : this.#internScratch(wordCount)
      if (result === NO_SET) return NO_SET
      this.#remember(set, this.#purges, 2, key, result)
    }
    this.#purgedSet = set
    this.#purgedResult = result
    return result
  }

  /** Another mask is used with `purge` from now on. */
  beginPurge(): void {
    this.#purges = (this.#purges + 1) & 0xff_ffff
    this.#purgedSet = -1
  }

  /** A block went from one id to another. Must follow `with` and `without` before their next call. */
  move(from: number, to: number): void {
    const blocks = this.#blocks
    const holders = this.#holders
    if (--blocks[from]! === 0 && from > holders) this.#garbage++
    if (++blocks[to]! === 1 && to > holders) this.#garbage--
  }

  /**
   * Moves to other shared memory and to tables as small as they may be. Ids become dense: element s of the
   * answer is the new id of interned set H + 1 + s, 0 for one that no block has.
   */
  renew(words: Int32Array): Int32Array {
    const before = this.#words
    const wordCount = before[H_HOLDER_WORDS]!
    const ids = new Int32Array(this.#fresh)
    const count = this.count
    const blocks = this.#blocks
    const hashes = this.#hashes
    const fresh = this.#fresh
    this.#words = words
    this.#fresh = 0
    this.#freeCount = 0
    this.#garbage = 0
    this.#softMax = Math.min(SETS_SOFT_MIN, this.#setsMax)
    while (this.#softMax < count) this.#softMax = Math.min(this.#softMax * 2, this.#setsMax)
    this.#blocks = new Int32Array(this.#holders + 1 + this.#softMax)
    this.#blocks.set(blocks.subarray(0, this.#holders + 1))
    this.#hashes = new Int32Array(this.#softMax)
    this.#freeIds = new Int32Array(this.#softMax)
    this.#intern = new Int32Array(internSize(this.#softMax))
    this.#transitions = new Int32Array(this.#transitionWords())
    this.#forgetLast()
    for (let i = 0; i < fresh; i++) {
      const held = blocks[this.#holders + 1 + i]!
      if (held <= 0) continue
      const id = this.#fresh++
      const from = this.#bitsBase + Math.imul(i, this.#setWords)
      words.set(before.subarray(from, from + wordCount), this.#bitsBase + Math.imul(id, this.#setWords))
      this.#blocks[this.#holders + 1 + id] = held
      this.#hashes[id] = hashes[i]!
      ids[i] = this.#holders + 1 + id
      this.#insert(id)
    }
    this.#touched = this.#fresh
    return ids
  }

  #row(set: number): number {
    return this.#bitsBase + Math.imul(set - this.#holders - 1, this.#setWords)
  }

  #transitionWords(): number {
    const entries = Math.min(this.#transitionsMax, Math.max(TRANSITIONS_MIN, this.#softMax * 4))
    return 2 ** Math.floor(Math.log2(entries)) * TRANSITION_WORDS
  }

  #transitionAt(set: number, holder: number, sign: number): number {
    const mixed = Math.imul(set ^ Math.imul(holder, 0x85ebca6b), 0x9e3779b1)
    return (
      ((mixed ^ (mixed >>> 15) ^ sign) & (this.#transitions.length / TRANSITION_WORDS - 1)) * TRANSITION_WORDS
    )
  }

  /** Interning may have replaced the cache, so the place is looked up again. */
  #remember(set: number, holder: number, sign: number, key: number, result: number): void {
    const at = this.#transitionAt(set, holder, sign)
    this.#transitions[at] = set
    this.#transitions[at + 1] = key
    this.#transitions[at + 2] = result
  }

  #step(set: number, holder: number, sign: number): number {
    const transitions = this.#transitions
    const at = this.#transitionAt(set, holder, sign)
    const key = holder * 2 + sign
    if (transitions[at] === set && transitions[at + 1] === key) return transitions[at + 2]!

    const scratch = this.#scratch
    const wordCount = this.#words[H_HOLDER_WORDS]!
    if (set <= this.#holders) {
      scratch.fill(0)
      scratch[(set - 1) >>> 5] = 1 << ((set - 1) & 31)
    } else {
      const row = this.#row(set)
      for (let i = 0; i < wordCount; i++) scratch[i] = this.#words[row + i]!
    }
    if (sign === 1) scratch[holder >>> 5]! |= 1 << (holder & 31)
    else scratch[holder >>> 5]! &= ~(1 << (holder & 31))

    const result = this.#internScratch(wordCount)
    if (result !== NO_SET) this.#remember(set, holder, sign, key, result)
    return result
  }

  #internScratch(wordCount: number): number {
    const scratch = this.#scratch
    let only = -1
    let members = 0
    for (let i = 0; i < wordCount && members < 2; i++) {
      const word = scratch[i]!
      if (word === 0) continue
      members += (word & (word - 1)) === 0 ? 1 : 2
      only = i * 32 + 31 - Math.clz32(word & -word)
    }
    if (members === 0) return 0
    if (members === 1) return only + 1

    const hash = this.#hashOfScratch(wordCount)
    const mask = this.#intern.length - 1
    let at = hash & mask
    for (let id = this.#intern[at]!; id !== 0; id = this.#intern[at]!) {
      if (this.#hashes[id - 1] === hash && this.#equalsScratch(id - 1, wordCount)) return this.#holders + id
      at = (at + 1) & mask
    }
    const id = this.#allocate()
    if (id === NO_SET) return NO_SET
    const row = this.#bitsBase + Math.imul(id, this.#setWords)
    const version = this.#versionBase + id
    Atomics.store(this.#words, version, (this.#words[version]! + 1) | 0)
    for (let i = 0; i < wordCount; i++) save(this.#words, row + i, scratch[i]!, this.#isAtomic)
    Atomics.store(this.#words, version, (this.#words[version]! + 1) | 0)
    this.#hashes[id] = hash
    this.#insert(id)
    return this.#holders + 1 + id
  }

  #allocate(): number {
    if (this.#freeCount === 0 && this.#fresh >= this.#softMax) {
      if (this.#garbage > 0 && this.#garbage >= this.#fresh * GARBAGE_SHARE) this.#sweep()
      if (this.#freeCount * 2 < this.#softMax && this.#softMax < this.#setsMax) this.#grow()
    }
    let id: number
    if (this.#freeCount > 0) id = this.#freeIds[--this.#freeCount]!
    else if (this.#fresh < this.#softMax) id = this.#fresh++
    else return NO_SET
    if (id >= this.#touched) this.#touched = id + 1
    this.#blocks[this.#holders + 1 + id] = 0
    this.#garbage++ // until a block has it
    return id
  }

  #grow(): void {
    this.#softMax = Math.min(this.#softMax * 2, this.#setsMax)
    this.#blocks = enlarged(this.#blocks, this.#holders + 1 + this.#softMax)
    this.#hashes = enlarged(this.#hashes, this.#softMax)
    this.#freeIds = enlarged(this.#freeIds, this.#softMax)
    this.#intern = new Int32Array(internSize(this.#softMax))
    this.#transitions = new Int32Array(this.#transitionWords())
    for (let id = 0; id < this.#fresh; id++)
      if (this.#blocks[this.#holders + 1 + id] !== FREE) this.#insert(id)
  }

  /** Frees the ids that no block has. Every remembered step may name one: all are forgotten. */
  #sweep(): void {
    this.#intern.fill(0)
    this.#transitions.fill(0)
    this.#forgetLast()
    for (let id = 0; id < this.#fresh; id++) {
      const at = this.#holders + 1 + id
      const blocks = this.#blocks[at]!
      if (blocks > 0) {
        this.#insert(id)
      } else if (blocks === 0) {
        this.#blocks[at] = FREE
        this.#freeIds[this.#freeCount++] = id
      }
    }
    this.#garbage = 0
  }

  #forgetLast(): void {
    this.#withSet = -1
    this.#withoutSet = -1
    this.#purgedSet = -1
  }

  #insert(id: number): void {
    const mask = this.#intern.length - 1
    let at = this.#hashes[id]! & mask
    while (this.#intern[at] !== 0) at = (at + 1) & mask
    this.#intern[at] = id + 1
  }

  /** Words that are 0 do not count, so that the hash stays when bitmaps get longer. */
  #hashOfScratch(wordCount: number): number {
    const scratch = this.#scratch
    let h = 0
    for (let i = 0; i < wordCount; i++) {
      const word = scratch[i]!
      if (word !== 0) h = Math.imul(h ^ word ^ (i << 24), 0x9e3779b1) ^ (h >>> 15)
    }
    h ^= h >>> 16
    return Math.imul(h, 0x85ebca6b) ^ (h >>> 13)
  }

  #equalsScratch(id: number, wordCount: number): boolean {
    const row = this.#bitsBase + Math.imul(id, this.#setWords)
    for (let i = 0; i < wordCount; i++) if (this.#words[row + i] !== this.#scratch[i]) return false
    return true
  }
}

function internSize(sets: number): number {
  return 2 ** Math.ceil(Math.log2(sets * 1.5))
}

function enlarged(array: Int32Array, length: number): Int32Array {
  const result = new Int32Array(length)
  result.set(array)
  return result
}
