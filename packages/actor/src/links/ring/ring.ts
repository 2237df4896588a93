/**
 * Ring: a queue of frames in shared memory with one writer and one reader, each on its own thread.
 *
 *   word 0   tail: position up to which frames are published; only the writer stores it
 *   word 16  head: position up to which frames are taken; only the reader stores it
 *   word 32  reader state: RUNNING, or PARKED when the writer has to wake it
 *   word 48  writer state: RUNNING, or WAITING for space
 *   word 64  the frames; each begins with its size in words, or WRAP: go on at the start
 *
 * Positions count words and wrap at 2³²; their difference is what is in the ring.
 *
 * Invariants
 *   I1  0 ≤ tail − head ≤ capacity. The reader touches only words between them, the writer only the rest;
 *       tail and head are stored after the words before them were written or read.
 *   I2  No lost wake-up. The reader stores PARKED, then loads tail; the writer stores tail, then loads the
 *       reader state. In whatever order these happen, one of the two sees the other. The same holds for
 *       WAITING and head.
 *   I3  One doorbell for each park: the side that exchanges PARKED (or WAITING) for RUNNING rings it.
 *
 * All of it outlives its threads. A reader that is made on a used ring goes on at its head: frames that an
 * earlier reader had taken stay taken. Checked by test/model (every interleaving within bounds).
 */

import type { Words } from './words.ts'

const TAIL = 0
const HEAD = 16
const READER = 32
const WRITER = 48
/** Index of the first word of frames. */
export const RING_DATA = 64

const RUNNING = 0
const PARKED = 1
const WAITING = 1

/** In place of a size: the rest of the words up to the end are not used. */
const WRAP = -1

/** Bytes of a ring for `capacityWords` words of frames, a power of two. */
export function ringBytes(capacityWords: number): number {
  return (RING_DATA + capacityWords) * Int32Array.BYTES_PER_ELEMENT
}

/** The side that writes frames; made once for each ring. */
export class RingWriter {
  readonly #words: Words
  readonly #capacity: number
  readonly #mask: number
  #head = 0
  /** Up to here frames are written; they are published later, many at a time. */
  #tail = 0
  #published = 0

  constructor(words: Words, capacityWords: number) {
    this.#words = words
    this.#capacity = capacityWords
    this.#mask = capacityWords - 1
  }

  get hasUnpublished(): boolean {
    return this.#tail !== this.#published
  }

  /** Position after the last frame that was committed. */
  get position(): number {
    return this.#tail
  }

  get isReaderParked(): boolean {
    return this.#words.load(READER) === PARKED
  }

  /** Position up to which frames are published. */
  get publishedPosition(): number {
    return this.#published
  }

  /** Position up to which the reader has taken frames. */
  get takenPosition(): number {
    return this.#words.load(HEAD)
  }

  /**
   * Index of `size` free words in a row, for a frame; −1 when there is no room yet. Nothing is taken until
   * `commit`. `size` is at most a quarter of the capacity.
   */
  reserve(size: number): number {
    const index = this.#tail & this.#mask
    const toEnd = this.#capacity - index
    const isWrapping = size > toEnd
    const needed = isWrapping ? toEnd + size : size
    if (needed > this.#capacity - ((this.#tail - this.#head) | 0)) {
      this.#head = this.#words.load(HEAD)
      if (needed > this.#capacity - ((this.#tail - this.#head) | 0)) return -1
    }
    if (!isWrapping) return RING_DATA + index
    this.#words.write(RING_DATA + index, WRAP)
    this.#tail = (this.#tail + toEnd) | 0
    return RING_DATA
  }

  /** Adds the frame at the index that `reserve` returned; it has `size` words, at most what was reserved. */
  commit(index: number, size: number): void {
    this.#words.write(index, size)
    this.#tail = (this.#tail + size) | 0
  }

  /** Shows the reader all that was committed. True: it is parked, and the caller has to wake it. */
  publish(): boolean {
    const words = this.#words
    words.store(TAIL, this.#tail)
    this.#published = this.#tail
    return words.load(READER) === PARKED && words.exchange(READER, RUNNING) === PARKED
  }

  /** Asks to be woken when frames are taken. False: some were taken by now, so try again at once. */
  awaitSpace(): boolean {
    const words = this.#words
    words.store(WRITER, WAITING)
    if (words.load(HEAD) === this.#head) return true
    words.store(WRITER, RUNNING)
    return false
  }
}

/** The side that takes frames; another one may be made when its thread has died. */
export class RingReader {
  readonly #words: Words
  readonly #capacity: number
  readonly #mask: number
  #head: number
  #tail: number

  constructor(words: Words, capacityWords: number) {
    this.#words = words
    this.#capacity = capacityWords
    this.#mask = capacityWords - 1
    this.#head = words.load(HEAD)
    this.#tail = this.#head
  }

  /** Words that were published when it last looked, and not gone past. */
  get knownSize(): number {
    return (this.#tail - this.#head) | 0
  }

  /** Index of the next frame, whose first word is its size; −1 when there is none. */
  next(): number {
    for (;;) {
      if (this.#head === this.#tail) {
        this.#tail = this.#words.load(TAIL)
        if (this.#head === this.#tail) return -1
      }
      const index = this.#head & this.#mask
      if (this.#words.read(RING_DATA + index) !== WRAP) return RING_DATA + index
      this.#head = (this.#head + this.#capacity - index) | 0
    }
  }

  /** Goes past the frame at the index that `next` returned. Its words stay until `release`. */
  skip(index: number): void {
    this.#head = (this.#head + this.#words.read(index)) | 0
  }

  /**
   * Gives back the words of all frames gone past. True: the writer waits, and the caller has to wake it. That
   * is not before half of the ring is free, so that it does not wake for each batch; no frame needs more.
   */
  release(): boolean {
    const words = this.#words
    words.store(HEAD, this.#head)
    if (words.load(WRITER) !== WAITING) return false
    this.#tail = words.load(TAIL)
    if (((this.#tail - this.#head) | 0) > this.#capacity >> 1) return false
    return words.exchange(WRITER, RUNNING) === WAITING
  }

  /** Asks to be woken when frames come. False: some have come, so go on. Call only after `release`. */
  park(): boolean {
    const words = this.#words
    words.store(READER, PARKED)
    if (words.load(TAIL) === this.#head) return true
    words.store(READER, RUNNING)
    return false
  }

  /** After a park that the reader ended by itself, or at the start on a used ring. */
  unpark(): void {
    this.#words.store(READER, RUNNING)
  }
}
