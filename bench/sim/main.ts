/**
 * Question   How good are the decisions of each policy, and how long does it take to find out?
 * Workload   The conversation trace of Mooncake (`trace=FILE`, or in HOMING_TRACES or ../shared/traces;
 *            without one, generated chats with fixed times), as `homing simulate` replays it: F8 at speed 3,
 *            and F1000 with 16 copies at speed 24. One seed, KV events 20 ms late.
 * Parts      f8      a cell for each policy: its seconds, TTFT, hit rate, goodput; then its decisions, CPU
 *                    time of each
 *            f1000   one cell, streamed from its file: seconds and the memory of the whole process
 * Checked    every request is answered, and figures are the same in every run (`pins`).
 * Read it    seconds of a cell are of one thread; figures in s and % are simulated and the same on every
 *            machine. To compare policies with seeds and intervals use `homing simulate`.
 */

import assert from 'node:assert/strict'
import {
  type CellRun,
  type CellSpec,
  detectBinMs,
  FIXED_COLUMNS,
  FLEETS,
  openWorkload,
  parseColumn,
  parseWorkload,
  simulateCell,
  type Workload,
} from '@homing/simulate'
import { isSmoke, type Measure, type Measures, parameter, runBench, say } from '../harness.ts'
import { findTrace } from '../index/traces.ts'

const traceFile = parameter('trace', { smoke: '', full: '' })
const policies = parameter('policies', { smoke: 'least-loaded,product', full: FIXED_COLUMNS.join(',') })
const speed = parameter('speed', { smoke: 3, full: 3 })
const requestsMax = parameter('requests', { smoke: 1000, full: 1_000_000 })
const largeWorkers = parameter('largeWorkers', { smoke: 50, full: 1000 })
const largeCopies = parameter('largeCopies', { smoke: 2, full: 16 })
const largeSpeed = parameter('largeSpeed', { smoke: 10, full: 24 })
const seed = parameter('seed', { smoke: 1, full: 1 })

const TRACE_NAME = 'mooncake_conversation_trace.jsonl.gz'
const GIB = 2 ** 30
/** Offsets of arrivals within a bin. */
const JITTER_SHARE = 0.2
const columns = policies.split(',').map(parseColumn)

async function workloadOf(): Promise<Workload> {
  const path = isSmoke ? undefined : findTrace(TRACE_NAME, traceFile)
  if (path === undefined)
    say(`  traffic is generated${isSmoke ? '' : `: ${TRACE_NAME} is in no place that was named`}`)
  return parseWorkload(path ?? 'generator:sessions?loop=open', requestsMax)
}

async function runCell(policy: (typeof columns)[number], change: Partial<CellSpec>): Promise<CellRun> {
  const workload = await workloadOf()
  const binMs = await detectBinMs(workload)
  const spec: CellSpec = {
    workers: FLEETS.F8.workers,
    profile: FLEETS.F8.profile,
    blockTokens: 512,
    routers: 1,
    view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
    selection: policy.selection,
    knowsOutput: false,
    speed,
    copies: 1,
    stretch: 1,
    seed,
    warmupShare: 0.1,
    ...(binMs > 0 && { spread: { binMs, jitterShare: JITTER_SHARE } }),
    ...change,
  }
  const run = await simulateCell(spec, openWorkload(workload, spec))
  const { withWarmup, decisions, refused, lost } = run.result
  assert.equal(refused + lost, 0, 'every request is served')
  assert.equal(decisions, withWarmup.requests, 'every request is decided once')
  assert.ok(withWarmup.ttftMs.mean > 0 && withWarmup.hitRate >= 0 && withWarmup.hitRate <= 1)
  return run
}

async function smallFleet(): Promise<Measures> {
  const measures: Record<string, Measure> = {}
  for (const column of columns) {
    const { result, cost } = await runCell(column, {})
    const { name } = column
    measures[`cell ${name}`] = { value: cost.elapsedMs / 1000, unit: 's' }
    measures[`cpu ${name}`] = { value: cost.cpuUsPerDecision, unit: 'µs' }
    measures[`ttft ${name}`] = { value: result.ttftMs.mean / 1000, unit: 's simulated' }
    measures[`ttft p99 ${name}`] = { value: result.ttftMs.p99 / 1000, unit: 's simulated' }
    measures[`itl ${name}`] = { value: result.itlMs.mean, unit: 'ms simulated' }
    measures[`hit ${name}`] = { value: result.hitRate * 100, unit: '%' }
    measures[`standard ${name}`] = { value: result.goodput.standard * 100, unit: '%' }
  }
  return measures
}

async function largeFleet(): Promise<Measures> {
  const before = process.cpuUsage()
  const run = await runCell(parseColumn('product'), {
    workers: largeWorkers,
    copies: largeCopies,
    speed: largeSpeed,
  })
  const { user, system } = process.cpuUsage(before)
  return {
    'large seconds': { value: run.cost.elapsedMs / 1000, unit: 's' },
    // Of all threads, garbage collection included: what the seconds would be on a machine that does nothing
    // else.
    'large cpu': { value: (user + system) / 1e6, unit: 's' },
    'large memory': { value: (process.resourceUsage().maxRSS * 1024) / GIB, unit: 'GiB' },
    'large requests': { value: run.result.withWarmup.requests, unit: '' },
    'large ttft': { value: run.result.ttftMs.mean / 1000, unit: 's simulated' },
    'large hit': { value: run.result.hitRate * 100, unit: '%' },
  }
}

await runBench(
  {
    name: 'sim',
    question: 'How good are the decisions of each policy, and how long does it take to find out?',
    parts: ['f8', 'f1000'],
    targets: {
      ...Object.fromEntries(columns.map(({ name }) => [`cell ${name}`, { floor: 10, goal: 2 }])),
      'large seconds': { floor: 60, goal: 30 },
      'large cpu': { floor: 60, goal: 30 },
      'large memory': { floor: 2, goal: 1 },
    },
    pins: [
      ...columns.flatMap(({ name }) =>
        ['ttft', 'ttft p99', 'itl', 'hit', 'standard'].map(what => `${what} ${name}`),
      ),
      'large requests',
      'large ttft',
      'large hit',
    ],
  },
  part => (part === 'f8' ? smallFleet() : largeFleet()),
)
