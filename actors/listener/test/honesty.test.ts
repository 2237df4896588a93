/**
 * Cases that must not be called `exact`: frames that found no room, sockets that went down unseen, histories
 * that nobody can read.
 */

import { encodeEventFrames } from '@homing/protocol'
import t from 'tap'
import { LISTENER_LIMITS } from '../src/index.ts'
import { listenerWorld } from './listener-world.ts'

t.test('frames that found no room are asked for again, though nothing comes after them', async t => {
  const world = await listenerWorld(t, { mailboxCapacity: 4 })
  world.startListener()
  await world.system.settle()
  world.publish(40)
  await world.system.settle()
  t.ok((await world.status()).lostFrames > 0)
  await world.system.advance('30s')
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
  t.match(await world.status(), { lastSequence: 39 })
})

t.test('without replay, after frames that found no room nothing of before counts', async t => {
  const world = await listenerWorld(t, { mailboxCapacity: 4, hasReplay: false })
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 20; i++) {
    world.send(world.source.publishStore())
    await world.system.settle()
  }
  for (let i = 0; i < 40; i++) world.send(world.source.publishStore())
  await world.system.advance('1s')
  t.ok((await world.status()).lostFrames > 0)
  t.match(world.trust(), /^partial/)
  t.ok((await world.held()).every(hash => world.source.cached.has(hash)))
})

t.test('a connection that went and came while the mailbox was full is noticed', async t => {
  const world = await listenerWorld(t, { mailboxCapacity: 4 })
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 10; i++) world.send(world.source.publishStore())
  await world.system.advance('5s')
  const before = (await world.status()).epoch
  // Its word finds no room behind these, and its successor is silent.
  for (let i = 0; i < 8; i++) world.send(world.source.publishStore())
  world.stopEngine()
  world.source.restart()
  await world.startEngine()
  await world.system.advance('30s')
  t.ok((await world.status()).epoch > before)
  t.strictSame(await world.held(), [])
})

t.test('a history under another topic is not taken for none', async t => {
  const world = await listenerWorld(t, { topic: 'kv', engineTopic: 'other' })
  world.lose(5)
  world.startListener()
  await world.system.advance('10s')
  t.match(world.trust(), /^partial: .*under another topic/)
  t.ok((await world.status()).foreignTopics > 0)
})

t.test('an event of a kind that is not known may be a removal', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  // [131072.0, [["BlocksEvicted", [1]]], 0] in MessagePack.
  const payload = Buffer.from([
    0x93,
    0xcb,
    0x41,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0x91,
    0x92,
    0xad,
    ...Buffer.from('BlocksEvicted'),
    0x91,
    1,
    0,
  ])
  world.sendFrames(encodeEventFrames('', 3, payload))
  await world.system.settle()
  t.match(world.trust(), /^partial: 1 batches could not be read/)
})

t.test('orphans that a rebuild did not help are not a reason for another', async t => {
  const world = await listenerWorld(t)
  world.publish(5)
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  const orphans = {
    type: 'resync',
    cause: 'orphans',
    reason: 'too many blocks whose parent is unknown',
  } as const
  const { epoch } = await world.status()
  for (let i = 0; i < 4; i++) {
    world.listener!.tell(orphans)
    await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  }
  t.match(await world.status(), { epoch: epoch + 1, state: 'live' })
  t.match(world.trust(), /^partial: not all is known: too many blocks whose parent is unknown/)
  // Of another life of the engine nothing is known yet.
  world.source.restart()
  world.publish(3)
  await world.system.advance('10s')
  t.match(world.trust(), /^exact/)
})

t.test('what the index dropped is missing, until the cache is cleared', async t => {
  const world = await listenerWorld(t)
  world.publish(5)
  world.startListener()
  await world.system.settle()
  world.listener!.tell({ type: 'incomplete', reason: 'the index is full' })
  await world.system.settle()
  t.match(world.trust(), /^partial: not all is known: the index is full/)
  world.send(world.source.publishClear())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
})

t.test(
  'what a publisher beside an engine withdraws makes nothing whole, and what the engine clears does',
  async t => {
    const world = await listenerWorld(t, { hasReplay: false })
    world.startListener()
    await world.system.settle()
    world.send(world.source.publishWithdrawal(), world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^partial: .*withdrew its earlier events/, 'though it is batch 0')
    world.send(world.source.publishClear(), world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^exact/)
  },
)
