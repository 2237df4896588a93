/** Bookings: how long they count, and who hears of it. */

import type { DrainedMessage } from '@homing/actors/directory'
import t from 'tap'
import type { LoadFellMessage, OwnOperationsMessage, TellAgainMessage } from '../src/index.ts'
import { ASK, BOOKED, drainingFleet, fleetOf, GATEWAY, PROMPT, start } from './tracker-world.ts'

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
