/**
 * Engines that publish at a real NATS server, and routers that hear them there: exact at first sight, over
 * outages of the broker, over a publisher that hangs, and side by side.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  type Fleet,
  RouterClient,
  startEngines,
  startFleet,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const needsServer = { skip: NO_NATS_SERVER } as const

/** Prompts that share beginnings, and a cache too small for all. */
async function work(router: RouterClient, from: number, count: number): Promise<void> {
  for (let i = from; i < from + count; i++) {
    const prompt = `${'system prompt '.repeat(20 + (i % 3))} conversation ${i % 7} turn ${i}`
    const answer = await router.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2 } })
    t.equal(answer.status, 200, answer.text)
  }
}

async function server(t: Test): Promise<NatsServer> {
  const nats = await NatsServer.start()
  t.teardown(() => nats.stop())
  return nats
}

function enginesAt(nats: NatsServer, count: number) {
  return Array.from({ length: count }, (_, i) => ({
    nats: [nats.address],
    natsSubject: `homing.kv.engine_${i}`,
    blocks: 300,
  }))
}

async function fleetAt(t: Test, nats: NatsServer, count = 2): Promise<Fleet> {
  const fleet = await startFleet({
    engines: enginesAt(nats, count),
    router: ['--nats', `nats://${nats.address}`],
  })
  t.teardown(() => fleet.stop())
  return fleet
}

/** All indexers dump equal sets of blocks for every worker key. */
async function equalDumps(
  t: Test,
  routers: readonly RouterClient[],
  engines: readonly ThreadEngine[],
): Promise<void> {
  for (const router of routers) {
    await router.trusted()
    await router.caughtUp(engines)
    t.ok((await assertIndexEqualsCaches(router, engines)) > 0, 'the index is that of the caches')
  }
  const dumps = await Promise.all(routers.map(router => router.indexedBlocks()))
  for (const dump of dumps) t.strictSame([...dump].toSorted(), [...dumps[0]!].toSorted())
}

t.test('a second router that starts late knows what the first knows (S3)', needsServer, async t => {
  const nats = await server(t)
  const fleet = await fleetAt(t, nats)
  await work(fleet, 0, 25)
  const late = await startTestRouter(
    fleet.engines.map(({ url }) => url),
    ['--nats', `nats://${nats.address}`],
  )
  t.teardown(() => late.stop(0))
  const second = new RouterClient(late.url)
  await work(second, 25, 25)
  await equalDumps(t, [fleet, second], fleet.engines)
})

t.test(
  'twice the broker is killed and comes back empty: both routers end equal (S4)',
  needsServer,
  async t => {
    const nats = await server(t)
    const fleet = await fleetAt(t, nats)
    const other = await startTestRouter(
      fleet.engines.map(({ url }) => url),
      ['--nats', `nats://${nats.address}`],
    )
    t.teardown(() => other.stop(0))
    const routers = [fleet, new RouterClient(other.url)]
    await work(fleet, 0, 10)
    for (let outage = 1; outage <= 2; outage++) {
      await nats.down()
      for (const router of routers) await router.trusted('approximate')
      await work(fleet, 10 * outage, 10)
      await nats.up()
      await equalDumps(t, routers, fleet.engines)
      await work(routers[1]!, 100 * outage, 10)
      await equalDumps(t, routers, fleet.engines)
    }
  },
)

t.test('lost batches are found and asked for at the broker (000-9)', needsServer, async t => {
  const nats = await server(t)
  const fleet = await fleetAt(t, nats)
  await work(fleet, 0, 10)
  // One of them may get no request.
  for (const engine of fleet.engines) await engine.faults({ events: { drop: 3 } })
  let round = 1
  const keys = await until('a gap is seen', async () => {
    await work(fleet, 10 * round++, 10)
    const found = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys)
    return found.some(({ events }) => (events?.gaps ?? 0) > 0) ? found : undefined
  })
  await equalDumps(t, [fleet], fleet.engines)
  t.match(keys[0]!.events, { endpoint: nats.endpoint('homing.kv.engine_0.0') })
})

t.test(
  'an engine process that is killed, and its successor: no block of the first is left',
  needsServer,
  async t => {
    const nats = await server(t)
    const start = (port: number) =>
      startProcess('engine', [
        ...[
          '--port',
          String(port),
          '--nats',
          nats.address,
          '--nats-subject',
          'homing.kv.killed',
          '--speed',
          '0',
        ],
        ...['--blocks', '300'],
      ])
    // No dialling socket is given it while it is closed.
    const port = await freePort()
    let engine = await start(port)
    // The engine says under which subject it publishes, which is not that of a worker that does not say it.
    const router = await startTestRouter(
      [engine.url],
      ['--event-plane', 'nats', '--nats', nats.address, '--probe-interval', '200ms'],
    )
    t.teardown(() => router.stop(0))
    t.teardown(() => engine.kill('SIGKILL'))
    const client = new RouterClient(router.url)
    await client.trusted()
    for (let life = 0; life < 3; life++) {
      await work(client, 20 * life, 10)
      await client.caughtUp([engine])
      engine.kill('SIGKILL')
      await engine.ended
      engine = await start(port)
      await until('it is up again', async () =>
        (await client.worker(engine.url)).state === 'up' ? true : undefined,
      )
      await client.trusted()
      await client.caughtUp([engine])
      const held = (await client.worker(engine.url)).worker_keys[0]!.blocks_held
      t.equal(held, (await engine.state(true)).ranks[0]!.blocks!.length, `life ${life}: blocks held`)
    }
  },
)

t.test(
  'two engines that were given one subject are followed by nobody, and the log says why',
  needsServer,
  async t => {
    const nats = await server(t)
    const { engines, stop } = await startEngines([
      { nats: [nats.address], natsSubject: 'homing.kv.same' },
      { nats: [nats.address], natsSubject: 'homing.kv.other' },
    ])
    t.teardown(stop)
    const third = await startProcess('engine', [
      ...['--port', '0', '--nats', nats.address, '--nats-subject', 'homing.kv.same', '--speed', '0'],
    ])
    t.teardown(() => third.kill('SIGKILL'))
    const router = await startProcess('router', [
      ...['--host', '127.0.0.1', '--port', '0', '--nats', nats.address],
      ...engines.flatMap(({ url }) => ['--worker', url]),
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const client = new RouterClient(router.url)
    const keysOf = async () => (await client.workers()).map(({ worker_keys }) => worker_keys[0]!)
    await until('one is doubted, the other is not', async () => {
      const [same, other] = await keysOf()
      return same!.trust === 'approximate' && other!.trust === 'exact' ? true : undefined
    })
    await until('it says why', async () =>
      router.errorLines.some(line => line.includes('two publishers use this subject')) ? true : undefined,
    )
    third.kill('SIGTERM')
    await client.trusted()
  },
)

t.test(
  'the event plane is chosen by an option, and a worker may name its subject (000-8, 003-1)',
  needsServer,
  async t => {
    const nats = await server(t)
    const { engines, stop } = await startEngines([
      { port: 0 },
      { nats: [nats.address], natsSubject: 'my.own.subject' },
    ])
    t.teardown(stop)
    const [plain, own] = engines as [ThreadEngine, ThreadEngine]
    // The sidecar hears the first engine, and publishes after its host and port.
    const sidecar = await startProcess('sidecar', [
      ...['--events', plain.description.ranks[0]!.events, '--event-plane', 'nats', '--nats', nats.address],
      ...['--worker', new URL(plain.url).host],
    ])
    t.teardown(() => sidecar.kill('SIGKILL'))
    await until('it says how to point a router at it', async () =>
      sidecar.outputLines.length > 2 ? true : undefined,
    )
    t.match(sidecar.outputLines.at(-1), `homing router --event-plane nats --nats nats://${nats.address}`)
    const router = await startTestRouter(
      [plain.url, `${own.url}?nats=my.own.subject`],
      ['--event-plane', 'nats', '--nats', nats.address],
    )
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    const [ofPlain, ofOwn] = [await client.worker(plain.url), await client.worker(own.url)]
    const subject = `homing.kv.${new URL(plain.url).host.replace(/[^A-Za-z0-9-]/g, '_')}.0`
    t.match(ofPlain.worker_keys[0]!.events, { endpoint: nats.endpoint(subject) })
    t.match(ofOwn.worker_keys[0]!.events, { endpoint: nats.endpoint('my.own.subject.0') })
    await work(client, 0, 20)
    await client.caughtUp([own])
    await until('the blocks of the first came through its sidecar', async () => {
      const [key] = (await client.worker(plain.url)).worker_keys
      return key!.blocks_held > 0 || (await client.worker(own.url)).worker_keys[0]!.blocks_held > 0
        ? true
        : undefined
    })
  },
)

t.test('engines register themselves, and are gone when they are', needsServer, async t => {
  const nats = await server(t)
  const router = await startTestRouter([], ['--nats', nats.address, '--worker-namespace', 'test'])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const start = (name: string, role: string) =>
    startProcess('engine', [
      ...['--port', '0', '--nats', nats.address, '--nats-subject', `homing.kv.${name}`, '--register', 'test'],
      ...['--speed', '0', '--blocks', '300', '--role', role],
    ])
  const [first, second] = [await start('first', 'both'), await start('second', 'decode')]
  for (const engine of [first, second]) t.teardown(() => engine.kill('SIGKILL'))
  const knows = (count: number) =>
    until(`${count} workers`, async () => ((await client.workers()).length === count ? true : undefined))
  await knows(2)
  const roles = (await client.send('/workers')).json.workers.map((one: { role: object }) => one.role)
  t.match(
    roles.toSorted((a: { value: string }, b: { value: string }) => (a.value < b.value ? -1 : 1)),
    [
      { value: 'both', source: 'default' },
      { value: 'decode', source: 'given' },
    ],
  )
  await client.trusted()
  await work(client, 0, 10)
  await client.caughtUp([first, second])
  await assertIndexEqualsCaches(client, [first, second])
  first.kill('SIGKILL')
  await knows(1)
  t.equal((await client.send('/workers')).json.workers[0].url, second.url)
  const dump = await client.indexedBlocks()
  t.strictSame([...dump.keys()], [`${new URL(second.url).host}/0`], 'its blocks are gone with it')
  await nats.down()
  await work(client, 10, 5)
  await nats.up()
  await client.trusted()
  t.equal((await client.workers()).length, 1, 'an outage of the broker takes nobody away')
  second.kill('SIGTERM')
  await knows(0)
})

t.test('a broker that wants a login, and one that cannot be reached', needsServer, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'homing-login-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'login')
  writeFileSync(file, 'router:s3cret-of-nats\n')
  const nats = await NatsServer.start({
    configuration: ['authorization { user: router, password: s3cret-of-nats }'],
  })
  t.teardown(() => nats.stop())
  const login = ['--nats-credentials-file', file]
  const engine = await startProcess('engine', [
    ...['--port', '0', '--speed', '0', '--events-port', '0', '--replay-port', '0'],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  const endpoint = await until('it names its endpoint', async () =>
    engine.outputLines
      .join(' ')
      .match(/events (tcp:\S+),/)
      ?.at(1),
  )
  const sidecar = await startProcess('sidecar', [
    ...[
      '--events',
      endpoint,
      '--event-plane',
      'nats',
      '--nats',
      nats.address,
      '--nats-subject',
      'homing.kv.login',
    ],
    ...login,
  ])
  t.teardown(() => sidecar.kill('SIGKILL'))
  const argv = [
    '--host',
    '127.0.0.1',
    '--port',
    '0',
    '--worker',
    `${engine.url}?nats=homing.kv.login`,
    '--nats',
    nats.address,
  ]
  const refused = await startProcess('router', argv)
  t.teardown(() => refused.kill('SIGKILL'))
  await until('it says that it may not log in', async () =>
    refused.errorLines.some(line => /NATS connection failed/.test(line) && /Authorization/i.test(line))
      ? true
      : undefined,
  )
  const router = await startProcess('router', [...argv, ...login])
  t.teardown(() => router.kill('SIGKILL'))
  const client = new RouterClient(router.url)
  await until('its events are heard', async () => {
    const [key] = (await client.worker(engine.url)).worker_keys
    return ['exact', 'partial'].includes(key!.trust) ? true : undefined
  })
  for (const one of [router, refused, sidecar]) {
    t.notOk(
      [...one.outputLines, ...one.errorLines].some(line => line.includes('s3cret-of-nats')),
      'no line shows the password',
    )
  }
  t.notOk((await client.send('/workers')).text.includes('s3cret-of-nats'))
  const bad = spawnSync(process.execPath, [
    new URL('../../packages/homing/src/main.ts', import.meta.url).pathname,
    ...['router', '--worker', engine.url, '--nats', 'nats://me:pass-word@10.0.0.1'],
  ])
  t.equal(bad.status, 2)
  t.match(bad.stderr.toString(), /leave user and password out of it/)
})
