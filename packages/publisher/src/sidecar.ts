/**
 * Sidecar: runs beside an engine that publishes KV events without a replay, and publishes them again with a
 * replay and snapshots.
 *
 *   engine PUB  ->  SUB  ->  check the sequence  ->  local indexer  ->  PUB      own numbers, without a gap
 *                                                                   ->  ROUTER   replays and snapshots
 *
 *   the engine's batch                        what is published
 *   is the next one                           the same payload
 *   was relayed before, with the same payload nothing
 *   is the first, and not number 0            a withdrawal, then the payload
 *   is later: some were lost                  a withdrawal, then the payload
 *   is earlier, and younger: it restarted     a withdrawal, and a clear if it is number 0, then the payload
 *   is not the next one, and older: it came   a withdrawal; the history begins with the next one
 *   late; or is the next one, and older: it
 *   is of the life before, or a clock was set
 *   is earlier again and again, or names      a withdrawal, and nothing of what comes for a while: two
 *   another dp rank                           publishers number their batches on one socket (setbacks.ts)
 *   cannot be read                            a withdrawal in its place: it may have removed something
 *   has events of unknown kinds               the same payload; followers conclude, as the sidecar does, that
 *                                             the cache is not fully known
 *   (connection is down)                      a withdrawal, at once
 *
 * Invariants
 *   I1  The engine holds every block that a follower holds after any batch, except for events in flight: a
 *       history with a hole is never continued.
 *   I2  See republisher.ts; the engine has just started when its batch is number 0.
 *
 * An engine that restarts and continues at exactly the expected batch looks like one that never restarted; so
 * a lost connection ends the history.
 */

import type { Log } from '@homing/base'
import {
  decodeKvBatch,
  type KvBatch,
  MalformedEventFramesError,
  MalformedKvBatchError,
  parseEventFrames,
  unreadEvents,
} from '@homing/protocol'
import type { Closable, Frames } from '@homing/transport'
import { Republisher, type RepublisherOptions, type RepublisherStatus } from './republisher.ts'
import { Setbacks } from './setbacks.ts'

/** `topic`: topic of the engine's events, and of ours; '' subscribes to all, and publishes without topic. */
export interface SidecarOptions extends RepublisherOptions {
  /** Gets reports on the engine and on the sidecar's reactions. */
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
  /** Batches that came after later ones. */
  readonly late: number
  readonly unreadable: number
  /** Batches with events of kinds that are not known. */
  readonly unknownKinds: number
  readonly foreignTopics: number
}

/**
 * No history begins for so long with a batch that is older than one before it. If it is the engine's clock
 * that was set back, one begins then.
 */
const LATE_MS_MAX = 1000

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
  /**
   * By the engine's clock, the last batch of it; of an earlier one for LATE_MS_MAX after a batch came late.
   */
  #lastSeconds = Number.NEGATIVE_INFINITY
  #lateUntilMs = Number.NEGATIVE_INFINITY
  /** What its batches name, since the connection is up. */
  #rank: number | undefined
  readonly #setbacks: Setbacks

  #gaps = 0
  #restarts = 0
  #disconnections = 0
  #duplicates = 0
  #late = 0
  #unreadable = 0
  #unknownKinds = 0
  #foreignTopics = 0

  private constructor(options: SidecarOptions, out: Republisher) {
    this.#options = options
    this.#out = out
    this.#setbacks = new Setbacks(() => options.clock.nowMs())
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
      late: this.#late,
      unreadable: this.#unreadable,
      unknownKinds: this.#unknownKinds,
      foreignTopics: this.#foreignTopics,
    }
  }

  /**
   * Takes no more batches, answers requests that are under way for up to `graceMs`, and closes the sockets.
   * Idempotent.
   */
  async close(graceMs: number): Promise<void> {
    this.#subscriber?.close()
    this.#subscriber = undefined
    await this.#out.close(graceMs)
  }

  #disconnected(): void {
    this.#isConnected = false
    this.#disconnections++
    const { log, engineEndpoint: engine } = this.#options
    log.warn({ engine }, 'the connection to the engine is down: earlier events are withdrawn')
    this.#rank = undefined
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
      log.warn({ engine, reason: error.message }, 'a message of the engine is not a batch of events')
      return
    }
    const { sequence, payload } = message
    if (topic !== '' && message.topic !== topic) {
      if (this.#foreignTopics++ === 0) {
        log.warn({ engine, topic: message.topic, expected: topic }, 'events of another topic are skipped')
      }
      return
    }
    const batch = tryDecode(payload)
    if (this.#isOfOtherRank(batch)) {
      this.#setBack(true)
      return
    }
    if (this.#setbacks.state === 'apart') return
    const isOlder = batch !== undefined && batch.timestampSeconds < this.#lastSeconds
    if (isOlder && (this.#expected === undefined ? this.#isLateTime : sequence >= this.#expected)) {
      this.#cameLate(sequence)
      return
    }
    if (this.#expected === undefined) {
      this.#beginHistory(sequence)
    } else if (sequence < this.#expected) {
      if (this.#wasRelayed(sequence, payload)) {
        this.#duplicates++
        return
      }
      if (this.#setBack(false)) return
      if (batch !== undefined && batch.timestampSeconds <= this.#lastSeconds) {
        this.#cameLate(sequence)
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
        'events of the engine were lost: earlier events are withdrawn',
      )
      this.#endHistory()
      this.#beginHistory(sequence)
    }
    this.#relay(sequence, payload, batch)
  }

  /** The batch may be of either life: it may have exactly the number that is expected next. */
  #cameLate(sequence: number): void {
    const { log, engineEndpoint: engine } = this.#options
    this.#late++
    log.warn(
      { engine, sequence, expected: this.#expected },
      'a batch of the engine is older than the one before it: earlier events are withdrawn',
    )
    const seconds = this.#lastSeconds
    this.#endHistory()
    this.#lastSeconds = seconds
    this.#lateUntilMs = this.#options.clock.nowMs() + LATE_MS_MAX
  }

  /** What came late may not have been the last that does. */
  get #isLateTime(): boolean {
    return this.#options.clock.nowMs() < this.#lateUntilMs
  }

  /** A publisher never changes its rank. */
  #isOfOtherRank(batch: KvBatch | undefined): boolean {
    if (batch?.rank === undefined || batch.rank === this.#rank) return false
    const isOther = this.#rank !== undefined
    this.#rank = batch.rank
    return isOther
  }

  /** True: too often; two publishers are mistaken for one. */
  #setBack(isProof: boolean): boolean {
    if (!this.#setbacks.note(isProof)) return false
    const { log, engineEndpoint: engine } = this.#options
    if (this.#expected !== undefined || isProof) {
      log.warn(
        { engine },
        'two publishers number their batches on the socket of the engine: none of it is published for a while',
      )
    }
    this.#endHistory()
    return true
  }

  #relay(sequence: number, payload: Uint8Array, batch: KvBatch | undefined): void {
    if (batch === undefined || batch.skipped.malformed > 0) {
      this.#unreadable++
      const { log, engineEndpoint: engine } = this.#options
      log.warn({ engine, sequence }, 'a batch of the engine cannot be read: earlier events are withdrawn')
      this.#endHistory()
      this.#beginHistory(sequence + 1)
      return
    }
    const isReadWhole = unreadEvents(batch) === 0
    if (!isReadWhole && this.#unknownKinds++ === 0) {
      const { log, engineEndpoint: engine } = this.#options
      log.warn({ engine, sequence }, 'events of the engine are of unknown kinds')
    }
    this.#offset = this.#out.publish(batch, payload, isReadWhole) - sequence
    this.#expected = sequence + 1
    this.#lastSeconds = batch.timestampSeconds
  }

  #beginHistory(sequence: number): void {
    this.#expected = sequence
    this.#first = sequence
    if (sequence !== 0) return
    // What begins so may be of either of two publishers.
    if (this.#setbacks.state === 'none') this.#out.begin()
    else this.#out.withdraw()
  }

  /** Nothing that was relayed is to be believed any more. */
  #endHistory(): void {
    this.#expected = undefined
    this.#lastSeconds = Number.NEGATIVE_INFINITY
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
