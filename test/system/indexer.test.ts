/**
 * `homing indexer` as a process, beside simulated engines as processes: real HTTP, real ZeroMQ. Expected
 * answers are written by hand from the public form of such a service; hashes are the public vectors of the
 * tokens 1, 2, 3, … in blocks of four.
 */

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rename } from 'node:fs/promises'
import { request } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Answer, send, startProcess, type TestProcess, until } from './fleet.ts'

const BLOCK = 4
const MODEL = 'tiny'
/** Above 2^53, so that a double would round it. */
const ID = '9007199254740993'
const LOCAL = ['14643705804678351452', '16777012769546811212', '483935686894639516'] as const

const tokensUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1)

interface EngineProcess extends TestProcess {
  readonly events: string
  readonly replay: string | undefined
}

async function startEngine(t: Test, argv: readonly string[] = []): Promise<EngineProcess> {
  const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0']
  const process = await startProcess('engine', [
    ...ports,
    '--speed',
    '0',
    '--block-size',
    String(BLOCK),
    ...argv,
  ])
  t.teardown(() => process.kill('SIGKILL'))
  const says = /events (tcp:\S+), (?:no replay|replay (tcp:\S+))/
  const line = await until('the engine names its sockets', () =>
    process.outputLines.find(text => says.test(text)),
  )
  const [, events, replay] = says.exec(line)!
  return { ...process, events: events!, replay }
}

async function startIndexer(t: Test, argv: readonly string[] = []): Promise<TestProcess> {
  const process = await startProcess('indexer', [
    '--host',
    '127.0.0.1',
    '--port',
    '0',
    '--threads',
    '2',
    ...argv,
  ])
  t.teardown(() => process.kill('SIGKILL'))
  return process
}

/** Has an engine compute a prompt, which then lies in its cache. */
async function compute(engine: EngineProcess, tokens: readonly number[]): Promise<void> {
  const answer = await send(engine.url, '/v1/completions', { body: { prompt: tokens, max_tokens: 1 } })
  assert.equal(answer.status, 200, answer.text)
}

/** The body of a registration as text: the id is a number that JSON.stringify would round. */
function registration(
  engine: EngineProcess,
  fields: Readonly<Record<string, unknown>> = {},
  id = ID,
): string {
  const body = {
    endpoint: engine.events,
    ...(engine.replay === undefined ? {} : { replay_endpoint: engine.replay }),
    model_name: MODEL,
    block_size: BLOCK,
    ...fields,
  }
  return `{"instance_id": ${id}, ${JSON.stringify(body).slice(1)}`
}

const post = (indexer: TestProcess, path: string, body: unknown): Promise<Answer> =>
  send(indexer.url, path, { body })

const query = (indexer: TestProcess, tokens: readonly number[], fields: object = {}): Promise<Answer> =>
  post(indexer, '/query', { token_ids: tokens, model_name: MODEL, ...fields })

/** The statuses of requests that are sent at once on one connection. */
async function pipelined(url: string, path: string, count: number): Promise<number[]> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.write(`GET ${path} HTTP/1.1\r\nhost: ${hostname}:${port}\r\n\r\n`.repeat(count))
  let text = ''
  for await (const bytes of socket) {
    text += bytes
    if ([...text.matchAll(/^HTTP\/1.1 /gm)].length === count) break
  }
  return [...text.matchAll(/^HTTP\/1.1 (\d+)/gm)].map(([, status]) => Number(status))
}

/** Polls until the scores are as wanted; events need a moment. */
async function untilScores(
  indexer: TestProcess,
  tokens: readonly number[],
  scores: object,
  fields: object = {},
) {
  let last: unknown
  return until(
    `the scores are ${JSON.stringify(scores)}`,
    async () => {
      const answer = await query(indexer, tokens, fields)
      last = answer.json.scores ?? answer.text
      return JSON.stringify(last) === JSON.stringify(scores) ? answer : undefined
    },
    { seen: () => last },
  )
}

t.test('an engine is registered, queried, dumped and unregistered', async t => {
  const engine = await startEngine(t)
  const indexer = await startIndexer(t)
  await compute(engine, tokensUpTo(12))

  t.strictSame((await send(indexer.url, '/workers')).json, [])
  const registered = await post(indexer, '/register', registration(engine))
  t.strictSame([registered.status, registered.json], [201, { status: 'ok' }])

  // 12 tokens and one more, which fills no block.
  const answer = await untilScores(indexer, tokensUpTo(13), { [ID]: { 0: 12 } })
  t.strictSame(answer.json, {
    scores: { [ID]: { 0: 12 } },
    frequencies: [1, 1, 1],
    instances: { [ID]: { longest_matched: 12, gpu: 12, dp: { 0: 12 }, cpu: 12, disk: 12 } },
  })
  // A prompt that goes another way after two blocks.
  t.strictSame((await query(indexer, [...tokensUpTo(8), 90, 91, 92, 93])).json.scores, { [ID]: { 0: 8 } })
  t.strictSame((await query(indexer, [2, 1, 3, 4])).json, { scores: {}, frequencies: [], instances: {} })

  const hashes = `{"model_name": "${MODEL}", "block_hashes": [${LOCAL[0]}, ${LOCAL[1]}]}`
  t.strictSame((await post(indexer, '/query_by_hash', hashes)).json, {
    scores: { [ID]: { 0: 8 } },
    frequencies: [1, 1],
    instances: { [ID]: { longest_matched: 8, gpu: 8, dp: { 0: 8 }, cpu: 8, disk: 8 } },
  })

  const { text: workers } = await send(indexer.url, '/workers?model_name=tiny&routing_group=default')
  t.match(workers, `[{"instance_id":${ID},"source":"zmq","status":"active","model_name":"tiny",`)
  t.match(JSON.parse(workers), [
    {
      routing_group: 'default',
      block_size: 4,
      endpoints: { 0: engine.events },
      listeners: { 0: { endpoint: engine.events, status: 'active' } },
    },
  ])
  t.strictSame((await send(indexer.url, '/workers?routing_group=other')).json, [])

  const dump = await send(indexer.url, '/dump')
  t.match(
    dump.text,
    `{"worker_id":${ID},"storage_tier":"device","event":{"event_id":0,"data":{"stored":{"parent_hash":null,`,
  )
  t.strictSame(
    [...dump.text.matchAll(/"tokens_hash":(\d+)/g)].map(([, hash]) => hash),
    LOCAL,
  )
  t.equal(dump.json['tiny:default'].block_size, 4)
  const statuses = await pipelined(indexer.url, '/dump', 30)
  t.equal(statuses.filter(status => status === 200).length, 5, 'one is made and four wait')
  t.equal(statuses.filter(status => status === 503).length, 25)
  t.match((await send(indexer.url, '/metrics')).text, /homing_indexer_dumps_refused_total 25/)

  const gone = await post(indexer, '/unregister', `{"instance_id": ${ID}, "model_name": "${MODEL}"}`)
  t.strictSame([gone.status, gone.json], [200, { status: 'ok' }])
  t.equal((await query(indexer, tokensUpTo(12))).status, 404)
  t.strictSame((await send(indexer.url, '/dump')).json, {})
  const again = await post(indexer, '/unregister', `{"instance_id": ${ID}, "model_name": "${MODEL}"}`)
  t.equal(again.status, 404)

  indexer.kill('SIGTERM')
  t.equal(await indexer.ended, 0)
})

t.test('conflicts, unknown names and bad input have their statuses', async t => {
  const engine = await startEngine(t)
  const indexer = await startIndexer(t)
  t.equal((await post(indexer, '/register', registration(engine))).status, 201)
  for (const [status, path, body] of [
    // The same rank; another block size of the model; another model and another group of the instance.
    [409, '/register', registration(engine)],
    [409, '/register', registration(engine, { block_size: 16 }, '8')],
    [409, '/register', registration(engine, { dp_rank: 1, model_name: 'other' })],
    [409, '/register', registration(engine, { dp_rank: 1, routing_group: 'other' })],
    [400, '/register', registration(engine, { endpoint: 'localhost' }, '8')],
    [400, '/register', registration(engine, { block_size: 0 }, '8')],
    [400, '/register', registration(engine, {}, '-1')],
    [400, '/register', 'no json'],
    [400, '/query', '{"model_name": "tiny"}'],
    [400, '/query_by_hash', '{"model_name": "tiny", "block_hashes": [], "cache_salt": "a"}'],
    [404, '/query', '{"model_name": "other", "token_ids": [1]}'],
    [404, '/query_by_hash', '{"model_name": "tiny", "routing_group": "other", "block_hashes": []}'],
    [404, '/unregister', '{"instance_id": 8, "model_name": "tiny"}'],
    [404, '/deregister_peer', '{"url": "http://127.0.0.1:1"}'],
  ] as const) {
    const answer = await post(indexer, path, body)
    t.equal(answer.status, status, `${path} ${body.slice(0, 80)}`)
    t.match(answer.json.error, /^cannot [^\n]+$/, 'one sentence')
  }
  // The body is only announced: bytes written after the answer would break the connection.
  const { promise: status, resolve, reject } = Promise.withResolvers<number | undefined>()
  const announced = request(`${indexer.url}/query`, {
    method: 'POST',
    headers: { 'content-length': String(8 * 1024 * 1024 + 1) },
  })
  announced.on('response', response => resolve(response.statusCode)).on('error', reject)
  announced.flushHeaders()
  t.equal(await status, 413)
  announced.destroy()
  // Ignored: a tenant, and a salt that no published hash has.
  const rank = { dp_rank: 1, endpoint: 'tcp://127.0.0.1:1', replay_endpoint: null }
  const more = registration(engine, { ...rank, tenant_id: 'x', additional_salt: 'y' })
  t.equal((await post(indexer, '/register', more)).status, 201)
  t.equal((await send(indexer.url, '/health')).status, 200)
})

t.test('ranks, groups and salts are told apart', async t => {
  const [a, b, c] = [await startEngine(t), await startEngine(t), await startEngine(t)]
  const indexer = await startIndexer(t)
  await compute(a, tokensUpTo(8))
  for (const engine of [b, c]) await compute(engine, tokensUpTo(4))
  const salted = await send(c.url, '/v1/completions', {
    body: { prompt: tokensUpTo(12), max_tokens: 1, cache_salt: 'tenant-a' },
  })
  t.equal(salted.status, 200)
  await post(indexer, '/register', registration(a, {}, '7'))
  await post(indexer, '/register', registration(b, { dp_rank: 1 }, '7'))
  await post(indexer, '/register', registration(c, { routing_group: 'other' }, '8'))
  const answer = await untilScores(indexer, tokensUpTo(12), { 7: { 0: 8, 1: 4 } })
  t.strictSame(answer.json.frequencies, [2, 1])
  t.strictSame(answer.json.instances, {
    7: { longest_matched: 8, gpu: 8, dp: { 0: 8, 1: 4 }, cpu: 8, disk: 8 },
  })
  await untilScores(indexer, tokensUpTo(12), { 8: { 0: 4 } }, { routing_group: 'other' })
  const fields = { routing_group: 'other', cache_salt: 'tenant-a' }
  await untilScores(indexer, tokensUpTo(12), { 8: { 0: 12 } }, fields)
  t.strictSame((await query(indexer, tokensUpTo(12), { ...fields, cache_salt: 'b' })).json.scores, {})
})

t.test('a peer helps an indexer that starts later, and is not believed as an engine is', async t => {
  const engine = await startEngine(t, ['--no-replay'])
  const first = await startIndexer(t)
  t.equal((await post(first, '/register', registration(engine, {}, '7'))).status, 201)
  await until('the first indexer follows', async () =>
    (await send(first.url, '/workers')).json[0].status === 'active' ? true : undefined,
  )
  await compute(engine, tokensUpTo(12))
  await untilScores(first, tokensUpTo(12), { 7: { 0: 12 } })

  const second = await startIndexer(t, [
    ...['--model-name', MODEL, '--block-size', String(BLOCK), '--workers', `7=${engine.events}`],
    ...['--peers', `http://127.0.0.1:1,${first.url}`, '--peer-wait', '3s'],
  ])
  const told = await until('what peers said is told', () =>
    second.outputLines.find(line => line.startsWith('peers: ')),
  )
  t.equal(told, `peers: 3 blocks of 1 of 1 ranks are known only from ${first.url}`)
  t.strictSame((await send(second.url, '/peers')).json, ['http://127.0.0.1:1', first.url])
  const answer = await query(second, tokensUpTo(12))
  t.strictSame(answer.json.scores, { 7: { 0: 12 } })
  t.equal(answer.headers['x-homing-trust'], 'approximate')
  t.match((await send(second.url, '/workers')).json[0].listeners[0], {
    trust: 'approximate',
    inherited: { peer: first.url, blocks: 3 },
  })

  // Events go on from there: a longer prompt, then an empty cache.
  await compute(engine, tokensUpTo(20))
  await untilScores(second, tokensUpTo(20), { 7: { 0: 20 } })
  t.equal((await send(engine.url, '/reset_prefix_cache', { method: 'POST' })).status, 200)
  // As vLLM does, it publishes that with its next step.
  await compute(engine, [90, 91, 92, 93])
  await untilScores(second, tokensUpTo(20), {})
})

t.test('the access log says one line per request, and begins anew after it was moved', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'homing-indexer-'))
  const path = join(folder, 'access.log')
  const indexer = await startIndexer(t, ['--access-log', path, '--trace-id-header', 'X-Request-Id'])
  const linesOf = async (file: string): Promise<readonly Record<string, unknown>[]> => {
    const text = await readFile(file, 'utf8').catch(() => '')
    return text
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line) as Record<string, unknown>)
  }
  await send(indexer.url, '/query', {
    body: { token_ids: [], model_name: 'm' },
    headers: { 'x-request-id': 'abc' },
  })
  const [line] = await until('a line is written', async () => {
    const lines = await linesOf(path)
    return lines.length > 0 ? lines : undefined
  })
  t.match(line, { method: 'POST', path: '/query', model: 'm', status: 404, trace_id: 'abc' })
  await rename(path, `${path}.1`)
  t.equal((await send(indexer.url, '/reopen_logs', { method: 'POST' })).status, 200)
  await send(indexer.url, '/health')
  indexer.kill('SIGTERM')
  t.equal(await indexer.ended, 0)
  t.match((await linesOf(path)).at(-1), { method: 'GET', path: '/health', model: '-', trace_id: '-' })
})
