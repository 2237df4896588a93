/** What a placement costs all requests together, where a prompt may be computed apart. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { EngineBook, FIGURE_OFFSET, FIGURES_PER_SLOT } from '@homing/load'
import fc from 'fast-check'
import t from 'tap'
import { endToEndMs, type SelectionRequest, Selector, selectionSettings } from '../src/index.ts'

const BLOCK = 16
const STEP_MS = 10
const ANSWER_MS = 100 * STEP_MS

interface Worker {
  readonly decoding: number
  readonly queuedTokens: number
  /** Ms that each decoding request adds to a step. */
  readonly requestMs?: number
}

/** The cost of the cheapest of workers that compute 0.02 ms a token. */
function costOf(
  workers: readonly Worker[],
  request: SelectionRequest,
  isDecoded: boolean,
  { sentPerMs = 1 / ANSWER_MS } = {},
): number {
  const book = new EngineBook({ workerSlotsMax: workers.length })
  const engines = book.project(
    workers.map((_, slot) => slot),
    0,
  )
  engines.figures.fill(0)
  engines.outputTokensExpected = 100
  engines.prefillMeanMs = 200
  engines.sentPerMs = sentPerMs
  workers.forEach(({ decoding, queuedTokens, requestMs = 0 }, i) => {
    const set = (name: keyof typeof FIGURE_OFFSET, value: number): void => {
      engines.figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET[name]] = value
    }
    set('backlogMs', 0.02 * queuedTokens)
    set('queuedTokens', queuedTokens)
    set('requests', decoding + (queuedTokens > 0 ? 1 : 0))
    set('decoding', decoding)
    set('prefillTokenMs', 0.02)
    set('decodeStepMs', STEP_MS)
    set('decodeRequestMs', requestMs)
  })
  const count = workers.length
  const zeros = new Float64Array(count)
  const candidates = {
    count,
    workerSlots: Int32Array.from(workers, (_, i) => i),
    overlapBlocks: new Int32Array(count),
    creditFactors: zeros,
    lowerTierBlocks: zeros,
    activeBlocks: zeros,
    newBlocks: new Float64Array(count).fill(Math.floor(request.promptTokens / BLOCK)),
    activePrefillTokens: zeros,
    activeRequests: zeros,
    engines,
    falls: 0,
  }
  const choice = new Selector().choose(
    candidates as never,
    request,
    selectionSettings({ policy: 'auto' }),
    seededRandom(1),
  )
  return endToEndMs(candidates as never, request, choice, isDecoded)!
}

const prompt = (promptTokens: number, isComputed = false): SelectionRequest => ({
  promptTokens,
  blockSizeTokens: BLOCK,
  isComputed,
})
const IDLE: Worker = { decoding: 0, queuedTokens: 0 }

t.test('in an idle fleet a prompt costs as much in two legs: others come to either worker', async t => {
  const holds = fc.property(fc.integer({ min: 1, max: 100_000 }), tokens => {
    const whole = costOf([IDLE], prompt(tokens), true)
    const legs = costOf([IDLE], prompt(tokens), false) + costOf([IDLE], prompt(tokens, true), true)
    assert.ok(Math.abs(legs - whole) <= 0.02 * 300 + 1e-6, `${legs}, and ${whole}`)
  })
  t.doesNotThrow(() => fc.assert(holds))
})

t.test(
  'what a prompt holds up is counted in full, and more the more a step depends on its requests',
  async t => {
    const extra = (decoding: number, requestMs = 0): number => {
      const worker = { decoding, queuedTokens: 0, requestMs }
      return costOf([worker], prompt(10_000), true) - costOf([worker], prompt(10_000, true), true)
    }
    const alone = extra(0)
    const held = extra(8) - alone
    // 200 ms of prefill, and of those that come in an answer's time a fifth waits for half of it.
    t.ok(Math.abs(held / (8 * (200 + 20)) - 1) < 0.1, `${held}`)
    t.ok(extra(8, 1) - alone > 1.5 * held, 'steps of 18 ms instead of 10')
  },
)

t.test('a worker that only computes prompts costs more, the more waits there', async t => {
  const busy = { decoding: 0, queuedTokens: 20_000 }
  const idle = costOf([IDLE], prompt(10_000), false)
  const waiting = costOf([busy], prompt(10_000), false)
  t.ok(waiting - idle > 400, `${waiting - idle}: its backlog, and what it makes others wait`)
})

t.test('those that come while a prompt is computed wait for it, as many as came of late', async t => {
  const extra = (isDecoded: boolean, sentPerMs: number, queuedTokens = 0): number =>
    costOf([{ decoding: 0, queuedTokens }], prompt(50_000), isDecoded, { sentPerMs }) -
    costOf([{ decoding: 0, queuedTokens }], prompt(50_000), isDecoded, { sentPerMs: 0 })
  for (const isDecoded of [true, false]) {
    // 2 a second, and a second: each waits for half of it.
    t.ok(Math.abs(extra(isDecoded, 0.002) / 1000 - 1) < 1e-6, `${extra(isDecoded, 0.002)}`)
    t.ok(Math.abs(extra(isDecoded, 0.004) / 2000 - 1) < 1e-6)
    // A second waits there before it, and those that come meanwhile wait for all of it.
    t.ok(Math.abs(extra(isDecoded, 0.002, 50_000) / 3000 - 1) < 1e-6, `${extra(isDecoded, 0.002, 50_000)}`)
  }
})

t.test('without times of engines there is no cost', async t => {
  const candidates = { count: 1, engines: undefined }
  t.equal(endToEndMs(candidates as never, prompt(10), { winner: 0 } as never, true), undefined)
})
