/** The guard against worlds whose truth is known: what affinity and control really take. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { GUARD_SHARE_DEFAULT, Guard } from '../src/index.ts'
import { Traffic } from './guard-traffic.ts'

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
    for (let i = 0; i < 10_000; i++)
      if (guard.draw(random, guard.experimentChance(extraMs)) === 'control') count++
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

t.test('an arm whose engines fail fast is not trusted, however soon its first tokens come', async t => {
  for (let seed = 1; seed <= 8; seed++) {
    const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed)
    traffic.run(1000, { affinityMs: 100, controlMs: 300 })
    const world = { affinityMs: 30, controlMs: 300, predictedMs: 30, affinityErrors: 0.4 }
    traffic.run(2000, world)
    t.match(traffic.guard.report(), { phase: 'shrunk' }, `seed ${seed}`)
    const lost = 4000 - traffic.run(4000, world)
    t.ok(lost < 200, `${lost} of 4,000 went by an affinity that fails, seed ${seed}`)
    const { affinity, control } = traffic.guard.report()
    t.ok(affinity.failed > 0 && control.failed === 0)
    traffic.run(40_000, { affinityMs: 30, controlMs: 300 })
    t.match(traffic.guard.report(), { phase: 'trusting' }, `seed ${seed}`)
  }
})

t.test('an answer that takes longer is found, where first tokens come alike', async t => {
  const world = { affinityMs: 100, controlMs: 100, affinityRestMs: 900, controlRestMs: 300 }
  for (let seed = 1; seed <= 8; seed++) {
    const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed)
    traffic.run(8000, world)
    t.match(traffic.guard.report(), { phase: 'shrunk' }, `seed ${seed}`)
    const { affinity, control, differences } = traffic.guard.report()
    t.ok(affinity.correctedDuration > 1.5 * control.correctedDuration, `seed ${seed}`)
    t.ok(differences.duration.z > 3 && Math.abs(differences.ttft.z) < 3, `seed ${seed}`)
  }
})

t.test('a longer answer is made up for by a much earlier first token', async t => {
  const world = { affinityMs: 50, controlMs: 200, affinityRestMs: 1200, controlRestMs: 800 }
  for (let seed = 1; seed <= 8; seed++) {
    const traffic = new Traffic(0.5, seed)
    traffic.run(4000, world)
    t.match(traffic.guard.report(), { shrinks: 0 }, `seed ${seed}`)
  }
})

t.test('answers that do not stream are compared, too', async t => {
  const guard = new Guard({ share: 0.5 })
  for (let i = 0; i < 400 && guard.phase !== 'shrunk'; i++) {
    const arm = i % 2 === 0 ? 'affinity' : 'control'
    const durationMs = (arm === 'affinity' ? 300 : 100) + (i % 20)
    guard.finished(guard.decided(asked(arm), i), { durationMs, outputTokens: 10, isStream: false }, i)
  }
  t.equal(guard.phase, 'shrunk')
  t.ok(guard.report().unseen > 40)
})

t.test(
  'experiments cost less than a thousandth of the tokens once nothing was found for an hour',
  async t => {
    const hour = 36_000
    for (const [seed, share, controlMs, differs, extraShare] of [
      [1, GUARD_SHARE_DEFAULT, 300, 1, 0.9],
      [2, GUARD_SHARE_DEFAULT, 120, 1, 0.9],
      [3, 0.5, 300, 1, 0.2],
      [4, 0.2, 130, 0.5, 1],
      [5, GUARD_SHARE_DEFAULT, 100, 1, 0.9],
    ] as const) {
      const world = { affinityMs: 100, controlMs, differs, extraShare }
      const traffic = new Traffic(share, seed, 100)
      traffic.run(hour / 2, world)
      const before = traffic.extraTokens / traffic.promptTokens
      if (controlMs > 100)
        t.ok(before > 0.7 * share * differs * extraShare, `${before} in the first half hour, seed ${seed}`)
      traffic.run(3 * hour, world)
      const { quiet } = traffic
      if (controlMs > 100) t.ok(quiet.promptTokens > 0.7 * traffic.promptTokens, 'nothing was found')
      const cost = quiet.extraTokens / quiet.promptTokens
      t.notOk(cost >= 0.001, `${cost} of the prompt tokens, seed ${seed}`)
      if (controlMs > 100) t.ok(quiet.controls > 15, `${quiet.controls} are still tried, seed ${seed}`)
      const { extraTokens, promptTokens } = traffic.guard.report()
      t.ok(Math.abs(extraTokens - traffic.extraTokens) < 1e-6 * traffic.extraTokens)
      t.equal(promptTokens, traffic.promptTokens)
    }
  },
)

t.test('what costs nothing is tried as often as before', async t => {
  const traffic = new Traffic(GUARD_SHARE_DEFAULT, SEED, 100)
  traffic.run(36_000, { affinityMs: 100, controlMs: 300 })
  const tried = traffic.run(36_000, { affinityMs: 100, controlMs: 300 }) / 36_000
  t.ok(tried > 0.7 * GUARD_SHARE_DEFAULT, `${tried}`)
})

t.test('after a quiet hour a loss is found as soon as before', async t => {
  for (const [name, change] of [
    ['late first tokens that were not predicted', { affinityMs: 900, predictedMs: 100 }],
    ['late first tokens that were predicted', { affinityMs: 900 }],
    ['failures', { affinityErrors: 0.5 }],
    ['long answers', { affinityRestMs: 2000 }],
  ] as const) {
    for (let seed = 1; seed <= 3; seed++) {
      const traffic = new Traffic(GUARD_SHARE_DEFAULT, seed, 100)
      const usual = {
        affinityMs: 100,
        controlMs: 300,
        affinityRestMs: 300,
        controlRestMs: 300,
        extraShare: 0.5,
      }
      traffic.run(40_000, usual)
      t.ok(traffic.guard.isQuiet)
      const shrinks = () => traffic.guard.report().shrinks
      let decisions = 0
      for (; decisions < 3000 && shrinks() === 0; decisions += 100) traffic.run(100, { ...usual, ...change })
      t.equal(shrinks(), 1, `${name}, after ${decisions}, seed ${seed}`)
      t.notOk(traffic.guard.isQuiet, 'what was found ends the hour')
    }
  }
})

t.test('a guard that takes over the state of another goes on as that would have', async t => {
  for (let seed = 1; seed <= 20; seed++) {
    const traffic = new Traffic(0.1, seed)
    const worlds = [
      { affinityMs: 0.1, controlMs: 0.3 },
      { affinityMs: 0.3, controlMs: 0.1, affinityErrors: 0.1 },
      { affinityMs: 0.1, controlMs: 0.3, extraShare: 0.5 },
    ]
    traffic.run(100 + 37 * seed, worlds[seed % 3]!)
    traffic.end()
    const other = new Guard({ share: 0.1 })
    other.restore(JSON.parse(JSON.stringify(traffic.guard.state)))
    const [one, two] = [traffic.guard, other].map(guard => {
      const random = seededRandom(seed)
      for (let i = 0; i < 500; i++) {
        const nowMs = 1_000_000 + i
        const arm = guard.draw(random, guard.experimentChance(0))
        const decision = guard.decided({ arm, promptTokens: 64 + i, predictedMs: 1, workerSlot: 1 }, nowMs)
        const ms = arm === 'control' ? 2 : 1
        guard.firstToken(decision, ms, nowMs)
        guard.finished(decision, { durationMs: ms, outputTokens: i, isStream: true }, nowMs)
      }
      return guard.report()
    })
    t.strictSame(one, two, `seed ${seed}`)
  }
})

t.test('a worker whose requests end worse under the policy is told apart', async t => {
  const guard = new Guard({ share: 0.5 })
  const random = seededRandom(SEED)
  for (let i = 0; i < 2000; i++) {
    const workerSlot = i % 4
    const arm = i % 8 < 4 ? 'control' : 'affinity'
    const decision = guard.decided({ ...asked(arm), workerSlot }, i)
    // Worker 1 fails under the policy, worker 2 is slow under both, worker 3 only under the policy.
    if (workerSlot === 1 && arm === 'affinity' && random.next() < 0.5) {
      guard.failed(decision, i)
      continue
    }
    const isSlow = workerSlot === 2 || (workerSlot === 3 && arm === 'affinity')
    const durationMs = (isSlow ? 300 : 100) * (1 + random.next() / 4)
    guard.firstToken(decision, 50 + random.below(5), i)
    guard.finished(decision, { durationMs, outputTokens: 10, isStream: true }, i)
  }
  const found = guard
    .report()
    .workers.map(({ workerSlot, isWorseThanControl: control, isWorseThanFleet: fleet }) => ({
      [workerSlot]: [control && 'control', fleet && 'fleet'].filter(Boolean).join(),
    }))
  t.strictSame(Object.assign({}, ...found), { 0: '', 1: 'control,fleet', 2: 'fleet', 3: 'control,fleet' })
  guard.keepOnly(new Set([0, 2]))
  t.strictSame(
    guard.report().workers.map(({ workerSlot }) => workerSlot),
    [0, 2],
  )
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
      guard.draw(random, guard.experimentChance(each.predictedMs))
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
