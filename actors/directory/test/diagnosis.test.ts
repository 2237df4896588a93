/** What a diagnosis says of engines that answer in unusual ways, and of a worker of a running directory. */

import { SimulatedClock, seededRandom } from '@homing/clock'
import {
  encodeEventFrames,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  kvStored,
} from '@homing/protocol'
import { MemoryNetwork } from '@homing/transport'
import t from 'tap'
import { type DiagnoseOptions, type Diagnosis, diagnoseWorkers, parseWorkerSpec } from '../src/index.ts'
import { utf8, world } from './directory-world.ts'

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

  async engine(answers: Answers, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.outside.http.listen({ host: '10.0.0.1', port: 8000 }, exchange => {
      const answer = exchange.path in answers ? answers[exchange.path] : 404
      if (answer === undefined) return
      exchange.writeHead(typeof answer === 'number' ? answer : 200, headers)
      exchange.end(utf8.encode(typeof answer === 'object' ? JSON.stringify(answer) : String(answer)))
    })
  }

  async diagnose(url: string, given: Partial<DiagnoseOptions> = {}): Promise<Diagnosis> {
    let found: Diagnosis | undefined
    const looked = diagnoseWorkers([parseWorkerSpec(url, 0)], {
      transport: this.network.transport(),
      clock: this.clock,
      random: seededRandom(1),
      timeoutMs: 1000,
      listenMs: 100,
      replayDepth: 'whole',
      sends: false,
      defaults: { blockSizeTokens: undefined },
      ...given,
    }).then(([diagnosis]) => {
      found = diagnosis
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

t.test('a token budget that is guessed is told, with what the steps so far show', async t => {
  const place = new Place()
  const bucket = (le: string, count: number): string =>
    `vllm:iteration_tokens_total_bucket{engine="0",le="${le}",model_name="m"} ${count}.0\n`
  const steps = bucket('8.0', 150) + bucket('512.0', 200) + bucket('1024.0', 200) + bucket('+Inf', 200)
  await place.engine({ ...VLLM, '/metrics': METRICS + steps })
  t.match(about(await place.diagnose(ORIGIN), 'budget'), [
    {
      level: 'note',
      text: /8192 is a guess, the engine does not say; none of its 200 steps so far had more than 512$/,
      remedy: /\?max_batched_tokens=512$/,
    },
  ])
  const told = about(await place.diagnose(`${ORIGIN}?max_batched_tokens=512`), 'budget')
  t.match(told, [{ level: 'ok', text: 'computes up to 512 tokens in a step (given)' }])
})

t.test('too few steps show nothing of the budget', async t => {
  const place = new Place()
  const steps = ['512.0', '+Inf'].map(le => `vllm:iteration_tokens_total_bucket{le="${le}"} 99.0\n`).join('')
  await place.engine({ ...VLLM, '/metrics': METRICS + steps })
  t.match(about(await place.diagnose(ORIGIN), 'budget'), [
    { text: /8192 is a guess, the engine does not say$/ },
  ])
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
  t.match(about(found, 'blocks'), [{ text: /^block_size=16 is given, but its events have 32/ }])
  t.match(about(found, 'topic'), [{ text: /"kv-events", but "kv" is given/ }])
  t.match(about(found, 'events')[1], { level: 'warning', text: /1 of its messages are no KV events/ })
  const well = await place.diagnose(`${ORIGIN}?events=5557&replay=6557`)
  t.match(about(well, 'topic'), [])
})

t.test('a worker of a directory is looked at anew, once for all who ask at one time', async t => {
  const w = await world(t)
  const events = ['10.0.0.1', '10.0.0.2'].map(host => [
    { data_parallel_rank: 0, endpoint: `tcp://${host}:5557` },
  ])
  await w.engine('10.0.0.1', { events: events[0] })
  await w.engine('10.0.0.2', { events: events[1] })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000', 'http://10.0.0.2:8000?events=5557&replay=6557'])
  const diagnose = (workerId: string) => w.ref.ask({ type: 'diagnoseWorker', workerId }, { timeout: 60_000 })
  t.equal(await diagnose('10.0.0.9:8000'), 'unknown')

  const before = w.asked.get('10.0.0.1')!.length
  const asked = [diagnose('10.0.0.1:8000'), diagnose('10.0.0.1:8000')]
  await w.system.advance('10s')
  const [one, other] = await Promise.all(asked)
  t.strictSame(one, other)
  const paths = w.asked.get('10.0.0.1')!.slice(before)
  t.equal(paths.filter(path => path === '/version').length, 1)
  if (one === undefined || typeof one === 'string') throw new Error('no diagnosis')
  t.match(one, {
    verdict: 'inexact',
    trust: { reachable: 'partial', reason: /^no replay/ },
    known: { state: 'up', keys: [{ key: '10.0.0.1:8000/0', trust: String }] },
  })

  const dead = diagnose('10.0.0.2:8000')
  await w.system.advance('30s')
  t.match(await dead, {
    trust: { reachable: 'approximate', reason: /no event socket at tcp:\/\/10\.0\.0\.2:5557/ },
  })
})

t.test('as many as may be are looked at, and a further one is told so', async t => {
  const w = await world(t)
  const hosts = ['1', '2', '3', '4', '5'].map(n => `10.0.1.${n}`)
  for (const host of hosts) await w.engine(host)
  await w.begin(hosts.map(host => `http://${host}:8000?events=5557`))
  const asked = hosts.map(host =>
    w.ref.ask({ type: 'diagnoseWorker', workerId: `${host}:8000` }, { timeout: 60_000 }),
  )
  await w.system.advance('30s')
  const found = (await Promise.all(asked)).map(one => (typeof one === 'string' ? one : one.verdict))
  t.strictSame(found, ['inexact', 'inexact', 'inexact', 'inexact', 'busy'])
})
