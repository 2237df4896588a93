/**
 * Worker call: sends a request to the worker that it was placed on, and reports what comes back.
 *
 *   started ──▶ head (prefill may go on) ──▶ passing ──▶ ended | broke
 *      └─ 503 ─▶ refusing ──▶ refused
 *
 * A head waits for the first byte that passes: vLLM sends the head of a stream before prefill, and a worker
 * that dies in between has delivered nothing. A stream passes in whole events. If the client did not ask for
 * usage, the router asks for it, and undoes what that changes (stream-forms.ts): the client gets what it
 * would have got without a router. An answer that ends with its connection may have been cut; its content
 * tells (answer-end.ts).
 *
 * Invariants
 *   I1  Exactly one of ended, refused and broke is reported, unless `abort` comes first; nothing after it.
 *   I2  The head is reported once, before the first data.
 */

import type { Clock, Timer } from '@homing/base'
import {
  type BodyEdit,
  editBody,
  isJsonAnswer,
  isStreamAnswer,
  type StreamForm,
  StreamFormLearner,
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
  type HttpTransport,
} from '@homing/transport'
import { cutOf } from './answer-end.ts'
import type { StreamForms } from './stream-forms.ts'
import { upstreamHeaders } from './upstream-headers.ts'

/** What is sent upstream. `body` is the client's bytes; it must not be changed afterwards. */
export interface UpstreamRequest {
  readonly method: string
  readonly path: string
  readonly headers: HttpHeaders
  readonly body: Uint8Array | undefined
  /** What asks for the usage of a stream, in `body`; undefined: nothing is to be asked. */
  readonly usageEdit: BodyEdit | undefined
}

/** Where it is sent, and how it is told from other attempts at the same request. */
export interface CallTarget {
  readonly decision: Decision
  readonly requestId: string
  /** 1 for the first. */
  readonly attempt: number
}

/** Why a call ended without a whole answer. */
export interface BrokenCall {
  readonly reason: string
  readonly failure: HttpCallFailure
  /** It went over a connection that had served another one. */
  readonly reusedConnection: boolean
}

/** A 503 of a worker, whole, for the client should nobody take the request. */
export interface Refusal {
  readonly status: number
  readonly headers: HttpHeaders
  readonly decision: Decision
  readonly body: readonly Uint8Array[]
}

export interface WorkerCallHandler {
  /** There is a connection to the worker. */
  connected(): void
  /** Something came. */
  alive(): void
  /** The prefill is over. */
  prefilled(): void
  head(status: number, headers: HttpHeaders): void
  data(bytes: Uint8Array): void
  /** The answer is whole. */
  ended(): void
  /**
   * The worker answered this status, and may be asked again later; undefined: its words were too long, or too
   * slow.
   */
  refused(status: number, refusal: Refusal | undefined): void
  broke(broken: BrokenCall): void
}

export interface WorkerCallParts {
  readonly http: HttpTransport
  readonly clock: Clock
  readonly streamForms: StreamForms
  /** Streams are asked for usage, for the audit of predictions. */
  readonly audit: boolean
  /** A 503 is a refusal, after which others may be tried; else it is an answer as any. */
  readonly mayRefuse: boolean
}

const EARLY_EVENTS = /^\/v1\/(?:responses|messages)(?:$|\?)/
/** The body of a refusal that is kept, and the wait for it; a longer one is not kept. */
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
  #isOver = false
  /** The body with the question for usage in it. */
  #edited: Uint8Array | undefined
  /**
   * The form of a stream that was asked for usage in the client's place; 'learn': one that was not teaches
   * it.
   */
  #streamForm: StreamForm | 'learn' | undefined
  #learner: StreamFormLearner | undefined
  #refusal: OpenRefusal | undefined
  /** Until its first byte or its end comes. */
  #heldHead: { readonly status: number; readonly headers: HttpHeaders } | undefined
  #status: number | undefined
  #isStream = false
  #isPrefilled = false
  #isJson = false
  #tap: UsageTap | undefined

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

  /** The status that was told; undefined: none yet. */
  get status(): number | undefined {
    return this.#status
  }

  /** What the answer said of its tokens, as far as it came; undefined where no head of it was told. */
  get usage(): UsageReport | undefined {
    return this.#status === undefined ? undefined : this.#tap?.finish()
  }

  /** Its answer comes as events. */
  get isStream(): boolean {
    return this.#isStream
  }

  start(): void {
    const { decision, requestId, attempt } = this.#target
    const { method, path, headers } = this.#request
    const body = this.#body()
    this.#call = this.#parts.http.call(
      {
        origin: decision.origin,
        method,
        path,
        headers: upstreamHeaders(headers, decision, requestId, attempt),
        ...(body === undefined ? {} : { body }),
      },
      {
        sent: () => this.#isOver || this.#handler.connected(),
        head: (status, given) => this.#isOver || this.#head(status, given),
        data: bytes => this.#isOver || this.#data(bytes),
        end: how => this.#isOver || this.#end(how),
        failed: ({ message: reason, failure }, { reusedConnection }) =>
          this.#isOver || this.#failed({ reason, failure, reusedConnection }),
      },
    )
    if (this.#isOver) this.#call.abort()
  }

  /** Nothing more is told. */
  abort(): void {
    this.#isOver = true
    this.#refusal?.timer.cancel()
    this.#call?.abort()
  }

  pause(): void {
    this.#call?.pause()
  }

  resume(): void {
    this.#call?.resume()
  }

  /** It is over. True: nobody reads the request's body for it any more. */
  giveUpBody(): boolean {
    if (this.#call === undefined) return true
    if (this.#call.usesBody) return false
    if (this.#edited !== undefined) giveUpBytes(this.#edited)
    this.#edited = undefined
    return true
  }

  /** The bytes held back, without half an event, for an answer that is cut here. */
  takeWhole(): Uint8Array | undefined {
    return this.#status === undefined ? undefined : this.#tap?.takeWhole()
  }

  #head(status: number, headers: HttpHeaders): void {
    this.#handler.alive()
    const isKeyRefused = (status === 401 || status === 403) && this.#target.decision.usesKey
    if ((status === 503 || isKeyRefused) && this.#parts.mayRefuse) {
      // Nothing of an answer has reached the client, so another worker may take the request.
      const timer = this.#parts.clock.after(REFUSAL_MS_MAX, () => this.#leaveRefusal())
      this.#refusal = { status, headers, pieces: [], bytes: 0, timer }
      return
    }
    this.#isStream = isStreamAnswer(headers)
    this.#isJson = isJsonAnswer(headers)
    // What is changed in a stream, or told at its cut, is not in the length that the engine gave.
    this.#heldHead = { status, headers: this.#isStream ? withoutLength(headers) : headers }
    this.#tap = this.#newTap()
    if (!this.#isStream) this.#handler.prefilled()
  }

  #data(bytes: Uint8Array): void {
    this.#handler.alive()
    if (this.#refusal !== undefined) {
      this.#refusal.pieces.push(bytes)
      this.#refusal.bytes += bytes.length
      if (this.#refusal.bytes > REFUSAL_BYTES_MAX) this.#leaveRefusal()
      return
    }
    const isFirst = this.#tap?.hasBytes === false
    const passing = this.#tap?.push(bytes) ?? bytes
    if (this.#isStream && !this.#isPrefilled && (isFirst || this.#hasEarlyEvents)) this.#lookForOutput()
    if (passing.length > 0) this.#pass(passing)
  }

  #lookForOutput(): void {
    if (this.#hasEarlyEvents && this.#tap?.hasOutput !== true) return
    this.#isPrefilled = true
    this.#handler.prefilled()
  }

  /** Streams of responses and messages begin before the prompt is computed. */
  get #hasEarlyEvents(): boolean {
    return EARLY_EVENTS.test(this.#request.path)
  }

  #end(how: HttpEnd): void {
    if (this.#refusal !== undefined) {
      const { status, headers, pieces } = this.#refusal
      this.#over()
      this.#handler.refused(status, { status, headers, decision: this.#target.decision, body: pieces })
      return
    }
    const usage = this.#tap?.finish()
    const { path } = this.#request
    const answer = { request: { path }, isStream: this.#isStream, isJson: this.#isJson }
    const cut = how === 'closed' && usage !== undefined ? cutOf(answer, usage) : undefined
    if (cut === undefined) this.#endWhole()
    else this.#break({ reason: cut, failure: 'reset', reusedConnection: false })
  }

  #endWhole(): void {
    const { decision } = this.#target
    this.#releaseHead()
    const rest = this.#tap?.takeRest()
    if (rest !== undefined && rest.length > 0) this.#handler.data(rest)
    const form = this.#tap?.finish().isDone === true ? this.#learner?.form() : undefined
    if (form !== undefined) this.#parts.streamForms.learned(decision, this.#request.path, form)
    this.#over()
    this.#handler.ended()
  }

  #failed(broken: BrokenCall): void {
    if (this.#refusal !== undefined) this.#leaveRefusal()
    // Behind the last event of a stream nothing is missing, however its connection ends.
    else if (this.#isStream && this.#tap?.finish().isDone === true) this.#endWhole()
    else this.#break(broken)
  }

  #break(broken: BrokenCall): void {
    this.#parts.streamForms.forget(this.#target.decision)
    this.#over()
    this.#handler.broke(broken)
  }

  /** The rest of a refusal is too long, too late, or never comes: it goes without its words. */
  #leaveRefusal(): void {
    if (this.#isOver) return
    this.abort()
    this.#handler.refused(this.#refusal!.status, undefined)
  }

  #over(): void {
    this.#isOver = true
    this.#refusal?.timer.cancel()
  }

  #pass(bytes: Uint8Array): void {
    this.#releaseHead()
    this.#handler.data(bytes)
  }

  /** The first byte passes, or the answer ends without any. */
  #releaseHead(): void {
    if (this.#heldHead === undefined) return
    const { status, headers } = this.#heldHead
    this.#heldHead = undefined
    this.#status = status
    this.#handler.head(status, headers)
  }

  /** Asks for usage where that is wanted, possible and of use: where anything is known of the worker. */
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
    const form = this.#streamForm
    if (form !== 'learn') return new UsageTap('sse', { mendsTo: form })
    const learner = new StreamFormLearner()
    this.#learner = learner
    return new UsageTap('sse', { observe: event => learner.observe(event) })
  }
}

function withoutLength(headers: HttpHeaders): HttpHeaders {
  const { 'content-length': _, ...others } = headers
  return others
}
