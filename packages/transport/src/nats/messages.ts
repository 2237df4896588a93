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

import type { Timer } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import type { Closable } from '../closable.ts'
import { formatEndpoint, parseBrokerEndpoint } from '../endpoint.ts'
import type {
  BindOptions,
  Dealer,
  DialOptions,
  Frames,
  MessageTransport,
  Offered,
  Publisher,
  RouterSocket,
  StreamOptions,
  SubscribeOptions,
  SubscriberHandler,
  Subscription,
} from '../message-types.ts'
import type { BrokerLink } from './broker.ts'
import { BrokerDealer } from './broker-dealer.ts'
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
  storedIn,
} from './payload.ts'
import { type BrokerEnvironment, type Environment, Place, type Released } from './place.ts'
import { Presence } from './presence.ts'
import { StreamConsumer } from './stream-consumer.ts'
import { StreamCopy } from './stream-copy.ts'
import { StreamReplay } from './stream-replay.ts'
import { STREAM_HEADER_BYTES } from './streams.ts'

/** What a host needs beside the roles; see ZmqMessages. */
export interface BrokerMessages extends MessageTransport, Closable {
  dial(options: DialOptions, onMessage: (frames: Frames) => void, taken?: () => void): Dealer
}

/** What a broker takes at least, until it says more. */
const PAYLOAD_BYTES = 2 ** 16

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
    subscribe: (options, handler) => owned(new BrokerSubscriber(options, handler, environment, released)),
    publish: async options => owned(new BrokerPublisher(options, environment, released)),
    dial: ({ endpoint, stream }, onMessage, taken = () => {}) => {
      const dial = (receive: (frames: Frames) => void): BrokerDealer =>
        owned(new BrokerDealer(endpoint, receive, taken, environment, released))
      return stream === undefined ? dial(onMessage) : replayOf(endpoint, stream, onMessage, dial, environment)
    },
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

/** A dealer whose publisher may have forgotten what the stream still has. */
function replayOf(
  endpoint: string,
  stream: StreamOptions,
  onMessage: (frames: Frames) => void,
  dial: (onMessage: (frames: Frames) => void) => BrokerDealer,
  { clock, log, gate, openBroker, own }: Environment,
): Dealer {
  const place = parseBrokerEndpoint(endpoint)
  const at = formatEndpoint(place)
  let publisher: BrokerDealer | undefined
  return new StreamReplay({
    stream,
    subject: place.subject,
    clock,
    counts: openBroker(place.servers).counts,
    log,
    gate,
    onMessage: frames => callFor(at, onMessage, frames),
    streams: () => publisher?.streams,
    followed: () => own.followedAt(at),
    isWhole: () => own.storedAt(at) === stream.namespace,
    holeEnd: () => own.livesAt(at)?.holeEnd ?? 0,
    noteHole: end => {
      const lives = own.livesAt(at)
      if (lives !== undefined) lives.holeEnd = end
    },
    dial: receive => {
      publisher = dial(receive)
      return publisher
    },
  })
}

class BrokerSubscriber implements Subscription {
  readonly #place: Place
  readonly #topic: Uint8Array
  readonly #handler: SubscriberHandler
  readonly #environment: Environment
  readonly #released: Released
  readonly #lives = new Lives()
  readonly #parts = new Parts()
  readonly #leave: () => void
  #timer: Timer | undefined
  readonly #consumer: StreamConsumer | undefined
  readonly #namespace: string | undefined
  #session: BrokerLink | undefined
  /** Ends the subscription to what the publisher itself sends; undefined: the consumer is followed. */
  #leaveEvents: (() => void) | undefined
  #isConnected = false
  /** Received messages are dropped until the reader has caught up. */
  #isFull = false
  #isClosed = false
  #warned: string | undefined

  constructor(
    { endpoint: text, topic, stream }: SubscribeOptions,
    handler: SubscriberHandler,
    environment: Environment,
    released: Released,
  ) {
    this.#place = new Place(text, environment)
    this.#topic = Buffer.from(topic)
    this.#handler = handler
    this.#environment = environment
    this.#released = released
    this.#namespace = stream?.namespace
    this.#consumer = stream && this.#consumerOf(stream)
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
    this.#consumer?.close()
    this.#leave()
    this.#environment.own.unfollow(this.#place.endpoint, this.#lives)
    this.#released(this)
  }

  done(number: number): void {
    this.#consumer?.done(number)
  }

  #consumerOf(stream: StreamOptions): StreamConsumer {
    const { clock, gate, log, own } = this.#environment
    const { broker, endpoint, subject } = this.#place
    return new StreamConsumer({
      stream,
      subject,
      clock,
      counts: broker.counts,
      newName: () => own.newLife(),
      gate,
      opened: () => {
        this.#leaveEvents?.()
        this.#leaveEvents = undefined
        if (this.#lives.followed !== undefined) this.#connectedAnew()
      },
      ended: reason => {
        log.warn({ endpoint, reason }, 'the stream cannot be followed: the publisher itself is')
        this.#followPublisher()
      },
      message: (payload, number) => this.#received(payload, number),
    })
  }

  /** Of the two ways that events can come, the one that has all. */
  #chooseWay(): void {
    const streams = this.#session?.streams
    const isStored = this.#namespace !== undefined && this.#lives.storedIn === this.#namespace
    if (isStored && streams !== undefined) this.#consumer!.want(streams)
    else if (this.#consumer !== undefined) {
      const wasOpen = this.#consumer.isOpen
      this.#consumer.close()
      if (wasOpen) this.#followPublisher()
    }
  }

  #followPublisher(): void {
    if (this.#session === undefined || this.#leaveEvents !== undefined) return
    this.#subscribeEvents(this.#session)
    if (this.#lives.followed !== undefined) this.#connectedAnew()
  }

  #subscribeEvents(session: BrokerLink): void {
    this.#leaveEvents = session.subscribe(`${this.#place.subject}.events`, {
      message: payload => this.#received(payload),
    })
  }

  #up(session: BrokerLink): void {
    const { subject } = this.#place
    this.#session = session
    this.#subscribeEvents(session)
    session.subscribe(`${subject}.beats`, { message: payload => this.#received(payload) })
    session.publish(`${subject}.hello`, new Uint8Array(0))
    this.#watch()
  }

  #down(): void {
    this.#timer?.cancel()
    this.#session = undefined
    this.#leaveEvents = undefined
    this.#consumer?.close()
    this.#lives.forget()
    this.#disconnected()
  }

  #watch(): void {
    this.#timer = this.#environment.clock.after(BEAT_MS, () => {
      if (this.#lives.looked(this.#environment.clock.nowMs())) this.#disconnected()
      this.#watch()
    })
  }

  /** `number`: of one from the consumer, taken if it is passed on. */
  #received(bytes: Uint8Array, number?: () => number): void {
    if (this.#isClosed || this.#session === undefined) return
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version') {
      if (number !== undefined) this.#place.broker.counts.streamForeignMessages++
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
    if (payload.kind === KIND.beat) this.#lives.storedIn = storedIn(payload.body)
    if (this.#isFull && number === undefined) return
    if (heard === 'anew') this.#connectedAnew()
    if (payload.kind === KIND.beat) this.#chooseWay()
    else this.#message(payload, number)
  }

  #message(payload: Payload, number: (() => number) | undefined): void {
    const body = this.#parts.add(payload)
    // Without frames it is a tear: only what was before it counts no more.
    if (body === undefined || body.length === 0) return
    const frames = decodeFrames(body)
    if (frames === undefined) {
      this.#warn('a message under this subject is cut')
      return
    }
    const [first] = frames
    if (Buffer.compare(first!.subarray(0, this.#topic.length), this.#topic) !== 0) return
    // One that cannot take a message hears of a lost connection, so that it asks for what it missed.
    const name = number?.() ?? 0
    if (!callFor(this.#place.endpoint, () => this.#handler.message(frames, name))) this.#connectedAnew()
    // The consumer holds its messages back by itself.
    if (number !== undefined) return
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
    const path = this.#leaveEvents === undefined ? 'stream' : 'publisher'
    const life = this.#lives.followed
    callOwner(() => this.#handler.connected(path, life))
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
  readonly #copy: StreamCopy | undefined
  readonly #namespace: string | undefined
  #payloadBytesMax = PAYLOAD_BYTES
  #connection = 0
  #session: BrokerLink | undefined
  #timer: Timer | undefined
  #droppedCount = 0
  #isClosed = false
  #hasWarned = false

  constructor({ endpoint: text, stream }: BindOptions, environment: Environment, released: Released) {
    this.#place = new Place(text, environment)
    this.#environment = environment
    this.#released = released
    this.#life = environment.own.take(this.#place.endpoint, 'publish')
    this.#namespace = stream?.namespace
    this.#copy = stream && this.#copyTo(stream)
    this.#leave = this.#place.join(
      session => this.#up(session),
      () => {
        this.#timer?.cancel()
        this.#session = undefined
        this.#copy?.down()
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
    if (session === undefined) this.#droppedCount++
    if (session === undefined && this.#copy === undefined) return
    const payloads = encodeMessage(frames, this.#sender, this.#payloadBytesMax)
    // Without a connection, the stream gets it when there is one again.
    this.#copy?.add(payloads)
    if (session === undefined) return
    const subject = `${this.#place.subject}.events`
    for (const payload of payloads) {
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
    this.#copy?.close()
    this.#session?.publish(`${this.#place.subject}.beats`, encodeWord(KIND.bye, this.#sender))
    this.#leave()
    this.#environment.own.giveBack(this.#place.endpoint, 'publish')
    this.#released(this)
  }

  get #sender(): Sender {
    return { life: this.#life, connection: this.#connection }
  }

  #copyTo(stream: StreamOptions): StreamCopy {
    const { clock, log } = this.#environment
    const { broker, endpoint, subject } = this.#place
    return new StreamCopy({
      stream,
      subject,
      endpoint,
      life: this.#life,
      clock,
      counts: broker.counts,
      log,
      changed: () => this.#beat(),
    })
  }

  #up(session: BrokerLink): void {
    const { subject } = this.#place
    this.#session = session
    this.#connection++
    this.#payloadBytesMax = Math.max(1, session.payloadBytesMax - STREAM_HEADER_BYTES)
    this.#copy?.up(session.streams, this.#payloadBytesMax)
    session.subscribe(`${subject}.hello`, { message: () => this.#beat() })
    session.subscribe(`${subject}.beats`, { message: payload => this.#heard(payload) })
    this.#beatOn()
  }

  #beatOn(): void {
    this.#beat()
    this.#timer = this.#environment.clock.after(BEAT_MS, () => this.#beatOn())
  }

  #beat(): void {
    const stored = this.#copy?.isWhole === true ? this.#namespace : undefined
    const beat = encodeWord(KIND.beat, this.#sender, stored)
    this.#session?.publish(`${this.#place.subject}.beats`, beat)
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
