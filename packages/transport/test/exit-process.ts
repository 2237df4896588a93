/**
 * A process that ends in the way its argument says, with ZeroMQ sockets open on the main thread and on
 * another, and messages on their way between all of them.
 */

import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import type { Closable, MessageTransport } from '../src/index.ts'
import { threadMessages } from '../src/zmq/roles.ts'

const ending = process.argv[2]
const messages = threadMessages({ clock: systemClock, log: { warn() {} } })

/** Open sockets in every role, a subscriber without a publisher, and traffic; reports its first message. */
async function talk(messages: MessageTransport, heard: () => void): Promise<Closable> {
  const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const router = await messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, (identity, frames) => {
    router.send(identity, frames)
  })
  const handler = { message: heard, connected() {}, disconnected() {} }
  messages.subscribe({ endpoint: publisher.endpoint, topic: '' }, handler)
  messages.subscribe({ endpoint: 'tcp://127.0.0.1:9', topic: '' }, handler)
  const dealer = messages.dial({ endpoint: router.endpoint }, () => {})
  const timer = setInterval(() => {
    for (let i = 0; i < 20; i++) publisher.send([new Uint8Array(3), new Uint8Array(1000)])
    dealer.send([new Uint8Array(0), new Uint8Array(1000)])
  }, 1)
  return { close: () => clearInterval(timer) }
}

if (!isMainThread) {
  await talk(messages, () => parentPort!.postMessage('heard'))
} else {
  const heard = Promise.withResolvers<void>()
  const traffic = await talk(messages, heard.resolve)
  await heard.promise
  const worker = new Worker(new URL(import.meta.url))
  await new Promise(resolve => worker.once('message', resolve))
  if (ending === 'handled') {
    process.once('SIGTERM', () => {
      traffic.close()
      ;(messages as unknown as Closable).close()
      void worker.terminate()
      process.exitCode = 5
    })
  }
  // Only now: the signal comes as soon as this is read.
  process.stdout.write('talking\n')
  switch (ending) {
    case 'exit':
      process.exit(7)
      break
    case 'throw':
      throw new Error('a crash')
    case 'natural':
      await worker.terminate()
      traffic.close()
      ;(messages as unknown as Closable).close()
      break
    default:
  }
}
