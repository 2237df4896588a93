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
 * A message that is larger than the stream takes goes in parts, which make a pack of their own. A stream that
 * takes less than before gets what is not stored anew, in smaller packs.
 *
 * Invariants
 *   I1  `isWhole` only while everything added is stored or on its way, and nothing was refused or lost since
 *       all before was stored.
 *   I2  What is not stored is kept, up to UNSTORED_MESSAGES_MAX and UNSTORED_BYTES_MAX. Past it the oldest
 *       that is not under way is lost to the stream, and so is a pack that the broker refuses as too large
 *       although it is as small as it can be. A router that reads the stream sees that by the numbers of the
 *       batches.
 *   I3  What was stored without our hearing of it is not stored twice: a pack keeps its content and its id.
 *       One in parts is an exception, and begins with a tear then.
 *   I4  In the stream a pack is behind at most UNDER_WAY_MAX − 1 later ones: after a failure one alone is
 *       under way, until it is stored.
 */

import type { Clock, Timer } from '@homing/base'
import type { BrokerCounts } from '../broker-counts.ts'
import type { StreamError } from '../errors.ts'
import type { StreamOptions } from '../message-types.ts'
import {
  encodePack,
  PACK_HEAD_BYTES,
  PACK_ITEM_BYTES,
  splitPayload,
  tearBefore,
  unpacked,
} from './payload.ts'
import type { BrokerStreams } from './streams.ts'
import {
  PACK_BYTES_MAX,
  PACK_MESSAGES_MAX,
  STREAM_HEADER_BYTES,
  STREAM_RETRY_MS_MAX,
  STREAM_RETRY_MS_MIN,
  streamName,
  streamSubject,
  UNDER_WAY_MAX,
} from './streams.ts'

/** The most that a publisher keeps for its stream. */
export const UNSTORED_MESSAGES_MAX = 16_384
const UNSTORED_BYTES_MAX = 32 * 2 ** 20
/** A stream that takes less than this takes no batch. */
const PAYLOAD_BYTES_MIN = 256

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

/** As it is published: one payload, or its parts. */
type Message = readonly Uint8Array[]

interface Pack {
  readonly id: string
  /** One message of the stream each; several are the parts of one message. */
  readonly payloads: readonly Uint8Array[]
  readonly bytes: number
  /** Of the first message in it; they are numbered from 0. */
  readonly first: number
  readonly messages: number
  /** Some of it may be in the stream. */
  wasSent: boolean
  /** It was refused as too large. */
  wasTooLarge: boolean
}

export class StreamCopy {
  readonly #options: StreamCopyOptions
  readonly #subject: string
  #streams: BrokerStreams | undefined
  /** Of a payload: what the connection takes, and the stream. */
  #linkBytesMax = PACK_BYTES_MAX
  #payloadBytesMax = PACK_BYTES_MAX
  /** Not packed yet; the last of them is number #number − 1. */
  #loose: Message[] = []
  /** In order, not stored yet; the first #sent of them are under way in this try. */
  #packs: Pack[] = []
  #sent = 0
  #packed = 0
  #unstoredMessages = 0
  #unstoredBytes = 0
  #isPumpDue = false
  #isOpen = false
  #isWhole = false
  /** Something was stored in this try. */
  #isTaken = false
  /**
   * How often the stream may have got the first parts of a message whose rest is lost, or comes in other
   * parts; and how many of these times something else is known to be stored behind.
   */
  #tears = 0
  #tearsPast = 0
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
    this.#linkBytesMax = Math.min(PACK_BYTES_MAX, payloadBytesMax)
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

  /** The payloads of one message; they must not change afterwards. */
  add(message: Message): void {
    this.#loose.push(message)
    this.#number++
    this.#unstoredMessages++
    this.#unstoredBytes += bytesOf(message)
    if (this.#isTooMuch) this.#lose()
    if (this.#isPumpDue) return
    // What is added in the same turn goes together.
    this.#isPumpDue = true
    queueMicrotask(() => this.#pump())
  }

  get #isTooMuch(): boolean {
    return this.#unstoredMessages > UNSTORED_MESSAGES_MAX || this.#unstoredBytes > UNSTORED_BYTES_MAX
  }

  /** The first message that is not stored. */
  get #oldest(): number {
    return this.#packs[0]?.first ?? this.#firstLoose
  }

  get #firstLoose(): number {
    return this.#number - this.#loose.length
  }

  /** Of what is not under way, the oldest. The try goes on: the next that is stored may be enough. */
  #lose(): void {
    while (this.#isTooMuch) {
      const pack = this.#packs[this.#sent]
      const message = pack === undefined ? this.#loose.shift() : undefined
      if (pack !== undefined) this.#forget(pack)
      else if (message === undefined) break
      else this.#unstored(-1, -bytesOf(message))
      this.#lost(pack, 1)
    }
    this.#warn('the stream does not take the events as fast as they come')
  }

  /** It is not whole until all that is there now is stored. */
  #lost(pack: Pack | undefined, messages: number): void {
    this.#options.counts.streamLostMessages += pack?.messages ?? messages
    if (pack !== undefined) this.#tornBy(pack)
    this.#owed = this.#number
    this.#tell(false)
  }

  /** Some of its parts may be in the stream, and are not to be joined with others. */
  #tornBy({ wasSent, payloads }: Pack): void {
    if (wasSent && payloads.length > 1) this.#tears++
  }

  #unstored(messages: number, bytes: number): void {
    this.#unstoredMessages += messages
    this.#unstoredBytes += bytes
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
      ({ difference, messageBytesMax = Number.POSITIVE_INFINITY }) => {
        if (attempt !== this.#try || this.#isClosed) return
        this.#isOpen = true
        this.#fit(messageBytesMax - STREAM_HEADER_BYTES)
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

  /** The stream takes payloads of so many bytes: what is larger, and all behind it, is packed anew. */
  #fit(streamBytesMax: number): void {
    const bytesMax = Math.max(PAYLOAD_BYTES_MIN, Math.min(this.#linkBytesMax, streamBytesMax))
    this.#payloadBytesMax = bytesMax
    const at = this.#packs.findIndex(({ payloads }) => payloads.some(({ length }) => length > bytesMax))
    if (at < 0) return
    const loose: Message[] = []
    for (const pack of this.#packs.splice(at)) {
      this.#tornBy(pack)
      const { payloads, bytes } = pack
      const messages = payloads.length > 1 ? [payloads] : unpacked(payloads[0]!).map(one => [one])
      loose.push(...messages)
      this.#unstored(
        0,
        messages.reduce((sum, one) => sum + bytesOf(one), -bytes),
      )
    }
    this.#loose = [...loose, ...this.#loose]
  }

  #pump(): void {
    this.#isPumpDue = false
    const streams = this.#streams
    if (streams === undefined || !this.#isOpen || this.#isClosed) return
    while (this.#sent < (this.#isTaken ? UNDER_WAY_MAX : 1)) {
      const pack = this.#packs[this.#sent] ?? this.#pack()
      if (pack === undefined) return
      this.#sent++
      this.#send(streams, pack)
    }
  }

  #send(streams: BrokerStreams, pack: Pack): void {
    const [attempt, tears] = [this.#try, this.#tears]
    this.#store(streams, pack).then(
      () => {
        this.#tearsPast = Math.max(this.#tearsPast, tears)
        this.#options.counts.streamStoredMessages += pack.messages
        if (this.#packs.includes(pack)) this.#forget(pack)
        if (attempt !== this.#try) return
        this.#isTaken = true
        this.#retryMs = STREAM_RETRY_MS_MIN
        this.#pump()
        this.#settle()
      },
      (error: StreamError) => {
        if (attempt !== this.#try) return
        if (error.isTooLarge) this.#tooLarge(pack)
        this.#failed(error.message)
      },
    )
  }

  /** Parts whose message is not known to be in the stream go behind a tear, and once more. */
  #store(streams: BrokerStreams, pack: Pack): Promise<unknown> {
    const { id, payloads, wasSent } = pack
    pack.wasSent = true
    const [payload, ...more] = payloads
    const isTorn = this.#tears > this.#tearsPast
    if (more.length === 0) return streams.store(this.#subject, payload!, id)
    const stored = isTorn || wasSent ? [tearBefore(payload!), ...payloads] : payloads
    const tryId = `${id}-${this.#try}`
    return Promise.all(stored.map((one, i) => streams.store(this.#subject, one, `${tryId}-${i}`)))
  }

  /** The stream may take less than it did: that is asked once. */
  #tooLarge(pack: Pack): void {
    if (!pack.wasTooLarge || !this.#packs.includes(pack)) {
      pack.wasTooLarge = true
      return
    }
    this.#forget(pack)
    this.#lost(pack, pack.messages)
  }

  /** Of what is loose, as much as goes into one; undefined: nothing is. */
  #pack(): Pack | undefined {
    const [first] = this.#loose
    if (first === undefined) return undefined
    const bytesMax = this.#payloadBytesMax
    let bytes = PACK_HEAD_BYTES
    let count = 0
    for (const [payload, ...more] of this.#loose) {
      bytes += PACK_ITEM_BYTES + payload!.length
      if (count === PACK_MESSAGES_MAX || more.length > 0 || bytes > bytesMax) break
      count++
    }
    // One alone needs no pack, so it may fit although a pack with it would not.
    const payloads =
      count > 1
        ? [
            encodePack(
              this.#loose.slice(0, count).map(([payload]) => payload!),
              this.#options.life,
            ),
          ]
        : first.flatMap(payload => splitPayload(payload, bytesMax))
    return this.#packOf(payloads, Math.max(1, count))
  }

  /** The first loose messages, as these payloads. */
  #packOf(payloads: readonly Uint8Array[], messages: number): Pack {
    const first = this.#firstLoose
    const bytes = bytesOf(payloads)
    for (const message of this.#loose.splice(0, messages)) this.#unstored(0, -bytesOf(message))
    this.#unstored(0, bytes)
    const id = `${this.#options.life}-${this.#packed++}`
    const pack = { id, payloads, bytes, first, messages, wasSent: false, wasTooLarge: false }
    this.#packs.push(pack)
    return pack
  }

  /** It is stored, or lost. */
  #forget(pack: Pack): void {
    const at = this.#packs.indexOf(pack)
    this.#packs.splice(at, 1)
    this.#unstored(-pack.messages, -pack.bytes)
    if (at < this.#sent) this.#sent--
  }

  /** All of an earlier failure is made good. */
  #settle(): void {
    if (!this.#isWhole && this.#isOpen && this.#oldest >= this.#owed) this.#tell(true)
  }

  #failed(reason: string): void {
    const { clock, counts } = this.#options
    counts.streamFailures++
    this.#stop()
    if (this.#isClosed) return
    this.#warn(reason)
    this.#timer?.cancel()
    this.#timer = clock.after(this.#retryMs, () => this.#again())
    this.#retryMs = Math.min(2 * this.#retryMs, STREAM_RETRY_MS_MAX)
  }

  /** Once for each reason, until it is whole again. */
  #warn(reason: string): void {
    const { endpoint, log } = this.#options
    if (this.#warned === reason || this.#isClosed) return
    this.#warned = reason
    log.warn({ endpoint, reason }, 'the stream does not have all events: routers follow the publisher itself')
  }

  #stop(): void {
    this.#try++
    this.#isOpen = false
    this.#isTaken = false
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

function bytesOf(payloads: readonly Uint8Array[]): number {
  let bytes = 0
  for (const { length } of payloads) bytes += length
  return bytes
}
