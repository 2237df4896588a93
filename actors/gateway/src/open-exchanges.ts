/**
 * The open exchanges: client connections whose answer the dispatcher is relaying.
 *
 * An exchange is opened when its request is dispatched and closed exactly once: by the last answer,
 * by a failure, or by the client. Numbers are never reused.
 */

import type { ActorRef } from '@homing/actor'
import type { Clock } from '@homing/clock'
import type { AnswerMessage, DispatcherMessage } from '@homing/dispatcher'
import type { ErrorRecord } from '@homing/errors'
import { errorBody, errorEvent } from '@homing/openai'
import type { Decision } from '@homing/router'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { BodyHold } from './bodies.ts'
import { apiErrorOf } from './error-kinds.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'

interface OpenExchange {
  readonly http: HttpExchange
  readonly route: string
  readonly startedMs: number
  /** Of the request's body, which the dispatcher keeps as long as the exchange is open. */
  readonly hold: BodyHold
  isDraining: boolean
  hasBytes: boolean
  head: 'none' | 'stream' | 'whole'
  /** The last byte that the client was sent, and the one before it. */
  lastByte: number
  byteBefore: number
}

const LINE_FEED = 0x0a

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

export class OpenExchanges {
  readonly #open = new Map<number, OpenExchange>()
  readonly #dispatcher: ActorRef<DispatcherMessage>
  readonly #clock: Clock
  readonly #metrics: GatewayMetrics
  #next = 1

  constructor(dispatcher: ActorRef<DispatcherMessage>, clock: Clock, metrics: GatewayMetrics) {
    this.#dispatcher = dispatcher
    this.#clock = clock
    this.#metrics = metrics
  }

  get size(): number {
    return this.#open.size
  }

  /** Registers a client; from now on its leaving aborts the dispatch of the number returned. */
  open(http: HttpExchange, route: string, startedMs: number, hold: BodyHold): number {
    hold.passOn()
    const number = this.#next++
    this.#open.set(number, {
      http,
      route,
      startedMs,
      hold,
      isDraining: false,
      hasBytes: false,
      head: 'none',
      lastByte: LINE_FEED,
      byteBefore: LINE_FEED,
    })
    http.onClientGone(() => {
      if (!this.#close(number)) return
      this.#metrics.clientGone(route)
      this.#dispatcher.tell({ type: 'abort', exchange: number })
    })
    return number
  }

  answer(message: AnswerMessage): void {
    const exchange = this.#open.get(message.exchange)
    if (exchange === undefined) return
    switch (message.type) {
      case 'answerHead':
        exchange.http.writeHead(message.status, relayedHeaders(message.headers, message.decision))
        exchange.head = isEventStream(message.headers) ? 'stream' : 'whole'
        this.#metrics.head(exchange.route, message.status)
        return
      case 'answerData':
        this.#data(message.exchange, exchange, message.bytes)
        return
      case 'answerEnd':
        this.#close(message.exchange)
        exchange.http.end()
        this.#metrics.ended(exchange.route, this.#clock.nowMs() - exchange.startedMs)
        return
      case 'answerFailed':
        this.#close(message.exchange)
        this.#fail(exchange, message.error, message.decision)
    }
  }

  /** Ends every exchange with an error: its grace is over. */
  endAll(error: ErrorRecord): void {
    for (const [number, exchange] of [...this.#open]) {
      this.#close(number)
      this.#fail(exchange, error, undefined)
      this.#dispatcher.tell({ type: 'abort', exchange: number })
    }
  }

  /** False: it was closed already. */
  #close(number: number): boolean {
    this.#open.get(number)?.hold.release()
    return this.#open.delete(number)
  }

  #data(number: number, exchange: OpenExchange, bytes: Uint8Array): void {
    if (!exchange.hasBytes) {
      exchange.hasBytes = true
      this.#metrics.firstByte(exchange.route, this.#clock.nowMs() - exchange.startedMs)
    }
    if (bytes.length > 0) {
      exchange.byteBefore = bytes.length > 1 ? bytes[bytes.length - 2]! : exchange.lastByte
      exchange.lastByte = bytes[bytes.length - 1]!
    }
    if (exchange.http.write(bytes) || exchange.isDraining) return
    exchange.isDraining = true
    this.#dispatcher.tell({ type: 'pause', exchange: number })
    exchange.http.onDrain(() => {
      exchange.isDraining = false
      this.#dispatcher.tell({ type: 'resume', exchange: number })
    })
  }

  #fail(exchange: OpenExchange, record: ErrorRecord, decision: Decision | undefined): void {
    const { http, route, head } = exchange
    const error = apiErrorOf(record)
    this.#metrics.failed(route, head === 'none' ? 'before_first_byte' : 'after_first_byte', error.status)
    if (head === 'none') {
      const headers = decision === undefined ? {} : decisionHeaders(decision)
      const body = errorBody(error)
      http.writeHead(error.status, { ...error.headers, ...headers, 'content-length': String(body.length) })
      http.end(body)
    } else if (head === 'stream') {
      // The answer may have stopped inside an event: an empty line ends that, or changes nothing.
      const isBetweenEvents = exchange.lastByte === LINE_FEED && exchange.byteBefore === LINE_FEED
      if (!isBetweenEvents) http.write(Uint8Array.of(LINE_FEED, LINE_FEED))
      http.end(errorEvent(error))
    } else {
      // A short answer would look whole to a client that does not check lengths.
      http.destroy()
    }
  }
}

function isEventStream(headers: HttpHeaders): boolean {
  return String(headers['content-type'] ?? '').startsWith('text/event-stream')
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
