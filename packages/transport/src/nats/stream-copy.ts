/**
 * Stream copy: what a publisher publishes, once more in a stream at the broker, and whether the stream has
 * all of it.
 *
 *   add ──▶ loose ──▶ pack, under way ──stored──▶ forgotten
 *                       ▲          │ refused, or no answer
 *                       └──────────┘ after a pause, all that is not stored, in order
 *
 * What is added while UNDER_WAY_MAX packs are under way goes together in the next ones. So a publisher that
 * says little waits for nothing, and one that says much costs the broker a message for many batches.
 *
 * Invariants
 *   I1  `isWhole` only while everything added is stored or on its way, and nothing was refused.
 *   I2  What is not stored is kept, up to UNSTORED_MESSAGES_MAX and UNSTORED_BYTES_MAX. Past it the oldest
 *       is lost to the stream; a router that reads the stream sees that by the numbers of the batches.
 *   I3  What was stored without our hearing of it is not stored twice: a pack keeps its content and its id.
 */

import type { Clock, Timer } from '@homing/base'
import type { BrokerCounts } from '../broker-counts.ts'
import type { StreamError } from '../errors.ts'
import type { StreamOptions } from '../types.ts'
import { encodePack, PACK_HEAD_BYTES, PACK_ITEM_BYTES } from './payload.ts'
import type { BrokerStreams } from './streams.ts'
import {
  PACK_MESSAGES_MAX,
  STREAM_RETRY_MS_MAX,
  STREAM_RETRY_MS_MIN,
  streamName,
  streamSubject,
} from './streams.ts'

/** The most that a publisher keeps for its stream. */
export const UNSTORED_MESSAGES_MAX = 16_384
const UNSTORED_BYTES_MAX = 32 * 2 ** 20
const UNDER_WAY_MAX = 4
const PACK_BYTES_MAX = 2 ** 16

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

interface Pack {
  readonly id: string
  readonly payload: Uint8Array
  /** Of the first message in it; they are numbered from 0. */
  readonly first: number
  readonly messages: number
}

export class StreamCopy {
  readonly #options: StreamCopyOptions
  readonly #subject: string
  #streams: BrokerStreams | undefined
  #packBytesMax = PACK_BYTES_MAX
  /** Not packed yet; the last of them is number #number − 1. */
  #loose: Uint8Array[] = []
  /** In order, not stored yet; the first #sent of them are under way in this try. */
  #packs: Pack[] = []
  #sent = 0
  #unstoredBytes = 0
  #isPumpDue = false
  #isOpen = false
  #isWhole = false
  /** What was added before is not known to be stored: it must be before the stream has all. */
  #owed = 0
  /** Answers to an earlier try do not end the present one. */
  #try = 0
  #number = 0
  #retryMs = STREAM_RETRY_MS_MIN
  #timer: Timer | undefined
  #isClosed = false
  #warned: string | undefined
  #difference: string | undefined

  constructor(options: StreamCopyOptions) {
    this.#options = options
    this.#subject = streamSubject(options.stream.namespace, options.subject)
  }

  /** The stream has all that was published, but for what is on its way. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** There is a connection; `streams` undefined: its broker keeps none. */
  up(streams: BrokerStreams | undefined, payloadBytesMax = PACK_BYTES_MAX): void {
    this.#streams = streams
    this.#packBytesMax = Math.min(PACK_BYTES_MAX, payloadBytesMax)
    this.#again()
  }

  down(): void {
    this.#streams = undefined
    this.#timer?.cancel()
    this.#stop()
  }

  close(): void {
    this.#pump()
    this.#isClosed = true
    this.#timer?.cancel()
  }

  /** The payloads must not change afterwards. */
  add(payloads: readonly Uint8Array[]): void {
    for (const payload of payloads) {
      this.#loose.push(payload)
      this.#number++
      this.#unstoredBytes += payload.length
    }
    if (this.#unstored > UNSTORED_MESSAGES_MAX || this.#unstoredBytes > UNSTORED_BYTES_MAX) this.#lose()
    if (this.#isPumpDue) return
    // What is added in the same turn goes together.
    this.#isPumpDue = true
    queueMicrotask(() => this.#pump())
  }

  get #unstored(): number {
    return this.#number - this.#oldest
  }

  /** The first message that is not stored. */
  get #oldest(): number {
    return this.#packs[0]?.first ?? this.#number - this.#loose.length
  }

  #lose(): void {
    const { counts } = this.#options
    while (this.#unstored > UNSTORED_MESSAGES_MAX || this.#unstoredBytes > UNSTORED_BYTES_MAX) {
      const pack = this.#packs.shift()
      if (pack !== undefined && this.#sent > 0) this.#sent--
      this.#unstoredBytes -= pack?.payload.length ?? this.#loose.shift()!.length
      counts.streamLostMessages += pack?.messages ?? 1
    }
    this.#failed('the stream does not take the events as fast as they come')
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
        this.#owed = this.#number
        if (difference !== undefined && difference !== this.#difference)
          log.warn(
            { endpoint, stream: streamName(stream.namespace) },
            `the stream keeps its own limits: ${difference}`,
          )
        this.#difference = difference
        this.#pump()
        this.#settle()
      },
      (error: StreamError) => attempt === this.#try && this.#failed(error.message),
    )
  }

  #pump(): void {
    this.#isPumpDue = false
    const streams = this.#streams
    if (streams === undefined || !this.#isOpen || this.#isClosed) return
    while (this.#sent < UNDER_WAY_MAX) {
      const pack = this.#packs[this.#sent] ?? this.#pack()
      if (pack === undefined) return
      this.#sent++
      this.#send(streams, pack)
    }
  }

  #send(streams: BrokerStreams, pack: Pack): void {
    const attempt = this.#try
    streams.store(this.#subject, pack.payload, pack.id).then(
      () => {
        this.#options.counts.streamStoredMessages += pack.messages
        this.#stored(pack)
        if (attempt !== this.#try) return
        this.#retryMs = STREAM_RETRY_MS_MIN
        this.#pump()
        this.#settle()
      },
      (error: StreamError) => attempt === this.#try && this.#failed(error.message),
    )
  }

  /** Of what is loose, as much as goes into one; undefined: nothing is. */
  #pack(): Pack | undefined {
    let bytes = PACK_HEAD_BYTES
    let messages = 0
    for (const payload of this.#loose) {
      bytes += PACK_ITEM_BYTES + payload.length
      if (messages === PACK_MESSAGES_MAX || (messages > 0 && bytes > this.#packBytesMax)) break
      messages++
    }
    if (messages === 0) return undefined
    const first = this.#number - this.#loose.length
    const payloads = this.#loose.splice(0, messages)
    const payload = messages === 1 ? payloads[0]! : encodePack(payloads, this.#options.life)
    for (const { length } of payloads) this.#unstoredBytes -= length
    this.#unstoredBytes += payload.length
    const pack = { id: `${this.#options.life}-${first}`, payload, first, messages }
    this.#packs.push(pack)
    return pack
  }

  #stored(pack: Pack): void {
    const at = this.#packs.indexOf(pack)
    if (at < 0) return
    this.#packs.splice(at, 1)
    this.#unstoredBytes -= pack.payload.length
    if (at < this.#sent) this.#sent--
  }

  /** All of an earlier failure is made good. */
  #settle(): void {
    if (!this.#isWhole && this.#isOpen && this.#oldest >= this.#owed) this.#tell(true)
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
    this.#owed = this.#number
    this.#tell(false)
  }

  #tell(isWhole: boolean): void {
    if (isWhole === this.#isWhole) return
    this.#isWhole = isWhole
    if (isWhole) this.#warned = undefined
    if (!this.#isClosed) this.#options.changed()
  }
}
