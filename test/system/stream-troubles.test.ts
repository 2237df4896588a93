/**
 * Trouble beside a stream of KV events, at a real NATS server and with routers as processes: clocks that
 * differ, snapshots that are cut or of another version, a lock that is lost while a snapshot is dumped, a
 * router that slept past the retention. Nothing is called exact that is not so.
 */

import { systemClock } from '@homing/base'
import { systemTransport } from '@homing/transport'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { snapshotPass } from '../../actors/directory/src/snapshot-pass.ts'
import { counter, isExact, startDurableEngine, work } from './durable-fleet.ts'
import { RouterClient, startProcess, until } from './fleet.ts'

const STREAM = 'homing-kv-default'
const DAY_MS = 86_400_000
const needsServer = { skip: NO_NATS_SERVER } as const

async function world(t: Test) {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  const { streams, views, close } = await nats.manage()
  t.teardown(close)
  const engines = await startDurableEngine(t, nats.address)
  const routerAt = async (thresholdMessages: number, clockShiftMs = 0) => {
    const { url, kill, ended, errorLines } = await startProcess(
      'router',
      [
        ...['--nats', nats.address, '--worker', engines[0]!.url, '--port', '0', '--log-level', 'info'],
        ...['--router-durable-kv-events', '--router-snapshot-threshold', String(thresholdMessages)],
      ],
      { clockShiftMs },
    )
    t.teardown(() => kill('SIGKILL'))
    return { client: new RouterClient(url), kill, ended, errorLines }
  }
  return { address: nats.address, streams, views, engines, routerAt }
}

/** Beyond the 16 messages that stay as a proof: a pass that purges none is followed by a pause of 30 s. */
const THRESHOLD = 30
const TAKEN = 'homing_stream_snapshots_total{outcome="taken"}'
const PURGED = 'homing_stream_purged_messages_total'

t.test(
  'clocks that differ by two days: snapshots are taken, and a late router is exact',
  needsServer,
  async t => {
    const { engines, routerAt } = await world(t)
    const routers = await Promise.all([routerAt(THRESHOLD, DAY_MS), routerAt(THRESHOLD, -DAY_MS)])
    for (const { client } of routers) await client.trusted()
    await until('snapshots are taken and the stream is purged', async () => {
      await work(routers[0]!.client, 5)
      const sums = await Promise.all(
        routers.flatMap(({ client }) => [counter(client, TAKEN), counter(client, PURGED)]),
      )
      return sums[0]! + sums[2]! > 0 && sums[1]! + sums[3]! > 0 ? true : undefined
    })
    for (const { client } of routers) await isExact(t, client, engines)
    for (const { kill } of routers) kill('SIGTERM')
    for (const { ended } of routers) await ended
    const third = await routerAt(1_000_000)
    await isExact(t, third.client, engines)
  },
)

t.test(
  'a snapshot that is cut, or of another version: it is not used, and says why',
  needsServer,
  async t => {
    const { views, engines, routerAt } = await world(t)
    const first = await routerAt(THRESHOLD)
    await first.client.trusted()
    await until('the stream is purged', async () => {
      await work(first.client, 5)
      return (await counter(first.client, PURGED)) > 0 ? true : undefined
    })
    await isExact(t, first.client, engines)
    first.kill('SIGTERM')
    await first.ended
    const images = await views.os(`${STREAM}-images`)
    const [stored] = await images.list()
    const whole = Uint8Array.from((await images.getBlob(stored!.name))!)
    const otherVersion = whole.slice()
    otherVersion[8] = 99
    for (const [bytes, why] of [
      [whole.slice(0, whole.length - 100), /bytes of \d+ are there/],
      [otherVersion, /version/i],
    ] as const) {
      await images.putBlob({ name: stored!.name }, bytes)
      const router = await routerAt(1_000_000)
      const events = await until('the snapshot is refused', async () => {
        const [key] = (await router.client.workers())[0]!.worker_keys
        const refusal = key!.events?.checkpoint?.refusal
        return refusal === null || refusal === undefined ? undefined : { refusal, key: key! }
      })
      t.match(events.refusal, why)
      // What it stood for is gone from the stream: no router may call the rest all.
      await router.client.trusted('partial')
      router.kill('SIGTERM')
      await router.ended
    }
    await images.putBlob({ name: stored!.name }, whole)
    await isExact(t, (await routerAt(1_000_000)).client, engines)
  },
)

t.test(
  'the lock is lost while a snapshot is dumped: nothing is replaced, and nothing is purged',
  needsServer,
  async t => {
    const { address, streams } = await world(t)
    const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
    t.teardown(() => transport.close())
    const limits = { namespace: 'default', retentionMs: 3_600_000, bytesMax: 2 ** 24 }
    const store = transport.streamStore!([address], limits)
    t.teardown(() => store.close())
    await until('the stream is made', async () => await store.fill().catch(() => undefined))
    const subject = 'homing.kv.engine.0'
    const snapshot = { bytes: new Uint8Array(9), life: '0'.repeat(16), keepFrom: 5 }
    const take = async () => {
      // As when it took longer than the lock holds; another router has it now.
      await streams.streams.purge(`KV_${STREAM}-locks`)
      const other = await store.lock()
      t.ok(other)
      return snapshot
    }
    const pass = await snapshotPass(store, {
      ...{ thresholdMessages: -1, sources: [{ subject, take }] },
      ...{ known: () => undefined, clock: systemClock },
      warn: error => t.fail(String(error)),
    })
    t.match(pass, { outcome: 'lost', taken: 0, purgedMessages: 0 })
    t.equal(await store.read(subject), undefined)
    t.equal(await store.lock(), undefined, 'the other one still has the lock')
  },
)

t.test('a router that slept past the retention is not exact by what it missed', needsServer, async t => {
  const { streams, engines, routerAt } = await world(t)
  const [sleeper, other] = [await routerAt(1_000_000), await routerAt(1_000_000)]
  for (const { client } of [sleeper, other]) await client.trusted()
  await work(other.client, 10)
  await isExact(t, sleeper.client, engines)
  sleeper.kill('SIGSTOP')
  await work(other.client, 30)
  // As after an hour: the stream has only what comes from now on, and the consumers of the sleeper are gone.
  await streams.streams.purge(STREAM)
  for (const { name } of await streams.consumers.list(STREAM).next())
    await streams.consumers.delete(STREAM, name)
  sleeper.kill('SIGCONT')
  await until('it knows that it missed something', async () => {
    await work(other.client, 1)
    const [key] = (await sleeper.client.workers())[0]!.worker_keys
    return key!.trust === 'partial' ? true : undefined
  })
})
