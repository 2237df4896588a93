/** A thread may end at any time, whatever it holds open: the process lives on, and its peers notice. */

import { Worker } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import t from 'tap'
import { systemTransport } from '../src/index.ts'
import { bounded, Inbox } from './inbox.ts'

const FIXTURE = new URL('./busy-thread.ts', import.meta.url)

t.test('threads with open sockets are terminated, exit and crash without harm', async t => {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  for (const ending of ['terminate', 'exit', 'throw']) {
    const worker = new Worker(FIXTURE)
    const ended = new Promise(resolve => worker.once('exit', resolve))
    worker.on('error', error => t.match(error, { message: 'a crash' }))
    const started = await bounded(
      new Promise<{ readonly endpoint: string; readonly origin: string }>(resolve =>
        worker.once('message', resolve),
      ),
      'the thread to start',
    )
    const news = new Inbox<string>()
    const subscriber = transport.messages.subscribe(
      { endpoint: started.endpoint, topic: '' },
      {
        message: () => news.put('message'),
        connected: () => news.put('connected'),
        disconnected: () => news.put('disconnected'),
      },
    )
    const stream = new Inbox<string>()
    transport.http.call(
      { origin: started.origin, method: 'GET', path: '/' },
      {
        head() {},
        data: () => stream.put('data'),
        end: () => stream.put('end'),
        failed: e => stream.put(e.failure),
      },
    )
    t.equal(await news.next('the connection'), 'connected')
    t.equal(await news.next('a message'), 'message')
    t.equal(await stream.next('a byte'), 'data')
    if (ending === 'terminate') await bounded(worker.terminate(), 'the termination')
    else worker.postMessage(ending)
    await bounded(ended, 'the thread to end')
    let last = await news.next('the disconnection')
    while (last === 'message') last = await news.next('the disconnection')
    t.equal(last, 'disconnected', ending)
    let failure = await stream.next('the failure')
    while (failure === 'data') failure = await stream.next('the failure')
    t.equal(failure, 'reset', ending)
    subscriber.close()
  }
})
