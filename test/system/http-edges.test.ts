/**
 * Edge cases of HTTP between clients, router and engines: over real sockets, written by hand on either side.
 */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type Fleet, RouterClient, startFleet, startTestRouter } from './fleet.ts'
import { type RawEngine, type RawRequest, startRawEngine } from './raw-engine.ts'

const HEAD_END = '\r\n\r\n'
let fleet: Fleet

t.before(async () => {
  fleet = await startFleet({ engines: [{ speed: 0 }, { speed: 0 }] })
})
t.teardown(() => fleet.stop())

/** A connection to the router; `whole` is everything that the router sends before it closes. */
async function speak(t: Test, text: string, { closes = false, url = fleet.url } = {}) {
  const { hostname, port } = new URL(url)
  const socket: Socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true })
  socket.setEncoding('utf8')
  let received = ''
  socket.on('data', (data: string) => {
    received += data
  })
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  const ended = once(socket, 'end')
  await once(socket, 'connect')
  if (closes) socket.end(text)
  else socket.write(text)
  return {
    socket,
    whole: async () => {
      await ended
      return received
    },
  }
}

const post = (path: string, body: string, more = ''): string =>
  `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n${more}content-length: ${body.length}${HEAD_END}${body}`

t.test('what is no HTTP is told in the form of OpenAI', async t => {
  for (const [request, status, code, closes] of [
    ['GET /v1/models HTTP/1.1\r\n\r\n', 400, 'malformed_http', false],
    ['GET /v1/models HTTP/1.1\nhost: x\n\n', 400, 'malformed_http', false],
    ['GARBAGE\r\n\r\n', 400, 'malformed_http', false],
    [`GET / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(70_000)}${HEAD_END}`, 431, 'headers_too_large', false],
    [`GET / HTTP/1.1\r\nhost: x\r\nexpect: tea${HEAD_END}`, 417, 'expectation_failed', false],
    [
      `POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99${HEAD_END}{"model":`,
      400,
      'malformed_http',
      true,
    ],
  ] as const) {
    const { whole } = await speak(t, request, { closes })
    const answer = await whole()
    const title = JSON.stringify(request.slice(0, 60))
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `), title)
    t.match(answer, /content-type: application\/json/i, title)
    const { error } = JSON.parse(answer.slice(answer.indexOf(HEAD_END)))
    t.match(error, { code, message: /^cannot /, param: null }, title)
    t.strictSame(Object.keys(error).sort(), ['code', 'message', 'param', 'type'], title)
  }
  const metrics = (await fleet.send('/metrics')).text
  t.match(metrics, /homing_gateway_requests_total\{route="none",status="400"\} 3/)
  t.match(metrics, /homing_gateway_requests_total\{route="none",status="431"\} 1/)
})

t.test('a target in absolute form is served', async t => {
  const get = (target: string) => `GET ${target} HTTP/1.1\r\nhost: x\r\nconnection: close${HEAD_END}`
  const models = await (await speak(t, get('http://router.example:8000/v1/models'))).whole()
  t.match(models, /^HTTP\/1\.1 200 .*"homing-sim"/s)
  t.match(await (await speak(t, get('http://router.example/health'))).whole(), /"status": "ok"/)
  const body = '{"model":"homing-sim","prompt":"hello","max_tokens":2}'
  const { whole } = await speak(t, post('http://x/v1/completions', body, 'connection: close\r\n'))
  t.match(await whole(), /^HTTP\/1\.1 200 .*"text_completion"/s)
})

t.test('a path that has two readings reaches no engine', async t => {
  const before = await requestsTaken()
  for (const path of [
    '/v1/%2e%2e/v1/completions',
    '/v1/../v1/completions',
    '/v1/./completions',
    '//v1/completions',
    '/v1//completions',
    '/v1%2fcompletions',
    '/v1/%63ompletions',
    '/v1/completions/',
    '/v1/completions%00',
    '/v1/completions;x=1',
    '\\v1\\completions',
    'http://x/v1/%2e%2e/completions',
  ]) {
    const { whole } = await speak(
      t,
      post(path, '{"model":"homing-sim","prompt":"x"}', 'connection: close\r\n'),
    )
    t.match(await whole(), /^HTTP\/1\.1 40[04] .*"error":/s, path)
  }
  t.equal(await requestsTaken(), before)
})

async function requestsTaken(): Promise<number> {
  const states = await Promise.all(fleet.engines.map(({ state }) => state()))
  return states.reduce((sum, { requestsTaken }) => sum + requestsTaken, 0)
}

t.test('a client that closes its side gets its whole answer, and its stream', async t => {
  const body = { model: 'homing-sim', prompt: 'The pigeon', max_tokens: 8 }
  const whole = await (
    await speak(t, post('/v1/completions', JSON.stringify(body)), { closes: true })
  ).whole()
  t.match(whole, /HTTP\/1\.1 200 .*"finish_reason":"length".*\}$/s)
  const stream = JSON.stringify({ ...body, stream: true })
  const events = await (await speak(t, post('/v1/completions', stream), { closes: true })).whole()
  t.match(events, /HTTP\/1\.1 200 .*data: \[DONE\]/s)
  await fleet.drained()
})

/** A router over one engine that speaks by hand. */
async function routerOver(t: Test, answer: (socket: Socket, request: RawRequest) => void) {
  const engine: RawEngine = await startRawEngine('raw', answer)
  const router = await startTestRouter([`${engine.url}?block_size=16`], ['--log-level', 'silent'])
  t.teardown(async () => {
    await router.stop(0)
    engine.close()
  })
  return { engine, client: new RouterClient(router.url) }
}

t.test('a client that leaves ends the request at its engine, whatever has been answered', async t => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
  const event = 'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
  for (const answered of ['', head, `${head}${event.length.toString(16)}\r\n${event}\r\n`]) {
    const aborted = Promise.withResolvers<void>()
    const asked = Promise.withResolvers<void>()
    const { client } = await routerOver(t, socket => {
      socket.on('close', () => aborted.resolve())
      socket.write(answered)
      asked.resolve()
    })
    const body = '{"model":"raw","prompt":"x","stream":true}'
    const { socket } = await speak(t, post('/v1/completions', body), { url: client.url })
    await asked.promise
    if (answered.includes('data')) await once(socket, 'data')
    socket.destroy()
    await aborted.promise
    await client.drained()
    t.pass(`after ${answered.length} bytes of an answer`)
  }
})

t.test('interim answers of an engine do not end the request', async t => {
  const { client } = await routerOver(t, socket => {
    socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    setImmediate(() => {
      socket.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n')
      socket.write(
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}',
      )
    })
  })
  for (const path of ['/v1/completions', '/v1/embeddings']) {
    const body = '{"model":"raw","prompt":"x"}'
    const request = post(path, body, 'expect: 100-continue\r\nconnection: close\r\n')
    const answer = await (await speak(t, request, { url: client.url })).whole()
    t.match(answer, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/, `${path}: the only one is ours`)
    t.match(answer, /\{"ok":true\}$/)
  }
})

t.test("an engine's own 503 reaches the client with what it says of coming back", async t => {
  const body = '{"error":{"message":"warming up","type":"ServiceUnavailableError","param":null,"code":503}}'
  const { client, engine } = await routerOver(t, socket => {
    socket.write(
      `HTTP/1.1 503 Service Unavailable\r\nretry-after: 17\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
  })
  for (const path of ['/v1/completions', '/v1/chat/completions', '/v1/embeddings']) {
    const answer = await client.send(path, {
      body: { model: 'raw', prompt: 'x', messages: [{ role: 'user', content: 'x' }] },
    })
    t.strictSame([answer.status, answer.headers['retry-after'], answer.text], [503, '17', body], path)
  }
  t.equal(engine.requests.length, 3, 'each was sent once')
  await client.drained()
})

t.test('pins are honoured on other routes, too', async t => {
  const workers = await fleet.workers()
  for (const { instance_id: instanceId, id } of workers) {
    for (const path of ['/v1/responses', '/v1/messages', '/tokenize']) {
      const body = {
        model: 'homing-sim',
        input: 'x',
        messages: [{ role: 'user', content: 'x' }],
        max_tokens: 4,
      }
      const pinned = await fleet.send(path, { body: { ...body, nvext: { backend_instance_id: instanceId } } })
      t.strictSame([pinned.status, pinned.headers['x-homing-worker']], [200, `${id}/0`], pinned.text)
      const headers = { 'x-worker-instance-id': String(instanceId), 'x-dp-rank': '0' }
      const again = await fleet.send(path, { body, headers })
      t.strictSame([again.status, again.headers['x-homing-worker']], [200, `${id}/0`], again.text)
    }
  }
  const unknown = await fleet.send('/v1/messages', {
    body: { model: 'homing-sim', messages: [{ role: 'user', content: 'x' }], max_tokens: 1 },
    headers: { 'x-worker-instance-id': '99' },
  })
  t.strictSame([unknown.status, unknown.json.error.type], [400, 'invalid_request_error'])
  await fleet.drained()
})
