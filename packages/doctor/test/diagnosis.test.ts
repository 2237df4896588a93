/** What a diagnosis says of engines that answer in unusual ways. */

import { SimulatedClock, seededRandom } from '@homing/base'
import { parseWorkerSpec } from '@homing/fleet'
import {
  encodeEventFrames,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  kvStored,
} from '@homing/protocol'
import { MemoryNetwork } from '@homing/transport'
import t from 'tap'
import { type DiagnoseOptions, type Diagnosis, diagnoseWorkers } from '../src/index.ts'

const utf8 = new TextEncoder()
const ORIGIN = 'http://10.0.0.1:8000'
const MODELS = { data: [{ id: 'm', owned_by: 'vllm', root: '/models/m', parent: null, max_model_len: 4096 }] }
const METRICS =
  'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="0"} 1.0\nprocess_start_time_seconds 1000\n'

/** By path: JSON, a text, a status, or undefined for no answer ever. */
type Answers = Readonly<Record<string, object | string | number | undefined>>

const VLLM: Answers = {
  '/v1/models': MODELS,
  '/version': { version: '0.25.1' },
  '/metrics': METRICS,
  '/tokenize': { tokens: [1, 2] },
}

class Place {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly outside = this.network.transport()

  async engine(
    answers: Answers,
    headers: Readonly<Record<string, string>> = {},
    port = 8000,
    delayMs = 0,
  ): Promise<void> {
    await this.outside.http.listen({ host: '10.0.0.1', port }, exchange => {
      const answer = exchange.path in answers ? answers[exchange.path] : 404
      if (answer === undefined) return
      this.clock.after(delayMs, () => {
        exchange.writeHead(typeof answer === 'number' ? answer : 200, headers)
        exchange.end(utf8.encode(typeof answer === 'object' ? JSON.stringify(answer) : String(answer)))
      })
    })
  }

  async diagnose(url: string, given: Partial<DiagnoseOptions> = {}): Promise<Diagnosis> {
    const [found] = await this.diagnoseAll([url], given)
    return found!
  }

  async diagnoseAll(
    urls: readonly string[],
    given: Partial<DiagnoseOptions> = {},
  ): Promise<readonly Diagnosis[]> {
    let found: readonly Diagnosis[] | undefined
    const looked = diagnoseWorkers(urls.map(parseWorkerSpec), {
      transport: this.network.transport(),
      clock: this.clock,
      random: seededRandom(1),
      timeoutMs: 1000,
      listenMs: 100,
      replayDepth: 'whole',
      sends: false,
      defaults: { blockSizeTokens: undefined },
      ...given,
    }).then(diagnoses => {
      found = diagnoses
    })
    while (found === undefined) {
      await new Promise(resolve => setImmediate(resolve))
      this.clock.advance(10)
    }
    await looked
    return found
  }
}

const about = ({ findings }: Diagnosis, subject: string) => findings.filter(({ about }) => about === subject)

t.test('a token budget that is guessed is told, with how to name it', async t => {
  const place = new Place()
  await place.engine(VLLM)
  t.match(about(await place.diagnose(ORIGIN), 'budget'), [
    { level: 'note', text: /^up to 8192 tokens in a step is a guess/, remedy: /\?max_batched_tokens=512/ },
  ])
  const told = about(await place.diagnose(`${ORIGIN}?max_batched_tokens=512`), 'budget')
  t.match(told, [{ level: 'ok', text: 'computes up to 512 tokens in a step (given)' }])
})

t.test('a clock that is off is told', async t => {
  for (const [offMs, text] of [
    [0, /^agrees/],
    [60_000, /^6[01] s ahead of/],
    [-7_200_000, /^(7199|7200) s behind/],
  ] as const) {
    const place = new Place()
    await place.engine(VLLM, { date: new Date(place.clock.wallMs() + offMs).toUTCString() })
    const [clock] = about(await place.diagnose(ORIGIN), 'clock')
    t.match(clock, { text, level: offMs === 0 ? 'ok' : 'note' })
  }
})

t.test('an engine that needs more than half of its time is slow', async t => {
  const place = new Place()
  await place.engine(VLLM, {}, 8000, 700)
  const found = await place.diagnose(ORIGIN)
  t.equal(found.verdict, 'inexact')
  t.match(about(found, 'answers'), [
    { level: 'warning', text: /^vllm 0\.25\.1 is slow: GET \S+ took 7\d\d ms of 1000 at most$/ },
  ])
})

t.test('questions that get no answer are named, with what is not known for it', async t => {
  const place = new Place()
  await place.engine({ ...VLLM, '/kv_event_sources': undefined, '/metrics': 503 })
  const found = await place.diagnose(ORIGIN)
  t.match(found, { verdict: 'inexact', trust: { reachable: 'approximate' } })
  t.match(about(found, 'answers')[1], {
    level: 'warning',
    text: /no answer within 1000 ms to \/kv_event_sources, \/metrics: not known is .*where it publishes events.*its block size/,
  })
  t.match(about(found, 'events'), [{ text: 'it did not answer whether it publishes KV events' }])
  t.equal(found.engineFlags, undefined, 'it may have them')
})

t.test(
  'an engine that tells a socket at which it does not listen gets options that make it listen',
  async t => {
    const place = new Place()
    // With such an endpoint vLLM connects, and publishes to nobody.
    const sources = [{ data_parallel_rank: 0, endpoint: 'tcp://0.0.0.0:5557', topic: 'kv' }]
    await place.engine({ ...VLLM, '/kv_event_sources': sources })
    const found = await place.diagnose(ORIGIN)
    t.match(about(found, 'events'), [
      {
        level: 'warning',
        text: 'no event socket at tcp://10.0.0.1:5557: nothing listens there',
        remedy:
          /^start the engine with the options of this diagnosis: with an address instead of \* it connects/,
      },
    ])
    t.match(found.engineFlags, /"endpoint":"tcp:\/\/\*:5557".*"topic":"kv"/)
  },
)

t.test('the port is said where it is the one of the scheme', async t => {
  const place = new Place()
  const nobody = await place.diagnose('http://10.0.0.1')
  t.strictSame(nobody.doors, [{ at: '10.0.0.1:80', use: 'requests', dpRank: undefined }])
  t.match(nobody.findings[0]!.text, /10\.0\.0\.1:80\b/)
  await place.engine(VLLM, {}, 80)
  t.equal((await place.diagnose('http://10.0.0.1')).doors[0]!.at, '10.0.0.1:80')
})

t.test('ranks without events are named', async t => {
  const place = new Place()
  const sources = [0, 2].map(rank => ({ data_parallel_rank: rank, endpoint: `tcp://*:${5557 + rank}` }))
  const ranks = [0, 1, 2].map(rank => `vllm:num_requests_running{engine="${rank}"} 0.0\n`).join('')
  await place.engine({ ...VLLM, '/kv_event_sources': sources, '/metrics': METRICS + ranks })
  for (const rank of [0, 2])
    await place.outside.messages.publish({ endpoint: `tcp://10.0.0.1:${5557 + rank}` })
  const found = await place.diagnose(ORIGIN)
  t.match(about(found, 'events')[0], { level: 'warning', text: 'no KV events of rank 1' })
})

t.test('an engine that makes other tokens of a chat is told, with what to give the router', async t => {
  const place = new Place()
  await place.engine({ ...VLLM, '/tokenize': { tokens: [1, 2, 9] } })
  const tokens = async (...ids: number[]) => {
    const chat = Int32Array.from(ids)
    const tokenizer = { name: '/models/m', encode: () => chat, encodeChat: () => chat }
    return about(await place.diagnose(ORIGIN, { tokenizerOf: async () => tokenizer }), 'tokens')
  }
  t.match(await tokens(1, 2, 9), [{ level: 'ok' }])
  t.match(await tokens(1, 2), [
    { level: 'warning', text: /3 tokens.*that are 2.*from token 2 on/, remedy: /--chat-template/ },
  ])
})

t.test('one engine that is given twice is told', async t => {
  const place = new Place()
  await place.engine(VLLM)
  const [first, second] = await place.diagnoseAll([ORIGIN, `${ORIGIN}?ranks=1`])
  t.strictSame(about(first!, 'ports'), [])
  t.match(about(second!, 'ports'), [
    { level: 'warning', text: '10.0.0.1:8000 is given twice', remedy: /once/ },
  ])
})

t.test('each family gets its own options', async t => {
  const sglang = new Place()
  const owner = (name: string) => ({ data: [{ ...MODELS.data[0], owned_by: name }] })
  await sglang.engine({ '/v1/models': owner('sglang'), '/server_info': { page_size: 1, kv_events: null } })
  const found = await sglang.diagnose(ORIGIN)
  t.equal(
    found.engineFlags,
    `--kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}' --page-size 16`,
  )
  t.match(about(found, 'blocks'), [
    { level: 'warning', text: 'blocks of 1 token flood the event stream', remedy: /--page-size 16/ },
  ])
  t.strictSame(
    found.doors.map(({ at }) => at),
    ['10.0.0.1:8000', '10.0.0.1:5557', '10.0.0.1:6557'],
  )
  const tensorRt = new Place()
  await tensorRt.engine({ '/v1/models': owner('tensorrt_llm') })
  const other = await tensorRt.diagnose(ORIGIN)
  t.equal(other.engineFlags, undefined)
  t.match(about(other, 'events'), [
    { remedy: /homing sidecar --poll http:\/\/10\.0\.0\.1:8000 --block-size TOKENS$/ },
  ])
})

t.test('what events show outweighs what was given: block size, topic, rank', async t => {
  const place = new Place()
  await place.engine(VLLM)
  const payload = encodeKvBatch(
    {
      timestampSeconds: 1,
      rank: 3,
      events: [
        kvStored({
          hashes: Int32Array.of(1, 2),
          parent: undefined,
          tokens: new Int32Array(32),
          blockSizeTokens: 32,
        }),
      ],
    },
    'vllm-map',
  )
  const events = await place.outside.messages.publish({ endpoint: 'tcp://10.0.0.1:5557' })
  const replay = await place.outside.messages.serve({ endpoint: 'tcp://10.0.0.1:6557' }, identity => {
    replay.send(identity, encodeReplayReply('topic', 'kv-events', 0, payload))
    replay.send(identity, encodeReplayEnd('topic'))
    events.send(encodeEventFrames('kv-events', 1, payload))
    events.send(encodeEventFrames('kv-events', 2, new Uint8Array(3)))
  })
  const found = await place.diagnose(`${ORIGIN}?events=5557&replay=6557&block_size=16&topic=kv`, {
    listenMs: 500,
  })
  t.match(about(found, 'blocks'), [{ text: /^a block size of 16 is given, but its events have 32/ }])
  t.match(about(found, 'topic'), [{ text: /"kv-events", but "kv" is given/ }])
  t.match(about(found, 'events')[1], { level: 'warning', text: /1 of its messages are no KV events/ })
  const well = await place.diagnose(`${ORIGIN}?events=5557&replay=6557`)
  t.match(about(well, 'topic'), [])
})

t.test('a block size for all workers is one that was given', async t => {
  const place = new Place()
  await place.engine(VLLM)
  const found = await place.diagnose(ORIGIN, { defaults: { blockSizeTokens: 64 } })
  t.match(about(found, 'blocks'), [
    {
      level: 'warning',
      text: /^a block size of 64 is given, but its configuration says 16/,
      remedy: /--kv-cache-block-size/,
    },
  ])
  t.equal(found.trust.reachable, 'approximate')
})

t.test('workers of one model whose blocks have several sizes are told', async t => {
  const place = new Place()
  await place.engine(VLLM)
  await place.engine({ ...VLLM, '/metrics': METRICS.replace('16', '32') }, {}, 8001)
  const [first, second] = await place.diagnoseAll([ORIGIN, 'http://10.0.0.1:8001'])
  t.match(about(first!, 'blocks'), [{ level: 'ok' }])
  t.match(about(second!, 'blocks'), [
    { level: 'warning', text: 'blocks of 32 tokens, but 10.0.0.1:8000 of the same model has 16' },
  ])
  t.equal(second!.trust.reachable, 'approximate')
})

t.test('what an engine writes about itself stays on its line', async t => {
  const place = new Place()
  const name = `a\u001b[2J\nb${'x'.repeat(5000)}`
  await place.engine({
    ...VLLM,
    '/v1/models': { data: [{ ...MODELS.data[0], id: name }] },
    '/version': { version: '\u001b]0;title\u0007' },
  })
  const found = await place.diagnose(ORIGIN)
  for (const text of [
    found.engineVersion,
    ...found.findings.flatMap(({ text, remedy }) => [text, remedy ?? '']),
    ...found.steps.map(({ told }) => told),
  ]) {
    t.notMatch(text, /\p{Cc}/u)
    t.ok(text.length < 600)
  }
})

t.test('requests that wait in an engine are told', async t => {
  const place = new Place()
  const waiting = 'vllm:num_requests_waiting{engine="0"} 7.0\nvllm:num_requests_waiting{engine="1"} 5.0\n'
  await place.engine({ ...VLLM, '/metrics': METRICS + waiting })
  t.match(about(await place.diagnose(ORIGIN), 'answers'), [
    { level: 'ok' },
    { level: 'note', text: '12 requests wait in it' },
  ])
})

t.test('an event endpoint that nothing can connect to is a finding', async t => {
  const place = new Place()
  const sources = [{ data_parallel_rank: 0, endpoint: `tcp://*:${2 ** 53 - 1}` }]
  await place.engine({ '/v1/models': MODELS, '/kv_event_sources': sources })
  const found = await place.diagnose(ORIGIN)
  const finding = found.findings.find(({ text }) =>
    text.includes('nothing can connect to its event endpoint'),
  )
  t.match(finding, { text: /9007199254740991/, remedy: /events=PORT/ })
})

t.test('whatever an engine answers, a diagnosis ends in time and says something', async t => {
  const seed = Number(process.env['HOMING_SEED'] ?? 1)
  t.comment(`HOMING_SEED=${seed}`)
  const random = seededRandom(seed)
  const odd: readonly unknown[] = [
    undefined,
    null,
    404,
    500,
    '',
    'x'.repeat(10_000),
    '\u001b[31m\n\n',
    -1,
    1e300,
    5557,
    2 ** 53 - 1,
    [],
    {},
    [[], {}, null],
    ['\u0000'],
  ]
  const pick = <T>(items: readonly T[]): T => items[random.below(items.length)]!
  const value = (depth: number): unknown =>
    depth === 0 || random.below(3) === 0
      ? pick(odd)
      : Object.fromEntries(FIELDS.filter(() => random.below(2) === 0).map(name => [name, value(depth - 1)]))
  for (let run = 0; run < 40; run++) {
    const place = new Place()
    const answers: Record<string, object | string | number | undefined> = {}
    for (const path of PATHS)
      if (random.below(4) > 0) answers[path] = pick([value(3), pick(odd)]) as object | string
    if (random.below(4) > 0) answers['/v1/models'] = pick([MODELS, { data: [value(1), value(2)] }])
    await place.engine(answers)
    const frames = () =>
      Array.from({ length: 1 + random.below(4) }, () =>
        Uint8Array.from({ length: random.below(20) }, () => random.below(256)),
      )
    const events = await place.outside.messages.publish({ endpoint: 'tcp://10.0.0.1:5557' })
    const replay = await place.outside.messages.serve({ endpoint: 'tcp://10.0.0.1:6557' }, identity => {
      for (let i = 0; i < 5; i++) {
        replay.send(identity, frames())
        events.send(frames())
      }
    })
    const startMs = place.clock.nowMs()
    const query = pick([
      '',
      '?events=5557&replay=6557',
      '?events=5557&ranks=3&topic=x',
      '?block_size=1&model=z',
    ])
    const found = await place.diagnose(`${ORIGIN}${query}`, { sends: random.below(2) === 0, timeoutMs: 500 })
    t.ok(place.clock.nowMs() - startMs < 10 * 500 + 200, `run ${run}: in time`)
    t.ok(found.findings.length > 0)
    t.ok(['well', 'inexact', 'unusable'].includes(found.verdict))
    for (const { text, remedy } of found.findings) t.notMatch(`${text}${remedy ?? ''}`, /\p{Cc}/u)
  }
})

const PATHS = [
  '/v1/models',
  '/version',
  '/server_info',
  '/get_server_info',
  '/model_info',
  '/kv_event_sources',
  '/metrics',
  '/tokenize',
  '/v1/completions',
]
const FIELDS = [
  'data',
  'id',
  'version',
  'tokens',
  'sources',
  '0',
  'endpoint',
  'endpoint_port_base',
  'topic',
  'kv_events',
  'page_size',
  'dp_size',
  'usage',
  'prompt_tokens_details',
  'vllm_config',
]
