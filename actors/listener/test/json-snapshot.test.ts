/**
 * Snapshots in JSON, as Dynamo's routers write them: they are read, count where a history begins in the
 * middle, and prove nothing.
 */

import { type ActorRef, defineActor } from '@homing/actor'
import { dumpEvents } from '@homing/fleet'
import { HELD_WORDS } from '@homing/index'
import t from 'tap'
import { readJsonSnapshot } from '../src/json-snapshot.ts'
import type { StoredSnapshotMessage } from '../src/messages.ts'
import { fullFor, type ListenerWorld, listenerWorld } from './listener-world.ts'

const ROOT = 'ffffffffffffff01'
const BLOCKS = [
  { parentEngineHash: undefined, engineHash: ROOT, localHash: '0000000000000011', isReachable: true },
  {
    parentEngineHash: ROOT,
    engineHash: 'ffffffffffffff02',
    localHash: '0000000000000012',
    isReachable: true,
  },
  {
    parentEngineHash: ROOT,
    engineHash: 'ffffffffffffff03',
    localHash: '8000000000000013',
    isReachable: true,
  },
] as const

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
const dumped = (instanceId: bigint, dpRank = 0): string => {
  let eventId = 0
  return dumpEvents(instanceId, dpRank, BLOCKS, () => eventId++)
}

/** Answers every question for a stored snapshot with the bytes that it was made with. */
const store = defineActor(
  import.meta.url,
  'store',
)<StoredSnapshotMessage, Uint8Array>({
  setup: (_, bytes) => ({ storedSnapshot: ({ reply }) => reply(bytes) }),
})

t.test('the blocks of a rank are read, parents first', async t => {
  const image = readJsonSnapshot(bytesOf(`[${dumped(2n ** 63n)},${dumped(2n ** 63n, 1)}]`), 0)
  t.strictSame([...image.parents], [0, 1, 1])
  t.equal(image.held.length, 3 * HELD_WORDS)
  t.strictSame([...image.held.subarray(0, 5)], [1, 0, 1, -255, -1])
  t.strictSame([...image.localHashes], [0x11, 0, 0x12, 0, 0x13, -(2 ** 31)])
  t.equal(readJsonSnapshot(bytesOf('[]'), 0).parents.length, 0)
})

t.test('one that cannot be used says why', async t => {
  for (const [text, reason] of [
    [`[${dumped(1n)}`, /it is not JSON/],
    [`[${dumped(1n)},${dumped(2n)}]`, /events of the workers 1 and 2: store those of each/],
    ['[7]', /event 0 cannot be read/],
    ['[{"worker_id":1,"event":{"data":{"stored":{"blocks":[{"block_hash":1}]}}}}]', /event 0 cannot be read/],
    ['[{"worker_id":-1,"event":{"data":{"stored":{"blocks":[]}}}}]', /event 0 cannot be read/],
  ] as const)
    t.throws(() => readJsonSnapshot(bytesOf(text), 0), { message: reason })
})

t.test('blocks below an unknown parent are left out', async t => {
  const event = (parent: number, block: number) =>
    `{"worker_id":1,"event":{"data":{"stored":{"parent_hash":${parent},"blocks":[{"block_hash":${block},"tokens_hash":1}]}}}}`
  t.equal(readJsonSnapshot(bytesOf(`[${event(8, 9)},${event(9, 10)}]`), 0).parents.length, 0)
})

t.test('it counts where the history begins in the middle, and the history stays partial', async t => {
  for (const isWhole of [false, true]) {
    const world = await listenerWorld(t)
    const ask = (bytes: Uint8Array): ActorRef<StoredSnapshotMessage> =>
      world.system.spawn(store, { name: 'store', args: bytes })
    const kept = isWhole ? 0 : 20
    for (let i = 0; i < 30; i++) world.source.publishStore()
    world.losesReply = sequence => sequence < kept
    world.startListener({ snapshots: ask(bytesOf(`[${dumped(1n)}]`)) })
    await world.system.settle()
    await world.system.advance('3s')
    const held = await world.held()
    const ofSnapshot = BLOCKS.map(({ engineHash }) => engineHash)
    t.equal(
      ofSnapshot.every(hash => held.includes(hash)),
      !isWhole,
    )
    if (isWhole) t.match(world.trust(), /^exact/)
    else t.match(world.trust(), /^partial: .*what was before is of a snapshot that nothing proves/)
  }
})

const storedBeside = (world: ListenerWorld): ActorRef<StoredSnapshotMessage> =>
  world.system.spawn(store, { name: 'store', args: bytesOf(`[${dumped(1n)}]`) })

async function countsSnapshot(world: ListenerWorld): Promise<boolean> {
  const held = await world.held()
  return BLOCKS.some(({ engineHash }) => held.includes(engineHash))
}

t.test(
  'once a history has begun without it, it is dropped: a later history may be of another life',
  async t => {
    const world = await listenerWorld(t, { keptMax: 30 })
    for (let i = 0; i < 20; i++) world.source.publishStore()
    world.startListener({ snapshots: storedBeside(world) })
    await world.system.settle()
    t.match(world.trust(), /^exact/)
    for (let i = 0; i < 60; i++) world.source.publishStore()
    world.send(world.source.publishStore())
    await world.system.settle()
    await world.system.advance('60s')
    t.match(world.trust(), /^partial: older blocks are unknown: the engine's replay begins at sequence \d+$/)
    t.notOk(await countsSnapshot(world))
  },
)

t.test('an engine that restarts before its history begins ends it', async t => {
  const world = await listenerWorld(t)
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.losesReply = sequence => sequence < 20
  world.replayAnswers = false
  world.startListener({ snapshots: storedBeside(world) })
  await world.system.settle()
  world.replayAnswers = true
  world.listener!.tell({ type: 'engineRestarted', startSeconds: undefined })
  await world.system.settle()
  await world.system.advance('3s')
  t.match(world.trust(), /^partial: older blocks are unknown: the engine's replay begins at sequence 20$/)
  t.notOk(await countsSnapshot(world))
})

t.test('while the indexer has no room for it, nothing is applied, and then it counts', async t => {
  const world = await listenerWorld(t)
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.losesReply = sequence => sequence < 20
  let refusals = 3
  const applied: string[] = []
  const full = fullFor(world.indexer, ({ type }) => {
    if (type === 'load' && refusals-- > 0) return true
    applied.push(type)
    return false
  })
  world.startListener({ snapshots: storedBeside(world), indexer: full })
  await world.system.settle()
  await world.system.advance('10s')
  t.ok(await countsSnapshot(world))
  t.match(world.trust(), /^partial: .*what was before is of a snapshot that nothing proves/)
  const before = applied.slice(0, applied.indexOf('load'))
  t.notOk(before.includes('apply'), 'what comes later is not applied before it')
})
