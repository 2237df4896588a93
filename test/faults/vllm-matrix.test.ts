/**
 * The hardest cells of the matrix with vLLM's own block pool and publisher: a replay that loses some of its
 * replies, a killed engine, a cache that was cleared. Needs HOMING_REAL_ENGINES and a python3 that has vLLM.
 */

import process from 'node:process'
import t from 'tap'
import { IN_FLIGHT_MS } from './looks.ts'
import { POOL_COLUMNS, POOL_ROWS, runPoolCell } from './vllm-matrix.ts'
import { hasVllm, PoolProcess } from './vllm-pool.ts'

const NAMES = ['late join, after 3,000 batches', 'gap of 3,000 batches', 'engine restart', 'cache cleared']
const isThere = process.env['HOMING_REAL_ENGINES'] !== undefined && hasVllm()
const skip = isThere ? false : 'no live engine: vLLM is not asked for, or not installed'

t.test(
  "behind vLLM's own publisher no stale credit is given under exact",
  { skip, timeout: 600_000 },
  async t => {
    const pool = await PoolProcess.open()
    t.teardown(() => pool.close())
    for (const row of POOL_ROWS.filter(({ name }) => NAMES.includes(name))) {
      for (const column of POOL_COLUMNS) {
        const { staleExact, surplus, missing, trusts, reason, stallMs } = await runPoolCell(
          pool,
          1,
          column,
          row,
        )
        const where = `${row.name}, ${column.name}`
        if (stallMs > IN_FLIGHT_MS) t.comment(`${where}: the machine stood still for ${stallMs} ms`)
        else t.equal(staleExact, 0, `${where}: stale under exact`)
        t.equal(surplus, 0, `${where}: held that is not there, at rest`)
        if (trusts.at(-1) === 'exact') t.equal(missing, 0, `${where}: missing under exact`)
        else t.equal(column.hasReplay, false, `${where}: ${trusts.join(' → ')}: ${reason}`)
      }
    }
  },
)
