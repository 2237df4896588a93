/**
 * BlockIndex: which worker slot holds which prefix. The only writer of one shard; readers look at the
 * shared memory with `IndexReader`, on any thread, without asking.
 *
 * A radix tree of local hashes in chunks of 16 blocks, layout in layout.ts, protocol in chunks.ts:
 *
 *   chunk 7   a─b─c─…─p ──NEXT──► chunk 9  q─r─…          blocks of a chunk are one chain
 *                 └────PARENT──── chunk 8  x─y            a branch is a chunk of its own
 *
 * Invariants
 *   I1  Slot s + 1 of a chunk is a child of slot s; only slot 0 has its parent elsewhere (PARENT).
 *       Events never split or move a block; only `maintain` moves one, and repairs what names it.
 *   I2  A block in the middle that nobody holds is a hole: it keeps its local hash and has set 0.
 *   I3  A holder in the set of a block holds it under the block's name (its entry of the engine
 *       table), one copy, unless it has records in `names` for that block: then exactly under those.
 *   I4  A holder has each engine hash in one place only: held at one block, or parked, or not at all.
 *   I5  No orphan has a parent that its holder holds.
 *   I6  A retired holder (holders.ts) counts for nobody; where its bit still is, a block may lie that nobody
 *       holds. When its sweep has ended, nothing is left of it.
 *
 * What events mean, block by block
 *   stored   the parent must be held by the same worker slot, else the block is parked (an orphan) until
 *            it is. An engine hash that is known with other content moves: the old place is given up.
 *   removed  gives one copy back; the last one leaves a hole that ends every overlap there.
 *   cleared  at once: the worker slot's holder is retired. Its blocks are swept by `maintain`.
 *
 * Maintenance, in steps of a bounded size: sweep what was cleared; merge chunks that are mostly empty; when
 * little is left of what once was used, move all chunks to the beginning of the memory and go on in new memory,
 * of which only that much is touched. The old one is marked as left (H_LEFT): a reader that still has it reads
 * the state of that moment. `clear`, `dump` and the move to new memory alone are not bounded by a step's size.
 *
 * When full: what was cleared is swept first. Then blocks are dropped from chunks without children whose blocks
 * are all held by one worker slot each, the deepest first, in the order of the memory (a clock hand), counted in
 * `evictedForSpace`; a store that still finds no room ends `full`. A dropped block is credit that is lost,
 * never credit that is wrong.
 *
 * Cost   stored: about one cache miss per new block, less for shared ones; removed: three per block; clear:
 *        constant; dump: a scan of the chunks; the move to new memory: a copy of what is left.
 */

import { Chunks } from './chunks.ts'
import { claimDoor, isDoor } from './door.ts'
import { type DumpedChunk, type DumpVisitor, DumpWriter, newDumpedChunk, readDump } from './dump-format.ts'
import { EngineTable, INSERTED, NO_ROOM, type TouchedRecords } from './engine-table.ts'
import { IndexDumpError } from './errors.ts'
import { Holders } from './holders.ts'
import {
  CHUNK_BYTES,
  CHUNK_SLOTS,
  CHUNK_WORDS,
  createShared,
  defaultAccess,
  emptyShared,
  FIRST,
  H_ACCESS,
  H_DOOR_NUMBER,
  H_LEFT,
  type Layout,
  LOC,
  PARENT,
  planLayout,
  SET,
  USED,
} from './layout.ts'
import { SideTable } from './side-table.ts'
import type {
  BlockPlace,
  Copies,
  DumpEntry,
  HashPair,
  IndexOptions,
  IndexStats,
  OrphanEntry,
  RemoveOutcome,
  RestoreReport,
  StoreOutcome,
  WordAccess,
} from './types.ts'
import { NO_SET, WorkerSets } from './worker-sets.ts'

const ROOT = 0
const NO_SLOTS: readonly number[] = []
const NONE = 0
/** Stands for a parent that the worker slot does not hold. */
const UNKNOWN = -1
/** Stands for the holder of a worker slot that holds nothing. */
const NOBODY = -1
/** Chunks that eviction looks at before a store is refused. */
const EVICTION_SCAN_MAX = 1 << 14
/** Chunks or records that `maintain` looks at unless told otherwise: about 0.2 ms. */
const MAINTAIN_BUDGET = 1024
/** What a step of `maintain` costs, in chunks that are only looked at. */
const MOVE_COST = 8
const SEGMENT_COST = 64
const UNNAME_COST = 2
/** Merging pays when chunks are emptier than this on average. */
const SLOTS_PER_CHUNK_MIN = CHUNK_SLOTS / 2
const MERGE_CHUNKS_MIN = 4
/** A pass is made again when so much of the slots in use has been left: 1 of 16. */
const MERGE_LEFT_SHARE = 16
/** Memory is given back when less than a quarter of it is in use, and at least so much is at stake. */
const SWAP_SHARE = 4
const SWAP_BYTES_MIN = 1 << 20
const HALVINGS_MAX = 8

export class BlockIndex {
  #memory: SharedArrayBuffer
  #words: Int32Array
  readonly #layout: Layout
  readonly #access: WordAccess
  readonly #copies: Copies
  readonly #swapBytesMin: number
  readonly #onMemory: ((memory: SharedArrayBuffer) => void) | undefined
  readonly #halvings: number
  #chunks: Chunks
  #holders: Holders
  #sets: WorkerSets
  #engines: EngineTable
  readonly #records: TouchedRecords
  #names: SideTable
  #orphans: SideTable
  /** Per holder: blocks held. */
  readonly #held: Int32Array
  #hand = 0
  /** The side record through which `#find` found its answer; 0: by the block's name. */
  #foundRecord = NONE
  #foundPosition = -1
  /** Engine hashes that became held and may be parents of orphans: low, high, … */
  readonly #arrivals: number[] = []
  #sweepPhase: 'names' | 'orphans' | 'chunks' = 'names'
  #sweepAt = 0
  #mergeAt = 0
  #segmentAt = 0
  #leftSinceMerge = 0
  #isSwapRefused = false
  #isRestoring = false
  #changes = 0
  #blocksCreated = 0
  #blocksDistinct = 0
  #memberships = 0
  /** Of side tables: records of retired holders. */
  #retiredOrphans = 0
  #evictedForSpace = 0
  #refusedBlocks = 0
  #unknownRemoves = 0
  #duplicateStores = 0
  #movedHashes = 0
  #adoptedOrphans = 0
  #memorySwaps = 0

  /** An empty index. Throws RangeError when the options leave no room for it. */
  static create(options: IndexOptions): BlockIndex {
    return new BlockIndex(options)
  }

  private constructor(options: IndexOptions) {
    this.#access = options.access ?? defaultAccess()
    const { memory, layout, halvings } = memoryFor(options)
    this.#memory = memory
    this.#layout = layout
    this.#halvings = halvings
    const words = new Int32Array(memory)
    this.#words = words
    const isAtomic = words[H_ACCESS] === 1
    this.#copies = options.copies ?? 'count'
    this.#swapBytesMin = options.swapBytesMin ?? SWAP_BYTES_MIN
    this.#onMemory = options.onMemory
    this.#chunks = new Chunks(layout, words, isAtomic)
    this.#holders = new Holders(layout, words, isAtomic)
    this.#sets = new WorkerSets(layout, words, isAtomic)
    this.#engines = new EngineTable(layout)
    this.#records = { words, base: this.#chunks.chunkBase + SET, chunkWords: CHUNK_WORDS }
    this.#names = new SideTable(layout.holdersMax, bytes => this.#hasRoomFor(bytes))
    this.#orphans = new SideTable(layout.holdersMax, bytes => bytes <= layout.orphanBytesMax)
    this.#held = new Int32Array(layout.holdersMax)
  }

  /**
   * Give this to readers. It changes when `maintain` moves the index to new memory: `onMemory` is called, and
   * readers must be given it with `replaceShard`.
   */
  get memory(): SharedArrayBuffer {
    return this.#memory
  }

  /**
   * A run of blocks, each the parent of the next: block i has engineHashes[2i, 2i + 1] and
   * localHashes[2i, 2i + 1]. `parent` is the engine hash above block 0; undefined: they begin a prompt.
   * It may also be held by one of `parentSlots`, the other layers of a worker key (layers.ts); when none of
   * them holds it yet, the run waits until its own slot does.
   */
  store(
    workerSlot: number,
    parent: Int32Array | undefined,
    engineHashes: Int32Array,
    localHashes: Int32Array,
    count: number,
    copies: Copies = this.#copies,
    parentSlots: readonly number[] = NO_SLOTS,
  ): StoreOutcome {
    this.#requireSlot(workerSlot)
    if (count === 0) return 'stored'
    const holder = this.#holderFor(workerSlot)
    let outcome: StoreOutcome = 'stored'
    let above = ROOT
    let aboveLow = 0
    let aboveHigh = 0
    if (parent !== undefined) {
      aboveLow = parent[0]!
      aboveHigh = parent[1]!
      above = this.#find(holder, aboveLow, aboveHigh)
      for (let i = 0; above === NONE && i < parentSlots.length; i++) {
        const other = this.#holderOf(parentSlots[i]!)
        if (other !== NOBODY) above = this.#find(other, aboveLow, aboveHigh)
      }
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
        above = this.#park(holder, aboveLow, aboveHigh, low, high, localLow, localHigh, copies)
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
        above = this.#place(holder, above, low, high, localLow, localHigh, copies)
        if (above !== NONE && this.#arrivals.length > 0) {
          this.#adopt(holder)
          above = this.#find(holder, low, high) // adoption may have evicted it
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

  /**
   * Holds blocks whose content is known only from other worker slots, the other layers of a worker key (layers.ts), which
   * hold them under the same engine hashes. How many are held then: the rest is known to none of them, or found no room.
   */
  storeKnown(
    workerSlot: number,
    knownSlots: readonly number[],
    engineHashes: Int32Array,
    count: number,
  ): number {
    this.#requireSlot(workerSlot)
    const holder = this.#holderFor(workerSlot)
    const others = knownSlots.map(slot => this.#holderOf(slot)).filter(other => other !== NOBODY)
    let held = 0
    for (let i = 0; i < count; i++) {
      const low = engineHashes[2 * i]!
      const high = engineHashes[2 * i + 1]!
      let block = this.#find(holder, low, high)
      for (let at = 0; block === NONE && at < others.length; at++) block = this.#find(others[at]!, low, high)
      if (block === NONE) continue
      const base = this.#chunks.base(block >>> 4)
      const slot = block & 15
      const above = slot > 0 ? block - 1 : this.#words[base + PARENT]!
      const local = base + LOC + 2 * slot
      const [localLow, localHigh] = [this.#words[local]!, this.#words[local + 1]!]
      if (this.#place(holder, above, low, high, localLow, localHigh, 'set') === NONE) {
        this.#arrivals.length = 0
        this.#refusedBlocks++
        continue
      }
      held++
      if (this.#arrivals.length > 0) this.#adopt(holder)
    }
    return held
  }

  /** Gives one copy of each engine hash back. What the worker slot does not hold is counted and ignored. */
  remove(workerSlot: number, engineHashes: Int32Array, count: number): RemoveOutcome {
    this.#requireSlot(workerSlot)
    const holder = this.#holders.of(workerSlot)
    const engines = this.#engines
    // Neither grows while blocks are removed.
    const isPlain = holder !== NOBODY && this.#names.countOf(holder) === 0 && engines.duplicates === 0
    let removed = 0
    let touchedFrom = 0
    let touched = 0
    for (let i = 0; i < count && holder !== NOBODY; i++) {
      const low = engineHashes[2 * i]!
      const high = engineHashes[2 * i + 1]!
      if (i === touched) {
        touchedFrom = i
        touched = engines.touch(engineHashes, i, count, this.#records)
      }
      if (isPlain) {
        const at = engines.findTouched(i - touchedFrom, low, high)
        const block = at < 0 ? NONE : engines.blockAt(at)
        if (block !== NONE && this.#sets.has(this.#chunks.setOf(block), holder)) {
          this.#leave(holder, block, at)
          removed++
          continue
        }
      }
      if (this.#removeOne(holder, low, high)) removed++
    }
    this.#unknownRemoves += count - removed
    return { removed, unknown: count - removed }
  }

  /**
   * Forgets everything of this worker slot at once, orphans too; the slot may then serve another worker key.
   * The memory comes back when `maintain` has swept it.
   */
  clear(workerSlot: number): void {
    this.#requireSlot(workerSlot)
    const holder = this.#holders.of(workerSlot)
    if (holder === NOBODY) return
    // One that holds nothing any more gives its holder back too: others may need it.
    const orphans = this.#orphans.countOf(holder)
    this.#memberships -= this.#held[holder]!
    this.#retiredOrphans += orphans
    this.#holders.retire(workerSlot)
  }

  /** Blocks of the tree that this worker slot holds; a block with several engine hashes counts once. */
  blocksHeld(workerSlot: number): number {
    const holder = this.#holderOf(workerSlot)
    return holder === NOBODY ? 0 : this.#held[holder]!
  }

  /** Whether this worker slot holds a block under this engine hash; parked ones do not count. */
  has(workerSlot: number, engineHash: Int32Array | HashPair): boolean {
    const holder = this.#holderOf(workerSlot)
    return holder !== NOBODY && this.#find(holder, engineHash[0]!, engineHash[1]!) !== NONE
  }

  /**
   * Does a part of what is due: sweeping, merging, giving memory back. True: more is due. Call it between
   * events; what it leaves undone costs memory, never a wrong answer. `budget` bounds the chunks or records that
   * it looks at (0.1 to 2 µs each); a move to new memory is one step, and costs a copy of what is in use.
   */
  maintain(budget: number = MAINTAIN_BUDGET): boolean {
    // A dump that is being read goes by the ids of its blocks.
    if (this.#isRestoring) return false
    let left = budget
    while (left > 0) {
      const cost = this.#maintainStep(left)
      if (cost === 0) return false
      this.#changes++
      left -= cost
    }
    return true
  }

  stats(): IndexStats {
    const { fixedBytes, capacityBytes, chunksMax } = this.#layout
    const tables = this.#engines.bytes + this.#sets.bytes + this.#holders.bytes
    return {
      bytesUsed: fixedBytes + tables + this.#chunks.bytes + this.#names.bytes + this.#orphans.bytes,
      bytesLimit: capacityBytes,
      capacityHalvings: this.#halvings,
      blocksDistinct: this.#blocksDistinct,
      memberships: this.#memberships,
      orphanBlocks: this.#orphans.count - this.#retiredOrphans,
      orphanBytes: this.#orphans.bytes,
      chunks: this.#chunks.count,
      chunksMax,
      chunksTouched: this.#chunks.touched,
      workerSets: this.#sets.count,
      retiredHolders: this.#holders.retiredCount,
      sideNames: this.#names.count,
      memorySwaps: this.#memorySwaps,
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
    const holder = this.#holderOf(workerSlot)
    if (holder === NOBODY) return
    const changes = this.#changes
    const words = this.#words
    const reachable = new Uint16Array(this.#chunks.top + 1)
    for (const [chunk, depth] of this.#chunksByDepth(holder)) {
      const base = this.#chunks.base(chunk)
      const used = words[base + USED]!
      let above = words[base + PARENT]!
      let isReachable = above === ROOT || ((reachable[above >>> 4]! >>> (above & 15)) & 1) === 1
      for (let slot = 0; slot < used; slot++) {
        const block = (chunk << 4) | slot
        if (!this.#sets.has(words[base + SET + slot]!, holder)) {
          isReachable = false
        } else {
          if (isReachable) reachable[chunk]! |= 1 << slot
          const parentEngineHash = above === ROOT ? undefined : this.#someName(holder, above)
          const localHash = [words[base + LOC + 2 * slot]!, words[base + LOC + 2 * slot + 1]!] as const
          for (const [engineHash, copies] of this.#namesOf(holder, block)) {
            yield {
              block,
              parentBlock: above,
              engineHash,
              parentEngineHash,
              localHash,
              position: depth + slot,
              isReachable,
              copies,
            }
            if (this.#changes !== changes)
              throw new Error('cannot go on with the dump: the index has changed')
          }
        }
        above = block
      }
    }
  }

  /** Where a block lies that a dump named, held or not: for the holes above those that are. */
  placeOf(block: number): BlockPlace {
    const base = this.#chunks.base(block >>> 4)
    const slot = block & 15
    const at = base + LOC + 2 * slot
    return {
      parentBlock: slot > 0 ? block - 1 : this.#words[base + PARENT]!,
      localHash: [this.#words[at]!, this.#words[at + 1]!],
    }
  }

  /** What this worker slot has stored below parents that are unknown. Throws when the index changes meanwhile. */
  *orphans(workerSlot: number): Generator<OrphanEntry, void, undefined> {
    const holder = this.#holderOf(workerSlot)
    if (holder === NOBODY) return
    const changes = this.#changes
    const table = this.#orphans
    for (let record = 1; record < table.recordsEnd; record++) {
      if (table.holderOf(record) !== holder) continue
      yield {
        engineHash: [table.engineLow(record), table.engineHigh(record)],
        parentEngineHash: [table.groupLow(record), table.groupHigh(record)],
        localHash: [table.localLow(record), table.localHigh(record)],
        copies: table.copies(record),
      }
      if (this.#changes !== changes) throw new Error('cannot go on with the dump: the index has changed')
    }
  }

  /**
   * Everything that the worker slots of `names` hold, orphans too, as bytes in the form of dump-format.ts, piece by
   * piece; about 40 KB each, and yours. Throws when the index changes meanwhile: write the pieces without waiting for
   * events, or hold events back.
   */
  *dumpBytes(names: ReadonlyMap<number, string>): Generator<Uint8Array, void, undefined> {
    const changes = this.#changes
    const writer = new DumpWriter(names)
    for (const _ of this.#visit(names, writer)) {
      if (!writer.isFull) continue
      yield writer.take()
      if (this.#changes !== changes) throw new Error('cannot go on with the dump: the index has changed')
    }
    yield writer.take(true)
  }

  /**
   * Fills this index, which must be empty, from a dump. `slotOf` says which worker slot a name has here; undefined:
   * what it held is left out. What finds no room is left out and counted. Throws IndexDumpError, and the index is
   * empty, when the dump is truncated, altered or of another version. Events that are applied meanwhile throw.
   */
  async restore(
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    slotOf: (name: string) => number | undefined,
  ): Promise<RestoreReport> {
    if (this.#chunks.count + this.#orphans.count > 0) throw new Error('cannot restore into an index in use')
    const refused = this.#refusedBlocks
    this.#isRestoring = true
    try {
      await readDump(source, names => this.#restorer(names, slotOf))
      this.#isRestoring = false
    } catch (thrown) {
      this.#isRestoring = false
      for (let slot = 0; slot < this.#layout.workerSlotsMax; slot++) this.clear(slot)
      this.#trimAll()
      while (this.maintain());
      throw thrown
    }
    this.#trimAll()
    return { memberships: this.#memberships, refusedBlocks: this.#refusedBlocks - refused }
  }

  /**
   * Checks that the structure is what the invariants say, and every count. Throws an Error that says what does not
   * hold. For tests: several passes over everything.
   */
  audit(): void {
    this.#chunks.audit()
    this.#engines.audit()
    const require = (condition: boolean, what: string) => {
      if (!condition) throw new Error(what)
    }
    const held = new Int32Array(this.#held.length)
    const blocksOf = new Map<number, number>()
    let named = 0
    let distinct = 0
    for (let chunk = 1; chunk <= this.#chunks.top; chunk++) {
      const base = this.#chunks.base(chunk)
      for (let slot = 0; slot < this.#words[base + USED]!; slot++) {
        const block = (chunk << 4) | slot
        const set = this.#words[base + SET + slot]!
        require(set !== 0 || !this.#isUnnamed(block), `the hole ${block} is marked as held`)
        if (set === 0) continue
        distinct++
        if (!this.#isUnnamed(block)) named++
        blocksOf.set(set, (blocksOf.get(set) ?? 0) + 1)
        const members = this.#sets.members(set)
        require(members.length > 0, `block ${block} has an empty set`)
        for (const member of members) held[member]!++
      }
    }
    for (const [set, blocks] of blocksOf) {
      require(this.#sets.blocksOf(set) ===
        blocks, `set ${set} has ${blocks} blocks, not ${this.#sets.blocksOf(set)}`)
    }
    let memberships = 0
    for (const [holder, blocks] of held.entries()) {
      require(this.#held[holder] ===
        blocks, `holder ${holder} holds ${blocks} blocks, not ${this.#held[holder]}`)
      if (this.#holders.ownerOf(holder) >= 0) memberships += blocks
    }
    require(memberships === this.#memberships, `${memberships} memberships, not ${this.#memberships}`)
    require(distinct === this.#blocksDistinct, `${distinct} blocks, not ${this.#blocksDistinct}`)
    require(named === this.#engines.count, `${named} names, not ${this.#engines.count}`)
    for (let record = 1; record < this.#names.recordsEnd; record++) {
      const holder = this.#names.holderOf(record)
      if (holder < 0) continue
      const block = this.#names.groupLow(record)
      require(this.#sets.has(
        this.#chunks.setOf(block),
        holder,
      ), `a record of holder ${holder} is about ${block}`)
    }
    const { bytesUsed, bytesLimit } = this.stats()
    require(bytesUsed <= bytesLimit, `${bytesUsed} bytes of ${bytesLimit}`)
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
    let block = this.#chunks.child(above, localLow, localHigh)
    let set = 0
    if (block === NONE) {
      block = this.#create(worker, above, localLow, localHigh)
      if (block === NONE) return NONE
    } else {
      set = this.#chunks.setOf(block)
      if (set !== 0 && this.#holders.retiredCount > 0) set = this.#forgetRetired(block, set)
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
      if (inserted === NO_ROOM) this.#chunks.mark(block)
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
      const local = this.#chunks.base(block >>> 4) + LOC + 2 * (block & 15)
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
        this.#sets.has(this.#chunks.setOf(block), worker) &&
        !(hasSides && names.inGroup(worker, block, 0) !== NONE)
      ) {
        this.#foundPosition = at
        return block
      }
      if (engines.duplicates === 0) break
    }
    return NONE
  }

  /** A new block below `above`, held by `worker`, without a name yet. 0: no room. */
  #create(worker: number, above: number, low: number, high: number): number {
    const chunks = this.#chunks
    let block: number
    if (chunks.canAppend(above)) {
      block = chunks.append(above, low, high, worker + 1)
    } else {
      const chunk = this.#allocate(above >>> 4)
      if (chunk === NONE) return NONE
      block = chunks.begin(chunk, above, low, high, worker + 1)
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
    const set = this.#chunks.setOf(block)
    let next = this.#sets.without(set, worker)
    if (next === NO_SET) {
      const kept = this.#sets.lowest(set, worker)
      this.#keepOnly(block, set, kept, worker)
      next = kept + 1
    }
    this.#setSet(block, set, next)
    this.#lose(worker)
    this.#leftSinceMerge++
    if (next !== 0) return
    this.#unname(block, position)
    this.#chunks.trim(block >>> 4)
  }

  /** No id is free for a smaller set: keeps the credit of one of its members, who needs none. */
  #keepOnly(block: number, set: number, kept: number, except: number): void {
    for (const member of this.#sets.members(set)) {
      if (member === except || member === kept) continue
      this.#deleteNames(member, block)
      if (this.#lose(member)) this.#evictedForSpace++
    }
  }

  /** A holder has lost a block. False: it is retired, so nobody has lost it. */
  #lose(worker: number): boolean {
    this.#held[worker]!--
    if (this.#holders.ownerOf(worker) < 0) return false
    this.#memberships--
    return true
  }

  /** Nobody holds the block any more: its name goes. */
  #unname(block: number, position: number): void {
    this.#blocksDistinct--
    if (this.#isUnnamed(block)) this.#chunks.unmark(block)
    else if (position >= 0) this.#engines.deleteAt(position)
    else this.#engines.delete(block)
  }

  /**
   * Takes retired holders out of a block that is about to be stored, so that who comes after an engine that began
   * anew need not go by its names. Only if they are alone; what is left of the set.
   */
  #forgetRetired(block: number, set: number): number {
    if (this.#holders.ownerOf(this.#sets.lowest(set)) >= 0) return set
    const members = this.#sets.members(set)
    for (const member of members) if (this.#holders.ownerOf(member) >= 0) return set
    for (const member of members) {
      this.#deleteNames(member, block)
      this.#lose(member)
    }
    this.#setSet(block, set, 0)
    this.#unname(block, -1)
    return 0
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

  /** A chunk to fill, sweeping and evicting others if there is none; never `pinned`. 0: no room. */
  #allocate(pinned: number): number {
    const chunks = this.#chunks
    if (!chunks.hasFree) {
      if (!chunks.isExhausted && this.#hasRoomFor(CHUNK_BYTES + this.#names.bytes)) return chunks.take(pinned)
      while (!chunks.hasFree && this.#holders.retiredCount > 0) this.#sweepStep(MAINTAIN_BUDGET)
      if (!chunks.hasFree) this.#evict(pinned)
    }
    return chunks.hasFree ? chunks.take(pinned) : NONE
  }

  /** Frees one chunk without children whose blocks are held by one worker slot each. */
  #evict(pinned: number): void {
    const words = this.#words
    const chunks = this.#chunks
    const scanMax = Math.min(EVICTION_SCAN_MAX, chunks.top)
    for (let scanned = 0; scanned < scanMax && !chunks.hasFree; scanned++) {
      this.#hand = this.#hand >= chunks.top ? 1 : this.#hand + 1
      const chunk = this.#hand
      const base = chunks.base(chunk)
      const used = words[base + USED]!
      if (chunk === pinned || used === 0 || words[base + FIRST] !== 0) continue
      let isLone = true
      for (let slot = 0; slot < used && isLone; slot++) {
        isLone = words[base + SET + slot]! <= this.#layout.holdersMax
      }
      if (!isLone) continue
      for (let slot = used - 1; slot >= 0; slot--) {
        const set = words[base + SET + slot]!
        if (set === 0) continue
        this.#deleteNames(set - 1, (chunk << 4) | slot)
        if (this.#holders.ownerOf(set - 1) >= 0) this.#evictedForSpace++
        this.#leave(set - 1, (chunk << 4) | slot, -1)
      }
    }
  }

  /** One step of what is due; its cost, 0 when nothing is. */
  #maintainStep(budget: number): number {
    if (this.#holders.retiredCount > 0) {
      const hasOrphans = this.#orphans.count > this.#retiredOrphans
      const isWorthIt = this.#chunks.touched * CHUNK_BYTES >= this.#swapBytesMin && !this.#isSwapRefused
      if (this.#memberships === 0 && !hasOrphans && isWorthIt) return this.#beginAfresh(budget)
      return this.#sweepStep(budget)
    }
    const chunks = this.#chunks
    const bytesAtStake = (chunks.touched - chunks.count) * CHUNK_BYTES
    const isGivingBack =
      !this.#isSwapRefused &&
      bytesAtStake >= this.#swapBytesMin &&
      chunks.count * SWAP_SHARE <= chunks.touched
    if (this.#isMergeDue()) return this.#mergeStep(budget)
    if (isGivingBack) return this.#giveBackStep(budget)
    this.#names.shrink()
    this.#orphans.shrink()
    return 0
  }

  /** Takes retired holders out: of the side tables first, so that their blocks go by the blocks' own names. */
  #sweepStep(budget: number): number {
    const holders = this.#holders
    if (!holders.isSweeping) {
      holders.beginSweep()
      this.#sets.beginPurge()
      this.#sweepPhase = 'names'
      this.#sweepAt = 1
    }
    const end = this.#sweepAt + budget
    if (this.#sweepPhase !== 'chunks') {
      const table = this.#sweepPhase === 'names' ? this.#names : this.#orphans
      const last = table.count === 0 ? 0 : table.recordsEnd
      let at = this.#sweepAt
      for (; at < Math.min(end, last); at++) {
        const holder = table.holderOf(at)
        if (holder < 0 || !holders.isSweptNow(holder)) continue
        table.delete(at)
        if (table === this.#orphans) this.#retiredOrphans--
      }
      const cost = 1 + at - this.#sweepAt
      this.#sweepAt = at
      if (at >= last) {
        this.#sweepPhase = this.#sweepPhase === 'names' ? 'orphans' : 'chunks'
        this.#sweepAt = 1
      }
      return cost
    }
    let chunk = this.#sweepAt
    let cost = 1
    for (; cost < budget && chunk <= this.#chunks.top; chunk++)
      cost += 1 + this.#sweepChunk(chunk) * UNNAME_COST
    this.#sweepAt = chunk
    if (chunk > this.#chunks.top) {
      for (let holder = 0; holder < this.#held.length; holder++) {
        if (holders.isSweptNow(holder) && this.#held[holder] !== 0) {
          throw new Error(`a sweep has left ${this.#held[holder]} blocks of holder ${holder}`)
        }
      }
      holders.endSweep()
    }
    return cost
  }

  /** How many blocks nobody holds any more. */
  #sweepChunk(chunk: number): number {
    const words = this.#words
    const base = this.#chunks.base(chunk)
    let unnamed = 0
    // The slots of a chunk that is free are counted as used by nobody: USED is 0.
    for (let slot = words[base + USED]! - 1; slot >= 0; slot--) {
      const set = words[base + SET + slot]!
      if (set === 0) continue
      const block = (chunk << 4) | slot
      let next = this.#sets.purge(set, this.#holders.sweeping)
      if (next === set) continue
      if (next === NO_SET) {
        const kept = this.#sets.members(set).find(member => !this.#holders.isSweptNow(member))!
        this.#keepOnly(block, set, kept, -1)
        next = kept + 1
      } else {
        this.#loseSwept(set)
      }
      this.#setSet(block, set, next)
      this.#leftSinceMerge++
      if (next !== 0) continue
      if (unnamed++ === 0) this.#engines.touchBlocks(chunk << 4, slot + 1)
      this.#unname(block, -1)
    }
    if (unnamed > 0) this.#chunks.trim(chunk)
    return unnamed
  }

  #loseSwept(set: number): void {
    if (set <= this.#layout.holdersMax) {
      this.#held[set - 1]!--
      return
    }
    const { sweeping } = this.#holders
    for (let i = 0; i < sweeping.length; i++) {
      for (let word = sweeping[i]!; word !== 0; word &= word - 1) {
        const holder = i * 32 + 31 - Math.clz32(word & -word)
        if (this.#sets.has(set, holder)) this.#held[holder]!--
      }
    }
  }

  #isMergeDue(): boolean {
    if (this.#mergeAt > 0) return true
    const { count, slotsUsed } = this.#chunks
    return (
      count >= MERGE_CHUNKS_MIN &&
      slotsUsed < count * SLOTS_PER_CHUNK_MIN &&
      this.#leftSinceMerge * MERGE_LEFT_SHARE >= slotsUsed
    )
  }

  /** A pass over all chunks: each takes in the only one below its end, as often as that fits. */
  #mergeStep(budget: number): number {
    const chunks = this.#chunks
    let cost = 0
    while (cost < budget && ++this.#mergeAt <= chunks.top) {
      cost++
      for (;;) {
        const child = chunks.mergeable(this.#mergeAt)
        if (child === NONE) break
        chunks.merge(this.#mergeAt, child, this.#relocated)
        cost += MOVE_COST
      }
    }
    if (this.#mergeAt > chunks.top) {
      this.#mergeAt = 0
      this.#leftSinceMerge = 0
    }
    return cost + 1
  }

  /** Makes everything dense, then leaves for new memory. */
  #giveBackStep(budget: number): number {
    const chunks = this.#chunks
    const engines = this.#engines
    let cost = 0
    while (chunks.top > chunks.count && cost < budget) {
      chunks.moveTop(this.#relocated)
      cost += MOVE_COST
    }
    if (cost > 0) return cost
    if (this.#segmentAt < engines.segmentCount) {
      engines.shrinkStep(this.#segmentAt++)
      return SEGMENT_COST
    }
    if (chunks.joinBuckets(budget)) return budget
    this.#segmentAt = 0
    this.#swap()
    return budget
  }

  /** Everything was cleared: goes on in new memory, in which nothing has been. */
  #beginAfresh(budget: number): number {
    const memory = this.#newMemory()
    if (memory === undefined) return 1
    const words = new Int32Array(memory)
    const isAtomic = words[H_ACCESS] === 1
    const layout = this.#layout
    this.#chunks = new Chunks(layout, words, isAtomic)
    this.#holders = new Holders(layout, words, isAtomic)
    this.#sets = new WorkerSets(layout, words, isAtomic)
    this.#engines = new EngineTable(layout)
    this.#names = new SideTable(layout.holdersMax, bytes => this.#hasRoomFor(bytes))
    this.#orphans = new SideTable(layout.holdersMax, bytes => bytes <= layout.orphanBytesMax)
    this.#held.fill(0)
    this.#retiredOrphans = 0
    this.#blocksDistinct = 0
    this.#mergeAt = 0
    this.#segmentAt = 0
    this.#moveTo(memory, words)
    return budget
  }

  /** Undefined: there is none; it is not tried again. */
  #newMemory(): SharedArrayBuffer | undefined {
    try {
      const memory = createShared(this.#layout, this.#access)
      new Int32Array(memory)[H_DOOR_NUMBER] = this.#words[H_DOOR_NUMBER]!
      return memory
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
      this.#isSwapRefused = true
      return undefined
    }
  }

  /** The new memory is complete; readers of the old one can see that it was left. */
  #moveTo(memory: SharedArrayBuffer, words: Int32Array): void {
    const before = this.#words
    this.#words = words
    this.#records.words = words
    this.#memory = memory
    this.#hand = 0
    this.#memorySwaps++
    Atomics.store(before, H_LEFT, 1)
    this.#onMemory?.(memory)
  }

  /** Goes on in new memory. Without room for it, in the old one: then it is not tried again. */
  #swap(): void {
    const memory = this.#newMemory()
    if (memory === undefined) return
    const words = new Int32Array(memory)
    this.#holders.renew(words)
    const ids = this.#sets.renew(words)
    this.#chunks.renew(words)
    const { holdersMax } = this.#layout
    for (let chunk = 1; chunk <= this.#chunks.top; chunk++) {
      const base = this.#chunks.base(chunk)
      for (let slot = words[base + USED]! - 1; slot >= 0; slot--) {
        const set = words[base + SET + slot]!
        if (set > holdersMax) words[base + SET + slot] = ids[set - holdersMax - 1]!
      }
    }
    this.#engines.renew((this.#chunks.top + 1) * CHUNK_SLOTS)
    this.#names.shrink()
    this.#orphans.shrink()
    this.#moveTo(memory, words)
  }

  /** A block goes by another id: so do its name and the records that are about it. */
  readonly #relocated = (from: number, to: number): void => {
    const set = this.#chunks.setOf(to)
    if (set === 0) return
    if (this.#isUnnamed(from)) {
      this.#chunks.mark(to)
    } else {
      this.#engines.relocate(from, to)
    }
    const names = this.#names
    if (names.count === 0) return
    for (const member of this.#sets.members(set)) {
      for (
        let record = names.inGroup(member, from, 0);
        record !== NONE;
        record = names.inGroup(member, from, 0)
      ) {
        names.regroup(record, to, 0)
      }
    }
  };

  /** Tells a writer everything, parents first; yields after each chunk. */
  *#visit(names: ReadonlyMap<number, string>, writer: DumpWriter): Generator<void, void, undefined> {
    const chunks = this.#chunks
    const words = this.#words
    const { hashes } = this.#engines
    const chunk = newDumpedChunk()
    const setNumbers = new Map<number, number>([[0, 0]])
    let sets = 0
    let blocks = 0
    let memberships = 0
    const membersOf = new Map<number, number>()
    /** By chunk: number of its first block. */
    const numbers = new Int32Array(chunks.top + 1)
    const stack: number[] = []
    const numberOf = (set: number): number => {
      const known = setNumbers.get(set)
      if (known !== undefined) return known
      const owners = this.#sets.members(set).map(member => this.#holders.ownerOf(member))
      const slots = owners.filter(owner => names.has(owner))
      const number = slots.length === 0 ? 0 : ++sets
      if (number > 0) writer.set(slots)
      setNumbers.set(set, number)
      membersOf.set(number, slots.length)
      return number
    }
    for (let root = 1; root <= chunks.top; root++) {
      const rootBase = chunks.base(root)
      if (words[rootBase + USED] === 0 || words[rootBase + PARENT] !== ROOT) continue
      stack.push(root)
      for (let each = stack.pop(); each !== undefined; each = stack.pop()) {
        const base = chunks.base(each)
        const above = words[base + PARENT]!
        chunk.parent = above === ROOT ? 0 : numbers[above >>> 4]! + (above & 15)
        chunk.count = words[base + USED]!
        chunk.named = 0
        for (let slot = 0; slot < chunk.count; slot++) {
          const block = (each << 4) | slot
          const number = numberOf(words[base + SET + slot]!)
          chunk.sets[slot] = number
          memberships += membersOf.get(number) ?? 0
          if (number !== 0 && !this.#isUnnamed(block)) chunk.named |= 1 << slot
          for (let k = 0; k < 2; k++) {
            chunk.engines[2 * slot + k] = hashes[2 * block + k]!
            chunk.locals[2 * slot + k] = words[base + LOC + 2 * slot + k]!
          }
        }
        writer.chunk(chunk)
        numbers[each] = blocks + 1
        blocks += chunk.count
        for (let below = chunks.firstBelow(each); below !== NONE; below = chunks.nextBelow(below)) {
          stack.push(below)
        }
        yield
      }
    }
    for (const [table, isOrphans] of [
      [this.#names, false],
      [this.#orphans, true],
    ] as const) {
      for (let record = 1; record < table.recordsEnd; record++) {
        const holder = table.holderOf(record)
        const slot = holder < 0 ? NOBODY : this.#holders.ownerOf(holder)
        if (!names.has(slot)) continue
        const low = table.engineLow(record)
        const high = table.engineHigh(record)
        const group = table.groupLow(record)
        if (isOrphans) {
          const rest = [group, table.groupHigh(record), table.localLow(record), table.localHigh(record)]
          writer.orphan(slot, Int32Array.of(low, high, ...rest), table.copies(record))
        } else {
          writer.name(slot, numbers[group >>> 4]! + (group & 15), low, high, table.copies(record))
        }
        yield
      }
    }
    writer.end(blocks, memberships)
  }

  /** Takes in what a dump says. It may be anything until the checksum has been read. */
  #restorer(names: ReadonlyMap<number, string>, slotOf: (name: string) => number | undefined): DumpVisitor {
    const slots = new Map<number, number>()
    const taken = new Set<number>()
    for (const [number, name] of names) {
      const slot = slotOf(name)
      if (slot === undefined) continue
      this.#requireInRange(slot)
      if (taken.has(slot)) throw new IndexDumpError('altered', `two names are of worker slot ${slot}`)
      taken.add(slot)
      slots.set(number, slot)
    }
    const holderOf = (number: number): number => {
      const slot = slots.get(number)
      return slot === undefined ? NOBODY : this.#holderFor(slot)
    }
    const sets: number[][] = [[]]
    /** By number: the block here; 0: it found no room. */
    const blocks: number[] = [ROOT]
    let hasRefused = false
    const refuse = (count: number) => {
      hasRefused = true
      this.#refusedBlocks += count
    }
    return {
      set: numbers => {
        const holders = numbers.map(holderOf).filter(holder => holder !== NOBODY)
        if (new Set(holders).size < holders.length)
          throw new IndexDumpError('altered', 'a set names a slot twice')
        sets.push(holders)
      },
      chunk: chunk => {
        this.#changes++
        let above = blocks[chunk.parent]!
        let isLost = chunk.parent !== 0 && above === NONE
        let lastNumber = 0
        let lastSet = 0
        for (let i = 0; i < chunk.count; i++) {
          const holders = sets[chunk.sets[i]!]!
          let block = NONE
          if (!isLost) {
            if (this.#chunks.child(above, chunk.locals[2 * i]!, chunk.locals[2 * i + 1]!) !== NONE) {
              throw new IndexDumpError('altered', `block ${blocks.length} is there twice`)
            }
            const set = lastSet !== 0 && chunk.sets[i] === lastNumber ? lastSet : this.#setFor(holders)
            block = this.#restoreBlock(above, chunk, i, set, holders)
            if (block !== NONE) {
              lastNumber = chunk.sets[i]!
              lastSet = this.#chunks.setOf(block)
            }
          }
          if (block === NONE) {
            isLost = true
            refuse(holders.length)
          }
          blocks.push(block)
          above = block
        }
      },
      name: (number, blockNumber, low, high, copies) => {
        const holder = holderOf(number)
        const block = blocks[blockNumber]!
        if (holder === NOBODY) return
        if (block === NONE || !this.#sets.has(this.#chunks.setOf(block), holder)) {
          if (hasRefused) return
          throw new IndexDumpError('altered', `slot ${number} has a name for block ${blockNumber}`)
        }
        const known = this.#names.find(holder, low, high)
        const record = known === NONE ? this.#names.add(holder, low, high, block, 0, 0, 0) : known
        if (record !== NONE) this.#names.setCopies(record, copies)
        else refuse(1)
      },
      orphan: (number, hashes, copies) => {
        const holder = holderOf(number)
        if (holder === NOBODY) return
        const [low, high, groupLow, groupHigh, localLow, localHigh] = hashes as unknown as number[]
        if (this.#orphans.find(holder, low!, high!) !== NONE) {
          throw new IndexDumpError('altered', `slot ${number} has an orphan twice`)
        }
        const record = this.#orphans.add(holder, low!, high!, groupLow!, groupHigh!, localLow!, localHigh!)
        if (record !== NONE) this.#orphans.setCopies(record, copies)
        else refuse(1)
      },
    }
  }

  /** The set of some holders; of the first alone where no id is free. */
  #setFor(holders: readonly number[]): number {
    if (holders.length === 0) return 0
    const set = this.#sets.of(holders)
    return set === NO_SET ? holders[0]! + 1 : set
  }

  /** A block of a dump, in a set that may be empty: a hole. 0: no room. */
  #restoreBlock(
    above: number,
    chunk: DumpedChunk,
    i: number,
    set: number,
    holders: readonly number[],
  ): number {
    const chunks = this.#chunks
    const low = chunk.locals[2 * i]!
    const high = chunk.locals[2 * i + 1]!
    let block: number
    if (chunks.canAppend(above)) {
      block = chunks.append(above, low, high, set)
    } else {
      const hasRoom = !chunks.isExhausted && this.#hasRoomFor(CHUNK_BYTES + this.#names.bytes)
      if (!chunks.hasFree && !hasRoom) return NONE
      block = chunks.begin(chunks.take(above >>> 4), above, low, high, set)
    }
    if (set === 0) return block
    this.#sets.move(0, set)
    this.#blocksCreated++
    this.#blocksDistinct++
    for (const holder of holders) {
      if (!this.#sets.has(set, holder)) {
        this.#refusedBlocks++
        continue
      }
      this.#held[holder]!++
      this.#memberships++
    }
    const isNamed = ((chunk.named >>> i) & 1) === 1
    const inserted = isNamed
      ? this.#engines.insert(block, chunk.engines[2 * i]!, chunk.engines[2 * i + 1]!)
      : NO_ROOM
    if (inserted === NO_ROOM) chunks.mark(block)
    if (isNamed && inserted === NO_ROOM) {
      for (const holder of holders) {
        const record = this.#names.add(
          holder,
          chunk.engines[2 * i]!,
          chunk.engines[2 * i + 1]!,
          block,
          0,
          0,
          0,
        )
        if (record === NONE) this.#refusedBlocks++
      }
    }
    return block
  }

  /** Frees what only holes are left of. */
  #trimAll(): void {
    for (let chunk = this.#chunks.top; chunk > 0; chunk--) this.#chunks.trim(chunk)
  }

  #requireSlot(workerSlot: number): void {
    this.#requireInRange(workerSlot)
    if (this.#isRestoring) throw new Error('cannot apply events while a dump is restored')
    this.#changes++
  }

  #requireInRange(workerSlot: number): void {
    if (!(workerSlot >= 0 && workerSlot < this.#layout.workerSlotsMax)) {
      throw new RangeError(`worker slot ${workerSlot} is not of 0 … ${this.#layout.workerSlotsMax - 1}`)
    }
  }

  #holderOf(workerSlot: number): number {
    return workerSlot >= 0 && workerSlot < this.#layout.workerSlotsMax ? this.#holders.of(workerSlot) : NOBODY
  }

  /** The holder of a worker slot, a new one where it has none. When all are taken, the sweep ends at once. */
  #holderFor(workerSlot: number): number {
    const known = this.#holders.of(workerSlot)
    if (known !== NOBODY) return known
    for (;;) {
      const holder = this.#holders.assign(workerSlot)
      if (holder !== NOBODY) return holder
      this.#sweepStep(MAINTAIN_BUDGET)
    }
  }

  #setSet(block: number, from: number, to: number): void {
    this.#chunks.setSet(block, to)
    this.#sets.move(from, to)
  }

  /** The block is held but has no entry in the engine table. */
  #isUnnamed(block: number): boolean {
    return this.#chunks.isMarked(block)
  }

  /** Whether chunks and so many bytes more stay within what both may share. */
  #hasRoomFor(bytes: number): boolean {
    return this.#chunks.touched * CHUNK_BYTES + bytes <= this.#layout.chunkBytesMax
  }

  #someName(worker: number, block: number): HashPair | undefined {
    return this.#sets.has(this.#chunks.setOf(block), worker) ? this.#namesOf(worker, block)[0]![0] : undefined
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
    const depths = new Int32Array(this.#chunks.top + 1).fill(-1)
    const depthOf = (chunk: number): number => {
      const path: number[] = []
      let each = chunk
      let depth = -1
      for (;;) {
        depth = depths[each]!
        if (depth >= 0) break
        const above = words[this.#chunks.base(each) + PARENT]!
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
        const above = words[this.#chunks.base(each) + PARENT]!
        depth = depths[above >>> 4]! + (above & 15) + 1
        depths[each] = depth
      }
      return depth
    }
    const chunks: [number, number][] = []
    for (let chunk = 1; chunk <= this.#chunks.top; chunk++) {
      const base = this.#chunks.base(chunk)
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
 * with it and the same options. Throws RangeError as `BlockIndex.create` does. An index that moves to new memory
 * leaves it for good: where memory is to be given back, use `createIndexDoor`.
 */
export function createIndexMemory(options: IndexOptions): SharedArrayBuffer {
  return createShared(planLayout(options), options.access ?? defaultAccess())
}

interface Reserved {
  readonly memory: SharedArrayBuffer
  readonly layout: Layout
  /** How often the capacity was halved because the system would not reserve so much. */
  readonly halvings: number
}

function memoryFor(options: IndexOptions): Reserved {
  const { memory } = options
  if (memory !== undefined && !isDoor(memory)) {
    const layout = planLayout(options)
    emptyShared(memory, layout)
    return { memory, layout, halvings: 0 }
  }
  for (let halvings = 0; ; halvings++) {
    const layout = planLayout({
      ...options,
      capacityBytes: Math.floor(options.capacityBytes / 2 ** halvings),
    })
    try {
      const reserved = createShared(layout, options.access ?? defaultAccess())
      if (memory !== undefined) Atomics.store(new Int32Array(reserved), H_DOOR_NUMBER, claimDoor(memory))
      return { memory: reserved, layout, halvings }
    } catch (thrown) {
      if (!(thrown instanceof RangeError) || halvings >= HALVINGS_MAX) throw thrown
    }
  }
}
