/**
 * Event watch: one subscription to an event socket, with all that came through it.
 *
 * It takes every topic: the one that a router would subscribe to may be the fault that is looked for.
 */

import type { Clock } from '@homing/base'
import { MalformedEventFramesError, parseEventFrames } from '@homing/protocol'
import type { Closable, Frames, MessageTransport } from '@homing/transport'
import { SeenEvents } from './seen-events.ts'
import { until } from './until.ts'

export class EventWatch {
  readonly seen = new SeenEvents()
  readonly #clock: Clock
  readonly #openedMs: number
  readonly #socket: Closable
  readonly #connected = Promise.withResolvers<number>()
  /** Resolved and made anew with every batch. */
  #next = Promise.withResolvers<true>()

  /** Throws EndpointError. */
  constructor(messages: MessageTransport, clock: Clock, endpoint: string) {
    this.#clock = clock
    this.#openedMs = clock.nowMs()
    this.#socket = messages.subscribe(
      { endpoint, topic: '' },
      {
        message: frames => this.#message(frames),
        connected: () => this.#connected.resolve(clock.nowMs() - this.#openedMs),
        disconnected: () => {},
      },
    )
  }

  /** Milliseconds that the connection took; undefined: there is none after `timeoutMs`. */
  connected(timeoutMs: number): Promise<number | undefined> {
    return until(this.#clock, this.#connected.promise, timeoutMs)
  }

  /** True as soon as `isEnough` is; false after `timeoutMs`. It is asked now and after every batch. */
  async seenEnough(isEnough: (seen: SeenEvents) => boolean, timeoutMs: number): Promise<boolean> {
    const endMs = this.#clock.nowMs() + timeoutMs
    for (;;) {
      if (isEnough(this.seen)) return true
      const leftMs = endMs - this.#clock.nowMs()
      if (leftMs <= 0 || (await until(this.#clock, this.#next.promise, leftMs)) === undefined) return false
    }
  }

  close(): void {
    this.#socket.close()
  }

  #message(frames: Frames): void {
    try {
      const { topic, sequence, payload } = parseEventFrames(frames)
      this.seen.batch(sequence, payload, topic)
    } catch (thrown) {
      if (!(thrown instanceof MalformedEventFramesError)) throw thrown
      this.seen.unreadable++
    }
    this.#next.resolve(true)
    this.#next = Promise.withResolvers()
  }
}
