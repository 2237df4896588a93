/**
 * Dump and restore: what comes back answers as what was written, and nothing that is wrong comes back.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockIndex, IndexDumpError, IndexReader, OverlapScores } from '../src/index.ts'
import { pairs, value } from './naive-index.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 40, orphanBytesMax: 60_000 }
const SLOTS = [0, 1, 5, 31, 32, 39]
const NAMES = new Map(SLOTS.map(slot => [slot, `worker ${slot} äöü`]))
/** The other process has other numbers. */
const HERE = new Map([...NAMES].map(([slot, name]) => [name, 39 - slot]))
const slotOf = (name: string) => HERE.get(name)

const steps = fc.array(
  fc.record({
    slot: fc.constantFrom(...SLOTS),
    kind: fc.constantFrom('store', 'store', 'store', 'again', 'orphan', 'remove', 'clear', 'maintain'),
    trunk: fc.nat(4),
    branchAt: fc.nat(30),
    from: fc.nat(30),
    count: fc.integer({ min: 1, max: 40 }),
    salt: fc.nat(1),
  }),
  { minLength: 1, maxLength: 60, size: 'max' },
)

type History = typeof steps extends fc.Arbitrary<infer T> ? T : never

function localsOf(trunk: number, branchAt: number): bigint[] {
  return Array.from({ length: 45 }, (_, i) => BigInt(i < branchAt ? 100 * trunk + (i % 5) : 1000 + i))
}

function build(history: History): BlockIndex {
  const index = BlockIndex.create(OPTIONS)
  for (const { slot, kind, trunk, branchAt, from, count, salt } of history) {
    const locals = localsOf(trunk, branchAt)
    let hash = BigInt(trunk * 7 + salt * (slot & 1))
    const engines = locals.map(local => {
      hash = BigInt.asUintN(64, (hash ^ local) * 0x5851_f42d_4c95_7f2dn + 0x1405_7b7en)
      return hash
    })
    const run = engines.slice(from, from + count)
    const parent = from === 0 ? undefined : pairs([kind === 'orphan' ? 77n : engines[from - 1]!])
    if (kind === 'clear') index.clear(slot)
    else if (kind === 'maintain') index.maintain(count)
    else if (kind === 'remove') index.remove(slot, pairs(run), run.length)
    else index.store(slot, parent, pairs(run), pairs(locals.slice(from)), run.length, 'count')
    if (kind === 'again')
      index.store(slot, parent, pairs(run), pairs(locals.slice(from)), run.length, 'count')
  }
  return index
}

/** All that can be seen of an index, with slots as `rename` gives them. */
function picture(index: BlockIndex, rename: (slot: number) => number): unknown {
  const reader = new IndexReader([index.memory])
  const scores = new OverlapScores()
  const overlaps: unknown[] = []
  for (let trunk = 0; trunk < 5; trunk++) {
    for (const branchAt of [0, 3, 10, 17, 30]) {
      const locals = localsOf(trunk, branchAt)
      reader.overlap(pairs(locals), locals.length, scores)
      overlaps.push([...scores.toMap()].map(([slot, blocks]) => [rename(slot), blocks]).sort())
    }
  }
  const held = SLOTS.map(slot => {
    const here = rename(slot)
    const entries = [...index.dump(here)].map(entry =>
      JSON.stringify({
        ...entry,
        block: undefined,
        parentBlock: undefined,
        engineHash: `${value(entry.engineHash)}`,
        parentEngineHash: entry.parentEngineHash === undefined ? '' : 'known',
      }),
    )
    return [index.blocksHeld(here), entries.sort()]
  })
  const { memberships, orphanBlocks } = index.stats()
  return { overlaps, held, memberships, orphanBlocks }
}

t.test('what was dumped comes back, whatever had happened, in pieces of any length', async t => {
  const property = fc.asyncProperty(steps, fc.integer({ min: 1, max: 5000 }), async (history, piece) => {
    const index = build(history)
    const bytes = Buffer.concat([...index.dumpBytes(NAMES)])
    async function* pieces() {
      for (let at = 0; at < bytes.length; at += piece) yield bytes.subarray(at, at + piece)
    }
    const again = BlockIndex.create(OPTIONS)
    const { memberships, refusedBlocks } = await again.restore(pieces(), slotOf)
    again.audit()
    assert.equal(refusedBlocks, 0)
    assert.equal(memberships, index.stats().memberships)
    const mirrored = (slot: number) => 39 - slot
    // Numbers of slots are mirrored: compare what belongs together.
    const here = picture(index, slot => slot) as { overlaps: [number, number][][] }
    const there = picture(again, mirrored) as { overlaps: [number, number][][] }
    assert.deepEqual(there, here)
    // What comes back goes on as before: removing all leaves nothing.
    for (const slot of SLOTS) again.clear(mirrored(slot))
    while (again.maintain());
    again.audit()
    assert.equal(again.stats().chunks, 0)
  })
  await t.resolves(fc.assert(property, { numRuns: 150 }))
})

t.test(
  'a dump that is truncated, altered or of another version is refused, and the index is empty',
  async t => {
    const seed = fc.sample(steps, { numRuns: 1, seed: 5 })[0]!
    const bytes = Buffer.concat([...build(seed).dumpBytes(NAMES)])
    const property = fc.asyncProperty(
      fc.nat(bytes.length - 1),
      fc.integer({ min: 0, max: 255 }),
      async (at, change) => {
        const wrong =
          change === 0
            ? bytes.subarray(0, at)
            : Buffer.from(bytes.map((byte, i) => (i === at ? byte ^ change : byte)))
        const index = BlockIndex.create(OPTIONS)
        await assert.rejects(index.restore([wrong], slotOf), (error: unknown) => {
          assert.ok(error instanceof IndexDumpError)
          const { code, fault } = error
          assert.equal(code, 'HOMING_INDEX_UNUSABLE_DUMP')
          if (change === 0) assert.equal(fault, 'truncated')
          else if (at < 12) assert.equal(fault, 'version')
          else assert.ok(fault === 'altered' || fault === 'truncated')
          return true
        })
        index.audit()
        const { chunks, memberships, orphanBlocks, retiredHolders } = index.stats()
        assert.deepEqual([chunks, memberships, orphanBlocks, retiredHolders], [0, 0, 0, 0])
        assert.equal((await index.restore([bytes], slotOf)).refusedBlocks, 0, 'it can be used all the same')
      },
    )
    await t.resolves(fc.assert(property, { numRuns: 300 }))
    await t.rejects(
      BlockIndex.create(OPTIONS).restore([bytes, Buffer.of(0)], slotOf),
      /something follows its end/,
    )
  },
)

t.test('names that are not known here are left out; what finds no room is counted', async t => {
  const index = BlockIndex.create({ ...OPTIONS, capacityBytes: 4 << 20 })
  const hashes = Int32Array.from({ length: 20_000 }, (_, i) => i + 1)
  index.store(0, undefined, hashes, hashes, 10_000)
  index.store(1, undefined, hashes, hashes, 50)
  const bytes = [...index.dumpBytes(NAMES)]
  t.ok(bytes.length > 4, `${bytes.length} pieces`)
  const some = BlockIndex.create(OPTIONS)
  const slotOfOne = (name: string) => (name.startsWith('worker 1 ') ? 3 : undefined)
  t.strictSame(await some.restore(bytes, slotOfOne), { memberships: 50, refusedBlocks: 0 })
  some.audit()
  t.equal(some.stats().chunks, 4)

  const small = BlockIndex.create({ ...OPTIONS, capacityBytes: 128 << 10, orphanBytesMax: 0 })
  const { memberships, refusedBlocks } = await small.restore(bytes, slotOf)
  small.audit()
  t.equal(memberships + refusedBlocks, 10_050)
  t.ok(refusedBlocks > 1000)
  t.equal(small.blocksHeld(slotOf(NAMES.get(1)!)!), 50)
})

t.test('a dump goes on only while the index stays the same; a restore needs an empty index', async t => {
  const index = BlockIndex.create({ ...OPTIONS, capacityBytes: 4 << 20 })
  const hashes = Int32Array.from({ length: 20_000 }, (_, i) => i + 1)
  index.store(0, undefined, hashes, hashes, 10_000)
  const pieces = index.dumpBytes(NAMES)
  pieces.next()
  index.remove(0, hashes, 1)
  t.throws(() => pieces.next(), /the index has changed/)
  await t.rejects(index.restore([...index.dumpBytes(NAMES)], slotOf), /cannot restore into an index in use/)
})

t.test('nothing is applied or moved while a dump is restored', async t => {
  const bytes = Buffer.concat([...build([]).dumpBytes(NAMES)])
  const index = BlockIndex.create(OPTIONS)
  const block = Int32Array.of(1, 2)
  async function* pieces() {
    yield bytes.subarray(0, 20)
    t.throws(() => index.store(0, undefined, block, block, 1), /while a dump is restored/)
    t.equal(index.maintain(), false)
    yield bytes.subarray(20)
  }
  t.strictSame(await index.restore(pieces(), slotOf), { memberships: 0, refusedBlocks: 0 })
  t.equal(index.store(0, undefined, block, block, 1), 'stored')
})
