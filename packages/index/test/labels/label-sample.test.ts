/** The label sample: what a table says of blocks and pools, as its records have it, within its bounds. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  createLabelMemory,
  type LabelSampleOptions,
  LabelTable,
  ORPHAN_SLOT,
  POOL_STATE,
  type PoolStateCode,
  sampleLabels,
} from '../../src/index.ts'
import { isLegal } from './naive-labels.ts'

const ALL: Omit<LabelSampleOptions, 'hashes'> = { recordsMax: 4096, poolsMax: 16, idsMax: 1000, turn: 0 }

const pair = (n: number): [number, number] => [n << 20, 9]
const hashesOf = (blocks: readonly number[]) => Int32Array.from(blocks.flatMap(pair))
const wide = (ids: readonly number[]) => Int32Array.from(ids.flatMap(id => [id, 0]))

/** Stores a block at a worker slot, with all that can be said of it. */
function store(
  table: LabelTable,
  workerSlot: number,
  block: number,
  state: PoolStateCode,
  { poolId = 7, workerIds = wide([]), expertId = undefined as number | undefined } = {},
): void {
  table.stored({
    workerSlot,
    engineHash: pair(1000 + block),
    sequenceHash: pair(block),
    moe: expertId === undefined ? undefined : { layerId: 1, expertId, expertGroup: undefined },
    place: state === POOL_STATE.untold ? undefined : { state, poolId, workerIds },
    isHeld: true,
  })
}

const steps = fc.array(
  fc.record({
    slot: fc.nat(3),
    block: fc.nat(11),
    state: fc.nat(4),
    poolId: fc.nat(2),
    expertId: fc.nat(2),
    hasIds: fc.boolean(),
  }),
  { maxLength: 80, size: 'max' },
)

t.test('blocks are told of as the records have it, whatever was stored', async t => {
  const agree = fc.property(steps, all => {
    const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
    for (const { slot, block, state, poolId, expertId, hasIds } of all) {
      const workerIds = wide(hasIds ? [5, 6] : [])
      store(table, slot, block, state as PoolStateCode, { poolId, workerIds, expertId })
    }
    table.release(0)
    const wanted = Array.from({ length: 12 }, (): string[] => [])
    const byState = [0, 0, 0, 0, 0]
    for (const slot of [ORPHAN_SLOT, 1, 2, 3]) {
      for (const { sequenceHash, place } of table.records(slot)) {
        byState[place.state]!++
        if (place.state > 0) wanted[sequenceHash[0] >>> 20]!.push(`${slot} ${place.state} ${place.poolId}`)
      }
    }
    const sample = sampleLabels(table, { ...ALL, hashes: hashesOf([...wanted.keys()]) })
    const told = wanted.map((): string[] => [])
    for (const { position, records } of sample.blocks) {
      for (const { workerSlot, state, poolId, workerIds } of records) {
        told[position]!.push(`${workerSlot} ${state} ${poolId}`)
        // Only what is pooled is reached.
        if (state !== POOL_STATE.cxlPooled) assert.equal(workerIds.length, 0)
      }
    }
    assert.deepEqual(
      told.map(each => each.sort()),
      wanted.map(each => each.sort()),
    )
    assert.deepEqual(sample.byState, byState)
    assert.equal(sample.isWhole, true)
    for (const state of [POOL_STATE.inTransit, POOL_STATE.cxlPooled, POOL_STATE.evicted]) {
      const inPools = sample.pools.reduce((total, each) => total + each.byState[state]!, 0)
      assert.equal(inPools, byState[state])
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('pools have their owners, the workers that reach them, and what has no owner any more', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const workerIds = wide([5, 6])
  for (const block of [0, 1, 2]) store(table, 0, block, POOL_STATE.cxlPooled, { workerIds })
  store(table, 1, 3, POOL_STATE.cxlPooled, { poolId: 8 })
  store(table, 1, 4, POOL_STATE.inTransit, { poolId: 8, workerIds: wide([9]) })
  store(table, 2, 5, POOL_STATE.cxlPooled, { workerIds: wide([5]) })
  table.release(2)
  const { pools, poolsTotal, orphans } = sampleLabels(table, { ...ALL, hashes: hashesOf([]) })
  t.equal(poolsTotal, 2)
  t.equal(orphans, 1)
  t.match(pools[0], { poolId: 7, byState: [0, 0, 0, 4, 0], orphans: 1, owners: [0] })
  t.strictSame(
    pools[0]!.workerIds.map(ids => [...ids]),
    [
      [5, 0, 6, 0],
      [5, 0],
    ],
  )
  t.match(pools[1], { poolId: 8, byState: [0, 0, 1, 1, 0], orphans: 0, owners: [1], workerIds: [] })
})

t.test('a large table is looked at in part, and ids of workers up to a number', async t => {
  const table = new LabelTable(createLabelMemory(1 << 20), isLegal)
  for (let block = 0; block < 1000; block++) {
    store(table, 0, block, POOL_STATE.cxlPooled, { poolId: block % 41, workerIds: wide([block, 2000]) })
  }
  const turns = [0, 1, 9].map(turn =>
    sampleLabels(table, { hashes: hashesOf([3, 4, 5]), recordsMax: 100, poolsMax: 5, idsMax: 4, turn }),
  )
  for (const { byState, isWhole, pools, blocks } of turns) {
    t.equal(byState[POOL_STATE.cxlPooled], 1000, 'of states all are counted')
    t.equal(isWhole, false)
    t.equal(pools.length, 5)
    t.ok(pools.every(({ byState }) => byState[POOL_STATE.cxlPooled]! % 10 === 0))
    t.strictSame(
      blocks.map(({ records }) => records[0]!.workerIds.length),
      [4, 4, 0],
    )
  }
  t.not(turns[0]!.pools[0]!.poolId, turns[1]!.pools[0]!.poolId, 'another turn looks at others')
})

/** Counts what is read of it. */
class CountedTable extends LabelTable {
  recordsRead = 0
  idsRead = 0

  override *recordsAt(...block: Parameters<LabelTable['recordsAt']>): ReturnType<LabelTable['recordsAt']> {
    for (const record of super.recordsAt(...block)) {
      this.recordsRead++
      yield record
    }
  }

  override *everyNth(...of: Parameters<LabelTable['everyNth']>): ReturnType<LabelTable['everyNth']> {
    for (const record of super.everyNth(...of)) {
      this.recordsRead++
      yield record
    }
  }

  override workerIdsOf(set: number, idsMax: number): Int32Array | undefined {
    const ids = super.workerIdsOf(set, idsMax)
    this.idsRead += (ids?.length ?? 0) / 2
    return ids
  }
}

t.test('blocks with records of many workers are read up to a number of records and ids', async t => {
  const table = new CountedTable(createLabelMemory(1 << 22), isLegal)
  for (let block = 0; block < 20; block++)
    for (let slot = 0; slot < 200; slot++) {
      const workerIds = wide([slot, 1000 + block])
      store(table, slot, block, POOL_STATE.cxlPooled, { workerIds, expertId: 1 })
    }
  const hashes = hashesOf(Array.from({ length: 20 }, (_, block) => block))
  const options = { hashes, recordsMax: 100, poolsMax: 5, idsMax: 50, turn: 0 }
  const { blocks, isWhole } = sampleLabels(table, options)
  t.strictSame(
    blocks.map(({ records }) => records.length),
    [32, 32, 32, 4],
  )
  t.ok(blocks.every(({ moe }) => moe?.expertId === 1))
  t.equal(isWhole, false)
  // One more of each block that was cut tells that it was.
  t.ok(table.recordsRead <= 2 * options.recordsMax + 4, `${table.recordsRead} records`)
  t.equal(table.idsRead, options.idsMax)
  const few = sampleLabels(table, { ...options, hashes: hashesOf([30]), recordsMax: 5000, idsMax: 8000 })
  t.equal(few.isWhole, true)
})
