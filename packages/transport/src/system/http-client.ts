/**
 * The HTTP client, on undici: answers as they arrive, not decompressed, with backpressure and abort.
 *
 * Many engines close a connection after 5 s without a request. This client closes its idle connections
 * earlier, so that a request rarely meets a connection that is being closed. If one does, `reusedConnection`
 * tells the caller, which may send the request again.
 */

import { subscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { isLocalFault } from '@homing/base'
import type { Agent, buildConnector, Dispatcher } from 'undici'
import { atOrigin } from '../base-url.ts'
import { callFor, callOwner } from '../callback.ts'
import { believedCertificates } from '../certificates.ts'
import { HttpCallError, type HttpCallFailure } from '../errors.ts'
import { endToEndHeaders, withAccess } from '../headers.ts'
import type {
  HttpAccess,
  HttpCall,
  HttpEnd,
  HttpHeaders,
  HttpRequest,
  HttpResponseHandler,
  PeerTls,
} from '../http-types.ts'
import { InterimAnswers } from './interim-answers.ts'
import { loadUndici } from './libraries.ts'
import { sharedReadBuffer } from './shared-read-buffer.ts'
import { TlsPeers } from './tls-peers.ts'

const CLIENT_KEEP_ALIVE_MS = 4000
const KEEP_ALIVE_MS_MAX = 4500
const HEADER_BYTES_MAX = 64 * 1024

export interface HttpClientOptions {
  readonly connectTimeoutMs: number
}

export class HttpClient {
  readonly #connectTimeoutMs: number
  /** Made at the first call: most threads make none. */
  #made: Agent | undefined
  #isClosed = false
  /** By origin. */
  readonly #access = new Map<string, HttpAccess>()
  readonly #peers = new TlsPeers()
  #trusted = ''

  constructor({ connectTimeoutMs }: HttpClientOptions) {
    this.#connectTimeoutMs = connectTimeoutMs
  }

  setAccess(origin: string, access: HttpAccess | undefined): void {
    if (access === undefined) this.#access.delete(origin)
    else this.#access.set(origin, access)
  }

  setPeer(origin: string, tls: PeerTls | undefined): void {
    this.#peers.set(origin, tls)
  }

  trust(certificates: string): void {
    this.#trusted = certificates
  }

  call(request: HttpRequest, handler: HttpResponseHandler): HttpCall {
    const call = new UndiciCall(request, handler)
    creating = call
    try {
      const { origin, path } = atOrigin(request)
      this.#agent().dispatch(
        {
          origin,
          path,
          method: request.method as Dispatcher.HttpMethod,
          headers: withAccess(endToEndHeaders(request.headers), this.#access.get(request.origin)),
          body: request.body ?? null,
        },
        call,
      )
    } finally {
      creating = undefined
    }
    return call
  }

  /** Cuts every call; they fail as aborted. */
  close(): void {
    this.#isClosed = true
    this.#made?.destroy().catch(() => {})
  }

  #agent(): Agent {
    if (this.#made !== undefined) return this.#made
    watchConnections()
    this.#made = new (loadUndici().Agent)({
      allowH2: false,
      keepAliveTimeout: CLIENT_KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS_MAX,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: HEADER_BYTES_MAX,
      connect: connectorOf(this.#connectTimeoutMs, () => this.#trusted, this.#peers),
    })
    if (this.#isClosed) this.#made.destroy().catch(() => {})
    return this.#made
  }
}

/** Kinds of failure, by the error codes of undici and of Node. */
const FAILURES: ReadonlyMap<string, HttpCallFailure> = new Map([
  ['UND_ERR_HEADERS_OVERFLOW', 'protocol'],
  ['UND_ERR_INVALID_ARG', 'request'],
  ['UND_ERR_NOT_SUPPORTED', 'request'],
  ['ERR_INVALID_URL', 'request'],
  ['UND_ERR_DESTROYED', 'aborted'],
  ['UND_ERR_CLOSED', 'aborted'],
])

class UndiciCall implements HttpCall, Dispatcher.DispatchHandler {
  readonly #request: HttpRequest
  readonly #handler: HttpResponseHandler
  #controller: Dispatcher.DispatchController | undefined
  #isPaused = false
  #isEnded = false
  #wroteRequest = false
  #reusedConnection = false
  #socket: Socket | undefined
  #end: HttpEnd = 'framed'
  /** undici has reported the end of the call, so the request no longer waits there for a connection. */
  #isLeft = false

  constructor(request: HttpRequest, handler: HttpResponseHandler) {
    this.#request = request
    this.#handler = handler
  }

  abort(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    const error = new HttpCallError(this.#request, 'aborted')
    // Without a controller the request waits for its connection; it is dropped in onRequestStart.
    this.#controller?.abort(error)
    const info = { wroteRequest: this.#wroteRequest, reusedConnection: this.#reusedConnection }
    queueMicrotask(() => this.#handler.failed(error, info))
  }

  pause(): void {
    this.#isPaused = true
    this.#controller?.pause()
  }

  resume(): void {
    this.#isPaused = false
    // Not at once: its owner may have been told of another answer, and undici reads one at a time.
    queueMicrotask(() => {
      if (!this.#isPaused && !this.#isEnded) this.#controller?.resume()
    })
  }

  /**
   * A server may answer before it has read the whole request. The rest of the body then still waits in the
   * socket, and its bytes must not change.
   */
  get usesBody(): boolean {
    if (!this.#isEnded) return true
    const socket = this.#socket
    if (socket === undefined) return !this.#isLeft
    return socket.destroyed ? !closedSockets.has(socket) : bytesWaiting(socket) > 0
  }

  /** The headers are about to be written. `reusedConnection`: the connection has served a request before. */
  willWrite(socket: Socket, reusedConnection: boolean): void {
    this.#wroteRequest = true
    this.#socket = socket
    this.#reusedConnection = reusedConnection
    callOwner(() => this.#handler.sent?.())
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#isEnded) controller.abort(new HttpCallError(this.#request, 'aborted'))
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200 || this.#isEnded) return
    if (this.#isPaused) controller.pause()
    const headers = relayHeaders(controller.rawHeaders)
    if (endsWithConnection(this.#request.method, status, headers)) this.#end = 'closed'
    this.#told(() => this.#handler.head(status, headers))
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (!this.#isEnded) this.#told(() => this.#handler.data(chunk))
  }

  onResponseEnd(): void {
    this.#isLeft = true
    // If an answer has no length, undici reports a reset as its end. Only the socket's error tells them
    // apart.
    const broken = this.#end === 'closed' ? this.#socket?.errored : undefined
    if (broken != null) {
      this.#fail(broken)
      return
    }
    if (this.#isEnded) return
    this.#isEnded = true
    callFor(this.#request.origin, () => this.#handler.end(this.#end))
  }

  onResponseError(_: Dispatcher.DispatchController, cause: Error): void {
    this.#isLeft = true
    this.#fail(cause)
  }

  /** Of the answer. If it makes its owner fail, the call has failed. */
  #told(tell: () => void): void {
    if (callFor(this.#request.origin, tell)) return
    this.#fail(new Error('its answer could not be handled'))
    this.#controller?.abort(new HttpCallError(this.#request, 'aborted'))
  }

  #fail(cause: Error): void {
    if (this.#isEnded) return
    this.#isEnded = true
    const error = new HttpCallError(this.#request, this.#failureOf(cause), cause)
    const info = { wroteRequest: this.#wroteRequest, reusedConnection: this.#reusedConnection }
    callFor(this.#request.origin, () => this.#handler.failed(error, info))
  }

  #failureOf(cause: Error): HttpCallFailure {
    if (cause instanceof loadUndici().errors.HTTPParserError) return 'protocol'
    const code = String((cause as { code?: unknown }).code)
    const known = FAILURES.get(code)
    if (known !== undefined) return known
    if (this.#wroteRequest) return 'reset'
    return isLocalFault(cause) ? 'local' : 'connect'
  }
}

/**
 * The call whose `dispatch` runs. undici tells which socket serves a request only on its diagnostics
 * channels: `create` is published while `dispatch` runs, `sendHeaders` just before the request is written.
 */
let creating: UndiciCall | undefined
const calls = new WeakMap<object, UndiciCall>()
const usedSockets = new WeakSet<object>()
/**
 * Sockets whose `close` event has come: what they still had to write is not read any more. The `closed`
 * property of a socket is true earlier than that.
 */
const closedSockets = new WeakSet<object>()
const interimAnswers = new WeakMap<object, InterimAnswers>()
let isWatching = false

function watchConnections(): void {
  if (isWatching) return
  isWatching = true
  subscribe('undici:request:create', message => {
    const { request } = message as { request: object }
    if (creating !== undefined) calls.set(request, creating)
  })
  subscribe('undici:client:sendHeaders', message => {
    const { request, socket } = message as { request: object; socket: Socket }
    calls.get(request)?.willWrite(socket, usedSockets.has(socket))
    usedSockets.add(socket)
    interimAnswers.get(socket)?.expectAnswer()
  })
}

function connectorOf(timeoutMs: number, trusted: () => string, peers: TlsPeers): buildConnector.connector {
  const { buildConnector } = loadUndici()
  const plain = buildConnector({ timeout: timeoutMs, allowH2: false, onread: sharedReadBuffer() })
  // Made at the first use: the system's certificates take a while to read.
  let secure: buildConnector.connector | undefined
  const secured = () => {
    secure ??= buildConnector({ timeout: timeoutMs, allowH2: false, ca: believedCertificates(trusted()) })
    return secure
  }
  const connectorTo = (options: buildConnector.Options) =>
    options.protocol === 'https:' ? (peers.connectorTo(options.host, timeoutMs, trusted) ?? secured()) : plain
  return (options, callback) =>
    connectorTo(options)(options, (...[error, socket]) => {
      if (error !== null) return callback(error, null)
      interimAnswers.set(socket, new InterimAnswers(socket, HEADER_BYTES_MAX))
      socket.once('close', () => closedSockets.add(socket))
      callback(null, socket)
    })
}

/** Bytes that the operating system has not taken yet. */
function bytesWaiting(socket: Socket): number {
  const handle = (socket as { readonly _handle?: { readonly writeQueueSize?: number } | null })._handle
  return socket.writableLength + (handle?.writeQueueSize ?? 0)
}

/**
 * Whether only the close of the connection ends the answer (RFC 9112 §6.3): it may have a body, but has
 * neither length nor chunks.
 */
function endsWithConnection(method: string, status: number, headers: HttpHeaders): boolean {
  if (method === 'HEAD' || status === 204 || status === 304) return false
  const encoding = headers['transfer-encoding']
  if (encoding === undefined) return headers['content-length'] === undefined
  return !/\bchunked\s*$/i.test(typeof encoding === 'string' ? encoding : (encoding.at(-1) ?? ''))
}

/**
 * Headers by name: one value, or a list if the name repeats. They are read as latin1, so a server can write
 * the same bytes again.
 */
function relayHeaders(raw: unknown): HttpHeaders {
  const headers: Record<string, string | string[]> = Object.create(null)
  if (!Array.isArray(raw)) return headers
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = latin1(raw[i]).toLowerCase()
    const value = latin1(raw[i + 1])
    const known = headers[name]
    if (known === undefined) headers[name] = value
    else if (typeof known === 'string') headers[name] = [known, value]
    else known.push(value)
  }
  return headers
}

function latin1(value: unknown): string {
  return Buffer.isBuffer(value) ? value.toString('latin1') : String(value)
}
