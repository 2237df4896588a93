/**
 * The observers of a history of lives: the router's own path, the sidecar and a router behind it, `homing
 * indexer`, and a peer of it that inherits. All are the real actors and the real sidecar, on a simulated
 * clock and a network in memory.
 *
 * The beliefs of each of them are a list of *claims*: this engine holds these blocks, and this is how far it
 * can be believed.
 */

import type { ActorRef } from '@homing/actor'
import { createTestSystem, type Probe, type TestSystem } from '@homing/actor/testing'
import { type DirectoryMessage, directory } from '@homing/actors/directory'
import { type IndexServiceArgs, indexService } from '@homing/actors/index-service'
import { type IndexerMessage, indexer, type RoutedMessage } from '@homing/actors/indexer'
import { type CheckpointStore, checkpointFiles } from '@homing/actors/listener'
import { type Clock, type SimulatedClock, seededRandom, silentLog } from '@homing/base'
import { type FleetMessage, parseWorkerSpec } from '@homing/fleet'
import { createIndexMemory, IndexReader, layeredOptions, OverlapCounts, type Trust } from '@homing/index'
import { Metrics, serviceProcessMetrics } from '@homing/metrics'
import { separatedPrompt } from '@homing/placement/separated-prompt'
import { decodeKvBatch, parseSnapshotReply, SALT, snapshotRequestFrames } from '@homing/protocol'
import { PolledSidecar, Republisher, Sidecar } from '@homing/publisher'
import { transportCapability } from '@homing/transport'
import { decodeCheckpoint } from '../../actors/listener/src/checkpoint.ts'
import type { LifeEngine } from './life-engine.ts'
import { BLOCK_TOKENS, BLOCKS, PROMPTS, tokensOf } from './life-prompts.ts'
import { Signs, type TakenOver, type Unobservable } from './life-signs.ts'
import type { Places, Surroundings } from './life-surroundings.ts'
import { Wire } from './life-wire.ts'

export interface Claim {
  /** For people: `router`, `router behind the sidecar`, … */
  readonly who: string
  readonly engine: LifeEngine
  readonly trust: Trust
  readonly reason: string
  /** Numbers of `BLOCKS`. */
  readonly credited: readonly number[]
  /** Undefined: it could not be known that it is gone, or it is held. */
  readonly knownForMs: (block: number) => number | undefined
  /** For how long the observer could know that another engine is mistaken for this one. */
  readonly mistakenForMs: () => number | undefined
  /** A life of the engine has passed for the one after it. */
  readonly hasPassed: boolean
  /** No recovery is under way. */
  readonly isLive: () => Promise<boolean>
  /** Why no observer could know that a block is gone; undefined: an observer could. */
  readonly unobservable: (block: number) => Unobservable | undefined
  /**
   * A life in doubt held the block: a sign shows its end, but its blocks cannot be told from those of the
   * next life.
   */
  readonly isDoubted: (block: number) => boolean
}

export const CHECKPOINT_INTERVAL_MS = 4000
const REPLAY_TIMEOUT_MS = 300
const PROBE_INTERVAL_MS = 1000

interface StoredCheckpoint {
  readonly bytes: Uint8Array
  /** When its writing began. */
  readonly moment: number
  readonly takenOver: TakenOver
  /** Prompts sent with a salt: their blocks stored since then count for no worker. */
  readonly salted: ReadonlySet<string>
}

/** The state when a checkpoint is written. */
interface Present {
  readonly moment: number
  readonly process: number
  readonly signs: Signs
  readonly salted: Iterable<string>
}

/** More than any events have removed: evictions do not explain the answers. */
const UNEXPLAINED_BLOCKS = Number.MAX_SAFE_INTEGER

/** Checkpoints in memory; a write takes its time. */
export class SlowStore implements CheckpointStore {
  readonly #clock: SimulatedClock
  readonly #writeMs: number
  readonly #present: () => Present
  readonly #files = new Map<string, StoredCheckpoint>()
  /** The checkpoint last read of each source. */
  readonly #read = new Map<string, StoredCheckpoint>()

  constructor(clock: SimulatedClock, writeMs: number, present: () => Present) {
    this.#clock = clock
    this.#writeMs = writeMs
    this.#present = present
  }

  lastRead(source: string): StoredCheckpoint | undefined {
    return this.#read.get(source)
  }

  async read(_directory: string, source: string): Promise<Uint8Array | undefined> {
    const file = this.#files.get(source)
    if (file === undefined) this.#read.delete(source)
    else this.#read.set(source, file)
    return file?.bytes
  }

  async write(
    _directory: string,
    source: string,
    pieces: readonly Uint8Array[],
    isWanted: () => boolean,
  ): Promise<void> {
    const { moment, process, signs, salted } = this.#present()
    const bytes = Buffer.concat(pieces)
    const takenOver = signs.takenOver(process, () => {
      const { nextSequence, fingerprints } = decodeCheckpoint(bytes).point
      return nextSequence - fingerprints.length
    })
    const file = { bytes, moment, takenOver, salted: new Set(salted) }
    if (this.#writeMs > 0) await new Promise<void>(resolve => void this.#clock.after(this.#writeMs, resolve))
    if (isWanted()) this.#files.set(source, file)
  }

  async touch(): Promise<void> {}

  async remove(_directory: string, source: string): Promise<void> {
    this.#files.delete(source)
  }
}

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

/** The sidecar, and its answers to a router that asks now. */
export class SidecarObserver {
  readonly wire: Wire
  signs: Signs
  readonly #around: Surroundings
  readonly #engine: LifeEngine
  readonly #bufferBatches: number
  #sidecar: { readonly isWhole: boolean; close(): Promise<void> } | undefined
  /** The engine does not answer. */
  #isDown = false

  constructor(around: Surroundings, engine: LifeEngine, bufferBatches: number) {
    this.#around = around
    this.#engine = engine
    this.#bufferBatches = bufferBatches
    this.signs = new Signs(engine, around.clock, around.moments)
    this.wire = new Wire(
      around.clock,
      around.origins,
      {
        live: (_endpoint, origin) => {
          if (origin !== undefined) this.signs.live(origin)
        },
        repeated() {},
        connected: () => this.signs.connected(),
        disconnected: () => {
          this.#isDown = true
          this.signs.disconnected()
        },
        polled: events => {
          if (this.#isDown) this.signs.connected()
          this.#isDown = false
          for (const { event_id: sequence, life, moment } of events) {
            const origin = {
              engine: this.#engine,
              life,
              sequence,
              moment,
              told: '',
              isShared: false,
              again: [],
            }
            this.signs.live(origin)
          }
        },
        probed() {},
      },
      line => around.tell(`sidecar: ${line}`),
    )
  }

  get isUp(): boolean {
    return this.#sidecar !== undefined
  }

  async start(): Promise<void> {
    if (this.isUp) return
    const { clock, random, moments, places } = this.#around
    this.signs = new Signs(this.#engine, clock, moments)
    const transport = this.wire.over(this.#around.transport())
    const options = {
      clock,
      random,
      messages: transport.messages,
      eventsEndpoint: places.sidecarEvents,
      replayEndpoint: places.sidecarReplay,
      topic: '',
      replayForm: 'topic',
      queuedMessagesMax: 100_000,
      repliesMax: 16,
      bufferBatchesMax: this.#bufferBatches,
    } as const
    if (!this.#engine.kind.isPolled) {
      const engineEndpoint = this.#engine.eventsEndpoint
      const sidecar = await Sidecar.open({ ...options, log: silentLog, engineEndpoint })
      this.#sidecar = {
        get isWhole() {
          return sidecar.status()?.isWhole === true
        },
        close: () => sidecar.close(0),
      }
      return
    }
    const engine = this.#engine
    // Its batches have no time of their own; both run on one host, whose time they use.
    const ofHost: Clock = {
      nowMs: () => clock.nowMs(),
      wallMs: () => engine.wallMs,
      after: (delayMs, callback) => clock.after(delayMs, callback),
    }
    const out = await Republisher.open({ ...options, clock: ofHost })
    const polled = new PolledSidecar({
      clock: ofHost,
      http: transport.http,
      log: silentLog,
      engineOrigin: this.#engine.origin,
      blockSizeTokens: BLOCK_TOKENS,
      pollIntervalMs: 10,
      ranks: [out],
    })
    polled.start()
    this.#sidecar = {
      get isWhole() {
        return out.status()?.isWhole === true
      },
      close: async () => {
        // It may wait for an answer.
        transport.close()
        await polled.close()
        await out.close(0)
      },
    }
  }

  async stop(): Promise<void> {
    const closed = this.#sidecar?.close()
    this.#sidecar = undefined
    if (closed !== undefined) await this.#around.finish(closed)
  }

  async claims(): Promise<readonly Claim[]> {
    if (!this.isUp) return []
    const transport = this.#around.transport()
    const payloads: Uint8Array[] = []
    let isWhole = false
    const whole = Promise.withResolvers<void>()
    const endpoint = this.#around.places.sidecarReplay
    const dealer = transport.messages.dial({ endpoint }, frames => {
      const reply = parseSnapshotReply(frames)
      if (reply.kind !== 'part') return
      isWhole = reply.isWhole
      payloads.push(reply.payload)
      if (reply.part + 1 === reply.parts) whole.resolve()
    })
    dealer.send(snapshotRequestFrames())
    await this.#around.soon(whole.promise)
    dealer.close()
    transport.close()
    return [
      {
        who: 'sidecar',
        engine: this.#engine,
        trust: isWhole ? 'exact' : 'partial',
        reason: isWhole ? 'the snapshot is whole' : 'the snapshot is not whole',
        credited: creditedBy(payloads),
        knownForMs: block => this.signs.knownForMs(block),
        mistakenForMs: () => this.signs.mistakenForMs,
        hasPassed: this.signs.hasPassed,
        isLive: async () => true,
        unobservable: block => this.signs.unobservable(block),
        isDoubted: block => this.signs.isDoubted(block),
      },
    ]
  }
}

/** What the stores of a snapshot say. */
function creditedBy(payloads: readonly Uint8Array[]): readonly number[] {
  const letters = new Map<string, { readonly text: string; readonly salt: string | undefined }>()
  const told = new Set<string>()
  for (const payload of payloads) {
    for (const event of decodeKvBatch(payload).events) {
      if (event.kind !== 'stored' || event.attention === 'sliding_window') continue
      if (event.blockSizeTokens !== BLOCK_TOKENS) continue
      let above =
        event.parent === undefined ? { text: '', salt: event.cacheSalt } : letters.get(keyOf(event.parent, 0))
      for (let i = 0; i < event.hashes.length / 2 && above !== undefined; i++) {
        const letter = letterOf(event.tokens.subarray(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS))
        above = { text: above.text + letter, salt: above.salt }
        letters.set(keyOf(event.hashes, i), above)
        told.add(above.text + (above.salt === undefined ? '' : `+${above.salt}`))
      }
    }
  }
  return [...BLOCKS.keys()].filter(block => told.has(BLOCKS[block]!.name))
}

function letterOf(tokens: Int32Array): string {
  const letter = String.fromCharCode((tokens[0]! - 100) / BLOCK_TOKENS)
  return tokensOf(letter).every((token, i) => token === tokens[i]) ? letter : '?'
}

function keyOf(words: Int32Array, i: number): string {
  return `${words[2 * i]} ${words[2 * i + 1]}`
}

/** What a service is configured to follow: the engine, and whose sockets it gets for it. */
export interface ServiceRank {
  readonly engine: LifeEngine
  readonly instanceId: bigint
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
}

/** `homing indexer`. Every instance has its own model name, so its trust can be read separately. */
export class ServiceObserver {
  readonly wire: Wire
  readonly url: string
  readonly store: SlowStore
  readonly #around: Surroundings
  readonly #who: string
  readonly #place: Places['service']
  readonly #given: readonly ServiceRank[]
  /** Registered once the service has started. */
  readonly #late: ServiceRank | undefined
  readonly #peer: ServiceObserver | undefined
  readonly #checkpoints: boolean
  #system: TestSystem | undefined
  #signs: Signs[] = []
  #hasResumed = false

  constructor(
    around: Surroundings,
    who: string,
    place: Places['service'],
    given: readonly ServiceRank[],
    late: ServiceRank | undefined,
    peer: ServiceObserver | undefined,
    options: { readonly checkpoints: boolean; readonly writeMs: number },
  ) {
    this.#around = around
    this.#who = who
    this.#place = place
    this.#given = given
    this.#late = late
    this.#peer = peer
    this.#checkpoints = options.checkpoints
    this.url = `http://${place.host}:${place.port}`
    const [first] = given
    this.store = new SlowStore(around.clock, options.writeMs, () => ({
      moment: around.moments.now,
      process: first!.engine.process,
      signs: this.#signs[0]!,
      salted: [],
    }))
    const of = (endpoint: string) => this.#signs.filter(({ engine }) => engine.eventsEndpoint === endpoint)
    this.wire = new Wire(
      around.clock,
      around.origins,
      {
        live: (endpoint, origin) => {
          if (origin !== undefined) for (const signs of of(endpoint)) signs.live(origin)
        },
        repeated: (_endpoint, origin) => {
          for (const signs of this.#signs) signs.repeated(origin)
        },
        connected: endpoint => {
          for (const signs of of(endpoint)) signs.connected()
        },
        disconnected: endpoint => {
          for (const signs of of(endpoint)) signs.disconnected()
        },
        polled() {},
        probed() {},
      },
      line => around.tell(`${who}: ${line}`),
    )
  }

  get system(): TestSystem | undefined {
    return this.#system
  }

  get isUp(): boolean {
    return this.#system !== undefined
  }

  get #ranks(): readonly ServiceRank[] {
    return this.#late === undefined ? this.#given : [...this.#given, this.#late]
  }

  async start(): Promise<void> {
    if (this.isUp) return
    const { clock, random, moments, systems } = this.#around
    this.#signs = this.#ranks.map(({ engine }) => new Signs(engine, clock, moments))
    this.#hasResumed = false
    const system = createTestSystem({
      clock,
      random: seededRandom(random.below(2 ** 31)),
      provide: [
        [transportCapability, this.wire.over(this.#around.transport())],
        [checkpointFiles, this.store],
        [serviceProcessMetrics, new Metrics()],
      ],
    })
    systems.add(system)
    this.#system = system
    const args: IndexServiceArgs = {
      ...this.#place,
      bodyBytesMax: 1 << 20,
      bodiesBytesMax: 1 << 24,
      bodyTimeoutMs: 1000,
      clientStallTimeoutMs: 1000,
      openRequestsMax: 64,
      threads: 1,
      indexBytes: 1 << 19,
      labelBytes: 1 << 16,
      workerSlotsMax: 4,
      replayTimeoutMs: REPLAY_TIMEOUT_MS,
      ...(this.#checkpoints
        ? { checkpointDirectory: '/checkpoints', checkpointIntervalMs: CHECKPOINT_INTERVAL_MS }
        : {}),
      registrations: this.#given.map(({ instanceId, endpoint, replayEndpoint }) => ({
        instanceId,
        dpRank: 0,
        model: modelOf(instanceId),
        group: 'default',
        endpoint,
        replayEndpoint,
        blockSizeTokens: BLOCK_TOKENS,
      })),
      peers: this.#peer === undefined ? [] : [this.#peer.url],
      peersMax: 2,
      peerWaitMs: 100,
      peerTimeoutMs: 1000,
      peerDumpBytesMax: 1 << 20,
      accessLog: undefined,
      traceIdHeader: 'x-trace-id',
    }
    system.spawn(indexService, { name: 'index-service', args })
    if (this.#late === undefined) return
    await this.#around.advance(1)
    const { instanceId, endpoint, replayEndpoint } = this.#late
    const registration = {
      instance_id: Number(instanceId),
      endpoint,
      ...(replayEndpoint === undefined ? {} : { replay_endpoint: replayEndpoint }),
      model_name: modelOf(instanceId),
      block_size: BLOCK_TOKENS,
    }
    const transport = this.#around.transport()
    const body = Buffer.from(JSON.stringify(registration))
    const request = { origin: this.url, method: 'POST', path: '/register', body }
    await this.#around.soon(transport.http.fetch(request, { timeoutMs: 1000 }))
    transport.close()
  }

  async stop(): Promise<void> {
    const system = this.#system
    if (system === undefined) return
    this.#system = undefined
    await this.#around.finish(system.shutdown())
    this.#around.systems.delete(system)
  }

  /** As the router does. */
  async #lookForCheckpoint(): Promise<void> {
    if (!this.#checkpoints || this.#hasResumed) return
    const file = this.store.lastRead(`${this.#given[0]!.endpoint} 0`)
    if (file === undefined || file.takenOver.passed.length === 0) return
    const [said] = await this.trusts()
    if (said?.hasResumed !== true) return
    this.#hasResumed = true
    this.#signs[0]!.resumed(file.takenOver)
  }

  async claims(): Promise<readonly Claim[]> {
    if (!this.isUp) return []
    await this.#lookForCheckpoint()
    const transport = this.#around.transport()
    const asked = this.#ranks.map(async ({ engine, instanceId }, i) => {
      const credited = new Set<number>()
      const trusts = new Set<Trust>()
      const answers = PROMPTS.map(async ({ tokens, salt, blocks }) => {
        const query = {
          token_ids: tokens,
          model_name: modelOf(instanceId),
          ...(salt === undefined ? {} : { cache_salt: salt }),
        }
        const reply = await transport.http.fetch(
          { origin: this.url, method: 'POST', path: '/query', body: Buffer.from(JSON.stringify(query)) },
          { timeoutMs: 1000 },
        )
        if (reply.status !== 200) return
        const { scores } = JSON.parse(Buffer.from(reply.body).toString()) as {
          scores: Readonly<Record<string, Readonly<Record<string, number>>>>
        }
        const overlap = (scores[instanceId.toString()]?.['0'] ?? 0) / BLOCK_TOKENS
        if (overlap === 0) return
        trusts.add(reply.headers['x-homing-trust'] as Trust)
        for (const block of blocks.slice(0, overlap)) credited.add(block)
      })
      await Promise.all(answers).catch(() => undefined)
      const signs = this.#signs[i]!
      const [trust = 'none'] = trusts
      return {
        who: this.#nameOf(instanceId),
        engine,
        trust,
        reason: '',
        credited: [...credited],
        knownForMs: (block: number) =>
          trust === 'approximate' ? signs.knownOfWordForMs(block) : signs.knownForMs(block),
        mistakenForMs: () => signs.mistakenForMs,
        hasPassed: signs.hasPassed,
        isLive: async () => (await this.trusts())[i]?.isActive === true,
        unobservable: (block: number) => signs.unobservable(block),
        isDoubted: (block: number) => signs.isDoubted(block),
      }
    })
    const claims = await this.#around.soon(Promise.all(asked))
    transport.close()
    return claims ?? []
  }

  #nameOf(instanceId: bigint): string {
    return this.#ranks.length > 1 ? `${this.#who}, instance ${instanceId}` : this.#who
  }

  /** The trust that it reports for its ranks. */
  async trusts(): Promise<
    readonly (Pick<Claim, 'who' | 'engine' | 'trust' | 'reason'> & {
      readonly isActive: boolean
      readonly hasResumed: boolean
    })[]
  > {
    const transport = this.#around.transport()
    const asked = transport.http.fetch(
      { origin: this.url, method: 'GET', path: '/workers' },
      { timeoutMs: 1000 },
    )
    const reply = await this.#around.soon(asked)
    transport.close()
    if (reply?.status !== 200) return []
    const instances = JSON.parse(Buffer.from(reply.body).toString()) as readonly {
      readonly instance_id: number
      readonly listeners: Readonly<
        Record<
          string,
          {
            readonly trust: Trust
            readonly trust_reason: string
            readonly status: string
            readonly resumed_sequence: number | null
          }
        >
      >
    }[]
    return this.#ranks.flatMap(({ instanceId, engine }) => {
      const listener = instances.find(({ instance_id: id }) => id === Number(instanceId))?.listeners['0']
      if (listener === undefined) return []
      const { trust, trust_reason: reason, status } = listener
      const who = this.#nameOf(instanceId)
      const [isActive, hasResumed] = [status === 'active', listener.resumed_sequence !== null]
      return [{ who, engine, trust, reason: `${status}: ${reason}`, isActive, hasResumed }]
    })
  }
}

function modelOf(instanceId: bigint): string {
  return `m${instanceId}`
}
