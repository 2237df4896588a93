/**
 * Client answer: the bytes sent to one client, and their counters. An answer has at most one head and ends
 * exactly once: complete, with an error in OpenAI's form, or cut if the client could not tell an error from
 * the answer.
 *
 * A client of a stream may be kept company while it waits: after `keepAliveMs` of silence it gets a comment,
 * which clients skip, and before the first one the head of a stream (`kept`). The worker's own head is left
 * out then, and an answer that turns out to be an error, or no stream, becomes an event (`whole event`).
 */

import { type Clock, type ErrorRecord, type Log, toErrorRecord } from '@homing/base'
import { apiErrorOf, errorAnswer, sendAnswer } from '@homing/http'
import { answerEvent, type ErrorForm, errorBody, errorEvent, isStreamAnswer } from '@homing/openai'
import type { Decision } from '@homing/placement'
import { type HttpExchange, type HttpHeaders, passedOn } from '@homing/transport'
import type { GatewayMetrics } from './gateway-metrics.ts'

/** Paths whose errors have a form of their own. */
const FORMS: Readonly<Record<string, ErrorForm>> = {
  '/v1/messages': 'messages',
  '/v1/messages/count_tokens': 'messages',
  '/v1/responses': 'responses',
}
const LINE_FEED = 0x0a
/** A comment, which is no event for a client. */
const COMMENT = new TextEncoder().encode(': keep-alive\n\n')
const KEPT_HEAD: HttpHeaders = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' }
/** Bytes of an answer that becomes an event: of an error the rest is left out, any other answer is cut. */
const EVENT_BYTES_MAX = 1_048_576
/** Statuses up to this one are the client's fault. */
const CLIENT_STATUS_MAX = 499

export class ClientAnswer {
  readonly #http: HttpExchange
  readonly #route: string
  readonly #clock: Clock
  readonly #metrics: GatewayMetrics
  readonly #startedMs: number
  readonly #form: ErrorForm
  readonly #keepAliveMs: number
  #head: 'none' | 'kept' | 'stream' | 'whole' | 'whole event' = 'none'
  /** Of the answer that becomes an event. */
  #status = 0
  #pieces: Uint8Array[] = []
  #piecesBytes = 0
  /** When the last bytes were sent; counted only with `keepAliveMs`. */
  #sentMs: number
  #hasBytes = false
  /** The last two bytes sent to the client. */
  #lastByte = LINE_FEED
  #byteBefore = LINE_FEED

  /**
   * `route`: a name of the route table, so that clients cannot make up series of metrics. `keepAliveMs`: 0
   * for no comments.
   */
  constructor(
    http: HttpExchange,
    route: string,
    clock: Clock,
    metrics: GatewayMetrics,
    keepAliveMs: number = 0,
  ) {
    this.#http = http
    this.#route = route
    this.#clock = clock
    this.#metrics = metrics
    this.#startedMs = clock.nowMs()
    this.#sentMs = this.#startedMs
    this.#keepAliveMs = keepAliveMs
    this.#form = FORMS[http.path] ?? 'completions'
  }

  /** The client of a stream waits for its first token. */
  waits(): void {
    if (this.#keepAliveMs === 0 || this.#http.isClosed) return
    const nowMs = this.#clock.nowMs()
    if (nowMs - this.#sentMs < this.#keepAliveMs) return
    if (this.#head === 'none') {
      this.#http.writeHead(200, KEPT_HEAD)
      this.#head = 'kept'
    } else if (this.#head !== 'kept' && (this.#head !== 'stream' || !this.#isBetweenEvents)) return
    this.#sentMs = nowMs
    this.#http.write(COMMENT)
    this.#metrics.keptAlive(this.#route)
  }

  head(status: number, headers: HttpHeaders, decision: Decision): void {
    this.#metrics.head(this.#route, status)
    const isStream = isStreamAnswer(headers)
    if (this.#head === 'kept') {
      this.#head = isStream && status < 400 ? 'stream' : 'whole event'
      this.#status = status
      return
    }
    this.#http.writeHead(status, relayedHeaders(headers, decision))
    this.#head = isStream ? 'stream' : 'whole'
  }

  /** False: the client reads slowly; `onDrain` of its exchange reports when it has caught up. */
  data(bytes: Uint8Array): boolean {
    if (this.#head === 'whole event') {
      this.#piecesBytes += bytes.length
      if (this.#piecesBytes <= EVENT_BYTES_MAX) this.#pieces.push(bytes)
      return true
    }
    if (this.#keepAliveMs > 0) this.#sentMs = this.#clock.nowMs()
    if (!this.#hasBytes) {
      this.#hasBytes = true
      this.#metrics.firstByte(this.#route, this.#clock.nowMs() - this.#startedMs)
    }
    if (bytes.length > 0) {
      this.#byteBefore = bytes.length > 1 ? bytes[bytes.length - 2]! : this.#lastByte
      this.#lastByte = bytes[bytes.length - 1]!
    }
    return this.#http.write(bytes)
  }

  /** Ends an answer that is complete. */
  end(): void {
    if (this.#head !== 'whole event') this.#http.end()
    else if (this.#status < 400 && this.#piecesBytes > EVENT_BYTES_MAX) this.#http.destroy()
    else this.#http.end(answerEvent(this.#status, Buffer.concat(this.#pieces), this.#form))
    this.#metrics.ended(this.#route, this.#clock.nowMs() - this.#startedMs)
  }

  /** Answers a request that went to no worker with an error. Logs errors that the client did not cause. */
  refuse(thrown: unknown, log: Log): void {
    if (this.#http.isClosed) return
    const answer = errorAnswer(thrown, this.#form)
    const { status } = answer
    if (this.#head === 'none') sendAnswer(this.#http, answer)
    else this.#http.end(answerEvent(status, answer.body, this.#form))
    this.#metrics.refused(this.#route, status)
    if (status > CLIENT_STATUS_MAX)
      log.warn({ path: this.#http.path, error: toErrorRecord(thrown) }, 'request failed')
  }

  /** Ends the answer of a request that the fleet failed. `decision`: its last placement. */
  fail(record: ErrorRecord, decision: Decision | undefined): void {
    const error = apiErrorOf(record)
    const isBefore = this.#head === 'none' || this.#head === 'kept'
    const phase = isBefore ? 'before_first_byte' : 'after_first_byte'
    this.#metrics.failed(this.#route, phase, error.status)
    if (this.#head === 'none') {
      const headers = decision === undefined ? {} : decisionHeaders(decision)
      const body = errorBody(error, this.#form)
      const length = { 'content-length': String(body.length) }
      this.#http.writeHead(error.status, { ...error.headers, ...headers, ...length })
      this.#http.end(body)
    } else if (this.#head !== 'whole') {
      // The answer may have stopped inside an event: an empty line ends the event, or changes nothing.
      if (!this.#isBetweenEvents) this.#http.write(Uint8Array.of(LINE_FEED, LINE_FEED))
      this.#http.end(errorEvent(error, this.#form))
    } else {
      // A short answer would look complete to a client that does not check lengths.
      this.#http.destroy()
    }
  }

  get #isBetweenEvents(): boolean {
    return this.#lastByte === LINE_FEED && this.#byteBefore === LINE_FEED
  }
}

/** The headers that explain a decision. */
export function decisionHeaders(decision: Decision): Record<string, string> {
  return {
    'x-homing-decision': decision.id,
    'x-homing-worker': decision.worker,
    'x-homing-overlap-blocks': String(decision.overlapBlocks),
    'x-homing-trust': decision.trust,
    ...(decision.prefillWorker === undefined ? {} : { 'x-homing-prefill-worker': decision.prefillWorker }),
  }
}

function relayedHeaders(headers: HttpHeaders, decision: Decision): HttpHeaders {
  // What begins with x-homing- is the router's to say.
  const relayed = passedOn(headers, name => name.startsWith('x-homing-'))
  return Object.assign(relayed, decisionHeaders(decision))
}
