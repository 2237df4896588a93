/** Evictions for indexers of other shards: each takes them once, and one that is gone holds nothing up. */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import { type KvEvent, kvRemoved } from '@homing/protocol'
import t from 'tap'
import { ToldEvictions } from '../src/told-evictions.ts'
import { fullFor, listenerWorld } from './listener-world.ts'

function indexer(name: string) {
  const state = { answer: 'ok' as 'ok' | 'full' | 'dead', taken: [] as number[] }
  const tell = (message: IndexerMessage): typeof state.answer => {
    if (message.type !== 'evictedElsewhere') throw new Error(`an indexer is told ${message.type}`)
    if (state.answer === 'ok') state.taken.push(...message.events.map(({ hashes }) => hashes[0]!))
    return state.answer
  }
  return { state, ref: { key: name, tell } as unknown as ActorRef<IndexerMessage> }
}

const moved = (hash: number, state: 'evicted' | 'local_gpu'): KvEvent => ({
  ...{ kind: 'transition', state, hashes: Int32Array.of(hash, 0) },
  ...{ poolId: undefined, accessibleWorkers: new Int32Array(0) },
})

t.test('a batch waits for the indexer that has no room, and the others take it once', async t => {
  const [one, full, three] = [indexer('one'), indexer('full'), indexer('three')] as const
  const told = new ToldEvictions([one.ref, full.ref, three.ref])
  full.state.answer = 'full'
  const batch = [moved(1, 'evicted'), kvRemoved({ hashes: Int32Array.of(9, 0) }), moved(2, 'local_gpu')]
  for (let attempt = 0; attempt < 3; attempt++) t.equal(told.tell(batch), false)
  t.strictSame([one.state.taken, three.state.taken], [[1], [1]], 'also those behind the full one')
  full.state.answer = 'ok'
  // It is decoded anew for each attempt.
  t.equal(told.tell([moved(1, 'evicted')]), true)
  t.strictSame([one.state.taken, full.state.taken, three.state.taken], [[1], [1], [1]])
})

t.test('another batch in its place is told to all', async t => {
  const [one, full] = [indexer('one'), indexer('full')] as const
  const told = new ToldEvictions([one.ref, full.ref])
  full.state.answer = 'full'
  t.equal(told.tell([moved(1, 'evicted')]), false)
  full.state.answer = 'ok'
  t.equal(told.tell([moved(2, 'evicted')]), true)
  t.equal(told.tell([moved(1, 'evicted')]), true)
  t.strictSame(
    [one.state.taken, full.state.taken],
    [
      [1, 2, 1],
      [2, 1],
    ],
  )
})

t.test('what was refused before a clear is over: the same evictions are told to all again', async t => {
  const [one, full] = [indexer('one'), indexer('full')] as const
  const told = new ToldEvictions([one.ref, full.ref])
  full.state.answer = 'full'
  t.equal(told.tell([moved(1, 'evicted')]), false)
  full.state.answer = 'ok'
  told.reset()
  t.equal(told.tell([moved(1, 'evicted')]), true)
  t.strictSame([one.state.taken, full.state.taken], [[1, 1], [1]])
})

t.test('a batch that its own indexer has no room for is told once, until it is applied', async t => {
  const [one, two] = [indexer('one'), indexer('two')] as const
  const told = new ToldEvictions([one.ref, two.ref])
  for (let attempt = 0; attempt < 3; attempt++) t.equal(told.tell([moved(1, 'evicted')]), true)
  t.strictSame([one.state.taken, two.state.taken], [[1], [1]])
  told.reset()
  t.equal(told.tell([moved(1, 'evicted')]), true)
  t.strictSame(
    [one.state.taken, two.state.taken],
    [
      [1, 1],
      [1, 1],
    ],
    'the next one may have the same',
  )
})

t.test('a listener tells them once while its own indexer is full, and again with the next batch', async t => {
  const world = await listenerWorld(t)
  const other = indexer('other')
  let refusals = 0
  const own = fullFor(world.indexer, ({ type }) => type === 'apply' && refusals-- > 0)
  world.startListener({ indexer: own, otherIndexers: [other.ref] })
  await world.system.settle()
  await world.system.advance('1s')
  for (const sequence of [0, 1]) {
    refusals = 3
    world.send(world.source.publishEvents([moved(1, 'evicted')]))
    await world.system.settle()
    await world.system.advance('1s')
    t.equal((await world.status()).lastSequence, sequence)
    t.strictSame(other.state.taken, new Array(sequence + 1).fill(1))
  }
})

t.test('an indexer that is not there holds nothing up', async t => {
  const [one, gone] = [indexer('one'), indexer('gone')] as const
  gone.state.answer = 'dead'
  t.equal(new ToldEvictions([gone.ref, one.ref]).tell([moved(1, 'evicted')]), true)
  t.strictSame(one.state.taken, [1])
})

t.test('a batch without evictions concerns no other indexer', async t => {
  const full = indexer('full')
  full.state.answer = 'full'
  t.equal(new ToldEvictions([full.ref]).tell([moved(1, 'local_gpu')]), true)
})
