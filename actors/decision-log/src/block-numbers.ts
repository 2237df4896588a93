/**
 * Block numbers: 0, 1, 2 … for sequence hashes, in the order in which they are first seen.
 *
 *   young | hash -> number |   what is new, and what is seen again
 *   old   | hash -> number |   what was not seen since the young one was empty
 *
 * When the young table holds `rememberedMin` hashes it becomes the old one, and the old one is forgotten. So
 * at least the last `rememberedMin` different hashes are known, and at most twice as many. A hash that was
 * forgotten gets a new number when it returns: it then looks like a prompt that was never seen.
 *
 * Memory: 32 bytes for each hash of a table that is full, and as much again for the other table.
 */

import { HashTable } from './hash-table.ts'

export class BlockNumbers {
  readonly #rememberedMin: number
  #young = new HashTable()
  #old = new HashTable()
  #next = 0

  /** `rememberedMin` ≥ 1. */
  constructor(rememberedMin: number) {
    this.#rememberedMin = rememberedMin
  }

  /** Numbers that were given. */
  get given(): number {
    return this.#next
  }

  /** Hashes that are known now. */
  get remembered(): number {
    return this.#young.size + this.#old.size
  }

  /** A number that was never given before. */
  fresh(): number {
    return this.#next++
  }

  /** The number of each hash; `hashes` are pairs [lo, hi] and only read. */
  of(hashes: Int32Array): number[] {
    const numbers = new Array<number>(hashes.length / 2)
    for (let i = 0; i < numbers.length; i++) numbers[i] = this.#number(hashes[2 * i]!, hashes[2 * i + 1]!)
    return numbers
  }

  #number(lo: number, hi: number): number {
    const known = this.#young.get(lo, hi)
    if (known !== undefined) return known
    const number = this.#old.get(lo, hi) ?? this.#next++
    if (this.#young.size >= this.#rememberedMin) {
      this.#old = this.#young
      this.#young = new HashTable()
    }
    this.#young.add(lo, hi, number)
    return number
  }
}
