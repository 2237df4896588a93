/**
 * Event service: the sockets of one publisher. A PUB socket for batches and, if wanted, a ROUTER socket that
 * repeats them and answers snapshots.
 *
 *   publish                       ->  PUB     [topic] [sequence] [payload]
 *   ROUTER  [] [start]            ->  the batches kept from there on, then the end marker
 *   ROUTER  [] [snapshot] [form]  ->  the parts of a snapshot, or a refusal (snapshot-frames.ts of
 *                                     @homing/protocol)
 *   ROUTER  anything else         ->  nothing, as engines do
 *
 * Loss     a subscriber that reads too slowly loses batches past `queuedMessagesMax` and asks for them. An
 *          answer loses none: it goes on when its peer has read (paced-replies.ts, also for `peerBytesMax`).
 * Bounds   a peer that does not read leaves REPLY_WINDOW_MESSAGES messages of its answer in the ROUTER, whose
 *          payloads all peers share (batches of the ring, parts of shared-snapshots.ts). A replay that falls
 *          REPLAY_BEHIND_BYTES_MAX behind what is published ends, because it keeps batches that the ring has
 *          forgotten.
 */

import type { Clock, Log } from '@homing/base'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  encodeSnapshotReply,
  parseReplayRequest,
  parseSnapshotRequest,
  type ReplayForm,
  type SnapshotForm,
} from '@homing/protocol'
import type { Frames, MessageTransport, Publisher, RouterSocket, StreamOptions } from '@homing/transport'
import type { BufferedBatch } from './batch-ring.ts'
import { BURST_END, type PacedMessage, PacedReplies } from './paced-replies.ts'
import { SharedSnapshots, type Snapshot } from './shared-snapshots.ts'
import { BURST_HASHED_PARTS_MAX } from './snapshot-parts.ts'

export interface EventServiceOptions {
  readonly clock: Clock
  readonly messages: MessageTransport
  /** 'tcp://*:5557' and the like; port 0 is a free one. */
  readonly eventsEndpoint: string
  /** Undefined: nothing is repeated. */
  readonly replayEndpoint: string | undefined
  /** At a broker: the stream that keeps the batches, too; undefined: none. */
  readonly stream?: StreamOptions | undefined
  readonly topic: string
  readonly replayForm: ReplayForm
  /** 16 hexadecimal digits, other ones in each life. */
  readonly publisherId: string
  /** Messages held per subscriber that reads too slowly. */
  readonly queuedMessagesMax: number
  /**
   * Peers that are answered at full speed at one time. Further ones take turns with them, up to
   * REPLY_TURNS_MAX times as many; then those are refused, or get no answer, unless one that does not read
   * makes room.
   */
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
  /** Number of the batch that is published next; with `snapshot`. */
  readonly nextSequence?: () => number
  /** Is told of peers that do not read, at most once per UNREAD_LOG_MS. */
  readonly log?: Pick<Log, 'warn'>
}

/** Counters since the sockets were bound. */
export interface EventServiceStats {
  readonly publishedBatches: number
  readonly replays: number
  readonly snapshots: number
  /** Requests that came while REPLY_TURNS_MAX times `repliesMax` peers were being answered. */
  readonly refusedReplies: number
  /** Requests of peers that had been sent `peerBytesMax` already. */
  readonly excessReplies: number
  /** Answers that ended before their end, because their peer did not read or fell too far behind. */
  readonly unreadReplies: number
  /** Snapshots that were made: peers that ask at one state share one. */
  readonly takenSnapshots: number
  /** Answers under way now, and the snapshots among what they send. Not counters. */
  readonly openReplies: number
  readonly openSnapshots: number
}

export const PEER_BYTES_MAX = 2 ** 30
/** Messages of an answer that wait in the ROUTER for a peer that does not read. */
export const REPLY_WINDOW_MESSAGES = 4
/** A replay ends when this many bytes were published since it began, as many as the ring holds by default. */
export const REPLAY_BEHIND_BYTES_MAX = 64 * 2 ** 20
const UNREAD_LOG_MS = 60_000
const NO_BYTES = new Uint8Array(0)

export class EventService {
  readonly #options: EventServiceOptions
  readonly #replies: PacedReplies
  readonly #shared: SharedSnapshots | undefined
  /** The one that began first comes first. */
  readonly #running = new Set<Running>()
  #publisher: Publisher | undefined
  #router: RouterSocket | undefined
  #publishedBatches = 0
  #publishedBytes = 0
  #cutReplays = 0
  #toldUnreadMs = Number.NEGATIVE_INFINITY
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
      offer: (identity, frames) => this.#router?.offer(identity, frames) ?? 'gone',
      givenUp: () => this.#tellUnread(),
    })
    const { snapshot: take, nextSequence = () => Number.NaN, batchesFrom } = options
    if (take === undefined) return
    const canRepeatFrom = (sequence: number): boolean => batchesFrom(sequence)?.[0]?.sequence === sequence
    this.#shared = new SharedSnapshots({ take, nextSequence, canRepeatFrom })
  }

  /** Binds the sockets. Rejects as the transport does, and then has none. */
  static async open(options: EventServiceOptions): Promise<EventService> {
    const self = new EventService(options)
    const { messages, eventsEndpoint, replayEndpoint, queuedMessagesMax, stream } = options
    try {
      self.#publisher = await messages.publish({ endpoint: eventsEndpoint, queuedMessagesMax, stream })
      if (replayEndpoint !== undefined) {
        self.#router = await messages.serve(
          { endpoint: replayEndpoint, queuedMessagesMax: REPLY_WINDOW_MESSAGES },
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
      unreadReplies: this.#replies.givenUp + this.#cutReplays,
      takenSnapshots: this.#shared?.taken ?? 0,
      openReplies: this.#replies.size,
      openSnapshots: this.#shared?.size ?? 0,
    }
  }

  /** Sends one batch. The caller, which numbers batches, has kept it for replays already. */
  publish(sequence: number, payload: Uint8Array): void {
    if (this.#publisher === undefined) return
    this.#publishedBatches++
    this.#publishedBytes += payload.length
    for (const running of this.#running) {
      if (this.#publishedBytes - running.publishedBytes <= REPLAY_BEHIND_BYTES_MAX) break
      this.#cutReplays++
      this.#tellUnread()
      running.batches = undefined
      this.#running.delete(running)
    }
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
    const form = parseSnapshotRequest(frames)
    if (this.#shared === undefined || form === undefined) return
    this.#snapshots++
    if (this.#begin(identity, this.#parts(this.#shared, form))) return
    const { publisherId } = this.#options
    const known = { publisherId, nextSequence: 0, isWhole: false, mayBeStale: false }
    const refusal = { ...known, part: 0, parts: 0, form, offersHashes: true }
    this.#router?.send(identity, encodeSnapshotReply(refusal, NO_BYTES))
  }

  #tellUnread(): void {
    const { clock, log } = this.#options
    if (clock.nowMs() - this.#toldUnreadMs < UNREAD_LOG_MS) return
    this.#toldUnreadMs = clock.nowMs()
    const { unreadReplies, openReplies } = this.stats
    log?.warn(
      { unreadReplies, openReplies },
      'peers ask for replays or snapshots and do not read them: their answers end',
    )
  }

  #begin(identity: Uint8Array, messages: Iterable<PacedMessage>): boolean {
    const outcome = this.#replies.begin(identity, messages)
    if (outcome === 'busy') this.#refusedReplies++
    else if (outcome === 'excess') this.#excessReplies++
    return outcome === 'begun'
  }

  *#replay(batches: readonly BufferedBatch[]): Generator<Frames> {
    const { replayForm, topic } = this.#options
    const running: Running = { batches, publishedBytes: this.#publishedBytes }
    this.#running.add(running)
    try {
      const { length } = batches
      for (let i = 0; i < length; i++) {
        const batch = running.batches?.[i]
        // Without the end marker, the peer knows that it has not seen all.
        if (batch === undefined) return
        yield encodeReplayReply(replayForm, topic, batch.sequence, batch.payload)
      }
      yield encodeReplayEnd(replayForm)
    } finally {
      this.#running.delete(running)
    }
  }

  *#parts(shared: SharedSnapshots, form: SnapshotForm): Generator<PacedMessage> {
    const { publisherId } = this.#options
    const taken = shared.take(form)
    try {
      const { parts, nextSequence, isWhole, mayBeStale, offersHashes } = taken
      for (let part = 0; part < parts; part++) {
        if (form === 'hashes' && part > 0 && part % BURST_HASHED_PARTS_MAX === 0) yield BURST_END
        const payload = taken.part(part)
        if (payload === undefined) return
        const known = { publisherId, nextSequence, isWhole, mayBeStale, offersHashes }
        yield encodeSnapshotReply({ ...known, part, parts, form }, payload)
      }
    } finally {
      taken.release()
    }
  }
}

/** A replay under way. */
interface Running {
  /** Undefined: it fell too far behind. */
  batches: readonly BufferedBatch[] | undefined
  /** Bytes that were published before it began. */
  readonly publishedBytes: number
}
