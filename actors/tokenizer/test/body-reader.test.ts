/** A pool thread reads a request's bytes: prompts that are known, and their hashes. */

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chainSequence, hashBlocks, namespaceSeed } from '@homing/blocks'
import { ADAPTER, EXTRA_KEY, SALT } from '@homing/protocol'
import t from 'tap'
import { givenChatOptions } from '../src/chat-options.ts'
import type { CompletionRoute } from '../src/index.ts'
import { modelTable, readGivenTokenizers } from '../src/model-table.ts'
import {
  BLOCK,
  chatIds,
  HELLO,
  question,
  read,
  refusal,
  TEXT,
  TINY,
  tableOf,
  textOf,
  tiny,
} from './body-reader-world.ts'
import { adapter, fleetOf, model } from './fleet.ts'

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

t.test('the model may be left out where there is but one', async t => {
  t.match(await read({ prompt: TEXT }), { model: 'm', tokenizedBy: 'router' })
  const two = tableOf([TINY], { models: [model('m'), model('n')] })
  const [code, param, message] = await refusal({ prompt: TEXT }, { table: two })
  t.strictSame([code, param], ['HOMING_OPENAI_INVALID_REQUEST', 'model'])
  t.match(message, /one of m, n/)
  t.match((await refusal({ prompt: TEXT }, { table: tableOf([]) }))[2], /one of the models served/)
})

t.test('text parts alone are no picture', async t => {
  const parts = [{ type: 'text', text: TEXT }]
  t.match(await question({ model: 'm', messages: [{ role: 'user', content: parts }] }), {
    why: /no tokenizer directory/,
  })
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
