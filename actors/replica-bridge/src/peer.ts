/**
 * Peer: another replica: what it said, what it is asked, and when it counts as gone.
 *
 *   silent for expiryMs, whether its connection stands or not ─▶ gone, until it is heard again
 *   it said good-bye                                          ─▶ gone, until it is heard again
 *   heard, but without an answer for expiryMs                 ─▶ its bookings do not count; it is still asked
 */

import type { Clock } from '@homing/base'
import {
  type DigestBatch,
  decodeBatch,
  decodeDigests,
  decodeMoved,
  decodeOpenDigests,
  decodeSnapshotPart,
  decodeWaiting,
  encodeQuestion,
  isBye,
  Mirror,
  type MovedBinding,
  type OpenBooking,
  type ReplicaOperation,
  SnapshotParts,
  type WaitingRow,
  withDigests,
} from '@homing/replication'
import type { Closable, Dealer, Frames, MessageTransport } from '@homing/transport'
import type { ReplicaView } from './messages.ts'

const ASK_MS_MIN = 500
const REPLICA_ASK_MS_MAX = 5000

export interface PeerArgs {
  /** Where it publishes its bookings. */
  readonly endpoint: string
  /** Where it answers questions. */
  readonly questionEndpoint: string
  readonly messages: MessageTransport
  readonly clock: Clock
  /** How long its bookings count after its last message. */
  readonly expiryMs: number
  readonly heard: (frames: Frames) => void
  readonly moved: (isUp: boolean) => void
  readonly answered: (attempt: number, frames: Frames) => void
  readonly apply: (operations: readonly ReplicaOperation[], isLate: boolean) => void
  readonly reset: (bookings: readonly OpenBooking[]) => void
  readonly moveSessions: (moved: readonly MovedBinding[]) => void
}

/** Why bookings of a replica do not count any more. */
export type Expiry = 'silent' | 'no answer'

export class Peer {
  readonly #args: PeerArgs
  readonly #mirror: Mirror
  readonly #subscriber: Closable
  #dealer: Dealer | undefined
  #parts = new SnapshotParts()
  #attempt = 0
  #askedMs = 0
  #askMs = ASK_MS_MIN
  /**
   * Since when the known bookings may be out of date; undefined: they are up to date; Infinity: they were
   * given up.
   */
  #unsureMs: number | undefined
  #heardMs: number | undefined
  #malformed = 0
  #waiting: readonly WaitingRow[] = []
  /** What was said last of the batch that follows. */
  #digests: DigestBatch | undefined

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

  /** The rows of its queue, as it said last; empty while it cannot be heard. */
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

  get isKnown(): boolean {
    return this.#mirror.state !== 'unknown'
  }

  /** Repeats to the tracker the bookings that are open there, as far as they are known. */
  tellAgain(): void {
    if (this.#mirror.hasWord) this.#args.reset([...this.#mirror.bookings])
  }

  moved(isUp: boolean): void {
    if (!isUp) return
    this.#heardMs = this.#args.clock.nowMs()
    this.#connect()
  }

  heard(frames: Frames): void {
    const message = frames.length === 2 ? frames[1]! : EMPTY
    if (isBye(message)) {
      this.gone()
      return
    }
    const digests = decodeDigests(message)
    if (digests !== undefined) {
      this.#digests = digests
      return
    }
    const moved = decodeMoved(message)
    if (moved !== undefined) {
      this.#args.moveSessions(moved)
      return
    }
    const batch = decodeBatch(message)
    const waiting = batch === undefined ? decodeWaiting(message) : undefined
    if (batch === undefined && waiting === undefined) {
      this.#malformed++
      return
    }
    this.#heardMs = this.#args.clock.nowMs()
    // A replica that was given up and is heard again is asked first.
    if (!this.isKnown) this.#connect()
    if (batch === undefined) this.#waiting = waiting!
    else {
      this.#mirror.heard(withDigests(batch, this.#digests))
      this.#digests = undefined
    }
  }

  answered(attempt: number, frames: Frames): void {
    if (attempt !== this.#attempt || this.#mirror.state !== 'asking') return
    const digests = frames.length === 2 ? decodeOpenDigests(frames[1]!) : undefined
    if (digests !== undefined) {
      this.#parts.addDigests(digests)
      return
    }
    const part = frames.length === 2 ? decodeSnapshotPart(frames[1]!) : undefined
    if (part === undefined) {
      this.#malformed++
      return
    }
    const snapshot = this.#parts.add(part)
    if (snapshot === undefined) return
    this.#hangUp()
    this.#askMs = ASK_MS_MIN
    this.#unsureMs = undefined
    this.#mirror.snapshot(snapshot)
  }

  /** Called every second. Returns why its bookings no longer count, if they counted until now. */
  tick(): Expiry | undefined {
    const nowMs = this.#args.clock.nowMs()
    const { expiryMs } = this.#args
    if (!this.isKnown) return undefined
    if (nowMs - (this.#heardMs ?? 0) >= expiryMs) {
      this.gone()
      return 'silent'
    }
    if (this.#mirror.state !== 'asking') return undefined
    if (nowMs - this.#askedMs >= this.#askMs) {
      this.#askMs = Math.min(2 * this.#askMs, REPLICA_ASK_MS_MAX)
      this.#ask()
    }
    if (nowMs - this.#unsureMs! < expiryMs) return undefined
    this.#unsureMs = Number.POSITIVE_INFINITY
    this.#mirror.expire()
    return 'no answer'
  }

  /** It is known to be gone. */
  gone(): void {
    this.#hangUp()
    this.#waiting = []
    this.#unsureMs = undefined
    this.#mirror.gone()
  }

  /** Stops listening to it. Its open bookings count until it is reported gone. */
  close(): void {
    this.#subscriber.close()
    this.#hangUp()
  }

  #connect(): void {
    this.#askMs = ASK_MS_MIN
    this.#mirror.connected()
  }

  #ask(): void {
    this.#hangUp()
    const attempt = ++this.#attempt
    const { messages, questionEndpoint, clock, answered } = this.#args
    this.#askedMs = clock.nowMs()
    this.#unsureMs ??= this.#askedMs
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
