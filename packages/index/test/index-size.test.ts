/**
 * Size: memory of the index under unfavourable histories, and what is left of it afterwards.
 */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { BlockIndex, IndexReader, OverlapCounts } from '../src/index.ts'
import { seededRandom } from './stress-plan.ts'

/** Hashes of `count` blocks that nothing else has. */
function fresh(seed: number, count: number): Int32Array {
  return Int32Array.from(
    { length: 2 * count },
    (_, i) => Math.imul(seed * 4099 + i + 1, 0x9e3779b1) ^ (i * 7),
  )
}

t.test(
  'chunks that were left with one block of sixteen are merged along every path without a branch',
  async t => {
    const index = BlockIndex.create({ capacityBytes: 16 << 20, workerSlotsMax: 4 })
    // A path of single blocks, each with a branch that goes away: a chunk for every block.
    const paths = 40
    const length = 200
    const trunks = Array.from({ length: paths }, (_, i) => fresh(i, length))
    for (const [i, trunk] of trunks.entries()) {
      for (let at = 0; at < length; at++) {
        const parent = at === 0 ? undefined : trunk.subarray(2 * at - 2, 2 * at)
        const decoy = fresh(1000 + i * length + at, 1)
        index.store(0, parent, decoy, decoy, 1)
        const block = trunk.subarray(2 * at, 2 * at + 2)
        index.store(0, parent, block, block, 1)
        index.remove(0, decoy, 1)
      }
    }
    const before = index.stats()
    t.ok(before.chunks > paths * length * 0.9, `${before.chunks} chunks of ${before.blocksDistinct} blocks`)
    while (index.maintain());
    index.audit()
    const { chunks, blocksDistinct } = index.stats()
    t.equal(blocksDistinct, paths * length)
    // Two neighbours on a path without a branch hold 17 or more; a path has one chunk that may be alone.
    t.ok(chunks <= (2 * blocksDistinct) / 17 + paths, `${chunks} chunks of ${blocksDistinct} blocks`)
    const scores = new OverlapCounts()
    const reader = new IndexReader([index.memory])
    for (const trunk of trunks) {
      reader.overlap(trunk, length, scores)
      t.equal(scores.blocksOf(0), length)
    }
  },
)

t.test('10,000 worker slots: sets stay within their bound, and answers are right', async t => {
  const slots = 10_000
  const index = BlockIndex.create({ capacityBytes: 16 << 20, workerSlotsMax: slots })
  const seed = 20_261
  const random = seededRandom(seed)
  const prompt = fresh(1, 60)
  const held = new Map<number, number>()
  for (let i = 0; i < 30_000; i++) {
    const slot = random.below(4) === 0 ? slots - 1 - random.below(10) : random.below(slots)
    const blocks = 1 + random.below(60)
    if (random.below(5) === 0) {
      index.clear(slot)
      held.delete(slot)
    } else if (!held.has(slot)) {
      if (index.store(slot, undefined, prompt, prompt, blocks, 'set') === 'stored') held.set(slot, blocks)
    }
    index.maintain(8)
  }
  index.audit()
  const stats = index.stats()
  t.ok(stats.bytesUsed <= stats.bytesLimit, `${stats.bytesUsed} bytes, ${stats.workerSets} sets`)
  const scores = new OverlapCounts()
  new IndexReader([index.memory]).overlap(prompt, 60, scores)
  const found = scores.toMap()
  let tooMuch = 0
  for (const [slot, blocks] of found) if (blocks > (held.get(slot) ?? 0)) tooMuch++
  t.equal(tooMuch, 0, `seed ${seed}`)
  const lost = [...held].filter(([slot, blocks]) => (found.get(slot) ?? 0) < blocks).length
  t.ok(lost === 0 || stats.evictedForSpace + stats.refusedBlocks > 0, `${lost} slots lost credit`)
  for (let slot = 0; slot < slots; slot++) index.clear(slot)
  while (index.maintain());
  index.audit()
  t.match(index.stats(), { chunks: 0, memberships: 0, workerSets: 0, retiredHolders: 0 })
})

t.test('after everything was removed the process has its memory back', async t => {
  const script = fileURLToPath(new URL('./residue.ts', import.meta.url))
  for (const how of ['clear', 'remove']) {
    const output = execFileSync(process.execPath, ['--expose-gc', script, how], { encoding: 'utf8' })
    const { arraysFull, arraysLeft, rssFull, rssLeft } = JSON.parse(output) as Record<string, number>
    t.ok(arraysLeft! < arraysFull! * 0.05, `${how}: ${arraysLeft} of ${arraysFull} bytes of arrays are left`)
    t.ok(rssFull! < arraysFull! * 1.4, `${how}: ${rssFull} bytes resident, ${arraysFull} in arrays`)
    // Code and heap of the process are in it too.
    t.ok(rssLeft! < rssFull! * 0.15, `${how}: ${rssLeft} of ${rssFull} bytes resident are left`)
  }
})
