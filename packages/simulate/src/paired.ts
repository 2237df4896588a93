/**
 * Figures over seeds: the mean with its 95 % interval, and differences between two columns that had the same
 * seeds.
 *
 * The seed decides the traffic, its order and the numbering of workers, for every policy alike. So the
 * difference per seed says more than the difference of the means: effects of the seed on both columns cancel.
 */

export interface SeedMean {
  readonly mean: number
  /** Half of the 95 % interval by Student's t; undefined for a single seed. */
  readonly halfWidth: number | undefined
  readonly seeds: number
}

/** Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1. */
const T_QUANTILES = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
]

/**
 * The two-sided quantile for `degrees` ≥ 1. At 95 % by a table, past 30 by the first terms of its expansion,
 * good to three digits; at another confidence from the distribution itself, to eight digits.
 */
export function tQuantile(degrees: number, confidence = 0.95): number {
  if (confidence !== 0.95) return quantileOf(degrees, confidence)
  return T_QUANTILES[degrees - 1] ?? 1.96 + 2.372 / degrees + 2.82 / degrees ** 2
}

const HALVINGS = 100

function quantileOf(degrees: number, confidence: number): number {
  let low = 0
  let high = 1
  while (shareWithin(high, degrees) < confidence) high *= 2
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2
    if (shareWithin(middle, degrees) < confidence) low = middle
    else high = middle
  }
  return (low + high) / 2
}

/**
 * The probability of −t … t by finite sums of angles. Source: Abramowitz and Stegun, Handbook of Mathematical
 * Functions, 26.7.3 and 26.7.4.
 */
function shareWithin(t: number, degrees: number): number {
  const angle = Math.atan(t / Math.sqrt(degrees))
  const cosine = Math.cos(angle)
  const isOdd = degrees % 2 === 1
  let sum = 0
  let term = isOdd ? cosine : 1
  for (let k = isOdd ? 1 : 0; k <= degrees - 2; k += 2) {
    sum += term
    term *= (cosine * cosine * (k + 1)) / (k + 2)
  }
  return isOdd ? (2 / Math.PI) * (angle + Math.sin(angle) * sum) : Math.sin(angle) * sum
}

/**
 * Mean and interval of one value per seed; at least one. Values that are not finite are left out and do not
 * count.
 */
export function seedMean(values: readonly number[]): SeedMean {
  const known = values.filter(Number.isFinite)
  const seeds = known.length
  if (seeds === 0) return { mean: Number.NaN, halfWidth: undefined, seeds }
  const mean = known.reduce((sum, value) => sum + value, 0) / seeds
  if (seeds === 1) return { mean, halfWidth: undefined, seeds }
  const variance = known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (seeds - 1)
  return { mean, halfWidth: tQuantile(seeds - 1) * Math.sqrt(variance / seeds), seeds }
}

/** `ours` − `theirs` per seed, over the seeds that both have. */
export function pairedDifference(
  ours: ReadonlyMap<number, number>,
  theirs: ReadonlyMap<number, number>,
): SeedMean {
  const differences: number[] = []
  for (const [seed, value] of ours) {
    const other = theirs.get(seed)
    if (other !== undefined) differences.push(value - other)
  }
  return seedMean(differences)
}

/** Whether a difference is more than chance at 95 %: its interval does not hold 0. */
export function isSure({ mean, halfWidth }: SeedMean): boolean {
  return halfWidth !== undefined && Math.abs(mean) > halfWidth
}
