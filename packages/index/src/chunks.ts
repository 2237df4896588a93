/**
 * Chunks: the tree in shared memory, as the writer sees it from TypeScript. The code that changes the tree,
 * the invariants C1 to C5 and the protocol with readers are in ../wasm/loops/chunks.ts; here are its words,
 * and the code that looks at all of it.
 */

import { CHUNK_BYTES, type Layout } from './layout.ts'
import type { Loops } from './loops.ts'
import { save } from './shard-memory.ts'
import {
  CHUNK_SLOTS,
  CHUNK_WORDS,
  FIRST,
  H_ACCESS,
  H_BUCKET_BASE,
  H_BUCKETS,
  H_CHUNK_BASE,
  H_FREE_BASE,
  H_LINK_BASE,
  HNEXT,
  LOC,
  MARK_SHIFT,
  MASK,
  NEXT,
  OWN,
  PARENT,
  S_BUCKETS_TOUCHED,
  S_FREE_COUNT,
  S_SLOTS_USED,
  S_TOP,
  S_TOUCHED,
  SET,
  USED,
  VER,
} from './words.ts'

const ROOT = 0

export class Chunks {
  readonly words: Int32Array
  readonly #loops: Loops
  readonly #isAtomic: boolean
  readonly #layout: Layout
  readonly #chunkBase: number
  readonly #linkBase: number
  readonly #freeBase: number

  constructor(layout: Layout, words: Int32Array, loops: Loops) {
    this.words = words
    this.#loops = loops
    this.#layout = layout
    this.#isAtomic = words[H_ACCESS] === 1
    this.#chunkBase = words[H_CHUNK_BASE]!
    this.#linkBase = words[H_LINK_BASE]!
    this.#freeBase = words[H_FREE_BASE]!
  }

  /** Chunks in use. */
  get count(): number {
    return this.touched - this.words[S_FREE_COUNT]!
  }

  /** The highest chunk in use: loops over all chunks end here. */
  get top(): number {
    return this.words[S_TOP]!
  }

  /** Chunks whose memory was ever used. */
  get touched(): number {
    return this.words[S_TOUCHED]!
  }

  /** Slots in use, of all chunks. */
  get slotsUsed(): number {
    return this.words[S_SLOTS_USED]!
  }

  get hasFree(): boolean {
    return this.words[S_FREE_COUNT]! > 0
  }

  /** Bytes of all chunks and buckets that were ever used, with the writer's own words about them. */
  get bytes(): number {
    return this.touched * CHUNK_BYTES + (this.words[S_BUCKETS_TOUCHED]! - this.#layout.bucketsMin) * 4
  }

  base(chunk: number): number {
    return this.#chunkBase + chunk * CHUNK_WORDS
  }

  setOf(block: number): number {
    return this.words[this.base(block >>> 4) + SET + (block & 15)]!
  }

  /** Writes the set word of a used slot. */
  setSet(block: number, set: number): void {
    save(this.words, this.base(block >>> 4) + SET + (block & 15), set, this.#isAtomic)
  }

  /** A chunk below `chunk`, or 0; with `nextBelow` all of them. */
  firstBelow(chunk: number): number {
    return this.words[this.base(chunk) + FIRST]!
  }

  nextBelow(chunk: number): number {
    return this.words[this.#linkBase + 2 * chunk]!
  }

  /** A bit per used slot for the owner of this object; 0 in a new slot. */
  isMarked(block: number): boolean {
    return ((this.words[this.base(block >>> 4) + OWN]! >>> (MARK_SHIFT + (block & 15))) & 1) !== 0
  }

  mark(block: number): void {
    this.words[this.base(block >>> 4) + OWN]! |= 1 << (MARK_SHIFT + (block & 15))
  }

  unmark(block: number): void {
    this.words[this.base(block >>> 4) + OWN]! &= ~(1 << (MARK_SHIFT + (block & 15)))
  }

  /** Moves the highest chunk to the lowest free one, which must be lower. `relocated`: of each used block. */
  moveTop(relocated: (from: number, to: number) => void): void {
    const from = this.top
    const to = this.#loops.moveTop()
    const used = this.words[this.base(to) + USED]!
    for (let slot = 0; slot < used; slot++) relocated((from << 4) | slot, (to << 4) | slot)
  }

  /** Merges into a chunk the only one below its end, if both fit into one: whether they did. */
  tryMerge(chunk: number, relocated: (from: number, to: number) => void): boolean {
    const child = this.#loops.mergeable(chunk)
    if (child === 0) return false
    const before = this.words[this.base(chunk) + USED]!
    this.#loops.merge(chunk, child)
    const added = this.words[this.base(chunk) + USED]! - before
    for (let slot = 0; slot < added; slot++) relocated((child << 4) | slot, (chunk << 4) | (before + slot))
    return true
  }

  /** Copies all chunks to other memory, in which nothing has been. They must be dense. */
  copyTo(target: Int32Array): void {
    const { words, top } = this
    const copy = (base: number, count: number) => target.set(words.subarray(base, base + count), base)
    copy(this.#chunkBase, (top + 1) * CHUNK_WORDS)
    copy(this.#linkBase, (top + 1) * 2)
    copy(words[H_BUCKET_BASE]!, words[H_BUCKETS]!)
    target[H_BUCKETS] = words[H_BUCKETS]!
    target[S_BUCKETS_TOUCHED] = words[H_BUCKETS]!
    target[S_TOUCHED] = top
    target[S_TOP] = top
    target[S_SLOTS_USED] = this.slotsUsed
  }

  /** Checks C1 to C5 and the counts. Throws an Error that says what does not hold. */
  audit(): void {
    const { words } = this
    const require = (condition: boolean, what: string) => {
      if (!condition) throw new Error(what)
    }
    const hooked = new Uint8Array(this.touched + 1)
    for (let bucket = 0; bucket < this.#layout.bucketsMax; bucket++) {
      for (let chunk = words[words[H_BUCKET_BASE]! + bucket]!; chunk !== 0; ) {
        const base = this.base(chunk)
        const home = this.#loops.bucketOfHead(
          words[base + PARENT]!,
          words[base + LOC]!,
          words[base + LOC + 1]!,
        )
        require(home === bucket, `chunk ${chunk} is in the wrong bucket`)
        require(hooked[chunk] === 0, `chunk ${chunk} is in a chain twice`)
        hooked[chunk] = 1
        chunk = words[base + HNEXT]!
      }
    }
    let count = 0
    let slotsUsed = 0
    const heads = new Set<string>()
    for (let chunk = 1; chunk <= this.touched; chunk++) {
      const base = this.base(chunk)
      const used = words[base + USED]!
      if (this.#isFree(chunk)) {
        require(hooked[chunk] === 0, `the free chunk ${chunk} is in a chain`)
        continue
      }
      count++
      slotsUsed += used
      require((hooked[chunk]! & 1) === 1, `chunk ${chunk} is in no chain`)
      require(used > 0 && used <= CHUNK_SLOTS, `chunk ${chunk} has ${used} slots`)
      require(chunk <= this.top, `chunk ${chunk} is above the top`)
      require((words[base + VER]! & 1) === 0, `chunk ${chunk} is in motion`)
      const above = words[base + PARENT]!
      const head = `${above} ${words[base + LOC]} ${words[base + LOC + 1]}`
      require(!heads.has(head), `two chunks begin with ${head}`)
      heads.add(head)
      if (above !== ROOT) this.#auditParent(chunk, above, require)
      const last = used - 1
      require(words[base + SET + last] !== 0 ||
        ((words[base + MASK]! >>> last) & 1) === 1, `chunk ${chunk} ends with a block that nobody holds`)
      let previous = 0
      for (let child = this.firstBelow(chunk); child !== 0; child = this.nextBelow(child)) {
        require(words[this.base(child) + PARENT]! >>> 4 === chunk, `chunk ${child} is in a wrong list`)
        require(words[this.#linkBase + 2 * child + 1] === previous, `the list of chunk ${chunk} is broken`)
        previous = child
        hooked[child]! |= 2
      }
      const next = words[base + NEXT]!
      require(next === 0 || words[this.base(next) + PARENT] === ((chunk << 4) | 15), `NEXT of chunk ${chunk}`)
    }
    for (let chunk = 1; chunk <= this.touched; chunk++) {
      if (this.#isFree(chunk)) continue
      const isListed = (hooked[chunk]! & 2) !== 0
      require(isListed === (words[this.base(chunk) + PARENT] !== ROOT), `chunk ${chunk} is in no list`)
    }
    require(count === this.count, `${count} chunks, not ${this.count}`)
    require(slotsUsed === this.slotsUsed, `${slotsUsed} slots, not ${this.slotsUsed}`)
  }

  #auditParent(chunk: number, above: number, require: (condition: boolean, what: string) => void): void {
    const { words } = this
    const base = this.base(chunk)
    const parent = this.base(above >>> 4)
    const slot = above & 15
    require(!this.#isFree(above >>> 4) && slot < words[parent + USED]!, `chunk ${chunk} hangs in the air`)
    require(((words[parent + MASK]! >>> slot) & 1) === 1, `chunk ${chunk} is not in the mask above`)
    const isNext =
      slot + 1 < words[parent + USED]! &&
      words[parent + LOC + 2 * slot + 2] === words[base + LOC] &&
      words[parent + LOC + 2 * slot + 3] === words[base + LOC + 1]
    require(!isNext, `the first block of chunk ${chunk} is there twice`)
  }

  #isFree(chunk: number): boolean {
    return ((this.words[this.#freeBase + (chunk >>> 5)]! >>> (chunk & 31)) & 1) === 1
  }
}
