/**
 * The HTTP server, on node:http: exchanges as the rest of the project sees them.
 *
 * Headers have HEADER_BYTES_MAX and HEADERS_MS_MAX. How long a body may be silent and a reader may take nothing
 * is the owner's to say; how long a whole request or answer takes is not bounded here. An idle connection is kept for
 * KEEP_ALIVE_MS, longer than the 60 s after which load balancers in front commonly let go, since the
 * side that closes last never loses a request.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock, Timer } from '@homing/clock'
import { callOwner } from '../callback.ts'
import { BodyTimeoutError, BodyTooLargeError, ClientGoneError, ListenError } from '../errors.ts'
import { StallWatch } from '../stall-watch.ts'
import type {
  BodyRoom,
  ClientGoneReason,
  HttpExchange,
  HttpHeaders,
  HttpListener,
  ListenOptions,
} from '../types.ts'

const HEADER_BYTES_MAX = 64 * 1024
const HEADERS_MS_MAX = 60_000
const KEEP_ALIVE_MS = 75_000
/** A body that comes in tiny pieces is put together every so often: each piece costs far more than its bytes. */
const LOOSE_PIECES_MAX = 1024

/** Rejects with ListenError. */
export async function listenHttp(
  options: ListenOptions,
  onExchange: (exchange: HttpExchange) => void,
  clock: Clock,
): Promise<HttpListener> {
  const server = createServer({
    keepAlive: true,
    noDelay: true,
    maxHeaderSize: HEADER_BYTES_MAX,
    headersTimeout: HEADERS_MS_MAX,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // A long upload is the gateway's to judge.
    requestTimeout: 0,
  })
  const state: ServerState = {
    server,
    clock,
    bodySilenceMsMax: options.bodySilenceMsMax ?? Number.POSITIVE_INFINITY,
    readerStallMsMax: options.readerStallMsMax ?? Number.POSITIVE_INFINITY,
    isClosing: false,
  }
  server.on('request', (request, response) => {
    callOwner(onExchange, new NodeExchange(request, response, state))
  })
  await new Promise<void>((resolve, reject) => {
    const failed = (error: Error): void => {
      reject(new ListenError(`http://${options.host}:${options.port}`, error))
    }
    server.once('error', failed)
    server.listen({ host: options.host, port: options.port }, () => {
      server.off('error', failed)
      // Accepting may fail later, for want of file descriptors; clients try again.
      server.on('error', () => {})
      resolve()
    })
  })
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : options.port
  let closing: Promise<void> | undefined
  return {
    host: options.host,
    port,
    close(graceMs) {
      closing ??= closeServer(state, graceMs, clock)
      return closing
    },
  }
}

interface ServerState {
  readonly server: Server
  readonly clock: Clock
  readonly bodySilenceMsMax: number
  readonly readerStallMsMax: number
  /** Connections are closed as their answers end. */
  isClosing: boolean
}

function closeServer(state: ServerState, graceMs: number, clock: Clock): Promise<void> {
  const { server } = state
  state.isClosing = true
  return new Promise(resolve => {
    const timer = clock.after(graceMs, () => server.closeAllConnections())
    server.close(() => {
      timer.cancel()
      resolve()
    })
    server.closeIdleConnections()
  })
}

class NodeExchange implements HttpExchange {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #server: ServerState
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  readonly #stall: StallWatch
  #isGone = false
  #goneReason: ClientGoneReason = 'left'

  constructor(request: IncomingMessage, response: ServerResponse, server: ServerState) {
    const url = request.url ?? '/'
    const queryAt = url.indexOf('?')
    this.method = request.method ?? 'GET'
    this.path = queryAt < 0 ? url : url.slice(0, queryAt)
    this.query = queryAt < 0 ? '' : url.slice(queryAt + 1)
    this.headers = request.headers
    this.#request = request
    this.#response = response
    this.#server = server
    const { socket } = request
    this.#stall = new StallWatch(server.clock, server.readerStallMsMax, {
      waitingBytes: () => response.writableLength,
      // Before it has the socket, an answer waits for another one of its connection, not for the client; NaN
      // differs from itself, so that this never counts as a stall.
      progress: () => (response.socket === null ? Number.NaN : bytesTaken(socket)),
      cut: () => {
        this.#goneReason = 'stalled'
        socket.destroy()
      },
    })
    response.on('close', () => {
      this.#stall.stop()
      if (!response.writableFinished) this.#leave()
    })
    response.on('finish', () => {
      this.#stall.stop()
      // Its connection is idle only once Node has finished with it.
      if (server.isClosing) setImmediate(() => server.server.closeIdleConnections())
    })
    // Both report that the connection broke, which `close` tells already.
    response.on('error', () => {})
    request.on('error', () => {})
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
        pieces.length = 0
        loose = []
        // What is left of the body stays unread, so the connection cannot serve another request.
        this.#response.shouldKeepAlive = false
        request.removeAllListeners('data')
        request.pause()
        reject(error)
      }
      const announced = Number(request.headers['content-length'] ?? 0)
      if (announced > maxBytes) return refuse(new BodyTooLargeError(maxBytes))
      try {
        room?.check(announced)
      } catch (thrown) {
        return refuse(thrown)
      }
      let lastMs = clock.nowMs()
      const wait = (ms: number): void => {
        timer = clock.after(ms, () => {
          const leftMs = lastMs + bodySilenceMsMax - clock.nowMs()
          if (leftMs > 0) wait(leftMs)
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
        pieces.push(...loose)
        resolve(pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces))
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

  writeHead(status: number, headers: HttpHeaders): void {
    if (this.isClosed) return
    if (this.#server.isClosing) this.#response.shouldKeepAlive = false
    const given = Object.entries(headers).filter(([, value]) => value !== undefined)
    this.#response.writeHead(status, Object.fromEntries(given) as Record<string, string | string[]>)
  }

  write(bytes: Uint8Array): boolean {
    if (this.isClosed) return true
    const hasRoom = this.#response.write(bytes)
    if (!hasRoom) this.#stall.start()
    return hasRoom
  }

  onDrain(callback: () => void): void {
    this.#response.once('drain', callback)
  }

  end(bytes?: Uint8Array): void {
    if (this.isClosed) return
    if (bytes === undefined) this.#response.end()
    else this.#response.end(bytes)
    if (!this.#response.writableFinished) this.#stall.start()
  }

  destroy(): void {
    this.#request.socket.destroy()
  }

  #leave(): void {
    this.#isGone = true
    for (const callback of this.#onGone.splice(0)) callOwner(callback, this.#goneReason)
  }
}

/**
 * Bytes of a connection that the operating system has taken for the client, at least where they stopped. A long write is taken in
 * parts; how much of it waits is known only to the handle, where Node's own socket timeout looks for it, too.
 */
function bytesTaken(socket: Socket): number {
  const handle = (socket as { readonly _handle?: { readonly writeQueueSize?: number } | null })._handle
  return socket.bytesWritten - socket.writableLength - (handle?.writeQueueSize ?? 0)
}
