/**
 * The terms of auto: what the loop of the policy writes is what the named functions say, to the last bit,
 * whatever it is asked about. Receipts show what the loop has written, so they show these functions.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { seededRandom } from '@homing/base'
import {
  AUTO_CONSTANTS,
  EngineBook,
  type EngineProjection,
  FIGURE_OFFSET,
  FIGURES_PER_SLOT,
  figuresOf,
  prefillCost,
  STEP_TOKENS_DEFAULT,
} from '@homing/load'
import fc from 'fast-check'
import t from 'tap'
import {
  type Candidates,
  type Choice,
  costTerms,
  describeCost,
  POLICIES,
  predictedFirstTokenMs,
  Selector,
  selectionSettings,
} from '../src/index.ts'
import {
  AUTO_TERMS,
  type AutoPrompt,
  type AutoWorker,
  decodePrice,
  isUnshared,
  prefillMs,
} from '../src/policies/auto-terms.ts'

const SEED = 20_261_130
const NUM_RUNS = 400

/** What the policy is asked about. */
interface View {
  readonly candidates: Candidates & { readonly engines: EngineProjection }
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly overlapWeight: number
  readonly overlapCredit: number
  readonly creditDecay: number
}

// ── Views ────────────────────────────────────────────────────────────────────────────────────────

const count = fc.oneof(
  { weight: 2, arbitrary: fc.constant(1) },
  { weight: 5, arbitrary: fc.integer({ min: 2, max: 9 }) },
  { weight: 1, arbitrary: fc.integer({ min: 60, max: 130 }) },
)
const share = fc.oneof(fc.constantFrom(0, 0.5, 1), fc.double({ min: 0, max: 1, noNaN: true }))
const milliseconds = fc.oneof(fc.constant(0), fc.double({ min: 1e-9, max: 1e6, noNaN: true }))
const amount = fc.oneof(fc.constantFrom(0, 1, 2), fc.nat(100_000))
const few = fc.oneof(fc.constant(0), fc.nat(60))

/** Figures at random, as no engine book would come to them. */
function randomEngines(slots: number): fc.Arbitrary<EngineProjection> {
  const ofSlot = fc.record({
    backlogMs: milliseconds,
    queuedTokens: amount,
    requests: few,
    decoding: few,
    contextTokens: amount,
    churn: fc.oneof(fc.constantFrom(0, 1, 4), fc.double({ min: 0, max: 20, noNaN: true })),
    receivedTokens: fc.oneof(amount, fc.constantFrom(262_143, 262_144, 10_000_000)),
    prefillStepMs: milliseconds,
    prefillTokenMs: fc.double({ min: 0, max: 1, noNaN: true }),
    prefillPairMs: fc.double({ min: 0, max: 1e-4, noNaN: true }),
    decodeStepMs: milliseconds,
    decodeRequestMs: fc.double({ min: 0, max: 10, noNaN: true }),
    decodeTokenMs: fc.double({ min: 0, max: 1e-3, noNaN: true }),
  } satisfies Record<keyof typeof FIGURE_OFFSET, fc.Arbitrary<number>>)
  return fc
    .record({
      rows: fc.array(ofSlot, { minLength: slots, maxLength: slots }),
      areAlike: fc.boolean(),
      busyShare: fc.oneof(
        fc.constantFrom(0, AUTO_CONSTANTS.book.BUSY_SHARE_MAX),
        fc.double({ min: 0, max: AUTO_CONSTANTS.book.BUSY_SHARE_MAX, noNaN: true }),
      ),
      kneeTokens: fc.constantFrom(...AUTO_CONSTANTS.knee.KNEES),
      outputTokensExpected: fc.double({ min: 0, max: 4000, noNaN: true }),
      prefillMeanMs: milliseconds,
      speedSpread: fc.oneof(fc.constantFrom(0, 0.1), fc.double({ min: 0, max: 3, noNaN: true })),
      waitingShare: share,
      sentPerMs: share,
      transferMs: milliseconds,
      transferTokenMs: milliseconds,
    })
    .map(({ rows, areAlike, ...fleet }) => {
      const figures = new Float64Array(slots * FIGURES_PER_SLOT)
      for (const [i, row] of rows.entries())
        for (const [name, value] of Object.entries(areAlike ? rows[0]! : row))
          figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET[name as keyof typeof FIGURE_OFFSET]] = value
      return { ...fleet, speedSpread: areAlike ? 0 : fleet.speedSpread, count: slots, figures }
    })
}

/** What an engine book says of workers of which nothing was ever seen. */
function unknownEngines(slots: number): fc.Arbitrary<EngineProjection> {
  return fc.nat(3).map(sent => {
    const book = new EngineBook({ workerSlotsMax: slots })
    for (let i = 0; i < sent; i++)
      book.sent(`${i}`, i % slots, { promptTokens: 500 * i, newTokens: 300 * i, nowMs: i })
    return book.project(
      Int32Array.from({ length: slots }, (_, i) => i),
      5,
    )
  })
}

/** Each `ranks` workers in a row are the data-parallel ranks of one engine: alike, but for their load. */
const views: fc.Arbitrary<View> = count.chain(slots => {
  const each = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T[]> =>
    fc.array(value, { minLength: slots, maxLength: slots })
  return fc
    .record({
      engines: fc.oneof(
        { weight: 4, arbitrary: randomEngines(slots) },
        { weight: 1, arbitrary: unknownEngines(slots) },
      ),
      overlapBlocks: each(amount),
      creditFactors: each(share),
      activeBlocks: each(amount),
      outputShares: fc.option(each(share)),
      newBlocks: each(fc.oneof(fc.constantFrom(0, 62), fc.nat(7000))),
      activePrefillTokens: each(amount),
      activeRequests: each(few),
      kvCapacityTokens: fc.option(each(fc.oneof(fc.constantFrom(0, 1, 20_000), fc.nat(2_000_000)))),
      stepTokens: fc.option(each(fc.constantFrom(1, 512, 2048, STEP_TOKENS_DEFAULT))),
      soughtBlocks: fc.option(fc.oneof(fc.constantFrom(0, 62), fc.nat(7000))),
      readBlocks: fc.option(each(few)),
      bonusBlocks: fc.option(each(fc.oneof(few, fc.double({ min: 0, max: 7000, noNaN: true })))),
      heldBlocks: fc.option(each(fc.oneof(fc.constantFrom(-1, 0, 624, 625, 626), fc.nat(100_000)))),
      promptTokens: fc.oneof(fc.constantFrom(0, 1, 1000), fc.nat(100_000)),
      blockSizeTokens: fc.constantFrom(1, 16, 64),
      overlapWeight: fc.constantFrom(0, 1, 2),
      overlapCredit: fc.constantFrom(0, 0.5, 1, 2),
      creditDecay: fc.constantFrom(0, 0, 0.1),
      ranks: fc.constantFrom(1, 2, 8),
    })
    .map(
      ({
        engines,
        kvCapacityTokens,
        stepTokens,
        soughtBlocks,
        heldBlocks,
        ranks,
        readBlocks,
        bonusBlocks,
        ...more
      }) => {
        const ofEngine = <T>(values: readonly T[]): T[] => values.map((_, i) => values[i - (i % ranks)]!)
        const { overlapBlocks, creditFactors, activeBlocks, newBlocks, activePrefillTokens, ...rest } = more
        const { activeRequests, outputShares, ...request } = rest
        return {
          ...request,
          candidates: {
            count: slots,
            workerSlots: Int32Array.from({ length: slots }, (_, i) => i),
            overlapBlocks,
            creditFactors: ofEngine(creditFactors),
            activeBlocks,
            outputBlocks: outputShares?.map((part, i) => Math.floor(part * activeBlocks[i]!)),
            newBlocks,
            activePrefillTokens,
            activeRequests,
            engines,
            kvCapacityTokens: kvCapacityTokens === null ? undefined : ofEngine(kvCapacityTokens),
            stepTokens: stepTokens === null ? undefined : ofEngine(stepTokens),
            readBlocks: readBlocks ?? undefined,
            bonusBlocks: bonusBlocks ?? undefined,
            soughtBlocks: soughtBlocks ?? undefined,
            heldBlocksOf: heldBlocks === null ? undefined : (i: number) => heldBlocks[i]!,
          },
        }
      },
    )
})

// ── The named functions, asked about a view ──────────────────────────────────────────────────────

function choose(view: View, mode: 'kv' | 'direct' = 'kv'): Choice {
  const { candidates, promptTokens, blockSizeTokens, overlapWeight, overlapCredit, creditDecay } = view
  const settings = selectionSettings({ mode, policy: 'auto', overlapWeight, overlapCredit, creditDecay })
  return new Selector().choose(candidates, { promptTokens, blockSizeTokens }, settings, seededRandom(SEED))
}

function promptOf(view: View, uncachedTokens: readonly number[]): AutoPrompt {
  const { candidates, promptTokens, blockSizeTokens, overlapWeight, overlapCredit } = view
  const soughtBlocks = candidates.soughtBlocks ?? Math.floor(promptTokens / blockSizeTokens)
  const newBlocksMin = Math.min(soughtBlocks, ...Array.from(candidates.newBlocks))
  const uncachedTokensMin = Math.min(promptTokens, ...uncachedTokens)
  return {
    promptTokens,
    blockSizeTokens,
    soughtBlocks,
    overlapCredit: overlapWeight === 0 ? 0 : Math.min(1, overlapCredit),
    isUnshared: isUnshared(promptTokens, blockSizeTokens, soughtBlocks, newBlocksMin, uncachedTokensMin),
  }
}

function workerOf({ candidates }: View, uncachedTokens: readonly number[], i: number): AutoWorker {
  return {
    ...figuresOf(candidates.engines, i),
    uncachedTokens: uncachedTokens[i]!,
    newBlocks: candidates.newBlocks[i]!,
    activeBlocks: candidates.activeBlocks[i]!,
    outputBlocks: candidates.outputBlocks?.[i] ?? 0,
    activeRequests: candidates.activeRequests[i]!,
    readBlocks: candidates.readBlocks?.[i] ?? 0,
    bonusBlocks: candidates.bonusBlocks?.[i] ?? 0,
    creditFactor: candidates.creditFactors[i]!,
    capacityTokens: candidates.kvCapacityTokens?.[i] ?? 0,
    heldBlocks: candidates.heldBlocksOf?.(i) ?? -1,
    stepTokens: candidates.stepTokens?.[i] ?? STEP_TOKENS_DEFAULT,
  }
}

/** What the functions say of every worker: the terms in order. */
function termsOf(view: View, choice: Choice): readonly (readonly number[])[] {
  const { count } = view.candidates
  const uncachedTokens = Array.from(choice.terms.newTokens.subarray(0, count))
  const prompt = promptOf(view, uncachedTokens)
  return uncachedTokens.map((_, i) => {
    const worker = workerOf(view, uncachedTokens, i)
    return AUTO_TERMS.map(term => term.of(worker, prompt, view.candidates.engines))
  })
}

function receiptsOf({ candidates, promptTokens, blockSizeTokens }: View, choice: Choice) {
  const request = { promptTokens, blockSizeTokens }
  return Array.from({ length: candidates.count }, (_, i) => costTerms(choice, candidates, request, i))
}

// ── Tests ────────────────────────────────────────────────────────────────────────────────────────

t.test('the loop and the receipts have the terms of the named functions, bit for bit', async t => {
  t.comment(`seed ${SEED}`)
  // What the views had: else a term might never have been but 0.
  const seen = {
    'one worker': 0,
    'many workers': 0,
    'a wait': 0,
    'an eviction': 0,
    unshared: 0,
    shared: 0,
    'a bonus': 0,
    'a read': 0,
  }
  fc.assert(
    fc.property(views, fc.constantFrom('kv', 'direct'), (view, mode) => {
      const choice = choose(view, mode)
      const expected = termsOf(view, choice)
      for (const [i, { ofPolicy, cost }] of receiptsOf(view, choice).entries()) {
        const terms = expected[i]!
        assert.deepStrictEqual(ofPolicy, terms, `terms of worker ${i}`)
        assert.strictEqual(
          cost,
          terms.reduce((sum, ms) => sum + ms),
          `cost of worker ${i}`,
        )
        if (terms[0]! > figuresOf(view.candidates.engines, i).backlogMs) seen['a wait']++
        if (terms[3]! > 0) seen['an eviction']++
        if (terms[7]! < 0) seen['a bonus']++
        if ((view.candidates.readBlocks?.[i] ?? 0) > 0) seen['a read']++
      }
      if (expected.length === 1) seen['one worker']++
      if (expected.length > 50) seen['many workers']++
      const uncachedTokens = Array.from(choice.terms.newTokens.subarray(0, expected.length))
      seen[promptOf(view, uncachedTokens).isUnshared ? 'unshared' : 'shared']++
    }),
    { seed: SEED, numRuns: NUM_RUNS },
  )
  for (const [what, times] of Object.entries(seen)) t.ok(times > 20, `${what}: ${times} times`)
})

t.test('receipts name the terms of the table, in its order, and their sum as the formula', async t => {
  const [view] = fc.sample(views, { seed: SEED, numRuns: 1 })
  const { terms, formula, unit } = describeCost(choose(view!))
  t.strictSame(
    terms,
    AUTO_TERMS.map(({ name, unit, means }) => ({ name, unit, means })),
  )
  t.equal(formula, AUTO_TERMS.map(({ name }) => name).join(' + '))
  t.equal(unit, 'ms')
  t.strictSame(structuredClone(POLICIES.auto.terms), terms, 'they can be sent to another thread')
})

t.test(
  'docs/policies.md names the function of each term, and decision 0037 has a section for it',
  async t => {
    const policies = readFileSync(new URL('../../../docs/policies.md', import.meta.url), 'utf8')
    const decision = readFileSync(
      new URL('../../../docs/decisions/0037-what-auto-weighs.md', import.meta.url),
      'utf8',
    )
    for (const { name, of } of AUTO_TERMS) {
      t.ok(policies.includes(`\n| \`${name}\` | \`${of.name}\` | `), `${name}: ${of.name}`)
      t.ok(decision.includes(`\n### ${name}\n`), `a section on ${name}`)
    }
  },
)

t.test('the prefill of a cost is the prefill that is learned, but for rounding', async () => {
  fc.assert(
    fc.property(views, view => {
      const { candidates } = view
      const choice = choose(view)
      const uncachedTokens = Array.from(choice.terms.newTokens.subarray(0, candidates.count))
      // Nothing is about to be cached, so that all uncached tokens are new.
      const prompt = { ...promptOf(view, uncachedTokens), soughtBlocks: 0 }
      if (view.promptTokens === 0) return
      for (let i = 0; i < candidates.count; i++) {
        const worker = { ...workerOf(view, uncachedTokens, i), newBlocks: 0 }
        const { prefillStepMs, prefillTokenMs, prefillPairMs, stepTokens } = worker
        const learned = prefillCost(
          [prefillStepMs, prefillTokenMs, prefillPairMs],
          worker.uncachedTokens,
          view.promptTokens,
          stepTokens,
          candidates.engines.kneeTokens,
        )
        const ms = prefillMs(worker, prompt, candidates.engines)
        assert(Math.abs(ms - learned) <= 1e-9 * Math.max(1, learned), `${ms} is ${learned} ms`)
      }
    }),
    { seed: SEED, numRuns: 100 },
  )
})

t.test(
  'the price of decoding is 1 in an idle fleet of equals, and never below that of unlike workers',
  async t => {
    const idle = {
      busyShare: 0,
      waitingShare: 0,
      speedSpread: 0,
      kneeTokens: 0,
      outputTokensExpected: 200,
      prefillMeanMs: 0,
      transferMs: 0,
      transferTokenMs: 0,
    }
    const { UNSHARED_SHARE, UNLIKE_PRICE_MAX, BUSY_SHARE_MAX } = {
      ...AUTO_CONSTANTS.cost,
      ...AUTO_CONSTANTS.book,
    }
    t.equal(decodePrice(idle, false), 1)
    t.equal(decodePrice(idle, true), UNSHARED_SHARE)
    t.equal(decodePrice({ ...idle, busyShare: BUSY_SHARE_MAX, waitingShare: 0.4 }, false), 0.4)
    t.equal(decodePrice({ ...idle, busyShare: BUSY_SHARE_MAX, speedSpread: 3 }, true), UNLIKE_PRICE_MAX)
  },
)

t.test('labels change the cost, and the predicted first token only by the time of a read', async t => {
  const [view] = fc.sample(
    views.filter(({ promptTokens, candidates }) => promptTokens > 1000 && candidates.count === 1),
    { seed: SEED, numRuns: 1 },
  )
  const engines = { ...view!.candidates.engines, transferMs: 3, transferTokenMs: 0.5 }
  const figures = engines.figures.slice()
  figures[FIGURE_OFFSET.backlogMs] = 0
  figures[FIGURE_OFFSET.prefillTokenMs] = 0.01
  const choiceOf = (labels: { bonusBlocks?: number[]; readBlocks?: number[] }): Choice =>
    choose({ ...view!, candidates: { ...view!.candidates, engines: { ...engines, figures }, ...labels } })
  const figuresOfChoice = (choice: Choice) => ({
    cost: choice.terms.cost[0]!,
    firstTokenMs: predictedFirstTokenMs(choice, 0),
    newTokens: choice.terms.newTokens[0]!,
  })
  const plain = figuresOfChoice(choiceOf({}))
  t.strictSame(figuresOfChoice(choiceOf({ bonusBlocks: [0], readBlocks: [0] })), plain, 'to the last bit')
  const bonus = figuresOfChoice(choiceOf({ bonusBlocks: [10] }))
  t.ok(bonus.cost < plain.cost)
  t.strictSame({ ...bonus, cost: 0 }, { ...plain, cost: 0 }, 'what is predicted is to come true')
  const huge = figuresOfChoice(choiceOf({ bonusBlocks: [1e9] }))
  t.ok(Math.abs(plain.cost - huge.cost - plain.firstTokenMs) < 1e-6, 'at most what is before the first token')
  const blockSize = view!.blockSizeTokens
  const read = choiceOf({ readBlocks: [1000] })
  t.ok(read.terms.ofPolicy[0]! >= 3 + 0.5 * 1000 * blockSize, 'it waits for what it reads')
  t.ok(figuresOfChoice(read).firstTokenMs > plain.firstTokenMs)
})
