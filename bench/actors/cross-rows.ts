/** The rows between two threads: tells of typed messages and of objects, asks, a fixed rate, rest. */

import { type ActorRef, type ActorSystem, AskRefusedError } from '@homing/actor'
import { percentile } from '../harness.ts'
import {
  type AskTally,
  adder,
  collector,
  type ObjectMessage,
  type Tally,
  type WorkMessage,
  worker,
} from './actors.ts'
import {
  type Add,
  askInFlight,
  askOpenLoop,
  askSequentially,
  cpuMs,
  nextTurn,
  pause,
  perSecond,
  requireEqual,
} from './loads.ts'
import { portTells, ringAsks, ringTells, startRawWorker, withPortAdd } from './raw.ts'
import { type Row, restarting, THREAD, withSystem } from './row.ts'
import {
  crossAsks,
  crossAsksSequential,
  crossObjects,
  crossTargets,
  crossTells,
  idleMs,
  inFlight,
  openLoopMs,
  openLoopPerS,
} from './sizes.ts'

/** Messages that wait in one mailbox at most; a link that holds as many never overflows it. */
const CAPACITY = 65_536
const BATCH = 256
const TALLY_MS_MAX = 30_000
const TEXT = 'sixteen letters.'

export const crossRows: readonly Row[] = [
  {
    name: 'crossTell',
    threads: 2,
    targets: { crossTell: { floor: 5e6, goal: 10e6 } },
    async run() {
      const ring = await ringTells(crossTells)
      const port = await portTells(crossTells / 10, 1, work)
      const value = await withSystem(2, async system => {
        const refs = Array.from({ length: crossTargets }, (_, i) =>
          system.spawn(worker, { ...placed(`worker-${i}`), args: undefined }),
        )
        await drained(refs, 0)
        const rounds = Math.ceil(crossTells / crossTargets)
        const warm = Math.ceil(rounds / 5)
        await tellAll(refs, 0, warm)
        await drained(refs, warm)
        const from = performance.now()
        await tellAll(refs, warm, warm + rounds)
        await drained(refs, warm + rounds)
        const rate = perSecond(rounds * crossTargets, from)
        await requireNoDeadLetters(system)
        return rate
      })
      return { crossTell: { value, unit: 'msg/s', raw: { ring, port } } }
    },
  },
  {
    name: 'crossObject',
    threads: 2,
    targets: {
      crossObject: { floor: 0.7e6, goal: 1e6 },
      crossObjectBatched: { floor: 0.7e6, goal: 2.5e6 },
    },
    async run() {
      const port = await portTells(crossObjects, 1, object)
      const portBatched = await portTells(crossObjects, BATCH, object)
      const [unbatched, batched] = await withSystem(2, async system => {
        const ref = system.spawn(collector, { ...placed('collector'), args: undefined })
        await drained([ref], 0)
        const warm = crossObjects / 5
        await tellObjects(ref, 0, warm, BATCH)
        const one = await tellObjects(ref, warm, warm + crossObjects, 1)
        const many = await tellObjects(ref, warm + crossObjects, warm + 2 * crossObjects, BATCH)
        await requireNoDeadLetters(system)
        return [one, many] as const
      })
      return {
        crossObject: { value: unbatched, unit: 'msg/s', raw: { port } },
        crossObjectBatched: { value: batched, unit: 'msg/s', raw: { port: portBatched } },
      }
    },
  },
  {
    name: 'crossAsk',
    threads: 2,
    targets: {
      crossAsk: { floor: 1e6, goal: 2e6 },
      crossAskSequentialP50: { floor: 1.3, goal: 1.1, timesRaw: 'port' },
    },
    async run() {
      const ring = await ringAsks(inFlight, crossAsks)
      const port = await withPortAdd(measureCrossAsks)
      const ours = await withAdder(measureCrossAsks)
      return {
        crossAsk: { value: ours.perS, unit: 'ask/s', raw: { ring, port: port.perS } },
        crossAskSequentialP50: { value: ours.p50Us, unit: 'µs', raw: { port: port.p50Us } },
        crossAskSequentialP99: { value: ours.p99Us, unit: 'µs', raw: { port: port.p99Us } },
      }
    },
  },
  {
    name: 'openLoop',
    threads: 2,
    targets: {
      openLoopP50: { floor: 120, goal: 70 },
      openLoopP99: { floor: 1000, goal: 500 },
      openLoopCpu: { floor: 0.25, goal: 0.15 },
    },
    async run() {
      const measure = async (add: Add) => {
        await askOpenLoop(add, openLoopPerS, openLoopMs / 3)
        const { timesUs, cores } = await askOpenLoop(add, openLoopPerS, openLoopMs)
        return { p50Us: percentile(timesUs, 50), p99Us: percentile(timesUs, 99), cores }
      }
      const port = await withPortAdd(measure)
      const ours = await withAdder(measure)
      return {
        openLoopP50: { value: ours.p50Us, unit: 'µs', raw: { port: port.p50Us } },
        openLoopP99: { value: ours.p99Us, unit: 'µs', raw: { port: port.p99Us } },
        openLoopCpu: { value: ours.cores, unit: 'cores', raw: { port: port.cores } },
      }
    },
  },
  {
    name: 'idleCpu',
    threads: 2,
    targets: { idleCpu: { floor: 0.5, goal: 0.1 } },
    async run() {
      const idlePercent = async (): Promise<number> => {
        await pause(idleMs / 4)
        const before = process.cpuUsage()
        const fromMs = performance.now()
        await pause(idleMs)
        return (cpuMs(before) / (performance.now() - fromMs)) * 100
      }
      const bare = await startRawWorker({ task: 'start' })
      const raw = await idlePercent()
      await bare.terminate()
      const value = await withSystem(2, async system => {
        const ref = system.spawn(adder, { ...placed('adder'), args: undefined })
        await ref.ask({ type: 'add', a: 1 }, { timeout: '10s' })
        return idlePercent()
      })
      return { idleCpu: { value, unit: '% of a core', raw: { 'idle worker': raw } } }
    },
  },
]

export interface CrossAsks {
  readonly perS: number
  readonly p50Us: number
  readonly p99Us: number
}

/** 256 in flight, then one after the other; after a warm-up of each. */
export async function measureCrossAsks(add: Add): Promise<CrossAsks> {
  await askInFlight(add, inFlight, crossAsks / 5)
  const perS = await askInFlight(add, inFlight, crossAsks)
  await askSequentially(add, crossAsksSequential / 5)
  const timesUs = await askSequentially(add, crossAsksSequential)
  return { perS, p50Us: percentile(timesUs, 50), p99Us: percentile(timesUs, 99) }
}

/** Runs `use` with an ask of an actor on the other thread. */
export function withAdder<T>(use: (add: Add) => Promise<T>): Promise<T> {
  return withSystem(2, async system => {
    const ref = system.spawn(adder, { ...placed('adder'), args: undefined })
    const result = await use(a => ref.ask({ type: 'add', a }, { timeout: '10s' }))
    await requireNoDeadLetters(system)
    return result
  })
}

function placed(name: string) {
  return { name, thread: THREAD, supervision: restarting, mailbox: { capacity: CAPACITY } } as const
}

function work(n: number) {
  return { type: 'work', n, a: n + 1, b: -n, text: TEXT } as const
}

function object(n: number) {
  return { type: 'object', n, body: { a: n, b: TEXT } } as const
}

/** Tells each of `refs` the numbers after `from`, up to `to`; a turn of the event loop for each round. */
async function tellAll(refs: readonly ActorRef<WorkMessage>[], from: number, to: number): Promise<void> {
  for (let n = from + 1; n <= to; n++) {
    for (const ref of refs) while (!isTaken(ref.tell(work(n)))) await nextTurn()
    await nextTurn()
  }
}

/** Objects per second; `perTurn` of them before a microtask lets the link send, drained at the end. */
async function tellObjects(
  ref: ActorRef<ObjectMessage>,
  from: number,
  to: number,
  perTurn: number,
): Promise<number> {
  const fromMs = performance.now()
  for (let n = from + 1; n <= to; n++) {
    while (!isTaken(ref.tell(object(n)))) await nextTurn()
    // The event loop has to go round as well: the other thread's word on what it took comes that way.
    if (n % 1024 === 0) await nextTurn()
    else if (n % perTurn === 0) await undefined
  }
  await drained([ref], to)
  return perSecond(to - from, fromMs)
}

function isTaken(status: 'ok' | 'full' | 'dead'): boolean {
  if (status === 'dead') throw new Error('an actor of the bench is dead')
  return status === 'ok'
}

/** Resolves when each of `refs` has handled all that it was told: the numbers up to `told`, in order. */
async function drained(refs: readonly ActorRef<AskTally>[], told: number): Promise<void> {
  const tallies: Tally[] = await Promise.all(refs.map(tallyOf))
  for (const { count, violations } of tallies)
    requireEqual('messages handled in order', count - violations, told)
}

/** Asks again while the link is full of what was told before: that is its answer to too much, as `full` is. */
async function tallyOf(ref: ActorRef<AskTally>): Promise<Tally> {
  const untilMs = performance.now() + TALLY_MS_MAX
  for (;;) {
    try {
      return await ref.ask({ type: 'tally' }, { timeout: TALLY_MS_MAX })
    } catch (error) {
      if (!(error instanceof AskRefusedError) || performance.now() > untilMs) throw error
      await nextTurn()
    }
  }
}

async function requireNoDeadLetters(system: ActorSystem): Promise<void> {
  const { deadLetters } = await system.stats()
  requireEqual('dead letters', deadLetters, 0)
}
