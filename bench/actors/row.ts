/** Row: one line of the table, or a few that are measured together. */

import { type ActorSystem, type ActorSystemOptions, createActorSystem, type Supervision } from '@homing/actor'
import { silentLog } from '@homing/base'
import { type Measure, type Measures, say, type Target } from '../harness.ts'
import type { CpuCosts } from './cpu.ts'
import { requireEqual } from './loads.ts'
import { spareReady } from './spare.ts'

export interface Row {
  readonly name: string
  /** 2: its figures need two cores; it is skipped by name where there are none. */
  readonly threads: 1 | 2
  /** Of the measures that it makes. */
  readonly targets: Readonly<Record<string, Target>>
  readonly run: () => Promise<Measures>
}

/** Outlives its thread, as often as a bench may end it. */
export const restarting: Supervision = {
  directive: 'restart',
  max: 1_000_000,
  within: '60m',
  backoff: { min: 0, max: 0 },
}

/** The thread of `twoThreads`. */
export const THREAD = 'core-0'

/** Main, and one thread that may be ended any number of times. */
export const twoThreads: ActorSystemOptions = {
  pools: { core: { count: 1 } },
  threadRestartsMax: 1_000_000,
  threadBackoff: { min: 0, max: 0 },
}

export const quiet: ActorSystemOptions = { log: silentLog, logLevel: 'silent', threadExecArgv: [] }

/** Messages that wait in one mailbox at most; a link that holds as many never overflows it. */
const CAPACITY = 65_536

/** Where an actor lives that is told from main, and outlives whatever the bench does to its thread. */
export function placed(name: string) {
  return { name, thread: THREAD, supervision: restarting, mailbox: { capacity: CAPACITY } } as const
}

/** Runs `use` with a system of main alone; it must be left as it was promised. */
export function withMain<T>(use: (system: ActorSystem) => Promise<T>): Promise<T> {
  return withSystem({}, use)
}

/** The same with one thread more; its spare, where it has one, stands ready. */
export function withThread<T>(
  use: (system: ActorSystem) => Promise<T>,
  options: ActorSystemOptions = {},
): Promise<T> {
  return withSystem({ ...twoThreads, ...options }, async system => {
    if (options.warmSpare !== false) await spareReady()
    return use(system)
  })
}

async function withSystem<T>(
  options: ActorSystemOptions,
  use: (system: ActorSystem) => Promise<T>,
): Promise<T> {
  const system = await createActorSystem({ ...options, ...quiet })
  try {
    return await use(system)
  } finally {
    const { slow } = await system.shutdown()
    if (slow.length > 0) say(`  slow to stop: ${slow.join(', ')}`)
  }
}

export async function requireNoDeadLetters(system: ActorSystem): Promise<void> {
  const { deadLetters } = await system.stats()
  requireEqual('dead letters', deadLetters, 0)
}

/**
 * The measures of what a message costs two threads in CPU time, named after the measure `name` of its clock
 * time.
 */
export function costMeasures(
  name: string,
  { cpuNs, busierNs }: CpuCosts,
  raw: Readonly<Record<string, CpuCosts>> = {},
): Measures {
  const measure = (value: number, of: (costs: CpuCosts) => number): Measure => ({
    value,
    unit: 'ns CPU',
    ...(Object.keys(raw).length === 0
      ? {}
      : { raw: Object.fromEntries(Object.entries(raw).map(([key, costs]) => [key, of(costs)])) }),
  })
  return {
    [`${name}Cpu`]: measure(cpuNs, costs => costs.cpuNs),
    [`${name}CpuBusier`]: measure(busierNs, costs => costs.busierNs),
  }
}
