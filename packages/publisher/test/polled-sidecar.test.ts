import { SimulatedClock, seededRandom } from '@homing/base'
import { decodeKvBatch, type KvEvent, parseEventFrames, unreadEvents } from '@homing/protocol'
import { type HttpListener, MemoryNetwork } from '@homing/transport'
import t, { type Test } from 'tap'
import { PolledSidecar, PUBLISHER_DEFAULTS, Republisher } from '../src/index.ts'
import { snapshot } from './asking.ts'
import { NaiveCache } from './naive-cache.ts'

const REPLAY = (rank: number): string => `tcp://10.0.0.1:${6657 + rank}`

/** A TensorRT-LLM server whose queue is a list, and followers of its ranks. */
class World {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly transport = this.network.transport()
  readonly warnings: string[] = []
  readonly followers = [new NaiveCache(), new NaiveCache()]
  readonly kinds: string[][] = [[], []]
  readonly unread = [0, 0]
  readonly ranks: Republisher[] = []
  /** What the next questions get; then the queue is empty. */
  readonly queue: (unknown | string)[] = []
  status = 200
  sidecar!: PolledSidecar
  #listener: HttpListener | undefined

  async open(t: Test): Promise<this> {
    await this.listen()
    const { messages, http } = this.transport
    for (const rank of [0, 1]) {
      const out = await Republisher.open({
        ...PUBLISHER_DEFAULTS,
        clock: this.clock,
        random: seededRandom(rank),
        messages,
        eventsEndpoint: `tcp://10.0.0.1:${5657 + rank}`,
        replayEndpoint: REPLAY(rank),
      })
      this.ranks.push(out)
      messages.subscribe(
        { endpoint: out.endpoint, topic: '' },
        {
          message: frames => {
            const batch = decodeKvBatch(parseEventFrames(frames).payload)
            this.followers[rank]!.applyAll(batch.events)
            this.kinds[rank]!.push(...batch.events.map(kindOf))
            this.unread[rank]! += unreadEvents(batch)
          },
          connected() {},
          disconnected() {},
        },
      )
    }
    this.sidecar = new PolledSidecar({
      clock: this.clock,
      http,
      log: { info: () => 'ok', warn: (_, text) => void this.warnings.push(text) },
      engineOrigin: 'http://10.0.0.1:8000',
      blockSizeTokens: 4,
      pollIntervalMs: 50,
      ranks: this.ranks,
    })
    this.sidecar.start()
    t.teardown(async () => {
      await this.sidecar.close()
      for (const out of this.ranks) await out.close(0)
      await this.#listener?.close(0)
    })
    await this.settle()
    return this
  }

  async listen(): Promise<void> {
    this.#listener = await this.transport.http.listen({ host: '10.0.0.1', port: 8000 }, exchange => {
      if (exchange.path !== '/kv_cache_events' || exchange.method !== 'POST') return exchange.destroy()
      const answer = this.queue.shift() ?? []
      exchange.writeHead(this.status, {})
      exchange.end(Buffer.from(typeof answer === 'string' ? answer : JSON.stringify(answer)))
    })
  }

  async stopEngine(): Promise<void> {
    await this.#listener?.close(0)
  }

  async settle(ms = 1000): Promise<void> {
    for (let i = 0; i < ms / 50; i++) {
      for (let turn = 0; turn < 3; turn++) await new Promise(resolve => setImmediate(resolve))
      this.clock.advance(50)
    }
    await new Promise(resolve => setImmediate(resolve))
  }
}

function kindOf(event: KvEvent): string {
  return event.kind === 'cleared' && event.isWithdrawal ? 'withdrawn' : event.kind
}

const created = (event_id: number, rank?: number) => ({
  event_id,
  data: { type: 'created', num_blocks_per_cache_level: [100, 0] },
  window_size: 8192,
  ...(rank === undefined ? {} : { attention_dp_rank: rank }),
})

const stored = (event_id: number, block_hash: number, parent_hash: number | null, rank?: number) => ({
  event_id,
  data: {
    type: 'stored',
    parent_hash,
    blocks: [
      {
        type: 'stored_block',
        block_hash,
        tokens: [1, 2, 3, block_hash].map(token_id => ({
          type: 'unique_token',
          token_id,
          token_extra_id: 0,
        })),
        cache_level: 0,
        priority: 35,
      },
    ],
  },
  window_size: 8192,
  ...(rank === undefined ? {} : { attention_dp_rank: rank }),
})

const removed = (event_id: number, ...block_hashes: number[]) => ({
  event_id,
  data: { type: 'removed', block_hashes },
  window_size: 8192,
})

t.test('what is polled is published, repeated and told as a snapshot', async t => {
  const w = await new World().open(t)
  w.queue.push([created(0), stored(1, 5, null)], [stored(2, 6, 5), removed(3, 5)], [])
  await w.settle()
  t.strictSame([...w.followers[0]!.blocks.keys()], ['device/6'])
  t.match(w.followers[0]!.blocks.get('device/6'), { parent: 5n, tokens: [1, 2, 3, 6] })
  const asked = snapshot(w.transport.messages, REPLAY(0))
  await w.settle()
  const { replies, events } = await asked
  t.match(replies, [{ kind: 'part', isWhole: true }])
  t.strictSame(new NaiveCache().applyAll(events).state(), w.followers[0]!.state())
  t.strictSame(w.warnings, [])
})

t.test('each rank is published by itself', async t => {
  const w = await new World().open(t)
  w.queue.push([created(0, 0), created(0, 1), stored(1, 5, null, 1), stored(1, 6, null, 0)], [created(0, 7)])
  await w.settle()
  t.strictSame(
    w.followers.map(({ blocks }) => [...blocks.keys()]),
    [['device/6'], ['device/5']],
  )
  t.match(w.warnings, [/a rank that was not configured/])
})

t.test('a hole in the ids ends what is known, and so does an event that cannot be read', async t => {
  const w = await new World().open(t)
  w.queue.push([created(0), stored(1, 5, null)], [stored(3, 6, null)])
  await w.settle()
  t.strictSame(w.kinds[0], ['cleared', 'stored', 'withdrawn', 'stored'])
  t.match(w.ranks[0]!.status(), { isWhole: false, clears: 1 })
  w.queue.push([removed(4, 6), { ...removed(5), data: { type: 'removed' } }, stored(6, 7, null)])
  await w.settle()
  t.equal(w.followers[0]!.blocks.size, 0)
  t.match(w.sidecar.status(), { gaps: 1, unreadable: 1, isAnswered: true })
})

t.test(
  'after an event of an unknown type what is held is not known whole, until the server begins anew',
  async t => {
    const w = await new World().open(t)
    w.queue.push([
      created(0),
      stored(1, 5, null),
      { ...removed(2, 5), data: { type: 'evicted', block_hashes: [5] } },
    ])
    await w.settle()
    t.match(w.ranks[0]!.status(), { isWhole: false, clears: 0, blocks: 1 })
    t.match(w.sidecar.status(), { unknownTypes: 1, unreadable: 0 })
    t.strictSame(w.unread, [1, 1], 'followers are told, of every rank')
    const asked = snapshot(w.transport.messages, REPLAY(0))
    await w.settle()
    t.match((await asked).replies, [{ kind: 'part', isWhole: false }])
    w.queue.push([created(0)])
    await w.settle()
    t.equal(w.ranks[0]!.status()!.isWhole, true)
  },
)

t.test('only a start of which nothing is missing makes what is told whole', async t => {
  const larger = { window_size: 9000 }
  const answers: Readonly<Record<string, readonly [answer: readonly unknown[], kinds: readonly string[]]>> = {
    'after missed events a larger window': [
      [stored(1000, 5, null), { ...stored(1001, 6, null), ...larger }],
      ['withdrawn', 'stored', 'withdrawn', 'stored'],
    ],
    'a restart of which the first events are missing': [
      [created(0), stored(1, 5, null), stored(2, 6, null), stored(1, 7, null)],
      ['cleared', 'stored', 'stored', 'withdrawn', 'stored'],
    ],
    'a larger window that was not announced': [
      [created(0), { ...stored(1, 6, null), ...larger }],
      ['cleared', 'withdrawn', 'stored'],
    ],
  }
  for (const [name, [answer, kinds]] of Object.entries(answers)) {
    const w = await new World().open(t)
    w.queue.push(answer)
    await w.settle()
    t.strictSame(w.kinds[0], kinds, name)
    t.equal(w.ranks[0]!.status()!.isWhole, false, name)
    w.queue.push([created(0), stored(1, 9, null)])
    await w.settle()
    t.equal(w.ranks[0]!.status()!.isWhole, true, name)
    t.strictSame([...w.followers[0]!.blocks.keys()], ['device/9'], name)
  }
})

t.test('an engine that does not answer is withdrawn once, and asked again until it does', async t => {
  const w = await new World().open(t)
  w.queue.push([created(0), stored(1, 5, null)])
  await w.settle()
  await w.stopEngine()
  await w.settle(20_000)
  t.strictSame(w.kinds[0], ['cleared', 'stored', 'withdrawn'])
  t.equal(w.warnings.length, 1)
  const { failures } = w.sidecar.status()
  t.ok(failures > 3 && failures < 15, `${failures} questions in 20 s`)

  w.queue.push([created(0), stored(1, 9, null)])
  await w.listen()
  await w.settle(6000)
  t.strictSame([...w.followers[0]!.blocks.keys()], ['device/9'])
  t.match(w.ranks[0]!.status(), { isWhole: true })
})

t.test('answers that are none are failures that say what to do', async t => {
  const w = await new World().open(t)
  w.status = 404
  await w.settle()
  t.match(w.sidecar.status(), { isAnswered: false })
  w.status = 200
  w.queue.push('<html>')
  await w.settle(10_000)
  t.equal(w.sidecar.status().isAnswered, true)
  t.equal(w.warnings.length, 1)
})

t.test('after close nothing is asked any more', async t => {
  const w = await new World().open(t)
  await w.sidecar.close()
  await w.sidecar.close()
  const { answers } = w.sidecar.status()
  await w.settle()
  t.equal(w.sidecar.status().answers, answers)
})
