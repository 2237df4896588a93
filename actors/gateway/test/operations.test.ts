/** The routes for people and their tools. */

import type { KeyAudit } from '@homing/selection'
import t from 'tap'
import type { ClientCall } from './client-call.ts'
import { start } from './gateway-world.ts'
import { DECISION, fleetOf, RECEIPT, WORKER } from './sample-records.ts'

/** Pages whose figures may have grown a digit between two calls: their length is of the moment. */
const LIVING = new Set(['/health', '/ready', '/metrics', '/actors?format=text', '/actors/flight', '/dump'])

function headersOf(call: ClientCall, path: string): ClientCall['headers'] {
  const { 'content-length': length, ...others } = call.headers
  return LIVING.has(path) ? { ...others, length: typeof length } : call.headers
}

t.test('every route answers its methods and no other', async t => {
  const { ask } = await start(t, {}, { receipts: [RECEIPT] })
  const routes: [string, string, number][] = [
    ['GET', '/', 200],
    ['GET', '/health', 200],
    ['GET', '/ready', 200],
    ['GET', '/metrics', 200],
    ['GET', '/actors?format=text', 200],
    ['GET', '/actors/flight', 200],
    ['GET', '/dump', 200],
    ['GET', '/decisions', 200],
    ['GET', '/decisions/decision-1', 200],
    ['GET', '/v1/models', 200],
    ['GET', '/v1/models/m', 200],
  ]
  for (const [method, path, status] of routes) {
    const call = await ask(method, path)
    t.equal(call.status, status, path)
    t.equal(call.headers['content-length'], String(Buffer.byteLength(call.body)), path)
    const headed = await ask('HEAD', path)
    t.equal(headed.status, status, `HEAD ${path}`)
    t.strictSame(headersOf(headed, path), headersOf(call, path), `HEAD ${path} says what GET says`)
    for (const wrong of ['POST', 'PUT', 'DELETE']) {
      const refused = await ask(wrong, path, { body: '{}' })
      t.strictSame(
        refused.error,
        [405, 'MethodNotAllowedError', 'method_not_allowed', null],
        `${wrong} ${path}`,
      )
      t.equal(refused.headers['allow'], 'GET')
    }
  }
  for (const path of ['/v1/chat/completions', '/v1/completions', '/route']) {
    for (const wrong of ['GET', 'HEAD', 'PUT', 'DELETE']) {
      const refused = await ask(wrong, path)
      t.strictSame([refused.status, refused.headers['allow']], [405, 'POST'], `${wrong} ${path}`)
    }
  }
  for (const [path, allowed] of [
    ['/workers', 'GET, POST'],
    ['/workers/x', 'GET, POST, DELETE'],
    ['/busy_threshold', 'GET, POST'],
  ] as const) {
    const refused = await ask('PUT', path)
    t.strictSame([refused.status, refused.headers['allow']], [405, allowed], path)
  }
  for (const path of ['/nowhere', '/v2/models', '/v1', '/v1/', '/decisions/', '/workers/', '/%zz']) {
    const missing = await ask('GET', path)
    t.strictSame(missing.error, [404, 'NotFoundError', 'not_found', null], path)
  }
})

t.test('what machines watch answers whatever their parameters are', async t => {
  const { ask } = await start(t)
  for (const path of ['/health', '/ready', '/metrics']) {
    const [plain, asked] = [await ask('GET', path), await ask('GET', `${path}?from=balancer`)]
    t.equal(asked.status, plain.status, path)
    t.not(asked.status, 400)
  }
})

t.test('a parameter that a route does not know is refused by name, with those that there are', async t => {
  const { ask } = await start(t, {}, { receipts: [RECEIPT] })
  const known: [string, string[]][] = [
    ['/decisions', ['limit']],
    ['/actors', ['limit', 'format']],
    ['/actors/flight', ['thread', 'limit', 'format']],
    ...['/decisions/decision-1', '/workers', '/dump', '/'].map((path): [string, string[]] => [path, []]),
  ]
  for (const [path, names] of known) {
    for (const query of ['lmit=1', 'lmit', 'limit_=2&lmit=1'].filter(query => !names.includes(query))) {
      const { status, body } = await ask('GET', `${path}?${query}`)
      const { error } = JSON.parse(body)
      t.strictSame([status, error.code], [400, 'invalid_value'], `${path}?${query}`)
      t.match(
        error.message,
        names.length === 0 ? `: ${path} takes no parameters` : `: ${path} takes ${names.join(', ')}`,
      )
      t.match(error.message, /^cannot use li?mit_?=/)
    }
    t.equal((await ask('GET', `${path}?`)).status, 200, `${path}? asks for nothing`)
  }
  t.match((await ask('GET', '/decisions?limit=1&limit=2')).body, /limit=2: it is given twice/)
  t.match((await ask('GET', '/actors?format=')).body, /format=: use json or text/)
  t.match((await ask('GET', '/actors?limit=')).body, /limit=: use a whole number/)
  const route = await ask('POST', '/route?x=1', { body: '{"model":"m","prompt":"hi"}' })
  t.match(route.body, /x=…: \/route takes no parameters/)
})

t.test('models are those of workers that are up, each once, adapters with their base', async t => {
  const { system, ref, ask } = await start(t)
  const down = {
    ...WORKER,
    id: 'down',
    state: 'down' as const,
    models: [{ ...WORKER.models[0]!, name: 'gone' }],
  }
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER, { ...WORKER, id: 'twin' }, down) })
  await system.settle()
  const list = JSON.parse((await ask('GET', '/v1/models')).body)
  t.match(list, {
    object: 'list',
    data: [
      { id: 'm', object: 'model', root: '/models/m' },
      { id: 'org/poet', parent: 'm' },
    ],
  })
  t.equal(list.data.length, 2)
  for (const path of ['/v1/models/org/poet', '/v1/models/org%2Fpoet']) {
    t.match(JSON.parse((await ask('GET', path)).body), { id: 'org/poet', parent: 'm' }, path)
  }
  t.match((await ask('GET', '/v1/models/gone')).error, [404])
})

t.test('/workers shows every worker key with trust, blocks held and load', async t => {
  const { ask, script } = await start(t)
  script.loads = {
    rows: [
      {
        worker: '10.0.0.1:8001/0',
        workerSlot: 0,
        activeBlocks: 4,
        activePrefillTokens: 70,
        activeRequests: 2,
        reported: { share: 0.25, reason: undefined },
        learned: {
          prefill: { coefficients: [10, 1 / 30, 1e-6], source: 'worker', observations: 9, kneeTokens: 256 },
          decode: { coefficients: [10, 0.1, 4e-5], source: 'prior', observations: 0 },
        },
      },
    ],
    stats: { expiredTotal: 0 } as never,
  }
  const { workers } = JSON.parse((await ask('GET', '/workers')).body)
  t.match(workers, [
    {
      id: '10.0.0.1:8001',
      instance_id: 7,
      state: 'up',
      block_size: { value: 16, source: 'probed' },
      worker_keys: [
        {
          worker: '10.0.0.1:8001/0',
          trust: 'exact',
          blocks_held: 5,
          load: {
            ...{ active_blocks: 4, prefill_tokens: 70, requests: 2 },
            ...{ engine_kv_usage: 0.25, engine_kv_usage_reason: null },
          },
          learned: {
            prefill: {
              source: 'worker',
              observations: 9,
              ms_per_step: 10,
              ms_per_token: 0.0333333,
              ms_per_million_pairs: 1,
            },
            decode: {
              source: 'prior',
              observations: 0,
              ms_per_step: 10,
              ms_per_request: 0.1,
              ms_per_thousand_tokens_held: 0.04,
            },
          },
          events: { endpoint: 'tcp://10.0.0.1:5557', state: null },
        },
      ],
    },
  ])
})

t.test('/workers goes without the blocks of a shard that does not answer', async t => {
  const { system, send, script } = await start(t)
  script.shard = undefined
  const call = send('GET', '/workers')
  await system.advance('1s')
  t.match(JSON.parse(call.body).workers, [{ worker_keys: [{ blocks_held: 0 }] }])
})

t.test('/decisions has the latest first, as many as asked for', async t => {
  const receipts = [3, 2, 1].map(number => ({ ...RECEIPT, id: `decision-${number}` }))
  const { ask } = await start(t, {}, { receipts })
  const idsOf = async (path: string) =>
    JSON.parse((await ask('GET', path)).body).decisions.map(({ id }: { id: string }) => id)
  t.strictSame(await idsOf('/decisions'), ['decision-3', 'decision-2', 'decision-1'])
  t.strictSame(await idsOf('/decisions?limit=2'), ['decision-3', 'decision-2'])
  for (const limit of ['0', '-1', '1001', 'x', '1.5', '']) {
    const call = await ask('GET', `/decisions?limit=${limit}`)
    t.strictSame(call.error, [400, 'BadRequestError', 'invalid_value', null], `limit=${limit}`)
    t.match(call.body, /from 1 to 1000/)
  }
  t.match((await ask('GET', '/decisions/decision-4')).error, [404])
})

t.test('a receipt tells times to the microsecond', async t => {
  const delivery = {
    outcome: 'ok' as const,
    status: 200,
    promptTokens: 100,
    completionTokens: 1,
    cachedTokens: 48,
    waitedMs: 0,
    timeToFirstByteMs: 179.59945799999696,
    durationMs: 0.1 + 0.2,
    streamEvents: undefined,
    error: undefined,
  }
  const receipt = { ...RECEIPT, decisionMs: 1 / 3, delivery }
  const { ask } = await start(t, {}, { receipts: [receipt] })
  const { decisions } = JSON.parse((await ask('GET', '/decisions')).body)
  t.match(decisions, [
    { decision_ms: 0.333, delivered: { time_to_first_byte_ms: 179.599, duration_ms: 0.3 } },
  ])
})

const HASH = '00000000000000ff'
const OTHER_HASH = 'f000000000000001'

t.test('/dump lists the index by worker key', async t => {
  const { ask } = await start(
    t,
    {},
    {
      blocks: [
        { engineHash: HASH, parentEngineHash: undefined, localHash: OTHER_HASH, isReachable: true },
        { engineHash: OTHER_HASH, parentEngineHash: HASH, localHash: HASH, isReachable: true },
      ],
    },
  )
  const dump = {
    '10.0.0.1:8001/0': {
      block_size: 16,
      blocks: [
        { block_hash: HASH, parent_block_hash: null, tokens_hash: OTHER_HASH },
        { block_hash: OTHER_HASH, parent_block_hash: HASH, tokens_hash: HASH },
      ],
    },
  }
  t.equal((await ask('GET', '/dump')).body, `${JSON.stringify(dump, null, 2)}\n`)
})

t.test('/ready is about workers; /health is about the process, and its status tells of them', async t => {
  const { system, ref, ask } = await start(t)
  const seen = async () => {
    await system.settle()
    const [health, ready] = [await ask('GET', '/health'), await ask('GET', '/ready')]
    return [health.status, JSON.parse(health.body), ready.status, JSON.parse(ready.body).status]
  }
  t.strictSame(await seen(), [200, { status: 'ok', workers: { up: 1, total: 1 } }, 200, 'ready'])
  const down = { ...WORKER, id: 'other:1', state: 'down' } as const
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER, down) })
  t.match(await seen(), [
    200,
    { status: 'degraded', workers: { up: 1, total: 2 }, hint: /^1 of 2 workers are up: / },
    200,
  ])
  ref.tell({ type: 'fleet', fleet: fleetOf(down) })
  t.match(await seen(), [
    200,
    {
      status: 'degraded',
      workers: { up: 0, total: 1 },
      hint: /^no worker is up, .* GET \/workers says why$/,
    },
    503,
    'no worker is up',
  ])
  ref.tell({ type: 'fleet', fleet: fleetOf() })
  t.match(await seen(), [200, { status: 'degraded', workers: { up: 0, total: 0 } }, 503])
})

t.test('until the start is over it is not ready, whatever workers are up', async t => {
  const { system, ref, ask } = await start(t, {}, {}, { isStarted: false })
  t.match(JSON.parse((await ask('GET', '/health')).body), {
    status: 'starting',
    workers: { up: 1, total: 1 },
    hint: /GET \/ready/,
  })
  const early = await ask('GET', '/ready')
  t.match([early.status, JSON.parse(early.body)], [503, { status: 'starting', waiting_for: [] }])
  ref.tell({ type: 'started' })
  await system.settle()
  t.equal((await ask('GET', '/ready')).status, 200)
})

t.test('actors are shown as a tree, within a limit, for machines and for people', async t => {
  const { ask } = await start(t)
  const view = JSON.parse((await ask('GET', '/actors')).body)
  t.match(view.threads, [{ thread: 'main', state: 'running', lives: 1, answered: true, actors: Number }])
  const row = view.actors.find((actor: { readonly name: string }) => actor.name === 'gateway')
  t.match(row, { thread: 'main', state: 'running', restarts: 0, mailbox_depth: 0, children: [] })
  t.ok(row.mailbox_high_water >= 0)
  t.equal(view.left_out, 0)
  const few = JSON.parse((await ask('GET', '/actors?limit=2')).body)
  t.equal(few.actors.length, 2)
  t.equal(few.left_out, view.actors.length - 2)
  const text = await ask('GET', '/actors?format=text&limit=3')
  t.match(text.headers['content-type'], /^text\/plain/)
  t.match(text.body, /^main {2}running {2}life 1 {2}\d+ actors {2}\d+ handled/)
  t.match(text.body, new RegExp(`… and ${view.actors.length - 3} more: \\?limit=`))
  for (const query of ['limit=0', 'limit=x', 'limit=10001', 'format=xml']) {
    t.equal((await ask('GET', `/actors?${query}`)).status, 400, query)
  }
})

t.test('the last things that a thread did can be read', async t => {
  const { ask } = await start(t)
  await ask('GET', '/health')
  const view = JSON.parse((await ask('GET', '/actors/flight?thread=main&limit=1000')).body)
  t.equal(view.thread, 'main')
  t.match(view.events[0], { kind: 'threadStarted', detail: 1, text: 'thread started, life 1' })
  t.ok(view.events.some((event: { readonly text: string }) => event.text === 'gateway started'))
  const text = await ask('GET', '/actors/flight?format=text&limit=1000')
  t.match(text.body, /^\d{4}-\d\d-\d\dT\S+Z {2}thread started, life 1$/m)
  t.match((await ask('GET', '/actors/flight?thread=nope')).error, [404])
})

t.test('/workers shows how the predictions for a worker key have fared', async t => {
  const audit: KeyAudit = {
    worker: WORKER.keys[0]!.key,
    workerSlot: 0,
    state: 'unaudited',
    requests: 0,
    predictedTokens: 0,
    deliveredTokens: 0,
    overPredictions: 0,
    underPredictions: 0,
    unreported: 7,
    promptDifferences: 0,
    errorCounts: [],
    errorBlocksSum: 0,
    precision: 1,
    sampleRequests: 0,
    guessPrecision: 1,
    guessSampleRequests: 0,
  }
  const shown = async (world: Awaited<ReturnType<typeof start>>) =>
    JSON.parse((await world.ask('GET', '/workers')).body).workers[0].worker_keys[0].audit
  t.match(await shown(await start(t)), { state: 'waiting', requests: 0, precision: null })
  await t.test('unaudited', async t => {
    const nothing = { requests: 0, precision: null, guess_precision: null }
    t.match(await shown(await start(t, {}, { audits: [audit] })), { state: 'unaudited', ...nothing })
  })
})

t.test(
  'a program whose worker was removed while it was chosen is told so, and has nothing booked',
  async t => {
    const { ask, script } = await start(t)
    script.decide = (_, id) => ({ kind: 'decided', decision: { ...DECISION, id, worker: 'gone/0' } })
    const body = JSON.stringify({ model: 'm', token_ids: [1, 2, 3], request_id: 'a' })
    const chosen = await ask('POST', '/v1/router/best_worker', { body })
    t.equal(chosen.status, 503)
    t.match(
      chosen.body,
      /cannot place the request on gone\/0: it was removed since it was chosen; choose again/,
    )
    const free = await ask('POST', '/v1/router/free', { body: '{"request_id": "a"}' })
    t.equal(free.status, 404)
  },
)
