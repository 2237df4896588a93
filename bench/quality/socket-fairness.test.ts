/** The measurement of a chat beside a flood over real sockets, in a small form. */

import t from 'tap'
import { CASES, type CaseOutcome, chunkMs, quantile, runCase, tableOf } from './socket-fairness.ts'

t.test('a step with the last chunk of a long prompt takes longer than one with a short prompt', async t => {
  t.ok(chunkMs(60_000) > 600 && chunkMs(60_000) < 700, `${chunkMs(60_000)} ms`)
  t.ok(chunkMs(8192) < 250, `${chunkMs(8192)} ms: all in one step`)
})

t.test('a table has a row for each case, and says who is past the bound', async t => {
  t.equal(quantile([3, 1, 2], 0.99), 3)
  t.equal(quantile([3, 1, 2], 0.5), 2)
  const outcome = (...ttftMs: number[]): readonly CaseOutcome[] => [
    { ttftMs, flood: { sent: 9, answered: 6, waiting: 0, seconds: 3 } },
  ]
  const table = tableOf({ alone: outcome(20, 50), none: outcome(900, 2000), queue: outcome(30, 80) }, 60_000)
  const [, , alone, none, queue, ...more] = table.split('\n')
  t.strictSame(more, [])
  t.match(alone, '| alone | 50 ms | 50 ms | 50 | 1.0 |  |  |')
  t.match(none, /\| 2000 ms \| 2000 ms \| 2000 \| 40\.0 \| ≤ 689 ms: \*\*no\*\* \| 2\.00 \|$/)
  t.match(queue, /\| 80 ms \| 80 ms \| 80 \| 1\.6 \| ≤ 689 ms: yes \| 2\.00 \|$/)
})

t.test('every chat of a small load is answered; with the queue the flood waits in the router', async t => {
  const options = { seed: 5, seconds: 2, chatsPerSecond: 6, floodsPerSecond: 2.5, floodTokens: 60_000 }
  for (const name of CASES) {
    const { ttftMs, flood } = await runCase(name, options)
    t.equal(ttftMs.length, 12, name)
    t.equal(flood.sent > 0, name !== 'alone', `${name}: ${flood.sent} prompts of the flood`)
    t.equal(flood.waiting > 0, name === 'queue', `${name}: ${flood.waiting} of them wait in the router`)
  }
})
