/**
 * Tally: counts of what was sent and what became of it, in bounded memory: histograms and sums.
 *
 *   issue lag   how late the load itself was with a request that was due (open loop)
 *   read lag    how late it was with a timer: as late may be what it read of an answer
 *   TTFT, E2E   from the instant when a request was due to its first and last token: what waits because the
 *               fleet is slow is charged to the fleet
 *   ITL         (last − first token) ÷ (tokens − 1), one value per request; gap: each single one
 */

import { type LatencyFigures, LatencyHistogram } from '@homing/simulate/report'
import type { Answered, Failure, FailureKind, Outcome } from './outcome.ts'

export interface ErrorCount {
  readonly kind: FailureKind
  readonly status: number | undefined
  readonly count: number
  /** What was said of the first one. */
  readonly detail: string
}

/** What the headers of a homing router said; undefined figures: it did not say enough. */
export interface HomingFigures {
  /** Answers with such headers, of all. */
  readonly share: number
  /** Of these: at least a block was predicted to be cached. */
  readonly overlapShare: number
  readonly overlapBlocksMean: number
  /** Prompt tokens that were predicted to be cached, of all; undefined: the block size is not known. */
  readonly predictedHitRate: number | undefined
  /** Of the answers with such headers, by what the router's knowledge was worth. */
  readonly trustShares: Readonly<Record<string, number>>
  readonly workers: number
  /** Of the worker that got most. */
  readonly workerShareMax: number
}

export interface LoadFigures {
  /** Counted requests: answered and failed. */
  readonly requests: number
  readonly answered: number
  readonly errors: readonly ErrorCount[]
  readonly errorRate: number
  readonly ttftMs: LatencyFigures
  readonly itlMs: LatencyFigures
  readonly gapMs: LatencyFigures
  readonly e2eMs: LatencyFigures
  readonly issueLagMs: LatencyFigures
  readonly readLagMs: LatencyFigures
  /** Requests that waited because as many as may be open were open. */
  readonly waited: number
  readonly promptTokens: number
  readonly outputTokens: number
  /** Undefined: no usage tells of it. Where some does, 0 for those that do not. */
  readonly cachedTokens: number | undefined
  readonly cachedShare: number | undefined
  /** Answers without usage, whose tokens are parts of their streams. */
  readonly withoutUsage: number
  readonly windowMs: number
  readonly requestsPerS: number
  readonly outputTokensPerS: number
  readonly homing: HomingFigures | undefined
}

/** Different errors, trusts and workers that are told apart; the rest is counted together. */
const TOLD_APART_MAX = 64
const REST = 'other'

export class Tally {
  readonly #ttft = new LatencyHistogram()
  readonly #itl = new LatencyHistogram()
  readonly #gap = new LatencyHistogram()
  readonly #e2e = new LatencyHistogram()
  readonly #issueLag = new LatencyHistogram()
  readonly #readLag = new LatencyHistogram()
  readonly #errors = new Map<string, { failure: Failure; count: number }>()
  readonly #trusts = new Map<string, number>()
  readonly #workers = new Map<string, number>()
  #requests = 0
  #answered = 0
  #waited = 0
  #promptTokens = 0
  #outputTokens = 0
  #cachedTokens = 0
  #withCached = 0
  #withoutUsage = 0
  #withHoming = 0
  #withOverlap = 0
  #overlapBlocks = 0
  #predictedOf = 0
  #windowMs = 0
  #fromMs: number | undefined
  #toMs = 0

  issued(lagMs: number): void {
    this.#issueLag.add(lagMs)
  }

  ticked(lagMs: number): void {
    this.#readLag.add(lagMs)
  }

  waited(): void {
    this.#waited++
  }

  gap(ms: number): void {
    this.#gap.add(ms)
  }

  ended(outcome: Outcome, dueMs: number, nowMs: number): void {
    this.#requests++
    this.#fromMs = Math.min(this.#fromMs ?? dueMs, dueMs)
    this.#toMs = Math.max(this.#toMs, nowMs)
    if ('failure' in outcome) this.#failed(outcome.failure)
    else this.#take(outcome, dueMs)
  }

  /** The window of time ends here: what comes is in another one. Throughput is over all windows. */
  endWindow(): void {
    if (this.#fromMs !== undefined) this.#windowMs += this.#toMs - this.#fromMs
    this.#fromMs = undefined
    this.#toMs = 0
  }

  /** `blockTokens`: of the blocks in the headers of a router; undefined: not known. */
  figures(blockTokens: number | undefined): LoadFigures {
    const openMs = this.#fromMs === undefined ? 0 : this.#toMs - this.#fromMs
    const seconds = (this.#windowMs + openMs) / 1000
    const perS = (count: number): number => (seconds === 0 ? 0 : count / seconds)
    const failed = this.#requests - this.#answered
    return {
      requests: this.#requests,
      answered: this.#answered,
      errors: [...this.#errors.values()]
        .map(({ failure: { kind, status, detail }, count }) => ({ kind, status, count, detail }))
        .sort((a, b) => b.count - a.count),
      errorRate: this.#requests === 0 ? 0 : failed / this.#requests,
      ttftMs: this.#ttft.figures(),
      itlMs: this.#itl.figures(),
      gapMs: this.#gap.figures(),
      e2eMs: this.#e2e.figures(),
      issueLagMs: this.#issueLag.figures(),
      readLagMs: this.#readLag.figures(),
      waited: this.#waited,
      promptTokens: this.#promptTokens,
      outputTokens: this.#outputTokens,
      cachedTokens: this.#withCached === 0 ? undefined : this.#cachedTokens,
      // Engines leave the details out where nothing was cached.
      cachedShare: this.#withCached === 0 ? undefined : shareOf(this.#cachedTokens, this.#promptTokens),
      withoutUsage: this.#withoutUsage,
      windowMs: seconds * 1000,
      requestsPerS: perS(this.#answered),
      outputTokensPerS: perS(this.#outputTokens),
      homing: this.#homing(blockTokens),
    }
  }

  #failed(failure: Failure): void {
    const key = `${failure.kind} ${failure.status ?? ''}`
    const known = this.#errors.get(key)
    if (known === undefined) this.#errors.set(key, { failure, count: 1 })
    else known.count++
  }

  #take(outcome: Answered, dueMs: number): void {
    const { firstMs, lastMs, chunks, promptTokens, completionTokens, cachedTokens, homing } = outcome
    this.#answered++
    const outputTokens = completionTokens ?? chunks
    if (completionTokens === undefined) this.#withoutUsage++
    this.#outputTokens += outputTokens
    this.#promptTokens += promptTokens ?? 0
    if (cachedTokens !== undefined && promptTokens !== undefined) {
      this.#withCached++
      this.#cachedTokens += cachedTokens
    }
    this.#e2e.add(lastMs - dueMs)
    if (firstMs !== undefined) {
      this.#ttft.add(firstMs - dueMs)
      // One token has no gap.
      if (outputTokens > 1) this.#itl.add((lastMs - firstMs) / (outputTokens - 1))
    }
    if (homing === undefined) return
    this.#withHoming++
    this.#overlapBlocks += homing.overlapBlocks
    if (homing.overlapBlocks > 0) this.#withOverlap++
    this.#predictedOf += promptTokens ?? 0
    count(this.#trusts, homing.trust)
    count(this.#workers, homing.worker)
  }

  #homing(blockTokens: number | undefined): HomingFigures | undefined {
    const answers = this.#withHoming
    if (answers === 0) return undefined
    const isKnown = blockTokens !== undefined && this.#predictedOf > 0
    return {
      share: answers / this.#answered,
      overlapShare: this.#withOverlap / answers,
      overlapBlocksMean: this.#overlapBlocks / answers,
      predictedHitRate: isKnown ? (this.#overlapBlocks * blockTokens) / this.#predictedOf : undefined,
      trustShares: Object.fromEntries([...this.#trusts].map(([trust, times]) => [trust, times / answers])),
      workers: this.#workers.size,
      workerShareMax: Math.max(...this.#workers.values()) / answers,
    }
  }
}

/** Figures of a block of a side that has told of cached tokens in some block. */
export function toldOfCached(figures: LoadFigures): LoadFigures {
  const { promptTokens, cachedTokens = 0 } = figures
  return { ...figures, cachedTokens, cachedShare: shareOf(cachedTokens, promptTokens) }
}

function shareOf(part: number, whole: number): number | undefined {
  return whole === 0 ? undefined : part / whole
}

function count(counts: Map<string, number>, name: string): void {
  const key = counts.has(name) || counts.size < TOLD_APART_MAX ? name : REST
  counts.set(key, (counts.get(key) ?? 0) + 1)
}
