/** Dumps of blocks with labels: slices are bounded by the ids of workers, and each list is written once. */

import type { ActorRef } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { dumpEvents, dumpKey, dumpSlices, type KeyPart, pooledEvents } from '@homing/fleet'
import { BlockIndex, layeredOptions } from '@homing/index'
import { type KvEvent, type KvPoolPlace, kvRemoved, kvStored } from '@homing/protocol'
import t, { type Test } from 'tap'
import { type EventSourceMessage, type IndexerMessage, indexer } from '../src/index.ts'

const OPTIONS = { capacityBytes: 8 << 20, workerSlotsMax: 4 }
const CHAIN = 256
const CHAINS = 4

function start(t: Test, places: (block: number) => KvPoolPlace) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const { memory } = BlockIndex.create(layeredOptions(OPTIONS.capacityBytes, OPTIONS.workerSlotsMax))
  const args = { shard: 0, memory, labelBytes: 32 << 20, ...OPTIONS }
  const ref = system.spawn(indexer, { name: 'indexer', args })
  const source = system.probe<EventSourceMessage>('source')
  const apply = (event: KvEvent): void => {
    ref.tell({ type: 'apply', workerSlot: 0, blockSizeTokens: 1, events: [event], source: source.ref })
  }
  ref.tell({ type: 'clear', workerSlot: 0 })
  const chains = Array.from({ length: CHAINS }, (_, chain) =>
    Array.from({ length: CHAIN }, (_, i) => chain * CHAIN + i),
  )
  for (const ids of chains) {
    const tokens = Int32Array.from(ids)
    const event = kvStored({ hashes: hashesOf(ids), tokens, blockSizeTokens: 1 })
    apply({ ...event, labels: { experts: [], places: ids.map(places) } } as KvEvent)
  }
  const remove = (): void => {
    for (const ids of chains) apply(kvRemoved({ hashes: hashesOf(ids.toReversed()) }))
  }
  const within = async <T>(promise: Promise<T>): Promise<T> => {
    // Handled below.
    promise.catch(() => {})
    await system.settle()
    return promise
  }
  return { ref, within, remove }
}

const hashesOf = (ids: readonly number[]) => Int32Array.from(ids.flatMap(id => [id, 7]))

function pooled(poolId: number, from: number, workers: number): KvPoolPlace {
  const accessibleWorkers = Int32Array.from({ length: 2 * workers }, (_, i) => (i % 2 === 0 ? from + i : 0))
  return { state: 'cxl_pooled', poolId, accessibleWorkers }
}

async function partsOf(ref: ActorRef<IndexerMessage>): Promise<KeyPart[]> {
  const parts: KeyPart[] = []
  for await (const part of dumpSlices(ref, 0, 1000)) parts.push(part)
  return parts
}

function textOf({ blocks, apart }: KeyPart): string {
  let id = 0
  return dumpEvents(7n, 0, blocks, () => id++) + pooledEvents(7n, 0, apart, () => id++)
}

t.test('a list of 1,024 workers is written once for each event, not for each block', async t => {
  const place = pooled(5, 0, 1024)
  const { ref, within, remove } = start(t, () => place)
  const texts = (await within(partsOf(ref))).map(textOf)
  const bytes = texts.join().length
  t.ok(bytes < 600 * CHAIN * CHAINS, `${bytes / (CHAIN * CHAINS)} bytes a block`)
  remove()
  const moved = (await within(partsOf(ref))).filter(({ apart }) => apart.length > 0).map(textOf)
  t.ok(moved.join().length < 600 * CHAIN * CHAINS)
  t.ok(moved.join().match(/"block_hashes"/g)!.length <= 2 + (CHAIN * CHAINS) / 128)
})

for (const [name, places] of [
  ['other workers for each block', (block: number) => pooled(5, 4096 * (block % 8) + (block >> 3), 1024)],
  ['other pools for each block', (block: number) => ({ ...pooled(0, 0, 1024), poolId: block % 256 })],
] as const)
  t.test(`a slice stays small with ${name}`, async t => {
    const known = new Map<string, KvPoolPlace>()
    const { ref, within, remove } = start(t, block => {
      const place = places(block % 64)
      const key = `${place.poolId} ${place.accessibleWorkers[0]}`
      known.set(key, known.get(key) ?? place)
      return known.get(key)!
    })
    const held = await within(partsOf(ref))
    t.equal(held.flatMap(({ blocks }) => blocks).length, CHAIN * CHAINS)
    remove()
    const moved = await within(partsOf(ref))
    t.equal(moved.flatMap(({ apart }) => apart).length, CHAIN * CHAINS)
    const lengths = [...held, ...moved].map(part => textOf(part).length)
    t.ok(Math.max(...lengths) < 2 << 20, lengths.join())
  })

t.test('blocks of a slice with the same workers have the same array of them', async t => {
  const { ref, within } = start(t, block => pooled(5, block % 2, 3))
  const [part] = await within(partsOf(ref))
  t.equal(new Set(part!.blocks.map(({ label }) => label?.place?.accessibleWorkers)).size, 2)
})

t.test('a dump of keys has no labels', async t => {
  const { ref, within } = start(t, () => pooled(5, 0, 3))
  const slices = dumpKey(ref, 0, 1000)
  const { value } = await within(slices.next())
  t.equal(value?.length, 1024)
  t.notOk(value?.some(({ label }) => label !== undefined))
  await within(slices.return())
})
