/** What is learned of prefill where a step takes no less below some tokens, and where it does. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { DECODE_PRIOR, EngineBook, figuresOf, prefillCost, STEP_TOKENS_DEFAULT } from '../src/index.ts'
import { chargedTokens } from '../src/prefill-costs.ts'

const SEED = 20_261_125
const STEP = STEP_TOKENS_DEFAULT

/** What prefill of so many new tokens of a prompt takes, in milliseconds. */
type Takes = (newTokens: number, promptTokens: number) => number

/**
 * An accelerator that reads its weights in 5.5 ms, as long as 239 tokens take, and one of which a step takes
 * 16.5 ms and more with every token.
 */
const ENGINES: Readonly<Record<string, Takes>> = {
  'takes no less below 239 tokens': (newTokens, promptTokens) =>
    1 + Math.max(5.5, 0.023 * newTokens) + 1e-6 * newTokens * (promptTokens - newTokens / 2),
  'takes no less below 320 tokens': newTokens => 2 + Math.max(16, 0.05 * newTokens),
  'takes longer for each token': newTokens => 16.5 + 0.015 * newTokens,
}

/**
 * Growing conversations: mostly a hundred or two new tokens behind a cached prefix, now and then a prompt of
 * which nothing is cached; `fewer` times fewer tokens of all.
 */
function served(
  takes: Takes,
  requests: number,
  fewer = 1,
): { readonly book: EngineBook; readonly nowMs: number } {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const random = seededRandom(SEED)
  let nowMs = 0
  for (let i = 0; i < requests; i++) {
    const promptTokens = (600 + random.below(800)) / fewer
    const newTokens = i % 8 === 0 ? promptTokens : (1 + random.below(200)) / fewer
    book.sent(`${i}`, 0, { promptTokens, newTokens, nowMs }, STEP)
    nowMs += takes(newTokens, promptTokens)
    book.firstToken(`${i}`, nowMs)
    nowMs += 100
    book.ended(`${i}`, nowMs, 20, 1 - newTokens / promptTokens)
  }
  return { book, nowMs }
}

for (const [name, takes] of Object.entries(ENGINES)) {
  t.test(
    `of an engine that ${name}, 200 requests teach what few and many tokens take, within 20 %`,
    async t => {
      const { book, nowMs } = served(takes, 200)
      const projection = book.project([0], nowMs)
      const { kneeTokens } = projection
      const { prefillStepMs, prefillTokenMs, prefillPairMs } = figuresOf(projection, 0)
      const p = [prefillStepMs, prefillTokenMs, prefillPairMs] as const
      for (const newTokens of [10, 100, 200, 700, 1300]) {
        const ratio = prefillCost(p, newTokens, 1300, STEP, kneeTokens) / takes(newTokens, 1300)
        t.ok(
          Math.abs(ratio - 1) < 0.2,
          `${newTokens} tokens: ${ratio} with the knee at ${kneeTokens} (seed ${SEED})`,
        )
      }
    },
  )
}

t.test(
  'where tokens are guessed from text and are four times as many, few of them still cost less than many',
  async t => {
    const takes: Takes = (newTokens, promptTokens) =>
      ENGINES['takes no less below 239 tokens']!(4 * newTokens, 4 * promptTokens)
    const { book, nowMs } = served(takes, 200, 4)
    const projection = book.project([0], nowMs)
    const { kneeTokens } = projection
    const { prefillStepMs, prefillTokenMs, prefillPairMs } = figuresOf(projection, 0)
    const p = [prefillStepMs, prefillTokenMs, prefillPairMs] as const
    t.ok(kneeTokens < 128, `${kneeTokens} tokens`)
    const ratio = prefillCost(p, 200, 200, STEP, kneeTokens) / takes(200, 200)
    t.ok(Math.abs(ratio - 1) < 0.2, `200 tokens: ${ratio} (seed ${SEED})`)
  },
)

/**
 * Busy periods of a few steps, now and then of many, with eight prompts in each of them and others that
 * decode.
 */
function servedInEights(
  takes: Takes,
  periods: number,
  decoding: number,
): { readonly book: EngineBook; readonly nowMs: number } {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const random = seededRandom(SEED)
  for (let i = 0; i < decoding; i++) {
    book.sent(`decoding ${i}`, 0, { promptTokens: 500, newTokens: 500, nowMs: 0 }, STEP)
    book.firstToken(`decoding ${i}`, 20)
  }
  let nowMs = 20
  for (let period = 0; period < periods; period++) {
    const steps = Array.from({ length: period % 5 === 0 ? 40 : 1 + random.below(3) }, (_, step) =>
      Array.from({ length: 8 }, (__, i) => {
        const newTokens = 1 + random.below(random.below(32) === 0 ? 1200 : 40)
        return { id: `${period} ${step} ${i}`, newTokens, promptTokens: newTokens + random.below(600) }
      }),
    )
    for (const { id, newTokens, promptTokens } of steps.flat())
      book.sent(id, 0, { promptTokens, newTokens, nowMs }, STEP)
    for (const prompts of steps) {
      const decodeMs = DECODE_PRIOR[1] * decoding + DECODE_PRIOR[2] * decoding * 600
      nowMs += takes(sum(prompts, 'newTokens'), sum(prompts, 'promptTokens')) + decodeMs
      for (const { id } of prompts) book.firstToken(id, nowMs)
      // In another order than that of the first tokens.
      for (const { id, newTokens, promptTokens } of prompts.toReversed())
        book.ended(id, nowMs, 1, 1 - newTokens / promptTokens)
    }
  }
  return { book, nowMs }
}

const sum = <K extends string>(each: readonly Readonly<Record<K, number>>[], key: K): number =>
  each.reduce((total, one) => total + one[key], 0)

for (const [name, takes] of Object.entries(ENGINES)) {
  for (const decoding of [0, 8]) {
    t.test(
      `of an engine that ${name}, 60 busy periods with 8 prompts in each step and ${decoding} that decode teach it, within 20 %`,
      async t => {
        const { book, nowMs } = servedInEights(takes, 60, decoding)
        const projection = book.project([0], nowMs)
        const { kneeTokens } = projection
        const { prefillStepMs, prefillTokenMs, prefillPairMs } = figuresOf(projection, 0)
        const p = [prefillStepMs, prefillTokenMs, prefillPairMs] as const
        for (const newTokens of [10, 100, 200, 700, 1300]) {
          const ratio = prefillCost(p, newTokens, 1300, STEP, kneeTokens) / takes(newTokens, 1300)
          t.ok(
            Math.abs(ratio - 1) < 0.2,
            `${newTokens} tokens: ${ratio} with the knee at ${kneeTokens} (seed ${SEED})`,
          )
        }
      },
    )
  }
}

t.test('only the last step has less than the knee, and no more than it can hold', async t => {
  t.equal(chargedTokens(100, 512, 256), 256)
  t.equal(chargedTokens(300, 512, 256), 300)
  t.equal(chargedTokens(512, 512, 256), 512)
  t.equal(chargedTokens(612, 512, 256), 768)
  t.equal(chargedTokens(100, 128, 256), 128)
  t.equal(chargedTokens(100, 512, 0), 100)
})
