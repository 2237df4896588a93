/**
 * Sim queue: what waits at one simulated router. It drives the product's own PriorityQueue and room rules as
 * the queue actor does, on virtual time; its questions to the router are calls, which take no time.
 *
 *   arrive ──▶ ask the router ──▶ placed      while nothing waits; prompts that may be long come first
 *                 │  ▲
 *              busy  └── loadFell, look       it waits; the router is asked again: fresh loads and overlaps
 *                 ▼  │
 *               waiting ──▶ refused           its time is over, or no worker is left
 *
 * Cost   a decision for each request that goes, and one for each look that finds no room.
 */

import { STEP_TOKENS_DEFAULT } from '@homing/load'
import {
  AGING_MS_DEFAULT,
  ModelRules,
  orderOf,
  PriorityQueue,
  QUEUE_LOOK_MS,
  type QueueRequest,
  QueueRoom,
  type RoomRule,
  thresholdOf,
  WAIT_MS_MAX_DEFAULT,
} from '@homing/queue'
import { LatencyHistogram } from './cell-metrics.ts'
import type { CellSelection, QueueFigures, QueueSpec } from './cell-types.ts'
import { isAutoSelection } from './column.ts'
import type { SimRequest } from './sim-request.ts'

/** What the queue asks of its router. */
export interface QueuedRouter {
  /**
   * Places the request; or, if every worker is past the rules, says how much of its prompt the best of them
   * holds.
   */
  tryPlace(request: SimRequest, rules: readonly RoomRule[]): number | undefined
  cachedTokens(request: SimRequest): number
  /** It will not be served. */
  refuse(request: SimRequest): void
}

interface Waiting extends QueueRequest {
  readonly request: SimRequest
}

export class SimQueue {
  readonly #router: QueuedRouter
  readonly #waitMsMax: number
  readonly #rules: ModelRules
  readonly #queue: PriorityQueue<Waiting>
  /** Time of the next look; while something waits. */
  #lookMs = 0
  readonly #waits = new LatencyHistogram()
  #waited = 0
  #waitingMost = 0
  #waitMsLongest = 0
  #refused = 0

  constructor(spec: QueueSpec, selection: CellSelection, router: QueuedRouter, workers: number) {
    this.#router = router
    this.#waitMsMax = spec.waitMsMax ?? WAIT_MS_MAX_DEFAULT
    const isAuto = isAutoSelection(selection)
    this.#rules = new ModelRules('', {
      threshold: thresholdOf(spec.threshold, isAuto, Object.keys(spec.tenantWeights ?? {}).length > 0),
      order: orderOf(spec.order ?? 'auto', isAuto),
      classes: undefined,
    })
    this.#queue = new PriorityQueue({
      profile: this.#rules.profile,
      room: new QueueRoom(),
      workers,
      stepTokens: STEP_TOKENS_DEFAULT,
      agingMs: spec.agingMs ?? AGING_MS_DEFAULT,
      unnamedTenants: spec.unnamedTenants ?? 'shared',
      tenantWeights: new Map(Object.entries(spec.tenantWeights ?? {})),
    })
  }

  get waiting(): number {
    return this.#queue.waiting
  }

  /** When to call `look`, if load does not fall before; infinite while nothing waits. */
  get dueMs(): number {
    if (this.waiting === 0) return Number.POSITIVE_INFINITY
    return Math.min(this.#lookMs, this.#queue.nextDueMs)
  }

  arrive(request: SimRequest, nowMs: number): void {
    const mayBeLong = request.inputTokens > STEP_TOKENS_DEFAULT && (request.trace.tenant ?? '') !== ''
    if (this.waiting > 0 || mayBeLong) {
      this.#admit(this.#waitingOf(request, this.#router.cachedTokens(request)), nowMs, false)
    } else {
      const rules = this.#rules.ofFamily(undefined)
      const cachedTokens = this.#router.tryPlace(request, rules)
      if (cachedTokens === undefined) {
        this.#count(request, nowMs)
        const placed = this.#waitingOf(request, request.inputTokens - request.bookedTokens)
        this.#queue.placedAtOnce(placed, String(request.worker), nowMs)
      } else this.#admit(this.#waitingOf(request, cachedTokens), nowMs, true)
    }
    this.#release(nowMs)
  }

  /** A first token or an end was reported, or a worker joined. */
  loadFell(nowMs: number): void {
    this.#queue.reopen()
    this.#release(nowMs)
  }

  /** Time passed. */
  look(nowMs: number): void {
    for (const { request } of this.#queue.expire(nowMs)) this.#refuse(request)
    this.#lookMs = nowMs + QUEUE_LOOK_MS
    this.loadFell(nowMs)
  }

  /** The first token was reported, or the request ended. */
  prefillComplete(request: SimRequest, nowMs: number): void {
    this.#queue.prefillComplete(String(request.index), nowMs)
  }

  setWorkers(workers: number, nowMs: number): void {
    this.#queue.setWorkers(workers)
    if (workers > 0) this.loadFell(nowMs)
    else for (const { request } of this.#queue.drop(() => true, nowMs)) this.#refuse(request)
  }

  get figures(): QueueFigures {
    const requests = this.#waits.count
    return {
      waitedShare: requests === 0 ? 0 : this.#waited / requests,
      waitMs: { mean: this.#waits.meanMs, p99: this.#waits.percentileMs(0.99), max: this.#waitMsLongest },
      waitingMost: this.#waitingMost,
      refused: this.#refused,
    }
  }

  #admit(waiting: Waiting, nowMs: number, isBusy: boolean): void {
    const admission = this.#queue.admit(waiting, nowMs)
    if (typeof admission === 'object') this.#refuse(waiting.request)
    else if (admission === 'waiting') this.#counted(nowMs)
    else if (isBusy) this.#busy(waiting, nowMs)
    else this.#ask(waiting, nowMs)
  }

  #ask(waiting: Waiting, nowMs: number): void {
    const cachedTokens = this.#router.tryPlace(waiting.request, this.#rules.ofClass(waiting.policyClass))
    if (cachedTokens !== undefined) {
      this.#busy(waiting, nowMs)
      return
    }
    this.#count(waiting.request, nowMs)
    this.#queue.placed(waiting.id, String(waiting.request.worker), nowMs)
  }

  #busy(waiting: Waiting, nowMs: number): void {
    const outcome = this.#queue.busy(waiting.id, nowMs)
    if (typeof outcome === 'object') this.#refuse(waiting.request)
    else this.#counted(nowMs)
  }

  /** Something waits. */
  #counted(nowMs: number): void {
    if (this.waiting === 1) this.#lookMs = nowMs + QUEUE_LOOK_MS
    this.#waitingMost = Math.max(this.#waitingMost, this.waiting)
  }

  #release(nowMs: number): void {
    for (let next = this.#queue.take(nowMs); next !== undefined; next = this.#queue.take(nowMs)) {
      this.#ask(next, nowMs)
    }
  }

  #refuse(request: SimRequest): void {
    this.#refused++
    this.#router.refuse(request)
  }

  #count({ arrivalMs }: SimRequest, nowMs: number): void {
    const waitMs = nowMs - arrivalMs
    if (waitMs > 0) this.#waited++
    this.#waits.add(waitMs)
    this.#waitMsLongest = Math.max(this.#waitMsLongest, waitMs)
  }

  #waitingOf(request: SimRequest, cachedTokens: number): Waiting {
    const uncachedTokens = Math.max(0, request.inputTokens - Math.floor(cachedTokens))
    const { arrivalMs, inputTokens } = request
    return {
      id: String(request.index),
      request,
      arrivedMs: arrivalMs,
      promptTokens: inputTokens,
      uncachedTokens,
      bytes: 0,
      policyClass: this.#rules.classOf(undefined, uncachedTokens),
      tenant: request.trace.tenant ?? '',
      priorityJumpSeconds: 0,
      strictPriority: 0,
      deadlineMs: arrivalMs + this.#waitMsMax,
      doNotQueue: false,
      lane: '',
      owner: '',
      ownerLife: '',
    }
  }
}
