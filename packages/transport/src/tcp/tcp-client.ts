/**
 * TCP client: calls to workers that take requests over connections of many calls (tcp-wire.ts).
 *
 *   call ──▶ is there a connection? ──▶ a stream of it
 *              │ none, or it has ended: one is made; calls wait for it
 *
 * There is one connection to each worker, made at the first call, and again at the first one after it has
 * ended. A connection that cannot be made fails its calls as `connect`, a worker of another version as
 * `protocol`, and one that has as many calls as it takes as `full`: they cannot have been seen. What ends a
 * connection fails its calls as `reset`.
 *
 * Bounds   calls of a connection by what the worker says; a connection without calls is closed after
 *          `idleMsMax`, or half of what the worker says, so that a call hardly meets its end.
 */

import { connect, type Socket } from 'node:net'
import { type Clock, isLocalFault, type Timer } from '@homing/base'
import type { HttpCallFailure } from '../errors.ts'
import type { HttpCall, HttpRequest, HttpResponseHandler } from '../http-types.ts'
import { type CallCarrier, RequestCall } from '../requests/call.ts'
import type { FrameKind } from '../requests/frames.ts'
import type { TcpCounts, TcpEnd } from '../tcp-counts.ts'
import type { TcpLimits } from '../tcp-limits.ts'
import { TcpLink } from './tcp-link.ts'
import { LINK, type TcpFrame, type TcpHello } from './tcp-wire.ts'

export interface TcpTarget {
  /** As a socket takes it: IPv6 without brackets. */
  readonly host: string
  readonly port: number
  /** Most bytes of an answer that may be on the way or held. */
  readonly windowBytes: number
  readonly limits: TcpLimits
}

export class TcpClient {
  readonly #clock: Clock
  readonly #counts: TcpCounts
  /** By 'host port'. */
  readonly #workers = new Map<string, TcpWorker>()

  constructor(clock: Clock, counts: TcpCounts) {
    this.#clock = clock
    this.#counts = counts
  }

  call(request: HttpRequest, target: TcpTarget, handler: HttpResponseHandler): HttpCall {
    const name = `${target.host} ${target.port}`
    let worker = this.#workers.get(name)
    if (worker === undefined) {
      worker = new TcpWorker(target, this.#clock, this.#counts, () => this.#workers.delete(name))
      this.#workers.set(name, worker)
    }
    return worker.call(request, target.windowBytes, handler)
  }

  /** Cuts every call; they fail as aborted. */
  close(): void {
    for (const worker of [...this.#workers.values()]) worker.close()
  }
}

/** One worker: its connection, earlier ones that end, and calls that wait for one. */
class TcpWorker {
  readonly #target: TcpTarget
  readonly #clock: Clock
  readonly #counts: TcpCounts
  readonly #unused: () => void
  readonly #links = new Set<CallLink>()
  /** Takes new calls. */
  #link: CallLink | undefined
  #connecting: Socket | undefined
  readonly #waiting = new Set<TcpCall>()

  constructor(target: TcpTarget, clock: Clock, counts: TcpCounts, unused: () => void) {
    this.#target = target
    this.#clock = clock
    this.#counts = counts
    this.#unused = unused
  }

  get name(): string {
    const { host, port } = this.#target
    return `${host.includes(':') ? `[${host}]` : host}:${port}`
  }

  call(request: HttpRequest, windowBytes: number, handler: HttpResponseHandler): HttpCall {
    const call = new TcpCall(request, windowBytes, handler, this.#counts, () => this.#waiting.delete(call))
    this.#waiting.add(call)
    // The call begins in a later turn, so the caller has it before its handler is called.
    queueMicrotask(() => this.#start(call))
    return call.call
  }

  close(): void {
    this.#connecting?.destroy()
    for (const { call } of [...this.#waiting]) call.abort()
    for (const link of [...this.#links]) link.close()
    this.#unused()
  }

  #start(call: TcpCall): void {
    if (!call.call.isWaiting) return
    if (this.#link !== undefined) {
      this.#waiting.delete(call)
      this.#link.begin(call)
    } else this.#connect()
  }

  #connect(): void {
    if (this.#connecting !== undefined || [...this.#links].some(link => !link.isUp)) return
    const { host, port, limits } = this.#target
    const socket = connect({ host, port })
    this.#connecting = socket
    const timer = this.#clock.after(limits.connectMsMax, () =>
      socket.destroy(new Error(`there is no connection after ${limits.connectMsMax} ms`)),
    )
    const failed = (error: Error): void => {
      this.#connecting = undefined
      this.#counts.ends.connect++
      const failure = isLocalFault(error) ? 'local' : 'connect'
      this.#failWaiting(failure, `cannot connect to ${this.name}: ${error.message}`)
    }
    socket.once('error', failed)
    socket.once('close', () => timer.cancel())
    socket.once('connect', () => {
      timer.cancel()
      socket.off('error', failed)
      this.#connecting = undefined
      this.#connected(socket)
    })
  }

  #connected(socket: Socket): void {
    const link: CallLink = new CallLink(socket, this.name, this.#target.limits, this.#clock, this.#counts, {
      up: () => {
        this.#link = link
        for (const call of [...this.#waiting]) this.#start(call)
      },
      leaving: () => {
        if (this.#link === link) this.#link = undefined
      },
      ended: (why, reason) => {
        this.#links.delete(link)
        const wasUp = link.isUp
        if (this.#link === link) this.#link = undefined
        if (!wasUp) this.#failWaiting(why === 'version' || why === 'fault' ? 'protocol' : 'connect', reason)
        if (this.#links.size === 0 && this.#waiting.size === 0 && this.#connecting === undefined)
          this.#unused()
      },
    })
    this.#links.add(link)
  }

  #failWaiting(failure: HttpCallFailure, reason: string): void {
    const calls = [...this.#waiting]
    this.#waiting.clear()
    for (const { call } of calls) call.fail(failure, reason, false)
    if (this.#links.size === 0 && this.#waiting.size === 0 && this.#connecting === undefined) this.#unused()
  }
}

interface CallLinkEvents {
  up(): void
  /** It takes no more calls. */
  leaving(): void
  ended(why: TcpEnd, reason: string): void
}

/** One connection, with its calls. */
class CallLink {
  readonly #link: TcpLink
  readonly #clock: Clock
  readonly #idleMsMax: number
  readonly #counts: TcpCounts
  readonly #peer: string
  readonly #events: CallLinkEvents
  readonly #calls = new Map<number, TcpCall>()
  #hello: TcpHello | undefined
  #lastStream = 0
  /** The server takes no more calls; it has seen those up to this one. */
  #seenStream: number | undefined
  #idle: Timer | undefined

  constructor(
    socket: Socket,
    peer: string,
    limits: TcpLimits,
    clock: Clock,
    counts: TcpCounts,
    events: CallLinkEvents,
  ) {
    this.#clock = clock
    this.#idleMsMax = limits.idleMsMax
    this.#counts = counts
    this.#peer = peer
    this.#events = events
    const { frameBytesMax, streamsMax, idleMsMax: idleMs } = limits
    const hello = { frameBytesMax, streamsMax, windowBytes: 4096, idleMs }
    this.#link = new TcpLink(
      socket,
      { clock, limits, counts, hello, peer },
      {
        up: told => this.#up(told),
        frame: frame => this.#frame(frame),
        drained: () => this.#drained(),
        look: () => {},
        ended: (why, reason) => this.#ended(why, reason),
      },
    )
  }

  get isUp(): boolean {
    return this.#hello !== undefined
  }

  begin(call: TcpCall): void {
    const { streamsMax, windowBytes } = this.#hello!
    if (this.#calls.size >= streamsMax) {
      this.#counts.refusedStreams++
      call.call.fail('full', `${this.#peer} takes ${streamsMax} calls on a connection, and has them`, false)
      return
    }
    if (!call.call.toldSent()) return
    const stream = ++this.#lastStream
    this.#idle?.cancel()
    this.#calls.set(stream, call)
    call.forget = () => this.#forget(stream)
    call.call.begin(this.#link.sink(stream))
    if (!call.call.isComplete) call.call.accepted(windowBytes)
    if (stream === STREAM_MAX) this.#leave(stream)
  }

  /** Its calls fail as aborted. */
  close(): void {
    for (const { call } of [...this.#calls.values()]) call.abort()
    this.#link.end('closed', 'this side has closed the connection')
  }

  #up(hello: TcpHello): void {
    this.#hello = hello
    this.#idleLater()
    this.#events.up()
  }

  #frame({ kind, stream, content }: TcpFrame): string | undefined {
    if (kind === LINK.bye) {
      this.#leave(content as number)
      return undefined
    }
    // What comes for a call that has ended was under way.
    if (stream <= this.#lastStream) this.#calls.get(stream)?.call.frame(kind as FrameKind, content)
    else return `a frame came for the call ${stream}, and ${this.#lastStream} were made`
    return undefined
  }

  #leave(seenStream: number): void {
    this.#seenStream = seenStream
    this.#events.leaving()
    this.#endIfLeft()
  }

  #forget(stream: number): void {
    if (!this.#calls.delete(stream) || this.#calls.size > 0) return
    if (this.#seenStream !== undefined) queueMicrotask(() => this.#endIfLeft())
    else this.#idleLater()
  }

  #endIfLeft(): void {
    if (this.#calls.size === 0) this.#link.end('closed', 'the worker takes no more calls here')
  }

  #idleLater(): void {
    const idleMs = Math.min(this.#idleMsMax, Math.ceil(this.#hello!.idleMs / 2))
    this.#idle?.cancel()
    this.#idle = this.#clock.after(idleMs, () => {
      if (this.#calls.size > 0) return
      this.#events.leaving()
      this.#link.end('idle', 'it had no calls')
    })
  }

  #drained(): void {
    for (const [stream, call] of [...this.#calls]) {
      if (this.#link.isBlocked) return
      // An earlier one may have ended it.
      if (!this.#calls.has(stream)) continue
      // Those that did not get their turn come first next time.
      this.#calls.delete(stream)
      this.#calls.set(stream, call)
      call.call.unblocked()
    }
  }

  #ended(why: TcpEnd, reason: string): void {
    this.#idle?.cancel()
    const calls = [...this.#calls]
    this.#calls.clear()
    this.#events.ended(why, reason)
    for (const [stream, { call }] of calls) {
      if (stream > (this.#seenStream ?? stream)) call.fail('connect', reason, false)
      else call.fail(why === 'fault' ? 'protocol' : 'reset', reason)
    }
  }
}

class TcpCall implements CallCarrier {
  readonly call: RequestCall
  readonly counts: TcpCounts
  readonly #left: () => void
  /** Its connection hears nothing of it any more. */
  forget: (() => void) | undefined

  /** `left`: it does not wait for a connection any more. */
  constructor(
    request: HttpRequest,
    windowBytes: number,
    handler: HttpResponseHandler,
    counts: TcpCounts,
    left: () => void,
  ) {
    this.counts = counts
    this.#left = left
    this.call = new RequestCall(request, windowBytes, handler, this)
  }

  unheard(): void {
    this.forget?.()
  }

  ended(): void {
    this.counts.openCalls--
    this.#left()
  }
}

const STREAM_MAX = 2 ** 32 - 2
