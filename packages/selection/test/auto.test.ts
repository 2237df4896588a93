/** The policy auto: its terms against its definition, on loads that an EngineBook has come to. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import {
  AUTO_CONSTANTS,
  EngineBook,
  type EngineProjection,
  figuresOf,
  STEP_TOKENS_DEFAULT,
} from '@homing/load'
import fc from 'fast-check'
import t from 'tap'
import {
  type Candidates,
  type Choice,
  POLICIES,
  POLICY_TERMS_MAX,
  Selector,
  selectionSettings,
  withoutTerm,
} from '../src/index.ts'

const SEED = 20_261_123
const WORKERS = 5
const SLOTS = Int32Array.from({ length: WORKERS }, (_, i) => i)
const BLOCK = 16
/** Of a prompt of 1,000 tokens. */
const NOBODY_ELSE = [62, 62, 62, 62, 62]

/** `newBlocks`: of the prompt, those that no running request of worker i holds. */
function candidates(
  engines: EngineProjection,
  overlapBlocks: readonly number[],
  newBlocks: readonly number[],
  activeBlocks: readonly number[] = [0, 0, 0, 0, 0],
): Candidates {
  return {
    count: WORKERS,
    workerSlots: SLOTS,
    overlapBlocks: Int32Array.from(overlapBlocks),
    creditFactors: new Float64Array(WORKERS).fill(1),
    activeBlocks: Int32Array.from(activeBlocks),
    newBlocks: Int32Array.from(newBlocks),
    activePrefillTokens: new Int32Array(WORKERS),
    activeRequests: Float64Array.from(SLOTS, i => figuresOf(engines, i).requests),
    engines,
    kvCapacityTokens: [400_000, 0, 20_000, 400_000, 1],
    stepTokens: [STEP_TOKENS_DEFAULT, STEP_TOKENS_DEFAULT, 2048, 512, STEP_TOKENS_DEFAULT],
  }
}

function termOf({ policy, terms }: Choice, name: string, i: number): number {
  return terms.ofPolicy[i * POLICY_TERMS_MAX + policy.terms.findIndex(term => term.name === name)]!
}

/**
 * The definition from the decision record, one worker at a time and with sums of its own, not those of
 * auto-terms.ts.
 */
function naiveCost(engines: EngineProjection, input: Candidates, promptTokens: number, i: number): number {
  const { cost: constants } = AUTO_CONSTANTS
  const { prefillStepMs, prefillTokenMs, prefillPairMs, ...figures } = figuresOf(engines, i)
  const { decodeStepMs, decodeRequestMs, decodeTokenMs } = figures
  const { busyShare, outputTokensExpected: output } = engines
  const step = input.stepTokens![i]!
  const capacity = input.kvCapacityTokens![i]!
  const { requests, decoding, contextTokens, queuedTokens } = figures
  const promptBlocks = Math.floor(promptTokens / BLOCK)
  const uncachedAt = (worker: number): number =>
    Math.max(
      1,
      promptTokens -
        BLOCK * Math.min(input.overlapBlocks[worker]!, promptBlocks) * input.creditFactors[worker]!,
    )
  const pricedMsMax =
    engines.prefillMeanMs > 0 ? constants.PRICED_PREFILLS_MAX * engines.prefillMeanMs : Infinity
  // What a running request there has in its prompt will be cached, too, as far as the worker is trusted.
  const sought = input.soughtBlocks ?? promptBlocks
  const activeTokens = BLOCK * (sought - input.newBlocks[i]!)
  const uncached = uncachedAt(i)
  const remaining = Math.max(1, promptTokens - activeTokens * input.creditFactors[i]!)
  const isSoonCached = remaining < uncached && prefillTokenMs * (uncached - remaining) <= pricedMsMax
  const tokens = isSoonCached ? remaining : uncached
  const cachedTokensMax = promptTokens - Math.min(...Array.from(SLOTS, uncachedAt))
  const activeTokensMax = BLOCK * (sought - Math.min(...Array.from(input.newBlocks)))
  const isUnshared = Math.max(0, activeTokensMax) <= cachedTokensMax - BLOCK
  const steps = Math.ceil(tokens / step)
  const charged = tokens + Math.max(0, engines.kneeTokens - (tokens - (steps - 1) * step))
  const attentionMs = prefillPairMs * tokens * (promptTokens - tokens / 2)
  const prefillMs = prefillStepMs * steps + prefillTokenMs * charged + attentionMs
  const stepMs = decodeStepMs + decodeRequestMs * decoding + decodeTokenMs * contextTokens
  const delayMs =
    decoding > 0 ? stepMs / 2 + (stepMs - decodeStepMs) * Math.ceil((tokens + queuedTokens) / step) : 0
  const stepTimes = Array.from(SLOTS, slot => figuresOf(engines, slot).decodeStepMs)
  const mean = stepTimes.reduce((a, b) => a + b) / WORKERS
  const deviation = Math.sqrt(stepTimes.reduce((sum, ms) => sum + (ms - mean) ** 2, 0) / WORKERS)
  const spread = mean > 0 ? deviation / mean : 0
  const decodePrice = Math.max(
    Math.min(constants.UNLIKE_PRICE_MAX, constants.UNLIKE_WEIGHT * (spread - constants.CHANCE_SPREAD)),
    (isUnshared ? constants.UNSHARED_SHARE : 1) *
      Math.max(engines.waitingShare, (1 - busyShare) ** constants.IDLE_EXPONENT),
  )
  const ownMs =
    output *
    (decodeStepMs +
      decodeRequestMs * (requests + 1) +
      decodeTokenMs * (contextTokens + queuedTokens + promptTokens + output / 2))
  const heldUpMs = Math.max(0, prefillMs - decodeStepMs * steps)
  const freeSteps = isUnshared ? constants.FREE_STEPS_UNSHARED : constants.FREE_STEPS_SHARED
  const holdUpPrice = constants.HOLD_UP_PRICE * (1 - busyShare) ** constants.HOLD_UP_EXPONENT
  const othersMs =
    (heldUpMs + holdUpPrice * Math.max(0, heldUpMs - freeSteps * stepMs)) * requests +
    ((decodeRequestMs + decodeTokenMs * (promptTokens + output / 2)) * requests * output) / 2
  const laterMs = (Math.min(prefillMs, pricedMsMax) * busyShare) / (1 - busyShare)
  const held = input.heldBlocksOf?.(i) ?? -1
  const isEmptied = held >= 0 && BLOCK * held < constants.EMPTIED_SHARE * capacity
  const isFull =
    figures.receivedTokens + tokens > (capacity > 0 ? capacity : constants.CAPACITY_TOKENS_ASSUMED)
  const againMs = Math.min(prefillTokenMs * tokens + attentionMs, pricedMsMax)
  const evictMs =
    isFull && !isEmptied ? againMs * (1 - busyShare) ** constants.EVICT_EXPONENT * figures.churn : 0
  const sent = BLOCK * (input.outputBlocks?.[i] ?? 0)
  const active = BLOCK * input.activeBlocks[i]! - Math.min(sent, output * requests)
  const missing = active + BLOCK * input.newBlocks[i]! + output * (requests + 1) - capacity
  let freeInMs = figures.backlogMs
  if (capacity > 0 && requests > 0 && missing > 0) {
    const each = active / requests + output
    const running = Math.max(1, Math.min(requests, capacity / each))
    const ends = missing / each + constants.FIRST_END_REQUESTS
    freeInMs = Math.max(freeInMs, (output * stepMs * ends) / (running + 1))
  }
  const doubt = input.activeRequests[i]! > 0 ? 1 : Math.min(1, figures.churn / constants.CHURN_MAX)
  const unsureMs = (constants.UNSURE_MS * (1 + doubt) * tokens) / promptTokens
  return freeInMs + delayMs + prefillMs + laterMs + evictMs + decodePrice * (ownMs + othersMs) + unsureMs
}

const step = fc.record({
  do: fc.constantFrom('sent', 'sent', 'first', 'ended', 'forget'),
  id: fc.integer({ min: 0, max: 30 }),
  slot: fc.nat(WORKERS - 1),
  prompt: fc.oneof(fc.integer({ min: 0, max: 5000 }), fc.constantFrom(Number.NaN, -1, 10_000_000)),
  isStream: fc.boolean(),
  afterMs: fc.oneof(fc.integer({ min: 0, max: 2000 }), fc.constantFrom(-5000, 1e9, Number.NaN)),
  output: fc.option(fc.oneof(fc.integer({ min: 0, max: 3000 }), fc.constantFrom(Number.NaN, -3)), {
    nil: undefined,
  }),
  cachedShare: fc.constantFrom(undefined, 0, 0.5, 1, Number.NaN, -1, 7, Infinity),
})

t.test(
  'the cost is the sum that auto is defined by, and every term is finite, whatever was told',
  async () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 120 }),
        fc.integer({ min: 1, max: 100_000 }),
        fc.array(fc.nat(4000), { minLength: WORKERS, maxLength: WORKERS }),
        fc.array(fc.nat(4000), { minLength: WORKERS, maxLength: WORKERS }),
        fc.array(fc.nat(30_000), { minLength: WORKERS, maxLength: WORKERS }),
        fc.option(fc.array(fc.nat(100), { minLength: WORKERS, maxLength: WORKERS }), { nil: undefined }),
        (steps, promptTokens, overlaps, inUse, active, outputs) => {
          const book = new EngineBook({ workerSlotsMax: WORKERS })
          let nowMs = 0
          for (const { do: what, id, slot, prompt, isStream, afterMs, output, cachedShare } of steps) {
            nowMs += afterMs
            if (what === 'sent')
              book.sent(String(id), slot, { promptTokens: prompt, newTokens: prompt, isStream, nowMs })
            else if (what === 'first') book.firstToken(String(id), nowMs)
            else if (what === 'ended') book.ended(String(id), nowMs, output, cachedShare)
            else book.forget(slot)
            book.project(SLOTS, nowMs)
            if (Number.isNaN(nowMs)) nowMs = 0
          }
          const engines = book.project(SLOTS, nowMs)
          const promptBlocks = Math.floor(promptTokens / BLOCK)
          const newBlocks = inUse.map(blocks => Math.max(0, promptBlocks - blocks))
          const isSought = active[0]! % 4 > 0
          const input: Candidates = {
            ...candidates(engines, overlaps, isSought ? newBlocks : [0, 0, 0, 0, 0], active),
            creditFactors: active.map(blocks => (blocks % 5) / 4),
            heldBlocksOf: i => (active[i]! % 3 === 0 ? -1 : active[i]!),
            soughtBlocks: isSought ? promptBlocks : 0,
            outputBlocks: outputs?.map((blocks, i) => Math.min(blocks, active[i]!)),
          }
          const choice = new Selector().choose(
            input,
            { promptTokens, blockSizeTokens: BLOCK },
            selectionSettings({ policy: 'auto' }),
            seededRandom(SEED),
          )
          for (let i = 0; i < WORKERS; i++) {
            const cost = choice.terms.cost[i]!
            const expected = naiveCost(engines, input, promptTokens, i)
            assert(Math.abs(cost - expected) <= 1e-9 * Math.max(1, expected), `${cost} is ${expected}`)
            for (let term = 0; term < choice.policy.terms.length; term++) {
              const ms = choice.terms.ofPolicy[i * POLICY_TERMS_MAX + term]!
              assert(ms >= 0 && ms < Infinity, `a term is ${ms}`)
            }
          }
        },
      ),
      { seed: SEED, numRuns: 300 },
    )
  },
)

t.test('an idle fleet that knows nothing yet sends a prompt to the worker that holds most of it', async t => {
  const engines = new EngineBook({ workerSlotsMax: WORKERS }).project(SLOTS, 0)
  const input = {
    ...candidates(engines, [0, 10, 60, 20, 0], NOBODY_ELSE),
    stepTokens: undefined,
    kvCapacityTokens: undefined,
  }
  const choice = new Selector().choose(
    input,
    { promptTokens: 1000, blockSizeTokens: BLOCK },
    selectionSettings({ policy: 'auto' }),
    seededRandom(SEED),
  )
  t.equal(choice.winner, 2)
})

t.test(
  'a short prompt joins those that decode: their steps have room for it, and take no longer',
  async t => {
    const book = new EngineBook({ workerSlotsMax: WORKERS })
    // Steps of 6.5 ms whatever is in them, as long as that is less than some hundred tokens.
    let nowMs = 0
    for (let i = 0; i < 60; i++) {
      book.sent(`${i}`, i % WORKERS, { promptTokens: 40 + i, newTokens: 40 + i, nowMs })
      book.firstToken(`${i}`, nowMs + 6.5)
      book.ended(`${i}`, nowMs + 6.5 * 20, 20)
      nowMs += 200
    }
    for (let i = 0; i < 3; i++) {
      book.sent(`decodes ${i}`, 2, { promptTokens: 100, newTokens: 100, nowMs })
      book.firstToken(`decodes ${i}`, nowMs + 6.5)
    }
    const engines = book.project(SLOTS, nowMs + 20)
    const choice = new Selector().choose(
      {
        ...candidates(engines, [0, 0, 60, 0, 0], NOBODY_ELSE),
        kvCapacityTokens: undefined,
        stepTokens: undefined,
      },
      { promptTokens: 1000, blockSizeTokens: BLOCK },
      selectionSettings({ policy: 'auto' }),
      seededRandom(SEED),
    )
    t.equal(choice.winner, 2)
    const heldUp = termOf(choice, 'others_ms', 2)
    t.ok(heldUp < 6.5, `40 tokens cost three others ${heldUp} ms, which is less than a step`)
  },
)

t.test('in an idle fleet a short prompt joins those that decode, and a long one goes elsewhere', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  let nowMs = 0
  // Steps of 10 ms, as long as 200 tokens take.
  for (let i = 0; i < 100; i++) {
    const promptTokens = 200 + 37 * i
    book.sent(`${i}`, i % WORKERS, { promptTokens, newTokens: promptTokens, nowMs })
    nowMs += promptTokens / 20
    book.firstToken(`${i}`, nowMs)
    book.ended(`${i}`, nowMs + 10 * 99, 100)
    nowMs += 2000
  }
  book.sent('decodes', 2, { promptTokens: 1000, newTokens: 1000, nowMs })
  book.firstToken('decodes', nowMs + 60)
  const engines = book.project(SLOTS, nowMs + 70)
  const winnerOf = (promptTokens: number, cachedTokens: number): number => {
    const inUse = Math.floor(promptTokens / BLOCK)
    const input = candidates(
      engines,
      [0, 0, cachedTokens / BLOCK, 0, 0],
      [inUse, inUse, inUse - cachedTokens / BLOCK, inUse, inUse],
    )
    return new Selector().choose(
      { ...input, kvCapacityTokens: undefined, stepTokens: undefined },
      { promptTokens, blockSizeTokens: BLOCK },
      selectionSettings({ policy: 'auto' }),
      seededRandom(SEED),
    ).winner
  }
  t.equal(winnerOf(1072, 992), 2, '80 new tokens hold up one other for less than half a step')
  t.not(winnerOf(2080, 992), 2, '1,088 for five')
})

t.test('where workers are not alike, decoding counts however busy they are', async t => {
  const weightAt = (times: number): number => {
    const book = new EngineBook({ workerSlotsMax: WORKERS })
    let nowMs = 0
    for (let i = 0; i < 60 * WORKERS; i++) {
      const slot = i % WORKERS
      const slower = slot === 0 ? times : 1
      book.sent(`${i}`, slot, { promptTokens: 2000, newTokens: 2000, nowMs })
      nowMs += 100 * slower
      book.firstToken(`${i}`, nowMs)
      nowMs += 10 * slower * 99
      book.ended(`${i}`, nowMs, 100, 0)
    }
    // Every worker has a prompt in its queue: the price of decoding is what is left of it.
    const engines = {
      ...book.project(SLOTS, nowMs),
      busyShare: AUTO_CONSTANTS.book.BUSY_SHARE_MAX,
      waitingShare: 0,
    }
    const { decodeStepMs, decodeRequestMs, decodeTokenMs } = figuresOf(engines, 4)
    const choice = new Selector().choose(
      candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE),
      { promptTokens: 1000, blockSizeTokens: BLOCK },
      selectionSettings({ policy: 'auto' }),
      seededRandom(SEED),
    )
    const output = engines.outputTokensExpected
    return (
      termOf(choice, 'decode_ms', 4) /
      (output * (decodeStepMs + decodeRequestMs + decodeTokenMs * (1000 + output / 2)))
    )
  }
  t.ok(weightAt(1) < 1e-9, 'all alike')
  for (const [times, expected] of [
    [1.25, 0],
    [1.5, 0.018],
    [4, AUTO_CONSTANTS.cost.UNLIKE_PRICE_MAX],
  ] as const) {
    const weight = weightAt(times)
    t.ok(Math.abs(weight - expected) < 0.007, `${times} times as long: ${weight}`)
  }
})

t.test('a conversation stays with its blocks where a prompt that others share would move', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  const sent = { promptTokens: 4000, newTokens: 4000, nowMs: 0 }
  for (let i = 0; i < 8; i++) {
    book.sent(`${i}`, 2, sent)
    book.firstToken(`${i}`, 200)
  }
  const engines = book.project(SLOTS, 1000)
  const winnerWith = (newBlocks: readonly number[]): number =>
    new Selector().choose(
      {
        ...candidates(engines, [0, 0, 250, 0, 0], newBlocks),
        kvCapacityTokens: undefined,
        stepTokens: undefined,
      },
      { promptTokens: 4000, blockSizeTokens: BLOCK },
      selectionSettings({ policy: 'auto' }),
      seededRandom(SEED),
    ).winner
  t.equal(winnerWith([250, 250, 250, 250, 250]), 2, 'nobody else uses them')
  t.equal(winnerWith([250, 250, 100, 250, 250]), 2, 'others use the beginning')
  t.not(winnerWith([250, 250, 0, 250, 250]), 2, 'others use all of them')
})

/** Who takes a prompt of 1,000 tokens. */
function winnerOf(input: Candidates, more: Parameters<typeof selectionSettings>[0] = {}): number {
  const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
  const settings = selectionSettings({ policy: 'auto', ...more })
  return new Selector().choose(input, request, settings, seededRandom(SEED)).winner
}

t.test('what nobody has goes where the least was new of late, though all are idle', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  for (let i = 0; i < 40; i++) {
    // Least on worker 4.
    const promptTokens = 1000 + 100 * ((i + 1) % WORKERS)
    book.sent(`${i}`, i % WORKERS, { promptTokens, newTokens: promptTokens, nowMs: 100 * i })
    book.firstToken(`${i}`, 100 * i + 20)
    book.ended(`${i}`, 100 * i + 50, 4)
  }
  const engines = book.project(SLOTS, 10_000)
  const churn = Array.from(SLOTS, i => figuresOf(engines, i).churn)
  const least = churn.indexOf(Math.min(...churn))
  t.equal(least, 4)
  const input = candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE)
  t.equal(winnerOf({ ...input, kvCapacityTokens: undefined, stepTokens: undefined }), least)
})

t.test('a prompt waits for its sibling that is being computed, unless it is a very long one', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  // Prompts take some ten milliseconds each.
  let nowMs = 0
  for (let i = 0; i < 100; i++) {
    const promptTokens = 500 + 10 * (i % 40)
    book.sent(`${i}`, i % WORKERS, { promptTokens, newTokens: promptTokens, nowMs })
    nowMs += promptTokens / 40
    book.firstToken(`${i}`, nowMs)
    book.ended(`${i}`, nowMs + 60, 10)
    nowMs += 500
  }
  book.sent('sibling', 2, { promptTokens: 1000, newTokens: 1000, nowMs })
  const engines = book.project(SLOTS, nowMs + 20)
  const siblings = [62, 62, 0, 62, 62]
  t.equal(winnerOf(candidates(engines, [0, 0, 0, 0, 0], siblings)), 2)
  t.not(winnerOf(candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE)), 2, 'a stranger does not')
  t.not(
    winnerOf(candidates(engines, [0, 0, 0, 0, 0], siblings), { overlapCredit: 0 }),
    2,
    'nor one that credits nothing',
  )
  const input = {
    ...candidates(engines, [0, 0, 0, 0, 0], [3125, 3125, 0, 3125, 3125]),
    stepTokens: undefined,
  }
  const choice = new Selector().choose(
    input,
    { promptTokens: 50_000, blockSizeTokens: BLOCK },
    selectionSettings({ policy: 'auto' }),
    seededRandom(SEED),
  )
  const prefillAt = (i: number): number => termOf(choice, 'prefill_ms', i)
  t.equal(prefillAt(2), prefillAt(3), 'what 50,000 tokens save is worth a second copy')
})

t.test('where active blocks do not count nothing is about to be cached', async t => {
  const engines = new EngineBook({ workerSlotsMax: WORKERS }).project(SLOTS, 0)
  const input = {
    ...candidates(engines, [0, 60, 0, 0, 0], [0, 0, 0, 0, 0]),
    soughtBlocks: 0,
    kvCapacityTokens: undefined,
  }
  t.equal(winnerOf(input), 1)
})

t.test('with the weight of overlap at 0 nothing is about to be cached either', async t => {
  const engines = new EngineBook({ workerSlotsMax: WORKERS }).project(SLOTS, 0)
  const input = candidates(engines, [0, 0, 0, 0, 0], [62, 0, 62, 62, 62])
  const prefillsWith = (overlapWeight: number): readonly number[] => {
    const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
    const settings = selectionSettings({ policy: 'auto', overlapWeight })
    const choice = new Selector().choose(input, request, settings, seededRandom(SEED))
    return [termOf(choice, 'prefill_ms', 0), termOf(choice, 'prefill_ms', 1)]
  }
  const [alone, sibling] = prefillsWith(1)
  t.ok(sibling! < alone!, `${sibling} ms beside a sibling, ${alone} elsewhere`)
  t.strictSame(prefillsWith(0), [alone, alone])
})

t.test('nothing is pushed out of a cache that is not half full, as its events say', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  for (let i = 0; i < WORKERS; i++) {
    book.sent(`${i}`, i, { promptTokens: 30_000, newTokens: 30_000, nowMs: 0 })
    book.firstToken(`${i}`, 1000)
    book.ended(`${i}`, 2000, 10, 0)
  }
  const engines = book.project(SLOTS, 3000)
  const evictsWith = (heldBlocks: readonly number[] | undefined): readonly boolean[] => {
    const kvCapacityTokens = [20_000, 20_000, 20_000, 0, 400_000]
    const heldBlocksOf = heldBlocks === undefined ? undefined : (i: number) => heldBlocks[i]!
    const input = { ...candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE), kvCapacityTokens, heldBlocksOf }
    const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
    const settings = selectionSettings({ policy: 'auto' })
    const choice = new Selector().choose(input, request, settings, seededRandom(SEED))
    return Array.from(SLOTS, i => termOf(choice, 'evict_ms', i) > 0)
  }
  t.strictSame(evictsWith(undefined), [true, true, true, false, false], 'as much was sent as they hold')
  t.strictSame(evictsWith([0, 1000, -1, 1000, 1000]), [false, true, true, false, false])
  t.strictSame(evictsWith([624, 625, 626, 0, 0]), [false, true, true, false, false], 'half of 1,250 blocks')
})

t.test('a worker whose KV cache has no room costs the wait until one there has ended', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  for (const id of ['a', 'b']) {
    book.sent(id, 0, { promptTokens: 9000, newTokens: 9000, nowMs: 0 })
    book.firstToken(id, 300)
  }
  const engines = book.project(SLOTS, 400)
  const waitWith = (kvCapacityTokens: number): number => {
    const input = {
      ...candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE, [1126, 0, 0, 0, 0]),
      kvCapacityTokens: [kvCapacityTokens, 0, 0, 0, 0],
    }
    const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
    const settings = selectionSettings({ policy: 'auto' })
    const choice = new Selector().choose(input, request, settings, seededRandom(SEED))
    return termOf(choice, 'wait_ms', 0)
  }
  const room = waitWith(40_000)
  t.equal(waitWith(0), room, 'nobody knows what it holds')
  t.ok(waitWith(19_000) > room + 100, `${waitWith(19_000)} ms, with room ${room}`)
  t.ok(waitWith(10_000) > waitWith(19_000), 'both must end')
})

t.test('what answers have sent is not expected of them once more', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  for (const id of ['a', 'b']) {
    book.sent(id, 0, { promptTokens: 9000, newTokens: 9000, nowMs: 0 })
    book.firstToken(id, 300)
  }
  const engines = book.project(SLOTS, 400)
  const waitWith = (activeBlocks: number, outputBlocks: number | undefined): number => {
    const input = {
      ...candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE, [activeBlocks, 0, 0, 0, 0]),
      ...(outputBlocks === undefined ? {} : { outputBlocks: [outputBlocks, 0, 0, 0, 0] }),
      kvCapacityTokens: [19_000, 0, 0, 0, 0],
    }
    const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
    const settings = selectionSettings({ policy: 'auto' })
    const choice = new Selector().choose(input, request, settings, seededRandom(SEED))
    return termOf(choice, 'wait_ms', 0)
  }
  const untracked = waitWith(1126, undefined)
  t.equal(waitWith(1126, 0), untracked)
  t.equal(waitWith(1146, 20), untracked, '320 of the 400 tokens that are expected of two answers')
  t.ok(waitWith(1226, 100) > untracked, 'answers that are longer than expected take the room that they take')
})

t.test('without one of its terms, auto is the sum of the others', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  for (let i = 0; i < WORKERS; i++)
    book.sent(`${i}`, i, { promptTokens: 1000 * i, newTokens: 500 * i, nowMs: 0 })
  const input = candidates(book.project(SLOTS, 1), [0, 10, 60, 20, 0], NOBODY_ELSE)
  const request = { promptTokens: 1000, blockSizeTokens: BLOCK }
  const settings = selectionSettings({ policy: 'auto' })
  for (const [index, { name }] of POLICIES.auto.terms.entries()) {
    const policies = { ...POLICIES, auto: withoutTerm(POLICIES.auto, name) }
    const { terms, policy, rule } = new Selector(1, policies).choose(
      input,
      request,
      settings,
      seededRandom(SEED),
    )
    for (let i = 0; i < WORKERS; i++) {
      const others = policy.terms.map((_, t) => (t === index ? 0 : terms.ofPolicy[i * POLICY_TERMS_MAX + t]!))
      t.ok(Math.abs(terms.cost[i]! - others.reduce((a, b) => a + b)) < 1e-9 * terms.cost[i]!)
    }
    t.notMatch(policy.rules[rule]!.formula, name)
  }
  t.throws(
    () => withoutTerm(POLICIES.auto, 'luck'),
    new RangeError(
      `cannot leave luck out of auto: its terms are ${POLICIES.auto.terms.map(({ name }) => name).join(', ')}`,
    ),
  )
})

t.test('auto says what it lacks where nobody kept an engine book', async t => {
  const engines = new EngineBook({ workerSlotsMax: WORKERS }).project(SLOTS, 0)
  const input = { ...candidates(engines, [0, 0, 0, 0, 0], NOBODY_ELSE), engines: undefined }
  const choose = () =>
    new Selector().choose(
      input,
      { promptTokens: 1000, blockSizeTokens: BLOCK },
      selectionSettings({ policy: 'auto' }),
      seededRandom(SEED),
    )
  t.throws(choose, new RangeError('cannot score by policy auto without candidates.engines'))
})
