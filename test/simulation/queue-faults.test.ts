/**
 * The waiting queue with faults, on simulated threads: many seeds, each run twice. `HOMING_SIM_SEEDS` sets
 * how many (default 40), `HOMING_SIM_SEED` the first; a seed that fails prints the command that repeats it.
 */

import { runSeeds } from '@homing/actor/simulation'
import t from 'tap'
import { FAULTS, runQueueSeed } from './queue-world.ts'

const DEFAULT = 40
const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? DEFAULT : 1),
)
const isAlone = process.env['HOMING_SIM_SEED'] !== undefined && COUNT === 1

const command = (seed: number): string =>
  `HOMING_SIM_SEED=${seed} npx tap test/simulation/queue-faults.test.ts`

t.test(
  'whoever is killed while requests wait: each ends once, in order, by shares, and nothing is left',
  { timeout: 3_600_000 },
  async t => {
    const ends = new Map<string, number>()
    const faults = new Map<string, number>()
    let [requests, pairs, shares, waits] = [0, 0, 0, 0]
    const report = await runSeeds({ first: FIRST, count: COUNT, command }, async seed => {
      const outcome = await runQueueSeed(seed, isAlone ? { tell: line => t.comment(line) } : {})
      requests += outcome.requests
      pairs += outcome.pairs
      shares += outcome.shares
      waits += outcome.waits
      for (const end of outcome.ends) ends.set(end, (ends.get(end) ?? 0) + 1)
      for (const name of outcome.faults) faults.set(name, (faults.get(name) ?? 0) + 1)
      return outcome
    })
    t.equal(report.seeds, COUNT)
    t.comment(
      `${requests} requests, ${pairs} pairs in order, ${shares} times of two tenants, ${waits} waits while engines were busy, ${report.steps} steps`,
    )
    t.comment(`ends: ${listed(ends)}`)
    t.comment(`faults: ${listed(faults)}`)
    if (COUNT >= DEFAULT)
      t.ok(pairs > 0 && shares > 0 && waits > 0, 'orders, shares and waits were looked at')
    if (COUNT >= 200) t.equal(faults.size, FAULTS.length + 1, 'every kind of fault was dealt, and a drain')
  },
)

function listed(counts: ReadonlyMap<string, number>): string {
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => `${count} ${name}`)
    .join(', ')
}
