/**
 * `homing slots` over real sockets: what its routes take and answer, that loads are those of a naive model
 * whatever callers do, and that replicas count as one. HOMING_SEED sets the seed.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Answer, freePortPairs, send, startProcess, until } from './fleet.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
t.comment(`HOMING_SEED=${SEED}`)
const OK = { status: 'ok' }
const WORKER = { worker_id: 7, model_name: 'm', block_size: 16, dp_start: 0, dp_size: 2 }

interface Slots {
  readonly url: string
  post(path: string, body: unknown): Promise<Answer>
  get(path: string): Promise<Answer>
}

async function slots(t: Test, argv: readonly string[] = []): Promise<Slots> {
  const started = await startProcess('slots', ['--host', '127.0.0.1', '--port', '0', ...argv])
  t.teardown(async () => {
    started.kill('SIGTERM')
    await started.ended
  })
  const { url } = started
  return {
    url,
    post: (path, body) => send(url, path, { method: 'POST', body: body as object }),
    get: path => send(url, path),
  }
}

interface Load {
  readonly worker_id: number
  readonly dp_rank: number
  readonly active_prefill_tokens: number
  readonly active_decode_blocks: number
}

const rowsOf = (rows: readonly Load[]) =>
  rows.map(row => [row.worker_id, row.dp_rank, row.active_prefill_tokens, row.active_decode_blocks])

async function loadsOf({ get }: Slots) {
  return rowsOf((await get('/loads')).json as readonly Load[])
}

t.test('a request counts from add to free, on its rank only', async t => {
  const s = await slots(t)
  t.match(await s.get('/health'), { status: 200, json: OK })
  t.strictSame((await s.get('/workers')).json, [])
  t.match(await s.post('/register', WORKER), { status: 201, json: OK })
  t.strictSame((await s.get('/workers')).json, [{ ...WORKER, routing_group: 'default' }])
  const request = { model_name: 'm', request_id: 'a', worker_id: 7, dp_rank: 1 }
  const hashes = [1, -2, '-3']
  const added = await s.post('/add', { ...request, sequence_hashes: hashes, new_isl_tokens: 40 })
  t.match(added, { status: 201, json: OK })
  t.strictSame((await s.get('/loads?model_name=m')).json, [
    {
      model_name: 'm',
      routing_group: 'default',
      worker_id: 7,
      dp_rank: 0,
      active_prefill_tokens: 0,
      active_decode_blocks: 0,
      active_requests: 0,
    },
    {
      model_name: 'm',
      routing_group: 'default',
      worker_id: 7,
      dp_rank: 1,
      active_prefill_tokens: 40,
      active_decode_blocks: 3,
      active_requests: 1,
    },
  ])
  t.strictSame((await s.get('/loads?model_name=other')).json, [])

  // Two blocks lead as those that are active do; the same numbers written without a sign.
  const prompt = { model_name: 'm', sequence_hashes: ['1', '18446744073709551614', 9], new_isl_tokens: 20 }
  const potential = (await s.post('/potential_loads', prompt)).json as readonly object[]
  t.match(potential, [
    { worker_id: 7, dp_rank: 0, potential_prefill_tokens: 20, potential_decode_blocks: 3 },
    { worker_id: 7, dp_rank: 1, potential_prefill_tokens: 60, potential_decode_blocks: 4 },
  ])

  const name = { model_name: 'm', request_id: 'a' }
  t.match(await s.post('/prefill_complete', name), { status: 200, json: OK })
  t.strictSame((await loadsOf(s))[1], [7, 1, 0, 3])
  t.match(await s.post('/prefill_complete', name), { status: 200, json: OK })
  t.match(await s.post('/free', name), { status: 200, json: OK })
  t.strictSame(await loadsOf(s), [
    [7, 0, 0, 0],
    [7, 1, 0, 0],
  ])
  t.match(await s.post('/free', name), { status: 200, json: OK }, 'twice is once')
  t.equal((await s.post('/prefill_complete', name)).status, 404)
  const { text } = await s.get('/metrics')
  t.match(text, /^homing_slots_bookings_total\{outcome="freed"\} 1$/m)
  t.match(text, /^homing_slots_active_requests 0$/m)
})

t.test(
  'what cannot be done is one sentence, its status that of the reference, and changes nothing',
  async t => {
    const s = await slots(t, [
      '--max-active-requests',
      '2',
      '--worker-slots-max',
      '4',
      '--max-body-bytes',
      '4KiB',
    ])
    await s.post('/register', WORKER)
    const request = { model_name: 'm', request_id: 'a', worker_id: 7, dp_rank: 0, sequence_hashes: [1] }
    await s.post('/add', request)
    const cases: readonly (readonly [string, unknown, number, RegExp])[] = [
      ['/register', '{"worker_id": 7', 400, /^cannot register: the body is not JSON: /],
      ['/register', '[]', 422, /the body is not a JSON object/],
      ['/register', { ...WORKER, worker_id: -1 }, 422, /worker_id must be a whole number from 0 to 184/],
      [
        '/register',
        { ...WORKER, block_size: 0 },
        400,
        /block_size must be a whole number from 1 to 65536, not 0/,
      ],
      [
        '/register',
        { ...WORKER, dp_size: 0 },
        400,
        /dp_size must be a whole number from 1 to 4294967296, not 0/,
      ],
      ['/register', { ...WORKER, model_name: '' }, 400, /model_name must not be empty/],
      ['/register', { worker_id: 7, block_size: 16 }, 422, /model_name is missing/],
      [
        '/register',
        WORKER,
        409,
        /register worker 7: it is registered already for model "m" in routing group "d/,
      ],
      ['/register', { ...WORKER, worker_id: 8, block_size: 32 }, 409, /has blocks of 16 tokens, not 32/],
      [
        '/register',
        { ...WORKER, worker_id: 8, dp_size: 3 },
        503,
        /it has 3 ranks, and there is room for 2 of 4/,
      ],
      ['/unregister', { worker_id: 8, model_name: 'm' }, 404, /worker 8 is not registered for model "m"/],
      ['/unregister', { worker_id: 7, model_name: 'n' }, 404, /no worker is registered for model "n"/],
      [
        '/add',
        { ...request, request_id: 'b', model_name: 'n' },
        404,
        /add request "b": no worker is registered/,
      ],
      ['/add', { ...request, request_id: 'b', routing_group: 'g' }, 404, /in routing group "g"/],
      ['/add', { ...request, request_id: 'b', worker_id: 8 }, 404, /worker 8 is not registered/],
      ['/add', { ...request, request_id: 'b', dp_rank: 2 }, 404, /worker 7 has no rank 2; it has 0 to 1/],
      ['/add', request, 409, /add request "a": this id is held already/],
      [
        '/add',
        { ...request, sequence_hashes: [1.5] },
        422,
        /sequence_hashes\[0\] must be a 64-bit whole number/,
      ],
      ['/add', { ...request, sequence_hashes: 'x' }, 422, /sequence_hashes must be a list of numbers/],
      ['/add', { ...request, sequence_hashes: null }, 422, /sequence_hashes is missing/],
      [
        '/add',
        { ...request, new_isl_tokens: -1 },
        422,
        /new_isl_tokens must be a whole number from 0 .*, not -1/,
      ],
      ['/add', { ...request, request_id: 'x'.repeat(257) }, 400, /request_id has more than 256 characters/],
      ['/add', { ...request, sequence_hashes: Array(4096).fill(1) }, 413, /body/],
      ['/free', { model_name: 'n', request_id: 'a' }, 404, /no worker is registered for model "n"/],
      ['/prefill_complete', { model_name: 'm', request_id: 'z' }, 404, /request "z" is not held/],
      [
        '/potential_loads',
        { model_name: 'n', sequence_hashes: [] },
        404,
        /no worker is registered for model "n"/,
      ],
      [
        '/replica_sync/register_peer',
        { endpoint: 'tcp://a:1' },
        409,
        /was started without --replica-endpoint/,
      ],
      ['/replica_sync/register_peer', { endpoint: 'http://a' }, 400, /endpoint "http:\/\/a" is not 'tcp:/],
      ['/nowhere', {}, 404, /GET \/ lists them/],
      ['/workers', {}, 405, /GET/],
    ]
    for (const [path, body, status, message] of cases) {
      const answer = await s.post(path, body)
      const { error } = answer.json as { readonly error: string }
      t.equal(answer.status, status, `${path} ${JSON.stringify(body).slice(0, 60)}`)
      t.match(error, message)
      t.notMatch(error, /\n/)
    }
    t.strictSame(await loadsOf(s), [
      [7, 0, 0, 1],
      [7, 1, 0, 0],
    ])
    t.equal((await s.post('/add', { ...request, request_id: 'b' })).status, 201)
    const full = await s.post('/add', { ...request, request_id: 'c' })
    t.equal(full.status, 503)
    t.match(
      (full.json as { readonly error: string }).error,
      /2 requests \(--max-active-requests\) or \d+ blocks/,
    )
    t.match(full.headers, { 'retry-after': '1' })
    t.equal((await s.post('/free', { model_name: 'm', request_id: 'b' })).status, 200)
    t.equal((await s.post('/add', { ...request, request_id: 'c' })).status, 201)
  },
)

t.test('a body that is not said to be JSON is 415', async t => {
  const s = await slots(t)
  const call = (contentType: string | undefined, path = '/register') =>
    send(s.url, path, { body: JSON.stringify(WORKER), headers: { 'content-type': contentType ?? '' } })
  for (const contentType of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonx', ''])
    t.match(await call(contentType), { status: 415, json: { code: 'HOMING_SERVICE_BODY_TYPE' } }, contentType)
  t.strictSame((await s.get('/workers')).json, [])
  t.equal((await call('application/json; charset=utf-8')).status, 201)
  t.equal((await call('Application/vnd.x+JSON', '/unregister')).status, 200)
  t.equal((await call('text/plain', '/nowhere')).status, 404)
  const bare = await fetch(`${s.url}/reopen_logs`, { method: 'POST' })
  t.equal(bare.status, 200, 'without a body there is nothing to say')
})

t.test('a worker that is unregistered takes its requests with it', async t => {
  const s = await slots(t)
  await s.post('/register', WORKER)
  const request = { model_name: 'm', request_id: 'a', worker_id: 7, dp_rank: 1, sequence_hashes: [1, 2] }
  await s.post('/add', { ...request, new_isl_tokens: 32 })
  t.match(await s.post('/unregister', { worker_id: 7, model_name: 'm' }), { status: 200, json: OK })
  t.strictSame(await loadsOf(s), [])
  await s.post('/register', WORKER)
  t.strictSame(await loadsOf(s), [
    [7, 0, 0, 0],
    [7, 1, 0, 0],
  ])
  t.equal((await s.post('/add', request)).status, 201, 'its id is free again')
})

t.test('a request that is never freed expires', async t => {
  const s = await slots(t, ['--active-request-expiry-secs', '1s'])
  await s.post('/register', WORKER)
  const request = { model_name: 'm', request_id: 'a', worker_id: 7, dp_rank: 0, sequence_hashes: [1, 2] }
  await s.post('/add', { ...request, new_isl_tokens: 32 })
  await until('it has expired', async () => ((await loadsOf(s))[0]![3] === 0 ? true : undefined))
  t.match((await s.get('/metrics')).text, /^homing_slots_bookings_total\{outcome="expired"\} 1$/m)
})

t.test('a tracker that fails holds no request, and knows the workers again within a second', async t => {
  const started = await startProcess('slots', ['--host', '127.0.0.1', '--port', '0'], { canFail: true })
  t.teardown(() => started.kill('SIGKILL'))
  const post = (path: string, body: object) => send(started.url, path, { body })
  await post('/register', WORKER)
  const request = { model_name: 'm', request_id: 'a', worker_id: 7, dp_rank: 1, sequence_hashes: [1, 2] }
  await post('/add', request)
  await started.fail('tracker')
  const rows = async () => (await send(started.url, '/loads')).json as readonly Load[]
  await until('it is back', async () => {
    const answer = await send(started.url, '/loads')
    return answer.status === 200 && (answer.json as readonly Load[])[1]!.active_decode_blocks === 0
      ? true
      : undefined
  })
  await until('a request is taken again', async () =>
    (await post('/add', request)).status === 201 ? true : undefined,
  )
  await until('it counts', async () => ((await rows())[1]!.active_decode_blocks === 2 ? true : undefined))
})

/** The reference, as simple as can be: sets of blocks, looked through anew for each question. */
class NaiveSlots {
  readonly #held = new Map<
    string,
    { readonly rank: number; readonly blocks: readonly number[]; tokens: number }
  >()

  add(id: string, rank: number, blocks: readonly number[], tokens: number): boolean {
    if (this.#held.has(id)) return false
    this.#held.set(id, { rank, blocks, tokens })
    return true
  }

  prefillComplete(id: string): boolean {
    const held = this.#held.get(id)
    if (held !== undefined) held.tokens = 0
    return held !== undefined
  }

  free(id: string): void {
    this.#held.delete(id)
  }

  /** A block is itself and all before it. */
  load(rank: number): readonly [tokens: number, blocks: number] {
    const here = [...this.#held.values()].filter(held => held.rank === rank)
    const prefixes = new Set(
      here.flatMap(({ blocks }) => blocks.map((_, i) => blocks.slice(0, i + 1).join())),
    )
    return [here.reduce((sum, { tokens }) => sum + tokens, 0), prefixes.size]
  }

  potential(rank: number, blocks: readonly number[], tokens: number): readonly number[] {
    const here = [...this.#held.values()].filter(held => held.rank === rank)
    const isHeld = (length: number) =>
      here.some(held => held.blocks.slice(0, length).join() === blocks.slice(0, length).join())
    let held = 0
    while (held < blocks.length && isHeld(held + 1)) held++
    const [activeTokens, activeBlocks] = this.load(rank)
    return [activeTokens + tokens, activeBlocks + blocks.length - held]
  }
}

const blocks = fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 5 })
const id = fc.constantFrom('a', 'b', 'c', 'd', 'e')
const rank = fc.integer({ min: 0, max: 1 })
const tokens = fc.integer({ min: 0, max: 100 })
const steps = fc.array(
  fc.oneof(
    fc.record({ do: fc.constant('add' as const), id, rank, blocks, tokens }),
    fc.record({ do: fc.constant('prefill' as const), id }),
    fc.record({ do: fc.constant('free' as const), id }),
    fc.record({ do: fc.constant('ask' as const), blocks, tokens }),
  ),
  { maxLength: 40 },
)

t.test('loads are those of a naive model, whatever callers do', async t => {
  const s = await slots(t)
  let run = 0
  const agree = fc.asyncProperty(steps, async history => {
    // A group of its own for each run: it begins with nothing.
    const name = { model_name: 'm', routing_group: `g${run++}` }
    await s.post('/register', { ...WORKER, ...name })
    const naive = new NaiveSlots()
    for (const step of history) {
      if (step.do === 'add') {
        // Sequence hashes differ where prefixes do; these do so by construction.
        const hashes = step.blocks.map((_, i) => Number(step.blocks.slice(0, i + 1).join('')))
        const body = {
          ...name,
          request_id: step.id,
          worker_id: 7,
          dp_rank: step.rank,
          sequence_hashes: hashes,
        }
        const { status } = await s.post('/add', { ...body, new_isl_tokens: step.tokens })
        assert.equal(status, naive.add(step.id, step.rank, step.blocks, step.tokens) ? 201 : 409)
      } else if (step.do === 'prefill') {
        const { status } = await s.post('/prefill_complete', { ...name, request_id: step.id })
        assert.equal(status, naive.prefillComplete(step.id) ? 200 : 404)
      } else if (step.do === 'free') {
        const { status } = await s.post('/free', { ...name, request_id: step.id })
        assert.equal(status, 200)
        naive.free(step.id)
      } else {
        const hashes = step.blocks.map((_, i) => Number(step.blocks.slice(0, i + 1).join('')))
        const { json } = await s.post('/potential_loads', {
          ...name,
          sequence_hashes: hashes,
          new_isl_tokens: step.tokens,
        })
        const rows = json as readonly { potential_prefill_tokens: number; potential_decode_blocks: number }[]
        const told = rows.map(row => [row.potential_prefill_tokens, row.potential_decode_blocks])
        const known = [0, 1].map(at => naive.potential(at, step.blocks, step.tokens))
        assert.deepEqual(told, known)
      }
    }
    const rows = (await s.get(`/loads?routing_group=${name.routing_group}`)).json as readonly Load[]
    assert.deepEqual(
      rowsOf(rows).map(row => row.slice(2)),
      [0, 1].map(at => naive.load(at)),
    )
    await s.post('/unregister', { worker_id: 7, ...name })
  })
  await fc.assert(agree, { seed: SEED, numRuns: Number(process.env['HOMING_CASES'] ?? 15) })
  t.pass()
})

t.test('replicas count as one: what is added, completed and freed at either', async t => {
  const endpoints = (await freePortPairs(2)).map(port => `tcp://127.0.0.1:${port}`)
  const [a, b] = [
    await slots(t, ['--replica-endpoint', endpoints[0]!, '--replica-peer', endpoints[1]!]),
    await slots(t, ['--replica-endpoint', endpoints[1]!]),
  ]
  t.strictSame((await b.get('/replica_sync/peers')).json, [])
  const peer = { endpoint: endpoints[0] }
  t.match(await b.post('/replica_sync/register_peer', peer), { status: 201, json: OK })
  t.match(await b.post('/replica_sync/register_peer', peer), { status: 201, json: OK })
  t.equal((await b.post('/replica_sync/register_peer', { endpoint: endpoints[1] })).status, 409, 'itself')
  t.strictSame((await b.get('/replica_sync/peers')).json, [endpoints[0]])
  await a.post('/register', WORKER)
  const request = { model_name: 'm', worker_id: 7, dp_rank: 0, new_isl_tokens: 64 }
  await a.post('/add', { ...request, request_id: 'a', sequence_hashes: [1, 2, 3] })
  // The worker is known there only now: what was told before counts from then on.
  await b.post('/register', WORKER)
  const until2 = (what: string, of: Slots, row: readonly number[]) =>
    until(what, async () => (String((await loadsOf(of))[0]) === String(row) ? true : undefined))
  await until2('b counts what was added at a', b, [7, 0, 64, 3])
  const prompt = { model_name: 'm', sequence_hashes: [1, 2, 9], new_isl_tokens: 0 }
  const [potential] = (await b.post('/potential_loads', prompt)).json as readonly object[]
  t.match(potential, { potential_prefill_tokens: 64, potential_decode_blocks: 4 }, 'shared blocks count once')
  const again = await b.post('/add', { ...request, request_id: 'a', sequence_hashes: [] })
  t.equal(again.status, 409, 'an id is held once')
  t.equal((await b.post('/prefill_complete', { model_name: 'm', request_id: 'a' })).status, 200)
  await until2('a knows that the prefill is complete', a, [7, 0, 0, 3])
  await b.post('/add', { ...request, request_id: 'b', sequence_hashes: [1, 2, 3, 4] })
  await until2('a counts what was added at b', a, [7, 0, 64, 4])
  await a.post('/free', { model_name: 'm', request_id: 'b' })
  await b.post('/free', { model_name: 'm', request_id: 'a' })
  for (const one of [a, b]) await until2('both are free', one, [7, 0, 0, 0])

  await a.post('/add', { ...request, request_id: 'c', sequence_hashes: [1] })
  await until2('b counts it', b, [7, 0, 64, 1])
  t.match(await b.post('/replica_sync/deregister_peer', peer), { status: 200, json: OK })
  t.equal((await b.post('/replica_sync/deregister_peer', peer)).status, 404)
  await until2('b has forgotten what a holds', b, [7, 0, 0, 0])
  t.match((await b.get('/metrics')).text, /^homing_slots_known_replicas\{state="live"\} 0$/m)
})
