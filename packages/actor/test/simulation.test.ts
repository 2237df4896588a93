/**
 * Simulated systems: that runs repeat, that faults do what they say, and many seeds of toys under faults
 * against the checkers. `HOMING_SIM_SEEDS` sets how many (default 250), `HOMING_SIM_SEED` the first.
 */

import assert from 'node:assert/strict'
import { type ActorRef, defineActor, type Reply } from '@homing/actor'
import {
  CRASH_POINTS,
  createSimulation,
  fifoPerPair,
  type HistoryEntry,
  lossesHaveCauses,
  noDuplicates,
  RealWorldError,
  runSeeds,
  SeedFailedError,
  SimulationError,
  watchesFireOnce,
} from '@homing/actor/simulation'
import fc from 'fast-check'
import t from 'tap'
import { copyMessage } from '../src/simulation/copy.ts'
import { runCrowd } from './simulation/crowd.ts'
import { Ledger } from './simulation/ledger.ts'
import { runToys } from './simulation/scenario.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 250 : 1),
)

const command = (seed: number): string =>
  `HOMING_SIM_SEED=${seed} npx tap packages/actor/test/simulation.test.ts`

type PlainMessage =
  | { readonly type: 'note'; readonly list: readonly number[] }
  | { readonly type: 'notes'; readonly reply: Reply<readonly number[]> }
  | { readonly type: 'sleep'; readonly ms: number; readonly reply: Reply<number> }
  | {
      readonly type: 'cheat'
      readonly how: 'clock' | 'dice' | 'timer' | 'date'
      readonly reply: Reply<string>
    }

const plain = defineActor(
  import.meta.url,
  'plain',
)<PlainMessage, undefined>({
  reentrant: true,
  setup(ctx) {
    const notes: number[] = []
    return {
      note({ list }) {
        notes.push(...list)
        ;(list as number[]).length = 0
      },
      notes: ({ reply }) => reply(notes),
      async sleep({ ms, reply }) {
        const beganMs = ctx.clock.nowMs()
        await new Promise<void>(resolve => ctx.clock.after(ms, resolve))
        reply(ctx.clock.nowMs() - beganMs)
      },
      cheat({ how, reply }) {
        try {
          if (how === 'clock') Date.now()
          else if (how === 'dice') Math.random()
          else if (how === 'timer') setTimeout(() => {}, 1)
          else new Date()
          reply('nothing happened')
        } catch (error) {
          reply(error instanceof RealWorldError ? error.code : String(error))
        }
      },
    }
  },
})

const RESTARTING = {
  supervision: { directive: 'restart', max: 100, within: '1m', backoff: { min: '1ms', max: '5ms' } },
} as const

async function withPlain(
  seed = 1,
): Promise<{ simulation: Awaited<ReturnType<typeof createSimulation>>; ref: ActorRef<PlainMessage> }> {
  const simulation = await createSimulation({ seed, pools: { core: { count: 2 } } })
  const ref = simulation.spawn(plain, { name: 'plain', args: undefined, thread: 'core-0', ...RESTARTING })
  return { simulation, ref }
}

t.test(
  'seeds of toys that tell, ask, watch, spawn, fail and lose their threads keep every promise',
  async t => {
    let messages = 0
    const report = await runSeeds({ first: FIRST, count: COUNT, command }, async seed => {
      const outcome = await runToys(seed)
      messages += outcome.messages
      return outcome
    })
    t.equal(report.seeds, COUNT)
    t.comment(`${messages} messages, ${report.steps} steps`)
    if (COUNT > 1) t.equal(new Set(report.traces.values()).size, COUNT, 'every seed is another history')
  },
)

t.test(
  'a message between threads is copied: what its receiver does to it is not seen by its sender',
  async t => {
    const { simulation, ref } = await withPlain()
    const list = [1, 2]
    ref.tell({ type: 'note', list })
    t.strictSame(await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' })), [1, 2])
    t.strictSame(list, [1, 2])
    await simulation.settle(simulation.shutdown())
  },
)

t.test('time is simulated: an hour takes no time, and is told exactly', async t => {
  const { simulation, ref } = await withPlain()
  const slept = simulation.settle(ref.ask({ type: 'sleep', ms: 3_600_000 }, { timeout: '61m' }))
  const ms = await slept
  t.ok(ms >= 3_600_000 && ms < 3_600_001, `${ms} ms`)
  await simulation.settle(simulation.shutdown())
})

t.test('real time, timers and chance throw in a run, and are reported', async t => {
  const { simulation, ref } = await withPlain()
  for (const how of ['clock', 'dice', 'timer', 'date'] as const) {
    const answer = await simulation.settle(ref.ask({ type: 'cheat', how }, { timeout: '1s' }))
    t.equal(answer, 'HOMING_ACTOR_REAL_WORLD', how)
  }
  t.equal(simulation.violations.length, 4)
  t.ok(Date.now() > 0 && Math.random() < 1 && new Date(0) instanceof Date, 'and are back afterwards')
  await simulation.settle(simulation.shutdown())
})

t.test('a thread dies at each of the named points, and what is asked afterwards is answered', async t => {
  for (const point of CRASH_POINTS) {
    const { simulation, ref } = await withPlain()
    await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
    simulation.crash('core-0', point)
    // Work brings it there.
    for (let round = 0; round < 5; round++) {
      for (let number = 0; number < 10; number++) ref.tell({ type: 'note', list: [number] })
      await simulation.run(undefined, { within: 2 })
    }
    await simulation.run(undefined, { within: 200 })
    const { threadRestarts } = await simulation.settle(simulation.stats())
    t.equal(threadRestarts, point === 'atStart' ? 2 : 1, point)
    await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
    await simulation.settle(simulation.shutdown())
  }
})

t.test('a thread that hangs runs nothing, and goes on afterwards; for too long, it is replaced', async t => {
  const { simulation, ref } = await withPlain()
  await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
  simulation.hang('core-0', 300)
  const asked = ref.ask({ type: 'notes' }, { timeout: '1s' })
  const beganMs = simulation.clock.nowMs()
  await simulation.settle(asked)
  t.ok(simulation.clock.nowMs() - beganMs >= 300)
  t.equal((await simulation.settle(simulation.stats())).threadRestarts, 0)
  simulation.hang('core-0', '1m')
  await t.rejects(simulation.settle(ref.ask({ type: 'notes' }, { timeout: '10s' })), {
    code: 'HOMING_ACTOR_THREAD_DOWN',
  })
  await simulation.run(undefined, { within: 100 })
  t.equal((await simulation.settle(simulation.stats())).threadRestarts, 1)
  await simulation.settle(simulation.shutdown())
})

t.test('an actor fails by name, and is restarted as its supervision says', async t => {
  const { simulation, ref } = await withPlain()
  ref.tell({ type: 'note', list: [1] })
  await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
  t.equal(simulation.fail('plain'), true)
  t.equal(simulation.fail('nobody'), false)
  await simulation.run(undefined, { within: 50 })
  t.strictSame(await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' })), [], 'another instance')
  t.equal((await simulation.settle(simulation.stats())).restarts, 1)
  await simulation.settle(simulation.shutdown())
})

t.test('what is copied by hand is what structured clone copies', t => {
  fc.assert(
    fc.property(
      fc.anything({ withDate: true, withTypedArray: true, withMap: true, withSet: true }),
      value => {
        assert.deepStrictEqual(copyMessage(value), structuredClone(value))
      },
    ),
    { seed: 1 },
  )
  t.strictSame(copyMessage(Buffer.from([1, 2])), new Uint8Array([1, 2]))
  const shared = new Int32Array(new SharedArrayBuffer(8))
  ;(copyMessage({ shared }) as { shared: Int32Array }).shared[0] = 7
  t.equal(shared[0], 7, 'shared memory stays shared')
  t.throws(() => copyMessage({ f: () => {} }))
  t.end()
})

t.test('a full link answers full, and what it took arrives', async t => {
  const simulation = await createSimulation({
    seed: 1,
    pools: { core: { count: 1 } },
    faults: { linkFrames: 4, spillFrames: 8 },
  })
  const ref = simulation.spawn(plain, { name: 'plain', args: undefined, thread: 'core-0' })
  await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
  const told = Array.from({ length: 30 }, (_, number) => ref.tell({ type: 'note', list: [number] }))
  t.equal(told.filter(status => status === 'ok').length, 12)
  await simulation.run(undefined, { within: 10 })
  const notes = await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
  t.strictSame(
    notes,
    Array.from({ length: 12 }, (_, number) => number),
  )
  await simulation.settle(simulation.shutdown())
})

t.test('when no spare is ready, a replacement takes long', async t => {
  const { simulation, ref } = await withPlain()
  await simulation.settle(ref.ask({ type: 'notes' }, { timeout: '1s' }))
  simulation.setFaults({ spareNotReady: 1, slowStartMsMax: 5000 })
  const beganMs = simulation.clock.nowMs()
  await simulation.settle(simulation.killThread('core-0'))
  t.ok(simulation.clock.nowMs() - beganMs > 10, `${simulation.clock.nowMs() - beganMs} ms`)
  await simulation.settle(simulation.shutdown())
})

t.test('what never happens is said, with the reason', async t => {
  const { simulation, ref } = await withPlain()
  await t.rejects(simulation.settle(new Promise(() => {}), { within: '1s' }), SimulationError)
  const asked = ref.ask({ type: 'notes' }, { timeout: '1s' })
  await t.rejects(simulation.settle(asked, { steps: 1 }), { message: /the steps were used up/ })
  t.throws(() => simulation.crash('main', 'midTurn'), SimulationError)
  t.throws(() => simulation.hang('core-9', 1), SimulationError)
  await simulation.settle(simulation.shutdown())
})

t.test('a seed that fails, or does not repeat, names the command that runs it again', async t => {
  const outcome = (traceHash: string, violations: readonly string[] = []) => ({
    traceHash,
    steps: 1,
    violations,
  })
  const options = { first: 7, count: 1, command }
  await t.rejects(
    runSeeds(options, async () => outcome('0', ['it broke'])),
    { message: /seed 7: it broke\n {2}again: HOMING_SIM_SEED=7 npx tap/ },
  )
  let run = 0
  await t.rejects(
    runSeeds(options, async () => outcome(String(run++))),
    { message: /two runs differ/ },
  )
  await t.rejects(
    runSeeds(options, async () => {
      throw new Error('no')
    }),
    SeedFailedError,
  )
})

t.test('the checkers find what they are for', t => {
  const at = (atMs: number, event: object): HistoryEntry => ({ atMs, ...event }) as HistoryEntry
  const tell = { from: 'a', to: 'b' }
  const started = [
    at(0, { type: 'started', actor: 'a', uid: 1 }),
    at(0, { type: 'started', actor: 'b', uid: 2 }),
  ]
  const sent = (number: number) => at(1, { type: 'sent', ...tell, number, uid: 1 })
  const handled = (number: number) => at(2, { type: 'handled', ...tell, number })
  t.equal(fifoPerPair([...started, sent(1), sent(2), handled(2), handled(1)]).length, 1)
  t.equal(noDuplicates([...started, sent(1), handled(1), handled(1)]).length, 1)
  t.equal(
    noDuplicates([...started, at(1, { type: 'duplicated', ...tell, number: 1 }), handled(1), handled(1)])
      .length,
    0,
  )
  t.equal(lossesHaveCauses([...started, sent(1)]).length, 1)
  t.equal(
    lossesHaveCauses([...started, sent(1), at(2, { type: 'lost', ...tell, number: 1, cause: 'dropped' })])
      .length,
    0,
  )
  const watched = at(1, { type: 'watched', watch: 1, watcher: 'a', watched: 'b' })
  const stopped = at(2, { type: 'stopped', actor: 'b' })
  const terminated = at(3, { type: 'terminated', watch: 1, reason: 'stopped' })
  t.equal(watchesFireOnce([...started, watched, stopped]).length, 1)
  t.equal(watchesFireOnce([...started, watched, stopped, terminated]).length, 0)
  t.equal(watchesFireOnce([...started, watched, stopped, terminated, terminated]).length, 1)
  t.end()
})

t.test(
  'crowds lose nothing beyond the window, nothing comes twice or out of order, every ask settles',
  async t => {
    const count = Math.ceil(COUNT / 2)
    const report = await runSeeds({ first: FIRST, count, command }, seed => runCrowd(seed, 5000))
    t.comment(`${report.seeds} seeds from ${FIRST}, ${report.steps} steps`)
  },
)

t.test('a ledger objects to what must not happen', async t => {
  /** Two actors on two threads; the first sends. */
  const start = (): Ledger => {
    const ledger = new Ledger([0, 1])
    ledger.begins(1, 0)
    ledger.begins(2, 1)
    ledger.runs(1)
    return ledger
  }
  const send = (ledger: Ledger, count: number): void => {
    for (let number = 0; number < count; number++) {
      ledger.sent(0, 1)
      ledger.taken(0, 1, 1)
    }
  }
  const whole = start()
  send(whole, 2)
  t.notOk(whole.isAtRest)
  whole.handled(0, 1, 0)
  whole.handled(0, 1, 1)
  t.ok(whole.isAtRest)
  t.strictSame(whole.violations, [])
  whole.handled(0, 1, 1)
  t.equal(whole.twice, 1)
  whole.handled(0, 1, 0)
  t.equal(whole.disorders, 1)

  const holed = start()
  send(holed, 4)
  holed.lostOnTheWay(0, 1, 'other')
  holed.handled(0, 1, 1)
  t.strictSame(holed.violations, [], 'one was lost for a reason')
  holed.handled(0, 1, 3)
  t.equal(holed.beyondWindow, 1)

  for (const taken of [64, 65]) {
    const dead = start()
    send(dead, taken)
    dead.ends(2)
    t.ok(dead.isAtRest)
    t.equal(dead.beyondWindow, taken - 64)
    t.equal(dead.violations.length, taken - 64)
  }
  const failed = start()
  failed.fails(1)
  send(failed, 100)
  failed.ends(2)
  t.strictSame([failed.lost.mailbox, failed.beyondWindow], [100, 0], 'a backoff keeps more')

  const asking = start()
  asking.asked(1)
  t.equal(asking.openAsks, 1)
  asking.asked(2)
  asking.ends(2)
  asking.settled(1)
  t.ok(asking.isAtRest, 'the asks of the dead are forgotten')
})
