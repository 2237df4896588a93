/** Workers that join, drain and leave over real sockets, while requests come. */

import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { freePorts } from '@homing/transport/testing'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import {
  assertIndexEqualsCaches,
  chunksOf,
  type Fleet,
  RouterClient,
  send,
  startEngines,
  startFleet,
  startProcess,
  startTestRouter,
  until,
} from './fleet.ts'

const prompt = (seed: number, length = 64): number[] =>
  Array.from({ length }, (_, at) => 40 + ((seed * 31 + at * 7) % 80))

/** Sixteen tokens that no other number has. */
const ownBlock = (number: number): number[] =>
  Array.from({ length: 16 }, (_, at) => 40 + (Math.floor(number / 80 ** at) % 80))

const ask = (fleet: Fleet, seed: number, headers = {}) =>
  fleet.send('/v1/completions', { body: { model: MODEL, prompt: prompt(seed), max_tokens: 2 }, headers })

const idOf = (url: string): string => url.slice('http://'.length)

t.test('an engine joins, is exact, gets requests, drains and leaves', async t => {
  const { engines: more, stop } = await startEngines([{ speed: 1 }])
  t.teardown(stop)
  const [late] = more
  const fleet = await startFleet({ engines: [{}], router: ['--router-mode', 'round-robin'] })
  t.teardown(() => fleet.stop())
  const added = await fleet.send('/workers', { body: { url: late!.url } })
  t.equal(added.status, 201, added.text)
  t.match(added.json, { worker: idOf(late!.url) })
  await fleet.trusted('exact')
  t.equal((await fleet.send('/workers', { body: { url: late!.url } })).status, 409)
  const seen = new Set<string | undefined>()
  for (let i = 0; i < 4; i++) seen.add((await ask(fleet, i)).headers['x-homing-worker'])
  t.equal(seen.size, 2, 'both serve')
  await fleet.caughtUp([...fleet.engines, late!])
  t.ok((await assertIndexEqualsCaches(fleet, [...fleet.engines, late!])) > 0)

  // One that is under way when the drain begins.
  const instance = (await fleet.worker(late!.url)).instance_id
  const long = await fleet.open('/v1/completions', {
    body: {
      model: MODEL,
      prompt: prompt(9),
      max_tokens: 40,
      stream: true,
      nvext: { backend_instance_id: instance },
    },
  })
  t.equal(long.headers['x-homing-worker'], `${idOf(late!.url)}/0`)
  const drained = await fleet.send(`/workers/${idOf(late!.url)}/drain`, { method: 'POST' })
  t.equal(drained.status, 202, drained.text)
  for (let i = 0; i < 4; i++) {
    t.equal((await ask(fleet, i)).headers['x-homing-worker'], `${idOf(fleet.engines[0]!.url)}/0`)
  }
  t.ok(chunksOf(await long.body.text()).length > 1, 'what was under way ends well')
  await until('it has left', async () => ((await fleet.workers()).length === 1 ? true : undefined))
  t.notOk(Object.keys((await fleet.send('/dump')).json).includes(`${idOf(late!.url)}/0`))
  t.equal((await fleet.send(`/workers/${idOf(late!.url)}`, { method: 'DELETE' })).status, 404)
  t.equal((await fleet.send(`/workers/${idOf(late!.url)}/drain`, { method: 'POST' })).status, 404)
})

t.test(
  'a worker that cannot answer drains as fast as any other: dead, never reached, or killed as it drains',
  async t => {
    const [closedPort] = await freePorts(1)
    const silent = createServer()
    silent.listen(0, '127.0.0.1')
    await once(silent, 'listening')
    t.teardown(() => silent.close())
    const { port: silentPort } = silent.address() as AddressInfo
    const killed = await startProcess('engine', [
      ...['--host', '127.0.0.1', '--port', '0', '--events-port', '0', '--replay-port', '0', '--speed', '1'],
    ])
    t.teardown(() => killed.kill('SIGKILL'))
    const router = ['--probe-timeout', '10s', '--probe-interval', '10s', '--retries', '0']
    const fleet = await startFleet({ engines: [{}], router })
    t.teardown(() => fleet.stop())
    const others = [`http://127.0.0.1:${closedPort}`, `http://127.0.0.1:${silentPort}`, killed.url]
    for (const url of others) t.equal((await fleet.send('/workers', { body: { url } })).status, 201)
    await until('each is in its state', async () => {
      const states = (await fleet.workers()).map(({ state }) => state)
      // A machine that stands still for a while has the probe of the silent one time out.
      return /^up,down,(probing|down),up$/.test(states.join()) ? true : undefined
    })
    // It does not end before its engine is killed.
    await send(killed.url, '/admin/faults', { body: { slowMs: 100 } })
    const long = await fleet.open('/v1/completions', {
      body: {
        ...{ model: MODEL, prompt: prompt(9), max_tokens: 4000, stream: true },
        nvext: { backend_instance_id: (await fleet.worker(killed.url)).instance_id },
      },
    })
    t.equal(long.headers['x-homing-worker'], `${idOf(killed.url)}/0`)
    for (const url of others) {
      const { status, text } = await fleet.send(`/workers/${idOf(url)}/drain`, { method: 'POST' })
      t.equal(status, 202, text)
    }
    await until('those without a request have left', async () => {
      const ids = (await fleet.workers()).map(({ id }) => id)
      return ids.length === 2 && ids[1] === idOf(killed.url) ? true : undefined
    })
    killed.kill('SIGKILL')
    t.match(await long.body.text(), /"error"/, 'what it had begun ends with an error')
    await until('the last one has left', async () =>
      (await fleet.workers()).length === 1 ? true : undefined,
    )
    t.equal((await fleet.send('/workers', { body: { url: others[0] } })).status, 201, 'it may come again')
  },
)

t.test('replicas have one number for a worker, in whatever order workers come to them', async t => {
  const { engines, stop } = await startEngines([{}, {}, {}])
  t.teardown(stop)
  const [first, ...late] = engines.map(({ url }) => url)
  const replica = async (order: readonly string[]) => {
    const { url, stop: stopRouter } = await startTestRouter([first!], [])
    t.teardown(() => stopRouter(0))
    const router = new RouterClient(url)
    for (const each of order)
      t.equal((await router.send('/workers', { body: { url: each } })).status, 201, each)
    await router.trusted('exact')
    const workers = await router.workers()
    return { router, numbers: new Map(workers.map(worker => [worker.url, worker.instance_id])) }
  }
  const one = await replica(late)
  const other = await replica(late.toReversed())
  t.strictSame([...other.numbers.keys()], [first, ...late.toReversed()])
  for (const [url, number] of one.numbers) t.equal(other.numbers.get(url), number, url)
  t.equal(one.numbers.get(first!), 0, 'those of the start have their position')
  // What one replica says of a worker is so at the other.
  for (const url of late) {
    const given = { model: MODEL, token_ids: prompt(1), worker_id: one.numbers.get(url) }
    const best = await other.router.send('/v1/router/best_worker', { method: 'POST', body: given })
    t.match(best, { status: 200, json: { url, worker_id: given.worker_id } }, best.text)
    const nvext = { backend_instance_id: given.worker_id }
    const body = { model: MODEL, prompt: prompt(1), max_tokens: 1, nvext }
    const answer = await other.router.send('/v1/completions', { body })
    t.equal(answer.headers['x-homing-worker'], `${idOf(url)}/0`, answer.text)
  }
  await one.router.send(`/workers/${idOf(late[0]!)}`, { method: 'DELETE' })
  t.equal((await one.router.send('/workers', { body: { url: late[0] } })).status, 201)
  t.equal(
    (await one.router.worker(late[0]!)).instance_id,
    other.numbers.get(late[0]!),
    'also when it is back',
  )
})

t.test(
  'an engine under two names of one host is one worker, under two addresses two that are both right',
  async t => {
    const { engines: more, stop } = await startEngines([{ host: '0.0.0.0' }])
    t.teardown(stop)
    const { port } = new URL(more[0]!.url)
    const fleet = await startFleet({ engines: [{}] })
    t.teardown(() => fleet.stop())
    const add = (host: string) => fleet.send('/workers', { body: { url: `http://${host}:${port}` } })
    t.equal((await add('127.0.0.1')).status, 201)
    for (const name of ['localhost', '[::1]', 'LOCALHOST']) {
      const { status, text } = await add(name)
      t.equal(status, 409, name)
      t.match(text, /give it once/)
    }
    // Another address of the same machine: the router must ask the engine to find out.
    t.equal((await add('127.0.0.2')).status, 201)
    await fleet.trusted('exact')
    const held = async (): Promise<number[]> =>
      (await fleet.workers())
        .filter(({ id }) => id.endsWith(`:${port}`))
        .flatMap(({ worker_keys }) => worker_keys.map(({ blocks_held }) => blocks_held))
    const instance = (await fleet.workers()).find(({ id }) => id === `127.0.0.1:${port}`)!.instance_id
    const sent = await fleet.send('/v1/completions', {
      body: { model: MODEL, prompt: prompt(3), max_tokens: 2, nvext: { backend_instance_id: instance } },
    })
    t.equal(sent.status, 200, sent.text)
    await until('both know what one was sent', async () => {
      const [one, other] = await held()
      return one === other && one! >= 4 ? true : undefined
    })
    const again = await ask(fleet, 3)
    t.equal(again.headers['x-homing-overlap-blocks'], '3')
    t.equal(again.json.usage.prompt_tokens_details.cached_tokens, 48, 'as predicted')
    t.equal((await fleet.send(`/workers/127.0.0.1:${port}`, { method: 'DELETE' })).status, 200)
    t.equal((await held()).length, 1)
    const last = await ask(fleet, 3)
    t.equal(last.headers['x-homing-worker'], `127.0.0.2:${port}/0`, 'the other one still knows')
    t.equal(last.json.usage.prompt_tokens_details.cached_tokens, 48)
  },
)

t.test(
  'the last worker leaves under load: what it has ends well, all else is told, until one is there again',
  async t => {
    const fleet = await startFleet({ engines: [{ speed: 1 }] })
    t.teardown(() => fleet.stop())
    const { url } = fleet.engines[0]!
    const open = await Promise.all(
      Array.from({ length: 4 }, (_, seed) =>
        fleet.open('/v1/completions', {
          body: { model: MODEL, prompt: prompt(seed), max_tokens: 40, stream: true },
        }),
      ),
    )
    t.equal((await fleet.send(`/workers/${idOf(url)}`, { method: 'DELETE' })).status, 200)
    t.strictSame(await fleet.workers(), [])
    for (let seed = 0; seed < 4; seed++) {
      const { status, json } = await ask(fleet, seed)
      t.equal(status, 503)
      t.match(json.error, { message: /worker/ })
    }
    t.equal((await fleet.send('/ready')).status, 503)
    for (const { statusCode, body } of open) {
      t.equal(statusCode, 200)
      t.match(await body.text(), /data: \[DONE\]\n\n$/)
    }
    t.equal((await fleet.send('/workers', { body: { url } })).status, 201)
    await fleet.trusted('exact')
    t.equal((await ask(fleet, 0)).status, 200)
    await fleet.drained()
  },
)

t.test('a worker that joins a busy fleet takes its share, and is not swamped', async t => {
  const CLIENTS = 16
  const WARM = 60
  const COUNTED = 120
  const { engines: more, stop } = await startEngines([{ speed: 1 }])
  t.teardown(stop)
  const fleet = await startFleet({ engines: [{ speed: 1 }, { speed: 1 }] })
  t.teardown(() => fleet.stop())
  const { url } = more[0]!
  let sent = 0
  let joinedAt = Number.POSITIVE_INFINITY
  /** Worker ids by how many were sent before. */
  const places: string[] = []
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (sent < joinedAt + COUNTED) {
      const number = sent++
      // The first block is unique, so no worker holds any block of the prompt.
      const body = { model: MODEL, prompt: [...ownBlock(number), ...prompt(number, 112)], max_tokens: 4 }
      const { status, text, headers } = await fleet.send('/v1/completions', { body })
      if (status !== 200) throw new Error(text)
      places[number] = headers['x-homing-worker']!.replace('/0', '')
    }
  })
  await until('the fleet is busy', () => (sent >= WARM ? true : undefined))
  const { status, text } = await fleet.send('/workers', { body: { url } })
  t.equal(status, 201, text)
  await until('it is up', async () => {
    const found = (await fleet.workers()).find(({ id }) => id === idOf(url))
    return found?.state === 'up' || undefined
  })
  joinedAt = sent
  await Promise.all(clients)
  const counted = places.slice(joinedAt, joinedAt + COUNTED)
  const share = counted.filter(id => id === idOf(url)).length / COUNTED
  t.comment(`of ${counted.length} requests the third worker took ${share}`)
  t.ok(share > 0.1 && share < 1.5 / 3, `its share is ${share}`)
})

t.test('bad bodies and paths get one clear error', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  for (const [body, words] of [
    ['{', /send JSON/],
    [[], /send the URL/],
    [{ url: 7 }, /send the URL/],
    [{ url: 'http://a', x: 1 }, /cannot use x/],
    [
      { url: 'nonsense' },
      /cannot use the worker "\(not shown: it may be a secret\)": it is not a URL; write http:\/\/HOST:PORT/,
    ],
    [{ url: 'http://a/v1' }, /leave \/v1 out of its path/],
    [{ url: 'http://a?x=1' }, /unknown parameter x;/],
    [{ url: 'http://a?ranks=0' }, /ranks=0 is not a whole number/],
  ] as const) {
    const { status, json } = await fleet.send('/workers', { body })
    t.equal(status, 400, JSON.stringify(body))
    t.match(json.error.message, words)
  }
  t.equal((await fleet.send('/workers/a:1', { body: {} })).status, 400)
  const incomplete = await fleet.send('/workers/a:1')
  t.equal(incomplete.status, 400)
  t.match(incomplete.json.error.message, /GET \/workers\/ID\/diagnosis/)
  t.equal((await fleet.workers()).length, 1)
})

t.test('who may not change the fleet does not', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const id = idOf(fleet.engines[0]!.url)
  for (const headers of [
    { 'x-forwarded-for': '10.1.2.3' },
    { forwarded: 'for=10.1.2.3' },
    { origin: 'http://elsewhere.example' },
    { 'x-forwarded-for': '10.1.2.3', authorization: 'Bearer anything' },
    { host: 'rebound.example:8000' },
    { via: '1.1 proxy' },
    { 'sec-fetch-site': 'cross-site' },
  ] as const) {
    for (const [path, method, body] of [
      ['/workers', 'POST', { url: 'http://127.0.0.1:1' }],
      [`/workers/${id}`, 'DELETE', undefined],
      [`/workers/${id}/drain`, 'POST', undefined],
      ['/busy_threshold', 'POST', { model: MODEL, active_prefill_tokens_threshold: 1 }],
    ] as const) {
      const answer = await fleet.send(path, { method, headers: headers as Record<string, string>, body })
      t.equal(answer.status, 403, `${method} ${path} ${JSON.stringify(headers)}`)
      t.match(answer.json.error, { code: 'forbidden', message: /--admin-key-file|--host-name|another site/ })
    }
  }
  t.match(await fleet.workers(), [{ id, state: 'up' }])
})

t.test('with the key, anybody may', async t => {
  const key = 'correct-horse-battery-staple'
  const fleet = await startFleet({
    engines: [{}],
    router: ['--admin-key-file', `${t.testdir({ key: `${key}\n` })}/key`],
  })
  t.teardown(() => fleet.stop())
  const from = (given: string) => ({ 'x-forwarded-for': '10.1.2.3', authorization: `Bearer ${given}` })
  const body = { url: 'http://127.0.0.1:1' }
  t.equal((await fleet.send('/workers', { body, headers: from(`${key}x`) })).status, 403)
  t.equal((await fleet.send('/workers', { body, headers: from(key) })).status, 201)
  t.equal((await fleet.send('/workers/127.0.0.1:1', { method: 'DELETE', headers: from(key) })).status, 200)
})

t.test('two hundred workers join, drain and leave under load, and no request is lost', async t => {
  const ENGINES = 20
  const ROUNDS = 10
  const CLIENTS = 4
  const PROMPTS = 100
  const BLOCK_SIZE_TOKENS = 16
  // At all addresses of this machine: in each round they are other workers, with the caches of before.
  const { engines: more, stop } = await startEngines(
    Array.from({ length: ENGINES }, () => ({ host: '0.0.0.0' })),
    1,
  )
  t.teardown(stop)
  const fleet = await startFleet({ engines: [{}], router: ['--log-level', 'error'] })
  t.teardown(() => fleet.stop())
  const [resident] = fleet.engines
  let isOver = false
  let served = 0
  const places = new Set<string | undefined>()
  const faults: string[] = []
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let i = 0; !isOver; i++) {
      const { status, headers, text, json } = await ask(fleet, client + ((CLIENTS * i) % PROMPTS))
      if (status !== 200) {
        faults.push(text)
        continue
      }
      served++
      places.add(headers['x-homing-worker'])
      const predicted = Number(headers['x-homing-overlap-blocks']) * BLOCK_SIZE_TOKENS
      const { cached_tokens: delivered } = json.usage.prompt_tokens_details
      if (delivered < predicted)
        faults.push(`${headers['x-homing-worker']}: ${predicted} predicted, ${delivered} delivered`)
    }
  })
  for (let round = 0; round < ROUNDS; round++) {
    const hosts = more.map(({ url }) => `127.0.0.${2 + round}:${new URL(url).port}`)
    const added = await Promise.all(
      hosts.map(host => fleet.send('/workers', { body: { url: `http://${host}` } })),
    )
    t.strictSame([...new Set(added.map(({ status, text }) => (status === 201 ? 201 : text)))], [201])
    await until('all are up, and requests went on', async () => {
      const workers = await fleet.workers()
      const areUp = workers.length === ENGINES + 1 && workers.every(({ state }) => state === 'up')
      return areUp ? true : undefined
    })
    const before = served
    await until('requests went on', () => (served > before + ENGINES ? true : undefined))
    const gone = await Promise.all(
      hosts.map((host, at) =>
        at % 2 === 0
          ? fleet.send(`/workers/${host}/drain`, { method: 'POST' })
          : fleet.send(`/workers/${host}`, { method: 'DELETE' }),
      ),
    )
    t.strictSame([...new Set(gone.map(({ status }) => status))].sort(), [200, 202])
    await until('all have left', async () => ((await fleet.workers()).length === 1 ? true : undefined))
  }
  isOver = true
  await Promise.all(clients)
  t.strictSame(faults, [])
  t.ok(served > ENGINES * ROUNDS, `${served} requests were served`)
  t.comment(`${served} requests, by ${places.size} worker keys`)
  t.ok(places.size > ROUNDS, `${places.size} worker keys have served`)
  await fleet.drained()
  await fleet.caughtUp(fleet.engines)
  await assertIndexEqualsCaches(fleet, fleet.engines)
  t.strictSame(Object.keys((await fleet.send('/dump')).json), [`${idOf(resident!.url)}/0`])
  const { text: metrics } = await fleet.send('/metrics')
  t.notMatch(metrics, /worker="127\.0\.0\.(?!1:)/, 'no metric of a worker that has left')
})
