/**
 * Random histories in a tiny universe: the index answers as the naive one does, after every event.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockIndex, type Copies, IndexReader, OverlapCounts, type WordAccess } from '../src/index.ts'
import { NaiveIndex, pairs, value } from './naive-index.ts'

/** Worker slots at the edges of bitmap words. */
const SLOTS = [0, 1, 30, 31, 32, 33, 63, 64, 95, 129]
/** Equal low words, equal high words, both ends of the range. */
const LOCALS = [0n, 2n ** 64n - 1n, 1n, (1n << 32n) | 1n, (2n << 32n) | 1n, 1n << 32n, 1n << 63n, 7n]
/** How a worker names its blocks: as others do; with a salt of its own; anew now and then; from 7 names. */
const SCHEMES = [
  'shared',
  'shared',
  'salted',
  'shared',
  'tiny',
  'tiny',
  'varying',
  'tiny',
  'salted',
  'shared',
] as const

interface Path {
  readonly trunk: number
  readonly branchAt: number
  readonly branch: number
  readonly length: number
  /** Makes other names of the same blocks, where the scheme is `varying`. */
  readonly salt: number
}

type Step =
  | {
      readonly type: 'store'
      readonly worker: number
      readonly path: Path
      readonly from: number
      readonly copies: Copies
    }
  | {
      readonly type: 'remove'
      readonly worker: number
      readonly path: Path
      readonly from: number
      readonly count: number
      readonly isReversed: boolean
      readonly copies: Copies
    }
  | { readonly type: 'clear'; readonly worker: number }
  | { readonly type: 'maintain'; readonly budget: number }

const path: fc.Arbitrary<Path> = fc.record({
  trunk: fc.nat(2),
  branchAt: fc.oneof(fc.nat(40), fc.constantFrom(1, 14, 15, 16, 17, 31, 32, 33)),
  branch: fc.nat(3),
  length: fc.oneof(fc.integer({ min: 1, max: 50 }), fc.constantFrom(1, 15, 16, 17, 32, 33)),
  salt: fc.nat(2),
})
const worker = fc.nat(SLOTS.length - 1)
const from = fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.nat(40), fc.constantFrom(1, 15, 16, 17))
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        type: fc.constant('store' as const),
        worker,
        path,
        from,
        copies: fc.constantFrom<Copies>('count', 'count', 'set'),
      }),
    },
    {
      weight: 5,
      arbitrary: fc.record({
        type: fc.constant('remove' as const),
        worker,
        path,
        from,
        count: fc.oneof(fc.constant(1), fc.nat(40)),
        isReversed: fc.boolean(),
        copies: fc.constantFrom<Copies>('count', 'count', 'set'),
      }),
    },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('clear' as const), worker }) },
    {
      weight: 3,
      arbitrary: fc.record({
        type: fc.constant('maintain' as const),
        budget: fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constant(100_000)),
      }),
    },
  ),
  { minLength: 1, maxLength: 60, size: 'max' },
)

function localsOf({ trunk, branchAt, branch, length }: Path): bigint[] {
  return Array.from({ length }, (_, i) =>
    i < branchAt
      ? LOCALS[(trunk + (i >> 2)) % LOCALS.length]!
      : LOCALS[(branch + 3 * (i - branchAt)) % LOCALS.length]!,
  )
}

function enginesOf(
  locals: readonly bigint[],
  slot: number,
  scheme: (typeof SCHEMES)[number],
  salt: number,
): bigint[] {
  let hash = scheme === 'salted' ? 0x9e37_79b9n * BigInt(slot + 1) : 17n
  if (scheme === 'varying') hash += BigInt(salt)
  return locals.map(local => {
    hash = BigInt.asUintN(64, (hash ^ local) * 0x5851_f42d_4c95_7f2dn + 0x1405_7b7en)
    hash ^= hash >> 29n
    return scheme === 'tiny' ? hash % 7n : hash
  })
}

interface Both {
  readonly index: BlockIndex
  readonly naive: NaiveIndex
}

function apply({ index, naive }: Both, step: Step): void {
  if (step.type === 'maintain') {
    index.maintain(step.budget)
    return
  }
  const slot = SLOTS[step.worker]!
  if (step.type === 'clear') {
    index.clear(slot)
    naive.clear(slot)
    return
  }
  const locals = localsOf(step.path)
  const engines = enginesOf(locals, slot, SCHEMES[step.worker]!, step.path.salt)
  const first = Math.min(step.from, locals.length - 1)
  if (step.type === 'store') {
    const parent = first === 0 ? undefined : engines[first - 1]!
    const hashes = engines.slice(first)
    const outcome = index.store(
      slot,
      parent === undefined ? undefined : pairs([parent]),
      pairs(hashes),
      pairs(locals.slice(first)),
      hashes.length,
      step.copies,
    )
    const hasParked = naive.store(slot, parent, hashes, locals.slice(first), step.copies)
    assert.equal(outcome, hasParked ? 'parked' : 'stored')
  } else {
    const hashes = engines.slice(first, first + step.count)
    if (step.isReversed) hashes.reverse()
    const left: [bigint, number][] = []
    const outcome = index.remove(slot, pairs(hashes), hashes.length, step.copies, (low, high, copies) => {
      left.push([value([low, high]), copies])
    })
    const expected = naive.remove(slot, hashes, step.copies)
    assert.deepEqual(outcome, { removed: expected.removed, unknown: hashes.length - expected.removed })
    assert.deepEqual(left, expected.left)
  }
}

function sorted<V>(map: Map<number, V>): [number, V][] {
  return [...map].sort((a, b) => a[0] - b[0])
}

function compareDumps({ index, naive }: Both): void {
  for (const slot of SLOTS) {
    const dump = new Map<bigint, string>()
    const seen = new Set<bigint>()
    for (const entry of index.dump(slot)) {
      const engine = value(entry.engineHash)
      assert.ok(!dump.has(engine), 'an engine hash is dumped once')
      const parent = entry.parentEngineHash
      if (parent !== undefined && value(parent) !== engine)
        assert.ok(seen.has(value(parent)), 'parents come first')
      seen.add(engine)
      const text = `position ${entry.position} local ${value(entry.localHash)}`
      dump.set(engine, `${text} copies ${entry.copies} ${entry.isReachable}`)
    }
    assert.deepEqual(new Map([...dump].sort()), new Map([...naive.dump(slot)].sort()))
    assert.equal(index.blocksHeld(slot), naive.blocksHeld(slot))
  }
  const stats = index.stats()
  assert.equal(stats.orphanBlocks, naive.orphanBlocks)
  assert.equal(stats.memberships, naive.memberships)
  assert.ok(stats.bytesUsed <= stats.bytesLimit)
}

function agrees(access: WordAccess, history: readonly Step[], prompts: readonly Path[]): void {
  const both = {
    index: BlockIndex.create({
      capacityBytes: 1 << 20,
      workerSlotsMax: 130,
      orphanBytesMax: 300_000,
      access,
      swapBytesMin: 1,
      onMemory: memory => reader.replaceShard(0, memory),
    }),
    naive: new NaiveIndex(),
  }
  const reader: IndexReader = new IndexReader([both.index.memory])
  const scores = new OverlapCounts()
  for (const step of history) {
    apply(both, step)
    both.index.audit()
    for (const prompt of 'path' in step ? [step.path, ...prompts] : prompts) {
      const locals = localsOf(prompt)
      reader.overlap(pairs(locals), locals.length, scores)
      assert.ok(scores.isComplete)
      assert.deepEqual(sorted(scores.toMap()), sorted(both.naive.overlap(locals)))
      assert.equal(scores.toMap().size, scores.length, 'a worker slot is listed once')
    }
  }
  compareDumps(both)
  for (let slot = 0; slot < 130; slot++) assert.equal(reader.blocksHeld(0, slot), both.naive.blocksHeld(slot))
  const { retries, staleLookups } = reader.stats()
  assert.deepEqual([retries, staleLookups], [0, 0])
  for (const slot of SLOTS) both.index.clear(slot)
  while (both.index.maintain());
  const stats = both.index.stats()
  assert.deepEqual(
    [
      stats.chunks,
      stats.memberships,
      stats.blocksDistinct,
      stats.orphanBlocks,
      stats.sideNames,
      stats.workerSets,
      stats.retiredHolders,
    ],
    [0, 0, 0, 0, 0, 0, 0],
    'nothing is left after everybody was cleared',
  )
}

const runs = Number(process.env['HOMING_TEST_RUNS'] ?? 250)

for (const access of ['plain', 'atomic'] as const) {
  t.test(`answers as the naive index does, whatever happened before (${access} words)`, async t => {
    const property = fc.property(steps, fc.array(path, { minLength: 2, maxLength: 4 }), (history, prompts) =>
      agrees(access, history, prompts),
    )
    t.doesNotThrow(() => fc.assert(property, { numRuns: access === 'plain' ? runs : Math.ceil(runs / 4) }))
  })
}
