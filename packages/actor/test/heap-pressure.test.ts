/** Threads whose heap fills: the messages that they refuse, and their replacement before it is full. */

import assert from 'node:assert/strict'
import { type ActorSystemOptions, createActorSystem, type Supervision } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { OP } from '../src/links/frames.ts'
import { readFlight } from '../src/observe/flight.ts'
import { Runtime } from '../src/runtime/runtime.ts'
import { HeapGuard } from '../src/threads/heap-guard.ts'
import { echo } from './fixtures/echo.ts'
import { type HoarderMessage, hoarder } from './fixtures/hoarder.ts'
import { makeRuntime, settled, Wire } from './linked-runtimes.ts'
import { soon, startThreads } from './thread-systems.ts'

const restart: Supervision = { directive: 'restart', max: 0, within: '1m', backoff: { min: 1, max: 10 } }
const PROCESS_BYTES_MAX = 500e6

const start = (t: Test, options: ActorSystemOptions = {}) => startThreads(t, { threadHeapMb: 64, ...options })
const round = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/** A thread p-0 with a heap of 100 bytes that the test fills, its guard, and an actor of main's on it. */
async function guarded() {
  const clock = new SimulatedClock()
  const heap = { live: 50, garbage: 0, collections: 0, readings: 0 }
  const one = new Runtime({
    thread: 'p-0',
    uid: 2,
    pools: [],
    clock,
    random: seededRandom(2),
    log: silentLog,
    provide: [],
    isAlone: false,
    heap: () => {
      heap.readings++
      return { usedBytes: heap.live + heap.garbage, limitBytes: 100, residentBytes: 100 }
    },
  })
  one.registrar = { register() {}, unregister() {}, resolve() {} }
  const main = makeRuntime('main', 1, clock)
  const wire = new Wire(main, one)
  wire.settle()
  new HeapGuard(one, { shedAt: 0.7, recycleAt: 0.85, shedForMs: 2000 }, () => {
    heap.collections++
    heap.garbage = 0
  })
  const ref = main.spawn(main.root!, hoarder, { name: 'hoarder', args: undefined, thread: 'p-0' })
  const go = async (): Promise<void> => {
    wire.settle()
    await settled(main, one)
    wire.settle()
  }
  await go()
  const asked = async (): Promise<unknown> => {
    const answer = ref.ask({ type: 'kept' }, soon).catch((error: { code?: string }) => error.code)
    await go()
    return answer
  }
  return {
    clock,
    heap,
    main,
    one,
    wire,
    ref,
    asked,
    /** What its sender is told about a message, once all that it had to know has come to it. */
    async told(type: 'keep' | 'drop'): Promise<string> {
      await go()
      const status = ref.tell(type === 'keep' ? { type, kilobytes: 0 } : { type })
      await go()
      return status
    },
    look: (): void => one.heap.onPressure!(one.heap.share()),
    shed: () => one.counts.deadLettersByReason.shed,
    /** The words of the thread that it is to be replaced: whether nothing waits there any more. */
    recycles: () =>
      wire
        .waiting(one)
        .filter(({ op }) => op === OP.RECYCLE)
        .map(({ body }) => body),
    pressureEvents: () =>
      readFlight(one.memory, 100)
        .filter(({ kind }) => kind === 'shed' || kind === 'recycle')
        .map(({ kind, detail }) => [kind, detail]),
  }
}

t.test(
  'under pressure a thread refuses what others tell and ask, except control, until it is well below',
  async t => {
    const { clock, heap, one, ref, told, asked, look, shed, recycles, pressureEvents } = await guarded()

    t.equal(await told('keep'), 'ok')
    t.equal(await asked(), 1)
    heap.garbage = 30
    look()
    t.equal(await told('keep'), 'ok', 'garbage is no pressure')
    t.equal(heap.collections, 1)
    clock.advance(1000)
    heap.live = 75
    look()
    t.equal(ref.tell({ type: 'keep', kilobytes: 0 }), 'ok', 'main has yet to hear of it')
    const late = asked()
    t.equal(await late, 'HOMING_ACTOR_ASK_REFUSED')
    t.equal(shed(), 2, 'what came before main knew is counted')
    t.equal(await told('keep'), 'full', 'now its sender is told')
    t.equal(await asked(), 'HOMING_ACTOR_ASK_REFUSED')
    t.equal(shed(), 2, 'and nothing is sent')
    t.equal(await told('drop'), 'ok', 'a control message passes')
    one.cells
      .values()
      .next()
      .value!.ref.tell({ type: 'keep', kilobytes: 0 } as HoarderMessage)
    await settled(one)
    heap.live = 65
    clock.advance(20)
    t.equal(await told('keep'), 'full', 'not far enough below')
    heap.live = 59
    clock.advance(20)
    t.equal(await told('keep'), 'ok', 'over: it looked by itself')
    t.equal(await asked(), 2, 'an actor of its own thread was heard all the time')
    heap.live = 90
    clock.advance(1000)
    look()
    t.strictSame(recycles(), [false])
    await settled(one)
    clock.advance(5)
    t.strictSame(recycles(), [false, true])
    t.equal(ref.tell({ type: 'keep', kilobytes: 0 }), 'ok', 'for the next life')
    t.ok(heap.collections <= 4, `${heap.collections} collections`)
    t.strictSame(
      pressureEvents(),
      [
        ['shed', 75],
        ['shed', 0],
        ['recycle', 90],
      ],
      'what it did is in the flight recorder',
    )
  },
)

t.test(
  'a heap that stays between the two shares is shed no longer than shedFor: then it is replaced',
  async t => {
    const { clock, heap, ref, wire, told, look, recycles, pressureEvents } = await guarded()
    heap.live = 75
    look()
    t.equal(await told('keep'), 'full')
    clock.advance(1990)
    t.equal(await told('keep'), 'full')
    t.strictSame(recycles(), [])
    clock.advance(20)
    t.same(recycles()[0], false, 'it looked by itself')
    t.strictSame(pressureEvents(), [
      ['shed', 75],
      ['recycle', 75],
    ])
    wire.settle()
    t.equal(ref.tell({ type: 'keep', kilobytes: 0 }), 'ok', 'for the next life')
  },
)

t.test('after shedFor a heap below shedAt is enough, and what is garbage is collected for it', async t => {
  const { clock, heap, told, look, recycles, pressureEvents } = await guarded()
  heap.live = 75
  look()
  t.equal(await told('keep'), 'full')
  heap.live = 62
  heap.garbage = 20
  clock.advance(1990)
  t.equal(await told('keep'), 'full')
  clock.advance(20)
  t.equal(await told('keep'), 'ok')
  t.strictSame(recycles(), [])
  t.strictSame(pressureEvents(), [
    ['shed', 75],
    ['shed', 0],
  ])
})

t.test('a heap that rises and falls is shed no longer than shedFor in sum, and is then replaced', async t => {
  const { clock, heap, look, one, recycles } = await guarded()
  let shedMs = 0
  const pass = (ms: number): void => {
    for (let passed = 0; passed < ms; passed += 20) {
      if (one.inbound.isShedding) shedMs += 20
      clock.advance(20)
    }
  }
  for (let rise = 0; rise < 30 && recycles().length === 0; rise++) {
    heap.live = 75
    look()
    pass(1500)
    heap.live = 50
    look()
    pass(200)
  }
  t.same(recycles()[0], false)
  t.ok(shedMs <= 2100, `${shedMs} ms`)
  t.ok(heap.collections <= 10, `${heap.collections} collections`)
})

t.test('a thread that was calm for as long as shedFor may shed for shedFor again', async t => {
  const { clock, heap, look, one, recycles } = await guarded()
  for (let rise = 0; rise < 10; rise++) {
    heap.live = 75
    look()
    t.equal(one.inbound.isShedding, true)
    clock.advance(1500)
    heap.live = 50
    clock.advance(20)
    t.equal(one.inbound.isShedding, false)
    clock.advance(2000)
  }
  t.strictSame(recycles(), [])
})

t.test('however often it begins to shed, it looks once in a while', async t => {
  const { clock, heap, look, one } = await guarded()
  heap.live = 75
  look()
  for (let rise = 0; rise < 50; rise++) {
    heap.live = 50
    look()
    heap.live = 86
    look()
  }
  t.equal(one.inbound.isShedding, true)
  heap.readings = 0
  clock.advance(20)
  t.ok(heap.readings <= 2, `${heap.readings} readings in the time of one look`)
})

t.test('garbage that nobody collects does not keep a thread from serving again', async t => {
  const { clock, heap, told, look } = await guarded()
  heap.live = 75
  look()
  t.equal(await told('keep'), 'full')
  heap.live = 20
  heap.garbage = 48
  clock.advance(1000)
  t.equal(await told('keep'), 'ok', 'after the next collection, a second after the last')
})

t.test('garbage is no reason to replace a thread, however fast it comes', async t => {
  const { clock, heap, look, told, recycles } = await guarded()
  heap.live = 62
  heap.garbage = 10
  look()
  t.equal(heap.collections, 1)
  heap.garbage = 30
  clock.advance(5)
  look()
  t.strictSame([await told('keep'), heap.collections], ['full', 1], 'too soon to know')
  clock.advance(100)
  t.strictSame([await told('keep'), heap.collections], ['ok', 2])
  t.strictSame(recycles(), [])
})

t.test('a thread that is linked while another sheds is told so', async t => {
  const { clock, heap, one, look } = await guarded()
  heap.live = 75
  look()
  const later = makeRuntime('p-1', 3, clock)
  const wire = new Wire(later, one)
  wire.settle()
  t.equal(later.peers.get('p-0')!.isShedding, true)
})

t.test('a thread whose heap fills sheds, is recycled, and harms nobody else', async t => {
  const system = await start(t, { heapPressure: { shedFor: '1m' } })
  const victim = system.spawn(hoarder, {
    name: 'hoarder',
    args: undefined,
    thread: 'p-0',
    supervision: restart,
    mailbox: { capacity: 1024 },
  })
  const other = system.spawn(echo, {
    name: 'other',
    args: {},
    thread: 'p-0',
    supervision: restart,
    mailbox: { capacity: 65_536 },
  })
  const bystander = system.spawn(echo, { name: 'bystander', args: {}, thread: 'p-1' })
  const probe = createProbe(system, 'watcher')
  probe.watch(victim)
  await victim.ask({ type: 'kept' }, soon)
  let bytesMax = 0
  const beat = async (): Promise<void> => {
    bytesMax = Math.max(bytesMax, process.memoryUsage.rss())
    assert.equal(await bystander.ask({ type: 'where' }, soon), 'p-1')
  }

  const limit = performance.now() + 300_000
  let refused = 0
  let asked: unknown
  while (refused < 100 || asked !== 'HOMING_ACTOR_ASK_REFUSED') {
    assert.ok(performance.now() < limit, 'sheds')
    for (let i = 0; i < 10; i++) if (victim.tell({ type: 'keep', kilobytes: 16 }) === 'full') refused++
    asked = await victim.ask({ type: 'kept' }, soon).catch((error: { code?: string }) => error.code)
    await beat()
  }
  t.equal((await system.stats()).threadRecycles, 0, 'what comes from outside cannot fill it')

  victim.tell({ type: 'grow', kilobytes: 64 })
  let n = 0
  const told: number[] = []
  const tell = (): void => {
    if (other.tell({ type: 'note', n }) === 'ok') told.push(n)
    n++
  }
  const ended = probe.nextTerminated('5m')
  let reason: string | undefined
  void ended.then(terminated => {
    reason = terminated.reason
  })
  while (reason === undefined) {
    assert.ok(performance.now() < limit, 'is recycled')
    tell()
    await beat()
  }
  t.equal(reason, 'threadOom')
  let kept: unknown
  while (typeof kept !== 'number') {
    assert.ok(performance.now() < limit, 'is back')
    tell()
    kept = await victim.ask({ type: 'kept' }, soon).catch(round)
  }
  t.equal(kept, 0, 'a new life; its actors had no restart to spend')
  const notes = await other.ask({ type: 'notes' }, soon)
  t.ok(notes.length > 0, `${notes.length} waited in the ring`)
  t.strictSame(notes, told.slice(-notes.length), 'for the next life')
  const { threadRecycles, threadRestarts } = await system.stats()
  t.strictSame({ threadRecycles, threadRestarts }, { threadRecycles: 1, threadRestarts: 1 })
  t.ok(bytesMax < PROCESS_BYTES_MAX, `the process took ${Math.round(bytesMax / 1e6)} MB`)
})

t.test('a leak that stops while its thread sheds: the innocent serve again, in the next life', async t => {
  // Long enough that this thread sees it, also beside other work.
  const system = await start(t, { heapPressure: { shedFor: '3s' } })
  const leak = system.spawn(hoarder, {
    name: 'leak',
    args: undefined,
    thread: 'p-0',
    mailbox: { capacity: 4096 },
  })
  const innocent = system.spawn(echo, { name: 'innocent', args: {}, thread: 'p-0', supervision: restart })
  const probe = createProbe(system, 'watcher')
  probe.watch(leak)
  await leak.ask({ type: 'kept' }, soon)
  const limit = performance.now() + 300_000
  for (let kilobytes = 0; kilobytes < 36_000; kilobytes += 16) leak.tell({ type: 'keep', kilobytes: 16 })
  const isShedding = async (): Promise<boolean> => {
    const asked = await innocent.ask({ type: 'where' }, soon).catch((error: { code?: string }) => error.code)
    const { state } = system.threads().find(({ name }) => name === 'p-0')!
    return (
      asked === 'HOMING_ACTOR_ASK_REFUSED' &&
      innocent.tell({ type: 'note', n: 0 }) === 'full' &&
      state === 'shedding'
    )
  }
  let reason: string | undefined
  void probe.nextTerminated('5m').then(terminated => {
    reason = terminated.reason
  })
  let wasShedding = false
  while (reason === undefined) {
    assert.ok(performance.now() < limit, 'it is replaced')
    // Some of what it sheds for may be garbage: once that is collected, it serves on, and the leak goes on.
    if (await isShedding()) wasShedding = true
    else leak.tell({ type: 'keep', kilobytes: 16 })
    await round()
  }
  t.equal(reason, 'threadOom')
  t.ok(wasShedding, 'everybody is told that it sheds')
  let answer: unknown
  while (answer !== 'p-0') {
    assert.ok(performance.now() < limit, 'serves again')
    answer = await innocent.ask({ type: 'where' }, soon).catch(round)
  }
  t.equal((await system.stats()).threadRecycles, 1)
  t.equal(system.threads().find(({ name }) => name === 'p-0')?.state, 'running')
})

t.test('settings out of their range are refused', async t => {
  for (const heapPressure of [
    { shedAt: 0 },
    { shedAt: 0.9 },
    { recycleAt: 1.1 },
    { recycleAt: 0.5 },
    { shedFor: -1 },
  ]) {
    await t.rejects(createActorSystem({ heapPressure }), RangeError)
  }
  await t.rejects(createActorSystem({ threadHeapMb: 4 }), RangeError)
})
