/** A wait with an end: what a diagnosis waits for may never come. */

import type { Clock } from '@homing/base'

/** The value of the promise; undefined after `timeoutMs`. */
export function until<T>(clock: Clock, promise: Promise<T>, timeoutMs: number): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>()
  const timer = clock.after(timeoutMs, () => resolve(undefined))
  return Promise.race([promise, late]).finally(() => timer.cancel())
}
