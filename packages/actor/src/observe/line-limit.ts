/** LineLimit: limits log lines that may come in a flood: a few a second, then their number. */

import type { Clock } from '@homing/base'

const WINDOW_MS = 1000
const LINES_MAX = 10

export class LineLimit {
  readonly #clock: Clock
  #windowStartMs = Number.NEGATIVE_INFINITY
  #lines = 0
  #leftOut = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Whether the next line may go; `leftOut`: how many did not since the last window, to be told now. */
  next(): { readonly isAllowed: boolean; readonly leftOut: number } {
    const now = this.#clock.nowMs()
    let leftOut = 0
    if (now - this.#windowStartMs >= WINDOW_MS) {
      leftOut = this.#leftOut
      this.#windowStartMs = now
      this.#lines = 0
      this.#leftOut = 0
    }
    this.#lines++
    const isAllowed = this.#lines <= LINES_MAX
    if (!isAllowed) this.#leftOut++
    return { isAllowed, leftOut }
  }
}
