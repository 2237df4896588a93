import t from 'tap'
import { type Candidates, type ChoiceTerms, POLICY_TERMS_MAX, ShadowCosts } from '../src/index.ts'

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
