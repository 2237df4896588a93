/**
 * The roles behind a broker: on a network in memory, on a real NATS server, and on the server from another
 * thread.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { SimulatedClock, systemClock } from '@homing/base'
import { connect } from 'nats'
import t, { type Test } from 'tap'
import { MemoryNetwork } from '../src/index.ts'
import { brokerMessages } from '../src/nats/messages.ts'
import { systemBrokers } from '../src/nats/system-broker.ts'
import { NatsServer, NO_NATS_SERVER } from '../src/testing.ts'
import { hostedMessages } from '../src/zmq/client.ts'
import { hostClient } from '../src/zmq/host.ts'
import { type BrokerWorld, subscribeInto, testBrokerRoles } from './broker-roles.ts'
import { bytes, Inbox } from './inbox.ts'

const SERVER = '127.0.0.1:4222'
/** More than the buffers of the system and what the broker holds back for one subscriber. */
const FLOOD_BYTES = 60_000_000
const environment = { clock: systemClock, log: { warn() {} } }

t.test('in memory', async t => {
  testBrokerRoles(t, async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock, latencyMs: 1 })
    const timer = setInterval(() => clock.advance(5), 1)
    t.teardown(() => clearInterval(timer))
    return {
      process: () => {
        const transport = network.transport()
        t.teardown(() => transport.close())
        return transport.messages
      },
      endpoint: subject => `nats://${SERVER}/${subject}`,
      down: async () => network.disconnect(`nats://${SERVER}/any`),
      up: async () => network.reconnect(`nats://${SERVER}/any`),
      pass: async ms => {
        const untilMs = clock.nowMs() + ms
        while (clock.nowMs() < untilMs) await delay(1)
      },
      noise: async (subject, payload) => network.sayAtBroker(SERVER, subject, payload),
    }
  })
})

t.test('on a NATS server', { skip: NO_NATS_SERVER }, async t => {
  testBrokerRoles(t, t =>
    realWorld(t, () => brokerMessages({ ...environment, openBroker: systemBrokers(systemClock) })),
  )

  t.test(
    'a broker that hangs makes its publishers silent, so they are not followed; with their first word they are again',
    async t => {
      const world = await realWorld(t, () =>
        brokerMessages({ ...environment, openBroker: systemBrokers(systemClock) }),
      )
      const endpoint = world.endpoint('homing.kv.frozen')
      const inbox = subscribeInto(t, world.process(), endpoint)
      const publisher = await world.process().publish({ endpoint })
      t.equal(await inbox.next('the publisher'), 'connected')
      world.server.freeze()
      t.equal(await inbox.next('silence'), 'disconnected')
      world.server.resume()
      t.equal(await inbox.next('its word'), 'connected')
      publisher.close()
    },
  )

  t.test('a small max_payload: messages go in parts', async t => {
    const server = await NatsServer.start({ configuration: ['max_payload: 1024'] })
    t.teardown(() => server.stop())
    const messages = brokerMessages({ ...environment, openBroker: systemBrokers(systemClock) })
    t.teardown(() => messages.close())
    const endpoint = server.endpoint('homing.kv.parts')
    const inbox = subscribeInto(t, messages, endpoint)
    const publisher = await messages.publish({ endpoint })
    t.equal(await inbox.next('the publisher'), 'connected')
    for (const size of [1, 1006, 1007, 2000, 500_000]) {
      publisher.send([new Uint8Array(size).fill(65)])
      const heard = await inbox.next(`${size} bytes`)
      t.equal(heard, size > 1000 ? `${size}:65` : 'A'.repeat(size))
    }
  })

  t.test(
    'a subscriber that is too slow for the broker is cut off, and told that something was lost',
    async t => {
      const server = await NatsServer.start({ configuration: ['max_pending: 1048576'] })
      t.teardown(() => server.stop())
      const endpoint = server.endpoint('homing.kv.flood')
      const warnings: string[] = []
      const messages = brokerMessages({
        clock: systemClock,
        log: { warn: fields => void warnings.push(String(fields['reason'])) },
        openBroker: systemBrokers(systemClock),
      })
      t.teardown(() => messages.close())
      const inbox = subscribeInto(t, messages, endpoint)
      const flag = new Int32Array(new SharedArrayBuffer(4))
      const publisher = new Worker(new URL('flooding-thread.ts', import.meta.url), {
        workerData: { endpoint, server: server.address, flag, floodBytes: FLOOD_BYTES },
      })
      t.teardown(() => publisher.terminate())
      t.equal(await inbox.next('the publisher'), 'connected')
      publisher.postMessage('before')
      t.equal(await inbox.next('a message'), 'before')
      publisher.postMessage('flood')
      // This thread reads nothing meanwhile.
      Atomics.wait(flag, 0, 0, 30_000)
      t.equal(Atomics.load(flag, 0), 1, 'the broker has read all of it')
      t.equal(await inbox.next('the cut'), 'disconnected')
      // On a machine that took long for the flood, beats that wait to be read begin one more connection.
      for (let news = await inbox.next('a new connection'); news !== 'after'; ) {
        if (news === 'connected') publisher.postMessage('after')
        news = await inbox.next('a message')
      }
      t.ok(warnings.length > 0, `the reason is logged: ${warnings.join('; ')}`)
    },
  )

  t.test('from another thread, by the host on the main one', async t => {
    const server = await NatsServer.start()
    t.teardown(() => server.stop())
    const hosted = hostedMessages(environment, async port => hostClient(port))
    t.teardown(() => hosted.close())
    const endpoint = server.endpoint('homing.kv.hosted')
    const inbox = subscribeInto(t, hosted, endpoint)
    const publisher = await hosted.publish({ endpoint })
    t.equal(await inbox.next('the publisher'), 'connected')
    publisher.send([bytes('over a port')])
    t.equal(await inbox.next('a message'), 'over a port')
    const answers = new Inbox<string>()
    const router = await hosted.serve(
      { endpoint },
      (identity, frames) => void router.send(identity, [bytes(`${frames.length} frames`)]),
    )
    const dealer = hosted.dial({ endpoint }, frames => answers.put(Buffer.from(frames[0]!).toString()))
    dealer.send([bytes('a'), bytes('b')])
    t.equal(await answers.next('an answer'), '2 frames')
  })
})

async function realWorld(
  t: Test,
  create: () => ReturnType<typeof brokerMessages>,
): Promise<BrokerWorld & { readonly server: NatsServer }> {
  const server = await NatsServer.start()
  t.teardown(() => server.stop())
  return {
    server,
    process: () => {
      const messages = create()
      t.teardown(() => messages.close())
      return messages
    },
    endpoint: subject => server.endpoint(subject),
    down: () => server.down(),
    up: () => server.up(),
    pass: ms => delay(ms),
    noise: async (subject, payload) => {
      const connection = await connect({ servers: server.address })
      connection.publish(subject, payload)
      await connection.drain()
    },
  }
}
