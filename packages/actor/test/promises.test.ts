/** The promises of docs/actors.md that one thread can show, on a simulated clock. */

import assert from 'node:assert/strict'
import {
  type ActorContext,
  type ActorRef,
  ActorTerminatedError,
  AskAbortedError,
  AskRefusedError,
  AskTimeoutError,
  defineCapability,
  type Message,
  type Reply,
  RestartBudgetError,
  type Signal,
  type Supervision,
  SystemStoppedError,
  signal,
  UnhandledMessageError,
} from '@homing/actor'
import { createTestSystem, ProbeTimeoutError } from '@homing/actor/testing'
import { recordingLog } from '@homing/log'
import t from 'tap'
import { actor, startSystem } from './inline-actors.ts'

type Note = { readonly type: 'note'; readonly text: string }
type Work =
  | { readonly type: 'work'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'tick'; readonly n: number }

const restart = (max = 10, min = 10): Supervision => ({
  directive: 'restart',
  max,
  within: '1m',
  backoff: { min, max: 1000 },
})

t.test('an async arm suspends the mailbox of its actor until it settles', async t => {
  const sys = startSystem(t)
  const probe = sys.probe<Note>()
  const gates: (() => void)[] = []
  const slow = actor<Note>(() => ({
    async note({ text }) {
      probe.ref.tell({ type: 'note', text: `begin ${text}` })
      await new Promise<void>(resolve => gates.push(resolve))
      probe.ref.tell({ type: 'note', text: `end ${text}` })
    },
  }))
  const ref = sys.spawn(slow, { name: 'slow', args: undefined })
  ref.tell({ type: 'note', text: 'a' })
  ref.tell({ type: 'note', text: 'b' })
  await sys.settle()
  t.equal(gates.length, 1)
  gates[0]!()
  await sys.settle()
  gates[1]!()
  await sys.settle()
  t.strictSame(
    probe.waiting.map(m => m.text),
    ['begin a', 'end a', 'begin b', 'end b'],
  )
})

t.test('a reentrant actor interleaves async arms', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const gates: (() => void)[] = []
  const slow = actor<Note>(
    () => ({
      async note({ text }) {
        seen.push(`begin ${text}`)
        await new Promise<void>(resolve => gates.push(resolve))
        seen.push(`end ${text}`)
      },
    }),
    { reentrant: true },
  )
  const ref = sys.spawn(slow, { name: 'slow', args: undefined })
  ref.tell({ type: 'note', text: 'a' })
  ref.tell({ type: 'note', text: 'b' })
  await sys.settle()
  for (const open of gates) open()
  await sys.settle()
  t.strictSame(seen, ['begin a', 'begin b', 'end a', 'end b'])
})

t.test('messages of one sender to one receiver are handled in order', async t => {
  const sys = startSystem(t)
  const seen: number[] = []
  const ref = sys.spawn(
    actor<Work>(() => ({ work: m => m.reply(m.n), tick: m => void seen.push(m.n) })),
    { name: 'fifo', args: undefined, mailbox: { capacity: 10_000 } },
  )
  for (let n = 0; n < 10_000; n++) ref.tell({ type: 'tick', n })
  await sys.settle()
  t.strictSame(
    seen,
    Array.from({ length: 10_000 }, (_, n) => n),
  )
})

t.test("tell answers 'ok', 'full' or 'dead' and never throws", async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Note>(() => ({ note() {} })),
    { name: 'a', args: undefined, mailbox: { capacity: 2 } },
  )
  const note: Note = { type: 'note', text: '' }
  t.strictSame([ref.tell(note), ref.tell(note), ref.tell(note)], ['ok', 'ok', 'full'])
  await sys.settle()
  await sys.stop(ref)
  t.equal(ref.tell(note), 'dead')
  const stats = await sys.stats()
  t.equal(stats.refused, 1)
  t.equal(stats.deadLetters, 1)
})

t.test('a full mailbox rejects, drops its oldest or drops the newest message, as it was told', async t => {
  const sys = startSystem(t)
  for (const [overflow, kept] of [
    ['reject', [1, 2]],
    ['dropNewest', [1, 2]],
    ['dropOldest', [2, 3]],
  ] as const) {
    const seen: number[] = []
    const ref = sys.spawn(
      actor<Work>(() => ({ work() {}, tick: m => void seen.push(m.n) })),
      { name: overflow, args: undefined, mailbox: { capacity: 2, overflow } },
    )
    const last = [1, 2, 3].map(n => ref.tell({ type: 'tick', n })).at(-1)
    await sys.settle()
    t.strictSame(seen, kept)
    t.equal(last, overflow === 'reject' ? 'full' : 'ok')
  }
  t.equal((await sys.stats()).deadLetters, 2)
})

t.test('an ask settles with the reply; a second reply is discarded', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        m.reply(m.n + 1)
        m.reply(0)
      },
      tick() {},
    })),
    { name: 'a', args: undefined },
  )
  t.equal(await ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), 2)
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask without an answer settles at its deadline; a late reply is discarded', async t => {
  const sys = startSystem(t)
  let late: Reply<number> = () => {}
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        late = m.reply
      },
      tick() {},
    })),
    { name: 'a', args: undefined },
  )
  const asked = ref.ask({ type: 'work', n: 1 }, { timeout: '50ms' })
  const rejected = t.rejects(asked, AskTimeoutError)
  await sys.advance('49ms')
  t.equal((await sys.stats()).asksPending, 1)
  await sys.advance('1ms')
  await rejected
  t.doesNotThrow(() => late(1))
  const stats = await sys.stats()
  t.equal(stats.asksPending, 0)
  t.equal(stats.asksTimedOut, 1)
})

t.test('an ask that a full mailbox refuses settles at once', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined, mailbox: { capacity: 1 } },
  )
  ref.tell({ type: 'tick', n: 0 })
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), AskRefusedError)
})

t.test('an ask whose message is dropped from a full mailbox is refused', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined, mailbox: { capacity: 1, overflow: 'dropOldest' } },
  )
  const asked = ref.ask({ type: 'work', n: 1 }, { timeout: '1s' })
  const rejected = t.rejects(asked, AskRefusedError)
  ref.tell({ type: 'tick', n: 0 })
  await rejected
})

t.test('an ask settles when its target is dead, or dies before it answers', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined },
  )
  const open = t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), ActorTerminatedError)
  await sys.settle()
  await sys.stop(ref)
  await open
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), ActorTerminatedError)
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask can be aborted, before and while it waits', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined },
  )
  await t.rejects(
    ref.ask({ type: 'work', n: 1 }, { timeout: '1s', signal: AbortSignal.abort() }),
    AskAbortedError,
  )
  const controller = new AbortController()
  const asked = t.rejects(
    ref.ask({ type: 'work', n: 1 }, { timeout: '1s', signal: controller.signal }),
    AskAbortedError,
  )
  controller.abort()
  await asked
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask rejects with the error that its handler threw', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        if (m.n === 0) throw new TypeError('zero')
        return Promise.reject(new TypeError('not zero'))
      },
      tick() {},
    })),
    { name: 'a', args: undefined, supervision: restart() },
  )
  await t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }), new TypeError('zero'))
  await sys.advance('1s')
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), new TypeError('not zero'))
})

t.test('an ask of a type without an arm is rejected, and told messages of it are dead letters', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ tick() {} }) as never),
    { name: 'a', args: undefined },
  )
  await t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }), UnhandledMessageError)
  t.equal((await sys.stats()).deadLetters, 1)
})

t.test('a failed actor is stopped by default and its watchers are told', async t => {
  const sys = startSystem(t)
  const probe = sys.probe()
  const ref = sys.spawn(
    actor<Note>(() => ({
      note() {
        throw new Error('broken')
      },
    })),
    { name: 'a', args: undefined },
  )
  probe.watch(ref)
  ref.tell({ type: 'note', text: '' })
  const terminated = await probe.nextTerminated()
  t.equal(terminated.reason, 'failed')
  t.equal(terminated.ref.key, ref.key)
  t.match(terminated.error?.message, /broken/)
  t.equal(ref.tell({ type: 'note', text: '' }), 'dead')
})

t.test('restart keeps ref and mailbox and loses only the failing message', async t => {
  const sys = startSystem(t)
  const seen: number[] = []
  let setups = 0
  const ref = sys.spawn(
    actor<Work>(() => {
      setups++
      return {
        work() {},
        tick({ n }) {
          if (n === 2) throw new Error('poison')
          seen.push(n)
        },
      }
    }),
    { name: 'a', args: undefined, supervision: restart() },
  )
  for (let n = 0; n < 5; n++) ref.tell({ type: 'tick', n })
  await sys.settle()
  t.strictSame(seen, [0, 1])
  t.equal(ref.tell({ type: 'tick', n: 5 }), 'ok', 'messages queue while it waits to restart')
  await sys.advance('1s')
  t.strictSame(seen, [0, 1, 3, 4, 5])
  t.equal(setups, 2)
  t.equal((await sys.stats()).restarts, 1)
  t.equal((await sys.describe())[0]?.restarts, 1)
})

t.test('an ask that waits in the mailbox survives a restart; one that was taken does not', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        if (m.n > 0) m.reply(m.n)
      },
      tick() {
        throw new Error('poison')
      },
    })),
    { name: 'a', args: undefined, supervision: restart() },
  )
  const taken = t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '5s' }), ActorTerminatedError)
  ref.tell({ type: 'tick', n: 0 })
  const waiting = ref.ask({ type: 'work', n: 7 }, { timeout: '5s' })
  await taken
  await sys.advance('1s')
  t.equal(await waiting, 7)
})

t.test('a setup that fails counts as a failure and leaves no zombie', async t => {
  const sys = startSystem(t)
  const probe = sys.probe()
  const broken = actor<Note>(() => {
    throw new Error('no setup')
  })
  const brokenLater = actor<Note>(() => Promise.reject(new Error('no setup')))
  for (const definition of [broken, brokenLater]) {
    const ref = sys.spawn(definition, { name: 'broken', args: undefined })
    probe.watch(ref)
    t.equal((await probe.nextTerminated()).reason, 'failed')
    t.equal(ref.tell({ type: 'note', text: '' }), 'dead')
  }
  t.equal((await sys.stats()).actors, 1, 'only the probe is left')
})

t.test('a setup that fails is retried within the budget', async t => {
  const sys = startSystem(t)
  let setups = 0
  const ref = sys.spawn(
    actor<Work>(() => {
      setups++
      if (setups < 3) throw new Error('not yet')
      return { work: m => m.reply(setups), tick() {} }
    }),
    { name: 'a', args: undefined, supervision: restart() },
  )
  const asked = ref.ask({ type: 'work', n: 0 }, { timeout: '10s' })
  await sys.advance('1s')
  t.equal(await asked, 3)
})

t.test('a failure that escalates fails the parent', async t => {
  const sys = startSystem(t)
  const probe = sys.probe()
  const child = actor<Note>(() => ({
    note() {
      throw new Error('deep')
    },
  }))
  const parent = actor<Note>(ctx => {
    const ref = ctx.spawn(child, { name: 'child', args: undefined, supervision: { directive: 'escalate' } })
    return { note: m => void ref.tell(m) }
  })
  const ref = sys.spawn(parent, { name: 'parent', args: undefined })
  probe.watch(ref)
  ref.tell({ type: 'note', text: '' })
  const { reason, error } = await probe.nextTerminated()
  t.equal(reason, 'failed')
  t.match(error?.message, /deep/)
})

t.test('a failure that escalates to the top is logged and harms nobody else', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const other = sys.spawn(
    actor<Work>(() => ({ work: m => m.reply(m.n), tick() {} })),
    { name: 'other', args: undefined },
  )
  const ref = sys.spawn(
    actor<Note>(() => {
      throw new Error('top')
    }),
    { name: 'a', args: undefined, supervision: { directive: 'escalate' } },
  )
  t.equal((await sys.whenTerminated(ref)).reason, 'failed')
  t.equal(await other.ask({ type: 'work', n: 4 }, { timeout: '1s' }), 4)
  t.ok(log.lines.some(line => line.level === 'error' && line.text === 'failure escalated to the top'))
})

t.test('restarts past the budget of its window end the actor as failed', async t => {
  const sys = startSystem(t)
  const failing = actor<Note>(() => ({
    note() {
      throw new Error('again')
    },
  }))
  const options = { directive: 'restart', max: 2, within: '10s', backoff: { min: 1, max: 1 } } as const
  const ref = sys.spawn(failing, { name: 'a', args: undefined, supervision: options })
  const slowly = sys.spawn(failing, { name: 'slowly', args: undefined, supervision: options })
  for (let i = 0; i < 5; i++) {
    slowly.tell({ type: 'note', text: '' })
    await sys.advance('6s')
  }
  t.equal(slowly.tell({ type: 'note', text: '' }), 'ok', 'failures that left the window do not count')
  for (let i = 0; i < 3; i++) ref.tell({ type: 'note', text: '' })
  const ended = sys.whenTerminated(ref)
  await sys.advance('1s')
  const { reason, error } = await ended
  t.equal(reason, 'failed')
  t.type(error, RestartBudgetError)
})

t.test('siblings do not share a restart budget', async t => {
  const sys = startSystem(t)
  const failing = actor<Work>(() => ({
    work: m => m.reply(m.n),
    tick() {
      throw new Error('again')
    },
  }))
  const parent = actor<Message & { type: 'get'; reply: Reply<readonly ActorRef<Work>[]> }>(ctx => {
    const children = [1, 2, 3, 4, 5].map(n =>
      ctx.spawn(failing, { name: `child-${n}`, args: undefined, supervision: restart(1) }),
    )
    return { get: m => m.reply(children) }
  })
  const ref = sys.spawn(parent, { name: 'parent', args: undefined })
  const children = await ref.ask({ type: 'get' }, { timeout: '1s' })
  for (const child of children) child.tell({ type: 'tick', n: 0 })
  await sys.advance('1s')
  for (const child of children) t.equal(await child.ask({ type: 'work', n: 1 }, { timeout: '1s' }), 1)
})

t.test('backoff doubles up to its maximum while failures go on', async t => {
  const sys = startSystem(t)
  const setupsMs: number[] = []
  sys.spawn(
    actor<Note>(ctx => {
      setupsMs.push(ctx.clock.nowMs())
      throw new Error('never')
    }),
    {
      name: 'a',
      args: undefined,
      supervision: { directive: 'restart', max: 5, within: '1m', backoff: { min: 10, max: 50, jitter: 0 } },
    },
  )
  await sys.advance('10s')
  t.strictSame(setupsMs, [0, 10, 30, 70, 120, 170])
})

t.test('jitter shortens a backoff by up to its share', async t => {
  const sys = startSystem(t)
  const setupsMs: number[] = []
  sys.spawn(
    actor<Note>(ctx => {
      setupsMs.push(ctx.clock.nowMs())
      throw new Error('never')
    }),
    {
      name: 'a',
      args: undefined,
      supervision: {
        directive: 'restart',
        max: 50,
        within: '60m',
        backoff: { min: 100, max: 100, jitter: 0.5 },
      },
    },
  )
  await sys.advance('10s')
  const gaps = setupsMs.slice(1).map((ms, i) => ms - setupsMs[i]!)
  t.ok(gaps.every(gap => gap >= 50 && gap <= 100))
  t.ok(new Set(gaps).size > 10)
})

t.test('restarts and the failures behind them are in the log', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const ref = sys.spawn(
    actor<Note>(() => ({
      note() {
        throw new Error('visible')
      },
    })),
    { name: 'seen', args: undefined, supervision: restart() },
  )
  ref.tell({ type: 'note', text: '' })
  await sys.advance('1s')
  const failed = log.lines.find(line => line.text === 'actor failed')
  t.match(failed, { level: 'warn', fields: { actor: 'seen', error: { message: 'visible' } } })
  t.match(
    log.lines.find(line => line.text === 'actor restarts'),
    { level: 'warn', fields: { actor: 'seen' } },
  )
})

t.test('signals: beforeRestart to the failed instance, stopped as the last thing', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  let instance = 0
  const ref = sys.spawn(
    actor<Note>(() => {
      instance++
      const own = instance
      return {
        note() {
          throw new Error('x')
        },
        [signal]: (s: Signal) => void seen.push(`${own} ${s.type}`),
      }
    }),
    { name: 'a', args: undefined, supervision: restart() },
  )
  ref.tell({ type: 'note', text: '' })
  await sys.advance('1s')
  await sys.stop(ref)
  t.strictSame(seen, ['1 beforeRestart', '2 stopped'])
})

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

t.test('a scheduled message arrives when due, unless cancelled or the actor restarted', async t => {
  const sys = startSystem(t)
  const seen: number[] = []
  const ref = sys.spawn(
    actor<Work>(ctx => {
      ctx.schedule('50ms', { type: 'tick', n: 1 })
      ctx.schedule('60ms', { type: 'tick', n: 2 }).cancel()
      return {
        work() {
          ctx.schedule('1ms', { type: 'tick', n: 3 })
          throw new Error('x')
        },
        tick: m => void seen.push(m.n),
      }
    }),
    { name: 'a', args: undefined, supervision: restart(10, 100) },
  )
  await sys.advance('49ms')
  t.strictSame(seen, [])
  await sys.advance('20ms')
  t.strictSame(seen, [1])
  await t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }))
  await sys.advance('1s')
  t.strictSame(seen, [1, 1], 'the next instance has its own schedule only')
})

t.test('pipe turns the outcome of a promise into a message, also when the mailbox is full', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(
    actor<Note>(ctx => {
      ctx.pipe(
        Promise.resolve('good'),
        text => ({ type: 'note', text }),
        () => ({ type: 'note', text: '?' }),
      )
      ctx.pipe(
        Promise.reject(new Error('bad')),
        () => ({ type: 'note', text: '?' }),
        error => ({
          type: 'note',
          text: (error as Error).message,
        }),
      )
      return { note: m => void seen.push(m.text) }
    }),
    { name: 'a', args: undefined, mailbox: { capacity: 1 } },
  )
  ref.tell({ type: 'note', text: 'told' })
  await sys.settle()
  t.strictSame(seen, ['told', 'good', 'bad'])
})

t.test('a capability is made once per thread, or provided; what was made is disposed', async t => {
  const events: string[] = []
  const clockwork = defineCapability({
    name: 'clockwork',
    create: ({ clock }) => {
      events.push(`create at ${clock.nowMs()}`)
      return { name: 'real' }
    },
    dispose: value => void events.push(`dispose ${value.name}`),
  })
  const user = actor<Work>(ctx => {
    const { name } = ctx.use(clockwork)
    return { work: m => m.reply(name.length), tick() {} }
  })
  const sys = createTestSystem()
  for (const name of ['a', 'b']) {
    await sys.spawn(user, { name, args: undefined }).ask({ type: 'work', n: 0 }, { timeout: '1s' })
  }
  await sys.shutdown()
  t.strictSame(events, ['create at 0', 'dispose real'])

  const simulated = createTestSystem({ provide: [[clockwork, { name: 'simulated' }]] })
  const ref = simulated.spawn(user, { name: 'c', args: undefined })
  t.equal(await ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }), 'simulated'.length)
  await simulated.shutdown()
  t.equal(events.length, 2, 'the provided value is neither made nor disposed')
})

t.test('a flood of dead letters is counted in full and logged in part', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const ref = sys.spawn(
    actor<Note>(() => ({ note() {} })),
    { name: 'a', args: undefined },
  )
  await sys.stop(ref)
  for (let i = 0; i < 1000; i++) ref.tell({ type: 'note', text: '' })
  await sys.advance('1s')
  ref.tell({ type: 'note', text: '' })
  t.equal((await sys.stats()).deadLetters, 1001)
  t.equal(log.lines.filter(line => line.text === 'dead letter').length, 11)
  t.match(
    log.lines.find(line => line.text === 'more dead letters, not shown'),
    { level: 'warn', fields: { deadLetters: 990 } },
  )
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

t.test('promises that answer each other leave the event loop its share', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work: m => m.reply(m.n), tick() {} })),
    { name: 'a', args: undefined },
  )
  let isOver = false
  let rounds = 0
  const count = (): void => {
    rounds++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  for (let n = 0; n < 50_000; n++) await ref.ask({ type: 'work', n }, { timeout: '1s' })
  isOver = true
  t.ok(rounds >= 5, `the event loop went round ${rounds} times`)
})
