/**
 * Engine lessons: what the requests of a worker teach of its speed, when their first tokens come and when
 * they end.
 *
 * Learns prefill from busy periods: from the first request in an empty queue until the queue is empty again
 *        or PERIOD_STEPS steps are over. A period teaches when all of its requests have ended, because
 *        engines say only then how much of their prompts was cached. Predictions are wrong if the view of
 *        the caches is late or guessed. So a period with requests that do not say so weighs less where
 *        others do. Until PERIODS_FEW periods have taught so, each also teaches from the predictions at its
 *        end.
 *        Decoding is learned from the time between first and last token, minus the prefill of other requests
 *        in between. An answer that does not stream has no first token: it teaches only its output length,
 *        and its prefill is assumed to end at the estimated time. A request whose time of sending or of its
 *        first token is not known teaches nothing of times.
 *
 * Owns   nothing: a busy period stands in its slot and its requests (engine-slot.ts), what was learned in
 *        LearnedValues.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import {
  addWork,
  type BookedRequest,
  integrate,
  newPeriod,
  type Period,
  type Slot,
  type Work,
} from './engine-slot.ts'
import type { LearnedValues } from './learned-values.ts'

const {
  PERIOD_STEPS,
  UNSAID_WEIGHT,
  PERIODS_FEW,
  MEAN_REQUESTS,
  DECODE_SHARE_MAX,
  DECODE_GAPS_MIN,
  STALLED_SHARE_MAX,
} = AUTO_CONSTANTS.book

export class EngineLessons {
  readonly #learned: LearnedValues

  constructor(learned: LearnedValues) {
    this.#learned = learned
  }

  /** The first token of a request came whose times are known; it is decoding now. */
  firstToken(request: BookedRequest, entry: Slot, now: number): void {
    this.#observeTransfer(request, now)
    if (request.isOwn && request.isExpectationLearned && !request.isUnknown)
      this.#learned.unseen.firstToken(request.expectedFirstTokenMs, now - request.sentMs)
    this.#addToPeriod(request, entry, now)
    this.#learned.firstTokenMs.add(request.waitedMs + now - request.sentMs)
  }

  /** A request has ended with an answer of this length. */
  answered(request: BookedRequest, entry: Slot, outputTokens: number, now: number): void {
    this.#learned.outputs.ended(request.slot, outputTokens)
    if (request.firstTokenMs >= 0 && !request.isSilent && request.isTimed)
      this.#observeDecode(request, entry, outputTokens, now)
  }

  /**
   * A request has ended. Counts it in its busy period, with the new tokens of its prompt. `isSaid`: its usage
   * says them; otherwise they are as predicted.
   */
  settled(request: BookedRequest, newTokens: number, isSaid: boolean): void {
    const { slot, period } = request
    if (request.firstTokenMs < 0 || request.isSilent || (!request.isTimed && period === undefined)) return
    ++this.#learned.settled
    // What was computed elsewhere is no prompt of those that come.
    if (request.newTokens > 0) this.#learned.prefillMs.add(request.prefillMs)
    this.#learned.saidShare +=
      ((isSaid ? 1 : 0) - this.#learned.saidShare) / Math.min(MEAN_REQUESTS, this.#learned.settled)
    if (period === undefined) return
    period.open--
    period.requests++
    if (!isSaid) period.unsaid++
    addWork(period.delivered, request, newTokens)
    if (period.open === 0 && period.observedMs >= 0) this.#learnDelivered(slot, period)
  }

  /** Learns from the time of the request's decoding, minus the prefill of other requests in that time. */
  #observeDecode(request: BookedRequest, entry: Slot, outputTokens: number, now: number): void {
    const { slot, firstTokenMs } = request
    const duration = now - firstTokenMs
    this.#learned.decodeMs.add(duration)
    const gaps = outputTokens - 1
    if (gaps < DECODE_GAPS_MIN || duration <= 0) return
    integrate(entry, now)
    const stalled = entry.prefilledMs - request.prefilledMs
    if (stalled > STALLED_SHARE_MAX * duration) return
    const decoding = (entry.decodingMs - request.decodingMs) / duration
    const context = (entry.contextMs - request.contextMs) / duration
    this.#learned.decode.observe(slot, 1, decoding, context, (duration - stalled) / gaps)
  }

  #observeTransfer(request: BookedRequest, now: number): void {
    const { slot, handedTokens, newTokens, prefillMs, sentMs, decodeAddedMs } = request
    if (handedTokens < 0) return
    // Its last token takes a step of its own, or what is new of it its prefill. At least half of the time is
    // believed: errors are relative.
    const [stepMs] = this.#learned.decode.of(slot)
    const ownMs = newTokens > 0 ? prefillMs : stepMs
    const tookMs = now - sentMs
    const observedMs = Math.max(tookMs / 2, tookMs - decodeAddedMs - ownMs)
    this.#learned.transfer.observe(slot, 1, handedTokens, 0, observedMs)
  }

  #addToPeriod(request: BookedRequest, entry: Slot, now: number): void {
    // The last step of a period may bring several first tokens, so the period ends only when a later one
    // comes.
    const last = entry.period
    if (last !== undefined && last.predicted.steps >= PERIOD_STEPS && now > last.lastMs)
      this.#endPeriod(request.slot, entry, last.lastMs)
    const { period } = entry
    if (period !== undefined) {
      request.period = period
      request.isFirstOfStep = now > period.lastMs
      if (request.isFirstOfStep) {
        period.ends++
        const decode = this.#learned.decode.of(request.slot)
        const others = Math.max(0, entry.decoding - 1)
        if (others > 0)
          period.decodeMs += request.prefillSteps * (decode[1] * others + decode[2] * entry.contextTokens)
      }
      request.step = period.ends - 1
      addWork(period.predicted, request, request.newTokens)
      period.expectedMs += request.prefillMs
      period.lastMs = now
      period.open++
    }
    if (entry.queue.size === 0 || period === undefined) this.#endPeriod(request.slot, entry, now)
  }

  /** Ends the busy period, learns from it if that is possible, and begins another one at `now`. */
  #endPeriod(slot: number, entry: Slot, now: number): void {
    const { period } = entry
    entry.period = newPeriod(now)
    if (period === undefined) return
    const duration = now - period.startMs
    const observed = duration - period.decodeMs
    if (observed <= (1 - DECODE_SHARE_MAX) * duration) return
    period.observedMs = observed
    if (this.#learned.deliveredPeriods < PERIODS_FEW)
      this.#learn(slot, period, period.predicted, UNSAID_WEIGHT)
    if (period.open === 0) this.#learnDelivered(slot, period)
  }

  #learnDelivered(slot: number, period: Period): void {
    const weight = 1 - (1 - UNSAID_WEIGHT) * this.#learned.saidShare * (period.unsaid / period.requests)
    this.#learned.deliveredPeriods++
    this.#learn(slot, period, period.delivered, weight)
  }

  #learn(slot: number, { observedMs }: Period, work: Work, weight: number): void {
    this.#learned.prefill.observe(slot, work, observedMs, weight)
  }
}
