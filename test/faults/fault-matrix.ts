/**
 * The fault matrix: the effect of each fault on the knowledge of an engine, by kind of engine.
 *
 *   ├─ traffic ─┼─ fault ─┼─ traffic, and a look at trust, index and cache every LOOK_MS ─┤
 *
 * One engine with a cache that is too small for its traffic, so that blocks are evicted all the time, behind
 * the whole router in a simulation. `pnpm exec node test/faults/fault-matrix.ts --write` runs every cell with
 * SEEDS seeds and writes the table into docs/reliability.md; each cell shows the worst of its seeds. Where
 * python3 has vLLM, it does the same for vllm-matrix.ts. `--only 'life matrix'` makes one of the tables.
 */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process, { argv, stdout } from 'node:process'
import { seededRandom } from '@homing/base'
import type { EngineSettings } from '@homing/engine'
import type { Trust } from '@homing/index'
import { createPublisher } from '@homing/publisher'
import { BLOCK_SIZE_TOKENS, type SimulatedFleet } from '../simulation/simulated-fleet.ts'
import type { Row } from './fault-row.ts'
import type { Seen } from './looks.ts'
import { LIFE_ROWS, StoredCheckpoints, UNTOLD_ROWS } from './mistaken-lives.ts'
import { ObservedFleet, type ObservedOptions } from './observed-fleet.ts'
import {
  canHappenInPool,
  POOL_COLUMNS,
  POOL_LIFE_ROWS,
  POOL_ROWS,
  type PoolRow,
  runPoolCell,
} from './vllm-matrix.ts'
import { hasVllm, PoolProcess } from './vllm-pool.ts'

export interface Column {
  readonly name: string
  readonly engine: Partial<EngineSettings>
  readonly hasSidecar?: boolean
  /** The engine publishes no events. */
  readonly isGuessed?: boolean
  /** The router follows the stream at the broker, in which the engine publishes. */
  readonly hasStream?: boolean
}

const SEEDS = 5
/** Seeds of the tables of mistaken lives, and the time that the cache has to fill. */
const LIFE_SEEDS = 2
export const LIFE_WARM_MS = 2500
/** Of vLLM's own pool and publisher. */
const POOL_SEED = 1
const WARM_MS = 6500
const WATCH_MS = 6000
const BROKER = '10.9.9.9:4222'
const STREAM = 'homing-kv-default'
const CONTEST_MS = 1000
const ENGINE: Partial<EngineSettings> = { blocks: 40, replayBatchesMax: 10_000 }

export const COLUMNS: readonly Column[] = [
  { name: 'vLLM, replay', engine: {} },
  { name: 'vLLM, no replay', engine: { offersReplay: false } },
  { name: 'SGLang', engine: { eventForm: 'sglang-map', isClearLate: false } },
  { name: 'vLLM, sidecar', engine: { offersReplay: false }, hasSidecar: true },
  { name: 'vLLM, replay, NATS', engine: { nats: [BROKER] } },
  {
    name: 'vLLM, JetStream',
    engine: { nats: [BROKER], durableKvEvents: true, replayBatchesMax: 4 },
    hasStream: true,
  },
  { name: 'approximate', engine: {}, isGuessed: true },
]

/** Of the tables of mistaken lives, in which a stream is one more broker. */
export const EVENT_COLUMNS: readonly Column[] = COLUMNS.filter(
  ({ isGuessed, hasStream }) => isGuessed !== true && hasStream !== true,
)

/** Whether the fault can happen there at all. */
export function canHappen(column: Column, { needs }: Row): boolean {
  if (needs === 'sidecar') return column.hasSidecar === true
  if (needs === 'stream') return column.hasStream === true
  if (needs === 'broker') return column.engine.nats !== undefined
  if (needs === 'ports')
    return (
      column.engine.offersReplay !== false && column.engine.nats === undefined && column.isGuessed !== true
    )
  // A sidecar asks its engine for no replay.
  if (needs === 'replay') return column.engine.offersReplay !== false && column.isGuessed !== true
  if (needs === 'vLLM') return column.engine.eventForm === undefined && column.isGuessed !== true
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
  {
    name: 'engine restart, its last word lost',
    needs: 'broker',
    deal: ({ fleet }) => {
      const { engine, events: endpoint } = fleet.engines[0]!
      let isLost = false
      // The next one to say something there is the engine, as it ends.
      fleet.network.faults.message = place => {
        if (isLost || place !== `${endpoint}.beats`) return 'deliver'
        isLost = true
        return 'drop'
      }
      void engine.restart(200)
    },
  },
  {
    name: 'another publisher under its subject, for a second',
    needs: 'broker',
    healsMs: CONTEST_MS + 1000,
    deal: contest,
  },
  {
    name: 'another publisher that answers questions, for a second',
    needs: 'broker',
    healsMs: CONTEST_MS + 1000,
    deal: observed => {
      cut(observed.fleet, observed.fleet.engines[0]!.events)
      return contest(observed)
    },
  },
  {
    name: 'the stream takes nothing, for a second',
    needs: 'stream',
    deal: ({ fleet: { network, simulation } }) => {
      network.faults.message = place => (place.includes('/homing-kv.') ? 'refuse' : 'deliver')
      simulation.clock.after(1000, () => {
        network.faults.message = undefined
      })
    },
  },
  {
    name: 'the stream does not answer, for a second',
    needs: 'stream',
    // A publisher waits two seconds for the answer.
    healsMs: 3500,
    deal: ({ fleet: { network, simulation } }) => {
      network.faults.message = place => (place.includes('/homing-kv.') ? 'drop' : 'deliver')
      simulation.clock.after(1000, () => {
        network.faults.message = undefined
      })
    },
  },
  {
    name: 'the stream is deleted',
    needs: 'stream',
    deal: ({ fleet }) => fleet.network.streamsAt(BROKER).delete(STREAM),
  },
  {
    name: 'its consumers are deleted',
    needs: 'stream',
    deal: ({ fleet }) => fleet.network.streamsAt(BROKER).deleteConsumers(STREAM),
  },
  {
    name: 'messages of another program in the stream',
    needs: 'stream',
    deal: ({ fleet: { network, engines } }) => {
      const subject = engines[0]!.events.split('/').at(-1)!
      for (let i = 0; i < 50; i++)
        network.streamsAt(BROKER).store(`homing-kv.default.${subject}`, Buffer.from(`noise ${i}`))
    },
  },
  {
    name: 'the stream is emptied, and the router restarts',
    needs: 'stream',
    deal: async observed => {
      observed.fleet.network.streamsAt(BROKER).delete(STREAM)
      await observed.fleet.stopRouter()
      await observed.workPastRouter(300)
      observed.begin(true)
      await observed.fleet.startRouter()
    },
  },
]

/** A second process publishes its own blocks under the engine's subject, and answers requests there. */
async function contest({ fleet }: ObservedFleet): Promise<void> {
  const { network, simulation, engines } = fleet
  const endpoint = engines[0]!.events
  const transport = network.transport()
  const publisher = await simulation.settle(
    createPublisher({
      clock: simulation.clock,
      random: seededRandom(7),
      messages: transport.messages,
      eventsEndpoint: endpoint,
      replayEndpoint: endpoint,
      blockSizeTokens: BLOCK_SIZE_TOKENS,
    }),
  )
  let hash = 1n
  const publish = (): void => {
    const tokens = Array.from({ length: BLOCK_SIZE_TOKENS }, (_, i) => Number(hash) + i)
    publisher.stored(undefined, [{ hash: hash++, tokens }])
  }
  for (let i = 0; i < 100; i++) simulation.clock.after(10 * i, publish)
  simulation.clock.after(CONTEST_MS, () => {
    void publisher.close().then(() => transport.close())
  })
}

function cut({ network, simulation }: SimulatedFleet, endpoint: string): void {
  network.disconnect(endpoint)
  simulation.clock.after(500, () => network.reconnect(endpoint))
}

function loseBehindSidecar({ fleet, sidecar }: ObservedFleet, batches: number): void {
  let left = batches
  fleet.network.faults.message = place => (place === sidecar.endpoint && left-- > 0 ? 'drop' : 'deliver')
}

export interface CellOptions extends ObservedOptions {
  /** For how long there is traffic before, and looking after. */
  readonly warmMs?: number
  readonly watchMs?: number
}

/** One cell, with one seed. */
export async function runCell(
  seed: number,
  column: Column,
  row: Row,
  { warmMs = WARM_MS, watchMs = WATCH_MS, ...options }: CellOptions = {},
): Promise<Seen> {
  const { hasSidecar = false, isGuessed = false, hasStream = false } = column
  const { sidecarBatchesMax, hasCheckpoints = false } = row
  const observed = await ObservedFleet.start(
    seed,
    { ...ENGINE, ...column.engine, ...row.engine },
    {
      hasSidecar,
      isGuessed,
      hasStream,
      ...(sidecarBatchesMax === undefined ? {} : { sidecarBatchesMax }),
      ...(hasCheckpoints ? { checkpoints: new StoredCheckpoints() } : {}),
      ...row.observed,
      ...options,
    },
  )
  if (row.isThereAtStart === true) observed.begin(true)
  else {
    observed.beginTraffic()
    await observed.run(warmMs)
    observed.endTraffic()
    observed.begin()
  }
  await row.deal(observed)
  observed.beginTraffic()
  await observed.lookFor(watchMs)
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

interface SimulatedTableOptions {
  readonly columns: readonly Column[]
  readonly rows: readonly Row[]
  readonly seeds?: number
  readonly warmMs?: number
}

const namesOf = (all: readonly { readonly name: string }[]): string[] => all.map(({ name }) => name)

function simulatedTable(
  mark: string,
  { columns, rows, seeds = LIFE_SEEDS, warmMs = LIFE_WARM_MS }: SimulatedTableOptions,
): Promise<Table> {
  return table(mark, namesOf(columns), namesOf(rows), async (rowNumber, columnNumber) => {
    const [row, column] = [rows[rowNumber]!, columns[columnNumber]!]
    if (!canHappen(column, row)) return row.needs === 'events' ? 'no events: nothing to lose' : '–'
    const outcomes: Seen[] = []
    for (let seed = 1; seed <= seeds; seed++) outcomes.push(await runCell(seed, column, row, { warmMs }))
    return cellText(worstOf(outcomes))
  })
}

async function vllmTable(mark: string, rows: readonly PoolRow[]): Promise<Table> {
  const pool = await PoolProcess.open()
  try {
    return await table(mark, namesOf(POOL_COLUMNS), namesOf(rows), async (rowNumber, columnNumber) => {
      const [row, column] = [rows[rowNumber]!, POOL_COLUMNS[columnNumber]!]
      if (!canHappenInPool(column, row)) return '–'
      return cellText(await runPoolCell(pool, POOL_SEED, column, row))
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
  const only = argv.filter((_, i) => argv[i - 1] === '--only')
  const isWanted = (mark: string): boolean => only.length === 0 || only.includes(mark)
  const tables: Table[] = []
  const simulated: readonly (readonly [mark: string, SimulatedTableOptions])[] = [
    ['fault matrix', { columns: COLUMNS, rows: ROWS, seeds: SEEDS, warmMs: WARM_MS }],
    ['life matrix', { columns: EVENT_COLUMNS, rows: LIFE_ROWS }],
    ['untold matrix', { columns: EVENT_COLUMNS, rows: UNTOLD_ROWS }],
  ]
  for (const [mark, options] of simulated) {
    if (isWanted(mark)) tables.push(await simulatedTable(mark, options))
  }
  if (!hasVllm()) stdout.write("vLLM's own pool and publisher are left out: python3 has no vLLM\n")
  else {
    if (isWanted('vLLM matrix')) tables.push(await vllmTable('vLLM matrix', POOL_ROWS))
    if (isWanted('vLLM life matrix')) tables.push(await vllmTable('vLLM life matrix', POOL_LIFE_ROWS))
  }
  if (argv.includes('--write')) for (const made of tables) write(made)
  process.exit(0)
}
