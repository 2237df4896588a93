/**
 * Labels of blocks: what events say of them reaches the table of the shard, whichever way the events came:
 * one by one, through a snapshot of a publisher, or through the image of a checkpoint.
 */

import assert from 'node:assert/strict'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { BlockIndex, BlockLabels, LabelReader, layeredOptions } from '@homing/index'
import {
  decodeKvBatch,
  encodeKvBatch,
  isLegalTransition,
  KV_CLEARED,
  type KvEvent,
  type KvExpert,
  type KvPoolPlace,
  kvRemoved,
  kvStored,
  POOL_STATES,
} from '@homing/protocol'
import { HeldBlocks } from '@homing/publisher'
import fc from 'fast-check'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const BLOCK_TOKENS = 4
const SLOT = 1
const LABEL_BYTES = 1 << 16

/** A chain is a list of letters; its tokens are those of its letters. */
type Chain = readonly number[]

function tokensOf(chain: Chain): Int32Array {
  return Int32Array.from(chain.flatMap(letter => [letter, letter + 10, letter + 20, letter + 30]))
}

/** Opaque to the router: not the hash that it makes itself. */
function engineHash(chain: Chain): readonly [number, number] {
  let low = 17
  for (const letter of chain) low = (Math.imul(low, 31) + letter + 1) | 0
  return [low, chain.length]
}

function stored(
  chain: Chain,
  from = chain.length - 1,
  labels?: { readonly expert?: KvExpert | undefined; readonly place?: KvPoolPlace | undefined },
  isLocal = true,
  cacheSalt?: string,
): KvEvent {
  const count = chain.length - from
  return kvStored({
    hashes: Int32Array.from(
      Array.from({ length: count }, (_, i) => engineHash(chain.slice(0, from + i + 1))).flat(),
    ),
    parent: from === 0 ? undefined : Int32Array.from(engineHash(chain.slice(0, from))),
    tokens: tokensOf(chain.slice(from)),
    blockSizeTokens: BLOCK_TOKENS,
    isLocal,
    cacheSalt,
    labels: labels && {
      experts: new Array(count).fill(labels.expert),
      places: new Array(count).fill(labels.place),
    },
  })
}

const removed = (chain: Chain): KvEvent => kvRemoved({ hashes: Int32Array.from(engineHash(chain)) })
const moved = (chain: Chain, place: KvPoolPlace): KvEvent => ({
  kind: 'transition',
  hashes: Int32Array.from(engineHash(chain)),
  ...place,
})

/** The low words of the ids in all sets of a block. */
function idsIn(reader: LabelReader, { workerSets }: BlockLabels): number[] {
  const ids: number[] = []
  for (let at = 0; at < workerSets.length; at += 3)
    ids.push(...reader.workerIdsOf(workerSets[at]!, workerSets[at + 1]!, workerSets[at + 2]!)!)
  return ids.filter((_, i) => i % 2 === 0)
}

function fixture(labelBytes = LABEL_BYTES, keepsOrphans = true) {
  const index = BlockIndex.create(layeredOptions(1 << 20, 4))
  const applier = new EventApplier(index, new LayerSlots(4), labelBytes, keepsOrphans)
  const reader = new LabelReader()
  reader.setShard(0, applier.labels.memory)
  applier.open(SLOT)
  return {
    index,
    applier,
    reader,
    apply: (...events: readonly KvEvent[]) => applier.apply(SLOT, BLOCK_TOKENS, events),
    /** What is said of the last block of a chain. */
    read(chain: Chain, cacheSalt?: string) {
      const { sequence } = hashBlocks(tokensOf(chain), BLOCK_TOKENS, namespaceSeed({ cacheSalt }))
      const labels = new BlockLabels()
      reader.read(sequence.at(-2)!, sequence.at(-1)!, labels)
      return {
        expert: labels.moe,
        owners: labels.owners.filter((_, i) => i % 2 === 1),
        workers: [...new Set(idsIn(reader, labels))].sort((a, b) => a - b),
      }
    },
  }
}

const EXPERT: KvExpert = { layerId: 3, expertId: 7, expertGroup: undefined }
const place = (state: KvPoolPlace['state'], poolId?: number, ...ids: readonly number[]): KvPoolPlace => ({
  state,
  poolId,
  accessibleWorkers: Int32Array.from(ids.flatMap(id => [id, 0])),
})
const NOWHERE = { expert: undefined, owners: [], workers: [] }

t.test('an expert belongs to a block, wherever in the prompt it is', async t => {
  const f = fixture()
  f.apply(stored([1, 2], 0), stored([1, 2, 3], 2, { expert: EXPERT }))
  t.strictSame(f.read([1, 2, 3]).expert, EXPERT)
  t.strictSame([f.read([1, 2]), f.read([3]), f.read([2, 3])], [NOWHERE, NOWHERE, NOWHERE])
  f.apply(removed([1, 2, 3]))
  t.strictSame(f.read([1, 2, 3]), NOWHERE, 'it is gone with its block')
})

t.test('S22: local_gpu, in_transit, cxl_pooled, evicted; only pooled blocks are reachable', async t => {
  const f = fixture()
  f.apply(stored([1, 2], 0, { place: place('local_gpu') }))
  t.strictSame(f.read([1, 2]), NOWHERE)
  f.apply(moved([1, 2], place('in_transit', 4, 8, 9)))
  t.strictSame(f.read([1, 2]), NOWHERE)
  f.apply(moved([1, 2], place('cxl_pooled')))
  t.strictSame(f.read([1, 2]), { expert: undefined, owners: [SLOT], workers: [8, 9] })
  t.strictSame(f.read([1]), NOWHERE)
  f.apply(moved([1, 2], place('evicted')))
  t.strictSame(f.read([1, 2]), NOWHERE)
  t.match(f.applier.status().labels, { byState: [0, 1, 0, 0, 1], transitions: { changed: 3, illegal: 0 } })
  t.match(f.applier.status().eventsApplied, { transition: 3 })
})

t.test('a transition of a block without labels finds its place in the index', async t => {
  const f = fixture()
  f.apply(stored([1, 2, 3, 4], 0))
  f.apply(moved([1, 2, 3], place('in_transit', 0, 5)), moved([1, 2, 3], place('cxl_pooled')))
  t.strictSame(f.read([1, 2, 3]).workers, [5])
  f.apply(moved([9], place('in_transit', 0)), moved([1], place('cxl_pooled')))
  t.match(f.applier.status().labels?.transitions, { changed: 2, unknown: 1, illegal: 1 })
})

t.test('a pooled block stays when its worker removes it, and when its worker leaves', async t => {
  const f = fixture()
  f.apply(stored([1, 2], 0, { place: place('in_transit', 4, 8) }))
  f.apply(moved([1], place('cxl_pooled')), moved([1, 2], place('cxl_pooled')))
  f.apply(removed([1, 2]))
  t.strictSame(f.read([1, 2]).workers, [8])
  f.applier.release(SLOT)
  t.strictSame(
    [f.read([1]), f.read([1, 2])],
    Array(2).fill({ expert: undefined, owners: [-1], workers: [8] }),
  )
  // Another worker that has the block under the same hash says that the pool has evicted it.
  f.applier.open(2)
  f.applier.apply(2, BLOCK_TOKENS, [moved([1, 2], place('evicted', 4))])
  t.strictSame([f.read([1]).workers, f.read([1, 2])], [[8], NOWHERE])
})

t.test('a clear, and a beginning anew, take what was pooled', async t => {
  for (const end of ['clear', 'open'] as const) {
    const f = fixture()
    f.apply(stored([1], 0, { place: place('cxl_pooled', 4, 8), expert: EXPERT }))
    t.strictSame(f.read([1]).workers, [8])
    if (end === 'clear') f.apply(KV_CLEARED)
    else f.applier.open(SLOT)
    t.strictSame(f.read([1]), NOWHERE)
    t.match(f.applier.status().labels, { records: 0, blocks: 0 })
  }
})

t.test('a store without labels, of blocks without a record, looks at nothing above them', async t => {
  const f = fixture()
  let places = 0
  const placeOf = f.index.placeOf.bind(f.index)
  f.index.placeOf = block => {
    places++
    return placeOf(block)
  }
  f.apply(stored([9], 0, { expert: EXPERT }), stored([1, 2, 3], 0))
  const before = places
  f.apply(stored([1, 2, 3, 4]))
  t.equal(places, before)
  f.apply(stored([1, 2, 3, 5], 3, { place: place('cxl_pooled', 4, 8) }))
  t.ok(places > before, 'with labels the chain above is read')
  f.apply(moved([1, 2, 3, 5], place('evicted')), stored([1, 2, 3, 5]))
  t.equal(f.applier.status().labels?.records, 2)
})

t.test('the salt of a block that is in a pool alone is that of the blocks below it', async t => {
  const f = fixture()
  f.apply(stored([1], 0, { place: place('cxl_pooled', 4, 8) }, false, 'tenant'))
  f.apply(stored([1, 2], 1, { place: place('cxl_pooled', 4, 8) }, false))
  t.strictSame([f.read([1], 'tenant').workers, f.read([1, 2], 'tenant').workers], [[8], [8]])
  t.strictSame([f.read([1]), f.read([1, 2])], [NOWHERE, NOWHERE])
})

t.test('labels below an unknown block are counted, and not guessed', async t => {
  const f = fixture()
  f.apply(stored([1, 2], 1, { expert: EXPERT }))
  t.match(f.applier.status().labels, { unplaced: 1, records: 0 })
})

t.test('without memory for labels everything else is as before', async t => {
  const f = fixture(0)
  f.apply(stored([1], 0, { expert: EXPERT }), moved([1], place('in_transit', 0, 5)), removed([1]))
  t.equal(f.applier.status().labels, undefined)
  t.match(f.applier.status(), { eventsApplied: { stored: 1, removed: 1, transition: 1 }, blocksDistinct: 0 })
})

// Random histories of a cache that stores below what it holds, and evicts leaves first.

type Step =
  | {
      readonly kind: 'store'
      readonly chain: Chain
      readonly expert: KvExpert | undefined
      readonly place: KvPoolPlace | undefined
    }
  | { readonly kind: 'remove' | 'again'; readonly chain: Chain }
  | { readonly kind: 'move'; readonly chain: Chain; readonly place: KvPoolPlace }
  | { readonly kind: 'clear' }

const chains = fc.array(fc.nat({ max: 1 }), { minLength: 1, maxLength: 4 })
const experts = fc.option(
  fc
    .tuple(fc.nat(3), fc.constantFrom(0, 2 ** 32 - 1), fc.option(fc.nat(2), { nil: undefined }))
    .map(([layerId, expertId, expertGroup]) => ({ layerId, expertId, expertGroup })),
  { nil: undefined },
)
const places = fc.record({
  state: fc.constantFrom(...POOL_STATES),
  poolId: fc.option(fc.nat(2), { nil: undefined }),
  accessibleWorkers: fc
    .uniqueArray(fc.nat(9), { maxLength: 8 })
    .map(ids => Int32Array.from(ids.flatMap(id => [id, 0]))),
})
const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('store' as const),
        chain: chains,
        expert: experts,
        place: fc.option(places, { nil: undefined }),
      }),
    },
    { weight: 5, arbitrary: fc.record({ kind: fc.constantFrom('remove', 'again'), chain: chains }) },
    {
      weight: 12,
      arbitrary: fc.record({ kind: fc.constant('move' as const), chain: chains, place: places }),
    },
    { weight: 1, arbitrary: fc.constant({ kind: 'clear' as const }) },
  ),
  { maxLength: 50, size: 'max' },
)

/** The truth of one worker. */
class Cache {
  readonly events: KvEvent[] = []
  readonly held = new Map<string, Chain>()
  readonly places = new Map<string, KvPoolPlace>()
  readonly experts = new Map<string, KvExpert>()
  /** Evicted and then removed: their records may be kept for audits, with their experts, or not. */
  readonly vague = new Set<string>()

  take(step: Step): void {
    switch (step.kind) {
      case 'store': {
        const { chain, expert, place } = step
        let from = 0
        while (from < chain.length - 1 && this.held.has(nameOf(chain.slice(0, from + 1)))) from++
        this.events.push(stored(chain, from, { expert, place }))
        for (let length = from + 1; length <= chain.length; length++) {
          const part = chain.slice(0, length)
          const name = nameOf(part)
          this.held.set(name, part)
          if (expert !== undefined) {
            this.experts.set(name, expert)
            this.vague.delete(name)
          }
          if (place !== undefined) this.places.set(name, place)
        }
        break
      }
      case 'again':
      case 'remove': {
        const name = nameOf(step.chain)
        const isLeaf = ![...this.held.values()].some(
          one => one.length > step.chain.length && nameOf(one).startsWith(`${name} `),
        )
        if (!isLeaf || !this.held.has(name)) break
        this.events.push(removed(step.chain))
        if (step.kind === 'again') this.events.push(stored(step.chain))
        const state = this.places.get(name)?.state
        const isPooled = state === 'in_transit' || state === 'cxl_pooled'
        if (step.kind === 'remove') this.held.delete(name)
        if (!isPooled && state !== 'evicted') this.places.delete(name)
        if (!isPooled && state !== 'evicted') this.experts.delete(name)
        if (state === 'evicted') this.vague.add(name)
        break
      }
      case 'move': {
        const { chain, place } = step
        const name = nameOf(chain)
        this.events.push(moved(chain, place))
        const before = this.places.get(name)
        if (!this.held.has(name) && before === undefined) break
        if (!isLegalTransition(before?.state ?? 'untold', place.state, place.poolId !== undefined)) break
        if (place.state === 'in_transit') this.places.set(name, place)
        else if (place.state === 'local_gpu') this.places.set(name, { ...place, poolId: undefined })
        else this.places.set(name, { ...before!, state: place.state })
        break
      }
      case 'clear':
        this.events.push(KV_CLEARED)
        for (const map of [this.held, this.places, this.experts, this.vague]) map.clear()
    }
  }

  reached(chain: Chain) {
    const place = this.places.get(nameOf(chain))
    if (place?.state !== 'cxl_pooled') return { owners: [], workers: [] }
    const workers = [...place.accessibleWorkers].filter((_, i) => i % 2 === 0).sort((a, b) => a - b)
    return { owners: [SLOT], workers }
  }
}

const nameOf = (chain: Chain) => chain.join(' ')
const ALL: readonly Chain[] = [1, 2, 3, 4].flatMap(length =>
  Array.from({ length: 2 ** length }, (_, bits) => Array.from({ length }, (_, i) => (bits >>> i) & 1)),
)

function check(f: ReturnType<typeof fixture>, cache: Cache): void {
  for (const chain of ALL) {
    const { expert, ...reached } = f.read(chain)
    assert.deepEqual(reached, cache.reached(chain), nameOf(chain))
    const isKnown = cache.held.has(nameOf(chain)) && !cache.vague.has(nameOf(chain))
    if (isKnown) assert.deepEqual(expert, cache.experts.get(nameOf(chain)))
  }
}

const throughTheWire = (events: readonly KvEvent[]): readonly KvEvent[] => {
  const batch = decodeKvBatch(encodeKvBatch({ timestampSeconds: 1, rank: undefined, events }, 'vllm-map'))
  assert.deepEqual(batch.skipped, { unknownTag: 0, malformed: 0 })
  return batch.events
}

t.test('no block counts as reachable that is not, whichever way its events came', async t => {
  const agree = fc.property(steps, fc.nat(50), (history, snapshotAt) => {
    const cache = new Cache()
    const live = fixture()
    const held = new HeldBlocks({ bytesMax: 2 ** 24 })
    let late: ReturnType<typeof fixture> | undefined
    let restored: ReturnType<typeof fixture> | undefined
    for (const [i, step] of history.entries()) {
      const from = cache.events.length
      cache.take(step)
      const events = throughTheWire(cache.events.slice(from))
      for (const f of [live, late, restored]) f?.apply(...events)
      for (const event of events) held.apply(event)
      if (i === snapshotAt) {
        const frozen = held.freeze()
        late = fixture()
        late.apply(...throughTheWire([...frozen.runs(0, frozen.size, 3)]))
        frozen.release()
        restored = fixture()
        restored.applier.load(SLOT, live.applier.image(SLOT)!)
      }
      for (const f of [live, late, restored]) if (f !== undefined) check(f, cache)
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 2000 }))
})

t.test(
  'beside other shards, which may hear of its eviction, nothing is left of a worker that leaves',
  async t => {
    const f = fixture(LABEL_BYTES, false)
    f.apply(stored([1, 2], 0, { place: place('local_gpu') }))
    f.apply(moved([1, 2], place('in_transit', 4, 8)), moved([1, 2], place('cxl_pooled')))
    t.strictSame(f.read([1, 2]).workers, [8])
    f.applier.release(SLOT)
    t.strictSame(f.read([1, 2]), NOWHERE)
  },
)
