import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockManager } from '../src/block-manager.ts'
import { type EmittedToken, EngineModel } from '../src/engine-model.ts'
import { DEFAULT_VOCABULARY, expectedOutput } from '../src/output.ts'
import { timingProfile } from '../src/timing-profile.ts'

const SEED = 11_007

function ids(count: number, first = 1): number[] {
  return Array.from({ length: count }, (_, i) => first + i)
}

function makeModel(options: { blockCount?: number; stepTokensMax?: number; sequencesMax?: number } = {}) {
  const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: options.blockCount ?? 100, hashSeed: 3 })
  const model = new EngineModel({
    blocks,
    profile: timingProfile('h100-8b'),
    stepTokensMax: options.stepTokensMax ?? 64,
    sequencesMax: options.sequencesMax ?? 8,
    vocabulary: DEFAULT_VOCABULARY,
  })
  return { blocks, model }
}

function request(id: string, promptIds: readonly number[], outputTokens: number) {
  return { id, promptIds, outputTokens, namespace: {}, seed: 5 }
}

function drain(model: EngineModel, stepsMax = 10_000): EmittedToken[] {
  const tokens: EmittedToken[] = []
  for (let step = 0; model.startStep() !== undefined; step++) {
    assert.ok(step < stepsMax, 'the model comes to an end')
    tokens.push(...model.finishStep().tokens)
  }
  return tokens
}

t.test('the output is the seeded function of all ids before it', async t => {
  const { model } = makeModel()
  model.submit(request('a', ids(10), 6))
  const tokens = drain(model)
  t.strictSame(
    tokens.map(token => token.tokenId),
    expectedOutput(ids(10), 6, 5),
  )
  t.strictSame(
    tokens.map(token => token.isLast),
    [false, false, false, false, false, true],
  )
  const whole = expectedOutput(ids(10), 6, 5)
  t.strictSame(
    expectedOutput([...ids(10), ...whole.slice(0, 4)], 2, 5),
    whole.slice(4),
    'a continuation goes on',
  )
})

t.test('identical prompts of one step hit each other before any event', async t => {
  const { model } = makeModel()
  for (const id of ['a', 'b', 'c', 'd']) model.submit(request(id, ids(9), 1))
  model.startStep()
  const { tokens, events } = model.finishStep()
  t.strictSame(
    tokens.map(token => token.cachedTokens),
    [0, 8, 8, 8],
  )
  t.equal(events.length, 1)
})

t.test('a long prompt is computed in chunks, each reported in its own step, chained by parent', async t => {
  const { model } = makeModel({ stepTokensMax: 16 })
  model.submit(request('a', ids(40), 1))
  const stored: number[][] = []
  while (model.startStep() !== undefined) {
    for (const event of model.finishStep().events) {
      if (event.type === 'stored') stored.push([event.firstBlockIndex, event.hashes.length / 2])
    }
  }
  t.strictSame(stored, [
    [0, 4],
    [4, 4],
    [8, 2],
  ])
})

t.test('generated tokens fill blocks that are cached and reported', async t => {
  const { model, blocks } = makeModel()
  model.submit(request('a', ids(6), 7))
  drain(model)
  // 6 + 7 tokens, of which the last was never computed: 12, three blocks.
  t.equal(blocks.cachedBlocks, 3)
  const output = expectedOutput(ids(6), 7, 5)
  const follow = blocks.openSequence([...ids(6), ...output, 1, 2])
  t.equal(blocks.match(follow), 3)
})

t.test('nobody overtakes a head that does not fit', async t => {
  const { model } = makeModel({ blockCount: 11 })
  model.submit(request('long', ids(30), 2))
  model.submit(request('longer', ids(32, 100), 2))
  model.submit(request('short', ids(2, 200), 9))
  const order = drain(model)
    .filter(token => token.isLast)
    .map(token => token.id)
  t.strictSame(order, ['long', 'longer', 'short'])
})

t.test('an abort gives the blocks back, also in the middle of a step', async t => {
  const { model, blocks } = makeModel()
  model.submit(request('a', ids(20), 50))
  model.submit(request('b', ids(20, 300), 3))
  model.startStep()
  t.equal(model.abort('a'), true)
  t.equal(model.abort('a'), false)
  model.finishStep()
  t.ok(drain(model).every(token => token.id === 'b'))
  t.equal(blocks.freeBlocks, blocks.usableBlocks)
})

t.test('every request gets its output under pre-emption, aborts and a tiny cache', async t => {
  const request = fc.record({
    prompt: fc.array(fc.nat(1), { minLength: 1, maxLength: 20 }),
    outputTokens: fc.integer({ min: 1, max: 20 }),
    atStep: fc.nat(30),
    abortAfter: fc.option(fc.nat(10)),
  })
  const correct = fc.property(
    fc.array(request, { maxLength: 12 }),
    fc.integer({ min: 11, max: 20 }),
    fc.integer({ min: 1, max: 24 }),
    fc.integer({ min: 1, max: 6 }),
    (requests, blockCount, stepTokensMax, sequencesMax) => {
      const { model, blocks } = makeModel({ blockCount, stepTokensMax, sequencesMax })
      const outputs = requests.map((): number[] => [])
      const aborted = new Set<number>()
      let stepsLeft = 5_000
      for (let step = 0; step <= 45 || model.hasWork; step++) {
        assert.ok(stepsLeft-- > 0, 'the model comes to an end')
        for (const [i, { prompt, outputTokens, atStep, abortAfter }] of requests.entries()) {
          if (atStep === step) {
            model.submit({ id: String(i), promptIds: prompt, outputTokens, namespace: {}, seed: i })
          }
          if (abortAfter !== null && atStep + abortAfter + 1 === step && model.abort(String(i)))
            aborted.add(i)
        }
        if (model.startStep() === undefined) continue
        assert.ok(model.counts.running <= sequencesMax)
        for (const token of model.finishStep().tokens) {
          assert.equal(token.index, outputs[Number(token.id)]!.length)
          outputs[Number(token.id)]!.push(token.tokenId)
        }
      }
      for (const [i, { prompt, outputTokens }] of requests.entries()) {
        const expected = expectedOutput(prompt, outputTokens, i)
        assert.deepEqual(outputs[i], aborted.has(i) ? expected.slice(0, outputs[i]!.length) : expected)
      }
      assert.equal(blocks.freeBlocks, blocks.usableBlocks)
    },
  )
  t.doesNotThrow(() => fc.assert(correct, { seed: SEED, numRuns: 300 }), `seed ${SEED}`)
})

t.test('pre-emption happens, and the victim is computed again', async t => {
  const { model } = makeModel({ blockCount: 11 })
  model.submit(request('a', ids(16), 20))
  model.submit(request('b', ids(16, 50), 20))
  const tokens = drain(model)
  t.equal(tokens.length, 40)
  t.ok(model.counts.preemptions > 0)
  t.strictSame(
    tokens.filter(token => token.id === 'b').map(token => token.tokenId),
    expectedOutput(ids(16, 50), 20, 5),
  )
})

t.test('step times are those of the published check values', async t => {
  const prefillMs = (name: 'h100-8b' | 'h100-70b-tp4', tokens: number): number => {
    const blocks = new BlockManager({ blockSizeTokens: 64, blockCount: 2200, hashSeed: 0 })
    const model = new EngineModel({
      blocks,
      profile: timingProfile(name),
      stepTokensMax: 8192,
      sequencesMax: 1024,
      vocabulary: DEFAULT_VOCABULARY,
    })
    model.submit(request('a', ids(tokens), 1))
    let totalMs = 0
    for (let ms = model.startStep(); ms !== undefined; ms = model.startStep()) {
      totalMs += ms
      model.finishStep()
    }
    return totalMs
  }
  const decodeMs = (name: 'h100-8b' | 'h100-70b-tp4', batch: number, context: number): number =>
    timingProfile(name).stepMs({
      prefillTokens: 0,
      prefillAttention: 0,
      decodeRequests: batch,
      decodeContextTokens: batch * context,
      kvUsage: 0.5,
    })
  const prefills: [number, number, number][] = [
    [128, 6.5, 18.6],
    [512, 12.9, 37],
    [2048, 50.1, 143.8],
    [8192, 221.6, 599.3],
    [12_035, 348.3, 909.3],
    [32_768, 1273, 2881],
    [131_072, 11_277, 19_253],
  ]
  for (const [tokens, small, large] of prefills) {
    t.ok(Math.abs(prefillMs('h100-8b', tokens) / small - 1) < 0.006, `8b prefill of ${tokens}`)
    t.ok(Math.abs(prefillMs('h100-70b-tp4', tokens) / large - 1) < 0.006, `70b prefill of ${tokens}`)
  }
  const decodes: [number, number, number, number][] = [
    [1, 1024, 6.54, 18.63],
    [8, 4096, 7.88, 19.47],
    [32, 4096, 12.01, 22.06],
    [64, 8192, 28.52, 32.44],
    [256, 1024, 17.9, 26.33],
  ]
  for (const [batch, context, small, large] of decodes) {
    t.ok(Math.abs(decodeMs('h100-8b', batch, context) - small) < 0.01, `8b decode ${batch} × ${context}`)
    t.ok(
      Math.abs(decodeMs('h100-70b-tp4', batch, context) - large) < 0.01,
      `70b decode ${batch} × ${context}`,
    )
  }
})
