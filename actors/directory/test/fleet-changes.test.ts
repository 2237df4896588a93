/** Workers that join, drain and leave while the directory runs. */

import t from 'tap'
import type { DirectoryMessage, KeeperMessage } from '../src/index.ts'
import type { KeptFleet } from '../src/messages.ts'
import { type DirectoryWorld, utf8, world } from './directory-world.ts'

const FIRST = 'http://10.0.0.1:8000'
const SECOND = 'http://10.0.0.2:8000?events=5557'
/** The first 53 bits of the SHA-256 of '10.0.0.2:8000'. */
const SECOND_ID = 2_377_683_112_471_305
const ASK = { timeout: 5000 } as const

/** With two engines, of which the directory knows the first. */
async function begun(t: Parameters<typeof world>[0], overrides: Parameters<DirectoryWorld['begin']>[1] = {}) {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.engine('10.0.0.2')
  await w.publisher('tcp://10.0.0.2:5557')
  await w.begin([FIRST], overrides)
  const settled = async <T>(asked: Promise<T>): Promise<T> => {
    await w.system.settle()
    return asked
  }
  return {
    w,
    add: (url: string) => settled(w.ref.ask({ type: 'addWorker', url }, ASK)),
    remove: (workerId: string) => settled(w.ref.ask({ type: 'removeWorker', workerId }, ASK)),
    drain: (workerId: string) => settled(w.ref.ask({ type: 'drainWorker', workerId }, ASK)),
    tell: async (message: DirectoryMessage) => {
      w.ref.tell(message)
      await w.system.settle()
    },
    ids: () => w.fleet.workers.map(({ id }) => id),
    releases: () => w.indexers[0]!.waiting.filter(message => message.type === 'release'),
  }
}

t.test('a worker that joins is on trial until its cache is known', async t => {
  const { w, add } = await begun(t)
  t.strictSame(await add('http://10.0.0.2:8000?events=5999'), { id: '10.0.0.2:8000' })
  t.match(w.worker(1), { id: '10.0.0.2:8000', instanceId: SECOND_ID, state: 'up', isOnTrial: true })
  t.equal(w.worker(0).isOnTrial, undefined, 'one that was there at the start is not')
  await w.exact(w.worker(1).keys[0]!.workerSlot)
  t.match(w.worker(1).keys, [{ trust: 'exact' }])
  t.equal(w.worker(1).isOnTrial, undefined)
})

t.test('a trial ends by itself', async t => {
  const { w, add } = await begun(t)
  await add('http://10.0.0.2:8000?events=5999')
  t.equal(w.worker(1).isOnTrial, true)
  await w.system.advance('5s')
  t.equal(w.worker(1).isOnTrial, undefined)
})

t.test('a trial goes on while a history is replayed, for half a minute at most', async t => {
  for (const answers of [true, false]) {
    const { w, add } = await begun(t, { replayTimeoutMs: 60_000 })
    const nothing = new Uint8Array(0)
    const end = [nothing, nothing, new Uint8Array(8).fill(0xff), nothing]
    const asking: Uint8Array[] = []
    const socket = await w.outside.messages.serve({ endpoint: 'tcp://10.0.0.2:6557' }, identity => {
      asking.push(identity)
    })
    await add(`${SECOND}&replay=6557`)
    t.match(w.worker(1).keys, [{ trust: 'approximate', trustReason: /^replaying the engine's history/ }])
    await w.system.advance('29s')
    t.match(w.worker(1), { isOnTrial: true, state: 'up' })
    if (answers) for (const identity of asking) socket.send(identity, end)
    else await w.system.advance('2s')
    await w.system.settle()
    t.match(w.worker(1).keys, [{ trust: answers ? 'exact' : 'approximate' }])
    t.equal(w.worker(1).isOnTrial, undefined, answers ? 'all is known' : 'it took too long')
  }
})

t.test('a trial is over when nothing more will be known soon', async t => {
  const { w, add, tell } = await begun(t)
  const said = {
    epoch: 0,
    isSuffix: false,
    reason: 'as the test has it',
    blockSizeTokens: undefined,
  } as const
  for (const [instance, seconds, says, isOnTrial] of [
    [3, 1, { trust: 'none' }, true],
    [4, 1, { trust: 'partial', isCatchingUp: true }, true],
    [5, 4, { trust: 'partial', isCatchingUp: true }, true],
    [6, 1, { trust: 'partial' }, undefined],
    [7, 4, { trust: 'none' }, undefined],
  ] as const) {
    const id = `10.0.0.${instance}:8000`
    await w.engine(`10.0.0.${instance}`)
    await add(`http://${id}?events=5999`)
    const record = () => w.fleet.workers.find(worker => worker.id === id)!
    const { workerSlot } = record().keys[0]!
    await tell({ type: 'source', workerSlot, ...said, trust: 'none', isCatchingUp: true })
    await w.system.advance(`${seconds}s`)
    await tell({ type: 'source', workerSlot, ...said, ...says })
    t.equal(record().isOnTrial, isOnTrial, `${JSON.stringify(says)} after ${seconds} s`)
  }
})

t.test('the times of a trial are those of its own life', async t => {
  const { w, add, remove, releases } = await begun(t)
  const url = 'http://10.0.0.2:8000?events=5999'
  await add(url)
  const { joinedMs } = w.worker(1)
  await w.system.advance('2s')
  await remove('10.0.0.2:8000')
  for (const message of releases()) if (message.type === 'release') message.reply('released')
  await add(url)
  t.ok(w.worker(1).joinedMs > joinedMs, 'it is another one')
  await w.system.advance('2s')
  t.equal(w.worker(1).isOnTrial, true, 'the time of the life before is over, not its own')
  await w.system.advance('2s')
  t.equal(w.worker(1).isOnTrial, undefined)
})

t.test('a worker whose keys wait for those of an earlier life is on trial', async t => {
  const { w, add, remove, releases } = await begun(t)
  const url = 'http://10.0.0.2:8000?events=5999'
  await add(url)
  await w.exact(w.worker(1).keys[0]!.workerSlot)
  await remove('10.0.0.2:8000')
  await add(url)
  t.match(w.worker(1), { keys: [], isOnTrial: true })
  for (const message of releases()) if (message.type === 'release') message.reply('released')
  await w.system.settle()
  t.match(w.worker(1), { keys: [{}], isOnTrial: true })
  await w.exact(w.worker(1).keys[0]!.workerSlot)
  t.equal(w.worker(1).isOnTrial, undefined)
})

t.test('who is here already, or takes what another has, is refused, and nothing changes', async t => {
  const { add, ids } = await begun(t)
  await add(SECOND)
  const conflict = { code: 'HOMING_DIRECTORY_WORKER_CONFLICT' }
  t.match(await add(FIRST), { ...conflict, message: /is the worker "10\.0\.0\.1:8000" again/ })
  t.match(await add('http://10.0.0.3:8000?id=0'), { ...conflict, message: /id 0 is also that of/ })
  t.match(await add('http://10.0.0.2:9000?events=5557'), { ...conflict, message: /ports of its own/ })
  t.match(await add('ftp://x'), { code: 'HOMING_DIRECTORY_INVALID_WORKER' })
  t.strictSame(ids(), ['10.0.0.1:8000', '10.0.0.2:8000'])
})

t.test(
  'a worker that is removed is gone at once, and its slot when the indexer has forgotten it',
  async t => {
    const { w, add, remove, ids, releases } = await begun(t, { workerSlotsMax: 2 })
    await add(SECOND)
    const { workerSlot } = w.worker(1).keys[0]!
    t.equal(await remove('10.0.0.2:8000'), true)
    t.strictSame(ids(), ['10.0.0.1:8000'])
    t.equal(await remove('10.0.0.2:8000'), false)
    await add(SECOND)
    t.match(w.worker(1), { id: '10.0.0.2:8000', keys: [] }, 'its name and slot are not free yet')
    for (const message of releases()) if (message.type === 'release') message.reply('released')
    await w.system.settle()
    t.match(w.worker(1).keys, [{ key: '10.0.0.2:8000/0', workerSlot }])
    t.ok(w.worker(1).keys[0]!.epoch > 0, 'it is another life of the slot')
  },
)

t.test('what is known of a worker does not outlive it', async t => {
  const { w, add, remove, tell } = await begun(t)
  await add('http://10.0.0.9:8000')
  t.equal(w.worker(1).state, 'down')
  await remove('10.0.0.9:8000')
  await w.engine('10.0.0.9')
  await add('http://10.0.0.9:8000')
  t.equal(w.worker(1).state, 'up')
  // Of probes of its earlier life.
  for (const turn of [0, 1, 2, 3]) {
    const outcome = { reached: false, reason: 'of before' } as const
    await tell({ type: 'probed', workerId: '10.0.0.9:8000', turn, outcome })
  }
  t.equal(w.worker(1).state, 'up')
  const before = w.asked.get('10.0.0.9')!.length
  await remove('10.0.0.9:8000')
  await w.system.advance('1m')
  t.equal(w.asked.get('10.0.0.9')!.length, before, 'it is probed no more')
})

t.test('a worker that drains leaves with its last request', async t => {
  const { w, add, drain, tell, ids } = await begun(t)
  await add(SECOND)
  await tell({ type: 'drained', workerId: '10.0.0.2:8000' })
  t.strictSame(ids(), ['10.0.0.1:8000', '10.0.0.2:8000'], 'one that does not drain stays')
  t.equal(await drain('10.0.0.2:8000'), true)
  t.equal(await drain('10.0.0.2:8000'), true, 'again changes nothing')
  t.equal(await drain('10.0.0.7:8000'), false)
  t.equal(w.worker(1).state, 'draining')
  await w.system.advance('1m')
  t.equal(w.worker(1).state, 'draining', 'probes go on')
  await tell({ type: 'drained', workerId: '10.0.0.2:8000' })
  t.strictSame(ids(), ['10.0.0.1:8000'])
})

t.test('a worker that is not up drains, too, and leaves with its last request', async t => {
  const { w, add, drain, tell, ids } = await begun(t)
  await add('http://10.0.0.9:8000')
  t.match(w.worker(1), { state: 'down', isDraining: undefined })
  await drain('10.0.0.9:8000')
  t.match(w.worker(1), { state: 'down', isDraining: true, stateReason: /ECONNREFUSED; it drains$/ })
  await tell({ type: 'drained', workerId: '10.0.0.9:8000' })
  t.strictSame(ids(), ['10.0.0.1:8000'])
  await w.outside.http.listen({ host: '10.0.0.8', port: 8000 }, () => {})
  await add('http://10.0.0.8:8000')
  await drain('10.0.0.8:8000')
  t.match(w.worker(1), { state: 'probing', isDraining: true, stateReason: 'not probed yet; it drains' })
  await tell({ type: 'drained', workerId: '10.0.0.8:8000' })
  t.strictSame(ids(), ['10.0.0.1:8000'])
})

t.test('a worker that goes down while it drains goes on draining', async t => {
  const { w, add, drain, tell, ids } = await begun(t)
  await add(SECOND)
  await drain('10.0.0.2:8000')
  t.match(w.worker(1), { state: 'draining', isDraining: true })
  await tell({ type: 'suspect', workerId: '10.0.0.2:8000', reason: 'refused', isUnreachable: true })
  t.match(w.worker(1), { state: 'down', isDraining: true, stateReason: 'refused; it drains' })
  await tell({ type: 'drained', workerId: '10.0.0.2:8000' })
  t.strictSame(ids(), ['10.0.0.1:8000'])
})

t.test('a drain that does not end is ended, and one of an earlier life ends nobody', async t => {
  const { w, add, drain, remove, ids } = await begun(t, { drainMsMax: 60_000 })
  await add(SECOND)
  await drain('10.0.0.2:8000')
  await w.system.advance('30s')
  await remove('10.0.0.2:8000')
  await add(SECOND)
  await w.system.advance('40s')
  t.strictSame(ids(), ['10.0.0.1:8000', '10.0.0.2:8000'])
  await drain('10.0.0.2:8000')
  await w.system.advance('59s')
  t.equal(ids().length, 2)
  const told = () => w.subscriber.waiting.flatMap(({ overdue }) => overdue ?? [])
  t.strictSame(told(), [])
  await w.system.advance('2s')
  t.strictSame(ids(), ['10.0.0.1:8000'])
  t.strictSame(told(), ['10.0.0.2:8000'], 'what it still has is to go on elsewhere')
  await add(SECOND)
  await w.system.advance('60s')
  t.strictSame(told(), ['10.0.0.2:8000'], 'once')
})

t.test(
  'an engine that comes back with another key is down, and asked again and again, but not in a storm',
  async t => {
    const { w, add } = await begun(t)
    let asks = 0
    let isLocked = false
    await w.outside.http.listen({ host: '10.0.0.5', port: 8000 }, exchange => {
      asks++
      exchange.writeHead(isLocked ? 401 : exchange.path === '/v1/models' ? 200 : 404, {})
      exchange.end(utf8.encode('{"data":[{"id":"m"}]}'))
    })
    await add('http://10.0.0.5:8000')
    t.equal(w.worker(1).state, 'up')
    isLocked = true
    // Twenty calls at once are refused.
    const suspect = {
      type: 'suspect',
      workerId: '10.0.0.5:8000',
      reason: 'answered 401',
      isUnreachable: false,
    } as const
    const before = asks
    for (let i = 0; i < 20; i++) w.ref.tell(suspect)
    await w.system.settle()
    t.match(w.worker(1), { state: 'down', stateReason: /401/ })
    const atOnce = asks - before
    t.ok(atOnce <= 10, `${atOnce} asks at once`)
    for (let i = 0; i < 20; i++) w.ref.tell(suspect)
    await w.system.settle()
    t.equal(asks - before, atOnce, 'one that is down is not asked again for that')
    await w.system.advance('1m')
    const inMinute = asks - before - atOnce
    t.ok(
      inMinute >= 30 && inMinute <= 33 * atOnce,
      `${inMinute} asks in a minute: a probe in two seconds, after the first ones`,
    )
    isLocked = false
    await w.system.advance('3s')
    t.equal(w.worker(1).state, 'up', 'and it is found again')
  },
)

t.test('a directory that is started anew has the workers of before, each in its life', async t => {
  const kept: Extract<KeeperMessage, { readonly type: 'keepFleet' }>['fleet'][] = []
  const joined: number[] = []
  for (const life of [1, 2]) {
    const w = await world(t)
    await w.engine('10.0.0.1')
    await w.engine('10.0.0.2')
    const keeper = w.system.probe<KeeperMessage>('keeper')
    await w.system.advance(`${life}m`)
    w.start([FIRST], { keeper: keeper.ref })
    const asked = await keeper.next()
    if (asked.type !== 'kept') return t.fail('what was kept is asked for first')
    asked.reply({ busyThresholds: new Map(), fleet: kept.at(-1) })
    await w.system.settle()
    if (life === 1) {
      const added = w.ref.ask({ type: 'addWorker', url: SECOND }, ASK)
      const drained = w.ref.ask({ type: 'drainWorker', workerId: '10.0.0.1:8000' }, ASK)
      await w.system.settle()
      t.match([await added, await drained], [{ id: '10.0.0.2:8000' }, true])
      for (const message of keeper.waiting) if (message.type === 'keepFleet') kept.push(message.fleet)
      joined.push(...w.fleet.workers.map(({ joinedMs }) => joinedMs))
    }
    t.match(w.fleet.workers, [{ id: '10.0.0.1:8000', isDraining: true }, { id: '10.0.0.2:8000' }])
    t.strictSame(
      w.fleet.workers.map(({ joinedMs }) => joinedMs),
      joined,
      `life ${life}`,
    )
  }
})

t.test(
  'a directory that is started anew has workers that nobody changed in the lives that they had',
  async t => {
    let kept: Extract<KeeperMessage, { readonly type: 'keepFleet' }>['fleet'] | undefined
    const joined: number[][] = []
    for (const minutes of [1, 2]) {
      const w = await world(t)
      await w.engine('10.0.0.1')
      const keeper = w.system.probe<KeeperMessage>('keeper')
      await w.system.advance(`${minutes}m`)
      w.start([FIRST, SECOND], { keeper: keeper.ref })
      const asked = await keeper.next()
      if (asked.type !== 'kept') return t.fail('what was kept is asked for first')
      asked.reply({ busyThresholds: new Map(), fleet: kept })
      await w.system.settle()
      for (const message of keeper.waiting) if (message.type === 'keepFleet') kept = message.fleet
      joined.push(w.fleet.workers.map(({ joinedMs }) => joinedMs))
    }
    t.strictSame(joined[1], joined[0])
  },
)

t.test('the last worker may leave', async t => {
  const { w, remove, ids, add } = await begun(t)
  await remove('10.0.0.1:8000')
  t.strictSame(ids(), [])
  await add(SECOND)
  t.match(w.worker(0), { id: '10.0.0.2:8000', instanceId: SECOND_ID, state: 'up' })
})

t.test('a worker that joins has the same number at every router, whatever joined before it', async t => {
  const urls = [
    'http://10.0.0.1:8000',
    'http://10.0.0.2:8000',
    'http://127.0.0.1:8001/a?ranks=2',
    'http://h:80',
  ]
  const numbers = async (added: readonly string[]) => {
    const w = await world(t)
    await w.begin(['http://10.0.0.9:8000', 'http://10.0.0.8:8000?id=77'])
    for (const url of added) {
      const asked = w.ref.ask({ type: 'addWorker', url }, ASK)
      await w.system.settle()
      t.match(await asked, { id: String })
    }
    const first = w.fleet.workers.slice(0, 2).map(({ instanceId }) => instanceId)
    t.strictSame(first, [0, 77], 'those of the start have their position, or their ?id=')
    return new Map(w.fleet.workers.slice(2).map(({ id, instanceId }) => [id, instanceId]))
  }
  const one = await numbers(urls)
  t.strictSame(new Map([...(await numbers(urls.toReversed()))].toReversed()), one)
  t.ok([...one.values()].every(Number.isSafeInteger))
  t.equal(new Set(one.values()).size, urls.length)
  const other = await numbers(['http://localhost:8001/a'])
  t.equal(other.get('localhost:8001/a'), one.get('127.0.0.1:8001/a'), 'another name of this machine')
})

t.test('a worker of the start has its number again when it comes back, by whichever name', async t => {
  const urls = ['http://10.0.0.9:8000', 'http://127.0.0.1:8001/a', 'http://10.0.0.8:8000?id=77']
  const kept: KeptFleet[] = []
  const life = async () => {
    const w = await world(t)
    const keeper = w.system.probe<KeeperMessage>('keeper')
    w.start(urls, { keeper: keeper.ref })
    const asked = await keeper.next()
    if (asked.type !== 'kept') throw new Error('what was kept is asked for first')
    asked.reply({ busyThresholds: new Map(), fleet: kept.at(-1) })
    await w.system.settle()
    return {
      numbers: () => w.fleet.workers.map(({ instanceId }) => instanceId),
      add: async (url: string) => {
        const added = w.ref.ask({ type: 'addWorker', url }, ASK)
        await w.system.settle()
        t.match(await added, { id: String })
      },
      remove: async (workerId: string) => {
        const removed = w.ref.ask({ type: 'removeWorker', workerId }, ASK)
        await w.system.settle()
        await removed
      },
      keep: () => {
        for (const message of keeper.waiting) if (message.type === 'keepFleet') kept.push(message.fleet)
      },
    }
  }
  const first = await life()
  t.strictSame(first.numbers(), [0, 1, 77])
  for (const workerId of ['10.0.0.9:8000', '127.0.0.1:8001/a', '10.0.0.8:8000']) await first.remove(workerId)
  await first.add('http://10.0.0.8:8000')
  t.strictSame(first.numbers(), [77])
  first.keep()
  const second = await life()
  t.strictSame(second.numbers(), [77], 'in the next life of the directory')
  await second.add('http://localhost:8001/a?ranks=2')
  await second.add('http://10.0.0.9:8000')
  t.strictSame(second.numbers(), [77, 1, 0])
  await second.remove('10.0.0.9:8000')
  await second.add('http://10.0.0.9:8000?id=5')
  t.strictSame(second.numbers(), [77, 1, 5], 'its ?id= wins')
})

t.test('a worker whose number is taken is refused, and joins with one of its own', async t => {
  const { w, add } = await begun(t)
  await add(`http://10.0.0.3:8000?id=${SECOND_ID}`)
  t.match(await add(SECOND), {
    code: 'HOMING_DIRECTORY_WORKER_CONFLICT',
    message: new RegExp(`its id ${SECOND_ID} is also that of "10.0.0.3:8000": give each its own \\?id=$`),
  })
  t.strictSame(await add(`${SECOND}&id=${2 ** 53 - 1}`), { id: '10.0.0.2:8000' })
  t.equal(w.worker(2).instanceId, 2 ** 53 - 1)
})
