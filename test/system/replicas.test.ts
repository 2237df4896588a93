/**
 * Routers side by side on the same engines: what one sends there counts in the other, over NATS and over
 * ZeroMQ, late, over outages, and until one of them is killed or cut off. HOMING_FAULTS_RUNS sets how often
 * (default 2), HOMING_PARTITION_SECONDS how long (default 4).
 */

import process from 'node:process'
import { isDeepStrictEqual } from 'node:util'
import { ownAddressTowards } from '@homing/transport'
import { EtcdServer, NatsServer, NO_ETCD_SERVER, NO_NATS_SERVER, TcpProxy } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  freePortPairs,
  freeReplicaPorts,
  RouterClient,
  send,
  startEngines,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 2)
const MODEL = 'homing-sim'
const needsServer = { skip: NO_NATS_SERVER } as const
const needsEtcd = { skip: NO_ETCD_SERVER } as const
const EXPIRY_MS = 1500
/** Where no replica may be taken for one that is gone, however slow the machine. */
const NO_EXPIRY_MS = 600_000
const STREAMS = 8
/** Longer than any test here takes. */
const ANSWER_TOKENS = 20_000
const PARTITION_MS = Number(process.env['HOMING_PARTITION_SECONDS'] ?? 4) * 1000
const HOUR_MS = 3_600_000
const SHORT = { model: MODEL, prompt: 'short', max_tokens: 1 }
const SLOW = { speed: 1, profile: 'h100-8b', blocks: 4000 } as const

interface Replica {
  readonly client: RouterClient
  stop(graceMs?: number): Promise<void>
}

/** Options of replica `i`, from 0. */
type Plane = (i: number) => readonly string[]

async function engines(t: Test, count = 2): Promise<readonly ThreadEngine[]> {
  const started = await startEngines(Array.from({ length: count }, () => SLOW))
  t.teardown(started.stop)
  return started.engines
}

async function replica(
  t: Test,
  all: readonly Pick<ThreadEngine, 'url'>[],
  options: readonly string[],
  expiryMs = EXPIRY_MS,
): Promise<Replica> {
  const router = await startTestRouter(
    all.map(({ url }) => url),
    [
      ...['--router-replica-sync', '--router-replica-expiry', `${expiryMs}ms`],
      ...['--router-event-threads', '1', ...options],
    ],
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

/** Without a list of the others: they register at etcd. */
async function etcdPlane(t: Test, count = 2) {
  const etcd = await EtcdServer.start()
  t.teardown(() => etcd.stop())
  const ports = await freePortPairs(count)
  const at = ['--discovery-backend', 'etcd', '--etcd', etcd.url]
  const own = await ownAddressTowards('127.0.0.1', 1, 'IPv4')
  // One that is bound to all addresses says where it is reached.
  const plane: Plane = i => [
    ...at,
    ...['--router-replica-endpoint', `tcp://${i === 0 ? '127.0.0.1' : '*'}:${ports[i]}`],
  ]
  return { etcd, plane, endpointOf: (i: number) => `tcp://${i === 0 ? '127.0.0.1' : own}:${ports[i]}` }
}

/** As of its JSON gateway. */
async function askEtcd(etcd: EtcdServer, path: string, body: object) {
  const answer = await fetch(`${etcd.url}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) })
  if (answer.status !== 200) throw new Error(await answer.text())
  return (await answer.json()) as {
    readonly header: { readonly revision: string }
    readonly kvs?: readonly { readonly value?: string; readonly lease?: string }[]
  }
}

/** What is registered there, and whether all of it hangs on leases. */
async function registered(etcd: EtcdServer) {
  const [key, range_end] = ['homing/homing.replicas.default/', 'homing/homing.replicas.default0'].map(text =>
    Buffer.from(text).toString('base64'),
  )
  const { kvs = [] } = await askEtcd(etcd, 'kv/range', { key, range_end })
  return {
    endpoints: kvs.map(({ value = '' }) => Buffer.from(value, 'base64').toString()).toSorted(),
    areLeased: kvs.every(({ lease = '0' }) => lease !== '0'),
  }
}

function natsOf(nats: NatsServer, i: number) {
  return { nats: [nats.address], natsSubject: `homing.kv.engine_${i}` }
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
  let open = 0
  const answers = Array.from({ length: count }, async (_, i) => {
    const body = {
      model: MODEL,
      prompt: `prompt ${from + i} `.repeat(40),
      max_tokens: ANSWER_TOKENS,
      stream: true,
    }
    const answer = await client.open('/v1/completions', { body, signal: control.signal, closes: true })
    statuses.push(answer.statusCode)
    open++
    await answer.body.dump({ limit: 1e9 }).catch(() => {})
    open--
  })
  const ended = Promise.allSettled(answers)
  return {
    /** Statuses of the answers that have begun. */
    statuses,
    /** That have begun and go on. */
    get open() {
      return open
    },
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
    { seen: () => seen },
  )
}

async function testSync(t: Test, plane: Plane): Promise<void> {
  const all = await engines(t)
  const first = await replica(t, all, plane(0), NO_EXPIRY_MS)
  const streams = openStreams(first.client, 6)
  await counts(first.client, 6)
  const second = await replica(t, all, plane(1), NO_EXPIRY_MS)
  t.equal(await requestsAt(second.client), 6, 'one that comes late knows what is open when it is ready')
  await live(second.client, 1)
  await live(first.client, 1)
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

t.test('the same over ZeroMQ, without a broker (000-14)', async t => testSync(t, await freeReplicaPorts(2)))

t.test('the same over ZeroMQ, where they find each other at etcd', needsEtcd, async t =>
  testSync(t, (await etcdPlane(t)).plane),
)

t.test('routers join and leave at etcd, by their leases, also where it has forgotten', needsEtcd, async t => {
  const { etcd, plane, endpointOf } = await etcdPlane(t, 3)
  const all = await engines(t)
  const first = await replica(t, all, plane(0), NO_EXPIRY_MS)
  const second = await startProcess('router', routerArgv(all, plane(1)))
  t.teardown(() => second.kill('SIGKILL'))
  await live(first.client, 1)
  t.strictSame(await registered(etcd), {
    endpoints: [endpointOf(0), endpointOf(1)].toSorted(),
    areLeased: true,
  })

  // Watches end with the server, and it forgets the revisions that they were at.
  await etcd.down()
  const streams = openStreams(first.client, 2)
  await counts(new RouterClient(second.url), 2)
  await live(first.client, 1)
  await etcd.up()
  const filler = Buffer.from('filler').toString('base64')
  for (let i = 0; i < 20; i++) await askEtcd(etcd, 'kv/put', { key: filler, value: filler })
  const { header } = await askEtcd(etcd, 'kv/range', { key: filler })
  await askEtcd(etcd, 'kv/compaction', { revision: header.revision, physical: true })

  const third = await replica(t, all, plane(2), NO_EXPIRY_MS)
  t.equal(await requestsAt(third.client), 2, 'one that comes late knows what is open when it is ready')
  await live(third.client, 2)
  await live(first.client, 2)
  await third.stop()
  t.strictSame(
    (await registered(etcd)).endpoints,
    [endpointOf(0), endpointOf(1)].toSorted(),
    'one that ends in good order is not registered any more',
  )
  await live(first.client, 1)

  second.kill('SIGKILL')
  await until('the lease of one that was killed ends', async () =>
    (await registered(etcd)).endpoints.length === 1 ? true : undefined,
  )
  await streams.end()
})

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

t.test(
  `a partition of ${PARTITION_MS / 1000} s between one router and the broker: nothing is counted twice, nothing is lost`,
  needsServer,
  async t => {
    const { nats, plane } = await natsPlane(t)
    const cable = await TcpProxy.start(() => nats.address)
    t.teardown(() => cable.stop())
    const started = await startEngines([0, 1].map(i => ({ ...SLOW, ...natsOf(nats, i) })))
    t.teardown(started.stop)
    const first = await replica(t, started.engines, plane(0))
    // Engines name the broker by its own address; one that is given a subject is heard over the router's.
    const behind = started.engines.map(({ url }, i) => ({
      url: `${url}?nats=${natsOf(nats, i).natsSubject}`,
    }))
    const apart = await replica(t, behind, ['--nats', cable.address])
    for (const { client } of [first, apart]) {
      await live(client, 1)
      await client.trusted()
    }
    const before = [openStreams(first.client, 3), openStreams(apart.client, 2, 100)]
    for (const { client } of [first, apart]) await counts(client, 5)
    cable.cut()
    const cutMs = performance.now()
    await counts(first.client, 3)
    await counts(apart.client, 2)
    let seen: unknown
    const hearsNone = async (): Promise<true | undefined> => {
      const keys = (await apart.client.workers()).flatMap(({ worker_keys }) => worker_keys)
      seen = keys.map(({ trust, trust_reason, events }) => [trust, trust_reason, events])
      return keys.every(({ trust }) => trust !== 'exact') ? true : undefined
    }
    await until('it knows that it hears no events', hearsNone, { seen: () => seen })
    t.match(JSON.stringify(seen), /nobody is heard at nats:/, 'and says why')
    // Both go on serving, begin and end requests, and engines store and remove blocks.
    const meanwhile: ReturnType<typeof openStreams>[] = []
    for (let round = 0; performance.now() - cutMs < PARTITION_MS; round++) {
      const { client } = round % 2 === 0 ? first : apart
      meanwhile.push(openStreams(client, 1, 1000 + round))
      if (meanwhile.length > 4) await meanwhile.shift()!.end()
      const body = { model: MODEL, prompt: `short ${round} `.repeat(50), max_tokens: 1 }
      t.equal((await client.send('/v1/completions', { body })).status, 200)
    }
    await before[0]!.end()
    cable.heal()
    for (const { client } of [first, apart]) await live(client, 1)
    const openNow = 2 + meanwhile.length
    for (const { client } of [first, apart]) await counts(client, openNow)
    for (const streams of [...before, ...meanwhile]) await streams.end()
    for (const { client } of [first, apart]) {
      await client.drained()
      t.match(await views(client), { booked_elsewhere: 0, unbooked_operations: 0, malformed_messages: 0 })
      await client.trusted()
      await client.caughtUp(started.engines)
      t.ok((await assertIndexEqualsCaches(client, started.engines)) > 0)
    }
  },
)

t.test(
  'a router whose clock is an hour ahead, and an engine whose clock is an hour behind: trust and loads are as on one clock',
  needsServer,
  async t => {
    const { nats, plane } = await natsPlane(t)
    const started = await startEngines([{ ...SLOW, ...natsOf(nats, 0) }])
    t.teardown(started.stop)
    const behind = await startProcess(
      'engine',
      [
        ...[
          '--port',
          '0',
          '--nats',
          nats.address,
          '--nats-subject',
          'homing.kv.behind',
          '--register',
          'clocks',
        ],
        ...['--speed', '1', '--profile', 'h100-8b', '--blocks', '4000'],
      ],
      { clockShiftMs: -HOUR_MS },
    )
    t.teardown(() => behind.kill('SIGKILL'))
    const namespace = ['--worker-namespace', 'clocks']
    const first = await replica(t, started.engines, [...plane(0), ...namespace])
    const ahead = await startProcess('router', routerArgv(started.engines, [...plane(1), ...namespace]), {
      clockShiftMs: HOUR_MS,
    })
    t.teardown(() => ahead.kill('SIGKILL'))
    const clients = [first.client, new RouterClient(ahead.url)] as const
    for (const client of clients) {
      await live(client, 1)
      await until('both engines are up', async () =>
        (await client.workers()).filter(({ state }) => state === 'up').length === 2 ? true : undefined,
      )
      await client.trusted()
    }
    const { created } = (await send(behind.url, '/v1/completions', { body: SHORT })).json
    t.ok(Date.now() - created * 1000 > HOUR_MS / 2, `the engine believes that it is ${created}`)
    const keysOf = async (client: RouterClient) =>
      (await client.workers())
        .flatMap(({ worker_keys }) => worker_keys)
        .toSorted((a, b) => a.worker.localeCompare(b.worker))
    for (const { trust_since } of await keysOf(clients[1]))
      t.ok(
        Date.parse(trust_since) - Date.now() > HOUR_MS / 2,
        `the router believes that it was ${trust_since}`,
      )
    const streams = [openStreams(clients[0], 4), openStreams(clients[1], 3, 100)] as const
    for (const client of clients) await counts(client, 7)
    const loads = async (client: RouterClient) =>
      (await keysOf(client)).map(({ worker, load }) => [worker, load.requests])
    // A machine that stands still has either expire for a moment.
    await until('both see the same requests at the same workers', async () =>
      isDeepStrictEqual(await loads(clients[0]), await loads(clients[1])) ? true : undefined,
    )
    for (const client of clients) {
      await live(client, 1)
      t.match(await views(client), { replicas: [{ gaps: 0 }], malformed_messages: 0 })
      await client.trusted()
      for (const { last_event_age_ms: ageMs, worker } of await keysOf(client)) {
        t.ok(
          ageMs === null || (ageMs >= 0 && ageMs < HOUR_MS / 2),
          `the last event of ${worker} is ${ageMs} ms old`,
        )
      }
    }
    await streams[1].end()
    for (const client of clients) {
      await counts(client, 4)
      t.match(await views(client), { unbooked_operations: 0 })
    }
    await streams[0].end()
    const all = [...started.engines, behind]
    for (const client of clients) {
      await client.drained()
      await client.caughtUp(all)
      t.ok((await assertIndexEqualsCaches(client, all)) > 0)
    }
    const last = openStreams(clients[1], 2, 200)
    await counts(clients[0], 2)
    ahead.kill('SIGKILL')
    await counts(clients[0], 0)
    await last.end()
  },
)

t.test('two routers with one seed are two, and count each other', needsServer, async t => {
  const { plane } = await natsPlane(t)
  const all = await engines(t)
  const routers = [
    await replica(t, all, [...plane(0), '--seed', '7'], NO_EXPIRY_MS),
    await replica(t, all, [...plane(1), '--seed', '7'], NO_EXPIRY_MS),
  ]
  for (const { client } of routers) await live(client, 1)
  const streams = []
  let opened = 0
  for (const [i, { client }] of routers.entries()) {
    streams.push(openStreams(client, 2 + i, 100 * i))
    opened += 2 + i
    // What one draws for its first requests, the other knows before it draws for its own.
    for (const other of routers) await counts(other.client, opened)
  }
  for (const one of streams) await one.end()
  for (const { client } of routers) await client.drained()
})

t.test('a router that ends in good order is forgotten at once', needsServer, async t => {
  const { plane } = await natsPlane(t)
  await testGoodBye(t, plane, replicas => replicas.length === 0)
})

t.test('a router that ends in good order is forgotten at once at etcd, too', needsEtcd, async t => {
  await testGoodBye(t, (await etcdPlane(t)).plane, replicas => replicas.length === 0)
})

t.test('a router that ends in good order is forgotten at once without a broker, too', async t => {
  await testGoodBye(t, await freeReplicaPorts(2), ([{ state }]) => state === 'unknown')
})

/** One that is silent would count for much longer than the test waits. */
async function testGoodBye(
  t: Test,
  plane: Plane,
  // biome-ignore lint/suspicious/noExplicitAny: a view of many forms
  isForgotten: (replicas: readonly any[]) => boolean,
): Promise<void> {
  const all = await engines(t)
  const [first, second] = [
    await replica(t, all, plane(0), NO_EXPIRY_MS),
    await replica(t, all, plane(1), NO_EXPIRY_MS),
  ]
  await live(second.client, 1)
  const streams = openStreams(first.client, 3)
  await counts(second.client, 3)
  await first.stop()
  await counts(second.client, 0)
  let seen: unknown
  const forgotten = async (): Promise<true | undefined> => {
    const { replicas } = await views(second.client)
    seen = replicas
    return isForgotten(replicas) ? true : undefined
  }
  t.ok(await until('the other is forgotten', forgotten, { seen: () => seen }))
  await streams.end()
}

const KILLED =
  'one of two router processes behind a balancer is killed: its bookings go, no other client is touched'

t.test(`${KILLED} (NATS)`, needsServer, async t => testKills(t, (await natsPlane(t)).plane, RUNS - 1))

t.test(`${KILLED} (ZeroMQ), ${RUNS} times`, async t => testKills(t, await freeReplicaPorts(2), RUNS))

t.test(`${KILLED} (etcd)`, needsEtcd, async t => testKills(t, (await etcdPlane(t)).plane, RUNS - 1))

/** Of a router process. */
function routerArgv(all: readonly ThreadEngine[], options: readonly string[]): readonly string[] {
  return [
    ...['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '1', '--tokenizer-threads', '1'],
    ...['--router-replica-sync', '--router-replica-expiry', `${EXPIRY_MS}ms`, '--log-level', 'warn'],
    // No engine is taken to be down because the machine is busy.
    ...['--probe-timeout', '10s'],
    ...all.flatMap(({ url }) => ['--worker', url]),
    ...options,
  ]
}

async function testKills(t: Test, plane: Plane, runs: number): Promise<void> {
  const all = await engines(t)
  const start = (i: number) => startProcess('router', routerArgv(all, plane(i)))
  const survivor = await start(0)
  t.teardown(() => survivor.kill('SIGKILL'))
  const client = new RouterClient(survivor.url)
  let victimUrl = ''
  const balancer = await TcpProxy.start(
    () => survivor.url.slice('http://'.length),
    () => victimUrl.slice('http://'.length),
  )
  t.teardown(() => balancer.stop())
  const clients = new RouterClient(`http://${balancer.address}`)
  for (let run = 0; run < Math.max(1, runs); run++) {
    const victim = await start(1)
    t.teardown(() => victim.kill('SIGKILL'))
    victimUrl = victim.url
    await live(client, 1)
    const streams = openStreams(clients, STREAMS, 1000 * run)
    await counts(client, STREAMS)
    const [staying, dying] = balancer.open as [number, number]
    t.ok(staying > 0 && dying > 0, `run ${run}: ${staying} streams of the survivor, ${dying} of the other`)
    victim.kill('SIGKILL')
    const killedMs = performance.now()
    await counts(client, staying)
    t.comment(`run ${run}: its bookings went after ${Math.round(performance.now() - killedMs)} ms`)
    await until('the others are cut', () => (streams.open === staying ? true : undefined), {
      seen: () => streams.open,
    })
    t.equal(balancer.open[0], staying, 'requests of the survivor go on')
    t.ok(
      streams.statuses.every(status => status === 200),
      `${streams.statuses}`,
    )
    for (let i = 0; i < 4; i++) {
      const answer = await clients.send('/v1/completions', {
        body: { model: MODEL, prompt: `hello ${i}`, max_tokens: 2 },
        closes: true,
      })
      t.equal(answer.status, 200, 'new requests find the survivor')
    }
    await streams.end()
    await client.drained()
  }
}

t.test('a session goes where it went, whichever router it comes through (S15)', needsServer, async t => {
  const { plane } = await natsPlane(t)
  const all = await engines(t, 4)
  const options = ['--router-session-affinity-ttl-secs', '60', '--router-session-affinity-mode', 'hard']
  const routers = [
    await replica(t, all, [...plane(0), ...options], NO_EXPIRY_MS),
    await replica(t, all, [...plane(1), ...options], NO_EXPIRY_MS),
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
    const [here, there] = [number % 2, (number + 1) % 2]
    let bound = await ask(here, session)
    // At once, unless the word is still on its way: then both have bound it, and agree on one of the two
    // workers.
    await until('the other router sends it there, too', async () => {
      const other = await ask(there, session)
      if (other === bound) return true
      bound = await ask(here, session)
      return bound === other ? true : undefined
    })
    for (const i of [here, there]) t.equal(await ask(i, session), bound)
  }
})

t.test('without sync nothing is told', async t => {
  const all = await engines(t, 1)
  const router = await startTestRouter([all[0]!.url], [])
  t.teardown(() => router.stop(0))
  t.strictSame((await new RouterClient(router.url).send('/replicas')).json, { sync: false, replicas: [] })
})
