/** Stops a service that listens: first its open requests, then its actors and threads. */

import type { ActorSystem } from '@homing/actor'

export interface StopReport {
  /** Requests that were open when the grace was over. */
  readonly cutRequests: number
  /** Actors that did not stop in their time. */
  readonly slowActors: readonly string[]
}

/** Beyond the grace of open requests: how long actors and threads may take to end. */
export const STOP_MS_MAX = 10_000

/**
 * Idempotent: only the first call stops the service, after `graceMsDefault` unless it names another time.
 * `drain` answers how many requests it had to cut, and rejects when nothing is left to drain.
 */
export function serviceStop(
  system: ActorSystem,
  graceMsDefault: number,
  drain: (graceMs: number) => Promise<number>,
): (graceMs?: number) => Promise<StopReport> {
  let stopping: Promise<StopReport> | undefined
  const stop = async (graceMs: number): Promise<StopReport> => {
    const cutRequests = await drain(graceMs).catch(() => 0)
    const { slow } = await system.shutdown({ deadline: STOP_MS_MAX })
    return { cutRequests, slowActors: slow }
  }
  return (graceMs = graceMsDefault) => {
    stopping ??= stop(graceMs)
    return stopping
  }
}
