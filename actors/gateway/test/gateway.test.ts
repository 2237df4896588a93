/** A request on its way through the gateway, whatever becomes of it. */

import t from 'tap'
import {
  type ClientCall,
  DECISION,
  data,
  end,
  fleetOf,
  HOST,
  head,
  PORT,
  READ,
  RECEIPT,
  start,
  stuckDispatcher,
  textOf,
  WORKER,
} from './gateway-world.ts'

const CHAT = '{"model":"m","messages":[{"role":"user","content":"hi"}]}'
const FAILED = { code: 'HOMING_DISPATCH_UPSTREAM_FAILED', message: 'cannot get an answer', details: {} }

t.test('a completion is read, placed, dispatched, and its answer relayed as it comes', async t => {
  const read: unknown[] = []
  const { ask, dispatched, answer, dispatcher } = await start(
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
  t.match(dispatched(), {
    request: { method: 'POST', path: '/v1/chat/completions?a=1', headers: { authorization: 'Bearer x' } },
    routing: { requestId: 'mine', model: 'm', promptTokens: 100 },
    decision: DECISION,
  })
  t.equal(textOf(dispatched().request.body), CHAT, 'the bytes of the client')
  await answer(
    head(200, { 'content-type': 'text/event-stream', connection: 'close', 'x-engine': 'e' }),
    data('one '),
  )
  t.strictSame([call.status, call.body, call.end], [200, 'one ', 'open'])
  t.match(call.headers, {
    'x-engine': 'e',
    'x-homing-decision': 'decision-1',
    'x-homing-worker': '10.0.0.1:8001/0',
    'x-homing-overlap-blocks': '3',
    'x-homing-trust': 'exact',
  })
  t.equal(call.headers['connection'], undefined)
  await answer(data('two'), end)
  t.strictSame([call.body, call.end], ['one two', 'complete'])
  await answer(data('late'), end)
  t.equal(dispatcher.waiting.length, 1, 'nothing but the dispatch')
})

t.test('what the tokenizer changed goes upstream, and its hints to the router', async t => {
  const placed: unknown[] = []
  const upstreamBody = new TextEncoder().encode('{"model":"m"}')
  const { ask, dispatched } = await start(
    t,
    {},
    {
      read: () => ({
        kind: 'read',
        request: {
          ...READ,
          upstreamBody,
          overlapScoreWeight: 0.5,
          temperature: 0.1,
          pinnedInstanceId: 7,
          pinnedRank: 1,
          unknownPrompt: 'because',
        },
      }),
      decide: request => {
        placed.push(request)
        return { kind: 'decided', decision: DECISION }
      },
    },
  )
  await ask('POST', '/v1/completions', { body: '{"model":"m","nvext":{}}' })
  t.strictSame(dispatched().request.body, upstreamBody)
  t.match(placed, [
    {
      override: { overlapScoreWeight: 0.5, temperature: 0.1 },
      pinnedInstanceId: 7,
      pinnedRank: 1,
      unknownPrompt: 'because',
      requestId: /^[\w-]{21}$/,
    },
  ])
})

t.test('other /v1 routes are relayed by load, with any method', async t => {
  const { ask, dispatched, script } = await start(t)
  script.read = () => t.fail('the tokenizer was asked') as never
  const json = { 'content-type': 'application/json' }
  await ask('POST', '/v1/embeddings', { headers: json, body: '{"model":"m","input":"x"}' })
  t.match(dispatched(), { routing: { model: 'm', unknownPrompt: /by load/, promptTokens: 0 } })
  await ask('POST', '/v1/audio/transcriptions', {
    headers: { 'content-type': 'multipart/form-data' },
    body: '--x',
  })
  t.match(dispatched(), { request: { method: 'POST' }, routing: { model: '' } })
  await ask('GET', '/v1/files?limit=1')
  t.match(dispatched(), { request: { method: 'GET', path: '/v1/files?limit=1', body: undefined } })
  await ask('DELETE', '/v1/files/f-1')
  t.match(dispatched(), { request: { method: 'DELETE', path: '/v1/files/f-1' } })
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
  const { ask, dispatcher } = await start(
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
  t.strictSame(dispatcher.waiting, [])
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
  const { ask } = await start(t, { router: ref as never })
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
  await ask('GET', '/v1/files')
  for (const [method, path] of [
    ['POST', '/v1/completions'],
    ['POST', '/v1/embeddings'],
    ['GET', '/v1/files'],
    ['POST', '/route'],
  ] as const) {
    const call = await ask(method, path, method === 'POST' ? { body: '{}' } : {})
    t.strictSame(call.error, [503, 'ServiceUnavailableError', 'overloaded', null], `${method} ${path}`)
    t.equal(call.headers['retry-after'], '1')
  }
  t.equal((await ask('GET', '/health')).status, 200, 'people and machines may still look')
  t.equal((await ask('GET', '/v1/models')).status, 200)
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
  const { system, send, script, dispatcher, freed } = await start(t)
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
  t.strictSame(dispatcher.waiting, [])
  t.ok(freed().length <= 1)
})

t.test('a client that leaves while its request is placed frees the booking', async t => {
  const { system, send, script, dispatcher, freed } = await start(t)
  let isPlaced = false
  const call = send('POST', '/v1/completions', { body: '{}' })
  script.decide = () => {
    isPlaced = true
    call.call.abort()
    return { kind: 'decided', decision: DECISION }
  }
  await system.settle()
  t.ok(isPlaced)
  t.strictSame(dispatcher.waiting, [])
  t.strictSame(freed(), ['decision-1'])
})

t.test('a client that leaves during its answer aborts the call upstream, once', async t => {
  const { system, ask, answer, dispatcher } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(), data('x'))
  call.call.abort()
  await system.settle()
  await answer(data('y'), end)
  t.strictSame(
    dispatcher.waiting.map(({ type }) => type),
    ['dispatch', 'abort'],
  )
})

t.test('a client that reads slowly pauses the call upstream until it has read', async t => {
  const { system, ask, answer, dispatcher } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  call.call.pause()
  await answer(head(), data('a'.repeat(40_000)))
  t.equal(dispatcher.waiting.length, 1)
  await answer(data('b'.repeat(40_000)), data('c'))
  t.strictSame(
    dispatcher.waiting.map(({ type }) => type),
    ['dispatch', 'pause'],
  )
  call.call.resume()
  await system.settle()
  t.strictSame(
    dispatcher.waiting.map(({ type }) => type),
    ['dispatch', 'pause', 'resume'],
  )
  await answer(end)
  t.equal(call.body.length, 80_001)
  t.equal(call.end, 'complete')
})

t.test('a failure before the head is an error of its own', async t => {
  const { ask, answer } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer({ type: 'answerFailed', error: FAILED, decision: DECISION })
  t.strictSame(call.error, [502, 'BadGatewayError', 'upstream_failed', null])
  t.match(call.headers, { 'x-homing-decision': 'decision-1', 'x-should-retry': 'false' })
  t.equal(call.end, 'complete')
})

t.test('a failure inside a stream is its last event', async t => {
  const { ask, answer } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  const stream = { 'content-type': 'text/event-stream' }
  await answer(head(200, stream), data('data: {"x":1}\n\n'))
  await answer({ type: 'answerFailed', error: FAILED, decision: DECISION })
  t.match(call.body, /^data: \{"x":1\}\n\ndata: \{"error":\{.*"code":"upstream_failed"\}\}\n\n$/)
  t.equal(call.end, 'complete')
})

t.test('a failure in the middle of an event ends that event first', async t => {
  for (const [half, between] of [
    ['data: {"x":1', '\n\n'],
    ['data: {"x":1}\n', '\n\n'],
    ['data: {"x":1}\n\n', ''],
  ]) {
    const { ask, answer } = await start(t)
    const call = await ask('POST', '/v1/completions', { body: '{}' })
    await answer(head(200, { 'content-type': 'text/event-stream' }), data(half!))
    await answer({ type: 'answerFailed', error: FAILED, decision: DECISION })
    t.ok(call.body.startsWith(`${half}${between}data: {"error":`), call.body)
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
  await answer({ type: 'answerFailed', error: FAILED, decision: DECISION })
  t.equal(call.end, 'broken', 'a short answer would look whole')
})

t.test('a dispatcher that cannot take the request is 503, and its booking is freed', async t => {
  const other = await start(t)
  await other.system.shutdown()
  const { ask, freed } = await start(t, { dispatcher: other.dispatcher.ref })
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  t.strictSame(call.error, [503, 'ServiceUnavailableError', 'overloaded', null])
  t.match(call.body, /cannot dispatch the request: the dispatcher is restarting/)
  t.strictSame(freed(), ['decision-1'])
})

t.test('a dispatcher with a full mailbox is 503 for one request more', async t => {
  const { promise: until, resolve: release } = Promise.withResolvers<void>()
  const { system } = await start(t)
  const stuck = system.spawn(stuckDispatcher, { name: 'stuck', args: { until }, mailbox: { capacity: 1 } })
  t.teardown(release)
  const gateway = await start(t, { dispatcher: stuck })
  const calls: ClientCall[] = []
  for (let turn = 0; turn < 3; turn++)
    calls.push(await gateway.ask('POST', '/v1/completions', { body: '{}' }))
  t.strictSame(
    calls.map(({ end }) => end),
    ['open', 'open', 'complete'],
  )
  t.strictSame(calls[2]?.error, [503, 'ServiceUnavailableError', 'overloaded', null])
  t.match(calls[2]?.body, /the dispatcher is overloaded/)
  t.strictSame(gateway.freed(), ['decision-1'])
})

t.test('/route explains without sending; its refusals are errors', async t => {
  const { ask, dispatcher, script } = await start(t)
  const routes: string[] = []
  script.read = ({ route }) => {
    routes.push(route)
    return { kind: 'read', request: READ }
  }
  const call = await ask('POST', '/route', { body: CHAT })
  t.match(JSON.parse(call.body), { worker: '10.0.0.1:8001/0', overlap_blocks: 3, tokenized_by: 'router' })
  await ask('POST', '/route', { body: '{"token_ids":[1,2]}' })
  t.strictSame(routes, ['chat', 'completions'])
  t.strictSame(dispatcher.waiting, [])
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
  const { ask, dispatcher } = await start(
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
  t.strictSame(dispatcher.waiting, [])
})

t.test(
  'while it drains, what is open ends, what is new is 503, and what stays is cut and counted',
  async t => {
    const { system, ref, ask, answer, dispatched, network, listening } = await start(t)
    const ends = await ask('POST', '/v1/completions', { body: '{}' })
    await answer(head(), data('a'))
    const { exchange } = dispatched()
    const cut = await ask('POST', '/v1/completions', { body: '{}' })
    // A connection from before may bring one request more while the listener closes.
    await network.transport().http.listen({ host: HOST, port: 1 }, listening.onExchange)
    const drained = ref.ask({ type: 'drain', graceMs: 1000 }, { timeout: '1m' })
    await system.settle()
    for (const path of ['/v1/completions', '/health']) {
      const late = await ask('POST', path, { body: '{}', origin: `http://${HOST}:1` })
      t.strictSame(late.error, [503, 'ServiceUnavailableError', 'shutting_down', null])
    }
    t.equal((await ask('GET', '/health')).end, 'broken', 'the listener takes nobody new')
    ref.tell({ type: 'answerEnd', exchange })
    await system.settle()
    t.strictSame([ends.body, ends.end], ['a', 'complete'])
    await system.advance('999ms')
    t.equal(cut.end, 'open')
    await system.advance('1ms')
    t.strictSame(cut.error, [503, 'ServiceUnavailableError', 'shutting_down', null])
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
