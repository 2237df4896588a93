/**
 * Images of worker keys: another shard that has loaded one answers as the first one does, now and after any
 * further events.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { BlockIndex, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import { KV_CLEARED, type KvEvent, kvRemoved, kvStored } from '@homing/protocol'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

/** More than are used: as many lower layers may be in use as there are keys. */
const KEYS = 8
const TIERS = ['device', 'device', 'device', 'host', 'disk'] as const
const SEEDS = 300

function shard() {
  const index = BlockIndex.create(layeredOptions(1 << 20, KEYS))
  const applier = new EventApplier(index, new LayerSlots(KEYS))
  for (let slot = 0; slot < KEYS; slot++) applier.open(slot)
  return { index, applier, reader: new IndexReader([index.memory]) }
}

type Shard = ReturnType<typeof shard>

/** What can be seen of a worker slot. */
function picture({ index, applier, reader }: Shard, slot: number): unknown {
  const layers = [0, 2, 3, 4].map(layer => {
    const entries = [...index.dump(slot + layer * KEYS)].map(entry =>
      JSON.stringify([entry.engineHash, entry.localHash, entry.position, entry.isReachable, entry.copies]),
    )
    const orphans = [...index.orphans(slot + layer * KEYS)].map(entry => JSON.stringify(entry))
    return [entries.sort(), orphans.sort()]
  })
  const overlaps = [...index.dump(slot)].map(({ localHash }) => {
    const scores = new OverlapCounts()
    reader.overlap(Int32Array.from(localHash), 1, scores)
    return scores.blocksOf(slot)
  })
  return { layers, overlaps: overlaps.sort(), blocks: applier.status().blocksHeld[slot] }
}

/**
 * Events of an engine that may do anything: chains with branches, copies, holes, unknown parents, tiers,
 * salts.
 */
function randomEvents(random: ReturnType<typeof seededRandom>, count: number): KvEvent[] {
  const events: KvEvent[] = []
  const hashOf = (chain: number, depth: number) => [chain * 100 + depth + 1, chain]
  for (let i = 0; i < count; i++) {
    const chain = random.below(6)
    const depth = random.below(8)
    const length = 1 + random.below(20)
    const tier = TIERS[random.below(TIERS.length)]!
    const hashes = Int32Array.from(Array.from({ length }, (_, k) => hashOf(chain, depth + k)).flat())
    const kind = random.below(10)
    if (kind === 0 && random.below(8) === 0) events.push(KV_CLEARED)
    else if (kind < 4)
      events.push(kvRemoved({ hashes: hashes.subarray(0, 2 * (1 + random.below(length))), tier }))
    else {
      // Chains share their first blocks.
      const tokens = Array.from({ length }, (_, k) => (depth + k < 3 ? depth + k : chain * 1000 + depth + k))
      events.push(
        kvStored({
          hashes,
          tokens: Int32Array.from(tokens),
          blockSizeTokens: 1,
          tier,
          parent: depth === 0 ? undefined : Int32Array.from(hashOf(chain, depth - 1)),
          ...(chain === 5 && depth === 0 ? { cacheSalt: 'tenant' } : {}),
        }),
      )
    }
  }
  return events
}

t.test(`an image taken over is what it was taken of, then and later (${SEEDS} seeds)`, async t => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = seededRandom(seed)
    const before = shard()
    const after = shard()
    // The shards are in use by others, who share blocks.
    before.applier.apply(1, 1, randomEvents(random, 5))
    after.applier.apply(1, 1, randomEvents(random, 5))
    before.applier.apply(0, 1, randomEvents(random, 1 + random.below(30)))
    const image = structuredClone(before.applier.image(0)!)
    const other = picture(after, 1)
    assert.ok(after.applier.load(2, image), `seed ${seed}`)
    assert.deepEqual(picture(after, 2), picture(before, 0), `seed ${seed}`)
    assert.deepEqual(picture(after, 1), other, `seed ${seed}: others are left alone`)
    after.index.audit()
    const later = randomEvents(random, 20)
    before.applier.apply(0, 1, later)
    after.applier.apply(2, 1, later)
    assert.deepEqual(picture(after, 2), picture(before, 0), `seed ${seed}, later`)
    after.index.audit()
  }
  t.pass()
})

t.test('of a slot that is not open there is no image, and none can be taken over', async t => {
  const { applier } = shard()
  const image = applier.image(0)!
  applier.release(0)
  t.equal(applier.image(0), undefined)
  t.throws(() => applier.load(0, image), /not open/)
})

t.test('of a slot with more blocks than an image may have there is none', async t => {
  const { applier } = shard()
  for (const tier of ['device', 'host'] as const) {
    const hashes = Int32Array.of(1, 0, 2, 0)
    applier.apply(0, 1, [kvStored({ hashes, tokens: Int32Array.of(1, 2), blockSizeTokens: 1, tier })])
  }
  t.equal(applier.image(0, 3), undefined, 'each tier counts')
  t.equal(applier.image(0, 4)?.parents.length, 2)
})

t.test('an image that does not fit says so, and what fits counts', async t => {
  const { applier } = shard()
  const count = 40_000
  const hashes = Int32Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? i + 1 : 7))
  const tokens = Int32Array.from({ length: count }, (_, i) => i)
  const large = BlockIndex.create(layeredOptions(16 << 20, KEYS))
  const roomy = new EventApplier(large, new LayerSlots(KEYS))
  roomy.open(0)
  roomy.apply(0, 1, [kvStored({ hashes, tokens, blockSizeTokens: 1 })])
  t.equal(applier.load(0, roomy.image(0)!), false)
  t.ok(applier.status().blocksHeld[0]! > 1000)
})

t.test('of an image what finds a layer counts, and the rest is told', async t => {
  const { applier } = shard()
  applier.apply(0, 1, [
    kvStored({ hashes: Int32Array.of(1, 0, 2, 0), tokens: Int32Array.of(1, 2), blockSizeTokens: 1 }),
    kvStored({ hashes: Int32Array.of(1, 0), tokens: Int32Array.of(1), blockSizeTokens: 1, tier: 'host' }),
    kvStored({ hashes: Int32Array.of(5, 0), tokens: Int32Array.of(5), blockSizeTokens: 1, tier: 'disk' }),
  ])
  const small = new EventApplier(BlockIndex.create(layeredOptions(1 << 20, 1)), new LayerSlots(1))
  small.open(0)
  t.equal(small.load(0, applier.image(0)!), false)
  t.match(small.status(), { blocksHeld: { 0: 2 }, layersHeld: { 0: { host: 1 } } })
})
