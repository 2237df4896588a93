/** Receipts within their two bounds. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { CandidateTerms, Receipt } from '../src/receipt.ts'
import { Receipts, SHORT_ROWS } from '../src/receipts.ts'

function candidate(number: number, cost: number): CandidateTerms {
  return {
    worker: `w${number}`,
    trust: 'exact',
    overlapBlocks: 0,
    creditFactor: 1,
    layers: [],
    score: 0,
    moeScore: 0,
    cxlAccessibleScore: 0,
    activePrefillTokens: 0,
    prefillTokens: 0,
    prefillBlocks: 0,
    activeBlocks: 0,
    newBlocks: 0,
    decodeBlocks: 0,
    activeRequests: 0,
    preference: 1,
    terms: [],
    cost,
    probability: 0,
  }
}

/** Candidate i costs `costs[i]`; the chosen one and the runner-up are as named. */
function receipt(
  id: string,
  costs: readonly number[],
  excluded = 0,
  worker = 'w0',
  runnerUp = 'w1',
): Receipt {
  return {
    id,
    requestId: id,
    atMs: 0,
    mode: 'kv',
    cost: { policy: 'linear', rule: 'linear', formula: '', unit: 'blocks', terms: [] },
    model: 'm',
    promptTokens: 1,
    blockSizeTokens: 16,
    promptBlocks: 1,
    unknownPromptReason: undefined,
    textBlocksReason: undefined,
    overlapWeight: 1,
    temperature: 0,
    worker,
    runnerUp,
    trust: 'exact',
    overlapBlocks: 0,
    candidates: costs.map((cost, number) => candidate(number, cost)),
    candidatesLeftOut: 0,
    excluded: Array.from({ length: excluded }, (_, number) => ({ worker: `x${number}`, reason: 'down' })),
    excludedLeftOut: 0,
    guard: undefined,
    decisionMs: 0,
    delivery: undefined,
  }
}

const DELIVERY = {
  outcome: 'ok',
  status: 200,
  promptTokens: 1,
  completionTokens: 1,
  cachedTokens: 0,
  waitedMs: 0,
  timeToFirstByteMs: 1,
  durationMs: 2,
  streamEvents: undefined,
  error: undefined,
} as const

t.test('the oldest receipt is shortened to the chosen, the runner-up and the cheapest others', t => {
  const receipts = new Receipts({ receiptsMax: 10, rowsMax: 60 })
  // The chosen one was drawn, and is not cheap; nor is the runner-up.
  const costs = Array.from({ length: 20 }, (_, number) => 100 - number)
  receipts.add(receipt('a', costs, 12, 'w3', 'w4'))
  receipts.complete('a', DELIVERY)
  receipts.add(receipt('b', costs, 5))
  t.equal(receipts.get('a')?.candidates.length, 20, 'both have room')
  receipts.add(receipt('c', costs))
  const short = receipts.get('a')!
  t.strictSame(
    short.candidates.map(({ worker }) => worker),
    ['w3', 'w4', 'w14', 'w15', 'w16', 'w17', 'w18', 'w19'],
  )
  t.strictSame([short.candidatesLeftOut, short.excluded.length, short.excludedLeftOut], [12, 8, 4])
  t.equal(short.delivery, DELIVERY)
  t.equal(receipts.get('b')?.candidatesLeftOut, 20 - SHORT_ROWS, 'it was not enough yet')
  t.equal(receipts.get('c')?.candidatesLeftOut, 0)
  t.equal(receipts.rows, 16 + 8 + 5 + 20)
  t.strictSame(
    receipts.latest(9).map(({ id }) => id),
    ['c', 'b', 'a'],
  )
  t.end()
})

t.test('where short receipts are too many, the oldest go', t => {
  const receipts = new Receipts({ receiptsMax: 100, rowsMax: 20 })
  for (const id of 'abcde') receipts.add(receipt(id, [1, 2, 3, 4, 5, 6, 7, 8, 9]))
  t.strictSame(
    receipts.latest(9).map(({ id, candidates }) => [id, candidates.length]),
    [
      ['e', 8],
      ['d', 8],
    ],
  )
  const none = new Receipts({ receiptsMax: 0, rowsMax: 1000 })
  none.add(receipt('a', [1]))
  t.strictSame([none.latest(9), none.rows], [[], 0])
  t.end()
})

t.test('both bounds hold after any history, and nothing older is kept than what is forgotten', t => {
  fc.assert(
    fc.property(
      fc.nat(6),
      fc.nat(60),
      fc.array(fc.record({ candidates: fc.integer({ min: 1, max: 40 }), excluded: fc.nat(20) }), {
        maxLength: 20,
      }),
      (receiptsMax, rowsMax, history) => {
        const receipts = new Receipts({ receiptsMax, rowsMax })
        for (const [number, { candidates, excluded }] of history.entries()) {
          const costs = Array.from({ length: candidates }, (_, i) => (i * 7) % 11)
          receipts.add(receipt(String(number), costs, excluded))
          const kept = receipts.latest(100)
          const rows = kept.map(one => one.candidates.length + one.excluded.length)
          assert.equal(
            rows.reduce((sum, count) => sum + count, 0),
            receipts.rows,
          )
          assert.ok(receipts.rows <= rowsMax)
          assert.ok(kept.length <= receiptsMax)
          assert.deepEqual(
            kept.map(({ id }) => Number(id)),
            kept.map((_, back) => number - back),
          )
          for (const one of kept) {
            const was = history[Number(one.id)]!
            assert.equal(one.candidates.length + one.candidatesLeftOut, was.candidates)
            assert.equal(one.excluded.length + one.excludedLeftOut, was.excluded)
            assert.ok(one.candidates.some(({ worker }) => worker === 'w0'))
          }
        }
      },
    ),
    { numRuns: 300 },
  )
  t.end()
})

t.test('the receipt of a decode leg has that of its prefill leg, which is no row of its own', async t => {
  const receipts = new Receipts({ receiptsMax: 10, rowsMax: 100 })
  const prefill: Receipt = { ...receipt('p', []), leg: { kind: 'prefill', prefillId: undefined } }
  const decode: Receipt = { ...receipt('d', []), leg: { kind: 'decode', prefillId: 'p' } }
  receipts.add(prefill)
  t.strictSame(
    receipts.latest(9).map(({ id }) => id),
    ['p'],
    'its decode leg may never come',
  )
  receipts.add(decode)
  receipts.add(receipt('other', []))
  t.strictSame(
    receipts.latest(9).map(({ id, prefill: own }) => [id, own?.id]),
    [
      ['other', undefined],
      ['d', 'p'],
    ],
  )
  t.strictSame(receipts.get('d'), { ...decode, prefill })
  t.strictSame(receipts.get('p'), prefill)
})
