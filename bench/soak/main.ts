/**
 * Question   What is lost, doubled, stuck or left behind over ten thousand deaths of threads?
 * Workload   The torture of packages/actor/test/torture: nodes on `threads` threads and on main exchange numbered
 *            messages on both lanes, ask, watch and spawn, while threads are killed, exit, throw outside of arms,
 *            hang, or die with their links full, one death or more a cycle; `faults` other faults for each.
 * Loop       closed: the next death comes when the thread handles messages again. `cycles` deaths, at most `seconds`.
 * Checked    at rest, every `quietEvery` deaths: each message was handled or is missing for a stated reason, none
 *            twice, none out of order; each ask settled, each watch fired. A violation is printed and counted; with --smoke it fails the bench.
 * Read it    failover is from the death to the first message that the next life handles. Memory is the slope of a
 *            line through the resident size at rest, without the first fifth. One long run says most: `--runs 1`.
 */

import { loadavg } from 'node:os'
import { type TortureResult, torture } from '../../packages/actor/test/torture/driver.ts'
import { isSmoke, type Measures, parameter, percentile, runBench, say } from '../harness.ts'

const cycles = parameter('cycles', { smoke: 12, full: 10_000 })
const seconds = parameter('seconds', { smoke: 6, full: 3600 })
const threads = parameter('threads', { smoke: 2, full: 3 })
const faults = parameter('faults', { smoke: 0.3, full: 0.3 })
const quietEvery = parameter('quietEvery', { smoke: 6, full: 50 })
const seed = parameter('seed', { smoke: 1, full: 1 })

const WARM_UP = 0.2

async function soak(): Promise<Measures> {
  const result = await torture({
    seed,
    threads,
    cycles,
    limitMs: seconds * 1000,
    quietEvery,
    faultsPerCycle: faults,
    onProgress: line => say(`  ${line}; load average ${loadavg()[0]!.toFixed(1)}`),
  })
  for (const violation of result.violations) say(`  violated: ${violation}`)
  say(`  deaths and faults: ${listed(result.faults)}`)
  say(`  asks: ${listed(result.asks)}`)
  say(`  handles of main: ${listed(result.handles[0])} at first; ${listed(result.handles[1])} at last`)
  // A run in a process of its own has to report first: its violations are figures, with a floor of 0.
  if (isSmoke && result.violations.length > 0) process.exitCode = 1
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
    rssPerDeath: one(slope(result.memory, 1), 'B/death'),
    heapPerDeath: one(slope(result.memory, 2), 'B/death'),
    rssAtEnd: one((result.memory.at(-1)?.[1] ?? 0) / 2 ** 20, 'MiB'),
    handlesAdded: one(total(result.handles[1]) - total(result.handles[0]), 'handles'),
    shutdown: one(result.shutdownMs, 'ms'),
    deathsPerS: one(result.cycles / result.seconds, 'deaths/s'),
  }
}

/** Least squares of a size over the deaths, after the warm-up. */
function slope(memory: TortureResult['memory'], column: 1 | 2): number {
  const last = memory.at(-1)?.[0] ?? 0
  const points = memory.filter(([deaths]) => deaths >= last * WARM_UP)
  const meanX = points.reduce((sum, point) => sum + point[0], 0) / points.length
  const meanY = points.reduce((sum, point) => sum + point[column], 0) / points.length
  let covariance = 0
  let variance = 0
  for (const point of points) {
    covariance += (point[0] - meanX) * (point[column] - meanY)
    variance += (point[0] - meanX) ** 2
  }
  return variance === 0 ? 0 : covariance / variance
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0)
}

function listed(counts: Readonly<Record<string, number>>): string {
  const words = Object.entries(counts).map(([name, count]) => `${count} ${name}`)
  return words.join(', ')
}

await runBench(
  {
    name: 'soak',
    question: 'What is lost, doubled, stuck or left behind over ten thousand deaths of threads?',
    targets: Object.fromEntries(
      ['lostBeyondWindow', 'duplicates', 'disorders', 'stuckAsks', 'violations'].map(name => [
        name,
        { floor: 0, goal: 0 },
      ]),
    ),
  },
  soak,
)
if (isSmoke) say('  a smoke run shows that the soak works, no more')
