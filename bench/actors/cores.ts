/**
 * Effective cores: how much CPU two busy threads really get. A shared or throttled machine gives them one core at
 * times; two threads then take turns by the time slice, and figures of two threads say nothing.
 */

import { once } from 'node:events'
import { cpuMs } from './loads.ts'
import { startRawWorker } from './raw.ts'

const BUSY_MS = 100
/** Below this, figures of two threads are not comparable. */
export const CORES_MIN = 1.8
/** The same, looked at after a run. */
export const CORES_MIN_AFTER = 1.7

/** CPU time of two busy threads over the time that passed; 2 on a machine that is ours. */
export async function effectiveCores(): Promise<number> {
  const words = new Int32Array(new SharedArrayBuffer(4))
  const worker = await startRawWorker({ task: 'spin', words })
  const ended = once(worker, 'message')
  const before = process.cpuUsage()
  const fromMs = performance.now()
  Atomics.store(words, 0, 1)
  while (performance.now() - fromMs < BUSY_MS);
  const cores = cpuMs(before) / (performance.now() - fromMs)
  Atomics.store(words, 0, 2)
  await ended
  await worker.terminate()
  return cores
}
