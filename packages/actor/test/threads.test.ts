/** The promises of docs/actors.md between threads, and what happens when a thread dies. */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import {
  type ActorRef,
  type ActorSystem,
  ActorTerminatedError,
  AskAbortedError,
  AskRefusedError,
  AskTimeoutError,
  createActorSystem,
  defineActor,
  ModuleImportError,
  ThreadDownError,
  UnknownExportError,
  UnknownThreadError,
  UnserializableMessageError,
} from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { RemoteError, silentLog } from '@homing/base'
import t from 'tap'
import { broken } from './fixtures/broken.ts'
import {
  ASLEEP,
  type EchoMessage,
  echo,
  misnamed,
  type NoteMessage,
  nester,
  parent,
  sharer,
} from './fixtures/echo.ts'
import { restart, soon, startThreads, whereWhenUp } from './thread-systems.ts'

t.test('one system, two threads beside main', async t => {
  const system = await startThreads(t)
  const on = (thread: string, name = `echo on ${thread}`): ActorRef<EchoMessage> =>
    system.spawn(echo, { name, args: {}, thread })
  const e0 = on('p-0')
  const e1 = on('p-1')

  t.test('an actor runs where it was placed', async t => {
    for (const thread of ['main', 'p-0', 'p-1'])
      t.equal(await on(thread).ask({ type: 'where' }, soon), thread)
    const here = system.spawn(echo, { name: 'here', args: {}, thread: 'here' })
    t.equal(await here.ask({ type: 'where' }, soon), 'main')
  })

  t.test('a key sticks to one thread of its pool, and keys spread', async t => {
    const place = (key: number): Promise<string> =>
      system
        .spawn(echo, { name: `key ${key}`, args: {}, thread: { pool: 'p', key } })
        .ask({ type: 'where' }, soon)
    const first = await Promise.all(Array.from({ length: 20 }, (_, key) => place(key)))
    const second = await Promise.all(Array.from({ length: 20 }, (_, key) => place(key)))
    t.strictSame(first, second)
    t.strictSame(new Set(first), new Set(['p-0', 'p-1']))
  })

  t.test('a dedicated thread ends with its actor', async t => {
    const ref = system.spawn(echo, { name: 'own', args: {}, thread: 'dedicated' })
    const thread = await ref.ask({ type: 'where' }, soon)
    t.match(thread, /^dedicated-/)
    const relayed = createProbe<NoteMessage>(system, 'relayed')
    ref.tell({ type: 'tellTo', ref: relayed.ref, n: 5 })
    t.equal((await relayed.next('1m')).n, 5)
    t.equal((await system.stats()).threads, 4)
    t.equal((await system.stop(ref)).reason, 'stopped')
    await t.rejects(ref.ask({ type: 'where' }, soon))
    t.equal((await system.stats()).threads, 3)
  })

  t.test('a placement that does not exist is refused at the spawn', async t => {
    t.throws(() => on('nowhere'), UnknownThreadError)
    t.throws(
      () => system.spawn(echo, { name: 'x', args: {}, thread: { pool: 'nowhere', key: 1 } }),
      UnknownThreadError,
    )
  })

  t.test('an actor that its module does not export is refused at the spawn', async t => {
    const missing = defineActor(
      new URL('./fixtures/echo.ts', import.meta.url).href,
      'missing',
    )<NoteMessage>({
      setup: () => ({ note() {} }),
    })
    t.throws(() => system.spawn(missing, { name: 'x', args: undefined, thread: 'p-0' }), UnknownExportError)
    t.throws(() => system.spawn(misnamed, { name: 'x', args: undefined, thread: 'p-0' }), UnknownExportError)
  })

  t.test('an actor whose module does not load on its thread ends as failed, with the reason', async t => {
    const ref = system.spawn(broken, { name: 'broken', args: undefined, thread: 'p-0' })
    const { reason, error } = await system.whenTerminated(ref)
    t.equal(reason, 'failed')
    t.match(error, { code: new ModuleImportError('', '', '').code, message: /not on this thread/ })
  })

  t.test('refs in messages, answers and args work on every thread', async t => {
    const probe = createProbe<NoteMessage>(system, 'refs')
    e0.tell({ type: 'tellTo', ref: probe.ref, n: 1 })
    t.equal((await probe.next('1m')).n, 1)

    const back = (await e0.ask({ type: 'echo', value: { deep: [{ ref: e1 }, 'x'] } }, soon)) as {
      deep: [{ ref: ActorRef<EchoMessage> }, string]
    }
    t.equal(back.deep[0].ref.key, e1.key)
    t.equal(await back.deep[0].ref.ask({ type: 'where' }, soon), 'p-1')
    t.equal(await (await e1.ask({ type: 'self' }, soon)).ask({ type: 'where' }, soon), 'p-1')

    system.spawn(echo, { name: 'args', args: { told: probe.ref }, thread: 'p-1' })
    t.equal((await probe.next('1m')).n, 0)

    // From one thread to the other, without main in between.
    e0.tell({ type: 'tellTo', ref: e1 as ActorRef<never> as ActorRef<NoteMessage>, n: 77 })
    while (!(await e1.ask({ type: 'notes' }, soon)).includes(77));
    t.pass('told from thread to thread')
  })

  t.test('a reply may be passed on to any thread', async t => {
    t.equal(await e0.ask({ type: 'passOn', to: e1 }, soon), 'answered on p-1')
    const here = on('main')
    t.equal(await here.ask({ type: 'passOn', to: e0 }, soon), 'answered on p-0')
    t.equal(await e0.ask({ type: 'passOn', to: here }, soon), 'answered on main')
    t.equal((await system.stats()).asksPending, 0)
  })

  t.test('bytes are copied, shared memory is shared', async t => {
    const bytes = new Uint8Array([9, 1, 2, 3, 9]).subarray(1, 4)
    const copy = (await e0.ask({ type: 'echo', value: bytes }, soon)) as Uint8Array
    t.strictSame([...copy], [1, 2, 3])
    t.equal(copy.buffer.byteLength, 3, 'only the bytes of the view travel')
    t.equal(bytes.byteLength, 3, 'the sender keeps its own')
    const words = new Int32Array(new SharedArrayBuffer(8))
    await e0.ask({ type: 'increment', words }, soon)
    await e1.ask({ type: 'increment', words }, soon)
    t.equal(words[0], 2)
  })

  t.test('what cannot travel is a typed error for an ask, a dead letter for a tell', async t => {
    const before = (await system.stats()).deadLetters
    class Money {
      readonly cents = 1
    }
    const cyclic: { self?: unknown } = {}
    cyclic.self = cyclic
    for (const value of [
      () => {},
      Symbol('s'),
      new Money(),
      { deep: [new Map([['f', () => {}]])] },
      cyclic,
    ]) {
      await t.rejects(e0.ask({ type: 'echo', value }, soon), UnserializableMessageError)
    }
    t.equal(e0.tell({ type: 'note', n: (() => {}) as never }), 'dead')
    await t.rejects(e0.ask({ type: 'answerFunction' }, soon), { code: 'HOMING_ACTOR_UNSERIALIZABLE' })
    t.throws(
      () => system.spawn(echo, { name: 'x', args: { told: (() => {}) as never }, thread: 'p-0' }),
      UnserializableMessageError,
    )
    t.equal((await system.stats()).deadLetters, before + 1)
    t.equal(await e0.ask({ type: 'where' }, soon), 'p-0', 'the thread is well')
  })

  t.test('what only the clone itself refuses is a typed error too, and its neighbours arrive', async t => {
    // Detached memory passes the scan and fails in the post, together with others of the same turn.
    const detached = new Uint8Array(8)
    structuredClone(detached.buffer, { transfer: [detached.buffer] })
    const answers = await Promise.allSettled([
      e0.ask({ type: 'where' }, soon),
      e0.ask({ type: 'echo', value: detached.buffer }, soon),
      e0.ask({ type: 'where' }, soon),
    ])
    t.strictSame(
      answers.map(answer => (answer.status === 'fulfilled' ? answer.value : answer.reason.code)),
      ['p-0', 'HOMING_ACTOR_UNSERIALIZABLE', 'p-0'],
    )
  })

  t.test('asks across threads settle in every way', async t => {
    const failing = on('p-0', 'failing')
    await t.rejects(failing.ask({ type: 'fail', text: 'remote trouble' }, soon), {
      message: 'remote trouble',
    })
    await t.rejects(on('p-0').ask({ type: 'fail', text: 'x' }, soon), RemoteError)
    await t.rejects(failing.ask({ type: 'where' }, soon), ActorTerminatedError)
    await t.rejects(e0.ask({ type: 'silent' }, { timeout: 20 }), AskTimeoutError)
    const controller = new AbortController()
    const aborted = t.rejects(
      e0.ask({ type: 'silent' }, { ...soon, signal: controller.signal }),
      AskAbortedError,
    )
    controller.abort()
    await aborted
    const dying = on('p-1', 'dying')
    const died = t.rejects(dying.ask({ type: 'silent' }, soon), ActorTerminatedError)
    dying.tell({ type: 'stop' })
    await died
    const small = system.spawn(echo, {
      name: 'small',
      args: {},
      thread: 'p-0',
      shutdown: 20,
      mailbox: { capacity: 1 },
    })
    small.tell({ type: 'hang' })
    await e0.ask({ type: 'where' }, soon)
    small.tell({ type: 'stop' })
    await t.rejects(small.ask({ type: 'where' }, soon), AskRefusedError)
    t.equal((await system.stats()).asksPending, 0)
  })

  t.test('messages keep their order between threads', async t => {
    const receiver = system.spawn(echo, { name: 'fifo', args: {}, thread: 'p-1', mailbox: { capacity: 16 } })
    await receiver.ask({ type: 'where' }, soon)
    let sent = 0
    while (sent < 20_000) {
      if (receiver.tell({ type: 'note', n: sent }) === 'ok') sent++
      else await new Promise<void>(resolve => setImmediate(resolve))
    }
    const notes = await receiver.ask({ type: 'notes' }, soon)
    t.equal(notes.length, 20_000, 'a mailbox of 16 loses nothing while its actor keeps up')
    t.ok(notes.every((n, i) => n === i))
  })

  t.test('a sender that never pauses is told full, not killed', async t => {
    const probe = createProbe<NoteMessage>(system, 'flooded')
    const done = new Int32Array(new SharedArrayBuffer(4))
    const asked = e0.ask({ type: 'flood', ref: probe.ref, count: 40_000, done }, soon)
    await new Promise<void>(resolve => queueMicrotask(resolve))
    // Main takes nothing meanwhile.
    t.not(Atomics.wait(done, 0, 0, 50_000), 'timed-out')
    const tally = await asked
    t.equal(tally.dead, 0)
    t.ok(tally.full > 0)
    let inOrder = 0
    for (let n = 0, last = -1; n < tally.ok; n++) {
      const next = (await probe.next('1m')).n
      if (next > last) inOrder++
      last = next
    }
    t.equal(inOrder, tally.ok)
  })

  t.test('watch tells once about an actor of any thread, also when it is dead already', async t => {
    const probe = createProbe(system, 'watcher')
    const target = on('p-0', 'target')
    probe.watch(target)
    target.tell({ type: 'stop' })
    t.match(await probe.nextTerminated('1m'), { reason: 'stopped', ref: { key: target.key } })
    probe.watch(target)
    t.equal((await probe.nextTerminated('1m')).reason, 'stopped')
    const failing = on('p-0', 'failing')
    probe.watch(failing)
    failing.ask({ type: 'fail', text: 'x' }, soon).catch(() => {})
    t.match(await probe.nextTerminated('1m'), { reason: 'failed', error: { message: /x/ } })

    const onThread = system.spawn(parent, {
      name: 'remote watcher',
      args: { childThread: 'p-1' },
      thread: 'p-0',
    })
    const here = on('main', 'watched on main')
    await onThread.ask({ type: 'watch', ref: here }, soon)
    const child = await onThread.ask({ type: 'child' }, soon)
    t.equal(await child.ask({ type: 'where' }, soon), 'p-1')
    await system.stop(here)
    child.tell({ type: 'stop' })
    await system.whenTerminated(child)
    let events: readonly string[] = []
    while (events.length < 2) events = await onThread.ask({ type: 'events' }, soon)
    t.strictSame([...events].sort(), ['remote watcher.child stopped', 'watched on main stopped'])
  })

  t.test('a child on another thread ends with its parent', async t => {
    const ref = system.spawn(parent, { name: 'family', args: { childThread: 'p-1' }, thread: 'p-0' })
    const child = await ref.ask({ type: 'child' }, soon)
    t.equal(await child.ask({ type: 'where' }, soon), 'p-1', 'also while its spawn is on the way')
    const tree = (await system.describe()).find(status => status.name === 'family')
    t.match(tree, { thread: 'p-0', children: [{ name: 'family.child', thread: 'p-1' }] })
    const childEnded = system.whenTerminated(child)
    await system.stop(ref)
    t.equal((await childEnded).reason, 'stopped')
  })

  t.test('a capability is one per thread', async t => {
    const count = (thread: string): Promise<number> =>
      system.spawn(sharer, { name: 's', args: undefined, thread }).ask({ type: 'count' }, soon)
    t.strictSame([await count('p-0'), await count('p-0'), await count('p-1')], [1, 2, 1])
  })
})

t.test('when a thread dies', async t => {
  const ways: [string, (ref: ActorRef<EchoMessage>, system: ActorSystem) => void][] = [
    ['throws outside of any arm', ref => ref.tell({ type: 'throwOutside' })],
    ['leaves a rejection unhandled', ref => ref.tell({ type: 'rejectOutside' })],
    ['exits with 0', ref => ref.tell({ type: 'exit', code: 0 })],
    ['exits with 7', ref => ref.tell({ type: 'exit', code: 7 })],
    ['is terminated', (_ref, system) => void system.killThread('p-0')],
    [
      'spins and is terminated',
      (ref, system) => {
        ref.tell({ type: 'spin' })
        void system.killThread('p-0')
      },
    ],
  ]
  const system = await startThreads(t)
  for (const [way, kill] of ways) {
    t.test(`because it ${way}: asks, watches and actors are settled`, async t => {
      const restarted = system.spawn(echo, {
        name: 'restarted',
        args: {},
        thread: 'p-0',
        supervision: restart,
      })
      const stopped = system.spawn(echo, { name: 'stopped', args: {}, thread: 'p-0' })
      const watcher = system.spawn(parent, { name: 'watcher', args: { childThread: 'p-0' }, thread: 'p-1' })
      const probe = createProbe(system, 'watcher')
      probe.watch(restarted)
      probe.watch(stopped)
      await watcher.ask({ type: 'watch', ref: restarted }, soon)
      t.equal(await restarted.ask({ type: 'count' }, soon), 1)

      // With this error, not that of its deadline.
      const open = t.rejects(stopped.ask({ type: 'silent' }, { timeout: '1m' }), ThreadDownError)
      const ended = system.whenTerminated(stopped)
      kill(stopped, system)
      await open
      t.equal((await ended).reason, 'threadExit')
      const told = [await probe.nextTerminated('1m'), await probe.nextTerminated('1m')]
      t.strictSame(told.map(({ ref, reason }) => `${ref.name} ${reason}`).sort(), [
        'restarted threadExit',
        'stopped threadExit',
      ])
      let events: readonly string[] = []
      while (events.length < 2) events = await watcher.ask({ type: 'events' }, soon)
      t.strictSame([...events].sort(), ['restarted threadExit', 'watcher.child threadExit'])

      await whereWhenUp(restarted)
      t.equal(await restarted.ask({ type: 'count' }, soon), 1, 'a new instance')
      t.equal(await restarted.ask({ type: 'where' }, soon), 'p-0', 'under the same ref')
      await t.rejects(stopped.ask({ type: 'where' }, soon), ActorTerminatedError)
      t.equal(stopped.tell({ type: 'stop' }) === 'full', false)
      probe.watch(stopped)
      await probe.nextTerminated('1m')
      t.equal((await system.stats()).asksPending, 0)
      for (const ref of [restarted, watcher, probe.ref]) await system.stop(ref)
    })
  }
})

t.test('an actor that a thread death took back is stopped by its parent like any other', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(echo, { name: 'r', args: {}, thread: 'p-0', supervision: restart })
  await ref.ask({ type: 'where' }, soon)
  await system.killThread('p-0')
  t.equal(await ref.ask({ type: 'where' }, soon), 'p-0', 'the ref works as soon as the kill is over')
  t.equal((await system.describe())[0]?.restarts, 1)
  t.equal((await system.stop(ref)).reason, 'stopped')
  await system.killThread('p-0')
  const alive = await system.describe()
  t.strictSame(alive, [], 'it is not brought back once more')
})

t.test('a parent that dies with its thread takes its children elsewhere with it', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(parent, {
    name: 'family',
    args: { childThread: 'p-1' },
    thread: 'p-0',
    supervision: restart,
  })
  const child = await ref.ask({ type: 'child' }, soon)
  await child.ask({ type: 'where' }, soon)
  const childEnded = system.whenTerminated(child)
  await system.killThread('p-0')
  t.equal((await childEnded).reason, 'stopped')
  const next = await ref.ask({ type: 'child' }, soon)
  t.not(next.key, child.key, 'its next instance has a child of its own')
  t.equal(await next.ask({ type: 'where' }, soon), 'p-1')
})

t.test('an actor that kills its thread too often is given up, its thread goes on', async t => {
  const system = await startThreads(t, { threadBackoff: { min: 0, max: 0 } })
  const deadly = system.spawn(echo, {
    name: 'deadly',
    args: {},
    thread: 'p-0',
    supervision: { ...restart, max: 2 },
  })
  const other = system.spawn(echo, { name: 'other', args: {}, thread: 'p-0', supervision: restart })
  const ended = system.whenTerminated(deadly)
  for (let i = 0; i < 3; i++) {
    await whereWhenUp(other)
    await t.rejects(deadly.ask({ type: 'exit', code: 1 } as never, soon), ThreadDownError)
  }
  t.match(await ended, { reason: 'failed', error: { code: 'HOMING_ACTOR_RESTART_BUDGET' } })
  await whereWhenUp(other)
  t.equal(await other.ask({ type: 'where' }, soon), 'p-0')
})

t.test('a thread that dies too often is given up and its actors are unreachable', async t => {
  const system = await startThreads(t, { threadRestartsMax: 1, threadBackoff: { min: 0, max: 0 } })
  const ref = system.spawn(echo, { name: 'r', args: {}, thread: 'p-0', supervision: restart })
  const ended = system.whenTerminated(ref)
  await system.killThread('p-0')
  t.equal(await ref.ask({ type: 'where' }, soon), 'p-0')
  await system.killThread('p-0')
  t.equal((await ended).reason, 'unreachable')
  await t.rejects(ref.ask({ type: 'where' }, soon), ThreadDownError)
  t.throws(() => system.spawn(echo, { name: 'x', args: {}, thread: 'p-0' }), ThreadDownError)
  const moved = system.spawn(echo, { name: 'x', args: {}, thread: { pool: 'p', key: 1 } })
  t.equal(await moved.ask({ type: 'where' }, soon), 'p-1', 'its keys move to what is left')
  await t.rejects(system.killThread('p-0'), UnknownThreadError)
  await t.rejects(system.killThread('main'), UnknownThreadError)
})

t.test('a dedicated thread that dies is replaced when its actor restarts, and gone when not', async t => {
  const system = await startThreads(t, { pools: {} })
  const restarted = system.spawn(echo, { name: 'r', args: {}, thread: 'dedicated', supervision: restart })
  const stopped = system.spawn(echo, { name: 's', args: {}, thread: 'dedicated' })
  const thread = await restarted.ask({ type: 'where' }, soon)
  await stopped.ask({ type: 'where' }, soon)
  const ended = system.whenTerminated(stopped)
  restarted.tell({ type: 'exit', code: 1 })
  stopped.tell({ type: 'exit', code: 1 })
  t.equal((await ended).reason, 'threadExit')
  await whereWhenUp(restarted)
  t.equal(await restarted.ask({ type: 'where' }, soon), thread)
  t.equal((await system.stats()).threads, 2)
})

t.test('an ask that a thread did not answer says whether the thread may have taken it', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(echo, { name: 'spinning', args: {}, thread: 'p-0', supervision: restart })
  await ref.ask({ type: 'where' }, soon)
  const taken = ref.ask({ type: 'silent' }, soon)
  const begun = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', begun })
  t.not(await Atomics.waitAsync(begun, 0, 0, 60_000).value, 'timed-out')
  const untaken = ref.ask({ type: 'where' }, soon)
  void system.killThread('p-0')
  await t.rejects(taken, { code: 'HOMING_ACTOR_THREAD_DOWN', mayBeTaken: true })
  await t.rejects(untaken, { code: 'HOMING_ACTOR_THREAD_DOWN', mayBeTaken: false })
})

t.test('a thread that never yields does not hold up shutdown', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(echo, { name: 'spinning', args: {}, thread: 'p-0', shutdown: '100ms' })
  await ref.ask({ type: 'where' }, soon)
  const begun = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', begun })
  t.not(await Atomics.waitAsync(begun, 0, 0, 60_000).value, 'timed-out')
  const report = await system.shutdown({ deadline: '200ms' })
  t.ok(report.slow.includes('spinning'))
})

t.test('a thread stuck where nothing ends it is cut off, reported and replaced', async t => {
  const system = await startThreads(t)
  const stuck = system.spawn(echo, { name: 'stuck', args: {}, thread: 'p-0', supervision: restart })
  await stuck.ask({ type: 'where' }, soon)
  // Until the end of this test, when its folder is removed.
  const whileThere = t.testdir()
  stuck.tell({ type: 'sleepNatively', whileThere })
  while (!existsSync(join(whileThere, ASLEEP))) await new Promise<void>(resolve => setImmediate(resolve))
  const open = t.rejects(stuck.ask({ type: 'silent' }, { timeout: '1m' }), ThreadDownError)
  // It resolves although the thread goes on: nothing but the limit of a termination can do that.
  await system.killThread('p-0')
  await open
  t.equal(await stuck.ask({ type: 'where' }, soon), 'p-0')
  t.equal((await system.stats()).threadZombies, 1)
})

t.test('a thread that does not come up rejects the start, with the reason', async t => {
  const started = (execArgv: string[]): Promise<unknown> =>
    createActorSystem({
      pools: { p: { count: 2 } },
      log: silentLog,
      logLevel: 'silent',
      threadExecArgv: execArgv,
    })
  await t.rejects(started(['--import', 'data:text/javascript,throw new Error("no luck")']), {
    code: 'HOMING_ACTOR_THREAD_START',
    message: /no luck/,
  })
  await t.rejects(started(['--no-such-option']), { code: 'HOMING_ACTOR_THREAD_START' })
})

t.test('an actor system cannot be created on a thread of another', async t => {
  const system = await startThreads(t, { pools: { p: { count: 1 } } })
  const nested = system.spawn(nester, { name: 'nester', args: undefined, thread: 'p-0' })
  t.match(await system.whenTerminated(nested), {
    reason: 'failed',
    error: { code: 'HOMING_ACTOR_NESTED_SYSTEM' },
  })
})
