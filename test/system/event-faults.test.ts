/**
 * Faults on the way of KV events, and what must hold nevertheless: the index ends up equal to the caches, and
 * no worker is credited with blocks that it does not hold.
 */

import { silentLog, systemClock } from '@homing/base'
import { encodeEventFrames, encodeKvBatch, kvRemoved, kvStored } from '@homing/protocol'
import { type Closable, type Frames, systemTransport } from '@homing/transport'
import t from 'tap'
import { assertIndexEqualsCaches, type Fleet, startEngines, startFleet, until } from './fleet.ts'
import { complete, MODEL, pin, promptOf } from './pinned-prompts.ts'

const eventsOf = async (fleet: Fleet, engine: number) =>
  (await fleet.worker(fleet.engines[engine]!.url)).worker_keys[0]!.events!

t.test('lost, repeated and late batches are asked for again, and the index is equal', async t => {
  // Few blocks, so that removes are among the lost events too.
  const engine = { blocks: 120, seed: 1 }
  const fleet = await startFleet({ engines: [engine, engine], router: ['--router-mode', 'round-robin'] })
  t.teardown(() => fleet.stop())
  const faults = [
    { drop: 1 },
    { duplicate: 3 },
    { delay: 1, delayMs: 30 },
    { drop: 4 },
    { delay: 2, delayMs: 20, duplicate: 2 },
    { drop: 1, delay: 2, delayMs: 10 },
    { drop: 2, replayLoseEvery: 3 },
    { replayLoseEvery: 0 },
  ]
  let seed = 0
  for (const events of faults) {
    await fleet.engines[0]!.faults({ events })
    for (let request = 0; request < 6; request++) {
      const answer = await fleet.send('/v1/completions', {
        body: { model: MODEL, prompt: promptOf(seed++ % 17), max_tokens: 20 },
      })
      t.equal(answer.status, 200)
    }
  }
  // A late batch may still be on its way, and a lost batch shows only when another one follows. An engine
  // whose answers contradicted its events, or that was silent, regains trust only by further answers and
  // events: so each engine gets prompts until all is well.
  let lacking = ''
  await until(
    'all that was sent is known and trusted',
    async () => {
      for (const engine of fleet.engines.keys())
        await complete(fleet, promptOf(1000 + seed++), await pin(fleet, engine))
      try {
        await fleet.caughtUp(fleet.engines, 1000)
        await fleet.trusted('exact', 1000)
        return true
      } catch (thrown) {
        lacking = (thrown as Error).message
        return undefined
      }
    },
    { seen: () => lacking },
  )
  t.ok((await assertIndexEqualsCaches(fleet, fleet.engines)) > 100, 'the index equals the caches')
  const events = await eventsOf(fleet, 0)
  t.ok(events.gaps! > 0 && events.replays! > 0 && events.duplicates! > 0, JSON.stringify(events))
  t.equal((await eventsOf(fleet, 1)).gaps, 0, 'the other engine was not disturbed')
  await fleet.drained()
})

t.test('batches that nobody can repeat cost trust, not truth', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--replay-timeout', '500ms'] })
  t.teardown(() => fleet.stop())
  const onFirst = await pin(fleet, 0)
  await complete(fleet, promptOf(1), onFirst)
  await fleet.caughtUp(fleet.engines)
  await fleet.engines[0]!.faults({ events: { drop: 1, forget: true } })
  await complete(fleet, promptOf(2), onFirst)
  await fleet.engines[0]!.faults({ events: { forget: false } })
  await complete(fleet, promptOf(3), onFirst)
  await until('the loss is noticed and settled', async () => {
    const key = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!
    return key.events!.gaps! > 0 && key.events!.state === 'live' ? true : undefined
  })
  const key = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!
  t.not(key.trust, 'exact', `${key.trust}: ${key.trust_reason}`)
  for (let seed = 1; seed <= 3; seed++) await complete(fleet, promptOf(seed), onFirst)
  t.pass('no block was credited that is not there')
})

t.test('what an engine says of its host counts after its device, and less', async t => {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  const { engines, stop } = await startEngines([{ publishesEvents: false }])
  t.teardown(stop)
  const publisher = await transport.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const port = publisher.endpoint.slice(publisher.endpoint.lastIndexOf(':') + 1)
  const otherWorkers = [`${engines[0]!.url}?events=${port}`]
  const fleet = await startFleet({ engines: [], otherWorkers, trust: 'partial' })
  t.teardown(() => fleet.stop())
  const prompt = promptOf(1)
  const hashes = Int32Array.from({ length: 20 }, (_, i) => i + 1)
  const events = [
    kvStored({ hashes, tokens: Int32Array.from(prompt.slice(0, 160)), blockSizeTokens: 16 }),
    kvStored({ hashes, tokens: new Int32Array(0), blockSizeTokens: 0, tier: 'host' }),
    kvRemoved({ hashes: hashes.slice(8) }),
  ]
  const payload = encodeKvBatch({ timestampSeconds: 1, rank: 0, events }, 'vllm-map')
  const layers = await until('the host counts', async () => {
    publisher.send(encodeEventFrames('kv-events', 0, payload))
    const answer = await fleet.send('/route', { body: { model: MODEL, token_ids: prompt } })
    const [candidate] = answer.json.candidates
    return candidate.layers.length > 1 ? candidate.layers : undefined
  })
  t.strictSame(
    layers.map(({ layer, blocks }: { layer: string; blocks: number }) => [layer, blocks]),
    [
      ['device', 4],
      ['host', 6],
    ],
  )
  t.equal(layers[1].factor, layers[0].factor * 0.75)
  t.match((await fleet.worker(engines[0]!.url)).worker_keys, [{ blocks_held: 4, other_blocks: { host: 10 } }])
})

t.test('garbage on the event socket is counted and skipped', async t => {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const engine = engines[0]!
  const { events, replayPort } = engine.description.ranks[0]!
  // Between engine and router: what the engine publishes, and garbage.
  const relay = await transport.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const source = await connected(
    relayed => transport.messages.subscribe({ endpoint: events, topic: '' }, relayed),
    frames => relay.send(frames),
  )
  t.teardown(() => source.close())
  const relayPort = relay.endpoint.slice(relay.endpoint.lastIndexOf(':') + 1)
  const fleet = await startFleet({
    engines: [],
    otherWorkers: [`${engine.url}?events=${relayPort}&replay=${replayPort}`],
  })
  t.teardown(() => fleet.stop())

  await complete(fleet, promptOf(1))
  await fleet.caughtUp([engine])
  const text = (value: string): Uint8Array => new TextEncoder().encode(value)
  const garbage: Frames[] = [
    [text('x')],
    [text(''), text('short'), text('payload')],
    [text(''), new Uint8Array(8)],
    [text(''), new Uint8Array(8), text('p'), text('one too many')],
    [new Uint8Array(100_000)],
    // In place of the next batch, which comes after it.
    encodeEventFrames('', (await engine.state()).ranks[0]!.nextSequence, text('no msgpack')),
  ]
  for (const frames of garbage) relay.send(frames)
  await complete(fleet, promptOf(2))
  await complete(fleet, promptOf(3))
  await fleet.caughtUp([engine])
  await fleet.trusted()
  await assertIndexEqualsCaches(fleet, [engine])
  t.pass('the index equals the cache')
  const { malformed_frames: malformed } = (await fleet.worker(engine.url)).worker_keys[0]!.events!
  t.equal(malformed, garbage.length)
  t.equal(Number((await complete(fleet, promptOf(2))).headers['x-homing-overlap-blocks']), 10)
})

/** A subscription that has its connection. */
async function connected(
  subscribe: (handler: {
    message(frames: Frames): void
    connected(): void
    disconnected(): void
  }) => Closable,
  message: (frames: Frames) => void,
): Promise<Closable> {
  let isConnected = false
  const closable = subscribe({
    message,
    connected: () => {
      isConnected = true
    },
    disconnected: () => {},
  })
  await until('the relay is connected', () => (isConnected ? true : undefined))
  return closable
}
