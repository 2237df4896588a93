/**
 * Arm outcomes: observed results of the decisions of one arm of the guard. Times are multiples of the mean
 * for prompts of the same length.
 *
 * Decisions whose first token is pending are kept as two sums, which give their total waiting time at any
 * moment.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean } from './fading-mean.ts'

/** The statistics of an arm at one moment. */
export interface ArmSight {
  readonly decisions: number
  /** Effective sample size: as many values of equal weight; above 0 if there are decisions. */
  readonly effective: number
  readonly mean: number
  readonly variance: number
}

const { ARM_OUTCOMES, Z_OVERDUE } = AUTO_CONSTANTS.guard

export class ArmOutcomes {
  /** Since the start, like `outcomes`. */
  decisions = 0
  outcomes = 0
  /** Times seen in this phase. All fields below are of this phase, too. */
  readonly seen = new FadingMean(ARM_OUTCOMES)
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
    this.#waiting = this.#weights = this.#weightedMs = 0
  }

  /**
   * The statistics now. Pending decisions count with their waiting time so far. Beside many outcomes, which
   * have mostly faded from the mean, they count as little as a fading outcome: otherwise the arm with more
   * decisions would look faster, because more of them have just begun. If they have waited longer than usual,
   * they count in full. `other` gives the usual time if this arm has no outcome.
   */
  at(nowMs: number, other: ArmOutcomes): ArmSight {
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
    if (isOverdue) return { decisions: seen.count + waiting, effective: weight, mean, variance }
    return { decisions: seen.count, effective: seen.effective, mean, variance }
  }
}
