/**
 * BlockIndex: which worker slot holds which prefix. The only writer of one shard; readers look at the
 * shared memory with `IndexReader`, on any thread, without asking.
 *
 * A radix tree of local hashes in chunks of 16 blocks, layout in layout.ts, protocol in
 * ../wasm/loops/chunks.ts:
 *
 *   chunk 7   a─b─c─…─p ──NEXT──► chunk 9  q─r─…          blocks of a chunk are one chain
 *                 └────PARENT──── chunk 8  x─y            a branch is a chunk of its own
 *
 * The meaning of events is in writer.ts, making room in capacity.ts, the work between events in
 * maintenance.ts, invariants in index-state.ts. The code that runs for every block is WebAssembly (loops.ts).
 *
 *   cleared  at once: the worker slot's holder is retired. Its blocks are swept by `maintain`.
 *
 * `clear`, `dump` and the move to new memory alone are not bounded by a step's size.
 *
 * Cost   stored: about one cache miss per new block, less for shared ones; removed: three per block; clear:
 *        constant; dump: a scan of the chunks; the move to new memory: a copy of what is left.
 */

import { auditIndex } from './audit.ts'
import { Capacity } from './capacity.ts'
import { claimDoor } from './door.ts'
import { dumpOrphans, dumpSlot, SlicedDump } from './dump.ts'
import { IndexState, NOBODY, NONE, ROOT } from './index-state.ts'
import { type Layout, planLayout } from './layout.ts'
import { Maintenance } from './maintenance.ts'
import { shardOver } from './shard.ts'
import { createShared, defaultAccess, emptyShared, isMemory } from './shard-memory.ts'
import { Sweep } from './sweep.ts'
import { sampleTree, type TreeSample, type TreeSampleOptions } from './tree-sample.ts'
import type {
  BlockHolder,
  BlockPlace,
  Copies,
  DumpEntry,
  HashPair,
  IndexMemory,
  IndexOptions,
  IndexStats,
  LeftCopies,
  OrphanEntry,
  RemoveOutcome,
  StoreOutcome,
} from './types.ts'
import { H_DOOR_NUMBER, LOC, PARENT } from './words.ts'
import { Writer } from './writer.ts'

const NO_SLOTS: readonly number[] = []
/** Chunks or records that `maintain` looks at by default: about 0.2 ms. */
const MAINTAIN_BUDGET = 1024
const HALVINGS_MAX = 8

export class BlockIndex {
  readonly #state: IndexState
  readonly #capacity: Capacity
  readonly #writer: Writer
  readonly #maintenance: Maintenance
  readonly #copies: Copies
  readonly #halvings: number

  /** An empty index. Throws RangeError when the options leave no room for it. */
  static create(options: IndexOptions): BlockIndex {
    return new BlockIndex(options)
  }

  private constructor(options: IndexOptions) {
    const { memory, layout, halvings } = memoryFor(options)
    this.#halvings = halvings
    this.#copies = options.copies ?? 'count'
    const state = new IndexState(layout, shardOver(layout, memory))
    const sweep = new Sweep(state)
    this.#state = state
    this.#capacity = new Capacity(state, sweep)
    this.#writer = new Writer(state, this.#capacity)
    this.#maintenance = new Maintenance(state, sweep, this.#capacity, {
      access: options.access ?? defaultAccess(),
      swapBytesMin: options.swapBytesMin,
      onMemory: options.onMemory,
    })
  }

  /**
   * Give this to readers. It changes when `maintain` moves the index to new memory: `onMemory` is called, and
   * readers must be given it with `replaceShard`.
   */
  get memory(): IndexMemory {
    return this.#state.memory
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
    return this.#writer.store(workerSlot, parent, engineHashes, localHashes, count, copies, parentSlots)
  }

  /**
   * Holds blocks whose content only other worker slots know: the other layers of a worker key (layers.ts),
   * which hold them under the same engine hashes. Returns how many are held then; the others are unknown to
   * all layers, or found no room.
   */
  storeKnown(
    workerSlot: number,
    knownSlots: readonly number[],
    engineHashes: Int32Array,
    count: number,
  ): number {
    this.#requireSlot(workerSlot)
    return this.#writer.storeKnown(workerSlot, knownSlots, engineHashes, count)
  }

  /**
   * Gives back one copy of each engine hash. With `set`, gives back all copies and reports to `left` the
   * hashes that had more than one. Hashes that the worker slot does not hold are counted and ignored.
   */
  remove(
    workerSlot: number,
    engineHashes: Int32Array,
    count: number,
    copies: Copies = 'count',
    left?: LeftCopies,
  ): RemoveOutcome {
    this.#requireSlot(workerSlot)
    return this.#writer.remove(workerSlot, engineHashes, count, copies, left)
  }

  /**
   * Forgets everything of this worker slot at once, orphans too; the slot may then serve another worker key.
   * The memory comes back when `maintain` has swept it.
   */
  clear(workerSlot: number): void {
    this.#requireSlot(workerSlot)
    const state = this.#state
    const holder = state.holders.of(workerSlot)
    if (holder === NOBODY) return
    // One that holds nothing any more gives its holder back too: others may need it.
    state.memberships -= state.heldBy(holder)
    state.retiredOrphans += state.orphans.countOf(holder)
    state.holders.retire(workerSlot)
    state.openDump?.cleared(workerSlot)
  }

  /** Blocks of the tree that this worker slot holds; a block with several engine hashes counts once. */
  blocksHeld(workerSlot: number): number {
    const holder = this.#state.holderOf(workerSlot)
    return holder === NOBODY ? 0 : this.#state.heldBy(holder)
  }

  /** Counter: stores of a block that its worker slot held already, of all worker slots. */
  get duplicateStores(): number {
    return this.#state.counters.duplicateStores
  }

  /** Whether this worker slot holds a block under this engine hash; parked ones do not count. */
  has(workerSlot: number, engineHash: Int32Array | HashPair): boolean {
    const holder = this.#state.holderOf(workerSlot)
    return holder !== NOBODY && this.#state.find(holder, engineHash[0]!, engineHash[1]!) !== NONE
  }

  /** The block that this worker slot holds under this engine hash, for `placeOf`; undefined: none. */
  blockOf(workerSlot: number, engineHash: Int32Array | HashPair): number | undefined {
    const holder = this.#state.holderOf(workerSlot)
    const block = holder === NOBODY ? NONE : this.#state.find(holder, engineHash[0]!, engineHash[1]!)
    return block === NONE ? undefined : block
  }

  /**
   * Whether this worker slot holds the block that begins prompts with this local hash, under another engine
   * hash than this.
   */
  isHeldOtherwise(workerSlot: number, localHash: Int32Array | HashPair, engineHash: Int32Array): boolean {
    const { loops, sets, chunks } = this.#state
    const holder = this.#state.holderOf(workerSlot)
    if (holder === NOBODY) return false
    const block = loops.childOf(ROOT, localHash[0]!, localHash[1]!)
    if (block === NONE || !sets.has(chunks.setOf(block), holder)) return false
    const names = this.#state.namesOf(holder, block)
    return names.some(([[low, high]]) => low !== engineHash[0] || high !== engineHash[1])
  }

  /**
   * The worker slots that hold a block which `blockOf` named, each with an engine hash of it there. They are
   * looked up one by one, as they are asked for; the index must not change meanwhile.
   */
  *holdersOf(block: number): Generator<BlockHolder, void, undefined> {
    const { sets, chunks, holders } = this.#state
    const set = chunks.setOf(block)
    for (let holder = sets.next(set, -1); holder >= 0; holder = sets.next(set, holder)) {
      const workerSlot = holders.ownerOf(holder)
      if (workerSlot >= 0) yield { workerSlot, engineHash: this.#state.namesOf(holder, block)[0]![0] }
    }
  }

  /**
   * Does part of the maintenance that is due: sweeping, merging, giving memory back. True: more is due. Call
   * it between events; undone maintenance costs memory, and never makes an answer wrong. `budget` bounds the
   * chunks or records that it looks at (0.1 to 2 µs each). A move to new memory is one step, and costs a copy
   * of the memory in use.
   */
  maintain(budget: number = MAINTAIN_BUDGET): boolean {
    let left = budget
    while (left > 0) {
      const cost = this.#maintenance.step(left)
      if (cost === 0) return false
      this.#state.changes++
      left -= cost
    }
    return true
  }

  stats(): IndexStats {
    const { layout, chunks, engines, sets, holders, names, orphans, counters } = this.#state
    const tables = engines.bytes + sets.bytes + holders.bytes
    return {
      bytesUsed: layout.fixedBytes + tables + chunks.bytes + names.bytes + orphans.bytes,
      bytesLimit: layout.capacityBytes,
      capacityHalvings: this.#halvings,
      blocksDistinct: this.#state.blocksDistinct,
      memberships: this.#state.memberships,
      orphanBlocks: orphans.count - this.#state.retiredOrphans,
      orphanBytes: orphans.bytes,
      chunks: chunks.count,
      chunksMax: layout.chunksMax,
      chunksTouched: chunks.touched,
      workerSets: sets.count,
      retiredHolders: holders.retiredCount,
      sideNames: names.count,
      ...counters,
    }
  }

  /**
   * Every engine hash that this worker slot holds, parents first: enough to rebuild (the reachable part) and
   * to compare with an engine's cache. Orphans are not in it. Throws when the index changes meanwhile.
   */
  *dump(workerSlot: number): Generator<DumpEntry, void, undefined> {
    yield* dumpSlot(this.#state, workerSlot)
  }

  /**
   * Opens a dump that is taken in slices, between which the index may change: see dump.ts for what it says
   * then. Until `closeDump` maintenance moves no block and gives no memory back. Ends the dump before, if
   * any.
   */
  openDump(workerSlot: number): SlicedDump {
    const dump = new SlicedDump(this.#state, workerSlot)
    this.#state.openDump = dump
    return dump
  }

  closeDump(dump: SlicedDump): void {
    if (this.#state.openDump === dump) this.#state.openDump = undefined
  }

  /** The largest prefixes, at a bounded cost: tree-sample.ts. */
  sampleTree(options: TreeSampleOptions): TreeSample {
    return sampleTree(this.#state, options)
  }

  /** Where a block lies that a dump named, held or not: for the holes above those that are. */
  placeOf(block: number): BlockPlace {
    const { chunks, words } = this.#state
    const base = chunks.base(block >>> 4)
    const slot = block & 15
    const at = base + LOC + 2 * slot
    return {
      parentBlock: slot > 0 ? block - 1 : words[base + PARENT]!,
      localHash: [words[at]!, words[at + 1]!],
    }
  }

  /**
   * What this worker slot has stored below parents that are unknown. Throws when the index changes meanwhile.
   */
  *orphans(workerSlot: number): Generator<OrphanEntry, void, undefined> {
    const holder = this.#state.holderOf(workerSlot)
    if (holder !== NOBODY) yield* dumpOrphans(this.#state, holder)
  }

  /**
   * Checks the invariants and every count. Throws an Error that says what does not hold. For tests: it makes
   * several passes over everything.
   */
  audit(): void {
    auditIndex(this.#state)
    const { bytesUsed, bytesLimit } = this.stats()
    if (bytesUsed > bytesLimit) throw new Error(`${bytesUsed} bytes of ${bytesLimit}`)
  }

  #requireSlot(workerSlot: number): void {
    this.#requireInRange(workerSlot)
    this.#state.changes++
  }

  #requireInRange(workerSlot: number): void {
    const { workerSlotsMax } = this.#state.layout
    if (!(workerSlot >= 0 && workerSlot < workerSlotsMax)) {
      throw new RangeError(`worker slot ${workerSlot} is not of 0 … ${workerSlotsMax - 1}`)
    }
  }
}

interface Reserved {
  readonly memory: IndexMemory
  readonly layout: Layout
  /** How often the capacity was halved because the system would not reserve so much. */
  readonly halvings: number
}

function memoryFor(options: IndexOptions): Reserved {
  const { memory } = options
  if (memory !== undefined && isMemory(memory)) {
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
      if (memory !== undefined) {
        Atomics.store(new Int32Array(reserved.buffer), H_DOOR_NUMBER, claimDoor(memory))
      }
      return { memory: reserved, layout, halvings }
    } catch (thrown) {
      if (!(thrown instanceof RangeError) || halvings >= HALVINGS_MAX) throw thrown
    }
  }
}
