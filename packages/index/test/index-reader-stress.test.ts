/**
 * A thread that writes flat out, a reader that checks every answer against bounds that hold at every instant.
 *
 * The arena is small, so chunks and set ids are used again all the time. A test that passes proves little:
 * the interleavings are argued in block-index.ts and index-reader.ts.
 */

import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'

import t from 'tap'
import {
  BlockIndex,
  type IndexMemory,
  IndexReader,
  type IndexStats,
  LayerOverlaps,
  OverlapCounts,
  type WordAccess,
} from '../src/index.ts'
import { CHUNK_WORDS, H_CHUNK_BASE, H_SET_VERSION_BASE, PARENT } from '../src/words.ts'
import { ENGINE_STOP, faultOf, faultOfLayers, makePlan, PLAN_LAYERS, seededRandom } from './stress-plan.ts'

const STRESS_MS = Number(process.env['HOMING_STRESS_MS'] ?? 1500)
/** What must have happened to the reader; on a machine that is busy a test goes on until then. */
const CHANGED_MIN = 100
const MEMORIES_MIN = 4

for (const access of ['plain', 'atomic'] satisfies WordAccess[]) {
  const skip = access === 'plain' && process.arch !== 'x64' ? 'plain words are for x64' : false
  t.test(`readers see only what is held while another thread writes (${access} words)`, { skip }, async t => {
    const seed = Number(process.env['HOMING_STRESS_SEED'] ?? 20_261)
    const control = new SharedArrayBuffer(64)
    const options = { seed, access, control, capacityBytes: 280 << 10, isMoving: false }
    const writer = new Worker(new URL('./stress-writer.ts', import.meta.url), { workerData: options })
    const [memory] = (await once(writer, 'message')) as [IndexMemory]
    const plan = makePlan(options)
    const reader = new IndexReader([memory])
    const random = seededRandom(seed + 1)
    const scores = new OverlapCounts()
    const layerScores = new LayerOverlaps()
    const sumBefore = new Map<number, number>()
    let wrong = ''
    let changed = 0
    let incomplete = 0
    const end = performance.now() + STRESS_MS
    while ((performance.now() < end || changed <= CHANGED_MIN) && wrong === '') {
      for (let i = 0; i < 200 && wrong === ''; i++) {
        const number = random.below(plan.length)
        const path = plan[number]!
        reader.overlap(path.locals, path.count, scores)
        if (!scores.isComplete) {
          incomplete++
          continue
        }
        let sum = 0
        for (let k = 0; k < scores.length; k++) sum += scores.blocks[k]! * (scores.workerSlots[k]! + 1)
        if (sumBefore.get(number) !== sum) changed++
        sumBefore.set(number, sum)
        wrong = faultOf(path, scores)
        if (wrong !== '' || random.below(3) > 0) continue
        reader.extend(path.locals, path.count, PLAN_LAYERS, layerScores)
        if (layerScores.isComplete) wrong = faultOfLayers(path, layerScores)
      }
    }
    Atomics.store(new Int32Array(control), ENGINE_STOP, 1)
    const [done] = (await once(writer, 'message')) as [{ events: number; stats: IndexStats }]
    await writer.terminate()
    const { lookups, retries } = reader.stats()
    t.equal(wrong, '', `seed ${seed}`)
    t.equal(done.stats.evictedForSpace + done.stats.refusedBlocks, 0, 'the plan fits, so the bounds hold')
    t.ok(changed > CHANGED_MIN, 'the answers changed under the reader')
    t.ok(incomplete * 20 < lookups, 'giving up is rare')
    t.comment(
      `${lookups} lookups, ${changed} changed, ${retries} retries, ${incomplete} misses, ${done.events} events`,
    )
  })
}

for (const access of ['plain', 'atomic'] satisfies WordAccess[]) {
  const skip = access === 'plain' && process.arch !== 'x64' ? 'plain words are for x64' : false
  t.test(`readers go on while the writer moves to other memory (${access} words)`, { skip }, async t => {
    const seed = Number(process.env['HOMING_STRESS_SEED'] ?? 20_262)
    const control = new SharedArrayBuffer(64)
    const options = { seed, access, control, capacityBytes: 2 << 20, isMoving: true }
    const writer = new Worker(new URL('./stress-writer.ts', import.meta.url), { workerData: options })
    const [memory] = (await once(writer, 'message')) as [IndexMemory]
    const plan = makePlan(options)
    const reader = new IndexReader([memory])
    let done: { stats: IndexStats } | undefined
    let memories = 0
    writer.on('message', message => {
      if ('stats' in message) {
        done = message
        return
      }
      memories++
      reader.replaceShard(0, message)
    })
    const random = seededRandom(seed + 1)
    const scores = new OverlapCounts()
    const layerScores = new LayerOverlaps()
    let wrong = ''
    const end = performance.now() + STRESS_MS
    while ((performance.now() < end || memories < MEMORIES_MIN) && wrong === '') {
      for (let i = 0; i < 100 && wrong === ''; i++) {
        const path = plan[random.below(plan.length)]!
        reader.overlap(path.locals, path.count, scores)
        if (scores.isComplete) wrong = faultOf(path, scores)
        reader.extend(path.locals, path.count, PLAN_LAYERS, layerScores)
        if (layerScores.isComplete && wrong === '') wrong = faultOfLayers(path, layerScores)
      }
      await setImmediate()
    }
    Atomics.store(new Int32Array(control), ENGINE_STOP, 1)
    while (done === undefined) await once(writer, 'message')
    await writer.terminate()
    t.equal(wrong, '', `seed ${seed}`)
    t.equal(done.stats.evictedForSpace + done.stats.refusedBlocks, 0, 'the plan fits, so the bounds hold')
    t.ok(memories >= MEMORIES_MIN, `${memories} memories`)
    const { lookups, retries, misses, staleLookups } = reader.stats()
    t.ok(misses * 20 < lookups, 'giving up is rare')
    t.comment(
      `${lookups} lookups, ${retries} retries, ${misses} misses, ${staleLookups} stale, ${memories} memories`,
    )
  })
}

t.test('a reader that never sees a consistent view reports a miss, and says so', async t => {
  const index = BlockIndex.create({ capacityBytes: 1 << 20, workerSlotsMax: 8 })
  const hashes = Int32Array.from([1, 2])
  index.store(0, undefined, hashes, hashes, 1)
  index.store(1, undefined, hashes, hashes, 1)
  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts()
  reader.overlap(hashes, 1, scores)
  t.strictSame([scores.length, scores.isComplete], [2, true])

  // A writer that stopped within a set: the version stays odd.
  const words = new Int32Array(index.memory.buffer)
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
