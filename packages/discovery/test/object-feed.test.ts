/** The feed of one kind of objects: when it asks again, and what is left out. Time is moved by the test. */

import { SimulatedClock } from '@homing/base'
import type { HttpCall, HttpReply, HttpResponseHandler } from '@homing/transport'
import t, { type Test } from 'tap'
import { ObjectFeed } from '../src/kubernetes/object-feed.ts'

const object = (name: string): object => ({ metadata: { name, resourceVersion: '1' } })
const GONE = { type: 'ERROR', object: { kind: 'Status', code: 410, message: 'too old resource version' } }

/** A server whose answers the test gives: watches are open until it ends them. */
function world(t: Test, objectsMax = 10) {
  const clock = new SimulatedClock()
  /** Requests with the times of them. */
  const log: string[] = []
  const names = new Set<string>()
  let watch: HttpResponseHandler | undefined
  let listing: Pick<HttpReply, 'status' | 'headers'> = { status: 200, headers: {} }
  let atWatch = (): void => {}
  const http = {
    async fetch(): Promise<HttpReply> {
      log.push(`list ${clock.nowMs()}`)
      const items = [...names].map(object)
      const body = Buffer.from(JSON.stringify({ kind: 'PodList', metadata: { resourceVersion: '1' }, items }))
      return { ...listing, body }
    },
    call(_: object, handler: HttpResponseHandler): HttpCall {
      log.push(`watch ${clock.nowMs()}`)
      watch = handler
      queueMicrotask(() => {
        handler.head(200, {})
        atWatch()
      })
      return { abort() {} } as unknown as HttpCall
    },
  }
  const feed = new ObjectFeed<string>({
    http: http as never,
    server: 'http://api',
    credentials: { renew: async () => false, headers: {}, fault: undefined } as never,
    clock,
    random: { next: () => 1, below: () => 0 } as never,
    path: '/api/v1/namespaces/default/pods',
    kind: 'pods',
    labelSelector: undefined,
    isMetadataOnly: true,
    objectsMax,
    read: item => JSON.stringify(item),
    changed() {},
    failed() {},
    recovered() {},
  })
  t.teardown(() => feed.close())
  const settled = (): Promise<void> => new Promise(resolve => setImmediate(resolve))
  return {
    log,
    names,
    feed,
    settled,
    /** How many requests of this kind came. */
    count: (verb: string) => log.filter(line => line.startsWith(verb)).length,
    event: (event: object) => watch!.data(Buffer.from(`${JSON.stringify(event)}\n`)),
    endWatch: () => watch!.end('framed'),
    eachWatch: (does: () => void) => (atWatch = does),
    lists: (answer: typeof listing) => (listing = answer),
    async pass(ms: number, steps = 1): Promise<void> {
      for (let step = 0; step < steps; step++) {
        clock.advance(ms)
        await settled()
      }
    },
  }
}

t.test('pauses grow where a fresh version is forgotten at once, although each listing succeeds', async t => {
  const { eachWatch, event, pass, count, settled, endWatch } = world(t)
  eachWatch(() => event(GONE))
  await settled()
  await pass(50, 400)
  // After 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 and 16.3 s.
  t.ok(count('list') <= 10, `${count('list')} listings in 20 s`)
  t.ok(count('list') >= 8)
  eachWatch(() => {})
  await pass(5000)
  const watches = count('watch')
  await pass(2000)
  endWatch()
  await settled()
  t.equal(count('watch'), watches + 1, 'a watch that has lived is followed by the next at once')
  event({ type: 'ADDED', object: object('a') })
  endWatch()
  await settled()
  await pass(0)
  t.equal(count('watch'), watches + 2, 'and so is one that has brought a change')
})

t.test('a server that wants to be left alone is asked again within a minute', async t => {
  const { lists, settled, pass, count, feed } = world(t)
  lists({ status: 429, headers: { 'retry-after': '86400' } })
  await settled()
  await pass(59_000)
  t.equal(count('list'), 1)
  lists({ status: 200, headers: {} })
  await pass(1000)
  t.equal(count('list'), 2)
  t.ok(feed.isListed)
})

t.test('what was left out comes in when there is room again', async t => {
  const { names, feed, settled, pass, event, endWatch, count } = world(t, 2)
  for (const name of ['a', 'b']) names.add(name)
  await settled()
  t.equal(feed.leftOut, 0)
  names.add('c')
  for (const type of ['ADDED', 'MODIFIED', 'MODIFIED']) event({ type, object: object('c') })
  t.equal(feed.leftOut, 1, 'objects count, not events of them')
  await pass(2000)
  endWatch()
  await settled()
  t.equal(count('list'), 1, 'nothing has gone: there is no room')
  names.delete('a')
  event({ type: 'DELETED', object: object('a') })
  await pass(2000)
  endWatch()
  await settled()
  t.equal(count('list'), 2)
  t.strictSame([[...feed.objects.keys()], feed.leftOut], [['b', 'c'], 0])
})
