/**
 * What is asked of etcd, in memory: pages, servers that hang, watches that end, and nothing behind a close.
 */

import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { EtcdClient, type EtcdClientOptions } from '../src/etcd/etcd-client.ts'
import { EtcdPresence } from '../src/etcd/etcd-presence.ts'
import { HttpCallError, StreamError } from '../src/index.ts'
import { bytes } from './inbox.ts'

type Http = EtcdClientOptions['http']
type Fields = Readonly<Record<string, unknown>>

const base64 = (text: string | Uint8Array): string => Buffer.from(text as string).toString('base64')
const json = (value: unknown) => ({ status: 200, headers: {}, body: bytes(JSON.stringify(value)) })
const notAsked = (): never => {
  throw new Error('not asked')
}

/** A server with these keys; what it is asked is noted. */
function rangeServer(keys: readonly string[], valueBytes = 10, answerBytesMax = 2 ** 20) {
  const asked: Fields[] = []
  const state = { compactions: 0 }
  const fetch: Http['fetch'] = async request => {
    const body = JSON.parse(Buffer.from(request.body!).toString()) as Fields
    asked.push(body)
    if (body['revision'] !== undefined && state.compactions-- > 0)
      return { ...json({ error: 'etcdserver: mvcc: required revision has been compacted' }), status: 400 }
    const from = Buffer.from(body['key'] as string, 'base64')
    const found = keys
      .map(key => Buffer.from(key))
      .filter(key => Buffer.compare(key, from) >= 0)
      .sort(Buffer.compare)
      .slice(0, Number(body['limit']))
    const kvs = found.map(key => ({ key: base64(key), value: base64(new Uint8Array(valueBytes)) }))
    const answer = json({ header: { revision: '7' }, kvs })
    if (answer.body.length > answerBytesMax) throw new HttpCallError(request, 'tooLarge', 'too much')
    return answer
  }
  return {
    asked,
    state,
    client: new EtcdClient({ servers: ['http://a:1'], http: { fetch, call: notAsked } }),
  }
}

const names = (count: number) => Array.from({ length: count }, (_, i) => String(i).padStart(5, '0'))

t.test('a listing of many keys comes in pages of one revision', async t => {
  const all = names(1000)
  const { client, asked } = rangeServer(all.map(name => `p/${name}`))
  const { values, revision } = await client.list('p/', 16_384)
  t.strictSame([...values.keys()], all)
  t.equal(revision, 7n)
  t.ok(asked.length > 5)
  t.ok(asked.slice(1).every(one => one['revision'] === '7'))
  t.strictSame([...(await client.list('p/', 300)).values.keys()], all.slice(0, 300))
  t.strictSame((await rangeServer([]).client.list('p/', 10)).values.size, 0)
})

t.test('keys that are no text are no end of a listing', async t => {
  const keys = [...names(200), '\u{10ffff}', 'ü', '\u0000'].map(name => `p/${name}`)
  t.equal((await rangeServer(keys).client.list('p/', 1000)).values.size, keys.length)
})

t.test('a page that is too large is asked for by halves', async t => {
  const { client } = rangeServer(
    names(300).map(name => `p/${name}`),
    1000,
    20_000,
  )
  t.equal((await client.list('p/', 1000)).values.size, 300)
  await t.rejects(rangeServer(['p/1'], 30_000, 20_000).client.list('p/', 1000), StreamError)
})

t.test('a revision that is forgotten between two pages: the listing begins again', async t => {
  const { client, state } = rangeServer(names(300).map(name => `p/${name}`))
  state.compactions = 1
  t.equal((await client.list('p/', 1000)).values.size, 300)
  state.compactions = 100
  await t.rejects(client.list('p/', 1000), /compacted/)
})

t.test('servers that hang take less time than a lease has, however many there are', async t => {
  for (const count of [1, 3, 5]) {
    let ms = 0
    const fetch: Http['fetch'] = async (request, { timeoutMs }) => {
      ms += timeoutMs
      throw new HttpCallError(request, 'timeout', 'no answer')
    }
    const servers = Array.from({ length: count }, (_, i) => `http://a:${i + 1}`)
    const client = new EtcdClient({ servers, http: { fetch, call: notAsked } })
    await t.rejects(client.keepAlive('1'), StreamError)
    t.ok(ms <= 3000, `${count} servers: ${ms} ms`)
  }
})

/** A presence at a server whose watches last so long. */
function presence(watchMs: number) {
  const clock = new SimulatedClock()
  const counts = { listings: 0, watches: 0, keptAlive: 0 }
  const timers = new Set<object>()
  const fetch: Http['fetch'] = async ({ path }) => {
    if (path === '/v3/lease/grant') return json({ ID: '5' })
    if (path === '/v3/lease/keepalive') {
      counts.keptAlive++
      return json({ result: { TTL: '5' } })
    }
    if (path === '/v3/kv/range') counts.listings++
    return json({ header: { revision: '7' } })
  }
  const call: Http['call'] = (_, handler) => {
    counts.watches++
    const timer = clock.after(watchMs, () => handler.end('framed'))
    return { abort: () => timer.cancel() } as unknown as ReturnType<Http['call']>
  }
  const one = new EtcdPresence({
    client: new EtcdClient({ servers: ['http://a:1'], http: { fetch, call } }),
    subject: 'homing.workers.default',
    card: bytes('card'),
    life: 'a'.repeat(16),
    clock: {
      ...clock,
      nowMs: () => clock.nowMs(),
      wallMs: () => clock.wallMs(),
      after(ms, callback) {
        const timer = clock.after(ms, () => {
          timers.delete(timer)
          callback()
        })
        timers.add(timer)
        return {
          cancel() {
            timers.delete(timer)
            timer.cancel()
          },
        }
      },
    },
    handler: { present() {}, gone() {} },
    failed() {},
    released() {},
  })
  const pass = async (ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += 10) {
      for (let turn = 0; turn < 30; turn++) await Promise.resolve()
      clock.advance(10)
    }
  }
  return { one, counts, timers, pass }
}

t.test('watches that end as soon as they begin are followed by growing pauses, and beats go on', async t => {
  const { one, counts, pass } = presence(0)
  await pass(60_000)
  t.ok(counts.watches < 30, `${counts.watches} watches in a minute`)
  t.ok(counts.keptAlive > 50 && counts.keptAlive < 70, `${counts.keptAlive} beats`)
  one.close()
})

t.test('a watch that lasted is followed by the next at once', async t => {
  const { one, counts, pass } = presence(8000)
  await pass(60_000)
  t.equal(counts.watches, 8)
  t.ok(counts.listings < 16, `${counts.listings} listings`)
  one.close()
})

t.test('behind a close no timer is left, whatever woke it before', async t => {
  for (const watchMs of [0, 300, 100_000]) {
    const { one, timers, pass } = presence(watchMs)
    await pass(5000)
    t.ok(timers.size <= 1, `${timers.size} timers at one time`)
    one.close()
    await pass(20)
    t.equal(timers.size, 0)
  }
})
