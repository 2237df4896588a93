/**
 * Open loop: when requests are due, and what became of them. Pure.
 *
 * A request is due at an instant that was fixed before, whatever became of those before it; its latency
 * counts from that instant, so a server that stalls is charged for all that should have been sent meanwhile.
 * Issue lag is how late the load itself was: part of each latency, and no fault of the server.
 */

import type { Random } from '@homing/base'

/** Instants in ms from the start, exponentially spread, at `ratePerS` on average, within `durationMs`. */
export function dueTimes(ratePerS: number, durationMs: number, random: Random): Float64Array {
  const times: number[] = []
  for (let atMs = 0; ; ) {
    atMs += (-Math.log(1 - random.next()) * 1000) / ratePerS
    if (atMs >= durationMs) return Float64Array.from(times)
    times.push(atMs)
  }
}

/** The q-th percentile (0 … 100) of sorted values, of the nearest rank; 0 of none. */
export function nearestRank(sorted: Float64Array, q: number): number {
  return sorted[Math.max(0, Math.ceil((sorted.length * q) / 100) - 1)] ?? 0
}

/** What became of one request. All times in ms, on one clock. */
export interface Outcome {
  readonly dueMs: number
  readonly sentMs: number
  readonly endedMs: number
  /** Of a stream: when its first content came, and the time between contents that follow each other. */
  readonly firstMs?: number
  readonly gapsMs?: readonly number[]
}

/** Of the requests that were due in one window. */
export interface WindowFigures {
  /** Requests that were due. */
  readonly due: number
  readonly answered: number
  readonly failed: number
  /** Not sent, because as many as may be open were open. */
  readonly dropped: number
  /** Answers after their deadline; they count as answered. */
  readonly late: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly lagP99Ms: number
  readonly firstP50Ms: number
  readonly gapP99Ms: number
  /** Of the first request that failed; undefined: none did. */
  readonly failure: string | undefined
}

/** Counts what was due in a window and what became of it. */
export class Tally {
  readonly #deadlineMs: number
  #due = 0
  #failed = 0
  #dropped = 0
  #late = 0
  #failure: string | undefined
  readonly #latencies: number[] = []
  readonly #lags: number[] = []
  readonly #firsts: number[] = []
  readonly #gaps: number[] = []

  /** An answer is late when it took longer than `deadlineMs` from the instant when its request was due. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs
  }

  due(): void {
    this.#due++
  }

  dropped(): void {
    this.#dropped++
  }

  failed(reason: string): void {
    this.#failed++
    this.#failure ??= reason
  }

  answered({ dueMs, sentMs, endedMs, firstMs, gapsMs }: Outcome): void {
    const latencyMs = endedMs - dueMs
    if (latencyMs > this.#deadlineMs) this.#late++
    this.#latencies.push(latencyMs)
    this.#lags.push(sentMs - dueMs)
    if (firstMs !== undefined) this.#firsts.push(firstMs - dueMs)
    if (gapsMs !== undefined) for (const gap of gapsMs) this.#gaps.push(gap)
  }

  figures(): WindowFigures {
    const of = (values: readonly number[], q: number): number =>
      nearestRank(Float64Array.from(values).sort(), q)
    return {
      due: this.#due,
      answered: this.#latencies.length,
      failed: this.#failed,
      dropped: this.#dropped,
      late: this.#late,
      p50Ms: of(this.#latencies, 50),
      p99Ms: of(this.#latencies, 99),
      lagP99Ms: of(this.#lags, 99),
      firstP50Ms: of(this.#firsts, 50),
      gapP99Ms: of(this.#gaps, 99),
      failure: this.#failure,
    }
  }
}

/** True where all that was due was answered, and 99 of 100 within `p99MsMax`. */
export function isHeld({ due, answered, failed, dropped, p99Ms }: WindowFigures, p99MsMax: number): boolean {
  return due > 0 && answered === due && failed === 0 && dropped === 0 && p99Ms < p99MsMax
}

/** Each rate of a search ÷ the one before, until one is not held. */
const STEP = 1.5
/** Tries between the highest rate that was held and the lowest that was not. */
const HALVINGS = 2
const RATE_MIN = 1

/**
 * The search for the highest rate that a server holds: up by steps until one fails, or down by halves until
 * one is held, then halvings between the two.
 */
export class RateSearch {
  readonly #rateMax: number
  #rate: number
  #held = 0
  #failed: number | undefined
  #halvings = HALVINGS

  constructor(startRate: number, rateMax: number) {
    this.#rate = startRate
    this.#rateMax = rateMax
  }

  /** The highest rate that was held; 0: none was. */
  get held(): number {
    return this.#held
  }

  /** The rate to try next; undefined: the search is over. */
  get next(): number | undefined {
    if (this.#failed === undefined) return this.#rate <= this.#rateMax ? this.#rate : undefined
    if (this.#held === 0) return this.#rate >= RATE_MIN ? this.#rate : undefined
    return this.#halvings > 0 ? this.#rate : undefined
  }

  /** What became of `next`. */
  tried(isHeld: boolean): void {
    const isHalving = this.#failed !== undefined && this.#held > 0
    if (isHalving) this.#halvings--
    if (isHeld) this.#held = this.#rate
    else this.#failed = this.#rate
    if (this.#failed === undefined) this.#rate *= STEP
    else if (this.#held === 0) this.#rate /= 2
    else this.#rate = (this.#held + this.#failed) / 2
  }
}
