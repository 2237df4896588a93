/**
 * Slices: how long they are, and when a worker has room for one.
 *
 *   a step of the engine   | a slice: SLICE_SHARE               | others |
 *
 * The slice leaves a part of the step to requests of others, so that one that shares its step does not make it
 * two. For the same reason, a worker has room for a slice while it has no more prefill than that part.
 */

import type { RoomRule } from './room-rules.ts'

const SLICE_SHARE = 7 / 8

/** Tokens of a slice for an engine whose step has so many. */
export function sliceTokens(stepTokens: number): number {
  return Math.max(1, Math.floor(SLICE_SHARE * stepTokens))
}

export const SLICE_RULES: readonly RoomRule[] = [
  { uncachedTokensMin: 0, byStep: false, busyFraction: 1 - SLICE_SHARE },
]
