/**
 * TCP server: HTTP exchanges whose clients have connections of many calls (tcp-client.ts, tcp-wire.ts).
 *
 * A client has left a call when it cancels, or when its connection ends.
 *
 * Bounds   `connectionsMax` connections, further ones are closed at once; `streamsMax` calls of each and
 *          `callsMax` in all, further ones are answered with 503, and those whose method, path and headers
 *          have more than HEADER_BYTES_MAX with 431: nothing of them is kept. At most `windowBytes` of a body
 *          are under way. A connection without calls for `idleMsMax` is closed.
 */

import { createServer, type Server, type Socket } from 'node:net'
import type { Clock, Timer } from '@homing/base'
import { callFor } from '../callback.ts'
import { formatEndpoint } from '../endpoint.ts'
import { ListenError } from '../errors.ts'
import type { ServedExchange, ServeOptions, ServingListener } from '../http-types.ts'
import { BODY_LOOK_MS } from '../requests/body.ts'
import { RequestExchange } from '../requests/exchange.ts'
import { FRAME, type FrameKind, openOf } from '../requests/frames.ts'
import { fullRefusal, headRefusal, type Refusal, refuseUnkept } from '../requests/refuse.ts'
import type { TcpCounts, TcpEnd } from '../tcp-counts.ts'
import { TCP_LIMITS, type TcpLimits } from '../tcp-limits.ts'
import { TcpLink } from './tcp-link.ts'
import { LINK, type TcpFrame } from './tcp-wire.ts'

const BODY_WINDOW_BYTES = 2 ** 20
const CALLS_MAX = 4096
/** A connection that is not what is expected is told of, at most once in this time. */
const WARN_MS_MIN = 1000

export interface TcpServerEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly counts: TcpCounts
  readonly host: string
  readonly port: number
}

export class TcpServer implements ServingListener {
  readonly #options: ServeOptions
  readonly #environment: TcpServerEnvironment
  readonly #onExchange: (exchange: ServedExchange) => void
  readonly #limits: TcpLimits
  readonly #server: Server
  readonly #links = new Set<ServedLink>()
  readonly listening: Promise<string>
  #openCount = 0
  #isClosing = false
  #closed: Promise<void> | undefined
  #onIdle: (() => void) | undefined
  #warnedMs = Number.NEGATIVE_INFINITY

  constructor(
    options: ServeOptions,
    environment: TcpServerEnvironment,
    onExchange: (exchange: ServedExchange) => void,
  ) {
    this.#options = options
    this.#environment = environment
    this.#onExchange = onExchange
    this.#limits = { ...TCP_LIMITS, ...options.tcp }
    this.#server = createServer({ noDelay: true }, socket => this.#connected(socket))
    const { host, port } = environment
    this.listening = new Promise((resolve, reject) => {
      this.#server.once('error', error => reject(new ListenError(options.endpoint, error)))
      this.#server.once('close', () =>
        reject(new ListenError(options.endpoint, new Error('it was closed before it was bound'))),
      )
      this.#server.listen(port, host, () => {
        const address = this.#server.address()
        const bound = typeof address === 'object' && address !== null ? address.port : port
        this.#server.on('error', error => this.warn('a connection could not be taken', error.message))
        resolve(formatEndpoint({ scheme: 'tcp', host, port: bound }))
      })
    })
    // Who serves asks for it, perhaps later.
    this.listening.catch(() => {})
  }

  get openCount(): number {
    return this.#openCount
  }

  close(graceMs: number): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    this.#isClosing = true
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    for (const link of [...this.#links]) link.leave()
    if (this.#openCount > 0 && graceMs > 0) {
      let timer: Timer | undefined
      await new Promise<void>(resolve => {
        this.#onIdle = resolve
        timer = this.#environment.clock.after(graceMs, resolve)
      })
      timer?.cancel()
    }
    for (const link of [...this.#links]) link.close()
    await closed
  }

  // ── What its connections do ─────────────────────────────────────────────────────────────────

  get isClosing(): boolean {
    return this.#isClosing
  }

  /** Undefined: there is a place for one more exchange. */
  get full(): Refusal | undefined {
    const { callsMax = CALLS_MAX } = this.#options
    return this.#openCount < callsMax ? undefined : fullRefusal(`${callsMax} are open`)
  }

  /** A request has come. */
  taken(exchange: RequestExchange): void {
    this.#openCount++
    this.#environment.counts.openExchanges++
    exchange.accept()
    if (!callFor(exchange.peerAddress, () => this.#onExchange(exchange))) exchange.destroy()
  }

  exchangeEnded(): void {
    this.#environment.counts.openExchanges--
    if (--this.#openCount === 0) this.#onIdle?.()
  }

  ended(link: ServedLink, why: TcpEnd, reason: string): void {
    this.#links.delete(link)
    if (why === 'fault' || why === 'version' || why === 'full' || why === 'connect')
      this.warn('a connection of the request plane was cut', reason)
  }

  warn(text: string, reason: string): void {
    const { clock, log } = this.#environment
    if (clock.nowMs() - this.#warnedMs < WARN_MS_MIN) return
    this.#warnedMs = clock.nowMs()
    log.warn({ endpoint: this.#options.endpoint, reason: reason.slice(0, 300) }, text)
  }

  #connected(socket: Socket): void {
    const { clock, counts } = this.#environment
    const { windowBytes = BODY_WINDOW_BYTES, bodySilenceMsMax = Number.POSITIVE_INFINITY } = this.#options
    if (this.#links.size >= this.#limits.connectionsMax || this.#isClosing) {
      if (!this.#isClosing) counts.refusedConnections++
      socket.on('error', () => {})
      socket.destroy()
      return
    }
    const args = { windowBytes, bodySilenceMsMax, limits: this.#limits, clock, counts }
    this.#links.add(new ServedLink(socket, this, args))
  }
}

interface ServedLinkArgs {
  readonly windowBytes: number
  readonly bodySilenceMsMax: number
  readonly limits: TcpLimits
  readonly clock: Clock
  readonly counts: TcpCounts
}

/** One connection, with its exchanges. */
class ServedLink {
  readonly #link: TcpLink
  readonly #server: TcpServer
  readonly #args: ServedLinkArgs
  readonly #peerAddress: string
  readonly #open = new Map<number, RequestExchange>()
  #isUp = false
  #lastStream = 0
  #idleLooks = 0

  constructor(socket: Socket, server: TcpServer, args: ServedLinkArgs) {
    this.#server = server
    this.#args = args
    this.#peerAddress = socket.remoteAddress ?? ''
    const { limits, clock, counts, windowBytes } = args
    const { frameBytesMax, streamsMax, idleMsMax: idleMs } = limits
    const hello = { frameBytesMax, streamsMax, windowBytes, idleMs }
    const peer = `${this.#peerAddress}:${socket.remotePort ?? 0}`
    this.#link = new TcpLink(
      socket,
      { clock, limits, counts, hello, peer },
      {
        up: () => {
          this.#isUp = true
        },
        frame: frame => this.#frame(frame),
        drained: () => this.#drained(),
        look: () => this.#look(),
        ended: (why, reason) => this.#ended(why, reason),
      },
    )
  }

  /** Tells the client to open no more calls here. */
  leave(): void {
    if (this.#isUp) this.#link.put(LINK.bye, 0, this.#lastStream)
  }

  /** What is open is cut. */
  close(): void {
    for (const exchange of [...this.#open.values()]) exchange.destroy()
    this.#link.end('closed', 'this side has closed the connection')
  }

  #frame({ kind, stream, content }: TcpFrame): string | undefined {
    if (kind === FRAME.open) return this.#asked(stream, content)
    if (kind !== FRAME.body && kind !== FRAME.credit && kind !== FRAME.cancel)
      return `a frame of kind ${kind} came, which no client sends`
    if (stream > this.#lastStream) return `a frame came for the call ${stream}, which was not opened`
    // What comes for an exchange that has ended was under way.
    this.#open.get(stream)?.frame(kind as FrameKind, content)
    return undefined
  }

  #asked(stream: number, content: unknown): string | undefined {
    if (stream <= this.#lastStream) return `the call ${stream} was opened behind ${this.#lastStream}`
    this.#lastStream = stream
    const { limits, counts, windowBytes, bodySilenceMsMax } = this.#args
    const open = openOf(content)
    if (open === undefined) return 'a request came that cannot be read'
    if (this.#server.isClosing) {
      this.#link.put(FRAME.failed, stream, { reason: 'the worker is stopping', wasSeen: false })
      return undefined
    }
    const sink = this.#link.sink(stream)
    const isLinkFull = this.#open.size >= limits.streamsMax
    if (isLinkFull) counts.refusedStreams++
    const refused = isLinkFull
      ? fullRefusal(`${limits.streamsMax} are open on this connection`)
      : (this.#server.full ?? headRefusal(open))
    if (refused !== undefined) {
      refuseUnkept(sink, refused)
      return undefined
    }
    const exchange = new RequestExchange({
      sink,
      open,
      peerAddress: this.#peerAddress,
      windowBytes,
      bodySilenceMsMax,
      ended: () => {
        this.#open.delete(stream)
        this.#server.exchangeEnded()
      },
    })
    this.#open.set(stream, exchange)
    this.#server.taken(exchange)
    return undefined
  }

  #look(): void {
    for (const exchange of [...this.#open.values()]) exchange.look()
    this.#idleLooks = this.#open.size === 0 ? this.#idleLooks + 1 : 0
    if (this.#idleLooks * BODY_LOOK_MS > this.#args.limits.idleMsMax)
      this.#link.end('idle', 'it had no calls')
  }

  #drained(): void {
    for (const [stream, exchange] of [...this.#open]) {
      if (this.#link.isBlocked) return
      // An earlier one may have ended it.
      if (!this.#open.has(stream)) continue
      // Those that did not get their turn come first next time.
      this.#open.delete(stream)
      this.#open.set(stream, exchange)
      exchange.unblocked()
    }
  }

  #ended(why: TcpEnd, reason: string): void {
    for (const exchange of [...this.#open.values()]) exchange.gone()
    this.#server.ended(this, why, reason)
  }
}
