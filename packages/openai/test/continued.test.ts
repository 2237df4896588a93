/** The request for the rest of a stream, and the rest in the form of the stream. */

import t from 'tap'
import {
  type AnswerLimits,
  answerLimits,
  beforeGivenUp,
  ContinuedStream,
  continuedRequest,
  engineErrorOf,
  errorAnswerOf,
  isGivenUpAnswer,
  mayHoldText,
  textRequest,
  unfitRequest,
  wantsUsage,
} from '../src/index.ts'

const bytes = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value))
const parsed = (body: Uint8Array) => JSON.parse(Buffer.from(body).toString())

const CHAT = { model: 'm', messages: [{ role: 'user', content: 'a' }], stream: true }

t.test('what cannot be continued is refused, by the kind of reason', async t => {
  const cases: readonly (readonly [reason: string | undefined, members: object])[] = [
    [undefined, {}],
    [undefined, { n: 1, temperature: 0, top_p: 0.9, seed: 5, stop: ['x'], logit_bias: { 1: 2 } }],
    [undefined, { presence_penalty: 0, frequency_penalty: 0, repetition_penalty: 1, logprobs: false }],
    [undefined, { response_format: { type: 'text' }, tools: [], guided_json: null }],
    [undefined, { tools: [{ type: 'function' }], tool_choice: 'none' }],
    ['choices', { n: 2 }],
    ['choices', { best_of: 3 }],
    ['choices', { use_beam_search: true }],
    ['choices', { prompt: ['a', 'b'] }],
    ['choices', { prompt: [[1], [2]] }],
    [undefined, { prompt: [1, 2] }],
    [undefined, { prompt: '["a' }],
    ['guided', { response_format: { type: 'json_object' } }],
    ['guided', { structured_outputs: { regex: 'a' } }],
    ['guided', { regex: 'a' }],
    ['guided', { guided_choice: ['a'] }],
    ['tools', { tools: [{ type: 'function' }] }],
    ['tools', { functions: [{ name: 'f' }] }],
    ['logprobs', { logprobs: true }],
    ['logprobs', { logprobs: 0 }],
    ['logprobs', { prompt_logprobs: 1 }],
    [undefined, { return_token_ids: true }],
    ['ids', { return_tokens_as_token_ids: true }],
    ['penalties', { presence_penalty: -0.5 }],
    ['penalties', { frequency_penalty: 0.1 }],
    ['penalties', { repetition_penalty: 1.2 }],
    ['penalties', { custom_logit_processor: 'x' }],
    ['penalties', { repetition_detection: { max_pattern_size: 20, min_count: 4 } }],
    [undefined, { include_reasoning: true, stream_reasoning: true, repetition_detection: null }],
    ['reasoning', { include_reasoning: false }],
    ['reasoning', { stream_reasoning: false }],
    ['tied', { kv_transfer_params: { a: 1 } }],
    ['tied', { bootstrap_room: 7 }],
    ['tied', { echo: true }],
  ]
  for (const [reason, members] of cases)
    t.equal(unfitRequest(bytes({ ...CHAT, ...members })), reason, JSON.stringify(members))
})

t.test('a request for ids is continued by them, or without them where its engine sends none', async t => {
  const body = bytes({ ...CHAT, return_token_ids: true, stop: ['\n', '###'] })
  const limits = { tokensMax: 3, tokensMin: undefined }
  t.match(parsed(continuedRequest(body, Int32Array.of(5), limits, true)), {
    prompt: [5],
    return_token_ids: true,
  })
  t.notOk('return_token_ids' in parsed(continuedRequest(body, Int32Array.of(5), limits, false)))
  t.ok(mayHoldText(body))
  for (const stop of [undefined, null, [], '', '\n', ['a', 'b']])
    t.notOk(mayHoldText(bytes({ ...CHAT, stop })))
})

t.test('limits of an answer are those of its route', async t => {
  const limits = (body: object, isChat: boolean): AnswerLimits => answerLimits(bytes(body), isChat)
  t.strictSame(limits({}, true), { tokensMax: undefined, tokensMin: undefined })
  t.strictSame(limits({ max_tokens: 5, min_tokens: 2 }, true), { tokensMax: 5, tokensMin: 2 })
  t.strictSame(limits({ max_completion_tokens: 7, max_tokens: 5 }, true), {
    tokensMax: 7,
    tokensMin: undefined,
  })
  t.strictSame(limits({}, false), { tokensMax: 16, tokensMin: undefined })
  t.strictSame(limits({ max_tokens: null }, false), { tokensMax: undefined, tokensMin: undefined })
  t.strictSame(limits({ max_tokens: 9, min_tokens: 0 }, false), { tokensMax: 9, tokensMin: undefined })
})

t.test('the rest is a completion of ids with the sampling of the client', async t => {
  const given = {
    ...CHAT,
    max_completion_tokens: 20,
    temperature: 0.5,
    seed: 9,
    stop: ['\n'],
    tools: [],
    cache_salt: 's',
    chat_template_kwargs: { a: 1 },
    stream_options: { include_usage: true },
    vendor_member: [1, { b: '"' }],
  }
  const ids = Int32Array.of(5, 6, 7)
  t.strictSame(parsed(continuedRequest(bytes(given), ids, { tokensMax: 3, tokensMin: undefined }, false)), {
    model: 'm',
    temperature: 0.5,
    seed: 9,
    stop: ['\n'],
    cache_salt: 's',
    stream_options: { include_usage: true },
    vendor_member: [1, { b: '"' }],
    prompt: [5, 6, 7],
    max_tokens: 3,
    stream: true,
  })
  const least = parsed(continuedRequest(bytes(given), ids, { tokensMax: undefined, tokensMin: 2 }, true))
  t.match(least, { max_tokens: null, min_tokens: 2 })
  t.ok(wantsUsage(bytes(given)))
  t.notOk(wantsUsage(bytes(CHAT)))
  t.strictSame(parsed(textRequest('m', 'a "b"')), {
    model: 'm',
    prompt: 'a "b"',
    add_special_tokens: false,
    max_tokens: 1,
  })
})

const SAMPLE = {
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 7,
  model: 'm',
  choices: [{ index: 0, delta: { content: 'a' }, logprobs: null, finish_reason: null, token_ids: null }],
}

function rest(...chunks: readonly object[]): Uint8Array {
  return Buffer.from(`${chunks.map(chunk => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`)
}

function eventsIn(stream: Uint8Array) {
  const events = Buffer.from(stream).toString().split('\n\n').slice(0, -1)
  return events.map(event => (event === 'data: [DONE]' ? 'DONE' : JSON.parse(event.slice('data: '.length))))
}

t.test('chunks of a completion become those of the chat that the client has', async t => {
  const stream = new ContinuedStream({
    form: 'chat',
    sample: SAMPLE,
    promptTokens: 10,
    deliveredTokens: 4,
    isAnew: false,
  })
  const chunk = (text: string, finish: string | null) => ({
    id: 'cmpl-2',
    object: 'text_completion',
    created: 9,
    model: 'other',
    choices: [{ index: 0, text, logprobs: null, finish_reason: finish, stop_reason: finish && 'x' }],
  })
  const usage = {
    prompt_tokens: 14,
    completion_tokens: 2,
    total_tokens: 16,
    prompt_tokens_details: { cached_tokens: 12 },
  }
  const converted = eventsIn(
    stream.convert(rest(chunk('b', null), chunk('c', 'stop'), { ...chunk('', null), choices: [], usage })),
  )
  const { choices: _, ...same } = SAMPLE
  t.strictSame(converted, [
    {
      ...same,
      choices: [{ index: 0, delta: { content: 'b' }, logprobs: null, finish_reason: null, token_ids: null }],
    },
    {
      ...same,
      choices: [
        {
          index: 0,
          delta: { content: 'c' },
          logprobs: null,
          finish_reason: 'stop',
          token_ids: null,
          stop_reason: 'x',
        },
      ],
    },
    {
      ...same,
      choices: [],
      usage: {
        prompt_tokens: 10,
        completion_tokens: 6,
        total_tokens: 16,
        prompt_tokens_details: { cached_tokens: 10 },
      },
    },
    'DONE',
  ])
})

t.test('of a prompt with ids the client gets those of the answer alone', async t => {
  const known = { index: 0, text: 'a', prompt_token_ids: [1, 2], token_ids: [3], finish_reason: null }
  const stream = new ContinuedStream({
    form: 'completions',
    sample: { id: 'cmpl-1', choices: [known] },
    promptTokens: 2,
    deliveredTokens: 1,
    isAnew: false,
  })
  const first = { ...known, text: 'b', prompt_token_ids: [1, 2, 3], token_ids: [4, 5] }
  t.strictSame(eventsIn(stream.convert(rest({ id: 'cmpl-2', choices: [first] }))), [
    {
      id: 'cmpl-1',
      choices: [{ index: 0, text: 'b', prompt_token_ids: null, token_ids: [4, 5], finish_reason: null }],
    },
    'DONE',
  ])
})

t.test('a chat that is asked anew begins once', async t => {
  const role = { ...SAMPLE, id: 'other', choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] }
  const anew = { form: 'chat', promptTokens: 10, deliveredTokens: 0, isAnew: true } as const
  const text = { ...SAMPLE, id: 'other' }
  const again = new ContinuedStream({ ...anew, sample: SAMPLE })
  t.strictSame(eventsIn(again.convert(rest(role, text))), [SAMPLE, 'DONE'])
  const first = new ContinuedStream({ ...anew, sample: undefined })
  t.strictSame(eventsIn(first.convert(rest(role, text))), [role, text, 'DONE'], 'where nothing had come')
})

t.test('an end that was missing is written', async t => {
  const stream = new ContinuedStream({
    form: 'chat',
    sample: SAMPLE,
    promptTokens: 10,
    deliveredTokens: 4,
    isAnew: false,
  })
  const usage = { prompt_tokens: 10, total_tokens: 14, completion_tokens: 4 }
  const all = eventsIn(stream.ending({ hasFinish: false, wantsUsage: true }))
  t.match(all, [
    { id: 'chatcmpl-1', choices: [{ delta: {}, finish_reason: 'length' }] },
    { id: 'chatcmpl-1', choices: [], usage },
    'DONE',
  ])
  t.strictSame(eventsIn(stream.ending({ hasFinish: true, wantsUsage: false })), ['DONE'])
})

t.test('errors of the engine are found behind what came before them', async t => {
  const event = 'data: {"choices":[]}\n\n'
  const found = (error: string) => engineErrorOf(Buffer.from(`${event}data: ${error}\n\ndata: [DONE]\n\n`))
  for (const error of [
    '{"error":{"message":"dead","code":500}}',
    '{"object":"error","message":"dead","code":500}',
  ]) {
    t.equal(found(error)?.message, 'dead')
    t.equal(Buffer.from(found(error)!.before).toString(), event)
  }
  t.equal(found('{"error":"dead"}')?.message, 'dead')
  t.equal(found('{"error":{"message":"too long","code":400}}'), undefined, 'the client is to blame')
  t.equal(engineErrorOf(Buffer.from(event)), undefined)
})

t.test('what the engine gave up is found, and a text about it is not', async t => {
  const event = (choice: object): string =>
    `data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`
  const begun = event({ delta: { content: 'a "abort"' }, finish_reason: null })
  const before = (events: string) => {
    const found = beforeGivenUp(Buffer.from(events))
    return found && Buffer.from(found).toString()
  }
  for (const word of ['abort', 'error'])
    t.equal(before(`${begun}${event({ delta: {}, finish_reason: word })}data: [DONE]\n\n`), begun)
  t.equal(before(`${begun}${event({ delta: { content: 'abort' }, finish_reason: 'stop' })}`), undefined)
  t.equal(before('data: {"type":"abort"}\n\n'), undefined, 'no chunk of a completion')
  t.equal(before(`data: {"choices":[{},{"finish_reason":  "abort"}]}\n\n`), '', 'one of several choices')
  t.ok(isGivenUpAnswer(bytes({ choices: [{ text: '', finish_reason: 'abort' }] })))
  t.notOk(isGivenUpAnswer(bytes({ choices: [{ text: 'abort', finish_reason: 'stop' }] })))
  t.notOk(isGivenUpAnswer(Buffer.from('"abort"')))
  const marked = Buffer.concat([
    Buffer.of(0xef, 0xbb, 0xbf),
    bytes({ choices: [{ finish_reason: 'abort' }] }),
  ])
  t.ok(isGivenUpAnswer(marked), 'behind a byte order mark')
})

t.test(
  'a whole answer that is an error is the engine’s, unless it says that the client is at fault',
  async t => {
    const saidBy = (body: object): string | undefined => errorAnswerOf(bytes(body))
    t.equal(saidBy({ error: 'CUDA out of memory' }), 'CUDA out of memory')
    t.equal(saidBy({ error: { message: 'broken', type: 'InternalServerError' } }), 'broken')
    for (const error of [
      'prompt is too long',
      "This model's maximum context length is 4096 tokens",
      { message: 'x', code: 400 },
      { message: 'x', type: 'invalid_request_error' },
    ])
      t.equal(saidBy({ error }), undefined, JSON.stringify(error))
    t.equal(saidBy({ error: { message: 'invalid state', type: 'server_error' } }), 'invalid state')
    const marked = Buffer.concat([Buffer.of(0xef, 0xbb, 0xbf), bytes({ error: 'broken' })])
    t.equal(errorAnswerOf(marked), 'broken', 'behind a byte order mark')
  },
)
