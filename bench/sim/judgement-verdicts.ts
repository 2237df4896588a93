/**
 * Verdicts over paired seeds: the ratio or difference of auto and the best other column, its 95 % interval,
 * and whether a bound is missed.
 *
 * A bound is missed when the whole interval lies beyond it. One seed has no interval: then its value alone
 * decides, and the mark is 'fails?'.
 */

import { type CellResult, seedMean } from '@homing/simulate'

/** The results of one column at one place and load, by seed. */
export type BySeed = ReadonlyMap<number, CellResult>
export type Figure = (result: CellResult) => number

export interface Compared {
  /** The best of the others: its mean over the seeds is the lowest. */
  readonly best: string
  /** Ratio (geometric mean) or difference, ours against it. */
  readonly value: number
  readonly low: number
  readonly high: number
  readonly seeds: number
}

export const FIGURES = {
  e2e: ({ e2eMs }: CellResult) => e2eMs.mean,
  ttft: ({ ttftMs }: CellResult) => ttftMs.mean,
  ttftP50: ({ ttftMs }: CellResult) => ttftMs.p50,
  ttftP99: ({ ttftMs }: CellResult) => ttftMs.p99,
  itl: ({ itlMs }: CellResult) => itlMs.mean,
  /** Requests outside tier standard, so that lower is better here, too. */
  missed: ({ goodput }: CellResult) => 1 - goodput.standard,
} as const

/** The column with the lowest mean over the seeds of `ours`; undefined if none has them all. */
export function bestOf(
  others: ReadonlyMap<string, BySeed>,
  ours: BySeed,
  figure: Figure,
): string | undefined {
  let best: string | undefined
  let bestMean = Number.POSITIVE_INFINITY
  for (const [column, results] of others) {
    const values = [...ours.keys()].flatMap(seed => (results.has(seed) ? [figure(results.get(seed)!)] : []))
    if (values.length === 0 || values.length < ours.size) continue
    const { mean } = seedMean(values)
    if (mean >= bestMean) continue
    best = column
    bestMean = mean
  }
  return best
}

/** Ours ÷ theirs, or ours − theirs, over the seeds that both have. */
export function compare(
  ours: BySeed,
  theirs: BySeed,
  best: string,
  figure: Figure,
  form: 'ratio' | 'difference',
): Compared {
  const values = [...ours].flatMap(([seed, result]) => {
    const other = theirs.get(seed)
    if (other === undefined) return []
    const [a, b] = [figure(result), figure(other)]
    return [form === 'ratio' ? Math.log(a / b) : a - b]
  })
  return { best, ...intervalOf(values, form) }
}

/** The mean with its interval, of logarithms of ratios or of differences. */
export function intervalOf(values: readonly number[], form: 'ratio' | 'difference'): Omit<Compared, 'best'> {
  const { mean, halfWidth = 0, seeds } = seedMean(values)
  const back = (value: number): number => (form === 'ratio' ? Math.exp(value) : value)
  return { value: back(mean), low: back(mean - halfWidth), high: back(mean + halfWidth), seeds }
}

/** Beyond the bound with its whole interval, or no figure at all; `above`: higher is worse. */
export function isMissed(
  { low, high }: Pick<Compared, 'low' | 'high'>,
  bound: number,
  above = true,
): boolean {
  return above ? !(low <= bound) : !(high >= bound)
}

/** 'passes', or what was missed; with one seed it is a guess. */
export function verdictText(missed: readonly string[], seeds: number): string {
  if (missed.length === 0) return 'passes'
  return `**fails${seeds === 1 ? '?' : ''}**: ${missed.join(', ')}`
}

/** '0.973 [0.961, 0.985] product'. */
export function ratioText({ value, low, high, seeds, best }: Compared): string {
  const interval = seeds > 1 ? ` [${low.toFixed(3)}, ${high.toFixed(3)}]` : ''
  return `${value.toFixed(3)}${interval} ${best}`
}
