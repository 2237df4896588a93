/** Behaviour that only real sockets can show: connections that are reused, half spoken, or broken. */

import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type HttpExchange, type HttpRequest, systemTransport } from '../src/index.ts'
import { bounded, bytes, callInto, type Delivered, Inbox, text } from './inbox.ts'

const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
t.teardown(() => transport.close())

/** A server that answers by hand. */
async function rawServer(t: Test, onRequest: (socket: Socket, request: string) => void) {
  const sockets = new Set<Socket>()
  const server: Server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('data', data => onRequest(socket, data.toString('latin1')))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as { readonly port: number }
  const request: HttpRequest = {
    origin: `http://127.0.0.1:${port}`,
    method: 'POST',
    path: '/',
    body: bytes('x'),
  }
  return { request, sockets }
}

async function outcome(request: HttpRequest): Promise<Delivered> {
  const { inbox } = callInto(transport, request)
  let delivered = await inbox.next('the outcome')
  while (delivered.type !== 'end' && delivered.type !== 'failed') delivered = await inbox.next('the outcome')
  return delivered
}

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'

t.test('a connection that the server closed while idle is told apart from one that broke', async t => {
  let isAnswering = true
  const { request, sockets } = await rawServer(t, socket => {
    if (isAnswering) socket.write(OK)
    else socket.destroy()
  })
  t.match(await outcome(request), { type: 'end' })
  // The client frees a connection only after it has told the end.
  await setImmediate()
  t.match(await outcome(request), { type: 'end' })
  await setImmediate()
  t.equal(sockets.size, 1, 'one connection served both')
  isAnswering = false
  t.match(await outcome(request), { type: 'failed', info: { wroteRequest: true, reusedConnection: true } })
  t.match(await outcome(request), { type: 'failed', info: { wroteRequest: true, reusedConnection: false } })
})

t.test('two calls at a time have a connection each', async t => {
  const waiting: Socket[] = []
  const { request, sockets } = await rawServer(t, socket => {
    waiting.push(socket)
    if (waiting.length === 3) for (const each of waiting) each.write(OK)
  })
  const outcomes = await Promise.all([outcome(request), outcome(request), outcome(request)])
  t.strictSame(
    outcomes.map(({ type }) => type),
    ['end', 'end', 'end'],
  )
  t.equal(sockets.size, 3)
})

t.test('what is no HTTP, and what ends too early, are failures', async t => {
  for (const [answer, failure] of [
    ['SSH-2.0-OpenSSH\r\n', 'protocol'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf', 'reset'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal', 'reset'],
    ['', 'reset'],
  ] as const) {
    const { request } = await rawServer(t, socket => socket.end(answer))
    const delivered = await outcome(request)
    t.equal(delivered.type === 'failed' && delivered.error.failure, failure, JSON.stringify(answer))
  }
})

t.test(
  'an answer ends where its framing says so, or where its server closes, and never at a reset',
  async t => {
    const head = 'HTTP/1.1 200 OK\r\n'
    const close = `${head}connection: close\r\n\r\n`
    const end = (how: string) => ({ type: 'end', how })
    const failed = { type: 'failed', error: { failure: 'reset' } }
    const cases: readonly [answer: string, afterEnd: object, afterReset: object][] = [
      [`${head}content-length: 2\r\n\r\nok`, end('framed'), end('framed')],
      [`${head}content-length: 3\r\n\r\nok`, failed, failed],
      [`${head}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`, end('framed'), end('framed')],
      [`${head}transfer-encoding: chunked\r\n\r\n002\r\nok\r\n000\r\n\r\n`, end('framed'), end('framed')],
      [`${head}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n`, failed, failed],
      [`${head}transfer-encoding: chunked\r\n\r\n2\r\nok`, failed, failed],
      [close, end('closed'), failed],
      [`${close}ok`, end('closed'), failed],
      [`${head}\r\nok`, end('closed'), failed],
      ['HTTP/1.0 200 OK\r\n\r\nok', end('closed'), failed],
      [`${head}transfer-encoding: gzip\r\n\r\nok`, end('closed'), failed],
      ['HTTP/1.1 204 No Content\r\n\r\n', end('framed'), end('framed')],
      [head, failed, failed],
      ['', failed, failed],
    ]
    for (const [answer, afterEnd, afterReset] of cases) {
      const ended = await rawServer(t, socket => socket.end(answer))
      t.match(await outcome(ended.request), afterEnd, `${JSON.stringify(answer)}, then the end`)
      const reset = await rawServer(t, socket => socket.write(answer, () => socket.resetAndDestroy()))
      t.match(await outcome(reset.request), afterReset, `${JSON.stringify(answer)}, then a reset`)
    }
  },
)

t.test('interim answers are not told, however many there are and however they are cut', async t => {
  const interim =
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'
  const body = 'HTTP/1.1 100 Continue\r\n\r\n'
  const final = `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  const answer = interim + final
  const { request } = await rawServer(t, async (socket, received) => {
    const cut = Number(/x-cut: (\d+)/.exec(received)?.[1])
    socket.setNoDelay(true)
    socket.write(answer.slice(0, cut))
    await setImmediate()
    await setImmediate()
    socket.write(answer.slice(cut))
  })
  for (let cut = 1; cut < answer.length; cut++) {
    const { inbox } = callInto(transport, { ...request, headers: { 'x-cut': String(cut) } })
    t.match(await inbox.next('the head'), { type: 'head', status: 200 }, `cut at ${cut}`)
    let seen = ''
    let delivered = await inbox.next('the body')
    for (; delivered.type === 'data'; delivered = await inbox.next('the body')) seen += text(delivered.bytes)
    t.strictSame([seen, delivered.type], [body, 'end'], `cut at ${cut}: a body that looks like one passes`)
    await setImmediate()
  }
})

t.test('an answer that stays interim, or never becomes one, is a failure', async t => {
  for (const answer of [
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 103 Early',
    `HTTP/1.1 103 Early Hints\r\nlink: ${'x'.repeat(70_000)}`,
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
  ]) {
    const { request } = await rawServer(t, socket => socket.end(answer))
    t.match(await outcome(request), { type: 'failed' }, answer.slice(0, 40))
  }
})

t.test('headers are relayed byte for byte, and an answer is not unpacked', async t => {
  const seen = new Inbox<string>()
  const { request } = await rawServer(t, (socket, received) => {
    seen.put(received)
    socket.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n')
    const head =
      'HTTP/1.1 200 OK\r\nX-Name: Grü\xffße\r\nset-cookie: a\r\nSet-Cookie: b\r\ncontent-encoding: gzip\r\n'
    socket.write(Buffer.from(`${head}content-length: 3\r\n\r\nraw`, 'latin1'))
  })
  const { inbox } = callInto(transport, {
    ...request,
    headers: { 'X-Trace': ['1', '2'], host: 'model.example' },
  })
  const head = await inbox.next('the head')
  t.match(head, { type: 'head', status: 200 })
  t.same(head.type === 'head' && { ...head.headers }, {
    'x-name': 'Gr\u00fc\u00ff\u00dfe',
    'set-cookie': ['a', 'b'],
    'content-encoding': 'gzip',
    'content-length': '3',
  })
  const data = await inbox.next('the body')
  t.equal(data.type === 'data' && text(data.bytes), 'raw')
  const received = await seen.next('the request')
  t.match(received, /host: model\.example\r\n/i)
  t.match(received, /X-Trace: 1\r\n(?:X-Trace: )?/i)
  t.notMatch(received, /accept-encoding/i)
})

t.test('a call that cannot be written as HTTP fails and reaches nobody', async t => {
  const { request, sockets } = await rawServer(t, socket => socket.write(OK))
  for (const bad of [
    { path: 'no slash' },
    { headers: { 'x-bad': 'a\nb' } },
    { method: 'G T' },
    { origin: 'nowhere' },
  ]) {
    const delivered = await outcome({ ...request, ...bad })
    t.match(delivered, { type: 'failed', info: { wroteRequest: false } }, JSON.stringify(bad))
    t.equal(delivered.type === 'failed' && delivered.error.failure, 'request', JSON.stringify(bad))
  }
  t.equal(sockets.size, 0)
})

t.test('an abort closes the connection to the server at once', async t => {
  const closed = new Inbox<string>()
  const started = new Inbox<Socket>()
  const { request } = await rawServer(t, socket => {
    socket.on('close', () => closed.put('closed'))
    started.put(socket)
  })
  const { call, inbox } = callInto(transport, request)
  await started.next('the request')
  call.abort()
  t.match(await inbox.next('the failure'), { type: 'failed', info: { wroteRequest: true } })
  t.equal(await closed.next('the close'), 'closed')
})

t.test('a connection that cannot be made in time is a failure to connect', async t => {
  const impatient = systemTransport({ clock: systemClock, log: { warn() {} }, connectTimeoutMs: 300 })
  t.teardown(() => impatient.close())
  // A backlog of one that is never accepted: further connections wait for ever. Where the kernel
  // refuses them instead, the outcome is the same.
  const { inbox } = callInto(impatient, { origin: 'http://192.0.2.1:81', method: 'GET', path: '/' })
  const delivered = await inbox.next('the failure')
  t.match(delivered, { type: 'failed', info: { wroteRequest: false } })
  t.equal(delivered.type === 'failed' && delivered.error.failure, 'connect')
})

/** A server of ours, and a client that speaks by hand. */
async function rawClient(t: Test, onExchange: (exchange: HttpExchange) => void) {
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0 }, onExchange)
  const socket = connect(listener.port, '127.0.0.1')
  await once(socket, 'connect')
  socket.on('error', () => {})
  const received = new Inbox<string>()
  socket.on('data', data => received.put(data.toString('latin1')))
  socket.on('close', () => received.put('closed'))
  t.teardown(async () => {
    socket.destroy()
    await listener.close(0)
  })
  return { socket, received, listener }
}

t.test('a client that leaves in the middle of its body ends the body', async t => {
  const bodies = new Inbox<unknown>()
  const begun = new Inbox<string>()
  const { socket } = await rawClient(t, exchange => {
    exchange.readBody(1000).then(bodies.put, bodies.put)
    begun.put('begun')
  })
  socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf')
  await begun.next('the request')
  socket.destroy()
  t.match(await bodies.next('the outcome'), { code: 'HOMING_TRANSPORT_MALFORMED_HTTP' })
})

t.test('a client whose connection breaks in the middle of its body is gone', async t => {
  const bodies = new Inbox<unknown>()
  const begun = new Inbox<string>()
  const { socket } = await rawClient(t, exchange => {
    exchange.readBody(1000).then(bodies.put, bodies.put)
    begun.put('begun')
  })
  socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf')
  await begun.next('the request')
  socket.resetAndDestroy()
  t.match(await bodies.next('the outcome'), { code: 'HOMING_TRANSPORT_CLIENT_GONE' })
})

t.test('a body without a length is bounded as it comes, and the connection is not used again', async t => {
  const { socket, received } = await rawClient(t, exchange => {
    exchange.readBody(10).catch(() => {
      exchange.writeHead(413, {})
      exchange.end()
    })
  })
  socket.write(
    'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nghijkl\r\n',
  )
  const answer = await received.next('the answer')
  t.match(answer, /^HTTP\/1\.1 413 /)
  t.match(answer, /connection: close/i)
  t.equal(await received.next('the close'), 'closed')
})

t.test('an idle connection does not hold up a listener that closes', async t => {
  const { socket, received, listener } = await rawClient(t, exchange => exchange.end())
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  t.match(await received.next('the answer'), /^HTTP\/1\.1 200 /)
  await bounded(listener.close(60_000), 'the listener to close')
  t.equal(await received.next('the close'), 'closed')
})

t.test('a connection whose last answer ends while the listener closes is closed then', async t => {
  const exchanges = new Inbox<HttpExchange>()
  const { socket, received, listener } = await rawClient(t, exchanges.put)
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  const exchange = await exchanges.next('the request')
  exchange.write(bytes('a'))
  const closed = listener.close(60_000)
  exchange.end(bytes('b'))
  await bounded(closed, 'the listener to close')
  let last = await received.next('the rest')
  while (last !== 'closed') last = await received.next('the close')
  t.equal(last, 'closed')
})
