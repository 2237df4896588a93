/**
 * WorkerSets: interned sets of worker slots; a block says who holds it with one word. The writer's side.
 *
 *   id 0         nobody
 *   id 1 … N     exactly worker slot id − 1; no memory
 *   id above N   a bitmap of ≥ 2 worker slots in shared memory, never changed while a block has the id
 *
 * Adding or removing a worker slot moves a block to another id. The steps (set, worker slot, ±) → set are
 * remembered: the last one of each sign, and a direct-mapped cache. A set that no block has is garbage until
 * the next sweep, which runs when ids run out; then the ids are given to other sets.
 *
 * Protocol: a bitmap is rewritten between two increments of its version (odd meanwhile). A reader that
 * copied it under one even version, and found the id still at the block afterwards, has the set of the block.
 */

import { H_SET_BITS_BASE, H_SET_VERSION_BASE, H_SLOT_WORDS, type Layout, save } from './layout.ts'

/** No id is free: see `with` and `without`. */
export const NO_SET = -1

const FREE = -1
const SETS_SOFT_MIN = 1024
/** A sweep must be able to free this share of the ids, or it is not worth the scan. */
const GARBAGE_SHARE = 1 / 8
const TRANSITION_WORDS = 4

export class WorkerSets {
  readonly #words: Int32Array
  readonly #isAtomic: boolean
  readonly #slots: number
  readonly #setWords: number
  readonly #setsMax: number
  readonly #bitsBase: number
  readonly #versionBase: number
  /** Blocks that have the id; −1 for an id that is free. */
  readonly #blocks: Int32Array
  readonly #intern: Int32Array
  readonly #transitions: Int32Array
  readonly #transitionMask: number
  readonly #scratch: Int32Array
  readonly #freeIds: Int32Array
  #freeCount = 0
  #fresh = 0
  #softMax: number
  #garbage = 0
  #withSet = -1
  #withSlot = -1
  #withResult = 0
  #withoutSet = -1
  #withoutSlot = -1
  #withoutResult = 0

  constructor(layout: Layout, words: Int32Array, isAtomic: boolean) {
    this.#words = words
    this.#isAtomic = isAtomic
    this.#slots = layout.workerSlotsMax
    this.#setWords = layout.setWords
    this.#setsMax = layout.setsMax
    this.#bitsBase = words[H_SET_BITS_BASE]!
    this.#versionBase = words[H_SET_VERSION_BASE]!
    this.#blocks = new Int32Array(layout.workerSlotsMax + 1 + layout.setsMax)
    this.#intern = new Int32Array(layout.internSize)
    this.#transitions = new Int32Array(layout.transitionCount * TRANSITION_WORDS)
    this.#transitionMask = layout.transitionCount - 1
    this.#scratch = new Int32Array(layout.setWords)
    this.#freeIds = new Int32Array(layout.setsMax)
    this.#softMax = Math.min(SETS_SOFT_MIN, layout.setsMax)
  }

  /** Interned sets that some block has. */
  get count(): number {
    return this.#fresh - this.#freeCount - this.#garbage
  }

  has(set: number, slot: number): boolean {
    if (set <= this.#slots) return set === slot + 1
    return ((this.#words[this.#row(set) + (slot >>> 5)]! >>> (slot & 31)) & 1) !== 0
  }

  /** Some member of a set that is not empty. */
  lowest(set: number, except = -1): number {
    if (set <= this.#slots) return set - 1 === except ? -1 : set - 1
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
    if (set <= this.#slots) return [set - 1]
    for (let slot = 0; slot < this.#slots; slot++) if (this.has(set, slot)) members.push(slot)
    return members
  }

  /** The set with `slot` added; the same id when it is in. NO_SET: no id is free. */
  with(set: number, slot: number): number {
    if (set === 0) return slot + 1
    if (set === this.#withSet && slot === this.#withSlot) return this.#withResult
    if (this.has(set, slot)) return set
    const result = this.#step(set, slot, 1)
    if (result === NO_SET) return NO_SET
    this.#withSet = set
    this.#withSlot = slot
    this.#withResult = result
    return result
  }

  /** The set with `slot` taken out; the same id when it is not in. NO_SET: no id is free. */
  without(set: number, slot: number): number {
    if (set <= this.#slots) return set === slot + 1 ? 0 : set
    if (set === this.#withoutSet && slot === this.#withoutSlot) return this.#withoutResult
    if (!this.has(set, slot)) return set
    const result = this.#step(set, slot, 0)
    if (result === NO_SET) return NO_SET
    this.#withoutSet = set
    this.#withoutSlot = slot
    this.#withoutResult = result
    return result
  }

  /** A block went from one id to another. Must follow `with` and `without` before their next call. */
  move(from: number, to: number): void {
    const blocks = this.#blocks
    const slots = this.#slots
    if (--blocks[from]! === 0 && from > slots) this.#garbage++
    if (++blocks[to]! === 1 && to > slots) this.#garbage--
  }

  #row(set: number): number {
    return this.#bitsBase + Math.imul(set - this.#slots - 1, this.#setWords)
  }

  #step(set: number, slot: number, sign: number): number {
    const transitions = this.#transitions
    const mixed = Math.imul(set ^ Math.imul(slot, 0x85ebca6b), 0x9e3779b1)
    const at = ((mixed ^ (mixed >>> 15) ^ sign) & this.#transitionMask) * TRANSITION_WORDS
    const key = slot * 2 + sign
    if (transitions[at] === set && transitions[at + 1] === key) return transitions[at + 2]!

    const scratch = this.#scratch
    const wordCount = this.#words[H_SLOT_WORDS]!
    if (set <= this.#slots) {
      scratch.fill(0)
      scratch[(set - 1) >>> 5] = 1 << ((set - 1) & 31)
    } else {
      const row = this.#row(set)
      for (let i = 0; i < wordCount; i++) scratch[i] = this.#words[row + i]!
    }
    if (sign === 1) scratch[slot >>> 5]! |= 1 << (slot & 31)
    else scratch[slot >>> 5]! &= ~(1 << (slot & 31))

    const result = this.#internScratch(wordCount)
    if (result !== NO_SET) {
      transitions[at] = set
      transitions[at + 1] = key
      transitions[at + 2] = result
    }
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
    if (members === 1) return only + 1

    const mask = this.#intern.length - 1
    let at = this.#hash(scratch, 0, wordCount) & mask
    for (let set = this.#intern[at]!; set !== 0; set = this.#intern[at]!) {
      if (this.#equalsScratch(set, wordCount)) return set
      at = (at + 1) & mask
    }
    const set = this.#allocate()
    if (set === NO_SET) return NO_SET
    const row = this.#row(set)
    const version = this.#versionBase + set - this.#slots - 1
    Atomics.store(this.#words, version, (this.#words[version]! + 1) | 0)
    for (let i = 0; i < wordCount; i++) save(this.#words, row + i, scratch[i]!, this.#isAtomic)
    Atomics.store(this.#words, version, (this.#words[version]! + 1) | 0)
    this.#insert(set, wordCount) // a sweep may have moved the entries: probe again
    return set
  }

  #allocate(): number {
    if (this.#freeCount === 0 && this.#fresh >= this.#softMax) {
      if (this.#garbage > 0 && this.#garbage >= this.#fresh * GARBAGE_SHARE) this.#sweep()
      if (this.#freeCount * 2 < this.#softMax) this.#softMax = Math.min(this.#softMax * 2, this.#setsMax)
    }
    let set: number
    if (this.#freeCount > 0) set = this.#freeIds[--this.#freeCount]!
    else if (this.#fresh < this.#softMax) set = this.#slots + 1 + this.#fresh++
    else return NO_SET
    this.#blocks[set] = 0
    this.#garbage++ // until a block has it
    return set
  }

  /** Frees the ids that no block has. Every remembered step may name one: all are forgotten. */
  #sweep(): void {
    const wordCount = this.#words[H_SLOT_WORDS]!
    this.#intern.fill(0)
    this.#transitions.fill(0)
    this.#withSet = -1
    this.#withoutSet = -1
    for (let i = 0; i < this.#fresh; i++) {
      const set = this.#slots + 1 + i
      const blocks = this.#blocks[set]!
      if (blocks > 0) {
        this.#insert(set, wordCount)
      } else if (blocks === 0) {
        this.#blocks[set] = FREE
        this.#freeIds[this.#freeCount++] = set
      }
    }
    this.#garbage = 0
  }

  #insert(set: number, wordCount: number): void {
    const mask = this.#intern.length - 1
    let at = this.#hash(this.#words, this.#row(set), wordCount) & mask
    while (this.#intern[at] !== 0) at = (at + 1) & mask
    this.#intern[at] = set
  }

  /** Words that are 0 do not count, so that the hash stays when bitmaps get longer. */
  #hash(words: Int32Array, base: number, wordCount: number): number {
    let h = 0
    for (let i = 0; i < wordCount; i++) {
      const word = words[base + i]!
      if (word !== 0) h = Math.imul(h ^ word ^ (i << 24), 0x9e3779b1) ^ (h >>> 15)
    }
    h ^= h >>> 16
    return Math.imul(h, 0x85ebca6b) ^ (h >>> 13)
  }

  #equalsScratch(set: number, wordCount: number): boolean {
    const row = this.#row(set)
    for (let i = 0; i < wordCount; i++) if (this.#words[row + i] !== this.#scratch[i]) return false
    return true
  }
}
