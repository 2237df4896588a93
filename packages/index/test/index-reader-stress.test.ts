/**
 * A thread that writes flat out, a reader that checks every answer against bounds that hold at every instant.
 *
 * The arena is small, so chunks and set ids are used again all the time. A test that passes proves little:
 * the interleavings are argued in block-index.ts and index-reader.ts.
 */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'

import t from 'tap'
import { IndexReader, type IndexStats, OverlapScores, type WordAccess } from '../src/index.ts'
import { ENGINE_STOP, makePlan, PLAN_SLOTS, seededRandom } from './stress-plan.ts'

const STRESS_MS = Number(process.env['HOMING_STRESS_MS'] ?? 2000)

for (const access of ['plain', 'atomic'] satisfies WordAccess[]) {
  const skip = access === 'plain' && process.arch !== 'x64' ? 'plain words are for x64' : false
  t.test(`readers see only what is held while another thread writes (${access} words)`, { skip }, async t => {
    const seed = Number(process.env['HOMING_STRESS_SEED'] ?? 20_261)
    const control = new SharedArrayBuffer(64)
    const options = { seed, access, control, capacityBytes: 260 << 10 }
    const writer = new Worker(new URL('./stress-writer.ts', import.meta.url), { workerData: options })
    const [memory] = (await once(writer, 'message')) as [SharedArrayBuffer]
    const plan = makePlan(options)
    const reader = new IndexReader([memory])
    const random = seededRandom(seed + 1)
    const scores = new OverlapScores()
    const found = new Int32Array(PLAN_SLOTS)
    const sumBefore = new Map<number, number>()
    let wrong = ''
    let changed = 0
    let incomplete = 0
    const end = performance.now() + STRESS_MS
    while (performance.now() < end && wrong === '') {
      for (let i = 0; i < 200 && wrong === ''; i++) {
        const number = random.below(plan.length)
        const { locals, count, lower, upper } = plan[number]!
        reader.overlap(locals, count, scores)
        if (!scores.isComplete) {
          incomplete++
          continue
        }
        found.fill(0)
        let sum = 0
        for (let k = 0; k < scores.length; k++) {
          if (found[scores.workerSlots[k]!] !== 0) wrong = `worker slot ${scores.workerSlots[k]} listed twice`
          found[scores.workerSlots[k]!] = scores.blocks[k]!
          sum += scores.blocks[k]! * (scores.workerSlots[k]! + 1)
        }
        if (sumBefore.get(number) !== sum) changed++
        sumBefore.set(number, sum)
        for (let slot = 0; slot < PLAN_SLOTS; slot++) {
          if (found[slot]! >= lower[slot]! && found[slot]! <= upper[slot]!) continue
          wrong = `path ${number}, worker slot ${slot}: ${found[slot]} is not of ${lower[slot]} … ${upper[slot]}`
        }
      }
    }
    Atomics.store(new Int32Array(control), ENGINE_STOP, 1)
    const [done] = (await once(writer, 'message')) as [{ events: number; stats: IndexStats }]
    await writer.terminate()
    const { lookups, retries } = reader.stats()
    t.equal(wrong, '', `seed ${seed}`)
    t.equal(done.stats.evictedForSpace + done.stats.refusedBlocks, 0, 'the plan fits, so the bounds hold')
    t.ok(changed > 100, 'the answers changed under the reader')
    t.ok(incomplete * 20 < lookups, 'giving up is rare')
    t.comment(
      `${lookups} lookups, ${changed} changed, ${retries} retries, ${incomplete} misses, ${done.events} events`,
    )
  })
}

t.test('a reader that never sees a consistent view reports a miss, and says so', async t => {
  const { BlockIndex } = await import('../src/index.ts')
  const { H_CHUNK_BASE, H_SET_VERSION_BASE, CHUNK_WORDS, PARENT } = await import('../src/layout.ts')
  const index = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 8 })
  const hashes = Int32Array.from([1, 2])
  index.store(0, undefined, hashes, hashes, 1)
  index.store(1, undefined, hashes, hashes, 1)
  const reader = new IndexReader([index.memory])
  const scores = new OverlapScores()
  reader.overlap(hashes, 1, scores)
  t.strictSame([scores.length, scores.isComplete], [2, true])

  // A writer that stopped within a set: the version stays odd.
  const words = new Int32Array(index.memory)
  const version = words[H_SET_VERSION_BASE]!
  words[version]!++
  reader.overlap(hashes, 1, scores)
  t.strictSame([scores.length, scores.isComplete], [0, false])
  t.match(reader.stats(), { lookups: 2, misses: 1, retries: 63 })
  words[version]!++

  // A chunk that is being filled is not there.
  words[words[H_CHUNK_BASE]! + CHUNK_WORDS + PARENT] = -1
  reader.overlap(hashes, 1, scores)
  t.strictSame([scores.length, scores.isComplete], [0, true])
})
