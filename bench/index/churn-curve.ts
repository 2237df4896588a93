/** The curve of loop churn: a table for programs, a picture for people. */

export interface CurvePoint {
  readonly atS: number
  readonly rssBytes: number
  readonly arrayBytes: number
  readonly memberships: number
}

const WIDTH = 760
const HEIGHT = 300
const LEFT = 60
const BOTTOM = 40
const TOP = 30
const RIGHT = 20
const STEPS = 5

export function churnCsv(points: readonly CurvePoint[]): string {
  const lines = points.map(({ atS, rssBytes, arrayBytes, memberships }) =>
    [atS.toFixed(1), rssBytes, arrayBytes, memberships].join(','),
  )
  return `${['seconds,rss_bytes,array_bytes,memberships', ...lines].join('\n')}\n`
}

export function churnSvg(points: readonly CurvePoint[]): string {
  const minutes = points.at(-1)!.atS / 60
  const highest = Math.max(...points.map(({ rssBytes }) => rssBytes)) / 2 ** 20
  const top = Math.ceil(highest / 50) * 50
  const x = (atS: number) => LEFT + ((WIDTH - LEFT - RIGHT) * atS) / 60 / minutes
  const y = (mebibytes: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * mebibytes) / top
  const line = (color: string, of: (point: CurvePoint) => number) => {
    const path = points.map(point => `${x(point.atS).toFixed(1)},${y(of(point) / 2 ** 20).toFixed(1)}`)
    return `<polyline fill="none" stroke="${color}" stroke-width="1.5" points="${path.join(' ')}"/>`
  }
  const text = (at: number, down: number, words: string, anchor: string, color = '#444') =>
    `<text x="${at.toFixed(1)}" y="${down.toFixed(1)}" text-anchor="${anchor}" fill="${color}">${words}</text>`
  const grid = Array.from({ length: STEPS + 1 }, (_, i) => {
    const mebibytes = (top * i) / STEPS
    const minute = (minutes * i) / STEPS
    return [
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(mebibytes)}" y2="${y(mebibytes)}" stroke="#ddd"/>`,
      text(LEFT - 6, y(mebibytes) + 4, String(Math.round(mebibytes)), 'end'),
      text(x(minute * 60), HEIGHT - BOTTOM + 18, String(Number(minute.toPrecision(3))), 'middle'),
    ].join('\n')
  })
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    ...grid,
    text(LEFT, 18, 'MiB: resident, whole process', 'start', '#1f5fa8'),
    text(LEFT + 190, 18, 'arrays of the index', 'start', '#c2571a'),
    text(WIDTH - RIGHT, HEIGHT - 6, 'minutes', 'end'),
    line('#1f5fa8', ({ rssBytes }) => rssBytes),
    line('#c2571a', ({ arrayBytes }) => arrayBytes),
    '</svg>',
  ].join('\n')}\n`
}
