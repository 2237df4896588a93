/**
 * What a placement that knows all can do where auto misses a bound of the judgement: the mean time to the
 * last byte and the 99th percentile to the first token that it has with copies at several prices, beside the
 * best fixed rule in each. A table for docs/records/routing-quality.md.
 * `pnpm exec node bench/sim/bound-table.ts --write` writes it; without --write it is printed. `--only TEXT`
 * prints the cells whose names have it.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { openWorkload, parseColumn, placeKnowingAll, simulateCell } from '@homing/simulate'
import { givenCount } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { judgedPlaces, type Place, RIVALS } from './judgement-cells.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
export const BOUND_MARKS = marksOf('bound')
/** Places of the judgement where auto misses a bound; their loads are shares of the capacity there. */
const CELLS = [
  { fleet: 'F8', traffic: 'groups', capacitySpeed: 4.06, loadShares: [0.1, 0.5, 0.85] },
  { fleet: 'F8', traffic: 'sessions', capacitySpeed: 16, loadShares: [0.1] },
] as const
/** A bound of the judgement for fixed loads. */
const BOUND = 1.01
const COPY_MS = [300, 1000, 2000, 6000, Number.POSITIVE_INFINITY]

export interface BoundRow {
  readonly cell: string
  readonly name: string
  /** By seed, as ratios to the best rule in the metric. */
  readonly e2e: readonly number[]
  readonly p99: readonly number[]
  /** Copies after the warm-up, in % of the requests; NaN: not counted. */
  readonly copied: readonly number[]
}

interface Figures {
  readonly e2eMs: { readonly mean: number }
  readonly ttftMs: { readonly p99: number }
}

/** The rows of a place at a load. */
export async function boundRows(
  { workload, spec }: Place,
  cell: string,
  speed: number,
  seeds: readonly number[],
  copyMs: readonly number[] = COPY_MS,
): Promise<BoundRow[]> {
  const rows = new Map<string, { e2e: number[]; p99: number[]; copied: number[] }>()
  for (const seed of seeds) {
    const given = { ...spec, speed, seed }
    const rules = new Map<string, Figures>()
    for (const column of [...RIVALS, 'auto']) {
      const cell = { ...given, selection: parseColumn(column).selection }
      rules.set(column, (await simulateCell(cell, openWorkload(workload, cell))).result)
    }
    const fixed = RIVALS.map(column => rules.get(column)!)
    const e2eBest = Math.min(...fixed.map(({ e2eMs }) => e2eMs.mean))
    const p99Best = Math.min(...fixed.map(({ ttftMs }) => ttftMs.p99))
    const add = (name: string, { e2eMs, ttftMs }: Figures, copied: number): void => {
      const row = rows.get(name) ?? { e2e: [], p99: [], copied: [] }
      rows.set(name, row)
      row.e2e.push(e2eMs.mean / e2eBest)
      row.p99.push(ttftMs.p99 / p99Best)
      row.copied.push(copied)
    }
    for (const name of ['threshold', 'product', 'auto']) add(name, rules.get(name)!, Number.NaN)
    for (const price of copyMs) {
      const cell = { ...given, selection: {} }
      const run = await placeKnowingAll(cell, openWorkload(workload, cell), price)
      add(
        `knows all, ${price === Number.POSITIVE_INFINITY ? 'no copies' : `${price} ms a copy`}`,
        run,
        run.copied / run.requests,
      )
    }
  }
  return [...rows].map(([name, row]) => ({ cell, name, ...row }))
}

export function renderBound(rows: readonly BoundRow[]): string {
  return [
    '| cell | placement | mean E2E | p99 TTFT | copies | both within 1 % |',
    '|---|---|---|---|---:|---|',
    ...rows.map(({ cell, name, e2e, p99, copied }) => {
      const share = mean(copied)
      const copies = Number.isNaN(share) ? '–' : `${(100 * share).toFixed(2)} %`
      const isWithin = mean(e2e) <= BOUND && mean(p99) <= BOUND
      return `| ${[cell, name, rangeOf(e2e), rangeOf(p99), copies, isWithin ? 'yes' : 'no'].join(' | ')} |`
    }),
  ].join('\n')
}

/** The mean, and from the lowest to the highest of the seeds. */
function rangeOf(values: readonly number[]): string {
  return `${mean(values).toFixed(3)} (${Math.min(...values).toFixed(3)} … ${Math.max(...values).toFixed(3)})`
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: '2' },
      'first-seed': { type: 'string', default: '1' },
      only: { type: 'string' },
    },
  })
  const first = givenCount('first-seed', values['first-seed'])
  const seeds = Array.from({ length: givenCount('seeds', values.seeds) }, (_, i) => first + i)
  const places = await judgedPlaces(false)
  const rows: BoundRow[] = []
  for (const { fleet, traffic, capacitySpeed, loadShares } of CELLS) {
    const place = places.find(
      each => each.kind === 'loads' && each.fleet === fleet && each.traffic === traffic,
    )!
    for (const share of loadShares) {
      const cell = `${fleet} ${traffic} ${Math.round(100 * share)} %`
      if (values.only !== undefined && !cell.includes(values.only)) continue
      rows.push(...(await boundRows(place, cell, share * capacitySpeed, seeds)))
      console.error(renderBound(rows))
    }
  }
  const table = renderBound(rows)
  if (values.write) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), table, BOUND_MARKS))
  else console.log(table)
}
