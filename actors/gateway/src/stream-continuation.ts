/**
 * Stream continuation: has another worker go on with a stream whose worker is gone, so that its client sees
 * one answer (docs/reliability.md). One for each exchange; which step comes when is the exchange's.
 *
 *   passing ──its worker fails──▶ `next` ──▶ place    a completion of the ids of prompt and delivered text
 *                                       ├──▶ anew     nothing was delivered: the same request
 *                                       ├──▶ end      all of it was delivered: only its end was missing
 *                                       └──▶ unfit    why no worker can go on with it
 *
 * What was delivered is tokenized as a text of its own behind the prompt. A tokenizer may cut it otherwise
 * than the engine did; the text is the same. Of a stream that has token ids (`return_token_ids`) these go
 * behind the prompt, so that it is continued exactly. An engine that ignores that member is continued by its
 * text, without ids.
 *
 * Bounds   `migrationsMax` continuations for each request; the text or the ids that streams keep, together,
 *          are within ContinuationMemory: a stream for which there is no room cannot be continued.
 */

import { type Clock, type ErrorRecord, toErrorRecord } from '@homing/base'
import type { BodyHold } from '@homing/http'
import {
  type AlikeEvents,
  answerLimits,
  beforeGivenUp,
  ContinuedStream,
  continuedRequest,
  type Delivered,
  DeliveredStream,
  endsInStop,
  engineErrorOf,
  mayHoldText,
  streamEnd,
  textRequest,
  type UsageReport,
  unfitRequest,
  wantsUsage,
} from '@homing/openai'
import type { RoutingRequest } from '@homing/placement'
import type { HttpExchange } from '@homing/transport'
import type { ContinuationMemory, UnfitReason } from './continuation-memory.ts'
import type { LegsRequest } from './exchange-legs.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { TokenPrompt } from './tokens/token-prompt.ts'

export type ContinuationStep =
  /** `deliveredTokens`: of the answer, behind its prompt. */
  | { readonly kind: 'place'; readonly ready: LegsRequest; readonly deliveredTokens: number }
  | { readonly kind: 'end'; readonly bytes: Uint8Array }
  | { readonly kind: 'unfit'; readonly why: UnfitReason }
  | { readonly kind: 'unread'; readonly error: ErrorRecord }

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
  /**
   * The ids of the prompt of this body; undefined: they are not known exactly. `hold`: of the body, where it
   * is not a body of its own.
   */
  exactIds(
    http: HttpExchange,
    given: {
      readonly route: 'chat' | 'completions'
      readonly body: Uint8Array
      readonly hold?: BodyHold | undefined
    },
  ): Promise<Int32Array | undefined>
  /** The same request for this completion: where it may go, and what it counts for, is as its client said. */
  continued(http: HttpExchange, body: Uint8Array, routing: RoutingRequest): Promise<LegsRequest>
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

interface Before {
  readonly promptTokens: number
  readonly deliveredTokens: number
}

/** Attempts to have a text tokenized, and the pause before the second one. */
const READS_MAX = 4
const READ_PAUSE_MS = 200

/**
 * Put before a delivered text to tokenize it, since a tokenizer may treat the beginning of a text otherwise
 * than the same text behind another one (SentencePiece puts a space before it). The first that stays a token
 * of its own counts: a line feed is one piece with line feeds behind it, and so is a sign. Behind a letter no
 * tokenizer joins one.
 */
const BEFORE_TEXT = ['\n', '|', 'a']

export class StreamContinuation {
  readonly #parts: ContinuationParts
  readonly #http: HttpExchange
  readonly #hold: BodyHold
  #delivered: DeliveredStream | undefined
  #stream: ContinuedStream | undefined
  /** The request as its client sent it. */
  #given: LegsRequest | undefined
  /** Tokens of its prompt, and of what was delivered, when another worker went on with it. */
  #before: Before | undefined
  #tries = 0
  /** It cannot stay where it is. */
  #isCut = true
  /** What `goesOn` begins. */
  #going: { readonly before?: Before; readonly stream?: ContinuedStream } = {}
  /** Bytes that the hold counts for the rest that `next` has made. */
  #restBytes = 0
  /** The same, of rests that were not sent. */
  #spareBytes = 0
  #isClosed = false
  /** Its worker failed in the middle, with this error, and the rest of the stream is another worker's. */
  #cutBy: ErrorRecord | undefined
  /** Of that rest, the head has come. */
  #hasRest = false
  #lastWords: Uint8Array | undefined
  #notContinued: UnfitReason | undefined

  constructor(parts: ContinuationParts, http: HttpExchange, hold: BodyHold) {
    this.#parts = parts
    this.#http = http
    this.#hold = hold
  }

  /** What comes now, or is to come, is the rest of a stream that another worker began. */
  get isRest(): boolean {
    return this.#cutBy !== undefined
  }

  /** What a worker said of its failure, for the client if no other one goes on. */
  get lastWords(): Uint8Array | undefined {
    return this.#lastWords
  }

  /** It was cut, and no worker goes on with it for this reason; undefined: it was not, or one may. */
  get notContinued(): UnfitReason | undefined {
    return this.#notContinued
  }

  /** The request as its client sent it. */
  get given(): LegsRequest | undefined {
    return this.#given
  }

  /** The head of an answer comes: of a stream or not. True: of a rest, whose client has a head already. */
  begins(ready: LegsRequest, isStream: boolean): boolean {
    if (this.isRest) {
      if (!this.#hasRest) this.#parts.metrics.continuation('place')
      this.#hasRest = true
      this.#lastWords = undefined
      return true
    }
    const route = ready.legs?.route
    const { migrationsMax = 0 } = this.#parts.limits
    if (this.#given !== undefined || !isStream) return false
    if (route !== 'chat' && route !== 'completions') return false
    this.#given = ready
    // Where no worker may go on, only its end is looked for.
    this.#delivered = new DeliveredStream(route, migrationsMax === 0 ? () => false : this.#parts.memory.take)
    return false
  }

  /** What the client gets of whole events of the worker. `alike`: what is known of them. */
  passed(bytes: Uint8Array, alike?: AlikeEvents): Uint8Array {
    if (this.#stream === undefined) {
      this.#delivered?.push(bytes, alike)
      return bytes
    }
    const passing = this.#stream.convert(bytes)
    this.#delivered?.push(passing)
    return passing
  }

  /** Why no worker goes on with it, as far as that is known now; undefined: one may. */
  get #unfit(): UnfitReason | undefined {
    const { migrationsMax = 0 } = this.#parts.limits
    if (this.#delivered === undefined) return migrationsMax === 0 ? 'limit' : 'route'
    if (this.#tries >= migrationsMax) return 'limit'
    const { routing, legs } = this.#given!
    const isPinned = routing.pinnedInstanceId !== undefined || routing.pinnedRank !== undefined
    if (isPinned || legs?.prefillPin !== undefined || legs?.isWholePin === true) return 'pinned'
    return this.#delivered.unfit
  }

  /** The chunk with which a chat or completion ends has not passed, whether a worker may go on or not. */
  get isUnfinished(): boolean {
    return this.#delivered?.isUnfinished === true
  }

  /** Whether another worker may go on if its worker fails, as far as that is known now. */
  get canGoOn(): boolean {
    return this.#unfit === undefined
  }

  /**
   * Whether another worker may take over while its own is well. What a worker of token ids has said is known
   * before its client has it, so that one is left only when it fails.
   */
  get mayMove(): boolean {
    return this.canGoOn && this.isUnfinished && this.#given?.upstream.tokens?.state === undefined
  }

  /** Its worker has failed: whether another one may go on, as far as that is known now. Counts why not. */
  mayGoOn(): boolean {
    const why = this.#unfit
    this.#notContinued = why
    if (why !== undefined) this.#parts.metrics.continuation(why)
    return why === undefined
  }

  /**
   * Where the engine fails in these events: an error, after which another worker may go on, or a choice that
   * it gave up, which is the end for no client; undefined: it does not.
   */
  failureIn(
    bytes: Uint8Array,
    sawError: boolean,
  ): { readonly before: Uint8Array; readonly reason: string } | undefined {
    const found = sawError && this.#unfit === undefined ? engineErrorOf(bytes) : undefined
    const before = beforeGivenUp(found?.before ?? bytes)
    if (before !== undefined) return { before, reason: 'gave up the request' }
    if (found === undefined) return undefined
    this.#lastWords = bytes.slice(found.before.length)
    return { before: found.before, reason: `sent an error: ${found.message}` }
  }

  /** Another worker goes on, after one that failed with this error. */
  goesOn(error: ErrorRecord): void {
    this.#cutBy = error
    this.#hasRest = false
    const { before = this.#before, stream = this.#stream } = this.#going
    this.#before = before
    this.#stream = stream
  }

  /** No worker takes the rest. Returns the error of the one that had it; undefined: it is no such rest. */
  notPlaced(): ErrorRecord | undefined {
    if (this.#cutBy === undefined || this.#hasRest) return undefined
    this.#parts.metrics.continuation('not_placed')
    return this.#cutBy
  }

  /** Usage of the whole, of that of its last part. */
  wholeUsage(usage: UsageReport | undefined): UsageReport | undefined {
    if (usage === undefined || this.#before === undefined) return usage
    const { promptTokens, deliveredTokens } = this.#before
    const { completionTokens } = usage
    return {
      ...usage,
      promptTokens: usage.promptTokens === undefined ? undefined : promptTokens,
      completionTokens: completionTokens === undefined ? undefined : completionTokens + deliveredTokens,
    }
  }

  /** What to do for the rest; only if it may go on. `isCut`: it cannot stay where it is. */
  async next(isCut = true): Promise<ContinuationStep> {
    this.#isCut = isCut
    this.#restBytes = 0
    this.#going = {}
    this.#tries++
    let step: ContinuationStep
    try {
      step = await this.#next(this.#given!, this.#delivered!.read())
    } catch (thrown) {
      step = { kind: 'unread', error: toErrorRecord(thrown) }
    }
    if (!isCut && step.kind !== 'place') {
      this.stays()
      return step
    }
    // That it is placed is not known before its head comes.
    if (step.kind === 'place' || this.#isClosed) return step
    const outcome = step.kind === 'unfit' ? step.why : step.kind
    if (outcome !== 'end') this.#notContinued = outcome
    this.#parts.metrics.continuation(outcome)
    return step
  }

  /** The stream stays where it is: all is as it was before `next`. */
  stays(): void {
    this.#tries--
    this.#spareBytes += this.#restBytes
  }

  /** The exchange is over. Frees what it keeps. */
  close(): void {
    this.#isClosed = true
    this.#delivered?.close()
  }

  async #next(given: LegsRequest, delivered: Delivered): Promise<ContinuationStep> {
    const { reader, limits } = this.#parts
    const body = given.upstream.body!
    const form = given.legs!.route === 'chat' ? 'chat' : 'completions'
    const { text, ids: givenIds, sample, isFinished, hasUsage } = delivered
    const hasIds = givenIds !== undefined
    const why = unfitRequest(body)
    if (given.upstream.tokens?.isForAll === true && given.upstream.tokens.state !== undefined && !isFinished)
      return this.#nextOfTokens(given, given.upstream.tokens, form)
    if (text === '' && !hasIds && !isFinished && why !== 'choices') {
      const { promptTokens } = given.routing
      const stream = new ContinuedStream({ form, sample, promptTokens, deliveredTokens: 0, isAnew: true })
      this.#going = { stream }
      return { kind: 'place', ready: { ...given, waiting: undefined }, deliveredTokens: 0 }
    }
    const needsUsage = wantsUsage(body) && !hasUsage
    // Its end is all that is missing.
    if (isFinished && !needsUsage) return { kind: 'end', bytes: streamEnd(undefined) }
    if (why !== undefined) return { kind: 'unfit', why }
    const { model, unknownPromptReason, textBlocksReason, estimate } = given.routing
    // What was not known when it was placed is not asked for while its client waits.
    if ((unknownPromptReason ?? textBlocksReason ?? estimate) !== undefined)
      return { kind: 'unfit', why: 'prompt' }
    const mayLackText = hasIds ? mayHoldText(body) : endsInStop(body, text)
    if (!isFinished && mayLackText) return { kind: 'unfit', why: 'stops' }
    const promptIds = await this.#ids({ route: form, body, hold: this.#hold })
    const deliveredIds = promptIds && (givenIds ?? (await this.#textIds(model, text)))
    // Of an exchange that is over, the body is another's.
    if (promptIds === undefined || deliveredIds === undefined || this.#isClosed)
      return { kind: 'unfit', why: 'prompt' }
    const [promptTokens, deliveredTokens] = [promptIds.length, deliveredIds.length]
    if (promptTokens + deliveredTokens > (limits.migrationTokensMax ?? Number.POSITIVE_INFINITY))
      return { kind: 'unfit', why: 'too_long' }
    const stream = new ContinuedStream({ form, sample, promptTokens, deliveredTokens, isAnew: false })
    const asked = answerLimits(body, form === 'chat')
    const room = reader.modelTokens(model)
    const tokensMax = asked.tokensMax ?? (room === undefined ? undefined : room - promptTokens)
    if (tokensMax === undefined && !isFinished) return { kind: 'unfit', why: 'no_limit' }
    const left = (tokensMax ?? 0) - deliveredTokens
    if (isFinished || left <= 0)
      return { kind: 'end', bytes: stream.ending({ hasFinish: isFinished, wantsUsage: needsUsage }) }
    const least = (asked.tokensMin ?? 0) - deliveredTokens
    const ids = new Int32Array(promptTokens + deliveredTokens)
    ids.set(promptIds)
    ids.set(deliveredIds, promptTokens)
    const tokensLeft = { tokensMax: left, tokensMin: least > 0 ? least : undefined }
    const rest = continuedRequest(body, ids, tokensLeft, hasIds)
    if (!this.#hasRoom(rest.length)) return { kind: 'unfit', why: 'memory' }
    const ready = await reader.continued(this.#http, rest, given.routing)
    this.#going = { before: { promptTokens, deliveredTokens }, stream }
    return { kind: 'place', ready, deliveredTokens }
  }

  /**
   * Of workers that give token ids, their ids are known: another one goes on behind the last of them, and
   * what comes is in the form that the client has already.
   */
  async #nextOfTokens(
    given: LegsRequest,
    tokens: TokenPrompt,
    form: 'chat' | 'completions',
  ): Promise<ContinuationStep> {
    const { reader, limits } = this.#parts
    const body = given.upstream.body!
    const { ids: promptIds, state } = tokens
    const generated = state!.ids
    if (generated === undefined) return { kind: 'unfit', why: 'memory' }
    const why = unfitRequest(body)
    // What counts generated tokens, the worker is told which ones are.
    if (why === 'guided' || why === 'tied') return { kind: 'unfit', why }
    const tokensCount = promptIds.length + generated.length
    if (tokensCount > (limits.migrationTokensMax ?? Number.POSITIVE_INFINITY))
      return { kind: 'unfit', why: 'too_long' }
    const ids = new Int32Array(tokensCount)
    ids.set(promptIds)
    ids.set(generated, promptIds.length)
    const tokensMax = state!.left ?? answerLimits(body, form === 'chat').tokensMax
    const rest = continuedRequest(body, ids, { tokensMax, tokensMin: undefined }, true)
    if (!this.#hasRoom(rest.length)) return { kind: 'unfit', why: 'memory' }
    // It says where the request goes, and is not sent.
    const { routing } = await reader.continued(this.#http, rest, given.routing)
    const upstream = { ...given.upstream, tokens: tokens.rest() }
    return { kind: 'place', ready: { ...given, routing, upstream }, deliveredTokens: generated.length }
  }

  #hasRoom(bytes: number): boolean {
    const missing = bytes - this.#spareBytes
    try {
      if (missing > 0) this.#hold.take(missing)
    } catch {
      return false
    }
    this.#spareBytes = Math.max(0, -missing)
    this.#restBytes = bytes
    return true
  }

  /** Of a text that stands behind another one. */
  async #textIds(model: string, text: string): Promise<Int32Array | undefined> {
    if (text === '') return new Int32Array(0)
    for (const before of BEFORE_TEXT) {
      const alone = await this.#ids({ route: 'completions', body: textRequest(model, before) })
      const both =
        alone && (await this.#ids({ route: 'completions', body: textRequest(model, before + text) }))
      if (both === undefined) return undefined
      const isBefore = alone!.length > 0 && alone!.every((id, i) => both[i] === id)
      if (isBefore) return both.subarray(alone!.length)
    }
    return undefined
  }

  /**
   * The engine that is asked to tokenize may be the one that has just died, or others that die with it: what
   * was known before is asked again.
   */
  async #ids(given: Parameters<ContinuationReader['exactIds']>[1]): Promise<Int32Array | undefined> {
    for (let attempt = 1; ; attempt++) {
      if (this.#isClosed) return undefined
      const ids = await this.#parts.reader.exactIds(this.#http, given)
      // Where it stays meanwhile, its client waits for that.
      if (ids !== undefined || !this.#isCut || attempt === READS_MAX) return ids
      await new Promise<void>(resolve => this.#parts.clock.after(READ_PAUSE_MS * attempt, resolve))
    }
  }
}
