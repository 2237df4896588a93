/**
 * The fault matrix with one seed: `exact` never lies, and every source comes to rest. HOMING_FAULTS_SEED sets
 * the seed.
 */

import process from 'node:process'
import type { Trust } from '@homing/index'
import t from 'tap'
import { COLUMNS, canHappen, LIFE_WARM_MS, ROWS, runCell } from './fault-matrix.ts'

const SEED = Number(process.env['HOMING_FAULTS_SEED'] ?? 1)
/** Looks are most of the work, and every look sees the changes of trust before it. */
const LOOK_MS = 60
/** Where all is well again within a second. */
const BRIEF = { warmMs: LIFE_WARM_MS, watchMs: 4000 }
/**
 * Without a replay that reaches back these end with a history without a beginning, unless answers confirm it.
 */
const PARTIAL: Readonly<Record<string, readonly string[]>> = {
  'vLLM, no replay': ['late join', 'gap', 'buffer exceeded', 'router restart', 'reordered', 'link down'],
  'vLLM, replay': ['buffer exceeded'],
  'vLLM, replay, NATS': ['buffer exceeded'],
  SGLang: ['buffer exceeded'],
  // The engine itself keeps four batches.
  'vLLM, JetStream': [
    'gap',
    'buffer exceeded',
    'the stream is deleted',
    'the stream is emptied, and the router restarts',
  ],
  'vLLM, sidecar': ['gap', 'buffer exceeded', 'reordered', 'link down', 'sidecar restart'],
}

for (const column of COLUMNS) {
  t.test(`${column.name}: in no fault is stale credit given under exact`, { timeout: 600_000 }, async t => {
    for (const row of ROWS.filter(row => canHappen(column, row))) {
      const expected: Trust[] =
        PARTIAL[column.name]?.includes(row.name) === true ? ['partial', 'exact'] : ['exact']
      // An engine is down for 200 ms, and a link for 500. A confirmation needs 32 answers; and between two
      // snapshots of a sidecar there are 5 s.
      const isSlow = expected.length > 1 || column.hasSidecar === true || row.healsMs !== undefined
      const outcome = await runCell(SEED, column, row, {
        ...(column.isGuessed === true ? {} : { lookMs: LOOK_MS }),
        ...(isSlow ? {} : BRIEF),
      })
      const where = `${row.name}, seed ${SEED}`
      t.equal(outcome.staleExact, 0, `${where}: stale under exact`)
      if (column.isGuessed === true) {
        t.same(outcome.trusts, ['approximate'], `${where}: never more than a guess`)
        t.equal(outcome.stale, 0, `${where}: nothing of before a restart that showed`)
        continue
      }
      t.equal(outcome.surplus, 0, `${where}: held that is not there, at rest`)
      if (outcome.trusts.at(-1) === 'exact') t.equal(outcome.missing, 0, `${where}: missing under exact`)
      t.ok(expected.includes(outcome.trusts.at(-1)!), `${where}: ${outcome.trusts.join(' → ')}`)
      const healMsMax = row.healsMs ?? (isSlow ? 6000 : 1000)
      t.ok(outcome.healMs < healMsMax, `${where}: as it stays after ${outcome.healMs} ms`)
    }
  })
}
