import {
  type ActorRef,
  type Message,
  type Reply,
  RestartBudgetError,
  type Signal,
  signal,
} from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { actor, restart, startSystem } from './inline-actors.ts'

type Note = { readonly type: 'note'; readonly text: string }
type Work =
  | { readonly type: 'work'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'tick'; readonly n: number }

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
