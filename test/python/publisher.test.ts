/**
 * The publisher in Python beside that of @homing/publisher, on real sockets: one history gives the same
 * batches, the same replays and the same snapshots.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { systemClock, wideJson } from '@homing/base'
import { decodeKvBatch, KV_CLEARED, type KvEvent, POOL_STATES, parseEventFrames } from '@homing/protocol'
import { createPublisher, type KvPublisher } from '@homing/publisher'
import { systemTransport } from '@homing/transport'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { asked, replay, snapshot } from '../../packages/publisher/test/asking.ts'
import { BLOCK_SIZE, history, keyOf, storedChain, tokensOf } from '../../packages/publisher/test/histories.ts'
import { NaiveCache } from '../../packages/publisher/test/naive-cache.ts'
import { CLIENT, found, packagedPython, pythonEnvironment, skipOf } from './interpreter.ts'

const python = packagedPython()
const skip = skipOf(python)
const ANY = 'tcp://127.0.0.1:*'
const { messages, close } = systemTransport({ clock: systemClock, log: { warn() {} } })
t.teardown(close)
t.setTimeout(300_000)

/** A call of either publisher: an event of one of them. */
type Call = readonly [name: string, args: readonly unknown[], options?: object]

interface Published {
  readonly sequences: number[]
  readonly topics: Set<string>
  readonly payloads: Uint8Array[]
}

/**
 * What arrives from a publisher; `clear` makes batches until the first arrives, and gives the number of the
 * next. All that it made have arrived.
 */
async function subscribed(endpoint: string, clear: () => Promise<number>): Promise<Published> {
  const published: Published = { sequences: [], topics: new Set(), payloads: [] }
  messages.subscribe(
    { endpoint, topic: '' },
    {
      message(frames) {
        const { sequence, topic, payload } = parseEventFrames(frames)
        published.sequences.push(sequence)
        published.topics.add(topic)
        published.payloads.push(payload)
      },
      connected() {},
      disconnected() {},
    },
  )
  let next = 0
  while (published.sequences.length === 0) {
    next = await clear()
    await new Promise(resolve => setImmediate(resolve))
  }
  await arrived(published, next)
  return published
}

async function arrived(published: Published, next: number): Promise<void> {
  while (published.sequences.at(-1) !== next - 1) await new Promise(resolve => setImmediate(resolve))
}

class PythonPublisher {
  readonly endpoint: string
  readonly replayEndpoint: string
  readonly #call: (line: string) => Promise<string>

  private constructor(endpoints: readonly string[], call: (line: string) => Promise<string>) {
    this.endpoint = endpoints[0]!
    this.replayEndpoint = endpoints[1]!
    this.#call = call
  }

  static async start(t: Test, options: object = {}): Promise<PythonPublisher> {
    const given = { kv_block_size: BLOCK_SIZE, zmq_endpoint: ANY, replay_endpoint: ANY, ...options }
    const program = join(import.meta.dirname, 'publish.py')
    const child = spawn(found(python).path, [program, JSON.stringify(given)], {
      cwd: CLIENT,
      env: pythonEnvironment(),
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    t.teardown(async () => {
      // The end of its input ends it.
      child.stdin.end()
      if (child.exitCode === null) await once(child, 'close')
      if (child.exitCode !== 0) throw new Error(`publish.py ended with ${child.exitCode}`)
    })
    const waiting: ((line: string) => void)[] = []
    const lines = createInterface(child.stdout)
    const next = () => new Promise<string>(resolve => waiting.push(resolve))
    const first = next()
    lines.on('line', line => waiting.shift()!(line))
    const call = (line: string): Promise<string> => {
      child.stdin.write(`${line}\n`)
      return next()
    }
    return new PythonPublisher(JSON.parse(await first) as string[], call)
  }

  /** The number of the next batch, or the refusal. */
  // biome-ignore lint/suspicious/noExplicitAny: numbers, figures and refusals
  async call(...[name, args, options = {}]: Call): Promise<any> {
    return JSON.parse(await this.#call(wideJson([name, args, options])))
  }
}

/** Those of most tests; transitions have a test of their own. */
type CommonEvent = Exclude<KvEvent, { readonly kind: 'transition' }>

const isCommon = (event: KvEvent): event is CommonEvent => event.kind !== 'transition'

/** The event, as the call in Python that publishes it. */
function callOf(event: CommonEvent): Call {
  if (event.kind === 'cleared') return ['publish_all_cleared', []]
  const { hashes: words, tier } = event
  const keys = [...new BigUint64Array(new Int32Array(words).buffer)]
  if (event.kind === 'removed') return ['publish_removed', [null, keys], { tier }]
  const { parent, tokens, loraName, cacheSalt } = event
  const before = parent === undefined ? null : new BigUint64Array(new Int32Array(parent).buffer)[0]
  const named = { tier, lora_name: loraName ?? null, cache_salt: cacheSalt ?? null }
  return ['publish_stored', [null, [...tokens], keys.map(() => BLOCK_SIZE), keys, 0, before], named]
}

/** The event, by the publisher of TypeScript, as a batch of its own. */
function publish(publisher: KvPublisher, event: CommonEvent): void {
  if (event.kind === 'cleared') publisher.cleared()
  else {
    const tier = event.tier as 'device'
    const keys = [...new BigUint64Array(new Int32Array(event.hashes).buffer)]
    if (event.kind === 'removed') publisher.removed(keys, { tier })
    else {
      const { parent, tokens, loraName, cacheSalt } = event
      publisher.stored(
        parent === undefined ? undefined : new BigUint64Array(new Int32Array(parent).buffer)[0]!,
        keys.map((hash, i) => ({ hash, tokens: tokens.slice(i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE) })),
        { tier, ...(loraName && { loraName }), ...(cacheSalt && { cacheSalt }) },
      )
    }
  }
  publisher.flush()
}

const eventsOf = (payloads: readonly Uint8Array[]): readonly KvEvent[] =>
  payloads.flatMap(payload => {
    const { rank, skipped, events } = decodeKvBatch(payload)
    t.strictSame([rank, skipped], [3, { unknownTag: 0, malformed: 0 }])
    return events
  })

t.test('any history gives the batches, replays and snapshots of @homing/publisher', { skip }, async t => {
  const theirs = await PythonPublisher.start(t, { dp_rank: 3, topic: 'kv-events' })
  const ours = await createPublisher({
    eventsEndpoint: 'tcp://127.0.0.1:0',
    replayEndpoint: 'tcp://127.0.0.1:0',
    blockSizeTokens: BLOCK_SIZE,
    dpRank: 3,
    topic: 'kv-events',
  })
  t.teardown(() => ours.close())
  const python = await subscribed(theirs.endpoint, () => theirs.call('publish_all_cleared', []))
  const typescript = await subscribed(ours.endpoint, async () => {
    publish(ours, KV_CLEARED)
    return ours.nextSequence
  })

  const property = fc.asyncProperty(history, fc.nat({ max: 5 }), async (events, adapter) => {
    const all = [KV_CLEARED, ...events.filter(isCommon).map(event => labelled(event, adapter))]
    const from = { python: python.payloads.length, typescript: typescript.payloads.length }
    let next = 0
    for (const event of all) {
      next = (await theirs.call(...callOf(event))) as number
      publish(ours, event)
    }
    await arrived(python, next)
    await arrived(typescript, ours.nextSequence)
    t.strictSame(
      eventsOf(python.payloads.slice(from.python)),
      eventsOf(typescript.payloads.slice(from.typescript)),
    )
    const [one, other] = await Promise.all([
      snapshot(messages, theirs.replayEndpoint),
      snapshot(messages, ours.replayEndpoint!),
    ])
    t.strictSame(blocksOf(one.events), blocksOf(other.events))
    t.match(one.replies, [{ kind: 'part', nextSequence: next, parts: 1, isWhole: true, mayBeStale: false }])
    const late = new NaiveCache().applyAll(one.events)
    t.strictSame(late.state(), new NaiveCache().applyAll(all).state())
    t.equal(late.orphans, other.events.length === 0 ? 0 : new NaiveCache().applyAll(other.events).orphans)
    const repeated = await replay(messages, theirs.replayEndpoint, next - all.length)
    t.strictSame(repeated.events, eventsOf(python.payloads.slice(from.python)))
    t.strictSame([...repeated.frameCounts], [4])
    const { stats } = ours
    t.match(await theirs.call('stats', []), { blocks: stats.blocks, copies: stats.copies })
    if (!t.passing()) throw new Error('they differ')
  })
  await fc.assert(property, { numRuns: Number(process.env['HOMING_TEST_RUNS'] ?? 60), endOnFailure: true })
  t.strictSame([...python.topics], ['kv-events'])
  t.strictSame(
    python.sequences,
    python.sequences.map((_, i) => python.sequences[0]! + i),
    'numbered without a gap',
  )
})

/** Block by block: how many of them are in one store may differ. */
function blocksOf(events: readonly KvEvent[]): readonly unknown[] {
  return events.flatMap(event => {
    if (event.kind !== 'stored') throw new Error(`a snapshot has a ${event.kind}`)
    const { hashes, parent, tokens, labels: said, ...labels } = event
    return Array.from({ length: hashes.length / 2 }, (_, i) => ({
      ...labels,
      expert: said?.experts[i],
      place: said?.places[i],
      hash: hashes.slice(2 * i, 2 * i + 2),
      parent: i === 0 ? parent : hashes.slice(2 * i - 2, 2 * i),
      tokens: tokens.slice(i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE),
    }))
  })
}

/** A step of a history with labels: a call of each publisher. */
const labelledSteps = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant('store' as const),
        chain: fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }),
        from: fc.nat({ max: 3 }),
        expert: fc.option(fc.tuple(fc.nat(3), fc.nat(3), fc.option(fc.nat(2), { nil: undefined }))),
        place: fc.option(fc.constantFrom(...POOL_STATES)),
        members: fc.constantFrom(undefined, { heat: [1, -0.5, null, { ä: 'ü' }] }, { a: 2n ** 64n - 1n }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('remove' as const),
        chain: fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }),
        tier: fc.constantFrom('device' as const, 'device' as const, 'host' as const),
      }),
    },
    {
      weight: 8,
      arbitrary: fc.record({
        kind: fc.constant('move' as const),
        chain: fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }),
        state: fc.constantFrom(...POOL_STATES),
        pool: fc.nat(2),
        workers: fc.uniqueArray(fc.nat(9), { maxLength: 3 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear' as const) }) },
  ),
  { maxLength: 40 },
)

t.test('labels and transitions of any history are those of @homing/publisher', { skip }, async t => {
  const theirs = await PythonPublisher.start(t, { dp_rank: 3 })
  const ours = await createPublisher({
    eventsEndpoint: 'tcp://127.0.0.1:0',
    replayEndpoint: 'tcp://127.0.0.1:0',
    blockSizeTokens: BLOCK_SIZE,
    dpRank: 3,
  })
  t.teardown(() => ours.close())
  const property = fc.asyncProperty(labelledSteps, async steps => {
    const from = { python: (await theirs.call('publish_cleared', [])) as number, typescript: 0 }
    ours.cleared()
    ours.flush()
    from.typescript = ours.nextSequence
    for (const step of steps) {
      if (step.kind === 'clear') {
        await theirs.call('publish_cleared', [])
        ours.cleared()
      } else if (step.kind === 'remove') {
        const { chain, tier } = step
        await theirs.call('publish_removed', [null, [keyOf(chain)]], { tier })
        ours.removed([keyOf(chain)], { tier })
      } else if (step.kind === 'move') {
        const { chain, state, pool, workers } = step
        await theirs.call('publish_cxl_state_transition', [null, [keyOf(chain)], state, pool, workers])
        ours.publishCxlStateTransition([keyOf(chain)], state, { poolId: pool, accessibleWorkers: workers })
      } else {
        const { chain, expert, place, members } = step
        const at = Math.min(step.from, chain.length - 1)
        const keys = chain.slice(at).map((_, i) => keyOf(chain.slice(0, at + i + 1)))
        const parent = at === 0 ? undefined : keyOf(chain.slice(0, at))
        const tokens = tokensOf(chain.slice(at))
        const [layer_id, expert_id, expert_group = null] = expert ?? []
        await theirs.call('publish_stored', [null, [...tokens], null, keys, 0, parent ?? null], {
          // Alternately one for all blocks, and one for each.
          moe_metadata:
            expert &&
            (at % 2 === 0
              ? { layer_id, expert_id, expert_group, members }
              : keys.map(() => [layer_id, expert_id, expert_group, members ?? null])),
          cxl_metadata: place && keys.map((_, i) => (i === 0 ? [place, 7, [1, 2], members ?? null] : null)),
        })
        ours.stored(
          parent,
          keys.map((hash, i) => ({
            hash,
            tokens: tokens.slice(i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE),
            ...(expert && {
              moeMetadata: { layerId: expert[0], expertId: expert[1], expertGroup: expert[2], members },
            }),
            ...(place &&
              i === 0 && { cxlMetadata: { state: place, poolId: 7, accessibleWorkers: [1, 2], members } }),
          })),
        )
      }
      ours.flush()
    }
    const [one, other] = await Promise.all([
      replay(messages, theirs.replayEndpoint, from.python),
      replay(messages, ours.replayEndpoint!, from.typescript),
    ])
    t.strictSame(one.events, other.events)
    const [late, lateOther] = await Promise.all([
      snapshot(messages, theirs.replayEndpoint),
      snapshot(messages, ours.replayEndpoint!),
    ])
    t.strictSame(blocksOf(late.events), blocksOf(lateOther.events))
    if (!t.passing()) throw new Error('they differ')
  })
  await fc.assert(property, { numRuns: Number(process.env['HOMING_TEST_RUNS'] ?? 60), endOnFailure: true })
})

t.test('labels that cannot be are refused, and nothing of the call is published', { skip }, async t => {
  const publisher = await PythonPublisher.start(t)
  const store = (options: object): Call => ['publish_stored', [null, [1, 2, 3, 4], null, [2]], options]
  const withMembers = (members: unknown) => store({ moe_metadata: { layer_id: 1, expert_id: 2, members } })
  const move = (...args: readonly unknown[]): Call => ['publish_cxl_state_transition', [null, [2], ...args]]
  const wrong: readonly (readonly [Call, RegExp])[] = [
    [store({ moe_metadata: [] }), /moe_metadata has 0 entries; give one for each block/],
    [
      store({ moe_metadata: { layer_id: -1, expert_id: 0 } }),
      /its layer_id is -1; use a whole number from 0/,
    ],
    [store({ moe_metadata: { layer: 1 } }), /its moe_metadata is .*; use a MoeMetadata/],
    [store({ cxl_metadata: { state: 'cxl' } }), /its state is cxl; use one of local_gpu, in_transit/],
    [store({ cxl_metadata: { pool_id: 2 ** 32 } }), /its pool_id is 4294967296; use a whole number/],
    [withMembers({ layer_id: 1 }), /layer_id is among its members; use the field for it/],
    [withMembers({ a: 'x'.repeat(2000) }), /its members have 2008 bytes as JSON; use at most 1024/],
    [withMembers({ a: [[[[[[[[[1]]]]]]]]] }), /its members have more than 8 levels/],
    [withMembers({ a: 2n ** 64n }), /its members have a whole number beyond 64 bits/],
    [withMembers([1]), /its members are .*; use a dict with texts as keys/],
    [move('in_transit'), /goes to in_transit without a pool_id; name the pool/],
    [move('in_transit', 1, [-1]), /a worker with access has id -1; use whole numbers/],
    [
      move(
        'in_transit',
        1,
        Array.from({ length: 1025 }, (_, i) => i),
      ),
      /1025 workers have access/,
    ],
    [move('in_transit', 1, 5), /its workers with access are 5; use a list of worker ids/],
    [move('gone'), /a transition: its state is gone; use one of/],
  ]
  for (const [call, message] of wrong) t.match(await publisher.call(...call), { name: 'bad_block', message })
  t.match(await publisher.call('stats', []), { batches: 0, moved_blocks: 0 })
})

/** Some stores are of an adapter, or of a tenant. */
function labelled(event: CommonEvent, adapter: number): CommonEvent {
  if (event.kind !== 'stored' || adapter === 0) return event
  const labels = adapter % 2 === 0 ? { loraName: 'adapter' } : { cacheSalt: 'tenant' }
  return { ...event, ...labels }
}

t.test('keeps the last batches, and says where nothing is kept', { skip }, async t => {
  const publisher = await PythonPublisher.start(t, { buffer_batches_max: 5 })
  for (let i = 0; i < 9; i++) await publisher.call(...callOf(storedChain([1, i], 1)))
  const { batches } = await replay(messages, publisher.replayEndpoint, 0)
  t.strictSame(
    batches.map(({ sequence }) => sequence),
    [4, 5, 6, 7, 8],
  )
  t.equal((await replay(messages, publisher.replayEndpoint, 8)).batches.length, 1)
  t.equal((await replay(messages, publisher.replayEndpoint, 9)).batches.length, 0)
  t.match(await publisher.call('stats', []), { kept_batches: 5, batches: 9, stored_blocks: 9 })
})

t.test('what finds no room is missing in snapshots, which say so', { skip }, async t => {
  const publisher = await PythonPublisher.start(t, { held_bytes_max: 1024 })
  for (let i = 0; i < 9; i++) await publisher.call(...callOf(storedChain([i], 0)))
  const { replies, events } = await snapshot(messages, publisher.replayEndpoint)
  t.match(replies, [{ isWhole: false, nextSequence: 9 }])
  t.equal(events.length, 4)
  t.match(await publisher.call('stats', []), { blocks: 4, refused_blocks: 5 })
  await publisher.call('publish_all_cleared', [])
  t.match((await snapshot(messages, publisher.replayEndpoint)).replies, [{ isWhole: true }])
})

t.test('calls in a batch go out together, and a long store in parts', { skip }, async t => {
  const publisher = await PythonPublisher.start(t, { batch_blocks_max: 4 })
  const first = (await publisher.call('publish_cleared', [])) as number
  const chain = Array.from({ length: 10 }, (_, i) => i % 4)
  t.equal(await publisher.call(...callOf(storedChain(chain, 0))), first + 3)
  const small = [[1], [2], [3]].map(of => callOf(storedChain(of, 0)))
  const call = [...small, ['publish_removed', [null, [keyOf([1])]], {}]]
  t.equal(await publisher.call('batch', call), first + 4)
  const { batches, events } = await replay(messages, publisher.replayEndpoint, first)
  t.equal(batches.length, 4)
  t.equal(batches.length + 3, events.length)
  t.strictSame(
    new NaiveCache().applyAll(events).state(),
    new NaiveCache().applyAll([storedChain(chain, 0), ...[[2], [3]].map(of => storedChain(of, 0))]).state(),
  )
})

t.test('refuses what cannot be, and publishes nothing of it', { skip }, async t => {
  const publisher = await PythonPublisher.start(t)
  const next = (await publisher.call('publish_stored', [
    7,
    [...tokensOf([1])],
    [4],
    ['1'].map(Number),
  ])) as number
  t.equal(next, 1)
  const of = (...args: readonly unknown[]): Call => ['publish_stored', args]
  const four = [1, 2, 3, 4]
  const wrong: readonly (readonly [Call, string, RegExp])[] = [
    [of(7, four, [4], [2]), 'bad_event_id', /event_id 7 is not above 7, the last one; count up/],
    [['publish_removed', [3, [1]]], 'bad_event_id', /removed blocks: event_id 3 is not above 7/],
    [of('x', four, [4], [2]), 'bad_event_id', /event_id is x, use a whole number/],
    [
      of(8, [1, 2, 3], [3], [2]),
      'block_size',
      /block 0 of 1: it has 3 tokens and kv_block_size is 4; publish a block/,
    ],
    [of(8, [1, 2, 3], null, [2]), 'block_size', /cannot publish 1 blocks: there are 3 tokens/],
    [of(8, four, [4, 4], [2]), 'bad_block', /num_block_tokens has 2 numbers/],
    [
      of(8, [1, 2, 3, -1], [4], [2]),
      'bad_block',
      /block 0 of 1: its token 3 is -1; use whole numbers from 0/,
    ],
    [of(8, four, [4], [2n ** 64n]), 'bad_block', /hash 18446744073709551616 does not fit into 64 bits/],
    [of(8, four, [4], ['2']), 'bad_block', /its hash is a str; use an int/],
    [
      of(8, [...four, ...four], [4, 4], [2, 2]),
      'bad_block',
      /block 1 of 2: its hash 0000000000000002 is that of/,
    ],
    [of(8, four, [4], [2], 0, 2), 'bad_block', /that of the parent/],
    [of(8, four, [4], [2], -1), 'bad_block', /lora_id is -1/],
    [['publish_removed', [8, [1]], { tier: 'tape' }], 'bad_block', /tier is tape, use one of device, host/],
  ]
  for (const [call, name, message] of wrong) t.match(await publisher.call(...call), { name, message })
  t.match(await publisher.call('stats', []), { batches: 1, blocks: 1 })
  t.equal(await publisher.call(...of(8, four, [4], [-1])), 2, 'a negative hash is the same 64 bits')
  const { events } = await replay(messages, publisher.replayEndpoint, 1)
  t.match(events, [{ hashes: Int32Array.of(-1, -1) }])
})

t.test('what is no request gets no answer', { skip }, async t => {
  const { replayEndpoint } = await PythonPublisher.start(t)
  const counts: number[] = []
  const dealer = messages.dial({ endpoint: replayEndpoint }, frames => counts.push(frames.length))
  dealer.send([new Uint8Array(8)])
  dealer.send([new Uint8Array(0), Buffer.from('snapshot'), Uint8Array.of(9)])
  await asked(messages, replayEndpoint, [new Uint8Array(0), new Uint8Array(8)], () => true)
  dealer.send([new Uint8Array(0), new Uint8Array(8)])
  while (counts.length === 0) await new Promise(resolve => setImmediate(resolve))
  t.strictSame(counts, [4], 'the end of the one that was')
  dealer.close()
})

t.test(
  '3000 batches are repeated whole to three peers at once, while more are published',
  { skip },
  async t => {
    const publisher = await PythonPublisher.start(t, { buffer_batches_max: 9000 })
    const store = (i: number) => callOf(storedChain([i, 1, 2, 3, 0, 1, 2, 3], 0))
    for (let i = 0; i < 3000; i++) await publisher.call(...store(i))
    const replays = [0, 0, 1500].map(start => replay(messages, publisher.replayEndpoint, start))
    const dumped = snapshot(messages, publisher.replayEndpoint)
    for (let i = 0; i < 100; i++) await publisher.call(...store(3000 + i))
    for (const [i, { batches }] of (await Promise.all(replays)).entries()) {
      const start = i < 2 ? 0 : 1500
      t.ok(batches.length >= 3000 - start)
      t.strictSame(
        batches.map(({ sequence }) => sequence),
        batches.map((_, at) => start + at),
      )
    }
    const { replies, events } = await dumped
    t.ok(replies.length > 1, `${replies.length} parts`)
    t.ok(new NaiveCache().applyAll(events).blocks.size >= 3000 * 8)
    // The last one leaves in the midst of its answer; the publisher closes all the same.
    const gone = messages.dial({ endpoint: publisher.replayEndpoint }, () => gone.close())
    gone.send([new Uint8Array(0), new Uint8Array(8)])
  },
)
