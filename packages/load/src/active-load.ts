/**
 * ActiveLoad: active blocks, prefill tokens and requests of every worker slot, from booking to free.
 *
 * Owns   the booked requests in order of their signs of life, sums by slot, and what others have active
 *        there. Which prompt blocks are active stands in ActivePrompts: a request points at the hold of its
 *        last run.
 *
 * Invariant   With no request booked, every table is empty and every figure is exactly 0.
 *
 * What counts. A block shared by several requests of one slot counts once and is released with its last
 * holder. Only full, hashed blocks of the prompt and output blocks are active blocks: a partial last block
 * has no hash, so it is not counted here, while the cost of the prompt rounds up through its tokens. Output
 * blocks are private to their request and kept in whole 1/1024, so that the sum returns to 0. They may fade;
 * blocks of a prompt count whole until its request has ended.
 *
 * Cost. book, free and project: that of ActivePrompts.
 */

import { ActivePrompts } from './active-prompts.ts'
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

  readonly #prompts: ActivePrompts
  readonly #requests = new Map<string, ActiveRequest>()
  /** Requests of each slot; undefined until the slot is first used. */
  readonly #bySlot: (Set<ActiveRequest> | undefined)[] = []
  #oldest: ActiveRequest | undefined
  #newest: ActiveRequest | undefined
  #latestMs = 0

  readonly #foreignBlocks: Int32Array
  /** The part of #foreignBlocks that is known to be of answers. */
  readonly #foreignOutputBlocks: Int32Array
  readonly #outputUnits: Float64Array
  readonly #prefillTokens: Float64Array
  readonly #promptTokens: Float64Array
  readonly #activeRequests: Int32Array

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
    this.#prompts = new ActivePrompts(this.workerSlotsMax)
    this.#foreignBlocks = new Int32Array(this.workerSlotsMax)
    this.#foreignOutputBlocks = new Int32Array(this.workerSlotsMax)
    this.#outputUnits = new Float64Array(this.workerSlotsMax)
    this.#prefillTokens = new Float64Array(this.workerSlotsMax)
    this.#promptTokens = new Float64Array(this.workerSlotsMax)
    this.#activeRequests = new Int32Array(this.workerSlotsMax)
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
    if (
      this.#requests.size >= this.#requestsMax ||
      this.#prompts.heldBlocks + count > this.#activeBlocksMax
    ) {
      this.#refusedTotal++
      return 'full'
    }

    const request: ActiveRequest = {
      id: bookingId,
      workerSlot,
      lastHold: this.#prompts.hold(sequenceHashes, count, workerSlot),
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
    this.#prompts.subtractHeld(sequenceHashes, count, workerSlots, projection.newBlocks)
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
      activeBlocks: this.#prompts.heldBlocks,
      distinctBlocks: this.#prompts.distinctBlocks,
      bookedTotal: this.#bookedTotal,
      duplicatesTotal: this.#duplicatesTotal,
      refusedTotal: this.#refusedTotal,
      freedTotal: this.#freedTotal,
      expiredTotal: this.#expiredTotal,
    }
  }

  #release(request: ActiveRequest): void {
    const slot = request.workerSlot
    this.#prompts.release(request.lastHold)
    this.#prefillTokens[slot]! -= request.prefillTokens
    this.#promptTokens[slot]! -= request.promptTokens
    this.#outputUnits[slot]! -= request.outputUnits
    this.#activeRequests[slot]!--
    this.#bySlot[slot]!.delete(request)
    this.#requests.delete(request.id)
    this.#unlink(request)
  }

  #ownBlocks(workerSlot: number): number {
    return this.#prompts.blocksOf(workerSlot) + this.#outputBlocks(workerSlot)
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
