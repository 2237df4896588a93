/** What clients differ in: pages of other sites, compressed bodies, and a router that is about to leave. */

import { gzipSync } from 'node:zlib'
import t from 'tap'
import { HOST, PORT, start } from './gateway-world.ts'
import { READ } from './sample-records.ts'
import { textOf } from './utf8.ts'
import { finish, head } from './worker-exchange.ts'

const PAGE = 'https://app.example.org'
const CHAT = '{"model":"m","messages":[{}]}'
const preflight = (origin: string, headers = 'authorization, content-type, x-stainless-os, x-evil') => ({
  headers: {
    origin,
    'access-control-request-method': 'POST',
    'access-control-request-headers': headers,
  },
})

t.test('a preflight of a named origin is allowed for every route of the API', async t => {
  const { ask, calls } = await start(t, {
    corsOrigins: ['https://other.example.org', PAGE],
    relayRoutes: [{ method: undefined, path: '/v1/files' }],
  })
  for (const [path, methods] of [
    ['/v1/chat/completions', 'POST'],
    ['/v1/models', 'GET'],
    ['/v1/embeddings', 'POST'],
    ['/v1/responses/r1', 'GET, DELETE'],
    ['/v1/files', 'GET, POST, PUT, PATCH, DELETE'],
  ] as const) {
    const { status, headers, body } = await ask('OPTIONS', path, preflight(PAGE))
    t.strictSame([status, body], [204, ''], path)
    t.match(headers, {
      'access-control-allow-origin': PAGE,
      'access-control-allow-methods': methods,
      'access-control-max-age': '600',
      vary: 'origin',
    })
    const allowed = String(headers['access-control-allow-headers']).split(', ')
    t.ok(['authorization', 'content-type', 'x-stainless-os'].every(name => allowed.includes(name)))
    t.notOk(allowed.includes('x-evil'))
    t.equal(headers['access-control-allow-credentials'], undefined)
  }
  t.equal((await ask('OPTIONS', '/v1/nothing', preflight(PAGE))).status, 404)
  t.strictSame(calls, [])
})

t.test('an origin that is not named is told so, and gets no header', async t => {
  const { ask, answer } = await start(t, { corsOrigins: [PAGE] })
  const refused = await ask('OPTIONS', '/v1/chat/completions', preflight('https://evil.example'))
  t.equal(refused.status, 403)
  t.match(JSON.parse(refused.body).error.message, /pages of https:\/\/evil.example .* --cors-origin/)
  t.equal(refused.headers['access-control-allow-origin'], undefined)
  const call = await ask('POST', '/v1/chat/completions', {
    body: CHAT,
    headers: { origin: 'https://evil.example' },
  })
  await answer(head(200, { 'access-control-allow-origin': '*' }), finish('{}'))
  t.equal(call.status, 200, 'as for any client')
  t.equal(call.headers['access-control-allow-origin'], undefined, 'nor that of the engine')
  t.equal(call.headers['vary'], 'origin')
})

t.test('answers and errors have the headers, in place of those of the engine', async t => {
  const { ask, answer, script } = await start(t, { corsOrigins: [PAGE] })
  const headers = { origin: PAGE }
  const call = await ask('POST', '/v1/chat/completions', { body: CHAT, headers })
  await answer(
    head(200, {
      'access-control-allow-origin': '*',
      'access-control-allow-credentials': 'true',
      vary: 'accept-encoding',
    }),
    finish('{}'),
  )
  t.match(call.headers, { 'access-control-allow-origin': PAGE, vary: 'accept-encoding, origin' })
  t.match(call.headers['access-control-expose-headers'], /x-homing-decision/)
  t.equal(call.headers['access-control-allow-credentials'], undefined)
  script.decide = () => ({
    kind: 'refused',
    error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot', details: {} },
  })
  for (const [status, path, body] of [
    [503, '/v1/chat/completions', CHAT],
    [404, '/v1/nothing', CHAT],
    [405, '/v1/models', CHAT],
    [413, '/v1/chat/completions', 'x'.repeat(2000)],
  ] as const) {
    const error = await ask('POST', path, { body, headers })
    t.equal(error.status, status)
    t.equal(error.headers['access-control-allow-origin'], PAGE, path)
  }
  t.equal((await ask('GET', '/v1/models', { headers })).headers['access-control-allow-origin'], PAGE)
})

t.test('every origin may be allowed', async t => {
  const { ask } = await start(t, { corsOrigins: ['*'] })
  const { status, headers } = await ask('OPTIONS', '/v1/chat/completions', preflight(PAGE))
  t.strictSame([status, headers['access-control-allow-origin'], headers['vary']], [204, '*', undefined])
})

t.test('without the setting, and for operators with it, nothing is allowed', async t => {
  for (const [corsOrigins, path] of [
    [[], '/v1/chat/completions'],
    [['*'], '/workers'],
  ] as const) {
    const { ask } = await start(t, { corsOrigins })
    const asked = await ask('OPTIONS', path, preflight(PAGE))
    t.equal(asked.status, 405, path)
    t.equal(asked.headers['access-control-allow-origin'], undefined)
    const seen = await ask('GET', '/workers', { headers: { origin: PAGE } })
    t.equal(seen.headers['access-control-allow-origin'], undefined)
  }
})

t.test('a compressed completion is read, and goes to the engine decoded', async t => {
  const bodies: string[] = []
  const { system, network, called } = await start(
    t,
    {},
    {
      read: ({ body }) => {
        bodies.push(textOf(body))
        return { kind: 'read', request: READ }
      },
    },
  )
  const { http } = network.transport()
  const request = { origin: `http://${HOST}:${PORT}`, method: 'POST', path: '/v1/chat/completions' }
  const headers = { 'content-encoding': 'gzip', 'content-type': 'application/json' }
  const sent = http.fetch({ ...request, headers, body: gzipSync(CHAT) }, { timeoutMs: 60_000 })
  while (bodies.length === 0) await new Promise(resolve => setImmediate(resolve))
  await system.settle()
  t.strictSame(bodies, [CHAT])
  t.equal(called().body, CHAT)
  t.equal(called().request.headers['content-encoding'], undefined)
  called().http.end()
  await system.settle()
  t.equal((await sent).status, 200)
})

t.test('a relayed body stays compressed, and is read for the model', async t => {
  const { system, network, calls, called } = await start(t)
  const { http } = network.transport()
  const send = async (encoding: string, given: Uint8Array) => {
    const before = calls.length
    const request = { origin: `http://${HOST}:${PORT}`, method: 'POST', path: '/v1/embeddings' }
    const headers = { 'content-encoding': encoding, 'content-type': 'application/json' }
    const sent = http.fetch({ ...request, headers, body: given }, { timeoutMs: 60_000 })
    while (calls.length === before) await new Promise(resolve => setImmediate(resolve))
    await system.settle()
    called().http.end()
    await system.settle()
    t.equal((await sent).status, 200)
    const { routing, request: seen, body } = called()
    return [routing.model, seen.headers['content-encoding'], body]
  }
  const body = '{"model":"embedder","input":"a"}'
  const encoded = gzipSync(body)
  t.strictSame(await send('gzip', encoded), ['embedder', 'gzip', textOf(encoded)])
  t.strictSame(
    await send('gzip', gzipSync('{"model":"e","nvext":{}}')),
    ['e', undefined, '{"model":"e"}'],
    'what is for the router reaches no engine',
  )
  for (const [encoding, unread] of [
    ['compress', encoded],
    ['gzip', encoded.subarray(0, 15)],
    ['gzip', gzipSync('x'.repeat(5000))],
  ] as const)
    t.strictSame(await send(encoding, unread), ['', encoding, textOf(unread)], 'the engine judges it')
})

t.test('a router that is about to leave is not ready, and serves as before', async t => {
  const { ask, answer, ref, system } = await start(t)
  t.equal((await ask('GET', '/ready')).status, 200)
  ref.tell({ type: 'leave' })
  await system.settle()
  const { status, body } = await ask('GET', '/ready')
  t.strictSame([status, JSON.parse(body).status], [503, 'stopping'])
  t.equal((await ask('GET', '/health')).status, 200)
  const call = await ask('POST', '/v1/chat/completions', { body: CHAT })
  await answer(head(), finish('done'))
  t.strictSame([call.status, call.body], [200, 'done'])
})
