/**
 * Client answer: the bytes sent to one client, and their counters. An answer has at most one head and ends
 * exactly once: complete, with an error in OpenAI's form, or cut if the client could not tell an error from
 * the answer.
 */

import { type Clock, type ErrorRecord, type Log, toErrorRecord } from '@homing/base'
import { apiErrorOf, errorAnswer, sendAnswer } from '@homing/http'
import { type ErrorForm, errorBody, errorEvent, isStreamAnswer } from '@homing/openai'
import type { Decision } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { GatewayMetrics } from './gateway-metrics.ts'

/** Paths whose errors have a form of their own. */
const FORMS: Readonly<Record<string, ErrorForm>> = {
  '/v1/messages': 'messages',
  '/v1/messages/count_tokens': 'messages',
  '/v1/responses': 'responses',
}
const LINE_FEED = 0x0a
/** Statuses up to this one are the client's fault. */
const CLIENT_STATUS_MAX = 499

/** Headers of one connection only, and those that a new body framing makes wrong (RFC 9110 §7.6.1). */
const NOT_RELAYED: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

export class ClientAnswer {
  readonly #http: HttpExchange
  readonly #route: string
  readonly #clock: Clock
  readonly #metrics: GatewayMetrics
  readonly #startedMs: number
  readonly #form: ErrorForm
  #head: 'none' | 'stream' | 'whole' = 'none'
  #hasBytes = false
  /** The last two bytes sent to the client. */
  #lastByte = LINE_FEED
  #byteBefore = LINE_FEED

  /** `route`: a name of the route table, so that clients cannot make up series of metrics. */
  constructor(http: HttpExchange, route: string, clock: Clock, metrics: GatewayMetrics) {
    this.#http = http
    this.#route = route
    this.#clock = clock
    this.#metrics = metrics
    this.#startedMs = clock.nowMs()
    this.#form = FORMS[http.path] ?? 'completions'
  }

  head(status: number, headers: HttpHeaders, decision: Decision): void {
    this.#http.writeHead(status, relayedHeaders(headers, decision))
    this.#head = isStreamAnswer(headers) ? 'stream' : 'whole'
    this.#metrics.head(this.#route, status)
  }

  /** False: the client reads slowly; `onDrain` of its exchange reports when it has caught up. */
  data(bytes: Uint8Array): boolean {
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
    this.#http.end()
    this.#metrics.ended(this.#route, this.#clock.nowMs() - this.#startedMs)
  }

  /** Answers a request that went to no worker with an error. Logs errors that the client did not cause. */
  refuse(thrown: unknown, log: Log): void {
    if (this.#http.isClosed) return
    const status = sendAnswer(this.#http, errorAnswer(thrown, this.#form))
    this.#metrics.refused(this.#route, status)
    if (status > CLIENT_STATUS_MAX)
      log.warn({ path: this.#http.path, error: toErrorRecord(thrown) }, 'request failed')
  }

  /** Ends the answer of a request that the fleet failed. `decision`: its last placement. */
  fail(record: ErrorRecord, decision: Decision | undefined): void {
    const error = apiErrorOf(record)
    const phase = this.#head === 'none' ? 'before_first_byte' : 'after_first_byte'
    this.#metrics.failed(this.#route, phase, error.status)
    if (this.#head === 'none') {
      const headers = decision === undefined ? {} : decisionHeaders(decision)
      const body = errorBody(error, this.#form)
      const length = { 'content-length': String(body.length) }
      this.#http.writeHead(error.status, { ...error.headers, ...headers, ...length })
      this.#http.end(body)
    } else if (this.#head === 'stream') {
      // The answer may have stopped inside an event: an empty line ends the event, or changes nothing.
      const isBetweenEvents = this.#lastByte === LINE_FEED && this.#byteBefore === LINE_FEED
      if (!isBetweenEvents) this.#http.write(Uint8Array.of(LINE_FEED, LINE_FEED))
      this.#http.end(errorEvent(error, this.#form))
    } else {
      // A short answer would look complete to a client that does not check lengths.
      this.#http.destroy()
    }
  }
}

/** The headers that explain a decision. */
export function decisionHeaders(decision: Decision): Record<string, string> {
  return {
    'x-homing-decision': decision.id,
    'x-homing-worker': decision.worker,
    'x-homing-overlap-blocks': String(decision.overlapBlocks),
    'x-homing-trust': decision.trust,
  }
}

function relayedHeaders(headers: HttpHeaders, decision: Decision): HttpHeaders {
  const relayed: Record<string, string | readonly string[] | undefined> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (!NOT_RELAYED.has(name)) relayed[name] = value
  }
  return Object.assign(relayed, decisionHeaders(decision))
}
