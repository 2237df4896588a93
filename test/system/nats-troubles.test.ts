/**
 * What operators meet with a real NATS server: it comes late, a subject is wrong, strangers publish, a prompt
 * is larger than its messages.
 */

import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  type KeyView,
  RouterClient,
  startEngines,
  startProcess,
  startTestRouter,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const needsServer = { skip: NO_NATS_SERVER } as const
const SUBJECT = 'homing.kv.engine'

async function brokerOf(t: Test, configuration: readonly string[] = []): Promise<NatsServer> {
  const nats = await NatsServer.start({ configuration })
  t.teardown(() => nats.stop())
  return nats
}

async function engineAt(t: Test, nats: NatsServer) {
  const { engines, stop } = await startEngines([{ nats: [nats.address], natsSubject: SUBJECT, blocks: 300 }])
  t.teardown(stop)
  return engines[0]!
}

async function routerAt(t: Test, workers: readonly string[], options: readonly string[]) {
  const router = await startTestRouter(workers, options)
  t.teardown(() => router.stop(0))
  return new RouterClient(router.url)
}

async function ask(client: RouterClient, prompt: string): Promise<void> {
  const answer = await client.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2 } })
  t.equal(answer.status, 200, answer.text)
}

async function onlyKey(client: RouterClient): Promise<KeyView> {
  return (await client.workers())[0]!.worker_keys[0]!
}

t.test(
  'a broker that comes after its router: requests are served, and all is exact then',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    await nats.down()
    const engine = await engineAt(t, nats)
    const client = await routerAt(t, [engine.url], ['--nats', nats.address])
    for (let i = 0; i < 5; i++) await ask(client, `${'before the broker '.repeat(20)} ${i}`)
    t.equal((await onlyKey(client)).trust, 'approximate')
    await nats.up()
    await client.trusted()
    await client.caughtUp([engine])
    t.ok((await assertIndexEqualsCaches(client, [engine])) > 0, 'what was cached before is known')
  },
)

t.test(
  'a subject under which no engine publishes: the worker is used, and says that no publisher is heard',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engine = await engineAt(t, nats)
    const client = await routerAt(
      t,
      [`${engine.url}?nats=homing.kv.wrong`],
      ['--event-plane', 'nats', '--nats', nats.address],
    )
    await ask(client, 'a prompt '.repeat(40))
    let seen: KeyView | undefined
    const { trust, events } = await until(
      'it says that no publisher is heard',
      async () => {
        seen = await onlyKey(client)
        return /no connection to nats:.*homing\.kv\.wrong\.0/.test(seen.trust_reason) ? seen : undefined
      },
      { seen: () => seen },
    )
    t.equal(trust, 'approximate')
    t.equal(events?.batches, 0)
  },
)

t.test(
  'strangers under the subjects of engines, routers and registrations change nothing',
  needsServer,
  async t => {
    const nats = await brokerOf(t)
    const engine = await engineAt(t, nats)
    const router = await startProcess('router', [
      ...['--host', '127.0.0.1', '--port', '0', '--nats', nats.address, '--worker', engine.url],
      ...['--router-replica-sync', '--worker-namespace', 'ours'],
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const client = new RouterClient(router.url)
    await client.trusted()
    await ask(client, 'a prompt '.repeat(40))
    await client.caughtUp([engine])
    const payloads = [
      Buffer.from('{"hello": 1}'),
      Buffer.alloc(64, 7),
      Buffer.alloc(0),
      Buffer.alloc(500_000, 1),
    ]
    const subjects = [
      ...['events', 'beats', 'ask', 'hello'].map(last => `${SUBJECT}.0.${last}`),
      'homing.workers.ours.present',
      'homing.replicas.default.present',
      'homing.replicas.default.hello',
    ]
    await nats.say(subjects.flatMap(subject => payloads.map(payload => ({ subject, payload }))))
    await until('it says so', () =>
      router.errorLines.some(line => /other version|no messages of a publisher/.test(line))
        ? true
        : undefined,
    )
    await ask(client, 'another prompt '.repeat(40))
    await client.trusted()
    await client.caughtUp([engine])
    t.ok((await assertIndexEqualsCaches(client, [engine])) > 0)
    t.equal((await client.workers()).length, 1, 'no worker has joined')
    t.match((await client.send('/replicas')).json, { sync: true, replicas: [] })
  },
)

t.test('batches of events that are larger than a message of the broker', needsServer, async t => {
  const nats = await brokerOf(t, ['max_payload: 2048'])
  const engine = await engineAt(t, nats)
  const client = await routerAt(t, [engine.url], ['--nats', nats.address])
  await client.trusted()
  for (let i = 0; i < 3; i++) await ask(client, `${i} ${'a long prompt of many blocks '.repeat(80)}`)
  await client.caughtUp([engine])
  t.ok((await assertIndexEqualsCaches(client, [engine])) > 100)
  // The replay is larger than a message, too.
  const late = await routerAt(t, [engine.url], ['--nats', nats.address])
  await late.trusted()
  await late.caughtUp([engine])
  t.ok((await assertIndexEqualsCaches(late, [engine])) > 100)
})
