/** What the fleet says of workers and their keys, and which listeners they have. */

import { defineActor } from '@homing/actor'
import { blockSizeOfBoth, type Fleet, type FleetMessage, missingOf, type WorkerRecord } from '@homing/fleet'
import t from 'tap'
import { type DirectoryWorld, EVENTS, world } from './directory-world.ts'

function modelSize(workers: readonly WorkerRecord[]): number | undefined {
  let size: WorkerRecord['blockSizeTokens']
  for (const { blockSizeTokens } of workers) size = blockSizeOfBoth(size, blockSizeTokens)
  return size?.value
}

t.test('a worker is probed, and each value says where it comes from', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  w.start(['http://10.0.0.1:8000?kv_blocks=77&taints=slow'])
  const probed = w.ref.ask({ type: 'whenProbed', withinMs: 60_000 }, { timeout: 5000 })
  await w.system.settle()
  t.equal((await probed).workers[0]!.state, 'up')
  t.match(w.worker(), {
    id: '10.0.0.1:8000',
    instanceId: 0,
    state: 'up',
    engine: 'vllm',
    engineVersion: '0.32.0',
    models: [{ name: 'm', root: '/models/m', maxModelTokens: 4096 }],
    blockSizeTokens: { value: 16, source: 'probed' },
    kvBlocks: { value: 77, source: 'given' },
    maxBatchedTokens: { value: 8192, source: 'default' },
    ranks: { value: 1, source: 'probed' },
    taints: ['slow'],
    canTokenize: true,
    keys: [
      {
        key: '10.0.0.1:8000/0',
        workerSlot: 0,
        shard: 0,
        eventsEndpoint: 'tcp://10.0.0.1:5557',
        replayEndpoint: 'tcp://10.0.0.1:5558',
        topic: 'kv-events',
        trust: 'approximate',
      },
    ],
  })
})

t.test('a worker that publishes no events says what to type', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  const [key] = w.worker().keys
  t.equal(key!.trust, 'approximate')
  t.match(key!.trustReason, /guesses from sent requests count$/)
  t.match(key!.trustReason, /--kv-events-config '\{"enable_kv_cache_events":true/)
  // Older vLLM publishes, and does not tell where.
  t.match(key!.trustReason, /or name their ports: http:\/\/10\.0\.0\.1:8000\?events=PORT&replay=PORT; /)
})

t.test('the listener of a worker clears its slot, and its trust reaches the fleet', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000?events=5557'])
  t.match(
    w.indexers[0]!.waiting.find(message => message.type === 'clear'),
    { type: 'clear', workerSlot: 0 },
  )
  t.match(w.worker().keys[0], { trust: 'partial', trustReason: /no replay|event socket is connected/ })
  const report = w.ref.ask({ type: 'describe' }, { timeout: 5000 })
  await w.system.settle()
  t.match((await report).sources[0], { state: 'live' })
})

t.test('every rank has a key, a slot and a listener; shards are filled evenly', async t => {
  const w = await world(t, 2)
  await w.engine('10.0.0.1', { ranks: 2 })
  await w.engine('10.0.0.2', { ranks: 2 })
  await w.begin([
    'http://10.0.0.1:8000?events=5557&replay=5600',
    'http://10.0.0.2:8000?events=5557&replay=5600',
  ])
  const keys = w.fleet.workers.flatMap(worker => worker.keys)
  t.strictSame(
    keys.map(({ key, eventsEndpoint, replayEndpoint }) => [key, eventsEndpoint, replayEndpoint]),
    [
      ['10.0.0.1:8000/0', 'tcp://10.0.0.1:5557', 'tcp://10.0.0.1:5600'],
      ['10.0.0.1:8000/1', 'tcp://10.0.0.1:5558', 'tcp://10.0.0.1:5601'],
      ['10.0.0.2:8000/0', 'tcp://10.0.0.2:5557', 'tcp://10.0.0.2:5600'],
      ['10.0.0.2:8000/1', 'tcp://10.0.0.2:5558', 'tcp://10.0.0.2:5601'],
    ],
  )
  t.equal(new Set(keys.map(key => key.workerSlot)).size, 4)
  t.strictSame(keys.map(key => key.shard).sort(), [0, 0, 1, 1])
})

t.test('ranks of a larger engine are followed where it says, and counted from 0', async t => {
  const w = await world(t)
  const events = [4, 5].map(rank => ({
    data_parallel_rank: rank,
    endpoint: `tcp://*:${5557 + rank}`,
    replay_endpoint: `tcp://10.255.255.1:${6557 + rank}`,
  }))
  await w.engine('10.0.0.1', { events, ranks: 2 })
  await w.begin(['http://10.0.0.1:8000?events_host=10.0.0.7'])
  t.strictSame(
    w.worker().keys.map(({ key, eventsEndpoint, replayEndpoint }) => [key, eventsEndpoint, replayEndpoint]),
    [
      ['10.0.0.1:8000/0', 'tcp://10.0.0.7:5561', 'tcp://10.0.0.7:6561'],
      ['10.0.0.1:8000/1', 'tcp://10.0.0.7:5562', 'tcp://10.0.0.7:6562'],
    ],
  )
})

t.test(
  'a process with another start is a restart: its listener is told, and what was learned is forgotten',
  async t => {
    const w = await world(t)
    await w.engine('10.0.0.1', { startSeconds: 1000 })
    await w.publisher('tcp://10.0.0.1:5557')
    await w.begin(['http://10.0.0.1:8000?events=5557'])
    const clears = () => w.indexers[0]!.waiting.filter(message => message.type === 'clear').length
    const before = clears()
    w.answers.set('10.0.0.1', { startSeconds: 2000 })
    await w.system.advance('15s')
    t.equal(clears(), before + 1)
  },
)

/** Warnings about block sizes: each is said once. */
function sizesWarned(w: DirectoryWorld) {
  return w.log.lines.flatMap(({ level, text, fields }) =>
    level === 'warn' && text.startsWith('wrong block size') ? [fields] : [],
  )
}

t.test(
  'the events of a worker with another block size than the first of its model count for nothing',
  async t => {
    const w = await world(t)
    await w.engine('10.0.0.1', { blockSizeTokens: 16 })
    await w.engine('10.0.0.2', { blockSizeTokens: 32 })
    await w.engine('10.0.0.3', { blockSizeTokens: 32, model: 'other' })
    for (const host of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) await w.publisher(`tcp://${host}:5557`)
    await w.begin([
      'http://10.0.0.1:8000?events=5557',
      'http://10.0.0.2:8000?events=5557',
      'http://10.0.0.3:8000?events=5557',
    ])
    t.equal(w.worker(0).keys[0]!.trust, 'partial')
    t.equal(w.worker(2).keys[0]!.trust, 'partial')
    t.match(w.worker(1).keys[0], {
      trust: 'approximate',
      trustReason:
        /^blocks of 32 tokens, but 10.0.0.1:8000 of the same model has 16: .*; guesses from sent requests count$/,
    })
    t.match(sizesWarned(w), [{ worker: '10.0.0.2:8000', fault: /^blocks of 32 tokens, but 10.0.0.1:8000/ }])
  },
)

t.test('events with another block size than given count for nothing, with what to correct', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { blockSizeTokens: 32 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000?events=5557&block_size=16'])
  await w.exact(0, 32)
  t.match(w.worker(), {
    blockSizeTokens: { value: 16, source: 'given' },
    keys: [
      { trust: 'approximate', trustReason: /blocks of 32 tokens, but 16 were given: correct block_size/ },
    ],
  })
  t.match(sizesWarned(w), [{ worker: '10.0.0.1:8000', fault: /but 16 were given: correct block_size/ }])
})

t.test('a block size that events show counts more than one that was probed', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { blockSizeTokens: 528 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000?events=5557'])
  await w.exact(0, 16)
  t.match(w.worker(), { blockSizeTokens: { value: 16, source: 'learned' }, keys: [{ trust: 'exact' }] })
})

t.test('a block size that the events of one show does not shut out its twins', async t => {
  const w = await world(t)
  const urls: string[] = []
  for (const host of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) {
    await w.engine(host, { blockSizeTokens: 16 })
    await w.publisher(`tcp://${host}:5557`)
    await w.replaySocket(`tcp://${host}:5600`)
    urls.push(`http://${host}:8000?events=5557&replay=5600`)
  }
  await w.begin(urls)
  const trusts = () => w.fleet.workers.map(({ keys }) => keys[0]?.trust)
  const size = () => modelSize(w.fleet.workers)
  await w.exact(1, 32)
  t.strictSame(trusts(), ['exact', 'exact', 'exact'])
  t.equal(size(), 32, 'what events show counts more than what was probed')
  await w.exact(0, 32)
  t.strictSame(trusts(), ['exact', 'exact', 'exact'])
  await w.exact(2, 16)
  t.strictSame(trusts(), ['exact', 'exact', 'approximate'])
  t.match(
    w.worker(2).keys[0]?.trustReason,
    /blocks of 16 tokens, but 10\.0\.0\.1:8000 of the same model has 32/,
  )
})

t.test('a rank that is gone gives its slot back only when the indexer has forgotten it', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { ranks: 2 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.publisher('tcp://10.0.0.1:5558')
  await w.begin(['http://10.0.0.1:8000?events=5557'], { workerSlotsMax: 2 })
  t.equal(w.worker().keys.length, 2)
  w.answers.set('10.0.0.1', { ranks: 1, startSeconds: 2000 })
  await w.system.advance('15s')
  t.equal(w.worker().keys.length, 1)
  const releases = () => w.indexers[0]!.waiting.filter(message => message.type === 'release')
  t.match(releases()[0], { workerSlot: 1 })
  w.answers.set('10.0.0.1', { ranks: 2, startSeconds: 3000 })
  await w.system.advance('15s')
  t.equal(w.worker().keys.length, 1, 'the indexer has not answered: the slot is not free')
  for (const message of releases()) if (message.type === 'release') message.reply('released')
  await w.system.advance('15s')
  t.match(w.worker().keys, [{ workerSlot: 0 }, { workerSlot: 1 }])
})

t.test('more ranks than slots: the others do without', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { ranks: 4 })
  await w.begin(['http://10.0.0.1:8000'], { workerSlotsMax: 3 })
  t.equal(w.worker().keys.length, 3)
})

t.test('one engine that claims many ranks does not take the slots of others', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { ranks: 1500 })
  await w.engine('10.0.0.2', { ranks: 200 })
  for (const host of [3, 4]) await w.engine(`10.0.0.${host}`)
  await w.begin(['http://10.0.0.1:8000', 'http://10.0.0.2:8000'], { workerSlotsMax: 4, kvEvents: false })
  await w.system.advance('5s')
  t.equal(w.worker(0).keys.length, 1)
  t.match(missingOf(w.worker(0))[0], /it claims 1500 ranks, more than the 256 .*\?ranks=COUNT/)
  t.equal(w.worker(1).keys.length, 3)
  t.match(missingOf(w.worker(1))[0], /no worker slot for 197 of its 200 ranks: .*raise --worker-slots-max/)

  for (const host of [3, 4]) {
    const added = w.ref.ask({ type: 'addWorker', url: `http://10.0.0.${host}:8000` }, { timeout: '10s' })
    await w.system.settle()
    await added
    for (let second = 0; second < 3; second++) {
      for (const message of w.indexers[0]!.waiting) if (message.type === 'release') message.reply('released')
      await w.system.advance('1s')
    }
  }
  t.strictSame(
    w.fleet.workers.map(({ keys, state }) => [keys.length, state]),
    [1, 1, 1, 1].map(count => [count, 'up']),
  )
})

t.test('an index shard that began anew has its listeners rebuild, but those that have already', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { ranks: 2 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.publisher('tcp://10.0.0.1:5558')
  w.start(['http://10.0.0.1:8000?events=5557'])
  await w.system.advance('6s')
  const clears = () =>
    w.indexers[0]!.waiting.filter(message => message.type === 'clear').map(({ workerSlot }) => workerSlot)
  t.strictSame(clears(), [0, 1])
  w.ref.tell({ type: 'shardReset', shard: 0, incarnation: 1, openSlots: [] })
  await w.system.settle()
  t.strictSame(clears(), [0, 1], 'the first word only names the incarnation')
  w.ref.tell({ type: 'shardReset', shard: 0, incarnation: 2, openSlots: [1] })
  await w.system.settle()
  t.strictSame(clears(), [0, 1, 0])
})

t.test('without KV events there are no listeners, and it says so', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.begin(['http://10.0.0.1:8000'], { kvEvents: false })
  t.match(w.worker().keys[0], { trust: 'approximate', trustReason: /switched off/ })
  t.notOk(w.indexers[0]!.waiting.some(message => message.type === 'clear'))
})

t.test('where caches are ignored there are no listeners and no guesses', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.begin(['http://10.0.0.1:8000'], { ignoresCaches: true })
  t.match(w.worker().keys[0], { trust: 'none', trustReason: /^caches are ignored/ })
  t.strictSame(
    w.indexers[0]!.waiting.map(({ type }) => type).filter(type => type === 'clear' || type === 'apply'),
    [],
  )
})

t.test('versions grow by one per change, and what did not change is not sent', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  w.start(['http://10.0.0.1:8000'])
  await w.system.advance('1m')
  const versions = w.subscriber.waiting.map(({ fleet }) => fleet.version)
  t.strictSame(
    versions,
    versions.map((_, i) => versions[0]! + i),
  )
  t.ok(versions.length <= 3, `${versions.length} versions in a quiet minute`)
})

t.test('a worker given twice counts once', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000', '10.0.0.1:8000'])
  t.equal(w.fleet.workers.length, 1)
})

t.test('while a listener is replaced, what it said counts no more', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.publisher('tcp://10.0.0.1:5557')
  w.start(['http://10.0.0.1:8000'])
  await w.system.advance('2s')
  await w.exact(0)
  t.equal(w.worker().keys[0]!.trust, 'exact')
  const moved = [{ ...EVENTS[0], endpoint: 'tcp://*:6557' }]
  w.answers.set('10.0.0.1', { events: moved })
  await w.system.advance('15s')
  // The indexer never answers: the slot is still being released.
  t.match(w.worker().keys[0], {
    eventsEndpoint: 'tcp://10.0.0.1:6557',
    trust: 'approximate',
    trustReason: /^its listener is replaced/,
  })
})

t.test('a question that a busy worker did not answer takes nothing from what is known of it', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS, ranks: 2, startSeconds: 1000 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000'])
  const { keys, ...before } = w.worker()
  const clears = () => w.indexers[0]!.waiting.filter(message => message.type === 'clear').length
  t.equal(clears(), 1)
  w.network.faults.http = ({ path }) => (path === '/v1/models' ? 'deliver' : 'refuse')
  await w.system.advance('15s')
  const { keys: keysAfter, ...after } = w.worker()
  t.strictSame(after, before)
  t.strictSame(
    keysAfter.map(key => key.eventsEndpoint),
    keys.map(key => key.eventsEndpoint),
  )
  t.notOk(w.indexers[0]!.waiting.some(message => message.type === 'release'))
  // Nor does it hide that the process is another one afterwards.
  w.answers.set('10.0.0.1', { events: EVENTS, ranks: 2, startSeconds: 2000 })
  w.network.faults.http = undefined
  await w.system.advance('15s')
  t.equal(clears(), 2)
})

t.test('a worker that was too busy to say where its events are is asked with the next probe', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.publisher('tcp://10.0.0.1:5557')
  w.network.faults.http = ({ path }) => (path === '/v1/models' ? 'deliver' : 'refuse')
  await w.begin(['http://10.0.0.1:8000'])
  t.match(w.worker().keys[0], {
    eventsEndpoint: undefined,
    trust: 'approximate',
    trustReason: /^did not answer whether it publishes KV events; it is asked again/,
  })
  w.network.faults.http = undefined
  // The interval between two probes is 2 s; a sixth of them asks everything otherwise.
  await w.system.advance('2s')
  t.equal(w.worker().keys[0]!.eventsEndpoint, 'tcp://10.0.0.1:5557')
  const asked = () => w.asked.get('10.0.0.1')!.filter(path => path === '/kv_event_sources').length
  t.equal(asked(), 1)
  await w.system.advance('10s')
  t.equal(asked(), 1, 'and no more often than others from then on')
})

t.test('what was sent to a worker is forgotten when it may run as another process', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { startSeconds: 1000 })
  await w.engine('10.0.0.2', { startSeconds: null })
  await w.begin(['http://10.0.0.1:8000', 'http://10.0.0.2:8000'])
  const forgotten = () =>
    w.indexers[0]!.waiting.flatMap(message =>
      message.type === 'forgetRouted' ? [[message.workerSlot, message.epoch]] : [],
    )
  // Both do not answer for a while; the first says that it is still the same process.
  w.network.faults.http = () => 'refuse'
  await w.system.advance('30s')
  t.strictSame([w.worker(0).state, w.worker(1).state], ['down', 'down'])
  w.network.faults.http = undefined
  await w.system.advance('30s')
  t.strictSame([w.worker(0).state, w.worker(1).state], ['up', 'up'])
  t.strictSame(forgotten(), [[1, 1]])
  t.strictSame([w.worker(0).keys[0]!.epoch, w.worker(1).keys[0]!.epoch], [0, 1])
  w.answers.set('10.0.0.1', { startSeconds: 2000 })
  await w.system.advance('30s')
  t.strictSame(forgotten().at(-1), [0, 1])
})

t.test('what a worker no longer says is forgotten when it answered everything', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.begin(['http://10.0.0.1:8000'])
  t.equal(w.worker().keys[0]!.eventsEndpoint, 'tcp://10.0.0.1:5557')
  w.answers.set('10.0.0.1', {})
  await w.system.advance('15s')
  t.match(w.worker().keys[0], { eventsEndpoint: undefined, trust: 'approximate' })
})

t.test('a probe that finds the block size later takes nothing from what events showed', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { blockSizeTokens: 528 })
  await w.publisher('tcp://10.0.0.1:5557')
  w.network.faults.http = ({ path }) => (path === '/metrics' ? 'refuse' : 'deliver')
  await w.begin(['http://10.0.0.1:8000?events=5557'])
  await w.exact(0, 16)
  w.network.faults.http = undefined
  await w.system.advance('15s')
  t.match(w.worker(), { blockSizeTokens: { value: 16, source: 'learned' }, kvBlocks: { value: 100 } })
})

t.test('a subscriber whose mailbox was full gets the last fleet when there is room', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  const seen: Fleet[] = []
  let wake: () => void = () => {}
  const busy = defineActor(
    import.meta.url,
    'busy',
  )<FleetMessage, undefined>({
    setup: () => ({
      async fleet({ fleet }) {
        seen.push(fleet)
        if (seen.length === 1) {
          await new Promise<void>(resolve => {
            wake = resolve
          })
        }
      },
    }),
  })
  const ref = w.system.spawn(busy, { name: 'busy', args: undefined, mailbox: { capacity: 1 } })
  w.start(['http://10.0.0.1:8000'])
  w.ref.tell({ type: 'subscribe', subscriber: ref })
  await w.system.settle()
  for (const reason of ['one', 'two', 'three']) {
    w.ref.tell({ type: 'suspect', workerId: '10.0.0.1:8000', reason, isUnreachable: true })
    await w.system.advance('5s')
  }
  t.equal(seen.length, 1, 'it is busy with the first fleet')
  wake()
  await w.system.advance('1s')
  t.equal(seen.at(-1)!.version, w.fleet.version)
  const versions = seen.map(fleet => fleet.version)
  t.strictSame(
    versions,
    versions.toSorted((a, b) => a - b),
  )
})
