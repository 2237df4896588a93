/**
 * Stream continuation: has another worker go on with a stream whose worker is gone, so that its client sees
 * one answer (docs/reliability.md). One for each exchange; which step comes when is the exchange's.
 *
 *   passing ──its worker fails──▶ `next` ──▶ place    a completion of the ids of prompt and delivered text
 *                                       ├──▶ anew     nothing of the text was delivered: the same request
 *                                       ├──▶ end      all of it was delivered: only its end was missing
 *                                       └──▶ unfit    why no worker can go on with it
 *
 * What was delivered is tokenized as a text of its own behind the prompt. A tokenizer may cut it otherwise
 * than the engine did; the text is the same.
 *
 * Bounds   `migrationsMax` continuations for each request; the text that streams keep, together, is within
 *          ContinuationMemory: a stream for which there is no room cannot be continued.
 */

import type { Clock } from '@homing/base'
import {
  answerLimits,
  ContinuedStream,
  continuedRequest,
  type Delivered,
  DeliveredStream,
  textRequest,
  unfitRequest,
  wantsUsage,
} from '@homing/openai'
import type { HttpExchange } from '@homing/transport'
import type { ContinuationMemory, UnfitReason } from './continuation-memory.ts'
import type { LegsRequest } from './exchange-legs.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'

export type ContinuationStep =
  /** `deliveredTokens`: of the answer, behind its prompt. */
  | { readonly kind: 'place'; readonly ready: LegsRequest; readonly deliveredTokens: number }
  | { readonly kind: 'end'; readonly bytes: Uint8Array }
  | { readonly kind: 'unfit'; readonly why: UnfitReason }

export interface ContinuationLimits {
  /** Workers that may go on with one stream, one after the other; default 0: none. */
  readonly migrationsMax?: number
  /** Tokens of prompt and answer up to which a stream is continued; undefined: any number. */
  readonly migrationTokensMax?: number | undefined
  /** Text that all streams of this gateway keep, in bytes; default 0. */
  readonly migrationBytesMax?: number
}

/** What reads requests, as far as a continuation needs it. */
export interface ContinuationReader {
  /** The ids of the prompt of this body; undefined: they are not known exactly. */
  exactIds(
    http: HttpExchange,
    route: 'chat' | 'completions',
    body: Uint8Array,
  ): Promise<Int32Array | undefined>
  /** The request of the same client for this completion. */
  continued(http: HttpExchange, body: Uint8Array, requestId: string): Promise<LegsRequest>
  /** Tokens that the model takes, prompt and answer together; undefined: not known. */
  modelTokens(model: string): number | undefined
}

export interface ContinuationParts {
  readonly limits: ContinuationLimits
  readonly memory: ContinuationMemory
  readonly reader: ContinuationReader
  readonly metrics: Pick<GatewayMetrics, 'continuation'>
  readonly clock: Clock
}

/** Attempts to have a text tokenized, and the pause before the second one. */
const READS_MAX = 4
const READ_PAUSE_MS = 200

export class StreamContinuation {
  readonly #parts: ContinuationParts
  readonly #http: HttpExchange
  #delivered: DeliveredStream | undefined
  #stream: ContinuedStream | undefined
  /** The request as its client sent it. */
  #given: LegsRequest | undefined
  #tries = 0

  constructor(parts: ContinuationParts, http: HttpExchange) {
    this.#parts = parts
    this.#http = http
  }

  /** Another worker goes on, or has gone on, with it. */
  get isUnderWay(): boolean {
    return this.#tries > 0
  }

  /** Workers that failed in the middle, and after which another one was to go on. */
  get tries(): number {
    return this.#tries
  }

  /** The request as its client sent it. */
  get given(): LegsRequest | undefined {
    return this.#given
  }

  /** The head of its first answer comes: of a stream or not. */
  begins(ready: LegsRequest, isStream: boolean): void {
    const route = ready.legs?.route
    const { migrationsMax = 0 } = this.#parts.limits
    if (this.#given !== undefined || migrationsMax === 0 || !isStream) return
    if (route !== 'chat' && route !== 'completions') return
    this.#given = ready
    this.#delivered = new DeliveredStream(route, this.#parts.memory.take)
  }

  /** What the client gets of whole events of the worker. */
  passed(bytes: Uint8Array): Uint8Array {
    const passing = this.#stream?.convert(bytes) ?? bytes
    this.#delivered?.push(passing)
    return passing
  }

  /** Why no worker goes on with it, as far as that is known now; undefined: one may. */
  get unfit(): UnfitReason | undefined {
    const { migrationsMax = 0 } = this.#parts.limits
    if (this.#delivered === undefined) return migrationsMax === 0 ? 'limit' : 'route'
    if (this.#tries >= migrationsMax) return 'limit'
    if (this.#given?.routing.pinnedInstanceId !== undefined) return 'pinned'
    return this.#delivered.unfit
  }

  /** The chunk with which a stream ends has not passed, and another worker may send it. */
  get isUnfinished(): boolean {
    return this.unfit === undefined && this.#delivered?.isFinished === false
  }

  /** What to do for the rest. Only while `unfit` is undefined. Rejects if the request cannot be read. */
  async next(): Promise<ContinuationStep> {
    this.#tries++
    const step = await this.#next(this.#given!, this.#delivered!.read())
    this.#parts.metrics.continuation(step.kind === 'unfit' ? step.why : step.kind)
    return step
  }

  /** Frees what it keeps. */
  close(): void {
    this.#delivered?.close()
  }

  async #next(given: LegsRequest, delivered: Delivered): Promise<ContinuationStep> {
    const { reader, limits } = this.#parts
    const body = given.upstream.body!
    const form = given.legs!.route === 'chat' ? 'chat' : 'completions'
    const { text, sample, isFinished } = delivered
    if (text === '' && !isFinished) {
      const { promptTokens } = given.routing
      this.#stream = new ContinuedStream({ form, sample, promptTokens, deliveredTokens: 0, isAnew: true })
      return { kind: 'place', ready: given, deliveredTokens: 0 }
    }
    const why = unfitRequest(body)
    if (why !== undefined) return { kind: 'unfit', why }
    const { model, unknownPromptReason } = given.routing
    if (unknownPromptReason !== undefined) return { kind: 'unfit', why: 'prompt' }
    const promptIds = await this.#ids(form, body)
    const textIds = promptIds && (await this.#ids('completions', textRequest(model, text)))
    if (promptIds === undefined || textIds === undefined) return { kind: 'unfit', why: 'prompt' }
    const ids = new Int32Array(promptIds.length + textIds.length)
    ids.set(promptIds)
    ids.set(textIds, promptIds.length)
    if (ids.length > (limits.migrationTokensMax ?? Number.POSITIVE_INFINITY))
      return { kind: 'unfit', why: 'too_long' }
    const [promptTokens, deliveredTokens] = [promptIds.length, textIds.length]
    const stream = new ContinuedStream({ form, sample, promptTokens, deliveredTokens, isAnew: false })
    const asked = answerLimits(body, form === 'chat')
    const room = reader.modelTokens(model)
    const tokensMax = asked.tokensMax ?? (room === undefined ? undefined : room - promptTokens)
    if (tokensMax === undefined && !isFinished) return { kind: 'unfit', why: 'no_limit' }
    const left = (tokensMax ?? 0) - deliveredTokens
    if (isFinished || left <= 0) {
      const bytes = stream.ending({
        hasFinish: isFinished,
        wantsUsage: wantsUsage(body) && !delivered.hasUsage,
      })
      return { kind: 'end', bytes }
    }
    const tokensMin = asked.tokensMin === undefined ? undefined : asked.tokensMin - deliveredTokens
    const next = continuedRequest(body, ids, {
      tokensMax: left,
      tokensMin: tokensMin !== undefined && tokensMin > 0 ? tokensMin : undefined,
    })
    const ready = await reader.continued(this.#http, next, given.routing.requestId)
    this.#stream = stream
    return { kind: 'place', ready, deliveredTokens }
  }

  /**
   * The engine that is asked to tokenize may be the one that has just died, or others that die with it: what
   * was known before is asked again.
   */
  async #ids(route: 'chat' | 'completions', body: Uint8Array): Promise<Int32Array | undefined> {
    for (let attempt = 1; ; attempt++) {
      const ids = await this.#parts.reader.exactIds(this.#http, route, body)
      if (ids !== undefined || attempt === READS_MAX) return ids
      await new Promise<void>(resolve => this.#parts.clock.after(READ_PAUSE_MS * attempt, resolve))
    }
  }
}
