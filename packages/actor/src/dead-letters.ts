/**
 * Dead letters: messages that nobody will handle. Each is counted; the log gets a few per second and
 * then the number of those left out, so that a flood of dead letters is not a flood of lines.
 */

import type { Clock } from '@homing/clock'
import type { Log } from '@homing/log'

/** `dead`: no such actor; `stopped`: it waited when its actor stopped; `no arm`: no arm for its type. */
export type DeadLetterReason = 'dead' | 'stopped' | 'overflow' | 'no arm'

const WINDOW_MS = 1000
const LINES_MAX = 10

export class DeadLetterLog {
  readonly #clock: Clock
  readonly #log: Log
  #windowStartMs = Number.NEGATIVE_INFINITY
  #lines = 0
  #leftOut = 0

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  note(actor: string, type: string, reason: DeadLetterReason): void {
    const now = this.#clock.nowMs()
    if (now - this.#windowStartMs >= WINDOW_MS) {
      if (this.#leftOut > 0) this.#log.warn({ deadLetters: this.#leftOut }, 'more dead letters, not shown')
      this.#windowStartMs = now
      this.#lines = 0
      this.#leftOut = 0
    }
    this.#lines++
    if (this.#lines > LINES_MAX) {
      this.#leftOut++
      return
    }
    const fields = { actor, type, reason }
    // Ends and restarts leave dead letters; a lost or unknown message is degraded service.
    if (reason === 'overflow' || reason === 'no arm') this.#log.warn(fields, 'dead letter')
    else this.#log.debug(fields, 'dead letter')
  }
}
