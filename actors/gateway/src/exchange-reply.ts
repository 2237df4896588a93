/**
 * Exchange reply: what one client is told. Either a worker's answer, or the refusal of a worker that was kept
 * in case no other serves the request, or an error of our own. The bytes are client-answer.ts's; what a
 * stream that several workers had a part in looks like is stream-continuation.ts's.
 *
 * Invariants
 *   I1  A client that is still connected gets exactly one answer: one head, one end.
 *   I2  The client gets our error in place of a worker's refusal if an answer has begun, or if another worker
 *       may have run the request since.
 *   I3  A client that may use some models only is told of no others.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { AlikeEvents } from '@homing/openai'
import type { Decision } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import { ClientAnswer } from './client-answer.ts'
import type { CommonParts } from './exchange-parts.ts'
import { hiddenModelError, leaseOf } from './keyed-exchange.ts'
import { MODEL_NOT_FOUND } from './placing-codes.ts'
import type { StreamContinuation } from './stream-continuation.ts'
import type { Refusal, WorkerCall } from './worker-call.ts'

/**
 * Errors that the client gets in place of a worker's earlier refusal, because another worker may have run the
 * request since.
 */
const OWN_WORDS: ReadonlySet<string> = new Set(['HOMING_DISPATCH_NO_ANSWER', 'HOMING_GATEWAY_RESTARTED'])

export type ReplyParts = Pick<CommonParts, 'context' | 'metrics' | 'limits' | 'responses'>

export class ExchangeReply {
  readonly #parts: ReplyParts
  readonly #http: HttpExchange
  readonly #continuation: StreamContinuation
  readonly #answer: ClientAnswer
  /** Of a worker that was left. */
  #refusal: Refusal | undefined
  /** Nothing is left to note: the answer's response id was noted, or the route has none. */
  #isResponseNoted: boolean

  constructor(parts: ReplyParts, http: HttpExchange, route: string, continuation: StreamContinuation) {
    const { context, metrics, limits } = parts
    this.#parts = parts
    this.#http = http
    this.#continuation = continuation
    this.#isResponseNoted = route !== 'responses'
    this.#answer = new ClientAnswer(http, route, context.clock, metrics, limits.streamKeepAliveMs)
  }

  /** The client of a stream waits for its first token. */
  waits(): void {
    this.#answer.waits()
  }

  /** A worker refused the request, and others are tried. */
  keep(refusal: Refusal): void {
    this.#refusal = refusal
  }

  head(status: number, headers: HttpHeaders, decision: Decision): void {
    this.#answer.head(status, headers, decision)
  }

  /** Passes bytes of the worker on. False: the client reads slowly, and its exchange says when it goes on. */
  relay(bytes: Uint8Array, call: WorkerCall | undefined, decision: Decision): boolean {
    // Noted before the client sees the id, because it may ask for that response at once.
    if (!this.#isResponseNoted) this.#noteResponse(call?.usage?.responseId, decision)
    return this.pass(bytes, call?.alikeIn(bytes))
  }

  /**
   * Passes whole events of a stream on, or bytes of any other answer. `alike`: what is known of them. False:
   * as `relay`.
   */
  pass(bytes: Uint8Array, alike?: AlikeEvents): boolean {
    return this.#answer.data(this.#continuation.passed(bytes, alike))
  }

  /** Whole events that were held back are the last that the client gets of this worker. */
  passWhole(call: WorkerCall | undefined): void {
    const whole = call?.takeWhole()
    if (whole === undefined || whole.length === 0) return
    this.pass(this.#continuation.failureIn(whole, false)?.before ?? whole)
  }

  /** The answer is complete; `bytes`: its last ones, as the client gets them. */
  end(bytes?: Uint8Array): void {
    if (bytes !== undefined) this.#answer.data(bytes)
    this.#answer.end()
  }

  /** Answers with all of a worker's answer. */
  whole({ status, headers, body, decision }: Refusal): void {
    if (this.#http.isClosed) return
    this.#answer.head(status, headers, decision)
    for (const bytes of body) this.#answer.data(bytes)
    this.#answer.end()
  }

  /** Refuses a request that was sent to no worker. */
  refuse(thrown: unknown): void {
    this.#answer.refuse(thrown, this.#parts.context.log)
  }

  /** What the client may know of an error: other models are none of its names. */
  told(thrown: unknown): unknown {
    if (leaseOf(this.#http)?.key.models === undefined) return thrown
    const { code, details } = toErrorRecord(thrown)
    return code === MODEL_NOT_FOUND ? hiddenModelError(this.#http, String(details['model'])) : thrown
  }

  /** The same for the record of an error. */
  toldRecord(error: ErrorRecord): ErrorRecord {
    return error.code === MODEL_NOT_FOUND ? toErrorRecord(this.told(fromErrorRecord(error))) : error
  }

  /**
   * Ends the answer of a request that no worker served. `hasBegun`: a part of an answer has passed.
   * `decision`: the last one.
   */
  fail(error: ErrorRecord, hasBegun: boolean, decision: Decision | undefined): void {
    if (this.#http.isClosed) return
    const { lastWords } = this.#continuation
    if (lastWords !== undefined) this.#answer.data(lastWords)
    const refusal = hasBegun || OWN_WORDS.has(error.code) ? undefined : this.#refusal
    if (refusal === undefined) this.#answer.fail(error, decision)
    else this.whole(refusal)
  }

  #noteResponse(id: string | undefined, decision: Decision): void {
    if (id === undefined) return
    this.#isResponseNoted = true
    this.#parts.responses.note(id, decision, leaseOf(this.#http)?.key.name)
  }
}
