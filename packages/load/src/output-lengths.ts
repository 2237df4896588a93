/**
 * Output lengths: how many tokens an answer has, learned from what engines say, so that no engine's word
 * moves what is expected of the fleet by much.
 *
 *   worker's mean  over its last answers (BoundedMean)
 *   fleet's mean   over the workers' means, each within OUTPUT_APART_TIMES of their median, each with the
 *                  weight of its answers, at most OUTPUT_WEIGHT_TIMES those of the median worker
 *
 * Between two workers the prior decides which of them is the outlier. A single worker is believed.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { BoundedMean } from './bounded-mean.ts'

const { OUTPUT_TOKENS_PRIOR, OUTPUT_APART_TIMES, OUTPUT_WEIGHT_TIMES, OUTPUT_EVERY } = AUTO_CONSTANTS.book

export class OutputLengths {
  readonly #workers = new Map<number, BoundedMean>()
  #mean: number = OUTPUT_TOKENS_PRIOR
  #sinceMean = 0

  /** Of the fleet. */
  get meanTokens(): number {
    return this.#mean
  }

  /** An answer of the worker in this slot ended, and has `tokens` > 0. */
  ended(workerSlot: number, tokens: number): void {
    let worker = this.#workers.get(workerSlot)
    if (worker === undefined) {
      worker = new BoundedMean(OUTPUT_TOKENS_PRIOR)
      this.#workers.set(workerSlot, worker)
    }
    worker.add(tokens)
    const { size } = this.#workers
    if (++this.#sinceMean < OUTPUT_EVERY && worker.count > OUTPUT_EVERY) return
    this.#sinceMean = 0
    this.#mean = size === 1 ? worker.mean : meanOf([...this.#workers.values()])
  }

  /** The fleet's mean stays until another answer ends. */
  forget(workerSlot: number): void {
    this.#workers.delete(workerSlot)
  }
}

/** Of at least two workers. */
function meanOf(workers: readonly BoundedMean[]): number {
  const means = workers.map(({ mean }) => mean)
  const middle = median(means.length === 2 ? [...means, OUTPUT_TOKENS_PRIOR] : means)
  const weightMax = OUTPUT_WEIGHT_TIMES * median(workers.map(({ count }) => count))
  let sum = 0
  let weights = 0
  for (const { mean, count } of workers) {
    const weight = Math.min(count, weightMax)
    sum += weight * Math.min(OUTPUT_APART_TIMES * middle, Math.max(middle / OUTPUT_APART_TIMES, mean))
    weights += weight
  }
  return sum / weights
}

/** Of an even number, the lower one of the two in the middle. */
function median(figures: readonly number[]): number {
  return figures.toSorted((a, b) => a - b)[(figures.length - 1) >> 1]!
}
