/** The code of the worker threads of the raw loads: each runs one thing, named in `workerData`. */

import { parentPort, workerData } from 'node:worker_threads'
import { threadCpuUs } from './cpu.ts'
import { echoRecords, readRecords } from './raw-ring.ts'
import { spin, spinFor } from './spin.ts'

export type RawTask =
  /** Is busy for a while and says so; then is busy again while the word is 1, and posts what it did. */
  | { readonly task: 'spin'; readonly words: Int32Array; readonly warmUpMs: number }
  /** Counts numbered objects, posted alone or in arrays; 0 is answered with the tally. */
  | { readonly task: 'count' }
  /** Posts back a + 1 under the number of the ask; 0 is answered with the CPU time so far. */
  | { readonly task: 'echo' }
  /** Reads or sends back as many records as it is told; 0 is answered with the CPU time so far. */
  | { readonly task: 'ring'; readonly inbound: Int32Array; readonly outbound: Int32Array }

export type RingOrder = 0 | { readonly read: number } | { readonly echo: number }

/** What was counted so far. */
export interface RawTally {
  readonly count: number
  readonly violations: number
  readonly cpuUs: number
}

interface Numbered {
  readonly n: number
}

const port = parentPort!
const work = workerData as RawTask

switch (work.task) {
  case 'spin':
    spinFor(work.warmUpMs)
    port.postMessage('ready')
    while (Atomics.load(work.words, 0) === 0);
    port.postMessage(spin(() => Atomics.load(work.words, 0) !== 1))
    break
  case 'count': {
    let count = 0
    let violations = 0
    const take = ({ n }: Numbered): void => {
      if (n !== ++count) violations++
    }
    port.on('message', (message: 0 | Numbered | Numbered[]) => {
      if (message === 0) port.postMessage({ count, violations, cpuUs: threadCpuUs() } satisfies RawTally)
      else if (Array.isArray(message)) message.forEach(take)
      else take(message)
    })
    port.postMessage('ready')
    break
  }
  case 'echo':
    port.on('message', (message: 0 | { n: number; a: number }) => {
      if (message === 0) port.postMessage(threadCpuUs())
      else port.postMessage({ n: message.n, answer: message.a + 1 })
    })
    port.postMessage('ready')
    break
  case 'ring':
    port.on('message', (order: RingOrder) => {
      if (order === 0) port.postMessage(threadCpuUs())
      else if ('read' in order) port.postMessage(readRecords(work.inbound, order.read))
      else echoRecords(work.inbound, work.outbound, order.echo)
    })
    port.postMessage('ready')
    break
}
