/**
 * Faults in a fleet, and what must hold nevertheless: every request gets one answer, the index ends up equal to the
 * caches, no worker is credited with blocks that it does not hold, and no booking is left behind.
 */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { seededRandom, systemClock } from '@homing/clock'
import { silentLog } from '@homing/log'
import { encodeEventFrames, encodeKvBatch, kvRemoved, kvStored } from '@homing/protocol'
import { type Closable, type Frames, systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'
import {
  type Answer,
  assertIndexEqualsCaches,
  chunksOf,
  type Fleet,
  RouterClient,
  startEngines,
  startFleet,
  startProcess,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'

/** Ten full blocks and a bit; equal seeds, equal prompts. */
function promptOf(seed: number, tokens = 165): number[] {
  const random = seededRandom(seed)
  return Array.from({ length: tokens }, () => 33 + random.below(90))
}

/** One whole completion that must succeed, and whose overlap must be no more than the engine reused. */
async function complete(fleet: RouterClient, prompt: readonly number[], more: object = {}): Promise<Answer> {
  const answer = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 2, ...more },
  })
  assert.equal(answer.status, 200, answer.text)
  const cached = answer.json.usage.prompt_tokens_details?.cached_tokens ?? 0
  const predicted = Number(answer.headers['x-homing-overlap-blocks']) * 16
  assert.ok(predicted <= cached, `${predicted} tokens were credited, ${cached} were there`)
  return answer
}

const pin = (fleet: Fleet, engine: number): Promise<{ nvext: { backend_instance_id: number } }> =>
  fleet
    .worker(fleet.engines[engine]!.url)
    .then(({ instance_id }) => ({ nvext: { backend_instance_id: instance_id } }))

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
  // A batch that was late may still be on its way, and a lost one shows only when another one follows it. Nor does an engine whose answers
  // contradicted its events, or that was silent, win back its trust but by further answers and events: so each gets prompts until all is well.
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

t.test('a prompt that nobody can tokenize goes where its text went before', async t => {
  const fleet = await startFleet({ engines: [{}, {}, {}] })
  t.teardown(() => fleet.stop())
  const system = (topic: number) => ({ role: 'system', content: `Topic ${topic}. `.repeat(60) })
  const ask = async (topic: number, turns: number, more: object = {}) => {
    const users = Array.from({ length: turns }, (_, turn) => ({ role: 'user', content: `Turn ${turn}?` }))
    const messages = [system(topic), ...users]
    // What /tokenize does not know, so that no engine is asked.
    const body = { model: MODEL, messages, max_tokens: 2, reasoning_effort: 'low', ...more }
    const answer = await fleet.send('/v1/chat/completions', { body })
    assert.equal(answer.status, 200, answer.text)
    t.equal(answer.headers['x-homing-trust'], 'approximate')
    return answer
  }
  const before: (string | undefined)[] = []
  for (let topic = 1; topic <= 5; topic++) {
    const answer = await ask(topic, 1, await pin(fleet, topic % 3))
    t.equal(answer.headers['x-homing-overlap-blocks'], '0')
    before.push(answer.headers['x-homing-worker'])
  }
  for (let topic = 1; topic <= 5; topic++) {
    const answer = await ask(topic, 2)
    t.equal(answer.headers['x-homing-worker'], before[topic - 1])
    t.ok(Number(answer.headers['x-homing-overlap-blocks']) > 5)
    t.ok(answer.json.usage.prompt_tokens_details.cached_tokens > 0, 'and the engine has it')
  }
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

t.test('where the event port is closed, what was sent to an engine counts', async t => {
  const fleet = await startFleet({
    engines: [{}, {}],
    workerQuery: ({ ranks }) => `?events=${ranks[0]!.replayPort! + 1}&replay=${ranks[0]!.replayPort! + 2}`,
    trust: 'approximate',
  })
  t.teardown(() => fleet.stop())
  await sendsAgainToTheSame(t, fleet)
  const { trust_reason: reason } = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!
  t.match(reason, /guesses from sent requests count$/)
})

for (const [name, engine, router] of [
  ['an engine that does not publish', { publishesEvents: false }, []],
  ['a router that wants no events', {}, ['--no-kv-events']],
] as const) {
  t.test(`${name}: what was sent to an engine counts, and is shown`, async t => {
    const fleet = await startFleet({ engines: [engine, engine, engine], router, trust: 'approximate' })
    t.teardown(() => fleet.stop())
    await sendsAgainToTheSame(t, fleet)
    const metrics = (await fleet.send('/metrics')).text
    t.match(metrics, /^homing_index_guessed_blocks\{shard="\d"\} [1-9]/m)
  })
}

/** Prompts go where they went before, with an overlap that the engines confirm. */
async function sendsAgainToTheSame(t: Test, fleet: Fleet): Promise<void> {
  const prompts = [1, 2, 3, 4, 5, 6].map(seed => promptOf(seed))
  const before: (string | undefined)[] = []
  // Ties are broken at random: that the prompts lie on every engine is not left to chance.
  for (const [i, prompt] of prompts.entries()) {
    const answer = await complete(fleet, prompt, await pin(fleet, i % fleet.engines.length))
    before.push(answer.headers['x-homing-worker'])
  }
  t.equal(new Set(before).size, fleet.engines.length)
  for (const [i, prompt] of prompts.entries()) {
    const answer = await complete(fleet, prompt)
    t.equal(answer.headers['x-homing-worker'], before[i])
    t.equal(answer.headers['x-homing-overlap-blocks'], '10')
    t.equal(answer.headers['x-homing-trust'], 'approximate')
  }
}

t.test('before the first byte a request is placed again, after it never', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--log-level', 'silent'] })
  t.teardown(() => fleet.stop())
  const [first, second] = fleet.engines
  // Overlap draws the request to this engine; a pin would forbid to go elsewhere.
  const shape = (engine: number, more: object) => ({
    model: MODEL,
    prompt: promptOf(engine),
    max_tokens: 30,
    ...more,
  })
  await complete(fleet, promptOf(0), await pin(fleet, 0))
  await fleet.caughtUp(fleet.engines)

  await first!.faults({ refuse: 100 })
  const refused = await fleet.send('/v1/completions', { body: shape(0, {}) })
  t.equal(refused.status, 200, 'another worker takes what one refuses')
  t.equal(fleet.engineOf(refused.headers['x-homing-worker']).url, second!.url)
  await second!.faults({ refuse: 100 })
  const nobody = await fleet.send('/v1/completions', { body: shape(0, {}) })
  t.equal(nobody.status, 503, 'the refusal of the last worker is passed on')
  for (const engine of fleet.engines) await engine.faults({ refuse: 0 })

  await backUp(fleet)
  await first!.faults({ die: { tokens: 0, requests: 1 } })
  const once = await fleet.send('/v1/completions', { body: shape(0, {}) })
  t.equal(once.status, 200, 'a connection that broke is tried again')

  await first!.faults({ die: { tokens: 0, requests: 2 } })
  await second!.faults({ die: { tokens: 0, requests: 0 } })
  const twice = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
  t.equal(twice.status, 200)
  t.equal(chunksOf(twice.text).length, 30, 'and then elsewhere')

  await backUp(fleet)
  await first!.faults({ die: { tokens: 3, requests: 1 } })
  await second!.faults({ die: { tokens: 3, requests: 1 } })
  const whole = await fleet.send('/v1/completions', { body: shape(0, {}) })
  t.equal(whole.status, 200, 'of a whole answer nothing has come before all of it has')
  for (const engine of fleet.engines) await engine.faults({ die: { tokens: 0, requests: 0 } })

  await backUp(fleet)
  for (const engine of fleet.engines) await engine.faults({ die: { tokens: 3, requests: 1 } })
  const stream = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
  for (const engine of fleet.engines) await engine.faults({ die: { tokens: 0, requests: 0 } })
  const events = stream.text.split('\n\n').filter(Boolean)
  t.equal(stream.status, 200)
  t.equal(events.length, 4, 'three tokens')
  t.match(JSON.parse(events[3]!.slice('data: '.length)), {
    error: { code: 'upstream_failed', message: /cannot/ },
  })

  await backUp(fleet)
  for (const engine of fleet.engines) await engine.faults({ error: { tokens: 3, requests: 1 } })
  const own = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
  for (const engine of fleet.engines) await engine.faults({ error: { tokens: 0, requests: 0 } })
  t.match(own.text, /"The engine failed on demand"/, "an engine's own error event comes through")
  await fleet.drained()
  const receipt = await fleet.send(`/decisions/${own.headers['x-homing-decision']}`)
  t.equal(receipt.json.delivered.outcome, 'error')
})

t.test('an answer of which only the head has come is placed again', async t => {
  const broken = await headOnlyWorker()
  t.teardown(() => broken.close())
  const fleet = await startFleet({
    engines: [{}],
    otherWorkers: [`${broken.url}?block_size=16`],
    router: ['--router-mode', 'round-robin', '--log-level', 'silent'],
    trust: undefined,
  })
  t.teardown(() => fleet.stop())
  for (const stream of [true, false, true, false]) {
    await backUp(fleet)
    const answer = await fleet.send('/v1/completions', {
      body: { model: MODEL, prompt: promptOf(1), max_tokens: 5, stream },
    })
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.headers['x-homing-worker'], `${new URL(fleet.engines[0]!.url).host}/0`)
    if (stream) t.equal(chunksOf(answer.text).length, 5)
    else t.equal(answer.json.usage.completion_tokens, 5)
  }
  t.ok(broken.heads() >= 2, `${broken.heads()} heads were sent by the worker that then broke the connection`)
  await fleet.drained()
})

t.test('a client that leaves a hung engine frees its booking, and silence has an end', async t => {
  const fleet = await startFleet({
    engines: [{}],
    router: ['--silence-timeout', '2s', '--log-level', 'silent', '--retries', '0'],
  })
  t.teardown(() => fleet.stop())
  await fleet.engines[0]!.faults({ hang: 'generation' })
  const controller = new AbortController()
  const call = { body: { model: MODEL, prompt: promptOf(1), max_tokens: 5 }, signal: controller.signal }
  const asked = fleet.send('/v1/completions', call).catch((error: Error) => error)
  await until('it is booked', async () =>
    (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!.load.requests === 1 ? true : undefined,
  )
  controller.abort()
  t.ok((await asked) instanceof Error)
  await fleet.drained(1500)
  t.pass('the booking is freed before the silence would have ended it')

  const silent = await fleet.send('/v1/completions', { body: call.body })
  t.equal(silent.status, 504)
  t.equal(silent.json.error.code, 'timeout')
  t.equal(silent.headers['x-should-retry'], 'false')
  await fleet.drained()
  await fleet.engines[0]!.faults({ hang: 'off' })
  await backUp(fleet)
  await complete(fleet, promptOf(1))
})

t.test(
  'an event thread that dies is replaced, its part of the index rebuilt, and requests go on',
  async t => {
    const fleet = await startFleet({
      engines: [{}, {}, {}, {}],
      router: ['--router-event-threads', '2', '--log-level', 'silent'],
    })
    t.teardown(() => fleet.stop())
    for (let seed = 0; seed < 12; seed++) await complete(fleet, promptOf(seed), await pin(fleet, seed % 4))
    await fleet.caughtUp(fleet.engines)
    const shards = new Set(
      (await fleet.workers()).flatMap(worker => worker.worker_keys.map(({ events }) => events!.shard)),
    )
    t.equal(shards.size, 2)

    let isDone = false
    let completed = 0
    const load = Promise.all(
      [0, 1, 2].map(async client => {
        for (let seed = client; !isDone; seed += 3) {
          await complete(fleet, promptOf(seed % 24))
          completed++
        }
      }),
    )
    load.catch(() => {})
    t.teardown(() => {
      isDone = true
    })
    const progress = async () => {
      const wanted = completed + 20
      await Promise.race([load, until('requests go on', () => (completed >= wanted ? true : undefined))])
    }
    await progress()
    for (const thread of ['events-0', 'events-1', 'events-0']) {
      const killedAt = performance.now()
      await fleet.router.system.killThread(thread)
      await progress()
      await fleet.trusted()
      t.comment(`${thread}: trusted again after ${(performance.now() - killedAt).toFixed(0)} ms`)
    }
    await progress()
    isDone = true
    await load
    await fleet.caughtUp(fleet.engines)
    await fleet.trusted()
    await assertIndexEqualsCaches(fleet, fleet.engines)
    t.pass('the index equals the caches')
    t.ok(Number((await complete(fleet, promptOf(3))).headers['x-homing-overlap-blocks']) > 0)
    await fleet.drained()
  },
)

t.test(
  'an engine that restarts within a probe interval loses its blocks and its sequence, and is followed',
  async t => {
    const fleet = await startFleet({ engines: [{}, {}], router: ['--log-level', 'silent'] })
    t.teardown(() => fleet.stop())
    for (let round = 0; round < 3; round++) {
      for (let seed = 0; seed < 4; seed++)
        await complete(fleet, promptOf(seed + round), await pin(fleet, seed % 2))
      await fleet.caughtUp(fleet.engines)
      await fleet.engines[0]!.restart()
      // The first words of its new life may be the first that is heard of its end; until then it may be credited.
      await until('the new life is known', async () => {
        await fleet.send('/v1/completions', {
          body: { model: MODEL, prompt: promptOf(100 + round), max_tokens: 1, ...(await pin(fleet, 0)) },
        })
        const held = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!.blocks_held
        return held === (await fleet.engines[0]!.state()).ranks[0]!.cachedBlocks ? true : undefined
      })
      await fleet.caughtUp(fleet.engines)
      await fleet.trusted()
      await assertIndexEqualsCaches(fleet, fleet.engines)
    }
    t.pass('the index equals the caches after each restart')
    await fleet.drained()
  },
)

t.test('SIGTERM lets open streams end, takes nothing new, and exits with 0', async t => {
  const { engines, stop } = await startEngines([{ speed: 1 }])
  t.teardown(stop)
  const child = await startProcess('router', [
    ...[
      '--port',
      '0',
      '--host',
      '127.0.0.1',
      '--worker',
      engines[0]!.url,
      '--shutdown-timeout',
      '20s',
      '--detach',
    ],
  ])
  t.teardown(() => child.kill('SIGKILL'))
  const router = new RouterClient(child.url)
  const stream = await router.open('/v1/completions', {
    body: { model: MODEL, prompt: promptOf(1), max_tokens: 150, stream: true },
  })
  const parts: Buffer[] = []
  stream.body.on('data', (bytes: Buffer) => parts.push(bytes))
  const ended = once(stream.body, 'end')
  await once(stream.body, 'data')
  child.kill('SIGTERM')
  const refusal = await until('new requests are refused', async () => {
    try {
      const answer = await router.send('/v1/completions', {
        body: { model: MODEL, prompt: promptOf(2), max_tokens: 1 },
      })
      if (answer.status === 200) return undefined
      assert.equal(answer.status, 503)
      assert.equal(answer.json.error.code, 'shutting_down')
      return 'with 503'
    } catch (thrown) {
      if (thrown instanceof assert.AssertionError) throw thrown
      return `at the door: ${(thrown as Error).message}`
    }
  })
  t.comment(`refused ${refusal}`)
  t.notOk(Buffer.concat(parts).toString().includes('[DONE]'), 'while the stream is still open')
  await ended
  t.equal(chunksOf(Buffer.concat(parts).toString()).length, 150, 'the stream has ended as it should')
  t.equal(await child.ended, 0)
  const lines = child.errorLines.map(line => JSON.parse(line) as LogLine)
  // Those who came too late and were told so.
  const others = lines.filter(({ error }) => error?.code !== 'HOMING_GATEWAY_SHUTTING_DOWN')
  t.strictSame(
    others.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
  t.equal(lines.at(-1)!.cutRequests, 0)
})

interface LogLine {
  readonly level: string
  readonly cutRequests?: number
  readonly error?: { readonly code: string }
}

/** A worker that sends heads and nothing behind them. */
async function headOnlyWorker(): Promise<{ readonly url: string; heads(): number; close(): void }> {
  let heads = 0
  const server = createServer((request, response) => {
    if (request.url === '/v1/models') return void response.end(JSON.stringify({ data: [{ id: MODEL }] }))
    if (request.method !== 'POST' || request.url === '/tokenize') return void response.writeHead(404).end()
    request.resume().on('end', () => {
      heads++
      const type = heads % 2 === 0 ? 'application/json' : 'text/event-stream'
      response.writeHead(200, { 'content-type': type }).flushHeaders()
      // The head leaves first.
      setImmediate(() => setImmediate(() => response.destroy()))
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heads: () => heads,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** Resolves when every worker is up again: a failure has made the router suspect it. */
async function backUp(fleet: Fleet): Promise<void> {
  let seen: unknown
  await until(
    'every worker is up',
    async () => {
      const workers = await fleet.workers()
      seen = workers.map(({ id, state, state_reason }) => ({ id, state, state_reason }))
      return workers.every(({ state }) => state === 'up') ? true : undefined
    },
    { seen: () => seen },
  )
}

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
