/**
 * A fuzzer over real sockets: clients that send damaged requests and leave when they like, and engines that
 * answer with damaged answers, to a router that is a process of its own. It must live, no actor of it may
 * fail, and nothing may stay open, booked or counted.
 *
 * Runs for HOMING_FUZZ_SECONDS, 5 unless given. Each case has a seed of its own: HOMING_SEED is the first.
 */

import { createConnection, type Socket } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { connect as connectTls } from 'node:tls'
import { type Random, seededRandom } from '@homing/base'
import t, { type Test } from 'tap'
import { certificate, hasOpenssl } from '../system/certificates.ts'
import { RouterClient, send, startEngines, startProcess, type TestProcess, until } from '../system/fleet.ts'
import { startRawEngine } from '../system/raw-engine.ts'
import { mutated, mutatedJson, mutatedText, pick, stretched } from './mutations.ts'

const SECONDS = Number(process.env['HOMING_FUZZ_SECONDS'] ?? 5)
const FIRST_SEED = Number(process.env['HOMING_SEED'] ?? 1)
const MODEL = 'homing-sim'
const CLIENTS = 24
/** A client that has no answer by then leaves. */
const CLIENT_MS_MAX = 3000
/** Everything of a request must have ended after the times that the router is given below. */
const REST_MS_MAX = 30_000
const LIMITS = [
  '--silence-timeout',
  '500ms',
  '--request-timeout',
  '2s',
  '--client-stall-timeout',
  '1s',
  '--router-mode',
  'round-robin',
]

const MESSAGES = [
  { role: 'system', content: 'be brief' },
  { role: 'user', content: [{ type: 'text', text: 'tell me "something" é💥' }] },
]
const BODIES: readonly (readonly [path: string, body: object])[] = [
  ['/v1/chat/completions', { messages: MESSAGES, max_tokens: 5, stream: true }],
  ['/v1/chat/completions', { messages: MESSAGES, n: 2, stop: ['a'], nvext: { annotations: ['worker_id'] } }],
  ['/v1/completions', { prompt: [1, 2, 3, 4], max_tokens: 3, stream: true, cache_salt: 's' }],
  ['/v1/completions', { prompt: ['a', 'b'], max_tokens: 3, nvext: { priority: 2, backend_instance_id: 1 } }],
  ['/v1/messages', { messages: [{ role: 'user', content: 'hi' }], system: 's', max_tokens: 3, stream: true }],
  ['/v1/responses', { input: 'hi', max_output_tokens: 3, previous_response_id: 'resp_1', stream: true }],
  ['/v1/embeddings', { input: ['a', 'b'] }],
  ['/tokenize', { prompt: 'a b c' }],
  ['/route', { prompt: 'a b c', router: { overlap_score_weight: 2 } }],
]
const WORKER = { worker_id: 1, dp_rank: 0, instance_id: 1, model_name: MODEL, block_size: 16 }
const TOKENS = Array.from({ length: 40 }, (_, i) => i)
/** What services take, and the routes of the router for programs. */
const SERVICES: Readonly<Record<string, typeof BODIES>> = {
  router: [
    ['/v1/router/best_worker', { token_ids: TOKENS, request_id: 'a' }],
    ['/v1/router/new', { token_ids: TOKENS, request_id: 'b', worker_id: 1, dp_rank: 0 }],
    ['/v1/router/potential_loads', { token_ids: TOKENS }],
    ['/v1/router/find_matches', { token_ids: TOKENS }],
    ['/v1/router/mark_prefill', { request_id: 'a' }],
    ['/v1/router/free', { request_id: 'a' }],
    ['/busy_threshold', { active_decode_blocks_threshold: 0.9 }],
    ['/workers', { url: 'http://127.0.0.1:9' }],
    ['/what_if', { policies: ['linear'] }],
  ],
  select: [
    ['/workers', { ...WORKER, kv_events_endpoint: 'tcp://127.0.0.1:9' }],
    ['/select', { token_ids: TOKENS, request_id: 'a', pinned_worker: { worker_id: 1, dp_rank: 0 } }],
    ['/select_and_reserve', { token_ids: TOKENS, request_id: 'b' }],
    ['/reservations', { request_id: 'a', selection_id: 'a', worker_id: 1 }],
    ['/reservations/a/output_block', {}],
    ['/potential_loads', { token_ids: TOKENS }],
    ['/overlap_scores', { token_ids: TOKENS }],
  ],
  slots: [
    ['/register', { ...WORKER, dp_start: 0, dp_size: 2 }],
    ['/add', { ...WORKER, request_id: 'a', token_ids: TOKENS, sequence_hashes: [1, 2], isl: 40 }],
    ['/prefill_complete', { request_id: 'a' }],
    ['/free', { request_id: 'a' }],
    ['/potential_loads', { ...WORKER, token_ids: TOKENS }],
    ['/unregister', WORKER],
  ],
  indexer: [
    ['/register', { ...WORKER, endpoint: 'tcp://127.0.0.1:9', replay_endpoint: 'tcp://127.0.0.1:9' }],
    ['/query', { ...WORKER, token_ids: TOKENS }],
    ['/query_by_hash', { ...WORKER, block_hashes: [1, 2, 3] }],
    ['/unregister', WORKER],
  ],
}
const PLAIN = [
  '/',
  '/health',
  '/v1/models',
  '/v1/models/x',
  '/workers',
  '/decisions?limit=3',
  '/metrics',
  '/%2e',
]
const CHUNK = { id: 'c', object: 'chat.completion.chunk', created: 1, model: MODEL }
const USAGE = { prompt_tokens: 4, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 4 } }
const EVENTS = [
  { ...CHUNK, choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }] },
  { ...CHUNK, choices: [{ index: 0, delta: { content: 'a' }, text: 'a', finish_reason: null }] },
  { ...CHUNK, choices: [{ index: 0, delta: {}, text: '', finish_reason: 'stop' }] },
  { ...CHUNK, choices: [], usage: USAGE },
].map(event => `data: ${JSON.stringify(event)}\n\n`)
const WHOLE = JSON.stringify({
  ...{ id: 'c', object: 'chat.completion', created: 1, model: MODEL },
  choices: [{ index: 0, message: { role: 'assistant', content: 'a' }, text: 'a', finish_reason: 'stop' }],
  usage: USAGE,
})

const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const DONE = 'data: [DONE]\n\n'
const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
const ANSWERS: readonly string[] = [
  `${STREAM_HEAD}transfer-encoding: chunked\r\n\r\n${[...EVENTS, DONE, ''].map(chunked).join('')}`,
  `${STREAM_HEAD}connection: close\r\n\r\n${EVENTS.join('')}${DONE}`,
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${WHOLE.length}\r\n\r\n${WHOLE}`,
  `HTTP/1.1 429 Too Many\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`,
  `HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops`,
  `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n`,
]

/** One of these with changes of one kind, or as it is. */
function damaged(random: Random, text: string, others: readonly string[]): Uint8Array {
  const kind = random.below(8)
  if (kind < 3) return Buffer.from(text)
  if (kind < 5) return Buffer.from(mutatedText(random, text))
  if (kind === 5 && random.below(8) === 0) return Buffer.from(stretched(random, text))
  return mutated(
    random,
    Buffer.from(text),
    others.map(other => Buffer.from(other)),
  )
}

function requestOf(random: Random, bodies: typeof BODIES): string {
  if (random.below(6) === 0) {
    const method = pick(random, ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
    return `${method} ${pick(random, PLAIN)} HTTP/1.1\r\nhost: x\r\n\r\n`
  }
  const [path, base] = pick(random, bodies)
  const given = JSON.stringify({ model: MODEL, ...base })
  const body = random.below(2) === 0 ? given : (mutatedJson(random, given) ?? given)
  const version = random.below(12) === 0 ? '1.0' : '1.1'
  const length =
    random.below(4) === 0
      ? `transfer-encoding: chunked\r\n\r\n${chunked(body)}0\r\n\r\n`
      : `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  return `POST ${path} HTTP/${version}\r\nhost: x\r\ncontent-type: application/json\r\n${length}`
}

/** In pieces, with pauses of the event loop between some; then an end of one kind, or none. */
function sayAll(random: Random, socket: Socket, wire: Socket, bytes: Uint8Array): void {
  let at = 0
  const end = random.below(5)
  const more = (): void => {
    if (socket.destroyed) return
    if (at >= bytes.length) {
      if (end === 0) socket.destroy()
      else if (end === 1) wire.resetAndDestroy()
      else if (end === 2) socket.end()
      return
    }
    const size = random.below(3) === 0 ? 1 + random.below(64) : bytes.length
    socket.write(bytes.subarray(at, at + size))
    at += size
    setImmediate(more)
  }
  more()
}

/** One request, or two at once, and the end of their connection. */
function client(seed: number, port: number, isTls: boolean, bodies: typeof BODIES): Promise<void> {
  const random = seededRandom(seed)
  return new Promise(resolve => {
    const wire = createConnection({ port, host: '127.0.0.1', allowHalfOpen: random.below(2) === 0 })
    const socket = isTls ? connectTls({ socket: wire, rejectUnauthorized: false }) : wire
    wire.on('error', () => {})
    const msMax = random.below(6) === 0 ? CLIENT_MS_MAX : CLIENT_MS_MAX / 10
    const timer = setTimeout(() => socket.destroy(), 1 + random.below(msMax))
    const isQuick = random.below(4) > 0
    socket.on('error', () => {})
    socket.on(isTls ? 'secureConnect' : 'connect', () => {
      const requests = Array.from({ length: 1 + random.below(2) }, () => requestOf(random, bodies))
      const whole = requests.join('')
      const isWell = random.below(2) === 0
      sayAll(random, socket, wire, isWell ? Buffer.from(whole) : damaged(random, whole, requests))
    })
    // Some read nothing.
    if (random.below(10) > 0) socket.on('data', data => isQuick && hasEnded(data) && socket.destroy())
    socket.on('end', () => socket.destroy())
    socket.on('close', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}

/** Most answers have come whole with one of these. */
function hasEnded(data: Buffer): boolean {
  return /\}\s*$|\r\n0\r\n\r\n$/.test(data.subarray(-16).toString('latin1'))
}

async function figure(router: RouterClient, name: string): Promise<number> {
  const { text } = await router.send('/metrics')
  return [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)$`, 'gm'))].reduce(
    (sum, [, value]) => sum + Number(value),
    0,
  )
}

/** Many clients at a time, for a while; then the process must live, and have foreseen all that failed. */
async function runClients(
  t: Test,
  served: TestProcess,
  seconds: number,
  isTls: boolean,
  bodies: typeof BODIES,
): Promise<void> {
  let endedWith: unknown
  void served.ended.then(how => {
    endedWith = how
  })
  const port = Number(new URL(served.url).port)
  const endMs = performance.now() + seconds * 1000
  let seed = FIRST_SEED
  const one = async (): Promise<void> => {
    while (performance.now() < endMs && endedWith === undefined) await client(seed++, port, isTls, bodies)
  }
  await Promise.all(Array.from({ length: CLIENTS }, one))
  t.comment(`${seed - FIRST_SEED} connections`)
  const { errorLines } = served
  t.equal(endedWith, undefined, `it lives: ${errorLines.slice(-20).join('\n')}`)
  const unexpected = errorLines.filter(line => line.includes('HOMING_INTERNAL'))
  t.strictSame(unexpected, [], 'nothing fails that is not foreseen')
  t.equal((await send(served.url, '/health')).status, 200)
}

for (const isTls of [false, true]) {
  const name = `damaged requests${isTls ? ' over TLS' : ''} and answers for ${SECONDS} s (HOMING_SEED=${FIRST_SEED})`
  const skip = isTls && !hasOpenssl ? 'openssl is not installed' : false
  t.test(name, { skip }, async t => {
    let answers = 0
    const answer = (socket: Socket): void => {
      const random = seededRandom(FIRST_SEED + 1_000_000 + answers++)
      sayAll(random, socket, socket, damaged(random, pick(random, ANSWERS), ANSWERS))
    }
    const odd = await Promise.all([startRawEngine(MODEL, answer), startRawEngine(MODEL, answer)])
    t.teardown(() => {
      for (const engine of odd) engine.close()
    })
    const good = await startEngines([{}])
    t.teardown(good.stop)
    const workers = [...odd, ...good.engines].flatMap(({ url }) => ['--worker', url])
    const folder = t.testdir({})
    const tls = isTls ? ['--tls-cert', join(folder, 'tls.pem'), '--tls-key', join(folder, 'tls.key')] : []
    if (isTls) certificate(folder, 'tls', 'IP:127.0.0.1')
    const router = await startProcess('router', [
      '--port',
      '0',
      ...workers,
      ...LIMITS,
      ...tls,
      '--log-level',
      'error',
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const outside = new RouterClient(router.url)
    await until('its model is listed', async () => {
      const { json } = await outside.send('/v1/models')
      return json.data.length > 0 ? true : undefined
    })
    const restarts = await figure(outside, 'homing_actor_restarts_total')
    await runClients(t, router, SECONDS, isTls, BODIES)
    t.comment(`${answers} damaged answers`)
    t.equal(
      await figure(outside, 'homing_actor_restarts_total'),
      restarts,
      router.errorLines.slice(-5).join('\n'),
    )
    await outside.drained(REST_MS_MAX)
    for (const name of [
      'homing_gateway_open_requests',
      'homing_gateway_body_bytes',
      'homing_gateway_continuation_bytes',
    ])
      await until(`${name} is 0`, async () => ((await figure(outside, name)) === 0 ? true : undefined), {
        msMax: REST_MS_MAX,
        seen: () => name,
      })
    t.pass('nothing is kept')
  })
}

for (const [command, bodies] of Object.entries(SERVICES)) {
  const seconds = SECONDS / 2
  t.test(`damaged requests to ${command} for ${seconds} s (HOMING_SEED=${FIRST_SEED})`, async t => {
    const good = await startEngines([{}])
    t.teardown(good.stop)
    const workers = command === 'router' ? ['--worker', good.engines[0]!.url] : []
    const service = await startProcess(command, ['--port', '0', ...workers, '--log-level', 'error'])
    t.teardown(() => service.kill('SIGKILL'))
    await runClients(t, service, seconds, false, bodies)
  })
}
