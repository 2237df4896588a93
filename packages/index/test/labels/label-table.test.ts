/** The label table: answers as the naive one, for any history; states, bounds, and what two threads see. */

import assert from 'node:assert/strict'
import { Worker } from 'node:worker_threads'
import fc from 'fast-check'
import t from 'tap'
import {
  BlockLabels,
  createLabelMemory,
  LABEL_BYTES_MIN,
  LabelReader,
  type LabelRecord,
  LabelTable,
  labelImageOf,
  loadLabels,
  ORPHAN_SLOT,
  POOL_STATE,
  type PoolStateCode,
  readLabelImage,
} from '../../src/index.ts'
import { isGone, isLegal, NaiveLabels, type NaivePlace } from './naive-labels.ts'

const SLOTS = 3
const BLOCKS = 5
const ENGINES = 7

type Step =
  | {
      readonly type: 'store'
      readonly slot: number
      readonly engine: number
      readonly block: number
      readonly expert: number | undefined
      readonly members: string | undefined
      readonly place: NaivePlace | undefined
      /** False: it is in a pool alone. */
      readonly isHeld: boolean
    }
  | {
      readonly type: 'move'
      readonly slot: number
      readonly engine: number
      readonly block: number | undefined
      readonly place: NaivePlace
    }
  | { readonly type: 'remove'; readonly slot: number; readonly engine: number }
  | { readonly type: 'evictElsewhere'; readonly engine: number; readonly pool: number | undefined }
  | { readonly type: 'clear' | 'release' | 'part' | 'reload'; readonly slot: number }

const slot = fc.nat(SLOTS - 1)
const engine = fc.nat(ENGINES - 1)
const block = fc.nat(BLOCKS - 1)
const pool = fc.option(fc.constantFrom(0, 1, 2 ** 32 - 1), { nil: undefined })
const members = fc.constantFrom(undefined, '{"a":1}', '{"b":"ä"}')
const place: fc.Arbitrary<NaivePlace> = fc.record({
  state: fc.constantFrom(1, 2, 3, 4),
  pool,
  ids: fc.uniqueArray(fc.nat(20), { maxLength: 15 }),
  members,
})
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        type: fc.constant('store' as const),
        slot,
        engine,
        block,
        expert: fc.option(fc.constantFrom(0, 3, 2 ** 32 - 1), { nil: undefined }),
        members,
        place: fc.option(place, { nil: undefined }),
        isHeld: fc.constantFrom(true, true, true, false),
      }),
    },
    {
      weight: 10,
      arbitrary: fc.record({
        type: fc.constant('move' as const),
        slot,
        engine,
        block: fc.option(block, { nil: undefined }),
        place,
      }),
    },
    { weight: 3, arbitrary: fc.record({ type: fc.constant('remove' as const), slot, engine }) },
    {
      weight: 2,
      arbitrary: fc.record({ type: fc.constant('evictElsewhere' as const), engine, pool }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ type: fc.constantFrom('clear', 'release', 'part', 'reload'), slot }),
    },
  ),
  { maxLength: 60, size: 'max' },
)

/** Blocks and engine hashes that differ in one word only, and meet in buckets. */
const pair = (n: number): [number, number] => (n % 2 === 0 ? [n << 20, 1] : [1, n << 20])
const wide = (ids: readonly number[]) => Int32Array.from(ids.flatMap(id => [id, id === 0 ? -1 : 0]))

class Both {
  table: LabelTable
  readonly naive = new NaiveLabels()
  readonly reader = new LabelReader()

  constructor(bytes: number) {
    this.table = new LabelTable(createLabelMemory(bytes), isLegal)
    this.reader.setShard(0, this.table.memory)
  }

  apply(step: Step, hasRoom = true): void {
    const { table, naive } = this
    switch (step.type) {
      case 'store': {
        const { slot, engine, block, expert, members, place, isHeld } = step
        table.stored({
          workerSlot: slot,
          engineHash: pair(engine),
          sequenceHash: pair(block),
          moe: expert === undefined ? undefined : expertOf(expert, members),
          place: place && placeOf(place),
          isHeld,
        })
        naive.stored(slot, engine, block, expert, place, isHeld, members)
        break
      }
      case 'move': {
        const { slot, engine, block, place } = step
        const outcome = table.transition(slot, pair(engine), placeOf(place), () =>
          block === undefined ? undefined : pair(block),
        )
        const expected = naive.transition(slot, engine, place, block)
        if (hasRoom) assert.equal(outcome, expected)
        break
      }
      case 'remove':
        table.removed(step.slot, ...pair(step.engine))
        naive.removed(step.slot, step.engine)
        break
      case 'evictElsewhere': {
        const ended = table.evictedElsewhere(pair(step.engine), step.pool)
        const expected = naive.evictedElsewhere(step.engine, step.pool)
        if (hasRoom) assert.equal(ended, expected)
        break
      }
      case 'clear':
        table.clear(step.slot)
        naive.clear(step.slot)
        break
      case 'part':
        table.part(step.slot)
        naive.part(step.slot)
        break
      case 'release':
        table.release(step.slot)
        naive.release(step.slot)
        break
      case 'reload':
        this.#reload(step.slot)
    }
  }

  /** Takes the records of a slot out, and puts them back from their image. */
  #reload(slot: number): void {
    const words = labelImageOf(this.table, slot)
    assert.ok(words)
    const records = readLabelImage(words)
    assert.ok(records)
    this.table.clear(slot)
    loadLabels(this.table, slot, records)
    this.naive.parted.delete(slot)
    for (const [engine, record] of this.naive.slots.get(slot) ?? []) {
      const isTold = record.place.state !== 0 || this.naive.experts.has(record.block)
      if (!isTold) this.naive.slots.get(slot)!.delete(engine)
    }
  }

  checkMembers(slot: number, { engineHash, sequenceHash, moe, place }: LabelRecord): void {
    const block = Array.from({ length: BLOCKS }).findIndex((_, n) => `${pair(n)}` === `${sequenceHash}`)
    assert.equal(moe?.members, this.naive.members.get(block))
    if (slot === ORPHAN_SLOT) return
    const engine = Array.from({ length: ENGINES }).findIndex((_, n) => `${pair(n)}` === `${engineHash}`)
    assert.equal(place.members, this.naive.slots.get(slot)!.get(engine)!.place.members)
  }

  reached(block: number) {
    const labels = new BlockLabels()
    this.reader.read(...pair(block), labels)
    const ids = new Set<number>()
    const words = idsIn(this.reader, labels)
    for (let i = 0; i < words.length; i += 2) {
      assert.equal(words[i + 1], words[i] === 0 ? -1 : 0)
      ids.add(words[i]!)
    }
    return {
      expert: labels.moe?.expertId,
      owners: labels.owners.filter((_, i) => i % 2 === 1).sort((a, b) => a - b),
      ids: [...ids].sort((a, b) => a - b),
    }
  }
}

/** The ids in all sets of a block; a set that is gone has none. */
function idsIn(reader: LabelReader, { workerSets }: BlockLabels): number[] {
  const ids: number[] = []
  for (let at = 0; at < workerSets.length; at += 3)
    ids.push(...(reader.workerIdsOf(workerSets[at]!, workerSets[at + 1]!, workerSets[at + 2]!) ?? []))
  return ids
}

function expertOf(expertId: number, members: string | undefined) {
  const expert = { layerId: 1, expertId, expertGroup: undefined }
  return members === undefined ? expert : { ...expert, members }
}

function placeOf({ state, pool, ids, members }: NaivePlace) {
  const place = { state: state as PoolStateCode, poolId: pool, workerIds: wide(ids) }
  return members === undefined ? place : { ...place, members }
}

t.test('answers as the naive table does, whatever happened before', async t => {
  const agree = fc.property(steps, history => {
    const both = new Both(1 << 20)
    for (const step of history) {
      both.apply(step)
      for (let block = 0; block < BLOCKS; block++) {
        const { expert, ...reached } = both.reached(block)
        assert.deepEqual(reached, both.naive.reachable(block))
        assert.equal(expert, both.naive.experts.get(block))
      }
      const pooled = both.table.stats().byState[POOL_STATE.cxlPooled]!
      assert.equal(both.reader.hasPooled, pooled > 0)
      for (const slot of [ORPHAN_SLOT, ...Array.from({ length: SLOTS }).keys()]) {
        const records = [...both.table.records(slot)]
        const isPooled = records.filter(({ place }) => place.state === POOL_STATE.cxlPooled)
        assert.equal(both.table.pooledOf(slot), isPooled.length)
        for (const record of records) both.checkMembers(slot, record)
      }
      assert.equal(both.reader.hasExperts, both.naive.experts.size > 0)
    }
    for (let slot = 0; slot < SLOTS; slot++) both.table.clear(slot)
    const left = both.table.stats()
    assert.equal(left.records, left.orphans)
    if (left.records === 0) assert.equal(left.fullness.workers, 0)
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 2000 }))
})

t.test('without room no block is credited as reachable that is not', async t => {
  const subset = fc.property(steps, history => {
    // Room for 5 blocks with 10 records, and for one node of a set.
    const both = new Both(LABEL_BYTES_MIN)
    // The table may have had no room for the earlier one.
    both.naive.leavesOnce = false
    for (let i = 0; i < 200; i++)
      both.table.stored({
        workerSlot: 9,
        engineHash: [i, 77],
        sequenceHash: [i, 78],
        moe: { layerId: 0, expertId: 0, expertGroup: 0 },
        place: undefined,
        isHeld: true,
      })
    for (let i = 0; i < 3; i++) both.table.removed(9, i, 77)
    for (const step of history) {
      if (step.type === 'reload') continue
      // A block that found no room has no record that says where it is; its events do.
      const known = step.type === 'move' ? both.naive.slots.get(step.slot)?.get(step.engine) : undefined
      // Of one that is nowhere any more, nothing does.
      const block = known === undefined || isGone(known) ? undefined : known.block
      both.apply(known === undefined ? step : ({ ...step, block } as Step), false)
      for (let block = 0; block < BLOCKS; block++) {
        const { owners, ids } = both.reached(block)
        const truth = both.naive.reachable(block)
        assert.ok(owners.every(owner => truth.owners.includes(owner)))
        assert.ok(ids.every(id => truth.ids.includes(id)))
      }
      const { bytesUsed, bytesLimit } = both.table.stats()
      assert.ok(bytesUsed <= bytesLimit)
    }
  })
  t.doesNotThrow(() => fc.assert(subset, { numRuns: 500 }))
})

const NAMES = Object.entries(POOL_STATE)
for (const [fromName, from] of NAMES) {
  for (const [toName, to] of NAMES) {
    if (to === 0) continue
    const isAllowed = isLegal(from, to, true)
    t.test(`${fromName} to ${toName} is ${isAllowed ? 'legal' : 'illegal'}`, async t => {
      const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
      const reader = new LabelReader()
      reader.setShard(0, table.memory)
      const at = { workerSlot: 1, engineHash: pair(1), sequenceHash: pair(2), moe: undefined, isHeld: true }
      if (from !== 0)
        table.stored({ ...at, place: { state: from, poolId: 7, workerIds: Int32Array.of(5, 0) } })
      const place = { state: to, poolId: 8, workerIds: Int32Array.of(6, 0) }
      t.equal(
        table.transition(1, pair(1), place, () => pair(2)),
        isAllowed ? 'changed' : 'illegal',
      )
      const after = [...table.records(1)][0]?.place.state ?? 0
      t.equal(after, isAllowed ? to : from)
      t.equal(table.stats().transitions.illegal, isAllowed ? 0 : 1)
    })
  }
}

t.test('nothing is on its way to no pool', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const place = { state: POOL_STATE.inTransit, poolId: undefined, workerIds: new Int32Array(0) }
  t.equal(
    table.transition(1, pair(1), place, () => pair(2)),
    'illegal',
  )
})

t.test(
  'evicted blocks keep pool and workers, are reached by none, and are the first to make room',
  async t => {
    const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
    const at = { workerSlot: 1, moe: undefined, isHeld: true }
    const place = { state: POOL_STATE.cxlPooled, poolId: 3, workerIds: Int32Array.of(5, 0) }
    table.stored({ ...at, engineHash: [0, 1], sequenceHash: [0, 2], place })
    table.transition(1, [0, 1], { ...place, state: POOL_STATE.evicted }, () => undefined)
    const [record] = table.records(1)
    t.match(record?.place, { state: POOL_STATE.evicted, poolId: 3 })
    t.strictSame([...record!.place.workerIds], [5, 0])
    let stored = 1
    while (table.stored({ ...at, engineHash: [stored, 1], sequenceHash: [stored, 2], place })) stored++
    const { dropped, refused, byState } = table.stats()
    t.strictSame(
      { dropped, refused, evicted: byState[POOL_STATE.evicted] },
      { dropped: 1, refused: 1, evicted: 0 },
    )
  },
)

t.test('a block that its worker does not hold goes nowhere from a pool that has evicted it', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const place = { state: POOL_STATE.cxlPooled, poolId: 3, workerIds: Int32Array.of(5, 0) }
  const store = (more: object = {}) =>
    table.stored({
      workerSlot: 1,
      engineHash: [0, 1],
      sequenceHash: [0, 2],
      moe: { layerId: 1, expertId: 2, expertGroup: undefined },
      place,
      isHeld: true,
      ...more,
    })
  const move = (state: PoolStateCode) => table.transition(1, [0, 1], { ...place, state }, () => undefined)
  store()
  table.removed(1, 0, 1)
  t.equal(move(POOL_STATE.evicted), 'changed')
  t.equal([...table.records(1)][0]?.place.state, POOL_STATE.evicted, 'kept for audits')
  for (const state of [POOL_STATE.inTransit, POOL_STATE.localGpu, POOL_STATE.evicted])
    t.equal(move(state), 'unknown')
  t.equal([...table.records(1)][0]?.place.state, POOL_STATE.evicted)
  store({ moe: undefined, place: undefined })
  t.strictSame([...table.records(1)], [], 'a block that comes back is a new one')
  store()
  table.removed(1, 0, 1)
  t.equal(move(POOL_STATE.localGpu), 'changed')
  t.strictSame([...table.records(1)], [], 'not held, and in no pool')
  store({ place: undefined, isHeld: false })
  t.strictSame([...table.records(1)], [], 'neither held nor pooled')
})

t.test('an evicted record that alone says the expert of a held block makes no room', async t => {
  const table = new LabelTable(createLabelMemory(1 << 13), isLegal)
  const reader = new LabelReader()
  reader.setShard(0, table.memory)
  const place = { state: POOL_STATE.cxlPooled, poolId: 3, workerIds: new Int32Array(0) }
  const moe = { layerId: 1, expertId: 2, expertGroup: undefined }
  const store = (block: number, workerSlot = 1) =>
    table.stored({
      workerSlot,
      engineHash: [block, 1],
      sequenceHash: [block, 2],
      moe,
      place,
      isHeld: true,
    })
  for (let block = 0; block < 3; block++) {
    store(block)
    table.transition(1, [block, 1], { ...place, state: POOL_STATE.evicted }, () => undefined)
  }
  // Block 1 has another record, and block 2 is not held any more.
  store(1, 2)
  table.removed(1, 2, 1)
  let block = 3
  while (store(block)) block++
  t.equal(table.stats().dropped, 2)
  const labels = new BlockLabels()
  const experts = [0, 1, 2].map(each => {
    reader.read(each, 2, labels)
    return labels.moe?.expertId
  })
  t.strictSame(experts, [2, 2, undefined])
})

t.test('a worker that comes and leaves again and again leaves each pooled block once', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const pool = (engine: number, poolId: number | undefined, ...ids: number[]) =>
    table.stored({
      workerSlot: 1,
      engineHash: [engine, 1],
      sequenceHash: [0, 2],
      moe: undefined,
      place: { state: POOL_STATE.cxlPooled, poolId, workerIds: Int32Array.from(ids) },
      isHeld: true,
    })
  pool(1, 3)
  table.release(1)
  t.equal(table.stats().orphans, 0, 'no worker reaches it')
  for (let life = 0; life < 5; life++) {
    // Its hashes of blocks are others in each life.
    pool(life, 3, 5, 0)
    table.release(1)
  }
  t.equal(table.stats().orphans, 1)
  for (const poolId of [0, undefined]) {
    pool(1, poolId, 5, 0)
    table.release(1)
  }
  t.equal(table.stats().orphans, 3, 'one for each pool')
})

t.test('blocks of workers that have left make room once no evicted ones are left', async t => {
  const table = new LabelTable(createLabelMemory(1 << 13), isLegal)
  const place = { state: POOL_STATE.cxlPooled, poolId: 3, workerIds: Int32Array.of(5, 0) }
  const store = (workerSlot: number, block: number) =>
    table.stored({
      workerSlot,
      engineHash: [block, 1],
      sequenceHash: [block, 2],
      moe: undefined,
      place,
      isHeld: true,
    })
  store(1, 0)
  table.release(1)
  store(2, 1)
  table.transition(2, [1, 1], { ...place, state: POOL_STATE.evicted }, () => undefined)
  let block = 2
  while (table.stats().dropped === 0) assert.ok(store(2, block++))
  t.match(table.stats(), { orphans: 1, refused: 0 }, 'the evicted one first')
  t.ok(store(2, block++))
  t.match(table.stats(), { orphans: 0, dropped: 2, refused: 0 })
  t.notOk(store(2, block++))
})

t.test('members that find no room are refused and counted; the label stays', async t => {
  const table = new LabelTable(createLabelMemory(1 << 14), isLegal)
  const store = (n: number, members?: string) =>
    table.stored({
      workerSlot: 1,
      engineHash: [n, 1],
      sequenceHash: [n, 2],
      moe: { layerId: 1, expertId: n, expertGroup: undefined, ...(members && { members }) },
      place: undefined,
      isHeld: true,
    })
  const bytes = table.stats().bytesUsed
  t.ok(store(0, `{"a":"${'x'.repeat(100)}"}`))
  t.ok(table.stats().bytesUsed > bytes + 200, 'they count as bytes of labels')
  t.notOk(store(1, `{"a":"${'y'.repeat(1000)}"}`))
  t.notOk(store(0, `{"a":"${'z'.repeat(1000)}"}`), 'in place of others')
  t.match(table.stats(), { refused: 2, labelledBlocks: 2, records: 2, fullness: { workers: 0 } })
  t.strictSame(
    [...table.records(1)].map(({ moe }) => moe),
    [
      { layerId: 1, expertId: 0, expertGroup: undefined },
      { layerId: 1, expertId: 1, expertGroup: undefined },
    ],
  )
})

t.test('less memory than a table needs is refused with what would do', async t => {
  t.throws(() => createLabelMemory(100), { message: 'cannot keep labels in 100 bytes: use at least 4096' })
})

t.test('a reader on another thread sees no state that never was', async t => {
  // The writer gives a block an expert and a pool together: e, and workers e, e, e, or nothing.
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const writer = new Worker(new URL('./label-stress-writer.ts', import.meta.url), {
    workerData: { memory: table.memory, rounds: 60_000 },
  })
  const reader = new LabelReader()
  reader.setShard(0, table.memory)
  const labels = new BlockLabels()
  const counts = { read: 0, pooled: 0, torn: 0 }
  let isDone = false
  const ended = new Promise<void>((resolve, reject) => {
    writer.once('error', reject)
    writer.once('exit', () => {
      isDone = true
      resolve()
    })
  })
  while (!isDone) {
    for (let i = 0; i < 2000; i++) {
      reader.read(1, 2, labels)
      counts.read++
      const ids = idsIn(reader, labels).filter((_, at) => at % 2 === 0)
      if (ids.length === 0) continue
      counts.pooled++
      const { moe, owners } = labels
      if (owners.length !== 2 || ids.some(id => id !== moe?.expertId) || ids.length !== 9) counts.torn++
    }
    await new Promise(resolve => setImmediate(resolve))
  }
  await ended
  t.comment(counts)
  t.equal(counts.torn, 0)
})

t.test('of a worker that cannot be heard, others reach what it has pooled for them', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const store = (block: number, state: PoolStateCode, ...ids: number[]) =>
    table.stored({
      workerSlot: 1,
      engineHash: [block, 1],
      sequenceHash: [block, 2],
      moe: undefined,
      place: { state, poolId: 3, workerIds: Int32Array.from(ids) },
      isHeld: true,
    })
  for (let block = 0; block < 3; block++) store(block, POOL_STATE.cxlPooled, 5, 0)
  store(3, POOL_STATE.cxlPooled)
  store(4, POOL_STATE.inTransit, 5, 0)
  store(5, POOL_STATE.evicted, 5, 0)
  table.part(1)
  t.strictSame(
    [...table.records(1)].map(({ engineHash, isHeld }) => [engineHash[0], isHeld]),
    [0, 1, 2].map(block => [block, false]),
  )
  t.equal(table.evictedElsewhere([0, 1], 4), 0, 'of another pool')
  t.equal(table.evictedElsewhere([0, 1], 3), 1)
  const evicted = { state: POOL_STATE.evicted, poolId: undefined, workerIds: new Int32Array(0) }
  t.equal(
    table.transition(2, [1, 1], evicted, () => undefined),
    'changed',
    'another worker of the shard says so',
  )
  t.strictSame(
    [...table.records(1)].map(({ engineHash }) => engineHash[0]),
    [2],
  )
  table.clear(1)
  store(6, POOL_STATE.cxlPooled, 5, 0)
  t.equal(table.evictedElsewhere([6, 1], 3), 0, 'it is heard again, and speaks for itself')
  table.part(1)
  table.release(1)
  t.equal(table.stats().orphans, 1)
})
