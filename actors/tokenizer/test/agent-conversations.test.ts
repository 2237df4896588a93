/**
 * Conversations of agents whose tokens are not known here: each turn begins with the same blocks as the turn
 * before it, whatever tools and parts there are.
 */

import { fileURLToPath } from 'node:url'
import t from 'tap'
import { BodyReader } from '../src/body-reader.ts'
import type { CompletionRoute, ReadRequest } from '../src/index.ts'
import { modelTable, readGivenTokenizers } from '../src/model-table.ts'
import { fleetOf, model } from './fleet.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const BLOCK = 16
const TURNS = 8
const WORDS = 'A homing pigeon finds its way back over a thousand kilometres, and no zoologist knows how. '
const PICTURE = `data:image/png;base64,${'iVBORw0KGgo'.repeat(200)}`

const reader = new BodyReader({ promptCacheBytes: 1e7, wordTableBytes: 2 ** 20 })
const fleet = fleetOf({ models: [model('m')], blockSizeTokens: BLOCK, canTokenize: true })
const tables = {
  'with a tokenizer': modelTable(fleet, readGivenTokenizers([TINY])),
  'with engines that tokenize': modelTable(fleet, readGivenTokenizers([])),
}
let version = 0

async function read(route: CompletionRoute, body: object, table = tables['with a tokenizer']) {
  const tokenizers = new Map()
  reader.configure({ version: ++version, table, tokenizers, distrusted: new Set() })
  const outcome = await reader.run({
    type: 'read',
    version,
    route,
    body: new TextEncoder().encode(JSON.stringify({ model: 'm', ...body })),
    headers: {},
    wantTokenIds: false,
    wallMs: 0,
    unaskable: undefined,
  })
  if (outcome.kind !== 'read') throw new Error(JSON.stringify(outcome))
  return outcome.request
}

interface Conversation {
  readonly route: CompletionRoute
  /** The body of a turn, 0 is the first: it has all that the bodies before it have. */
  readonly body: (turn: number) => object
}

const say = (turn: number) => `Turn ${turn}. ${WORDS.repeat(3)}`
const upTo = <T>(turn: number, of: (turn: number) => readonly T[]): T[] =>
  Array.from({ length: turn + 1 }, (_, i) => of(i)).flat()

/** Codex and others: Responses with `tools`, and what each turn adds to the input. */
const responses = (tools: readonly object[], added: (turn: number) => readonly object[]): Conversation => ({
  route: 'responses',
  body: turn => ({
    instructions: WORDS,
    tools,
    input: upTo(turn, i => [
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: say(i) }] },
      ...added(i),
    ]),
  }),
})

const chat = (part: object): Conversation => ({
  route: 'chat',
  body: turn => ({
    messages: upTo(turn, i => [
      { role: 'user', content: [{ type: 'text', text: say(i) }, part] },
      { role: 'assistant', content: say(i) },
    ]).slice(0, -1),
  }),
})

/** Claude Code: the mark for caching is on the last message, and one line of the system differs. */
const claude = (tools: readonly object[], block: object): Conversation => ({
  route: 'messages',
  body: turn => ({
    max_tokens: 100,
    tools,
    system: [
      { type: 'text', text: `x-anthropic-billing-header: cch=${turn}${turn}` },
      { type: 'text', text: WORDS, cache_control: { type: 'ephemeral' } },
    ],
    messages: upTo(turn, i => [
      {
        role: 'user',
        content: [
          block,
          { type: 'text', text: say(i), ...(i === turn ? { cache_control: { type: 'ephemeral' } } : {}) },
        ],
      },
      { role: 'assistant', content: [{ type: 'text', text: say(i) }] },
    ]).slice(0, -1),
  }),
})

const CONVERSATIONS: Readonly<Record<string, Conversation>> = {
  'Responses with web_search': responses([{ type: 'web_search' }], () => []),
  'Responses with local_shell': responses([{ type: 'local_shell' }], i => [
    { type: 'local_shell_call', call_id: `c${i}`, status: 'completed', action: { command: ['ls'] } },
    { type: 'local_shell_call_output', call_id: `c${i}`, output: say(i) },
  ]),
  'Responses with a custom tool': responses(
    [{ type: 'custom', name: 'apply_patch', format: { type: 'grammar', syntax: 'lark' } }],
    i => [
      { type: 'custom_tool_call', call_id: `c${i}`, name: 'apply_patch', input: say(i) },
      { type: 'custom_tool_call_output', call_id: `c${i}`, output: 'done' },
    ],
  ),
  'Responses with apply_patch': responses([{ type: 'apply_patch' }], i => [
    { type: 'apply_patch_call', call_id: `c${i}`, operation: { type: 'update_file', diff: say(i) } },
    { type: 'apply_patch_call_output', call_id: `c${i}`, status: 'completed' },
  ]),
  'Responses with pictures': responses([], () => [
    { type: 'message', role: 'user', content: [{ type: 'input_image', image_url: PICTURE }] },
  ]),
  'Responses with sealed reasoning': responses([], i => [
    { type: 'reasoning', summary: [], encrypted_content: `${i}${'x'.repeat(4000)}` },
  ]),
  'Messages with tools of the engine': claude([{ type: 'web_search_20250305', name: 'web_search' }], {
    type: 'text',
    text: 'look it up',
  }),
  'Messages with deferred tools': claude(
    [{ name: 'f', defer_loading: true, input_schema: { type: 'object', properties: {} } }],
    { type: 'text', text: 'call it' },
  ),
  'Messages with pictures': claude([], {
    type: 'image',
    source: { type: 'base64', media_type: 'image/png', data: PICTURE.slice(22) },
  }),
  'chat with pictures': chat({ type: 'image_url', image_url: { url: PICTURE } }),
  'chat with sound': chat({ type: 'input_audio', input_audio: { format: 'wav', data: PICTURE.slice(22) } }),
}

for (const [name, { route, body }] of Object.entries(CONVERSATIONS)) {
  for (const [where, table] of Object.entries(tables)) {
    t.test(`${name}, ${where}: each turn goes on with the blocks of the turn before`, async t => {
      const turns: ReadRequest[] = []
      for (let turn = 0; turn < TURNS; turn++) turns.push(await read(route, body(turn), table))
      const missing = turns.filter(({ textBlocksReason }) => textBlocksReason === undefined)
      t.strictSame(
        missing.map(({ unknownPromptReason }) => unknownPromptReason),
        [],
        'known by its text',
      )
      for (const [turn, { sequenceHashes }] of turns.entries()) {
        const before = turns[turn - 1]?.sequenceHashes ?? new Int32Array(0)
        t.strictSame(sequenceHashes.slice(0, before.length), before, `turn ${turn}`)
        t.ok(sequenceHashes.length > before.length, `turn ${turn} is longer`)
      }
    })
  }
}

t.test(
  'other pictures are other blocks, and a picture counts a thousand tokens, whatever its bytes',
  async t => {
    const withPart = (part: object) => read('chat', { messages: [{ role: 'user', content: [part] }] })
    const withPicture = (url: string) => withPart({ type: 'image_url', image_url: { url } })
    const one = await withPicture(PICTURE)
    const other = await withPicture(PICTURE.replace('KGgo', 'KGgp'))
    t.strictSame((await withPicture(PICTURE)).sequenceHashes, one.sequenceHashes)
    t.not(other.sequenceHashes.at(-1), one.sequenceHashes.at(-1))
    for (const url of [
      PICTURE,
      'https://a.example/b.png',
      `data:image/png;base64,${'QUJD'.repeat(99_999)}`,
    ]) {
      const { promptTokens, estimate } = await withPicture(url)
      t.ok(promptTokens >= 1024 && promptTokens < 1088, `${promptTokens} of ${url.slice(0, 30)}`)
      t.ok(estimate!.tokensMax > 16_384)
    }
    const { sequenceHashes } = await withPart({
      type: 'image_url',
      image_url: { url: PICTURE },
      cache_control: {},
    })
    t.strictSame(sequenceHashes, one.sequenceHashes)
  },
)

t.test('the order of members and the marks for caching change nothing', async t => {
  const tools = [{ type: 'web_search', filters: { allowed_domains: ['a'] }, user_location: null }]
  const messages = [{ role: 'user', content: [{ type: 'text', text: WORDS.repeat(4) }] }]
  const one = await read('messages', { max_tokens: 1, tools, messages })
  const sorted = [{ user_location: null, filters: { allowed_domains: ['a'] }, type: 'web_search' }]
  const marked = [{ content: [{ ...messages[0]!.content[0], cache_control: {} }], role: 'user' }]
  const other = await read('messages', { messages: marked, tools: sorted, max_tokens: 1 })
  t.ok(one.sequenceHashes.length > 0)
  t.strictSame(other.sequenceHashes, one.sequenceHashes)
})

t.test('marks for caching change nothing where no engine tokenizes either', async t => {
  const table = modelTable(fleetOf({ models: [model('m')], blockSizeTokens: BLOCK }), readGivenTokenizers([]))
  const body = (turn: number) => ({
    messages: upTo(turn, i => [
      {
        role: 'user',
        content: [{ type: 'text', text: say(i), ...(i === turn ? { cache_control: {} } : {}) }],
      },
    ]),
  })
  const first = (await read('chat', body(0), table)).sequenceHashes
  const second = (await read('chat', body(1), table)).sequenceHashes
  t.ok(first.length > 0)
  t.strictSame(second.slice(0, first.length), first)
})

t.test('a conversation that goes on from what only the engine has is not known', async t => {
  for (const more of [{ previous_response_id: 'r' }, { conversation: 'c' }, { prompt: { id: 'p' } }]) {
    const request = await read('responses', { input: WORDS, ...more })
    t.match(request.unknownPromptReason, /only the engine knows/)
    t.equal(request.sequenceHashes.length, 0)
  }
})
