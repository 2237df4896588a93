/**
 * Vocabulary: token bytes to id, in shared memory.
 *
 *   slots     2 words each: hash, entry + 1 (0: free); open addressing, at most half full
 *   starts    where the bytes of entry i begin; the bytes of all entries lie in a row, so starts[i + 1] ends them
 *   ids       the id of entry i
 *   wholes    what merging the bytes of entry i gives: WHOLE this token alone, PARTED something else, UNKNOWN not tried yet
 *
 * The bytes are those that the text of the token has: of byte-level models the bytes themselves, of others UTF-8.
 * `wholes` is the one part that is written after the tables are handed out: by any thread, for each entry always the same
 * value, one byte at a time. A thread that misses another's write finds the same out again.
 */

export const UNKNOWN = 0
export const WHOLE = 1
export const PARTED = 2

/** The arrays of a vocabulary, ready to be packed into shared memory. */
export interface VocabularyArrays {
  readonly slots: Int32Array
  readonly starts: Int32Array
  readonly bytes: Uint8Array
  readonly ids: Int32Array
  readonly wholes: Uint8Array
}

/** The smallest power of two that holds `count` at half full. */
export function slotCountFor(count: number): number {
  let slots = 16
  while (slots < count * 2) slots *= 2
  return slots
}

/** Tokens by their bytes. */
export class Vocabulary {
  readonly arrays: VocabularyArrays
  /** Whether two tokens have the same bytes, of a vocabulary that was just built. */
  readonly hasTwins: boolean
  readonly #slots: Int32Array
  readonly #starts: Int32Array
  readonly #bytes: Uint8Array
  readonly #ids: Int32Array
  readonly #wholes: Uint8Array
  readonly #mask: number

  constructor(arrays: VocabularyArrays, hasTwins = false) {
    this.arrays = arrays
    this.hasTwins = hasTwins
    this.#slots = arrays.slots
    this.#starts = arrays.starts
    this.#bytes = arrays.bytes
    this.#ids = arrays.ids
    this.#wholes = arrays.wholes
    this.#mask = arrays.slots.length / 2 - 1
  }

  /** Of `ids.length` tokens, whose bytes lie in a row. */
  static build(starts: Int32Array, bytes: Uint8Array, ids: Int32Array): Vocabulary {
    const slotCount = slotCountFor(ids.length)
    const slots = new Int32Array(slotCount * 2)
    const length = (entry: number): number => starts[entry + 1]! - starts[entry]!
    const isTwin = (one: number, other: number): boolean => {
      if (length(one) !== length(other)) return false
      for (let i = 0; i < length(one); i++)
        if (bytes[starts[one]! + i] !== bytes[starts[other]! + i]) return false
      return true
    }
    let hasTwins = false
    for (let entry = 0; entry < ids.length; entry++) {
      const hash = hashOf(bytes, starts[entry]!, starts[entry + 1]!)
      let slot = hash & (slotCount - 1)
      while (slots[slot * 2 + 1] !== 0) {
        if (slots[slot * 2] === hash && isTwin(entry, slots[slot * 2 + 1]! - 1)) hasTwins = true
        slot = (slot + 1) & (slotCount - 1)
      }
      slots[slot * 2] = hash
      slots[slot * 2 + 1] = entry + 1
    }
    return new Vocabulary({ slots, starts, bytes, ids, wholes: new Uint8Array(ids.length) }, hasTwins)
  }

  /** The entry of the token with these bytes, or -1. */
  find(bytes: Uint8Array, start: number, end: number): number {
    const hash = hashOf(bytes, start, end)
    const slots = this.#slots
    let slot = hash & this.#mask
    for (;;) {
      const entry = slots[slot * 2 + 1]! - 1
      if (entry < 0) return -1
      if (slots[slot * 2] === hash && this.#isAt(entry, bytes, start, end)) return entry
      slot = (slot + 1) & this.#mask
    }
  }

  /** The same, where entries `guess` and the one behind it are looked at first: cheaper than a look by hash where one is right. */
  findNear(guess: number, bytes: Uint8Array, start: number, end: number): number {
    const last = Math.min(guess + 1, this.#ids.length - 1)
    for (let entry = Math.max(guess, 0); entry <= last; entry++)
      if (this.#isAt(entry, bytes, start, end)) return entry
    return this.find(bytes, start, end)
  }

  idAt(entry: number): number {
    return this.#ids[entry]!
  }

  /** UNKNOWN, WHOLE or PARTED. */
  wholeAt(entry: number): number {
    return this.#wholes[entry]!
  }

  setWhole(entry: number, value: typeof WHOLE | typeof PARTED): void {
    this.#wholes[entry] = value
  }

  #isAt(entry: number, bytes: Uint8Array, start: number, end: number): boolean {
    const at = this.#starts[entry]!
    const length = end - start
    if (this.#starts[entry + 1]! - at !== length) return false
    const own = this.#bytes
    for (let i = 0; i < length; i++) if (own[at + i] !== bytes[start + i]) return false
    return true
  }
}

function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = 0x2545f491
  for (let i = start; i < end; i++) hash = Math.imul(hash ^ bytes[i]!, 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return hash ^ (hash >>> 13)
}
