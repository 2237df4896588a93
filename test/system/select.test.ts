/**
 * `homing select` over real sockets: what its routes take and answer, beside simulated engines with real KV
 * events. That it chooses as a router does is tested in select-parity.test.ts.
 */

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { DEFAULT_SEED, hashBlocks, hashToBigInt } from '@homing/blocks'
import { type GivenSelectSettings, startSelect } from 'homing'
import t, { type Test } from 'tap'
import {
  type Answer,
  type Call,
  freePortPairs,
  send,
  startEngines,
  startProcess,
  type ThreadEngine,
  until,
} from './fleet.ts'

const OK = { status: 'ok' }
const BLOCK = 4
const MODEL = 'm'
/** A worker without events: what it holds is guessed from reservations. */
const WORKER = { worker_id: 7, model_name: MODEL, endpoint: 'http://a:1', block_size: BLOCK }
const NAMES = { model_name: MODEL, routing_group: 'default' }

const tokensUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1)

interface Select {
  readonly url: string
  call(method: string, path: string, body?: unknown): Promise<Answer>
  post(path: string, body?: unknown): Promise<Answer>
  get(path: string): Promise<Answer>
}

function clientOf(url: string): Select {
  const call = (method: string, path: string, body?: unknown): Promise<Answer> => {
    const options: Call = body === undefined ? { method } : { method, body }
    return send(url, path, options)
  }
  return { url, call, post: (path, body) => call('POST', path, body), get: path => call('GET', path) }
}

async function select(t: Test, given: GivenSelectSettings = {}): Promise<Select> {
  const started = await startSelect({
    host: '127.0.0.1',
    port: 0,
    eventThreads: 1,
    logLevel: 'error',
    ...given,
  })
  t.teardown(() => started.stop(0))
  return clientOf(started.url)
}

/** Rows of all groups: worker, rank, prefill tokens, blocks, requests. */
async function loadsOf({ get }: Select): Promise<readonly (readonly number[])[]> {
  const groups = (await get('/loads')).json as readonly {
    readonly loads: readonly Record<string, number>[]
  }[]
  return groups.flatMap(({ loads }) =>
    loads.map(row => [
      row['worker_id']!,
      row['dp_rank']!,
      row['active_prefill_tokens']!,
      row['active_decode_blocks']!,
      row['active_requests']!,
    ]),
  )
}

/** A worker as its engine is to be added. */
function workerOf({ url, description }: ThreadEngine, workerId: number, fields: object = {}): object {
  return {
    worker_id: workerId,
    model_name: MODEL,
    endpoint: url,
    block_size: description.blockSizeTokens,
    data_parallel_size: description.ranks.length,
    kv_events_endpoints: Object.fromEntries(description.ranks.map(({ rank, events }) => [rank, events])),
    replay_endpoint: Object.fromEntries(description.ranks.map(({ rank, replay }) => [rank, replay])),
    ...fields,
  }
}

/** From pairs [lo, hi]. */
function hashesOf(words: Int32Array): readonly bigint[] {
  return Array.from({ length: words.length / 2 }, (_, i) => hashToBigInt(words[2 * i]!, words[2 * i + 1]!))
}

/** As `JSON.parse` reads it. */
const approximately = (hash: bigint): bigint => BigInt(Number(hash))

async function compute(engine: ThreadEngine, tokens: readonly number[]): Promise<void> {
  const answer = await send(engine.url, '/v1/completions', { body: { prompt: tokens, max_tokens: 1 } })
  assert.equal(answer.status, 200, answer.text)
}

t.test('a prompt counts at the worker of its selection from reserving to freeing', async t => {
  const s = await select(t)
  t.match(await s.get('/health'), { status: 200, json: OK })
  t.equal((await s.get('/ready')).status, 503, 'no worker is there')
  t.match(await s.post('/workers', WORKER), { status: 201, json: OK })
  t.equal((await s.get('/ready')).status, 200)
  t.match((await s.get('/workers')).json, [
    {
      worker_id: 7,
      model_name: MODEL,
      routing_group: 'default',
      endpoint: 'http://a:1',
      block_size: BLOCK,
      lifecycle: 'schedulable',
      listeners: { 0: { status: 'none', trust: 'approximate' } },
    },
  ])
  const prompt = { model_name: MODEL, token_ids: tokensUpTo(10) }
  const chosen = await s.post('/select', { ...prompt, selection_id: 'a' })
  t.equal(chosen.status, 200)
  t.strictSame(chosen.json, {
    selection_id: 'a',
    ...NAMES,
    worker_id: 7,
    dp_rank: 0,
    endpoint: 'http://a:1',
    block_size: BLOCK,
    overlap: { longest_matched: 0, gpu: 0, dp: {}, cpu: 0, disk: 0 },
    effective_prefill_tokens: 10,
  })
  t.match(chosen.headers, { 'x-homing-worker': '7/0', 'x-homing-overlap-blocks': '0' })
  t.strictSame(await loadsOf(s), [[7, 0, 0, 0, 0]], 'nothing is counted yet')
  t.match(await s.post('/reservations', { ...NAMES, selection_id: 'a' }), { status: 201, json: OK })
  t.strictSame(await loadsOf(s), [[7, 0, 10, 2, 1]])

  const other = { model_name: MODEL, token_ids: tokensUpTo(10).map(token => token + 100) }
  const potential = await s.post('/potential_loads', other)
  t.strictSame(potential.json, [
    {
      ...NAMES,
      worker_id: 7,
      dp_rank: 0,
      potential_prefill_tokens: 20,
      potential_decode_blocks: 4,
      active_requests: 1,
    },
  ])

  t.match(await s.post('/reservations/a/prefill_complete'), { status: 200, json: OK })
  t.strictSame(await loadsOf(s), [[7, 0, 0, 2, 1]])
  t.equal((await s.post('/reservations/a/prefill_complete')).status, 200, 'twice is once')
  t.match(await s.post('/reservations/a/output_block'), { status: 200, json: OK })
  t.strictSame(await loadsOf(s), [[7, 0, 0, 3, 1]])
  t.equal((await s.post('/reservations/a/output_block', { decay_fraction: 0.5 })).status, 200)
  t.strictSame(await loadsOf(s), [[7, 0, 0, 3, 1]], 'two blocks, each of which counts a half')
  t.match(await s.call('DELETE', '/reservations/a'), { status: 200, json: OK })
  t.strictSame(await loadsOf(s), [[7, 0, 0, 0, 0]])
  for (const [method, path] of [
    ['DELETE', '/reservations/a'],
    ['POST', '/reservations/a/prefill_complete'],
    ['POST', '/reservations/a/output_block'],
  ] as const)
    t.match(await s.call(method, path), { status: 404, json: { error: /"a" is not reserved/ } })
  const { text } = await s.get('/metrics')
  t.match(text, /^homing_select_bookings_total\{outcome="freed"\} 1$/m)
  t.match(text, /^homing_select_active_requests 0$/m)
  t.match(
    text,
    /^homing_select_known_workers\{model="m",routing_group="default",lifecycle="schedulable"\} 1$/m,
  )
})

t.test('selecting and reserving in one, with an id of the caller or a new one', async t => {
  const s = await select(t)
  await s.post('/workers', WORKER)
  const prompt = { model_name: MODEL, token_ids: tokensUpTo(9) }
  const own = await s.post('/select_and_reserve', { ...prompt, selection_id: 'org/a b' })
  t.equal(own.status, 200)
  t.match(own.json, { selection_id: 'org/a b', worker_id: 7, isl_tokens: 9, track_prefill_tokens: true })
  t.equal(own.json.sequence_hashes.length, 2)
  t.match(own.headers, { 'x-homing-decision': 'org/a b' })
  const again = await s.post('/select_and_reserve', { ...prompt, selection_id: 'org/a b' })
  t.match(again, { status: 409, json: { code: 'HOMING_SERVICE_CONFLICT' } })
  t.strictSame(await loadsOf(s), [[7, 0, 9, 2, 1]], 'a duplicate changes nothing')
  await until('it is guessed to hold what it was sent', async () => {
    const { effective_prefill_tokens: tokens } = (await s.post('/select', prompt)).json
    // A guessed block counts four fifths.
    return tokens === 3 ? true : undefined
  })
  const made = (await s.post('/select_and_reserve', prompt)).json as { readonly selection_id: string }
  t.match(made.selection_id, /^[\w-]{21}$/)
  t.strictSame(await loadsOf(s), [[7, 0, 12, 2, 2]])
  t.equal((await s.call('DELETE', `/reservations/${encodeURIComponent('org/a b')}`)).status, 200)
  t.equal((await s.call('DELETE', `/reservations/${made.selection_id}`)).status, 200)
  t.strictSame(await loadsOf(s), [[7, 0, 0, 0, 0]])
  t.equal((await s.post('/select_and_reserve', { ...prompt, selection_id: 'org/a b' })).status, 200)

  const untracked = { ...prompt, router_config_override: { track_prefill_tokens: false } }
  const decode = await s.post('/select_and_reserve', { ...untracked, selection_id: 'd' })
  t.match(decode.json, { track_prefill_tokens: false })
  const prefill = (await loadsOf(s))[0]![2]
  t.equal((await s.call('DELETE', '/reservations/d')).status, 200)
  t.equal((await loadsOf(s))[0]![2], prefill, 'its prompt did not count')
})

t.test('a selection that is reserved leaves what a request sent there leaves', async t => {
  const engine = { blockSizeTokens: BLOCK, blocks: 512, eventForm: 'vllm-array-8' } as const
  const { engines, stop } = await startEngines([engine, engine])
  t.teardown(stop)
  const s = await select(t, { affinityTtlMs: 60_000, affinityMode: 'hard' })
  for (const [i, each] of engines.entries()) await s.post('/workers', workerOf(each, i, { model_name: 'e' }))
  await until('all are exact', async () => {
    const workers = (await s.get('/workers')).json as readonly { listeners: { 0: { trust: string } } }[]
    return workers.every(({ listeners }) => listeners[0].trust === 'exact') ? true : undefined
  })
  // In the events of this engine the blocks of a salted prompt look like those of one without a salt.
  for (const [i, steps] of ['one', 'two'].entries()) {
    const tokens = tokensUpTo(40).map(token => token + 100 * i)
    const prompt = { model_name: 'e', token_ids: tokens, allowed_worker_ids: [i] }
    const salted = { ...prompt, selection_id: steps, cache_salt: 's', session_id: steps }
    await s.post(steps === 'one' ? '/select_and_reserve' : '/select', salted)
    if (steps === 'two')
      t.equal((await s.post('/reservations', { model_name: 'e', selection_id: 'two' })).status, 201)
    const body = { prompt: tokens, max_tokens: 1, cache_salt: 's' }
    t.equal((await send(engines[i]!.url, '/v1/completions', { body })).status, 200)
    await until('its events have come', async () => {
      const workers = (await s.get('/workers')).json as readonly { listeners: { 0: { blocks: number } } }[]
      return workers[i]!.listeners[0].blocks > 0 ? true : undefined
    })
    t.match(
      (await s.post('/select', prompt)).json,
      { overlap: { gpu: 0 }, effective_prefill_tokens: 40 },
      steps,
    )
    const next = { model_name: 'e', token_ids: [1, 2, 3], session_id: steps }
    t.match((await s.post('/select', next)).json, { worker_id: i }, 'its session is bound')
  }

  // Of a worker without events what it was sent counts.
  await s.post('/workers', WORKER)
  const prompt = { model_name: MODEL, token_ids: tokensUpTo(9) }
  await s.post('/select', { ...prompt, selection_id: 'g' })
  await s.post('/reservations', { ...NAMES, selection_id: 'g' })
  await until('it is guessed to hold it', async () =>
    (await s.post('/select', prompt)).json.effective_prefill_tokens === 3 ? true : undefined,
  )
  t.equal((await s.call('DELETE', '/reservations/g')).status, 200)
  await until('it was not sent after all', async () =>
    (await s.post('/select', prompt)).json.effective_prefill_tokens === 9 ? true : undefined,
  )
})

t.test('what is reserved elsewhere is told with all that counts of it', async t => {
  const s = await select(t)
  await s.post('/workers', { ...WORKER, data_parallel_size: 2 })
  const given = await s.post('/select', {
    model_name: MODEL,
    token_ids: tokensUpTo(8),
    pinned_worker: { worker_id: 7, dp_rank: 1 },
  })
  t.match(given.json, { worker_id: 7, dp_rank: 1 })
  const explicit = {
    ...NAMES,
    worker_id: 7,
    dp_rank: 1,
    sequence_hashes: ['1', -2, '18446744073709551613'],
    isl_tokens: 14,
    effective_prefill_tokens: 6,
  }
  t.equal((await s.post('/reservations', { ...explicit, selection_id: 'a' })).status, 201)
  t.strictSame(await loadsOf(s), [
    [7, 0, 0, 0, 0],
    [7, 1, 6, 3, 1],
  ])
  const untracked = { ...explicit, selection_id: 'b', track_prefill_tokens: false }
  t.equal((await s.post('/reservations', untracked)).status, 201)
  t.strictSame((await loadsOf(s))[1], [7, 1, 6, 3, 2])
  t.equal((await s.post('/reservations', { ...explicit, selection_id: 'a' })).status, 409)
  await s.call('DELETE', '/reservations/a')
  t.strictSame((await loadsOf(s))[1], [7, 1, 0, 3, 1])
})

t.test('what was selected is reserved once, in its time, and while there is room', async t => {
  const s = await select(t, { selectionTtlMs: 1000, selectionsMax: 2 })
  await s.post('/workers', WORKER)
  const ask = (id: string) =>
    s.post('/select', { model_name: MODEL, token_ids: tokensUpTo(9), selection_id: id })
  const reserve = (id: string, fields: object = {}) =>
    s.post('/reservations', { ...NAMES, selection_id: id, ...fields })
  await ask('a')
  t.equal((await reserve('a', { model_name: 'other' })).status, 404, 'it is of another model')
  t.equal((await reserve('a')).status, 201)
  await s.call('DELETE', '/reservations/a')
  t.match(await reserve('a'), { status: 404, json: { error: /nothing was selected under this id/ } })
  await ask('b')
  t.equal(
    (await s.post('/select_and_reserve', { model_name: MODEL, token_ids: [1], selection_id: 'b' })).status,
    200,
  )
  t.equal((await reserve('b')).status, 409, 'the id is taken')
  await s.call('DELETE', '/reservations/b')
  t.equal((await reserve('b')).status, 201, 'and it can be tried again')
  for (const id of ['c', 'd', 'e']) await ask(id)
  t.equal((await reserve('c')).status, 404, 'newer ones took its place')
  t.equal((await reserve('e')).status, 201)
  await until('it has expired', async () => {
    const { text } = await s.get('/metrics')
    return /^homing_select_pending_lost_total\{reason="expired"\} 1$/m.test(text) ? true : undefined
  })
  t.equal((await reserve('d')).status, 404)
  t.match((await s.get('/metrics')).text, /^homing_select_pending_lost_total\{reason="evicted"\} 1$/m)
})

t.test('a request that is never freed expires', async t => {
  const s = await select(t, { activeRequestExpiryMs: 1000 })
  await s.post('/workers', WORKER)
  await s.post('/select_and_reserve', { model_name: MODEL, token_ids: tokensUpTo(9), selection_id: 'a' })
  await until('it has expired', async () => ((await loadsOf(s))[0]![4] === 0 ? true : undefined))
  t.equal((await s.call('DELETE', '/reservations/a')).status, 404)
})

t.test('who leaves before the answer has nothing reserved, and can try again', async t => {
  const s = await select(t)
  await s.post('/workers', { ...WORKER, block_size: 1 })
  const port = Number(new URL(s.url).port)
  const requests = (count: number) =>
    until(`${count} are reserved`, async () => ((await loadsOf(s))[0]![4] === count ? true : undefined))
  // Its answer names every block, and is longer than what the system takes for a client that reads none of
  // it.
  const tokens = new Array(700_000).fill(1)
  const body = JSON.stringify({ model_name: MODEL, selection_id: 'gone', token_ids: tokens })
  const fields = ['host: localhost', 'content-type: application/json', `content-length: ${body.length}`]
  const head = `POST /select_and_reserve HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.write(head + body)
  await requests(1)
  socket.destroy()
  await requests(0)
  t.match(await s.call('DELETE', '/reservations/gone'), { status: 404 })
  const again = { model_name: MODEL, selection_id: 'gone', token_ids: [1] }
  t.equal((await s.post('/select_and_reserve', again)).status, 200)
})

t.test('KV events of real engines make it exact: the choice goes where the prompt is', async t => {
  const settings = { blockSizeTokens: BLOCK, blocks: 512 }
  const { engines, stop } = await startEngines([settings, { ...settings, ranks: 2 }])
  t.teardown(stop)
  const [a, b] = engines as [ThreadEngine, ThreadEngine]
  const s = await select(t)
  await s.post('/workers', workerOf(a, 1))
  await s.post('/workers', workerOf(b, 2))
  const trusts = async (): Promise<readonly string[]> =>
    ((await s.get('/workers')).json as readonly { listeners: Record<string, { trust: string }> }[]).flatMap(
      ({ listeners }) => Object.values(listeners).map(({ trust }) => trust),
    )
  await until('all ranks are exact', async () =>
    (await trusts()).every(trust => trust === 'exact') ? true : undefined,
  )
  const prompt = tokensUpTo(41)
  await compute(b, prompt)
  const chosen = await until('the events have come', async () => {
    const answer = await s.post('/select', { model_name: MODEL, token_ids: prompt })
    // The router may read a shard that has moved a moment later.
    return answer.json.overlap.gpu === 40 && answer.json.effective_prefill_tokens === 1 ? answer : undefined
  })
  t.match(chosen.json, {
    worker_id: 2,
    overlap: { longest_matched: 40, gpu: 40, cpu: 40, disk: 40 },
    effective_prefill_tokens: 1,
  })
  t.match(chosen.headers, { 'x-homing-overlap-blocks': '10', 'x-homing-trust': 'exact' })
  const { dp_rank: rank, overlap } = chosen.json
  t.strictSame(overlap.dp, { [rank]: 40 }, 'only one rank has computed it')

  const scores = (await s.post('/overlap_scores', { model_name: MODEL, token_ids: prompt })).json
  t.strictSame(scores.scores, { 2: { [rank]: 40 } })
  t.strictSame(scores.frequencies, Array(10).fill(1))
  const dump = (await s.get('/dump')).json as Record<string, { readonly events: readonly object[] }>
  t.equal(dump[`${MODEL}:default`]!.events.length > 0, true)

  const others = await s.post('/select', { model_name: MODEL, token_ids: prompt, allowed_worker_ids: [1] })
  t.match(others.json, { worker_id: 1, overlap: { gpu: 0 }, effective_prefill_tokens: 41 })
  const salted = await s.post('/select', { model_name: MODEL, token_ids: prompt, cache_salt: 'x' })
  t.match(salted.json, { overlap: { gpu: 0 }, effective_prefill_tokens: 41 })

  const reserved = (await s.post('/select_and_reserve', { model_name: MODEL, token_ids: prompt })).json
  t.match(reserved, { worker_id: 2, dp_rank: rank, effective_prefill_tokens: 1 })
  const row = (await loadsOf(s)).find(([worker, dpRank]) => worker === 2 && dpRank === rank)
  t.strictSame(row, [2, rank, 1, 10, 1], 'one token has to be computed of it')

  const { local, sequence } = hashBlocks(Uint32Array.from(prompt), BLOCK, DEFAULT_SEED)
  t.strictSame(reserved.sequence_hashes.map(BigInt), hashesOf(sequence).map(approximately))
  const hashed = await s.post('/select', {
    model_name: MODEL,
    block_hashes: hashesOf(local).map(String),
    sequence_hashes: hashesOf(sequence).map(String),
    isl_tokens: prompt.length,
    pinned_worker: { worker_id: 2, dp_rank: rank },
  })
  t.match(hashed.json, { dp_rank: rank, overlap: { gpu: 40 }, effective_prefill_tokens: 1 })
})

t.test('workers change: what they are wanted for, their limits, where they are', async t => {
  const s = await select(t)
  const ask = (fields: object = {}) =>
    s.post('/select', { model_name: MODEL, token_ids: tokensUpTo(9), ...fields })
  await s.post('/workers', { worker_id: 7, model_name: MODEL })
  t.match((await s.get('/workers')).json, [{ lifecycle: 'incomplete', endpoint: null, block_size: null }])
  t.equal((await s.get('/ready')).status, 503)
  t.match(await ask(), {
    status: 503,
    json: { code: 'HOMING_SELECT_NONE_SCHEDULABLE', error: /schedulable: 7 \(incomplete\)$/ },
  })
  t.equal((await s.call('PATCH', '/workers/7', { endpoint: 'http://a:1' })).status, 200)
  t.equal((await s.get('/ready')).status, 503)
  t.equal((await s.call('PATCH', '/workers/7', { block_size: BLOCK })).status, 200)
  t.equal((await s.get('/ready')).status, 200)
  t.match(await ask(), { status: 200, json: { worker_id: 7 } })

  await s.post('/workers', { ...WORKER, worker_id: 8, endpoint: 'http://b:1', taints: ['zone=b'] })
  const reserved = await s.post('/select_and_reserve', {
    model_name: MODEL,
    token_ids: tokensUpTo(9),
    pinned_worker: 7,
    selection_id: 'a',
  })
  t.match(reserved.json, { worker_id: 7 })
  t.equal((await s.call('PATCH', '/workers/7', { lifecycle: 'draining' })).status, 200)
  t.match(await ask(), { status: 200, json: { worker_id: 8 } })
  t.match(await ask({ pinned_worker: 7 }), { status: 503, json: { error: /7\/0 \(draining: / } })
  t.strictSame((await loadsOf(s))[0], [7, 0, 9, 2, 1], 'it has its requests still')
  t.equal((await s.call('PATCH', '/workers/8', { lifecycle: 'unschedulable' })).status, 200)
  t.equal((await ask()).status, 503)
  t.equal((await s.get('/ready')).status, 503)
  t.equal((await s.call('PATCH', '/workers/8', { lifecycle: 'schedulable', max_model_len: 8 })).status, 200)
  t.match(await ask(), { status: 200, json: { worker_id: 8 } }, 'it is too small, and the only one')

  t.match(await ask({ routing_constraints: { required_taints: ['zone=b'] } }), { json: { worker_id: 8 } })
  t.equal((await ask({ routing_constraints: { required_taints: ['zone=c'] } })).status, 503)

  // Adding it again replaces what is known of it, and keeps what it has.
  t.equal((await s.post('/workers', { ...WORKER, endpoint: 'http://c:1' })).status, 201)
  t.match((await s.get('/workers')).json, [{ endpoint: 'http://c:1', lifecycle: 'schedulable' }, {}])
  t.strictSame((await loadsOf(s))[0], [7, 0, 9, 2, 1])
  // Another group: its ranks begin anew.
  t.equal((await s.call('PATCH', '/workers/7', { routing_group: 'g' })).status, 200)
  t.match(await ask({ routing_group: 'g' }), { status: 200, json: { worker_id: 7, routing_group: 'g' } })
  t.equal((await s.call('DELETE', '/reservations/a')).status, 404, 'its reservations went with them')
  t.strictSame((await s.get('/loads?routing_group=g')).json, [
    {
      model_name: MODEL,
      routing_group: 'g',
      loads: [
        { worker_id: 7, dp_rank: 0, active_prefill_tokens: 0, active_decode_blocks: 0, active_requests: 0 },
      ],
      pending_count: 0,
      pending_isl_tokens: 0,
    },
  ])

  await s.post('/reservations', {
    ...NAMES,
    routing_group: 'g',
    selection_id: 'b',
    worker_id: 7,
    sequence_hashes: [1],
    isl_tokens: 4,
    effective_prefill_tokens: 4,
  })
  t.equal((await s.call('DELETE', '/workers/7')).status, 200)
  t.equal((await s.call('DELETE', '/workers/7')).status, 404)
  t.equal((await ask({ routing_group: 'g' })).status, 404)
  t.equal((await s.call('DELETE', '/reservations/b')).status, 404)
  t.match(await loadsOf(s), [[8, 0, 0, 0, 0]])
  t.equal((await s.post('/workers', WORKER)).status, 201)
  t.strictSame((await loadsOf(s))[1], [7, 0, 0, 0, 0], 'it begins with nothing')
})

t.test('ranks of all workers are bounded, and at the bound a worker can still be replaced', async t => {
  const s = await select(t, { workerSlotsMax: 2 })
  const begins = (blockSize: number) =>
    until('it can be chosen', async () => {
      const chosen = await s.post('/select', { model_name: MODEL, token_ids: [1] })
      return chosen.status === 200 && chosen.json.block_size === blockSize ? true : undefined
    })
  const full = {
    status: 503,
    json: { error: /it has 1 ranks, and there is room for 0 of 2 \(--worker-slots-max\)/ },
  }
  t.equal((await s.post('/workers', { worker_id: 8 })).status, 201, 'its endpoint comes later')
  t.equal((await s.post('/workers', { worker_id: 9 })).status, 201)
  t.match(await s.post('/workers', { worker_id: 10 }), full)
  t.match((await s.get('/metrics')).text, /^homing_select_taken_keys 2$/m)
  for (const id of [8, 9]) await s.call('DELETE', `/workers/${id}`)
  const both = { ...WORKER, data_parallel_size: 2 }
  t.equal((await s.post('/workers', both)).status, 201)
  t.match(await s.post('/workers', { ...WORKER, worker_id: 8 }), full)
  t.equal((await s.post('/workers', { ...both, block_size: 8 })).status, 201)
  await begins(8)
  t.equal((await s.call('DELETE', '/workers/7')).status, 200)
  t.equal((await s.post('/workers', both)).status, 201, 'at once')
  await begins(BLOCK)
})

t.test('workers that are busy take no more: 429 when all are', async t => {
  const s = await select(t, { activePrefillTokensThreshold: 8 })
  await s.post('/workers', WORKER)
  await s.post('/workers', { ...WORKER, worker_id: 8, endpoint: 'http://b:1' })
  const prompt = (first: number) => ({
    model_name: MODEL,
    token_ids: Array.from({ length: 9 }, (_, i) => first + i),
  })
  const first = (await s.post('/select_and_reserve', prompt(100))).json.worker_id as number
  const second = await s.post('/select_and_reserve', { ...prompt(200), selection_id: 'b' })
  t.equal(second.json.worker_id, first === 7 ? 8 : 7, 'the other one is left')
  t.match(await s.post('/select', prompt(300)), { status: 429, json: { code: 'HOMING_ROUTER_ALL_BUSY' } })
  const third = { ...prompt(300), selection_id: 'c' }
  t.match(await s.post('/select_and_reserve', third), { status: 429 })
  t.match(await s.post('/select', { ...prompt(300), pinned_worker: first }), { status: 429 })
  t.equal((await s.post('/reservations/b/prefill_complete')).status, 200)
  t.match(await s.post('/select_and_reserve', third), {
    status: 200,
    json: { worker_id: second.json.worker_id },
  })
})

t.test(
  'what cannot be done is one sentence with the status of the reference, and changes nothing',
  async t => {
    const s = await select(t, {
      activeRequestsMax: 2,
      workerSlotsMax: 4,
      bodyBytesMax: 8192,
    })
    await s.post('/workers', WORKER)
    const prompt = { model_name: MODEL, token_ids: [1, 2, 3] }
    const explicit = {
      ...NAMES,
      selection_id: 'z',
      worker_id: 7,
      sequence_hashes: [1],
      isl_tokens: 4,
      effective_prefill_tokens: 4,
    }
    await s.post('/select_and_reserve', { ...prompt, selection_id: 'a' })
    const before = await loadsOf(s)
    const source = { kv_events_endpoints: { 0: 'tcp://a:1' } }
    await s.call('PATCH', '/workers/7', { taints: ['x'] })
    const cases: readonly (readonly [string, unknown, number, RegExp])[] = [
      ['/workers', '{"worker_id": 7', 400, /^cannot add the worker: the body is not JSON: /],
      ['/workers', '[]', 422, /the body is not a JSON object/],
      ['/workers', {}, 422, /worker_id is missing/],
      ['/workers', { ...WORKER, worker_id: 1.5 }, 422, /worker_id must be a whole number from 0 to 184/],
      [
        '/workers',
        { ...WORKER, block_size: 0 },
        400,
        /block_size must be a whole number from 1 to 65536, not 0/,
      ],
      ['/workers', { ...WORKER, block_size: '4' }, 422, /block_size must be .*, not a string/],
      ['/workers', { ...WORKER, data_parallel_size: 1025 }, 400, /from 1 to 1024, not 1025/],
      ['/workers', { ...WORKER, routing_group: 'a:b' }, 400, /routing_group must not contain a colon/],
      ['/workers', { ...WORKER, lifecycle: 'asleep' }, 400, /lifecycle must be one of schedulable, draining/],
      ['/workers', { ...WORKER, taints: 'x' }, 422, /taints must be a list of strings/],
      ['/workers', { ...WORKER, taints: [''] }, 400, /taints must have texts of 1 to 256 characters/],
      ['/workers', { ...WORKER, kv_events_endpoints: { x: 'tcp://a:1' } }, 400, /by its rank, such as "0"/],
      [
        '/workers',
        { ...WORKER, kv_events_endpoints: { 1: 'tcp://a:1' } },
        400,
        /names rank 1, and the worker has 0 to 0/,
      ],
      [
        '/workers',
        { ...WORKER, kv_events_endpoints: { 0: 5 } },
        422,
        /kv_events_endpoints\["0"\] must be a string/,
      ],
      ['/workers', { ...WORKER, kv_events_endpoints: { 0: 'http://a' } }, 400, /must be tcp:\/\/HOST:PORT/],
      [
        '/workers',
        { ...WORKER, replay_endpoint: 'tcp://a:1' },
        400,
        /rank 0, which has no endpoint in kv_events/,
      ],
      ['/workers', { ...WORKER, ...source, replay_endpoint: 'tcp://a:1' }, 400, /is that of events, too/],
      ['/workers', { ...WORKER, worker_id: 8, block_size: 8 }, 409, /has blocks of 4 tokens, not 8/],
      [
        '/workers',
        { ...WORKER, worker_id: 8, data_parallel_size: 4 },
        503,
        /4 ranks, and there is room for 3 of 4/,
      ],
      ['/select', { token_ids: [1] }, 404, /no worker for model "default" in routing group "default"/],
      ['/select', { ...prompt, routing_group: 'g' }, 404, /in routing group "g"/],
      ['/select', { model_name: MODEL }, 422, /token_ids is missing \(or block_hashes/],
      ['/select', { ...prompt, token_ids: [] }, 400, /token_ids must have at least one token/],
      ['/select', { ...prompt, token_ids: [1, -1] }, 422, /token_ids\[1\] must be a whole number/],
      ['/select', { ...prompt, token_ids: 'x' }, 422, /token_ids must be a list/],
      ['/select', { ...prompt, block_hashes: [1] }, 400, /give token_ids or block_hashes, not both/],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [], isl_tokens: 4 },
        400,
        /one of each/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [1], isl_tokens: 3 },
        400,
        /3 are 0 full blocks/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [1] },
        422,
        /isl_tokens is missing/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [], sequence_hashes: [], isl_tokens: 1, cache_salt: 'x' },
        400,
        /cache_salt is not accepted/,
      ],
      [
        '/select',
        { ...prompt, router_config_override: { router_temperature: 'hot' } },
        422,
        /router_temperature must be a number/,
      ],
      ['/select', { ...prompt, router_config_override: { router_temperature: -1 } }, 400, /from 0 to/],
      ['/select', { ...prompt, router_config_override: { weight: 1 } }, 400, /has no member weight/],
      [
        '/select',
        { ...prompt, router_config_override: { assume_kv_reuse: 1 } },
        422,
        /assume_kv_reuse must be true or/,
      ],
      ['/select', { ...prompt, pinned_worker: 'x' }, 422, /pinned_worker must be the number of a worker/],
      [
        '/select',
        { ...prompt, pinned_worker: 9 },
        503,
        /pinned_worker names worker 9, which is not of model "m"/,
      ],
      [
        '/select',
        { ...prompt, pinned_worker: { worker_id: 7, dp_rank: 3 } },
        503,
        /rank 3 of worker 7, which has 0 to 0/,
      ],
      [
        '/select',
        { ...prompt, pinned_worker: 7, allowed_worker_ids: [8] },
        400,
        /7 is not in allowed_worker_ids/,
      ],
      ['/select', { ...prompt, allowed_worker_ids: [8] }, 503, /7\/0 \(/],
      [
        '/select',
        { ...prompt, allowed_worker_ids: ['x'] },
        422,
        /allowed_worker_ids\[0\] must be the number/,
      ],
      ['/select', { ...prompt, routing_constraints: [] }, 422, /routing_constraints must be an object/],
      [
        '/select',
        { ...prompt, routing_constraints: { preferred_taints: { x: 'y' } } },
        422,
        /\["x"\] must be a number/,
      ],
      [
        '/select',
        { ...prompt, mm_routing_info: { mm_objects: [{}] } },
        422,
        /mm_objects\[0\].mm_hash must be a 64-bit/,
      ],
      [
        '/select',
        { ...prompt, mm_routing_info: { mm_objects: [{ mm_hash: 1, offsets: [[0, 9]] }] } },
        400,
        /within the 3 tokens/,
      ],
      [
        '/select',
        {
          ...prompt,
          mm_routing_info: {
            mm_objects: Array.from({ length: 17 }, (_, i) => ({ mm_hash: i, offsets: [[0, 3]] })),
          },
        },
        400,
        /cover the prompt more than 16 times/,
      ],
      [
        '/select',
        { ...prompt, selection_id: 'x'.repeat(257) },
        400,
        /selection_id has more than 256 characters/,
      ],
      ['/select', { ...prompt, token_ids: Array(4096).fill(1) }, 413, /body/],
      ['/select_and_reserve', { ...prompt, selection_id: 'a' }, 409, /"a" is reserved already/],
      ['/reservations', {}, 422, /selection_id is missing/],
      ['/reservations', { selection_id: 'q' }, 404, /nothing was selected under this id for model "default"/],
      ['/reservations', { ...explicit, worker_id: 9 }, 404, /there is no worker 9/],
      ['/reservations', { ...explicit, model_name: 'n' }, 404, /worker 7 is not of model "n"/],
      ['/reservations', { ...explicit, dp_rank: 1 }, 404, /worker 7 has no rank 1; it has 0 to 0/],
      ['/reservations', { ...explicit, effective_prefill_tokens: 5 }, 400, /from 0 to 4, not 5/],
      [
        '/reservations',
        { ...explicit, sequence_hashes: [0.5] },
        422,
        /sequence_hashes\[0\] must be a 64-bit/,
      ],
      [
        '/reservations',
        { ...explicit, track_prefill_tokens: 1 },
        422,
        /track_prefill_tokens must be true or false/,
      ],
      ['/reservations', { ...explicit, selection_id: 'a' }, 409, /"a" is reserved already/],
      [
        '/reservations/a/output_block',
        { decay_fraction: 2 },
        400,
        /decay_fraction must be a number from 0 to 1/,
      ],
      ['/reservations/a/output_block', { decay_fraction: 'x' }, 422, /decay_fraction must be a number/],
      ['/reservations/q/prefill_complete', undefined, 404, /"q" is not reserved/],
      ['/potential_loads', { model_name: 'n', token_ids: [1] }, 404, /no worker for model "n"/],
      ['/overlap_scores', { model_name: 'n', token_ids: [1] }, 404, /no worker for model "n"/],
      [
        '/replica_sync/register_peer',
        { endpoint: 'tcp://a:1' },
        409,
        /was started without --replica-endpoint/,
      ],
      ['/nowhere', {}, 404, /GET \/ lists them/],
      ['/loads', {}, 405, /GET/],
    ]
    for (const [path, body, status, message] of cases) {
      const answer = await s.post(path, body)
      const { error } = answer.json as { readonly error: string }
      t.equal(answer.status, status, `${path} ${JSON.stringify(body)?.slice(0, 90)}: ${error}`)
      t.match(error, message)
      t.notMatch(error, /\n/)
    }
    t.match(await s.call('PATCH', '/workers/9', {}), { status: 404, json: { error: /there is no worker 9/ } })
    t.match(await s.call('PATCH', '/workers/x', {}), { status: 404, json: { error: /"x" is no number/ } })
    t.match(await s.call('PATCH', '/workers/7', { block_size: -1 }), { status: 422 })
    t.match(await s.call('DELETE', '/workers/9'), { status: 404 })
    const typed = { body: JSON.stringify(prompt), headers: { 'content-type': 'text/plain' } }
    t.match(await send(s.url, '/select', typed), { status: 415, json: { code: 'HOMING_SERVICE_BODY_TYPE' } })
    t.strictSame(await loadsOf(s), before)
    t.equal((await s.post('/reservations', explicit)).status, 201)
    const full = await s.post('/select_and_reserve', { ...prompt, selection_id: 'c' })
    t.match(full, { status: 503, json: { error: /2 requests are reserved \(--max-active-requests\)/ } })
    t.match(full.headers, { 'retry-after': '1' })
  },
)

t.test('replicas count as one: what is reserved, completed and freed at either', async t => {
  const endpoints = (await freePortPairs(2)).map(port => `tcp://127.0.0.1:${port}`)
  const [here, there] = [endpoints[0]!, endpoints[1]!]
  const a = await select(t, { replicaEndpoint: here, replicas: [there] })
  const b = await select(t, { replicaEndpoint: there })
  t.match(await a.post('/replica_sync/register_peer', { endpoint: 'http://x' }), { status: 400 })
  t.match(await b.post('/replica_sync/register_peer', { endpoint: here }), { status: 201, json: OK })
  t.equal((await b.post('/replica_sync/register_peer', { endpoint: there })).status, 409, 'itself')
  t.strictSame((await b.get('/replica_sync/peers')).json, [here])
  for (const s of [a, b]) await s.post('/workers', WORKER)
  const prompt = { model_name: MODEL, token_ids: tokensUpTo(9) }
  const counts = (s: Select, row: readonly number[]) =>
    until(`the load is ${row}`, async () =>
      String((await loadsOf(s))[0]) === String(row) ? true : undefined,
    )
  await a.post('/select_and_reserve', { ...prompt, selection_id: 'a' })
  await counts(b, [7, 0, 9, 2, 1])
  t.match(await b.post('/select_and_reserve', { ...prompt, selection_id: 'a' }), {
    status: 409,
    json: { code: 'HOMING_SELECT_HELD_ELSEWHERE' },
  })
  await b.post('/select', { ...prompt, selection_id: 'a' })
  t.equal((await b.post('/reservations', { ...NAMES, selection_id: 'a' })).status, 409)
  t.strictSame((await loadsOf(a))[0], [7, 0, 9, 2, 1], 'a duplicate changes nothing')
  const nowhere = { ...prompt, selection_id: 'a', allowed_worker_ids: [8] }
  t.equal((await b.post('/select_and_reserve', nowhere)).status, 503)
  // It comes by the way that an end of `a` would have taken.
  await b.post('/select_and_reserve', { ...prompt, selection_id: 'mark' })
  t.equal((await b.call('DELETE', '/reservations/mark')).status, 200)
  await counts(a, [7, 0, 9, 2, 1])
  t.match(
    await a.post('/select_and_reserve', nowhere),
    { status: 409 },
    'what ended before it was booked left it alone',
  )
  t.match(await b.post('/reservations/a/output_block'), { status: 409, json: { error: /another replica/ } })
  t.equal((await b.post('/reservations/a/prefill_complete')).status, 200)
  await counts(a, [7, 0, 0, 2, 1])
  t.equal((await b.call('DELETE', '/reservations/a')).status, 200)
  await counts(a, [7, 0, 0, 0, 0])
  t.equal((await a.call('DELETE', '/reservations/a')).status, 404)
  t.equal((await a.post('/select_and_reserve', { ...prompt, selection_id: 'a' })).status, 200, 'free again')
  await counts(b, [7, 0, Number((await loadsOf(a))[0]![2]), 2, 1])
  t.match((await b.get('/metrics')).text, /^homing_select_known_replicas\{state="live"\} 1$/m)
  t.equal((await b.post('/replica_sync/deregister_peer', { endpoint: here })).status, 200)
  await counts(b, [7, 0, 0, 0, 0])
  t.equal((await b.post('/replica_sync/deregister_peer', { endpoint: here })).status, 404)
})

t.test('a tracker or router that fails forgets what was reserved, and goes on', async t => {
  const started = await startProcess(
    'select',
    ['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '1'],
    { canFail: true },
  )
  t.teardown(() => started.kill('SIGKILL'))
  const s = clientOf(started.url)
  await s.post('/workers', WORKER)
  const prompt = { model_name: MODEL, token_ids: tokensUpTo(9) }
  await s.post('/select_and_reserve', { ...prompt, selection_id: 'a' })
  await started.fail('tracker')
  await until('it is there again', async () => {
    const answer = await s.post('/select', prompt)
    return answer.status === 200 ? true : undefined
  })
  t.strictSame(await loadsOf(s), [[7, 0, 0, 0, 0]])
  t.equal((await s.call('DELETE', '/reservations/a')).status, 404)
  t.equal(
    (await s.post('/select_and_reserve', { ...prompt, selection_id: 'a' })).status,
    200,
    'its id is free',
  )
  t.equal((await s.call('DELETE', '/reservations/a')).status, 200)
  await started.fail('router')
  await until('it chooses again', async () => {
    const answer = await s.post('/select_and_reserve', { ...prompt, selection_id: 'b' })
    // An answer that did not come in time leaves nothing behind.
    return answer.status === 200 ? true : undefined
  })
  // A tracker that begins anew is told the workers within a second.
  await until('it counts', async () => ((await loadsOf(s))[0]![4] === 1 ? true : undefined))
  t.equal((await s.call('DELETE', '/reservations/b')).status, 200)
  await until('it is free', async () => ((await loadsOf(s))[0]![4] === 0 ? true : undefined))
})

t.test('the command says where it is, and ends in good order', async t => {
  const started = await startProcess('select', ['--host', '127.0.0.1', '--port', '0'])
  t.match(started.outputLines[0], /^select ready on http:\/\/127\.0\.0\.1:\d+ \(pid \d+\)$/)
  t.equal((await send(started.url, '/health')).status, 200)
  started.kill('SIGTERM')
  t.equal(await started.ended, 0)
})
