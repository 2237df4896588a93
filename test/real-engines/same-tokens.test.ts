/**
 * The token ids of the router and those of a live engine's `/tokenize`, for prompts of all kinds, through the
 * whole router.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS (docs/engines.md), each compared by
 * itself. The engine's model must be on this machine, so that the router loads its tokenizer.
 * HOMING_REAL_REQUESTS says how many prompts, 1,000 unless given; what the router leaves to the engine is
 * counted, and does not count as compared.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import {
  hostileText,
  LITERAL_TOKENS,
  longHostileText,
} from '../../packages/tokenization/test/reference/texts.ts'
import { RouterClient, send, startTestRouter } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100').split(',')
const PROMPTS = Number(process.env['HOMING_REAL_REQUESTS'] ?? 1000)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const LONG_CHARS = 20_000
const SHOWN_CHARS = 1000

const random = seededRandom(SEED)
const pick = <T>(of: readonly T[]): T => of[random.below(of.length)]!
const sentence = (): string =>
  Array.from({ length: 1 + random.below(40) }, () =>
    pick("The quick brown fox doesn't jump over 12345 lazy dogs, Straße 東京 नमस्ते 👩‍💻 — \n\n".split(' ')),
  ).join(' ')
const code = (): string =>
  Array.from(
    { length: 1 + random.below(20) },
    (_, i) =>
      `${'  '.repeat(random.below(5))}${pick(['if (x) {', '}', 'return a_b[0x1F] ?? ""', '// 注释', '\tfoo(bar)'])}${i % 3 === 0 ? '\r\n' : '\n'}`,
  ).join('')
const literal = (): string =>
  `${sentence()}${pick(LITERAL_TOKENS)}${pick(['', ' ', '\n'])}${pick(LITERAL_TOKENS)}x`
const long = (): string => {
  let text = ''
  while (text.length < LONG_CHARS) text += pick([sentence, code, () => hostileText(random)])()
  return text
}
const text = (): string =>
  pick([sentence, code, literal, () => hostileText(random), () => hostileText(random), () => ''])()
const parts = (): object[] =>
  Array.from({ length: 1 + random.below(3) }, () => ({ type: 'text', text: text() }))
const content = () => (random.below(4) === 0 ? parts() : text())
const turns = (): object[] => [
  ...(random.below(2) === 0 ? [{ role: 'system', content: content() }] : []),
  ...Array.from({ length: random.below(4) }, () => [
    { role: 'user', content: content() },
    { role: 'assistant', content: text() },
  ]).flat(),
  { role: 'user', content: content() },
]
const tool = (): object => ({
  type: 'function',
  function: {
    name: pick(['get_weather', 'search', 'übersetzen']),
    description: text(),
    parameters: {
      type: 'object',
      properties: { [pick(['a', 'b'])]: { type: 'integer', default: random.below(9) } },
    },
  },
})
const call = (): object => ({
  id: 'call_abcd',
  type: 'function',
  function: { name: 'get_weather', arguments: JSON.stringify({ city: sentence(), days: random.below(9) }) },
})

/** By kind: members of a request that decide its prompt. */
const KINDS: Readonly<Record<string, () => object>> = {
  chat: () => ({ messages: turns() }),
  'chat with tools': () => ({ messages: turns(), tools: Array.from({ length: 1 + random.below(3) }, tool) }),
  'tool calls and results': () => ({
    messages: [
      ...turns(),
      { role: 'assistant', content: pick([null, '', sentence()]), tool_calls: [call()] },
      { role: 'tool', tool_call_id: 'call_abcd', content: text() },
    ],
    tools: [tool()],
  }),
  'a message to continue': () => ({
    messages: [...turns(), { role: 'assistant', content: `I think ${sentence()}` }],
    continue_final_message: true,
    add_generation_prompt: false,
  }),
  'no generation prompt': () => ({ messages: turns(), add_generation_prompt: false }),
  'special tokens asked for': () => ({ messages: turns(), add_special_tokens: true }),
  'literal special tokens': () => ({ messages: [{ role: 'user', content: literal() + literal() }] }),
  'a long chat': () => ({ messages: [...turns(), { role: 'user', content: long() }] }),
  'a completion': () => ({ prompt: `x${text()}` }),
  'a completion without special tokens': () => ({ prompt: `x${text()}`, add_special_tokens: false }),
  'a long completion': () => ({ prompt: long() }),
  'a long hostile completion': () => ({
    prompt: longHostileText(random).slice(0, LONG_CHARS).toWellFormed(),
  }),
}

for (const url of urls) {
  t.test(`token ids of the router equal those of ${url}/tokenize`, { skip, timeout: 1_200_000 }, async t => {
    t.comment(`HOMING_SEED=${SEED}`)
    const router = await startTestRouter([url], ['--tokenize-check-every', '1'])
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    await client.trusted()
    const engineUrl = url.split('?', 1)[0]!
    const model = (await send(engineUrl, '/v1/models')).json.data[0].id as string
    const { json: version } = await send(engineUrl, '/version')
    const compared = new Map<string, number>()
    const delegated = new Map<string, number>()
    let tokens = 0
    let done = 0
    for (let i = 0; done < PROMPTS && i < PROMPTS * 2; i++) {
      const [kind, make] = Object.entries(KINDS)[i % Object.keys(KINDS).length]!
      const members = make()
      const own = await ownIds(router.url, { model, ...members })
      const theirs = await send(engineUrl, '/tokenize', { body: { model, ...members } })
      if (own.by !== 'router') {
        delegated.set(`${kind}: ${own.by}`, (delegated.get(`${kind}: ${own.by}`) ?? 0) + 1)
        continue
      }
      const engineIds: readonly number[] = theirs.json.tokens ?? []
      const shown = JSON.stringify(members).slice(0, SHOWN_CHARS)
      if (theirs.status !== 200 || own.ids.join() !== engineIds.join()) {
        const at = own.ids.findIndex((id, k) => id !== engineIds[k])
        t.fail(
          `prompt ${i}, ${kind}: token ${at} of ${own.ids.length} differs (engine ${theirs.status}): ${shown}`,
        )
        return
      }
      done++
      tokens += own.ids.length
      compared.set(kind, (compared.get(kind) ?? 0) + 1)
    }
    t.comment(`vLLM ${version.version}: ${done} prompts with ${tokens} tokens equal`)
    for (const [kind, count] of compared) t.comment(`${kind}: ${count} equal`)
    for (const [kind, count] of delegated) t.comment(`left to the engine: ${kind}: ${count}`)
    t.equal(done, PROMPTS, 'so many prompts were compared')
    for (const kind of Object.keys(KINDS)) t.ok(compared.get(kind) ?? 0, `${kind} is among them`)
  })
}

/** The ids that the router would hash for this request, and which encoder made them. */
async function ownIds(
  routerUrl: string,
  body: object,
): Promise<{ readonly by: string; readonly ids: readonly number[] }> {
  const isChat = 'messages' in body
  const { json: route } = await send(routerUrl, '/route', { body })
  const asked = { ...body, nvext: { annotations: ['query_instance_id'] } }
  const answer = await send(routerUrl, isChat ? '/v1/chat/completions' : '/v1/completions', { body: asked })
  const ids = /^event: token_data\ndata: (\[.*\])$/m.exec(answer.text)
  return {
    by: route.tokenized_by ?? String(route.error?.message),
    ids: ids === null ? [] : JSON.parse(ids[1]!),
  }
}
