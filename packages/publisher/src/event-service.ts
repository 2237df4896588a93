/**
 * Event service: the sockets of one publisher. A PUB socket for batches and, if wanted, a ROUTER socket that
 * repeats them and answers snapshots.
 *
 *   publish                       ->  PUB     [topic] [sequence] [payload]
 *   ROUTER  [] [start]            ->  the batches kept from there on, then the end marker
 *   ROUTER  [] [snapshot] [1]     ->  the parts of a snapshot, or a refusal (snapshot-frames.ts of
 *                                     @homing/protocol)
 *   ROUTER  anything else         ->  nothing, as engines do
 *
 * Loss     a subscriber that reads too slowly loses batches past `queuedMessagesMax` and asks for them. An
 *          answer is never longer than that, so it loses none; see paced-replies.ts, also for `peerBytesMax`.
 */

import type { Clock } from '@homing/base'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  encodeSnapshotReply,
  isSnapshotRequest,
  parseReplayRequest,
  type ReplayForm,
  type SnapshotHeader,
} from '@homing/protocol'
import type { Frames, MessageTransport, Publisher, RouterSocket } from '@homing/transport'
import type { BufferedBatch } from './batch-ring.ts'
import { PacedReplies } from './paced-replies.ts'

/** A snapshot as it is sent: all parts are of the moment when it was taken. */
export interface Snapshot extends Pick<SnapshotHeader, 'nextSequence' | 'isWhole' | 'mayBeStale' | 'parts'> {
  /** The payload of a part, 0 … parts − 1; asked for when it is sent. */
  part(index: number): Uint8Array
  /** No part is asked for any more. Idempotent. */
  release(): void
}

export interface EventServiceOptions {
  readonly clock: Clock
  readonly messages: MessageTransport
  /** 'tcp://*:5557' and the like; port 0 is a free one. */
  readonly eventsEndpoint: string
  /** Undefined: nothing is repeated. */
  readonly replayEndpoint: string | undefined
  readonly topic: string
  readonly replayForm: ReplayForm
  /** 16 hexadecimal digits, other ones in each life. */
  readonly publisherId: string
  /** Messages held per peer that reads too slowly, on either socket. */
  readonly queuedMessagesMax: number
  /** Peers answered at one time; further ones are refused, or get no answer. */
  readonly repliesMax: number
  /**
   * Bytes of answers over one connection; then its requests are refused, or get no answer. Default
   * PEER_BYTES_MAX.
   */
  readonly peerBytesMax?: number
  /** What a replay from `start` on repeats; undefined: the request gets no answer. */
  readonly batchesFrom: (start: number) => readonly BufferedBatch[] | undefined
  /** Undefined: requests for snapshots get no answer, as from an engine. */
  readonly snapshot: (() => Snapshot) | undefined
}

/** Counters since the sockets were bound. */
export interface EventServiceStats {
  readonly publishedBatches: number
  readonly replays: number
  readonly snapshots: number
  /** Requests that came while `repliesMax` peers were being answered. */
  readonly refusedReplies: number
  /** Requests of peers that had been sent `peerBytesMax` already. */
  readonly excessReplies: number
}

export const PEER_BYTES_MAX = 2 ** 30
const NO_BYTES = new Uint8Array(0)

export class EventService {
  readonly #options: EventServiceOptions
  readonly #replies: PacedReplies
  #publisher: Publisher | undefined
  #router: RouterSocket | undefined
  #publishedBatches = 0
  #replays = 0
  #snapshots = 0
  #refusedReplies = 0
  #excessReplies = 0

  private constructor(options: EventServiceOptions) {
    this.#options = options
    this.#replies = new PacedReplies({
      clock: options.clock,
      peersMax: options.repliesMax,
      peerBytesMax: options.peerBytesMax ?? PEER_BYTES_MAX,
      send: (identity, frames) => this.#router?.send(identity, frames) ?? false,
    })
  }

  /** Binds the sockets. Rejects as the transport does, and then has none. */
  static async open(options: EventServiceOptions): Promise<EventService> {
    const self = new EventService(options)
    const { messages, eventsEndpoint, replayEndpoint, queuedMessagesMax } = options
    try {
      self.#publisher = await messages.publish({ endpoint: eventsEndpoint, queuedMessagesMax })
      if (replayEndpoint !== undefined) {
        self.#router = await messages.serve(
          { endpoint: replayEndpoint, queuedMessagesMax },
          (identity, frames) => self.#answer(identity, frames),
        )
      }
    } catch (error) {
      self.close()
      throw error
    }
    return self
  }

  /** With the real port: 'tcp://127.0.0.1:5557'; '' once it is closed. */
  get endpoint(): string {
    return this.#publisher?.endpoint ?? ''
  }

  /** Undefined: nothing is repeated. */
  get replayEndpoint(): string | undefined {
    return this.#router?.endpoint
  }

  get stats(): EventServiceStats {
    return {
      publishedBatches: this.#publishedBatches,
      replays: this.#replays,
      snapshots: this.#snapshots,
      refusedReplies: this.#refusedReplies,
      excessReplies: this.#excessReplies,
    }
  }

  /** Sends one batch. The caller, which numbers batches, has kept it for replays already. */
  publish(sequence: number, payload: Uint8Array): void {
    if (this.#publisher === undefined) return
    this.#publishedBatches++
    this.#publisher.send(encodeEventFrames(this.#options.topic, sequence, payload))
  }

  /** Resolves when the answers under way have been sent, or after `graceMs`. */
  async drained(graceMs: number): Promise<void> {
    if (graceMs <= 0) return
    await new Promise<void>(resolve => {
      const timer = this.#options.clock.after(graceMs, resolve)
      void this.#replies.whenIdle().then(() => {
        timer.cancel()
        resolve()
      })
    })
  }

  /** Closes both sockets at once: what peers have not been sent yet is lost. Idempotent. */
  close(): void {
    this.#replies.close()
    this.#publisher?.close()
    this.#publisher = undefined
    this.#router?.close()
    this.#router = undefined
  }

  #answer(identity: Uint8Array, frames: Frames): void {
    const start = parseReplayRequest(frames)
    if (start !== undefined) {
      this.#replays++
      // Taken now: a batch that is forgotten meanwhile would be a hole.
      const batches = this.#options.batchesFrom(start)
      if (batches === undefined) return
      this.#begin(identity, this.#replay(batches))
      return
    }
    if (this.#options.snapshot === undefined || !isSnapshotRequest(frames)) return
    this.#snapshots++
    if (this.#begin(identity, this.#parts(this.#options.snapshot))) return
    const { publisherId } = this.#options
    const refusal = { publisherId, nextSequence: 0, part: 0, parts: 0, isWhole: false, mayBeStale: false }
    this.#router?.send(identity, encodeSnapshotReply(refusal, NO_BYTES))
  }

  #begin(identity: Uint8Array, messages: Iterable<Frames>): boolean {
    const outcome = this.#replies.begin(identity, messages)
    if (outcome === 'busy') this.#refusedReplies++
    else if (outcome === 'excess') this.#excessReplies++
    return outcome === 'begun'
  }

  *#replay(batches: readonly BufferedBatch[]): Generator<Frames> {
    const { replayForm, topic } = this.#options
    for (const { sequence, payload } of batches) yield encodeReplayReply(replayForm, topic, sequence, payload)
    yield encodeReplayEnd(replayForm)
  }

  *#parts(take: () => Snapshot): Generator<Frames> {
    const { publisherId } = this.#options
    const taken = take()
    try {
      const { parts, nextSequence, isWhole, mayBeStale } = taken
      for (let part = 0; part < parts; part++) {
        const header = { publisherId, nextSequence, part, parts, isWhole, mayBeStale }
        yield encodeSnapshotReply(header, taken.part(part))
      }
    } finally {
      taken.release()
    }
  }
}
