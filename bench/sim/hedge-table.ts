/**
 * When a second worker for a late first token pays: the table of docs/reliability.md. `pnpm exec node
 * bench/sim/hedge-table.ts --write` writes it; without --write it is printed. `--requests N` takes N of
 * the trace, `--seeds N`; `--smoke` is a small generated cell. Results are kept in .cache/bench-sim.
 *
 * Eight workers (h100-8b), the conversation trace. A load is a share of the highest speed at which `auto`
 * keeps 95 % of the requests inside tier standard on a fleet that is well, with the first seed.
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
  parseWorkload,
  ResultStore,
  searchCapacity,
  type Workload,
} from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { traceWorkload } from './traces-by-name.ts'

export const HEDGE_MARKS = marksOf('hedge')
const PAGE = fileURLToPath(new URL('../../docs/reliability.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
const GUESS = 2
const CHATS = 'generator:sessions?loop=open'
const WORKERS = 8
export const HEDGE_LOADS = [0.4, 0.85]
/** One of the workers at a time stands still. */
const stalls = (everyMs: number, forMs: number) =>
  Array.from({ length: 400 }, (_, i) => ({ worker: (i * 3) % WORKERS, atMs: 10_000 + everyMs * i, forMs }))

interface Fleet {
  readonly name: string
  readonly change: Pick<CellSpec, 'slow' | 'stalls'>
}

export const HEDGE_FLEETS: readonly Fleet[] = [
  { name: 'well', change: {} },
  { name: 'one stands still for 5 s, every 20 s', change: { stalls: stalls(20_000, 5000) } },
  { name: 'one stands still for 60 s, every 120 s', change: { stalls: stalls(120_000, 60_000) } },
  { name: 'one is five times as slow', change: { slow: { share: 0, factor: 5, worker: 0 } } },
]

const HEDGES: readonly (readonly [name: string, hedge: CellSpec['hedge']])[] = [
  ['off', undefined],
  ['auto, 200 ms', { afterMs: 200, rule: 'auto', budgetShare: 0.2 }],
  ['fixed, 1 s', { afterMs: 1000, rule: 'fixed', budgetShare: 0.2 }],
  ['fixed, 200 ms, budget 1', { afterMs: 200, rule: 'fixed', budgetShare: 1 }],
]

/** Means over the seeds. */
export interface HedgeRow {
  readonly traffic: string
  readonly fleet: string
  readonly load: number
  readonly hedge: string
  readonly ttftMs: number
  readonly ttftP99Ms: number
  readonly e2eMs: number
  /** Of all requests: asked twice, and of those the share in which the second worker was quicker. */
  readonly hedgedShare: number
  readonly wonShare: number
  /** Of all requests: late, and no second worker was asked, for want of budget or of one that fits. */
  readonly unaskedShare: number
  /** Prompt tokens computed, over those without hedges. */
  readonly prefill: number
}

export const HEDGE_HEAD =
  '| traffic | fleet | load | second worker | TTFT mean · p99 s | E2E s | asked twice | the second was quicker | late, not asked twice | tokens computed |\n|---|---|---:|---|---:|---:|---:|---:|---:|---:|'

export async function hedgeRows(
  runner: CellRunner,
  workload: Workload,
  seeds: number,
  fleets = HEDGE_FLEETS,
  loads: readonly number[] = HEDGE_LOADS,
): Promise<readonly HedgeRow[]> {
  const { speed: capacity } = await searchCapacity(GUESS, async speed => {
    const { goodput } = await resultOf(runner, workload, { speed, seed: 1 })
    return goodput.standard
  })
  const rows: HedgeRow[] = []
  for (const { name: fleet, change } of fleets)
    for (const load of loads) {
      let plain = 0
      for (const [name, hedge] of HEDGES) {
        const results = await Promise.all(
          Array.from({ length: seeds }, (_, i) =>
            resultOf(runner, workload, {
              ...change,
              speed: load * capacity,
              seed: i + 1,
              ...(hedge === undefined ? {} : { hedge }),
            }),
          ),
        )
        const mean = (of: (result: CellResult) => number): number =>
          results.reduce((sum, result) => sum + of(result), 0) / results.length
        const prefill = mean(({ prefillTokens }) => prefillTokens)
        if (hedge === undefined) plain = prefill
        const asked = mean(({ hedges }) => (hedges?.won ?? 0) + (hedges?.lost ?? 0))
        rows.push({
          ...{ traffic: workload.name, fleet, load, hedge: name },
          ttftMs: mean(({ withWarmup }) => withWarmup.ttftMs.mean),
          ttftP99Ms: mean(({ withWarmup }) => withWarmup.ttftMs.p99),
          e2eMs: mean(({ withWarmup }) => withWarmup.e2eMs.mean),
          hedgedShare: asked / mean(({ withWarmup }) => withWarmup.requests),
          unaskedShare:
            mean(({ hedges }) => (hedges?.notPlaced ?? 0) + (hedges?.overBudget ?? 0)) /
            mean(({ withWarmup }) => withWarmup.requests),
          wonShare: asked === 0 ? 0 : mean(({ hedges }) => hedges?.won ?? 0) / asked,
          prefill: prefill / plain,
        })
      }
    }
  return rows
}

/** The lowest p99 of one fleet and load is bold. */
export function renderHedges(rows: readonly HedgeRow[]): string {
  return rows
    .map(row => {
      const rivals = rows.filter(
        ({ traffic, fleet, load }) => traffic === row.traffic && fleet === row.fleet && load === row.load,
      )
      const best = Math.min(...rivals.map(({ ttftP99Ms }) => ttftP99Ms))
      const p99 = seconds(row.ttftP99Ms)
      const cells = [
        `${seconds(row.ttftMs)} · ${row.ttftP99Ms === best ? `**${p99}**` : p99}`,
        seconds(row.e2eMs),
        `${(100 * row.hedgedShare).toFixed(1)} %`,
        row.hedgedShare === 0 ? '–' : `${(100 * row.wonShare).toFixed(0)} %`,
        `${(100 * row.unaskedShare).toFixed(1)} %`,
        `× ${row.prefill.toFixed(3)}`,
      ]
      return `| ${row.traffic} | ${row.fleet} | ${Math.round(100 * row.load)} % | ${row.hedge} | ${cells.join(' | ')} |`
    })
    .join('\n')
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(2)
}

async function resultOf(
  runner: CellRunner,
  workload: Workload,
  change: Pick<CellSpec, 'speed' | 'seed' | 'slow' | 'stalls' | 'hedge'>,
): Promise<CellResult> {
  const binMs = await detectBinMs(workload)
  const spec: CellSpec = {
    workers: WORKERS,
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

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      smoke: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '2' },
      requests: { type: 'string', default: '3000' },
    },
  })
  if (values.write && values.smoke) throw new Error('cannot write a smoke run: leave out --smoke, or --write')
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
    const seeds = givenFigure('seeds', values.seeds, 1)
    const requests = givenFigure('requests', values.requests, 1)
    const chats = { ...(await parseWorkload(CHATS, values.smoke ? 300 : requests)), name: 'short chats' }
    const rows = [...(await hedgeRows(runner, chats, seeds))]
    // Its prompts are long: what is asked for twice would be computed twice.
    if (!values.smoke) {
      const long = await traceWorkload('conversation', requests)
      rows.push(...(await hedgeRows(runner, long, seeds, HEDGE_FLEETS.slice(0, 2))))
    }
    const table = `${HEDGE_HEAD}\n${renderHedges(rows)}`
    if (values.write) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, HEDGE_MARKS))
    else console.log(table)
  } finally {
    await runner.stop()
  }
}
