/** The lock of snapshots at etcd (--lock-backend etcd), with a real server. */

import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { EtcdClient } from '../src/etcd/etcd-client.ts'
import { EtcdLocks } from '../src/etcd/etcd-lock.ts'
import { StreamError, systemTransport } from '../src/index.ts'
import { EtcdServer, freePort, NO_ETCD_SERVER } from '../src/testing.ts'

const KEY = 'homing/fleet/locks/snapshots'

async function world(t: Test) {
  const server = await EtcdServer.start()
  t.teardown(() => server.stop())
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const { http } = transport
  let names = 0
  const locksAt = (servers: readonly string[], seconds?: number) => {
    const client = new EtcdClient({ servers, http })
    const newName = () => `holder-${names++}`
    return new EtcdLocks({ client, namespace: 'fleet', newName, ...(seconds && { seconds }) })
  }
  return {
    server,
    client: new EtcdClient({ servers: [server.url], http }),
    locksAt,
    locks: locksAt([server.url]),
  }
}

/** A server that was away finds a leader first, and says until then that it has none. */
async function answered<T>(ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      if (!(error instanceof StreamError)) throw error
    }
  }
}

t.test('with a real server', { skip: NO_ETCD_SERVER }, async t => {
  t.test('one at a time has the lock, and gives it back', async t => {
    const { locks, client } = await world(t)
    const lock = await locks.lock()
    t.ok(lock)
    t.equal(await locks.lock(), undefined)
    t.equal(await lock!.renew(), true)
    const at = await client.get(KEY)
    t.match(at, { value: 'holder-0' })
    await lock!.release()
    t.equal(await client.get(KEY), undefined)
    t.equal(await client.keepAlive(at!.lease), false, 'its lease is gone, too')
    const next = await locks.lock()
    t.ok(next)
    t.equal(await lock!.renew(), false)
    await lock!.release()
    t.equal(await next!.renew(), true, 'a late release takes nothing from the next one')
  })

  t.test('of many who ask at once one gets it, and the others leave no lease', async t => {
    const { locks } = await world(t)
    const got = await Promise.all(Array.from({ length: 8 }, () => locks.lock()))
    t.equal(got.filter(lock => lock !== undefined).length, 1)
  })

  t.test('the lock of one that died ends with its lease', async t => {
    const { locks, locksAt, server } = await world(t)
    const dead = await locksAt([server.url], 1).lock()
    t.ok(dead)
    let next: Awaited<ReturnType<typeof locks.lock>>
    do next = await locks.lock()
    while (next === undefined)
    t.equal(await dead!.renew(), false, 'it would hear that it has lost it')
    await dead!.release()
    t.equal(await next.renew(), true)
  })

  t.test('a lock that is stolen under its holder: it hears so, and leaves it to the thief', async t => {
    const { locks, client } = await world(t)
    const lock = await locks.lock()
    const before = await client.get(KEY)
    await client.deleteCreated(KEY, before!.createRevision)
    const thief = await locks.lock()
    t.ok(thief)
    t.equal(await lock!.renew(), false, 'although its lease lives')
    await lock!.release()
    t.equal(await thief!.renew(), true)
  })

  t.test('etcd is lost: a stated error; it comes back: the lock is as it was, or free', async t => {
    const { locks, server } = await world(t)
    const lock = await locks.lock()
    await server.down()
    await t.rejects(lock!.renew(), StreamError)
    await t.rejects(locks.lock(), { code: 'HOMING_TRANSPORT_STREAM', message: /cannot use etcd/ })
    await server.up()
    t.equal(await answered(() => lock!.renew()), true, 'etcd prolongs leases over its own absence')
    t.equal(await locks.lock(), undefined)
    await server.freeze()
    await t.rejects(locks.lock(), /no whole answer within 2000 ms/)
    server.resume()
    await answered(() => lock!.release())
    t.ok(await answered(() => locks.lock()))
  })

  t.test('a server of the cluster that does not answer is passed over', async t => {
    const { locksAt, server } = await world(t)
    const lock = await locksAt([`http://127.0.0.1:${await freePort()}`, server.url]).lock()
    t.equal(await lock?.renew(), true)
  })
})
