/** What is sent over real sockets, and what becomes of servers that misbehave. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { silentLog, systemClock } from '@homing/base'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'
import {
  blockTokensOf,
  type Endpoint,
  firstModel,
  type Outcome,
  originOf,
  senderTo,
  type Target,
} from '../src/index.ts'

const KEY = 'sk-very-secret-key'

async function serverOf(
  t: Test,
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
): Promise<string> {
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', bytes => {
      body += bytes
    })
    request.on('end', () => answer(request, response, body))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as { readonly port: number }).port}`
}

function transportOf(t: Test) {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  return transport.http
}

function sendTo(
  http: ReturnType<typeof transportOf>,
  origin: string,
  target: Partial<Target> = {},
  body: Readonly<Record<string, unknown>> = { messages: [] },
  endpoint: Endpoint = 'chat',
): Promise<Outcome> {
  const send = senderTo(http, systemClock, {
    origin,
    model: undefined,
    modelUnset: 'first',
    isStream: true,
    salt: '',
    secret: undefined,
    ...target,
  })
  return new Promise(resolve => {
    send({ atMs: undefined, endpoint, body: salt => ({ ...body, salt }) }, { gap() {}, ended: resolve })
  })
}

const WHOLE =
  'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n'

t.test('a body has the model, asks for a stream with usage, and goes where it belongs', async t => {
  const seen: unknown[] = []
  const origin = await serverOf(t, (request, response, body) => {
    seen.push([request.url, request.headers.authorization, JSON.parse(body)])
    response.setHeader('x-homing-worker', 'w/0').setHeader('x-homing-overlap-blocks', '4')
    response.setHeader('x-homing-trust', 'exact').end(WHOLE)
  })
  const http = transportOf(t)
  http.setAccess(origin, { key: KEY })
  const outcome = await sendTo(
    http,
    origin,
    { salt: 'x' },
    { prompt: 'p', stream_options: { a: 1 } },
    'completions',
  )
  t.match(outcome, {
    promptTokens: 3,
    chunks: 1,
    homing: { worker: 'w/0', overlapBlocks: 4, trust: 'exact' },
  })
  await sendTo(http, origin, { model: 'given' }, { messages: [], model: 'own' })
  await sendTo(http, origin, {}, { messages: [], model: 'own' })
  t.match(seen, [
    [
      '/v1/completions',
      `Bearer ${KEY}`,
      { prompt: 'p', salt: 'x', model: 'first', stream: true, stream_options: { a: 1, include_usage: true } },
    ],
    ['/v1/chat/completions', `Bearer ${KEY}`, { model: 'given' }],
    ['/v1/chat/completions', `Bearer ${KEY}`, { model: 'own' }],
  ])
})

t.test('an answer that is no stream', async t => {
  const origin = await serverOf(t, (_request, response, body) => {
    const { stream, stream_options: options } = JSON.parse(body)
    response.end(
      JSON.stringify({
        choices: [{ message: { content: `${stream} ${options}` } }],
        usage: { completion_tokens: 2 },
      }),
    )
  })
  const outcome = await sendTo(transportOf(t), origin, { isStream: false })
  t.match(outcome, { firstMs: undefined, completionTokens: 2, homing: undefined })
})

t.test('failures have their kinds, and no key is in what they say', async t => {
  const http = transportOf(t)
  const kinds: readonly [(response: ServerResponse) => void, unknown][] = [
    [
      r => r.writeHead(429).end(`{"error":{"message":"bad key ${KEY} here"}}`),
      { kind: 'status', status: 429, detail: 'bad key … here' },
    ],
    [r => r.writeHead(503).end('no JSON'), { kind: 'status', status: 503, detail: 'no JSON' }],
    [
      r => r.end('data: {"choices":[{"delta":{"content":"a"}}]}\n\n'),
      { kind: 'answer', detail: /ended without \[DONE\]/ },
    ],
    [
      r => r.end(`data: {"error":{"message":"${KEY}"}}\n\ndata: [DONE]\n\n`),
      { kind: 'answer', detail: /an error in the answer: .*…/ },
    ],
    [r => r.destroy(), { kind: 'connection' }],
    [r => r.writeHead(200).write('data: {"choices":', () => r.destroy()), { kind: 'connection' }],
  ]
  for (const [answer, failure] of kinds) {
    const origin = await serverOf(t, (_request, response) => void answer(response))
    const outcome = await sendTo(http, origin, { secret: KEY })
    t.match(outcome, { failure })
    t.notMatch(JSON.stringify(outcome), KEY)
  }
  t.match(await sendTo(http, 'http://127.0.0.1:1'), { failure: { kind: 'connect' } })
})

t.test('a kept connection that the server closes under a request is no failure', async t => {
  const used = new WeakSet<object>()
  let closed = 0
  const origin = await serverOf(t, (request, response) => {
    if (used.has(request.socket)) {
      closed++
      request.socket.destroy()
      return
    }
    used.add(request.socket)
    response.end(WHOLE)
  })
  const http = transportOf(t)
  // A connection is kept a moment after its answer: the next request may come before.
  for (let i = 0; i < 1000 && closed === 0; i++) t.match(await sendTo(http, origin), { chunks: 1 })
  t.ok(closed > 0)
})

t.test('a server says its first model, and its block size if it is a router', async t => {
  const http = transportOf(t)
  const origin = await serverOf(t, (request, response) => {
    if (request.url === '/api/v1/models') response.end('{"data":[{"id":"m"},{"id":"n"}]}')
    else if (request.url === '/api/workers')
      response.end('{"workers":[{"block_size":{"value":16,"source":"probed"}},{"block_size":{"value":16}}]}')
    else response.writeHead(request.url === '/v1/models' ? 401 : 404).end('{}')
  })
  const base = originOf(`${origin}/api/v1/`)
  t.equal(base, `${origin}/api`)
  t.equal(await firstModel(http, base), 'm')
  t.equal(await blockTokensOf(http, base), 16)
  t.equal(await blockTokensOf(http, origin), undefined)
  await t.rejects(firstModel(http, origin), {
    code: 'HOMING_LOAD_TARGET',
    message: /answers 401; give --api-key-file/,
  })
  await t.rejects(firstModel(http, 'http://127.0.0.1:1'), {
    message: /cannot load http:\/\/127.0.0.1:1: GET \/v1\/models: /,
  })
})
