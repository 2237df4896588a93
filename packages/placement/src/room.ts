/**
 * Room: whether a request must wait instead of being placed, by what is known of the eligible workers.
 */

import { figureOf } from '@homing/load'
import { mustWait, type RoomRule } from '@homing/queue'
import type { Known } from './known-candidates.ts'
import type { Overlaps } from './overlaps.ts'
import type { RoutingRequest } from './routing-request.ts'

/** Tokens of the prompt that the best candidate holds. */
export function bestCachedTokens(
  { promptTokens, blockSizeTokens }: Pick<RoutingRequest, 'promptTokens' | 'blockSizeTokens'>,
  { blocks, creditFactors }: Pick<Overlaps, 'blocks' | 'creditFactors'>,
  count: number,
): number {
  let best = 0
  for (let i = 0; i < count; i++) {
    const credited = Math.floor(blocks[i]! * creditFactors[i]! * blockSizeTokens)
    if (credited > best) best = credited
  }
  return Math.min(promptTokens, best)
}

/** Whether all candidates are past the room rule for the request's uncached tokens. */
export function isBusy(
  rules: readonly RoomRule[],
  { candidates, load }: Known,
  uncachedTokens: number,
): boolean {
  return mustWait(rules, uncachedTokens, candidates.length, i => ({
    activePrefillTokens: load.activePrefillTokens[i]!,
    queuedTokens: load.engines && figureOf(load.engines, i, 'queuedTokens'),
    batchedTokensMax: candidates[i]!.worker.maxBatchedTokens.value,
  }))
}
