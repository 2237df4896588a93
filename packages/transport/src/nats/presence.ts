/**
 * Presence: which peers are there under a subject. Every peer announces itself.
 *
 *   SUBJECT.present   the card of a peer: every BEAT_MS, at each connection, and when asked; and its last
 *                     word
 *   SUBJECT.hello     a peer asks which peers are there
 *
 * A peer that is not heard for SILENCE_MS is gone. All peers are gone when the connection to the broker ends.
 * Bounds: beyond PRESENT_MAX peers, later ones are not reported.
 */

import type { Clock, Timer } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import type { Closable } from '../closable.ts'
import type { AbsenceReason, OwnPresence, PresenceHandler } from '../presence-types.ts'
import type { BrokerLink } from './broker.ts'
import { BEAT_MS, SILENCE_MS } from './lives.ts'
import { decodeFrames, decodePayload, encodeMessage, encodeWord, KIND, type Sender } from './payload.ts'

/** Peers that are reported under one subject. */
export const PRESENT_MAX = 16_384
/** Of the card of a peer; a larger one is passed over. */
export const CARD_BYTES_MAX = 16_384

interface Other {
  readonly card: Uint8Array
  heardMs: number
}

export interface PresenceArgs {
  readonly subject: string
  readonly card: Uint8Array | undefined
  readonly life: string
  readonly clock: Clock
  readonly handler: PresenceHandler
  readonly join: (up: (link: BrokerLink) => void, down: () => void) => () => void
  readonly released: (role: Closable) => void
}

export class Presence implements OwnPresence {
  readonly #args: PresenceArgs
  readonly #others = new Map<string, Other>()
  readonly #leave: () => void
  #link: BrokerLink | undefined
  #connection = 0
  #timer: Timer | undefined
  #isClosed = false

  constructor(args: PresenceArgs) {
    this.#args = args
    this.#leave = args.join(
      link => this.#up(link),
      () => this.#down(),
    )
  }

  close(): void {
    if (this.#isClosed) return
    if (this.#args.card !== undefined) this.#say(encodeWord(KIND.bye, this.#sender))
    this.leave()
  }

  leave(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#timer?.cancel()
    this.#leave()
    this.#args.released(this)
  }

  get #sender(): Sender {
    return { life: this.#args.life, connection: this.#connection }
  }

  #up(link: BrokerLink): void {
    const { subject } = this.#args
    this.#link = link
    this.#connection++
    link.subscribe(`${subject}.present`, { message: payload => this.#heard(payload) })
    link.subscribe(`${subject}.hello`, { message: () => this.#beat() })
    link.publish(`${subject}.hello`, new Uint8Array(0))
    callOwner(() => this.#args.handler.connected?.())
    this.#goOn()
  }

  #down(): void {
    this.#timer?.cancel()
    this.#link = undefined
    for (const life of [...this.#others.keys()]) this.#gone(life, 'no broker')
  }

  #goOn(): void {
    this.#timer?.cancel()
    if (this.#isClosed) return
    const { clock } = this.#args
    this.#beat()
    const nowMs = clock.nowMs()
    for (const [life, { heardMs }] of [...this.#others])
      if (nowMs - heardMs >= SILENCE_MS) this.#gone(life, 'silence')
    this.#timer = clock.after(BEAT_MS, () => this.#goOn())
  }

  #beat(): void {
    const { card } = this.#args
    if (card === undefined || this.#link === undefined) return
    for (const payload of encodeMessage([card], this.#sender, this.#link.payloadBytesMax)) this.#say(payload)
  }

  #say(payload: Uint8Array): void {
    this.#link?.publish(`${this.#args.subject}.present`, payload)
  }

  #heard(bytes: Uint8Array): void {
    if (this.#isClosed) return
    const payload = decodePayload(bytes)
    if (payload === undefined || payload === 'other-version' || payload.life === this.#args.life) return
    const { life, kind, body } = payload
    if (kind === KIND.bye) {
      this.#gone(life, 'bye')
      return
    }
    const card = kind === KIND.message ? decodeFrames(body)?.[0] : undefined
    if (card === undefined || card.length > CARD_BYTES_MAX) return
    const heardMs = this.#args.clock.nowMs()
    const before = this.#others.get(life)
    if (before === undefined && this.#others.size >= PRESENT_MAX) return
    if (before !== undefined && Buffer.compare(before.card, card) === 0) {
      before.heardMs = heardMs
      return
    }
    this.#others.set(life, { card, heardMs })
    callFor(`${this.#args.subject}, life ${life}`, () => this.#args.handler.present({ life, card }))
  }

  #gone(life: string, reason: AbsenceReason): void {
    if (this.#others.delete(life) && !this.#isClosed)
      callFor(this.#args.subject, () => this.#args.handler.gone(life, reason))
  }
}
