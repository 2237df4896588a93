/**
 * Stream replay: a dealer whose publisher may have forgotten what a replay asks for. Then the stream at
 * the broker tells it.
 *
 *   asking      the publisher, as always. It begins at what was asked, or earlier: its answer is passed on
 *   reading     it begins later, or is silent for ASK_MS: the stream, from there to its end, or to a hole
 *   the rest    the publisher again, for what is behind that. Its end marker is the end
 *   a hole      (stream-order.ts) the batch behind it is passed on, too, so that the asker sees the hole and
 *               asks again; then the replay begins there, as that of a publisher that has forgotten what was
 *               before
 *
 * If the publisher is silent then, too, the end of the stream is the end only while the publisher says, by
 * its beats, that the stream has all. So a batch that neither has shows to the asker as a hole, or as a
 * missing end.
 *
 * An engine that restarts behind its publisher begins its numbers anew in the same life. The stream then has
 * two histories that nothing tells apart, and the replay ends without an end marker.
 *
 * Snapshots are the publisher's alone.
 *
 * Bounds   replies that the asker has not dealt with (`took`): UNREAD_MAX, then reading pauses.
 */

import type { Clock, Timer } from '@homing/base'
import { encodeReplayEnd, parseReplayReply, parseReplayRequest, replayRequestFrames } from '@homing/protocol'
import type { BrokerCounts } from '../broker-counts.ts'
import { StreamError } from '../errors.ts'
import type { Dealer, Frames, StreamOptions } from '../message-types.ts'
import { Parts } from './payload.ts'
import { StreamOrder } from './stream-order.ts'
import { batchesOf, positionOf, type StreamBatch } from './stream-position.ts'
import type { BrokerStreams } from './streams.ts'
import { streamName, streamSubject } from './streams.ts'

const ASK_MS = 500
const UNREAD_MAX = 4096
const EMPTY = new Uint8Array(0)

export interface StreamReplayOptions {
  readonly stream: StreamOptions
  readonly subject: string
  readonly clock: Clock
  readonly counts: BrokerCounts
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  /** Undefined: there is no connection, or its broker keeps no streams. */
  readonly streams: () => BrokerStreams | undefined
  /** The life that is followed; undefined: none is. */
  readonly followed: () => string | undefined
  /** Its beats say that the stream has all. */
  readonly isWhole: () => boolean
  /** The first batch of that life behind the last hole that was found in the stream; 0: none was. */
  readonly holeEnd: () => number
  readonly noteHole: (end: number) => void
  readonly gate: (() => Promise<void> | undefined) | undefined
  readonly onMessage: (frames: Frames) => void
  /** Opens a dealer that asks the publisher. */
  readonly dial: (onMessage: (frames: Frames) => void) => Dealer
}

type State = 'idle' | 'asking' | 'reading' | 'passing'

export class StreamReplay implements Dealer {
  readonly #options: StreamReplayOptions
  #publisher: Dealer
  #state: State = 'idle'
  /** The first batch that is still to come. */
  #from = 0
  /** The rest is asked for: the stream has told what it has. */
  #isRest = false
  #timer: Timer | undefined
  #unread = 0
  #read: (() => void) | undefined
  /** Of questions: what an earlier one reads is not passed on. */
  #question = 0
  #isClosed = false

  constructor(options: StreamReplayOptions) {
    this.#options = options
    this.#publisher = options.dial(frames => this.#answered(frames))
  }

  send(frames: Frames): boolean {
    const from = parseReplayRequest(frames)
    if (from !== undefined && !this.#isClosed) this.#ask(from, false)
    return this.#publisher.send(frames)
  }

  took(count: number): void {
    this.#unread = Math.max(0, this.#unread - count)
    if (this.#unread >= UNREAD_MAX) return
    this.#read?.()
    this.#read = undefined
  }

  close(): void {
    this.#isClosed = true
    this.#question++
    this.#timer?.cancel()
    this.#read?.()
    this.#publisher.close()
  }

  #ask(from: number, isRest: boolean): void {
    this.#question++
    this.#from = from
    this.#isRest = isRest
    this.#state = 'asking'
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(ASK_MS, () => this.#silent())
  }

  #answered(frames: Frames): void {
    if (this.#isClosed) return
    const reply = parseReplayReply(frames)
    if (reply.kind === 'malformed' || this.#state === 'passing') {
      // Parts of a snapshot, and what else the asker is to see.
      this.#options.onMessage(frames)
      return
    }
    if (this.#state !== 'asking') return
    const begins = reply.kind === 'batch' ? reply.sequence : undefined
    if (this.#isRest) {
      if (begins !== undefined && begins < this.#from) return
      this.#pass(frames)
    } else if (begins !== undefined && begins <= this.#streamFrom) this.#pass(frames)
    else this.#readStream(begins, frames)
  }

  /** The first batch behind which the stream may have all. */
  get #streamFrom(): number {
    return Math.max(this.#from, this.#options.holeEnd())
  }

  #pass(frames: Frames): void {
    this.#timer?.cancel()
    this.#state = 'passing'
    this.#options.onMessage(frames)
  }

  /** The publisher does not answer: it keeps nothing, or hangs. */
  #silent(): void {
    if (this.#state !== 'asking') return
    if (!this.#isRest) this.#readStream(undefined, undefined)
    else if (this.#options.isWhole()) this.#pass(encodeReplayEnd('topic'))
    else this.#state = 'passing'
  }

  /** `begins`: the first batch that the publisher has; undefined: it has none. */
  #readStream(begins: number | undefined, answer: Frames | undefined): void {
    this.#timer?.cancel()
    this.#state = 'reading'
    const [question, from] = [this.#question, this.#streamFrom]
    this.#tell(question, begins).then(
      told => {
        if (question !== this.#question || this.#isClosed) return
        if (told === 'hole') this.#state = 'idle'
        else if (told === 'nothing' && answer !== undefined && begins === undefined) this.#pass(answer)
        else this.#askRest()
      },
      (error: unknown) => {
        if (question !== this.#question || this.#isClosed) return
        if (!(error instanceof StreamError)) throw error
        const { counts, log, subject } = this.#options
        counts.streamFailures++
        log.warn({ subject, reason: error.message }, 'the stream cannot be read: only the publisher is asked')
        if (this.#from <= from) this.#askRest()
        // What was told may be wrong: without an end, nothing of it counts as all.
        else this.#state = 'idle'
      },
    )
  }

  /** By a dealer of its own: what is on its way of the first answer must not count as part of this one. */
  #askRest(): void {
    this.#ask(this.#from, true)
    this.#publisher.close()
    this.#publisher = this.#options.dial(frames => this.#answered(frames))
    this.#publisher.send(replayRequestFrames(this.#from))
  }

  /** Passes on what the stream has, in order and up to a hole. */
  async #tell(question: number, before: number | undefined): Promise<'told' | 'hole' | 'nothing'> {
    const { counts, stream: options, subject: ofPublisher } = this.#options
    const [streams, life] = [this.#options.streams(), this.#options.followed()]
    if (streams === undefined || life === undefined) return 'nothing'
    const [stream, subject] = [streamName(options.namespace), streamSubject(options.namespace, ofPublisher)]
    this.#from = this.#streamFrom
    const position = await positionOf(streams, { stream, subject, life, from: this.#from })
    if (position === undefined) return 'nothing'
    counts.streamReplays++
    const parts = new Parts()
    const order = new StreamOrder(this.#from)
    for await (const { payload } of streams.read(stream, subject, position)) {
      const odd = order.add(batchesOf(payload, life, parts))
      if (odd !== undefined)
        throw new StreamError(
          `cannot read stream ${stream}`,
          `under one life of its publisher batch ${odd} came again with another content: the engine restarted, and nothing tells its lives apart`,
        )
      const told = await this.#tellNext(order, question, before)
      if (told !== undefined) return told
    }
    order.end()
    const told = await this.#tellNext(order, question, before)
    return told ?? (order.next === undefined ? 'nothing' : 'told')
  }

  /** Passes on what is next in order; undefined: more may come. */
  async #tellNext(
    order: StreamOrder,
    question: number,
    before: number | undefined,
  ): Promise<'told' | 'hole' | 'nothing' | undefined> {
    for (;;) {
      const isFirst = order.next === undefined
      const batch = order.take()
      if (question !== this.#question || this.#isClosed) return 'told'
      if (batch === undefined) break
      if (isFirst && before !== undefined && batch.sequence >= before) return 'nothing'
      await this.#tellOne(batch)
    }
    const behind = order.behindHole
    if (behind === undefined) return undefined
    if (before !== undefined && before <= order.next!) return 'told'
    // At the end of the stream it may yet come: the publisher is asked for what is behind it.
    if (order.isAtEnd && !this.#options.isWhole()) return 'told'
    this.#options.noteHole(behind.sequence)
    this.#options.onMessage([EMPTY, ...behind.frames])
    return 'hole'
  }

  async #tellOne(batch: StreamBatch): Promise<void> {
    const { gate, onMessage } = this.#options
    this.#from = batch.sequence + 1
    this.#unread++
    onMessage([EMPTY, ...batch.frames])
    await gate?.()
    if (this.#unread >= UNREAD_MAX) await new Promise<void>(resolve => (this.#read = resolve))
  }
}
