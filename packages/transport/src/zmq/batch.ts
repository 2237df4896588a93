/**
 * The messages between host and client in a burst, packed into one buffer that is transferred, not copied.
 *
 *   | word count n | n words: op, socket, value, frame count, size of each frame … | the frames |
 *
 * Cost: each frame is copied once, into the buffer; the reader gets views of it.
 */

import type { EventPath, Offered } from '../message-types.ts'

export type Op = (typeof OP)[keyof typeof OP]

/** What an entry says; `value` and frames are given where they mean something. */
export const OP = {
  /** To the client: a message was received. To the host: send one. A router's peer is the first frame. */
  message: 1,
  /** `value` is the position of the path in PATHS; the frame, if there is one, the life of the publisher. */
  connected: 2,
  disconnected: 3,
  /** To the host. */
  close: 4,
  /** To the client: `value` messages of a dealer wait in the host no longer. */
  taken: 5,
  /** To the client: the router's peer named by the frame has gone. */
  gone: 6,
  /** `value` bytes of batches have been dealt with. */
  done: 7,
  /** To the host: send a router's message as `message` does, and answer `offered` with the same `value`. */
  offer: 8,
  /** To the client, of offer `value`: the one frame is the position of its outcome in OFFERED. */
  offered: 9,
  /**
   * To the host, of a subscriber: the message with the number `value` and all before it are dealt with; of a
   * dealer: `value` more messages are. Messages of a subscriber have their number as `value`.
   */
  handled: 10,
} as const

/** Outcomes of an offer, by number. */
export const OFFERED = ['taken', 'full', 'gone'] as const satisfies readonly Offered[]

/** How messages come, by number. */
export const PATHS = ['publisher', 'stream'] as const satisfies readonly EventPath[]

const NO_FRAMES: readonly Uint8Array[] = []

export class BatchWriter {
  #words: number[] = []
  #frames: Uint8Array[] = []
  #frameBytes = 0

  get isEmpty(): boolean {
    return this.#words.length === 0
  }

  /** About what `take` would hand over. */
  get sizeBytes(): number {
    return this.#frameBytes + 4 * this.#words.length
  }

  /** The frames are read at `take`. */
  add(op: Op, socket: number, value = 0, frames = NO_FRAMES): void {
    this.#words.push(op, socket, value, frames.length)
    for (const frame of frames) {
      this.#words.push(frame.length)
      this.#frames.push(frame)
      this.#frameBytes += frame.length
    }
  }

  /** All entries since the last time. */
  take(): ArrayBuffer {
    const headBytes = 4 * (this.#words.length + 1)
    const buffer = new ArrayBuffer(headBytes + this.#frameBytes)
    const words = new Int32Array(buffer, 0, this.#words.length + 1)
    words[0] = this.#words.length
    words.set(this.#words, 1)
    const bytes = new Uint8Array(buffer)
    let at = headBytes
    for (const frame of this.#frames) {
      bytes.set(frame, at)
      at += frame.length
    }
    this.#words = []
    this.#frames = []
    this.#frameBytes = 0
    return buffer
  }
}

/** Tells the entries in order. The frames are views of the buffer. */
export function readBatch(
  buffer: ArrayBuffer,
  onEntry: (op: Op, socket: number, value: number, frames: Uint8Array[]) => void,
): void {
  const wordCount = new Int32Array(buffer, 0, 1)[0]!
  const words = new Int32Array(buffer, 4, wordCount)
  let byteAt = 4 * (wordCount + 1)
  for (let at = 0; at < wordCount; ) {
    const frameCount = words[at + 3]!
    const frames: Uint8Array[] = []
    for (let i = 0; i < frameCount; i++) {
      const size = words[at + 4 + i]!
      frames.push(new Uint8Array(buffer, byteAt, size))
      byteAt += size
    }
    onEntry(words[at] as Op, words[at + 1]!, words[at + 2]!, frames)
    at += 4 + frameCount
  }
}
