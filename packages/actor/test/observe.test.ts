/**
 * Observation of a system: counters, threads and flight recorders, including those of hung and dead threads.
 */

import { type ActorSystemOptions, type FlightEvent, systemView, textOfEvent } from '@homing/actor'
import { recordingLog, SimulatedClock, seededRandom, silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { MAIN } from '../src/links/life.ts'
import { Counts, readCounters } from '../src/observe/counts.ts'
import { FlightRecorder, readFlight } from '../src/observe/flight.ts'
import { Observatory } from '../src/observe/observatory.ts'
import { ThreadMemory } from '../src/observe/thread-memory.ts'
import { Runtime } from '../src/runtime/runtime.ts'
import { DEAD_LETTER_REASONS } from '../src/values/dead-letters.ts'
import { echo } from './fixtures/echo.ts'
import { typed } from './fixtures/typed.ts'
import { actor, startSystem } from './inline-actors.ts'
import { restart, soon, startThreads } from './thread-systems.ts'

type Work =
  | { readonly type: 'work'; readonly n: number }
  | { readonly type: 'fail' }
  | { readonly type: 'ask'; readonly reply: (value: number) => void }
  | { readonly type: 'silent'; readonly reply: (value: number) => void }

const worker = actor<Work>(() => ({
  work() {},
  fail() {
    throw new Error('as asked')
  },
  ask: m => m.reply(1),
  silent() {},
}))

async function start(t: Test, options: ActorSystemOptions = {}) {
  const log = recordingLog()
  const system = await startThreads(t, { log, ...options })
  const counters = (name: string) => system.counters().threads.find(({ thread }) => thread === name)!
  return { system, log, counters }
}

const texts = (events: readonly FlightEvent[] | undefined): string[] => (events ?? []).map(textOfEvent)

t.test('what is done on one thread is counted exactly', async t => {
  const system = startSystem(t)
  const ref = system.spawn(worker, {
    name: 'worker',
    args: undefined,
    mailbox: { capacity: 8 },
    supervision: restart,
  })
  await system.settle()
  for (let n = 0; n < 10; n++) ref.tell({ type: 'work', n })
  await system.settle()
  await ref.ask({ type: 'ask' }, soon)
  const silent = ref.ask({ type: 'silent' }, { timeout: '1s' })
  silent.catch(() => {})
  await system.advance('1s')
  await t.rejects(silent)
  ref.tell({ type: 'unknown' } as never)
  ref.tell({ type: 'fail' })
  await system.advance('1s')
  await system.stop(ref)
  ref.tell({ type: 'work', n: 0 })

  const { threads, total } = system.counters()
  t.match(total, {
    sent: 15,
    handled: 11,
    refused: 2,
    deadLetters: 2,
    deadLettersByReason: { 'no arm': 1, dead: 1, overflow: 0 },
    restarts: 1,
    asksTimedOut: 1,
    mailboxHighWater: 8,
    actors: 0,
    asksPending: 0,
    lives: 1,
  })
  t.same(threads, [{ ...total, thread: 'main' }])
  t.ok(total.turns > 0)
})

t.test('the figures of stats are those of counters', async t => {
  const { system } = await start(t)
  const refs = ['p-0', 'p-1'].map(thread => system.spawn(echo, { name: `on ${thread}`, args: {}, thread }))
  for (const ref of refs) {
    for (let n = 0; n < 100; n++) ref.tell({ type: 'note', n })
    await ref.ask({ type: 'notes' }, soon)
  }
  const { handled, sent, deadLettersByReason } = await system.stats()
  const { total } = system.counters()
  t.equal(total.handled, handled)
  t.equal(total.handled, 202)
  t.equal(total.sent, sent)
  t.same(total.deadLettersByReason, deadLettersByReason)
  t.equal(total.actors, 2)
})

t.test('frames are counted by the lane they took', async t => {
  const { system, counters } = await start(t, { pools: { p: { count: 1 } } })
  const ref = system.spawn(typed, { name: 'typed', args: undefined, thread: 'p-0' })
  await ref.ask({ type: 'tally' }, soon)
  const before = { main: counters('main'), other: counters('p-0') }
  for (let n = 0; n < 20; n++) ref.tell({ type: 'note', n, text: 'cloned' })
  t.equal(await ref.ask({ type: 'add', a: 1, b: 2 }, soon), 3)
  const after = { main: counters('main'), other: counters('p-0') }
  t.equal(after.main.framesOut.object - before.main.framesOut.object, 21)
  t.equal(after.other.framesIn.object - before.other.framesIn.object, 21)
  t.equal(after.other.framesOut.inline - before.other.framesOut.inline, 1, 'the answer is a number')
  t.equal(after.main.framesIn.inline - before.main.framesIn.inline, 1)
  t.equal(after.other.handled - before.other.handled, 21)
  t.ok(after.other.inboundBatches > before.other.inboundBatches)
  t.ok(after.other.ringHighWaterBytes > 0)
  // It parks once it has looked again and found nothing; what comes then rings.
  while (counters('p-0').parks === 0) await new Promise<void>(resolve => setImmediate(resolve))
  while (counters('main').doorbells === 0) await ref.ask({ type: 'tally' }, soon)
})

t.test('a thread that hangs can be read, and says what it has in hand', async t => {
  const { system, counters } = await start(t)
  const ref = system.spawn(echo, { name: 'spinner', args: {}, thread: 'p-0' })
  for (let n = 0; n < 10; n++) ref.tell({ type: 'note', n })
  await ref.ask({ type: 'notes' }, soon)
  const begun = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', begun })
  await Atomics.waitAsync(begun, 0, 0).value
  t.equal(counters('p-0').handled, 11, 'what it has finished')
  t.equal(counters('p-0').actors, 1)
  const last = system.flight('p-0')!.at(-1)!
  t.match(last, { kind: 'handled', actor: 'spinner', type: 'spin', isInHand: true })
  t.equal(textOfEvent(last), "spinner handled 'spin' (in hand)")
})

t.test(
  'counters and flight recorder survive a thread that was killed, and go on with its next life',
  async t => {
    const { system, log, counters } = await start(t)
    const ref = system.spawn(echo, { name: 'victim', args: {}, thread: 'p-0', supervision: restart })
    for (let n = 0; n < 50; n++) ref.tell({ type: 'note', n })
    await ref.ask({ type: 'notes' }, soon)
    const begun = new Int32Array(new SharedArrayBuffer(4))
    ref.tell({ type: 'spin', begun })
    await Atomics.waitAsync(begun, 0, 0).value
    await system.killThread('p-0')

    const events = texts(system.flight('p-0'))
    // They may have come in more than one turn.
    const notes = events.map(text => /^victim handled 'note'(?: ×(\d+))?$/.exec(text))
    const noted = notes.reduce((sum, match) => sum + (match === null ? 0 : Number(match[1] ?? 1)), 0)
    t.equal(noted, 50, events.join('\n'))
    t.ok(
      events.some(text => /^thread ended, life \d+, while victim had 'spin' in hand$/.test(text)),
      events.join('\n'),
    )
    const dumped = log.lines
      .filter(({ text }) => text === 'last events of a thread')
      .map(({ fields }) => fields['event'])
    t.ok(
      dumped.some(text => /had 'spin' in hand/.test(String(text))),
      'the log has it too',
    )
    t.ok(dumped.length <= 20)
    await ref.ask({ type: 'notes' }, soon)
    t.match(counters('p-0'), { handled: 52, lives: 2, actors: 1 })
    t.match(
      system
        .threads()
        .map(({ name, state, lives, restartsLately }) => ({ name, state, lives, restartsLately })),
      [
        { name: 'main', state: 'running', lives: 1, restartsLately: 0 },
        { name: 'p-0', state: 'running', lives: 2, restartsLately: 1 },
        { name: 'p-1', state: 'running', lives: 1, restartsLately: 0 },
      ],
    )
  },
)

t.test('the log gets the last events of three deaths a minute', async t => {
  const { system, log } = await start(t)
  for (let death = 0; death < 5; death++) await system.killThread('p-0')
  const deaths = log.lines.filter(({ text }) => text === 'thread ended').length
  t.equal(deaths, 5)
  const dumped = log.lines.map(({ text }) => (text === 'last events of a thread' ? 'event' : text))
  t.equal(dumped.filter((text, at) => text === 'thread ended' && dumped[at + 1] === 'event').length, 3)
})

t.test('of threads that are not coming back the latest are shown, and all are in the total', t => {
  const clock = new SimulatedClock()
  const observatory = new Observatory('main', new ThreadMemory())
  for (let n = 0; n < 100; n++) {
    const memory = observatory.memoryFor(`dedicated-${n}`)
    const counts = new Counts(memory)
    counts.begin(n)
    counts.sent += 2
    counts.raiseSpill(n)
    observatory.ended(`dedicated-${n}`, n, clock)
    observatory.gone(`dedicated-${n}`)
  }
  const { threads, total } = observatory.counters()
  t.equal(threads.length, 33, 'main and 32 others')
  t.equal(threads.at(-1)!.thread, 'dedicated-99')
  t.match(total, { lives: 100, sent: 200, spillHighWater: 99 })
  t.equal(observatory.flight('dedicated-1', 10), undefined)
  t.match(texts(observatory.flight('dedicated-99', 10)), ['thread ended, life 99, with nothing in hand'])
  t.end()
})

t.test('failures, restarts and ends are recorded, equal events in a row as one', async t => {
  const system = startSystem(t)
  const ref = system.spawn(worker, {
    name: 'worker',
    args: undefined,
    mailbox: { capacity: 1 },
    supervision: restart,
  })
  await system.settle()
  ref.tell({ type: 'fail' })
  for (let n = 0; n < 3; n++) ref.tell({ type: 'work', n })
  await system.advance('1s')
  await system.stop(ref)
  t.same(texts(system.flight('main')), [
    'thread started, life 1',
    'worker started',
    "worker mailbox full at 'work' ×3",
    "worker handled 'fail'",
    "worker failed at 'fail'",
    'worker restarts, 1 so far',
    'worker started, restart 1',
    'worker ended',
  ])
  t.same(texts(system.flight('main', 2)), ['worker started, restart 1', 'worker ended'])
  t.equal(system.flight('elsewhere'), undefined)
})

t.test('a flood of messages leaves the events that came before', t => {
  const memory = new ThreadMemory()
  const clock = new SimulatedClock()
  const recorder = new FlightRecorder(memory, clock)
  recorder.name(7, 'actor')
  recorder.note('failed', 7, 'bad')
  for (let n = 0; n < 100_000; n++) {
    recorder.handling(7, n % 2 === 0 ? 'even' : 'odd')
    recorder.handled(1)
  }
  const events = readFlight(memory, 10_000)
  t.equal(events.length, 2049)
  t.equal(textOfEvent(events.find(({ kind }) => kind === 'failed')!), "actor failed at 'bad'")
  t.equal(new Counts(memory).handled, 100_000)
  t.end()
})

t.test('more types and names than there is room for are still recorded', t => {
  const memory = new ThreadMemory()
  const recorder = new FlightRecorder(memory, new SimulatedClock())
  for (let n = 1; n <= 2000; n++) {
    recorder.name(n, `actor ${n} ${'x'.repeat(n % 100)}`)
    recorder.handling(n, `type ${n} ${'x'.repeat(n % 50)}`)
    recorder.handled(1)
  }
  const events = readFlight(memory, 3000)
  t.equal(events.length, 2000)
  t.match(events[0], { actor: '#1', type: 'type 1 x' })
  t.match(events.at(-1), { actor: 'actor 2000 ', type: '(other)' })
  t.equal(events.at(-2)!.actor, `actor 1999 ${'x'.repeat(44)}`)
  t.end()
})

t.test('the texts of every kind of event are for people', t => {
  const memory = new ThreadMemory()
  const recorder = new FlightRecorder(memory, new SimulatedClock())
  recorder.note('linkOpened', 0, 'p-0', 3)
  recorder.note('overflow', 0, 'p-0', 1)
  recorder.note('linkClosed', 0, 'p-0', 3)
  recorder.note('deadLetter', 0, 'work', DEAD_LETTER_REASONS.indexOf('dead'))
  recorder.note('askTimedOut', 0, 'work', 50)
  recorder.note('longTurn', 0, '', 200)
  recorder.note('heapPressure', 0, '', 71)
  recorder.note('shed', 0, '', 72)
  recorder.note('shed', 0, '', 0)
  recorder.note('recycle', 0, '', 86)
  recorder.note('hung', 0, 'p-0', 10_000)
  recorder.noteEnd(3)
  t.same(texts(readFlight(memory, 100)), [
    'link to p-0 opened, life 3',
    'link to p-0 full',
    'link to p-0 closed, life 3',
    "dead letter 'work': dead",
    "ask 'work' timed out after 50 ms",
    'a round of the event loop with turns of actors took 200 ms',
    'heap at 71 % of its limit',
    'messages are shed: heap at 72 % of its limit',
    'heap pressure is over',
    'thread is recycled: heap at 86 % of its limit',
    'thread p-0 hangs: no sign of life for 10000 ms',
    'thread ended, life 3, with nothing in hand',
  ])
  t.end()
})

t.test('handler times fall into buckets that double', t => {
  const memory = new ThreadMemory()
  const counts = new Counts(memory)
  for (const us of [0, 1, 1.5, 2, 3, 4, 5, 524_288, 524_289, 1e9]) counts.timed(us, 1)
  counts.timed(640, 64)
  const { handlerTimes } = readCounters('x', memory)
  t.same(handlerTimes.counts.slice(0, 5), [2, 2, 2, 1, 64])
  t.same(handlerTimes.counts.slice(-2), [1, 2])
  t.equal(handlerTimes.counts.length, handlerTimes.boundsUs.length + 1)
  t.equal(handlerTimes.sumUs, 0 + 1 + 1.5 + 2 + 3 + 4 + 5 + 524_288 + 524_289 + 1e9 + 640)
  t.end()
})

t.test('the heap is looked at every 256 turns, and whoever cares is told', async t => {
  const pressures: number[] = []
  const runtime = new Runtime({
    thread: MAIN,
    uid: 1,
    pools: [],
    clock: new SimulatedClock(),
    random: seededRandom(1),
    log: silentLog,
    provide: [],
    isAlone: true,
    heap: () => ({ usedBytes: 80, limitBytes: 100, residentBytes: 120 }),
  })
  runtime.heap.onPressure = share => void pressures.push(share)
  const ref = runtime.spawn(runtime.root!, worker, { name: 'worker', args: undefined })
  for (let turn = 0; turn < 600; turn++) {
    ref.tell({ type: 'work', n: turn })
    runtime.turns.runNow()
  }
  t.ok(pressures.length >= 2)
  t.ok(pressures.every(share => share === 0.8))
  t.match(readCounters('main', runtime.memory), {
    ...{ heapUsedBytes: 80, heapLimitBytes: 100, heapResidentBytes: 120 },
    handled: 600,
  })
  t.ok(texts(readFlight(runtime.memory, 100)).some(text => text.startsWith('heap at 80 % of its limit')))
})

t.test('an actor on main may see its system, one on another thread may not', async t => {
  const { system } = await start(t)
  const seen = Promise.withResolvers<readonly string[]>()
  system.spawn(
    actor(ctx => {
      seen.resolve(
        ctx
          .use(systemView)
          .threads()
          .map(({ name }) => name),
      )
      return {}
    }),
    { name: 'looker', args: undefined },
  )
  t.same(await seen.promise, ['main', 'p-0', 'p-1'])
  t.throws(() => systemView.create({} as never), { code: 'HOMING_ACTOR_NOT_ON_MAIN' })
})

t.test('a census names the threads that did not answer', async t => {
  const { system } = await start(t)
  system.spawn(echo, { name: 'fine', args: {}, thread: 'p-1' })
  const ref = system.spawn(echo, { name: 'spinner', args: {}, thread: 'p-0' })
  const begun = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', begun })
  await Atomics.waitAsync(begun, 0, 0).value
  const { actors, unanswered } = await system.census()
  t.same(unanswered, ['p-0'])
  t.same(
    actors.map(({ name, thread, mailboxHighWater }) => [name, thread, mailboxHighWater]),
    [['fine', 'p-1', 0]],
  )
})
