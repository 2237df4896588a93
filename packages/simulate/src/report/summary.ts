/**
 * Summary of a sweep: for every workload and load a row per policy, each figure with its interval over the
 * seeds and its difference to the baseline, seed by seed. Tables, JSON and HTML are made from it.
 */

import { BASELINE_COLUMN } from '../column.ts'
import { isSure, pairedDifference, type SeedMean, seedMean } from '../paired.ts'
import type { SweepOutcome, SweptCell, TierName } from '../sweep.ts'
import { METRICS, type Metric, type MetricKey } from './metrics.ts'
import { queueOf, type SummaryQueue, type SummaryTenant, tenantsOf } from './waiting.ts'

export interface SummaryFigure extends SeedMean {
  /**
   * Difference to the baseline; undefined for the baseline itself, and if the baseline is not in the sweep.
   */
  readonly difference: SeedMean | undefined
  /** The difference is more than chance, and which way. */
  readonly verdict: 'better' | 'worse' | 'open'
}

export interface SummaryRow {
  readonly column: string
  readonly figures: Readonly<Record<MetricKey, SummaryFigure>>
  /** Real time of one decision in µs, as the threads measured it. Depends on the machine. */
  readonly cpuUsPerDecision: number
  readonly refused: number
  readonly lost: number
  /** Where routers have a queue. */
  readonly queue?: SummaryQueue
  /** Where the traffic names tenants. */
  readonly tenants?: readonly SummaryTenant[]
}

export interface SummaryPoint {
  readonly speed: number
  readonly loadShare: number | undefined
  readonly requests: number
  readonly requestsPerS: number
  readonly rows: readonly SummaryRow[]
}

export interface SummaryCapacity extends SeedMean {
  readonly column: string
  readonly tier: TierName
  readonly isAtLeast: boolean
}

export interface WorkloadSummary {
  readonly workload: string
  /** By speed, ascending. */
  readonly points: readonly SummaryPoint[]
  readonly capacities: readonly SummaryCapacity[]
}

export interface Summary {
  readonly baseline: string | undefined
  readonly columns: readonly string[]
  readonly workloads: readonly WorkloadSummary[]
  readonly seeds: readonly number[]
  readonly isComplete: boolean
}

export function summarize(
  { cells, capacities, isComplete }: SweepOutcome,
  columns: readonly string[],
): Summary {
  const baseline = columns.includes(BASELINE_COLUMN) && columns.length > 1 ? BASELINE_COLUMN : undefined
  const names = [...new Set([...cells, ...capacities].map(({ workload }) => workload))]
  return {
    baseline,
    columns,
    seeds: [...new Set([...cells, ...capacities].map(({ seed }) => seed))].sort((a, b) => a - b),
    isComplete,
    workloads: names.map(workload => ({
      workload,
      points: pointsOf(
        cells.filter(cell => cell.workload === workload),
        columns,
        baseline,
      ),
      capacities: columns.flatMap(column => {
        const found = capacities.filter(each => each.workload === workload && each.column === column)
        const isAtLeast = found.some(each => each.isAtLeast)
        const mean = seedMean(found.map(({ speed }) => speed))
        return found.length === 0 ? [] : [{ column, tier: found[0]!.tier, isAtLeast, ...mean }]
      }),
    })),
  }
}

function pointsOf(
  cells: readonly SweptCell[],
  columns: readonly string[],
  baseline: string | undefined,
): SummaryPoint[] {
  return [...Map.groupBy(cells, ({ speed }) => speed)]
    .sort(([a], [b]) => a - b)
    .map(([speed, atSpeed]) => {
      const byColumn = Map.groupBy(atSpeed, ({ column }) => column)
      const base = baseline === undefined ? undefined : byColumn.get(baseline)
      const { result } = atSpeed[0]!.run
      const { requests } = result.withWarmup
      return {
        speed,
        loadShare: atSpeed[0]!.loadShare,
        requests,
        requestsPerS: result.spanMs > 0 ? (requests * 1000) / result.spanMs : Number.NaN,
        rows: columns.flatMap(column => {
          const own = byColumn.get(column)
          return own === undefined ? [] : [rowOf(column, own, column === baseline ? undefined : base)]
        }),
      }
    })
}

function rowOf(
  column: string,
  cells: readonly SweptCell[],
  base: readonly SweptCell[] | undefined,
): SummaryRow {
  const figures = Object.entries(METRICS).map(([key, metric]) => [key, figureOf(metric, cells, base)])
  const mean = (of: (cell: SweptCell) => number): number => seedMean(cells.map(of)).mean
  const queue = queueOf(cells)
  const tenants = tenantsOf(cells)
  return {
    column,
    figures: Object.fromEntries(figures) as SummaryRow['figures'],
    cpuUsPerDecision: mean(({ run }) => run.cost.cpuUsPerDecision),
    refused: Math.max(...cells.map(({ run }) => run.result.refused)),
    lost: Math.max(...cells.map(({ run }) => run.result.lost)),
    ...(queue !== undefined && { queue }),
    ...(tenants !== undefined && { tenants }),
  }
}

function figureOf(
  metric: Metric,
  cells: readonly SweptCell[],
  base: readonly SweptCell[] | undefined,
): SummaryFigure {
  const bySeed = (of: readonly SweptCell[]): Map<number, number> =>
    new Map(of.map(({ seed, run }) => [seed, metric.of(run.result)]))
  const own = bySeed(cells)
  const difference = base === undefined ? undefined : pairedDifference(own, bySeed(base))
  return { ...seedMean([...own.values()]), difference, verdict: verdictOf(metric, difference) }
}

function verdictOf({ better }: Metric, difference: SeedMean | undefined): SummaryFigure['verdict'] {
  if (difference === undefined || better === undefined || !isSure(difference)) return 'open'
  return difference.mean < 0 === (better === 'less') ? 'better' : 'worse'
}
