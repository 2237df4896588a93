/**
 * Mistaken lives with vLLM's own block pool and publisher: restarts behind a proxy, a neighbour's replay
 * port, two ranks on one socket. Needs HOMING_REAL_ENGINES and a python3 that has vLLM.
 */

import process from 'node:process'
import t from 'tap'
import { IN_FLIGHT_MS } from './looks.ts'
import { canHappenInPool, POOL_COLUMNS, POOL_LIFE_ROWS, runPoolCell } from './vllm-matrix.ts'
import { hasVllm, PoolProcess } from './vllm-pool.ts'

const isThere = process.env['HOMING_REAL_ENGINES'] !== undefined && hasVllm()
const skip = isThere ? false : 'no live engine: vLLM is not asked for, or not installed'

t.test(
  "no life of vLLM's own publisher is taken for another under exact, and it not for its neighbour",
  { skip, timeout: 600_000 },
  async t => {
    const pool = await PoolProcess.open()
    t.teardown(() => pool.close())
    // Each once: nine cells have two minutes.
    for (const row of POOL_LIFE_ROWS) {
      for (const column of POOL_COLUMNS.filter(column => canHappenInPool(column, row))) {
        const { staleExact, surplus, trusts, reason, stallMs } = await runPoolCell(pool, 1, column, row, 1)
        const where = `${row.name}, ${column.name}`
        if (stallMs > IN_FLIGHT_MS) t.comment(`${where}: the machine stood still for ${stallMs} ms`)
        else t.equal(staleExact, 0, `${where}: stale under exact`)
        if (row.neighbour === undefined) t.equal(surplus, 0, `${where}: held that is not there, at rest`)
        else t.not(trusts.at(-1), 'exact', `${where}: ${trusts.join(' → ')}: ${reason}`)
      }
    }
  },
)
