/**
 * Dead letters: messages that nobody will handle. Each is counted (see observe/counts.ts); the log gets a few per second and
 * then the number of those left out, so that a flood of dead letters is not a flood of lines.
 */

import type { Clock } from '@homing/clock'
import type { Log } from '@homing/log'
import { LineLimit } from './line-limit.ts'

/**
 * `dead`: no such actor; `stopped`: it waited when its actor stopped; `no arm`: no arm for its type;
 * `overflow`: its mailbox was full; `coalesced`: a newer one with its key took its place;
 * `unserializable`: it cannot travel to the thread of its actor; `shed`: the heap of that thread was nearly full;
 * `unreadable`: it came from another thread and could not be read; `malformed`: it is no object whose `type` is a string.
 */
export type DeadLetterReason = (typeof DEAD_LETTER_REASONS)[number]
export const DEAD_LETTER_REASONS = [
  'dead',
  'stopped',
  'overflow',
  'coalesced',
  'no arm',
  'unserializable',
  'shed',
  'unreadable',
  'malformed',
] as const

/** Dead letters, by reason. */
export type DeadLetterCounts = Record<DeadLetterReason, number>

export function noDeadLetters(): DeadLetterCounts {
  return Object.fromEntries(DEAD_LETTER_REASONS.map(reason => [reason, 0])) as DeadLetterCounts
}

export class DeadLetterLog {
  readonly #log: Log
  readonly #limit: LineLimit

  constructor(clock: Clock, log: Log) {
    this.#log = log
    this.#limit = new LineLimit(clock)
  }

  /** `why` says more, where the reason leaves something open. */
  note(actor: string, type: string, reason: DeadLetterReason, why?: string): void {
    // What coalescing is there for is no news.
    if (reason === 'coalesced') return
    const { leftOut, isAllowed } = this.#limit.next()
    if (leftOut > 0) this.#log.warn({ deadLetters: leftOut }, 'more dead letters, not shown')
    if (!isAllowed) return
    const fields = { actor, type, reason, ...(why === undefined ? {} : { why }) }
    // Ends and restarts leave dead letters; a lost or unknown message is degraded service.
    if (reason === 'dead' || reason === 'stopped') this.#log.debug(fields, 'dead letter')
    else this.#log.warn(fields, 'dead letter')
  }
}
