/**
 * Snapshots beside a stream whose lock is at etcd (--lock-backend etcd), with a real NATS server and etcd.
 */

import { EtcdServer, NatsServer, NO_ETCD_SERVER, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { counter, isExact, startDurableEngine, work } from './durable-fleet.ts'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const TAKEN = 'homing_stream_snapshots_total{outcome="taken"}'
const FAILED = 'homing_stream_snapshot_passes_total{outcome="failed"}'

async function world(t: Test) {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  const etcd = await EtcdServer.start()
  t.teardown(() => etcd.stop())
  const engines = await startDurableEngine(t, nats.address)
  const routerAt = async () => {
    const router = await startTestRouter(
      engines.map(({ url }) => url),
      [
        ...['--nats', nats.address, '--router-durable-kv-events', '--router-snapshot-threshold', '10'],
        ...['--lock-backend', 'etcd', '--etcd', etcd.url],
      ],
    )
    t.teardown(() => router.stop(0))
    return { client: new RouterClient(router.url), stop: () => router.stop(0) }
  }
  return { etcd, engines, routerAt }
}

t.test(
  'two routers with their lock at etcd, which is lost for a while: a third that starts alone is exact',
  { skip: NO_ETCD_SERVER || NO_NATS_SERVER },
  async t => {
    const { etcd, engines, routerAt } = await world(t)
    await etcd.down()
    const routers = [await routerAt(), await routerAt()]
    const clients = routers.map(({ client }) => client)
    for (const client of clients) await client.trusted()
    const sum = async (line: string): Promise<number> =>
      (await Promise.all(clients.map(client => counter(client, line)))).reduce((all, one) => all + one, 0)
    await until('passes fail without etcd', async () => {
      await work(clients[0]!, 5)
      return (await sum(FAILED)) > 1 ? true : undefined
    })
    t.equal(await sum(TAKEN), 0, 'and nothing is taken without the lock')
    await etcd.up()
    await until('snapshots are taken', async () => {
      await work(clients[1]!, 2)
      return (await sum(TAKEN)) > 0 ? true : undefined
    })
    for (const client of clients) await isExact(t, client, engines)
    for (const { stop } of routers) await stop()
    await isExact(t, (await routerAt()).client, engines)
  },
)
