/** The measurement of placement over real sockets, in a small form. */

import { join } from 'node:path'
import t from 'tap'
import { KeptOutcomes } from './kept-outcomes.ts'
import { figuresOf, renderRows } from './replica-quality.ts'
import { hitRateOfOneCache, sessionLoad } from './session-load.ts'
import { rowOf } from './socket-quality.ts'
import { imbalanceOf, loadOf, runWay } from './socket-run.ts'

const tokensFrom = (first: number, length: number): Int32Array =>
  Int32Array.from({ length }, (_, i) => first + i)
const request = (tokens: Int32Array) => ({ atMs: 0, tokens, isHot: false })

t.test('one cache of all blocks', async t => {
  const [one, other] = [tokensFrom(0, 64), tokensFrom(1000, 64)]
  t.equal(hitRateOfOneCache([request(one), request(one)], 4), 63 / 128, 'the last token is computed')
  t.equal(hitRateOfOneCache([request(one), request(other), request(one)], 4), 0, 'the oldest go')
  t.equal(hitRateOfOneCache([request(one), request(other), request(one)], 8), 63 / 192)
  t.equal(
    hitRateOfOneCache([request(one), request(other.subarray(0, 16)), request(one)], 4),
    48 / 144,
    'of a prompt, its end goes first',
  )
})

t.test('a load has four turns of each conversation, each with all of the turns before', async t => {
  const { requests, hotTokens } = sessionLoad({ seed: 7, sessions: 6, perSecond: 100, hotShare: 0.5 })
  t.equal(requests.length, 24)
  t.equal(requests.filter(({ isHot }) => isHot).length, 12)
  for (const { isHot, tokens } of requests)
    t.equal(
      isHot,
      tokens.subarray(0, hotTokens.length).every((id, i) => id === hotTokens[i]),
    )
  const continued = requests.filter(({ tokens }) =>
    requests.some(
      ({ tokens: before }) =>
        before.length < tokens.length && before.every((id, position) => id === tokens[position]),
    ),
  )
  t.equal(continued.length, 18)
})

/**
 * Requests that an engine can have at a time in so small a load; more that are lost are lost for another
 * reason than its restart.
 */
const LOST_MAX = 24

for (const cell of ['trouble', 'slow'] as const) {
  t.test(
    `cell ${cell}: every request of a small load is answered, and reuses what its engine has`,
    async t => {
      const options = { cell, seed: 3, sessions: 24, perSecond: 30 }
      const { requests } = loadOf(options)
      const outcome = await runWay('auto', options)
      const { ttftMs, lost, past } = outcome
      t.equal(ttftMs.length + lost + past, requests.length)
      t.ok(lost <= (cell === 'trouble' ? LOST_MAX : 0), `${lost} requests were lost`)
      t.equal(past > 0, cell === 'trouble')
      const { hitRate, meanMs } = rowOf('auto', [outcome])
      t.ok(hitRate > 0.1 && hitRate < 1, `three of four turns begin with text that was there: ${hitRate}`)
      t.ok(meanMs > 0)
    },
  )
}

t.test('outcomes are kept by all of their key, in a file that is made', async t => {
  const path = join(t.testdir(), 'kept')
  const open = () => KeptOutcomes.open<{ readonly cell: string; readonly seed: number }, number[]>(path)
  const first = await open()
  t.equal(first.find({ cell: 'plain', seed: 1 }), undefined)
  await first.add({ cell: 'plain', seed: 1 }, [1, 2])
  await first.add({ cell: 'slow', seed: 1 }, [3])
  const second = await open()
  t.strictSame(second.find({ cell: 'slow', seed: 1 }), [3])
  t.strictSame(second.find({ cell: 'plain', seed: 1 }), [1, 2])
  t.equal(second.find({ cell: 'plain', seed: 2 }), undefined)
})

t.test('imbalance is that of the engine with the most requests, at each arrival', async t => {
  const stay = (worker: string, fromMs: number, toMs: number) => ({ worker, fromMs, toMs })
  t.equal(imbalanceOf([stay('a', 0, 10), stay('b', 20, 30)], 2), 2, 'one at a time is all at one')
  t.equal(imbalanceOf([stay('a', 0, 10), stay('b', 1, 10)], 2), 1.5, 'all at one, then even')
})

t.test('three routers that tell each other answer every request of a small load', async t => {
  const options = { cell: 'plain', seed: 3, sessions: 12, perSecond: 30, routers: 3, isSynced: true } as const
  const outcome = await runWay('auto', options)
  t.equal(outcome.ttftMs.length, loadOf(options).requests.length)
  const { hitRate, imbalance } = figuresOf([outcome])
  t.ok(hitRate > 0.1 && hitRate < 1, `hit rate ${hitRate}`)
  t.ok(imbalance >= 1 && imbalance <= 4, `imbalance ${imbalance}`)
  t.match(renderRows([['one', [outcome]]]), /^\| one \|.*\| 1.00 \| 1.00 \| 1.00 \| 1.00 \|$/m)
})
