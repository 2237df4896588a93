/**
 * Exchange request: the request of one exchange as it is placed and sent next, and how far it is. Its
 * client's body stays what it was, whatever a worker gets.
 *
 * Invariant   I1  Nothing follows `settled`.
 */

import type { ReadyRequest } from './exchange-parts.ts'
import type { RequestSpans } from './request-spans.ts'
import type { ContinuationStep, StreamContinuation } from './stream-continuation.ts'
import type { UpstreamRequest } from './worker-call.ts'

/** What each state waits for: see exchange.ts. */
export type ExchangeState =
  | 'reading'
  | 'placing'
  | 'prefilling'
  | 'slicing'
  | 'calling'
  | 'relaying'
  | 'continuing'
  | 'settled'

export class ExchangeRequest {
  readonly #continuation: StreamContinuation
  /** Its calls go on these; undefined: the request is not traced. */
  readonly #spans: RequestSpans | undefined
  #ready: ReadyRequest | undefined
  #state: ExchangeState = 'reading'

  constructor(continuation: StreamContinuation, spans: RequestSpans | undefined) {
    this.#continuation = continuation
    this.#spans = spans
  }

  get state(): ExchangeState {
    return this.#state
  }

  get isSettled(): boolean {
    return this.#state === 'settled'
  }

  /** A part of an answer may have passed. */
  get hasBegun(): boolean {
    return this.#state === 'relaying' || this.#state === 'continuing' || this.#continuation.isRest
  }

  /** The request; only between `read` and `release`. */
  get ready(): ReadyRequest {
    return this.#ready!
  }

  /** Its client waits for a stream. */
  get isStream(): boolean {
    return this.#ready?.routing.isStream === true
  }

  /** The body as the client sent it. */
  get givenBody(): Uint8Array | undefined {
    return (this.#continuation.given ?? this.ready).upstream.body
  }

  goesTo(state: ExchangeState): void {
    if (this.#state !== 'settled') this.#state = state
  }

  read(ready: ReadyRequest): void {
    this.#ready = this.#traced(ready)
  }

  /** A second worker got this, and its answer is the client's. */
  sent(upstream: UpstreamRequest): void {
    this.#ready = { ...this.ready, upstream }
  }

  /** It is at this worker already: it cannot wait for room. */
  pin(pinnedInstanceId: number): void {
    const routing = { ...this.ready.routing, pinnedInstanceId, pinnedRank: undefined }
    this.#ready = { ...this.ready, routing, waiting: undefined }
  }

  /** It has waited for room before, and is placed at once. */
  waitsNoMore(): void {
    this.#ready = { ...this.ready, waiting: undefined }
  }

  /** From now on it is for the rest of a stream, which was placed by this decision. */
  goesOn({ ready, deliveredTokens }: ContinuationStep & { kind: 'place' }, decisionId: string): void {
    const routing = { ...ready.routing, continues: { decisionId, deliveredTokens } }
    this.#ready = { ...this.#traced(ready), routing }
  }

  /** Gives up what its reader made. Returns the body, which a call may still read. */
  release(): Uint8Array | undefined {
    const ready = this.#ready
    this.#ready = undefined
    ready?.prompt?.giveUp()
    return ready?.upstream.body
  }

  #traced(ready: ReadyRequest): ReadyRequest {
    const spans = this.#spans
    return spans === undefined ? ready : { ...ready, upstream: { ...ready.upstream, spans } }
  }
}
