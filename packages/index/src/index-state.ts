/**
 * IndexState: everything that one BlockIndex knows, and the small steps that make up every change. Its
 * users, each for one concern: writer.ts, capacity.ts, sweep.ts, maintenance.ts, dump.ts, audit.ts.
 *
 * Invariants
 *   I1  Slot s + 1 of a chunk is a child of slot s; only slot 0 has its parent elsewhere (PARENT).
 *       Events never split or move a block; only maintenance moves one, and repairs what names it.
 *   I2  A block in the middle that no worker slot holds is a hole: it keeps its local hash and has set 0.
 *   I3  A holder in the set of a block holds it under the block's name (its entry of the engine
 *       table), one copy, unless it has records in `names` for that block: then exactly under those.
 *   I4  A holder has each engine hash in one place only: held at one block, or parked, or not at all.
 *   I5  No orphan has a parent that its holder holds.
 *   I6  A retired holder (holders.ts) counts for no worker slot; a block that only retired holders hold may
 *       still be in the tree. After the sweep of a holder no set contains it.
 */

import type { Chunks } from './chunks.ts'
import type { EngineTable } from './engine-table.ts'
import { Holders } from './holders.ts'
import { CHUNK_BYTES, type Layout } from './layout.ts'
import type { Loops } from './loops.ts'
import type { Shard } from './shard.ts'
import { SideTable } from './side-table.ts'
import type { HashPair, IndexMemory } from './types.ts'
import { H_HELD_BASE, NO_SET, S_LEFT_SINCE_MERGE } from './words.ts'
import type { WorkerSets } from './worker-sets.ts'

export const ROOT = 0
export const NONE = 0
/** Stands for the holder of a worker slot that holds nothing. */
export const NOBODY = -1

/** Counters that only grow. */
export interface Counters {
  evictedForSpace: number
  refusedBlocks: number
  unknownRemoves: number
  duplicateStores: number
  movedHashes: number
  adoptedOrphans: number
  memorySwaps: number
}

/** What a holder holds under an engine hash: reused, valid until the next call of `find`. */
interface Found {
  /** The side record through which it was found; 0: by the block's name. */
  record: number
  /** The entry of the engine table through which it was found; 0: by a record. */
  entry: number
}

export class IndexState {
  readonly layout: Layout
  readonly counters: Counters = {
    evictedForSpace: 0,
    refusedBlocks: 0,
    unknownRemoves: 0,
    duplicateStores: 0,
    movedHashes: 0,
    adoptedOrphans: 0,
    memorySwaps: 0,
  }
  readonly found: Found = { record: NONE, entry: NONE }
  memory: IndexMemory
  words: Int32Array
  loops: Loops
  chunks: Chunks
  sets: WorkerSets
  engines: EngineTable
  holders: Holders
  /** Records of further names, and of parked blocks. */
  names: SideTable
  orphans: SideTable
  /** Grows with every change: a dump checks that the index has not changed meanwhile. */
  changes = 0
  /** While there is one, no block is moved. It is told of slots that are cleared; undefined: of all. */
  openDump: { cleared(workerSlot?: number): void } | undefined
  blocksDistinct = 0
  memberships = 0
  /** Orphans of retired holders. */
  retiredOrphans = 0
  readonly #heldBase: number

  constructor(layout: Layout, shard: Shard) {
    this.layout = layout
    this.memory = shard.memory
    this.words = shard.words
    this.loops = shard.loops
    this.chunks = shard.chunks
    this.sets = shard.sets
    this.engines = shard.engines
    this.holders = new Holders(layout, shard.words)
    this.names = this.newNames()
    this.orphans = this.newOrphans()
    this.#heldBase = shard.words[H_HELD_BASE]!
  }

  /** Goes on in another shard, which holds what this one does. */
  moveTo(shard: Shard): void {
    this.memory = shard.memory
    this.words = shard.words
    this.loops = shard.loops
    this.chunks = shard.chunks
    this.sets = shard.sets
    this.engines = shard.engines
  }

  newNames(): SideTable {
    return new SideTable(
      this.layout.holdersMax,
      bytes => this.chunks.touched * CHUNK_BYTES + bytes <= this.layout.chunkBytesMax,
    )
  }

  newOrphans(): SideTable {
    return new SideTable(this.layout.holdersMax, bytes => bytes <= this.layout.orphanBytesMax)
  }

  /** Blocks that a holder holds. */
  heldBy(holder: number): number {
    return this.words[this.#heldBase + holder]!
  }

  /** The holder of a worker slot; −1: it has none, or there is no such slot. */
  holderOf(workerSlot: number): number {
    return workerSlot >= 0 && workerSlot < this.layout.workerSlotsMax ? this.holders.of(workerSlot) : NOBODY
  }

  /** The block that the holder holds under this hash, excluding `except`; 0: none. Sets `found`. */
  find(holder: number, low: number, high: number, except = NONE): number {
    const { found, names, engines, loops } = this
    found.record = NONE
    found.entry = NONE
    const hasSides = names.countOf(holder) > 0
    if (hasSides) {
      const record = names.find(holder, low, high)
      if (record !== NONE && names.groupLow(record) !== except) {
        found.record = record
        return names.groupLow(record)
      }
    }
    for (let entry = loops.findName(low, high, 0); entry !== 0; entry = loops.findName(low, high, entry)) {
      const block = engines.blockAt(entry)
      if (
        block !== except &&
        this.sets.has(this.chunks.setOf(block), holder) &&
        !(hasSides && names.inGroup(holder, block, 0) !== NONE)
      ) {
        found.entry = entry
        return block
      }
      if (engines.duplicates === 0) break
    }
    return NONE
  }

  /** The hashes under which a holder holds a block that it holds, with copies. */
  namesOf(holder: number, block: number): [HashPair, number][] {
    const { names, engines } = this
    const result: [HashPair, number][] = []
    for (
      let record = names.inGroup(holder, block, 0);
      record !== NONE;
      record = names.inGroup(holder, block, 0, record)
    ) {
      result.push([[names.engineLow(record), names.engineHigh(record)], names.copies(record)])
    }
    return result.length > 0 ? result : [[[engines.low(block), engines.high(block)], 1]]
  }

  setSet(block: number, from: number, to: number): void {
    this.chunks.setSet(block, to)
    this.loops.moveBlocks(from, to, 1)
  }

  /** A holder has one block more: it is in the block's set. */
  gain(holder: number): void {
    this.words[this.#heldBase + holder]!++
    this.memberships++
  }

  /** A holder has lost a block. False: the holder is retired, so no worker slot has lost a block. */
  lose(holder: number): boolean {
    this.words[this.#heldBase + holder]!--
    if (this.holders.ownerOf(holder) < 0) return false
    this.memberships--
    return true
  }

  /** Takes a holder out of a block's set. `entry`: the block's name in the engine table, if known. */
  leave(holder: number, block: number, entry: number): void {
    const set = this.chunks.setOf(block)
    let next = this.loops.withoutHolder(set, holder)
    if (next === NO_SET) {
      const kept = this.sets.lowest(set, holder)
      this.keepOnly(block, set, kept, holder)
      next = kept + 1
    }
    this.setSet(block, set, next)
    this.lose(holder)
    this.words[S_LEFT_SINCE_MERGE]!++
    if (next !== 0) return
    this.unname(block, entry)
    this.loops.trim(block >>> 4)
  }

  /**
   * No set id is free for a smaller set: only one member keeps the credit for the block, and needs no set id.
   */
  keepOnly(block: number, set: number, kept: number, except: number): void {
    for (const member of this.sets.members(set)) {
      if (member === except || member === kept) continue
      this.deleteNames(member, block)
      if (this.lose(member)) this.counters.evictedForSpace++
    }
  }

  /** No worker slot holds the block any more: its name is deleted. */
  unname(block: number, entry: number): void {
    this.blocksDistinct--
    if (this.chunks.isMarked(block)) this.chunks.unmark(block)
    else if (entry !== NONE) this.loops.deleteEntryAt(entry)
    else this.loops.deleteName(block)
  }

  deleteNames(holder: number, block: number): void {
    const { names } = this
    for (
      let record = names.inGroup(holder, block, 0);
      record !== NONE;
      record = names.inGroup(holder, block, 0)
    ) {
      names.delete(record)
    }
  }
}
