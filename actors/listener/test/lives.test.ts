/**
 * One life of an engine is not mistaken for another: restarts in place, wherever they fall between replay and
 * live socket.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { LISTENER_LIMITS, type SourceTrust } from '../src/index.ts'
import { SequenceFollower } from '../src/sequence-follower.ts'
import { listenerWorld } from './listener-world.ts'
import { answerSnapshots, FEW, isTrue, lateWorld, loseStores } from './lives-world.ts'
import { type PublishedBatch, SimulatedSource } from './simulated-source.ts'

for (const replayed of [10, 60]) {
  t.test(
    `an engine restarts in place before a live batch was heard, behind ${replayed} batches of which 16 are remembered`,
    async t => {
      const world = await lateWorld(t, replayed, FEW)
      t.match(world.trust(), /^exact/)
      world.source.restart()
      world.replayAnswers = false
      world.publish(1)
      await world.system.settle()
      t.notMatch(world.trust(), /^exact/, 'at once')
      t.strictSame(await world.held(), [], 'nothing of the life before counts')
      world.replayAnswers = true
      world.publish(2)
      await world.system.advance('5s')
      t.match(world.trust(), /^exact/)
      await isTrue(t, world)
      t.match(await world.status(), { state: 'live', lastSequence: 2 })
    },
  )
}

t.test('a live socket that lags far behind the replay in the same life is no reason for a loop', async t => {
  const world = await listenerWorld(t, FEW)
  const batches = Array.from({ length: 100 }, () => world.source.publish())
  world.startListener()
  await world.system.settle()
  for (const batch of batches.slice(3)) {
    world.send(batch)
    await world.system.settle()
  }
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
  t.ok(world.replayRequests.length <= 3, `${world.replayRequests.length} replays`)
  t.match(await world.status(), { state: 'live', restarts: 0, lastSequence: 99 })
})

t.test(
  'what lags behind a replay that no longer reaches back to it is no reason for a loop either',
  async t => {
    const world = await listenerWorld(t, { ...FEW, keptMax: 30 })
    const batches = Array.from({ length: 100 }, () => world.source.publishStore())
    world.startListener()
    await world.system.settle()
    for (const batch of batches.slice(3)) {
      world.send(batch)
      await world.system.settle()
      t.notMatch(world.trust(), /^exact/)
    }
    t.ok(world.replayRequests.length <= 3, `${world.replayRequests.length} replays`)
    t.match(await world.status(), { state: 'live', restarts: 0, lastSequence: 99 })
    t.match(world.trust(), /^partial: older blocks are unknown/)
    await isTrue(t, world)
  },
)

t.test('an engine restarts in place, and its first live batch is the one that is expected', async t => {
  const world = await lateWorld(t, 10)
  t.match(world.trust(), /^exact/)
  world.source.restart()
  world.lose(10)
  world.publish(1)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
  t.match(await world.status(), { restarts: 1, lastSequence: 10 })
})

t.test(
  'the same, while the replay socket is silent: exact for no longer than it may be unconfirmed',
  async t => {
    const world = await lateWorld(t, 10)
    world.source.restart()
    world.lose(10)
    world.replayAnswers = false
    world.publish(1)
    await world.system.advance(LISTENER_LIMITS.unconfirmedMsMax)
    t.match(world.trust(), /^partial: the replay at \S+:5558 has not yet repeated an event of \S+:5557/)
    t.match(world.directory.waiting.at(-1), { isSuffix: false }, 'which answers do not make up for')
    world.replayAnswers = true
    await world.system.advance('5s')
    t.match(world.trust(), /^exact/)
    await isTrue(t, world)
  },
)

t.test('a gap is filled only by a replay that repeats the batch before it', async t => {
  const world = await listenerWorld(t, { keptMax: 3 })
  world.startListener()
  await world.system.settle()
  world.publish(5)
  await world.system.settle()
  world.source.restart()
  // What it keeps then begins with the batch that is expected.
  loseStores(world, 7)
  world.send(world.source.publishStore())
  await world.system.settle()
  t.strictSame(world.replayRequests.at(-2), 4, 'the last batch is asked for again')
  await isTrue(t, world)
  t.match(world.trust(), /^partial/)
})

t.test('a check finds that the engine restarted in place and is silent', async t => {
  const world = await lateWorld(t, 10)
  world.source.restart()
  await world.system.advance(LISTENER_LIMITS.settleMs)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), [])
})

t.test('a check finds that the engine restarted in place, and keeps what comes next by number', async t => {
  const world = await lateWorld(t, 10, { keptMax: 10 })
  world.source.restart()
  loseStores(world, 20)
  await world.system.advance(LISTENER_LIMITS.settleMs)
  await isTrue(t, world)
  // Everything that was applied is repeated now and then, as far as there was no proof yet that it is one
  // life.
  const spliced = await listenerWorld(t)
  spliced.startListener()
  await spliced.system.settle()
  spliced.publish(3)
  await spliced.system.advance(LISTENER_LIMITS.settleMs)
  spliced.source.restart()
  spliced.lose(3)
  spliced.publish(5)
  await spliced.system.settle()
  t.match(
    spliced.trust(),
    /^partial: not all is known: .* two lives/,
    'only the hashes of its blocks show it',
  )
  await spliced.system.advance(LISTENER_LIMITS.checkIntervalMs)
  t.match(spliced.trust(), /^exact/)
  t.match(await spliced.status(), { restarts: 1 })
  await isTrue(t, spliced)
})

t.test('a live batch that comes after a silence is checked: the engine may have restarted in it', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.advance('10s')
  world.source.restart()
  world.lose(3)
  await world.system.advance(LISTENER_LIMITS.checkSilenceMs)
  world.publish(1)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
  t.match(await world.status(), { restarts: 1, lastSequence: 3 })
})

t.test('checks of a source of which nothing is amiss change nothing, and ask for little', async t => {
  const world = await lateWorld(t, 10)
  world.publish(5)
  await world.system.advance('2m')
  const { epoch } = await world.status()
  const asked = world.replayRequests.length
  for (let minute = 0; minute < 10; minute++) {
    for (let i = 0; i < 30; i++) world.send(world.source.publishStore())
    await world.system.advance('1m')
  }
  t.match(await world.status(), { epoch, restarts: 0, gaps: 0, lastSequence: 314 })
  const checks = world.replayRequests.slice(asked)
  t.ok(checks.length <= 20, `${checks.length} in ten minutes`)
  t.ok(
    checks.every((from, i) => i === 0 || from - checks[i - 1]! <= 31),
    `each goes on where the last one ended: ${checks}`,
  )
  t.strictSame(world.trusts(), ['none', 'exact'])
})

t.test('a late batch of another life does not fill a hole', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(5)
  const [lost, behind] = [world.source.publishStore(), world.source.publishStore()]
  t.equal(lost.sequence, 5)
  world.replayAnswers = false
  world.send(behind)
  await world.system.settle()
  world.source.restart()
  world.lose(5)
  world.send(world.source.publishStore())
  await world.system.settle()
  t.notMatch(world.trust(), /^exact/)
  world.replayAnswers = true
  await world.system.advance('10s')
  world.publish(1)
  await world.system.advance('1s')
  await isTrue(t, world)
  t.match(world.trust(), /^exact/)
})

t.test(
  'a replay that is cut off by a restart in place is not continued by that of the next life',
  async t => {
    const world = await listenerWorld(t, { limits: { replayTimeoutMs: 500 } })
    world.lose(20)
    world.replayEnds = false
    world.losesReply = sequence => sequence >= 10
    world.startListener()
    await world.system.settle()
    world.source.restart()
    world.losesReply = () => false
    world.replayEnds = true
    world.lose(15)
    await world.system.advance('5s')
    await isTrue(t, world)
    world.publish(1)
    await world.system.advance('5s')
    t.match(world.trust(), /^exact/)
    await isTrue(t, world)
  },
)

t.test(
  'a gap behind a snapshot is filled by another snapshot: no batch before it could be repeated',
  async t => {
    const world = await listenerWorld(t)
    answerSnapshots(world)
    loseStores(world, 10)
    world.startListener()
    await world.system.settle()
    t.match(world.trust(), /^exact/)
    world.source.restart()
    loseStores(world, 11)
    world.send(world.source.publishStore())
    await world.system.advance('10s')
    t.match(world.trust(), /^exact/)
    await isTrue(t, world)
  },
)

t.test('while the index has not forgotten what was before, nothing counts', async t => {
  const source = new SimulatedSource(seededRandom(1), 100)
  let takesClear = true
  let said: SourceTrust | undefined
  const follower = new SequenceFollower(
    {
      nowMs: () => 0,
      apply: () => true,
      clear: () => takesClear,
      restore: () => false,
      hasBase: () => false,
      restoreBase: () => true,
      dropBase: () => {},
      checkpointSettled: () => {},
      hashesFailed: () => {},
      startReplay: () => {},
      askRest: () => {},
      stopReplay: () => {},
      setWait: () => {},
      trustChanged: trust => {
        said = trust
      },
    },
    { eventsEndpoint: 'tcp://a:5557', replayEndpoint: undefined, dpRank: 0, limits: LISTENER_LIMITS },
  )
  const live = ({ sequence, payload }: PublishedBatch) => follower.live(sequence, payload)
  follower.connected()
  live(source.publish())
  t.match(said, { trust: 'exact' })
  source.publish()
  takesClear = false
  live(source.publish())
  t.match(said, { trust: 'none', reason: /the index accepts no more events now/ })
})
