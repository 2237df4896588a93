/**
 * Prime: fills the caches of a simulation with what was in them before its first request.
 *
 * A log of some minutes begins with warm caches. What a request found in the cache of its worker, and no request before it has put
 * there, was there before: a request of its own, ahead of all others, puts it there. These requests have no answer, and count nowhere.
 */

import type { DecisionLog, LoggedRequest } from '@homing/trace'

/** Between two of them, and for each of their tokens: slow enough that no queue is left when the first real one comes. */
const GAP_MS = 50
const MS_PER_TOKEN = 0.25

export interface PrimedLog {
  readonly log: DecisionLog
  /** How many of its requests, the first ones, fill the caches. */
  readonly primes: number
}

export function primed(log: DecisionLog): PrimedLog {
  const heldBy = new Map<string, Set<number>>()
  const primes: LoggedRequest[] = []
  let lengthMs = 0
  for (const request of log.requests) {
    const { worker, blockTokens, hashIds } = request
    if (worker === undefined) continue
    const held = heldBy.get(worker) ?? new Set()
    heldBy.set(worker, held)
    const found = Math.min(
      hashIds.length,
      Math.floor((request.cachedTokens ?? request.predictedTokens) / blockTokens),
    )
    if (found > 0 && !held.has(hashIds[found - 1]!)) {
      const inputTokens = found * blockTokens
      lengthMs += GAP_MS + MS_PER_TOKEN * inputTokens
      const ids = Array.from({ length: found }, (_, block) => hashIds[block]!)
      primes.push({ ...request, ...NO_ANSWER, timestampMs: lengthMs, inputTokens, hashIds: ids })
      for (const id of ids) held.add(id)
    }
    for (let block = 0; block < hashIds.length; block++) held.add(hashIds[block]!)
  }
  lengthMs += GAP_MS
  const requests = log.requests.map(request => ({ ...request, timestampMs: request.timestampMs + lengthMs }))
  return { log: { ...log, requests: [...primes, ...requests] }, primes: primes.length }
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
