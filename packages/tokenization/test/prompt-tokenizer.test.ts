/** PromptTokenizer: the dialects, completions, media, refusals and round trips. */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import {
  encoderPath,
  loadTokenizer,
  PromptTokenizer,
  type PromptTokenizerOptions,
  TokenizerLoadError,
} from '../src/index.ts'

const TINY = new URL('../fixtures/tiny', import.meta.url).pathname
const SHOW =
  '{% for m in messages %}{{ m }};{% endfor %}{{ tools }}|{{ reasoning_effort }}|{{ add_generation_prompt }}'
const HELLO = { role: 'user', content: 'hello' }

async function shown(body: object, options: PromptTokenizerOptions = {}): Promise<string> {
  const tokenizer = await PromptTokenizer.load(TINY, { chatTemplate: SHOW, ...options })
  const answer = tokenizer.renderChat(JSON.stringify(body))
  return answer.kind === 'text' ? answer.text + answer.textAfter : `${answer.kind}: ${answer.reason}`
}

/** The directory with some of its files changed. */
async function changedDirectory(changes: Readonly<Record<string, string | undefined>>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'homing-tokenizer-'))
  await cp(TINY, directory, { recursive: true })
  for (const [name, text] of Object.entries(changes)) {
    if (text === undefined) await rm(join(directory, name))
    else await writeFile(join(directory, name), text)
  }
  return directory
}

t.test('any text decodes to what was encoded', async t => {
  const tokenizer = await PromptTokenizer.load(TINY)
  const text = fc.string({ unit: 'binary', maxLength: 200, size: 'max' })
  const same = fc.property(text, value => {
    const decoded = tokenizer.decode(tokenizer.encodeText(value))
    // The tokenizer orders the marks that Unicode 10 knows, Node newer ones too.
    assert.equal(decoded.normalize('NFC'), value.normalize('NFC'))
  })
  t.doesNotThrow(() =>
    fc.assert(same, { numRuns: 300, examples: [['\u{16ff0}\u{1e000}'], ['\u{1e000}\u{16ff0}']] }),
  )
  t.equal(tokenizer.decode([]), '')
})

t.test('a chat can be given as text, as bytes or parsed', async t => {
  const tokenizer = await PromptTokenizer.load(TINY)
  const text = JSON.stringify({ messages: [HELLO] })
  const expected = tokenizer.encodeChat(text)
  t.equal(expected.kind, 'tokens')
  t.strictSame(tokenizer.encodeChat(Buffer.from(text)), expected)
  t.strictSame(tokenizer.encodeChat(JSON.parse(text)), expected)
  t.equal(tokenizer.encodeChat('{"messages": [').kind, 'delegate')
})

t.test('completions take a text, texts, ids or lists of ids', async t => {
  const tokenizer = await PromptTokenizer.load(TINY)
  const hello = [...tokenizer.encodeText('hello')]
  const prompts = (prompt: unknown) => {
    const answer = tokenizer.encodeCompletion(JSON.stringify({ prompt }))
    return answer.kind === 'tokens' ? answer.prompts.map(ids => [...ids]) : answer.kind
  }
  t.strictSame(prompts('hello'), [hello])
  t.strictSame(prompts(['hello', 'hello']), [hello, hello])
  t.strictSame(prompts([1, 2, 4294967295]), [[1, 2, -1]])
  t.strictSame(prompts([[1], [2, 3]]), [[1], [2, 3]])
  for (const prompt of [undefined, null, [], [[-1]], [1.5], [['x']], {}]) t.equal(prompts(prompt), 'delegate')
  t.equal(tokenizer.encodeCompletion('{"prompt":"a","truncate_prompt_tokens":5}').kind, 'delegate')
})

t.test('media are unsupported, in both dialects', async t => {
  const image = { role: 'user', content: [{ type: 'image_url', image_url: { url: 'http://x' } }] }
  t.match(await shown({ messages: [image] }), /^unsupported: .*image_url/)
  t.match(await shown({ messages: [image] }, { dialect: 'sglang' }), /^unsupported: .*image_url/)
})

t.test('SGLang joins parts by a space, drops nulls and shows functions in its own order', async t => {
  const parts = {
    role: 'user',
    name: null,
    content: [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ],
  }
  const tool = { type: 'function', function: { name: 'f', description: 'd', parameters: { type: 'object' } } }
  const body = {
    messages: [parts],
    tools: [tool, { ...tool, function: { ...tool.function, name: 'g' } }],
    reasoning_effort: 'low',
  }
  const shape = (name: string) =>
    `{'description': 'd', 'name': '${name}', 'parameters': {'type': 'object'}, 'strict': False}`
  const dialect = 'sglang'
  t.equal(
    await shown(body, { dialect }),
    `{'role': 'user', 'content': 'a b'};[${shape('f')}, ${shape('g')}]|low|True`,
  )
  t.equal(
    await shown({ ...body, tool_choice: { type: 'function', function: { name: 'g' } } }, { dialect }),
    `{'role': 'user', 'content': 'a b'};[${shape('g')}]|low|True`,
  )
  t.match(await shown({ ...body, tool_choice: 'none' }, { dialect }), /;None\|low\|True$/)
})

t.test('SGLang keeps parts for templates that know media or loop over them', async t => {
  const body = { messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }] }] }
  const kept = "{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]};"
  t.match(await shown(body, { dialect: 'sglang', chatTemplate: `{# vision #}${SHOW}` }), kept)
  const looped = `${SHOW}{% for message in messages %}{% for p in message.content %}{% endfor %}{% endfor %}`
  t.match(await shown(body, { dialect: 'sglang', chatTemplate: looped }), kept)
  t.match(await shown(body, { dialect: 'sglang' }), "{'role': 'user', 'content': 'a'};")
})

t.test('SGLang continues a message after the generation prompt, and takes token ids as they are', async t => {
  const body = { messages: [HELLO, { role: 'assistant', content: 'I think' }], continue_final_message: true }
  const tokenizer = await PromptTokenizer.load(TINY, { dialect: 'sglang' })
  const answer = tokenizer.encodeChat(JSON.stringify(body))
  t.equal(
    answer.kind === 'tokens' && tokenizer.decode(answer.tokens),
    '<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nI think',
  )
  t.strictSame(tokenizer.encodeChat('{"input_ids":[1,2]}'), { kind: 'tokens', tokens: Int32Array.of(1, 2) })
})

t.test('settings of the server change what the template sees', async t => {
  const tool = { type: 'function', function: { name: 'f' } }
  const body = { messages: [HELLO], tools: [tool], tool_choice: 'none' }
  t.match(await shown(body), /'name': 'f'/)
  t.match(await shown(body, { excludeToolsWhenToolChoiceNone: true }), /;None\|/)
  const style = { chatTemplate: '{{ style }}', defaultTemplateKwargs: { style: 'plain' } }
  t.equal(await shown({ messages: [HELLO] }, style), 'plain')
  t.equal(await shown({ messages: [HELLO], chat_template_kwargs: { style: 'own' } }, style), 'own')
  t.equal(await shown({ messages: [HELLO], chat_template_kwargs: { style: null } }, style), 'plain')
  t.match(
    await shown({ messages: [HELLO] }, { contentFormat: 'parts' }),
    "[{'type': 'text', 'text': 'hello'}]",
  )
})

t.test('what only the engine can know is delegated', async t => {
  const messages = [HELLO]
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: '{"a": 1' } }
  const cases: [RegExp, object][] = [
    [/chat_template/, { messages, chat_template: 'x' }],
    [/truncate_prompt_tokens/, { messages, truncate_prompt_tokens: 10 }],
    [/token ids/, { messages, kv_transfer_params: { prompt_token_ids: [1] } }],
    [/tools/, { messages, chat_template_kwargs: { tools: [] } }],
    [/no messages/, { messages: [] }],
    [/no list/, {}],
    [/arguments/, { messages: [HELLO, { role: 'assistant', tool_calls: [call] }] }],
    [/billing/, { messages: [{ role: 'system', content: 'x-anthropic-billing-header: 1\nx' }, HELLO] }],
    [/add_generation_prompt/, { messages, continue_final_message: true }],
    [/half a character/, { messages: [{ role: 'user', content: '\ud800' }] }],
  ]
  const tokenizer = await PromptTokenizer.load(TINY)
  for (const [reason, body] of cases) {
    const answer = tokenizer.encodeChat(JSON.stringify(body))
    t.match(answer, { kind: 'delegate', reason })
  }
})

t.test('a date is printed only with a clock', async t => {
  const chatTemplate = "{{ strftime_now('%d %B %Y %H:%M') }}"
  t.match(await shown({ messages: [HELLO] }, { chatTemplate }), /^delegate: .*date/)
  const now = () => new Date(2026, 1, 3, 4, 5)
  t.equal(await shown({ messages: [HELLO] }, { chatTemplate, now }), '03 February 2026 04:05')
})

t.test('endless work is refused', async t => {
  const loops = '{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}'
  t.match(await shown({ messages: [HELLO] }, { chatTemplate: loops }), /takes too long/)
  const recursion = '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}'
  t.match(await shown({ messages: [HELLO] }, { chatTemplate: recursion }), /nested too deeply/)
  const tokenizer = await PromptTokenizer.load(TINY, { textLengthMax: 10 })
  t.throws(() => tokenizer.encodeText('x'.repeat(11)), { code: 'HOMING_TOKENIZATION_ENCODE' })
})

t.test('a template that cannot be read delegates every chat and says so', async t => {
  const tokenizer = await PromptTokenizer.load(TINY, { chatTemplate: '{% include "x" %}' })
  t.match(tokenizer.chatHazard, /uses \{% include %\}/)
  t.equal(tokenizer.encodeChat({ messages: [HELLO] }).kind, 'delegate')
  t.equal(tokenizer.encodeCompletion({ prompt: 'x' }).kind, 'tokens')
  const bare = await PromptTokenizer.load(await changedDirectory({ 'chat_template.jinja': undefined }))
  t.match(bare.chatHazard, /no chat template/)
})

t.test('the template for tools is used when the request has tools', async t => {
  const templates = [
    { name: 'default', template: 'plain' },
    { name: 'tool_use', template: 'with tools' },
  ]
  const config = JSON.parse(await readFile(join(TINY, 'tokenizer_config.json'), 'utf8'))
  const directory = await changedDirectory({
    'chat_template.jinja': undefined,
    'tokenizer_config.json': JSON.stringify({ ...config, chat_template: templates }),
  })
  const tokenizer = await PromptTokenizer.load(directory)
  const tools = [{ type: 'function', function: { name: 'f' } }]
  t.match(tokenizer.renderChat({ messages: [HELLO] }), { text: 'plain' })
  t.match(tokenizer.renderChat({ messages: [HELLO], tools }), { text: 'with tools' })
})

t.test('a tokenizer that the library would misread delegates everything', async t => {
  const tokenizer = JSON.parse(await readFile(join(TINY, 'tokenizer.json'), 'utf8'))
  tokenizer.pre_tokenizer.pretokenizers[0].behavior = 'MergedWithNext'
  const misread = await PromptTokenizer.load(
    await changedDirectory({ 'tokenizer.json': JSON.stringify(tokenizer) }),
  )
  t.match(misread.encodeCompletion({ prompt: 'x' }), { kind: 'delegate', reason: /MergedWithNext/ })
  const config = { bos_token: '<|endoftext|>', add_bos_token: true }
  const bos = await PromptTokenizer.load(
    await changedDirectory({ 'tokenizer_config.json': JSON.stringify(config) }),
  )
  t.match(bos.encodeCompletion({ prompt: 'x' }), { kind: 'delegate', reason: /BOS/ })
  t.match(bos.encodeCompletion({ prompt: 'x', add_special_tokens: false }), { kind: 'tokens' })
})

t.test('a directory that is no tokenizer is a typed error', async t => {
  await t.rejects(PromptTokenizer.load('/nowhere'), TokenizerLoadError)
  await t.rejects(PromptTokenizer.load(await changedDirectory({ 'tokenizer.json': '{' })), TokenizerLoadError)
  await t.rejects(
    PromptTokenizer.load(await changedDirectory({ 'tokenizer.json': '{}' })),
    TokenizerLoadError,
  )
})

t.test(
  'where the library encodes, every thread uses the tokenizer.json that was loaded, not what is there now',
  async t => {
    const tokenizer = JSON.parse(readFileSync(join(TINY, 'tokenizer.json'), 'utf8'))
    const file = JSON.stringify({ ...tokenizer, normalizer: { type: 'Lowercase' } })
    const directory = t.testdir({ 'tokenizer.json': file })
    const loaded = await loadTokenizer(directory)
    t.match(encoderPath(loaded), { path: 'library', reason: /Lowercase/ })
    const expected = PromptTokenizer.of(loaded).encodeText('HELLO you')
    writeFileSync(join(directory, 'tokenizer.json'), 'replaced')
    const other = structuredClone(loaded)
    t.ok(other.source!.buffer instanceof SharedArrayBuffer, 'in memory that threads share')
    t.strictSame(PromptTokenizer.of(other).encodeText('HELLO you'), expected)
    t.equal((await loadTokenizer(TINY)).source, undefined, 'the own encoder needs no copy')
  },
)
