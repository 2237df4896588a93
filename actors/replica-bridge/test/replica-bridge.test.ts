/** Replicas in one simulated network: trackers with a bridge each, over a broker and over sockets. */

import t from 'tap'
import { EXPIRY_MS, endpointOf, fleetOf, NATS, type Replica, SERVER, World, ZMQ } from './replica-world.ts'

for (const [name, plane] of [
  ['a broker', NATS],
  ['sockets', ZMQ],
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
          { session: 'session of 0', worker: 'h:0/0' },
          { session: 'session of 1', worker: 'h:1/0' },
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

t.test('replicas of another group are strangers', async t => {
  const world = new World()
  const a = world.join(t, { kind: 'nats', servers: [SERVER], group: 'one' })
  const b = world.join(t, { kind: 'nats', servers: [SERVER], group: 'two' })
  await world.pass(3000)
  await world.book(a, 0)
  await world.pass(100)
  t.strictSame((await world.report(b)).replicas, [])
})
