/** Odd failures in an actor or a facility do not harm other actors. */

import {
  type ActorRef,
  type Behavior,
  createActorSystem,
  defineActor,
  defineCapability,
  type Reply,
  type Signal,
  signal,
} from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { startSystem } from './inline-actors.ts'

type Job =
  | { readonly type: 'job'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'fail'; readonly how: () => unknown }
  | { readonly type: 'poke' }

const failing = defineActor(
  import.meta.url,
  'inline',
)<Job>({
  setup: () => ({
    job: m => m.reply(m.n),
    fail(m) {
      throw m.how()
    },
    poke() {},
  }),
})

t.test('whatever an actor throws, it fails and the others go on', async t => {
  const sys = startSystem(t)
  const other = sys.spawn(failing, { name: 'other', args: undefined })
  const thrown: Record<string, () => unknown> = {
    undefined: () => undefined,
    'an object without a prototype': () => Object.create(null),
    'an error whose message throws': () =>
      Object.defineProperty(new Error(), 'message', {
        get() {
          throw new Error('no message')
        },
      }),
    'a revoked proxy': () => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    },
  }
  for (const [what, how] of Object.entries(thrown)) {
    const ref = sys.spawn(failing, { name: what, args: undefined })
    ref.tell({ type: 'fail', how })
    const answered = other.ask({ type: 'job', n: 1 }, { timeout: '1s' })
    t.equal((await sys.whenTerminated(ref)).reason, 'failed', what)
    t.equal(await answered, 1)
  }
})

t.test('a thenable that answers twice, at once or throws is one outcome', async t => {
  const sys = startSystem(t)
  const odd = (then: (resolve: () => void, reject: (error: unknown) => void) => void): Promise<void> =>
    ({ then }) as never
  type Odd =
    | { readonly type: 'odd'; readonly promise: Promise<void> }
    | { readonly type: 'job'; readonly reply: Reply<number> }
  const ref = sys.spawn(
    defineActor(
      import.meta.url,
      'inline',
    )<Odd>({ setup: () => ({ odd: m => m.promise, job: m => m.reply(1) }) }),
    {
      name: 'odd',
      args: undefined,
      supervision: { directive: 'restart', max: 5, within: '1m', backoff: { min: 0, max: 0 } },
    },
  )
  ref.tell({
    type: 'odd',
    promise: odd(resolve => {
      resolve()
      resolve()
    }),
  })
  ref.tell({
    type: 'odd',
    promise: odd(resolve => {
      resolve()
      throw new Error('after it resolved')
    }),
  })
  const first = ref.ask({ type: 'job' }, { timeout: '1s' })
  await sys.advance('1ms')
  t.equal(await first, 1)
  t.equal((await sys.stats()).restarts, 0)
  ref.tell({
    type: 'odd',
    promise: odd(() => {
      throw new Error('no promise')
    }),
  })
  const second = ref.ask({ type: 'job' }, { timeout: '1s' })
  await sys.advance('1ms')
  t.equal(await second, 1)
  t.equal((await sys.stats()).restarts, 1)
})

t.test('a deadline that never comes is refused', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(failing, { name: 'a', args: undefined })
  for (const timeout of [Number.POSITIVE_INFINITY, Number.NaN, -1, 'soon' as never]) {
    await t.rejects(ref.ask({ type: 'job', n: 1 }, { timeout }), RangeError)
  }
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an actor that watches a dead one again and again leaves others their turn', async t => {
  const sys = startSystem(t)
  const dead = sys.spawn(failing, { name: 'dead', args: undefined })
  await sys.stop(dead)
  let told = 0
  sys.spawn(
    defineActor(
      import.meta.url,
      'inline',
    )<{ readonly type: 'none' }>({
      setup(ctx) {
        ctx.watch(dead)
        return {
          none() {},
          [signal](s: Signal) {
            if (s.type !== 'terminated') return
            told++
            if (told < 100_000) ctx.watch(dead)
          },
        }
      },
    }),
    { name: 'eager', args: undefined },
  )
  const other = sys.spawn(failing, { name: 'other', args: undefined })
  await other.ask({ type: 'job', n: 1 }, { timeout: '1s' })
  t.ok(told > 0 && told < 10_000, `another actor was answered after ${told} signals`)
})

t.test('a stop during an async beforeRestart waits for it, and is the end', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const seen: string[] = []
  const gates: (() => void)[] = []
  const definition = defineActor(
    import.meta.url,
    'inline',
  )<Job>({
    setup: () => ({
      job() {},
      poke() {},
      fail() {
        throw new Error('x')
      },
      async [signal](s: Signal) {
        seen.push(`begin ${s.type}`)
        await new Promise<void>(resolve => gates.push(resolve))
        seen.push(`end ${s.type}`)
      },
    }),
  })
  const spawn = (name: string): ActorRef<Job> =>
    sys.spawn(definition, {
      name,
      args: undefined,
      shutdown: '1s',
      supervision: { directive: 'restart', max: 5, within: '1m', backoff: { min: 1, max: 1 } },
    })
  const ref = spawn('patient')
  ref.tell({ type: 'fail', how: () => new Error('x') })
  await sys.settle()
  const stopped = sys.stop(ref)
  await sys.settle()
  t.strictSame(seen, ['begin beforeRestart'])
  gates[0]!()
  t.equal((await stopped).reason, 'stopped')
  t.strictSame(seen, ['begin beforeRestart', 'end beforeRestart'])

  const stuck = spawn('stuck')
  stuck.tell({ type: 'fail', how: () => new Error('x') })
  await sys.advance('500ms')
  const abandoned = sys.stop(stuck)
  await sys.advance('5s')
  await abandoned
  t.equal(log.lines.filter(line => line.text.startsWith('actor abandoned')).length, 1, 'reported once')
})

t.test('a capability that is not released holds a shutdown up no longer than its deadline', async t => {
  const sys = createTestSystem()
  const stuck = defineCapability({
    name: 'stuck',
    create: () => ({}),
    dispose: () => new Promise<void>(() => {}),
  })
  let late: unknown
  let use = (): unknown => undefined
  const ref = sys.spawn(
    defineActor(
      import.meta.url,
      'inline',
    )<Job>({
      setup(ctx): Behavior<Job> {
        ctx.use(stuck)
        use = () => ctx.use(defineCapability({ name: 'late', create: () => ({}) }))
        return { job: m => m.reply(m.n), fail() {}, poke() {} }
      },
    }),
    { name: 'a', args: undefined },
  )
  await ref.ask({ type: 'job', n: 1 }, { timeout: '1s' })
  const shutdown = sys.shutdown({ deadline: '3s' })
  await sys.advance('10s')
  const report = await shutdown
  t.strictSame(report.slow, ['capability stuck'])
  t.throws(
    () => {
      late = use()
    },
    { code: 'HOMING_ACTOR_SYSTEM_STOPPED' },
  )
  t.equal(late, undefined, 'none is made any more')
})

t.test('arms that are slow leave the event loop its share', async t => {
  // The budget is in real time: a system with the real clock and no threads.
  const real = await createActorSystem({ log: recordingLog() })
  t.teardown(() => real.shutdown())
  let handled = 0
  const ref = real.spawn(
    defineActor(
      import.meta.url,
      'inline',
    )<{ readonly type: 'slow' }>({
      setup: () => ({
        slow() {
          handled++
          const until = performance.now() + 0.2
          while (performance.now() < until);
        },
      }),
    }),
    { name: 'slow', args: undefined },
  )
  for (let n = 0; n < 1000; n++) ref.tell({ type: 'slow' })
  await new Promise<void>(resolve => setImmediate(resolve))
  await new Promise<void>(resolve => setImmediate(resolve))
  t.ok(handled <= 256, `${handled} messages of 0.2 ms in two rounds of the event loop`)
})
