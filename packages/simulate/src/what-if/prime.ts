/**
 * Prime: fills the caches of a simulation with what was in them before its first request.
 *
 * A log of some minutes begins with warm caches. If a request found blocks in the cache of its worker that no
 * earlier prompt or answer of the log put there, they were there before. An extra request, ahead of all
 * others, puts them there. Extra requests have no answer and count in no figure.
 */

import type { DecisionLog, LoggedRequest } from '@homing/trace'

/**
 * Between two of them, and for each of their tokens: slow enough that no queue is left when the first real
 * one comes.
 */
const GAP_MS = 50
const MS_PER_TOKEN = 0.25

export interface PrimedLog {
  readonly log: DecisionLog
  /** How many of its requests, the first ones, fill the caches. */
  readonly primes: number
}

export function primed(log: DecisionLog): PrimedLog {
  const caches = new Map<string, WarmCache>()
  const primes: LoggedRequest[] = []
  let lengthMs = 0
  for (const request of log.requests) {
    const { worker, blockTokens, hashIds } = request
    if (worker === undefined) continue
    const cache = caches.get(worker) ?? new WarmCache()
    caches.set(worker, cache)
    const found = Math.floor((request.cachedTokens ?? request.predictedTokens) / blockTokens)
    const whole = Math.floor(request.inputTokens / blockTokens)
    const warm = cache.take(hashIds, Math.min(found, whole), whole)
    if (warm === 0) continue
    const inputTokens = warm * blockTokens
    lengthMs += GAP_MS + MS_PER_TOKEN * inputTokens
    const ids = Array.from({ length: warm }, (_, block) => hashIds[block]!)
    primes.push({ ...request, ...NO_ANSWER, timestampMs: lengthMs, inputTokens, hashIds: ids })
  }
  lengthMs += GAP_MS
  const requests = log.requests.map(request => ({ ...request, timestampMs: request.timestampMs + lengthMs }))
  return { log: { ...log, requests: [...primes, ...requests] }, primes: primes.length }
}

/** How a block came into a cache, as far as a log can tell. */
type Origin = 'before' | 'computed' | 'end of a prompt'

/** The known content of one worker's cache. */
class WarmCache {
  readonly #origins = new Map<number, Origin>()

  /**
   * A prompt of `whole` blocks, of which `found` were cached. Returns how many were cached before the log, if
   * that was not known yet; else 0.
   */
  take(hashIds: ArrayLike<number>, found: number, whole: number): number {
    let known = 0
    while (known < found && this.#origins.has(hashIds[known]!)) known++
    // Behind a block that was computed, or a whole prompt, comes an answer: its blocks are cached, too.
    const before = known === 0 ? 'before' : this.#origins.get(hashIds[known - 1]!)!
    const warm = known < found && before === 'before' ? found : 0
    for (let block = known; block < whole; block++) {
      const isWarm = block < found && warm > 0
      this.#origins.set(hashIds[block]!, isWarm ? 'before' : 'computed')
    }
    if (whole > 0) this.#origins.set(hashIds[whole - 1]!, 'end of a prompt')
    return warm
  }
}

const NO_ANSWER = {
  outputTokens: 1,
  predictedTokens: 0,
  cachedTokens: undefined,
  routerMs: 0,
  firstTokenMs: undefined,
  totalMs: 0,
  outcome: 'aborted',
  attempts: 1,
  wasTaken: true,
} as const
