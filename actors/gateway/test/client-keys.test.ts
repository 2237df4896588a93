/** Clients with keys: who gets in, what each may use, and that nothing of a key goes any further. */

import { createHash } from 'node:crypto'
import { seededRandom } from '@homing/base'
import type { ClientKey } from '@homing/queue'
import t, { type Test } from 'tap'
import type { ClientCall } from './client-call.ts'
import { start, type World } from './gateway-world.ts'
import { DECISION, READ } from './sample-records.ts'
import { data, die, end, head } from './worker-exchange.ts'

const KEY_A = 'hk-of-team-a-0123456789'
const KEY_B = 'hk-of-team-b-0123456789'
const SEED = Number(process.env['HOMING_SEED'] ?? 38)
const CASES = 10
const BEARER_A = { authorization: `Bearer ${KEY_A}` }
const OVER_LIMIT = [429, 'RateLimitError', 'rate_limit_exceeded', null]

function client(name: string, key: string, limits: Partial<ClientKey> = {}): ClientKey {
  return {
    name,
    digests: [createHash('sha256').update(key).digest('hex')],
    models: undefined,
    concurrentRequests: undefined,
    requestsPerMinute: undefined,
    tokensPerMinute: undefined,
    ...limits,
  }
}

/** A gateway with these clients, in a file that says the same. */
async function world(
  t: Test,
  keys: readonly ClientKey[],
  settings: Parameters<typeof start>[1] = {},
  change: Parameters<typeof start>[2] = {},
) {
  const text = JSON.stringify(
    keys.map(key => ({
      name: key.name,
      sha256: key.digests,
      models: key.models,
      concurrent_requests: key.concurrentRequests,
      requests_per_minute: key.requestsPerMinute,
      tokens_per_minute: key.tokensPerMinute,
    })),
  )
  const folder = t.testdir({ 'keys.json': text })
  const given = await start(t, { clientKeys: { file: `${folder}/keys.json`, keys }, ...settings }, change)
  // It reads the file before it listens, which takes no time of the system's clock.
  while ((await given.ask('GET', '/ready')).status !== 200) await new Promise(setImmediate)
  return given
}

const post = ({ ask }: World, headers: Readonly<Record<string, string>>, path = '/v1/completions') =>
  ask('POST', path, { headers: { 'content-type': 'application/json', ...headers }, body: '{}' })

async function metric({ ask }: World, name: string): Promise<number> {
  const { body } = await ask('GET', '/metrics')
  const line = body.split('\n').find(one => one.startsWith(`${name} `))
  return Number(line?.slice(name.length + 1) ?? 0)
}
const refused = (given: World, reason: string) =>
  metric(given, `homing_gateway_client_keys_refused_total{reason="${reason}"}`)

t.test('without a known key everything but probes and operator routes is 401', async t => {
  const given = await world(t, [client('a', KEY_A)])
  const { ask, calls } = given
  for (const [method, path] of [
    ['POST', '/v1/chat/completions'],
    ['POST', '/v1/completions'],
    ['POST', '/v1/responses'],
    ['GET', '/v1/models'],
    ['GET', '/v1/models/m'],
    ['POST', '/v1/embeddings'],
    ['POST', '/tokenize'],
    ['GET', '/v1/no-such-route'],
    ['GET', '/no-such-route'],
  ] as const) {
    const none = await ask(method, path, { body: '{}' })
    t.strictSame(none.error, [401, 'AuthenticationError', 'unauthorized', null], path)
    t.equal(none.headers['www-authenticate'], 'Bearer')
    const wrong = await ask(method, path, { headers: { authorization: `Bearer ${KEY_B}` }, body: '{}' })
    t.equal(wrong.status, 401, path)
    t.notOk(wrong.body.includes(KEY_B))
  }
  const messages = await post(given, {}, '/v1/messages')
  t.match(JSON.parse(messages.body), { type: 'error', error: { type: 'authentication_error' } })
  for (const path of ['/health', '/ready', '/workers', '/metrics'])
    t.equal((await ask('GET', path)).status, 200, path)
  for (const odd of [
    `Basic ${KEY_A}`,
    KEY_A,
    'Bearer',
    `Bearer ${KEY_A} ${KEY_A}`,
    `Bearer ${'x'.repeat(5000)}`,
  ])
    t.equal((await post(given, { authorization: odd })).status, 401, odd.slice(0, 40))
  t.equal(calls.length, 0)
  t.equal(await refused(given, 'unknown'), 10)
  t.equal(await refused(given, 'missing'), 14)
  // Each of the three headers is one.
  for (const headers of [
    BEARER_A,
    { 'x-api-key': KEY_A },
    { 'api-key': KEY_A },
    { authorization: `bearer  ${KEY_A}` },
  ])
    t.equal((await ask('GET', '/v1/models', { headers })).status, 200)
})

t.test('a body is not read before its key is known', async t => {
  const given = await world(t, [client('a', KEY_A)], { bodyBytesMax: 10 })
  const body = 'x'.repeat(1000)
  t.equal((await given.ask('POST', '/v1/completions', { body })).status, 401)
  t.equal((await given.ask('POST', '/v1/completions', { headers: BEARER_A, body })).status, 413)
})

t.test('the engine gets no key, and the name of the client is its tenant', async t => {
  const given = await world(t, [client('a', KEY_A)], { accessLog: { path: '-', sample: 1 } })
  const headers = {
    ...BEARER_A,
    'x-api-key': KEY_A,
    'api-key': KEY_A,
    'x-homing-tenant': 'b',
    'x-tenant-id': 'b',
    'x-own': 'kept',
  }
  const answer = await post(given, headers)
  t.match(given.called().http.headers, { 'x-own': 'kept' })
  t.notOk(JSON.stringify(given.called().http.headers).includes(KEY_A))
  t.equal(given.called().http.headers['x-tenant-id'], undefined)
  await given.answer(head(200), end)
  t.equal(answer.status, 200)
  t.equal(given.accessLines.at(-1)!.tenant, 'a')
  const seen = [given.accessLines, given.log.asked, given.log.settled].map(one =>
    JSON.stringify(one, (_, value) => (typeof value === 'bigint' ? String(value) : value)),
  )
  for (const path of ['/metrics', '/decisions', '/workers', '/queue', '/actors', '/actors/flight'])
    seen.push((await given.ask('GET', path)).body)
  for (const text of seen) t.notOk(text.includes(KEY_A))
})

t.test('a model that the key may not use is as if it were not there', async t => {
  const own = client('a', KEY_A, { models: [READ.model] })
  const given = await world(t, [own, client('b', KEY_B, { models: ['other'] })])
  const bearerB = { authorization: `Bearer ${KEY_B}` }
  t.equal(JSON.parse((await given.ask('GET', '/v1/models', { headers: BEARER_A })).body).data.length, 1)
  t.equal(JSON.parse((await given.ask('GET', '/v1/models', { headers: bearerB })).body).data.length, 0)
  t.equal((await given.ask('GET', `/v1/models/${READ.model}`, { headers: BEARER_A })).status, 200)
  const hidden = await given.ask('GET', `/v1/models/${READ.model}`, { headers: bearerB })
  const none = await given.ask('GET', '/v1/models/none', { headers: bearerB })
  t.equal(hidden.body, none.body.replaceAll('none', READ.model))
  const refusedCall = await post(given, bearerB)
  t.strictSame(refusedCall.error, [404, 'NotFoundError', 'model_not_found', null])
  t.equal(given.calls.length, 0)
  t.equal(await refused(given, 'model'), 1)
  // A relayed route that names no model goes only to workers whose own model it may use.
  t.equal((await post(given, bearerB, '/v1/embeddings')).status, 404)
  await post(given, BEARER_A, '/v1/embeddings')
  t.equal(given.calls.length, 1)
  t.equal((await post(given, BEARER_A)).status, undefined, 'it is being answered')
})

t.test('nor is it named where its last worker has failed and is gone', async t => {
  const error = {
    code: 'HOMING_ROUTER_MODEL_NOT_FOUND',
    message: `cannot serve model "${READ.model}": no worker has it; known models: secret-model`,
    details: { model: READ.model },
  }
  const given = await world(
    t,
    [client('a', KEY_A, { models: [READ.model] })],
    {
      exchangeLimits: {
        retriesMax: 2,
        retryShare: 1,
        stallMsMin: 10_000,
        silenceMsMax: 60_000,
        requestMsMax: 0,
      },
    },
    {
      decide: ({ excludedWorkers }, id) =>
        excludedWorkers.length > 0
          ? { kind: 'refused', error }
          : { kind: 'decided', decision: { ...DECISION, id } },
    },
  )
  const answer = await post(given, BEARER_A)
  await given.answer(die)
  t.equal(given.log.asked.length, 2, 'another worker was sought')
  t.ok((answer.status ?? 0) >= 400, `${answer.status}`)
  t.notMatch(answer.body, 'secret-model')
})

t.test('a model is not hidden from its key by the form of the body', async t => {
  const other = { ...READ, model: 'other' }
  const given = await world(t, [client('a', KEY_A, { models: [READ.model] }), client('free', KEY_B)], {
    openRequestsMax: 100,
  })
  const form = (end: string, ...models: string[]) =>
    models
      .map(name => `--b\r\ncontent-disposition: form-data; name="model"\r\n\r\n${name}\r\n`)
      .join('')
      .concat(`--b${end}`)
  const multipart = { 'content-type': 'multipart/form-data; boundary=b' }
  const named = JSON.stringify({ model: other.model })
  const json = { 'content-type': 'application/json' }
  const own = JSON.stringify({ model: READ.model, lora_path: [null, READ.model] })
  const adapter = JSON.stringify({ model: READ.model, lora_path: 'other' })
  const cases: readonly [headers: Record<string, string>, body: string, status: number | undefined][] = [
    [json, named, 404],
    [{}, named, 400],
    [{ 'content-type': 'text/plain' }, named, 400],
    [multipart, named, 400],
    [multipart, form('', READ.model), 400],
    [multipart, form('--', READ.model, other.model), 404],
    [multipart, form('--', READ.model), undefined],
    [{ ...json, 'content-encoding': 'unknown' }, named, 400],
    [{ ...json, 'content-encoding': 'gzip' }, named, 400],
    [json, adapter, 404],
    [json, JSON.stringify({ model: READ.model, lora_path: [READ.model, 'other'] }), 404],
    [json, own, undefined],
    [{}, '', undefined],
  ]
  for (const [headers, body, status] of cases) {
    const before = given.calls.length
    const path = '/v1/embeddings'
    const sent = await given.ask('POST', path, { headers: { ...BEARER_A, ...headers }, body })
    // What is decoded is decoded beside the actors, and a request that is passed on has no status.
    while (sent.status === undefined && given.calls.length === before) await new Promise(setImmediate)
    t.equal(sent.status, status, `${JSON.stringify(headers)} ${body}`)
    t.equal(given.calls.length, before + (status === undefined ? 1 : 0))
  }
  const free = { authorization: `Bearer ${KEY_B}`, 'content-type': 'text/plain' }
  t.equal((await given.ask('POST', '/v1/embeddings', { headers: free, body: named })).status, undefined)
  const completion = { headers: { ...BEARER_A, ...json }, body: adapter }
  t.equal((await given.ask('POST', '/v1/completions', completion)).status, 404)
})

t.test('a model is refused before the prompt is read', async t => {
  let reads = 0
  const read = () => {
    reads++
    return { kind: 'read' as const, request: READ }
  }
  const given = await world(t, [client('a', KEY_A, { models: [READ.model] })], {}, { read })
  const headers = { ...BEARER_A, 'content-type': 'application/json' }
  const ask = (body: string) => given.ask('POST', '/v1/completions', { headers, body })
  t.equal((await ask('{"model":"other","prompt":"long"}')).status, 404)
  t.equal((await ask(`{"model":"${READ.model}","prompt":"long","mod\\u0065l":"other"}`)).status, 404)
  t.equal((await ask(`{"model":"${READ.model}","prompt":"a","lora_path":"other"}`)).status, 404)
  t.equal((await ask('{"model":7}')).status, 400)
  t.equal((await ask('{"model":')).status, 400)
  t.equal(reads, 0)
  t.equal(await refused(given, 'model'), 3)
  t.equal((await ask(`{"model":"other","model":"${READ.model}","prompt":"a"}`)).status, undefined)
  t.equal(reads, 1)
})

t.test('a response is that of the key that made it', async t => {
  const read = ({ body }: { readonly body: Uint8Array }) => {
    const { previous_response_id: previousResponseId } = JSON.parse(new TextDecoder().decode(body))
    return { kind: 'read' as const, request: { ...READ, previousResponseId } }
  }
  const given = await world(
    t,
    [client('a', KEY_A), client('b', KEY_B)],
    {
      relayRoutes: [
        { method: 'POST', path: '/v1/responses/compact' },
        { method: 'POST', path: '/v1/responses/*' },
      ],
    },
    { read },
  )
  const json = { 'content-type': 'application/json' }
  const asked = async (key: string, method: string, path: string, body?: object) => {
    const headers = { ...json, authorization: `Bearer ${key}` }
    const { calls } = given
    const before = calls.length
    const sent = await given.ask(method, path, {
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    return { sent, reached: calls.length > before }
  }
  await asked(KEY_A, 'POST', '/v1/responses', { model: READ.model })
  await given.answer(head(200, json), data('{"id":"resp_1","object":"response","usage":null}'), end)
  const uses = [
    ['GET', '/v1/responses/resp_1'],
    ['DELETE', '/v1/responses/resp_1'],
    ['POST', '/v1/responses/resp_1/cancel'],
    ['POST', '/v1/responses/resp_1', {}],
    ['POST', '/v1/responses', { model: READ.model, previous_response_id: 'resp_1' }],
    ['POST', '/v1/responses', { previous_response_id: 'resp_1', nvext: { backend_instance_id: 7 } }],
    ['POST', '/v1/responses/compact', { model: READ.model, previous_response_id: 'resp_1' }],
  ] as const
  for (const [method, path, body] of uses) {
    const strange = await asked(KEY_B, method, path, body)
    t.strictSame([strange.sent.status, strange.reached], [404, false], `${method} ${path}`)
    const none = await asked(
      KEY_B,
      method,
      path.replace('resp_1', 'resp_2'),
      body && { ...body, previous_response_id: 'resp_2' },
    )
    t.equal(none.sent.body, strange.sent.body.replaceAll('resp_1', 'resp_2'), 'as if it were not there')
    t.equal((await asked(KEY_A, method, path, body)).reached, true, `${method} ${path} of its own`)
  }
  const before = given.calls.length
  const hidden = await given.ask('POST', '/v1/responses/compact', {
    headers: { 'content-type': 'text/plain', authorization: `Bearer ${KEY_B}` },
    body: JSON.stringify({ previous_response_id: 'resp_1' }),
  })
  t.strictSame([hidden.status, given.calls.length], [404, before], 'a body that is not read names none')
})

t.test('past a limit it is 429 with the time to come back', async t => {
  const given = await world(
    t,
    [client('a', KEY_A, { concurrentRequests: 1 }), client('b', KEY_B, { requestsPerMinute: 2 })],
    { accessLog: { path: '-', sample: 1 } },
  )
  const first = await post(given, BEARER_A)
  const second = await post(given, BEARER_A)
  t.strictSame(second.error, OVER_LIMIT)
  t.equal(second.headers['retry-after'], '1')
  t.match(given.accessLines.at(-1), { tenant: 'a', status: 429 })
  t.match(second.body, /a may have 1 requests at one time \(concurrent_requests\)/)
  await given.answer(head(200), end)
  t.equal(first.status, 200)
  t.equal((await post(given, BEARER_A)).end, 'open', 'the place is free again')
  const bearerB = { authorization: `Bearer ${KEY_B}` }
  for (let at = 0; at < 2; at++)
    t.equal((await given.ask('GET', '/v1/models', { headers: bearerB })).status, 200)
  const late = await post(given, bearerB, '/v1/messages')
  t.equal(late.status, 429)
  t.match(JSON.parse(late.body), { type: 'error', error: { type: 'rate_limit_error' } })
  t.equal(late.headers['retry-after'], '30')
  await given.system.advance('30s')
  t.equal((await given.ask('GET', '/v1/models', { headers: bearerB })).status, 200)
  t.strictSame([await refused(given, 'concurrency'), await refused(given, 'rate')], [1, 1])
})

t.test('tokens of prompts and answers count, and a debt is paid in time', async t => {
  const given = await world(t, [client('a', KEY_A, { tokensPerMinute: READ.promptTokens })])
  await post(given, BEARER_A)
  await given.answer(head(200), end)
  const late = await post(given, BEARER_A)
  t.strictSame(late.error, OVER_LIMIT)
  t.match(late.body, /tokens a minute/)
  await given.system.advance('61s')
  t.equal((await post(given, BEARER_A)).end, 'open')
  t.equal(await refused(given, 'tokens'), 1)
})

t.test('a next turn is one of the same client, and ends for its limits, too', async t => {
  const read = () => ({ kind: 'read' as const, request: READ })
  const settings = { nextTurnsMax: 1, bodyBytesMax: 5000 }
  const given = await world(t, [client('a', KEY_A, { concurrentRequests: 2 })], settings, { read })
  const messages = [{ role: 'user', content: 'hi' }]
  const hints = { nvext: { agent_hints: { speculative_prefill: true } } }
  const body = JSON.stringify({ model: 'm', messages, ...hints })
  const chat = await given.ask('POST', '/v1/chat/completions', { headers: BEARER_A, body })
  const message = { role: 'assistant', content: 'good day' }
  const whole = JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }] })
  await given.answer(head(200, { 'content-type': 'application/json' }), data(whole), end)
  t.equal(chat.status, 200)
  t.equal(given.calls.length, 2, 'the next turn was sent')
  t.notOk(JSON.stringify(given.called().http.headers).includes(KEY_A))
  t.equal(await metric(given, 'homing_gateway_client_key_open_requests'), 1)
  await given.answer(head(200, { 'content-type': 'application/json' }), data(whole), end)
  t.equal(await metric(given, 'homing_gateway_client_key_open_requests'), 0)
})

t.test('a next turn takes the place of its own chat, and is skipped where its client has none', async t => {
  const read = () => ({ kind: 'read' as const, request: READ })
  const settings = { nextTurnsMax: 2, bodyBytesMax: 5000 }
  const own = client('a', KEY_A, { concurrentRequests: 1, requestsPerMinute: 3 })
  const given = await world(t, [own], settings, { read })
  const messages = [{ role: 'user', content: 'hi' }]
  const body = JSON.stringify({
    ...{ model: 'm', messages },
    ...{ nvext: { agent_hints: { speculative_prefill: true } } },
  })
  const message = { role: 'assistant', content: 'good day' }
  const whole = JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }] })
  const answer = [head(200, { 'content-type': 'application/json' }), data(whole), end] as const
  const turns = async () => {
    const name = 'homing_gateway_next_turns_total'
    return [await metric(given, `${name}{outcome="sent"}`), await metric(given, `${name}{outcome="skipped"}`)]
  }
  await given.ask('POST', '/v1/chat/completions', { headers: BEARER_A, body })
  await given.answer(...answer)
  t.equal(given.calls.length, 2, 'the next turn was sent')
  t.strictSame(await turns(), [1, 0])
  await given.answer(...answer)
  await given.ask('POST', '/v1/chat/completions', { headers: BEARER_A, body })
  await given.answer(...answer)
  t.equal(given.calls.length, 3, 'its minute is used up, so no next turn was sent')
  t.strictSame(await turns(), [1, 1])
})

t.test('however a request ends, its place is free again', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const random = seededRandom(SEED)
  for (let at = 0; at < CASES; at++) {
    const given = await world(t, [client('a', KEY_A, { concurrentRequests: 3 })], {
      bodyBytesMax: 100,
      nextTurnsMax: 2,
    })
    const { decide } = given.script
    const open: ClientCall[] = []
    for (let step = 0; step < 12; step++) {
      const what = random.below(7)
      if (what === 0) open.push(await post(given, BEARER_A))
      else if (what === 1)
        open.push(await given.ask('POST', '/v1/completions', { headers: BEARER_A, body: 'x'.repeat(200) }))
      else if (what === 2) open.at(-1)?.call.abort()
      else if (what === 3) await given.ask('GET', '/v1/no-such-route', { headers: BEARER_A })
      else if (what === 4 && given.calls.length > 0) await given.answer(head(200), end)
      else if (what === 5 && given.calls.length > 0) await given.answer(http => http.destroy())
      else given.script.decide = random.below(3) === 0 ? () => undefined : decide
      await given.system.settle()
      const left = await metric(given, 'homing_gateway_client_key_open_requests')
      if (left > 3) t.fail(`${left} are open`)
    }
    for (const one of open) one.call.abort()
    await given.system.settle()
    await given.system.advance('2s')
    t.equal(await metric(given, 'homing_gateway_client_key_open_requests'), 0)
  }
})
