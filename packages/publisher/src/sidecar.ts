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
 *   is the first, and not number 0            a withdrawal, then the payload
 *   is later: some were lost                  a withdrawal, then the payload
 *   is earlier: the engine restarted          a withdrawal, or a clear if it is number 0, then the payload
 *   cannot be read                            a withdrawal in its place: it may have removed something
 *   (connection is down)                      a withdrawal, at once
 *
 * Invariants
 *   I1  What a follower holds after any batch is held by the engine, but for events in flight: history with a hole is
 *       never carried on.
 *   I2  See republisher.ts; the engine has just started when its batch is number 0.
 *
 * An engine that comes back at exactly the batch that was expected cannot be told from one that never left; so a connection
 * that goes down is the end of a history.
 */

import type { Log } from '@homing/log'
import {
  decodeKvBatch,
  type KvBatch,
  MalformedEventFramesError,
  MalformedKvBatchError,
  parseEventFrames,
} from '@homing/protocol'
import type { Closable, Frames } from '@homing/transport'
import { Republisher, type RepublisherOptions, type RepublisherStatus } from './republisher.ts'

/** `topic` is that of the engine's events, and of ours; '' takes all and publishes without one. */
export interface SidecarOptions extends RepublisherOptions {
  /** Told what the sidecar sees of its engine and what it does about it. */
  readonly log: Pick<Log, 'info' | 'warn'>
  /** The engine's PUB socket: 'tcp://127.0.0.1:5557'. */
  readonly engineEndpoint: string
}

export interface SidecarStatus extends RepublisherStatus {
  readonly isConnected: boolean
  /** The engine's batch that comes next; undefined: none came since the history began. */
  readonly expectedSequence: number | undefined
  /** Counters. */
  readonly gaps: number
  readonly restarts: number
  readonly disconnections: number
  readonly duplicates: number
  readonly unreadable: number
  readonly foreignTopics: number
}

export class Sidecar {
  readonly #options: SidecarOptions
  readonly #out: Republisher
  #subscriber: Closable | undefined
  #isConnected = false

  // The history.
  #expected: number | undefined
  /** The engine's batch with which the history begins. */
  #first = 0
  /** Our number of a batch, less the engine's. */
  #offset = 0

  #gaps = 0
  #restarts = 0
  #disconnections = 0
  #duplicates = 0
  #unreadable = 0
  #foreignTopics = 0

  private constructor(options: SidecarOptions, out: Republisher) {
    this.#options = options
    this.#out = out
  }

  /** Binds both sockets, then subscribes. Rejects as the transport does. */
  static async open(options: SidecarOptions): Promise<Sidecar> {
    const { messages, engineEndpoint, log } = options
    const out = await Republisher.open(options)
    const self = new Sidecar(options, out)
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
      await out.close(0)
      throw error
    }
    return self
  }

  get endpoint(): string {
    return this.#out.endpoint
  }

  get replayEndpoint(): string {
    return this.#out.replayEndpoint
  }

  /** Undefined once it is closed. */
  status(): SidecarStatus | undefined {
    const status = this.#out.status()
    if (status === undefined) return undefined
    return {
      ...status,
      isConnected: this.#isConnected,
      expectedSequence: this.#expected,
      gaps: this.#gaps,
      restarts: this.#restarts,
      disconnections: this.#disconnections,
      duplicates: this.#duplicates,
      unreadable: this.#unreadable,
      foreignTopics: this.#foreignTopics,
    }
  }

  /** Takes no more batches, answers requests that are under way for up to `graceMs`, and closes the sockets. Idempotent. */
  async close(graceMs: number): Promise<void> {
    this.#subscriber?.close()
    this.#subscriber = undefined
    await this.#out.close(graceMs)
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
      if (sequence > 0) this.#endHistory()
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
    this.#offset = this.#out.publish(batch.events, payload, batch.rank) - sequence
    this.#expected = sequence + 1
  }

  #beginHistory(sequence: number): void {
    this.#expected = sequence
    this.#first = sequence
    if (sequence === 0) this.#out.begin()
  }

  /** Nothing that was relayed is to be believed any more. */
  #endHistory(): void {
    this.#expected = undefined
    this.#out.withdraw()
  }

  #wasRelayed(sequence: number, payload: Uint8Array): boolean {
    if (sequence < this.#first) return false
    const before = this.#out.payloadOf(sequence + this.#offset)
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
