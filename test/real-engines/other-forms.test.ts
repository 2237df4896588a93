/**
 * Conversations of four turns as Messages and as Responses on a live engine: what was predicted is delivered,
 * and as much is cached as of the same conversations as chats.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS (docs/engines.md). The engine's
 * model must be on this machine, so that the router loads its tokenizer. HOMING_REAL_REQUESTS says how many
 * requests of each form, 100 unless given.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { RouterClient, send, startTestRouter, until } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100').split(',')
const REQUESTS = Number(process.env['HOMING_REAL_REQUESTS'] ?? 100)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const TURNS = 4
const EQUAL_MIN = 0.98
const POINTS_MAX = 5
const STEADY_LOOKS = 6

type Form = 'chat' | 'messages' | 'responses'
interface Said {
  readonly role: 'user' | 'assistant'
  readonly content: string
}

const PATHS: Readonly<Record<Form, string>> = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
}
const TOOL = {
  name: 'look_up',
  description: 'Looks a word up',
  schema: {
    type: 'object',
    properties: { word: { type: 'string' }, count: { type: 'integer', default: 1 } },
  },
}

function bodyOf(
  form: Form,
  model: string,
  system: string,
  said: readonly Said[],
  hasTool: boolean,
  stream: boolean,
) {
  const { name, description, schema } = TOOL
  const made = { name, description, parameters: schema }
  switch (form) {
    case 'chat':
      return {
        model,
        messages: [{ role: 'system', content: system }, ...said],
        max_tokens: 8,
        ...(hasTool ? { tools: [{ type: 'function', function: made }], tool_choice: 'none' } : {}),
        ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
      }
    case 'messages':
      return {
        model,
        system: [{ type: 'text', text: system }],
        messages: said,
        max_tokens: 8,
        stream,
        ...(hasTool
          ? { tools: [{ name, description, input_schema: schema }], tool_choice: { type: 'none' } }
          : {}),
      }
    case 'responses':
      return {
        model,
        instructions: system,
        input: said,
        max_output_tokens: 8,
        stream,
        ...(hasTool ? { tools: [{ type: 'function', ...made }], tool_choice: 'none' } : {}),
      }
  }
}

t.test(`other forms on a live engine (seed ${SEED})`, { skip, timeout: 900_000 }, async t => {
  const engineUrl = urls[0]!.split('?', 1)[0]!
  const { json: models } = await send(engineUrl, '/v1/models')
  const { id: model, root } = models.data[0]
  const router = await startTestRouter(urls, ['--tokenizer', `${model}=${root}`])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted()
  const batches = async () =>
    (await client.workers())
      .flatMap(({ worker_keys }) => worker_keys.map(({ events }) => events?.batches ?? 0))
      .join()
  /** An engine publishes what a request stored behind its answer, of a long prompt in several batches. */
  const eventsSince = async (before: string) => {
    let [last, steady] = [before, 0]
    await until('its events have come', async () => {
      const now = await batches()
      steady = now === last ? steady + 1 : 0
      last = now
      return now !== before && steady >= STEADY_LOOKS ? true : undefined
    })
  }
  const shares = new Map<Form, number>()
  for (const form of ['chat', 'messages', 'responses'] as const) {
    const random = seededRandom(SEED)
    const word = () =>
      Array.from({ length: 3 + random.below(6) }, () => 'abcdefghij'[random.below(10)]!).join('')
    const words = (count: number) => Array.from({ length: count }, word).join(' ')
    let [equal, prompt, cached, requests] = [0, 0, 0, 0]
    while (requests < REQUESTS) {
      // Each form has its own system text, so that none finds blocks of another in the cache.
      const system = `${form} ${words(60)}`
      const said: Said[] = []
      const hasTool = random.below(3) === 0
      for (let turn = 0; turn < TURNS && requests < REQUESTS; turn++, requests++) {
        said.push({ role: 'user', content: words(20 + random.below(60)) })
        const before = await batches()
        const stream = random.below(2) === 0
        const answer = await client.send(PATHS[form], {
          body: bodyOf(form, model, system, said, hasTool, stream),
        })
        if (answer.status !== 200) throw new Error(answer.text)
        await eventsSince(before)
        const receipt = await until('the receipt is complete', async () => {
          const { json } = await client.send(`/decisions/${answer.headers['x-homing-decision']}`)
          return json.delivered === null ? undefined : json
        })
        const { delivered } = receipt
        const isEqual =
          receipt.unknown_prompt === null &&
          delivered.prompt_tokens === receipt.prompt_tokens &&
          delivered.cached_tokens === receipt.predicted_cached_tokens
        if (isEqual) equal++
        else
          t.comment(
            `${form}, turn ${turn}, ${stream ? 'streamed' : 'whole'}, tool ${hasTool}: ${receipt.unknown_prompt ?? ''} predicted ${receipt.predicted_cached_tokens} of ${receipt.prompt_tokens}, delivered ${delivered.cached_tokens} of ${delivered.prompt_tokens}`,
          )
        prompt += delivered.prompt_tokens ?? 0
        cached += delivered.cached_tokens ?? 0
        said.push({ role: 'assistant', content: words(4) })
      }
    }
    shares.set(form, (100 * cached) / prompt)
    t.comment(
      `${form}: ${equal} of ${requests} as predicted, ${shares.get(form)!.toFixed(1)} % of the prompt tokens cached`,
    )
    t.ok(equal >= EQUAL_MIN * requests, `${form}: ${equal} of ${requests} as predicted`)
  }
  for (const form of ['messages', 'responses'] as const) {
    const difference = Math.abs(shares.get(form)! - shares.get('chat')!)
    t.ok(difference <= POINTS_MAX, `${form}: ${difference.toFixed(1)} points from chat`)
  }
})
