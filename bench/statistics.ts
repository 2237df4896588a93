/** Statistics that several benches need. */

/** Of an even count the mean of the two in the middle; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** Of the line through points [x, y] by least squares; 0 where no two have different x. */
export function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / points.length
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / points.length
  const above = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0)
  const below = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0)
  return below === 0 ? 0 : above / below
}

/** How many times as much the one is as the other. */
export interface TypicalRatio {
  readonly ratio: number
  /** 95 % interval; undefined: there are fewer than 6. */
  readonly interval: readonly [low: number, high: number] | undefined
}

/** Probability that the true ratio is below the interval, and that it is above. */
const TAIL = 0.025
/** For more of them the normal distribution is near enough. */
const EXACT_MAX = 60
const TAIL_DEVIATIONS = 1.96

/**
 * Of ratios that were measured in pairs: the median of the geometric means of any two of them, itself
 * included, and the interval that Wilcoxon's signed ranks give it (Hodges and Lehmann). Some ratios that are
 * far off change little, as with a median, and the interval is nearly as narrow as that of a mean. It takes
 * for granted that the logarithms lie alike on both sides of their middle. NaN of none.
 */
export function typicalRatio(ratios: readonly number[]): TypicalRatio {
  const logarithms = ratios.map(Math.log)
  const means = logarithms
    .flatMap((one, i) => logarithms.slice(i).map(other => (one + other) / 2))
    .sort((a, b) => a - b)
  const outside = outsideCount(ratios.length)
  const [low, high] = outside < 0 ? [] : [means[outside]!, means[means.length - 1 - outside]!]
  return {
    ratio: Math.exp(median(means)),
    interval: low === undefined ? undefined : [Math.exp(low), Math.exp(high!)],
  }
}

/** The largest rank sum that is not reached with a probability above TAIL; −1: there is none. */
function outsideCount(count: number): number {
  if (count > EXACT_MAX) {
    const mean = (count * (count + 1)) / 4
    const deviation = Math.sqrt((count * (count + 1) * (2 * count + 1)) / 24)
    return Math.floor(mean - TAIL_DEVIATIONS * deviation) - 1
  }
  // Of all ways to give signs to the ranks 1 … count, those in which the positive ones add up to i.
  let ways = [1]
  for (let rank = 1; rank <= count; rank++) {
    const next = new Array<number>(ways.length + rank).fill(0)
    for (const [sum, number] of ways.entries()) {
      next[sum]! += number
      next[sum + rank]! += number
    }
    ways = next
  }
  let sum = -1
  for (let below = ways[0]!; below <= TAIL * 2 ** count; below += ways[sum + 1]!) sum++
  return sum
}
