/**
 * Bounded mean: a running mean of positive figures that no single one moves far. After the first
 * MEAN_FIRST_FIGURES a figure counts as at most MEAN_OUTLIER_TIMES the mean.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'

const { MEAN_REQUESTS, MEAN_FIRST_FIGURES, MEAN_OUTLIER_TIMES } = AUTO_CONSTANTS.book

export class BoundedMean {
  #mean: number
  #count = 0

  /** `prior`: the mean before the first figure. */
  constructor(prior = 0) {
    this.#mean = prior
  }

  get mean(): number {
    return this.#mean
  }

  /** Number of figures so far. */
  get count(): number {
    return this.#count
  }

  /** `figure` ≥ 0. */
  add(figure: number): void {
    const most = this.#count < MEAN_FIRST_FIGURES ? Infinity : MEAN_OUTLIER_TIMES * this.#mean
    this.#mean += (Math.min(figure, most) - this.#mean) / Math.min(MEAN_REQUESTS, ++this.#count)
  }
}
