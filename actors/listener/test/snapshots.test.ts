/** Publishers that offer snapshots: what they say is taken over, and how much they say they know. */

import { encodeSnapshotReply } from '@homing/protocol'
import t from 'tap'
import { LISTENER_LIMITS } from '../src/index.ts'
import { listenerWorld } from './listener-world.ts'

/** A publisher beside an engine: its own numbers, replays and snapshots. */
async function sidecarWorld(t: Parameters<typeof listenerWorld>[0]) {
  const world = await listenerWorld(t)
  const snapshot = { isWhole: false, refuses: 0, cutAfter: Number.POSITIVE_INFINITY, requests: 0 }
  world.answerSnapshot = send => {
    snapshot.requests++
    const header = { publisherId: '0123456789abcdef', nextSequence: world.source.lastSequence + 1 }
    if (snapshot.refuses-- > 0) {
      send(encodeSnapshotReply({ ...header, part: 0, parts: 0, isWhole: false }, new Uint8Array(0)))
      return
    }
    const batches = world.source.snapshot()
    for (const [part, payload] of batches.entries()) {
      if (part >= snapshot.cutAfter) return
      send(
        encodeSnapshotReply({ ...header, part, parts: batches.length, isWhole: snapshot.isWhole }, payload),
      )
    }
  }
  return { world, snapshot }
}

t.test('a snapshot is taken over, and its word for how much it knows', async t => {
  for (const isWhole of [true, false]) {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = isWhole
    for (let i = 0; i < 30; i++) world.source.publish()
    world.source.publishStore()
    world.startListener()
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    t.match(world.trust(), isWhole ? /^exact/ : /^partial: .*has not seen its whole history/)
    world.publish(5)
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    t.match(await world.status(), { state: 'live', gaps: 0, restarts: 0, lastSequence: 35 })
  }
})

t.test(
  'of a publisher that offers snapshots neither the number 0 nor a withdrawal says that nothing else is held',
  async t => {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = true
    world.startListener()
    await world.system.settle()
    t.match(world.trust(), /^exact/, 'as the snapshot says, before anything was published')
    snapshot.isWhole = false
    const { epoch } = world.directory.waiting.at(-1)!
    world.send(world.source.publishWithdrawal(), world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^partial: .*withdrew what it had told/)
    t.equal(
      world.directory.waiting.at(-1)!.epoch,
      epoch + 1,
      'answers of before say nothing of what is known now',
    )
    snapshot.isWhole = true
    await world.system.advance(LISTENER_LIMITS.resyncMsMin)
    t.match(world.trust(), /^exact/, 'the clear was of the engine, says the next snapshot')
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('a snapshot that is refused or cut short is asked for again', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  snapshot.isWhole = true
  snapshot.refuses = 1
  snapshot.cutAfter = 1
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  snapshot.cutAfter = Number.POSITIVE_INFINITY
  await world.system.advance('10s')
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
  t.ok(snapshot.requests >= 2)
})

t.test('a snapshot of nothing that does not know all is asked for again', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^partial/)
  world.publish(3)
  snapshot.isWhole = true
  await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})
