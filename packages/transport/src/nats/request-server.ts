/**
 * Request server: HTTP exchanges whose clients are at a broker (request-client.ts, request-wire.ts).
 *
 * If several servers share a subject, the broker chooses one for each request. A router takes them for one
 * worker, so its knowledge of their blocks is wrong. Each server announces itself under SUBJECT.served, and
 * warns when it hears another. A client has left if it cancels, is not heard for SILENCE_LOOKS looks, or
 * cannot be heard because the connection to the broker ended.
 *
 * Bounds   `callsMax` exchanges; further requests are answered with 503. At most `windowBytes` of a body are
 *          under way; only the reader of a body keeps it. Of an answer, only the bytes wait here that its
 *          writer writes although it was told to wait.
 */

import type { Clock, Timer } from '@homing/base'
import { callFor } from '../callback.ts'
import type { ServedExchange, ServeOptions, ServingListener } from '../http-types.ts'
import { RequestExchange } from '../requests/exchange.ts'
import { FRAME, type OpenWord, openOf, SILENCE_LOOKS } from '../requests/frames.ts'
import { fullRefusal, headRefusal, refuse } from '../requests/refuse.ts'
import type { Broker, BrokerLink } from './broker.ts'
import { BEAT_MS } from './lives.ts'
import {
  CALL_BYTES,
  type CallPayload,
  contentOf,
  decodeCallPayload,
  FrameWriter,
  PayloadSink,
  VERSION,
} from './request-wire.ts'

const BODY_WINDOW_BYTES = 2 ** 20
const CALLS_MAX = 4096
/** So many others under one's subject are told of. */
const OTHERS_MAX = 8
const INBOX_BYTES_MAX = 200
const NO_CALL = '0'.repeat(2 * CALL_BYTES)

export interface RequestServerEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly broker: Broker
  readonly servers: readonly string[]
  readonly subject: string
}

export class RequestServer implements ServingListener {
  readonly listening: Promise<string>
  readonly #options: ServeOptions
  readonly #environment: RequestServerEnvironment
  readonly #onExchange: (exchange: ServedExchange) => void
  readonly #leave: () => void
  readonly #open = new Map<string, BrokerExchange>()
  #link: BrokerLink | undefined
  #inbox = ''
  #stopServing: (() => void) | undefined
  /** Inboxes of others that serve the same subject. */
  readonly #others = new Set<string>()
  #timer: Timer | undefined
  #isClosing = false
  #closed: Promise<void> | undefined
  #onIdle: (() => void) | undefined

  constructor(
    options: ServeOptions,
    environment: RequestServerEnvironment,
    onExchange: (exchange: ServedExchange) => void,
  ) {
    this.listening = Promise.resolve(options.endpoint)
    this.#options = options
    this.#environment = environment
    this.#onExchange = onExchange
    const { broker, servers, log } = environment
    this.#leave = broker.join({
      up: link => this.#up(link),
      down: () => this.#down(),
      failed: reason => log.warn({ servers, reason }, 'NATS connection failed'),
    })
  }

  get openCount(): number {
    return this.#open.size
  }

  close(graceMs: number): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    this.#isClosing = true
    this.#stopServing?.()
    if (this.#open.size > 0 && graceMs > 0) {
      let timer: Timer | undefined
      await new Promise<void>(resolve => {
        this.#onIdle = resolve
        timer = this.#environment.clock.after(graceMs, resolve)
      })
      timer?.cancel()
    }
    for (const { exchange } of [...this.#open.values()]) exchange.destroy()
    this.#timer?.cancel()
    // Words of this turn still go out.
    queueMicrotask(this.#leave)
  }

  #up(link: BrokerLink): void {
    const { broker, subject } = this.#environment
    this.#link = link
    this.#inbox = broker.newInbox()
    link.subscribe(this.#inbox, { message: payload => this.#heard(payload) })
    if (this.#isClosing) return
    const queue = 'homing'
    const stopAsking = link.subscribe(subject, { message: (...told) => this.#asked(link, ...told) }, queue)
    const served = `${subject}.served`
    const stopHearing = link.subscribe(served, { message: payload => this.#otherHeard(link, payload) })
    this.#stopServing = () => {
      stopAsking()
      stopHearing()
    }
    link.publish(served, Buffer.from(this.#inbox))
  }

  /** Somebody says that it serves our subject: ourselves, or another, who should hear of us as well. */
  #otherHeard(link: BrokerLink, payload: Uint8Array): void {
    const inbox = payload.length > INBOX_BYTES_MAX ? '' : Buffer.from(payload).toString()
    if (inbox === '' || inbox === this.#inbox || this.#others.has(inbox) || this.#others.size >= OTHERS_MAX)
      return
    this.#others.add(inbox)
    const { log, subject } = this.#environment
    log.warn(
      { subject },
      'another process serves the same subject: each request goes to one of them; give each its own subject',
    )
    link.publish(`${subject}.served`, Buffer.from(this.#inbox))
  }

  #down(): void {
    this.#link = undefined
    this.#stopServing = undefined
    for (const { exchange } of [...this.#open.values()]) exchange.gone()
  }

  #asked(link: BrokerLink, bytes: Uint8Array, reply: string): void {
    const payload = decodeCallPayload(bytes)
    // Nobody waits for an answer.
    if (reply === '' || this.#link !== link) return
    if (typeof payload !== 'object') {
      const reason =
        payload === undefined
          ? 'it is no request'
          : `its request plane is of version ${payload}, not ${VERSION}`
      this.#refuse(link, NO_CALL, reply, reason)
      return
    }
    const [first, ...rest] = payload.frames
    const open = first?.kind === FRAME.open ? openOf(contentOf(first)) : undefined
    const isWhole = rest.every(({ kind }) => kind === FRAME.body)
    if (open === undefined || !isWhole || payload.sequence !== 0 || this.#open.has(payload.call))
      this.#refuse(link, payload.call, reply, 'its request cannot be read')
    else this.#accept(link, payload, open, reply)
  }

  #accept(link: BrokerLink, { call, frames }: CallPayload, open: OpenWord, reply: string): void {
    const {
      callsMax = CALLS_MAX,
      windowBytes = BODY_WINDOW_BYTES,
      bodySilenceMsMax = Number.POSITIVE_INFINITY,
    } = this.#options
    const refused = this.#open.size >= callsMax ? fullRefusal(`${callsMax} are open`) : headRefusal(open)
    const ended = (): void => this.#ended(call)
    const one = new BrokerExchange({
      link,
      call,
      open,
      reply,
      inbox: this.#inbox,
      windowBytes,
      bodySilenceMsMax,
      ended,
    })
    const { exchange } = one
    this.#open.set(call, one)
    one.accept(frames.slice(1).map(({ bytes }) => bytes))
    this.#lookLater()
    if (refused !== undefined) refuse(exchange, refused)
    else if (!callFor(`${this.#environment.subject}, call ${call}`, () => this.#onExchange(exchange)))
      exchange.destroy()
  }

  #refuse(link: BrokerLink, call: string, reply: string, reason: string): void {
    this.#environment.log.warn({ subject: this.#environment.subject, reason }, 'request refused')
    new FrameWriter(link, call, () => {}, reply).put(FRAME.failed, Buffer.from(reason))
  }

  #heard(bytes: Uint8Array): void {
    const payload = decodeCallPayload(bytes)
    if (payload === undefined || typeof payload === 'number') return
    this.#open.get(payload.call)?.heard(payload)
  }

  #ended(call: string): void {
    this.#open.delete(call)
    if (this.#open.size === 0) this.#onIdle?.()
  }

  #lookLater(): void {
    this.#timer ??= this.#environment.clock.after(BEAT_MS, () => {
      this.#timer = undefined
      for (const one of [...this.#open.values()]) one.look()
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

interface BrokerExchangeArgs {
  readonly link: BrokerLink
  readonly call: string
  readonly open: OpenWord
  /** Where the answer goes. */
  readonly reply: string
  /** Where the client's next words come. */
  readonly inbox: string
  readonly windowBytes: number
  readonly bodySilenceMsMax: number
  readonly ended: () => void
}

/** An exchange, and what is to do for it at a broker. */
class BrokerExchange {
  readonly exchange: RequestExchange
  readonly #sink: PayloadSink
  readonly #windowBytes: number
  #nextSequence = 1
  #silentLooks = 0

  constructor({ link, call, reply, inbox, ...args }: BrokerExchangeArgs) {
    this.#sink = new PayloadSink(link, new FrameWriter(link, call, () => this.exchange.gone(), reply, inbox))
    this.#windowBytes = args.windowBytes
    // The broker is in between.
    this.exchange = new RequestExchange({ ...args, sink: this.#sink, peerAddress: '' })
  }

  /** `first`: what of the body came along. */
  accept(first: readonly Uint8Array[]): void {
    this.#sink.put(FRAME.accept, { windowBytes: this.#windowBytes })
    this.exchange.accept(first)
  }

  heard({ sequence, frames }: CallPayload): void {
    if (this.exchange.isClosed) return
    if (sequence !== this.#nextSequence) {
      this.exchange.fail(`${sequence - this.#nextSequence} payloads of the request were lost`)
      return
    }
    this.#nextSequence++
    this.#silentLooks = 0
    for (const frame of frames) this.exchange.frame(frame.kind, contentOf(frame))
  }

  look(): void {
    this.exchange.look()
    if (++this.#silentLooks > SILENCE_LOOKS) this.exchange.gone()
    else this.#sink.put(FRAME.alive)
  }
}
