/**
 * The connecting side of SUB and DEALER: one library socket per connection, made again whenever that ends.
 *
 * Invariants
 *   I1  `connected` is reported before the first message of its connection, `disconnected` after the last.
 *       libzmq delivers messages and events on separate queues, and a socket that reconnects keeps unread
 *       messages. So messages wait for the handshake's event, and a socket whose connection has ended is
 *       read empty and closed, not used again.
 *   I2  `connected` follows the handshake, not the TCP connection: a peer that does not speak ZeroMQ is not
 *       connected.
 *   I3  libzmq gives a socket up for good when a peer breaks the protocol; that socket is replaced too. A
 *       socket that cannot be made (this machine has no file descriptor) or that libzmq refuses (its
 *       endpoint) is made again later: whatever is wrong with one endpoint ends nothing else.
 *
 * Until a handshake libzmq retries by itself, after 100 ms and twice as long each time, up to 5 s. Sockets
 * are replaced after the same delays; a handshake resets the delay.
 */

import type { Clock, Timer } from '@homing/base'
import type * as zeromq from 'zeromq'
import { callOwner, callSubscriber } from '../callback.ts'
import { formatEndpoint, parseSocketEndpoint } from '../endpoint.ts'
import {
  type CommonOptions,
  closedAreGone,
  nextTurn,
  openSocket,
  readMessages,
  type ZmqEnvironment,
} from './library.ts'

const RECONNECT_MS_MIN = 100
const RECONNECT_MS_MAX = 5000
const CONNECT_MS_MAX = 5000

/** A socket whose connection has ended is read for at most this many turns of the event loop. */
const DRAIN_TURNS_MAX = 1000

export interface ConnectorHandler {
  connected(): void
  message(frames: Uint8Array[]): void
  disconnected(): void
}

type ConnectorOptions = CommonOptions & {
  readonly reconnectInterval: number
  readonly reconnectMaxInterval: number
  readonly connectTimeout: number
}

export class ZmqConnector<S extends zeromq.Subscriber | zeromq.Dealer> {
  readonly #endpoint: string
  readonly #create: (library: typeof zeromq, options: ConnectorOptions) => S
  readonly #handler: ConnectorHandler
  readonly #environment: ZmqEnvironment
  readonly #clock: Clock
  #socket: S | undefined
  #isUp = false
  #isEnding = false
  /** Messages that came before the word of their connection wait for this. */
  #whenUp = Promise.withResolvers<void>()
  #receivedCount = 0
  #delayMs = RECONNECT_MS_MIN
  #timer: Timer | undefined
  #failure: string | undefined
  #hasWarned = false

  /** Throws EndpointError. Starts to connect at once. */
  constructor(
    endpoint: string,
    create: (library: typeof zeromq, options: ConnectorOptions) => S,
    handler: ConnectorHandler,
    environment: ZmqEnvironment,
  ) {
    this.#endpoint = formatEndpoint(parseSocketEndpoint(endpoint, 'connect'))
    this.#create = create
    this.#handler = handler
    this.#environment = environment
    this.#clock = environment.clock
    this.#open()
  }

  /** The socket, while its connection is up. */
  get socket(): S | undefined {
    return this.#isUp && !this.#isEnding ? this.#socket : undefined
  }

  close(): void {
    this.#timer?.cancel()
    this.#letGo()
  }

  #open(): void {
    try {
      this.#openSocket()
    } catch (error) {
      this.#refused(error)
    }
  }

  /** The socket cannot be used: another one is made later. */
  #refused(error: unknown): void {
    const wasUp = this.#isUp
    this.#letGo()
    if (wasUp) callOwner(() => this.#handler.disconnected())
    this.#failure = (error as Error).message
    this.#warn()
    this.#openLater(Math.min(this.#delayMs * 2, RECONNECT_MS_MAX))
  }

  /** `nextDelayMs`: what the one after it waits. */
  #openLater(nextDelayMs: number): void {
    this.#timer = this.#clock.after(this.#delayMs, () => this.#open())
    this.#delayMs = nextDelayMs
  }

  #openSocket(): void {
    const socket = openSocket(
      this.#endpoint,
      (library, options) =>
        this.#create(library, {
          ...options,
          reconnectInterval: RECONNECT_MS_MIN,
          reconnectMaxInterval: RECONNECT_MS_MAX,
          connectTimeout: CONNECT_MS_MAX,
        }),
      event => this.#onEvent(socket, event),
    )
    this.#socket = socket
    const connect = (): void => {
      if (socket === this.#socket) socket.connect(this.#endpoint)
    }
    const gone = closedAreGone(this.#clock)
    if (gone === undefined) connect()
    else gone.then(connect).catch((error: unknown) => socket === this.#socket && this.#refused(error))
    readMessages(socket, this.#environment.gate, frames => this.#onMessage(socket, frames)).catch(
      (error: unknown) => socket === this.#socket && this.#refused(error),
    )
  }

  #onEvent(socket: S, event: zeromq.Event): void {
    if (socket !== this.#socket || this.#isEnding) return
    switch (event.type) {
      case 'handshake':
        this.#isUp = true
        this.#delayMs = RECONNECT_MS_MIN
        this.#hasWarned = false
        callOwner(() => this.#handler.connected())
        this.#whenUp.resolve()
        break
      case 'handshake:error:protocol':
      case 'handshake:error:auth':
      case 'handshake:error:other':
        // EPIPE: the peer closed during the handshake, which tells no more than a closed connection.
        if ((event.error as NodeJS.ErrnoException).code !== 'EPIPE') this.#failure = event.error.message
        break
      case 'disconnect':
        this.#isEnding = true
        void this.#replace(socket)
        break
      default:
    }
  }

  #onMessage(socket: S, frames: Uint8Array[]): boolean | Promise<boolean> {
    if (!this.#isUp) return this.#whenUp.promise.then(() => this.#onMessage(socket, frames))
    if (socket !== this.#socket) return false
    this.#receivedCount++
    callSubscriber(this.#endpoint, this.#handler, frames)
    return socket === this.#socket
  }

  async #replace(socket: S): Promise<void> {
    const wasUp = this.#isUp
    if (wasUp) {
      let receivedCount = -1
      for (let turn = 0; turn < DRAIN_TURNS_MAX && receivedCount !== this.#receivedCount; turn++) {
        receivedCount = this.#receivedCount
        await nextTurn()
        await nextTurn()
      }
    }
    if (socket !== this.#socket) return
    this.#letGo()
    if (!wasUp) this.#warn()
    this.#openLater(wasUp ? RECONNECT_MS_MIN : Math.min(this.#delayMs * 2, RECONNECT_MS_MAX))
    if (wasUp) callOwner(() => this.#handler.disconnected())
  }

  #letGo(): void {
    const socket = this.#socket
    this.#socket = undefined
    this.#isUp = false
    this.#isEnding = false
    // Nobody may wait for the word of a connection that will not come.
    this.#whenUp.resolve()
    this.#whenUp = Promise.withResolvers()
    socket?.close()
  }

  /** Once per row of failures. */
  #warn(): void {
    const reason = this.#failure ?? 'the peer is not a ZeroMQ socket that can answer'
    this.#failure = undefined
    if (this.#hasWarned) return
    this.#hasWarned = true
    this.#environment.log.warn({ endpoint: this.#endpoint, reason }, 'ZeroMQ connection failed')
  }
}
