/** The official `openai` client drives the router as it would drive OpenAI. */

import OpenAI from 'openai'
import t from 'tap'
import { type Fleet, startFleet, TINY_TOKENIZER, until } from './fleet.ts'

const MODEL = 'homing-sim'
const QUESTION = [
  { role: 'system' as const, content: 'You answer in one sentence, and you never guess.' },
  { role: 'user' as const, content: 'How does a homing pigeon know its way?' },
]
const TOOLS = [
  {
    type: 'function' as const,
    function: {
      name: 'distance',
      description: 'Kilometres between two towns',
      parameters: { type: 'object', properties: { from: { type: 'string' }, to: { type: 'string' } } },
    },
  },
]

let fleet: Fleet
let client: OpenAI

t.before(async () => {
  // Twenty times faster than a GPU: quick, and a long stream is still under way when the test looks at it.
  const engine = { speed: 20, tokenizer: TINY_TOKENIZER }
  fleet = await startFleet({ engines: [engine, engine] })
  client = new OpenAI({ baseURL: `${fleet.url}/v1`, apiKey: 'unused', maxRetries: 0, timeout: 240_000 })
})
t.teardown(() => fleet.stop())

t.test('lists and finds models', async t => {
  const ids: string[] = []
  for await (const model of client.models.list()) ids.push(model.id)
  t.strictSame(ids, [MODEL])
  const model = await client.models.retrieve(MODEL)
  t.equal(model.id, MODEL)
  t.equal(model.object, 'model')
})

t.test('chats, whole', async t => {
  const { data, response } = await client.chat.completions
    .create({ model: MODEL, messages: QUESTION, max_tokens: 20 })
    .withResponse()
  t.equal(data.object, 'chat.completion')
  t.equal(data.choices.length, 1)
  t.equal(data.choices[0]!.message.role, 'assistant')
  t.ok(data.choices[0]!.message.content)
  t.equal(data.choices[0]!.finish_reason, 'length')
  t.equal(data.usage?.completion_tokens, 20)
  t.ok(response.headers.get('x-homing-decision'))
})

t.test('the same chat streamed is the same text, on a worker that remembers it', async t => {
  const whole = await client.chat.completions
    .create({ model: MODEL, messages: QUESTION, max_tokens: 24 })
    .withResponse()
  await fleet.caughtUp(fleet.engines)
  const { data: stream, response } = await client.chat.completions
    .create({
      model: MODEL,
      messages: QUESTION,
      max_tokens: 24,
      stream: true,
      stream_options: { include_usage: true },
    })
    .withResponse()
  let text = ''
  let finish: string | null | undefined
  let usage: OpenAI.CompletionUsage | null | undefined
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? ''
    finish = chunk.choices[0]?.finish_reason ?? finish
    usage = chunk.usage ?? usage
  }
  t.equal(text, whole.data.choices[0]!.message.content)
  t.equal(finish, 'length')
  t.equal(usage?.completion_tokens, 24)
  // Both may: the chats before this one came within a moment, and took either.
  const overlapBlocks = Number(response.headers.get('x-homing-overlap-blocks'))
  t.ok(overlapBlocks > 0)
  t.equal(usage?.prompt_tokens_details?.cached_tokens, overlapBlocks * 16)
})

t.test('tools are part of the prompt that is looked up', async t => {
  const ask = (tools: typeof TOOLS | undefined) =>
    client.chat.completions
      .create({ model: MODEL, messages: QUESTION, max_tokens: 2, ...(tools === undefined ? {} : { tools }) })
      .withResponse()
  const without = await ask(undefined)
  const first = await ask(TOOLS)
  t.ok(first.data.usage!.prompt_tokens > without.data.usage!.prompt_tokens)
  await fleet.caughtUp(fleet.engines)
  const second = await ask(TOOLS)
  const overlapBlocks = Number(second.response.headers.get('x-homing-overlap-blocks'))
  t.equal(overlapBlocks, Math.floor((second.data.usage!.prompt_tokens - 1) / 16))
  t.equal(second.data.usage!.prompt_tokens_details?.cached_tokens, overlapBlocks * 16)
})

t.test('n: 2 gives two choices, whole and streamed', async t => {
  const body = { model: MODEL, messages: QUESTION, max_tokens: 6, n: 2 }
  const whole = await client.chat.completions.create(body)
  t.strictSame(
    whole.choices.map(({ index }) => index),
    [0, 1],
  )
  const texts = ['', '']
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? ''
  }
  t.strictSame(
    texts,
    whole.choices.map(({ message }) => message.content),
  )
})

t.test('logprobs come through', async t => {
  const answer = await client.chat.completions.create({
    model: MODEL,
    messages: QUESTION,
    max_tokens: 5,
    logprobs: true,
    top_logprobs: 2,
  })
  t.equal(answer.choices[0]!.logprobs?.content?.length, 5)
})

t.test('completes text, whole and streamed', async t => {
  const body = { model: MODEL, prompt: 'The pigeon flew over the hills and', max_tokens: 12 }
  const whole = await client.completions.create(body)
  t.equal(whole.object, 'text_completion')
  let text = ''
  for await (const chunk of await client.completions.create({ ...body, stream: true })) {
    text += chunk.choices[0]?.text ?? ''
  }
  t.equal(text, whole.choices[0]!.text)
})

t.test('responses, whole and streamed, on the worker that remembers them', async t => {
  const body = {
    model: MODEL,
    instructions: 'You answer in one sentence, and you never guess.',
    input: 'How does a homing pigeon know its way over a thousand kilometres?',
    max_output_tokens: 16,
  }
  const { data: whole, response } = await client.responses.create(body).withResponse()
  t.equal(whole.usage?.output_tokens, 16)
  await fleet.caughtUp(fleet.engines)
  const streamed = await client.responses.create({ ...body, stream: true }).withResponse()
  let text = ''
  let last: OpenAI.Responses.Response | undefined
  for await (const event of streamed.data) {
    if (event.type === 'response.output_text.delta') text += event.delta
    if (event.type === 'response.incomplete') last = event.response
  }
  const [item] = whole.output
  t.match(item, { type: 'message', content: [{ text }] })
  t.ok(last!.usage!.input_tokens_details.cached_tokens > 0)
  const worker = response.headers.get('x-homing-worker')
  t.equal(streamed.response.headers.get('x-homing-worker'), worker)
  const next = await client.responses
    .create({ ...body, input: 'And at night?', previous_response_id: whole.id })
    .withResponse()
  t.equal(next.response.headers.get('x-homing-worker'), worker)
  // The simulated engine stores no responses: the client gets the engine's own 404.
  for (const asked of [
    client.responses.retrieve(whole.id),
    client.responses.cancel(whole.id),
    client.responses.delete(whole.id),
  ]) {
    const thrown = await asked.then(
      () => undefined,
      (error: unknown) => error,
    )
    t.ok(thrown instanceof OpenAI.NotFoundError)
    t.equal((thrown as { headers: Headers }).headers.get('x-homing-worker'), worker)
  }
})

t.test('a failure inside a streamed response is an error of the stream', async t => {
  // It does not end before its engine does.
  for (const engine of fleet.engines) await engine.faults({ slowMs: 20 })
  const stream = await client.responses.create({
    model: MODEL,
    input: 'Go on and on.',
    max_output_tokens: 2000,
    stream: true,
  })
  const read = async () => {
    let seen = 0
    for await (const event of stream) {
      if (event.type === 'error') throw new Error(`${event.code}: ${event.message}`)
      if (event.type === 'response.output_text.delta' && ++seen === 3)
        await Promise.all(fleet.engines.map(engine => engine.restart()))
    }
  }
  await t.rejects(read(), { message: /worker/ })
  for (const engine of fleet.engines) await engine.faults({ slowMs: 0 })
  await fleet.trusted('exact')
})

t.test('an error is the typed error of the client', async t => {
  const errorOf = (body: OpenAI.ChatCompletionCreateParamsNonStreaming): Promise<unknown> =>
    client.chat.completions.create(body).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
  const unknownModel = await errorOf({ model: 'nobody', messages: QUESTION })
  t.ok(unknownModel instanceof OpenAI.NotFoundError)
  t.equal((unknownModel as { code?: unknown }).code, 'model_not_found')
  const empty = await errorOf({ model: MODEL, messages: [] })
  t.ok(empty instanceof OpenAI.BadRequestError)
  t.equal((empty as { param?: unknown }).param, 'messages')
})

t.test('a client that leaves ends the request at the engine at once, and its booking', async t => {
  // It does not end before its client leaves.
  for (const engine of fleet.engines) await engine.faults({ slowMs: 20 })
  const controller = new AbortController()
  const stream = await client.chat.completions.create(
    { model: MODEL, messages: QUESTION, max_tokens: 20_000, stream: true },
    { signal: controller.signal },
  )
  const abortedAfter = 5
  let chunks = 0
  try {
    for await (const _ of stream) if (++chunks === abortedAfter) controller.abort()
  } catch (thrown) {
    t.ok(thrown instanceof OpenAI.APIUserAbortError)
  }
  const leftAt = performance.now()
  await until('no engine runs anything', async () => {
    const states = await Promise.all(fleet.engines.map(({ state }) => state()))
    return states.every(({ ranks }) => ranks.every(({ running, waiting }) => running + waiting === 0))
      ? true
      : undefined
  })
  t.comment(`the engine was free ${(performance.now() - leftAt).toFixed(0)} ms after the client left`)
  await fleet.drained()
  const records = (await Promise.all(fleet.engines.map(({ state }) => state()))).flatMap(s => s.requests)
  const aborted = records.filter(({ outcome }) => outcome === 'aborted')
  t.equal(aborted.length, 1)
  t.ok(aborted[0]!.outputTokens < 20_000)
  const receipts = await fleet.send('/decisions?limit=1')
  t.equal(receipts.json.decisions[0].delivered.outcome, 'aborted')
})
