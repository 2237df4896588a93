/** Comments for clients whose streams have not begun: what they get, and that nothing else changes by it. */

import type { PlaceResult } from '@homing/actors/queue'
import t, { type Test } from 'tap'
import { start } from './gateway-world.ts'
import { DECISION, READ } from './sample-records.ts'
import { data, die, end, finish, head } from './worker-exchange.ts'

const CHAT = '/v1/chat/completions'
const BODY = '{"model":"m","stream":true}'
const COMMENT = ': keep-alive\n\n'
const SSE = { 'content-type': 'text/event-stream' }
const EVENT = 'data: {"choices":[{"text":"a"}]}\n\n'
const DONE = 'data: [DONE]\n\n'

/** Comments after five seconds of silence. */
async function begin(t: Test, { isStream = true, streamKeepAliveMs = 5000, retriesMax = 0 } = {}) {
  const world = await start(t, {
    queueMsMax: 60_000,
    exchangeLimits: {
      retriesMax,
      retryShare: 0.2,
      stallMsMin: 10_000,
      silenceMsMax: 60_000,
      requestMsMax: 0,
      streamKeepAliveMs,
    },
  })
  world.script.read = () => ({ kind: 'read', request: { ...READ, isStream } })
  const wait = (seconds: number) => world.system.advance(`${seconds}s`)
  return { ...world, wait }
}

t.test('a stream that waits gets comments, then the answer without its own head', async t => {
  const { ask, answer, wait, log } = await begin(t)
  const call = await ask('POST', CHAT, { body: BODY })
  await wait(4)
  t.equal(call.status, undefined)
  await wait(12)
  t.strictSame(
    [call.status, call.headers['content-type'], call.body],
    [200, SSE['content-type'], COMMENT.repeat(3)],
  )
  await answer(head(200, { ...SSE, 'x-engine': '1' }), data(EVENT))
  await wait(20)
  await answer(finish(DONE))
  t.strictSame([call.body, call.end], [`${COMMENT.repeat(3)}${EVENT}${DONE}`, 'complete'])
  t.match(log.settled[0]?.delivery, { outcome: 'ok', status: 200 })
})

t.test('it gets them while it waits in the queue, too', async t => {
  const { ask, answer, wait, script } = await begin(t)
  const placed = Promise.withResolvers<PlaceResult>()
  script.decide = () => placed.promise
  const call = await ask('POST', CHAT, { body: BODY })
  await wait(11)
  t.equal(call.body, COMMENT.repeat(2))
  placed.resolve({ kind: 'decided', decision: DECISION })
  await wait(1)
  await answer(head(200, SSE), finish(`${EVENT}${DONE}`))
  t.strictSame([call.body, call.end], [`${COMMENT.repeat(2)}${EVENT}${DONE}`, 'complete'])
})

t.test('another worker may still be tried after a comment', async t => {
  const { ask, answer, wait, script, serve } = await begin(t, { retriesMax: 1 })
  await serve(8002, head(200, SSE), finish(`${EVENT}${DONE}`))
  const call = await ask('POST', CHAT, { body: BODY })
  await wait(6)
  script.decide = (_, id) => ({
    kind: 'decided',
    decision: {
      ...DECISION,
      id,
      workerId: '10.0.0.1:8002',
      worker: '10.0.0.1:8002/0',
      origin: 'http://10.0.0.1:8002',
    },
  })
  await answer(die)
  t.strictSame([call.status, call.body, call.end], [200, `${COMMENT}${EVENT}${DONE}`, 'complete'])
})

t.test('an error after a comment is an event of the stream, in the form of the route', async t => {
  const eventOf = (text: string) => {
    const [, comments, name, json] =
      /^((?:: keep-alive\n\n)+)(?:event: (\w+)\n)?data: (.*)\n\n$/.exec(text) ?? []
    t.ok(comments, text)
    return { name, json: JSON.parse(json ?? 'null') as unknown }
  }
  for (const [path, name, ofEngine, ofRouter] of [
    [
      CHAT,
      undefined,
      { error: { message: 'too long', type: 'BadRequestError', code: 400 } },
      { error: { type: 'BadGatewayError', code: 'upstream_failed' } },
    ],
    [
      '/v1/responses',
      'error',
      { type: 'error', message: 'too long', code: 400 },
      { type: 'error', code: 'upstream_failed' },
    ],
    [
      '/v1/messages',
      'error',
      { type: 'error', error: { type: 'BadRequestError', message: 'too long' } },
      { type: 'error', error: { type: 'api_error' } },
    ],
  ] as const) {
    const { ask, answer, wait, script } = await begin(t)
    const refused = await ask('POST', path, { body: BODY })
    await wait(6)
    await answer(
      head(400, { 'content-type': 'application/json' }),
      data('{"error":{"message":"too long",\n"type":'),
      finish('"BadRequestError","code":400}}'),
    )
    t.strictSame([refused.status, refused.end], [200, 'complete'])
    t.match(eventOf(refused.body), { name, json: ofEngine })
    const broken = await ask('POST', path, { body: BODY })
    await wait(6)
    await answer(die)
    t.strictSame([broken.status, broken.end], [200, 'complete'])
    t.match(eventOf(broken.body), { name, json: ofRouter })
    const late = Promise.withResolvers<PlaceResult>()
    script.decide = () => late.promise
    const unplaced = await ask('POST', path, { body: BODY })
    await wait(6)
    const error = { code: 'HOMING_QUEUE_DEADLINE', message: 'cannot wait', details: {} }
    late.resolve({ kind: 'refused', error })
    await wait(1)
    t.equal(unplaced.end, 'complete')
    t.match(unplaced.body, /"cannot wait"/)
    t.equal(eventOf(unplaced.body).name, name)
  }
})

t.test('an answer that is no stream becomes one event', async t => {
  const { ask, answer, wait } = await begin(t)
  const call = await ask('POST', CHAT, { body: BODY })
  await wait(6)
  await answer(head(200, { 'content-type': 'application/json' }), finish('{"choices":\n[]}'))
  t.strictSame([call.body, call.end], [`${COMMENT}data: {"choices":[]}\n\n`, 'complete'])
})

t.test('comments go between events of a stream whose first token is still to come', async t => {
  const { ask, answer, wait } = await begin(t)
  const call = await ask('POST', '/v1/responses', { body: BODY })
  const created = 'event: response.created\ndata: {"type":"response.created"}\n\n'
  await answer(head(200, SSE), data(created))
  await wait(6)
  t.equal(call.body, `${created}${COMMENT}`)
  await answer(end)
})

t.test('without the setting, and for answers that are no stream, there are none', async t => {
  for (const options of [{ streamKeepAliveMs: 0 }, { isStream: false }]) {
    const { ask, answer, wait } = await begin(t, options)
    const call = await ask('POST', CHAT, { body: BODY })
    await wait(30)
    t.equal(call.status, undefined)
    await answer(head(400), finish('{}'))
    t.strictSame([call.status, call.body], [400, '{}'])
  }
})
