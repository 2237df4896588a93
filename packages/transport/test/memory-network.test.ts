/** Features of the network in memory alone: simulated time, faults, and equal histories. */

import { SimulatedClock, seededRandom } from '@homing/base'
import t from 'tap'
import { MemoryNetwork } from '../src/index.ts'
import { bytes, callInto, Inbox, text } from './inbox.ts'

/** Lets everything happen that waits for no clock. */
function settle(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

t.test('latency is simulated time', async t => {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock, latencyMs: 10 })
  const listener = await network
    .transport()
    .http.listen({ host: 'engine', port: 80 }, exchange => exchange.end())
  t.equal(listener.port, 80)
  const { inbox } = callInto(network.transport(), { origin: 'http://engine:80', method: 'GET', path: '/' })
  clock.advance(19)
  await settle()
  t.equal(inbox.size, 0)
  clock.advance(1)
  t.match(await inbox.next('the head'), { type: 'head' })
  t.match(await inbox.next('the end'), { type: 'end' })
})

t.test('messages are dropped, delayed and kept in order as the faults say', async t => {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const publisher = await network.transport().messages.publish({ endpoint: 'tcp://*:5557' })
  const inbox = new Inbox<string>()
  network.transport().messages.subscribe(
    { endpoint: 'tcp://engine:5557', topic: '' },
    {
      message: ([frame]) => inbox.put(text(frame)),
      connected: () => inbox.put('connected'),
      disconnected() {},
    },
  )
  t.equal(await inbox.next('the connection'), 'connected')
  network.faults.message = (endpoint, [frame]) => {
    t.equal(endpoint, 'tcp://0.0.0.0:5557')
    const message = text(frame)
    return message === 'b' ? 'drop' : message === 'c' ? { delayMs: 50 } : 'deliver'
  }
  for (const message of ['a', 'b', 'c', 'd']) publisher.send([bytes(message)])
  t.equal(await inbox.next('a message'), 'a')
  await settle()
  clock.advance(49)
  t.equal(inbox.size, 0, 'what is behind a delayed message waits')
  clock.advance(1)
  t.equal(await inbox.next('a message'), 'c')
  t.equal(await inbox.next('a message'), 'd')
})

for (const [refused, lost] of [
  [2, 'all but its first part'],
  [3, 'its last part'],
] as const)
  t.test(`an answer that lost ${lost} is no part of the next one`, async t => {
    const network = new MemoryNetwork({ clock: new SimulatedClock() })
    const endpoint = 'nats://broker:4222/homing.kv.one'
    let parts = 0
    network.faults.message = (subject, [payload]) =>
      /INBOX/.test(subject) && payload!.length > 1000 && ++parts === refused ? 'refuse' : 'deliver'
    const answering = network.transport()
    const sent: boolean[] = []
    const router = await answering.messages.serve({ endpoint }, (identity, [question]) => {
      sent.push(router.send(identity, [question!, new Uint8Array(2.5 * 2 ** 20).fill(sent.length)]))
    })
    const inbox = new Inbox<string>()
    const dealer = network
      .transport()
      .messages.dial({ endpoint }, ([question, large]) =>
        inbox.put(`${text(question)} ${large?.length}:${large?.[0]}:${large?.at(-1)}`),
      )
    dealer.send([bytes('first')])
    dealer.send([bytes('second')])
    t.equal(await inbox.next('the second answer'), `second ${2.5 * 2 ** 20}:1:1`)
    t.strictSame(sent, [false, true])
    t.match(answering.brokers(), [['broker:4222', { lostMessages: 1 }]])
  })

t.test('a disconnection loses what is under way and lasts until the reconnection', async t => {
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const publisher = await network.transport().messages.publish({ endpoint: 'tcp://127.0.0.1:5557' })
  const inbox = new Inbox<string>()
  network.transport().messages.subscribe(
    { endpoint: 'tcp://localhost:5557', topic: '' },
    {
      message: ([frame]) => inbox.put(text(frame)),
      connected: () => inbox.put('connected'),
      disconnected: () => inbox.put('disconnected'),
    },
  )
  t.equal(await inbox.next('the connection'), 'connected')
  publisher.send([bytes('lost')])
  network.disconnect(publisher.endpoint)
  publisher.send([bytes('lost, too')])
  t.equal(await inbox.next('the disconnection'), 'disconnected')
  await settle()
  t.equal(inbox.size, 0)
  network.reconnect(publisher.endpoint)
  t.equal(await inbox.next('the connection'), 'connected')
  publisher.send([bytes('found')])
  t.equal(await inbox.next('a message'), 'found')
})

t.test('a socket that closes while a connection to it is made is not connected to', async t => {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock, latencyMs: 1 })
  const publish = () => network.transport().messages.publish({ endpoint: 'tcp://engine:5557' })
  const first = await publish()
  const inbox = new Inbox<string>()
  network.transport().messages.subscribe(
    { endpoint: first.endpoint, topic: '' },
    {
      message: ([frame]) => inbox.put(text(frame)),
      connected: () => inbox.put('connected'),
      disconnected: () => inbox.put('disconnected'),
    },
  )
  first.close()
  const second = await publish()
  clock.advance(1)
  second.send([bytes('found')])
  clock.advance(1)
  t.equal(await inbox.next('the connection'), 'connected')
  t.equal(await inbox.next('a message'), 'found')
  t.equal(inbox.size, 0)
})

t.test('requests are refused, lost on idle connections and cut as the faults say', async t => {
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const gone = new Inbox<string>()
  await network.transport().http.listen({ host: '0.0.0.0', port: 8000 }, exchange => {
    exchange.writeHead(200, {})
    exchange.onClientGone(() => gone.put('gone'))
  })
  const transport = network.transport()
  const request = { origin: 'http://engine:8000', method: 'GET', path: '/' }
  network.faults.http = () => 'refuse'
  t.match(await callInto(transport, request).inbox.next('the refusal'), {
    type: 'failed',
    info: { wroteRequest: false },
  })
  network.faults.http = () => 'stale'
  t.match(await callInto(transport, request).inbox.next('the loss'), {
    type: 'failed',
    info: { wroteRequest: true, reusedConnection: true },
  })
  network.faults.http = undefined
  const { inbox } = callInto(transport, request)
  t.match(await inbox.next('the head'), { type: 'head' })
  network.disconnect('http://engine:8000')
  t.match(await inbox.next('the cut'), {
    type: 'failed',
    info: { wroteRequest: true, reusedConnection: false },
  })
  t.equal(await gone.next('the news'), 'gone')
  t.match(await callInto(transport, request).inbox.next('the refusal'), {
    type: 'failed',
    info: { wroteRequest: false },
  })
  network.reconnect('http://engine:8000')
  t.match(await callInto(transport, request).inbox.next('the head'), { type: 'head' })
})

t.test('equal seeds give equal histories', async t => {
  const history = async (seed: number): Promise<string[]> => {
    const clock = new SimulatedClock()
    const random = seededRandom(seed)
    const network = new MemoryNetwork({ clock, latencyMs: 1 })
    network.faults.message = () => (random.next() < 0.2 ? 'drop' : { delayMs: random.below(20) })
    const events: string[] = []
    const publishers = await Promise.all(
      [1, 2].map(port => network.transport().messages.publish({ endpoint: `tcp://*:${port}` })),
    )
    for (const { endpoint } of publishers) {
      for (const name of ['x', 'y']) {
        const note = (what: string): void => void events.push(`${clock.nowMs()} ${name} ${endpoint} ${what}`)
        network.transport().messages.subscribe(
          { endpoint, topic: '' },
          {
            message: ([frame]) => note(text(frame)),
            connected: () => note('up'),
            disconnected: () => note('down'),
          },
        )
      }
    }
    for (let step = 0; step < 50; step++) {
      for (const publisher of publishers) publisher.send([bytes(String(step))])
      clock.advance(random.below(5))
      await settle()
    }
    clock.advance(100)
    return events
  }
  const first = await history(7)
  t.ok(first.length > 100)
  t.strictSame(await history(7), first)
  t.notSame(await history(8), first)
})

t.test('a callback that throws reaches the thread, and the network goes on', async t => {
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const publisher = await network.transport().messages.publish({ endpoint: 'tcp://*:1' })
  const inbox = new Inbox<string>()
  network.transport().messages.subscribe(
    { endpoint: 'tcp://h:1', topic: '' },
    {
      message([frame]) {
        inbox.put(text(frame))
        if (text(frame) === 'bad') throw new Error('a bug of the owner')
      },
      connected: () => inbox.put('connected'),
      disconnected() {},
    },
  )
  await inbox.next('the connection')
  const uncaught = new Inbox<unknown>()
  const listeners = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', uncaught.put)
  publisher.send([bytes('bad')])
  publisher.send([bytes('good')])
  t.equal(await inbox.next('a message'), 'bad')
  t.equal(await inbox.next('a message'), 'good')
  t.match(await uncaught.next('the error'), { message: 'a bug of the owner' })
  process.removeAllListeners('uncaughtException')
  for (const listener of listeners) process.on('uncaughtException', listener)
})
