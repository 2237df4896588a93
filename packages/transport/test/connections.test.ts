/** How many connections a listener has and takes. Real sockets, simulated time. */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { SimulatedClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type ConnectionRefusal, systemTransport } from '../src/index.ts'
import { bounded, Inbox } from './inbox.ts'

const REQUEST = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n'

async function serve(t: Test, connectionsMax?: number) {
  const clock = new SimulatedClock()
  const transport = systemTransport({ clock, log: { warn() {} } })
  const refused = new Inbox<ConnectionRefusal>()
  const options = { host: '127.0.0.1', port: 0, connectionsMax, onConnectionRefused: refused.put }
  const listener = await transport.http.listen(options, exchange => {
    if (exchange.path === '/wait') return
    exchange.writeHead(200, { 'content-length': '2' })
    exchange.end(Buffer.from('ok'))
  })
  t.teardown(() => transport.close())
  const open = async (): Promise<Socket> => {
    const socket = connect(listener.port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.on('error', () => {})
    await bounded(once(socket, 'connect'), 'a connection')
    return socket
  }
  const ask = async (socket: Socket): Promise<void> => {
    socket.write(REQUEST)
    await bounded(once(socket, 'data'), 'an answer')
  }
  return { clock, listener, refused, open, ask }
}

t.test('a connection past the bound is closed, and idle ones make room for the next', async t => {
  const { clock, listener, refused, open, ask } = await serve(t, 3)
  const [busy, idle] = [await open(), await open()]
  const silent = await open()
  await ask(busy)
  await ask(idle)
  busy.write(REQUEST.replace('/', '/wait'))
  t.equal(listener.connections, 3)
  const idleClosed = once(idle.resume(), 'close')
  const fourth = await open()
  await bounded(once(fourth.resume(), 'close'), 'the connection to be closed')
  t.equal(await refused.next('the refusal'), 'bound')
  await bounded(idleClosed, 'the idle one to make room')
  t.equal(busy.destroyed || silent.destroyed, false, 'one with a request, and one that has not spoken, stay')
  const fifth = await open()
  await ask(fifth)
  t.equal(listener.connections, 3)
  // Idle ones are not looked for at each refusal.
  const sixth = await open()
  await bounded(once(sixth.resume(), 'close'), 'the connection to be closed')
  t.equal(await refused.next('the refusal'), 'bound')
  await ask(fifth)
  clock.advance(1000)
  const fifthClosed = once(fifth.resume(), 'close')
  const seventh = await open()
  await bounded(once(seventh.resume(), 'close'), 'the connection to be closed')
  await bounded(fifthClosed, 'the idle one to make room')
})

t.test('without a bound all are taken, and counted', async t => {
  const { listener, refused, open, ask } = await serve(t)
  const sockets = await Promise.all(Array.from({ length: 200 }, open))
  await Promise.all(sockets.map(ask))
  t.equal(listener.connections, 200)
  t.equal(refused.size, 0)
  for (const socket of sockets.slice(50)) socket.destroy()
  while (listener.connections > 50) await new Promise(resolve => setImmediate(resolve))
  t.equal(listener.connections, 50)
})
