/**
 * Sidecar: stands beside an engine that publishes KV events and repeats none, and publishes them again with a replay and
 * snapshots.
 *
 *   engine PUB  ->  SUB  ->  check the sequence  ->  local indexer  ->  PUB      own numbers, without a gap
 *                                                                   ->  ROUTER   replays and snapshots
 *
 *   the engine's batch                        what is published
 *   is the next one                           the same payload
 *   was relayed before, with the same payload nothing
 *   is later: some were lost                  a clear, then the payload
 *   is earlier: the engine restarted          a clear, then the payload
 *   cannot be read                            a clear in its place: it may have removed something
 *   (connection is down)                      a clear, at once
 *
 * Invariants
 *   I1  What a follower holds after any batch is held by the engine, but for events in flight: history with a hole is
 *       never carried on.
 *   I2  A clear of ours comes only after something was relayed since the last one.
 *   I3  `isWhole` of a snapshot is true only when the history is known since the engine's batch 0 or its own clear.
 *
 * An engine that comes back at exactly the batch that was expected cannot be told from one that never left; so a connection
 * that goes down is the end of a history.
 */

import type { Clock, Random } from '@homing/clock'
import type { Log } from '@homing/log'
import {
  decodeKvBatch,
  encodeKvBatch,
  KV_CLEARED,
  type KvBatch,
  MalformedEventFramesError,
  MalformedKvBatchError,
  parseEventFrames,
  type ReplayForm,
} from '@homing/protocol'
import type { Closable, Frames, MessageTransport } from '@homing/transport'
import { EventService, type EventServiceStats } from './event-service.ts'
import { LocalIndexer, type LocalIndexerOptions, type LocalIndexerStats } from './local-indexer.ts'
import { snapshotOf } from './snapshot-parts.ts'

export interface SidecarOptions extends LocalIndexerOptions {
  readonly clock: Clock
  readonly random: Random
  readonly messages: MessageTransport
  /** Told what the sidecar sees of its engine and what it does about it. */
  readonly log: Pick<Log, 'info' | 'warn'>
  /** The engine's PUB socket: 'tcp://127.0.0.1:5557'. */
  readonly engineEndpoint: string
  readonly eventsEndpoint: string
  readonly replayEndpoint: string
  /** Topic of the engine's events, and of ours; '' takes all and publishes without one. */
  readonly topic: string
  readonly replayForm: ReplayForm
  readonly queuedMessagesMax: number
  readonly repliesMax: number
}

export interface SidecarStatus extends EventServiceStats, LocalIndexerStats {
  readonly isConnected: boolean
  /** The engine's batch that comes next; undefined: none came since the history began. */
  readonly expectedSequence: number | undefined
  readonly nextSequence: number
  readonly isWhole: boolean
  /** Counters. */
  readonly gaps: number
  readonly restarts: number
  readonly disconnections: number
  readonly duplicates: number
  readonly unreadable: number
  readonly foreignTopics: number
  /** Clears that the engine did not send. */
  readonly clears: number
}

export class Sidecar {
  readonly #options: SidecarOptions
  readonly #local: LocalIndexer
  #service: EventService | undefined
  #subscriber: Closable | undefined
  #isConnected = false

  // The history.
  #expected: number | undefined
  /** The engine's batch with which the history begins. */
  #first = 0
  /** Our number of a batch, less the engine's. */
  #offset = 0
  /** Something was relayed that no clear has undone. */
  #hasRelayed = false
  #rank: number | undefined

  #gaps = 0
  #restarts = 0
  #disconnections = 0
  #duplicates = 0
  #unreadable = 0
  #foreignTopics = 0
  #clears = 0

  private constructor(options: SidecarOptions) {
    this.#options = options
    this.#local = new LocalIndexer(options)
    this.#local.restart({ isWhole: false })
  }

  /** Binds both sockets, then subscribes. Rejects as the transport does. */
  static async open(options: SidecarOptions): Promise<Sidecar> {
    const self = new Sidecar(options)
    const { clock, random, messages, engineEndpoint, log } = options
    self.#service = await EventService.open({
      ...options,
      publisherId: Buffer.from(random.bytes(8)).toString('hex'),
      batchesFrom: start => self.#local.batchesFrom(start),
      snapshot: () => snapshotOf(self.#local, { timestampSeconds: clock.wallMs() / 1000, rank: self.#rank }),
    })
    // Every topic is received: a wrong one should show as such, not as silence.
    try {
      self.#subscriber = messages.subscribe(
        { endpoint: engineEndpoint, topic: '' },
        {
          message: frames => self.#receive(frames),
          connected() {
            self.#isConnected = true
            log.info({ engine: engineEndpoint }, 'connected to the engine')
          },
          disconnected: () => self.#disconnected(),
        },
      )
    } catch (error) {
      self.#service.close()
      throw error
    }
    return self
  }

  get endpoint(): string {
    return this.#service?.endpoint ?? ''
  }

  get replayEndpoint(): string {
    return this.#service?.replayEndpoint ?? ''
  }

  /** Undefined once it is closed. */
  status(): SidecarStatus | undefined {
    if (this.#service === undefined) return undefined
    return {
      ...this.#service.stats,
      ...this.#local.stats,
      isConnected: this.#isConnected,
      expectedSequence: this.#expected,
      nextSequence: this.#local.nextEventId,
      isWhole: this.#local.isWhole,
      gaps: this.#gaps,
      restarts: this.#restarts,
      disconnections: this.#disconnections,
      duplicates: this.#duplicates,
      unreadable: this.#unreadable,
      foreignTopics: this.#foreignTopics,
      clears: this.#clears,
    }
  }

  /** Takes no more batches, answers requests that are under way for up to `graceMs`, and closes the sockets. Idempotent. */
  async close(graceMs: number): Promise<void> {
    this.#subscriber?.close()
    this.#subscriber = undefined
    const service = this.#service
    await service?.drained(graceMs)
    service?.close()
    this.#service = undefined
  }

  #disconnected(): void {
    this.#isConnected = false
    this.#disconnections++
    const { log, engineEndpoint: engine } = this.#options
    log.warn({ engine }, 'the connection to the engine is down: what is known of its cache is withdrawn')
    this.#endHistory()
  }

  #receive(frames: Frames): void {
    const { log, topic, engineEndpoint: engine } = this.#options
    let message: ReturnType<typeof parseEventFrames>
    try {
      message = parseEventFrames(frames)
    } catch (error) {
      if (!(error instanceof MalformedEventFramesError)) throw error
      // Its sequence is not known: if it was a batch, it shows as a gap.
      this.#unreadable++
      log.warn({ engine, reason: error.message }, 'a message of the engine is no batch of events')
      return
    }
    const { sequence, payload } = message
    if (topic !== '' && message.topic !== topic) {
      if (this.#foreignTopics++ === 0) {
        log.warn({ engine, topic: message.topic, expected: topic }, 'events of another topic are passed over')
      }
      return
    }
    if (this.#expected === undefined) {
      this.#beginHistory(sequence)
    } else if (sequence < this.#expected) {
      if (this.#wasRelayed(sequence, payload)) {
        this.#duplicates++
        return
      }
      this.#restarts++
      log.warn({ engine, sequence, expected: this.#expected }, 'the engine restarted: its cache is new')
      this.#endHistory()
      this.#beginHistory(sequence)
    } else if (sequence > this.#expected) {
      this.#gaps++
      log.warn(
        { engine, sequence, expected: this.#expected, lost: sequence - this.#expected },
        'events of the engine were lost: what is known of its cache is withdrawn',
      )
      this.#endHistory()
      this.#beginHistory(sequence)
    }
    this.#relay(sequence, payload)
  }

  #relay(sequence: number, payload: Uint8Array): void {
    const batch = tryDecode(payload)
    if (batch === undefined || batch.skipped.malformed > 0) {
      this.#unreadable++
      const { log, engineEndpoint: engine } = this.#options
      log.warn({ engine, sequence }, 'a batch of the engine cannot be read: what is known is withdrawn')
      this.#endHistory()
      this.#beginHistory(sequence + 1)
      return
    }
    this.#rank = batch.rank
    this.#publish(batch.events, payload)
    this.#expected = sequence + 1
    this.#hasRelayed = true
  }

  #beginHistory(sequence: number): void {
    this.#expected = sequence
    this.#first = sequence
    this.#offset = this.#local.nextEventId - sequence
    if (sequence === 0) this.#local.restart({ isWhole: true })
  }

  /** Nothing that was relayed is to be believed any more. */
  #endHistory(): void {
    if (this.#hasRelayed) {
      this.#clears++
      const batch = {
        timestampSeconds: this.#options.clock.wallMs() / 1000,
        rank: this.#rank,
        events: [KV_CLEARED],
      }
      this.#publish(batch.events, encodeKvBatch(batch, 'vllm-map'))
    }
    this.#hasRelayed = false
    this.#expected = undefined
    // The clear is ours: the engine may hold anything.
    this.#local.restart({ isWhole: false })
  }

  #publish(events: KvBatch['events'], payload: Uint8Array): void {
    this.#service?.publish(this.#local.record(events, payload), payload)
  }

  #wasRelayed(sequence: number, payload: Uint8Array): boolean {
    if (sequence < this.#first) return false
    const before = this.#local.payloadOf(sequence + this.#offset)
    return before !== undefined && Buffer.compare(before, payload) === 0
  }
}

function tryDecode(payload: Uint8Array): KvBatch | undefined {
  try {
    return decodeKvBatch(payload)
  } catch (error) {
    if (error instanceof MalformedKvBatchError) return undefined
    throw error
  }
}
