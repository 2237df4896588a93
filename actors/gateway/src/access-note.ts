/**
 * Access note: what the access log is to say of one request. Those who serve the request write on it, and it
 * becomes one line when the answer is over.
 *
 * It has no place for a body, a header, a query or a key. What clients name themselves is cut to a length.
 */

import type { WaitingHints } from '@homing/actors/queue'
import type { ErrorRecord } from '@homing/base'
import type { AccessLine } from '@homing/http'
import type { UsageReport } from '@homing/openai'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'
import type { Stage } from './request-metrics.ts'

/** What is known before anybody looks at a request. */
export interface AccessStart {
  /** ISO 8601, of its arrival. */
  readonly time: string
  readonly method?: string
  /** Without the query, which may say what nobody else is to know. */
  readonly path?: string
  /** Given by the client; one that is read without has an id of the router's. */
  readonly requestId?: string | undefined
}

/** How its answer ended. */
export interface AccessEnd {
  /** Name of its route in metrics. */
  readonly route: string
  /** Undefined: the client left before there was one. */
  readonly status: number | undefined
  readonly requestBytes?: number | undefined
  readonly answerBytes?: number
  /** From its arrival, in milliseconds. */
  readonly durationMs: number
  /** `stalled`: the client took nothing and was cut. */
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
  readonly #start: AccessStart
  readonly #stages: Partial<Record<Stage, number>> = {}
  #routing: RoutingRequest | undefined
  #tenant: string | undefined
  #decision: Decision | undefined
  #attempts = 0
  #firstTokenMs: number | undefined
  #result: AccessResult | undefined
  #error: string | undefined

  constructor(start: AccessStart) {
    this.#start = start
  }

  /** A stage took so long, in milliseconds; of one that is repeated, all times together. */
  stage(stage: Stage, elapsedMs: number): void {
    this.#stages[stage] = (this.#stages[stage] ?? 0) + elapsedMs
  }

  read(routing: RoutingRequest, waiting: WaitingHints | undefined): void {
    this.#routing = routing
    this.#tenant = waiting?.tenant
  }

  decided(decision: Decision): void {
    this.#decision = decision
    this.#attempts++
    this.stage('lookup', decision.lookupMs)
    this.stage('decide', decision.decisionMs)
  }

  /** The first token of a stream, in milliseconds from the arrival. */
  firstToken(elapsedMs: number): void {
    this.#firstTokenMs = elapsedMs
  }

  left(result: AccessResult): void {
    this.#result = result
  }

  /** It was answered with this error, and placed nowhere. */
  refused(code: string): void {
    this.#error = code
  }

  line({ route, status, requestBytes, answerBytes, durationMs, clientGone }: AccessEnd): AccessLine {
    const { time, method, path } = this.#start
    const { outcome, error, usage, isStream } = this.#result ?? {}
    const decision = this.#decision
    const { model, requestId, promptTokens = 0 } = this.#routing ?? {}
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
      prompt_tokens: usage?.promptTokens ?? (promptTokens > 0 ? promptTokens : undefined),
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

/** To microseconds. */
function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000
}
