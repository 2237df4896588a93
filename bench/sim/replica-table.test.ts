import { readFileSync } from 'node:fs'
import type { CellResult } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { JUDGED, REPLICA_MARKS, renderReplicas, WAYS } from './replica-table.ts'

const result = (hitRate: number, outstandingMaxOverMean: number, ttftMs: number): CellResult =>
  ({
    hitRate,
    imbalance: { outstandingMaxOverMean },
    ttftMs: { mean: ttftMs, p99: 2 * ttftMs },
    e2eMs: { mean: 10 * ttftMs },
    company: { requests: 0.05, sameWorkerShare: 0.25 },
  }) as unknown as CellResult

t.test('the page has the marks between which the tables are written, and what is measured', async t => {
  const page = readFileSync(new URL('../../docs/records/routing-quality.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the table', REPLICA_MARKS), 'the table')
  const rows = page.slice(page.indexOf(REPLICA_MARKS.begin), page.indexOf(REPLICA_MARKS.end)).split('\n')
  for (const fleet of ['F8', 'F64'])
    t.ok(
      rows.some(row => row.startsWith(`| ${fleet} |`)),
      fleet,
    )
})

t.test('several routers are judged as the product tells, by hit rate and imbalance', async t => {
  const one = [result(0.5, 1.5, 100), result(0.4, 1.4, 50)]
  const row = (judged: CellResult[]) => ({
    fleet: 'F8',
    traffic: 'toolagent_like',
    load: 0.85,
    routers: 8,
    one,
    several: WAYS.map(({ name }) => (name === JUDGED ? judged : one)),
  })
  const close = [result(0.495, 1.51, 100), result(0.396, 1.41, 50)]
  const [fewer, uneven] = [
    [result(0.45, 1.5, 100), result(0.36, 1.4, 50)],
    [result(0.5, 1.6, 100), result(0.4, 1.5, 50)],
  ]
  const lines = renderReplicas([row(close), row(fewer), row(uneven)]).split('\n')
  const quality = lines.filter(line => line.startsWith('| F8 |')).slice(0, 3)
  t.match(quality[0], /0\.990 ± 0\.000, 1\.007 ± 0\.\d+ \| yes \|$/)
  t.match(quality[1], /0\.900 .* \| \*\*no\*\* \|$/)
  t.match(quality[2], /1\.0\d+ .* \| \*\*no\*\* \|$/)
  t.match(lines.at(-1), '| F8 | toolagent_like | 85 % | 8 | 25.0 (0.05) |')
})
