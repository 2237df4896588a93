/** The promises of every transport for messages: publishers and subscribers, dealers and a router. */

import type { Test } from 'tap'
import { EndpointError, type Frames, ListenError, type Transport } from '../src/index.ts'
import { bytes, HOST, Inbox, text, unusedPort } from './inbox.ts'

/** `createTransport` gives transports that can reach each other. */
export function testMessages(t: Test, createTransport: (t: Test) => Transport): void {
  t.test('what is published arrives in order, at those who asked for its topic', async t => {
    const publisher = await createTransport(t).messages.publish({ endpoint: `tcp://${HOST}:0` })
    t.match(publisher.endpoint, /^tcp:\/\/127\.0\.0\.1:\d+$/)
    const transport = createTransport(t)
    const all = subscribe(t, transport, publisher.endpoint)
    const some = subscribe(t, transport, publisher.endpoint, 'kv')
    for (const { inbox } of [all, some]) {
      t.equal(await inbox.next('the connection'), 'connected')
      t.equal(await publishUntilHeard(() => publisher.send([bytes('kv-warm')]), inbox), 'kv-warm')
    }
    for (let i = 0; i < 1000; i++) {
      publisher.send([bytes('kv'), bytes(String(i)), new Uint8Array(0), bytes('x'.repeat(i * 7))])
      publisher.send([bytes('other'), bytes(String(i))])
    }
    const heard = async (inbox: Inbox<string>): Promise<string> => {
      let message = await inbox.next('a message')
      while (message === 'kv-warm') message = await inbox.next('a message')
      return message
    }
    let mismatches = 0
    for (let i = 0; i < 1000; i++) {
      const kv = `kv|${i}||${'x'.repeat(i * 7)}`
      if ((await heard(all.inbox)) !== kv || (await heard(all.inbox)) !== `other|${i}`) mismatches++
      if ((await heard(some.inbox)) !== kv) mismatches++
    }
    t.equal(mismatches, 0)
    t.equal(some.inbox.size, 0)
    t.equal(publisher.droppedCount, 0)
    publisher.close()
    publisher.close()
    t.equal(await all.inbox.next('the disconnection'), 'disconnected')
    publisher.send([bytes('kv')])
    all.subscriber.close()
    all.subscriber.close()
  })

  t.test('a subscriber may come first, and finds a publisher that comes back', async t => {
    const publishing = createTransport(t)
    const first = await publishing.messages.publish({ endpoint: `tcp://${HOST}:0` })
    const { endpoint } = first
    first.close()
    const { inbox } = subscribe(t, createTransport(t), endpoint)
    for (let life = 0; life < 2; life++) {
      const publisher = await publishing.messages.publish({ endpoint })
      t.equal(await inbox.next('the connection'), 'connected')
      t.equal(await publishUntilHeard(() => publisher.send([bytes(`life ${life}`)]), inbox), `life ${life}`)
      publisher.close()
      let news = await inbox.next('the disconnection')
      while (news === `life ${life}`) news = await inbox.next('the disconnection')
      t.equal(news, 'disconnected')
    }
  })

  t.test('what a publisher says last arrives, though it closes at once', async t => {
    const publisher = await createTransport(t).messages.publish({ endpoint: `tcp://${HOST}:0` })
    const { inbox } = subscribe(t, createTransport(t), publisher.endpoint)
    t.equal(await inbox.next('the connection'), 'connected')
    t.equal(await publishUntilHeard(() => publisher.send([bytes('warm')]), inbox), 'warm')
    for (let i = 0; i < 100; i++) publisher.send([bytes(`last ${i}`), new Uint8Array(1000)])
    publisher.close()
    let heard = 0
    for (;;) {
      const news = await inbox.next('the disconnection')
      if (news === 'disconnected') break
      if (news.startsWith(`last ${heard}|`)) heard++
    }
    t.equal(heard, 100)
  })

  t.test('an endpoint that is bound, or none, is an error', async t => {
    const { messages } = createTransport(t)
    const { endpoint } = await messages.publish({ endpoint: 'tcp://*:0' })
    t.match(endpoint, /^tcp:\/\/0\.0\.0\.0:\d+$/)
    await t.rejects(messages.publish({ endpoint }), ListenError)
    await t.rejects(
      messages.serve({ endpoint }, () => {}),
      ListenError,
    )
    const handler = { message() {}, connected() {}, disconnected() {} }
    for (const bad of [
      '',
      'tcp://',
      'tcp://host',
      'http://h:1',
      'tcp://h:70000',
      'inproc://x',
      'ipc://',
      'tcp://*:5',
      'tcp://h:0',
    ]) {
      t.throws(() => messages.subscribe({ endpoint: bad, topic: '' }, handler), EndpointError, bad)
      t.throws(() => messages.dial({ endpoint: bad }, () => {}), { code: 'HOMING_TRANSPORT_ENDPOINT' })
    }
    await t.rejects(messages.publish({ endpoint: 'tcp://' }), EndpointError)
  })

  t.test('dealers and a router talk both ways, each dealer by its own name', async t => {
    const questions = new Inbox<{ readonly identity: Uint8Array; readonly frames: Frames }>()
    const router = await createTransport(t).messages.serve(
      { endpoint: `tcp://${HOST}:0` },
      (identity, frames) => questions.put({ identity, frames }),
    )
    const transport = createTransport(t)
    const answers = [new Inbox<Frames>(), new Inbox<Frames>()]
    const dealers = answers.map(inbox => transport.messages.dial({ endpoint: router.endpoint }, inbox.put))
    for (const [i, dealer] of dealers.entries()) {
      t.equal(dealer.send([new Uint8Array(0), bytes(`q${i}`)]), true)
    }
    for (let i = 0; i < 2; i++) {
      const { identity, frames } = await questions.next('a question')
      t.equal(frames[0]!.length, 0)
      const question = text(frames[1])
      for (let part = 0; part < 3; part++) {
        t.equal(router.send(identity, [bytes(`${question} answer ${part}`), new Uint8Array(100_000)]), true)
      }
    }
    for (const [i, inbox] of answers.entries()) {
      for (let part = 0; part < 3; part++) {
        const frames = await inbox.next('an answer')
        t.equal(text(frames[0]), `q${i} answer ${part}`)
        t.equal(frames[1]!.length, 100_000)
      }
    }
    t.equal(router.send(bytes('nobody'), [bytes('x')]), false)
    dealers[0]!.close()
    dealers[0]!.close()
    t.equal(dealers[0]!.send([bytes('late')]), false)
    router.close()
    router.close()
    t.equal(answers[0]!.size, 0)
  })

  t.test('a dealer keeps what it is told until there is a connection, up to a bound', async t => {
    const serving = createTransport(t)
    const endpoint = `tcp://${HOST}:${await unusedPort()}`
    const dealer = createTransport(t).messages.dial({ endpoint }, () => {})
    let kept = 0
    while (dealer.send([bytes(String(kept))]) && kept < 100_000) kept++
    t.equal(kept, 1000)
    const heard = new Inbox<string>()
    await serving.messages.serve({ endpoint }, (_, frames) => heard.put(text(frames[0])))
    for (let i = 0; i < kept; i++) {
      if ((await heard.next('a kept message')) !== String(i)) t.fail(`message ${i} is out of order`)
    }
    t.equal(dealer.send([]), false)
  })
}

/** A subscriber whose doings arrive in an inbox. */
export function subscribe(t: Test, transport: Transport, endpoint: string, topic = '') {
  const inbox = new Inbox<string>()
  const subscriber = transport.messages.subscribe(
    { endpoint, topic },
    {
      message: frames => inbox.put(frames.map(text).join('|')),
      connected: () => inbox.put('connected'),
      disconnected: () => inbox.put('disconnected'),
    },
  )
  t.teardown(() => subscriber.close())
  return { inbox, subscriber }
}

/** Publishes until the subscriber has something: a PUB cannot know when a subscription has arrived. */
async function publishUntilHeard(send: () => void, inbox: Inbox<string>): Promise<string> {
  const timer = setInterval(send, 5)
  try {
    send()
    return await inbox.next('a message')
  } finally {
    clearInterval(timer)
  }
}
