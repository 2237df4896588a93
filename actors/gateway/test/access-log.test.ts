/**
 * The access log: one line for each request, however it ends, with what became of it and nothing of what was
 * said.
 */

import t from 'tap'
import { start } from './gateway-world.ts'
import { DECISION, READ } from './sample-records.ts'
import { data, die, end, finish, head } from './worker-exchange.ts'

const accessLog = { path: '-', sample: 1 }
const STREAM = { 'content-type': 'text/event-stream' }
const JSON_TYPE = { 'content-type': 'application/json' }

t.test('a request that is answered has one line, with tokens, worker and the time of each stage', async t => {
  const world = await start(
    t,
    { accessLog },
    {
      decide: (_, id) => ({
        kind: 'decided',
        decision: { ...DECISION, id, lookupMs: 0.25, decisionMs: 0.75 },
      }),
    },
  )
  const { system, ask, answer, accessLines } = world
  const headers = {
    'x-request-id': 'r-1',
    'x-homing-tenant': 'acme',
    authorization: 'Bearer sk-secret',
    'x-api-key': 'sk-secret',
  }
  await ask('POST', '/v1/completions?token=sk-secret', { body: '{"prompt":"a word of the client"}', headers })
  await system.advance('20ms')
  const usage = '{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":48}}'
  await answer(head(200, JSON_TYPE), finish(`{"choices":[{"text":"a word of the engine"}],"usage":${usage}}`))
  const [line, ...others] = accessLines
  t.strictSame(others, [])
  const { time, decision, connect_ms, ...rest } = line!
  t.match(time, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
  t.type(decision, 'string')
  t.type(connect_ms, 'number')
  t.strictSame(rest, {
    request_id: 'r-1',
    method: 'POST',
    path: '/v1/completions',
    route: 'completions',
    status: 200,
    outcome: 'ok',
    model: READ.model,
    tenant: 'acme',
    stream: false,
    worker: '10.0.0.1:8001/0',
    trust: 'exact',
    attempts: 1,
    prompt_tokens: 100,
    predicted_tokens: 48,
    cached_tokens: 48,
    output_tokens: 7,
    request_bytes: 33,
    answer_bytes: 142,
    read_ms: 0,
    tokenize_ms: 0,
    place_ms: 0,
    wait_ms: 0,
    decide_ms: 0.75,
    lookup_ms: 0.25,
    call_ms: 20,
    duration_ms: 20,
  })
  const text = JSON.stringify(accessLines)
  for (const secret of ['sk-secret', 'a word of', 'token=']) t.notOk(text.includes(secret), secret)
})

t.test('a stream has the time of its first token', async t => {
  const { system, ask, answer, accessLines } = await start(t, { accessLog })
  await ask('POST', '/v1/chat/completions', { body: '{}' })
  await system.advance('30ms')
  await answer(head(200, STREAM), data('data: {"choices":[{}]}\n\n'))
  await system.advance('50ms')
  t.strictSame(accessLines, [], 'it goes on')
  await answer(data('data: [DONE]\n\n'), end)
  t.match(accessLines, [{ stream: true, ttft_ms: 30, call_ms: 30, duration_ms: 80, outcome: 'ok' }])
})

t.test('every other end has its line too, once', async t => {
  const { system, ask, answer, accessLines } = await start(t, { accessLog })
  const last = () => accessLines.at(-1)!
  await ask('GET', '/health')
  t.match(last(), { method: 'GET', path: '/health', route: 'health', status: 200, outcome: 'ok' })
  await ask('GET', '/workers?key=secret')
  t.match(last(), { path: '/workers', route: 'workers', status: 400, outcome: 'refused' })
  await ask('GET', '/nowhere')
  t.match(last(), { route: 'none', status: 404, outcome: 'refused', error: 'HOMING_HTTP_NO_SUCH_ROUTE' })
  await ask('POST', '/v1/completions', { body: 'x'.repeat(2000) })
  t.match(last(), { route: 'completions', status: 413, outcome: 'refused' })
  t.match(last()['error'], /^HOMING_/)
  t.notOk('worker' in last())
  await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(422, JSON_TYPE), finish('{}'))
  t.match(last(), { status: 422, outcome: 'error', worker: '10.0.0.1:8001/0', attempts: 1 })
  await ask('POST', '/v1/completions', { body: '{}' })
  await answer(die)
  t.match(last(), { status: 502, outcome: 'error', error: 'HOMING_DISPATCH_UPSTREAM_FAILED' })
  const gone = await ask('POST', '/v1/completions', { body: '{}' })
  gone.call.abort()
  await system.settle()
  t.match(last(), { route: 'completions', outcome: 'aborted', worker: '10.0.0.1:8001/0' })
  t.notOk('status' in last(), 'there was no answer')
  const cut = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(200, JSON_TYPE), data(`{"text":"${'a'.repeat(70_000)}`))
  await answer(die)
  t.equal(cut.end, 'broken')
  t.match(last(), { status: 200, outcome: 'error' })
  t.equal(accessLines.length, 8)
})

t.test('a request that is placed again is one line, of its last place', async t => {
  const { ask, serve, answer, accessLines } = await start(
    t,
    {
      accessLog,
      exchangeLimits: {
        retriesMax: 1,
        retryShare: 0.2,
        stallMsMin: 10_000,
        silenceMsMax: 60_000,
        requestMsMax: 0,
      },
    },
    {
      decide: ({ excludedWorkers }, id) => ({
        kind: 'decided',
        decision:
          excludedWorkers.length === 0
            ? { ...DECISION, id }
            : {
                ...DECISION,
                id,
                workerId: '10.0.0.1:8002',
                worker: '10.0.0.1:8002/0',
                origin: 'http://10.0.0.1:8002',
              },
      }),
    },
  )
  await serve(8002, http => {
    http.writeHead(200, {})
    http.end()
  })
  await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(503), end)
  t.match(accessLines, [{ status: 200, outcome: 'ok', attempts: 2, worker: '10.0.0.1:8002/0' }])
  t.equal(accessLines.length, 1)
})

t.test('a sample has about its share, none and all have just that', async t => {
  for (const [sample, min, max] of [
    [0, 0, 0],
    [0.25, 60, 140],
    [1, 400, 400],
  ] as const) {
    await t.test(`sample ${sample}`, async t => {
      const { ask, accessLines } = await start(t, { accessLog: { path: '-', sample } })
      for (let i = 0; i < 400; i++) await ask('GET', '/health')
      t.ok(accessLines.length >= min && accessLines.length <= max, `${accessLines.length} of 400`)
    })
  }
})

t.test('lines are counted, and what clients name is cut to a length', async t => {
  const { ask, accessLines } = await start(t, { accessLog })
  await ask('GET', `/${'x'.repeat(5000)}`)
  t.ok(String(accessLines[0]!['path']).length < 300)
  const { body } = await ask('GET', '/metrics')
  t.match(body, /^homing_access_log_lines_total\{outcome="written"\} 1$/m)
  t.match(body, /^homing_access_log_lines_total\{outcome="dropped"\} 0$/m)
  t.match(body, /^homing_access_log_broken_state 0$/m)
})
