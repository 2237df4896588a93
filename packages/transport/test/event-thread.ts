/**
 * A thread like those that follow KV events: subscribes to an engine, repeatedly asks it for a replay, and
 * binds ports of its own that its successor will need. Reports how many messages it has received.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import { threadMessages } from '../src/zmq/roles.ts'

const { events, replay, own } = workerData as {
  readonly events: string
  readonly replay: string
  readonly own: readonly string[]
}
const messages = threadMessages({ clock: systemClock, log: { warn() {} } })

const publisher = await messages.publish({ endpoint: own[0]! })
const router = await messages.serve({ endpoint: own[1]! }, (identity, frames) =>
  router.send(identity, frames),
)

let receivedCount = 0
const received = (): void => {
  receivedCount++
  publisher.send([new Uint8Array(200)])
  if (receivedCount % 300 === 0) parentPort!.postMessage(receivedCount)
}
const ask = (): void => {
  const dealer = messages.dial({ endpoint: replay }, frames => {
    received()
    if (frames.length > 1) return
    dealer.close()
    ask()
  })
  dealer.send([new Uint8Array(0)])
}
messages.subscribe({ endpoint: events, topic: '' }, { message: received, connected: ask, disconnected() {} })
parentPort!.on('message', ending => {
  if (ending === 'throw') throw new Error('a crash')
  process.exit(3)
})
