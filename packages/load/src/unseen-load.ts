/**
 * Unseen load: what own bookings do not explain. Other routers use the same workers, and clients that go past this one. Their requests are not
 * booked here; what shows is that first tokens are overdue.
 *
 *   backlog = own queue + u · min(10 s, how long the first token of its head is overdue)
 *   u = 4 · (m − 0.01) within 0 … 1
 *   m = mean of max(0, 1 − 1.25 · expected ÷ seen) − max(0, 1 − 2 · seen ÷ expected) over the times to the first token of the last own requests
 *
 * Where own bookings explain the times, m is below 0.01: in the simulator, up to 85 % of capacity. Then u is 0. Times that vary by chance raise it: by a fifth (the
 * standard deviation of their logarithm) u is 0.01, by 0.3 0.09, by a half 0.23. Where many first tokens are far too early, those that are late say
 * nothing of load, either. A first token that has come says nothing of the next one: what held it up is over.
 *
 * Invariant   A single request moves m by 2/REACH_REQUESTS at most, however late its first token is.
 */

import type { Slot } from './engine-slot.ts'

/** Requests that m reaches back. */
const REACH_REQUESTS = 500
/** A first token may come so many times later than expected without being late. */
const LATE_TIMES = 1.25
/** A first token that comes so many times sooner than expected was not told when it came, or the expectation is wrong. */
const EARLY_TIMES = 2
/** What is late by chance, as a share of the time to the first token. */
const UNSEEN_SHARE_MIN = 0.01
/** What a share beyond it weighs. */
const UNSEEN_WEIGHT = 4
/** A first token that is overdue for longer may never come. */
const OVERDUE_MAX_MS = 10_000

/** How far own bookings fail to explain when first tokens come. */
export class UnseenLoad {
  /** The m above; −1 … 1. It begins at 0: nothing is unseen until many requests say so. */
  #share = 0

  /** The u above: what an overdue millisecond weighs, 0 … 1. */
  get overdueWeight(): number {
    return Math.min(1, UNSEEN_WEIGHT * Math.max(0, this.#share - UNSEEN_SHARE_MIN))
  }

  /** A first token came after `seenMs`; `expectedFirstTokenMs` ≥ 0 was estimated when its request was sent. */
  firstToken(expectedFirstTokenMs: number, seenMs: number): void {
    this.#share += (lateShare(expectedFirstTokenMs, seenMs) - this.#share) / REACH_REQUESTS
  }
}

/** The share of the time that it was late by; below 0 if it took less than half of what was expected; −1 … 1. */
function lateShare(expectedMs: number, seenMs: number): number {
  const ratio = expectedMs / Math.max(1, seenMs)
  if (ratio <= 1) return Math.max(0, 1 - LATE_TIMES * ratio)
  return Math.min(0, EARLY_TIMES / ratio - 1)
}

/**
 * How long the first token of the head is overdue, in ms; 0 … OVERDUE_MAX_MS. It is due when it was expected, and not before its prefill can be
 * over: the head before it may have been late. 0 where a later own request was served first, as then the worker is not what it waits for, and
 * where it is not timed. One that does not stream leaves the queue when it is due.
 */
export function overdueOf(entry: Slot, now: number): number {
  if (entry.queue.size === 0) return 0
  const [head] = entry.queue
  const { isTimed, sentMs, expectedFirstTokenMs, prefillMs, decodeAddedMs } = head!
  if (!isTimed || sentMs < entry.newestServedSentMs) return 0
  const dueMs = Math.max(sentMs + expectedFirstTokenMs, entry.headMs + prefillMs + decodeAddedMs)
  return Math.min(OVERDUE_MAX_MS, Math.max(0, now - dueMs))
}
