/**
 * Outcome differences: two groups of finished requests compared by errors, time to the first token and whole
 * time, and the one rule that makes a verdict of the three.
 *
 *   errors     share of the requests that their workers failed
 *   ttft       time to the first token ÷ that of requests of about the same size
 *   duration   time of the whole answer, likewise
 *
 * The rule  A difference counts beyond chance only. If the errors differ, they decide, whatever the times,
 *           and a failed request counts as GUARD_OUTLIER_TIMES the mean time. Otherwise the differences of
 *           the two times, as shares, are added: a longer answer may be made up for by an earlier first
 *           token, and the other way round.
 */

import { AUTO_CONSTANTS } from '@homing/load'

export const GUARD_MEASURES = ['errors', 'ttft', 'duration'] as const
export type GuardMeasure = (typeof GUARD_MEASURES)[number]

/** The statistics of one measure in one group. */
export interface Sight {
  /** Values, without weights. */
  readonly count: number
  /** Effective sample size: as many values of equal weight; above 0 if there are values. */
  readonly effective: number
  readonly mean: number
  readonly variance: number
}

export interface Difference {
  /** Values of the group with fewer. */
  readonly fewer: number
  /** How much worse the first group is, in standard errors; below 0 it is better. */
  readonly z: number
  /** How much worse, as a share of the mean of the second group; of errors, the difference of the shares. */
  readonly excess: number
}

export type Differences = Readonly<Record<GuardMeasure, Difference>>

const { ARM_OUTCOMES_MIN, GUARD_OUTLIER_TIMES, LOG_MAX, Z_OTHER_TIMES, Z_WORSE } = AUTO_CONSTANTS.guard
const NONE: Difference = { fewer: 0, z: 0, excess: 0 }

export const NO_DIFFERENCES: Differences = { errors: NONE, ttft: NONE, duration: NONE }

/** Two mean times, by Welch's z. */
export function timeDifference(one: Sight, other: Sight): Difference {
  const fewer = Math.min(one.count, other.count)
  if (fewer < 1 || one.count + other.count < 3) return { fewer, z: 0, excess: 0 }
  const error = Math.sqrt(one.variance / one.effective + other.variance / other.effective)
  const difference = one.mean - other.mean
  return {
    fewer,
    z: zOf(difference, error),
    excess: other.mean > 0 ? difference / other.mean : 0,
  }
}

/** Two shares of errors, with the variance of both together: a few requests without errors prove little. */
export function errorDifference(one: Sight, other: Sight): Difference {
  const fewer = Math.min(one.count, other.count)
  if (fewer < 1 || one.count + other.count < 3) return { fewer, z: 0, excess: 0 }
  const share = (one.effective * one.mean + other.effective * other.mean) / (one.effective + other.effective)
  const error = Math.sqrt(Math.max(0, share * (1 - share)) * (1 / one.effective + 1 / other.effective))
  const difference = one.mean - other.mean
  return { fewer, z: zOf(difference, error), excess: difference }
}

/**
 * How much worse the first group is, in mean times; below 0 it is better. 0 where nothing differs by more
 * than `zMin` standard errors.
 */
export function worseBy({ errors, ttft, duration }: Differences, zMin: number): number {
  // One failure more in the second group must not excuse slow answers of the first.
  const zOther = Z_OTHER_TIMES * zMin
  if (counts(errors, errors.z < 0 ? Math.max(zOther, Z_WORSE) : zOther))
    return GUARD_OUTLIER_TIMES * errors.excess
  return (counts(ttft, zMin) ? ttft.excess : 0) + (counts(duration, zOther) ? duration.excess : 0)
}

function counts({ fewer, z }: Difference, zMin: number): boolean {
  return fewer >= ARM_OUTCOMES_MIN && Math.abs(z) > zMin
}

function zOf(difference: number, error: number): number {
  if (!(error > 0)) return Math.sign(difference) * LOG_MAX
  // Finite, even if the error is nearly 0.
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, difference / error))
}
