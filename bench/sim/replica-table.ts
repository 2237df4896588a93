/**
 * Several routers on one fleet, with replica sync and without, against one: the tables of
 * docs/records/routing-quality.md. `pnpm exec node bench/sim/replica-table.ts --write` writes them; without
 * --write they are printed. `--seeds N`, `--minutes N`: past them it stops, and writes nothing. Results are
 * kept in .cache/bench-sim, so the next run goes on from there.
 *
 * Policy auto with its guard and its queue. A load is a share of the capacity of one router with auto without
 * a queue, F8, tier standard, first seed; F64 has eight copies of the first requests at the same speeds.
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
  ResultStore,
  RunnerStopped,
  searchCapacity,
  seedMean,
  type Workload,
} from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { type TraceName, traceWorkload } from './traces-by-name.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
export const REPLICA_MARKS = marksOf('replicas')
/** What of a booking is on its way: from router to broker to router, in milliseconds. */
const WAY_MS = 0.3
/** As long as --router-replica-delay. */
const GATHER_MS = 2
const NEAR_TIE_MS = 2

interface Way {
  readonly name: string
  readonly spec: Pick<CellSpec, 'replicaSyncMs' | 'replicaGather'>
  readonly nearTieMs?: number
}

const AT_ONCE: Way['spec'] = {
  replicaSyncMs: WAY_MS,
  replicaGather: { ms: GATHER_MS, waits: 'behind-first' },
}

/** How the product does it. */
export const JUDGED = 'at once, then 2 ms'
/** How routers tell each other. */
export const WAYS: readonly Way[] = [
  { name: 'no sync', spec: {} },
  { name: 'no delay', spec: { replicaSyncMs: 0 } },
  {
    name: 'always 2 ms',
    spec: { replicaSyncMs: WAY_MS, replicaGather: { ms: GATHER_MS, waits: 'always' } },
  },
  { name: JUDGED, spec: AT_ONCE },
  { name: '… and of two', spec: AT_ONCE, nearTieMs: NEAR_TIE_MS },
  { name: '50 ms', spec: { replicaSyncMs: 50 } },
]
const BOUND = 0.02
const COMPANY_MS = 5
const GUESS = 3
const LOADS = [0.5, 0.85]
const F64_REQUESTS = 3000

const BASE: Omit<CellSpec, 'seed' | 'speed' | 'selection' | 'routers'> = {
  workers: 8,
  profile: 'h100-8b',
  copies: 1,
  blockTokens: 512,
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
  knowsOutput: false,
  stretch: 1,
  warmupShare: 0.1,
}

const { selection: AUTO } = parseColumn('auto')

export interface ReplicaRow {
  readonly fleet: string
  readonly traffic: string
  readonly load: number
  readonly routers: number
  /** By seed. */
  readonly one: readonly CellResult[]
  /** In order of WAYS, by seed. */
  readonly several: readonly (readonly CellResult[])[]
}

/** The lines of both tables. */
export function renderReplicas(rows: readonly ReplicaRow[]): string {
  const heads = WAYS.map(({ name }) => name)
  return [
    '**Several routers ÷ one**: hit rate · imbalance · mean TTFT · p99 TTFT · mean E2E',
    '',
    `| fleet | traffic | load | routers | ${heads.join(' | ')} | ${JUDGED}: hit rate, imbalance | within 2 % |`,
    `|---|---|---:|---:|${'---|'.repeat(heads.length + 2)}`,
    ...rows.map(qualityLine),
    '',
    `**The herd**: share of the requests sent within ${COMPANY_MS} ms before a request that went to its worker, in % (÷ so many of them in the mean)`,
    '',
    `| fleet | traffic | load | routers | one router | ${heads.join(' | ')} |`,
    `|---|---|---:|---:|${'---|'.repeat(heads.length + 1)}`,
    ...rows.map(herdLine),
  ].join('\n')
}

function qualityLine({ fleet, traffic, load, routers, one, several }: ReplicaRow): string {
  const ratio = (results: readonly CellResult[], of: (result: CellResult) => number) =>
    seedMean(results.map((result, seed) => of(result) / of(one[seed]!)))
  const cells = several.map(results =>
    FIGURES.map(figure => ratio(results, figure).mean.toFixed(2)).join(' · '),
  )
  const judged = several[WAYS.findIndex(({ name }) => name === JUDGED)]!
  const kept = [hitRate, imbalance].map(figure => ratio(judged, figure))
  const texts = kept.map(({ mean, halfWidth }) => {
    return `${mean.toFixed(3)}${halfWidth === undefined ? '' : ` ± ${halfWidth.toFixed(3)}`}`
  })
  const isKept = kept[0]!.mean >= 1 - BOUND && kept[1]!.mean <= 1 + BOUND
  return line(
    fleet,
    traffic,
    percent(load),
    String(routers),
    ...cells,
    texts.join(', '),
    isKept ? 'yes' : '**no**',
  )
}

function herdLine({ fleet, traffic, load, routers, one, several }: ReplicaRow): string {
  const shares = [one, ...several].map(results => {
    const share = seedMean(results.map(({ company }) => 100 * company!.sameWorkerShare)).mean
    return `${share.toFixed(1)} (${seedMean(results.map(({ company }) => company!.requests)).mean.toFixed(2)})`
  })
  return line(fleet, traffic, percent(load), String(routers), ...shares)
}

const hitRate = (result: CellResult): number => result.hitRate
const imbalance = ({ imbalance: { outstandingMaxOverMean } }: CellResult): number => outstandingMaxOverMean
const FIGURES = [
  hitRate,
  imbalance,
  ({ ttftMs }: CellResult): number => ttftMs.mean,
  ({ ttftMs }: CellResult): number => ttftMs.p99,
  ({ e2eMs }: CellResult): number => e2eMs.mean,
]

function percent(share: number): string {
  return `${Math.round(100 * share)} %`
}

function line(...cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`
}

interface Place {
  readonly fleet: string
  readonly traffic: TraceName
  readonly routers: readonly number[]
  readonly spec: Partial<CellSpec>
  readonly requestsMax?: number
}

const PLACES: readonly Place[] = [
  { fleet: 'F8', traffic: 'toolagent_like', routers: [2, 4, 8], spec: {} },
  { fleet: 'F8', traffic: 'synthetic', routers: [2, 4, 8], spec: {} },
  {
    fleet: 'F64',
    traffic: 'toolagent_like',
    routers: [8],
    spec: { workers: 64, copies: 8 },
    requestsMax: F64_REQUESTS,
  },
]

async function capacityOf(
  runner: CellRunner,
  workload: Workload,
  spread: Partial<CellSpec>,
): Promise<number> {
  const { speed } = await searchCapacity(GUESS, async speed => {
    const spec: CellSpec = { ...BASE, ...spread, routers: 1, selection: AUTO, speed, seed: 1 }
    return (await runner.run(workload, spec)).result.goodput.standard
  })
  return speed
}

async function rowsOf(
  runner: CellRunner,
  { fleet, traffic, routers, spec, requestsMax }: Place,
  seeds: number,
  collect: (row: ReplicaRow) => void,
): Promise<void> {
  const whole = await traceWorkload(traffic)
  const binMs = await detectBinMs(whole)
  const spread = binMs > 0 ? { spread: { binMs, jitterShare: 0.2 } } : {}
  const capacity = await capacityOf(runner, whole, spread)
  const workload = requestsMax === undefined ? whole : await traceWorkload(traffic, requestsMax)
  for (const load of LOADS) {
    const at = (routers: number, way?: Way): Promise<CellResult[]> =>
      Promise.all(
        Array.from({ length: seeds }, async (_, i) => {
          const nearTie = way?.nearTieMs === undefined ? {} : { nearTieMs: way.nearTieMs }
          const selection = { ...AUTO, ...nearTie, queue: { threshold: 'auto' as const } }
          const own = { ...BASE, ...spread, ...spec, ...way?.spec, routers, companyMs: COMPANY_MS }
          const run = await runner.run(workload, { ...own, selection, speed: load * capacity, seed: i + 1 })
          return run.result
        }),
      )
    const one = await at(1)
    for (const count of routers) {
      const several = await Promise.all(WAYS.map(way => at(count, way)))
      collect({ fleet, traffic, load, routers: count, one, several })
    }
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '3' },
      minutes: { type: 'string', default: '30' },
    },
  })
  const seeds = givenFigure('seeds', values.seeds, 1)
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
  const budget = setTimeout(() => void runner.stop(), givenFigure('minutes', values.minutes) * 60_000)
  process.once('SIGINT', () => void runner.stop())
  const rows: ReplicaRow[] = []
  let isStopped = false
  try {
    for (const place of PLACES) {
      await rowsOf(runner, place, seeds, row => {
        rows.push(row)
        console.error(qualityLine(row))
        console.error(herdLine(row))
      })
    }
  } catch (thrown) {
    if (!(thrown instanceof RunnerStopped)) throw thrown
    isStopped = true
  } finally {
    clearTimeout(budget)
    await runner.stop()
  }
  const table = renderReplicas(rows)
  if (isStopped) {
    console.error('stopped before the end: nothing is written')
    process.exitCode = 1
  }
  if (values.write && !isStopped)
    writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, REPLICA_MARKS))
  else console.log(table)
}
