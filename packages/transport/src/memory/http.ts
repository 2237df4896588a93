/** HTTP on a network in memory. */

import type { Clock } from '@homing/base'
import { atOrigin } from '../base-url.ts'
import { callOwner } from '../callback.ts'
import type { Closable } from '../closable.ts'
import {
  BodyTimeoutError,
  BodyTooLargeError,
  ClientGoneError,
  HttpCallError,
  type HttpCallFailure,
  ListenError,
} from '../errors.ts'
import { endToEndHeaders, withAccess } from '../headers.ts'
import type {
  BodyRoom,
  ClientGoneReason,
  HttpAccess,
  HttpCall,
  HttpExchange,
  HttpHeaders,
  HttpListener,
  HttpRequest,
  HttpResponseHandler,
  HttpTransport,
  ListenOptions,
} from '../http-types.ts'
import { collectReply } from '../reply.ts'
import type { RequestPlane } from '../request-plane.ts'
import { StallWatch } from '../stall-watch.ts'
import type { MemoryConditions } from './conditions.ts'
import { Lane } from './lane.ts'
import { findBound, placeOf } from './place.ts'

/** What a server may write ahead of its client. */
const WRITE_AHEAD_BYTES = 64 * 1024

interface Listening {
  readonly place: string
  readonly isShared: boolean
  readonly clock: Clock
  readonly bodySilenceMsMax: number
  readonly readerStallMsMax: number
  readonly onExchange: (exchange: HttpExchange) => void
  readonly open: Set<MemoryExchange>
  /** Called when the last open exchange has ended. */
  onIdle: (() => void) | undefined
}

export class MemoryHttp {
  readonly #network: MemoryConditions
  /** By place; several of those that share theirs, of which each takes a call in turn. */
  readonly #listening = new Map<string, Listening[]>()
  readonly #severed = new Set<string>()
  #turn = 0

  constructor(network: MemoryConditions) {
    this.#network = network
  }

  disconnect(place: string): void {
    this.#severed.add(place)
    for (const { open } of findBound(this.#listening, place) ?? [])
      for (const exchange of [...open]) exchange.breakConnection()
  }

  reconnect(place: string): void {
    this.#severed.delete(place)
  }

  transport(plane: RequestPlane): HttpTransport & Closable {
    const open = new Set<{ end(): void }>()
    const accesses = new Map<string, HttpAccess>()
    const call = (given: HttpRequest, handler: HttpResponseHandler): HttpCall => {
      const overBroker = plane.call(given, handler)
      if (overBroker !== undefined) return overBroker
      const access = accesses.get(given.origin)
      const headers = withAccess(endToEndHeaders(given.headers), access)
      const request = atOrigin(access === undefined ? given : { ...given, headers })
      const started = new MemoryCall(request, handler, this.#network, () => open.delete(entry))
      const entry = { end: () => started.abort() }
      open.add(entry)
      this.#start(started)
      return started
    }
    return {
      listen: async (options, onExchange) => {
        const listener = this.#listen(options, onExchange)
        open.add({ end: () => void listener.close(0) })
        return listener
      },
      setPeer() {},
      setAccess(origin, access) {
        if (access === undefined) accesses.delete(origin)
        else accesses.set(origin, access)
        plane.setAccess(origin, access)
      },
      setRoute: (origin, route) => plane.setRoute(origin, route),
      serve: (options, onExchange) => plane.serve(options, onExchange),
      trust() {},
      call,
      fetch: (request, options) =>
        collectReply(request, options, handler => call(request, handler), this.#network.clock),
      close() {
        for (const entry of [...open]) entry.end()
        open.clear()
        plane.close()
      },
    }
  }

  #listen(options: ListenOptions, onExchange: (exchange: HttpExchange) => void): HttpListener {
    const port = options.port === 0 ? this.#network.freePort() : options.port
    const place = placeOf(`http://${options.host}:${port}`)
    const others = this.#listening.get(place) ?? []
    const isShared = options.isShared ?? false
    if (others.some(other => !other.isShared || !isShared)) {
      throw new ListenError(`http://${place}`, new Error('EADDRINUSE, it is bound already'))
    }
    const listening: Listening = {
      place,
      isShared,
      clock: this.#network.clock,
      bodySilenceMsMax: options.bodySilenceMsMax ?? Number.POSITIVE_INFINITY,
      readerStallMsMax: options.readerStallMsMax ?? Number.POSITIVE_INFINITY,
      onExchange,
      open: new Set(),
      onIdle: undefined,
    }
    this.#listening.set(place, [...others, listening])
    let closing: Promise<void> | undefined
    return {
      host: options.host,
      port,
      get connections() {
        return listening.open.size
      },
      // Every call has a connection of its own.
      endConnections() {},
      setIdentity() {},
      close: graceMs => {
        closing ??= this.#close(listening, graceMs)
        return closing
      },
    }
  }

  #close(listening: Listening, graceMs: number): Promise<void> {
    const others = this.#listening.get(listening.place)!.filter(other => other !== listening)
    if (others.length === 0) this.#listening.delete(listening.place)
    else this.#listening.set(listening.place, others)
    if (listening.open.size === 0) return Promise.resolve()
    return new Promise(resolve => {
      const timer = this.#network.clock.after(graceMs, () => {
        for (const exchange of [...listening.open]) exchange.breakConnection()
      })
      listening.onIdle = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  #start(call: MemoryCall): void {
    const fate = this.#network.faults.http?.(call.request) ?? 'deliver'
    const delayMs = this.#network.latencyMs + (typeof fate === 'string' ? 0 : fate.delayMs)
    new Lane(this.#network.clock).put(delayMs, () => {
      if (call.isEnded) return
      const place = placeOf(call.request.origin)
      const all = findBound(this.#listening, place)
      const listening = all?.[this.#turn++ % all.length]
      const isSevered = this.#severed.has(place) || this.#severed.has(listening?.place ?? '')
      if (fate === 'no-socket') {
        call.fail('local', 'EMFILE')
      } else if (fate === 'full') {
        call.fail('full', 'its connection has as many calls as it takes')
      } else if (fate === 'refuse' || listening === undefined || isSevered) {
        call.fail('connect', 'ECONNREFUSED')
      } else if (fate === 'stale') {
        call.fail('reset', 'ECONNRESET', { wroteRequest: true, reusedConnection: true })
      } else {
        const exchange = new MemoryExchange(call, listening, fate === 'stall-body')
        listening.open.add(exchange)
        call.serve(exchange)
        callOwner(listening.onExchange, exchange)
      }
    })
  }
}

type Delivery =
  | { readonly type: 'head'; readonly status: number; readonly headers: HttpHeaders }
  | { readonly type: 'data'; readonly bytes: Uint8Array }
  | { readonly type: 'end' }

/** The client's side. */
class MemoryCall implements HttpCall {
  readonly request: HttpRequest
  readonly #handler: HttpResponseHandler
  readonly #network: MemoryConditions
  readonly #lane: Lane
  readonly #onEnd: () => void
  /** What has arrived while the client paused. */
  readonly #waiting: Delivery[] = []
  #exchange: MemoryExchange | undefined
  #isPaused = false
  isEnded = false

  constructor(
    request: HttpRequest,
    handler: HttpResponseHandler,
    network: MemoryConditions,
    onEnd: () => void,
  ) {
    this.request = request
    this.#handler = handler
    this.#network = network
    this.#lane = new Lane(network.clock)
    this.#onEnd = onEnd
  }

  serve(exchange: MemoryExchange): void {
    this.#exchange = exchange
    callOwner(() => this.#handler.sent?.())
  }

  /** What the server has not read by then is copied for it. */
  get usesBody(): boolean {
    return !this.isEnded
  }

  abort(): void {
    if (this.isEnded) return
    this.#end()
    const error = new HttpCallError(this.request, 'aborted')
    const info = { wroteRequest: this.#exchange !== undefined, reusedConnection: false }
    queueMicrotask(() => this.#handler.failed(error, info))
    const exchange = this.#exchange
    if (exchange !== undefined) {
      new Lane(this.#network.clock).put(this.#network.latencyMs, () => exchange.loseClient())
    }
  }

  fail(
    failure: HttpCallFailure,
    reason: string,
    info = { wroteRequest: this.#exchange !== undefined, reusedConnection: false },
  ): void {
    if (this.isEnded) return
    this.#end()
    const error = new HttpCallError(this.request, failure, new Error(reason))
    callOwner(() => this.#handler.failed(error, info))
  }

  /** Puts something on its way to the client. */
  send(delivery: Delivery): void {
    this.#lane.put(this.#network.latencyMs, () => {
      this.#waiting.push(delivery)
      this.#deliver()
    })
  }

  /** The connection breaks; what is under way is lost. */
  break(): void {
    this.#lane.cut()
    new Lane(this.#network.clock).put(this.#network.latencyMs, () => this.fail('reset', 'ECONNRESET'))
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    queueMicrotask(() => this.#deliver())
  }

  #deliver(): void {
    while (!this.#isPaused && !this.isEnded) {
      const delivery = this.#waiting.shift()
      if (delivery === undefined) return
      switch (delivery.type) {
        case 'head':
          callOwner(() => this.#handler.head(delivery.status, delivery.headers))
          break
        case 'data':
          this.#exchange?.delivered(delivery.bytes.length)
          callOwner(() => this.#handler.data(delivery.bytes))
          break
        case 'end':
          this.#end()
          callOwner(() => this.#handler.end('framed'))
      }
    }
  }

  #end(): void {
    this.isEnded = true
    this.#exchange?.keepBody()
    this.#lane.cut()
    this.#onEnd()
  }
}

/** The server's side. */
class MemoryExchange implements HttpExchange {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  readonly peerAddress = '127.0.0.1'
  readonly #call: MemoryCall
  readonly #listening: Listening
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  readonly #stall: StallWatch
  readonly #isBodyStalled: boolean
  #body: Uint8Array
  #isBodyRead = false
  #onDrain: (() => void)[] = []
  #aheadBytes = 0
  #takenBytes = 0
  #hasHead = false
  #isOver = false
  readonly #onOver: (() => void)[] = []
  #isGone = false
  #isEnded = false

  constructor(call: MemoryCall, listening: Listening, isBodyStalled: boolean) {
    const { method, path, origin, headers, body } = call.request
    const queryAt = path.indexOf('?')
    this.method = method
    this.path = queryAt < 0 ? path : path.slice(0, queryAt)
    this.query = queryAt < 0 ? '' : path.slice(queryAt + 1)
    this.headers = {
      host: origin.slice('http://'.length),
      ...lowerCase(endToEndHeaders(headers)),
      ...(body === undefined ? {} : { 'content-length': String(body.length) }),
    }
    this.#body = body ?? new Uint8Array(0)
    this.#call = call
    this.#listening = listening
    this.#isBodyStalled = isBodyStalled
    this.#stall = new StallWatch(listening.clock, listening.readerStallMsMax, {
      waitingBytes: () => this.#aheadBytes,
      progress: () => this.#takenBytes,
      cut: () => this.breakConnection('stalled'),
    })
  }

  get isClosed(): boolean {
    return this.#isGone || this.#isEnded
  }

  async readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    if (this.#isGone) throw new ClientGoneError('read the body')
    const body = this.#body
    if (body.length > maxBytes) throw new BodyTooLargeError(maxBytes)
    room?.check(body.length)
    if (this.#isBodyStalled) await this.#endOfPatience()
    room?.take(body.length)
    this.#isBodyRead = true
    const place = room?.place?.(body.length)
    place?.set(body)
    return place ?? body.slice()
  }

  /** The client may give up its bytes from now on. */
  keepBody(): void {
    if (!this.#isBodyRead) this.#body = this.#body.slice()
  }

  /** Rejects, sooner or later: nothing of the body ever comes. */
  #endOfPatience(): Promise<never> {
    const { clock, bodySilenceMsMax } = this.#listening
    return new Promise((_resolve, reject) => {
      const timer =
        bodySilenceMsMax < Number.POSITIVE_INFINITY
          ? clock.after(bodySilenceMsMax, () => reject(new BodyTimeoutError(bodySilenceMsMax, 0)))
          : undefined
      this.#onGone.push(() => {
        timer?.cancel()
        reject(new ClientGoneError('read the body'))
      })
    })
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    if (this.#isGone) queueMicrotask(() => callback('left'))
    else this.#onGone.push(callback)
  }

  onOver(callback: () => void): void {
    if (this.#isOver) queueMicrotask(() => callOwner(callback))
    else this.#onOver.push(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    if (this.isClosed || this.#hasHead) return
    this.#hasHead = true
    this.#call.send({ type: 'head', status, headers: lowerCase(headers) })
  }

  write(bytes: Uint8Array): boolean {
    if (this.isClosed) return true
    this.writeHead(200, {})
    this.#aheadBytes += bytes.length
    this.#call.send({ type: 'data', bytes })
    const hasRoom = this.#aheadBytes < WRITE_AHEAD_BYTES
    if (!hasRoom) this.#stall.start()
    return hasRoom
  }

  onDrain(callback: () => void): void {
    this.#onDrain.push(callback)
  }

  end(bytes?: Uint8Array): void {
    if (this.isClosed) return
    if (bytes === undefined) this.writeHead(200, {})
    else this.write(bytes)
    this.#isEnded = true
    if (this.#aheadBytes > 0) this.#stall.start()
    this.#call.send({ type: 'end' })
    if (this.#aheadBytes === 0) this.#over()
    this.#leaveListener()
  }

  destroy(): void {
    this.breakConnection()
  }

  /** `size` bytes have reached the client. */
  delivered(size: number): void {
    this.#aheadBytes -= size
    this.#takenBytes += size
    if (this.#aheadBytes === 0) this.#stall.stop()
    if (this.#aheadBytes === 0 && this.#isEnded) this.#over()
    if (this.#aheadBytes > 0 || this.#onDrain.length === 0) return
    const callbacks = this.#onDrain
    this.#onDrain = []
    queueMicrotask(() => {
      for (const callback of callbacks) if (!this.#isGone) callOwner(callback)
    })
  }

  breakConnection(reason: ClientGoneReason = 'left'): void {
    if (this.#isGone) return
    this.#call.break()
    this.loseClient(reason)
  }

  loseClient(reason: ClientGoneReason = 'left'): void {
    if (this.#isGone) return
    // As over a socket: an answer that has ended is complete when its client has taken it.
    const wasComplete = this.#isEnded && this.#aheadBytes === 0
    this.#isGone = true
    this.#stall.stop()
    this.#leaveListener()
    if (!wasComplete) for (const callback of this.#onGone.splice(0)) callOwner(callback, reason)
    this.#over()
  }

  #over(): void {
    this.#isOver = true
    for (const callback of this.#onOver.splice(0)) callOwner(callback)
  }

  #leaveListener(): void {
    this.#listening.open.delete(this)
    if (this.#listening.open.size === 0) this.#listening.onIdle?.()
  }
}

function lowerCase(headers: HttpHeaders): HttpHeaders {
  const lowered: Record<string, string | readonly string[]> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) lowered[name.toLowerCase()] = value
  }
  return lowered
}
