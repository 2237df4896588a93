/**
 * A thread that falls asleep at the first message until it is woken, and then checks that no later one is
 * missing.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import { threadMessages } from '../src/zmq/roles.ts'

const { endpoint, flag, total } = workerData as {
  readonly endpoint: string
  readonly flag: Int32Array
  readonly total: number
}
const messages = threadMessages({ clock: systemClock, log: { warn() {} } })
let last = 0
let hears = false
messages.subscribe(
  { endpoint, topic: '' },
  {
    message([frame]) {
      const number = new DataView(frame!.buffer, frame!.byteOffset).getUint32(0)
      if (number === 0) {
        if (!hears) parentPort!.postMessage('hears')
        hears = true
        return
      }
      if (number !== last + 1) throw new Error(`message ${number} followed ${last}`)
      last = number
      if (number === 1) {
        parentPort!.postMessage('asleep')
        Atomics.wait(flag, 0, 0)
      }
      if (number !== total) return
      parentPort!.postMessage('all')
      process.exit(0)
    },
    connected: () => parentPort!.postMessage('connected'),
    disconnected() {},
  },
)
