/**
 * The cache map over several shards: equal prefixes are one node, and what is below never is more than what
 * is above.
 */

import type { WorkerRecord } from '@homing/fleet'
import { BlockIndex } from '@homing/index'
import { MAP_NODES, type MapSection } from '@homing/page'
import t from 'tap'
import { drawMap, MAP_SAMPLE } from '../../src/page/page-map.ts'

const fleetOf = (keys: number, blockSizes: readonly number[] = []): readonly WorkerRecord[] =>
  Array.from({ length: keys }, (_, workerSlot) => ({
    blockSizeTokens: { value: blockSizes[workerSlot] ?? 16, source: 'probed' },
    keys: [{ key: `w${workerSlot}`, workerSlot }],
  })) as unknown as readonly WorkerRecord[]

type Stored = readonly {
  readonly worker: number
  readonly path: readonly number[]
  readonly layer?: number
}[]

interface Shown {
  readonly turn?: number
  /** Worker keys: the first half is of one shard, the others of another. */
  readonly keysMax?: number
  readonly workers?: readonly WorkerRecord[]
}

function mapOf(
  stored: Stored,
  { turn = 0, keysMax = 4, workers = fleetOf(keysMax) }: Shown = {},
): MapSection {
  const shards = [0, 1].map(shard => {
    const index = BlockIndex.create({ capacityBytes: 1 << 22, workerSlotsMax: 5 * keysMax })
    for (const { worker, path, layer = 0 } of stored.filter(
      ({ worker }) => worker < keysMax / 2 === (shard === 0),
    )) {
      const engines = Int32Array.from(
        path.flatMap((_, at) => [path.slice(0, at + 1).reduce((a, b) => Math.imul(a, 31) + b, 7), at]),
      )
      index.store(
        layer * keysMax + worker,
        undefined,
        engines,
        Int32Array.from(path.flatMap(name => [name, 9])),
        path.length,
        'set',
      )
    }
    return index.sampleTree({ ...MAP_SAMPLE, turn, keysMax })
  })
  return drawMap(workers, shards).section
}

const range = (first: number, length: number): number[] => Array.from({ length }, (_, at) => first + at)

function assertFits(t: Tap, { nodes }: MapSection): void {
  const below = new Map<number, number>()
  for (const { parent, blocks } of nodes) below.set(parent, (below.get(parent) ?? 0) + blocks)
  for (const [at, node] of nodes.entries()) {
    t.ok((below.get(at) ?? 0) <= node.blocks, `${node.hash}: ${below.get(at)} below ${node.blocks}`)
    t.ok(node.parent < at, 'parents come first')
  }
}
type Tap = Pick<typeof t, 'ok'>

t.test('a prefix that workers of two shards hold is one node with both', async t => {
  const map = mapOf([
    { worker: 0, path: range(1, 20) },
    { worker: 2, path: [...range(1, 20), ...range(100, 5)] },
    { worker: 3, path: [...range(1, 12), ...range(200, 3)] },
  ])
  t.match(map, { block_size: 16, blocks: 20 + 25 + 15, is_whole: true, workers: ['w0', 'w1', 'w2', 'w3'] })
  t.match(map.nodes, [
    { parent: -1, depth: 0, length: 12, holders: [0, 2, 3], blocks: 60, by_worker: [20, 0, 25, 15] },
    { parent: 0, depth: 12, length: 8, holders: [0, 2], blocks: 8 + 8 + 5, by_worker: [8, 0, 13] },
    { parent: 1, depth: 20, length: 5, holders: [2], blocks: 5 },
    { parent: 0, depth: 12, length: 3, holders: [3], blocks: 3 },
  ])
  assertFits(t, map)
})

t.test('a large index is drawn in part, and says so', async t => {
  const stored = range(0, 3000).map(prompt => ({
    worker: prompt % 4,
    path: [...range(1, 16), ...range(1000 + 40 * prompt, 16 + (prompt % 7))],
  }))
  for (const turn of [0, 1]) {
    const map = mapOf(stored, { turn })
    t.equal(map.is_whole, false)
    t.ok(map.nodes.length <= MAP_NODES)
    t.match(map.nodes[0], { parent: -1, length: 16, holders: [0, 1, 2, 3] })
    assertFits(t, map)
  }
})

t.test('of 24 worker keys the 16 with most blocks are told apart, and all holders are counted', async t => {
  const stored = range(0, 24).map(worker => ({
    worker,
    // The last ones of the fleet hold most.
    path: [
      ...range(1, 20),
      ...(worker >= 20 && worker < 23 ? range(100, 30) : range(1000 * (worker + 1), worker)),
    ],
  }))
  const map = mapOf(stored, { keysMax: 24 })
  t.equal(map.workers_total, 24)
  t.strictSame(
    map.workers,
    [...range(8, 16)].map(worker => `w${worker}`),
  )
  t.match(map.nodes[0], { depth: 0, length: 20, holders_total: 24, holders: range(0, 16) })
  const shared = map.nodes.find(({ depth, length }) => depth === 20 && length === 30)
  t.match(shared, { holders_total: 3, blocks: 90, holders: [12, 13, 14] })
  const untold = map.nodes.find(({ length, depth }) => depth === 20 && length === 7)
  t.match(untold, { holders_total: 1, blocks: 7, holders: [] }, 'somebody holds what no worker is named for')
  t.equal(map.blocks, map.nodes[0]!.blocks)
  t.equal(
    map.blocks,
    stored.reduce((sum, { path }) => sum + path.length, 0),
  )
  for (const { holders, holders_total } of map.nodes) t.ok(holders.length <= holders_total)
  assertFits(t, map)
})

t.test(
  'blocks that only workers without names hold are one node as long as the same number holds them',
  async t => {
    const most = range(0, 16).map(worker => ({ worker, path: range(5000 + 100 * worker, 40) }))
    const others = range(16, 8).map(worker => ({ worker, path: range(1, worker < 19 ? 12 : 4) }))
    const { nodes } = mapOf([...most, ...others], { keysMax: 24 })
    t.match(
      nodes.filter(({ hash }) => hash === nodes.find(({ holders_total }) => holders_total === 8)!.hash),
      [{ depth: 0, length: 4, holders: [], holders_total: 8, blocks: 32 + 24 }],
    )
    t.match(
      nodes.find(({ holders_total }) => holders_total === 3),
      { depth: 4, length: 8, holders: [], blocks: 24 },
    )
  },
)

t.test('a worker key that holds a block on two tiers is one holder with two copies', async t => {
  const map = mapOf([
    { worker: 1, path: range(1, 5) },
    { worker: 1, layer: 2, path: range(1, 5) },
    { worker: 3, path: range(1, 5) },
  ])
  t.match(map.nodes, [{ length: 5, holders: [1, 3], holders_total: 2, blocks: 15, by_worker: [0, 10, 0, 5] }])
})

t.test('the block size is that of all workers that have told theirs', async t => {
  const known = fleetOf(4)
  const unprobed = known.map((worker, at) => (at === 2 ? { ...worker, blockSizeTokens: undefined } : worker))
  const stored = [{ worker: 0, path: range(1, 5) }]
  t.equal(mapOf(stored, { workers: unprobed as unknown as typeof known }).block_size, 16)
  t.equal(mapOf(stored, { workers: fleetOf(4, [16, 32]) }).block_size, null)
})

t.test('nothing is held: there is nothing to draw', async t => {
  t.match(mapOf([]), { blocks: 0, is_whole: true, nodes: [] })
})
