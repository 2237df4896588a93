/** The writing thread of the stress test: stores and removes, flat out, by the plan of stress-plan.ts. */

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
}
const control = new Int32Array(options.control)
const { access, capacityBytes } = options
const index = BlockIndex.create({ capacityBytes, workerSlotsMax: PLAN_SLOTS, orphanBytesMax: 0, access })
const step = planWriter(index, makePlan(options), seededRandom(options.seed))
parentPort!.postMessage(index.memory)

let events = 0
while (Atomics.load(control, ENGINE_STOP) === 0) {
  for (let i = 0; i < 500; i++) step()
  events += 500
}
parentPort!.postMessage({ events, stats: index.stats() })
