/**
 * Many seeds of key routers under faults, each run twice: one owner of a key in each epoch, nothing lost but what a dead
 * thread had taken. `HOMING_SIM_SEEDS` sets how many (default 150), `HOMING_SIM_SEED` the first.
 */

import { runSeeds } from '@homing/actor/simulation'
import t from 'tap'
import { runRouters } from './simulation/routers.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 150 : 1),
)

const command = (seed: number): string =>
  `HOMING_SIM_SEED=${seed} npx tap packages/actor/test/simulation-routers.test.ts`

t.test('whatever breaks, a key has one owner in each epoch, and keeps its order', async t => {
  let handled = 0
  let moves = 0
  const report = await runSeeds({ first: FIRST, count: COUNT, command }, async seed => {
    const outcome = await runRouters(seed)
    handled += outcome.handled
    moves += outcome.moves
    return outcome
  })
  t.equal(report.seeds, COUNT)
  t.comment(`${handled} messages, keys moved ${moves} times`)
  if (COUNT >= 100) t.ok(moves > COUNT, 'keys moved')
})
