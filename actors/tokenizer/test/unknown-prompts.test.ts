/** Prompts that no local tokenizer knows: engines are asked, texts stand in, or nothing is known. */

import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chainSequence, hashBlocks, hashText, namespaceSeed, textTokens } from '@homing/blocks'
import t from 'tap'
import { modelTable, readGivenTokenizers } from '../src/model-table.ts'
import {
  BLOCK,
  HELLO,
  LOCAL,
  question,
  REMOTE,
  read,
  reader,
  run,
  TEXT,
  TINY,
  tableOf,
  tiny,
  utf8,
} from './body-reader-world.ts'
import { adapter, fleetOf, model } from './fleet.ts'

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

t.test('a directory that cannot be loaded leaves it to the engine, with the reason', async t => {
  const table = tableOf(['/no/such/directory'], { canTokenize: true })
  t.match(await question({ model: 'm', prompt: TEXT }, { table }), {
    body: JSON.stringify({ model: 'm', prompt: TEXT }),
    why: /\/no\/such\/directory: there is no tokenizer\.json/,
  })
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
