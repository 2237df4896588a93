/** Row: one line of the table, or a few that are measured together. */

import { type ActorSystem, type ActorSystemOptions, createActorSystem, type Supervision } from '@homing/actor'
import { silentLog } from '@homing/log'
import type { Measures, Target } from '../harness.ts'

export interface Row {
  readonly name: string
  /** Needs two cores: skipped by name where there are none. */
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

/** Runs `use` with a system of main and one thread, or of main alone; it must be left as it was promised. */
export async function withSystem<T>(threads: 1 | 2, use: (system: ActorSystem) => Promise<T>): Promise<T> {
  const system = await createActorSystem({ ...(threads === 1 ? {} : twoThreads), ...quiet })
  try {
    return await use(system)
  } finally {
    const { slow } = await system.shutdown()
    if (slow.length > 0) process.stderr.write(`  slow to stop: ${slow.join(', ')}\n`)
  }
}

/** Main, and one thread that may be ended any number of times. */
export const twoThreads: ActorSystemOptions = {
  pools: { core: { count: 1 } },
  threadRestartsMax: 1_000_000,
  threadBackoff: { min: 0, max: 0 },
}

export const quiet: ActorSystemOptions = { log: silentLog, logLevel: 'silent', threadExecArgv: [] }
