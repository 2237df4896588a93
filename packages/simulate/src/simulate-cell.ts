/**
 * Simulate cell: runs one cell, a discrete-event simulation on virtual time.
 *
 *   arrival ─▶ router (by the seed) ─▶ engine queue ─▶ steps ─▶ first token, completion ─▶ signals ─▶ router
 *                   ▲                                    └▶ stored, evicted ─▶ views
 *                   └────────────── overlaps ────────────────────────────────────┘
 *
 * Events are the ends of engine steps (EventHeap) and arrivals; at one instant steps come first. Signals and
 * KV events need no events of their own: they wait in order of time until a router decides. So does what
 * routers tell each other.
 *
 * Memory: open requests, the caches' block ids, and histograms; a trace streams through.
 */

import { type Clock, type Random, seededRandom, systemClock } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { WorkerHealth } from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import { TRACE_BLOCK_TOKENS, type TraceRequest, type TraceSource } from '@homing/trace'
import { type Arrivals, arrivalsOf } from './arrivals.ts'
import {
  Company,
  coefficientOfVariation,
  ImbalanceOverTime,
  InfiniteCache,
  LatencyHistogram,
  maxOverMean,
  RequestMetrics,
} from './cell-metrics.ts'
import { checkSpec } from './cell-spec.ts'
import type { CellRun, CellSpec, ClosedLoop, HedgeSpec, QueueSpec, SimulateOptions } from './cell-types.ts'
import { type EngineSink, SimEngine } from './engine.ts'
import { engineProfile } from './engine-profile.ts'
import { EventHeap } from './event-heap.ts'
import { EmptyView, EventView, type FleetView, GuessView } from './fleet-view.ts'
import { decodeLegOf, type Handover, Handovers, prefillLegOf } from './handovers.ts'
import { HolderTable } from './holder-table.ts'
import { RecoveryMetrics, readMsOf, successorOf } from './recovery.ts'
import { type ReplicaOperation, ReplicaSync } from './replica-sync.ts'
import { SimFleet } from './sim-fleet.ts'
import { SimHedges } from './sim-hedges.ts'
import { SimQueue } from './sim-queue.ts'
import { newSimRequest, type SimRequest } from './sim-request.ts'
import { type Oracle, SimRouter } from './sim-router.ts'
import { SimulationError } from './simulation-error.ts'
import { TenantMetrics } from './tenant-metrics.ts'
import { AT_ONCE_MS, FlippedView, TroubledSignals } from './troubles.ts'

const GUESS_TTL_MS = 120_000
const LATE = { kind: 'failed', reason: 'a worker that was asked later was quicker' } as const
const CANCELLED = {
  outcome: 'aborted',
  status: undefined,
  completionTokens: undefined,
  durationMs: 0,
  streamEvents: undefined,
  error: undefined,
} as const
const PROGRESS_MS = 100
/** Events between two looks at the real clock. */
const EVENTS_PER_LOOK = 8192

/**
 * Runs one cell. Throws SimulationError for a spec or requests that cannot be, the reason of `signal`, and
 * what reading the source throws.
 */
export async function simulateCell(
  spec: CellSpec,
  requests: TraceSource | ClosedLoop,
  options: SimulateOptions = {},
): Promise<CellRun> {
  checkSpec(spec)
  const clock = options.clock ?? systemClock
  const startedMs = clock.nowMs()
  const { arrivals, expected } = await arrivalsOf(spec, requests)
  const cell = new Cell(spec, clock, arrivals, expected, options.onServed)
  let lookedMs = startedMs
  while (await cell.run(EVENTS_PER_LOOK)) {
    const nowMs = clock.nowMs()
    if (nowMs - lookedMs < PROGRESS_MS) continue
    lookedMs = nowMs
    options.onProgress?.({
      requestsDone: cell.requestsDone,
      requestsExpected: expected,
      simulatedMs: cell.nowMs,
    })
    // Lets the process hear of Ctrl-C and of messages.
    await new Promise<void>(resolve => void clock.after(0, resolve))
    options.signal?.throwIfAborted()
  }
  return { result: cell.result(), cost: cell.cost(clock.nowMs() - startedMs) }
}

interface Signal {
  readonly atMs: number
  readonly request: SimRequest
  readonly isLast: boolean
}

interface Change {
  readonly atMs: number
  readonly worker: number
  readonly isDeath: boolean
}

class Cell implements EngineSink {
  readonly #spec: CellSpec
  readonly #clock: Clock
  readonly #arrivals: Arrivals
  readonly #onServed: SimulateOptions['onServed']
  readonly #warmupRequests: number
  readonly #random: Random
  readonly #engines: readonly SimEngine[]
  readonly #heap: EventHeap
  readonly #routers: readonly SimRouter[]
  /** Undefined: routers do not know of each other. */
  readonly #sync: ReplicaSync | undefined
  readonly #company: Company | undefined
  /** One for each router; empty: nothing ever waits. */
  readonly #queues: readonly SimQueue[]
  readonly #handovers = new Handovers()
  /** Undefined: each request has one worker. */
  readonly #hedges: SimHedges | undefined
  /** One for each router; empty: no worker fails a request. */
  readonly #health: readonly WorkerHealth[]
  readonly #troubled: TroubledSignals | undefined
  readonly #capacityBlocks: number
  readonly #stepTokensMax: number
  readonly #idsPerTraceId: number
  /** What the engines hold in truth. */
  readonly #truth: HolderTable
  readonly #events: EventView | undefined
  /** On their way to routers, in order of time. */
  #signals: Signal[] = []
  #signalsTaken = 0
  /** Joins and deaths, in order of time. */
  readonly #changes: readonly Change[]
  #changesDone = 0
  readonly #isAlive: boolean[]
  #alive: Int32Array
  readonly #simFleet: SimFleet
  #fleet: Fleet
  /** Without those that long prompts are kept from. */
  #fleetForLong: Fleet

  nowMs = 0
  requestsDone = 0
  #arrived = 0
  readonly #all = new RequestMetrics()
  readonly #warm = new RequestMetrics()
  readonly #gaps = new LatencyHistogram()
  readonly #tenants = new TenantMetrics()
  readonly #recovered = new RecoveryMetrics()
  readonly #infinite = new InfiniteCache()
  readonly #imbalance: ImbalanceOverTime
  readonly #outstandingTokens: Float64Array
  #missedReuseBlocks = 0
  #decisions = 0
  #decisionMs = 0
  #refused = 0
  #lost = 0
  #outputTokens = 0
  #firstArrivalMs = -1
  #lastArrivalMs = 0
  #lastCompletionMs = 0

  constructor(
    spec: CellSpec,
    clock: Clock,
    arrivals: Arrivals,
    expected: number | undefined,
    onServed: SimulateOptions['onServed'],
  ) {
    const { workers, blockTokens, view, seed, warmupShare } = spec
    const profile = engineProfile(spec.profile)
    this.#stepTokensMax = profile.stepTokensMax
    this.#spec = spec
    this.#clock = clock
    this.#arrivals = arrivals
    this.#onServed = onServed
    this.#warmupRequests = Math.floor(warmupShare * (expected ?? 0))
    this.#random = seededRandom(seed)
    this.#capacityBlocks = Math.floor((spec.kvCapacityTokens ?? profile.kvCapacityTokens) / blockTokens)
    this.#idsPerTraceId = (spec.traceBlockTokens ?? TRACE_BLOCK_TOKENS) / blockTokens
    this.#truth = new HolderTable(workers)
    this.#imbalance = new ImbalanceOverTime(workers)
    this.#outstandingTokens = new Float64Array(workers)
    this.#heap = new EventHeap(workers)
    const slow = slowWorkers(spec)
    this.#engines = Array.from({ length: workers }, (_, worker) => {
      return new SimEngine({
        worker,
        blockTokens,
        capacityBlocks: this.#capacityBlocks,
        stepTokensMax: profile.stepTokensMax,
        sequencesMax: profile.sequencesMax,
        storeAt: spec.storeAt ?? 'prompt-end',
        slowness: slow.has(worker) ? spec.slow!.factor : 1,
        stepMs: work => profile.stepMs(work),
        sink: this,
      })
    })
    const lossShare = view.lossShare ?? 0
    const hasEvents = view.kind === 'late' || (view.kind === 'exact' && lossShare > 0)
    const delayMs = view.kind === 'late' ? view.eventDelayMs : 0
    this.#events = hasEvents
      ? new EventView(workers, delayMs, lossShare, seededRandom(seed ^ 0x2545f491))
      : undefined
    this.#changes = [
      ...(spec.joins ?? []).map(change => ({ ...change, isDeath: false })),
      ...(spec.deaths ?? []).map(change => ({ ...change, isDeath: true })),
    ].sort((a, b) => a.atMs - b.atMs)
    this.#troubled =
      spec.trouble === 'at-once' || spec.trouble === 'some-at-once' || spec.trouble === 'random'
        ? new TroubledSignals(spec.trouble, seededRandom(seed ^ 0x6a09e667))
        : undefined
    const joining = new Set((spec.joins ?? []).map(({ worker }) => worker))
    this.#isAlive = Array.from({ length: workers }, (_, worker) => !joining.has(worker))
    this.#simFleet = new SimFleet(spec)
    this.#alive = this.#aliveWorkers()
    this.#fleet = this.#simFleet.of(this.#alive)
    this.#fleetForLong = this.#simFleet.of(this.#workersForLong())
    this.#health = spec.hedge ? Array.from({ length: spec.routers }, () => new WorkerHealth()) : []
    this.#routers = Array.from({ length: spec.routers }, (_, router) => {
      const random = seededRandom(seed * 1_000_003 + router + 1)
      const guardRandom = seededRandom(seed * 1_000_003 - router - 1)
      const tell = (operation: ReplicaOperation, nowMs: number): void =>
        this.#sync?.tell(router, operation, nowMs)
      const health = this.#health[router]
      const given = { spec, view: this.#newView(), oracle: this.#oracle(), random, guardRandom, tell }
      return new SimRouter({ ...given, ...(health !== undefined && { health }) })
    })
    const { replicaSyncMs, replicaGather } = spec
    this.#sync =
      replicaSyncMs === undefined || spec.routers === 1
        ? undefined
        : new ReplicaSync(replicaSyncMs, this.#routers, replicaGather)
    this.#company = spec.companyMs === undefined ? undefined : new Company(spec.companyMs)
    this.#hedges = spec.hedge && this.#newHedges(spec.hedge)
    const { queue } = spec.selection
    this.#queues = queue === undefined ? [] : this.#routers.map((_, router) => this.#newQueue(queue, router))
  }

  /** Handles so many events at most. False: none is left. */
  async run(eventsMax: number): Promise<boolean> {
    const heap = this.#heap
    const arrivals = this.#arrivals
    for (let events = 0; events < eventsMax; events++) {
      const filling = arrivals.fill()
      if (filling !== undefined) await filling
      const arrivalMs = arrivals.peekMs
      const stepMs = heap.nextMs
      const queueMs = this.#queueMs()
      const handoverMs = this.#handovers.nextMs
      const hedgeMs = this.#hedges?.nextMs ?? Number.POSITIVE_INFINITY
      const change = this.#changes[this.#changesDone]
      if (change !== undefined && change.atMs <= Math.min(stepMs, queueMs, arrivalMs)) {
        if (Math.min(stepMs, queueMs, arrivalMs) === Number.POSITIVE_INFINITY) return false
        this.#changesDone++
        this.nowMs = change.atMs
        this.#change(change)
      } else if (stepMs <= Math.min(queueMs, arrivalMs, handoverMs, hedgeMs)) {
        if (stepMs === Number.POSITIVE_INFINITY) return false
        this.nowMs = stepMs
        const engine = this.#engines[heap.next]!
        this.#events?.beginBatch(stepMs)
        engine.finishStep()
        const ms = engine.startStep()
        if (ms < 0) heap.pop()
        else heap.moveNext(this.#stepEndMs(heap.next, stepMs, ms))
      } else if (hedgeMs <= Math.min(queueMs, arrivalMs, handoverMs)) {
        this.nowMs = hedgeMs
        this.#hedges!.look()
      } else if (queueMs <= Math.min(arrivalMs, handoverMs)) {
        this.nowMs = queueMs
        this.#lookAtQueues()
      } else if (handoverMs <= arrivalMs) {
        this.nowMs = handoverMs
        this.#handOver(this.#handovers.take())
      } else {
        this.nowMs = arrivalMs
        this.#arrive(arrivals.take())
      }
    }
    return true
  }

  // ── Arrivals and decisions ───────────────────────────────────────────────────────────────────

  #arrive(trace: TraceRequest): void {
    const index = this.#arrived++
    if (this.#firstArrivalMs < 0) this.#firstArrivalMs = trace.timestampMs
    this.#lastArrivalMs = trace.timestampMs
    const { routers, blockTokens } = this.#spec
    const router = routers === 1 ? 0 : this.#random.below(routers)
    const blocks = Math.floor(trace.inputTokens / blockTokens)
    const ids = this.#blockIds(trace, blocks)
    const request = newSimRequest(trace, index, ids, blocks, router, this.#answerIds(trace))
    this.#infinite.add(request.blockIds, blocks, request.inputTokens, blockTokens)
    if (Math.ceil((request.inputTokens + request.outputTokens) / blockTokens) > this.#capacityBlocks) {
      this.#fail(request)
      this.#refused++
      return
    }
    this.#place(request)
  }

  /** Undefined: not known. Multiplied ids are others. */
  #answerIds({ answerIds }: TraceRequest): ArrayLike<number> | undefined {
    const isPlain = this.#idsPerTraceId === 1 && this.#spec.copies === 1 && this.#spec.stretch === 1
    return isPlain ? answerIds : undefined
  }

  #place(request: SimRequest): void {
    const { nowMs } = this
    if (this.#alive.length === 0) {
      this.#fail(request)
      this.#refused++
      return
    }
    this.#deliverSignals(nowMs - this.#spec.view.signalDelayMs)
    this.#sync?.deliver(nowMs)
    const queue = this.#queues[request.router]
    if (queue === undefined) this.#decide(this.#goesApart(request) ? prefillLegOf(request) : request)
    else queue.arrive(request, nowMs)
  }

  /**
   * Undefined: the request was placed; else every worker is past the rules, and so much of its prompt is
   * cached.
   */
  #decide(request: SimRequest, rules?: readonly RoomRule[]): number | undefined {
    const { nowMs } = this
    const startedMs = this.#clock.nowMs()
    const isLong = request.inputTokens > this.#stepTokensMax
    const fleet = isLong ? this.#fleetForLong : this.#fleet
    const decision = this.#routers[request.router]!.decide(request, fleet, nowMs, rules)
    this.#decisionMs += this.#clock.nowMs() - startedMs
    if (decision.kind === 'busy') return decision.cachedTokens
    if (decision.kind === 'refused')
      throw new RangeError(`cannot place request ${request.index}: ${decision.error.message}`)
    this.#decisions++
    this.#tried(request)
    this.#start(request)
    return undefined
  }

  // ── Prefill and decode apart ─────────────────────────────────────────────────────────────────

  #goesApart(request: SimRequest): boolean {
    const { pools } = this.#spec
    if (pools?.stay === undefined) return pools !== undefined
    if (pools.stay === 'auto')
      return this.#routers[request.router]!.goesApart(request, this.#fleet, this.nowMs)
    const cached = this.#routers[request.router]!.cachedTokens(request, this.#fleet, this.nowMs)
    const newTokens = request.inputTokens - cached
    return newTokens >= pools.stay.tokens || newTokens >= pools.stay.share * request.inputTokens
  }

  #handOver({ step, request, computedMs }: Handover): void {
    if (step === 'arrive') {
      this.#enqueue(request)
      return
    }
    const leg = decodeLegOf(request, this.#answerIds(request.trace))
    this.#deliverSignals(computedMs)
    this.#sync?.deliver(this.nowMs)
    this.#decide(leg)
  }

  #workersForLong(): Int32Array {
    const kept = this.#spec.selection.workersWithoutLongPrompts ?? 0
    const workers = this.#alive
    return kept === 0 || workers.length <= kept ? workers : workers.subarray(0, workers.length - kept)
  }

  /** It is sent to its worker. */
  #start(request: SimRequest): void {
    const { nowMs } = this
    const { worker } = request
    request.placedMs = nowMs
    this.#company?.placed(worker, nowMs)
    this.#outstand(request, 1)
    const { pools, recovery } = this.#spec
    if (recovery !== undefined && request.recovers !== undefined) {
      const cached = this.#engines[worker]!.cachedRun(request) * this.#spec.blockTokens
      const readMs = readMsOf(recovery, request.recovers, cached)
      if (readMs > 0) {
        this.#handovers.add({ atMs: nowMs + readMs, computedMs: nowMs, step: 'arrive', request })
        return
      }
    }
    if (request.leg !== 'decode' || pools === undefined) {
      this.#enqueue(request)
      this.#hedges?.sent(request, nowMs)
      return
    }
    const transferMs = pools.transferMs + pools.transferMsPerToken * request.inputTokens
    this.#handovers.add({ atMs: nowMs + transferMs, computedMs: nowMs, step: 'arrive', request })
  }

  #enqueue(request: SimRequest): void {
    const { nowMs } = this
    const { worker } = request
    const engine = this.#engines[worker]!
    engine.enqueue(request)
    request.isToldAtOnce = this.#troubled?.isAtOnce(worker) === true
    if (request.isToldAtOnce) this.#signal(nowMs + AT_ONCE_MS, request, false)
    if (engine.isStepping) return
    this.#events?.beginBatch(nowMs)
    this.#heap.push(worker, this.#stepEndMs(worker, nowMs, engine.startStep()))
  }

  /** When a step ends that begins now. A worker that stalls does nothing meanwhile. */
  #stepEndMs(worker: number, beganMs: number, stepMs: number): number {
    let endMs = beganMs + stepMs
    for (const stall of this.#spec.stalls ?? [])
      if (stall.worker === worker && stall.atMs < endMs && beganMs < stall.atMs + stall.forMs)
        endMs += stall.atMs + stall.forMs - Math.max(beganMs, stall.atMs)
    return endMs
  }

  // ── Hedges ───────────────────────────────────────────────────────────────────────────────────

  #newHedges(hedge: HedgeSpec): SimHedges {
    return new SimHedges(hedge, {
      place: second => {
        this.#deliverSignals(this.nowMs - this.#spec.view.signalDelayMs)
        const router = this.#routers[second.router]!
        const decision = router.decide(second, this.#fleet, this.nowMs)
        if (decision.kind !== 'placed') return false
        this.#decisions++
        this.#tried(second)
        second.placedMs = this.nowMs
        this.#outstand(second, 1)
        this.#enqueue(second)
        return true
      },
      cancel: (request, isLate) => {
        const { worker, router, placedMs } = request
        if (isLate)
          this.#health[router]!.failed(String(worker), worker, '', LATE, placedMs, this.nowMs, false)
        this.#health[router]!.ended(String(worker), String(request.index))
        this.#engines[request.worker]!.cancel(request)
        this.#outstand(request, -1)
        this.#routers[request.router]!.failed(request, CANCELLED, this.nowMs)
      },
    })
  }

  /** A worker that was late too often may be on trial with it. */
  #tried({ router, worker, index }: SimRequest): void {
    this.#health[router]?.decided(String(worker), '', String(index), this.nowMs)
  }

  // ── Queues ───────────────────────────────────────────────────────────────────────────────────

  #newQueue(queue: QueueSpec, router: number): SimQueue {
    const asked = {
      tryPlace: (request: SimRequest, rules: readonly RoomRule[]) => this.#decide(request, rules),
      cachedTokens: (request: SimRequest) =>
        this.#routers[router]!.cachedTokens(request, this.#fleet, this.nowMs),
      refuse: (request: SimRequest) => {
        this.#fail(request)
        this.#refused++
        this.#arrivals.completed(request.trace, this.nowMs)
      },
    }
    return new SimQueue(queue, this.#spec.selection, asked, this.#alive.length)
  }

  /** When a queue wants to look, or a signal that it may wait for arrives; infinite while nothing waits. */
  #queueMs(): number {
    let dueMs = Number.POSITIVE_INFINITY
    for (const queue of this.#queues) dueMs = Math.min(dueMs, queue.dueMs)
    if (dueMs === Number.POSITIVE_INFINITY) return dueMs
    const signal = this.#signals[this.#signalsTaken]
    if (signal !== undefined) dueMs = Math.min(dueMs, signal.atMs + this.#spec.view.signalDelayMs)
    if (this.#sync !== undefined) dueMs = Math.min(dueMs, this.#sync.nextMs)
    // A signal may have come while nothing waited.
    return Math.max(dueMs, this.nowMs)
  }

  #lookAtQueues(): void {
    const { nowMs } = this
    const signal = this.#signals[this.#signalsTaken]
    const isSignal = signal !== undefined && signal.atMs + this.#spec.view.signalDelayMs <= nowMs
    if (isSignal) this.#deliverSignals(signal.atMs)
    const isTold = this.#sync?.deliver(nowMs) === true
    for (const queue of this.#queues) {
      if (queue.dueMs <= nowMs) queue.look(nowMs)
      else if ((isSignal || isTold) && queue.waiting > 0) queue.loadFell(nowMs)
    }
  }

  #fail(request: SimRequest): void {
    this.requestsDone++
    this.#all.failed()
    if (request.index >= this.#warmupRequests) this.#warm.failed()
    if (request.trace.tenant !== undefined) this.#tenants.failed(request.trace.tenant)
  }

  #outstand({ worker, inputTokens, outputTokens }: SimRequest, sign: number): void {
    const tokens = sign * (inputTokens + outputTokens)
    this.#outstandingTokens[worker]! += tokens
    this.#imbalance.add(worker, tokens, this.nowMs)
  }

  /**
   * Ids of the full blocks of a prompt: id h of the trace at block size b is blocks h · (512 / b) + 0, 1, 2,
   * …
   */
  #blockIds({ hashIds, inputTokens }: TraceRequest, blocks: number): ArrayLike<number> {
    const perId = this.#idsPerTraceId
    if (hashIds.length * perId < blocks) {
      const reason = `it has ${hashIds.length} hash ids`
      throw new SimulationError(`a prompt of ${inputTokens} tokens`, reason)
    }
    const { copies, stretch } = this.#spec
    if (perId > 1 || copies > 1 || stretch > 1) this.#checkIds(hashIds, blocks / perId)
    if (perId === 1) return hashIds
    const ids = new Float64Array(blocks)
    for (let i = 0; i < blocks; i++) ids[i] = hashIds[Math.floor(i / perId)]! * perId + (i % perId)
    return ids
  }

  /** Ids beyond 2^53 are rounded, so that different blocks would get the same id. */
  #checkIds(hashIds: ArrayLike<number>, count: number): void {
    const idMax = Number.MAX_SAFE_INTEGER / this.#idsPerTraceId - 1
    for (let i = 0; i < count; i++) {
      if (hashIds[i]! <= idMax) continue
      const reason =
        'copies, stretch and smaller blocks multiply ids, which must stay below 2^53: number the prefixes from 0'
      throw new SimulationError(`blocks of the hash id ${hashIds[i]}`, reason)
    }
  }

  #deliverSignals(untilMs: number): void {
    const signals = this.#signals
    let taken = this.#signalsTaken
    for (; taken < signals.length; taken++) {
      const { atMs, request, isLast } = signals[taken]!
      if (atMs > untilMs) break
      const router = this.#routers[request.router]!
      const toldMs = atMs + this.#spec.view.signalDelayMs
      this.#sync?.deliver(toldMs)
      if (isLast) router.completed(request, toldMs)
      else router.firstToken(request, toldMs)
      this.#queues[request.router]?.prefillComplete(request, toldMs)
    }
    this.#signalsTaken = taken
    if (taken > 1024 && taken * 2 > signals.length) {
      this.#signals = signals.slice(taken)
      this.#signalsTaken = 0
    }
  }

  // ── What engines tell ────────────────────────────────────────────────────────────────────────

  stored(worker: number, blockId: number): void {
    this.#truth.add(blockId, worker)
    this.#events?.stored(worker, blockId)
  }

  evicted(worker: number, blockId: number): void {
    this.#truth.remove(blockId, worker)
    this.#events?.evicted(worker, blockId)
  }

  admitted(request: SimRequest): void {
    if (request.leg === 'decode') return
    const { blockIds, blocks } = request
    for (let i = request.placesHeld; i < blocks && this.#truth.holders(blockIds[i]!) > 0; i++) {
      this.#missedReuseBlocks++
    }
  }

  firstToken(request: SimRequest): void {
    request.firstTokenMs = this.nowMs
    this.#hedges?.firstToken(request, this.nowMs)
    this.#health[request.router]?.progressed(String(request.worker), '', request.placedMs, this.nowMs)
    if (request.isToldAtOnce) return
    this.#signal(this.#troubled?.laterMs(request, this.nowMs) ?? this.nowMs, request, false)
  }

  #signal(atMs: number, request: SimRequest, isLast: boolean): void {
    const signals = this.#signals
    let at = signals.length
    while (at > this.#signalsTaken && signals[at - 1]!.atMs > atMs) at--
    if (at === signals.length) signals.push({ atMs, request, isLast })
    else signals.splice(at, 0, { atMs, request, isLast })
  }

  completed(request: SimRequest): void {
    const { nowMs } = this
    const health = this.#health[request.router]
    health?.ended(String(request.worker), String(request.index))
    health?.served(String(request.worker), '', request.placedMs, nowMs)
    this.#signal(nowMs, request, true)
    this.#outstand(request, -1)
    // One token that ends the answer is the answer.
    if (request.leg === 'prefill' && request.trace.outputTokens > 1) {
      const atMs = nowMs + this.#spec.view.signalDelayMs
      this.#handovers.add({ atMs, computedMs: nowMs, step: 'decide', request })
      return
    }
    const { recovery } = this.#spec
    if (recovery !== undefined && request.recovers !== undefined) {
      this.#recovered.completed(request, request.recovers, recovery.kind, nowMs)
      this.#completedWhole(request.recovers.original)
      return
    }
    this.#completedWhole(request)
  }

  /** All of an answer is there. `request`: with the times of its first token. */
  #completedWhole(request: SimRequest): void {
    const { nowMs } = this
    const { arrivalMs, placedMs, firstTokenMs, outputTokens, inputTokens, index } = request
    const reusedTokens = request.reusedBefore ?? request.reusedTokens
    this.requestsDone++
    this.#outputTokens += outputTokens
    this.#lastCompletionMs = nowMs
    const baseMs = this.#spec.baseLatencyMs ?? 0
    const ttftMs = firstTokenMs - arrivalMs + baseMs
    const e2eMs = nowMs - arrivalMs + baseMs
    this.#all.completed(ttftMs, e2eMs, outputTokens, inputTokens, reusedTokens)
    if (index >= this.#warmupRequests) {
      this.#warm.completed(ttftMs, e2eMs, outputTokens, inputTokens, reusedTokens)
    }
    const { trace, worker } = request
    if (trace.tenant !== undefined) this.#tenants.completed(request, ttftMs, e2eMs)
    this.#onServed?.({ trace, worker, arrivalMs, placedMs, firstTokenMs, endMs: nowMs, reusedTokens })
    this.#arrivals.completed(request.trace, nowMs)
  }

  gap(ms: number, requests: number): void {
    this.#gaps.add(ms, requests)
  }

  // ── Joins and deaths ─────────────────────────────────────────────────────────────────────────

  #change({ worker, isDeath }: Change): void {
    if (this.#isAlive[worker] === !isDeath) return
    this.#isAlive[worker] = !isDeath
    this.#alive = this.#aliveWorkers()
    this.#fleet = this.#simFleet.of(this.#alive)
    this.#fleetForLong = this.#simFleet.of(this.#workersForLong())
    if (!isDeath) {
      for (const queue of this.#queues) queue.setWorkers(this.#alive.length, this.nowMs)
      return
    }
    // Messages sent before the death are heard before it.
    this.#deliverSignals(Number.POSITIVE_INFINITY)
    const engine = this.#engines[worker]!
    const requests = engine.clear()
    // Those whose pooled blocks are on their way to it.
    requests.push(...this.#handovers.dropOf(worker))
    this.#heap.remove(worker)
    this.#truth.clear(worker)
    this.#sync?.forget(worker)
    for (const router of this.#routers) router.workerDied(worker)
    for (const request of requests) this.#queues[request.router]?.prefillComplete(request, this.nowMs)
    for (const request of requests) {
      this.#outstand(request, -1)
      if (request.firstTokenMs < 0) {
        this.#place(request)
        continue
      }
      const { recovery, blockTokens } = this.#spec
      if (recovery !== undefined) {
        const generated = engine.generatedOf(request)
        this.#place(successorOf(request, generated, recovery, blockTokens, this.nowMs))
        continue
      }
      this.#fail(request)
      this.#lost++
      this.#arrivals.completed(request.trace, this.nowMs)
    }
    for (const queue of this.#queues) queue.setWorkers(this.#alive.length, this.nowMs)
  }

  #aliveWorkers(): Int32Array {
    return Int32Array.from(this.#isAlive.keys()).filter(worker => this.#isAlive[worker]!)
  }

  // ── What routers know ────────────────────────────────────────────────────────────────────────

  #newView(): FleetView {
    const view = this.#plainView()
    return this.#spec.trouble === 'flipped-root' ? new FlippedView(view) : view
  }

  #plainView(): FleetView {
    const { workers, view } = this.#spec
    if (this.#events !== undefined) return this.#events
    switch (view.kind) {
      case 'exact':
      case 'late':
        return this.#truthView()
      case 'guessed':
      case 'text':
        return new GuessView(workers, view.guessTtlMs ?? GUESS_TTL_MS, this.#capacityBlocks)
      case 'none':
        return new EmptyView()
    }
  }

  #truthView(): FleetView {
    return {
      heldBlocks: this.#truth.blocksHeld,
      overlaps: (ids, count, into) => this.#truth.overlaps(ids, count, into),
      sent() {},
      clear() {},
    }
  }

  #oracle(): Oracle | undefined {
    if (this.#spec.selection.oracleView !== true) return undefined
    const engines = this.#engines
    return {
      view: this.#truthView(),
      activeBlocks: worker => engines[worker]!.activeBlocks,
      pendingPrefillTokens: worker => engines[worker]!.pendingPrefillTokens,
      requests: worker => engines[worker]!.requests,
      outstandingTokens: worker => this.#outstandingTokens[worker]!,
    }
  }

  // ── Figures ──────────────────────────────────────────────────────────────────────────────────

  result(): CellRun['result'] {
    const withWarmup = this.#all.figures()
    const prefillTokens = this.#engines.map(engine => engine.prefillTokens)
    const busyMs = this.#engines.map(engine => engine.busyMs)
    const spanMs = this.#lastArrivalMs - Math.max(0, this.#firstArrivalMs)
    const makespanMs = Math.max(0, this.#lastCompletionMs - Math.max(0, this.#firstArrivalMs))
    const infiniteHitRate = this.#infinite.hitRate
    return {
      spec: this.#spec,
      ...this.#warm.figures(),
      withWarmup,
      gapMs: { p99: this.#gaps.percentileMs(0.99) },
      outputTokensPerS: makespanMs === 0 ? 0 : (1000 * this.#outputTokens) / makespanMs,
      ...(infiniteHitRate !== undefined && {
        infiniteHitRate,
        hitEfficiency: infiniteHitRate === 0 ? 1 : withWarmup.hitRate / infiniteHitRate,
      }),
      prefillTokens: sum(prefillTokens),
      imbalance: {
        newTokensCv: coefficientOfVariation(prefillTokens),
        newTokensMaxOverMean: maxOverMean(prefillTokens),
        busyCv: coefficientOfVariation(busyMs),
        outstandingMaxOverMean: this.#imbalance.mean,
      },
      evictions: sum(this.#engines.map(engine => engine.evictions)),
      missedReuseBlocks: this.#missedReuseBlocks,
      decisions: this.#decisions,
      ...this.#guardFigures(),
      ...(this.#company !== undefined && { company: this.#company.figures }),
      ...(this.#spec.recovery !== undefined && { recovery: this.#recovered.figures() }),
      ...(this.#queues[0] !== undefined && { queue: this.#queues[0].figures }),
      ...(this.#tenants.size > 0 && { tenants: this.#tenants.figures() }),
      ...(this.#hedges && { hedges: this.#hedges.figures }),
      refused: this.#refused,
      lost: this.#lost,
      spanMs,
      makespanMs,
      drain: spanMs === 0 ? 1 : makespanMs / spanMs,
    }
  }

  /** Of the first router: the others have the same traffic. */
  #guardFigures(): Pick<CellRun['result'], 'guard'> {
    const guard = this.#routers[0]?.guardFigures
    return guard === undefined ? {} : { guard }
  }

  cost(elapsedMs: number): CellRun['cost'] {
    return {
      elapsedMs,
      cpuUsPerDecision: this.#decisions === 0 ? 0 : (1000 * this.#decisionMs) / this.#decisions,
      engineSteps: sum(this.#engines.map(engine => engine.steps)),
    }
  }
}

/** Which workers are slow is drawn from the seed. */
function slowWorkers({ workers, slow, seed }: CellSpec): ReadonlySet<number> {
  const chosen = new Set<number>()
  if (slow === undefined) return chosen
  if (slow.worker !== undefined) return chosen.add(slow.worker)
  const random = seededRandom(seed ^ 0x1b873593)
  const count = Math.min(workers, Math.round(slow.share * workers))
  while (chosen.size < count) chosen.add(random.below(workers))
  return chosen
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
