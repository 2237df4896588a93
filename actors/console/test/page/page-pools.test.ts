/** Pools of the cache map: labels of all shards on blocks that are drawn, and pools with their workers. */

import { chainSequence } from '@homing/blocks'
import type { WorkerRecord } from '@homing/fleet'
import {
  BlockIndex,
  createLabelMemory,
  LabelTable,
  POOL_STATE,
  type PoolPlace,
  sampleLabels,
} from '@homing/index'
import t from 'tap'
import { drawMap, MAP_SAMPLE } from '../../src/page/page-map.ts'
import { LABEL_SAMPLE, withPools } from '../../src/page/page-pools.ts'

const KEYS_MAX = 4
/** Workers with ids 10, 11, … and one rank each. */
const workers = Array.from({ length: KEYS_MAX }, (_, workerSlot) => ({
  id: `w${workerSlot}:8000`,
  instanceId: 10 + workerSlot,
  blockSizeTokens: { value: 16, source: 'probed' },
  keys: [{ key: `w${workerSlot}:8000/0`, workerSlot }],
})) as unknown as readonly WorkerRecord[]

const localsOf = (path: readonly number[]) => Int32Array.from(path.flatMap(name => [name, 9]))
const wide = (ids: readonly number[]) => Int32Array.from(ids.flatMap(id => [id, 0]))
const pooled = (ids: readonly number[], poolId = 7): PoolPlace => ({
  state: POOL_STATE.cxlPooled,
  poolId,
  workerIds: wide(ids),
})

/** A shard: its part of the index, and its labels. */
class Shard {
  readonly index = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 5 * KEYS_MAX })
  readonly table = new LabelTable(createLabelMemory(1 << 20), () => true)

  hold(workerSlot: number, path: readonly number[]): void {
    const engines = Int32Array.from(path.flatMap((_, at) => [path.slice(0, at + 1).join().length, at]))
    this.index.store(workerSlot, undefined, engines, localsOf(path), path.length, 'set')
  }

  /** Of the last block of a path. */
  say(workerSlot: number, path: readonly number[], place: PoolPlace | undefined, expertId?: number): void {
    const sequence = chainSequence(localsOf(path), path.length)
    this.table.stored({
      workerSlot,
      engineHash: [path.length, workerSlot],
      sequenceHash: [sequence.at(-2)!, sequence.at(-1)!],
      moe: expertId === undefined ? undefined : { layerId: 3, expertId, expertGroup: undefined },
      place,
      isHeld: true,
    })
  }
}

function mapOf(shards: readonly Shard[]) {
  const trees = shards.map(({ index }) => index.sampleTree({ ...MAP_SAMPLE, turn: 0, keysMax: KEYS_MAX }))
  const drawn = drawMap(workers, trees)
  const hashes = Int32Array.from(drawn.sequenceHashes.flatMap(each => [...each]))
  const options = { ...LABEL_SAMPLE, hashes, turn: 0 }
  return withPools(
    drawn,
    workers,
    shards.map(({ table }) => (table.recordPlaces === 0 ? undefined : sampleLabels(table, options))),
  )
}

const PATH = [1, 2, 3, 4, 5, 6]

t.test('without labels the map has no pools', async t => {
  const shard = new Shard()
  shard.hold(0, PATH)
  const { pools, nodes } = mapOf([shard])
  t.equal(pools, null)
  t.strictSame(
    nodes.map(node => node.pools),
    [null],
  )
})

t.test('a block is told of in another shard than the one that holds it', async t => {
  const [holder, other] = [new Shard(), new Shard()]
  holder.hold(0, PATH)
  holder.hold(1, [...PATH.slice(0, 4), 8, 9])
  // Worker 2, of the other shard, has sent two blocks to the pool and holds none any more.
  other.say(2, PATH.slice(0, 1), pooled([11, 99]))
  other.say(2, PATH.slice(0, 2), pooled([11]))
  holder.say(0, PATH.slice(0, 3), { ...pooled([10]), state: POOL_STATE.inTransit }, 5)
  holder.say(0, PATH, { state: POOL_STATE.evicted, poolId: 8, workerIds: wide([]) })
  const { pools, nodes } = mapOf([holder, other])
  const at = (depth: number, holders: readonly number[]) =>
    nodes.find(node => node.depth === depth && String(node.holders) === String(holders))!
  t.match(at(0, [0, 1]), {
    length: 4,
    pools: {
      states: { local_gpu: 0, in_transit: 1, cxl_pooled: 2, evicted: 0 },
      pools: [7],
      pools_total: 1,
      reached_by: ['id 99', 'w1:8000', 'w2:8000'],
      reached_by_total: 3,
      labelled_blocks: 1,
      experts: [{ layer: 3, expert: 5 }],
    },
  })
  t.match(at(4, [0]).pools, { states: { evicted: 1, cxl_pooled: 0 }, pools: [], reached_by: [] })
  t.equal(at(4, [1]).pools, null)
  t.match(pools, {
    states: { local_gpu: 0, in_transit: 1, cxl_pooled: 2, evicted: 1 },
    orphans: 0,
    labelled_blocks: 1,
    is_whole: true,
    pools: [
      { id: 7, states: { in_transit: 1, cxl_pooled: 2 }, reached_by: ['id 99', 'w1:8000', 'w2:8000'] },
      { id: 8, states: { evicted: 1 }, reached_by: [], reached_by_total: 0 },
    ],
    pools_total: 2,
  })
})

t.test('what a worker that has left has pooled is counted, and reached by the others alone', async t => {
  const shard = new Shard()
  shard.hold(1, PATH)
  for (const blocks of [1, 2, 3]) shard.say(0, PATH.slice(0, blocks), pooled([11]))
  shard.table.release(0)
  const { pools, nodes } = mapOf([shard])
  t.match(nodes[0]!.pools, { states: { cxl_pooled: 3 }, reached_by: ['w1:8000'], reached_by_total: 1 })
  t.match(pools, { orphans: 3, pools: [{ id: 7, orphans: 3, reached_by: ['w1:8000'] }] })
})

t.test('names are sent up to a number, and all are counted', async t => {
  const shard = new Shard()
  shard.hold(0, PATH)
  const ids = Array.from({ length: 1000 }, (_, i) => 100 + i)
  for (let blocks = 1; blocks <= PATH.length; blocks++)
    shard.say(0, PATH.slice(0, blocks), pooled(ids, blocks), blocks)
  const { pools, nodes } = mapOf([shard])
  t.match(nodes[0]!.pools, {
    reached_by: { length: 4 },
    reached_by_total: 1001,
    pools_total: 6,
    experts_total: 6,
  })
  t.equal(pools!.pools.length, 6)
  t.equal(JSON.stringify(nodes[0]!.pools).length < 500, true)
})
