/**
 * The conformance suite on ZeroMQ as it is on the main thread, and through the host, as it is on all others.
 */

import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { systemTransport, type Transport } from '../src/index.ts'
import { hostedMessages } from '../src/zmq/client.ts'
import { hostClient, hostedClientCount } from '../src/zmq/host.ts'
import { zmqSocketCount } from '../src/zmq/library.ts'
import { mainMessages } from '../src/zmq/main-messages.ts'
import { testTransport } from './conformance.ts'

const environment = { clock: systemClock, log: { warn() {} } }

function withMessages(create: () => ReturnType<typeof hostedMessages>): (t: Test) => Transport {
  return t => {
    const { http, tcp, close } = systemTransport(environment)
    const messages = create()
    const transport: Transport = {
      brokers: () => [],
      tcp,
      http,
      messages,
      close() {
        close()
        messages.close()
      },
    }
    t.teardown(() => transport.close())
    return transport
  }
}

t.test('on the main thread', async t => {
  testTransport(
    t,
    withMessages(() => mainMessages(environment)),
  )
})

t.test('through the host', async t => {
  testTransport(
    t,
    withMessages(() => hostedMessages(environment, async port => hostClient(port))),
  )
})

const BURST = 500
const BURST_FRAME = new Uint8Array(65_536)

/** How many messages of a burst arrive, in front of the first one that is sent once the burst is over. */
async function arrivedOfBurst(transport: Transport, queuedMessagesMax: number | undefined): Promise<number> {
  const options = { endpoint: 'tcp://127.0.0.1:0' }
  const publisher = await transport.messages.publish(
    queuedMessagesMax === undefined ? options : { ...options, queuedMessagesMax },
  )
  let arrived = 0
  const { promise: connected, resolve: isConnected } = Promise.withResolvers<void>()
  const { promise: over, resolve: isOver } = Promise.withResolvers<void>()
  transport.messages.subscribe(
    { endpoint: publisher.endpoint, topic: '' },
    {
      message([kind]) {
        const text = Buffer.from(kind!).toString()
        if (text === 'hello') isConnected()
        else if (text === 'end') isOver()
        else arrived++
      },
      connected() {},
      disconnected() {},
    },
  )
  const until = async (event: Promise<void>, greeting: string): Promise<void> => {
    let hasCome = false
    void event.then(() => {
      hasCome = true
    })
    while (!hasCome) {
      publisher.send([Buffer.from(greeting)])
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  await until(connected, 'hello')
  for (let i = 0; i < BURST; i++) publisher.send([Buffer.from('burst'), BURST_FRAME])
  await until(over, 'end')
  publisher.close()
  return arrived
}

t.test('a publisher holds as many messages for a slow peer as it is told to', async t => {
  for (const open of [
    withMessages(() => mainMessages(environment)),
    withMessages(() => hostedMessages(environment, async port => hostClient(port))),
  ]) {
    const transport = open(t)
    t.equal(await arrivedOfBurst(transport, undefined), BURST)
    t.ok((await arrivedOfBurst(transport, 2)) < BURST)
    transport.close()
  }
})

t.test('afterwards no socket is left', async t => {
  while (zmqSocketCount() > 0 || hostedClientCount() > 0) await new Promise(resolve => setImmediate(resolve))
  t.pass()
})
