/**
 * The writing thread of the stress test: stores and removes, flat out, by the plan of stress-plan.ts. With
 * `isMoving` it also fills much memory for a worker slot that is not in the plan, clears it, and moves to new
 * memory, again and again.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { BlockIndex } from '../src/index.ts'
import {
  ENGINE_STOP,
  makePlan,
  PLAN_SLOTS,
  type PlanOptions,
  planWriter,
  seededRandom,
} from './stress-plan.ts'

const options = workerData as PlanOptions & {
  readonly control: SharedArrayBuffer
  readonly capacityBytes: number
  readonly isMoving: boolean
}
const control = new Int32Array(options.control)
const { access, capacityBytes, isMoving } = options
const index = BlockIndex.create({
  capacityBytes,
  workerSlotsMax: PLAN_SLOTS + 1,
  orphanBytesMax: 0,
  access,
  swapBytesMin: 1 << 16,
  onMemory: memory => parentPort!.postMessage(memory),
})
const step = planWriter(index, makePlan(options), seededRandom(options.seed))
parentPort!.postMessage(index.memory)

function fill(): void {
  for (let i = 0; i < 1000; i++) {
    const hashes = Int32Array.from({ length: 80 }, (_, k) => -(i * 1000 + k + 1))
    index.store(PLAN_SLOTS, undefined, hashes, hashes, 40)
  }
}

let events = 0
while (Atomics.load(control, ENGINE_STOP) === 0) {
  if (isMoving) fill()
  for (let i = 0; i < 500; i++) {
    step()
    if (isMoving && i === 100) index.clear(PLAN_SLOTS)
    if (i % 10 === 0) index.maintain(isMoving ? 5000 : 30)
  }
  events += 500
}
parentPort!.postMessage({ events, stats: index.stats() })
