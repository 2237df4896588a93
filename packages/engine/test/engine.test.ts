/** What an engine answers, and the events that its caches publish. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import t from 'tap'
import { byteTokenizer, expectedOutput } from '../src/index.ts'
import { chunksOf, EventLedger, ids, runningOf, started, stream, subscribe, until } from './engine-client.ts'

const SEED = 80_801

t.test('a chat stream has a role chunk, content, a finish reason, usage and [DONE]', async t => {
  const { post, engine } = await started(t)
  const answer = await post('/v1/chat/completions', {
    messages: [{ role: 'user', content: 'Hello' }],
    max_tokens: 4,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    tools: [{ type: 'function', function: { name: 'f' } }],
  })
  const chunks = chunksOf(answer.text)
  t.equal(chunks.length, 6)
  t.strictSame(chunks[0]!['choices'][0].delta, { role: 'assistant', content: '' })
  t.strictSame(
    chunks.slice(1, 5).map(chunk => chunk['choices'][0].finish_reason),
    [null, null, null, 'length'],
  )
  const prompt: number[] = chunks[0]!['prompt_token_ids']
  const output = chunks.slice(1, 5).flatMap(chunk => chunk['choices'][0].token_ids)
  t.strictSame(output, expectedOutput(prompt, 4, 0, engine.vocabulary))
  const text = chunks.slice(1, 5).map(chunk => chunk['choices'][0].delta.content)
  t.equal(text.join(''), byteTokenizer().decode(Int32Array.from(output)))
  t.strictSame(chunks[5]!['choices'], [])
  t.match(chunks[5]!['usage'], {
    prompt_tokens: prompt.length,
    completion_tokens: 4,
    total_tokens: prompt.length + 4,
    prompt_tokens_details: { cached_tokens: 0 },
  })
  t.ok(chunks.every(chunk => chunk['id'] === chunks[0]!['id'] && chunk['object'] === 'chat.completion.chunk'))
})

t.test('prompts may be text, texts, ids or lists of ids', async t => {
  const { post } = await started(t)
  const prompts: [unknown, number, number][] = [
    ['abc', 1, 3],
    [['abc', 'de'], 2, 5],
    [[97, 98], 1, 2],
    [[[97], [98, 99]], 2, 3],
  ]
  for (const [prompt, choices, promptTokens] of prompts) {
    const { json } = await post('/v1/completions', { prompt, max_tokens: 2 })
    t.equal(json.choices.length, choices)
    t.equal(json.usage.prompt_tokens, promptTokens)
    t.equal(json.usage.completion_tokens, 2 * choices)
  }
})

t.test('choices of n differ, are interleaved in a stream and have logprobs of the right shape', async t => {
  const { post } = await started(t)
  const body = { prompt: ids(5), max_tokens: 3, n: 2, return_token_ids: true, logprobs: 1 }
  const { json } = await post('/v1/completions', body)
  t.notSame(json.choices[0].token_ids, json.choices[1].token_ids)
  t.equal(json.choices[0].logprobs.tokens.length, 3)
  const chunks = chunksOf((await post('/v1/completions', { ...body, stream: true })).text)
  t.strictSame(
    chunks.map(chunk => chunk['choices'][0].index),
    [0, 1, 0, 1, 0, 1],
  )
})

t.test('a stop text ends the choice before it, also when it spans tokens', async t => {
  const { post } = await started(t)
  const whole = await post('/v1/completions', { prompt: ids(5), max_tokens: 8 })
  const text: string = whole.json.choices[0].text
  const stop = text.slice(8, 13)
  for (const isStream of [false, true]) {
    const answer = await post('/v1/completions', {
      prompt: ids(5),
      max_tokens: 8,
      stop: [stop],
      stream: isStream,
    })
    const choices = isStream ? chunksOf(answer.text).map(chunk => chunk['choices'][0]) : answer.json.choices
    t.equal(
      choices.map((choice: { text: string }) => choice.text).join(''),
      text.slice(0, text.indexOf(stop)),
    )
    t.equal(choices.at(-1).finish_reason, 'stop')
    t.equal(choices.at(-1).stop_reason, stop)
  }
})

t.test('a chat without a limit ends by itself, the same way each time', async t => {
  const { post } = await started(t)
  const body = { messages: [{ role: 'user', content: 'Tell me' }] }
  const first = await post('/v1/chat/completions', body)
  const second = await post('/v1/chat/completions', body)
  t.equal(first.json.choices[0].finish_reason, 'stop')
  t.ok(first.json.usage.completion_tokens >= 16 && first.json.usage.completion_tokens < 144)
  t.equal(first.json.choices[0].message.content, second.json.choices[0].message.content)
})

t.test('refuses what vLLM refuses, in its form', async t => {
  const { post, get } = await started(t, { contextTokensMax: 100, ranks: 2 })
  const cases: [unknown, number, string | RegExp, Record<string, string>?][] = [
    [{ model: 'other', prompt: 'a' }, 404, 'The model `other` does not exist.'],
    [{ model: { toString: 1 }, prompt: 'a' }, 400, 'model must be a string'],
    [{ prompt: '' }, 400, /cannot be empty/],
    [{ prompt: [] }, 400, /non-empty/],
    [{ prompt: ids(100) }, 400, /maximum context length is 100 tokens/],
    [{ prompt: ids(60), max_tokens: 41 }, 400, /maximum context length is 100 tokens.*41 output tokens/],
    [{ prompt: 'a', max_tokens: 0 }, 400, /at least 1/],
    [{ prompt: 'a', cache_salt: '' }, 400, /non-empty string/],
    [{ prompt: 'a', cache_salt: 'a/b' }, 400, /must not contain/],
    [{ prompt: [1, -1] }, 400, /vocabulary/],
    [{ prompt: 'a' }, 400, 'data_parallel_rank 7 is out of range [0, 2).', { 'x-data-parallel-rank': '7' }],
  ]
  for (const [body, status, message, headers] of cases) {
    const answer = await post('/v1/completions', body, headers)
    t.equal(answer.status, status)
    t.match(answer.json.error, {
      message,
      code: status,
      type: status === 404 ? 'NotFoundError' : 'BadRequestError',
    })
  }
  t.equal((await post('/v1/completions', { prompt: 'a' }, { 'x-data-parallel-rank': 'x' })).status, 200)
  t.equal((await get('/v2/embed')).status, 404)
})

t.test('answers what a router probes', async t => {
  const { engine, get, post } = await started(t, {
    ranks: 2,
    adapters: ['ad'],
    blocks: 50,
    blockSizeTokens: 32,
  })
  t.equal((await get('/health')).text, '')
  t.strictSame((await get('/version')).json, { version: '0.32.0' })
  t.strictSame((await get('/load')).json, { server_load: 0 })
  const models = (await get('/v1/models')).json.data
  t.match(models, [
    { id: 'homing-sim', parent: null, max_model_len: 49 * 32 },
    { id: 'ad', parent: 'homing-sim' },
  ])
  const metrics = (await get('/metrics')).text
  t.match(metrics, 'vllm:num_requests_running{engine="1",model_name="homing-sim"} 0.0')
  t.match(metrics, /vllm:cache_config_info\{block_size="32",.*num_gpu_blocks="50"\} 1\.0/)
  const sources = (await get('/kv_event_sources')).json
  t.strictSame(Object.keys(sources), ['0', '1'])
  t.equal(sources['1'].endpoint, `tcp://*:${engine.describe().ranks[1]!.eventsPort}`)
  t.strictSame((await post('/tokenize', { prompt: 'hi' })).json, {
    count: 2,
    max_model_len: 49 * 32,
    tokens: [104, 105],
    token_strs: null,
  })
  const chat = await post('/tokenize', { messages: [{ role: 'user', content: 'hi' }] })
  t.equal(
    chat.json.count,
    (await post('/v1/chat/completions', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 1 })).json
      .usage.prompt_tokens,
  )
})

t.test('in a SGLang form it is discovered as SGLang is', async t => {
  const { engine, get, post, transport } = await started(t, { eventForm: 'sglang-map', isClearLate: false })
  t.equal((await get('/version')).status, 404)
  const { kv_events: events } = (await get('/server_info')).json
  t.match(events, { publisher: 'zmq', endpoint_host: '*', block_size: 16, dp_size: 1 })
  const endpoint = engine.describe().ranks[0]!
  t.equal(events.endpoint_port_base, endpoint.eventsPort)
  const subscriber = await subscribe(transport, endpoint.events)
  await post('/v1/completions', { prompt: ids(40), max_tokens: 1, cache_salt: 's' })
  await until(() => subscriber.batches.length === 1, 'a batch arrives')
  t.match(subscriber.batches[0]!.events[0], { kind: 'stored', cacheSalt: 's', blockSizeTokens: 16 })
})

t.test('asks for its key under /v1 only', async t => {
  const { get, post } = await started(t, { apiKey: 'k' })
  const refused = await get('/v1/models')
  t.equal(refused.status, 401)
  t.strictSame(refused.json, { error: 'Unauthorized' })
  t.equal((await post('/v1/completions', { prompt: 'a' }, { authorization: 'Bearer k' })).status, 200)
  t.equal((await get('/health')).status, 200)
})

for (const eventForm of ['vllm-map', 'vllm-array', 'sglang-map', 'sglang-array'] as const) {
  t.test(`${eventForm}: events add up to the cache, block for block, whatever was asked`, async t => {
    const { engine, post, transport } = await started(t, {
      eventForm,
      ranks: 2,
      blocks: 24,
      blockSizeTokens: 4,
    })
    const subscribers = await Promise.all(
      engine.describe().ranks.map(({ events }) => subscribe(transport, events)),
    )
    const random = seededRandom(SEED)
    const ask = async (): Promise<void> => {
      const prompt = Array.from({ length: 1 + random.below(30) }, () => 97 + random.below(2))
      const answer = await post(
        '/v1/completions',
        { prompt, max_tokens: 1 + random.below(12), ...(random.below(3) === 0 ? { cache_salt: 's' } : {}) },
        { 'x-data-parallel-rank': String(random.below(2)) },
      )
      assert.equal(answer.status, 200)
    }
    for (let round = 0; round < 12; round++) {
      await Promise.all(Array.from({ length: 6 }, ask))
      if (round === 6) await post('/reset_prefix_cache', {})
    }
    const state = engine.state({ hasBlocks: true })
    for (const [rank, { batches }] of subscribers.entries()) {
      const { nextSequence, blocks } = state.ranks[rank]!
      await until(() => batches.length === nextSequence, 'all batches arrived')
      const ledger = new EventLedger()
      for (const [i, batch] of batches.entries()) {
        assert.equal(batch.sequence, i)
        assert.equal(batch.rank, rank)
        ledger.apply(batch)
      }
      const held = new Map(
        blocks!.map(({ hash, copies, parentHash, tokenIds }) => [hash, { copies, parentHash, tokenIds }]),
      )
      // A clear is published late, so nothing but stores may follow it here: the ledgers agree at rest.
      assert.deepEqual(ledger.blocks, held)
      t.ok(held.size > 0, `seed ${SEED}`)
    }
  })
}

t.test('the second turn finds the first, answer included', async t => {
  const { engine, post } = await started(t, { blockSizeTokens: 4 })
  const messages: unknown[] = [{ role: 'user', content: 'Hello there' }]
  const first = await post('/v1/chat/completions', { messages, max_tokens: 21 })
  messages.push(first.json.choices[0].message, { role: 'user', content: 'And then?' })
  const second = await post('/v1/chat/completions', { messages, max_tokens: 1, return_token_ids: true })
  const computed = first.json.usage.total_tokens - 1
  t.equal(second.json.usage.prompt_tokens_details.cached_tokens, computed - (computed % 4))
  t.match(engine.state().requests, [{ outcome: 'finished', cachedTokens: 0 }, { outcome: 'finished' }])
})

t.test('adapters and salts have caches of their own, and say so in the events', async t => {
  const { engine, post, transport } = await started(t, { adapters: ['ad'] })
  const subscriber = await subscribe(transport, engine.describe().ranks[0]!.events)
  const cached = async (body: object): Promise<number> => {
    const { json } = await post('/v1/completions', { prompt: ids(50), max_tokens: 1, ...body })
    return json.usage.prompt_tokens_details.cached_tokens
  }
  t.equal(await cached({}), 0)
  t.equal(await cached({}), 48)
  t.equal(await cached({ model: 'ad' }), 0)
  t.equal(await cached({ model: 'ad' }), 48)
  t.equal(await cached({ cache_salt: 'x' }), 0)
  t.equal(await cached({ model: 'ad', cache_salt: 'x' }), 0)
  await until(() => subscriber.batches.length === 4, 'four batches arrived')
  t.match(
    subscriber.batches.map(batch => batch.events[0]),
    [
      { loraName: undefined, cacheSalt: undefined },
      { loraName: 'ad', cacheSalt: undefined },
      { loraName: undefined, cacheSalt: 'x' },
      { loraName: 'ad', cacheSalt: 'x' },
    ],
  )
})

t.test('a reused prefix is reported again when the request asks for it', async t => {
  const { engine, post, transport } = await started(t)
  const subscriber = await subscribe(transport, engine.describe().ranks[0]!.events)
  await post('/v1/completions', { prompt: ids(50), max_tokens: 1 })
  await post('/v1/completions', {
    prompt: ids(70),
    max_tokens: 1,
    vllm_xargs: { kv_cache_report_mode: 'full' },
  })
  await until(() => subscriber.batches.length === 2, 'two batches arrived')
  t.match(subscriber.batches[1]!.events, [
    { kind: 'stored', parent: undefined, hashes: { length: 6 } },
    { kind: 'stored', hashes: { length: 2 } },
  ])
})

t.test('a clear is published late, in the batch of the next step and before its stores', async t => {
  const { engine, post, transport } = await started(t)
  const subscriber = await subscribe(transport, engine.describe().ranks[0]!.events)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  t.strictSame((await post('/reset_prefix_cache', {})).json, { success: true })
  t.equal(engine.state().ranks[0]!.nextSequence, 1)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  await until(() => subscriber.batches.length === 2, 'the clear arrives')
  t.strictSame(
    subscriber.batches[1]!.events.map(event => event.kind),
    ['cleared', 'stored'],
  )
})

t.test('a client that leaves ends its request at once, and its blocks are free', async t => {
  const own = await started(t, { speed: 1 })
  const body = { prompt: ids(50), max_tokens: 100_000, stream: true }
  const streams = [1, 2].map(() => stream(own.transport, own.url, '/v1/completions', body))
  const silent = stream(own.transport, own.url, '/v1/completions', { ...body, stream: false })
  await until(() => streams.every(({ text }) => text.includes('data:')), 'tokens come')
  t.equal(runningOf(own), 3)
  for (const { abort } of [...streams, silent]) abort()
  await until(() => runningOf(own) === 0, 'the engine is idle')
  t.equal(own.engine.state().ranks[0]!.kvUsage, 0)
  t.strictSame(
    own.engine.state().requests.map(({ outcome }) => outcome),
    ['aborted', 'aborted', 'aborted'],
  )
})
