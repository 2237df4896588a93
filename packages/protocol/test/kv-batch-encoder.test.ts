import assert from 'node:assert/strict'
import { decode } from '@msgpack/msgpack'
import fc from 'fast-check'
import t from 'tap'
import {
  ADAPTER,
  ALL_SEPARATORS,
  decodeKvBatch,
  EXTRA_KEY,
  encodeKvBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatchForm,
  type KvEvent,
  type KvHashForm,
  type KvStored,
  kvRemoved,
  kvStored,
  SALT,
} from '../src/index.ts'
import { vector } from './engine-vectors.ts'

t.test('what is written is what that engine writes', async t => {
  // Whole batches of live engines, decoded and written again, are the same bytes.
  for (const [name, form] of [
    ['B3', 'vllm-array'],
    ['F3', 'vllm-map'],
    ['G1', 'vllm-map'],
  ] as const) {
    t.strictSame(encodeKvBatch(decodeKvBatch(vector(name)), form), vector(name), name)
  }
  const event = kvStored({
    hashes: Int32Array.of(-5, -1),
    tokens: Int32Array.of(1, 2),
    blockSizeTokens: 2,
    cacheSalt: 's',
    group: 0,
    attention: 'full_attention',
  })
  const batch = {
    timestampSeconds: 1.5,
    rank: 3,
    events: [event, kvRemoved({ hashes: event.hashes }), KV_CLEARED],
  }
  const wire = (form: KvBatchForm): unknown => decode(encodeKvBatch(batch, form), { useBigInt64: true })
  t.strictSame(wire('vllm-array'), [
    1.5,
    [
      [
        'BlockStored',
        [2n ** 64n - 5n],
        null,
        [1, 2],
        2,
        null,
        'GPU',
        null,
        [['s']],
        0,
        'full_attention',
        null,
      ],
      ['BlockRemoved', [2n ** 64n - 5n], 'GPU', null],
      ['AllBlocksCleared'],
    ],
    3,
  ])
  t.strictSame(wire('vllm-array-8'), [
    1.5,
    [
      ['BlockStored', [2n ** 64n - 5n], null, [1, 2], 2, null, 'GPU', null],
      ['BlockRemoved', [2n ** 64n - 5n], 'GPU'],
      ['AllBlocksCleared'],
    ],
    3,
  ])
  t.strictSame(wire('sglang-array'), [
    1.5,
    [
      ['BlockStored', [-5n], null, [1, 2], 2, null, 'GPU', { cache_salt: 's' }],
      ['BlockRemoved', [-5n], 'GPU'],
      ['AllBlocksCleared'],
    ],
    3,
  ])
  t.strictSame(wire('sglang-map'), [
    1.5,
    [
      {
        ...{ type: 'BlockStored', block_hashes: [-5n], parent_block_hash: null, token_ids: [1, 2] },
        ...{ block_size: 2, lora_id: null, medium: 'GPU', cache_salt: 's' },
      },
      { type: 'BlockRemoved', block_hashes: [-5n], medium: 'GPU' },
      { type: 'AllBlocksCleared' },
    ],
    3,
  ])
})

const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 })
const hashes = (count: number): fc.Arbitrary<Int32Array> =>
  fc.array(int32, { minLength: count * 2, maxLength: count * 2 }).map(list => Int32Array.from(list))
const tier = fc.constantFrom('device', 'host', 'disk', 'external', 'unknown')
const text = fc.option(fc.string({ minLength: 1 }), { nil: undefined })
const common = {
  tier,
  hashes: fc.nat(5).chain(hashes),
  parent: fc.option(hashes(1), { nil: undefined }),
  tokens: fc.array(int32).map(list => Int32Array.from(list)),
  blockSizeTokens: fc.nat(64),
  sessionId: text,
  loraName: text,
}

/** Separators that an event tells of in any form, since it has them. */
function toldBy({ cacheSalt, loraName, loraId }: KvStored): number {
  return (cacheSalt === undefined ? 0 : SALT) | (loraName === undefined && loraId === undefined ? 0 : ADAPTER)
}

/** What is read back of an event, whose form tells of some separators where there are none, too. */
const told =
  (tells: (event: KvStored) => number) =>
  (event: KvEvent): KvEvent =>
    event.kind === 'stored' ? { ...event, tells: tells(event) } : event

/** Events that a form has room for. */
const EVENTS: Record<KvBatchForm, fc.Arbitrary<KvEvent>> = {
  'vllm-array': vllmEvents(false).map(told(({ hashes }) => (hashes.length > 0 ? ALL_SEPARATORS : ADAPTER))),
  'vllm-array-8': oldVllmEvents().map(told(() => ADAPTER)),
  'vllm-map': fc.tuple(vllmEvents(true), fc.nat(ALL_SEPARATORS)).map(([event, tells]) =>
    told(stored => {
      const hasOthers = stored.mediaHashes !== undefined || stored.hasUnknownExtraKeys
      if (stored.hashes.length > 0 && (hasOthers || tells === ALL_SEPARATORS)) return ALL_SEPARATORS
      return (tells & ~EXTRA_KEY) | toldBy(stored)
    })(event),
  ),
  'sglang-array': sglangEvents().map(told(toldBy)),
  'sglang-map': sglangEvents().map(told(toldBy)),
}

function oldVllmEvents(): fc.Arbitrary<KvEvent> {
  return fc.oneof(
    fc
      .record({
        ...common,
        sessionId: fc.constant(undefined),
        loraId: fc.option(fc.integer({ min: 1 }), { nil: undefined }),
      })
      .map(kvStored),
    fc.record({ hashes: common.hashes, tier }).map(kvRemoved),
    fc.constant(KV_CLEARED),
  )
}

function vllmEvents(isMap: boolean): fc.Arbitrary<KvEvent> {
  const group = fc.option(fc.nat(9), { nil: undefined })
  const isLocal = isMap ? fc.boolean() : fc.constant(true)
  const media = fc.record({ id: fc.string(), offsetTokens: fc.integer() }, { noNullPrototype: true })
  return fc.oneof(
    fc
      .record({
        ...common,
        loraId: fc.option(fc.integer({ min: 1 }), { nil: undefined }),
        group,
        isLocal,
        attention: text,
      })
      .chain(store => {
        const blockCount = store.hashes.length / 2
        return fc.record({
          ...Object.fromEntries(Object.entries(store).map(([key, value]) => [key, fc.constant(value)])),
          cacheSalt: blockCount === 0 ? fc.constant(undefined) : text,
          hasUnknownExtraKeys: blockCount === 0 ? fc.constant(false) : fc.boolean(),
          mediaHashes:
            blockCount === 0
              ? fc.constant(undefined)
              : fc.option(
                  fc
                    .array(fc.array(media, { maxLength: 2 }), {
                      minLength: blockCount,
                      maxLength: blockCount,
                    })
                    .filter(blocks => blocks.some(items => items.length > 0)),
                  { nil: undefined },
                ),
          sessionId: isMap ? text : fc.constant(undefined),
        })
      })
      .map(fields => kvStored(fields as Parameters<typeof kvStored>[0])),
    fc.record({ hashes: common.hashes, tier, group, isLocal }).map(kvRemoved),
    isMap ? fc.constantFrom(KV_CLEARED, KV_WITHDRAWN) : fc.constant(KV_CLEARED),
  )
}

function sglangEvents(): fc.Arbitrary<KvEvent> {
  return fc.oneof(
    fc
      .record({ ...common, cacheSalt: text, loraId: fc.option(fc.integer({ min: 1 }), { nil: undefined }) })
      .map(kvStored),
    fc.record({ hashes: common.hashes, tier }).map(kvRemoved),
    fc.constant(KV_CLEARED),
  )
}

for (const form of Object.keys(EVENTS) as KvBatchForm[]) {
  t.test(`what ${form} has room for is read back`, async t => {
    const agree = fc.property(
      fc.double({ min: 1, max: 4e9, noNaN: true }),
      fc.option(fc.nat(), { nil: undefined }),
      fc.array(EVENTS[form], { maxLength: 4 }),
      fc.constantFrom<KvHashForm>('int', 'bytes'),
      (timestampSeconds, rank, events, hashForm) => {
        const payload = encodeKvBatch({ timestampSeconds, rank, events }, form, { hashes: hashForm })
        const skipped = { unknownTag: 0, malformed: 0 }
        assert.deepEqual(decodeKvBatch(payload), {
          timestampSeconds,
          rank,
          events,
          skipped,
        })
      },
    )
    t.doesNotThrow(() => fc.assert(agree))
  })
}
