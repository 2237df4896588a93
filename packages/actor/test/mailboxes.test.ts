/** Mailboxes on one thread: schedules, overflow by key, the control lane, dead letters. */

import {
  type ActorContext,
  AskRefusedError,
  type Reply,
  type Signal,
  type Supervision,
  signal,
} from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { actor, startSystem } from './inline-actors.ts'

type Told =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'open' }
  | { readonly type: 'fail' }
  | { readonly type: 'get'; readonly n: number; readonly reply: Reply<number> }

const soon = { timeout: '1s' } as const
const restart: Supervision = { directive: 'restart', max: 10, within: '1m', backoff: { min: 10, max: 10 } }

/** Keeps the numbers that it is told. */
function noter(seen: number[]) {
  return actor<Told>(() => ({
    note: m => void seen.push(m.n),
    open() {},
    fail() {
      throw new Error('x')
    },
    get: m => m.reply(m.n),
  }))
}

t.test('a periodic message arrives at every multiple of its interval until cancelled', async t => {
  const sys = startSystem(t)
  const seenMs: number[] = []
  let cancel = (): void => {}
  sys.spawn(
    actor<Told>(ctx => {
      cancel = ctx.scheduleEvery('10ms', { type: 'note', n: 0 }).cancel
      return { note: () => void seenMs.push(ctx.clock.nowMs()), open() {}, fail() {}, get() {} }
    }),
    { name: 'a', args: undefined },
  )
  await sys.advance('35ms')
  t.strictSame(seenMs, [10, 20, 30])
  cancel()
  await sys.advance('100ms')
  t.equal(seenMs.length, 3)
})

t.test('a periodic message is cancelled by stop and by restart', async t => {
  const sys = startSystem(t)
  const contexts: ActorContext<Told>[] = []
  let ticks = 0
  const ref = sys.spawn(
    actor<Told>(ctx => {
      contexts.push(ctx)
      if (contexts.length === 1) ctx.scheduleEvery('10ms', { type: 'note', n: 0 })
      return {
        note: () => void ticks++,
        open() {},
        fail() {
          throw new Error('x')
        },
        get() {},
      }
    }),
    { name: 'a', args: undefined, supervision: restart },
  )
  await sys.advance('15ms')
  ref.tell({ type: 'fail' })
  await sys.advance('1s')
  t.equal(ticks, 1)
  contexts[1]!.scheduleEvery('10ms', { type: 'note', n: 0 })
  await sys.settle()
  await sys.stop(ref)
  await sys.advance('1s')
  t.equal(ticks, 1)
  t.throws(() => contexts[1]!.scheduleEvery(0, { type: 'note', n: 0 }), RangeError)
})

t.test('periodic messages do not pile up during a pause, nor behind a busy actor', async t => {
  const sys = startSystem(t)
  const seenMs: number[] = []
  let release = (): void => {}
  const ref = sys.spawn(
    actor<Told>(ctx => {
      ctx.scheduleEvery('10ms', { type: 'note', n: 0 })
      return {
        note: () => void seenMs.push(ctx.clock.nowMs()),
        open: () => new Promise<void>(resolve => (release = resolve)),
        fail() {},
        get() {},
      }
    }),
    { name: 'a', args: undefined },
  )
  await sys.settle()
  sys.clock.advance(1005)
  await sys.advance('10ms')
  t.ok(seenMs.length <= 2, `${seenMs.length} messages after a pause of a hundred intervals`)
  seenMs.splice(0)
  ref.tell({ type: 'open' })
  await sys.advance('1s')
  release()
  await sys.settle()
  t.equal(seenMs.length, 1, 'one waited')
})

const health = (seen: string[]) =>
  actor<{ readonly type: 'health'; readonly of: string; readonly n: number; readonly reply?: Reply<number> }>(
    () => ({ health: m => void seen.push(`${m.of}${m.n}`) }),
    { coalesce: m => (m.of === '' ? undefined : m.of) },
  )

t.test('coalesce: the newest message of a key takes the place of the one that waits', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(health(seen), {
    name: 'a',
    args: undefined,
    mailbox: { capacity: 2, overflow: 'coalesce' },
  })
  const tell = (of: string, n: number) => ref.tell({ type: 'health', of, n })
  t.strictSame(
    [tell('a', 1), tell('b', 1), tell('a', 2), tell('a', 3), tell('c', 1)],
    ['ok', 'ok', 'ok', 'ok', 'full'],
  )
  await sys.settle()
  t.strictSame(seen.splice(0), ['a3', 'b1'])
  t.strictSame([tell('a', 4), tell('', 5), tell('', 6)], ['ok', 'ok', 'full'])
  await sys.settle()
  t.strictSame(seen, ['a4', '5'], 'without a key nothing is replaced')
  const stats = await sys.stats()
  t.equal(stats.deadLettersByReason.coalesced, 2)
  t.equal(stats.refused, 2)
})

t.test('an ask that a newer message replaces is refused', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(health([]), {
    name: 'a',
    args: undefined,
    mailbox: { capacity: 2, overflow: 'coalesce' },
  })
  const asked = t.rejects(ref.ask({ type: 'health', of: 'a', n: 1 } as never, soon), AskRefusedError)
  ref.tell({ type: 'health', of: 'a', n: 2 })
  await asked
})

t.test('a mailbox that coalesces needs a definition that says by what', async t => {
  const sys = startSystem(t)
  const mailbox = { capacity: 2, overflow: 'coalesce' } as const
  t.throws(() => sys.spawn(noter([]), { name: 'a', args: undefined, mailbox }), RangeError)
})

t.test('a key that throws is none: tell never throws', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const seen: number[] = []
  const definition = actor<{ readonly type: 'note'; readonly n: number }>(
    () => ({ note: m => void seen.push(m.n) }),
    {
      coalesce: () => {
        throw new Error('no key')
      },
    },
  )
  const ref = sys.spawn(definition, {
    name: 'a',
    args: undefined,
    mailbox: { capacity: 4, overflow: 'coalesce' },
  })
  for (const n of [1, 2]) t.equal(ref.tell({ type: 'note', n }), 'ok')
  await sys.settle()
  t.strictSame(seen, [1, 2])
  t.ok(log.lines.some(line => line.text === 'no key for a message'))
})

t.test('control messages overtake all others, first in first out among themselves', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  type M = { readonly type: 'data' | 'pause' | 'resume'; readonly n: number }
  const note = (m: M): void => void seen.push(`${m.type}${m.n}`)
  const definition = actor<M>(() => ({ data: note, pause: note, resume: note }), {
    control: ['pause', 'resume'],
  })
  const ref = sys.spawn(definition, { name: 'a', args: undefined, mailbox: { capacity: 2 } })
  const tell = (type: M['type'], n: number) => ref.tell({ type, n })
  t.strictSame([tell('data', 1), tell('data', 2), tell('data', 3)], ['ok', 'ok', 'full'])
  t.strictSame(
    [tell('pause', 1), tell('resume', 2), tell('pause', 3)],
    ['ok', 'ok', 'full'],
    'a bound of its own',
  )
  await sys.settle()
  t.strictSame(seen, ['pause1', 'resume2', 'data1', 'data2'])
})

t.test('control messages are dropped by no overflow policy', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  type M = { readonly type: 'data' | 'pause'; readonly n: number }
  const note = (m: M): void => void seen.push(`${m.type}${m.n}`)
  const definition = actor<M>(() => ({ data: note, pause: note }), { control: ['pause'] })
  const ref = sys.spawn(definition, {
    name: 'a',
    args: undefined,
    mailbox: { capacity: 1, overflow: 'dropOldest' },
  })
  ref.tell({ type: 'pause', n: 1 })
  for (const n of [1, 2]) ref.tell({ type: 'data', n })
  t.equal(ref.tell({ type: 'pause', n: 2 }), 'full')
  await sys.settle()
  t.strictSame(seen, ['pause1', 'data2'])
})

t.test('dead letters are counted by reason', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(noter([]), {
    name: 'a',
    args: undefined,
    mailbox: { capacity: 1, overflow: 'dropOldest' },
  })
  for (const n of [1, 2, 3]) ref.tell({ type: 'note', n })
  await sys.settle()
  ref.tell({ type: 'unknown' } as never)
  await sys.settle()
  ref.tell({ type: 'note', n: 4 })
  await sys.stop(ref)
  ref.tell({ type: 'note', n: 5 })
  const { deadLetters, deadLettersByReason } = await sys.stats()
  t.match(deadLettersByReason, { overflow: 2, 'no arm': 1, stopped: 1, dead: 1 })
  t.equal(deadLetters, 5)
})

t.test('signals reach an actor also when its mailbox is full', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const watched = sys.spawn(noter([]), { name: 'watched', args: undefined })
  const ref = sys.spawn(
    actor<Told>(ctx => {
      ctx.watch(watched)
      return {
        note: () => void seen.push('note'),
        open() {},
        fail() {},
        get() {},
        [signal]: (s: Signal) => void seen.push(s.type),
      }
    }),
    { name: 'a', args: undefined, mailbox: { capacity: 1 } },
  )
  await sys.settle()
  await sys.stop(watched)
  t.equal(ref.tell({ type: 'note', n: 1 }), 'ok')
  await sys.settle()
  t.strictSame(seen, ['terminated', 'note'])
})
