/** Labels of blocks in events: each form with a place for them says the same, and what is wrong is seen. */

import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import t from 'tap'
import {
  ACCESSIBLE_WORKERS_MAX,
  decodeKvBatch,
  encodeKvBatch,
  isLegalTransition,
  type KvBatchForm,
  type KvEvent,
  type KvPoolPlace,
  kvStored,
  POOL_STATES,
  POOL_TRANSITIONS,
} from '../src/index.ts'

const decoded = (...events: readonly unknown[]) =>
  decodeKvBatch(encode([1, events, 0], { useBigInt64: true }))
const NO_SKIPS = { unknownTag: 0, malformed: 0 }
const u32 = fc.constantFrom(0, 1, 127, 128, 2 ** 31, 2 ** 32 - 1)
const workers = fc
  .array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 5 })
  .map(ids => new Int32Array(BigUint64Array.from(ids).buffer))
const expert = fc
  .tuple(u32, u32, fc.option(u32, { nil: undefined }))
  .map(([layerId, expertId, expertGroup]) => ({ layerId, expertId, expertGroup }))
const place: fc.Arbitrary<KvPoolPlace> = fc
  .tuple(fc.constantFrom(...POOL_STATES), fc.option(u32, { nil: undefined }), workers)
  .map(([state, poolId, accessibleWorkers]) => ({ state, poolId, accessibleWorkers }))

t.test('a transition is the same in every form', async t => {
  const forms: readonly KvBatchForm[] = [
    'vllm-array',
    'vllm-array-8',
    'vllm-map',
    'sglang-array',
    'sglang-map',
  ]
  const same = fc.property(place, fc.constantFrom(...forms), fc.boolean(), (place, form, asBytes) => {
    const event: KvEvent = { kind: 'transition', hashes: Int32Array.of(1, -2, -3, 4), ...place }
    const payload = encodeKvBatch({ timestampSeconds: 1, rank: 0, events: [event] }, form, {
      hashes: asBytes ? 'bytes' : 'int',
    })
    assert.deepEqual(decodeKvBatch(payload), {
      timestampSeconds: 1,
      rank: 0,
      events: [event],
      skipped: NO_SKIPS,
    })
  })
  t.doesNotThrow(() => fc.assert(same))
})

t.test('labels of a store are the same in every form that has a place for them', async t => {
  const forms: readonly KvBatchForm[] = ['vllm-map', 'sglang-array', 'sglang-map']
  const optional = <T>(one: fc.Arbitrary<T>) => fc.option(one, { nil: undefined })
  const same = fc.property(
    fc.array(optional(expert), { minLength: 2, maxLength: 2 }),
    fc.array(optional(place), { minLength: 2, maxLength: 2 }),
    fc.constantFrom(...forms),
    (experts, places, form) => {
      const hasExperts = experts.some(one => one !== undefined)
      const hasPlaces = places.some(one => one !== undefined)
      const labels = { experts: hasExperts ? experts : [], places: hasPlaces ? places : [] }
      const event = kvStored({
        hashes: Int32Array.of(1, 2, 3, 4),
        tokens: Int32Array.of(1, 2),
        blockSizeTokens: 1,
        labels: hasExperts || hasPlaces ? labels : undefined,
      })
      const payload = encodeKvBatch({ timestampSeconds: 1, rank: 0, events: [event] }, form)
      const [read] = decodeKvBatch(payload).events
      assert.deepEqual((read as typeof event).labels, event.labels)
    },
  )
  t.doesNotThrow(() => fc.assert(same))
})

t.test(
  'one label may be for all blocks of a store; labels may stop early; unknown members are passed over',
  async t => {
    const store = { type: 'BlockStored', block_hashes: [1, 2], token_ids: [1, 2], block_size: 1 }
    const labelsOf = (more: object) => {
      const { events, skipped } = decoded({ ...store, ...more })
      t.strictSame(skipped, NO_SKIPS)
      return (events[0] as { labels?: unknown }).labels
    }
    const one = { layer_id: 1, expert_id: 2, heat: 9 }
    const same = { layerId: 1, expertId: 2, expertGroup: undefined }
    t.strictSame(labelsOf({ moe_metadata: one }), { experts: [same, same], places: [] })
    t.strictSame(labelsOf({ moe_metadata: [one] }), { experts: [same], places: [] })
    t.strictSame(labelsOf({ moe_metadata: null, cxl_metadata: [] }), undefined)
    t.match(labelsOf({ cxl_metadata: { pool_id: 7, other: [1] } }), {
      places: [{ state: 'local_gpu', poolId: 7 }, { state: 'local_gpu' }],
    })
  },
)

t.test('what cannot be read is malformed, and the rest of the batch is read', async t => {
  const store = { type: 'BlockStored', block_hashes: [1], token_ids: [1], block_size: 1 }
  const move = { type: 'CxlStateTransition', block_hashes: [1], new_state: 'evicted' }
  const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)
  const most = { ...move, accessible_workers: numbers(ACCESSIBLE_WORKERS_MAX) }
  t.strictSame(decoded(most).skipped, NO_SKIPS)
  const wrong: readonly (readonly [what: string, event: object])[] = [
    ['a state without a name here', { ...move, new_state: 'melted' }],
    ['no state', { type: 'CxlStateTransition', block_hashes: [1] }],
    ['no blocks', { type: 'CxlStateTransition', new_state: 'evicted' }],
    ['a pool below 0', { ...move, pool_id: -1 }],
    ['a pool past 32 bits', { ...move, pool_id: 2 ** 32 }],
    [
      'more workers than one label may name',
      { ...move, accessible_workers: numbers(ACCESSIBLE_WORKERS_MAX + 1) },
    ],
    ['workers that are no list', { ...move, accessible_workers: 5 }],
    ['an expert without its layer', { ...store, moe_metadata: { expert_id: 1 } }],
    ['an expert that is a text', { ...store, moe_metadata: { layer_id: 0, expert_id: 'one' } }],
    ['more labels than blocks', { ...store, cxl_metadata: [{}, {}] }],
  ]
  for (const [what, event] of wrong) {
    const { events, skipped } = decoded(event, move)
    t.strictSame([events.length, skipped], [1, { unknownTag: 0, malformed: 1 }], what)
  }
})

t.test('the table of legal transitions is that of the seed', async t => {
  const froms = ['untold', ...POOL_STATES] as const
  const legal = froms.map(from => `${from}: ${POOL_TRANSITIONS[from].join(' ')}`)
  t.strictSame(legal, [
    'untold: local_gpu in_transit',
    'local_gpu: local_gpu in_transit evicted',
    'in_transit: local_gpu in_transit cxl_pooled evicted',
    'cxl_pooled: local_gpu in_transit evicted',
    'evicted: local_gpu in_transit evicted',
  ])
  for (const from of froms) t.equal(isLegalTransition(from, 'in_transit', false), false, 'it names no pool')
})
