/** Causes: what askers and watchers are told of failures and ends, on one thread and between two. */

import assert from 'node:assert/strict'
import * as actor from '@homing/actor'
import {
  type ActorRef,
  type ActorSystem,
  CodedError,
  type Terminated,
  UnhandledMessageError,
} from '@homing/actor'
import t from 'tap'
import { errorOf, recordOf } from '../src/values/thrown.ts'
import { echo } from './fixtures/echo.ts'
import { MISSING, type Seen, type ThrowerMessage, thrower, watcher } from './fixtures/thrower.ts'
import { soon, startThreads } from './thread-systems.ts'

type Failure = { readonly code?: unknown; readonly details?: object; readonly cause?: Failure } & Error

const rejected = (promise: Promise<unknown>): Promise<Failure> =>
  promise.then(
    () => assert.fail('it was answered'),
    (error: Failure) => error,
  )

const spawn = async (system: ActorSystem, thread: string): Promise<ActorRef<ThrowerMessage>> => {
  // Its thread may be away; bounded by the timeout of the test.
  for (;;) {
    const ref = system.spawn(thrower, { name: 'thrower', args: undefined, thread })
    const isReady = await ref.ask({ type: 'ready' }, soon).catch(() => false)
    if (isReady !== false) return ref
    await new Promise<void>(resolve => setImmediate(resolve))
  }
}

t.test('the error of a handler keeps its code, its message and its details between threads', async t => {
  const system = await startThreads(t)
  const missing = await rejected((await spawn(system, 'p-0')).ask({ type: 'readMissing' }, soon))
  t.ok(missing instanceof actor.RemoteError)
  t.match(missing, { code: 'ENOENT', message: /no such file/, details: { syscall: 'open', path: MISSING } })
  const spent = await rejected((await spawn(system, 'p-0')).ask({ type: 'overspend' }, soon))
  t.match(spent, { code: 'QUOTA_SPENT', message: 'the quota is spent' })
  t.strictSame(spent.details, { used: 12, of: 10, isHard: true })
})

t.test('the errors of the library keep their class between threads', async t => {
  const system = await startThreads(t)
  const far = system.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  const error = await rejected(far.ask({ type: 'unheardOf' } as never, soon))
  t.ok(error instanceof UnhandledMessageError)
  t.equal(error.name, 'UnhandledMessageError')
})

t.test('every error class that the package exports comes back from its record', async t => {
  const classes = Object.values(actor as unknown as Record<string, unknown>).filter(
    (value): value is new (...args: unknown[]) => CodedError =>
      typeof value === 'function' && value.prototype instanceof CodedError && value !== actor.RemoteError,
  )
  t.ok(classes.length > 15)
  for (const Class of classes) {
    const made = new Class('a', 'b', 'c', { reason: 'threadOom' })
    const back = errorOf(structuredClone(recordOf(made)))
    t.ok(back instanceof Class, Class.name)
    t.ok(back instanceof Error)
    const { code, message, details, name } = made
    t.strictSame(
      { code: back.code, message: back.message, details: back.details, name: back.name },
      { code, message, details, name },
    )
  }
})

t.test('causes travel, as deep as a record may be', async t => {
  let error = new Error('0')
  for (let i = 1; i < 20; i++) error = new Error(`${i}`, { cause: error })
  let depth = 0
  for (
    let at: unknown = errorOf(structuredClone(recordOf(error)));
    at !== undefined;
    at = (at as Error).cause
  ) {
    t.equal((at as Error).message, `${19 - depth}`)
    depth++
  }
  t.equal(depth, 5)
  const cyclic = new Error('cyclic')
  cyclic.cause = cyclic
  t.equal(recordOf(cyclic).message, 'cyclic')
})

/** What a watcher on `thread` was told, and the asker of an ask that was never answered. */
async function ending(
  system: ActorSystem,
  how: ThrowerMessage,
): Promise<{ ask: Failure; here: Terminated; there: Seen }> {
  const ref = await spawn(system, 'p-0')
  const far = system.spawn(watcher, { name: 'watcher', args: undefined, thread: 'p-1' })
  await far.ask({ type: 'watch', ref }, soon)
  const ended = system.whenTerminated(ref)
  const asked = rejected(ref.ask({ type: 'silent' }, soon))
  ref.tell(how)
  const [ask, here] = await Promise.all([asked, ended])
  let there: Seen | undefined
  while (there === undefined) {
    ;[there] = await far.ask({ type: 'seen' }, soon)
  }
  return { ask, here, there }
}

t.test('the watchers of an actor that failed are told what with, on any thread', async t => {
  const system = await startThreads(t)
  const { here, there } = await ending(system, { type: 'overspendNow' })
  t.equal(here.reason, 'failed')
  t.ok(here.error instanceof actor.ActorFailedError)
  t.match(here.error?.cause, { code: 'QUOTA_SPENT', message: 'the quota is spent', details: { used: 12 } })
  t.match(there, { reason: 'failed', code: 'HOMING_ACTOR_FAILED', causeCode: 'QUOTA_SPENT' })
})

t.test('askers and watchers are told how a thread ended, with its exit code or the error', async t => {
  const system = await startThreads(t)
  const exited = await ending(system, { type: 'exit', code: 3 })
  for (const { code, details } of [exited.ask, exited.here.error!, exited.there]) {
    t.equal(code, 'HOMING_ACTOR_THREAD_DOWN')
    t.match(details, { thread: 'p-0', reason: 'threadExit', exitCode: 3 })
  }
  const threw = await ending(system, { type: 'readMissingOutside' })
  for (const { code, details } of [threw.ask, threw.here.error!, threw.there]) {
    t.equal(code, 'HOMING_ACTOR_THREAD_DOWN')
    t.match(details, { thread: 'p-0', reason: 'threadExit', exitCode: 1 })
  }
  for (const { cause, message } of [threw.ask, threw.here.error!]) {
    t.match(message, /cannot reach thread p-0: it has ended: ENOENT: no such file/)
    t.match(cause, { code: 'ENOENT', details: { path: MISSING } })
  }
  t.equal(threw.there.causeCode, 'ENOENT')
})

t.test('heap exhaustion is told as threadOom, to whoever asks or watches, on any thread', async t => {
  const system = await startThreads(t, {
    threadHeapMb: 16,
    threadRestartsMax: 100,
    threadBackoff: { min: 0, max: 0 },
  })
  const told: string[] = []
  for (let round = 0; round < 6; round++) {
    const { ask, here, there } = await ending(system, { type: 'fillHeap' })
    const reasonOf = ({ details }: { readonly details?: unknown }): unknown =>
      (details as { reason?: unknown }).reason
    told.push([here.reason, there.reason, reasonOf(ask), reasonOf(there)].join(' '))
  }
  t.strictSame(told, Array(6).fill('threadOom threadOom threadOom threadOom'))
})

t.test('a thread that is killed is told as threadExit, at once', async t => {
  const system = await startThreads(t)
  const ref = await spawn(system, 'p-0')
  const asked = rejected(ref.ask({ type: 'silent' }, soon))
  const ended = system.whenTerminated(ref)
  await system.killThread('p-0')
  t.match(await asked, { details: { reason: 'threadExit' } })
  t.match(await ended, { reason: 'threadExit', error: { details: { reason: 'threadExit' } } })
})
