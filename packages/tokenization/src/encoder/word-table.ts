/**
 * Word table: the ids of words that were merged before, found by the words' UTF-16 units.
 *
 *   slots    8 words each, half a cache line; open addressing, PROBES_MAX probes at most
 *            short word   | head | units 0,1 | 2,3 | 4,5 | 6,7 | first id | second id or ids' offset | hash |
 *            long word    | head | offset of units and ids    |   0       |                          | hash |
 *            head         units << 16 | ids, and PART if the word is a part of a piece; 0: free
 *   spilled  what finds no room in a slot: units, two a word, and ids
 *
 * A word of up to 8 units and 2 ids (nine of ten in a text) costs one look at one slot. No string is made.
 *
 * Two generations share the bound. Words go into the young one; when that is full it becomes the old one, and
 * the old one is forgotten. A word found in the old one moves into the young one, so words in use stay. A
 * text of junk therefore costs one generation, and no more memory than the bound.
 *
 * The first generation doubles in place until it has half of the bound: most of a table twice as large is
 * memory that was in use already. Untouched memory costs 1 to 2 µs a page, which was most of the time that
 * doubling took.
 *
 *   n slots   | slots    | spilled |
 *   2n slots  | slots               | spilled           |
 *
 * A hash never identifies a word: every hit compares all units. One thread, one table.
 */

/** Longer words are not kept; they are rare, and merging them is near-linear. */
export const WORD_UNITS_MAX = 256
const IDS_MAX = WORD_UNITS_MAX * 3
const SHORT_UNITS = 8
/**
 * Added to the units in a head: parts of pieces, where a whole piece of the same units may have other ids.
 */
export const PART = 0x400
const UNITS_MASK = PART - 1
const PROBES_MAX = 16
const WORD_SLOT_WORDS = 8
const WORD_SLOTS_MIN = 2048
/** Words of `spilled` per slot; half of the slots are used at most. */
const SPILLED_PER_SLOT = 4
const SLOT_BYTES = (WORD_SLOT_WORDS + SPILLED_PER_SLOT) * 4

/** Figures for gauges. */
export interface WordTableStats {
  readonly entries: number
  readonly bytes: number
  readonly resets: number
}

/** Memory for a table that grows with it: old content stays, and new memory is 0. */
export interface WordRoom {
  /** An array of `words` words, `at` words behind the begin; earlier ones may be of no use afterwards. */
  array(at: number, words: number): Int32Array
}

interface Generation {
  slots: Int32Array
  spilled: Int32Array
  mask: number
  /** Where it lies in the room, in slots. */
  readonly at: number
  used: number
  count: number
}

/** By length of a short word: what of its four pairs of units belongs to it. */
const MASKS = Int32Array.from({ length: (SHORT_UNITS + 1) * 4 }, (_, i) => {
  const units = (i >> 2) - (i & 3) * 2
  return units >= 2 ? -1 : units === 1 ? 0xffff : 0
})

/** Words to ids, within `bytesMax`. */
export class WordTable {
  readonly #slotsMax: number
  readonly #room: WordRoom
  #young: Generation
  #old: Generation
  #resets = 0
  /** What `find` found, where it answers more than 0: the ids lie in `foundIds` from `foundAt` on. */
  foundIds: Int32Array
  foundAt = 0

  /** Without `room`, the table has its own memory. */
  constructor(bytesMax: number, room: WordRoom = new OwnRoom()) {
    const slots = slotsMaxOf(bytesMax)
    this.#slotsMax = slots
    this.#room = room
    this.#young = this.#generation(Math.min(WORD_SLOTS_MIN, slots), 0)
    this.#old = makeGeneration(1, 0)
    this.foundIds = this.#young.slots
  }

  /** The generation that words go into: words of its slots, as described above. */
  get young(): { readonly slots: Int32Array; readonly spilled: Int32Array; readonly mask: number } {
    return this.#young
  }

  get stats(): WordTableStats {
    const generations = [this.#young, this.#old]
    return {
      entries: generations.reduce((sum, { count }) => sum + count, 0),
      bytes: generations.reduce((sum, { slots, spilled }) => sum + slots.byteLength + spilled.byteLength, 0),
      resets: this.#resets,
    }
  }

  /**
   * How many ids the word has, then `foundIds` from `foundAt` on; 0 when it is not here. Reads up to 8 units
   * from `start`, whatever `end` is. `kind` is 0 or PART.
   */
  find(units: Uint16Array, start: number, end: number, kind: number): number {
    const length = end - start
    if (length > SHORT_UNITS) return this.#findLong(units, start, end, kind)
    const tagged = length + kind
    const masks = length * 4
    const a = (units[start]! | (units[start + 1]! << 16)) & MASKS[masks]!
    const b = (units[start + 2]! | (units[start + 3]! << 16)) & MASKS[masks + 1]!
    const c = (units[start + 4]! | (units[start + 5]! << 16)) & MASKS[masks + 2]!
    const d = (units[start + 6]! | (units[start + 7]! << 16)) & MASKS[masks + 3]!
    const hash = hashOfShort(a, b, c, d)
    const { slots, mask } = this.#young
    let at = (hash & mask) * WORD_SLOT_WORDS
    for (let probes = 0; probes < PROBES_MAX; probes++) {
      const head = slots[at]!
      if (head === 0) break
      if (
        head >>> 16 === tagged &&
        slots[at + 1] === a &&
        slots[at + 2] === b &&
        slots[at + 3] === c &&
        slots[at + 4] === d
      )
        return this.#found(this.#young, at, 0)
      at = (at + WORD_SLOT_WORDS) & (slots.length - 1)
    }
    return this.#old.count === 0 ? 0 : this.#findOldShort(units, start, tagged, hash, a, b, c, d)
  }

  /** Keeps a word that is not here, with `count` of `ids`. */
  add(
    units: Uint16Array,
    start: number,
    end: number,
    kind: number,
    ids: Int32Array,
    idsAt: number,
    count: number,
  ): void {
    const length = end - start
    if (length > WORD_UNITS_MAX || count > IDS_MAX) return
    const size = spilledSize(length, count)
    if (!hasRoom(this.#young, size)) this.#makeRoom()
    const young = this.#young
    if (!hasRoom(young, size)) return
    const hash = hashOfWord(units, start, end)
    const at = freeSlot(young.slots, hash)
    if (at < 0) return
    const { slots, spilled } = young
    slots[at] = ((length + kind) << 16) | count
    slots[at + 7] = hash
    young.count++
    let offset = young.used
    young.used += size
    if (length > SHORT_UNITS) {
      slots[at + 1] = offset
      for (let i = 0; i < length; i += 2)
        spilled[offset++] = units[start + i]! | (i + 1 < length ? units[start + i + 1]! << 16 : 0)
    } else {
      for (let i = 0; i < length; i++) slots[at + 1 + (i >> 1)]! |= units[start + i]! << ((i & 1) << 4)
      if (count <= 2) {
        for (let i = 0; i < count; i++) slots[at + 5 + i] = ids[idsAt + i]!
        return
      }
      slots[at + 6] = offset
    }
    for (let i = 0; i < count; i++) spilled[offset + i] = ids[idsAt + i]!
  }

  #found(generation: Generation, at: number, idsOffset: number): number {
    const { slots } = generation
    const count = slots[at]! & 0xffff
    if (idsOffset === 0 && count <= 2) {
      this.foundIds = slots
      this.foundAt = at + 5
    } else {
      this.foundIds = generation.spilled
      this.foundAt = idsOffset === 0 ? slots[at + 6]! : idsOffset
    }
    return count
  }

  #findOldShort(
    units: Uint16Array,
    start: number,
    tagged: number,
    hash: number,
    a: number,
    b: number,
    c: number,
    d: number,
  ): number {
    const old = this.#old
    const { slots, mask } = old
    let at = (hash & mask) * WORD_SLOT_WORDS
    for (let probes = 0; probes < PROBES_MAX; probes++) {
      const head = slots[at]!
      if (head === 0) return 0
      const isSame =
        head >>> 16 === tagged &&
        slots[at + 1] === a &&
        slots[at + 2] === b &&
        slots[at + 3] === c &&
        slots[at + 4] === d
      if (isSame) {
        const end = start + (tagged & UNITS_MASK)
        return this.#foundOld(units, start, end, tagged & PART, this.#found(old, at, 0))
      }
      at = (at + WORD_SLOT_WORDS) & (slots.length - 1)
    }
    return 0
  }

  #findLong(units: Uint16Array, start: number, end: number, kind: number): number {
    if (end - start > WORD_UNITS_MAX) return 0
    const hash = hashOfWord(units, start, end)
    const young = this.#young
    const at = longSlot(young, hash, units, start, end, kind)
    const idWords = (end - start + 1) >> 1
    if (at >= 0) return this.#found(young, at, young.slots[at + 1]! + idWords)
    const old = this.#old
    const kept = old.count === 0 ? -1 : longSlot(old, hash, units, start, end, kind)
    if (kept < 0) return 0
    return this.#foundOld(units, start, end, kind, this.#found(old, kept, old.slots[kept + 1]! + idWords))
  }

  /**
   * Moves a word of the old generation where there is room; else the next new word makes some, and this one
   * waits.
   */
  #foundOld(units: Uint16Array, start: number, end: number, kind: number, count: number): number {
    if (hasRoom(this.#young, spilledSize(end - start, count)))
      this.add(units, start, end, kind, this.foundIds, this.foundAt, count)
    return count
  }

  /** Doubles the young generation, or makes it the old one. */
  #makeRoom(): void {
    const young = this.#young
    const slotCount = young.mask + 1
    if (slotCount < this.#slotsMax) {
      this.#double(young)
      return
    }
    const old = this.#old
    this.#old = young
    this.#resets++
    if (old.mask === young.mask) {
      old.slots.fill(0)
      old.used = 1
      old.count = 0
      this.#young = old
    } else {
      this.#young = this.#generation(slotCount, slotCount)
      // The room may have moved.
      this.#attach(young)
    }
  }

  /**
   * Spilled words move behind where the slots will end; the slots stay, and half of the words move into their
   * new half.
   */
  #double(generation: Generation): void {
    const { used } = generation
    const slotWords = generation.slots.length
    generation.mask = generation.mask * 2 + 1
    this.#attach(generation)
    const words = generation.slots
    generation.spilled.set(words.subarray(slotWords, slotWords + used))
    words.fill(0, slotWords, slotWords + used)
    generation.count -= spread(words, slotWords)
  }

  /** A new one, `at` slots behind the begin of the room, where nothing was before. */
  #generation(slotCount: number, at: number): Generation {
    const made = makeGeneration(slotCount, at)
    this.#attach(made)
    return made
  }

  /** Its arrays, anew. */
  #attach(generation: Generation): void {
    const { at, mask } = generation
    const slotWords = (mask + 1) * WORD_SLOT_WORDS
    const spilledWords = (mask + 1) * SPILLED_PER_SLOT
    const words = this.#room.array(at * (WORD_SLOT_WORDS + SPILLED_PER_SLOT), slotWords + spilledWords)
    generation.slots = words.subarray(0, slotWords)
    generation.spilled = words.subarray(slotWords)
  }
}

/** Memory of the table's own. */
class OwnRoom implements WordRoom {
  #words = new Int32Array(0)

  array(at: number, words: number): Int32Array {
    if (this.#words.length < at + words) {
      const larger = new Int32Array(at + words)
      larger.set(this.#words)
      this.#words = larger
    }
    return this.#words.subarray(at, at + words)
  }
}

function slotsMaxOf(bytesMax: number): number {
  let slots = 16
  while (slots * 2 * SLOT_BYTES * 2 <= bytesMax) slots *= 2
  return slots
}

function makeGeneration(slotCount: number, at: number): Generation {
  const none = new Int32Array(0)
  return { slots: none, spilled: none, mask: slotCount - 1, at, used: 1, count: 0 }
}

/**
 * Brings each word of the first `usedWords` words of slots to where it belongs among all of them, twice as
 * many; the others are free. Answers how many found no place.
 *
 * A word that stays in its half finds a place no later than where it lay, for the words before it, back to
 * the free slot that their row begins behind, were brought to their places before. The row at the very begin
 * may go on from the end; it is taken out first and comes last.
 */
function spread(slots: Int32Array, usedWords: number): number {
  let lost = 0
  let first = 0
  while (first < usedWords && slots[first] !== 0) first += WORD_SLOT_WORDS
  const row = slots.slice(0, first)
  slots.fill(0, 0, first)
  for (let at = first; at < usedWords; at += WORD_SLOT_WORDS) {
    if (slots[at] === 0) continue
    const head = slots[at]!
    slots[at] = 0
    const target = freeSlot(slots, slots[at + 7]!)
    if (target === at) {
      slots[at] = head
      continue
    }
    if (target < 0) lost++
    else {
      slots[target] = head
      for (let i = 1; i < WORD_SLOT_WORDS; i++) slots[target + i] = slots[at + i]!
    }
    for (let i = 1; i < WORD_SLOT_WORDS; i++) slots[at + i] = 0
  }
  for (let at = 0; at < row.length; at += WORD_SLOT_WORDS) {
    const target = freeSlot(slots, row[at + 7]!)
    if (target < 0) lost++
    else for (let i = 0; i < WORD_SLOT_WORDS; i++) slots[target + i] = row[at + i]!
  }
  return lost
}

function hasRoom({ count, mask, used, spilled }: Generation, size: number): boolean {
  return count * 2 <= mask && used + size <= spilled.length
}

function spilledSize(length: number, count: number): number {
  if (length > SHORT_UNITS) return ((length + 1) >> 1) + count
  return count > 2 ? count : 0
}

/** Where a free slot begins, or -1: texts that aim at one place of the table get no more entries there. */
function freeSlot(slots: Int32Array, hash: number): number {
  let at = Math.imul(hash, WORD_SLOT_WORDS) & (slots.length - 1)
  for (let probes = 0; probes < PROBES_MAX; probes++) {
    if (slots[at] === 0) return at
    at = (at + WORD_SLOT_WORDS) & (slots.length - 1)
  }
  return -1
}

function longSlot(
  { slots, spilled, mask }: Generation,
  hash: number,
  units: Uint16Array,
  start: number,
  end: number,
  kind: number,
): number {
  const length = end - start
  let at = (hash & mask) * WORD_SLOT_WORDS
  for (let probes = 0; probes < PROBES_MAX; probes++) {
    const head = slots[at]!
    if (head === 0) return -1
    if (slots[at + 7] === hash && head >>> 16 === length + kind) {
      const offset = slots[at + 1]!
      let i = 0
      while (
        i + 1 < length &&
        spilled[offset + (i >> 1)] === (units[start + i]! | (units[start + i + 1]! << 16))
      )
        i += 2
      if (i >= length || (i === length - 1 && spilled[offset + (i >> 1)] === units[start + i])) return at
    }
    at = (at + WORD_SLOT_WORDS) & (slots.length - 1)
  }
  return -1
}

function hashOfWord(units: Uint16Array, start: number, end: number): number {
  const length = end - start
  if (length > SHORT_UNITS) {
    let hash = length
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ units[i]!, 0x01000193)
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
    return hash ^ (hash >>> 13)
  }
  const pairs = [0, 0, 0, 0]
  for (let i = 0; i < length; i++) pairs[i >> 1]! |= units[start + i]! << ((i & 1) << 4)
  return hashOfShort(pairs[0]!, pairs[1]!, pairs[2]!, pairs[3]!)
}

function hashOfShort(a: number, b: number, c: number, d: number): number {
  const first = Math.imul(a, 0x9e3779b1) ^ Math.imul(c, 0x85ebca6b)
  const second = Math.imul(b, 0xc2b2ae35) ^ Math.imul(d, 0x27d4eb2f)
  const hash = Math.imul(first ^ (first >>> 15) ^ ((second << 11) | (second >>> 21)), 0x2c1b3c6d)
  return hash ^ (hash >>> 15)
}
