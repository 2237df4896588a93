/**
 * The queue in the whole router, in a simulation: what waits is served in order or refused, and nothing stays
 * booked.
 */

import type { HttpHeaders } from '@homing/transport'
import t, { type Test } from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const ENGINE = { blocks: 4000, publishesEvents: false, stepTokensMax: 512, speed: 1 } as const
/** More than a step: one at a worker fills it. */
const PROMPT_TOKENS = 40 * BLOCK_SIZE_TOKENS
const END_MS = 60_000

let marker = 0
const prompt = (tokens = PROMPT_TOKENS): number[] => {
  marker++
  return Array.from({ length: tokens }, (_, at) => 40 + ((marker * 7 + at * (1 + (marker % 5))) % 80))
}

interface Answer {
  readonly id: number
  readonly status: number
  readonly code: string | undefined
  readonly retryAfter: unknown
  readonly endMs: number
}

function begin(settings: object, seed = 1): Promise<SimulatedFleet> {
  return SimulatedFleet.start({
    seed,
    engines: [ENGINE, ENGINE],
    query: '?max_batched_tokens=512',
    settings: { queueThreshold: '1', openRequestsMax: 64, silenceTimeoutMs: 30_000, ...settings },
  })
}

/** Requests that are under way, and the answers of those that have ended, in the order of their ends. */
function clients(fleet: SimulatedFleet) {
  const answers: Answer[] = []
  const failed: number[] = []
  const send = (id: number, more: object = {}, signal?: AbortSignal, headers: HttpHeaders = {}): void => {
    const body = { model: MODEL, prompt: prompt(), max_tokens: 2, ...more }
    fleet.send({ headers }, body, END_MS, signal).then(
      ({ status, headers, body: bytes }) => {
        const text = Buffer.from(bytes).toString()
        const { error } = JSON.parse(text) as { error?: { code: string } }
        const endMs = fleet.simulation.clock.nowMs()
        answers.push({ id, status, code: error?.code, retryAfter: headers['retry-after'], endMs })
      },
      () => failed.push(id),
    )
  }
  const until = (count: number) =>
    fleet.simulation.run(() => answers.length + failed.length >= count, { within: END_MS })
  return { answers, failed, send, until }
}

interface QueueView {
  readonly requests: number
  readonly is_on: boolean
  readonly models: readonly { readonly waiting: { readonly requests: number } }[]
}

const queueOf = async (fleet: SimulatedFleet): Promise<QueueView> => (await fleet.view('/queue')) as QueueView

async function nothingIsBooked(t: Test, fleet: SimulatedFleet): Promise<void> {
  await fleet.simulation.run(undefined, { within: 2000 })
  for (const { worker_keys } of await fleet.workers())
    for (const { load } of worker_keys)
      t.strictSame([load.requests, load.prefill_tokens], [0, 0], 'nothing is booked')
  t.equal((await queueOf(fleet)).requests, 0, 'nothing waits')
}

t.test(
  'an overloaded fleet: all are served, those of a strict priority first, and GET /queue shows who waits',
  async t => {
    const fleet = await begin({})
    const { answers, send, until } = clients(fleet)
    for (let id = 0; id < 12; id++) send(id)
    await fleet.simulation.run(undefined, { within: 20 })
    const view = await queueOf(fleet)
    t.ok(view.is_on)
    t.ok(view.requests > 0, `${view.requests} wait`)
    send(100, { nvext: { agent_hints: { strict_priority: 1 } } })
    await until(13)
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]))
    const at = answers.findIndex(({ id }) => id === 100)
    t.ok(at < 8, `the one of strict priority is number ${at} of ${answers.length}`)
    const { decisions } = (await fleet.view('/decisions?limit=20')) as {
      decisions: readonly { readonly queue: { readonly waited_ms: number; readonly why: string } | null }[]
    }
    const waited = decisions.filter(({ queue }) => queue !== null)
    t.ok(waited.length > 0, `${waited.length} receipts say that their request waited`)
    t.ok(waited.every(({ queue }) => queue!.waited_ms >= 0))
    await nothingIsBooked(t, fleet)
    await fleet.stop()
  },
)

t.test('nobody has to ask for it under policy auto; under every other, nothing waits unasked', async t => {
  for (const [settings, isOn] of [
    [{ routerPolicy: 'auto' }, true],
    [{ routerPolicy: 'auto', queueThreshold: 'none' }, false],
    [{ routerPolicy: 'product' }, false],
    [{ routerMode: 'least-loaded' }, false],
  ] as const) {
    const what = JSON.stringify(settings)
    const fleet = await begin({ queueThreshold: undefined, ...settings })
    const { answers, send, until } = clients(fleet)
    for (let id = 0; id < 12; id++) send(id)
    await fleet.simulation.run(undefined, { within: 20 })
    const view = await queueOf(fleet)
    t.equal(view.is_on, isOn, what)
    t.equal(view.requests > 0, isOn, `${view.requests} wait with ${what}`)
    await until(12)
    t.ok(answers.every(({ status }) => status === 200))
    await nothingIsBooked(t, fleet)
    await fleet.stop()
  }
})

t.test(
  'at its bound the queue refuses with 503, and a client that leaves while it waits makes room',
  async t => {
    const fleet = await begin({ queueRequestsMax: 3 })
    const { answers, failed, send, until } = clients(fleet)
    const leaves = new AbortController()
    for (let id = 0; id < 12; id++) send(id, {}, id === 4 ? leaves.signal : undefined)
    await fleet.simulation.run(undefined, { within: 20 })
    leaves.abort()
    await until(12)
    const refused = answers.filter(({ status }) => status === 503)
    t.ok(refused.length > 0, `${refused.length} are refused`)
    t.ok(refused.every(({ code, retryAfter }) => code === 'queue_full' && Number(retryAfter) >= 1))
    t.equal(answers.length + failed.length, 12)
    await nothingIsBooked(t, fleet)
    await fleet.stop()
  },
)

t.test('a drain serves what waits, and refuses what is left when its time is over', async t => {
  const fleet = await begin({})
  const { answers, send, until } = clients(fleet)
  for (let id = 0; id < 30; id++) send(id)
  await fleet.simulation.run(undefined, { within: 20 })
  const cut = await fleet.drainRouter(150)
  await until(30)
  const served = answers.filter(({ status }) => status === 200).length
  t.ok(served > 2, `${served} are served`)
  t.ok(cut > 0, `${cut} are cut`)
  t.ok(answers.every(({ status, code }) => status === 200 || (status === 503 && code === 'shutting_down')))
  await fleet.stop()
})

t.test(
  'a gateway that fails while the router drains: the drain ends, and the rest of the router with it',
  async t => {
    const adminPort = 8200
    const fleet = await begin({ adminPort })
    const { answers, failed, send, until } = clients(fleet)
    for (let id = 0; id < 12; id++) send(id)
    await fleet.simulation.run(undefined, { within: 20 })
    const drained = fleet.beginDrain(5000)
    await fleet.simulation.run(undefined, { within: 5 })
    t.ok(fleet.simulation.fail('gateway'))
    t.equal(await fleet.simulation.settle(drained), 0)
    await until(12)
    t.equal(answers.length + failed.length, 12)
    await fleet.simulation.run(undefined, { within: 2000 })
    const queue = (await fleet.view('/queue', `http://127.0.0.1:${adminPort}`)) as QueueView
    t.equal(queue.requests, 0, 'nothing waits')
    await fleet.stop()
  },
)

t.test('sessions that are bound to a worker without room wait for it, and hold up nobody else', async t => {
  const fleet = await begin({ affinityTtlMs: 60_000, affinityMode: 'hard' })
  const { answers, send, until } = clients(fleet)
  const session = { 'x-dynamo-session-id': 's' }
  send(0, {}, undefined, session)
  await until(1)
  const workers = await fleet.workers()
  const { decisions } = (await fleet.view('/decisions?limit=1')) as {
    decisions: readonly { worker: string }[]
  }
  const bound = workers.findIndex(({ worker_keys }) => worker_keys[0]?.worker === decisions[0]?.worker)
  fleet.engines[bound]!.engine.setFaults({ hang: 'generation' })
  for (let id = 1; id <= 6; id++) send(id, {}, undefined, session)
  await fleet.simulation.run(undefined, { within: 20 })
  for (let id = 7; id <= 16; id++) send(id)
  // One of the others may be with the worker that hangs.
  await until(10)
  t.ok(answers.slice(1).every(({ id, status }) => id > 6 && status === 200))
  fleet.engines[bound]!.engine.clearFaults()
  await until(17)
  t.ok(answers.every(({ status }) => status === 200))
  const placed = (await fleet.view('/decisions?limit=20')) as { decisions: readonly { worker: string }[] }
  const there = placed.decisions.filter(({ worker }) => worker === decisions[0]?.worker)
  t.ok(there.length >= 7, `${there.length} of the session and of others were served there`)
  await nothingIsBooked(t, fleet)
  await fleet.stop()
})

const MANY = 1000
const CROWD = { openRequestsMax: 2 * MANY } as const

/** Lets MANY requests wait, each with its own tenant and class name. */
async function crowd(fleet: SimulatedFleet, send: ReturnType<typeof clients>['send']): Promise<void> {
  for (let id = 0; id < MANY; id++)
    send(id, {}, undefined, { 'x-homing-tenant': `tenant ${id}`, 'x-homing-policy-class': `class ${id}` })
  await fleet.simulation.run(undefined, { within: 5 })
  // Until the last has been read and measured.
  for (let looks = 0; looks < 50 && (await queueOf(fleet)).requests < MANY - 50; looks++)
    await fleet.simulation.run(undefined, { within: 5 })
}

const countOf = <T>(items: readonly T[]): Map<T, number> =>
  items.reduce((counts, item) => counts.set(item, (counts.get(item) ?? 0) + 1), new Map<T, number>())

t.test('all workers are gone while 1,000 wait: each hears that, and the next are served', async t => {
  const fleet = await begin(CROWD)
  const { answers, failed, send, until } = clients(fleet)
  await crowd(fleet, send)
  t.ok((await queueOf(fleet)).requests > 0.9 * MANY, 'they wait')
  for (const { url } of fleet.engines) fleet.network.disconnect(url)
  await until(MANY)
  const codes = countOf(answers.map(({ status, code }) => `${status} ${code ?? ''}`))
  t.equal(answers.length + failed.length, MANY)
  t.comment(JSON.stringify([...codes]))
  t.ok(codes.get('503 no_worker')! > 0.9 * MANY)
  for (const { url } of fleet.engines) fleet.network.reconnect(url)
  await fleet.simulation.run(undefined, { within: 3000 })
  send(MANY)
  await until(MANY + 1)
  t.equal(answers.at(-1)?.status, 200)
  await nothingIsBooked(t, fleet)
  await fleet.stop()
})

t.test('the queue fails while 1,000 wait: each is placed or refused, and none is called twice', async t => {
  const fleet = await begin(CROWD)
  const urls = new Set(fleet.engines.map(({ url }) => url))
  let calls = 0
  fleet.network.faults.http = ({ origin, path }) => {
    if (urls.has(origin) && path === '/v1/completions') calls++
    return 'deliver'
  }
  const { answers, failed, send, until } = clients(fleet)
  await crowd(fleet, send)
  const waiting = (await queueOf(fleet)).requests
  t.ok(fleet.simulation.fail('queue'))
  await until(MANY)
  const statuses = countOf(answers.map(({ status }) => status))
  t.strictSame([failed.length, [...statuses.keys()].sort()], [0, [200, 503]])
  t.ok(statuses.get(503)! >= 0.9 * waiting, `${statuses.get(503)} of ${waiting} are refused`)
  t.ok(answers.every(({ status, retryAfter }) => status === 200 || Number(retryAfter) >= 1))
  t.equal(calls, statuses.get(200), 'those that are served are called once')
  await nothingIsBooked(t, fleet)
  await fleet.stop()
})

t.test(
  'a drain while the queue is full: what is served in time is, the rest hears of the shutdown',
  async t => {
    const fleet = await begin({ ...CROWD, queueRequestsMax: 500 })
    const { answers, failed, send, until } = clients(fleet)
    for (let id = 0; id < MANY; id++) send(id)
    await fleet.simulation.run(undefined, { within: 60 })
    const cut = await fleet.drainRouter(500)
    await until(MANY)
    const codes = countOf(answers.map(({ status, code }) => `${status} ${code ?? ''}`))
    t.comment(JSON.stringify([...codes]))
    t.equal(failed.length, 0)
    t.strictSame([...codes.keys()].sort(), ['200 ', '503 queue_full', '503 shutting_down'])
    t.ok(codes.get('503 queue_full')! >= 400)
    t.ok(cut > 400 && codes.get('200 ')! > 2, `${cut} are cut`)
    await fleet.stop()
  },
)

t.test(
  'tenants and classes that clients make up add nothing to the metrics, and little to GET /queue',
  async t => {
    const fleet = await begin(CROWD)
    const { send, until } = clients(fleet)
    const series = async (): Promise<number> => {
      const { body } = await fleet.ask({ method: 'GET', path: '/metrics' })
      const lines = Buffer.from(body).toString().split('\n')
      return lines.filter(line => line.startsWith('homing_queue_')).length
    }
    send(-1)
    await until(1)
    const before = await series()
    await crowd(fleet, send)
    t.ok((await series()) <= before + 2, 'beside the waits that are expected now')
    const { models } = (await fleet.view('/queue')) as {
      models: readonly { tenants: readonly object[]; tenants_left_out: number; classes: readonly object[] }[]
    }
    const [shown] = models
    t.equal(shown?.tenants.length, 100)
    t.ok((shown?.tenants_left_out ?? 0) > 0.8 * MANY)
    t.equal(shown?.classes.length, 1)
    await fleet.stop()
  },
)

t.test('a wish that makes no sense is refused with its name, and what would be right', async t => {
  const fleet = await begin({})
  for (const [headers, hints, what, right] of [
    [{ 'x-homing-queue-timeout-ms': '-1' }, {}, 'x-homing-queue-timeout-ms', 'whole milliseconds from 0'],
    [{ 'x-homing-queue-timeout-ms': 'NaN' }, {}, 'x-homing-queue-timeout-ms', 'whole milliseconds from 0'],
    [{ 'x-homing-do-not-queue': 'maybe' }, {}, 'x-homing-do-not-queue', 'true or false'],
    [{ 'x-dynamo-request-priority': 'high' }, {}, 'x-dynamo-request-priority', 'whole number'],
    [{ 'x-dynamo-request-strict-priority': '-1' }, {}, 'x-dynamo-request-strict-priority', '0 to 4294967295'],
    [{}, { strict_priority: -1 }, 'nvext.agent_hints.strict_priority', '0 to 4294967295'],
    [{}, { latency_sensitivity: 'NaN' }, 'nvext.agent_hints.latency_sensitivity', 'number'],
    [{}, { priority: 1.5 }, 'nvext.agent_hints.priority', 'whole number'],
  ] as const) {
    const body = { model: MODEL, prompt: prompt(), max_tokens: 1, nvext: { agent_hints: hints } }
    const reply = await fleet.ask({ headers }, body)
    t.equal(reply.status, 400, what)
    const { error } = JSON.parse(Buffer.from(reply.body).toString()) as { error: { message: string } }
    t.ok(error.message.includes(what) && error.message.includes(right), error.message)
  }
  const harmless = { priority: -5 }
  const body = { model: MODEL, prompt: prompt(), max_tokens: 1, nvext: { agent_hints: harmless } }
  t.equal((await fleet.ask({}, body)).status, 200, 'no head start is less than none')
  await fleet.stop()
})

t.test('whoever of the request path is killed while requests wait, each ends once', async t => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const policy = seed % 2 === 0 ? 'auto' : 'linear'
    const fleet = await begin({ routerPolicy: policy, queueThreshold: seed % 3 === 0 ? 'auto' : '1' }, seed)
    const { answers, failed, send, until } = clients(fleet)
    const { simulation } = fleet
    for (let id = 0; id < 24; id++) simulation.clock.after((id * 53 * seed) % 200, () => send(id))
    const victim = VICTIMS[seed % VICTIMS.length]!
    simulation.clock.after(40 + ((seed * 37) % 160), () => void simulation.fail(victim))
    await simulation.run(undefined, { within: 201 })
    await until(24)
    t.equal(answers.length + failed.length, 24, `seed ${seed}: each has an answer (${victim}, ${policy})`)
    await nothingIsBooked(t, fleet)
    await fleet.stop()
  }
})

const SEEDS = 6
const VICTIMS = ['queue', 'router', 'tracker'] as const
