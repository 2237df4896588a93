/**
 * Whatever an engine does before, during and after a peer's answer: no inherited block is missing at the
 * engine, once the events published until then have arrived.
 */

import assert from 'node:assert/strict'
import { type ActorRef, defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { type EventSourceMessage, type IndexerMessage, indexer } from '@homing/actors/indexer'
import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { dumpKey, type IndexedBlock } from '@homing/fleet'
import {
  createIndexMemory,
  createLabelMemory,
  IndexReader,
  layeredOptions,
  OverlapCounts,
} from '@homing/index'
import { KV_CLEARED, type KvEvent, type KvStored, kvRemoved, kvStored } from '@homing/protocol'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type InheritedRun, inheritor } from '../src/inheritor.ts'

const BLOCK = 4
const SIZES = { capacityBytes: 1 << 20, workerSlotsMax: 2 }
const SLOT = 1

/** A path through a tree of blocks, one letter per block; its engine hash is the whole path. */
const paths = fc
  .array(fc.constantFrom('a', 'b'), { minLength: 1, maxLength: 4 })
  .map(letters => letters.join(''))
const acts = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('store' as const), path: paths }) },
    { weight: 4, arbitrary: fc.record({ do: fc.constant('remove' as const), path: paths }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('clear' as const), path: fc.constant('') }) },
  ),
  { maxLength: 20 },
)

const hashOf = (path: string): Int32Array =>
  Int32Array.of(Number.parseInt(path.replaceAll('a', '1').replaceAll('b', '2'), 3), 0)
const tokensOf = (path: string): Int32Array =>
  Int32Array.from([...path].flatMap(letter => Array.from({ length: BLOCK }, () => letter.charCodeAt(0))))
const localsOf = (path: string): Int32Array => hashBlocks(tokensOf(path), BLOCK, DEFAULT_SEED).local

/** The cache of an engine: copies by path. */
class NaiveCache {
  readonly #copies = new Map<string, number>()

  /** What the engine publishes; undefined: it cannot do that now. */
  act(kind: 'store' | 'remove' | 'clear', path: string): KvEvent | undefined {
    if (kind === 'clear') {
      this.#copies.clear()
      return KV_CLEARED
    }
    const parent = path.slice(0, -1)
    const copies = this.#copies.get(path) ?? 0
    if (kind === 'remove') {
      if (copies === 0) return undefined
      this.#copies.set(path, copies - 1)
      return kvRemoved({ hashes: hashOf(path) })
    }
    if (parent !== '' && !this.#has(parent)) return undefined
    this.#copies.set(path, copies + 1)
    return kvStored({
      hashes: hashOf(path),
      parent: parent === '' ? undefined : hashOf(parent),
      tokens: tokensOf(path).slice(-BLOCK),
      blockSizeTokens: BLOCK,
    })
  }

  overlap(path: string): number {
    let blocks = 0
    while (blocks < path.length && this.#has(path.slice(0, blocks + 1))) blocks++
    return blocks
  }

  /** Parents first, only what can be reached. */
  dump(): InheritedRun[] {
    return [...this.#copies.keys()]
      .filter(path => this.overlap(path) === path.length)
      .sort((a, b) => a.length - b.length)
      .map(path => ({
        parent: path.length === 1 ? undefined : hashOf(path.slice(0, -1)),
        engineHashes: hashOf(path),
        localHashes: localsOf(path).slice(-2),
      }))
  }

  #has(path: string): boolean {
    return (this.#copies.get(path) ?? 0) > 0
  }
}

function allPaths(): string[] {
  let level = ['a', 'b']
  const paths: string[] = []
  for (let length = 1; length <= 4; length++) {
    paths.push(...level)
    level = level.flatMap(path => [`${path}a`, `${path}b`])
  }
  return paths
}

async function world() {
  const system = createTestSystem()
  const memory = createIndexMemory(SIZES)
  const indexer = system.probe<IndexerMessage>('indexer')
  const source = system.probe<EventSourceMessage>('source')
  const ref = system.spawn(inheritor, { name: 'inheritor', args: { ...SIZES, memory, indexer: indexer.ref } })
  const reader = new IndexReader([memory])
  const scores = new OverlapCounts()
  const overlap = (path: string): number => {
    reader.overlap(localsOf(path), path.length, scores)
    return scores.blocksOf(SLOT)
  }
  const apply = (...events: readonly (KvEvent | undefined)[]): void => {
    for (const event of events) {
      if (event === undefined) continue
      const message = { type: 'apply', workerSlot: SLOT, blockSizeTokens: BLOCK, source: source.ref } as const
      ref.tell({ ...message, events: [event] })
    }
  }
  return { system, ref, indexer, overlap, apply }
}

t.test('it is never more than the engine holds', async t => {
  const agree = fc.asyncProperty(acts, acts, acts, acts, async (before, kept, late, after) => {
    const { system, ref, indexer, overlap, apply } = await world()
    const cache = new NaiveCache()
    const publish = (list: typeof before): (KvEvent | undefined)[] =>
      list.map(act => cache.act(act.do, act.path))
    publish(before)
    ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
    ref.tell({ type: 'clear', workerSlot: SLOT })
    apply(...publish(kept))
    // What the peer says is of some moment after the connection was up.
    const runs = cache.dump()
    apply(...publish(late))
    void ref.ask({ type: 'inherit', workerSlot: SLOT, runs }, { timeout: 1000 })
    await system.settle()
    const check = (when: string): void => {
      for (const path of allPaths()) {
        const [held, truth] = [overlap(path), cache.overlap(path)]
        assert.ok(held <= truth, `${when}: ${path} has ${held} blocks, and the engine holds ${truth}`)
      }
    }
    check('once inherited')
    if (kept.length + late.length === 0) {
      for (const path of allPaths()) assert.equal(overlap(path), cache.overlap(path), `all of ${path}`)
    }
    for (const act of after) {
      apply(cache.act(act.do, act.path))
      await system.settle()
      check(`after ${act.do} ${act.path}`)
    }
    const applied = indexer.waiting.filter(({ type }) => type === 'apply').length
    assert.ok(applied <= kept.length + late.length + after.length, 'events are passed on once')
    await system.shutdown()
  })
  await t.resolves(fc.assert(agree, { numRuns: 150 }))
})

t.test('nothing is inherited without a connection, after another epoch, or twice', async t => {
  for (const clears of [0, 2]) {
    const { system, ref, overlap } = await world()
    ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
    for (let i = 0; i < clears; i++) ref.tell({ type: 'clear', workerSlot: SLOT })
    const cache = new NaiveCache()
    cache.act('store', 'a')
    const inherit = { type: 'inherit', workerSlot: SLOT, runs: cache.dump() } as const
    const blocks = ref.ask(inherit, { timeout: 1000 })
    await system.settle()
    t.strictSame([await blocks, overlap('a')], [0, 0], `${clears} clears`)
    await system.shutdown()
  }
  const { system, ref, overlap } = await world()
  const cache = new NaiveCache()
  cache.act('store', 'a')
  ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
  ref.tell({ type: 'clear', workerSlot: SLOT })
  const inherit = { type: 'inherit', workerSlot: SLOT, runs: cache.dump() } as const
  const first = ref.ask(inherit, { timeout: 1000 })
  await system.settle()
  t.strictSame([await first, overlap('a')], [1, 1])
  ref.tell({ type: 'clear', workerSlot: SLOT })
  await system.settle()
  t.equal(overlap('a'), 0, 'another epoch takes it away')
  const second = ref.ask(inherit, { timeout: 1000 })
  await system.settle()
  t.strictSame([await second, overlap('a')], [0, 0])
  await system.shutdown()
})

t.test('a removal of what only the dump named counts, whatever it says of its place', async t => {
  for (const fields of [{}, { group: 0 }, { group: 3 }, { tier: 'host' }, { tier: 'unknown' }] as const) {
    const { system, ref, overlap, apply } = await world()
    const cache = new NaiveCache()
    cache.act('store', 'a')
    cache.act('store', 'ab')
    ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
    ref.tell({ type: 'clear', workerSlot: SLOT })
    void ref.ask({ type: 'inherit', workerSlot: SLOT, runs: cache.dump() }, { timeout: 1000 })
    await system.settle()
    t.equal(overlap('ab'), 2)
    apply(kvRemoved({ hashes: hashOf('ab'), ...fields }))
    await system.settle()
    t.equal(overlap('ab'), 1, JSON.stringify(fields))
    await system.shutdown()
  }
})

t.test('a store by local hashes names the blocks that the dump named', async t => {
  const { system, ref, overlap, apply } = await world()
  const cache = new NaiveCache()
  for (const path of ['a', 'ab', 'aba']) cache.act('store', path)
  ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
  ref.tell({ type: 'clear', workerSlot: SLOT })
  void ref.ask({ type: 'inherit', workerSlot: SLOT, runs: cache.dump() }, { timeout: 1000 })
  await system.settle()
  t.equal(overlap('aba'), 3)
  const byHashes = (path: string, fields: Partial<KvStored> = {}): KvStored => {
    const store = new NaiveCache()
    for (let end = 1; end < path.length; end++) store.act('store', path.slice(0, end))
    const event = store.act('store', path) as KvStored
    const localHashes = localsOf(path).slice(-2)
    return kvStored({ ...event, tokens: new Int32Array(0), localHashes, ...fields })
  }
  apply(byHashes('ab'), byHashes('aba'), byHashes('abb'))
  await system.settle()
  t.equal(overlap('aba'), 3, 'what was inherited is as it was')
  t.equal(overlap('abb'), 3, 'and what follows is found')
  const fault = { localHashes: Int32Array.of(1, 2, 3, 4) }
  apply(byHashes('ab', fault), byHashes('abaa', { cacheSalt: 'tenant' }))
  await system.settle()
  t.equal(overlap('aba'), 3, 'as many hashes as blocks, or no store')
  t.equal(overlap('abaa'), 3, 'hashes say nothing of a salt')
  await system.shutdown()
})

t.test('a removal of a group that keeps other than whole prefixes leaves what is inherited', async t => {
  const { system, ref, overlap, apply } = await world()
  const cache = new NaiveCache()
  const store = cache.act('store', 'a') as KvStored
  ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
  ref.tell({ type: 'clear', workerSlot: SLOT })
  void ref.ask({ type: 'inherit', workerSlot: SLOT, runs: cache.dump() }, { timeout: 1000 })
  apply(kvStored({ ...store, hashes: hashOf('b'), group: 1, attention: 'sliding_window' }))
  apply(kvRemoved({ hashes: hashOf('a'), group: 1 }))
  await system.settle()
  t.equal(overlap('a'), 1)
  await system.shutdown()
})

/** An inheritor in front of an indexer with a small mailbox. */
function narrowWorld(t: Test) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const small = system.spawn(indexer, {
    name: 'indexer',
    args: { shard: 0, memory: createIndexMemory(layeredOptions(SIZES.capacityBytes, 2)), ...SIZES },
    mailbox: { capacity: 4 },
  })
  const memory = createIndexMemory(SIZES)
  const ref = system.spawn(inheritor, { name: 'inheritor', args: { ...SIZES, memory, indexer: small } })
  const source = system.probe<EventSourceMessage>('source')
  const other = system.probe<EventSourceMessage>('other')
  const store = (path: string): void => {
    const events = [new NaiveCache().act('store', path)!]
    ref.tell({ type: 'apply', workerSlot: SLOT, blockSizeTokens: BLOCK, source: source.ref, events })
  }
  /** More than the indexer has room for, before it has a turn. */
  const flood = (): void => {
    const message = { type: 'apply', workerSlot: 0, blockSizeTokens: BLOCK, source: other.ref } as const
    for (let i = 0; i < 20; i++) ref.tell({ ...message, events: [] })
  }
  const held = async (): Promise<number> => {
    const dump = dumpAll(small, SLOT)
    await system.settle()
    return (await dump).length
  }
  return { system, ref, source, other, store, flood, held }
}

t.test('a clear that finds the mailbox of the indexer full is told later, and nothing passes it', async t => {
  const { system, ref, source, other, store, flood, held } = narrowWorld(t)
  for (const workerSlot of [0, SLOT]) ref.tell({ type: 'clear', workerSlot })
  store('a')
  await system.settle()
  t.equal(await held(), 1)
  flood()
  ref.tell({ type: 'clear', workerSlot: SLOT })
  store('b')
  const image = ref.ask({ type: 'image', workerSlot: SLOT }, { timeout: 1000 })
  await system.settle()
  t.equal(await image, undefined, 'what was cleared is given to nobody')
  t.equal(source.waiting.length, 1, 'events that were not taken are answered with a resync')
  t.ok(other.waiting.every(({ type }) => type === 'resync') && other.waiting.length > 0)
  await system.advance(10)
  t.equal(await held(), 0, 'the clear is told once there is room')
  store('b')
  await system.settle()
  t.equal(await held(), 1, 'and only once')
  flood()
  ref.tell({ type: 'clear', workerSlot: SLOT })
  await system.settle()
  store('b')
  await system.settle()
  t.equal(await held(), 1, 'it is told in front of the events that follow')
  await system.advance(10)
  t.equal(await held(), 1)
})

t.test(
  'a resync that finds the mailbox of its source full is told later, unless a clear comes first',
  async t => {
    for (const isCleared of [false, true]) {
      const { system, ref, flood } = narrowWorld(t)
      const heard: EventSourceMessage[] = []
      const busy = defineActor(
        import.meta.url,
        'busy',
      )<EventSourceMessage, undefined>({
        setup: () => ({
          resync: message => void heard.push(message),
          learned: message => void heard.push(message),
          incomplete: message => void heard.push(message),
        }),
      })
      const source = system.spawn(busy, { name: 'busy', args: undefined, mailbox: { capacity: 1 } })
      const message = { type: 'apply', workerSlot: SLOT, blockSizeTokens: BLOCK, source, events: [] } as const
      flood()
      // Before the inheritor has a turn; all but the first find the mailbox full.
      for (let i = 0; i < 3; i++) ref.tell(message)
      source.tell({ type: 'learned', blockSizeTokens: BLOCK })
      if (isCleared) ref.tell({ type: 'clear', workerSlot: SLOT })
      await system.settle()
      await system.advance(10)
      const told = heard.filter(({ type }) => type === 'resync').length
      t.equal(told, isCleared ? 0 : 1)
      await system.advance(100)
      t.equal(heard.filter(({ type }) => type === 'resync').length, told, 'it is told once')
    }
  },
)

t.test('of blocks in no cache only those in a pool count', async t => {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const args = {
    ...SIZES,
    memory: createIndexMemory(SIZES),
    labelMemory: createLabelMemory(1 << 16),
    indexer: system.probe<IndexerMessage>('indexer').ref,
  }
  const ref = system.spawn(inheritor, { name: 'inheritor', args })
  const pooledOf = (first: number, state: 'cxl_pooled' | 'in_transit' | 'evicted') => ({
    engineHashes: Int32Array.of(first, 0, first + 1, 0),
    sequenceHashes: Int32Array.of(first, 1, first + 1, 1),
    place: { state, poolId: 5, accessibleWorkers: Int32Array.of(8, 0) },
    experts: [],
  })
  const inherit = async (...pooled: readonly ReturnType<typeof pooledOf>[]) => {
    ref.tell({ type: 'awaitInheritance', workerSlot: SLOT, blockSizeTokens: BLOCK })
    ref.tell({ type: 'clear', workerSlot: SLOT })
    const blocks = ref.ask({ type: 'inherit', workerSlot: SLOT, runs: [], pooled }, { timeout: 1000 })
    await system.settle()
    return blocks
  }
  t.equal(await inherit(pooledOf(1, 'in_transit'), pooledOf(3, 'evicted')), 0)
  t.equal(await inherit(pooledOf(1, 'in_transit'), pooledOf(3, 'cxl_pooled')), 2)
})

/** All slices of a dump. */
async function dumpAll(ref: ActorRef<IndexerMessage>, workerSlot: number): Promise<IndexedBlock[]> {
  const all: IndexedBlock[] = []
  for await (const blocks of dumpKey(ref, workerSlot, 1000)) all.push(...blocks)
  return all
}
