/**
 * Snapshots beside a stream of KV events, at a real NATS server: past the threshold one router takes them,
 * the stream is purged, and a router that starts alone is exact from snapshot and rest; whenever it is
 * that a router dies.
 */

import { seededRandom } from '@homing/base'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { counter, isExact, startDurableEngine, work } from './durable-fleet.ts'
import { RouterClient, startProcess, startTestRouter, type ThreadEngine, until } from './fleet.ts'

const STREAM = 'homing-kv-default'
const needsServer = { skip: NO_NATS_SERVER } as const
/** Of the bucket of locks. */
const LOCK_KEY = 'snapshots'
/** A pass takes about so long here. */
const PASS_MS = 150
/** Beyond the 16 messages that stay as a proof: a pass that purges none is followed by a pause of 30 s. */
const THRESHOLD = 30
const DURABLE = ['--router-durable-kv-events', '--router-snapshot-threshold', String(THRESHOLD)]

async function world(t: Test) {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  const { streams, close } = await nats.manage()
  t.teardown(close)
  const engines = await startDurableEngine(t, nats.address)
  return { nats, streams, engines, messages: async () => (await streams.streams.info(STREAM)).state.messages }
}

async function routerAt(t: Test, nats: NatsServer, engines: readonly ThreadEngine[], options = DURABLE) {
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

t.test(
  'past the threshold one router takes a snapshot, and a third that starts alone is exact',
  needsServer,
  async t => {
    const { nats, engines, messages } = await world(t)
    const routers = [await routerAt(t, nats, engines), await routerAt(t, nats, engines)]
    for (const { client } of routers) await client.trusted()
    await until('the stream is past the threshold', async () => {
      await work(routers[0]!.client, 5)
      return (await messages()) > THRESHOLD ? true : undefined
    })
    await until('the stream is purged', async () => {
      const taken = await Promise.all(
        routers.map(({ client }) => counter(client, 'homing_stream_snapshots_total{outcome="taken"}')),
      )
      return taken[0]! + taken[1]! > 0 && (await messages()) <= THRESHOLD ? true : undefined
    })
    await work(routers[1]!.client, 5)
    for (const { client } of routers) await isExact(t, client, engines)
    for (const { stop } of routers) await stop()

    const third = await routerAt(t, nats, engines)
    await isExact(t, third.client, engines)
    const [key] = (await third.client.workers())[0]!.worker_keys
    t.ok((key!.events!.checkpoint?.resumed_sequence ?? -1) > 0, 'it began from the snapshot')
    await work(third.client, 10)
    await isExact(t, third.client, engines)
  },
)

t.test(
  'the broker dies after the stream was purged: the listeners begin again from the snapshot',
  needsServer,
  async t => {
    const { nats, engines } = await world(t)
    const { client } = await routerAt(t, nats, engines)
    await client.trusted()
    await until('the stream is purged', async () => {
      await work(client, 5)
      return (await counter(client, 'homing_stream_purged_messages_total')) > 0 ? true : undefined
    })
    await isExact(t, client, engines)
    await nats.down()
    await client.trusted('approximate')
    await nats.up()
    await isExact(t, client, engines)
    t.ok((await counter(client, 'homing_stream_begun_again_total')) > 0)
    await work(client, 5)
    await isExact(t, client, engines)
  },
)

t.test(
  'routers are killed while they take snapshots: a later one is exact each time',
  { ...needsServer, timeout: 900_000 },
  async t => {
    const { nats, streams, engines, messages } = await world(t)
    const { views, close } = await nats.manage()
    t.teardown(close)
    // It makes the buckets, and the stream.
    const first = await routerAt(t, nats, engines)
    await first.client.trusted()
    await work(first.client, 6)
    await first.stop()
    const locks = await views.kv(`${STREAM}-locks`)
    const seed = Number(process.env['HOMING_FAULTS_SEED'] ?? 1)
    t.comment(`HOMING_FAULTS_SEED=${seed}`)
    const random = seededRandom(seed)
    const runs = Number(process.env['HOMING_FAULTS_RUNS'] ?? 3)
    const found = { inPass: 0, purged: 0 }
    for (let run = 0; run < runs; run++) {
      const before = await messages()
      const passes = await locks.watch({ key: LOCK_KEY })
      const killed = await startProcess('router', [
        ...['--nats', nats.address, '--worker', engines[0]!.url, '--port', '0', '--log-level', 'warn'],
        ...['--router-durable-kv-events', '--router-snapshot-threshold', '1'],
      ])
      for await (const { operation, revision } of passes) if (operation === 'PUT' && revision > 0) break
      await new Promise(resolve => setTimeout(resolve, random.next() * PASS_MS))
      killed.kill('SIGKILL')
      await killed.ended
      const held = await locks.get(LOCK_KEY)
      if (held?.operation === 'PUT') found.inPass++
      if ((await messages()) < before) found.purged++
      // As if five minutes had passed: neither its lock nor its consumer is there.
      await locks.purge(LOCK_KEY)
      const { consumers } = streams
      for (const { name } of await consumers.list(STREAM).next()) await consumers.delete(STREAM, name)
      const next = await routerAt(t, nats, engines)
      await isExact(t, next.client, engines)
      await work(next.client, 6)
      await isExact(t, next.client, engines)
      await next.stop()
    }
    t.comment(`${runs} killed, ${found.inPass} of them with the lock, ${found.purged} after a purge`)
    if (runs >= 20) t.ok(found.inPass > 0 && found.inPass < runs, 'in a pass, and behind one')
  },
)
