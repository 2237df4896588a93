/**
 * Vocabulary: token bytes to id, in shared memory.
 *
 *   slots     4 words each, a quarter of a cache line; open addressing, at most half full
 *             short token  | bytes 0 … 3 | 4 … 7  | what merging gives, id | entry, length |
 *             long token   | hash        | 0      |                        | entry, LONG   |
 *   starts    where the bytes of entry i begin; the bytes of all entries lie in a row, so starts[i + 1] ends
 *             them
 *   ids       the id of entry i
 *
 * A token of up to 8 bytes (most words) costs one look at one slot. "What merging gives" of its bytes: WHOLE
 * this token alone, PARTED something else, UNKNOWN not tried yet.
 *
 * The bytes are those that the text of the token has: in byte-level models the bytes themselves, in others
 * UTF-8. Only "what merging gives" is written after the tables are handed out: by any thread, for each token
 * always the same value, one word at a time. A thread that misses another's write computes the same value.
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
}

const SLOT_WORDS = 4
const SHORT_BYTES = 8
/** In the last word of a slot: below the entry + 1, which is 0 in a slot that is free. */
const LENGTH_BITS = 4
const LENGTH_MASK = (1 << LENGTH_BITS) - 1
const LONG = LENGTH_MASK
const WHOLE_SHIFT = 30
const ID_MASK = (1 << WHOLE_SHIFT) - 1

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
  readonly #mask: number

  constructor(arrays: VocabularyArrays, hasTwins = false) {
    this.arrays = arrays
    this.hasTwins = hasTwins
    this.#slots = arrays.slots
    this.#starts = arrays.starts
    this.#bytes = arrays.bytes
    this.#ids = arrays.ids
    this.#mask = arrays.slots.length - 1
  }

  /** Of `ids.length` tokens, whose bytes lie in a row. */
  static build(starts: Int32Array, bytes: Uint8Array, ids: Int32Array): Vocabulary {
    const slots = new Int32Array(slotCountFor(ids.length) * SLOT_WORDS)
    const vocabulary = new Vocabulary({ slots, starts, bytes, ids })
    let hasTwins = false
    for (let entry = 0; entry < ids.length; entry++) {
      const start = starts[entry]!
      const end = starts[entry + 1]!
      const slot = vocabulary.#slotOf(bytes, start, end)
      // Of twins the first is found.
      if (slots[slot + 3] !== 0) {
        hasTwins = true
        continue
      }
      const isShort = end - start <= SHORT_BYTES
      slots[slot] = isShort ? fourBytes(bytes, start, end) : hashOf(bytes, start, end)
      slots[slot + 1] = isShort ? fourBytes(bytes, start + 4, end) : 0
      slots[slot + 2] = ids[entry]!
      slots[slot + 3] = ((entry + 1) << LENGTH_BITS) | (isShort ? end - start : LONG)
    }
    return hasTwins ? new Vocabulary(vocabulary.arrays, true) : vocabulary
  }

  /** What merging gives is the token itself, for all. */
  setAllWhole(): void {
    const slots = this.#slots
    for (let slot = 0; slot < slots.length; slot += SLOT_WORDS)
      if (slots[slot + 3] !== 0) this.setWhole(slot, WHOLE)
  }

  /** The entry of the token with these bytes, or -1. */
  find(bytes: Uint8Array, start: number, end: number): number {
    return (this.#slots[this.#slotOf(bytes, start, end) + 3]! >>> LENGTH_BITS) - 1
  }

  /** The slot of the token with these bytes, or -1. */
  findSlot(bytes: Uint8Array, start: number, end: number): number {
    const slot = this.#slotOf(bytes, start, end)
    return this.#slots[slot + 3] === 0 ? -1 : slot
  }

  idOfSlot(slot: number): number {
    return this.#slots[slot + 2]! & ID_MASK
  }

  /** UNKNOWN, WHOLE or PARTED. */
  wholeOfSlot(slot: number): number {
    return this.#slots[slot + 2]! >>> WHOLE_SHIFT
  }

  setWhole(slot: number, value: typeof WHOLE | typeof PARTED): void {
    this.#slots[slot + 2] = (this.#slots[slot + 2]! & ID_MASK) | (value << WHOLE_SHIFT)
  }

  /**
   * The same, where entries `guess` and the one behind it are looked at first: cheaper than a look by hash
   * where one is right.
   */
  findNear(guess: number, bytes: Uint8Array, start: number, end: number): number {
    const last = Math.min(guess + 1, this.#ids.length - 1)
    for (let entry = Math.max(guess, 0); entry <= last; entry++)
      if (this.#isAt(entry, bytes, start, end)) return entry
    return this.find(bytes, start, end)
  }

  idAt(entry: number): number {
    return this.#ids[entry]!
  }

  /** Where the slot of these bytes begins, or the free one that a look for them ends at. */
  #slotOf(bytes: Uint8Array, start: number, end: number): number {
    const slots = this.#slots
    const mask = this.#mask
    if (end - start <= SHORT_BYTES) {
      const low = fourBytes(bytes, start, end)
      const high = fourBytes(bytes, start + 4, end)
      let slot = (hashOfShort(low, high, end - start) << 2) & mask
      for (;;) {
        const last = slots[slot + 3]!
        if (last === 0) return slot
        if (slots[slot] === low && slots[slot + 1] === high && (last & LENGTH_MASK) === end - start)
          return slot
        slot = (slot + SLOT_WORDS) & mask
      }
    }
    const hash = hashOf(bytes, start, end)
    let slot = (hash << 2) & mask
    for (;;) {
      const last = slots[slot + 3]!
      if (last === 0) return slot
      if (
        slots[slot] === hash &&
        (last & LENGTH_MASK) === LONG &&
        this.#isAt((last >>> LENGTH_BITS) - 1, bytes, start, end)
      )
        return slot
      slot = (slot + SLOT_WORDS) & mask
    }
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

/** Bytes from `at` on, the first one lowest; 0 for those behind the end. */
function fourBytes(bytes: Uint8Array, at: number, end: number): number {
  let word = 0
  const last = Math.min(at + 4, end)
  for (let i = at; i < last; i++) word |= bytes[i]! << ((i - at) * 8)
  return word
}

function hashOfShort(low: number, high: number, length: number): number {
  let hash = Math.imul(low ^ length, 0x9e3779b1) ^ Math.imul(high, 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return hash ^ (hash >>> 13)
}

function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = 0x2545f491
  for (let i = start; i < end; i++) hash = Math.imul(hash ^ bytes[i]!, 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return hash ^ (hash >>> 13)
}
