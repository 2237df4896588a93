/** Digests and what they find in common, against sets of whole prompts. HOMING_SEED sets the seed. */

import assert from 'node:assert/strict'
import process from 'node:process'
import fc from 'fast-check'
import t from 'tap'
import { chainDigest, depthAt, digestLength, SharedBlocks } from '../src/index.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
t.comment(`HOMING_SEED=${SEED}`)

/** A prompt of `count` blocks, the first `shared` of which all prompts have. */
function prompt(name: number, count: number, shared: number): Int32Array {
  const hash = (block: number) => [block, block < shared ? 7 : name + 1000]
  return Int32Array.from(Array.from({ length: count }, (_, block) => hash(block)).flat())
}

const digestOf = (name: number, count: number, shared: number) =>
  chainDigest(prompt(name, count, shared), count)

t.test('a digest has every hash of a short prompt, some of a long one, and always the last', async t => {
  for (const count of [0, 1, 75, 128, 129, 130, 131, 255, 256, 257, 511, 513, 8192, 65_537]) {
    const length = digestLength(count)
    const depths = Array.from({ length }, (_, i) => depthAt(i, count))
    t.equal(depths.at(-1) ?? 0, count, `${count}`)
    t.ok(
      depths.every((depth, i) => i === 0 || depth > depths[i - 1]!),
      `${count}: ascending`,
    )
    t.ok(length <= 128 + 64 * Math.max(0, Math.ceil(Math.log2(count / 128))))
  }
  t.equal(digestLength(8192), 512)
})

t.test('what others have in common with this router counts once', async t => {
  const shared = new SharedBlocks(2)
  t.ok(shared.add(0, digestOf(1, 75, 75), true))
  t.ok(shared.add(0, digestOf(1, 75, 75), false))
  t.strictSame([shared.ownBlocks(0), shared.otherBlocks(0)], [75, 0])
  t.ok(shared.add(0, digestOf(2, 50, 30), false), 'half of another')
  t.strictSame([shared.ownBlocks(0), shared.otherBlocks(0)], [75, 20])
  t.equal(shared.heldBlocks(0, digestOf(3, 90, 40)), 40)
  t.equal(shared.heldBlocks(0, digestOf(2, 50, 30)), 50)
  t.equal(shared.heldBlocks(1, digestOf(2, 50, 30)), 0, 'another slot')
  shared.remove(0, digestOf(1, 75, 75), true)
  t.strictSame([shared.ownBlocks(0), shared.otherBlocks(0)], [0, 95])
  shared.remove(0, digestOf(1, 75, 75), false)
  shared.remove(0, digestOf(2, 50, 30), false)
  t.strictSame([shared.otherBlocks(0), shared.nodes], [0, 0])
})

t.test('what is no digest, or finds no room, changes nothing', async t => {
  const shared = new SharedBlocks(1, 100)
  t.notOk(shared.add(0, { count: 5, hashes: new Int32Array(8) }, true))
  t.ok(shared.add(0, digestOf(1, 60, 0), true))
  t.notOk(shared.add(0, digestOf(2, 60, 0), true))
  t.strictSame([shared.ownBlocks(0), shared.nodes], [60, 60])
})

t.test('agrees with sets of blocks, exactly up to 128 and within a part of the depth beyond', async t => {
  const request = fc.record({
    isOwn: fc.boolean(),
    count: fc.integer({ min: 1, max: 700 }),
    shared: fc.nat(700),
  })
  const agree = fc.property(fc.array(request, { maxLength: 8 }), requests => {
    const shared = new SharedBlocks(1)
    const [own, all] = [new Set<string>(), new Set<string>()]
    const digests = requests.map(({ isOwn, count, shared: common }, name) => {
      const sequence = prompt(name, count, Math.min(common, count))
      for (let block = 0; block < count; block++) {
        const key = `${sequence[2 * block]},${sequence[2 * block + 1]}`
        if (isOwn) own.add(key)
        all.add(key)
      }
      const digest = chainDigest(sequence, count)
      assert.ok(shared.add(0, digest, isOwn))
      return { digest, isOwn }
    })
    const deepest = Math.max(0, ...requests.map(({ count }) => count))
    const slack = deepest <= 128 ? 0 : (deepest / 32) * requests.length
    const total = shared.ownBlocks(0) + shared.otherBlocks(0)
    assert.ok(total >= all.size && total <= all.size + slack, `${total} of ${all.size}`)
    assert.ok(shared.ownBlocks(0) >= own.size && shared.ownBlocks(0) <= own.size + slack)
    for (const { digest, isOwn } of digests) shared.remove(0, digest, isOwn)
    assert.deepEqual([shared.nodes, shared.ownBlocks(0), shared.otherBlocks(0)], [0, 0, 0])
  })
  t.doesNotThrow(() => fc.assert(agree, { seed: SEED }))
})
