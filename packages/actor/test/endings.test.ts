/**
 * The promises of docs/actors.md about stops, watches and shutdown that one thread can show, on a simulated
 * clock.
 */

import assert from 'node:assert/strict'
import {
  type ActorContext,
  ActorTerminatedError,
  type Reply,
  type Signal,
  SystemStoppedError,
  signal,
} from '@homing/actor'
import { createTestSystem, ProbeTimeoutError } from '@homing/actor/testing'
import t from 'tap'
import { actor, restart, startSystem } from './inline-actors.ts'

type Note = { readonly type: 'note'; readonly text: string }
type Work =
  | { readonly type: 'work'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'tick'; readonly n: number }

t.test('children are stopped in reverse order before their parent, on stop and on restart', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const leaf = actor<Note, string>((_ctx, name) => ({
    note() {},
    [signal]: async (s: Signal) => {
      seen.push(`${name} ${s.type}`)
      await null
      seen.push(`${name} ended`)
    },
  }))
  const parent = actor<Note>(ctx => {
    for (const name of ['a', 'b', 'c']) ctx.spawn(leaf, { name, args: name })
    return {
      note() {
        throw new Error('x')
      },
      [signal]: s => void seen.push(`parent ${s.type}`),
    }
  })
  const ref = sys.spawn(parent, { name: 'parent', args: undefined, supervision: restart() })
  const order = ['c', 'b', 'a'].flatMap(name => [`${name} stopped`, `${name} ended`])
  await sys.settle()
  ref.tell({ type: 'note', text: '' })
  await sys.advance('1s')
  t.strictSame(seen.splice(0), [...order, 'parent beforeRestart'])
  await sys.stop(ref)
  t.strictSame(seen, [...order, 'parent stopped'])
})

t.test('an actor stops after the message in hand, and what waits becomes dead letters', async t => {
  const sys = startSystem(t)
  const seen: number[] = []
  const ref = sys.spawn(
    actor<Work>(ctx => ({
      work() {},
      async tick({ n }) {
        ctx.stop()
        await null
        seen.push(n)
      },
    })),
    { name: 'a', args: undefined },
  )
  for (let n = 0; n < 3; n++) ref.tell({ type: 'tick', n })
  await sys.whenTerminated(ref)
  t.strictSame(seen, [0])
  t.equal((await sys.stats()).deadLetters, 2)
})

t.test('an actor that does not stop in its own shutdown time is abandoned and reported', async t => {
  const sys = startSystem(t)
  const stuck = actor<Note>(() => ({ note: () => new Promise<void>(() => {}) }))
  const ref = sys.spawn(stuck, { name: 'stuck', args: undefined, shutdown: '100ms' })
  const patient = sys.spawn(stuck, { name: 'patient', args: undefined, shutdown: '1m' })
  ref.tell({ type: 'note', text: '' })
  patient.tell({ type: 'note', text: '' })
  await sys.settle()
  const stopped = sys.stop(ref)
  await sys.advance('99ms')
  t.equal((await sys.describe()).find(actor => actor.name === 'stuck')?.state, 'stopping')
  await sys.advance('1ms')
  t.equal((await stopped).reason, 'stopped')
  const shutdown = sys.shutdown({ deadline: '5s' })
  await sys.advance('5s')
  const report = await shutdown
  t.strictSame([...report.slow].sort(), ['patient', 'stuck'])
})

t.test('an actor that waits for its last arm does not spin', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Note>(() => ({ note: () => new Promise<void>(() => {}) })),
    { name: 'stuck', args: undefined, shutdown: '100ms' },
  )
  for (let i = 0; i < 10; i++) ref.tell({ type: 'note', text: '' })
  await sys.settle()
  const stopped = sys.stop(ref)
  await t.resolves(sys.settle(), 'the run queue is empty while it waits')
  await sys.advance('100ms')
  await stopped
})

t.test('one terminated signal per watch, also when the actor has ended already', async t => {
  const sys = startSystem(t)
  const probe = sys.probe()
  const ref = sys.spawn(
    actor<Note>(() => ({ note() {} })),
    { name: 'a', args: undefined },
  )
  await sys.settle()
  probe.watch(ref)
  probe.watch(ref)
  await sys.stop(ref)
  t.equal((await probe.nextTerminated()).reason, 'stopped')
  await sys.settle()
  await t.rejects(probe.nextTerminated('10ms'), ProbeTimeoutError)
  probe.watch(ref)
  t.equal((await probe.nextTerminated()).reason, 'stopped')
})

t.test('a watch that was taken back is silent', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const target = sys.spawn(
    actor<Note>(() => ({ note() {} })),
    { name: 'a', args: undefined },
  )
  sys.spawn(
    actor<Note>(ctx => {
      ctx.watch(target)
      ctx.unwatch(target)
      return { note() {}, [signal]: s => void seen.push(s.type) }
    }),
    { name: 'watcher', args: undefined },
  )
  await sys.settle()
  await sys.stop(target)
  await sys.settle()
  t.strictSame(seen, [])
})

t.test('shutdown stops top-level actors in reverse order and refuses new ones', async t => {
  const sys = createTestSystem()
  const seen: string[] = []
  const definition = actor<Note, string>((_ctx, name) => ({
    note() {},
    [signal]: () => void seen.push(name),
  }))
  for (const name of ['a', 'b', 'c']) sys.spawn(definition, { name, args: name })
  await sys.settle()
  const report = await sys.shutdown()
  t.strictSame(seen, ['c', 'b', 'a'])
  t.strictSame(report.slow, [])
  t.throws(() => sys.spawn(definition, { name: 'd', args: 'd' }), SystemStoppedError)
  t.equal(await sys.shutdown(), report, 'a second call gets the same report')
})

t.test('a context of an earlier instance does nothing', async t => {
  const sys = startSystem(t)
  const contexts: ActorContext<Note>[] = []
  const definition = actor<Note>(ctx => {
    contexts.push(ctx)
    return {
      note() {
        throw new Error('x')
      },
    }
  })
  const ref = sys.spawn(definition, { name: 'a', args: undefined, supervision: restart() })
  ref.tell({ type: 'note', text: '' })
  await sys.advance('1s')
  t.equal(contexts.length, 2)
  contexts[0]!.stop()
  await sys.settle()
  t.equal((await sys.describe())[0]?.state, 'running')
  assert.throws(() => contexts[0]!.spawn(definition, { name: 'b', args: undefined }), ActorTerminatedError)
})
