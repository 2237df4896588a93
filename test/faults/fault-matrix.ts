/**
 * The fault matrix: what each fault does to what is known of an engine, by kind of engine.
 *
 *   ├─ traffic ─┼─ fault ─┼─ traffic, and a look at trust, index and cache every LOOK_MS ─┤
 *
 * One engine with a cache that is too small for its traffic, so that blocks are evicted all the time, behind the whole router in
 * a simulation. `node test/faults/fault-matrix.ts --write` runs every cell with SEEDS seeds and writes the table into
 * docs/reliability.md; each cell shows the worst of its seeds. Where python3 has vLLM, it does the same for vllm-matrix.ts.
 * `--no-simulation` and `--no-vllm` leave one of them as it is.
 */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process, { argv, stdout } from 'node:process'
import type { EngineSettings } from '@homing/testkit'
import type { SimulatedFleet } from '../simulation/simulated-fleet.ts'
import type { Seen, Trust } from './looks.ts'
import { ObservedFleet, type ObservedOptions } from './observed-fleet.ts'
import { POOL_COLUMNS, POOL_ROWS, runPoolCell } from './vllm-matrix.ts'
import { hasVllm, PoolProcess } from './vllm-pool.ts'

export interface Column {
  readonly name: string
  readonly engine: Partial<EngineSettings>
  readonly hasSidecar?: boolean
  /** The engine publishes no events. */
  readonly isGuessed?: boolean
}

export interface Row {
  readonly name: string
  readonly engine?: Partial<EngineSettings>
  readonly sidecarBatchesMax?: number
  /** What it takes to happen; by default an engine and a router. */
  readonly needs?: 'events' | 'sidecar'
  readonly deal: (observed: ObservedFleet) => void | Promise<void>
}

const SEEDS = 5
/** Of vLLM's own pool and publisher. */
const POOL_SEED = 1
const WARM_MS = 6500
const WATCH_MS = 6000
const ENGINE: Partial<EngineSettings> = { blocks: 40, replayBatchesMax: 10_000 }

export const COLUMNS: readonly Column[] = [
  { name: 'vLLM, replay', engine: {} },
  { name: 'vLLM, no replay', engine: { offersReplay: false } },
  { name: 'SGLang', engine: { eventForm: 'sglang-map', isClearLate: false } },
  { name: 'vLLM, sidecar', engine: { offersReplay: false }, hasSidecar: true },
  { name: 'approximate', engine: {}, isGuessed: true },
]

/** Whether the fault can happen there at all. */
export function canHappen(column: Column, { needs }: Row): boolean {
  if (needs === 'sidecar') return column.hasSidecar === true
  return needs === undefined || column.isGuessed !== true
}

const events =
  (faults: object) =>
  ({ fleet }: ObservedFleet): void =>
    fleet.engines[0]!.engine.setFaults({ events: faults })

export const ROWS: readonly Row[] = [
  {
    name: 'late join',
    deal: async observed => {
      const { fleet } = observed
      await fleet.stopRouter()
      await fleet.simulation.settle(fleet.engines[0]!.engine.restart())
      await observed.workPastRouter(1000)
      observed.begin(true)
      await fleet.startRouter()
    },
  },
  { name: 'gap', needs: 'events', deal: events({ drop: 3 }) },
  { name: 'buffer exceeded', needs: 'events', engine: { replayBatchesMax: 4 }, deal: events({ drop: 8 }) },
  { name: 'engine restart', deal: ({ fleet }) => void fleet.engines[0]!.engine.restart(200) },
  {
    name: 'router restart',
    deal: async observed => {
      await observed.fleet.stopRouter()
      await observed.workPastRouter(300)
      observed.begin(true)
      await observed.fleet.startRouter()
    },
  },
  { name: 'duplicated', needs: 'events', deal: events({ duplicate: 20 }) },
  { name: 'delayed', needs: 'events', deal: events({ delay: 1_000_000, delayMs: 80 }) },
  { name: 'reordered', needs: 'events', deal: events({ delay: 4, delayMs: 150 }) },
  {
    name: 'link down',
    deal: ({ fleet, isGuessed }) => {
      const { events: endpoint, url } = fleet.engines[0]!
      cut(fleet, isGuessed ? url : endpoint)
    },
  },
  {
    name: 'cache cleared',
    deal: async observed => {
      const { fleet } = observed
      await observed.idle()
      const reply = await fleet.ask({ origin: fleet.engines[0]!.url, path: '/reset_prefix_cache' })
      assert.equal(Buffer.from(reply.body).toString(), '{"success":true}')
      // The engine idles: one that publishes with its next step publishes nothing.
      await observed.lookFor(500)
    },
  },
  {
    name: 'gap behind the sidecar',
    needs: 'sidecar',
    deal: observed => loseBehindSidecar(observed, 3),
  },
  {
    name: 'buffer exceeded behind the sidecar',
    needs: 'sidecar',
    sidecarBatchesMax: 4,
    deal: observed => loseBehindSidecar(observed, 8),
  },
  {
    name: 'link down behind the sidecar',
    needs: 'sidecar',
    deal: ({ fleet, sidecar }) => cut(fleet, sidecar.endpoint),
  },
  { name: 'sidecar restart', needs: 'sidecar', deal: ({ sidecar }) => sidecar.restart() },
]

function cut({ network, simulation }: SimulatedFleet, endpoint: string): void {
  network.disconnect(endpoint)
  simulation.clock.after(500, () => network.reconnect(endpoint))
}

function loseBehindSidecar({ fleet, sidecar }: ObservedFleet, batches: number): void {
  let left = batches
  fleet.network.faults.message = place => (place === sidecar.endpoint && left-- > 0 ? 'drop' : 'deliver')
}

/** One cell, with one seed. */
export async function runCell(
  seed: number,
  column: Column,
  row: Row,
  options: ObservedOptions = {},
): Promise<Seen> {
  const { hasSidecar = false, isGuessed = false } = column
  const { sidecarBatchesMax } = row
  const observed = await ObservedFleet.start(
    seed,
    { ...ENGINE, ...column.engine, ...row.engine },
    {
      hasSidecar,
      isGuessed,
      ...(sidecarBatchesMax === undefined ? {} : { sidecarBatchesMax }),
      ...options,
    },
  )
  observed.beginTraffic()
  await observed.run(WARM_MS)
  observed.endTraffic()
  observed.begin()
  await row.deal(observed)
  observed.beginTraffic()
  await observed.lookFor(WATCH_MS)
  await observed.idle()
  const seen = await observed.seen()
  await observed.fleet.stop()
  return seen
}

const TRUSTS: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']

/** The worst of several seeds: of those that end with the least trust, the slowest. */
export function worstOf(outcomes: readonly Seen[]): Seen {
  const most = (of: (outcome: Seen) => number) => Math.max(...outcomes.map(of))
  const distrust = ({ trusts }: Seen) => TRUSTS.indexOf(trusts.at(-1)!)
  const [slowest] = outcomes.toSorted(
    (one, other) => distrust(other) - distrust(one) || other.healMs - one.healMs,
  ) as [Seen]
  return {
    healMs: slowest.healMs,
    staleExact: most(({ staleExact }) => staleExact),
    stale: most(({ stale }) => stale),
    unseen: most(({ unseen }) => unseen),
    trusts: slowest.trusts,
    missing: most(({ missing }) => missing),
    surplus: most(({ surplus }) => surplus),
    isAtRest: outcomes.every(({ isAtRest }) => isAtRest),
    reason: slowest.reason,
  }
}

function cellText({ healMs, staleExact, stale, unseen, trusts }: Seen): string {
  const figure = (value: number) => (value === 0 ? '0' : value.toFixed(2))
  const lies = staleExact > 0 ? `, **${figure(staleExact)} under exact**` : ''
  const before = unseen >= 0.005 ? ` (${figure(unseen)})` : ''
  return `${(healMs / 1000).toFixed(2)} s · ${figure(stale)}${before}${lies} · ${trusts.join(' → ')}`
}

const PATH = join(import.meta.dirname, '..', '..', 'docs', 'reliability.md')

interface Table {
  /** Its marks in the page. */
  readonly mark: string
  readonly text: string
}

async function table(
  mark: string,
  columns: readonly string[],
  rows: readonly string[],
  cell: (row: number, column: number) => Promise<string>,
): Promise<Table> {
  const lines = [`| | ${columns.join(' | ')} |`, `|---|${columns.map(() => '---|').join('')}`]
  for (const [row, name] of rows.entries()) {
    const cells: string[] = []
    for (const column of columns.keys()) cells.push(await cell(row, column))
    const line = `| ${name} | ${cells.join(' | ')} |`
    stdout.write(`${line}\n`)
    lines.push(line)
  }
  return { mark, text: lines.join('\n') }
}

const namesOf = (all: readonly { readonly name: string }[]): string[] => all.map(({ name }) => name)

function simulatedTable(): Promise<Table> {
  return table('fault matrix', namesOf(COLUMNS), namesOf(ROWS), async (rowNumber, columnNumber) => {
    const [row, column] = [ROWS[rowNumber]!, COLUMNS[columnNumber]!]
    if (!canHappen(column, row)) return row.needs === 'events' ? 'no events: nothing to lose' : '–'
    const outcomes: Seen[] = []
    for (let seed = 1; seed <= SEEDS; seed++) outcomes.push(await runCell(seed, column, row))
    return cellText(worstOf(outcomes))
  })
}

async function vllmTable(): Promise<Table> {
  const pool = await PoolProcess.open()
  try {
    return await table('vLLM matrix', namesOf(POOL_COLUMNS), namesOf(POOL_ROWS), async (row, column) => {
      return cellText(await runPoolCell(pool, POOL_SEED, POOL_COLUMNS[column]!, POOL_ROWS[row]!))
    })
  } finally {
    pool.close()
  }
}

function write({ mark, text }: Table): void {
  const [begin, end] = [`<!-- ${mark}: begin -->`, `<!-- ${mark}: end -->`]
  const page = readFileSync(PATH, 'utf8')
  const [before, after] = [page.split(begin)[0]!, page.split(end)[1]!]
  writeFileSync(PATH, `${before}${begin}\n${text}\n${end}${after}`)
  stdout.write(`wrote the ${mark} into ${PATH}\n`)
}

if (import.meta.main) {
  const isWanted = (name: string): boolean => !argv.includes(`--no-${name}`)
  const tables: Table[] = []
  if (isWanted('simulation')) tables.push(await simulatedTable())
  if (!hasVllm()) stdout.write("vLLM's own pool and publisher are left out: python3 has no vLLM\n")
  else if (isWanted('vllm')) tables.push(await vllmTable())
  if (argv.includes('--write')) for (const made of tables) write(made)
  process.exit(0)
}
