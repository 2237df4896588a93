/**
 * Stream copy: what a publisher publishes, once more in a stream at the broker, and whether the stream has
 * all of it.
 *
 *   add ──▶ waiting ──▶ sent ──stored──▶ forgotten
 *              ▲          │ refused, or no answer
 *              └──────────┘ after a pause, all that is not stored, in order
 *
 * Invariants
 *   I1  `isWhole` only while everything added is stored or on its way, and nothing was refused.
 *   I2  What is not stored is kept, up to UNSTORED_MESSAGES_MAX and UNSTORED_BYTES_MAX. Past it the oldest
 *       is lost to the stream; a router that reads the stream sees that by the numbers of the batches.
 *   I3  What was stored without our hearing of it is not stored twice: it has the same id.
 */

import type { Clock, Timer } from '@homing/base'
import type { BrokerCounts } from '../broker-counts.ts'
import type { StreamError } from '../errors.ts'
import type { StreamOptions } from '../types.ts'
import type { BrokerStreams } from './streams.ts'
import { STREAM_RETRY_MS_MAX, STREAM_RETRY_MS_MIN, streamName, streamSubject } from './streams.ts'

/** The most that a publisher keeps for its stream. */
export const UNSTORED_MESSAGES_MAX = 1024
const UNSTORED_BYTES_MAX = 32 * 2 ** 20
const SENT_MAX = 256

export interface StreamCopyOptions {
  readonly stream: StreamOptions
  /** Under which the publisher publishes. */
  readonly subject: string
  readonly endpoint: string
  /** Others in each life of the publisher. */
  readonly life: string
  readonly clock: Clock
  readonly counts: BrokerCounts
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  /** `isWhole` is another one. */
  readonly changed: () => void
}

interface Unstored {
  readonly id: string
  readonly payload: Uint8Array
}

export class StreamCopy {
  readonly #options: StreamCopyOptions
  readonly #subject: string
  #streams: BrokerStreams | undefined
  #unstored: Unstored[] = []
  #unstoredBytes = 0
  /** How many of them were sent in this try. */
  #sent = 0
  #under = 0
  #isOpen = false
  #isWhole = false
  /** Answers to an earlier try do not end the present one. */
  #try = 0
  #number = 0
  #retryMs = STREAM_RETRY_MS_MIN
  #timer: Timer | undefined
  #isClosed = false
  #warned: string | undefined

  constructor(options: StreamCopyOptions) {
    this.#options = options
    this.#subject = streamSubject(options.stream.namespace, options.subject)
  }

  /** The stream has all that was published, but for what is on its way. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** There is a connection; undefined: its broker keeps no streams. */
  up(streams: BrokerStreams | undefined): void {
    this.#streams = streams
    this.#again()
  }

  down(): void {
    this.#streams = undefined
    this.#timer?.cancel()
    this.#stop()
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
  }

  /** The payloads must not change afterwards. */
  add(payloads: readonly Uint8Array[]): void {
    const { counts, life } = this.#options
    for (const payload of payloads) {
      this.#unstored.push({ id: `${life}-${this.#number++}`, payload })
      this.#unstoredBytes += payload.length
    }
    while (this.#unstored.length > UNSTORED_MESSAGES_MAX || this.#unstoredBytes > UNSTORED_BYTES_MAX) {
      const lost = this.#unstored.shift()!
      this.#unstoredBytes -= lost.payload.length
      if (this.#sent > 0) this.#sent--
      counts.streamLostMessages++
      this.#failed('the stream does not take the events as fast as they come')
    }
    this.#pump()
  }

  #again(): void {
    if (this.#isClosed) return
    const { stream, endpoint, log } = this.#options
    const streams = this.#streams
    const attempt = ++this.#try
    if (streams === undefined) {
      this.#failed('the broker keeps no streams')
      return
    }
    streams.ensure(stream).then(
      difference => {
        if (attempt !== this.#try || this.#isClosed) return
        this.#isOpen = true
        this.#warned = undefined
        if (difference !== undefined)
          log.warn(
            { endpoint, stream: streamName(stream.namespace) },
            `the stream keeps its own limits: ${difference}`,
          )
        this.#pump()
        this.#settle()
      },
      (error: StreamError) => attempt === this.#try && this.#failed(error.message),
    )
  }

  #pump(): void {
    const streams = this.#streams
    while (
      streams !== undefined &&
      this.#isOpen &&
      this.#under < SENT_MAX &&
      this.#sent < this.#unstored.length
    ) {
      const message = this.#unstored[this.#sent++]!
      const attempt = this.#try
      this.#under++
      streams.store(this.#subject, message.payload, message.id).then(
        () => {
          this.#options.counts.streamStoredMessages++
          this.#stored(message)
          if (attempt !== this.#try) return
          this.#under--
          this.#retryMs = STREAM_RETRY_MS_MIN
          this.#pump()
          this.#settle()
        },
        (error: StreamError) => attempt === this.#try && this.#failed(error.message),
      )
    }
  }

  #stored(message: Unstored): void {
    const at = this.#unstored.indexOf(message)
    if (at < 0) return
    this.#unstored.splice(at, 1)
    this.#unstoredBytes -= message.payload.length
    if (at < this.#sent) this.#sent--
  }

  /** All of an earlier failure is made good. */
  #settle(): void {
    if (!this.#isWhole && this.#isOpen && this.#unstored.length === 0) this.#tell(true)
  }

  #failed(reason: string): void {
    const { clock, counts, endpoint, log } = this.#options
    counts.streamFailures++
    this.#stop()
    if (this.#isClosed) return
    if (this.#warned !== reason) {
      this.#warned = reason
      log.warn(
        { endpoint, reason },
        'the stream does not have all events: routers follow the publisher itself',
      )
    }
    this.#timer?.cancel()
    this.#timer = clock.after(this.#retryMs, () => this.#again())
    this.#retryMs = Math.min(2 * this.#retryMs, STREAM_RETRY_MS_MAX)
  }

  #stop(): void {
    this.#try++
    this.#isOpen = false
    this.#sent = 0
    this.#under = 0
    this.#tell(false)
  }

  #tell(isWhole: boolean): void {
    if (isWhole === this.#isWhole) return
    this.#isWhole = isWhole
    if (!this.#isClosed) this.#options.changed()
  }
}
