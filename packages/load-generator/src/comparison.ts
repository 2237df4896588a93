/**
 * Comparison of two sides that got the same blocks of requests.
 *
 * The difference of a figure is the mean of its differences in the pairs of blocks, with an interval by
 * Student's t: pairing cancels what both blocks of a pair have in common, the requests above all.
 *
 * Intervals hold 95 % for all figures together (Bonferroni: each at 1 − 0.05 ÷ figures). With 95 % for
 * each, a dozen figures of two equal fleets would show a difference in every other comparison; so they do in
 * one of twenty at most.
 */

import { tQuantile } from '@homing/simulate/report'
import { FIGURES, type Figure } from './figures.ts'
import type { SideResult } from './load-plan.ts'

export type ComparedVerdict = 'better' | 'worse' | 'no difference' | 'unknown'

export interface ComparedFigure {
  readonly figure: Figure
  /** Means over the pairs of blocks. */
  readonly ours: number
  readonly theirs: number
  /** Ours − theirs. */
  readonly difference: number
  /** Half of the interval; undefined: too few pairs. */
  readonly halfWidth: number | undefined
  readonly pairs: number
  /** Of ours. */
  readonly verdict: ComparedVerdict
}

const CONFIDENCE = 0.95
/** With fewer an interval is wider than anything that it could show. */
const PAIRS_MIN = 3
/** Sums of equal values differ by so much of them. */
const ROUNDING = 1e-9

/** Figures that neither side has are left out. */
export function compareSides(ours: SideResult, theirs: SideResult): readonly ComparedFigure[] {
  const pairs = Math.min(ours.blocks.length, theirs.blocks.length)
  const rows = FIGURES.map(figure => {
    const values: (readonly [number, number])[] = []
    for (let i = 0; i < pairs; i++) {
      const pair = [figure.of(ours.blocks[i]!), figure.of(theirs.blocks[i]!)] as const
      if (pair.every(Number.isFinite)) values.push(pair)
    }
    return { figure, values }
  }).filter(({ values }) => values.length > 0)
  return rows.map(({ figure, values }) => compareFigure(figure, values, rows.length))
}

/** `together`: number of figures that share the 5 % of error. */
export function compareFigure(
  figure: Figure,
  pairs: readonly (readonly [ours: number, theirs: number])[],
  together: number,
): ComparedFigure {
  const ours = mean(pairs.map(([value]) => value))
  const theirs = mean(pairs.map(([, value]) => value))
  const differences = pairs.map(([a, b]) => a - b)
  const difference = mean(differences)
  const interval = halfWidth(differences, difference, 1 - (1 - CONFIDENCE) / together)
  return {
    figure,
    ours,
    theirs,
    difference,
    halfWidth: interval,
    pairs: pairs.length,
    verdict: verdictOf(figure, difference, interval, ROUNDING * Math.max(Math.abs(ours), Math.abs(theirs))),
  }
}

function halfWidth(values: readonly number[], center: number, confidence: number): number | undefined {
  const count = values.length
  if (count < PAIRS_MIN) return undefined
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (count - 1)
  return tQuantile(count - 1, confidence) * Math.sqrt(variance / count)
}

function verdictOf(
  { better }: Figure,
  difference: number,
  interval: number | undefined,
  rounding: number,
): ComparedVerdict {
  if (interval === undefined) return 'unknown'
  if (Math.abs(difference) <= interval + rounding) return 'no difference'
  return difference < 0 === (better === 'less') ? 'better' : 'worse'
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
