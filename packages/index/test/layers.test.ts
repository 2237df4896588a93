/**
 * Layers: the blocks that each adds to a prefix, against the definition, block by block.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockIndex, IndexReader, LayerOverlaps, Layers, type WordAccess } from '../src/index.ts'
import { pairs } from './naive-index.ts'

const SLOTS = 80
/** Keys of one, two and more layers; the last has a slot that is never used. */
const KEYS = [[0, 1], [31, 2, 33], [40], [50, 51, 52, 53], [64, 79], [7, 70], [60]]
const LAYERS = new Layers(KEYS)

/** Of each key and layer the blocks credited; `holds(slot, i)`: whether a worker slot holds block i. */
function naive(count: number, holds: (slot: number, block: number) => boolean): number[][] {
  return KEYS.map(slots => {
    const blocks = slots.map(() => 0)
    for (let i = 0; i < count; i++) {
      const layer = slots.findIndex(slot => holds(slot, i))
      if (layer < 0) break
      blocks[layer]!++
    }
    return blocks
  })
}

function answer(reader: IndexReader, locals: bigint[], scores: LayerOverlaps): number[][] {
  reader.extend(pairs(locals), locals.length, LAYERS, scores)
  assert.ok(scores.isComplete)
  return KEYS.map((slots, key) => slots.map((_, layer) => scores.blocksOf(key, layer)))
}

const locals = Array.from({ length: 60 }, (_, i) => BigInt(1000 + (i % 9)))
const engines = locals.map((_, i) => BigInt(5000 + i))

const steps = fc.array(
  fc.record({
    slot: fc.constantFrom(...KEYS.flat()),
    kind: fc.constantFrom('store', 'store', 'remove', 'remove', 'clear', 'maintain'),
    from: fc.nat(59),
    count: fc.integer({ min: 1, max: 60 }),
  }),
  { minLength: 1, maxLength: 50, size: 'max' },
)

for (const access of ['plain', 'atomic'] satisfies WordAccess[]) {
  t.test(
    `each layer adds what no earlier one holds, up to the first block of none (${access} words)`,
    async t => {
      const property = fc.property(steps, history => {
        const index = BlockIndex.create({
          capacityBytes: 1 << 20,
          workerSlotsMax: SLOTS,
          access,
          swapBytesMin: 1,
          onMemory: memory => reader.replaceShard(0, memory),
        })
        const reader: IndexReader = new IndexReader([index.memory])
        const scores = new LayerOverlaps()
        const held = new Map(KEYS.flat().map(slot => [slot, new Set<number>()]))
        for (const { slot, kind, from, count } of history) {
          const blocks = held.get(slot)!
          const group = KEYS.find(slots => slots.includes(slot))!
          if (kind === 'clear') {
            index.clear(slot)
            blocks.clear()
          } else if (kind === 'maintain') {
            index.maintain(count)
          } else if (kind === 'remove') {
            const gone = engines.slice(from, from + count)
            index.remove(slot, pairs(gone), gone.length)
            for (let i = from; i < from + gone.length; i++) blocks.delete(i)
          } else if (from === 0 || group.some(other => held.get(other)!.has(from - 1))) {
            const run = engines.slice(from, from + count)
            const parent = from === 0 ? undefined : pairs([engines[from - 1]!])
            index.store(slot, parent, pairs(run), pairs(locals.slice(from)), run.length, 'set', group)
            for (let i = from; i < from + run.length; i++) blocks.add(i)
          } else {
            // A lower layer may hold a block whose parent it does not hold: it is stored below that of
            // another.
            holdAlone(index, slot, from)
            blocks.add(from)
          }
          const prompt = locals.slice(0, 1 + (from % locals.length))
          for (const each of [prompt, locals]) {
            const expected = naive(each.length, (of, block) => held.get(of)!.has(block))
            assert.deepEqual(answer(reader, each, scores), expected)
          }
        }
      })
      t.doesNotThrow(() => fc.assert(property, { numRuns: 150 }))
    },
  )
}

/** Holds one block without those before it: stores all, then removes the others that were not held. */
function holdAlone(index: BlockIndex, slot: number, block: number): void {
  const before = engines.slice(0, block).filter(engine => !index.has(slot, pairs([engine])))
  const run = engines.slice(0, block + 1)
  index.store(slot, undefined, pairs(run), pairs(locals), run.length, 'set')
  index.remove(slot, pairs(before), before.length)
}

t.test(
  'a key of several layers costs its own walk; one of a shard that is not there adds nothing',
  async t => {
    const first = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 4 })
    const second = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 8 })
    const hashes = Int32Array.from({ length: 20 }, (_, i) => i + 1)
    first.store(0, undefined, hashes, hashes, 4)
    first.store(1, undefined, hashes, hashes, 7)
    second.store(6, undefined, hashes, hashes, 9)
    second.store(5, undefined, hashes, hashes, 10)
    const reader = new IndexReader([first.memory, second.memory])
    const layers = new Layers([[0, 1], [6, 5], [3]])
    const scores = new LayerOverlaps()
    reader.extend(hashes, 10, layers, scores)
    t.strictSame(Array.from(scores.blocks), [4, 3, 9, 1, 0, 0])
    reader.extend(hashes, 10, layers, scores, 5)
    t.strictSame(Array.from(scores.blocks), [4, 1, 5, 0, 0, 0])
    reader.extend(hashes, 0, layers, scores)
    t.strictSame(Array.from(scores.blocks), [0, 0, 0, 0, 0, 0])
  },
)

t.test('layers that were used and cleared make room for others, empty or not', async t => {
  const [keys, layers] = [2, 5]
  const index = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: keys * layers, holdersMax: 2 })
  const [names, words] = [pairs([1n]), pairs([2n])]
  for (let round = 0; round < 3; round++) {
    for (let slot = 0; slot < keys * layers; slot++) {
      assert.equal(index.store(slot, undefined, names, words, 1), 'stored')
      if (slot % 2 === 0) index.remove(slot, names, 1)
      index.clear(slot)
    }
  }
  index.audit()
  t.equal(index.stats().memberships, 0)
})

t.test('blocks that only other layers know are held where they are known', async t => {
  const index = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 4 })
  const reader = new IndexReader([index.memory])
  const names = pairs(engines.slice(0, 20))
  index.store(0, undefined, names, pairs(locals.slice(0, 20)), 12)
  t.equal(index.storeKnown(1, [0, 2], names, 20), 12)
  t.equal(index.storeKnown(1, [0, 2], names, 20), 12, 'again: once')
  index.clear(0)
  t.strictSame(answer(reader, locals, new LayerOverlaps())[0], [0, 12])
  index.remove(1, names, 12)
  t.equal(index.blocksHeld(1), 0)
  index.audit()
})
