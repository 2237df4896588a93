/**
 * The result as one HTML page that asks for nothing else: no script, no font, no picture of another place.
 *
 * What differs comes first, with its interval; then each figure of each side, then all settings.
 */

import {
  differenceChart,
  dotChart,
  escapeHtml,
  legendMark,
  reportStyle,
  seedMean,
} from '@homing/simulate/report'
import type { ComparedFigure } from '../comparison.ts'
import { FIGURES, type Figure, figureText } from '../figures.ts'
import type { LoadResult, SideResult } from '../load-plan.ts'
import type { LoadFigures } from '../tally.ts'
import type { LoadAbout } from './about.ts'
import { factsOf, signed, summaryOf } from './text.ts'

const TITLE = 'Load'

export function renderLoadHtml(
  about: LoadAbout,
  result: LoadResult,
  compared: readonly ComparedFigure[],
  faults: readonly string[],
): string {
  const { sides } = result
  const body = [
    `<header><h1>${TITLE}</h1>`,
    `<p>Model ${escapeHtml(about.model)}; ${escapeHtml(about.pace)}; ${escapeHtml(about.requests)}.</p>`,
    ...(result.isComplete ? [] : [warning('Stopped before the end', 'this page has what was measured.')]),
    ...faults.map(fault => warning('Invalid', `${fault}.`)),
    `<pre><code>${escapeHtml(about.command)}</code></pre></header>`,
    `<nav aria-label="Sides">${sides.map(legend).join('')}</nav>`,
    ...(compared.length === 0 ? [] : [comparison(compared)]),
    '<section><h2>Figures</h2><div class="charts">',
    ...(sides.length === 1
      ? percentileCharts(sides[0]!.total)
      : FIGURES.map(figure => figureChart(figure, sides))),
    '</div>',
    ...sides.map(sideTable),
    '</section>',
    settingsTable(about),
    reading(compared),
  ]
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta name="color-scheme" content="light dark"><title>${TITLE}</title><style>${reportStyle(Math.max(2, sides.length))}</style></head>`,
    `<body>${body.join('\n')}</body></html>\n`,
  ].join('\n')
}

function warning(title: string, text: string): string {
  return `<p class="warning"><strong>${title}:</strong> ${escapeHtml(text)}</p>`
}

function legend({ name, url }: SideResult, style: number): string {
  return `<span class="l${style}">${legendMark(style)} <strong>${name}</strong> ${escapeHtml(url)}</span>`
}

function comparison(compared: readonly ComparedFigure[]): string {
  const share = (value: number, { theirs }: ComparedFigure): number =>
    theirs === 0 ? Number.NaN : (100 * value) / theirs
  const rows = compared.map(each => ({
    name: each.figure.name,
    value: share(each.difference, each),
    halfWidth: each.halfWidth === undefined ? undefined : Math.abs(share(each.halfWidth, each)),
    style: each.verdict === 'better' ? 0 : 1,
    text: `${signed(share(each.difference, each))} %, ${each.verdict}`,
  }))
  const chart = differenceChart('A − B in % of B', '% of B', rows, value => `${signed(value)} %`)
  const cells = compared.map(each => {
    const { figure, ours, theirs, difference, halfWidth, verdict } = each
    const interval =
      halfWidth === undefined ? '–' : `${signed(difference - halfWidth)} … ${signed(difference + halfWidth)}`
    const word =
      verdict === 'better' || verdict === 'worse' ? `<b class="${verdict}">A ${verdict}</b>` : verdict
    return `<tr class="r"><th scope="row">${figure.name}, ${figure.unit}</th>${[
      figureText(ours),
      figureText(theirs),
      signed(difference),
      interval,
      word,
    ]
      .map(text => `<td>${text}</td>`)
      .join('')}</tr>`
  })
  const headings = ['figure', 'A', 'B', 'A − B', '95 % interval', 'verdict']
  return [
    `<section><h2>A against B</h2><p><strong>${escapeHtml(summaryOf(compared))}</strong></p>`,
    `<div class="charts"><figure><figcaption>A − B, % of B</figcaption>${chart}</figure></div>`,
    `<div class="scroll"><table><thead><tr>${headings.map(heading).join('')}</tr></thead><tbody>${cells.join('')}</tbody></table></div></section>`,
  ].join('')
}

/** A dot for each side: the mean over its blocks, and half of its own 95 % interval. */
function figureChart(figure: Figure, sides: readonly SideResult[]): string {
  const rows = sides.flatMap(({ name, blocks }, style) => {
    const { mean, halfWidth, seeds } = seedMean(blocks.map(figure.of))
    return seeds === 0 ? [] : [{ style, name, value: mean, halfWidth, text: figureText(mean) }]
  })
  return rows.length === 0 ? '' : chartFigure(`${figure.name}, ${figure.unit}`, figure.unit, rows)
}

function percentileCharts(total: LoadFigures): string[] {
  const parts = ['mean', 'p50', 'p90', 'p99'] as const
  const charts = [
    ['TTFT', total.ttftMs],
    ['ITL', total.itlMs],
    ['E2E', total.e2eMs],
  ] as const
  return charts
    .filter(([, { mean }]) => mean > 0)
    .map(([name, figures]) =>
      chartFigure(
        `${name}, ms`,
        'ms',
        parts.map(part => ({
          style: 0,
          name: part,
          value: figures[part],
          halfWidth: undefined,
          text: figureText(figures[part]),
        })),
      ),
    )
}

function chartFigure(title: string, xLabel: string, rows: Parameters<typeof dotChart>[0]['rows']): string {
  const chart = dotChart({ title, xLabel, rows, format: value => String(Number(value.toPrecision(3))) })
  return `<figure><figcaption>${title}</figcaption>${chart}</figure>`
}

function sideTable({ name, url, total, blocks }: SideResult): string {
  const latencies = [
    ['TTFT', total.ttftMs],
    ['ITL', total.itlMs],
    ['gap', total.gapMs],
    ['E2E', total.e2eMs],
    ['issue lag', total.issueLagMs],
    ['read lag', total.readLagMs],
  ] as const
  const rows = latencies.map(
    ([title, { mean, p50, p90, p99 }]) =>
      `<tr class="r"><th scope="row">${title}</th>${[mean, p50, p90, p99].map(value => `<td>${figureText(value)}</td>`).join('')}</tr>`,
  )
  const facts = factsOf(total).map(
    ([title, text]) => `<tr class="r"><th scope="row">${title}</th><td>${escapeHtml(text)}</td></tr>`,
  )
  return [
    `<details open><summary>${name}: ${escapeHtml(url)}, ${blocks.length === 1 ? 'one block' : `${blocks.length} blocks`}</summary><div class="scroll">`,
    `<table><thead><tr>${['ms', 'mean', 'p50', 'p90', 'p99'].map(heading).join('')}</tr></thead><tbody>${rows.join('')}</tbody></table>`,
    `<table><tbody>${facts.join('')}</tbody></table></div></details>`,
  ].join('')
}

function settingsTable({ settings, startedAt, versions, machine }: LoadAbout): string {
  const all: Readonly<Record<string, unknown>> = {
    started: startedAt,
    versions: Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    machine,
    ...settings,
  }
  const rows = Object.entries(all)
    .filter(([, value]) => value !== undefined)
    .map(
      ([name, value]) =>
        `<tr class="r"><th scope="row">${escapeHtml(name)}</th><td>${escapeHtml(String(value))}</td></tr>`,
    )
  return `<details><summary>Settings</summary><div class="scroll"><table><tbody>${rows.join('')}</tbody></table></div></details>`
}

function reading(compared: readonly ComparedFigure[]): string {
  const lines = [
    'TTFT and E2E: from the instant when a request was due to its first and last token. ITL: (last − first token) ÷ (tokens − 1) of each request; gap: each single time between parts of a stream.',
    'Issue lag and read lag: how late the load itself was, with what was due and with what came. They are part of each latency.',
    ...(compared.length === 0
      ? []
      : [
          'Both sides got the same requests, block by block in turns. A − B is the mean of the differences in the pairs of blocks; its interval is by Student’s t, and holds for all figures together: two equal fleets show a difference in one comparison of twenty at most.',
          'Bars in the charts of single figures are the 95 % interval of that side alone: two that overlap may differ all the same, since requests are paired.',
        ]),
  ]
  return `<footer><h2>How to read it</h2><ul>${lines.map(line => `<li>${escapeHtml(line)}</li>`).join('')}</ul></footer>`
}

function heading(text: string): string {
  return `<th scope="col">${text}</th>`
}
