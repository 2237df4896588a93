/** Images of what was learned, and how it ages. */

import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { DECODE_PRIOR, LearnedCosts, PREFILL_PRIOR } from '../src/engine-costs.ts'
import { AUTO_CONSTANTS, EngineBook, fleetImageFault, LearnedValues, workerImageFault } from '../src/index.ts'
import { OutputLengths } from '../src/output-lengths.ts'

const { AGE_FREE_MS, AGE_WORKER_HALF_MS, AGE_FLEET_HALF_MS } = AUTO_CONSTANTS.steps
const { OUTPUT_TOKENS_PRIOR } = AUTO_CONSTANTS.book
const SEED = 20_261_128
const SEEDS = 40

function eachSeed(check: (random: Random, seed: number) => void): void {
  for (let seed = SEED; seed < SEED + SEEDS; seed++) {
    try {
      check(seededRandom(seed), seed)
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : error}`, { cause: error })
    }
  }
}

/** Requests at some workers, which are slow or fast; returns the time at their end. */
function serves(book: EngineBook, slots: number, requests: number, random: Random, startMs: number): number {
  let nowMs = startMs
  const slowness = Array.from({ length: slots }, () => 2 ** (6 * random.next() - 3))
  for (let i = 0; i < requests; i++) {
    const slot = random.below(slots)
    const id = `${startMs} ${i}`
    const promptTokens = 50 + random.below(20_000)
    const isStream = random.next() < 0.9
    book.sent(id, slot, { promptTokens, newTokens: promptTokens, isStream, nowMs })
    nowMs += slowness[slot]! * (5 + 0.03 * promptTokens) * (0.8 + 0.4 * random.next())
    book.firstToken(id, nowMs)
    const outputTokens = 1 + random.below(300)
    nowMs += slowness[slot]! * 12 * outputTokens
    if (random.next() < 0.9) book.ended(id, nowMs, outputTokens, random.next() < 0.5 ? 0.1 : undefined)
    else book.ended(id, nowMs)
  }
  return nowMs
}

const SLOTS = [0, 1, 2, 3, 4]

t.test('a book that begins with the images of another knows what that one did', async () => {
  eachSeed(random => {
    const learned = new LearnedValues()
    const book = new EngineBook({ workerSlotsMax: 8, learned })
    const nowMs = serves(book, 4, random.below(200), random, random.below(1e9))
    const images = SLOTS.map(slot => learned.workerImage(slot))
    const fleet = learned.fleetImage()
    assert.equal(fleetImageFault(fleet), undefined)
    for (const image of images) if (image !== undefined) assert.equal(workerImageFault(image), undefined)

    const after = new LearnedValues()
    const next = new EngineBook({ workerSlotsMax: 8, learned: after })
    const startMs = random.below(1e9)
    next.project([0], startMs)
    after.restoreFleet(fleet, 0)
    // Slots are others in the next life.
    for (const [slot, image] of images.entries())
      if (image !== undefined) after.restoreWorker((slot + 3) % 8, image, 0)
    for (const slot of SLOTS) {
      const [was, is] = [book.learned(slot), next.learned((slot + 3) % 8)]
      for (const kind of ['prefill', 'decode'] as const) {
        assert.equal(is[kind].observations, was[kind].observations)
        for (const i of [0, 1, 2]) {
          const [a, b] = [was[kind].coefficients[i]!, is[kind].coefficients[i]!]
          assert.ok(Math.abs(a - b) <= 1e-6 * Math.abs(a) + 1e-9, `${kind} ${slot}: ${a} and ${b}`)
        }
      }
      assert.equal(is.prefill.kneeTokens, was.prefill.kneeTokens)
    }
    const [p, q] = [book.project(SLOTS, nowMs), next.project(SLOTS, startMs)]
    assert.equal(p.outputTokensExpected, q.outputTokensExpected)
    assert.equal(p.waitingShare, q.waitingShare)
    assert.equal(p.prefillMeanMs, q.prefillMeanMs)
  })
})

t.test(
  'an image does not replace what was learned since, and a worker without one knows nothing',
  async t => {
    const learned = new LearnedValues()
    const book = new EngineBook({ workerSlotsMax: 4, learned })
    const random = seededRandom(SEED)
    serves(book, 3, 100, random, 0)
    const before = book.learned(0)
    const other = new LearnedValues()
    serves(new EngineBook({ workerSlotsMax: 4, learned: other }), 3, 100, random, 0)
    learned.restoreFleet(other.fleetImage(), 0)
    learned.restoreWorker(0, other.workerImage(0)!, 0)
    t.strictSame(book.learned(0), before)
    t.equal(learned.workerImage(3), undefined)
    t.equal(book.learned(3).prefill.observations, 0)
  },
)

t.test('what hand-overs take is kept', async t => {
  const learned = new LearnedValues()
  t.equal(learned.fleetImage().transfer, undefined)
  for (let i = 1; i <= 40; i++) learned.transfer.observe(0, 1, 100 * i, 0, 2 + 5 * i)
  const image = learned.fleetImage()
  t.equal(fleetImageFault(image), undefined)
  const next = new LearnedValues()
  next.restoreFleet(image, 0)
  t.strictSame(next.transfer.fleet, learned.transfer.fleet)
  t.match(fleetImageFault({ ...image, transfer: Float64Array.of(1, 2) }), /transfer is no fit/)
})

t.test('an image with a number that no fit has is refused', async t => {
  const learned = new LearnedValues()
  serves(new EngineBook({ workerSlotsMax: 4, learned }), 1, 40, seededRandom(SEED), 0)
  const worker = learned.workerImage(0)!
  const fleet = learned.fleetImage()
  t.equal(workerImageFault(worker), undefined)
  for (const [at, figure] of [
    [0, Number.NaN],
    [1, -1],
    [8, 1e9],
    [7, 0.5],
    [21, 3],
    [10, 1e300],
  ] as const) {
    const broken = worker.decode!.slice()
    broken[at] = figure
    t.ok(workerImageFault({ ...worker, decode: broken }), `${figure} at ${at}`)
    t.ok(workerImageFault({ ...worker, prefill: [broken, ...worker.prefill!.slice(1)] }))
    t.ok(fleetImageFault({ ...fleet, decode: broken }))
  }
  t.ok(workerImageFault({ ...worker, decode: worker.decode!.slice(1) }))
  t.ok(workerImageFault({ ...worker, prefill: worker.prefill!.slice(1) }))
  t.ok(workerImageFault({ ...worker, output: Float64Array.of(1, -1, 0) }))
  t.ok(fleetImageFault({ ...fleet, shares: Float64Array.of(2, 0, 0, 0) }))
  t.ok(fleetImageFault({ ...fleet, knee: Float64Array.of(2, 9, 0, 0, 0, 0) }))
  t.ok(fleetImageFault({ ...fleet, times: new Float64Array(5) }))
})

/** Three workers like each other, and one that differs, in random features. */
function taught(random: Random, times: number): { readonly costs: LearnedCosts; readonly nowMs: number } {
  const costs = new LearnedCosts(PREFILL_PRIOR)
  let nowMs = random.below(1e9)
  costs.tick(nowMs)
  for (let row = 0; row < 160; row++) {
    const slot = row % 4
    const tokens = 100 + random.below(8000)
    const ms = (slot === 3 ? times : 1) * (8 + 0.05 * tokens) * (0.9 + 0.2 * random.next())
    costs.observe(slot, 1, tokens, (tokens * tokens) / 2, ms)
    nowMs += random.below(1000)
    costs.tick(nowMs)
  }
  return { costs, nowMs }
}

t.test('what was not confirmed goes back towards the fleet by half in each half-life', async () => {
  eachSeed(random => {
    const times = random.next() < 0.5 ? 3 + 4 * random.next() : 1 / (3 + 4 * random.next())
    const { costs, nowMs } = taught(random, times)
    const at = (ms: number): { readonly worker: readonly number[]; readonly fleet: readonly number[] } => {
      costs.tick(ms)
      return { worker: [...costs.of(3)], fleet: [...costs.of(9)] }
    }
    const before = at(nowMs)
    assert.notDeepEqual(before.worker, before.fleet, 'it is known to differ')
    const still = at(nowMs + AGE_FREE_MS - 10_000)
    assert.deepEqual(still, before, 'a pause changes nothing')
    let last = nowMs + AGE_FREE_MS
    for (let step = 0; step < 6; step++) {
      last += AGE_WORKER_HALF_MS * 2 * random.next()
      const { worker, fleet } = at(last)
      const aged = last - nowMs - AGE_FREE_MS
      // The last observation may be seconds older than the end.
      const [most, least] = [0, 10_000].map(more => 0.5 ** ((aged + more) / AGE_WORKER_HALF_MS))
      for (const i of [0, 1, 2]) {
        const off = worker[i]! - fleet[i]!
        const first = before.worker[i]! - fleet[i]!
        const [low, high] = [least! * first, most! * first].sort((a, b) => a - b)
        assert.ok(off >= low! - 1e-9 && off <= high! + 1e-9, `${i}: ${off} is not in ${low} … ${high}`)
      }
    }
    const old = at(nowMs + AGE_FREE_MS + 10 * AGE_FLEET_HALF_MS)
    for (const i of [0, 1, 2]) {
      const first = Math.abs(before.fleet[i]! - PREFILL_PRIOR[i]!)
      assert.ok(
        Math.abs(old.fleet[i]! - PREFILL_PRIOR[i]!) <= first / 1000 + 1e-12,
        'the fleet: to the prior',
      )
      assert.ok(Math.abs(old.worker[i]! - old.fleet[i]!) <= 1e-9, 'the worker: to the fleet')
    }
  })
})

t.test('after a night, an engine that has changed is known by its new speed soon', async () => {
  eachSeed(random => {
    const { costs, nowMs } = taught(random, 6)
    costs.tick(nowMs + 12 * AGE_WORKER_HALF_MS)
    const ms = (tokens: number): number => 8 + 0.05 * tokens
    for (let row = 0; row < 12; row++)
      for (const slot of [0, 1, 2, 3]) {
        const tokens = 100 + random.below(8000)
        costs.observe(slot, 1, tokens, (tokens * tokens) / 2, ms(tokens) * (0.9 + 0.2 * random.next()))
      }
    const [step, token, pair] = costs.of(3)
    const ratio = (step + token * 3000 + pair * 3000 * 1500) / ms(3000)
    assert.ok(ratio > 0.8 && ratio < 1.25, `${ratio} times as slow as it is`)
  })
})

t.test('what is confirmed does not age', async t => {
  const costs = new LearnedCosts(DECODE_PRIOR)
  for (let row = 0; row < 200; row++) {
    costs.tick(row * (AGE_FREE_MS - 1))
    for (const slot of [0, 1, 2, 3]) costs.observe(slot, 1, 2, 2000, slot === 3 ? 90 : 30)
  }
  const alone = (slot: number): number => {
    const [step, request, token] = costs.of(slot)
    return step + 2 * request + 2000 * token
  }
  t.ok(Math.abs(alone(3) / 90 - 1) < 0.1 && Math.abs(alone(0) / 30 - 1) < 0.1, `${alone(3)}, ${alone(0)}`)
})

t.test('the expected length of answers goes back to the prior, by half in each half-life', async () => {
  eachSeed(random => {
    const outputs = new OutputLengths()
    const nowMs = random.below(1e9)
    outputs.tick(nowMs)
    const length = 1 + random.below(5000)
    for (let i = 0; i < 100; i++) outputs.ended(i % 3, length)
    const before = outputs.meanTokens - OUTPUT_TOKENS_PRIOR
    const agedMs = 5 * random.next() * AGE_FLEET_HALF_MS
    outputs.tick(nowMs + AGE_FREE_MS + agedMs)
    const off = outputs.meanTokens - OUTPUT_TOKENS_PRIOR
    assert.ok(Math.abs(off - before * 0.5 ** (agedMs / AGE_FLEET_HALF_MS)) < 1e-6, `${before} → ${off}`)
    const aged = outputs.meanTokens
    for (let i = 0; i < 3; i++) outputs.ended(i, aged)
    assert.ok(Math.abs(outputs.meanTokens / aged - 1) < 0.02, 'and goes on from there')
  })
})

t.test('an image ages as if it had been kept', async t => {
  const { costs, nowMs } = taught(seededRandom(SEED), 5)
  const [fleet, worker] = [costs.image('fleet')!, costs.image(3)!]
  const next = new LearnedCosts(PREFILL_PRIOR)
  next.tick(77)
  const agoMs = AGE_FREE_MS + 2 * AGE_WORKER_HALF_MS
  next.restore('fleet', fleet, agoMs)
  next.restore(3, worker, agoMs)
  costs.tick(nowMs + agoMs)
  for (const slot of [3, 9])
    for (const i of [0, 1, 2])
      t.ok(Math.abs(next.of(slot)[i]! - costs.of(slot)[i]!) < 1e-9, `${next.of(slot)} ${costs.of(slot)}`)
})
