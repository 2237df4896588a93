/**
 * Workers that register themselves at a broker: they join, leave, are lost and come back; and what strangers
 * say.
 */

import { registerWorker } from '@homing/publisher'
import t from 'tap'
import { type DirectoryWorld, world } from './directory-world.ts'

const SERVERS = ['b:4222']
const BROKER = 'nats://b:4222/any'
const ASK = { timeout: '10s' } as const
const registration = { servers: SERVERS, namespace: 'default' }

function register(w: DirectoryWorld, url: string) {
  const transport = w.network.transport()
  const registered = registerWorker({ url, nats: SERVERS, transport })
  return { registered, kill: () => transport.close() }
}

/** Seconds, one at a time, so that probes and beats take their turns. */
async function pass(w: DirectoryWorld, seconds: number): Promise<void> {
  for (let i = 0; i < 2 * seconds; i++) await w.system.advance('500ms')
}

/** What an operator asks. */
async function ask(
  w: DirectoryWorld,
  message:
    | { readonly type: 'removeWorker'; readonly workerId: string }
    | { readonly type: 'addWorker'; readonly url: string },
): Promise<unknown> {
  const asked = message.type === 'addWorker' ? w.ref.ask(message, ASK) : w.ref.ask(message, ASK)
  await w.system.settle()
  return asked
}

const idsOf = (w: DirectoryWorld): readonly string[] => w.fleet.workers.map(({ id }) => id)

t.test('one that registers joins, with what its URL says, and leaves when it says good-bye', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start([], { registration })
  await pass(w, 1)
  t.strictSame(idsOf(w), [])
  const { registered } = register(w, 'http://a:8000?max_batched_tokens=512&taints=big')
  await pass(w, 4)
  t.match(w.fleet.workers, [
    { id: 'a:8000', state: 'up', maxBatchedTokens: { value: 512, source: 'given' }, taints: ['big'] },
  ])
  registered.close()
  await pass(w, 1)
  t.strictSame(idsOf(w), [])
})

t.test('while the broker is away all stay; who does not come back with it leaves', async t => {
  const w = await world(t)
  await w.engine('a')
  await w.engine('c')
  w.start([], { registration })
  register(w, 'http://a:8000')
  const dying = register(w, 'http://c:8000')
  await pass(w, 4)
  t.strictSame([...idsOf(w)].sort(), ['a:8000', 'c:8000'])
  w.network.disconnect(BROKER)
  dying.kill()
  await pass(w, 30)
  t.strictSame([...idsOf(w)].sort(), ['a:8000', 'c:8000'], 'nobody knows who is gone')
  w.network.reconnect(BROKER)
  await pass(w, 15)
  t.strictSame(idsOf(w), ['a:8000'])
})

t.test('a worker that the operator named stays the operator’s', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start(['http://a:8000'], { registration })
  await pass(w, 3)
  const { registered } = register(w, 'http://a:8000?max_batched_tokens=512')
  await pass(w, 3)
  registered.close()
  await pass(w, 3)
  t.match(w.fleet.workers, [{ id: 'a:8000', maxBatchedTokens: { value: 8192 } }])
})

t.test('of two lives with one id the last counts, and other parameters make another worker', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start([], { registration })
  const first = register(w, 'http://a:8000')
  await pass(w, 3)
  register(w, 'http://a:8000')
  await pass(w, 3)
  first.registered.close()
  await pass(w, 3)
  t.strictSame(idsOf(w), ['a:8000'], 'the second holds it')
  register(w, 'http://a:8000?max_batched_tokens=512')
  await pass(w, 3)
  t.match(w.fleet.workers, [{ id: 'a:8000', maxBatchedTokens: { value: 512 } }])
})

t.test('of two lives with one id the other holds the worker when the last one is gone', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start([], { registration })
  register(w, 'http://a:8000?max_batched_tokens=512')
  await pass(w, 3)
  const second = register(w, 'http://a:8000?max_batched_tokens=1024')
  await pass(w, 3)
  t.match(w.fleet.workers, [{ id: 'a:8000', maxBatchedTokens: { value: 1024 } }])
  second.kill()
  await pass(w, 8)
  t.match(w.fleet.workers, [{ id: 'a:8000', maxBatchedTokens: { value: 512 } }])
  const third = register(w, 'http://a:8000?max_batched_tokens=512')
  await pass(w, 3)
  third.kill()
  await pass(w, 20)
  t.strictSame(idsOf(w), ['a:8000'], 'the first still says that it is there')
})

t.test('a worker that the operator removed stays away until it registers with another life', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start([], { registration })
  const first = register(w, 'http://a:8000')
  await pass(w, 4)
  t.equal(await ask(w, { type: 'removeWorker', workerId: 'a:8000' }), true)
  await pass(w, 4)
  w.network.disconnect(BROKER)
  await pass(w, 2)
  w.network.reconnect(BROKER)
  await pass(w, 15)
  t.strictSame(idsOf(w), [], 'also when the broker was away')
  register(w, 'http://a:8000')
  await pass(w, 4)
  t.strictSame(idsOf(w), ['a:8000'])
  first.registered.close()
  await pass(w, 4)
  t.strictSame(idsOf(w), ['a:8000'])
})

t.test('a worker that the operator removed and added again is the operator’s', async t => {
  const w = await world(t)
  await w.engine('a')
  w.start([], { registration })
  const { registered } = register(w, 'http://a:8000')
  await pass(w, 4)
  await ask(w, { type: 'removeWorker', workerId: 'a:8000' })
  await ask(w, { type: 'addWorker', url: 'http://a:8000?max_batched_tokens=512' })
  await pass(w, 4)
  registered.close()
  await pass(w, 4)
  t.match(w.fleet.workers, [{ id: 'a:8000', maxBatchedTokens: { value: 512 } }])
})

t.test('however many register, a worker that the operator names has a place', async t => {
  const w = await world(t)
  for (const host of ['a', 'c', 'd', 'e']) await w.engine(host)
  w.start([], { registration, workerSlotsMax: 2, kvEvents: false })
  for (const host of ['a', 'c', 'd']) register(w, `http://${host}:8000?ranks=64`)
  await pass(w, 4)
  t.equal(idsOf(w).length, 2, 'as many as there are slots')
  t.ok(w.log.lines.some(({ text }) => text.includes('2 have registered, as many as there are worker slots')))
  await ask(w, { type: 'addWorker', url: 'http://e:8000' })
  for (let second = 0; second < 3; second++) {
    for (const message of w.indexers[0]!.waiting) if (message.type === 'release') message.reply('released')
    await pass(w, 1)
  }
  t.match(
    w.fleet.workers.find(({ id }) => id === 'e:8000'),
    { state: 'up', keys: [{ dpRank: 0 }] },
  )
  t.equal(w.fleet.workers.flatMap(({ keys }) => keys).length, 2)
})

t.test('what a stranger says is refused, and the log says so', async t => {
  const w = await world(t)
  w.start([], { registration })
  const { messages } = w.network.transport()
  const endpoint = 'nats://b:4222/homing.workers.default'
  for (const card of [
    'no JSON',
    '{"version":1,"url":"http://a:1?key_file=/etc/shadow"}',
    '{"version":1,"url":"http://a:1?nope=1"}',
  ])
    messages.present({ endpoint, card: Buffer.from(card) }, { present() {}, gone() {} })
  await pass(w, 3)
  t.strictSame(idsOf(w), [])
  const told = w.log.lines.filter(({ text }) => /registration cannot be used|left out/.test(text))
  t.equal(told.length, 3)
})
