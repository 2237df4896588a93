/**
 * The parts of a run: one loop each. Reports the cores and load that each of them had; those of two threads
 * pass the gate.
 */

import { loadavg } from 'node:os'
import { CORES_MIN, effectiveCores } from '../actors/cores.ts'
import { gated } from '../actors/gate.ts'
import { isSmoke, type Measures, Skip, say, usage } from '../harness.ts'
import { churnLoop } from './churn-loop.ts'
import { memoryLoop } from './memory-loop.ts'
import { microLoop } from './micro-loop.ts'
import { keepUpLoop, latencyLoop } from './paced-loop.ts'
import { loops } from './parameters.ts'
import { poolLoop } from './pool-loop.ts'
import { shardLoop } from './shard-loop.ts'
import { singleLoop } from './single-loop.ts'

interface Loop {
  readonly threads: 1 | 2
  readonly run: () => Measures | Promise<Measures>
}

const LOOPS: Readonly<Record<string, Loop>> = {
  A: { threads: 1, run: singleLoop },
  B: { threads: 2, run: keepUpLoop },
  C: { threads: 2, run: poolLoop },
  D: { threads: 2, run: latencyLoop },
  E: { threads: 1, run: microLoop },
  F: { threads: 1, run: memoryLoop },
  S: { threads: 1, run: shardLoop },
  churn: { threads: 1, run: churnLoop },
}

for (const name of loops) {
  if (LOOPS[name] === undefined) usage(`unknown loop ${name}; known: ${Object.keys(LOOPS).join(', ')}`)
}

export const parts: readonly string[] = loops

export async function runPart(part: string): Promise<Measures | Skip> {
  const { run } = LOOPS[part]!
  const load = loadavg()[0]!
  const cores = await effectiveCores()
  say(`  ${part}: two busy threads get ${cores.toFixed(2)} cores; load average ${load.toFixed(2)}`)
  const machine: Measures = {
    [`effectiveCores${part}`]: { value: cores, unit: 'cores' },
    [`loadAverage${part}`]: { value: load, unit: 'threads that want to run' },
  }
  const measures = await passGate(part, run)
  return measures instanceof Skip ? measures : { ...measures, ...machine }
}

/**
 * What `run` measures, by us or by a peer, unless the part has two threads and there are not two cores for
 * them.
 */
export async function passGate(part: string, run: Loop['run']): Promise<Measures | Skip> {
  if (isSmoke || LOOPS[part]!.threads === 1) return run()
  const outcome = await gated(part, async () => run())
  if ('value' in outcome) return outcome.value
  return new Skip(
    `two busy threads get ${outcome.cores.toFixed(2)} cores, not ${CORES_MIN}: its figures cannot be compared`,
  )
}
