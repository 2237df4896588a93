/** The raw figures of the life of threads: bare workers that start, end, and take over from each other. */

import { once } from 'node:events'
import process from 'node:process'
import { Worker } from 'node:worker_threads'
import { pause } from './loads.ts'
import type { LifeOrder } from './raw-life-worker.ts'
import { EXIT_AT, HANDLED_AT, newTimes } from './times.ts'

/** How a thread comes to its end: from within, by main, or by main while it spins. */
export type End = 'exit' | 'terminate' | 'hang'

/** A bare worker that runs. */
export async function startBareWorker(timesNs = newTimes()): Promise<Worker> {
  const worker = newWorker(timesNs)
  await once(worker, 'message')
  return worker
}

/** Milliseconds from a new worker to its first word. */
export async function workerStartMs(): Promise<number> {
  const from = performance.now()
  const worker = await startBareWorker()
  const ms = performance.now() - from
  await worker.terminate()
  return ms
}

/** Milliseconds from the end of a worker, from within, to its exit event. */
export async function workerExitMs(): Promise<number> {
  const timesNs = newTimes()
  const worker = await startBareWorker(timesNs)
  order(worker, 'exit')
  await once(worker, 'exit')
  return msBetween(timesNs[EXIT_AT]!, process.hrtime.bigint())
}

/**
 * Milliseconds from the end of a worker to the first message that another handles: main posts it at the exit
 * event, to a worker that stands ready or to a new one. Of one that hangs, the end is when main terminates
 * it.
 */
export async function takeoverMs(end: End, hasSpare: boolean): Promise<number> {
  const timesNs = newTimes()
  const first = await startBareWorker(timesNs)
  const spare = hasSpare ? await startBareWorker(timesNs) : undefined
  const exited = once(first, 'exit')
  if (end === 'exit') order(first, 'exit')
  else {
    if (end === 'hang') {
      order(first, 'hang')
      await written(timesNs, EXIT_AT)
    }
    Atomics.store(timesNs, EXIT_AT, process.hrtime.bigint())
    void first.terminate()
  }
  await exited
  const heir = spare ?? newWorker(timesNs)
  order(heir, 'work')
  await written(timesNs, HANDLED_AT)
  await heir.terminate()
  return msBetween(timesNs[EXIT_AT]!, timesNs[HANDLED_AT]!)
}

export function msBetween(fromNs: bigint, toNs: bigint): number {
  return Number(toNs - fromNs) / 1e6
}

async function written(timesNs: BigInt64Array, index: number): Promise<void> {
  while (Atomics.load(timesNs, index) === 0n) await pause(1)
}

function order(worker: Worker, what: LifeOrder): void {
  worker.postMessage(what)
}

function newWorker(timesNs: BigInt64Array): Worker {
  return new Worker(new URL('./raw-life-worker.ts', import.meta.url), { workerData: timesNs, execArgv: [] })
}
