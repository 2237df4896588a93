import { readFileSync } from 'node:fs'
import { type Summary, summarize } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { MARKS, renderPolicies } from './policy-table.ts'

t.test('the page has the marks between which the table is written, and rows for both fleets', async t => {
  const page = readFileSync(new URL('../../docs/records/routing-quality.md', import.meta.url), 'utf8')
  t.equal(withTable(withTable(page, 'x', MARKS), 'x', MARKS), withTable(page, 'x', MARKS))
  t.match(withTable(page, 'the table', MARKS), `${MARKS.begin}\nthe table\n${MARKS.end}`)
  const rows = page.slice(page.indexOf(MARKS.begin), page.indexOf(MARKS.end)).split('\n')
  for (const fleet of ['F8', 'F64']) {
    for (const load of [50, 85, 110]) {
      const own = rows.filter(row => row.startsWith(`| ${fleet} | ${load} % | `))
      t.equal(own.length, 8, `${fleet} at ${load} %`)
      t.ok(
        own.every(row => !row.includes('–')),
        'every cell has figures',
      )
    }
  }
})

t.test('a page without marks is told, and a sweep without cells has dashes', async t => {
  t.throws(() => withTable('page', 'x', MARKS), /the page has no <!-- policies: begin -->/)
  const empty: Summary = summarize({ cells: [], capacities: [], isComplete: true }, ['linear'])
  t.match(renderPolicies(new Map([['F8', empty]])), '| F8 | 50 % | linear | – | – | – |')
})
