/**
 * What the official clients see of prefill and decode apart: nothing. Each call is made to two legs and to
 * one worker, and what the client returns is compared member for member, without ids, times, and how much was
 * cached where.
 */

import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { startFleet, until } from './fleet.ts'

const MODEL = 'homing-sim'
const SHARED = { blockSizeTokens: 16, seed: 7 } as const
const TEXT = Array.from({ length: 60 }, (_, at) => `pigeon-${at}`).join(' ')
const WHOLE_ID = 30

const fleet = await startFleet({
  engines: [{ ...SHARED, role: 'prefill' }, { ...SHARED, role: 'decode' }, SHARED],
  workerQuery: (_, position) => ['?role=prefill&id=10', '?role=decode&id=20', `?id=${WHOLE_ID}`][position]!,
})
t.teardown(() => fleet.stop())
const openai = new OpenAI({ baseURL: `${fleet.url}/v1`, apiKey: 'unused', maxRetries: 0 })
const anthropic = new Anthropic({ baseURL: fleet.url, apiKey: 'unused', maxRetries: 0 })

const messages = [{ role: 'user' as const, content: TEXT }]
const common = { model: MODEL, max_tokens: 6 }
/** A member that the clients' types do not know, and send all the same. */
type Given = object

const CALLS: Readonly<Record<string, (given: Given) => Promise<unknown>>> = {
  'chat, whole': given => openai.chat.completions.create({ ...common, messages, ...given }),
  'chat, a stream': async given =>
    all(
      await openai.chat.completions.create({
        ...{ ...common, messages, ...given },
        ...{ stream: true, stream_options: { include_usage: true } },
      }),
    ),
  'a completion, whole': given => openai.completions.create({ ...common, prompt: TEXT, ...given }),
  'a completion, a stream': async given =>
    all(await openai.completions.create({ ...common, prompt: TEXT, ...given, stream: true })),
  'a response, whole': given =>
    openai.responses.create({ model: MODEL, input: TEXT, max_output_tokens: 6, ...given }),
  'a response, a stream': async given =>
    all(
      await openai.responses.create({
        ...{ model: MODEL, input: TEXT, max_output_tokens: 6, ...given },
        stream: true,
      }),
    ),
  'a message, whole': given => anthropic.messages.create({ ...common, messages, ...given }),
  'a message, a stream': async given =>
    all(await anthropic.messages.create({ ...common, messages, ...given, stream: true })),
}

async function all<T>(stream: AsyncIterable<T>): Promise<readonly T[]> {
  const chunks: T[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return chunks
}

const MASKED =
  /^(id|item_id|created|created_at|completed_at|system_fingerprint|cached_tokens|cache_read_input_tokens|input_tokens)$/

function masked(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (name, member) => (MASKED.test(name) ? 0 : member))
}

t.before(() =>
  until('prompts are handed over', async () => {
    const { headers } = await fleet.send('/v1/completions', { body: { ...common, prompt: TEXT } })
    return headers['x-homing-prefill-worker']
  }),
)

for (const [what, call] of Object.entries(CALLS)) {
  t.test(`${what}: the client sees no difference`, async t => {
    const before = (await fleet.engines[0]!.state()).requests.length
    const split = await call({})
    t.equal(
      (await fleet.engines[0]!.state()).requests.length,
      before + 1,
      'its prompt was computed elsewhere',
    )
    const whole = await call({ nvext: { backend_instance_id: WHOLE_ID } })
    t.strictSame(masked(split), masked(whole))
    t.ok(JSON.stringify(whole).length > 100)
  })
}
