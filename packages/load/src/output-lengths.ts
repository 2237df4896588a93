/**
 * Output lengths: how many tokens an answer has, learned from what engines say, so that no engine's word
 * moves what is expected of the fleet by much.
 *
 *   worker's mean  over its last answers (BoundedMean)
 *   fleet's mean   over the workers' means, each within OUTPUT_APART_TIMES of their median, each with the
 *                  weight of its answers, at most OUTPUT_WEIGHT_TIMES those of the median worker
 *
 * Between two workers the prior decides which of them is the outlier. A single worker is believed. If no
 * answer came for AGE_FREE_MS, half of what the fleet's mean differs from the prior goes in each
 * AGE_FLEET_HALF_MS, and half of what a worker's mean differs from that of the fleet in each
 * AGE_WORKER_HALF_MS.
 */

import { shareAfter } from './age.ts'
import { AUTO_CONSTANTS } from './auto-constants.ts'
import { BoundedMean } from './bounded-mean.ts'

const { OUTPUT_TOKENS_PRIOR, OUTPUT_APART_TIMES, OUTPUT_WEIGHT_TIMES, OUTPUT_EVERY } = AUTO_CONSTANTS.book
const { AGE_WORKER_HALF_MS, AGE_FLEET_HALF_MS } = AUTO_CONSTANTS.steps

interface WorkerOutputs {
  readonly lengths: BoundedMean
  /** Time of its last answer. */
  seenMs: number
}

type AgedMean = Pick<BoundedMean, 'mean' | 'count'>

export class OutputLengths {
  readonly #workers = new Map<number, WorkerOutputs>()
  #mean: number = OUTPUT_TOKENS_PRIOR
  #sinceMean = 0
  #nowMs = 0
  /** Time of the last answer of any worker. */
  #seenMs = 0

  /** Of the fleet. */
  get meanTokens(): number {
    return OUTPUT_TOKENS_PRIOR + this.#share * (this.#mean - OUTPUT_TOKENS_PRIOR)
  }

  /** The share of the fleet's mean that counts now. */
  get #share(): number {
    return shareAfter(this.#nowMs - this.#seenMs, AGE_FLEET_HALF_MS)
  }

  /** Mean of the worker now, and the number of answers that it is of; undefined: none ended. */
  of(workerSlot: number): { readonly tokens: number; readonly answers: number } | undefined {
    const worker = this.#workers.get(workerSlot)
    return worker && { tokens: this.#agedMean(worker), answers: worker.lengths.count }
  }

  /** The time by which what was learned ages. An earlier one than before has no effect. */
  tick(nowMs: number): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs
  }

  /** An answer of the worker in this slot ended, and has `tokens` > 0. */
  ended(workerSlot: number, tokens: number): void {
    let worker = this.#workers.get(workerSlot)
    if (worker === undefined) {
      worker = { lengths: new BoundedMean(OUTPUT_TOKENS_PRIOR), seenMs: this.#nowMs }
      this.#workers.set(workerSlot, worker)
    }
    const { lengths } = worker
    const share = this.#shareOf(worker)
    if (share < 1) lengths.towards(this.meanTokens, share)
    lengths.add(tokens)
    worker.seenMs = this.#nowMs
    const isAged = this.#share < 1
    const isDue = ++this.#sinceMean >= OUTPUT_EVERY || lengths.count <= OUTPUT_EVERY || isAged
    if (isDue) {
      this.#sinceMean = 0
      this.#mean = this.#workers.size === 1 ? lengths.mean : meanOf(this.#agedMeans())
    }
    this.#seenMs = this.#nowMs
  }

  #shareOf({ seenMs }: WorkerOutputs): number {
    return shareAfter(this.#nowMs - seenMs, AGE_WORKER_HALF_MS)
  }

  #agedMeans(): readonly AgedMean[] {
    return [...this.#workers.values()].map(worker => ({
      mean: this.#agedMean(worker),
      count: worker.lengths.count,
    }))
  }

  #agedMean(worker: WorkerOutputs): number {
    const fleet = this.meanTokens
    return fleet + this.#shareOf(worker) * (worker.lengths.mean - fleet)
  }

  /** The fleet's mean stays until another answer ends. */
  forget(workerSlot: number): void {
    this.#workers.delete(workerSlot)
  }

  /** Mean, number of answers, and ms since the last one; undefined: none ended. */
  image(workerSlot: number): Float64Array | undefined {
    const worker = this.#workers.get(workerSlot)
    if (worker === undefined) return undefined
    const { lengths, seenMs } = worker
    return Float64Array.of(lengths.mean, lengths.count, Math.max(0, this.#nowMs - seenMs))
  }

  /** The fleet's mean, and ms since the last answer. */
  get fleetImage(): Float64Array {
    return Float64Array.of(this.#mean, Math.max(0, this.#nowMs - this.#seenMs))
  }

  /** Takes over an image that was taken `agoMs` ago, unless it knows more already. */
  restore(workerSlot: number, image: Float64Array, agoMs: number): void {
    const [mean, count, sinceMs] = image
    if (this.#workers.has(workerSlot)) return
    const lengths = new BoundedMean(OUTPUT_TOKENS_PRIOR)
    lengths.restore(mean!, count!)
    this.#workers.set(workerSlot, { lengths, seenMs: this.#nowMs - agoMs - sinceMs! })
  }

  /** Takes over the fleet's mean, unless an answer has ended. */
  restoreFleet(image: Float64Array, agoMs: number): void {
    const [mean, sinceMs] = image
    if (this.#seenMs > 0 || this.#workers.size > 0) return
    this.#mean = mean!
    this.#seenMs = this.#nowMs - agoMs - sinceMs!
  }
}

/** Of at least two workers. */
function meanOf(workers: readonly AgedMean[]): number {
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
