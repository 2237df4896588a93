/**
 * Stream consumer: the events of one publisher from the stream, for one subscriber, by a durable consumer
 * of its own.
 *
 *   wanted ──▶ opening ──▶ open ──gone──▶ a growing pause ──▶ opening …
 *
 * Bounds   messages that their receiver has not dealt with: its share of UNTAKEN_ALL_MAX (untaken-shares.ts),
 *          by the broker. While the receiver's thread is full, they wait here.
 */

import type { Clock, Timer } from '@homing/base'
import type { BrokerCounts } from '../broker-counts.ts'
import { StreamError } from '../errors.ts'
import type { StreamOptions } from '../message-types.ts'
import { unpacked } from './payload.ts'
import type { BrokerStreams, StreamMessage } from './streams.ts'
import { STREAM_RETRY_MS_MAX, STREAM_RETRY_MS_MIN, streamName, streamSubject } from './streams.ts'
import { Untaken } from './untaken.ts'

export interface StreamConsumerOptions {
  readonly stream: StreamOptions
  readonly subject: string
  readonly clock: Clock
  readonly counts: BrokerCounts
  /** A name that no consumer has: letters and digits. */
  readonly newName: () => string
  readonly gate: (() => Promise<void> | undefined) | undefined
  /** From here on all that is published comes. */
  readonly opened: () => void
  /** Nothing comes any more. */
  readonly ended: (reason: string) => void
  /** True: it was passed on as `number`, and `done(number)` will follow. */
  readonly message: (payload: Uint8Array, number: () => number) => void
}

export class StreamConsumer {
  readonly #options: StreamConsumerOptions
  readonly #untaken = new Untaken()
  #streams: BrokerStreams | undefined
  #open: { close(): void } | undefined
  #isOpening = false
  #timer: Timer | undefined
  #retryMs = STREAM_RETRY_MS_MIN
  #lastPosition = 0
  /** Of messages that the broker has not been told of, in order. */
  #untakenSizes: { readonly position: number; readonly bytes: number }[] = []
  /** While the receiver is full. */
  #waiting: (() => void)[] | undefined
  #life = 0

  constructor(options: StreamConsumerOptions) {
    this.#options = options
  }

  get isOpen(): boolean {
    return this.#open !== undefined
  }

  /** Opens it, unless it is open or about to be. */
  want(streams: BrokerStreams): void {
    this.#streams = streams
    if (this.#open === undefined && !this.#isOpening && this.#timer === undefined) this.#start(streams)
  }

  /** It is not wanted any more, or there is no connection. */
  close(): void {
    this.#life++
    this.#streams = undefined
    this.#timer?.cancel()
    this.#timer = undefined
    this.#isOpening = false
    this.#retryMs = STREAM_RETRY_MS_MIN
    this.#forget()
  }

  /** The receiver has dealt with the message of this number and all before. */
  done(number: number): void {
    this.#untaken.done(number)
  }

  #start(streams: BrokerStreams): void {
    const { stream, subject, newName, opened, ended } = this.#options
    const life = ++this.#life
    this.#isOpening = true
    const name = newName()
    this.#lastPosition = 0
    streams
      .ensure(stream)
      .then(() =>
        streams.consume(
          {
            stream: streamName(stream.namespace),
            subject: streamSubject(stream.namespace, subject),
            name,
          },
          {
            message: (message, taken) => {
              if (life === this.#life) this.#received(message, taken)
            },
            ended: reason => {
              if (life !== this.#life) return
              this.#forget()
              this.#later()
              ended(reason)
            },
          },
        ),
      )
      .then(
        open => {
          if (life !== this.#life) {
            open.close()
            return
          }
          this.#isOpening = false
          this.#retryMs = STREAM_RETRY_MS_MIN
          this.#open = open
          opened()
        },
        (error: unknown) => {
          if (!(error instanceof StreamError)) throw error
          if (life !== this.#life) return
          this.#isOpening = false
          this.#later()
          ended(error.message)
        },
      )
  }

  #forget(): void {
    this.#open?.close()
    this.#open = undefined
    this.#untaken.forget()
    this.#took(Number.POSITIVE_INFINITY)
    this.#waiting = undefined
  }

  #later(): void {
    const { clock, counts } = this.#options
    counts.streamFailures++
    this.#life++
    this.#timer = clock.after(this.#retryMs, () => {
      this.#timer = undefined
      if (this.#streams !== undefined) this.#start(this.#streams)
    })
    this.#retryMs = Math.min(2 * this.#retryMs, STREAM_RETRY_MS_MAX)
  }

  #received(message: StreamMessage, tell: () => void): void {
    const { position, payload } = message
    // It was not taken in time, and comes again.
    if (position <= this.#lastPosition) return
    this.#lastPosition = position
    this.#untakenSizes.push({ position, bytes: payload.length })
    this.#options.counts.streamUntakenBytes += payload.length
    const taken = (): void => {
      tell()
      this.#took(position)
    }
    if (this.#waiting !== undefined) {
      this.#waiting.push(() => this.#pass(message, taken))
      return
    }
    this.#pass(message, taken)
    const opened = this.#options.gate?.()
    if (opened === undefined) return
    this.#waiting = []
    const life = this.#life
    void opened.then(() => {
      if (life !== this.#life) return
      const waiting = this.#waiting ?? []
      this.#waiting = undefined
      for (const pass of waiting) pass()
    })
  }

  /** The message at this position and all before. */
  #took(position: number): void {
    const { counts } = this.#options
    const sizes = this.#untakenSizes
    let count = 0
    while (count < sizes.length && sizes[count]!.position <= position)
      counts.streamUntakenBytes -= sizes[count++]!.bytes
    sizes.splice(0, count)
  }

  #pass({ payload }: StreamMessage, taken: () => void): void {
    const { counts, message } = this.#options
    counts.streamMessages++
    const messages = unpacked(payload)
    for (const [i, one] of messages.entries()) {
      // The broker is told of the whole pack at its end.
      const told = i === messages.length - 1 ? taken : () => {}
      let isPassedOn = false
      message(one, () => {
        isPassedOn = true
        return this.#untaken.passOn(told)
      })
      if (!isPassedOn) this.#untaken.passOver(told)
    }
  }
}
