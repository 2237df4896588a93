/**
 * The fixed policies on three traces, two fleets and three loads: the table of
 * docs/records/routing-quality.md. `pnpm exec node bench/sim/policy-table.ts --write` writes it; without
 * --write it is printed. `--seeds N`, `--fleets F8,F64`.
 *
 * A load is a share of the capacity, at tier standard, of the policy that has the highest one in that fleet
 * and on that trace. Results are kept in .cache/bench-sim, so that a run that was stopped goes on, and a
 * changed policy runs its own column only.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { systemClock } from '@homing/base'
import {
  type CellRun,
  CellRunner,
  detectBinMs,
  FIXED_COLUMNS,
  FLEET_NAMES,
  FLEETS,
  type FleetName,
  parseColumn,
  ResultStore,
  runSweep,
  type Summary,
  type SummaryRow,
  type SweepWorkload,
  summarize,
} from '@homing/simulate'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { TRACES, type TraceName, traceWorkload } from './traces-by-name.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
export const MARKS = marksOf('policies')
const LOAD_SHARES = [0.5, 0.85, 1.1]
const GUESS: Readonly<Record<string, number>> = { F8: 3, F64: 24 }
const JITTER_SHARE = 0.2

/** The lines of the table: a row for each fleet, load and policy, a column for each trace. */
export function renderPolicies(summaries: ReadonlyMap<FleetName, Summary>): string {
  const names = Object.keys(TRACES)
  const lines = [
    `| fleet | load | policy | ${names.join(' | ')} |`,
    `|---|---:|---|${names.map(() => '---').join('|')}|`,
  ]
  for (const [fleet, { workloads, columns }] of summaries) {
    const capacity = names.map(name => {
      const best = workloads
        .find(({ workload }) => workload === name)
        ?.capacities.toSorted((a, b) => b.mean - a.mean)[0]
      return best === undefined ? '–' : `speed ${Number(best.mean.toPrecision(3))} (${best.column})`
    })
    lines.push(`| ${fleet} | 100 % | *capacity of the best* | ${capacity.join(' | ')} |`)
    for (const share of LOAD_SHARES) {
      const rowsOf = names.map(
        name =>
          workloads
            .find(({ workload }) => workload === name)
            ?.points.find(({ loadShare }) => loadShare !== undefined && Math.abs(loadShare - share) < 1e-9)
            ?.rows ?? [],
      )
      for (const column of columns) {
        const cells = rowsOf.map(rows => cellText(rows, column))
        lines.push(`| ${fleet} | ${Math.round(share * 100)} % | ${column} | ${cells.join(' | ')} |`)
      }
    }
  }
  return lines.join('\n')
}

/** 'TTFT mean ± · p99 · hit rate · share inside tier standard'; the lowest mean in bold. */
function cellText(rows: readonly SummaryRow[], column: string): string {
  const row = rows.find(each => each.column === column)
  if (row === undefined) return '–'
  const { ttftMean, ttftP99, hitRate, standard } = row.figures
  const isBest = rows.every(({ figures }) => figures.ttftMean.mean >= ttftMean.mean)
  const interval = ttftMean.halfWidth === undefined ? '' : ` ± ${seconds(ttftMean.halfWidth)}`
  const mean = `${seconds(ttftMean.mean)}${interval}`
  return `${isBest ? `**${mean}**` : mean} · ${seconds(ttftP99.mean)} · ${(100 * hitRate.mean).toFixed(1)} · ${(100 * standard.mean).toFixed(1)}`
}

function seconds(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

async function sweepOf(fleet: FleetName, seeds: number): Promise<Summary> {
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
  const told = setInterval(() => {
    const { cellsDone, cellsExpected, leftMs } = runner.progress
    const left = leftMs === undefined ? '' : `, ${Math.ceil(leftMs / 60_000)} min left`
    console.error(`${fleet}: ${cellsDone} of ${cellsExpected} cells${left}`)
  }, 30_000)
  try {
    const workloads: SweepWorkload[] = []
    for (const name of Object.keys(TRACES) as TraceName[]) {
      const workload = await traceWorkload(name)
      const binMs = await detectBinMs(workload)
      const { workers, profile, copies } = FLEETS[fleet]
      workloads.push({
        workload,
        speeds: [],
        speedGuess: GUESS[fleet] ?? workers / 3,
        spec: {
          workers,
          profile,
          copies,
          blockTokens: 512,
          routers: 1,
          view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
          knowsOutput: false,
          stretch: 1,
          warmupShare: 0.1,
          ...(binMs > 0 && { spread: { binMs, jitterShare: JITTER_SHARE } }),
        },
      })
    }
    const plan = {
      workloads,
      columns: FIXED_COLUMNS.map(parseColumn),
      seeds: Array.from({ length: seeds }, (_, i) => i + 1),
      loadShares: LOAD_SHARES,
    }
    return summarize(await runSweep(plan, runner), FIXED_COLUMNS)
  } finally {
    clearInterval(told)
    await runner.stop()
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '5' },
      fleets: { type: 'string', default: 'F8,F64' },
    },
  })
  const seeds = givenFigure('seeds', values.seeds, 1)
  const summaries = new Map<FleetName, Summary>()
  for (const name of values.fleets.split(',')) {
    const fleet = FLEET_NAMES.find(each => each === name)
    if (fleet === undefined)
      throw new Error(`cannot run: there is no fleet ${name}; use ${FLEET_NAMES.join(', ')}`)
    const summary = await sweepOf(fleet, seeds)
    summaries.set(fleet, summary)
    if (!summary.isComplete) break
  }
  const table = renderPolicies(summaries)
  const isComplete = [...summaries.values()].every(summary => summary.isComplete)
  if (values.write && isComplete) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, MARKS))
  else console.log(table)
}
