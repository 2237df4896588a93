/** Clients that send further requests without waiting for an answer, on real sockets. */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { SimulatedClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type HttpExchange, systemTransport } from '../src/index.ts'
import { PIPELINED_REQUESTS_MAX } from '../src/limits.ts'
import { bytes, Inbox } from './inbox.ts'

const GET = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n'
/** Turns of the event loop in which more would be read, if it were. */
const TURNS_MAX = 20_000

async function serve(t: Test) {
  const clock = new SimulatedClock()
  const transport = systemTransport({ clock, log: { warn() {} } })
  const exchanges: HttpExchange[] = []
  const gone = new Inbox<string>()
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
    exchanges.push(exchange)
    exchange.onClientGone(gone.put)
  })
  const socket: Socket = connect(listener.port, '127.0.0.1')
  await once(socket, 'connect')
  socket.on('error', () => {})
  t.teardown(() => {
    socket.destroy()
    transport.close()
  })
  /** Lets simulated time go on until something holds. */
  const pass = async (holds: () => boolean, turnsMax = Number.POSITIVE_INFINITY): Promise<void> => {
    for (let turn = 0; !holds() && turn < turnsMax; turn++) {
      await new Promise(resolve => setImmediate(resolve))
      clock.advance(10)
    }
  }
  return { socket, exchanges, gone, pass }
}

t.test('requests of one connection that wait have a bound, and are answered in order', async t => {
  const { socket, exchanges, pass } = await serve(t)
  let received = ''
  socket.on('data', data => {
    received += data.toString('latin1')
  })
  const closed = once(socket, 'close')
  socket.write(GET.repeat(PIPELINED_REQUESTS_MAX + 1000))
  await pass(() => exchanges.length >= PIPELINED_REQUESTS_MAX)
  // Answered last to first: the order of the answers is that of the requests.
  for (const [i, exchange] of [...exchanges.entries()].reverse()) exchange.end(bytes(`<${i}>`))
  await pass(() => socket.closed)
  await closed
  t.equal(exchanges.length, PIPELINED_REQUESTS_MAX, 'no more were served')
  const answered = [...received.matchAll(/<(\d+)>/g)].map(([, i]) => Number(i))
  t.strictSame(answered, [...exchanges.keys()])
  const refused = received.slice(received.lastIndexOf('HTTP/1.1 '))
  t.match(refused, /^HTTP\/1\.1 503 /)
  t.match(refused, /connection: close/i)
  t.match(refused, /cannot take another request of this connection: 64 are not answered/)
})

t.test('a client that leaves is noticed, though nothing more is read of its requests', async t => {
  const { socket, exchanges, gone, pass } = await serve(t)
  // Its second answer is more than the connection may hold back, so the rest is not read.
  socket.write(GET.repeat(2))
  await pass(() => exchanges.length === 2)
  exchanges[1]!.end(new Uint8Array(2 ** 20))
  socket.write(GET.repeat(100_000))
  await pass(() => exchanges.length > 2, TURNS_MAX)
  const before = exchanges.length
  socket.destroy()
  await pass(() => gone.size > 0)
  t.ok(gone.size > 0, 'the first is aborted')
  t.ok(before <= PIPELINED_REQUESTS_MAX, `${before} were open`)
})
