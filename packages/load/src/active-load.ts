/**
 * ActiveLoad: active blocks, prefill tokens and requests of every worker slot, from booking to free.
 *
 *   runs    (parent run, hash of its first block) -> holders, first hold, blocks: a trie of active prompts
 *   holds   (run, slot) -> refs, parent hold, previous, next                         one per run and slot
 *   a request points at the hold of its last run
 *
 * A run is a row of blocks that all prompts through it have in common. A run ends where prompts part or one
 * ends. So a long prompt is one run, or one run per other prompt that it shares a part with; its blocks cost
 * only the comparing and copying of their hashes.
 *
 * Invariants
 *   I1  refs of a hold = holds below it on the same slot + requests that end at it; > 0.
 *   I2  holders of a run = its holds in the list that starts at its first hold; > 0.
 *   I3  A slot that holds a run holds the parent of the run: along a prompt the holders shrink.
 *   I4  active prompt blocks of a slot = blocks of the runs that it holds.
 *   I5  With no request booked, every table is empty and every figure is exactly 0.
 *   I6  A slot holds all of a run or nothing of it, and every request ends at the end of a run.
 *
 * What counts. A block shared by several requests of one slot counts once and is released with its last
 * holder. Only full, hashed blocks of the prompt and output blocks are active blocks: a partial last block
 * has no hash, so it is not counted here, while the cost of the prompt rounds up through its tokens. Output
 * blocks are private to their request and kept in whole 1/1024, so that the sum returns to 0. They may fade;
 * blocks of a prompt count whole until its request has ended.
 *
 * Cost. book, free and project: one lookup for each run of the prompt, and a comparison of its hashes;
 * booking copies those that are new, or that part. Then project takes at most O(slots · log(runs)); see
 * `#subtractDepths`.
 *
 * Source: Dynamo's slot manager (a prefix trie with references; the leading run decides what is new).
 */

import { KeyTable } from './key-table.ts'
import { newLoadProjection } from './load-projection.ts'
import type {
  ActiveLoadMethods,
  ActiveLoadOptions,
  BookedLoad,
  BookOutcome,
  LoadProjection,
  LoadStats,
  LoadTotals,
} from './types.ts'

const ACTIVE_REQUESTS_MAX_DEFAULT = 65_536
const ACTIVE_BLOCKS_MAX_DEFAULT = 4_194_304

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

/** Weight of one whole output block. */
const OUTPUT_UNITS = 1024

interface ActiveRequest {
  readonly id: string
  readonly workerSlot: number
  readonly lastHold: number
  readonly promptTokens: number
  prefillTokens: number
  /** What its output adds. */
  outputUnits: number
  lastSeenMs: number
  /** Neighbours by sign of life, the longest silent first. */
  older: ActiveRequest | undefined
  newer: ActiveRequest | undefined
}

export class ActiveLoad implements ActiveLoadMethods {
  readonly workerSlotsMax: number
  readonly #requestsMax: number
  readonly #activeBlocksMax: number

  readonly #runs = new KeyTable(RUN_VALUES)
  /** Sequence hashes of each run. */
  readonly #hashes: (Int32Array | undefined)[] = []
  readonly #holds = new KeyTable(HOLD_VALUES)
  readonly #requests = new Map<string, ActiveRequest>()
  /** Requests of each slot; undefined until the slot is first used. */
  readonly #bySlot: (Set<ActiveRequest> | undefined)[] = []
  #oldest: ActiveRequest | undefined
  #newest: ActiveRequest | undefined
  #latestMs = 0
  /** Blocks of all runs. */
  #distinctBlocks = 0
  /** Blocks of all holds. */
  #heldBlocks = 0

  readonly #promptBlocks: Int32Array
  readonly #foreignBlocks: Int32Array
  /** The part of #foreignBlocks that is known to be of answers. */
  readonly #foreignOutputBlocks: Int32Array
  readonly #outputUnits: Float64Array
  readonly #prefillTokens: Float64Array
  readonly #promptTokens: Float64Array
  readonly #activeRequests: Int32Array

  /** Scratch of `project`, by slot and by depth. */
  readonly #depthBySlot: Int32Array
  #path = new Int32Array(64)
  /** Blocks of the prompt up to the end of each run of #path. */
  #pathBlocks = new Int32Array(64)
  #projection = newLoadProjection(64)

  #bookedTotal = 0
  #duplicatesTotal = 0
  #refusedTotal = 0
  #freedTotal = 0
  #expiredTotal = 0

  /** Throws RangeError for bounds that are not whole numbers ≥ 1. */
  constructor(options: ActiveLoadOptions) {
    this.workerSlotsMax = wholeBound('workerSlotsMax', options.workerSlotsMax)
    this.#requestsMax = wholeBound('requestsMax', options.requestsMax ?? ACTIVE_REQUESTS_MAX_DEFAULT)
    this.#activeBlocksMax = wholeBound(
      'activeBlocksMax',
      options.activeBlocksMax ?? ACTIVE_BLOCKS_MAX_DEFAULT,
    )
    this.#promptBlocks = new Int32Array(this.workerSlotsMax)
    this.#foreignBlocks = new Int32Array(this.workerSlotsMax)
    this.#foreignOutputBlocks = new Int32Array(this.workerSlotsMax)
    this.#outputUnits = new Float64Array(this.workerSlotsMax)
    this.#prefillTokens = new Float64Array(this.workerSlotsMax)
    this.#promptTokens = new Float64Array(this.workerSlotsMax)
    this.#activeRequests = new Int32Array(this.workerSlotsMax)
    this.#depthBySlot = new Int32Array(this.workerSlotsMax)
  }

  /** Books a request. RangeError for a slot or figures that no caller should have. */
  book(bookingId: string, workerSlot: number, booking: BookedLoad): BookOutcome {
    this.#checkSlot(workerSlot)
    const { sequenceHashes, count } = booking
    checkHashes(sequenceHashes, count)
    const prefillTokens = wholeTokens('prefillTokens', booking.prefillTokens)
    const promptTokens = wholeTokens('promptTokens', booking.promptTokens)
    if (this.#requests.has(bookingId)) {
      this.#duplicatesTotal++
      return 'duplicate'
    }
    if (this.#requests.size >= this.#requestsMax || this.#heldBlocks + count > this.#activeBlocksMax) {
      this.#refusedTotal++
      return 'full'
    }

    const request: ActiveRequest = {
      id: bookingId,
      workerSlot,
      lastHold: this.#holdPrompt(sequenceHashes, count, workerSlot),
      promptTokens,
      prefillTokens,
      outputUnits: 0,
      lastSeenMs: this.#latest(booking.nowMs),
      older: undefined,
      newer: undefined,
    }
    this.#requests.set(bookingId, request)
    this.#append(request)
    let requestsOfSlot = this.#bySlot[workerSlot]
    if (requestsOfSlot === undefined) {
      requestsOfSlot = new Set()
      this.#bySlot[workerSlot] = requestsOfSlot
    }
    requestsOfSlot.add(request)
    this.#activeRequests[workerSlot]!++
    this.#promptTokens[workerSlot]! += promptTokens
    this.#prefillTokens[workerSlot]! += prefillTokens
    this.#bookedTotal++
    return 'booked'
  }

  /**
   * The prompt is computed. False: the id is unknown, or this was said before (or there was nothing to
   * compute).
   */
  prefillComplete(bookingId: string, nowMs?: number): boolean {
    const request = this.#requests.get(bookingId)
    if (request === undefined) return false
    if (nowMs !== undefined) this.#seen(request, nowMs)
    if (request.prefillTokens === 0) return false
    this.#prefillTokens[request.workerSlot]! -= request.prefillTokens
    request.prefillTokens = 0
    return true
  }

  /** A sign of life. False: the id is unknown. */
  touch(bookingId: string, nowMs: number): boolean {
    const request = this.#requests.get(bookingId)
    if (request === undefined) return false
    this.#seen(request, nowMs)
    return true
  }

  /**
   * Sets how many output blocks the request has and what each weighs: `fraction` 0 … 1, 1 by default, less as
   * a request of known length nears its end. False: the id is unknown. RangeError for figures out of range.
   */
  setOutputBlocks(bookingId: string, count: number, fraction = 1): boolean {
    checkBlocks('output blocks', count)
    if (!(fraction >= 0 && fraction <= 1)) {
      throw new RangeError(`cannot weigh output blocks by ${fraction}: use a fraction from 0 to 1`)
    }
    const request = this.#requests.get(bookingId)
    if (request === undefined) return false
    const units = Math.round(count * fraction * OUTPUT_UNITS)
    this.#outputUnits[request.workerSlot]! += units - request.outputUnits
    request.outputUnits = units
    return true
  }

  /**
   * Sets how many blocks others than those who book here have active on a slot, and how many of them are
   * known to be of answers. RangeError unless they are whole numbers ≥ 0.
   */
  setForeignBlocks(workerSlot: number, blocks: number, outputBlocks = 0): void {
    this.#checkSlot(workerSlot)
    checkBlocks('foreign blocks', blocks)
    checkBlocks('foreign output blocks', outputBlocks)
    this.#foreignBlocks[workerSlot] = blocks
    this.#foreignOutputBlocks[workerSlot] = Math.min(blocks, outputBlocks)
  }

  /** Active blocks of a slot without those of others. */
  ownBlocks(workerSlot: number): number {
    this.#checkSlot(workerSlot)
    return this.#ownBlocks(workerSlot)
  }

  /** Ends a request, prefill included. False: the id is unknown or was freed before. */
  free(bookingId: string): boolean {
    const request = this.#requests.get(bookingId)
    if (request === undefined) return false
    this.#release(request)
    this.#freedTotal++
    return true
  }

  /** Frees every request of a slot; their ids in order of booking. */
  freeWorker(workerSlot: number): string[] {
    this.#checkSlot(workerSlot)
    const ids: string[] = []
    for (const request of this.#bySlot[workerSlot] ?? []) {
      ids.push(request.id)
      this.#release(request)
      this.#freedTotal++
    }
    return ids
  }

  /** Frees requests whose last sign of life is `idleMs` ago or more; O(freed). */
  expire(nowMs: number, idleMs: number): string[] {
    const ids: string[] = []
    for (let request = this.#oldest; request !== undefined; request = this.#oldest) {
      if (nowMs - request.lastSeenMs < idleMs) break
      ids.push(request.id)
      this.#release(request)
      this.#expiredTotal++
    }
    return ids
  }

  /**
   * The load of each of `workerSlots` (no slot twice), and how many blocks of the prompt would be new
   * there. Changes nothing. The answer is overwritten by the next call.
   */
  project(sequenceHashes: Int32Array, count: number, workerSlots: ArrayLike<number>): LoadProjection {
    checkHashes(sequenceHashes, count)
    const slotCount = workerSlots.length
    if (slotCount > this.#projection.activeBlocks.length) this.#projection = newLoadProjection(slotCount * 2)
    const projection = this.#projection
    projection.count = slotCount
    for (let i = 0; i < slotCount; i++) {
      const slot = workerSlots[i]!
      this.#checkSlot(slot)
      projection.activeBlocks[i] = this.#activeBlocks(slot)
      projection.outputBlocks[i] = this.#outputBlocks(slot) + this.#foreignOutputBlocks[slot]!
      projection.newBlocks[i] = count
      projection.activePrefillTokens[i] = this.#prefillTokens[slot]!
      projection.activeRequests[i] = this.#activeRequests[slot]!
    }
    const pathLength = this.#findPath(sequenceHashes, count)
    if (pathLength > 0) this.#subtractDepths(pathLength, workerSlots, projection.newBlocks)
    return projection
  }

  totals(workerSlot: number): LoadTotals {
    this.#checkSlot(workerSlot)
    return {
      activeBlocks: this.#activeBlocks(workerSlot),
      activePrefillTokens: this.#prefillTokens[workerSlot]!,
      activeRequests: this.#activeRequests[workerSlot]!,
      activePromptTokens: this.#promptTokens[workerSlot]!,
    }
  }

  get stats(): LoadStats {
    return {
      requests: this.#requests.size,
      activeBlocks: this.#heldBlocks,
      distinctBlocks: this.#distinctBlocks,
      bookedTotal: this.#bookedTotal,
      duplicatesTotal: this.#duplicatesTotal,
      refusedTotal: this.#refusedTotal,
      freedTotal: this.#freedTotal,
      expiredTotal: this.#expiredTotal,
    }
  }

  /** Holds every block of a prompt on a slot; returns the hold of the last run, NONE for no blocks. */
  #holdPrompt(sequenceHashes: Int32Array, count: number, workerSlot: number): number {
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

  /** Takes one reference from a hold, and removes it and the holds above that lose their last one. */
  #releaseHolds(lastHold: number): void {
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

  #release(request: ActiveRequest): void {
    const slot = request.workerSlot
    this.#releaseHolds(request.lastHold)
    this.#prefillTokens[slot]! -= request.prefillTokens
    this.#promptTokens[slot]! -= request.promptTokens
    this.#outputUnits[slot]! -= request.outputUnits
    this.#activeRequests[slot]!--
    this.#bySlot[slot]!.delete(request)
    this.#requests.delete(request.id)
    this.#unlink(request)
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

  #ownBlocks(workerSlot: number): number {
    return this.#promptBlocks[workerSlot]! + this.#outputBlocks(workerSlot)
  }

  #outputBlocks(workerSlot: number): number {
    return Math.round(this.#outputUnits[workerSlot]! / OUTPUT_UNITS)
  }

  #activeBlocks(workerSlot: number): number {
    return this.#ownBlocks(workerSlot) + this.#foreignBlocks[workerSlot]!
  }

  #checkSlot(workerSlot: number): void {
    if (Number.isInteger(workerSlot) && workerSlot >= 0 && workerSlot < this.workerSlotsMax) return
    throw new RangeError(`cannot use worker slot ${workerSlot}: use 0 to ${this.workerSlotsMax - 1}`)
  }

  #seen(request: ActiveRequest, nowMs: number): void {
    request.lastSeenMs = this.#latest(nowMs)
    if (request === this.#newest) return
    this.#unlink(request)
    this.#append(request)
  }

  /** Time as this class sees it never goes back, so that the list by sign of life is in order of time. */
  #latest(nowMs: number | undefined): number {
    if (nowMs !== undefined && nowMs > this.#latestMs) this.#latestMs = nowMs
    return this.#latestMs
  }

  #append(request: ActiveRequest): void {
    request.older = this.#newest
    if (this.#newest === undefined) this.#oldest = request
    else this.#newest.newer = request
    this.#newest = request
  }

  #unlink(request: ActiveRequest): void {
    const { older, newer } = request
    if (older === undefined) this.#oldest = newer
    else older.newer = newer
    if (newer === undefined) this.#newest = older
    else newer.older = older
    request.older = undefined
    request.newer = undefined
  }
}

function grown(array: Int32Array): Int32Array<ArrayBuffer> {
  const longer = new Int32Array(array.length * 2)
  longer.set(array)
  return longer
}

function checkHashes(sequenceHashes: Int32Array, count: number): void {
  if (Number.isInteger(count) && count >= 0 && count * 2 <= sequenceHashes.length) return
  throw new RangeError(`cannot read ${count} sequence hashes from ${sequenceHashes.length} words`)
}

function checkBlocks(name: string, blocks: number): void {
  if (Number.isInteger(blocks) && blocks >= 0) return
  throw new RangeError(`cannot set ${name} to ${blocks}: use a whole number ≥ 0`)
}

function wholeBound(name: string, value: number): number {
  if (Number.isInteger(value) && value >= 1) return value
  throw new RangeError(`cannot use ${value} as ${name}: use a whole number ≥ 1`)
}

/** Whole tokens, so that the sums return to exactly 0; below 0 counts as 0. */
function wholeTokens(name: string, value: number): number {
  if (Number.isFinite(value)) return Math.max(0, Math.round(value))
  throw new RangeError(`cannot book ${name} ${value}: use a finite number`)
}
