/** HTTP exchanges over a broker: on a real NATS server. */

import { setTimeout as delay } from 'node:timers/promises'
import { systemClock } from '@homing/base'
import { connect } from 'nats'
import t, { type Test } from 'tap'
import { systemTransport, type Transport } from '../src/index.ts'
import { decodeCallPayload, FrameWriter, jsonFrame } from '../src/nats/request-wire.ts'
import { FRAME } from '../src/requests/frames.ts'
import { NatsServer, NO_NATS_SERVER } from '../src/testing.ts'

import {
  Answer,
  atBroker,
  clientOf,
  isReady,
  ORIGIN,
  POST,
  SUBJECT,
  serveWith,
  testHeadBound,
  testRequestPlane,
  text,
  WINDOW_BYTES,
} from './request-plane-world.ts'

t.test('on a NATS server', { skip: NO_NATS_SERVER }, async t => {
  // One connection per process is shared: the library keeps it by the addresses, so two names for one server
  // are two.
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
      ...atBroker(endpoint),
    }
  }
  testRequestPlane(t, asWorld)
  testHeadBound(t, asWorld)

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
      /its headers are too large: they have 5\d{3} bytes, and the NATS broker takes payloads of 4096 bytes/,
    )
    t.match(down.error!.message, /the headers of the answer are too large: they have 5\d{3} bytes/)
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
    const other = await stranger.request(SUBJECT, Uint8Array.of(2, 1, 2, 3), { timeout: 60_000 })
    t.match(text(other.data), /its request plane is of version 2, not 1/)
    for (const payload of [
      new Uint8Array(0),
      Uint8Array.of(1),
      Buffer.concat([Uint8Array.of(1), Buffer.alloc(12), Buffer.from('\x00\x05\x00\x00\x00{"a":')]),
    ]) {
      const answer = await stranger.request(SUBJECT, payload, { timeout: 60_000 })
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
    await serveAsStranger(t, world.nats.address, 'homing.requests.rude', writer => {
      writer.put(FRAME.head, jsonFrame({ status: 200, headers: {} }))
      for (let i = 0; i < 10; i++) writer.put(FRAME.data, Buffer.alloc(1000))
    })
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
    const answers: ((writer: FrameWriter) => void)[] = []
    await serveAsStranger(t, world.nats.address, 'homing.requests.wrong', writer => {
      answers.shift()!(writer)
      writer.put(FRAME.end, Uint8Array.of(0))
    })
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

  t.test('a broker that is not there: calls fail, the first after the time for a connection', async t => {
    const world = await asWorld(t)
    await world.nats.down()
    const client = world.client()
    client.http.setRoute(ORIGIN, { endpoint: world.endpoint, windowBytes: WINDOW_BYTES })
    for (const leastMs of [1500, 0]) {
      const fromMs = systemClock.nowMs()
      const answer = new Answer(client, POST)
      await answer.whenOver
      const tookMs = systemClock.nowMs() - fromMs
      t.match(answer.error!.message, /there is no connection to the NATS broker 127\.0\.0\.1:\d+/)
      t.equal(answer.error!.failure, 'connect')
      t.ok(tookMs >= leastMs, `${tookMs} ms`)
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

/**
 * A server of another make at this subject: it accepts every call with a window of 4,096 bytes, and goes on
 * as `answer` says.
 */
async function serveAsStranger(
  t: Test,
  address: string,
  subject: string,
  answer: (writer: FrameWriter) => void,
): Promise<void> {
  const connection = await connect({ servers: address })
  t.teardown(() => connection.close())
  connection.subscribe(subject, {
    callback(_, { data, reply }) {
      const asked = decodeCallPayload(data)
      if (typeof asked !== 'object') return
      const link = {
        payloadBytesMax: 2 ** 20,
        publish(to: string, payload: Uint8Array): boolean {
          connection.publish(to, payload, { reply: 'nowhere' })
          return true
        },
        subscribe: () => () => {},
      }
      const writer = new FrameWriter(link, asked.call, () => {}, reply)
      writer.put(FRAME.accept, jsonFrame({ windowBytes: 4096 }))
      answer(writer)
    },
  })
  await connection.flush()
}
