/**
 * Messages and Responses as chats. The cases of vLLM were made by vLLM 0.32.0 itself, with the functions that its servers convert
 * requests with; those of SGLang are written from its source.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import { chatOfMessages, chatOfResponses, dumpJson, type PythonDict, tryParseJson } from '../src/index.ts'

interface Case {
  readonly name: string
  /** As JSON, so that 1.0 stays 1.0. */
  readonly body: string
  readonly messages: readonly Readonly<Record<string, unknown>>[]
  readonly tools: readonly unknown[] | null
  readonly merges?: boolean
  readonly reasoning_effort?: string | null
  readonly chat_template_kwargs?: unknown
  readonly continues?: boolean
}

const CASES = JSON.parse(
  readFileSync(new URL('fixtures/vllm-0.32.0-chat-forms.json', import.meta.url), 'utf8'),
) as { readonly messages: readonly Case[]; readonly responses: readonly Case[] }

const parsed = (text: string): PythonDict => tryParseJson(text) as PythonDict
const plain = (chat: PythonDict): Record<string, unknown> =>
  JSON.parse(dumpJson(chat)) as Record<string, unknown>

/** An item's `type` is not looked at by templates' preparation. */
function withoutType(messages: Case['messages']): unknown[] {
  return messages.map(({ type: _, ...message }) => message)
}

t.test('messages become the chat that vLLM makes of them', async t => {
  t.ok(CASES.messages.length >= 40)
  for (const {
    name,
    body,
    messages,
    tools,
    merges,
    reasoning_effort,
    chat_template_kwargs,
  } of CASES.messages) {
    const chat = plain(chatOfMessages(parsed(body), 'vllm', merges!))
    const label = `${name}${merges ? ', system merged' : ''}`
    t.strictSame(chat['messages'], withoutType(messages), label)
    t.strictSame(chat['tools'] ?? null, tools, label)
    t.equal(chat['reasoning_effort'] ?? null, reasoning_effort ?? null, label)
    t.strictSame(chat['chat_template_kwargs'] ?? null, chat_template_kwargs ?? null, label)
  }
})

t.test('responses become the chat that vLLM makes of them', async t => {
  t.ok(CASES.responses.length >= 13)
  for (const { name, body, messages, tools, continues } of CASES.responses) {
    const chat = plain(chatOfResponses(parsed(body), 'vllm'))
    t.strictSame(chat['messages'], withoutType(messages), name)
    t.strictSame(chat['tools'] ?? null, tools, name)
    t.equal(chat['continue_final_message'] ?? false, continues, name)
    t.equal(chat['add_generation_prompt'], !continues, name)
  }
})

t.test(
  'special tokens are added to the prompt of a response, and to that of a message they are not',
  async t => {
    // vLLM 0.32: ResponsesRequest.build_tok_params leaves TokenizeParams.add_special_tokens at true.
    t.equal(plain(chatOfResponses(parsed('{"input":"a"}'), 'vllm'))['add_special_tokens'], true)
    const message = parsed('{"messages":[{"role":"user","content":"a"}],"max_tokens":1}')
    t.equal(plain(chatOfMessages(message, 'vllm', false))['add_special_tokens'], undefined)
  },
)

t.test('what versions or only the engine decide is refused by name', async t => {
  const user = '"messages":[{"role":"user","content":"a"}]'
  for (const [body, words] of [
    [`{${user},"thinking":{"type":"disabled"}}`, /disabled/],
    [`{${user},"tools":[{"type":"web_search_20250305","name":"s"}]}`, /web_search_20250305/],
    [`{${user},"tools":[{"name":"s","input_schema":{},"defer_loading":true}]}`, /defer_loading/],
    ['{"messages":[{"role":"user","content":[{"type":"document"}]}]}', /type document/],
    ['{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"x"}]}]}', /without an id/],
    [
      '{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}',
      /type image/,
    ],
    ['{"messages":7}', /messages is no list/],
    ['{"messages":[7]}', /a message is no object/],
  ] as const) {
    t.throws(() => chatOfMessages(parsed(body), 'vllm', true), { message: words }, body)
  }
  for (const [body, words] of [
    ['{"input":"a","previous_response_id":"resp_1"}', /previous_response_id/],
    ['{"input":"a","truncation":"auto"}', /truncation/],
    ['{"input":"a","tools":[{"type":"web_search"}]}', /web_search/],
    ['{"input":[{"type":"item_reference","id":"x"}]}', /item_reference/],
    ['{"input":[{"type":"reasoning","summary":[],"encrypted_content":"x"}]}', /encrypted/],
    ['{"input":7}', /input is no list/],
  ] as const) {
    t.throws(() => chatOfResponses(parsed(body), 'vllm'), { message: words }, body)
  }
  t.throws(() => chatOfResponses(parsed('{"input":"a"}'), 'sglang'), { message: /is not known/ })
})

t.test('SGLang makes another chat of the same messages', async t => {
  const body = `{"model":"m","system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tools":[{"name":"f","input_schema":{}}],
    "messages":[{"role":"user","content":[{"type":"text","text":""}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"1","name":"f","input":{"x":1.0}}]},
      {"role":"user","content":[{"type":"tool_result","id":"1","content":"r"},{"type":"text","text":"q"}]}]}`
  const chat = chatOfMessages(parsed(body), 'sglang', false)
  t.strictSame(plain(chat)['messages'], [
    { role: 'system', content: 'a\nb' },
    {
      role: 'assistant',
      tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{"x": 1.0}' } }],
    },
    { role: 'tool', content: 'r', tool_call_id: '1' },
    { role: 'user', content: 'q' },
  ])
  t.strictSame(plain(chat)['tools'], [
    { type: 'function', function: { name: 'f', description: '', parameters: {} } },
  ])
})
