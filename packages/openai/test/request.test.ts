import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  EmptyPromptError,
  InvalidRequestError,
  parseTokenIds,
  type ReadOptions,
  type RequestHeaders,
  readRelayedRequest,
  readRequest,
  scanRequest,
} from '../src/index.ts'

function read(body: string, headers?: RequestHeaders, options?: ReadOptions) {
  const bytes = Buffer.from(body)
  return readRequest(bytes, scanRequest(bytes), headers, options)
}

t.test('reads what routing needs of a chat request', async t => {
  const body =
    '{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"n":2,"max_tokens":7,' +
    '"max_completion_tokens":9,"stream_options":{"include_usage":true},"cache_salt":"s","x":1.0}'
  const request = read(body)
  t.match(request, {
    model: 'm',
    isStream: true,
    choicesCount: 2,
    outputTokensMax: 9,
    includesUsage: true,
    cacheSalt: 's',
    promptShape: 'messages',
    prompt: undefined,
    hasNvext: false,
  })
  t.equal(body.slice(request.messages!.start, request.messages!.end), '[{"role":"user","content":"hi"}]')
  t.strictSame(request.hints.annotations, [])
})

t.test('absent and null are the same', async t => {
  const request = read(
    '{"model":null,"stream":null,"n":null,"max_tokens":null,"stream_options":null,"cache_salt":null,"prompt":null,"nvext":null}',
  )
  t.strictSame({ ...request, hasNvext: false }, read('{}'))
  t.match(read('{}'), { model: undefined, isStream: false, choicesCount: 1, promptShape: 'none' })
})

t.test('tells the shapes of prompts apart', async t => {
  const shapes = {
    '"text"': 'text',
    '["a","b"]': 'texts',
    '[ 1, 2]': 'tokens',
    '[\n[1],[2]]': 'token-lists',
  }
  for (const [prompt, shape] of Object.entries(shapes)) {
    t.equal(read(`{"prompt":${prompt}}`).promptShape, shape)
  }
  t.match(read('{"token_ids":[5]}'), { promptShape: 'tokens', prompt: { start: 13, end: 16 } })
})

t.test('an empty prompt is refused', async t => {
  const cases: readonly [string, string][] = [
    ['{"prompt":""}', 'prompt'],
    ['{"prompt":[ ]}', 'prompt'],
    ['{"prompt":[""]}', 'prompt'],
    ['{"prompt":[ "" , ""\n]}', 'prompt'],
    ['{"prompt":[[]]}', 'prompt'],
    ['{"prompt":[[ ],\t[\n]]}', 'prompt'],
    ['{"token_ids":[]}', 'token_ids'],
    ['{"messages":[]}', 'messages'],
    ['{"messages":[1],"nvext":{"token_data":[]}}', 'nvext.token_data'],
  ]
  for (const [body, param] of cases) {
    t.throws(() => read(body), { code: 'HOMING_OPENAI_EMPTY_PROMPT', param }, body)
    t.throws(() => read(body), EmptyPromptError)
  }
})

t.test('one element that is not empty makes a prompt', async t => {
  for (const prompt of ['["",""," "]', '["","a"]', '[[],[1]]', '["\\""]', '[[[]]]', '[0]']) {
    t.doesNotThrow(() => read(`{"prompt":${prompt}}`), prompt)
  }
})

t.test('a value of the wrong kind is named with what would be right', async t => {
  const cases: readonly [string, string, RegExp][] = [
    ['{"model":5}', 'model', /cannot use model 5: use a text/],
    ['{"stream":"yes"}', 'stream', /cannot use stream "yes": use true or false/],
    ['{"n":0}', 'n', /use a whole number from 1/],
    ['{"n":1.5}', 'n', /use a whole number/],
    ['{"max_tokens":-1}', 'max_tokens', /use a whole number from 0/],
    ['{"stream_options":[]}', 'stream_options', /use an object/],
    ['{"stream_options":{"include_usage":1}}', 'stream_options.include_usage', /use true or false/],
    ['{"messages":"hi"}', 'messages', /use a list of messages/],
    ['{"prompt":{"a":1}}', 'prompt', /use a text, texts, token ids/],
    ['{"prompt":[null]}', 'prompt', /use a text, texts, token ids/],
    ['{"nvext":[]}', 'nvext', /use an object/],
    ['{"nvext":{"backend_instance_id":-1}}', 'nvext.backend_instance_id', /from 0 to 18446744073709551615/],
    ['{"nvext":{"backend_instance_id":18446744073709551616}}', 'nvext.backend_instance_id', /from 0/],
    ['{"nvext":{"dp_rank":4294967296}}', 'nvext.dp_rank', /from 0 to 4294967295/],
    ['{"nvext":{"annotations":["a",1]}}', 'nvext.annotations', /use a list of texts/],
    ['{"nvext":{"agent_hints":{"osl":"x"}}}', 'nvext.agent_hints.osl', /use a whole number/],
    [
      '{"nvext":{"agent_hints":{"kv_overlap_score_weight":-1}}}',
      'nvext.agent_hints.kv_overlap_score_weight',
      /a number from 0 to 1000/,
    ],
    [
      '{"router_config_override":{"overlap_score_weight":1e308}}',
      'router_config_override.overlap_score_weight',
      /a number from 0 to 1000/,
    ],
    [
      '{"router_config_override":{"router_temperature":1e999}}',
      'router_config_override.router_temperature',
      /a number from 0 to 1000/,
    ],
    [
      '{"nvext":{"agent_hints":{"latency_sensitivity":1e999}}}',
      'nvext.agent_hints.latency_sensitivity',
      /a number/,
    ],
    [
      '{"nvext":{"router_config_override":{"assume_kv_reuse":"no"}}}',
      'nvext.router_config_override.assume_kv_reuse',
      /use true or false/,
    ],
    [
      '{"router_config_override":{"track_prefill_tokens":0}}',
      'router_config_override.track_prefill_tokens',
      /use true or false/,
    ],
    [
      '{"router_config_override":{"router_temperature":0.5,"overlap_score_wieght":1}}',
      'router_config_override.overlap_score_wieght',
      /overlap_score_wieght 1: use one of its members: overlap_score_weight, .*track_prefill_tokens/,
    ],
    [
      '{"nvext":{"router_config_override":{"temperature":1}}}',
      'nvext.router_config_override.temperature',
      /temperature 1: use one of its members: .*router_temperature/,
    ],
    [
      '{"nvext":{"routing_constraints":{"required_taint":["gpu"]}}}',
      'nvext.routing_constraints.required_taint',
      /use one of its members: required_taints, preferred_taints/,
    ],
    ['{"token_ids":"x"}', 'token_ids', /cannot use token_ids "x": use a list of token ids/],
    ['{"token_ids":["x"]}', 'token_ids', /use a list of token ids/],
    ['{"token_ids":[[1]]}', 'token_ids', /use a list of token ids/],
    ['{"token_ids":5}', 'token_ids', /use a list of token ids/],
    ['{"nvext":{"decode_worker_id":-1,"backend_instance_id":1}}', 'nvext.decode_worker_id', /from 0/],
    ['{"nvext":{"prefill_worker_id":"a"}}', 'nvext.prefill_worker_id', /from 0/],
    ['{"nvext":{"prefill_dp_rank":-1}}', 'nvext.prefill_dp_rank', /from 0/],
    ['{"nvext":{"agent_hints":{"priority":0.5}}}', 'nvext.agent_hints.priority', /use a whole number/],
    ['{"nvext":{"agent_hints":{"strict_priority":-1}}}', 'nvext.agent_hints.strict_priority', /from 0/],
    [
      '{"nvext":{"agent_hints":{"speculative_prefill":1}}}',
      'nvext.agent_hints.speculative_prefill',
      /use true or false/,
    ],
  ]
  for (const [body, param, message] of cases) {
    t.throws(() => read(body), { code: 'HOMING_OPENAI_INVALID_REQUEST', param, message }, body)
  }
  const long = `{"router_config_override":{"${'a'.repeat(1000)}":1}}`
  t.throws(() => read(long), { message: /^cannot use router_config_override\.a{64} 1: use one of/ })
  t.throws(() => read(`{"model":[${'9,'.repeat(500_000)}9]}`), {
    message: /^cannot use model \[9,9.{70,90}…: use a text$/,
  })
})

t.test('a model has a name that may be kept', async t => {
  const bodyOf = (model: string) => Buffer.from(JSON.stringify({ model, prompt: 'x' }))
  const [known, long] = ['m'.repeat(1024), 'm'.repeat(1025)].map(bodyOf) as [Buffer, Buffer]
  t.equal(readRequest(known, scanRequest(known), {}).model?.length, 1024)
  for (const read of [readRequest, readRelayedRequest])
    t.throws(() => read(long, scanRequest(long), {}), {
      code: 'HOMING_OPENAI_INVALID_REQUEST',
      param: 'model',
      message: /^cannot use model "m+…: use at most 1024 characters$/,
    })
})

t.test('what a route requires must be there', async t => {
  t.throws(() => read('{"prompt":"a"}', {}, { requires: 'messages' }), {
    message: /cannot use messages \(missing\)/,
  })
  t.throws(() => read('{}', {}, { requires: 'prompt' }), { message: /cannot use prompt \(missing\)/ })
  t.equal(read('{"prompt_embeds":"…"}', {}, { requires: 'prompt' }).promptShape, 'none')
})

t.test('reads nvext', async t => {
  const body = `{"model":"m","messages":[{}],"cache_salt":"top","nvext":{"backend_instance_id":18446744073709551615,
    "prefill_worker_id":"7","decode_worker_id":8,"dp_rank":1,"prefill_dp_rank":2,"token_data":[1,4294967295],
    "annotations":["query_instance_id","token_ids"],"extra_fields":["worker_id"],"cache_salt":"inner",
    "agent_hints":{"latency_sensitivity":1.5,"priority":-3,"strict_priority":2,"osl":100,"kv_overlap_score_weight":0.5,
    "speculative_prefill":true},"router_config_override":{"router_temperature":0.7}}}`
  const request = read(body)
  t.match(request, { cacheSalt: 'inner', hasNvext: true })
  const { tokenData, ...hints } = request.hints
  t.strictSame(hints, {
    workerId: '18446744073709551615',
    prefillWorkerId: '7',
    prefillDpRank: 2,
    dpRank: 1,
    annotations: ['query_instance_id', 'token_ids'],
    extraFields: ['worker_id'],
    override: { overlapWeight: 0.5, overlapCredit: undefined, temperature: 0.7 },
    constraints: undefined,
    priority: { jumpSeconds: -3, strict: 2 },
    expectedOutputTokens: 100,
    moeQuery: undefined,
    tracking: undefined,
  })
  t.strictSame(parseTokenIds(Buffer.from(body), tokenData!, 'nvext.token_data'), Int32Array.of(1, -1))
})

t.test('reads which experts a request wants, and refuses what says nothing of experts', async t => {
  const query = (holder: string, value: string) =>
    read(`{"prompt":"a","nvext":{"${holder}":{"moe_query":${value}}}}`).hints.moeQuery
  const any = { layerId: 3, expertIds: [], expertGroup: undefined, fallbackToUnlabeled: true }
  for (const holder of ['agent_hints', 'router_config_override']) {
    t.equal(query(holder, 'null'), undefined)
    t.strictSame(query(holder, '{"layer_id":3}'), any)
    t.strictSame(
      query(
        holder,
        '{"layer_id":0,"expert_ids":[1,4294967295],"expert_group":2,"fallback_to_unlabeled":false}',
      ),
      { layerId: 0, expertIds: [1, 4294967295], expertGroup: 2, fallbackToUnlabeled: false },
    )
    const path = `nvext.${holder}.moe_query`
    const wrong: readonly (readonly [value: string, message: string])[] = [
      ['"nonsense"', `cannot use ${path} "nonsense": use an object`],
      ['{}', `cannot use ${path}.layer_id nothing: use a whole number from 0 to 4294967295`],
      ['{"layer_id":-1}', `cannot use ${path}.layer_id -1: use a whole number from 0 to 4294967295`],
      [
        '{"layer_id":1,"expert_ids":[1.5]}',
        `cannot use ${path}.expert_ids [1.5]: use a list of at most 4096 whole numbers from 0 to 4294967295`,
      ],
      [
        '{"layer_id":1,"fallback_to_unlabeled":"no"}',
        `cannot use ${path}.fallback_to_unlabeled "no": use true or false`,
      ],
      [
        '{"layer_id":1,"experts":[]}',
        `cannot use ${path}.experts []: use one of its members: layer_id, expert_ids, expert_group, fallback_to_unlabeled`,
      ],
    ]
    for (const [value, message] of wrong) t.throws(() => query(holder, value), { message })
  }
  const both =
    '{"agent_hints":{"moe_query":{"layer_id":1}},"router_config_override":{"moe_query":{"layer_id":2}}}'
  t.equal(read(`{"prompt":"a","nvext":${both}}`).hints.moeQuery?.layerId, 2)
})

t.test('reads what of a request counts as load', async t => {
  const tracking = (override: string): object | undefined =>
    read(`{"prompt":"a","nvext":{"router_config_override":${override}}}`).hints.tracking
  t.equal(tracking('{}'), undefined)
  t.equal(tracking('{"assume_kv_reuse":null}'), undefined)
  t.strictSame(tracking('{"assume_kv_reuse":false}'), { assumesReuse: false, prefillTokens: undefined })
  t.strictSame(tracking('{"track_prefill_tokens":true}'), { assumesReuse: undefined, prefillTokens: true })
})

t.test('reads whether the answer will say anything about the cache', async t => {
  const cacheUse = (members: string) => read(`{${members}}`).cacheUse
  for (const members of [
    '"prompt":"a","echo":true,"logprobs":1',
    '"prompt":"a","echo":true,"logprobs":0',
    '"messages":[{}],"echo":true',
    '"prompt":"a","prompt_logprobs":0',
    '"messages":[{}],"prompt_logprobs":5',
    '"prompt":"a","cache_prompt":false,"use_beam_search":true',
  ])
    t.equal(cacheUse(members), 'unread', members)
  t.equal(cacheUse('"prompt":"a","use_beam_search":true'), 'unreported')
  for (const members of [
    '"prompt":"a","echo":true',
    '"prompt":"a","echo":true,"logprobs":null',
    '"prompt":"a","echo":false,"logprobs":5',
    '"messages":[{}],"echo":false,"logprobs":true,"top_logprobs":5',
    '"prompt":"a","prompt_logprobs":null,"cache_prompt":true,"use_beam_search":false',
  ])
    t.equal(cacheUse(members), undefined, members)
})

t.test('headers win over the body', async t => {
  const body =
    '{"cache_salt":"top","nvext":{"backend_instance_id":1,"dp_rank":1,"cache_salt":"inner","agent_hints":{"priority":1}}}'
  const request = read(body, {
    'x-worker-instance-id': '22',
    'x-dynamo-worker-instance-id': '33',
    'x-data-parallel-rank': '4',
    'x-tenant-id': 'tenant',
    'x-dynamo-request-priority': '-9',
  })
  t.equal(request.cacheSalt, 'tenant')
  t.match(request.hints, {
    workerId: '33',
    dpRank: 4,
  })
  t.equal(read(body, { 'x-tenant-id': '' }).cacheSalt, 'inner')
  t.equal(
    read(body, { 'x-homing-tenant': 'tenant' }).cacheSalt,
    'inner',
    'it names a tenant, and separates nothing',
  )
  t.equal(read('{}', { 'x-homing-tenant': 'tenant' }).cacheSalt, undefined)
  t.equal(read('{"cache_salt":"top","nvext":{"cache_salt":""}}').cacheSalt, 'top')
  t.throws(() => read(body, { 'x-dp-rank': 'one' }), { param: 'x-dp-rank', message: /use a whole number/ })
  t.throws(() => read(body, { 'x-worker-instance-id': '1e3' }), InvalidRequestError)
  t.throws(() => read(body, { 'x-dynamo-request-priority': 'high' }), {
    param: 'x-dynamo-request-priority',
    message: /use a whole number/,
  })
})

t.test('switched off, nvext and its headers have no effect, and nvext is still reported', async t => {
  const request = read(
    '{"cache_salt":"top","nvext":{"backend_instance_id":"bad","cache_salt":"inner"}}',
    { 'x-dp-rank': 'bad', 'x-tenant-id': 'tenant' },
    { readsHints: false },
  )
  t.match(request, { cacheSalt: 'top', hasNvext: true, hints: { workerId: undefined, dpRank: undefined } })
})

t.test('token ids are read as JSON.parse does, whatever the white space', async t => {
  const ids = fc.array(fc.oneof(fc.nat(130_000), fc.integer({ min: 0, max: 0xffffffff })))
  const agree = fc.property(ids, fc.constantFrom('', ' ', '\n\t'), (ids, space) => {
    const text = `[${space}${ids.join(`${space},${space}`)}${space}]`
    const bytes = Buffer.from(`{"p":${text}}`)
    const { value } = scanRequest(bytes).byName.get('p')!
    assert.deepEqual([...Uint32Array.from(parseTokenIds(bytes, value, 'p'))], ids)
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('anything but whole numbers of 32 bits is refused by its place', async t => {
  const cases: readonly [string, string, string][] = [
    ['[1,2.5,3]', 'p[1]', '2.5'],
    ['[1,1e3]', 'p[1]', '1e3'],
    ['[-1]', 'p[0]', '-1'],
    ['[4294967296]', 'p[0]', '4294967296'],
    ['[99999999999999999999999]', 'p[0]', '99999999999999999999999'],
    ['[1, "2"]', 'p[1]', '"2"'],
    ['[1,null]', 'p[1]', 'null'],
    ['[[1]]', 'p[0]', '[1'],
    ['"12"', 'p', '"12"'],
  ]
  for (const [text, param, found] of cases) {
    const bytes = Buffer.from(`{"p":${text}}`)
    const { value } = scanRequest(bytes).byName.get('p')!
    const message = `cannot use ${param} ${found}: use token ids, whole numbers from 0 to 4294967295, in an array`
    t.throws(() => parseTokenIds(bytes, value, 'p'), { message }, text)
  }
})
