/**
 * The bare worker whose start and end are timed. It imports next to nothing: that would be part of its start.
 */

import process from 'node:process'
import { parentPort, workerData } from 'node:worker_threads'
import { EXIT_AT, HANDLED_AT } from './times.ts'

/** `work` is written down as handled, the others as the end of the thread. */
export type LifeOrder = 'exit' | 'hang' | 'work'

const port = parentPort!
const timesNs = workerData as BigInt64Array

port.on('message', (order: LifeOrder) => {
  Atomics.store(timesNs, order === 'work' ? HANDLED_AT : EXIT_AT, process.hrtime.bigint())
  if (order === 'exit') process.exit(1)
  if (order === 'hang') for (;;);
})
port.postMessage('ready')
