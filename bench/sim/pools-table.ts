/**
 * When prefill and decode apart pay: the table of docs/records/disaggregation.md. `pnpm exec node
 * bench/sim/pools-table.ts --write` writes it; without --write it is printed. `--requests N` takes so many of
 * each trace, `--seeds N`; `--smoke` is one small generated cell of each kind, for a look at it. Results are
 * kept in .cache/bench-sim, so the next run continues from there.
 *
 * A load is a share of the capacity of as many workers that take whole requests: the highest speed at which
 * `auto` keeps 95 % of the requests inside tier standard, with the first seed.
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
  type PoolsSpec,
  parseWorkload,
  ResultStore,
  searchCapacity,
  type Workload,
} from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { TRACES, type TraceName, traceWorkload } from './traces-by-name.ts'

export const POOLS_MARKS = marksOf('pools')
const PAGE = fileURLToPath(new URL('../../docs/records/disaggregation.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
const GUESS = 2
const LOADS = [0.5, 0.85]

/** 128 KiB per token, at 64 GB/s. */
const FAST = { transferMs: 2, transferMsPerToken: 0.002 } as const
/** The same over 10 Gbit/s. */
const SLOW = { transferMs: 2, transferMsPerToken: 0.1 } as const
/** The defaults of --router-conditional-disagg. */
const STAY = { tokens: 2048, share: 0.7 } as const

interface Way {
  readonly name: string
  readonly transfer: Omit<PoolsSpec, 'prefill'> | undefined
}

const WAYS: readonly Way[] = [
  { name: 'together', transfer: undefined },
  { name: 'apart, 64 GB/s', transfer: FAST },
  { name: 'apart, 64 GB/s, conditional', transfer: { ...FAST, stay: STAY } },
  { name: 'apart, 64 GB/s, auto', transfer: { ...FAST, stay: 'auto' } },
  { name: 'apart, 10 Gbit/s', transfer: SLOW },
  { name: 'apart, 10 Gbit/s, conditional', transfer: { ...SLOW, stay: STAY } },
  { name: 'apart, 10 Gbit/s, auto', transfer: { ...SLOW, stay: 'auto' } },
]

export interface PoolsFleet {
  readonly prefill: number
  readonly decode: number
}

export const POOLS_FLEETS: readonly PoolsFleet[] = [
  { prefill: 1, decode: 3 },
  { prefill: 2, decode: 2 },
  { prefill: 3, decode: 1 },
  { prefill: 4, decode: 4 },
  { prefill: 6, decode: 2 },
]

export interface PoolsTraffic {
  readonly name: string
  readonly workload: Workload
}

export interface PoolsRow {
  readonly fleet: string
  readonly load: number
  readonly way: string
  /** By traffic. */
  readonly cells: readonly PoolsCell[]
}

/** Means over the seeds. */
export interface PoolsCell {
  readonly ttftMs: number
  readonly ttftP99Ms: number
  readonly itlMs: number
  readonly gapP99Ms: number
  readonly e2eMs: number
  readonly standard: number
}

export const POOLS_HEAD = (traffic: readonly string[]): string =>
  `| fleet | load | placement | ${traffic.join(' | ')} |\n|---|---:|---|${'---|'.repeat(traffic.length)}`

export async function poolsRows(
  runner: CellRunner,
  traffic: readonly PoolsTraffic[],
  fleets: readonly PoolsFleet[],
  seeds: number,
  loads: readonly number[] = LOADS,
): Promise<PoolsRow[]> {
  const rows: PoolsRow[] = []
  const capacities = new Map<string, number>()
  for (const fleet of fleets) {
    const workers = fleet.prefill + fleet.decode
    for (const load of loads) {
      for (const { name: way, transfer } of WAYS) {
        const pools = transfer === undefined ? undefined : { ...transfer, prefill: fleet.prefill }
        const cells = await Promise.all(
          traffic.map(async each => {
            const key = `${workers} ${each.name}`
            const capacity = capacities.get(key) ?? (await capacityOf(runner, each, workers))
            capacities.set(key, capacity)
            const seedNumbers = Array.from({ length: seeds }, (_, i) => i + 1)
            const change = { workers, speed: load * capacity, ...(pools !== undefined && { pools }) }
            return meanCell(
              await Promise.all(seedNumbers.map(seed => resultOf(runner, each, { ...change, seed }))),
            )
          }),
        )
        rows.push({ fleet: `${fleet.prefill}P${fleet.decode}D`, load, way, cells })
      }
    }
  }
  return rows
}

async function resultOf(
  runner: CellRunner,
  { workload }: PoolsTraffic,
  change: Pick<CellSpec, 'workers' | 'speed' | 'seed' | 'pools'>,
): Promise<CellResult> {
  const binMs = await detectBinMs(workload)
  const spec: CellSpec = {
    profile: 'h100-8b',
    copies: 1,
    blockTokens: 512,
    routers: 1,
    view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
    selection: { policy: 'auto' },
    knowsOutput: false,
    stretch: 1,
    warmupShare: 0.1,
    ...(binMs > 0 && { spread: { binMs, jitterShare: 0.2 } }),
    ...change,
  }
  return (await runner.run(workload, spec)).result
}

async function capacityOf(runner: CellRunner, traffic: PoolsTraffic, workers: number): Promise<number> {
  const { speed } = await searchCapacity(GUESS, async speed => {
    const { goodput } = await resultOf(runner, traffic, { workers, speed, seed: 1 })
    return goodput.standard
  })
  return speed
}

function meanCell(results: readonly CellResult[]): PoolsCell {
  const mean = (of: (result: CellResult) => number): number =>
    results.reduce((sum, result) => sum + of(result), 0) / results.length
  return {
    ttftMs: mean(({ ttftMs }) => ttftMs.mean),
    ttftP99Ms: mean(({ ttftMs }) => ttftMs.p99),
    itlMs: mean(({ itlMs }) => itlMs.mean),
    gapP99Ms: mean(({ gapMs }) => gapMs.p99),
    e2eMs: mean(({ e2eMs }) => e2eMs.mean),
    standard: mean(({ goodput }) => goodput.standard),
  }
}

/** The lowest mean E2E among the placements of one fleet and load is bold. */
export function renderPools(rows: readonly PoolsRow[]): string {
  return rows
    .map(row => {
      const rivals = rows.filter(({ fleet, load }) => fleet === row.fleet && load === row.load)
      const cells = row.cells.map((cell, i) => {
        const best = Math.min(...rivals.map(({ cells }) => cells[i]!.e2eMs))
        const e2e = `${seconds(cell.e2eMs)}`
        return [
          `${seconds(cell.ttftMs)} · ${seconds(cell.ttftP99Ms)}`,
          `${cell.itlMs.toFixed(1)} · ${cell.gapP99Ms.toFixed(0)}`,
          cell.e2eMs === best ? `**${e2e}**` : e2e,
          (100 * cell.standard).toFixed(1),
        ].join(' · ')
      })
      return `| ${row.fleet} | ${Math.round(100 * row.load)} % | ${row.way} | ${cells.join(' | ')} |`
    })
    .join('\n')
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(ms < 10_000 ? 2 : 1)
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      smoke: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '2' },
      requests: { type: 'string', default: '2000' },
    },
  })
  if (values.write && values.smoke) throw new Error('cannot write a smoke run: leave out --smoke, or --write')
  const seeds = givenFigure('seeds', values.seeds, 1)
  const requests = givenFigure('requests', values.requests, 1)
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
  process.once('SIGINT', () => void runner.stop())
  try {
    const traffic: PoolsTraffic[] = []
    if (values.smoke) {
      const workload = await parseWorkload('generator:sessions?loop=open', 300)
      traffic.push({ name: 'generated', workload })
    } else {
      for (const name of Object.keys(TRACES) as TraceName[])
        traffic.push({ name, workload: await traceWorkload(name, requests) })
    }
    const rows: PoolsRow[] = []
    for (const fleet of values.smoke ? POOLS_FLEETS.slice(0, 1) : POOLS_FLEETS) {
      const done = await poolsRows(runner, traffic, [fleet], seeds, values.smoke ? [0.5] : LOADS)
      console.error(renderPools(done))
      rows.push(...done)
    }
    const table = `${POOLS_HEAD(traffic.map(({ name }) => name))}\n${renderPools(rows)}`
    if (values.write) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, POOLS_MARKS))
    else console.log(table)
  } finally {
    await runner.stop()
  }
}
