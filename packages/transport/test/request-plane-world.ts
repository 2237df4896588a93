/**
 * What every request plane must do with HTTP exchanges, and what tests of it have in common. What is
 * random is drawn from a printed seed.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { seededRandom } from '@homing/base'
import type { Test } from 'tap'
import type { CallCounts } from '../src/call-counts.ts'
import type {
  HttpCall,
  HttpCallError,
  HttpFailure,
  HttpHeaders,
  ServedExchange,
  ServeOptions,
  Transport,
} from '../src/index.ts'

export const ORIGIN = 'http://10.0.0.1:8000'
export const SUBJECT = 'homing.requests.test'
export const WINDOW_BYTES = 64 * 1024
export const POST = { origin: ORIGIN, method: 'POST', path: '/v1/x?a=1' }
export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

/** Of a world whose calls go over a broker. */
export function atBroker(endpoint: string): Pick<World, 'counts' | 'unserved'> {
  return {
    unserved: /no worker serves homing\.requests\.test/,
    counts: client => new Map(client.brokers()).get(new URL(endpoint).host)!,
  }
}

export interface World {
  /** Where clients call. */
  readonly endpoint: string
  /** Where a server takes requests; default: there, too. */
  readonly serveAt?: string
  client(): Transport
  server(): Transport
  down(): Promise<void>
  up(): Promise<void>
  /** Of what carries the calls of this client. */
  counts(client: Transport): Readonly<CallCounts>
  /** What a call is told where no worker serves. */
  readonly unserved: RegExp
}

/** One call, as its handler saw it. */
export class Answer {
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

export function serveWith(
  t: Test,
  world: World,
  onExchange: (exchange: ServedExchange) => void,
  options: Partial<ServeOptions> = {},
) {
  const served = world
    .server()
    .http.serve({ endpoint: world.serveAt ?? world.endpoint, ...options }, onExchange)
  t.teardown(() => served.close(0))
  return served
}

/** A client whose requests to ORIGIN go over the broker; a server must be there. */
export async function clientOf(world: World, windowBytes = WINDOW_BYTES): Promise<Transport> {
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
export function isReady(exchange: ServedExchange): boolean {
  if (exchange.path !== '/ready') return false
  exchange.writeHead(204, {})
  exchange.end()
  return true
}

export function testRequestPlane(t: Test, open: (t: Test) => Promise<World>): void {
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

  t.test('bodies of any length arrive whole in both directions, in pieces of any size', async t => {
    const world = await open(t)
    const seed = Number(process.env['HOMING_SEED'] ?? 1)
    t.comment(`HOMING_SEED=${seed}`)
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
  })

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
    const counts = world.counts(client)
    const before = { ...counts.endedCalls }
    const answer = new Answer(client, POST)
    answer.call.pause()
    await stopped
    while (counts.heldBytes === 0) await delay(1)
    // What is written too much would be written soon.
    await delay(100)
    t.ok(written <= WINDOW_BYTES, `${written} bytes were written`)
    t.equal(answer.bytes, 0)
    t.ok(counts.heldBytes > 0 && counts.heldBytes <= WINDOW_BYTES, `${counts.heldBytes} bytes wait`)
    t.equal(counts.openCalls, 1)
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
    t.match(answer.error!.message, world.unserved)
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

  t.test('the way dies in mid-answer: both sides hear it, and calls go on when it is back', async t => {
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

/** Where frames have room for such heads. */
export function testHeadBound(t: Test, open: (t: Test) => Promise<World>): void {
  t.test('a head that is larger than one of HTTP is answered with 431', async t => {
    const world = await open(t)
    let taken = 0
    serveWith(t, world, exchange => {
      if (isReady(exchange)) return
      taken++
      exchange.writeHead(200, {})
      exchange.end()
    })
    const client = await clientOf(world)
    for (const [request, status] of [
      [{ ...POST, headers: { 'x-long': 'y'.repeat(60_000) } }, 200],
      [{ ...POST, headers: { 'x-long': 'y'.repeat(66_000) } }, 431],
      [{ ...POST, headers: { 'x-many': Array<string>(10_000).fill('') } }, 431],
      [{ ...POST, path: `/${'x'.repeat(66_000)}`, body: Buffer.alloc(300_000) }, 431],
    ] as const) {
      const answer = new Answer(client, request)
      await answer.whenOver
      t.match(answer, { status, error: undefined, end: 'framed' })
      if (status === 431) t.match(text(answer.body), /its headers have more than 65536 bytes/)
    }
    t.equal(taken, 1)
  })
}
