/** HTTP exchanges over a broker: on a network in memory, and on a real NATS server. What is random is drawn from a printed seed. */

import { setTimeout as delay } from 'node:timers/promises'
import { SimulatedClock, seededRandom, systemClock } from '@homing/clock'
import { connect } from 'nats'
import t, { type Test } from 'tap'
import {
  type HttpCall,
  type HttpCallError,
  type HttpFailure,
  type HttpHeaders,
  MemoryNetwork,
  type ServedExchange,
  type ServeOptions,
  systemTransport,
  type Transport,
} from '../src/index.ts'
import { decodeCallPayload, FRAME, FrameWriter, jsonFrame } from '../src/nats/request-wire.ts'
import { NatsServer, NO_NATS_SERVER } from '../src/testing.ts'

const ORIGIN = 'http://10.0.0.1:8000'
const SUBJECT = 'homing.requests.test'
const WINDOW_BYTES = 64 * 1024
const POST = { origin: ORIGIN, method: 'POST', path: '/v1/x?a=1' }
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

interface World {
  readonly endpoint: string
  client(): Transport
  server(): Transport
  down(): Promise<void>
  up(): Promise<void>
}

/** One call, as its handler saw it. */
class Answer {
  readonly call: HttpCall
  status = 0
  headers: HttpHeaders = {}
  bytes = 0
  readonly chunks: Uint8Array[] = []
  error: HttpCallError | undefined
  failure: HttpFailure | undefined
  end: string | undefined
  wasSent = false
  readonly whenOver: Promise<void>
  #onBytes: (() => void) | undefined

  constructor(transport: Transport, request: Parameters<Transport['http']['call']>[0]) {
    let over: () => void
    this.whenOver = new Promise(resolve => {
      over = resolve
    })
    this.call = transport.http.call(request, {
      sent: () => {
        this.wasSent = true
      },
      head: (status, headers) => {
        this.status = status
        this.headers = headers
      },
      data: bytes => {
        this.chunks.push(bytes.slice())
        this.bytes += bytes.length
        this.#onBytes?.()
      },
      end: how => {
        this.end = how
        over()
      },
      failed: (error, info) => {
        this.error = error
        this.failure = info
        over()
      },
    })
  }

  get body(): Buffer {
    return Buffer.concat(this.chunks)
  }

  async received(bytes: number): Promise<void> {
    while (this.bytes < bytes)
      await new Promise<void>(resolve => {
        this.#onBytes = resolve
      })
  }
}

function serveWith(
  t: Test,
  world: World,
  onExchange: (exchange: ServedExchange) => void,
  options: Partial<ServeOptions> = {},
) {
  const served = world.server().http.serve({ endpoint: world.endpoint, ...options }, onExchange)
  t.teardown(() => served.close(0))
  return served
}

/** A client whose requests to ORIGIN go over the broker; a server must be there. */
async function clientOf(world: World, windowBytes = WINDOW_BYTES): Promise<Transport> {
  const client = world.client()
  client.http.setRoute(ORIGIN, { endpoint: world.endpoint, windowBytes })
  for (;;) {
    const asked = new Answer(client, { ...POST, method: 'GET', path: '/ready' })
    await asked.whenOver
    if (asked.status === 204) return client
    await delay(5)
  }
}

/** Answers the question of `clientOf`. True: it was that. */
function isReady(exchange: ServedExchange): boolean {
  if (exchange.path !== '/ready') return false
  exchange.writeHead(204, {})
  exchange.end()
  return true
}

function testRequestPlane(t: Test, open: (t: Test) => Promise<World>): void {
  t.test('a request and its answer arrive as they were sent', async t => {
    const world = await open(t)
    const seen: unknown[] = []
    serveWith(t, world, async exchange => {
      if (isReady(exchange)) return
      const body = await exchange.readBody(1000)
      const { method, path, query, headers } = exchange
      seen.push(
        method,
        path,
        query,
        headers['x-many'],
        headers['x-latin'],
        headers['authorization'],
        text(body),
      )
      exchange.writeHead(201, { 'x-answer': ['a', 'b'], 'content-type': 'text/plain' })
      exchange.write(Buffer.from('one '))
      exchange.end(Buffer.from('two'))
    })
    const client = await clientOf(world)
    client.http.setAccess(ORIGIN, { key: 'of-the-router' })
    const headers = {
      'x-many': ['1', '2'],
      'x-latin': 'caf\xe9',
      authorization: 'Bearer client',
      connection: 'close',
    }
    const answer = new Answer(client, { ...POST, headers, body: Buffer.from('the body') })
    t.equal(answer.wasSent, false, 'nothing is told before the call is there')
    await answer.whenOver
    t.strictSame(seen, ['POST', '/v1/x', 'a=1', ['1', '2'], 'caf\xe9', 'Bearer of-the-router', 'the body'])
    t.match(answer, { status: 201, end: 'framed', wasSent: true, headers: { 'x-answer': ['a', 'b'] } })
    t.equal(text(answer.body), 'one two')
    t.equal(answer.call.usesBody, false)
  })

  t.test(
    'bodies of any length arrive whole in both directions, whatever the payloads of the broker',
    async t => {
      const world = await open(t)
      const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 32))
      t.comment(`SEED=${seed}`)
      const random = seededRandom(seed)
      const up: Uint8Array[] = []
      serveWith(t, world, async exchange => {
        if (isReady(exchange)) return
        const body = await exchange.readBody(2 ** 24)
        up.push(body)
        exchange.writeHead(200, {})
        for (let at = 0; at < body.length; ) {
          const size = 1 + Math.floor(random.next() * 90_000)
          const drained = exchange.write(body.subarray(at, at + size))
          at += size
          if (!drained && !exchange.isClosed) await new Promise<void>(resolve => exchange.onDrain(resolve))
        }
        exchange.end()
      })
      const client = await clientOf(world, 10_000)
      for (const size of [0, 1, 262_000, 3_000_000 + Math.floor(random.next() * 100_000)]) {
        const body = Buffer.from(random.bytes(Math.max(1, size))).subarray(0, size)
        const answer = new Answer(client, { ...POST, body })
        await answer.whenOver
        t.equal(answer.error, undefined)
        t.ok(body.equals(up.at(-1)!), `${size} bytes up`)
        t.ok(body.equals(answer.body), `${size} bytes down`)
      }
    },
  )

  t.test('a client that takes nothing stops its server within the window', async t => {
    const world = await open(t)
    let written = 0
    let exchanges = 0
    const stopped = new Promise<void>(resolve => {
      serveWith(t, world, exchange => {
        if (isReady(exchange)) return
        exchanges++
        exchange.writeHead(200, {})
        const piece = Buffer.alloc(1000, 'x')
        const goOn = (): void => {
          while (written < 1_000_000) {
            written += piece.length
            if (exchange.write(piece)) continue
            exchange.onDrain(goOn)
            resolve()
            return
          }
          exchange.end()
        }
        goOn()
      })
    })
    const client = await clientOf(world)
    const counts = new Map(client.brokers()).get(new URL(world.endpoint).host)!
    const before = { ...counts.endedCalls }
    const answer = new Answer(client, POST)
    answer.call.pause()
    await stopped
    await delay(100)
    t.ok(written <= WINDOW_BYTES, `${written} bytes were written`)
    t.equal(answer.bytes, 0)
    t.ok(counts.heldBytes > 0 && counts.heldBytes <= WINDOW_BYTES, `${counts.heldBytes} bytes wait`)
    t.match(counts, { isConnected: true, openCalls: 1, lostMessages: 0 })
    const left = new Answer(client, POST)
    left.call.pause()
    left.call.abort()
    await left.whenOver
    answer.call.resume()
    await answer.whenOver
    t.match(counts, {
      openCalls: 0,
      heldBytes: 0,
      endedCalls: { answered: before.answered + 1, failed: before.failed, aborted: before.aborted + 1 },
    })
    t.match({ ...answer, bytes: answer.bytes, exchanges }, { bytes: 1_000_000, end: 'framed', exchanges: 1 })
  })

  t.test('who leaves is noticed by the server, at once or when the request is accepted', async t => {
    const world = await open(t)
    const gone: string[] = []
    let onGone: (() => void) | undefined
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      exchange.onClientGone(reason => {
        gone.push(`${exchange.path} ${reason}`)
        onGone?.()
      })
      exchange.writeHead(200, {})
      exchange.write(Buffer.from('x'))
    })
    const client = await clientOf(world)
    for (const path of ['/in-mid-answer', '/early']) {
      const told = new Promise<void>(resolve => {
        onGone = resolve
      })
      const answer = new Answer(client, { ...POST, path })
      if (path === '/early') await Promise.resolve()
      else await answer.received(1)
      answer.call.abort()
      await answer.whenOver
      t.equal(answer.error!.failure, 'aborted')
      await told
    }
    t.strictSame(gone, ['/in-mid-answer left', '/early left'])
  })

  t.test('nobody serves it: the call fails at once, and cannot have been seen', async t => {
    const world = await open(t)
    const served = serveWith(t, world, exchange => void isReady(exchange))
    const client = await clientOf(world)
    await served.close(0)
    const answer = new Answer(client, POST)
    await answer.whenOver
    t.match(answer, {
      error: { failure: 'connect' },
      failure: { wroteRequest: false, reusedConnection: false },
    })
    t.match(answer.error!.message, /nobody serves homing\.requests\.test/)
  })

  t.test('a server that cuts its answer, and one whose source was closed', async t => {
    const world = await open(t)
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      exchange.writeHead(200, {})
      exchange.write(Buffer.from('some'))
      if (exchange.path === '/cut') exchange.destroy()
      else exchange.end(undefined, 'closed')
    })
    const client = await clientOf(world)
    const cut = new Answer(client, { ...POST, path: '/cut' })
    await cut.whenOver
    t.match(cut, { error: { failure: 'reset' }, failure: { wroteRequest: true } })
    t.match(cut.error!.message, /the worker cut the answer/)
    const closed = new Answer(client, { ...POST, path: '/closed' })
    await closed.whenOver
    t.equal(closed.end, 'closed')
  })

  t.test('a body that is too large is refused before it is sent', async t => {
    const world = await open(t)
    const errors: string[] = []
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      exchange.readBody(1000).catch((error: { readonly code: string }) => {
        errors.push(error.code)
        exchange.writeHead(413, {})
        exchange.end()
      })
    })
    const client = await clientOf(world)
    for (const size of [1001, 5_000_000]) {
      const answer = new Answer(client, { ...POST, body: Buffer.alloc(size) })
      await answer.whenOver
      t.equal(answer.status, 413)
    }
    t.strictSame(errors, Array(2).fill('HOMING_TRANSPORT_BODY_TOO_LARGE'))
  })

  t.test('more requests than a server takes are answered with 503', async t => {
    const world = await open(t)
    const held: ServedExchange[] = []
    serveWith(t, world, exchange => void (isReady(exchange) || held.push(exchange)), { callsMax: 2 })
    const client = await clientOf(world)
    const answers = [1, 2, 3].map(() => new Answer(client, POST))
    await answers[2]!.whenOver
    t.equal(answers[2]!.status, 503)
    t.match(text(answers[2]!.body), /cannot take another request: 2 are open/)
    for (const exchange of held) {
      exchange.writeHead(200, {})
      exchange.end()
    }
    await Promise.all(answers.map(({ whenOver }) => whenOver))
    t.equal(answers[0]!.status, 200)
  })

  t.test('the broker dies in mid-answer: both sides hear it, and calls go on when it is back', async t => {
    const world = await open(t)
    let onGone: (() => void) | undefined
    const gone = new Promise<void>(resolve => {
      onGone = resolve
    })
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      if (exchange.path === '/long') exchange.onClientGone(() => onGone!())
      exchange.writeHead(200, {})
      exchange.write(Buffer.from('x'))
      if (exchange.path !== '/long') exchange.end()
    })
    const client = await clientOf(world)
    const answer = new Answer(client, { ...POST, path: '/long' })
    await answer.received(1)
    await world.down()
    await Promise.all([answer.whenOver, gone])
    t.match(answer, { error: { failure: 'reset' }, failure: { wroteRequest: true } })
    const [during] = [new Answer(client, POST)]
    await during.whenOver
    t.match(during, { error: { failure: 'connect' }, failure: { wroteRequest: false } })
    await world.up()
    for (;;) {
      const after = new Answer(client, POST)
      await after.whenOver
      if (after.status === 200) break
      t.equal(after.error!.failure, 'connect')
      await delay(20)
    }
  })

  t.test('a server that drains ends what it has, and takes nothing more', async t => {
    const world = await open(t)
    const held: ServedExchange[] = []
    const served = serveWith(t, world, exchange => void (isReady(exchange) || held.push(exchange)))
    const client = await clientOf(world)
    const answer = new Answer(client, POST)
    while (held.length === 0) await delay(2)
    const closed = served.close(60_000)
    const late = new Answer(client, POST)
    await late.whenOver
    t.equal(late.error!.failure, 'connect')
    held[0]!.writeHead(200, {})
    held[0]!.end(Buffer.from('whole'))
    await closed
    await answer.whenOver
    t.equal(text(answer.body), 'whole')
  })
}

t.test('in memory', async t => {
  testRequestPlane(t, async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock, latencyMs: 1 })
    const timer = setInterval(() => clock.advance(5), 1)
    t.teardown(() => clearInterval(timer))
    const transport = (): Transport => {
      const opened = network.transport()
      t.teardown(() => opened.close())
      return opened
    }
    const endpoint = `nats://127.0.0.1:4222/${SUBJECT}`
    return {
      endpoint,
      client: transport,
      server: transport,
      down: async () => network.disconnect(endpoint),
      up: async () => network.reconnect(endpoint),
    }
  })

  t.test('a server that hangs, or a client that is silent, is gone after five seconds', async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock })
    const endpoint = `nats://a:1/${SUBJECT}`
    const [client, server] = [network.transport(), network.transport()]
    const gone: string[] = []
    server.http.serve({ endpoint }, exchange => {
      exchange.onClientGone(reason => gone.push(reason))
      exchange.writeHead(200, {})
      exchange.write(Buffer.from('x'))
    })
    client.http.setRoute(ORIGIN, { endpoint, windowBytes: WINDOW_BYTES })
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < ms / 100; i++) {
        clock.advance(100)
        await delay(0)
      }
    }
    await pass(100)
    const answer = new Answer(client, POST)
    await pass(60_000)
    t.equal(answer.error, undefined, 'who has nothing to say is alive')
    network.faults.message = subject => (/INBOX/.test(subject) ? 'drop' : 'deliver')
    await pass(4_000)
    t.equal(answer.error, undefined)
    await pass(3_000)
    t.match(answer.error!.message, /nothing was heard from homing\.requests\.test for 5000 ms/)
    t.strictSame(gone, ['left'])
  })

  t.test('a payload that was lost ends the call', async t => {
    const clock = new SimulatedClock()
    const network = new MemoryNetwork({ clock })
    const endpoint = `nats://a:1/${SUBJECT}`
    const [client, server] = [network.transport(), network.transport()]
    let isLost = false
    network.faults.message = (_, [payload]) => {
      const frames = decodeCallPayload(payload!)
      const isData = typeof frames === 'object' && frames.frames[0]?.kind === 7
      if (!isData || isLost) return 'deliver'
      isLost = true
      return 'drop'
    }
    server.http.serve({ endpoint }, async exchange => {
      exchange.writeHead(200, {})
      for (let i = 0; i < 3; i++) {
        await delay(1)
        exchange.write(Buffer.from('x'))
      }
    })
    client.http.setRoute(ORIGIN, { endpoint, windowBytes: WINDOW_BYTES })
    const answer = new Answer(client, POST)
    await answer.whenOver
    t.match(answer.error!.message, /1 payloads of the answer were lost/)
    t.equal(answer.error!.failure, 'reset')
  })
})

t.test('on a NATS server', { skip: NO_NATS_SERVER }, async t => {
  // One connection per process is shared: the library keeps it by the addresses, so two names for one server are two.
  const realWorld = async (t: Test, configuration: readonly string[] = []) => {
    const server = await NatsServer.start({ configuration })
    t.teardown(() => server.stop())
    const transport = (): Transport => {
      const opened = systemTransport({ clock: systemClock, log: { warn() {} } })
      t.teardown(() => opened.close())
      return opened
    }
    return {
      server,
      endpoint: server.endpoint(SUBJECT),
      client: transport,
      server_: server,
    }
  }
  const asWorld = async (t: Test, configuration: readonly string[] = []) => {
    const { server, endpoint, client } = await realWorld(t, configuration)
    return {
      nats: server,
      endpoint,
      client,
      server: client,
      down: () => server.down(),
      up: () => server.up(),
    }
  }
  testRequestPlane(t, asWorld)

  t.test('with payloads of 4096 bytes', async t =>
    testRequestPlane(t, t => asWorld(t, ['max_payload: 4096', 'max_pending: 1048576'])),
  )

  t.test('headers that are larger than the payloads of the broker', async t => {
    const world = await asWorld(t, ['max_payload: 4096'])
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      exchange.writeHead(200, { 'x-long': 'y'.repeat(5000) })
      exchange.end()
    })
    const client = await clientOf(world)
    const up = new Answer(client, { ...POST, headers: { 'x-long': 'y'.repeat(5000) } })
    const down = new Answer(client, POST)
    await Promise.all([up.whenOver, down.whenOver])
    t.match(up, { error: { failure: 'request' }, failure: { wroteRequest: false } })
    t.match(
      up.error!.message,
      /its headers have 5\d{3} bytes, and the NATS broker takes payloads of 4096 bytes/,
    )
    t.match(down.error!.message, /the headers of the answer are larger than what the NATS broker takes/)
  })

  t.test('a reason that is longer than the payloads of the broker is told as far as it fits', async t => {
    const world = await asWorld(t, ['max_payload: 4096'])
    serveWith(
      t,
      world,
      exchange => void (isReady(exchange) || exchange.destroy(`because ${'y'.repeat(9000)}`)),
    )
    const answer = new Answer(await clientOf(world), POST)
    await answer.whenOver
    t.match(answer, { error: { failure: 'reset' } })
    t.match(answer.error!.message, /because yyy/)
  })

  t.test('another version, and what is nothing of ours, is refused on both sides', async t => {
    const world = await asWorld(t)
    const served: string[] = []
    serveWith(t, world, exchange => {
      if (!isReady(exchange)) served.push(exchange.path)
    })
    await clientOf(world)
    const stranger = await connect({ servers: world.nats.address })
    t.teardown(() => stranger.close())
    const other = await stranger.request(SUBJECT, Uint8Array.of(2, 1, 2, 3), { timeout: 5000 })
    t.match(text(other.data), /its request plane is of version 2, not 1/)
    for (const payload of [
      new Uint8Array(0),
      Uint8Array.of(1),
      Buffer.concat([Uint8Array.of(1), Buffer.alloc(12), Buffer.from('\x00\x05\x00\x00\x00{"a":')]),
    ]) {
      const answer = await stranger.request(SUBJECT, payload, { timeout: 5000 })
      t.match(text(answer.data), /it is no request|its request cannot be read/)
    }
    t.strictSame(served, [])

    stranger.subscribe('homing.requests.newer', {
      callback: (_, message) => void message.respond(Uint8Array.of(2, 0)),
    })
    await stranger.flush()
    const client = world.client()
    client.http.setRoute(ORIGIN, {
      endpoint: world.nats.endpoint('homing.requests.newer'),
      windowBytes: 4096,
    })
    const answer = new Answer(client, POST)
    await answer.whenOver
    t.equal(answer.error!.failure, 'protocol')
    t.match(answer.error!.message, /its request plane is of version 2, not 1/)
  })

  t.test('a server that sends more than it may is cut, before it fills the memory of its client', async t => {
    const world = await asWorld(t)
    const stranger = await connect({ servers: world.nats.address })
    t.teardown(() => stranger.close())
    stranger.subscribe('homing.requests.rude', {
      callback(_, { data, reply }) {
        const asked = decodeCallPayload(data)
        if (typeof asked !== 'object') return
        const link = {
          payloadBytesMax: 2 ** 20,
          publish(subject: string, payload: Uint8Array): boolean {
            stranger.publish(subject, payload, { reply: 'nowhere' })
            return true
          },
          subscribe: () => () => {},
        }
        const writer = new FrameWriter(link, asked.call, () => {}, reply)
        writer.put(FRAME.accept, jsonFrame({ windowBytes: 4096 }))
        writer.put(FRAME.head, jsonFrame({ status: 200, headers: {} }))
        for (let i = 0; i < 10; i++) writer.put(FRAME.data, Buffer.alloc(1000))
      },
    })
    await stranger.flush()
    const client = world.client()
    client.http.setRoute(ORIGIN, { endpoint: world.nats.endpoint('homing.requests.rude'), windowBytes: 4096 })
    const answer = new Answer(client, POST)
    answer.call.pause()
    while (answer.status === 0) await delay(2)
    answer.call.resume()
    await answer.whenOver
    t.equal(answer.error!.failure, 'protocol')
    t.match(answer.error!.message, /it sends more than the 4096 bytes that it may/)
    t.equal(answer.bytes, 3000, 'what came within the window is passed')
  })

  t.test('an answer that is no HTTP fails its call as one over a socket does', async t => {
    const world = await asWorld(t)
    const stranger = await connect({ servers: world.nats.address })
    t.teardown(() => stranger.close())
    const answers: ((writer: FrameWriter) => void)[] = []
    stranger.subscribe('homing.requests.wrong', {
      callback(_, { data, reply }) {
        const asked = decodeCallPayload(data)
        if (typeof asked !== 'object') return
        const link = {
          payloadBytesMax: 2 ** 20,
          publish(subject: string, payload: Uint8Array): boolean {
            stranger.publish(subject, payload, { reply: 'nowhere' })
            return true
          },
          subscribe: () => () => {},
        }
        const writer = new FrameWriter(link, asked.call, () => {}, reply)
        writer.put(FRAME.accept, jsonFrame({ windowBytes: 4096 }))
        answers.shift()!(writer)
        writer.put(FRAME.end, Uint8Array.of(0))
      },
    })
    await stranger.flush()
    const client = world.client()
    client.http.setRoute(ORIGIN, {
      endpoint: world.nats.endpoint('homing.requests.wrong'),
      windowBytes: 4096,
    })
    const answered = async (status: unknown, headers: unknown, body = '', method = 'POST') => {
      answers.push(writer => {
        writer.put(FRAME.head, jsonFrame({ status, headers }))
        if (body !== '') writer.put(FRAME.data, Buffer.from(body))
      })
      const answer = new Answer(client, { ...POST, method })
      await answer.whenOver
      return answer
    }
    for (const [status, headers, told] of [
      [99, {}, /its status 99 is not a whole number from 200 to 599/],
      [101, {}, /its status 101 is not/],
      [600, {}, /its status 600 is not/],
      [1000, {}, /its status 1000 is not/],
      [200.5, {}, /its status 200.5 is not/],
      ['200', {}, /its status "200" is not/],
      [200, { 'x a': '1' }, /its header name "x a" is not/],
      [200, { 'x\r\ny': '1' }, /its header name "x\\r\\ny" is not/],
      [200, { '': '1' }, /its header name "" is not/],
      [200, { 'x-a': '1\r\nset-cookie: 2' }, /its header x-a has characters that/],
      [200, { 'x-a': ['1', 'caf\u20ac'] }, /its header x-a has characters that/],
      [200, { 'x-a': 1 }, /its header x-a is not text/],
      [200, { 'x-a': 'y'.repeat(70_000) }, /its headers have more than 65536 bytes/],
      [200, 'none', /its headers are no object/],
      [200, { 'content-length': '1e1' }, /its content-length is not a whole number/],
      [200, { 'content-length': ['1', '2'] }, /its content-length is not a whole number/],
    ] as const) {
      const { error, status: told_ } = await answered(status, headers)
      t.equal(error?.failure, 'protocol', JSON.stringify([status, headers]).slice(0, 80))
      t.match(error?.message, told)
      t.equal(told_, 0, 'its caller hears nothing of the head')
    }
    const short = await answered(200, { 'Content-Length': '5' }, 'four')
    t.equal(short.error?.failure, 'protocol')
    t.match(short.error?.message, /it ends 1 bytes before its content-length/)
    const long = await answered(200, { 'content-length': '3' }, 'four')
    t.equal(long.error?.failure, 'protocol')
    t.match(long.error?.message, /it is longer than its content-length/)
    const head = await answered(200, { 'content-length': '3' }, '', 'HEAD')
    t.match(head, { status: 200, end: 'framed' })
    const right = await answered(200, { 'X-A': '1', 'x-a': ['2', '3'], 'Content-Length': '4' }, 'four')
    t.match(right, { status: 200, end: 'framed' })
    t.strictSame({ ...right.headers }, { 'x-a': ['1', '2', '3'], 'content-length': '4' })
  })

  t.test('a window through which nothing fits is refused on both sides', async t => {
    const world = await asWorld(t)
    const refused = {
      name: 'RangeError',
      message: /cannot let 64 bytes be on the way: use a whole number from 4096/,
    }
    const { http } = world.client()
    t.throws(() => http.serve({ endpoint: world.endpoint, windowBytes: 64 }, () => {}), refused)
    t.throws(() => http.setRoute(ORIGIN, { endpoint: world.endpoint, windowBytes: 64 }), refused)

    const stranger = await connect({ servers: world.nats.address })
    t.teardown(() => stranger.close())
    const linkTo = (reply?: string) => ({
      payloadBytesMax: 2 ** 20,
      publish(subject: string, payload: Uint8Array): boolean {
        stranger.publish(subject, payload, { reply: reply ?? 'nowhere' })
        return true
      },
      subscribe: () => () => {},
    })
    stranger.subscribe('homing.requests.narrow', {
      callback(_, { data, reply }) {
        const asked = decodeCallPayload(data)
        if (typeof asked !== 'object') return
        new FrameWriter(linkTo(), asked.call, () => {}, reply).put(
          FRAME.accept,
          jsonFrame({ windowBytes: 64 }),
        )
      },
    })
    await stranger.flush()
    http.setRoute(ORIGIN, { endpoint: world.nats.endpoint('homing.requests.narrow'), windowBytes: 4096 })
    const answer = new Answer({ http } as Transport, { ...POST, body: Buffer.alloc(2 ** 19) })
    await answer.whenOver
    t.equal(answer.error!.failure, 'protocol')
    t.match(answer.error!.message, /it cannot be accepted so, with windowBytes 64/)

    serveWith(t, world, exchange => void isReady(exchange))
    await clientOf(world)
    const told = new Promise<string>(resolve => {
      stranger.subscribe('narrow.inbox', { callback: (_, { data }) => resolve(text(data)) })
    })
    await stranger.flush()
    const open = { method: 'GET', path: '/', headers: {}, bodyBytes: 0, windowBytes: 64 }
    new FrameWriter(linkTo('narrow.inbox'), '00'.repeat(8), () => {}, SUBJECT).put(
      FRAME.open,
      jsonFrame(open),
    )
    t.match(await told, /its request cannot be read/)
  })

  t.test('a server tells its client what is wrong with the head that it was given', async t => {
    const world = await asWorld(t)
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      exchange.writeHead(99, {})
      exchange.end()
    })
    const answer = new Answer(await clientOf(world), POST)
    await answer.whenOver
    t.match(answer, { error: { failure: 'reset' } })
    t.match(answer.error!.message, /its status 99 is not a whole number from 200 to 599/)
  })

  t.test('a broker that is not there: calls fail after two seconds, then at once', async t => {
    const world = await asWorld(t)
    await world.nats.down()
    const client = world.client()
    client.http.setRoute(ORIGIN, { endpoint: world.endpoint, windowBytes: WINDOW_BYTES })
    for (const [least, most] of [
      [1500, 10_000],
      [0, 1000],
    ] as const) {
      const fromMs = systemClock.nowMs()
      const answer = new Answer(client, POST)
      await answer.whenOver
      const tookMs = systemClock.nowMs() - fromMs
      t.match(answer.error!.message, /there is no connection to the NATS broker 127\.0\.0\.1:\d+/)
      t.equal(answer.error!.failure, 'connect')
      t.ok(tookMs >= least && tookMs < most, `${tookMs} ms`)
    }
  })

  t.test('of two servers under one subject one takes each request, and both warn, once', async t => {
    const warnings: string[] = []
    const real = await asWorld(t)
    const server = (): Transport => {
      const log = { warn: (_: unknown, words: string) => void warnings.push(words) }
      const opened = systemTransport({ clock: systemClock, log })
      t.teardown(() => opened.close())
      return opened
    }
    const world = { ...real, server }
    const served: string[] = []
    for (const name of ['first', 'second'])
      serveWith(t, world, exchange => {
        if (isReady(exchange)) return
        served.push(name)
        exchange.writeHead(200, {})
        exchange.end()
      })
    const client = await clientOf(world)
    const answers = Array.from({ length: 40 }, () => new Answer(client, POST))
    await Promise.all(answers.map(({ whenOver }) => whenOver))
    t.ok(answers.every(({ status }) => status === 200))
    t.equal(served.length, 40)
    t.strictSame(
      warnings.map(words => words.split(':')[0]),
      Array(2).fill('another process serves the same subject'),
    )
  })
})
