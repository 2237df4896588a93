/** HTTP exchanges over a broker: on a network in memory. */

import { setTimeout as delay } from 'node:timers/promises'
import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { MemoryNetwork, type Transport } from '../src/index.ts'
import { decodeCallPayload } from '../src/nats/request-wire.ts'

import {
  Answer,
  atBroker,
  ORIGIN,
  POST,
  SUBJECT,
  testRequestPlane,
  WINDOW_BYTES,
} from './request-plane-world.ts'

t.test('in memory', async t => {
  testRequestPlane(t, async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock, latencyMs: 1 })
    const timer = setInterval(() => clock.advance(5), 1)
    t.teardown(() => clearInterval(timer))
    const transport = (): Transport => {
      const opened = network.transport()
      t.teardown(() => opened.close())
      return opened
    }
    const endpoint = `nats://127.0.0.1:4222/${SUBJECT}`
    return {
      endpoint,
      client: transport,
      server: transport,
      down: async () => network.disconnect(endpoint),
      up: async () => network.reconnect(endpoint),
      ...atBroker(endpoint),
    }
  })

  t.test('a server that hangs, or a client that is silent, is gone after five seconds', async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock })
    const endpoint = `nats://a:1/${SUBJECT}`
    const [client, server] = [network.transport(), network.transport()]
    const gone: string[] = []
    server.http.serve({ endpoint }, exchange => {
      exchange.onClientGone(reason => gone.push(reason))
      exchange.writeHead(200, {})
      exchange.write(Buffer.from('x'))
    })
    client.http.setRoute(ORIGIN, { endpoint, windowBytes: WINDOW_BYTES })
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < ms / 100; i++) {
        clock.advance(100)
        await delay(0)
      }
    }
    await pass(100)
    const answer = new Answer(client, POST)
    await pass(60_000)
    t.equal(answer.error, undefined, 'who has nothing to say is alive')
    network.faults.message = subject => (/INBOX/.test(subject) ? 'drop' : 'deliver')
    await pass(4_000)
    t.equal(answer.error, undefined)
    await pass(3_000)
    t.match(answer.error!.message, /nothing was heard from homing\.requests\.test for 5000 ms/)
    t.strictSame(gone, ['left'])
  })

  t.test('a payload that was lost ends the call', async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock })
    const endpoint = `nats://a:1/${SUBJECT}`
    const [client, server] = [network.transport(), network.transport()]
    let isLost = false
    network.faults.message = (_, [payload]) => {
      const frames = decodeCallPayload(payload!)
      const isData = typeof frames === 'object' && frames.frames[0]?.kind === 7
      if (!isData || isLost) return 'deliver'
      isLost = true
      return 'drop'
    }
    server.http.serve({ endpoint }, async exchange => {
      exchange.writeHead(200, {})
      for (let i = 0; i < 3; i++) {
        await delay(1)
        exchange.write(Buffer.from('x'))
      }
    })
    client.http.setRoute(ORIGIN, { endpoint, windowBytes: WINDOW_BYTES })
    const answer = new Answer(client, POST)
    await answer.whenOver
    t.match(answer.error!.message, /1 payloads of the answer were lost/)
    t.equal(answer.error!.failure, 'reset')
  })
})
