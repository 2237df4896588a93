/**
 * The fault matrix of vLLM's own block pool and event publisher, in real time, with real sockets, behind the
 * whole router: the columns of vLLM in fault-matrix.ts again, where nothing of the engine is simulated.
 */

import { seededRandom } from '@homing/base'
import type { Trust } from '@homing/index'
import type { RunningRouter } from 'homing'
import { send, startTestRouter } from '../system/fleet.ts'
import { countsEvents, IN_FLIGHT_MS, Looks, type Seen, type State } from './looks.ts'
import {
  BLOCK_SIZE_TOKENS,
  PoolEngine as Pool,
  type PoolEngine,
  type PoolProcess,
  type PoolSettings,
  pause,
} from './vllm-pool.ts'

export interface PoolColumn {
  readonly name: string
  readonly hasReplay: boolean
}

export interface PoolRow {
  readonly name: string
  readonly bufferBatches?: number
  /** A mistake of the start, and looked at from there. */
  readonly neighbour?: NonNullable<PoolSettings['neighbour']>
  /** Cannot be detected without a replay. */
  readonly needsReplay?: boolean
  /** For how long it is looked at. */
  readonly watchMs?: number
  readonly deal: (observed: ObservedPool) => void | Promise<void>
}

const BLOCKS = 40
const BUFFER_BATCHES = 10_000
const WARM_MS = 1500
const WATCH_MS = 6000
/** For a recovery that takes longer. */
const REST_MS_MAX = 30_000
const LOOK_MS = 20
const RUNS_MAX = 3
const REQUEST_EVERY_MS = 60
/** More than the 1,000 that a replay socket keeps for a peer. */
const MANY = 3000

export const POOL_COLUMNS: readonly PoolColumn[] = [
  { name: "vLLM's publisher, replay", hasReplay: true },
  { name: "vLLM's publisher, no replay", hasReplay: false },
]

const faults =
  (dealt: Parameters<PoolEngine['deal']>[0]) =>
  ({ engine }: ObservedPool): void =>
    engine.deal(dealt)

export const POOL_ROWS: readonly PoolRow[] = [
  {
    name: 'late join, after 3,000 batches',
    deal: async observed => {
      await observed.stopRouter()
      await observed.engine.burst(MANY)
      await observed.workPastRouter(1000)
      await observed.startRouter()
    },
  },
  { name: 'gap', deal: faults({ drop: 3 }) },
  {
    name: 'gap of 3,000 batches',
    deal: async ({ engine }) => {
      engine.deal({ drop: MANY })
      await engine.burst(MANY)
    },
  },
  { name: 'buffer exceeded', bufferBatches: 4, deal: faults({ drop: 8 }) },
  { name: 'engine restart', deal: ({ engine }) => engine.restart(200) },
  {
    name: 'router restart',
    deal: async observed => {
      await observed.stopRouter()
      await observed.workPastRouter(300)
      await observed.startRouter()
    },
  },
  { name: 'duplicated', deal: faults({ duplicate: 20 }) },
  { name: 'delayed', deal: faults({ delay: 1_000_000, delayMs: 80 }) },
  { name: 'reordered', deal: faults({ delay: 4, delayMs: 150 }) },
  { name: 'link down', deal: ({ engine }) => engine.cut(500) },
  {
    name: 'cache cleared',
    deal: async observed => {
      await observed.idle()
      if (!(await observed.engine.clear())) throw new Error('the cache was not cleared')
      await observed.lookFor(500)
    },
  },
]

const LIFE_WATCH_MS = 3000
/** More than a listener remembers, and than a replay socket keeps for a peer. */
const MANY_LIVES = 1500

/** Lives that pass for others, and publishers mistaken for others. Hashes are the same in all lives. */
export const POOL_LIFE_ROWS: readonly PoolRow[] = [
  { name: 'restart in place', watchMs: LIFE_WATCH_MS, deal: ({ engine }) => engine.restartInPlace() },
  {
    name: `restart in place, behind a replay of ${MANY_LIVES} batches, before one is heard`,
    watchMs: LIFE_WATCH_MS,
    deal: async observed => {
      await observed.stopRouter()
      await observed.engine.burst(MANY_LIVES)
      await observed.startRouter()
      await observed.lookFor(1500)
      await observed.engine.restartInPlace()
    },
  },
  {
    name: 'restart in place behind a silence of 2.5 s, as many batches lost as were heard',
    needsReplay: true,
    watchMs: LIFE_WATCH_MS,
    deal: async observed => {
      await observed.idle()
      await observed.lookFor(2500)
      const { engine } = observed
      const heard = await engine.burst(0)
      await engine.restartInPlace()
      engine.deal({ drop: heard })
      await engine.burst(heard)
    },
  },
  {
    name: 'replay port of a neighbour, late join',
    neighbour: 'replay',
    needsReplay: true,
    watchMs: LIFE_WATCH_MS,
    deal() {},
  },
  { name: 'two ranks on one socket', neighbour: 'events', watchMs: LIFE_WATCH_MS, deal() {} },
]

export function canHappenInPool({ hasReplay }: PoolColumn, { needsReplay }: PoolRow): boolean {
  return hasReplay || needsReplay !== true
}

export interface PoolSeen extends Seen {
  /** For how long at most the router, or the machine, let a look wait. */
  readonly stallMs: number
}

/**
 * One cell. A run in which router or machine stood still for longer than a removal may take says nothing of
 * the router: it is done again, and the calmest is shown.
 */
export async function runPoolCell(
  pool: PoolProcess,
  seed: number,
  column: PoolColumn,
  row: PoolRow,
  runsMax = RUNS_MAX,
): Promise<PoolSeen> {
  let calmest = await runOnce(pool, seed, column, row)
  for (let run = 1; run < runsMax && calmest.stallMs > IN_FLIGHT_MS; run++) {
    const seen = await runOnce(pool, seed, column, row)
    if (seen.stallMs < calmest.stallMs) calmest = seen
  }
  return calmest
}

async function runOnce(
  pool: PoolProcess,
  seed: number,
  { hasReplay }: PoolColumn,
  { bufferBatches = BUFFER_BATCHES, neighbour, watchMs = WATCH_MS, deal }: PoolRow,
): Promise<PoolSeen> {
  const settings = { hasReplay, blocks: BLOCKS, bufferBatches }
  const engine = await Pool.start(pool, neighbour === undefined ? settings : { ...settings, neighbour })
  const observed = new ObservedPool(engine, seed)
  try {
    if (neighbour === undefined) {
      await observed.startRouter()
      observed.beginTraffic()
      await pause(WARM_MS)
      observed.endTraffic()
      observed.begin()
    } else {
      await observed.workPastRouter(WARM_MS)
      observed.begin()
      await observed.startRouter()
    }
    await deal(observed)
    observed.beginTraffic()
    await observed.lookFor(watchMs)
    if (neighbour === undefined) await observed.lookUntilAtRest()
    await observed.idle()
    return { ...(await observed.seen()), stallMs: observed.stallMs }
  } finally {
    observed.endTraffic()
    await observed.stopRouter()
    await engine.stop()
  }
}

class ObservedPool {
  readonly engine: PoolEngine
  readonly #looks = new Looks()
  readonly #random: ReturnType<typeof seededRandom>
  readonly #prefixes: readonly (readonly number[])[]
  readonly #open = new Set<Promise<unknown>>()
  #router: RunningRouter | undefined
  #trafficTurn = 0
  #hasBegun = false
  readonly #foreignSinceMs = new Map<string, number>()
  stallMs = 0

  constructor(engine: PoolEngine, seed: number) {
    this.engine = engine
    this.#random = seededRandom(seed)
    this.#prefixes = Array.from({ length: 4 }, () => this.#tokens(4 * BLOCK_SIZE_TOKENS))
  }

  async startRouter(): Promise<void> {
    if (this.#hasBegun) this.#looks.begin(performance.now(), true)
    this.#router = await startTestRouter([this.engine.workerUrl], [])
  }

  async stopRouter(): Promise<void> {
    await this.#router?.stop(0)
    this.#router = undefined
  }

  // Traffic: prompts that share beginnings, one every REQUEST_EVERY_MS.

  beginTraffic(url?: string): void {
    void this.#sendUntil(++this.#trafficTurn, url)
  }

  endTraffic(): void {
    this.#trafficTurn++
  }

  async workPastRouter(forMs: number): Promise<void> {
    this.beginTraffic(this.engine.url)
    await pause(forMs)
    this.endTraffic()
  }

  /** Waits until every request has its answer and its published events have arrived. */
  async idle(): Promise<void> {
    this.endTraffic()
    await Promise.all(this.#open)
    await this.lookFor(300)
  }

  async #sendUntil(turn: number, url: string | undefined): Promise<void> {
    while (turn === this.#trafficTurn) {
      const target = url ?? this.#router?.url
      if (target !== undefined) this.#send(target)
      await pause(REQUEST_EVERY_MS)
    }
  }

  #send(url: string): void {
    const random = this.#random
    const prefix = this.#prefixes[random.below(this.#prefixes.length)]!
    const prompt = [...prefix, ...this.#tokens(1 + random.below(4 * BLOCK_SIZE_TOKENS))]
    const body = { model: 'vllm-pool', prompt, max_tokens: 1 + random.below(20) }
    // An engine that is killed cuts its requests, and a router that is not there takes none.
    const sent = send(url, '/v1/completions', { body }).catch(() => undefined)
    this.#open.add(sent)
    void sent.then(() => this.#open.delete(sent))
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 10 + this.#random.below(1900))
  }

  // Looking.

  begin(): void {
    this.#hasBegun = true
    this.#looks.begin(performance.now(), false)
  }

  async look(): Promise<State> {
    const beginMs = performance.now()
    const state = await this.#state()
    this.stallMs = Math.max(this.stallMs, performance.now() - beginMs)
    const credited = countsEvents(state.trust) ? [...state.held] : []
    const gone = credited.filter(hash => !state.cached.has(hash))
    this.#looks.add(
      performance.now(),
      state.trust,
      gone.map(hash => {
        if (!this.engine.wire.knows(hash)) return this.#creditedForMs(hash, state.atMs)
        const knownMs = this.engine.wire.knownMs(hash)
        return knownMs === undefined ? undefined : state.atMs - knownMs
      }),
    )
    return state
  }

  /** For how long a block is credited that the engine never held. */
  #creditedForMs(hash: string, nowMs: number): number {
    const sinceMs = this.#foreignSinceMs.get(hash) ?? nowMs
    this.#foreignSinceMs.set(hash, sinceMs)
    return nowMs - sinceMs
  }

  async lookFor(forMs: number): Promise<void> {
    const endMs = performance.now() + forMs
    while (performance.now() < endMs) {
      await this.look()
      await pause(LOOK_MS)
    }
  }

  async lookUntilAtRest(): Promise<void> {
    const endMs = performance.now() + REST_MS_MAX
    while (!(await this.look()).isAtRest && performance.now() < endMs) await pause(LOOK_MS)
  }

  async seen(): Promise<Seen> {
    return this.#looks.seen(await this.#state())
  }

  /** What was credited at `atMs`, and what the engine held a moment later. */
  async #state(): Promise<State & { readonly atMs: number }> {
    const { url } = this.#router!
    const { workers } = (await send(url, '/workers')).json as { workers: readonly Worker[] }
    const key = workers[0]!.worker_keys[0]!
    const atMs = performance.now()
    const dump = (await send(url, '/dump')).json as Readonly<Record<string, Dumped>>
    return {
      atMs,
      trust: key.trust,
      isAtRest: key.events?.state === 'live',
      reason: key.trust_reason,
      held: new Set(dump[key.worker]?.blocks.map(block => block.block_hash)),
      cached: await this.engine.held(),
    }
  }
}

interface Worker {
  readonly worker_keys: readonly {
    readonly worker: string
    readonly trust: Trust
    readonly trust_reason: string
    readonly events: { readonly state: string | null } | null
  }[]
}

interface Dumped {
  readonly blocks: readonly { readonly block_hash: string }[]
}
