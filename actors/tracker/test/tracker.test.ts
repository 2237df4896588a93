import { createTestSystem } from '@homing/actor/testing'
import type { DrainedMessage } from '@homing/actors/directory'
import type { Fleet } from '@homing/fleet'
import { figureOf, figuresOf } from '@homing/load'
import type { RequestTracking, TrackingSettings } from '@homing/placement'
import t from 'tap'
import {
  type Booking,
  type LoadFellMessage,
  type OwnOperationsMessage,
  type TellAgainMessage,
  type TrackerArgs,
  tracker,
} from '../src/index.ts'
import { TRACK_ALL } from '../src/tracking.ts'

const ASK = { timeout: '1s' } as const
const GATEWAY = { name: 'gateway', life: 'one' }
const PROMPT = Int32Array.from({ length: 8 }, (_, i) => i + 1)

/** As a replica tells of it. */
const BOOKED = {
  kind: 'booked',
  worker: 'a/0',
  activeBlocks: 7,
  promptTokens: 30,
  prefillTokens: 10,
  countsPrefill: true,
  isStream: true,
  waitedMs: 0,
  stepTokens: 8192,
} as const

async function start(
  idleMsMax = 60_000,
  tracking: Partial<TrackingSettings> = {},
  more: Partial<TrackerArgs> = {},
) {
  const system = await createTestSystem()
  const directory = system.probe<DrainedMessage>('directory')
  const ref = system.spawn(tracker, {
    name: 'tracker',
    args: {
      directory: directory.ref,
      workerSlotsMax: 8,
      requestsMax: 100,
      idleMsMax,
      tracking: { ...TRACK_ALL, ...tracking },
      ...more,
    },
  })
  ref.tell({ type: 'fleet', fleet: fleetOf(['a/0', 0], ['b/0', 1]) })
  const book = (decisionId: string, workerSlot: number, gateway = GATEWAY, more: Partial<Booking> = {}) =>
    ref.ask(
      {
        type: 'book',
        booking: {
          decisionId,
          gateway,
          worker: `${'ab'[workerSlot]}/0`,
          workerSlot,
          sequenceHashes: PROMPT,
          promptTokens: 70,
          prefillTokens: 70,
          isStream: true,
          stepTokens: 8192,
          ...more,
        },
      },
      ASK,
    )
  const load = async (worker: string) => {
    const { rows } = await ref.ask({ type: 'loads' }, ASK)
    const row = rows.find(candidate => candidate.worker === worker)
    return row && [row.activeBlocks, row.activePrefillTokens, row.activeRequests]
  }
  return { system, ref, book, load, directory }
}

const PLAIN = { models: [], taints: [] }

/** As much of a fleet as the tracker looks at. */
function fleetOf(...keys: [key: string, workerSlot: number][]): Fleet {
  const records = keys.map(([key, workerSlot]) => ({ key, workerSlot }))
  return { version: 1, workers: [{ ...PLAIN, keys: records }] } as unknown as Fleet
}

/** Worker a has two ranks. */
function drainingFleet(drain: Pick<Fleet['workers'][number], 'state' | 'isDraining'>): Fleet {
  const keys = ['a/0', 'a/1'].map((key, workerSlot) => ({ key, workerSlot }))
  return { version: 2, workers: [{ ...PLAIN, id: 'a', ...drain, keys }] } as unknown as Fleet
}

t.test('a worker that drains is told of with its last request, whatever its state', async t => {
  for (const state of ['draining', 'down', 'probing'] as const) {
    const { system, ref, book, directory } = await start()
    t.teardown(() => system.shutdown())
    const told = async (): Promise<readonly DrainedMessage[]> => {
      await system.settle()
      const heard: DrainedMessage[] = []
      while (directory.waiting.length > 0) heard.push(await directory.next())
      return heard
    }
    ref.tell({ type: 'fleet', fleet: drainingFleet({ state: 'up' }) })
    await book('r1', 0)
    await book('r2', 1, GATEWAY, { worker: 'a/1' })
    ref.tell({ type: 'fleet', fleet: drainingFleet({ state, isDraining: true }) })
    t.strictSame(await told(), [], `${state}: both ranks have one`)
    ref.tell({ type: 'free', decisionId: 'r1' })
    t.strictSame(await told(), [], `${state}: one rank has one`)
    ref.tell({ type: 'free', decisionId: 'r2' })
    t.strictSame(await told(), [{ type: 'drained', workerId: 'a' }], state)
    ref.tell({ type: 'fleet', fleet: drainingFleet({ state: 'up' }) })
    await book('r3', 0)
    ref.tell({ type: 'free', decisionId: 'r3' })
    t.strictSame(await told(), [], `${state}: it takes requests again`)
    ref.tell({ type: 'fleet', fleet: drainingFleet({ state, isDraining: true }) })
    t.strictSame(await told(), [{ type: 'drained', workerId: 'a' }], `${state}: it has none at the start`)
  }
})

t.test('a worker that goes down while it drains is told of when its requests have failed', async t => {
  const { system, ref, book, directory } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  ref.tell({ type: 'fleet', fleet: drainingFleet({ state: 'draining', isDraining: true }) })
  ref.tell({ type: 'fleet', fleet: drainingFleet({ state: 'down', isDraining: true }) })
  await system.settle()
  t.strictSame(directory.waiting, [])
  ref.tell({ type: 'free', decisionId: 'r1' })
  await system.settle()
  t.strictSame(directory.waiting, [{ type: 'drained', workerId: 'a' }])
})

t.test('the speed of a worker is learned from its first tokens', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!.learned.prefill
  t.match(await learned(), { source: 'prior', observations: 0 })
  await book('r1', 0)
  await system.advance('1s')
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  ref.tell({ type: 'free', decisionId: 'r1', cachedShare: 0 })
  const { source, observations } = await learned()
  t.ok(observations > 0 && source !== 'prior', `${observations} observations, source ${source}`)
})

t.test('a booking counts until its request ends, its prefill until the first token', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  t.equal(await book('r1', 0), 'booked')
  t.strictSame(await load('a/0'), [4, 70, 1])
  t.strictSame(await load('b/0'), [0, 0, 0])
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [4, 0, 1])
  ref.tell({ type: 'free', decisionId: 'r1' })
  ref.tell({ type: 'free', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
})

t.test('a request is booked once', async t => {
  const { system, book, load } = await start()
  t.teardown(() => system.shutdown())
  t.equal(await book('r1', 0), 'booked')
  t.equal(await book('r1', 1), 'duplicate')
  t.strictSame(await load('b/0'), [0, 0, 0])
})

t.test('a projection counts what is new on each worker and changes nothing', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  const projection = await ref.ask(
    { type: 'project', workerSlots: Int32Array.of(1, 0), sequenceHashes: PROMPT, wantsEngines: false },
    ASK,
  )
  t.strictSame([...projection.activeBlocks], [0, 4])
  t.strictSame([...projection.newBlocks], [4, 0])
  t.strictSame([...projection.activePrefillTokens], [0, 70])
  t.strictSame([...projection.activeRequests], [0, 1])
  t.strictSame(await load('a/0'), [4, 70, 1])
})

t.test('bookings of a worker key that left the fleet are freed', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  await book('r2', 1)
  ref.tell({ type: 'fleet', fleet: fleetOf(['b/0', 1], ['c/0', 0]) })
  t.strictSame(await load('c/0'), [0, 0, 0], 'another key in the same slot starts with nothing')
  t.strictSame(await load('b/0'), [4, 70, 1])
})

t.test('a booking without a sign of life is freed, a touched one is not', async t => {
  const { system, ref, book, load } = await start(20_000)
  t.teardown(() => system.shutdown())
  await book('lost', 0)
  await book('alive', 1)
  for (let i = 0; i < 6; i++) {
    await system.advance('5s')
    ref.tell({ type: 'touch', decisionId: 'alive' })
  }
  t.strictSame(await load('a/0'), [0, 0, 0])
  t.strictSame(await load('b/0'), [4, 70, 1])
  const { stats } = await ref.ask({ type: 'loads' }, ASK)
  t.equal(stats.expiredTotal, 1)
})

t.test('what a gateway booked in a life that has ended is freed, and nothing else', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  const next = { ...GATEWAY, life: 'two' }
  await book('of the life before', 0)
  await book('of another gateway', 1, { name: 'other', life: 'one' })
  await book('of this life', 1, next)
  ref.tell({ type: 'gatewayStarted', gateway: next })
  t.strictSame((await load('a/0'))?.[2], 0)
  t.strictSame((await load('b/0'))?.[2], 2)
  ref.tell({ type: 'free', decisionId: 'of this life' })
  ref.tell({ type: 'free', decisionId: 'of another gateway' })
  t.strictSame(
    [await load('a/0'), await load('b/0')],
    [
      [0, 0, 0],
      [0, 0, 0],
    ],
  )
})

t.test('a projection has what is before each worker in milliseconds, if that is asked for', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  const ask = {
    type: 'project',
    workerSlots: Int32Array.of(1, 0),
    sequenceHashes: PROMPT,
    wantsEngines: true,
  } as const
  const queued = await ref.ask(ask, ASK)
  t.equal(queued.engines!.count, 2)
  t.match(figuresOf(queued.engines!, 0), { requests: 0, queuedTokens: 0 })
  t.match(figuresOf(queued.engines!, 1), { requests: 1, queuedTokens: 70, decoding: 0 })
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  const decoding = await ref.ask(ask, ASK)
  t.match(figuresOf(decoding.engines!, 1), { requests: 1, queuedTokens: 0, decoding: 1 })
  ref.tell({ type: 'free', decisionId: 'r1', outputTokens: 30, cachedShare: 0.9 })
  const idle = await ref.ask(ask, ASK)
  t.equal(idle.engines!.outputTokensExpected, 30)
  t.match(figuresOf(idle.engines!, 1), { requests: 0, decoding: 0, receivedTokens: 7 })
})

t.test(
  'what an engine says of itself stands beside what is counted, and goes with its worker key',
  async t => {
    const { system, ref, book, load } = await start()
    t.teardown(() => system.shutdown())
    await book('r1', 0)
    const tell = (worker: string, workerSlot: number, share: number | undefined, reason?: string): void =>
      void ref.tell({ type: 'reportedUsage', reports: [{ worker, workerSlot, share, reason }] })
    const shares = async (): Promise<readonly number[] | undefined> => {
      const project = { type: 'project', workerSlots: Int32Array.of(0, 1), sequenceHashes: PROMPT } as const
      const asked = await ref.ask({ ...project, wantsEngines: false, wantsReported: true }, ASK)
      return asked.reportedShares && [...asked.reportedShares]
    }
    const rows = async () =>
      (await ref.ask({ type: 'loads' }, ASK)).rows.map(({ worker, reported }) => [worker, reported])
    t.strictSame(await shares(), [Number.NaN, Number.NaN])
    t.strictSame(await rows(), [
      ['a/0', undefined],
      ['b/0', undefined],
    ])
    tell('a/0', 0, 0.75)
    tell('b/0', 1, undefined, 'GET /metrics answers 404')
    tell('gone/0', 1, 0.5)
    t.strictSame(await shares(), [0.75, Number.NaN])
    t.strictSame(await rows(), [
      ['a/0', { share: 0.75, reason: undefined }],
      ['b/0', { share: undefined, reason: 'GET /metrics answers 404' }],
    ])
    t.strictSame(await load('a/0'), [4, 70, 1], 'what is counted stays')
    ref.tell({ type: 'fleet', fleet: fleetOf(['c/0', 0], ['b/0', 1]) })
    t.strictSame(await shares(), [Number.NaN, Number.NaN])
  },
)

t.test('who waits for load to fall hears of an engine that says so', async t => {
  const { system, ref } = await start()
  t.teardown(() => system.shutdown())
  const watcher = system.probe<LoadFellMessage>('watcher')
  const tell = (share: number | undefined): void =>
    void ref.tell({
      type: 'reportedUsage',
      reports: [{ worker: 'a/0', workerSlot: 0, share, reason: undefined }],
    })
  const project = { type: 'project', workerSlots: Int32Array.of(0), sequenceHashes: PROMPT } as const
  for (const [before, after, hears] of [
    [0.5, 0.6, 0],
    [0.6, 0.4, 1],
    [0.4, undefined, 1],
  ] as const) {
    tell(before)
    const { falls } = await ref.ask({ ...project, wantsEngines: false }, ASK)
    ref.tell({ type: 'watchLoad', watcher: watcher.ref, falls })
    tell(after)
    await system.settle()
    t.equal(watcher.waiting.length, hears, `from ${before} to ${after}`)
    while (watcher.waiting.length > 0) await watcher.next()
  }
})

t.test('blocks that are not tracked do not count, and neither does prefill that is not', async t => {
  const noBlocks = await start(60_000, { activeBlocks: false })
  t.teardown(() => noBlocks.system.shutdown())
  await noBlocks.book('r1', 0)
  t.strictSame(await noBlocks.load('a/0'), [0, 70, 1])
  const noPrefill = await start(60_000, { prefillTokens: false })
  t.teardown(() => noPrefill.system.shutdown())
  await noPrefill.book('r1', 0)
  t.strictSame(await noPrefill.load('a/0'), [4, 0, 1])
})

t.test('without reuse each request has blocks of its own, and all go with it', async t => {
  for (const [assumesReuse, blocks] of [
    [true, 4],
    [false, 8],
  ] as const) {
    const { system, ref, book, load } = await start(60_000, { assumesReuse })
    t.teardown(() => system.shutdown())
    await book('r1', 0)
    const project = { type: 'project', workerSlots: Int32Array.of(0), sequenceHashes: PROMPT } as const
    const { newBlocks } = await ref.ask({ ...project, wantsEngines: false }, ASK)
    t.strictSame([...newBlocks], [assumesReuse ? 0 : 4])
    await book('r2', 0)
    t.strictSame(await load('a/0'), [blocks, 140, 2])
    for (const decisionId of ['r1', 'r2']) ref.tell({ type: 'free', decisionId })
    t.strictSame(await load('a/0'), [0, 0, 0])
  }
})

t.test('a request can say for itself what of it counts, whatever the settings are', async t => {
  for (const assumesReuse of [true, false]) {
    const { system, ref, book, load } = await start(60_000, { assumesReuse, prefillTokens: false })
    t.teardown(() => system.shutdown())
    const shared = { assumesReuse: true, prefillTokens: undefined }
    const alone = { assumesReuse: false, prefillTokens: true }
    const newBlocks = async (tracking: RequestTracking | undefined): Promise<readonly number[]> => {
      const project = { type: 'project', workerSlots: Int32Array.of(0), sequenceHashes: PROMPT } as const
      const asked = await ref.ask({ ...project, tracking, wantsEngines: false }, ASK)
      return [...asked.newBlocks]
    }
    await book('r1', 0, GATEWAY, { tracking: shared })
    t.strictSame(await load('a/0'), [4, 0, 1])
    t.strictSame(await newBlocks(shared), [0])
    t.strictSame(await newBlocks(alone), [4])
    t.strictSame(await newBlocks(undefined), [assumesReuse ? 0 : 4], 'as the setting has it')
    await book('r2', 0, GATEWAY, { tracking: shared })
    t.strictSame(await load('a/0'), [4, 0, 2], 'both share')
    await book('r3', 0, GATEWAY, { tracking: alone })
    t.strictSame(await load('a/0'), [8, 70, 3], 'blocks and prefill of its own')
    for (const decisionId of ['r1', 'r2', 'r3']) ref.tell({ type: 'free', decisionId })
    t.strictSame(await load('a/0'), [0, 0, 0])
  }
})

t.test('a long answer counts for what it has sent in the steps of its worker', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const held = async (): Promise<number> => {
    const workerSlots = Int32Array.of(0)
    const asked = await ref.ask(
      { type: 'project', workerSlots, sequenceHashes: PROMPT, wantsEngines: true },
      ASK,
    )
    return figureOf(asked.engines!, 0, 'contextTokens')
  }
  await book('r1', 0)
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  t.equal(await held(), 170, 'the prompt, and half of the mean answer')
  ref.tell({ type: 'touch', decisionId: 'r1', outputTokens: 5000 })
  t.equal(await held(), 5070)
  ref.tell({ type: 'touch', decisionId: 'r1' })
  t.equal(await held(), 5070, 'how much it is cannot be seen')
})

t.test('output blocks grow with the answer, and fade as it nears its expected end', async t => {
  const { system, ref, book, load } = await start(60_000, { outputBlocks: true })
  t.teardown(() => system.shutdown())
  const blocksAt = async (decisionId: string, outputTokens: number): Promise<number | undefined> => {
    ref.tell({ type: 'touch', decisionId, outputTokens })
    return (await load('a/0'))?.[0]
  }
  await book('r1', 0, GATEWAY, { blockSizeTokens: 16 })
  t.equal(await blocksAt('r1', 10), 4, 'the last block of the prompt has room for ten')
  t.equal(await blocksAt('r1', 11), 5)
  t.equal(await blocksAt('r1', 170), 14)
  ref.tell({ type: 'free', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
  await book('r2', 0, GATEWAY, { blockSizeTokens: 16, expectedOutputTokens: 340 })
  t.equal(await blocksAt('r2', 170), 9, 'four, and half of ten')
  t.equal(await blocksAt('r2', 340), 4, 'its prompt is in use until it has ended')
  t.equal(await blocksAt('r2', 500), 4, 'longer than expected')
  ref.tell({ type: 'free', decisionId: 'r2' })
  t.strictSame(await load('a/0'), [0, 0, 0])
  await book('whole', 0, GATEWAY, { blockSizeTokens: 16, isStream: false })
  t.equal(await blocksAt('whole', 500), 4, 'an answer that does not stream shows nothing')
})

t.test('a projection tells which of the active blocks are of answers', async t => {
  const outputBlocksOf = async (tracking: object): Promise<readonly number[] | undefined> => {
    const { system, ref, book } = await start(60_000, tracking)
    t.teardown(() => system.shutdown())
    await book('r1', 0, GATEWAY, { blockSizeTokens: 16 })
    ref.tell({ type: 'touch', decisionId: 'r1', outputTokens: 170 })
    const workerSlots = Int32Array.of(1, 0)
    const question = { workerSlots, sequenceHashes: PROMPT, wantsEngines: false } as const
    const { outputBlocks } = await ref.ask({ type: 'project', ...question }, ASK)
    return outputBlocks && [...outputBlocks]
  }
  t.strictSame(await outputBlocksOf({ outputBlocks: true }), [0, 10])
  t.equal(await outputBlocksOf({}), undefined, 'they are not counted')
})

t.test('blocks of an answer that its caller counts weigh what it says', async t => {
  const { system, ref, book, load } = await start(60_000)
  t.teardown(() => system.shutdown())
  const outputBlocksOf = async (): Promise<readonly number[] | undefined> => {
    const question = { workerSlots: Int32Array.of(0), sequenceHashes: PROMPT, wantsEngines: false } as const
    const { outputBlocks } = await ref.ask({ type: 'project', ...question }, ASK)
    return outputBlocks && [...outputBlocks]
  }
  await book('r1', 0)
  t.equal(await outputBlocksOf(), undefined, 'no caller counts them')
  ref.tell({ type: 'outputBlocks', decisionId: 'r1', blocks: 4, weight: 1 })
  t.equal((await load('a/0'))?.[0], 8)
  t.strictSame(await outputBlocksOf(), [4])
  ref.tell({ type: 'outputBlocks', decisionId: 'r1', blocks: 6, weight: 0.5 })
  t.equal((await load('a/0'))?.[0], 7)
  ref.tell({ type: 'outputBlocks', decisionId: 'unknown', blocks: 6, weight: 1 })
  t.equal((await load('a/0'))?.[0], 7)
  ref.tell({ type: 'free', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
})

t.test('the prefill of an answer that does not stream ends by estimate, without a message', async t => {
  const { system, ref, book, load } = await start(60_000)
  t.teardown(() => system.shutdown())
  await book('whole', 0, GATEWAY, { isStream: false, promptTokens: 700, prefillTokens: 700 })
  await book('stream', 0, GATEWAY, { promptTokens: 700, prefillTokens: 700 })
  t.equal((await load('a/0'))?.[1], 1400)
  await system.advance('2s')
  ref.tell({ type: 'touch', decisionId: 'whole' })
  t.equal((await load('a/0'))?.[1], 700, 'the one that streams waits for its first token')
  ref.tell({ type: 'prefillComplete', decisionId: 'whole' })
  ref.tell({ type: 'prefillComplete', decisionId: 'stream' })
  t.strictSame((await load('a/0'))?.slice(1), [0, 2])
})

t.test(
  'what was open at a replica when it was heard first teaches nothing of decoding, and leaves nothing',
  async t => {
    const { system, ref, load } = await start(60_000, {}, { replicationMs: 2 })
    t.teardown(() => system.shutdown())
    const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!.learned
    const before = await learned()
    const bookings = Array.from({ length: 20 }, (_, i) => ({ ...BOOKED, id: `${i}`, hasFirstToken: true }))
    ref.tell({ type: 'replicaBookings', replica: 'r', bookings })
    t.strictSame(await load('a/0'), [7, 0, 20])
    await system.advance('100ms')
    const operations = bookings.map(({ id }) => ({
      kind: 'freed' as const,
      id,
      activeBlocks: 7,
      outputTokens: 500,
    }))
    ref.tell({ type: 'replicaOperations', replica: 'r', operations, isLate: false })
    t.strictSame(await load('a/0'), [0, 0, 0], 'without a booking its blocks count no more, whatever it says')
    t.strictSame(await learned(), before)
  },
)

t.test('the first that happens after a pause is told at once, what follows is gathered', async t => {
  const { system, ref, book } = await start(60_000, {}, { replicationMs: 50 })
  t.teardown(() => system.shutdown())
  const bridge = system.probe<OwnOperationsMessage | TellAgainMessage>('bridge')
  await ref.ask({ type: 'replicate', bridge: bridge.ref }, ASK)
  const told = async (): Promise<string[][]> => {
    await system.settle()
    const batches = bridge.waiting.flatMap(message =>
      message.type === 'ownOperations' ? [message.batch] : [],
    )
    const texts = batches.map(({ operations }) => operations.map(({ kind, id }) => `${kind} ${id}`))
    return texts.filter(({ length }) => length > 0)
  }
  await book('1', 0)
  t.strictSame(await told(), [['booked 1']])
  // Those of one turn go together.
  await system.advance('60ms')
  ref.tell({ type: 'prefillComplete', decisionId: '1' })
  ref.tell({ type: 'free', decisionId: '1' })
  const before = [['booked 1'], ['firstToken 1', 'freed 1']]
  t.strictSame(await told(), before)
  await book('2', 0)
  await system.advance('20ms')
  await book('3', 1)
  await system.advance('29ms')
  t.strictSame(await told(), before, 'not yet')
  await system.advance('1ms')
  t.strictSame(await told(), [...before, ['booked 2', 'booked 3']])
})

t.test(
  'a booking of a replica that is told of another worker is there, and no more where it was',
  async t => {
    const { system, ref, load } = await start(60_000, {}, { replicationMs: 2 })
    t.teardown(() => system.shutdown())
    const one = { ...BOOKED, id: 'x', hasFirstToken: false }
    ref.tell({ type: 'replicaBookings', replica: 'r', bookings: [one] })
    ref.tell({ type: 'replicaBookings', replica: 'r', bookings: [{ ...one, worker: 'b/0' as const }] })
    t.strictSame(
      [await load('a/0'), await load('b/0')],
      [
        [0, 0, 0],
        [7, 10, 1],
      ],
    )
    ref.tell({ type: 'replicaBookings', replica: 'r', bookings: [] })
    t.strictSame(await load('b/0'), [0, 0, 0])
  },
)

t.test('blocks of replicas are counted up to a bound, and end with those that were booked', async t => {
  const { system, ref, load } = await start(60_000, {}, { replicationMs: 2, requestsMax: 2 })
  t.teardown(() => system.shutdown())
  for (const replica of ['r', 's', 't']) {
    const bookings = [{ ...BOOKED, id: 'x', activeBlocks: 2 ** 30, hasFirstToken: false }]
    ref.tell({ type: 'replicaBookings', replica, bookings })
  }
  t.strictSame(await load('a/0'), [2 ** 30, 20, 2], 'the third found no room')
  for (const replica of ['r', 's', 't'])
    ref.tell({
      type: 'replicaOperations',
      replica,
      operations: [{ kind: 'freed', id: 'x', activeBlocks: 5 }],
      isLate: false,
    })
  t.strictSame(await load('a/0'), [0, 0, 0])
  ref.tell({
    type: 'replicaBookings',
    replica: 'r',
    bookings: [{ ...BOOKED, id: 'x', hasFirstToken: false }],
  })
  ref.tell({
    type: 'replicaBookings',
    replica: 's',
    bookings: [{ ...BOOKED, id: 'x', hasFirstToken: false }],
  })
  t.strictSame(await load('a/0'), [14, 20, 2])
  ref.tell({ type: 'replicasKnown', replicas: ['s'] })
  t.strictSame(await load('a/0'), [7, 10, 1], 'who is not there any more has nothing open')
})

t.test('an answer that is no success ends a prefill and teaches no speed', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!
  for (let i = 0; i < 40; i++) {
    await book(`refused ${i}`, 0)
    ref.tell({ type: 'prefillComplete', decisionId: `refused ${i}`, teaches: false })
    ref.tell({ type: 'free', decisionId: `refused ${i}` })
  }
  const row = await learned()
  t.equal(row.learned.prefill.observations, 0)
  t.equal(row.activePrefillTokens, 0)
})

t.test('figures that cannot be true are counted and teach nothing', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const expected = async (): Promise<number> => {
    const workerSlots = Int32Array.of(0)
    const asked = await ref.ask(
      { type: 'project', workerSlots, sequenceHashes: PROMPT, wantsEngines: true },
      ASK,
    )
    return asked.engines!.outputTokensExpected
  }
  const before = await expected()
  const lies = [
    { outputTokensMax: 10, outputTokens: 11 },
    { outputTokensMax: undefined, outputTokens: 4_294_967_296 },
    { outputTokensMax: undefined, outputTokens: 50_000 },
    { outputTokensMax: undefined, outputTokens: Number.NaN },
    { outputTokensMax: undefined, outputTokens: -1 },
    { outputTokensMax: undefined, outputTokens: undefined, cachedShare: 1.5 },
  ]
  for (const [i, { outputTokensMax, ...said }] of lies.entries()) {
    await book(`lie ${i}`, 0, GATEWAY, { outputTokensMax })
    ref.tell({ type: 'prefillComplete', decisionId: `lie ${i}` })
    ref.tell({ type: 'free', decisionId: `lie ${i}`, ...said })
  }
  t.equal(await expected(), before)
  t.equal((await ref.ask({ type: 'loads' }, ASK)).rows[0]!.disbelieved, lies.length)
  await book('true', 0, GATEWAY, { outputTokensMax: 10 })
  ref.tell({ type: 'free', decisionId: 'true', outputTokens: 10 })
  t.not(await expected(), before)
  t.equal((await ref.ask({ type: 'loads' }, ASK)).rows[0]!.disbelieved, lies.length)
})

t.test('what was learned of a worker ends with its process', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const fleet = (promptsEpoch: number): Fleet =>
    ({
      version: 1,
      workers: [
        { ...PLAIN, id: 'a', promptsEpoch, keys: [{ key: 'a/0', workerSlot: 0 }] },
        { ...PLAIN, id: 'b', keys: [{ key: 'b/0', workerSlot: 1 }] },
      ],
    }) as unknown as Fleet
  ref.tell({ type: 'fleet', fleet: fleet(1) })
  const observations = async () =>
    (await ref.ask({ type: 'loads' }, ASK)).rows.map(({ learned }) => learned.prefill.observations)
  for (let i = 0; i < 20; i++) {
    await book(`${i}`, i % 2)
    await system.advance(30)
    ref.tell({ type: 'prefillComplete', decisionId: `${i}` })
    await system.advance(30)
    ref.tell({ type: 'free', decisionId: `${i}`, outputTokens: 5 })
  }
  const [a, b] = await observations()
  t.ok(a! > 0 && b! > 0)
  ref.tell({ type: 'fleet', fleet: fleet(1) })
  t.strictSame(await observations(), [a, b], 'the same process')
  ref.tell({ type: 'fleet', fleet: fleet(2) })
  t.strictSame(await observations(), [0, b])
})

t.test('a slot that its worker has left takes no more bookings of it', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  ref.tell({ type: 'fleet', fleet: fleetOf(['b/0', 1]) })
  t.equal(await book('late', 0), 'gone')
  ref.tell({ type: 'fleet', fleet: fleetOf(['b/0', 1], ['c/0', 0]) })
  t.equal(await book('later', 0), 'gone', 'another worker has the slot')
  t.strictSame(await load('c/0'), [0, 0, 0])
  t.equal(await book('c', 0, GATEWAY, { worker: 'c/0' }), 'booked')
  ref.tell({ type: 'fleet', fleet: fleetOf(['b/0', 1]) })
  t.equal(await book('back', 0), 'booked', 'a is back there, as the next fleet says')
  t.equal(await book('new', 5, GATEWAY, { worker: 'd/0' }), 'booked', 'a worker that the next fleet brings')
  ref.tell({ type: 'fleet', fleet: fleetOf(['a/0', 0], ['b/0', 1], ['d/0', 5]) })
  t.strictSame(
    [await load('a/0'), await load('d/0')],
    [
      [4, 70, 1],
      [4, 70, 1],
    ],
  )
  t.equal((await ref.ask({ type: 'loads' }, ASK)).stats.requests, 2)
})
