/**
 * Batches that come late, or of a clock that was set back, are told from those of another life; where nothing
 * tells them apart, nobody is sure.
 */

import { seededRandom } from '@homing/base'
import { encodeKvBatch, kvRemoved } from '@homing/protocol'
import t from 'tap'
import { fingerprintOf } from '../src/seen-batches.ts'
import { listenerWorld } from './listener-world.ts'
import { isTrue, loseStores } from './lives-world.ts'
import { SimulatedSource } from './simulated-source.ts'

t.test('batch 0 that comes late, behind a replay that told it, is a repetition', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  const late = world.source.publish()
  world.publish(3)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  const before = await world.held()
  world.send(late)
  await world.system.settle()
  t.match(await world.status(), { restarts: 0, lastSequence: 3 })
  t.strictSame(await world.held(), before)
  await isTrue(t, world)
})

t.test(
  'a batch that comes late is no restart where nothing is repeated, and no history begins with it',
  async t => {
    const world = await listenerWorld(t, { hasReplay: false })
    world.startListener()
    await world.system.settle()
    const late = [world.source.publishStore(), world.source.publishStore()]
    for (let i = 0; i < 3; i++) world.send(world.source.publishStore())
    await world.system.settle()
    for (const batch of late) {
      world.send(batch)
      await world.system.settle()
      t.notMatch(world.trust(), /^exact/)
      await isTrue(t, world)
    }
    world.send(world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^partial/)
    await isTrue(t, world)
    t.match(await world.status(), { restarts: 0, droppedBatches: 2, lastSequence: 5 })
  },
)

for (const [hasReplay, isClear] of [
  [true, false],
  [true, true],
  [false, false],
  [false, true],
] as const) {
  t.test(
    `a batch left over from the life before, with just the number expected, is not believed ${hasReplay ? 'against' : 'without'} a replay${isClear ? '; one that clears the cache, too' : ''}`,
    async t => {
      const world = await listenerWorld(t, { hasReplay })
      world.startListener()
      await world.system.settle()
      loseStores(world, 3)
      const late = isClear ? world.source.publishClear() : world.source.publishStore()
      world.source.restart()
      for (let i = 0; i < 3; i++) world.send(world.source.publishStore())
      await world.system.settle()
      t.match(world.trust(), /^exact/)
      world.send(late)
      await world.system.settle()
      t.notMatch(world.trust(), /^exact/)
      await world.system.advance('5s')
      t.notMatch(world.trust(), /^exact/)
      world.send(world.source.publishStore())
      await world.system.advance('5s')
      t.match(world.trust(), hasReplay ? /^exact/ : /^partial/)
      await isTrue(t, world)
    },
  )
}

t.test('of several batches left over behind a hole none begins a history', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  world.startListener()
  await world.system.settle()
  loseStores(world, 3)
  const late = [world.source.publishClear(), world.source.publishStore()]
  world.source.restart()
  for (let i = 0; i < 2; i++) world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  for (const batch of late) {
    world.send(batch)
    await world.system.settle()
    t.notMatch(world.trust(), /^exact/)
    t.strictSame(await world.held(), [])
  }
  world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^partial/)
  await isTrue(t, world)
})

t.test('a clock that is set back costs no history where a replay tells the same', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(5)
  world.source.moveClock(-100)
  world.publish(5)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.match(await world.status(), { epoch: 1, restarts: 0, lastSequence: 9, droppedBatches: 0 })
  t.ok(world.replayRequests.length < 5, `${world.replayRequests.length} replays`)
  t.strictSame(await world.held(), world.cached())
})

t.test('nor without one, but nothing tells it from another life', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  world.source.moveClock(-100)
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^partial: .*the engine's clock was set back, or it restarted/)
  t.match(world.directory.waiting.at(-1), { isSuffix: false })
  t.strictSame(await world.held(), world.cached())
  world.send(world.source.publishClear())
  world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test(
  'a hole that is filled late by another life is not believed before the replay has told it',
  async t => {
    const world = await listenerWorld(t)
    world.startListener()
    await world.system.settle()
    for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^exact/)
    world.source.restart()
    loseStores(world, 5)
    const [fills, shows] = [world.source.publishStore(), world.source.publishStore()]
    world.replayAnswers = false
    world.send(shows)
    await world.system.settle()
    world.send(fills)
    await world.system.settle()
    t.notMatch(world.trust(), /^exact/, 'at once')
    await world.system.advance('5s')
    t.notMatch(world.trust(), /^exact/)
    world.replayAnswers = true
    await world.system.advance('65s')
    t.match(world.trust(), /^exact/)
    await isTrue(t, world)
  },
)

t.test('what the live socket told before the first batch that the replay keeps is not lost', async t => {
  const world = await listenerWorld(t, { keptMax: 2 })
  world.replayAnswers = false
  loseStores(world, 3)
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 4; i++) world.send(world.source.publishStore())
  await world.system.settle()
  world.replayAnswers = true
  await world.system.advance('4s')
  t.match(world.trust(), /^partial: older blocks are unknown: the engine's replay begins at sequence 5/)
  t.match(await world.status(), { lastSequence: 6, batches: 4 })
  await isTrue(t, world)
})

t.test('but what ends just before that batch may be of another life', async t => {
  const world = await listenerWorld(t)
  world.replayAnswers = false
  loseStores(world, 1)
  world.startListener()
  await world.system.settle()
  world.send(world.source.publishClear())
  await world.system.settle()
  world.source.restart({ nextSequence: 2 })
  loseStores(world, 1)
  world.send(world.source.publishStore())
  world.replayAnswers = true
  await world.system.advance('4s')
  t.match(world.trust(), /^partial: older blocks are unknown: the engine's replay begins at sequence 2/)
  await isTrue(t, world)
})

t.test('a replay that failed is compared in time, however often checks come between', async t => {
  const world = await listenerWorld(t)
  world.replayAnswers = false
  loseStores(world, 2)
  world.startListener()
  await world.system.settle()
  world.send(world.source.publishStore())
  await world.system.advance('10s')
  t.match(world.trust(), /^partial/)
  world.replayAnswers = true
  for (let i = 0; i < 40; i++) {
    if (i === 10) loseStores(world, 1)
    world.send(world.source.publishStore())
    await world.system.advance('3s')
  }
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
})

t.test('an engine that restarts in place while its clock is set back is followed anew', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 10; i++) world.send(world.source.publishStore())
  await world.system.settle()
  const next = new SimulatedSource(seededRandom(5), 0, 'vllm-map', { life: -640 })
  for (let i = 0; i < 8; i++) {
    world.send(next.publishStore())
    await world.system.advance('1s')
    const cached = [...next.cached]
    t.ok(
      (await world.held()).every(hash => cached.includes(hash)),
      'nothing of the life before',
    )
    t.notMatch(world.trust(), /^exact/)
  }
  t.match(world.trust(), /^partial/)
  t.ok((await world.held()).length > 0, 'what it tells counts again')
})

t.test('batches of a clock that stands still differ by what they tell', async t => {
  const batch = (hash: number, removed: number) =>
    encodeKvBatch(
      {
        timestampSeconds: 0,
        rank: 0,
        events: [
          kvRemoved({ hashes: Int32Array.of(1, 1) }),
          kvRemoved({ hashes: Int32Array.of(hash, hash) }),
          ...Array.from({ length: 4 }, () => kvRemoved({ hashes: Int32Array.of(1, removed) })),
        ],
      },
      'vllm-map',
    )
  t.equal(fingerprintOf(batch(7, 1)), fingerprintOf(batch(7, 1)))
  t.not(fingerprintOf(batch(7, 1)), fingerprintOf(batch(8, 1)), 'in the middle')
  t.not(fingerprintOf(batch(7, 1)), fingerprintOf(batch(7, 2)), 'at the end')
})

t.test('a batch that comes late does not prove a replay that lacks a later one', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  const late = [world.source.publishStore(), world.source.publishStore()]
  world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  world.losesReply = sequence => sequence === 7
  await world.system.advance('2s')
  t.notMatch(world.trust(), /^exact/, 'the replay lacks what had been heard')
  world.send(...late)
  await world.system.settle()
  t.notMatch(world.trust(), /^exact/)
  await world.system.advance('2s')
  await isTrue(t, world)
  world.losesReply = () => false
  for (let i = 0; i < 4; i++) {
    world.send(world.source.publishStore())
    await world.system.advance('20s')
  }
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
})

t.test(
  'what a replay tells behind the live batches that it joins is applied: the live socket may have lost it',
  async t => {
    const world = await listenerWorld(t)
    world.startListener()
    await world.system.settle()
    world.publish(3)
    await world.system.settle()
    world.lose(2)
    const shown = world.source.publishStore()
    // The replay is asked when they are published.
    world.lose(2)
    world.send(shown)
    await world.system.settle()
    t.match(await world.status(), { state: 'live', lastSequence: 7 })
    t.match(world.trust(), /^exact/)
    await isTrue(t, world)
  },
)
