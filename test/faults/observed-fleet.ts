/**
 * One engine behind the whole router in a simulation, its traffic, and who looks on: what is credited, against what is there.
 *
 * A block that is credited although the engine does not hold it is **stale** once it could be known: IN_FLIGHT_MS after the
 * first thing that the router's own event socket said about the time when the block was gone already, be it a batch
 * that was written after that (the removal is in it, or in one before it, which is missing then) or a broken connection.
 * Before that it is **unseen**. Without events the sign is a request to the engine, or a probe of it, that failed.
 *
 * What is credited is read from the index; of an engine without events, from what `POST /route` answers for the prompts that
 * were sent.
 */

import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/clock'
import { silentLog } from '@homing/log'
import { decodeKvBatch, parseEventFrames } from '@homing/protocol'
import { Sidecar } from '@homing/publisher'
import { type EngineSettings, promptHashes } from '@homing/testkit'
import type { Frames } from '@homing/transport'
import { ASK_MS_MAX, BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from '../simulation/simulated-fleet.ts'
import { countsEvents, IN_FLIGHT_MS, Looks, type Seen, type State, type Trust } from './looks.ts'

/** Between two looks; each of them asks once per prompt where nothing but guesses is credited. */
const LOOK_MS = 20
const LOOK_MS_OF_GUESSES = 100
const REQUEST_EVERY_MS = 60
const SIDECAR_EVENTS = 7557
const SIDECAR_REPLAY = 8557
const PREFIX_BLOCKS = 4
/** Other hashes in each life of an engine would hide that a prompt is the same. */
const HASH_SEED = 7
/** Until then a prompt that was sent may still be on its way to its decision. */
const DECIDED_MS = 1000

export interface ObservedOptions {
  /** The router has its events from a sidecar beside the engine. */
  readonly hasSidecar?: boolean
  /** The engine publishes no events. */
  readonly isGuessed?: boolean
  /** Batches that the sidecar keeps for replay. */
  readonly sidecarBatchesMax?: number
  /** Between two looks. */
  readonly lookMs?: number
}

/** A prompt that was sent; infinitely late: one that others begin with. */
interface SentPrompt {
  readonly tokens: readonly number[]
  readonly hashes: readonly string[]
  readonly sentMs: number
}

export class ObservedFleet {
  readonly #fleet: SimulatedFleet
  readonly #gone: GoneBlocks
  readonly #isGuessed: boolean
  readonly #lookMs: number
  readonly #sidecar: SidecarBeside | undefined
  /** What may be credited, where that is asked for prompt by prompt. */
  #sent: SentPrompt[] = []
  readonly #random: Random
  readonly #prefixes: readonly (readonly number[])[]
  #trafficTurn = 0

  readonly #looks = new Looks()

  private constructor(
    fleet: SimulatedFleet,
    gone: GoneBlocks,
    sidecar: SidecarBeside | undefined,
    seed: number,
    { isGuessed = false, lookMs = isGuessed ? LOOK_MS_OF_GUESSES : LOOK_MS }: ObservedOptions,
  ) {
    this.#fleet = fleet
    this.#gone = gone
    this.#sidecar = sidecar
    this.#isGuessed = isGuessed
    this.#lookMs = lookMs
    this.#random = seededRandom(seed)
    this.#prefixes = Array.from({ length: 4 }, () => this.#tokens(BLOCK_SIZE_TOKENS * PREFIX_BLOCKS))
    if (isGuessed) for (const prefix of this.#prefixes) this.#noteSent(prefix, Number.POSITIVE_INFINITY)
  }

  static async start(
    seed: number,
    engine: Partial<EngineSettings>,
    options: ObservedOptions = {},
  ): Promise<ObservedFleet> {
    const { hasSidecar = false, isGuessed = false, sidecarBatchesMax } = options
    let gone: GoneBlocks | undefined
    let sidecar: SidecarBeside | undefined
    const fleet = await SimulatedFleet.start({
      seed,
      engines: [isGuessed ? { ...engine, publishesEvents: false, hashSeed: HASH_SEED } : engine],
      query: hasSidecar ? `?events=${SIDECAR_EVENTS}&replay=${SIDECAR_REPLAY}` : '',
      onEvents: batch => gone?.sign(batch),
      ...(isGuessed ? { onUnreachable: () => gone?.sign('disconnected') } : {}),
      beforeRouter: async made => {
        gone = new GoneBlocks(made)
        if (!hasSidecar) return
        sidecar = new SidecarBeside(made, seed, sidecarBatchesMax)
        await sidecar.open()
      },
    })
    return new ObservedFleet(fleet, gone!, sidecar, seed, options)
  }

  get fleet(): SimulatedFleet {
    return this.#fleet
  }

  get isGuessed(): boolean {
    return this.#isGuessed
  }

  get sidecar(): SidecarBeside {
    assert.ok(this.#sidecar, 'there is a sidecar')
    return this.#sidecar
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
    if (this.#isGuessed) this.#noteSent(prompt)
    const body = { model: MODEL, prompt, max_tokens: 1 + random.below(20), stream: random.below(2) === 0 }
    // An engine that restarts cuts its requests, and a router that is not there takes none.
    this.#fleet.send(origin === undefined ? {} : { origin }, body, ASK_MS_MAX).catch(() => undefined)
    this.#fleet.simulation.clock.after(REQUEST_EVERY_MS, () => this.#sendNext(turn, origin))
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 33 + this.#random.below(90))
  }

  #noteSent(tokens: readonly number[], sentMs = this.#fleet.simulation.clock.nowMs()): void {
    this.#sent.push({ tokens, hashes: promptHashes(HASH_SEED, tokens, BLOCK_SIZE_TOKENS), sentMs })
  }

  // Looking.

  /** From here everything counts. `isNew`: the router is started only now, and cannot heal before. */
  begin(isNew = false): void {
    this.#looks.begin(this.#fleet.simulation.clock.nowMs(), isNew)
  }

  /** One look, and the time until the next one. */
  async look(): Promise<void> {
    const { trust, held, cached } = await this.#state()
    this.#gone.note(cached)
    const nowMs = this.#fleet.simulation.clock.nowMs()
    const credited = this.#isGuessed || countsEvents(trust) ? [...held] : []
    const gone = credited.filter(hash => !cached.has(hash)).map(hash => this.#gone.knownForMs(hash))
    this.#looks.add(nowMs, trust, gone)
    await this.run(this.#lookMs)
  }

  async lookFor(forMs: number): Promise<void> {
    const endMs = this.#fleet.simulation.clock.nowMs() + forMs
    while (this.#fleet.simulation.clock.nowMs() < endMs) await this.look()
  }

  async seen(): Promise<Seen> {
    return this.#looks.seen(await this.#state())
  }

  async #state(): Promise<State> {
    const fleet = this.#fleet
    const [worker] = await fleet.workers()
    const key = worker!.worker_keys[0]!
    const held = this.#isGuessed
      ? await this.#credited()
      : new Set((await fleet.dump())[key.worker]?.blocks.map(block => block.block_hash))
    return {
      trust: key.trust as Trust,
      isAtRest: this.#isGuessed ? worker!.state === 'up' : key.events?.state === 'live',
      reason: key.trust_reason,
      held,
      cached: cacheOf(fleet),
    }
  }

  /** What requests that are like those of before would be credited with now. */
  async #credited(): Promise<ReadonlySet<string>> {
    const { clock } = this.#fleet.simulation
    const credited = new Set<string>()
    const asked = this.#sent
    const overlaps = await this.#fleet.simulation.settle(
      Promise.all(asked.map(({ tokens }) => this.#overlapOf(tokens))),
      { within: ASK_MS_MAX },
    )
    const latestMs = clock.nowMs() - DECIDED_MS
    // What is no longer credited will not be again: no prompt is sent twice. Their beginnings are in later ones.
    this.#sent = this.#sent.filter(
      ({ sentMs }, i) => sentMs > latestMs || overlaps[i] === undefined || overlaps[i] > PREFIX_BLOCKS,
    )
    for (const [i, { hashes }] of asked.entries())
      for (const hash of hashes.slice(0, overlaps[i] ?? 0)) credited.add(hash)
    return credited
  }

  /** Undefined: there is no worker to credit now. */
  async #overlapOf(prompt: readonly number[]): Promise<number | undefined> {
    const reply = await this.#fleet.send({ path: '/route' }, { model: MODEL, prompt }, ASK_MS_MAX)
    if (reply.status !== 200) return undefined
    return (JSON.parse(Buffer.from(reply.body).toString()) as { readonly overlap_blocks: number })
      .overlap_blocks
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
    // The wall clock tells whole milliseconds: a batch of the same one may have been written before.
    const isSaid = ({ atMs }: { readonly atMs: number }) => batch === 'disconnected' || atMs < writtenMs
    for (const gone of this.#gone.values()) if (isSaid(gone)) gone.knownMs ??= nowMs
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

/** The sidecar of an engine; it lives as long as the network, which nobody closes. */
class SidecarBeside {
  readonly endpoint = `tcp://127.0.0.1:${SIDECAR_EVENTS}`
  readonly #fleet: SimulatedFleet
  readonly #random: Random
  readonly #batchesMax: number | undefined
  #sidecar: Sidecar | undefined

  constructor(fleet: SimulatedFleet, seed: number, batchesMax: number | undefined) {
    this.#fleet = fleet
    this.#random = seededRandom(seed)
    this.#batchesMax = batchesMax
  }

  async open(): Promise<void> {
    const { simulation, network, engines } = this.#fleet
    this.#sidecar = await Sidecar.open({
      clock: simulation.clock,
      random: this.#random,
      messages: network.transport().messages,
      log: silentLog,
      engineEndpoint: engines[0]!.events,
      eventsEndpoint: this.endpoint,
      replayEndpoint: `tcp://127.0.0.1:${SIDECAR_REPLAY}`,
      topic: '',
      replayForm: 'topic',
      queuedMessagesMax: 100_000,
      repliesMax: 16,
      ...(this.#batchesMax === undefined ? {} : { bufferBatchesMax: this.#batchesMax }),
    })
  }

  async restart(): Promise<void> {
    await this.#sidecar!.close(0)
    await this.open()
  }
}

function writtenAtMs(frames: Frames): number {
  return decodeKvBatch(parseEventFrames(frames).payload).timestampSeconds * 1000
}

function cacheOf(fleet: SimulatedFleet): ReadonlySet<string> {
  const [rank] = fleet.engines[0]!.engine.state({ hasBlocks: true }).ranks
  return new Set(rank?.blocks?.map(({ hash }) => hash))
}
