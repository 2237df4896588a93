/**
 * The first half of the soak: threads die under load, and the promises about this are checked by counting.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { type TortureResult, torture } from '../../packages/actor/test/torture/driver.ts'
import { type Measures, percentile, say } from '../harness.ts'
import { slope } from '../statistics.ts'

/** The part of a run that says nothing about how memory grows. */
const WARM_UP = 0.5
const MEBIBYTE = 2 ** 20

export interface DeathsOptions {
  readonly seed: number
  readonly threads: number
  readonly cycles: number
  readonly seconds: number
  readonly faults: number
  readonly quietEvery: number
}

/** The figures of one run; each violation is printed. */
export async function soakDeaths(options: DeathsOptions): Promise<Measures> {
  const { seed, threads, cycles, seconds, faults, quietEvery } = options
  const compiled = mkdtempSync(join(tmpdir(), 'homing-soak-'))
  // Every death starts a worker, which would spend 200 ms on taking the types out of the modules.
  process.env['NODE_COMPILE_CACHE'] = compiled
  let result: TortureResult
  try {
    result = await torture({
      seed,
      threads,
      cycles,
      limitMs: seconds * 1000,
      quietEvery,
      faultsPerCycle: faults,
      onProgress: line => say(`  ${line}; load average ${loadavg()[0]!.toFixed(1)}`),
      collect: collector(),
    })
  } finally {
    rmSync(compiled, { recursive: true, force: true })
  }
  for (const violation of result.violations) say(`  violated: ${violation}`)
  say(`  deaths and faults: ${listed(result.faults)}`)
  say(`  asks: ${listed(result.asks)}`)
  say(`  handles of main: ${listed(result.handles[0])} at first; ${listed(result.handles[1])} at last`)
  const failovers = Float64Array.from(result.failoversMs)
  const one = (value: number, unit: string) => ({ value, unit })
  return {
    deaths: one(result.threadRestarts, 'lives replaced'),
    messages: one(result.sent, 'messages'),
    lostWithinWindow: one(result.lost.window, 'messages'),
    windowMax: one(result.windowMax, 'messages of a link and a death'),
    lostInMailboxes: one(result.lost.mailbox, 'messages'),
    lostWithSender: one(result.lost.sender, 'messages'),
    lostWithBothEnds: one(result.lost.both + result.lost.local, 'messages'),
    lostBeyondWindow: one(result.beyondWindow, 'messages'),
    duplicates: one(result.duplicates, 'messages'),
    disorders: one(result.disorders, 'messages'),
    stuckAsks: one(result.stuckAsks, 'asks'),
    askLateMax: one(result.asksLateMsMax, 'ms'),
    watches: one(result.watches, 'watches'),
    violations: one(result.violations.length, 'violations'),
    failoverP50: one(percentile(failovers, 50), 'ms'),
    failoverP99: one(percentile(failovers, 99), 'ms'),
    rssGrowth: one(growth(result.memory, 1), 'MiB/1,000 deaths'),
    heapGrowth: one(growth(result.memory, 2), 'MiB/1,000 deaths'),
    rssAtEnd: one((result.memory.at(-1)?.[1] ?? 0) / MEBIBYTE, 'MiB'),
    handlesAdded: one(total(result.handles[1]) - total(result.handles[0]), 'handles'),
    shutdown: one(result.shutdownMs, 'ms'),
    deathsPerS: one(result.cycles / result.seconds, 'deaths/s'),
  }
}

/** Garbage of main is no growth. */
function collector(): () => void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  setFlagsFromString('--no-expose-gc')
  return collect
}

/** Slope of a size over the deaths, by least squares, after the warm-up; MiB for 1,000 deaths. */
function growth(memory: TortureResult['memory'], column: 1 | 2): number {
  const last = memory.at(-1)?.[0] ?? 0
  const points = memory.filter(([deaths]) => deaths >= last * WARM_UP)
  return (slope(points.map(point => [point[0], point[column]])) * 1000) / MEBIBYTE
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0)
}

function listed(counts: Readonly<Record<string, number>>): string {
  const words = Object.entries(counts).map(([name, count]) => `${count} ${name}`)
  return words.join(', ')
}
