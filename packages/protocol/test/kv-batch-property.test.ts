/** Batches of any content decode as a library and plain objects decode them. */

import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import t from 'tap'
import { decodeKvBatch, type KvBatch, MalformedKvBatchError } from '../src/index.ts'
import { vector } from './engine-vectors.ts'
import { naiveDecode } from './naive-decoder.ts'
import { NAMES } from './wire-events.ts'

/** Values that engines send, and some that they should not. */
const wireHash = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
  fc.integer(),
  fc.uint8Array({ minLength: 8, maxLength: 40 }),
)
const rarely = <T>(usual: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 12, arbitrary: usual },
    { weight: 1, arbitrary: fc.constantFrom(null, -1, 1.5, 'x', [], {}, true) },
  )
const wireToken = fc.oneof(fc.integer({ min: 0, max: 200_000 }), fc.integer({ min: 0, max: 2 ** 32 - 1 }))
const wireText = fc.oneof(
  fc.constantFrom('GPU', 'CPU', 'a', 'tenant', 'dynamo-cache-salt:a', 'full_attention', 'Grüße'),
  fc.string(),
)
const extraKey = fc.oneof(wireText, fc.tuple(wireText, fc.integer()), rarely(fc.uint8Array()))
const wireMap = fc.record(
  {
    type: rarely(fc.constantFrom('BlockStored', 'BlockRemoved', 'AllBlocksCleared', 'BlockMoved')),
    block_hashes: rarely(fc.array(wireHash)),
    parent_block_hash: rarely(fc.option(wireHash)),
    token_ids: rarely(fc.oneof(fc.array(wireToken), fc.array(fc.tuple(wireToken, wireToken)))),
    block_size: rarely(fc.nat(64)),
    lora_id: rarely(fc.option(fc.integer())),
    medium: rarely(fc.option(wireText)),
    lora_name: rarely(fc.option(wireText)),
    extra_keys: rarely(fc.array(fc.option(fc.array(extraKey, { maxLength: 3 })), { maxLength: 4 })),
    group_idx: rarely(fc.option(fc.nat(9))),
    kv_cache_spec_kind: rarely(fc.option(wireText)),
    locality: rarely(fc.constantFrom('LOCAL', 'REMOTE', null)),
    cache_salt: rarely(fc.option(wireText)),
    session_id: rarely(fc.option(wireText)),
    withdrawn: rarely(fc.boolean()),
    block_mm_infos: rarely(
      fc.array(fc.option(fc.record({ mm_objects: fc.array(fc.nat()) })), { maxLength: 3 }),
    ),
    future: fc.anything({ maxDepth: 2 }).map(value => JSON.stringify(value) ?? null),
  },
  { requiredKeys: ['type'] },
)
const wireArray = fc.oneof(
  wireMap.map(({ type, block_hashes, parent_block_hash, token_ids, block_size, lora_id, ...rest }) => [
    ...[type, block_hashes, parent_block_hash, token_ids, block_size, lora_id, rest.medium],
    ...[rest.lora_name, rest.extra_keys, rest.group_idx, rest.kv_cache_spec_kind, null, rest.future],
  ]),
  wireMap.map(({ cache_salt, session_id, block_hashes, token_ids, medium, block_size }) => [
    ...['BlockStored', block_hashes ?? [], null, token_ids ?? [], block_size ?? 1, null, medium],
    { cache_salt, session_id, future: 1 },
  ]),
  wireMap.map(({ block_hashes, block_mm_infos, group_idx, kv_cache_spec_kind }) => [
    ...['BlockStored', block_hashes ?? [], null, [], 1, null, 'GPU', null, null],
    ...[block_mm_infos, group_idx, kv_cache_spec_kind, 7],
  ]),
  wireMap.map(({ block_hashes, medium, group_idx }) => ['BlockRemoved', block_hashes, medium, group_idx]),
)
const wireEvent = fc.oneof(
  wireMap,
  wireArray.chain(slots => fc.nat(slots.length).map(size => slots.slice(0, size))),
  wireArray,
)
const wireBatch = fc.tuple(
  fc.double({ noNaN: true }),
  fc.array(wireEvent, { maxLength: 5 }),
  fc.option(fc.integer()),
)

t.test('decodes as a library and plain objects do, whatever the batch', async t => {
  const agree = fc.property(wireBatch, batch => {
    const payload = encode(batch, { useBigInt64: true, ignoreUndefined: false })
    assert.deepEqual(tryDecode(payload), naiveDecode(payload))
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 2000 }))
})

t.test('decodes as the library does, whatever bytes are changed', async t => {
  const change = fc.tuple(
    fc.nat(10_000),
    fc.oneof(fc.nat(255), fc.constantFrom(0xc1, 0xcb, 0xd7, 0xdd, 0xdf, 0x92)),
  )
  const agree = fc.property(
    fc.constantFrom(...NAMES),
    fc.array(change, { minLength: 1, maxLength: 4 }),
    (name, changes) => {
      const payload = vector(name)
      for (const [at, byte] of changes) payload[at % payload.length] = byte
      const batch = tryDecode(payload)
      // The library reads invalid UTF-8 as whatever its bits make; such texts cannot be compared.
      if (!JSON.stringify(batch ?? null).includes('\ufffd')) assert.deepEqual(batch, naiveDecode(payload))
    },
  )
  // A pair of tokens whose head has 16 bits.
  const pair: [number, number][] = [
    [1345, 220],
    [221, 193],
  ]
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 5000, examples: [['B1', pair]] }))
})

function tryDecode(payload: Uint8Array): KvBatch | undefined {
  try {
    return decodeKvBatch(payload)
  } catch (error) {
    assert.ok(error instanceof MalformedKvBatchError, `${error}`)
    return undefined
  }
}
