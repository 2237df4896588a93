/** Two worker keys that name one socket, found by the directory's probes. */

import t from 'tap'
import { type DirectoryWorld, world } from './directory-world.ts'

const source = (rank: number, port: number, replayPort: number) => ({
  data_parallel_rank: rank,
  endpoint: `tcp://*:${port}`,
  replay_endpoint: `tcp://*:${replayPort}`,
  topic: '',
})

/** Engines on one host, at ports from 8001, that tell of these sockets. */
async function found(w: DirectoryWorld, ...sources: readonly (readonly object[])[]) {
  for (const [at, events] of sources.entries()) {
    const ranks = Math.max(1, events.length)
    await w.engine('10.0.0.1', { events, ranks }, 8001 + at)
  }
}

/** Of each key: its trust, and whether its events are followed. */
async function seen(w: DirectoryWorld) {
  const report = w.ref.ask({ type: 'describe' }, { timeout: 5000 })
  await w.system.settle()
  const { fleet, sources } = await report
  return fleet.workers.flatMap(({ keys }) =>
    keys.map(({ key, workerSlot, trust, trustReason }) => {
      return { key, isFollowed: workerSlot in sources, trust, reason: trustReason }
    }),
  )
}

const WARNING = 'two worker keys name one socket; the events of neither are followed'

t.test(
  'of two workers that are found to publish on one port neither is followed, and both names are told',
  async t => {
    const w = await world(t)
    await w.publisher('tcp://10.0.0.1:5557')
    await found(w, [source(0, 5557, 6557)], [source(0, 5557, 6657)], [source(0, 5657, 6757)])
    await w.begin(['http://10.0.0.1:8001', 'http://10.0.0.1:8002', 'http://10.0.0.1:8003'])
    const [first, second, third] = await seen(w)
    t.match(first, { isFollowed: false, trust: 'approximate' })
    t.match(second, { isFollowed: false, trust: 'approximate' })
    t.match(third, { isFollowed: true })
    t.match(
      first!.reason,
      /^names tcp:\/\/10\.0\.0\.1:5557 for its events, which 10\.0\.0\.1:8002\/0 names for its events, .* ports of its own; /,
    )
    t.match(second!.reason, /which 10\.0\.0\.1:8001\/0 names for its events/)
    const warnings = w.log.lines.filter(({ text }) => text === WARNING)
    t.match(warnings, [
      {
        level: 'warn',
        fields: { key: '10.0.0.1:8002/0', rival: '10.0.0.1:8001/0', endpoint: 'tcp://10.0.0.1:5557' },
      },
    ])
    await w.system.advance('1m')
    t.equal(
      w.log.lines.filter(({ text }) => text === WARNING).length,
      1,
      'it is told once, not at each probe',
    )
  },
)

t.test('a port that is given and one that is found clash as well, across ranks and uses', async t => {
  for (const [url, sources, firstSays, secondSays] of [
    ['http://10.0.0.1:8001?events=5557&ranks=2', [source(0, 5558, 6558)], [true, false], [false]],
    ['http://10.0.0.1:8001?events=5557&replay=6557', [source(0, 6557, 7557)], [false], [false]],
    ['http://10.0.0.1:8001?events=5557&replay=6557', [source(0, 5657, 5557)], [false], [false]],
    [
      'http://10.0.0.1:8001?events=5557',
      [source(0, 5657, 6657), source(1, 5657, 6658)],
      [true],
      [false, false],
    ],
    ['http://10.0.0.1:8001?events=5557', [source(0, 5657, 5657)], [true], [false]],
    ['http://10.0.0.1:8001?events=5557', [source(0, 5657, 6657)], [true], [true]],
  ] as const) {
    const w = await world(t)
    await found(w, [], sources)
    await w.begin([url, 'http://10.0.0.1:8002'])
    t.strictSame(
      (await seen(w)).map(({ isFollowed }) => isFollowed),
      [...firstSays, ...secondSays],
      `${url} and ${JSON.stringify(sources)}`,
    )
  }
})

t.test('both are followed again when one of them has moved', async t => {
  const w = await world(t)
  await found(w, [source(0, 5557, 6557)], [source(0, 5557, 6557)])
  await w.begin(['http://10.0.0.1:8001', 'http://10.0.0.1:8002'])
  t.strictSame(
    (await seen(w)).map(({ isFollowed }) => isFollowed),
    [false, false],
  )
  for (const message of w.indexers[0]!.waiting) if (message.type === 'release') message.reply('released')
  w.answers.set('10.0.0.1:8002', { events: [source(0, 5657, 6657)], startSeconds: 2000 })
  await w.system.advance('1m')
  t.strictSame(
    (await seen(w)).map(({ isFollowed }) => isFollowed),
    [true, true],
  )
})

t.test(
  'a worker that comes up on the port of another takes its trust away, and is not followed itself',
  async t => {
    const w = await world(t)
    await w.publisher('tcp://10.0.0.1:5557')
    await found(w, [source(0, 5557, 6557)])
    await w.begin(['http://10.0.0.1:8001', 'http://10.0.0.1:8002'])
    t.match(await seen(w), [{ isFollowed: true }, { isFollowed: false, trust: 'none' }])
    await w.engine('10.0.0.1', { events: [source(0, 5557, 6557)] }, 8002)
    await w.system.advance('1m')
    t.match(await seen(w), [
      { isFollowed: false, trust: 'approximate' },
      { isFollowed: false, trust: 'approximate' },
    ])
  },
)

t.test('the port of a rank or an engine that is gone can be followed for another', async t => {
  for (const afterwards of [
    { events: [source(0, 5557, 6557)], ranks: 1 },
    { events: [], ranks: 1 },
  ]) {
    const w = await world(t)
    await found(w, [source(0, 5557, 6557), source(1, 5558, 6558)], [source(0, 5558, 6558)])
    await w.begin(['http://10.0.0.1:8001', 'http://10.0.0.1:8002'])
    t.strictSame(
      (await seen(w)).map(({ isFollowed }) => isFollowed),
      [true, false, false],
    )
    w.answers.set('10.0.0.1:8001', { ...afterwards, startSeconds: 2000 })
    for (let minute = 0; minute < 3; minute++) {
      await w.system.advance('1m')
      for (const { waiting } of w.indexers)
        for (const message of waiting) if (message.type === 'release') message.reply('released')
    }
    const forgotten = w.indexers[0]!.waiting.filter(({ type }) => type === 'forgetSeparated')
    // Said again until the indexer has released the slot.
    t.ok(forgotten.length > 0)
    for (const message of forgotten) t.match(message, { workerSlot: 2, epoch: 1 })
    t.match(await seen(w), [
      { key: '10.0.0.1:8001/0', isFollowed: afterwards.events.length > 0 },
      { key: '10.0.0.1:8002/0', isFollowed: true },
    ])
  }
})

t.test('a worker that is down keeps its port: it may come back and publish there', async t => {
  const w = await world(t)
  const first = await w.engine('10.0.0.1', { events: [source(0, 5557, 6557)] }, 8001)
  await w.engine('10.0.0.1', { events: [source(0, 5557, 6557)] }, 8002)
  await w.begin(['http://10.0.0.1:8001', 'http://10.0.0.1:8002'])
  await first.close(0)
  await w.system.advance('2m')
  t.equal(w.worker().state, 'down')
  t.match(await seen(w), [{ isFollowed: false }, { isFollowed: false }])
})
