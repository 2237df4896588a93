/**
 * A fleet with liars: simulated engines, the simulator's router (which places, learns and audits by the code
 * of the product), and lies between them. One seed is one fleet, its traffic and its lies.
 *
 *   traffic ─▶ router ─▶ engine, as fast as others ─▶ what it says: true, or as its lies have it ─▶ router
 *                 └◀─ failed at once: placed again elsewhere, as the gateway does
 *
 * Honest requests are those of honest clients, wherever they are served. Their time counts from arrival to
 * the last token, whatever was tried in between.
 */

import { type Random, seededRandom } from '@homing/base'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { NO_BUSY_THRESHOLDS } from '@homing/load'
import { type Delivery, type RoutingRequest, WorkerHealth } from '@homing/placement'
import { GUARD_SHARE_DEFAULT } from '@homing/selection'
import type { CellSpec } from '@homing/simulate'
import { generatedRequests, parseGenerator, type TraceRequest } from '@homing/trace'
import { SimEngine } from '../../packages/simulate/src/engine.ts'
import { engineProfile } from '../../packages/simulate/src/engine-profile.ts'
import { EventHeap } from '../../packages/simulate/src/event-heap.ts'
import { EventView } from '../../packages/simulate/src/fleet-view.ts'
import { SimFleet } from '../../packages/simulate/src/sim-fleet.ts'
import { newSimRequest, type SimRequest } from '../../packages/simulate/src/sim-request.ts'
import { SimRouter } from '../../packages/simulate/src/sim-router.ts'
import { drawLies, type EngineLies, type Lies, NO_LIES, oneOf } from './lies.ts'

const BLOCK_TOKENS = 512
const REQUESTS = 400
/** From a decision until an engine has failed it. */
const FAIL_MS = 2
const EVENT_DELAY_MS = 5
const RETRY_MS = 50
/** Share of a text's tokens that a claimed prompt counts as at least, as the tokenizer has it. */
const CLAIMED_SHARE_MIN = 0.5
/** Requests in a second that an engine of the profile can take of each traffic. */
const PER_ENGINE_S = { sessions: 7, groups: 1.6, rag: 1.5, unique: 1.1, hot: 1.6, coding: 1 } as const
/** Of what engines have in flight. */
const BUSY_FRACTION = 0.95

/** What lies may cost honest requests. */
export const RATIO_MAX = 1.1

/** A fleet and its traffic, without lies. */
interface Setting {
  readonly spec: CellSpec
  readonly traffic: readonly TraceRequest[]
  readonly hasThresholds: boolean
  /** Clients say how long their answers may be. */
  readonly limitsOutput: boolean
  readonly text: string
}

/** What became of the honest requests. */
export interface Outcome {
  readonly meanMs: number
  readonly served: number
  readonly unserved: number
  /** Honest engines whose answers contradicted their events. */
  readonly contradicted: readonly string[]
}

export interface LiarsResult {
  readonly text: string
  readonly lies: readonly string[]
  readonly withLies: Outcome
  /** Mean time of honest requests ÷ what it is where the liars tell the truth. */
  readonly truthRatio: number
  /**
   * The same; or, where that is beyond RATIO_MAX, ÷ what it is without the liars among the engines, if that
   * is longer: one that fails what it gets, or says that it can take nothing, is worth no more than one that
   * is not there.
   */
  readonly ratio: number
}

/** `only`: the lies of these names; default: all that the seed draws. */
export function runLiars(seed: number, only?: readonly string[]): LiarsResult {
  const setting = settingOf(seed)
  const { workers } = setting.spec
  const lies = drawLies(seededRandom(seed ^ 0x51ab3c17), workers, only)
  const honest: Lies = { ...NO_LIES, client: lies.client && { ...lies.client, claims: undefined } }
  const withLies = new World(setting, lies, workers).run()
  const truthful = new World(setting, honest, workers).run()
  const truthRatio = withLies.meanMs / truthful.meanMs
  const result = { text: setting.text, lies: lies.names, withLies, truthRatio }
  if (truthRatio <= RATIO_MAX) return { ...result, ratio: truthRatio }
  const absent = new World(setting, honest, workers, new Set(lies.engines.keys())).run()
  return { ...result, ratio: withLies.meanMs / Math.max(truthful.meanMs, absent.meanMs) }
}

function settingOf(seed: number): Setting {
  const random = seededRandom(seed)
  const workers = 4 + random.below(5)
  const names = Object.keys(PER_ENGINE_S) as (keyof typeof PER_ENGINE_S)[]
  const name = oneOf(random, names)
  const load = 0.15 + 0.5 * random.next()
  const rate = PER_ENGINE_S[name] * workers * load
  const open = name === 'sessions' || name === 'coding' ? '&loop=open' : ''
  const generator = parseGenerator(`${name}?requests=${REQUESTS}&rate=${rate.toFixed(3)}${open}`)
  const hasThresholds = random.next() < 0.3
  const limitsOutput = random.next() < 0.5
  const kvCapacityTokens = oneOf(random, [undefined, undefined, 131_072])
  const spec: CellSpec = {
    workers,
    profile: 'h100-8b',
    blockTokens: BLOCK_TOKENS,
    ...(kvCapacityTokens === undefined ? {} : { kvCapacityTokens }),
    routers: 1,
    view: { kind: 'late', eventDelayMs: EVENT_DELAY_MS, signalDelayMs: 0 },
    selection: { mode: 'kv', policy: 'auto', temperature: 0, guardShare: GUARD_SHARE_DEFAULT },
    loadCounts: 'blocks',
    knowsOutput: false,
    speed: 1,
    copies: 1,
    stretch: 1,
    seed,
    warmupShare: 0,
  }
  const text = `${name} at ${load.toFixed(2)} on ${workers} workers of ${kvCapacityTokens ?? 'all'} KV tokens`
  return { spec, traffic: [...generatedRequests(generator, seed)], hasThresholds, limitsOutput, text }
}

interface Sent {
  /** What its engine gets. */
  readonly real: SimRequest
  readonly isHonest: boolean
  /** What its router knows, of the last attempt. */
  told: SimRequest
  decidedMs: number
  isFirstTokenTold: boolean
  readonly failedAt: string[]
}

interface Due {
  readonly atMs: number
  readonly act: () => void
}

class World {
  readonly #setting: Setting
  readonly #lies: Lies
  /** Of what is sent: equal with and without lies. */
  readonly #traffic: Random
  /** Of what liars say. */
  readonly #draws: Random
  readonly #engines: readonly SimEngine[]
  readonly #heap: EventHeap
  readonly #view: EventView
  readonly #router: SimRouter
  readonly #health = new WorkerHealth()
  readonly #fleet: Fleet
  readonly #capacityBlocks: number
  readonly #sent = new Map<number, Sent>()
  readonly #contradicted: string[] = []
  #due: Due[] = []
  #attempts = 0
  #nowMs = 0
  #sumMs = 0
  #served = 0
  #honest = 0

  constructor(setting: Setting, lies: Lies, workers: number, absent: ReadonlySet<number> = new Set()) {
    const { spec } = setting
    const { seed } = spec
    this.#setting = setting
    this.#lies = lies
    this.#traffic = seededRandom(seed ^ 0x1f83d9ab)
    this.#draws = seededRandom(seed ^ 0x5be0cd19)
    this.#heap = new EventHeap(workers)
    this.#view = new EventView(workers, EVENT_DELAY_MS, 0, seededRandom(1))
    const profile = engineProfile(spec.profile)
    this.#capacityBlocks = Math.floor((spec.kvCapacityTokens ?? profile.kvCapacityTokens) / BLOCK_TOKENS)
    this.#engines = Array.from({ length: workers }, (_, worker) => {
      return new SimEngine({
        worker,
        blockTokens: BLOCK_TOKENS,
        capacityBlocks: this.#capacityBlocks,
        stepTokensMax: profile.stepTokensMax,
        sequencesMax: profile.sequencesMax,
        storeAt: 'prompt-end',
        slowness: 1,
        stepMs: work => profile.stepMs(work),
        sink: this,
      })
    })
    const present = Int32Array.from(this.#engines.keys()).filter(worker => !absent.has(worker))
    const { version, workers: records } = new SimFleet(spec).of(present)
    this.#fleet = {
      version,
      workers: records.map(record => this.#record(record)),
      ...(setting.hasThresholds && {
        busyThresholds: {
          others: { ...NO_BUSY_THRESHOLDS, decodeBlocksFraction: BUSY_FRACTION },
          byModel: new Map(),
        },
      }),
    }
    this.#router = new SimRouter({
      spec,
      view: this.#view,
      oracle: undefined,
      random: seededRandom(seed * 1_000_003 + 1),
      guardRandom: seededRandom(seed * 1_000_003 - 1),
      health: this.#health,
      reportedShare: worker => this.#engineLies(worker).kvUsage ?? this.#usage(worker),
      verdict: (worker, { verdict, reason }) => {
        if (verdict === 'contradicted' && !lies.engines.has(worker))
          this.#contradicted.push(`${worker}: ${reason}`)
      },
    })
  }

  run(): Outcome {
    for (const [index, trace] of this.#setting.traffic.entries())
      this.#at(trace.timestampMs, () => this.#arrive(trace, index))
    for (;;) {
      const stepMs = this.#heap.nextMs
      const dueMs = this.#due.at(-1)?.atMs ?? Number.POSITIVE_INFINITY
      if (Math.min(stepMs, dueMs) === Number.POSITIVE_INFINITY) break
      if (stepMs <= dueMs) this.#step(stepMs)
      else {
        this.#nowMs = dueMs
        this.#due.pop()!.act()
      }
    }
    return {
      meanMs: this.#sumMs / this.#served,
      served: this.#served,
      unserved: this.#honest - this.#served,
      contradicted: this.#contradicted,
    }
  }

  #step(atMs: number): void {
    this.#nowMs = atMs
    const engine = this.#engines[this.#heap.next]!
    this.#view.beginBatch(atMs)
    engine.finishStep()
    const ms = engine.startStep()
    if (ms < 0) this.#heap.pop()
    else this.#heap.moveNext(atMs + ms)
  }

  /** The latest last; equal times in order of calls. */
  #at(atMs: number, act: () => void): void {
    const due = this.#due
    let [low, high] = [0, due.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (due[middle]!.atMs > atMs) low = middle + 1
      else high = middle
    }
    due.splice(low, 0, { atMs, act })
  }

  // ── Clients ──────────────────────────────────────────────────────────────────────────────────

  #arrive(trace: TraceRequest, index: number): void {
    const lot = this.#traffic.next()
    const { client } = this.#lies
    const blocks = Math.floor(trace.inputTokens / BLOCK_TOKENS)
    if (Math.ceil((trace.inputTokens + trace.outputTokens) / BLOCK_TOKENS) > this.#capacityBlocks) return
    const isHonest = client === undefined || lot >= client.share
    if (isHonest) this.#honest++
    const real = newSimRequest(trace, index, trace.hashIds, blocks, 0)
    const sent: Sent = {
      real,
      isHonest,
      told: real,
      decidedMs: 0,
      isFirstTokenTold: false,
      failedAt: [],
    }
    this.#sent.set(index, sent)
    this.#place(sent)
  }

  /** What the router reads of the request. */
  #toldOf({ real, isHonest, failedAt }: Sent): SimRequest {
    const { client } = this.#lies
    const index = this.#attempts++
    const outputTokensMax = this.#setting.limitsOutput ? Math.max(1, 2 * real.outputTokens) : undefined
    const hints: Partial<RoutingRequest> = { excludedWorkers: failedAt, outputTokensMax }
    if (isHonest || client === undefined) return { ...real, index, hints }
    const said = { ...hints, outputTokensMax: client.outputTokensMax ?? outputTokensMax }
    if (client.claims === undefined) return { ...real, index, hints: said }
    const { hashIds } = client.claims === 'short' ? { hashIds: [] } : this.#setting.traffic[0]!
    const claimedTokens = client.claims === 'short' ? 1 : this.#setting.traffic[0]!.inputTokens
    const inputTokens = Math.max(claimedTokens, Math.ceil(CLAIMED_SHARE_MIN * real.inputTokens))
    const blocks = Math.floor(claimedTokens / BLOCK_TOKENS)
    return { ...real, index, inputTokens, blockIds: hashIds, blocks, hints: { ...said, cacheUse: 'claimed' } }
  }

  // ── The gateway ──────────────────────────────────────────────────────────────────────────────

  #place(sent: Sent): void {
    const told = this.#toldOf(sent)
    const decision = this.#router.decide(told, this.#fleet, this.#nowMs)
    if (decision.kind !== 'placed') {
      // No worker has room: its client tries again.
      sent.failedAt.length = 0
      this.#at(this.#nowMs + RETRY_MS, () => this.#place(sent))
      return
    }
    const { real, isHonest } = sent
    const worker = told.worker
    sent.told = told
    sent.decidedMs = this.#nowMs
    sent.isFirstTokenTold = false
    this.#health.decided(String(worker), '', String(told.index), this.#nowMs)
    if (!isHonest && this.#lies.client?.isRefused === true) {
      this.#at(this.#nowMs + FAIL_MS, () => this.#end(sent, 400))
      return
    }
    const { failures, firstTokenMs } = this.#engineLies(worker)
    if (failures !== undefined && this.#draws.next() < failures.share) {
      this.#at(this.#nowMs + FAIL_MS, () => this.#fail(sent, failures.status))
      return
    }
    real.worker = worker
    real.placedMs = this.#nowMs
    real.firstTokenMs = -1
    // One that is early is known at once; one that is late, when there is one.
    const earlyMs =
      firstTokenMs?.(Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, this.#draws) ?? Infinity
    if (earlyMs < Infinity) this.#at(this.#nowMs + earlyMs, () => this.#tellFirstToken(sent))
    const engine = this.#engines[worker]!
    engine.enqueue(real)
    if (engine.isStepping) return
    this.#view.beginBatch(this.#nowMs)
    this.#heap.push(worker, this.#nowMs + engine.startStep())
  }

  #fail(sent: Sent, status: number): void {
    const { told, failedAt, decidedMs } = sent
    const worker = String(told.worker)
    const record = this.#fleet.workers.find(({ id }) => id === worker)!
    const fault = { kind: 'failed', reason: `it answered ${status}` } as const
    this.#health.failed(worker, record.joinedMs, '', fault, decidedMs, this.#nowMs)
    this.#end(sent, status)
    failedAt.push(worker)
    this.#place(sent)
  }

  #end({ told }: Sent, status: number): void {
    this.#health.ended(String(told.worker), String(told.index))
    const delivery: Delivery = {
      outcome: 'error',
      status,
      promptTokens: undefined,
      completionTokens: undefined,
      cachedTokens: undefined,
      waitedMs: 0,
      timeToFirstByteMs: undefined,
      durationMs: FAIL_MS,
      streamEvents: undefined,
      error: undefined,
    }
    this.#router.failed(told, delivery, this.#nowMs)
  }

  #tellFirstToken(sent: Sent): void {
    if (sent.isFirstTokenTold) return
    sent.isFirstTokenTold = true
    this.#router.firstToken(sent.told, this.#nowMs)
    this.#health.progressed(String(sent.told.worker), '', sent.decidedMs, this.#nowMs)
  }

  // ── Engines ──────────────────────────────────────────────────────────────────────────────────

  #engineLies(worker: number): EngineLies {
    return this.#lies.engines.get(worker) ?? {}
  }

  #usage(worker: number): number {
    return this.#engines[worker]!.activeBlocks / this.#capacityBlocks
  }

  #record(record: WorkerRecord): WorkerRecord {
    const lies = this.#engineLies(record.instanceId)
    const { kvTokens, maxModelTokens, stepTokens } = lies
    return {
      ...record,
      models: [{ name: '', base: undefined, root: undefined, maxModelTokens }],
      kvBlocks:
        kvTokens === undefined ? record.kvBlocks : { value: kvTokens / BLOCK_TOKENS, source: 'given' },
      maxBatchedTokens:
        stepTokens === undefined ? record.maxBatchedTokens : { value: stepTokens, source: 'given' },
    }
  }

  stored(worker: number, blockId: number): void {
    if (this.#engineLies(worker).events !== 'hides') this.#view.stored(worker, blockId)
    for (const [liar, { events }] of this.#lies.engines)
      if (events === 'claims' && liar !== worker) this.#view.stored(liar, blockId)
  }

  evicted(worker: number, blockId: number): void {
    if (this.#engineLies(worker).events === undefined) this.#view.evicted(worker, blockId)
  }

  admitted(): void {}

  gap(): void {}

  firstToken(real: SimRequest): void {
    const { index, placedMs } = real
    real.firstTokenMs = this.#nowMs
    const sent = this.#sent.get(index)!
    const { firstTokenMs } = this.#engineLies(real.worker)
    if (firstTokenMs === undefined) this.#tellFirstToken(sent)
    else {
      // Some later token, as if it were the first: the end of the answer is not known yet.
      const trueMs = this.#nowMs - placedMs
      const endMs = trueMs + real.outputTokens * TOKEN_MS
      const lateMs = Math.max(trueMs, firstTokenMs(trueMs, endMs, this.#draws))
      this.#at(placedMs + lateMs, () => {
        if (this.#sent.has(index)) this.#tellFirstToken(sent)
      })
    }
  }

  completed(real: SimRequest): void {
    const { index, inputTokens, outputTokens, reusedTokens, worker, arrivalMs } = real
    const sent = this.#sent.get(index)!
    // A stream has its first token with its last at the latest.
    this.#tellFirstToken(sent)
    this.#sent.delete(index)
    const truth = { promptTokens: inputTokens, cachedTokens: reusedTokens, completionTokens: outputTokens }
    const said = this.#engineLies(worker).usage?.(truth, this.#draws) ?? truth
    const { told } = sent
    const { guarded, session } = told
    this.#router.completed(
      {
        ...told,
        guarded,
        ...(session && { session }),
        inputTokens: said.promptTokens,
        outputTokens: said.completionTokens,
        reusedTokens: said.cachedTokens,
      },
      this.#nowMs,
      outputTokens,
    )
    this.#health.ended(String(worker), String(told.index))
    this.#health.served(String(worker), '', sent.decidedMs, this.#nowMs)
    if (!sent.isHonest) return
    this.#served++
    this.#sumMs += this.#nowMs - arrivalMs
  }
}

/** About what a token of an answer takes. */
const TOKEN_MS = 8
