/**
 * Tokens per event: checks the tokens that an engine says an answer has by the events of its stream, which
 * the router counts itself.
 *
 * An engine may send several tokens in an event, so the quotient is a matter of its settings. But it is about
 * the same for all engines of a fleet, whatever their models and the lengths of answers are. A worker whose
 * mean quotient is EVENT_TOKENS_APART times that of the median worker, or as much smaller, is taken to have
 * that of the median one.
 *
 * Of fewer than COMPARED_MIN workers no one can say which is the odd one: all are believed.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { BoundedMean } from './bounded-mean.ts'

const { COMPARED_MIN, EVENT_TOKENS_APART, EVENT_ANSWERS_MIN } = AUTO_CONSTANTS.steps

export class TokensPerEvent {
  readonly #workers = new Map<number, BoundedMean>()
  #median = 1
  #isCompared = false
  #sinceMedian = 0

  /** Tokens of an answer as they count, of those that its engine says it has. */
  believed(workerSlot: number, tokens: number, events: number): number {
    if (!(events > 0)) return tokens
    let worker = this.#workers.get(workerSlot)
    if (worker === undefined) {
      worker = new BoundedMean(1)
      this.#workers.set(workerSlot, worker)
    }
    worker.add(tokens / events)
    if (++this.#sinceMedian >= EVENT_ANSWERS_MIN) this.#compare()
    if (!this.#isCompared) return tokens
    const times = worker.mean / this.#median
    const isLike = times <= EVENT_TOKENS_APART && times >= 1 / EVENT_TOKENS_APART
    return isLike ? tokens : Math.round(this.#median * events)
  }

  forget(workerSlot: number): void {
    this.#workers.delete(workerSlot)
    this.#compare()
  }

  #compare(): void {
    this.#sinceMedian = 0
    const means = [...this.#workers.values()].map(({ mean }) => mean).toSorted((a, b) => a - b)
    const middle = means[(means.length - 1) >> 1] ?? 0
    this.#isCompared = means.length >= COMPARED_MIN && middle > 0
    if (this.#isCompared) this.#median = middle
  }
}
