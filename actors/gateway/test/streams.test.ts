/** Streams that pass a gateway: asking for usage on behalf of the client, and streams that break off. */

import type { Decision } from '@homing/placement'
import t from 'tap'
import { answerOf, start } from './call-world.ts'
import { READ } from './sample-records.ts'
import { utf8 as bytes, textOf as text } from './utf8.ts'
import { data, finish, head } from './worker-exchange.ts'

const PLAIN = bytes('{"stream":true}')
const USAGE_EDIT = { start: 14, end: 14, text: ',"stream_options":{"include_usage":true}' }
const TOKEN = 'data: {"choices":[{"text":"a"}],"usage":null}\n\n'
const EXTRA =
  'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}}\n\n'

const LAST = 'data: {"choices":[{"text":"b","finish_reason":"stop"}],"usage":null}\n\n'
const DONE = 'data: [DONE]\n\n'

t.test('a stream is asked for usage in the place of its client, who sees nothing of it', async t => {
  const world = await start(t, [])
  const { log, serve, dispatch, last } = world
  const seen: string[] = []
  await serve(1, async exchange => {
    const body = text(await exchange.readBody(1000))
    seen.push(body)
    const answer = `${TOKEN}${LAST}${body.includes('include_usage') ? EXTRA : ''}${DONE}`
    exchange.writeHead(200, {
      'content-type': 'text/event-stream',
      'content-length': String(answer.length),
    })
    for (const byte of bytes(answer)) exchange.write(Uint8Array.of(byte))
    exchange.end()
  })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  const first = await answerOf(world)
  t.strictSame(seen, ['{"stream":true}'], 'the first one shows what the engine sends unasked')
  t.match(log.settled[0]?.delivery, { outcome: 'ok', cachedTokens: undefined })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  const second = await answerOf(world)
  t.equal(seen[1], '{"stream":true,"stream_options":{"include_usage":true}}')
  t.strictSame([second.body, second.end], [`${TOKEN}${LAST}${DONE}`, 'complete'])
  t.strictSame(second, first)
  t.notOk('content-length' in last().headers, "the length that the engine gave is not the client's")
  t.match(log.settled[1]?.delivery, { outcome: 'ok', promptTokens: 10, cachedTokens: 7 })
})

t.test('what an engine sends unasked is learned again in another life of it, and every so often', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  const seen: string[] = []
  let sends: 'unasked' | 'asked' | 'broken' = 'asked'
  await serve(1, async exchange => {
    const isAsked = text(await exchange.readBody(1000)).includes('include_usage')
    seen.push(isAsked ? 'asked' : 'plain')
    if (sends === 'broken') return exchange.destroy()
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.end(bytes(`${TOKEN}${LAST}${isAsked || sends === 'unasked' ? EXTRA : ''}${DONE}`))
  })
  const stream = async (decision: Partial<Decision> = {}) => {
    dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT }, decision)
    return answerOf(world)
  }
  for (let i = 0; i < 3; i++) await stream()
  t.strictSame(seen.splice(0), ['plain', 'asked', 'asked'])
  for (let i = 0; i < 2; i++) await stream({ epoch: 2 })
  t.strictSame(seen.splice(0), ['plain', 'asked'], 'another epoch')
  sends = 'broken'
  await stream({ epoch: 2 })
  sends = 'asked'
  seen.splice(0)
  for (let i = 0; i < 2; i++) await stream({ epoch: 2 })
  t.strictSame(seen.splice(0), ['plain', 'asked'], 'a call that broke')
  for (let i = 0; i < 256; i++) await stream({ epoch: 2 })
  t.strictSame([...new Set(seen.slice(0, 255))], ['asked'])
  t.equal(seen.splice(0).at(-1), 'plain', 'one in so many')
  sends = 'unasked'
  for (let i = 0; i < 3; i++) {
    const { body } = await stream({ epoch: 3 })
    t.equal(body, `${TOKEN}${LAST}${EXTRA}${DONE}`)
  }
  t.strictSame(seen.splice(0), ['plain', 'plain', 'plain'], 'usage that comes unasked is not asked for')
})

t.test('what an engine sends unasked is learned once, whatever clients put into their queries', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  const seen: string[] = []
  await serve(1, async exchange => {
    const isAsked = text(await exchange.readBody(1000)).includes('include_usage')
    seen.push(isAsked ? 'asked' : 'plain')
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.end(bytes(`${TOKEN}${LAST}${isAsked ? EXTRA : ''}${DONE}`))
  })
  for (const query of ['', '?a=1', '?a=2']) {
    dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT, path: `/v1/completions${query}` })
    await answerOf(world)
  }
  t.strictSame(seen, ['plain', 'asked', 'asked'])
})

t.test('a stream that shows nothing of its end teaches nothing', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  const seen: string[] = []
  const answers = [`${TOKEN}${LAST}`, DONE, `${TOKEN}data: {"error":{"message":"x"}}\n\n${DONE}`]
  await serve(1, async exchange => {
    seen.push(text(await exchange.readBody(1000)))
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.end(bytes(answers.shift() ?? ''))
  })
  for (let i = 0; i < 4; i++) {
    dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
    await answerOf(world)
  }
  t.strictSame([...new Set(seen)], ['{"stream":true}'])
})

t.test('where nothing is predicted, known or wanted, a stream passes both ways as it is', async t => {
  const cases = [
    { audit: false, usageEdit: USAGE_EDIT, decision: {} },
    { audit: true, usageEdit: USAGE_EDIT, decision: { takesUsageOption: false } },
    { audit: true, usageEdit: USAGE_EDIT, decision: { trust: 'none' as const } },
    { audit: true, usageEdit: undefined, decision: {} },
  ]
  for (const { audit, usageEdit, decision } of cases) {
    const world = await start(t, [], { audit })
    const { system, serve, dispatch } = world
    const seen: string[] = []
    await serve(1, async exchange => {
      seen.push(text(await exchange.readBody(1000)))
      exchange.writeHead(200, { 'content-type': 'text/event-stream' })
      exchange.end(bytes(`${TOKEN}${EXTRA}`))
    })
    dispatch(1, { body: PLAIN, usageEdit }, decision)
    t.equal((await answerOf(world)).body, `${TOKEN}${EXTRA}`)
    t.strictSame(seen, ['{"stream":true}'])
    await system.shutdown()
  }
})

t.test('a stream that breaks off inside an event ends with its last whole event', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  let breakOff = (): void => {}
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes(`${TOKEN}data: {"choi`))
    breakOff = () => exchange.destroy()
  })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  t.equal((await answerOf(world)).body, TOKEN)
  breakOff()
  const answer = await answerOf(world)
  t.equal(answer.body, TOKEN)
  t.match(answer.end, /after the head$/)
})

t.test('a stream that is compressed passes as it comes: nothing of it can be read', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  let breakOff = (): void => {}
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' })
    exchange.write(bytes('\x1f half of it'))
    breakOff = () => exchange.destroy()
  })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  t.equal((await answerOf(world)).body, '\x1f half of it')
  breakOff()
  t.match((await answerOf(world)).end, /after the head$/)
})

t.test('a stream that breaks off behind its last event is whole', async t => {
  const world = await start(t, [])
  const { system, log, serve, dispatch } = world
  await serve(
    1,
    head(200, { 'content-type': 'text/event-stream' }),
    data(`${TOKEN}${DONE}`),
    exchange => void system.clock.after(1, () => exchange.destroy()),
  )
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  await system.advance(10)
  t.match(await answerOf(world), { body: `${TOKEN}${DONE}`, end: 'complete' })
  t.equal(log.settled[0]?.delivery.outcome, 'ok')
})

t.test(
  'a stream that breaks off inside its first event has given nothing: another worker takes it',
  async t => {
    const world = await start(t, [2])
    const { system, serve, dispatch } = world
    await serve(
      1,
      head(200, { 'content-type': 'text/event-stream' }),
      data('data: {"choi'),
      exchange => void system.clock.after(1, () => exchange.destroy()),
    )
    await serve(2, head(200, { 'content-type': 'text/event-stream' }), finish(`${TOKEN}${DONE}`))
    dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
    await system.advance(10)
    t.match(await answerOf(world), { status: 200, body: `${TOKEN}${DONE}`, end: 'complete' })
  },
)

t.test('the router hears of the first token of a stream, once, and of nothing else', async t => {
  const world = await start(t, [])
  const { log, serve, dispatch } = world
  await serve(1, async exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const event of [TOKEN, LAST, DONE]) exchange.write(bytes(event))
    exchange.end()
  })
  dispatch(1, { body: PLAIN })
  await answerOf(world)
  t.match(log.firstTokens, [{ type: 'firstToken' }])
  t.equal(log.names.get(log.firstTokens[0]!.id), 'decision-1')
  t.ok(log.firstTokens[0]!.firstTokenMs >= 0)
  const plain = await start(t, [])
  await plain.serve(1, head(), finish('whole'))
  plain.dispatch(1)
  await answerOf(plain)
  t.strictSame(plain.log.firstTokens, [], 'an answer that does not stream has none')
})

t.test('only a success of the kind that was asked for teaches how fast a worker is', async t => {
  const stream = { 'content-type': 'text/event-stream' }
  const error = 'data: {"error":{"message":"no"}}\n\n'
  const cases = [
    { what: 'first token', answer: [head(200, stream), data(TOKEN), finish(DONE)], teaches: true, tokens: 1 },
    { what: 'stream of an error', answer: [head(200, stream), data(error), finish(DONE)], teaches: false },
    { what: 'refusal of a stream', answer: [head(400), finish('{"error":{}}')], teaches: false },
    { what: 'whole answer to a stream', answer: [head(200), finish('{"choices":[]}')], teaches: false },
  ]
  for (const { what, answer, teaches, tokens = 0 } of cases) {
    const world = await start(t, [], { retriesMax: 0 })
    const { script } = world
    script.read = () => ({ kind: 'read', request: { ...READ, isStream: true } })
    await world.serve(1, ...answer)
    world.dispatch(1, { body: PLAIN })
    await answerOf(world)
    await world.system.settle()
    const told = world.tracker.waiting.filter(({ type }) => type === 'prefillComplete')
    t.match(told, [{ teaches }], what)
    t.equal(world.log.firstTokens.length, tokens, what)
  }
})

const COMMENT = ': still there\n\n'

t.test('comments before the first event are held: no first token, and no end of other tries', async t => {
  const world = await start(t, [2])
  const { system, log, tracker, serve, dispatch } = world
  await serve(
    1,
    head(200, { 'content-type': 'text/event-stream' }),
    data(COMMENT),
    exchange => void system.clock.after(500, () => exchange.destroy()),
  )
  await serve(
    2,
    head(200, { 'content-type': 'text/event-stream' }),
    data(COMMENT),
    exchange => void system.clock.after(500, () => exchange.end(bytes(`${TOKEN}${DONE}`))),
  )
  dispatch(1, { body: PLAIN })
  await system.advance(700)
  t.strictSame(log.firstTokens, [])
  t.strictSame(
    tracker.waiting.filter(({ type }) => type === 'prefillComplete'),
    [],
  )
  await system.advance(500)
  t.match(await answerOf(world), {
    status: 200,
    body: `${COMMENT}${TOKEN}${DONE}`,
    end: 'complete',
  })
  t.match(log.firstTokens, [{ type: 'firstToken', firstTokenMs: 1000 }])
})

t.test('what is no answer of an engine is tried elsewhere: no event, no JSON, a page, an error', async t => {
  const stream = { 'content-type': 'text/event-stream' }
  const cases = [
    [stream, ''],
    [stream, COMMENT],
    [stream, '\u0000\u0001\u0002 nothing \n\n'],
    [stream, 'data: nothing that one could read\n\n'],
    [{ 'content-type': 'application/json' }, 'Internal Server Error'],
    [{ 'content-type': 'text/html; charset=utf-8' }, '<html>sign in</html>'],
    [{ 'content-type': 'application/json' }, '{"error":{"message":"dead","code":500}}'],
    [{ 'content-type': 'application/json' }, '{"object":"error","message":"dead"}'],
  ] as const
  for (const [headers, body] of cases) {
    const world = await start(t, [2])
    const { log, serve, dispatch } = world
    await serve(1, head(200, headers), finish(body))
    await serve(2, head(200, stream), finish(`${TOKEN}${DONE}`))
    dispatch(1, { body: PLAIN })
    t.match(await answerOf(world), { status: 200, body: `${TOKEN}${DONE}`, end: 'complete' }, body)
    t.match(log.workerFailed, [{ fault: { kind: 'failed', reason: /^answered / } }], body)
    await world.system.shutdown()
  }
})

t.test('a list is an answer, and so are errors of the client and JSON behind a byte order mark', async t => {
  const json = { 'content-type': 'application/json' }
  for (const [status, body] of [
    [200, ' [{"content":"a"},{"content":"b"}]'],
    [422, '"what is this?"'],
    [200, '\ufeff{"choices":[]}'],
    [200, '{"object":"error","message":"too long","type":"BadRequestError","code":400}'],
    [200, '{"object":"response","status":"failed","error":{"code":"server_error","message":"x"}}'],
  ] as const) {
    const world = await start(t, [2])
    const { log, serve, dispatch } = world
    await serve(1, head(status, json), finish(body))
    dispatch(1, { body: PLAIN })
    t.match(await answerOf(world), { status, body: body.replace('\ufeff', ''), end: 'complete' })
    t.strictSame(log.workerFailed, [])
    await world.system.shutdown()
  }
})

t.test('a long row of comments passes on', async t => {
  const world = await start(t, [])
  const { serve, dispatch } = world
  const row = COMMENT.repeat(5000)
  await serve(1, head(200, { 'content-type': 'text/event-stream' }), data(row))
  dispatch(1, { body: PLAIN })
  t.equal((await answerOf(world)).body, row)
})
