/** What the fields of an event come to, whatever its form. */

import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import t from 'tap'
import {
  ADAPTER,
  ALL_SEPARATORS,
  decodeKvBatch,
  decodeSnapshotBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvStored,
  kvRemoved,
  kvStored,
  SALT,
} from '../src/index.ts'
import { decodeEvents, tokens, wireStore, words } from './wire-events.ts'

t.test('newer fields, further slots and missing slots are no obstacle', async t => {
  const { events, skipped } = decodeEvents(
    {
      block_size: 2,
      future: { deep: [[[]]] },
      token_ids: [5, 6],
      block_hashes: [3],
      type: 'BlockStored',
      7: 8,
    },
    ['BlockStored', [3], null, [5, 6], 2, null, 'GPU', null, null, null, null, null, 'x', { y: 1 }, []],
    ['BlockStored', [3]],
    ['BlockRemoved', [3], 'STORAGE', 1, 'z', [1]],
    ['AllBlocksCleared', 1, 2, 3],
    { type: 'AllBlocksCleared', block_hashes: 'all' },
    { type: 'BlockRemoved', block_hashes: [3], token_ids: 'none' },
  )
  const store = { hashes: words(3n), tokens: tokens(5, 6), blockSizeTokens: 2 }
  t.strictSame(skipped, { unknownTag: 0, malformed: 0 })
  t.strictSame(events, [
    kvStored({ ...store, tells: 0 }),
    kvStored({ ...store, tells: ADAPTER }),
    kvStored({ hashes: words(3n), tokens: tokens(), blockSizeTokens: 0, tells: 0 }),
    kvRemoved({ hashes: words(3n), tier: 'disk', group: 1 }),
    KV_CLEARED,
    KV_CLEARED,
    kvRemoved({ hashes: words(3n) }),
  ])
})

t.test('a clear is a withdrawal only when it says so', async t => {
  const { events, skipped } = decodeEvents(
    { withdrawn: true, type: 'AllBlocksCleared' },
    ...[false, null, 1, 'true', [true]].map(withdrawn => ({ type: 'AllBlocksCleared', withdrawn })),
    { type: 'BlockRemoved', block_hashes: [3], withdrawn: true },
  )
  t.strictSame(skipped, { unknownTag: 0, malformed: 0 })
  t.strictSame(events, [
    KV_WITHDRAWN,
    ...Array.from({ length: 5 }, () => KV_CLEARED),
    kvRemoved({ hashes: words(3n) }),
  ])
})

t.test('one hash has one form, whatever its width on the wire', async t => {
  for (const bytes of [
    '0000000000000005',
    'ffffffffffffffff',
    '8000000000000000',
    '00000000ffffffff',
    'ffffffff00000000',
    '7fffffffffffffff',
    'ffffffffffffff80',
    'ffffffff80000000',
    '000000000000ffff',
  ]) {
    const value = BigInt(`0x${bytes}`)
    const forms = [
      `cf${bytes}`,
      `d3${bytes}`,
      `c408${bytes}`,
      `c50009aa${bytes}`,
      `c600000020${'11'.repeat(24)}${bytes}`,
      Buffer.from(encode(BigInt.asIntN(64, value), { useBigInt64: true })).toString('hex'),
      Buffer.from(encode(Number(BigInt.asIntN(64, value)))).toString('hex'),
    ].slice(0, Number.isSafeInteger(Number(BigInt.asIntN(64, value))) ? 7 : 6)
    for (const form of forms) {
      const payload = Buffer.from(`92cb41d954fc402000009192ac426c6f636b52656d6f76656491${form}`, 'hex')
      assert.deepEqual(decodeKvBatch(payload).events, [kvRemoved({ hashes: words(value) })], `${form}`)
    }
  }
  t.pass('all widths agree')
})

t.test('extra keys are told apart: adapter, salt, media, and what is not known', async t => {
  const cases: [Record<string, unknown>, Partial<KvStored>][] = [
    [{ extra_keys: [['tenant-a'], null] }, { cacheSalt: 'tenant-a' }],
    [
      { extra_keys: [['a', 'a'], ['a']], lora_name: 'a' },
      { cacheSalt: 'a', loraName: 'a' },
    ],
    [{ extra_keys: [['a'], ['a']], lora_name: 'a' }, { loraName: 'a' }],
    [{ extra_keys: [null, ['b']] }, { hasUnknownExtraKeys: true }],
    [{ extra_keys: [['b', 'c'], null] }, { cacheSalt: 'b', hasUnknownExtraKeys: true }],
    [{ extra_keys: [[new Uint8Array(32)], null] }, { hasUnknownExtraKeys: true }],
    [{ extra_keys: [[['x', 'y']], null] }, { hasUnknownExtraKeys: true }],
    [{ extra_keys: [[['x', 1, 2]], null] }, { hasUnknownExtraKeys: true }],
    [{ extra_keys: [[{ x: 1 }], null] }, { hasUnknownExtraKeys: true }],
    [{ extra_keys: [null, [['img', -4]]] }, { mediaHashes: [[], [{ id: 'img', offsetTokens: -4 }]] }],
    [{ extra_keys: [['dynamo-cache-salt:tenant'], null] }, { cacheSalt: 'tenant' }],
    [{ extra_keys: [['dynamo-cache-salt:tenant']], cache_salt: 'tenant' }, { cacheSalt: 'tenant' }],
    [
      { block_mm_infos: [null, { mm_objects: [{ mm_hash: 5, offsets: [[0, 2]] }] }] },
      { hasUnknownExtraKeys: true },
    ],
    [{ block_mm_infos: { mm_hash: 5 } }, { hasUnknownExtraKeys: true }],
    [{ block_mm_infos: [null, null] }, {}],
    [{ block_mm_infos: null }, {}],
    [{ extra_keys: [] }, {}],
    [{ extra_keys: null }, {}],
  ]
  for (const [wire, expected] of cases) {
    const { events } = decodeEvents(wireStore(wire))
    t.match(
      events[0],
      {
        cacheSalt: undefined,
        loraName: undefined,
        mediaHashes: undefined,
        hasUnknownExtraKeys: false,
        ...expected,
      },
      JSON.stringify(wire),
    )
  }
})

t.test('the tail of a relayed store is told apart by its types', async t => {
  const head = ['BlockStored', [3], null, [5, 6], 2, null, 'GPU', null, null]
  const store = { hashes: words(3n), tokens: tokens(5, 6), blockSizeTokens: 2 }
  for (const [tail, expected] of [
    [[3, 'full_attention', 128], { group: 3, attention: 'full_attention' }],
    [[null, 'full_attention', 128], { attention: 'full_attention' }],
    [['mla_attention', 128], { attention: 'mla_attention' }],
    [[[null], 3, 'full_attention', 128], { group: 3, attention: 'full_attention' }],
    [
      [[{ mm_objects: [] }], 3, 'full_attention'],
      { group: 3, attention: 'full_attention', hasUnknownExtraKeys: true },
    ],
    [[[null]], {}],
    [[null, null, 128], {}],
  ] as const) {
    const { events, skipped } = decodeEvents([...head, ...tail])
    t.strictSame(skipped, { unknownTag: 0, malformed: 0 })
    t.strictSame(events, [kvStored({ ...store, ...expected, tells: ADAPTER })], JSON.stringify(tail))
  }
})

t.test('what TensorRT-LLM publishes is read: maps, and signed hashes from the front of a digest', async t => {
  const { events, skipped } = decodeEvents(
    {
      type: 'BlockStored',
      block_hashes: [-(2n ** 63n), 5n],
      parent_block_hash: -1n,
      token_ids: [1, 2, 3, 4],
      block_size: 2,
      lora_id: null,
      medium: 'GPU',
      lora_name: null,
      group_idx: 0,
      kv_cache_spec_kind: 'full_attention',
      locality: 'LOCAL',
    },
    { type: 'BlockRemoved', block_hashes: [5], medium: 'CPU', group_idx: 0, locality: 'LOCAL' },
    { type: 'AllBlocksCleared' },
  )
  t.strictSame(skipped, { unknownTag: 0, malformed: 0 })
  t.strictSame(events, [
    kvStored({
      hashes: words(2n ** 63n, 5n),
      parent: words(2n ** 64n - 1n),
      tokens: tokens(1, 2, 3, 4),
      blockSizeTokens: 2,
      group: 0,
      attention: 'full_attention',
      tells: ADAPTER,
    }),
    kvRemoved({ hashes: words(5n), tier: 'host', group: 0 }),
    KV_CLEARED,
  ])
})

t.test('an event tells of the separators that its form has a place for', async t => {
  const base = ['BlockStored', [3], null, [5, 6], 2]
  const map = { type: 'BlockStored', block_hashes: [3], token_ids: [5, 6], block_size: 2 }
  for (const [event, tells] of [
    [base, 0],
    [[...base, null], 0],
    [[...base, 7], ADAPTER],
    [[...base, null, 'GPU'], 0],
    [[...base, null, 'GPU', null], ADAPTER],
    [[...base, null, 'GPU', 'a'], ADAPTER],
    [[...base, null, 'GPU', { session_id: 's' }], 0],
    [[...base, null, 'GPU', { cache_salt: 's' }], SALT],
    [[...base, null, 'GPU', { cache_salt: null, lora_name: 'a' }], SALT | ADAPTER],
    [[...base, null, 'GPU', null, null], ADAPTER],
    [[...base, null, 'GPU', null, []], ADAPTER],
    [[...base, null, 'GPU', null, [null]], ALL_SEPARATORS],
    [map, 0],
    [{ ...map, lora_id: null }, 0],
    [{ ...map, lora_id: 3 }, ADAPTER],
    [{ ...map, lora_name: null }, ADAPTER],
    [{ ...map, cache_salt: null }, SALT],
    [{ ...map, cache_salt: 's', lora_name: 'a' }, SALT | ADAPTER],
    [{ ...map, extra_keys: null }, 0],
    [{ ...map, extra_keys: [['s']] }, ALL_SEPARATORS],
  ] as const) {
    t.match(decodeEvents(event).events[0], { tells }, JSON.stringify(event))
  }
})

t.test('adapter 0 is none', async t => {
  const fields = { block_hashes: [1], parent_block_hash: null, token_ids: [1, 2], block_size: 2 }
  const map = { type: 'BlockStored', ...fields, lora_id: 0 }
  const array = ['BlockStored', [1], null, [1, 2], 2, 0, 'GPU']
  const base = kvStored({ hashes: words(1n), tokens: tokens(1, 2), blockSizeTokens: 2, tells: ADAPTER })
  for (const event of [map, array])
    t.strictSame(decodeKvBatch(encode([1, [event], 0], { useBigInt64: true })).events, [base])
})

t.test('a medium without a name of ours is never the device', async t => {
  for (const [medium, tier] of [
    [null, 'device'],
    ['GPU', 'device'],
    ['cpu', 'host'],
    ['CPU_PINNED', 'host'],
    ['CPU_TIER1', 'host'],
    ['CPU_TIER2', 'disk'],
    ['FS', 'disk'],
    ['OBJ', 'disk'],
    ['EXTERNAL', 'external'],
    ['DEVICE', 'device'],
    ['NVME', 'disk'],
    ['NETWORK', 'external'],
    ['REMOTE', 'external'],
    ['SHARED', 'external'],
    ['TAPE', 'unknown'],
    ['', 'unknown'],
  ]) {
    t.match(decodeEvents(wireStore({ medium })).events[0], { tier }, String(medium))
  }
  t.match(decodeEvents(wireStore({ locality: 'NEARBY' })).events[0], { isLocal: false })
  t.match(decodeEvents(wireStore({ locality: 'LOCAL' })).events[0], { isLocal: true })
  const removal = (locality: string) =>
    decodeEvents({ type: 'BlockRemoved', block_hashes: [5], locality }).events[0]
  t.match(removal('NEARBY'), { isLocal: true }, 'it may be of a block that is held')
  t.match(removal('REMOTE'), { isLocal: false })
  t.match(removal('remote'), { isLocal: false })
})

t.test('a store that says anything of its content beside local hashes is refused', async t => {
  const words = new Uint8Array(8)
  const store = { type: 'BlockStored', hash_words: words, local_words: words, tells: 7, block_size: 4 }
  const read = (fields: object) => decodeSnapshotBatch(encode([1, [{ ...store, ...fields }], null]))
  t.match(read({}), { events: [{ kind: 'stored' }], skipped: { malformed: 0 } })
  const besides = {
    token_ids: [1, 2, 3, 4],
    cache_salt: 'tenant',
    extra_keys: [['tenant']],
    block_mm_infos: [{}],
  }
  for (const [name, value] of Object.entries(besides))
    t.match(read({ [name]: value }), { events: [], skipped: { malformed: 1 } }, name)
  const nils = Object.fromEntries(Object.keys(besides).map(name => [name, null]))
  t.match(read(nils), { events: [{ kind: 'stored' }], skipped: { malformed: 0 } }, 'nil is nothing')
})
