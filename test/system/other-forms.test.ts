/**
 * Conversations as Anthropic's Messages and as OpenAI's Responses, streamed and not: they go where their
 * prefix is, as chats do, and the delivered overlap equals the predicted one.
 */

import t from 'tap'
import { type Fleet, startFleet, TINY_TOKENIZER, until } from './fleet.ts'

const MODEL = 'tiny'
const SETTINGS = { model: MODEL, tokenizer: TINY_TOKENIZER }
const TURNS = 4
const CONVERSATIONS = 3
const SYSTEM = 'You are a careful assistant who answers in one short sentence and never guesses. '.repeat(6)

type Form = 'chat' | 'messages' | 'responses'
interface Said {
  readonly role: 'user' | 'assistant'
  readonly text: string
}

interface Told {
  readonly text: string
  readonly promptTokens: number
  readonly cachedTokens: number
}

const PATHS: Readonly<Record<Form, string>> = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
}

function bodyOf(form: Form, said: readonly Said[], stream: boolean): object {
  const max = 12
  switch (form) {
    case 'chat': {
      const messages = said.map(({ role, text }) => ({ role, content: text }))
      const all = [{ role: 'system', content: SYSTEM }, ...messages]
      return {
        model: MODEL,
        messages: all,
        max_tokens: max,
        stream,
        stream_options: stream ? { include_usage: true } : undefined,
      }
    }
    case 'messages': {
      const messages = said.map(({ role, text }) => ({ role, content: [{ type: 'text', text }] }))
      return { model: MODEL, system: [{ type: 'text', text: SYSTEM }], messages, max_tokens: max, stream }
    }
    case 'responses': {
      const input = said.map(({ role, text }) => ({
        type: 'message',
        role,
        content: [{ type: role === 'user' ? 'input_text' : 'output_text', text }],
      }))
      return { model: MODEL, instructions: SYSTEM, input, max_output_tokens: max, stream }
    }
  }
}

function told(form: Form, text: string, stream: boolean): Told {
  const events = stream
    ? [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, data]) => JSON.parse(data!) as Record<string, never>)
    : []
  if (form === 'chat') {
    const answer = stream ? undefined : JSON.parse(text)
    const usage = stream ? (events.at(-1) as { usage: never })['usage'] : answer.usage
    const written = stream
      ? events
          .map(
            event =>
              (event['choices'] as unknown as { delta?: { content?: string } }[])[0]?.delta?.content ?? '',
          )
          .join('')
      : answer.choices[0].message.content
    return counts(
      written,
      usage['prompt_tokens'],
      (usage['prompt_tokens_details'] as { cached_tokens: number })['cached_tokens'],
    )
  }
  if (form === 'messages') {
    const last = stream ? (events.find(({ type }) => type === 'message_delta') as never) : JSON.parse(text)
    const usage = last['usage'] as { input_tokens: number; cache_read_input_tokens: number }
    const written = stream
      ? events.flatMap(event => (event['delta'] as { text?: string } | undefined)?.text ?? []).join('')
      : (last['content'] as { text: string }[])[0]!.text
    return counts(written, usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens)
  }
  const response = stream ? (events.at(-1) as { response: never })['response'] : JSON.parse(text)
  const usage = response['usage'] as { input_tokens: number; input_tokens_details: { cached_tokens: number } }
  const [output] = response['output'] as { content: { text: string }[] }[]
  return counts(output!.content[0]!.text, usage.input_tokens, usage.input_tokens_details.cached_tokens)
}

const counts = (text: string, promptTokens: number, cachedTokens: number): Told => ({
  text,
  promptTokens,
  cachedTokens,
})

interface Receipt {
  readonly prompt_tokens: number
  readonly predicted_cached_tokens: number
  readonly prompt_tokens_estimated: boolean
  readonly unknown_prompt: string | null
  readonly text_blocks: string | null
  readonly trust: string
  readonly delivered: { readonly cached_tokens: number | null; readonly prompt_tokens: number | null } | null
}

async function receiptOf(fleet: Fleet, id: string | undefined): Promise<Receipt> {
  return until('the receipt is complete', async () => {
    const { json } = await fleet.send(`/decisions/${id}`)
    return json.delivered === null ? undefined : (json as Receipt)
  })
}

let common: Promise<Fleet> | undefined
/** For all forms of conversations. */
function commonFleet(): Promise<Fleet> {
  common ??= startFleet({
    engines: [SETTINGS, SETTINGS, SETTINGS],
    // Its costs know nothing of time: on a machine that is busy an engine may be slow by chance.
    router: ['--tokenizer', TINY_TOKENIZER, '--router-policy', 'linear'],
  })
  return common
}
t.teardown(async () => (await common)?.stop())

for (const form of ['chat', 'messages', 'responses'] as const) {
  for (const stream of [false, true]) {
    t.test(`${form}, ${stream ? 'streamed' : 'whole'}: predicted as delivered, turn by turn`, async t => {
      const fleet = await commonFleet()
      for (let conversation = 0; conversation < CONVERSATIONS; conversation++) {
        const said: Said[] = []
        const workers = new Set<string | undefined>()
        for (let turn = 0; turn < TURNS; turn++) {
          said.push({
            role: 'user',
            text: `Question ${turn} of conversation ${conversation}, ${form} ${stream}: what comes next, and why?`,
          })
          const answer = await fleet.send(PATHS[form], { body: bodyOf(form, said, stream) })
          t.equal(answer.status, 200, answer.text)
          const { text, promptTokens, cachedTokens } = told(form, answer.text, stream)
          const receipt = await receiptOf(fleet, answer.headers['x-homing-decision'])
          t.equal(receipt.unknown_prompt, null)
          t.equal(receipt.prompt_tokens, promptTokens, 'the router counts what the engine counts')
          t.equal(receipt.predicted_cached_tokens, cachedTokens, 'and predicts what it delivers')
          t.match(receipt.delivered, { cached_tokens: cachedTokens, prompt_tokens: promptTokens })
          if (turn > 0) t.ok(cachedTokens > 100, `${cachedTokens} tokens of turn ${turn} were cached`)
          workers.add(answer.headers['x-homing-worker'])
          said.push({ role: 'assistant', text })
          await fleet.caughtUp(fleet.engines)
          await fleet.drained()
        }
        t.equal(workers.size, 1, 'a conversation stays where it is known')
      }
    })
  }
}

t.test(
  'what cannot be rendered is served, known by its text if by anything, and the receipt says why',
  async t => {
    const fleet = await startFleet({ engines: [SETTINGS], router: ['--tokenizer', TINY_TOKENIZER] })
    t.teardown(() => fleet.stop())
    const PIXEL =
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const messages = (content: object) => ({
      messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, content] }],
      max_tokens: 4,
    })
    const input = (part: object) => ({
      input: [
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'What is this?' }, part] },
      ],
      max_output_tokens: 4,
    })
    let counted = 0
    for (const [path, body, words] of [
      ['/v1/messages', messages({ type: 'document' }), /type document/],
      [
        '/v1/messages',
        messages({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } }),
        /image/,
      ],
      ['/v1/messages', messages({ type: 'dovecote', eggs: 2 }), /type dovecote/],
      [
        '/v1/responses',
        input({ type: 'input_image', image_url: `data:image/png;base64,${PIXEL}` }),
        /input_image/,
      ],
      ['/v1/responses', input({ type: 'input_dovecote', eggs: 2 }), /input_dovecote/],
      ['/v1/responses', { input: [{ type: 'dovecote_call', id: 'd1' }] }, /dovecote_call/],
      ['/v1/responses', { input: 'a', previous_response_id: 'resp_1' }, /whose worker is gone or not known/],
      ['/v1/responses', { input: 'a', tools: [{ type: 'web_search' }] }, /web_search/],
    ] as const) {
      const answer = await fleet.send(path, {
        headers: { 'x-homing-tenant': 'unknown' },
        body: { model: MODEL, ...body },
      })
      const json = await receiptOf(fleet, answer.headers['x-homing-decision'])
      t.equal(answer.status, 200, answer.text)
      t.ok(json.prompt_tokens > 0 && json.prompt_tokens_estimated, `${path} is estimated`)
      const { prompt_tokens: tokens = 0, cached_tokens: cached } = json.delivered!
      const predicted = json.predicted_cached_tokens / json.prompt_tokens
      counted += Math.round(tokens! * (1 - Math.max(predicted, (cached ?? 0) / tokens!)))
      t.match(json.unknown_prompt ?? json.text_blocks, words, path)
      t.ok(['none', 'approximate'].includes(json.trust), 'what is predicted of it is a guess')
    }
    // Their tenant is charged what the engine has counted, not what they were taken for.
    await until('the tenant is charged', async () => {
      const { models } = (await fleet.send('/queue')).json
      const tenants: { tenant: string; served: { uncached_tokens: number } }[] = models[0].tenants
      return (
        tenants.find(({ tenant }) => tenant === 'unknown')?.served.uncached_tokens === counted || undefined
      )
    })
  },
)

t.test('what refers to a response goes to the worker that gave it, streamed or not', async t => {
  const fleet = await startFleet({ engines: [SETTINGS, SETTINGS, SETTINGS] })
  t.teardown(() => fleet.stop())
  const given = new Map<string, string | undefined>()
  for (let number = 0; number < 6; number++) {
    const stream = number % 2 === 0
    const body = { model: MODEL, input: `Question ${number}`, max_output_tokens: 4, stream }
    const answer = await fleet.send('/v1/responses', { body })
    const id = /"id":"(resp[^"]+)"/.exec(answer.text)?.[1]
    if (id === undefined) throw new Error(answer.text)
    given.set(id, answer.headers['x-homing-worker'])
  }
  t.ok(new Set(given.values()).size > 1, 'they are on several workers')
  for (const [id, worker] of given) {
    const next = { model: MODEL, input: 'And then?', max_output_tokens: 4, previous_response_id: id }
    t.equal((await fleet.send('/v1/responses', { body: next })).headers['x-homing-worker'], worker)
    // This engine stores nothing: its own 404 passes.
    const stored = await fleet.send(`/v1/responses/${id}`)
    t.strictSame([stored.status, stored.headers['x-homing-worker']], [404, worker])
    t.strictSame(stored.json, { detail: 'Not Found' })
    const cancelled = await fleet.send(`/v1/responses/${id}/cancel`, { method: 'POST' })
    t.equal(cancelled.headers['x-homing-worker'], worker, cancelled.text)
  }
})

t.test('errors of the router have the form of the route', async t => {
  const fleet = await startFleet({ engines: [{ model: MODEL }] })
  t.teardown(() => fleet.stop())
  const unknown = await fleet.send('/v1/messages', {
    body: { model: 'none', messages: [{ role: 'user', content: 'a' }], max_tokens: 4 },
  })
  t.equal(unknown.status, 404)
  t.match(unknown.json, { type: 'error', error: { type: 'not_found_error', message: /none/ } })
  const malformed = await fleet.send('/v1/messages', { body: '{' })
  t.equal(malformed.status, 400)
  t.match(malformed.json, { type: 'error', error: { type: 'invalid_request_error' } })
  t.match((await fleet.send('/v1/responses', { body: '{' })).json, { error: { code: 'malformed_json' } })
})
