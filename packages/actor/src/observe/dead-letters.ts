/**
 * Dead letters: messages that no actor will handle. Each is counted and noted; the log gets a few per second
 * and then the number of the others, so that a flood of dead letters is not a flood of lines.
 */

import type { Clock, Log } from '@homing/base'
import { DEAD_LETTER_REASONS, type DeadLetterReason } from '../values/dead-letters.ts'
import type { Counts } from './counts.ts'
import type { FlightRecorder } from './flight.ts'
import { LineLimit } from './line-limit.ts'

export class DeadLetters {
  readonly #counts: Counts
  readonly #flight: FlightRecorder
  readonly #log: Log
  readonly #limit: LineLimit

  constructor(counts: Counts, flight: FlightRecorder, clock: Clock, log: Log) {
    this.#counts = counts
    this.#flight = flight
    this.#log = log
    this.#limit = new LineLimit(clock)
  }

  /**
   * `id`: of the actor, when it is or was on this thread; `why` says more, where the reason leaves something
   * open.
   */
  add(actor: string, type: string, reason: DeadLetterReason, id = 0, why?: string): void {
    this.#counts.deadLetter(reason)
    // What coalescing is there for is no event, and no news.
    if (reason === 'coalesced') return
    this.#flight.note('deadLetter', id, type, DEAD_LETTER_REASONS.indexOf(reason))
    const { leftOut, isAllowed } = this.#limit.next()
    if (leftOut > 0) this.#log.warn({ deadLetters: leftOut }, 'more dead letters, not shown')
    if (!isAllowed) return
    const fields = { actor, type, reason, ...(why === undefined ? {} : { why }) }
    // Ends and restarts leave dead letters; a lost or unknown message is degraded service.
    if (reason === 'dead' || reason === 'stopped') this.#log.debug(fields, 'dead letter')
    else this.#log.warn(fields, 'dead letter')
  }
}
