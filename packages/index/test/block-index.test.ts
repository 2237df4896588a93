import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockIndex, type IndexOptions, IndexReader, OverlapCounts } from '../src/index.ts'
import { NaiveIndex, pairs, value } from './naive-index.ts'

const MEGABYTE = 1 << 20

function create(options: Partial<IndexOptions> = {}) {
  const index = BlockIndex.create({ capacityBytes: MEGABYTE, workerSlotsMax: 130, ...options })
  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts()
  return {
    index,
    reader,
    /** Stores blocks whose engine hash is their local hash, unless others are given. */
    store(slot: number, locals: bigint[], parent?: bigint, engines = locals, copies?: 'count' | 'set') {
      const above = parent === undefined ? undefined : pairs([parent])
      return index.store(slot, above, pairs(engines), pairs(locals), locals.length, copies)
    },
    remove(slot: number, engines: bigint[]) {
      return index.remove(slot, pairs(engines), engines.length)
    },
    overlap(locals: bigint[], limitBlocks?: number): Record<number, number> {
      reader.overlap(pairs(locals), locals.length, scores, limitBlocks)
      return Object.fromEntries(scores.toMap())
    },
  }
}

/** count hashes that begin at `first`. */
function chain(first: number, count: number): bigint[] {
  return Array.from(
    { length: count },
    (_, i) => (BigInt(first + i) * 0x9e37_79b9_7f4a_7c15n) & (2n ** 64n - 1n),
  )
}

t.test('an empty index, an empty prompt and a limit of 0 give no scores', async t => {
  const { store, overlap } = create()
  t.strictSame(overlap([]), {})
  t.strictSame(overlap(chain(1, 3)), {})
  t.equal(store(0, []), 'stored')
  t.equal(store(0, chain(1, 3)), 'stored')
  t.strictSame(overlap([]), {})
  t.strictSame(overlap(chain(1, 3), 0), {})
  t.strictSame(overlap(chain(1, 3), 2), { 0: 2 })
})

t.test('overlap ends at the first block a worker lacks, wherever the hole is', async t => {
  for (const hole of [0, 1, 14, 15, 16, 17, 31, 32, 39]) {
    const { store, remove, overlap, index } = create()
    const prompt = chain(1, 40)
    store(3, prompt)
    store(64, prompt)
    t.strictSame(remove(3, [prompt[hole]!]), { removed: 1, unknown: 0 })
    t.strictSame(overlap(prompt), hole === 0 ? { 64: 40 } : { 3: hole, 64: 40 })
    t.equal(index.blocksHeld(3), 39)
    store(3, [prompt[hole]!], hole === 0 ? undefined : prompt[hole - 1])
    t.strictSame(overlap(prompt), { 3: 40, 64: 40 }, 'the hole is filled again')
  }
})

t.test(
  'the parent of a branch may be a hole: its children stay and count again when it comes back',
  async t => {
    for (const at of [0, 7, 15]) {
      const { store, remove, overlap, index } = create()
      const trunk = chain(1, 20)
      const branch = chain(100, 5)
      store(0, trunk)
      store(0, branch, trunk[at])
      remove(0, [trunk[at]!])
      const prompt = [...trunk.slice(0, at + 1), ...branch]
      t.strictSame(overlap(prompt), at === 0 ? {} : { 0: at })
      t.equal(index.blocksHeld(0), 24)
      store(0, [trunk[at]!], at === 0 ? undefined : trunk[at - 1])
      t.strictSame(overlap(prompt), { 0: at + 6 })
    }
  },
)

t.test('equal local hashes under different parents are different blocks', async t => {
  const { store, overlap } = create()
  const same = 5n
  store(0, [same, same, same, same], undefined, [1n, 2n, 3n, 4n])
  store(1, [9n, same], undefined, [1n, 5n])
  t.strictSame(overlap([same, same, same, same, same]), { 0: 4 })
  t.strictSame(overlap([9n, same, same]), { 1: 2 })
})

t.test('hashes that share a low or a high word are told apart, and 0 and 2^64 − 1 are hashes', async t => {
  const { store, overlap, index, remove } = create()
  const edge = 2n ** 64n - 1n
  store(0, [0n, edge, 7n], undefined, [edge, 0n, 7n])
  store(1, [1n << 32n, edge], undefined, [0n, edge])
  store(2, [0n, edge - (1n << 32n)], undefined, [0n, 1n << 32n])
  t.strictSame(overlap([0n, edge, 7n]), { 0: 3, 2: 1 })
  t.strictSame(overlap([1n << 32n, edge]), { 1: 2 })
  t.ok(index.has(0, pairs([0n])))
  t.strictSame(remove(0, [0n]), { removed: 1, unknown: 0 })
  t.strictSame(overlap([0n, edge, 7n]), { 0: 1, 2: 1 })
  t.notOk(index.has(0, [0, 0]))
})

t.test('worker slots at the edges of bitmap words score like any other', async t => {
  const slots = [0, 1, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127, 128, 129]
  const { store, overlap, remove } = create()
  const prompt = chain(1, 20)
  slots.forEach((slot, i) => {
    store(slot, prompt.slice(0, i + 1))
  })
  t.strictSame(overlap(prompt), Object.fromEntries(slots.map((slot, i) => [slot, i + 1])))
  for (const slot of slots) remove(slot, [prompt[0]!])
  t.strictSame(overlap(prompt), {})
})

t.test('copies are counted: stored, stored, removed is still held', async t => {
  const { store, remove, overlap, index } = create()
  const prompt = chain(1, 3)
  store(0, prompt)
  store(0, prompt)
  store(0, prompt, undefined, prompt, 'set')
  t.equal(index.stats().duplicateStores, 6)
  remove(0, prompt)
  t.strictSame(overlap(prompt), { 0: 3 })
  t.equal(index.stats().sideNames, 0, 'a single copy needs no record')
  remove(0, prompt)
  t.strictSame(overlap(prompt), {})
  t.strictSame(remove(0, prompt), { removed: 0, unknown: 3 })
  t.equal(index.stats().unknownRemoves, 3)
})

t.test('an index of sets takes a report again as the same report', async t => {
  const { store, remove, overlap } = create({ copies: 'set' })
  store(0, chain(1, 3))
  store(0, chain(1, 3))
  remove(0, chain(1, 3))
  t.strictSame(overlap(chain(1, 3)), {})
})

t.test(
  'a block that begins prompts is held otherwise where its worker has another engine hash of it',
  async t => {
    const { store, remove, index } = create()
    const isOther = (slot: number, local: bigint, engine: bigint) =>
      index.isHeldOtherwise(slot, pairs([local]), pairs([engine]))
    store(0, [5n, 6n], undefined, [100n, 101n])
    store(1, [5n], undefined, [200n])
    t.strictSame([isOther(0, 5n, 100n), isOther(0, 5n, 200n), isOther(0, 6n, 7n)], [false, true, false])
    t.strictSame([isOther(1, 5n, 200n), isOther(1, 5n, 100n), isOther(2, 5n, 100n)], [false, true, false])
    store(0, [5n], undefined, [300n])
    t.strictSame([isOther(0, 5n, 100n), isOther(0, 5n, 300n)], [true, true])
    remove(0, [100n])
    t.strictSame([isOther(0, 5n, 100n), isOther(0, 5n, 300n)], [true, false])
    remove(0, [300n])
    t.equal(isOther(0, 5n, 100n), false)
  },
)

t.test(
  'holders of a block are the worker slots that hold it, each with an engine hash of its own',
  async t => {
    const { store, remove, index } = create()
    const holders = (slot: number, engine: bigint) =>
      [...index.holdersOf(index.blockOf(slot, pairs([engine]))!)]
        .map(({ workerSlot, engineHash: [low] }) => [workerSlot, low])
        .sort(([one], [other]) => one! - other!)
    store(0, [5n, 6n], undefined, [100n, 101n])
    t.strictSame(holders(0, 101n), [[0, 101]])
    store(64, [5n, 6n], undefined, [200n, 201n])
    store(129, [5n], undefined, [300n])
    t.strictSame(holders(0, 100n), [
      [0, 100],
      [64, 200],
      [129, 300],
    ])
    t.strictSame(holders(64, 201n), [
      [0, 101],
      [64, 201],
    ])
    remove(0, [101n])
    t.strictSame(holders(64, 201n), [[64, 201]])
    index.clear(129)
    t.strictSame(holders(0, 100n), [
      [0, 100],
      [64, 200],
    ])
    while (index.maintain());
    t.strictSame(holders(64, 200n), [
      [0, 100],
      [64, 200],
    ])
  },
)

t.test('a block that a worker stored under two engine hashes is held until both are removed', async t => {
  const { store, remove, overlap, index } = create()
  store(0, [5n], undefined, [100n])
  store(0, [5n], undefined, [100n])
  store(0, [5n], undefined, [200n])
  remove(0, [100n])
  t.ok(index.has(0, [100, 0]), 'the other copy of the first name')
  t.equal(index.blocksHeld(0), 1)
  remove(0, [100n])
  t.strictSame([index.has(0, [100, 0]), index.has(0, [200, 0])], [false, true])
  t.strictSame(overlap([5n]), { 0: 1 })
  remove(0, [200n])
  t.strictSame(overlap([5n]), {})
})

t.test('workers that name blocks differently, or other blocks alike, do not disturb each other', async t => {
  const { store, remove, overlap, index } = create()
  const locals = chain(1, 20)
  store(0, locals, undefined, chain(1000, 20))
  store(1, locals, undefined, chain(2000, 20))
  store(2, chain(50, 20), undefined, chain(1000, 20))
  remove(1, chain(1000, 20))
  t.strictSame(overlap(locals), { 0: 20, 1: 20 })
  remove(1, chain(2010, 10))
  remove(2, chain(1005, 1))
  t.strictSame(overlap(locals), { 0: 20, 1: 10 })
  t.strictSame(overlap(chain(50, 20)), { 2: 5 })
  index.clear(0)
  store(3, locals, undefined, chain(2000, 20))
  t.strictSame(overlap(locals), { 1: 10, 3: 20 })
})

t.test('an engine hash that comes back with other content gives the old place up', async t => {
  const { store, overlap, index } = create()
  store(0, [1n, 2n, 3n], undefined, [11n, 12n, 13n])
  store(0, [9n], undefined, [12n])
  t.strictSame([overlap([1n, 2n, 3n]), overlap([9n])], [{ 0: 1 }, { 0: 1 }])
  t.equal(index.stats().movedHashes, 1)
  t.equal(index.blocksHeld(0), 3)
  store(0, [4n], 12n, [12n])
  t.strictSame(overlap([9n, 4n]), {}, 'a block that is its own parent leaves a hole behind')
})

t.test('orphans are parked, and adopted with all below them when their parent comes', async t => {
  const { store, overlap, index } = create()
  const prompt = chain(1, 40)
  t.equal(store(0, prompt.slice(30), prompt[29]), 'parked')
  t.equal(store(0, prompt.slice(10, 30), prompt[9]), 'parked')
  t.strictSame(overlap(prompt), {})
  t.equal(index.stats().orphanBlocks, 30)
  t.equal(store(1, prompt.slice(0, 10)), 'stored')
  t.strictSame(overlap(prompt), { 1: 10 }, 'the parent of another worker is none of theirs')
  t.equal(store(0, prompt.slice(0, 10)), 'stored')
  t.strictSame(overlap(prompt), { 0: 40, 1: 10 })
  t.match(index.stats(), { orphanBlocks: 0, adoptedOrphans: 30 })
})

t.test('orphans that are removed or cleared before their parent comes are not adopted', async t => {
  const { store, remove, overlap, index } = create()
  const prompt = chain(1, 6)
  store(0, prompt.slice(2), prompt[1])
  store(1, prompt.slice(2), prompt[1])
  t.strictSame(remove(0, [prompt[3]!]), { removed: 1, unknown: 0 })
  index.clear(1)
  store(0, prompt.slice(0, 2))
  store(1, prompt.slice(0, 2))
  t.strictSame(overlap(prompt), { 0: 3, 1: 2 })
  t.equal(index.stats().orphanBlocks, 2, 'what is below the removed one goes on waiting')
  store(0, [prompt[3]!], prompt[2])
  t.strictSame(overlap(prompt), { 0: 6, 1: 2 })
})

t.test('orphans past their bound are refused as overflow', async t => {
  const { store, index, overlap } = create({ orphanBytesMax: 4096 })
  const prompt = chain(1, 1000)
  t.equal(store(0, prompt.slice(1), prompt[0]), 'overflow')
  const { orphanBlocks, orphanBytes, refusedBlocks } = index.stats()
  t.ok(orphanBytes <= 4096)
  t.equal(orphanBlocks + refusedBlocks, 999)
  store(0, prompt.slice(0, 1))
  t.strictSame(overlap(prompt), { 0: 1 + orphanBlocks })
})

t.test('a worker slot serves another worker key after clear', async t => {
  const { store, overlap, index, remove } = create()
  const prompt = chain(1, 50)
  store(7, prompt)
  store(8, prompt.slice(0, 20))
  index.clear(7)
  t.equal(index.blocksHeld(7), 0)
  t.strictSame(overlap(prompt), { 8: 20 })
  t.strictSame(remove(7, prompt), { removed: 0, unknown: 50 })
  store(7, chain(500, 3))
  t.strictSame([overlap(prompt), overlap(chain(500, 3))], [{ 8: 20 }, { 7: 3 }])
  index.clear(7)
  index.clear(8)
  while (index.maintain());
  t.match(index.stats(), { chunks: 0, memberships: 0, blocksDistinct: 0 })
})

t.test('a prompt of 20,000 blocks is stored, found, and removed leaves first', async t => {
  const { store, remove, overlap, index } = create({ capacityBytes: 4 * MEGABYTE })
  const prompt = chain(1, 20_000)
  t.equal(store(0, prompt), 'stored')
  t.equal(store(1, prompt.slice(0, 19_999)), 'stored')
  t.strictSame(overlap(prompt), { 0: 20_000, 1: 19_999 })
  remove(0, prompt.slice(10_000).reverse())
  t.strictSame(overlap(prompt), { 0: 10_000, 1: 19_999 })
  remove(1, [...prompt].reverse().slice(1))
  remove(0, prompt.slice(0, 10_000).reverse())
  t.match(index.stats(), { chunks: 0, memberships: 0 })
})

t.test('readers of several shards see the worker slots of all of them', async t => {
  const first = create()
  const second = create()
  first.store(0, chain(1, 5))
  second.store(1, chain(1, 9))
  const reader = new IndexReader([first.index.memory, second.index.memory])
  const scores = new OverlapCounts()
  reader.overlap(pairs(chain(1, 9)), 9, scores)
  t.strictSame(Object.fromEntries(scores.toMap()), { 0: 5, 1: 9 })
  t.equal(scores.blocksOf(1), 9)
  t.equal(reader.blocksHeld(0, 0), 5)
  t.equal(reader.blocksHeld(1, 1), 9)
  t.equal(reader.blocksHeld(0, 1), 0, 'of another shard')
  t.equal(reader.blocksHeld(0, 1_000_000), 0)
  t.equal(reader.blocksHeld(7, 0), -1, 'there is no such shard')
  reader.replaceShard(1, create().index.memory)
  reader.overlap(pairs(chain(1, 9)), 9, scores)
  t.strictSame(Object.fromEntries(scores.toMap()), { 0: 5 })
  t.throws(() => reader.replaceShard(2, first.index.memory), RangeError)
})

t.test('a dump, stored again, gives the same index; holes make the rest unreachable', async t => {
  const { store, remove, index, overlap } = create()
  const prompt = chain(1, 40)
  store(0, prompt)
  store(0, chain(100, 20), prompt[20])
  store(0, chain(200, 20), prompt[15])
  store(1, prompt)
  remove(0, [prompt[30]!])
  const again = create()
  let unreachable = 0
  for (const { engineHash, parentEngineHash, localHash, isReachable } of index.dump(0)) {
    if (!isReachable) unreachable++
    else again.store(0, [value(localHash)], parentEngineHash && value(parentEngineHash), [value(engineHash)])
  }
  t.equal(unreachable, 9)
  for (const end of [
    prompt,
    [...prompt.slice(0, 21), ...chain(100, 20)],
    [...prompt.slice(0, 16), ...chain(200, 20)],
  ]) {
    t.equal(again.overlap(end)[0], overlap(end)[0])
  }
  const entries = index.dump(0)
  entries.next()
  store(1, chain(900, 1))
  t.throws(() => entries.next(), /the index has changed/)
})

t.test('options out of range and worker slots out of range are refused', async t => {
  t.throws(() => create({ capacityBytes: 1000 }), RangeError)
  t.throws(() => create({ capacityBytes: 1 << 16, workerSlotsMax: 16_384 }), RangeError)
  t.throws(() => create({ workerSlotsMax: 0 }), RangeError)
  t.throws(() => create().store(130, [1n]), RangeError)
  t.throws(() => create().index.clear(-1), RangeError)
  t.throws(() => new IndexReader([new SharedArrayBuffer(4096)]), TypeError)
})

t.test(
  'a full index evicts what one worker alone holds, deepest first, and never claims too much',
  async t => {
    const { store, overlap, index } = create({ capacityBytes: 256 << 10, workerSlotsMax: 4 })
    const shared = chain(1, 64)
    store(0, shared)
    store(1, shared)
    const count = 1000
    for (let i = 0; i < count; i++) t.equal(store(2, chain(1000 + 20 * i, 20)), 'stored')
    const { evictedForSpace, bytesUsed, bytesLimit, memberships } = index.stats()
    t.ok(evictedForSpace > 0)
    t.ok(bytesUsed <= bytesLimit)
    t.equal(memberships, 128 + 20 * count - evictedForSpace)
    t.strictSame(overlap(shared), { 0: 64, 1: 64 }, 'what several hold stays')
    t.strictSame(overlap(chain(1000 + 20 * (count - 1), 20)), { 2: 20 }, 'the newest is there')
  },
)

t.test('an index full of shared blocks refuses a store', async t => {
  const { store, index, remove, overlap } = create({ capacityBytes: 128 << 10, workerSlotsMax: 4 })
  const both = chain(1, 100_000)
  let stored = 0
  while (store(0, both.slice(stored, stored + 16)) === 'stored') {
    if (store(1, both.slice(stored, stored + 16)) !== 'stored') break
    stored += 16
    if (stored > 90_000) break
  }
  t.ok(stored > 1000 && stored < 90_000)
  t.equal(store(2, chain(300_000, 1)), 'full')
  t.ok(index.stats().refusedBlocks >= 1)
  t.equal(index.stats().evictedForSpace, 0)
  remove(0, both.slice(0, 16))
  remove(1, both.slice(0, 16))
  t.equal(store(2, chain(300_000, 1)), 'stored', 'space that is given back is used')
  t.strictSame(overlap(chain(300_000, 1)), { 2: 1 })
})

t.test('a full index stays consistent and claims nothing that is not held, whatever happened', async t => {
  const event = fc.record({
    slot: fc.nat(39),
    isStore: fc.boolean(),
    trunk: fc.nat(30),
    from: fc.nat(30),
    count: fc.integer({ min: 1, max: 60 }),
    salt: fc.nat(1),
  })
  let historiesThatHold = 0
  const property = fc.property(fc.array(event, { minLength: 200, maxLength: 400, size: 'max' }), events => {
    const { index, store, remove, overlap } = create({
      capacityBytes: 64 << 10,
      workerSlotsMax: 40,
      orphanBytesMax: 4096,
    })
    const naive = new NaiveIndex()
    for (const { slot, isStore, trunk, from, count, salt } of events) {
      const locals = chain(trunk * 100, 20).concat(chain(trunk * 100 + 40 + slot, 40))
      const engines = locals.map((local, i) =>
        BigInt.asUintN(64, local * 3n + BigInt(trunk + i * salt * (slot & 1))),
      )
      const parent = from === 0 ? undefined : engines[from - 1]
      if (isStore) {
        store(slot, locals.slice(from, from + count), parent, engines.slice(from, from + count), 'set')
        naive.store(slot, parent, engines.slice(from, from + count), locals.slice(from, from + count), 'set')
      } else {
        remove(slot, engines.slice(from, from + count))
        naive.remove(slot, engines.slice(from, from + count), 'count')
      }
      const stats = index.stats()
      assert.ok(stats.bytesUsed <= stats.bytesLimit)
      const truth = naive.overlap(locals)
      for (const [worker, blocks] of Object.entries(overlap(locals))) {
        assert.ok(blocks <= (truth.get(Number(worker)) ?? 0), `worker slot ${worker} is credited too much`)
      }
    }
    let held = 0
    for (let slot = 0; slot < 40; slot++) {
      held += index.blocksHeld(slot)
      assert.equal(
        new Set([...index.dump(slot)].map(entry => `${value(entry.engineHash)}`)).size,
        [...index.dump(slot)].length,
      )
      index.clear(slot)
      assert.equal(index.blocksHeld(slot), 0)
    }
    index.audit()
    while (index.maintain());
    index.audit()
    if (held > 0) historiesThatHold++
    const { chunks, memberships, sideNames, orphanBlocks } = index.stats()
    assert.deepEqual(
      { chunks, memberships, sideNames, orphanBlocks },
      { chunks: 0, memberships: 0, sideNames: 0, orphanBlocks: 0 },
    )
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 30 }))
  t.ok(historiesThatHold > 20)
})
