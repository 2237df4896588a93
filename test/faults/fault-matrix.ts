/**
 * The fault matrix: what each fault does to what is known of an engine, by kind of engine.
 *
 *   ├─ traffic ─┼─ fault ─┼─ traffic, and a look at trust, index and cache every LOOK_MS ─┤
 *
 * One engine with a cache that is too small for its traffic, so that blocks are evicted all the time, behind the whole router in
 * a simulation. `node test/faults/fault-matrix.ts --write` runs every cell with SEEDS seeds and writes the table into
 * docs/reliability.md; each cell shows the worst of its seeds.
 */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process, { argv, stdout } from 'node:process'
import { type Random, seededRandom } from '@homing/clock'
import type { EngineSettings } from '@homing/testkit'
import { ASK_MS_MAX, BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from '../simulation/simulated-fleet.ts'
import { WireWatch } from './wire-watch.ts'

export type Trust = 'exact' | 'partial' | 'approximate' | 'none'

/** What happened in one cell with one seed. */
export interface CellOutcome {
  /** From the fault to the moment after which everything is as at the end. */
  readonly healMs: number
  /**
   * Credited 100 ms after the wire said, or showed, that it was gone; blocks × seconds, under `exact` and
   * under any trust.
   */
  readonly staleExact: number
  readonly stale: number
  /** Credited although gone, before anything on the wire showed it; blocks × seconds. */
  readonly unseen: number
  /** In turn, from the fault on. */
  readonly trusts: readonly Trust[]
  /** At the end: blocks that the engine holds and the index lacks, while trust is `exact`. */
  readonly missing: number
}

export interface Column {
  readonly name: string
  /** Undefined: there is no such source yet. */
  readonly engine: Partial<EngineSettings> | undefined
}

interface Scene {
  readonly fleet: SimulatedFleet
  /** Sends traffic past the router for so long. */
  readonly work: (forMs: number) => Promise<void>
  /** Time to heal is counted from here: a router that is not there cannot heal. */
  readonly begin: () => void
  /** A look at what is credited. */
  readonly look: () => Promise<void>
}

export interface Row {
  readonly name: string
  readonly engine?: Partial<EngineSettings>
  readonly deal: (scene: Scene) => void | Promise<void>
}

const SEEDS = 5
const WARM_MS = 1500
const WATCH_MS = 6000
const LOOK_MS = 20
const REQUEST_EVERY_MS = 60
const IN_FLIGHT_MS = 100
const ENGINE: Partial<EngineSettings> = { blocks: 40, replayBatchesMax: 10_000 }

export const COLUMNS: readonly Column[] = [
  { name: 'vLLM, replay', engine: {} },
  { name: 'vLLM, no replay', engine: { offersReplay: false } },
  { name: 'SGLang', engine: { eventForm: 'sglang-map', isClearLate: false } },
  { name: 'sidecar', engine: undefined },
  { name: 'approximate', engine: undefined },
]

const events =
  (faults: object) =>
  ({ fleet }: Scene): void =>
    fleet.engines[0]!.engine.setFaults({ events: faults })

export const ROWS: readonly Row[] = [
  {
    name: 'late join',
    deal: async ({ fleet, work, begin }) => {
      await fleet.stopRouter()
      await fleet.simulation.settle(fleet.engines[0]!.engine.restart())
      await work(1000)
      begin()
      await fleet.startRouter()
    },
  },
  { name: 'gap', deal: events({ drop: 3 }) },
  { name: 'buffer exceeded', engine: { replayBatchesMax: 4 }, deal: events({ drop: 8 }) },
  { name: 'engine restart', deal: ({ fleet }) => void fleet.engines[0]!.engine.restart(200) },
  {
    name: 'router restart',
    deal: async ({ fleet, work, begin }) => {
      await fleet.stopRouter()
      await work(300)
      begin()
      await fleet.startRouter()
    },
  },
  { name: 'duplicated', deal: events({ duplicate: 20 }) },
  { name: 'delayed', deal: events({ delay: 1_000_000, delayMs: 80 }) },
  { name: 'reordered', deal: events({ delay: 4, delayMs: 150 }) },
  {
    name: 'link down',
    deal: ({ fleet }) => {
      const { events: endpoint } = fleet.engines[0]!
      fleet.network.disconnect(endpoint)
      fleet.simulation.clock.after(500, () => fleet.network.reconnect(endpoint))
    },
  },
  {
    name: 'cache cleared',
    deal: async ({ fleet, look }) => {
      const { engine, url: origin } = fleet.engines[0]!
      // What is on its way to the engine arrives, and ends.
      await fleet.simulation.run(undefined, { within: 300 })
      await fleet.simulation.run(() => engine.openRequests === 0, { within: 5000 })
      await fleet.simulation.run(undefined, { within: 100 })
      const reply = await fleet.ask({ origin, path: '/reset_prefix_cache' })
      assert.equal(Buffer.from(reply.body).toString(), '{"success":true}')
      // The engine idles: one that publishes with its next step publishes nothing.
      for (let i = 0; i < 25; i++) await look()
    },
  },
]

/** One cell, with one seed. */
export async function runCell(seed: number, column: Column, row: Row): Promise<CellOutcome> {
  const engine = { ...ENGINE, ...column.engine, ...row.engine }
  const fleet = await SimulatedFleet.start({ seed, engines: [engine] })
  const { simulation, engines } = fleet
  const [source] = engines
  const nowMs = () => simulation.clock.nowMs()
  const isHeld = (hash: string) => cacheOf(fleet).has(hash)
  const watch = new WireWatch(fleet.network.transport(), source!.events, { nowMs, isHeld })
  const traffic = new Traffic(fleet, seededRandom(seed))

  const work = async (forMs: number): Promise<void> => {
    traffic.begin(source!.url)
    await simulation.run(undefined, { within: forMs })
    traffic.end()
  }
  traffic.begin()
  await simulation.run(undefined, { within: WARM_MS })
  traffic.end()

  const looks = new Looks(fleet, watch, nowMs())
  const look = async (): Promise<void> => {
    await looks.look()
    await simulation.run(undefined, { within: LOOK_MS })
  }
  await row.deal({ fleet, work, look, begin: () => looks.begin(nowMs()) })
  traffic.begin()
  const endMs = nowMs() + WATCH_MS
  while (nowMs() < endMs) await look()
  traffic.end()
  await simulation.run(() => source!.engine.openRequests === 0, { within: 5000 })
  await simulation.run(undefined, { within: IN_FLIGHT_MS })
  const outcome = await looks.outcome()
  watch.close()
  await fleet.stop()
  return outcome
}

/** Requests whose prompts share beginnings, one every REQUEST_EVERY_MS. */
class Traffic {
  readonly #fleet: SimulatedFleet
  readonly #random: Random
  readonly #prefixes: readonly (readonly number[])[]
  #turn = 0

  constructor(fleet: SimulatedFleet, random: Random) {
    this.#fleet = fleet
    this.#random = random
    this.#prefixes = Array.from({ length: 4 }, () => this.#tokens(BLOCK_SIZE_TOKENS * 4))
  }

  /** To the router, or to an engine. */
  begin(origin?: string): void {
    this.#turn++
    this.#send(this.#turn, origin)
  }

  end(): void {
    this.#turn++
  }

  #send(turn: number, origin: string | undefined): void {
    if (turn !== this.#turn) return
    const random = this.#random
    const prefix = this.#prefixes[random.below(this.#prefixes.length)]!
    const prompt = [...prefix, ...this.#tokens(random.below(4 * BLOCK_SIZE_TOKENS))]
    const body = { model: MODEL, prompt, max_tokens: 1 + random.below(20), stream: random.below(2) === 0 }
    // An engine that restarts cuts its requests, which is what some rows are about.
    this.#fleet.send(origin === undefined ? {} : { origin }, body, ASK_MS_MAX).catch(() => undefined)
    this.#fleet.simulation.clock.after(REQUEST_EVERY_MS, () => this.#send(turn, origin))
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 33 + this.#random.below(90))
  }
}

/** What is credited, against what is there. */
class Looks {
  readonly #fleet: SimulatedFleet
  readonly #watch: WireWatch
  #beginMs: number
  /** The router was not there before. */
  #isNew = false
  readonly #seen: { readonly atMs: number; readonly trust: Trust; readonly isStale: boolean }[] = []
  #lastMs: number
  #stale = 0
  #staleExact = 0
  #unseen = 0

  constructor(fleet: SimulatedFleet, watch: WireWatch, faultMs: number) {
    this.#fleet = fleet
    this.#watch = watch
    this.#beginMs = faultMs
    this.#lastMs = faultMs
  }

  begin(nowMs: number): void {
    this.#beginMs = nowMs
    this.#lastMs = nowMs
    this.#isNew = true
  }

  async look(): Promise<void> {
    const { trust, held, cached } = await this.#state()
    const nowMs = this.#fleet.simulation.clock.nowMs()
    const seconds = (nowMs - this.#lastMs) / 1000
    this.#lastMs = nowMs
    let staleBlocks = 0
    if (trust !== 'none') {
      for (const hash of held) {
        if (cached.has(hash)) continue
        const sinceMs = this.#watch.goneSinceMs(hash)
        if (sinceMs === undefined) this.#unseen += seconds
        else if (nowMs - sinceMs > IN_FLIGHT_MS) staleBlocks++
      }
    }
    this.#stale += staleBlocks * seconds
    if (trust === 'exact') this.#staleExact += staleBlocks * seconds
    this.#seen.push({ atMs: nowMs, trust, isStale: staleBlocks > 0 })
  }

  async outcome(): Promise<CellOutcome> {
    const { trust, held, cached } = await this.#state()
    const seen = this.#seen
    let heals = seen.length
    while (heals > 0 && seen[heals - 1]!.trust === trust && !seen[heals - 1]!.isStale) heals--
    const trusts = seen.map(one => one.trust).filter((one, i, all) => one !== all[i - 1])
    return {
      healMs: heals === 0 && !this.#isNew ? 0 : (seen[heals] ?? seen.at(-1)!).atMs - this.#beginMs,
      staleExact: this.#staleExact,
      stale: this.#stale,
      unseen: this.#unseen,
      trusts,
      missing: trust === 'exact' ? [...cached].filter(hash => !held.has(hash)).length : 0,
    }
  }

  async #state() {
    const fleet = this.#fleet
    const workers = await fleet.workers()
    const key = workers[0]!.worker_keys[0]!
    const dump = await fleet.dump()
    return {
      trust: key.trust as Trust,
      held: new Set(dump[key.worker]?.blocks.map(block => block.block_hash)),
      cached: cacheOf(fleet),
    }
  }
}

function cacheOf(fleet: SimulatedFleet): ReadonlySet<string> {
  const [rank] = fleet.engines[0]!.engine.state({ hasBlocks: true }).ranks
  return new Set(rank?.blocks?.map(({ hash }) => hash))
}

const TRUSTS: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']

/** The worst of several seeds: of those that end with the least trust, the slowest. */
export function worstOf(outcomes: readonly CellOutcome[]): CellOutcome {
  const most = (of: (outcome: CellOutcome) => number) => Math.max(...outcomes.map(of))
  const distrust = ({ trusts }: CellOutcome) => TRUSTS.indexOf(trusts.at(-1)!)
  const [slowest] = outcomes.toSorted(
    (one, other) => distrust(other) - distrust(one) || other.healMs - one.healMs,
  ) as [CellOutcome]
  return {
    healMs: slowest.healMs,
    staleExact: most(({ staleExact }) => staleExact),
    stale: most(({ stale }) => stale),
    unseen: most(({ unseen }) => unseen),
    trusts: slowest.trusts,
    missing: most(({ missing }) => missing),
  }
}

function cellText({ healMs, staleExact, stale, unseen, trusts }: CellOutcome): string {
  const figure = (value: number) => (value === 0 ? '0' : value.toFixed(2))
  const lies = staleExact > 0 ? `, **${figure(staleExact)} under exact**` : ''
  const before = unseen >= 0.005 ? ` (${figure(unseen)})` : ''
  return `${(healMs / 1000).toFixed(2)} s · ${figure(stale)}${before}${lies} · ${trusts.join(' → ')}`
}

const PATH = join(import.meta.dirname, '..', '..', 'docs', 'reliability.md')
const [BEGIN, END] = ['<!-- fault matrix: begin -->', '<!-- fault matrix: end -->']

async function table(): Promise<string> {
  const lines = [
    `| | ${COLUMNS.map(({ name }) => name).join(' | ')} |`,
    `|---|${COLUMNS.map(() => '---|').join('')}`,
  ]
  for (const row of ROWS) {
    const cells: string[] = []
    for (const column of COLUMNS) {
      if (column.engine === undefined) {
        cells.push('–')
        continue
      }
      const outcomes: CellOutcome[] = []
      for (let seed = 1; seed <= SEEDS; seed++) outcomes.push(await runCell(seed, column, row))
      cells.push(cellText(worstOf(outcomes)))
    }
    const line = `| ${row.name} | ${cells.join(' | ')} |`
    stdout.write(`${line}\n`)
    lines.push(line)
  }
  return lines.join('\n')
}

if (import.meta.main) {
  const text = await table()
  if (argv.includes('--write')) {
    const page = readFileSync(PATH, 'utf8')
    const [before, after] = [page.split(BEGIN)[0]!, page.split(END)[1]!]
    writeFileSync(PATH, `${before}${BEGIN}\n${text}\n${END}${after}`)
    stdout.write(`wrote ${PATH}\n`)
  }
  process.exit(0)
}
