/**
 * The connecting side of SUB and DEALER: one connection that is made again whenever it is lost.
 *
 * Waits RECONNECT_MS_MIN before the first new attempt and twice as long before each further one, up to
 * RECONNECT_MS_MAX; a completed handshake starts over.
 */

import { connect, type Socket } from 'node:net'
import type { Clock, Timer } from '@homing/clock'
import { callOwner } from '../callback.ts'
import { formatEndpoint, parseEndpoint } from '../endpoint.ts'
import { ZmtpConnection } from './connection.ts'
import type { SocketType } from './wire.ts'

const RECONNECT_MS_MIN = 100
const RECONNECT_MS_MAX = 5000
const CONNECT_MS_MAX = 5000

export interface ConnectorHandler {
  connected(): void
  message(frames: Uint8Array[]): void
  disconnected(): void
}

/** What connections need of their thread; its log will do. */
export interface ZmtpEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
}

export class ZmtpConnector {
  readonly #endpoint: ReturnType<typeof parseEndpoint>
  readonly #type: SocketType
  readonly #handler: ConnectorHandler
  readonly #environment: ZmtpEnvironment
  #socket: Socket | undefined
  #connection: ZmtpConnection | undefined
  #timer: Timer | undefined
  #delayMs = RECONNECT_MS_MIN
  #isClosed = false

  /** Throws EndpointError. Starts to connect at once. */
  constructor(endpoint: string, type: SocketType, handler: ConnectorHandler, environment: ZmtpEnvironment) {
    this.#endpoint = parseEndpoint(endpoint, 'connect')
    this.#type = type
    this.#handler = handler
    this.#environment = environment
    this.#connect()
  }

  /** False when there is no connection, or its queue is full. */
  send(frames: readonly Uint8Array[]): boolean {
    return this.#connection?.send(frames) ?? false
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    this.#connection?.close()
    this.#socket?.destroy()
  }

  #connect(): void {
    const endpoint = this.#endpoint
    const socket = connect(
      endpoint.scheme === 'ipc'
        ? { path: endpoint.path }
        : { host: endpoint.host, port: endpoint.port, autoSelectFamily: true },
    )
    this.#socket = socket
    const failed = (): void => {
      socket.destroy()
      this.#connectLater()
    }
    this.#timer = this.#environment.clock.after(CONNECT_MS_MAX, failed)
    socket.once('error', failed)
    socket.once('connect', () => {
      this.#timer?.cancel()
      socket.off('error', failed)
      if (this.#isClosed) socket.destroy()
      else this.#talk(socket)
    })
  }

  #talk(socket: Socket): void {
    let wasReady = false
    this.#connection = new ZmtpConnection(
      socket,
      this.#type,
      {
        ready: () => {
          wasReady = true
          this.#delayMs = RECONNECT_MS_MIN
          this.#handler.connected()
        },
        message: frames => this.#handler.message(frames),
        closed: error => {
          this.#connection = undefined
          if (error !== undefined || !wasReady) {
            const reason = error?.message ?? 'the peer hung up before the handshake was complete'
            const endpoint = formatEndpoint(this.#endpoint)
            this.#environment.log.warn({ endpoint, reason }, 'ZeroMQ connection failed')
          }
          this.#connectLater()
          if (wasReady) callOwner(() => this.#handler.disconnected())
        },
      },
      this.#environment.clock,
    )
  }

  #connectLater(): void {
    this.#timer?.cancel()
    if (this.#isClosed) return
    this.#timer = this.#environment.clock.after(this.#delayMs, () => this.#connect())
    this.#delayMs = Math.min(this.#delayMs * 2, RECONNECT_MS_MAX)
  }
}
