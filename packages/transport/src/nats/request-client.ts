/**
 * Request client: HTTP calls over a broker to the server of a subject (request-server.ts, request-wire.ts).
 *
 *   waiting ──a connection──▶ sent ──accept──▶ accepted ──head──▶ answering ──end, all is read──▶ over
 *      │ none in time           │ no server, silence, a broken order, or the broker's connection ends
 *      └────────────────────────┴──────────────▶ over (failed)
 *
 * To its caller a call looks like one over a socket, with the same failures: `connect` when no server can
 * have seen the request, `reset` when the answer broke off. No request is sent twice.
 *
 * Bounds   a paused call holds at most `windowBytes`, the credit that it gave. Each call looks every BEAT_MS
 *          whether its server was heard. After more than SILENCE_LOOKS looks in silence the server counts as
 *          gone. Looks are counted, not time: if our own thread stood still, a live server does not count as
 *          gone. A call waits for a broker until it has been away for CALL_CONNECT_MS_MAX; after that, calls
 *          fail at once.
 */

import { type Clock, shownValue, type Timer } from '@homing/base'
import { announcedBytes, faultOfAnswerHead } from '../answer-head.ts'
import { callFor, callOwner } from '../callback.ts'
import { HttpCallError, type HttpCallFailure } from '../errors.ts'
import type { HttpCall, HttpEnd, HttpRequest, HttpResponseHandler } from '../types.ts'
import type { Broker, BrokerLink, OpenBroker } from './broker.ts'
import { BEAT_MS } from './lives.ts'
import { PieceSender } from './request-sender.ts'
import {
  countFrame,
  decodeCallPayload,
  FRAME,
  type Frame,
  FrameWriter,
  headersOf,
  isWindow,
  jsonFrame,
  PIECE_BYTES,
  readCountFrame,
  readJsonFrame,
  VERSION,
} from './request-wire.ts'

/** After more looks than this in silence, the other side counts as gone. */
export const SILENCE_LOOKS = 5
const CALL_CONNECT_MS_MAX = 2000

export interface RequestClientOptions {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  /** Returns 16 hexadecimal digits, different ones each time. */
  readonly newCallId: () => string
}

/** Where a request goes. */
export interface RequestTarget {
  readonly servers: readonly string[]
  readonly subject: string
  /** Most bytes of an answer that may be on the way or held. */
  readonly windowBytes: number
}

/** All calls of one transport. */
export class RequestClient {
  readonly #options: RequestClientOptions
  readonly #brokers = new Map<string, BrokerCalls>()

  constructor(options: RequestClientOptions) {
    this.#options = options
  }

  call(request: HttpRequest, target: RequestTarget, handler: HttpResponseHandler): HttpCall {
    const key = target.servers.join(',')
    const calls = this.#brokers.get(key) ?? new BrokerCalls(target.servers, this.#options)
    this.#brokers.set(key, calls)
    return calls.call(request, target, handler)
  }

  /** Cuts every call; they fail as aborted. */
  close(): void {
    for (const calls of this.#brokers.values()) calls.close()
    this.#brokers.clear()
  }
}

/** The calls over one broker. */
class BrokerCalls {
  readonly clock: Clock
  readonly broker: Broker
  readonly name: string
  readonly #newCallId: () => string
  readonly #open = new Set<BrokerCall>()
  readonly #leave: () => void
  link: BrokerLink | undefined
  /** Since when there is no link, if there is none. */
  downMs: number
  #timer: Timer | undefined

  constructor(servers: readonly string[], { clock, log, openBroker, newCallId }: RequestClientOptions) {
    this.clock = clock
    this.name = servers.join(',')
    this.#newCallId = newCallId
    this.downMs = clock.nowMs()
    this.broker = openBroker(servers)
    this.#leave = this.broker.join({
      up: link => {
        this.link = link
        for (const call of [...this.#open]) call.up(link)
      },
      down: () => {
        this.link = undefined
        this.downMs = clock.nowMs()
        for (const call of [...this.#open]) call.down()
      },
      failed: reason => log.warn({ servers, reason }, 'NATS connection failed'),
    })
  }

  call(request: HttpRequest, target: RequestTarget, handler: HttpResponseHandler): HttpCall {
    const call = new BrokerCall(request, target, handler, this.#newCallId(), this)
    this.#open.add(call)
    this.broker.counts.openCalls++
    // The call begins in a later turn, so the caller has it before its handler is called.
    queueMicrotask(() => call.start())
    this.#lookLater()
    return call
  }

  ended(call: BrokerCall): void {
    if (!this.#open.delete(call)) return
    this.broker.counts.openCalls--
    if (this.#open.size > 0) return
    this.#timer?.cancel()
    this.#timer = undefined
  }

  close(): void {
    for (const call of [...this.#open]) call.abort()
    this.#timer?.cancel()
    this.#leave()
  }

  #lookLater(): void {
    this.#timer ??= this.clock.after(BEAT_MS, () => {
      this.#timer = undefined
      for (const call of [...this.#open]) call.look()
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

/** How a call ends. */
type Last = { readonly end: HttpEnd } | { readonly failure: HttpCallFailure; readonly reason: string }
/** What a paused call keeps for its handler. */
type Waiting = Uint8Array | Last

class BrokerCall implements HttpCall {
  readonly #request: HttpRequest
  readonly #target: RequestTarget
  readonly #handler: HttpResponseHandler
  readonly #id: string
  readonly #calls: BrokerCalls
  #timer: Timer | undefined
  #unsubscribe: (() => void) | undefined
  #writer: FrameWriter | undefined
  #body: PieceSender | undefined
  #wasSent = false
  #isAccepted = false
  #hasHead = false
  /** Bytes of the answer that have not come yet; undefined: the head announced no length. */
  #bytesLeft: number | undefined
  #isPaused = false
  /** The server has said its last word. */
  #isComplete = false
  /** The handler has been told the end. */
  #isOver = false
  #waiting: Waiting[] = []
  /** Credit that the pieces in `#waiting` take. */
  #waitingBytes = 0
  #nextSequence = 0
  /** Credit of pieces that the handler took, not given back to the server yet. */
  #takenBytes = 0
  /** Looks since the server was heard last. */
  #silentLooks = 0
  /** We have sent something to the server since the last look, so it needs no `alive`. */
  #hasSpoken = false

  constructor(
    request: HttpRequest,
    target: RequestTarget,
    handler: HttpResponseHandler,
    id: string,
    calls: BrokerCalls,
  ) {
    this.#request = request
    this.#target = target
    this.#handler = handler
    this.#id = id
    this.#calls = calls
  }

  // ── What its owner does ─────────────────────────────────────────────────────────────────────

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    const { counts } = this.#calls.broker
    counts.endedCalls.aborted++
    counts.heldBytes -= this.#waitingBytes
    this.#waiting = []
    this.#waitingBytes = 0
    this.#body?.clear()
    this.#timer?.cancel()
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

  /** What was published is a copy of the body's bytes. */
  get usesBody(): boolean {
    return !this.#isOver
  }

  // ── What its broker does ────────────────────────────────────────────────────────────────────

  start(): void {
    const { link, clock, downMs, name } = this.#calls
    if (this.#isOver) return
    if (link !== undefined) {
      this.up(link)
      return
    }
    const waitMs = Math.max(0, downMs + CALL_CONNECT_MS_MAX - clock.nowMs())
    this.#timer = clock.after(waitMs, () =>
      this.#fail('connect', `there is no connection to the NATS broker ${name}`),
    )
  }

  up(link: BrokerLink): void {
    if (this.#isOver || this.#isComplete || this.#wasSent) return
    this.#timer?.cancel()
    callOwner(() => this.#handler.sent?.())
    if (!this.#isOver) this.#send(link)
  }

  down(): void {
    // A call that was not sent goes on waiting for a connection.
    if (!this.#wasSent) return
    this.#unsubscribe = undefined
    this.#fail('reset', `the connection to the NATS broker ${this.#calls.name} ended`)
  }

  look(): void {
    if (!this.#wasSent) return
    // The server has finished: only the handler can still keep the call open.
    if (this.#isComplete) return
    if (++this.#silentLooks > SILENCE_LOOKS) {
      this.#fail('reset', `nothing was heard from ${this.#target.subject} for ${SILENCE_LOOKS * BEAT_MS} ms`)
      return
    }
    if (this.#isAccepted && !this.#hasSpoken) this.#writer!.put(FRAME.alive)
    this.#hasSpoken = false
  }

  // ── Sending ─────────────────────────────────────────────────────────────────────────────────

  #send(link: BrokerLink): void {
    const { method, path, headers = {}, body = NOTHING } = this.#request
    const { subject, windowBytes } = this.#target
    const { broker } = this.#calls
    const inbox = broker.newInbox()
    this.#wasSent = true
    this.#unsubscribe = link.subscribe(inbox, {
      message: (payload, reply) => this.#heard(payload, reply),
      unheard: () =>
        this.#fail('connect', `nobody serves ${subject} at the NATS broker ${this.#calls.name}`, false),
    })
    const lost = (): void => this.#fail('reset', 'too much is on its way to the NATS broker')
    const writer = new FrameWriter(link, this.#id, lost, subject, inbox)
    this.#writer = writer
    const open = jsonFrame({ method, path, headers, bodyBytes: body.length, windowBytes })
    if (!writer.put(FRAME.open, open)) {
      const reason = `its headers have ${open.length} bytes, and the NATS broker takes payloads of ${link.payloadBytesMax} bytes`
      this.#fail('request', reason, false)
      return
    }
    // A body that fits goes along with `open`. A larger one is sent in pieces, within the server's credit.
    if (open.length + body.length + OPEN_BYTES <= Math.min(link.payloadBytesMax, ALONG_BYTES_MAX))
      writer.put(FRAME.body, body)
    else this.#body = new PieceSender(writer, FRAME.body, link.payloadBytesMax)
    writer.flush()
  }

  // ── Hearing ─────────────────────────────────────────────────────────────────────────────────

  #heard(bytes: Uint8Array, reply: string): void {
    if (this.#isComplete) return
    const payload = decodeCallPayload(bytes)
    const fault = this.#faultOf(payload)
    if (fault !== undefined || typeof payload !== 'object') {
      this.#fail(typeof payload === 'object' ? 'reset' : 'protocol', fault ?? '')
      return
    }
    this.#nextSequence++
    this.#silentLooks = 0
    for (const frame of payload.frames) {
      if (this.#isComplete) return
      this.#frame(frame, reply)
    }
  }

  #faultOf(payload: ReturnType<typeof decodeCallPayload>): string | undefined {
    if (payload === undefined) return 'what it answers is not of the request plane'
    if (typeof payload === 'number') return `its request plane is of version ${payload}, not ${VERSION}`
    const lost = payload.sequence - this.#nextSequence
    return lost === 0 ? undefined : `${lost} payloads of the answer were lost`
  }

  #frame({ kind, bytes }: Frame, reply: string): void {
    if (kind === FRAME.accept) this.#accepted(bytes, reply)
    // Without an `accept` before it, `failed` means that the server refused the call.
    else if (kind === FRAME.failed) this.#complete({ failure: 'reset', reason: text(bytes) })
    else if (this.#isOver) return
    else if (kind === FRAME.head) this.#head(bytes)
    else if (kind === FRAME.data && this.#hasHead) this.#data(bytes)
    else if (kind === FRAME.end && this.#hasHead) this.#end(bytes)
    else if (kind === FRAME.credit) {
      this.#body?.credit(readCountFrame(bytes) ?? 0)
      this.#hasSpoken = true
    } else if (kind !== FRAME.alive) this.#fail('protocol', `a frame of kind ${kind} came out of order`)
  }

  #accepted(bytes: Uint8Array, reply: string): void {
    const windowBytes = readJsonFrame(bytes)?.['windowBytes']
    if (this.#isAccepted || reply === '' || !isWindow(windowBytes)) {
      this.#fail('protocol', `it cannot be accepted so, with windowBytes ${shownValue(windowBytes)}`)
      return
    }
    this.#isAccepted = true
    this.#writer!.aim(reply)
    if (this.#isOver) {
      this.#cancel()
      return
    }
    const { body = NOTHING } = this.#request
    this.#body?.put(body)
    this.#body?.credit(windowBytes)
    this.#hasSpoken = true
  }

  #head(bytes: Uint8Array): void {
    const { status, headers: given } = readJsonFrame(bytes) ?? {}
    const fault = this.#hasHead ? 'it has two heads' : faultOfAnswerHead(status, given)
    const headers = headersOf(given)
    if (fault !== undefined || headers === undefined) {
      this.#fail('protocol', fault ?? 'its headers cannot be read')
      return
    }
    this.#hasHead = true
    this.#bytesLeft = announcedBytes(this.#request.method, status as number, headers)
    this.#told(() => this.#handler.head(status as number, headers))
  }

  /** Of the answer. If it makes its owner fail, the call has failed. */
  #told(tell: () => void): void {
    if (!callFor(this.#request.origin, tell)) this.#fail('protocol', 'its answer could not be handled')
  }

  #data(bytes: Uint8Array): void {
    if (this.#bytesLeft !== undefined) this.#bytesLeft -= bytes.length
    if (this.#bytesLeft !== undefined && this.#bytesLeft < 0)
      this.#fail('protocol', 'it is longer than its content-length')
    else this.#put(bytes)
  }

  #end(bytes: Uint8Array): void {
    if (this.#bytesLeft !== undefined && this.#bytesLeft > 0)
      this.#fail('protocol', `it ends ${this.#bytesLeft} bytes before its content-length`)
    else this.#complete({ end: bytes[0] === 1 ? 'closed' : 'framed' })
  }

  #put(bytes: Uint8Array): void {
    if (!this.#isPaused && this.#waiting.length === 0) {
      this.#take(bytes)
      return
    }
    const heldBytes = bytes.length + PIECE_BYTES
    if (this.#waitingBytes + heldBytes <= this.#target.windowBytes) {
      this.#waitingBytes += heldBytes
      this.#calls.broker.counts.heldBytes += heldBytes
      // A copy: even a small view would keep the whole received payload in memory.
      this.#waiting.push(bytes.slice())
    } else this.#fail('protocol', `it sends more than the ${this.#target.windowBytes} bytes that it may`)
  }

  /** The server is done or no longer wanted: stops hearing it and sends it no more of the body. */
  #complete(last: Last): void {
    this.#isComplete = true
    this.#body?.clear()
    this.#unsubscribe?.()
    this.#unsubscribe = undefined
    if (this.#isOver) this.#calls.ended(this)
    else if (this.#isPaused || this.#waiting.length > 0) this.#waiting.push(last)
    else this.#tell(last)
  }

  #pass(): void {
    while (!this.#isPaused && !this.#isOver && this.#waiting.length > 0) {
      const next = this.#waiting.shift()!
      if (next instanceof Uint8Array) {
        this.#waitingBytes -= next.length + PIECE_BYTES
        this.#calls.broker.counts.heldBytes -= next.length + PIECE_BYTES
        this.#take(next)
      } else this.#tell(next)
    }
  }

  #take(bytes: Uint8Array): void {
    this.#told(() => this.#handler.data(bytes))
    this.#takenBytes += bytes.length + PIECE_BYTES
    if (this.#isComplete || this.#isOver || this.#takenBytes < this.#target.windowBytes / 2) return
    this.#writer!.put(FRAME.credit, countFrame(this.#takenBytes))
    this.#takenBytes = 0
    this.#hasSpoken = true
  }

  #tell(last: Last): void {
    this.#isOver = true
    this.#calls.broker.counts.endedCalls['end' in last ? 'answered' : 'failed']++
    this.#calls.ended(this)
    const info = { wroteRequest: this.#wasSent, reusedConnection: false }
    if ('end' in last) callFor(this.#request.origin, () => this.#handler.end(last.end))
    else {
      const error = new HttpCallError(this.#request, last.failure, last.reason)
      callFor(this.#request.origin, () => this.#handler.failed(error, info))
    }
  }

  /**
   * Fails the call from this side. Pieces that wait are still passed. `mayBeSeen`: the server may have seen
   * the request.
   */
  #fail(failure: HttpCallFailure, reason: string, mayBeSeen = true): void {
    if (this.#isComplete) return
    this.#wasSent &&= mayBeSeen
    this.#complete({ failure, reason })
    if (this.#isAccepted) this.#sayCancel()
  }

  #cancel(): void {
    if (this.#isAccepted && !this.#isComplete) this.#sayCancel()
    this.#isComplete = true
    this.#unsubscribe?.()
    this.#unsubscribe = undefined
    this.#calls.ended(this)
  }

  #sayCancel(): void {
    this.#writer!.put(FRAME.cancel)
    this.#writer!.flush()
  }
}

const NOTHING = new Uint8Array(0)
/** Room for the heads of payload and frames. */
const OPEN_BYTES = 64
/** A larger body waits until the server has accepted the request. */
const ALONG_BYTES_MAX = 256 * 1024

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString()
}
