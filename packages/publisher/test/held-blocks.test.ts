import assert from 'node:assert/strict'
import {
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvEvent,
  type KvLabels,
  type KvPoolPlace,
  type KvStored,
  kvRemoved,
  kvStored,
} from '@homing/protocol'
import fc from 'fast-check'
import t from 'tap'
import { wordsOf } from '../src/engine-hash.ts'
import { BLOCK_BYTES, HeldBlocks } from '../src/index.ts'
import { BLOCK_SIZE, history, keyOf, storedChain } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

const ROOM = { bytesMax: 2 ** 24 }
const BYTES_PER_BLOCK = BLOCK_BYTES + 4 * BLOCK_SIZE

function heldAfter(events: readonly KvEvent[], options = ROOM): HeldBlocks {
  const held = new HeldBlocks(options)
  for (const event of events) held.apply(event)
  return held
}

/** Everything held now. */
function dump(held: HeldBlocks, eventBlocksMax: number): readonly KvStored[] {
  const frozen = held.freeze()
  const events = [...frozen.runs(0, frozen.size, eventBlocksMax)]
  frozen.release()
  return events
}

/** Blocks of each store. */
function lengths(dump: Iterable<KvStored>): readonly number[] {
  return [...dump].map(event => event.hashes.length / 2)
}

t.test('a dump rebuilds what the naive model holds, whatever happened before', async t => {
  const agree = fc.property(history, fc.integer({ min: 1, max: 4 }), (events, runMax) => {
    const held = heldAfter(events)
    const naive = new NaiveCache().applyAll(events)
    const stores = dump(held, runMax)
    const rebuilt = new NaiveCache().applyAll(stores)
    assert.deepEqual(rebuilt.state(), naive.state())
    assert.ok(stores.every(event => event.hashes.length / 2 <= runMax))
    // Only parents that are not held at all may be missing when their children come.
    const missing = [...naive.blocks].flatMap(([name, { parent, copies }]) => {
      const scope = name.slice(0, name.lastIndexOf('/') + 1)
      return parent === undefined || naive.blocks.has(`${scope}${parent}`) ? [] : [copies]
    })
    assert.equal(
      rebuilt.orphans,
      missing.reduce((sum, copies) => sum + copies, 0),
    )
    const copies = [...naive.blocks.values()].reduce((sum, block) => sum + block.copies, 0)
    assert.deepEqual(
      [held.stats.blocks, held.stats.copies, held.stats.bytes],
      [naive.blocks.size, copies, copies * BYTES_PER_BLOCK],
    )
    assert.equal(held.isWhole, true)
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})

t.test('what is frozen stays as it was, whatever comes after', async t => {
  const agree = fc.property(
    history,
    history,
    history,
    fc.boolean(),
    (events, more, evenMore, isLastFirst) => {
      const held = heldAfter(events)
      const moments = [{ frozen: held.freeze(), naive: new NaiveCache().applyAll(events).state() }]
      for (const event of more) held.apply(event)
      moments.push({
        frozen: held.freeze(),
        naive: new NaiveCache().applyAll(events).applyAll(more).state(),
      })
      for (const event of evenMore) held.apply(event)
      if (isLastFirst) moments.reverse()
      for (const { frozen, naive } of moments) {
        const stores = frozen.runs(0, frozen.size, 3)
        assert.deepEqual(new NaiveCache().applyAll(stores).state(), naive)
        frozen.release()
        frozen.release()
      }
      const now = new NaiveCache().applyAll([...events, ...more, ...evenMore])
      assert.deepEqual(new NaiveCache().applyAll(dump(held, 512)).state(), now.state())
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})

t.test('blocks that come and go while others are frozen take no room', async t => {
  const fields = { hashes: wordsOf([7n]), blockSizeTokens: 16_384 }
  const tokens = new Int32Array(fields.blockSizeTokens)
  const came = kvStored({ ...fields, tokens })
  const gone = kvRemoved(fields)
  const held = heldAfter([kvStored({ ...fields, hashes: wordsOf([8n]), tokens })])
  const first = held.freeze()
  const { arrayBuffers: before } = process.memoryUsage()
  for (let i = 0; i < 1000; i++) {
    held.apply(came)
    held.apply(gone)
  }
  const { arrayBuffers: alone } = process.memoryUsage()
  for (let i = 0; i < 1000; i++) {
    held.apply(came)
    const next = held.freeze()
    held.apply(gone)
    next.release()
  }
  const { arrayBuffers: overlapping } = process.memoryUsage()
  first.release()
  // A thousand of them have 65 MB; the rows that there are at first have 1 MB.
  t.ok(alone - before < 2 ** 23, `grown by ${alone - before} bytes`)
  t.ok(overlapping - before < 2 ** 23, `grown by ${overlapping - before} bytes with further freezes`)
})

t.test('a chain that was stored block by block is told in one run', async t => {
  const chain = [1, 2, 3, 1, 2]
  const held = heldAfter(chain.map((_, i) => storedChain(chain.slice(0, i + 1), i)))
  t.strictSame(lengths(dump(held, 512)), [5])
  t.strictSame(lengths(dump(held, 2)), [2, 2, 1])
})

t.test('a parent that came back after its child is told first', async t => {
  const held = heldAfter([
    storedChain([1, 2, 3], 0),
    kvRemoved({ hashes: wordsOf([keyOf([1])]) }),
    storedChain([1], 0),
  ])
  t.equal(new NaiveCache().applyAll(dump(held, 512)).orphans, 0)
})

t.test('parents that go in a circle do not keep a dump from ending', async t => {
  const store = (hash: bigint, parent: bigint): KvEvent =>
    kvStored({
      hashes: wordsOf([hash]),
      parent: wordsOf([parent]),
      tokens: new Int32Array(BLOCK_SIZE),
      blockSizeTokens: BLOCK_SIZE,
    })
  const held = heldAfter([store(1n, 2n), store(2n, 3n), store(3n, 1n), store(4n, 4n)])
  t.equal(lengths(dump(held, 1)).length, 4)
})

t.test('what a store says beside its tokens is told again', async t => {
  const event = kvStored({
    hashes: wordsOf([7n, 2n ** 64n - 1n]),
    parent: wordsOf([0n]),
    tokens: Int32Array.of(1, 2, 3, 4, 5, 6, 7, -1),
    blockSizeTokens: BLOCK_SIZE,
    tier: 'disk',
    loraName: 'adapter',
    loraId: 3,
    cacheSalt: 'tenant',
    mediaHashes: [[], [{ id: 'image', offsetTokens: -2 }]],
    hasUnknownExtraKeys: true,
    group: 3,
    attention: 'full_attention',
  })
  t.strictSame(dump(heldAfter([event]), 512), [event])
  const untold = kvStored({ ...event, tells: 0 })
  t.strictSame(dump(heldAfter([untold]), 512), [untold], 'what it does not say is not said in its place')
})

t.test('labels go with their block: not to another one under its hash, nor past its eviction', async t => {
  const labels = (state: KvPoolPlace['state']): KvLabels => ({
    experts: [{ layerId: 1, expertId: 2, expertGroup: undefined }],
    places: [{ state, poolId: 3, accessibleWorkers: Int32Array.of(5, 0) }],
  })
  const hashes = wordsOf([keyOf([1])])
  const moved = (state: KvPoolPlace['state']): KvEvent => ({
    kind: 'transition',
    hashes,
    state,
    poolId: 3,
    accessibleWorkers: Int32Array.of(5, 0),
  })
  const labelled = (state: KvPoolPlace['state']): KvStored => ({
    ...storedChain([1], 0),
    labels: labels(state),
  })
  const other: KvStored = { ...storedChain([1], 0), tokens: Int32Array.of(9, 9, 9, 9) }
  const cases: readonly (readonly [string, readonly KvEvent[], readonly (KvLabels | undefined)[]])[] = [
    ['as it was stored', [labelled('cxl_pooled')], [labels('cxl_pooled')]],
    ['another block under its hash', [labelled('cxl_pooled'), other], [undefined]],
    ['another one of the pool', [labelled('cxl_pooled'), kvRemoved({ hashes }), other], [undefined]],
    [
      'the same one of the pool',
      [labelled('cxl_pooled'), kvRemoved({ hashes }), storedChain([1], 0)],
      [labels('cxl_pooled')],
    ],
    ['neither held nor pooled', [labelled('cxl_pooled'), kvRemoved({ hashes }), moved('evicted')], []],
    [
      'and so on its way to no pool',
      [
        labelled('cxl_pooled'),
        kvRemoved({ hashes }),
        moved('evicted'),
        moved('in_transit'),
        moved('cxl_pooled'),
      ],
      [],
    ],
    ['in a pool alone', [{ ...labelled('in_transit'), isLocal: false }], [labels('in_transit')]],
    ['in no pool, and not held', [{ ...labelled('evicted'), isLocal: false }], []],
    [
      'of a pool that has evicted it',
      [
        { ...labelled('cxl_pooled'), isLocal: false },
        { ...labelled('evicted'), isLocal: false },
      ],
      [],
    ],
    [
      'held, and in a pool as well',
      [storedChain([1], 0), { ...labelled('cxl_pooled'), isLocal: false }],
      [labels('cxl_pooled')],
    ],
  ]
  for (const [name, events, expected] of cases) {
    const held = heldAfter(events)
    t.strictSame(
      dump(held, 512).map(event => event.labels),
      expected,
      name,
    )
    t.equal(held.stats.blocks, expected.length, name)
    for (const event of dump(held, 512)) held.apply(kvRemoved({ hashes: event.hashes }))
    held.apply(moved('evicted'))
    t.match(held.stats, { blocks: 0, bytes: 0 }, `${name}: nothing is left`)
  }
})

t.test('a placeholder names a known block on another tier, without its tokens', async t => {
  const placeholder = kvStored({
    hashes: wordsOf([keyOf([1])]),
    tokens: new Int32Array(0),
    blockSizeTokens: 0,
    tier: 'host',
  })
  const stores = dump(heldAfter([placeholder, storedChain([1], 0)]), 512)
  t.strictSame(stores, [storedChain([1], 0), placeholder], 'the device comes first')
})

t.test('what says nothing about prefixes here is passed over, and is no reason for doubt', async t => {
  const hashes = wordsOf([keyOf([1])])
  const fields = { hashes, tokens: new Int32Array(BLOCK_SIZE), blockSizeTokens: BLOCK_SIZE }
  const held = heldAfter([
    kvStored({ ...fields, isLocal: false }),
    kvStored({ ...fields, tier: 'unknown' }),
    kvStored({ ...fields, group: 1, attention: 'sliding_window' }),
    kvStored({ ...fields, hashes: new Int32Array(0) }),
  ])
  t.strictSame([held.stats.blocks, held.isWhole], [0, true])
})

t.test('a store whose tokens do not fit its hashes is doubted until the next clear', async t => {
  const held = heldAfter([
    kvStored({ hashes: wordsOf([1n]), tokens: Int32Array.of(1, 2, 3), blockSizeTokens: BLOCK_SIZE }),
  ])
  t.strictSame([held.stats.blocks, held.isWhole], [0, false])
  held.apply(KV_CLEARED)
  t.equal(held.isWhole, true)
})

t.test('after a withdrawal nothing is held, and what the cache holds is not known', async t => {
  const held = heldAfter([storedChain([1], 0), KV_WITHDRAWN, storedChain([2], 0)])
  t.strictSame([held.stats.blocks, held.isWhole], [1, false])
})

t.test('a group that turns out to say nothing about prefixes is forgotten', async t => {
  const fields = { tokens: new Int32Array(BLOCK_SIZE), blockSizeTokens: BLOCK_SIZE }
  const held = heldAfter([kvStored({ ...fields, hashes: wordsOf([1n]), group: 0 })])
  t.equal(held.stats.blocks, 1)
  held.apply(kvStored({ ...fields, hashes: wordsOf([2n]), group: 1, attention: 'full_attention' }))
  t.strictSame([held.stats.blocks, held.isWhole], [1, false])
})

t.test('past the bound blocks are not held, and what is held is no longer whole', async t => {
  const held = heldAfter([storedChain([1, 2, 3], 0)], { bytesMax: 2 * BYTES_PER_BLOCK })
  t.strictSame([held.stats.blocks, held.stats.refusedBlocks, held.isWhole], [2, 1, false])
  held.apply(kvRemoved({ hashes: wordsOf([keyOf([1, 2, 3])]) }))
  t.equal(held.stats.unknownRemoves, 1)
  held.apply(kvRemoved({ hashes: wordsOf([keyOf([1, 2])]) }))
  held.apply(storedChain([1, 3], 1))
  t.strictSame([held.stats.blocks, held.stats.bytes], [2, 2 * BYTES_PER_BLOCK])
})

t.test('after a restart nothing of before is held', async t => {
  const held = heldAfter([storedChain([1, 2], 0)])
  held.restart({ isWhole: false })
  t.strictSame([held.stats.blocks, held.stats.bytes, held.isWhole], [0, 0, false])
  t.strictSame(dump(held, 512), [])
})
