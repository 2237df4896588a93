/**
 * Access note: what the access log will say about one request. Each part that serves the request writes its
 * share; the note becomes one log line when the answer is over. A request that is traced has spans besides,
 * which hear the same.
 *
 * A note has no place for a body, a header, a query or a key. Names that clients choose are cut to a fixed
 * length.
 */

import type { WaitingHints } from '@homing/actors/queue'
import type { ErrorRecord } from '@homing/base'
import type { AccessLine } from '@homing/http'
import type { UsageReport } from '@homing/openai'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'
import type { Stage } from './request-metrics.ts'
import type { RequestSpans } from './request-spans.ts'

/** What is known before the request is read. */
export interface AccessStart {
  /** Time of arrival, ISO 8601. */
  readonly time: string
  readonly method?: string
  /** Without the query, which may hold secrets. */
  readonly path?: string
  /** The client's id. A request without one gets an id from the router when it is read. */
  readonly requestId?: string | undefined
}

/** How its answer ended. */
export interface AccessEnd {
  /** Name of its route in metrics. */
  readonly route: string
  /** Undefined: the client left before an answer began. */
  readonly status: number | undefined
  readonly requestBytes?: number | undefined
  readonly answerBytes?: number
  /** Milliseconds since its arrival. */
  readonly durationMs: number
  /** `stalled`: the client stopped reading and was cut off. */
  readonly clientGone?: 'left' | 'stalled' | undefined
}

/** What became of its last placement. */
export interface AccessResult {
  readonly outcome: Delivery['outcome']
  readonly error: ErrorRecord | undefined
  readonly usage: UsageReport | undefined
  readonly isStream: boolean | undefined
}

const CHARACTERS_MAX = 256

export class AccessNote {
  /** Undefined: the request is not traced. */
  readonly spans: RequestSpans | undefined
  readonly #start: AccessStart
  readonly #stages: Partial<Record<Stage, number>> = {}
  #routing: RoutingRequest | undefined
  #tenant: string | undefined
  #decision: Decision | undefined
  #attempts = 0
  #firstTokenMs: number | undefined
  #result: AccessResult | undefined
  #error: string | undefined

  constructor(start: AccessStart, spans?: RequestSpans) {
    this.#start = start
    this.spans = spans
  }

  /** Adds the time of a stage, in milliseconds; times of a repeated stage are summed. */
  stage(stage: Stage, elapsedMs: number): void {
    this.#stages[stage] = (this.#stages[stage] ?? 0) + elapsedMs
    this.spans?.stage(stage, elapsedMs)
  }

  /** Its client has shown a key of this name, which is its tenant. */
  client(name: string): void {
    this.#tenant = name
    this.spans?.client(name)
  }

  read(routing: RoutingRequest, waiting: WaitingHints | undefined): void {
    this.#routing = routing
    this.spans?.read(routing)
    this.#tenant = waiting?.tenant ?? this.#tenant
  }

  decided(decision: Decision): void {
    this.#decision = decision
    this.#attempts++
    this.spans?.decided(decision)
    this.stage('lookup', decision.lookupMs)
    this.stage('decide', decision.decisionMs)
  }

  /** Notes the first token of a stream, in milliseconds since the arrival. */
  firstToken(elapsedMs: number): void {
    this.#firstTokenMs = elapsedMs
  }

  left(result: AccessResult): void {
    this.#result = result
    this.spans?.left(result)
  }

  /** The request was answered with this error and was not placed. */
  refused(code: string): void {
    this.#error = code
    this.spans?.refused(code)
  }

  line({ route, status, requestBytes, answerBytes, durationMs, clientGone }: AccessEnd): AccessLine {
    const { time, method, path } = this.#start
    const { outcome, error, usage, isStream } = this.#result ?? {}
    const decision = this.#decision
    const { model, requestId, promptTokens = 0, estimate } = this.#routing ?? {}
    const { read, tokenize, place, lookup, decide, connect, call } = this.#stages
    const isRefused = decision === undefined && (status ?? 0) >= 400
    const waitMs = place === undefined ? undefined : Math.max(0, place - (decide ?? 0))
    return {
      time,
      request_id: cut(requestId ?? this.#start.requestId),
      method: cut(method),
      path: cut(path),
      route,
      status,
      outcome: clientGone === 'stalled' ? clientGone : isRefused ? 'refused' : (outcome ?? ended(clientGone)),
      error: error?.code ?? this.#error,
      model: model === '' ? undefined : cut(model),
      tenant: this.#tenant === '' ? undefined : cut(this.#tenant),
      stream: isStream,
      decision: decision?.id,
      worker: decision?.worker,
      trust: decision?.trust,
      attempts: this.#attempts === 0 ? undefined : this.#attempts,
      prompt_tokens:
        usage?.promptTokens ?? (estimate === undefined && promptTokens > 0 ? promptTokens : undefined),
      predicted_tokens: decision?.predictedTokens,
      cached_tokens: usage?.cachedTokens,
      output_tokens: usage?.completionTokens,
      request_bytes: requestBytes,
      answer_bytes: answerBytes,
      read_ms: rounded(read),
      tokenize_ms: rounded(tokenize),
      place_ms: rounded(place),
      wait_ms: rounded(waitMs),
      decide_ms: rounded(decide),
      lookup_ms: rounded(lookup),
      connect_ms: rounded(connect),
      call_ms: rounded(call),
      ttft_ms: rounded(this.#firstTokenMs),
      duration_ms: rounded(durationMs),
    }
  }
}

function ended(clientGone: AccessEnd['clientGone']): string {
  return clientGone === undefined ? 'ok' : 'aborted'
}

function cut(text: string | undefined): string | undefined {
  return text === undefined || text.length <= CHARACTERS_MAX ? text : `${text.slice(0, CHARACTERS_MAX)}…`
}

/** Rounds to microseconds. */
function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000
}
