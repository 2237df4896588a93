/**
 * Labels of blocks: what events say of them reaches the table of the shard, whichever way the events came:
 * one by one, through a snapshot of a publisher, or through the image of a checkpoint.
 */

import assert from 'node:assert/strict'
import { BlockIndex, BlockLabels, LabelReader, type LabelShape, layeredOptions } from '@homing/index'
import { KV_CLEARED, type KvEvent, type KvExpert, type KvRemoved, type KvStored } from '@homing/protocol'
import { HeldBlocks } from '@homing/publisher'
import fc from 'fast-check'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'
import {
  BLOCK_TOKENS,
  type Chain,
  cacheSteps,
  chainsOf,
  engineHash,
  idsOf,
  LabelledCache,
  moved,
  nameOf,
  place,
  removed,
  sequenceHash,
  stored,
  throughTheWire,
} from './labelled-cache.ts'

const SLOT = 1
const LABEL_BYTES = 1 << 16
/** Room for some dozens of records. */
const LABEL_BYTES_FEW = 1 << 13
const BLOCKS_MAX = 4
const HISTORIES = 2000

/** The low words of the ids in all sets of a block. */
function idsIn(reader: LabelReader, { workerSets }: BlockLabels): number[] {
  const ids: number[] = []
  for (let at = 0; at < workerSets.length; at += 3)
    ids.push(...reader.workerIdsOf(workerSets[at]!, workerSets[at + 1]!, workerSets[at + 2]!)!)
  return ids.filter((_, i) => i % 2 === 0)
}

function fixture(labelBytes = LABEL_BYTES, keepsOrphans = true, shape?: LabelShape) {
  const index = BlockIndex.create(layeredOptions(1 << 20, 4))
  const applier = new EventApplier(index, new LayerSlots(4), labelBytes, keepsOrphans, shape)
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
      const labels = new BlockLabels()
      reader.read(...sequenceHash(chain, cacheSalt), labels)
      return {
        expert: labels.moe,
        owners: labels.owners.filter((_, i) => i % 2 === 1),
        workers: [...new Set(idsIn(reader, labels))].sort((a, b) => a - b),
      }
    },
  }
}

const EXPERT: KvExpert = { layerId: 3, expertId: 7, expertGroup: undefined }
const NOWHERE = { expert: undefined, owners: [], workers: [] }

t.test('an expert belongs to a block, wherever in the prompt it is', async t => {
  const f = fixture()
  f.apply(stored([1, 2], 0), stored([1, 2, 3], 2, { expert: EXPERT }))
  t.strictSame(f.read([1, 2, 3]).expert, EXPERT)
  t.strictSame([f.read([1, 2]), f.read([3]), f.read([2, 3])], [NOWHERE, NOWHERE, NOWHERE])
  f.apply(removed([1, 2, 3]))
  t.strictSame(f.read([1, 2, 3]), NOWHERE, 'it is gone with its block')
})

t.test('an expert stays as long as a worker of the shard holds the block', async t => {
  for (const end of ['removed', 'cleared', 'open', 'parted', 'released'] as const) {
    const f = fixture()
    const others = [0, 2]
    for (const slot of others) {
      f.applier.open(slot)
      f.applier.apply(slot, BLOCK_TOKENS, [stored([1, 2], 0)])
    }
    f.apply(stored([1], 0), stored([1, 2], 1, { expert: EXPERT }))
    if (end === 'removed') f.apply(removed([1, 2]))
    else if (end === 'cleared') f.apply(KV_CLEARED)
    else if (end === 'released') f.applier.release(SLOT)
    else f.applier.open(SLOT, end === 'parted')
    t.strictSame(f.read([1, 2]).expert, EXPERT, `${end}: two others hold it`)
    t.equal(f.read([1]).expert, undefined)
    f.applier.apply(0, BLOCK_TOKENS, [removed([1, 2])])
    t.strictSame(f.read([1, 2]).expert, EXPERT, `${end}: one does`)
    f.applier.apply(2, BLOCK_TOKENS, [removed([1, 2])])
    t.strictSame(f.read([1, 2]), NOWHERE, `${end}: none does`)
    t.match(f.applier.status().labels, { records: 0, blocks: 0, labelledBlocks: 0 })
  }
})

t.test('an expert passes to a worker that holds the block, also where a pool has it, too', async t => {
  const f = fixture()
  for (const slot of [0, 2]) f.applier.open(slot)
  const [pooling, holding] = [0, 2]
  f.applier.apply(pooling, BLOCK_TOKENS, [stored([1], 0, { place: place('cxl_pooled', 4, 8) }), removed([1])])
  f.apply(stored([1], 0, { expert: EXPERT }))
  f.applier.apply(holding, BLOCK_TOKENS, [stored([1], 0)])
  f.apply(removed([1]))
  f.applier.apply(pooling, BLOCK_TOKENS, [KV_CLEARED])
  t.strictSame(f.read([1]).expert, EXPERT)
  f.applier.apply(holding, BLOCK_TOKENS, [removed([1])])
  t.strictSame(f.read([1]), NOWHERE)
})

t.test('an expert does not pass on while a tier of its worker holds the block', async t => {
  const f = fixture()
  f.applier.open(0)
  f.applier.apply(0, BLOCK_TOKENS, [stored([1], 0)])
  const onHost = { tier: 'host' as const }
  const records = () => f.applier.status().labels?.records
  f.apply(stored([1], 0, { expert: EXPERT }), { ...(stored([1], 0) as KvStored), ...onHost })
  f.apply({ ...(removed([1]) as KvRemoved), isLocal: false })
  t.equal(records(), 1, 'a removal that is refused')
  f.apply(removed([1]))
  t.equal(records(), 1, 'it is on the host still')
  f.apply({ ...(removed([1]) as KvRemoved), ...onHost })
  t.equal(records(), 1, 'it is of the other worker')
  t.strictSame(f.read([1]).expert, EXPERT)
  f.applier.apply(0, BLOCK_TOKENS, [removed([1])])
  t.strictSame(f.read([1]), NOWHERE)
})

t.test('an expert finds room where the record that it passes on from was', async t => {
  for (const end of ['removed', 'cleared', 'open', 'parted', 'released'] as const) {
    const f = fixture(LABEL_BYTES_FEW, true, { recordsPerBlock: 1, workersShare: 0 })
    const blocks: Chain[] = []
    f.applier.open(0)
    for (let i = 0; f.applier.status().labels!.refused === 0; i++) {
      f.apply(stored([i], 0, { expert: EXPERT }))
      blocks.push([i])
    }
    blocks.pop()
    for (const block of blocks) f.applier.apply(0, BLOCK_TOKENS, [stored(block, 0)])
    if (end === 'removed') for (const block of blocks) f.apply(removed(block))
    else if (end === 'cleared') f.apply(KV_CLEARED)
    else if (end === 'released') f.applier.release(SLOT)
    else f.applier.open(SLOT, end === 'parted')
    t.match(f.applier.status().labels, { records: blocks.length, refused: 1 }, end)
    for (const block of blocks) t.strictSame(f.read(block).expert, EXPERT)
  }
})

t.test('a block below the device, or guessed, keeps no expert of another worker', async t => {
  const f = fixture()
  f.apply(stored([1], 0, { expert: EXPERT }))
  f.applier.open(0)
  const onHost = { ...(stored([1], 0) as KvStored), tier: 'host' as const }
  f.applier.apply(0, BLOCK_TOKENS, [onHost])
  f.apply(removed([1]))
  t.strictSame(f.read([1]), NOWHERE)
})

t.test('a store of another place leaves a block of the device held', async t => {
  const f = fixture()
  f.apply(stored([1], 0), stored([1], 0, { place: place('cxl_pooled', 4, 8) }, false))
  f.apply(
    moved([1], place('evicted')),
    moved([1], place('in_transit', 5, 9)),
    moved([1], place('cxl_pooled')),
  )
  t.strictSame(f.read([1]).workers, [9])
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

function check(f: ReturnType<typeof fixture>, cache: LabelledCache, untold: ReadonlySet<string>): void {
  for (const chain of chainsOf(BLOCKS_MAX)) {
    const name = nameOf(chain)
    const { expert, ...reached } = f.read(chain)
    const place = cache.places.get(name)
    const isPooled = place?.state === 'cxl_pooled'
    const truth = isPooled ? { owners: [SLOT], workers: idsOf(place) } : { owners: [], workers: [] }
    if (untold.has(name)) {
      if (reached.owners.length > 0) assert.deepEqual(reached, truth, name)
      continue
    }
    assert.deepEqual(reached, truth, name)
    if (!cache.isSomewhere(chain)) continue
    const { members, ...known } = cache.experts.get(name) ?? { members: undefined }
    assert.deepEqual(expert ?? {}, known, name)
    // Readers have no use for members; dumps and images have them.
    const label = f.applier.labels.of(SLOT, ...engineHash(chain), new Map())
    assert.deepEqual([label?.moe?.members, label?.place?.members], [members, place?.members], name)
  }
}

t.test('no block counts as reachable that is not, whichever way its events came', async t => {
  const steps = fc.array(cacheSteps(BLOCKS_MAX), { maxLength: 50, size: 'max' })
  const agree = fc.property(steps, fc.nat(50), (history, snapshotAt) => {
    const cache = new LabelledCache()
    const live = fixture()
    const held = new HeldBlocks({ bytesMax: 2 ** 24 })
    let late: ReturnType<typeof fixture> | undefined
    let restored: ReturnType<typeof fixture> | undefined
    /** What the snapshot could not say, because nothing above it is known any more. */
    const untold = new Set<string>()
    for (const [i, step] of history.entries()) {
      const events = throughTheWire(cache.take(step))
      for (const f of [live, late, restored]) f?.apply(...events)
      for (const event of events) held.apply(event)
      if (i === snapshotAt) {
        const frozen = held.freeze()
        late = fixture()
        late.apply(...throughTheWire([...frozen.runs(0, frozen.size, 3)]))
        frozen.release()
        restored = fixture()
        restored.applier.load(SLOT, live.applier.image(SLOT)!)
        for (const chain of chainsOf(BLOCKS_MAX))
          if (cache.isSomewhere(chain) && !cache.isPlaced(chain)) untold.add(nameOf(chain))
      }
      for (const f of [live, restored]) if (f !== undefined) check(f, cache, new Set())
      if (late !== undefined) check(late, cache, untold)
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: HISTORIES }))
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
