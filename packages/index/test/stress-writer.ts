/**
 * The writing thread of the stress test: stores and removes, flat out, within bounds that hold at every instant.
 *
 * The least and the most that a worker slot may ever hold of a path: see stress-plan.ts.
 */

import { parentPort, workerData } from 'node:worker_threads'

import { BlockIndex } from '../src/index.ts'
import { ENGINE_STOP, makePlan, PLAN_SLOTS, type PlanOptions, seededRandom } from './stress-plan.ts'

const options = workerData as PlanOptions & {
  readonly control: SharedArrayBuffer
  readonly capacityBytes: number
}
const control = new Int32Array(options.control)
const index = BlockIndex.create({
  capacityBytes: options.capacityBytes,
  workerSlotsMax: PLAN_SLOTS,
  orphanBytesMax: 0,
  access: options.access,
})
const plan = makePlan(options)
const random = seededRandom(options.seed)

// What holds for ever is there before the reader begins.
for (const path of plan) {
  for (const holding of path.holdings) {
    if (holding.min > 0) index.store(holding.slot, undefined, path.engines, path.locals, holding.min)
    holding.now = holding.min
  }
}
parentPort!.postMessage(index.memory)

let events = 0
while (Atomics.load(control, ENGINE_STOP) === 0) {
  for (let i = 0; i < 500; i++) {
    const path = plan[random.below(plan.length)]!
    const holding = path.holdings[random.below(path.holdings.length)]!
    const to = holding.min + random.below(holding.max - holding.min + 1)
    if (to > holding.now) {
      const parent =
        holding.now === 0 ? undefined : path.engines.subarray(2 * holding.now - 2, 2 * holding.now)
      const engines = path.engines.subarray(2 * holding.now)
      const outcome = index.store(
        holding.slot,
        parent,
        engines,
        path.locals.subarray(2 * holding.now),
        to - holding.now,
      )
      if (outcome !== 'stored') throw new Error(`the arena is too small: ${outcome}`)
    } else if (to < holding.now) {
      const engines = path.engines.slice(2 * to, 2 * holding.now)
      if (random.below(4) > 0) reverse(engines) // the tail first, as engines do; else holes for a while
      index.remove(holding.slot, engines, holding.now - to)
    }
    holding.now = to
    events++
  }
}
parentPort!.postMessage({ events, stats: index.stats() })

function reverse(hashes: Int32Array): void {
  hashes.reverse() // swaps low and high, too
  for (let i = 0; i < hashes.length; i += 2) {
    const low = hashes[i + 1]!
    hashes[i + 1] = hashes[i]!
    hashes[i] = low
  }
}
