import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Candidates, type ChoiceTerms, POLICY_TERMS_MAX, ShadowCosts } from '../src/index.ts'

const SEED = 20_261_126

function candidatesOf(activeRequests: readonly number[]): Candidates {
  const none = activeRequests.map(() => 0)
  return {
    count: activeRequests.length,
    workerSlots: none,
    overlapBlocks: none,
    creditFactors: none,
    activeBlocks: none,
    newBlocks: none,
    activePrefillTokens: none,
    activeRequests,
  }
}

function termsOf(prefillTokens: readonly number[], cost: readonly number[]): ChoiceTerms {
  return {
    overlapBlocks: new Int32Array(cost.length),
    newTokens: new Float64Array(cost.length),
    newTokensMin: 0,
    prefillTokens: Float64Array.from(prefillTokens),
    ofPolicy: new Float64Array(cost.length * POLICY_TERMS_MAX),
    cost: Float64Array.from(cost),
    probability: new Float64Array(cost.length),
  }
}

t.test('regret is what the taken candidate costs more than that of the other rule', async t => {
  const shadows = new ShadowCosts()
  const terms = termsOf([100, 10, 90], [50, 70, 20])
  shadows.find(candidatesOf([3, 4, 1]), terms)
  t.strictSame([...shadows.picks], [0, 2, 1], 'the first in turn, fewest requests, least 10 · 5')
  shadows.score(terms, 1)
  t.strictSame([...shadows.regrets], [20, 50, 0])
  t.strictSame([...shadows.meanRegrets], [0, 0, 0], 'not decided yet')
  shadows.count()
  t.strictSame([...shadows.meanRegrets], [20, 50, 0])
})

t.test('equals take turns, and a question changes nothing', async t => {
  const shadows = new ShadowCosts()
  const terms = termsOf([5, 5, 5, 5], [1, 1, 1, 1])
  const candidates = candidatesOf([2, 1, 1, 2])
  const picks: number[][] = []
  for (let i = 0; i < 5; i++) {
    shadows.find(candidates, terms)
    shadows.find(candidates, terms)
    shadows.score(terms, 0)
    shadows.count()
    picks.push([...shadows.picks])
  }
  t.strictSame(picks, [
    [0, 1, 1],
    [1, 1, 1],
    [2, 2, 2],
    [3, 1, 1],
    [0, 1, 1],
  ])
})

t.test('of equals each rule takes the first from its turn on', async () => {
  const small = fc.array(fc.nat(3), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(small, small, fc.nat(8), (requests, tokens, turns) => {
      const prefill = requests.map((_, i) => tokens[i % tokens.length]!)
      const shadows = new ShadowCosts()
      const terms = termsOf(prefill, prefill)
      for (let turn = 0; turn < turns; turn++) shadows.count()
      shadows.find(candidatesOf(requests), terms)
      const first = turns % requests.length
      const inTurn = requests.map((_, i) => (first + i) % requests.length)
      const best = (costOf: (i: number) => number): number =>
        inTurn.reduce((least, i) => (costOf(i) < costOf(least) ? i : least))
      const products = best(i => prefill[i]! * (requests[i]! + 1))
      assert.deepEqual([...shadows.picks], [first, best(i => requests[i]!), products])
    }),
    { seed: SEED, numRuns: 1000 },
  )
})

t.test('in an idle fleet least-loaded takes who has been chosen, and nowhere else', async t => {
  const shadows = new ShadowCosts()
  const terms = termsOf([5, 5, 5], [1, 1, 1])
  for (const [requests, pick] of [
    [[0, 0, 0], 2],
    [[1, 0, 0], 1],
  ] as const) {
    shadows.find(candidatesOf([...requests]), terms, 2)
    t.equal(shadows.leastLoaded, pick)
  }
})

t.test('costs that are no numbers leave no trace', async t => {
  const shadows = new ShadowCosts()
  const terms = termsOf([Number.NaN, Number.NaN], [Number.NaN, Number.POSITIVE_INFINITY])
  shadows.find(candidatesOf([Number.NaN, Number.NaN]), terms)
  for (const taken of [0, 1]) {
    shadows.score(terms, taken)
    shadows.count()
  }
  t.strictSame([...shadows.regrets, ...shadows.meanRegrets], [0, 0, 0, 0, 0, 0])
})
