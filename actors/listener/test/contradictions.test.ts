/** Ports that are mistaken for others: a replay of another engine, and two publishers on one socket. */

import { seededRandom } from '@homing/base'
import t, { type Test } from 'tap'
import { LISTENER_LIMITS } from '../src/index.ts'
import { type ListenerWorld, listenerWorld, type WorldOptions } from './listener-world.ts'
import { SimulatedSource } from './simulated-source.ts'

const WRONG_PORT =
  /^partial: the replay at tcp:\/\/10.0.0.1:5558 has another history than the events at tcp:\/\/10.0.0.1:5557: is it another engine's port\?$/
const TWO_PUBLISHERS = /^partial: two publishers number their batches on tcp:\/\/10.0.0.1:5557/

/** Another engine, with hashes of its own. */
function neighbour(rank = 0): SimulatedSource {
  return new SimulatedSource(seededRandom(7), 10_000, 'vllm-map', { life: 100, rank })
}

/** A router whose replay port is that of a neighbour; `told`: what each had published before. */
async function wrongPort(
  t: Test,
  told: { readonly own: number; readonly other: number },
  options: WorldOptions = {},
): Promise<ListenerWorld> {
  const world = await listenerWorld(t, options)
  world.replaySource = neighbour()
  for (let i = 0; i < told.other; i++) world.replaySource.publishStore()
  for (let i = 0; i < told.own; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  return world
}

/** What is held is cached by the engine itself, unless nothing of it is to be believed. */
async function holdsOnlyItsOwn(t: Test, world: ListenerWorld): Promise<void> {
  if (world.trust().startsWith('none')) return
  const cached = world.cached()
  const foreign = (await world.held()).filter(hash => !cached.includes(hash))
  t.strictSame(foreign, [], world.trust())
}

for (const [what, told] of [
  ['tells more than its own engine has published', { own: 5, other: 50 }],
  ['tells more than is remembered', { own: 5, other: 1500 }],
  ['tells as much as its own engine has published', { own: 20, other: 20 }],
  ['tells less', { own: 30, other: 20 }],
] as const) {
  t.test(`a replay of a neighbour, which ${what}, is never exact again once a live batch came`, async t => {
    const world = await wrongPort(t, told)
    for (let i = 0; i < 20; i++) {
      world.send(world.source.publishStore())
      world.replaySource.publishStore()
      await world.system.advance(100)
      t.notMatch(world.trust(), /^exact/, `after ${i + 1} live batches`)
    }
    t.match(world.trust(), WRONG_PORT)
    await holdsOnlyItsOwn(t, world)
    t.match(world.directory.waiting.at(-1), { isSuffix: false }, 'which answers do not make up for')
    for (let i = 0; i < 300; i++) {
      world.send(world.source.publishStore())
      if (i % 3 === 0) world.replaySource.publishStore()
      await world.system.advance('1s')
      t.notMatch(world.trust(), /^exact/)
      await holdsOnlyItsOwn(t, world)
    }
    const { epoch, replays, contradictions } = await world.status()
    t.ok(epoch <= 8, `${epoch} epochs: what the live socket told since is kept`)
    t.ok(replays <= 30, `${replays} replays in five minutes`)
    t.ok(contradictions >= LISTENER_LIMITS.contradictionsMax)
  })
}

t.test('a port that is put right heals: the replay repeats what the live socket told', async t => {
  const world = await wrongPort(t, { own: 30, other: 50 })
  for (let i = 0; i < 30; i++) {
    world.send(world.source.publishStore())
    await world.system.advance('1s')
  }
  t.match(world.trust(), WRONG_PORT)
  world.replaySource = world.source
  await world.system.advance(2 * LISTENER_LIMITS.apartMsMax + 1000)
  world.send(world.source.publishStore())
  await world.system.advance(LISTENER_LIMITS.apartMsMax)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('a neighbour who publishes nothing is no contradiction: the replay keeps nothing', async t => {
  const world = await wrongPort(t, { own: 10, other: 0 })
  t.match(world.trust(), /^exact/, 'no engine that is idle could be told from it')
  for (let i = 0; i < 5; i++) {
    world.send(world.source.publishStore())
    await world.system.advance(100)
    t.match(world.trust(), /^partial: .*the engine's replay keeps none of its batches/)
    await holdsOnlyItsOwn(t, world)
  }
})

t.test('an engine that keeps no batches is exact where all of them were heard', async t => {
  const world = await listenerWorld(t, { keptMax: 0 })
  world.startListener()
  await world.system.settle()
  world.publish(10)
  await world.system.advance('5m')
  world.publish(10)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  world.lose(3)
  for (let i = 0; i < 3; i++) world.send(world.source.publishStore())
  await world.system.advance('1s')
  t.match(world.trust(), /^partial/)
  await holdsOnlyItsOwn(t, world)
})

t.test('a batch that comes late, and that the replay tells otherwise, contradicts it', async t => {
  const world = await listenerWorld(t)
  const other = neighbour()
  world.replaySource = other
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 3; i++) other.publishStore()
  const late = world.source.publishStore()
  world.source.publishStore()
  // Word for word what the own engine says under this number, as where two clocks stand still.
  const twin = other.replay(2)[0]!
  world.send(twin)
  await world.system.settle()
  t.match(world.trust(), /^exact/, 'which nobody can tell')
  world.send({ ...late, sequence: 1 })
  await world.system.settle()
  t.notMatch(world.trust(), /^exact/)
  await holdsOnlyItsOwn(t, world)
})

t.test('a batch of another dp rank is no restart, even where nothing is repeated', async t => {
  const world = await listenerWorld(t, { keptMax: 0 })
  world.startListener()
  await world.system.settle()
  world.send(world.source.publishStore())
  world.send(neighbour(1).publishStore())
  await world.system.settle()
  t.match(world.trust(), TWO_PUBLISHERS)
  t.strictSame(await world.held(), [])
})

for (const [what, ranks] of [
  ['of one rank', [0, 0]],
  ['of two ranks', [0, 1]],
] as const) {
  t.test(`two publishers ${what} on one socket are told apart, and neither is exact`, async t => {
    const world = await listenerWorld(t)
    const other = neighbour(ranks[1])
    world.startListener()
    await world.system.settle()
    for (let i = 0; i < 20; i++) {
      world.send(world.source.publishStore())
      await world.system.advance(50)
      world.send(other.publishStore())
      await world.system.advance(200)
      t.notMatch(world.trust(), /^exact/)
    }
    t.match(world.trust(), TWO_PUBLISHERS)
    if (ranks[1] === 1) t.match(world.trust(), /\(dp ranks 0 and 1\)/)
    const { replays, epoch } = await world.status()
    for (let i = 0; i < 600; i++) {
      world.send(world.source.publishStore())
      if (i % 2 === 0) world.send(other.publishStore())
      await world.system.advance(500)
      t.notMatch(world.trust(), /^exact/)
    }
    const after = await world.status()
    t.ok(after.replays - replays < 120, `${after.replays - replays} replays in five minutes`)
    t.ok(after.epoch - epoch < 60, `${after.epoch - epoch} epochs in five minutes`)

    // The other one is gone.
    for (let i = 0; i < 200; i++) {
      world.send(world.source.publishStore())
      await world.system.advance(500)
    }
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
  })
}

t.test('two ranks whose numbers coincide are told apart by their ranks at once', async t => {
  const world = await listenerWorld(t)
  const other = neighbour(1)
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 5; i++) {
    world.send(world.source.publishStore())
    other.publishStore()
  }
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  const { sequence } = other.publishStore()
  world.replayAnswers = false
  world.send(other.replay(sequence)[0]!)
  await world.system.settle()
  t.notMatch(world.trust(), /^exact/)
})

t.test('two publishers without a replay are told apart, too', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  const other = neighbour()
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 50; i++) {
    world.send(world.source.publishStore())
    world.send(other.publishStore())
    await world.system.advance(100)
  }
  t.match(world.trust(), TWO_PUBLISHERS)
  t.strictSame(await world.held(), [], 'nobody knows whose it would be')
  for (let i = 0; i < 120; i++) {
    world.send(world.source.publishStore())
    await world.system.advance('1s')
  }
  t.match(world.trust(), /^partial: older blocks are unknown/)
  await holdsOnlyItsOwn(t, world)
})

t.test('a constant rank that is not the one of the worker key is nothing to be told', async t => {
  const world = await listenerWorld(t)
  world.startListener({ dpRank: 3, key: 'engine:8000/3' })
  await world.system.settle()
  world.publish(20)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
})

t.test('restarts in place that are true are rebuilt at once, one by one', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  for (let life = 0; life < 6; life++) {
    world.publish(8)
    await world.system.settle()
    t.match(world.trust(), /^exact/, `life ${life}`)
    t.strictSame(await world.held(), world.cached())
    await world.system.advance(LISTENER_LIMITS.contradictionsWithinMs / 2)
    world.source.restart()
  }
  t.match(await world.status(), { restarts: 5 })
})

t.test(
  'an engine that restarts in place again and again is exact when it has been calm for a while',
  async t => {
    const world = await listenerWorld(t)
    world.startListener()
    await world.system.settle()
    for (let life = 0; life < 10; life++) {
      world.publish(4)
      await world.system.advance(200)
      world.source.restart()
    }
    for (let i = 0; i < 2 * (LISTENER_LIMITS.apartMsMax / 1000); i++) {
      world.publish(1)
      await world.system.advance('1s')
    }
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('a restart that is known from elsewhere explains what was contradictory', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  for (let life = 0; life < 5; life++) {
    world.publish(4)
    await world.system.settle()
    t.match(world.trust(), /^exact/, `life ${life}`)
    world.source.restart()
    world.publish(2)
    await world.system.settle()
    world.listener!.tell({ type: 'engineRestarted' })
    await world.system.settle()
  }
})
