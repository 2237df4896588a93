/**
 * The rows of mistaken lives with one seed: none is believed under `exact`. HOMING_FAULTS_SEED sets the seed.
 */

import process from 'node:process'
import type { Trust } from '@homing/index'
import t from 'tap'
import { canHappen, EVENT_COLUMNS, LIFE_WARM_MS, runCell } from './fault-matrix.ts'
import { LIFE_ROWS } from './mistaken-lives.ts'

const SEED = Number(process.env['HOMING_FAULTS_SEED'] ?? 1)
const OPTIONS = {
  /** Looks are most of the work; stale blocks stay stale for longer than this. */
  lookMs: 100,
  warmMs: LIFE_WARM_MS,
}
/** Twice what the slowest of them takes to heal; a sidecar's next snapshot is 5 s away. */
const WATCH_MS = 4000
const SNAPSHOT_WATCH_MS = 6000
const EXACT: readonly Trust[] = ['exact']

for (const column of EVENT_COLUMNS) {
  t.test(
    `${column.name}: no life is taken for another under exact, and no engine for its neighbour`,
    { timeout: 600_000 },
    async t => {
      for (const row of LIFE_ROWS.filter(row => canHappen(column, row))) {
        const { staleExact, surplus, missing, trusts, reason, healMs } = await runCell(SEED, column, row, {
          ...OPTIONS,
          watchMs: column.hasSidecar === true ? SNAPSHOT_WATCH_MS : WATCH_MS,
        })
        const where = `${row.name}, seed ${SEED}`
        const end = trusts.at(-1)!
        t.equal(staleExact, 0, `${where}: stale under exact`)
        t.ok((row.ends ?? EXACT).includes(end), `${where}: ${trusts.join(' → ')}: ${reason}`)
        if (end === 'exact' && row.mayLack !== true) t.equal(missing, 0, `${where}: missing under exact`)
        if (row.hidesRemovals === true) continue
        t.equal(surplus, 0, `${where}: held that is not there, at rest`)
        t.ok(healMs < 6000, `${where}: as it stays after ${healMs} ms`)
      }
    },
  )
}
