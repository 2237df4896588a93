/**
 * Workers that take token ids, behind a router, over each request plane: clients of the OpenAI API see
 * completions and chats as of any engine.
 */

import { RefuseRequestError } from '@homing/worker'
import { KvRouter } from 'homing'
import t from 'tap'
import { chunksOf, until } from './fleet.ts'
import {
  chatIdsOf,
  END_ID,
  idsOf,
  MODEL,
  over,
  overEachPlane,
  routerOver,
  type Script,
  ScriptedWorker,
  workerOf,
} from './token-world.ts'

const TEXT = 'Hello 😀 from 東京, then a STOP here and more\n'
const MESSAGES = [{ role: 'user', content: 'Which way is home?' }]
const textOf = (chunks: readonly { choices: { delta?: { content?: string }; text?: string }[] }[]): string =>
  chunks.map(({ choices: [choice] }) => choice?.delta?.content ?? choice?.text ?? '').join('')

overEachPlane(t, 'answers are those of any engine', async (t, plane, nats) => {
  const ids = await idsOf(TEXT)
  const promptIds = await chatIdsOf(MESSAGES)
  const scripts: Script[] = [
    { ids: [...ids, END_ID, ...ids] },
    { ids: [...ids, END_ID, ...ids], pieceTokens: 5 },
  ]
  const { worker, running } = await workerOf(t, scripts, over(plane, nats))
  const client = await routerOver(t, plane, [running], nats)
  const chat = async (more: object) =>
    client.send('/v1/chat/completions', { body: { model: MODEL, messages: MESSAGES, ...more } })

  for (const seed of [0, 1]) {
    const whole = await chat({ seed, temperature: 0.5 })
    t.equal(whole.status, 200, whole.text)
    t.equal(whole.headers['content-type'], 'application/json')
    t.match(whole.json, {
      object: 'chat.completion',
      model: MODEL,
      choices: [{ index: 0, message: { role: 'assistant', content: TEXT }, finish_reason: 'stop' }],
      usage: { prompt_tokens: promptIds.length, completion_tokens: ids.length + 1 },
    })
    const asked = worker.requests.at(-1)!
    t.strictSame(asked.tokenIds, promptIds, 'the worker gets the ids of the prompt')
    t.strictSame(asked.samplingOptions, { seed, temperature: 0.5 })
    t.strictSame(asked.eosTokenIds, [END_ID])

    const stream = await chat({ seed, stream: true, stream_options: { include_usage: true } })
    t.match(stream.headers['content-type'], /^text\/event-stream/)
    const chunks = chunksOf(stream.text)
    t.match(chunks[0], {
      object: 'chat.completion.chunk',
      choices: [{ delta: { role: 'assistant', content: '' } }],
    })
    t.equal(textOf(chunks), TEXT)
    t.notMatch(stream.text, /\ufffd/, 'no piece ends inside a character')
    t.equal(chunks.at(-2).choices[0].finish_reason, 'stop')
    t.match(chunks.at(-1).usage, { prompt_tokens: promptIds.length, completion_tokens: ids.length + 1 })
    t.equal(new Set(chunks.map(({ id }) => id)).size, 1)
  }

  const stops = await chat({ stop: ['a ST', 'here'] })
  t.match(stops.json.choices[0], {
    message: { content: TEXT.slice(0, TEXT.indexOf('a ST')) },
    finish_reason: 'stop',
    stop_reason: 'a ST',
  })
  await until('what is behind the stop is not generated', () =>
    worker.ended === worker.requests.length ? true : undefined,
  )
  const included = await chat({ stop: 'STOP', include_stop_str_in_output: true, stream: true })
  t.equal(textOf(chunksOf(included.text)), TEXT.slice(0, TEXT.indexOf('STOP') + 4))
  const late = await chat({ stop: 'Hello', min_tokens: ids.length, max_tokens: ids.length })
  t.match(late.json.choices[0], { message: { content: TEXT }, finish_reason: 'length' })
  const byId = await chat({ stop_token_ids: [ids[3]] })
  t.match(byId.json, {
    choices: [{ finish_reason: 'stop', stop_reason: ids[3] }],
    usage: { completion_tokens: 4 },
  })

  const twenty = await client.send('/v1/completions', {
    body: {
      model: MODEL,
      prompt: [1, 2, 3],
      max_tokens: ids.length + 5,
      ignore_eos: true,
      return_token_ids: true,
    },
  })
  t.match(twenty.json, {
    object: 'text_completion',
    choices: [{ finish_reason: 'length', text: `${TEXT}Hello` }],
  })
  t.strictSame(twenty.json.choices[0].token_ids, [...ids, END_ID, ...ids].slice(0, ids.length + 5))
  t.strictSame(worker.requests.at(-1)!.tokenIds, [1, 2, 3])
  const short = await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x', stream: true } })
  t.equal(
    chunksOf(short.text).at(-1).choices[0].finish_reason,
    'length',
    'a completion has 16 tokens by default',
  )
  t.equal(worker.requests.at(-1)!.stopConditions.maxTokens, 16)
})

overEachPlane(t, 'a client that leaves ends what is generated for it', async (t, plane, nats) => {
  const ids = await idsOf('one two three four')
  const { worker, running } = await workerOf(t, [{ ids, holdsAt: 3 }], over(plane, nats))
  const client = await routerOver(t, plane, [running], nats)
  const body = { model: MODEL, messages: MESSAGES, stream: true }
  const left = await client.open('/v1/chat/completions', { body })
  left.body.on('error', () => {})
  await until('it waits', () => (worker.held === 1 ? true : undefined))
  left.body.destroy()
  await until('its signal has aborted', () => (worker.cancelled === 1 ? true : undefined))
  worker.go()
  await until('its generator has ended', () => (worker.ended === 1 ? true : undefined))
  await until('nothing is open', () => (running.openRequests === 0 ? true : undefined))
})

overEachPlane(t, 'a stream whose worker dies goes on elsewhere, token by token', async (t, plane, nats) => {
  const ids = [...(await idsOf(TEXT)), END_ID]
  const half = ids.length >> 1
  const dying = new ScriptedWorker([{ ids, holdsAt: half }])
  const first = await dying.start(over(plane, nats))
  const client = await routerOver(t, plane, [first], nats, ['--migration-limit', '2'])
  const body = { model: MODEL, messages: MESSAGES, stream: true, return_token_ids: true }
  const cut = await client.open('/v1/chat/completions', { body })
  const text = cut.body.text()
  await until('it waits in the middle', () => (dying.held === 1 ? true : undefined))
  const { worker: other, running } = await workerOf(t, [{ ids }], over(plane, nats))
  if (plane !== 'nats') await client.send('/workers', { body: { url: running.url } })
  await until('the other is up', async () =>
    (await client.workers()).filter(({ state }) => state === 'up').length === 2 ? true : undefined,
  )
  await first.close(0)
  const chunks = chunksOf(await text)
  t.equal(textOf(chunks), TEXT, 'one answer')
  t.strictSame(
    chunks.flatMap(({ choices: [choice] }) => choice?.token_ids ?? []),
    ids,
    'no token is missing, none is there twice',
  )
  t.equal(chunks.filter(({ choices: [choice] }) => choice?.delta?.role !== undefined).length, 1)
  const [asked] = other.requests
  t.equal(asked!.resumedTokens, half)
  t.strictSame(asked!.tokenIds, [...(await chatIdsOf(MESSAGES)), ...ids.slice(0, half)])
  const { decisions } = (await client.send('/decisions')).json as {
    decisions: { delivered: { outcome: string } }[]
  }
  t.equal(decisions.length, 2)
})

overEachPlane(
  t,
  'a worker that drains finishes what it has, and gets nothing more',
  async (t, plane, nats) => {
    const ids = [...(await idsOf(TEXT)), END_ID]
    const { worker, running } = await workerOf(t, [{ ids, holdsAt: 2 }], over(plane, nats))
    const client = await routerOver(t, plane, [running], nats, ['--migration-limit', '0'])
    const answer = client.send('/v1/chat/completions', {
      body: { model: MODEL, messages: MESSAGES, stream: true },
    })
    await until('it is under way', () => (worker.held === 1 ? true : undefined))
    const closed = running.close(60_000)
    worker.go()
    t.equal(textOf(chunksOf((await answer).text)), TEXT)
    await closed
  },
)

t.test('what one worker refuses or fails before its first token, another takes', async t => {
  const ids = [...(await idsOf(TEXT)), END_ID]
  const failures: readonly Script[] = [
    { ids, failsAt: 0 },
    { ids, failsAt: 0, failure: new RefuseRequestError('its queue is full') },
  ]
  const { worker: sick, running: one } = await workerOf(t, failures, {})
  const { running: two } = await workerOf(t, [{ ids }, { ids }], {})
  const client = await routerOver(t, 'http', [one, two], undefined, ['--router-mode', 'round-robin'])
  for (const seed of [0, 1, 0, 1]) {
    const answer = await client.send('/v1/chat/completions', {
      body: { model: MODEL, messages: MESSAGES, seed },
    })
    t.equal(answer.json.choices[0].message.content, TEXT)
  }
  t.ok(sick.requests.length > 0)
})

t.test('what such workers cannot do is refused in one sentence', async t => {
  const ids = await idsOf(TEXT)
  const { running, worker } = await workerOf(t, [{ ids: [...ids, END_ID] }, { ids, failsAt: 3 }], {})
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
    [chat, { seed: 1 }, 503, /failed this request/],
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
  const { running } = await workerOf(t, [{ ids: [...ids.slice(0, 4), END_ID, ...ids] }], {})
  const router = await KvRouter.start({ workers: [running.url], model: MODEL })
  t.teardown(() => router.close())
  const got: number[] = []
  const request = { tokenIds: [1, 2, 3], model: MODEL, stopConditions: { maxTokens: 20, ignoreEos: true } }
  for await (const { tokenIds } of router.generate(request)) got.push(...tokenIds)
  t.strictSame(got, [...ids.slice(0, 4), END_ID, ...ids].slice(0, 20))
})
