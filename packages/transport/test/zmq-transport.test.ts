/** The conformance suite on ZeroMQ as it is on the main thread, and through the host, as it is on all others. */

import { systemClock } from '@homing/clock'
import t, { type Test } from 'tap'
import { systemTransport, type Transport } from '../src/index.ts'
import { hostedMessages } from '../src/zmq/client.ts'
import { hostClient, hostedClientCount } from '../src/zmq/host.ts'
import { zmqSocketCount } from '../src/zmq/library.ts'
import { zmqMessages } from '../src/zmq/messages.ts'
import { testTransport } from './conformance.ts'

const environment = { clock: systemClock, log: { warn() {} } }

function withMessages(create: () => ReturnType<typeof hostedMessages>): (t: Test) => Transport {
  return t => {
    const { http, close } = systemTransport(environment)
    const messages = create()
    const transport: Transport = {
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
    withMessages(() => zmqMessages(environment)),
  )
})

t.test('through the host', async t => {
  testTransport(
    t,
    withMessages(() => hostedMessages(environment, async port => hostClient(port))),
  )
})

t.test('afterwards no socket is left', async t => {
  while (zmqSocketCount() > 0 || hostedClientCount() > 0) await new Promise(resolve => setImmediate(resolve))
  t.pass()
})
