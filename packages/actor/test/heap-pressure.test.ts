/** Threads whose heap fills: the messages that they refuse, and their replacement before it is full. */

import assert from 'node:assert/strict'
import { type ActorSystemOptions, createActorSystem, type Supervision } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { SimulatedClock, seededRandom } from '@homing/clock'
import { silentLog } from '@homing/log'
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

t.test(
  'under pressure a thread refuses what others tell and ask, except control, until it is well below',
  async t => {
    const clock = new SimulatedClock()
    let percent = 50
    let garbage = 0
    const one = new Runtime({
      thread: 'p-0',
      uid: 2,
      pools: [],
      clock,
      random: seededRandom(2),
      log: silentLog,
      provide: [],
      isAlone: false,
      heap: () => ({ usedBytes: percent + garbage, limitBytes: 100 }),
    })
    one.registrar = { register() {}, unregister() {}, resolve() {} }
    const main = makeRuntime('main', 1, clock)
    const wire = new Wire(main, one)
    wire.settle()
    let collections = 0
    new HeapGuard(one, { shedAt: 0.7, recycleAt: 0.85 }, () => {
      collections++
      garbage = 0
    })
    const ref = main.spawn(main.root!, hoarder, { name: 'hoarder', args: undefined, thread: 'p-0' })
    const told = async (type: 'keep' | 'drop'): Promise<number> => {
      ref.tell(type === 'keep' ? { type, kilobytes: 0 } : { type })
      wire.settle()
      await settled(main, one)
      return one.counts.deadLettersByReason.shed
    }
    const asked = async (): Promise<unknown> => {
      const answer = ref.ask({ type: 'kept' }, soon).catch((error: { code?: string }) => error.code)
      wire.settle()
      await settled(main, one)
      wire.settle()
      return answer
    }
    const look = (): void => one.heap.onPressure!(one.heap.share())
    wire.settle()
    await settled(main, one)

    t.equal(await told('keep'), 0)
    t.equal(await asked(), 1)
    garbage = 30
    look()
    t.equal(await told('keep'), 0, 'garbage is no pressure')
    t.equal(collections, 1)
    clock.advance(1000)
    percent = 75
    look()
    t.equal(await told('keep'), 1)
    t.equal(await asked(), 'HOMING_ACTOR_ASK_REFUSED')
    t.equal(one.counts.deadLettersByReason.shed, 2, 'an ask that was shed is counted too')
    t.equal(await told('drop'), 2, 'a control message passes')
    one.cells
      .values()
      .next()
      .value!.ref.tell({ type: 'keep', kilobytes: 0 } as HoarderMessage)
    await settled(one)
    percent = 65
    clock.advance(20)
    t.equal(await told('keep'), 3, 'not far enough below')
    percent = 59
    clock.advance(20)
    t.equal(await told('keep'), 3, 'over: it looked by itself')
    t.equal(await asked(), 2, 'an actor of its own thread was heard all the time')
    percent = 90
    clock.advance(1000)
    look()
    const words = wire.waiting(one).filter(({ op }) => op === OP.RECYCLE)
    t.strictSame(
      words.map(({ body }) => body),
      [false],
    )
    await settled(one)
    clock.advance(5)
    t.strictSame(
      wire
        .waiting(one)
        .filter(({ op }) => op === OP.RECYCLE)
        .map(({ body }) => body),
      [false, true],
    )
    t.ok(collections <= 4, `${collections} collections`)
    t.strictSame(
      readFlight(one.memory, 100)
        .filter(({ kind }) => kind === 'shed' || kind === 'recycle')
        .map(({ kind, detail }) => [kind, detail]),
      [
        ['shed', 75],
        ['shed', 0],
        ['recycle', 90],
      ],
      'what it did is in the flight recorder',
    )
  },
)

t.test('a thread whose heap fills sheds, is recycled, and harms nobody else', async t => {
  const system = await start(t)
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

  const shed = (): number => system.counters().total.deadLettersByReason.shed
  const limit = performance.now() + 20_000
  while (shed() < 100) {
    assert.ok(performance.now() < limit, 'sheds')
    for (let i = 0; i < 10; i++) victim.tell({ type: 'keep', kilobytes: 16 })
    await beat()
  }
  t.equal((await system.stats()).threadRecycles, 0, 'what comes from outside cannot fill it')
  await t.rejects(victim.ask({ type: 'kept' }, soon), { code: 'HOMING_ACTOR_ASK_REFUSED' })

  victim.tell({ type: 'grow', kilobytes: 64 })
  let n = 0
  const ended = probe.nextTerminated('20s')
  let reason: string | undefined
  void ended.then(terminated => {
    reason = terminated.reason
  })
  while (reason === undefined) {
    assert.ok(performance.now() < limit, 'is recycled')
    other.tell({ type: 'note', n: n++ })
    await beat()
  }
  t.equal(reason, 'threadOom')
  let kept: unknown
  while (typeof kept !== 'number') {
    assert.ok(performance.now() < limit, 'is back')
    kept = await victim.ask({ type: 'kept' }, soon).catch(round)
  }
  t.equal(kept, 0, 'a new life; its actors had no restart to spend')
  const notes = await other.ask({ type: 'notes' }, soon)
  t.ok(notes.length > 0, `${notes.length} waited in the ring`)
  t.strictSame(
    notes,
    Array.from({ length: notes.length }, (_, i) => n - notes.length + i),
    'for the next life',
  )
  const { threadRecycles, threadRestarts } = await system.stats()
  t.strictSame({ threadRecycles, threadRestarts }, { threadRecycles: 1, threadRestarts: 1 })
  t.ok(bytesMax < PROCESS_BYTES_MAX, `the process took ${Math.round(bytesMax / 1e6)} MB`)
})

t.test('settings out of their range are refused', async t => {
  for (const heapPressure of [{ shedAt: 0 }, { shedAt: 0.9 }, { recycleAt: 1.1 }, { recycleAt: 0.5 }]) {
    await t.rejects(createActorSystem({ heapPressure }), RangeError)
  }
  await t.rejects(createActorSystem({ threadHeapMb: 4 }), RangeError)
})
