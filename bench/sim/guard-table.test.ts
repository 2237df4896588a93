import { readFileSync } from 'node:fs'
import type { CellResult } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { CASES, type CaseRuns, GUARD_MARKS, renderGuard } from './guard-table.ts'

t.test('the page has the marks between which the table is written, and a row for every case', async t => {
  const page = readFileSync(new URL('../../docs/records/routing-quality.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the table', GUARD_MARKS), 'the table')
  const rows = page.slice(page.indexOf(GUARD_MARKS.begin), page.indexOf(GUARD_MARKS.end)).split('\n')
  for (const { name } of CASES)
    t.ok(
      rows.some(row => row.startsWith(`| ${name} |`)),
      name,
    )
})

t.test('a case that loses more than 2 % says so, and one that is shrunk when', async t => {
  const result = (ttftMs: number, e2eMs: number, shrunkAfter?: number) =>
    ({
      ttftMs: { mean: ttftMs },
      e2eMs: { mean: e2eMs },
      guard: {
        ...(shrunkAfter !== undefined && { shrunkAfter }),
        tests: 2,
        controlShare: 0.5,
        regretMs: [-1, 0, 1],
      },
    }) as unknown as CellResult
  const runs = (guarded: CellResult[]): CaseRuns['runs'] => ({
    'round-robin': [result(100, 1000), result(200, 2000)],
    'least-loaded': [result(50, 900), result(100, 1800)],
    'auto-unguarded': [result(1000, 2000), result(2000, 4000)],
    auto: guarded,
  })
  const table = renderGuard([
    { name: 'kept', runs: runs([result(102, 1000, 300), result(204, 2000)]) },
    { name: 'lost', runs: runs([result(50, 1030, 7), result(100, 2060, 9)]) },
  ]).split('\n')
  t.equal(
    table[2],
    '| kept | -1 · 0 · 1 | 2.0 | 300 … 300 (1 of 2 seeds) | 50.0 % | 0.50 ± 0.00 · 0.90 ± 0.00 | 10 ± 0 · 2.00 ± 0.00 | 1.02 ± 0.00 · 1.00 ± 0.00 | yes |',
  )
  t.match(table[3], /7 … 9 \(2 of 2 seeds\) .* 1\.03 ± 0\.00 \| \*\*no\*\* \|$/)
})
