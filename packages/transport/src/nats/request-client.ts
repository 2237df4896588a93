/**
 * Request client: HTTP calls over a broker to the server of a subject (request-server.ts, request-wire.ts).
 *
 * A call waits for a connection to the broker, and fails when there is none in time, when the subject has no
 * server, in silence, at a payload that was lost, and when the connection to the broker ends. All else of a
 * call is in requests/call.ts.
 *
 * Bounds   each call looks every BEAT_MS whether its server was heard. After more than SILENCE_LOOKS looks in
 *          silence the server counts as gone. Looks are counted, not time: if our own thread stood still, a
 *          live server does not count as gone. A call waits for a broker until it has been away for
 *          CALL_CONNECT_MS_MAX; after that, calls fail at once.
 */

import type { Clock, Timer } from '@homing/base'
import type { CallCounts } from '../call-counts.ts'
import type { HttpCallFailure } from '../errors.ts'
import type { HttpCall, HttpRequest, HttpResponseHandler } from '../http-types.ts'
import { type CallCarrier, RequestCall } from '../requests/call.ts'
import { FRAME, type FrameKind, SILENCE_LOOKS } from '../requests/frames.ts'
import type { Broker, BrokerLink, OpenBroker } from './broker.ts'
import { BEAT_MS } from './lives.ts'
import { contentOf, decodeCallPayload, FrameWriter, PayloadSink, VERSION } from './request-wire.ts'

const CALL_CONNECT_MS_MAX = 2000

export interface RequestClientOptions {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  /** Returns 16 hexadecimal digits, different ones each time. */
  readonly newCallId: () => string
}

/** Where a request goes. */
export interface RequestTarget {
  readonly servers: readonly string[]
  readonly subject: string
  /** Most bytes of an answer that may be on the way or held. */
  readonly windowBytes: number
}

/** All calls of one transport. */
export class RequestClient {
  readonly #options: RequestClientOptions
  readonly #brokers = new Map<string, BrokerCalls>()

  constructor(options: RequestClientOptions) {
    this.#options = options
  }

  call(request: HttpRequest, target: RequestTarget, handler: HttpResponseHandler): HttpCall {
    const key = target.servers.join(',')
    const calls = this.#brokers.get(key) ?? new BrokerCalls(target.servers, this.#options)
    this.#brokers.set(key, calls)
    return calls.call(request, target, handler)
  }

  /** Cuts every call; they fail as aborted. */
  close(): void {
    for (const calls of this.#brokers.values()) calls.close()
    this.#brokers.clear()
  }
}

/** The calls over one broker. */
class BrokerCalls {
  readonly clock: Clock
  readonly broker: Broker
  readonly name: string
  readonly #newCallId: () => string
  readonly #open = new Set<BrokerCall>()
  readonly #leave: () => void
  link: BrokerLink | undefined
  /** Since when there is no link, if there is none. */
  downMs: number
  #timer: Timer | undefined

  constructor(servers: readonly string[], { clock, log, openBroker, newCallId }: RequestClientOptions) {
    this.clock = clock
    this.name = servers.join(',')
    this.#newCallId = newCallId
    this.downMs = clock.nowMs()
    this.broker = openBroker(servers)
    this.#leave = this.broker.join({
      up: link => {
        this.link = link
        for (const call of [...this.#open]) call.up(link)
      },
      down: () => {
        this.link = undefined
        this.downMs = clock.nowMs()
        for (const call of [...this.#open]) call.down()
      },
      failed: reason => log.warn({ servers, reason }, 'NATS connection failed'),
    })
  }

  call(request: HttpRequest, target: RequestTarget, handler: HttpResponseHandler): HttpCall {
    const call = new BrokerCall(request, target, handler, this.#newCallId(), this)
    this.#open.add(call)
    // The call begins in a later turn, so the caller has it before its handler is called.
    queueMicrotask(() => call.start())
    this.#lookLater()
    return call.call
  }

  ended(call: BrokerCall): void {
    if (!this.#open.delete(call)) return
    this.broker.counts.openCalls--
    if (this.#open.size > 0) return
    this.#timer?.cancel()
    this.#timer = undefined
  }

  close(): void {
    for (const { call } of [...this.#open]) call.abort()
    this.#timer?.cancel()
    this.#leave()
  }

  #lookLater(): void {
    this.#timer ??= this.clock.after(BEAT_MS, () => {
      this.#timer = undefined
      for (const call of [...this.#open]) call.look()
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

class BrokerCall implements CallCarrier {
  readonly call: RequestCall
  readonly counts: CallCounts
  readonly #target: RequestTarget
  readonly #id: string
  readonly #calls: BrokerCalls
  #timer: Timer | undefined
  #unsubscribe: (() => void) | undefined
  #writer: FrameWriter | undefined
  #sink: PayloadSink | undefined
  #nextSequence = 0
  /** Looks since the server was heard last. */
  #silentLooks = 0

  constructor(
    request: HttpRequest,
    target: RequestTarget,
    handler: HttpResponseHandler,
    id: string,
    calls: BrokerCalls,
  ) {
    this.#target = target
    this.#id = id
    this.#calls = calls
    this.counts = calls.broker.counts
    this.call = new RequestCall(request, target.windowBytes, handler, this)
  }

  unheard(): void {
    this.#unsubscribe?.()
    this.#unsubscribe = undefined
  }

  ended(): void {
    this.#timer?.cancel()
    this.#calls.ended(this)
  }

  // ── What its broker does ────────────────────────────────────────────────────────────────────

  start(): void {
    const { link, clock, downMs, name } = this.#calls
    if (!this.call.isWaiting) return
    if (link !== undefined) {
      this.up(link)
      return
    }
    const waitMs = Math.max(0, downMs + CALL_CONNECT_MS_MAX - clock.nowMs())
    this.#timer = clock.after(waitMs, () =>
      this.call.fail('connect', `there is no connection to the NATS broker ${name}`),
    )
  }

  up(link: BrokerLink): void {
    if (!this.call.isWaiting) return
    this.#timer?.cancel()
    if (this.call.toldSent()) this.#send(link)
  }

  down(): void {
    // A call that was not sent goes on waiting for a connection.
    if (!this.call.wasSent) return
    this.#unsubscribe = undefined
    this.#failEnded()
  }

  #failEnded(): void {
    this.call.fail('reset', `the connection to the NATS broker ${this.#calls.name} ended`)
  }

  look(): void {
    if (!this.call.wasSent || this.call.isComplete) return
    if (++this.#silentLooks > SILENCE_LOOKS) {
      const silentMs = SILENCE_LOOKS * BEAT_MS
      this.call.fail('reset', `nothing was heard from ${this.#target.subject} for ${silentMs} ms`)
      return
    }
    const sink = this.#sink!
    if (this.call.isAccepted && !sink.hasSpoken) sink.put(FRAME.alive)
    sink.hasSpoken = false
  }

  #send(link: BrokerLink): void {
    const { subject } = this.#target
    const { broker, name } = this.#calls
    const inbox = broker.newInbox()
    this.#unsubscribe = link.subscribe(inbox, {
      message: (payload, reply) => this.#heard(payload, reply),
      unheard: () =>
        this.call.fail('connect', `no worker serves ${subject} at the NATS broker ${name}`, false),
    })
    const lost = (): void => {
      if (link.hasEnded?.() === true) this.#failEnded()
      else this.call.fail('reset', 'too much is on its way to the NATS broker')
    }
    this.#writer = new FrameWriter(link, this.#id, lost, subject, inbox)
    this.#sink = new PayloadSink(link, this.#writer)
    this.call.begin(this.#sink)
  }

  #heard(bytes: Uint8Array, reply: string): void {
    if (this.call.isComplete) return
    const payload = decodeCallPayload(bytes)
    const fault = this.#faultOf(payload)
    if (fault !== undefined || typeof payload !== 'object') {
      const failure: HttpCallFailure = typeof payload === 'object' ? 'reset' : 'protocol'
      this.call.fail(failure, fault ?? '')
      return
    }
    this.#nextSequence++
    this.#silentLooks = 0
    for (const frame of payload.frames) {
      if (this.call.isComplete) return
      this.#frame(frame.kind, contentOf(frame), reply)
    }
  }

  #frame(kind: FrameKind, content: unknown, reply: string): void {
    if (kind !== FRAME.accept) {
      this.call.frame(kind, content)
      return
    }
    const { windowBytes } = (content ?? {}) as { readonly windowBytes?: unknown }
    if (reply !== '') this.#writer!.aim(reply)
    this.call.accepted(reply === '' ? undefined : windowBytes)
  }

  #faultOf(payload: ReturnType<typeof decodeCallPayload>): string | undefined {
    if (payload === undefined) return 'what it answers is not of the request plane'
    if (typeof payload === 'number') return `its request plane is of version ${payload}, not ${VERSION}`
    const lost = payload.sequence - this.#nextSequence
    return lost === 0 ? undefined : `${lost} payloads of the answer were lost`
  }
}
