import t from 'tap'
import {
  dialled,
  familyOfOwner,
  LISTED_CHARACTERS_MAX,
  MODELS_MAX,
  RANKS_MAX,
  readEventSources,
  readMetrics,
  readModels,
  readServerInfo,
  withTokenizerPath,
} from '../src/probe-answers.ts'

t.test('models, with an adapter', async t => {
  const body = {
    object: 'list',
    data: [
      { id: 'tiny', owned_by: 'vllm', root: '/models/tiny', parent: null, max_model_len: 2048 },
      { id: 'adapter-a', owned_by: 'vllm', root: '/adapters/a', parent: 'tiny', max_model_len: null },
      'nonsense',
    ],
  }
  t.strictSame(readModels(body), {
    owner: 'vllm',
    models: [
      { name: 'tiny', base: undefined, root: '/models/tiny', maxModelTokens: 2048 },
      { name: 'adapter-a', base: 'tiny', root: '/adapters/a', maxModelTokens: undefined },
    ],
  })
  t.equal(readModels({ error: 'no' }), undefined)
  t.equal(readModels([]), undefined)
})

t.test('event sources in three shapes', async t => {
  const entry = { endpoint: 'tcp://*:5657', replay_endpoint: 'tcp://0.0.0.0:6657', topic: 'kv' }
  const expected = [
    { dpRank: 0, endpoint: 'tcp://h:5657', replayEndpoint: 'tcp://h:6657', topic: 'kv' },
    { dpRank: 1, endpoint: 'tcp://h:5658', replayEndpoint: undefined, topic: '' },
  ]
  const second = { endpoint: 'tcp://*:5658', replay_endpoint: null, topic: '' }
  const withRanks = [
    { ...second, data_parallel_rank: 1 },
    { ...entry, data_parallel_rank: 0 },
  ]
  t.strictSame(readEventSources(withRanks, 'h'), expected)
  t.strictSame(readEventSources({ sources: withRanks }, 'h'), expected)
  t.strictSame(readEventSources({ 0: entry, 1: second }, 'h'), expected)
  t.strictSame(readEventSources({ detail: 'Not Found' }, 'h'), [])
  t.equal(readEventSources(undefined, 'h'), undefined)
  t.strictSame(readEventSources({ 0: { ...entry, enable_kv_cache_events: false } }, 'h'), [])
})

t.test('what vLLM 0.32 answers', async t => {
  const config = {
    enable_kv_cache_events: true,
    publisher: 'zmq',
    endpoint: 'tcp://*:5657',
    replay_endpoint: 'tcp://*:6657',
    buffer_steps: 10000,
    hwm: 100000,
    max_queue_size: 100000,
    topic: '',
  }
  t.strictSame(readEventSources({ 0: config }, '10.0.0.9'), [
    { dpRank: 0, endpoint: 'tcp://10.0.0.9:5657', replayEndpoint: 'tcp://10.0.0.9:6657', topic: '' },
  ])
  const metrics = [
    '# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.',
    'process_start_time_seconds 1.79524662558e+09',
    'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0',
    'vllm:num_requests_running{engine="1",model_name="tiny"} 0.0',
    'vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",kv_cache_size_tokens="3225",num_gpu_blocks="200"} 1.0',
  ].join('\n')
  t.strictSame(readMetrics(metrics), {
    isVllm: true,
    isSglang: false,
    blockSizeTokens: 32,
    kvBlocks: 100,
    ranks: 2,
    processStartSeconds: 1795246625.58,
    sleepState: undefined,
  })
  t.equal(readMetrics('vllm:cache_config_info{block_size="16",num_gpu_blocks="66"} 1.0').kvBlocks, 66)
  for (const value of ['1e300', '-1', '0', 'NaN', '+Inf'])
    t.equal(readMetrics(`process_start_time_seconds ${value}`).processStartSeconds, undefined, value)
  // With the square of its length it would take minutes.
  const long = `vllm:cache_config_info{${'a'.repeat(1_000_000)}} 1\n`
  t.equal(readMetrics(long + metrics).blockSizeTokens, undefined, 'the first line counts, however long')
  t.match(readMetrics('<html>'), { isVllm: false, kvBlocks: undefined, ranks: undefined })
})

t.test('more ranks than an engine can have are not believed', async t => {
  const events = { publisher: 'zmq', endpoint_port_base: 5557 }
  for (const dp_size of [1025, 100_000_000, Number.MAX_SAFE_INTEGER]) {
    for (const kv_events of [events, { ...events, dp_size }]) {
      const info = readServerInfo({ page_size: 16, dp_size, kv_events }, '10.0.0.1')
      t.equal(info?.ranks, undefined)
      t.strictSame(
        info?.eventSources.map(({ endpoint }) => endpoint),
        ['tcp://10.0.0.1:5557'],
      )
    }
  }
})

t.test('an endpoint that cannot be connected to is no source, and says why', async t => {
  const namedBy = (kv_events: object) =>
    readServerInfo({ page_size: 16, dp_size: 2, kv_events: { publisher: 'zmq', ...kv_events } }, '10.0.0.1')!
      .eventSources
  const sourcesOf = (kv_events: object) => namedBy(kv_events).filter(({ fault }) => fault === undefined)
  t.strictSame(sourcesOf({ endpoint_port_base: Number.MAX_SAFE_INTEGER }), [])
  t.strictSame(sourcesOf({ endpoint_port_base: 65_536 }), [])
  t.strictSame(sourcesOf({ endpoint_port_base: 5557, endpoint_host: 'two words:1' }), [])
  t.match(sourcesOf({ endpoint_port_base: 65_535, replay_endpoint_port_base: 99_999 }), [
    { dpRank: 0, endpoint: 'tcp://10.0.0.1:65535', replayEndpoint: undefined },
  ])
  t.equal(sourcesOf({ endpoint_port_base: 65_535 }).length, 1, 'the second rank would be past the last port')
  for (const endpoint of [
    'tcp://*:0',
    'tcp://*:99999',
    'inproc://events',
    'nats://h:4222/two words',
    'ipc://',
  ])
    t.strictSame(sourcesOf({ publishers: [{ dp_rank: 0, endpoint }] }), [], endpoint)
  for (const endpoint of [
    'tcp://_:5557',
    'tcp://gpu?node:1',
    `ipc://${'a'.repeat(110)}`,
    'x'.repeat(10_000),
  ]) {
    for (const [source] of [
      namedBy({ publishers: [{ dp_rank: 0, endpoint }] }),
      readEventSources([{ endpoint }], 'h')!,
    ]) {
      t.ok((source?.fault ?? '').length > 10, `${endpoint.slice(0, 30)}: ${source?.fault}`)
      t.ok(source!.endpoint.length <= 120)
    }
  }
})

t.test('SGLang names a model after itself, and says elsewhere where its tokenizer is', async t => {
  const models = readModels({
    data: [
      { id: 'tiny', root: 'tiny', parent: null, max_model_len: 2048 },
      { id: 'poet', root: '/adapters/poet', parent: 'tiny' },
    ],
  })!.models
  const info = { model_path: '/models/tiny', tokenizer_path: '/models/tokenizer', is_generation: true }
  t.match(withTokenizerPath(models, info), [{ root: '/models/tokenizer' }, { root: '/adapters/poet' }])
  t.match(withTokenizerPath(models, { model_path: '/models/tiny' }), [{ root: '/models/tiny' }, {}])
  for (const nothing of [undefined, {}, { tokenizer_path: 7 }, []]) {
    t.strictSame(withTokenizerPath(models, nothing), models)
  }
  const elsewhere = models.map(model => ({ ...model, root: '/models/other' }))
  t.strictSame(withTokenizerPath(elsewhere, info), elsewhere, 'what is a path already stays')
})

t.test('what SGLang 0.5.23 answers', async t => {
  const info = {
    page_size: 16,
    chunked_prefill_size: 2048,
    max_total_num_tokens: 2176,
    dp_size: 2,
    version: '0.5.23',
    kv_events: {
      publisher: 'zmq',
      endpoint_host: '*',
      endpoint_port_base: 5977,
      topic: '',
      block_size: 16,
      dp_size: 2,
      replay_endpoint_port_base: 6977,
    },
  }
  t.strictSame(readServerInfo(info, 'h'), {
    family: 'sglang',
    version: '0.5.23',
    blockSizeTokens: 16,
    maxBatchedTokens: 2048,
    kvTokens: 2176,
    ranks: 2,
    eventSources: [
      { dpRank: 0, endpoint: 'tcp://h:5977', replayEndpoint: 'tcp://h:6977', topic: '' },
      { dpRank: 1, endpoint: 'tcp://h:5978', replayEndpoint: 'tcp://h:6978', topic: '' },
    ],
  })
  t.strictSame(readServerInfo({ ...info, kv_events: null }, 'h')!.eventSources, [])
  const spread = { publisher: 'zmq', publishers: [{ dp_rank: 1, endpoint: 'tcp://10.0.0.5:5999' }] }
  t.match(readServerInfo({ ...info, kv_events: spread }, 'h')!.eventSources, [
    { dpRank: 1, endpoint: 'tcp://10.0.0.5:5999' },
  ])
})

t.test('the configuration of vLLM, as an object and as text', async t => {
  const asObject = {
    vllm_config: { scheduler_config: { max_num_batched_tokens: 8192 }, cache_config: { block_size: 16 } },
  }
  const asText = {
    vllm_config: "SchedulerConfig(max_num_batched_tokens=8192), CacheConfig(block_size=16, x='y')",
  }
  for (const body of [asObject, asText]) {
    t.match(readServerInfo(body, 'h'), { family: 'vllm', maxBatchedTokens: 8192, blockSizeTokens: 16 })
  }
})

t.test('hosts that cannot be dialled are replaced', async t => {
  for (const host of ['*', '0.0.0.0', '[::]', '::'])
    t.equal(dialled(`tcp://${host}:5557`, 'h'), 'tcp://h:5557')
  t.equal(dialled('tcp://10.1.1.1:5557', 'h'), 'tcp://10.1.1.1:5557')
  t.equal(dialled('ipc:///tmp/x', 'h'), 'ipc:///tmp/x')
  t.equal(dialled('nonsense', 'h'), undefined)
})

t.test('the owner of a model names the engine', async t => {
  t.equal(familyOfOwner('vllm'), 'vllm')
  t.equal(familyOfOwner('sglang'), 'sglang')
  t.equal(familyOfOwner('tensorrt_llm'), 'trtllm')
  t.equal(familyOfOwner('somebody'), undefined)
})

t.test('what one engine may list is bounded', async t => {
  const many = <T>(entryOf: (i: number) => T): readonly T[] =>
    Array.from({ length: 100_000 }, (_, i) => entryOf(i))
  const long = 'x'.repeat(LISTED_CHARACTERS_MAX + 1)
  const listed = readModels({
    data: [{ id: long }, { id: 'm', root: long }, ...many(i => ({ id: `m${i}` }))],
  })
  t.equal(listed?.models.length, MODELS_MAX)
  t.match(listed?.models[0], { name: 'm', root: undefined })
  const sources = Array.from({ length: 5000 }, () => ({ endpoint: 'tcp://*:5557', topic: long }))
  t.equal(readEventSources(sources, 'h')?.length, RANKS_MAX)
  t.equal(readEventSources(sources, 'h')?.[0]?.topic, '')
  t.strictSame(readEventSources([{ endpoint: 'tcp://*:5557', dp_rank: RANKS_MAX }], 'h'), [])
  t.equal(readServerInfo({ kv_events: { publishers: sources } }, 'h')?.eventSources.length, RANKS_MAX)
  const metrics = many(i => `vllm:num_requests_running{engine="${i}"} 0`).join('\n')
  t.ok(readMetrics(metrics).ranks! <= 65_536)
})
