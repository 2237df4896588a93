/** A pool thread reads a request's bytes. */

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chainSequence, hashBlocks, hashText, namespaceSeed, textTokens } from '@homing/blocks'
import { readModelAlias } from '@homing/config'
import { type ModelNames, modelNames, NO_ALIASES } from '@homing/fleet'
import { editBody } from '@homing/openai'
import { ADAPTER, EXTRA_KEY, SALT } from '@homing/protocol'
import { PromptTokenizer } from '@homing/tokenization'
import t from 'tap'
import { BodyReader } from '../src/body-reader.ts'
import { givenChatOptions } from '../src/chat-options.ts'
import type { CompletionRoute, ReadRequest } from '../src/index.ts'
import { type ModelTable, modelTable, readGivenTokenizers } from '../src/model-table.ts'
import type { ReaderOutcome } from '../src/reader-tasks.ts'
import { adapter, fleetOf, model, type WorkerOptions } from './fleet.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const BLOCK = 4
const TEXT = 'A homing pigeon finds its way back over a thousand kilometres.'
const HELLO = [{ role: 'user', content: TEXT }]

const reader = new BodyReader({ promptCacheBytes: 1e7, wordTableBytes: 2 ** 20 })
let version = 0
const tiny = await PromptTokenizer.load(TINY)
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
const textOf = (bytes: Uint8Array | undefined): string | undefined =>
  bytes === undefined ? undefined : new TextDecoder().decode(bytes)

/** Everything local: the model `m` and its adapter `poet`. */
const LOCAL = tableOf([`m=${TINY}`], { models: [model('m'), adapter('poet', 'm')], blockSizeTokens: BLOCK })
/** Nothing local: the engines are asked. */
const REMOTE = tableOf([], { blockSizeTokens: BLOCK, canTokenize: true })

function tableOf(given: readonly string[], ...workers: WorkerOptions[]): ModelTable {
  return modelTable(fleetOf(...workers), readGivenTokenizers(given))
}

interface ReadOptions {
  readonly route?: CompletionRoute
  readonly headers?: Record<string, string>
  readonly table?: ModelTable
  readonly wantTokenIds?: boolean
  readonly wallMs?: number
  readonly unaskable?: string
  readonly names?: ModelNames
  readonly unlistedAdaptersOf?: string
  readonly trustsTokenData?: boolean
  readonly affinityFields?: readonly string[]
  readonly promptIds?: Int32Array
}

/** `body`: JSON text as it stands, or a value. */
function run(body: string | object, options: ReadOptions = {}): Promise<ReaderOutcome> {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  reader.configure({
    version: ++version,
    table: options.table ?? LOCAL,
    tokenizers: new Map(),
    distrusted: new Set(),
    names: options.names ?? NO_ALIASES,
    unlistedAdaptersOf: options.unlistedAdaptersOf,
    trustsTokenData: options.trustsTokenData ?? false,
    affinityFields: options.affinityFields ?? [],
  })
  return reader.run({
    type: 'read',
    version,
    route: options.route ?? (text.includes('"messages"') ? 'chat' : 'completions'),
    body: utf8(text),
    promptIds: options.promptIds,
    headers: options.headers ?? {},
    wantTokenIds: options.wantTokenIds ?? true,
    wallMs: options.wallMs ?? 0,
    unaskable: options.unaskable,
  })
}

async function read(body: string | object, options: ReadOptions = {}): Promise<ReadRequest> {
  const outcome = await run(body, options)
  if (outcome.kind !== 'read') throw new Error(`${outcome.kind}: ${JSON.stringify(outcome)}`)
  return outcome.request
}

async function refusal(body: string | object, options: ReadOptions = {}): Promise<unknown[]> {
  const outcome = await run(body, options)
  return outcome.kind === 'refused'
    ? [outcome.error.code, outcome.param, outcome.error.message]
    : [outcome.kind]
}

async function question(body: string | object, options: ReadOptions = {}) {
  const outcome = await run(body, { table: REMOTE, ...options })
  if (outcome.kind === 'ask-engine') return { body: textOf(outcome.tokenizeBody), why: outcome.why }
  if (outcome.kind === 'refused') return { kind: outcome.kind, why: outcome.error.code }
  if (outcome.kind !== 'read') return { kind: outcome.kind, why: undefined }
  return {
    kind: outcome.kind,
    why: outcome.request.unknownPromptReason ?? outcome.request.textBlocksReason,
  }
}

const chatIds = (body: object): number[] => {
  const answer = tiny.encodeChat(JSON.stringify(body))
  return answer.kind === 'tokens' ? [...answer.tokens] : []
}

t.test('a message with disabled thinking has the prompt of a chat that asks for none', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-thinking-'))
  t.teardown(() => rm(directory, { recursive: true }))
  await cp(TINY, directory, { recursive: true })
  await writeFile(
    join(directory, 'chat_template.jinja'),
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{{ '' if enable_thinking is not defined or enable_thinking else 'no thought\n' }}",
  )
  const table = tableOf([`m=${directory}`], { models: [model('m')], blockSizeTokens: BLOCK })
  const idsOf = async (route: CompletionRoute, fields: object) => {
    const { tokenIds } = await read(
      { model: 'm', messages: HELLO, max_tokens: 1, ...fields },
      { route, table },
    )
    return [...(tokenIds ?? [])]
  }
  const off = await idsOf('messages', { thinking: { type: 'disabled' } })
  t.ok(off.length > 0)
  t.strictSame(off, await idsOf('chat', { reasoning_effort: 'none' }))
  t.not(off.length, (await idsOf('messages', {})).length)
})

t.test('a chat with a model of gpt-oss is known by its text, whatever form it came in', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-harmony-'))
  t.teardown(() => rm(directory, { recursive: true }))
  await cp(TINY, directory, { recursive: true })
  const files = JSON.parse(await readFile(join(TINY, 'tokenizer.json'), 'utf8')) as {
    added_tokens: { id: number; content: string }[]
  }
  const [first] = files.added_tokens
  const names = ['<|channel|>', '<|constrain|>', '<|call|>', '<|return|>']
  const most = Math.max(...files.added_tokens.map(({ id }) => id))
  const added = names.map((content, at) => ({ ...first, id: most + 1 + at, content }))
  const table = tableOf([`m=${directory}`], {
    models: [model('m')],
    blockSizeTokens: BLOCK,
    canTokenize: true,
  })
  const bodies = [
    ['chat', { model: 'm', messages: HELLO }],
    ['messages', { model: 'm', messages: HELLO, max_tokens: 1 }],
    ['responses', { model: 'm', input: TEXT }],
  ] as const
  for (const [route, body] of bodies)
    t.equal((await read(body, { route, table })).textBlocksReason, undefined, `${route} without its tokens`)
  await writeFile(
    join(directory, 'tokenizer.json'),
    JSON.stringify({ ...files, added_tokens: [...files.added_tokens, ...added] }),
  )
  const again = tableOf([`m=${directory}/.`], {
    models: [model('m')],
    blockSizeTokens: BLOCK,
    canTokenize: true,
  })
  for (const [route, body] of bodies) {
    const { textBlocksReason, localHashes, tokenizedBy } = await read(body, { route, table: again })
    t.match(textBlocksReason, /gpt-oss.*Harmony/, route)
    t.ok(localHashes.length > 0, 'prompts that begin alike are seen to')
    t.notOk(tokenizedBy === 'router')
  }
  // The text of a completion is what it is.
  t.equal((await read({ model: 'm', prompt: TEXT }, { table: again })).textBlocksReason, undefined)
})

t.test('a chat becomes the tokens of its rendered template, and their hashes', async t => {
  const request = await read({ model: 'm', messages: HELLO, stream: true })
  const ids = chatIds({ messages: HELLO })
  const { local, sequence } = hashBlocks(Int32Array.from(ids), BLOCK, namespaceSeed())
  t.ok(ids.length > 3 * BLOCK)
  t.match(request, {
    model: 'm',
    isStream: true,
    promptTokens: ids.length,
    blockSizeTokens: BLOCK,
    tokenizedBy: 'router',
    unknownPromptReason: undefined,
    upstreamBody: undefined,
  })
  t.strictSame([...(request.tokenIds ?? [])], ids)
  t.strictSame(request.localHashes, local)
  t.strictSame(request.sequenceHashes, sequence)
})

t.test('token ids are copied back only for who asks', async t => {
  t.equal((await read({ model: 'm', prompt: TEXT }, { wantTokenIds: false })).tokenIds, undefined)
})

t.test('a completion takes a text, texts, ids or lists of ids; the first prompt decides', async t => {
  const ids = [...tiny.encodeText(TEXT)]
  const idsOf = async (prompt: unknown) => {
    const { tokenIds, tokenizedBy } = await read({ model: 'm', prompt })
    return [tokenizedBy, ...(tokenIds ?? [])]
  }
  t.strictSame(await idsOf(TEXT), ['router', ...ids])
  t.strictSame(await idsOf([TEXT, 'another']), ['router', ...ids])
  t.strictSame(await idsOf([1, 2, 4_294_967_295]), ['client', 1, 2, -1])
  t.strictSame(await idsOf([[5, 6], [7]]), ['router', 5, 6])
})

t.test('ids beside the body are read as ids in it, whatever else the body says', async t => {
  const ids = Array.from({ length: 3 * BLOCK + 1 }, (_, at) => 4_294_967_295 - at)
  for (const more of [
    { model: 'm' },
    {},
    { model: 'poet' },
    { model: 'm', cache_salt: 'a' },
    { model: 'm', nvext: { backend_instance_id: 3, router_config_override: { router_temperature: 1 } } },
    { model: 'another' },
  ]) {
    const { upstreamBody: _, ...inBody } = await read({ token_ids: ids, ...more })
    const { upstreamBody: __, ...beside } = await read(more, {
      promptIds: Int32Array.from(ids, id => id | 0),
    })
    t.strictSame(beside, inBody, JSON.stringify(more))
  }
  t.strictSame(await refusal('{"model":', { promptIds: new Int32Array(1) }), await refusal('{"model":'))
})

t.test('of what separates a prompt from equal ones each beginning is told that events may show', async t => {
  const sets = async (body: object) => (await read({ prompt: TEXT, model: 'm', ...body })).separated
  t.equal(await sets({}), undefined)
  t.equal(await sets({ cache_salt: '', extra_key: null }), undefined)
  const ids = Int32Array.from(tiny.encodeText(TEXT))
  const first = (fields: object) => [
    ...hashBlocks(ids.subarray(0, BLOCK), BLOCK, namespaceSeed(fields)).local,
  ]
  t.strictSame(await sets({ cache_salt: 's' }), {
    firstTokens: BLOCK,
    hashes: Int32Array.from(first({})),
    unnamed: [SALT],
  })
  t.strictSame(await sets({ model: 'poet', cache_salt: 's', extra_key: ['k'] }), {
    firstTokens: BLOCK,
    hashes: Int32Array.from([
      ...first({}),
      ...first({ cacheSalt: 's' }),
      ...first({ loraName: 'poet' }),
      ...first({ loraName: 'poet', cacheSalt: 's' }),
    ]),
    unnamed: [SALT | ADAPTER | EXTRA_KEY, ADAPTER | EXTRA_KEY, SALT | EXTRA_KEY, EXTRA_KEY],
  })
  t.match(await sets({ lora_path: 'x' }), { unnamed: [ADAPTER] })
  t.match(await sets({ prompt: [5, 6], cache_salt: 's' }), { firstTokens: 2, unnamed: [SALT] })
  t.match(await sets({ prompt: [TEXT], cache_salt: 's' }), { firstTokens: BLOCK })
  const unknown = { firstTokens: 0, hashes: new Int32Array(0), unnamed: [SALT] }
  t.strictSame(await sets({ prompt: [TEXT, TEXT], cache_salt: 's' }), unknown)
  t.strictSame(await sets({ prompt: [[5, 6], [7]], cache_salt: 's' }), unknown)
  t.strictSame(await sets({ truncate_prompt_tokens: 5, cache_salt: 's' }), unknown)
})

t.test('an adapter and its base never share a hash', async t => {
  const base = await read({ model: 'm', messages: HELLO })
  const lora = await read({ model: 'poet', messages: HELLO })
  t.strictSame(lora.tokenIds, base.tokenIds)
  t.strictSame(lora.localHashes, hashBlocks(lora.tokenIds!, BLOCK, namespaceSeed({ loraName: 'poet' })).local)
  t.notSame(lora.localHashes.slice(0, 2), base.localHashes.slice(0, 2))
})

t.test('a salt changes every hash, and the engine is told of it', async t => {
  const salted = hashBlocks(
    Int32Array.from(chatIds({ messages: HELLO })),
    BLOCK,
    namespaceSeed({ cacheSalt: 's"1' }),
  )
  const body = `{"model":"m","messages":${JSON.stringify(HELLO)}`
  const cases: [string, string, Record<string, string>, string | undefined][] = [
    ['at the top level', `${body},"cache_salt":"s\\"1"}`, {}, undefined],
    ['in nvext', `${body},"nvext":{"cache_salt":"s\\"1"}}`, {}, `${body},"cache_salt":"s\\"1"}`],
    ['in the tenant header', `${body}}`, { 'x-tenant-id': 's"1' }, `${body},"cache_salt":"s\\"1"}`],
    [
      'in the header, over the body',
      `${body},"cache_salt": "other", "seed": 1.0}`,
      { 'x-tenant-id': 's"1' },
      `${body},"cache_salt": "s\\"1", "seed": 1.0}`,
    ],
  ]
  for (const [where, text, headers, upstream] of cases) {
    const request = await read(text, { headers })
    t.strictSame(request.localHashes, salted.local, where)
    t.strictSame(request.sequenceHashes, chainSequence(salted.local, salted.count), where)
    t.equal(textOf(request.upstreamBody), upstream, where)
  }
})

t.test('what is meant for the router is cut; every other byte stays', async t => {
  const before = '{ "model" : "m",\t"temperature":1.0, "seed":12345678901234567890,"2":1,"1":2 '
  const after = ` ,"messages" :[{"role":"user","content":"h\\u00e9llo \\ud83d\\ude00"}],"top_p":1e-1 }\n`
  const nvext = '"nvext" : {"annotations":["query_instance_id"], "a":[1,{"b":"}"}]}'
  const request = await read(`${before}, ${nvext}${after}`)
  t.equal(textOf(request.upstreamBody), `${before.trimEnd()}${after}`)
  t.strictSame(request.annotations, ['query_instance_id'])
  t.equal((await read(`${before}${after}`)).upstreamBody, undefined)
})

t.test('a stream that did not ask for usage can be asked, in the bytes that go upstream', async t => {
  const asked = ({ upstreamBody, usageEdit }: ReadRequest, body: string) =>
    usageEdit === undefined ? undefined : textOf(editBody(upstreamBody ?? Buffer.from(body), usageEdit))
  const plain = '{"model":"m","prompt":"x","stream":true}'
  t.equal(
    asked(await read(plain), plain),
    '{"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true}}',
  )
  const cut = '{"nvext":{"annotations":["some"]},"model":"m","prompt":"x","stream":true,"stream_options":{}}'
  t.equal(
    asked(await read(cut), cut),
    '{"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true}}',
  )
  for (const rest of ['', ',"stream":false', ',"stream":true,"stream_options":{"include_usage":true}']) {
    t.equal((await read(`{"model":"m","prompt":"x"${rest}}`)).usageEdit, undefined, rest)
  }
  for (const several of ['"prompt":"x","n":2', '"prompt":["x","y"]', '"prompt":[[1],[2]]']) {
    const { usageEdit } = await read(`{"model":"m","stream":true,${several}}`)
    t.equal(usageEdit, undefined, `${several}: several choices have several last chunks`)
  }
})

t.test('hints of nvext and its headers reach the router', async t => {
  const body = {
    model: 'm',
    prompt: TEXT,
    nvext: {
      backend_instance_id: 3,
      dp_rank: 1,
      extra_fields: ['worker_id'],
      allowed_worker_ids: [3, '4'],
      routing_constraints: { required_taints: ['fast'], preferred_taints: { near: 1.5 } },
      router_config_override: { overlap_score_weight: 0.5, overlap_score_credit: 2, router_temperature: 0.7 },
    },
  }
  const expected = {
    override: { overlapWeight: 0.5, overlapCredit: 2, temperature: 0.7 },
    constraints: {
      allowedInstanceIds: [3, 4],
      requiredTaints: ['fast'],
      preferredTaints: { near: 1.5 },
    },
    pinnedInstanceId: 3,
    pinnedRank: 1,
    extraFields: ['worker_id'],
  }
  t.match(await read(body), expected)
  const headers = { 'x-worker-instance-id': '5', 'x-dp-rank': '2' }
  t.match(await read(body, { headers }), { ...expected, pinnedInstanceId: 5, pinnedRank: 2 })
  const [code, param] = await refusal(body, { headers: { 'x-dp-rank': 'two' } })
  t.strictSame([code, param], ['HOMING_OPENAI_INVALID_REQUEST', 'x-dp-rank'])
})

const CLAIMED = { model: 'm', messages: HELLO, nvext: { token_data: [9, 8, 7, 6, 5] } }

t.test('token_data is checked, and the prompt of the body is read all the same', async t => {
  const request = await read(CLAIMED)
  const { messages } = CLAIMED
  t.strictSame(request, await read({ model: 'm', messages, nvext: {} }))
  t.equal(request.tokenizedBy, 'router')
  t.equal(textOf(request.upstreamBody), JSON.stringify({ model: 'm', messages: HELLO }))
  t.strictSame((await refusal({ ...CLAIMED, nvext: { token_data: [9, 'x'] } })).slice(0, 2), [
    'HOMING_OPENAI_INVALID_REQUEST',
    'nvext.token_data[1]',
  ])
  t.strictSame((await refusal({ ...CLAIMED, nvext: { token_data: [] } })).slice(0, 2), [
    'HOMING_OPENAI_EMPTY_PROMPT',
    'nvext.token_data',
  ])
})

t.test(
  'token_data that is trusted is the prompt, unless the body is much longer, and is not audited',
  async t => {
    const request = await read(CLAIMED, { trustsTokenData: true })
    t.strictSame([request.tokenizedBy, ...(request.tokenIds ?? [])], ['client', 9, 8, 7, 6, 5])
    t.equal(request.localHashes.length, 2)
    t.equal(request.cacheUse, 'claimed')
    t.notOk(request.isCounted)
    const flood = { ...CLAIMED, messages: [{ role: 'user', content: TEXT.repeat(1000) }] }
    const { promptTokens } = await read(flood, { trustsTokenData: true })
    t.ok(promptTokens > TEXT.length * 100, `${promptTokens}, not 5`)
  },
)

t.test('the model may be left out where there is but one', async t => {
  t.match(await read({ prompt: TEXT }), { model: 'm', tokenizedBy: 'router' })
  const two = tableOf([TINY], { models: [model('m'), model('n')] })
  const [code, param, message] = await refusal({ prompt: TEXT }, { table: two })
  t.strictSame([code, param], ['HOMING_OPENAI_INVALID_REQUEST', 'model'])
  t.match(message, /one of m, n/)
  t.match((await refusal({ prompt: TEXT }, { table: tableOf([]) }))[2], /one of the models served/)
})

t.test('a model that nobody serves is left to the router to refuse', async t => {
  for (const name of ['gpt-5', '__proto__', 'constructor']) {
    t.match(await read(`{"model":"${name}","prompt":"${TEXT}"}`), {
      model: name,
      promptTokens: 0,
      unknownPromptReason: 'no worker serves the model',
      tokenizedBy: 'nobody',
    })
  }
})

t.test('without a block size the prompt is cut into blocks of an assumed one', async t => {
  const request = await read(
    { model: 'm', prompt: TEXT },
    { table: tableOf([TINY], { blockSizeTokens: undefined }) },
  )
  t.equal(request.promptTokens, tiny.encodeText(TEXT).length)
  t.equal(request.blockSizeTokens, 16)
  t.equal(request.localHashes.length, 2 * Math.floor(request.promptTokens / 16))
  t.equal(request.unknownPromptReason, undefined)
})

t.test('a prompt that the engine will truncate is not known', async t => {
  for (const body of [{ prompt: TEXT }, { prompt: [1, 2, 3, 4, 5] }, { messages: HELLO }]) {
    const request = await read({ model: 'm', ...body, truncate_prompt_tokens: 3 })
    t.match(request.unknownPromptReason, /truncate_prompt_tokens/)
    t.equal(request.localHashes.length, 0)
    t.equal(
      (await read({ model: 'm', ...body, truncate_prompt_tokens: null })).unknownPromptReason,
      undefined,
    )
  }
})

t.test(
  'a stream of several prompts tells nothing of the cache, and neither does what computes all',
  async t => {
    const cacheUse = async (body: object) => (await read({ model: 'm', ...body })).cacheUse
    t.equal(await cacheUse({ prompt: [TEXT, TEXT], stream: true }), 'unreported')
    t.equal(await cacheUse({ prompt: [TEXT, TEXT] }), undefined)
    t.equal(await cacheUse({ prompt: [TEXT], stream: true }), undefined)
    t.equal(await cacheUse({ prompt: TEXT, stream: true, prompt_logprobs: 1 }), 'unread')
  },
)

t.test('a prompt behind embeddings is not known', async t => {
  const body = { model: 'm', prompt: TEXT, prompt_embeds: 'AAAA' }
  t.match((await read(body)).unknownPromptReason, /prompt_embeds/)
})

t.test('a prompt that is not known counts by its bytes, and says so', async t => {
  const long = TEXT.repeat(1000)
  const tokens = textTokens(long.length)
  const chat = [{ role: 'user', content: long }]
  const known = await read({ model: 'm', messages: chat })
  t.equal(known.estimate, undefined)
  const none = tableOf([], { blockSizeTokens: BLOCK })
  const cases: readonly [string, object, Parameters<typeof read>[1]?][] = [
    ['truncated by the engine', { messages: chat, truncate_prompt_tokens: 1_000_000 }],
    ['behind embeddings', { prompt: long, prompt_embeds: 'AAAA' }],
    ['several texts', { prompt: [TEXT, long] }],
    ['several lists of ids', { prompt: [[1], Array(tokens).fill(1)] }],
    ['several texts without a tokenizer', { prompt: [TEXT, long] }, { table: none }],
    ['text without a tokenizer', { messages: chat }, { table: none }],
    ['by the word of the client', { messages: chat, nvext: { token_data: [5] } }, { trustsTokenData: true }],
    ['of a later API', { messages: [{ role: 'user', content: [{ type: 'later', text: long }] }] }],
  ]
  for (const [name, body, options] of cases) {
    const { promptTokens, estimate, isCounted } = await read({ model: 'm', ...body }, options)
    const least = name.startsWith('by the word') ? tokens / 2 : tokens
    t.ok(promptTokens >= least && promptTokens < 1.1 * tokens, `${name}: ${promptTokens} of ${tokens}`)
    t.ok(estimate !== undefined && estimate.tokensMax >= promptTokens, `${name}: is an estimate`)
    t.notOk(isCounted, name)
  }
  const cut = await read({ model: 'm', prompt: long, truncate_prompt_tokens: 3 })
  t.equal(cut.promptTokens, 3)
})

t.test('token_data of a request with a picture counts the picture, not its encoded bytes', async t => {
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${'QUJD'.repeat(99_999)}` } }
  const messages = [{ role: 'user', content: [picture] }]
  const { promptTokens } = await read(
    { model: 'm', messages, nvext: { token_data: [5] } },
    { trustsTokenData: true },
  )
  t.ok(promptTokens >= 512 && promptTokens < 600, String(promptTokens))
})

t.test('a prompt with pictures is known by its text and their hashes, and no engine is asked', async t => {
  const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }
  const body = {
    model: 'm',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'what is it' }, picture] }],
  }
  for (const table of [LOCAL, REMOTE]) {
    const request = await read(body, { table })
    t.match(request.textBlocksReason, /image_url/)
    t.strictSame([request.tokenizedBy, request.unknownPromptReason], ['nobody', undefined])
    t.ok(request.localHashes.length > 0)
  }
})

t.test('an alias is the model behind it, in the body of the engine, too', async t => {
  const fleet = fleetOf({ models: [model('m'), adapter('poet', 'm')], blockSizeTokens: BLOCK })
  const names = modelNames(fleet, ['haiku=m', 'claude-*=poet'].map(readModelAlias))
  const ask = (name: string, more: object = {}) => read({ model: name, messages: HELLO, ...more }, { names })
  const plain = await read({ model: 'm', messages: HELLO })
  const haiku = await ask('haiku')
  t.strictSame([haiku.model, haiku.sequenceHashes], ['m', plain.sequenceHashes])
  t.equal(textOf(haiku.upstreamBody), JSON.stringify({ model: 'm', messages: HELLO }))
  t.equal((await ask('m')).upstreamBody, undefined)
  t.equal((await ask('claude-haiku-4-5')).model, 'poet')
  const both = await ask('haiku', { nvext: { cache_salt: 's' }, stream: true })
  t.equal(
    textOf(both.upstreamBody),
    JSON.stringify({ model: 'm', messages: HELLO, stream: true, cache_salt: 's' }),
  )
  const edited = editBody(both.upstreamBody!, both.usageEdit!)
  t.match(JSON.parse(textOf(edited)!), { model: 'm', stream_options: { include_usage: true } })
  t.equal((await ask('gpt')).unknownPromptReason, 'no worker serves the model')
})

t.test('a model that no worker lists is an adapter, where its base model is given', async t => {
  const unlistedAdaptersOf = 'm'
  const listed = await read({ model: 'poet', messages: HELLO }, { unlistedAdaptersOf })
  const unlisted = await read({ model: 'bard', messages: HELLO }, { unlistedAdaptersOf })
  t.strictSame([unlisted.model, unlisted.upstreamBody], ['bard', undefined])
  t.equal(unlisted.promptTokens, listed.promptTokens)
  t.not(unlisted.localHashes[0], listed.localHashes[0], 'adapters share no blocks')
  t.strictSame(unlisted.separated?.unnamed, [ADAPTER])
})

t.test('a member of the body names the session, and how long the answer may be', async t => {
  const affinityFields = ['prompt_cache_key', 'user']
  const sessionOf = async (more: object) =>
    (await read({ model: 'm', messages: HELLO, ...more }, { affinityFields })).session
  t.equal(await sessionOf({ user: 'u', prompt_cache_key: 'k' }), 'k')
  t.equal(await sessionOf({ user: 'u', prompt_cache_key: '' }), 'u')
  t.equal(await sessionOf({ user: 7, prompt_cache_key: null }), undefined)
  t.equal((await read({ model: 'm', messages: HELLO, user: 'u' })).session, undefined)
  t.equal((await read({ model: 'm', messages: HELLO, max_tokens: 7 })).outputTokensMax, 7)
})

t.test('text parts alone are no picture', async t => {
  const parts = [{ type: 'text', text: TEXT }]
  t.match(await question({ model: 'm', messages: [{ role: 'user', content: parts }] }), {
    why: /no tokenizer directory/,
  })
})

t.test('an engine is asked with the bytes of the client', async t => {
  const messages = '[ {"role":"user", "content":"h\\u00e9 1.0"} ]'
  const chat =
    `{"stream":true,"messages":${messages},"model":"m","tools": [{"type":"function","function":{"name":"f","x":1.0}}],` +
    '"temperature":0.5,"chat_template_kwargs":{"2":1,"1":2},"add_generation_prompt":true}'
  t.strictSame(await question(chat), {
    body:
      `{"model":"m","messages":${messages},"tools":[{"type":"function","function":{"name":"f","x":1.0}}],` +
      '"add_generation_prompt":true,"chat_template_kwargs":{"2":1,"1":2}}',
    why: 'no tokenizer directory for m',
  })
  t.match(await question('{"prompt" : "a\\tb" , "max_tokens":5,"add_special_tokens":false}'), {
    body: '{"model":"m","prompt":"a\\tb","add_special_tokens":false}',
  })
})

t.test('what /tokenize cannot render is not asked', async t => {
  const chat = { model: 'm', messages: HELLO }
  t.match(await question({ ...chat, documents: [{ text: 'x' }] }), { why: /does not know documents/ })
  t.match(await question({ ...chat, reasoning_effort: 'low' }), { why: /does not know reasoning_effort/ })
  t.match(await question({ ...chat, documents: null, reasoning_effort: null }), { body: /"messages"/ })
  t.match(await question({ model: 'm', prompt: ['a', 'b'] }), { why: /takes one text, not texts/ })
  t.match(await question({ model: 'm', prompt: [[1], [2]] }), { why: /takes one text, not token-lists/ })
})

t.test('where nobody can be asked the prompt is known as text', async t => {
  const table = tableOf([], { canTokenize: true, state: 'down' }, { canTokenize: false })
  t.match(await question({ model: 'm', messages: HELLO }, { table }), {
    kind: 'read',
    why: /no tokenizer directory for m; no worker can be asked/,
  })
})

t.test('a text is hashed in pieces that go on where the conversation goes on', async t => {
  const table = tableOf([], { blockSizeTokens: BLOCK })
  const textOf = async (body: object) => {
    const request = await read({ model: 'm', ...body }, { table })
    t.match(request, { unknownPromptReason: undefined, tokenizedBy: 'nobody', tokenIds: undefined })
    t.match(request.textBlocksReason, /no worker can be asked/)
    return request
  }
  const first = await textOf({ messages: HELLO })
  const bytes = JSON.stringify(HELLO).length - 1
  t.equal(first.promptTokens, Math.ceil(bytes / 4))
  t.equal(first.localHashes.length, 2 * Math.floor(bytes / (4 * BLOCK)))
  t.strictSame(first.sequenceHashes, chainSequence(first.localHashes, first.localHashes.length / 2))
  const more = [...HELLO, { role: 'assistant', content: TEXT }, { role: 'user', content: 'And then?' }]
  const second = await textOf({ messages: more })
  t.strictSame(second.localHashes.slice(0, first.localHashes.length), first.localHashes)
  t.not((await textOf({ messages: HELLO, tools: [] })).localHashes[0], first.localHashes[0])
  t.not((await textOf({ messages: HELLO, cache_salt: 's' })).localHashes[0], first.localHashes[0])
  t.strictSame((await textOf({ prompt: TEXT })).localHashes, hashText(utf8(TEXT), BLOCK, {}).local)
})

t.test('where no engine answers, the rendered text counts', async t => {
  // Half a character renders, and does not tokenize.
  const table = tableOf([TINY], { blockSizeTokens: BLOCK, canTokenize: true })
  const lone = { model: 'm', messages: [{ role: 'user', content: `${TEXT}\ud800` }] }
  const outcome = await run(lone, { table })
  t.equal(outcome.kind, 'ask-engine')
  const request = await read(lone, { table, unaskable: 'it does not answer' })
  t.match(request, { textBlocksReason: 'it does not answer', unknownPromptReason: undefined })
  const rendered = tiny.renderChat(JSON.stringify(lone))
  if (rendered.kind !== 'text') return t.fail(rendered.reason)
  t.strictSame(request.localHashes, hashText(Buffer.from(rendered.text), BLOCK, {}).local)
})

t.test('a tokenizer that might be wrong leaves it to the engine', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-hazard-'))
  t.teardown(() => rm(directory, { recursive: true }))
  await cp(TINY, directory, { recursive: true })
  await writeFile(join(directory, 'chat_template.jinja'), '{{ messages | nosuchfilter }}')
  const table = tableOf([directory], { blockSizeTokens: BLOCK, canTokenize: true })
  const asked = await question({ model: 'm', messages: HELLO }, { table })
  t.equal(asked.body, JSON.stringify({ model: 'm', messages: HELLO }))
  t.not(asked.why, undefined)
  t.match(await read({ model: 'm', prompt: TEXT }, { table }), { tokenizedBy: 'router' })
})

t.test('prompts that engines make other tokens of are asked for, on that route alone', async t => {
  const fleet = fleetOf(
    { blockSizeTokens: BLOCK, canTokenize: true, models: [model('m'), adapter('poet', 'm')] },
    { blockSizeTokens: BLOCK, canTokenize: true },
  )
  const tableWith = (workerIds: readonly string[]) =>
    modelTable(
      { ...fleet, engineTokenized: [{ model: 'm', route: 'chat', reason: '4 answers', workerIds }] },
      readGivenTokenizers([TINY]),
    )
  const table = tableWith(['worker-1', 'gone'])
  for (const name of ['m', 'poet']) {
    const outcome = await run({ model: name, messages: HELLO }, { table })
    t.match(outcome, { kind: 'ask-engine', why: /other tokens.*4 answers/, origins: ['http://worker-1'] })
    t.match(await read({ model: name, prompt: TEXT }, { table }), { tokenizedBy: 'router', isCounted: true })
  }
  const asText = await read({ model: 'm', messages: HELLO }, { table: tableWith([]) })
  t.match(asText.textBlocksReason, /no worker can be asked/)
  t.not(asText.isCounted, true)
})

t.test('a count is comparable where it is of the whole prompt, and not of the client', async t => {
  const isCounted = async (body: object) => (await read({ model: 'm', ...body })).isCounted === true
  for (const body of [{ messages: HELLO }, { prompt: TEXT }, { prompt: [TEXT] }])
    t.equal(await isCounted(body), true)
  for (const body of [
    { prompt: [TEXT, TEXT] },
    { prompt: [1, 2] },
    { prompt: TEXT, truncate_prompt_tokens: 2 },
  ])
    t.equal(await isCounted(body), false)
})

t.test(
  'template, content format and variables are those given for a model, its base, or for all',
  async t => {
    const parts = [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ]
    const chat = { messages: [{ role: 'user', content: parts }] }
    const template = '{{ mood }}: {{ messages[0].content is string }}'
    const models = [model('m'), adapter('poet', 'm'), model('other')]
    const fleet = fleetOf({ blockSizeTokens: BLOCK, models })
    const options = {
      chatTemplateContentFormats: ['openai', 'm=auto'],
      defaultChatTemplateKwargs: ['{"mood":"calm, and = quiet"}', 'poet={"mood":"sad"}'],
    }
    const given = givenChatOptions(options, new Map([['', template]]))
    const table = modelTable(fleet, readGivenTokenizers([TINY]), given)
    const textWith = (text: string): number[] => [...tiny.encodeText(text, { addSpecialTokens: false })]
    for (const [name, text] of [
      ['m', 'calm, and = quiet: True'],
      ['poet', 'sad: True'],
      ['other', 'calm, and = quiet: False'],
    ] as const)
      t.strictSame(
        [...((await read({ model: name, ...chat }, { table })).tokenIds ?? [])],
        textWith(text),
        name,
      )
    const sent = { model: 'm', ...chat, chat_template_kwargs: { mood: 'gay' } }
    t.strictSame(
      [...((await read(sent, { table })).tokenIds ?? [])],
      textWith('gay: True'),
      'a request decides',
    )
  },
)

t.test('a directory that cannot be loaded leaves it to the engine, with the reason', async t => {
  const table = tableOf(['/no/such/directory'], { canTokenize: true })
  t.match(await question({ model: 'm', prompt: TEXT }, { table }), {
    body: JSON.stringify({ model: 'm', prompt: TEXT }),
    why: /\/no\/such\/directory: there is no tokenizer\.json/,
  })
})

t.test('templates that print the date are told the time of the actor', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-date-'))
  t.teardown(() => rm(directory, { recursive: true }))
  await cp(TINY, directory, { recursive: true })
  await writeFile(
    join(directory, 'chat_template.jinja'),
    '{{ strftime_now("%d %b %Y") }}{% for m in messages %}{{ m.content }}{% endfor %}',
  )
  const table = tableOf([directory], { blockSizeTokens: BLOCK })
  const textAt = async (wallMs: number) =>
    tiny.decode((await read({ model: 'm', messages: HELLO }, { table, wallMs })).tokenIds ?? [])
  t.equal(await textAt(Date.UTC(2026, 0, 15, 12)), `15 Jan 2026${TEXT}`)
  t.equal(await textAt(Date.UTC(2031, 5, 2, 12)), `02 Jun 2031${TEXT}`)
})

t.test('what is no request is refused with its place', async t => {
  t.strictSame((await refusal('{"model":')).slice(0, 1), ['HOMING_OPENAI_MALFORMED_JSON'])
  t.strictSame((await refusal({ model: 'm' }, { route: 'chat' })).slice(0, 2), [
    'HOMING_OPENAI_INVALID_REQUEST',
    'messages',
  ])
  t.strictSame((await refusal({ model: 'm', messages: [] })).slice(0, 2), [
    'HOMING_OPENAI_EMPTY_PROMPT',
    'messages',
  ])
  t.strictSame((await refusal({ model: 7, prompt: 'x' })).slice(0, 2), [
    'HOMING_OPENAI_INVALID_REQUEST',
    'model',
  ])
})

t.test('the reply of /tokenize becomes hashes in the namespace of the request', async t => {
  const outcome = await run({ model: 'm', messages: HELLO, cache_salt: 's' }, { table: REMOTE })
  if (outcome.kind !== 'ask-engine') return t.fail(outcome.kind)
  const hash = (reply: string) =>
    reader.run({
      type: 'hash',
      reply: utf8(reply),
      request: outcome.request,
      namespace: outcome.namespace,
      wantTokenIds: true,
    })
  const hashed = await hash('{"count":9,"max_model_len":100,"tokens":[1,2,3,4,5,6,7,8,9]}')
  const expected = hashBlocks(
    Int32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9),
    BLOCK,
    namespaceSeed({ cacheSalt: 's' }),
  )
  t.match(hashed, {
    kind: 'read',
    request: { promptTokens: 9, tokenizedBy: 'engine', unknownPromptReason: undefined },
  })
  if (hashed.kind === 'read') t.strictSame(hashed.request.localHashes, expected.local)
  for (const reply of ['', '[]', '{"count":9}', '{"tokens":"x"}', '{"tokens":[1,-2]}', '<html>']) {
    t.equal((await hash(reply)).kind, 'refused', reply)
  }
})

t.test('the reply of /tokenize is cut into blocks of an assumed size while none is known', async t => {
  const table = tableOf([], { blockSizeTokens: undefined, canTokenize: true })
  const outcome = await run({ model: 'm', messages: HELLO }, { table })
  if (outcome.kind !== 'ask-engine') return t.fail(outcome.kind)
  const { request, namespace } = outcome
  const reply = utf8(`{"tokens":[${Array.from({ length: 40 }, (_, id) => id)}]}`)
  const hashed = await reader.run({
    type: 'hash',
    reply,
    request,
    namespace,
    wantTokenIds: false,
  })
  t.match(hashed, { request: { promptTokens: 40, blockSizeTokens: 16, unknownPromptReason: undefined } })
  if (hashed.kind === 'read') t.equal(hashed.request.localHashes.length, 4)
})
