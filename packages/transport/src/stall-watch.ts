/**
 * Stall watch: cuts a writer when its reader has taken none of the waiting bytes for `msMax` in a row.
 *
 * It checks LOOKS times per bound instead of at every write: a cut comes at most one look late, and an answer
 * that is read as fast as it is written costs no timer.
 */

import type { Clock, Timer } from '@homing/base'

const LOOKS = 4

export interface StalledWriter {
  /** Bytes that wait to be taken; 0: nothing does. */
  readonly waitingBytes: () => number
  /** A figure that changes whenever bytes were taken. */
  readonly progress: () => number
  readonly cut: () => void
}

export class StallWatch {
  readonly #clock: Clock
  readonly #msMax: number
  readonly #writer: StalledWriter
  #timer: Timer | undefined
  #progress = 0
  #sinceMs = 0

  /** `msMax` > 0; Infinity: never cuts. */
  constructor(clock: Clock, msMax: number, writer: StalledWriter) {
    this.#clock = clock
    this.#msMax = msMax
    this.#writer = writer
  }

  /**
   * Bytes may be waiting from now on; where none are, as mostly at the end of an answer, there is nothing to
   * watch.
   */
  start(): void {
    if (this.#timer !== undefined || this.#msMax === Number.POSITIVE_INFINITY) return
    if (this.#writer.waitingBytes() === 0) return
    this.#progress = this.#writer.progress()
    this.#sinceMs = this.#clock.nowMs()
    this.#lookLater()
  }

  /** Call it when no byte waits any more, or the reader is gone. */
  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #lookLater(): void {
    this.#timer = this.#clock.after(this.#msMax / LOOKS, () => this.#look())
  }

  #look(): void {
    this.#timer = undefined
    if (this.#writer.waitingBytes() === 0) return
    const nowMs = this.#clock.nowMs()
    const progress = this.#writer.progress()
    if (progress !== this.#progress) {
      this.#progress = progress
      this.#sinceMs = nowMs
    } else if (nowMs - this.#sinceMs >= this.#msMax) {
      this.#writer.cut()
      return
    }
    this.#lookLater()
  }
}
