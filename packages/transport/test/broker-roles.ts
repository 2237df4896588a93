/** The promises of the roles behind a broker; run against a real server and against memory. */

import type { Test } from 'tap'
import { EndpointError, ListenError, type MessageTransport } from '../src/index.ts'
import { bytes, Inbox, text } from './inbox.ts'

export interface BrokerWorld {
  /** Roles of a process of its own. */
  process(): MessageTransport
  endpoint(subject: string): string
  down(): Promise<void>
  up(): Promise<void>
  /** Lets this much time pass; a real world waits. */
  pass(ms: number): Promise<void>
  /** Something goes on under a subject that is no message of ours. */
  noise(subject: string, payload: Uint8Array): Promise<void>
}

export function subscribeInto(
  t: Test,
  messages: MessageTransport,
  endpoint: string,
  topic = '',
): Inbox<string> {
  const inbox = new Inbox<string>()
  const subscriber = messages.subscribe(
    { endpoint, topic },
    {
      message: frames => inbox.put(frames.map(frame => label(frame)).join('|')),
      connected: () => inbox.put('connected'),
      disconnected: () => inbox.put('disconnected'),
    },
  )
  t.teardown(() => subscriber.close())
  return inbox
}

/** Large frames by their length and their last byte. */
function label(frame: Uint8Array): string {
  return frame.length > 1000 ? `${frame.length}:${frame.at(-1)}` : text(frame)
}

export function testBrokerRoles(t: Test, startWorld: (t: Test) => Promise<BrokerWorld>): void {
  t.test(
    'what is published arrives in order at those who asked for its topic, large messages whole',
    async t => {
      const world = await startWorld(t)
      const endpoint = world.endpoint('homing.kv.one')
      const all = subscribeInto(t, world.process(), endpoint)
      const some = subscribeInto(t, world.process(), endpoint, 'kv')
      const publisher = await world.process().publish({ endpoint })
      t.equal(publisher.endpoint, endpoint)
      for (const inbox of [all, some]) t.equal(await inbox.next('the publisher'), 'connected')
      const large = new Uint8Array(3 * 2 ** 20 + 5).fill(7)
      for (let i = 0; i < 100; i++) {
        publisher.send([bytes('kv'), bytes(String(i)), new Uint8Array(0)])
        publisher.send([bytes('other'), bytes(String(i))])
        if (i === 50) publisher.send([bytes('kv'), large])
      }
      const expected: string[] = []
      for (let i = 0; i < 100; i++) {
        expected.push(`kv|${i}|`, `other|${i}`)
        if (i === 50) expected.push(`kv|${large.length}:7`)
      }
      const heard: string[] = []
      for (const _ of expected) heard.push(await all.next('a message'))
      t.strictSame(heard, expected)
      const kv: string[] = []
      for (const _ of expected.filter(line => line.startsWith('kv'))) kv.push(await some.next('a message'))
      t.strictSame(
        kv,
        expected.filter(line => line.startsWith('kv')),
      )
      t.equal(publisher.droppedCount, 0)
      publisher.close()
      publisher.close()
      t.equal(await all.next('its last word'), 'disconnected')
    },
  )

  t.test(
    'a question is heard by whoever answers now or later, and answers go to the one who asked',
    async t => {
      const world = await startWorld(t)
      const endpoint = world.endpoint('homing.kv.asked')
      const [first, second] = [new Inbox<string>(), new Inbox<string>()]
      const dealers = [first, second].map(inbox =>
        world.process().dial({ endpoint }, frames => inbox.put(frames.map(label).join('|'))),
      )
      for (const [i, dealer] of dealers.entries())
        t.equal(dealer.send([new Uint8Array(0), bytes(`q${i}`)]), true)
      await world.pass(50)
      const router = await world.process().serve({ endpoint }, (identity, frames) => {
        for (let i = 0; i < 3; i++)
          router.send(identity, [...frames, bytes(String(i)), new Uint8Array(i === 2 ? 2e6 : 1)])
      })
      t.equal(router.endpoint, endpoint)
      for (const [i, inbox] of [first, second].entries()) {
        t.equal(await inbox.next('an answer'), `|q${i}|0|\0`)
        t.equal(await inbox.next('an answer'), `|q${i}|1|\0`)
        t.equal(await inbox.next('an answer'), `|q${i}|2|2000000:0`)
      }
      for (const dealer of dealers) dealer.close()
      t.equal(dealers[0]!.send([bytes('late')]), false)
      router.close()
    },
  )

  t.test(
    'another life of a publisher is another connection, also when the first never said good-bye',
    async t => {
      const world = await startWorld(t)
      const endpoint = world.endpoint('homing.kv.lives')
      const inbox = subscribeInto(t, world.process(), endpoint)
      const first = await world.process().publish({ endpoint })
      t.equal(await inbox.next('the first'), 'connected')
      first.close()
      t.equal(await inbox.next('its end'), 'disconnected')
      const second = await world.process().publish({ endpoint })
      t.equal(await inbox.next('the second'), 'connected')
      second.send([bytes('hello')])
      t.equal(await inbox.next('its message'), 'hello')
    },
  )

  t.test('two publishers of one subject: neither is followed until one is alone', async t => {
    const world = await startWorld(t)
    const endpoint = world.endpoint('homing.kv.two')
    const inbox = subscribeInto(t, world.process(), endpoint)
    const first = await world.process().publish({ endpoint })
    t.equal(await inbox.next('the first'), 'connected')
    const second = await world.process().publish({ endpoint })
    t.equal(await inbox.next('the second'), 'disconnected')
    t.equal(await inbox.next('the second'), 'connected')
    await world.pass(1500)
    t.equal(await inbox.next('both'), 'disconnected')
    first.send([bytes('mine')])
    second.send([bytes('mine, too')])
    await world.pass(1500)
    t.equal(inbox.size, 0, 'nobody is believed')
    first.close()
    t.equal(await inbox.next('the one that is left'), 'connected')
    second.send([bytes('alone')])
    t.equal(await inbox.next('its message'), 'alone')
  })

  t.test(
    'a broker that goes and comes back empty: everybody is told, and what was lost is counted',
    async t => {
      const world = await startWorld(t)
      const endpoint = world.endpoint('homing.kv.outage')
      const inbox = subscribeInto(t, world.process(), endpoint)
      const publisher = await world.process().publish({ endpoint })
      const answers = new Inbox<string>()
      const router = await world
        .process()
        .serve({ endpoint }, (identity, frames) => void router.send(identity, frames))
      t.equal(await inbox.next('the publisher'), 'connected')
      for (let outage = 0; outage < 2; outage++) {
        await world.down()
        t.equal(await inbox.next('the outage'), 'disconnected')
        publisher.send([bytes('lost')])
        const dealer = world.process().dial({ endpoint }, frames => answers.put(text(frames[0])))
        dealer.send([bytes('asked meanwhile')])
        await world.up()
        t.equal(await inbox.next('the broker'), 'connected')
        publisher.send([bytes(`after ${outage}`)])
        t.equal(await inbox.next('a message'), `after ${outage}`)
        t.equal(await answers.next('an answer'), 'asked meanwhile')
        dealer.close()
      }
      t.equal(publisher.droppedCount, 2)
    },
  )

  t.test('what is no message, or of another version, is neither believed nor fatal', async t => {
    const world = await startWorld(t)
    const endpoint = world.endpoint('homing.kv.noise')
    const inbox = subscribeInto(t, world.process(), endpoint)
    const publisher = await world.process().publish({ endpoint })
    t.equal(await inbox.next('the publisher'), 'connected')
    const cut = Uint8Array.from([1, 0, ...new Uint8Array(12), 255, 255, 255, 255, 1])
    for (const payload of [
      new Uint8Array(0),
      bytes('{"json": true}'),
      Uint8Array.from({ length: 40 }, () => 2),
      Uint8Array.from([1, 99, ...new Uint8Array(30)]),
    ]) {
      await world.noise('homing.kv.noise.events', payload)
      await world.noise('homing.kv.noise.ask', payload)
    }
    publisher.send([bytes('still here')])
    t.equal(await inbox.next('a message'), 'still here')
    // A stranger that speaks the protocol is another life; what it says is no message.
    await world.noise('homing.kv.noise.events', cut)
    t.equal(await inbox.next('doubt'), 'disconnected')
  })

  t.test('an endpoint that cannot be used is refused with its reason', async t => {
    const world = await startWorld(t)
    const messages = world.process()
    const handler = { message() {}, connected() {}, disconnected() {} }
    for (const [endpoint, reason] of [
      ['nats://127.0.0.1:4222', /'nats:\/\/host:port\/subject' is expected/],
      ['nats://127.0.0.1:4222/a b', /the subject "a b"/],
      ['nats://127.0.0.1:4222/a.*', /the subject/],
      ['nats://127.0.0.1:4222/', /the subject ""/],
      ['nats://127.0.0.1:99999/a', /ports are 1 to 65535/],
      ['nats:///a', /is not 'host:port'/],
      ['nats://me:secret@127.0.0.1/a', /--nats-credentials-file/],
    ] as const) {
      const error = await Promise.resolve()
        .then(() => messages.subscribe({ endpoint, topic: '' }, handler))
        .catch((thrown: unknown) => thrown)
      t.ok(error instanceof EndpointError, endpoint)
      t.match((error as Error).message, reason)
      t.notMatch((error as Error).message, /secret/)
    }
    const endpoint = world.endpoint('homing.kv.taken')
    await messages.publish({ endpoint })
    await t.rejects(messages.publish({ endpoint }), ListenError)
  })
}
