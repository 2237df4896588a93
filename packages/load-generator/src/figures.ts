/** The figures that are reported and compared: unit, digits, and which way is better. */

import type { LoadFigures } from './tally.ts'

export interface Figure {
  readonly key: string
  readonly name: string
  readonly unit: 'ms' | 'tokens/s' | '%'
  readonly better: 'less' | 'more'
  /** NaN: it does not exist in this result. Shares are in %. */
  of(figures: LoadFigures): number
}

export const FIGURES: readonly Figure[] = [
  latency('ttft_mean', 'TTFT mean', 'ttftMs', 'mean'),
  latency('ttft_p50', 'TTFT p50', 'ttftMs', 'p50'),
  latency('ttft_p90', 'TTFT p90', 'ttftMs', 'p90'),
  latency('ttft_p99', 'TTFT p99', 'ttftMs', 'p99'),
  latency('itl_mean', 'ITL mean', 'itlMs', 'mean'),
  latency('itl_p99', 'ITL p99', 'itlMs', 'p99'),
  latency('e2e_mean', 'E2E mean', 'e2eMs', 'mean'),
  latency('e2e_p50', 'E2E p50', 'e2eMs', 'p50'),
  latency('e2e_p99', 'E2E p99', 'e2eMs', 'p99'),
  {
    key: 'output_tokens_per_s',
    name: 'output',
    unit: 'tokens/s',
    better: 'more',
    of: ({ outputTokensPerS }) => outputTokensPerS,
  },
  {
    key: 'cached_share',
    name: 'cached prompt tokens',
    unit: '%',
    better: 'more',
    of: ({ cachedShare }) => (cachedShare === undefined ? Number.NaN : 100 * cachedShare),
  },
  {
    key: 'error_rate',
    name: 'errors',
    unit: '%',
    better: 'less',
    of: ({ requests, errorRate }) => (requests === 0 ? Number.NaN : 100 * errorRate),
  },
]

const DIGITS = 3

/** A value with three digits that count. */
export function figureText(value: number): string {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(Number(value.toPrecision(DIGITS)))
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2)
}

function latency(
  key: string,
  name: string,
  histogram: 'ttftMs' | 'itlMs' | 'e2eMs',
  part: 'mean' | 'p50' | 'p90' | 'p99',
): Figure {
  // A latency of 0 is that of no request.
  const of = (figures: LoadFigures): number => figures[histogram][part] || Number.NaN
  return { key, name, unit: 'ms', better: 'less', of }
}
