/** Anthropic's official client drives the router as it would drive Anthropic. */

import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import { type Fleet, startFleet, TINY_TOKENIZER, until } from './fleet.ts'

const MODEL = 'homing-sim'
const SYSTEM = [
  { type: 'text' as const, text: 'You answer in one sentence, and you never guess. '.repeat(4) },
  { type: 'text' as const, text: 'Say what you know.', cache_control: { type: 'ephemeral' as const } },
]
const QUESTION = { role: 'user' as const, content: 'How does a homing pigeon know its way?' }
const TOOLS = [
  {
    name: 'distance',
    description: 'Kilometres between two towns',
    input_schema: {
      type: 'object' as const,
      properties: { from: { type: 'string' }, to: { type: 'string' } },
    },
  },
]

let fleet: Fleet
let client: Anthropic

t.before(async () => {
  const engine = { speed: 20, tokenizer: TINY_TOKENIZER }
  fleet = await startFleet({ engines: [engine, engine], router: ['--tokenizer', TINY_TOKENIZER] })
  client = new Anthropic({ baseURL: fleet.url, apiKey: 'unused', maxRetries: 0, timeout: 240_000 })
})
t.teardown(() => fleet.stop())

t.test('a conversation, whole, on the worker that remembers it', async t => {
  const first = await client.messages
    .create({ model: MODEL, system: SYSTEM, messages: [QUESTION], max_tokens: 20 })
    .withResponse()
  const [said] = first.data.content
  if (said?.type !== 'text') return t.fail('the answer has no text')
  t.equal(first.data.usage.output_tokens, 20)
  t.equal(first.data.stop_reason, 'max_tokens')
  await fleet.caughtUp(fleet.engines)
  const messages = [
    QUESTION,
    { role: 'assistant' as const, content: [said] },
    { role: 'user' as const, content: 'And at night?' },
  ]
  const second = await client.messages
    .create({ model: MODEL, system: SYSTEM, messages, max_tokens: 4 })
    .withResponse()
  t.equal(second.response.headers.get('x-homing-worker'), first.response.headers.get('x-homing-worker'))
  t.ok(second.data.usage.cache_read_input_tokens! > 0)
  t.ok(Number(second.response.headers.get('x-homing-overlap-blocks')) > 0)
})

t.test('the same streamed, with a tool that was called', async t => {
  const messages = [
    QUESTION,
    {
      role: 'assistant' as const,
      content: [
        { type: 'text' as const, text: 'Let me see.' },
        { type: 'tool_use' as const, id: 't1', name: 'distance', input: { from: 'Rome', to: 'Bern' } },
      ],
    },
    { role: 'user' as const, content: [{ type: 'tool_result' as const, tool_use_id: 't1', content: '690' }] },
  ]
  const stream = client.messages.stream({
    model: MODEL,
    system: SYSTEM,
    tools: TOOLS,
    messages,
    max_tokens: 12,
  })
  const texts: string[] = []
  stream.on('text', text => texts.push(text))
  const message = await stream.finalMessage()
  const [said] = message.content
  t.equal(said?.type === 'text' ? said.text : undefined, texts.join(''))
  t.ok(texts.length > 2)
  t.equal(message.usage.output_tokens, 12)
  const id = stream.response?.headers.get('x-homing-decision')
  const receipt = await until('the receipt is complete', async () => {
    const { json } = await fleet.send(`/decisions/${id}`)
    return json.delivered === null ? undefined : json
  })
  t.equal(receipt.unknown_prompt, null)
  t.match(receipt.delivered, { completion_tokens: 12, prompt_tokens: receipt.prompt_tokens })
})

t.test('errors are those that the client knows by their kind', async t => {
  const errorOf = (body: Partial<Anthropic.MessageCreateParamsNonStreaming>): Promise<unknown> =>
    client.messages.create({ model: MODEL, messages: [QUESTION], max_tokens: 4, ...body }).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
  const unknownModel = await errorOf({ model: 'none' })
  t.ok(unknownModel instanceof Anthropic.NotFoundError)
  t.match(unknownModel, { type: 'not_found_error', message: /none/ })
  const empty = await errorOf({ messages: [] })
  t.ok(empty instanceof Anthropic.BadRequestError)
  t.match(empty, { type: 'invalid_request_error', message: /messages/ })
})

t.test('a failure inside a stream is an error of the stream', async t => {
  // It does not end before its engine does.
  for (const engine of fleet.engines) await engine.faults({ slowMs: 20 })
  const stream = await client.messages.create({
    model: MODEL,
    messages: [QUESTION],
    max_tokens: 2000,
    stream: true,
  })
  let thrown: unknown
  let seen = 0
  try {
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && ++seen === 3)
        await Promise.all(fleet.engines.map(engine => engine.restart()))
    }
  } catch (error) {
    thrown = error
  }
  t.ok(seen >= 3)
  t.ok(thrown instanceof Anthropic.APIError)
  t.match(thrown, { error: { type: 'error', error: { type: 'api_error', message: /worker/ } } })
})
