/**
 * One engine behind the whole router in a simulation, its traffic, and an observer that compares the credited
 * blocks with the engine's cache.
 *
 * A block that is credited although the engine does not hold it is **stale** once the router could know:
 * IN_FLIGHT_MS after the first sign on the router's own event socket. A sign is a batch written after the
 * block was gone (the removal is in it, or in an earlier batch, which is then missing), or a broken
 * connection. Before that the block is **unseen**. Without events the sign is a failed request to the engine,
 * or a failed probe.
 *
 * Credited blocks are read from the index; for an engine without events, from the answers of `POST /route`
 * for the prompts that were sent.
 */

import assert from 'node:assert/strict'
import type { CheckpointStore } from '@homing/actors/listener'
import { type Random, seededRandom, silentLog } from '@homing/base'
import { type CachedBlock, type EngineSettings, promptHashes } from '@homing/engine'
import type { Trust } from '@homing/index'
import { decodeKvBatch, parseEventFrames } from '@homing/protocol'
import { Sidecar } from '@homing/publisher'
import type { Frames, Publisher } from '@homing/transport'
import {
  ASK_MS_MAX,
  BLOCK_SIZE_TOKENS,
  type FleetEngine,
  MODEL,
  SimulatedFleet,
} from '../simulation/simulated-fleet.ts'
import { countsEvents, IN_FLIGHT_MS, Looks, type Seen, type State } from './looks.ts'

/** Between two looks. A look asks once per prompt if only guesses are credited. */
const LOOK_MS = 20
const LOOK_MS_OF_GUESSES = 100
const REQUEST_EVERY_MS = 60
/** When a neighbour gets the same request. */
const OTHER_AFTER_MS = 17
const SIDECAR_EVENTS = 7557
const SIDECAR_REPLAY = 8557
const RELAY_EVENTS = 7100
const SALT = 's'
const SALTED_ASKED = 4
const BURST = 8
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
  /** The router follows the stream at the broker. */
  readonly hasStream?: boolean
  /** …and takes snapshots beside it past so many messages; default: never here. */
  readonly snapshotMessages?: number
  /** Batches that the sidecar keeps for replay. */
  readonly sidecarBatchesMax?: number
  /** Between two looks. */
  readonly lookMs?: number
  /**
   * A wrong setting of the router: the replay port of another engine, one socket on which another engine
   * publishes too, or the events port of this engine for another worker.
   */
  readonly mistake?: Mistake
  /** Half of the requests have a cache salt. */
  readonly hasSalts?: boolean
  /** Every request asks the engine to report what it reuses. */
  readonly hasReports?: boolean
  readonly checkpoints?: CheckpointStore
}

export type Mistake = 'replay of a neighbour' | 'two ranks on one socket' | 'one port for two workers'

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
  readonly #options: ObservedOptions
  /** What may be credited, where that is asked for prompt by prompt. */
  #sent: SentPrompt[] = []
  /** Prompts that were sent with a salt: without one nothing of them is there because of that. */
  readonly #salted: SentPrompt[] = []
  readonly #random: Random
  readonly #prefixes: readonly (readonly number[])[]
  #trafficTurn = 0

  readonly #looks = new Looks()

  private constructor(
    fleet: SimulatedFleet,
    gone: GoneBlocks,
    sidecar: SidecarBeside | undefined,
    seed: number,
    options: ObservedOptions,
  ) {
    const { isGuessed = false, lookMs = isGuessed ? LOOK_MS_OF_GUESSES : LOOK_MS } = options
    this.#fleet = fleet
    this.#options = options
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
    const {
      hasSidecar = false,
      isGuessed = false,
      hasStream = false,
      snapshotMessages,
      sidecarBatchesMax,
      mistake,
      hasSalts,
      checkpoints,
    } = options
    let gone: GoneBlocks | undefined
    let sidecar: SidecarBeside | undefined
    const isHashSeedGiven = isGuessed || hasSalts === true
    const fleet = await SimulatedFleet.start({
      seed,
      engines: [
        {
          ...engine,
          ...(isGuessed ? { publishesEvents: false } : {}),
          ...(isHashSeedGiven ? { hashSeed: HASH_SEED } : {}),
        },
        ...(mistake === undefined ? [] : [engine]),
      ],
      workers: ([url, other]) => workersOf(url!, other, options, engine.offersReplay !== false),
      onEvents: batch => gone?.sign(batch),
      ...(hasStream ? { settings: streamSettings(snapshotMessages) } : {}),
      ...(isGuessed ? { onUnreachable: () => gone?.sign('disconnected') } : {}),
      ...(checkpoints === undefined ? {} : { checkpoints }),
      beforeRouter: async made => {
        gone = new GoneBlocks(made, mistake !== undefined)
        if (mistake === 'two ranks on one socket') relay(made)
        if (!hasSidecar) return
        const heard =
          mistake === 'two ranks on one socket' ? endpointOf(RELAY_EVENTS) : made.engines[0]!.events
        sidecar = new SidecarBeside(made, seed, sidecarBatchesMax, heard)
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

  /** So many batches, as fast as the engine makes them, past the router. */
  async burst(batches: number): Promise<void> {
    const [{ engine, url: origin }] = this.#fleet.engines as [FleetEngine]
    const end = engine.state().ranks[0]!.nextSequence + batches
    while (engine.state().ranks[0]!.nextSequence < end) {
      const sent = Array.from({ length: BURST }, () => {
        const body = { model: MODEL, prompt: this.#tokens(BLOCK_SIZE_TOKENS + 1), max_tokens: 1 }
        return this.#fleet.send({ origin }, body, ASK_MS_MAX)
      })
      for (const one of sent) await this.#fleet.simulation.settle(one, { within: ASK_MS_MAX })
    }
  }

  get engine(): FleetEngine['engine'] {
    return this.#fleet.engines[0]!.engine
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
    const { hasSalts = false, hasReports = false } = this.#options
    const isSalted = hasSalts && random.below(2) === 0
    if (isSalted && origin === undefined) this.#salted.push(this.#asSent(prompt))
    const body = {
      model: MODEL,
      prompt,
      max_tokens: 1 + random.below(20),
      stream: random.below(2) === 0,
      ...(isSalted ? { cache_salt: SALT } : {}),
      ...(hasReports ? { vllm_xargs: { kv_cache_report_mode: 'full' } } : {}),
    }
    const { clock } = this.#fleet.simulation
    const other = this.#fleet.engines[1]?.url
    // At another time: what two engines publish at one moment would hardly differ.
    if (other !== undefined) {
      clock.after(
        OTHER_AFTER_MS,
        () => void this.#fleet.send({ origin: other }, body, ASK_MS_MAX).catch(() => undefined),
      )
    }
    // An engine that restarts cuts its requests, and a router that is not there takes none.
    this.#fleet.send(origin === undefined ? {} : { origin }, body, ASK_MS_MAX).catch(() => undefined)
    clock.after(REQUEST_EVERY_MS, () => this.#sendNext(turn, origin))
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 33 + this.#random.below(90))
  }

  #noteSent(tokens: readonly number[], sentMs = this.#fleet.simulation.clock.nowMs()): void {
    this.#sent.push(this.#asSent(tokens, sentMs))
  }

  #asSent(tokens: readonly number[], sentMs = this.#fleet.simulation.clock.nowMs()): SentPrompt {
    return { tokens, hashes: promptHashes(HASH_SEED, tokens, BLOCK_SIZE_TOKENS), sentMs }
  }

  // Looking.

  /** From here everything counts. `isNew`: the router is started only now, and cannot heal before. */
  begin(isNew = false): void {
    this.#looks.begin(this.#fleet.simulation.clock.nowMs(), isNew)
  }

  /** One look, and the time until the next one. */
  async look(): Promise<void> {
    const { trust, held, cached } = await this.#state()
    this.#gone.note()
    const nowMs = this.#fleet.simulation.clock.nowMs()
    const credited = this.#isGuessed || countsEvents(trust) ? [...held] : []
    const gone = credited.filter(hash => !cached.has(hash)).map(hash => this.#gone.knownForMs(hash))
    this.#looks.add(nowMs, trust, [...gone, ...(await this.#creditedWithoutSalt(cached))])
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
      isDoubtful: hash => this.#gone.mayLack(hash),
    }
  }

  /** Blocks that are there under a salt only, and are credited without: since when that could be known. */
  async #creditedWithoutSalt(cached: ReadonlySet<string>): Promise<readonly number[]> {
    // The last ones show it, and asking takes time.
    const asked = this.#salted.slice(-SALTED_ASKED)
    if (asked.length === 0) return []
    const overlaps = await this.#fleet.simulation.settle(
      Promise.all(asked.map(({ tokens }) => this.#overlapOf(tokens))),
      { within: ASK_MS_MAX },
    )
    const nowMs = this.#fleet.simulation.clock.nowMs()
    return asked.flatMap(({ hashes, sentMs }, i) =>
      hashes
        .slice(0, overlaps[i] ?? 0)
        .filter(hash => !cached.has(hash) && this.#gone.knownForMs(hash) === undefined)
        .map(() => nowMs - sentMs),
    )
  }

  /** The blocks that requests like the earlier ones would be credited with now. */
  async #credited(): Promise<ReadonlySet<string>> {
    const { clock } = this.#fleet.simulation
    const credited = new Set<string>()
    const asked = this.#sent
    const overlaps = await this.#fleet.simulation.settle(
      Promise.all(asked.map(({ tokens }) => this.#overlapOf(tokens))),
      { within: ASK_MS_MAX },
    )
    const latestMs = clock.nowMs() - DECIDED_MS
    // A prompt without credit gets none again, because no prompt is sent twice. Its beginning occurs in later
    // ones.
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

function streamSettings(snapshotThreshold?: number) {
  return { durableKvEvents: true, ...(snapshotThreshold === undefined ? {} : { snapshotThreshold }) }
}

/** Since when it could be known of each block that it is gone. */
class GoneBlocks {
  readonly #fleet: SimulatedFleet
  readonly #known = new Set<string>()
  /** When each block was first seen to be gone, and when that could be known; both by the wall clock. */
  readonly #gone = new Map<string, { readonly atMs: number; knownMs: number | undefined }>()
  /** Blocks that had copies while cached, and the blocks below them. */
  readonly #copied = new Set<string>()
  /**
   * Since when blocks are credited that the engine never held; looked after where another engine may be taken
   * for it.
   */
  readonly #neverHeld: Map<string, number> | undefined

  constructor(fleet: SimulatedFleet, hasOthers: boolean) {
    this.#fleet = fleet
    this.#neverHeld = hasOthers ? new Map() : undefined
  }

  /** What the engine holds now. */
  note(): void {
    const blocks = blocksOf(this.#fleet)
    const cached = new Set(blocks.map(({ hash }) => hash))
    this.#noteCopies(blocks, cached)
    for (const hash of cached) {
      this.#known.add(hash)
      this.#gone.delete(hash)
    }
    const atMs = this.#wallMs()
    for (const hash of this.#known) {
      if (!cached.has(hash) && !this.#gone.has(hash)) this.#gone.set(hash, { atMs, knownMs: undefined })
    }
  }

  /**
   * Blocks of which the engine had several copies may be missing until it has shown how it reports copies,
   * and so may blocks below a missing block.
   */
  mayLack(hash: string): boolean {
    return this.#copied.has(hash)
  }

  #noteCopies(blocks: readonly CachedBlock[], cached: ReadonlySet<string>): void {
    for (const hash of this.#copied) if (!cached.has(hash)) this.#copied.delete(hash)
    for (let found = -1; found !== this.#copied.size; ) {
      found = this.#copied.size
      // A copy may come and go between two looks.
      for (const { hash, parentHash, copies, hasLostCopy } of blocks)
        if (copies > 1 || hasLostCopy || (parentHash !== null && this.#copied.has(parentHash)))
          this.#copied.add(hash)
    }
  }

  /** The router's event socket has said something. */
  sign(batch: Frames | 'disconnected'): void {
    this.note()
    const nowMs = this.#wallMs()
    const writtenMs = batch === 'disconnected' ? nowMs : writtenAtMs(batch)
    // The wall clock has whole milliseconds: a batch of the same millisecond may have been written before.
    const isSaid = ({ atMs }: { readonly atMs: number }) => batch === 'disconnected' || atMs < writtenMs
    for (const gone of this.#gone.values()) if (isSaid(gone)) gone.knownMs ??= nowMs
  }

  /** For how long it could be known; undefined: it could not. */
  knownForMs(hash: string): number | undefined {
    if (this.#neverHeld !== undefined && !this.#known.has(hash)) {
      const sinceMs = this.#neverHeld.get(hash) ?? this.#wallMs()
      this.#neverHeld.set(hash, sinceMs)
      return this.#wallMs() - sinceMs
    }
    const knownMs = this.#gone.get(hash)?.knownMs
    return knownMs === undefined ? undefined : this.#wallMs() - knownMs
  }

  #wallMs(): number {
    return this.#fleet.simulation.clock.wallMs()
  }
}

/** The sidecar of an engine; it lives as long as the network. */
class SidecarBeside {
  readonly endpoint = endpointOf(SIDECAR_EVENTS)
  readonly #fleet: SimulatedFleet
  readonly #random: Random
  readonly #batchesMax: number | undefined
  readonly #engineEndpoint: string
  #sidecar: Sidecar | undefined

  constructor(fleet: SimulatedFleet, seed: number, batchesMax: number | undefined, engineEndpoint: string) {
    this.#fleet = fleet
    this.#engineEndpoint = engineEndpoint
    this.#random = seededRandom(seed)
    this.#batchesMax = batchesMax
  }

  async open(): Promise<void> {
    const { simulation, network } = this.#fleet
    this.#sidecar = await Sidecar.open({
      clock: simulation.clock,
      random: this.#random,
      messages: network.transport().messages,
      log: silentLog,
      engineEndpoint: this.#engineEndpoint,
      eventsEndpoint: this.endpoint,
      replayEndpoint: endpointOf(SIDECAR_REPLAY),
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

function endpointOf(port: number): string {
  return `tcp://127.0.0.1:${port}`
}

/** Values for `--worker`: the engine, and the wrong setting. `other`: a neighbour. */
function workersOf(
  url: string,
  other: string | undefined,
  { hasSidecar = false, mistake }: ObservedOptions,
  hasReplay: boolean,
): readonly string[] {
  const replay = hasReplay ? '&replay=6557' : ''
  if (hasSidecar) {
    const query = `?events=${SIDECAR_EVENTS}&replay=${SIDECAR_REPLAY}`
    return mistake === 'one port for two workers' ? [url + query, other + query] : [url + query]
  }
  switch (mistake) {
    case 'replay of a neighbour':
      return [`${url}?events=5557&replay=6558`]
    case 'two ranks on one socket':
      return [`${url}?events=${RELAY_EVENTS}${replay}`]
    case 'one port for two workers':
      return [`${url}?events=5557${replay}`, `${other}?events=5557${replay}`]
    default:
      return [url]
  }
}

/** Publishes the batches of all engines on one socket too, while the first of them runs. */
function relay({ network, engines }: SimulatedFleet): void {
  const { messages } = network.transport()
  let publisher: Promise<Publisher> | undefined
  for (const [number, { events }] of engines.entries()) {
    const isFirst = number === 0
    messages.subscribe(
      { endpoint: events, topic: '' },
      {
        message: frames => void publisher?.then(open => open.send(frames)),
        connected() {
          if (isFirst) publisher = messages.publish({ endpoint: endpointOf(RELAY_EVENTS) })
        },
        disconnected() {
          if (isFirst) void publisher?.then(open => open.close())
          if (isFirst) publisher = undefined
        },
      },
    )
  }
}

function writtenAtMs(frames: Frames): number {
  return decodeKvBatch(parseEventFrames(frames).payload).timestampSeconds * 1000
}

function cacheOf(fleet: SimulatedFleet): ReadonlySet<string> {
  return new Set(blocksOf(fleet).map(({ hash }) => hash))
}

function blocksOf(fleet: SimulatedFleet): readonly CachedBlock[] {
  return fleet.engines[0]!.engine.state({ hasBlocks: true }).ranks[0]?.blocks ?? []
}
