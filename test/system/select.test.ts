/**
 * `homing select` over real sockets: what its routes take and answer, beside simulated engines with real KV
 * events. That it chooses as a router does is tested in select-parity.test.ts.
 */

import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import t from 'tap'
import { send, startEngines, startProcess, type ThreadEngine, until } from './fleet.ts'
import {
  approximately,
  BLOCK,
  clientOf,
  compute,
  hashesOf,
  loadsOf,
  MODEL,
  NAMES,
  select,
  tokensUpTo,
  WORKER,
  workerOf,
} from './select-world.ts'

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
  await s.post('/workers', { worker_id: 9, model_name: MODEL, block_size: BLOCK })
  const pinned = {
    status: 503,
    json: { code: 'HOMING_SELECT_PINNED_NOWHERE', error: /worker 9, which is incomplete/ },
  }
  t.match(await ask({ pinned_worker: 9 }), pinned)
  t.match(await ask({ pinned_worker: { worker_id: 9, dp_rank: 0 } }), pinned)
  t.equal((await s.call('DELETE', '/workers/9')).status, 200)
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
