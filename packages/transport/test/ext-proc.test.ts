/** Streams of an Envoy as exchanges: what each frame is answered with, in each mode, and how each ends. */

import { X509Certificate } from 'node:crypto'
import { silentLog, systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { Endpoints } from '../src/ext-proc/endpoints.ts'
import { selfSignedIdentity } from '../src/ext-proc/self-signed.ts'
import {
  type ExtProcListener,
  type ExtProcOptions,
  faultOfIdentity,
  type HttpCallError,
  type HttpHeaders,
  type PickedExchange,
  systemTransport,
} from '../src/index.ts'
import {
  type AskedRequest,
  AskingEnvoy,
  answerIn,
  BODY_MODE,
  commonOf,
  destinationIn,
  pieceIn,
  setHeaders,
} from '../src/testing.ts'

const OPTIONS: ExtProcOptions = {
  host: '127.0.0.1',
  port: 0,
  tls: 'off',
  streamsMax: 8,
  connectionsMax: 8,
  bodySilenceMsMax: 60_000,
  bodyBytesMax: 1_000_000,
}
const WORKER = 'http://10.0.0.1:8000'
const INVALID_ARGUMENT = 3
const DEADLINE_EXCEEDED = 4
const NOT_FOUND = 5
const RESOURCE_EXHAUSTED = 8
const CANCELLED = 1

/** What the owner of a stream heard of the answer, in order. */
type Heard = string[]

interface Asked {
  readonly exchange: PickedExchange
  readonly body: string
  readonly heard: Heard
  readonly over: Promise<void>
}

/** `owner`: what is done with an exchange whose body was read. */
async function start(
  t: Test,
  owner: (asked: Asked) => void,
  options: Partial<ExtProcOptions> = {},
): Promise<{ readonly listener: ExtProcListener; readonly envoy: AskingEnvoy }> {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  const listener = await transport.extProc!({ ...OPTIONS, ...options }, exchange => {
    const { promise: over, resolve } = Promise.withResolvers<void>()
    exchange.onOver(resolve)
    const heard: Heard = []
    exchange.onClientGone(why => heard.push(`gone: ${why}`))
    exchange.readBody(1_000_000).then(
      body => owner({ exchange, body: Buffer.from(body).toString(), heard, over }),
      (thrown: Error & { readonly status?: number }) => {
        heard.push(`unread: ${thrown.message}`)
        exchange.writeHead(400, { 'content-type': 'text/plain' })
        exchange.end(Buffer.from(thrown.message))
      },
    )
  })
  const envoy = await AskingEnvoy.connect(listener.port, options.tls === undefined)
  t.teardown(async () => {
    envoy.close()
    await listener.close(0)
    transport.close()
  })
  return { listener, envoy }
}

/** Sends it to the worker. `change`: other headers and another body than those that came. */
function sendOn(
  { exchange, body, heard }: Asked,
  {
    others = [],
    headers = exchange.headers,
    sent = body,
    origin = WORKER,
  }: {
    readonly others?: readonly string[]
    readonly headers?: HttpHeaders
    readonly sent?: string
    readonly origin?: string
  } = {},
): void {
  exchange.call(
    {
      origin,
      method: 'POST',
      path: exchange.path,
      headers,
      body: Buffer.from(sent),
      others,
      answerHeaders: { 'x-homing-worker': 'w' },
    },
    {
      head: status => heard.push(`head ${status}`),
      data: bytes => heard.push(`data ${Buffer.from(bytes).toString()}`),
      end: () => {
        heard.push('end')
        exchange.end()
      },
      failed: (error: HttpCallError) => heard.push(`failed ${error.failure} ${error.servedBy ?? ''}`.trim()),
    },
  )
}

t.test(
  'a request in pieces is answered with the destination, then its body, and its answer passes',
  async t => {
    let asked: Asked | undefined
    const { envoy, listener } = await start(t, one => {
      asked = one
      sendOn(one, { others: ['http://10.0.0.2:8000'], headers: { 'x-new': 'a', 'content-type': 'b' } })
    })
    const stream = envoy.ask({
      path: '/v1/completions?x=1',
      headers: { 'content-type': 'application/json', 'x-old': 'c', 'content-length': '9', cookie: 'd' },
      body: 'ab cd efg',
      pieces: 3,
    })
    const head = await stream.next()
    t.equal(destinationIn(head), '10.0.0.1:8000,10.0.0.2:8000')
    t.strictSame(setHeaders(head), {
      'x-gateway-destination-endpoint': '10.0.0.1:8000,10.0.0.2:8000',
      'x-new': 'a',
      'content-type': 'b',
    })
    t.equal(commonOf(head)?.clear_route_cache, true)
    t.strictSame(commonOf(head)?.header_mutation?.remove_headers, ['x-old', 'cookie'])
    t.strictSame(pieceIn(await stream.next()), { text: 'ab cd efg', isEnd: true })
    t.match(asked!.exchange, { method: 'POST', path: '/v1/completions', query: 'x=1' })
    t.match(asked!.exchange.headers, { host: 'models.example' })

    stream.answerHead(200, { 'content-type': 'text/plain' }, '10.0.0.1:8000')
    t.strictSame(setHeaders(await stream.next()), { 'x-homing-worker': 'w' })
    stream.answerBody('one', false)
    t.strictSame(pieceIn(await stream.next()), { text: 'one', isEnd: false })
    stream.answerBody('two', true)
    t.strictSame(pieceIn(await stream.next()), { text: 'two', isEnd: true })
    stream.end()
    t.match(await stream.ended, { code: 0 })
    await asked!.over
    t.strictSame(asked!.heard, ['head 200', 'data one', 'data two', 'end'])
    t.match(listener.counts, { streams: 0, ended: 1, left: 0, moved: 0 })
  },
)

t.test('long bodies go on in pieces of at most 62,000 bytes', async t => {
  const { envoy } = await start(t, asked => sendOn(asked, { sent: 'x'.repeat(130_000) }))
  const stream = envoy.ask({ body: 'short' })
  await stream.next()
  const pieces = [await stream.next(), await stream.next(), await stream.next()].map(pieceIn)
  t.strictSame(
    pieces.map(piece => [piece!.text.length, piece!.isEnd]),
    [
      [62_000, false],
      [62_000, false],
      [6_000, true],
    ],
  )
})

t.test('trailers end a body, and are answered behind it', async t => {
  const { envoy } = await start(t, sendOn)
  const stream = envoy.ask({ body: 'abc', hasTrailers: true })
  t.ok(destinationIn(await stream.next()))
  t.strictSame(pieceIn(await stream.next()), { text: 'abc', isEnd: false })
  t.ok((await stream.next())?.request_trailers)
})

const BUFFERED = { request: BODY_MODE.buffered, response: BODY_MODE.buffered }

t.test('a buffered body is asked for first, and its choice is the answer to it', async t => {
  const { envoy } = await start(t, asked => sendOn(asked, { sent: asked.body.toUpperCase() }))
  const stream = envoy.ask({ body: 'abc', modes: BUFFERED })
  t.equal(destinationIn(await stream.next()), undefined)
  stream.sendBody('abc')
  const chosen = await stream.next()
  t.equal(destinationIn(chosen), '10.0.0.1:8000')
  t.equal(Buffer.from(commonOf(chosen)?.body_mutation?.body ?? '').toString(), 'ABC')
  stream.answerHead(200, {})
  await stream.next()
  stream.answerBody('whole', true)
  t.equal(pieceIn(await stream.next()), undefined, 'the answer stays as it is')
})

t.test('a buffered body before trailers is whole, and they are answered behind it', async t => {
  const { envoy } = await start(t, asked => sendOn(asked))
  const stream = envoy.ask({ body: 'abc', modes: BUFFERED })
  await stream.next()
  stream.send({ request_body: { body: Buffer.from('abc'), end_of_stream: false } })
  t.equal(destinationIn(await stream.next()), '10.0.0.1:8000')
  stream.send({ request_trailers: {} })
  t.ok((await stream.next())?.request_trailers)
})

t.test('a frame may be as long as a body and a little more, and the first must come in time', async t => {
  const { envoy } = await start(t, sendOn)
  const long = envoy.ask({ body: 'abc', modes: BUFFERED })
  await long.next()
  long.sendBody('x'.repeat(2_100_000))
  t.match(await long.ended, { code: RESOURCE_EXHAUSTED })
  const { envoy: other } = await start(t, sendOn, { bodySilenceMsMax: 10 })
  t.match(await other.open().ended, { code: DEADLINE_EXCEEDED, details: /no frame came within 10 ms/ })
})

t.test('an Envoy that tells no modes is taken for one that streams both ways', async t => {
  const { envoy } = await start(t, sendOn)
  const stream = envoy.ask({ body: 'abc', modes: 'untold' })
  t.ok(destinationIn(await stream.next()))
  t.match(pieceIn(await stream.next()), { text: 'abc' })
})

for (const [name, request] of [
  ['NONE', BODY_MODE.none],
  ['STREAMED', BODY_MODE.streamed],
] as const)
  t.test(`a body that comes after the choice (${name}) is refused with what to set`, async t => {
    const { envoy } = await start(t, sendOn)
    const stream = envoy.ask({ body: 'abc', modes: { request, response: BODY_MODE.none } })
    const answer = answerIn(await stream.next())
    t.equal(answer?.status, 400)
    t.match(answer?.body, /set request_body_mode FULL_DUPLEX_STREAMED or BUFFERED/)
  })

t.test('without a body the headers are answered with the choice', async t => {
  const { envoy } = await start(t, sendOn)
  const stream = envoy.ask({ method: 'GET', path: '/v1/models' })
  t.equal(destinationIn(await stream.next()), '10.0.0.1:8000')
  stream.answerHead(204, {}, undefined, true)
  await stream.next()
  stream.end()
  t.match(await stream.ended, { code: 0 })
})

t.test('what its owner answers instead is an answer at once', async t => {
  const { envoy, listener } = await start(t, ({ exchange }) => {
    exchange.writeHead(429, { 'content-type': 'application/json', 'content-length': '2', 'retry-after': '1' })
    exchange.write(Buffer.from('{'))
    exchange.end(Buffer.from('}'))
  })
  const stream = envoy.ask({ body: 'abc' })
  const response = await stream.next()
  t.strictSame(answerIn(response), { status: 429, body: '{}' })
  const names = response?.immediate_response?.headers.set_headers?.map(({ header }) => header.key)
  t.strictSame(names, ['content-type', 'retry-after'])
  t.match(await stream.ended, { code: 0 })
  t.match(listener.counts, { refused: 1, left: 0, ended: 0 })
})

t.test('an endpoint further down the list that answers is told, and called anew', async t => {
  const { promise: done, resolve } = Promise.withResolvers<Heard>()
  const { envoy, listener } = await start(t, asked => {
    const { heard, exchange } = asked
    exchange.call(
      {
        origin: WORKER,
        method: 'POST',
        path: '/',
        body: Buffer.from(asked.body),
        others: ['http://10.0.0.2:8000', 'http://10.0.0.3:8000'],
        answerHeaders: {},
      },
      {
        head: () => heard.push('head of the first'),
        data: () => {},
        end: () => {},
        failed: error => {
          heard.push(`${error.failure} ${error.servedBy}`)
          sendOn(asked, { origin: error.servedBy! })
        },
      },
    )
    void asked.over.then(() => resolve(heard))
  })
  const stream = envoy.ask({ body: 'abc' })
  t.equal(destinationIn(await stream.next()), '10.0.0.1:8000,10.0.0.2:8000,10.0.0.3:8000')
  stream.answerHead(200, {}, '10.0.0.3:8000')
  stream.answerBody('text', true)
  t.strictSame(await done, ['connect http://10.0.0.3:8000', 'head 200', 'data text', 'end'])
  t.equal(listener.counts.moved, 1)
  stream.end()
})

t.test('a client that leaves ends the exchange, whatever it waits for', async t => {
  const all: Asked[] = []
  const { envoy, listener } = await start(t, asked => {
    all.push(asked)
    if (asked.body === 'sent') sendOn(asked)
  })
  for (const body of ['unsent', 'sent']) {
    const stream = envoy.ask({ body })
    if (body === 'sent') await stream.next()
    while (all.length === 0) await new Promise(setImmediate)
    stream.cancel()
    t.match(await stream.ended, { code: CANCELLED })
    const asked = all.pop()!
    await asked.over
    t.strictSame(asked.heard, ['gone: left'])
  }
  const half = envoy.open()
  half.send({ request_headers: { headers: { headers: [] }, end_of_stream: false } })
  half.send({ request_body: { body: Buffer.from('half'), end_of_stream: false } })
  half.end()
  await half.ended
  t.match(listener.counts, { streams: 0, left: 3, ended: 0 })
})

t.test('frames that cannot be used end the stream with what is wrong', async t => {
  const { envoy, listener } = await start(t, sendOn)
  const first = envoy.open()
  first.send({ response_headers: {} })
  t.match(await first.ended, { code: INVALID_ARGUMENT, details: /set request_header_mode SEND/ })
  const observed = envoy.open()
  observed.send({ request_headers: {}, observability_mode: true })
  t.match(await observed.ended, { code: INVALID_ARGUMENT, details: /observability_mode/ })
  const empty = envoy.ask({ body: 'abc' })
  await empty.next()
  empty.send({})
  t.match(await empty.ended, { code: INVALID_ARGUMENT, details: /no known kind/ })
  t.equal(listener.counts.malformed, 3)
})

t.test('streams past the bound are refused, and those that end make room', async t => {
  const { envoy, listener } = await start(t, sendOn, { streamsMax: 2 })
  // The library allows as many streams in a connection; others come by another one.
  const other = await AskingEnvoy.connect(listener.port, true)
  t.teardown(() => other.close())
  const open = [envoy.ask({ body: 'a' }), envoy.ask({ body: 'b' })]
  for (const stream of open) t.ok(destinationIn(await stream.next()))
  t.match(await other.ask({ body: 'c' }).ended, { code: RESOURCE_EXHAUSTED, details: /--max-open-requests/ })
  t.match(listener.counts, { streams: 2, full: 1 })
  open[0]!.cancel()
  await open[0]!.ended
  while (listener.counts.streams > 1) await new Promise(setImmediate)
  t.ok(destinationIn(await other.ask({ body: 'd' }).next()))
})

t.test('the health service tells liveness and readiness, on a port of its own as well', async t => {
  const { listener } = await start(t, sendOn, { healthPort: 0, tls: 'self-signed' })
  const probe = await AskingEnvoy.connect(listener.healthPort!, true)
  const secure = await AskingEnvoy.connect(listener.port)
  t.teardown(() => {
    probe.close()
    secure.close()
  })
  const services = ['', 'readiness', 'envoy.service.ext_proc.v3.ExternalProcessor', 'inference-extension']
  for (const isServing of [false, true]) {
    listener.setServing(isServing)
    for (const one of [probe, secure]) {
      t.equal(await one.check('liveness'), 1)
      for (const service of services) t.equal(await one.check(service), isServing ? 1 : 2, service)
    }
  }
  t.match(await probe.check('other'), { code: NOT_FOUND, details: /"other"/ })
  const asked = secure.ask({ body: 'abc' })
  t.ok(destinationIn(await asked.next()), 'streams go over TLS')
})

t.test('a listener that closes lets streams end, and cuts them after its grace', async t => {
  const { envoy, listener } = await start(t, sendOn)
  const ends = envoy.ask({ body: 'a' })
  await ends.next()
  await ends.next()
  const closing = listener.close(60_000)
  ends.answerHead(200, {}, undefined, true)
  await ends.next()
  ends.end()
  t.match(await ends.ended, { code: 0 })
  await closing

  const second = await start(t, sendOn)
  const stays = second.envoy.ask({ body: 'b' })
  await stays.next()
  await second.listener.close(1)
  t.not((await stays.ended).code, 0)
})

t.test('a port that is taken is said so', async t => {
  const { listener } = await start(t, sendOn)
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  await t.rejects(
    transport.extProc!({ ...OPTIONS, port: listener.port }, () => {}),
    {
      code: 'HOMING_TRANSPORT_LISTEN',
      message: /^cannot listen on grpc:\/\/127\.0\.0\.1:\d+: /,
    },
  )
})

t.test('endpoints are addresses: names are looked up once, and anew when they are old', async t => {
  let nowMs = 0
  const timers: (() => void)[] = []
  const clock = {
    ...systemClock,
    nowMs: () => nowMs,
    after: (_: number, callback: () => void) => {
      timers.push(callback)
      return { cancel() {} }
    },
  }
  const asked: string[] = []
  const answers = new Map([['pod', '10.1.1.1']])
  const endpoints = new Endpoints(clock, async name => {
    asked.push(name)
    const found = answers.get(name)
    if (found === undefined) throw new Error(`ENOTFOUND ${name}`)
    return found
  })
  t.equal(endpoints.of('http://10.0.0.1'), '10.0.0.1:80')
  t.equal(endpoints.of('https://10.0.0.1'), '10.0.0.1:443')
  t.equal(endpoints.of('http://[fd00::1]:8000'), '[fd00::1]:8000')
  t.equal(await endpoints.of('http://pod:8000'), '10.1.1.1:8000')
  answers.set('pod', '10.1.1.2')
  t.equal(endpoints.of('http://pod:9000'), '10.1.1.1:9000')
  nowMs = 6000
  t.equal(endpoints.of('http://pod:8000'), '10.1.1.1:8000', 'the old one, while it is looked up')
  await new Promise(setImmediate)
  t.equal(endpoints.of('http://pod:8000'), '10.1.1.2:8000')
  t.strictSame(asked, ['pod', 'pod'])
  await t.rejects(Promise.resolve(endpoints.of('http://gone:1')), { message: 'ENOTFOUND gone' })
})

t.test('a certificate that signs itself is one, with its key', t => {
  for (const wallMs of [Date.parse('2026-01-02T03:04:05Z'), Date.parse('2045-06-07T08:09:10Z')]) {
    const identity = selfSignedIdentity('homing', wallMs)
    t.equal(faultOfIdentity(identity), undefined)
    const certificate = new X509Certificate(identity.certificate)
    t.ok(certificate.verify(certificate.publicKey))
    t.equal(certificate.subject, 'CN=homing')
    t.equal(certificate.subjectAltName, 'DNS:homing')
    t.equal(certificate.validFromDate.getTime(), wallMs - 3_600_000)
    t.ok(certificate.validToDate.getTime() > wallMs + 9 * 365 * 86_400_000)
  }
  t.end()
})

t.test('a subset names endpoints by address and port, or by address alone', async t => {
  const seen: unknown[] = []
  const { envoy } = await start(t, async asked => {
    const { exchange } = asked
    const among = (origin: string) => exchange.isAmong(origin, exchange.subset ?? [])
    seen.push([exchange.subset, await among('http://10.0.0.1:8000'), await among('http://[fd00::1]:8000')])
    sendOn(asked)
  })
  const asks: AskedRequest['subset'][] = [
    ['10.0.0.1:8000', '10.0.0.9:8000'],
    '10.0.0.1:9000, fd00::1',
    ['[fd00::1]:8000'],
    [],
    undefined,
  ]
  for (const subset of asks)
    await envoy.ask({ body: 'a', ...(subset === undefined ? {} : { subset }) }).next()
  t.strictSame(seen, [
    [['10.0.0.1:8000', '10.0.0.9:8000'], true, false],
    [['10.0.0.1:9000', 'fd00::1'], false, true],
    [['[fd00::1]:8000'], false, true],
    [[], false, false],
    [undefined, false, false],
  ])
})
