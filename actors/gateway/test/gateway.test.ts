/** A request on its way through the gateway, with every outcome. */

import { readFileSync } from 'node:fs'
import type { PlaceResult } from '@homing/actors/queue'
import { readModelAlias } from '@homing/config'
import type { WorkerRecord } from '@homing/fleet'
import { SALT } from '@homing/protocol'
import t from 'tap'
import { HOST, PORT, start } from './gateway-world.ts'
import { DECISION, fleetOf, READ, RECEIPT, WORKER } from './sample-records.ts'
import { textOf, utf8 } from './utf8.ts'
import { data, die, end, head } from './worker-exchange.ts'

const CHAT = '{"model":"m","messages":[{"role":"user","content":"hi"}]}'
const JSON_TYPE = { 'content-type': 'application/json' }

t.test('a completion is read, placed, sent, and its answer relayed as it comes', async t => {
  const read: unknown[] = []
  const { ask, called, answer, settled, calls } = await start(
    t,
    {},
    {
      read: message => {
        read.push([message.route, textOf(message.body), message.headers['x-tenant-id'], message.wantTokenIds])
        return { kind: 'read', request: READ }
      },
    },
  )
  const call = await ask('POST', '/v1/chat/completions?a=1', {
    headers: { 'x-tenant-id': 'me', 'x-request-id': 'mine', authorization: 'Bearer x' },
    body: CHAT,
  })
  t.strictSame(read, [['chat', CHAT, 'me', false]])
  t.match(called(), {
    request: { method: 'POST', path: '/v1/chat/completions?a=1', headers: { authorization: 'Bearer x' } },
    routing: { requestId: 'mine', model: 'm', promptTokens: 100 },
  })
  t.equal(called().body, CHAT, 'the bytes of the client')
  await answer(
    head(200, { 'content-type': 'text/event-stream', connection: 'close', 'x-engine': 'e' }),
    data('data: {"n":1}\n\n'),
  )
  t.strictSame([call.status, call.body, call.end], [200, 'data: {"n":1}\n\n', 'open'])
  t.match(call.headers, {
    'x-engine': 'e',
    'x-homing-decision': 'decision-1',
    'x-homing-worker': '10.0.0.1:8001/0',
    'x-homing-overlap-blocks': '3',
    'x-homing-trust': 'exact',
  })
  t.equal(call.headers['connection'], undefined)
  await answer(data('data: {"n":2}\n\ndata: [DONE]\n\n'), end)
  t.strictSame([call.body, call.end], ['data: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n', 'complete'])
  t.strictSame([calls.length, settled()], [1, ['decision-1']])
})

t.test('what the tokenizer changed goes upstream, and its hints to the router', async t => {
  const placed: unknown[] = []
  const upstreamBody = new TextEncoder().encode('{"model":"m"}')
  const { ask, called } = await start(
    t,
    {},
    {
      read: () => ({
        kind: 'read',
        request: {
          ...READ,
          upstreamBody,
          override: { overlapWeight: 0.5, overlapCredit: 2, temperature: 0.1 },
          constraints: { allowedInstanceIds: [7], requiredTaints: [], preferredTaints: {} },
          pinnedInstanceId: 7,
          pinnedRank: 1,
          unknownPromptReason: 'because',
        },
      }),
      decide: (request, id) => {
        placed.push(request)
        return { kind: 'decided', decision: { ...DECISION, id } }
      },
    },
  )
  await ask('POST', '/v1/completions', { body: '{"model":"m","nvext":{}}' })
  t.equal(called().body, textOf(upstreamBody))
  t.match(placed, [
    {
      override: { overlapWeight: 0.5, overlapCredit: 2, temperature: 0.1 },
      constraints: { allowedInstanceIds: [7] },
      pinnedInstanceId: 7,
      pinnedRank: 1,
      unknownPromptReason: 'because',
      requestId: /^[\w-]{21}$/,
    },
  ])
})

t.test('the inference routes of engines are relayed by load, with the methods that they have', async t => {
  const { ask, called, script } = await start(t)
  script.read = () => t.fail('the tokenizer was asked') as never
  await ask('POST', '/v1/embeddings?a=1', { headers: JSON_TYPE, body: '{"model":"m","input":"x"}' })
  t.match(called(), {
    request: { method: 'POST', path: '/v1/embeddings?a=1' },
    routing: { model: 'm', unknownPromptReason: /by load/, pinnedInstanceId: undefined },
  })
  const tokensOf = async (path: string) => {
    await ask('POST', path, {
      headers: JSON_TYPE,
      body: JSON.stringify({ model: 'm', input: 'x'.repeat(400) }),
    })
    return called().routing.promptTokens
  }
  t.equal(await tokensOf('/v1/embeddings'), 100)
  t.equal(await tokensOf('/tokenize'), 0, 'no model runs for it')
  await ask('POST', '/v1/audio/transcriptions', {
    headers: { 'content-type': 'multipart/form-data' },
    body: '--x',
  })
  t.match(called(), { request: { method: 'POST' }, routing: { model: '' } })
  await ask('GET', '/v1/responses/resp_1?stream=true')
  t.match(called(), {
    request: { method: 'GET', path: '/v1/responses/resp_1?stream=true' },
    body: '',
  })
  await ask('POST', '/v1/responses/resp_1/cancel', { headers: JSON_TYPE, body: '' })
  t.match(called(), { request: { method: 'POST', path: '/v1/responses/resp_1/cancel' } })
})

const FORM = (model: string) =>
  [
    '--x y',
    'Content-Disposition: form-data; name="file"; filename="model"',
    'Content-Type: audio/wav',
    '',
    'RIFF\r\n--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nno\r\n',
    '--x y',
    'content-disposition: form-data; name="model"',
    '',
    model,
    '--x y--',
    '',
  ].join('\r\n')

t.test('the model of a form is read, and its bytes go on as they came', async t => {
  const { ask, called } = await start(t)
  const headers = { 'content-type': 'multipart/form-data; boundary="x y"' }
  for (const route of ['audio/transcriptions', 'audio/translations', 'images/edits']) {
    await ask('POST', `/v1/${route}`, { headers, body: FORM('whisper') })
    t.equal(called().routing.model, 'whisper', route)
    t.equal(called().body, FORM('whisper'), route)
  }
})

t.test('an alias is the model behind it on relayed routes, too, of JSON and of forms', async t => {
  const modelAliases = ['ears=m', 'claude-*=m'].map(readModelAlias)
  const { ask, called } = await start(t, { modelAliases })
  const form = { 'content-type': 'multipart/form-data; boundary="x y"' }
  await ask('POST', '/v1/audio/transcriptions', { headers: form, body: FORM('ears') })
  t.strictSame([called().routing.model, called().body], ['m', FORM('m')])
  const body = '{"nvext":{},"model":"claude-haiku", "input":1.0}'
  await ask('POST', '/v1/embeddings', { headers: JSON_TYPE, body })
  t.strictSame([called().routing.model, called().body], ['m', '{"model":"m", "input":1.0}'])
  const { data } = JSON.parse((await ask('GET', '/v1/models')).body)
  t.strictSame(
    data.map(({ id, root }: Record<string, string>) => [id, root]),
    [
      ['m', '/models/m'],
      ['org/poet', 'org/poet'],
      ['ears', '/models/m'],
    ],
  )
  t.match(JSON.parse((await ask('GET', '/v1/models/claude-opus')).body), {
    id: 'claude-opus',
    root: '/models/m',
  })
  t.equal((await ask('GET', '/v1/models/gpt')).status, 404)
})

t.test('a model that a loading worker may bring is 503, come again', async t => {
  const { ask, ref } = await start(t, { workerLoadingMsMax: 1e15 })
  const loading: WorkerRecord = { ...WORKER, id: 'b', state: 'down', models: [], unansweredSinceMs: 0 }
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER, loading) })
  const refused = await ask('GET', '/v1/models/new')
  t.strictSame([refused.status, refused.headers['retry-after']], [503, '5'])
  t.equal((await ask('GET', '/v1/models/m')).status, 200)
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER) })
  t.equal((await ask('GET', '/v1/models/new')).status, 404)
})

t.test('a session is named by the first header of the list that a request has, else by its body', async t => {
  const affinityHeaders = ['x-session-id', 'session_id']
  const { ask, called, script } = await start(t, { affinityHeaders })
  script.read = () => ({ kind: 'read', request: { ...READ, session: 'of the body' } })
  const sessionOf = async (headers: Record<string, string>) => {
    await ask('POST', '/v1/chat/completions', { headers: { ...JSON_TYPE, ...headers }, body: '{}' })
    return called().routing.sessionId
  }
  t.equal(await sessionOf({ session_id: 'b', 'X-Session-Id': 'a' }), 'a')
  t.equal(await sessionOf({ session_id: 'b', 'x-session-id': '' }), 'b')
  t.equal(await sessionOf({ 'x-dynamo-session-id': 'c' }), 'of the body')
})

t.test('what separates a relayed prompt from equal ones is told', async t => {
  const { ask, called } = await start(t)
  const routed = async (body: object, headers: Record<string, string> = JSON_TYPE) => {
    await ask('POST', '/v1/messages/count_tokens', { headers, body: JSON.stringify(body) })
    return called().routing.separated?.unnamed
  }
  t.equal(await routed({ model: 'm' }), undefined)
  t.strictSame(await routed({ model: 'm', cache_salt: 's' }), [SALT])
  t.strictSame(await routed({ model: 'm' }, { ...JSON_TYPE, 'x-tenant-id': 'a' }), [SALT])
  t.equal(await routed({ model: 'm' }, { ...JSON_TYPE, 'x-homing-tenant': 'a' }), undefined)
  t.strictSame(await routed({ model: 'm', nvext: { cache_salt: 's' }, extra_key: 'k', lora_path: 'l' }), [7])
})

t.test('other routes of engines are not relayed, and the answer says how to', async t => {
  const { ask, calls } = await start(t)
  for (const [method, path] of [
    ['POST', '/v1/load_lora_adapter'],
    ['POST', '/v1/unload_lora_adapter'],
    ['POST', '/sleep'],
    ['POST', '/reset_prefix_cache'],
    ['POST', '/update_weights'],
    ['GET', '/v1/files'],
    ['GET', '/server_info'],
    ['POST', '/v1/responses/a/b/cancel'],
    ['GET', '/v1/responses/a%2Fb'],
    ['GET', '/v1/responses/'],
    ['POST', '/v1/embeddings/'],
    ['POST', '//v1/embeddings'],
    ['POST', '/v1//embeddings'],
    ['POST', '/v1/./embeddings'],
    ['POST', '/v1/%65mbeddings'],
    ['POST', '/V1/embeddings'],
    ['POST', '/v1/chat%2Fcompletions'],
    ['POST', `/${'x'.repeat(5000)}`],
  ] as const) {
    const refused = await ask(method, path, method === 'POST' ? { body: '{}' } : {})
    t.strictSame(refused.error, [404, 'NotFoundError', 'not_found', null], `${method} ${path.slice(0, 50)}`)
    t.match(refused.body, /--relay-route/)
    t.ok(refused.body.length < 500)
  }
  const wrong = await ask('PUT', '/v1/responses/a')
  t.strictSame(wrong.error, [405, 'MethodNotAllowedError', 'method_not_allowed', null])
  t.equal(wrong.headers['allow'], 'GET, DELETE')
  t.strictSame(calls, [])
})

t.test('docs/requests.md lists the relayed routes', async t => {
  const text = readFileSync(new URL('../../../docs/requests.md', import.meta.url), 'utf8')
  const rows = text
    .split('## Relayed routes')[1]!
    .split('\n## ')[0]!
    .matchAll(/^\| `([A-Z]+)` \| (.*) \|$/gm)
  const documented = [...rows].flatMap(([, method, paths]) =>
    [...paths!.matchAll(/`([^`]+)`/g)].map(([, path]) => `${method} ${path}`),
  )
  const { relayed } = JSON.parse((await (await start(t)).ask('GET', '/')).body)
  t.strictSame(documented.sort(), relayed.sort())
})

t.test('a route that the operator adds is relayed', async t => {
  const relayRoutes = [
    { method: undefined, path: '/v1/files/*' },
    { method: 'POST', path: '/v1/load_lora_adapter' },
  ]
  const { ask, called } = await start(t, { relayRoutes })
  await ask('DELETE', '/v1/files/f-1')
  t.match(called(), { request: { method: 'DELETE', path: '/v1/files/f-1' } })
  await ask('POST', '/v1/load_lora_adapter', { headers: JSON_TYPE, body: '{"lora_name":"a"}' })
  t.match(called(), { request: { path: '/v1/load_lora_adapter' }, routing: { model: '' } })
  t.equal((await ask('GET', '/v1/load_lora_adapter')).headers['allow'], 'POST')
  t.equal((await ask('GET', '/v1/files/f-1/..')).status, 404)
  const { relayed } = JSON.parse((await ask('GET', '/')).body)
  t.ok(relayed.includes('/v1/files/*') && relayed.includes('POST /v1/embeddings'), 'GET / lists them')
})

t.test('pins, salts and what else is meant for the router work on relayed routes, too', async t => {
  const { ask, called } = await start(t)
  const nvext = '"nvext":{"backend_instance_id":7,"dp_rank":1,"cache_salt":"s"}'
  await ask('POST', '/v1/classify', { headers: JSON_TYPE, body: `{"model":"m",${nvext},"input":"x"}` })
  t.match(called().routing, { model: 'm', pinnedInstanceId: 7, pinnedRank: 1 })
  t.equal(called().body, '{"model":"m","input":"x"}')
  await ask('POST', '/v1/embeddings', {
    headers: { ...JSON_TYPE, 'x-worker-instance-id': '3', 'x-data-parallel-rank': '2', 'x-tenant-id': 't' },
    body: `{"model":"m",${nvext}}`,
  })
  t.match(called().routing, { pinnedInstanceId: 3, pinnedRank: 2 }, 'a header wins')
  t.equal(called().body, '{"model":"m"}', 'no salt for a route that has none')
  await ask('GET', '/v1/responses/r', { headers: { 'x-dynamo-worker-instance-id': '5' } })
  t.match(called().routing, { pinnedInstanceId: 5, pinnedRank: undefined })
  const bytes = ' {"model":"m", "input" : 1.0}'
  await ask('POST', '/v1/embeddings', { headers: JSON_TYPE, body: bytes })
  t.equal(called().body, bytes)
  for (const [headers, body, param] of [
    [{ 'x-worker-instance-id': 'x' }, '{}', 'x-worker-instance-id'],
    [{}, '{"nvext":{"dp_rank":-1}}', 'nvext.dp_rank'],
    [{}, '{"nvext":7}', 'nvext'],
  ] as const) {
    const refused = await ask('POST', '/v1/rerank', { headers: { ...JSON_TYPE, ...headers }, body })
    t.strictSame(refused.error, [400, 'BadRequestError', 'invalid_value', param])
  }
})

t.test('a refusal of the tokenizer names the field at fault', async t => {
  const { ask } = await start(
    t,
    {},
    {
      read: () => ({
        kind: 'refused',
        error: { code: 'HOMING_OPENAI_INVALID_REQUEST', message: 'cannot use nvext.dp_rank -1', details: {} },
        param: 'nvext.dp_rank',
      }),
    },
  )
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  t.strictSame(call.error, [400, 'BadRequestError', 'invalid_value', 'nvext.dp_rank'])
  t.equal(call.headers['content-length'], String(call.body.length))
})

t.test('a refusal of the router is the answer', async t => {
  const { ask, calls } = await start(
    t,
    {},
    {
      decide: () => ({
        kind: 'refused',
        error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} },
      }),
    },
  )
  for (const path of ['/v1/completions', '/v1/embeddings']) {
    const call = await ask('POST', path, { body: '{}' })
    t.strictSame(call.error, [503, 'ServiceUnavailableError', 'no_worker', null])
    t.equal(call.headers['retry-after'], '1')
  }
  t.strictSame(calls, [])
})

t.test('an actor that does not answer in time is 504, and the client need not try again', async t => {
  const { system, send, script } = await start(t)
  script.decide = () => undefined
  const routed = send('POST', '/v1/completions', { body: '{}' })
  await system.advance('1s')
  t.strictSame(routed.error, [504, 'GatewayTimeoutError', 'timeout', null])
  t.equal(routed.headers['x-should-retry'], 'false')
  script.read = () => undefined
  const read = send('POST', '/v1/completions', { body: '{}' })
  await system.advance('4.9s')
  t.equal(read.end, 'open')
  await system.advance('100ms')
  t.strictSame(read.error, [504, 'GatewayTimeoutError', 'timeout', null])
})

t.test('an actor that is gone is 503, come again', async t => {
  const other = await start(t)
  const { ref } = other.system.probe<never>('gone')
  await other.system.stop(ref)
  await other.system.shutdown()
  const { ask } = await start(t, { queue: ref as never })
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  t.strictSame([call.status, call.headers['retry-after']], [503, '1'])
})

t.test('a body over the limit is 413 and not read', async t => {
  const { ask, script } = await start(t, { bodyBytesMax: 10 })
  script.read = () => t.fail('the tokenizer was asked') as never
  for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/route']) {
    const call = await ask('POST', path, { body: 'x'.repeat(11) })
    t.strictSame(call.error, [413, 'PayloadTooLargeError', 'body_too_large', null], path)
  }
})

t.test('one request more than may be open is 503; a place that is free again is taken', async t => {
  const { ask, answer } = await start(t, { openRequestsMax: 2 })
  const first = await ask('POST', '/v1/completions', { body: '{}' })
  await ask('GET', '/v1/responses/r')
  for (const [method, path] of [
    ['POST', '/v1/completions'],
    ['POST', '/v1/embeddings'],
    ['GET', '/v1/responses/r'],
  ] as const) {
    const call = await ask(method, path, method === 'POST' ? { body: '{}' } : {})
    t.strictSame(call.error, [503, 'ServiceUnavailableError', 'overloaded', null], `${method} ${path}`)
    t.equal(call.headers['retry-after'], '1')
  }
  t.equal((await ask('GET', '/health')).status, 200, 'people and machines may still look')
  t.equal((await ask('GET', '/v1/models')).status, 200)
  t.equal((await ask('POST', '/route', { body: '{}' })).status, 200, 'operators have places of their own')
  await answer(head(), end)
  t.equal((await ask('POST', '/v1/completions', { body: '{}' })).end, 'open')
  t.equal(first.end, 'open')
})

t.test('requests that are still being read count as open', async t => {
  const { ask, script } = await start(t, { openRequestsMax: 1 })
  script.read = () => undefined
  await ask('POST', '/v1/completions', { body: '{}' })
  t.equal((await ask('POST', '/v1/completions', { body: '{}' })).status, 503)
})

t.test('a client that leaves while its request is read costs nothing', async t => {
  const { system, send, script, calls, log } = await start(t)
  const replies: (() => void)[] = []
  script.read = ({ reply }) => {
    replies.push(() => reply({ kind: 'read', request: READ }))
    return undefined
  }
  const call = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  call.call.abort()
  await system.settle()
  for (const reply of replies) reply()
  await system.settle()
  t.strictSame(calls, [])
  t.strictSame([log.asked, log.settled], [[], []])
})

t.test('a client that leaves while its request is placed has the place settled at once', async t => {
  const { system, send, script, calls, log, settled } = await start(t)
  const { promise, resolve } = Promise.withResolvers<PlaceResult>()
  script.decide = () => promise
  const call = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  t.equal(log.asked.length, 1)
  call.call.abort()
  await system.settle()
  resolve({ kind: 'decided', decision: DECISION })
  await system.settle()
  t.strictSame([calls.length, settled()], [0, ['decision-1']])
  t.match(log.settled, [{ delivery: { outcome: 'aborted' }, wasTaken: false }])
})

t.test('a client that leaves during its answer aborts the call upstream, once', async t => {
  const { system, ask, answer, called, log, settled } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(), data('x'))
  call.call.abort()
  await system.settle()
  t.ok(called().isGone)
  t.strictSame(settled(), ['decision-1'])
  t.match(log.settled, [{ delivery: { outcome: 'aborted', status: 200 }, wasTaken: true }])
})

t.test('a client that reads slowly pauses the call upstream until it has read', async t => {
  const { system, ask, answer, called } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  call.call.pause()
  await answer(head())
  let written = 0
  while (written < 1000 && called().http.write(utf8('a'.repeat(40_000)))) {
    written++
    await system.settle()
  }
  t.ok(written < 1000, 'the worker is told to wait')
  let isDrained = false
  called().http.onDrain(() => {
    isDrained = true
  })
  await system.advance('119s')
  t.strictSame([call.end, isDrained], ['open', false], 'that is no silence of the worker')
  call.call.resume()
  await system.settle()
  t.ok(isDrained)
  await answer(end)
  t.equal(call.body.length, (written + 1) * 40_000)
  t.equal(call.end, 'complete')
})

t.test('what is thrown in one exchange ends it and touches no other', async t => {
  const exchangeLimits = {
    retriesMax: 0,
    requestMsMax: 0,
    isBroken: false,
    retryShare: 0.2,
    stallMsMin: 10_000,
    get silenceMsMax(): number {
      if (!this.isBroken) return 60_000
      this.isBroken = false
      throw new Error('a bug')
    },
  }
  const { system, send, answer, settled } = await start(t, { exchangeLimits })
  const first = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  const second = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  exchangeLimits.isBroken = true
  await system.advance('1s')
  t.strictSame([first.status, second.end, settled()], [500, 'open', ['decision-1']])
  await answer(head(), data('x'), end)
  t.strictSame([second.status, second.body, settled()], [200, 'x', ['decision-1', 'decision-2']])
})

t.test('a failure before the head is an error of its own', async t => {
  const { ask, answer } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(die)
  t.strictSame(call.error, [502, 'BadGatewayError', 'upstream_failed', null])
  t.match(call.headers, { 'x-homing-decision': 'decision-1', 'x-should-retry': 'false' })
  t.equal(call.end, 'complete')
})

t.test('a failure inside a stream is its last event', async t => {
  const { ask, answer } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  const stream = { 'content-type': 'text/event-stream' }
  await answer(head(200, stream), data('data: {"x":1}\n\n'))
  await answer(die)
  t.match(call.body, /^data: \{"x":1\}\n\ndata: \{"error":\{.*"code":"upstream_failed"\}\}\n\n$/)
  t.equal(call.end, 'complete')
})

t.test('of a failure in the middle of an event the client gets the events before it', async t => {
  for (const half of ['data: {"x":1', 'data: {"x":1}\n', '']) {
    const whole = 'data: {"x":0}\n\n'
    const { ask, answer } = await start(t)
    const call = await ask('POST', '/v1/completions', { body: '{}' })
    await answer(head(200, { 'content-type': 'text/event-stream' }), data(`${whole}${half}`))
    await answer(die)
    t.ok(call.body.startsWith(`${whole}data: {"error":`), call.body)
  }
})

t.test('a path that climbs out of /v1 is no route', async t => {
  const { ask } = await start(t)
  for (const path of ['/v1/../admin/kill', '/v1/%2e%2e/admin/kill', '/v1/x/%2E./y']) {
    t.equal((await ask('POST', path, { body: '{}' })).status, 404, path)
  }
})

t.test('a failure inside an answer that is no stream breaks the connection', async t => {
  const { ask, answer } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(200, { 'content-length': '100' }), data('{"half":'))
  await answer(die)
  t.equal(call.end, 'broken', 'a short answer would look whole')
})

t.test('/route explains without sending; its refusals are errors', async t => {
  const { ask, calls, script } = await start(t)
  const routes: string[] = []
  script.read = ({ route }) => {
    routes.push(route)
    return { kind: 'read', request: READ }
  }
  const call = await ask('POST', '/route', { body: CHAT })
  t.match(JSON.parse(call.body), { worker: '10.0.0.1:8001/0', overlap_blocks: 3, tokenized_by: 'router' })
  await ask('POST', '/route', { body: '{"token_ids":[1,2]}' })
  t.strictSame(routes, ['chat', 'completions'])
  t.strictSame(calls, [])
  script.explain = () => ({ code: 'HOMING_ROUTER_MODEL_NOT_FOUND', message: 'cannot serve it', details: {} })
  t.strictSame((await ask('POST', '/route', { body: CHAT })).error, [
    404,
    'NotFoundError',
    'model_not_found',
    null,
  ])
  t.strictSame((await ask('POST', '/route', { body: '{' })).error, [
    400,
    'BadRequestError',
    'malformed_json',
    null,
  ])
})

t.test('query_instance_id answers the choice as events, and sends nothing', async t => {
  const { ask, calls } = await start(
    t,
    {},
    {
      read: ({ wantTokenIds }) => ({
        kind: 'read',
        request: {
          ...READ,
          annotations: ['query_instance_id'],
          tokenIds: wantTokenIds ? Int32Array.of(1, 2, 3) : undefined,
        },
      }),
    },
  )
  const call = await ask('POST', '/v1/chat/completions', { body: CHAT })
  t.equal(
    call.body,
    'event: worker_instance_id\ndata: "7"\n\nevent: token_data\ndata: [1,2,3]\n\ndata: [DONE]\n\n',
  )
  t.match(call.headers, { 'content-type': 'text/event-stream', 'x-homing-worker': RECEIPT.worker })
  t.strictSame(calls, [])
})

t.test(
  'while it drains, what is open ends, what is new is 503, and what stays is cut and counted',
  async t => {
    const { system, ref, ask, called, network, listening } = await start(t)
    const ends = await ask('POST', '/v1/completions', { body: '{}' })
    const first = called().http
    first.write(utf8('a'))
    const cut = await ask('POST', '/v1/completions', { body: '{}' })
    // A connection from before may bring one request more while the listener closes.
    await network.transport().http.listen({ host: HOST, port: 1 }, listening.onExchange)
    const drained = ref.ask({ type: 'drain', graceMs: 1000 }, { timeout: '1m' })
    await system.settle()
    for (const path of ['/v1/completions', '/health']) {
      const late = await ask('POST', path, { body: '{}', origin: `http://${HOST}:1` })
      t.strictSame(late.error, [503, 'ServiceUnavailableError', 'shutting_down', null])
      t.match(late.body, /cannot take another request: /)
    }
    t.equal((await ask('GET', '/health')).end, 'broken', 'the listener takes nobody new')
    first.end()
    await system.settle()
    t.strictSame([ends.body, ends.end], ['a', 'complete'])
    await system.advance('999ms')
    t.equal(cut.end, 'open')
    await system.advance('1ms')
    t.strictSame(cut.error, [503, 'ServiceUnavailableError', 'shutting_down', null])
    t.match(cut.body, /cannot finish the request: .*--shutdown-timeout/)
    t.equal(await drained, 1)
  },
)

t.test('drained with nothing open it is done at once', async t => {
  const { ref } = await start(t)
  t.equal(await ref.ask({ type: 'drain', graceMs: 60_000 }, { timeout: '1m' }), 0)
})

t.test('it tells where it listens, and stops listening when it ends', async t => {
  const { system, ref, network } = await start(t)
  t.strictSame(await ref.ask({ type: 'address' }, { timeout: '1s' }), { host: HOST, port: PORT })
  await system.stop(ref)
  await network.transport().http.listen({ host: HOST, port: PORT }, () => {})
})

t.test('what fails inside one exchange does not touch another', async t => {
  const { ask, answer, script } = await start(t)
  const good = await ask('POST', '/v1/completions', { body: '{}' })
  script.decide = () => {
    throw new Error('a bug in the router')
  }
  const bad = await ask('POST', '/v1/completions', { body: '{}' })
  t.equal(bad.status, 500)
  t.match(bad.body, /internal_error/)
  await answer(head(), data('fine'), end)
  t.strictSame([good.body, good.end], ['fine', 'complete'])
})

t.test('the fleet can change at any time', async t => {
  const { ref, system, ask } = await start(t)
  ref.tell({ type: 'fleet', fleet: fleetOf({ ...WORKER, state: 'down', stateReason: 'does not answer' }) })
  await system.settle()
  t.match(JSON.parse((await ask('GET', '/ready')).body), {
    status: 'no worker is up',
    waiting_for: [{ worker: WORKER.id, state: 'down', reason: 'does not answer' }],
  })
})

t.test('the memory of a body of its own is given up with its request, unless a call reads it', async t => {
  for (const usesBody of [false, true]) {
    let body: Uint8Array | undefined
    const { ask, called, answer, settled } = await start(
      t,
      // In shared memory there is no room for a page more.
      { bodyBytesMax: 100_000, bodiesBytesMax: 51_000 },
      {
        read: message => {
          body = message.body
          return { kind: 'read', request: READ }
        },
      },
      { usesBody: () => usesBody },
    )
    const text = `{"model":"m","messages":[{"role":"user","content":"${'x'.repeat(50_000)}"}]}`
    const call = await ask('POST', '/v1/chat/completions', { body: text })
    t.equal(called().body, text)
    t.equal(body?.length, text.length, 'as long as it is open')
    await answer(head(200, JSON_TYPE), data('{}'), end)
    t.strictSame([call.body, call.end], ['{}', 'complete'])
    t.strictSame(settled(), ['decision-1'])
    t.equal(body?.length, usesBody ? text.length : 0)
  }
})
