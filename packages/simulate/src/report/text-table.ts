/** Tables for a terminal: one per workload and load, a row per policy. */

import { figureText, METRICS, type MetricKey } from './metrics.ts'
import type { Summary, SummaryFigure, SummaryPoint, SummaryRow, WorkloadSummary } from './summary.ts'

/** What fits on 100 columns; the rest is in JSON and HTML. */
const SHOWN: readonly { readonly key: MetricKey; readonly heading: string; readonly interval?: true }[] = [
  { key: 'ttftMean', heading: 'TTFT s', interval: true },
  { key: 'ttftP50', heading: 'p50' },
  { key: 'ttftP90', heading: 'p90' },
  { key: 'ttftP99', heading: 'p99' },
  { key: 'itlMean', heading: 'ITL ms' },
  { key: 'e2eMean', heading: 'E2E s' },
  { key: 'e2eP99', heading: 'p99' },
  { key: 'hitRate', heading: 'hit %' },
  { key: 'standard', heading: 'good %' },
  { key: 'outstandingMax', heading: 'imbal' },
]

export function renderText(summary: Summary): string {
  const lines: string[] = []
  for (const workload of summary.workloads) {
    for (const point of workload.points) lines.push(...renderPoint(workload.workload, point, summary), '')
    if (workload.points.length === 0 && summary.isComplete) lines.push(noPointsText(workload), '')
    lines.push(...renderCapacities(workload))
  }
  if (lines.length === 0) return 'no cell is done\n'
  lines.push(...notesOf(summary))
  return `${lines.join('\n')}\n`
}

function renderPoint(workload: string, point: SummaryPoint, { baseline }: Summary): string[] {
  const { speed, loadShare, requests, requestsPerS } = point
  const load = loadShare === undefined ? '' : `${Math.round(loadShare * 100)} % of the best capacity, `
  const rate = Number.isFinite(requestsPerS) ? `, ${requestsPerS.toFixed(1)} requests/s` : ''
  const title = `${workload}: ${load}speed ${shortNumber(speed)} (${requests} requests${rate})`
  const headings = ['policy', ...SHOWN.map(({ heading }) => heading)]
  if (baseline !== undefined) headings.push(`TTFT to ${baseline}`)
  const rows = point.rows.map(row => [
    `${row.column}${row.refused > 0 || row.lost > 0 ? ' *' : ''}`,
    ...SHOWN.map(({ key, interval }) => cellText(key, row.figures[key], interval === true)),
    ...(baseline === undefined ? [] : [differenceText(row)]),
  ])
  const lines = [title, ...alignColumns([headings, ...rows])]
  for (const { column, refused, lost, queue } of point.rows) {
    if (refused > 0)
      lines.push(
        `  * ${column}: ${refused} requests were never served: they are larger than the cache of a worker, or no worker was there${queue === undefined ? '' : ', or they waited too long'}`,
      )
    if (lost > 0) lines.push(`  * ${column}: ${lost} requests ended with their worker`)
  }
  lines.push(...renderQueues(point), ...renderTenants(point))
  return lines
}

/** What waited in the routers. */
function renderQueues({ rows }: SummaryPoint): string[] {
  const queued = rows.flatMap(({ column, queue }) => (queue === undefined ? [] : [{ column, queue }]))
  if (queued.length === 0) return []
  const cells = queued.map(({ column, queue }) => [
    column,
    `${(100 * queue.waitedShare).toFixed(1)}`,
    secondsText(queue.waitMeanMs),
    secondsText(queue.waitP99Ms),
    secondsText(queue.waitMaxMs),
    String(queue.refused),
  ])
  const headings = ['waiting in the router', 'waited %', 'mean s', 'p99', 'longest', 'refused']
  return alignColumns([headings, ...cells])
}

/** What each tenant got. */
function renderTenants({ rows }: SummaryPoint): string[] {
  const cells = rows.flatMap(({ column, tenants = [] }) =>
    tenants.map(each => [
      `${column}, ${each.tenant}`,
      String(Math.round(each.requests)),
      (100 * each.prefillShare).toFixed(1),
      secondsText(each.ttftMeanMs),
      secondsText(each.ttftP99Ms),
      secondsText(each.waitMeanMs),
      secondsText(each.waitMaxMs),
    ]),
  )
  if (cells.length === 0) return []
  const headings = ['by tenant', 'requests', 'prefill %', 'TTFT s', 'p99', 'wait s', 'longest']
  return alignColumns([headings, ...cells])
}

/** Milliseconds as seconds with the digits of a TTFT. */
export function secondsText(ms: number): string {
  return figureText(METRICS.ttftMean, ms / 1000)
}

function cellText(key: MetricKey, figure: SummaryFigure, withInterval: boolean): string {
  const mean = figureText(METRICS[key], figure.mean)
  if (!withInterval || figure.halfWidth === undefined) return mean
  return `${mean} ±${figureText(METRICS[key], figure.halfWidth)}`
}

/** In per cent of the baseline's mean, with the interval; the reader needs no arithmetic. */
function differenceText({ figures: { ttftMean } }: SummaryRow): string {
  const { difference, mean, verdict } = ttftMean
  if (difference === undefined || !Number.isFinite(difference.mean)) return ''
  const base = mean - difference.mean
  const percent = (value: number): string => `${((100 * value) / base).toFixed(1)}`
  const interval = difference.halfWidth === undefined ? '' : ` ±${percent(difference.halfWidth)}`
  const sign = difference.mean > 0 ? '+' : ''
  const mark = { better: ' better', worse: ' worse', open: '' }[verdict]
  return `${sign}${percent(difference.mean)}${interval} %${mark}`
}

/** Only loads are points that may not be there: they are shares of a capacity. */
function noPointsText({ workload, capacities }: WorkloadSummary): string {
  const tier = tierName(capacities[0]?.tier ?? 'standard')
  return `${workload}: no table, because no policy keeps tier ${tier} at any speed that was tried; give --speeds to see how far off they are`
}

function renderCapacities({ workload, capacities }: WorkloadSummary): string[] {
  if (capacities.length === 0) return []
  const rows = capacities.map(({ column, mean, halfWidth, isAtLeast }) => [
    column,
    `${isAtLeast ? '≥ ' : ''}${shortNumber(mean)}${halfWidth === undefined ? '' : ` ±${shortNumber(halfWidth)}`}`,
  ])
  return [
    `${workload}: capacity, the highest speed with 95 % of the requests inside tier ${tierName(capacities[0]!.tier)}`,
    ...alignColumns([['policy', 'speed'], ...rows]),
    '',
  ]
}

function notesOf({ baseline, seeds, isComplete }: Summary): string[] {
  const notes = [
    'good: share of the requests inside tier standard (TTFT ≤ 5 s, ITL ≤ 100 ms). imbal: mean over time of the largest ÷ mean outstanding tokens.',
  ]
  if (seeds.length > 1) {
    notes.push(`± is half of the 95 % interval over ${seeds.length} seeds.`)
    if (baseline !== undefined) {
      notes.push(`"better" and "worse": the difference to ${baseline}, seed by seed, is more than chance.`)
    }
  }
  if (!isComplete) notes.push('Stopped before the end: what is above is what was done.')
  return notes
}

export function tierName(tier: string): string {
  return tier === 'longContext' ? 'long-context' : tier
}

/** A speed or another plain number: three digits that count. */
export function shortNumber(value: number): string {
  return String(Number(value.toPrecision(3)))
}

/** Rows of a table for a terminal: the first column to the left, all others to the right. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map(row => row[i]!.length)))
  return rows.map(row =>
    `  ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  ')}`.trimEnd(),
  )
}
