import { readFileSync } from 'node:fs'
import { systemClock } from '@homing/base'
import { CellRunner, parseWorkload } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { HEDGE_FLEETS, HEDGE_MARKS, hedgeRows, renderHedges } from './hedge-table.ts'

t.test('the page has the marks, and a row for each fleet', t => {
  const page = readFileSync(new URL('../../docs/reliability.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the table', HEDGE_MARKS), `${HEDGE_MARKS.begin}\nthe table\n${HEDGE_MARKS.end}`)
  for (const { name } of HEDGE_FLEETS) t.ok(page.includes(`| short chats | ${name} | 40 % | off |`), name)
  t.end()
})

t.test('a small fleet has a row for each rule, and nothing is asked twice without one', async t => {
  const runner = new CellRunner({ threads: 1, clock: systemClock, store: undefined })
  t.teardown(() => runner.stop())
  const workload = await parseWorkload('generator:sessions?loop=open', 60)
  const rows = await hedgeRows(runner, workload, 1, HEDGE_FLEETS.slice(1, 2), [0.5])
  t.strictSame(
    rows.map(({ hedge }) => hedge),
    ['off', 'auto, 200 ms', 'fixed, 1 s', 'fixed, 200 ms, budget 1'],
  )
  t.equal(rows[0]!.hedgedShare, 0)
  t.equal(rows[0]!.prefill, 1)
  t.equal(renderHedges(rows).split('\n').length, 4)
})
