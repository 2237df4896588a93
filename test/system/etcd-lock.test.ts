/**
 * Snapshots beside a stream whose lock is at etcd (--lock-backend etcd), with a real NATS server and etcd.
 */

import { EtcdServer, NatsServer, NO_ETCD_SERVER, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  RouterClient,
  startEngines,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const TAKEN = 'homing_stream_snapshots_total{outcome="taken"}'
const FAILED = 'homing_stream_snapshot_passes_total{outcome="failed"}'

async function world(t: Test) {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  const etcd = await EtcdServer.start()
  t.teardown(() => etcd.stop())
  const { engines, stop } = await startEngines([
    {
      nats: [nats.address],
      natsSubject: 'homing.kv.engine',
      durableKvEvents: true,
      replayBatchesMax: 2,
      blocks: 300,
    },
  ])
  t.teardown(stop)
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

let turns = 0

async function work(router: RouterClient, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const turn = turns++
    const prompt = `conversation ${turn % 13} ${'system prompt '.repeat(20 + (turn % 5))} turn ${turn}`
    const answer = await router.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2 } })
    if (answer.status !== 200) throw new Error(answer.text)
  }
}

async function isExact(t: Test, client: RouterClient, engines: readonly ThreadEngine[]): Promise<void> {
  await client.trusted()
  await client.caughtUp(engines)
  t.ok((await assertIndexEqualsCaches(client, engines)) > 0, 'the index is that of the caches')
}

async function counter(client: RouterClient, line: string): Promise<number> {
  const { text } = await client.send('/metrics')
  const found = text.split('\n').find(one => one.startsWith(line))
  return found === undefined ? 0 : Number(found.split(' ').at(-1))
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
