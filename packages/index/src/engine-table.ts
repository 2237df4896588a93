/**
 * EngineTable: engine hash → blocks that carry it as their name, as the writer sees it from TypeScript. The
 * table, its layout and its invariants are in ../wasm/loops/engine-table.ts.
 */

import type { Layout } from './layout.ts'
import type { Loops } from './loops.ts'
import {
  CHUNK_SLOTS,
  GROUP_SLOTS,
  GROUP_WORDS,
  H_NAME_BASE,
  H_SEGMENT_BASE,
  H_SEGMENT_INFO_BASE,
  INFO_ENTRIES,
  INFO_GROUPS,
  INFO_ROOM,
  INFO_TOUCHED,
  S_DUPLICATES,
  S_GROUPS_TOUCHED,
  S_REBUILT_MAX,
  SEGMENT_INFO_WORDS,
  SEGMENT_LOAD_MAX,
} from './words.ts'

/** Bytes for an entry of a segment that is rebuilt. */
const REBUILD_BYTES = 16

export class EngineTable {
  readonly #words: Int32Array
  readonly #loops: Loops
  readonly #layout: Layout
  readonly #nameBase: number
  readonly #infoBase: number
  readonly #segmentBase: number

  constructor(layout: Layout, words: Int32Array, loops: Loops) {
    this.#words = words
    this.#loops = loops
    this.#layout = layout
    this.#nameBase = words[H_NAME_BASE]!
    this.#infoBase = words[H_SEGMENT_INFO_BASE]!
    this.#segmentBase = words[H_SEGMENT_BASE]!
  }

  /** Entries whose hash occurs in another entry as well. */
  get duplicates(): number {
    return this.#words[S_DUPLICATES]!
  }

  /** Blocks that are named here. */
  get count(): number {
    let count = 0
    for (let segment = 0; segment < this.#layout.segmentCount; segment++)
      count += this.#info(segment, INFO_ENTRIES)
    return count
  }

  /** Bytes in use but for the names, which the chunks account for: segments and what rebuilds them. */
  get bytes(): number {
    const figures = this.#layout.segmentCount * SEGMENT_INFO_WORDS * 4
    return (
      figures + this.#words[S_GROUPS_TOUCHED]! * GROUP_WORDS * 4 + this.#words[S_REBUILT_MAX]! * REBUILD_BYTES
    )
  }

  /** The name of a block; stale if the block has no name. */
  low(block: number): number {
    return this.#words[this.#nameBase + 2 * block]!
  }

  high(block: number): number {
    return this.#words[this.#nameBase + 2 * block + 1]!
  }

  isName(block: number, low: number, high: number): boolean {
    return this.low(block) === low && this.high(block) === high
  }

  /** The block of an entry that `findName` of the loops gave. */
  blockAt(entry: number): number {
    return this.#words[entry >>> 2]!
  }

  /** Segments, for `shrinkSegment` of the loops. */
  get segmentCount(): number {
    return this.#layout.segmentCount
  }

  /** Copies the table and the names of so many block slots to other memory, in which nothing has been. */
  copyTo(target: Int32Array, blocks: number): void {
    const words = this.#words
    const copy = (base: number, count: number) => target.set(words.subarray(base, base + count), base)
    copy(this.#nameBase, blocks * 2)
    let groupsTouched = 0
    for (let segment = 0; segment < this.#layout.segmentCount; segment++) {
      const groups = this.#info(segment, INFO_GROUPS)
      const base = this.#infoBase + segment * SEGMENT_INFO_WORDS
      copy(base, SEGMENT_INFO_WORDS)
      target[base + INFO_TOUCHED] = groups
      groupsTouched += groups
      copy(this.#segmentBase + segment * this.#layout.segmentGroups * GROUP_WORDS, groups * GROUP_WORDS)
    }
    target[S_GROUPS_TOUCHED] = groupsTouched
    target[S_DUPLICATES] = this.duplicates
  }

  /** Checks T1, T2 and the counts. Throws an Error that says what does not hold. */
  audit(): void {
    const words = this.#words
    const names = new Set<string>()
    let duplicates = 0
    for (let segment = 0; segment < this.#layout.segmentCount; segment++) {
      const base = this.#segmentBase + segment * this.#layout.segmentGroups * GROUP_WORDS
      const groups = this.#info(segment, INFO_GROUPS)
      let within = 0
      for (let slot = 0; slot < this.#layout.segmentGroups * GROUP_SLOTS; slot++) {
        const group = base + Math.floor(slot / GROUP_SLOTS) * GROUP_WORDS
        const tag = (words[group + ((slot % GROUP_SLOTS) >> 2)]! >>> (((slot % GROUP_SLOTS) & 3) * 8)) & 0xff
        if (tag === 0) continue
        within++
        const entry = group + 4 + (slot % GROUP_SLOTS)
        const block = words[entry]!
        const name = `${this.low(block)} ${this.high(block)}`
        if (names.has(name)) duplicates++
        names.add(name)
        if (slot >= groups * GROUP_SLOTS) throw new Error(`entry ${entry} of block ${block} is outside`)
        let found = 0
        do {
          found = this.#loops.findName(this.low(block), this.high(block), found)
        } while (found !== 0 && found !== entry * 4)
        if (found === 0) throw new Error(`entry ${entry} of block ${block} cannot be found`)
      }
      if (within !== this.#info(segment, INFO_ENTRIES))
        throw new Error(`segment ${segment}: ${within} entries`)
      const room = Math.floor((groups * GROUP_SLOTS * SEGMENT_LOAD_MAX) / 1000) - within
      if (room !== this.#info(segment, INFO_ROOM)) throw new Error(`segment ${segment}: room for ${room}`)
    }
    if (duplicates !== this.duplicates) throw new Error(`${duplicates} duplicates, not ${this.duplicates}`)
    if (this.count > (this.#layout.chunksMax + 1) * CHUNK_SLOTS) throw new Error('more names than blocks')
  }

  #info(segment: number, index: number): number {
    return this.#words[this.#infoBase + segment * SEGMENT_INFO_WORDS + index]!
  }
}
