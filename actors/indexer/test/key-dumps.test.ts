/** A dump of a worker key, slice by slice, while events come. */

import type { ActorRef } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { formatHash, hashBlocks, namespaceSeed } from '@homing/blocks'
import { dumpKey, type IndexedBlock } from '@homing/fleet'
import { BlockIndex, layeredOptions } from '@homing/index'
import { kvStored } from '@homing/protocol'
import t, { type Test } from 'tap'
import { type EventSourceMessage, type IndexerMessage, indexer } from '../src/index.ts'

const OPTIONS = { capacityBytes: 8 << 20, workerSlotsMax: 4 }
/** Chains of 16 blocks each, so one chunk of the index for each. */
const CHAIN = 16

function start(t: Test) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const { memory } = BlockIndex.create(layeredOptions(OPTIONS.capacityBytes, OPTIONS.workerSlotsMax))
  const ref = system.spawn(indexer, { name: 'indexer', args: { shard: 0, memory, ...OPTIONS } })
  const source = system.probe<EventSourceMessage>('source')
  const store = (chain: number): void => {
    const ids = Array.from({ length: CHAIN }, (_, i) => chain * 1000 + i)
    const event = kvStored({
      hashes: Int32Array.from(ids.flatMap(id => [id, 7])),
      tokens: Int32Array.from(ids),
      blockSizeTokens: 1,
    })
    const message: IndexerMessage = {
      type: 'apply',
      workerSlot: 0,
      blockSizeTokens: 1,
      events: [event],
      source: source.ref,
    }
    ref.tell(message)
  }
  const within = async <T>(promise: Promise<T>): Promise<T> => {
    // Handled below.
    promise.catch(() => {})
    await system.settle()
    return promise
  }
  ref.tell({ type: 'clear', workerSlot: 0 })
  return { system, ref, store, within }
}

t.test('a dump names hashes and parents as hex words', async t => {
  const { ref, store, within } = start(t)
  store(1)
  const blocks = await within(dumpAll(ref, 0))
  const { local } = hashBlocks(Int32Array.of(1000, 1001), 1, namespaceSeed())
  t.strictSame(blocks.slice(0, 2), [
    {
      engineHash: '00000007000003e8',
      parentEngineHash: undefined,
      localHash: formatHash(local[0]!, local[1]!),
      isReachable: true,
    },
    {
      engineHash: '00000007000003e9',
      parentEngineHash: '00000007000003e8',
      localHash: formatHash(local[2]!, local[3]!),
      isReachable: true,
    },
  ])
  t.equal(blocks.length, CHAIN)
  t.strictSame(await within(dumpAll(ref, 3)), [], 'a slot that is not open')
})

t.test('a slice is bounded, and events are applied between two of them', async t => {
  const { ref, store, within } = start(t)
  for (let chain = 1; chain <= 200; chain++) store(chain)
  const slices = dumpKey(ref, 0, 1000)
  const counts: number[] = []
  const named = new Set<string>()
  for (let i = 0; ; i++) {
    const next = await within(slices.next())
    if (next.done === true) break
    counts.push(next.value.length)
    for (const { engineHash } of next.value) named.add(engineHash)
    store(300 + i)
    const { blocksHeld } = await within(ref.ask({ type: 'status' }, { timeout: 1000 }))
    t.equal(blocksHeld[0], (200 + i + 1) * CHAIN, 'applied before the next slice is asked for')
  }
  t.strictSame(counts, [1024, 1024, 1024, 128])
  t.equal(named.size, 200 * CHAIN)
})

t.test('a dump that is not asked for its next slice is ended, and so is one by another', async t => {
  const { system, ref, store, within } = start(t)
  for (let chain = 1; chain <= 200; chain++) store(chain)
  const slow = dumpKey(ref, 0, 1000)
  t.equal((await within(slow.next())).value?.length, 1024)
  await system.advance('29s')
  t.equal((await within(slow.next())).value?.length, 1024, 'in time')
  await system.advance('31s')
  await t.rejects(within(slow.next()), { code: 'HOMING_FLEET_DUMP_ENDED' })

  const first = dumpKey(ref, 0, 1000)
  await within(first.next())
  const second = dumpKey(ref, 0, 1000)
  await within(second.next())
  await t.rejects(within(first.next()), { code: 'HOMING_FLEET_DUMP_ENDED' })
  t.equal((await within(second.next())).value?.length, 1024, 'the end of the first does not end the second')
  await within(second.return())
  t.equal(await within(ref.ask({ type: 'dump', workerSlot: 0, dump: 4 }, { timeout: 1000 })), 'ended')
})

/** All slices of a dump. */
async function dumpAll(ref: ActorRef<IndexerMessage>, workerSlot: number): Promise<IndexedBlock[]> {
  const all: IndexedBlock[] = []
  for await (const blocks of dumpKey(ref, workerSlot, 1000)) all.push(...blocks)
  return all
}
