/**
 * Arm outcomes: what was seen of the decisions of one arm of the guard. Times are in multiples of what
 * prompts as long take on average.
 *
 * Decisions whose first token is still to come are known by two sums, from which follows how long they have
 * waited together, at any time.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean } from './fading-mean.ts'

/** The decisions of an arm that say something, and their times. */
export interface ArmSight {
  readonly decisions: number
  /** Of equal weight that would say as much; above 0 where there are decisions. */
  readonly effective: number
  readonly mean: number
  readonly variance: number
}

const { ARM_OUTCOMES, Z_OVERDUE } = AUTO_CONSTANTS.guard

export class ArmOutcomes {
  /** Since the start, like `outcomes`. */
  decisions = 0
  outcomes = 0
  /** Of this phase, as all that follows. */
  readonly seen = new FadingMean(ARM_OUTCOMES)
  #waiting = 0
  /** Of those that wait: sum of weights, and of weight · time of the decision. */
  #weights = 0
  #weightedMs = 0

  /** A decision was made. `weight`: 1 ÷ what prompts as long take on average. */
  wait(weight: number, sinceMs: number): void {
    this.#waiting++
    this.#weights += weight
    this.#weightedMs += weight * sinceMs
  }

  /** It waits no longer. */
  waited(weight: number, sinceMs: number): void {
    this.#waiting--
    // Sums of nothing are exactly 0.
    this.#weights = this.#waiting === 0 ? 0 : this.#weights - weight
    this.#weightedMs = this.#waiting === 0 ? 0 : this.#weightedMs - weight * sinceMs
  }

  /** Another phase begins. */
  clear(): void {
    this.seen.clear()
    this.#waiting = this.#weights = this.#weightedMs = 0
  }

  /**
   * What is known now. Those that wait count with the time that they have waited: beside many outcomes, of
   * which the mean has forgotten most, for as little as an outcome that fades; else the arm with more
   * decisions would look faster, as it has more that have just begun. But if they have waited longer than is
   * usual, they count in full. `other` says what is usual where this arm has not answered.
   */
  at(nowMs: number, other: ArmOutcomes): ArmSight {
    const { seen } = this
    const waiting = this.#waiting
    const { mean: usual, variance } = seen.count < 2 ? other.seen : seen
    const waitedSum = Math.max(0, nowMs * this.#weights - this.#weightedMs)
    // Mean age of what is under way, where durations do not depend on each other.
    const usualAge = (usual * usual + variance) / (2 * usual)
    const isOverdue = waitedSum > (waiting + Z_OVERDUE * Math.sqrt(waiting)) * usualAge
    const share = isOverdue || seen.count === 0 ? 1 : seen.effective / seen.count
    const weight = seen.effective + share * waiting
    const mean = weight > 0 ? (seen.effective * seen.mean + share * waitedSum) / weight : 0
    if (isOverdue) return { decisions: seen.count + waiting, effective: weight, mean, variance }
    return { decisions: seen.count, effective: seen.effective, mean, variance }
  }
}
