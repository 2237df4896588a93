/** What the worker threads of the raw figures run: each of them one thing, said in `workerData`. */

import { parentPort, workerData } from 'node:worker_threads'
import { echoRecords, readRecords } from './raw-ring.ts'

export type RawTask =
  /** Says that it runs, then waits; 'exit' ends it from within. */
  | { readonly task: 'start' }
  /** Is busy while the word is 0; sets it to 1 when it begins. */
  | { readonly task: 'spin'; readonly words: Int32Array }
  /** Counts numbered objects, posted alone or in arrays; a post of 0 is answered with the tally. */
  | { readonly task: 'count' }
  /** Posts back a + 1 under the number of the ask. */
  | { readonly task: 'echo' }
  | { readonly task: 'readRing'; readonly inbound: Int32Array; readonly count: number }
  | {
      readonly task: 'echoRing'
      readonly inbound: Int32Array
      readonly outbound: Int32Array
      readonly count: number
    }

interface Numbered {
  readonly n: number
}

const port = parentPort!
const work = workerData as RawTask

switch (work.task) {
  case 'start':
    port.on('message', () => process.exit(1))
    port.postMessage('ready')
    break
  case 'spin':
    port.postMessage('ready')
    while (Atomics.load(work.words, 0) === 0);
    while (Atomics.load(work.words, 0) === 1);
    port.postMessage('done')
    break
  case 'count': {
    let count = 0
    let violations = 0
    const take = ({ n }: Numbered): void => {
      if (n !== ++count) violations++
    }
    port.on('message', (message: 0 | Numbered | Numbered[]) => {
      if (message === 0) port.postMessage({ count, violations })
      else if (Array.isArray(message)) message.forEach(take)
      else take(message)
    })
    port.postMessage('ready')
    break
  }
  case 'echo':
    port.on('message', ({ n, a }: { n: number; a: number }) => port.postMessage({ n, answer: a + 1 }))
    port.postMessage('ready')
    break
  case 'readRing':
    port.postMessage('ready')
    port.postMessage(readRecords(work.inbound, work.count))
    break
  case 'echoRing':
    port.postMessage('ready')
    echoRecords(work.inbound, work.outbound, work.count)
    port.postMessage('done')
    break
}
