/**
 * Cell: a fleet and its routers as a discrete-event simulation on virtual time.
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

import { type Clock, type Random, seededRandom } from '@homing/base'
import { WorkerHealth } from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import type { TraceRequest } from '@homing/trace'
import type { Arrivals } from './arrivals.ts'
import { CellEngines, capacityBlocksOf, type EnginesSink } from './cell-engines.ts'
import { CellFigures } from './cell-figures.ts'
import { CellSignals } from './cell-signals.ts'
import type { CellRun, CellSpec, HedgeSpec, QueueSpec, SimulateOptions } from './cell-types.ts'
import { engineProfile } from './engine-profile.ts'
import { decodeLegOf, type Handover, Handovers, prefillLegOf } from './handovers.ts'
import { LivingWorkers } from './living-workers.ts'
import { PromptBlocks } from './prompt-blocks.ts'
import { readMsOf, successorOf } from './recovery.ts'
import { type ReplicaOperation, ReplicaSync } from './replica-sync.ts'
import { RouterViews } from './router-views.ts'
import { SimHedges } from './sim-hedges.ts'
import { SimQueue } from './sim-queue.ts'
import { newSimRequest, type SimRequest } from './sim-request.ts'
import { SimRouter } from './sim-router.ts'
import { AT_ONCE_MS, TroubledSignals } from './troubles.ts'

const LATE = { kind: 'failed', reason: 'a worker that was asked later was quicker' } as const
const CANCELLED = {
  outcome: 'aborted',
  status: undefined,
  completionTokens: undefined,
  durationMs: 0,
  streamEvents: undefined,
  error: undefined,
} as const

export class Cell implements EnginesSink {
  readonly #spec: CellSpec
  readonly #clock: Clock
  readonly #arrivals: Arrivals
  readonly #onServed: SimulateOptions['onServed']
  readonly #random: Random
  readonly #blocks: PromptBlocks
  readonly #capacityBlocks: number
  readonly #stepTokensMax: number
  readonly #living: LivingWorkers
  readonly #engines: CellEngines
  readonly #views: RouterViews
  readonly #routers: readonly SimRouter[]
  /** Undefined: routers do not know of each other. */
  readonly #sync: ReplicaSync | undefined
  /** One for each router; empty: nothing ever waits. */
  readonly #queues: readonly SimQueue[]
  readonly #handovers = new Handovers()
  /** Undefined: each request has one worker. */
  readonly #hedges: SimHedges | undefined
  /** One for each router; empty: no worker fails a request. */
  readonly #health: readonly WorkerHealth[]
  readonly #troubled: TroubledSignals | undefined
  readonly #signals = new CellSignals()
  readonly #figures: CellFigures
  nowMs = 0
  #arrived = 0

  constructor(
    spec: CellSpec,
    clock: Clock,
    arrivals: Arrivals,
    expected: number | undefined,
    onServed: SimulateOptions['onServed'],
  ) {
    const { seed, trouble, selection } = spec
    this.#spec = spec
    this.#clock = clock
    this.#arrivals = arrivals
    this.#onServed = onServed
    this.#random = seededRandom(seed)
    this.#blocks = new PromptBlocks(spec)
    this.#capacityBlocks = capacityBlocksOf(spec)
    this.#stepTokensMax = engineProfile(spec.profile).stepTokensMax
    this.#living = new LivingWorkers(spec)
    this.#figures = new CellFigures(spec, expected)
    this.#engines = new CellEngines(spec, this)
    this.#views = new RouterViews(spec, this.#capacityBlocks)
    this.#troubled =
      trouble === 'at-once' || trouble === 'some-at-once' || trouble === 'random'
        ? new TroubledSignals(trouble, seededRandom(seed ^ 0x6a09e667))
        : undefined
    this.#health = spec.hedge ? Array.from({ length: spec.routers }, () => new WorkerHealth()) : []
    this.#routers = Array.from({ length: spec.routers }, (_, router) => this.#newRouter(router))
    const { replicaSyncMs, replicaGather } = spec
    this.#sync =
      replicaSyncMs === undefined || spec.routers === 1
        ? undefined
        : new ReplicaSync(replicaSyncMs, this.#routers, replicaGather)
    this.#hedges = spec.hedge && this.#newHedges(spec.hedge)
    const { queue } = selection
    this.#queues = queue === undefined ? [] : this.#routers.map((_, router) => this.#newQueue(queue, router))
  }

  #newRouter(router: number): SimRouter {
    const spec = this.#spec
    const health = this.#health[router]
    return new SimRouter({
      spec,
      view: this.#views.newView(),
      oracle: this.#views.oracle(this.#engines.all, worker => this.#figures.outstandingTokens(worker)),
      random: seededRandom(spec.seed * 1_000_003 + router + 1),
      guardRandom: seededRandom(spec.seed * 1_000_003 - router - 1),
      tell: (operation: ReplicaOperation, nowMs: number) => this.#sync?.tell(router, operation, nowMs),
      ...(health !== undefined && { health }),
    })
  }

  get requestsDone(): number {
    return this.#figures.requestsDone
  }

  /** Handles so many events at most. False: none is left. */
  async run(eventsMax: number): Promise<boolean> {
    const engines = this.#engines
    const arrivals = this.#arrivals
    for (let events = 0; events < eventsMax; events++) {
      const filling = arrivals.fill()
      if (filling !== undefined) await filling
      const arrivalMs = arrivals.peekMs
      const stepMs = engines.nextMs
      const queueMs = this.#queueMs()
      const handoverMs = this.#handovers.nextMs
      const hedgeMs = this.#hedges?.nextMs ?? Number.POSITIVE_INFINITY
      const change = this.#living.next
      if (change !== undefined && change.atMs <= Math.min(stepMs, queueMs, arrivalMs)) {
        if (Math.min(stepMs, queueMs, arrivalMs) === Number.POSITIVE_INFINITY) return false
        this.nowMs = change.atMs
        this.#change()
      } else if (stepMs <= Math.min(queueMs, arrivalMs, handoverMs, hedgeMs)) {
        if (stepMs === Number.POSITIVE_INFINITY) return false
        this.nowMs = stepMs
        engines.step()
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
    const { routers, blockTokens } = this.#spec
    const router = routers === 1 ? 0 : this.#random.below(routers)
    const blocks = Math.floor(trace.inputTokens / blockTokens)
    const ids = this.#blocks.idsOf(trace, blocks)
    const request = newSimRequest(trace, index, ids, blocks, router, this.#blocks.answerIdsOf(trace))
    this.#figures.arrived(request)
    if (Math.ceil((request.inputTokens + request.outputTokens) / blockTokens) > this.#capacityBlocks)
      this.#figures.refused(request)
    else this.#place(request)
  }

  #place(request: SimRequest): void {
    const { nowMs } = this
    if (this.#living.count === 0) {
      this.#figures.refused(request)
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
    const fleet = isLong ? this.#living.fleetForLong : this.#living.fleet
    const decision = this.#routers[request.router]!.decide(request, fleet, nowMs, rules)
    this.#figures.asked(this.#clock.nowMs() - startedMs)
    if (decision.kind === 'busy') return decision.cachedTokens
    if (decision.kind === 'refused')
      throw new RangeError(`cannot place request ${request.index}: ${decision.error.message}`)
    this.#figures.decided()
    this.#tried(request)
    this.#start(request)
    return undefined
  }

  // ── Prefill and decode apart ─────────────────────────────────────────────────────────────────

  #goesApart(request: SimRequest): boolean {
    const { pools } = this.#spec
    if (pools?.stay === undefined) return pools !== undefined
    if (pools.stay === 'auto')
      return this.#routers[request.router]!.goesApart(request, this.#living.fleet, this.nowMs)
    const cached = this.#routers[request.router]!.cachedTokens(request, this.#living.fleet, this.nowMs)
    const newTokens = request.inputTokens - cached
    return newTokens >= pools.stay.tokens || newTokens >= pools.stay.share * request.inputTokens
  }

  #handOver({ step, request, computedMs }: Handover): void {
    if (step === 'arrive') {
      this.#enqueue(request)
      return
    }
    const leg = decodeLegOf(request, this.#blocks.answerIdsOf(request.trace))
    this.#deliverSignals(computedMs)
    this.#sync?.deliver(this.nowMs)
    this.#decide(leg)
  }

  /** It is sent to its worker. */
  #start(request: SimRequest): void {
    const { nowMs } = this
    const { worker } = request
    request.placedMs = nowMs
    this.#figures.placed(worker, nowMs)
    this.#figures.outstand(request, 1, nowMs)
    const { pools, recovery } = this.#spec
    if (recovery !== undefined && request.recovers !== undefined) {
      const cached = this.#engines.of(worker).cachedRun(request) * this.#spec.blockTokens
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
    this.#engines.of(worker).enqueue(request)
    request.isToldAtOnce = this.#troubled?.isAtOnce(worker) === true
    if (request.isToldAtOnce) this.#signals.add(nowMs + AT_ONCE_MS, request, false)
    this.#engines.wake(worker, nowMs)
  }

  // ── Hedges ───────────────────────────────────────────────────────────────────────────────────

  #newHedges(hedge: HedgeSpec): SimHedges {
    return new SimHedges(hedge, {
      place: second => {
        this.#deliverSignals(this.nowMs - this.#spec.view.signalDelayMs)
        const router = this.#routers[second.router]!
        const decision = router.decide(second, this.#living.fleet, this.nowMs)
        if (decision.kind !== 'placed') return false
        this.#figures.decided()
        this.#tried(second)
        second.placedMs = this.nowMs
        this.#figures.outstand(second, 1, this.nowMs)
        this.#enqueue(second)
        return true
      },
      cancel: (request, isLate) => {
        const { worker, router, placedMs } = request
        if (isLate)
          this.#health[router]!.failed(String(worker), worker, '', LATE, placedMs, this.nowMs, false)
        this.#health[router]!.ended(String(worker), String(request.index))
        this.#engines.of(worker).cancel(request)
        this.#figures.outstand(request, -1, this.nowMs)
        this.#routers[router]!.failed(request, CANCELLED, this.nowMs)
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
        this.#routers[router]!.cachedTokens(request, this.#living.fleet, this.nowMs),
      refuse: (request: SimRequest) => {
        this.#figures.refused(request)
        this.#arrivals.completed(request.trace, this.nowMs)
      },
    }
    return new SimQueue(queue, this.#spec.selection, asked, this.#living.count)
  }

  /** When a queue wants to look, or a signal that it may wait for arrives; infinite while nothing waits. */
  #queueMs(): number {
    let dueMs = Number.POSITIVE_INFINITY
    for (const queue of this.#queues) dueMs = Math.min(dueMs, queue.dueMs)
    if (dueMs === Number.POSITIVE_INFINITY) return dueMs
    dueMs = Math.min(dueMs, this.#signals.nextMs + this.#spec.view.signalDelayMs)
    if (this.#sync !== undefined) dueMs = Math.min(dueMs, this.#sync.nextMs)
    // A signal may have come while nothing waited.
    return Math.max(dueMs, this.nowMs)
  }

  #lookAtQueues(): void {
    const { nowMs } = this
    const sentMs = this.#signals.nextMs
    const isSignal = sentMs + this.#spec.view.signalDelayMs <= nowMs
    if (isSignal) this.#deliverSignals(sentMs)
    const isTold = this.#sync?.deliver(nowMs) === true
    for (const queue of this.#queues) {
      if (queue.dueMs <= nowMs) queue.look(nowMs)
      else if ((isSignal || isTold) && queue.waiting > 0) queue.loadFell(nowMs)
    }
  }

  #deliverSignals(untilMs: number): void {
    this.#signals.takeUntil(untilMs, ({ atMs, request, isLast }) => {
      const router = this.#routers[request.router]!
      const toldMs = atMs + this.#spec.view.signalDelayMs
      this.#sync?.deliver(toldMs)
      if (isLast) router.completed(request, toldMs)
      else router.firstToken(request, toldMs)
      this.#queues[request.router]?.prefillComplete(request, toldMs)
    })
  }

  // ── What engines tell ────────────────────────────────────────────────────────────────────────

  beginBatch(nowMs: number): void {
    this.#views.beginBatch(nowMs)
  }

  stored(worker: number, blockId: number): void {
    this.#views.stored(worker, blockId)
  }

  evicted(worker: number, blockId: number): void {
    this.#views.evicted(worker, blockId)
  }

  admitted(request: SimRequest): void {
    if (request.leg !== 'decode') this.#figures.missed(this.#views.missedBlocks(request))
  }

  gap(ms: number, requests: number): void {
    this.#figures.gap(ms, requests)
  }

  firstToken(request: SimRequest): void {
    request.firstTokenMs = this.nowMs
    this.#hedges?.firstToken(request, this.nowMs)
    this.#health[request.router]?.progressed(String(request.worker), '', request.placedMs, this.nowMs)
    if (request.isToldAtOnce) return
    this.#signals.add(this.#troubled?.laterMs(request, this.nowMs) ?? this.nowMs, request, false)
  }

  completed(request: SimRequest): void {
    const { nowMs } = this
    const health = this.#health[request.router]
    health?.ended(String(request.worker), String(request.index))
    health?.served(String(request.worker), '', request.placedMs, nowMs)
    this.#signals.add(nowMs, request, true)
    this.#figures.outstand(request, -1, nowMs)
    // One token that ends the answer is the answer.
    if (request.leg === 'prefill' && request.trace.outputTokens > 1) {
      const atMs = nowMs + this.#spec.view.signalDelayMs
      this.#handovers.add({ atMs, computedMs: nowMs, step: 'decide', request })
      return
    }
    if (this.#spec.recovery !== undefined && request.recovers !== undefined) {
      this.#figures.recovered(request, nowMs)
      this.#served(request.recovers.original)
    } else this.#served(request)
  }

  /** All of an answer is there. `request`: with the times of its first token. */
  #served(request: SimRequest): void {
    const { nowMs } = this
    const { trace, worker, arrivalMs, placedMs, firstTokenMs } = request
    const reusedTokens = request.reusedBefore ?? request.reusedTokens
    this.#figures.completed(request, nowMs)
    this.#onServed?.({ trace, worker, arrivalMs, placedMs, firstTokenMs, endMs: nowMs, reusedTokens })
    this.#arrivals.completed(trace, nowMs)
  }

  // ── Joins and deaths ─────────────────────────────────────────────────────────────────────────

  #change(): void {
    const change = this.#living.change()
    if (change === undefined) return
    if (change.isDeath) this.#died(change.worker)
    for (const queue of this.#queues) queue.setWorkers(this.#living.count, this.nowMs)
  }

  #died(worker: number): void {
    // Messages sent before the death are heard before it.
    this.#deliverSignals(Number.POSITIVE_INFINITY)
    const requests = this.#engines.kill(worker)
    // Those whose pooled blocks are on their way to it.
    requests.push(...this.#handovers.dropOf(worker))
    this.#views.clear(worker)
    this.#sync?.forget(worker)
    for (const router of this.#routers) router.workerDied(worker)
    for (const request of requests) this.#queues[request.router]?.prefillComplete(request, this.nowMs)
    for (const request of requests) {
      this.#figures.outstand(request, -1, this.nowMs)
      if (request.firstTokenMs < 0) {
        this.#place(request)
        continue
      }
      const { recovery, blockTokens } = this.#spec
      if (recovery !== undefined) {
        const generated = this.#engines.of(worker).generatedOf(request)
        this.#place(successorOf(request, generated, recovery, blockTokens, this.nowMs))
        continue
      }
      this.#figures.lost(request)
      this.#arrivals.completed(request.trace, this.nowMs)
    }
  }

  result(): CellRun['result'] {
    return this.#figures.result(this.#engines.all, {
      // Of the first router: the others have the same traffic.
      guard: this.#routers[0]?.guardFigures,
      queue: this.#queues[0]?.figures,
      hedges: this.#hedges?.figures,
    })
  }

  cost(elapsedMs: number): CellRun['cost'] {
    return this.#figures.cost(this.#engines.all, elapsedMs)
  }
}
