/** Answers of TensorRT-LLM, written from its documented form. */

import t from 'tap'
import {
  KV_CLEARED,
  KV_WITHDRAWN,
  kvRemoved,
  kvStored,
  MalformedKvBatchError,
  SALT,
  TensorRtEvents,
} from '../src/index.ts'

const BIG = 17357386176853808775n

/** A start, one full block, and a partial one behind it. */
const STARTED = `[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,0]},"window_size":8192},
 {"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[
  {"type":"stored_block","block_hash":17357386176853808775,"tokens":[
   {"type":"unique_token","token_id":1,"token_extra_id":0},{"type":"unique_token","token_id":2,"token_extra_id":0},
   {"type":"unique_token","token_id":3,"token_extra_id":0},{"type":"unique_token","token_id":4,"token_extra_id":0}],
   "cache_level":0,"priority":35},
  {"type":"stored_block","block_hash":77,"tokens":[{"type":"unique_token","token_id":5,"token_extra_id":0}],
   "cache_level":0,"priority":35}]},"window_size":8192}]`
/** The block goes to the host, the partial one is removed, and event 3 is missing. */
const MOVED = `[{"event_id":2,"data":{"type":"updated","block_hash":17357386176853808775,
  "cache_level":{"type":"event_diff","old_value":0,"new_value":1},"priority":null},"window_size":8192},
 {"event_id":4,"data":{"type":"removed","block_hashes":[77]},"window_size":8192}]`

const NOTHING_SKIPPED = { unknownTag: 0, malformed: 0 }

function words(...hashes: bigint[]): Int32Array {
  return Int32Array.from(
    hashes.flatMap(hash => [Number(BigInt.asIntN(32, hash)), Number(BigInt.asIntN(32, hash >> 32n))]),
  )
}

function reader(blockSizeTokens = 4) {
  const events = new TensorRtEvents({ blockSizeTokens })
  return {
    text: (body: string) => events.read(Buffer.from(body)),
    /** Elements with ids, windows and hashes as given; BigInt is written as a number. */
    read: (...elements: readonly unknown[]) =>
      events.read(
        Buffer.from(
          JSON.stringify(elements, (_, value) => (typeof value === 'bigint' ? `#${value}#` : value)).replace(
            /"#(-?\d+)#"/g,
            '$1',
          ),
        ),
      ),
  }
}

function block(hash: unknown, tokens: readonly number[], changes: object = {}): object {
  return {
    type: 'stored_block',
    block_hash: hash,
    tokens: tokens.map(token_id => ({ type: 'unique_token', token_id, token_extra_id: 0 })),
    cache_level: 0,
    priority: 35,
    ...changes,
  }
}

function element(event_id: unknown, data: unknown, changes: object = {}): object {
  return { event_id, data, window_size: 8192, ...changes }
}

function stored(parent_hash: unknown, ...blocks: readonly object[]): object {
  return { type: 'stored', parent_hash, blocks }
}

const FULL = [1, 2, 3, 4]

t.test('the documented answers: a start, a partial block, an offload, a gap', async t => {
  const { text } = reader()
  t.strictSame(text(STARTED), {
    batches: [
      {
        rank: undefined,
        missedEvents: 0,
        events: [
          KV_CLEARED,
          kvStored({ hashes: words(BIG), tokens: Int32Array.from(FULL), blockSizeTokens: 4, tells: 0 }),
        ],
      },
    ],
    skipped: NOTHING_SKIPPED,
  })
  t.strictSame(text(MOVED), {
    batches: [
      {
        rank: undefined,
        missedEvents: 0,
        events: [
          kvStored({ hashes: words(BIG), tokens: new Int32Array(0), blockSizeTokens: 0, tier: 'host' }),
          kvRemoved({ hashes: words(BIG) }),
        ],
      },
      { rank: undefined, missedEvents: 1, events: [] },
    ],
    skipped: NOTHING_SKIPPED,
  })
  t.strictSame(text('[]'), { batches: [], skipped: NOTHING_SKIPPED }, 'an empty queue')
})

t.test('what was removed is gone from wherever it may have been', async t => {
  const { text, read } = reader()
  text(STARTED)
  const device = kvRemoved({ hashes: words(5n) })
  t.strictSame(read(element(2, { type: 'removed', block_hashes: [5] })).batches[0]!.events, [device])
  read(element(3, stored(null, block(6, FULL, { cache_level: 1 }))))
  t.strictSame(read(element(4, { type: 'removed', block_hashes: [5, 77] })).batches[0]!.events, [
    device,
    kvRemoved({ hashes: words(5n), tier: 'host' }),
  ])
})

t.test('blocks are chained, in runs of one tier', async t => {
  const { events } = reader().read(
    element(
      0,
      stored(
        2n ** 64n - 1n,
        block(1, FULL),
        block(2, FULL),
        block(3, FULL, { cache_level: 1 }),
        block(4, FULL, { cache_level: 1, mm_keys: [{ hash: 'x' }] }),
        block(5, FULL, { cache_salt: 'tenant' }),
      ),
    ),
  ).batches[0]!
  const fields = { blockSizeTokens: 4, tokens: Int32Array.from(FULL), tells: 0 }
  t.strictSame(events, [
    kvStored({
      hashes: words(1n, 2n),
      parent: words(2n ** 64n - 1n),
      tokens: Int32Array.from([...FULL, ...FULL]),
      blockSizeTokens: 4,
      tells: 0,
    }),
    kvStored({ ...fields, hashes: words(3n), parent: words(2n), tier: 'host' }),
    kvStored({ ...fields, hashes: words(4n), parent: words(3n), tier: 'host', hasUnknownExtraKeys: true }),
    kvStored({ ...fields, hashes: words(5n), parent: words(4n), cacheSalt: 'tenant', tells: SALT }),
  ])
})

t.test('tokens with more to them than their id do not say what the block holds', async t => {
  const tokens = [1, 2, 3, 4].map(token_id => ({ token_id, token_extra_id: token_id === 3 ? 9 : 0 }))
  const { events } = reader().read(element(0, stored(null, block(1, FULL, { tokens })))).batches[0]!
  t.match(events, [{ kind: 'stored', hasUnknownExtraKeys: true }])
})

t.test('only the largest window is of whole prefixes', async t => {
  const { read } = reader()
  const small = { window_size: 512 }
  const { batches } = read(
    element(0, { type: 'created' }, small),
    element(1, { type: 'created' }),
    element(2, { type: 'created' }, small),
    element(3, stored(null, block(1, FULL)), small),
    element(4, stored(null, block(1, FULL))),
    element(5, { type: 'removed', block_hashes: [1] }, small),
  )
  t.strictSame(
    batches[0]!.events.map(({ kind }) => kind),
    ['cleared', 'cleared', 'stored'],
  )
  t.match(
    read(element(6, stored(null, block(2, FULL)), { window_size: 9000 })).batches[0]!.events,
    [KV_WITHDRAWN, { kind: 'stored' }],
    'of a larger one that was not announced, what went before is not known',
  )
})

t.test('a server that restarts may have smaller windows', async t => {
  const { read } = reader()
  const small = { window_size: 512 }
  const store = stored(null, block(1, FULL))
  read(element(0, { type: 'created' }), element(1, store))
  t.match(read(element(0, { type: 'created' }, small), element(1, store, small)).batches, [
    { missedEvents: 0, events: [KV_WITHDRAWN, KV_CLEARED, KV_CLEARED, { kind: 'stored' }] },
  ])
})

t.test('ranks have histories of their own; holes and restarts are told', async t => {
  const { read } = reader()
  const at = (rank: number) => ({ attention_dp_rank: rank })
  const store = stored(null, block(1, FULL))
  t.match(read(element(0, store, at(0)), element(2, store, at(1)), element(1, store, at(0))).batches, [
    { rank: 0, missedEvents: 0, events: [{ kind: 'stored' }] },
    { rank: 1, missedEvents: 2 },
    { rank: 0, missedEvents: 0 },
  ])
  t.match(read(element(2, store, at(0)), element(9, store, at(0))).batches, [
    { rank: 0, missedEvents: 0 },
    { rank: 0, missedEvents: 6 },
  ])
  t.match(read(element(0, store, at(0))).batches, [
    { rank: 0, missedEvents: 0, events: [KV_WITHDRAWN, KV_CLEARED, { kind: 'stored' }] },
  ])
  const restarted = read(element(1, store, at(0)), element(1, store, at(0)), element(0, store, at(0))).batches
  t.match(restarted, [
    { rank: 0, missedEvents: 0, events: [{ kind: 'stored' }] },
    { rank: 0, missedEvents: 1, events: [{ kind: 'stored' }] },
  ])
  t.match(restarted[1]!.events, [{ kind: 'stored' }, KV_WITHDRAWN, KV_CLEARED, { kind: 'stored' }])
})

t.test('groups of layers are told apart', async t => {
  const group = { layer_group_id: 2 }
  const { events } = reader().read(
    element(0, stored(null, block(1, FULL)), group),
    element(1, { type: 'removed', block_hashes: [1] }, group),
  ).batches[0]!
  t.match(events, [
    { kind: 'stored', group: 2 },
    { kind: 'removed', group: 2 },
  ])
})

t.test('a priority that changes, and a level that does not, are no events', async t => {
  const update = (changes: object) => ({ type: 'updated', block_hash: 1, cache_level: null, ...changes })
  const { batches, skipped } = reader().read(
    element(0, update({ priority: { type: 'event_diff', old_value: 35, new_value: 50 } })),
    element(1, update({ cache_level: { type: 'event_diff', old_value: 1, new_value: 1 } })),
  )
  t.strictSame([batches[0]!.events, skipped], [[], NOTHING_SKIPPED])
})

t.test('one event that is not understood does not cost its answer, and its id counts as seen', async t => {
  const good = stored(null, block(1, FULL))
  const bad: Record<string, unknown> = {
    'no blocks': { type: 'stored', parent_hash: null },
    'a block without tokens': stored(null, block(1, [])),
    'too many tokens': stored(null, block(1, [1, 2, 3, 4, 5])),
    'a block behind a partial one': stored(null, block(1, [1]), block(2, FULL)),
    'a negative token': stored(null, block(1, [1, 2, 3, -4])),
    'a float hash': stored(null, block(1.5, FULL)),
    'a hash beyond 64 bits': stored(null, block(2n ** 64n, FULL)),
    'a text hash': { type: 'removed', block_hashes: ['1'] },
    'a float parent': stored(0.5, block(1, FULL)),
    'a salt that is a number': stored(null, block(1, FULL, { cache_salt: 7 })),
    'a level that is a text': { type: 'updated', block_hash: 1, cache_level: 'gpu' },
  }
  for (const [name, data] of Object.entries(bad)) {
    const { batches, skipped } = reader().read(element(0, good), element(1, data), element(2, good))
    t.strictSame(skipped, { unknownTag: 0, malformed: 1 }, name)
    t.equal(batches.length, 1, `${name} is no hole`)
    t.equal(batches[0]!.events.length, 2, name)
  }
  for (const junk of [null, 7, 'stored', [], {}, element(-1, good), element(0, {}), element(0.5, good)]) {
    t.strictSame(reader().read(junk).skipped, { unknownTag: 0, malformed: 1 }, JSON.stringify(junk))
  }
  t.strictSame(reader().read(element(0, { type: 'moved' })).skipped, { unknownTag: 1, malformed: 0 })
})

t.test('an answer that is no JSON array is an error that says so', async t => {
  const { text } = reader()
  for (const [body, reason] of [
    ['', /not JSON/],
    [STARTED.slice(0, -1), /not JSON/],
    ['{"error":"not enabled"}', /a JSON array is expected/],
    ['['.repeat(100_000) + ']'.repeat(100_000), /not JSON/],
  ] as const) {
    t.throws(() => text(body), { code: 'HOMING_PROTOCOL_BAD_BATCH', message: reason })
  }
  t.throws(
    () => new TensorRtEvents({ blockSizeTokens: 4 }).read(Uint8Array.of(0x5b, 0xff, 0x5d)),
    MalformedKvBatchError,
  )
})

t.test('partial blocks and ranks without end do not grow without end', async t => {
  const { read } = reader()
  for (let round = 0; round < 70; round++) {
    read(
      ...Array.from({ length: 1000 }, (_, i) =>
        element(round * 1000 + i, stored(null, block(round * 1000 + i, [1]))),
      ),
    )
  }
  // The first of all was forgotten: its removal is passed on.
  t.equal(read(element(70_000, { type: 'removed', block_hashes: [0, 69_999] })).batches[0]!.events.length, 1)
  const ranks = Array.from({ length: 1100 }, (_, rank) =>
    element(0, { type: 'created' }, { attention_dp_rank: rank }),
  )
  t.ok(read(...ranks).skipped.malformed > 0)
})
