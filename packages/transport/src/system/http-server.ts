/**
 * The HTTP server, on node:http: exchanges as the rest of the project sees them.
 *
 * Headers are limited to HEADER_BYTES_MAX and HEADERS_MS_MAX. The owner sets how long a body may be silent
 * and how long a reader may take nothing, and an idle connection is kept; the time of a whole request or
 * answer has no limit here.
 *
 * connection.ts handles everything that is not an exchange (a request that is not HTTP, a half close).
 */

import type { IncomingMessage, Server, ServerOptions, ServerResponse } from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import type { Socket } from 'node:net'
import type { Clock, Timer } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import {
  BodyTimeoutError,
  BodyTooLargeError,
  BodyTooSlowError,
  ClientGoneError,
  ExpectationError,
  HeadersTooLargeError,
  type HttpRequestError,
  ListenError,
  MalformedHttpError,
  PipelinedError,
} from '../errors.ts'
import { giveUpBytes } from '../give-up-bytes.ts'
import type {
  BodyRoom,
  ClientGoneReason,
  ConnectionRefusal,
  HttpErrorAnswer,
  HttpExchange,
  HttpHeaders,
  HttpListener,
  ListenOptions,
} from '../http-types.ts'
import { BODY_BYTES_PER_SECOND, BODY_PAUSES_MAX, HEADER_BYTES_MAX, HEADERS_MS_MAX } from '../limits.ts'
import { sharedPort } from '../shared-port.ts'
import { StallWatch } from '../stall-watch.ts'
import { chunkOf, LAST_CHUNK } from './chunks.ts'
import { Connection, type OpenExchange } from './connection.ts'
import { nodeHttp } from './libraries.ts'

/** Each time all idle connections are looked at. */
const MAKE_ROOM_MS_MIN = 1000
const KEEP_ALIVE_MS_DEFAULT = 75_000
/** `a:`, and the end of the line. */
const HEADER_LINE_BYTES_MIN = 4
const HEADER_LINES_MAX = HEADER_BYTES_MAX / HEADER_LINE_BYTES_MIN
/** Clients read sizes of 16 digits at least; what they need is 8 at most. */
const ZEROS_MAX = 6
/**
 * A body that comes in tiny pieces is put together every so often: each piece costs far more than its bytes.
 */
const LOOSE_PIECES_MAX = 1024

/** The most of a body that is thrown away, where it is not read, so that its connection can go on. */
const SPARED_BODY_BYTES_MAX = 2 ** 16

/** Rejects with ListenError. */
export async function listenHttp(
  options: ListenOptions,
  onExchange: (exchange: HttpExchange) => void,
  clock: Clock,
): Promise<HttpListener> {
  const server = createServer(options.tls, {
    keepAlive: true,
    noDelay: true,
    maxHeaderSize: HEADER_BYTES_MAX,
    headersTimeout: HEADERS_MS_MAX,
    keepAliveTimeout: options.keepAliveMsMax ?? KEEP_ALIVE_MS_DEFAULT,
    // A long upload is the gateway's to judge.
    requestTimeout: 0,
    // Node's own answer has no body.
    requireHostHeader: false,
  })
  // A client that has said all may still wait for its answer. Node has no option for it.
  ;(server as { httpAllowHalfOpen?: boolean }).httpAllowHalfOpen = true
  // Node counts the bytes of names and values alone. Past this number there are too many, with what is
  // between them.
  server.maxHeadersCount = HEADER_LINES_MAX
  const state: ServerState = {
    server,
    clock,
    bodySilenceMsMax: options.bodySilenceMsMax ?? Number.POSITIVE_INFINITY,
    readerStallMsMax: options.readerStallMsMax ?? Number.POSITIVE_INFINITY,
    handshakes: new Map(),
    isEndingConnections: false,
    isClosing: false,
  }
  const connections = new WeakMap<object, Connection>()
  const connectionOf = (socket: Socket): Connection => {
    let connection = connections.get(socket)
    if (connection === undefined) {
      const wire = state.handshakes.get(peerOf(socket)) ?? socket
      connection = new Connection(socket, wire, clock, options.errorAnswer ?? textAnswer)
      connections.set(socket, connection)
    }
    return connection
  }
  let connectionCount = 0
  const refused = (why: ConnectionRefusal): void => callOwner(options.onConnectionRefused ?? (() => {}), why)
  if (options.connectionsMax !== undefined) server.maxConnections = options.connectionsMax
  let madeRoomMs = Number.NEGATIVE_INFINITY
  server.on('drop', () => {
    refused('bound')
    if (clock.nowMs() - madeRoomMs < MAKE_ROOM_MS_MIN) return
    madeRoomMs = clock.nowMs()
    server.closeIdleConnections()
  })
  server.on('connection', (socket: Socket) => {
    connectionCount++
    socket.once('close', () => void connectionCount--)
    if (options.tls === undefined) return
    const peer = peerOf(socket)
    state.handshakes.set(peer, socket)
    socket.once('close', () => {
      if (state.handshakes.get(peer) === socket) state.handshakes.delete(peer)
    })
  })
  const refuse = (request: IncomingMessage, error: HttpRequestError): void =>
    connectionOf(request.socket).refuse(error)
  server.on(options.tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    const connection = connectionOf(socket)
    state.handshakes.delete(peerOf(socket))
    // Not before: a client that leaves during the handshake has nothing to wait for.
    socket.allowHalfOpen = true
    socket.on('end', () => connection.halfClosed())
  })
  // The client does not speak TLS or does not trust the certificate; its connection is closed already.
  server.on('tlsClientError', () => {})
  server.on('request', (request, response) => {
    if (connectionOf(request.socket).isFaulty) return
    // Of more, an older Node leaves the last ones out without a word.
    if (request.rawHeaders.length >= 2 * HEADER_LINES_MAX) {
      refuse(request, new HeadersTooLargeError())
      return
    }
    const hosts = hostCount(request)
    if (hosts > 1 || (hosts === 0 && request.httpVersion === '1.1')) {
      refuse(request, new MalformedHttpError(`it has ${hosts} Host headers, and must have one`))
      return
    }
    if (request.httpVersionMinor === 0 && request.headers['transfer-encoding'] !== undefined) {
      // RFC 9112 §6.1: a proxy that passed it on may not have known chunks, and have read another length.
      refuse(request, new MalformedHttpError('HTTP/1.0 has no transfer-encoding'))
      return
    }
    if (connectionOf(request.socket).isFull) {
      refuse(request, new PipelinedError())
      return
    }
    const exchange = new NodeExchange(request, response, connectionOf(request.socket), state)
    if (!callFor(`client ${request.socket.remoteAddress}`, onExchange, exchange)) exchange.destroy()
  })
  server.on('checkExpectation', request =>
    refuse(request, new ExpectationError(String(request.headers.expect))),
  )
  server.on('connect', request => refuse(request, new MalformedHttpError('CONNECT asks for a tunnel')))
  server.on('clientError', (error, socket) => connectionOf(socket as Socket).broke(error))
  await new Promise<void>((resolve, reject) => {
    const failed = (error: Error): void => {
      const scheme = options.tls === undefined ? 'http' : 'https'
      reject(new ListenError(`${scheme}://${options.host}:${options.port}`, error))
    }
    server.once('error', failed)
    const listening = (): void => {
      server.off('error', failed)
      // Accepting may fail later, for want of file descriptors; clients try again.
      server.on('error', () => refused('system'))
      resolve()
    }
    try {
      server.listen({ host: options.host, port: options.port, ...sharedPort(options.isShared) }, listening)
    } catch (thrown) {
      failed(thrown as Error)
    }
  })
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : options.port
  let closing: Promise<void> | undefined
  return {
    host: options.host,
    port,
    get connections() {
      return connectionCount
    },
    endConnections() {
      state.isEndingConnections = true
    },
    setIdentity({ certificate, key }) {
      if ('setSecureContext' in server) server.setSecureContext({ cert: certificate, key })
    },
    close(graceMs) {
      closing ??= closeServer(state, graceMs, clock)
      return closing
    },
  }
}

interface ServerState {
  readonly server: Server | TlsServer
  readonly clock: Clock
  readonly bodySilenceMsMax: number
  readonly readerStallMsMax: number
  /**
   * By peer: connections whose TLS handshake is not over, of which node:http knows nothing. Without TLS none.
   */
  readonly handshakes: Map<string, Socket>
  /** Answers that begin end their connections. */
  isEndingConnections: boolean
  /** Connections are closed as their answers end. */
  isClosing: boolean
}

function createServer(tls: ListenOptions['tls'], options: ServerOptions): Server | TlsServer {
  if (tls === undefined) return nodeHttp.createServer(options)
  return createTlsServer({
    ...options,
    cert: tls.certificate,
    key: tls.key,
    handshakeTimeout: HEADERS_MS_MAX,
  })
}

function closeServer(state: ServerState, graceMs: number, clock: Clock): Promise<void> {
  const { server } = state
  state.isEndingConnections = true
  state.isClosing = true
  return new Promise(resolve => {
    const timer = clock.after(graceMs, () => server.closeAllConnections())
    server.close(() => {
      timer.cancel()
      resolve()
    })
    server.closeIdleConnections()
    for (const socket of state.handshakes.values()) socket.destroy()
  })
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`
}

/** Host is no list: a second one is another's (RFC 9112 §3.2). */
function hostCount({ rawHeaders }: IncomingMessage): number {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]!.length === 4 && rawHeaders[at]!.toLowerCase() === 'host') count++
  }
  return count
}

function textAnswer({ status, message }: HttpRequestError): HttpErrorAnswer {
  return {
    status,
    headers: { 'content-type': 'text/plain; charset=utf-8' },
    body: Buffer.from(`${message}\n`),
  }
}

/** Scheme and authority of a target in absolute form, which every server must take (RFC 9112 §3.2.2). */
const ORIGIN = /^https?:\/\/[^/?#]*/i

class NodeExchange implements HttpExchange, OpenExchange {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  readonly peerAddress: string
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #connection: Connection
  readonly #server: ServerState
  readonly #onBodyFault: ((error: HttpRequestError) => void)[] = []
  #bodyFault: HttpRequestError | undefined
  /** A piece of the answer is on its way, its head before it. */
  #hasWritten = false
  #hasLength = false
  /** It has no length: what is written after its first piece are chunks of our own making. */
  #isChunked = false
  /** Zeros written since, which begin the size of the next chunk. */
  #zeros = 0
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  readonly #stall: StallWatch
  readonly #onOver: (() => void)[] = []
  #isOver = false
  #isRefused = false
  #isGone = false
  #goneReason: ClientGoneReason = 'left'

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    connection: Connection,
    server: ServerState,
  ) {
    const target = request.url ?? '/'
    const origin = target.startsWith('/') ? undefined : ORIGIN.exec(target)?.[0]
    const rest = origin === undefined ? target : target.slice(origin.length)
    const url = origin === undefined || rest.startsWith('/') ? rest : `/${rest}`
    const queryAt = url.indexOf('?')
    this.method = request.method ?? 'GET'
    this.path = queryAt < 0 ? url : url.slice(0, queryAt)
    this.query = queryAt < 0 ? '' : url.slice(queryAt + 1)
    this.headers = request.headers
    this.peerAddress = request.socket.remoteAddress ?? ''
    this.#request = request
    this.#response = response
    this.#server = server
    this.#connection = connection
    this.#stall = new StallWatch(server.clock, server.readerStallMsMax, {
      waitingBytes: () => response.writableLength,
      // Before it has the socket, an answer waits for another one of its connection, not for the client; NaN
      // differs from itself, so that this never counts as a stall.
      progress: () => (response.socket === null ? Number.NaN : connection.bytesTaken),
      cut: () => {
        this.#goneReason = 'stalled'
        this.destroy()
      },
    })
    response.on('close', () => {
      this.#stall.stop()
      if (!response.writableFinished) this.#leave()
      this.#end()
      connection.closed(this)
    })
    response.on('finish', () => {
      this.#stall.stop()
      if (!request.complete) {
        // What follows is thrown away while the connection lasts; nothing of it is read any more.
        if (this.#isRefused) request.resume()
        connection.unread(this)
      }
      this.#end()
      // Its connection is idle only once Node has finished with it.
      if (server.isClosing) setImmediate(() => server.server.closeIdleConnections())
    })
    // Both report that the connection broke, which `close` tells already.
    response.on('error', () => {})
    request.on('error', () => {})
    connection.opened(this)
  }

  get isRequestWhole(): boolean {
    return this.#request.complete
  }

  failBody(error: HttpRequestError): void {
    this.#bodyFault = error
    this.#response.shouldKeepAlive = false
    for (const callback of this.#onBodyFault.splice(0)) callback(error)
  }

  probe(): void {
    const response = this.#response
    // Behind the last chunk, which may wait for the client still, there is no next size.
    if (this.#request.httpVersionMinor === 0 || response.writableEnded) return
    // It waits for another answer of its connection: a sign of life would stand before the head of that one.
    if (response.socket === null) return
    if (!response.headersSent) response.writeContinue()
    else if (!this.#hasWritten) response.flushHeaders()
    else if (this.#isChunked && this.#zeros < ZEROS_MAX) {
      this.#zeros++
      this.#request.socket.write('0')
    }
  }

  get isClosed(): boolean {
    return this.#isGone || this.#response.writableEnded
  }

  readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const request = this.#request
      const { clock, bodySilenceMsMax } = this.#server
      if (this.#isGone) return reject(new ClientGoneError('read the body'))
      const pieces: Buffer[] = []
      let loose: Buffer[] = []
      let size = 0
      let timer: Timer | undefined
      const refuse = (error: unknown): void => {
        timer?.cancel()
        this.#isRefused = true
        pieces.length = 0
        loose = []
        // What is left of the body stays unread, so the connection cannot serve another request.
        this.#endsConnection()
        request.removeAllListeners('data')
        request.pause()
        reject(error)
      }
      if (this.#bodyFault !== undefined) return refuse(this.#bodyFault)
      this.#onBodyFault.push(refuse)
      const announced = Number(request.headers['content-length'] ?? 0)
      if (announced > maxBytes) return refuse(new BodyTooLargeError(maxBytes))
      try {
        room?.check(announced)
      } catch (thrown) {
        return refuse(thrown)
      }
      const beganMs = clock.nowMs()
      let lastMs = beganMs
      const dueMs = (): number =>
        beganMs + BODY_PAUSES_MAX * bodySilenceMsMax + (1000 * size) / BODY_BYTES_PER_SECOND
      const wait = (ms: number): void => {
        timer = clock.after(ms, () => {
          const nowMs = clock.nowMs()
          const leftMs = Math.min(lastMs + bodySilenceMsMax, dueMs()) - nowMs
          if (leftMs > 0) wait(leftMs)
          else if (nowMs >= dueMs()) refuse(new BodyTooSlowError(size, nowMs - beganMs))
          else refuse(new BodyTimeoutError(bodySilenceMsMax, size))
        })
      }
      if (bodySilenceMsMax < Number.POSITIVE_INFINITY) wait(bodySilenceMsMax)
      request.on('data', (piece: Buffer) => {
        lastMs = clock.nowMs()
        size += piece.length
        if (size > maxBytes) return refuse(new BodyTooLargeError(maxBytes))
        try {
          room?.take(piece.length)
        } catch (thrown) {
          return refuse(thrown)
        }
        loose.push(piece)
        if (loose.length < LOOSE_PIECES_MAX) return
        pieces.push(Buffer.concat(loose))
        loose = []
      })
      request.on('end', () => {
        timer?.cancel()
        if (this.#isRefused) return
        pieces.push(...loose)
        const place = room?.place?.(size)
        const body = joined(pieces, place)
        // No other part has seen them.
        for (const piece of pieces) if (piece !== body) giveUpBytes(piece)
        resolve(body)
      })
      this.#onGone.push(() => {
        timer?.cancel()
        reject(new ClientGoneError('read the body'))
      })
    })
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    if (this.#isGone) queueMicrotask(() => callback(this.#goneReason))
    else this.#onGone.push(callback)
  }

  onOver(callback: () => void): void {
    if (this.#isOver) queueMicrotask(() => callOwner(callback))
    else this.#onOver.push(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    if (this.isClosed) return
    if (this.#server.isEndingConnections) this.#response.shouldKeepAlive = false
    if (this.#leavesMuch()) this.#endsConnection()
    // Names and values in turn: Node takes them as they are.
    const given: (string | string[])[] = []
    for (const name in headers) {
      const value = headers[name]
      if (value === undefined) continue
      given.push(name, value as string | string[])
      if (name.toLowerCase() === 'content-length') this.#hasLength = true
    }
    this.#response.writeHead(status, given)
  }

  write(bytes: Uint8Array): boolean {
    if (this.isClosed) return true
    if (bytes.length === 0) return true
    this.#hasWritten = true
    this.#zeros = 0
    const response = this.#response
    let hasRoom: boolean
    if (this.#isChunked) hasRoom = this.#writeChunk(bytes)
    else {
      hasRoom = response.write(bytes)
      // Known once the head is made, which this did. Node sends as it is what it does not know for a chunk.
      this.#isChunked = response.chunkedEncoding
      response.chunkedEncoding = false
    }
    if (!hasRoom) this.#stall.start()
    return hasRoom
  }

  /**
   * To the socket itself, behind what `response` has written: `response` would hold each back for the rest of
   * the turn, in case more came, and a chunk of a stream comes alone.
   */
  #writeChunk(bytes: Uint8Array): boolean {
    const response = this.#response
    const { socket } = response
    // It waits for another answer of its connection, or the connection ends.
    const into = socket?.writable === true ? socket : response
    let hasRoom = true
    const pieces = chunkOf(bytes)
    const isLong = pieces.length > 1
    if (isLong) socket?.cork()
    for (const piece of pieces) hasRoom = into.write(piece)
    if (isLong) socket?.uncork()
    // Node tells a response of the drain only if the response itself had no room.
    if (!hasRoom && into === socket && socket.listenerCount('drain', this.#drained) === 0) {
      socket.once('drain', this.#drained)
    }
    return hasRoom
  }

  readonly #drained = (): void => void this.#response.emit('drain')

  onDrain(callback: () => void): void {
    this.#response.once('drain', callback)
  }

  end(bytes?: Uint8Array): void {
    if (this.isClosed) return
    const response = this.#response
    if (this.#isChunked) {
      if (bytes !== undefined && bytes.length > 0) for (const piece of chunkOf(bytes)) response.write(piece)
      response.end(LAST_CHUNK)
    } else if (bytes === undefined) response.end()
    else response.end(bytes)
    if (!this.#response.writableFinished) this.#stall.start()
  }

  destroy(): void {
    // HTTP/1.0 has no chunks: the end of the connection is the end of the answer, and only a reset tells of a
    // cut.
    if (this.#request.httpVersionMinor === 0 && !this.#hasLength) this.#connection.reset()
    else this.#request.socket.destroy()
  }

  #endsConnection(): void {
    this.#response.shouldKeepAlive = false
    this.#connection.ends()
  }

  /** The body has not come whole, and what is left may be long. */
  #leavesMuch(): boolean {
    const request = this.#request
    if (request.complete) return false
    const { 'content-length': announced, 'transfer-encoding': coding } = request.headers
    return coding !== undefined || Number(announced ?? 0) > SPARED_BODY_BYTES_MAX
  }

  #end(): void {
    this.#isOver = true
    for (const callback of this.#onOver.splice(0)) callOwner(callback)
  }

  #leave(): void {
    this.#isGone = true
    for (const callback of this.#onGone.splice(0)) callOwner(callback, this.#goneReason)
  }
}

/**
 * `place`: memory for them all; undefined: new memory is taken. Into shared memory V8 copies byte by byte,
 * unless both begin at a whole word: putting the pieces together first takes a third of the time.
 */
function joined(pieces: readonly Uint8Array[], place: Uint8Array | undefined): Uint8Array {
  const whole = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
  if (place === undefined) return whole
  place.set(whole)
  giveUpBytes(whole)
  return place
}
