/** Next turns: what is sent after the answer of a chat whose client asks for it, and what is not. */

import t from 'tap'
import { start } from './gateway-world.ts'
import { READ } from './sample-records.ts'
import { data, end, finish, head } from './worker-exchange.ts'

const PATH = '/v1/chat/completions'
const HI = { role: 'user', content: 'hi' }
const ASKS = { agent_hints: { speculative_prefill: true, osl: 7 }, cache_salt: 'mine' }
const JSON_TYPE = { 'content-type': 'application/json' }
const STREAM_TYPE = { 'content-type': 'text/event-stream' }

const chatOf = (more: object = {}, nvext: object = ASKS): string =>
  JSON.stringify({ model: 'm', messages: [HI], max_tokens: 50, nvext, ...more })

const answerOf = (message: object, reason: string | null = 'stop'): string =>
  JSON.stringify({ choices: [{ index: 0, message, finish_reason: reason }] })

const chunk = (delta: object, reason: string | null = null): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`

/** The router reads each body anew, and cuts nvext out as it does. */
function world(test: Parameters<typeof start>[0], nextTurnsMax = 1) {
  const read = () => ({ kind: 'read' as const, request: READ })
  return start(test, { nextTurnsMax, bodiesBytesMax: 100_000, bodyBytesMax: 50_000 }, { read })
}

t.test('the conversation with its answer is sent for one token, with what separates its prompt', async t => {
  const { ask, answer, calls, called, settled } = await world(t)
  const headers = { authorization: 'Bearer x', 'x-request-id': 'one', 'x-tenant-id': 'me' }
  const call = await ask('POST', PATH, { headers, body: chatOf({ stream: true, n: 1 }) })
  await answer(
    head(200, STREAM_TYPE),
    data(chunk({ role: 'assistant', content: '' }) + chunk({ content: 'Good ' })),
  )
  await answer(data(chunk({ content: 'day' }) + chunk({}, 'stop')), data('data: [DONE]\n\n'), end)
  t.equal(call.end, 'complete')
  t.equal(calls.length, 2)
  t.match(called().request, {
    method: 'POST',
    path: PATH,
    headers: { authorization: 'Bearer x', 'x-tenant-id': 'me' },
  })
  t.strictSame(JSON.parse(called().body), {
    model: 'm',
    messages: [HI, { role: 'assistant', content: 'Good day' }],
    max_tokens: 1,
    nvext: { cache_salt: 'mine' },
  })
  await answer(head(200, JSON_TYPE), finish(answerOf({ content: 'x' }, 'length')))
  t.strictSame([calls.length, settled().length], [2, 2], 'and nothing comes of that')
})

t.test('an answer that is not streamed counts as well', async t => {
  const { ask, answer, calls, called } = await world(t)
  await ask('POST', PATH, { body: chatOf() })
  await answer(head(200, JSON_TYPE), finish(answerOf({ content: 'Good day' })))
  t.equal(calls.length, 2)
  t.match(JSON.parse(called().body), { messages: [HI, { role: 'assistant', content: 'Good day' }] })
})

t.test('nothing is sent for what did not ask, has no text alone, is not complete, or failed', async t => {
  for (const [what, body, status, answered] of [
    ['no hint', chatOf({}, {}), 200, answerOf({ content: 'x' })],
    ['the word only', chatOf({ user: '"speculative_prefill"' }, {}), 200, answerOf({ content: 'x' })],
    ['false', chatOf({}, { agent_hints: { speculative_prefill: false } }), 200, answerOf({ content: 'x' })],
    ['tool calls', chatOf(), 200, answerOf({ content: 'x', tool_calls: [{}] }, 'tool_calls')],
    ['no end', chatOf({ stream: true }), 200, chunk({ content: 'x' })],
    ['an error', chatOf(), 400, '{"error":{}}'],
    ['no JSON', chatOf(), 200, 'x'],
  ] as const) {
    const { ask, answer, calls } = await world(t)
    await ask('POST', PATH, { body })
    await answer(head(status, JSON_TYPE), finish(answered))
    t.equal(calls.length, 1, what)
  }
  const { ask, answer, calls } = await world(t, 0)
  await ask('POST', PATH, { body: chatOf() })
  await answer(head(200, JSON_TYPE), finish(answerOf({ content: 'x' })))
  t.equal(calls.length, 1, 'it is switched off')
})

t.test('as many as may be are under way; others are skipped and counted', async t => {
  const { ask, answer, calls } = await world(t)
  for (let i = 0; i < 2; i++) {
    await ask('POST', PATH, { body: chatOf() })
    await answer(head(200, JSON_TYPE), finish(answerOf({ content: 'x' })))
  }
  t.equal(calls.length, 3, 'two chats, and one next turn')
  const { body: text } = await ask('GET', '/metrics')
  t.match(text, /^homing_gateway_next_turns_total\{outcome="sent"\} 1$/m)
  t.match(text, /^homing_gateway_next_turns_total\{outcome="skipped"\} 1$/m)
})
