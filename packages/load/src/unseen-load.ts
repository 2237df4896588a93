/**
 * Unseen load: what own bookings do not explain. Other routers use the same workers, and so do clients that
 * go past this one. Their requests are not booked here; what shows is that first tokens are overdue.
 *
 *   backlog         = own queue + overdue weight · min(10 s, how long the first token of its head is overdue)
 *   overdue weight  = 4 · (unseen share − 0.01), within 0 … 1
 *   unseen share    = mean over the last own requests of late − early
 *   late            = max(0, 1 − 1.25 · expected ÷ observed time to the first token)
 *   early           = max(0, 1 − 2 · observed ÷ expected time)
 *
 * Where own bookings explain the times, the unseen share is below 0.01 and the weight is 0: in the simulator,
 * up to 85 % of capacity. Times that vary by chance raise the weight: by a fifth (the standard deviation of
 * their logarithm) to 0.01, by 0.3 to 0.09, by a half to 0.23. Where many first tokens are far too early,
 * those that are late say nothing of load, either. A first token that has come says nothing of the next one:
 * what held it up is over. Without one for AGE_FREE_MS, half of the unseen share goes in each
 * AGE_WORKER_HALF_MS.
 *
 * Invariant   A single request moves the unseen share by 2/REACH_REQUESTS at most, however late its first
 *             token is.
 * Source      docs/decisions/0037-what-auto-weighs.md, section Unseen load.
 */

import { shareAfter } from './age.ts'
import { AUTO_CONSTANTS } from './auto-constants.ts'
import type { Slot } from './engine-slot.ts'

const { REACH_REQUESTS, LATE_TIMES, EARLY_TIMES, UNSEEN_SHARE_MIN, UNSEEN_WEIGHT, OVERDUE_MS_MAX } =
  AUTO_CONSTANTS.unseen
const { AGE_WORKER_HALF_MS } = AUTO_CONSTANTS.steps

/** How far own bookings fail to explain when first tokens come. */
export class UnseenLoad {
  /** The unseen share; −1 … 1. It begins at 0: nothing is unseen until many requests say so. */
  #share = 0
  #nowMs = 0
  /** Time of the last first token. */
  #seenMs = 0

  /** The unseen share now: without first tokens it ages. */
  get share(): number {
    return this.#share * shareAfter(this.#nowMs - this.#seenMs, AGE_WORKER_HALF_MS)
  }

  /** The time by which it ages. An earlier one than before has no effect. */
  tick(nowMs: number): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs
  }

  /** Takes over the share of an earlier life, −1 … 1. */
  restore(share: number, agoMs: number): void {
    this.#share = share
    this.#seenMs = this.#nowMs - agoMs
  }

  /** What an overdue millisecond weighs, 0 … 1. */
  get overdueWeight(): number {
    return Math.min(1, UNSEEN_WEIGHT * Math.max(0, this.share - UNSEEN_SHARE_MIN))
  }

  /**
   * A first token came after `seenMs`; `expectedFirstTokenMs` ≥ 0 was estimated when its request was sent.
   */
  firstToken(expectedFirstTokenMs: number, seenMs: number): void {
    const before = this.share
    this.#share = before + (lateShare(expectedFirstTokenMs, seenMs) - before) / REACH_REQUESTS
    this.#seenMs = this.#nowMs
  }
}

/**
 * The share of the time that it was late by; below 0 if it took less than half of what was expected; −1 … 1.
 */
function lateShare(expectedMs: number, seenMs: number): number {
  const ratio = expectedMs / Math.max(1, seenMs)
  if (ratio <= 1) return Math.max(0, 1 - LATE_TIMES * ratio)
  return Math.min(0, EARLY_TIMES / ratio - 1)
}

/**
 * How long the first token of the head is overdue, in ms; 0 … OVERDUE_MS_MAX. It is due when it was expected,
 * and not before its prefill can be over: the head before it may have been late. It is 0 where a later own
 * request was served first, as then the head does not wait for the worker, and where the head is not timed. A
 * request that does not stream leaves the queue when it is due.
 */
export function overdueOf(entry: Slot, now: number): number {
  if (entry.queue.size === 0) return 0
  const [head] = entry.queue
  const { isTimed, sentMs, expectedFirstTokenMs, prefillMs, decodeAddedMs } = head!
  if (!isTimed || sentMs < entry.newestServedSentMs) return 0
  const dueMs = Math.max(sentMs + expectedFirstTokenMs, entry.headMs + prefillMs + decodeAddedMs)
  return Math.min(OVERDUE_MS_MAX, Math.max(0, now - dueMs))
}
