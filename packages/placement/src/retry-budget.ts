/**
 * Retry budget: how many requests may be placed again after a worker failed them, as a share of the traffic.
 *
 * Each request adds `share`, each request that is placed again takes 1. So a fleet that fails as a whole gets
 * `1 + share` times its traffic at most, beyond the first RESERVE. The first break of a request is not asked
 * for here, nor is what a worker had when it began to answer badly: an engine that dies takes along more
 * requests than RESERVE, and each goes to one more worker.
 *
 * Second workers for a late first token take of it too, but only what lies above half of the RESERVE: the
 * rest is for requests that have failed.
 */

/** Tokens at the start, and the most that are saved up. */
const RESERVE = 32

export class RetryBudget {
  readonly #share: number
  #left = RESERVE

  /** `share`: 0 … 1. */
  constructor(share: number) {
    this.#share = share
  }

  get isEmpty(): boolean {
    return this.#left < 1
  }

  /** Whether a second worker may be asked for a request that has not failed. */
  get allowsHedge(): boolean {
    return this.#left >= RESERVE / 2 + 1
  }

  requested(): void {
    this.#left = Math.min(RESERVE, this.#left + this.#share)
  }

  placedAgain(): void {
    this.#left -= 1
  }

  /** What was taken for a placement that did not come about. */
  givenBack(): void {
    this.#left = Math.min(RESERVE, this.#left + 1)
  }
}
