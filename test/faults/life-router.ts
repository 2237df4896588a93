/**
 * Router observer: the router's own path in a history of lives, with workers that it follows itself and some
 * that it follows through a sidecar.
 *
 * Owns   the present life of the router, the signs by worker, and which prompts it has sent with a salt.
 */

import type { ActorRef } from '@homing/actor'
import { createTestSystem, type Probe, type TestSystem } from '@homing/actor/testing'
import { type DirectoryMessage, directory } from '@homing/actors/directory'
import { type IndexerMessage, indexer, type RoutedMessage } from '@homing/actors/indexer'
import { checkpointFiles } from '@homing/actors/listener'
import { type SimulatedClock, seededRandom } from '@homing/base'
import { type FleetMessage, parseWorkerSpec } from '@homing/fleet'
import { createIndexMemory, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import { separatedPrompt } from '@homing/placement/separated-prompt'
import { SALT } from '@homing/protocol'
import { transportCapability } from '@homing/transport'
import { SlowStore } from './life-checkpoints.ts'
import { CHECKPOINT_INTERVAL_MS, type Claim, REPLAY_TIMEOUT_MS } from './life-claim.ts'
import type { LifeEngine } from './life-engine.ts'
import { BLOCK_TOKENS, BLOCKS, PROMPTS } from './life-prompts.ts'
import type { SidecarObserver } from './life-sidecar.ts'
import { Signs } from './life-signs.ts'
import type { Surroundings } from './life-surroundings.ts'
import { Wire } from './life-wire.ts'

const PROBE_INTERVAL_MS = 1000

/** More than any events have removed: evictions do not explain the answers. */
const UNEXPLAINED_BLOCKS = Number.MAX_SAFE_INTEGER

/** A worker of the router. */
export interface LifeWorker {
  readonly who: string
  readonly engine: LifeEngine
  /** As `--worker` takes it. */
  readonly url: string
  readonly isBehindSidecar: boolean
}

const SHARD = { capacityBytes: 1 << 18, workerSlotsMax: 4 }

export class RouterObserver {
  readonly wire: Wire
  readonly store: SlowStore
  readonly #around: Surroundings
  readonly #workers: readonly LifeWorker[]
  readonly #sidecar: SidecarObserver | undefined
  readonly #checkpoints: boolean
  #system: TestSystem | undefined
  #directory: ActorRef<DirectoryMessage> | undefined
  #indexer: ActorRef<IndexerMessage | RoutedMessage> | undefined
  #fleet: Probe<FleetMessage> | undefined
  #reader: IndexReader | undefined
  readonly #scores = new OverlapCounts()
  /** By worker, of the present life of the router. */
  #signs: Signs[] = []
  /** By worker: when blocks could be known to be gone, behind a sidecar. */
  #behind: BehindSigns[] = []

  constructor(
    around: Surroundings,
    workers: readonly LifeWorker[],
    sidecar: SidecarObserver | undefined,
    options: { readonly checkpoints: boolean; readonly writeMs: number },
  ) {
    this.#around = around
    this.#workers = workers
    this.#sidecar = sidecar
    this.#checkpoints = options.checkpoints
    const [first] = workers
    this.store = new SlowStore(around.clock, options.writeMs, () => ({
      moment: around.moments.now,
      process: first!.engine.process,
      signs: this.#signs[0]!,
      salted: [...this.saltedMs.keys(), ...this.#saltedBefore],
    }))
    const { sidecarEvents, sidecarReplay } = around.places
    this.wire = new Wire(
      around.clock,
      around.origins,
      {
        live: (endpoint, origin, sentMs) => {
          if (endpoint === sidecarEvents) this.#heardSidecar(sentMs)
          else if (origin !== undefined) for (const signs of this.#signsOf(endpoint)) signs.live(origin)
        },
        repeated: (endpoint, origin) => {
          if (endpoint === sidecarReplay) return
          for (const signs of this.#signs) signs.repeated(origin)
        },
        connected: endpoint => {
          if (endpoint === sidecarEvents) for (const behind of this.#behind) behind.connected()
          else for (const signs of this.#signsOf(endpoint)) signs.connected()
        },
        disconnected: endpoint => {
          if (endpoint === sidecarEvents) for (const behind of this.#behind) behind.disconnected()
          else for (const signs of this.#signsOf(endpoint)) signs.disconnected()
        },
        polled() {},
        probed: (origin, metrics) => this.#probed(origin, metrics),
      },
      line => around.tell(`router: ${line}`),
    )
  }

  get system(): TestSystem | undefined {
    return this.#system
  }

  get isUp(): boolean {
    return this.#system !== undefined
  }

  start(): void {
    if (this.isUp) return
    const { clock, moments, random, systems } = this.#around
    this.saltedMs.clear()
    this.#saltedBefore = new Set()
    this.#hasContradicted = false
    this.#hasResumed = false
    this.#signs = this.#workers.map(({ engine }) => new Signs(engine, clock, moments))
    this.#behind = this.#workers.map(({ engine }) => new BehindSigns(engine, clock, this.#sidecar))
    const system = createTestSystem({
      clock,
      random: seededRandom(random.below(2 ** 31)),
      provide: [
        [transportCapability, this.wire.over(this.#around.transport())],
        [checkpointFiles, this.store],
      ],
    })
    systems.add(system)
    const memory = createIndexMemory(layeredOptions(SHARD.capacityBytes, SHARD.workerSlotsMax))
    this.#reader = new IndexReader([memory])
    const ref = system.spawn(indexer, { name: 'indexer', args: { shard: 0, memory, ...SHARD } })
    this.#indexer = ref
    this.#fleet = system.probe<FleetMessage>('router')
    this.#directory = system.spawn(directory, {
      name: 'directory',
      args: {
        specs: this.#workers.map(({ url }, position) => parseWorkerSpec(url, position)),
        indexers: [ref],
        kvEvents: true,
        blockSizeTokens: undefined,
        workerSlotsMax: SHARD.workerSlotsMax,
        probeIntervalMs: PROBE_INTERVAL_MS,
        probeTimeoutMs: 500,
        replayTimeoutMs: REPLAY_TIMEOUT_MS,
        ...(this.#checkpoints
          ? { checkpointDirectory: '/checkpoints', checkpointIntervalMs: CHECKPOINT_INTERVAL_MS }
          : {}),
      },
    })
    this.#directory.tell({ type: 'subscribe', subscriber: this.#fleet.ref })
    this.#system = system
  }

  /** `isGraceful`: it writes checkpoints first. */
  async stop(isGraceful: boolean): Promise<void> {
    const system = this.#system
    if (system === undefined) return
    if (isGraceful && this.#checkpoints) {
      const saved = this.#directory!.ask({ type: 'saveCheckpoints', timeoutMs: 1000 }, { timeout: 2000 })
      await this.#around.finish(saved.catch(() => undefined))
    }
    this.#system = undefined
    await this.#around.finish(system.shutdown())
    this.#around.systems.delete(system)
  }

  /**
   * When a prompt that begins so was first sent through this life of the router with a salt, in milliseconds.
   */
  readonly saltedMs = new Map<string, number>()

  /**
   * The same for prompts sent before a checkpoint that was taken over: the checkpoint lacks their blocks too.
   */
  #saltedBefore: ReadonlySet<string> = new Set()

  /** Held blocks with this beginning may be credited to no worker. */
  mayLack(who: string, beginning: string): boolean {
    return this.saltedMs.has(beginning) || (who === 'router' && this.#saltedBefore.has(beginning))
  }

  /** A request with a salt goes through this router, which does what actors/router does. */
  salted(tokens: readonly number[], salt: string): void {
    if (!this.isUp) return
    const beginning = tokens.slice(0, BLOCK_TOKENS).join()
    this.saltedMs.set(beginning, this.saltedMs.get(beginning) ?? this.#around.clock.nowMs())
    const prompt = separatedPrompt(Int32Array.from(tokens), BLOCK_TOKENS, { cacheSalt: salt }, SALT)!
    for (const key of this.#keys()) {
      if (key !== undefined) this.#indexer!.tell({ type: 'separated', workerSlot: key.workerSlot, prompt })
    }
  }

  #hasContradicted = false
  /** When they last did, in any life. */
  #contradictedMoment = 0
  #hasResumed = false

  /** Writes checkpoints, if any are kept; they may not be written yet. */
  save(): void {
    if (!this.isUp || !this.#checkpoints) return
    this.#directory!.tell({ type: 'saveCheckpoints', timeoutMs: 1000, reply: () => {} })
  }

  /** Answers have contradicted the events of this life of the router. */
  get hasContradicted(): boolean {
    return this.#hasContradicted
  }

  /** Answers of the engine contradict the predictions. */
  contradicted(): void {
    if (!this.isUp) return
    this.#hasContradicted = true
    this.#contradictedMoment = this.#around.moments.now
    for (const [i, { engine }] of this.#workers.entries()) {
      const key = this.#keys()[i]
      if (key === undefined) continue
      const { workerSlot, epoch } = key
      const reason = `${engine.name} found less than predicted`
      this.#directory!.tell({
        type: 'audit',
        workerSlot,
        epoch,
        verdict: 'contradicted',
        missingBlocks: UNEXPLAINED_BLOCKS,
        reason,
      })
      this.#signs[i]!.contradicted()
    }
  }

  /**
   * After taking over a checkpoint, the observer knows what its file says and what has become known since the
   * checkpoint was begun.
   */
  async #lookForCheckpoint(): Promise<void> {
    if (!this.#checkpoints || this.#hasResumed) return
    const [key] = this.#keys()
    const { eventsEndpoint } = this.#workers[0]!.engine
    const file = this.store.lastRead(`${eventsEndpoint} 0`)
    if (file === undefined || key === undefined) return
    const report = await this.#around.soon(this.#directory!.ask({ type: 'describe' }, { timeout: 1000 }))
    if (report?.sources[key.workerSlot]?.checkpoint.resumedSequence === undefined) return
    this.#hasResumed = true
    const [signs] = this.#signs
    signs!.resumed(file.takenOver)
    this.#saltedBefore = file.salted
    if (file.moment <= this.#contradictedMoment) signs!.contradicted(this.#contradictedMoment)
  }

  async claims(): Promise<readonly Claim[]> {
    if (!this.isUp) return []
    await this.#lookForCheckpoint()
    const keys = this.#keys()
    return this.#workers.flatMap(({ who, engine, isBehindSidecar }, i) => {
      const key = keys[i]
      if (key === undefined) return []
      const { trust, trustReason: reason, workerSlot } = key
      const counts = trust === 'exact' || trust === 'partial'
      const signs = isBehindSidecar ? this.#behind[i]! : this.#signs[i]!
      return [
        {
          who,
          engine,
          trust,
          reason,
          credited: counts ? this.#credited(workerSlot) : [],
          knownForMs: (block: number) => signs.knownForMs(block),
          mistakenForMs: () => signs.mistakenForMs,
          hasPassed: this.#signsThrough(i).hasPassed,
          isLive: () => this.#isLive(workerSlot),
          unobservable: (block: number) => this.#signsThrough(i).unobservable(block),
          isDoubted: (block: number) => this.#signsThrough(i).isDoubted(block),
        },
      ]
    })
  }

  #keys() {
    const fleet = this.#fleet!.waiting.at(-1)?.fleet
    return this.#workers.map(({ url }) => {
      const { id } = parseWorkerSpec(url, 0)
      return fleet?.workers.find(worker => worker.id === id)?.keys[0]
    })
  }

  async #isLive(workerSlot: number): Promise<boolean> {
    const asked = this.#directory!.ask({ type: 'describe' }, { timeout: 1000 })
    const report = await this.#around.soon(asked)
    return report?.sources[workerSlot]?.state === 'live'
  }

  #credited(workerSlot: number): readonly number[] {
    const credited = new Set<number>()
    for (const { locals, blocks } of PROMPTS) {
      this.#reader!.overlap(locals, blocks.length, this.#scores)
      for (let i = 0; i < this.#scores.length; i++) {
        if (this.#scores.workerSlots[i] !== workerSlot) continue
        for (const block of blocks.slice(0, this.#scores.blocks[i])) credited.add(block)
      }
    }
    return [...credited]
  }

  /** Of this worker; of one that is followed through the sidecar, its. */
  #signsThrough(worker: number): Signs {
    return this.#workers[worker]!.isBehindSidecar ? this.#sidecar!.signs : this.#signs[worker]!
  }

  #signsOf(endpoint: string): readonly Signs[] {
    return this.#signs.filter(({ engine }) => engine.eventsEndpoint === endpoint)
  }

  #heardSidecar(sentMs: number): void {
    for (const behind of this.#behind) behind.heard(sentMs)
  }

  #probed(origin: string, metrics: string): void {
    const started = /process_start_time_seconds (\d+)/.exec(metrics)
    if (started === null) return
    for (const [i, { engine, url }] of this.#workers.entries()) {
      if (!url.startsWith(`${origin}?`)) continue
      const process = engine.processOf(Number(started[1]))!
      this.#signs[i]!.probed(process)
      this.#behind[i]!.probed(process)
    }
  }
}

/** A router behind a sidecar knows what the sidecar could know, with the next word of the sidecar. */
class BehindSigns {
  readonly #engine: LifeEngine
  readonly #clock: SimulatedClock
  readonly #sidecar: SidecarObserver | undefined
  readonly #known = BLOCKS.map(
    (): { readonly moment: number; readonly atMs: number } | undefined => undefined,
  )

  constructor(engine: LifeEngine, clock: SimulatedClock, sidecar: SidecarObserver | undefined) {
    this.#engine = engine
    this.#clock = clock
    this.#sidecar = sidecar
  }

  knownForMs(block: number): number | undefined {
    const gone = this.#engine.gone(block)
    const known = this.#known[block]
    if (gone === undefined || known?.moment !== gone.moment) return undefined
    return this.#clock.nowMs() - known.atMs
  }

  connected(): void {
    this.#known.fill(undefined)
  }

  #mistakenMs: number | undefined

  get mistakenForMs(): number | undefined {
    return this.#mistakenMs === undefined ? undefined : this.#clock.nowMs() - this.#mistakenMs
  }

  /** A word of the sidecar came: it says what the sidecar knew when it sent it. */
  heard(sentMs: number): void {
    const sinceMs = this.#clock.nowMs() - sentMs
    const knewIt = (knownForMs = Number.NEGATIVE_INFINITY): boolean => knownForMs >= sinceMs
    if (knewIt(this.#sidecar?.signs.mistakenForMs)) this.#mistakenMs ??= this.#clock.nowMs()
    this.#tell(block => knewIt(this.#sidecar?.signs.knownForMs(block)))
  }

  disconnected(): void {
    this.#mistakenMs = undefined
    this.#tell(() => true)
  }

  #process: number | undefined
  probed(process: number): void {
    if (this.#process !== undefined && process > this.#process) {
      const firstLife = this.#engine.firstLives[process]!
      this.#tell(block => this.#engine.gone(block)!.life < firstLife)
    }
    this.#process = process
  }

  #tell(isTold: (block: number) => boolean): void {
    const atMs = this.#clock.nowMs()
    for (let block = 0; block < BLOCKS.length; block++) {
      const gone = this.#engine.gone(block)
      if (gone === undefined || this.#known[block]?.moment === gone.moment || !isTold(block)) continue
      this.#known[block] = { moment: gone.moment, atMs }
    }
  }
}
