/**
 * The four roles over a broker, under the subject of an endpoint:
 *
 *   SUBJECT.events   messages of the publisher; a message larger than the broker allows goes in parts
 *   SUBJECT.beats    the publisher lives: every BEAT_MS, at each of its connections, and when asked; and its
 *                    last word
 *   SUBJECT.hello    a subscriber asks whether the publisher lives
 *   SUBJECT.ask      questions to the process that answers under this subject; answers go to an inbox of the
 *                    asker
 *
 * A broker keeps no messages and does not report which peers exist. So a subscriber is `connected` while it
 * hears its publisher (lives.ts). It reports `connected` again after every possible loss: another life or
 * connection of the publisher, a new connection of its own, or messages that it had no room for. No other
 * loss is possible: messages under way are lost only with a connection.
 *
 * The publisher and the answering side of one subject belong to one process and share its life. A question
 * goes to the followed life, if there is one.
 */

import type { Clock, Timer } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import { formatEndpoint, parseBrokerEndpoint } from '../endpoint.ts'
import type {
  BindOptions,
  Closable,
  Dealer,
  Frames,
  MessageTransport,
  Offered,
  Publisher,
  RouterSocket,
  SubscriberHandler,
} from '../types.ts'
import type { Broker, BrokerLink, OpenBroker } from './broker.ts'
import { BEAT_MS, Lives } from './lives.ts'
import { OwnLives } from './own-lives.ts'
import {
  decodeFrames,
  decodePayload,
  encodeMessage,
  encodeWord,
  KIND,
  NO_LIFE,
  Parts,
  type Payload,
  type Sender,
} from './payload.ts'
import { Presence } from './presence.ts'

export interface BrokerEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  /**
   * What was received waits for what this answers; it is dropped meanwhile, which the subscriber is told.
   * Undefined: go on.
   */
  readonly gate?: () => Promise<void> | undefined
  /** Of the process; default: one of its own. */
  readonly own?: OwnLives
}

/** What a host needs beside the roles; see ZmqMessages. */
export interface BrokerMessages extends MessageTransport, Closable {
  dial(
    options: { readonly endpoint: string },
    onMessage: (frames: Frames) => void,
    taken?: () => void,
  ): Dealer
}

/** Questions that wait in a dealer for a connection, or for somebody to hear them. */
const DEALER_QUEUE_MAX = 1000
const RETRY_MS_MIN = 100
const RETRY_MS_MAX = 5000

/** The roles, and one `close` for all that was opened. */
export function brokerMessages(given: BrokerEnvironment): BrokerMessages {
  const environment = { ...given, own: given.own ?? new OwnLives() }
  const open = new Set<Closable>()
  let isClosed = false
  const owned = <T extends Closable>(role: T): T => {
    if (isClosed) role.close()
    else open.add(role)
    return role
  }
  const released = (role: Closable): void => void open.delete(role)
  return {
    subscribe: ({ endpoint, topic }, handler) =>
      owned(new BrokerSubscriber(endpoint, topic, handler, environment, released)),
    publish: async ({ endpoint }) => owned(new BrokerPublisher(endpoint, environment, released)),
    dial: ({ endpoint }, onMessage, taken = () => {}) =>
      owned(new BrokerDealer(endpoint, onMessage, taken, environment, released)),
    serve: async ({ endpoint }: BindOptions, onMessage) =>
      owned(new BrokerRouter(endpoint, onMessage, environment, released)),
    present({ endpoint, card }, handler) {
      const place = new Place(endpoint, environment)
      return owned(
        new Presence({
          subject: place.subject,
          card,
          life: environment.own.newLife(),
          clock: environment.clock,
          handler,
          join: (up, down) => place.join(up, down),
          released,
        }),
      )
    },
    close() {
      isClosed = true
      for (const role of [...open]) role.close()
    },
  }
}

type Environment = BrokerEnvironment & { readonly own: OwnLives }
type Released = (role: Closable) => void

/** Where a role is, and its connection. */
class Place {
  readonly endpoint: string
  readonly subject: string
  readonly broker: Broker
  readonly #servers: readonly string[]
  readonly #log: BrokerEnvironment['log']

  constructor(text: string, { openBroker, log }: BrokerEnvironment) {
    const parsed = parseBrokerEndpoint(text)
    this.endpoint = formatEndpoint(parsed)
    this.subject = parsed.subject
    this.broker = openBroker(parsed.servers)
    this.#servers = parsed.servers
    this.#log = log
  }

  /** Takes part in the connection; answers how to leave. */
  join(up: (session: BrokerLink) => void, down: () => void): () => void {
    const failed = (reason: string): void =>
      this.#log.warn({ servers: this.#servers, reason }, 'NATS connection failed')
    return this.broker.join({ up, down, failed })
  }
}

class BrokerSubscriber implements Closable {
  readonly #place: Place
  readonly #topic: Uint8Array
  readonly #handler: SubscriberHandler
  readonly #environment: Environment
  readonly #released: Released
  readonly #lives = new Lives()
  readonly #parts = new Parts()
  readonly #leave: () => void
  #timer: Timer | undefined
  #session: BrokerLink | undefined
  #isConnected = false
  /** Received messages are dropped until the reader has caught up. */
  #isFull = false
  #isClosed = false
  #warned: string | undefined

  constructor(
    text: string,
    topic: string,
    handler: SubscriberHandler,
    environment: Environment,
    released: Released,
  ) {
    this.#place = new Place(text, environment)
    this.#topic = Buffer.from(topic)
    this.#handler = handler
    this.#environment = environment
    this.#released = released
    environment.own.follow(this.#place.endpoint, this.#lives)
    this.#leave = this.#place.join(
      session => this.#up(session),
      () => this.#down(),
    )
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#timer?.cancel()
    this.#leave()
    this.#environment.own.unfollow(this.#place.endpoint, this.#lives)
    this.#released(this)
  }

  #up(session: BrokerLink): void {
    const { subject } = this.#place
    this.#session = session
    session.subscribe(`${subject}.events`, { message: payload => this.#received(payload) })
    session.subscribe(`${subject}.beats`, { message: payload => this.#received(payload) })
    session.publish(`${subject}.hello`, new Uint8Array(0))
    this.#watch()
  }

  #down(): void {
    this.#timer?.cancel()
    this.#session = undefined
    this.#lives.forget()
    this.#disconnected()
  }

  #watch(): void {
    this.#timer = this.#environment.clock.after(BEAT_MS, () => {
      if (this.#lives.looked(this.#environment.clock.nowMs())) this.#disconnected()
      this.#watch()
    })
  }

  #received(bytes: Uint8Array): void {
    if (this.#isClosed || this.#session === undefined) return
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version') {
      this.#warn(
        payload === undefined
          ? 'messages under this subject are no messages of a publisher'
          : 'messages under this subject are of another version of the publisher: use the same version of homing everywhere',
      )
      return
    }
    if (payload.kind === KIND.bye) {
      if (this.#lives.gone(payload.life)) this.#disconnected()
      return
    }
    const heard = this.#lives.heard(payload.life, payload.connection, this.#environment.clock.nowMs())
    if (heard === 'contested') {
      this.#disconnected()
      this.#warn('two publishers use this subject, so neither is followed: give each its own')
      return
    }
    if (this.#isFull) return
    if (heard === 'anew') this.#connectedAnew()
    if (payload.kind !== KIND.beat) this.#message(payload)
  }

  #message(payload: Payload): void {
    const body = this.#parts.add(payload)
    if (body === undefined) return
    const frames = decodeFrames(body)
    if (frames === undefined) {
      this.#warn('a message under this subject is cut')
      return
    }
    const [first] = frames
    if (Buffer.compare(first!.subarray(0, this.#topic.length), this.#topic) !== 0) return
    // One that cannot take a message hears of a lost connection, so that it asks for what it missed.
    if (!callFor(this.#place.endpoint, () => this.#handler.message(frames))) this.#connectedAnew()
    const opened = this.#environment.gate?.()
    if (opened !== undefined) this.#fillUp(opened)
  }

  /** The reader has too much to read: what comes until it has read on is lost, so it is told that. */
  #fillUp(opened: Promise<void>): void {
    this.#isFull = true
    void opened.then(() => {
      this.#isFull = false
      if (!this.#isClosed && this.#isConnected) this.#connectedAnew()
    })
  }

  #connectedAnew(): void {
    this.#disconnected()
    this.#isConnected = true
    this.#warned = undefined
    callOwner(() => this.#handler.connected())
  }

  #disconnected(): void {
    this.#parts.forget()
    if (!this.#isConnected) return
    this.#isConnected = false
    callOwner(() => this.#handler.disconnected())
  }

  /** Once for each reason, until it is connected again. */
  #warn(text: string): void {
    if (this.#warned === text) return
    this.#warned = text
    this.#environment.log.warn({ endpoint: this.#place.endpoint }, text)
  }
}

class BrokerPublisher implements Publisher {
  readonly #place: Place
  readonly #environment: Environment
  readonly #released: Released
  readonly #life: string
  readonly #leave: () => void
  #connection = 0
  #session: BrokerLink | undefined
  #timer: Timer | undefined
  #droppedCount = 0
  #isClosed = false
  #hasWarned = false

  constructor(text: string, environment: Environment, released: Released) {
    this.#place = new Place(text, environment)
    this.#environment = environment
    this.#released = released
    this.#life = environment.own.take(this.#place.endpoint, 'publish')
    this.#leave = this.#place.join(
      session => this.#up(session),
      () => {
        this.#timer?.cancel()
        this.#session = undefined
      },
    )
  }

  get endpoint(): string {
    return this.#place.endpoint
  }

  /**
   * Messages that were dropped here: no connection, or no room on the way to the broker. A broker does not
   * report what it drops.
   */
  get droppedCount(): number {
    return this.#droppedCount
  }

  send(frames: Frames): void {
    if (this.#isClosed || frames.length === 0) return
    const session = this.#session
    if (session === undefined) {
      this.#droppedCount++
      return
    }
    const subject = `${this.#place.subject}.events`
    for (const payload of encodeMessage(frames, this.#sender, session.payloadBytesMax)) {
      if (session.publish(subject, payload)) continue
      this.#droppedCount++
      // A new connection number tells followers of the loss, even if no message follows.
      this.#connection++
      return
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#timer?.cancel()
    this.#session?.publish(`${this.#place.subject}.beats`, encodeWord(KIND.bye, this.#sender))
    this.#leave()
    this.#environment.own.giveBack(this.#place.endpoint, 'publish')
    this.#released(this)
  }

  get #sender(): Sender {
    return { life: this.#life, connection: this.#connection }
  }

  #up(session: BrokerLink): void {
    const { subject } = this.#place
    this.#session = session
    this.#connection++
    session.subscribe(`${subject}.hello`, { message: () => this.#beat() })
    session.subscribe(`${subject}.beats`, { message: payload => this.#heard(payload) })
    this.#beatOn()
  }

  #beatOn(): void {
    this.#beat()
    this.#timer = this.#environment.clock.after(BEAT_MS, () => this.#beatOn())
  }

  #beat(): void {
    this.#session?.publish(`${this.#place.subject}.beats`, encodeWord(KIND.beat, this.#sender))
  }

  /** Another life under its own subject may be the last word of the one before, but not a beat. */
  #heard(bytes: Uint8Array): void {
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version') return
    if (payload.kind !== KIND.beat || payload.life === this.#life || this.#hasWarned) return
    this.#hasWarned = true
    this.#environment.log.warn(
      { endpoint: this.#place.endpoint },
      'another publisher uses this subject, so nobody can follow either: give each its own',
    )
  }
}

class BrokerRouter implements RouterSocket {
  readonly #place: Place
  readonly #environment: Environment
  readonly #onMessage: (identity: Uint8Array, frames: Frames) => void
  readonly #released: Released
  readonly #life: string
  readonly #leave: () => void
  #connection = 0
  #session: BrokerLink | undefined
  #isClosed = false

  constructor(
    text: string,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
    environment: Environment,
    released: Released,
  ) {
    this.#place = new Place(text, environment)
    this.#environment = environment
    this.#onMessage = onMessage
    this.#released = released
    this.#life = environment.own.take(this.#place.endpoint, 'serve')
    this.#leave = this.#place.join(
      session => {
        this.#session = session
        this.#connection++
        session.subscribe(`${this.#place.subject}.ask`, {
          message: (payload, reply) => this.#asked(payload, reply),
        })
      },
      () => {
        this.#session = undefined
      },
    )
  }

  get endpoint(): string {
    return this.#place.endpoint
  }

  send(identity: Uint8Array, frames: Frames): boolean {
    const session = this.#session
    if (this.#isClosed || session === undefined || frames.length === 0) return false
    const sender = { life: this.#life, connection: this.#connection }
    const inbox = Buffer.from(identity).toString()
    for (const payload of encodeMessage(frames, sender, session.payloadBytesMax)) {
      if (session.publish(inbox, payload)) continue
      // Parts that have arrived must not become the beginning of the next answer.
      this.#connection++
      return false
    }
    return true
  }

  /** A broker does not tell which receiver reads: what is under way to all has one bound. */
  offer(identity: Uint8Array, frames: Frames): Offered {
    if (this.#isClosed || frames.length === 0) return 'gone'
    return this.send(identity, frames) ? 'taken' : 'full'
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#leave()
    this.#environment.own.giveBack(this.#place.endpoint, 'serve')
    this.#released(this)
  }

  #asked(bytes: Uint8Array, reply: string): void {
    if (this.#isClosed || reply === '') return
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version' || payload.kind !== KIND.message) return
    if (payload.life !== NO_LIFE && payload.life !== this.#life) return
    const frames = decodeFrames(payload.body)
    if (frames === undefined) return
    const opened = this.#environment.gate?.()
    // A question that is not heard is asked again.
    if (opened === undefined) callFor(this.#place.endpoint, this.#onMessage, Buffer.from(reply), frames)
  }
}

class BrokerDealer implements Dealer {
  readonly #place: Place
  readonly #environment: Environment
  readonly #onMessage: (frames: Frames) => void
  readonly #taken: () => void
  readonly #released: Released
  readonly #inbox: string
  readonly #parts = new Parts()
  readonly #leave: () => void
  /** Not sent, or not heard. */
  readonly #queue: Frames[] = []
  /** Sent, not yet answered, oldest first: a broker reports in order which of them had no receiver. */
  readonly #unanswered: Frames[] = []
  #session: BrokerLink | undefined
  /** Whose answers are taken: one life's only. */
  #answering: string | undefined
  #timer: Timer | undefined
  #retryMs = RETRY_MS_MIN
  #isClosed = false

  constructor(
    text: string,
    onMessage: (frames: Frames) => void,
    taken: () => void,
    environment: Environment,
    released: Released,
  ) {
    this.#place = new Place(text, environment)
    this.#environment = environment
    this.#onMessage = onMessage
    this.#taken = taken
    this.#released = released
    this.#inbox = this.#place.broker.newInbox()
    this.#leave = this.#place.join(
      session => {
        this.#session = session
        session.subscribe(this.#inbox, {
          message: payload => this.#answered(payload),
          unheard: () => this.#unheard(),
        })
        this.#sendAll()
      },
      () => {
        this.#session = undefined
        this.#parts.forget()
        this.#timer?.cancel()
        this.#timer = undefined
      },
    )
  }

  send(frames: Frames): boolean {
    if (this.#isClosed || frames.length === 0 || this.#queue.length >= DEALER_QUEUE_MAX) return false
    this.#queue.push(frames)
    if (this.#timer === undefined) this.#sendAll()
    return true
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#timer?.cancel()
    this.#leave()
    this.#released(this)
  }

  #sendAll(): void {
    const session = this.#session
    while (session !== undefined && this.#queue.length > 0) {
      const frames = this.#queue.shift()!
      const life = this.#environment.own.followedAt(this.#place.endpoint) ?? NO_LIFE
      const [payload, ...more] = encodeMessage(frames, { life, connection: 0 }, session.payloadBytesMax)
      if (more.length === 0 && session.publish(`${this.#place.subject}.ask`, payload!, this.#inbox)) {
        this.#unanswered.push(frames)
        if (this.#unanswered.length > DEALER_QUEUE_MAX) this.#unanswered.shift()
      }
      callOwner(this.#taken)
    }
  }

  #unheard(): void {
    const frames = this.#unanswered.shift()
    if (frames === undefined || this.#isClosed) return
    if (this.#queue.length < DEALER_QUEUE_MAX) this.#queue.push(frames)
    this.#timer ??= this.#environment.clock.after(this.#retryMs, () => {
      this.#timer = undefined
      this.#sendAll()
    })
    this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MS_MAX)
  }

  #answered(bytes: Uint8Array): void {
    if (this.#isClosed) return
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version') return
    this.#answering ??= payload.life
    if (payload.life !== this.#answering) return
    this.#unanswered.length = 0
    this.#retryMs = RETRY_MS_MIN
    const body = this.#parts.add(payload)
    const frames = body && decodeFrames(body)
    if (frames !== undefined) callFor(this.#place.endpoint, this.#onMessage, frames)
  }
}
