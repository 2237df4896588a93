/** Answers of token ids have the form of any engine's; the client's wishes are read as engines read them. */

import t from 'tap'
import { readTokenWishes, TokenAnswer, type TokenWishes } from '../../src/index.ts'

const bytes = (body: object) => Buffer.from(JSON.stringify(body))

function answered(wishes: Partial<TokenWishes>): string {
  const answer = new TokenAnswer({
    wishes: { form: 'chat', isStream: false, wantsUsage: false, wantsIds: false, ...wishes },
    model: 'm',
    id: 'x-1',
    createdSeconds: 7,
    promptTokens: 3,
  })
  const end = { finishReason: 'stop', stopReason: undefined, completionTokens: 2, cachedTokens: 9 }
  return Buffer.concat([
    answer.begin(),
    answer.piece({ text: 'a "quote"\n', tokenIds: [5] }, true),
    answer.piece({ text: '', tokenIds: [6] }),
    answer.end(end),
  ]).toString()
}

t.test('a whole answer is one JSON object, written as it comes', async t => {
  t.strictSame(JSON.parse(answered({ wantsIds: true })), {
    ...{ id: 'x-1', object: 'chat.completion', created: 7, model: 'm' },
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'a "quote"\n' },
        ...{ logprobs: null, finish_reason: 'stop', stop_reason: null, token_ids: [5, 6] },
      },
    ],
    usage: {
      ...{ prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
      prompt_tokens_details: { cached_tokens: 3 },
    },
  })
  t.match(JSON.parse(answered({ form: 'completions' })), {
    object: 'text_completion',
    choices: [{ text: 'a "quote"\n' }],
  })
})

t.test('a stream has a chunk for each text, and its end', async t => {
  const events = answered({ isStream: true, wantsUsage: true }).split('\n\n')
  t.equal(events.at(-2), 'data: [DONE]')
  const chunks = events.slice(0, -2).map(event => JSON.parse(event.slice('data: '.length)))
  t.strictSame(
    chunks.map(({ choices: [choice] }) => choice?.delta),
    [{ role: 'assistant', content: '' }, { content: 'a "quote"\n' }, {}, undefined],
  )
  t.equal(chunks.at(-1).usage.completion_tokens, 2)
})

t.test('what engines know as a limit or a stop is read, all else goes to the worker', async t => {
  const body = {
    ...{ model: 'm', messages: [], max_completion_tokens: 5, max_tokens: 9, stop: 'x', temperature: 0.5 },
    ...{ stream: true, stream_options: { include_usage: true }, stop_token_ids: [4], min_tokens: 2 },
    ...{ response_format: { type: 'json_object' }, seed: null, user: 'u', tool_choice: 'none', tools: [{}] },
  }
  t.strictSame(readTokenWishes(bytes(body), 'chat'), {
    ...{ form: 'chat', model: 'm', isStream: true, wantsUsage: true, wantsIds: false, maxTokens: 5 },
    ...{ minTokens: 2, stop: ['x'], stopTokenIds: [4], ignoresEos: false, includesStop: false },
    ...{ skipsSpecial: true, cacheSalt: undefined },
    sampling: { temperature: 0.5, response_format: { type: 'json_object' } },
  })
  t.equal(readTokenWishes(bytes({ prompt: 'x' }), 'completions').maxTokens, 16)
  t.equal(readTokenWishes(bytes({ messages: [] }), 'chat').maxTokens, undefined)
})

t.test('what ids alone cannot give is refused by name', async t => {
  for (const [member, message] of [
    [
      { n: 3 },
      'cannot use n 3: use 1: workers of this model answer with token ids, one answer to each request',
    ],
    [{ echo: true }, /^cannot use echo true: use no such member/],
    [{ tools: [{}] }, /^cannot use tools .*: use tool_choice "none"/],
    [{ stop: Array.from({ length: 65 }, () => 'x') }, /up to 64 in a list/],
    [{ ignore_eos: 1 }, 'cannot use ignore_eos 1: use true or false'],
    [{ stop_token_ids: [-1] }, /whole numbers from 0 to 4294967295/],
  ] as const)
    t.throws(() => readTokenWishes(bytes({ messages: [], ...member }), 'chat'), { message })
})
