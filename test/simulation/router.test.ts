/**
 * The whole router on simulated threads, with faults: many seeds, each run twice. HOMING_SIM_SEEDS sets how
 * many (80; `.ci/run` takes 400), HOMING_SIM_SEED the first; a seed that fails prints the command that
 * repeats it.
 */

import { runSeeds } from '@homing/actor/simulation'
import t from 'tap'
import { FAULTS, runRouterSeed } from './router-world.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 80 : 1),
)
const isAlone = process.env['HOMING_SIM_SEED'] !== undefined && COUNT === 1

const command = (seed: number): string => `HOMING_SIM_SEED=${seed} npx tap test/simulation/router.test.ts`

t.test(
  'whatever breaks, requests end, bookings are freed, and the index becomes the truth again',
  { timeout: 600_000 },
  async t => {
    let requests = 0
    let answered = 0
    const faults = new Set<string>()
    const report = await runSeeds({ first: FIRST, count: COUNT, command }, async seed => {
      const outcome = await runRouterSeed(seed, isAlone ? { tell: line => t.comment(line) } : {})
      requests += outcome.requests
      answered += outcome.answered
      for (const name of outcome.faults) faults.add(name)
      return outcome
    })
    t.equal(report.seeds, COUNT)
    t.comment(
      `${requests} requests, ${answered} answered, ${faults.size} kinds of faults, ${report.steps} steps`,
    )
    if (COUNT >= 200) {
      t.equal(faults.size, FAULTS.length, 'every kind of fault was dealt')
      t.equal(new Set(report.traces.values()).size, COUNT, 'every seed is another history')
    }
  },
)

t.test('a thread that hangs is replaced, and the router goes on', async t => {
  for (let seed = 1; seed <= 10; seed++) {
    const outcome = await runRouterSeed(seed, { faults: ['thread hangs', 'thread hangs'] })
    t.strictSame(outcome.violations, [], `seed ${seed}`)
  }
})
