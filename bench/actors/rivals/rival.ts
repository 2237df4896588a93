/** Rival: another library that can do some of our work, and the loads that they share. */

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Measures } from '../../harness.ts'
import { costsOf, cpuTimes } from '../cpu.ts'
import {
  type Asked,
  inFlightMeasures,
  measureInFlight,
  measureSequential,
  sequentialMeasures,
} from '../cross-ask-rows.ts'
import { type Add, nextTurn, perSecond, requireEqual } from '../loads.ts'
import { askMeasures, BURST, measureAsks } from '../local-rows.ts'
import { actors, crossAsks, crossAsksSequential, localAsks, localTells } from '../sizes.ts'
import { heapBytesOf, SPAWN_BURST } from '../spawn-rows.ts'
import { inTurns } from '../turns.ts'

export interface Rival {
  /** As `package.json` says; undefined: it is not installed. */
  readonly version: () => string | undefined
  /** What it can do, by the name of our row. */
  readonly rows: Readonly<Record<string, () => Promise<Measures>>>
}

export interface Step {
  readonly type: 'step'
  readonly n: number
}

/** They are 10 to 100 times slower: a run of theirs need not take that much longer. */
const SHARE = 1 / 10
export const ASK_MS_MAX = 10_000

/** Counts numbered messages. */
export class Steps {
  count = 0
  violations = 0

  take(n: number): void {
    this.count++
    if (n !== this.count) this.violations++
  }
}

/** Tells in bursts as ours; each burst is over when its last message was handled. */
export async function localTell(tell: (n: number) => void, steps: Steps): Promise<Measures> {
  const { theirs } = await inTurns(localTells * SHARE, {
    theirs: async count => {
      const before = await cpuTimes()
      const from = performance.now()
      const end = steps.count + count
      for (let n = steps.count; n < end; ) {
        const burstEnd = Math.min(n + BURST, end)
        while (n < burstEnd) tell(++n)
        while (steps.count < burstEnd) await nextTurn()
      }
      const perS = perSecond(count, from)
      requireEqual('messages handled in order', steps.count - steps.violations, end)
      return { perS, cpuNs: costsOf(count, before, await cpuTimes()).cpuNs }
    },
  })
  return {
    localTell: { value: theirs.perS, unit: 'msg/s' },
    localTellCpu: { value: theirs.cpuNs, unit: 'ns CPU' },
  }
}

export async function localAsk(add: Add): Promise<Measures> {
  const { theirs } = await inTurns(localAsks * SHARE, { theirs: count => measureAsks(add, count) })
  return askMeasures(theirs)
}

/** `cycle` spawns so many actors and stops them. */
export async function spawnStop(cycle: (count: number) => Promise<void>): Promise<Measures> {
  const { theirs } = await inTurns(actors * SHARE, {
    theirs: async count => {
      const from = performance.now()
      for (let left = count; left > 0; left -= SPAWN_BURST) await cycle(Math.min(left, SPAWN_BURST))
      return { perS: perSecond(count, from) }
    },
  })
  return { spawnStop: { value: theirs.perS, unit: 'actor/s' } }
}

/** `spawn` makes one actor. */
export async function idleActor(spawn: (i: number) => unknown): Promise<Measures> {
  const count = Math.ceil(actors * SHARE)
  const bytes = await heapBytesOf(async () => {
    const all: unknown[] = []
    for (let i = 0; i < count; i++) all.push(await spawn(i))
    return all
  })
  return { idleActor: { value: bytes / count, unit: 'B' } }
}

export async function crossAsk(asked: Asked): Promise<Measures> {
  const { theirs } = await inTurns(crossAsks * SHARE, { theirs: count => measureInFlight(asked, count) })
  return inFlightMeasures(theirs)
}

export async function crossAskSequential(asked: Asked): Promise<Measures> {
  const { theirs } = await inTurns(crossAsksSequential, { theirs: count => measureSequential(asked, count) })
  return sequentialMeasures(theirs)
}

/** A specifier that is no literal: types of a rival that may be missing are not asked for. */
export function load(specifier: string): Promise<unknown> {
  return import(specifier)
}

/** The version in the package.json of what is installed beside this package. */
export function versionOf(name: string): string | undefined {
  const path = fileURLToPath(new URL(`../../node_modules/${name}/package.json`, import.meta.url))
  if (!existsSync(path)) return undefined
  return (JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version
}
