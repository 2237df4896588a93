/**
 * Presence at etcd (--discovery-backend etcd), with a real server: leases, a watch over compactions, loss
 * and return.
 */

import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { EtcdClient } from '../src/etcd/etcd-client.ts'
import { type OwnPresence, StreamError, systemTransport, type Transport } from '../src/index.ts'
import { EtcdServer, NO_ETCD_SERVER } from '../src/testing.ts'
import { bytes, Inbox, text } from './inbox.ts'

const SUBJECT = 'homing.workers.default'
const PREFIX = `homing/${SUBJECT}/`

async function world(t: Test) {
  const server = await EtcdServer.start()
  t.teardown(() => server.stop())
  const transport = (): Transport => {
    const one = systemTransport({ clock: systemClock, log: { warn() {} } })
    t.teardown(() => one.close())
    return one
  }
  const { http } = transport()
  const endpoint = `etcd://${new URL(server.url).host}/${SUBJECT}`
  const present = (card: string | undefined) => {
    const heard = new Inbox<string>()
    const names = new Map<string, string>()
    const own: OwnPresence = transport().messages.present(
      { endpoint, card: card === undefined ? undefined : bytes(card) },
      {
        present({ life, card: other }) {
          names.set(life, text(other))
          heard.put(`here ${text(other)}`)
        },
        gone: (life, reason) => heard.put(`gone ${names.get(life)}: ${reason}`),
        connected: () => heard.put('connected'),
      },
    )
    t.teardown(() => own.close())
    const until = async (what: string): Promise<void> => {
      while ((await heard.next(what)) !== what);
    }
    return { own, heard, until }
  }
  return { server, client: new EtcdClient({ servers: [server.url], http }), present, http }
}

t.test('with a real server', { skip: NO_ETCD_SERVER }, async t => {
  t.test('peers hear of each other, come early or late, and of a good-bye', async t => {
    const { present } = await world(t)
    const early = present('early')
    const router = present(undefined)
    await router.until('connected')
    await router.until('here early')
    const late = present('late')
    await router.until('here late')
    await early.until('here late')
    await late.until('here early')
    late.own.close()
    await router.until('gone late: bye')
    early.own.close()
    await router.until('gone early: bye')
    t.equal(router.heard.size, 0)
  })

  t.test('the lease of one that died ends: it is gone for those who watch', async t => {
    const { present, client } = await world(t)
    const router = present(undefined)
    const lease = await client.grantLease(1)
    await client.put(`${PREFIX}${'a'.repeat(16)}`, bytes('dead'), lease)
    await router.until('here dead')
    await router.until('gone dead: silence')
    t.equal((await client.list(PREFIX, 10)).values.size, 0)
  })

  t.test('a watch whose revision etcd has forgotten: nothing is missed', async t => {
    const { present, client, server, http } = await world(t)
    const router = present(undefined)
    const worker = present('worker')
    await router.until('here worker')
    const { revision } = await client.list(PREFIX, 10)
    await server.freeze()
    const ended = router.until('gone worker: no broker')
    await ended
    server.resume()
    await router.until('here worker')
    // A watch of our own from a revision that is forgotten ends at once.
    for (let i = 0; i < 5; i++) await client.put(`${PREFIX}${'b'.repeat(16)}`, bytes(`word ${i}`), '0')
    await router.until('here word 4')
    const now = (await client.list(PREFIX, 10)).revision
    await http.fetch(
      {
        origin: server.url,
        method: 'POST',
        path: '/v3/kv/compaction',
        body: Buffer.from(JSON.stringify({ revision: String(now) })),
      },
      { timeoutMs: 2000 },
    )
    const over = Promise.withResolvers<string>()
    client.watch(PREFIX, revision - 1n, { changed() {}, ended: () => over.resolve('ended') })
    t.equal(await over.promise, 'ended')
    await client.put(`${PREFIX}${'b'.repeat(16)}`, bytes('behind it'), '0')
    await router.until('here behind it')
    worker.own.close()
    await router.until('gone worker: bye')
  })

  t.test('more peers than one answer of etcd may have are all heard of', async t => {
    const { present, client } = await world(t)
    const lives = Array.from({ length: 400 }, (_, i) => i.toString(16).padStart(16, '0'))
    const cardOf = (life: string): string => life.padEnd(16_000, '.')
    // A few at a time: 6 MB at once take a busy machine longer than a client waits for one answer; and again
    // where it stood still for so long.
    const put = (life: string): Promise<void> =>
      client.put(PREFIX + life, bytes(cardOf(life)), '0').catch((error: unknown) => {
        if (error instanceof StreamError) return put(life)
        throw error
      })
    for (let from = 0; from < lives.length; from += 10)
      await Promise.all(lives.slice(from, from + 10).map(put))
    const router = present(undefined)
    await router.until('connected')
    for (const life of lives) t.equal(await router.heard.next(life), `here ${cardOf(life)}`)
    const listed = await client.list(PREFIX, 1000)
    t.equal(listed.values.size, 400)
  })

  t.test('etcd is lost and comes back: all are gone, then there again', async t => {
    const { present, server } = await world(t)
    const router = present(undefined)
    present('worker')
    await router.until('here worker')
    await server.down()
    await router.until('gone worker: no broker')
    await server.up()
    await router.until('connected')
    await router.until('here worker')
    t.pass()
  })

  t.test('a key that is deleted under its peer comes back; keys of others are passed over', async t => {
    const { present, client } = await world(t)
    const router = present(undefined)
    present('worker')
    await router.until('here worker')
    await client.put(`${PREFIX}of another program`, bytes('noise'), '0')
    const [life] = [...(await client.list(PREFIX, 10)).values.keys()].filter(name => name.length === 16)
    await client.delete(PREFIX + life)
    await router.until('gone worker: silence')
    await router.until('here worker')
    t.pass()
  })
})
