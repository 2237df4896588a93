import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { BlockIndex, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import {
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvEvent,
  type KvStoredFields,
  kvRemoved,
  kvStored,
} from '@homing/protocol'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const BLOCK_TOKENS = 4

function fixture() {
  const index = BlockIndex.create(layeredOptions(1 << 20, 4))
  const applier = new EventApplier(index, new LayerSlots(4))
  const reader = new IndexReader([index.memory])
  applier.open(0)
  return {
    index,
    applier,
    /** Leading blocks of a prompt that worker slot 0 holds. */
    overlap(tokens: readonly number[], namespace: { loraName?: string; cacheSalt?: string } = {}): number {
      const { local, count } = hashBlocks(Int32Array.from(tokens), BLOCK_TOKENS, namespaceSeed(namespace))
      const scores = new OverlapCounts()
      reader.overlap(local, count, scores)
      return scores.blocksOf(0)
    },
  }
}

/** `count` tokens from `first` on. */
function tokens(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => first + i)
}

/** Hashes 1, 2, … as pairs. */
function hashes(...values: readonly number[]): Int32Array {
  return Int32Array.from(values.flatMap(value => [value, 0]))
}

function stored(ids: Int32Array, text: readonly number[], fields: Partial<KvStoredFields> = {}) {
  return kvStored({ hashes: ids, tokens: Int32Array.from(text), blockSizeTokens: BLOCK_TOKENS, ...fields })
}

t.test('stored blocks count, removed ones end the overlap, a clear ends all', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1, 2, 3), tokens(0, 12))])
  t.equal(f.overlap(tokens(0, 14)), 3)
  f.applier.apply(0, BLOCK_TOKENS, [kvRemoved({ hashes: hashes(3) })])
  t.equal(f.overlap(tokens(0, 12)), 2)
  f.applier.apply(0, BLOCK_TOKENS, [KV_CLEARED])
  t.equal(f.overlap(tokens(0, 12)), 0)
  t.match(f.applier.status(), { eventsApplied: { stored: 1, removed: 1, cleared: 1 }, blocksHeld: { 0: 0 } })
})

t.test(
  'a block stored twice is gone when it is removed, until the engine has shown to remove each copy',
  async t => {
    const f = fixture()
    const first = stored(hashes(1), tokens(0, 4))
    const second = stored(hashes(2), tokens(4, 4), { parent: hashes(1) })
    const removal = kvRemoved({ hashes: hashes(2) })
    f.applier.apply(0, BLOCK_TOKENS, [first, second, second, removal])
    t.equal(f.overlap(tokens(0, 8)), 1, 'it may have been the last copy')
    f.applier.apply(0, BLOCK_TOKENS, [removal, second, second, removal])
    t.equal(f.overlap(tokens(0, 8)), 2, 'it was one of two')
    f.applier.apply(0, BLOCK_TOKENS, [removal])
    t.equal(f.overlap(tokens(0, 8)), 1)
  },
)

t.test('a full report of a prefix of one block is no copy', async t => {
  const f = fixture()
  const first = stored(hashes(1), tokens(0, 4))
  const second = stored(hashes(2), tokens(4, 4), { parent: hashes(1) })
  const removal = (hash: number) => kvRemoved({ hashes: hashes(hash) })
  f.applier.apply(0, BLOCK_TOKENS, [first, second, second, removal(2), removal(2), first, removal(1)])
  t.equal(f.overlap(tokens(0, 4)), 0, 'of an engine that removes each copy')
})

t.test('a re-report of a prefix that is known adds no copies, and fills in what is not', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1, 2), tokens(0, 8))])
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1, 2, 3), tokens(0, 12))])
  t.equal(f.overlap(tokens(0, 12)), 3)
  f.applier.apply(0, BLOCK_TOKENS, [kvRemoved({ hashes: hashes(3) }), kvRemoved({ hashes: hashes(2) })])
  t.equal(f.overlap(tokens(0, 12)), 1)
})

t.test('a salt named at the first block holds for the chain below it', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [
    stored(hashes(1, 2), tokens(0, 8), { cacheSalt: 'tenant-a' }),
    stored(hashes(3), tokens(8, 4), { parent: hashes(2) }),
    stored(hashes(4), tokens(12, 4), { parent: hashes(3) }),
  ])
  t.equal(f.overlap(tokens(0, 16), { cacheSalt: 'tenant-a' }), 4)
  t.equal(f.overlap(tokens(0, 16)), 0)
  t.equal(f.overlap(tokens(0, 16), { cacheSalt: 'tenant-b' }), 0)
})

t.test('the salt of a chain is forgotten when its blocks are held no more, and with a clear', async t => {
  const f = fixture()
  const salted = stored(hashes(1), tokens(0, 4), { cacheSalt: 'tenant-a' })
  const child = stored(hashes(2), tokens(4, 4), { parent: hashes(1) })
  const plain = stored(hashes(1), tokens(0, 4))
  const onHost = { ...salted, tier: 'host' } as const
  f.applier.apply(0, BLOCK_TOKENS, [salted, onHost, kvRemoved({ hashes: hashes(1) }), salted, child])
  t.equal(f.overlap(tokens(0, 8), { cacheSalt: 'tenant-a' }), 2)
  f.applier.apply(0, BLOCK_TOKENS, [kvRemoved({ hashes: hashes(1, 2) }), child])
  f.applier.apply(0, BLOCK_TOKENS, [salted])
  t.equal(f.overlap(tokens(0, 8), { cacheSalt: 'tenant-a' }), 2, 'the host has the salted block still')
  f.applier.apply(0, BLOCK_TOKENS, [
    kvRemoved({ hashes: hashes(1, 2) }),
    kvRemoved({ hashes: hashes(1), tier: 'host' }),
  ])
  // The same engine hashes without salt are another chain.
  f.applier.apply(0, BLOCK_TOKENS, [plain, child])
  t.equal(f.overlap(tokens(0, 8)), 2)
  f.applier.apply(0, BLOCK_TOKENS, [KV_CLEARED, salted, KV_CLEARED, plain, child])
  t.equal(f.overlap(tokens(0, 8)), 2)
})

t.test('an adapter separates, with and without salt', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [
    stored(hashes(1, 2), tokens(0, 8), { loraName: 'a' }),
    stored(hashes(3), tokens(0, 4), { loraName: 'a', cacheSalt: 's' }),
    stored(hashes(4), tokens(4, 4), { loraName: 'a', parent: hashes(3) }),
  ])
  t.equal(f.overlap(tokens(0, 8), { loraName: 'a' }), 2)
  t.equal(f.overlap(tokens(0, 8), { loraName: 'a', cacheSalt: 's' }), 2)
  t.equal(f.overlap(tokens(0, 8), { cacheSalt: 's' }), 0)
  t.equal(f.overlap(tokens(0, 8)), 0)
})

t.test(
  'what is not a whole prefix of this worker, on a tier that is known, is skipped, by reason',
  async t => {
    const f = fixture()
    const text = tokens(0, 8)
    f.applier.apply(0, BLOCK_TOKENS, [
      stored(hashes(1, 2), [], { tier: 'host', blockSizeTokens: 0 }),
      stored(hashes(1, 2), text, { tier: 'unknown' }),
      stored(hashes(1, 2), text, { isLocal: false }),
      stored(hashes(1, 2), [], { tier: 'device' }),
      stored(hashes(1, 2), text, { group: 0, attention: 'sliding_window' }),
      stored(hashes(), text, { group: 3, attention: 'full_attention' }),
      stored(hashes(1), text, { group: 3, attention: 'full_attention' }),
      stored(hashes(1, 2), text, { loraId: 7 }),
      stored(hashes(1, 2), text, { hasUnknownExtraKeys: true }),
      kvRemoved({ hashes: hashes(1), tier: 'unknown' }),
      kvRemoved({ hashes: hashes(1), isLocal: false }),
      kvRemoved({ hashes: hashes(1), group: 0 }),
    ])
    t.strictSame(f.applier.status().eventsSkipped, {
      otherTier: 2,
      remote: 2,
      otherGroup: 2,
      noBlocks: 2,
      unevenTokens: 1,
      unplaced: 1,
      noLayer: 0,
      blockSize: 0,
      tierBlockSize: 0,
      unknownContent: 1,
      unnamedAdapter: 1,
      unopened: 0,
    })
    t.equal(f.index.blocksHeld(0), 0)
  },
)

t.test('a removal under a group that never stored takes the block that is held', async t => {
  for (const group of [undefined, 0, 1]) {
    const f = fixture()
    const text = tokens(0, 4)
    f.applier.apply(0, BLOCK_TOKENS, [
      stored(hashes(1), text, { group: 3, attention: 'full_attention' }),
      kvRemoved({ hashes: hashes(1), ...(group === undefined ? {} : { group }) }),
    ])
    t.equal(f.overlap(text), 0, `group ${group}`)
  }
})

t.test('a store whose tokens do not fit its hashes is told, again after a clear', async t => {
  const f = fixture()
  const odd = stored(hashes(1), tokens(0, 6))
  t.match(f.applier.apply(0, BLOCK_TOKENS, [odd]).lacks, /token count does not match/)
  t.equal(f.applier.apply(0, BLOCK_TOKENS, [odd]).lacks, undefined)
  t.match(f.applier.apply(0, BLOCK_TOKENS, [odd, KV_CLEARED, odd]).lacks, /token count does not match/)
  t.equal(f.applier.apply(0, BLOCK_TOKENS, [KV_CLEARED, odd, KV_CLEARED]).lacks, undefined)
})

t.test('a removal in another group leaves the block of the main group', async t => {
  const f = fixture()
  const text = tokens(0, 4)
  f.applier.apply(0, BLOCK_TOKENS, [
    stored(hashes(1), text, { group: 0, attention: 'sliding_window' }),
    stored(hashes(1), text, { group: 3, attention: 'full_attention' }),
    kvRemoved({ hashes: hashes(1), group: 0 }),
  ])
  t.equal(f.overlap(text), 1)
  f.applier.apply(0, BLOCK_TOKENS, [kvRemoved({ hashes: hashes(1), group: 3 })])
  t.equal(f.overlap(text), 0)
})

t.test('the first block decides the block size; others are skipped, and the source is told', async t => {
  const f = fixture()
  const report = f.applier.apply(0, 16, [
    stored(hashes(1), tokens(0, 4)),
    stored(hashes(2), tokens(0, 8), { blockSizeTokens: 8 }),
  ])
  t.equal(report.learnedBlockSizeTokens, BLOCK_TOKENS)
  t.equal(f.applier.apply(0, BLOCK_TOKENS, []).learnedBlockSizeTokens, undefined)
  t.match(f.applier.status().eventsSkipped, { blockSize: 1 })
  f.applier.open(0)
  const reopened = f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(2), tokens(0, 8), { blockSizeTokens: 8 })])
  t.equal(reopened.learnedBlockSizeTokens, 8, 'another life may have another size')
})

t.test('what the engine holds and no prompt can find is told, once', async t => {
  const text = tokens(0, 4)
  for (const [fields, lacks, reason] of [
    [{ loraId: 7 }, /adapter by number only/, 'unnamedAdapter'],
    [
      { tier: 'host', blockSizeTokens: 16, tokens: Int32Array.from(tokens(0, 16)) },
      /another size on the host/,
      'tierBlockSize',
    ],
    [
      { tier: 'disk', blockSizeTokens: 2, tokens: Int32Array.from(tokens(0, 2)) },
      /another size on the host/,
      'tierBlockSize',
    ],
    [{ tier: 'unknown' }, /a tier whose name is not known/, 'otherTier'],
  ] as const) {
    const f = fixture()
    const event = stored(hashes(1), text, fields)
    t.equal(f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(2), text)]).lacks, undefined)
    t.match(f.applier.apply(0, BLOCK_TOKENS, [event]).lacks, lacks)
    t.equal(f.applier.apply(0, BLOCK_TOKENS, [event]).lacks, undefined)
    t.equal(f.applier.status().eventsSkipped[reason], 2)
    t.equal(f.overlap(text), 1, 'the device counts')
  }
})

t.test('a group that turns out to be sparse has its source rebuilt', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1), tokens(0, 4), { group: 0 })])
  const { resync } = f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(2), tokens(4, 8), { group: 0 })])
  t.equal(resync?.cause, 'lost')
})

t.test('a child that comes before its parent counts once the parent is there', async t => {
  const f = fixture()
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(2), tokens(4, 4), { parent: hashes(1) })])
  t.equal(f.overlap(tokens(0, 8)), 0)
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1), tokens(0, 4))])
  t.equal(f.overlap(tokens(0, 8)), 2)
})

t.test('too many orphans: said once, until the slot is opened again', async t => {
  const index = BlockIndex.create({ ...layeredOptions(1 << 20, 4), orphanBytesMax: 4096 })
  const applier = new EventApplier(index, new LayerSlots(4))
  applier.open(0)
  const orphan = (id: number) => stored(hashes(id), tokens(id, 4), { parent: hashes(1_000_000 + id) })
  const causes = Array.from(
    { length: 500 },
    (_, id) => applier.apply(0, BLOCK_TOKENS, [orphan(id)]).resync?.cause,
  )
  t.strictSame(
    causes.filter(cause => cause !== undefined),
    ['orphans'],
  )
})

t.test('a slot that is not open takes nothing', async t => {
  const f = fixture()
  const { resync } = f.applier.apply(1, BLOCK_TOKENS, [stored(hashes(1), tokens(0, 4))])
  t.match(resync, { cause: 'lost', reason: 'the index was reset' })
  f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1), tokens(0, 4))])
  f.applier.release(0)
  t.equal(f.overlap(tokens(0, 4)), 0)
  t.equal(f.applier.apply(0, BLOCK_TOKENS, [stored(hashes(1), tokens(0, 4))]).resync?.cause, 'lost')
  t.match(f.applier.status().eventsSkipped, { unopened: 2 })
})

t.test('what was learned of cache groups outlives the rebuild that it asks for', async t => {
  const { applier } = fixture()
  const dense = stored(hashes(1, 2), tokens(0, 8), { group: 0 })
  const sparse = kvStored({
    hashes: hashes(9),
    tokens: Int32Array.from(tokens(0, 12)),
    blockSizeTokens: 4,
    group: 0,
  })
  const other = stored(hashes(1, 2), tokens(0, 8), { group: 1 })
  const life = () => applier.apply(0, BLOCK_TOKENS, [dense, sparse, other]).resync?.reason
  t.match(life(), 'a cache group turned out not to keep whole prefixes')
  applier.open(0)
  t.equal(life(), undefined, 'the same history, replayed')
  t.equal(applier.status().blocksHeld[0], 2)
})

t.test(
  'what was learned of cache groups until the rebuild, too; what a withdrawal has forgotten does not',
  async t => {
    const { applier } = fixture()
    const of = (group: number, tokenCount = 4) =>
      kvStored({
        hashes: hashes(1 + group),
        tokens: Int32Array.from(tokens(0, tokenCount)),
        blockSizeTokens: 4,
        group,
      })
    const say = (...events: readonly KvEvent[]) => applier.apply(0, BLOCK_TOKENS, events).resync?.reason
    t.match(say(of(0), of(0, 8), of(1)), 'a cache group turned out not to keep whole prefixes')
    say(KV_WITHDRAWN, of(1, 8), of(0))
    applier.open(0)
    say(of(1))
    t.equal(applier.status().blocksHeld[0], 0, 'now it is the other one')
    say(of(0))
    t.equal(applier.status().blocksHeld[0], 1)
  },
)

t.test('a tier that finds no room among the layers is told once', async t => {
  const index = BlockIndex.create(layeredOptions(1 << 20, 1))
  const applier = new EventApplier(index, new LayerSlots(1))
  applier.open(0)
  const on = (tier: 'host' | 'disk', id: number) => stored(hashes(id), tokens(id, 4), { tier })
  t.equal(applier.apply(0, BLOCK_TOKENS, [on('host', 1)]).lacks, undefined)
  t.match(applier.apply(0, BLOCK_TOKENS, [on('disk', 2)]).lacks, /--worker-slots-max/)
  t.equal(applier.apply(0, BLOCK_TOKENS, [on('disk', 3)]).lacks, undefined)
})
