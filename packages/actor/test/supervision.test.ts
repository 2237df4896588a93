/** Supervision on one thread: directives, restart types, budgets, stop orders, hooks. */

import {
  type ActorContext,
  type ActorRef,
  type Message,
  type Reply,
  RestartBudgetError,
  type Signal,
  type SpawnOptions,
  type Supervision,
  signal,
} from '@homing/actor'
import { recordingLog } from '@homing/base'
import t, { type Test } from 'tap'
import { actor, restart, startSystem } from './inline-actors.ts'

type Told =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'fail' }
  | { readonly type: 'stop' }
  | { readonly type: 'hang' }
  | { readonly type: 'get'; readonly reply: Reply<number> }

const soon = { timeout: '1s' } as const
/** Children that say what happens to them, below a parent. */
async function family(t: Test, options: Readonly<Record<string, Partial<SpawnOptions<string>>>>) {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const seen: string[] = []
  const rejectHang = new Map<string, (error: Error) => void>()
  const child = actor<Told, string>((ctx, name) => {
    seen.push(`${name} starts`)
    let count = 0
    return {
      note({ n }) {
        count++
        seen.push(`${name} ${n}`)
      },
      fail() {
        throw new Error(`${name} fails`)
      },
      stop: () => ctx.stop(),
      hang: () => new Promise<void>((_, reject) => rejectHang.set(name, reject)),
      get: m => m.reply(count),
      [signal]: (s: Signal) => void seen.push(`${name} ${s.type}`),
    }
  })
  type Get = Message & { type: 'get'; reply: Reply<Readonly<Record<string, ActorRef<Told>>>> }
  const parent = actor<Get>(ctx => {
    const refs = Object.fromEntries(
      Object.entries(options).map(([name, more]) => [name, ctx.spawn(child, { name, args: name, ...more })]),
    )
    return { get: m => m.reply(refs) }
  })
  const ref = sys.spawn(parent, { name: 'parent', args: undefined })
  const refs = await ref.ask({ type: 'get' }, soon)
  await sys.settle()
  seen.splice(0)
  return { sys, seen, refs, ref, log, rejectHang }
}

const three = { a: { supervision: restart() }, b: { supervision: restart() }, c: { supervision: restart() } }

t.test('a failed child is restarted alone', async t => {
  const { sys, seen, refs } = await family(t, three)
  refs.b!.tell({ type: 'fail' })
  await sys.advance('1s')
  t.strictSame(seen, ['b beforeRestart', 'b starts'])
})

t.test('resume keeps the state, and only the failing message is lost', async t => {
  const { sys, seen, refs } = await family(t, { a: { supervision: { directive: 'resume' } } })
  refs.a!.tell({ type: 'note', n: 1 })
  refs.a!.tell({ type: 'fail' })
  refs.a!.tell({ type: 'note', n: 2 })
  await sys.settle()
  t.strictSame(seen, ['a 1', 'a 2'])
  t.equal(await refs.a!.ask({ type: 'get' }, soon), 2)
})

t.test('a setup that fails cannot be resumed: the actor ends as failed', async t => {
  const sys = startSystem(t)
  const broken = actor<Told>(() => {
    throw new Error('no setup')
  })
  const ref = sys.spawn(broken, { name: 'a', args: undefined, supervision: { directive: 'resume' } })
  t.equal((await sys.whenTerminated(ref)).reason, 'failed')
})

t.test('a permanent actor is restarted also when it stops itself; a transient one is not', async t => {
  const permanent = { ...restart(), type: 'permanent' } as Supervision
  const { sys, seen, refs } = await family(t, {
    a: { supervision: permanent },
    b: { supervision: restart() },
  })
  refs.a!.tell({ type: 'stop' })
  refs.a!.tell({ type: 'note', n: 1 })
  refs.b!.tell({ type: 'stop' })
  await sys.advance('1s')
  t.strictSame(seen, ['a beforeRestart', 'b stopped', 'a starts', 'a 1'])
  t.equal(refs.b!.tell({ type: 'note', n: 0 }), 'dead')
})

t.test('a permanent actor that its parent or the system stops is stopped', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Told>(() => ({ note() {}, fail() {}, stop() {}, hang() {}, get() {} })),
    { name: 'a', args: undefined, supervision: { ...restart(), type: 'permanent' } as Supervision },
  )
  await sys.settle()
  t.equal((await sys.stop(ref)).reason, 'stopped')
  await sys.advance('1s')
  t.equal((await sys.stats()).actors, 0)
})

t.test('a permanent actor that always stops exhausts its budget', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Told>(ctx => {
      ctx.stop()
      return { note() {}, fail() {}, stop() {}, hang() {}, get() {} }
    }),
    { name: 'a', args: undefined, supervision: { ...restart(3), type: 'permanent' } as Supervision },
  )
  const ended = sys.whenTerminated(ref)
  await sys.advance('10s')
  t.type((await ended).error, RestartBudgetError)
})

t.test('an exhausted budget ends the child, or escalates when told to', async t => {
  for (const whenExhausted of ['stop', 'escalate'] as const) {
    const { sys, refs, ref } = await family(t, {
      a: { supervision: { ...restart(1), whenExhausted } as Supervision },
      b: {},
    })
    for (let i = 0; i < 2; i++) refs.a!.tell({ type: 'fail' })
    const ended = sys.whenTerminated(ref)
    await sys.advance('1s')
    t.equal(refs.a!.tell({ type: 'fail' }), 'dead')
    if (whenExhausted === 'stop') t.equal(refs.b!.tell({ type: 'note', n: 0 }), 'ok')
    else {
      const { reason, error } = await ended
      t.equal(reason, 'failed')
      t.type(error, RestartBudgetError)
      t.equal(refs.b!.tell({ type: 'note', n: 0 }), 'dead')
    }
  }
})

t.test('backoff starts again at its minimum after a healthy period', async t => {
  const sys = startSystem(t)
  const startsMs: number[] = []
  const ref = sys.spawn(
    actor<Told>((ctx: ActorContext<Told>) => {
      startsMs.push(ctx.clock.nowMs())
      return {
        note() {},
        fail() {
          throw new Error('x')
        },
        stop() {},
        hang() {},
        get() {},
      }
    }),
    {
      name: 'a',
      args: undefined,
      supervision: { directive: 'restart', max: 10, within: '10s', backoff: { min: 10, max: 1000 } },
    },
  )
  const gapAfterFailure = async (): Promise<number> => {
    await sys.settle()
    const failedMs = sys.clock.nowMs()
    ref.tell({ type: 'fail' })
    await sys.advance('1s')
    return startsMs.at(-1)! - failedMs
  }
  t.strictSame([await gapAfterFailure(), await gapAfterFailure(), await gapAfterFailure()], [10, 20, 40])
  await sys.advance('10s')
  t.equal(await gapAfterFailure(), 10)
})

t.test("hooks: beforeRestart gets the error and the message's type; stopped gets the reason", async t => {
  const sys = startSystem(t)
  const signals: Signal[] = []
  const failing = actor<Told>(ctx => ({
    note() {},
    async fail() {
      await null
      throw new Error('later')
    },
    stop: () => ctx.stop(),
    hang() {},
    get() {},
    [signal]: (s: Signal) => void signals.push(s),
  }))
  const ref = sys.spawn(failing, { name: 'a', args: undefined, supervision: restart() })
  ref.tell({ type: 'fail' })
  await sys.advance('1s')
  t.match(signals.splice(0), [{ type: 'beforeRestart', error: { message: 'later' }, messageType: 'fail' }])
  ref.tell({ type: 'stop' })
  await sys.settle()
  t.match(signals.splice(0), [{ type: 'stopped', reason: 'stopped' }])
  const failed = sys.spawn(failing, { name: 'b', args: undefined })
  failed.tell({ type: 'fail' })
  await sys.whenTerminated(failed)
  t.match(signals, [{ type: 'stopped', reason: 'failed' }])
})

t.test(
  "shutdown 'kill' ends an actor at once, without signals and not as slow, children included",
  async t => {
    const sys = startSystem(t)
    const seen: string[] = []
    const leaf = actor<Told>(() => ({
      note() {},
      fail() {},
      stop() {},
      hang: () => new Promise<void>(() => {}),
      get() {},
      [signal]: (s: Signal) => void seen.push(s.type),
    }))
    const parent = actor<Told>(ctx => {
      const child = ctx.spawn(leaf, { name: 'child', args: undefined })
      return {
        note() {},
        fail() {},
        stop() {},
        hang() {
          child.tell({ type: 'hang' })
          return new Promise<void>(() => {})
        },
        get() {},
        [signal]: (s: Signal) => void seen.push(s.type),
      }
    })
    const ref = sys.spawn(parent, { name: 'parent', args: undefined, shutdown: 'kill' })
    ref.tell({ type: 'hang' })
    await sys.settle()
    const asked = t.rejects(ref.ask({ type: 'get' }, soon), { code: 'HOMING_ACTOR_TERMINATED' })
    t.equal((await sys.stop(ref)).reason, 'stopped')
    await asked
    t.strictSame(seen, [])
    t.equal((await sys.stats()).actors, 0)
    t.strictSame((await sys.shutdown()).slow, [])
  },
)

t.test("shutdown 'infinity' waits as long as the system lets it", async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Told>(() => ({
      note() {},
      fail() {},
      stop() {},
      hang: () => new Promise<void>(() => {}),
      get() {},
    })),
    { name: 'patient', args: undefined, shutdown: 'infinity' },
  )
  ref.tell({ type: 'hang' })
  await sys.settle()
  void sys.stop(ref)
  await sys.advance('1000m')
  t.equal((await sys.describe())[0]?.state, 'stopping')
  const shutdown = sys.shutdown({ deadline: '5s' })
  await sys.advance('5s')
  t.strictSame((await shutdown).slow, ['patient'])
})
