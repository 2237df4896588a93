/**
 * Bugs of other actor libraries, one test each. All of them apply here, except that no message is
 * relayed or dispatched by proxies: for those the test shows that nothing depends on garbage collection.
 *
 * The worst case of a stuck `terminate`, native code that nothing ends, takes seconds and is in
 * threads.test.ts ("a thread stuck where nothing ends it is cut off, reported and replaced").
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import {
  type ActorRef,
  type ActorSystem,
  ActorTerminatedError,
  AskAbortedError,
  type Reply,
  type Supervision,
  ThreadDownError,
} from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { echo } from './fixtures/echo.ts'
import { actor, startSystem } from './inline-actors.ts'
import { soon, startThreads, whereWhenUp } from './thread-systems.ts'

type Told =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'fail' }
  | { readonly type: 'hang' }
  | { readonly type: 'get'; readonly n: number; readonly reply: Reply<number> }

const restart: Supervision = { directive: 'restart', max: 10, within: '1m', backoff: { min: 10, max: 10 } }

/** Notes what it is told. */
const plain = (seen: number[] = []) =>
  actor<Told>(() => ({
    note: m => void seen.push(m.n),
    fail() {
      throw new Error('x')
    },
    hang: () => new Promise<void>(() => {}),
    get: m => m.reply(m.n),
  }))

/** Where a new actor says it is, once its thread has been replaced. */
const whenUp = (system: ActorSystem, thread: string): Promise<string> =>
  whereWhenUp(system.spawn(echo, { name: 'after', args: {}, thread, supervision: restart }))

t.test('constructor zombie: an actor whose setup throws is gone, and everybody hears of it', async t => {
  const sys = startSystem(t)
  const probe = sys.probe()
  const ref = sys.spawn(
    actor<Told>(() => {
      throw new Error('no setup')
    }),
    { name: 'zombie', args: undefined },
  )
  probe.watch(ref)
  const asked = t.rejects(ref.ask({ type: 'get', n: 1 }, soon), ActorTerminatedError)
  t.equal((await probe.nextTerminated()).reason, 'failed')
  await asked
  t.notOk((await sys.describe()).some(status => status.name === 'zombie'))
  t.equal(ref.tell({ type: 'note', n: 1 }), 'dead')
})

t.test('busy-spin while terminating: an actor that waits for its end has no turns', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(plain(), { name: 'a', args: undefined, shutdown: '1m' })
  ref.tell({ type: 'hang' })
  for (let n = 0; n < 100; n++) ref.tell({ type: 'note', n })
  await sys.settle()
  void sys.stop(ref)
  await t.resolves(sys.settle(), 'the run queue is empty')
  const { handled } = await sys.stats()
  t.equal(handled, 1)
})

t.test('invisible restarts: a restart is in the log, the counters and the tree', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const ref = sys.spawn(plain(), { name: 'a', args: undefined, supervision: restart })
  ref.tell({ type: 'fail' })
  await sys.advance('1s')
  t.ok(log.lines.some(line => line.level === 'warn' && line.text === 'actor failed'))
  t.ok(log.lines.some(line => line.level === 'warn' && line.text === 'actor restarts'))
  t.equal((await sys.stats()).restarts, 1)
  t.equal((await sys.describe())[0]?.restarts, 1)
})

t.test('sibling-shared budget: five siblings do not exhaust the budget of each other', async t => {
  const sys = startSystem(t)
  type Get = { readonly type: 'children'; readonly reply: Reply<readonly ActorRef<Told>[]> }
  const once: Supervision = { ...restart, max: 1 } as Supervision
  const parent = actor<Get>(ctx => {
    const refs = [1, 2, 3, 4, 5].map(n =>
      ctx.spawn(plain(), { name: `child-${n}`, args: undefined, supervision: once }),
    )
    return { children: m => m.reply(refs) }
  })
  const children = await sys
    .spawn(parent, { name: 'parent', args: undefined })
    .ask({ type: 'children' }, soon)
  for (const child of children) child.tell({ type: 'fail' })
  await sys.advance('1s')
  for (const child of children) t.equal(child.tell({ type: 'note', n: 1 }), 'ok')
})

t.test('throw into sender: tell answers, whatever state its target is in', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(plain(), { name: 'a', args: undefined, mailbox: { capacity: 1 } })
  t.strictSame([ref.tell({ type: 'fail' }), ref.tell({ type: 'fail' })], ['ok', 'full'])
  await sys.settle()
  t.equal(ref.tell({ type: 'fail' }), 'dead')
})

t.test('drain abandoned by phase timeout: only the deadline of the shutdown ends a drain', async t => {
  const sys = startSystem(t)
  const ended: string[] = []
  const slow = actor<Told, string>((ctx, name) => ({
    note() {},
    fail() {},
    async hang() {
      const { promise, resolve } = Promise.withResolvers<void>()
      ctx.clock.after(8000, () => resolve())
      await promise
      ended.push(name)
    },
    get() {},
  }))
  for (const name of ['a', 'b']) {
    sys.spawn(slow, { name, args: name, shutdown: 'infinity' }).tell({ type: 'hang' })
  }
  await sys.settle()
  const shutdown = sys.shutdown({ deadline: '20s' })
  await sys.advance('20s')
  t.strictSame((await shutdown).slow, [])
  t.strictSame(ended.toSorted(), ['a', 'b'])
})

t.test(
  'silent drop-head: nothing is dropped by default, and what is dropped is counted and logged',
  async t => {
    const log = recordingLog()
    const sys = startSystem(t, { log })
    const [byDefault, dropping] = [[] as number[], [] as number[]]
    const first = sys.spawn(plain(byDefault), { name: 'a', args: undefined })
    for (let n = 0; n < 1024; n++) first.tell({ type: 'note', n })
    t.equal(first.tell({ type: 'note', n: 1024 }), 'full')
    const second = sys.spawn(plain(dropping), {
      name: 'b',
      args: undefined,
      mailbox: { capacity: 1, overflow: 'dropOldest' },
    })
    for (const n of [1, 2]) second.tell({ type: 'note', n })
    await sys.settle()
    t.equal(byDefault[0], 0)
    t.strictSame(dropping, [2])
    t.equal((await sys.stats()).deadLettersByReason.overflow, 1)
    t.match(
      log.lines.find(line => line.text === 'dead letter'),
      { level: 'warn', fields: { reason: 'overflow' } },
    )
  },
)

t.test('pending mailbox lost on restart: what waits is handled by the next instance', async t => {
  const sys = startSystem(t)
  const seen: number[] = []
  const ref = sys.spawn(plain(seen), { name: 'a', args: undefined, supervision: restart })
  ref.tell({ type: 'fail' })
  for (const n of [1, 2, 3]) ref.tell({ type: 'note', n })
  const asked = ref.ask({ type: 'get', n: 9 }, soon)
  await sys.advance('1s')
  t.strictSame(seen, [1, 2, 3])
  t.equal(await asked, 9)
})

t.test('abort-order stall: asks aborted in any order leave no slot behind and hold up no other', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Told>(() => ({ note() {}, fail() {}, hang() {}, get: m => void (m.n >= 0 && m.reply(m.n)) })),
    { name: 'a', args: undefined },
  )
  for (const order of [
    [0, 1, 2],
    [2, 1, 0],
    [1, 0, 2],
  ]) {
    const controllers = order.map(() => new AbortController())
    const asked = controllers.map(({ signal }) =>
      t.rejects(ref.ask({ type: 'get', n: -1 }, { ...soon, signal }), AskAbortedError),
    )
    await sys.settle()
    for (const at of order) controllers[at]!.abort()
    await Promise.all(asked)
    t.equal(await ref.ask({ type: 'get', n: 7 }, soon), 7)
  }
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('between threads', async t => {
  const system = await startThreads(t, { threadBackoff: { min: 1, max: 10 } })

  t.test('no-op remote watch: the end of an actor on another thread is told once', async t => {
    const probe = createProbe(system, 'watcher')
    const ref = system.spawn(echo, { name: 'watched', args: {}, thread: 'p-0' })
    await ref.ask({ type: 'where' }, soon)
    await probe.ref.tell({ type: 'started' })
    await probe.next()
    probe.watch(ref)
    probe.watch(ref)
    ref.tell({ type: 'stop' })
    t.equal((await probe.nextTerminated('1m')).reason, 'stopped')
    await t.rejects(probe.nextTerminated('50ms'), { code: 'HOMING_ACTOR_PROBE_TIMEOUT' })
  })

  t.test('missing error listener: a thread that crashes does not take the process with it', async t => {
    const ref = system.spawn(echo, { name: 'crashes', args: {}, thread: 'p-0' })
    const ended = system.whenTerminated(ref)
    ref.tell({ type: 'throwOutside' })
    t.equal((await ended).reason, 'threadExit')
    t.equal(await whenUp(system, 'p-0'), 'p-0')
  })

  t.test('unresolved in-flight promises: asks of a thread that exits settle', async t => {
    const ref = system.spawn(echo, { name: 'exits', args: {}, thread: 'p-1' })
    await ref.ask({ type: 'where' }, soon)
    const asked = [1, 2, 3].map(() =>
      t.rejects(ref.ask({ type: 'silent' }, { timeout: '1m' }), ThreadDownError),
    )
    ref.tell({ type: 'exit', code: 0 })
    await Promise.all(asked)
    t.equal((await system.stats()).asksPending, 0)
  })

  t.test('proxy-GC drop: an ask is answered when nobody holds the ref any more', async t => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const ask = (): Promise<unknown> => {
      const ref = system.spawn(echo, { name: 'unheld', args: {}, thread: 'p-0' })
      return ref.ask({ type: 'echo', value: 42 }, soon)
    }
    const asked = ask()
    collect()
    t.equal(await asked, 42)
  })

  t.test('stuck terminate: a thread that never yields is ended and replaced', async t => {
    const probe = createProbe<{ readonly type: 'note'; readonly n: number }>(system, 'spin probe')
    const ref = system.spawn(echo, { name: 'spins', args: { told: probe.ref }, thread: 'p-1' })
    await probe.next('1m')
    ref.tell({ type: 'spin' })
    await system.killThread('p-1')
    t.equal(await whenUp(system, 'p-1'), 'p-1')
  })
})
