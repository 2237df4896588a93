/** The promises of every transport for HTTP. */

import type { Test } from 'tap'
import {
  BodyTooLargeError,
  ClientGoneError,
  HttpCallError,
  type HttpExchange,
  ListenError,
  type Transport,
} from '../src/index.ts'
import { bounded, bytes, callInto, HOST, Inbox, text, unusedPort, WAIT_MS_MAX } from './inbox.ts'

/** `createTransport` gives transports that can reach each other. */
export function testHttp(t: Test, createTransport: (t: Test) => Transport): void {
  const serve = async (t: Test, onExchange: (exchange: HttpExchange) => void) => {
    const transport = createTransport(t)
    const listener = await transport.http.listen({ host: HOST, port: 0 }, onExchange)
    t.teardown(() => listener.close(0))
    return { transport, listener, origin: `http://${HOST}:${listener.port}` }
  }

  t.test('a request arrives as it was sent, and so does its answer', async t => {
    const { origin } = await serve(t, async exchange => {
      const body = await exchange.readBody(1000)
      const seen = [exchange.method, exchange.path, exchange.query, exchange.headers['x-one'], text(body)]
      exchange.writeHead(201, { 'content-type': 'text/plain', 'X-Many': ['a', 'b'], 'x-none': undefined })
      exchange.end(bytes(seen.join('|')))
    })
    const reply = await createTransport(t).http.fetch(
      {
        origin,
        method: 'POST',
        path: '/v1/x?a=1&b=2',
        headers: { 'X-One': 'yes', connection: 'close', 'content-length': '999', 'x-none': undefined },
        body: bytes('hé'),
      },
      { timeoutMs: 60_000 },
    )
    t.equal(reply.status, 201)
    t.equal(text(reply.body), 'POST|/v1/x|a=1&b=2|yes|hé')
    t.equal(reply.headers['content-type'], 'text/plain')
    t.strictSame(reply.headers['x-many'], ['a', 'b'])
    t.equal('x-none' in reply.headers, false)
  })

  t.test('a server may be under a path, and each has its own key', async t => {
    const { origin } = await serve(t, exchange => {
      exchange.end(bytes([exchange.path, exchange.query, exchange.headers['authorization']].join('|')))
    })
    const { http } = createTransport(t)
    http.setAccess(`${origin}/engines/a`, { key: 'of-a' })
    const answers: string[] = []
    for (const base of [`${origin}/engines/a`, `${origin}/engines/b`]) {
      const asked = { origin: base, method: 'GET', path: '/v1/models?x=1' }
      answers.push(text((await http.fetch(asked, { timeoutMs: 60_000 })).body))
    }
    t.strictSame(answers, ['/engines/a/v1/models|x=1|Bearer of-a', '/engines/b/v1/models|x=1|'])
  })

  t.test('an answer without a head is a 200, and an empty body is empty', async t => {
    const { origin } = await serve(t, exchange => exchange.end())
    const reply = await createTransport(t).http.fetch(
      { origin, method: 'GET', path: '/' },
      { timeoutMs: 60_000 },
    )
    t.equal(reply.status, 200)
    t.equal(reply.body.length, 0)
  })

  t.test('bytes arrive as they are written, before the answer ends', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin } = await serve(t, exchanges.put)
    const { inbox } = callInto(createTransport(t), { origin, method: 'GET', path: '/stream' })
    const exchange = await exchanges.next('the request')
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const part of ['data: a', 'data: b']) {
      exchange.write(bytes(part))
      let delivered = await inbox.next(part)
      if (delivered.type === 'head') delivered = await inbox.next(part)
      t.match(delivered, { type: 'data' })
      t.equal(delivered.type === 'data' && text(delivered.bytes), part)
    }
    t.equal(exchange.isClosed, false)
    exchange.end()
    t.equal(exchange.isClosed, true)
    t.match(await inbox.next('the end'), { type: 'end' })
  })

  t.test('a body beyond the bound is refused, and the refusal can be answered', async t => {
    const { origin } = await serve(t, async exchange => {
      const error = await exchange.readBody(100).catch((error: unknown) => error)
      exchange.writeHead(error instanceof BodyTooLargeError ? 413 : 200, {})
      exchange.end()
    })
    const http = createTransport(t).http
    for (const [size, status] of [
      [100, 200],
      [101, 413],
      [100, 200],
    ] as const) {
      const request = { origin, method: 'POST', path: '/', body: new Uint8Array(size) }
      t.equal((await http.fetch(request, { timeoutMs: 60_000 })).status, status)
    }
  })

  t.test('a client that leaves is noticed, once', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin } = await serve(t, exchanges.put)
    const { call, inbox } = callInto(createTransport(t), {
      origin,
      method: 'POST',
      path: '/',
      body: bytes('x'),
    })
    const exchange = await exchanges.next('the request')
    await exchange.readBody(10)
    const gone = new Inbox<string>()
    exchange.onClientGone(() => gone.put('gone'))
    exchange.write(bytes('first'))
    call.abort()
    call.abort()
    let delivered = await inbox.next('the abort')
    while (delivered.type !== 'failed') delivered = await inbox.next('the abort')
    t.equal(delivered.error.failure, 'aborted')
    await gone.next('the news that the client left')
    t.equal(exchange.isClosed, true)
    t.equal(exchange.write(bytes('second')), true, 'writing on is harmless')
    exchange.end()
    exchange.onClientGone(() => gone.put('late'))
    t.equal(await gone.next('the late news'), 'late')
    t.equal(inbox.size, 0)
    await t.rejects(exchange.readBody(10), ClientGoneError)
  })

  t.test('an answer is over when all of it has left, or its client', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin } = await serve(t, exchanges.put)
    const over = new Inbox<string>()
    const ask = async (path: string) => {
      const made = callInto(createTransport(t), { origin, method: 'GET', path })
      const exchange = await exchanges.next('the request')
      exchange.onOver(() => over.put(path))
      return { ...made, exchange }
    }
    const whole = await ask('/whole')
    whole.exchange.end(bytes('all of it'))
    t.equal(await over.next('the end of the answer'), '/whole')
    whole.exchange.onOver(() => over.put('late'))
    t.equal(await over.next('a late question'), 'late')

    const slow = await ask('/slow')
    slow.call.pause()
    slow.exchange.end(new Uint8Array(32 * 2 ** 20))
    const left = await ask('/left')
    left.call.abort()
    t.equal(await over.next('the client to leave'), '/left')
    t.equal(over.size, 0, 'the slow one has not taken its answer')
    slow.call.resume()
    t.equal(await over.next('the slow client'), '/slow')
  })

  t.test('a call that is aborted at once fails, too', async t => {
    const { origin } = await serve(t, exchange => exchange.end())
    const { call, inbox } = callInto(createTransport(t), { origin, method: 'GET', path: '/' })
    call.abort()
    const delivered = await inbox.next('the abort')
    t.match(delivered, { type: 'failed', info: { wroteRequest: false } })
  })

  t.test('a call is sent when there is a connection, once, and never where nobody listens', async t => {
    const { origin, listener } = await serve(t, exchange => exchange.end())
    const transport = createTransport(t)
    const told = (): Promise<string[]> =>
      new Promise(resolve => {
        const words: string[] = []
        const ends = (word: string) => resolve([...words, word])
        transport.http.call(
          { origin, method: 'GET', path: '/' },
          {
            sent: () => void words.push('sent'),
            head: () => void words.push('head'),
            data: () => {},
            end: () => ends('end'),
            failed: () => ends('failed'),
          },
        )
      })
    for (let i = 0; i < 2; i++) t.strictSame(await told(), ['sent', 'head', 'end'])
    await listener.close(0)
    t.strictSame((await told()).at(-1), 'failed')
    t.strictSame(await told(), ['failed'])
  })

  t.test('a connection that is cut is a failure, not a short answer', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin } = await serve(t, exchanges.put)
    const { inbox } = callInto(createTransport(t), { origin, method: 'GET', path: '/' })
    const exchange = await exchanges.next('the request')
    exchange.write(bytes('half'))
    t.match(await inbox.next('the head'), { type: 'head', status: 200 })
    t.match(await inbox.next('the first bytes'), { type: 'data' })
    exchange.destroy()
    const failed = await inbox.next('the failure')
    t.match(failed, { type: 'failed', info: { wroteRequest: true, reusedConnection: false } })
    t.equal(failed.type === 'failed' && failed.error.failure, 'reset')
  })

  t.test('where nobody listens a call fails without having been written', async t => {
    const { origin, listener } = await serve(t, exchange => exchange.end())
    await listener.close(0)
    const transport = createTransport(t)
    const { inbox } = callInto(transport, { origin, method: 'GET', path: '/' })
    const failed = await inbox.next('the refusal')
    t.match(failed, { type: 'failed', info: { wroteRequest: false, reusedConnection: false } })
    t.equal(failed.type === 'failed' && failed.error.failure, 'connect')
    await t.rejects(
      transport.http.fetch({ origin, method: 'GET', path: '/health?x=1' }, { timeoutMs: 60_000 }),
      { code: 'HOMING_TRANSPORT_CALL', message: new RegExp(`^cannot complete GET ${origin}/health: `) },
    )
  })

  t.test('a fetch keeps its bounds', async t => {
    const { origin } = await serve(t, exchange => {
      if (exchange.path === '/large') exchange.end(new Uint8Array(1000))
    })
    const http = createTransport(t).http
    const failure = async (path: string, options: Parameters<typeof http.fetch>[1]) => {
      const error: unknown = await http.fetch({ origin, method: 'GET', path }, options).catch(error => error)
      return error instanceof HttpCallError ? error.failure : error
    }
    t.equal(await failure('/never', { timeoutMs: 20 }), 'timeout')
    t.equal(await failure('/large', { timeoutMs: 60_000, maxBytes: 999 }), 'tooLarge')
    const controller = new AbortController()
    const aborted = failure('/never', { timeoutMs: 60_000, signal: controller.signal })
    controller.abort()
    t.equal(await aborted, 'aborted')
    t.equal(await failure('/never', { timeoutMs: 60_000, signal: controller.signal }), 'aborted')
    const reply = await http.fetch(
      { origin, method: 'GET', path: '/large' },
      { timeoutMs: 60_000, maxBytes: 1000 },
    )
    t.equal(reply.body.length, 1000)
  })

  t.test('a slow reader holds the writer back, and loses nothing', async t => {
    const total = 16 * 2 ** 20
    const piece = new Uint8Array(64 * 1024).fill(7)
    let written = 0
    const held = new Inbox<number>()
    const { origin } = await serve(t, exchange => {
      const writeOn = (): void => {
        while (written < total) {
          written += piece.length
          if (!exchange.write(piece)) {
            held.put(written)
            exchange.onDrain(writeOn)
            return
          }
        }
        exchange.end()
      }
      writeOn()
    })
    let received = 0
    const done = new Inbox<string>()
    const call = createTransport(t).http.call(
      { origin, method: 'GET', path: '/' },
      {
        head: () => call.pause(),
        data(data) {
          received += data.length
        },
        end: () => done.put('end'),
        failed: error => done.put(error.message),
      },
    )
    // Every drain is followed by a new hold until the buffers between are full, and then by none.
    await held.next('the writer to be held back')
    await new Promise(resolve => setTimeout(resolve, 50))
    t.ok(written < total, `${written} of ${total} bytes were written ahead`)
    call.resume()
    t.equal(await done.next('the answer'), 'end')
    t.equal(received, total)
  })

  t.test('a call may go on while another one is told of its answer', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin } = await serve(t, exchanges.put)
    const { http } = createTransport(t)
    const done = new Inbox<string>()
    const get = (name: string, told: () => void) =>
      http.call(
        { origin, method: 'GET', path: `/${name}` },
        {
          head() {},
          data: told,
          end: () => done.put(`${name} end`),
          failed: ({ message }) => done.put(message),
        },
      )
    const slow = get('slow', () => {})
    const first = await exchanges.next('the slow request')
    slow.pause()
    first.write(bytes('x'.repeat(2 ** 20)))
    first.end()
    await new Promise(resolve => setTimeout(resolve, 50))
    get('quick', () => slow.resume())
    const second = await exchanges.next('the quick request')
    second.write(bytes('one'))
    second.end()
    const ends = [await done.next('an end'), await done.next('the other end')]
    t.strictSame(ends.sort(), ['quick end', 'slow end'])
  })

  t.test('a listener that closes waits for its exchanges, and takes nobody new', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin, listener } = await serve(t, exchanges.put)
    const first = callInto(createTransport(t), { origin, method: 'GET', path: '/1' })
    const exchange = await exchanges.next('the first request')
    const closed = listener.close(WAIT_MS_MAX)
    const late = callInto(createTransport(t), { origin, method: 'GET', path: '/2' })
    t.match(await late.inbox.next('the refusal'), { type: 'failed', info: { wroteRequest: false } })
    exchange.end(bytes('done'))
    t.match(await first.inbox.next('the head'), { type: 'head' })
    t.match(await first.inbox.next('the body'), { type: 'data' })
    t.match(await first.inbox.next('the end'), { type: 'end' })
    await bounded(closed, 'the listener to close')
  })

  t.test('a listener that closes cuts exchanges that take longer than its grace', async t => {
    const exchanges = new Inbox<HttpExchange>()
    const { origin, listener } = await serve(t, exchanges.put)
    const call = callInto(createTransport(t), { origin, method: 'GET', path: '/1' })
    await exchanges.next('the request')
    await bounded(listener.close(100), 'the listener to close')
    t.match(await call.inbox.next('the cut'), { type: 'failed', info: { wroteRequest: true } })
    await listener.close(0)
  })

  t.test('a port that is taken is an error that names it', async t => {
    const { transport, listener } = await serve(t, exchange => exchange.end())
    const options = { host: HOST, port: listener.port }
    await t.rejects(
      transport.http.listen(options, () => {}),
      ListenError,
    )
    await t.rejects(
      transport.http.listen(options, () => {}),
      {
        code: 'HOMING_TRANSPORT_LISTEN',
        message: new RegExp(`^cannot listen on http://${HOST}:${listener.port}: .*EADDRINUSE`),
      },
    )
  })

  t.test(
    'listeners that share a port each get calls, and one that ends leaves them to the other',
    async t => {
      const transport = createTransport(t)
      const options = { host: HOST, port: await unusedPort(), isShared: true }
      const origin = `http://${HOST}:${options.port}`
      const got = [0, 0]
      const listen = (index: number) =>
        transport.http.listen(options, exchange => {
          got[index]!++
          exchange.writeHead(200, { connection: 'close' })
          exchange.end()
        })
      const listeners = await Promise.all([listen(0), listen(1)])
      t.teardown(() => Promise.all(listeners.map(listener => listener.close(0))))
      const fetch = () =>
        createTransport(t).http.fetch({ origin, method: 'GET', path: '/' }, { timeoutMs: WAIT_MS_MAX })
      // Sockets are spread by a hash: all of them at one would be one in a billion.
      for (let call = 0; call < 31; call++) t.equal((await fetch()).status, 200)
      t.equal(got[0]! + got[1]!, 31)
      t.ok(got[0]! > 0 && got[1]! > 0, `${got}`)
      await t.rejects(
        transport.http.listen({ ...options, isShared: false }, () => {}),
        ListenError,
      )
      await listeners[0]!.close(0)
      const before = got[0]
      for (let call = 0; call < 8; call++) t.equal((await fetch()).status, 200)
      t.equal(got[0], before)
      await listeners[1]!.close(0)
      const alone = await transport.http.listen({ ...options, isShared: false }, () => {})
      t.teardown(() => alone.close(0))
      await t.rejects(
        transport.http.listen(options, () => {}),
        ListenError,
        'nor with one that does not share',
      )
    },
  )
}
