import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { type Candidates, costTerms, ROUTER_MODES, Selector, selectionSettings } from '../src/index.ts'

interface Row {
  readonly overlap?: number
  readonly credit?: number
  readonly active?: number
  readonly fresh?: number
  readonly prefill?: number
  readonly requests?: number
}

function candidates(rows: readonly Row[]): Candidates {
  return {
    count: rows.length,
    workerSlots: Int32Array.from(rows, (_, i) => 100 + i),
    overlapBlocks: Int32Array.from(rows, row => row.overlap ?? 0),
    creditFactors: Float64Array.from(rows, row => row.credit ?? 1),
    activeBlocks: Int32Array.from(rows, row => row.active ?? 0),
    newBlocks: Int32Array.from(rows, row => row.fresh ?? 0),
    activePrefillTokens: Float64Array.from(rows, row => row.prefill ?? 0),
    activeRequests: Int32Array.from(rows, row => row.requests ?? 0),
  }
}

const kv = selectionSettings()
const noRandom: Random = {
  next: () => assert.fail('nothing to draw'),
  below: () => assert.fail('nothing to draw'),
  bytes: () => assert.fail('nothing to draw'),
}

t.test('an overlap that is believed less counts less, and all of it counts where it is believed', async t => {
  const input = candidates([
    { overlap: 7, credit: 0.8 },
    { overlap: 6, credit: 1 },
  ])
  const request = { promptTokens: 160, blockSizeTokens: 16 }
  const choice = new Selector().choose(input, request, kv, noRandom)
  t.equal(choice.winner, 1)
  t.strictSame([...choice.terms.prefillTokens.subarray(0, 2)], [160 - 7 * 16 * 0.8, 160 - 6 * 16])
  t.match(costTerms(choice, input, request, 0), { overlapBlocks: 7, creditFactor: 0.8 })
})

t.test(
  'three workers with 2, 5 and 8 of 10 blocks cached and 10, 5 and 9 to decode cost 18, 10 and 11',
  async t => {
    const input = candidates([
      { overlap: 2, active: 5, fresh: 5 },
      { overlap: 5, active: 0, fresh: 5 },
      { overlap: 8, active: 2, fresh: 7 },
    ])
    const request = { promptTokens: 160, blockSizeTokens: 16 }
    const choice = new Selector().choose(input, request, kv, noRandom)
    t.strictSame([...choice.terms.cost.subarray(0, 3)], [18, 10, 11])
    t.equal(choice.winner, 1)
    t.equal(choice.runnerUp, 2)
    t.strictSame(costTerms(choice, input, request, 1), {
      workerSlot: 101,
      overlapBlocks: 5,
      creditFactor: 1,
      newTokens: 80,
      prefillTokens: 80,
      prefillBlocks: 5,
      decodeBlocks: 5,
      ofPolicy: [5, 5, 0],
      cost: 10,
      probability: 1,
    })
  },
)

t.test('with 7 to decode on the second worker the third one wins', async t => {
  const input = candidates([
    { overlap: 2, active: 10 },
    { overlap: 5, active: 7 },
    { overlap: 8, active: 9 },
  ])
  const choice = new Selector().choose(input, { promptTokens: 160, blockSizeTokens: 16 }, kv, noRandom)
  t.strictSame([...choice.terms.cost.subarray(0, 3)], [18, 12, 11])
  t.equal(choice.winner, 2)
  t.equal(choice.runnerUp, 1)
})

t.test('queued prefill tokens of the worker are part of its cost', async t => {
  const input = candidates([{ overlap: 5, prefill: 320 }, { overlap: 0 }])
  const choice = new Selector().choose(input, { promptTokens: 100, blockSizeTokens: 16 }, kv, noRandom)
  t.strictSame([...choice.terms.prefillTokens.subarray(0, 2)], [340, 100])
  t.equal(choice.winner, 1)
})

t.test('overlap is clamped to the full blocks of the prompt, so that prefill is never negative', async t => {
  const input = candidates([{ overlap: 1000 }])
  const request = { promptTokens: 37, blockSizeTokens: 16 }
  const choice = new Selector().choose(input, request, kv, noRandom)
  t.match(costTerms(choice, input, request, 0), { overlapBlocks: 2, prefillTokens: 5, prefillBlocks: 5 / 16 })
  t.equal(choice.runnerUp, -1)
})

t.test('weight 0 leaves only decode blocks', async t => {
  const input = candidates([
    { overlap: 9, active: 3 },
    { overlap: 0, active: 2 },
  ])
  const request = { promptTokens: 160, blockSizeTokens: 16, override: { overlapWeight: 0 } }
  const choice = new Selector().choose(input, request, kv, noRandom)
  t.strictSame([...choice.terms.cost.subarray(0, 2)], [3, 2])
  t.equal(choice.winner, 1)
  t.equal(choice.overlapWeight, 0)
})

t.test('a request overrides weight and temperature, and only what it sets', async t => {
  const input = candidates([{ overlap: 5, active: 20 }, { active: 19 }])
  const selector = new Selector()
  const request = { promptTokens: 160, blockSizeTokens: 16 }
  const settings = { ...kv, overlapWeight: 0.1 }
  t.equal(selector.choose(input, request, settings, noRandom).winner, 1)
  const heavy = selector.choose(input, { ...request, override: { overlapWeight: 4 } }, settings, noRandom)
  t.equal(heavy.winner, 0)
  t.equal(heavy.temperature, 0)
  const warm = selector.choose(input, { ...request, override: { temperature: 1 } }, settings, seededRandom(1))
  t.equal(warm.overlapWeight, 0.1)
  t.equal(warm.temperature, 1)
  t.ok(warm.terms.probability[0]! > 0 && warm.terms.probability[1]! > 0)
})

t.test('ties go to each of the tied ones equally often, by the seed', async t => {
  const input = candidates([{ active: 1 }, { active: 5 }, { active: 1 }, { active: 1 }])
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  const wins = [0, 0, 0, 0]
  const random = seededRandom(7)
  const selector = new Selector()
  for (let i = 0; i < 3000; i++) wins[selector.choose(input, request, kv, random).winner]!++
  t.equal(wins[1], 0)
  for (const i of [0, 2, 3]) t.ok(wins[i]! > 900 && wins[i]! < 1100, `${wins}`)
})

t.test('softmax draws by the probabilities it reports, which depend on T and not on the scale', async t => {
  const selector = new Selector()
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  const settings = { ...kv, temperature: 0.7 }
  const random = seededRandom(11)
  const expected = 1 / (1 + Math.exp(-1 / 0.7))
  for (const scale of [1, 1000]) {
    const input = candidates([{ active: 0 }, { active: scale }])
    let wins = 0
    for (let i = 0; i < 4000; i++) if (selector.choose(input, request, settings, random).winner === 0) wins++
    const choice = selector.choose(input, request, settings, random)
    t.ok(Math.abs(choice.terms.probability[0]! - expected) < 1e-12)
    t.ok(Math.abs(wins / 4000 - expected) < 0.03, `${wins}`)
  }
})

t.test('equal costs are drawn uniformly at any temperature', async t => {
  const input = candidates([{ active: 3 }, { active: 3 }, { active: 3 }])
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  const choice = new Selector().choose(input, request, { ...kv, temperature: 5 }, seededRandom(1))
  t.strictSame([...choice.terms.probability.subarray(0, 3)], [1 / 3, 1 / 3, 1 / 3])
})

t.test('round-robin takes turns that the caller keeps', async t => {
  const input = candidates([{}, {}, {}])
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  const selector = new Selector()
  const winners: number[] = []
  let turn = 0
  for (let i = 0; i < 5; i++) {
    const choice = selector.choose(input, request, { ...kv, mode: 'round-robin' }, noRandom, turn)
    winners.push(choice.winner)
    turn = choice.nextTurn
  }
  t.strictSame(winners, [0, 1, 2, 0, 1])
})

t.test('least-loaded takes the fewest active requests, whatever the overlap', async t => {
  const input = candidates([
    { requests: 3, overlap: 10 },
    { requests: 1, active: 900 },
    { requests: 2, active: 1 },
  ])
  const request = { promptTokens: 160, blockSizeTokens: 16 }
  const choice = new Selector().choose(input, request, { ...kv, mode: 'least-loaded' }, noRandom)
  t.equal(choice.winner, 1)
  t.equal(choice.runnerUp, 2)
})

t.test('least-loaded takes the smallest load by preference, where the request prefers workers', async t => {
  const input = candidates([{ requests: 1 }, { requests: 2 }, { requests: 4 }])
  const request = { promptTokens: 160, blockSizeTokens: 16 }
  const winnerOf = (...preferences: number[]) => {
    const preferring = { ...input, preferences: Float64Array.from(preferences) }
    return new Selector(1).choose(preferring, request, { ...kv, mode: 'least-loaded' }, noRandom).winner
  }
  t.equal(winnerOf(1, 0.5, 1), 1, 'a half of three is less than two')
  t.equal(winnerOf(1, 1, 0.5), 0, 'but a half of five is not')
})

t.test('random is uniform and still shows what each would have cost', async t => {
  const input = candidates([{ active: 30 }, { active: 1 }])
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  const selector = new Selector()
  const random = seededRandom(3)
  let wins = 0
  for (let i = 0; i < 2000; i++) {
    const choice = selector.choose(input, request, { ...kv, mode: 'random' }, random)
    if (choice.winner === 0) wins++
    assert.deepEqual([...choice.terms.cost.subarray(0, 2)], [31, 2])
  }
  t.ok(wins > 900 && wins < 1100, `${wins}`)
})

t.test('no candidate, a negative weight or temperature, and impossible sizes are assertions', async t => {
  const selector = new Selector()
  const one = candidates([{}])
  const request = { promptTokens: 16, blockSizeTokens: 16 }
  t.throws(() => selector.choose(candidates([]), request, kv, noRandom), RangeError)
  t.throws(() => selector.choose(one, { ...request, promptTokens: -1 }, kv, noRandom), RangeError)
  t.throws(() => selector.choose(one, { ...request, blockSizeTokens: 0 }, kv, noRandom), RangeError)
  t.throws(() => selector.choose(one, request, { ...kv, overlapWeight: -1 }, noRandom), RangeError)
  t.throws(() => selector.choose(one, request, { ...kv, temperature: Number.NaN }, noRandom), RangeError)
})

const row = fc.record({
  overlap: fc.nat(200),
  active: fc.nat(500),
  fresh: fc.nat(128),
  prefill: fc.nat(50_000),
  requests: fc.nat(20),
})
const rows = fc.array(row, { minLength: 1, maxLength: 100 })
const request = fc.record({
  promptTokens: fc.integer({ min: 1, max: 4000 }),
  blockSizeTokens: fc.constantFrom(1, 16, 100),
})
const settings = fc
  .record({
    mode: fc.constantFrom(...ROUTER_MODES),
    overlapWeight: fc.double({ min: 0, max: 100, noNaN: true }),
    temperature: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 100, noNaN: true })),
  })
  .map(selectionSettings)

t.test('whatever the input: probabilities sum to 1, the winner is possible, the terms add up', async t => {
  const selector = new Selector(4)
  const holds = fc.property(rows, request, settings, fc.nat(), (rows, request, settings, seed) => {
    const input = candidates(rows)
    const choice = selector.choose(input, request, settings, seededRandom(seed), seed)
    const { terms, winner, runnerUp, count } = choice
    assert.equal(count, rows.length)
    assert.ok(winner >= 0 && winner < count)
    assert.ok(count === 1 ? runnerUp === -1 : runnerUp !== winner && runnerUp >= 0 && runnerUp < count)
    const sum = terms.probability.subarray(0, count).reduce((a, b) => a + b, 0)
    assert.ok(Math.abs(sum - 1) < 1e-9, `${sum}`)
    assert.ok(terms.probability[winner]! > 0)
    rows.forEach((row, i) => {
      const c = costTerms(choice, input, request, i)
      const uncached = Math.max(0, request.promptTokens - row.overlap * request.blockSizeTokens)
      const full = Math.floor(request.promptTokens / request.blockSizeTokens)
      assert.equal(c.overlapBlocks, Math.min(row.overlap, full))
      assert.ok(c.prefillTokens >= row.prefill + uncached)
      assert.equal(c.prefillBlocks, c.prefillTokens / request.blockSizeTokens)
      assert.equal(c.decodeBlocks, row.active + row.fresh)
      assert.equal(c.cost, settings.overlapWeight * c.prefillBlocks + c.decodeBlocks)
    })
    if (settings.mode === 'kv' && settings.temperature === 0) {
      assert.equal(terms.cost[winner], Math.min(...terms.cost.subarray(0, count)))
    }
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})

t.test('as T goes to 0 the cheapest candidates have all of the probability', async t => {
  const selector = new Selector()
  const holds = fc.property(rows, request, fc.nat(), (rows, request, seed) => {
    const input = candidates(rows)
    const choice = selector.choose(input, request, { ...kv, temperature: 1e-9 }, seededRandom(seed))
    const costs = [...choice.terms.cost.subarray(0, choice.count)]
    const smallest = Math.min(...costs)
    // Costs closer than a millionth of the range may still share at this T.
    const near = smallest + (Math.max(...costs) - smallest) * 1e-6
    assert.ok(costs[choice.winner]! <= near)
  })
  t.doesNotThrow(() => fc.assert(holds))
})

t.test('more overlap never costs more', async t => {
  const selector = new Selector()
  const holds = fc.property(
    row,
    request,
    fc.nat(50),
    fc.double({ min: 0, max: 10, noNaN: true }),
    (row, request, more, overlapWeight) => {
      const input = candidates([row, { ...row, overlap: row.overlap + more }])
      const { terms } = selector.choose(input, request, { ...kv, overlapWeight }, seededRandom(1))
      assert.ok(terms.cost[1]! <= terms.cost[0]!)
    },
  )
  t.doesNotThrow(() => fc.assert(holds))
})

t.test('who is diverted leaves the chances a sum of 1, and each its part', async t => {
  const request = { promptTokens: 160, blockSizeTokens: 16 }
  for (const [name, overlaps, temperature, before] of [
    ['one is certain', [9, 2, 0], 0, [1, 0, 0]],
    ['two are tied', [9, 9, 0], 0, [0.5, 0.5, 0]],
    ['softmax', [9, 2, 0], 0.7, undefined],
  ] as const) {
    for (const isTaken of [false, true]) {
      const selector = new Selector()
      const input = candidates(overlaps.map(overlap => ({ overlap })))
      const choice = selector.choose(input, request, selectionSettings({ temperature }), seededRandom(1))
      const { winner } = choice
      const chances = [...choice.terms.probability.subarray(0, 3)]
      if (before !== undefined) t.strictSame(chances, before, name)
      selector.divert(2, 0.1, isTaken)
      const after = [...choice.terms.probability.subarray(0, 3)]
      const expected = chances.map((chance, i) => 0.9 * chance + (i === 2 ? 0.1 : 0))
      for (const [i, chance] of after.entries())
        t.ok(Math.abs(chance - expected[i]!) < 1e-12, `${name}: ${after}, not ${expected}`)
      t.equal(choice.winner, isTaken ? 2 : winner, name)
    }
  }
})
