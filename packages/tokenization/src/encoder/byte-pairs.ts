/**
 * Byte-pair merging: of all neighbours that may merge, the pair of the lowest rank merges first, and of equal pairs the leftmost;
 * until none may. That is the order of the reference (a heap of rank and position).
 *
 *   pairs       4 words each: left id, right id, rank, id of the merged token; open addressing, at most 5/8 full; rank -1: free
 *   bytePairs   by two bytes: the place in `pairs` of their merge, or -1; the first look of every piece of a byte-level model
 *               stays in the processor's caches
 *
 * Cost
 *   short   up to SHORT symbols: the lowest rank is searched anew for each merge, in arrays that fit the processor's first cache
 *   long    a heap of pairs over a list of symbols: n log n. An entry is out of date when the two symbols at its place
 *           no longer merge into its token; symbols at a place only grow, so such an entry never comes true again.
 *           16 bytes of heap and 12 of list per symbol, freed afterwards.
 */

/** Symbols that are merged by searching. */
const SHORT = 64
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

/** The smallest power of two that holds `count` pairs at 5/8: at half, 280 k merges of Llama 3 would take 17 MB instead of 8. */
export function pairSlotCountFor(count: number): number {
  let slots = 16
  while (slots * 5 < count * 8) slots *= 2
  return slots
}

/** Builds the table of pairs: merge i makes `made[i]` of `left[i]` and `right[i]` at rank i, where `made[i]` is no -1; a later equal pair wins. */
export function buildPairs(
  left: Int32Array,
  right: Int32Array,
  made: Int32Array,
  slotCount: number,
): Int32Array {
  const pairs = new Int32Array(slotCount * 4).fill(-1)
  const mask = slotCount - 1
  for (let rank = 0; rank < made.length; rank++) {
    if (made[rank] === -1) continue
    const a = left[rank]!
    const b = right[rank]!
    let slot = slotOf(a, b) & mask
    while (pairs[slot * 4 + 2] !== -1 && (pairs[slot * 4] !== a || pairs[slot * 4 + 1] !== b))
      slot = (slot + 1) & mask
    pairs[slot * 4] = a
    pairs[slot * 4 + 1] = b
    pairs[slot * 4 + 2] = rank
    pairs[slot * 4 + 3] = made[rank]!
  }
  return pairs
}

/** The places of the merges of two bytes. */
export function buildBytePairs(pairs: Int32Array, byteIds: Int32Array): Int32Array {
  const merger = new PairMerger(pairs, undefined)
  const bytePairs = new Int32Array(0x1_0000).fill(-1)
  for (let first = 0; first < 256; first++)
    for (let second = 0; second < 256; second++) {
      const [a, b] = [byteIds[first]!, byteIds[second]!]
      if (a >= 0 && b >= 0) bytePairs[(first << 8) | second] = merger.find(a, b)
    }
  return bytePairs
}

function slotOf(a: number, b: number): number {
  const mixed = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b)
  return mixed ^ (mixed >>> 15)
}

/** Merges symbols; holds scratch memory, so it is for one thread. */
export class PairMerger {
  readonly counts: MergeCounts = { steps: 0 }
  readonly #pairs: Int32Array
  readonly #mask: number
  readonly #ranks = new Int32Array(SHORT)
  readonly #made = new Int32Array(SHORT)

  readonly #bytePairs: Int32Array | undefined

  constructor(pairs: Int32Array, bytePairs: Int32Array | undefined) {
    this.#pairs = pairs
    this.#bytePairs = bytePairs
    this.#mask = pairs.length / 4 - 1
  }

  /**
   * Merges the first `count` symbols in place; returns how many are left, at the front. `bytes` are those that the symbols
   * stand for one by one, where they are all bytes.
   */
  merge(symbols: Int32Array, count: number, bytes?: Uint8Array): number {
    if (count < 2) return count
    return count <= SHORT ? this.#mergeShort(symbols, count, bytes) : this.#mergeLong(symbols, count)
  }

  /** The place in `pairs` of the merge of two symbols, or -1. */
  find(a: number, b: number): number {
    const pairs = this.#pairs
    let slot = slotOf(a, b) & this.#mask
    for (;;) {
      const at = slot * 4
      if (pairs[at] === a && pairs[at + 1] === b && pairs[at + 2] !== -1) return at
      if (pairs[at + 2] === -1) return -1
      slot = (slot + 1) & this.#mask
    }
  }

  #mergeShort(symbols: Int32Array, count: number, bytes: Uint8Array | undefined): number {
    const pairs = this.#pairs
    const ranks = this.#ranks
    const made = this.#made
    let n = count
    const bytePairs = this.#bytePairs
    for (let i = 0; i + 1 < n; i++) {
      const at =
        bytes !== undefined && bytePairs !== undefined
          ? bytePairs[(bytes[i]! << 8) | bytes[i + 1]!]!
          : this.find(symbols[i]!, symbols[i + 1]!)
      ranks[i] = at < 0 ? NONE : pairs[at + 2]!
      if (at >= 0) made[i] = pairs[at + 3]!
    }
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
      symbols[place] = made[place]!
      n--
      for (let i = place + 1; i < n; i++) {
        symbols[i] = symbols[i + 1]!
        ranks[i] = ranks[i + 1]!
        made[i] = made[i + 1]!
      }
      if (place > 0) this.#rate(symbols, place - 1)
      if (place + 1 < n) this.#rate(symbols, place)
      else ranks[place] = NONE
      if (n < 2) return n
    }
  }

  #rate(symbols: Int32Array, place: number): void {
    const at = this.find(symbols[place]!, symbols[place + 1]!)
    this.#ranks[place] = at < 0 ? NONE : this.#pairs[at + 2]!
    if (at >= 0) this.#made[place] = this.#pairs[at + 3]!
  }

  #mergeLong(symbols: Int32Array, count: number): number {
    const pairs = this.#pairs
    const next = new Int32Array(count)
    const previous = new Int32Array(count)
    const heap = new PairHeap(count, this.counts)
    for (let i = 0; i < count; i++) {
      next[i] = i + 1
      previous[i] = i - 1
      if (i + 1 === count) break
      const at = this.find(symbols[i]!, symbols[i + 1]!)
      if (at >= 0) heap.append(pairs[at + 2]!, i)
    }
    this.counts.steps += count
    heap.order()
    while (heap.size > 0) {
      const { rank, place } = heap.pop()
      const right = next[place]!
      if (symbols[place] === -1 || right === count) continue
      const at = this.find(symbols[place]!, symbols[right]!)
      if (at < 0 || pairs[at + 2] !== rank) continue
      symbols[place] = pairs[at + 3]!
      symbols[right] = -1
      const after = next[right]!
      next[place] = after
      if (after < count) {
        previous[after] = place
        const found = this.find(symbols[place]!, symbols[after]!)
        if (found >= 0) heap.push(pairs[found + 2]!, place)
      }
      const before = previous[place]!
      if (before >= 0) {
        const found = this.find(symbols[before]!, symbols[place]!)
        if (found >= 0) heap.push(pairs[found + 2]!, before)
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
