import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  KEPT_ALL,
  run,
  runUnheard,
  type Step,
  steps,
  stepsOfLives,
  stepsOfPorts,
  stepsOfRouters,
  take,
} from './follower-steps.ts'
import { FollowerWorld } from './follower-world.ts'

// What fails is shrunk, but not for ever; on a machine that is slow less is tried.
fc.configureGlobal({ interruptAfterTimeLimit: 14_000 })

const seeds = fc.integer({ min: 1, max: 2 ** 31 - 1 })

t.test(
  'whatever is lost, repeated or restarted, the index equals the cache once the source is whole',
  async t => {
    const holds = fc.property(seeds, steps, (seed, script) => {
      const hasGarbage = script.some(step => step.do === 'garbage')
      const world = run(seed, true, 10_000, script)
      assert.deepEqual([...world.held()].sort(), [...world.source.cached].sort())
      if (!hasGarbage) assert.equal(world.trust, 'exact', world.reason)
    })
    t.doesNotThrow(() => fc.assert(holds, { numRuns: 600 }))
  },
)

t.test(
  'a batch held back of a life that ended unnoticed does not continue the replay of the next',
  async t => {
    const script: readonly Step[] = [
      { do: 'garbage' },
      { do: 'connect' },
      { do: 'publish', count: 1 },
      { do: 'deliver', count: 1, fate: 'deliver' },
      { do: 'restartInPlace' },
      { do: 'wait', ms: 1700 },
      { do: 'reply', count: 1, fate: 'deliver' },
      { do: 'deliver', count: 1, fate: 'deliver' },
      { do: 'reply', count: 2, fate: 'deliver' },
    ]
    t.doesNotThrow(() => run(1, true, 10_000, script))
  },
)

/**
 * Two live batches of a life that began behind the question wait for what is before them, and one of it is on
 * its way.
 */
const waitingOfTheNextLife: readonly Step[] = [
  { do: 'connect' },
  { do: 'restartUnheard' },
  { do: 'publish', count: 3 },
  { do: 'deliver', count: 2, fate: 'overtake' },
]
const reply: Step = { do: 'reply', count: 1, fate: 'deliver' }

t.test('a replay that falls silent is not continued by what waits behind it of the next life', async t => {
  const script: readonly Step[] = [
    { do: 'publish', count: 2 },
    ...waitingOfTheNextLife,
    reply,
    { do: 'wait', ms: 1000 },
  ]
  t.doesNotThrow(() => runUnheard(1, true, KEPT_ALL, script))
})

t.test('a replay that ends late is not continued by what waits behind it of the next life', async t => {
  const script: readonly Step[] = [
    { do: 'publish', count: 1 },
    ...waitingOfTheNextLife,
    { do: 'wait', ms: 101 },
    reply,
    reply,
  ]
  t.doesNotThrow(() => runUnheard(1, true, KEPT_ALL, script))
})

t.test(
  'what the indexer refused of the next life does not continue a replay when it is tried again',
  async t => {
    const script: readonly Step[] = [
      { do: 'publish', count: 1 },
      ...waitingOfTheNextLife,
      reply,
      { do: 'refuse', count: 1 },
      reply,
      { do: 'wait', ms: 300 },
    ]
    t.doesNotThrow(() => runUnheard(1, true, KEPT_ALL, script))
  },
)

t.test(
  'what continued a replay of the life before, because it was just heard, is not exact for long',
  async t => {
    const world = new FollowerWorld(1, true, KEPT_ALL, false)
    const script: readonly Step[] = [{ do: 'publish', count: 1 }, ...waitingOfTheNextLife, reply, reply]
    for (const step of script) {
      take(world, step)
      world.check()
    }
    t.equal(world.trust, 'exact', world.reason)
    // The check is under way, and its answer is slow.
    take(world, { do: 'wait', ms: 101 })
    t.not(world.trust, 'exact', world.reason)
    take(world, reply)
    t.equal(world.held().size, 0, world.reason)
    world.settleForLong()
    world.checkTruth()
  },
)

t.test(
  'a batch that fills a hole late is partial, where what is before the hole may be of another life',
  async t => {
    const world = new FollowerWorld(1, true, KEPT_ALL, false)
    const script: readonly Step[] = [
      { do: 'connect' },
      reply,
      { do: 'publish', count: 1 },
      { do: 'deliver', count: 1, fate: 'deliver' },
      { do: 'restartUnheard' },
      { do: 'publish', count: 3 },
      { do: 'deliver', count: 1, fate: 'lose' },
      { do: 'deliver', count: 2, fate: 'overtake' },
    ]
    for (const step of script) {
      take(world, step)
      world.check()
    }
    t.equal(world.follower.status().lastSequence, 2)
    t.equal(world.trust, 'partial', world.reason)
    world.settleForLong()
    world.checkTruth()
  },
)

t.test(
  'a source that two contradictions kept apart looks at its replay now and then, and does not spin',
  async t => {
    const script: readonly Step[] = [
      { do: 'connect' },
      { do: 'publish', count: 2 },
      { do: 'deliver', count: 1, fate: 'overtake' },
      { do: 'restartUnheard' },
      { do: 'publish', count: 1 },
      { do: 'deliver', count: 2, fate: 'deliver' },
      { do: 'restartUnheard' },
      { do: 'publish', count: 1 },
      { do: 'deliver', count: 1, fate: 'deliver' },
      { do: 'wait', ms: 1000 },
      { do: 'publish', count: 7 },
    ]
    t.doesNotThrow(() => runUnheard(2147483639, true, 0, script))
  },
)

t.test('a replay that was slow once is asked again, though a check came in between', async t => {
  const script: readonly Step[] = [
    { do: 'publish', count: 20 },
    { do: 'connect' },
    { do: 'publish', count: 1 },
    { do: 'deliver', count: 1, fate: 'deliver' },
    { do: 'reply', count: 1, fate: 'deliver' },
    { do: 'wait', ms: 6254 },
    { do: 'publish', count: 1 },
    { do: 'wait', ms: 4147 },
  ]
  const world = runUnheard(126781600, true, KEPT_ALL, script)
  t.equal(`${world.trust} ${world.reason}`.slice(0, 5), 'exact', world.reason)
})

t.test('what an earlier attempt has told is missing when a later one ends before it', async t => {
  const world = new FollowerWorld(1, true, KEPT_ALL, false)
  const script: readonly Step[] = [
    { do: 'publish', count: 5 },
    { do: 'connect' },
    { do: 'reply', count: 1, fate: 'deliver' },
    { do: 'reply', count: 1, fate: 'lose' },
    { do: 'reply', count: 4, fate: 'deliver' },
    // The next attempt brings its first batch and its end.
    { do: 'reply', count: 1, fate: 'deliver' },
    { do: 'reply', count: 4, fate: 'lose' },
    { do: 'reply', count: 1, fate: 'deliver' },
  ]
  for (const step of script) take(world, step)
  t.not(world.trust, 'exact', world.reason)
  world.settle()
  t.equal(world.trust, 'exact', world.reason)
  t.strictSame([...world.held()].sort(), [...world.source.cached].sort())
})

// An engine that answers replays and keeps no batch at all cannot be told from one that has published none.
t.test('with a short replay buffer, what counts as held is held, and exact means equal', async t => {
  const holds = fc.property(seeds, fc.integer({ min: 1, max: 8 }), steps, (seed, keptMax, script) => {
    run(seed, true, keptMax, script)
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})

t.test('a router that begins anew with a checkpoint counts what is held, and exact means equal', async t => {
  let resumed = 0
  const holds = fc.property(
    seeds,
    fc.integer({ min: 1, max: 12 }),
    stepsOfRouters,
    (seed, keptMax, script) => {
      resumed += run(seed, true, keptMax, script).resumed
    },
  )
  // Seeded: how often a checkpoint is taken over is part of what is tested.
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 800, seed: 1 }))
  t.ok(resumed > 100, `${resumed} checkpoints were taken over`)
})

t.test('without replay, what counts as held is held, and exact means equal', async t => {
  const holds = fc.property(seeds, steps, (seed, script) => {
    run(seed, false, 0, script)
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})

t.test('with snapshots and a short buffer, the index equals the cache once the source is whole', async t => {
  const holds = fc.property(seeds, fc.integer({ min: 1, max: 8 }), steps, (seed, keptMax, script) => {
    const world = run(seed, true, keptMax, script, true)
    const isReadable = !script.some(step => step.do === 'garbage')
    if (isReadable) assert.deepEqual([...world.held()].sort(), [...world.source.cached].sort())
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})

t.test('of restarts in place that nothing tells of, none is exact for long', async t => {
  const holds = fc.property(
    seeds,
    fc.oneof(fc.integer({ min: 0, max: 12 }), fc.constant(KEPT_ALL)),
    stepsOfLives,
    (seed, keptMax, script) => {
      const world = runUnheard(seed, true, keptMax, script)
      const hasGarbage = script.some(step => step.do === 'garbage')
      if (keptMax === KEPT_ALL && !hasGarbage) assert.equal(world.trust, 'exact', world.reason)
    },
  )
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})

t.test('a replay port of a neighbour is not believed, and one that is put right is', async t => {
  const holds = fc.property(
    seeds,
    fc.oneof(fc.integer({ min: 0, max: 12 }), fc.constant(KEPT_ALL)),
    stepsOfPorts,
    (seed, keptMax, script) => {
      const world = runUnheard(seed, true, keptMax, script)
      world.isPortWrong = false
      world.settleForLong()
      if (keptMax === KEPT_ALL || !world.wasSpliced) world.checkTruth()
      const hasGarbage = script.some(step => step.do === 'garbage')
      if (keptMax === KEPT_ALL && !hasGarbage) assert.equal(world.trust, 'exact', world.reason)
    },
  )
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 400 }))
})
