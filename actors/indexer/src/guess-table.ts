/**
 * Guess table: the blocks that were sent to a worker key, each with the time until which it counts as held.
 *
 *   buckets    tick 41 ──▶ newest … oldest      a tick is BUCKET_MS; a block lies in the bucket of its
 *              tick 47 ──▶ newest … oldest      expiry, rounded up
 *   places     sequence hash ─▶ entry           open addressing, linear probing
 *
 * Invariants
 *   I1  A block expires no earlier than the blocks below it: a request refreshes its whole prefix, and an
 *       expiry only grows.
 *   I2  In its bucket a block comes after every block below it: those came later, and were put before it.
 *   So taking a block from the front of the earliest bucket leaves no block stranded below it.
 *
 * Order  expired blocks go bucket by bucket. A table that has grown beyond its bound is pruned to a share of
 *        it: earliest expiry first, and within a partly pruned bucket, the deepest blocks first.
 * Cost   constant per block of a request, about 32 bytes per held block; a counting sort per bucket that is
 *        pruned in part. Removed blocks are handed out in slices, so that no message has to wait for a large
 *        bucket.
 */

export const BUCKET_MS = 100

const NONE = -1
const ENTRIES_MIN = 256
/** Words per entry: hash (2), tick, depth, next, before, and two places. */
const ENTRY_BYTES = 32

interface Bucket {
  readonly tick: number
  head: number
  count: number
  /** The deepest come first. */
  isSorted: boolean
}

/** Tick of the bucket that contains a block with this expiry. */
export function tickOf(expiryMs: number): number {
  return Math.ceil(expiryMs / BUCKET_MS)
}

export class GuessTable {
  #entries: Entries = newEntries(ENTRIES_MIN)
  /** Entry + 1; 0: free. Twice as many as entries. */
  #places = new Int32Array(2 * ENTRIES_MIN)
  /** Entries below were used before; those that are free again hang together by `next`. */
  #used = 0
  #free = NONE
  #size = 0
  readonly #buckets = new Map<number, Bucket>()
  /** Ticks of the buckets, ascending. */
  readonly #ticks: number[] = []
  /** Blocks that pruning goes down to; undefined: it is not under way. */
  #pruneTo: number | undefined

  get size(): number {
    return this.#size
  }

  get bytes(): number {
    return this.#entries.low.length * ENTRY_BYTES
  }

  get isPruning(): boolean {
    return this.#pruneTo !== undefined
  }

  /** Milliseconds of the caller's clock at which the next block has expired; undefined: there is none. */
  get nextExpiryMs(): number | undefined {
    const tick = this.#ticks[0]
    return tick === undefined ? undefined : tick * BUCKET_MS
  }

  /** How many blocks have the expiry of each tick, ascending. */
  *counts(): IterableIterator<readonly [tick: number, blocks: number]> {
    for (const tick of this.#ticks) yield [tick, this.#buckets.get(tick)!.count]
  }

  /**
   * A prompt was sent to the worker. Its first `count` blocks have these sequence hashes; they count as held
   * until `expiryMs`, or until the later expiry that they already have. Returns how many of the first blocks
   * were known.
   */
  add(sequenceHashes: Int32Array, count: number, expiryMs: number): number {
    const tick = tickOf(expiryMs)
    let known = 0
    for (let depth = 0; depth < count; depth++) {
      const low = sequenceHashes[2 * depth]!
      const high = sequenceHashes[2 * depth + 1]!
      const entry = this.#find(low, high)
      if (entry === NONE) {
        this.#insert(low, high, depth, tick)
        continue
      }
      known++
      if (this.#entries.tick[entry]! >= tick) continue
      this.#leave(entry)
      this.#enter(entry, tick)
    }
    return known
  }

  /**
   * Removes the blocks `from … to − 1` of a prompt that still have the expiry of this tick, deepest first,
   * and writes them to `into`, which has room for them. Returns their number.
   */
  takeBack(sequenceHashes: Int32Array, from: number, to: number, tick: number, into: Int32Array): number {
    let taken = 0
    for (let depth = to - 1; depth >= from; depth--) {
      const low = sequenceHashes[2 * depth]!
      const high = sequenceHashes[2 * depth + 1]!
      const entry = this.#find(low, high)
      if (entry === NONE || this.#entries.tick[entry] !== tick) continue
      into[2 * taken] = low
      into[2 * taken + 1] = high
      taken++
      this.#leave(entry)
      this.#delete(entry)
    }
    return taken
  }

  /** From now on `takePruned` gives blocks out, until no more than this are left, or than said before. */
  pruneTo(blocks: number): void {
    if (blocks < this.#size) this.#pruneTo = Math.min(blocks, this.#pruneTo ?? blocks)
  }

  /** Takes blocks out that have expired, as many as find room in `into`. Returns their number. */
  takeExpired(nowMs: number, into: Int32Array): number {
    let taken = 0
    while (2 * taken < into.length) {
      const bucket = this.#earliest()
      if (bucket === undefined || bucket.tick * BUCKET_MS > nowMs) break
      taken = this.#takeFrom(bucket, into, taken, into.length / 2)
    }
    return taken
  }

  /** Takes blocks out that are too many, as many as find room in `into`. Returns their number. */
  takePruned(into: Int32Array): number {
    let taken = 0
    while (this.#pruneTo !== undefined && 2 * taken < into.length) {
      const bucket = this.#earliest()
      const surplus = this.#size - this.#pruneTo
      if (bucket === undefined || surplus <= 0) {
        this.#pruneTo = undefined
        break
      }
      if (bucket.count > surplus) this.#sort(bucket)
      taken = this.#takeFrom(bucket, into, taken, Math.min(into.length / 2, taken + surplus))
    }
    return taken
  }

  /** Checks every invariant; for tests. Throws an Error that says what does not hold. */
  audit(): void {
    const { tick, depth, next, before, low, high } = this.#entries
    const require = (condition: boolean, what: string): void => {
      if (!condition) throw new Error(what)
    }
    let size = 0
    for (const [number, bucket] of this.#buckets) {
      require(this.#ticks.includes(number) && bucket.count > 0, `bucket ${number} is not listed, or empty`)
      let last = NONE
      let count = 0
      for (let entry = bucket.head; entry !== NONE; entry = next[entry]!) {
        require(tick[entry] === number && before[entry] === last, `entry ${entry} is not where it should be`)
        require(!bucket.isSorted ||
          last === NONE ||
          depth[last]! >= depth[entry]!, `bucket ${number} is not sorted`)
        require(this.#find(low[entry]!, high[entry]!) === entry, `entry ${entry} is not found`)
        last = entry
        count++
      }
      require(count === bucket.count, `bucket ${number} has ${count} blocks, not ${bucket.count}`)
      size += count
    }
    require(size === this.#size, `${size} blocks, not ${this.#size}`)
    require(this.#ticks.length === this.#buckets.size, 'a bucket is listed twice')
    for (let i = 1; i < this.#ticks.length; i++)
      require(this.#ticks[i - 1]! < this.#ticks[i]!, 'ticks are not in order')
  }

  #earliest(): Bucket | undefined {
    const tick = this.#ticks[0]
    return tick === undefined ? undefined : this.#buckets.get(tick)
  }

  /** Takes blocks from the front until `to` blocks are in `into`; how many are. */
  #takeFrom(bucket: Bucket, into: Int32Array, from: number, to: number): number {
    const { low, high } = this.#entries
    let taken = from
    for (let left = Math.min(bucket.count, to - from); left > 0; left--) {
      const entry = bucket.head
      into[2 * taken] = low[entry]!
      into[2 * taken + 1] = high[entry]!
      taken++
      this.#leave(entry)
      this.#delete(entry)
    }
    return taken
  }

  // ── Buckets ──────────────────────────────────────────────────────────────────────────────────

  #enter(entry: number, tick: number): void {
    let bucket = this.#buckets.get(tick)
    if (bucket === undefined) {
      bucket = { tick, head: NONE, count: 0, isSorted: false }
      this.#buckets.set(tick, bucket)
      let at = this.#ticks.length
      while (at > 0 && this.#ticks[at - 1]! > tick) at--
      this.#ticks.splice(at, 0, tick)
    }
    const { next, before, tick: ticks } = this.#entries
    ticks[entry] = tick
    before[entry] = NONE
    next[entry] = bucket.head
    if (bucket.head !== NONE) before[bucket.head] = entry
    bucket.head = entry
    bucket.count++
    bucket.isSorted = false
  }

  #leave(entry: number): void {
    const { next, before, tick } = this.#entries
    const bucket = this.#buckets.get(tick[entry]!)!
    const after = next[entry]!
    const ahead = before[entry]!
    if (ahead === NONE) bucket.head = after
    else next[ahead] = after
    if (after !== NONE) before[after] = ahead
    if (--bucket.count > 0) return
    this.#buckets.delete(bucket.tick)
    this.#ticks.splice(this.#ticks.indexOf(bucket.tick), 1)
  }

  /** Brings the deepest to the front, by counting. */
  #sort(bucket: Bucket): void {
    if (bucket.isSorted) return
    bucket.isSorted = true
    const { depth, next, before } = this.#entries
    const order = new Int32Array(bucket.count)
    let deepest = 0
    for (let entry = bucket.head, i = 0; entry !== NONE; entry = next[entry]!) {
      order[i++] = entry
      deepest = Math.max(deepest, depth[entry]!)
    }
    const starts = new Int32Array(deepest + 2)
    for (const entry of order) starts[deepest - depth[entry]! + 1]!++
    for (let i = 1; i < starts.length; i++) starts[i]! += starts[i - 1]!
    const sorted = new Int32Array(order.length)
    for (const entry of order) sorted[starts[deepest - depth[entry]!]!++] = entry
    bucket.head = sorted[0]!
    for (const [i, entry] of sorted.entries()) {
      before[entry] = i === 0 ? NONE : sorted[i - 1]!
      next[entry] = i === sorted.length - 1 ? NONE : sorted[i + 1]!
    }
  }

  // ── Entries ──────────────────────────────────────────────────────────────────────────────────

  #insert(low: number, high: number, depth: number, tick: number): void {
    if (this.#free === NONE && this.#used === this.#entries.low.length) this.#grow()
    let entry = this.#free
    const entries = this.#entries
    if (entry === NONE) entry = this.#used++
    else this.#free = entries.next[entry]!
    entries.low[entry] = low
    entries.high[entry] = high
    entries.depth[entry] = depth
    this.#size++
    this.#keep(entry)
    this.#enter(entry, tick)
  }

  #delete(entry: number): void {
    const places = this.#places
    const mask = places.length - 1
    const { low, high, next } = this.#entries
    let hole = mix(low[entry]!, high[entry]!) & mask
    while (places[hole] !== entry + 1) hole = (hole + 1) & mask
    // What follows moves up, unless it would come before its home.
    for (let at = (hole + 1) & mask; places[at] !== 0; at = (at + 1) & mask) {
      const other = places[at]! - 1
      const home = mix(low[other]!, high[other]!) & mask
      if (((at - home) & mask) < ((at - hole) & mask)) continue
      places[hole] = other + 1
      hole = at
    }
    places[hole] = 0
    next[entry] = this.#free
    this.#free = entry
    this.#size--
  }

  #find(low: number, high: number): number {
    const places = this.#places
    const entries = this.#entries
    const mask = places.length - 1
    for (let at = mix(low, high) & mask; places[at] !== 0; at = (at + 1) & mask) {
      const entry = places[at]! - 1
      if (entries.low[entry] === low && entries.high[entry] === high) return entry
    }
    return NONE
  }

  #keep(entry: number): void {
    const places = this.#places
    const mask = places.length - 1
    let at = mix(this.#entries.low[entry]!, this.#entries.high[entry]!) & mask
    while (places[at] !== 0) at = (at + 1) & mask
    places[at] = entry + 1
  }

  /** All entries are in use. */
  #grow(): void {
    const old = this.#entries
    this.#entries = newEntries(old.low.length * 2)
    for (const name of ENTRY_ARRAYS) this.#entries[name].set(old[name])
    this.#places = new Int32Array(this.#places.length * 2)
    for (let entry = 0; entry < this.#used; entry++) this.#keep(entry)
  }
}

/** Entry e is element e of each. */
interface Entries {
  readonly low: Int32Array
  readonly high: Int32Array
  /** Tick of its bucket. */
  readonly tick: Int32Array
  /** Position in its prompts. */
  readonly depth: Int32Array
  /** Neighbours in its bucket; −1: none. */
  readonly next: Int32Array
  readonly before: Int32Array
}

const ENTRY_ARRAYS = ['low', 'high', 'tick', 'depth', 'next', 'before'] as const

function newEntries(capacity: number): Entries {
  const words = () => new Int32Array(capacity)
  return { low: words(), high: words(), tick: words(), depth: words(), next: words(), before: words() }
}

/**
 * Sequence hashes are well mixed already. Both words count, so that an attacker cannot target one of them.
 */
function mix(low: number, high: number): number {
  return Math.imul(low ^ (low >>> 15), 0x2c1b3c6d) ^ high
}
