/**
 * The engine book: what it learns from engines whose constants are known, and that its sums return to
 * nothing.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { BoundedMean } from '../src/bounded-mean.ts'
import {
  EngineBook,
  figureOf,
  figuresOf,
  LearnedCosts,
  PREFILL_PRIOR,
  prefillCost,
  STEP_TOKENS_DEFAULT,
} from '../src/index.ts'

const SEED = 20_261_124
const STEP = STEP_TOKENS_DEFAULT

/** Milliseconds: a step's overhead, a token, a pair of tokens; a decode step. */
interface Engine {
  readonly p: readonly [number, number, number]
  readonly gapMs: number
}

/** Sends requests one after the other to a slot, and tells what such an engine would have answered. */
function serve(
  book: EngineBook,
  engine: Engine,
  requests: number,
  startMs: number,
  seed = SEED,
  slot = 0,
): number {
  const random = seededRandom(seed)
  let nowMs = startMs
  for (let i = 0; i < requests; i++) {
    const id = `${seed} ${startMs} ${i}`
    const promptTokens = 100 + random.below(30_000)
    const newTokens = 1 + random.below(promptTokens)
    const outputTokens = 5 + random.below(300)
    book.sent(id, slot, { promptTokens, newTokens, nowMs }, STEP)
    nowMs += prefillCost(engine.p, newTokens, promptTokens, STEP, 0)
    book.firstToken(id, nowMs)
    nowMs += engine.gapMs * (outputTokens - 1)
    book.ended(id, nowMs, outputTokens)
    nowMs += random.below(50)
  }
  return nowMs
}

/** What it expects of a prompt of 12,000 tokens of which 8,000 are new. */
function expectedPrefillMs(book: EngineBook, nowMs: number, slot = 0): number {
  const { prefillStepMs, prefillTokenMs, prefillPairMs } = figuresOf(book.project([slot], nowMs), 0)
  return prefillCost([prefillStepMs, prefillTokenMs, prefillPairMs], 8000, 12_000, STEP, 0)
}

function expectedStepMs(book: EngineBook, nowMs: number, slot = 0): number {
  const { decodeStepMs, decodeRequestMs, decodeTokenMs } = figuresOf(book.project([slot], nowMs), 0)
  return decodeStepMs + decodeRequestMs + decodeTokenMs * 10_000
}

const FAST: Engine = { p: [1, 0.023, 1e-6], gapMs: 6.5 }
const SLOW: Engine = { p: [20, 0.5, 4e-5], gapMs: 60 }

for (const [name, engine] of Object.entries({ FAST, SLOW })) {
  t.test(`100 requests teach what prefill and decoding of a ${name} engine take, within 10 %`, async t => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    const nowMs = serve(book, engine, 100, 0)
    const prefill = expectedPrefillMs(book, nowMs) / prefillCost(engine.p, 8000, 12_000, STEP, 0)
    t.ok(Math.abs(prefill - 1) < 0.1, `prefill ${prefill}`)
    const step = expectedStepMs(book, nowMs) / engine.gapMs
    t.ok(Math.abs(step - 1) < 0.1, `decode ${step}`)
  })
}

for (const [name, predictedOf] of Object.entries({
  'ten times as many as': (newTokens: number, promptTokens: number) => Math.min(promptTokens, 10 * newTokens),
  'a tenth of': (newTokens: number) => newTokens / 10,
})) {
  t.test(`where ${name} the new tokens were predicted, those that were delivered teach`, async t => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    const random = seededRandom(SEED)
    let nowMs = 0
    for (let i = 0; i < 200; i++) {
      const promptTokens = 1000 + random.below(30_000)
      const newTokens = 100 + random.below(promptTokens - 100)
      book.sent(`${i}`, 0, { promptTokens, newTokens: predictedOf(newTokens, promptTokens), nowMs }, STEP)
      nowMs += prefillCost(FAST.p, newTokens, promptTokens, STEP, 0)
      book.firstToken(`${i}`, nowMs)
      nowMs += 1000
      book.ended(`${i}`, nowMs, 100, 1 - newTokens / promptTokens)
    }
    const prefill = expectedPrefillMs(book, nowMs) / prefillCost(FAST.p, 8000, 12_000, STEP, 0)
    t.ok(Math.abs(prefill - 1) < 0.1, `prefill ${prefill}`)
  })
}

t.test('what waits at a worker that is late in its busy period is expected to be as late', async t => {
  const backlogMs = (late: number): number => {
    const book = new EngineBook({ workerSlotsMax: 2 })
    const prompt = { promptTokens: 8000, newTokens: 8000 }
    const estimateMs = prefillCost(PREFILL_PRIOR, 8000, 8000, STEP, 0)
    for (let i = 0; i < 4; i++) book.sent(`${i}`, 0, { ...prompt, nowMs: 0 }, STEP)
    // It is never idle, so nothing is learned of it yet.
    for (let i = 0; i < 2; i++) book.firstToken(`${i}`, (i + 1) * late * estimateMs)
    return figureOf(book.project([0], 2 * late * estimateMs), 0, 'backlogMs') / (2 * estimateMs)
  }
  t.ok(Math.abs(backlogMs(1) - 1) < 0.01, 'in time')
  t.ok(Math.abs(backlogMs(1.2) - 1) < 0.01, 'late by chance')
  t.ok(backlogMs(4) > 3, `four times as late: ${backlogMs(4)}`)
  t.ok(backlogMs(100) <= 8, 'bounded')
})

t.test('a head that is overdue says so before its first token', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const prompt = { promptTokens: 8000, newTokens: 8000 }
  const estimateMs = prefillCost(PREFILL_PRIOR, 8000, 8000, STEP, 0)
  for (let i = 0; i < 2; i++) book.sent(`${i}`, 0, { ...prompt, nowMs: 0 }, STEP)
  t.ok(figureOf(book.project([0], 4 * estimateMs), 0, 'backlogMs') > 2.5 * estimateMs)
})

t.test('a prompt that is not known is load, and teaches nothing of the speed of prefill', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const random = seededRandom(SEED)
  let nowMs = 0
  for (let i = 0; i < 300; i++) {
    const newTokens = 100 + random.below(10_000)
    // Before, after or between known prompts; it takes ten times as long as its estimate says.
    const before = random.below(3)
    const sent = { promptTokens: newTokens, newTokens, nowMs }
    const unknown = { promptTokens: 1000, newTokens: 1000, isUnknown: true, nowMs }
    const ids = [`${i} a`, `${i} b`, `${i} c`]
    for (const [at, id] of ids.entries()) book.sent(id, 0, at === before ? unknown : sent, STEP)
    t.equal(figureOf(book.project([0], nowMs), 0, 'queuedTokens'), 1000 + 2 * newTokens)
    for (const [at, id] of ids.entries()) {
      const tokens = at === before ? 10_000 : newTokens
      nowMs += prefillCost(FAST.p, tokens, tokens, STEP, 0)
      book.firstToken(id, nowMs)
    }
    for (const id of ids) book.ended(id, nowMs + 500, 10, 0)
    nowMs += 1000
  }
  const prefill = expectedPrefillMs(book, nowMs) / prefillCost(FAST.p, 8000, 12_000, STEP, 0)
  t.ok(Math.abs(prefill - 1) < 0.15, `prefill ${prefill}`)
})

t.test('a request that is reported late does not lengthen what the others teach', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const random = seededRandom(SEED)
  let nowMs = 0
  for (let i = 0; i < 300; i++) {
    const newTokens = 100 + random.below(10_000)
    const sent = { promptTokens: newTokens, newTokens, nowMs }
    const [first, late, last] = [`${i} a`, `${i} b`, `${i} c`]
    for (const id of [first, late]) book.sent(id, 0, sent, STEP)
    book.late(late)
    nowMs += prefillCost(FAST.p, newTokens, newTokens, STEP, 0)
    book.firstToken(first, nowMs)
    book.sent(last, 0, sent, STEP)
    for (const id of [late, last]) {
      nowMs += prefillCost(FAST.p, newTokens, newTokens, STEP, 0)
      book.firstToken(id, nowMs)
    }
    for (const id of [first, late, last]) book.ended(id, nowMs + 500, 10, 0)
    nowMs = serve(book, FAST, 1, nowMs + 1000, i)
  }
  const prefill = expectedPrefillMs(book, nowMs) / prefillCost(FAST.p, 8000, 12_000, STEP, 0)
  t.ok(Math.abs(prefill - 1) < 0.15, `prefill ${prefill}`)
})

t.test('what was sent to a cache is what was computed there, once that is known', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  book.sent('a', 0, { promptTokens: 8000, newTokens: 8000, nowMs: 0 }, STEP)
  t.equal(figureOf(book.project([0], 0), 0, 'receivedTokens'), 8000)
  book.firstToken('a', 100)
  book.ended('a', 200, 10, 0.75)
  t.equal(figureOf(book.project([0], 200), 0, 'receivedTokens'), 2000)
})

t.test('a long answer holds what it has sent, a short one half of the mean answer', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const heldTokens = (nowMs: number) => figureOf(book.project([0], nowMs), 0, 'contextTokens')
  book.sent('a', 0, { promptTokens: 1000, newTokens: 1000, nowMs: 0 }, STEP)
  book.grew('a', 5000, 50)
  t.equal(heldTokens(50), 0, 'it does not decode yet')
  book.firstToken('a', 100)
  const atFirst = heldTokens(100)
  t.equal(atFirst, 1100)
  for (const [tokens, expected] of [
    [40, atFirst],
    [3000, 4000],
    [2000, 4000],
    [Number.NaN, 4000],
  ] as const) {
    book.grew('a', tokens, 1000)
    t.equal(heldTokens(1000), expected, `after ${tokens} tokens`)
  }
  book.grew('unknown', 10, 1000)
  book.ended('a', 2000, 3100)
  t.equal(heldTokens(2000), 0)
})

t.test('an engine that becomes twice as slow is known to be after 300 requests, within 10 %', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const halved: Engine = { p: [2, 0.046, 2e-6], gapMs: 13 }
  let nowMs = serve(book, FAST, 300, 0)
  nowMs = serve(book, halved, 300, nowMs, SEED + 1)
  const ratio = expectedPrefillMs(book, nowMs) / prefillCost(halved.p, 8000, 12_000, STEP, 0)
  t.ok(ratio > 0.9 && ratio < 1.1, `prefill ${ratio}`)
  const step = expectedStepMs(book, nowMs) / halved.gapMs
  t.ok(step > 0.9 && step < 1.1, `decode ${step}`)
})

t.test(
  'one of four workers that halves its speed, or doubles it, is known by it after 300 requests, within 15 %',
  async t => {
    const halved: Engine = { p: [2, 0.046, 2e-6], gapMs: 13 }
    for (const [before, after] of [
      [FAST, halved],
      [halved, FAST],
    ] as const) {
      const book = new EngineBook({ workerSlotsMax: 4 })
      let nowMs = 0
      for (let slot = 0; slot < 4; slot++) nowMs = serve(book, before, 300, nowMs, SEED + slot, slot)
      // In turns with the others, which are as fast as they were.
      for (let turn = 0; turn < 30; turn++)
        for (let slot = 0; slot < 4; slot++)
          nowMs = serve(book, slot === 0 ? after : before, 10, nowMs, SEED + 4 * turn + slot, slot)
      for (const slot of [0, 1]) {
        const engine = slot === 0 ? after : before
        const ratio = expectedPrefillMs(book, nowMs, slot) / prefillCost(engine.p, 8000, 12_000, STEP, 0)
        t.ok(ratio > 0.85 && ratio < 1.15, `worker ${slot}: prefill ${ratio}`)
        const step = expectedStepMs(book, nowMs, slot) / engine.gapMs
        t.ok(step > 0.85 && step < 1.15, `worker ${slot}: decode ${step}`)
      }
    }
  },
)

t.test(
  'one answer in fifty that is held up for a minute moves what is expected by less than a third',
  async t => {
    const costs = new LearnedCosts(PREFILL_PRIOR)
    const random = seededRandom(SEED)
    for (let i = 0; i < 1000; i++) {
      const tokens = 100 + random.below(20_000)
      const truth = prefillCost(FAST.p, tokens, tokens, STEP, 0)
      costs.observe(
        0,
        Math.ceil(tokens / STEP),
        tokens,
        (tokens * tokens) / 2,
        i % 50 === 49 ? 60_000 : truth,
      )
    }
    const ratio = prefillCost(costs.of(0), 8000, 8000, STEP, 0) / prefillCost(FAST.p, 8000, 8000, STEP, 0)
    t.ok(ratio > 0.67 && ratio < 1.33, `${ratio}`)
  },
)

t.test(
  'answers that do not stream end their prefill when it was estimated to, and teach no times',
  async t => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    const before = expectedPrefillMs(book, 0)
    book.sent('a', 0, { promptTokens: 1000, newTokens: 1000, isStream: false, nowMs: 0 })
    t.match(
      figuresOf(book.project([0], 1), 0),
      { backlogMs: 36.5 - 1, decoding: 0 },
      'a step, 1000 tokens and 0.5 ms for attention',
    )
    t.match(figuresOf(book.project([0], 100), 0), { backlogMs: 0, decoding: 1, requests: 1 })
    book.ended('a', 50_000, 40)
    t.match(figuresOf(book.project([0], 50_000), 0), { decoding: 0, requests: 0 })
    t.equal(expectedPrefillMs(book, 50_000), before)
  },
)

t.test('when all requests have ended, however, nothing is left of them', async () => {
  const step = fc.record({
    do: fc.constantFrom('sent', 'sent', 'first', 'ended'),
    id: fc.nat(40),
    slot: fc.nat(2),
    tokens: fc.nat(100_000),
    isStream: fc.boolean(),
    afterMs: fc.nat(3000),
    cachedShare: fc.constantFrom(undefined, 0, 0.5, 1, Number.NaN, 2),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), steps => {
      const book = new EngineBook({ workerSlotsMax: 3 })
      let nowMs = 0
      for (const { do: what, id, slot, tokens, isStream, afterMs, cachedShare } of steps) {
        nowMs += afterMs
        const sent = { promptTokens: 2 * tokens, newTokens: tokens, isStream, nowMs }
        if (what === 'sent') book.sent(String(id), slot, sent)
        else if (what === 'first') book.firstToken(String(id), nowMs)
        else book.ended(String(id), nowMs, tokens, cachedShare)
      }
      for (let id = 0; id <= 40; id++) book.ended(String(id), nowMs)
      assert.equal(book.requests, 0)
      const left = book.project([0, 1, 2], nowMs)
      for (let i = 0; i < 3; i++) {
        const { backlogMs, queuedTokens, requests, decoding, contextTokens } = figuresOf(left, i)
        assert.deepEqual(
          [backlogMs, queuedTokens, requests, decoding, contextTokens],
          [0, 0, 0, 0, 0],
          `${i}`,
        )
      }
    }),
    { seed: SEED, numRuns: 300 },
  )
})

t.test('what a step costs is learned in steps of the engine, not of another size', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const step = 1024
  const p = [40, 0.01, 0] as const
  const random = seededRandom(SEED)
  let nowMs = 0
  for (let i = 0; i < 200; i++) {
    const promptTokens = 100 + random.below(16_000)
    book.sent(`${i}`, 0, { promptTokens, newTokens: promptTokens, nowMs }, step)
    nowMs += prefillCost(p, promptTokens, promptTokens, step, 0)
    book.firstToken(`${i}`, nowMs)
    book.ended(`${i}`, nowMs, 1)
    nowMs += 10
  }
  const { prefillStepMs, prefillTokenMs, prefillPairMs } = figuresOf(book.project([0], nowMs), 0)
  for (const tokens of [1000, 4000, 8000]) {
    const learned = prefillCost([prefillStepMs, prefillTokenMs, prefillPairMs], tokens, tokens, step, 0)
    const ratio = learned / prefillCost(p, tokens, tokens, step, 0)
    t.ok(Math.abs(ratio - 1) < 0.1, `${tokens} tokens: ${ratio}`)
  }
})

t.test(
  'prompts that wait at workers which may not take the request do not make its own look busy',
  async t => {
    const book = new EngineBook({ workerSlotsMax: 8 })
    const request = { promptTokens: 1000, newTokens: 1000, nowMs: 0 }
    for (const slot of [1, 2, 3]) book.sent(`other ${slot}`, slot, request)
    for (let i = 0; i < 200; i++) {
      book.project([0, 4], 0)
      book.sent(`${i}`, 0, request)
      book.ended(`${i}`, 0)
    }
    t.equal(book.project([0, 4], 0).busyShare, 0)
    for (let i = 0; i < 5000; i++) {
      book.project([0, 1, 2, 3], 0)
      book.sent(`${i}`, 0, request)
      book.ended(`${i}`, 0)
    }
    const { busyShare } = book.project([0, 1, 2, 3], 0)
    t.ok(Math.abs(busyShare - 0.75) < 0.01, `${busyShare}`)
  },
)

t.test('what a request waited in the router counts as waiting for its first token', async t => {
  const shareAfter = (waitedMs: number): number => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    for (let i = 0; i < 50; i++) {
      const nowMs = 10_000 * i
      book.sent(String(i), 0, { promptTokens: 1000, newTokens: 1000, waitedMs, nowMs })
      book.firstToken(String(i), nowMs + 100)
      book.ended(String(i), nowMs + 2100, 100)
    }
    return book.project(Int32Array.of(0), 500_000).waitingShare
  }
  t.ok(shareAfter(0) < 0.1, String(shareAfter(0)))
  t.ok(shareAfter(1000) > 0.4, String(shareAfter(1000)))
})

t.test('requests that are resumed, or told late, count and teach nothing', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  let nowMs = serve(book, FAST, 100, 0)
  const before = book.learned(0)
  const request = { promptTokens: 4000, newTokens: 4000 }
  for (let i = 0; i < 50; i++) {
    // Its answer had 500 tokens when it was resumed, and has one more now.
    book.resumed('decoding', 0, { ...request, nowMs, hasFirstToken: true }, STEP)
    book.resumed('queued', 0, { ...request, nowMs, hasFirstToken: false }, STEP)
    book.sent('told late', 0, { ...request, nowMs }, STEP)
    const { requests, decoding, queuedTokens } = figuresOf(book.project([0], nowMs), 0)
    t.strictSame([requests, decoding, queuedTokens], [3, 1, 8000])
    book.late('told late')
    for (const id of ['queued', 'told late']) book.firstToken(id, nowMs + 1)
    nowMs += 5
    for (const id of ['decoding', 'queued', 'told late']) book.ended(id, nowMs, 500, 0)
    nowMs += 100
  }
  t.strictSame(book.learned(0), before)
  const { backlogMs, requests, decoding, contextTokens, queuedTokens } = figuresOf(
    book.project([0], nowMs),
    0,
  )
  t.strictSame([backlogMs, requests, decoding, contextTokens, queuedTokens], [0, 0, 0, 0, 0])
})

t.test('one that is resumed while others wait does not spoil what they teach of decoding', async t => {
  const learned = [false, true].map(isDisturbed => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    let nowMs = 0
    for (let i = 0; i < 100; i++) {
      book.sent(`${i}`, 0, { promptTokens: 1000, newTokens: 1000, nowMs }, STEP)
      nowMs += 24
      book.firstToken(`${i}`, nowMs)
      if (isDisturbed)
        book.resumed(
          `r${i}`,
          0,
          { promptTokens: 30_000, newTokens: 30_000, nowMs, hasFirstToken: true },
          STEP,
        )
      nowMs += 10 * 99
      book.ended(`${i}`, nowMs, 100)
      book.ended(`r${i}`, nowMs, 5000)
    }
    return expectedStepMs(book, nowMs)
  })
  t.ok(Math.abs(learned[1]! / learned[0]! - 1) < 0.2, `${learned}`)
})

/** Slots 0 … 3, each with an engine of its own, served in turns. */
function fleetServes(
  book: EngineBook,
  engines: readonly Engine[],
  rounds: number,
  outputs: readonly number[],
  turns: readonly number[] = engines.map((_, slot) => slot),
): number {
  const random = seededRandom(SEED)
  let nowMs = 0
  for (let round = 0; round < rounds; round++) {
    for (const [turn, slot] of turns.entries()) {
      const engine = engines[slot]!
      const id = `${round} ${turn}`
      const promptTokens = 100 + random.below(30_000)
      book.sent(id, slot, { promptTokens, newTokens: promptTokens, nowMs }, STEP)
      nowMs += prefillCost(engine.p, promptTokens, promptTokens, STEP, 0)
      book.firstToken(id, nowMs)
      nowMs += engine.gapMs * 100
      book.ended(id, nowMs, outputs[slot])
    }
  }
  return nowMs
}

t.test('an answer that is no first token ends the prefill and teaches nothing', async t => {
  const book = new EngineBook({ workerSlotsMax: 2 })
  let nowMs = serve(book, FAST, 100, 0)
  const before = [expectedPrefillMs(book, nowMs), book.project([0], nowMs).waitingShare]
  const { observations } = book.learned(0).prefill
  for (let i = 0; i < 1000; i++) {
    book.sent(`refused ${i}`, 0, { promptTokens: 20_000, newTokens: 20_000, nowMs }, STEP)
    nowMs += 2
    book.prefillEnded(`refused ${i}`, nowMs)
    book.ended(`refused ${i}`, nowMs + 1)
  }
  t.equal(figureOf(book.project([0], nowMs), 0, 'queuedTokens'), 0, 'nothing waits there')
  t.equal(book.learned(0).prefill.observations, observations)
  t.strictSame([expectedPrefillMs(book, nowMs), book.project([0], nowMs).waitingShare], before)
})

t.test(
  'what one of four workers says of the length of its answers moves what is expected by 0.75',
  async t => {
    const honest = [FAST, FAST, FAST, FAST]
    for (const lie of [4_294_967_296, 1, 30_000]) {
      const book = new EngineBook({ workerSlotsMax: 4 })
      const nowMs = fleetServes(book, honest, 100, [100, 110, 90, lie])
      const { outputTokensExpected } = book.project([0, 1, 2, 3], nowMs)
      t.ok(outputTokensExpected > 70 && outputTokensExpected < 185, `${lie}: ${outputTokensExpected}`)
    }
  },
)

t.test('one answer, however long, moves what is expected of a single worker by a sixtieth of it', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, FAST, 600, 0)
  const before = book.project([0], nowMs).outputTokensExpected
  book.sent('liar', 0, { promptTokens: 100, newTokens: 100, nowMs }, STEP)
  book.firstToken('liar', nowMs + 5)
  book.ended('liar', nowMs + 300_000, 4_294_967_296)
  for (let i = 0; i < 8; i++) {
    book.sent(`mean ${i}`, 0, { promptTokens: 100, newTokens: 100, nowMs }, STEP)
    book.ended(`mean ${i}`, nowMs + 300_000, before)
  }
  const after = book.project([0], nowMs).outputTokensExpected
  t.ok(after > before && after / before < 1 + 1 / 60, `${before} → ${after}`)
})

t.test('a worker whose times lie leaves those of the others as they are, within a quarter', async t => {
  const lies: readonly Engine[] = [
    { p: [1e-3, 1e-6, 0], gapMs: 1e-3 },
    { p: [5000, 10, 1e-3], gapMs: 2000 },
  ]
  for (const lie of lies) {
    const book = new EngineBook({ workerSlotsMax: 5 })
    const most = [0, 1, 2, ...Array<number>(20).fill(3)]
    const nowMs = fleetServes(book, [FAST, FAST, FAST, lie], 100, [100, 100, 100, 100], most)
    const expected = prefillCost(FAST.p, 8000, 12_000, STEP, 0)
    for (const slot of [0, 1, 2]) {
      const ratio = expectedPrefillMs(book, nowMs, slot) / expected
      t.ok(ratio > 0.75 && ratio < 1.25, `prefill of ${slot} beside ${lie.gapMs}: ${ratio}`)
      const step = expectedStepMs(book, nowMs, slot) / FAST.gapMs
      t.ok(step > 0.75 && step < 1.25, `decoding of ${slot} beside ${lie.gapMs}: ${step}`)
    }
    const ratio = expectedPrefillMs(book, nowMs, 4) / expected
    t.ok(ratio > 0.5 && ratio < 2, `prefill of one that never answered beside ${lie.gapMs}: ${ratio}`)
  }
})

t.test('an engine that runs as another process is as fast as the fleet until it answers', async t => {
  const book = new EngineBook({ workerSlotsMax: 4 })
  const nowMs = fleetServes(book, [FAST, FAST, FAST, SLOW], 60, [100, 100, 100, 100])
  t.ok(expectedPrefillMs(book, nowMs, 3) > 5 * expectedPrefillMs(book, nowMs, 0), 'it is known to be slow')
  book.sent('open', 3, { promptTokens: 500, newTokens: 500, nowMs }, STEP)
  book.restarted(3)
  t.equal(expectedPrefillMs(book, nowMs, 3), expectedPrefillMs(book, nowMs, 0))
  t.equal(book.learned(3).prefill.observations, 0)
  t.equal(figureOf(book.project([3], nowMs), 0, 'requests'), 1, 'open requests stay until they are settled')
  book.ended('open', nowMs + 5)
  t.equal(figureOf(book.project([3], nowMs), 0, 'requests'), 0)
})

t.test('a mean that begins with nothing is learned soon', async t => {
  for (const first of [0, 1]) {
    const mean = new BoundedMean(200)
    for (let i = 0; i < 32; i++) mean.add(first)
    for (let i = 0; i < 100; i++) mean.add(200)
    t.ok(mean.mean > 100, `${first}: ${mean.mean}`)
  }
})

t.test('hand-overs teach what a transfer takes, and those that wait behind others do not', async t => {
  const book = new EngineBook({ workerSlotsMax: 4 })
  const random = seededRandom(SEED)
  let nowMs = 0
  const handOver = (id: string, promptTokens: number) =>
    book.sent(id, 0, { promptTokens, newTokens: 0, isUnknown: true, handedTokens: promptTokens, nowMs })
  const before = book.project([0], nowMs)
  t.ok(before.transferMs > 0 && before.transferTokenMs > 0, 'there is a prior')
  for (let i = 0; i < 100; i++) {
    const promptTokens = 100 + random.below(20_000)
    handOver(`${i}`, promptTokens)
    // A decode step is 10 ms by its prior.
    nowMs += 10 + 3 + 0.05 * promptTokens
    book.firstToken(`${i}`, nowMs)
    book.ended(`${i}`, nowMs, 1)
    nowMs += 1000
  }
  const ofTokens = (tokens: number): number => {
    const { transferMs, transferTokenMs } = book.project([0], nowMs)
    return transferMs + transferTokenMs * tokens
  }
  t.ok(Math.abs(ofTokens(10_000) / 503 - 1) < 0.05, `${ofTokens(10_000)} ms`)
  const learned = ofTokens(10_000)
  for (let i = 0; i < 50; i++) {
    handOver(`before ${i}`, 10)
    handOver(`behind ${i}`, 10_000)
    nowMs += 4
    book.firstToken(`before ${i}`, nowMs)
    nowMs += 60_000
    book.firstToken(`behind ${i}`, nowMs)
    for (const id of [`before ${i}`, `behind ${i}`]) book.ended(id, nowMs, 1)
  }
  t.ok(ofTokens(10_000) < 1.1 * learned, `${ofTokens(10_000)} ms after some that waited for a minute`)
})

t.test('reads out of a pool teach the same, less the prefill of what is new, and no prefill', async t => {
  const book = new EngineBook({ workerSlotsMax: 4 })
  const random = seededRandom(SEED)
  let nowMs = 0
  const prefill = book.learned(0).prefill
  for (let i = 0; i < 100; i++) {
    const handedTokens = 100 + random.below(20_000)
    const promptTokens = handedTokens + 16
    book.sent(`${i}`, 0, { promptTokens, newTokens: 16, isUnknown: true, handedTokens, nowMs })
    // A prefill of few tokens takes a step of 10 ms by its prior.
    nowMs += 10 + 3 + 0.05 * handedTokens
    book.firstToken(`${i}`, nowMs)
    book.ended(`${i}`, nowMs, 1, handedTokens / promptTokens)
    nowMs += 1000
  }
  const { transferMs, transferTokenMs } = book.project([0], nowMs)
  const learned = transferMs + transferTokenMs * 10_000
  t.ok(Math.abs(learned / 503 - 1) < 0.05, `${learned} ms`)
  t.strictSame(book.learned(0).prefill, prefill)
})
