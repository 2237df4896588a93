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

t.test('a worker is taken for another kind only beyond chance, and then soon', async t => {
  const costs = new LearnedCosts(PREFILL_PRIOR)
  const steady = [0.9, 1.1, 1, 0.95, 1.05]
  for (let row = 0; row < 40; row++) {
    for (const slot of [0, 1, 2]) costs.observe(slot, 1, 100, 0, 10 * steady[(row + slot) % 5]!)
    costs.observe(3, 1, 100, 0, 25 * steady[row % 5]!)
    if (row === 5) t.not(costs.of(3), costs.of(0), 'told apart after six observations')
  }
  t.equal(costs.of(0), costs.of(1), 'equals have the figures of the fleet')
  const alone = (slot: number): number => costs.of(slot)[0] + 100 * costs.of(slot)[1]
  t.ok(alone(3) > 1.5 * alone(0), `${alone(3)} and ${alone(0)} ms`)
})
