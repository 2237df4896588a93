/**
 * Messages and Responses as chats. The cases were made by vLLM 0.32.0 and SGLang 0.5.23 themselves, with the
 * functions that their servers convert requests with.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import {
  chatOfMessages,
  chatOfResponses,
  disabledThinkingEffort,
  dumpJson,
  type PythonDict,
  tryParseJson,
} from '../src/index.ts'

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

interface SglangCase extends Case {
  readonly route: 'messages' | 'responses'
}

const SGLANG_CASES = JSON.parse(
  readFileSync(new URL('fixtures/sglang-0.5.23-chat-forms.json', import.meta.url), 'utf8'),
) as readonly SglangCase[]

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

t.test('thinking that is disabled asks for the effort that the template knows as none', async t => {
  const given =
    '{"messages":[{"role":"user","content":"a"}],"thinking":{"type":"disabled"},"output_config":{"effort":"max"}}'
  const effort = (rendered: (effort: unknown) => string | undefined): unknown => {
    const found = disabledThinkingEffort(({ reasoning_effort }) => rendered(reasoning_effort))
    return plain(chatOfMessages(parsed(given), 'vllm', false, found))['reasoning_effort']
  }
  t.equal(
    effort(asked => (asked === 'none' ? 'quiet' : 'thinking')),
    'none',
  )
  t.equal(
    effort(asked => String(asked)),
    'none',
    'each effort is something else',
  )
  t.equal(
    effort(() => 'the same'),
    'low',
    'the template does not look at it',
  )
  t.equal(
    effort(asked => (asked === 'none' || asked === 'max' ? 'max' : 'less')),
    'low',
    'it takes it for the most',
  )
  t.equal(
    effort(asked => (asked === 'none' ? undefined : 'less')),
    'low',
    'it refuses it',
  )
  t.throws(() => chatOfMessages(parsed(given), 'vllm', false), { message: /disabled/ })
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
})

t.test("messages and responses become the chats that SGLang's own functions make of them", async t => {
  t.ok(SGLANG_CASES.length >= 35)
  for (const { route, name, body, messages, tools, reasoning_effort } of SGLANG_CASES) {
    const made =
      route === 'messages'
        ? chatOfMessages(parsed(body), 'sglang', false)
        : chatOfResponses(parsed(body), 'sglang')
    const chat = plain(made)
    t.strictSame(chat['messages'], messages, name)
    if (route === 'messages') {
      t.strictSame(chat['tools'] ?? null, tools, name)
      t.equal(chat['reasoning_effort'] ?? null, reasoning_effort, name)
    }
  }
})

t.test('what flags of SGLang decide is refused by name', async t => {
  const user = '"messages":[{"role":"user","content":"a"}]'
  for (const [body, words] of [
    [`{${user},"thinking":{"type":"adaptive"}}`, /reasoning parser/],
    [
      '{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t"}]}]}',
      /block of type thinking/,
    ],
    ['{"messages":[{"role":"system","content":"a"}]}', /system message between/],
    [`{${user},"tools":[{"type":"bash_20250124","name":"bash"}]}`, /bash_20250124/],
  ] as const) {
    t.throws(() => chatOfMessages(parsed(body), 'sglang', false), { message: words }, body)
  }
  for (const [body, words] of [
    ['{"input":[{"role":"developer","content":"a"}]}', /role developer/],
    ['{"instructions":"a","input":[{"role":"system","content":"b"}]}', /system message between/],
    ['{"input":[{"role":"assistant","content":"a","phase":"commentary"}]}', /a phase/],
    ['{"input":"a","previous_response_id":"resp_1"}', /previous_response_id/],
    ['{"input":"a","tools":[{"type":"custom","name":"x"}]}', /tool of type custom/],
  ] as const) {
    t.throws(() => chatOfResponses(parsed(body), 'sglang'), { message: words }, body)
  }
})
