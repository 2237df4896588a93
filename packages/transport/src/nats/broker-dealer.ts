/**
 * Broker dealer: asks the process that answers under a subject, and takes the answers of one life only. A
 * question that had no receiver is asked again.
 */

import type { Timer } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import type { Dealer, Frames } from '../message-types.ts'
import type { BrokerLink } from './broker.ts'
import { decodeFrames, decodePayload, encodeMessage, NO_LIFE, Parts } from './payload.ts'
import { type Environment, Place, type Released } from './place.ts'
import type { BrokerStreams } from './streams.ts'

/** Questions that wait in a dealer for a connection, or for a listener at their subject. */
const DEALER_QUEUE_MAX = 1000
const RETRY_MS_MIN = 100
const RETRY_MS_MAX = 5000

export class BrokerDealer implements Dealer {
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

  /** Of the connection; undefined: there is none, or its broker keeps no streams. */
  get streams(): BrokerStreams | undefined {
    return this.#session?.streams
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
