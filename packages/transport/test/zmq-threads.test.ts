/** Threads that use ZeroMQ may end at any time, and the process, the host and the ports survive it. */

import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import t from 'tap'
import { freePorts } from '../src/free-ports.ts'
import { hostedClientCount, installZmqHost } from '../src/zmq/host.ts'
import { zmqSocketCount } from '../src/zmq/library.ts'
import { zmqMessages } from '../src/zmq/messages.ts'
import { bounded, Inbox, until } from './inbox.ts'

const KILLS = 20
const FIXTURE = new URL('./event-thread.ts', import.meta.url)
const environment = { clock: systemClock, log: { warn() {} } }

installZmqHost()

t.test(`a thread that is killed ${KILLS} times under load takes its sockets along, and no more`, async t => {
  const messages = zmqMessages(environment)
  t.teardown(() => messages.close())
  const events = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const replay = await messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, identity => {
    for (let i = 0; i < 500; i++) replay.send(identity, [new Uint8Array(3), new Uint8Array(1000)])
    replay.send(identity, [new Uint8Array(0)])
  })
  // The ports that every life of the thread will bind; no dialling socket is given one of them between two.
  const own = (await freePorts(2)).map(port => `tcp://127.0.0.1:${port}`)
  const traffic = setInterval(() => {
    for (let i = 0; i < 10; i++) events.send([new Uint8Array(3), new Uint8Array(1000)])
  }, 1)
  t.teardown(() => clearInterval(traffic))
  await until(() => zmqSocketCount() === 2, 'the first sockets to go')

  let received = 0
  for (let life = 0; life < KILLS; life++) {
    const worker = new Worker(FIXTURE, {
      workerData: { events: events.endpoint, replay: replay.endpoint, own },
    })
    t.teardown(() => worker.terminate())
    const ended = new Promise(resolve => worker.once('exit', resolve))
    const failures: string[] = []
    worker.on('error', (error: Error) => failures.push(error.message))
    const news = new Inbox<number>()
    worker.on('message', news.put)
    received += await news.next(`messages in life ${life}`)
    const peer = new Inbox<string>()
    const subscriber = messages.subscribe(
      { endpoint: own[0]!, topic: '' },
      { message() {}, connected: () => peer.put('connected'), disconnected: () => peer.put('disconnected') },
    )
    t.equal(await peer.next('the connection to the thread'), 'connected')
    t.equal(hostedClientCount(), 1)
    const ending = ['terminate', 'exit', 'throw'][life % 3]!
    if (ending === 'terminate') await bounded(worker.terminate(), 'the termination')
    else worker.postMessage(ending)
    await bounded(ended, 'the thread to end')
    t.strictSame(failures, ending === 'throw' ? ['a crash'] : [])
    t.equal(await peer.next('the news that the thread has gone'), 'disconnected')
    subscriber.close()
    // Every other successor starts while the sockets are still on their way out.
    if (life % 2 === 0) await until(() => zmqSocketCount() === 2, 'its sockets to go')
  }
  t.ok(received >= KILLS * 300)
  await until(() => zmqSocketCount() === 2 && hostedClientCount() === 0, 'all sockets of the threads to go')
})

t.test('a thread that closes its sockets ends by itself', async t => {
  const worker = new Worker(new URL('./closing-thread.ts', import.meta.url))
  t.teardown(() => worker.terminate())
  const code = await bounded(new Promise(resolve => worker.once('exit', resolve)), 'the thread to end')
  t.equal(code, 0)
  await until(() => hostedClientCount() === 0 && zmqSocketCount() === 0, 'its sockets to go')
})

t.test('a thread that does not read is waited for, and loses nothing', async t => {
  const messages = zmqMessages(environment)
  t.teardown(() => messages.close())
  const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const flag = new Int32Array(new SharedArrayBuffer(4))
  const worker = new Worker(new URL('./sleepy-thread.ts', import.meta.url), {
    workerData: { endpoint: publisher.endpoint, flag, total: 4000 },
  })
  t.teardown(() => worker.terminate())
  const news = new Inbox<string>()
  worker.on('message', news.put)
  worker.on('error', error => news.put(error.message))
  t.equal(await news.next('the connection'), 'connected')
  const send = (number: number, size: number): void => {
    const frame = new Uint8Array(size)
    new DataView(frame.buffer).setUint32(0, number)
    publisher.send([frame])
  }
  // A PUB cannot know when a subscription has arrived: when something is heard.
  const warming = setInterval(() => send(0, 4), 1)
  t.teardown(() => clearInterval(warming))
  t.equal(await news.next('the first message to be heard'), 'hears')
  // 400 MB, more than may be under way to a thread.
  for (let number = 1; number <= 4000; number++) send(number, 100_000)
  t.equal(await news.next('the thread to fall asleep'), 'asleep')
  const before = process.memoryUsage().arrayBuffers
  for (let turn = 0; turn < 200; turn++) await setImmediate()
  t.ok(process.memoryUsage().arrayBuffers - before < 256 * 2 ** 20)
  Atomics.store(flag, 0, 1)
  Atomics.notify(flag, 0)
  t.equal(await news.next('the rest'), 'all')
  t.equal(publisher.droppedCount, 0)
})

t.test('without a host a thread is told so', async t => {
  const listeners = process.listeners('workerMessage')
  process.removeAllListeners('workerMessage')
  t.teardown(() => {
    for (const listener of listeners) process.on('workerMessage', listener)
  })
  const worker = new Worker(new URL('./closing-thread.ts', import.meta.url))
  const error = await bounded(new Promise(resolve => worker.once('error', resolve)), 'the error')
  t.match(error, {
    message:
      /^cannot listen on tcp:.*: HOMING_TRANSPORT_NO_HOST, cannot open ZeroMQ sockets for thread \d+: the main thread has not loaded/,
  })
})
