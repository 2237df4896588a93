/**
 * Threads that are replaced while something else happens. The moments that only chance would bring are
 * made by telling main's list of threads what another thread would have told it.
 */

import type { ActorRef, ActorSystemOptions } from '@homing/actor'
import { type Log, recordingLog, silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { toSettings } from '../src/contract/settings.ts'
import { resolvePlacement } from '../src/runtime/placement.ts'
import type { LocalActorSystem } from '../src/system/system.ts'
import { broken } from './fixtures/broken.ts'
import { type EchoMessage, echo, parent } from './fixtures/echo.ts'
import { fatal } from './fixtures/fatal.ts'
import { restart, soon, startThreads, whereWhenUp } from './thread-systems.ts'

async function start(t: Test, options: ActorSystemOptions = {}) {
  const log = recordingLog()
  const system = await startThreads(t, { log, ...options })
  const { runtime } = system as unknown as LocalActorSystem
  return { system, runtime, log }
}

/** What a parent on another thread registers for an actor that it wants on `thread`. */
function registration(runtime: LocalActorSystem['runtime'], thread: string, sentToUid: number) {
  const id = 1_000_000
  const spec = {
    id,
    name: 'registered',
    moduleUrl: echo.moduleUrl,
    exportName: 'echo',
    args: {},
    argsPatches: 0 as const,
    settings: toSettings({ name: '', args: undefined, supervision: restart }),
    parent: { thread: 'main', uid: 1, id: 0 },
    restartAgesMs: [],
  }
  const ref = runtime.refTo({ thread, id, name: 'registered' }) as unknown as ActorRef<EchoMessage>
  return { ref, registration: { spec, thread, sentToUid, bounds: undefined } }
}

t.test('a thread that starts after another was given up puts no key there', async t => {
  const { system } = await start(t, { threadRestartsMax: 1, threadBackoff: { min: 0, max: 0 } })
  const pools = [{ name: 'p', threads: ['p-0', 'p-1'] }]
  const key = [1, 2, 3, 4, 5].find(k => resolvePlacement({ pool: 'p', key: k }, pools, () => true) === 'p-0')!
  await system.killThread('p-0')
  await system.killThread('p-0')
  await system.killThread('p-1')
  const ref = system.spawn(parent, {
    name: 'parent',
    args: { childThread: { pool: 'p', key } },
    thread: 'p-1',
  })
  const child = await ref.ask({ type: 'child' }, soon)
  t.equal(await child.ask({ type: 'where' }, soon), 'p-1')
})

t.test('an actor registered for a life that is over gets the next one', async t => {
  const { system, runtime } = await start(t, { threadBackoff: { min: 300, max: 300 } })
  const uid = runtime.peers.get('p-0')!.uid
  await system.killThread('p-0')
  const killed = system.killThread('p-0')
  while (runtime.peers.get('p-0')!.state === 'up') await new Promise<void>(resolve => setImmediate(resolve))
  const late = registration(runtime, 'p-0', uid + 2)
  runtime.registrar!.register(late.registration)
  await killed
  t.equal(await late.ref.ask({ type: 'where' }, soon), 'p-0')
})

t.test('an actor that ended while its thread was lost is not brought back for good', async t => {
  const { system, runtime } = await start(t)
  const late = registration(runtime, 'p-0', 0)
  runtime.registrar!.register(late.registration)
  t.equal(await late.ref.ask({ type: 'where' }, soon), 'p-0')
  await system.killThread('p-0')
  t.equal(await late.ref.ask({ type: 'where' }, soon), 'p-0', 'it is back')
  // Its parent hears only now that it had ended before.
  runtime.registrar!.unregister(late.registration.spec.id)
  await t.rejects(late.ref.ask({ type: 'silent' }, soon), { code: 'HOMING_ACTOR_TERMINATED' })
  t.strictSame(await system.describe(), [])
})

t.test('no thread is started for an actor that comes after the shutdown', async t => {
  const { system, runtime } = await start(t)
  await system.shutdown()
  const { registration: late } = registration(runtime, 'dedicated-late', 0)
  runtime.registrar!.register({ ...late, bounds: {} })
  t.equal((await system.stats()).threads, 1)
})

t.test('an escalating actor whose module does not load fails its parent', async t => {
  const { system, log } = await start(t)
  const ref = system.spawn(broken, {
    name: 'broken',
    args: undefined,
    thread: 'p-0',
    supervision: { directive: 'escalate' },
  })
  t.equal((await system.whenTerminated(ref)).reason, 'failed')
  t.ok(log.lines.some(({ text }) => text === 'failure escalated to the top'))
})

t.test('an error that cannot be cloned settles the ask that it failed, and is what watchers see', async t => {
  const { system } = await start(t)
  const ref = system.spawn(echo, { name: 'odd', args: {}, thread: 'p-0' })
  const ended = system.whenTerminated(ref)
  await t.rejects(ref.ask({ type: 'failOddly' }, soon), { code: 'TEST_ODD', message: 'odd' })
  t.match(await ended, { reason: 'failed', error: { code: 'TEST_ODD' } })
})

t.test('the death of its thread costs an actor a restart of its budget', async t => {
  const { system } = await start(t)
  const ref = system.spawn(echo, {
    name: 'budgeted',
    args: {},
    thread: 'p-0',
    supervision: { ...restart, max: 1 },
  })
  await ref.ask({ type: 'where' }, soon)
  await system.killThread('p-0')
  t.equal(await ref.ask({ type: 'where' }, soon), 'p-0')
  await t.rejects(ref.ask({ type: 'fail', text: 'once more' }, soon), { message: 'once more' })
  t.match(await system.whenTerminated(ref), {
    reason: 'failed',
    error: { code: 'HOMING_ACTOR_RESTART_BUDGET' },
  })
})

t.test('a watcher that watches again at once follows its actor from life to life', async t => {
  const { system, runtime } = await start(t, { threadBackoff: { min: 50, max: 50 } })
  const ref = system.spawn(echo, { name: 'followed', args: {}, thread: 'p-0', supervision: restart })
  const reasons: string[] = []
  const follow = (): void =>
    runtime.watches.add(
      {
        onTerminated(_key, _name, reason) {
          reasons.push(reason)
          if (reason === 'threadExit') follow()
        },
      },
      runtime.refTo({ thread: 'p-0', id: Number(ref.key.slice('p-0/'.length)), name: 'followed' }),
    )
  await ref.ask({ type: 'where' }, soon)
  follow()
  for (let kill = 0; kill < 3; kill++) {
    await system.killThread('p-0')
    await whereWhenUp(ref)
  }
  await system.stop(ref)
  t.strictSame(reasons, ['threadExit', 'threadExit', 'threadExit', 'stopped'])
})

t.test('when spares die before they are needed no more are made, and that is logged', async t => {
  const { promise, resolve } = Promise.withResolvers<unknown>()
  const log: Log = {
    ...silentLog,
    warn: (fields, text) => void (text.startsWith('no spare thread') && resolve(fields)),
    child: () => log,
  }
  const { system } = await start(t, { log })
  system.spawn(fatal, { name: 'fatal', args: undefined, thread: 'p-0', supervision: restart })
  t.strictSame(await promise, { deaths: 3 })
  const ref = system.spawn(echo, { name: 'echo', args: {}, thread: 'p-1', supervision: restart })
  await system.killThread('p-1')
  t.equal(await ref.ask({ type: 'where' }, soon), 'p-1', 'threads are replaced without')
})
