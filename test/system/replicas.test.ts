/**
 * Routers side by side on the same engines: what one sends there counts in the other, over NATS and over ZeroMQ, late, over outages, and until one
 * of them is killed. HOMING_FAULTS_RUNS sets how often (default 2).
 */

import { createServer } from 'node:net'
import process from 'node:process'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  RouterClient,
  startEngines,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 2)
const MODEL = 'homing-sim'
const needsServer = { skip: NO_NATS_SERVER } as const
const EXPIRY_MS = 1500
const SLOW = { speed: 1, profile: 'h100-8b', blocks: 4000 } as const

interface Replica {
  readonly client: RouterClient
  stop(graceMs?: number): Promise<void>
}

/** Options of replica `i` of so many. */
type Plane = (i: number) => readonly string[]

async function engines(t: Test, count = 2): Promise<readonly ThreadEngine[]> {
  const started = await startEngines(Array.from({ length: count }, () => SLOW))
  t.teardown(started.stop)
  return started.engines
}

async function replica(t: Test, all: readonly ThreadEngine[], options: readonly string[]): Promise<Replica> {
  const router = await startTestRouter(
    all.map(({ url }) => url),
    ['--router-replica-sync', '--router-replica-expiry', `${EXPIRY_MS}ms`, ...options],
  )
  let isStopped = false
  const stop = async (graceMs = 0): Promise<void> => {
    if (isStopped) return
    isStopped = true
    await router.stop(graceMs)
  }
  t.teardown(() => stop())
  return { client: new RouterClient(router.url), stop }
}

async function natsPlane(t: Test): Promise<{ readonly plane: Plane; readonly nats: NatsServer }> {
  const nats = await NatsServer.start()
  t.teardown(() => nats.stop())
  return { nats, plane: () => ['--nats', nats.address] }
}

/** Two ports in a row each, on which nobody listens now. */
async function zmqPlane(count: number): Promise<Plane> {
  const ports: number[] = []
  for (let port = 21_000 + ((process.pid * 37) % 9000); ports.length < count; port += 2)
    if ((await isFree(port)) && (await isFree(port + 1))) ports.push(port)
  return i => [
    ...['--router-replica-endpoint', `tcp://127.0.0.1:${ports[i]}`],
    ...ports
      .filter((_, other) => other !== i)
      .flatMap(port => ['--router-replica-peer', `tcp://127.0.0.1:${port}`]),
  ]
}

function isFree(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

// biome-ignore lint/suspicious/noExplicitAny: a view of many forms
async function views(client: RouterClient): Promise<any> {
  return (await client.send('/replicas')).json
}

async function live(client: RouterClient, others: number): Promise<void> {
  await until('the others are known', async () => {
    const { replicas } = await views(client)
    return replicas.filter(({ state }: { state: string }) => state === 'live').length === others
      ? true
      : undefined
  })
}

async function requestsAt(client: RouterClient): Promise<number> {
  return (await client.workers())
    .flatMap(({ worker_keys }) => worker_keys)
    .reduce((sum, { load }) => sum + load.requests, 0)
}

/** Streams that last until they are let go. */
function openStreams(client: RouterClient, count: number, from = 0) {
  const control = new AbortController()
  const statuses: number[] = []
  const answers = Array.from({ length: count }, async (_, i) => {
    const body = { model: MODEL, prompt: `prompt ${from + i} `.repeat(40), max_tokens: 3000, stream: true }
    const answer = await client.open('/v1/completions', { body, signal: control.signal })
    statuses.push(answer.statusCode)
    await answer.body.dump({ limit: 1e9 }).catch(() => {})
  })
  const ended = Promise.allSettled(answers)
  return {
    /** Of those whose answer began. */
    statuses,
    async end(): Promise<void> {
      control.abort()
      await ended
    },
  }
}

async function counts(client: RouterClient, requests: number): Promise<void> {
  let seen = -1
  await until(
    `${requests} requests are booked`,
    async () => {
      seen = await requestsAt(client)
      return seen === requests ? true : undefined
    },
    { msMax: 20_000, seen: () => seen },
  )
}

async function testSync(t: Test, plane: Plane): Promise<void> {
  const all = await engines(t)
  const first = await replica(t, all, plane(0))
  const streams = openStreams(first.client, 6)
  await counts(first.client, 6)
  // One that comes late is told what is open.
  const second = await replica(t, all, plane(1))
  await live(second.client, 1)
  await live(first.client, 1)
  await counts(second.client, 6)
  const more = openStreams(second.client, 5, 100)
  for (const { client } of [first, second]) await counts(client, 11)
  const loads = async ({ client }: Replica) =>
    (await client.workers()).flatMap(({ worker_keys }) =>
      worker_keys.map(({ worker, load }) => [worker, load.requests]),
    )
  t.strictSame(await loads(first), await loads(second), 'both see the same requests at the same workers')
  t.match(await views(second.client), { sync: true, booked_elsewhere: 6, malformed_messages: 0 })
  const metrics = (await second.client.send('/metrics')).text
  t.match(metrics, /^homing_replica_known_routers\{state="live"\} 1$/m)
  t.match(metrics, /^homing_replica_open_requests 6$/m)
  await streams.end()
  await more.end()
  for (const { client } of [first, second]) {
    await client.drained()
    t.match(await views(client), { booked_elsewhere: 0 })
  }
}

t.test(
  'two routers share their load over NATS, and it returns to zero (S6, 000-4, 002-2)',
  needsServer,
  async t => {
    const { plane } = await natsPlane(t)
    await testSync(t, plane)
  },
)

t.test('the same over ZeroMQ, without a broker', async t => testSync(t, await zmqPlane(2)))

t.test(
  'while the broker is away bookings expire, and when it is back they are there again',
  needsServer,
  async t => {
    const { nats, plane } = await natsPlane(t)
    const all = await engines(t)
    const [first, second] = [await replica(t, all, plane(0)), await replica(t, all, plane(1))]
    await live(first.client, 1)
    await live(second.client, 1)
    const streams = openStreams(first.client, 4)
    await counts(second.client, 4)
    await nats.down()
    await counts(second.client, 0)
    t.equal(await requestsAt(first.client), 4, 'its own go on')
    await nats.up()
    await counts(second.client, 4)
    await streams.end()
    for (const { client } of [first, second]) await client.drained()
  },
)

t.test('a router that ends in good order is forgotten at once', needsServer, async t => {
  const { plane } = await natsPlane(t)
  const all = await engines(t)
  const [first, second] = [await replica(t, all, plane(0)), await replica(t, all, plane(1))]
  await live(second.client, 1)
  const streams = openStreams(first.client, 3)
  await counts(second.client, 3)
  await first.stop()
  await counts(second.client, 0)
  t.strictSame((await views(second.client)).replicas, [])
  await streams.end()
})

t.test(
  `${RUNS} times one of two router processes is killed: its bookings go, nobody else is touched`,
  async t => {
    const all = await engines(t)
    const plane = await zmqPlane(2)
    const start = (i: number) =>
      startProcess('router', [
        ...['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '1', '--tokenizer-threads', '1'],
        ...['--router-replica-sync', '--router-replica-expiry', `${EXPIRY_MS}ms`, '--log-level', 'warn'],
        ...all.flatMap(({ url }) => ['--worker', url]),
        ...plane(i),
      ])
    const survivor = await start(0)
    t.teardown(() => survivor.kill('SIGKILL'))
    const client = new RouterClient(survivor.url)
    for (let run = 0; run < RUNS; run++) {
      const victim = await start(1)
      t.teardown(() => victim.kill('SIGKILL'))
      await live(client, 1)
      const dying = openStreams(new RouterClient(victim.url), 4, 1000 * run)
      const staying = openStreams(client, 3, 1000 * run + 500)
      await counts(client, 7)
      victim.kill('SIGKILL')
      const killedMs = performance.now()
      await counts(client, 3)
      t.ok(performance.now() - killedMs < EXPIRY_MS + 10_000, `run ${run}: expired`)
      await dying.end()
      const answer = await client.send('/v1/completions', {
        body: { model: MODEL, prompt: 'hello', max_tokens: 2 },
      })
      t.equal(answer.status, 200)
      t.strictSame(staying.statuses, [200, 200, 200], 'requests of the survivor go on')
      await staying.end()
      await client.drained()
    }
  },
)

t.test('a session goes where it went, whichever router it comes through (S15)', needsServer, async t => {
  const { plane } = await natsPlane(t)
  const all = await engines(t, 4)
  const options = ['--router-session-affinity-ttl-secs', '60', '--router-session-affinity-mode', 'hard']
  const routers = [
    await replica(t, all, [...plane(0), ...options]),
    await replica(t, all, [...plane(1), ...options]),
  ]
  for (const { client } of routers) await live(client, 1)
  const ask = async (i: number, session: string): Promise<string | undefined> => {
    const answer = await routers[i]!.client.send('/v1/completions', {
      body: { model: MODEL, prompt: `${session} says ${i}`, max_tokens: 1 },
      headers: { 'x-dynamo-session-id': session },
    })
    t.equal(answer.status, 200, answer.text)
    return answer.headers['x-homing-worker']
  }
  for (let number = 0; number < 12; number++) {
    const session = `session ${number}`
    const first = await ask(number % 2, session)
    await until('the other router sends it there, too', async () => {
      // At once, unless the word is still on its way.
      return (await ask((number + 1) % 2, session)) === first ? true : undefined
    })
    t.equal(await ask(number % 2, session), first)
  }
})

t.test('without sync nothing is told', async t => {
  const all = await engines(t, 1)
  const router = await startTestRouter([all[0]!.url], [])
  t.teardown(() => router.stop(0))
  t.strictSame((await new RouterClient(router.url).send('/replicas')).json, { sync: false, replicas: [] })
})
