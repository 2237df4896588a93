/**
 * Wakes another thread at instants that were fixed before. A thread of its own, since timers of Node are only
 * good to a millisecond and late behind whatever else the event loop does; this one sleeps in Atomics.wait,
 * to some 0.1 ms.
 */

import { isMainThread, workerData } from 'node:worker_threads'

/** Ms of the monotonic clock of the system, the same in all threads. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

export interface Pace {
  /** Word 0: instants that have come; word 1 is only slept on. */
  readonly words: Int32Array
  /** In ms of the monotonic clock, which all threads share. */
  readonly instantsMs: Float64Array
}

if (!isMainThread) pace(workerData as Pace)

function pace({ words, instantsMs }: Pace): void {
  for (const instantMs of instantsMs) {
    for (;;) {
      const leftMs = instantMs - monotonicMs()
      if (leftMs <= 0) break
      Atomics.wait(words, 1, 0, leftMs)
    }
    Atomics.add(words, 0, 1)
    Atomics.notify(words, 0)
  }
}
