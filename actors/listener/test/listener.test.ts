import { recordingLog } from '@homing/base'
import { decodeKvBatch } from '@homing/protocol'
import t from 'tap'
import { LISTENER_LIMITS } from '../src/index.ts'
import { EVENTS, listenerWorld } from './listener-world.ts'

t.test('nothing was published: live, and exact', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(world.replayRequests, [0])
  t.match(await world.status(), { state: 'live', epoch: 1, lastSequence: undefined })
})

t.test('an engine that is not there: connecting, trust none, until it comes', async t => {
  const world = await listenerWorld(t)
  world.stopEngine()
  world.startListener()
  await world.system.advance('1m')
  t.match(await world.status(), { state: 'connecting' })
  t.match(world.trust(), /^none: no connection to tcp:\/\/10.0.0.1:5557 yet/)
  await world.startEngine()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
})

for (const replayForm of ['topic', 'plain'] as const) {
  t.test(`history is replayed from 0, then live goes on (${replayForm} framing)`, async t => {
    const world = await listenerWorld(t, { replayForm })
    world.lose(20)
    world.startListener()
    await world.system.settle()
    t.match(world.trust(), /^exact/)
    world.publish(5)
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    t.match(await world.status(), { state: 'live', lastSequence: 24, batches: 25, gaps: 0 })
    t.ok(world.directory.waiting.every(({ trust }, i) => trust !== 'exact' || i > 0))
  })
}

t.test('live batches wait for the replay, and none is applied twice', async t => {
  const world = await listenerWorld(t)
  world.lose(10)
  world.replayEnds = false
  world.losesReply = sequence => sequence >= 8
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  t.match(await world.status(), { state: 'recovering', lastSequence: 7 })
  world.losesReply = () => false
  world.replayEnds = true
  await world.system.advance(LISTENER_LIMITS.replayTimeoutMs)
  t.match(await world.status(), { state: 'live', lastSequence: 12, batches: 13 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('batches lost inside a replay are asked for again, from the first one missing', async t => {
  const world = await listenerWorld(t)
  world.lose(1500)
  world.losesReply = (sequence, request) =>
    request === 1 ? sequence >= 500 && sequence < 800 : request === 2 && sequence > 1000 && sequence < 1100
  world.startListener()
  await world.system.settle()
  t.strictSame(
    world.replayRequests,
    [0, 499, 1000, 1499],
    'the last batch is repeated, as proof of the same life',
  )
  t.match(await world.status(), { state: 'live', lastSequence: 1499, batches: 1500, replays: 4, restarts: 0 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('a long replay may lack its end: it is asked again until nothing new comes', async t => {
  const world = await listenerWorld(t)
  for (let i = 0; i < 1200; i++) world.source.publish()
  world.losesReply = (sequence, request) => request === 1 && sequence >= 1100
  world.startListener()
  await world.system.settle()
  t.strictSame(world.replayRequests, [0, 1099, 1199])
  t.match(await world.status(), { state: 'live', lastSequence: 1199 })
  t.strictSame(await world.held(), world.cached())
  t.strictSame(world.trusts(), ['none', 'exact'], 'not before')
})

t.test('a replay without end marker ends by silence', async t => {
  const world = await listenerWorld(t)
  world.lose(10)
  world.replayEnds = false
  world.startListener()
  await world.system.advance(LISTENER_LIMITS.replayTimeoutMs)
  t.match(await world.status(), { state: 'live', lastSequence: 9 })
  t.match(world.trust(), /^exact/)
})

t.test('a replay that has begun and falls silent is asked again soon', async t => {
  const world = await listenerWorld(t, { limits: { replayTimeoutMs: 60_000 } })
  world.lose(1200)
  world.losesReply = (sequence, request) => request === 1 && sequence >= 1100
  world.replayEnds = false
  world.startListener()
  const { replaySilenceMs } = LISTENER_LIMITS
  await world.system.advance(replaySilenceMs)
  t.strictSame(world.replayRequests, [0, 1099])
  world.replayEnds = true
  await world.system.advance(replaySilenceMs)
  t.strictSame(world.replayRequests, [0, 1099, 1199], 'until nothing new comes')
  t.match(await world.status(), { state: 'live', lastSequence: 1199 })
  t.match(world.trust(), /^exact/)
})

t.test('a replay buffer that does not reach back gives partial trust, and says why', async t => {
  const world = await listenerWorld(t, { keptMax: 5 })
  world.lose(20)
  world.startListener()
  await world.system.settle()
  t.equal(world.trust(), "partial: older blocks are unknown: the engine's replay begins at sequence 15")
  t.match(await world.status(), { state: 'live', lastSequence: 19, batches: 5 })
})

t.test('without a replay socket: exact when the first batch is number 0, else partial', async t => {
  for (const missed of [0, 3]) {
    const world = await listenerWorld(t, { hasReplay: false })
    world.startListener()
    await world.system.settle()
    world.lose(missed)
    world.publish(4)
    await world.system.settle()
    if (missed === 0) {
      t.match(world.trust(), /^exact/)
      t.strictSame(await world.held(), world.cached())
    } else {
      t.match(world.trust(), /^partial: .* first batch seen was 3 and no replay endpoint is known/)
    }
  }
})

t.test(
  'a replay socket that does not answer: partial after bounded attempts; an answer later heals',
  async t => {
    const world = await listenerWorld(t)
    world.replayAnswers = false
    world.lose(4)
    world.startListener()
    await world.system.settle()
    world.publish(3)
    await world.system.advance('30s')
    t.equal(world.replayRequests.length, LISTENER_LIMITS.replayAttemptsMax)
    t.equal(world.trust(), 'partial: older blocks are unknown: the replay socket does not answer')
    t.match(await world.status(), { state: 'live', lastSequence: 6, batches: 3 })
    world.replayAnswers = true
    await world.system.advance(LISTENER_LIMITS.replayPauseMs)
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('a live batch with number 0 makes the replay needless', async t => {
  const world = await listenerWorld(t)
  world.replayAnswers = false
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^none/)
  world.publish(2)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('a gap is replayed from the hole, and trust is exact again', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(5)
  world.lose(2)
  world.publish(1)
  await world.system.settle()
  t.strictSame(world.replayRequests, [0, 4])
  t.match(await world.status(), { state: 'live', gaps: 1, lastSequence: 7, batches: 8, epoch: 1 })
  t.strictSame(await world.held(), world.cached())
  t.strictSame(world.trusts(), ['none', 'exact', 'partial', 'exact'])
})

t.test('a gap that the replay no longer reaches: rebuilt from what it has, partial', async t => {
  const world = await listenerWorld(t, { keptMax: 3 })
  world.startListener()
  await world.system.settle()
  world.publish(5)
  world.lose(6)
  // Nothing that is left to replay clears the cache.
  for (let i = 0; i < 2; i++) world.source.publishStore()
  world.send(world.source.publishStore())
  await world.system.advance('10s')
  t.match(world.trust(), /^partial: .*replay begins at sequence 11/)
  t.match(await world.status(), { state: 'live', lastSequence: 13, epoch: 2 })
})

t.test('a replay that begins after the hole will never fill it: rebuilt at once', async t => {
  const world = await listenerWorld(t, { keptMax: 3 })
  world.startListener()
  await world.system.settle()
  world.publish(5)
  world.lose(6)
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', lastSequence: 11, epoch: 2 })
  t.strictSame(world.replayRequests, [0, 4, 0])
})

t.test('a gap without replay: forgotten, and begun anew from the next batch, partial', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  world.startListener()
  await world.system.settle()
  world.publish(5)
  world.lose(1)
  world.publish(2)
  await world.system.settle()
  t.match(world.trust(), /^partial/)
  t.match(await world.status(), { state: 'live', lastSequence: 7, epoch: 2, gaps: 1 })
  const cached = new Set(world.cached())
  t.ok(
    (await world.held()).every(hash => cached.has(hash)),
    'what counts as held is held',
  )
})

t.test('too many live batches during a replay are given up, and asked for again', async t => {
  const world = await listenerWorld(t, { limits: { pendingBatchesMax: 4 } })
  world.lose(5)
  world.replayEnds = false
  world.losesReply = sequence => sequence >= 4
  world.startListener()
  await world.system.settle()
  world.publish(20)
  await world.system.settle()
  t.match(await world.status(), { state: 'recovering', droppedBatches: 16 })
  world.losesReply = () => false
  world.replayEnds = true
  await world.system.advance('5s')
  t.match(await world.status(), { state: 'live', lastSequence: 24, batches: 25 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('frames that its own mailbox refuses are a gap, never silent', async t => {
  const world = await listenerWorld(t, { mailboxCapacity: 16 })
  world.startListener()
  await world.system.settle()
  world.publish(100)
  await world.system.settle()
  world.publish(1)
  await world.system.advance('10s')
  const status = await world.status()
  t.match(status, { state: 'live', lastSequence: 100 })
  t.ok(status.gaps >= 1)
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('batches that come again are dropped and counted', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  const batches = Array.from({ length: 5 }, () => world.source.publish())
  world.send(...batches)
  world.send(batches[4]!, batches[2]!, batches[3]!)
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', duplicates: 3, batches: 6, restarts: 0, gaps: 0 })
  t.strictSame(await world.held(), world.cached())
})

t.test('a batch that was overtaken fills its hole; exact it is once the replay has told both', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(3)
  const [third, fourth, fifth] = [world.source.publish(), world.source.publish(), world.source.publish()]
  world.replayAnswers = false
  world.send(fourth, fifth, third)
  await world.system.settle()
  t.match(await world.status(), { lastSequence: 5, gaps: 1, restarts: 0, epoch: 1 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^partial: the replay .* has not yet repeated an event/)
  world.replayAnswers = true
  await world.system.advance('5s')
  t.match(await world.status(), { state: 'live', lastSequence: 5, restarts: 0, epoch: 1 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('an engine that restarts in place is noticed by its sequence, and rebuilt', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(8)
  await world.system.settle()
  world.source.restart()
  world.publish(2)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', restarts: 1, epoch: 2, lastSequence: 1 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
})

t.test('an engine that restarts in place before its second batch is noticed by its content', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(1)
  await world.system.settle()
  world.source.restart()
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', restarts: 1, epoch: 2, lastSequence: 0, batches: 2 })
  t.strictSame(await world.held(), world.cached())
})

t.test('a replay that tells another history is a restart', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  world.source.restart()
  world.lose(9)
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', restarts: 1, lastSequence: 9, batches: 13 })
  t.strictSame(await world.held(), world.cached())
})

t.test('the word of a restart from elsewhere clears and rebuilds', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  world.listener!.tell({ type: 'engineRestarted' })
  await world.system.settle()
  t.match(await world.status(), { state: 'live', restarts: 1, epoch: 2 })
  t.strictSame(await world.held(), world.cached())
})

t.test('a socket that goes down clears at once; one that comes back rebuilds from replay', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  do world.publish(1)
  while (world.cached().length === 0 || world.source.lastSequence < 9)
  await world.system.settle()
  t.not((await world.held()).length, 0)
  world.network.disconnect(EVENTS)
  await world.system.settle()
  t.strictSame(await world.held(), [])
  t.equal(world.trust(), 'none: event socket is down')
  t.match(await world.status(), { state: 'disconnected' })

  world.lose(3)
  world.network.reconnect(EVENTS)
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.match(await world.status(), { state: 'live', lastSequence: world.source.lastSequence, epoch: 3 })
  t.strictSame(await world.held(), world.cached())
})

t.test('another process behind the same endpoint is rebuilt', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(10)
  world.stopEngine()
  await world.system.settle()
  world.source.restart()
  await world.startEngine()
  world.publish(2)
  await world.system.advance('2s')
  t.match(world.trust(), /^exact/)
  t.match(await world.status(), { state: 'live', lastSequence: 1 })
  t.strictSame(await world.held(), world.cached())
})

t.test(
  'a batch that fell between replay and subscription is found although the engine is silent',
  async t => {
    const world = await listenerWorld(t)
    world.startListener()
    await world.system.settle()
    world.lose(1)
    await world.system.advance(LISTENER_LIMITS.settleMs)
    t.strictSame(await world.held(), world.cached())
    t.match(await world.status(), { state: 'live', lastSequence: 0 })
  },
)

t.test('a gap while a replay only makes sure is a gap: trust falls at once', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  world.publish(3)
  await world.system.settle()
  world.replayAnswers = false
  await world.system.advance(LISTENER_LIMITS.settleMs)
  t.match(await world.status(), { state: 'recovering', lastSequence: 2 })
  t.match(world.trust(), /^exact/)
  world.lose(1)
  world.publish(1)
  await world.system.settle()
  t.equal(world.trust(), 'partial: catching up from sequence 3')
  t.match(await world.status(), { gaps: 1 })
  world.replayAnswers = true
  await world.system.advance('10s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('garbage is counted and skipped, and the next good batch applied', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(1)
  world.sendFrames([new Uint8Array([1, 2, 3])])
  world.sendFrames([new Uint8Array(0), new Uint8Array(4), new Uint8Array(0)])
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', malformedFrames: 2, lastSequence: 1, gaps: 0 })
  t.match(world.trust(), /^exact/)

  world.send(world.source.publishGarbage())
  world.publish(1)
  await world.system.settle()
  t.match(await world.status(), { state: 'live', malformedFrames: 3, lastSequence: 3, gaps: 0 })
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^partial: 1 batches could not be read/)
})

t.test('events under another topic are ignored and counted', async t => {
  const world = await listenerWorld(t, { topic: 'kv', engineTopic: 'kv-events' })
  world.startListener()
  await world.system.settle()
  world.publish(2)
  await world.system.settle()
  t.match(await world.status(), { batches: 0, foreignTopics: 2 })
})

t.test('a batch that names another rank belongs to its socket, and is counted', async t => {
  const world = await listenerWorld(t)
  world.startListener({ dpRank: 3, key: 'engine:8000/3' })
  await world.system.settle()
  world.publish(2)
  await world.system.settle()
  t.match(await world.status(), { batches: 2, foreignRanks: 2 })
  t.strictSame(await world.held(), world.cached())
})

t.test('the block size of the first store is reported when it was not known', async t => {
  const world = await listenerWorld(t, { seed: 5 })
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  t.equal(world.directory.waiting.at(-1)!.blockSizeTokens, 2)
  const other = await listenerWorld(t, { seed: 5 })
  other.startListener({ blockSizeTokens: 16 })
  await other.system.settle()
  other.publish(3)
  await other.system.settle()
  t.equal(other.directory.waiting.at(-1)!.blockSizeTokens, 2)
})

t.test('an indexer that begins anew has its sources rebuilt', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(5)
  await world.system.settle()
  // As after a restart: the slot is not open.
  const released = world.indexer.ask({ type: 'release', workerSlot: 0 }, { timeout: 1000 })
  await world.system.settle()
  await released
  world.publish(1)
  await world.system.settle()
  t.match(world.trust(), /^none: a rebuild is due/)
  await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('readers see what the indexer applied', async t => {
  const world = await listenerWorld(t)
  world.startListener()
  await world.system.settle()
  world.publish(10)
  await world.system.settle()
  const status = world.indexer.ask({ type: 'status' }, { timeout: 1000 })
  await world.system.settle()
  t.equal((await status).blocksHeld[0], world.cached().length)
})

t.test('a cleared cache makes the history whole, whatever was missing or unreadable before', async t => {
  const world = await listenerWorld(t, { hasReplay: false })
  world.startListener()
  await world.system.settle()
  world.lose(3)
  world.send(world.source.publishStore())
  await world.system.settle()
  t.match(world.trust(), /^partial: older blocks are unknown/)
  t.match(world.directory.waiting.at(-1), { isSuffix: true, epoch: 1 })
  world.send(world.source.publishClear(), world.source.publishStore())
  await world.system.settle()
  t.equal(world.trust(), 'exact: every batch since the engine last cleared its cache is applied')
  t.strictSame(await world.held(), world.cached())

  world.send(world.source.publishGarbage())
  await world.system.settle()
  t.match(world.trust(), /^partial: 1 batches could not be read/)
  t.match(world.directory.waiting.at(-1), { isSuffix: false })
  world.send(world.source.publishClear())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
})

t.test('a replay that lost too much for a time is asked again later', async t => {
  const world = await listenerWorld(t)
  for (let i = 0; i < 20; i++) world.send(world.source.publishStore())
  world.losesReply = sequence => sequence === 10
  world.startListener()
  await world.system.settle()
  world.send(world.source.publishStore())
  await world.system.advance('30s')
  t.match(world.trust(), /^partial: .*the replay does not reach the live events/)
  world.losesReply = () => false
  await world.system.advance(LISTENER_LIMITS.replayPauseMs)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('at trace every batch is a line: whose it is and how much, and no hash or token', async t => {
  const log = recordingLog()
  const world = await listenerWorld(t, { log })
  world.startListener()
  await world.system.settle()
  world.publish(3)
  await world.system.settle()
  const lines = log.lines.filter(({ text }) => text === 'KV events applied')
  const expected = [...world.source.replay(0)].map(({ payload }) => {
    const { events } = decodeKvBatch(payload)
    const blocksOf = (kind: 'stored' | 'removed') =>
      events.reduce((sum, event) => sum + (event.kind === kind ? event.hashes.length / 2 : 0), 0)
    const cleared = events.filter(({ kind }) => kind === 'cleared').length
    return { stored: blocksOf('stored'), removed: blocksOf('removed'), cleared }
  })
  t.match(
    lines,
    expected.map(each => ({ level: 'trace', fields: { key: 'engine:8000/0', ...each } })),
  )
  t.equal(
    Object.keys(lines[0]!.fields).some(name => /hash|token/i.test(name)),
    false,
  )
})
