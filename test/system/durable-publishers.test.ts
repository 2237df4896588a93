/**
 * Publishers beside an engine that write into a stream at a real NATS server: `homing sidecar` and
 * `createPublisher`. What a router knows that starts alone, after their buffers have gone.
 */

import { createPublisher, type KvPublisher } from '@homing/publisher'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { isExact, work } from './durable-fleet.ts'
import { RouterClient, startEngines, startProcess, startTestRouter, until } from './fleet.ts'

const needsServer = { skip: NO_NATS_SERVER } as const
const STREAM = 'homing-kv-default'
const DURABLE = '--router-durable-kv-events'
const BLOCK = 16
/** Room for a few blocks only: snapshots then say that they are not all. */
const FEW_BYTES = 4096

async function brokerOf(t: Test): Promise<NatsServer> {
  const nats = await NatsServer.start({ streams: [] })
  t.teardown(() => nats.stop())
  return nats
}

async function routerAt(t: Test, nats: NatsServer, worker: string, options: readonly string[] = [DURABLE]) {
  const router = await startTestRouter(
    [worker],
    ['--event-plane', 'nats', '--nats', nats.address, ...options],
  )
  let isStopped = false
  const stop = async (): Promise<void> => {
    if (!isStopped) await router.stop(0)
    isStopped = true
  }
  t.teardown(stop)
  return { client: new RouterClient(router.url), stop }
}

async function keyOf(client: RouterClient) {
  const [worker] = await client.workers()
  return worker!.worker_keys[0]!
}

async function follows(client: RouterClient, path: 'stream' | 'publisher'): Promise<void> {
  let seen: unknown
  const isSo = async (): Promise<true | undefined> => {
    seen = await keyOf(client)
    return ((await keyOf(client)).events as { readonly path?: string }).path === path ? true : undefined
  }
  await until(`the ${path} is followed`, isSo, { seen: () => seen })
}

/** Drops the first messages of the stream, as if they were older than the retention. */
async function dropFirst(nats: NatsServer, count: number): Promise<void> {
  const { streams, close } = await nats.manage()
  try {
    const { state } = await streams.streams.info(STREAM)
    await streams.streams.purge(STREAM, { seq: state.first_seq + count })
  } finally {
    close()
  }
}

/** An engine that repeats nothing, and a sidecar that writes what it hears into the stream. */
async function sidecarAt(t: Test, nats: NatsServer, options: readonly string[] = []) {
  const { engines, stop } = await startEngines([{ port: 0, blocks: 300, replayBatchesMax: 2 }])
  t.teardown(stop)
  const { url, description } = engines[0]!
  const sidecar = await startProcess('sidecar', [
    ...['--events', description.ranks[0]!.events, '--event-plane', 'nats', '--nats', nats.address],
    ...['--worker', new URL(url).host, DURABLE, '--buffer-batches', '2', ...options],
  ])
  t.teardown(() => sidecar.kill('SIGKILL'))
  await until('it hears the engine', async () =>
    sidecar.errorLines.some(line => line.includes('connected to the engine')) ? true : undefined,
  )
  return { engines, url, sidecar }
}

/** What the stream has says nothing of the cache any more. */
async function forgets(client: RouterClient): Promise<void> {
  let seen: unknown
  const isSo = async (): Promise<true | undefined> => {
    const { trust, trust_reason } = await keyOf(client)
    seen = [trust, trust_reason]
    return trust === 'none' || trust === 'approximate' ? true : undefined
  }
  await until('what its publisher told is forgotten', isSo, { seen: () => seen })
}

async function isPartial(t: Test, client: RouterClient): Promise<void> {
  await client.trusted('partial')
  t.match(
    (await keyOf(client)).trust_reason,
    /the publisher beside the engine has not seen its whole history/,
  )
}

t.test('a third router alone, behind a sidecar with a stream, is exact', needsServer, async t => {
  const nats = await brokerOf(t)
  const { engines, url, sidecar } = await sidecarAt(t, nats)
  const routers = [await routerAt(t, nats, url), await routerAt(t, nats, url)]
  await work(routers[0]!.client, 15)
  await work(routers[1]!.client, 15)
  for (const { client } of routers) {
    await isExact(t, client, engines)
    await follows(client, 'stream')
  }
  for (const { stop } of routers) await stop()

  const third = await routerAt(t, nats, url)
  await isExact(t, third.client, engines)
  await follows(third.client, 'stream')
  await work(third.client, 10)
  await isExact(t, third.client, engines)

  await dropFirst(nats, 3)
  await isExact(t, (await routerAt(t, nats, url)).client, engines)

  sidecar.kill('SIGKILL')
  await forgets(third.client)
})

t.test('behind a sidecar that has no room for all blocks nothing is called exact', needsServer, async t => {
  const nats = await brokerOf(t)
  const { url } = await sidecarAt(t, nats, ['--blocks-bytes', String(FEW_BYTES)])
  const first = await routerAt(t, nats, url)
  await work(first.client, 20)
  await follows(first.client, 'stream')
  await isPartial(t, first.client)
  await first.stop()
  const third = await routerAt(t, nats, url)
  await isPartial(t, third.client)
  await follows(third.client, 'stream')
})

for (const [memory, heldBytesMax] of [
  ['has all blocks in memory', 2 ** 20],
  ['has no room for all blocks', FEW_BYTES],
] as const)
  t.test(
    `a third router alone, behind createPublisher with a stream that ${memory}`,
    needsServer,
    async t => {
      const nats = await brokerOf(t)
      const { engines, stop } = await startEngines([{ publishesEvents: false, blockSizeTokens: BLOCK }])
      t.teardown(stop)
      const subject = 'homing.kv.program'
      const url = `${engines[0]!.url}?nats=${subject}&block_size=${BLOCK}`
      const endpoint = nats.endpoint(`${subject}.0`)
      const publisher = await createPublisher({
        eventsEndpoint: endpoint,
        replayEndpoint: endpoint,
        blockSizeTokens: BLOCK,
        stream: { namespace: 'default', retentionMs: 3_600_000, bytesMax: 2 ** 24 },
        bufferBatchesMax: 2,
        heldBytesMax,
      })
      t.teardown(() => publisher.close())
      const first = await routerAt(t, nats, url)
      for (let chain = 0; chain < 20; chain++) publishChain(publisher, chain)
      const known = await settled(first.client, publisher)
      t.equal(known.flat().length, 100)
      await follows(first.client, 'stream')
      await first.stop()

      const third = await routerAt(t, nats, url)
      if (heldBytesMax === FEW_BYTES) {
        await isPartial(t, third.client)
        await follows(third.client, 'stream')
        return
      }
      t.strictSame(await settled(third.client, publisher), known, 'it knows what the first one knew')
      await follows(third.client, 'stream')
      publishChain(publisher, 20)
      const now = await settled(third.client, publisher)
      t.equal(now.flat().length, 105)

      await dropFirst(nats, 3)
      t.strictSame(await settled((await routerAt(t, nats, url)).client, publisher), now)
      await publisher.close()
      await forgets(third.client)
    },
  )

/** Ten blocks in a row in a batch of their own; the last five go in another. */
function publishChain(publisher: KvPublisher, chain: number): void {
  const blocks = Array.from({ length: 10 }, (_, i) => ({
    hash: BigInt(1 + chain * 10 + i),
    tokens: Array.from({ length: BLOCK }, (_, at) => chain * 1000 + i * BLOCK + at),
  }))
  publisher.stored(undefined, blocks)
  publisher.flush()
  publisher.removed(blocks.slice(5).map(({ hash }) => hash))
  publisher.flush()
}

/** What is indexed when the last batch has come, and all of it is exact. */
async function settled(client: RouterClient, publisher: KvPublisher) {
  await client.trusted()
  let seen: unknown
  const hasAll = async (): Promise<true | undefined> => {
    const { events } = await keyOf(client)
    seen = events
    return events?.last_sequence === publisher.nextSequence - 1 ? true : undefined
  }
  await until('the last batch has come', hasAll, { seen: () => seen })
  return [...(await client.indexedBlocks()).values()]
}
