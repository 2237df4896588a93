/**
 * Workers that register themselves at etcd (--discovery-backend etcd), with a real etcd, and without any
 * broker.
 */

import { type Registered, registerWorker } from '@homing/publisher'
import { EtcdServer, NO_ETCD_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { RouterClient, startEngines, startTestRouter, until } from './fleet.ts'

const MODEL = 'homing-sim'

async function world(t: Test, count: number) {
  const etcd = await EtcdServer.start()
  t.teardown(() => etcd.stop())
  const { engines, stop } = await startEngines(Array.from({ length: count }, () => ({})))
  t.teardown(stop)
  const register = (number: number, namespace = 'fleet'): Registered => {
    const one = registerWorker({ url: engines[number]!.url, nats: [], etcd: [etcd.url], namespace })
    t.teardown(() => one.close())
    return one
  }
  const routerAt = async () => {
    const router = await startTestRouter(
      [],
      ['--worker-namespace', 'fleet', '--discovery-backend', 'etcd', '--etcd', etcd.url],
    )
    t.teardown(() => router.stop(0))
    return new RouterClient(router.url)
  }
  return { etcd, engines, register, routerAt }
}

async function has(client: RouterClient, count: number): Promise<void> {
  await until(`${count} workers are there`, async () =>
    (await client.workers()).filter(({ state }) => state === 'up').length === count &&
    (await client.workers()).length === count
      ? true
      : undefined,
  )
}

async function serves(t: Test, client: RouterClient): Promise<void> {
  const body = { model: MODEL, prompt: 'a prompt of some words', max_tokens: 2 }
  t.equal((await client.send('/v1/completions', { body })).status, 200)
}

t.test('workers come and go at etcd', { skip: NO_ETCD_SERVER }, async t => {
  const { register, routerAt } = await world(t, 2)
  const first = register(0)
  const [client, other] = [await routerAt(), await routerAt()]
  register(1, 'another')
  await has(client, 1)
  await has(other, 1)
  await serves(t, client)
  const second = register(1)
  await has(client, 2)
  await has(other, 2)
  await second.close()
  await has(client, 1)
  await first.close()
  await has(other, 0)
})

t.test(
  'etcd is lost and comes back: workers stay, and serve meanwhile',
  { skip: NO_ETCD_SERVER },
  async t => {
    const { etcd, register, routerAt } = await world(t, 2)
    register(0)
    const client = await routerAt()
    await has(client, 1)
    await etcd.down()
    await serves(t, client)
    register(1)
    await serves(t, client)
    await has(client, 1)
    await etcd.up()
    await has(client, 2)
    await serves(t, client)
  },
)
