import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import {
  type Candidates,
  costTerms,
  FIXED_POLICY_NAMES,
  POLICIES,
  POLICY_TERMS_MAX,
  type PolicyName,
  ROUTER_MODES,
  SELECTION_DEFAULTS,
  Selector,
  selectionSettings,
} from '../src/index.ts'
import { type Candidate, lowerTierBlocks, naiveCosts, naivePrefill } from './naive-policies.ts'

const SEED = 20_261_122
const idle: Candidate = { overlap: 0, credit: 1, lowerShare: 0, active: 0, fresh: 0, prefill: 0, requests: 0 }

function candidates(rows: readonly Partial<Candidate>[]): Candidates {
  const all = rows.map(row => ({ ...idle, ...row }))
  return {
    count: all.length,
    workerSlots: Int32Array.from(all, (_, i) => i),
    overlapBlocks: Int32Array.from(all, row => row.overlap),
    creditFactors: Float64Array.from(all, row => row.credit),
    lowerTierBlocks: Float64Array.from(all, lowerTierBlocks),
    activeBlocks: Int32Array.from(all, row => row.active),
    newBlocks: Int32Array.from(all, row => row.fresh),
    activePrefillTokens: Float64Array.from(all, row => row.prefill),
    activeRequests: Int32Array.from(all, row => row.requests),
  }
}

const noRandom: Random = {
  next: () => assert.fail('nothing to draw'),
  below: () => assert.fail('nothing to draw'),
  bytes: () => assert.fail('nothing to draw'),
}

const prompt = { promptTokens: 1600, blockSizeTokens: 16 }

/** Costs, winner and the name of the rule. */
function chosen(policy: PolicyName, rows: readonly Partial<Candidate>[], random = noRandom) {
  const choice = new Selector().choose(candidates(rows), prompt, selectionSettings({ policy }), random)
  return {
    cost: [...choice.terms.cost.subarray(0, rows.length)],
    winner: choice.winner,
    rule: choice.policy.rules[choice.rule]!.name,
  }
}

t.test('product multiplies the prefill of a worker by its requests with this one', async t => {
  const rows = [{ overlap: 50, requests: 3 }, { prefill: 100, requests: 1 }, { requests: 2 }]
  t.strictSame(chosen('product', rows), {
    cost: [800 * 4, 1700 * 2, 1600 * 3],
    winner: 0,
    rule: 'product',
  })
})

t.test(
  'est-ttft adds the time of the queue, of the new tokens and of their attention, in milliseconds',
  async t => {
    const rows = [{ overlap: 50, prefill: 1000 }, { requests: 100 }]
    const { cost, winner } = chosen('est-ttft', rows)
    const expected = [0.023 * 1800 + 0.96e-6 * 800 * 0.6 * 1600, 0.023 * 1600 + 0.96e-6 * 1600 * 0.6 * 1600]
    for (const [i, ms] of expected.entries()) t.ok(Math.abs(cost[i]! - ms) < 1e-9, `${cost[i]} is ${ms}`)
    t.equal(winner, 1)
  },
)

t.test('threshold goes by overlap, unless there is little of it or the fleet is out of balance', async t => {
  t.match(chosen('threshold', [{ overlap: 31, requests: 60 }, { requests: 0 }]), {
    winner: 0,
    rule: 'overlap',
  })
  t.match(chosen('threshold', [{ overlap: 30, requests: 60 }, { requests: 0 }]), { winner: 1, rule: 'load' })
  t.match(chosen('threshold', [{ overlap: 90, requests: 65 }, { requests: 0 }]), {
    winner: 1,
    rule: 'imbalance',
  })
  t.match(chosen('threshold', [{ overlap: 90, requests: 64 }, { requests: 0 }]), {
    winner: 0,
    rule: 'overlap',
  })
  t.match(chosen('threshold', [{ overlap: 90, requests: 300 }, { requests: 200 }]), {
    winner: 0,
    rule: 'overlap',
  })
  t.match(chosen('threshold', [{ overlap: 90, requests: 301 }, { requests: 200 }]), {
    winner: 1,
    rule: 'imbalance',
  })
})

t.test(
  'a credit above 1 makes up for queued prefill, one below 1 counts less, and tiers keep their own weight',
  async t => {
    const rows = [
      { overlap: 50, prefill: 1600 },
      { overlap: 50, lowerShare: 1 },
    ]
    const costs = (overlapCredit: number) => {
      const settings = selectionSettings({ overlapCredit })
      return [
        ...new Selector().choose(candidates(rows), prompt, settings, noRandom).terms.cost.subarray(0, 2),
      ]
    }
    t.strictSame(costs(1), [150, 50])
    t.strictSame(costs(0.5), [175, 50])
    t.strictSame(
      costs(3),
      [50, 50].map((cost, i) => (i === 0 ? 51 - 1 + 1 / 16 : cost)),
    )
  },
)

t.test('credit decays with the prefill that is queued beyond the least of all candidates', async t => {
  const rows = [
    { overlap: 100, prefill: 3200 },
    { overlap: 0, prefill: 1600 },
  ]
  const settings = selectionSettings({ creditDecay: 1 })
  const choice = new Selector().choose(candidates(rows), prompt, settings, noRandom)
  // One prompt of this size more is queued: half of the credit is left.
  t.equal(choice.terms.newTokens[0], 800)
  t.equal(choice.terms.newTokens[1], 1600)
})

t.test('weight 0 credits nothing that is cached, under every policy', async t => {
  for (const policy of FIXED_POLICY_NAMES) {
    const settings = selectionSettings({ policy, overlapWeight: 0 })
    const choice = new Selector().choose(candidates([{ overlap: 90 }, {}]), prompt, settings, seededRandom(1))
    t.equal(choice.terms.cost[0], choice.terms.cost[1], policy)
  }
})

t.test('power-of-two takes the one with fewer requests of two that it draws', async t => {
  const rows = [{ requests: 9 }, { requests: 5 }, { requests: 1 }]
  const settings = selectionSettings({ mode: 'power-of-two' })
  const wins = [0, 0, 0]
  const random = seededRandom(SEED)
  const selector = new Selector()
  for (let i = 0; i < 3000; i++) wins[selector.choose(candidates(rows), prompt, settings, random).winner]!++
  t.equal(wins[0], 0, 'never the one with the most')
  t.ok(wins[1]! > 900 && wins[1]! < 1100, `${wins}: a third for the one in the middle`)
  const ties = [0, 0]
  for (let i = 0; i < 2000; i++)
    ties[selector.choose(candidates([{}, {}]), prompt, settings, random).winner]!++
  t.ok(ties[0]! > 900 && ties[0]! < 1100, `${ties}`)
  t.equal(selector.choose(candidates([{}]), prompt, settings, noRandom).winner, 0)
})

t.test('direct takes the rank with the fewest requests', async t => {
  const settings = selectionSettings({ mode: 'direct' })
  const choice = new Selector().choose(
    candidates([{ requests: 3, overlap: 100 }, { requests: 1 }]),
    prompt,
    settings,
    noRandom,
  )
  t.equal(choice.winner, 1)
  t.equal(choice.runnerUp, 0)
})

t.test('an unknown policy and figures out of range are assertions that name the value', async t => {
  const choose = (given: object) => () =>
    new Selector().choose(candidates([{}]), prompt, selectionSettings(given), noRandom)
  t.throws(choose({ policy: 'lmetric' }), /"lmetric": there are auto, linear, product, est-ttft, threshold/)
  for (const name of [
    'overlapWeight',
    'overlapCredit',
    'creditDecay',
    'activeRequestWeight',
    'prefillMsPerToken',
    'attentionMsPerMillionPairs',
    'temperature',
  ]) {
    for (const figure of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      t.throws(choose({ [name]: figure }), new RegExp(`${figure}: use a finite number`), `${name} ${figure}`)
    }
  }
})

t.test('every policy describes its terms and rules, by which its costs can be read', async t => {
  for (const name of FIXED_POLICY_NAMES) {
    const { terms, rules } = POLICIES[name]
    t.equal(POLICIES[name].name, name)
    t.ok(terms.length <= POLICY_TERMS_MAX)
    for (const { formula } of rules) {
      for (const word of formula.split(/ [+·] /))
        t.ok(
          terms.some(term => term.name === word),
          `${name}: ${word}`,
        )
    }
  }
})

const row = fc.record({
  overlap: fc.nat(200),
  credit: fc.double({ min: 0, max: 1, noNaN: true }),
  lowerShare: fc.constantFrom(0, 0.5, 1),
  active: fc.nat(500),
  fresh: fc.nat(128),
  prefill: fc.nat(50_000),
  requests: fc.nat(120),
})
const rows = fc.array(row, { minLength: 1, maxLength: 60 })
const anyPrompt = fc.record({
  promptTokens: fc.integer({ min: 1, max: 4000 }),
  blockSizeTokens: fc.constantFrom(1, 16, 100),
})
const figure = fc.oneof(fc.constant(0), fc.constant(1), fc.double({ min: 0, max: 10, noNaN: true }))
const weights = fc.record({
  overlapWeight: figure,
  overlapCredit: figure,
  creditDecay: figure,
  activeRequestWeight: figure,
  prefillMsPerToken: figure,
  attentionMsPerMillionPairs: figure,
  temperature: figure,
})

for (const policy of FIXED_POLICY_NAMES) {
  t.test(`${policy} costs what its definition says, and its terms add up`, async t => {
    const selector = new Selector(4)
    const holds = fc.property(rows, anyPrompt, weights, fc.nat(), (rows, prompt, weights, seed) => {
      const input = candidates(rows)
      const settings = selectionSettings({ policy, ...weights })
      const choice = selector.choose(input, prompt, settings, seededRandom(seed))
      const costs = naiveCosts(policy, rows, prompt, settings)
      const { rules, terms } = POLICIES[policy]
      const rule = rules[choice.rule]!
      for (const [i, row] of rows.entries()) {
        const found = costTerms(choice, input, prompt, i)
        const expected = naivePrefill(row, rows, prompt, settings)
        assertClose(found.newTokens, expected.newTokens)
        assertClose(found.prefillTokens, expected.prefillTokens)
        assertClose(found.cost, costs[i]!)
        const values = rule.formula.split(/ [+·] /).map(name => {
          return found.ofPolicy[terms.findIndex(term => term.name === name)]!
        })
        assertClose(
          rule.formula.includes('·') ? values.reduce((a, b) => a * b) : values.reduce((a, b) => a + b),
          found.cost,
        )
      }
      if (weights.temperature === 0) {
        assert.equal(
          choice.terms.cost[choice.winner],
          Math.min(...choice.terms.cost.subarray(0, rows.length)),
        )
      }
    })
    t.doesNotThrow(() => fc.assert(holds, { numRuns: 300, seed: SEED }), `seed ${SEED}`)
  })
}

t.test('the same seed chooses the same, in every mode and by every policy', async t => {
  const run = (seed: number): number[] => {
    const random = seededRandom(seed)
    const selector = new Selector()
    const input = candidates(
      Array.from({ length: 9 }, (_, i) => ({ requests: i % 2, overlap: 10 * (i % 3) })),
    )
    const winners: number[] = []
    for (const mode of ROUTER_MODES) {
      for (const policy of FIXED_POLICY_NAMES) {
        for (const temperature of [0, 0.7]) {
          const settings = selectionSettings({ mode, policy, temperature })
          for (let i = 0; i < 8; i++) winners.push(selector.choose(input, prompt, settings, random, i).winner)
        }
      }
    }
    return winners
  }
  t.strictSame(run(SEED), run(SEED))
  t.notSame(run(SEED), run(SEED + 1))
})

t.test('settings that are not given have the defaults', async t => {
  t.strictSame(selectionSettings({ policy: 'product' }), { ...SELECTION_DEFAULTS, policy: 'product' })
})

function assertClose(found: number, expected: number): void {
  const scale = Math.max(1, Math.abs(expected))
  assert.ok(Math.abs(found - expected) <= 1e-9 * scale, `${found} is not ${expected}`)
}
