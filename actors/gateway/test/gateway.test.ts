/** A request on its way through the gateway, with every outcome. */

import type { WorkerRecord } from '@homing/fleet'
import t from 'tap'
import { HOST, PORT, start } from './gateway-world.ts'
import { CHAT, DECISION, fleetOf, JSON_TYPE, READ, RECEIPT, WORKER } from './sample-records.ts'
import { textOf, utf8 } from './utf8.ts'
import { data, die, end, head } from './worker-exchange.ts'

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
