/**
 * Question   What is lost, doubled, stuck or left behind over ten thousand deaths of threads, and over 200
 *            million messages of simulated ones?
 * Workload   deaths: the torture of packages/actor/test/torture. Nodes on `threads` threads and on main
 *            exchange numbered messages of two kinds, ask, watch and spawn, while threads are killed, exit,
 *            throw outside of arms, hang, or die with their links full, one death or more a cycle; `faults`
 *            other faults for each.
 *            simulation: the crowd of packages/actor/test/simulation. Members on all threads throw numbered
 *            balls at each other, ask and fail, while threads die, hang and are slow; `messages` in all,
 *            `seedMessages` a seed.
 * Loop       closed: the next death comes when the thread handles messages again. `cycles` deaths, at most
 *            `seconds`.
 * Checked    deaths: at rest, every `quietEvery` deaths, each message was handled or is missing for a stated
 *            reason, none twice, none out of order; each ask settled, each watch fired.
 *            simulation: the same of messages and asks, at every message and at rest. A violation is printed
 *            and counted; with --smoke it fails the bench.
 * Read it    failover is from the death to the first message that the next life handles. Growth of memory is
 *            the slope of a line through the size at rest, garbage of main collected, in the second half of
 *            the run. One long run says most: `--runs 1`.
 */

import { isSmoke, type Measures, parameter, runBench, say } from '../harness.ts'
import { soakDeaths } from './deaths.ts'
import { soakSimulated } from './simulated.ts'

const cycles = parameter('cycles', { smoke: 12, full: 10_000 })
const seconds = parameter('seconds', { smoke: 6, full: 3600 })
const threads = parameter('threads', { smoke: 2, full: 3 })
const faults = parameter('faults', { smoke: 0.3, full: 0.3 })
const quietEvery = parameter('quietEvery', { smoke: 6, full: 50 })
const messages = parameter('messages', { smoke: 50_000, full: 200_000_000 })
const seedMessages = parameter('seedMessages', { smoke: 20_000, full: 200_000 })
const seed = parameter('seed', { smoke: 1, full: 1 })

const DEATHS = 'deaths'
const SIMULATION = 'simulation'
const NEVER = [
  'lostBeyondWindow',
  'duplicates',
  'disorders',
  'stuckAsks',
  'violations',
  'simulatedLostBeyondWindow',
  'simulatedDuplicates',
  'simulatedDisorders',
  'simulatedStuckAsks',
  'simulatedViolations',
]

async function soak(part: string): Promise<Measures> {
  const measures =
    part === DEATHS
      ? await soakDeaths({ seed, threads, cycles, seconds, faults, quietEvery })
      : await soakSimulated({ seed, messages, seedMessages })
  // A run in a process of its own has to report first: its violations are figures, with a floor of 0.
  if (isSmoke && NEVER.some(name => (measures[name]?.value ?? 0) > 0)) process.exitCode = 1
  return measures
}

await runBench(
  {
    name: 'soak',
    question: 'What is lost, doubled, stuck or left behind over ten thousand deaths of threads?',
    parts: [DEATHS, SIMULATION],
    targets: Object.fromEntries(NEVER.map(name => [name, { floor: 0, goal: 0 }])),
  },
  soak,
)
if (isSmoke) say('  a smoke run shows that the soak works, no more')
