/**
 * What is reserved through `homing select`: how long it counts, at one selection service or at several that
 * are replicas.
 */

import { connect } from 'node:net'
import t from 'tap'
import { freePortPairs, send, startEngines, until } from './fleet.ts'
import {
  BLOCK,
  loadsOf,
  MODEL,
  NAMES,
  OK,
  type Select,
  select,
  tokensUpTo,
  WORKER,
  workerOf,
} from './select-world.ts'

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
  const s = await select(t, { selectionTtlMs: 600_000, selectionsMax: 2 })
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
  t.match((await s.get('/metrics')).text, /^homing_select_pending_lost_total\{reason="evicted"\} 1$/m)

  const brief = await select(t, { selectionTtlMs: 1000 })
  await brief.post('/workers', WORKER)
  await brief.post('/select', { model_name: MODEL, token_ids: tokensUpTo(9), selection_id: 'f' })
  await until('it has expired', async () => {
    const { text } = await brief.get('/metrics')
    return /^homing_select_pending_lost_total\{reason="expired"\} 1$/m.test(text) ? true : undefined
  })
  t.equal((await brief.post('/reservations', { ...NAMES, selection_id: 'f' })).status, 404)
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
