/**
 * Drain: an actor on its way to a stop that handles first what waits for it (`stop` with `after: 'mailbox'`).
 *
 *   catching up ──▶ emptying ──nothing waits or is in flight──▶ children ──all ended──▶ the stop of any actor
 *        └────────────┴──────────── the time is over ────────────┴──▶ the same stop; what waits is dropped
 *
 * Catching up: messages of other threads may still be on their way. Each thread answers once, over the link
 * that carries its messages, so all its earlier messages have arrived by then. Until all have answered, only
 * frames are taken; after that nothing.
 *
 * Nothing waits: no message, no arm or piped promise in flight, and every ask that the actor took has
 * settled. Then its children drain in the time that is left, the last spawned first, each before the next;
 * children.ts divides the time.
 */

import type { Clock } from '@homing/base'
import type { Deadline } from '../values/deadlines.ts'

/** How long threads are waited for that do not say that they have sent all. */
export const CATCH_UP_MS_MAX = 1000

export class Drain {
  /** Cuts it short. */
  readonly limit: Deadline
  readonly #clock: Clock
  readonly #dueMs: number
  /** What other threads had sent may still be on its way. */
  isCatchingUp = true
  /** It has handled everything, and waits for its children. */
  isEmpty = false

  constructor(clock: Clock, limit: Deadline, withinMs: number) {
    this.limit = limit
    this.#clock = clock
    this.#dueMs = clock.nowMs() + withinMs
  }

  get leftMs(): number {
    return Math.max(0, this.#dueMs - this.#clock.nowMs())
  }
}
