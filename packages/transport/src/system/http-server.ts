/**
 * The HTTP server, on node:http: exchanges as the rest of the project sees them.
 *
 * No limits on bodies and durations of its own, except on what a client may do before its request is
 * there: headers of HEADER_BYTES_MAX within HEADERS_MS_MAX. An idle connection is kept for
 * KEEP_ALIVE_MS, longer than the 60 s after which load balancers in front commonly let go, since the
 * side that closes last never loses a request.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Clock } from '@homing/clock'
import { callOwner } from '../callback.ts'
import { BodyTooLargeError, ClientGoneError, ListenError } from '../errors.ts'
import type { HttpExchange, HttpHeaders, HttpListener } from '../types.ts'

const HEADER_BYTES_MAX = 64 * 1024
const HEADERS_MS_MAX = 60_000
const KEEP_ALIVE_MS = 75_000

/** Rejects with ListenError. */
export async function listenHttp(
  options: { readonly host: string; readonly port: number },
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
  const state: ServerState = { server, isClosing: false }
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
  readonly #onGone: (() => void)[] = []
  #isGone = false

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
    response.on('close', () => {
      if (!response.writableFinished) this.#leave()
    })
    response.on('finish', () => {
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

  readBody(maxBytes: number): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const request = this.#request
      if (this.#isGone) return reject(new ClientGoneError('read the body'))
      const refuse = (): void => {
        // What is left of the body stays unread, so the connection cannot serve another request.
        this.#response.shouldKeepAlive = false
        request.removeAllListeners('data')
        request.pause()
        reject(new BodyTooLargeError(maxBytes))
      }
      if (Number(request.headers['content-length'] ?? 0) > maxBytes) return refuse()
      const chunks: Buffer[] = []
      let size = 0
      request.on('data', (chunk: Buffer) => {
        size += chunk.length
        if (size > maxBytes) refuse()
        else chunks.push(chunk)
      })
      request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
      this.#onGone.push(() => reject(new ClientGoneError('read the body')))
    })
  }

  onClientGone(callback: () => void): void {
    if (this.#isGone) queueMicrotask(callback)
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
    return this.#response.write(bytes)
  }

  onDrain(callback: () => void): void {
    this.#response.once('drain', callback)
  }

  end(bytes?: Uint8Array): void {
    if (this.isClosed) return
    if (bytes === undefined) this.#response.end()
    else this.#response.end(bytes)
  }

  destroy(): void {
    this.#request.socket.destroy()
  }

  #leave(): void {
    this.#isGone = true
    for (const callback of this.#onGone.splice(0)) callOwner(callback)
  }
}
