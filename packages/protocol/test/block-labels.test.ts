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
  LABEL_MEMBERS_BYTES_MAX,
  LABEL_MEMBERS_DEPTH_MAX,
  labelMembers,
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
  'one label may be for all blocks of a store; labels may stop early; unknown members are kept',
  async t => {
    const store = { type: 'BlockStored', block_hashes: [1, 2], token_ids: [1, 2], block_size: 1 }
    const labelsOf = (more: object) => {
      const { events, skipped } = decoded({ ...store, ...more })
      t.strictSame(skipped, NO_SKIPS)
      return (events[0] as { labels?: unknown }).labels
    }
    const one = { layer_id: 1, expert_id: 2, heat: 9 }
    const same = { layerId: 1, expertId: 2, expertGroup: undefined, members: '{"heat":9}' }
    t.strictSame(labelsOf({ moe_metadata: one }), { experts: [same, same], places: [] })
    t.strictSame(labelsOf({ moe_metadata: [one] }), { experts: [same], places: [] })
    t.strictSame(labelsOf({ moe_metadata: null, cxl_metadata: [] }), undefined)
    t.match(labelsOf({ cxl_metadata: { pool_id: 7, other: [1] } }), {
      places: [
        { state: 'local_gpu', poolId: 7, members: '{"other":[1]}' },
        { state: 'local_gpu', members: '{"other":[1]}' },
      ],
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

/** What JSON and MessagePack both have; integers of more than 53 bits as bigints. */
const value = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(
      null,
      true,
      false,
      '',
      'ä\u2028\u0000',
      '1234567890123456',
      0.5,
      1e20,
      2 ** 63,
      2 ** 60,
      -1e-7,
    ),
    fc.string({ unit: 'grapheme', maxLength: 8 }),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.string({ maxLength: 4 }), tie('value'), { maxKeys: 4 }),
  ),
})).value
const memberNames = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', '7', 'ä'),
  fc.string({ maxLength: 9 }),
)

t.test('unknown members of any kind are the same in every form, and again after that', async t => {
  const known = [
    'layer_id',
    'expert_id',
    'expert_group',
    'state',
    'pool_id',
    'accessible_workers',
    'workers_of',
  ]
  const some = fc
    .uniqueArray(fc.tuple(memberNames, value), { selector: ([name]) => name, maxLength: 3 })
    .filter(members => members.every(([name]) => !known.includes(name)))
  const forms: readonly KvBatchForm[] = ['vllm-map', 'sglang-array', 'sglang-map']
  const same = fc.property(some, some, fc.constantFrom(...forms), (ofExpert, ofPlace, form) => {
    const texts = [labelMembers(ofExpert), labelMembers(ofPlace)] as const
    const with_ = (text: string | undefined) => (text === undefined ? {} : { members: text })
    const labels = {
      experts: [{ layerId: 1, expertId: 2, expertGroup: undefined, ...with_(texts[0]) }],
      places: [
        {
          state: 'evicted' as const,
          poolId: 3,
          accessibleWorkers: new Int32Array(0),
          ...with_(texts[1]),
        },
      ],
    }
    const fields = { hashes: Int32Array.of(1, 2), tokens: Int32Array.of(1), blockSizeTokens: 1 }
    let event = kvStored({ ...fields, labels })
    for (let i = 0; i < 2; i++) {
      const payload = encodeKvBatch({ timestampSeconds: 1, rank: 0, events: [event] }, form)
      event = decodeKvBatch(payload).events[0] as typeof event
      assert.deepEqual(event.labels, labels)
    }
  })
  t.doesNotThrow(() => fc.assert(same, { numRuns: 1000 }))
})

t.test('members that cannot be kept are left out and counted, and the known ones are read', async t => {
  const store = { type: 'BlockStored', block_hashes: [1, 2], token_ids: [1, 2], block_size: 1 }
  const nested = (levels: number): unknown => (levels === 0 ? 1 : [nested(levels - 1)])
  const text = (bytes: number) => 'x'.repeat(bytes - '{"a":"","b":1}'.length)
  const expert = { layerId: 1, expertId: 2, expertGroup: undefined }
  const read = (members: object) => {
    const { events, skipped } = decoded({
      ...store,
      moe_metadata: [
        { a: 0, layer_id: 1, ...members, expert_id: 2 },
        { layer_id: 1, expert_id: 2 },
      ],
      cxl_metadata: { state: 'evicted', c: 1 },
    })
    t.strictSame(skipped, NO_SKIPS)
    const { labels } = events[0] as { labels: { membersLeftOut?: number; places: unknown; experts: unknown } }
    t.match(labels.places, [{ state: 'evicted', members: '{"c":1}' }, { members: '{"c":1}' }])
    return labels
  }
  for (const kept of [{ a: nested(LABEL_MEMBERS_DEPTH_MAX) }, { a: text(LABEL_MEMBERS_BYTES_MAX), b: 1 }]) {
    const { experts, membersLeftOut } = read(kept)
    t.strictSame(
      [membersLeftOut, experts],
      [undefined, [{ ...expert, members: JSON.stringify(kept) }, expert]],
    )
  }
  const wrong: Readonly<Record<string, object>> = {
    'too many bytes': { a: text(LABEL_MEMBERS_BYTES_MAX + 1), b: 1 },
    'too many bytes by far': { a: text(2 ** 20), b: 1 },
    'too many levels': { a: nested(LABEL_MEMBERS_DEPTH_MAX + 1) },
    'very many levels': { a: nested(90) },
    bytes: { a: Uint8Array.of(1) },
    'a time': { a: [new Date(0)] },
    'no number': { a: Number.NaN },
    infinity: { b: { c: Number.NEGATIVE_INFINITY } },
  }
  for (const [what, members] of Object.entries(wrong)) {
    const { experts, membersLeftOut } = read(members)
    t.strictSame([membersLeftOut, experts], [1, [expert, expert]], what)
  }
  // A map of the engine may have keys that are no texts.
  const keyed = Buffer.concat([Uint8Array.of(0x83, 1, 2), encode({ layer_id: 1, expert_id: 2 }).subarray(1)])
  const batch = Buffer.concat([
    Uint8Array.of(0x92, 1, 0x91, 0x85),
    encode(store).subarray(1),
    encode('moe_metadata'),
    keyed,
  ])
  t.match(decodeKvBatch(batch).events, [{ labels: { experts: [expert, expert], membersLeftOut: 1 } }])
  t.throws(() => labelMembers([['a', 2n ** 64n]]), { message: 'a number beyond 64 bits' })
  t.throws(() => labelMembers([['a', '\ud800']]), { message: 'a text that is no Unicode' })
  t.throws(() => labelMembers([['a', () => {}]]), { message: 'a function' })
  t.equal(
    labelMembers([
      ['b', 1],
      ['a', { d: 1, c: undefined }],
    ]),
    '{"a":{"d":1},"b":1}',
  )
  t.equal(labelMembers([['a', undefined]]), undefined)
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
