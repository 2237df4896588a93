/**
 * Cell figures: what became of the requests of one cell, and its result. Figures that say so leave out the
 * requests of the warm-up, the first ones to arrive.
 */

import {
  Company,
  coefficientOfVariation,
  ImbalanceOverTime,
  InfiniteCache,
  LatencyHistogram,
  maxOverMean,
  RequestMetrics,
} from './cell-metrics.ts'
import type { CellRun, CellSpec } from './cell-types.ts'
import type { SimEngine } from './engine.ts'
import { RecoveryMetrics } from './recovery.ts'
import type { SimRequest } from './sim-request.ts'
import { TenantMetrics } from './tenant-metrics.ts'

/** Figures that other parts of a cell have; undefined: it has no such part. */
interface OtherFigures {
  readonly guard: CellRun['result']['guard'] | undefined
  readonly queue: CellRun['result']['queue'] | undefined
  readonly hedges: CellRun['result']['hedges'] | undefined
}

export class CellFigures {
  readonly #spec: CellSpec
  readonly #warmupRequests: number
  readonly #all = new RequestMetrics()
  readonly #warm = new RequestMetrics()
  readonly #gaps = new LatencyHistogram()
  readonly #tenants = new TenantMetrics()
  readonly #recovered = new RecoveryMetrics()
  readonly #infinite = new InfiniteCache()
  readonly #company: Company | undefined
  readonly #imbalance: ImbalanceOverTime
  readonly #outstandingTokens: Float64Array
  #requestsDone = 0
  #missedReuseBlocks = 0
  #decisions = 0
  #decisionMs = 0
  #refused = 0
  #lost = 0
  #outputTokens = 0
  #firstArrivalMs = -1
  #lastArrivalMs = 0
  #lastCompletionMs = 0

  /** `expected`: requests; undefined: not known, and there is no warm-up. */
  constructor(spec: CellSpec, expected: number | undefined) {
    this.#spec = spec
    this.#warmupRequests = Math.floor(spec.warmupShare * (expected ?? 0))
    this.#company = spec.companyMs === undefined ? undefined : new Company(spec.companyMs)
    this.#imbalance = new ImbalanceOverTime(spec.workers)
    this.#outstandingTokens = new Float64Array(spec.workers)
  }

  /** Requests that were served, refused or lost. */
  get requestsDone(): number {
    return this.#requestsDone
  }

  /** Tokens of the requests at a worker. */
  outstandingTokens(worker: number): number {
    return this.#outstandingTokens[worker]!
  }

  arrived({ blockIds, blocks, inputTokens, trace }: SimRequest): void {
    if (this.#firstArrivalMs < 0) this.#firstArrivalMs = trace.timestampMs
    this.#lastArrivalMs = trace.timestampMs
    this.#infinite.add(blockIds, blocks, inputTokens, this.#spec.blockTokens)
  }

  /** A router decided, which took so long. */
  asked(tookMs: number): void {
    this.#decisionMs += tookMs
  }

  /** It has placed a request. */
  decided(): void {
    this.#decisions++
  }

  placed(worker: number, nowMs: number): void {
    this.#company?.placed(worker, nowMs)
  }

  /** A request is at its worker (1), or has left it (−1). */
  outstand({ worker, inputTokens, outputTokens }: SimRequest, sign: 1 | -1, nowMs: number): void {
    const tokens = sign * (inputTokens + outputTokens)
    this.#outstandingTokens[worker]! += tokens
    this.#imbalance.add(worker, tokens, nowMs)
  }

  /** Blocks that a request has to compute although another engine holds them. */
  missed(blocks: number): void {
    this.#missedReuseBlocks += blocks
  }

  gap(ms: number, requests: number): void {
    this.#gaps.add(ms, requests)
  }

  refused(request: SimRequest): void {
    this.#failed(request)
    this.#refused++
  }

  lost(request: SimRequest): void {
    this.#failed(request)
    this.#lost++
  }

  recovered(request: SimRequest, nowMs: number): void {
    this.#recovered.completed(request, request.recovers!, this.#spec.recovery!.kind, nowMs)
  }

  /** All of an answer is there. `request`: with the times of its first token. */
  completed(request: SimRequest, nowMs: number): void {
    const { arrivalMs, firstTokenMs, outputTokens, inputTokens, index, trace } = request
    const reusedTokens = request.reusedBefore ?? request.reusedTokens
    this.#requestsDone++
    this.#outputTokens += outputTokens
    this.#lastCompletionMs = nowMs
    const baseMs = this.#spec.baseLatencyMs ?? 0
    const ttftMs = firstTokenMs - arrivalMs + baseMs
    const e2eMs = nowMs - arrivalMs + baseMs
    this.#all.completed(ttftMs, e2eMs, outputTokens, inputTokens, reusedTokens)
    if (index >= this.#warmupRequests)
      this.#warm.completed(ttftMs, e2eMs, outputTokens, inputTokens, reusedTokens)
    if (trace.tenant !== undefined) this.#tenants.completed(request, ttftMs, e2eMs)
  }

  result(engines: readonly SimEngine[], { guard, queue, hedges }: OtherFigures): CellRun['result'] {
    const withWarmup = this.#all.figures()
    const prefillTokens = engines.map(engine => engine.prefillTokens)
    const busyMs = engines.map(engine => engine.busyMs)
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
      evictions: sum(engines.map(engine => engine.evictions)),
      missedReuseBlocks: this.#missedReuseBlocks,
      decisions: this.#decisions,
      ...(guard && { guard }),
      ...(this.#company !== undefined && { company: this.#company.figures }),
      ...(this.#spec.recovery !== undefined && { recovery: this.#recovered.figures() }),
      ...(queue && { queue }),
      ...(this.#tenants.size > 0 && { tenants: this.#tenants.figures() }),
      ...(hedges && { hedges }),
      refused: this.#refused,
      lost: this.#lost,
      spanMs,
      makespanMs,
      drain: spanMs === 0 ? 1 : makespanMs / spanMs,
    }
  }

  cost(engines: readonly SimEngine[], elapsedMs: number): CellRun['cost'] {
    return {
      elapsedMs,
      cpuUsPerDecision: this.#decisions === 0 ? 0 : (1000 * this.#decisionMs) / this.#decisions,
      engineSteps: sum(engines.map(engine => engine.steps)),
    }
  }

  #failed({ index, trace }: SimRequest): void {
    this.#requestsDone++
    this.#all.failed()
    if (index >= this.#warmupRequests) this.#warm.failed()
    if (trace.tenant !== undefined) this.#tenants.failed(trace.tenant)
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
