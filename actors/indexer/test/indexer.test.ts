import { createTestSystem } from '@homing/actor/testing'
import { BlockIndex, IndexReader, OverlapScores } from '@homing/index'
import { kvStored } from '@homing/protocol'
import t from 'tap'
import {
  type EventSourceMessage,
  type IndexerMessage,
  indexer,
  type ShardResetMessage,
} from '../src/index.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 4 }

const EVENT = kvStored({
  hashes: Int32Array.of(1, 0),
  tokens: Int32Array.of(5, 6),
  blockSizeTokens: 2,
})

function start(t: Tap.Test) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const { memory } = BlockIndex.create(OPTIONS)
  const ref = system.spawn(indexer, {
    name: 'indexer',
    args: { shard: 2, memory, ...OPTIONS },
    supervision: { directive: 'restart', max: 3, within: '1m', backoff: { min: 10, max: 10 } },
  })
  const source = system.probe<EventSourceMessage>('source')
  const apply = (): IndexerMessage => ({
    type: 'apply',
    workerSlot: 0,
    blockSizeTokens: 2,
    events: [EVENT],
    source: source.ref,
  })
  const held = async () => {
    const status = ref.ask({ type: 'status' }, { timeout: 1000 })
    await system.settle()
    return (await status).blocksHeld[0]
  }
  return { system, memory, ref, source, apply, held }
}

t.test('applies what follows a clear, and asks for a resync of what does not', async t => {
  const { system, ref, source, apply, held } = start(t)
  ref.tell(apply())
  await system.settle()
  t.match(source.waiting, [{ type: 'resync', cause: 'lost' }])
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(apply())
  t.equal(await held(), 1)
  t.equal(source.waiting.length, 1)
})

t.test('tells the source the block size that it did not know', async t => {
  const { system, ref, source, apply } = start(t)
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell({ ...apply(), blockSizeTokens: undefined } as IndexerMessage)
  await system.settle()
  t.strictSame(source.waiting, [{ type: 'learned', blockSizeTokens: 2 }])
})

t.test('begins anew in the same memory after a failure; observers and sources learn it', async t => {
  const { system, memory, ref, source, apply, held } = start(t)
  const observer = system.probe<ShardResetMessage>('observer')
  ref.tell({ type: 'observe', incarnation: undefined, observer: observer.ref })
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(apply())
  t.equal(await held(), 1)
  const { incarnation } = observer.waiting[0]!
  ref.tell({ type: 'observe', incarnation, observer: observer.ref })
  await system.settle()
  t.equal(observer.waiting.length, 1, 'nothing new')

  // A bug: a slot that the shard has no room for.
  ref.tell({ type: 'clear', workerSlot: 99 })
  await system.advance(10)
  const reader = new IndexReader([memory])
  const scores = new OverlapScores()
  reader.overlap(new Int32Array(2), 1, scores)
  t.equal(scores.length, 0, 'readers see an empty index')
  ref.tell({ type: 'observe', incarnation, observer: observer.ref })
  ref.tell(apply())
  await system.settle()
  t.match(observer.waiting[1], { type: 'shardReset', shard: 2, openSlots: [] })
  t.not(observer.waiting[1]!.incarnation, incarnation)
  t.match(source.waiting, [{ type: 'resync' }])
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(apply())
  t.equal(await held(), 1)
})

t.test('a released slot is empty before the answer', async t => {
  const { system, ref, apply, held } = start(t)
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(apply())
  const released = ref.ask({ type: 'release', workerSlot: 0 }, { timeout: 1000 })
  await system.settle()
  t.equal(await released, 'released')
  t.equal(await held(), undefined)
})

declare namespace Tap {
  interface Test {
    teardown(callback: () => unknown): void
  }
}
