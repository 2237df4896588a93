/**
 * Reference values: figures of an independent simulator of the same model, for comparison. No delays, seed 1,
 * no warm-up cut.
 *
 * Source: the benchmarking notes of this project, section 5.7.
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { readTrace, type TraceRequest } from '@homing/trace'
import { type CellResult, type CellSelection, type CellSpec, simulateCell } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const ROOT = join(import.meta.dirname, '..', '..', '..')
const TRACES = process.env['HOMING_TRACES'] ?? join(ROOT, '..', 'shared', 'traces')

export type TraceName = 'conversation' | 'synthetic' | 'toolagent_like'

const FILES: Readonly<Record<TraceName, string>> = {
  conversation: 'mooncake_conversation_trace.jsonl.gz',
  synthetic: 'mooncake_synthetic_trace.jsonl.gz',
  toolagent_like: 'toolagent_like_trace.jsonl.gz',
}

/** A reason to skip a test, or false: for tap's `skip`. */
export const WITHOUT_TRACES: string | false = existsSync(join(TRACES, FILES.conversation))
  ? false
  : `the traces are not in ${TRACES}; set HOMING_TRACES`

export const POLICY_RULES = {
  'round-robin': { mode: 'round-robin' },
  p2c: { mode: 'power-of-two' },
  least: { mode: 'least-loaded' },
  threshold: { policy: 'threshold' },
  'threshold-received': { rule: 'threshold-received' },
  'kv-cost': { policy: 'linear' },
  product: { policy: 'product' },
  'est-ttft': { policy: 'est-ttft' },
} as const satisfies Record<string, CellSelection>

export type PolicyLabel = keyof typeof POLICY_RULES

/** TTFT mean s / TTFT p99 s / ITL mean ms / hit rate % / goodput of the standard tier %. */
export type CellFigures = readonly [
  ttftMean: number,
  ttftP99: number,
  itlMean: number,
  hit: number,
  goodput: number,
]

export interface ReferenceCell {
  readonly trace: TraceName
  readonly speed: number
  readonly label: PolicyLabel
  readonly figures: CellFigures
}

const THRESHOLDS = ['threshold', 'threshold-received'] as const

/**
 * The rows of the tables, a text for each cell. The row threshold stands for both forms of its last clause.
 */
const ROWS: readonly [TraceName, number, Partial<Record<PolicyLabel, string>>][] = [
  [
    'conversation',
    2,
    {
      'round-robin': '1.09 / 9.8 / 19 / 6.1 / 93',
      p2c: '0.91 / 9.0 / 17 / 6.0 / 95',
      least: '0.66 / 7.2 / 14 / 5.7 / 97',
      threshold: '0.51 / 6.3 / 13 / 15.8 / 98',
      'kv-cost': '0.46 / 5.2 / 15 / 10.3 / 98',
      product: '0.43 / 5.2 / 13 / 14.2 / 99',
      'est-ttft': '0.43 / 5.3 / 14 / 15.0 / 99',
    },
  ],
  [
    'conversation',
    3,
    {
      'round-robin': '7.1 / 48 / 45 / 6.0 / 60',
      p2c: '1.64 / 11.6 / 39 / 5.6 / 88',
      least: '1.03 / 9.5 / 34 / 5.7 / 94',
      threshold: '0.71 / 7.3 / 27 / 15.4 / 97',
      'kv-cost': '0.58 / 5.5 / 34 / 9.4 / 96',
      product: '0.48 / 5.7 / 26 / 13.1 / 98',
      'est-ttft': '0.47 / 5.5 / 29 / 14.0 / 98',
    },
  ],
  [
    'conversation',
    3.5,
    {
      'round-robin': '35 / 103 / 60 / 5.8 / 19',
      p2c: '27 / 64 / 62 / 5.6 / 6',
      least: '27 / 59 / 62 / 5.4 / 6',
      threshold: '9.9 / 61 / 52 / 12.2 / 61',
      'kv-cost': '6.7 / 19 / 62 / 9.4 / 38',
      product: '1.95 / 21 / 50 / 11.9 / 88',
      'est-ttft': '1.96 / 9.5 / 55 / 12.7 / 86',
    },
  ],
  [
    'synthetic',
    2,
    {
      'round-robin': '2.7 / 23 / 71 / 5.0 / 75',
      least: '1.07 / 9.6 / 38 / 5.5 / 89',
      'kv-cost': '0.57 / 3.3 / 20 / 19 / 96',
      product: '0.51 / 3.4 / 17 / 28 / 97',
      'est-ttft': '0.49 / 3.3 / 15 / 32 / 98',
    },
  ],
  [
    'synthetic',
    3,
    {
      'round-robin': '10.5 / 57 / 145 / 4.0 / 48',
      least: '7.2 / 49 / 137 / 5.1 / 50',
      'kv-cost': '1.89 / 14 / 113 / 12 / 61',
      product: '0.72 / 4.7 / 52 / 23 / 86',
      'est-ttft': '0.58 / 3.3 / 39 / 29 / 90',
    },
  ],
  [
    'toolagent_like',
    2,
    {
      'round-robin': '0.91 / 9.6 / 25 / 36 / 92',
      least: '0.38 / 5.7 / 13 / 36 / 98',
      'kv-cost': '0.23 / 3.4 / 16 / 39 / 98',
      product: '0.21 / 3.3 / 11 / 42 / 99',
      'est-ttft': '0.21 / 3.4 / 13 / 42 / 99',
    },
  ],
  [
    'toolagent_like',
    3,
    {
      'round-robin': '5.2 / 36 / 56 / 33 / 62',
      least: '0.57 / 7.4 / 27 / 36 / 95',
      'kv-cost': '0.30 / 3.5 / 34 / 39 / 94',
      product: '0.24 / 3.6 / 21 / 41 / 98',
      'est-ttft': '0.23 / 3.4 / 24 / 42 / 98',
    },
  ],
]

export const REFERENCE_CELLS: readonly ReferenceCell[] = ROWS.flatMap(([trace, speed, row]) =>
  Object.entries(row).flatMap(([label, text]) => {
    const figures = text.split(' / ').map(Number) as unknown as CellFigures
    const labels = label === 'threshold' ? THRESHOLDS : [label as PolicyLabel]
    return labels.map(label => ({ trace, speed, label, figures }))
  }),
)

const traces = new Map<TraceName, TraceRequest[]>()

/**
 * Simulates a cell. `isOracle`: policies read what engines have still to compute, as those of the reference
 * did.
 */
export async function simulateReference(
  { trace, speed, label }: ReferenceCell,
  isOracle: boolean,
  more: Partial<CellSpec> = {},
): Promise<CellResult> {
  let requests = traces.get(trace)
  if (requests === undefined) {
    requests = readTrace(join(TRACES, FILES[trace]))
    traces.set(trace, requests)
  }
  const selection: CellSelection = { mode: 'kv', ...POLICY_RULES[label], oracleView: isOracle }
  const spec: CellSpec = {
    ...REFERENCE_SPEC,
    selection,
    speed,
    ...(trace === 'conversation' && { spread: { binMs: 3000, jitterShare: 0 } }),
    ...more,
  }
  const { result } = await simulateCell(spec, requests)
  return result
}

export function figuresOf({ ttftMs, itlMs, hitRate, goodput }: CellResult): CellFigures {
  return [ttftMs.mean / 1000, ttftMs.p99 / 1000, itlMs.mean, hitRate * 100, goodput.standard * 100]
}

export interface Deviation {
  /** Of the means of TTFT and ITL, in percent. */
  readonly ttft: number
  readonly itl: number
  /** In points. */
  readonly hit: number
}

export function deviation(figures: CellFigures, reference: CellFigures): Deviation {
  const percent = (i: 0 | 2): number => (figures[i] / reference[i] - 1) * 100
  return { ttft: percent(0), itl: percent(2), hit: figures[3] - reference[3] }
}
