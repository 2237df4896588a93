/**
 * KV events in a stream at a real NATS server (--router-durable-kv-events): routers that start after all
 * buffers are gone know the caches, and where the stream cannot tell all of it, nothing is called exact.
 */

import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { isExact } from './durable-fleet.ts'
import {
  RouterClient,
  startEngines,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const STREAM = 'homing-kv-default'
const needsServer = { skip: NO_NATS_SERVER } as const

async function brokerOf(t: Test): Promise<NatsServer> {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  return nats
}

/** Engines that keep two batches only. */
async function enginesAt(
  t: Test,
  nats: NatsServer,
  count = 2,
  settings = {},
): Promise<readonly ThreadEngine[]> {
  const { engines, stop } = await startEngines(
    Array.from({ length: count }, (_, i) => ({
      nats: [nats.address],
      natsSubject: `homing.kv.engine_${i}`,
      durableKvEvents: true,
      replayBatchesMax: 2,
      blocks: 300,
      ...settings,
    })),
  )
  t.teardown(stop)
  return engines
}

async function routerAt(
  t: Test,
  nats: NatsServer,
  engines: readonly ThreadEngine[],
  options: readonly string[] = ['--router-durable-kv-events'],
) {
  const router = await startTestRouter(
    engines.map(({ url }) => url),
    ['--nats', nats.address, ...options],
  )
  let isStopped = false
  const stop = async (): Promise<void> => {
    if (!isStopped) await router.stop(0)
    isStopped = true
  }
  t.teardown(stop)
  return { client: new RouterClient(router.url), stop }
}

/** Prompts that share beginnings, and a cache too small for all. */
async function work(router: RouterClient, from: number, count: number): Promise<void> {
  for (let i = from; i < from + count; i++) {
    const prompt = `conversation ${i % 7} ${'system prompt '.repeat(20 + (i % 3))} turn ${i}`
    const answer = await router.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2 } })
    if (answer.status !== 200) throw new Error(answer.text)
  }
}

async function streamAt(t: Test, nats: NatsServer) {
  const { streams, close } = await nats.manage()
  t.teardown(close)
  return streams
}

async function metric(client: RouterClient, name: string): Promise<number> {
  const { text } = await client.send('/metrics')
  const line = text.split('\n').find(one => one.startsWith(`${name}{`))
  return Number(line?.split(' ').at(-1))
}

t.test(
  'a third router that starts alone, after all others and all buffers are gone, is exact (S24, S5)',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engines = await enginesAt(t, nats)
    const routers = [await routerAt(t, nats, engines), await routerAt(t, nats, engines)]
    for (const { client } of routers) await client.trusted()
    await work(routers[0]!.client, 0, 30)
    await work(routers[1]!.client, 30, 30)
    await until('every engine has forgotten its first batches', async () => {
      const states = await Promise.all(engines.map(engine => engine.state()))
      if (states.every(({ ranks }) => ranks[0]!.nextSequence > 4)) return true
      // An engine may have got no request yet.
      await Promise.all(Array.from({ length: 20 }, (_, i) => work(routers[0]!.client, 1000 + 100 * i, 2)))
      return undefined
    })
    for (const { client } of routers) {
      await isExact(t, client, engines)
      for (const { worker_keys } of await client.workers())
        for (const { events } of worker_keys) t.match(events, { path: 'stream' })
    }
    const jetstream = await streamAt(t, nats)
    const consumers = async () => (await jetstream.consumers.list(STREAM).next()).length
    // Those of replays go by themselves.
    await until('there is one for each router and worker key', async () =>
      (await consumers()) === 4 ? true : undefined,
    )
    await until('all is acknowledged', async () => {
      const all = await jetstream.consumers.list(STREAM).next()
      return all.every(({ num_ack_pending: pending }) => pending === 0) ? true : undefined
    })
    for (const { stop } of routers) await stop()
    await until('no consumer is left', async () => ((await consumers()) === 0 ? true : undefined))

    const third = await routerAt(t, nats, engines)
    await isExact(t, third.client, engines)
    t.ok((await metric(third.client, 'homing_broker_stream_replays_total')) >= 2)

    const without = await routerAt(t, nats, engines, [])
    await until('its replay is over', async () => {
      const keys = (await without.client.workers()).flatMap(({ worker_keys }) => worker_keys)
      return keys.every(({ trust }) => trust === 'partial') ? true : undefined
    })
  },
)

t.test(
  'with --router-reset-states nothing of before is known, and nothing is called exact',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engines = await enginesAt(t, nats)
    const first = await routerAt(t, nats, engines)
    await first.client.trusted()
    await work(first.client, 0, 40)
    await isExact(t, first.client, engines)
    const second = await routerAt(t, nats, engines, ['--router-durable-kv-events', '--router-reset-states'])
    await second.client.trusted('partial')
    await first.client.trusted()
  },
)

t.test('a router that is killed leaves consumers, and the broker removes them', needsServer, async t => {
  const nats = await brokerOf(t)
  const engines = await enginesAt(t, nats)
  const survivor = await routerAt(t, nats, engines)
  const victim = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--nats', nats.address, '--router-durable-kv-events'],
    ...['--router-event-threads', '1', '--tokenizer-threads', '1'],
    ...engines.flatMap(({ url }) => ['--worker', url]),
  ])
  t.teardown(() => victim.kill('SIGKILL'))
  for (const client of [survivor.client, new RouterClient(victim.url)]) await client.trusted()
  await work(survivor.client, 0, 10)
  const { consumers } = await streamAt(t, nats)
  const all = async () => (await consumers.list(STREAM).next()).filter(one => one !== null)
  const followed = async () => {
    const page = await all()
    return page.filter(({ config }) => config.ack_policy !== 'none')
  }
  const before = await until('each router has one for each key', async () => {
    const found = await followed()
    return found.length === 4 ? found : undefined
  })
  for (const { config } of before) t.equal(config.inactive_threshold, 60 * 1e9)
  victim.kill('SIGKILL')
  await victim.ended
  // The time that the broker gives them is cut short, for all alike.
  for (const { name } of before) await consumers.update(STREAM, name, { inactive_threshold: 1e9 })
  const left = await until('those of the dead one are gone', async () => {
    const found = await followed()
    return found.length === 2 ? found : undefined
  })
  await work(survivor.client, 10, 20)
  await isExact(t, survivor.client, engines)
  t.strictSame(
    (await followed()).map(({ name }) => name).toSorted(),
    left.map(({ name }) => name).toSorted(),
    'those of the other stay',
  )
  for (const { worker_keys } of await survivor.client.workers())
    for (const { events } of worker_keys) t.match(events, { path: 'stream' })
})

t.test('a namespace is a clean slate: another one keeps its own', needsServer, async t => {
  const nats = await brokerOf(t)
  const engines = await enginesAt(t, nats, 1)
  const first = await routerAt(t, nats, engines)
  await work(first.client, 0, 20)
  await isExact(t, first.client, engines)
  const second = await routerAt(t, nats, engines, ['--router-durable-kv-events', '--namespace', 'other'])
  await until('it follows the publisher, whose first batches are gone', async () => {
    const [key] = (await second.client.workers()).flatMap(({ worker_keys }) => worker_keys)
    return key!.trust === 'partial' && (key!.events as { path?: string }).path === 'publisher'
      ? true
      : undefined
  })
})

t.test('the stream is deleted under way: exact again, or not called so', needsServer, async t => {
  const nats = await brokerOf(t)
  const engines = await enginesAt(t, nats, 1, { replayBatchesMax: 1000 })
  const first = await routerAt(t, nats, engines)
  await work(first.client, 0, 20)
  await isExact(t, first.client, engines)
  const jetstream = await streamAt(t, nats)
  await jetstream.streams.delete(STREAM)
  await work(first.client, 20, 20)
  await isExact(t, first.client, engines)
  await until('the new stream is followed', async () => {
    const [key] = (await first.client.workers()).flatMap(({ worker_keys }) => worker_keys)
    return (key!.events as { path?: string }).path === 'stream' ? true : undefined
  })
  await work(first.client, 40, 20)
  await isExact(t, first.client, engines)
  // The engine repeats what the new stream lacks.
  await isExact(t, (await routerAt(t, nats, engines)).client, engines)
})

t.test(
  'the broker is killed and comes back with its streams: exact, also for a late router',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engines = await enginesAt(t, nats, 1)
    const first = await routerAt(t, nats, engines)
    await work(first.client, 0, 20)
    await isExact(t, first.client, engines)
    await nats.down()
    await first.client.trusted('approximate')
    await work(first.client, 20, 20)
    await nats.up()
    await isExact(t, first.client, engines)
    await work(first.client, 40, 10)
    await isExact(t, (await routerAt(t, nats, engines)).client, engines)
  },
)

t.test('events that the stream has lost: a router that needs them is not exact', needsServer, async t => {
  const nats = await brokerOf(t)
  const engines = await enginesAt(t, nats, 1)
  const first = await routerAt(t, nats, engines)
  await work(first.client, 0, 30)
  await isExact(t, first.client, engines)
  const jetstream = await streamAt(t, nats)
  const { state } = await jetstream.streams.info(STREAM)
  // As when it is longer ago than the retention; and in the midst, as when a publisher lost it.
  await jetstream.streams.deleteMessage(STREAM, Math.floor((state.first_seq + state.last_seq) / 2))
  await (await routerAt(t, nats, engines)).client.trusted('partial')
  await jetstream.streams.purge(STREAM, { seq: state.first_seq + 2 })
  await (await routerAt(t, nats, engines)).client.trusted('partial')
  await first.client.trusted()
})

t.test(
  'an engine that restarts: what the stream has of its life before is not believed',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engines = await enginesAt(t, nats, 1)
    const first = await routerAt(t, nats, engines)
    await work(first.client, 0, 20)
    await isExact(t, first.client, engines)
    await engines[0]!.restart()
    await work(first.client, 20, 20)
    await isExact(t, first.client, engines)
    await isExact(t, (await routerAt(t, nats, engines)).client, engines)
  },
)
