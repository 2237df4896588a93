/**
 * Whole times: how long whole answers of workers take, from sending to the end, and so how much faster than
 * the fleet each may be.
 *
 *   ratio            ln(time of an answer ÷ what the fleet takes for its prompt and a mean answer, if idle)
 *   faster at most   FASTER_TIMES · e^(median of the workers' mean ratios − that of the worker), at least 1
 *
 * An engine may say what it likes of its tokens, and send a first token that is none, so that it seems to
 * compute in no time. When its answers end is seen by those who wait for them. Lengths of answers vary, and
 * differ between models; a mean over WHOLE_ANSWERS evens out the former, and the latter are alike among the
 * workers that a request can go to.
 *
 * Of fewer than COMPARED_MIN workers no one can say which is the odd one: there is no limit.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'

const { COMPARED_MIN, FASTER_TIMES, WHOLE_ANSWERS, WHOLE_ANSWERS_MIN, WHOLE_RATIO_MAX } = AUTO_CONSTANTS.steps

interface Ratio {
  mean: number
  answers: number
}

export class WholeTimes {
  readonly #workers = new Map<number, Ratio>()
  #median = 0
  #isCompared = false
  #sinceMedian = 0

  /** An answer of the worker in this slot has ended; both in ms. */
  ended(workerSlot: number, observedMs: number, ofFleetMs: number): void {
    const ratio = observedMs / ofFleetMs
    if (!(ratio > 0 && ratio < Infinity)) return
    const known = this.#workers.get(workerSlot) ?? { mean: 0, answers: 0 }
    const log = Math.log(Math.min(WHOLE_RATIO_MAX, Math.max(1 / WHOLE_RATIO_MAX, ratio)))
    known.mean += (log - known.mean) / Math.min(WHOLE_ANSWERS, ++known.answers)
    this.#workers.set(workerSlot, known)
    if (++this.#sinceMedian >= WHOLE_ANSWERS_MIN) this.#compare()
  }

  /** How many times as fast as the fleet the worker is believed to be at most; ≥ 1. */
  fasterTimesMax(workerSlot: number): number {
    if (!this.#isCompared) return this.#workers.size < COMPARED_MIN ? Infinity : FASTER_TIMES
    const worker = this.#workers.get(workerSlot)
    if (worker === undefined || worker.answers < WHOLE_ANSWERS_MIN) return FASTER_TIMES
    return Math.max(1, FASTER_TIMES * Math.exp(this.#median - worker.mean))
  }

  forget(workerSlot: number): void {
    this.#workers.delete(workerSlot)
    this.#compare()
  }

  #compare(): void {
    this.#sinceMedian = 0
    const means: number[] = []
    for (const { mean, answers } of this.#workers.values()) if (answers >= WHOLE_ANSWERS_MIN) means.push(mean)
    this.#isCompared = means.length >= COMPARED_MIN
    if (this.#isCompared) this.#median = means.toSorted((a, b) => a - b)[(means.length - 1) >> 1]!
  }
}
