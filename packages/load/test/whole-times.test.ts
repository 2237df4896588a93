/**
 * What the router sees itself, whole answers and events of streams, limits what engines say: a worker is
 * believed to be faster than the others as far as they are.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { EngineBook, figuresOf, prefillCost, STEP_TOKENS_DEFAULT } from '../src/index.ts'
import { TokensPerEvent } from '../src/tokens-per-event.ts'
import { WholeTimes } from '../src/whole-times.ts'

const SEED = 20_261_128
const WORKERS = 4
/** Milliseconds: a prefill step, a token, a pair of tokens; a decode step. */
const PREFILL = [2, 0.05, 1e-6] as const
const STEP_MS = 8

interface Said {
  readonly firstTokenMs: number
  readonly outputTokens: number | undefined
}

/** What is expected of each worker: prefill of 4,000 tokens, and a decode step. */
interface Expected {
  readonly prefillMs: number
  readonly stepMs: number
}

/** Worker 3 is `times` as fast as the others, and tells of its answers what `say` makes of the truth. */
function learned(times: number, say: (truth: Said) => Said = truth => truth): readonly Expected[] {
  const random = seededRandom(SEED)
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  let nowMs = 0
  for (let i = 0; i < 400; i++) {
    const slot = i % WORKERS
    const slowness = slot === 3 ? 1 / times : 1
    const promptTokens = 500 + random.below(8000)
    const outputTokens = 20 + random.below(300)
    const firstTokenMs = slowness * prefillCost(PREFILL, promptTokens, promptTokens, STEP_TOKENS_DEFAULT, 0)
    const truth = { firstTokenMs, outputTokens }
    const said = slot === 3 ? say(truth) : truth
    const id = String(i)
    book.sent(id, slot, { promptTokens, newTokens: promptTokens, nowMs })
    book.firstToken(id, nowMs + said.firstTokenMs)
    nowMs += firstTokenMs + slowness * STEP_MS * (outputTokens - 1)
    book.ended(id, nowMs, said.outputTokens, 0)
  }
  return Array.from({ length: WORKERS }, (_, slot) => {
    const f = figuresOf(book.project([slot], nowMs), 0)
    const { prefillStepMs, prefillTokenMs, prefillPairMs } = f
    const prefill = [prefillStepMs, prefillTokenMs, prefillPairMs] as const
    return {
      prefillMs: prefillCost(prefill, 4000, 4000, STEP_TOKENS_DEFAULT, 0),
      stepMs: f.decodeStepMs + f.decodeRequestMs + f.decodeTokenMs * 4000,
    }
  })
}

t.test('one whose first tokens come at once is believed to be half as fast again, not more', async t => {
  for (const outputTokens of ['true', 0, undefined] as const) {
    const [other, , , liar] = learned(1, truth => ({
      firstTokenMs: 1,
      outputTokens: outputTokens === 'true' ? truth.outputTokens : outputTokens,
    }))
    const ratio = liar!.prefillMs / other!.prefillMs
    t.ok(ratio > 0.45, `${ratio} of the others, answers of ${outputTokens} tokens (seed ${SEED})`)
  }
})

t.test('nor is one that counts twenty tokens for each', async t => {
  const [other, , , liar] = learned(1, truth => ({ ...truth, outputTokens: 20 * truth.outputTokens! }))
  const ratio = liar!.stepMs / other!.stepMs
  t.ok(ratio > 0.4, `${ratio} of the others (seed ${SEED})`)
})

t.test('one whose answers end four times as soon is believed to be as fast', async t => {
  const [other, , , fast] = learned(4)
  for (const ratio of [fast!.prefillMs / other!.prefillMs, fast!.stepMs / other!.stepMs])
    t.ok(ratio > 0.2 && ratio < 0.33, `${ratio} of the others (seed ${SEED})`)
})

t.test('two workers set each other no limit, three do, and one that has left sets none', async t => {
  const wholes = new WholeTimes()
  for (let i = 0; i < 20; i++) for (const slot of [0, 1]) wholes.ended(slot, 100, 100)
  t.equal(wholes.fasterTimesMax(0), Infinity)
  for (let i = 0; i < 20; i++) wholes.ended(2, 25, 100)
  t.equal(wholes.fasterTimesMax(0), 1.5)
  t.equal(wholes.fasterTimesMax(2), 6)
  t.equal(wholes.fasterTimesMax(3), 1.5, 'not known yet')
  for (let i = 0; i < 20; i++) wholes.ended(3, 800, 100)
  t.equal(wholes.fasterTimesMax(3), 1, 'its answers take longer, whatever it says')
  wholes.ended(2, Number.NaN, 100)
  wholes.ended(2, 100, 0)
  t.equal(wholes.fasterTimesMax(2), 6)
  wholes.forget(2)
  wholes.forget(3)
  t.equal(wholes.fasterTimesMax(0), Infinity)
})

t.test(
  'tokens that are out of line with the events of their streams count as those of the others',
  async t => {
    const perEvent = new TokensPerEvent()
    const believed = (tokens: number): number => {
      let last = 0
      for (let i = 0; i < 20; i++) {
        // Two tokens in an event, as an engine sends that guesses one ahead.
        for (const slot of [1, 2, 3]) perEvent.believed(slot, 200, 100)
        last = perEvent.believed(0, tokens, 100)
      }
      perEvent.forget(0)
      return last
    }
    t.equal(believed(200), 200)
    t.equal(believed(110), 110, 'one in an event')
    t.equal(believed(390), 390, 'four in an event')
    t.equal(believed(2000), 200)
    t.equal(believed(5), 200)
    t.equal(perEvent.believed(0, 7000, 0), 7000, 'an answer that does not stream')
    const two = new TokensPerEvent()
    for (let i = 0; i < 20; i++) two.believed(1, 100, 100)
    for (let i = 0; i < 20; i++) t.equal(two.believed(0, 9000, 100), 9000, 'two workers')
  },
)

t.test('the book believes tokens by the events of the stream', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  const last: unknown[] = []
  for (let i = 0; i < 80; i++) {
    const slot = i % WORKERS
    book.sent(`${i}`, slot, { promptTokens: 100, newTokens: 100, nowMs: 1000 * i })
    book.firstToken(`${i}`, 1000 * i + 10)
    const outputTokens = slot === 3 ? 900 : 50
    const said = { outputTokens, cachedShare: 0, streamEvents: 51 }
    last[slot] = book.believed(`${i}`, said, 1000 * i + 900).outputTokens
    book.ended(`${i}`, 1000 * i + 900, 50, 0)
  }
  t.strictSame(last, [50, 50, 50, 50])
})
