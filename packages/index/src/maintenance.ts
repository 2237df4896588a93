/**
 * Maintenance, in steps of a bounded size: sweep cleared blocks; merge chunks that are mostly empty; when
 * much less memory is in use than before, move all chunks to the beginning of the memory and continue in new
 * memory, of which only that part is touched. The old memory is marked as left (H_LEFT): a reader that still
 * has it reads the state at the move.
 */

import type { Capacity } from './capacity.ts'
import { Holders } from './holders.ts'
import { type IndexState, NONE } from './index-state.ts'
import { CHUNK_BYTES } from './layout.ts'
import { type Shard, shardOver } from './shard.ts'
import { createShared } from './shard-memory.ts'
import type { Sweep } from './sweep.ts'
import type { IndexMemory, WordAccess } from './types.ts'
import { CHUNK_SLOTS, H_DOOR_NUMBER, H_HELD_BASE, H_LEFT, S_LEFT_SINCE_MERGE, SET, USED } from './words.ts'

/** What a step costs, in chunks that are only looked at. */
const MOVE_COST = 8
const SEGMENT_COST = 64
/** Merging pays when chunks are emptier than this on average. */
const SLOTS_PER_CHUNK_MIN = CHUNK_SLOTS / 2
const MERGE_CHUNKS_MIN = 4
/** A pass is made again when so much of the slots in use has been left: 1 of 16. */
const MERGE_LEFT_SHARE = 16
/** Memory is given back when less than a quarter of it is in use, and at least so much is at stake. */
const SWAP_SHARE = 4
const SWAP_BYTES_MIN = 1 << 20

interface MaintenanceOptions {
  readonly access: WordAccess
  readonly swapBytesMin: number | undefined
  readonly onMemory: ((memory: IndexMemory) => void) | undefined
}

export class Maintenance {
  readonly #state: IndexState
  readonly #sweep: Sweep
  readonly #capacity: Capacity
  readonly #options: MaintenanceOptions
  readonly #swapBytesMin: number
  #mergeAt = 0
  #segmentAt = 0
  #isSwapRefused = false

  constructor(state: IndexState, sweep: Sweep, capacity: Capacity, options: MaintenanceOptions) {
    this.#state = state
    this.#sweep = sweep
    this.#capacity = capacity
    this.#options = options
    this.#swapBytesMin = options.swapBytesMin ?? SWAP_BYTES_MIN
  }

  /** One step of the work that is due; returns its cost, 0 when no work is due. */
  step(budget: number): number {
    const { chunks, holders, names, orphans, memberships, retiredOrphans } = this.#state
    if (holders.retiredCount > 0) {
      const hasOrphans = orphans.count > retiredOrphans
      const isWorthIt = chunks.touched * CHUNK_BYTES >= this.#swapBytesMin && !this.#isSwapRefused
      if (memberships === 0 && !hasOrphans && isWorthIt) return this.#beginAfresh(budget)
      return this.#sweep.step(budget)
    }
    const bytesAtStake = (chunks.touched - chunks.count) * CHUNK_BYTES
    const isGivingBack =
      !this.#isSwapRefused &&
      bytesAtStake >= this.#swapBytesMin &&
      chunks.count * SWAP_SHARE <= chunks.touched
    // A dump that is open goes by where blocks are.
    const mayMove = this.#state.openDump === undefined
    if (mayMove && this.#isMergeDue()) return this.#mergeStep(budget)
    if (mayMove && isGivingBack) return this.#giveBackStep(budget)
    names.shrink()
    orphans.shrink()
    return 0
  }

  #isMergeDue(): boolean {
    if (this.#mergeAt > 0) return true
    const { chunks, words } = this.#state
    return (
      chunks.count >= MERGE_CHUNKS_MIN &&
      chunks.slotsUsed < chunks.count * SLOTS_PER_CHUNK_MIN &&
      words[S_LEFT_SINCE_MERGE]! * MERGE_LEFT_SHARE >= chunks.slotsUsed
    )
  }

  /** A pass over all chunks: each takes in the only one below its end, as often as that fits. */
  #mergeStep(budget: number): number {
    const { chunks, words } = this.#state
    let cost = 0
    while (cost < budget && ++this.#mergeAt <= chunks.top) {
      cost++
      while (chunks.tryMerge(this.#mergeAt, this.#relocated)) cost += MOVE_COST
    }
    if (this.#mergeAt > chunks.top) {
      this.#mergeAt = 0
      words[S_LEFT_SINCE_MERGE] = 0
    }
    return cost + 1
  }

  /** Makes everything dense, then leaves for new memory. */
  #giveBackStep(budget: number): number {
    const { chunks, engines, loops } = this.#state
    let cost = 0
    while (chunks.top > chunks.count && cost < budget) {
      chunks.moveTop(this.#relocated)
      cost += MOVE_COST
    }
    if (cost > 0) return cost
    if (this.#segmentAt < engines.segmentCount) {
      loops.shrinkSegment(this.#segmentAt++)
      return SEGMENT_COST
    }
    if (loops.joinBuckets(budget) !== 0) return budget
    this.#segmentAt = 0
    this.#swap()
    return budget
  }

  /** A block goes by another id: so do its name and the records that are about it. */
  readonly #relocated = (from: number, to: number): void => {
    const { chunks, sets, names, loops } = this.#state
    const set = chunks.setOf(to)
    if (set === 0) return
    if (chunks.isMarked(from)) chunks.mark(to)
    else loops.relocateName(from, to)
    if (names.count === 0) return
    for (const member of sets.members(set)) {
      for (
        let record = names.inGroup(member, from, 0);
        record !== NONE;
        record = names.inGroup(member, from, 0)
      ) {
        names.regroup(record, to, 0)
      }
    }
  }

  /** Everything was cleared: continue in new, untouched memory. */
  #beginAfresh(budget: number): number {
    const memory = this.#newMemory()
    if (memory === undefined) return 1
    const state = this.#state
    state.names = state.newNames()
    state.orphans = state.newOrphans()
    state.holders = new Holders(state.layout, new Int32Array(memory.buffer))
    state.retiredOrphans = 0
    state.blocksDistinct = 0
    state.openDump?.cleared()
    this.#mergeAt = 0
    this.#segmentAt = 0
    this.#moveTo(shardOver(state.layout, memory))
    return budget
  }

  /** Goes on in new memory. Without room for it, in the old one: then it is not tried again. */
  #swap(): void {
    const memory = this.#newMemory()
    if (memory === undefined) return
    const state = this.#state
    const { layout, chunks, words: before } = state
    const target = shardOver(layout, memory)
    const { words } = target
    state.holders.renew(words)
    const heldBase = before[H_HELD_BASE]!
    words.set(before.subarray(heldBase, heldBase + layout.holdersMax), heldBase)
    words[S_LEFT_SINCE_MERGE] = before[S_LEFT_SINCE_MERGE]!
    const ids = state.sets.copyTo(target.sets)
    chunks.copyTo(words)
    for (let chunk = 1; chunk <= chunks.top; chunk++) {
      const base = chunks.base(chunk)
      for (let slot = words[base + USED]! - 1; slot >= 0; slot--) {
        const set = words[base + SET + slot]!
        if (set > layout.holdersMax) words[base + SET + slot] = ids[set - layout.holdersMax - 1]!
      }
    }
    state.engines.copyTo(words, (chunks.top + 1) * CHUNK_SLOTS)
    state.names.shrink()
    state.orphans.shrink()
    this.#moveTo(target)
  }

  /** Undefined: there is none; it is not tried again. */
  #newMemory(): IndexMemory | undefined {
    try {
      const memory = createShared(this.#state.layout, this.#options.access)
      new Int32Array(memory.buffer)[H_DOOR_NUMBER] = this.#state.words[H_DOOR_NUMBER]!
      return memory
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
      this.#isSwapRefused = true
      return undefined
    }
  }

  /** The new memory is complete; readers of the old one can see that it was left. */
  #moveTo(target: Shard): void {
    const state = this.#state
    const before = state.words
    state.moveTo(target)
    this.#capacity.restart()
    state.counters.memorySwaps++
    Atomics.store(before, H_LEFT, 1)
    this.#options.onMemory?.(target.memory)
  }
}
