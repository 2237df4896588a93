/**
 * Effective cores: how much of two cores two busy threads really get. A shared or throttled machine sometimes
 * gives them one core or less. Two threads then take turns by time slice, and figures of two threads mean
 * nothing.
 *
 *   effective cores = CPU time of the two threads ÷ time that passed      what the system gave them
 *                   × min(1, work per CPU time: two busy ÷ one busy)      what that was worth
 *
 * The second factor finds what a guest system cannot see: a hypervisor that runs its two processors on one
 * core, or on two hyperthreads of one. It compares CPU times, so other programs on this machine do not change
 * it.
 */

import { once } from 'node:events'
import { startRawWorker } from './raw-cross.ts'
import { type Spun, spinFor } from './spin.ts'

/** Below this, figures of two threads are not comparable. */
export const CORES_MIN = 1.8
/** The same, looked at after a run. */
export const CORES_MIN_AFTER = 1.7

const WARM_UP_MS = 20
const BUSY_MS = 100
const ALONE_MS = 30

/** 2 on a machine that is ours. Takes a quarter of a second. */
export async function effectiveCores(): Promise<number> {
  const words = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
  const worker = await startRawWorker({ task: 'spin', words, warmUpMs: WARM_UP_MS })
  spinFor(WARM_UP_MS)
  const ended = once(worker, 'message')
  Atomics.store(words, 0, 1)
  const here = spinFor(BUSY_MS)
  Atomics.store(words, 0, 2)
  const [there] = (await ended) as [Spun]
  await worker.terminate()
  const alone = spinFor(ALONE_MS)
  const given = here.cpuMs / here.ms + there.cpuMs / there.ms
  const perCpuMs = (here.pieces + there.pieces) / (here.cpuMs + there.cpuMs)
  return given * Math.min(1, perCpuMs / (alone.pieces / alone.cpuMs))
}
