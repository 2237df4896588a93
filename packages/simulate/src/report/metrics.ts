/**
 * What a report shows of a cell: each figure with its unit, its number of digits, and which way is better.
 */

import type { CellResult } from '../cell-types.ts'

export interface Metric {
  readonly key: string
  /** As a heading. */
  readonly name: string
  readonly unit: 's' | 'ms' | '%' | '×' | 'tokens/s' | ''
  /** Undefined: neither is better. */
  readonly better: 'less' | 'more' | undefined
  readonly digits: number
  readonly of: (result: CellResult) => number
}

const S_MS = 1000

export const METRICS = {
  ttftMean: seconds('ttftMean', 'TTFT mean', r => r.ttftMs.mean),
  ttftP50: seconds('ttftP50', 'TTFT p50', r => r.ttftMs.p50),
  ttftP90: seconds('ttftP90', 'TTFT p90', r => r.ttftMs.p90),
  ttftP99: seconds('ttftP99', 'TTFT p99', r => r.ttftMs.p99),
  itlMean: milliseconds('itlMean', 'ITL mean', 1, r => r.itlMs.mean),
  itlP99: milliseconds('itlP99', 'ITL p99', 1, r => r.itlMs.p99),
  gapP99: milliseconds('gapP99', 'gap p99', 0, r => r.gapMs.p99),
  e2eMean: seconds('e2eMean', 'E2E mean', r => r.e2eMs.mean),
  e2eP50: seconds('e2eP50', 'E2E p50', r => r.e2eMs.p50),
  e2eP90: seconds('e2eP90', 'E2E p90', r => r.e2eMs.p90),
  e2eP99: seconds('e2eP99', 'E2E p99', r => r.e2eMs.p99),
  hitRate: percent('hitRate', 'hit rate', r => r.hitRate),
  hitEfficiency: percent('hitEfficiency', 'hit efficiency', r => r.hitEfficiency ?? Number.NaN),
  interactive: percent('interactive', 'goodput interactive', r => r.goodput.interactive),
  standard: percent('standard', 'goodput standard', r => r.goodput.standard),
  longContext: percent('longContext', 'goodput long context', r => r.goodput.longContext),
  outputRate: {
    key: 'outputRate',
    name: 'output tokens',
    unit: 'tokens/s',
    better: 'more',
    digits: 0,
    of: r => r.outputTokensPerS,
  },
  newTokensCv: ratio('newTokensCv', 'new tokens, CV', r => r.imbalance.newTokensCv),
  newTokensMax: ratio('newTokensMax', 'new tokens, max ÷ mean', r => r.imbalance.newTokensMaxOverMean),
  busyCv: ratio('busyCv', 'busy time, CV', r => r.imbalance.busyCv),
  outstandingMax: ratio(
    'outstandingMax',
    'outstanding tokens, max ÷ mean',
    r => r.imbalance.outstandingMaxOverMean,
  ),
  drain: ratio('drain', 'drain', r => r.drain),
  missedReuse: {
    ...ratio('missedReuse', 'missed reuse, blocks', r => r.missedReuseBlocks),
    unit: '',
    digits: 0,
  },
  evictions: {
    ...ratio('evictions', 'evictions', r => r.evictions),
    unit: '',
    digits: 0,
    better: undefined,
  },
} as const satisfies Readonly<Record<string, Metric>>

export type MetricKey = keyof typeof METRICS

/**
 * A figure as people read it, without its unit: three digits where it is small, no more digits than it has.
 */
export function figureText(metric: Metric, value: number): string {
  if (!Number.isFinite(value)) return '–'
  const shown = metric.unit === '%' ? value * 100 : value
  const size = Math.abs(shown)
  const digits = metric.unit === 's' ? (size >= 100 ? 0 : size >= 10 ? 1 : 2) : metric.digits
  return shown.toFixed(digits)
}

function seconds(key: string, name: string, ofMs: (result: CellResult) => number): Metric {
  return { key, name, unit: 's', better: 'less', digits: 2, of: result => ofMs(result) / S_MS }
}

function milliseconds(key: string, name: string, digits: number, of: Metric['of']): Metric {
  return { key, name, unit: 'ms', better: 'less', digits, of }
}

function percent(key: string, name: string, of: (result: CellResult) => number): Metric {
  return { key, name, unit: '%', better: 'more', digits: 1, of }
}

function ratio(key: string, name: string, of: (result: CellResult) => number): Metric {
  return { key, name, unit: '×', better: 'less', digits: 2, of }
}
