/**
 * The writer thread of loops B, C and D: takes events out of the ring and applies them to the index that it
 * alone writes. FRESH makes a new index and posts its memory; CHECK compares what it holds with the
 * reference, and posts the CPU time that this thread had since FRESH.
 */

import { parentPort, workerData } from 'node:worker_threads'
import type { BlockIndex } from '@homing/index'
import { threadCpuUs } from '../actors/cpu.ts'
import { clockOffsetMs } from './clock-offset.ts'
import { applyRun, createIndex, requireAllTaken, warmUpWith } from './drive.ts'
import { CHECK, type EventRingMemory, EventTaker, FRESH, STOP } from './event-ring.ts'
import { loadCorpus } from './kvc1.ts'
import { type Reference, requireHeld } from './reference.ts'

export interface WriterTask {
  readonly ring: EventRingMemory
  readonly workers: number
  readonly warmUpPath: string
  readonly held: Reference['held']
  /** By slot: from accepted to applied, in microseconds. */
  readonly appliedUs: Float64Array
}

const port = parentPort!
const { ring, workers, warmUpPath, held, appliedUs } = workerData as WriterTask

warmUpWith(loadCorpus(warmUpPath))
const offsetMs = clockOffsetMs()
const taker = new EventTaker(ring)
let index: BlockIndex = createIndex(workers)
/** Slots taken before this index began. */
let begun = 0
let cpuFromUs = 0
port.postMessage('ready')

try {
  while (applyNext());
} catch (error) {
  taker.fail()
  throw error
}

/** False when that was the last. */
function applyNext(): boolean {
  const { head, parent, timeMs, engines, locals } = taker.take()
  const kind = head[0]!
  if (kind === FRESH) {
    index = createIndex(workers)
    begun = taker.applied + 1
    port.postMessage(index.memory)
    cpuFromUs = threadCpuUs()
  } else if (kind === CHECK) {
    const cpuUs = threadCpuUs() - cpuFromUs
    requireAllTaken(index)
    requireHeld([index], held)
    port.postMessage(cpuUs)
  } else if (kind !== STOP) {
    applyRun(index, kind, head[1]!, head[3] === 1 ? parent : undefined, engines, locals, head[2]!)
    if (timeMs[0]! > 0) appliedUs[taker.applied - begun] = (performance.now() + offsetMs - timeMs[0]!) * 1000
  }
  taker.done()
  return kind !== STOP
}
