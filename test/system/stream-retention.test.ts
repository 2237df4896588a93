/**
 * A stream of KV events that discards what is old, or too much, at a real NATS server. Snapshots are taken
 * before that, whatever the threshold; who has slept past it is not exact.
 */

import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { counter, isExact, startDurableEngine, work } from './durable-fleet.ts'
import { RouterClient, startProcess, startTestRouter, type ThreadEngine, until } from './fleet.ts'

const STREAM = 'homing-kv-default'
const RETENTION_MS = 4000
const NANOS = 1_000_000
const HOUR_MS = 3_600_000
const needsServer = { skip: NO_NATS_SERVER } as const
const PURGED = 'homing_stream_purged_messages_total'
const TAKEN = 'homing_stream_snapshots_total{outcome="taken"}'

async function world(t: Test) {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  const { streams, close } = await nats.manage()
  t.teardown(close)
  const engines = await startDurableEngine(t, nats.address)
  // As another program does: the first publisher or consumer to come has made it.
  const edit = async (limits: { readonly [name: string]: number }): Promise<void> => {
    await streams.streams.update(STREAM, limits)
  }
  const deleteConsumers = async (): Promise<void> => {
    for (const { name } of await streams.consumers.list(STREAM).next())
      await streams.consumers.delete(STREAM, name)
  }
  const state = async () => (await streams.streams.info(STREAM)).state
  return { nats, engines, edit, state, deleteConsumers }
}

/** With the default threshold. */
async function routerAt(t: Test, nats: NatsServer, engines: readonly ThreadEngine[]) {
  const router = await startTestRouter(
    engines.map(({ url }) => url),
    ['--nats', nats.address, '--router-durable-kv-events'],
  )
  let isStopped = false
  const stop = async (): Promise<void> => {
    if (!isStopped) await router.stop(0)
    isStopped = true
  }
  t.teardown(stop)
  return { client: new RouterClient(router.url), stop }
}

t.test('a stream that is half full has snapshots, whatever its number of messages', needsServer, async t => {
  const { nats, engines, edit, state } = await world(t)
  const first = await routerAt(t, nats, engines)
  await first.client.trusted()
  const bytesMax = 100_000
  await edit({ max_bytes: bytesMax })
  await until('the stream is purged', async () => {
    await work(first.client, 5)
    return (await counter(first.client, PURGED)) > 0 ? true : undefined
  })
  t.ok((await state()).bytes < bytesMax)
  await isExact(t, first.client, engines)
  await first.stop()
  await isExact(t, (await routerAt(t, nats, engines)).client, engines)
})

t.test(
  'past the retention: a router that slept is not exact; one that starts later is, by a snapshot in time',
  needsServer,
  async t => {
    const { nats, engines, edit, state, deleteConsumers } = await world(t)
    const sleeper = await startProcess('router', [
      ...['--nats', nats.address, '--worker', engines[0]!.url, '--port', '0', '--log-level', 'warn'],
      '--router-durable-kv-events',
    ])
    t.teardown(() => sleeper.kill('SIGKILL'))
    const client = new RouterClient(sleeper.url)
    await client.trusted()
    await edit({ max_age: RETENTION_MS * NANOS, duplicate_window: RETENTION_MS * NANOS })
    await work(client, 3)
    await isExact(t, client, engines)
    sleeper.kill('SIGSTOP')
    // As after five minutes; what its socket has got until now it hears when it wakes.
    await deleteConsumers()
    // No router hears what is published now, so there is no snapshot of it.
    const direct = new RouterClient(engines[0]!.url)
    await work(direct, 10)
    const missed = (await state()).last_seq
    await until('the stream has discarded it', async () =>
      (await state()).first_seq > missed ? true : undefined,
    )
    sleeper.kill('SIGCONT')
    await until('it knows that it missed something', async () => {
      await work(direct, 1)
      const [key] = (await client.workers())[0]!.worker_keys
      return key!.trust === 'partial' ? true : undefined
    })
    sleeper.kill('SIGKILL')
    await sleeper.ended

    await engines[0]!.restart()
    const first = await routerAt(t, nats, engines)
    await first.client.trusted()
    await work(first.client, 20)
    const before = (await state()).last_seq
    await until('the stream has discarded what came first', async () => {
      await work(first.client, 1)
      return (await state()).first_seq > before ? true : undefined
    })
    const taken = await counter(first.client, TAKEN)
    await until('there is a snapshot of about now', async () => {
      await work(first.client, 1)
      return (await counter(first.client, TAKEN)) > taken ? true : undefined
    })
    // A third router that takes long to start must find what came behind it.
    await edit({ max_age: HOUR_MS * NANOS })
    await isExact(t, first.client, engines)
    await first.stop()
    const third = await routerAt(t, nats, engines)
    await isExact(t, third.client, engines)
    const [key] = (await third.client.workers())[0]!.worker_keys
    t.ok((key!.events!.checkpoint?.resumed_sequence ?? -1) > 0, 'it began from the snapshot')
  },
)
