import { readFileSync } from 'node:fs'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { BOUND_MARKS, boundRows, renderBound } from './bound-table.ts'
import { judgedPlaces } from './judgement-cells.ts'

t.test('the page has the marks and a row for each load without copies', t => {
  const page = readFileSync(new URL('../../docs/records/routing-quality.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the table', BOUND_MARKS), `${BOUND_MARKS.begin}\nthe table\n${BOUND_MARKS.end}`)
  for (const cell of ['groups 10', 'groups 50']) t.match(page, `| F8 ${cell} % | knows all, no copies |`)
  t.end()
})

t.test('a small place has rows for rules and for the placement that knows all', async t => {
  const [place] = await judgedPlaces(true)
  const rows = await boundRows(place!, '50 %', 1, [1], [0, Number.POSITIVE_INFINITY])
  t.strictSame(
    rows.map(({ name }) => name),
    ['threshold', 'product', 'auto', 'knows all, 0 ms a copy', 'knows all, no copies'],
  )
  t.match(renderBound(rows), /\| 50 % \| knows all, no copies \| \d\.\d{3} \(/)
})
