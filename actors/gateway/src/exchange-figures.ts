/**
 * Exchange figures: when each thing happened to one request, and what metrics, access note and receipt get of
 * that. What happens, and when, is the exchange's.
 *
 *   arrived ──▶ decided ──▶ called ──▶ head, first token ──▶ end
 *                  ▲           └─ another worker is called: `#attemptMs` begins anew
 *                  └─ the first decision only: `#decidedMs` stays
 *
 * The part of an answer that comes now counts from the first decision. That of a second worker, or the rest
 * of a stream, counts from the call to its own worker.
 */

import type { Clock } from '@homing/base'
import type { FirstTokenTimes } from '@homing/load'
import type { UsageReport } from '@homing/openai'
import { type Decision, type Delivery, type RoutingRequest, reusedTokens } from '@homing/placement'
import type { AccessNote } from './access-note.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { Stage } from './request-metrics.ts'
import type { WorkerCall } from './worker-call.ts'

export interface FiguresParts {
  readonly context: { readonly clock: Clock }
  readonly metrics: GatewayMetrics
  readonly firstTokens: FirstTokenTimes
}

/** How a placement ended, as far as this does not say so. */
export interface DeliveryEnd extends Pick<Delivery, 'outcome' | 'error' | 'otherLeg' | 'notContinued'> {
  readonly call: WorkerCall | undefined
  /** Tokens that its worker had to compute for slices of the prompt. */
  readonly sliceTokens: number
  /** Milliseconds in which the prompt was computed elsewhere, and nothing waited. */
  readonly elsewhereMs: number
}

export class ExchangeFigures {
  readonly arrivedMs: number
  readonly #parts: FiguresParts
  /** For the access log; undefined: this request gets no line. */
  readonly #note: AccessNote | undefined
  /** Whose part of the answer comes, or is to come. */
  #part: 'first' | 'second' | 'rest' = 'first'
  /** Time of the first decision. */
  #decidedMs: number | undefined
  /** Start of the current call. */
  #attemptMs = 0
  #firstByteMs: number | undefined
  /** First token of a stream from the current worker. */
  #firstTokenMs: number | undefined
  #heardMs = 0

  constructor(parts: FiguresParts, note: AccessNote | undefined) {
    this.#parts = parts
    this.#note = note
    this.arrivedMs = parts.context.clock.nowMs()
  }

  /** Start of the current call. */
  get attemptMs(): number {
    return this.#attemptMs
  }

  /** When its worker last sent something, or its client last caught up. */
  get heardMs(): number {
    return this.#heardMs
  }

  /** The first token of a stream has come from the current worker. */
  get hasFirstToken(): boolean {
    return this.#firstTokenMs !== undefined
  }

  /** Time of the first decision; the exchange has one. */
  get decidedMs(): number {
    return this.#decidedMs!
  }

  stage(stage: Stage, elapsedMs: number): void {
    this.#parts.metrics.requests.stage(stage, elapsedMs)
    this.#note?.stage(stage, elapsedMs)
  }

  /** `isCounted`: this choice was counted before. */
  decided(routing: RoutingRequest, decision: Decision, askedMs: number, isCounted: boolean): void {
    const { metrics } = this.#parts
    metrics.requests.decided(routing, decision, this.#decidedMs === undefined)
    this.#note?.decided(decision)
    this.stage('place', this.nowMs - askedMs)
    this.#decidedMs ??= this.nowMs
    if (!isCounted) metrics.decided(routing, decision)
  }

  /** The current worker is called, for the first time or again. */
  called(): void {
    this.#attemptMs = this.nowMs
    this.#heardMs = this.#attemptMs
  }

  /** The call of a second worker, which began at `calledMs`, is the current one. */
  adopted(decision: Decision, calledMs: number): void {
    this.#part = 'second'
    this.#attemptMs = calledMs
    this.#heardMs = this.nowMs
    this.#note?.decided(decision)
  }

  heard(): number {
    this.#heardMs = this.nowMs
    return this.#heardMs
  }

  head(): void {
    this.#firstByteMs = this.heard() - this.#callMs
    this.stage('call', this.#firstByteMs)
  }

  /** Returns the time from the call, in milliseconds. `teaches`: it shows how fast a worker is. */
  firstToken({ worker, prefillTokens }: Decision, model: string, teaches: boolean): number {
    const nowMs = this.nowMs
    this.#firstTokenMs = nowMs
    if (teaches) this.#parts.firstTokens.came(prefillTokens, nowMs - this.#attemptMs)
    if (this.#part !== 'rest') {
      const elapsedMs = nowMs - this.arrivedMs
      this.#note?.firstToken(elapsedMs)
      this.#parts.metrics.requests.firstToken(model, elapsedMs, worker)
    }
    return nowMs - this.#callMs
  }

  /** A second worker was quicker: the first one's token would have come later than now. */
  overtaken({ prefillTokens }: Decision): void {
    this.#parts.firstTokens.came(prefillTokens, this.nowMs - this.#attemptMs)
  }

  /** The worker has failed the request. */
  placedAgain(): void {
    this.#firstTokenMs = undefined
  }

  /** Another worker goes on with the stream. */
  goesOn(): void {
    this.#part = 'rest'
    this.#firstTokenMs = undefined
    this.#firstByteMs = undefined
  }

  /** `usage`: of the whole answer. */
  answered(model: string, worker: string, usage: UsageReport | undefined, sliceTokens: number): void {
    const { promptTokens, completionTokens, cachedTokens } = usage ?? {}
    const tokensMs = this.#firstTokenMs === undefined ? undefined : this.nowMs - this.#firstTokenMs
    const reused = reusedTokens({ cachedTokens, sliceTokens })
    const figures = { promptTokens, completionTokens, cachedTokens: reused, tokensMs }
    this.#parts.metrics.requests.answered(model, figures, worker)
  }

  /** What the receipt of a placement gets that ends now. */
  delivery(end: DeliveryEnd): Delivery {
    const { outcome, error, otherLeg, notContinued, call, sliceTokens, elsewhereMs } = end
    const usage = call?.usage
    const nowMs = this.nowMs
    const waitedMs = (this.#decidedMs ?? nowMs) - this.arrivedMs - elsewhereMs
    return {
      outcome,
      status: call?.status,
      promptTokens: usage?.promptTokens,
      completionTokens: usage?.completionTokens,
      cachedTokens: usage?.cachedTokens,
      sliceTokens,
      waitedMs: this.#part === 'rest' ? 0 : waitedMs,
      timeToFirstByteMs: this.#firstByteMs,
      durationMs: this.#decidedMs === undefined ? 0 : nowMs - this.#callMs,
      streamEvents: call?.isStream === true ? usage?.eventsCount : undefined,
      otherLeg,
      notContinued,
      error,
    }
  }

  /** When the part of the answer was asked for that comes now. */
  get #callMs(): number {
    return this.#part === 'first' ? this.#decidedMs! : this.#attemptMs
  }

  get nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}
