/** The guard against worlds whose truth is known: what affinity and control really take. */

import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { GUARD_SHARE_DEFAULT, Guard } from '../src/index.ts'

interface World {
  /** Milliseconds to the first token of 1024 tokens; Infinity: it never comes. */
  readonly affinityMs: number
  readonly controlMs: number
  /** As the model says; default: what affinity takes. */
  readonly predictedMs?: number
  /** Milliseconds from the first token to the end; default 0. */
  readonly affinityRestMs?: number
  readonly controlRestMs?: number
  /** Share of the requests that fail after 1 ms; default 0. */
  readonly affinityErrors?: number
  readonly controlErrors?: number
  /** Share of the prompt that control computes beyond what affinity would; default 0. */
  readonly extraShare?: number
  /** Chance that the two arms differ; default 1. */
  readonly differs?: number
}

type Step = (nowMs: number) => void

/** An arrival every `gapMs`; times vary by the factor 2 either way, and grow with the prompt. */
class Traffic {
  guard: Guard
  readonly #random: Random
  #arrivals = 0
  /** Those whose steps come before the arrival of this number, and behind the one before it. */
  readonly #due = new Map<number, Step[]>()
  sumMs = 0
  promptTokens = 0
  extraTokens = 0
  /** Experiments in which control decided, over all runs. */
  controls = 0

  readonly #gapMs: number

  constructor(share: number, seed: number, gapMs = 10) {
    this.#gapMs = gapMs
    this.guard = new Guard({ share })
    this.#random = seededRandom(seed)
  }

  /** Decisions that went by control. */
  run(decisions: number, world: World): number {
    const { affinityMs, controlMs, predictedMs = affinityMs } = world
    const { affinityRestMs = 0, controlRestMs = 0, affinityErrors = 0, controlErrors = 0 } = world
    const { extraShare = 0, differs = 1 } = world
    const controlsBefore = this.controls
    const random = this.#random
    for (let i = 0; i < decisions; i++) {
      const nowMs = ++this.#arrivals * this.#gapMs
      for (const step of this.#due.get(this.#arrivals) ?? []) step(nowMs)
      this.#due.delete(this.#arrivals)
      const { guard } = this
      const promptTokens = 2 ** (6 + random.below(8))
      const scale = (promptTokens / 1024) * 2 ** (2 * random.next() - 1)
      const extraTokens = extraShare * promptTokens
      const isSplit = differs === 1 || random.next() < differs
      const arm = isSplit ? guard.draw(random, 0, extraTokens, promptTokens) : undefined
      const isControl = arm === 'control'
      this.promptTokens += promptTokens
      if (isControl) this.controls++
      if (isControl) this.extraTokens += extraTokens
      const ms = (isControl ? controlMs : affinityMs) * scale
      const outputTokens = 2 ** (4 + random.below(4))
      const restMs = ((isControl ? controlRestMs : affinityRestMs) * outputTokens) / 64
      const errors = isControl ? controlErrors : affinityErrors
      const predicted = (predictedMs * promptTokens) / 1024
      const decision = guard.decided({ arm, promptTokens, predictedMs: predicted, extraTokens }, nowMs)
      this.sumMs += ms
      if (errors > 0 && random.next() < errors) {
        this.#at(nowMs + 1, toldMs => guard.failed(decision, toldMs))
        continue
      }
      if (ms === Number.POSITIVE_INFINITY) continue
      this.#at(nowMs + ms, toldMs => guard.firstToken(decision, ms, toldMs))
      const answer = { durationMs: ms + restMs, outputTokens, isStream: true }
      this.#at(nowMs + ms + restMs, toldMs => guard.finished(decision, answer, toldMs))
    }
    return this.controls - controlsBefore
  }

  #at(ms: number, step: Step): void {
    const arrival = Math.ceil(ms / this.#gapMs)
    const due = this.#due.get(arrival)
    if (due === undefined) this.#due.set(arrival, [step])
    else due.push(step)
  }
}

const SEED = 14

function asked(arm: 'affinity' | 'control') {
  return { arm, promptTokens: 1000, predictedMs: 100 } as const
}

/** All values in an object, however deep. */
function valuesOf(value: unknown): readonly unknown[] {
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(valuesOf) : [value]
}

t.test('where affinity pays, the share of control stays what was set', async t => {
  const traffic = new Traffic(GUARD_SHARE_DEFAULT, SEED)
  const controls = traffic.run(20_000, { affinityMs: 100, controlMs: 300 })
  t.ok(controls > 120 && controls < 300, `${controls} of 20,000`)
  t.match(traffic.guard.report(), {
    phase: 'trusting',
    controlShare: GUARD_SHARE_DEFAULT,
    tests: 0,
    shrinks: 0,
  })
  const { affinity, control, calibration } = traffic.guard.report()
  t.ok(control.correctedTtft > 2 * affinity.correctedTtft, 'the arms are told apart')
  t.ok(calibration > 0.8 && calibration < 1.3, `${calibration} of what was predicted`)
})

t.test('where neither is better, nothing is lost by what is tried', async t => {
  const traffic = new Traffic(GUARD_SHARE_DEFAULT, SEED)
  traffic.run(20_000, { affinityMs: 100, controlMs: 100 })
  t.ok(traffic.guard.report().shrinks <= 1)
})

t.test('an affinity that is worse is shrunk to what costs a hundredth, and comes back by itself', async t => {
  for (const seed of [1, 2, 3]) {
    const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed)
    traffic.run(2000, { affinityMs: 100, controlMs: 300 })
    traffic.run(4000, { affinityMs: 900, controlMs: 300, predictedMs: 100 })
    t.match(traffic.guard.report(), { phase: 'shrunk' }, `seed ${seed}`)
    const lost = 5000 - traffic.run(5000, { affinityMs: 900, controlMs: 300, predictedMs: 100 })
    t.ok(lost < 150, `${lost} of 5,000 went by an affinity that takes three times as long, seed ${seed}`)
    traffic.run(20_000, { affinityMs: 100, controlMs: 300 })
    t.match(traffic.guard.report(), { phase: 'trusting', controlShare: GUARD_SHARE_DEFAULT }, `seed ${seed}`)
  }
})

t.test('it comes back also where hundreds of requests wait for their first tokens', async t => {
  for (const seed of [1, 2, 3]) {
    const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed, 1)
    traffic.run(5000, { affinityMs: 300, controlMs: 300 })
    const { z, shrinks } = traffic.guard.report()
    t.ok(Math.abs(z) < 4, `z is ${z}: equal arms are not told apart by how many wait, seed ${seed}`)
    t.equal(shrinks, 0)
    traffic.run(10_000, { affinityMs: 900, controlMs: 300 })
    t.match(traffic.guard.report(), { phase: 'shrunk' }, `seed ${seed}`)
    traffic.run(40_000, { affinityMs: 300, controlMs: 300 })
    t.match(traffic.guard.report(), { phase: 'trusting' }, `seed ${seed}`)
  }
})

t.test('a test does not end well because those that are soon over are seen first', async t => {
  for (let seed = 1; seed <= 12; seed++) {
    const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed)
    traffic.run(2000, { affinityMs: 100, controlMs: 300 })
    traffic.run(400, { affinityMs: 900, controlMs: 300, predictedMs: 100 })
    t.match(traffic.guard.report(), { phase: 'shrunk', tests: 1 }, `seed ${seed}`)
  }
})

t.test('a model that is off by far is tested within a hundred answers', async t => {
  const traffic = new Traffic(GUARD_SHARE_DEFAULT, SEED)
  traffic.run(100, { affinityMs: 900, controlMs: 300, predictedMs: 100 })
  traffic.run(150, { affinityMs: 900, controlMs: 300, predictedMs: 100 })
  t.match(traffic.guard.report(), { phase: 'shrunk', tests: 1, shrinks: 1 })
})

t.test('a model that is off and does no harm is left in peace, for longer each time', async t => {
  const traffic = new Traffic(GUARD_SHARE_DEFAULT, SEED)
  const controls = traffic.run(20_000, { affinityMs: 100, controlMs: 300, predictedMs: 1 })
  t.match(traffic.guard.report(), { phase: 'trusting', tests: 1, shrinks: 0 })
  t.ok(controls < 400, `${controls} of 20,000`)
})

t.test('an arm that does not answer is worse, although nobody has seen its times', async t => {
  const traffic = new Traffic(0.2, SEED)
  traffic.run(500, { affinityMs: 100, controlMs: 100 })
  traffic.run(4000, { affinityMs: Number.POSITIVE_INFINITY, controlMs: 100 })
  t.match(traffic.guard.report(), { phase: 'shrunk' })
})

t.test('without a share nothing is tried, and what was predicted is compared all the same', async t => {
  const traffic = new Traffic(0, SEED)
  t.equal(traffic.run(3000, { affinityMs: 900, controlMs: 300, predictedMs: 300 }), 0)
  const { phase, controlShare, calibration } = traffic.guard.report()
  t.strictSame([phase, controlShare], ['trusting', 0])
  t.ok(calibration > 2.5, `first tokens come ${calibration} times as late as predicted`)
})

t.test('what would cost much more is tried seldom, and what costs no more as often as was set', async t => {
  const guard = new Guard({ share: 0.5 })
  const random = seededRandom(SEED)
  for (let i = 0; i < 10; i++) guard.firstToken(guard.decided(asked('affinity'), 0), 100, 0)
  const controls = (extraMs: number): number => {
    let count = 0
    for (let i = 0; i < 10_000; i++) if (guard.draw(random, extraMs) === 'control') count++
    return count
  }
  t.ok(Math.abs(controls(-5) - 5000) < 200)
  t.ok(Math.abs(controls(100) - 2500) < 200, 'as much again as the mean: half as often')
  t.ok(controls(1e9) < 200)
  t.ok(Math.abs(controls(Number.NaN) - 5000) < 200, 'no prediction')
})

t.test('what was cancelled teaches nothing', async t => {
  const guard = new Guard({ share: 0.5 })
  for (let i = 0; i < 100; i++) guard.gone(guard.decided(asked('control'), i))
  t.match(guard.report(), { control: { decisions: 100, outcomes: 0, finished: 0, failed: 0 }, z: 0 })
})

t.test('an arm whose requests fail at once is worse than one that takes its time', async t => {
  const guard = new Guard({ share: 0.5 })
  for (let i = 0; i < 20; i++) guard.firstToken(guard.decided(asked('control'), i), 100, i)
  for (let i = 20; i < 400 && guard.phase !== 'shrunk'; i++) {
    const decision = guard.decided(asked(i % 2 === 0 ? 'affinity' : 'control'), i)
    if (i % 2 === 0 && i % 3 === 0) {
      guard.failed(decision, i)
      guard.failed(decision, i)
    } else {
      guard.firstToken(decision, 90 + (i % 20), i)
      guard.finished(decision, { durationMs: 100 + (i % 20), outputTokens: 10, isStream: true }, i)
    }
  }
  t.equal(guard.phase, 'shrunk')
  const { affinity, control } = guard.report()
  t.ok(affinity.failed > 0 && control.failed === 0)
  t.ok(affinity.outcomes + affinity.failed <= affinity.decisions, 'nothing is counted twice')
})

t.test('a share out of range is refused', async t => {
  for (const share of [-0.1, 0.6, Number.NaN, Number.POSITIVE_INFINITY])
    t.throws(() => new Guard({ share }), /use a number from 0 to 0.5/)
})

t.test('whatever it is told, its figures are finite, and its shares within 0 and 1', async t => {
  const figure = fc.oneof(
    fc.double(),
    fc.constantFrom(0, -1, 1e308, Number.NaN, Number.POSITIVE_INFINITY, Number.MIN_VALUE, 5, 500),
  )
  const told = fc.record({
    arm: fc.constantFrom('affinity', 'control', undefined),
    promptTokens: figure,
    predictedMs: figure,
    extraTokens: figure,
    durationMs: figure,
    outputTokens: figure,
    slot: fc.constantFrom(undefined, 0, 1),
    firstTokenMs: figure,
    decidedMs: figure,
    toldMs: figure,
    end: fc.constantFrom('token', 'gone', 'failed', 'both', 'twice', 'open'),
    predictedTokens: figure,
    cachedTokens: figure,
  })
  const holds = fc.property(fc.array(told, { maxLength: 300 }), fc.integer(), (all, seed) => {
    const guard = new Guard({ share: 0.3 })
    const random = seededRandom(seed)
    for (const each of all) {
      guard.draw(random, each.predictedMs)
      const { arm, promptTokens, predictedMs, extraTokens, durationMs, outputTokens } = each
      const workerSlot = each.slot
      const told = { arm, promptTokens, predictedMs, extraTokens, workerSlot }
      const decision = guard.decided(told, each.decidedMs)
      if (each.end === 'failed') guard.failed(decision, each.toldMs)
      else if (each.end !== 'gone' && each.end !== 'open')
        guard.firstToken(decision, each.firstTokenMs, each.toldMs)
      if (each.end === 'twice') guard.firstToken(decision, each.firstTokenMs, each.toldMs)
      if (each.end === 'twice' || each.end === 'token')
        guard.finished(decision, { durationMs, outputTokens, isStream: true }, each.toldMs)
      if (each.end === 'gone' || each.end === 'both') guard.gone(decision)
      guard.audited(each.predictedTokens, each.cachedTokens)
      const { affinity, control } = guard.report()
      for (const value of valuesOf(guard.report()))
        assert.ok(typeof value !== 'number' || Number.isFinite(value), JSON.stringify(guard.report()))
      assert.ok(guard.controlShare >= 0 && guard.controlShare <= 1)
      assert.ok(affinity.correctedTtft >= 0 && control.correctedTtft >= 0)
    }
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 200 }))
})
