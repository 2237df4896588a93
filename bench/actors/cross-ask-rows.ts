/** The rows of asks from main to another thread: many on their way, one after the other, a fixed rate. */

import { type Measures, percentile } from '../harness.ts'
import { adder } from './actors.ts'
import { type CpuCosts, costsOf, cpuTimes } from './cpu.ts'
import { type Add, askInFlight, askOpenLoop, askSequentially } from './loads.ts'
import { RawRings, withPortAdd } from './raw-cross.ts'
import { costMeasures, placed, type Row, requireNoDeadLetters, withThread } from './row.ts'
import { crossAsks, crossAsksSequential, inFlight, openLoopMs, openLoopPerS } from './sizes.ts'
import { inTurns } from './turns.ts'

export const crossAskRows: readonly Row[] = [
  {
    name: 'crossAsk',
    threads: 2,
    targets: { crossAsk: { floor: 0.5e6, goal: 1e6 } },
    async run() {
      const rings = await RawRings.open()
      const { ours, port, ring } = await withBoth((our, raw) =>
        inTurns(crossAsks, {
          ring: count => rings.ask(inFlight, count),
          port: count => measureInFlight(raw, count),
          ours: count => measureInFlight(our, count),
        }),
      )
      await rings.close()
      return inFlightMeasures(ours, { ring: ring.perS, port: port.perS }, { port })
    },
  },
  {
    name: 'crossAskSequential',
    threads: 2,
    targets: { crossAskSequentialP50: { floor: 1.3, goal: 1.1, timesRaw: 'port' } },
    async run() {
      const { ours, port } = await withBoth((our, raw) =>
        inTurns(crossAsksSequential, {
          port: count => measureSequential(raw, count),
          ours: count => measureSequential(our, count),
        }),
      )
      return sequentialMeasures(ours, port)
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
      const measure = async ({ add }: Asked, ms: number) => {
        const { timesUs, cores } = await askOpenLoop(add, openLoopPerS, ms)
        return { p50Us: percentile(timesUs, 50), p99Us: percentile(timesUs, 99), cores }
      }
      const { ours, port } = await withBoth((our, raw) =>
        inTurns(openLoopMs, { port: ms => measure(raw, ms), ours: ms => measure(our, ms) }),
      )
      return {
        openLoopP50: { value: ours.p50Us, unit: 'µs', raw: { port: port.p50Us } },
        openLoopP99: { value: ours.p99Us, unit: 'µs', raw: { port: port.p99Us } },
        openLoopCpu: { value: ours.cores, unit: 'cores', raw: { port: port.cores } },
      }
    },
  },
]

/** One that answers from another thread. */
export interface Asked {
  readonly add: Add
  /** CPU time that its thread had so far, in microseconds; absent: not known. */
  readonly usageUs?: () => Promise<number>
}

export type InFlight = CpuCosts & { readonly perS: number }
export type Sequential = CpuCosts & { readonly p50Us: number; readonly p99Us: number }

export async function measureInFlight({ add, usageUs }: Asked, count: number): Promise<InFlight> {
  const before = await cpuTimes(usageUs)
  const perS = await askInFlight(add, inFlight, count)
  return { perS, ...costsOf(count, before, await cpuTimes(usageUs)) }
}

export async function measureSequential({ add, usageUs }: Asked, count: number): Promise<Sequential> {
  const before = await cpuTimes(usageUs)
  const timesUs = await askSequentially(add, count)
  const costs = costsOf(count, before, await cpuTimes(usageUs))
  return { p50Us: percentile(timesUs, 50), p99Us: percentile(timesUs, 99), ...costs }
}

export function inFlightMeasures(
  asks: InFlight,
  raw: Readonly<Record<string, number>> = {},
  rawCosts: Readonly<Record<string, CpuCosts>> = {},
): Measures {
  return {
    crossAsk: { value: asks.perS, unit: 'ask/s', raw },
    ...costMeasures('crossAsk', asks, rawCosts),
  }
}

export function sequentialMeasures(asks: Sequential, port?: Sequential): Measures {
  const raw = (of: (asks: Sequential) => number) => (port === undefined ? {} : { raw: { port: of(port) } })
  return {
    crossAskSequentialP50: { value: asks.p50Us, unit: 'µs', ...raw(({ p50Us }) => p50Us) },
    crossAskSequentialP99: { value: asks.p99Us, unit: 'µs', ...raw(({ p99Us }) => p99Us) },
    ...costMeasures('crossAskSequential', asks, port === undefined ? {} : { port }),
  }
}

/** Runs `use` with an actor on the other thread, and with a bare port to a worker. */
async function withBoth<T>(use: (ours: Asked, raw: Asked) => Promise<T>): Promise<T> {
  return withThread(async system => {
    const ref = system.spawn(adder, { ...placed('adder'), args: undefined })
    const ours: Asked = {
      add: a => ref.ask({ type: 'add', a }, { timeout: '10s' }),
      usageUs: () => ref.ask({ type: 'usage' }, { timeout: '10s' }),
    }
    const result = await withPortAdd(raw => use(ours, raw))
    await requireNoDeadLetters(system)
    return result
  })
}
