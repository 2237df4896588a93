/** The largest prefixes of a shard, whole and sampled, against what was stored. */

import assert from 'node:assert/strict'
import { BlockIndex, type TreeSample, type TreeSampleOptions } from '@homing/index'
import fc from 'fast-check'
import t from 'tap'

const OPTIONS: TreeSampleOptions = {
  chunksMax: 1024,
  stepsMax: 200_000,
  segmentsMax: 4096,
  keysApartMax: 16,
  keysMax: 8,
  turn: 0,
}

/** Hashes of a path: names are small numbers. */
const hashes = (path: readonly number[]): Int32Array => Int32Array.from(path.flatMap(name => [name, 7]))
/** Engines name a block by all that is before it. */
const engineHashes = (path: readonly number[]): Int32Array =>
  Int32Array.from(
    path.flatMap((_, at) => {
      let sum = 1
      for (const name of path.slice(0, at + 1)) sum = Math.imul(sum, 31) + name + 1
      return [sum, at]
    }),
  )

function indexOf(stored: readonly { readonly slot: number; readonly path: readonly number[] }[]): BlockIndex {
  const index = BlockIndex.create({ capacityBytes: 1 << 22, workerSlotsMax: 8 })
  for (const { slot, path } of stored)
    index.store(slot, undefined, engineHashes(path), hashes(path), path.length, 'set')
  return index
}

/** Each block as 'path': the slots that hold it. */
function blocksOf({ segments }: TreeSample): Map<string, readonly number[]> {
  const paths: string[][] = []
  const blocks = new Map<string, readonly number[]>()
  for (const { parent, parentBlocks, hashes, holders } of segments) {
    let path = parent < 0 ? '' : paths[parent]![parentBlocks - 1]!
    const own: string[] = []
    for (const [at, [low]] of hashes.entries()) {
      path += `/${low}`
      own.push(path)
      if (holders[at]!.length > 0) blocks.set(path, [...holders[at]!].sort())
    }
    paths.push(own)
  }
  return blocks
}

t.test('a small shard is seen whole: every block with its holders, and weights that add up', async t => {
  const path = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 40 })
  const stored = fc.array(fc.record({ slot: fc.integer({ min: 0, max: 3 }), path }), {
    minLength: 1,
    maxLength: 12,
  })
  const agree = fc.property(stored, all => {
    const sample = indexOf(all).sampleTree(OPTIONS)
    const naive = new Map<string, Set<number>>()
    for (const { slot, path } of all) {
      let name = ''
      for (const each of path) {
        name += `/${each}`
        naive.set(name, (naive.get(name) ?? new Set()).add(slot))
      }
    }
    assert.equal(sample.stride, 1)
    assert.deepEqual(
      Object.fromEntries(blocksOf(sample)),
      Object.fromEntries([...naive].map(([name, slots]) => [name, [...slots].sort()])),
    )
    const copies = [...naive.values()].reduce((sum, { size }) => sum + size, 0)
    const roots = sample.segments.filter(({ parent }) => parent < 0)
    assert.equal(
      roots.reduce((sum, { weight }) => sum + weight, 0),
      copies,
    )
    for (const { weight, weights } of sample.segments)
      assert.equal(
        [...weights.values()].reduce((sum, part) => sum + part, 0),
        weight,
      )
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('all holders are counted, and those with most copies are told apart', async t => {
  const path = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 40 })
  const stored = fc.array(fc.record({ slot: fc.integer({ min: 0, max: 7 }), path }), {
    minLength: 1,
    maxLength: 16,
  })
  const keysApartMax = fc.integer({ min: 1, max: 4 })
  // Slots 4 … 7 are another layer of the keys 0 … 3.
  const keysMax = 4
  const agree = fc.property(stored, keysApartMax, (all, keysApartMax) => {
    const { keys, segments } = indexOf(all).sampleTree({ ...OPTIONS, keysMax, keysApartMax })
    const naive = new Map<string, Set<number>>()
    for (const { slot, path } of all) {
      let name = ''
      for (const each of path) {
        name += `/${each}`
        naive.set(name, (naive.get(name) ?? new Set()).add(slot))
      }
    }
    const copies = [0, 0, 0, 0]
    for (const slots of naive.values()) for (const slot of slots) copies[slot % keysMax]!++
    const most = copies
      .map((held, key) => ({ held, key }))
      .filter(({ held }) => held > 0)
      .sort((one, other) => other.held - one.held || one.key - other.key)
      .slice(0, keysApartMax)
    assert.deepEqual(
      [...keys],
      most.map(({ held, key }) => [key, held]),
    )
    const paths: string[][] = []
    for (const { parent, parentBlocks, hashes, holders, holdersTotal, copies, weights } of segments) {
      let path = parent < 0 ? '' : paths[parent]![parentBlocks - 1]!
      paths.push(hashes.map(([low]) => (path += `/${low}`)))
      for (const [at, name] of paths.at(-1)!.entries()) {
        const slots = [...naive.get(name)!]
        assert.equal(copies[at], slots.length)
        assert.equal(holdersTotal[at], new Set(slots.map(slot => slot % keysMax)).size)
        const told = slots.map(slot => slot % keysMax).filter(key => keys.has(key))
        assert.deepEqual([...holders[at]!].sort(), told.sort())
      }
      assert.ok([...weights.keys()].every(key => keys.has(key)))
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test(
  'of a larger one the heaviest prefixes are found, their sizes estimated, at a bounded cost',
  async t => {
    const common = Array.from({ length: 16 }, (_, at) => at)
    // Half of all prompts begin alike; the others are each on their own.
    const all = Array.from({ length: 800 }, (_, prompt) => {
      const own = Array.from({ length: 32 }, (_, at) => 1000 + prompt * 100 + at)
      return { slot: prompt % 4, path: prompt % 2 === 0 ? [...common, ...own] : own }
    })
    const index = indexOf(all)
    for (const turn of [0, 1, 5]) {
      const sample = index.sampleTree({ ...OPTIONS, chunksMax: 200, segmentsMax: 20, turn })
      t.ok(sample.stride > 1)
      t.equal(sample.segments.length, 20)
      const [heaviest] = sample.segments
      t.strictSame(
        heaviest!.hashes.map(([low]) => low),
        common,
      )
      const truth = 400 * 32 + 16 * 2
      t.ok(Math.abs(heaviest!.weight / truth - 1) < 0.25, `${heaviest!.weight} for ${truth}`)
      for (const [at, { parent }] of sample.segments.entries()) t.ok(parent < at, 'parents come first')
    }
  },
)

t.test('nothing is held: there is nothing to see', async t => {
  t.strictSame(indexOf([]).sampleTree(OPTIONS), { stride: 1, keys: new Map(), segments: [] })
})
