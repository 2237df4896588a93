/**
 * The warm spare of the system in this process. The runtime does not report when its spare is ready. A bench
 * has to know: else it measures a death without a spare, or work beside a spare that still loads.
 *
 * A spare sends one message when its runtime is loaded; then it loads the modules of actors that it is told
 * of. It is ready when it has sent the message and is idle. When a spare is used, the next one is made soon.
 */

import { subscribe } from 'node:diagnostics_channel'
import type { Worker } from 'node:worker_threads'
import { pause } from './loads.ts'

/** The name that the runtime gives to spares. */
const SPARE = 'spare'
const LOOK_EVERY_MS = 5
/** Looks in a row at a spare that has nothing to do. */
const QUIET_LOOKS = 3
/** Of such a spare, as share of the time between two looks. */
const BUSY_MAX = 0.05
const READY_MS_MAX = 30_000

/** The youngest; those before it have a life by now, or are dead. */
let spare: Worker | undefined
let isLoaded = false
/** A death will take the spare, or has, and the next one is not made yet. */
let isExpected = false

// Node tells of every worker that is made.
subscribe('worker_threads', message => {
  const { worker } = message as { worker: Worker }
  if (worker.threadName !== SPARE) return
  spare = worker
  isLoaded = false
  isExpected = false
  worker.once('message', () => {
    if (spare === worker) isLoaded = true
  })
  worker.once('exit', () => {
    if (spare === worker) spare = undefined
  })
})

/** To be called before a death in a system that keeps a spare. */
export function expectNextSpare(): void {
  isExpected = true
}

/** Resolves when a spare stands ready, and at once when there is none. */
export async function spareReady(): Promise<void> {
  const untilMs = performance.now() + READY_MS_MAX
  for (let quiet = 0; isExpected || (spare !== undefined && quiet < QUIET_LOOKS); ) {
    if (performance.now() > untilMs) throw new Error(`no spare was ready within ${READY_MS_MAX} ms`)
    if (isExpected || spare === undefined) {
      await pause(LOOK_EVERY_MS)
      continue
    }
    const loop = spare.performance
    const before = loop.eventLoopUtilization()
    await pause(LOOK_EVERY_MS)
    const { idle, utilization } = loop.eventLoopUtilization(before)
    quiet = isLoaded && idle > 0 && utilization <= BUSY_MAX ? quiet + 1 : 0
  }
}
