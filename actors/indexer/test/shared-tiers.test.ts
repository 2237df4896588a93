/**
 * Tiers that several workers may share, as engines and their stores publish them today: what becomes of each
 * form here. The titles are the rows of the table in docs/labels.md.
 */

import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import {
  BlockIndex,
  BlockLabels,
  IndexReader,
  KEY_LAYERS,
  LabelReader,
  LayerOverlaps,
  Layers,
  layeredOptions,
  layerSlot,
} from '@homing/index'
import { decodeKvBatch, MessagePackWriter } from '@homing/protocol'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const KEYS = 2
const BLOCK = 16
const BLOCKS = 4
const TOKENS = Array.from({ length: BLOCKS * BLOCK }, (_, i) => 40 + i)
const HASHES = Array.from({ length: BLOCKS }, (_, i) => 101 + i)

/** Members of an event as a map, as vLLM has sent them since 0.24. */
type Wire = Readonly<Record<string, unknown>>

/** The worker key 0 of a shard, whose device has computed the prompt. */
function world() {
  const index = BlockIndex.create(layeredOptions(1 << 20, KEYS))
  const applier = new EventApplier(index, new LayerSlots(KEYS), 1 << 16, true)
  const reader = new IndexReader([index.memory])
  const scores = new LayerOverlaps()
  const layers = new Layers([KEY_LAYERS.map((_, layer) => layerSlot(0, layer, KEYS))])
  const labels = new LabelReader()
  labels.setShard(0, applier.labels.memory)
  applier.open(0)
  const { local, sequence, count } = hashBlocks(Int32Array.from(TOKENS), BLOCK, DEFAULT_SEED)
  const publish = (...events: Wire[]) => {
    const batch = decodeKvBatch(new MessagePackWriter().encode([1.5, events, 0]))
    t.strictSame(batch.skipped, { unknownTag: 0, malformed: 0 })
    applier.apply(0, BLOCK, batch.events)
  }
  publish(stored({ medium: 'GPU' }))
  return {
    applier,
    publish,
    /** Blocks of the prompt in each tier, one after the other. */
    tiers(): Record<string, number> {
      reader.extend(local, count, layers, scores)
      const blocks = KEY_LAYERS.map((name, layer) => [name, scores.blocksOf(0, layer)] as const)
      return Object.fromEntries(blocks.filter(([, held]) => held > 0))
    },
    /** Whether some worker reaches a block of the prompt in a pool. */
    isPooled(): boolean {
      const found = new BlockLabels()
      return HASHES.some((_, i) => {
        labels.read(sequence[2 * i]!, sequence[2 * i + 1]!, found)
        return found.owners.length > 0
      })
    },
  }
}

function stored(changes: Wire): Wire {
  return {
    type: 'BlockStored',
    block_hashes: HASHES,
    parent_block_hash: null,
    token_ids: TOKENS,
    block_size: BLOCK,
    lora_id: null,
    medium: null,
    lora_name: null,
    ...changes,
  }
}

const removed = (changes: Wire): Wire => ({ type: 'BlockRemoved', block_hashes: HASHES, ...changes })
/** The form of vLLM's offload connectors without self_describing_kv_events. */
const PLACEHOLDER = { token_ids: [], block_size: 0 }
const FROM_DEVICE = removed({ medium: 'GPU' })

t.test('vLLM OffloadingConnector, CPU: a placeholder, or with self_describing_kv_events a store', async t => {
  for (const form of [PLACEHOLDER, {}]) {
    const w = world()
    w.publish(stored({ medium: 'CPU', ...form }), FROM_DEVICE)
    t.strictSame(w.tiers(), { host: BLOCKS })
    t.notOk(w.isPooled())
    w.publish(removed({ medium: 'CPU' }))
    t.strictSame(w.tiers(), {})
  }
})

t.test('vLLM secondary tiers, fs and obj: STORAGE, before that FS and OBJ', async t => {
  for (const medium of ['STORAGE', 'FS', 'OBJ']) {
    for (const locality of [undefined, 'LOCAL']) {
      const w = world()
      w.publish(stored({ medium, ...(locality === undefined ? {} : { locality }) }), FROM_DEVICE)
      t.strictSame(w.tiers(), { disk: BLOCKS }, `${medium} ${locality}`)
      t.notOk(w.isPooled())
    }
  }
})

t.test('vLLM secondary tiers whose locality is REMOTE', async t => {
  const w = world()
  w.publish(stored({ medium: 'STORAGE', locality: 'REMOTE', ownership: 'fs' }), FROM_DEVICE)
  t.strictSame(w.tiers(), {})
  t.notOk(w.isPooled())
  t.equal(w.applier.status().eventsSkipped.remote, 1)
})

t.test('LMCache in chunks of another size than the blocks', async t => {
  const w = world()
  const chunk = { block_hashes: [-7], token_ids: TOKENS, block_size: TOKENS.length }
  w.publish(stored({ medium: 'CPU', ...chunk }), FROM_DEVICE)
  t.strictSame(w.tiers(), {})
  t.equal(w.applier.status().eventsSkipped.tierBlockSize, 1)
})

t.test('LMCache in chunks of the size of a block, and vLLM MooncakeStoreConnector', async t => {
  for (const medium of ['CPU', 'cpu']) {
    const w = world()
    const own = { block_hashes: [-7, -8, -9, -10], parent_block_hash: null }
    w.publish(stored({ medium, ...own }), FROM_DEVICE)
    t.strictSame(w.tiers(), { host: BLOCKS })
    t.notOk(w.isPooled())
    w.publish({ type: 'AllBlocksCleared' })
    t.strictSame(w.tiers(), {}, 'no removal of them ever comes')
  }
})

t.test('SGLang HiCache: CPU_PINNED for the host; DISK and EXTERNAL are read where they come', async t => {
  for (const [medium, tier] of [
    ['CPU_PINNED', 'host'],
    ['CPU_TIER1', 'host'],
    ['CPU_TIER2', 'disk'],
    ['DISK', 'disk'],
    ['EXTERNAL', 'external'],
  ] as const) {
    const w = world()
    w.publish(stored({ medium }), FROM_DEVICE)
    t.strictSame(w.tiers(), { [tier]: BLOCKS }, medium)
    t.notOk(w.isPooled())
  }
})

t.test('Dynamo KVBM: the stream of the consolidator, with a medium or without', async t => {
  const w = world()
  w.publish(FROM_DEVICE)
  // Each block alone, without the members that vLLM always has.
  for (const [i, hash] of HASHES.entries()) {
    w.publish({
      type: 'BlockStored',
      block_hashes: [hash],
      parent_block_hash: i === 0 ? null : HASHES[i - 1],
      token_ids: TOKENS.slice(i * BLOCK, (i + 1) * BLOCK),
      block_size: BLOCK,
      ...(i < 2 ? {} : { medium: 'CPU_TIER1' }),
    })
  }
  t.strictSame(w.tiers(), { device: 2, host: 2 })
  t.notOk(w.isPooled())
})

t.test('the states of this page, of any tier that others read', async t => {
  const w = world()
  const told = { block_hashes: HASHES, pool_id: 9, accessible_workers: [2] }
  const moved = (state: string): Wire => ({ type: 'CxlStateTransition', new_state: state, ...told })
  w.publish(stored({ medium: 'CPU', ...PLACEHOLDER }), moved('in_transit'), moved('cxl_pooled'))
  t.ok(w.isPooled())
  w.publish(FROM_DEVICE, removed({ medium: 'CPU' }))
  t.strictSame(w.tiers(), {})
  t.ok(w.isPooled(), 'in the store, for the worker and for worker 2')
  w.publish(moved('evicted'))
  t.notOk(w.isPooled())
})

t.test('a store that only a shared tier has: REMOTE, with cxl_metadata', async t => {
  const w = world()
  w.publish(FROM_DEVICE)
  const cxl_metadata = { state: 'cxl_pooled', pool_id: 9, accessible_workers: [2] }
  w.publish(stored({ medium: 'EXTERNAL', locality: 'REMOTE', cxl_metadata }))
  t.strictSame(w.tiers(), {})
  t.ok(w.isPooled())
})
