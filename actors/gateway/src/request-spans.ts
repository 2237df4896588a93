/**
 * Request spans: what a trace shows of one request, each stage as long as it took.
 *
 *   POST completions       method and route, as metrics name it: up to the last byte of its answer
 *     receive              its body
 *     tokenize
 *     queue                until there was room
 *     decide               the choice of the worker, which is named
 *     call                 one for each worker that was asked: another try, a prefill leg, a continuation
 *       first byte         until something of the answer could be passed on
 *       stream             the rest of it
 *
 * The context that came with the request is its link, or its parent where clients are trusted; engines get
 * that of their `call`. Attributes are names, counts and ids: no text of a prompt, no header, no query.
 */

import type { Clock, ErrorRecord } from '@homing/base'
import type { UsageReport } from '@homing/openai'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { Attributes, Context, Link, Span, Tracer } from '@opentelemetry/api'
import type { Stage } from './request-metrics.ts'

/** What of its answer a request reports. */
interface SpanResult {
  readonly outcome: Delivery['outcome']
  readonly error: ErrorRecord | undefined
  readonly usage: UsageReport | undefined
}

interface SpanEnd {
  readonly status: number | undefined
  readonly clientGone?: string | undefined
}

/** What spans are made with. */
export interface SpanMaker {
  readonly tracer: Tracer
  /** `span` as the parent of others. */
  readonly inside: (span: Span) => Context
  /** Where the trace of a request begins: what came with it is a parent or a link, or there is neither. */
  readonly outside: (headers: HttpHeaders) => { readonly parent: Context; readonly links: Link[] }
  /** `traceparent` and `tracestate` of a context. */
  readonly headersOf: (context: Context) => Readonly<Record<string, string>>
}

/** SpanKind and SpanStatusCode of the specification. */
const [SERVER, CLIENT] = [1, 2]
const ERROR = 2
/** Stages that are spans of their own name; the others are parts of those. */
const STAGE_NAMES: Partial<Record<Stage, string>> = { read: 'receive', tokenize: 'tokenize' }
const HEADERS = ['traceparent', 'tracestate']

export class RequestSpans {
  readonly #maker: SpanMaker
  readonly #clock: Clock
  /** Unix milliseconds at time 0 of the clock: a change of the wall clock moves no stage. */
  readonly #originMs: number
  readonly #span: Span
  readonly #context: Context
  #decision: Decision | undefined
  /** Code of the error with which it ended, as far as it has; of a worker that was left, none stays. */
  #error: string | undefined

  constructor(maker: SpanMaker, clock: Clock, http: HttpExchange, route: string) {
    this.#maker = maker
    this.#clock = clock
    this.#originMs = clock.wallMs() - clock.nowMs()
    const { parent, links } = maker.outside(http.headers)
    this.#span = maker.tracer.startSpan(
      `${http.method} ${route}`,
      {
        kind: SERVER!,
        startTime: this.#now,
        attributes: { 'http.request.method': http.method, 'http.route': route, 'url.path': http.path },
        links,
      },
      parent,
    )
    this.#context = maker.inside(this.#span)
  }

  /** It took `elapsedMs`, up to now. */
  stage(stage: Stage, elapsedMs: number): void {
    const name = STAGE_NAMES[stage]
    if (name !== undefined) this.#past(name, elapsedMs, 0, {})
    else if (stage === 'place') this.#placed(elapsedMs)
  }

  client(name: string): void {
    this.#span.setAttribute('homing.tenant', name)
  }

  read({ model, requestId, promptTokens, isStream }: RoutingRequest): void {
    this.#span.setAttributes({
      'gen_ai.request.model': model,
      'homing.request_id': requestId,
      'homing.prompt_tokens': promptTokens,
      'homing.stream': isStream === true,
    })
  }

  decided(decision: Decision): void {
    this.#decision = decision
  }

  left({ outcome, error, usage }: SpanResult): void {
    this.#span.setAttributes({ 'homing.outcome': outcome, ...usageAttributes(usage) })
    this.#error = error?.code
  }

  refused(code: string): void {
    this.#error = code
  }

  end({ status, clientGone }: SpanEnd): void {
    if (status !== undefined) this.#span.setAttribute('http.response.status_code', status)
    if (clientGone !== undefined) this.#span.setAttribute('homing.client_gone', clientGone)
    if (this.#error !== undefined) this.#span.setAttribute('error.type', this.#error)
    if ((status ?? 0) >= 500) this.#span.setStatus({ code: ERROR })
    this.#span.end(this.#now)
  }

  /** A worker is asked. */
  call(decision: Decision, attempt: number, path: string): CallSpans {
    const span = this.#maker.tracer.startSpan(
      'call',
      {
        kind: CLIENT!,
        startTime: this.#now,
        attributes: {
          'homing.worker': decision.worker,
          'homing.decision': decision.id,
          'homing.attempt': attempt,
          'url.path': path.split('?', 1)[0]!,
        },
      },
      this.#context,
    )
    return new CallSpans(this.#maker, span, () => this.#now)
  }

  #placed(elapsedMs: number): void {
    const decision = this.#decision
    const decideMs = Math.min(elapsedMs, decision?.decisionMs ?? 0)
    this.#past('queue', elapsedMs, decideMs, {})
    if (decision === undefined) return
    this.#past('decide', decideMs, 0, {
      'homing.decision': decision.id,
      'homing.worker': decision.worker,
      'homing.trust': decision.trust,
      'homing.overlap_blocks': decision.overlapBlocks,
      'homing.predicted_tokens': decision.predictedTokens,
    })
  }

  /** A child from `beganMs` ago to `endedMs` ago. */
  #past(name: string, beganMs: number, endedMs: number, attributes: Attributes): void {
    const now = this.#now
    const options = { startTime: now - beganMs, attributes }
    this.#maker.tracer.startSpan(name, options, this.#context).end(now - endedMs)
  }

  get #now(): number {
    return this.#originMs + this.#clock.nowMs()
  }
}

/** One call to a worker. */
export class CallSpans {
  readonly #maker: SpanMaker
  readonly #span: Span
  readonly #now: () => number
  readonly #beganAt: number
  #firstByteAt: number | undefined
  #isOver = false

  constructor(maker: SpanMaker, span: Span, now: () => number) {
    this.#maker = maker
    this.#span = span
    this.#now = now
    this.#beganAt = now()
  }

  /** The headers of the request, with this call as the parent of what the engine does. */
  headers(given: HttpHeaders): HttpHeaders {
    const kept: Record<string, HttpHeaders[string]> = {}
    for (const name in given) if (!HEADERS.includes(name)) kept[name] = given[name]
    return Object.assign(kept, this.#maker.headersOf(this.#maker.inside(this.#span)))
  }

  connected(): void {
    this.#span.addEvent('connected', undefined, this.#now())
  }

  /** Something of the answer can be passed on. */
  firstByte(status: number): void {
    this.#firstByteAt ??= this.#now()
    this.#span.setAttribute('http.response.status_code', status)
  }

  /** Idempotent. `fault`: why it ended without a whole answer. */
  end(usage: UsageReport | undefined, fault?: string): void {
    if (this.#isOver) return
    this.#isOver = true
    const now = this.#now()
    const first = this.#firstByteAt
    this.#past('first byte', this.#beganAt, first ?? now)
    if (first !== undefined) this.#past('stream', first, now)
    this.#span.setAttributes(usageAttributes(usage))
    if (fault !== undefined) this.#span.setStatus({ code: ERROR, message: fault })
    this.#span.end(now)
  }

  #past(name: string, startTime: number, endTime: number): void {
    this.#maker.tracer.startSpan(name, { startTime }, this.#maker.inside(this.#span)).end(endTime)
  }
}

function usageAttributes(usage: UsageReport | undefined): Attributes {
  return {
    'gen_ai.usage.input_tokens': usage?.promptTokens,
    'gen_ai.usage.output_tokens': usage?.completionTokens,
    'homing.cached_tokens': usage?.cachedTokens,
  }
}
