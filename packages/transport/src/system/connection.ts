/**
 * Connection: handles events on a client's connection to the HTTP server outside its exchanges.
 *
 *   not HTTP           an error answer, after the answers before it; then the connection is closed
 *   a body cut short   its exchange is told, and answers; then the connection is closed
 *   a half close       the client has sent all and still reads: it gets its answers
 *   requests ahead     PIPELINED_REQUESTS_MAX at one time; one more is refused, and nothing behind it served
 *
 * A client that leaves and a client that half closes send the same. Only a write can tell them apart: the
 * machine of a client that has left replies with a reset, and the second write fails. So bytes are written
 * that change nothing: `100 Continue` before the answer, which a client must skip (RFC 9110 §15.2), and
 * between two chunks a zero, which begins the size of the next chunk (RFC 9112 §7.1: sizes may have leading
 * zeros). HTTP/1.0 has neither, and an answer with a length has no chunks: such a client counts as present
 * until the answer itself is written. The same is done where requests wait behind another one: what their
 * client sends may not be read then, so that its leaving is not seen either.
 *
 * Bounds  an error answer waits LINGER_MS at most for the client to close its side: a connection that is
 *         closed while bytes come in is reset, and the answer may be lost. So does an answer behind which a
 *         body may be long. One whose body has not come whole LINGER_MS later ends its connection.
 */

import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { Clock, Timer } from '@homing/base'
import {
  HeadersTimeoutError,
  HeadersTooLargeError,
  type HttpRequestError,
  MalformedHttpError,
} from '../errors.ts'
import type { HttpErrorAnswer } from '../http-types.ts'
import { PIPELINED_REQUESTS_MAX } from '../limits.ts'
import { nodeHttp } from './libraries.ts'

/** An exchange as its connection sees it. */
export interface OpenExchange {
  /** The whole request has come. */
  readonly isRequestWhole: boolean
  /** The rest of its body never comes. */
  failBody(error: HttpRequestError): void
  /** Writes what changes nothing, where that is possible. */
  probe(): void
}

interface WireHandle {
  readonly bytesWritten: number
  readonly writeQueueSize: number
}

const LINGER_MS = 2000
/** A client that has left is known at the second write; one that leaves later, some seconds after. */
const PROBE_DELAYS_MS = [0, 50]
const PROBE_INTERVAL_MS = 5000
/** Before the first two probes of a client that has sent requests ahead: most are answered by then. */
const AHEAD_DELAYS_MS = [1000, 50]

export class Connection {
  readonly #socket: Socket
  readonly #wire: Socket
  readonly #clock: Clock
  readonly #answerTo: (error: HttpRequestError) => HttpErrorAnswer
  readonly #open = new Set<OpenExchange>()
  /** Why nothing more is read. */
  #fault: HttpRequestError | undefined
  #hasAnsweredFault = false
  #probes = 0
  /** Of the wire, before the last of them. */
  #probedBytes: number | undefined
  #isProbing = false
  #isHalfClosed = false
  #isLast = false
  #timer: Timer | undefined
  #unread: Timer | undefined

  /** `wire`: what lies under TLS; without TLS, or if it is gone already, the socket itself. */
  constructor(
    socket: Socket,
    wire: Socket,
    clock: Clock,
    answerTo: (error: HttpRequestError) => HttpErrorAnswer,
  ) {
    this.#socket = socket
    this.#wire = wire
    this.#clock = clock
    this.#answerTo = answerTo
    socket.once('close', () => {
      this.#timer?.cancel()
      this.#unread?.cancel()
    })
  }

  /** Nothing more that it brings is a request. */
  get isFaulty(): boolean {
    return this.#fault !== undefined || this.#isLast
  }

  /** No further request is taken before one is answered. */
  get isFull(): boolean {
    return this.#open.size >= PIPELINED_REQUESTS_MAX
  }

  /**
   * Bytes that the operating system has taken for the client, at least where they stopped; NaN: it is closed.
   * A long write is taken in parts; how much of it waits is known only to the handle, where Node's own socket
   * timeout looks for it, too.
   */
  get bytesTaken(): number {
    const handle = this.#handle
    return handle ? handle.bytesWritten - handle.writeQueueSize : Number.NaN
  }

  get #handle(): WireHandle | null | undefined {
    return (this.#wire as { readonly _handle?: WireHandle | null })._handle
  }

  /** The client sees that it is cut. TLS itself has no such end, nor has a client that has left already. */
  reset(): void {
    if (this.#wire instanceof TLSSocket) this.#wire.destroy()
    else this.#wire.resetAndDestroy()
  }

  opened(exchange: OpenExchange): void {
    this.#open.add(exchange)
    if (this.#open.size === 2 && !this.#isProbing) this.#probeLater(AHEAD_DELAYS_MS)
  }

  /** The answer is complete, or its client has left. */
  closed(exchange: OpenExchange): void {
    this.#open.delete(exchange)
    const isRead = !this.#isHalfClosed && this.#fault === undefined
    if (this.#open.size === 1 && isRead) this.#stopProbes()
    if (this.#open.size > 0) return
    if (this.#fault !== undefined) this.#answerFault(this.#fault)
    else this.#stopProbes()
  }

  /** The HTTP server cannot go on with this connection. */
  broke(cause: Error): void {
    const code = String((cause as { readonly code?: unknown }).code)
    const isHttp = code.startsWith('HPE_') || code === 'ERR_HTTP_REQUEST_TIMEOUT'
    // The connection itself is broken: no error answer can be sent.
    if (!isHttp || !this.#socket.writable) {
      this.#socket.destroy()
      return
    }
    if (this.#fault !== undefined) {
      if (this.#hasAnsweredFault && this.#socket.readableEnded) this.#socket.destroy()
      return
    }
    const error = errorOf(code, cause)
    this.#fault = error
    for (const exchange of this.#open) {
      if (!exchange.isRequestWhole) exchange.failBody(error)
    }
    if (this.#open.size === 0) this.#answerFault(error)
  }

  /** The client sends nothing more. */
  halfClosed(): void {
    if (this.#open.size === 0 || this.#fault !== undefined) return
    this.#isHalfClosed = true
    this.#stopProbes()
    this.#probeLater(PROBE_DELAYS_MS)
  }

  /**
   * The next answer to be out is the last. Node closes a connection then at once, and what its client still
   * sends makes a reset that may cost it the answer: so what comes is thrown away for a while.
   */
  ends(): void {
    if (this.#isLast) return
    this.#isLast = true
    const socket = this.#socket
    socket.destroySoon = () => {
      socket.end()
      this.#unread?.cancel()
      this.#unread = this.#clock.after(LINGER_MS, () => socket.destroy())
    }
  }

  /** An answer is out, and some of its request is not in: it must come soon, or end with the connection. */
  unread(exchange: OpenExchange): void {
    if (this.#isLast) return
    // An earlier one of this connection is in, since this one is read.
    this.#unread?.cancel()
    this.#unread = this.#clock.after(LINGER_MS, () => {
      this.#unread = undefined
      if (!exchange.isRequestWhole) this.#socket.destroy()
    })
  }

  /** Refuses a request that is not to be an exchange; nothing behind it is served. */
  refuse(error: HttpRequestError): void {
    this.#fault ??= error
    if (this.#open.size === 0) this.#answerFault(this.#fault)
  }

  #answerFault(error: HttpRequestError): void {
    if (this.#hasAnsweredFault) return
    this.#hasAnsweredFault = true
    const socket = this.#socket
    // An exchange whose body was cut short has told it.
    if (!socket.writable) return
    const { status, headers, body } = this.#answerTo(error)
    const lines = Object.entries({
      ...headers,
      'content-length': String(body.length),
      connection: 'close',
    }).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.end(
      Buffer.concat([
        Buffer.from(
          `HTTP/1.1 ${status} ${nodeHttp.STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n`,
          'latin1',
        ),
        body,
      ]),
    )
    this.#timer?.cancel()
    this.#timer = this.#clock.after(LINGER_MS, () => socket.destroy())
    if (socket.readableEnded) socket.once('finish', () => socket.destroy())
  }

  #probeLater(firstDelaysMs: readonly number[]): void {
    this.#isProbing = true
    const delayMs = firstDelaysMs[this.#probes] ?? PROBE_INTERVAL_MS
    this.#probes++
    this.#timer = this.#clock.after(delayMs, () => {
      if (this.#open.size === 0 || this.#socket.destroyed) return
      if (this.#isStuck()) {
        this.#socket.destroy()
        return
      }
      // Answers go out in the order of their requests: the first one is being written to.
      this.#probedBytes = this.#handle?.bytesWritten
      for (const exchange of this.#open) {
        exchange.probe()
        break
      }
      this.#probeLater(firstDelaysMs)
    })
  }

  /**
   * TLS that could not write of its own accord, such as its tickets to a client that has left, says nothing
   * of it, and keeps all that is written later. The last probe is there still, and the wire is idle.
   */
  #isStuck(): boolean {
    if (this.#wire === this.#socket || this.#probes < 2 || this.#socket.writableLength === 0) return false
    const before = this.#probedBytes
    const handle = this.#handle
    return handle?.writeQueueSize === 0 && handle.bytesWritten === before
  }

  #stopProbes(): void {
    this.#timer?.cancel()
    this.#isProbing = false
    this.#probes = 0
  }
}

function errorOf(code: string, cause: Error): HttpRequestError {
  if (code === 'HPE_HEADER_OVERFLOW') return new HeadersTooLargeError()
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new HeadersTimeoutError()
  if (code === 'HPE_INVALID_EOF_STATE') return new MalformedHttpError('it ends before its stated length')
  const reason = (cause as { readonly reason?: unknown }).reason
  return new MalformedHttpError(typeof reason === 'string' && reason !== '' ? reason : cause.message)
}
