/**
 * Requests that a program answers over a broker: the whole way from a client's call to the handler and back,
 * on a network in memory.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { SimulatedClock } from '@homing/base'
import {
  BodyTooLargeError,
  ClientGoneError,
  type HttpCallError,
  type HttpTransport,
  MalformedHttpError,
  MemoryNetwork,
  type ServedExchange,
} from '@homing/transport'
import t, { type Test } from 'tap'
import {
  type RequestHandler,
  registerWorker,
  type ServeRequests,
  type WorkerAnswer,
} from '../../src/index.ts'

const NATS = 'nats://b:4222'
const ENDPOINT = 'nats://b:4222/homing.requests.10_0_0_1_8000'
const ORIGIN = 'http://10.0.0.1:8000'

/** `usesBody`: what calls of an engine say; undefined: as it is. */
function worldOf(t: Test, serve: ServeRequests, usesBody?: () => boolean) {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const timer = setInterval(() => clock.advance(10), 1)
  t.teardown(() => clearInterval(timer))
  const warnings: unknown[] = []
  const log = { warn: (fields: unknown) => void warnings.push(fields) }
  const worker = network.transport()
  const lending: HttpTransport = {
    ...worker.http,
    call(request, handler) {
      const call = worker.http.call(request, handler)
      return usesBody === undefined ? call : Object.defineProperty(call, 'usesBody', { get: usesBody })
    },
  }
  const transport = { ...worker, http: lending }
  const registered = registerWorker({ url: ORIGIN, nats: [NATS], serve, log, transport })
  const client = network.transport()
  t.teardown(() => {
    client.close()
    worker.close()
  })
  client.http.setRoute(ORIGIN, { endpoint: ENDPOINT, windowBytes: 4096 })
  const ask = async (path = '/', body?: Uint8Array) => {
    // Until it serves.
    for (;;) {
      const request = { origin: ORIGIN, method: 'POST', path, ...(body === undefined ? {} : { body }) }
      const reply = await client.http.fetch(request, { timeoutMs: 60_000 }).catch((e: HttpCallError) => e)
      if (!(reply instanceof Error)) return { ...reply, text: Buffer.from(reply.body).toString() }
      if (reply.failure !== 'connect') throw reply
      await delay(1)
    }
  }
  return { network, client, registered, warnings, ask }
}

t.test('a handler gets the request and gives pieces of any kind', async t => {
  const seen: unknown[] = []
  const { ask } = worldOf(t, {
    async handler({ method, path, headers, body }) {
      seen.push(method, path, headers['authorization'], Buffer.from(body).toString())
      if (path === '/none') return { status: 204 }
      if (path === '/text') return { status: 201, headers: { 'x-a': ['1', '2'] }, body: 'caf\xe9' }
      return {
        status: 200,
        body: (async function* () {
          yield 'data: 1\n\n'
          yield Buffer.from('data: 2\n\n')
        })(),
      }
    },
  })
  t.match(await ask('/none'), { status: 204, text: '' })
  t.match(await ask('/text?q=1'), { status: 200 })
  t.match(await ask('/text'), { status: 201, text: 'caf\xe9', headers: { 'x-a': ['1', '2'] } })
  t.equal((await ask('/stream', Buffer.from('hello'))).text, 'data: 1\n\ndata: 2\n\n')
  t.strictSame(seen.slice(0, 4), ['POST', '/none', undefined, ''])
  t.strictSame(seen.slice(-4), ['POST', '/stream', undefined, 'hello'])
})

t.test('a handler that throws: 500 before its first piece, a cut answer afterwards', async t => {
  const handler: RequestHandler = ({ path }) => {
    if (path === '/early') throw new Error('no such model')
    return {
      status: 200,
      body: (async function* () {
        yield 'some'
        throw new Error('out of memory')
      })(),
    }
  }
  const { ask, warnings } = worldOf(t, { handler })
  const early = await ask('/early')
  t.equal(early.status, 500)
  t.match(JSON.parse(early.text), {
    error: { message: 'the handler of the worker failed: no such model', type: 'server_error' },
  })
  await t.rejects(ask('/late'), { failure: 'reset', message: /the worker cut the answer/ })
  t.match(warnings, [{ reason: 'no such model' }, { reason: 'out of memory' }])
})

t.test('a head that HTTP cannot carry is the fault of the handler', async t => {
  const heads: [unknown, unknown, RegExp][] = [
    [99, {}, /its status 99 is not a whole number from 200 to 599/],
    [undefined, {}, /its status undefined is not/],
    [200, { 'x a': '1' }, /its header name "x a" is not/],
    [200, { 'x-a': '1\n2' }, /its header x-a has characters that/],
    [200, { 'content-length': 5 }, /its header content-length is not text/],
  ]
  let next: [unknown, unknown] = [200, {}]
  const { ask, warnings } = worldOf(t, {
    handler: () => ({ status: next[0], headers: next[1], body: 'some' }) as WorkerAnswer,
  })
  for (const [status, headers, told] of heads) {
    next = [status, headers]
    const answer = await ask()
    t.equal(answer.status, 500)
    t.match(JSON.parse(answer.text).error.message, told)
    t.match(warnings.at(-1), { reason: told })
  }
  next = [200, { 'Content-Type': 'text/event-stream', 'x-none': undefined }]
  t.match(await ask(), { status: 200, text: 'some', headers: { 'content-type': 'text/event-stream' } })
})

t.test('a body of another length than its head says is the fault of the handler', async t => {
  const { ask, warnings } = worldOf(t, {
    handler: ({ path }) => ({
      status: path === '/none' ? 204 : 200,
      headers: { 'Content-Length': path === '/right' ? '5' : '4' },
      body: path === '/none' ? '' : 'caf\xe9',
    }),
  })
  const wrong = await ask('/')
  t.equal(wrong.status, 500)
  t.match(JSON.parse(wrong.text).error.message, /its body has 5 bytes, and its content-length says 4/)
  t.match(warnings, [{ reason: /its body has 5 bytes/ }])
  t.match(await ask('/right'), { status: 200, text: 'caf\xe9' })
  t.equal((await ask('/none')).status, 204)
})

t.test('a client that leaves aborts the signal, and ends the pieces', async t => {
  const told: string[] = []
  let aborted: () => void = () => {}
  const whenAborted = new Promise<void>(resolve => {
    aborted = resolve
  })
  const { ask, client } = worldOf(t, {
    handler: ({ path, signal }) => {
      if (path === '/') return { status: 200 }
      signal.addEventListener('abort', () => {
        told.push('aborted')
        aborted()
      })
      return {
        status: 200,
        body: (async function* () {
          try {
            for (;;) {
              yield 'token '
              await delay(1)
            }
          } finally {
            told.push('ended')
          }
        })(),
      }
    },
  })
  await ask()
  await new Promise<void>(resolve => {
    const call = client.http.call(
      { origin: ORIGIN, method: 'POST', path: '/endless' },
      { head() {}, data: () => call.abort(), end() {}, failed: () => resolve() },
    )
  })
  await whenAborted
  while (told.length < 2) await delay(1)
  t.strictSame(told, ['aborted', 'ended'])
})

t.test('pieces are asked for no faster than the client takes them', async t => {
  let given = 0
  const { ask, client } = worldOf(t, {
    handler: ({ path }) =>
      path === '/'
        ? { status: 200 }
        : {
            status: 200,
            body: (async function* () {
              for (; given < 1000; given++) yield Buffer.alloc(100)
            })(),
          },
  })
  await ask()
  let received = 0
  let end = (): void => {}
  const ended = new Promise<void>(resolve => {
    end = resolve
  })
  const call = client.http.call(
    { origin: ORIGIN, method: 'POST', path: '/long' },
    {
      head() {},
      data(bytes) {
        received += bytes.length
      },
      end,
      failed: end,
    },
  )
  call.pause()
  while (given === 0) await delay(1)
  // A piece requested too early would be requested soon.
  await delay(50)
  t.ok(given > 0 && given <= 4096 / 100, `${given} pieces were asked for`)
  call.resume()
  await ended
  t.equal(received, 100_000)
})

t.test('a body that is too large, and the end of a worker', async t => {
  let answerOne: () => void = () => {}
  const held = new Promise<void>(resolve => {
    answerOne = resolve
  })
  const { ask, registered, network } = worldOf(t, {
    bodyBytesMax: 10,
    handler: async ({ path }) => {
      if (path === '/held') await held
      return { status: 200, body: 'whole' }
    },
  })
  const large = await ask('/', Buffer.alloc(11))
  t.equal(large.status, 413)
  t.match(large.text, /it has more than 10 bytes/)
  const open = ask('/held')
  while (registered.openRequests === 0) await delay(1)
  let isPresent = false
  const gone: string[] = []
  network.transport().messages.present(
    { endpoint: 'nats://b:4222/homing.workers.default', card: undefined },
    {
      present() {
        isPresent = true
      },
      gone: (_, reason) => void gone.push(reason),
    },
  )
  while (!isPresent) await delay(1)
  const closed = registered.close(600_000)
  answerOne()
  t.equal((await open).text, 'whole', 'what is open is answered')
  await closed
  t.strictSame(gone, ['bye'])
})

t.test('limits and engines that cannot be meant are refused at once, with what would be right', async t => {
  const handler: RequestHandler = () => ({ status: 200 })
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const window = 'a whole number from 4096 to 1073741824'
  for (const [serve, told] of [
    [{ handler, windowBytes: 64 }, `windowBytes "64": use ${window}`],
    [{ handler, windowBytes: 4096.5 }, `windowBytes "4096.5": use ${window}`],
    [{ handler, windowBytes: 2 ** 31 }, `windowBytes "2147483648": use ${window}`],
    [{ handler, windowBytes: '1 MiB' }, `windowBytes "1 MiB": use ${window}`],
    [{ handler, callsMax: 0 }, 'callsMax "0": use a whole number from 1 to 1000000'],
    [{ handler, bodyBytesMax: -1 }, 'bodyBytesMax "-1": use a whole number from 1 to 1073741824'],
    [
      { handler, bodyBytesMax: 1000, bodiesBytesMax: 999 },
      'bodiesBytesMax "999": use a whole number from 1000 to 1099511627776',
    ],
    [{ handler, bodySilenceMsMax: 999 }, 'bodySilenceMsMax "999": use a whole number from 1000 to 86400000'],
    [{ handler: 'no function' }, 'serve "{\\"handler\\":\\"no function\\"}": use a handler or an engine'],
    [
      { engine: 'localhost:8000' },
      'the engine "localhost:8000": use http://host:port, or https, and a path without /v1',
    ],
    [{ engine: 'http://127.0.0.1:8000/v1' }, 'the engine "http://127.0.0.1:8000/v1": use http://host:port'],
    [{ engine: 'http://me:secret@127.0.0.1' }, 'the engine "http://***@127.0.0.1": use http://host:port'],
    [{ engine: '' }, 'the engine "": use http://host:port'],
  ] as [ServeRequests, string][]) {
    const thrown = t.throws(
      () => registerWorker({ url: ORIGIN, nats: [NATS], serve, transport: network.transport() }),
      { code: 'HOMING_WORKER_BAD_REGISTRATION' },
    )
    const { message } = thrown as unknown as Error
    t.ok(message.startsWith(`cannot register a worker with ${told}`), message)
  }
})

t.test('all bodies together have a bound, and what is above it is refused as overload', async t => {
  const held: (() => void)[] = []
  const { ask, registered, warnings } = worldOf(t, {
    bodyBytesMax: 600_000,
    bodiesBytesMax: 1_000_000,
    handler: async ({ path, body }) => {
      if (path === '/held') await new Promise<void>(resolve => void held.push(resolve))
      return { status: 200, body: String(body.length) }
    },
  })
  await ask()
  const first = ask('/held', Buffer.alloc(600_000))
  while (held.length === 0) await delay(1)
  t.match(registered, { openRequests: 1, bodiesBytes: 600_000, refusedBodies: 0 })
  for (const path of ['/', '/held']) {
    const refused = await ask(path, Buffer.alloc(500_000))
    t.equal(refused.status, 503)
    t.match(JSON.parse(refused.text).error, { code: 'overloaded', type: 'ServiceUnavailableError' })
    t.match(refused.text, /bodies of requests hold 600000 bytes, and may hold 1000000/)
    t.equal(refused.headers['retry-after'], '1')
  }
  t.equal(warnings.length, 1, 'it is told once')
  t.equal((await ask('/', Buffer.alloc(400_000))).text, '400000')
  held[0]!()
  t.equal((await first).text, '600000')
  t.match(registered, { openRequests: 0, bodiesBytes: 0, refusedBodies: 2 })
  t.equal((await ask('/', Buffer.alloc(600_000))).text, '600000')
  const left = ask('/held', Buffer.alloc(600_000)).catch(() => 'cut')
  while (held.length === 1) await delay(1)
  await registered.close()
  t.equal(await left, 'cut')
  t.equal(registered.bodiesBytes, 0, 'what its client has left is not counted')
})

t.test('a body that stalls is given up, though its client lives', async t => {
  const { ask, network, registered } = worldOf(t, {
    bodySilenceMsMax: 2000,
    handler: ({ body }) => ({ status: 200, body: String(body.length) }),
  })
  await ask()
  let isFirst = true
  network.faults.message = (_, [payload]) => {
    if (!isFirst || payload!.length < 100_000) return 'deliver'
    isFirst = false
    return { delayMs: 4500 }
  }
  const stalled = await ask('/', Buffer.alloc(2 ** 21))
  t.equal(stalled.status, 408)
  t.match(JSON.parse(stalled.text).error, { code: 'body_timeout' })
  t.match(stalled.text, /nothing came for 2000 ms after 0 bytes/)
  t.match(registered, { openRequests: 0, bodiesBytes: 0 })
  t.equal((await ask('/', Buffer.alloc(2 ** 21))).text, String(2 ** 21))
})

t.test('what hinders the reading of a body is told as itself', async t => {
  let onExchange: (exchange: ServedExchange) => void = () => {}
  const network = new MemoryNetwork({ clock: new SimulatedClock() }).transport()
  registerWorker({
    url: ORIGIN,
    nats: [NATS],
    serve: { handler: () => ({ status: 200 }) },
    transport: {
      messages: network.messages,
      http: {
        call: network.http.call,
        listen: network.http.listen,
        serve(_, taken) {
          onExchange = taken
          return { listening: Promise.resolve(''), openCount: 0, close: async () => {} }
        },
      },
    },
  })
  for (const [error, status] of [
    [new BodyTooLargeError(10), 413],
    [new MalformedHttpError('its body is longer than its client said'), 400],
    [new Error('out of memory'), 500],
    [new ClientGoneError('read the body'), undefined],
  ] as const) {
    const answered = await new Promise<number | undefined>(resolve => {
      onExchange({
        method: 'POST',
        path: '/',
        query: '',
        headers: {},
        peerAddress: '',
        isClosed: false,
        readBody: async () => {
          setImmediate(() => resolve(undefined))
          throw error
        },
        onClientGone() {},
        onOver() {},
        writeHead: resolve,
        write: () => true,
        onDrain() {},
        end() {},
        destroy() {},
      })
    })
    t.equal(answered, status, error.message)
  }
})

t.test('an engine on this machine answers as it is', async t => {
  const { ask, network } = worldOf(t, { engine: 'http://127.0.0.1:8000' })
  const engine = network.transport()
  t.teardown(() => engine.close())
  const seen: unknown[] = []
  await engine.http.listen({ host: '127.0.0.1', port: 8000 }, async exchange => {
    seen.push(exchange.path, exchange.query, Buffer.from(await exchange.readBody(100)).toString())
    exchange.writeHead(404, { 'x-engine': 'yes' })
    exchange.write(Buffer.from('some'))
    if (exchange.path === '/cut') exchange.destroy()
    else exchange.end()
  })
  t.match(await ask('/v1/x?a=1', Buffer.from('up')), {
    status: 404,
    text: 'some',
    headers: { 'x-engine': 'yes' },
  })
  t.strictSame(seen, ['/v1/x', 'a=1', 'up'])
  await t.rejects(ask('/cut'), { failure: 'reset', message: /the engine failed: cannot complete POST/ })
  engine.close()
  await t.rejects(ask('/'), { failure: 'reset', message: /the engine failed/ })
})

t.test('a body counts until the connection to the engine has let go of it', async t => {
  let usesBody = true
  const { ask, network, registered } = worldOf(
    t,
    { engine: 'http://127.0.0.1:8000', bodyBytesMax: 600_000, bodiesBytesMax: 1_000_000 },
    () => usesBody,
  )
  const engine = network.transport()
  t.teardown(() => engine.close())
  await engine.http.listen({ host: '127.0.0.1', port: 8000 }, exchange => {
    exchange.writeHead(200, {})
    if (exchange.path === '/cut') exchange.destroy()
    else exchange.end()
  })
  await ask()
  t.match(registered, { openRequests: 0, bodiesBytes: 0 }, 'a request without a body')
  t.equal((await ask('/', Buffer.alloc(600_000))).status, 200)
  t.match(registered, { openRequests: 0, bodiesBytes: 600_000 }, 'answered before it was read')
  t.equal((await ask('/', Buffer.alloc(500_000))).status, 503)
  t.match(registered, { openRequests: 0, bodiesBytes: 600_000, refusedBodies: 1 })
  usesBody = false
  t.equal((await ask('/', Buffer.alloc(600_000))).status, 200, 'there is room at once')
  t.match(registered, { openRequests: 0, bodiesBytes: 0 })
  usesBody = true
  await t.rejects(ask('/cut', Buffer.alloc(600_000)), { failure: 'reset', message: /the engine failed/ })
  t.match(registered, { bodiesBytes: 600_000 }, 'also of a call that failed')
  usesBody = false
  t.match(registered, { bodiesBytes: 0 })
})
