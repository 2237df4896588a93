/**
 * The effect of a queue in the router: the tables of docs/records/routing-quality.md. `pnpm exec node
 * bench/sim/queue-table.ts --write` writes them; without --write they are printed. `--seeds N`, `--only
 * PART`, `--policies NAME,…`; past `--minutes N` it stops and writes nothing. Results are kept in
 * .cache/bench-sim, so the next run continues from there.
 *
 * Eight workers (F8); a load is a share of the capacity of auto without a queue, at tier standard, with the
 * first seed.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { systemClock } from '@homing/base'
import { type CellRun, CellRunner, ResultStore, RunnerStopped } from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import {
  capacityRows,
  loadRows,
  overloadRows,
  QUEUE_HEADS,
  QUEUE_POLICIES,
  shareRows,
  tenantRows,
} from './queue-rows.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
export const QUEUE_MARKS = marksOf('queue')

const PARTS = [
  ['load', loadRows],
  ['overload', overloadRows],
  ['tenants', tenantRows],
  ['shares', shareRows],
  ['capacity', capacityRows],
] as const

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '5' },
      minutes: { type: 'string', default: '30' },
      only: { type: 'string', default: '' },
      policies: { type: 'string', default: QUEUE_POLICIES.join(',') },
    },
  })
  const seeds = givenFigure('seeds', values.seeds, 1)
  const minutes = givenFigure('minutes', values.minutes)
  const policies = QUEUE_POLICIES.filter(name => values.policies.split(',').includes(name))
  if (values.write && (values.only !== '' || policies.length < QUEUE_POLICIES.length))
    throw new Error('cannot write a part of the tables: leave out --only and --policies, or --write')
  const runner = new CellRunner({
    threads: 2,
    clock: systemClock,
    store: new ResultStore<CellRun>({
      folder: CACHE,
      bytesMax: 2 ** 28,
      clock: systemClock,
      onTrouble: sentence => console.error(sentence),
    }),
  })
  const budget = setTimeout(() => void runner.stop(), minutes * 60_000)
  process.once('SIGINT', () => void runner.stop())
  const tables: string[] = []
  let isStopped = false
  try {
    for (const [part, rows] of PARTS) {
      if (values.only !== '' && part !== values.only) continue
      const done: string[] = []
      const collect = (row: string): void => {
        done.push(row)
        console.error(row)
      }
      try {
        await rows(runner, seeds, collect, policies)
      } catch (thrown) {
        if (!(thrown instanceof RunnerStopped)) throw thrown
        isStopped = true
      }
      if (done.length > 0) tables.push([...QUEUE_HEADS[part], ...done].join('\n'))
    }
  } finally {
    clearTimeout(budget)
    await runner.stop()
  }
  if (isStopped) {
    console.error('stopped before the end: nothing is written')
    process.exitCode = 1
  }
  const table = tables.join('\n\n')
  if (values.write && !isStopped)
    writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, QUEUE_MARKS))
  else console.log(table)
}
