/**
 * Bounded mean: a running mean of positive figures that no single one moves far. After the first
 * MEAN_FIRST_FIGURES a figure counts as at most MEAN_OUTLIER_TIMES the mean, or the usual figure where that
 * is more: a mean that begins near 0 would grow too slowly.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'

const { MEAN_REQUESTS, MEAN_FIRST_FIGURES, MEAN_OUTLIER_TIMES } = AUTO_CONSTANTS.book

export class BoundedMean {
  readonly #usual: number
  #mean = 0
  #count = 0

  /** `usual`: a figure that is no outlier, whatever the mean is. */
  constructor(usual: number) {
    this.#usual = usual
  }

  get mean(): number {
    return this.#mean
  }

  /** Number of figures so far. */
  get count(): number {
    return this.#count
  }

  /** Takes over a mean ≥ 0 of `count` figures, unless it has any. */
  restore(mean: number, count: number): void {
    if (this.#count > 0) return
    this.#mean = mean
    this.#count = count
  }

  /** Keeps this share, 0 … 1, of what its mean differs from `other`. */
  towards(other: number, share: number): void {
    this.#mean = other + share * (this.#mean - other)
  }

  /** `figure` ≥ 0. */
  add(figure: number): void {
    const isFirst = this.#count < MEAN_FIRST_FIGURES
    const most = isFirst
      ? Infinity
      : MEAN_OUTLIER_TIMES * Math.max(this.#mean, this.#usual / MEAN_OUTLIER_TIMES)
    this.#mean += (Math.min(figure, most) - this.#mean) / Math.min(MEAN_REQUESTS, ++this.#count)
  }
}
