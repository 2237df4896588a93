/**
 * A stop with `after: 'mailbox'`: what waits is handled first, on one thread and on several, and the time for
 * it ends.
 */

import { type ActorRef, ActorTerminatedError, type Reply, type ShutdownReport, signal } from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { BEGUN, crew, DONE, holder, newWords, STOPPED, sink, source, TOLD } from './fixtures/drainers.ts'
import { actor, startSystem } from './inline-actors.ts'
import { restart, soon, startThreads } from './thread-systems.ts'

const AFTER_MAILBOX = { after: 'mailbox' } as const

type Work =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'slow'; readonly ms: number }
  | { readonly type: 'ask'; readonly reply: Reply<number> }
  | { readonly type: 'later'; readonly reply: Reply<number> }
  | { readonly type: 'pipe'; readonly reply: Reply<number> }
  | { readonly type: 'piped'; readonly reply: Reply<number> }
  | { readonly type: 'keep' }
  | { readonly type: 'fail' }
  | { readonly type: 'spawn' }

/** Notes what it does in `seen`. */
function worker(seen: string[]) {
  return actor<Work>(ctx => {
    seen.push('setup')
    return {
      note: ({ n }) => void seen.push(`note ${n}`),
      slow: ({ ms }) => new Promise<void>(resolve => void ctx.clock.after(ms, resolve)),
      ask: ({ reply }) => reply(1),
      // Neither an async arm nor a pipe: only the ask knows that an answer is to come.
      later: ({ reply }) => void ctx.clock.after(50, () => reply(2)),
      pipe({ reply }) {
        const later = new Promise<void>(resolve => void ctx.clock.after(50, resolve))
        ctx.pipe(
          later,
          () => ({ type: 'piped', reply }),
          () => ({ type: 'fail' }),
        )
      },
      piped: ({ reply }) => reply(3),
      // It waits for ever, with no arm in flight.
      keep: () =>
        ctx.pipe(
          new Promise<void>(() => {}),
          () => ({ type: 'fail' }),
          () => ({ type: 'fail' }),
        ),
      fail() {
        throw new Error('it broke')
      },
      spawn: () => void ctx.spawn(worker(seen), { name: 'child', args: undefined }),
      [signal](given) {
        if (given.type === 'stopped') seen.push(`stopped ${ctx.name}`)
      },
    }
  })
}

function told(ref: ActorRef<Work>, count: number): void {
  for (let n = 0; n < count; n++) ref.tell({ type: 'note', n })
}

t.test('a stop after the mailbox handles what waits, and refuses what comes after it', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined })
  ref.tell({ type: 'slow', ms: 10 })
  told(ref, 100)
  const asked = ref.ask({ type: 'ask' }, { timeout: '1s' })
  await sys.settle()
  const ended = sys.stop(ref, AFTER_MAILBOX)
  t.equal(ref.tell({ type: 'note', n: -1 }), 'dead')
  await t.rejects(ref.ask({ type: 'ask' }, { timeout: '1s' }), ActorTerminatedError)
  t.equal((await sys.describe())[0]?.state, 'stopping')
  await sys.advance(10)
  t.equal((await ended).reason, 'stopped')
  t.equal(await asked, 1)
  t.strictSame(seen, ['setup', ...Array.from({ length: 100 }, (_, n) => `note ${n}`), 'stopped a'])
})

t.test('an actor that drains before its first turn starts, and handles what it was told', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined })
  told(ref, 2)
  await sys.stop(ref, AFTER_MAILBOX)
  t.strictSame(seen, ['setup', 'note 0', 'note 1', 'stopped a'])
})

t.test(
  'asks that were taken are answered, however: at once, later, or by way of a piped message',
  async t => {
    const sys = startSystem(t)
    const ref = sys.spawn(worker([]), { name: 'a', args: undefined })
    const timeout = '1s'
    const asked = [
      ref.ask({ type: 'later' }, { timeout }),
      ref.ask({ type: 'pipe' }, { timeout }),
      ref.ask({ type: 'ask' }, { timeout }),
    ]
    const ended = sys.stop(ref, AFTER_MAILBOX)
    await sys.advance('1s')
    t.strictSame(await Promise.all(asked), [2, 3, 1])
    await ended
  },
)

t.test('schedules are cancelled when it begins', async t => {
  const sys = startSystem(t)
  let ticks = 0
  const ticker = actor<Work>(ctx => {
    ctx.scheduleEvery(1, { type: 'note', n: 0 })
    return { ...worker([]).setup(ctx, undefined), note: () => void ticks++ } as never
  })
  const ref = sys.spawn(ticker, { name: 'a', args: undefined })
  await sys.advance(3)
  t.equal(ticks, 3)
  ref.tell({ type: 'slow', ms: 100 })
  const ended = sys.stop(ref, AFTER_MAILBOX)
  await sys.advance('1s')
  await ended
  t.equal(ticks, 3)
})

t.test('past its time it stops as ever: what waits is dropped, and it is reported', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined, shutdown: 20 })
  ref.tell({ type: 'slow', ms: 1000 })
  const asked = ref.ask({ type: 'ask' }, { timeout: '1m' })
  asked.catch(() => {})
  await sys.settle()
  const ended = sys.stop(ref, { after: 'mailbox', within: 100 })
  await sys.advance(99)
  t.equal((await sys.describe()).length, 1)
  await sys.advance(1)
  // The arm never comes back in its shutdown time either.
  await sys.advance(20)
  t.equal((await ended).reason, 'stopped')
  await t.rejects(asked, ActorTerminatedError)
  t.ok(log.lines.some(({ text }) => text === 'actor stopped before it had drained'))
  t.match(
    await sys.shutdown(),
    { undrained: [], slow: [], droppedMessages: 0 },
    'which was before the shutdown',
  )
})

t.test('a failure meanwhile restarts the actor, which goes on', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined, supervision: restart })
  ref.tell({ type: 'fail' })
  told(ref, 2)
  const ended = sys.stop(ref, AFTER_MAILBOX)
  await sys.advance('1s')
  t.equal((await ended).reason, 'stopped')
  t.strictSame(seen, ['setup', 'setup', 'note 0', 'note 1', 'stopped a'])
})

t.test('one that fails and is not restarted has not drained', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(worker([]), { name: 'a', args: undefined })
  ref.tell({ type: 'fail' })
  told(ref, 2)
  t.match(await sys.shutdown(AFTER_MAILBOX), { undrained: ['a'], droppedMessages: 2 })
})

t.test('a plain stop cuts it short', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined })
  ref.tell({ type: 'slow', ms: 10 })
  told(ref, 2)
  await sys.settle()
  const drained = sys.stop(ref, AFTER_MAILBOX)
  const stopped = sys.stop(ref)
  await sys.advance(10)
  await Promise.all([drained, stopped])
  t.strictSame(seen, ['setup', 'stopped a'])
})

t.test('children drain after their parent, and may be spawned by what it handles', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  const ref = sys.spawn(worker(seen), { name: 'a', args: undefined })
  ref.tell({ type: 'slow', ms: 1 })
  ref.tell({ type: 'spawn' })
  await sys.settle()
  const report = sys.shutdown(AFTER_MAILBOX)
  t.throws(() => sys.spawn(worker(seen), { name: 'b', args: undefined }), {
    code: 'HOMING_ACTOR_SYSTEM_STOPPED',
  })
  await sys.advance(1)
  t.match(await report, { undrained: [], slow: [] })
  t.strictSame(seen, ['setup', 'setup', 'stopped child', 'stopped a'])
})

t.test('a child answers the asks that its parent handed on, before both stop', async t => {
  const sys = startSystem(t)
  const words = newWords()
  const ref = sys.spawn(crew, { name: 'crew', args: { words, threads: ['here', 'here', 'here'] } })
  const asked = Array.from({ length: 30 }, () => ref.ask({ type: 'job' }, { timeout: '1s' }))
  const ended = sys.stop(ref, AFTER_MAILBOX)
  await sys.advance('1s')
  t.equal((await Promise.all(asked)).length, 30)
  await ended
  t.equal(words[STOPPED], 103)
})

t.test('a child that never ends costs its parent the time that both have, not more', async t => {
  const sys = startSystem(t)
  const words = newWords()
  const parent = actor<Work>(ctx => {
    const child = ctx.spawn(sink, { name: 'child', args: { words }, shutdown: 10 })
    child.tell({ type: 'never' })
    child.tell({ type: 'item', n: 0 })
    return worker([]).setup(ctx, undefined) as never
  })
  sys.spawn(parent, { name: 'parent', args: undefined })
  await sys.settle()
  const report = sys.shutdown({ after: 'mailbox', within: 100, deadline: '10s' })
  await sys.advance(110)
  t.match(await report, { durationMs: 110, slow: ['child'], undrained: ['child'], droppedMessages: 1 })
})

t.test('actors that hang leave the others time to drain, and only they are reported', async t => {
  const sys = startSystem(t)
  const seen: string[] = []
  for (const name of ['idle', 'busy', 'hangs-1', 'idler', 'hangs-2', 'hangs-3', 'late']) {
    const ref = sys.spawn(worker(name === 'busy' ? seen : []), { name, args: undefined })
    if (name.startsWith('hangs')) ref.tell({ type: 'slow', ms: 60_000 })
    if (name === 'busy') {
      ref.tell({ type: 'slow', ms: 100 })
      told(ref, 3)
    }
  }
  await sys.settle()
  const report = sys.shutdown({ after: 'mailbox', deadline: '10s' })
  await sys.advance('10s')
  t.match(await report, {
    undrained: ['hangs-3', 'hangs-2', 'hangs-1'],
    slow: ['hangs-3', 'hangs-2', 'hangs-1'],
    droppedMessages: 0,
    // Half of 8 s, of the 4 s that are left, and of the 2 s; the others are quick.
    durationMs: 7000,
  })
  t.strictSame(seen, ['setup', 'note 0', 'note 1', 'note 2', 'stopped busy'])
})

t.test('an actor may use all the time but the shutdown times of those that wait behind it', async t => {
  const sys = startSystem(t)
  for (const name of ['a', 'b']) sys.spawn(worker([]), { name, args: undefined, shutdown: '1s' })
  sys.spawn(worker([]), { name: 'long', args: undefined, shutdown: '1s' }).tell({ type: 'slow', ms: 27_000 })
  await sys.settle()
  const report = sys.shutdown({ after: 'mailbox', within: '30s', deadline: '40s' })
  await sys.advance('40s')
  t.match(await report, { durationMs: 27_000, undrained: [], slow: [] })
})

t.test('without any time an actor has drained if nothing waits for it', async t => {
  const sys = startSystem(t)
  for (const name of ['idle', 'keeps']) {
    const ref = sys.spawn(worker([]), { name, args: undefined })
    if (name === 'keeps') ref.tell({ type: 'keep' })
  }
  await sys.settle()
  t.match(await sys.shutdown({ after: 'mailbox', within: 0 }), { undrained: ['keeps'], droppedMessages: 0 })
})

t.test('a parent whose time is over reports the children that it could not let drain', async t => {
  const parent = actor<Work>(ctx => {
    ctx.spawn(worker([]), { name: 'idle', args: undefined })
    const child = ctx.spawn(worker([]), { name: 'child', args: undefined })
    child.tell({ type: 'keep' })
    return worker([]).setup(ctx, undefined) as never
  })
  for (const [message, undrained, slow] of [
    [{ type: 'keep' }, ['parent', 'child'], []],
    // It is abandoned, and its children with it.
    [{ type: 'slow', ms: 1000 }, ['parent', 'child'], ['parent', 'child', 'idle']],
  ] as const) {
    const sys = startSystem(t)
    const ref = sys.spawn(parent, { name: 'parent', args: undefined, shutdown: 10 })
    ref.tell(message)
    await sys.settle()
    const report = sys.shutdown({ after: 'mailbox', within: 100, deadline: '10s' })
    await sys.advance('10s')
    t.match(await report, { undrained, slow })
  }
})

t.test('an actor drains itself, or a child', async t => {
  const sys = startSystem(t)
  const words = newWords()
  type Boss = { readonly type: 'child' } | { readonly type: 'self' } | { readonly type: 'note' }
  let notes = 0
  const boss = actor<Boss>(ctx => {
    const child = ctx.spawn(sink, { name: 'child', args: { words } })
    return {
      child() {
        for (let n = 0; n < 5; n++) child.tell({ type: 'item', n })
        ctx.stop(child, AFTER_MAILBOX)
      },
      self: () => ctx.stop(undefined, AFTER_MAILBOX),
      note: () => void notes++,
    }
  })
  const ref = sys.spawn(boss, { name: 'boss', args: undefined })
  ref.tell({ type: 'child' })
  await sys.settle()
  t.strictSame([words[DONE], words[STOPPED]], [5, 1])
  ref.tell({ type: 'self' })
  ref.tell({ type: 'note' })
  ref.tell({ type: 'note' })
  t.equal((await sys.whenTerminated(ref)).reason, 'stopped')
  t.equal(notes, 2)
})

t.test('an option that is none is refused', t => {
  const sys = startSystem(t)
  const ref = sys.spawn(worker([]), { name: 'a', args: undefined })
  t.rejects(sys.stop(ref, { after: 'noon' as never }), RangeError)
  t.rejects(sys.stop(ref, { within: 5 } as never), RangeError)
  t.throws(() => sys.shutdown({ after: 'noon' as never }), RangeError)
  t.end()
})

// ── On several threads ─────────────────────────────────────────────────────────────────────────

t.test(
  'what other threads had told an actor before it drains is handled, also what is still on its way',
  async t => {
    const system = await startThreads(t)
    const words = newWords()
    const into = system.spawn(sink, {
      name: 'sink',
      args: { words },
      thread: 'p-1',
      mailbox: { capacity: 100_000 },
    })
    const from = system.spawn(source, { name: 'source', args: { words }, thread: 'p-0' })
    // Spawned last, so that it drains first: then all that it told is on its way from p-0 to p-1, past main.
    for (let round = 0; round < 5; round++) from.tell({ type: 'pour', count: 2000, into })
    const report = await system.shutdown(AFTER_MAILBOX)
    t.match(report, { slow: [], undrained: [], droppedMessages: 0 } satisfies Partial<ShutdownReport>)
    t.ok(words[TOLD]! > 0)
    t.equal(words[DONE], words[TOLD])
    t.equal(words[STOPPED], 1)
  },
)

t.test('a crew on dedicated threads and on those of a pool answers what was asked', async t => {
  const system = await startThreads(t)
  for (const threads of [
    ['dedicated', 'dedicated'],
    ['p-0', 'p-1', 'here'],
  ] as const) {
    const words = newWords()
    const ref = system.spawn(crew, { name: 'crew', args: { words, threads }, thread: 'p-0' })
    const asked = Array.from({ length: 20 }, () => ref.ask({ type: 'job' }, soon))
    const ended = system.stop(ref, AFTER_MAILBOX)
    t.equal((await Promise.all(asked)).length, 20)
    t.equal((await ended).reason, 'stopped')
    t.equal(words[STOPPED], 100 + threads.length)
  }
})

t.test('a thread that never ends its turn does not hold up the end', async t => {
  const system = await startThreads(t)
  const words = newWords()
  const ref = system.spawn(sink, { name: 'sink', args: { words }, thread: 'dedicated', shutdown: 10 })
  ref.tell({ type: 'spin' })
  const other = system.spawn(sink, { name: 'other', args: { words }, thread: 'p-0' })
  // Its module is loaded.
  await other.ask({ type: 'question' }, soon)
  other.tell({ type: 'item', n: 0 })
  t.not(await Atomics.waitAsync(words, BEGUN, 0).value, 'timed-out')
  const report = await system.shutdown({ after: 'mailbox', within: '2s', deadline: '10s' })
  t.ok(report.slow.includes('sink'))
  t.strictSame(report.undrained, ['sink'], 'nobody knows what it had')
  t.equal(words[DONE], 1)
})

for (const thread of ['p-0', 'dedicated'] as const) {
  t.test(
    `${thread}: a thread killed meanwhile: its actor comes back and drains on, if it restarts`,
    async t => {
      const system = await startThreads(t)
      const words = newWords()
      const options = { args: { words }, thread, mailbox: { capacity: 10_000 } }
      const lasting = system.spawn(sink, { name: 'lasting', ...options, supervision: restart })
      await lasting.ask({ type: 'question' }, soon)
      lasting.tell({ type: 'slow', ms: 60_000 })
      const ended = system.stop(lasting, { after: 'mailbox', within: '30s' })
      await system.killThread(await whereIs(system, 'lasting'))
      t.equal((await ended).reason, 'stopped', 'what the dead thread had taken is lost; the rest was nothing')
      t.equal(words[STOPPED], 1)
    },
  )
}

t.test('a thread killed while an actor drains by its own word: it drains on in the next life', async t => {
  const system = await startThreads(t)
  const words = newWords()
  const options = { args: { words }, thread: 'p-0', supervision: restart } as const
  const leaving = system.spawn(sink, { name: 'leaving', ...options })
  const left = leaving.ask({ type: 'leave', within: '30s' }, soon)
  leaving.tell({ type: 'never' })
  await left
  const ended = system.whenTerminated(leaving)
  await system.killThread('p-0')
  t.equal((await ended).reason, 'stopped')
  t.equal(words[STOPPED], 1)
})

t.test('a thread killed while an actor drains that was not told so by its parent', async t => {
  const system = await startThreads(t)
  const words = newWords()
  const args = { words, thread: 'p-0', supervision: restart }
  const parent = system.spawn(holder, { name: 'holder', args, thread: 'p-1' })
  const child = await parent.ask({ type: 'sink' }, soon)
  const other = system.spawn(sink, { name: 'other', args: { words: newWords() }, thread: 'p-0' })
  child.tell({ type: 'never' })
  const lost = system.stop(child, { after: 'mailbox', within: '30s' })
  // What p-0 has told p-1 is published by then.
  for (let n = 0; n < 2; n++) await other.ask({ type: 'question' }, soon)
  await system.killThread('p-0')
  t.equal((await lost).reason, 'threadExit')
  t.equal((await system.whenTerminated(child)).reason, 'stopped')
  t.equal(words[STOPPED], 1)
})

t.test('a thread killed meanwhile: an actor that does not restart has ended with it', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(sink, { name: 'a', args: { words: newWords() }, thread: 'p-0' })
  await ref.ask({ type: 'question' }, soon)
  ref.tell({ type: 'never' })
  const report = system.shutdown({ after: 'mailbox', deadline: '30s' })
  await system.killThread('p-0')
  t.match(await report, { undrained: ['a'] })
})

t.test('a thread killed meanwhile: an actor that may not restart once more has not drained', async t => {
  const system = await startThreads(t)
  const supervision = { ...restart, max: 0 }
  const ref = system.spawn(sink, { name: 'a', args: { words: newWords() }, thread: 'p-0', supervision })
  await ref.ask({ type: 'question' }, soon)
  ref.tell({ type: 'never' })
  const report = system.shutdown({ after: 'mailbox', deadline: '30s' })
  await system.killThread('p-0')
  t.match(await report, { undrained: ['a'] })
})

t.test('an actor that is no child of the system drains, as long as its shutdown time', async t => {
  const system = await startThreads(t)
  const words = newWords()
  const ref = system.spawn(crew, { name: 'crew', args: { words, threads: ['p-1'] }, thread: 'p-0' })
  const asked = Array.from({ length: 3 }, () => ref.ask({ type: 'job' }, soon))
  await Promise.all(asked)
  t.equal((await system.stop(ref, AFTER_MAILBOX)).reason, 'stopped')
  await t.rejects(ref.ask({ type: 'job' }, soon), ActorTerminatedError)
})

async function whereIs(system: Awaited<ReturnType<typeof startThreads>>, name: string): Promise<string> {
  return (await system.describe()).find(actor => actor.name === name)!.thread
}
