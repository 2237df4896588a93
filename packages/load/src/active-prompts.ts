/**
 * ActivePrompts: which prompt blocks are active on every worker slot, and how much of a prompt is.
 *
 *   runs    (parent run, hash of its first block) -> holders, first hold, blocks: a trie of active prompts
 *   holds   (run, slot) -> refs, parent hold, previous, next                         one per run and slot
 *
 * A run is a row of blocks that all prompts through it have in common. A run ends where prompts part or one
 * ends. So a long prompt is one run, or one run per other prompt that it shares a part with; its blocks cost
 * only the comparing and copying of their hashes.
 *
 * Invariants
 *   I1  refs of a hold = holds below it on the same slot + prompts that end at it; > 0.
 *   I2  holders of a run = its holds in the list that starts at its first hold; > 0.
 *   I3  A slot that holds a run holds the parent of the run: along a prompt the holders shrink.
 *   I4  active prompt blocks of a slot = blocks of the runs that it holds.
 *   I5  With no prompt held, every table is empty and every figure is exactly 0.
 *   I6  A slot holds all of a run or nothing of it, and every prompt ends at the end of a run.
 *
 * Owns   runs and holds, their sums, and scratch of one question. What a caller keeps of a prompt is the hold
 *        of its last run.
 *
 * Cost. hold, release and subtractHeld: one lookup for each run of the prompt, and a comparison of its
 * hashes; holding copies those that are new, or that part. Then subtractHeld takes at most
 * O(slots · log(runs)); see `#subtractDepths`.
 *
 * Source: Dynamo's slot manager (a prefix trie with references; the leading run decides what is new).
 */

import { KeyTable } from './key-table.ts'

/** Parent of a first block, and end of every list. */
const NONE = -1

const RUN_HOLDERS = 0
const RUN_FIRST = 1
const RUN_BLOCKS = 2
const RUN_VALUES = 3

const HOLD_REFS = 0
const HOLD_PARENT = 1
const HOLD_PREVIOUS = 2
const HOLD_NEXT = 3
const HOLD_VALUES = 4

export class ActivePrompts {
  readonly #runs = new KeyTable(RUN_VALUES)
  /** Sequence hashes of each run. */
  readonly #hashes: (Int32Array | undefined)[] = []
  readonly #holds = new KeyTable(HOLD_VALUES)
  /** Blocks of all runs. */
  #distinctBlocks = 0
  /** Blocks of all holds. */
  #heldBlocks = 0
  /** By slot. */
  readonly #promptBlocks: Int32Array

  /** Scratch of `subtractHeld`, by slot and by depth. */
  readonly #depthBySlot: Int32Array
  #path = new Int32Array(64)
  /** Blocks of the prompt up to the end of each run of #path. */
  #pathBlocks = new Int32Array(64)

  constructor(workerSlotsMax: number) {
    this.#promptBlocks = new Int32Array(workerSlotsMax)
    this.#depthBySlot = new Int32Array(workerSlotsMax)
  }

  /** Different blocks that are held, over all slots. */
  get distinctBlocks(): number {
    return this.#distinctBlocks
  }

  /** Pairs (block, slot). */
  get heldBlocks(): number {
    return this.#heldBlocks
  }

  /** Blocks that a slot holds. */
  blocksOf(workerSlot: number): number {
    return this.#promptBlocks[workerSlot]!
  }

  /** Holds every block of a prompt on a slot; returns the hold of the last run, −1 for no blocks. */
  hold(sequenceHashes: Int32Array, count: number, workerSlot: number): number {
    const runs = this.#runs
    const holds = this.#holds
    let run = NONE
    let hold = NONE
    for (let block = 0; block < count; ) {
      run = this.#runAt(run, sequenceHashes, block, count)
      const blocks = runs.words[runs.valueAt(run, RUN_BLOCKS)]!
      block += blocks
      const parentHold = hold
      hold = holds.find(run, workerSlot, 0)
      if (hold >= 0) continue
      hold = this.#insertHold(run, workerSlot, parentHold)
      if (parentHold >= 0) holds.words[holds.valueAt(parentHold, HOLD_REFS)]!++
      this.#promptBlocks[workerSlot]! += blocks
      this.#heldBlocks += blocks
    }
    if (hold >= 0) holds.words[holds.valueAt(hold, HOLD_REFS)]!++
    return hold
  }

  /** Takes one reference from a hold, and removes it and the holds above that lose their last one. */
  release(lastHold: number): void {
    const runs = this.#runs
    const holds = this.#holds
    for (let hold = lastHold; hold >= 0; ) {
      const words = holds.words
      const at = holds.valueAt(hold, 0)
      words[at + HOLD_REFS]!--
      if (words[at + HOLD_REFS]! > 0) return
      const run = words[hold * holds.stride]!
      const workerSlot = words[hold * holds.stride + 1]!
      const parent = words[at + HOLD_PARENT]!
      const previous = words[at + HOLD_PREVIOUS]!
      const next = words[at + HOLD_NEXT]!
      const blocks = runs.words[runs.valueAt(run, RUN_BLOCKS)]!
      if (next >= 0) words[holds.valueAt(next, HOLD_PREVIOUS)] = previous
      if (previous >= 0) words[holds.valueAt(previous, HOLD_NEXT)] = next
      else runs.words[runs.valueAt(run, RUN_FIRST)] = next
      runs.words[runs.valueAt(run, RUN_HOLDERS)]!--
      holds.remove(hold)
      this.#promptBlocks[workerSlot]! -= blocks
      this.#heldBlocks -= blocks
      if (runs.words[runs.valueAt(run, RUN_HOLDERS)] === 0) {
        runs.remove(run)
        this.#hashes[run] = undefined
        this.#distinctBlocks -= blocks
      }
      hold = parent
    }
  }

  /** Subtracts from newBlocks[i] how many leading blocks of the prompt `workerSlots[i]` holds. */
  subtractHeld(
    sequenceHashes: Int32Array,
    count: number,
    workerSlots: ArrayLike<number>,
    newBlocks: Int32Array,
  ): void {
    const pathLength = this.#findPath(sequenceHashes, count)
    if (pathLength > 0) this.#subtractDepths(pathLength, workerSlots, newBlocks)
  }

  /**
   * The run of the prompt that begins at `block`, below `parent`: one that is there, its beginning, or a new
   * one.
   */
  #runAt(parent: number, sequenceHashes: Int32Array, block: number, count: number): number {
    const runs = this.#runs
    const [low, high] = [sequenceHashes[2 * block]!, sequenceHashes[2 * block + 1]!]
    const known = runs.find(parent, low, high)
    if (known >= 0) {
      const equalBlocks = this.#equalBlocks(known, sequenceHashes, block, count)
      const isWhole = equalBlocks === runs.words[runs.valueAt(known, RUN_BLOCKS)]
      return isWhole ? known : this.#split(known, equalBlocks)
    }
    const run = runs.insert(parent, low, high)
    runs.words[runs.valueAt(run, RUN_FIRST)] = NONE
    runs.words[runs.valueAt(run, RUN_BLOCKS)] = count - block
    this.#hashes[run] = sequenceHashes.slice(2 * block, 2 * count)
    this.#distinctBlocks += count - block
    return run
  }

  /** Leading blocks of a run that the prompt has from `block` on. */
  #equalBlocks(run: number, sequenceHashes: Int32Array, block: number, count: number): number {
    const hashes = this.#hashes[run]!
    const start = 2 * block
    const end = Math.min(hashes.length, 2 * count - start)
    for (let word = 0; word < end; word++) {
      if (hashes[word] !== sequenceHashes[start + word]) return word >> 1
    }
    return end >> 1
  }

  /**
   * Parts a run behind `blocks`; returns the upper part. The lower one keeps its number, so that runs and
   * holds below keep their parents.
   */
  #split(lower: number, blocks: number): number {
    const runs = this.#runs
    const holds = this.#holds
    const hashes = this.#hashes[lower]!
    const at = lower * runs.stride
    const upper = runs.insert(runs.words[at]!, runs.words[at + 1]!, runs.words[at + 2]!)
    runs.rekey(lower, upper, hashes[2 * blocks]!, hashes[2 * blocks + 1]!)
    runs.words[runs.valueAt(upper, RUN_FIRST)] = NONE
    runs.words[runs.valueAt(upper, RUN_BLOCKS)] = blocks
    runs.words[runs.valueAt(lower, RUN_BLOCKS)]! -= blocks
    this.#hashes[upper] = hashes.slice(0, 2 * blocks)
    this.#hashes[lower] = hashes.slice(2 * blocks)
    for (let hold = runs.words[runs.valueAt(lower, RUN_FIRST)]!; hold >= 0; ) {
      const parentHold = holds.words[holds.valueAt(hold, HOLD_PARENT)]!
      const above = this.#insertHold(upper, holds.words[hold * holds.stride + 1]!, parentHold)
      holds.words[holds.valueAt(above, HOLD_REFS)] = 1
      holds.words[holds.valueAt(hold, HOLD_PARENT)] = above
      hold = holds.words[holds.valueAt(hold, HOLD_NEXT)]!
    }
    return upper
  }

  /** A hold without references, in the list of its run. */
  #insertHold(run: number, workerSlot: number, parentHold: number): number {
    const runs = this.#runs
    const holds = this.#holds
    const hold = holds.insert(run, workerSlot, 0)
    const first = runs.words[runs.valueAt(run, RUN_FIRST)]!
    holds.words[holds.valueAt(hold, HOLD_PARENT)] = parentHold
    holds.words[holds.valueAt(hold, HOLD_PREVIOUS)] = NONE
    holds.words[holds.valueAt(hold, HOLD_NEXT)] = first
    if (first >= 0) holds.words[holds.valueAt(first, HOLD_PREVIOUS)] = hold
    runs.words[runs.valueAt(run, RUN_FIRST)] = hold
    runs.words[runs.valueAt(run, RUN_HOLDERS)]!++
    return hold
  }

  /**
   * Fills #path and #pathBlocks with the runs of the leading blocks that are active anywhere; returns how
   * many runs.
   */
  #findPath(sequenceHashes: Int32Array, count: number): number {
    const runs = this.#runs
    let length = 0
    let run = NONE
    for (let block = 0; block < count; ) {
      run = runs.find(run, sequenceHashes[2 * block]!, sequenceHashes[2 * block + 1]!)
      if (run < 0) break
      const equalBlocks = this.#equalBlocks(run, sequenceHashes, block, count)
      block += equalBlocks
      if (length === this.#path.length) {
        this.#path = grown(this.#path)
        this.#pathBlocks = grown(this.#pathBlocks)
      }
      this.#path[length] = run
      this.#pathBlocks[length++] = block
      if (equalBlocks < runs.words[runs.valueAt(run, RUN_BLOCKS)]!) break
    }
    return length
  }

  /**
   * Subtracts from newBlocks[i] how many leading blocks of the path slot i holds. Two ways, by cost: walking
   * the holders of each run where their number changes (I3: equal numbers are equal holders), or bisecting
   * the path for each slot. The first is one list when all share the whole path, the second bounds the rest.
   */
  #subtractDepths(pathLength: number, workerSlots: ArrayLike<number>, newBlocks: Int32Array): void {
    const runs = this.#runs
    const slotCount = workerSlots.length
    const bisectSteps = slotCount * (Math.ceil(Math.log2(pathLength + 1)) + 1)
    let walkSteps = 0
    let holdersBelow = -1
    for (let i = pathLength - 1; i >= 0 && walkSteps <= bisectSteps; i--) {
      const holders = runs.words[runs.valueAt(this.#path[i]!, RUN_HOLDERS)]!
      if (holders !== holdersBelow) walkSteps += holders
      holdersBelow = holders
    }
    if (walkSteps <= bisectSteps) this.#walkHolders(pathLength, workerSlots, newBlocks)
    else for (let i = 0; i < slotCount; i++) newBlocks[i]! -= this.#bisect(pathLength, workerSlots[i]!)
  }

  #walkHolders(pathLength: number, workerSlots: ArrayLike<number>, newBlocks: Int32Array): void {
    const runs = this.#runs
    const { words, stride } = this.#holds
    const depthBySlot = this.#depthBySlot
    let holdersBelow = -1
    for (let i = pathLength - 1; i >= 0; i--) {
      const run = runs.valueAt(this.#path[i]!, 0)
      const holders = runs.words[run + RUN_HOLDERS]!
      if (holders === holdersBelow) continue
      holdersBelow = holders
      for (let hold = runs.words[run + RUN_FIRST]!; hold >= 0; ) {
        const slot = words[hold * stride + 1]!
        if (depthBySlot[slot] === 0) depthBySlot[slot] = this.#pathBlocks[i]!
        hold = words[this.#holds.valueAt(hold, HOLD_NEXT)]!
      }
    }
    for (let i = 0; i < workerSlots.length; i++) {
      newBlocks[i]! -= depthBySlot[workerSlots[i]!]!
    }
    // Slots that were not asked for were written too.
    depthBySlot.fill(0)
  }

  #bisect(pathLength: number, workerSlot: number): number {
    let held = 0
    let notHeld = pathLength + 1
    while (notHeld - held > 1) {
      const middle = (held + notHeld) >> 1
      if (this.#holds.find(this.#path[middle - 1]!, workerSlot, 0) >= 0) held = middle
      else notHeld = middle
    }
    return held === 0 ? 0 : this.#pathBlocks[held - 1]!
  }
}

function grown(array: Int32Array): Int32Array<ArrayBuffer> {
  const longer = new Int32Array(array.length * 2)
  longer.set(array)
  return longer
}
