/**
 * Request call: one call of a client whose frames something carries (frames.ts).
 *
 *   waiting ──begin──▶ sent ──accepted──▶ accepted ──head──▶ answering ──end, all is read──▶ over
 *      │                 │ refused, silence, a broken order, or what carries it ends
 *      └─────────────────┴──────────────▶ over (failed)
 *
 * To its caller a call looks like one over a socket of its own, with the same failures: `connect` when no
 * server can have seen the request, `reset` when the answer broke off. No request is sent twice.
 *
 * Bounds   a paused call holds at most `windowBytes`, the credit that it gave.
 */

import { shownValue } from '@homing/base'
import { announcedBytes, faultOfAnswerHead } from '../answer-head.ts'
import type { CallCounts } from '../call-counts.ts'
import { callFor, callOwner } from '../callback.ts'
import { HttpCallError, type HttpCallFailure } from '../errors.ts'
import type { HttpCall, HttpEnd, HttpRequest, HttpResponseHandler } from '../http-types.ts'
import { FRAME, type FrameKind, type FrameSink, headersOf, isWindow, PIECE_BYTES } from './frames.ts'
import { PieceSender } from './piece-sender.ts'

/** What carries calls. */
export interface CallCarrier {
  readonly counts: CallCounts
  /** No more frames of this call are wanted; called at most once. */
  unheard(call: RequestCall): void
  /** The call is over, and no more frames of it are wanted; called once. */
  ended(call: RequestCall): void
}

/** How a call ends. */
type Last = { readonly end: HttpEnd } | { readonly failure: HttpCallFailure; readonly reason: string }
/** What a paused call keeps for its handler. */
type Waiting = Uint8Array | Last

export class RequestCall implements HttpCall {
  readonly #request: HttpRequest
  readonly #windowBytes: number
  readonly #handler: HttpResponseHandler
  readonly #carrier: CallCarrier
  #sink: FrameSink | undefined
  #body: PieceSender | undefined
  #wasSent = false
  #isAccepted = false
  #hasHead = false
  /** Bytes of the answer that have not come yet; undefined: the head announced no length. */
  #bytesLeft: number | undefined
  #isPaused = false
  /** The server has said its last word, or nothing more is wanted of it. */
  #isComplete = false
  /** The handler has been told the end. */
  #isOver = false
  #waiting: Waiting[] = []
  /** Credit that the pieces in `#waiting` take. */
  #waitingBytes = 0
  /** Credit of pieces that the handler took, not given back to the server yet. */
  #takenBytes = 0

  /** `windowBytes`: most bytes of the answer that may be on the way or held. */
  constructor(request: HttpRequest, windowBytes: number, handler: HttpResponseHandler, carrier: CallCarrier) {
    this.#request = request
    this.#windowBytes = windowBytes
    this.#handler = handler
    this.#carrier = carrier
    carrier.counts.openCalls++
  }

  // ── What its owner does ─────────────────────────────────────────────────────────────────────

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    const { counts } = this.#carrier
    counts.endedCalls.aborted++
    counts.heldBytes -= this.#waitingBytes
    this.#waiting = []
    this.#waitingBytes = 0
    this.#body?.clear()
    const error = new HttpCallError(this.#request, 'aborted')
    const info = { wroteRequest: this.#wasSent, reusedConnection: false }
    queueMicrotask(() => this.#handler.failed(error, info))
    // A call that was sent but is not accepted yet is cancelled when it is accepted.
    if (this.#isAccepted || !this.#wasSent || this.#isComplete) this.#cancel()
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    this.#pass()
  }

  /** What was sent is a copy of the body's bytes. */
  get usesBody(): boolean {
    return !this.#isOver
  }

  // ── What its carrier does ───────────────────────────────────────────────────────────────────

  /** It may have been sent, and has not ended. */
  get isWaiting(): boolean {
    return !this.#isOver && !this.#isComplete && !this.#wasSent
  }

  get wasSent(): boolean {
    return this.#wasSent
  }

  get isAccepted(): boolean {
    return this.#isAccepted
  }

  /** The server has finished: only the handler can still keep the call open. */
  get isComplete(): boolean {
    return this.#isComplete
  }

  /** Sends the request. A body that cannot go along follows in pieces, once there is credit for them. */
  begin(sink: FrameSink): void {
    const { method, path, headers = {}, body = NOTHING } = this.#request
    this.#wasSent = true
    this.#sink = sink
    const open = { method, path, headers, bodyBytes: body.length, windowBytes: this.#windowBytes }
    if (!sink.put(FRAME.open, open)) {
      this.fail('request', `its headers are too large: ${sink.refusal}`, false)
      return
    }
    if (body.length === 0) this.#body = undefined
    else if (body.length <= sink.alongBytesMax) sink.put(FRAME.body, body)
    else this.#body = new PieceSender(sink, FRAME.body)
    sink.flush()
  }

  /** Tells the handler that the request is about to be sent. False: it has ended the call. */
  toldSent(): boolean {
    callOwner(() => this.#handler.sent?.())
    return !this.#isOver
  }

  /** So much of the body may come. */
  accepted(windowBytes: unknown): void {
    if (this.#isAccepted || !isWindow(windowBytes)) {
      this.fail('protocol', `it cannot be accepted so, with windowBytes ${shownValue(windowBytes)}`)
      return
    }
    this.#isAccepted = true
    if (this.#isOver) {
      this.#cancel()
      return
    }
    const { body = NOTHING } = this.#request
    this.#body?.put(body)
    this.#body?.credit(windowBytes)
  }

  /** More fits into the network again. */
  unblocked(): void {
    this.#body?.goOn()
  }

  frame(kind: FrameKind, content: unknown): void {
    // Without an `accept` before it, `failed` means that the server refused the call.
    if (kind === FRAME.failed) this.#failed(content)
    else if (this.#isOver) return
    else if (kind === FRAME.head) this.#head(content)
    else if (kind === FRAME.data && this.#hasHead) this.#data(content as Uint8Array)
    else if (kind === FRAME.end && this.#hasHead) this.#end(content as number)
    else if (kind === FRAME.credit) this.#body?.credit(content as number)
    else if (kind !== FRAME.alive) this.fail('protocol', `a frame of kind ${kind} came out of order`)
  }

  /**
   * Fails the call from this side. Pieces that wait are still passed. `mayBeSeen`: the server may have seen
   * the request.
   */
  fail(failure: HttpCallFailure, reason: string, mayBeSeen = true): void {
    if (this.#isComplete) return
    this.#wasSent &&= mayBeSeen
    const wasAccepted = this.#isAccepted
    if (wasAccepted) this.#sayCancel()
    this.#complete({ failure, reason })
  }

  // ── Hearing ─────────────────────────────────────────────────────────────────────────────────

  #failed(content: unknown): void {
    const { reason, ...said } = content as { readonly reason: string; readonly wasSeen: boolean }
    // Whose head has come has seen it.
    const wasSeen = said.wasSeen || this.#hasHead
    this.#wasSent &&= wasSeen
    this.#complete({ failure: wasSeen ? 'reset' : 'connect', reason })
  }

  #head(content: unknown): void {
    const { status, headers: given } = (content ?? {}) as Readonly<Record<string, unknown>>
    const headers = headersOf(given)
    // Names that differ in case alone are one header, and may have one value too many together.
    const fault = this.#hasHead
      ? 'it has two heads'
      : (faultOfAnswerHead(status, given) ?? faultOfAnswerHead(status, headers))
    if (fault !== undefined || headers === undefined) {
      this.fail('protocol', fault ?? 'its headers cannot be read')
      return
    }
    this.#hasHead = true
    this.#bytesLeft = announcedBytes(this.#request.method, status as number, headers)
    this.#told(() => this.#handler.head(status as number, headers))
  }

  /** Of the answer. If it makes its owner fail, the call has failed. */
  #told(tell: () => void): void {
    if (!callFor(this.#request.origin, tell)) this.fail('protocol', 'its answer could not be handled')
  }

  #data(bytes: Uint8Array): void {
    if (this.#bytesLeft !== undefined) this.#bytesLeft -= bytes.length
    if (this.#bytesLeft !== undefined && this.#bytesLeft < 0)
      this.fail('protocol', 'it is longer than its content-length')
    else this.#put(bytes)
  }

  #end(how: number): void {
    if (this.#bytesLeft !== undefined && this.#bytesLeft > 0)
      this.fail('protocol', `it ends ${this.#bytesLeft} bytes before its content-length`)
    else this.#complete({ end: how === 1 ? 'closed' : 'framed' })
  }

  #put(bytes: Uint8Array): void {
    if (!this.#isPaused && this.#waiting.length === 0) {
      this.#take(bytes)
      return
    }
    const heldBytes = bytes.length + PIECE_BYTES
    if (this.#waitingBytes + heldBytes <= this.#windowBytes) {
      this.#waitingBytes += heldBytes
      this.#carrier.counts.heldBytes += heldBytes
      // A copy: even a small view would keep all that was received with it in memory.
      this.#waiting.push(new Uint8Array(bytes))
    } else this.fail('protocol', `it sends more than the ${this.#windowBytes} bytes that it may`)
  }

  /** The server is done or no longer wanted: stops hearing it and sends it no more of the body. */
  #complete(last: Last): void {
    if (this.#isComplete) return
    this.#isComplete = true
    this.#body?.clear()
    this.#carrier.unheard(this)
    if (this.#isOver) this.#carrier.ended(this)
    else if (this.#isPaused || this.#waiting.length > 0) this.#waiting.push(last)
    else this.#tell(last)
  }

  #pass(): void {
    while (!this.#isPaused && !this.#isOver && this.#waiting.length > 0) {
      const next = this.#waiting.shift()!
      if (next instanceof Uint8Array) {
        this.#waitingBytes -= next.length + PIECE_BYTES
        this.#carrier.counts.heldBytes -= next.length + PIECE_BYTES
        this.#take(next)
      } else this.#tell(next)
    }
  }

  #take(bytes: Uint8Array): void {
    this.#told(() => this.#handler.data(bytes))
    this.#takenBytes += bytes.length + PIECE_BYTES
    if (this.#isComplete || this.#isOver || this.#takenBytes < this.#windowBytes / 2) return
    this.#sink!.put(FRAME.credit, this.#takenBytes)
    this.#takenBytes = 0
  }

  #tell(last: Last): void {
    this.#isOver = true
    this.#carrier.counts.endedCalls['end' in last ? 'answered' : 'failed']++
    this.#carrier.ended(this)
    const info = { wroteRequest: this.#wasSent, reusedConnection: false }
    if ('end' in last) callFor(this.#request.origin, () => this.#handler.end(last.end))
    else {
      const error = new HttpCallError(this.#request, last.failure, last.reason)
      callFor(this.#request.origin, () => this.#handler.failed(error, info))
    }
  }

  #cancel(): void {
    const wasComplete = this.#isComplete
    if (this.#isAccepted && !wasComplete) this.#sayCancel()
    this.#isComplete = true
    if (!wasComplete) this.#carrier.unheard(this)
    this.#carrier.ended(this)
  }

  #sayCancel(): void {
    this.#sink!.put(FRAME.cancel)
    this.#sink!.flush()
  }
}

const NOTHING = new Uint8Array(0)
