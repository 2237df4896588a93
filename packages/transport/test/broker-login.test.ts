/** The login of the router goes to the broker that the operator named, and to no other one. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { setBrokerAccess, systemTransport } from '../src/index.ts'

/** A server that asks for a login, and keeps the CONNECT of its clients. */
async function brokerThatAsks(t: Test) {
  const heard = Promise.withResolvers<string>()
  const server = createServer(socket => {
    socket.on('error', () => {})
    let text = ''
    socket.on('data', bytes => {
      text += bytes.toString()
      if (/CONNECT .*\r\n/.test(text)) heard.resolve(text)
    })
    socket.write('INFO {"server_id":"x","version":"2.10.0","auth_required":true,"max_payload":1048576}\r\n')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as { readonly port: number }
  return { address: `127.0.0.1:${port}`, heard: heard.promise }
}

t.test('a broker that an engine names gets no password', async t => {
  const own = await brokerThatAsks(t)
  const foreign = await brokerThatAsks(t)
  setBrokerAccess({ user: 'router', password: 'the secret', servers: [own.address] })
  t.teardown(() => setBrokerAccess({}))
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const handler = { message() {}, connected() {}, disconnected() {} }
  transport.messages.subscribe({ endpoint: `nats://${own.address}/kv.0`, topic: '' }, handler)
  transport.messages.subscribe({ endpoint: `nats://${foreign.address}/kv.0`, topic: '' }, handler)
  transport.messages.subscribe(
    { endpoint: `nats://${own.address},${foreign.address}/kv.0`, topic: '' },
    handler,
  )
  t.match(await own.heard, /the secret/)
  const told = await foreign.heard
  t.match(told, /CONNECT/)
  t.notMatch(told, /secret|router/)
})
