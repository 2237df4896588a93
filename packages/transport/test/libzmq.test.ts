/** Our roles against bare sockets of libzmq, opened as engines open theirs. */

import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { systemClock } from '@homing/base'
import t from 'tap'
import * as zmq from 'zeromq'
import { type Frames, systemTransport } from '../src/index.ts'
import { bounded, bytes, Inbox, text } from './inbox.ts'

const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
t.teardown(() => transport.close())

const SIZES = [0, 1, 255, 256, 65_535, 65_536, 3_000_000]

t.test('a libzmq publisher is heard: prefixes, sizes, many messages, a new life', async t => {
  const open = async (endpoint: string) => {
    const publisher = new zmq.Publisher({ linger: 0, sendHighWaterMark: 0 })
    await publisher.bind(endpoint)
    return publisher
  }
  let publisher = await open('tcp://127.0.0.1:0')
  const endpoint = publisher.lastEndpoint!
  const inbox = new Inbox<Frames>()
  const connections = new Inbox<string>()
  const subscriber = transport.messages.subscribe(
    { endpoint, topic: 'kv' },
    {
      message: inbox.put,
      connected: () => connections.put('connected'),
      disconnected: () => connections.put('disconnected'),
    },
  )
  for (let life = 0; life < 2; life++) {
    t.equal(await connections.next('the connection'), 'connected')
    const timer = setInterval(() => void publisher.send(['kv', 'warm']), 5)
    await inbox.next('the first message')
    clearInterval(timer)
    await publisher.send(['other', 'unwanted'])
    for (const size of SIZES) await publisher.send(['kv-events', 'sized', new Uint8Array(size).fill(size)])
    for (let i = 0; i < 2000; i++) await publisher.send(['kv', String(i), new Uint8Array(i)])
    let frames = await inbox.next('a message')
    while (text(frames[1]) === 'warm') frames = await inbox.next('a message')
    for (const size of SIZES) {
      t.strictSame(frames.slice(0, 2).map(text), ['kv-events', 'sized'])
      t.strictSame(Buffer.compare(frames[2]!, new Uint8Array(size).fill(size)), 0, `${size} bytes`)
      frames = await inbox.next('a message')
    }
    let mismatches = 0
    for (let i = 0; i < 2000; i++) {
      if (text(frames[1]) !== String(i) || frames[2]!.length !== i) mismatches++
      if (i < 1999) frames = await inbox.next('a message')
    }
    t.equal(mismatches, 0)
    publisher.close()
    t.equal(await connections.next('the disconnection'), 'disconnected')
    if (life === 0) publisher = await open(endpoint)
  }
  subscriber.close()
})

t.test('a libzmq subscriber hears us, and only what it asks for', async t => {
  const publisher = await transport.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const subscriber = new zmq.Subscriber({ linger: 0, receiveHighWaterMark: 0 })
  subscriber.subscribe('kv', 'zz')
  subscriber.connect(publisher.endpoint)
  const receive = () => bounded(subscriber.receive(), 'a message')
  const timer = setInterval(() => publisher.send([bytes('zz')]), 5)
  await receive()
  clearInterval(timer)
  subscriber.unsubscribe('zz')
  // The end of a subscription has arrived when its topic is silent while another is heard.
  let sequence = 0
  let heardOther = true
  while (heardOther) {
    heardOther = false
    publisher.send([bytes('zz')])
    publisher.send([bytes('kv'), bytes(String(++sequence))])
    for (let frames = await receive(); frames[1]?.toString() !== String(sequence); frames = await receive()) {
      if (frames[0]!.toString() === 'zz') heardOther = true
    }
  }
  for (const size of SIZES) publisher.send([bytes('kv'), new Uint8Array(size).fill(size)])
  for (const size of SIZES) {
    const frames = await receive()
    t.equal(Buffer.compare(frames[1]!, new Uint8Array(size).fill(size)), 0, `${size} bytes`)
  }
  subscriber.close()
  publisher.close()
})

t.test('a libzmq router answers our dealer, as the replay of an engine does', async t => {
  const router = new zmq.Router({ linger: 0, sendHighWaterMark: 0 })
  await router.bind('tcp://127.0.0.1:0')
  const answers = new Inbox<Frames>()
  const dealer = transport.messages.dial({ endpoint: router.lastEndpoint! }, answers.put)
  dealer.send([new Uint8Array(0), bytes('from 0')])
  const [identity, delimiter, question] = await bounded(router.receive(), 'the question')
  t.equal(delimiter!.length, 0)
  t.equal(question!.toString(), 'from 0')
  for (let i = 0; i < 5000; i++) await router.send([identity!, '', 'topic', String(i), new Uint8Array(1000)])
  let mismatches = 0
  for (let i = 0; i < 5000; i++) {
    const frames = await answers.next('an answer')
    if (frames.length !== 4 || text(frames[2]) !== String(i)) mismatches++
  }
  t.equal(mismatches, 0)
  dealer.close()
  router.close()
})

t.test('libzmq dealers and requesters are answered by our router', async t => {
  const router = await transport.messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, (identity, frames) => {
    router.send(identity, [
      ...frames.slice(0, 1),
      bytes(`${text(identity.subarray(0, 4))} asked ${text(frames[1])}`),
    ])
  })
  const dealer = new zmq.Dealer({ linger: 0, routingId: 'Dora' })
  dealer.connect(router.endpoint)
  await dealer.send(['', 'one'])
  t.strictSame((await bounded(dealer.receive(), 'the answer')).map(String), ['', 'Dora asked one'])
  const requester = new zmq.Request({ linger: 0, routingId: 'Rita' })
  requester.connect(router.endpoint)
  await requester.send('two')
  t.strictSame((await bounded(requester.receive(), 'the answer')).map(String), ['Rita asked two'])
  dealer.close()
  requester.close()
  router.close()
})

t.test('a subscriber that does not read does not hold up the others', async t => {
  const publisher = await transport.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const stuck = new zmq.Subscriber({ linger: 0, receiveHighWaterMark: 1 })
  t.teardown(() => stuck.close())
  stuck.subscribe('')
  stuck.connect(publisher.endpoint)
  const early = setInterval(() => publisher.send([bytes('warm')]), 5)
  await bounded(stuck.receive(), 'the first message')
  clearInterval(early)
  let heardCount = 0
  let misplacedCount = 0
  const warm = new Inbox<string>()
  transport.messages.subscribe(
    { endpoint: publisher.endpoint, topic: '' },
    {
      message([frame]) {
        if (frame!.length < 8) warm.put('warm')
        else if (new DataView(frame!.buffer, frame!.byteOffset).getUint32(4) !== heardCount++)
          misplacedCount++
      },
      connected() {},
      disconnected() {},
    },
  )
  const timer = setInterval(() => publisher.send([bytes('warm')]), 5)
  await warm.next('the first message')
  clearInterval(timer)
  let sentCount = 0
  // 60 MB, more than the kernel takes for the one that does not read.
  while (sentCount < 60_000) {
    for (let i = 0; i < 1000; i++) {
      const frame = new Uint8Array(1000)
      new DataView(frame.buffer).setUint32(4, sentCount++)
      publisher.send([frame])
    }
    await setImmediate()
  }
  await bounded(
    (async () => {
      while (heardCount < sentCount) await setImmediate()
    })(),
    'the reader',
  )
  t.equal(misplacedCount, 0)
  publisher.close()
})

t.test('IPv6 and paths are endpoints, too', async t => {
  for (const endpoint of [
    'tcp://[::1]:0',
    'tcp://localhost:0',
    `ipc://${join(tmpdir(), `homing-${process.pid}`)}`,
  ]) {
    const router = await transport.messages.serve({ endpoint }, (identity, frames) => {
      router.send(identity, frames)
    })
    const answers = new Inbox<Frames>()
    const dealer = transport.messages.dial({ endpoint: router.endpoint }, answers.put)
    dealer.send([bytes('x')])
    t.equal(text((await answers.next('the answer'))[0]), 'x', endpoint)
    dealer.close()
    router.close()
  }
})

t.test('a peer that has gone is not sent to', async t => {
  const identities = new Inbox<Uint8Array>()
  const router = await transport.messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, identities.put)
  const dealer = new zmq.Dealer({ linger: 1000 })
  dealer.connect(router.endpoint)
  await dealer.send('x')
  const identity = await identities.next('the peer')
  t.equal(router.send(identity, [bytes('y')]), true)
  dealer.close()
  await bounded(
    (async () => {
      while (router.send(identity, [bytes('y')])) await setImmediate()
    })(),
    'the refusal',
  )
  router.close()
})

t.test('the wrong kind of peer is cut off and named in the log', async t => {
  const warnings = new Inbox<Readonly<Record<string, unknown>>>()
  const watched = systemTransport({ clock: systemClock, log: { warn: fields => warnings.put(fields) } })
  t.teardown(() => watched.close())
  const router = new zmq.Router({ linger: 0 })
  t.teardown(() => router.close())
  await router.bind('tcp://127.0.0.1:0')
  const handler = { message() {}, connected: () => t.fail('connected'), disconnected() {} }
  watched.messages.subscribe({ endpoint: router.lastEndpoint!, topic: '' }, handler)
  t.match(await warnings.next('the warning'), {
    endpoint: router.lastEndpoint,
    reason: 'the peer is not a ZeroMQ socket that can answer',
  })
  const listener = await watched.http.listen({ host: '127.0.0.1', port: 0 }, exchange => exchange.end())
  watched.messages.subscribe({ endpoint: `tcp://127.0.0.1:${listener.port}`, topic: '' }, handler)
  let warning = await warnings.next('the warning')
  while (warning['endpoint'] === router.lastEndpoint) warning = await warnings.next('the warning')
  t.match(warning, {
    endpoint: `tcp://127.0.0.1:${listener.port}`,
    reason: /reset|protocol|not a ZeroMQ socket/i,
  })
})
