import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import t from 'tap'
import {
  ADAPTER,
  ALL_SEPARATORS,
  decodeKvBatch,
  decodeSnapshotBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  type KvStored,
  kvRemoved,
  kvStored,
  MalformedKvBatchError,
  SALT,
} from '../src/index.ts'
import { ENGINE_VECTORS, type VectorName, vector } from './engine-vectors.ts'
import { naiveDecode } from './naive-decoder.ts'

const NAMES = Object.keys(ENGINE_VECTORS) as VectorName[]

/** `[lo, hi]` pairs of 64-bit values. */
function words(...hashes: bigint[]): Int32Array {
  return Int32Array.from(
    hashes.flatMap(hash => [Number(BigInt.asIntN(32, hash)), Number(BigInt.asIntN(32, hash >> 32n))]),
  )
}

function tokens(...ids: number[]): Int32Array {
  return Int32Array.from(ids)
}

const F = 0xf0e1d2c3b4a59687n
const DIGEST_A = 0x18191a1b1c1d1e1fn
const DIGEST_B = 0x38393a3b3c3d3e3fn

const EXPECTED: Record<VectorName, Pick<KvBatch, 'rank' | 'events'>> = {
  A1: {
    rank: undefined,
    events: [
      kvStored({
        hashes: words(0x1122334455667788n, -5n),
        tokens: tokens(1, 2, 3, 4, 5, 6, 7, 8),
        blockSizeTokens: 4,
        tells: 0,
      }),
    ],
  },
  A2: { rank: undefined, events: [kvRemoved({ hashes: words(-5n) }), KV_CLEARED] },
  B1: {
    rank: 0,
    events: [
      kvStored({
        hashes: words(F, 7n),
        parent: words(0xffffffffffffffffn),
        tokens: tokens(151644, 872, 198, 9707),
        blockSizeTokens: 2,
        tells: 0,
      }),
    ],
  },
  B2: { rank: 1, events: [kvRemoved({ hashes: words(F) })] },
  B3: { rank: undefined, events: [KV_CLEARED] },
  C1: {
    rank: 2,
    events: [
      kvStored({
        hashes: words(DIGEST_A),
        parent: words(DIGEST_B),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        loraId: 7,
        loraName: 'adapter-a',
        cacheSalt: 'salt-1',
        mediaHashes: [[{ id: 'img-abc', offsetTokens: 0 }]],
        group: 0,
        attention: 'full_attention',
      }),
    ],
  },
  C2: { rank: 2, events: [kvRemoved({ hashes: words(DIGEST_A), group: 0 })] },
  D1: {
    rank: 0,
    events: [
      kvStored({
        hashes: words(F),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        group: 0,
        attention: 'full_attention',
      }),
    ],
  },
  D2: {
    rank: 1,
    events: [
      kvStored({
        hashes: words(DIGEST_A),
        parent: words(DIGEST_B),
        tokens: tokens(5, 6, 7, 8),
        blockSizeTokens: 4,
        loraId: 7,
        loraName: 'adapter-a',
        group: 0,
        attention: 'full_attention',
        sessionId: 's1',
      }),
      kvRemoved({ hashes: words(DIGEST_A), group: 0 }),
      KV_CLEARED,
    ],
  },
  D3: {
    rank: 0,
    events: [
      kvStored({
        hashes: words(0x11n),
        tokens: tokens(),
        blockSizeTokens: 0,
        tier: 'host',
        group: 0,
        tells: ADAPTER,
      }),
      kvRemoved({ hashes: words(0x11n), tier: 'disk', isLocal: false, group: 0 }),
    ],
  },
  D4: {
    rank: 0,
    events: [
      kvStored({
        hashes: words(9n),
        parent: words(8n),
        tokens: tokens(1, 2, 3, 4, 5, 6, 7, 8),
        blockSizeTokens: 4,
        group: 1,
        attention: 'sliding_window',
      }),
    ],
  },
  E1: {
    rank: 0,
    events: [
      KV_CLEARED,
      kvStored({
        hashes: words(-3488128144981237669n),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        tells: 0,
      }),
      kvRemoved({ hashes: words(-3488128144981237669n) }),
    ],
  },
  E1b: {
    rank: 0,
    events: [
      kvStored({
        hashes: words(3718046898735569995n),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        cacheSalt: 'tenant-a',
        tells: SALT,
      }),
    ],
  },
  E2: {
    rank: 1,
    events: [
      kvStored({
        hashes: words(3718046898735569995n),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        cacheSalt: 'tenant-a',
        tells: SALT,
      }),
      kvStored({
        hashes: words(-638950109823820341n),
        tokens: tokens(1, 2, 3, 4),
        blockSizeTokens: 4,
        tier: 'host',
        tells: 0,
      }),
      kvRemoved({ hashes: words(3718046898735569995n) }),
    ],
  },
  F1: {
    rank: 0,
    events: [
      kvStored({ hashes: words(-1n, 42n), tokens: tokens(10, 20, 30, 40), blockSizeTokens: 2, tells: 0 }),
      kvRemoved({ hashes: words(-1n) }),
      KV_CLEARED,
    ],
  },
  F2: { rank: 3, events: [kvRemoved({ hashes: words(-1n, 42n) })] },
  F3: { rank: undefined, events: [KV_CLEARED] },
  G1: { rank: undefined, events: [KV_WITHDRAWN] },
}

t.test('every engine version decodes to the same events', async t => {
  for (const name of NAMES) {
    const batch = decodeKvBatch(vector(name))
    t.strictSame(
      batch,
      { timestampSeconds: 1_700_000_000.5, ...EXPECTED[name], skipped: { unknownTag: 0, malformed: 0 } },
      name,
    )
    assert.deepEqual(naiveDecode(vector(name)), batch, name)
  }
})

t.test('a message cut short anywhere is an error of that message and nothing worse', async t => {
  let cutCount = 0
  for (const name of NAMES) {
    const whole = vector(name)
    for (let size = 0; size < whole.length; size++) {
      assert.throws(
        () => decodeKvBatch(whole.subarray(0, size)),
        MalformedKvBatchError,
        `${name} cut at ${size}`,
      )
      cutCount++
    }
    assert.throws(() => decodeKvBatch(Uint8Array.of(...whole, 0xc0)), MalformedKvBatchError)
  }
  t.ok(cutCount > 2000, `${cutCount} cuts`)
})

t.test('a payload that is not a batch is an error that says so', async t => {
  for (const [value, reason] of [
    [{ ts: 1 }, /map where array is expected/],
    ['BlockStored', /string where array/],
    [7, /integer where array/],
    [[], /0 slots/],
    [[1.5], /1 slots/],
    [[1.5, { type: 'BlockStored' }, 0], /map where array/],
    [['now', [], 0], /string where integer/],
    [[Number.NaN, [], 0], /timestamp is not finite/],
  ] as const) {
    t.throws(() => decodeKvBatch(encode(value)), { code: 'HOMING_PROTOCOL_BAD_BATCH', message: reason })
  }
  t.throws(() => decodeKvBatch(Uint8Array.of(0x92, 0x01, 0xc1)), /reserved byte/)
})

/** A store as a map, with changes. */
function wireStore(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    type: 'BlockStored',
    block_hashes: [1, 2],
    parent_block_hash: null,
    token_ids: [1, 2, 3, 4],
    block_size: 2,
    lora_id: null,
    medium: 'GPU',
    lora_name: null,
    ...changes,
  }
}

function decodeEvents(...events: unknown[]): KvBatch {
  const payload = encode([1_700_000_000.5, events, 0], { useBigInt64: true })
  const batch = decodeKvBatch(payload)
  assert.deepEqual(naiveDecode(payload), batch)
  return batch
}

t.test('one event that is not understood does not cost its batch', async t => {
  const bad: Record<string, unknown> = {
    'an unknown tag': { type: 'BlockMoved', block_hashes: 'elsewhere' },
    'an unknown tag in an array': ['BlockMoved', 1.5],
    'a float hash': wireStore({ block_hashes: [1.5] }),
    'a hash of 7 bytes': wireStore({ block_hashes: [new Uint8Array(7)] }),
    'a text hash': wireStore({ block_hashes: ['1'] }),
    'no hashes': wireStore({ block_hashes: null }),
    'a float parent': wireStore({ parent_block_hash: 0.5 }),
    'a negative token': wireStore({ token_ids: [1, -2] }),
    'a token beyond 32 bits': wireStore({ token_ids: [2 ** 40] }),
    'a triple of tokens': wireStore({ token_ids: [[1, 2, 3]] }),
    'tokens in a map': wireStore({ token_ids: { 1: 2 } }),
    'a negative block size': wireStore({ block_size: -1 }),
    'an adapter that is a number': wireStore({ lora_name: 7 }),
    'no type': { block_hashes: [1] },
    'a type that is a number': { type: 1 },
    'an empty array': [],
    'an array without a tag': [1, 2],
    'a text': 'BlockStored',
    nil: null,
  }
  for (const [name, event] of Object.entries(bad)) {
    const { events, skipped } = decodeEvents(wireStore(), event, ['BlockRemoved', [2], 'CPU'])
    t.strictSame(
      events.map(({ kind }) => kind),
      ['stored', 'removed'],
      name,
    )
    const isUnknown = name.startsWith('an unknown tag')
    t.strictSame(skipped, { unknownTag: isUnknown ? 1 : 0, malformed: isUnknown ? 0 : 1 }, name)
  }
})

t.test('a float is no hash, even when it is whole', async t => {
  // 91 cb …: one hash, the float64 7.0.
  const payload = Buffer.from(
    '93cb41d954fc402000009192ac426c6f636b52656d6f76656491cb401c00000000000000',
    'hex',
  )
  t.strictSame(decodeKvBatch(payload).skipped, { unknownTag: 0, malformed: 1 })
})

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

t.test('events outlive their message', async t => {
  const payload = vector('C1')
  const { events } = decodeKvBatch(payload)
  payload.fill(0)
  t.strictSame(events, EXPECTED.C1.events)
})

t.test('a message that claims more than it holds is refused without the memory it claims', async t => {
  const ten = '93cb41d954fc40200000'
  for (const claim of [
    'ddffffffff',
    '9192ac426c6f636b52656d6f766564ddffffffff',
    '91dfffffffff',
    '91c6ffffffff',
  ]) {
    t.throws(() => decodeKvBatch(Buffer.from(ten + claim, 'hex')), MalformedKvBatchError)
  }
  const deep = Buffer.concat([
    Buffer.from(`${ten}91`, 'hex'),
    Buffer.alloc(1_000_000, 0x91),
    Buffer.from('c000', 'hex'),
  ])
  t.strictSame(decodeKvBatch(deep).skipped, { unknownTag: 0, malformed: 1 }, 'a million levels')
})

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
