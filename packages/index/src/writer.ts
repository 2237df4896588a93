/**
 * Writer: applies events block by block.
 *
 *   stored   the parent must be held by the same worker slot, else the block is parked (an orphan) until
 *            it is. An engine hash that is known with other content moves: the old place is given up.
 *   removed  gives one copy back, or all; the last one leaves a hole that ends every overlap there.
 *
 * The blocks of a holder without side names and orphans go through the loops (../wasm/loops/runs.ts). If one
 * of them is not plain, the loops end before it, and the code here handles it, which is right for every
 * block.
 */

import type { Capacity } from './capacity.ts'
import { type IndexState, NOBODY, NONE, ROOT } from './index-state.ts'
import type { Copies, LeftCopies, RemoveOutcome, StoreOutcome } from './types.ts'
import {
  DONE,
  EVENT_BLOCKS,
  H_EVENT_BASE,
  LOC,
  NO_SET,
  OUT_AGAIN,
  OUT_BLOCK,
  OUT_DISTINCT,
  OUT_INDEX,
  OUT_MEMBERSHIPS,
  PARENT,
  S_RETIRED,
  UNKNOWN_PARENT,
} from './words.ts'

/** Stands for a parent that the worker slot does not hold, and for one that is not looked up yet. */
const UNKNOWN = -1
const NOT_LOOKED_UP = -2
/**
 * Longer arrays are copied by the engine, shorter ones by a loop: a view of a part costs as much as so many
 * words.
 */
const LOOP_WORDS_MAX = 96

export class Writer {
  readonly #state: IndexState
  readonly #capacity: Capacity
  /** Engine hashes that became held and may be parents of orphans: low, high, … */
  readonly #arrivals: number[] = []

  constructor(state: IndexState, capacity: Capacity) {
    this.#state = state
    this.#capacity = capacity
  }

  store(
    workerSlot: number,
    parent: Int32Array | undefined,
    engineHashes: Int32Array,
    localHashes: Int32Array,
    count: number,
    copies: Copies,
    parentSlots: readonly number[],
  ): StoreOutcome {
    const state = this.#state
    const holder = this.#capacity.holderFor(workerSlot)
    const { words } = state
    let outcome: StoreOutcome = 'stored'
    let above = parent === undefined ? ROOT : NOT_LOOKED_UP
    let pieceFrom = 0
    let pieceEnd = 0
    let i = 0
    while (i < count) {
      if (above !== UNKNOWN && this.#isPlain(holder)) {
        if (i >= pieceEnd) {
          pieceFrom = i
          pieceEnd = Math.min(count, i + EVENT_BLOCKS)
          const base = words[H_EVENT_BASE]!
          copyHashes(engineHashes, pieceFrom, pieceEnd, words, base)
          copyHashes(localHashes, pieceFrom, pieceEnd, words, base + 2 * EVENT_BLOCKS)
        }
        words[S_RETIRED] = state.holders.retiredCount
        this.#capacity.limitChunks()
        const hasParent = above === NOT_LOOKED_UP
        const code = state.loops.storeRun(
          holder,
          hasParent ? 1 : 0,
          hasParent ? parent![0]! : 0,
          hasParent ? parent![1]! : 0,
          above,
          i - pieceFrom,
          pieceEnd - pieceFrom,
          copies === 'set' ? 1 : 0,
        )
        if (code !== UNKNOWN_PARENT) {
          state.memberships += words[OUT_MEMBERSHIPS]!
          state.blocksDistinct += words[OUT_DISTINCT]!
          state.counters.duplicateStores += words[OUT_AGAIN]!
          i = pieceFrom + words[OUT_INDEX]!
          above = words[OUT_BLOCK]!
          if (code === DONE) continue
        }
      }
      if (above === NOT_LOOKED_UP) above = this.#findParent(holder, parent!, parentSlots)
      const low = engineHashes[2 * i]!
      const high = engineHashes[2 * i + 1]!
      const localLow = localHashes[2 * i]!
      const localHigh = localHashes[2 * i + 1]!
      if (above === UNKNOWN) {
        const aboveLow = i === 0 ? parent![0]! : engineHashes[2 * i - 2]!
        const aboveHigh = i === 0 ? parent![1]! : engineHashes[2 * i - 1]!
        above = this.#park(holder, aboveLow, aboveHigh, low, high, localLow, localHigh, copies)
        if (above === NONE) {
          state.counters.refusedBlocks += count - i
          return 'overflow'
        }
        if (above === UNKNOWN) outcome = 'parked'
      } else {
        above = this.#place(holder, above, low, high, localLow, localHigh, copies)
        if (above !== NONE && this.#arrivals.length > 0) {
          this.#adopt(holder)
          above = state.find(holder, low, high) // adoption may have evicted it
        }
        if (above === NONE) {
          this.#arrivals.length = 0
          state.counters.refusedBlocks += count - i
          return 'full'
        }
      }
      i++
    }
    return outcome
  }

  storeKnown(
    workerSlot: number,
    knownSlots: readonly number[],
    engineHashes: Int32Array,
    count: number,
  ): number {
    const state = this.#state
    const { chunks, words } = state
    const holder = this.#capacity.holderFor(workerSlot)
    const others = knownSlots.map(slot => state.holderOf(slot)).filter(other => other !== NOBODY)
    let held = 0
    for (let i = 0; i < count; i++) {
      const low = engineHashes[2 * i]!
      const high = engineHashes[2 * i + 1]!
      let block = state.find(holder, low, high)
      for (let at = 0; block === NONE && at < others.length; at++) block = state.find(others[at]!, low, high)
      if (block === NONE) continue
      const base = chunks.base(block >>> 4)
      const slot = block & 15
      const above = slot > 0 ? block - 1 : words[base + PARENT]!
      const local = base + LOC + 2 * slot
      if (this.#place(holder, above, low, high, words[local]!, words[local + 1]!, 'set') === NONE) {
        this.#arrivals.length = 0
        state.counters.refusedBlocks++
        continue
      }
      held++
      if (this.#arrivals.length > 0) this.#adopt(holder)
    }
    return held
  }

  remove(
    workerSlot: number,
    engineHashes: Int32Array,
    count: number,
    copies: Copies,
    left: LeftCopies | undefined,
  ): RemoveOutcome {
    const state = this.#state
    const { words } = state
    const holder = state.holders.of(workerSlot)
    let removed = 0
    let pieceFrom = 0
    let pieceEnd = 0
    for (let i = 0; i < count && holder !== NOBODY; ) {
      if (state.names.countOf(holder) === 0) {
        if (i >= pieceEnd) {
          pieceFrom = i
          pieceEnd = Math.min(count, i + 2 * EVENT_BLOCKS)
          copyHashes(engineHashes, pieceFrom, pieceEnd, words, words[H_EVENT_BASE]!)
        }
        const code = state.loops.removeRun(holder, i - pieceFrom, pieceEnd - pieceFrom)
        state.memberships -= words[OUT_MEMBERSHIPS]!
        state.blocksDistinct -= words[OUT_DISTINCT]!
        removed += words[OUT_MEMBERSHIPS]!
        i = pieceFrom + words[OUT_INDEX]!
        if (code === DONE) continue
      }
      if (this.#removeOne(holder, engineHashes[2 * i]!, engineHashes[2 * i + 1]!, copies, left)) removed++
      i++
    }
    state.counters.unknownRemoves += count - removed
    return { removed, unknown: count - removed }
  }

  /** Whether the blocks of a holder may go through the loops. */
  #isPlain(holder: number): boolean {
    const { names, orphans } = this.#state
    return names.countOf(holder) === 0 && orphans.countOf(holder) === 0
  }

  #findParent(holder: number, parent: Int32Array, parentSlots: readonly number[]): number {
    const state = this.#state
    const low = parent[0]!
    const high = parent[1]!
    let block = state.find(holder, low, high)
    for (let i = 0; block === NONE && i < parentSlots.length; i++) {
      const other = state.holderOf(parentSlots[i]!)
      if (other !== NOBODY) block = state.find(other, low, high)
    }
    return block === NONE ? UNKNOWN : block
  }

  /** Holds a block: below `above`, under this engine hash. The block id; 0: no room, nothing is held. */
  #place(
    holder: number,
    above: number,
    low: number,
    high: number,
    localLow: number,
    localHigh: number,
    copies: Copies,
  ): number {
    const state = this.#state
    const { loops, engines, chunks, names, orphans } = state
    const hasSides = names.countOf(holder) > 0
    if (orphans.countOf(holder) > 0) {
      const orphan = orphans.find(holder, low, high)
      if (orphan !== NONE) {
        orphans.delete(orphan)
        state.counters.movedHashes++
      }
      this.#arrivals.push(low, high)
    }
    let block = loops.childOf(above, localLow, localHigh)
    if (block === NONE) {
      block = this.#capacity.create(above, localLow, localHigh, holder + 1)
      if (block === NONE) return NONE
      loops.moveBlocks(0, holder + 1, 1)
    } else {
      let set = chunks.setOf(block)
      if (set !== 0 && state.holders.retiredCount > 0) set = this.#forgetRetired(block, set)
      if (set !== 0) {
        const isNamed = !chunks.isMarked(block) && engines.isName(block, low, high)
        const next = loops.withHolder(set, holder)
        if (next === NO_SET) return NONE
        if (next !== set) {
          state.setSet(block, set, next)
          state.gain(holder)
          if (isNamed) {
            if (hasSides || engines.duplicates > 0) this.#giveUp(holder, low, high, block)
            return block
          }
          this.#giveUp(holder, low, high, block)
          return this.#addName(holder, low, high, block)
        }
        if (isNamed && !hasSides) return this.#again(holder, low, high, block, NONE, copies)
        const before = state.find(holder, low, high)
        if (before === block) return this.#again(holder, low, high, block, state.found.record, copies)
        if (before !== NONE) this.#giveUp(holder, low, high, block)
        // A further name: the one that was implied becomes a record too.
        if (!this.#imply(holder, block)) return NONE
        return names.add(holder, low, high, block, 0, 0, 0) === NONE ? NONE : block
      }
      state.setSet(block, 0, holder + 1)
    }
    state.gain(holder)
    state.blocksDistinct++
    // No other worker slot holds it: the block gets this name.
    const inserted = loops.insertName(block, low, high)
    if (inserted !== 0 || hasSides) {
      if (inserted < 0) chunks.mark(block)
      this.#giveUp(holder, low, high, block)
      if (inserted < 0) return this.#addName(holder, low, high, block)
    }
    return block
  }

  /** Records that a block, already in the holder's set, is held under this hash; without room it is left. */
  #addName(holder: number, low: number, high: number, block: number): number {
    if (this.#state.names.add(holder, low, high, block, 0, 0, 0) !== NONE) return block
    this.#state.leave(holder, block, NONE)
    return NONE
  }

  /** One more copy of a hash that is held at `block`, by record or implied. */
  #again(holder: number, low: number, high: number, block: number, record: number, copies: Copies): number {
    const { names, counters } = this.#state
    counters.duplicateStores++
    if (copies === 'set') return block
    if (record === NONE) record = names.add(holder, low, high, block, 0, 0, 0)
    if (record === NONE) return NONE
    names.setCopies(record, names.copies(record) + 1)
    return block
  }

  /** Writes the implied name of (holder, block) down, unless it has records. False: no room. */
  #imply(holder: number, block: number): boolean {
    const { names, engines } = this.#state
    if (names.inGroup(holder, block, 0) !== NONE) return true
    return names.add(holder, engines.low(block), engines.high(block), block, 0, 0, 0) !== NONE
  }

  /** Gives up every copy of a hash that the holder holds at another block than `except`. */
  #giveUp(holder: number, low: number, high: number, except: number): void {
    const state = this.#state
    const block = state.find(holder, low, high, except)
    if (block === NONE) return
    state.counters.movedHashes++
    this.#drop(holder, block, state.found.record, state.found.entry)
  }

  /** Drops one hash of a holder at a block, all copies. */
  #drop(holder: number, block: number, record: number, entry: number): void {
    const { names } = this.#state
    if (record !== NONE) {
      names.delete(record)
      if (names.inGroup(holder, block, 0) !== NONE) return
      entry = NONE
    }
    this.#state.leave(holder, block, entry)
  }

  #removeOne(holder: number, low: number, high: number, mode: Copies, left: LeftCopies | undefined): boolean {
    const state = this.#state
    const { names, orphans } = state
    const block = state.find(holder, low, high)
    if (block === NONE) {
      const orphan = orphans.find(holder, low, high)
      if (orphan === NONE) return false
      const copies = orphans.copies(orphan)
      if (copies > 1 && mode === 'count') {
        orphans.setCopies(orphan, copies - 1)
      } else {
        orphans.delete(orphan)
        if (copies > 1) left?.(low, high, copies - 1)
      }
      return true
    }
    const { record, entry } = state.found
    const copies = record === NONE ? 1 : names.copies(record)
    if (copies > 1 && mode === 'count') {
      names.setCopies(record, copies - 1)
      this.#forgetPlainRecord(holder, block, record)
    } else {
      this.#drop(holder, block, record, entry)
      if (copies > 1) left?.(low, high, copies - 1)
    }
    return true
  }

  /** Deletes a record that only repeats the default. */
  #forgetPlainRecord(holder: number, block: number, record: number): void {
    const { names, engines, chunks } = this.#state
    if (names.copies(record) > 1 || chunks.isMarked(block)) return
    if (!engines.isName(block, names.engineLow(record), names.engineHigh(record))) return
    const first = names.inGroup(holder, block, 0)
    if (first === record && names.inGroup(holder, block, 0, first) === NONE) names.delete(record)
  }

  /** Parks a block. The block id when its hash is held already; −1: parked; 0: no room. */
  #park(
    holder: number,
    aboveLow: number,
    aboveHigh: number,
    low: number,
    high: number,
    localLow: number,
    localHigh: number,
    copies: Copies,
  ): number {
    const state = this.#state
    const { words, orphans, counters } = state
    const block = state.find(holder, low, high)
    if (block !== NONE) {
      const { record, entry } = state.found
      const local = state.chunks.base(block >>> 4) + LOC + 2 * (block & 15)
      if (words[local] === localLow && words[local + 1] === localHigh) {
        const again = this.#again(holder, low, high, block, record, copies)
        return again === NONE ? block : again // the copy is not counted: it is held all the same
      }
      counters.movedHashes++
      this.#drop(holder, block, record, entry)
    }
    const orphan = orphans.find(holder, low, high)
    if (orphan !== NONE) {
      if (
        orphans.groupLow(orphan) === aboveLow &&
        orphans.groupHigh(orphan) === aboveHigh &&
        orphans.localLow(orphan) === localLow &&
        orphans.localHigh(orphan) === localHigh
      ) {
        counters.duplicateStores++
        if (copies === 'count') orphans.setCopies(orphan, orphans.copies(orphan) + 1)
        return UNKNOWN
      }
      orphans.delete(orphan)
      counters.movedHashes++
    }
    return orphans.add(holder, low, high, aboveLow, aboveHigh, localLow, localHigh) === NONE ? NONE : UNKNOWN
  }

  /** Stores the orphans whose parents have arrived. */
  #adopt(holder: number): void {
    const state = this.#state
    const { orphans, counters } = state
    const arrivals = this.#arrivals
    while (arrivals.length > 0) {
      const aboveHigh = arrivals.pop()!
      const aboveLow = arrivals.pop()!
      for (;;) {
        const orphan = orphans.inGroup(holder, aboveLow, aboveHigh)
        if (orphan === NONE) break
        const above = state.find(holder, aboveLow, aboveHigh)
        if (above === NONE) break // evicted by the adoption of others: they go on waiting
        const low = orphans.engineLow(orphan)
        const high = orphans.engineHigh(orphan)
        const localLow = orphans.localLow(orphan)
        const localHigh = orphans.localHigh(orphan)
        const copies = orphans.copies(orphan)
        orphans.delete(orphan)
        const block = this.#place(holder, above, low, high, localLow, localHigh, 'count')
        if (block === NONE) {
          counters.refusedBlocks++
          continue
        }
        counters.adoptedOrphans++
        for (let i = 1; i < copies; i++) {
          state.find(holder, low, high)
          if (this.#again(holder, low, high, block, state.found.record, 'count') === NONE) break
          counters.duplicateStores-- // it was counted when it was parked
        }
      }
    }
  }

  /**
   * Removes retired holders from a block that is about to be stored, if all holders of the block are retired.
   * The new holder then need not use the names of a restarted engine's earlier life. Returns the remaining
   * set.
   */
  #forgetRetired(block: number, set: number): number {
    const state = this.#state
    const { sets, holders } = state
    if (holders.ownerOf(sets.lowest(set)) >= 0) return set
    const members = sets.members(set)
    for (const member of members) if (holders.ownerOf(member) >= 0) return set
    for (const member of members) {
      state.deleteNames(member, block)
      state.lose(member)
    }
    state.setSet(block, set, 0)
    state.unname(block, NONE)
    return 0
  }
}

/** Hashes `from` … of `source` to `at` of the memory. */
function copyHashes(source: Int32Array, from: number, end: number, words: Int32Array, at: number): void {
  const count = 2 * (end - from)
  if (count <= LOOP_WORDS_MAX) {
    for (let k = 0; k < count; k++) words[at + k] = source[2 * from + k]!
  } else if (count === source.length) {
    words.set(source, at)
  } else {
    words.set(source.subarray(2 * from, 2 * end), at)
  }
}
