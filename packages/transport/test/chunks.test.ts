/** The bytes of answers without a length, as a client's socket gets them. */

import { once } from 'node:events'
import { connect } from 'node:net'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type HttpExchange, systemTransport } from '../src/index.ts'
import { bounded } from './inbox.ts'

/** Everything that a connection gets until it is closed. */
async function answerOf(t: Test, request: string, answer: (exchange: HttpExchange) => void): Promise<string> {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0 }, answer)
  const socket = connect(listener.port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  const pieces: Buffer[] = []
  socket.on('data', piece => pieces.push(piece))
  socket.write(request)
  await bounded(once(socket, 'close'), 'the connection to be closed')
  return Buffer.concat(pieces).toString('latin1')
}

const request = (method: string, version = '1.1'): string =>
  `${method} / HTTP/${version}\r\nhost: x\r\nconnection: close\r\n\r\n`
const bodyOf = (text: string): string => text.slice(text.indexOf('\r\n\r\n') + 4)
const bytes = (text: string): Buffer => Buffer.from(text)
const LONG = 'x'.repeat(70_000)
const LONG_CHUNK = `11170\r\n${LONG}\r\n`

function stream(exchange: HttpExchange): void {
  exchange.writeHead(200, { 'content-type': 'text/plain' })
  for (const text of ['first', 'a second one', LONG, 'é']) exchange.write(bytes(text))
  exchange.write(bytes(''))
  exchange.end(bytes('last'))
}

t.test('each piece is a chunk, and the last one has no bytes', async t => {
  const text = await answerOf(t, request('GET'), stream)
  t.match(text, /^HTTP\/1\.1 200 OK\r\n/)
  t.match(text, /\r\ntransfer-encoding: chunked\r\n/i)
  t.equal(
    bodyOf(text),
    `5\r\nfirst\r\nc\r\na second one\r\n${LONG_CHUNK}2\r\n\xc3\xa9\r\n4\r\nlast\r\n0\r\n\r\n`,
  )
})

t.test('pieces that are written when the client has taken those before', async t => {
  const text = await answerOf(t, request('GET'), exchange => {
    exchange.writeHead(200, {})
    let left = 30
    const more = (): void => {
      let hasRoom = true
      while (left > 0 && hasRoom) hasRoom = exchange.write(bytes(LONG.slice(left--)))
      if (left > 0) exchange.onDrain(more)
      else exchange.end()
    }
    more()
  })
  let body = bodyOf(text)
  const sizes: number[] = []
  for (let size = -1; size !== 0; ) {
    const end = body.indexOf('\r\n')
    size = Number.parseInt(body.slice(0, end), 16)
    sizes.push(size)
    t.equal(body.slice(end + 2 + size, end + 4 + size), '\r\n')
    body = body.slice(end + 4 + size)
  }
  t.equal(body, '')
  t.strictSame(sizes, [...Array.from({ length: 30 }, (_, i) => LONG.length - 30 + i), 0])
})

t.test('a connection serves another request behind a chunked answer', async t => {
  const text = await answerOf(t, `GET / HTTP/1.1\r\nhost: x\r\n\r\n${request('GET')}`, exchange => {
    exchange.writeHead(200, {})
    exchange.write(bytes('one'))
    exchange.write(bytes('two'))
    exchange.end()
  })
  t.equal(text.split('3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n').length, 3)
})

t.test('answers that have no chunks', async t => {
  const plain = bodyOf(await answerOf(t, request('GET', '1.0'), stream))
  t.equal(plain, `firsta second one${LONG}\xc3\xa9last`, 'HTTP/1.0 ends with the connection')
  t.equal(bodyOf(await answerOf(t, request('HEAD'), stream)), '')
  const known = await answerOf(t, request('GET'), exchange => {
    exchange.writeHead(200, { 'content-length': '6' })
    exchange.write(bytes('on'))
    exchange.write(bytes('et'))
    exchange.end(bytes('wo'))
  })
  t.equal(bodyOf(known), 'onetwo')
})

t.test('what has no body has none, whatever is written', async t => {
  const text = await answerOf(t, request('GET'), exchange => {
    exchange.writeHead(204, {})
    exchange.write(bytes('no'))
    exchange.end(bytes('no'))
  })
  t.equal(bodyOf(text), '')
})
