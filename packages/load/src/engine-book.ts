/**
 * Engine book: estimates the work that each worker still has to do, in milliseconds. It knows what was sent
 * to the worker, and when first tokens, later tokens and ends came back.
 *
 *   sent ──► queued (its prompt is to be computed) ──firstToken──► decoding ──ended──► gone
 *
 * Owns   the queue of each worker slot in order of sending, and its decoding requests. What they teach, its
 *        EngineLessons put into its LearnedValues.
 *        The reported backlog is the prefill queued at the slot, plus a weighted overdue time of its head.
 *
 * Invariants
 *   I1  The sums of a slot are those over its requests; a slot without requests has sums of exactly 0.
 *   I2  Every figure of a projection is finite and ≥ 0.
 *
 * Pure: no clock of its own. A time before the latest one that was passed in counts as the latest.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { EngineLessons } from './engine-lessons.ts'
import {
  type EngineProjection,
  FIGURE_OFFSET,
  FIGURES_PER_SLOT,
  newProjection,
  speedSpreadOf,
} from './engine-projection.ts'
import {
  type BookedRequest,
  backlogOf,
  fadedTokens,
  integrate,
  lateBacklogOf,
  newPeriod,
  newSlot,
  rateShare,
  type Slot,
  tokens,
} from './engine-slot.ts'
import { LearnedValues } from './learned-values.ts'
import type { LearnedSpeed, SaidUsage, SentRequest } from './reports.ts'
import { overdueOf } from './unseen-load.ts'

/** Token budget of a step if the engine does not report it. */
export const { STEP_TOKENS_DEFAULT } = AUTO_CONSTANTS.book

const {
  PERIODS_FEW,
  MEAN_REQUESTS,
  BUSY_SHARE_MAX,
  RATE_REACH_MS,
  UNLEARNED_TIMES,
  UNLEARNED_MS_MIN,
  OUTPUT_TOKENS_PER_MS,
  OUTPUT_TOKENS_AT_ONCE,
  OUTPUT_TOKENS_MOST,
} = AUTO_CONSTANTS.book
const { STRANGER_PERIODS } = AUTO_CONSTANTS.stranger

const NO_IDS: readonly string[] = []

export class EngineBook {
  readonly #slots: (Slot | undefined)[]
  readonly #requests = new Map<string, BookedRequest>()
  readonly #learned: LearnedValues
  readonly #lessons: EngineLessons
  #projection = newProjection(8)
  #nowMs = 0
  /** Time of the first request; undefined: there was none. */
  #beganMs: number | undefined
  /** By slot: when its worker was forgotten; 0: never. */
  readonly #forgottenMs: Float64Array
  #sentTotal = 0
  #busyShare = 0
  /** Share of the slots of the last projection that had a prompt in their queue. */
  #busyAsked = 0
  #decisions = 0
  /** Requests whose prefill has ended by estimate, until `silentPrefillsEnded` tells of them. */
  #silentEnded: { readonly id: string; readonly dueMs: number }[] = []

  /** Slots are 0 … workerSlotsMax − 1. `learned`: what it knows at the start; default: nothing. */
  constructor({
    workerSlotsMax,
    learned,
  }: { readonly workerSlotsMax: number; readonly learned?: LearnedValues }) {
    this.#slots = new Array(workerSlotsMax)
    this.#forgottenMs = new Float64Array(workerSlotsMax)
    this.#learned = learned ?? new LearnedValues()
    this.#lessons = new EngineLessons(this.#learned)
  }

  get requests(): number {
    return this.#requests.size
  }

  /**
   * Books a request that is sent now; does nothing if its id is booked. `stepTokens`: token budget of the
   * worker's step.
   */
  sent(id: string, slot: number, request: SentRequest, stepTokens: number = STEP_TOKENS_DEFAULT): void {
    if (this.#requests.has(id)) return
    const nowMs = this.#time(request.nowMs)
    const entry = this.#entry(slot)
    const booked = this.#booked(id, slot, entry, request, stepTokens, nowMs)
    this.#busyShare += (this.#busyAsked - this.#busyShare) / Math.min(2 * MEAN_REQUESTS, ++this.#decisions)
    if (entry.queue.size === 0) {
      entry.headMs = nowMs
      entry.period = newPeriod(nowMs)
    }
    this.#enqueue(id, booked, entry)
    this.#beganMs ??= nowMs
    entry.cameRequests = entry.cameRequests * rateShare(nowMs - entry.cameAtMs) + 1
    entry.cameAtMs = nowMs
  }

  /**
   * Books a request that was sent at an unknown time before, and may have had its first token. It counts from
   * now on, and its times teach nothing. Does nothing if its id is booked.
   */
  resumed(
    id: string,
    slot: number,
    request: SentRequest & { readonly hasFirstToken: boolean },
    stepTokens: number = STEP_TOKENS_DEFAULT,
  ): void {
    if (this.#requests.has(id)) return
    const nowMs = this.#time(request.nowMs)
    const entry = this.#entry(slot)
    const booked = this.#booked(id, slot, entry, request, stepTokens, nowMs)
    booked.isTimed = false
    if (entry.queue.size === 0) entry.headMs = nowMs
    const { headMs } = entry
    this.#enqueue(id, booked, entry)
    if (!request.hasFirstToken) entry.period = undefined
    else {
      this.#beginDecoding(entry, booked, nowMs)
      // The resumed request was never the head of the queue, so the head began when it did before.
      entry.headMs = headMs
    }
  }

  /** Reports about this request will come late from now on, so its times teach nothing. */
  late(id: string): void {
    const request = this.#requests.get(id)
    if (request === undefined) return
    request.isTimed = false
    if (request.firstTokenMs < 0) this.#slots[request.slot]!.period = undefined
  }

  /** The first token came. Only the first call for a request counts. */
  firstToken(id: string, nowMs: number): void {
    const request = this.#requests.get(id)
    if (request === undefined || request.firstTokenMs >= 0) return
    const now = this.#time(nowMs)
    const entry = this.#slots[request.slot]!
    this.#endSilentPrefills(entry, now)
    if (request.firstTokenMs >= 0) return
    this.#beginDecoding(entry, request, now)
    if (request.isOwn) entry.newestServedSentMs = Math.max(entry.newestServedSentMs, request.sentMs)
    // What the engine computed of the period is not known, so the period teaches nothing.
    if (!request.isTimed || request.isUnknown) entry.period = undefined
    if (!request.isTimed) return
    this.#lessons.firstToken(request, entry, now)
  }

  /**
   * The prefill of the request is over, or it was refused: the worker's answer began, and is not a first
   * token. Counts as `firstToken` does, and teaches nothing.
   */
  prefillEnded(id: string, nowMs: number): void {
    this.late(id)
    this.firstToken(id, nowMs)
  }

  /**
   * The answer has `outputTokens` so far. A request counts with its prompt and half of a mean answer until
   * its own answer is longer than that.
   */
  grew(id: string, outputTokens: number, nowMs: number): void {
    const request = this.#requests.get(id)
    if (request === undefined || request.firstTokenMs < 0) return
    const more = request.promptTokens + tokens(outputTokens) - request.contextTokens
    if (more <= 0) return
    const entry = this.#slots[request.slot]!
    integrate(entry, this.#time(nowMs))
    entry.contextTokens += more
    request.contextTokens += more
  }

  /**
   * What of the usage of a booked request can be true. An answer has no more tokens than the request or the
   * model allows, and no more than the fastest hardware makes in its time; a share is 0 … 1. The rest is
   * undefined, and counted for its worker. Of a request that is not booked nothing is believed.
   */
  believed(id: string, { outputTokens, cachedShare, streamEvents = 0 }: SaidUsage, nowMs: number): SaidUsage {
    const request = this.#requests.get(id)
    if (request === undefined) return {}
    const { outputTokensMax, isTimed, sentMs, slot } = request
    const lastedMs = this.#time(nowMs) - sentMs
    const fastest = isTimed ? OUTPUT_TOKENS_AT_ONCE + OUTPUT_TOKENS_PER_MS * lastedMs : OUTPUT_TOKENS_MOST
    const most = Math.min(outputTokensMax, fastest)
    const isTooLong = outputTokens !== undefined && !(outputTokens >= 0 && outputTokens <= most)
    const isNoShare = cachedShare !== undefined && !(cachedShare >= 0 && cachedShare <= 1)
    if (isTooLong || isNoShare) this.#slots[slot]!.disbelieved++
    const isSaid = outputTokens !== undefined && !isTooLong
    return {
      outputTokens: isSaid ? this.#learned.perEvent.believed(slot, outputTokens, streamEvents) : undefined,
      cachedShare: isNoShare ? undefined : cachedShare,
    }
  }

  /**
   * The request is over, for whatever reason. `outputTokens`, and `cachedShare` of its prompt, are from its
   * usage; undefined: it does not say.
   */
  ended(id: string, nowMs: number, outputTokens?: number, cachedShare?: number): void {
    const request = this.#requests.get(id)
    if (request === undefined) return
    const now = this.#time(nowMs)
    const entry = this.#slots[request.slot]!
    if (outputTokens !== undefined && outputTokens > 0)
      this.#lessons.answered(request, entry, outputTokens, now)
    this.#settlePrompt(request, entry, cachedShare)
    this.#remove(id, request, now)
  }

  /** The slot of a booked request. */
  slotOf(id: string): number | undefined {
    return this.#requests.get(id)?.slot
  }

  /**
   * Ids of requests that do not stream and whose prefill has surely ended, by estimate, since the last call,
   * on these slots or on any that was asked about meanwhile. Surely: after twice the estimated time if the
   * speed is learned, else after 20 times and half a second.
   */
  silentPrefillsEnded(slots: ArrayLike<number>, nowMs: number): readonly string[] {
    const now = this.#time(nowMs)
    for (let i = 0; i < slots.length; i++) {
      const entry = this.#slots[slots[i]!]
      if (entry !== undefined) this.#endSilentPrefills(entry, now)
    }
    if (this.#silentEnded.length === 0) return NO_IDS
    const due = this.#silentEnded.filter(({ id, dueMs }) => dueMs <= now && this.#requests.has(id))
    this.#silentEnded = this.#silentEnded.filter(({ id, dueMs }) => dueMs > now && this.#requests.has(id))
    return due.map(({ id }) => id)
  }

  /** How many figures of a slot's worker could not be true, since it is known; they taught nothing. */
  disbelieved(slot: number): number {
    return this.#slots[slot]?.disbelieved ?? 0
  }

  /** What was learned of the speed of a slot's worker. */
  learned(slot: number): LearnedSpeed {
    return this.#learned.speed(slot)
  }

  /** Forgets the requests of a slot and what was learned of its worker. */
  forget(slot: number): void {
    for (const [id, request] of this.#requests) if (request.slot === slot) this.#requests.delete(id)
    this.#slots[slot] = undefined
    this.#forgottenMs[slot] = this.#nowMs
    this.#learned.forget(slot)
  }

  /**
   * The worker of a slot runs as another process, which may be another engine: forgets what was learned of
   * its speed and its answers. Its requests stay until they end, and teach nothing.
   */
  restarted(slot: number): void {
    for (const request of this.#requests.values()) if (request.slot === slot) request.isTimed = false
    const entry = this.#slots[slot]
    if (entry !== undefined) entry.period = undefined
    this.#learned.forget(slot)
  }

  /** What a request would find on each slot now. The next call overwrites the result. */
  project(slots: ArrayLike<number>, nowMs: number): EngineProjection {
    const now = this.#time(nowMs)
    const count = slots.length
    if (this.#projection.figures.length < count * FIGURES_PER_SLOT)
      this.#projection = newProjection(count * 2)
    const p = this.#projection
    const { figures } = p
    p.count = count
    const overdueWeight = this.#learned.unseen.overdueWeight
    let busy = 0
    for (let i = 0, at = 0; i < count; i++, at += FIGURES_PER_SLOT) {
      const slot = slots[i]!
      const entry = this.#slots[slot]
      const prefill = this.#learned.prefill.of(slot)
      const decode = this.#learned.decode.of(slot)
      figures[at + FIGURE_OFFSET.prefillStepMs] = prefill[0]
      figures[at + FIGURE_OFFSET.prefillTokenMs] = prefill[1]
      figures[at + FIGURE_OFFSET.prefillPairMs] = prefill[2]
      figures[at + FIGURE_OFFSET.decodeStepMs] = decode[0]
      figures[at + FIGURE_OFFSET.decodeRequestMs] = decode[1]
      figures[at + FIGURE_OFFSET.decodeTokenMs] = decode[2]
      if (entry === undefined) {
        figures.fill(0, at, at + FIGURE_OFFSET.prefillStepMs)
        continue
      }
      this.#endSilentPrefills(entry, now)
      const isBusy = entry.queue.size > 0
      if (isBusy) busy++
      const overdueMs = overdueWeight > 0 ? overdueWeight * overdueOf(entry, now) : 0
      const backlogMs = backlogOf(entry, now) + overdueMs
      figures[at + FIGURE_OFFSET.backlogMs] =
        isBusy && overdueWeight < 1 && this.#isStranger(slot)
          ? Math.max(backlogMs, lateBacklogOf(entry, now, 1 - overdueWeight))
          : backlogMs
      figures[at + FIGURE_OFFSET.queuedTokens] = entry.queuedTokens
      figures[at + FIGURE_OFFSET.requests] = entry.requests
      figures[at + FIGURE_OFFSET.decoding] = entry.decoding
      figures[at + FIGURE_OFFSET.contextTokens] = entry.contextTokens
      figures[at + FIGURE_OFFSET.receivedTokens] = entry.receivedTokens
    }
    this.#fillChurn(slots, p)
    this.#busyAsked = count === 0 ? 0 : busy / count
    p.busyShare = Math.min(BUSY_SHARE_MAX, this.#busyShare)
    p.speedSpread = speedSpreadOf(figures, count)
    p.outputTokensExpected = this.#learned.outputs.meanTokens
    p.prefillMeanMs = this.#learned.prefillMs.mean
    p.sentPerMs = this.#sentPerMs(slots, p)
    const [transferMs, transferTokenMs] = this.#learned.transfer.fleet
    p.transferMs = transferMs
    p.transferTokenMs = transferTokenMs
    p.kneeTokens = this.#learned.prefill.kneeTokens
    p.waitingShare =
      this.#learned.decodeMs.mean > 0
        ? Math.min(
            1,
            Math.max(
              0,
              (this.#learned.firstTokenMs.mean - this.#learned.prefillMs.mean) / this.#learned.decodeMs.mean,
            ),
          )
        : 0
    return p
  }

  /** So little is known of its speed that what its busy period takes says more. */
  #isStranger(slot: number): boolean {
    return this.#learned.prefill.rows(slot) < STRANGER_PERIODS
  }

  #entry(slot: number): Slot {
    const known = this.#slots[slot]
    if (known !== undefined) return known
    const entry = newSlot()
    this.#slots[slot] = entry
    return entry
  }

  #booked(
    id: string,
    slot: number,
    entry: Slot,
    request: SentRequest,
    stepTokens: number,
    nowMs: number,
  ): BookedRequest {
    const promptTokens = tokens(request.promptTokens)
    const newTokens = Math.min(promptTokens, tokens(request.newTokens))
    const prefillMs = this.#learned.prefill.cost(slot, newTokens, promptTokens, stepTokens)
    const steps = Math.ceil((newTokens + entry.queuedTokens) / stepTokens)
    const decodeAddedMs = this.#decodeAddedMs(slot, entry, steps)
    return {
      id,
      slot,
      promptTokens,
      newTokens,
      stepTokens,
      prefillSteps: Math.max(1, Math.ceil(newTokens / stepTokens)),
      sentMs: nowMs,
      waitedMs: request.waitedMs ?? 0,
      prefillMs,
      expectedFirstTokenMs: backlogOf(entry, nowMs) + prefillMs + decodeAddedMs,
      isExpectationLearned: this.#learned.deliveredPeriods >= PERIODS_FEW,
      decodeAddedMs,
      isSilent: request.isStream === false,
      isOwn: request.isOwn !== false,
      isUnknown: request.isUnknown === true,
      // With others before it, it may wait for them, or for room.
      handedTokens: entry.queue.size === 0 ? (request.handedTokens ?? -1) : -1,
      outputTokensMax: request.outputTokensMax ?? Infinity,
      firstTokenMs: -1,
      contextTokens: 0,
      prefilledMs: 0,
      decodingMs: 0,
      contextMs: 0,
      period: undefined,
      step: 0,
      isFirstOfStep: true,
      isTimed: true,
    }
  }

  /**
   * The time that decoding on the slot adds to `steps` steps of prefill, plus half of the step under way; in
   * ms.
   */
  #decodeAddedMs(slot: number, { decoding, contextTokens }: Slot, steps: number): number {
    if (decoding === 0) return 0
    const [stepMs, requestMs, tokenMs] = this.#learned.decode.of(slot)
    const addedMs = requestMs * decoding + tokenMs * contextTokens
    return (stepMs + addedMs) / 2 + addedMs * steps
  }

  #enqueue(id: string, booked: BookedRequest, entry: Slot): void {
    this.#requests.set(id, booked)
    entry.queue.add(booked)
    entry.queuedMs += booked.prefillMs
    entry.queuedTokens += booked.newTokens
    entry.requests++
    this.#sentTotal++
    entry.inserted = fadedTokens(entry, this.#sentTotal) + booked.newTokens
    entry.insertedAt = this.#sentTotal
    entry.receivedTokens += booked.newTokens
  }

  /** Until something was seen, one request comes to a worker in the time of an answer. */
  #sentPerMs(slots: ArrayLike<number>, { count, figures, outputTokensExpected }: EngineProjection): number {
    let requests = 0
    let overMs = 0
    for (let i = 0; i < count; i++) {
      const slot = slots[i]!
      const entry = this.#slots[slot]
      overMs += this.#seenMs(slot)
      overMs += outputTokensExpected * figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET.decodeStepMs]!
      if (entry !== undefined) requests += rateShare(this.#nowMs - entry.cameAtMs) * entry.cameRequests
    }
    return overMs > 0 ? (count + requests) / overMs : 0
  }

  /** Time in which requests to the slot were counted, which fades as they do; in ms. */
  #seenMs(slot: number): number {
    if (this.#beganMs === undefined) return 0
    const beganMs = Math.max(this.#beganMs, this.#forgottenMs[slot]!)
    return RATE_REACH_MS * (1 - rateShare(this.#nowMs - beganMs))
  }

  #fillChurn(slots: ArrayLike<number>, { count, figures }: EngineProjection): void {
    let sum = 0
    for (let i = 0; i < count; i++) {
      const entry = this.#slots[slots[i]!]
      const churn = entry === undefined ? 0 : fadedTokens(entry, this.#sentTotal)
      figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET.churn] = churn
      sum += churn
    }
    if (sum > 0)
      for (let i = 0; i < count; i++) figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET.churn]! *= count / sum
  }

  #remove(id: string, request: BookedRequest, now: number): void {
    const entry = this.#slots[request.slot]!
    this.#requests.delete(id)
    if (request.firstTokenMs < 0) {
      const { headMs } = entry
      const [head] = entry.queue
      this.#leaveQueue(entry, request, now)
      // The request was not the head, so the head began when it did before.
      if (head !== request) entry.headMs = headMs
      // It is not known how much of the prompt was computed, so the period teaches nothing.
      entry.period = undefined
    } else {
      integrate(entry, now)
      entry.decoding--
      entry.contextTokens = entry.decoding === 0 ? 0 : entry.contextTokens - request.contextTokens
    }
    entry.requests--
  }

  #leaveQueue(entry: Slot, request: BookedRequest, now: number): void {
    entry.queue.delete(request)
    entry.queuedMs = entry.queue.size === 0 ? 0 : Math.max(0, entry.queuedMs - request.prefillMs)
    entry.queuedTokens -= request.newTokens
    entry.headMs = now
  }

  #beginDecoding(entry: Slot, request: BookedRequest, now: number): void {
    this.#leaveQueue(entry, request, now)
    integrate(entry, now)
    // If the request is not timed, it is not known which decoding requests its prefill held up: none of them
    // counts it.
    if (request.isTimed) entry.prefilledMs += request.prefillMs
    request.firstTokenMs = now
    request.contextTokens = request.promptTokens + this.#learned.outputs.meanTokens / 2
    request.prefilledMs = entry.prefilledMs
    request.decodingMs = entry.decodingMs
    request.contextMs = entry.contextMs
    entry.decoding++
    entry.contextTokens += request.contextTokens
  }

  /**
   * Moves heads of the queue that do not stream to decoding, once their estimated prefill is over. The busy
   * period is dropped: its times would be estimates.
   */
  #endSilentPrefills(entry: Slot, now: number): void {
    for (const head of entry.queue) {
      if (!head.isSilent) return
      const endMs = entry.headMs + head.prefillMs
      if (endMs > now) return
      entry.period = undefined
      this.#beginDecoding(entry, head, now)
      this.#silentEnded.push({ id: head.id, dueMs: endMs + this.#slackMs(head) })
      entry.headMs = endMs
    }
  }

  /** How much longer than estimated the prefill of a request may take. */
  #slackMs({ slot, prefillMs }: BookedRequest): number {
    const isLearned = this.#learned.prefill.knowledge(slot).source !== 'prior'
    return isLearned ? prefillMs : Math.max(UNLEARNED_MS_MIN, UNLEARNED_TIMES * prefillMs)
  }

  /**
   * The request has ended. Corrects its new tokens by `cachedShare`, if its usage says it, and lets it teach.
   */
  #settlePrompt(request: BookedRequest, entry: Slot, cachedShare: number | undefined): void {
    const { promptTokens } = request
    const isSaid = cachedShare !== undefined && cachedShare >= 0 && cachedShare <= 1
    const newTokens = isSaid
      ? Math.min(promptTokens, Math.max(1, Math.round(promptTokens * (1 - cachedShare))))
      : request.newTokens
    const more = newTokens - request.newTokens
    entry.receivedTokens = Math.max(0, entry.receivedTokens + more)
    entry.inserted = Math.max(0, fadedTokens(entry, this.#sentTotal) + more)
    entry.insertedAt = this.#sentTotal
    this.#lessons.settled(request, newTokens, isSaid)
  }

  #time(nowMs: number): number {
    if (nowMs > this.#nowMs) {
      this.#nowMs = nowMs
      this.#learned.tick(nowMs)
    }
    return this.#nowMs
  }
}
