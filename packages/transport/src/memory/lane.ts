/**
 * One direction of a connection in memory: what is put in comes out later, in order.
 *
 * Without delay it comes out in a microtask; with one, when the clock says so. What comes after
 * something delayed waits for it, as bytes on one connection do.
 */

import type { Clock } from '@homing/base'

export class Lane {
  readonly #clock: Clock
  #delayedCount = 0
  #lastDueMs = 0
  #isCut = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  put(delayMs: number, arrive: () => void): void {
    if (this.#isCut) return
    if (delayMs <= 0 && this.#delayedCount === 0) {
      queueMicrotask(() => {
        if (!this.#isCut) arrive()
      })
      return
    }
    const nowMs = this.#clock.nowMs()
    this.#lastDueMs = Math.max(this.#lastDueMs, nowMs + Math.max(0, delayMs))
    this.#delayedCount++
    this.#clock.after(this.#lastDueMs - nowMs, () => {
      this.#delayedCount--
      if (!this.#isCut) arrive()
    })
  }

  /** Loses what is under way, and all that is put in later. */
  cut(): void {
    this.#isCut = true
  }
}
