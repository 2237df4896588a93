/**
 * Events between any two words that a reader reads, and lookups between any two stores of a writer, in random
 * histories: every answer is checked against bounds that hold at every instant.
 */

import t from 'tap'
import { BlockIndex, IndexReader, LayerOverlaps, OverlapCounts } from '../src/index.ts'
import { interleave } from './interleave.ts'
import {
  faultOf,
  faultOfLayers,
  makePlan,
  PLAN_LAYERS,
  PLAN_SLOTS,
  planWriter,
  seededRandom,
} from './stress-plan.ts'

/** Histories of the interleaving tests; each has its own plan. */
const SEEDS = Number(process.env['HOMING_TEST_SEEDS'] ?? 8)

t.test('an event between any two words that a reader reads does not make it wrong', async t => {
  let retries = 0
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = seededRandom(seed)
    const plan = makePlan({ seed, access: 'atomic' })
    const index = BlockIndex.create({
      capacityBytes: 260 << 10,
      workerSlotsMax: PLAN_SLOTS,
      orphanBytesMax: 0,
      access: 'atomic',
    })
    const step = planWriter(index, plan, random)
    for (let i = 0; i < 500; i++) step()
    const reader = new IndexReader([index.memory])
    const scores = new OverlapCounts()
    const layerScores = new LayerOverlaps()
    let fault = ''
    for (let i = 0; i < 1500 && fault === ''; i++) {
      const path = plan[random.below(plan.length)]!
      // Seldom and many at once, so that what is freed has been used again when the reader goes on.
      const rarity = 20 + random.below(400)
      const between = () => {
        if (random.below(rarity) > 0) return
        for (let k = random.below(60); k >= 0; k--) step()
        index.maintain(random.below(40))
      }
      interleave('load', between, () => reader.overlap(path.locals, path.count, scores))
      if (scores.isComplete) fault = faultOf(path, scores)
      if (fault !== '' || random.below(3) > 0) continue
      interleave('load', between, () => reader.extend(path.locals, path.count, PLAN_LAYERS, layerScores))
      if (layerScores.isComplete) fault = faultOfLayers(path, layerScores)
    }
    if (fault !== '') t.fail(`seed ${seed}: ${fault}`)
    if (index.stats().evictedForSpace > 0) t.fail(`seed ${seed}: the plan does not fit`)
    retries += reader.stats().retries
  }
  t.ok(retries > 0, `${retries} retries`)
})

t.test('a reader that looks while a writer is anywhere within an event sees only what is held', async t => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = seededRandom(seed + 1000)
    const plan = makePlan({ seed, access: 'atomic' })
    const index = BlockIndex.create({
      capacityBytes: 260 << 10,
      workerSlotsMax: PLAN_SLOTS,
      orphanBytesMax: 0,
      access: 'atomic',
    })
    const step = planWriter(index, plan, random)
    const reader = new IndexReader([index.memory])
    const scores = new OverlapCounts()
    let fault = ''
    const between = () => {
      if (random.below(20) > 0 || fault !== '') return
      const path = plan[random.below(plan.length)]!
      reader.overlap(path.locals, path.count, scores)
      if (scores.isComplete) fault = faultOf(path, scores)
    }
    interleave('store', between, () => {
      for (let i = 0; i < 500; i++) {
        step()
        index.maintain(random.below(20))
      }
    })
    t.equal(fault, '', `seed ${seed}`)
  }
})

t.test('worker-set ids that are given to other sets under the reader do not mislead it', async t => {
  const count = 20
  const hashes = Int32Array.from({ length: 2 * count }, (_, i) => i + 1)
  let retries = 0
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = seededRandom(seed)
    const index = BlockIndex.create({ capacityBytes: 64 << 10, workerSlotsMax: 12, access: 'atomic' })
    // Worker slot w never holds a block past `most[w]`; slot 0 always holds all.
    const most = Array.from({ length: 12 }, (_, slot) => (slot === 0 ? count : 1 + random.below(count)))
    for (let slot = 0; slot < 12; slot++) index.store(slot, undefined, hashes, hashes, most[slot]!)
    const step = () => {
      const slot = 1 + random.below(11)
      const at = random.below(most[slot]!)
      const block = hashes.subarray(2 * at, 2 * at + 2)
      const parent = at === 0 ? undefined : hashes.subarray(2 * at - 2, 2 * at)
      if (index.has(slot, block)) index.remove(slot, block, 1)
      else if (parent === undefined || index.has(slot, parent)) index.store(slot, parent, block, block, 1)
    }
    const reader = new IndexReader([index.memory])
    const scores = new OverlapCounts()
    for (let i = 0; i < 1000; i++) {
      const rarity = 10 + random.below(100)
      const between = () => {
        if (random.below(rarity) === 0) for (let k = random.below(100); k >= 0; k--) step()
      }
      interleave('load', between, () => reader.overlap(hashes, count, scores))
      if (!scores.isComplete) continue
      const isWithin = [...scores.toMap()].every(([slot, blocks]) => blocks <= most[slot]!)
      if (!isWithin || scores.blocksOf(0) !== count)
        t.fail(`seed ${seed}: ${JSON.stringify([...scores.toMap()])}`)
    }
    t.equal(index.stats().evictedForSpace + index.stats().refusedBlocks, 0)
    retries += reader.stats().retries
  }
  t.ok(retries > 0, `${retries} retries`)
})
