/**
 * Hash table: 64-bit hashes to numbers, with open addressing; entries are never removed.
 *
 *   keys     | lo | hi | lo | hi | …     Int32
 *   numbers  | number + 1 | …            Float64; 0: the slot is free
 *
 * The keys are hashes already, so their low word picks the slot. At most half of the slots are taken: 32
 * bytes a hash.
 */

const HASH_SLOTS_MIN = 1024

export class HashTable {
  #keys = new Int32Array(2 * HASH_SLOTS_MIN)
  #numbers = new Float64Array(HASH_SLOTS_MIN)
  #size = 0

  get size(): number {
    return this.#size
  }

  get(lo: number, hi: number): number | undefined {
    const found = this.#numbers[this.#slot(lo, hi)]!
    return found === 0 ? undefined : found - 1
  }

  /** The hash must not be there. */
  add(lo: number, hi: number, number: number): void {
    if (2 * (this.#size + 1) > this.#numbers.length) this.#grow()
    this.#put(lo, hi, number + 1)
    this.#size++
  }

  #put(lo: number, hi: number, word: number): void {
    const slot = this.#slot(lo, hi)
    this.#keys[2 * slot] = lo
    this.#keys[2 * slot + 1] = hi
    this.#numbers[slot] = word
  }

  /** Where the hash is, or would be. */
  #slot(lo: number, hi: number): number {
    const mask = this.#numbers.length - 1
    for (let slot = lo & mask; ; slot = (slot + 1) & mask) {
      const isFree = this.#numbers[slot] === 0
      if (isFree || (this.#keys[2 * slot] === lo && this.#keys[2 * slot + 1] === hi)) return slot
    }
  }

  #grow(): void {
    const [keys, numbers] = [this.#keys, this.#numbers]
    this.#keys = new Int32Array(2 * keys.length)
    this.#numbers = new Float64Array(2 * numbers.length)
    for (let slot = 0; slot < numbers.length; slot++) {
      if (numbers[slot] !== 0) this.#put(keys[2 * slot]!, keys[2 * slot + 1]!, numbers[slot]!)
    }
  }
}
