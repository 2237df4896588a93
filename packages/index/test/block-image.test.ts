import assert from 'node:assert/strict'
import t from 'tap'
import {
  type BlockImage,
  BlockIndex,
  imageOf,
  type LayerSlot,
  layeredOptions,
  ORPHAN_WORDS,
} from '../src/index.ts'
import { seededRandom } from './stress-plan.ts'

const SEEDS = 300
const LAYERS: readonly LayerSlot[] = [
  { layer: 0, slot: 0 },
  { layer: 2, slot: 1 },
  { layer: 3, slot: 2 },
]
const newIndex = (bytes = 1 << 20) => BlockIndex.create(layeredOptions(bytes, 4))

/** The same with arrays and maps. */
function naiveImage(index: BlockIndex, layers: readonly LayerSlot[]): Record<keyof BlockImage, number[]> {
  const numbers = new Map([[0, 0]])
  const parents: number[] = []
  const localHashes: number[] = []
  const held: number[][] = []
  const orphans: number[] = []
  const numberOf = (block: number): number => {
    const known = numbers.get(block)
    if (known !== undefined) return known
    const { parentBlock, localHash } = index.placeOf(block)
    const parent = numberOf(parentBlock)
    numbers.set(block, parents.push(parent))
    localHashes.push(...localHash)
    return parents.length
  }
  for (const { layer, slot } of layers) {
    for (const { block, engineHash, copies } of index.dump(slot)) {
      held.push([numberOf(block), layer, copies, ...engineHash])
    }
    for (const { copies, engineHash, parentEngineHash, localHash } of index.orphans(slot)) {
      orphans.push(layer, copies, ...engineHash, ...parentEngineHash, ...localHash)
    }
  }
  held.sort(([a], [b]) => a! - b!)
  return { localHashes, parents, held: held.flat(), orphans }
}

/**
 * Chains that share their first blocks, on other layers too; holes, copies, several names of a block,
 * orphans.
 */
function fill(index: BlockIndex, seed: number): void {
  const random = seededRandom(seed)
  const acts = 1 + random.below(60)
  for (let act = 0; act < acts; act++) {
    const chain = random.below(12)
    const depth = random.below(30)
    const count = 1 + random.below(40)
    const slot = random.below(4)
    const name = random.below(5) === 0 ? 1 : 0
    const hash = (at: number) => [1 + chain * 1000 + at, name]
    const hashes = Int32Array.from(Array.from({ length: count }, (_, i) => hash(depth + i)).flat())
    if (random.below(4) === 0) {
      index.remove(slot, hashes, count)
      continue
    }
    const parent = depth === 0 ? undefined : Int32Array.from(hash(depth - 1))
    const local = (at: number) => [at < 10 ? at : chain * 1000 + at, 5]
    const locals = Int32Array.from(Array.from({ length: count }, (_, i) => local(depth + i)).flat())
    index.store(
      slot,
      parent,
      hashes,
      locals,
      count,
      'count',
      [0, 1, 2].filter(other => other !== slot),
    )
  }
}

t.test(`an image is the one that arrays and maps give (${SEEDS} seeds)`, async t => {
  let orphans = 0
  for (let seed = 1; seed <= SEEDS; seed++) {
    const index = newIndex()
    fill(index, seed)
    for (const layers of [LAYERS, LAYERS.slice(1), LAYERS.slice(0, 1)]) {
      const image = imageOf(index, layers)!
      const naive = naiveImage(index, layers)
      for (const key of ['parents', 'localHashes', 'held', 'orphans'] as const) {
        assert.deepEqual([...image[key]], naive[key], `${key}, seed ${seed}`)
        assert.equal(
          image[key].buffer.byteLength,
          image[key].byteLength,
          'what is sent is no longer than what counts',
        )
      }
      orphans += image.orphans.length / ORPHAN_WORDS
    }
  }
  t.ok(orphans > SEEDS)
})

t.test('blocks far from each other in a large index are told apart', async t => {
  const index = newIndex(16 << 20)
  for (let chain = 0; chain < 30_000; chain++) {
    const hash = Int32Array.of(chain + 1, 1)
    index.store(chain % 1000 === 0 ? 0 : 3, undefined, hash, Int32Array.of(chain, 2), 1)
  }
  const image = imageOf(index, LAYERS)!
  t.strictSame(
    [...image.parents],
    Array.from({ length: 30 }, () => 0),
  )
  t.strictSame(
    [...image.localHashes].filter((_, i) => i % 2 === 0).sort((a, b) => a - b),
    Array.from({ length: 30 }, (_, i) => i * 1000),
  )
})

t.test('of more blocks than may hold the index up there is no image', async t => {
  const index = newIndex()
  for (const [slot, names] of [
    [0, [1, 2, 3]],
    [1, [1]],
  ] as const) {
    const hashes = Int32Array.from(names.flatMap(name => [name, 0]))
    index.store(slot, undefined, hashes, hashes, names.length)
  }
  const unknown = Int32Array.of(9, 9)
  index.store(0, unknown, Int32Array.of(10, 9), Int32Array.of(10, 0), 1)
  t.equal(imageOf(index, LAYERS, 3), undefined)
  t.equal(imageOf(index, LAYERS, 4), undefined, 'orphans count too')
  t.equal(imageOf(index, LAYERS, 5)?.parents.length, 3)
  t.equal(imageOf(index, LAYERS.slice(1), 1)?.parents.length, 1)
})
