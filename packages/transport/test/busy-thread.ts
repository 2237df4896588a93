/** A thread that holds every kind of socket open and talks all the time. */

import { parentPort } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import { systemTransport } from '../src/index.ts'

const { http, messages } = systemTransport({ clock: systemClock, log: { warn() {} } })
const quiet = { message() {}, connected() {}, disconnected() {} }

const listener = await http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
  exchange.writeHead(200, {})
  const timer = setInterval(() => exchange.write(new Uint8Array(100)), 1)
  exchange.onClientGone(() => clearInterval(timer))
})
const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
const router = await messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, (identity, frames) => {
  router.send(identity, frames)
})
messages.subscribe({ endpoint: publisher.endpoint, topic: '' }, quiet)
messages.subscribe({ endpoint: 'tcp://127.0.0.1:9', topic: '' }, quiet)
const dealer = messages.dial({ endpoint: router.endpoint }, () => {})
http.call(
  { origin: `http://127.0.0.1:${listener.port}`, method: 'GET', path: '/' },
  { head() {}, data() {}, end() {}, failed() {} },
)
setInterval(() => {
  publisher.send([new Uint8Array(3), new Uint8Array(10_000)])
  dealer.send([new Uint8Array(0), new Uint8Array(10_000)])
}, 1)
parentPort!.on('message', ending => {
  if (ending === 'throw') throw new Error('a crash')
  process.exit(3)
})
parentPort!.postMessage({ endpoint: publisher.endpoint, origin: `http://127.0.0.1:${listener.port}` })
