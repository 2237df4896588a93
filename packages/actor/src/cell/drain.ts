/**
 * Drain: an actor on its way to a stop that handles first what waits for it (`stop` with `after: 'mailbox'`).
 *
 *   catching up ──▶ emptying ──nothing waits or is in flight──▶ children ──all ended──▶ the stop of any actor
 *        └────────────┴──────────── the time is over ────────────┴──▶ the same stop; what waits is dropped
 *
 * Catching up: other threads may have told it something that is still on its way. Each answers once, over the
 * link that carries its messages; so what it had sent before has come by then. Until then only frames are
 * taken; after that nothing.
 *
 * Nothing waits: no message, no arm or piped promise in flight, and every ask that it took has settled. Then
 * its children drain within what is left of the time, the last spawned first, each before the next:
 * children.ts divides it.
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
