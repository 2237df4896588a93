/**
 * Workers of token ids in Python, in processes of their own, over each request plane: what a router and they
 * do together is what it does with those in TypeScript, also when they are killed.
 */

import { EtcdServer, NO_ETCD_SERVER, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { chunksOf, RouterClient, startTestRouter, until } from '../system/fleet.ts'
import { MESSAGES, TEXT, tokenWorkerCases } from '../system/token-cases.ts'
import {
  broker,
  END_ID,
  idsOf,
  MODEL,
  over,
  PLANES,
  type Plane,
  routerOver,
  type Script,
  type WorkerPlace,
} from '../system/token-world.ts'
import { found, packagedPython, plainPython, skipOf, workerPython } from './interpreter.ts'
import { pythonWorkers } from './scripted-worker.ts'

t.setTimeout(600_000)

/** Each plane has the packages that it needs, and no more. */
const pythonOf = (plane: Plane) =>
  plane === 'http' ? plainPython() : plane === 'tcp' ? packagedPython() : workerPython()
const skip = (plane: Plane) => skipOf(pythonOf(plane))
const start = pythonWorkers(plane => found(pythonOf(plane)))
/** With what a broker needs, whichever way requests come. */
const registered = pythonWorkers(() =>
  found(typeof workerPython() === 'string' ? packagedPython() : workerPython()),
)

tokenWorkerCases(t, start, skip)

t.test('requests of a router share one connection to a worker in Python', { skip: skip('tcp') }, async t => {
  const ids = Array.from({ length: 300 }, (_, i) => 5 + (i % 400))
  const scripts: readonly Script[] = [{ ids }, { ids, holdsAt: 150 }]
  const running = await start(t, scripts, over('tcp', undefined))
  const client = await routerOver(t, 'tcp', [running], undefined)
  const ask = (seed: number) =>
    client.send('/v1/completions', {
      body: {
        ...{ model: MODEL, prompt: [1, 2, 3], seed, stream: true, return_token_ids: true },
        ...{ max_tokens: 300, ignore_eos: true },
      },
    })
  const tokensOf = (text: string) =>
    chunksOf(text).flatMap(({ choices: [choice] }) => choice?.token_ids ?? [])
  const held = Array.from({ length: 8 }, () => ask(1))
  await until('eight stop in the middle', () => (running.worker.held === 8 ? true : undefined))
  const others = await Promise.all(Array.from({ length: 32 }, () => ask(0)))
  for (const { text } of others) t.strictSame(tokensOf(text), ids)
  // A worker counts a request until a moment after the end of its answer.
  await until('the held ones alone are open', async () => (await running.openRequests()) === 8 || undefined)
  const figure = async (name: string) =>
    Number(new RegExp(`^homing_tcp_${name} (\\d+)$`, 'm').exec((await client.send('/metrics')).text)?.[1])
  t.equal(await figure('open_connections'), 1)
  running.worker.go()
  for (const { text } of await Promise.all(held)) t.strictSame(tokensOf(text), ids)
})

t.test(
  'a client that reads slowly stops a worker in Python, and holds no other request',
  { skip: skip('tcp') },
  async t => {
    const ids = Array.from({ length: 2000 }, (_, i) => 5 + (i % 400))
    const scripts = [{ ids, pieceTokens: 2000, isEndless: true }, { ids: [5, 6] }]
    const running = await start(t, scripts, { ...over('tcp', undefined), contextLength: 2 ** 30 })
    const client = await routerOver(t, 'tcp', [running], undefined, ['--request-window-bytes', '65536'])
    const body = { model: MODEL, prompt: [1], stream: true, max_tokens: 2 ** 29, ignore_eos: true }
    const slow = await client.open('/v1/completions', { body })
    slow.body.on('error', () => {})
    const seen: number[] = []
    const given = await until('it stands still', async () => {
      seen.push(await running.worker.given())
      const [first, ...rest] = seen.slice(-5)
      return first! > 0 && rest.length === 4 && rest.every(count => count === first) ? first : undefined
    })
    // Some 10 kB each: what is there lies in sockets and in the window.
    t.ok(given! < 5000, `${given} pieces were generated`)
    const other = await client.send('/v1/completions', { body: { model: MODEL, prompt: [1], seed: 1 } })
    t.equal(other.status, 200)
    await until('the slow one alone is open', async () => (await running.openRequests()) === 1 || undefined)
    slow.body.destroy()
    await until('its generator has ended', () => (running.worker.ended === 2 ? true : undefined))
  },
)

for (const plane of PLANES)
  t.test(
    `requests over ${plane} and KV events of the same program in Python are ways of their own`,
    { skip: skipOf(packagedPython()) || skip(plane) || (plane === 'nats' && NO_NATS_SERVER) },
    async t => {
      const nats = plane === 'nats' ? await broker(t) : undefined
      const prompt = Array.from({ length: 32 }, (_, i) => i + 1)
      const running = await registered(t, [{ ids: [5, END_ID] }], over(plane, nats), prompt)
      const client = await routerOver(t, plane, [running], nats, ['--event-plane', 'zmq'])
      const body = { model: MODEL, prompt: [...prompt, 7] }
      let seen: unknown
      await until(
        'its blocks are known exactly',
        async () => {
          const { json } = await client.send('/route', { body: { model: MODEL, token_ids: body.prompt } })
          seen = json
          return json.overlap_blocks === 2 && json.trust === 'exact' ? true : undefined
        },
        { seen: () => seen },
      )
      const answer = await client.send('/v1/completions', { body })
      t.equal(answer.status, 200, answer.text)
      t.equal(answer.headers['x-homing-overlap-blocks'], '2')
    },
  )

t.test(
  'a worker in Python registers at a broker, whichever way requests come',
  { skip: skip('nats') || NO_NATS_SERVER },
  async t => {
    const nats = await broker(t)
    for (const plane of ['http', 'tcp'] as const) {
      const options = { requestPlane: plane, nats: [nats.address], namespace: plane }
      await comesAndGoes(t, options, ['--nats', nats.address])
    }
  },
)

t.test(
  'a worker in Python registers at an etcd, which may be away for a while',
  { skip: skip('tcp') || NO_ETCD_SERVER },
  async t => {
    const etcd = await EtcdServer.start()
    t.teardown(() => etcd.stop())
    const options = { requestPlane: 'tcp' as const, etcd: [etcd.url], namespace: 'fleet' }
    const argv = ['--discovery-backend', 'etcd', '--etcd', etcd.url]
    const ask = async (path: string, body: object) =>
      (await fetch(`${etcd.url}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) })).json()
    await comesAndGoes(t, options, argv, async () => {
      await etcd.down()
      await etcd.up()
      const lease = await until('it is registered', async () => {
        const { leases } = (await ask('lease/leases', {})) as { leases?: readonly { ID: string }[] }
        return leases?.at(0)
      })
      // Its key goes with it.
      await ask('lease/revoke', lease)
    })
  },
)

/** It is found by its registration alone, answers, and is forgotten when it ends. */
async function comesAndGoes(
  t: Test,
  options: WorkerPlace & { readonly requestPlane: Plane; readonly namespace: string },
  argv: readonly string[],
  meanwhile: () => Promise<void> = async () => {},
): Promise<void> {
  const ids = [...(await idsOf(TEXT)), END_ID]
  const running = await registered(t, [{ ids }], options)
  await meanwhile()
  const plane = ['--worker-namespace', options.namespace, '--request-plane', options.requestPlane]
  const router = await startTestRouter([], [...argv, ...plane])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await until('it is up', async () =>
    (await client.workers()).some(({ state }) => state === 'up') ? true : undefined,
  )
  const answer = await client.send('/v1/chat/completions', { body: { model: MODEL, messages: MESSAGES } })
  t.equal(answer.json.choices[0].message.content, TEXT)
  await running.close(0)
  await until('it has left', async () => ((await client.workers()).length === 0 ? true : undefined))
}

t.test(
  'a broker that ends and comes back, and what strangers say there, a worker in Python outlives',
  { skip: skip('nats') || NO_NATS_SERVER },
  async t => {
    const nats = await broker(t)
    const ids = [...(await idsOf(TEXT)), END_ID]
    const running = await start(t, [{ ids, holdsAt: 5 }, { ids }], over('nats', nats))
    const client = await routerOver(t, 'nats', [running], nats, ['--migration-limit', '0'])
    const ask = (seed: number) =>
      client.send('/v1/chat/completions', { body: { model: MODEL, messages: MESSAGES, seed, stream: true } })
    const subject = new URL(running.url).searchParams.get('requests')!
    const bytes = (...numbers: number[]) => Uint8Array.from(numbers)
    const head = [1, ...Array.from({ length: 8 }, () => 7), 0, 0, 0, 0]
    await nats.say(
      [
        bytes(),
        bytes(9),
        bytes(...head),
        bytes(...head, 0, 255, 255, 255, 255),
        bytes(...head, 0, 2, 0, 0, 0, 0x7b, 0x7d),
        bytes(...head, 1, 0, 0, 0, 0),
        bytes(...head, 99, 0, 0, 0, 0),
      ].map(payload => ({ subject, payload })),
    )
    const cut = ask(0)
    await until('it is under way', () => (running.worker.held === 1 ? true : undefined))
    await nats.down()
    t.match((await cut).text, /"error"/)
    await until('its generator has ended', () => (running.worker.ended === 1 ? true : undefined))
    t.equal(running.worker.cancelled, 1)
    await nats.up()
    const after = await until('it is back', async () => {
      const answer = await ask(1)
      return answer.status === 200 ? answer : undefined
    })
    t.match(after.text, /\[DONE\]/)
    await until('nothing is open', async () => (await running.openRequests()) === 0 || undefined)
  },
)
