/**
 * What clients and what stands between them and the engines may be: engines behind one host that tells them
 * apart by a path, pages of other sites, compressed bodies, proxies that cut silent connections, and a
 * rollout that takes the router away. One router and two engines over real sockets.
 */

import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib'
import OpenAI, { APIError } from 'openai'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  RouterClient,
  startEngines,
  startTestRouter,
  TINY_TOKENIZER,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const PAGE = 'https://app.example.org'
const SHUTDOWN_DELAY_MS = 3000
const messages = [
  { role: 'user' as const, content: 'Which way is home, if all that is known is the way here?' },
]

const { engines, stop } = await startEngines([{ tokenizer: TINY_TOKENIZER }, { tokenizer: TINY_TOKENIZER }])
/** Paths that were asked for. */
const asked = new Set<string>()
/** How the front treats completions: passes them on, at once or when it is told to, or refuses them. */
let door: { readonly until?: Promise<void>; readonly refuses?: boolean } = {}
const front = createServer((given, answer) => void pass(given, answer))
front.listen(0, '127.0.0.1')
await once(front, 'listening')
const frontUrl = `http://127.0.0.1:${(front.address() as AddressInfo).port}`
const urls = [`${frontUrl}/engines/a`, `${frontUrl}/engines/b`]
const running = await startTestRouter(urls, [
  ...['--cors-origin', PAGE, '--stream-keep-alive', '1s'],
  ...['--shutdown-delay', `${SHUTDOWN_DELAY_MS}ms`, '--engine-metrics-interval', '100ms'],
])
const router = new RouterClient(running.url)
t.teardown(async () => {
  await running.stop(0)
  front.closeAllConnections()
  front.close()
  await stop()
})

async function pass(given: IncomingMessage, answer: ServerResponse): Promise<void> {
  const [, name, path] = /^\/engines\/([ab])(\/.*)$/.exec(given.url ?? '') ?? []
  if (path === undefined) return void answer.writeHead(404).end()
  asked.add(path.split('?', 1)[0]!)
  if (path.startsWith('/v1/chat')) {
    await door.until
    if (door.refuses === true)
      return void answer
        .writeHead(400, { 'content-type': 'application/json' })
        .end('{"error":{"message":"no such tool","type":"BadRequestError","code":400}}')
  }
  const behind = httpRequest(
    engines[name === 'a' ? 0 : 1]!.url + path,
    { method: given.method!, headers: given.headers },
    reply => {
      answer.writeHead(reply.statusCode!, reply.headers)
      reply.pipe(answer)
    },
  )
  behind.on('error', () => answer.destroy())
  given.pipe(behind)
}

t.test('engines under a path are probed, followed, asked to tokenize and called there', async t => {
  await router.trusted()
  const ids = urls.map(url => url.slice('http://'.length))
  t.match(
    await router.workers(),
    ids.map((id, at) => ({ id, url: urls[at]!, worker_keys: [{ worker: `${id}/0` }] })),
  )
  const first = await router.send('/v1/chat/completions', { body: { model: MODEL, messages, max_tokens: 8 } })
  t.equal(first.status, 200, first.text)
  const caches = engines.map((engine, at) => ({ ...engine, url: urls[at]! }))
  await router.caughtUp(caches)
  t.ok((await assertIndexEqualsCaches(router, caches)) > 0)
  const again = await router.send('/v1/chat/completions', { body: { model: MODEL, messages, max_tokens: 8 } })
  t.equal(again.headers['x-homing-worker'], first.headers['x-homing-worker'])
  t.equal(again.headers['x-homing-trust'], 'exact')
  t.ok(Number(again.headers['x-homing-overlap-blocks']) > 0)
  await until('their metrics are read', async () => {
    const keys = (await router.workers()).flatMap(({ worker_keys }) => worker_keys)
    return keys.every(({ load }) => load.engine_kv_usage !== null) ? true : undefined
  })
  for (const path of ['/v1/models', '/health', '/metrics', '/kv_event_sources', '/tokenize'])
    t.ok(asked.has(path), path)
  const diagnosis = await router.send(`/workers/${ids[0]}/diagnosis`)
  t.match([diagnosis.status, diagnosis.json.url], [200, urls[0]])
  t.equal((await router.send(`/workers/${ids[0]}`, { method: 'DELETE' })).status, 200)
  t.equal((await router.send('/workers', { body: { url: urls[0] } })).status, 201)
  await router.trusted()
})

t.test('a compressed body is a body', async t => {
  const body = JSON.stringify({ model: MODEL, messages, max_tokens: 4 })
  for (const [encoding, bytes] of [
    ['gzip', gzipSync(body)],
    ['br', brotliCompressSync(body)],
    ['zstd', zstdCompressSync(body)],
  ] as const) {
    const headers = { 'content-encoding': encoding }
    const answer = await router.send('/v1/chat/completions', { body: bytes, headers })
    t.equal(answer.status, 200, `${encoding}: ${answer.text}`)
    t.equal((await router.send('/route', { body: bytes, headers })).status, 200, 'operator routes, too')
  }
  const headers = { 'content-encoding': 'snappy' }
  const refused = await router.send('/v1/chat/completions', { body: gzipSync(body), headers })
  t.match([refused.status, refused.json.error.code], [415, 'unsupported_encoding'])
})

t.test('a typing error in token ids or in an override is told', async t => {
  for (const [path, body, param] of [
    ['/route', { token_ids: 'x' }, 'token_ids'],
    ['/route', { token_ids: [1, 'x'] }, 'token_ids[1]'],
    [
      '/v1/completions',
      { prompt: 'a', router_config_override: { temperature: 1 } },
      'router_config_override.temperature',
    ],
  ] as const) {
    const { status, json } = await router.send(path, { body: { model: MODEL, ...body } })
    t.match([status, json.error], [400, { code: 'invalid_value', param }])
  }
})

t.test('a page of a named origin may ask', async t => {
  const headers = { origin: PAGE, 'access-control-request-method': 'POST' }
  const allowed = await router.send('/v1/chat/completions', { method: 'OPTIONS', headers })
  t.match([allowed.status, allowed.headers], [204, { 'access-control-allow-origin': PAGE }])
  const answer = await router.send('/v1/chat/completions', {
    body: { model: MODEL, messages, max_tokens: 1 },
    headers: { origin: PAGE },
  })
  t.match([answer.status, answer.headers], [200, { 'access-control-allow-origin': PAGE, vary: 'origin' }])
})

t.test('the official client reads a stream that begins with comments, and errors behind them', async t => {
  const client = new OpenAI({ baseURL: `${router.url}/v1`, apiKey: 'unused', maxRetries: 0 })
  const ask = async () => {
    const held = Promise.withResolvers<void>()
    door = { ...door, until: held.promise }
    // Resolves with the head, which the first comment brings.
    const stream = await client.chat.completions.create({
      model: MODEL,
      messages,
      max_tokens: 5,
      stream: true,
    })
    held.resolve()
    return stream
  }
  let chunks = 0
  for await (const chunk of await ask()) if (chunk.choices[0]?.delta.content) chunks++
  t.equal(chunks, 5)
  door = { refuses: true }
  const seen: unknown[] = []
  const error: unknown = await (async () => {
    for await (const chunk of await ask()) seen.push(chunk)
  })().catch((thrown: unknown) => thrown)
  t.ok(error instanceof APIError, String(error))
  t.match((error as Error).message, /no such tool/)
  t.strictSame(seen, [])
  door = {}
})

t.test('an idle connection is closed after the time that is set', async t => {
  // Of its own: no other client may send on a connection that is being closed.
  const brief = await startTestRouter(urls, ['--keep-alive-timeout', '200ms'])
  t.teardown(() => brief.stop(0))
  const socket = connect(brief.port, '127.0.0.1')
  socket.setEncoding('utf8')
  socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n')
  const [head] = (await once(socket, 'data')) as [string]
  t.match(head, /^HTTP\/1\.1 200 /)
  await once(socket, 'end')
  t.pass('by the router')
  socket.destroy()
})

t.test('a router that is told to end says so first, and serves until it has left', async t => {
  let [ending, delayMs] = [running, SHUTDOWN_DELAY_MS]
  while (!(await endsInOrder(t, ending, delayMs))) {
    t.comment(`this machine stood still for ${delayMs} ms: once more with a longer delay`)
    delayMs *= 10
    ending = await startTestRouter(urls, ['--shutdown-delay', `${delayMs}ms`])
  }
})

/** False: the delay was over before it could be seen what the router does meanwhile. */
async function endsInOrder(t: Test, ending: typeof running, delayMs: number): Promise<boolean> {
  const router = new RouterClient(ending.url)
  const beganMs = performance.now()
  const stopped = ending.stop(0)
  try {
    const ready = await until('it is not ready', async () => {
      const answer = await router.send('/ready')
      return answer.status === 503 ? answer : undefined
    })
    const answer = await router.send('/v1/chat/completions', {
      body: { model: MODEL, messages, max_tokens: 1 },
    })
    t.equal(ready.json.status, 'stopping')
    t.match([answer.status, answer.headers['connection']], [200, 'close'])
  } catch (error) {
    if (performance.now() - beganMs < delayMs) throw error
    await stopped
    return false
  }
  await stopped
  await t.rejects(router.send('/ready'), /ECONNREFUSED/)
  return true
}
