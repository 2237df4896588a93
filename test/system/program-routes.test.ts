/** The programmatic router over HTTP, for programs in other languages, beside `KvRouter`'s own answers. */

import t from 'tap'
import { send, startFleet, until } from './fleet.ts'

const MODEL = 'homing-sim'
const BLOCK = 4
const prompt = (count: number): number[] => Array.from({ length: count }, (_, i) => 5 + i)

t.test('a worker for token ids, booked until it is free', async t => {
  const settings = { blockSizeTokens: BLOCK, blocks: 512 }
  const fleet = await startFleet({
    engines: [settings, { ...settings, ranks: 2 }],
    router: ['--router-policy', 'linear'],
  })
  t.teardown(() => fleet.stop())
  const post = (path: string, body: unknown) => fleet.send(`/v1/router/${path}`, { method: 'POST', body })
  const asked = { model: MODEL, token_ids: prompt(41) }
  const computed = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt: asked.token_ids, max_tokens: 1 },
  })
  const [, key] = /(\S+)/.exec(computed.headers['x-homing-worker']!)!
  const best = await until('its blocks are known', async () => {
    const { json } = await post('best_worker', asked)
    return json.overlap_blocks === 10 ? json : undefined
  })
  t.equal(best.worker, key)
  t.equal(best.dp_rank, Number(key!.split('/').at(-1)))
  await fleet.drained()

  const loads = async () => (await post('potential_loads', asked)).json as readonly Record<string, number>[]
  t.equal((await loads()).length, 3, 'a row for each rank')
  const row = async () => (await loads()).find(({ worker }) => String(worker) === key)!
  t.match(await row(), {
    worker_id: best.worker_id,
    potential_prefill_tokens: 1,
    potential_decode_blocks: 10,
    active_requests: 0,
    overlap_blocks: 10,
  })

  for (const path of ['find_matches', 'query'])
    t.strictSame((await post(path, asked)).json, [
      {
        ...{ worker_id: best.worker_id, dp_rank: best.dp_rank, overlap_blocks: 10, worker: key },
        ...{ moe_score: 0, cxl_accessible_score: 0 },
      },
    ])
  t.strictSame((await post('find_matches', { ...asked, token_ids: [9, 9, 9, 9, 9] })).json, [])

  t.match(await post('best_worker', { ...asked, request_id: 'a' }), { status: 200, json: { worker: key } })
  t.match(await row(), { potential_prefill_tokens: 2, active_requests: 1 })
  t.match(await post('best_worker', { ...asked, request_id: 'a' }), {
    status: 409,
    json: { error: { code: 'duplicate_request' } },
  })
  t.match(await post('mark_prefill_complete', { request_id: 'a' }), { status: 200, json: { success: true } })
  t.match(await row(), { potential_prefill_tokens: 1, active_requests: 1 })
  t.match(await post('free', { request_id: 'a' }), { status: 200, json: { success: true } })
  t.match(await row(), { active_requests: 0 })
  t.equal((await post('free', { request_id: 'a' })).status, 404)

  // The names that other routers have for it, and their fields.
  const other = fleet.engines.find(({ url }) => !key!.includes(url.slice('http://'.length)))!
  const id = (await fleet.worker(other.url)).instance_id
  const pinned = await post('new', { model: MODEL, tokens: asked.token_ids, request_id: 'b', worker_id: id })
  t.match(pinned, { status: 200, json: { worker_id: id, overlap_blocks: 0 } })
  t.equal((await post('mark_prefill', { request_id: 'b' })).status, 200)
  t.equal((await post('mark_free', { request_id: 'b' })).status, 200)

  const events = (await fleet.send('/v1/router/dump_events')).json as readonly {
    readonly worker_id: number
    readonly event: { readonly data: { readonly stored: { readonly blocks: readonly object[] } } }
  }[]
  t.ok(events.length > 0)
  t.equal(
    events
      .filter(({ worker_id: worker }) => worker === best.worker_id)
      .reduce((sum, { event }) => sum + event.data.stored.blocks.length, 0),
    10,
  )
})

t.test('without its frontend a router only chooses', async t => {
  const fleet = await startFleet({
    engines: [{ blockSizeTokens: BLOCK }, { blockSizeTokens: BLOCK }],
    // As operators of the standalone router type it.
    router: [
      ...['--no-frontend', '--router-block-size', String(BLOCK), '--endpoint', 'ns.prefill.generate'],
      ...['--metrics-port', '0', '--metrics-dynamo-names'],
    ],
  })
  t.teardown(() => fleet.stop())
  const body = { model: MODEL, token_ids: prompt(41), prompt: prompt(41), max_tokens: 1 }
  for (const [method, path] of [
    ['POST', '/v1/completions'],
    ['POST', '/v1/chat/completions'],
    ['POST', '/v1/embeddings'],
    ['GET', '/v1/models'],
  ] as const) {
    const answer = await fleet.send(path, method === 'GET' ? {} : { method, body })
    t.match(answer, { status: 404, json: { error: { message: /--no-frontend leaves the API out/ } } }, path)
  }
  for (const path of ['/health', '/ready', '/metrics', '/workers', '/'])
    t.equal((await fleet.send(path)).status, 200, path)
  const { routes, relayed } = (await fleet.send('/')).json
  t.notOk(Object.keys(routes).some(name => name.includes('completions')))
  t.strictSame(relayed, [])

  const { metricsUrl = '' } = fleet.router
  const metrics = (await send(metricsUrl, '/metrics')).text
  t.match(metrics, /^# TYPE dynamo_component_router_requests_total counter$/m)
  const others = [...metrics.matchAll(/^# TYPE (dynamo_\w+)/gm)].map(([, name]) => name!)
  t.strictSame(
    others.filter(name => !name.startsWith('dynamo_component_')),
    [],
    'those of a frontend are not there',
  )
  t.match(metrics, /^homing_gateway_reserved_requests 0$/m)
  for (const path of ['/health', '/live'])
    t.match(await send(metricsUrl, path), await fleet.send('/health'), `${path} at the port of the metrics`)
  for (const path of ['/', '/workers', '/v1/models'])
    t.equal((await send(metricsUrl, path)).status, 404, `${path} at the port of the metrics`)

  // The caller sends its request itself, and the router learns from the events of the engine.
  const post = (path: string, sent: unknown) =>
    fleet.send(`/v1/router/${path}`, { method: 'POST', body: sent })
  const best = (await post('best_worker', { ...body, request_id: 'a' })).json
  const engine = fleet.engines.find(({ url }) => url === best.url)!
  t.equal(
    (await send(engine.url, '/v1/completions', { body: { prompt: prompt(41), max_tokens: 1 } })).status,
    200,
  )
  t.equal((await post('mark_prefill_complete', { request_id: 'a' })).status, 200)
  t.equal((await post('free', { request_id: 'a' })).status, 200)
  // Where the next one goes is for the policy to say, which may find an idle worker as near.
  await until('its blocks are known', async () => {
    const { json } = await post('find_matches', body)
    return json[0]?.worker_id === best.worker_id && json[0].overlap_blocks === 10 ? true : undefined
  })
  await fleet.drained()
  const after = (await send(metricsUrl, '/metrics')).text
  const of = (name: string) => Number(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, 'm').exec(after)?.[1])
  for (const name of [
    'requests_started_total',
    'requests_total',
    'kv_hit_rate_count',
    'overlap_blocks_lost_count',
    'time_to_first_token_seconds_count',
  ])
    t.equal(of(`dynamo_component_router_${name}`), 1, name)
  t.equal(of('homing_router_decisions_total'), 1)
  t.equal(of('homing_worker_last_first_token_seconds') > 0, true)
  for (const stage of ['tokenize', 'place', 'lookup', 'decide'])
    t.match(after, new RegExp(`^homing_request_stage_seconds_count\\{stage="${stage}"\\} 1$`, 'm'), stage)
})

t.test('what cannot be is one error in the form of the API, and books nothing', async t => {
  const fleet = await startFleet({ engines: [{ blockSizeTokens: BLOCK }] })
  t.teardown(() => fleet.stop())
  const ids = { model: MODEL, token_ids: [5, 6, 7] }
  for (const [path, body, status, message] of [
    ['best_worker', '{', 400, /JSON/],
    ['best_worker', { model: MODEL }, 400, /cannot use token_ids which is missing/],
    ['best_worker', { ...ids, token_ids: 'x' }, 400, /token_ids/],
    ['best_worker', { ...ids, model: 'other' }, 404, /no worker has it/],
    ['best_worker', { ...ids, request_id: 7 }, 400, /cannot use request_id 7: use a text/],
    ['best_worker', { ...ids, request_id: 'x'.repeat(257) }, 400, /257 characters/],
    ['best_worker', { ...ids, request_id: 'x'.repeat(9000) }, 400, /request_id which is long/],
    ['best_worker', { ...ids, worker_id: 99 }, 400, /instance 99/],
    ['best_worker', { ...ids, worker_id: 0, nvext: {} }, 400, /worker_id beside nvext/],
    ['potential_loads', {}, 400, /token_ids which is missing/],
    ['mark_prefill_complete', {}, 400, /request_id which is missing/],
    ['mark_prefill_complete', { request_id: 'q' }, 404, /q/],
    ['free', { request_id: null }, 400, /request_id which is missing/],
  ] as const) {
    const answer = await fleet.send(`/v1/router/${path}`, { method: 'POST', body })
    t.equal(answer.status, status, `${path} ${JSON.stringify(body).slice(0, 60)}: ${answer.text}`)
    t.match(answer.json.error.message, message)
  }
  t.equal((await fleet.send('/v1/router/best_worker')).status, 405)
  t.equal((await fleet.send('/v1/router/nothing', { method: 'POST', body: {} })).status, 404)
  const foreign = { headers: { 'x-forwarded-for': '10.0.0.7' } }
  const remote = { method: 'POST', ...foreign }
  t.match(await fleet.send('/v1/router/potential_loads', { ...remote, body: ids }), { status: 403 })
  const booked = { ...ids, request_id: 'a' }
  t.match(await fleet.send('/v1/router/best_worker', { ...remote, body: booked }), { status: 403 })
  t.match(await fleet.send('/v1/router/free', { ...remote, body: { request_id: 'a' } }), { status: 403 })
  await fleet.drained()
})
