/** The cache map over several shards: equal prefixes are one node, and what is below never is more than what is above. */

import type { WorkerRecord } from '@homing/directory'
import { BlockIndex } from '@homing/index'
import { MAP_NODES, type MapSection } from '@homing/page'
import t from 'tap'
import { MAP_SAMPLE, mapSection } from '../src/page-map.ts'

const KEYS_MAX = 4

/** Worker keys 0 and 1 are of one shard, 2 and 3 of another. */
const WORKERS = [0, 1, 2, 3].map(workerSlot => ({
  blockSizeTokens: { value: 16, source: 'probed' },
  keys: [{ key: `w${workerSlot}`, workerSlot }],
})) as unknown as readonly WorkerRecord[]

type Stored = readonly { readonly worker: number; readonly path: readonly number[] }[]

function mapOf(stored: Stored, turn = 0): MapSection {
  const shards = [0, 1].map(shard => {
    const index = BlockIndex.create({ capacityBytes: 1 << 22, workerSlotsMax: 5 * KEYS_MAX })
    for (const { worker, path } of stored.filter(({ worker }) => worker >> 1 === shard)) {
      const engines = Int32Array.from(
        path.flatMap((_, at) => [path.slice(0, at + 1).reduce((a, b) => Math.imul(a, 31) + b, 7), at]),
      )
      index.store(
        worker,
        undefined,
        engines,
        Int32Array.from(path.flatMap(name => [name, 9])),
        path.length,
        'set',
      )
    }
    return { sample: index.sampleTree({ ...MAP_SAMPLE, turn }), keysMax: KEYS_MAX }
  })
  return mapSection(WORKERS, shards)
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
    const map = mapOf(stored, turn)
    t.equal(map.is_whole, false)
    t.ok(map.nodes.length <= MAP_NODES)
    t.match(map.nodes[0], { parent: -1, length: 16, holders: [0, 1, 2, 3] })
    assertFits(t, map)
  }
})

t.test('nothing is held: there is nothing to draw', async t => {
  t.match(mapOf([]), { blocks: 0, is_whole: true, nodes: [] })
})
