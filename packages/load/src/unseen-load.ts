/**
 * Unseen load: what own bookings do not explain. Other routers use the same workers, and clients that go past this one. Their requests are not
 * booked here; what shows is that first tokens are overdue.
 *
 *   backlog = own queue + u · min(10 s, how long the first token of its head is overdue)
 *   u = 4 · (m − 0.03) within 0 … 1
 *   m = mean of max(0, 1 − expected ÷ seen) − max(0, 1 − 2 · seen ÷ expected) over the times to the first token of the last requests of the fleet
 *
 * Where own bookings explain the times, m is 0.025 at most up to 85 % of capacity, so u is 0. Where many first tokens are far too early, those that
 * are late say nothing of load, either. A first token that has come says nothing of the next one: what held it up is over.
 *
 * Invariant   A single request moves m by 2/REACH_REQUESTS at most, however late its first token is.
 */

import type { Slot } from './engine-slot.ts'

/** Requests that m reaches back. */
const REACH_REQUESTS = 500
/** Of the time to the first token, the share that predictions miss where nobody else uses the workers. */
const UNSEEN_SHARE_MIN = 0.03
/** What a share beyond it weighs: that of two routers is 0.07 to 0.2, that of four 0.1 to 0.25. */
const UNSEEN_WEIGHT = 4
/** A first token that comes so many times faster than expected is not told by the worker, or the expectation is wrong. */
const EARLY_TIMES = 2
/** A first token that is overdue for longer may never come. */
const OVERDUE_MAX_MS = 10_000

export class UnseenLoad {
  /** The m above; −1 … 1. It begins at 0: nothing is unseen until many requests say so. */
  #share = 0

  /** The u above: what an overdue millisecond weighs, 0 … 1. */
  get weight(): number {
    return Math.min(1, UNSEEN_WEIGHT * Math.max(0, this.#share - UNSEEN_SHARE_MIN))
  }

  /** A first token came after `seenMs`; `expectedMs` ≥ 0 was estimated when its request was sent. */
  firstToken(expectedMs: number, seenMs: number): void {
    this.#share += (unexpectedShare(expectedMs, seenMs) - this.#share) / REACH_REQUESTS
  }
}

/** The share of the time that was not expected; below 0 if it took less than half of what was expected; −1 … 1. */
function unexpectedShare(expectedMs: number, seenMs: number): number {
  const ratio = expectedMs / Math.max(1, seenMs)
  if (ratio <= 1) return 1 - ratio
  return Math.min(0, EARLY_TIMES / ratio - 1)
}

/**
 * How long the first token of the head is overdue, in ms; 0 … OVERDUE_MAX_MS. If a later request was served before it, the worker is not what it waits for. If it
 * is not timed, its first token may have come.
 */
export function overdueOf(entry: Slot, now: number): number {
  if (entry.queue.size === 0) return 0
  const [head] = entry.queue
  if (!head!.isTimed || head!.sentMs < entry.servedSentMs) return 0
  return Math.min(OVERDUE_MAX_MS, Math.max(0, now - head!.sentMs - head!.expectedMs))
}
