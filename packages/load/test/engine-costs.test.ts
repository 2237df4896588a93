/** What is learned of the speed of workers. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { LearnedCosts, PREFILL_PRIOR } from '../src/engine-costs.ts'

const SEED = 20_261_126

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

t.test('a worker of a quarter or four times the speed is known after eight answers', async t => {
  const p = [4, 0.023, 1.2e-6] as const
  for (const times of [1 / 4, 4]) {
    const random = seededRandom(SEED)
    const costs = new LearnedCosts(PREFILL_PRIOR)
    const take = (slot: number): void => {
      const prompt = 1500 + random.below(8000)
      const tokens = random.next() < 0.5 ? 200 + random.below(1000) : prompt
      const attention = tokens * (prompt - tokens / 2)
      const ms = p[0] + p[1] * tokens + p[2] * attention
      costs.observe(slot, 1, tokens, attention, (slot === 0 ? times : 1) * ms * (0.95 + 0.1 * random.next()))
    }
    for (let row = 0; row < 8; row++) for (const slot of [1, 2, 3, 0, 1, 2, 3]) take(slot)
    const [stepMs, tokenMs, pairMs] = costs.of(0)
    for (const tokens of [500, 2000, 6000]) {
      const attention = (tokens * tokens) / 2
      const ratio =
        (stepMs + tokenMs * tokens + pairMs * attention) / (times * (p[0] + p[1] * tokens + p[2] * attention))
      t.ok(ratio > 0.75 && ratio < 1.33, `${tokens} tokens, ${times} times: ${ratio} (seed ${SEED})`)
    }
  }
})

t.test(
  'one that was slow at first and then got nothing is a stranger again, and shows that it is not',
  async t => {
    const costs = new LearnedCosts(PREFILL_PRIOR)
    const alone = (slot: number): number => costs.of(slot)[0] + 100 * costs.of(slot)[1]
    for (let row = 0; row < 40; row++) for (const slot of [1, 2, 3]) costs.observe(slot, 1, 100, 0, 10)
    for (let row = 0; row < 6; row++) costs.observe(0, 1, 100, 0, 60)
    t.ok(alone(0) > 3 * alone(1), `slow at first: ${alone(0)} and ${alone(1)} ms`)
    for (let row = 0; row < 70; row++) for (const slot of [1, 2, 3]) costs.observe(slot, 1, 100, 0, 10)
    t.equal(costs.of(0), costs.of(1))
    t.equal(costs.rows(0), 0)
    for (let row = 0; row < 20; row++) costs.observe(0, 1, 100, 0, 10)
    t.equal(costs.of(0), costs.of(1))
  },
)

t.test('what is known says where it is from', async t => {
  const costs = new LearnedCosts(PREFILL_PRIOR)
  t.same(costs.knowledge(0), { coefficients: PREFILL_PRIOR, source: 'prior', observations: 0 })
  for (let row = 0; row < 40; row++) {
    for (const slot of [0, 1, 2]) costs.observe(slot, 1, 100, 0, 10)
    costs.observe(3, 1, 100, 0, 40)
  }
  t.match(costs.knowledge(0), { source: 'fleet', observations: 40 })
  t.match(costs.knowledge(3), { source: 'worker', observations: 40 })
  t.match(costs.knowledge(4), { source: 'fleet', observations: 0 }, 'a newcomer')
  t.same(costs.knowledge(3).coefficients, costs.of(3))
  costs.forget(3)
  t.match(costs.knowledge(3), { source: 'fleet', observations: 0 })
})

t.test('one answer at once from a proxy hardly moves the fit, whenever it comes', async t => {
  const good = 210
  for (const before of [0, 1, 2, 5, 15, 16, 17, 40, 200]) {
    const costs = new LearnedCosts(PREFILL_PRIOR)
    const expected = (): number => costs.of(0)[0] + 2000 * costs.of(0)[1] + 2e6 * costs.of(0)[2]
    for (let row = 0; row < before; row++) costs.observe(row % 4, 1, 2000, 2e6, good)
    costs.observe(0, 1, 2000, 2e6, 1)
    if (before >= 5) t.ok(expected() > good / 2, `after ${before} good ones: ${expected()} ms`)
    for (let row = 0; row < 4; row++) costs.observe(row % 4, 1, 2000, 2e6, good)
    t.ok(
      expected() > good / 2 && expected() < 2 * good,
      `${before} good ones before, 4 after: ${expected()} ms`,
    )
    t.ok(Number.isFinite(expected()))
  }
})

t.test('an engine that is four times as fast or slow from now on is learned again', async t => {
  for (const change of [1 / 4, 4]) {
    const costs = new LearnedCosts(PREFILL_PRIOR)
    const expected = (): number => costs.of(0)[0] + 2000 * costs.of(0)[1] + 2e6 * costs.of(0)[2]
    for (let row = 0; row < 200; row++) costs.observe(0, 1, 2000, 2e6, 100)
    for (let row = 0; row < 400; row++) costs.observe(0, 1, 2000, 2e6, 100 * change)
    t.ok(Math.abs(Math.log(expected() / (100 * change))) < Math.log(1.25), `${expected()} ms`)
  }
})

t.test('times too short to divide by leave figures that can be reckoned with', async t => {
  for (const observedMs of [1e-200, 5e-324, 1e300]) {
    const costs = new LearnedCosts(PREFILL_PRIOR)
    for (let row = 0; row < 40; row++) costs.observe(row % 2, 1, 100, 5000, row % 3 === 0 ? observedMs : 10)
    for (const slot of [0, 1]) t.ok(costs.of(slot).every(Number.isFinite), `${costs.of(slot)}`)
  }
})
