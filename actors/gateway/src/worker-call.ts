/**
 * Worker call: sends a request to the worker on which it was placed, and reports what comes back.
 *
 *   started ──▶ head (prefill may go on) ──▶ passing ──▶ ended | broke
 *      └─ failing status ─▶ refusing ──▶ refused
 *
 * The head is held back until something of the answer itself can be passed on: the first event of a stream,
 * the first byte of anything else. vLLM sends the head of a stream before prefill, and some servers send
 * comments during it; these are held with the head, up to HELD_ANSWER_BYTES_MAX. A whole answer is held to
 * its end, up to as many bytes: a client can do nothing with a part of it. If the worker dies before, the
 * request can still be placed again. An answer that is none (a page of HTML, a stream without an event, a
 * body without JSON) is a broken call, too.
 *
 * Where another party passes the answer on and shows the head only (an Envoy's response_body_mode NONE), the
 * head is released at once, nothing is looked for in the body, and the end is a whole one.
 *
 * A stream passes in whole events. If the client did not ask for usage, the router may ask for it and then
 * converts the stream back (stream-forms.ts): the client gets what it would have got without a router.
 *
 * If only the close of the connection ends an answer, the answer may have been cut: answer-end.ts tells by
 * its content.
 *
 * Invariants
 *   I1  Exactly one of ended, refused and broke is reported, unless `abort` comes first; nothing after it.
 *   I2  The head is reported once, before the first data.
 */

import type { Clock, Timer } from '@homing/base'
import {
  type AlikeEvents,
  type BodyEdit,
  beforeGivenUp,
  editBody,
  errorAnswerOf,
  isGivenUpAnswer,
  isJsonAnswer,
  isStreamAnswer,
  type StreamForm,
  StreamFormLearner,
  textAfterMark,
  type UsageReport,
  UsageTap,
} from '@homing/openai'
import type { Decision } from '@homing/placement'
import {
  giveUpBytes,
  type HttpCall,
  type HttpCallFailure,
  type HttpEnd,
  type HttpHeaders,
  type HttpRequest,
  type HttpResponseHandler,
  type HttpTransport,
} from '@homing/transport'
import { cutOf } from './answer-end.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { CallSpans, RequestSpans } from './request-spans.ts'
import type { StreamForms } from './stream-forms.ts'
import { TokenCall, type TokenCallParts } from './tokens/token-call.ts'
import type { TokenPrompt } from './tokens/token-prompt.ts'
import type { TokenWorkers } from './tokens/token-workers.ts'
import { upstreamHeaders } from './upstream-headers.ts'
import { FAILING_STATUSES } from './worker-statuses.ts'

/** What is sent upstream. `body` is the client's bytes; it must not be changed afterwards. */
export interface UpstreamRequest {
  readonly method: string
  readonly path: string
  readonly headers: HttpHeaders
  readonly body: Uint8Array | undefined
  /** How `body` asks for the usage of a stream; undefined: do not ask. */
  readonly usageEdit: BodyEdit | undefined
  /** For workers that take token ids; undefined: its model has none. */
  readonly tokens?: TokenPrompt | undefined
  /** Its request is traced. */
  readonly spans?: RequestSpans | undefined
}

/** Where the request is sent, and which attempt at the request this is. */
export interface CallTarget {
  readonly decision: Decision
  readonly requestId: string
  /** 1 for the first. */
  readonly attempt: number
}

/** Why a call ended without a complete answer. */
export interface BrokenCall {
  readonly reason: string
  readonly failure: HttpCallFailure
  /** The connection had served an earlier call. */
  readonly reusedConnection: boolean
  /** Origin of another worker, which has got the request and answers it; default: none. */
  readonly servedBy?: string | undefined
  /** Its engine says that it gave the request up, as one that ends does with all that it has. */
  readonly isGivenUp?: boolean
}

/** A worker's whole answer with a failing status, for the client in case no worker serves the request. */
export interface Refusal {
  readonly status: number
  readonly headers: HttpHeaders
  readonly decision: Decision
  readonly body: readonly Uint8Array[]
}

export interface WorkerCallHandler {
  /** The worker is connected. */
  connected(): void
  /** The prefill is over, because output came, or the answer is whole. `isSuccess`: not by an error. */
  prefilled(isSuccess: boolean): void
  /** Bytes came that are held back; default: nothing. */
  held?(): void
  head(status: number, headers: HttpHeaders): void
  data(bytes: Uint8Array): void
  /** The answer is complete. */
  ended(): void
  /**
   * The worker refused with this status and may be asked again later. `refusal` is undefined if its answer
   * was too long or too slow to keep.
   */
  refused(status: number, refusal: Refusal | undefined): void
  broke(broken: BrokenCall): void
}

export interface WorkerCallParts {
  readonly http: Pick<HttpTransport, 'call'>
  readonly clock: Clock
  readonly streamForms: StreamForms
  /** Asks workers for the usage of streams, so that predictions can be audited. */
  readonly audit: boolean
  /**
   * A failing status is a refusal, after which other workers may be tried; otherwise it is passed on as an
   * answer.
   */
  readonly mayRefuse: (status: number) => boolean
  /** Which workers take token ids; default: none. */
  readonly tokens?: Pick<TokenWorkers, 'takes'>
  /** Counts answers of such workers. */
  readonly metrics?: Pick<GatewayMetrics, 'tokenAnswer'>
}

const NOT_FOUND = 404

/** Routes whose answers are JSON, or streams of JSON. */
const GENERATES = /^\/v1\/(?:chat\/completions|completions|responses|messages)(?:$|\?)/
const PAGE_OF_HTML = /^text\/html/i
/** Of what is held back. Once there is more, it passes on: docs/reliability.md#whole-answers says why. */
const HELD_ANSWER_BYTES_MAX = 65_536
const EARLY_EVENTS = /^\/v1\/(?:responses|messages)(?:$|\?)/
/** Limits for keeping a refusal: size of its body, and wait for it. Beyond them it is not kept. */
const REFUSAL_BYTES_MAX = 65_536
const REFUSAL_MS_MAX = 1000

interface OpenRefusal {
  readonly status: number
  readonly headers: HttpHeaders
  readonly pieces: Uint8Array[]
  bytes: number
  readonly timer: Timer
}

export class WorkerCall {
  readonly #parts: WorkerCallParts
  readonly #request: UpstreamRequest
  readonly #target: CallTarget
  readonly #handler: WorkerCallHandler
  #call: HttpCall | undefined
  /** Undefined: the request is not traced. */
  #spans: CallSpans | undefined
  #isOver = false
  /** The body with the request for usage added. */
  #edited: Uint8Array | undefined
  /**
   * A form: the router asked for usage and converts the stream back to this form. 'learn': the router did not
   * ask and learns the form.
   */
  #streamForm: StreamForm | 'learn' | undefined
  #learner: StreamFormLearner | undefined
  #refusal: OpenRefusal | undefined
  /** Held back until the first byte or the end comes. */
  #heldHead: { readonly status: number; readonly headers: HttpHeaders } | undefined
  /** What is held back with the head: comments of a stream, or a whole answer. */
  #heldBytes: Uint8Array[] = []
  #heldCount = 0
  #status: number | undefined
  #isStream = false
  #isPrefilled = false
  #isUnseen = false
  #isJson = false
  #sawChoiceEnd = false
  #beganBadly = false
  #tap: UsageTap | undefined
  /** What came, while it passes on as it came. */
  #unchanged: Uint8Array | undefined

  constructor(
    parts: WorkerCallParts,
    request: UpstreamRequest,
    target: CallTarget,
    handler: WorkerCallHandler,
  ) {
    this.#parts = parts
    this.#request = request
    this.#target = target
    this.#handler = handler
  }

  /** The reported status; undefined: none yet. */
  get status(): number | undefined {
    return this.#status
  }

  /** The usage that the answer reported so far; undefined if no head was reported. */
  get usage(): UsageReport | undefined {
    return this.#status === undefined ? undefined : this.#tap?.finish()
  }

  /** The answer is a stream of events. */
  get isStream(): boolean {
    return this.#isStream
  }

  /** Of its answer no more than the head is shown: its silence means nothing. */
  get isUnseen(): boolean {
    return this.#isUnseen
  }

  /** An error passed among its events. */
  get sawError(): boolean {
    return this.#tap?.sawError === true
  }

  /** Where the texts are of events that pass now, if they are these, and that is known of all of them. */
  alikeIn(bytes: Uint8Array): AlikeEvents | undefined {
    return bytes === this.#unchanged ? this.#tap?.alike : undefined
  }

  /** Its output begins with an error, or with the end of a choice that was given up. */
  get beganBadly(): boolean {
    return this.#beganBadly
  }

  /** Of a stream, a choice has ended, well or not. */
  get sawChoiceEnd(): boolean {
    return this.#sawChoiceEnd
  }

  start(): void {
    const { decision, requestId, attempt } = this.#target
    const { method, path, headers: given, spans } = this.#request
    const body = this.#body()
    this.#spans = spans?.call(decision, attempt, path)
    const headers = this.#spans?.headers(given) ?? given
    this.#call = this.#callTo(
      {
        origin: decision.origin,
        method,
        path,
        headers: upstreamHeaders(headers, decision, requestId, attempt),
        ...(body === undefined ? {} : { body }),
      },
      {
        sent: () => this.#isOver || this.#sent(),
        head: (status, given, isUnseen = false) => this.#isOver || this.#head(status, given, isUnseen),
        data: bytes => this.#isOver || this.#data(bytes),
        end: how => this.#isOver || this.#end(how),
        failed: ({ message: reason, failure, servedBy }, { reusedConnection }) =>
          this.#isOver || this.#failed({ reason, failure, reusedConnection, servedBy }),
      },
    )
    if (this.#isOver) this.#call?.abort()
  }

  /** Workers that take token ids are called with those of the prompt. Undefined: the call has failed. */
  #callTo(request: HttpRequest, handler: HttpResponseHandler): HttpCall | undefined {
    const { http, clock, tokens, metrics } = this.#parts
    const { decision, requestId } = this.#target
    const { tokens: prompt } = this.#request
    if (prompt === undefined) return http.call(request, handler)
    if (tokens?.takes(decision.workerId, prompt.model) === true) {
      const ended: TokenCallParts['ended'] = (ending, unknownIds) => metrics?.tokenAnswer(ending, unknownIds)
      const wantsUsage = this.#edited !== undefined || prompt.wishes.wantsUsage
      return new TokenCall({ http, clock, ended }, request, prompt, { requestId, wantsUsage }, handler)
    }
    if (prompt.resumed === undefined) return http.call(request, handler)
    this.#break({
      reason: 'it takes no token ids, with which it could go on',
      failure: 'request',
      reusedConnection: false,
    })
    return undefined
  }

  /** Ends the call; nothing more is reported. */
  abort(): void {
    this.#over('left')
    this.#call?.abort()
  }

  pause(): void {
    this.#call?.pause()
  }

  resume(): void {
    this.#call?.resume()
  }

  /** Its connection may still have bytes of the body. */
  get usesBody(): boolean {
    return this.#call?.usesBody === true
  }

  /**
   * Frees the edited body of a call that is over. True: this call does not read the client's body any more.
   */
  giveUpBody(): boolean {
    if (this.usesBody) return false
    if (this.#edited !== undefined) giveUpBytes(this.#edited)
    this.#edited = undefined
    return true
  }

  /** Takes the whole events that are held back. The caller passes them on before it cuts the answer. */
  takeWhole(): Uint8Array | undefined {
    return this.#status === undefined ? undefined : this.#tap?.takeWhole()
  }

  #sent(): void {
    this.#spans?.connected()
    this.#handler.connected()
  }

  #head(status: number, headers: HttpHeaders, isUnseen: boolean): void {
    const isKeyRefused = (status === 401 || status === 403) && this.#target.decision.usesKey
    // A 404 may say that the worker lacks the model: the exchange reads it.
    const mayFail = FAILING_STATUSES.has(status) || (status === NOT_FOUND && this.#request.method === 'POST')
    if ((mayFail || isKeyRefused) && this.#parts.mayRefuse(status)) {
      // Nothing has reached the client yet, so another worker may take the request.
      const timer = this.#parts.clock.after(REFUSAL_MS_MAX, () => this.#leaveRefusal())
      this.#refusal = { status, headers, pieces: [], bytes: 0, timer }
      return
    }
    if (status < 300 && this.#generates && PAGE_OF_HTML.test(String(headers['content-type'] ?? ''))) {
      this.#call?.abort()
      this.#break({
        reason: `answered ${status} with a page of HTML`,
        failure: 'protocol',
        reusedConnection: false,
      })
      return
    }
    this.#isStream = isStreamAnswer(headers)
    this.#isJson = isJsonAnswer(headers)
    // The engine's content-length may be wrong for a stream: the router changes events, and adds an error to
    // a stream that is cut.
    this.#heldHead = { status, headers: this.#isStream ? withoutLength(headers) : headers }
    this.#tap = this.#newTap()
    if (!this.#isStream) this.#handler.prefilled(status < 300)
    if (isUnseen) this.#leaveUnseen()
  }

  /** When its first output comes is not known: the head of a stream says nothing of it. */
  #leaveUnseen(): void {
    this.#isUnseen = true
    this.#tap = undefined
    if (this.#isStream) this.#handler.prefilled(false)
    this.#isPrefilled = true
    this.#releaseHead()
  }

  #data(bytes: Uint8Array): void {
    if (this.#refusal !== undefined) {
      this.#refusal.pieces.push(bytes)
      this.#refusal.bytes += bytes.length
      if (this.#refusal.bytes > REFUSAL_BYTES_MAX) this.#leaveRefusal()
      return
    }
    const passing = this.#tap?.push(bytes) ?? bytes
    this.#unchanged = passing === bytes ? bytes : undefined
    this.#passing(passing)
    // Not kept: memory that many chunks share would be.
    this.#unchanged = undefined
  }

  #passing(passing: Uint8Array): void {
    if (this.#isStream && !this.#isPrefilled) this.#lookForOutput(passing)
    if (passing.length === 0) return
    if (this.#heldHead === undefined || !this.#generates) this.#pass(passing)
    else if (this.#isStream || (this.#isJson && this.#heldHead.status < 300)) this.#holdOrPass(passing)
    else this.#pass(passing)
  }

  #lookForOutput(passing: Uint8Array): void {
    const tap = this.#tap!
    const hasOutput = this.#hasEarlyEvents ? tap.hasOutput : this.#generates ? tap.hasEvent : tap.hasBytes
    if (!hasOutput) return
    this.#isPrefilled = true
    const status = this.#heldHead?.status ?? this.#status ?? 0
    this.#beganBadly = tap.sawError || (this.#sawChoiceEnd && beforeGivenUp(passing) !== undefined)
    this.#handler.prefilled(status < 300 && !this.#beganBadly)
  }

  /** Whether a request to this route makes the engine write something. */
  get #generates(): boolean {
    return GENERATES.test(this.#request.path)
  }

  #holdOrPass(passing: Uint8Array): void {
    if (!this.#isStream && this.#heldBytes.length === 0 && isNoJson(passing)) {
      this.#breakForeign()
      return
    }
    this.#heldBytes.push(passing)
    this.#heldCount += passing.length
    if (this.#tap!.hasEvent || this.#heldCount > HELD_ANSWER_BYTES_MAX) this.#passHeld()
    else if (!this.#isStream) this.#handler.held?.()
  }

  #passHeld(): void {
    const held = this.#heldBytes
    this.#heldBytes = []
    this.#heldCount = 0
    for (const bytes of held) this.#pass(bytes)
  }

  /** What came is no answer of an engine. */
  #breakForeign(): void {
    const what = this.#isStream ? 'a stream without an event' : 'a body that is no JSON'
    this.#call?.abort()
    this.#break({ reason: `answered with ${what}`, failure: 'protocol', reusedConnection: false })
  }

  /** Whether the stream has events before its first output: those of /v1/responses and /v1/messages do. */
  get #hasEarlyEvents(): boolean {
    return EARLY_EVENTS.test(this.#request.path)
  }

  #end(how: HttpEnd): void {
    if (this.#refusal !== undefined) {
      const { status, headers, pieces } = this.#refusal
      this.#over(`answered ${status}`)
      this.#handler.refused(status, { status, headers, decision: this.#target.decision, body: pieces })
      return
    }
    const usage = this.#tap?.finish()
    const { path } = this.#request
    const isHeld = this.#heldHead !== undefined && this.#heldHead.status < 300
    const isForeign = isHeld && this.#generates && this.#isStream && this.#tap?.hasEvent === false
    if (isForeign) {
      this.#breakForeign()
      return
    }
    const answer = { request: { path }, isStream: this.#isStream, isJson: this.#isJson }
    const isClosed = how === 'closed'
    const cut = usage === undefined ? undefined : isClosed ? cutOf(answer, usage) : this.#lackOf(usage)
    if (cut !== undefined) this.#break({ reason: cut, failure: 'reset', reusedConnection: false })
    else {
      const fault = isHeld && this.#isJson ? this.#faultOf(Buffer.concat(this.#heldBytes)) : undefined
      if (fault === undefined) this.#endWhole()
      else this.#break({ ...fault, failure: 'protocol', reusedConnection: false })
    }
  }

  /** Why a whole body of a success is no answer. */
  #faultOf(body: Uint8Array): Pick<BrokenCall, 'reason' | 'isGivenUp'> | undefined {
    if (isGivenUpAnswer(body)) return { reason: 'it gave up the request', isGivenUp: true }
    const said = this.#generates && this.sawError ? errorAnswerOf(body) : undefined
    return said === undefined ? undefined : { reason: `answered with an error: ${said}` }
  }

  /** What an answer lacks that ended as HTTP has it. */
  #lackOf({ isInside }: UsageReport): string | undefined {
    if (!this.#generates || !isInside || (this.#heldHead?.status ?? this.#status ?? 0) >= 300)
      return undefined
    if (this.#isStream) return 'the answer ended inside an event'
    return this.#isJson ? 'the answer ended inside its JSON body' : undefined
  }

  #endWhole(): void {
    const { decision } = this.#target
    this.#passHeld()
    this.#releaseHead()
    const rest = this.#tap?.takeRest()
    if (rest !== undefined && rest.length > 0) this.#handler.data(rest)
    // What it says may be an end that is none.
    if (this.#isOver) return
    const form = this.#tap?.finish().isDone === true ? this.#learner?.form() : undefined
    if (form !== undefined) this.#parts.streamForms.learned(decision, this.#request.path, form)
    this.#over()
    this.#handler.ended()
  }

  #failed(broken: BrokenCall): void {
    if (this.#refusal !== undefined) this.#leaveRefusal()
    // After the last event of a stream nothing is missing, however its connection ends.
    else if (this.#isStream && this.#tap?.finish().isDone === true) this.#endWhole()
    else this.#break(broken)
  }

  #break(broken: BrokenCall): void {
    this.#parts.streamForms.forget(this.#target.decision)
    this.#over(broken.reason)
    this.#handler.broke(broken)
  }

  /** Reports a refusal without its body, because the body is too long or too late, or broke off. */
  #leaveRefusal(): void {
    if (this.#isOver) return
    this.#over(`answered ${this.#refusal!.status}`)
    this.abort()
    this.#handler.refused(this.#refusal!.status, undefined)
  }

  /** `fault`: why it has no whole answer. */
  #over(fault?: string): void {
    this.#isOver = true
    this.#refusal?.timer.cancel()
    this.#spans?.end(this.usage, fault)
  }

  #pass(bytes: Uint8Array): void {
    this.#releaseHead()
    this.#handler.data(bytes)
  }

  /**
   * Reports the head if it is still held back. Called for the first bytes that pass and at the end of a whole
   * answer.
   */
  #releaseHead(): void {
    if (this.#heldHead === undefined) return
    const { status, headers } = this.#heldHead
    this.#heldHead = undefined
    this.#status = status
    this.#spans?.firstByte(status)
    this.#handler.head(status, headers)
  }

  /**
   * The body to send. It asks for usage if predictions are audited, the worker takes the option, and the
   * index knows something of the worker.
   */
  #body(): Uint8Array | undefined {
    const { body, path, usageEdit } = this.#request
    const { decision } = this.#target
    const mayAsk = this.#parts.audit && decision.takesUsageOption && decision.trust !== 'none'
    if (!mayAsk || body === undefined || usageEdit === undefined) return body
    const next = this.#parts.streamForms.next(decision, path)
    if (next === 'leave') return body
    this.#streamForm = next
    if (next === 'learn') return body
    this.#edited = editBody(body, usageEdit)
    return this.#edited
  }

  #newTap(): UsageTap {
    if (!this.#isStream) return new UsageTap('json')
    const choiceEnds = (): void => {
      this.#sawChoiceEnd = true
    }
    const form = this.#streamForm
    if (form !== 'learn') return new UsageTap('sse', { mendsTo: form, choiceEnds })
    const learner = new StreamFormLearner()
    this.#learner = learner
    return new UsageTap('sse', { observe: event => learner.observe(event), choiceEnds })
  }
}

/** Whether the first byte that is not blank begins neither an object nor a list. */
function isNoJson(bytes: Uint8Array): boolean {
  const first = textAfterMark(bytes).find(byte => byte > 0x20)
  return first !== undefined && first !== 0x7b && first !== 0x5b
}

function withoutLength(headers: HttpHeaders): HttpHeaders {
  const { 'content-length': _, ...others } = headers
  return others
}
