/** Age of what was learned: how much of it still counts, if nothing has confirmed it for long. */

import { AUTO_CONSTANTS } from './auto-constants.ts'

const { AGE_FREE_MS } = AUTO_CONSTANTS.steps

/**
 * The share, 0 … 1, of what was last confirmed `ageMs` ago: 1 up to AGE_FREE_MS, then halved in each
 * `halfMs`.
 */
export function shareAfter(ageMs: number, halfMs: number): number {
  return ageMs > AGE_FREE_MS ? 0.5 ** ((ageMs - AGE_FREE_MS) / halfMs) : 1
}
