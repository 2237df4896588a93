/** Promises that links of different speed, and threads that die at the wrong moment, may not break. */

import { type ActorRef, defineActor, type Signal, signal } from '@homing/actor'
import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { OP } from '../src/links/frames.ts'
import type { Runtime } from '../src/runtime/runtime.ts'
import { type EchoMessage, echo } from './fixtures/echo.ts'
import { makeRuntime, settled, Wire } from './linked-runtimes.ts'

const soon = { timeout: '1m' } as const

function spawnOn(runtime: Runtime, thread: string, name: string): ActorRef<EchoMessage> {
  return runtime.spawn(runtime.root!, echo, { name, args: {}, thread })
}

function refAt(runtime: Runtime, ref: ActorRef<EchoMessage>, thread: string): ActorRef<EchoMessage> {
  const id = Number(ref.key.slice(thread.length + 1))
  return runtime.refTo({ thread, id, name: ref.name }) as unknown as ActorRef<EchoMessage>
}

/** Main and two threads, all linked, nothing under way. */
function three() {
  const clock = new SimulatedClock()
  const main = makeRuntime('main', 1, clock)
  const a = makeRuntime('a', 2, clock)
  const b = makeRuntime('b', 3, clock)
  const wires = { mainA: new Wire(main, a), mainB: new Wire(main, b), ab: new Wire(a, b) }
  const settleAll = async (): Promise<void> => {
    for (let round = 0; round < 4; round++) {
      for (const wire of Object.values(wires)) wire.settle()
      await settled(main, a, b)
    }
  }
  for (const wire of Object.values(wires)) wire.settle()
  return { clock, main, a, b, ...wires, settleAll }
}

t.test('a ref that overtook the spawn of its actor reaches it, in order', async t => {
  const { main, a, b, mainB, ab, settleAll } = three()
  const y = spawnOn(main, 'b', 'y')
  await settleAll()
  const x = spawnOn(main, 'b', 'x')
  const yFromA = refAt(a, y, 'b')
  const xFromA = refAt(a, x, 'b')
  for (const n of [1, 2]) yFromA.tell({ type: 'tellTo', ref: xFromA as never, n })
  ab.deliver(a)
  await settled(b)
  const asked = refAt(b, x, 'b').ask({ type: 'notes' }, soon)
  await settled(b)
  mainB.deliver(main)
  await settled(b)
  t.strictSame([...(await asked)], [1, 2])
  yFromA.tell({ type: 'tellTo', ref: xFromA as never, n: 3 })
  await settleAll()
  const notes = x.ask({ type: 'notes' }, soon)
  await settleAll()
  t.strictSame(await notes, [1, 2, 3])
})

t.test('a ref of this thread to an actor that does not come fails like any dead one, in time', async t => {
  const { clock, main, a, b, ab, settleAll } = three()
  await settleAll()
  const x = spawnOn(main, 'b', 'x')
  const xAtB = refAt(b, x, 'b')
  const rejected = t.rejects(xAtB.ask({ type: 'where' }, soon), { code: 'HOMING_ACTOR_TERMINATED' })
  t.equal(xAtB.tell({ type: 'stop' }), 'ok', 'it may still come')
  const fromA = t.rejects(refAt(a, x, 'b').ask({ type: 'where' }, soon), { code: 'HOMING_ACTOR_TERMINATED' })
  ab.deliver(a)
  clock.advance(5000)
  ab.settle()
  await Promise.all([rejected, fromA])
  t.equal(xAtB.tell({ type: 'stop' }), 'ok', 'nor is it given up for good')
})

t.test('a stop that overtook the spawn of its actor stops it when it comes', async t => {
  for (const drainMs of [undefined, 'shutdown'] as const) {
    const { main, a, b, mainB, ab, settleAll } = three()
    await settleAll()
    const x = spawnOn(main, 'b', 'x')
    const xFromA = refAt(a, x, 'b')
    xFromA.tell({ type: 'note', n: 1 })
    a.kinship.stopDistant(xFromA as never, drainMs)
    ab.deliver(a)
    await settled(b)
    mainB.deliver(main)
    t.equal(b.describe().length, 1)
    await settleAll()
    t.strictSame(b.describe(), [])
    t.strictSame([...main.root!.children!.values()], [])
    t.equal(b.stats().handled, drainMs === undefined ? 0 : 1)
  }
})

t.test('a message that waits for its receiver outlives the thread of its sender', async t => {
  const { main, a, b, mainB, ab, settleAll } = three()
  await settleAll()
  const x = spawnOn(main, 'b', 'x')
  refAt(a, x, 'b').tell({ type: 'note', n: 7 })
  ab.deliver(a)
  ab.cut(b)
  mainB.deliver(main)
  await settleAll()
  const notes = x.ask({ type: 'notes' }, soon)
  await settleAll()
  t.strictSame(await notes, [7])
})

t.test('a watch of a thread that is being replaced is kept for its next life', async t => {
  const { main, mainB, settleAll } = three()
  const x = spawnOn(main, 'b', 'x')
  const seen: string[] = []
  const watcher = main.spawn(
    main.root!,
    defineActor(
      import.meta.url,
      'inline',
    )<{ readonly type: 'again' }>({
      setup(ctx) {
        ctx.watch(x)
        return {
          again: () => ctx.watch(x),
          [signal](s: Signal) {
            if (s.type !== 'terminated') return
            seen.push(s.reason)
            ctx.watch(x)
          },
        }
      },
    }),
    { name: 'watcher', args: undefined },
  )
  await settleAll()
  mainB.cut(main)
  await settled(main)
  t.strictSame(seen, ['threadExit'], 'once, though it watches again at once')
  watcher.tell({ type: 'again' })
  const next = makeRuntime('b', 4)
  next.acceptSpawn({
    id: Number(x.key.slice(2)),
    name: 'x',
    moduleUrl: echo.moduleUrl,
    exportName: 'echo',
    args: {},
    argsPatches: 0,
    settings: main.root!.settings,
    parent: { thread: 'main', uid: 1, id: 0 },
    restartAgesMs: [0],
  })
  const wire = new Wire(main, next)
  t.strictSame(
    wire.waiting(main).map(frame => frame.op),
    [OP.HELLO, OP.WATCH],
  )
  wire.settle()
  await settled(main, next)
  t.strictSame(seen, ['threadExit'])
  refAt(next, x, 'b').tell({ type: 'stop' })
  await settled(main, next)
  wire.settle()
  await settled(main, next)
  t.strictSame(seen.slice(0, 2), ['threadExit', 'stopped'])
})

t.test('a watch that waits for the next life of a thread ends when there is none', async t => {
  const { main, mainB, settleAll } = three()
  const x = spawnOn(main, 'b', 'x')
  await settleAll()
  mainB.cut(main)
  const seen: string[] = []
  main.watches.add({ onTerminated: (_key, _name, reason) => void seen.push(reason) }, x as never)
  const second = { onTerminated: (): void => void seen.push('taken back') }
  main.watches.add(second, x as never)
  main.watches.remove(second, x as never)
  t.strictSame(seen, [])
  main.lives.gone('b')
  t.strictSame(seen, ['unreachable'])
})

t.test('the reply of an ask that has settled leaves no trace when it is passed on', async t => {
  const { clock, main, settleAll } = three()
  type Keep = { readonly type: 'keep'; readonly reply: (n: number) => void } | { readonly type: 'pass' }
  const remote = spawnOn(main, 'b', 'remote')
  const keeper = main.spawn(
    main.root!,
    defineActor(
      import.meta.url,
      'inline',
    )<Keep>({
      setup() {
        let kept: ((n: number) => void) | undefined
        return {
          keep(m) {
            kept = m.reply
          },
          pass: () => void remote.tell({ type: 'passed', answer: { to: kept } } as never),
        }
      },
    }),
    { name: 'keeper', args: undefined },
  )
  const asked = t.rejects(keeper.ask({ type: 'keep' }, { timeout: 10 }), { code: 'HOMING_ACTOR_ASK_TIMEOUT' })
  await settleAll()
  clock.advance(10)
  await asked
  keeper.tell({ type: 'pass' })
  await settleAll()
  t.equal(main.asks.remoteCount, 0)
})

t.test('a child whose parent has died with its thread is not made', async t => {
  const { main, a, b, ab, settleAll } = three()
  await settleAll()
  ab.cut(b)
  const spec = {
    id: 2 * 2 ** 32 + 1,
    name: 'orphan',
    moduleUrl: echo.moduleUrl,
    exportName: 'echo',
    args: {},
    argsPatches: 0 as const,
    settings: main.root!.settings,
    parent: { thread: 'a', uid: a.uid, id: 2 * 2 ** 32 },
    restartAgesMs: [],
  }
  b.acceptSpawn(spec)
  await settleAll()
  t.equal(b.cells.size, 0)
})
