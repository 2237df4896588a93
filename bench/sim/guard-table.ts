/**
 * The cases of the guard: the fault, what the guard notices, and the loss against round-robin over the whole
 * run. It is the table of docs/records/routing-quality.md. `pnpm exec node bench/sim/guard-table.ts --write`
 * writes it; without --write it is printed. `--seeds N`, `--only CASE`; past `--minutes N` it stops and
 * writes nothing.
 *
 * Eight workers (F8) on the trace toolagent_like at speed 2, where round-robin still copes, unless the case
 * says otherwise. Results are kept in .cache/bench-sim.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { systemClock } from '@homing/base'
import {
  type CellResult,
  type CellRun,
  CellRunner,
  type CellSpec,
  detectBinMs,
  parseColumn,
  parseWorkload,
  ResultStore,
  RunnerStopped,
  type SeedMean,
  seedMean,
} from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { findTrace } from '../index/traces.ts'
import { marksOf, withTable } from '../page-table.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
export const GUARD_MARKS = marksOf('guard')
/** Two thirds of what the fleet can take. */
const UNIQUE = 'generator:unique?requests=8000&rate=6'
const TRACE = 'toolagent_like_trace.jsonl.gz'
const JITTER_SHARE = 0.2
const LOSS_MAX = 0.02
const VIEW = { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 } as const
export const COLUMNS = ['round-robin', 'least-loaded', 'auto-unguarded', 'auto'] as const

export interface GuardCase {
  readonly name: string
  /** Default: the trace. */
  readonly workload?: string
  readonly spec?: Partial<CellSpec>
}

export const CASES: readonly GuardCase[] = [
  { name: 'nothing is wrong' },
  { name: 'one hot prefix for all', workload: 'generator:hot?requests=8000&rate=10', spec: { speed: 1 } },
  {
    name: 'many idle workers',
    workload: 'generator:sessions?requests=8000&rate=20',
    spec: { speed: 1, workers: 64 },
  },
  {
    name: 'a slow worker with the best cache',
    spec: {
      slow: { share: 0, factor: 4, worker: 0 },
      // It is alone for a minute.
      joins: [1, 2, 3, 4, 5, 6, 7].map(worker => ({ atMs: 60_000, worker })),
    },
  },
  { name: 'an index that is five minutes late', spec: { view: { ...VIEW, eventDelayMs: 300_000 } } },
  {
    name: 'a late index, believed whatever engines say',
    spec: { view: { ...VIEW, eventDelayMs: 300_000, credit: 'full' } },
  },
  { name: 'a flipped root', spec: { trouble: 'flipped-root' } },
  {
    name: 'a flipped root, believed whatever engines say',
    spec: { trouble: 'flipped-root', view: { ...VIEW, credit: 'full' } },
  },
  { name: 'first tokens told at once', spec: { trouble: 'at-once' } },
  { name: 'first tokens of every fourth worker told at once', spec: { trouble: 'some-at-once' } },
  { name: 'first tokens told at random', spec: { trouble: 'random' } },
  { name: 'load and times booked at the wrong worker', spec: { trouble: 'crossed-book' } },
  { name: 'light load (speed 0.5), nothing is wrong', spec: { speed: 0.5 } },
  { name: 'light load, first tokens told at random', spec: { speed: 0.5, trouble: 'random' } },
  { name: 'light load, booked at the wrong worker', spec: { speed: 0.5, trouble: 'crossed-book' } },
  { name: 'nothing is shared', workload: UNIQUE, spec: { speed: 1 } },
  {
    name: 'nothing is shared, first tokens told at random',
    workload: UNIQUE,
    spec: { speed: 1, trouble: 'random' },
  },
  {
    name: 'nothing is shared, booked at the wrong worker',
    workload: UNIQUE,
    spec: { speed: 1, trouble: 'crossed-book' },
  },
]

export interface CaseRuns {
  readonly name: string
  /** By column, in order of the seeds. */
  readonly runs: Readonly<Record<(typeof COLUMNS)[number], readonly CellResult[]>>
}

/** The lines of the table. */
export function renderGuard(cases: readonly CaseRuns[]): string {
  const lines = [
    '| case | regret, ms | tested | shrunk after | by least-loaded | least-loaded | without guard | with guard | loss ≤ 2 % |',
    '|---|---|---:|---|---:|---|---|---|---|',
  ]
  for (const { name, runs } of cases) {
    const guards = runs.auto.map(({ guard }) => guard!)
    const regrets = [0, 1, 2].map(s => Math.round(meanOf(guards.map(({ regretMs }) => regretMs[s]!))))
    const shrunk = guards.flatMap(({ shrunkAfter }) => shrunkAfter ?? [])
    const shrunkText =
      shrunk.length === 0
        ? 'not'
        : `${Math.min(...shrunk)} … ${Math.max(...shrunk)} (${shrunk.length} of ${guards.length} seeds)`
    const ratios = (column: (typeof COLUMNS)[number]): string =>
      `${ratioText(ratio(runs, column, ({ ttftMs }) => ttftMs.mean))} · ${ratioText(ratio(runs, column, ({ e2eMs }) => e2eMs.mean))}`
    const isKept = [
      ratio(runs, 'auto', ({ ttftMs }) => ttftMs.mean),
      ratio(runs, 'auto', ({ e2eMs }) => e2eMs.mean),
    ].every(({ mean }) => mean <= 1 + LOSS_MAX)
    const cells = [
      name,
      regrets.join(' · '),
      meanOf(guards.map(({ tests }) => tests)).toFixed(1),
      shrunkText,
      `${(100 * meanOf(guards.map(({ controlShare }) => controlShare))).toFixed(1)} %`,
      ratios('least-loaded'),
      ratios('auto-unguarded'),
      ratios('auto'),
      isKept ? 'yes' : '**no**',
    ]
    lines.push(`| ${cells.join(' | ')} |`)
  }
  return lines.join('\n')
}

function ratio(
  runs: CaseRuns['runs'],
  column: (typeof COLUMNS)[number],
  figure: (result: CellResult) => number,
): SeedMean {
  const basis = runs['round-robin']
  return seedMean(runs[column].map((result, seed) => figure(result) / figure(basis[seed]!)))
}

function ratioText({ mean, halfWidth }: SeedMean): string {
  const digits = mean >= 10 ? 0 : 2
  return `${mean.toFixed(digits)}${halfWidth === undefined ? '' : ` ± ${halfWidth.toFixed(digits)}`}`
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

async function runCase(
  { name, workload: named, spec: own }: GuardCase,
  seeds: number,
  runner: CellRunner,
): Promise<CaseRuns> {
  const path = named ?? findTrace(TRACE, '')
  if (path === undefined)
    throw new Error(`cannot run: ${TRACE} is neither in HOMING_TRACES nor in ../shared/traces`)
  const workload = await parseWorkload(path)
  const binMs = await detectBinMs(workload)
  const run = async (column: string, seed: number): Promise<CellResult> => {
    const spec: CellSpec = {
      workers: 8,
      profile: 'h100-8b',
      copies: 1,
      blockTokens: 512,
      routers: 1,
      view: VIEW,
      knowsOutput: false,
      speed: 2,
      stretch: 1,
      warmupShare: 0,
      ...(binMs > 0 && { spread: { binMs, jitterShare: JITTER_SHARE } }),
      ...own,
      seed,
      selection: parseColumn(column).selection,
    }
    return (await runner.run(workload, spec)).result
  }
  const all = await Promise.all(
    COLUMNS.map(async column => {
      const results = await Promise.all(Array.from({ length: seeds }, (_, i) => run(column, i + 1)))
      return [column, results] as const
    }),
  )
  return { name, runs: Object.fromEntries(all) as unknown as CaseRuns['runs'] }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '5' },
      only: { type: 'string', default: '' },
      minutes: { type: 'string', default: '30' },
    },
  })
  const seeds = givenFigure('seeds', values.seeds, 1)
  const minutes = givenFigure('minutes', values.minutes)
  const cases = CASES.filter(({ name }) => name.includes(values.only))
  if (values.write && cases.length < CASES.length)
    throw new Error('cannot write a part of the table: leave out --only, or --write')
  const runner = new CellRunner({
    threads: 2,
    clock: systemClock,
    store: new ResultStore<CellRun>({
      folder: CACHE,
      bytesMax: 2 ** 28,
      clock: systemClock,
      onTrouble: sentence => console.error(sentence),
    }),
  })
  const budget = setTimeout(() => void runner.stop(), minutes * 60_000)
  process.once('SIGINT', () => void runner.stop())
  const done: CaseRuns[] = []
  try {
    for (const each of cases) {
      done.push(await runCase(each, seeds, runner))
      console.error(renderGuard(done.slice(-1)).split('\n')[2])
    }
  } catch (thrown) {
    if (!(thrown instanceof RunnerStopped)) throw thrown
    console.error(`stopped after ${done.length} of ${cases.length} cases: nothing is written`)
    process.exitCode = 1
  } finally {
    clearTimeout(budget)
    await runner.stop()
  }
  const table = renderGuard(done)
  if (values.write && done.length === CASES.length)
    writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, GUARD_MARKS))
  else console.log(table)
}
