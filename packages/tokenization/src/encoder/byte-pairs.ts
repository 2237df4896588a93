/**
 * Byte-pair merging: of all neighbours that may merge, the pair of the lowest rank merges first, and of equal
 * pairs the leftmost; until none may. That is the order of the reference (a heap of rank and position).
 *
 *   merges      by rank, 3 words each: left id, right id, id of the merged token. Merges of low ranks are the
 *               most frequent, and lie side by side
 *   slots       1 word each: high bits of the hash | rank + 1; open addressing, at most 5/8 full; 0: free.
 *               Most look-ups that find nothing end here, in a quarter of the memory of whole entries
 *   byteRanks   by two bytes: the rank of their merge, or NONE; the first look-up of every piece of a
 *               byte-level model stays in the processor's caches
 *
 * Cost
 *   short   up to SHORT symbols: the lowest rank is searched anew for each merge, in arrays that fit the
 *           processor's first cache
 *   long    a heap of pairs over a list of symbols: n log n. An entry is out of date when the two symbols at
 *           its place no longer merge into its token; symbols at a place only grow, so such an entry never
 *           comes true again. 16 bytes of heap and 12 of list per symbol, freed afterwards.
 */

/** Symbols that are merged by searching. */
const SHORT = 64
/** No rank. */
const NONE = 0x7fff_ffff
/** Positions in a heap entry: rank * 2^26 + position stays an exact integer. */
const POSITION_SPAN = 2 ** 26

/** Symbols of one piece at most. */
export const SYMBOLS_MAX = POSITION_SPAN - 1

/** What merging does per text; a test holds `steps` against the length. */
export interface MergeCounts {
  /** Pairs looked up, and entries moved in heaps. */
  steps: number
}

/** The arrays of merges, ready to be packed into shared memory. */
export interface MergeArrays {
  readonly merges: Int32Array
  readonly slots: Int32Array
}

const MERGE_WORDS = 3

/**
 * Merge i makes `made[i]` of `left[i]` and `right[i]` at rank i, where `made[i]` is no -1; a later equal pair
 * wins.
 */
export function buildMerges(left: Int32Array, right: Int32Array, made: Int32Array): MergeArrays {
  const merges = new Int32Array(made.length * MERGE_WORDS)
  const slots = new Int32Array(slotCountFor(made.length))
  const mask = slots.length - 1
  const rankMask = rankMaskOf(merges)
  for (let rank = 0; rank < made.length; rank++) {
    if (made[rank] === -1) continue
    const a = left[rank]!
    const b = right[rank]!
    const hash = hashOf(a, b)
    let slot = hash & mask
    for (; slots[slot] !== 0; slot = (slot + 1) & mask) {
      const at = ((slots[slot]! & rankMask) - 1) * MERGE_WORDS
      if (merges[at] === a && merges[at + 1] === b) break
    }
    slots[slot] = (hash & ~rankMask) | (rank + 1)
    merges[rank * MERGE_WORDS] = a
    merges[rank * MERGE_WORDS + 1] = b
    merges[rank * MERGE_WORDS + 2] = made[rank]!
  }
  return { merges, slots }
}

/** The ranks of the merges of two bytes. */
export function buildByteRanks(arrays: MergeArrays, byteIds: Int32Array): Int32Array {
  const merger = new PairMerger(arrays, undefined)
  const byteRanks = new Int32Array(0x1_0000).fill(NONE)
  for (let first = 0; first < 256; first++)
    for (let second = 0; second < 256; second++) {
      const [a, b] = [byteIds[first]!, byteIds[second]!]
      if (a >= 0 && b >= 0) byteRanks[(first << 8) | second] = merger.rankOf(a, b)
    }
  return byteRanks
}

/** The smallest power of two that holds `count` merges at 5/8. */
function slotCountFor(count: number): number {
  let slots = 16
  while (slots * 5 < count * 8) slots *= 2
  return slots
}

/** The bits that a rank + 1 takes in a slot. */
function rankMaskOf(merges: Int32Array): number {
  return 2 ** (32 - Math.clz32(merges.length / MERGE_WORDS)) - 1
}

function hashOf(a: number, b: number): number {
  const mixed = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b)
  return mixed ^ (mixed >>> 15)
}

/** Merges symbols; holds scratch memory, so it is for one thread. */
export class PairMerger {
  readonly counts: MergeCounts = { steps: 0 }
  readonly #merges: Int32Array
  readonly #slots: Int32Array
  readonly #rankMask: number
  readonly #byteRanks: Int32Array | undefined
  readonly #ranks = new Int32Array(SHORT)

  /** `byteRanks` of byte-level models. */
  constructor({ merges, slots }: MergeArrays, byteRanks: Int32Array | undefined) {
    this.#merges = merges
    this.#slots = slots
    this.#rankMask = rankMaskOf(merges)
    this.#byteRanks = byteRanks
  }

  /**
   * Merges the first `count` symbols in place; returns how many are left, at the front. `bytes` are those
   * that the symbols stand for one by one, where they are all bytes.
   */
  merge(symbols: Int32Array, count: number, bytes?: Uint8Array): number {
    if (count < 2) return count
    return count <= SHORT ? this.#mergeShort(symbols, count, bytes) : this.#mergeLong(symbols, count)
  }

  /** The rank of the merge of two symbols, or NONE. */
  rankOf(a: number, b: number): number {
    const merges = this.#merges
    const slots = this.#slots
    const mask = slots.length - 1
    const rankMask = this.#rankMask
    const hash = hashOf(a, b)
    let slot = hash & mask
    for (;;) {
      const entry = slots[slot]!
      if (entry === 0) return NONE
      if (((entry ^ hash) & ~rankMask) === 0) {
        const rank = (entry & rankMask) - 1
        const at = rank * MERGE_WORDS
        if (merges[at] === a && merges[at + 1] === b) return rank
      }
      slot = (slot + 1) & mask
    }
  }

  #mergeShort(symbols: Int32Array, count: number, bytes: Uint8Array | undefined): number {
    const merges = this.#merges
    const ranks = this.#ranks
    const byteRanks = this.#byteRanks
    let n = count
    if (bytes !== undefined && byteRanks !== undefined)
      for (let i = 0; i + 1 < n; i++) ranks[i] = byteRanks[(bytes[i]! << 8) | bytes[i + 1]!]!
    else for (let i = 0; i + 1 < n; i++) ranks[i] = this.rankOf(symbols[i]!, symbols[i + 1]!)
    this.counts.steps += n
    for (;;) {
      let best = NONE
      let place = 0
      for (let i = 0; i < n - 1; i++) {
        if (ranks[i]! < best) {
          best = ranks[i]!
          place = i
        }
      }
      if (best === NONE) return n
      this.counts.steps += n
      symbols[place] = merges[best * MERGE_WORDS + 2]!
      n--
      for (let i = place + 1; i < n; i++) {
        symbols[i] = symbols[i + 1]!
        ranks[i] = ranks[i + 1]!
      }
      if (place > 0) ranks[place - 1] = this.rankOf(symbols[place - 1]!, symbols[place]!)
      if (place + 1 < n) ranks[place] = this.rankOf(symbols[place]!, symbols[place + 1]!)
      if (n < 2) return n
    }
  }

  #mergeLong(symbols: Int32Array, count: number): number {
    const merges = this.#merges
    const next = new Int32Array(count)
    const previous = new Int32Array(count)
    const heap = new PairHeap(count, this.counts)
    for (let i = 0; i < count; i++) {
      next[i] = i + 1
      previous[i] = i - 1
      if (i + 1 === count) break
      const rank = this.rankOf(symbols[i]!, symbols[i + 1]!)
      if (rank !== NONE) heap.append(rank, i)
    }
    this.counts.steps += count
    heap.order()
    while (heap.size > 0) {
      const { rank, place } = heap.pop()
      const right = next[place]!
      if (symbols[place] === -1 || right === count) continue
      const at = rank * MERGE_WORDS
      if (merges[at] !== symbols[place] || merges[at + 1] !== symbols[right]) continue
      symbols[place] = merges[at + 2]!
      symbols[right] = -1
      const after = next[right]!
      next[place] = after
      if (after < count) {
        previous[after] = place
        const found = this.rankOf(symbols[place]!, symbols[after]!)
        if (found !== NONE) heap.push(found, place)
      }
      const before = previous[place]!
      if (before >= 0) {
        const found = this.rankOf(symbols[before]!, symbols[place]!)
        if (found !== NONE) heap.push(found, before)
      }
      this.counts.steps += 3
    }
    let left = 0
    for (let i = 0; i < count; i = next[i]!) symbols[left++] = symbols[i]!
    return left
  }
}

/** Entries rank * POSITION_SPAN + place, the smallest on top; four children each. */
class PairHeap {
  size = 0
  #entries: Float64Array
  readonly #counts: MergeCounts
  readonly #top = { rank: 0, place: 0 }

  constructor(capacity: number, counts: MergeCounts) {
    this.#entries = new Float64Array(capacity + 16)
    this.#counts = counts
  }

  /** Adds an entry without ordering; `order` follows. */
  append(rank: number, place: number): void {
    this.#entries[this.size++] = rank * POSITION_SPAN + place
  }

  order(): void {
    for (let i = (this.size - 2) >> 2; i >= 0; i--) this.#sink(i)
  }

  push(rank: number, place: number): void {
    if (this.size === this.#entries.length) {
      const grown = new Float64Array(this.size * 2)
      grown.set(this.#entries)
      this.#entries = grown
    }
    const entries = this.#entries
    const entry = rank * POSITION_SPAN + place
    let i = this.size++
    while (i > 0) {
      const parent = (i - 1) >> 2
      if (entries[parent]! <= entry) break
      entries[i] = entries[parent]!
      i = parent
      this.#counts.steps++
    }
    entries[i] = entry
  }

  /** Takes the smallest entry off; the answer is the same object each time. */
  pop(): { readonly rank: number; readonly place: number } {
    const entry = this.#entries[0]!
    this.size--
    if (this.size > 0) {
      this.#entries[0] = this.#entries[this.size]!
      this.#sink(0)
    }
    this.#top.rank = Math.floor(entry / POSITION_SPAN)
    this.#top.place = entry - this.#top.rank * POSITION_SPAN
    return this.#top
  }

  #sink(from: number): void {
    const entries = this.#entries
    const { size } = this
    const entry = entries[from]!
    let i = from
    for (;;) {
      const first = i * 4 + 1
      if (first >= size) break
      let least = first
      const last = Math.min(first + 4, size)
      for (let child = first + 1; child < last; child++) if (entries[child]! < entries[least]!) least = child
      if (entries[least]! >= entry) break
      entries[i] = entries[least]!
      i = least
      this.#counts.steps++
    }
    entries[i] = entry
  }
}
