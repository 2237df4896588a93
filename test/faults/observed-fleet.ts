/**
 * One engine behind the whole router in a simulation, its traffic, and who looks on: what is credited, against what is there.
 *
 * A block that is credited although the engine does not hold it is **stale** once it could be known: IN_FLIGHT_MS after the
 * first thing that the router's own event socket said about the time when the block was gone already, be it a batch
 * that was written after that (the removal is in it, or in one before it, which is missing then) or a broken connection.
 * Before that it is **unseen**.
 */

import { type Random, seededRandom } from '@homing/clock'
import { silentLog } from '@homing/log'
import { decodeKvBatch, parseEventFrames } from '@homing/protocol'
import { Sidecar } from '@homing/publisher'
import type { EngineSettings } from '@homing/testkit'
import type { Frames } from '@homing/transport'
import { ASK_MS_MAX, BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from '../simulation/simulated-fleet.ts'

export type Trust = 'exact' | 'partial' | 'approximate' | 'none'

export const LOOK_MS = 20
const IN_FLIGHT_MS = 100
const REQUEST_EVERY_MS = 60
const SIDECAR_EVENTS = 7557
const SIDECAR_REPLAY = 8557

/** What was seen from the fault on. */
export interface Seen {
  /** From the fault to the moment after which trust is as at the end, and nothing is stale. */
  readonly healMs: number
  /** Blocks × seconds, under `exact` and under any trust. */
  readonly staleExact: number
  readonly stale: number
  readonly unseen: number
  /** In turn. */
  readonly trusts: readonly Trust[]
  /** At the end: blocks that the engine holds and the index lacks, and the other way round. */
  readonly missing: number
  readonly surplus: number
  /** At the end: no recovery is under way. */
  readonly isAtRest: boolean
  /** For people, at the end. */
  readonly reason: string
}

interface Look {
  readonly atMs: number
  readonly trust: Trust
  readonly isStale: boolean
}

export class ObservedFleet {
  readonly #fleet: SimulatedFleet
  readonly #gone: GoneBlocks
  readonly #random: Random
  readonly #prefixes: readonly (readonly number[])[]
  #trafficTurn = 0

  #beginMs = 0
  #lastMs = 0
  /** The router was not there before. */
  #isNew = false
  #looks: Look[] = []
  #stale = 0
  #staleExact = 0
  #unseen = 0

  private constructor(fleet: SimulatedFleet, gone: GoneBlocks, seed: number) {
    this.#fleet = fleet
    this.#gone = gone
    this.#random = seededRandom(seed)
    this.#prefixes = Array.from({ length: 4 }, () => this.#tokens(BLOCK_SIZE_TOKENS * 4))
  }

  /** `hasSidecar`: the router has its events from a sidecar beside the engine. */
  static async start(
    seed: number,
    engine: Partial<EngineSettings>,
    hasSidecar = false,
  ): Promise<ObservedFleet> {
    let gone: GoneBlocks | undefined
    const fleet = await SimulatedFleet.start({
      seed,
      engines: [engine],
      query: hasSidecar ? `?events=${SIDECAR_EVENTS}&replay=${SIDECAR_REPLAY}` : '',
      onEvents: batch => gone?.sign(batch),
      beforeRouter: async made => {
        gone = new GoneBlocks(made)
        if (hasSidecar) await openSidecar(made, seed)
      },
    })
    return new ObservedFleet(fleet, gone!, seed)
  }

  get fleet(): SimulatedFleet {
    return this.#fleet
  }

  async run(forMs: number): Promise<void> {
    await this.#fleet.simulation.run(undefined, { within: forMs })
  }

  // Traffic: prompts that share beginnings, one every REQUEST_EVERY_MS.

  /** To the router, or to an engine. */
  beginTraffic(origin?: string): void {
    this.#trafficTurn++
    this.#sendNext(this.#trafficTurn, origin)
  }

  endTraffic(): void {
    this.#trafficTurn++
  }

  /** Traffic past the router for so long. */
  async workPastRouter(forMs: number): Promise<void> {
    this.beginTraffic(this.#fleet.engines[0]!.url)
    await this.run(forMs)
    this.endTraffic()
  }

  /** Until the engine has nothing to do, nothing is on its way to it, and nothing from it. */
  async idle(): Promise<void> {
    this.endTraffic()
    await this.run(300)
    await this.#fleet.simulation.run(() => this.#fleet.engines[0]!.engine.openRequests === 0, {
      within: 5000,
    })
    await this.run(IN_FLIGHT_MS)
  }

  #sendNext(turn: number, origin: string | undefined): void {
    if (turn !== this.#trafficTurn) return
    const random = this.#random
    const prefix = this.#prefixes[random.below(this.#prefixes.length)]!
    const prompt = [...prefix, ...this.#tokens(random.below(4 * BLOCK_SIZE_TOKENS))]
    const body = { model: MODEL, prompt, max_tokens: 1 + random.below(20), stream: random.below(2) === 0 }
    // An engine that restarts cuts its requests, and a router that is not there takes none.
    this.#fleet.send(origin === undefined ? {} : { origin }, body, ASK_MS_MAX).catch(() => undefined)
    this.#fleet.simulation.clock.after(REQUEST_EVERY_MS, () => this.#sendNext(turn, origin))
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 33 + this.#random.below(90))
  }

  // Looking.

  /** From here everything counts. `isNew`: the router is started only now, and cannot heal before. */
  begin(isNew = false): void {
    this.#beginMs = this.#fleet.simulation.clock.nowMs()
    this.#lastMs = this.#beginMs
    this.#isNew = isNew
  }

  /** One look, and LOOK_MS of life. */
  async look(): Promise<void> {
    const { trust, held, cached } = await this.#state()
    this.#gone.note(cached)
    const nowMs = this.#fleet.simulation.clock.nowMs()
    const seconds = (nowMs - this.#lastMs) / 1000
    this.#lastMs = nowMs
    let staleBlocks = 0
    if (trust !== 'none') {
      for (const hash of held) {
        if (cached.has(hash)) continue
        const knownForMs = this.#gone.knownForMs(hash)
        if (knownForMs === undefined) this.#unseen += seconds
        else if (knownForMs > IN_FLIGHT_MS) staleBlocks++
      }
    }
    this.#stale += staleBlocks * seconds
    if (trust === 'exact') this.#staleExact += staleBlocks * seconds
    this.#looks.push({ atMs: nowMs, trust, isStale: staleBlocks > 0 })
    await this.run(LOOK_MS)
  }

  async lookFor(forMs: number): Promise<void> {
    const endMs = this.#fleet.simulation.clock.nowMs() + forMs
    while (this.#fleet.simulation.clock.nowMs() < endMs) await this.look()
  }

  async seen(): Promise<Seen> {
    const { trust, isAtRest, reason, held, cached } = await this.#state()
    const looks = this.#looks
    let healed = looks.length
    while (healed > 0 && looks[healed - 1]!.trust === trust && !looks[healed - 1]!.isStale) healed--
    const isUntouched = healed === 0 && !this.#isNew
    return {
      healMs: isUntouched ? 0 : (looks[healed] ?? looks.at(-1)!).atMs - this.#beginMs,
      staleExact: this.#staleExact,
      stale: this.#stale,
      unseen: this.#unseen,
      trusts: looks.map(look => look.trust).filter((one, i, all) => one !== all[i - 1]),
      missing: [...cached].filter(hash => !held.has(hash)).length,
      surplus: [...held].filter(hash => !cached.has(hash)).length,
      isAtRest,
      reason,
    }
  }

  async #state() {
    const fleet = this.#fleet
    const key = (await fleet.workers())[0]!.worker_keys[0]!
    const dump = await fleet.dump()
    return {
      trust: key.trust as Trust,
      isAtRest: key.events?.state === 'live',
      reason: key.trust_reason,
      held: new Set(dump[key.worker]?.blocks.map(block => block.block_hash)),
      cached: cacheOf(fleet),
    }
  }
}

/** Since when it could be known of each block that it is gone. */
class GoneBlocks {
  readonly #fleet: SimulatedFleet
  readonly #known = new Set<string>()
  /** When each block was first seen to be gone, and when that could be known; both by the wall clock. */
  readonly #gone = new Map<string, { readonly atMs: number; knownMs: number | undefined }>()

  constructor(fleet: SimulatedFleet) {
    this.#fleet = fleet
  }

  /** What the engine holds now. */
  note(cached: ReadonlySet<string>): void {
    for (const hash of cached) {
      this.#known.add(hash)
      this.#gone.delete(hash)
    }
    const atMs = this.#wallMs()
    for (const hash of this.#known) {
      if (!cached.has(hash) && !this.#gone.has(hash)) this.#gone.set(hash, { atMs, knownMs: undefined })
    }
  }

  /** The router's event socket has said something. */
  sign(batch: Frames | 'disconnected'): void {
    this.note(cacheOf(this.#fleet))
    const nowMs = this.#wallMs()
    const writtenMs = batch === 'disconnected' ? nowMs : writtenAtMs(batch)
    for (const gone of this.#gone.values()) if (gone.atMs <= writtenMs) gone.knownMs ??= nowMs
  }

  /** For how long it could be known; undefined: it could not. */
  knownForMs(hash: string): number | undefined {
    const knownMs = this.#gone.get(hash)?.knownMs
    return knownMs === undefined ? undefined : this.#wallMs() - knownMs
  }

  #wallMs(): number {
    return this.#fleet.simulation.clock.wallMs()
  }
}

/** It lives as long as the network, which nobody closes. */
async function openSidecar({ simulation, network, engines }: SimulatedFleet, seed: number): Promise<void> {
  await Sidecar.open({
    clock: simulation.clock,
    random: seededRandom(seed),
    messages: network.transport().messages,
    log: silentLog,
    engineEndpoint: engines[0]!.events,
    eventsEndpoint: `tcp://127.0.0.1:${SIDECAR_EVENTS}`,
    replayEndpoint: `tcp://127.0.0.1:${SIDECAR_REPLAY}`,
    topic: '',
    replayForm: 'topic',
    queuedMessagesMax: 100_000,
    repliesMax: 16,
  })
}

function writtenAtMs(frames: Frames): number {
  return decodeKvBatch(parseEventFrames(frames).payload).timestampSeconds * 1000
}

function cacheOf(fleet: SimulatedFleet): ReadonlySet<string> {
  const [rank] = fleet.engines[0]!.engine.state({ hasBlocks: true }).ranks
  return new Set(rank?.blocks?.map(({ hash }) => hash))
}
