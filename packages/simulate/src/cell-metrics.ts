/**
 * Cell metrics: figures over the requests of a run, in bounded memory.
 *
 * Histogram: buckets whose bounds grow by 2^(1/1024), from 1 µs to 12 days; a percentile is off by less than
 * 0.04 %. Means are exact. A percentile p is the smallest value that at least p of all values do not exceed.
 */

import type { CompanyFigures, Goodput, LatencyFigures, RequestFigures } from './cell-types.ts'

const BUCKETS_PER_DOUBLING = 1024
const DOUBLINGS = 40
const SMALLEST_MS = 0.001

export class LatencyHistogram {
  readonly #counts = new Float64Array(BUCKETS_PER_DOUBLING * DOUBLINGS + 1)
  #count = 0
  #sum = 0

  get count(): number {
    return this.#count
  }

  add(ms: number, times = 1): void {
    const bucket = ms <= SMALLEST_MS ? 0 : Math.ceil(Math.log2(ms / SMALLEST_MS) * BUCKETS_PER_DOUBLING)
    this.#counts[Math.min(bucket, this.#counts.length - 1)]! += times
    this.#count += times
    this.#sum += ms * times
  }

  get meanMs(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count
  }

  /** 0 without values. */
  percentileMs(share: number): number {
    const rank = Math.max(1, Math.ceil(share * this.#count))
    if (this.#count === 0) return 0
    let seen = 0
    for (let bucket = 0; bucket < this.#counts.length; bucket++) {
      seen += this.#counts[bucket]!
      if (seen >= rank) return SMALLEST_MS * 2 ** ((bucket - 0.5) / BUCKETS_PER_DOUBLING)
    }
    throw new Error(`a histogram of ${this.#count} values has ${seen} in its buckets`)
  }

  figures(): LatencyFigures {
    return {
      mean: this.meanMs,
      p50: this.percentileMs(0.5),
      p90: this.percentileMs(0.9),
      p99: this.percentileMs(0.99),
    }
  }
}

export interface Tier {
  readonly ttftMs: number
  readonly itlMs: number
}

/** What a request must meet for a tier. Source: the tiers of docs/simulator.md. */
export const TIERS: Readonly<Record<keyof Goodput, Tier>> = {
  interactive: { ttftMs: 2000, itlMs: 50 },
  standard: { ttftMs: 5000, itlMs: 100 },
  longContext: { ttftMs: 30_000, itlMs: 200 },
}

/** Figures over some of the requests. */
export class RequestMetrics {
  readonly #ttft = new LatencyHistogram()
  readonly #itl = new LatencyHistogram()
  readonly #e2e = new LatencyHistogram()
  readonly #inside = { interactive: 0, standard: 0, longContext: 0 }
  #requests = 0
  #inputTokens = 0
  #reusedTokens = 0

  completed(
    ttftMs: number,
    e2eMs: number,
    outputTokens: number,
    inputTokens: number,
    reusedTokens: number,
  ): void {
    this.#requests++
    this.#inputTokens += inputTokens
    this.#reusedTokens += reusedTokens
    this.#ttft.add(ttftMs)
    this.#e2e.add(e2eMs)
    // One token has no gap: such a request is outside the ITL, and inside its limits.
    const itlMs = outputTokens > 1 ? (e2eMs - ttftMs) / (outputTokens - 1) : 0
    if (outputTokens > 1) this.#itl.add(itlMs)
    for (const name of ['interactive', 'standard', 'longContext'] as const) {
      if (ttftMs <= TIERS[name].ttftMs && itlMs <= TIERS[name].itlMs) this.#inside[name]++
    }
  }

  /** A request that was never served, or ended with its worker: outside every tier. */
  failed(): void {
    this.#requests++
  }

  figures(): RequestFigures {
    const share = (count: number): number => (this.#requests === 0 ? 0 : count / this.#requests)
    return {
      requests: this.#requests,
      ttftMs: this.#ttft.figures(),
      itlMs: this.#itl.figures(),
      e2eMs: this.#e2e.figures(),
      goodput: {
        interactive: share(this.#inside.interactive),
        standard: share(this.#inside.standard),
        longContext: share(this.#inside.longContext),
      },
      hitRate: this.#inputTokens === 0 ? 0 : this.#reusedTokens / this.#inputTokens,
    }
  }
}

/** Standard deviation ÷ mean, over all values; 0 if the mean is 0. */
export function coefficientOfVariation(values: readonly number[]): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  if (mean === 0) return 0
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
  return Math.sqrt(variance) / mean
}

/** Largest ÷ mean; 0 if the mean is 0. */
export function maxOverMean(values: readonly number[]): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  return mean === 0 ? 0 : values.reduce((max, value) => Math.max(max, value), 0) / mean
}

/** The mean over time of largest ÷ mean of a figure per worker, while it is not 0 everywhere. */
export class ImbalanceOverTime {
  readonly #values: Float64Array
  #sum = 0
  /** The worker with the largest value; −1: it must be found. */
  #largest = 0
  #sinceMs = 0
  #weighted = 0
  #weightMs = 0

  constructor(workers: number) {
    this.#values = new Float64Array(workers)
  }

  /** Adds to the figure of a worker at `nowMs`, which never goes back. */
  add(worker: number, amount: number, nowMs: number): void {
    const values = this.#values
    if (this.#sum > 0 && nowMs > this.#sinceMs) {
      if (this.#largest < 0) this.#largest = indexOfLargest(values)
      const elapsedMs = nowMs - this.#sinceMs
      this.#weighted += (elapsedMs * values[this.#largest]! * values.length) / this.#sum
      this.#weightMs += elapsedMs
    }
    this.#sinceMs = nowMs
    values[worker]! += amount
    this.#sum += amount
    if (this.#largest < 0) return
    if (amount > 0 && values[worker]! > values[this.#largest]!) this.#largest = worker
    else if (amount < 0 && worker === this.#largest) this.#largest = -1
  }

  get mean(): number {
    return this.#weightMs === 0 ? 0 : this.#weighted / this.#weightMs
  }
}

/**
 * How many requests were sent shortly before another one, and how many of those to its worker. Memory: the
 * requests of the span.
 */
export class Company {
  readonly #spanMs: number
  #recent: { readonly worker: number; readonly atMs: number }[] = []
  #placed = 0
  #others = 0
  #sameWorker = 0

  constructor(spanMs: number) {
    this.#spanMs = spanMs
  }

  /** A request is sent to a worker; `nowMs` never goes back. */
  placed(worker: number, nowMs: number): void {
    this.#recent = this.#recent.filter(({ atMs }) => nowMs - atMs <= this.#spanMs)
    this.#others += this.#recent.length
    for (const recent of this.#recent) if (recent.worker === worker) this.#sameWorker++
    this.#recent.push({ worker, atMs: nowMs })
    this.#placed++
  }

  get figures(): CompanyFigures {
    return {
      requests: this.#placed === 0 ? 0 : this.#others / this.#placed,
      sameWorkerShare: this.#others === 0 ? 0 : this.#sameWorker / this.#others,
    }
  }
}

function indexOfLargest(values: Float64Array): number {
  let largest = 0
  for (let i = 1; i < values.length; i++) if (values[i]! > values[largest]!) largest = i
  return largest
}

/**
 * The hit rate that one cache without bound would have: remembers every id it saw, a bit each, in pages. Ids
 * that are scattered over more than PAGES_MAX pages are too many: then there is no answer.
 */
export class InfiniteCache {
  static readonly #PAGE_BITS = 32_768
  static readonly #PAGES_MAX = 16_384
  readonly #pages = new Map<number, Int32Array>()
  #inputTokens = 0
  #reusedTokens = 0
  #isFull = false

  add(ids: ArrayLike<number>, count: number, inputTokens: number, blockTokens: number): void {
    if (this.#isFull) return
    let run = 0
    while (run < count && this.#has(ids[run]!)) run++
    for (let i = run; i < count; i++) this.#remember(ids[i]!)
    this.#inputTokens += inputTokens
    this.#reusedTokens += Math.min(run * blockTokens, inputTokens - 1)
  }

  /** Undefined: too many ids. */
  get hitRate(): number | undefined {
    if (this.#isFull) return undefined
    return this.#inputTokens === 0 ? 0 : this.#reusedTokens / this.#inputTokens
  }

  #has(id: number): boolean {
    const page = this.#pages.get(Math.floor(id / InfiniteCache.#PAGE_BITS))
    const bit = id % InfiniteCache.#PAGE_BITS
    return page !== undefined && (page[bit >> 5]! & (1 << (bit & 31))) !== 0
  }

  #remember(id: number): void {
    const number = Math.floor(id / InfiniteCache.#PAGE_BITS)
    let page = this.#pages.get(number)
    if (page === undefined) {
      if (this.#pages.size === InfiniteCache.#PAGES_MAX) {
        this.#isFull = true
        this.#pages.clear()
        return
      }
      page = new Int32Array(InfiniteCache.#PAGE_BITS / 32)
      this.#pages.set(number, page)
    }
    const bit = id % InfiniteCache.#PAGE_BITS
    page[bit >> 5]! |= 1 << (bit & 31)
  }
}
