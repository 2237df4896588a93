/**
 * Arm outcomes: observed results of the decisions of one arm of the guard. Times are multiples of the mean
 * for requests of the same size.
 *
 * Decisions whose first token is pending are kept as two sums, which give their total waiting time at any
 * moment.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean, type FadingMeanState } from './fading-mean.ts'
import type { Sight } from './outcome-differences.ts'

const { ARM_OUTCOMES, Z_OVERDUE } = AUTO_CONSTANTS.guard

/** All that outlives a restart: decisions that were pending are forgotten. */
export interface ArmState {
  readonly totals: readonly number[]
  readonly ended: number
  readonly means: readonly FadingMeanState[]
}

export class ArmOutcomes {
  /** Since the start: decisions, first tokens, whole answers, and requests that their workers failed. */
  decisions = 0
  outcomes = 0
  finished = 0
  failed = 0
  /** Times to the first token seen in this phase. All fields below are of this phase, too. */
  readonly seen = new FadingMean(ARM_OUTCOMES)
  /** Times of whole answers. */
  readonly durations = new FadingMean(ARM_OUTCOMES)
  /** 1 for a request that its worker failed, 0 for a whole answer. */
  readonly errors = new FadingMean(ARM_OUTCOMES)
  /** Decisions whose requests have not ended. */
  open = 0
  /** Requests that have ended, and of which something was seen. */
  ended = 0
  #waiting = 0
  /** Over pending decisions: sum of weights, and sum of weight · time of the decision. */
  #weights = 0
  #weightedMs = 0

  /** A decision was made. `weight`: 1 ÷ the mean time for prompts of this length. */
  wait(weight: number, sinceMs: number): void {
    this.#waiting++
    this.#weights += weight
    this.#weightedMs += weight * sinceMs
  }

  /** A decision is no longer pending. */
  waited(weight: number, sinceMs: number): void {
    this.#waiting--
    // Without pending decisions the sums are reset to exactly 0, so no rounding error stays.
    this.#weights = this.#waiting === 0 ? 0 : this.#weights - weight
    this.#weightedMs = this.#waiting === 0 ? 0 : this.#weightedMs - weight * sinceMs
  }

  /** Another phase begins. */
  clear(): void {
    this.seen.clear()
    this.durations.clear()
    this.errors.clear()
    this.open = this.ended = this.#waiting = this.#weights = this.#weightedMs = 0
  }

  /**
   * The times to the first token now. Pending decisions count with their waiting time so far. Beside many
   * outcomes, which have mostly faded from the mean, they count as little as a fading outcome: otherwise the
   * arm with more decisions would look faster, because more of them have just begun. If they have waited
   * longer than usual, they count in full. `other` gives the usual time if this arm has no outcome.
   */
  firstTokensAt(nowMs: number, other: ArmOutcomes): Sight {
    const { seen } = this
    const waiting = this.#waiting
    const { mean: usual, variance } = seen.count < 2 ? other.seen : seen
    const waitedSum = Math.max(0, nowMs * this.#weights - this.#weightedMs)
    // Mean age of pending decisions if durations are independent.
    const usualAge = (usual * usual + variance) / (2 * usual)
    const isOverdue = waitedSum > (waiting + Z_OVERDUE * Math.sqrt(waiting)) * usualAge
    const share = isOverdue || seen.count === 0 ? 1 : seen.effective / seen.count
    const weight = seen.effective + share * waiting
    const mean = weight > 0 ? (seen.effective * seen.mean + share * waitedSum) / weight : 0
    if (isOverdue) return { count: seen.count + waiting, effective: weight, mean, variance }
    return { count: seen.count, effective: seen.effective, mean, variance }
  }

  get state(): ArmState {
    const { decisions, outcomes, finished, failed, ended, seen, durations, errors } = this
    return {
      totals: [decisions, outcomes, finished, failed],
      ended,
      means: [seen.state, durations.state, errors.state],
    }
  }

  restore({ totals, ended, means }: ArmState): void {
    const [decisions = 0, outcomes = 0, finished = 0, failed = 0] = totals
    Object.assign(this, { decisions, outcomes, finished, failed, ended })
    const own = [this.seen, this.durations, this.errors]
    for (const [m, mean] of means.entries()) own[m]?.restore(mean)
  }
}
