/** HTTP exchanges over connections of many calls. What is random is drawn from a printed seed. */

import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { SimulatedClock, seededRandom, systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { systemTransport, type Transport } from '../src/index.ts'
import { FRAME } from '../src/requests/frames.ts'
import { encodeHello, encodeTcpFrame, LINK, TcpFrameReader, tcpPieceBytesMax } from '../src/tcp/tcp-wire.ts'
import { freePort, TcpProxy } from '../src/testing.ts'
import {
  Answer,
  clientOf,
  isReady,
  ORIGIN,
  POST,
  serveWith,
  testHeadBound,
  testRequestPlane,
  text,
  WINDOW_BYTES,
  type World,
} from './request-plane-world.ts'

setFlagsFromString('--expose-gc')
const HELLO = { frameBytesMax: 2 ** 20, streamsMax: 100, windowBytes: 65_536, idleMs: 60_000 }

function transportOf(t: Test, clock = systemClock): Transport {
  const opened = systemTransport({ clock, log: { warn() {} } })
  t.teardown(() => opened.close())
  return opened
}

async function openWorld(t: Test): Promise<World & { readonly proxy: TcpProxy; readonly port: number }> {
  const port = await freePort()
  const proxy = await TcpProxy.start(() => `127.0.0.1:${port}`)
  t.teardown(() => proxy.stop())
  return {
    proxy,
    port,
    endpoint: `tcp://${proxy.address}`,
    serveAt: `tcp://127.0.0.1:${port}`,
    client: () => transportOf(t),
    server: () => transportOf(t),
    down: async () => proxy.down(),
    up: async () => proxy.heal(),
    counts: client => client.tcp,
    unserved: /the connection to 127\.0\.0\.1:\d+ was closed|the worker is stopping/,
  }
}

/** A worker of another make: it hears what a client says, and answers as `answer` says. */
async function stranger(
  t: Test,
  answer: (socket: Socket, stream: number) => void,
  hello: Uint8Array = encodeHello(HELLO),
) {
  const server: Server = createServer(socket => {
    const reader = new TcpFrameReader()
    socket.on('error', () => {})
    socket.on('data', bytes => {
      reader.put(bytes)
      for (let frame = reader.next(); typeof frame === 'object'; frame = reader.next()) {
        if (frame.kind === LINK.hello) reader.frameBytesMax = 2 ** 24
        if (frame.kind === FRAME.open) answer(socket, frame.stream)
      }
    })
    socket.write(hello)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const sockets = new Set<Socket>()
  server.on('connection', socket => sockets.add(socket))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return `tcp://127.0.0.1:${(server.address() as { readonly port: number }).port}`
}

function clientAt(t: Test, endpoint: string, clock = systemClock): Transport {
  const client = transportOf(t, clock)
  client.http.setRoute(ORIGIN, { endpoint, windowBytes: WINDOW_BYTES })
  return client
}

t.test('over TCP', async t => {
  testRequestPlane(t, openWorld)
  testHeadBound(t, openWorld)
})

t.test('all calls of a worker share a connection; one that is read slowly holds no other', async t => {
  const world = await openWorld(t)
  serveWith(t, world, exchange => {
    if (isReady(exchange)) return
    exchange.writeHead(200, {})
    const piece = Buffer.alloc(10_000, 'x')
    const more = exchange.path === '/slow' ? 1000 : 3
    let written = 0
    const goOn = (): void => {
      while (written++ < more) {
        if (exchange.write(piece)) continue
        exchange.onDrain(goOn)
        return
      }
      exchange.end()
    }
    goOn()
  })
  const client = await clientOf(world)
  const slow = new Answer(client, { ...POST, path: '/slow' })
  slow.call.pause()
  while (client.tcp.heldBytes === 0) await delay(2)
  const others = Array.from({ length: 200 }, () => new Answer(client, POST))
  await Promise.all(others.map(({ whenOver }) => whenOver))
  t.ok(others.every(({ bytes, end }) => bytes === 30_000 && end === 'framed'))
  t.ok(client.tcp.heldBytes <= WINDOW_BYTES)
  t.match(client.tcp, { connections: 1, connected: 1, openCalls: 1 })
  slow.call.resume()
  await slow.whenOver
  t.equal(slow.bytes, 10_000_000)
})

t.test('a worker of another version, and one that is none, are named', async t => {
  const newer = encodeTcpFrame(LINK.hello, 0, { protocol: 'homing-requests', version: 2, later: [1] })
  for (const [hello, failure, message] of [
    [newer, 'protocol', /its request plane is of version 2, not 1/],
    [
      Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'),
      'protocol',
      /a frame of 1213486160 bytes came, and 4096 are read/,
    ],
    [encodeTcpFrame(LINK.bye, 0, 1), 'protocol', /it does not say first what it is/],
  ] as const) {
    const client = clientAt(t, await stranger(t, () => {}, hello))
    const answer = new Answer(client, POST)
    await answer.whenOver
    t.match(answer, { error: { failure }, failure: { wroteRequest: false } })
    t.match(answer.error!.message, message)
  }
})

t.test(
  'frames that are damaged, too large, or of no call end the connection, and the next call has a new one',
  async t => {
    const seed = Number(process.env['HOMING_SEED'] ?? 1)
    t.comment(`HOMING_SEED=${seed}`)
    const random = seededRandom(seed)
    const head = (stream: number) => encodeTcpFrame(FRAME.head, stream, { status: 200, headers: {} })
    const tooLong = Buffer.from([0xff, 0xff, 0xff, 0xff])
    const damages: readonly ((socket: Socket, stream: number) => void)[] = [
      socket => void socket.write(tooLong),
      (socket, stream) => void socket.write(encodeTcpFrame(FRAME.end, stream + 7, 0)),
      socket => void socket.write(Buffer.from([0, 0, 0, 1, 0xc1])),
      socket => void socket.write(encodeHello(HELLO)),
      ...Array.from({ length: 50 }, () => (socket: Socket, stream: number) => {
        const bytes = Buffer.concat([head(stream), random.bytes(1 + random.below(200))])
        for (let i = 0; i < 4; i++) bytes[random.below(bytes.length)] = random.below(256)
        socket.end(bytes)
      }),
    ]
    let next = 0
    let isWell = false
    const endpoint = await stranger(t, (socket, stream) => {
      if (isWell) socket.write(Buffer.concat([head(stream), encodeTcpFrame(FRAME.end, stream, 0)]))
      else damages[next++]!(socket, stream)
    })
    const client = clientAt(t, endpoint)
    while (next < damages.length) {
      const answer = new Answer(client, POST)
      await answer.whenOver
      t.ok(answer.error !== undefined, 'it fails')
    }
    isWell = true
    for (;;) {
      const answer = new Answer(client, POST)
      await answer.whenOver
      if (answer.status === 200) break
    }
    t.match(client.tcp, { openCalls: 0, heldBytes: 0, bufferedBytes: 0, partialBytes: 0 })
  },
)

t.test('what is not a router is cut by the server, which goes on', async t => {
  const world = await openWorld(t)
  const server = transportOf(t)
  serveWith(t, { ...world, server: () => server }, exchange => void isReady(exchange), {
    tcp: { connectMsMax: 500 },
  })
  const client = await clientOf(world)
  const seed = Number(process.env['HOMING_SEED'] ?? 1)
  t.comment(`HOMING_SEED=${seed}`)
  const random = seededRandom(seed)
  const hello = encodeHello(HELLO)
  const open = (stream: number, windowBytes = 65_536) =>
    encodeTcpFrame(FRAME.open, stream, { method: 'GET', path: '/x', headers: {}, bodyBytes: 0, windowBytes })
  for (const bytes of [
    Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    Buffer.alloc(0),
    Buffer.concat([hello, Buffer.from([0x7f, 0xff, 0xff, 0xff])]),
    Buffer.concat([hello, open(1, 64)]),
    Buffer.concat([hello, open(2), open(1)]),
    Buffer.concat([hello, encodeTcpFrame(FRAME.head, 1, { status: 200, headers: {} })]),
    Buffer.concat([hello, encodeTcpFrame(FRAME.body, 3, Buffer.from('x'))]),
    encodeTcpFrame(LINK.hello, 0, { protocol: 'homing-requests', version: 9 }),
    ...Array.from({ length: 50 }, () =>
      Buffer.concat([hello, random.bytes(1 + random.below(100)), Buffer.alloc(4, 255)]),
    ),
  ]) {
    const socket = connect(world.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(bytes)
    socket.resume()
    await once(socket, 'close')
  }
  const answer = new Answer(client, { ...POST, path: '/ready' })
  await answer.whenOver
  t.equal(answer.status, 204)
  while (server.tcp.connections > 1) await delay(5)
  t.match(server.tcp, { openExchanges: 0, bufferedBytes: 0, partialBytes: 0 })
})

t.test('a cable that is cut, and a worker that is silent, end their calls after five beats', async t => {
  const world = await openWorld(t)
  const gone: string[] = []
  serveWith(t, world, exchange => {
    if (isReady(exchange)) return
    exchange.onClientGone(reason => gone.push(reason))
    exchange.writeHead(200, {})
    exchange.write(Buffer.from('x'))
  })
  const clock = new SimulatedClock()
  const client = transportOf(t, clock)
  client.http.setRoute(ORIGIN, { endpoint: world.endpoint, windowBytes: WINDOW_BYTES })
  const answer = new Answer(client, POST)
  await answer.received(1)
  for (let i = 0; i < 5; i++) clock.advance(1000)
  t.equal(answer.error, undefined, 'five looks')
  world.proxy.cut()
  await delay(0)
  for (let i = 0; i < 7 && answer.error === undefined; i++) clock.advance(1000)
  await answer.whenOver
  t.match(answer, { error: { failure: 'reset' }, failure: { wroteRequest: true } })
  t.match(answer.error!.message, /nothing was heard from 127\.0\.0\.1:\d+ for 5000 ms/)
  t.equal(client.tcp.ends.silence, 1)
})

t.test('a connection without calls is closed, and a worker that is full refuses unseen', async t => {
  const world = await openWorld(t)
  serveWith(t, world, exchange => void isReady(exchange), { tcp: { streamsMax: 2 } })
  const clock = new SimulatedClock()
  const client = transportOf(t, clock)
  client.http.setRoute(ORIGIN, {
    endpoint: world.endpoint,
    windowBytes: WINDOW_BYTES,
    tcp: { idleMsMax: 2000 },
  })
  const held = [1, 2].map(() => new Answer(client, POST))
  while (client.tcp.connections === 0 || !held.every(({ wasSent }) => wasSent)) await delay(2)
  const more = new Answer(client, POST)
  await more.whenOver
  t.match(more, { error: { failure: 'full' }, failure: { wroteRequest: false } })
  t.match(more.error!.message, /takes 2 calls on a connection/)
  t.equal(client.tcp.refusedStreams, 1)
  for (const { call } of held) call.abort()
  await Promise.all(held.map(({ whenOver }) => whenOver))
  // Fewer beats than silence takes: the server's own clock stands nearly still.
  for (let i = 0; i < 2; i++) clock.advance(1000)
  t.equal(client.tcp.connections, 0)
  t.equal(client.tcp.ends.idle, 1)
})

t.test(
  'more calls than a connection may have are answered with 503, and nothing of them is kept',
  async t => {
    const world = await openWorld(t)
    const server = transportOf(t)
    serveWith(t, { ...world, server: () => server }, () => {}, { tcp: { streamsMax: 2 } })
    const socket = connect(world.port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    const reader = new TcpFrameReader()
    const frames: unknown[] = []
    const over = new Promise<void>(resolve => {
      socket.on('data', bytes => {
        reader.put(bytes)
        for (let frame = reader.next(); typeof frame === 'object'; frame = reader.next()) {
          if (frame.kind === LINK.hello) continue
          frames.push([frame.stream, frame.kind])
          if (frame.kind === FRAME.head) t.match(frame.content, { status: 503 })
          if (frame.kind === FRAME.end) resolve()
        }
      })
    })
    const open = { method: 'GET', path: '/x', headers: {}, bodyBytes: 0, windowBytes: 65_536 }
    socket.write(encodeHello(HELLO))
    for (const stream of [1, 2, 3]) socket.write(encodeTcpFrame(FRAME.open, stream, open))
    await over
    t.strictSame(frames, [
      [3, FRAME.head],
      [3, FRAME.data],
      [3, FRAME.end],
    ])
    t.match(server.tcp, { openExchanges: 2, refusedStreams: 1 })
  },
)

t.test(
  'a frame that comes byte by byte takes about its bytes, and a small rest pins no large frame',
  async t => {
    const gc = runInNewContext('gc') as () => void
    const heldBytes = (): number => {
      for (let i = 0; i < 3; i++) gc()
      const { heapUsed, arrayBuffers } = process.memoryUsage()
      return heapUsed + arrayBuffers
    }
    const bytes = Buffer.alloc(500_000, 'x')
    const frame = Buffer.from(encodeTcpFrame(FRAME.body, 1, bytes))
    const reader = new TcpFrameReader()
    reader.frameBytesMax = 2 ** 20
    const before = heldBytes()
    for (let at = 0; at < frame.length - 1; at++) {
      reader.put(frame.subarray(at, at + 1))
      if (reader.next() !== undefined) t.fail('there is no frame yet')
    }
    const held = heldBytes() - before
    t.ok(held < 4 * 2 ** 20, `${held} bytes are held`)
    t.equal(reader.waitingBytes, frame.length - 1)
    reader.put(Buffer.concat([frame.subarray(-1), frame.subarray(0, 3)]))
    const whole = reader.next() as { readonly content: Uint8Array }
    t.ok(bytes.equals(whole.content))
    t.equal(reader.next(), undefined)
    t.equal(reader.waitingBytes, 3)
    const readers = Array.from({ length: 100 }, () => new TcpFrameReader())
    const beforeRests = heldBytes()
    for (const one of readers) {
      one.frameBytesMax = 2 ** 20
      one.put(Buffer.concat([frame, frame.subarray(0, 3)]))
      if (typeof one.next() !== 'object' || one.next() !== undefined) t.fail('there is one frame')
    }
    const heldRests = heldBytes() - beforeRests
    t.ok(heldRests < 8 * 2 ** 20, `${heldRests} bytes are held for rests`)
  },
)

t.test('a head with two lengths is none, and who has sent one has seen the request', async t => {
  let step = 0
  const endpoint = await stranger(t, (socket, stream) => {
    const headers = step++ === 0 ? { 'content-length': '1', 'Content-Length': '2' } : {}
    socket.write(encodeTcpFrame(FRAME.head, stream, { status: 200, headers }))
    socket.write(encodeTcpFrame(FRAME.failed, stream, { reason: 'it broke', wasSeen: false }))
  })
  const client = clientAt(t, endpoint)
  const two = new Answer(client, POST)
  await two.whenOver
  t.match(two, { status: 0, error: { failure: 'protocol' } })
  t.match(two.error!.message, /its content-length is not a whole number/)
  const seen = new Answer(client, POST)
  await seen.whenOver
  t.match(seen, { status: 200, error: { failure: 'reset' }, failure: { wroteRequest: true } })
})

t.test('a worker that sends more than its credit fails that call alone', async t => {
  const endpoint = await stranger(t, (socket, stream) => {
    socket.write(encodeTcpFrame(FRAME.head, stream, { status: 200, headers: {} }))
    for (let i = 0; i < 10; i++) socket.write(encodeTcpFrame(FRAME.data, stream, Buffer.alloc(10_000)))
  })
  const client = clientAt(t, endpoint)
  const answer = new Answer(client, POST)
  answer.call.pause()
  while (answer.status === 0) await delay(2)
  while (client.tcp.heldBytes < 60_000) await delay(2)
  answer.call.resume()
  await answer.whenOver
  t.equal(answer.error!.failure, 'protocol')
  t.match(answer.error!.message, /it sends more than the 65536 bytes that it may/)
  t.equal(client.tcp.connections, 1, 'the connection is kept')
})

t.test('headers that are larger than the frames of the other side', async t => {
  const endpoint = await stranger(t, () => {}, encodeHello({ ...HELLO, frameBytesMax: 4096 }))
  const answer = new Answer(clientAt(t, endpoint), { ...POST, headers: { 'x-long': 'y'.repeat(5000) } })
  await answer.whenOver
  t.match(answer, { error: { failure: 'request' }, failure: { wroteRequest: false } })
  t.match(answer.error!.message, /its headers are too large: the other side reads frames of 4096 bytes/)
  t.ok(tcpPieceBytesMax(4096) < 4096)
})

t.test('a port that is taken, and an endpoint that is none', async t => {
  const port = await freePort()
  const { http } = transportOf(t)
  const first = http.serve({ endpoint: `tcp://127.0.0.1:${port}` }, () => {})
  t.equal(await first.listening, `tcp://127.0.0.1:${port}`)
  const second = http.serve({ endpoint: `tcp://127.0.0.1:${port}` }, () => {})
  await t.rejects(second.listening, { code: 'HOMING_TRANSPORT_LISTEN' })
  t.throws(() => http.serve({ endpoint: 'ipc:///tmp/x' }, () => {}), { code: 'HOMING_TRANSPORT_ENDPOINT' })
  const closed = http.serve({ endpoint: `tcp://127.0.0.1:${await freePort()}` }, () => {})
  void closed.close(0)
  await t.rejects(closed.listening, { code: 'HOMING_TRANSPORT_LISTEN' })
  const unserved = new Answer(clientAt(t, `tcp://127.0.0.1:${await freePort()}`), POST)
  await unserved.whenOver
  t.match(unserved, { error: { failure: 'connect' }, failure: { wroteRequest: false } })
  t.equal(text(unserved.body), '')
})
