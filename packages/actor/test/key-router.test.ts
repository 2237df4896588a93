/** Routers by key: who owns a key, and what becomes of its messages when a member's thread ends. */

import assert from 'node:assert/strict'
import {
  type ActorSystem,
  AskTimeoutError,
  createActorSystem,
  createKeyRouter,
  type KeyRouter,
  type KeyRouterOptions,
  ThreadDownError,
} from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { type Log, silentLog } from '@homing/log'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { hashOfKey, rendezvous, seedOf } from '../src/rendezvous.ts'
import { INFLIGHT_MAX } from '../src/ring/inbound-ring.ts'
import {
  type Entry,
  entriesOf,
  type KeyedMessage,
  keyed,
  newRecord,
  routerHost,
  slow,
} from './fixtures/keyed.ts'

const soon = { timeout: '10s' } as const
const KEYS = 64

async function start(t: Test, options: Parameters<typeof createActorSystem>[0] = {}): Promise<ActorSystem> {
  const system = await createActorSystem({
    pools: { p: { count: 3 } },
    log: silentLog,
    logLevel: 'silent',
    threadExecArgv: [],
    ...options,
  })
  t.teardown(() => system.shutdown({ deadline: '1s' }))
  return system
}

type Options = Partial<KeyRouterOptions<KeyedMessage, { record: Int32Array; index: number }>>

function route(system: ActorSystem, record: Int32Array, options: Options = {}): KeyRouter<KeyedMessage> {
  return createKeyRouter(system, keyed, {
    name: 'keyed',
    args: index => ({ record, index }),
    by: m => m.key,
    over: { pool: 'p', size: 3 },
    mailbox: { capacity: 65_536 },
    ...options,
  })
}

const round = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

async function until(isSo: () => boolean, what: string, withinMs = 10_000): Promise<void> {
  const limit = performance.now() + withinMs
  while (!isSo()) {
    assert.ok(performance.now() < limit, `not within ${withinMs} ms: ${what}`)
    await round()
  }
}

/** A message of one lane between threads or the other. */
const put = (key: number, n: number, isObject: boolean): KeyedMessage => ({
  type: isObject ? 'putObject' : 'put',
  key,
  n,
})

const ownersOf = (router: KeyRouter<KeyedMessage>): (string | undefined)[] =>
  Array.from({ length: KEYS }, (_, key) => router.refFor(key)?.name)

/** The numbers of each key were handled in order, and never by two members in turns. */
function checkOrder(entries: readonly Entry[]): void {
  const last = new Map<number, number>()
  for (const { key, n } of entries) {
    assert.ok(n > (last.get(key) ?? -1), `key ${key}: ${n} after ${last.get(key)}`)
    last.set(key, n)
  }
}

t.test('only the keys of a lost member move, and keys spread evenly', async t => {
  const members = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ index, seed: seedOf(index) }))
  const seed = 7
  t.comment(`seed ${seed}`)
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 64 }),
      fc.nat(),
      fc.array(fc.oneof(fc.string(), fc.integer()), { minLength: 1, maxLength: 50 }),
      (count, lost, keys) => {
        const all = members(count)
        const gone = all[lost % count]!
        const left = all.filter(member => member !== gone)
        for (const key of keys) {
          const before = rendezvous(all, hashOfKey(key))!
          const after = rendezvous(left, hashOfKey(key))!
          if (before !== gone) assert.equal(after, before)
          assert.equal(rendezvous(all.toReversed(), hashOfKey(key)), before, 'whatever the order')
        }
      },
    ),
    { seed },
  )
  for (const count of [2, 3, 8, 64]) {
    for (const keyOf of [(i: number) => `session-${i}`, (i: number) => i]) {
      const owned = new Array<number>(count).fill(0)
      const total = 1000 * count
      for (let i = 0; i < total; i++) owned[rendezvous(members(count), hashOfKey(keyOf(i)))!.index]!++
      t.ok(Math.max(...owned) < 1150, `${count} members: at most ${Math.max(...owned)} of 1000 keys`)
      t.ok(Math.min(...owned) > 850, `${count} members: at least ${Math.min(...owned)} of 1000 keys`)
    }
  }
})

t.test(
  'hold: after the death of a thread nothing is lost but what it had taken, in order per key',
  async t => {
    const system = await start(t)
    const record = newRecord(100_000)
    const router = route(system, record, { holdFor: '10s' })
    for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n: 0 }, soon)
    const before = ownersOf(router)
    let n = 1
    let refused = 0
    const asks: Promise<number | unknown>[] = []
    let killed: Promise<void> | undefined
    let isBack = false
    for (let i = 0; !isBack || i < 150; i++) {
      // No more than the link to a thread that is away can hold.
      for (let key = 0; key < KEYS && i < 300; key++) {
        if (i % 20 === 7 && key % 8 === 0) {
          asks.push(router.ask({ type: 'bump', key, n }, soon).catch((error: unknown) => error))
        } else if (router.tell(put(key, n, key % 2 === 0)) !== 'ok') refused++
      }
      if (i < 300) n++
      if (i === 20) {
        killed = system.killThread('p-1')
        killed.then(() => {
          isBack = true
        })
      }
      await round()
    }
    await killed
    for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n }, soon)
    const answers = await Promise.all(asks)
    const failures = answers.filter(answer => typeof answer !== 'number')
    for (const failure of failures) {
      t.ok(failure instanceof ThreadDownError && failure.mayBeTaken, String(failure))
    }
    t.ok(failures.length <= INFLIGHT_MAX, `${failures.length} asks may have been taken`)
    const entries = entriesOf(record)
    // An ask that is asked again may come later.
    const asked = new Set(Array.from({ length: n }, (_, i) => i + 1).filter(i => (i - 1) % 20 === 7))
    checkOrder(entries.filter(entry => !asked.has(entry.n)))
    const lost = KEYS * (n + 1) - entries.length - refused
    t.ok(lost <= 2 * INFLIGHT_MAX, `lost ${lost} of ${KEYS * (n + 1)}`)
    t.strictSame(ownersOf(router), before)
    t.equal(router.epoch, 1, 'no key has moved')
  },
)

t.test('remap: the keys of a dead thread move, at once and in order, and come back', async t => {
  const system = await start(t)
  const record = newRecord(200_000)
  const router = route(system, record, { whileDown: 'remap' })
  for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n: 0 }, soon)
  const before = ownersOf(router)
  const owners = new Map<string, string>()
  let n = 1
  let refused = 0
  for (let i = 0; i < 2000 && !(i > 200 && router.epoch === 3); i++) {
    for (let key = 0; key < KEYS; key++) {
      const owner = router.refFor(key)!.key
      const known = owners.get(`${router.epoch} ${key}`)
      assert.ok(known === undefined || known === owner, 'one owner in one epoch')
      owners.set(`${router.epoch} ${key}`, owner)
      if (router.tell(put(key, n, key % 2 === 0)) !== 'ok') refused++
    }
    n++
    if (i === 50) void system.killThread('p-1')
    if (i === 50) await until(() => router.epoch === 2, 'the keys move')
    if (i === 50) {
      const after = ownersOf(router)
      for (let key = 0; key < KEYS; key++) {
        if (before[key] === 'keyed-1') t.not(after[key], 'keyed-1')
        else t.equal(after[key], before[key], 'only keys of the dead thread move')
      }
      t.strictSame(
        router.members.map(({ state }) => state),
        ['up', 'returning', 'up'],
      )
    }
    await round()
  }
  await until(() => router.epoch === 3, 'the keys come back')
  t.strictSame(ownersOf(router), before)
  for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n }, soon)
  const entries = entriesOf(record)
  checkOrder(entries)
  const lost = KEYS * (n + 1) - entries.length - refused
  t.ok(lost <= 2 * INFLIGHT_MAX, `lost ${lost} of ${KEYS * (n + 1)}, ${refused} refused`)
  t.ok(
    entries.some(({ member, n: at }) => member === 1 && at > 100),
    'the member is used again',
  )
})

t.test('hold that takes too long ends in a remap; what waited goes to the new owners, in order', async t => {
  const system = await start(t, { threadBackoff: { min: '1500ms', max: '1500ms' } })
  const record = newRecord(100_000)
  const router = route(system, record, { holdFor: '600ms', rebalance: 'never' })
  for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n: 0 }, soon)
  const key = ownersOf(router).indexOf('keyed-1')
  await system.killThread('p-1')
  await router.ask({ type: 'bump', key, n: 1 }, soon)
  void system.killThread('p-1')
  await until(() => router.members[1]!.state === 'down', 'the thread is down')
  const statuses = new Set<string>()
  for (let n = 2; n < 500; n++) {
    statuses.add(router.tell(put(key, n, n % 2 === 0)))
  }
  t.strictSame([...statuses], ['ok'])
  await t.rejects(router.ask({ type: 'bump', key, n: 500 }, { timeout: 20 }), AskTimeoutError)
  await t.rejects(
    router.ask({ type: 'bump', key, n: 500 }, { timeout: '1s', signal: AbortSignal.timeout(5) }),
    { code: 'HOMING_ACTOR_ASK_ABORTED' },
  )
  t.equal(router.epoch, 1)
  const owner = await router.ask({ type: 'bump', key, n: 501 }, soon)
  t.not(owner, 1, 'another member has answered')
  t.equal(router.epoch, 2)
  const entries = entriesOf(record).filter(entry => entry.key === key && entry.n > 1)
  t.strictSame(
    entries.map(({ n }) => n),
    [...Array.from({ length: 498 }, (_, i) => i + 2), 501],
  )
  await until(() => router.members[1]!.state === 'returning', 'its next life is spawned')
  await system.killThread('p-0')
  t.equal(router.epoch, 2, 'keys return only when the router is told to')
  await until(() => {
    router.rebalance()
    return router.epoch === 3
  }, 'the keys return')
  t.equal(router.refFor(key)!.name, 'keyed-1')
})

t.test('what a thread had not taken when it ended is told to the new owner, and asked again', async t => {
  const system = await start(t)
  const record = newRecord(10_000)
  const router = route(system, record, { whileDown: 'remap' })
  const key = ownersOf(router).indexOf('keyed-1')
  await router.ask({ type: 'bump', key: key + KEYS, n: 0 }, soon)
  const old = router.refFor(key)!
  router.tell({ type: 'spin', key, ms: 20_000 })
  await until(() => entriesOf(record).some(entry => entry.key === key), 'the member is busy')
  let n = 1
  for (; n <= 2000; n++) router.tell(put(key, n, n % 3 === 0))
  const asks = Array.from({ length: 20 }, (_, i) => router.ask({ type: 'bump', key, n: n + i }, soon))
  const direct = old.ask({ type: 'bump', key, n: 0 }, soon)
  await round()
  void system.killThread('p-1')
  await t.rejects(direct, { code: 'HOMING_ACTOR_THREAD_DOWN', mayBeTaken: false })
  const heirs = new Set(await Promise.all(asks))
  t.notOk(heirs.has(1))
  t.equal(heirs.size, 1)
  t.strictSame(
    entriesOf(record).flatMap(entry => (entry.key === key ? [entry.n] : [])),
    Array.from({ length: 2021 }, (_, i) => i),
    'nothing is lost, nothing twice, and all in order',
  )
  await until(() => router.epoch === 3, 'the member is back')
  await t.rejects(
    old.ask({ type: 'bump', key, n }, soon),
    { code: 'HOMING_ACTOR_TERMINATED' },
    'the old ref is no way around the router',
  )
})

for (const whileDown of ['hold', 'remap'] as const) {
  t.test(`${whileDown}: what a thread that hung had not taken goes to the new owner`, async t => {
    const system = await start(t, { hungAfter: '500ms', threadBackoff: { min: '10s', max: '10s' } })
    const record = newRecord(10_000)
    const router = route(system, record, { whileDown, holdFor: 0 })
    for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key: key + KEYS, n: 0 }, soon)
    const key = ownersOf(router).indexOf('keyed-1')
    // Its second death in a row is followed by a pause.
    await system.killThread('p-1')
    await until(() => router.members[1]!.state === 'up', 'the member is back')
    await router.ask({ type: 'bump', key: key + KEYS, n: 1 }, soon)
    const { epoch } = router
    router.tell({ type: 'spin', key, ms: 20_000 })
    await until(() => entriesOf(record).some(entry => entry.key === key), 'the member is busy')
    for (let n = 1; n <= 1000; n++) assert.equal(router.tell(put(key, n, n % 3 === 0)), 'ok')
    // Main waits without work, or it would have no time for its watch.
    await t.rejects(router.refFor(key)!.ask({ type: 'bump', key, n: 0 }, { timeout: '20s' }), ThreadDownError)
    await until(() => router.epoch > epoch, 'the keys move')
    t.not(await router.ask({ type: 'bump', key, n: 1001 }, soon), 1)
    t.strictSame(
      entriesOf(record).flatMap(entry => (entry.key === key ? [entry.n] : [])),
      Array.from({ length: 1002 }, (_, i) => i),
    )
  })
}

t.test('so it does for a router on a thread', async t => {
  const system = await start(t, { hungAfter: '2s' })
  const record = newRecord(10_000)
  const host = system.spawn(routerHost, { name: 'host', args: { record }, thread: 'p-0' })
  for (let key = 0; key < KEYS; key++) await host.ask({ type: 'put', key, n: 0 }, soon)
  await until(() => entriesOf(record).length >= KEYS, 'all members are loaded')
  host.tell({ type: 'spin', key: 1, ms: 20_000 })
  await until(() => entriesOf(record).length > KEYS, 'a member is busy')
  for (let n = 1; n <= 500; n++) assert.equal(await host.ask({ type: 'put', key: 1, n }, soon), 'ok')
  const others = ['p-1', 'p-2'].map(thread =>
    system.spawn(keyed, { name: 'other', args: { record: newRecord(10), index: 0 }, thread }),
  )
  const asks = others.map(other => other.ask({ type: 'bump', key: 0, n: 0 }, { timeout: '20s' }))
  await t.rejects(Promise.all(asks), ThreadDownError)
  await until(() => entriesOf(record).length >= KEYS + 501, 'all are handled')
  checkOrder(entriesOf(record).slice(KEYS + 1))
})

t.test('an ask that waited in the link while its member was replaced is asked again', async t => {
  const system = await start(t)
  const record = newRecord(1000)
  const router = route(system, record, { holdFor: '10s' })
  const key = ownersOf(router).indexOf('keyed-1')
  router.tell({ type: 'spin', key, ms: 20_000 })
  await until(() => entriesOf(record).length > 0, 'the member is busy')
  router.tell({ type: 'put', key, n: 1 })
  const asks = Array.from({ length: 20 }, (_, i) => router.ask({ type: 'bump', key, n: 2 + i }, soon))
  await round()
  await system.killThread('p-1')
  t.strictSame(new Set(await Promise.all(asks)), new Set([1]))
  t.strictSame(
    entriesOf(record).map(entry => entry.n),
    Array.from({ length: 22 }, (_, i) => i),
  )
})

for (const isStashing of [false, true]) {
  const what = isStashing ? 'has stashed' : 'has in flight'
  t.test(`keys return only once their owner has handled what it ${what}`, async t => {
    const system = await start(t)
    const record = newRecord(100)
    const router = createKeyRouter(system, slow, {
      name: 'slow',
      args: index => ({ record, index, isStashing }),
      by: m => m.key,
      over: ['p-0', 'p-1'],
      whileDown: 'remap',
      holdFor: '10s',
      mailbox: { capacity: 1024 },
    })
    const keys = Array.from({ length: KEYS }, (_, i) => i)
    const key = keys.find(k => router.refFor(k)!.name === 'slow-0')!
    const keyOfOther = keys.find(k => router.refFor(k)!.name === 'slow-1')!
    router.tell({ type: 'die', key })
    await until(() => router.epoch === 2, 'the keys move')
    router.tell({ type: 'put', key, n: 1 })
    // What is told to keys on their way waits in the router, and no more of it than a mailbox holds.
    await until(
      () => router.tell({ type: 'ping', key }) === 'full' || router.epoch === 3,
      'the keys are about to return',
    )
    t.equal(router.epoch, 2)
    router.tell({ type: 'go', key: keyOfOther })
    await until(() => router.epoch === 3, 'the keys return')
    t.ok(entriesOf(record).some(({ n, member }) => n === 1 && member === 1))
  })
}

t.test('while only members of one thread are left their keys wait, however long', async t => {
  const system = await start(t, { pools: { p: { count: 1 } } })
  const record = newRecord(1000)
  const router = route(system, record, { whileDown: 'remap', over: { pool: 'p', size: 2 } })
  await router.ask({ type: 'bump', key: 1, n: 0 }, soon)
  await system.killThread('p-0')
  t.type(await router.ask({ type: 'bump', key: 1, n: 1 }, soon), 'number')
  t.equal(router.epoch, 1)
})

t.test('a member that ends for good leaves its keys to the others', async t => {
  const system = await start(t)
  const router = route(system, newRecord(1000))
  const key = ownersOf(router).indexOf('keyed-2')
  router.tell({ type: 'stop', key })
  await until(() => router.epoch === 2, 'its keys move')
  t.equal(router.members.length, 2)
  t.not(await router.ask({ type: 'bump', key, n: 1 }, soon), 2)
  router.stop()
  t.equal(router.refFor(key), undefined)
  t.equal(router.tell({ type: 'put', key, n: 2 }), 'dead')
  await t.rejects(router.ask({ type: 'bump', key, n: 2 }, soon), { code: 'HOMING_ACTOR_TERMINATED' })
})

t.test('a thread that is given up leaves its keys, and what waited for it, to the others', async t => {
  const system = await start(t, { threadRestartsMax: 0 })
  const record = newRecord(10_000)
  const router = route(system, record, { holdFor: '10s' })
  for (let key = 0; key < KEYS; key++) await router.ask({ type: 'bump', key, n: 0 }, soon)
  const key = ownersOf(router).indexOf('keyed-1')
  router.tell({ type: 'die', key })
  for (let n = 1; n <= 1000; n++) router.tell({ type: 'put', key, n })
  t.not(await router.ask({ type: 'bump', key, n: 1001 }, soon), 1)
  const entries = entriesOf(record).filter(entry => entry.key === key)
  checkOrder(entries)
  t.ok(1002 - entries.length <= INFLIGHT_MAX, `lost ${1002 - entries.length}`)
  t.equal(router.members.length, 2)
})

t.test('an actor on any thread may have a router', async t => {
  const system = await start(t)
  const record = newRecord(10_000)
  const host = system.spawn(routerHost, { name: 'host', args: { record }, thread: 'p-0' })
  for (let key = 0; key < KEYS; key++) t.equal(await host.ask({ type: 'put', key, n: 0 }, soon), 'ok')
  // A thread whose modules are still being loaded may take more with it than what it has in hand.
  await until(() => entriesOf(record).length >= KEYS, 'all members are loaded')
  await system.killThread('p-1')
  let n = 1
  const limit = performance.now() + 10_000
  while ((await host.ask({ type: 'epoch' }, soon)) < 3) {
    assert.ok(performance.now() < limit, 'keys move and return')
    for (let key = 0; key < KEYS; key++) await host.ask({ type: 'put', key, n }, soon)
    n++
  }
  await until(() => entriesOf(record).length >= KEYS * n, 'all are handled')
  checkOrder(entriesOf(record))
})

t.test('a router ends with the instance of the actor that made it', async t => {
  const moves: unknown[] = []
  const log: Log = {
    ...silentLog,
    debug: (fields, text) => void (text === 'keys move' && moves.push(fields)),
    child: () => log,
  }
  const system = await start(t, { log })
  const host = system.spawn(routerHost, {
    name: 'host',
    args: { record: newRecord(100) },
    supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: 0, max: 0 } },
  })
  for (let i = 0; i < 5; i++) host.tell({ type: 'fail' })
  t.equal(await host.ask({ type: 'epoch' }, soon), 1)
  t.equal((await system.stats()).restarts, 5)
  await system.killThread('p-1')
  t.ok((await host.ask({ type: 'epoch' }, soon)) > 1)
  t.strictSame(
    moves.filter(fields => (fields as { epoch: number }).epoch === 2),
    [{ router: 'inner', epoch: 2, owners: 1 }],
  )
})

t.test('in a test system every member is here', async t => {
  const system = createTestSystem()
  const record = newRecord(100)
  const router = route(system, record, { over: { pool: 'any', size: 4 } })
  const answer = router.ask({ type: 'bump', key: 5, n: 1 }, soon)
  await system.settle()
  t.equal(`keyed-${await answer}`, router.refFor(5)!.name)
  await system.shutdown()
  t.equal(router.tell({ type: 'put', key: 5, n: 2 }), 'dead')
})

t.test('options out of their range are refused', async t => {
  const system = await start(t, { pools: { p: { count: 1 } } })
  t.throws(() => route(system, newRecord(1), { over: { pool: 'p', size: 0 } }), RangeError)
  t.throws(() => route(system, newRecord(1), { over: [] }), RangeError)
  t.throws(() => route(system, newRecord(1), { over: { pool: 'q', size: 1 } }), {
    code: 'HOMING_ACTOR_UNKNOWN_THREAD',
  })
  t.throws(() => createKeyRouter({} as never, keyed, {} as never), TypeError)
})
