/**
 * Overload: when a refused request may come back, if it was refused because every worker is past a busy
 * threshold.
 *
 * Recently refused requests count as if they waited. The estimate: at the rate at which requests were placed
 * since the first refusal, how long until all of them are placed. Refusals and placements fade with time
 * (drain-rate.ts), so a client that does not come back is forgotten.
 */

import { DrainRate, FadingSum } from './drain-rate.ts'

const SECONDS_MAX = 60
/** With less than one refused request, as it fades, nobody is owed a place. */
const REFUSED_MIN = 0.5

export class Overload {
  readonly #refused = new FadingSum()
  #rate = new DrainRate()

  /**
   * A request was refused. Returns the seconds for its `Retry-After`, 1 … 60; undefined: nothing has been
   * placed since the first.
   */
  refused(nowMs: number): number | undefined {
    if (this.#refused.at(nowMs) < REFUSED_MIN) {
      // The time without anybody to place says nothing of how fast places come.
      this.#rate = new DrainRate()
      this.#rate.waits(true, nowMs)
    }
    this.#refused.add(1, nowMs)
    const perMs = this.#rate.tokensPerMs(nowMs)
    if (perMs === undefined) return undefined
    const waitMs = this.#refused.at(nowMs) / perMs
    return Math.min(SECONDS_MAX, Math.max(1, Math.ceil(waitMs / 1000)))
  }

  /** A request was placed. */
  placed(nowMs: number): void {
    if (this.#refused.at(nowMs) >= REFUSED_MIN) this.#rate.drained(1, nowMs)
  }
}
