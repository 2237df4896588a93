/** The guardian: the order of its children, the consequences of their ends, and how it drains. */

import { type ActorStatus, createActorSystem } from '@homing/actor'
import { createSimulation } from '@homing/actor/simulation'
import { createTestSystem, seededRandom } from '@homing/actor/testing'
import { completeSettings, type RouterSettings, routerCommand } from '@homing/config'
import { parseWorkerSpec, type WorkerSpec } from '@homing/fleet'
import { RoutingGuard } from '@homing/placement'
import {
  type HttpExchange,
  type HttpReply,
  MemoryNetwork,
  type Transport,
  transportCapability,
} from '@homing/transport'
import t, { type Test } from 'tap'
import { type GuardianArgs, guardian } from '../src/index.ts'

const HOST = '10.0.0.9'
const PORT = 8000
const ROUTER = `http://${HOST}:${PORT}`
const ENGINE = 'http://10.0.0.1:8001'
/** Of simulated time, which does not pass by itself. */
const ASK = { timeout: '10m' } as const
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

const SETTINGS = completeSettings(routerCommand, {
  host: HOST,
  port: PORT,
  routerPolicy: 'linear',
  queueThreshold: 'none',
  openRequestsMax: 100,
  workerSlotsMax: 16,
  eventThreads: 2,
  indexBytes: 2 << 20,
  replayTimeoutMs: 1000,
  probeIntervalMs: 5000,
  probeTimeoutMs: 1000,
  engineMetricsIntervalMs: 0,
  whatIfMinutes: 0,
  tokenizerThreads: 1,
  promptCacheBytes: 1e7,
  retries: 0,
  requestTimeoutMs: 0,
  silenceTimeoutMs: 60_000,
})
const argsOf = (settings: Partial<RouterSettings>, specs: readonly WorkerSpec[] = []): GuardianArgs => ({
  settings: { ...SETTINGS, ...settings },
  inputs: { specs, loadedTokenizers: new Map() },
})

interface Options extends Partial<RouterSettings> {
  readonly specs?: readonly WorkerSpec[]
  /** What the actors are given instead of the plain transport. */
  readonly change?: (transport: Transport) => Transport
}

async function start(t: Test, { change, specs, ...settings }: Options = {}) {
  // The network must live on the clock of the system that it is given to.
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const transport = network.transport()
  const system = createTestSystem({
    clock,
    provide: [[transportCapability, change?.(transport) ?? transport]],
  })
  t.teardown(() => system.shutdown())
  const spawn = () => system.spawn(guardian, { name: 'guardian', args: argsOf(settings, specs) })
  const client = network.transport().http
  const get = (path: string): Promise<HttpReply> =>
    client.fetch({ origin: ROUTER, method: 'GET', path }, { timeoutMs: 60_000 })
  const post = (path: string, body: object): Promise<HttpReply> =>
    client.fetch(
      { origin: ROUTER, method: 'POST', path, body: utf8(JSON.stringify(body)) },
      { timeoutMs: 60_000 },
    )
  return { system, network, spawn, get, post }
}

/** Just enough of an engine to be a worker; `onRequest` gets what is not a question of a probe. */
async function serveEngine(network: MemoryNetwork, onRequest: (exchange: HttpExchange) => void = () => {}) {
  await network.transport().http.listen({ host: '10.0.0.1', port: 8001 }, exchange => {
    if (exchange.path === '/v1/embeddings') return onRequest(exchange)
    const isModels = exchange.path === '/v1/models'
    exchange.writeHead(isModels ? 200 : 404, { 'content-type': 'application/json' })
    exchange.end(utf8(isModels ? '{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}' : '{}'))
  })
}

/**
 * Until a scrape has this many shards: with one of two gone, an ask waits for its replacement, or fails where
 * that takes long to start. Bounded by the time limit of the test.
 */
async function untilSeen(port: number, shards: number): Promise<void> {
  let seen = 0
  while (seen !== shards) {
    const reply = await fetch(`http://127.0.0.1:${port}/metrics`)
    seen = [...(await reply.text()).matchAll(/^homing_index_used_bytes\{shard="\d"\}/gm)].length
  }
}

const childrenOf = async (system: {
  describe(): Promise<readonly ActorStatus[]>
}): Promise<readonly ActorStatus[]> =>
  (await system.describe()).find(({ name }) => name === 'guardian')?.children ?? []

t.test('children are started in the order in which they are needed', async t => {
  const { system, spawn } = await start(t)
  spawn()
  await system.settle()
  t.strictSame(
    (await childrenOf(system)).map(({ name }) => name),
    ['indexer-0', 'indexer-1', 'directory', 'tracker', 'tokenizer', 'router', 'queue', 'console', 'gateway'],
  )
})

t.test('what the tracker has learned is kept for its next life', async t => {
  const { system, spawn } = await start(t)
  const ref = spawn()
  await system.settle()
  t.equal(await ref.ask({ type: 'keptLearned' }, ASK), undefined)
  await system.advance('5s')
  t.match(await ref.ask({ type: 'keptLearned' }, ASK), { workers: [], fleet: { takenMs: Number } })
})

/** Settings that the command reads, before there is a guardian or beside it. */
const READ_BEFORE = [
  'workers',
  'workersFile',
  'kubernetesServices',
  'kubernetesSelector',
  'kubernetesNamespace',
  'kubernetesPort',
  'kubernetesConfigFile',
  'dnsNames',
  'dnsServers',
  'dnsRefreshMs',
  'dnsStaleMsMax',
  'engineKeyFile',
  'engineCaFile',
  'adminKeyFile',
  'adminKeysFile',
  'tlsCertificateFile',
  'tlsKeyFile',
  'clientKeysFile',
  'selectionModule',
  'policyClassFile',
  'natsCredentialsFile',
  'natsCaFile',
  'resetStates',
  'seed',
  'shutdownDelayMs',
  'shutdownTimeoutMs',
  'warmupRequests',
  'chatTemplates',
  'detach',
  'demoEngines',
  'demoSpeed',
  'demoDisagg',
  'demoLoad',
  'logLevel',
  'logFormat',
]

t.test('every setting that the start does not read is read for an actor', async t => {
  const unread = new Set<string>(Object.keys(argsOf({}).settings))
  for (const requestPlane of ['nats', 'tcp'] as const) {
    const { system } = await start(t)
    const { settings, inputs } = argsOf({
      ...{ affinityTtlMs: 1000, engineMetricsIntervalMs: 1000, whatIfMinutes: 1, requestPlane },
      ...{ decisionLogFile: '/decisions.jsonl', replicaSync: true, queueThreshold: 'auto' },
    })
    const read = new Proxy(settings, {
      get(target, key) {
        unread.delete(String(key))
        return Reflect.get(target, key)
      },
    })
    system.spawn(guardian, { name: 'guardian', args: { settings: read, inputs } })
    await system.settle()
  }
  t.strictSame([...unread].sort(), [...READ_BEFORE].sort())
})

t.test('a decision log is started before the router, and only where there is one', async t => {
  const bounds = { decisionLogBytesMax: 1 << 20, decisionLogFilesMax: 2 }
  const { system, spawn } = await start(t, { decisionLogFile: '/decisions.jsonl', ...bounds })
  spawn()
  await system.settle()
  const names = (await childrenOf(system)).map(({ name }) => name)
  t.equal(names.indexOf('decision-log'), names.indexOf('router') - 1, names.join(' '))
})

t.test('it is ready when the gateway listens and every worker was probed once', async t => {
  const { system, network, spawn, get } = await start(t, {
    specs: [parseWorkerSpec(ENGINE, 0), parseWorkerSpec('http://10.0.0.2:8001', 1)],
  })
  await serveEngine(network)
  const ready = await spawn().ask({ type: 'whenReady' }, ASK)
  if ('code' in ready) return t.fail(ready.message)
  t.match(ready, { host: HOST, port: PORT })
  t.strictSame(
    ready.fleet.workers.map(({ id, state }) => [id, state]),
    [
      ['10.0.0.1:8001', 'up'],
      ['10.0.0.2:8001', 'down'],
    ],
  )
  // Subscribed before it was ready: the gateway knows the fleet.
  await system.settle()
  t.equal((await get('/ready')).status, 200)
})

t.test('a replay that is under way holds it up for three seconds at most', async t => {
  const { system, network, spawn, get } = await start(t, {
    specs: [parseWorkerSpec(`${ENGINE}?events=5557&replay=6557&block_size=16`, 0)],
    replayTimeoutMs: 60_000,
  })
  await serveEngine(network)
  const { messages } = network.transport()
  await messages.publish({ endpoint: 'tcp://10.0.0.1:5557' })
  let replaysAsked = 0
  await messages.serve({ endpoint: 'tcp://10.0.0.1:6557' }, (_identity, frames) => {
    // It is asked for a snapshot, too, which is longer.
    if (frames.at(-1)?.length === 8) replaysAsked++
  })
  let isReady = false
  const ready = spawn().ask({ type: 'whenReady' }, ASK)
  ready.then(
    () => {
      isReady = true
    },
    () => {},
  )
  await system.advance('2.9s')
  t.equal(replaysAsked, 1)
  t.equal(isReady, false)
  t.equal((await get('/ready')).status, 503, 'the worker is up, and what it holds is not known yet')
  t.equal((await get('/health')).status, 200)
  await system.advance('200ms')
  const report = await ready
  if ('code' in report) return t.fail(report.message)
  t.match(report.fleet.workers, [{ state: 'up', keys: [{ trust: 'approximate' }] }])
  await system.settle()
  t.equal((await get('/ready')).status, 200)
})

t.test('another router that does not say what it has open holds it up for three seconds at most', async t => {
  const group = 'nats://10.0.0.9:4222/homing.replicas.g'
  const readyMs = async (others: readonly string[]): Promise<number> => {
    const { system, network, spawn } = await start(t, {
      ...{ replicaSync: true, replicaGroup: 'g', natsServers: ['nats://10.0.0.9:4222'] },
      ...{ replicaDelayMs: 2, replicaExpiryMs: 3000 },
    })
    const { messages } = network.transport()
    for (const name of others) {
      await messages.publish({ endpoint: `${group}.${name}` })
      messages.present({ endpoint: group, card: utf8(name) }, { present() {}, gone() {} })
    }
    let isReady = false
    void spawn()
      .ask({ type: 'whenReady' }, ASK)
      .then(() => {
        isReady = true
      })
    let ms = 0
    for (; !isReady && ms < 10_000; ms += 100) await system.advance('100ms')
    return ms
  }
  t.ok((await readyMs([])) <= 500, 'nobody else is there')
  const ms = await readyMs(['0123456789abcdef'])
  t.ok(ms >= 3000 && ms <= 3100, `${ms} ms`)
})

t.test('who asks again is answered again', async t => {
  const { spawn } = await start(t)
  const ref = spawn()
  const [first, second] = await Promise.all([
    ref.ask({ type: 'whenReady' }, ASK),
    ref.ask({ type: 'whenReady' }, ASK),
  ])
  t.strictSame(first, second)
  t.strictSame(await ref.ask({ type: 'whenReady' }, ASK), first)
})

t.test('it keeps what the guard of the router knows', async t => {
  const { spawn } = await start(t, { routerPolicy: 'auto' })
  const ref = spawn()
  await ref.ask({ type: 'whenReady' }, ASK)
  const state = new RoutingGuard({ share: 0.01 }, seededRandom(1)).state
  const guard = { ...state, names: [[3, 'a/0']] as const }
  ref.tell({ type: 'keepGuard', guard })
  t.strictSame(await ref.ask({ type: 'keptGuard' }, ASK), guard)
})

t.test('a port that is taken is what it is not ready for', async t => {
  const { network, spawn } = await start(t)
  await network.transport().http.listen({ host: HOST, port: PORT }, () => {})
  t.match(await spawn().ask({ type: 'whenReady' }, ASK), {
    code: 'HOMING_TRANSPORT_LISTEN',
    message: /cannot listen on http:\/\/10\.0\.0\.9:8000: .*EADDRINUSE/,
  })
})

t.test('a child whose restarts are spent fails the guardian, with the reason', async t => {
  let network: MemoryNetwork | undefined
  const simulation = await createSimulation({
    seed: 1,
    pools: { events: { count: 1 } },
    provide: thread => {
      network ??= new MemoryNetwork({ clock: thread.clock })
      return [[transportCapability, network.transport()]]
    },
  })
  t.teardown(() => simulation.settle(simulation.shutdown()))
  const ref = simulation.spawn(guardian, { name: 'guardian', args: argsOf({ eventThreads: 1 }) })
  const ended = simulation.whenTerminated(ref)
  const ready = await simulation.settle(ref.ask({ type: 'whenReady' }, ASK))
  if ('code' in ready) return t.fail(ready.message)
  let deaths = 0
  for (let wait = 0; wait < 60; wait++) {
    if (simulation.fail('gateway')) {
      deaths++
      wait = 0
    }
    // It comes back after a pause, or not at all.
    await simulation.run(undefined, { within: '100ms' })
  }
  t.equal(deaths, 11)
  const { reason, error } = await simulation.settle(ended)
  t.equal(reason, 'failed')
  t.match(error?.message, /cannot go on without the gateway: /)
})

t.test('a thread that dies is no loss: its indexer comes back, as often as that happens', async t => {
  const system = await createActorSystem({
    pools: { events: { count: 2 } },
    logLevel: 'silent',
    threadExecArgv: [],
    threadBackoff: { min: 1, max: 10 },
  })
  t.teardown(() => system.shutdown())
  const ref = system.spawn(guardian, { name: 'guardian', args: argsOf({ host: '127.0.0.1', port: 0 }) })
  const ended = system.whenTerminated(ref).then(({ error }) => error?.message ?? 'ended')
  const within = { timeout: '2m' } as const
  const ready = await ref.ask({ type: 'whenReady' }, within)
  if ('code' in ready) return t.fail(ready.message)
  for (let kill = 1; kill <= 3; kill++) {
    await system.killThread('events-0')
    // Answered by the guardian itself, or it has failed.
    t.equal(
      await Promise.race([ref.ask({ type: 'whenReady' }, within), ended]),
      await ref.ask({ type: 'whenReady' }, within),
    )
    await untilSeen(ready.port, 2)
    t.pass(`both shards answer after kill ${kill}`)
    // The guardian watches again before the next kill.
    const stats = await system.stats()
    t.equal(stats.threadRestarts, kill)
  }
  const still = Promise.withResolvers<string>()
  setImmediate(() => still.resolve('goes on'))
  t.equal(await Promise.race([ended, still.promise]), 'goes on')
})

t.test('a thread that does not come back is a loss, also when it came back before', async t => {
  const system = await createActorSystem({
    pools: { events: { count: 2 } },
    logLevel: 'silent',
    threadExecArgv: [],
    threadRestartsMax: 1,
  })
  t.teardown(() => system.shutdown())
  const ref = system.spawn(guardian, { name: 'guardian', args: argsOf({ host: '127.0.0.1', port: 0 }) })
  const ready = await ref.ask({ type: 'whenReady' }, { timeout: '2m' })
  if ('code' in ready) return t.fail(ready.message)
  await system.killThread('events-1')
  await untilSeen(ready.port, 2)
  t.pass('it came back')
  await system.killThread('events-1')
  const { reason, error } = await system.whenTerminated(ref)
  t.equal(reason, 'failed')
  t.match(error?.message, /cannot go on without the indexer-1: cannot reach thread events-1/)
})

t.test('drained, it takes nothing new, lets what is open end, and cuts the rest', async t => {
  const { system, network, spawn, get, post } = await start(t, { specs: [parseWorkerSpec(ENGINE, 0)] })
  const open: HttpExchange[] = []
  await serveEngine(network, exchange => open.push(exchange))
  const ref = spawn()
  await ref.ask({ type: 'whenReady' }, ASK)
  await system.settle()
  const ending = post('/v1/embeddings', { model: 'm', input: 'ends in time' })
  const cut = post('/v1/embeddings', { model: 'm', input: 'does not' })
  await system.settle()
  t.equal(open.length, 2)
  const drained = ref.ask({ type: 'drain', graceMs: 1000 }, ASK)
  await system.settle()
  await t.rejects(get('/health'), { code: 'HOMING_TRANSPORT_CALL' })
  open[0]?.writeHead(200, {})
  open[0]?.end(utf8('in time'))
  t.equal(new TextDecoder().decode((await ending).body), 'in time')
  await system.advance(1000)
  t.equal((await cut).status, 503, 'nothing of its answer had been sent')
  t.equal(await drained, 1)
})
