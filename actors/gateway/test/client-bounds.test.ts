/** Clients that stop sending, stop reading, or send more than there is memory for. */

import t from 'tap'
import { start, type World } from './gateway-world.ts'
import { DECISION, READ } from './sample-records.ts'
import { data, die, end, head } from './worker-exchange.ts'

/** One sample of /metrics; undefined when there is none. */
async function sample({ ask }: Pick<World, 'ask'>, name: string): Promise<number | undefined> {
  const { body } = await ask('GET', '/metrics')
  const line = body.split('\n').find(one => one.startsWith(`${name} `))
  return line === undefined ? undefined : Number(line.slice(name.length + 1))
}

t.test('a body that stops arriving is 408, its place is free again, and it is counted', async t => {
  const world = await start(t, { openRequestsMax: 1 })
  const { system, network, send, ask, script } = world
  script.read = () => t.fail('the tokenizer was asked') as never
  network.faults.http = ({ method }) => (method === 'POST' ? 'stall-body' : 'deliver')
  for (const path of ['/v1/chat/completions', '/v1/embeddings', '/route']) {
    const call = send('POST', path, { body: '{}' })
    await system.advance('59999ms')
    t.equal(call.end, 'open')
    const isOperator = path === '/route'
    t.equal((await ask('GET', '/v1/responses/r')).status === 503, !isOperator, 'it takes a place meanwhile')
    await system.advance('1ms')
    t.strictSame(call.error, [408, 'RequestTimeoutError', 'body_timeout', null], path)
  }
  for (const route of ['chat', 'other', 'route']) {
    t.equal(await sample(world, `homing_gateway_requests_total{route="${route}",status="408"}`), 1)
  }
})

t.test('a client that takes nothing is cut, its request aborted, and it is counted', async t => {
  const world = await start(t)
  const { system, send, answer, called, settled } = world
  const call = send('POST', '/v1/chat/completions', { body: '{}' })
  await system.settle()
  call.call.pause()
  await answer(head(200, { 'content-type': 'text/event-stream' }), data(`data: ${'x'.repeat(100_000)}\n\n`))
  await system.advance('119999ms')
  t.strictSame([called().isGone, settled()], [false, []])
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 2)
  await system.advance('1ms')
  t.strictSame([called().isGone, settled()], [true, ['decision-1']])
  t.equal(call.end, 'broken')
  t.equal(await sample(world, 'homing_gateway_clients_stalled_total{route="chat"}'), 1)
  t.equal(await sample(world, 'homing_gateway_clients_gone_total{route="chat"}'), 1)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 0)
  t.equal(await sample(world, 'homing_gateway_open_requests'), 0)
})

t.test('a client that is cut after its answer has ended upstream is counted, too', async t => {
  const world = await start(t)
  const { system, send, answer, called, settled } = world
  const call = send('POST', '/v1/chat/completions', { body: '{}' })
  await system.settle()
  call.call.pause()
  await answer(head(), data('x'.repeat(10)), end)
  await system.advance('2m')
  t.equal(call.end, 'broken')
  t.strictSame([called().isGone, settled()], [false, ['decision-1']], 'there was nothing to abort')
  t.equal(await sample(world, 'homing_gateway_clients_stalled_total{route="chat"}'), 1)
})

t.test('bodies together have a bound: one more is 503, until one of them is done', async t => {
  const world = await start(t, { bodiesBytesMax: 1000 })
  const { ask, send, answer, system } = world
  const post = (size: number, path = '/v1/completions') => ask('POST', path, { body: 'x'.repeat(size) })
  const first = await post(600)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 600)
  for (const path of ['/v1/chat/completions', '/v1/embeddings']) {
    const call = await post(401, path)
    t.strictSame(call.error, [503, 'ServiceUnavailableError', 'overloaded', null], path)
    t.match(call.body, /hold 600 of 1000 bytes \(--max-bodies-bytes\)/)
    t.equal(call.headers['retry-after'], '1')
  }
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 600, 'what is refused holds nothing')
  t.equal((await ask('GET', '/health')).status, 200)
  const second = await post(400)
  t.equal(second.end, 'open', 'what just fits is taken')
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 1000)
  await answer(head(), end)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 600)
  const third = send('POST', '/v1/completions', { body: 'x'.repeat(400) })
  await system.settle()
  await answer(die)
  t.equal(third.status, 502)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 600)
  first.call.abort()
  await system.settle()
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 0)
})

t.test('a body is given back wherever its request ends', async t => {
  const world = await start(t)
  const { ask, script, ref, send, system } = world
  const post = (path: string) => ask('POST', path, { body: '{"messages":[]}' })
  t.equal((await post('/route')).status, 200)
  script.read = () => ({
    kind: 'refused',
    error: { code: 'HOMING_OPENAI_MALFORMED_JSON', message: 'cannot read', details: {} },
    param: undefined,
  })
  t.equal((await post('/v1/chat/completions')).status, 400)
  script.decide = () => ({
    kind: 'refused',
    error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} },
  })
  t.equal((await post('/v1/embeddings')).status, 503)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 0)
  script.decide = (_, id) => ({ kind: 'decided', decision: { ...DECISION, id } })
  const cut = send('POST', '/v1/embeddings', { body: '{}' })
  await system.settle()
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 2)
  const drained = ref.ask({ type: 'drain', graceMs: 10 }, { timeout: '1m' })
  await system.advance('10ms')
  t.equal(await drained, 1)
  t.equal(cut.status, 503)
})

t.test('a body that the tokenizer has not given back counts, though its client has its answer', async t => {
  const world = await start(t, { bodiesBytesMax: 1000 })
  const { ask, script, send, system } = world
  const replies: (() => void)[] = []
  script.read = ({ reply }) => {
    replies.push(() => reply({ kind: 'read', request: READ }))
    return undefined
  }
  for (const [path, bodyBytes] of [
    ['/v1/completions', 600],
    ['/route', 300],
  ] as const) {
    const call = send('POST', path, { body: '{}'.padEnd(bodyBytes) })
    await system.advance('5s')
    t.equal(call.status, 504, path)
  }
  const gone = send('POST', '/v1/chat/completions', { body: 'x'.repeat(50) })
  await system.settle()
  gone.call.abort()
  await system.advance('10s')
  t.equal(await sample(world, 'homing_gateway_open_requests'), 0)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 950)
  t.equal((await ask('POST', '/v1/completions', { body: 'x'.repeat(51) })).status, 503)
  const left: (number | undefined)[] = []
  for (const reply of replies) {
    reply()
    await system.settle()
    left.push(await sample(world, 'homing_gateway_body_bytes'))
  }
  t.strictSame(left, [350, 50, 0])
})
