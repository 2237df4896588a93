/** Answers to requests that are not HTTP, on real sockets; and clients that close only one side. */

import { once } from 'node:events'
import type { Socket } from 'node:net'
import { SimulatedClock, systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type HttpExchange, systemTransport } from '../src/index.ts'
import { bounded, bytes, Inbox, text } from './inbox.ts'
import { type Link, overEach } from './links.ts'

const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
t.teardown(() => transport.close())

/** A server of ours that answers every exchange with what it was asked for, unless the test takes them. */
async function serve(
  t: Test,
  link: Link,
  onExchange: (exchange: HttpExchange) => void = echo,
  { http } = transport,
) {
  const listener = await http.listen(
    {
      host: '127.0.0.1',
      port: 0,
      tls: link.tls,
      errorAnswer: ({ status, code, message }) => ({
        status,
        headers: { 'content-type': 'application/json' },
        body: bytes(JSON.stringify({ code, message })),
      }),
    },
    onExchange,
  )
  t.teardown(() => listener.close(0))
  const open = async (): Promise<Client> => {
    const socket = await link.open(listener.port, { allowHalfOpen: true })
    t.teardown(() => socket.destroy())
    return new Client(socket)
  }
  return { open, listener }
}

function echo(exchange: HttpExchange): void {
  const { method, path, query } = exchange
  exchange.readBody(100_000).then(
    body => {
      exchange.writeHead(200, {})
      exchange.end(bytes(`${method} ${path} ${query} ${text(body)}`))
    },
    error => {
      exchange.writeHead(error.status ?? 500, {})
      exchange.end(bytes(error.code))
    },
  )
}

class Client {
  readonly socket: Socket
  received = ''
  readonly #ended: Promise<unknown>

  constructor(socket: Socket) {
    this.socket = socket
    socket.setEncoding('latin1')
    socket.on('data', (data: string) => {
      this.received += data
    })
    socket.on('error', () => {})
    this.#ended = once(socket, 'end')
    // A reset is not an end; a caller that waits for the end is told.
    this.#ended.catch(() => {})
  }

  /** Resolves when a text has come so often. */
  async seen(wanted: string, times: number): Promise<void> {
    while (this.received.split(wanted).length <= times)
      await bounded(once(this.socket, 'data'), `${wanted}, ${times} times`)
  }

  /** All that came before the server closed its side. */
  async whole(): Promise<string> {
    await bounded(this.#ended, 'the server to close')
    return this.received
  }
}

const HOST = 'host: x\r\n'

overEach(t, 'a request that is no HTTP is told so, and its connection closed', async (t, link) => {
  const { open } = await serve(t, link)
  const malformed = 'HOMING_TRANSPORT_MALFORMED_HTTP'
  const cases: readonly (readonly [request: string, status: number, code: string])[] = [
    ['GET / HTTP/1.1\r\n\r\n', 400, malformed],
    [`GET / HTTP/1.1\r\n${HOST}${HOST}\r\n`, 400, malformed],
    [`GET / HTTP/1.1\n${HOST}\n`, 400, malformed],
    ['GET / HTTP/1.1\nhost: x\n\n', 400, malformed],
    ['nonsense\r\n\r\n', 400, malformed],
    [`FLY / HTTP/1.1\r\n${HOST}\r\n`, 400, malformed],
    [`GET /a b HTTP/1.1\r\n${HOST}\r\n`, 400, malformed],
    [`GET / HTTP/7.1\r\n${HOST}\r\n`, 400, malformed],
    [`GET / HTTP/1.1\r\n${HOST}bad header: x\r\n\r\n`, 400, malformed],
    [`POST / HTTP/1.1\r\n${HOST}content-length: x\r\n\r\n`, 400, malformed],
    [`POST / HTTP/1.1\r\n${HOST}content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n`, 400, malformed],
    [`CONNECT x:80 HTTP/1.1\r\n${HOST}\r\n`, 400, malformed],
    [`GET / HTTP/1.1\r\n${HOST}x: ${'y'.repeat(70_000)}\r\n\r\n`, 431, 'HOMING_TRANSPORT_HEADERS_TOO_LARGE'],
    [`GET /${'y'.repeat(70_000)} HTTP/1.1\r\n${HOST}\r\n`, 431, 'HOMING_TRANSPORT_HEADERS_TOO_LARGE'],
    [`GET / HTTP/1.1\r\n${HOST}expect: tea\r\n\r\n`, 417, 'HOMING_TRANSPORT_EXPECTATION'],
  ]
  for (const [request, status, code] of cases) {
    const client = await open()
    client.socket.write(request)
    const answer = await client.whole()
    const title = JSON.stringify(request.slice(0, 70))
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} \\w`), title)
    t.match(answer, /\r\ncontent-type: application\/json\r\n/, title)
    t.match(answer, /\r\nconnection: close\r\n/, title)
    t.match(JSON.parse(answer.split('\r\n\r\n')[1]!), { code, message: /^cannot / }, title)
  }
})

overEach(t, 'headers are limited by their bytes, not by their number', async (t, link) => {
  const { open } = await serve(t, link, exchange => {
    exchange.writeHead(200, {})
    exchange.end(bytes(String(exchange.headers['x-last'])))
  })
  const many = Array.from({ length: 3000 }, (_, i) => `a${i}: b\r\n`).join('')
  const client = await open()
  client.socket.write(`GET / HTTP/1.1\r\n${HOST}${many}x-last: here\r\nconnection: close\r\n\r\n`)
  t.match(await client.whole(), /^HTTP\/1\.1 200 .*here/s)
})

overEach(t, 'without a form of its own, a listener tells it as text', async (t, link) => {
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0, tls: link.tls }, echo)
  t.teardown(() => listener.close(0))
  const socket = await link.open(listener.port)
  const client = new Client(socket)
  socket.write('GET / HTTP/1.1\r\n\r\n')
  t.match(await client.whole(), /\r\ncontent-type: text\/plain; charset=utf-8\r\n.*\r\n\r\ncannot read/s)
})

overEach(t, 'a request whose head ends early is told so', async (t, link) => {
  const { open } = await serve(t, link)
  const client = await open()
  client.socket.end(`GET / HTTP/1.1\r\n${HOST}`)
  t.match(await client.whole(), /^HTTP\/1\.1 400 /)
})

overEach(
  t,
  'a body that ends early, or is no chunks, is answered by its exchange, and the connection closed',
  async (t, link) => {
    const { open } = await serve(t, link)
    for (const [request, ends] of [
      [`POST / HTTP/1.1\r\n${HOST}content-length: 100\r\n\r\nhalf`, true],
      [`POST / HTTP/1.1\r\n${HOST}transfer-encoding: chunked\r\n\r\n5\r\nhal`, true],
      [`POST / HTTP/1.1\r\n${HOST}transfer-encoding: chunked\r\n\r\nzz\r\n`, false],
    ] as const) {
      const client = await open()
      if (ends) client.socket.end(request)
      else client.socket.write(request)
      const answer = await client.whole()
      t.match(answer, /^HTTP\/1\.1 400 .*\r\n\r\n.*HOMING_TRANSPORT_MALFORMED_HTTP/s, request)
      t.equal(answer.match(/HTTP\/1\.1/g)?.length, 1, 'it is told once')
    }
  },
)

overEach(t, 'what comes before the fault on a connection is answered before it', async (t, link) => {
  const exchanges = new Inbox<HttpExchange>()
  const { open } = await serve(t, link, exchanges.put)
  for (const fault of ['nonsense\r\n\r\n', 'GET /never HTTP/1.1\r\n\r\n']) {
    const client = await open()
    client.socket.write(`GET /first HTTP/1.1\r\n${HOST}\r\n${fault}GET /behind HTTP/1.1\r\n${HOST}\r\n`)
    const first = await exchanges.next('the request')
    t.equal(first.path, '/first')
    t.equal(exchanges.size, 0, 'nothing behind the fault is served')
    first.writeHead(200, { 'content-length': '5' })
    first.end(bytes('first'))
    t.match(await client.whole(), /^HTTP\/1\.1 200 .*first(?:HTTP\/1\.1 400 .*)?$/s, fault)
  }
})

overEach(t, 'a target in absolute form is served as the path that it names', async (t, link) => {
  const { open } = await serve(t, link)
  for (const [target, seen] of [
    ['http://other/v1/models', '/v1/models  '],
    ['HTTP://other:80/a/b?c=d', '/a/b c=d '],
    ['https://other?x', '/ x '],
    ['http://other', '/  '],
    ['/http://other/x', '/http://other/x  '],
    ['//other/x', '//other/x  '],
  ] as const) {
    const client = await open()
    client.socket.write(`GET ${target} HTTP/1.1\r\n${HOST}connection: close\r\n\r\n`)
    const answer = await client.whole()
    t.ok(answer.includes(`\r\nGET ${seen}\r\n`), `${target}: ${answer}`)
  }
})

overEach(t, 'a client that closes its side gets its answers, streams included', async (t, link) => {
  const exchanges = new Inbox<HttpExchange>()
  const { open } = await serve(t, link, exchanges.put)
  for (const version of ['1.1', '1.0']) {
    const client = await open()
    client.socket.end(`POST / HTTP/${version}\r\n${HOST}content-length: 2\r\n\r\nhi`)
    const exchange = await exchanges.next('the request')
    t.equal(text(await exchange.readBody(10)), 'hi')
    const gone = new Inbox<string>()
    exchange.onClientGone(gone.put)
    if (version === '1.1') await client.seen('100 Continue', 2)
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const event of ['one', 'two', 'three']) {
      exchange.write(bytes(`data: ${event}\n\n`))
      await new Promise(resolve => setImmediate(resolve))
    }
    exchange.end()
    const answer = await client.whole()
    t.match(answer, /data: one\n\n.*data: two\n\n.*data: three\n\n/s, version)
    const interim = answer.match(/^(?:HTTP\/1\.1 100 Continue\r\n\r\n)*/)![0]
    t.match(answer.slice(interim.length), /^HTTP\/1\.1 200 OK\r\n/, version)
    t.equal(interim === '', version === '1.0', 'only HTTP/1.1 knows interim answers')
    t.equal(gone.size, 0)
  }
})

overEach(
  t,
  'a client of HTTP/1.0 sees a cut as a reset, since it takes an end for the end',
  async (t, link) => {
    const exchanges = new Inbox<HttpExchange>()
    const { open } = await serve(t, link, exchanges.put)
    for (const [version, headers, how] of [
      ['1.0', {}, 'reset'],
      ['1.0', { 'content-length': '10' }, 'end'],
      ['1.1', {}, 'end'],
    ] as const) {
      const client = await open()
      const ended = new Inbox<string>()
      client.socket.on('end', () => ended.put('end'))
      client.socket.on('error', () => ended.put('reset'))
      client.socket.write(`GET / HTTP/${version}\r\n${HOST}\r\n`)
      const exchange = await exchanges.next('the request')
      exchange.writeHead(200, headers)
      exchange.write(bytes('half'))
      await client.seen('half', 1)
      exchange.destroy()
      t.equal(await ended.next('the cut'), how, `${version} ${JSON.stringify(headers)}`)
    }
  },
)

overEach(t, 'an answer before the end of a long body does not make its client fail', async (t, link) => {
  const unread = (exchange: HttpExchange): void => {
    exchange.writeHead(401, { 'content-length': '0' })
    exchange.end()
  }
  for (const [status, onExchange, isChunked] of [
    [401, unread, false],
    [500, echo, false],
    [500, echo, true],
  ] as const) {
    // The two seconds for the rest of a body do not pass on a machine that stands still.
    const timed = systemTransport({ clock: new SimulatedClock(), log: { warn() {} } })
    t.teardown(() => timed.close())
    const { open } = await serve(t, link, onExchange, timed)
    const { socket } = await open()
    const errors: Error[] = []
    socket.on('error', error => errors.push(error))
    const body = 'x'.repeat(8 * 2 ** 20)
    const [coding, coded] = isChunked
      ? ['transfer-encoding: chunked', `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`]
      : [`content-length: ${body.length}`, body]
    const sent = new Promise<void>(resolve =>
      socket.write(`POST / HTTP/1.1\r\n${HOST}${coding}\r\n\r\n${coded}`, () => resolve()),
    )
    let answer = ''
    socket.on('data', data => {
      answer += String(data)
    })
    await bounded(sent, 'all of the body to be sent')
    socket.end()
    await bounded(once(socket, 'close'), 'the end of the connection')
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} .*\r\nconnection: close\r\n`, 'is'))
    t.strictSame(errors, [])
  }
})

overEach(t, 'two requests of a client that then closes its side are both answered', async (t, link) => {
  const { open } = await serve(t, link)
  const client = await open()
  const get = (path: string) => `GET ${path} HTTP/1.1\r\n${HOST}\r\n`
  client.socket.end(get('/a') + get('/b'))
  t.match(await client.whole(), /GET \/a .*GET \/b /s)
})

overEach(
  t,
  'a client that leaves is gone within its next moments, whether it is read or not',
  async (t, link) => {
    const exchanges = new Inbox<HttpExchange>()
    const { open } = await serve(t, link, exchanges.put)
    for (const isReset of [false, true]) {
      const client = await open()
      client.socket.write(`GET / HTTP/1.1\r\n${HOST}\r\n`)
      const exchange = await exchanges.next('the request')
      const gone = new Inbox<string>()
      exchange.onClientGone(gone.put)
      if (isReset) link.reset(client.socket)
      else client.socket.destroy()
      t.equal(await gone.next('the news'), 'left')
      t.equal(exchange.isClosed, true)
    }
  },
)

overEach(t, 'a client that leaves inside a silent answer is gone, too', async (t, link) => {
  const exchanges = new Inbox<HttpExchange>()
  const { open } = await serve(t, link, exchanges.put)
  for (const hasBytes of [true, false]) {
    const client = await open()
    client.socket.write(`GET / HTTP/1.1\r\n${HOST}\r\n`)
    const exchange = await exchanges.next('the request')
    const gone = new Inbox<string>()
    exchange.onClientGone(gone.put)
    exchange.writeHead(200, {})
    if (hasBytes) exchange.write(bytes('data: 1\n\n'))
    client.socket.destroy()
    t.equal(await gone.next('the news'), 'left')
  }
})

overEach(
  t,
  'a client that closes its side inside a silent answer gets the rest, unchanged',
  async (t, link) => {
    const exchanges = new Inbox<HttpExchange>()
    const { open } = await serve(t, link, exchanges.put)
    for (const isAtEnd of [false, true]) {
      const client = await open()
      client.socket.write(`GET / HTTP/1.1\r\n${HOST}\r\n`)
      const exchange = await exchanges.next('the request')
      exchange.write(bytes('first'))
      await client.seen('5\r\nfirst\r\n', 1)
      client.socket.end()
      await client.seen('first\r\n00', 1)
      if (!isAtEnd) exchange.write(bytes('second'))
      exchange.end()
      const [, chunks] = (await client.whole()).split('\r\n\r\n', 2)
      t.equal(chunks, isAtEnd ? '5\r\nfirst\r\n000' : '5\r\nfirst\r\n006\r\nsecond\r\n0')
    }
  },
)

/** A request of a client that has closed its side, and a while of the transport's time. */
async function halfClosed(t: Test, link: Link) {
  const clock = new SimulatedClock()
  const timed = systemTransport({ clock, log: { warn() {} } })
  t.teardown(() => timed.close())
  const exchanges = new Inbox<HttpExchange>()
  const { open } = await serve(t, link, exchanges.put, timed)
  const client = await open()
  client.socket.end(`GET / HTTP/1.1\r\n${HOST}\r\n`)
  const exchange = await exchanges.next('the request')
  const minutes = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn++) {
      clock.advance(10_000)
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  return { client, exchange, minutes }
}

overEach(
  t,
  'nothing is written behind an answer that waits for a client that has closed its side',
  async (t, link) => {
    const { client, exchange, minutes } = await halfClosed(t, link)
    client.socket.pause()
    // More than the buffers of a connection take.
    exchange.write(bytes('x'.repeat(2 ** 24)))
    exchange.end()
    await minutes()
    client.socket.resume()
    t.equal((await client.whole()).slice(-9), 'xx\r\n0\r\n\r\n')
  },
)

overEach(
  t,
  'an answer with a length is written as it is to a client that has closed its side',
  async (t, link) => {
    const { client, exchange, minutes } = await halfClosed(t, link)
    exchange.writeHead(200, { 'content-length': '5' })
    exchange.write(bytes('fi'))
    await client.seen('fi', 1)
    await minutes()
    exchange.end(bytes('rst'))
    t.match(await client.whole(), /\r\n\r\nfirst$/)
  },
)

overEach(
  t,
  'a client that leaves takes all the requests with it that it has sent at once',
  async (t, link) => {
    const gone = new Inbox<string>()
    const over = new Inbox<string>()
    const arrived = new Inbox<string>()
    const { open } = await serve(t, link, exchange => {
      exchange.onClientGone(() => gone.put(exchange.path))
      exchange.onOver(() => over.put(exchange.path))
      arrived.put(exchange.path)
    })
    const client = await open()
    client.socket.write(['/a', '/b', '/c'].map(path => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`).join(''))
    for (let i = 0; i < 3; i++) await arrived.next('a request')
    client.socket.destroy()
    const left = [await gone.next('one'), await gone.next('two'), await gone.next('three')]
    t.strictSame(left.sort(), ['/a', '/b', '/c'])
    const ended = [await over.next('one'), await over.next('two'), await over.next('three')]
    t.strictSame(ended.sort(), ['/a', '/b', '/c'])
  },
)
