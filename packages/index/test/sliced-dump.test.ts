/** A dump in slices, between which the index changes: what it names, and what a reader makes of it. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockIndex, type DumpEntry, IndexReader, OverlapCounts } from '../src/index.ts'
import { pairs, value } from './naive-index.ts'

const SLOT = 3
const OTHER = 40

interface Change {
  readonly type: 'store' | 'remove' | 'maintain'
  readonly slot: number
  readonly trunk: number
  readonly branchAt: number
  readonly branch: number
  readonly from: number
  readonly length: number
}

const change: fc.Arbitrary<Change> = fc.record({
  type: fc.constantFrom('store', 'store', 'remove', 'maintain'),
  slot: fc.constantFrom(SLOT, SLOT, OTHER),
  trunk: fc.nat(2),
  branchAt: fc.constantFrom(0, 3, 15, 16, 17, 40),
  branch: fc.nat(3),
  from: fc.nat(30),
  length: fc.constantFrom(1, 15, 16, 17, 40),
})

function localsOf({ trunk, branchAt, branch, length }: Change): bigint[] {
  return Array.from({ length }, (_, i) => BigInt(i < branchAt ? 1 + trunk : 100 + branch))
}

function enginesOf(locals: readonly bigint[]): bigint[] {
  let hash = 17n
  return locals.map(local => {
    hash = BigInt.asUintN(64, (hash ^ local) * 0x5851_f42d_4c95_7f2dn + 0x1405_7b7en)
    hash ^= hash >> 29n
    return hash
  })
}

function create(): BlockIndex {
  return BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 64, swapBytesMin: 1, copies: 'set' })
}

/** The engine hashes of the slot that it names. */
function apply(index: BlockIndex, each: Change): readonly bigint[] {
  const { type, slot, from } = each
  if (type === 'maintain') {
    while (index.maintain(1000));
    return []
  }
  const locals = localsOf(each)
  const engines = enginesOf(locals)
  // Engines store behind what they hold, from the root on, and remove from the end.
  if (type === 'store') index.store(slot, undefined, pairs(engines), pairs(locals), engines.length)
  else index.remove(slot, pairs(engines.slice(from).reverse()), Math.max(0, engines.length - from))
  return slot === SLOT ? engines : []
}

function described({ engineHash, localHash, position }: DumpEntry): string {
  return `${value(engineHash)}: ${value(localHash)} at ${position}`
}

const chainOf = { slot: SLOT, trunk: 0, branch: 0, from: 0 }
/** The root of a chain is removed before the dump, and stored again during it. */
const rootGone: [Change[], Change[], number] = [
  [
    { ...chainOf, type: 'store', branchAt: 16, length: 17 },
    { ...chainOf, type: 'remove', branchAt: 16, length: 1 },
  ],
  [0, 0, 16].map(branchAt => ({ ...chainOf, type: 'store', branchAt, length: 1 })),
  2,
]

t.test(
  'a dump in slices is the dump in one go, and names what stays, whatever changes meanwhile',
  async t => {
    const changes = (maxLength: number) => fc.array(change, { maxLength, size: 'max' })
    const property = fc.property(
      changes(40),
      changes(40),
      fc.integer({ min: 1, max: 4 }),
      (before, meanwhile, budget) => {
        const index = create()
        for (const each of before) apply(index, each)
        const whole = [...index.dump(SLOT)]
        const still = index.openDump(SLOT)
        const quiet: DumpEntry[] = []
        for (let slice = still.next(budget); slice !== undefined; slice = still.next(budget)) {
          assert.ok(slice.length <= budget * 16, 'a slice is bounded')
          quiet.push(...slice)
        }
        assert.deepEqual(quiet, whole)
        index.closeDump(still)

        const dump = index.openDump(SLOT)
        const named: DumpEntry[] = []
        const touched = new Set<bigint>()
        const left = [...meanwhile]
        for (let slice = dump.next(budget); slice !== undefined; slice = dump.next(budget)) {
          named.push(...slice)
          const next = left.shift()
          if (next !== undefined) for (const engine of apply(index, next)) touched.add(engine)
        }
        index.closeDump(dump)
        index.audit()
        const seen = new Set(named.map(described))
        for (const entry of whole) {
          if (touched.has(value(entry.engineHash))) continue
          assert.ok(seen.has(described(entry)), `${described(entry)} is named`)
        }

        // A reader that stores what is reachable, and then what has happened meanwhile.
        const heir = create()
        for (const { engineHash, parentEngineHash, localHash, isReachable } of named) {
          if (!isReachable) continue
          const above = parentEngineHash && Int32Array.from(parentEngineHash)
          heir.store(SLOT, above, Int32Array.from(engineHash), Int32Array.from(localHash), 1)
        }
        for (const each of meanwhile.slice(0, meanwhile.length - left.length)) apply(heir, each)
        // Blocks whose root was removed are reachable again with it, and the reader has left them out.
        const mayLack =
          meanwhile.some(({ type }) => type === 'remove') || named.some(({ isReachable }) => !isReachable)
        for (const each of [...before, ...meanwhile]) {
          const locals = localsOf({ ...each, length: 40 })
          const [ours, theirs] = [index, heir].map(one => {
            const scores = new OverlapCounts()
            new IndexReader([one.memory]).overlap(pairs(locals), locals.length, scores)
            return scores.toMap().get(SLOT) ?? 0
          }) as [number, number]
          if (mayLack) assert.ok(theirs <= ours, `${theirs} of ${ours}`)
          else assert.equal(theirs, ours)
        }
      },
    )
    const numRuns = Number(process.env['HOMING_TEST_RUNS'] ?? 40)
    t.doesNotThrow(() => fc.assert(property, { numRuns, examples: [rootGone] }))
  },
)

t.test('while a dump is open no block moves, and afterwards the work is done', async t => {
  const index = create()
  const each = (n: number): Change => {
    return { type: 'store', slot: SLOT, trunk: 0, branchAt: 0, branch: n, from: 0, length: 40 }
  }
  for (let n = 0; n < 100; n++) apply(index, each(n))
  const dump = index.openDump(SLOT)
  for (let n = 0; n < 98; n++) apply(index, { ...each(n), type: 'remove' })
  while (index.maintain(1000));
  t.equal(index.stats().memorySwaps, 0)
  index.closeDump(dump)
  while (index.maintain(1000));
  t.equal(index.stats().memorySwaps, 1)
})

t.test('a slot that is cleared meanwhile has nothing more', async t => {
  const index = create()
  apply(index, { type: 'store', slot: SLOT, trunk: 0, branchAt: 40, branch: 0, from: 0, length: 40 })
  const dump = index.openDump(SLOT)
  t.strictSame(dump.next(10), [], 'the chunks')
  t.strictSame(dump.next(10), [], 'their order')
  t.equal(dump.next(1)!.length, 16)
  index.clear(SLOT)
  t.equal(dump.next(1), undefined)
})

t.test('nor has one that is cleared and stored again, even if all memory is new', async t => {
  const index = create()
  const stored: Change = { type: 'store', slot: SLOT, trunk: 0, branchAt: 40, branch: 0, from: 0, length: 40 }
  apply(index, stored)
  const dump = index.openDump(SLOT)
  dump.next(10)
  dump.next(10)
  t.equal(dump.next(1)!.length, 16)
  index.clear(SLOT)
  while (index.maintain(1000));
  apply(index, { ...stored, trunk: 1 })
  t.equal(dump.next(1), undefined)
  t.equal([...index.dump(SLOT)].length, 40)
})
