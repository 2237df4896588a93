import { readFileSync } from 'node:fs'
import { systemClock } from '@homing/base'
import { CellRunner, parseWorkload } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { POOLS_FLEETS, POOLS_MARKS, poolsRows, renderPools } from './pools-table.ts'

t.test('the page has the marks, and a block for each fleet and load', t => {
  const page = readFileSync(new URL('../../docs/records/disaggregation.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the table', POOLS_MARKS), `${POOLS_MARKS.begin}\nthe table\n${POOLS_MARKS.end}`)
  for (const { prefill, decode } of POOLS_FLEETS)
    for (const load of [50, 85]) t.match(page, `| ${prefill}P${decode}D | ${load} % | together |`)
  t.end()
})

t.test('a small fleet has a row for each placement, and one of them is the best', async t => {
  const runner = new CellRunner({ threads: 1, clock: systemClock, store: undefined })
  t.teardown(() => runner.stop())
  const workload = await parseWorkload('generator:sessions?loop=open', 60)
  const traffic = [{ name: 'generated', workload }]
  const rows = await poolsRows(runner, traffic, [{ prefill: 1, decode: 1 }], 1, [0.5])
  t.strictSame(
    rows.map(({ way }) => way),
    [
      'together',
      'apart, 64 GB/s',
      'apart, 64 GB/s, conditional',
      'apart, 64 GB/s, auto',
      'apart, 10 Gbit/s',
      'apart, 10 Gbit/s, conditional',
      'apart, 10 Gbit/s, auto',
    ],
  )
  const [, fast, , , slow] = rows.map(({ cells }) => cells[0]!)
  t.ok(slow!.ttftMs > fast!.ttftMs, 'a slow link delays first tokens')
  const table = renderPools(rows)
  t.ok(table.includes('| 1P1D | 50 % | together |'))
  t.ok((table.match(/\*\*/g) ?? []).length >= 2, table)
})
