/** Durations in milliseconds, parsed once per spelling: an ask on a hot path writes `'50ms'`. */

import { type Duration, durationMs } from '@homing/base'

const CACHE_SIZE_MAX = 1024
const cache = new Map<Duration, number>()

/** Milliseconds of `duration`. Throws RangeError for anything that is not a duration ≥ 0. */
export function toMs(duration: Duration): number {
  const known = cache.get(duration)
  if (known !== undefined) return known
  const ms = durationMs(duration)
  if (cache.size < CACHE_SIZE_MAX) cache.set(duration, ms)
  return ms
}
