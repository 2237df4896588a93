/** The measurement of a chat beside a flood over real sockets, in a small form. */

import t from 'tap'
import {
  CASES,
  type CaseOutcome,
  chunkMs,
  quantile,
  ratePerSecond,
  runCase,
  tableOf,
} from './socket-fairness.ts'

t.test('a step with the last chunk of a long prompt takes longer than one with a short prompt', async t => {
  t.ok(chunkMs(60_000) > 600 && chunkMs(60_000) < 700, `${chunkMs(60_000)} ms`)
  t.ok(chunkMs(8192) < 250, `${chunkMs(8192)} ms: all in one step`)
})

t.test('a table has a row for each case, and says who is past the bound', async t => {
  t.equal(quantile([3, 1, 2], 0.99), 3)
  t.equal(quantile([3, 1, 2], 0.5), 2)
  const outcome = (perSecond: number, ...ttftMs: number[]): readonly CaseOutcome[] => [
    { ttftMs, flood: { sent: 9, answered: 6, waiting: 0, perSecond }, slices: 0 },
  ]
  const outcomes = { alone: outcome(0, 20, 50), none: outcome(2, 900, 2000), queue: outcome(1.9, 30, 80) }
  const table = tableOf(outcomes, 60_000)
  const [, , alone, none, queue, ...more] = table.split('\n')
  t.strictSame(more, [])
  t.match(alone, '| alone | 50 ms | 50 ms | 50 | 1.0 |  |  |  |')
  t.match(none, /\| 2000 ms \| 2000 ms \| 2000 \| 40\.0 \| ≤ 689 ms: \*\*no\*\* \| 2\.00 \| {2}\|$/)
  t.match(queue, /\| 80 ms \| 80 ms \| 80 \| 1\.6 \| ≤ 689 ms: yes \| 1\.90 \| 0\.95 \|$/)
})

t.test('the rate of a flood is that of each worker between its answers, summed up', async t => {
  const answers = [100, 1100, 2100, 2100].map((atMs, i) => ({ worker: i < 3 ? 'a' : 'b', atMs }))
  t.equal(ratePerSecond([...answers, { worker: 'b', atMs: 2600 }], 0), 3)
  t.equal(ratePerSecond(answers, 0), 0, 'b has answered once')
  t.equal(ratePerSecond(answers.slice(0, 3), 1000), 1, 'the first was before')
})

t.test(
  'every chat of a small load is answered; with the queue the flood waits in the router, or comes in slices',
  async t => {
    const options = { seed: 5, seconds: 2, chatsPerSecond: 6, floodsPerSecond: 2.5, floodTokens: 60_000 }
    for (const name of CASES) {
      const { ttftMs, flood, slices } = await runCase(name, options)
      t.equal(ttftMs.length, 12, name)
      t.equal(flood.sent > 0, name !== 'alone', `${name}: ${flood.sent} prompts of the flood`)
      t.equal(slices > 0, name === 'queue', `${name}: ${slices} slices`)
      t.equal(flood.waiting > 0, name === 'queue', `${name}: ${flood.waiting} of them wait in the router`)
    }
  },
)
