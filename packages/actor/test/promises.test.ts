import { defineCapability, type Reply } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { actor, restart, startSystem } from './inline-actors.ts'

type Note = { readonly type: 'note'; readonly text: string }
type Work =
  | { readonly type: 'work'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'tick'; readonly n: number }

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
