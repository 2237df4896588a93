import { createTestSystem } from '@homing/actor/testing'
import {
  BlockIndex,
  createIndexDoor,
  GUESSED_LAYER,
  type IndexMemory,
  IndexReader,
  KEY_LAYERS,
  layeredOptions,
  layerSlot,
  OverlapCounts,
  type ShardMemory,
} from '@homing/index'
import { KV_CLEARED, kvStored } from '@homing/protocol'
import t, { type Test } from 'tap'
import {
  type EventSourceMessage,
  type IndexerMessage,
  indexer,
  type ShardMemoryMessage,
  type ShardResetMessage,
} from '../src/index.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 4 }

const EVENT = kvStored({
  hashes: Int32Array.of(1, 0),
  tokens: Int32Array.of(5, 6),
  blockSizeTokens: 2,
})

const memoryOf = ({ capacityBytes, workerSlotsMax }: typeof OPTIONS): IndexMemory =>
  BlockIndex.create(layeredOptions(capacityBytes, workerSlotsMax)).memory

function start(t: Test, options = OPTIONS, memory: ShardMemory = memoryOf(options)) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const ref = system.spawn(indexer, {
    name: 'indexer',
    args: { shard: 2, memory, ...options },
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

t.test('an index that is full tells every source, once for each time that it is opened', async t => {
  const { system, ref, source } = start(t)
  const fill = (first: number): IndexerMessage => ({
    type: 'apply',
    workerSlot: 0,
    blockSizeTokens: 1,
    events: Array.from({ length: 40 }, (_, i) => {
      const ids = Array.from({ length: 1000 }, (_, k) => first + i * 1000 + k)
      return kvStored({
        hashes: Int32Array.from(ids.flatMap(id => [id, 1])),
        tokens: Int32Array.from(ids),
        blockSizeTokens: 1,
      })
    }),
    source: source.ref,
  })
  const said = () => source.waiting.filter(({ type }) => type === 'incomplete').length
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(fill(1))
  await system.advance('1s')
  t.equal(said(), 1)
  ref.tell(fill(100_000))
  await system.advance('1s')
  t.equal(said(), 1)
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(fill(200_000))
  await system.advance('1s')
  t.equal(said(), 2)
})

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
  const scores = new OverlapCounts()
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

t.test('tells readers which worker keys hold blocks in lower tiers, when that changes', async t => {
  const { system, ref, apply, source } = start(t)
  const router = system.probe<ShardMemoryMessage>('router')
  ref.tell({ type: 'attach', memoryNumber: undefined, reader: router.ref })
  ref.tell({ type: 'clear', workerSlot: 0 })
  ref.tell(apply())
  const onHost = { ...EVENT, tier: 'host' } as const
  ref.tell({ type: 'apply', workerSlot: 0, blockSizeTokens: 2, events: [onHost], source: source.ref })
  ref.tell({ type: 'apply', workerSlot: 0, blockSizeTokens: 2, events: [onHost], source: source.ref })
  await system.settle()
  ref.tell({ type: 'clear', workerSlot: 0 })
  await system.settle()
  t.strictSame(
    router.waiting.map(({ lowerLayers }) => lowerLayers),
    [{}, { 0: 1 << KEY_LAYERS.indexOf('host') }, {}],
  )
  t.equal(new Set(router.waiting.map(({ memoryNumber }) => memoryNumber)).size, 3)
})

t.test('what was sent is forgotten when its time is over, and when the cache is cleared', async t => {
  const { system, ref, memory, source } = start(t)
  const reader = new IndexReader([memory])
  const scores = new OverlapCounts()
  const localHashes = Int32Array.of(1, 2, 3, 4)
  const slot = layerSlot(0, GUESSED_LAYER, OPTIONS.workerSlotsMax)
  const send = (ttlMs: number) =>
    ref.tell({ type: 'routed', id: 'one', workerSlot: 0, epoch: 0, localHashes, ttlMs, blocksMax: 100 })
  const overlap = async () => {
    await system.settle()
    reader.overlap(localHashes, 2, scores)
    return scores.blocksOf(slot)
  }
  send(5000)
  await system.advance(4900)
  t.equal(await overlap(), 2)
  await system.advance(100)
  t.equal(await overlap(), 0)
  send(60_000)
  send(500)
  await system.advance(500)
  t.equal(await overlap(), 2, 'the longer time counts')
  ref.tell({ type: 'clear', workerSlot: 0 })
  t.equal(await overlap(), 0)
  send(60_000)
  t.equal(await overlap(), 2)
  ref.tell({ type: 'apply', workerSlot: 0, blockSizeTokens: 2, events: [KV_CLEARED], source: source.ref })
  t.equal(await overlap(), 0)
})

t.test(
  'tells readers that attached themselves where the shard is, when it moves and when it begins anew',
  async t => {
    const options = { capacityBytes: 16 << 20, workerSlotsMax: 4 }
    const door = createIndexDoor()
    const { system, ref, source } = start(t, options, door)
    const router = system.probe<ShardMemoryMessage>('router')
    const reader = new IndexReader([door])
    const scores = new OverlapCounts()
    const overlap = () => {
      reader.overlap(new Int32Array(2), 1, scores)
      return scores.isComplete
    }
    t.equal(overlap(), false, 'a door without memory')
    const take = () => {
      const { shard, memory, memoryNumber } = router.waiting.at(-1)!
      t.equal(shard, 2)
      reader.replaceShard(0, memory)
      return memoryNumber
    }
    ref.tell({ type: 'attach', memoryNumber: undefined, reader: router.ref })
    await system.settle()
    const first = take()
    t.equal(overlap(), true)
    ref.tell({ type: 'attach', memoryNumber: first, reader: router.ref })
    await system.settle()
    t.equal(router.waiting.length, 1, 'nothing new')

    // Much is held, then nothing: the shard moves when it has swept.
    const count = 60_000
    const hashes = Int32Array.from({ length: 2 * count }, (_, i) => i + 1)
    const events = [kvStored({ hashes, tokens: new Int32Array(2 * count), blockSizeTokens: 2 })]
    ref.tell({ type: 'clear', workerSlot: 1 })
    ref.tell({ type: 'apply', workerSlot: 1, blockSizeTokens: 2, events, source: source.ref })
    ref.tell({ type: 'release', workerSlot: 1, reply: () => {} } as never)
    for (let ms = 0; ms < 100 && router.waiting.length < 2; ms++) await system.advance(1)
    t.equal(router.waiting.length, 2)
    overlap()
    t.equal(reader.isStale(0), true)
    const second = take()
    t.not(second, first)
    overlap()
    t.equal(reader.isStale(0), false)

    // A bug: a slot that the shard has no room for. The reader learns at once that no writer has its memory.
    ref.tell({ type: 'clear', workerSlot: 99 })
    await system.advance(10)
    t.equal(overlap(), false)
    ref.tell({ type: 'attach', memoryNumber: second, reader: router.ref })
    await system.settle()
    t.not(take(), second)
    t.equal(overlap(), true)
  },
)
