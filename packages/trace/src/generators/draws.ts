/** What generators draw from a seeded random: sizes, pauses, popular things. */

import type { Random } from '@homing/base'

/** A number around `median`, log-normal: its logarithm has the standard deviation `sigma`. */
export function logNormalDraw(random: Random, median: number, sigma: number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next())
  return median * Math.exp(sigma * normal)
}

/** A log-normal integer within [min, max]. */
export function tokensDraw(random: Random, median: number, sigma: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, Math.round(logNormalDraw(random, median, sigma))))
}

/** An integer within [min, max], all alike. */
export function uniformDraw(random: Random, min: number, max: number): number {
  return min + random.below(max - min + 1)
}

/** The time to the next of events that come at random, `perSecond` in the mean. */
export function poissonGapMs(random: Random, perSecond: number): number {
  return (-Math.log(1 - random.next()) * 1000) / perSecond
}

/** Draws ranks 0 … count − 1 with weights 1 / (rank + 1)^exponent. */
export class ZipfRanks {
  readonly #sums: Float64Array

  constructor(count: number, exponent: number) {
    this.#sums = new Float64Array(count)
    let sum = 0
    for (let rank = 0; rank < count; rank++) {
      sum += (rank + 1) ** -exponent
      this.#sums[rank] = sum
    }
  }

  draw(random: Random): number {
    const sums = this.#sums
    const drawn = random.next() * sums[sums.length - 1]!
    let low = 0
    let high = sums.length - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      if (sums[middle]! > drawn) high = middle
      else low = middle + 1
    }
    return low
  }
}

/** Brings `items` into a random order, in place. */
export function shuffle<T>(random: Random, items: T[]): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    ;[items[i], items[j]] = [items[j]!, items[i]!]
  }
  return items
}
