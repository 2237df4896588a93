/**
 * Picked stream: one HTTP request of an Envoy, from the first frame of its ext_proc stream to the last. To
 * its owner it is an exchange that brings its own way to the workers (types.ts); to Envoy it answers each
 * frame.
 *
 *   Envoy                    here                                    owner
 *   request headers    ──▶   held, or answered at once (buffered)    begins to serve, reads the body
 *   request body …     ──▶   kept until it is whole
 *                      ◀──   destination, changed headers; body   ◀─ call
 *                      ◀──   or: an answer at once                ◀─ writeHead, write, end
 *   response headers   ──▶ ◀── headers that explain the decision   ─▶ head
 *   response body …    ──▶ ◀── the same bytes, or none             ─▶ data, end
 *   end of the stream  ──▶                                         ─▶ if too early: the client has gone
 *
 * Modes    A body comes whole before the choice in FULL_DUPLEX_STREAMED and BUFFERED, and in STREAMED if
 *          Envoy does not wait for the answer to the headers. In others the reader of a body is told so. A
 *          body of an answer is only looked at: in FULL_DUPLEX_STREAMED it is sent back as it came. An Envoy
 *          that tells no modes is taken for FULL_DUPLEX_STREAMED both ways, as the protocol wants it.
 *
 * Invariants
 *   I1  Each frame that Envoy waits for is answered once, and in order; none after an answer at once.
 *   I2  The handler of the last call hears head, data*, then one of end and failed; nothing after it.
 *   I3  Bytes that the owner may change or free afterwards are encoded before `call` returns.
 *   I4  The end of the stream ends everything: the body's reader, the call, the exchange.
 */

import type { Clock } from '@homing/base'
import { callOwner } from '../callback.ts'
import { ClientGoneError, HttpCallError, MalformedHttpError } from '../errors.ts'
import type { ExtProcCounts, PickedExchange, PickedRequest } from '../ext-proc-types.ts'
import type { BodyRoom, ClientGoneReason, HttpCall, HttpHeaders, HttpResponseHandler } from '../http-types.ts'
import type { Endpoints } from './endpoints.ts'
import { RequestBody } from './request-body.ts'
import {
  BODY_MODE,
  type BodyFrame,
  type CommonResponse,
  type ProcessingRequest,
  type ProcessingResponse,
} from './schema.ts'
import {
  destination,
  immediate,
  mutationOf,
  readHead,
  servedOf,
  setting,
  streamedBody,
  subsetOf,
} from './words.ts'

/** Of an answer at once. */
const IMMEDIATE_BYTES_MAX = 4 * 2 ** 20
/** Of an answer that waits for its second call. */
const UNCLAIMED_BYTES_MAX = 4 * 2 ** 20

export interface PickedStreamParts {
  readonly clock: Clock
  readonly endpoints: Endpoints
  readonly counts: ExtProcCounts
  readonly peerAddress: string
  readonly bodySilenceMsMax: number
  readonly send: (response: ProcessingResponse) => void
  /** Nothing more is sent: the stream ends, with this fault of Envoy's frames if there is one. */
  readonly finish: (fault?: string) => void
  readonly begin: (exchange: PickedExchange) => void
}

type Happening =
  | {
      readonly type: 'head'
      readonly status: number
      readonly headers: HttpHeaders
      readonly isUnseen: boolean
    }
  | { readonly type: 'data'; readonly bytes: Uint8Array }
  | { readonly type: 'end' }

export class PickedStream implements PickedExchange {
  method = 'GET'
  path = '/'
  query = ''
  headers: HttpHeaders = {}
  subset: readonly string[] | undefined
  isBodySent = false
  readonly peerAddress: string
  readonly #parts: PickedStreamParts
  readonly #body: RequestBody
  #given: Uint8Array | undefined
  #requestMode: number = BODY_MODE.fullDuplex
  #responseMode: number = BODY_MODE.fullDuplex
  /** Answers to headers and body are due, which the choice gives. */
  #isHeadDue = false
  #bodyFramesDue = 0
  #hasTrailers = false
  #phase: 'begin' | 'request' | 'sent' | 'answer' | 'over' = 'begin'
  /** What its owner answers, before any call. */
  #own: { readonly status: number; readonly headers: HttpHeaders; readonly pieces: Uint8Array[] } | undefined
  #ownBytes = 0
  #handler: HttpResponseHandler | undefined
  /** The endpoints that Envoy was told, the first of which is expected to answer. */
  #endpoints: readonly string[] = []
  /** Origins of all but the first of them. */
  #others: readonly string[] = []
  #origin = ''
  #answerHeaders: HttpHeaders = {}
  #servedHeader: string | undefined
  /** Origin of another endpoint that has answered, until the owner has called it. */
  #servedBy: string | undefined
  #waiting: Happening[] = []
  #waitingBytes = 0
  #hasEnded = false
  /** The owner has ended the exchange. */
  #isClosed = false
  #isGone = false
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  readonly #onOver: (() => void)[] = []

  constructor(parts: PickedStreamParts) {
    this.#parts = parts
    this.peerAddress = parts.peerAddress
    this.#body = new RequestBody(parts.clock, parts.bodySilenceMsMax)
  }

  // ── What Envoy sends ─────────────────────────────────────────────────────────────────────────

  frame(request: ProcessingRequest): void {
    if (this.#phase === 'over') return
    if (this.#phase === 'begin') this.#begin(request)
    else if (request.request_body) this.#requestBody(request.request_body)
    else if (request.request_trailers) this.#requestTrailers()
    else if (request.response_headers) this.#responseHeaders(request)
    else if (request.response_body) this.#responseBody(request.response_body)
    else if (request.response_trailers) {
      this.#parts.send({ response_trailers: {} })
      this.#happens({ type: 'end' })
    } else this.#malformed('a frame is of no known kind')
  }

  /** Envoy has ended the stream, or it broke. */
  ended(): void {
    if (this.#phase === 'over') return
    if (this.#phase === 'answer' && this.#responseMode === BODY_MODE.none)
      // No more is shown of it than its head.
      this.#happens({ type: 'end' })
    const { counts } = this.#parts
    if (this.#hasEnded) counts.ended++
    else if (this.#phase !== 'begin') counts.left++
    this.#over()
    this.#leaves()
  }

  #begin(request: ProcessingRequest): void {
    const { request_headers: frame, protocol_config: config, observability_mode: isObserved } = request
    if (isObserved === true) {
      this.#malformed('observability_mode takes no answers: leave it out')
      return
    }
    if (!frame) {
      this.#malformed('the first frame has no request headers: set request_header_mode SEND')
      return
    }
    if (config) {
      this.#requestMode = config.request_body_mode ?? BODY_MODE.none
      this.#responseMode = config.response_body_mode ?? BODY_MODE.none
    }
    const { method, path, query, headers } = readHead(frame.headers)
    Object.assign(this, { method, path, query, headers, subset: subsetOf(request) })
    this.#phase = 'request'
    this.#isHeadDue = true
    const isEmpty = frame.end_of_stream === true
    if (isEmpty) this.#body.whole()
    else if (this.#isBuffered) {
      this.isBodySent = true
      // Envoy sends no body before this answer.
      this.#isHeadDue = false
      this.#parts.send({ request_headers: { response: {} } })
    } else if (this.#sendsEarly(config?.send_body_without_waiting_for_header_response)) this.isBodySent = true
    else
      this.#body.fail(
        new MalformedHttpError(
          'Envoy does not send the body before the choice of an endpoint: set request_body_mode FULL_DUPLEX_STREAMED or BUFFERED',
        ),
      )
    callOwner(() => this.#parts.begin(this))
  }

  get #isBuffered(): boolean {
    return this.#requestMode === BODY_MODE.buffered || this.#requestMode === BODY_MODE.bufferedPartial
  }

  #sendsEarly(isUnasked = false): boolean {
    return (
      this.#requestMode === BODY_MODE.fullDuplex || (this.#requestMode === BODY_MODE.streamed && isUnasked)
    )
  }

  #requestBody(frame: BodyFrame): void {
    const { end_of_stream: isEnd } = frame
    if (this.#phase !== 'request') {
      // A body that nothing waited for: Envoy waits for the answer to each piece.
      if (this.#requestMode !== BODY_MODE.fullDuplex) this.#parts.send({ request_body: { response: {} } })
      return
    }
    this.#bodyFramesDue++
    this.#body.put(bytesOf(frame))
    // Before trailers, a buffered body does not say that it is whole.
    if (isEnd === true || this.#requestMode === BODY_MODE.buffered) this.#body.whole()
    else if (this.#requestMode === BODY_MODE.bufferedPartial)
      this.#body.fail(
        new MalformedHttpError(
          'Envoy has sent a part of the body only: set request_body_mode FULL_DUPLEX_STREAMED',
        ),
      )
  }

  #requestTrailers(): void {
    if (this.#phase !== 'request') {
      this.#parts.send({ request_trailers: {} })
      return
    }
    this.#hasTrailers = true
    this.#body.whole()
  }

  #responseHeaders(request: ProcessingRequest): void {
    const frame = request.response_headers!
    const { status, headers } = readHead(frame.headers)
    this.#phase = 'answer'
    this.#parts.send({
      response_headers: {
        response: { header_mutation: setting(this.#answered(servedOf(request))) },
      },
    })
    const served = servedOf(request)
    const at = served === undefined ? 0 : this.#endpoints.indexOf(served)
    const isWhole = frame.end_of_stream === true
    const isUnseen = this.#responseMode === BODY_MODE.none && !isWhole
    this.#happens({ type: 'head', status, headers, isUnseen }, Math.max(at, 0))
    if (isWhole) this.#happens({ type: 'end' })
  }

  #responseBody(frame: BodyFrame): void {
    const { end_of_stream: isEnd = false } = frame
    const body = bytesOf(frame)
    if (this.#responseMode === BODY_MODE.fullDuplex)
      for (const response of streamedBody(body, isEnd)) this.#parts.send({ response_body: { response } })
    else this.#parts.send({ response_body: { response: {} } })
    if (body.length > 0) this.#happens({ type: 'data', bytes: body })
    if (isEnd) this.#happens({ type: 'end' })
  }

  #answered(served: string | undefined): readonly (readonly [string, string])[] {
    const set = texts(this.#answerHeaders)
    const name = this.#servedHeader
    return name === undefined ? set : [...set, [name, served ?? 'not told']]
  }

  #malformed(why: string): void {
    this.#parts.counts.malformed++
    this.#over()
    this.#parts.finish(why)
    this.#leaves()
  }

  /** Its owner learns that there is no client any more, unless it has ended the exchange itself. */
  #leaves(): void {
    // Each stream ends here, and an error with its stack costs more than a frame.
    if (!this.#body.isRead) this.#body.fail(new ClientGoneError('read the body'))
    if (!this.#isClosed) {
      this.#isClosed = true
      this.#isGone = true
      for (const callback of this.#onGone.splice(0)) callOwner(() => callback('left'))
    }
    for (const callback of this.#onOver.splice(0)) callOwner(callback)
  }

  // ── What its owner hears of the answer ───────────────────────────────────────────────────────

  /** `servedAt`: position of the endpoint that answers, if a head comes. */
  #happens(what: Happening, servedAt = 0): void {
    if (this.#hasEnded) return
    if (what.type === 'end') this.#hasEnded = true
    if (servedAt > 0) this.#moves(servedAt)
    if (this.#servedBy === undefined) this.#tell(what)
    else {
      this.#waiting.push(what)
      if (what.type === 'data') this.#waitingBytes += what.bytes.length
      if (this.#waitingBytes > UNCLAIMED_BYTES_MAX) this.#unwatched()
    }
  }

  /** Another endpoint has answered: the first could not be reached. */
  #moves(at: number): void {
    this.#parts.counts.moved++
    const handler = this.#handler
    this.#servedBy = this.#others[at - 1]
    this.#handler = undefined
    if (handler === undefined) return
    const request = { method: this.method, origin: this.#origin, path: this.path }
    const error = new HttpCallError(request, 'connect', new Error('Envoy could not reach it'), this.#servedBy)
    callOwner(() => handler.failed(error, { wroteRequest: false, reusedConnection: false }))
  }

  #tell(what: Happening): void {
    const handler = this.#handler
    if (handler === undefined) return
    if (what.type === 'head') callOwner(() => handler.head(what.status, what.headers, what.isUnseen))
    else if (what.type === 'data') callOwner(() => handler.data(what.bytes))
    else {
      this.#handler = undefined
      callOwner(() => handler.end('framed'))
    }
  }

  /** Its owner does not follow: what came is dropped, and Envoy has it anyway. */
  #unwatched(): void {
    this.#waiting = []
    this.#hasEnded = true
  }

  // ── Calls ────────────────────────────────────────────────────────────────────────────────────

  call(request: PickedRequest, handler: HttpResponseHandler): HttpCall {
    const call: HttpCall = {
      abort: () => {
        if (this.#handler === handler) this.#handler = undefined
      },
      // Envoy owns the connections: what it sends is answered as it comes.
      pause() {},
      resume() {},
      // All of it is encoded when the call begins.
      usesBody: false,
    }
    if (this.#phase === 'request' && this.#own === undefined) this.#send(request, handler)
    else if (this.#servedBy !== undefined && this.#servedBy === request.origin) this.#goOn(handler)
    else failLater(request, handler, 'connect', 'Envoy calls no other worker for it')
    return call
  }

  #send(request: PickedRequest, handler: HttpResponseHandler): void {
    const isChanged = request.body !== this.#given
    this.#phase = 'sent'
    this.#handler = handler
    this.#origin = request.origin
    let found: readonly (string | Promise<string>)[]
    try {
      found = [request.origin, ...request.others].map(origin => this.#parts.endpoints.of(origin))
    } catch (thrown) {
      this.#unknown(request, handler, thrown)
      return
    }
    const send = (endpoints: readonly (string | undefined)[], body: Uint8Array): void => {
      if (this.#handler !== handler || this.#phase !== 'sent') return
      const [first, ...others] = endpoints
      const known = request.others.filter((_, index) => others[index] !== undefined)
      this.#others = known
      this.#endpoints = [first!, ...others.filter(other => other !== undefined)]
      this.#answerHeaders = request.answerHeaders
      this.#servedHeader = request.servedHeader
      callOwner(() => handler.sent?.())
      this.#direct(request.headers ?? {}, body, isChanged)
    }
    if (found.every(one => typeof one === 'string')) {
      send(found, request.body ?? NOTHING)
      return
    }
    // Its memory may be another body's when the names are known.
    const body = Buffer.from(request.body ?? NOTHING)
    const [first, ...others] = found
    const optional = others.map(one => Promise.resolve(one).catch(() => undefined))
    Promise.all([first!, ...optional]).then(
      endpoints => send(endpoints, body),
      (thrown: unknown) => this.#unknown(request, handler, thrown),
    )
  }

  /** The address of its worker is not known. */
  #unknown(request: PickedRequest, handler: HttpResponseHandler, thrown: unknown): void {
    if (this.#phase !== 'sent' || this.#handler !== handler) return
    this.#phase = 'request'
    this.#handler = undefined
    const why = thrown instanceof Error ? thrown.message : String(thrown)
    failLater(request, handler, 'connect', why)
  }

  #goOn(handler: HttpResponseHandler): void {
    this.#servedBy = undefined
    this.#handler = handler
    const waiting = this.#waiting
    this.#waiting = []
    // Its owner does not expect to be called before it has its call.
    queueMicrotask(() => {
      callOwner(() => handler.sent?.())
      for (const what of waiting) this.#tell(what)
    })
  }

  /** Tells Envoy where the request goes, and what of it is changed. */
  #direct(headers: HttpHeaders, body: Uint8Array, isChanged: boolean): void {
    const { send } = this.#parts
    const { metadata, header } = destination(this.#endpoints)
    const common: CommonResponse = {
      header_mutation: mutationOf(this.headers, headers, [header]),
      clear_route_cache: true,
    }
    if (this.#isHeadDue) {
      this.#isHeadDue = false
      send({ request_headers: { response: common }, dynamic_metadata: metadata })
      if (this.#requestMode === BODY_MODE.fullDuplex && this.#bodyFramesDue > 0)
        for (const response of streamedBody(body, !this.#hasTrailers)) send({ request_body: { response } })
      else for (; this.#bodyFramesDue > 0; this.#bodyFramesDue--) send({ request_body: { response: {} } })
    } else {
      send({
        request_body: { response: isChanged ? withBody(common, body) : common },
        dynamic_metadata: metadata,
      })
    }
    this.#bodyFramesDue = 0
    if (this.#hasTrailers) send({ request_trailers: {} })
  }

  // ── The exchange ─────────────────────────────────────────────────────────────────────────────

  isAmong(origin: string, endpoints: readonly string[]): boolean | Promise<boolean> {
    let found: string | Promise<string>
    try {
      found = this.#parts.endpoints.of(origin)
    } catch {
      // An origin that is no URL is nowhere.
      return false
    }
    return typeof found === 'string'
      ? isIn(found, endpoints)
      : found.then(
          endpoint => isIn(endpoint, endpoints),
          () => false,
        )
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  async readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    const announced = Number(this.headers['content-length'] ?? 0)
    this.#given = await this.#body.read(maxBytes, Number.isFinite(announced) ? announced : 0, room)
    return this.#given
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    if (this.#isGone) queueMicrotask(() => callOwner(() => callback('left')))
    else this.#onGone.push(callback)
  }

  onOver(callback: () => void): void {
    if (this.#isClosed) queueMicrotask(() => callOwner(callback))
    else this.#onOver.push(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    if (this.#phase === 'request') this.#own = { status, headers, pieces: [] }
  }

  write(bytes: Uint8Array): boolean {
    if (this.#own === undefined) return true
    this.#ownBytes += bytes.length
    if (this.#ownBytes <= IMMEDIATE_BYTES_MAX) this.#own.pieces.push(Buffer.from(bytes))
    return true
  }

  onDrain(callback: () => void): void {
    queueMicrotask(() => callOwner(callback))
  }

  end(bytes?: Uint8Array): void {
    if (this.#isClosed) return
    if (bytes !== undefined) this.write(bytes)
    this.#close()
    if (this.#own === undefined) return
    const { status, headers, pieces } = this.#own
    if (this.#ownBytes > IMMEDIATE_BYTES_MAX) this.#answerNow(500, {}, NOTHING)
    else this.#answerNow(status, headers, Buffer.concat(pieces))
  }

  destroy(): void {
    if (this.#isClosed) return
    this.#close()
    if (this.#phase === 'request') this.#answerNow(500, {}, NOTHING)
  }

  #answerNow(status: number, headers: HttpHeaders, body: Uint8Array): void {
    if (this.#phase !== 'request') return
    this.#parts.counts.refused++
    this.#over()
    this.#parts.send(immediate(status, headers, body, 'homing'))
    this.#parts.finish()
  }

  /** The owner is done with it. */
  #close(): void {
    this.#isClosed = true
    this.#onGone.length = 0
    for (const callback of this.#onOver.splice(0)) callOwner(callback)
  }

  #over(): void {
    this.#phase = 'over'
    this.#handler = undefined
    this.#waiting = []
  }
}

const NOTHING = new Uint8Array(0)

/** The library has a list without members where there are no bytes. */
function bytesOf({ body }: BodyFrame): Uint8Array {
  return body instanceof Uint8Array ? body : NOTHING
}

function failLater(
  request: PickedRequest,
  handler: HttpResponseHandler,
  failure: 'connect',
  why: string,
): void {
  const error = new HttpCallError(request, failure, new Error(why))
  const info = { wroteRequest: false, reusedConnection: false }
  queueMicrotask(() => callOwner(() => handler.failed(error, info)))
}

/** Envoy compares the length of a buffered body with what the headers say. */
function withBody(common: CommonResponse, body: Uint8Array): CommonResponse {
  const { set_headers: set = [], ...others } = common.header_mutation ?? {}
  const length = setting([['content-length', String(body.length)]]).set_headers ?? []
  return {
    ...common,
    header_mutation: { ...others, set_headers: [...set, ...length] },
    body_mutation: { body },
  }
}

/** `endpoints`: 'ip:port', or 'ip' for every port. */
function isIn(endpoint: string, endpoints: readonly string[]): boolean {
  const host = endpoint.slice(0, endpoint.lastIndexOf(':'))
  const bare = host.startsWith('[') ? host.slice(1, -1) : host
  return endpoints.some(given => {
    const one = given.trim()
    return one === endpoint || one === host || one === bare
  })
}

function texts(headers: HttpHeaders): readonly (readonly [string, string])[] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as const],
  )
}
