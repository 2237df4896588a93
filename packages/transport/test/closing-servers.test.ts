/** Answers that end with their connection, while the caller has paused them: on real sockets. */

import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { systemTransport } from '../src/index.ts'
import { bounded, Inbox } from './inbox.ts'

const BODY = 'all of it'
const HEADS: Readonly<Record<string, string>> = {
  'with a length': `HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ${BODY.length}\r\n\r\n`,
  'without a length': 'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n',
  'of HTTP/1.0': 'HTTP/1.0 200 OK\r\n\r\n',
}

/** What the caller is told, in order. `end` closes the connection once the caller has paused. */
async function toldOf(t: Test, head: string, end: (socket: Socket) => void): Promise<string[]> {
  const sockets = new Inbox<Socket>()
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.write(head + BODY)
      sockets.put(socket)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const told: string[] = []
  const [paused, over] = [new Inbox<true>(), new Inbox<true>()]
  const { port } = server.address() as AddressInfo
  const call = transport.http.call(
    { origin: `http://127.0.0.1:${port}`, method: 'GET', path: '/' },
    {
      head: status => void told.push(String(status)),
      data(bytes) {
        if (bytes.length > 0) told.push(Buffer.from(bytes).toString())
        call.pause()
        paused.put(true)
      },
      end() {
        told.push('end')
        over.put(true)
      },
      failed({ failure }) {
        told.push(failure)
        over.put(true)
      },
    },
  )
  const socket = await sockets.next('a request')
  await paused.next('the caller has paused')
  const closed = once(socket, 'close')
  end(socket)
  await bounded(closed, 'the connection is closed')
  call.resume()
  await over.next('the call is over')
  return told
}

for (const [name, head] of Object.entries(HEADS)) {
  t.test(`a paused answer ${name} is told to its end when its connection is closed`, async t => {
    t.strictSame(await toldOf(t, head, socket => socket.end()), ['200', BODY, 'end'])
  })
}

t.test('a paused answer whose connection is reset is told once', async t => {
  const told = await toldOf(t, HEADS['without a length']!, socket => socket.resetAndDestroy())
  t.strictSame(told.slice(0, 2), ['200', BODY])
  t.equal(told.length, 3)
})
