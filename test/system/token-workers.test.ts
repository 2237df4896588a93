/**
 * Workers that take token ids, behind a router, over each request plane: clients of the OpenAI API see
 * completions and chats as of any engine.
 */

import { KvRouter } from 'homing'
import t from 'tap'
import { MESSAGES, TEXT, tokenWorkerCases } from './token-cases.ts'
import { END_ID, idsOf, MODEL, routerOver, startInProcess } from './token-world.ts'

tokenWorkerCases(t, startInProcess)

t.test('what such workers cannot do is refused in one sentence', async t => {
  const ids = await idsOf(TEXT)
  const scripts = [{ ids: [...ids, END_ID] }, { ids, failsAt: 3 }]
  const running = await startInProcess(t, scripts, {})
  const { worker } = running
  const client = await routerOver(t, 'http', [running], undefined)
  const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }
  const tool = { type: 'function', function: { name: 'f', parameters: {} } }
  const chat = '/v1/chat/completions'
  for (const [path, more, status, message] of [
    [chat, { n: 2 }, 400, /n 2: use 1/],
    [chat, { logprobs: true }, 400, /logprobs true/],
    [chat, { tools: [tool] }, 400, /tool_choice "none"/],
    [chat, { stop: 7 }, 400, /stop 7: use a text/],
    [chat, { max_tokens: 0 }, 400, /max_tokens 0: use a whole number from 1/],
    [
      chat,
      { messages: [{ role: 'user', content: [picture] }] },
      503,
      /take token ids, and those of its prompt are not known/,
    ],
    [chat, { messages: [{ role: 'user', content: 'x '.repeat(5000) }] }, 400, /fewer than 4096/],
    ['/v1/completions', { messages: undefined, prompt: ['a', 'b'] }, 400, /prompt of 2 texts: use one/],
    [
      '/v1/completions',
      { messages: undefined, prompt: [1, 4_000_000] },
      400,
      /token id 4000000: use ids below/,
    ],
    ['/v1/messages', { max_tokens: 5 }, 400, /use it with \/v1\/chat\/completions or \/v1\/completions/],
    ['/v1/embeddings', { input: 'x' }, 404, /takes token ids, at POST \/v1\/tokens/],
    [chat, { seed: 1 }, 503, /failed this request\); .* worker 127[^ ]+: /],
  ] as const) {
    const answer = await client.send(path, { body: { model: MODEL, messages: MESSAGES, ...more } })
    t.equal(answer.status, status, `${JSON.stringify(more).slice(0, 60)} ${answer.text}`)
    t.match(answer.json.error.message, message)
  }
  t.equal(worker.requests.length, 1, 'nothing else reached the worker')
  const cut = await client.send(chat, { body: { model: MODEL, messages: MESSAGES, seed: 1, stream: true } })
  t.match(cut.text, /"error".*out of memory/)
  const metrics = await client.send('/metrics')
  t.match(metrics.text, /homing_gateway_token_answers_total\{end="failed"\} 2/)
  const own = await fetch(`${running.url.split('?')[0]}/metrics`).then(reply => reply.text())
  t.match(own, /homing_worker_requests_total\{outcome="failed"\} 2/)
})

t.test('a program generates through such a worker, exactly 20 tokens', async t => {
  const ids = (await idsOf('a b c d e f g h i j k l m n o p q r s t u v')).slice(0, 30)
  const running = await startInProcess(t, [{ ids: [...ids.slice(0, 4), END_ID, ...ids] }], {})
  const router = await KvRouter.start({ workers: [running.url], model: MODEL })
  t.teardown(() => router.close())
  const got: number[] = []
  const request = { tokenIds: [1, 2, 3], model: MODEL, stopConditions: { maxTokens: 20, ignoreEos: true } }
  for await (const { tokenIds } of router.generate(request)) got.push(...tokenIds)
  t.strictSame(got, [...ids.slice(0, 4), END_ID, ...ids].slice(0, 20))
})
