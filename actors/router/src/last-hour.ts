/**
 * Last hour: what routing has saved, minute by minute, in fixed memory.
 *
 * A ring of MINUTES minutes, each with sums and a histogram of first-token times whose bounds grow by a
 * quarter of a power of two (19 %): 60 minutes take 25 KB at any load. A minute is emptied when the ring
 * comes around to it again.
 *
 * Hits count only answers whose engine reports cached tokens; other answers count as requests.
 */

import { KNEES, shortOfKnee } from '@homing/load'
import { type Delivery, type GuardReceipt, reusedTokens } from '@homing/placement'
import { SHADOW_NAMES, type ShadowName } from '@homing/selection'

/** What routing has saved in the last hour, or since the router started. */
export interface HourReport {
  /** How long it looks back. */
  readonly spanMs: number
  /** The oldest first; the last one is still running. */
  readonly minutes: readonly {
    readonly requests: number
    readonly promptTokens: number
    readonly cachedTokens: number
  }[]
  /** Requests that were placed and have ended. */
  readonly requests: number
  /** Prompt tokens of answers whose engine reports cached tokens. */
  readonly promptTokens: number
  readonly cachedTokens: number
  /**
   * Charged tokens that caching has saved: element i as the i-th of KNEES charges them.
   */
  readonly sparedTokens: readonly number[]
  /** Pairs of tokens whose attention was not computed. */
  readonly cachedPairs: number
  /** Streams with a first token; the times from arrival to first token are exact to 9 %. */
  readonly firstTokens: number
  readonly firstTokenMs: { readonly p50: number; readonly p90: number; readonly p99: number } | undefined
  /**
   * Mean error of predicted first-token times, as a share of the actual time; undefined: no prediction.
   */
  readonly predictionError: number | undefined
  /** Decisions by `auto`, and the sums of their regrets. Below 0: the other rule would have cost more. */
  readonly guarded: number
  readonly regretMs: Readonly<Record<ShadowName, number>>
}

const MINUTES = 60
const MINUTE_MS = 60_000
/** Bound b is FIRST_BOUND_MS · 2^(b / 4); the last is 24 minutes. */
const BOUNDS = 97
const FIRST_BOUND_MS = 0.1

interface Minute {
  /** Minutes since the origin of the clock; -1: never used. */
  number: number
  requests: number
  promptTokens: number
  cachedTokens: number
  /** Charged tokens that caching has saved, as each of KNEES charges them. */
  readonly sparedTokens: Float64Array
  /** Half the squares of cached lengths: pairs of tokens whose attention was not computed. */
  cachedPairs: number
  guarded: number
  readonly regretMs: Record<ShadowName, number>
  compared: number
  seenMs: number
  missedByMs: number
  firstTokens: number
  readonly histogram: Uint32Array
}

export class LastHour {
  readonly #minutes: readonly Minute[] = Array.from({ length: MINUTES }, emptyMinute)
  readonly #startMs: number

  constructor(nowMs: number) {
    this.#startMs = nowMs
  }

  /** Counts a placed request that has ended. `guard`: from its receipt. */
  settled(delivery: Delivery, guard: GuardReceipt | undefined, nowMs: number): void {
    const minute = this.#at(nowMs)
    minute.requests++
    if (guard !== undefined) {
      minute.guarded++
      for (const name of SHADOW_NAMES) minute.regretMs[name] += guard.regretMs[name]
    }
    const { outcome, promptTokens, timeToFirstByteMs, streamEvents, waitedMs } = delivery
    if (outcome !== 'ok') return
    const cachedTokens = reusedTokens(delivery)
    if (promptTokens !== undefined && cachedTokens !== undefined) {
      minute.promptTokens += promptTokens
      minute.cachedTokens += cachedTokens
      minute.cachedPairs += cachedTokens ** 2 / 2
      const newTokens = Math.max(0, promptTokens - cachedTokens)
      for (const [at, knee] of KNEES.entries()) {
        const short = shortOfKnee(newTokens, Infinity, knee) - shortOfKnee(promptTokens, Infinity, knee)
        minute.sparedTokens[at]! += cachedTokens - short
      }
    }
    if (timeToFirstByteMs === undefined || streamEvents === undefined) return
    minute.firstTokens++
    minute.histogram[boundOf(waitedMs + timeToFirstByteMs)]!++
    if (guard === undefined) return
    minute.compared++
    minute.seenMs += timeToFirstByteMs
    minute.missedByMs += Math.abs(timeToFirstByteMs - guard.predictedFirstTokenMs)
  }

  report(nowMs: number): HourReport {
    const last = Math.floor(nowMs / MINUTE_MS)
    const minutes = Array.from({ length: MINUTES }, (_, at) => last - MINUTES + 1 + at).map(number => {
      const minute = this.#minutes[number % MINUTES]
      return minute?.number === number ? minute : undefined
    })
    const known = minutes.filter(minute => minute !== undefined)
    const sum = (of: (minute: Minute) => number): number =>
      known.reduce((total, minute) => total + of(minute), 0)
    const histogram = Array.from({ length: BOUNDS }, (_, bound) => sum(minute => minute.histogram[bound]!))
    const firstTokens = sum(minute => minute.firstTokens)
    const seenMs = sum(minute => minute.seenMs)
    return {
      spanMs: Math.min(MINUTES * MINUTE_MS, nowMs - this.#startMs),
      minutes: minutes.map(minute => ({
        requests: minute?.requests ?? 0,
        promptTokens: minute?.promptTokens ?? 0,
        cachedTokens: minute?.cachedTokens ?? 0,
      })),
      requests: sum(minute => minute.requests),
      promptTokens: sum(minute => minute.promptTokens),
      cachedTokens: sum(minute => minute.cachedTokens),
      sparedTokens: KNEES.map((_, at) => sum(minute => minute.sparedTokens[at]!)),
      cachedPairs: sum(minute => minute.cachedPairs),
      firstTokens,
      firstTokenMs:
        firstTokens === 0
          ? undefined
          : {
              p50: quantile(histogram, firstTokens, 0.5),
              p90: quantile(histogram, firstTokens, 0.9),
              p99: quantile(histogram, firstTokens, 0.99),
            },
      predictionError: seenMs > 0 ? sum(minute => minute.missedByMs) / seenMs : undefined,
      guarded: sum(minute => minute.guarded),
      regretMs: Object.fromEntries(
        SHADOW_NAMES.map(name => [name, sum(minute => minute.regretMs[name])]),
      ) as HourReport['regretMs'],
    }
  }

  #at(nowMs: number): Minute {
    const number = Math.floor(nowMs / MINUTE_MS)
    const minute = this.#minutes[number % MINUTES]!
    if (minute.number !== number) Object.assign(minute, emptyMinute(), { number })
    return minute
  }
}

function emptyMinute(): Minute {
  return {
    number: -1,
    requests: 0,
    promptTokens: 0,
    cachedTokens: 0,
    sparedTokens: new Float64Array(KNEES.length),
    cachedPairs: 0,
    guarded: 0,
    regretMs: Object.fromEntries(SHADOW_NAMES.map(name => [name, 0])) as Minute['regretMs'],
    compared: 0,
    seenMs: 0,
    missedByMs: 0,
    firstTokens: 0,
    histogram: new Uint32Array(BOUNDS),
  }
}

function boundOf(ms: number): number {
  if (ms <= FIRST_BOUND_MS) return 0
  return Math.min(BOUNDS - 1, Math.ceil(4 * Math.log2(ms / FIRST_BOUND_MS)))
}

/** The middle (on the scale of the bounds) of the bucket that holds the quantile: at most 9 % off. */
function quantile(histogram: readonly number[], total: number, share: number): number {
  let below = 0
  for (const [bound, times] of histogram.entries()) {
    below += times
    if (below >= share * total) return FIRST_BOUND_MS * 2 ** ((bound - 0.5) / 4)
  }
  return FIRST_BOUND_MS * 2 ** ((BOUNDS - 1) / 4)
}
