/**
 * Charts as SVG text: curves against a load, and rows of dots. Drawn at 360 units of width, so that their
 * text is readable on a telephone.
 *
 * A series has its own colour, mark and dashes, so that it can be recognized without colours. Colours
 * are CSS variables `--s0` … of the page; each series has a class `s0` …, so that the page can hide or lift
 * it. Every mark has its values as a tooltip.
 */

export interface ChartPoint {
  readonly x: number
  readonly y: number
  /** Half of the interval around y. */
  readonly halfWidth: number | undefined
  /** Tooltip. */
  readonly title: string
}

export interface ChartSeries {
  /** Number of its colour, mark and dashes; the same in all charts. */
  readonly style: number
  readonly name: string
  /** By x, ascending. */
  readonly points: readonly ChartPoint[]
}

export interface CurveChart {
  readonly title: string
  readonly xLabel: string
  /** 'auto': logarithmic if the values are far apart and above 0. */
  readonly scale: 'linear' | 'auto'
  readonly series: readonly ChartSeries[]
  /** Text of a number on the y axis. */
  readonly format: (value: number) => string
}

export interface DotRow {
  readonly style: number
  readonly name: string
  readonly value: number
  readonly halfWidth: number | undefined
  /** What stands behind the dot. */
  readonly text: string
}

export interface DotChart {
  readonly title: string
  readonly xLabel: string
  readonly rows: readonly DotRow[]
  readonly format: (value: number) => string
}

export interface DifferenceRow {
  readonly name: string
  readonly value: number
  /** Undefined: there is no interval. */
  readonly halfWidth: number | undefined
  /** Number of its colour and mark. */
  readonly style: number
  /** Tooltip. */
  readonly text: string
}

const WIDTH = 360
const HEIGHT = 230
const LEFT = 44
const RIGHT = 12
const TOP = 10
const BOTTOM = 36
const DASHES = ['', '7 3', '2 3', '9 3 2 3', '', '4 2', '12 4', '2 2 6 2', '', '5 5']
/** Values so many times apart are drawn on a logarithmic axis. */
const LOG_RATIO_MIN = 20

/** How far a difference chart reaches, in multiples of its largest difference. */
const DIFFERENCE_REACH = 4

export const STYLES_MAX = 10

/** Curves; values that are not finite are left out. */
export function curveChart(chart: CurveChart): string {
  const series = chart.series.map(each => ({
    ...each,
    points: each.points.filter(({ y }) => Number.isFinite(y)),
  }))
  const all = series.flatMap(({ points }) => points)
  if (all.length === 0) return frame(chart.title, HEIGHT, text(WIDTH / 2, HEIGHT / 2, 'no values', 'middle'))
  const ys = all.map(({ y }) => y)
  const isLog =
    chart.scale === 'auto' && Math.min(...ys) > 0 && Math.max(...ys) / Math.min(...ys) >= LOG_RATIO_MIN
  const high = Math.max(...all.map(({ y, halfWidth }) => y + (halfWidth ?? 0)))
  const y = isLog
    ? logAxis(Math.min(...ys), Math.max(...ys), HEIGHT - BOTTOM, TOP)
    : linearAxis(0, high, HEIGHT - BOTTOM, TOP)
  const xs = [...new Set(all.map(point => point.x))].sort((a, b) => a - b)
  const spread = xs.at(-1)! - xs[0]! || 1
  const xAt = (value: number): number => LEFT + 14 + ((value - xs[0]!) / spread) * (WIDTH - LEFT - RIGHT - 28)

  const parts: string[] = []
  for (const tick of y.ticks) {
    parts.push(line(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick), 'grid'))
    parts.push(text(LEFT - 5, y.at(tick) + 4, chart.format(tick), 'end'))
  }
  parts.push(line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, 'axis'))
  for (const x of thinned(xs, xAt)) {
    parts.push(line(xAt(x), HEIGHT - BOTTOM, xAt(x), HEIGHT - BOTTOM + 4, 'axis'))
    parts.push(text(xAt(x), HEIGHT - BOTTOM + 16, String(Number(x.toPrecision(3))), 'middle'))
  }
  parts.push(text(WIDTH - RIGHT, HEIGHT - 4, chart.xLabel, 'end'))
  if (isLog) parts.push(text(4, HEIGHT - 4, 'logarithmic', 'start'))
  for (const { style, points } of series) {
    const path = points.map(point => `${round(xAt(point.x))},${round(y.at(point.y))}`).join(' ')
    const drawn = [
      `<polyline points="${path}" fill="none" stroke-dasharray="${DASHES[style % DASHES.length]}"/>`,
    ]
    for (const point of points) {
      const { halfWidth, title } = point
      if (halfWidth !== undefined && halfWidth > 0) {
        const low = isLog ? Math.max(point.y - halfWidth, y.low) : Math.max(0, point.y - halfWidth)
        const top = Math.min(point.y + halfWidth, y.high)
        drawn.push(line(xAt(point.x), y.at(low), xAt(point.x), y.at(top), 'interval'))
      }
      drawn.push(mark(style, xAt(point.x), y.at(point.y), title))
    }
    parts.push(group(style, drawn))
  }
  return frame(chart.title, HEIGHT, parts.join(''))
}

/** A row for each series: a dot on a common axis that begins at 0. */
export function dotChart({ title, xLabel, rows, format }: DotChart): string {
  const rowHeight = 22
  const left = 96
  const height = TOP + rows.length * rowHeight + BOTTOM
  const known = rows.filter(({ value }) => Number.isFinite(value))
  const high = Math.max(0, ...known.map(({ value, halfWidth }) => value + (halfWidth ?? 0)))
  const x = linearAxis(0, high, left, WIDTH - RIGHT - 56)
  const bottom = TOP + rows.length * rowHeight
  const parts: string[] = []
  for (const tick of x.ticks) {
    parts.push(line(x.at(tick), TOP, x.at(tick), bottom, 'grid'))
    parts.push(text(x.at(tick), bottom + 14, format(tick), 'middle'))
  }
  parts.push(text(WIDTH - RIGHT, height - 4, xLabel, 'end'))
  rows.forEach((row, i) => {
    const y = TOP + (i + 0.5) * rowHeight
    const drawn = [text(left - 8, y + 4, row.name, 'end')]
    if (Number.isFinite(row.value)) {
      drawn.push(line(x.at(0), y, x.at(row.value), y, 'stem'))
      if (row.halfWidth !== undefined && row.halfWidth > 0) {
        drawn.push(
          line(
            x.at(Math.max(0, row.value - row.halfWidth)),
            y,
            x.at(row.value + row.halfWidth),
            y,
            'interval',
          ),
        )
      }
      drawn.push(mark(row.style, x.at(row.value), y, `${row.name}: ${row.text}`))
      drawn.push(text(x.at(row.value + (row.halfWidth ?? 0)) + 9, y + 4, row.text, 'start'))
    }
    parts.push(group(row.style, drawn))
  })
  return frame(title, height, parts.join(''))
}

/** A row for each difference with its interval, around a line at 0. Intervals that do not fit are cut. */
export function differenceChart(
  title: string,
  xLabel: string,
  rows: readonly DifferenceRow[],
  format: (value: number) => string,
): string {
  const rowHeight = 22
  const left = 132
  const bottom = TOP + rows.length * rowHeight
  const height = bottom + BOTTOM
  const known = rows.filter(({ value }) => Number.isFinite(value))
  const values = known.map(({ value }) => Math.abs(value))
  const reaches = known.map(({ value, halfWidth }) => Math.abs(value) + (halfWidth ?? 0))
  const reach = Math.min(Math.max(0, ...reaches), Math.max(1, ...values) * DIFFERENCE_REACH)
  const right = linearAxis(0, reach, (left + WIDTH - RIGHT) / 2, WIDTH - RIGHT)
  const at = (value: number): number => {
    const x = right.at(Math.min(Math.abs(value), right.high))
    return value < 0 ? 2 * right.at(0) - x : x
  }
  const parts: string[] = []
  for (const tick of [-right.high, 0, right.high]) {
    parts.push(line(at(tick), TOP, at(tick), bottom, tick === 0 ? 'axis' : 'grid'))
    parts.push(text(at(tick), bottom + 14, format(tick), tick === 0 ? 'middle' : tick < 0 ? 'start' : 'end'))
  }
  parts.push(text(WIDTH - RIGHT, height - 4, xLabel, 'end'))
  rows.forEach(({ name, value, halfWidth, style, text: tip }, i) => {
    const y = TOP + (i + 0.5) * rowHeight
    const drawn = [text(left - 8, y + 4, name, 'end')]
    if (Number.isFinite(value)) {
      if (halfWidth !== undefined)
        drawn.push(line(at(value - halfWidth), y, at(value + halfWidth), y, 'interval'))
      drawn.push(mark(style, at(value), y, `${name}: ${tip}`))
    }
    parts.push(group(style, drawn))
  })
  return frame(title, height, parts.join(''))
}

/** The mark of a series for a legend. */
export function legendMark(style: number): string {
  const dashes = DASHES[style % DASHES.length]
  return (
    `<svg viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" class="s s${style}">` +
    `<polyline points="1,7 33,7" fill="none" stroke-dasharray="${dashes}"/>${mark(style, 17, 7)}</svg>`
  )
}

export function escapeHtml(words: string): string {
  return words
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}

interface Axis {
  readonly low: number
  readonly high: number
  readonly ticks: readonly number[]
  at(value: number): number
}

/** From `from` to `to` in pixels; about four ticks at 1, 2 or 5 times a power of ten. */
function linearAxis(low: number, high: number, from: number, to: number): Axis {
  const raw = (high - low || 1) / 4
  const power = 10 ** Math.floor(Math.log10(raw))
  const step = power * ([1, 2, 5, 10].find(each => each * power >= raw) ?? 10)
  const count = Math.max(1, Math.ceil((high - low) / step - 1e-9))
  const end = low + count * step
  return {
    low,
    high: end,
    ticks: Array.from({ length: count + 1 }, (_, i) => Number((low + i * step).toPrecision(12))),
    at: value => from + ((value - low) / (end - low)) * (to - from),
  }
}

/** Ticks at powers of ten, with 2 and 5 between them where there is room. */
function logAxis(low: number, high: number, from: number, to: number): Axis {
  const candidates: number[] = []
  for (let exponent = Math.floor(Math.log10(low)) - 1; exponent <= Math.ceil(Math.log10(high)); exponent++) {
    for (const factor of [1, 2, 5]) candidates.push(Number((factor * 10 ** exponent).toPrecision(3)))
  }
  const first = candidates.findLast(tick => tick <= low)!
  const last = candidates.find(tick => tick >= high)!
  const inside = candidates.filter(tick => tick >= first && tick <= last)
  const ticks =
    inside.length <= 7
      ? inside
      : inside.filter(tick => /^[^1-9]*1/.test(String(tick)) || /^1e/.test(String(tick)))
  return {
    low: first,
    high: last,
    ticks,
    at: value => from + (Math.log(value / first) / Math.log(last / first)) * (to - from),
  }
}

/** Numbers on the x axis that do not touch. */
function thinned(xs: readonly number[], at: (x: number) => number): number[] {
  const kept: number[] = []
  for (const x of xs) if (kept.length === 0 || at(x) - at(kept.at(-1)!) >= 30) kept.push(x)
  return kept
}

function mark(style: number, x: number, y: number, title?: string): string {
  const r = 4.5
  const at = (dx: number, dy: number): string => `${round(x + dx * r)},${round(y + dy * r)}`
  const polygon = (...corners: readonly (readonly [number, number])[]): string =>
    `<polygon class="mark" points="${corners.map(([dx, dy]) => at(dx, dy)).join(' ')}">`
  const strokes = (path: string): string => `<path class="mark open" d="${path}">`
  const shapes: readonly [string, string][] = [
    [`<circle class="mark" cx="${round(x)}" cy="${round(y)}" r="${r * 0.95}">`, 'circle'],
    [polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]), 'polygon'],
    [polygon([0, -1.15], [1.1, 0.85], [-1.1, 0.85]), 'polygon'],
    [polygon([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]), 'polygon'],
    [polygon([0, 1.15], [1.1, -0.85], [-1.1, -0.85]), 'polygon'],
    [strokes(`M${at(-0.9, -0.9)}L${at(0.9, 0.9)}M${at(0.9, -0.9)}L${at(-0.9, 0.9)}`), 'path'],
    [strokes(`M${at(-1.1, 0)}L${at(1.1, 0)}M${at(0, -1.1)}L${at(0, 1.1)}`), 'path'],
    [`<circle class="mark open" cx="${round(x)}" cy="${round(y)}" r="${r}">`, 'circle'],
    [
      `<polygon class="mark open" points="${at(-0.95, -0.95)} ${at(0.95, -0.95)} ${at(0.95, 0.95)} ${at(-0.95, 0.95)}">`,
      'polygon',
    ],
    [
      `<polygon class="mark open" points="${at(0, -1.3)} ${at(1.3, 0)} ${at(0, 1.3)} ${at(-1.3, 0)}">`,
      'polygon',
    ],
  ]
  const [opening, element] = shapes[style % shapes.length]!
  return `${opening}${title === undefined ? '' : `<title>${escapeHtml(title)}</title>`}</${element}>`
}

function frame(title: string, height: number, content: string): string {
  return `<svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escapeHtml(title)}">${content}</svg>`
}

function group(style: number, parts: readonly string[]): string {
  return `<g class="s s${style}">${parts.join('')}</g>`
}

function line(x1: number, y1: number, x2: number, y2: number, kind: string): string {
  return `<line class="${kind}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`
}

function text(x: number, y: number, words: string, anchor: 'start' | 'middle' | 'end'): string {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escapeHtml(words)}</text>`
}

function round(value: number): number {
  return Math.round(value * 10) / 10
}
