/**
 * Slices: how long they are, and when a worker has room for one.
 *
 *   a step of the engine   | a slice: SLICE_SHARE               | others |
 *
 * The slice leaves a part of the step to requests of others: one that shares its step does not make it two,
 * and some have room behind it. A worker has room for a slice beside them, but not beside another slice.
 */

import type { RoomRule } from './room-rules.ts'

const SLICE_SHARE = 7 / 8

/** Tokens of a slice for an engine with steps of `stepTokens`. */
export function sliceTokens(stepTokens: number): number {
  return Math.max(1, Math.floor(SLICE_SHARE * stepTokens))
}

/**
 * They came while the slice before was computed, so they are in the step that runs when the next one comes.
 */
const OTHERS_SHARE = 1 / 2

export const SLICE_RULES: readonly RoomRule[] = [
  { uncachedTokensMin: 0, byStep: false, busyFraction: OTHERS_SHARE },
]
