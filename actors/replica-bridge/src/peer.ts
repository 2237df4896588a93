/** Peer: another replica: what is heard of it, what is asked, and when it counts as gone. */

import type { Clock } from '@homing/clock'
import {
  decodeBatch,
  decodeSnapshotPart,
  decodeWaiting,
  encodeQuestion,
  Mirror,
  type OpenBooking,
  type ReplicaOperation,
  SnapshotParts,
  type WaitingRow,
} from '@homing/replication'
import type { Closable, Dealer, Frames, MessageTransport } from '@homing/transport'
import type { ReplicaView } from './messages.ts'

const ASK_MS_MIN = 500
const ASK_MS_MAX = 5000

export interface PeerArgs {
  /** Where it tells of its bookings. */
  readonly endpoint: string
  /** Where it answers questions. */
  readonly questionEndpoint: string
  readonly messages: MessageTransport
  readonly clock: Clock
  /** How long its bookings count after it was heard last. */
  readonly expiryMs: number
  readonly heard: (frames: Frames) => void
  readonly moved: (isUp: boolean) => void
  readonly answered: (attempt: number, frames: Frames) => void
  readonly apply: (operations: readonly ReplicaOperation[]) => void
  readonly reset: (bookings: readonly OpenBooking[]) => void
}

export class Peer {
  readonly #args: PeerArgs
  readonly #mirror: Mirror
  readonly #subscriber: Closable
  #dealer: Dealer | undefined
  #parts = new SnapshotParts()
  #attempt = 0
  #askedMs = 0
  #askMs = ASK_MS_MIN
  #heardMs: number | undefined
  #isUp = false
  #malformed = 0
  #waiting: readonly WaitingRow[] = []

  constructor(args: PeerArgs) {
    this.#args = args
    const { endpoint, messages, heard, moved, apply, reset } = args
    this.#mirror = new Mirror({ ask: () => this.#ask(), apply, reset })
    this.#subscriber = messages.subscribe(
      { endpoint, topic: '' },
      { message: heard, connected: () => moved(true), disconnected: () => moved(false) },
    )
  }

  get malformed(): number {
    return this.#malformed
  }

  /** In its queue, as it said last; nothing while it cannot be heard. */
  get waiting(): readonly WaitingRow[] {
    return this.#waiting
  }

  view(): ReplicaView {
    const { state, openBookings, counters } = this.#mirror
    const { endpoint, clock } = this.#args
    const silentMs = this.#heardMs === undefined ? undefined : clock.nowMs() - this.#heardMs
    const waitingRequests = this.#waiting.reduce((sum, { requests }) => sum + requests, 0)
    return { endpoint, state, openBookings, waitingRequests, silentMs, ...counters }
  }

  /** What is open there, as far as it is known, told again. */
  tellAgain(): void {
    if (this.#mirror.state !== 'unknown') this.#args.reset([...this.#mirror.bookings])
  }

  moved(isUp: boolean): void {
    this.#isUp = isUp
    if (isUp) {
      this.#heardMs = this.#args.clock.nowMs()
      this.#askMs = ASK_MS_MIN
      this.#mirror.connected()
    }
  }

  heard(frames: Frames): void {
    const message = frames.length === 2 ? frames[1]! : EMPTY
    const batch = decodeBatch(message)
    const waiting = batch === undefined ? decodeWaiting(message) : undefined
    if (batch === undefined && waiting === undefined) {
      this.#malformed++
      return
    }
    this.#heardMs = this.#args.clock.nowMs()
    if (batch !== undefined) this.#mirror.heard(batch)
    // Who was given up, and is heard again, is asked first.
    else if (this.#mirror.state !== 'unknown') this.#waiting = waiting!
  }

  answered(attempt: number, frames: Frames): void {
    if (attempt !== this.#attempt || this.#mirror.state !== 'asking') return
    const part = frames.length === 2 ? decodeSnapshotPart(frames[1]!) : undefined
    if (part === undefined) {
      this.#malformed++
      return
    }
    const snapshot = this.#parts.add(part)
    if (snapshot === undefined) return
    this.#hangUp()
    this.#askMs = ASK_MS_MIN
    this.#mirror.snapshot(snapshot)
  }

  /** A second is over. True: its bookings do not count any more, and it was heard before. */
  tick(): boolean {
    const nowMs = this.#args.clock.nowMs()
    if (this.#mirror.state === 'unknown') return false
    if (!this.#isUp && nowMs - (this.#heardMs ?? 0) >= this.#args.expiryMs) {
      this.gone()
      return true
    }
    if (this.#mirror.state === 'asking' && this.#isUp && nowMs - this.#askedMs >= this.#askMs) {
      this.#askMs = Math.min(2 * this.#askMs, ASK_MS_MAX)
      this.#ask()
    }
    return false
  }

  /** It is known to be gone. */
  gone(): void {
    this.#hangUp()
    this.#waiting = []
    this.#mirror.gone()
  }

  close(): void {
    this.#subscriber.close()
    this.gone()
  }

  #ask(): void {
    this.#hangUp()
    const attempt = ++this.#attempt
    const { messages, questionEndpoint, clock, answered } = this.#args
    this.#askedMs = clock.nowMs()
    this.#parts = new SnapshotParts()
    const dealer = messages.dial({ endpoint: questionEndpoint }, frames => answered(attempt, frames))
    this.#dealer = dealer
    dealer.send([EMPTY, encodeQuestion()])
  }

  #hangUp(): void {
    this.#dealer?.close()
    this.#dealer = undefined
  }
}

const EMPTY = new Uint8Array(0)
