/**
 * Republisher: publishes the events that a sidecar receives from one worker key, under its own sequences,
 * with a replay and snapshots, and withdraws them when they can no longer be believed.
 *
 * Invariants
 *   I1  A withdrawal comes only if something was published since the last one.
 *   I2  `isWhole` is true only when every event since the engine's start or its last clear was received and
 *       could be read.
 *   I3  A follower from batch 0 on concludes the same: batch 0 makes a history whole, a withdrawal ends that,
 *       a clear makes it whole again. So a history with an unknown start begins with a withdrawal, and the
 *       start of an engine is published as a clear, after a withdrawal of the earlier life's events.
 */

import type { Clock, Log, Random } from '@homing/base'
import {
  encodeKvBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  type KvCleared,
  type KvEvent,
  type ReplayForm,
} from '@homing/protocol'
import type { MessageTransport, StreamOptions } from '@homing/transport'
import { EventService, type EventServiceStats } from './event-service.ts'
import { LocalIndexer, type LocalIndexerOptions, type LocalIndexerStats } from './local-indexer.ts'
import { snapshotOf } from './snapshot-parts.ts'

export interface RepublisherOptions extends LocalIndexerOptions {
  readonly clock: Clock
  readonly random: Random
  readonly messages: MessageTransport
  readonly eventsEndpoint: string
  readonly replayEndpoint: string
  /** At a broker: the stream that keeps the batches, too; undefined: none. */
  readonly stream?: StreamOptions | undefined
  readonly topic: string
  readonly replayForm: ReplayForm
  readonly queuedMessagesMax: number
  readonly repliesMax: number
  /** As of an event service. */
  readonly peerBytesMax?: number
  readonly log?: Pick<Log, 'info' | 'warn'>
}

export interface RepublisherStatus extends EventServiceStats, LocalIndexerStats {
  readonly nextSequence: number
  readonly isWhole: boolean
  /** Counter: clears and withdrawals that the engine did not send. */
  readonly clears: number
}

export class Republisher {
  readonly #clock: Clock
  readonly #local: LocalIndexer
  #service: EventService | undefined
  /** No published event is to be believed: there is nothing to withdraw. */
  #isWithdrawn = true
  #rank: number | undefined
  /**
   * Time of the last published batch, by the engine's clock: our own may differ, and a publisher does not go
   * back in time.
   */
  #seconds: number | undefined
  #clears = 0

  private constructor(options: RepublisherOptions) {
    this.#clock = options.clock
    this.#local = new LocalIndexer(options)
    this.#local.restart({ isWhole: false })
  }

  /** Binds both sockets. Rejects as the transport does. */
  static async open(options: RepublisherOptions): Promise<Republisher> {
    const self = new Republisher(options)
    const { clock, random } = options
    self.#service = await EventService.open({
      ...options,
      publisherId: Buffer.from(random.bytes(8)).toString('hex'),
      batchesFrom: start => self.#local.batchesFrom(start),
      nextSequence: () => self.#local.nextEventId,
      snapshot: () => snapshotOf(self.#local, { timestampSeconds: clock.wallMs() / 1000, rank: self.#rank }),
    })
    return self
  }

  get endpoint(): string {
    return this.#service?.endpoint ?? ''
  }

  get replayEndpoint(): string {
    return this.#service?.replayEndpoint ?? ''
  }

  /** The number of the next batch. */
  get nextSequence(): number {
    return this.#local.nextEventId
  }

  /** Undefined once it is closed. */
  status(): RepublisherStatus | undefined {
    if (this.#service === undefined) return undefined
    return {
      ...this.#service.stats,
      ...this.#local.stats,
      nextSequence: this.#local.nextEventId,
      isWhole: this.#local.isWhole,
      clears: this.#clears,
    }
  }

  /**
   * Publishes a batch; `payload` says the same, and where it was not read whole, more. Followers see that
   * themselves. Answers our number of it.
   */
  publish(
    { events, rank, timestampSeconds }: Omit<KvBatch, 'skipped'>,
    payload: Uint8Array,
    isReadWhole = true,
  ): number {
    this.#rank = rank
    this.#seconds = timestampSeconds
    const isFirst = this.#local.nextEventId === 0
    // Batch 0 would be mistaken for the first batch of the engine's life.
    if (isFirst && !this.#local.isWhole && events[0]?.kind !== 'cleared') this.#sendClear(KV_WITHDRAWN)
    this.#isWithdrawn = false
    return this.#send(events, payload, isReadWhole)
  }

  /** The engine's cache is known to be empty: it has just started. */
  begin(): void {
    // A clear alone may be of the life before.
    this.withdraw()
    // What comes as batch 0 says so itself.
    if (this.#local.nextEventId > 0) {
      this.#sendClear(KV_CLEARED)
      this.#isWithdrawn = false
    }
    this.#local.restart({ isWhole: true })
  }

  /** Nothing that was published is to be believed any more, and what the engine holds is not known. */
  withdraw(): void {
    if (!this.#isWithdrawn) this.#sendClear(KV_WITHDRAWN)
    this.#isWithdrawn = true
    this.#local.restart({ isWhole: false })
  }

  /** The payload of a batch that is still kept. */
  payloadOf(sequence: number): Uint8Array | undefined {
    return this.#local.payloadOf(sequence)
  }

  /** Answers requests that are under way for up to `graceMs`, and closes the sockets. Idempotent. */
  async close(graceMs: number): Promise<void> {
    await this.#service?.drained(graceMs)
    this.#service?.close()
    this.#service = undefined
  }

  #sendClear(clear: KvCleared): void {
    this.#clears++
    const timestampSeconds = this.#seconds ?? this.#clock.wallMs() / 1000
    const events = [clear]
    // The only form that distinguishes a withdrawal from a clear.
    this.#send(events, encodeKvBatch({ timestampSeconds, rank: this.#rank, events }, 'vllm-map'))
  }

  #send(events: readonly KvEvent[], payload: Uint8Array, isReadWhole = true): number {
    const sequence = this.#local.record(events, payload, isReadWhole)
    this.#service?.publish(sequence, payload)
    return sequence
  }
}
