/** Replicas in one simulated network: trackers with a bridge each, over a broker and over sockets. */

import t from 'tap'
import type { ReplicaPlane } from '../src/index.ts'
import {
  ETCD,
  EXPIRY_MS,
  endpointOf,
  FOUND,
  fleetOf,
  NATS,
  type Replica,
  SERVER,
  World,
  ZMQ,
} from './replica-world.ts'

/** Replicas look once a second. */
const LOOK_MS = 1000
/** After which a life that says nothing is gone at the broker. */
const SILENCE_MS = 5000
const NOTHING = [
  [0, 0, 0],
  [0, 0, 0],
]

for (const [name, plane] of [
  ['a broker', NATS],
  ['sockets', ZMQ],
  ['sockets that are found at etcd', FOUND],
] as const) {
  t.test(
    `over ${name}: three replicas count what the others book, blocks that requests share once`,
    async t => {
      const world = new World()
      world.start(t, 3, plane)
      await world.pass(3000)
      const [a, b, c] = world.replicas as [Replica, Replica, Replica]
      const first = await world.book(a, 0)
      await world.book(a, 0)
      await world.book(b, 1)
      await world.pass(20)
      // The second prompt of a is that of the first: it adds no blocks.
      for (const replica of [a, b, c])
        t.strictSame(await world.loads(replica), [
          [2, 5, 120],
          [1, 5, 60],
        ])
      a.tracker.tell({ type: 'prefillComplete', decisionId: first })
      await world.pass(20)
      for (const replica of [a, b, c])
        t.strictSame(await world.loads(replica), [
          [2, 5, 60],
          [1, 5, 60],
        ])
      t.match(
        c.router.waiting.flatMap(({ bindings }) => bindings),
        [
          { session: 'session of 0', worker: 'h:0/0' },
          { session: 'session of 1', worker: 'h:1/0' },
          // Behind its first it is gathered for a while.
          { session: 'session of 0', worker: 'h:0/0' },
        ],
      )
      a.tracker.tell({ type: 'free', decisionId: first })
      await world.pass(20)
      t.strictSame(
        (await world.loads(c))[0],
        [1, 5, 60],
        'the blocks stay with the other request that has them',
      )
    },
  )

  t.test(`over ${name}: a session that a second worker has taken over is known to the others`, async t => {
    const world = new World()
    world.start(t, 3, plane)
    await world.pass(3000)
    const [a, b, c] = world.replicas as [Replica, Replica, Replica]
    const [first, second] = [await world.book(a, 0), await world.book(a, 1)]
    a.tracker.tell({ type: 'free', decisionId: first })
    a.tracker.tell({ type: 'free', decisionId: second, session: 'session of 0' })
    await world.pass(20)
    for (const { router } of [b, c])
      t.strictSame(router.waiting.flatMap(({ bindings }) => bindings).at(-1), {
        ...{ session: 'session of 0', worker: 'h:1/0', isMoved: true },
      })
    t.strictSame(await world.loads(b), NOTHING)
    t.match(await world.report(b), { malformed: 0 })
  })

  t.test(`over ${name}: what waits in one queue is known to the others`, async t => {
    const world = new World()
    world.start(t, 3, plane)
    await world.pass(3000)
    const [a, b, c] = world.replicas as [Replica, Replica, Replica]
    const row = { model: 'm', policyClass: 'default', requests: 3, promptTokens: 300, uncachedTokens: 200 }
    a.waiting.here = [row]
    b.waiting.here = [{ ...row, policyClass: 'batch' }]
    await world.pass(600)
    t.same(c.waiting.elsewhere, [row, { ...row, policyClass: 'batch' }])
    t.same(a.waiting.elsewhere, b.waiting.here)
    t.match(
      (await world.report(c)).replicas.map(({ waitingRequests }) => waitingRequests),
      [3, 3],
    )
    b.waiting.here = []
    await world.pass(1300)
    t.same(c.waiting.elsewhere, [row])
    world.network.disconnect(name === 'a broker' ? `nats://${SERVER}/any` : endpointOf(0))
    await world.pass(EXPIRY_MS + 7000)
    t.same(c.waiting.elsewhere, [], 'who cannot be heard does not count')
  })

  t.test(
    `over ${name}: one that comes late knows what is open, one that is cut off is forgotten and comes back`,
    async t => {
      const world = new World()
      world.start(t, 2, plane)
      await world.pass(3000)
      const [a, b] = world.replicas as [Replica, Replica]
      for (let i = 0; i < 3; i++) await world.book(a, i % 2)
      await world.pass(20)
      if (name === 'a broker') {
        const late = world.join(t, plane(2, 3))
        await world.pass(3000)
        t.strictSame(
          (await world.loads(late)).map(([requests]) => requests),
          [2, 1],
        )
      }
      const place = name === 'a broker' ? `nats://${SERVER}/any` : endpointOf(0)
      world.network.disconnect(place)
      await world.pass(EXPIRY_MS + 7000)
      t.strictSame(
        (await world.loads(b)).map(([requests]) => requests),
        [0, 0],
        'they expired',
      )
      await world.book(a, 0)
      world.network.reconnect(place)
      await world.pass(8000)
      t.strictSame(
        (await world.loads(b)).map(([requests]) => requests),
        [3, 1],
        'and are there again',
      )
      t.match(await world.report(b), { malformed: 0 })
    },
  )

  t.test(
    `over ${name}: one that says nothing for the expiry does not count, though its connection stands`,
    async t => {
      const world = new World()
      world.start(t, 2, plane)
      await world.pass(3000)
      const [a, b] = world.replicas as [Replica, Replica]
      await world.book(a, 0)
      await world.pass(20)
      t.strictSame(await world.loads(b), [
        [1, 5, 60],
        [0, 0, 0],
      ])
      world.network.faults.message = () => 'drop'
      await world.pass(EXPIRY_MS + LOOK_MS)
      t.strictSame(await world.loads(b), NOTHING, 'within the expiry and a look')
      world.network.faults.message = undefined
      await world.pass(3 * LOOK_MS)
      t.strictSame((await world.loads(b))[0], [1, 5, 60], 'it counts when it is heard again')
    },
  )

  t.test(
    `over ${name}: one that is heard, and gives no answer, does not count for longer than the expiry`,
    async t => {
      const world = new World()
      world.start(t, 2, plane)
      await world.pass(3000)
      const [a, b] = world.replicas as [Replica, Replica]
      const first = await world.book(a, 0)
      await world.pass(20)
      let isLost = true
      world.network.faults.message = endpoint =>
        isLost || /\.ask$|:5801$/.test(endpoint) ? 'drop' : 'deliver'
      a.tracker.tell({ type: 'free', decisionId: first })
      await world.pass(20)
      isLost = false
      await world.pass(2 * LOOK_MS)
      t.match((await world.report(b)).replicas, [{ state: 'asking', openBookings: 1 }], 'a gap was noticed')
      await world.pass(EXPIRY_MS)
      t.strictSame(await world.loads(b), NOTHING)
      await world.book(a, 1)
      world.network.faults.message = undefined
      await world.pass(6000)
      t.strictSame((await world.loads(b))[1], [1, 5, 60], 'it is still asked')
    },
  )

  t.test(
    `over ${name}: a bridge that is restarted loses no booking, and keeps none of who is gone`,
    async t => {
      const world = new World()
      world.start(t, 3, plane)
      await world.pass(3000)
      const [a, b, c] = world.replicas as [Replica, Replica, Replica]
      await world.book(a, 0)
      await world.book(b, 1)
      await world.pass(20)
      world.network.faults.message = () => 'drop'
      await a.system.shutdown()
      await c.restartBridge()
      await world.pass(20)
      t.match(await world.loads(c), [[1], [1]], 'both count while nothing is known')
      world.network.faults.message = undefined
      await world.pass(EXPIRY_MS + 3 * LOOK_MS)
      t.match(await world.loads(c), [[0], [1]], 'one of them is gone')
    },
  )

  t.test(`over ${name}: one that starts says that it knows the others when it does`, async t => {
    const world = new World()
    const a = world.join(t, plane(0, 2))
    const alone = await world.untilKnown(a)
    t.match(alone, { isKnown: true })
    t.ok(alone.ms < 500, `nobody else is there: ${alone.ms} ms`)
    for (let i = 0; i < 5; i++) await world.book(a, i % 2)
    const late = world.join(t, plane(1, 2))
    const { isKnown, ms } = await world.untilKnown(late)
    t.ok(isKnown && ms < 1000, `known after ${ms} ms`)
    t.match(await world.loads(late), [[3], [2]], 'at the first look')
    t.match(await world.untilKnown(late), { isKnown: true, ms: 1 }, 'and from then on')
  })

  t.test(`over ${name}: one that gets no answer does not wait for it for longer than 3 s`, async t => {
    const world = new World()
    const a = world.join(t, plane(0, 2))
    await world.pass(1000)
    await world.book(a, 0)
    world.network.faults.message = endpoint => (/\.ask$|:5801$/.test(endpoint) ? 'drop' : 'deliver')
    const late = world.join(t, plane(1, 2))
    const { isKnown, ms } = await world.untilKnown(late)
    t.notOk(isKnown)
    t.ok(ms >= 3000 && ms <= 3030, `${ms} ms`)
  })

  t.test(`over ${name}: one that leaves in good order is forgotten at once`, async t => {
    const world = new World()
    world.start(t, 2, plane)
    await world.pass(3000)
    const [a, b] = world.replicas as [Replica, Replica]
    await world.book(a, 0)
    await world.pass(20)
    t.match(await world.loads(b), [[1], [0]])
    await a.system.stop(a.bridge)
    await world.pass(20)
    t.strictSame(await world.loads(b), NOTHING)
  })

  t.test(`over ${name}: what is told to another replica reaches the one that booked, and all`, async t => {
    const world = new World()
    world.start(t, 3, plane)
    await world.pass(3000)
    const [a, b, c] = world.replicas as [Replica, Replica, Replica]
    const id = await world.book(a, 0)
    await world.pass(20)
    b.tracker.tell({ type: 'prefillComplete', decisionId: id })
    await world.pass(20)
    for (const replica of [a, b, c]) t.strictSame((await world.loads(replica))[0], [1, 5, 0])
    const again = {
      decisionId: id,
      gateway: { name: 'g', life: 'one' },
      worker: 'h:1/0',
      workerSlot: 1,
      stepTokens: 8192,
    }
    const rest = { sequenceHashes: new Int32Array(0), promptTokens: 1, prefillTokens: 1, isStream: true }
    const outcome = c.tracker.ask({ type: 'book', booking: { ...again, ...rest } }, { timeout: 1000 })
    await world.pass(1)
    t.equal(await outcome, 'duplicate', 'an id is open once in all of them')
    // Its first word of it finds no room, and is said again.
    a.isFull = true
    c.tracker.tell({ type: 'free', decisionId: id })
    await world.pass(20)
    t.strictSame((await world.loads(c))[0], [1, 5, 0])
    a.isFull = false
    await world.pass(2 * LOOK_MS)
    for (const replica of [a, b, c]) t.strictSame(await world.loads(replica), NOTHING)
  })

  t.test(`over ${name}: one that fails and is back says no good-bye`, async t => {
    const world = new World()
    world.start(t, 2, plane)
    await world.pass(3000)
    const [a, b] = world.replicas as [Replica, Replica]
    await world.book(a, 0)
    await world.pass(20)
    let hasFailed = false
    const fails = (): void => {
      hasFailed = true
      throw new Error('planted')
    }
    a.bridge.tell({ type: 'whenKnown', reply: fails as never })
    for (let i = 0; i < 300; i++) {
      await world.pass(5)
      const [[requests] = []] = await world.loads(b)
      if (requests !== 1) t.fail(`${requests} requests after ${5 * i} ms`)
    }
    t.ok(hasFailed)
    t.match(await world.loads(b), [[1], [0]])
  })

  t.test(`over ${name}: lost messages are noticed, and nothing stays`, async t => {
    const world = new World()
    world.start(t, 2, plane)
    await world.pass(3000)
    const [a, b] = world.replicas as [Replica, Replica]
    const ids: string[] = []
    let sent = 0
    world.network.faults.message = () => (++sent % 3 === 0 ? 'drop' : 'deliver')
    for (let i = 0; i < 30; i++) {
      ids.push(await world.book(a, i % 2))
      if (i % 2 === 1) a.tracker.tell({ type: 'free', decisionId: ids.shift()! })
      await world.pass(5)
    }
    world.network.faults.message = undefined
    await world.pass(8000)
    t.strictSame(await world.loads(b), await world.loads(a))
    t.ok(
      (await world.report(b)).replicas.some(({ gaps }) => gaps > 0),
      'a gap was noticed',
    )
    for (const id of ids) a.tracker.tell({ type: 'free', decisionId: id })
    await world.pass(100)
    for (const replica of [a, b])
      t.strictSame(await world.loads(replica), [
        [0, 0, 0],
        [0, 0, 0],
      ])
  })
}

t.test('what the tracker had no room for is told again', async t => {
  const world = new World()
  world.start(t, 2, NATS)
  await world.pass(3000)
  const [a, b] = world.replicas as [Replica, Replica]
  const first = await world.book(a, 0)
  await world.pass(20)
  b.isFull = true
  a.tracker.tell({ type: 'free', decisionId: first })
  await world.book(a, 1)
  await world.pass(20)
  t.match(await world.loads(b), [[1], [0]], 'it was not told')
  b.isFull = false
  await world.pass(2 * LOOK_MS)
  t.match(await world.loads(b), [[0], [1]])
  b.isFull = true
  a.transport.close()
  await world.pass(20)
  t.match(await world.loads(b), [[0], [1]], 'nor that the other has left')
  b.isFull = false
  await world.pass(2 * LOOK_MS)
  t.strictSame(await world.loads(b), NOTHING)
})

t.test('one that dies without a word is forgotten over a broker, and leaves no row', async t => {
  const world = new World()
  world.start(t, 2, NATS)
  await world.pass(3000)
  const [a, b] = world.replicas as [Replica, Replica]
  await world.book(a, 0)
  await world.pass(20)
  world.network.faults.message = () => 'drop'
  await a.system.shutdown()
  a.transport.close()
  await world.pass(2 * SILENCE_MS)
  world.network.faults.message = undefined
  await world.pass(2 * LOOK_MS)
  t.strictSame((await world.report(b)).replicas, [])
  t.strictSame(await world.loads(b), NOTHING)
})

t.test(
  'one that leaves in good order is forgotten at once, and its worker that is not known is not booked',
  async t => {
    const world = new World()
    world.start(t, 1, NATS)
    const [a] = world.replicas as [Replica]
    const small = world.join(t, NATS(1, 2), 1)
    await world.pass(3000)
    await world.book(a, 0)
    await world.book(a, 1)
    await world.pass(20)
    t.strictSame(
      (await world.loads(small)).map(([requests]) => requests),
      [1],
      'the other worker is not known here',
    )
    small.tracker.tell({ type: 'fleet', fleet: fleetOf(2) })
    await world.pass(1500)
    t.strictSame(
      (await world.loads(small)).map(([requests]) => requests),
      [1, 1],
      'now it is',
    )
    a.transport.close()
    await world.pass(50)
    t.strictSame(
      (await world.loads(small)).map(([requests]) => requests),
      [0, 0],
    )
  },
)

t.test('a booking of another replica is not freed for silence while that replica lives', async t => {
  const world = new World()
  world.start(t, 2, NATS)
  await world.pass(3000)
  const [a, b] = world.replicas as [Replica, Replica]
  const id = await world.book(a, 0)
  for (let i = 0; i < 5; i++) {
    await world.pass(10_000)
    a.tracker.tell({ type: 'touch', decisionId: id })
  }
  t.strictSame((await world.loads(b))[0], [1, 5, 60])
})

t.test('without a broker one that starts does not wait for longer than 3 s', async t => {
  const world = new World()
  world.network.disconnect(`nats://${SERVER}/any`)
  const { isKnown, ms } = await world.untilKnown(world.join(t, NATS(0, 1)))
  t.notOk(isKnown)
  t.ok(ms >= 3000 && ms <= 3030, `${ms} ms`)
})

t.test('replicas that found each other at etcd go on while it is away, and find late ones after', async t => {
  const world = new World()
  world.start(t, 2, FOUND)
  await world.pass(3000)
  const [a, b] = world.replicas as [Replica, Replica]
  await world.book(a, 0)
  await world.pass(20)
  world.network.disconnect(`nats://${ETCD}/any`)
  await world.pass(EXPIRY_MS + 2 * SILENCE_MS)
  t.match(await world.loads(b), [[1], [0]], 'they still hear each other')
  await world.book(a, 1)
  await world.pass(20)
  t.match(await world.loads(b), [[1], [1]])
  const late = world.join(t, FOUND(2, 3))
  const { isKnown, ms } = await world.untilKnown(late)
  t.notOk(isKnown)
  t.ok(ms >= 3000 && ms <= 3030, `${ms} ms`)
  world.network.reconnect(`nats://${ETCD}/any`)
  await world.pass(2 * LOOK_MS)
  t.match(await world.loads(late), [[1], [1]])
  await world.book(late, 0)
  await world.pass(20)
  for (const replica of [a, b]) t.match(await world.loads(replica), [[2], [1]])
})

t.test('one that dies without a word is forgotten where it registered, and comes back as itself', async t => {
  const world = new World()
  world.start(t, 2, FOUND)
  await world.pass(3000)
  const [a, b] = world.replicas as [Replica, Replica]
  await world.book(a, 0)
  await world.pass(20)
  world.network.faults.message = () => 'drop'
  await a.system.shutdown()
  a.transport.close()
  await world.pass(EXPIRY_MS + LOOK_MS)
  t.strictSame(await world.loads(b), NOTHING)
  await world.pass(2 * SILENCE_MS)
  t.strictSame((await world.report(b)).replicas, [])
  world.network.faults.message = undefined
  const again = world.join(t, FOUND(0, 2))
  await world.pass(2 * LOOK_MS)
  await world.book(again, 1)
  await world.pass(20)
  t.match(await world.loads(b), [[0], [1]])
  t.match(
    (await world.report(b)).replicas.map(({ endpoint, state }) => [endpoint, state]),
    [[endpointOf(0), 'live']],
  )
})

t.test('two routers that register one endpoint: the log says so, and not where one begins anew', async t => {
  const world = new World()
  const told = () => world.log.lines.filter(({ text }) => text.includes('registers the endpoint of this one'))
  const [a] = [world.join(t, FOUND(0, 2)), world.join(t, FOUND(1, 2))]
  await world.pass(1000)
  for (let i = 0; i < 3; i++)
    a.bridge.tell({
      type: 'whenKnown',
      reply: (() => {
        throw new Error('planted')
      }) as never,
    })
  await world.pass(20_000)
  t.strictSame(told(), [])
  world.network
    .transport()
    .messages.present(
      { endpoint: `etcd://${ETCD}/homing.replicas.test`, card: Buffer.from(endpointOf(0)) },
      { present() {}, gone() {} },
    )
  await world.pass(30_000)
  t.equal(told().length, 1)
})

t.test('what registers with something else than an endpoint of another router is not followed', async t => {
  const world = new World()
  const at = { endpoint: `etcd://${ETCD}/homing.replicas.test` }
  const handler = { present() {}, gone() {} }
  const a = world.join(t, FOUND(0, 1))
  for (const card of [
    '',
    'x',
    'tcp://*:5800',
    'tcp://a b:1',
    'ipc:///tmp/x',
    'tcp://10.0.0.1',
    endpointOf(0),
  ])
    world.network.transport().messages.present({ ...at, card: Buffer.from(card) }, handler)
  await world.pass(3000)
  t.strictSame((await world.report(a)).replicas, [])
})

t.test('replicas of another group are strangers', async t => {
  const world = new World()
  const a = world.join(t, { kind: 'nats', servers: [SERVER], group: 'one' })
  const b = world.join(t, { kind: 'nats', servers: [SERVER], group: 'two' })
  await world.pass(3000)
  await world.book(a, 0)
  await world.pass(100)
  t.strictSame((await world.report(b)).replicas, [])
})

t.test('a replica is followed and forgotten at run time', async t => {
  const world = new World()
  const plane = (port: number): ReplicaPlane => ({
    kind: 'zmq',
    endpoint: `tcp://10.0.0.${port}:5800`,
    others: [],
  })
  for (const port of [1, 2]) world.join(t, plane(port))
  const [a, b] = world.replicas as [Replica, Replica]
  await world.pass(20)
  const ask = async (replica: Replica, type: 'follow' | 'unfollow', port: number) => {
    const asked = replica.bridge.ask({ type, endpoint: `tcp://10.0.0.${port}:5800` }, { timeout: 1000 })
    await world.pass(1)
    return asked
  }
  t.equal(await ask(b, 'follow', 2), 'itself')
  t.equal(await ask(b, 'follow', 1), 'followed')
  await world.pass(20)
  await world.book(a, 0)
  await world.pass(20)
  t.match(await world.loads(b), [[1], [0]])
  t.equal(await ask(b, 'unfollow', 1), true)
  t.equal(await ask(b, 'unfollow', 1), false)
  await world.pass(20)
  t.strictSame(await world.loads(b), NOTHING)
})

t.test('a bridge that is told whom to follow follows these and no others', async t => {
  const world = new World()
  world.start(t, 3, i => ({ kind: 'zmq', endpoint: endpointOf(i), others: i === 0 ? [endpointOf(1)] : [] }))
  const [a, b, c] = world.replicas as [Replica, Replica, Replica]
  await world.pass(20)
  await world.book(b, 0)
  await world.book(c, 1)
  await world.pass(20)
  t.strictSame(
    (await world.loads(a)).map(([requests]) => requests),
    [1, 0],
  )
  a.bridge.tell({ type: 'followOnly', endpoints: [endpointOf(0), endpointOf(2)] })
  await world.pass(100)
  t.strictSame(
    (await world.loads(a)).map(([requests]) => requests),
    [0, 1],
    'not itself, and no more the other',
  )
  t.strictSame(
    (await world.report(a)).replicas.map(({ endpoint }) => endpoint),
    [endpointOf(2)],
  )
})
