/**
 * Chunks: the tree in shared memory, its buckets, and which chunks are free. Private to the writer; who reads is
 * index-reader.ts. Knows blocks, local hashes and set words, not what a set means or how a block is named.
 *
 * A chunk that was just freed is still in the processor's cache and given out again first; else the lowest that is
 * free; one that was never used only when none is free. So what was ever used lies at the beginning.
 *
 * Invariants
 *   C1  A child is either the next slot of its parent's chunk or the first block of exactly one chunk.
 *   C2  A chunk in use is in the chain of the bucket of (PARENT, first local hash), and in no other.
 *   C3  The chunks below a chunk are a list: FIRST, then links, two words a chunk: next, previous. Those below the root
 *       are in none.
 *   C4  MASK bit s is set when a chunk hangs below slot s; it may be when none does any more.
 *   C5  The last used slot has a set other than 0 or its mask bit; `trim` restores this.
 *
 * Protocol, one writer; readers take no lock and write nothing. The order of the writer's steps:
 *   use      VER + 2 (even), PARENT = −1, fill, HNEXT, PARENT, bucket, MASK, NEXT
 *            A reader that stands on a chunk that is used again sees VER change; one that comes while it is
 *            filled sees PARENT = −1 and does not match.
 *   append   VER + 2 if slots that were used before are used again; hashes, set; USED
 *   free     unhook from the chain, then the unlink counter + 2; the memory is used again only later.
 *            A reader that strays from the freed chunk has taken its counter before, so it sees the change.
 *   split    (a bucket, or two are joined) counter + 1 (odd), the chains, H_BUCKETS, counter + 1.
 *            A reader takes the counter, then H_BUCKETS. It says "no such child" only when the counter was
 *            even and is still the same: any overlap with a split is seen. What it finds it may believe.
 *   move     chunk a to the free chunk b, while readers are in a, above it and below it:
 *            1  b: use, content of a; not in a chain yet
 *            2  VER of a odd. Who was in a before: its closing check fails. Who comes now: may read what a
 *               holds, but "no such child below a" does not count.
 *            3  each chunk below a: unhook, PARENT = b…, hook. A reader of that child goes on: its content
 *               is the same. A reader that looks for it below a, and misses it: step 2.
 *            4  PARENT of b; b in the place of a in its chain, counter + 2; NEXT of the chunk above.
 *               A reader that found a just before goes on in a, whose content is of that moment.
 *            5  USED of a = 0, a is free. Who reads 0 under an odd VER begins again. Used again, its VER is even
 *               and another: who is still in a sees it.
 *   merge    chunk k, the only one below the last slot of p, to the tail of p:
 *            1  VER of p and of k odd   2  hashes and sets behind the last slot of p   3  children of k as in move
 *            4  unhook k, MASK, NEXT of p   5  USED of p   6  VER of p even
 *            A reader with the old USED finds k, or misses it below a p whose VER is odd or has changed; that
 *            MASK says "nothing below" counts as little. A reader in k: VER of k is odd.
 *   Chunks that are free have USED = 0.
 */

import {
  BUCKETS_PER_CHUNK,
  bucketOf,
  CHUNK_BYTES,
  CHUNK_SLOTS,
  CHUNK_WORDS,
  childHash,
  FIRST,
  H_BUCKET_BASE,
  H_BUCKETS,
  H_CHUNK_BASE,
  H_UNLINK_BASE,
  H_UNLINK_MASK,
  HNEXT,
  type Layout,
  LOC,
  MASK,
  NEXT,
  OWN,
  PARENT,
  SET,
  save,
  USED,
  VER,
} from './layout.ts'

const ROOT = 0
const NONE = 0
/** Of the word OWN: slots ever used since VER grew. */
const SLOTS_MASK = 0xff
/** Of the word OWN: the mark of slot 0. */
const MARK_SHIFT = 8
/** Chunks freed lately that are remembered, a power of two: what a processor's cache may still hold. */
const RECENT_MAX = 512
/** Chunks below one chunk that are looked through for those of one slot. */
const SIBLINGS_MAX = 32
/** The same where a chunk is freed: a slot may keep its mask bit without need. */
const SIBLINGS_LOOKED_AT = 4

export class Chunks {
  words: Int32Array
  readonly chunkBase: number
  readonly #isAtomic: boolean
  readonly #chunksMax: number
  readonly #bucketBase: number
  readonly #bucketsMin: number
  readonly #bucketsMax: number
  readonly #unlinkBase: number
  readonly #unlinkMask: number
  #buckets: number
  #bucketsTouched: number
  /** Lists of the chunks below a chunk. */
  #links: Int32Array
  /** Bit per chunk: free; bit per word of these: not 0. */
  #free: Int32Array
  #freeWords: Int32Array
  #freeHint = 0
  /** A ring of chunks that were freed lately; some of them may be in use again. */
  readonly #recent = new Int32Array(RECENT_MAX)
  #recentEnd = 0
  #recentCount = 0
  #freeCount = 0
  /** The highest chunk that was ever used in this memory, and the highest that is in use. */
  #touched = 0
  #top = 0
  #slotsUsed = 0

  constructor(layout: Layout, words: Int32Array, isAtomic: boolean) {
    this.words = words
    this.#isAtomic = isAtomic
    this.#chunksMax = layout.chunksMax
    this.chunkBase = words[H_CHUNK_BASE]!
    this.#bucketBase = words[H_BUCKET_BASE]!
    this.#bucketsMin = layout.bucketsMin
    this.#bucketsMax = layout.bucketsMax
    this.#buckets = layout.bucketsMin
    this.#bucketsTouched = layout.bucketsMin
    this.#unlinkBase = words[H_UNLINK_BASE]!
    this.#unlinkMask = words[H_UNLINK_MASK]!
    this.#links = new Int32Array((layout.chunksMax + 1) * 2)
    this.#free = new Int32Array((layout.chunksMax >>> 5) + 1)
    this.#freeWords = new Int32Array((layout.chunksMax >>> 10) + 1)
  }

  /** Chunks in use. */
  get count(): number {
    return this.#touched - this.#freeCount
  }

  /** The highest chunk in use: loops over all chunks end here. */
  get top(): number {
    return this.#top
  }

  /** Chunks whose memory was ever used. */
  get touched(): number {
    return this.#touched
  }

  /** Slots in use, of all chunks. */
  get slotsUsed(): number {
    return this.#slotsUsed
  }

  /** Bytes of all chunks and buckets that were ever used, with the writer's own words about them. */
  get bytes(): number {
    return this.#touched * CHUNK_BYTES + (this.#bucketsTouched - this.#bucketsMin) * 4
  }

  base(chunk: number): number {
    return this.chunkBase + Math.imul(chunk, CHUNK_WORDS)
  }

  setOf(block: number): number {
    return this.words[this.chunkBase + Math.imul(block >>> 4, CHUNK_WORDS) + SET + (block & 15)]!
  }

  /** Writes the set word of a used slot. */
  setSet(block: number, set: number): void {
    save(
      this.words,
      this.chunkBase + Math.imul(block >>> 4, CHUNK_WORDS) + SET + (block & 15),
      set,
      this.#isAtomic,
    )
  }

  /** A chunk below `chunk`, or 0; with `nextBelow` all of them. */
  firstBelow(chunk: number): number {
    return this.words[this.base(chunk) + FIRST]!
  }

  nextBelow(chunk: number): number {
    return this.#links[2 * chunk]!
  }

  /** Whether a chunk may be taken that is not free: the memory is not used up. */
  get hasFree(): boolean {
    return this.#freeCount > 0
  }

  get isExhausted(): boolean {
    return this.#touched >= this.#chunksMax
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

  /** The child of `above` with this local hash; 0: none. */
  child(above: number, low: number, high: number): number {
    const words = this.words
    if (above !== ROOT) {
      const base = this.base(above >>> 4)
      const slot = above & 15
      const next = base + LOC + 2 * slot + 2
      if (slot + 1 < words[base + USED]! && words[next] === low && words[next + 1] === high) return above + 1
      if (((words[base + MASK]! >>> slot) & 1) === 0) return NONE
    }
    let chunk = words[this.#bucketBase + bucketOf(childHash(above, low, high), this.#buckets)]!
    while (chunk !== 0) {
      const base = this.base(chunk)
      if (words[base + PARENT] === above && words[base + LOC] === low && words[base + LOC + 1] === high) {
        return chunk << 4
      }
      chunk = words[base + HNEXT]!
    }
    return NONE
  }

  /** Whether the child of `above` would be the next slot of its chunk. */
  canAppend(above: number): boolean {
    const slot = above & 15
    return above !== ROOT && slot < 15 && this.words[this.base(above >>> 4) + USED] === slot + 1
  }

  /** A block behind `above`, the last of its chunk. */
  append(above: number, low: number, high: number, set: number): number {
    const words = this.words
    const isAtomic = this.#isAtomic
    const chunk = above >>> 4
    const slot = (above & 15) + 1
    const base = this.base(chunk)
    const own = words[base + OWN]!
    if (slot < (own & SLOTS_MASK)) Atomics.store(words, base + VER, (words[base + VER]! + 2) | 0)
    words[base + OWN] = (own & ~SLOTS_MASK) | (slot + 1)
    save(words, base + LOC + 2 * slot, low, isAtomic)
    save(words, base + LOC + 2 * slot + 1, high, isAtomic)
    save(words, base + SET + slot, set, isAtomic)
    save(words, base + USED, slot + 1, isAtomic)
    this.#slotsUsed++
    return above + 1
  }

  /** A chunk with one block below `above`, in memory that `take` gave. */
  begin(chunk: number, above: number, low: number, high: number, set: number): number {
    const words = this.words
    const isAtomic = this.#isAtomic
    const base = this.base(chunk)
    Atomics.store(words, base + VER, ((words[base + VER]! | 1) + 1) | 0)
    Atomics.store(words, base + PARENT, -1)
    save(words, base + MASK, 0, isAtomic)
    save(words, base + NEXT, 0, isAtomic)
    words[base + FIRST] = 0
    words[base + OWN] = 1
    save(words, base + LOC, low, isAtomic)
    save(words, base + LOC + 1, high, isAtomic)
    save(words, base + SET, set, isAtomic)
    save(words, base + USED, 1, isAtomic)
    this.#hook(chunk, base, above)
    if (above !== ROOT) {
      const slot = above & 15
      const aboveBase = this.base(above >>> 4)
      this.#enlist(chunk, aboveBase)
      save(words, aboveBase + MASK, words[aboveBase + MASK]! | (1 << slot), isAtomic)
      if (slot === 15 && words[aboveBase + NEXT] === 0) save(words, aboveBase + NEXT, chunk, isAtomic)
    }
    this.#slotsUsed++
    this.#splitWhereDue()
    return chunk << 4
  }

  /**
   * A chunk that is free, or the next one that was never used; where it can be the one behind `near`, so that a path
   * lies in a row.
   */
  take(near: number): number {
    if (this.#freeCount === 0) {
      this.#top = ++this.#touched
      return this.#touched
    }
    if (near < this.#touched && this.#isFree(near + 1)) return this.#occupy(near + 1)
    while (this.#recentCount > 0) {
      this.#recentCount--
      this.#recentEnd = (this.#recentEnd - 1) & (RECENT_MAX - 1)
      const chunk = this.#recent[this.#recentEnd]!
      if (this.#isFree(chunk)) return this.#occupy(chunk)
    }
    return this.#occupy(this.#lowestFree())
  }

  /** Pops what C5 does not allow at the end of a chunk; frees it when empty, and looks at its parent. */
  trim(chunk: number): void {
    const words = this.words
    while (chunk !== 0) {
      const base = this.base(chunk)
      let used = words[base + USED]!
      const mask = words[base + MASK]!
      const before = used
      while (used > 0 && words[base + SET + used - 1] === 0 && ((mask >>> (used - 1)) & 1) === 0) used--
      if (used === before) return
      save(words, base + USED, used, this.#isAtomic)
      this.#slotsUsed -= before - used
      if (used > 0) return
      const above = words[base + PARENT]!
      this.#unhook(chunk, base)
      this.#release(chunk)
      if (above === ROOT) return
      this.#delist(chunk, above)
      chunk = above >>> 4
    }
  }

  /** Moves the highest chunk to the lowest free one, which must be lower. `relocated`: of each used block. */
  moveTop(relocated: (from: number, to: number) => void): void {
    const words = this.words
    const isAtomic = this.#isAtomic
    const from = this.#top
    const to = this.#occupy(this.#lowestFree())
    const base = this.base(from)
    const target = this.base(to)
    const used = words[base + USED]!
    const above = words[base + PARENT]!
    Atomics.store(words, target + VER, ((words[target + VER]! | 1) + 1) | 0)
    Atomics.store(words, target + PARENT, -1)
    save(words, target + USED, used, isAtomic)
    save(words, target + MASK, words[base + MASK]!, isAtomic)
    save(words, target + NEXT, words[base + NEXT]!, isAtomic)
    words[target + OWN] = used
    words[target + FIRST] = 0
    for (let i = 0; i < used; i++) save(words, target + SET + i, words[base + SET + i]!, isAtomic)
    for (let i = 0; i < 2 * used; i++) save(words, target + LOC + i, words[base + LOC + i]!, isAtomic)

    Atomics.store(words, base + VER, words[base + VER]! | 1)
    this.#adoptChildren(base, to, 0)

    const hash = childHash(above, words[base + LOC]!, words[base + LOC + 1]!)
    const link = this.#linkTo(from, hash)
    save(words, target + HNEXT, words[base + HNEXT]!, isAtomic)
    Atomics.store(words, target + PARENT, above)
    Atomics.store(words, link, to)
    const unlinks = this.#unlinkBase + (hash & this.#unlinkMask)
    Atomics.store(words, unlinks, (words[unlinks]! + 2) | 0)
    if (above !== ROOT) {
      const aboveBase = this.base(above >>> 4)
      if (words[aboveBase + NEXT] === from) save(words, aboveBase + NEXT, to, isAtomic)
      const next = this.#links[2 * from]!
      const previous = this.#links[2 * from + 1]!
      this.#links[2 * to] = next
      this.#links[2 * to + 1] = previous
      if (next !== 0) this.#links[2 * next + 1] = to
      if (previous !== 0) this.#links[2 * previous] = to
      else words[aboveBase + FIRST] = to
    }
    for (let slot = 0; slot < used; slot++) relocated((from << 4) | slot, (to << 4) | slot)
    save(words, base + USED, 0, isAtomic)
    this.#release(from)
  }

  /**
   * The chunk that may be merged into this one: the only one below its last slot, when both fit into one;
   * 0: none.
   */
  mergeable(chunk: number): number {
    const words = this.words
    const base = this.base(chunk)
    const used = words[base + USED]!
    if (used === 0 || used === CHUNK_SLOTS || ((words[base + MASK]! >>> (used - 1)) & 1) === 0) return 0
    const last = (chunk << 4) | (used - 1)
    let found = 0
    let looked = 0
    for (let child = words[base + FIRST]!; child !== 0; child = this.#links[2 * child]!) {
      if (++looked > SIBLINGS_MAX) return 0
      if (words[this.base(child) + PARENT] !== last) continue
      if (found !== 0) return 0
      found = child
    }
    return found !== 0 && used + words[this.base(found) + USED]! <= CHUNK_SLOTS ? found : 0
  }

  /** Merges `child`, which `mergeable` named, into `chunk`. `relocated`: of each block of the child. */
  merge(chunk: number, child: number, relocated: (from: number, to: number) => void): void {
    const words = this.words
    const isAtomic = this.#isAtomic
    const base = this.base(chunk)
    const from = this.base(child)
    const used = words[base + USED]!
    const added = words[from + USED]!
    const last = (chunk << 4) | (used - 1)
    Atomics.store(words, base + VER, words[base + VER]! | 1)
    Atomics.store(words, from + VER, words[from + VER]! | 1)
    for (let i = 0; i < added; i++) save(words, base + SET + used + i, words[from + SET + i]!, isAtomic)
    for (let i = 0; i < 2 * added; i++) {
      save(words, base + LOC + 2 * used + i, words[from + LOC + i]!, isAtomic)
    }
    this.#unhook(child, from)
    this.#delist(child, last)
    const mask = words[from + MASK]! << used
    this.#adoptChildren(from, chunk, used)
    if (used + added === CHUNK_SLOTS) {
      let next = 0
      let looked = 0
      for (let each = words[base + FIRST]!; each !== 0 && next === 0 && looked++ < SIBLINGS_MAX; ) {
        if ((words[this.base(each) + PARENT]! & 15) === 15) next = each
        each = this.#links[2 * each]!
      }
      save(words, base + NEXT, next, isAtomic)
    }
    save(words, base + MASK, (words[base + MASK]! & ~(1 << (used - 1))) | mask, isAtomic)
    words[base + OWN] = (words[base + OWN]! & ~SLOTS_MASK) | (used + added)
    save(words, base + USED, used + added, isAtomic)
    Atomics.store(words, base + VER, (words[base + VER]! + 1) | 0)
    for (let i = 0; i < added; i++) relocated((child << 4) | i, (chunk << 4) | (used + i))
    save(words, from + USED, 0, isAtomic)
    this.#release(child)
  }

  /** Joins buckets that are too many for the chunks, at most `budget`. True: some are left to join. */
  joinBuckets(budget: number): boolean {
    for (let i = 0; i < budget; i++) {
      if (this.#buckets <= this.#bucketsMin) return false
      if (this.#buckets <= this.count * BUCKETS_PER_CHUNK * 2) return false
      this.#join()
    }
    return true
  }

  /** Moves to other shared memory, and to private arrays in which nothing else was touched. Chunks must be dense. */
  renew(words: Int32Array): void {
    const count = this.#top
    const before = this.words
    const end = this.base(count + 1)
    words.set(before.subarray(this.chunkBase, end), this.chunkBase)
    words.set(before.subarray(this.#bucketBase, this.#bucketBase + this.#buckets), this.#bucketBase)
    words[H_BUCKETS] = this.#buckets
    this.#bucketsTouched = this.#buckets
    this.#touched = count
    this.#freeCount = 0
    this.#freeHint = 0
    this.#recentCount = 0
    this.#links = renewed(this.#links, (count + 1) * 2)
    this.#free = renewed(this.#free, 0)
    this.#freeWords = renewed(this.#freeWords, 0)
    this.words = words
  }

  /** Checks C1 to C5 and the counts. Throws an Error that says what does not hold. */
  audit(): void {
    const { words } = this
    const require = (condition: boolean, what: string) => {
      if (!condition) throw new Error(what)
    }
    const hooked = new Uint8Array(this.#touched + 1)
    for (let bucket = 0; bucket < this.#bucketsMax; bucket++) {
      for (let chunk = words[this.#bucketBase + bucket]!; chunk !== 0; ) {
        const base = this.base(chunk)
        const hash = childHash(words[base + PARENT]!, words[base + LOC]!, words[base + LOC + 1]!)
        require(bucketOf(hash, this.#buckets) === bucket, `chunk ${chunk} is in the wrong bucket`)
        require(hooked[chunk] === 0, `chunk ${chunk} is in a chain twice`)
        hooked[chunk] = 1
        chunk = words[base + HNEXT]!
      }
    }
    let count = 0
    let slotsUsed = 0
    const heads = new Set<string>()
    for (let chunk = 1; chunk <= this.#touched; chunk++) {
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
      require(chunk <= this.#top, `chunk ${chunk} is above the top`)
      require((words[base + VER]! & 1) === 0, `chunk ${chunk} is in motion`)
      const above = words[base + PARENT]!
      const head = `${above} ${words[base + LOC]} ${words[base + LOC + 1]}`
      require(!heads.has(head), `two chunks begin with ${head}`)
      heads.add(head)
      if (above !== ROOT) {
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
      const last = used - 1
      require(words[base + SET + last] !== 0 ||
        ((words[base + MASK]! >>> last) & 1) === 1, `chunk ${chunk} ends with a block that nobody holds`)
      let previous = 0
      for (let child = words[base + FIRST]!; child !== 0; child = this.#links[2 * child]!) {
        require(words[this.base(child) + PARENT]! >>> 4 === chunk, `chunk ${child} is in a wrong list`)
        require(this.#links[2 * child + 1] === previous, `the list of chunk ${chunk} is broken`)
        previous = child
        hooked[child]! |= 2
      }
      const next = words[base + NEXT]!
      require(next === 0 || words[this.base(next) + PARENT] === ((chunk << 4) | 15), `NEXT of chunk ${chunk}`)
    }
    for (let chunk = 1; chunk <= this.#touched; chunk++) {
      if (this.#isFree(chunk)) continue
      const isListed = (hooked[chunk]! & 2) !== 0
      require(isListed === (words[this.base(chunk) + PARENT] !== ROOT), `chunk ${chunk} is in no list`)
    }
    require(count === this.count, `${count} chunks, not ${this.count}`)
    require(this.#touched - count === this.#freeCount, `${this.#freeCount} free chunks counted`)
    require(slotsUsed === this.#slotsUsed, `${slotsUsed} slots, not ${this.#slotsUsed}`)
    require(words[H_BUCKETS] === this.#buckets, 'the number of buckets')
  }

  #isFree(chunk: number): boolean {
    return ((this.#free[chunk >>> 5]! >>> (chunk & 31)) & 1) === 1
  }

  #occupy(chunk: number): number {
    this.#free[chunk >>> 5]! &= ~(1 << (chunk & 31))
    if (this.#free[chunk >>> 5] === 0) this.#freeWords[chunk >>> 10]! &= ~(1 << ((chunk >>> 5) & 31))
    this.#freeCount--
    if (chunk > this.#top) this.#top = chunk
    return chunk
  }

  #lowestFree(): number {
    const summary = this.#freeWords
    let at = this.#freeHint
    while (summary[at] === 0) at++
    this.#freeHint = at
    const word = at * 32 + lowestBit(summary[at]!)
    return word * 32 + lowestBit(this.#free[word]!)
  }

  #release(chunk: number): void {
    this.#free[chunk >>> 5]! |= 1 << (chunk & 31)
    this.#freeWords[chunk >>> 10]! |= 1 << ((chunk >>> 5) & 31)
    if (chunk >>> 10 < this.#freeHint || this.#freeCount === 0) this.#freeHint = chunk >>> 10
    this.#freeCount++
    this.#recent[this.#recentEnd] = chunk
    this.#recentEnd = (this.#recentEnd + 1) & (RECENT_MAX - 1)
    if (this.#recentCount < RECENT_MAX) this.#recentCount++
    while (this.#top > 0 && this.#isFree(this.#top)) this.#top--
  }

  /** Puts a chunk into the chain of its place, and gives it its parent: from here it is found. */
  #hook(chunk: number, base: number, above: number): void {
    const words = this.words
    const hash = childHash(above, words[base + LOC]!, words[base + LOC + 1]!)
    const bucket = this.#bucketBase + bucketOf(hash, this.#buckets)
    save(words, base + HNEXT, words[bucket]!, this.#isAtomic)
    Atomics.store(words, base + PARENT, above)
    Atomics.store(words, bucket, chunk)
  }

  #unhook(chunk: number, base: number): void {
    const words = this.words
    const hash = childHash(words[base + PARENT]!, words[base + LOC]!, words[base + LOC + 1]!)
    Atomics.store(words, this.#linkTo(chunk, hash), words[base + HNEXT]!)
    const unlinks = this.#unlinkBase + (hash & this.#unlinkMask)
    Atomics.store(words, unlinks, (words[unlinks]! + 2) | 0)
  }

  /** The word that points to a chunk of a chain. */
  #linkTo(chunk: number, hash: number): number {
    const words = this.words
    let link = this.#bucketBase + bucketOf(hash, this.#buckets)
    while (words[link] !== chunk) link = this.base(words[link]!) + HNEXT
    return link
  }

  #enlist(chunk: number, aboveBase: number): void {
    const first = this.words[aboveBase + FIRST]!
    this.#links[2 * chunk] = first
    this.#links[2 * chunk + 1] = 0
    if (first !== 0) this.#links[2 * first + 1] = chunk
    this.words[aboveBase + FIRST] = chunk
  }

  /** Takes a chunk that hung below `above` out of its list; the slot may lose its mask bit. */
  #delist(chunk: number, above: number): void {
    const words = this.words
    const base = this.base(above >>> 4)
    const next = this.#links[2 * chunk]!
    const previous = this.#links[2 * chunk + 1]!
    if (next !== 0) this.#links[2 * next + 1] = previous
    if (previous !== 0) this.#links[2 * previous] = next
    else words[base + FIRST] = next
    let sibling = words[base + FIRST]!
    for (let looked = 0; sibling !== 0 && looked < SIBLINGS_LOOKED_AT; looked++) {
      if (words[this.base(sibling) + PARENT] === above) break
      sibling = this.#links[2 * sibling]!
    }
    if (words[base + NEXT] === chunk) {
      const isBelowLast = sibling !== 0 && words[this.base(sibling) + PARENT] === above
      save(words, base + NEXT, isBelowLast ? sibling : 0, this.#isAtomic)
    }
    if (sibling !== 0) return
    const mask = words[base + FIRST] === 0 ? 0 : words[base + MASK]! & ~(1 << (above & 15))
    save(words, base + MASK, mask, this.#isAtomic)
  }

  /** Hangs all chunks below the chunk at `base` below `to`, `shift` slots further on. */
  #adoptChildren(base: number, to: number, shift: number): void {
    const words = this.words
    const target = this.base(to)
    let next = 0
    for (let child = words[base + FIRST]!; child !== 0; child = next) {
      next = this.#links[2 * child]!
      const childBase = this.base(child)
      const slot = words[childBase + PARENT]! & 15
      this.#unhook(child, childBase)
      this.#hook(child, childBase, (to << 4) | (slot + shift))
      this.#enlist(child, target)
    }
    words[base + FIRST] = 0
  }

  #splitWhereDue(): void {
    const { count } = this
    for (let i = 0; i < 2 && this.#buckets < this.#bucketsMax; i++) {
      if (this.#buckets >= count * BUCKETS_PER_CHUNK) return
      this.#split()
    }
  }

  #split(): void {
    const words = this.words
    const isAtomic = this.#isAtomic
    const added = this.#buckets
    const from = added - 2 ** (31 - Math.clz32(added))
    const unlinks = this.#unlinkBase + (from & this.#unlinkMask)
    Atomics.store(words, unlinks, (words[unlinks]! + 1) | 0)
    this.#buckets = added + 1
    let stays = this.#bucketBase + from
    let goes = this.#bucketBase + added
    for (let chunk = words[stays]!; chunk !== 0; ) {
      const base = this.base(chunk)
      const hash = childHash(words[base + PARENT]!, words[base + LOC]!, words[base + LOC + 1]!)
      if (bucketOf(hash, added + 1) === from) {
        save(words, stays, chunk, isAtomic)
        stays = base + HNEXT
      } else {
        save(words, goes, chunk, isAtomic)
        goes = base + HNEXT
      }
      chunk = words[base + HNEXT]!
    }
    save(words, stays, 0, isAtomic)
    save(words, goes, 0, isAtomic)
    save(words, H_BUCKETS, added + 1, isAtomic)
    if (added + 1 > this.#bucketsTouched) this.#bucketsTouched = added + 1
    Atomics.store(words, unlinks, (words[unlinks]! + 1) | 0)
  }

  #join(): void {
    const words = this.words
    const isAtomic = this.#isAtomic
    const last = this.#buckets - 1
    const into = last - 2 ** (31 - Math.clz32(last))
    const unlinks = this.#unlinkBase + (into & this.#unlinkMask)
    Atomics.store(words, unlinks, (words[unlinks]! + 1) | 0)
    let end = this.#bucketBase + into
    while (words[end] !== 0) end = this.base(words[end]!) + HNEXT
    save(words, end, words[this.#bucketBase + last]!, isAtomic)
    save(words, this.#bucketBase + last, 0, isAtomic)
    this.#buckets = last
    save(words, H_BUCKETS, last, isAtomic)
    Atomics.store(words, unlinks, (words[unlinks]! + 1) | 0)
  }
}

function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word)
}

function renewed(array: Int32Array, count: number): Int32Array {
  const result = new Int32Array(array.length)
  result.set(array.subarray(0, count))
  return result
}
