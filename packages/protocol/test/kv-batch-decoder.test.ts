/** Payloads become batches: those of every engine version, and broken ones. */

import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import t from 'tap'
import {
  ADAPTER,
  decodeKvBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  kvRemoved,
  kvStored,
  MalformedKvBatchError,
  SALT,
} from '../src/index.ts'
import { type VectorName, vector } from './engine-vectors.ts'
import { naiveDecode } from './naive-decoder.ts'
import { decodeEvents, NAMES, tokens, wireStore, words } from './wire-events.ts'

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
