/**
 * BlockIndex: which worker slot holds which prefix. The only writer of one shard; readers look at the
 * shared memory with `IndexReader`, on any thread, without asking.
 *
 * A radix tree of local hashes in chunks of 16 blocks, layout in layout.ts:
 *
 *   chunk 7   a─b─c─…─p ──NEXT──► chunk 9  q─r─…          blocks of a chunk are one chain
 *                 └────PARENT──── chunk 8  x─y            a branch is a chunk of its own
 *
 * Invariants
 *   I1  Slot s + 1 of a chunk is a child of slot s; only slot 0 has its parent elsewhere (PARENT).
 *       Nothing is ever split or moved, so a block id names its block until the block is gone.
 *   I2  A child is either the next slot of its parent's chunk or the first of exactly one chunk.
 *   I3  The last used slot is held by somebody or has a chunk below; else it is popped. A chunk without
 *       used slots is unlinked and freed. A block in the middle that nobody holds is a hole: it keeps its
 *       local hash and has set 0.
 *   I4  A worker slot in the set of a block holds it under the block's name (its entry of the engine
 *       table), one copy, unless it has records in `names` for that block: then exactly under those.
 *   I5  A worker slot has each engine hash in one place only: held at one block, or parked, or not at all.
 *   I6  No orphan has a parent that its worker slot holds.
 *
 * What events mean, block by block
 *   stored   the parent must be held by the same worker slot, else the block is parked (an orphan) until
 *            it is. An engine hash that is known with other content moves: the old place is given up.
 *   removed  gives one copy back; the last one leaves a hole that ends every overlap there.
 *
 * Protocol (one writer; readers take no lock and write nothing)
 *   use a chunk again   VER + 1, PARENT = −1, fill, HNEXT, PARENT, then bucket, MASK, NEXT
 *   grow a tail         VER + 1 if slots below HIGH are used again; hashes and set; then USED
 *   free a chunk        unhook from the bucket, then unlink counter + 1; memory is used again only later.
 *                       The counter grows after the unhooking: a reader that strays from a freed chunk has
 *                       taken its counter before, so it sees the change (before the unhooking is too early)
 *   On x64 data words are plain and in order; elsewhere every access is an Atomics call.
 *
 * When full: blocks are dropped from chunks without children whose blocks are all held by one worker slot
 * each, the deepest first, in the order of the arena (a clock hand), counted in `evictedForSpace`; a store
 * that still finds no room ends `full`. A dropped block is credit that is lost, never credit that is wrong.
 *
 * Cost   stored: about one cache miss per new block, less for shared ones; removed: three per block;
 *        clear and dump: a scan of the arena (about 20 ms per 100,000 chunks).
 */

import { EngineTable, INSERTED, NO_ROOM, type TouchedRecords } from './engine-table.ts'
import {
  CHUNK_BYTES,
  CHUNK_WORDS,
  childBucket,
  createShared,
  defaultAccess,
  emptyShared,
  H_ACCESS,
  H_BUCKET_BASE,
  H_BUCKET_MASK,
  H_CHUNK_BASE,
  H_SLOT_WORDS,
  H_UNLINK_BASE,
  H_UNLINK_MASK,
  HIGH,
  HNEXT,
  KIDS,
  type Layout,
  LOC,
  MASK,
  NEXT,
  PARENT,
  planLayout,
  SET,
  save,
  USED,
  VER,
} from './layout.ts'
import { SideTable } from './side-table.ts'
import type {
  Copies,
  DumpEntry,
  HashPair,
  IndexOptions,
  IndexStats,
  RemoveOutcome,
  StoreOutcome,
} from './types.ts'
import { NO_SET, WorkerSets } from './worker-sets.ts'

const ROOT = 0
const NONE = 0
/** Stands for a parent that the worker slot does not hold. */
const UNKNOWN = -1
/** Chunks that eviction looks at before a store is refused. */
const EVICTION_SCAN_MAX = 1 << 14

export class BlockIndex {
  /** Give this to readers. */
  readonly memory: SharedArrayBuffer
  readonly #words: Int32Array
  readonly #isAtomic: boolean
  readonly #layout: Layout
  readonly #copies: Copies
  readonly #chunkBase: number
  readonly #bucketBase: number
  readonly #bucketMask: number
  readonly #unlinkBase: number
  readonly #unlinkMask: number
  readonly #sets: WorkerSets
  readonly #engines: EngineTable
  readonly #records: TouchedRecords
  readonly #names: SideTable
  readonly #orphans: SideTable
  /** Per chunk: bit s says that the block has no entry in the engine table although it is held. */
  readonly #unnamed: Uint16Array
  /** Per worker slot: blocks held. */
  readonly #held: Int32Array
  /** Freed chunks, chained by the word of their first engine hash. */
  #freeChunk = 0
  #chunksTouched = 0
  #chunksFree = 0
  #hand = 0
  /** The side record through which `#find` found its answer; 0: by the block's name. */
  #foundRecord = NONE
  #foundPosition = -1
  /** Engine hashes that became held and may be parents of orphans: low, high, … */
  readonly #arrivals: number[] = []
  #changes = 0
  #blocksCreated = 0
  #blocksDistinct = 0
  #memberships = 0
  #evictedForSpace = 0
  #refusedBlocks = 0
  #unknownRemoves = 0
  #duplicateStores = 0
  #movedHashes = 0
  #adoptedOrphans = 0

  /** An empty index. Throws RangeError when the options leave no room for it. */
  static create(options: IndexOptions): BlockIndex {
    return new BlockIndex(options)
  }

  private constructor(options: IndexOptions) {
    const layout = planLayout(options)
    this.memory = options.memory ?? createShared(layout, options.access ?? defaultAccess())
    if (options.memory !== undefined) emptyShared(options.memory, layout)
    const words = new Int32Array(this.memory)
    this.#words = words
    this.#isAtomic = words[H_ACCESS] === 1
    this.#layout = layout
    this.#copies = options.copies ?? 'count'
    this.#chunkBase = words[H_CHUNK_BASE]!
    this.#bucketBase = words[H_BUCKET_BASE]!
    this.#bucketMask = words[H_BUCKET_MASK]!
    this.#unlinkBase = words[H_UNLINK_BASE]!
    this.#unlinkMask = words[H_UNLINK_MASK]!
    this.#sets = new WorkerSets(layout, words, this.#isAtomic)
    this.#engines = new EngineTable(layout.chunksMax, layout.engineTableSize)
    this.#records = { words, base: this.#chunkBase + SET, chunkWords: CHUNK_WORDS }
    this.#names = new SideTable(layout.workerSlotsMax, bytes => this.#chunkBytes() + bytes <= this.#budget())
    this.#orphans = new SideTable(layout.workerSlotsMax, bytes => bytes <= layout.orphanBytesMax)
    this.#unnamed = new Uint16Array(layout.chunksMax + 1)
    this.#held = new Int32Array(layout.workerSlotsMax)
  }

  /**
   * A run of blocks, each the parent of the next: block i has engineHashes[2i, 2i + 1] and
   * localHashes[2i, 2i + 1]. `parent` is the engine hash above block 0; undefined: they begin a prompt.
   */
  store(
    workerSlot: number,
    parent: Int32Array | undefined,
    engineHashes: Int32Array,
    localHashes: Int32Array,
    count: number,
    copies: Copies = this.#copies,
  ): StoreOutcome {
    this.#useSlot(workerSlot)
    let outcome: StoreOutcome = 'stored'
    let above = ROOT
    let aboveLow = 0
    let aboveHigh = 0
    if (parent !== undefined) {
      aboveLow = parent[0]!
      aboveHigh = parent[1]!
      above = this.#find(workerSlot, aboveLow, aboveHigh)
      if (above === NONE) above = UNKNOWN
    }
    let touched = 0
    const created = this.#blocksCreated
    for (let i = 0; i < count; i++) {
      const low = engineHashes[2 * i]!
      const high = engineHashes[2 * i + 1]!
      const localLow = localHashes[2 * i]!
      const localHigh = localHashes[2 * i + 1]!
      if (above === UNKNOWN) {
        above = this.#park(workerSlot, aboveLow, aboveHigh, low, high, localLow, localHigh, copies)
        if (above === NONE) {
          this.#refusedBlocks += count - i
          return 'overflow'
        }
        if (above === UNKNOWN) outcome = 'parked'
      } else {
        // New blocks take names, shared ones need no look at the table: read ahead once one was new.
        if (this.#blocksCreated !== created && i >= touched) {
          touched = this.#engines.touch(engineHashes, i, count, undefined)
        }
        above = this.#place(workerSlot, above, low, high, localLow, localHigh, copies)
        if (above !== NONE && this.#arrivals.length > 0) {
          this.#adopt(workerSlot)
          above = this.#find(workerSlot, low, high) // adoption may have evicted it
        }
        if (above === NONE) {
          this.#arrivals.length = 0
          this.#refusedBlocks += count - i
          return 'full'
        }
      }
      aboveLow = low
      aboveHigh = high
    }
    return outcome
  }

  /** Gives one copy of each engine hash back. What the worker slot does not hold is counted and ignored. */
  remove(workerSlot: number, engineHashes: Int32Array, count: number): RemoveOutcome {
    this.#useSlot(workerSlot)
    let removed = 0
    let touched = 0
    for (let i = 0; i < count; i++) {
      if (i === touched) touched = this.#engines.touch(engineHashes, i, count, this.#records)
      if (this.#removeOne(workerSlot, engineHashes[2 * i]!, engineHashes[2 * i + 1]!)) removed++
    }
    this.#unknownRemoves += count - removed
    return { removed, unknown: count - removed }
  }

  /** Forgets everything of this worker slot, orphans too; the slot may then serve another worker key. */
  clear(workerSlot: number): void {
    this.#useSlot(workerSlot)
    this.#orphans.clear(workerSlot)
    this.#names.clear(workerSlot) // from here its blocks count as held under their names: only `#leave` follows
    for (let chunk = 1; chunk <= this.#chunksTouched && this.#held[workerSlot]! > 0; chunk++) {
      const base = this.#base(chunk)
      for (let slot = this.#words[base + USED]! - 1; slot >= 0; slot--) {
        const set = this.#words[base + SET + slot]!
        if (set !== 0 && this.#sets.has(set, workerSlot)) this.#leave(workerSlot, (chunk << 4) | slot, -1)
      }
    }
  }

  /** Blocks of the tree that this worker slot holds; a block with several engine hashes counts once. */
  blocksHeld(workerSlot: number): number {
    return this.#held[workerSlot] ?? 0
  }

  /** Whether this worker slot holds a block under this engine hash; parked ones do not count. */
  has(workerSlot: number, engineHash: Int32Array | HashPair): boolean {
    return this.#find(workerSlot, engineHash[0]!, engineHash[1]!) !== NONE
  }

  stats(): IndexStats {
    return {
      bytesUsed: this.#layout.fixedBytes + this.#chunkBytes() + this.#names.bytes + this.#orphans.bytes,
      bytesLimit: this.#layout.capacityBytes,
      blocksDistinct: this.#blocksDistinct,
      memberships: this.#memberships,
      orphanBlocks: this.#orphans.count,
      orphanBytes: this.#orphans.bytes,
      chunks: this.#chunksTouched - this.#chunksFree,
      chunksMax: this.#layout.chunksMax,
      workerSets: this.#sets.count,
      sideNames: this.#names.count,
      evictedForSpace: this.#evictedForSpace,
      refusedBlocks: this.#refusedBlocks,
      unknownRemoves: this.#unknownRemoves,
      duplicateStores: this.#duplicateStores,
      movedHashes: this.#movedHashes,
      adoptedOrphans: this.#adoptedOrphans,
    }
  }

  /**
   * Every engine hash that this worker slot holds, parents first: enough to rebuild (the reachable part) and
   * to compare with an engine's cache. Orphans are not in it. Throws when the index changes meanwhile.
   */
  *dump(workerSlot: number): Generator<DumpEntry, void, undefined> {
    const changes = this.#changes
    const reachable = new Uint16Array(this.#chunksTouched + 1)
    for (const [chunk, depth] of this.#chunksByDepth(workerSlot)) {
      const base = this.#base(chunk)
      const used = this.#words[base + USED]!
      let above = this.#words[base + PARENT]!
      let isReachable = above === ROOT || ((reachable[above >>> 4]! >>> (above & 15)) & 1) === 1
      for (let slot = 0; slot < used; slot++) {
        const block = (chunk << 4) | slot
        if (!this.#sets.has(this.#words[base + SET + slot]!, workerSlot)) {
          isReachable = false
        } else {
          if (isReachable) reachable[chunk]! |= 1 << slot
          const parentEngineHash = above === ROOT ? undefined : this.#someName(workerSlot, above)
          const localHash = [
            this.#words[base + LOC + 2 * slot]!,
            this.#words[base + LOC + 2 * slot + 1]!,
          ] as const
          for (const [engineHash, copies] of this.#namesOf(workerSlot, block)) {
            yield { engineHash, parentEngineHash, localHash, position: depth + slot, isReachable, copies }
            if (this.#changes !== changes)
              throw new Error('cannot go on with the dump: the index has changed')
          }
        }
        above = block
      }
    }
  }

  /**
   * Holds a block: below `above`, under this engine hash. The block id; 0: no room, nothing is held.
   */
  #place(
    worker: number,
    above: number,
    low: number,
    high: number,
    localLow: number,
    localHigh: number,
    copies: Copies,
  ): number {
    const engines = this.#engines
    const hasSides = this.#names.countOf(worker) > 0
    if (this.#orphans.countOf(worker) > 0) {
      const orphan = this.#orphans.find(worker, low, high)
      if (orphan !== NONE) {
        this.#orphans.delete(orphan)
        this.#movedHashes++
      }
      this.#arrivals.push(low, high)
    }
    let block = this.#child(above, localLow, localHigh)
    let set = 0
    if (block === NONE) {
      block = this.#create(worker, above, localLow, localHigh)
      if (block === NONE) return NONE
    } else {
      set = this.#set(block)
      if (set !== 0) {
        const isNamed =
          !this.#isUnnamed(block) &&
          engines.hashes[2 * block] === low &&
          engines.hashes[2 * block + 1] === high
        const next = this.#sets.with(set, worker)
        if (next === NO_SET) return NONE
        if (next !== set) {
          this.#setSet(block, set, next)
          this.#held[worker]!++
          this.#memberships++
          if (isNamed) {
            if (hasSides || engines.duplicates > 0) this.#giveUp(worker, low, high, block)
            return block
          }
          this.#giveUp(worker, low, high, block)
          return this.#addName(worker, low, high, block)
        }
        if (isNamed && !hasSides) return this.#again(worker, low, high, block, NONE, copies)
        const before = this.#find(worker, low, high)
        if (before === block) return this.#again(worker, low, high, block, this.#foundRecord, copies)
        if (before !== NONE) this.#giveUp(worker, low, high, block)
        // A further name: the one that was implied becomes a record too.
        if (!this.#imply(worker, block)) return NONE
        return this.#names.add(worker, low, high, block, 0, 0, 0) === NONE ? NONE : block
      }
      this.#setSet(block, 0, worker + 1)
      this.#held[worker]!++
      this.#memberships++
      this.#blocksDistinct++
    }
    // Nobody else holds it: it takes this name.
    const inserted = engines.insert(block, low, high)
    if (inserted !== INSERTED || hasSides) {
      if (inserted === NO_ROOM) this.#unnamed[block >>> 4]! |= 1 << (block & 15)
      this.#giveUp(worker, low, high, block)
      if (inserted === NO_ROOM) return this.#addName(worker, low, high, block)
    }
    return block
  }

  /** Records that a block, already in the worker's set, is held under this hash; without room it is left. */
  #addName(worker: number, low: number, high: number, block: number): number {
    if (this.#names.add(worker, low, high, block, 0, 0, 0) !== NONE) return block
    this.#leave(worker, block, -1)
    return NONE
  }

  /** One more copy of a hash that is held at `block`, by record or implied. */
  #again(worker: number, low: number, high: number, block: number, record: number, copies: Copies): number {
    this.#duplicateStores++
    if (copies === 'set') return block
    if (record === NONE) record = this.#names.add(worker, low, high, block, 0, 0, 0)
    if (record === NONE) return NONE
    this.#names.setCopies(record, this.#names.copies(record) + 1)
    return block
  }

  /** Writes the implied name of (worker, block) down, unless it has records. False: no room. */
  #imply(worker: number, block: number): boolean {
    if (this.#names.inGroup(worker, block, 0) !== NONE) return true
    const { hashes } = this.#engines
    return this.#names.add(worker, hashes[2 * block]!, hashes[2 * block + 1]!, block, 0, 0, 0) !== NONE
  }

  /** Gives up every copy of a hash that the worker holds at another block than `except`. */
  #giveUp(worker: number, low: number, high: number, except: number): void {
    const block = this.#find(worker, low, high, except)
    if (block === NONE) return
    this.#movedHashes++
    this.#drop(worker, block, this.#foundRecord, this.#foundPosition)
  }

  /** Drops one hash of a worker at a block, all copies. */
  #drop(worker: number, block: number, record: number, position: number): void {
    if (record !== NONE) {
      this.#names.delete(record)
      if (this.#names.inGroup(worker, block, 0) !== NONE) return
      position = -1
    }
    this.#leave(worker, block, position)
  }

  #removeOne(worker: number, low: number, high: number): boolean {
    const block = this.#find(worker, low, high)
    if (block === NONE) {
      const orphan = this.#orphans.find(worker, low, high)
      if (orphan === NONE) return false
      const copies = this.#orphans.copies(orphan)
      if (copies > 1) this.#orphans.setCopies(orphan, copies - 1)
      else this.#orphans.delete(orphan)
      return true
    }
    const record = this.#foundRecord
    if (record !== NONE && this.#names.copies(record) > 1) {
      this.#names.setCopies(record, this.#names.copies(record) - 1)
      this.#forgetPlainRecord(worker, block, record)
    } else {
      this.#drop(worker, block, record, this.#foundPosition)
    }
    return true
  }

  /** Deletes a record that says no more than what is implied without it. */
  #forgetPlainRecord(worker: number, block: number, record: number): void {
    const names = this.#names
    const { hashes } = this.#engines
    if (names.copies(record) > 1 || this.#isUnnamed(block)) return
    if (names.engineLow(record) !== hashes[2 * block] || names.engineHigh(record) !== hashes[2 * block + 1])
      return
    const first = names.inGroup(worker, block, 0)
    if (first === record && names.inGroup(worker, block, 0, first) === NONE) names.delete(record)
  }

  /** Parks a block. The block id when its hash is held already; −1: parked; 0: no room. */
  #park(
    worker: number,
    aboveLow: number,
    aboveHigh: number,
    low: number,
    high: number,
    localLow: number,
    localHigh: number,
    copies: Copies,
  ): number {
    const block = this.#find(worker, low, high)
    if (block !== NONE) {
      const local = this.#base(block >>> 4) + LOC + 2 * (block & 15)
      if (this.#words[local] === localLow && this.#words[local + 1] === localHigh) {
        const again = this.#again(worker, low, high, block, this.#foundRecord, copies)
        return again === NONE ? block : again // the copy is not counted: it is held all the same
      }
      this.#movedHashes++
      this.#drop(worker, block, this.#foundRecord, this.#foundPosition)
    }
    const orphans = this.#orphans
    const orphan = orphans.find(worker, low, high)
    if (orphan !== NONE) {
      if (
        orphans.groupLow(orphan) === aboveLow &&
        orphans.groupHigh(orphan) === aboveHigh &&
        orphans.localLow(orphan) === localLow &&
        orphans.localHigh(orphan) === localHigh
      ) {
        this.#duplicateStores++
        if (copies === 'count') orphans.setCopies(orphan, orphans.copies(orphan) + 1)
        return UNKNOWN
      }
      orphans.delete(orphan)
      this.#movedHashes++
    }
    return orphans.add(worker, low, high, aboveLow, aboveHigh, localLow, localHigh) === NONE ? NONE : UNKNOWN
  }

  /** Takes in the orphans whose parents have come. */
  #adopt(worker: number): void {
    const arrivals = this.#arrivals
    const orphans = this.#orphans
    while (arrivals.length > 0) {
      const aboveHigh = arrivals.pop()!
      const aboveLow = arrivals.pop()!
      for (;;) {
        const orphan = orphans.inGroup(worker, aboveLow, aboveHigh)
        if (orphan === NONE) break
        const above = this.#find(worker, aboveLow, aboveHigh)
        if (above === NONE) break // evicted by the adoption of others: they go on waiting
        const low = orphans.engineLow(orphan)
        const high = orphans.engineHigh(orphan)
        const localLow = orphans.localLow(orphan)
        const localHigh = orphans.localHigh(orphan)
        const copies = orphans.copies(orphan)
        orphans.delete(orphan)
        const block = this.#place(worker, above, low, high, localLow, localHigh, 'count')
        if (block === NONE) {
          this.#refusedBlocks++
          continue
        }
        this.#adoptedOrphans++
        for (let i = 1; i < copies; i++) {
          this.#find(worker, low, high)
          if (this.#again(worker, low, high, block, this.#foundRecord, 'count') === NONE) break
          this.#duplicateStores-- // it was counted when it was parked
        }
      }
    }
  }

  /** The block that the worker holds under this hash, other than `except`; 0: none. Sets #found…. */
  #find(worker: number, low: number, high: number, except = NONE): number {
    this.#foundRecord = NONE
    this.#foundPosition = -1
    const names = this.#names
    const hasSides = names.countOf(worker) > 0
    if (hasSides) {
      const record = names.find(worker, low, high)
      if (record !== NONE && names.groupLow(record) !== except) {
        this.#foundRecord = record
        return names.groupLow(record)
      }
    }
    const engines = this.#engines
    for (let at = engines.find(low, high); at >= 0; at = engines.find(low, high, at)) {
      const block = engines.blockAt(at)
      if (
        block !== except &&
        this.#sets.has(this.#set(block), worker) &&
        !(hasSides && names.inGroup(worker, block, 0) !== NONE)
      ) {
        this.#foundPosition = at
        return block
      }
      if (engines.duplicates === 0) break
    }
    return NONE
  }

  /** The child of `above` with this local hash; 0: none. */
  #child(above: number, low: number, high: number): number {
    const words = this.#words
    if (above !== ROOT) {
      const base = this.#base(above >>> 4)
      const slot = above & 15
      const next = base + LOC + 2 * slot + 2
      if (slot + 1 < words[base + USED]! && words[next] === low && words[next + 1] === high) return above + 1
      if (((words[base + MASK]! >>> slot) & 1) === 0) return NONE
    }
    let chunk = words[this.#bucketBase + childBucket(above, low, high, this.#bucketMask)]!
    while (chunk !== 0) {
      const base = this.#base(chunk)
      if (words[base + PARENT] === above && words[base + LOC] === low && words[base + LOC + 1] === high) {
        return chunk << 4
      }
      chunk = words[base + HNEXT]!
    }
    return NONE
  }

  /** A new block below `above`, held by `worker`, without a name yet. 0: no room. */
  #create(worker: number, above: number, low: number, high: number): number {
    const words = this.#words
    const isAtomic = this.#isAtomic
    const slot = above & 15
    const aboveBase = this.#base(above >>> 4)
    let block: number
    if (above !== ROOT && slot < 15 && words[aboveBase + USED] === slot + 1) {
      block = above + 1
      if (slot + 1 < words[aboveBase + HIGH]!) {
        Atomics.store(words, aboveBase + VER, (words[aboveBase + VER]! + 1) | 0)
      }
      words[aboveBase + HIGH] = slot + 2
      save(words, aboveBase + LOC + 2 * slot + 2, low, isAtomic)
      save(words, aboveBase + LOC + 2 * slot + 3, high, isAtomic)
      save(words, aboveBase + SET + slot + 1, worker + 1, isAtomic)
      save(words, aboveBase + USED, slot + 2, isAtomic)
    } else {
      const chunk = this.#allocate(above >>> 4)
      if (chunk === 0) return NONE
      block = chunk << 4
      const base = this.#base(chunk)
      Atomics.store(words, base + VER, (words[base + VER]! + 1) | 0)
      Atomics.store(words, base + PARENT, -1)
      save(words, base + MASK, 0, isAtomic)
      save(words, base + NEXT, 0, isAtomic)
      words[base + KIDS] = 0
      words[base + HIGH] = 1
      save(words, base + LOC, low, isAtomic)
      save(words, base + LOC + 1, high, isAtomic)
      save(words, base + SET, worker + 1, isAtomic)
      save(words, base + USED, 1, isAtomic)
      const bucket = this.#bucketBase + childBucket(above, low, high, this.#bucketMask)
      save(words, base + HNEXT, words[bucket]!, isAtomic)
      Atomics.store(words, base + PARENT, above)
      Atomics.store(words, bucket, chunk)
      if (above !== ROOT) {
        words[aboveBase + KIDS]!++
        save(words, aboveBase + MASK, words[aboveBase + MASK]! | (1 << slot), isAtomic)
        if (slot === 15 && words[aboveBase + NEXT] === 0) save(words, aboveBase + NEXT, chunk, isAtomic)
      }
    }
    this.#sets.move(0, worker + 1)
    this.#blocksCreated++
    this.#held[worker]!++
    this.#memberships++
    this.#blocksDistinct++
    return block
  }

  /** Takes a worker out of a block's set. `position`: of the block's name in the engine table, if known. */
  #leave(worker: number, block: number, position: number): void {
    const set = this.#set(block)
    let next = this.#sets.without(set, worker)
    if (next === NO_SET) {
      // No id is free for the rest: keep the credit of one of them, who needs none.
      const kept = this.#sets.lowest(set, worker)
      for (const member of this.#sets.members(set)) {
        if (member === worker || member === kept) continue
        this.#deleteNames(member, block)
        this.#held[member]!--
        this.#memberships--
        this.#evictedForSpace++
      }
      next = kept + 1
    }
    this.#setSet(block, set, next)
    this.#held[worker]!--
    this.#memberships--
    if (next !== 0) return
    this.#blocksDistinct--
    if (this.#isUnnamed(block)) this.#unnamed[block >>> 4]! &= ~(1 << (block & 15))
    else if (position >= 0) this.#engines.deleteAt(position)
    else this.#engines.delete(block)
    this.#trim(block >>> 4)
  }

  #deleteNames(worker: number, block: number): void {
    const names = this.#names
    for (
      let record = names.inGroup(worker, block, 0);
      record !== NONE;
      record = names.inGroup(worker, block, 0)
    ) {
      names.delete(record)
    }
  }

  /** Pops what I3 does not allow at the end of a chunk; frees it when empty, and looks at its parent. */
  #trim(chunk: number): void {
    const words = this.#words
    while (chunk !== 0) {
      const base = this.#base(chunk)
      let used = words[base + USED]!
      const mask = words[base + MASK]!
      const before = used
      while (used > 0 && words[base + SET + used - 1] === 0 && ((mask >>> (used - 1)) & 1) === 0) used--
      if (used === before) return
      save(words, base + USED, used, this.#isAtomic)
      if (used > 0) return
      chunk = this.#free(chunk)
    }
  }

  /** Unlinks and frees an empty chunk. The parent's chunk if that has lost its last child; else 0. */
  #free(chunk: number): number {
    const words = this.#words
    const base = this.#base(chunk)
    const above = words[base + PARENT]!
    const bucket = childBucket(above, words[base + LOC]!, words[base + LOC + 1]!, this.#bucketMask)
    let link = this.#bucketBase + bucket
    while (words[link] !== chunk) link = this.#base(words[link]!) + HNEXT
    Atomics.store(words, link, words[base + HNEXT]!)
    const unlinks = this.#unlinkBase + (bucket & this.#unlinkMask)
    Atomics.store(words, unlinks, (words[unlinks]! + 1) | 0)

    this.#engines.hashes[chunk << 5] = this.#freeChunk
    this.#freeChunk = chunk
    this.#chunksFree++
    if (above === ROOT) return 0
    const aboveBase = this.#base(above >>> 4)
    if (words[aboveBase + NEXT] === chunk) save(words, aboveBase + NEXT, 0, this.#isAtomic)
    if (--words[aboveBase + KIDS]! > 0) return 0
    save(words, aboveBase + MASK, 0, this.#isAtomic)
    return above >>> 4
  }

  /** A chunk to fill, evicting others if there is none; never `pinned`. 0: no room. */
  #allocate(pinned: number): number {
    if (this.#freeChunk === 0) {
      const hasRoom =
        this.#chunksTouched < this.#layout.chunksMax &&
        this.#chunkBytes() + CHUNK_BYTES + this.#names.bytes <= this.#budget()
      if (hasRoom) return ++this.#chunksTouched
      this.#evict(pinned)
    }
    const chunk = this.#freeChunk
    if (chunk === 0) return 0
    this.#freeChunk = this.#engines.hashes[chunk << 5]!
    this.#chunksFree--
    return chunk
  }

  /** Frees one chunk without children whose blocks are held by one worker slot each. */
  #evict(pinned: number): void {
    const words = this.#words
    const scanMax = Math.min(EVICTION_SCAN_MAX, this.#chunksTouched)
    for (let scanned = 0; scanned < scanMax && this.#freeChunk === 0; scanned++) {
      this.#hand = this.#hand >= this.#chunksTouched ? 1 : this.#hand + 1
      const chunk = this.#hand
      const base = this.#base(chunk)
      const used = words[base + USED]!
      if (chunk === pinned || used === 0 || words[base + KIDS] !== 0) continue
      let isLone = true
      for (let slot = 0; slot < used && isLone; slot++) {
        isLone = words[base + SET + slot]! <= this.#layout.workerSlotsMax
      }
      if (!isLone) continue
      for (let slot = used - 1; slot >= 0; slot--) {
        const set = words[base + SET + slot]!
        if (set === 0) continue
        this.#deleteNames(set - 1, (chunk << 4) | slot)
        this.#evictedForSpace++
        this.#leave(set - 1, (chunk << 4) | slot, -1)
      }
    }
  }

  #useSlot(workerSlot: number): void {
    if (!(workerSlot >= 0 && workerSlot < this.#layout.workerSlotsMax)) {
      throw new RangeError(`worker slot ${workerSlot} is not of 0 … ${this.#layout.workerSlotsMax - 1}`)
    }
    this.#changes++
    const slotWords = (workerSlot >>> 5) + 1
    if (slotWords > this.#words[H_SLOT_WORDS]!) Atomics.store(this.#words, H_SLOT_WORDS, slotWords)
  }

  #base(chunk: number): number {
    return this.#chunkBase + Math.imul(chunk, CHUNK_WORDS)
  }

  #set(block: number): number {
    return this.#words[this.#chunkBase + Math.imul(block >>> 4, CHUNK_WORDS) + SET + (block & 15)]!
  }

  #setSet(block: number, from: number, to: number): void {
    const at = this.#chunkBase + Math.imul(block >>> 4, CHUNK_WORDS) + SET + (block & 15)
    save(this.#words, at, to, this.#isAtomic)
    this.#sets.move(from, to)
  }

  #isUnnamed(block: number): boolean {
    return ((this.#unnamed[block >>> 4]! >>> (block & 15)) & 1) !== 0
  }

  /** Bytes that chunks and names may share. */
  #budget(): number {
    return this.#layout.capacityBytes - this.#layout.fixedBytes - this.#layout.orphanBytesMax
  }

  #chunkBytes(): number {
    return this.#chunksTouched * CHUNK_BYTES
  }

  #someName(worker: number, block: number): HashPair | undefined {
    return this.#sets.has(this.#set(block), worker) ? this.#namesOf(worker, block)[0]![0] : undefined
  }

  /** The hashes under which a worker holds a block that it holds, with copies. */
  #namesOf(worker: number, block: number): [HashPair, number][] {
    const names = this.#names
    const result: [HashPair, number][] = []
    for (
      let record = names.inGroup(worker, block, 0);
      record !== NONE;
      record = names.inGroup(worker, block, 0, record)
    ) {
      result.push([[names.engineLow(record), names.engineHigh(record)], names.copies(record)])
    }
    if (result.length > 0) return result
    const { hashes } = this.#engines
    return [[[hashes[2 * block]!, hashes[2 * block + 1]!], 1]]
  }

  /** Chunks with a block of this worker, and the position of their first block, parents first. */
  #chunksByDepth(worker: number): [chunk: number, depth: number][] {
    const words = this.#words
    const depths = new Int32Array(this.#chunksTouched + 1).fill(-1)
    const depthOf = (chunk: number): number => {
      const path: number[] = []
      let each = chunk
      let depth = -1
      for (;;) {
        depth = depths[each]!
        if (depth >= 0) break
        const above = words[this.#base(each) + PARENT]!
        path.push(each)
        if (above === ROOT) {
          depth = 0
          depths[each] = 0
          path.pop()
          break
        }
        each = above >>> 4
      }
      while (path.length > 0) {
        each = path.pop()!
        const above = words[this.#base(each) + PARENT]!
        depth = depths[above >>> 4]! + (above & 15) + 1
        depths[each] = depth
      }
      return depth
    }
    const chunks: [number, number][] = []
    for (let chunk = 1; chunk <= this.#chunksTouched; chunk++) {
      const base = this.#base(chunk)
      const used = words[base + USED]!
      for (let slot = 0; slot < used; slot++) {
        if (!this.#sets.has(words[base + SET + slot]!, worker)) continue
        chunks.push([chunk, depthOf(chunk)])
        break
      }
    }
    return chunks.sort((a, b) => a[1] - b[1])
  }
}

/**
 * Memory for one shard that outlives its writers: an empty index to readers, until a BlockIndex is created
 * with it and the same options. Throws RangeError as `BlockIndex.create` does.
 */
export function createIndexMemory(options: IndexOptions): SharedArrayBuffer {
  return createShared(planLayout(options), options.access ?? defaultAccess())
}
