/** What is learned of the speed of workers. */

import t from 'tap'
import { LearnedCosts, PREFILL_PRIOR } from '../src/engine-costs.ts'

t.test('a worker whose first answer was slow leans on what the fleet has learned since', async t => {
  const costs = new LearnedCosts(PREFILL_PRIOR)
  costs.observe(0, 1, 100, 0, 30)
  for (let row = 0; row < 20; row++) costs.observe(1 + (row % 3), 1, 100, 0, 3)
  const alone = (slot: number): number => costs.of(slot)[0] + 100 * costs.of(slot)[1]
  t.ok(alone(0) < 2 * alone(1), `${alone(0)} and ${alone(1)} ms`)
})
