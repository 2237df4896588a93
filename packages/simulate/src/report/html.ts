/**
 * The report as one HTML page that asks for nothing else: no script, no font, no picture of another place.
 *
 * Curves first, because they show the shape; tables below, because they show the figures. Light and dark
 * follow the reader's system. A policy is hidden by its box in the legend, which is CSS alone.
 */

import type { ReportAbout } from './about.ts'
import { figureText, METRICS, type MetricKey } from './metrics.ts'
import type {
  Summary,
  SummaryCapacity,
  SummaryFigure,
  SummaryPoint,
  SummaryRow,
  WorkloadSummary,
} from './summary.ts'
import {
  type ChartPoint,
  type CurveChart,
  curveChart,
  dotChart,
  escapeHtml,
  legendMark,
  STYLES_MAX,
} from './svg-chart.ts'
import { secondsText, shortNumber, tierName } from './text-table.ts'

/** In the order of reading. */
const CURVES: readonly (readonly MetricKey[])[] = [
  ['standard', 'hitRate', 'hitEfficiency'],
  ['ttftMean', 'ttftP50', 'ttftP90', 'ttftP99'],
  ['e2eMean', 'e2eP50', 'e2eP90', 'e2eP99'],
  ['itlMean', 'outstandingMax', 'newTokensCv', 'busyCv'],
]
const TABLE: readonly MetricKey[] = [
  'ttftMean',
  'ttftP50',
  'ttftP90',
  'ttftP99',
  'itlMean',
  'itlP99',
  'e2eMean',
  'e2eP99',
  'hitRate',
  'hitEfficiency',
  'interactive',
  'standard',
  'longContext',
  'outputRate',
  'outstandingMax',
  'newTokensCv',
  'busyCv',
  'missedReuse',
  'drain',
]

export function renderHtml(about: ReportAbout, summary: Summary): string {
  const { columns } = summary
  const styleOf = (column: string): number => columns.indexOf(column) % STYLES_MAX
  const body = [
    `<header><h1>Simulated routing</h1>`,
    `<p>${escapeHtml(about.fleet)} ${escapeHtml(about.view)}</p>`,
    summary.isComplete
      ? ''
      : '<p class="warning"><strong>Stopped before the end:</strong> this page has what was done.</p>',
    `<ul>${about.workloads.map(({ name, source }) => `<li><strong>${escapeHtml(name)}</strong>: ${escapeHtml(source)}</li>`).join('')}</ul>`,
    `<pre><code>${escapeHtml(about.command)}</code></pre></header>`,
    legend(columns, styleOf),
    ...summary.workloads.map(workload => workloadSection(workload, summary, styleOf)),
    reading(about, summary),
  ]
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta name="color-scheme" content="light dark"><title>Simulated routing</title><style>${reportStyle(columns.length)}</style></head>`,
    `<body>${body.join('\n')}</body></html>\n`,
  ].join('\n')
}

function legend(columns: readonly string[], styleOf: (column: string) => number): string {
  const labels = columns.map(
    column =>
      `<label class="l${styleOf(column)}"><input type="checkbox" checked id="show${styleOf(column)}">${legendMark(styleOf(column))}${escapeHtml(column)}</label>`,
  )
  return `<nav aria-label="Policies">${labels.join('')}</nav>`
}

function workloadSection(
  { workload, points, capacities }: WorkloadSummary,
  summary: Summary,
  styleOf: (column: string) => number,
): string {
  const capacity = capacities.length === 0 ? [] : [capacityFigure(capacities, styleOf)]
  const curves = points.length === 0 ? [] : CURVES
  const [first = [], ...others] = curves.map(keys =>
    keys.map(key => figureOfMetric(key, points, summary.columns, styleOf)),
  )
  const parts = [`<section><h2>${escapeHtml(workload)}</h2>`]
  for (const figures of [[...capacity, ...first], ...others]) {
    parts.push(`<div class="charts">${figures.join('')}</div>`)
  }
  parts.push(...points.map(point => table(point, summary)))
  return `${parts.join('')}</section>`
}

function capacityFigure(capacities: readonly SummaryCapacity[], styleOf: (column: string) => number): string {
  const title = `capacity, tier ${tierName(capacities[0]!.tier)}`
  const rows = capacities.map(({ column, mean, halfWidth, isAtLeast }) => ({
    style: styleOf(column),
    name: column,
    value: mean,
    halfWidth,
    text: `${isAtLeast ? '≥ ' : ''}${shortNumber(mean)}`,
  }))
  const chart = dotChart({ title, xLabel: 'speed', rows, format: shortNumber })
  return `<figure><figcaption>${title}</figcaption>${chart}</figure>`
}

function figureOfMetric(
  key: MetricKey,
  points: readonly SummaryPoint[],
  columns: readonly string[],
  styleOf: (column: string) => number,
): string {
  const metric = METRICS[key]
  const unit = metric.unit === '×' ? '' : metric.unit
  const format = (value: number): string => axisText(metric.unit === '%' ? value * 100 : value)
  const caption = `${metric.name}${unit === '' ? '' : `, ${unit}`}`
  const rowsAt = (point: SummaryPoint, column: string): SummaryFigure | undefined =>
    point.rows.find(row => row.column === column)?.figures[key]
  if (points.length === 1) {
    const rows = columns.flatMap(column => {
      const figure = rowsAt(points[0]!, column)
      if (figure === undefined) return []
      const { mean, halfWidth } = figure
      return [
        { style: styleOf(column), name: column, value: mean, halfWidth, text: figureText(metric, mean) },
      ]
    })
    return `<figure><figcaption>${caption}</figcaption>${dotChart({ title: caption, xLabel: unit, rows, format })}</figure>`
  }
  const chart: CurveChart = {
    title: caption,
    xLabel: 'speed',
    scale: metric.unit === '%' ? 'linear' : 'auto',
    format,
    series: columns.map(column => ({
      style: styleOf(column),
      name: column,
      points: points.flatMap((point): ChartPoint[] => {
        const figure = rowsAt(point, column)
        if (figure === undefined) return []
        const title = `${column}, speed ${shortNumber(point.speed)}: ${valueText(key, figure)}`
        return [{ x: point.speed, y: figure.mean, halfWidth: figure.halfWidth, title }]
      }),
    })),
  }
  return `<figure><figcaption>${caption}</figcaption>${curveChart(chart)}</figure>`
}

function valueText(key: MetricKey, { mean, halfWidth }: SummaryFigure): string {
  const metric = METRICS[key]
  const interval = halfWidth === undefined ? '' : ` ± ${figureText(metric, halfWidth)}`
  return `${figureText(metric, mean)}${interval} ${metric.unit}`.trim()
}

function table(
  { speed, loadShare, requests, requestsPerS, rows }: SummaryPoint,
  { baseline }: Summary,
): string {
  const load = loadShare === undefined ? '' : `${Math.round(loadShare * 100)} % of the best capacity, `
  const rate = Number.isFinite(requestsPerS) ? `, ${requestsPerS.toFixed(1)} requests/s` : ''
  const headings = TABLE.map(key => {
    const { name, unit } = METRICS[key]
    return `<th scope="col">${name}${unit === '' || unit === '×' ? '' : `<br><small>${unit}</small>`}</th>`
  })
  const body = rows.map(
    row =>
      `<tr class="r${row.column === baseline ? ' baseline' : ''}"><th scope="row">${escapeHtml(row.column)}</th>${TABLE.map(key => cell(key, row)).join('')}</tr>`,
  )
  return (
    `<details${rows.length > 0 ? ' open' : ''}><summary>${load}speed ${shortNumber(speed)} (${requests} requests${rate})</summary>` +
    `<div class="scroll"><table><thead><tr><th scope="col">policy</th>${headings.join('')}</tr></thead><tbody>${body.join('')}</tbody></table></div>` +
    `${queueTable(rows)}${tenantTable(rows)}</details>`
  )
}

/** What waited in the routers; '' where none has a queue. */
function queueTable(rows: readonly SummaryRow[]): string {
  const cells = rows.flatMap(({ column, queue }) =>
    queue === undefined
      ? []
      : [
          [
            column,
            (100 * queue.waitedShare).toFixed(1),
            ...[queue.waitMeanMs, queue.waitP99Ms, queue.waitMaxMs].map(secondsText),
            String(queue.refused),
          ],
        ],
  )
  const headings = ['waiting in the router', 'waited, %', 'mean, s', 'p99, s', 'longest, s', 'refused']
  return plainTable(headings, cells)
}

/** What each tenant got; '' where the traffic names none. */
function tenantTable(rows: readonly SummaryRow[]): string {
  const cells = rows.flatMap(({ column, tenants = [] }) =>
    tenants.map(each => [
      `${column}, ${each.tenant}`,
      String(Math.round(each.requests)),
      (100 * each.prefillShare).toFixed(1),
      ...[each.ttftMeanMs, each.ttftP99Ms, each.waitMeanMs, each.waitMaxMs].map(secondsText),
    ]),
  )
  const headings = [
    'by tenant',
    'requests',
    'prefill, %',
    'TTFT mean, s',
    'p99, s',
    'wait mean, s',
    'longest, s',
  ]
  return plainTable(headings, cells)
}

function plainTable([first, ...headings]: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return ''
  const head = [first!, ...headings].map(text => `<th scope="col">${text}</th>`).join('')
  const body = rows.map(
    ([name, ...figures]) =>
      `<tr class="r"><th scope="row">${escapeHtml(name!)}</th>${figures.map(text => `<td>${text}</td>`).join('')}</tr>`,
  )
  return `<div class="scroll"><table><thead><tr>${head}</tr></thead><tbody>${body.join('')}</tbody></table></div>`
}

function cell(key: MetricKey, { figures }: SummaryRow): string {
  const figure = figures[key]
  const { mean, halfWidth, verdict } = figure
  const interval = halfWidth === undefined ? '' : `<small>±${figureText(METRICS[key], halfWidth)}</small>`
  // An arrow and a word for screen readers; the colour only repeats them.
  const mark =
    verdict === 'open'
      ? ''
      : `<span class="${verdict}" title="${verdict} than the baseline">${verdict === 'better' ? '▲' : '▼'}<i>${verdict}</i></span>`
  return `<td>${figureText(METRICS[key], mean)}${interval}${mark}</td>`
}

function reading({ seeds, warmupShare }: ReportAbout, { baseline }: Summary): string {
  const lines = [
    'TTFT: from arrival at the router to the first token. ITL: mean gap between the tokens of one request. E2E: from arrival to the last token.',
    `Latencies leave out the first ${Math.round(warmupShare * 100)} % of the requests, while caches are cold; everything else counts all of them.`,
    'Tiers: interactive is TTFT ≤ 2 s and ITL ≤ 50 ms, standard 5 s and 100 ms, long-context 30 s and 200 ms. Goodput is the share of the requests inside; capacity is the highest speed with 95 % inside.',
    'Hit efficiency: the hit rate over that of one cache without bound. Missed reuse: blocks that were computed although another worker held them. Drain: makespan over the span of the arrivals; far above 1, the fleet was overloaded.',
    'Imbalance: time-mean of the largest over the mean outstanding tokens of a worker; CV is the standard deviation over the mean.',
    seeds.length > 1
      ? `Every figure is a mean over ${seeds.length} seeds; ± and the thin bars are half of its 95 % interval.`
      : 'One seed: there are no intervals, and small differences mean nothing.',
    baseline === undefined || seeds.length < 2
      ? ''
      : `▲ better and ▼ worse than ${baseline}: the difference, seed by seed, is more than chance.`,
    'Constants are of one engine and one model: good enough to compare policies, not to size a cluster.',
  ]
  return `<footer><h2>How to read it</h2><ul>${lines
    .filter(line => line !== '')
    .map(line => `<li>${escapeHtml(line)}</li>`)
    .join('')}</ul></footer>`
}

function axisText(value: number): string {
  if (Math.abs(value) >= 10_000) return `${shortNumber(value / 1000)} k`
  return shortNumber(value)
}

/**
 * Distinguishable with every common kind of colour blindness (Okabe and Ito), and brighter on a dark
 * background.
 */
const LIGHT = [
  '#0072b2',
  '#c44e00',
  '#007f5c',
  '#b0508b',
  '#a87800',
  '#2f86b8',
  '#111111',
  '#7a4a21',
  '#5b5bd6',
  '#666666',
]
const DARK = [
  '#5ab4f0',
  '#ff9150',
  '#35d0a0',
  '#f0a0d0',
  '#f0c24a',
  '#a8dcff',
  '#ffffff',
  '#d8a878',
  '#b0b0ff',
  '#aaaaaa',
]

/** The style of a report whose charts have `columnCount` series. */
export function reportStyle(columnCount: number): string {
  const count = Math.min(columnCount, STYLES_MAX)
  const numbers = Array.from({ length: count }, (_, i) => i)
  const variables = (colors: readonly string[]): string => numbers.map(i => `--s${i}:${colors[i]}`).join(';')
  const series = numbers.map(
    i =>
      `.s${i}{--c:var(--s${i})}` +
      `body:has(#show${i}:not(:checked)) figure .s${i}{display:none}` +
      `body:has(.l${i}:hover) figure .s:not(.s${i}){opacity:.15}`,
  )
  return `
:root{--ground:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--panel:#f6f8fa;--good:#00613f;--bad:#a33a00;${variables(LIGHT)}}
@media (prefers-color-scheme:dark){:root{--ground:#0f1318;--ink:#e8ecf1;--soft:#9aa5b1;--rule:#2b323b;--panel:#171c23;--good:#48d6a2;--bad:#ff9c66;${variables(DARK)}}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1560px;padding:16px;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.2rem;margin:1.6em 0 .4em}p,ul{margin:.4em 0}ul{padding-left:1.2em}li{overflow-wrap:anywhere}
pre{background:var(--panel);padding:8px 10px;border-radius:6px;overflow-x:auto;font-size:.85rem}
.warning{border-left:4px solid var(--bad);padding-left:10px}
nav{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:2px 14px;padding:8px 0;background:var(--ground);border-bottom:1px solid var(--rule)}
nav label{display:inline-flex;align-items:center;gap:4px;font-size:.85rem;white-space:nowrap;cursor:pointer}
nav input{margin:0;accent-color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,320px),1fr));gap:10px;margin:10px 0}
figure{margin:0;padding:8px;background:var(--panel);border-radius:8px}
figcaption{font-weight:600;font-size:.9rem}
figure svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg .grid{stroke:var(--rule)}svg .axis{stroke:var(--soft)}
.s polyline{stroke:var(--c);stroke-width:1.8}.s .mark{fill:var(--c);stroke:var(--c);stroke-width:1.2}.s .mark.open{fill:var(--panel);stroke-width:2}.s path.mark.open{fill:none}
.s .interval{stroke:var(--c);stroke-width:1.2;opacity:.65}.s .stem{stroke:var(--c);stroke-width:1;opacity:.35}
details{margin:10px 0}summary{cursor:pointer;font-weight:600}
.scroll{overflow-x:auto}
table{margin:0 0 10px;border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap;vertical-align:bottom}
thead th{font-weight:600;color:var(--soft)}tbody th{text-align:left;font-weight:600;position:sticky;left:0;background:var(--ground)}
th:first-child{text-align:left}td small{color:var(--soft);margin-left:3px}
.better,.worse{margin-left:3px;font-size:.7rem}.better{color:var(--good)}.worse{color:var(--bad)}
td i{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
footer{font-size:.9rem;color:var(--soft)}
${series.join('\n')}`
}
