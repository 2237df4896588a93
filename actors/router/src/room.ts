/** Room: whether a request is to wait rather than be placed, by what is known of the workers that could take it. */

import { thresholdState } from '@homing/queue'
import type { Known } from './known-candidates.ts'
import type { RoomRule, RoutingRequest } from './messages.ts'
import type { Overlaps } from './overlap-lookup.ts'

/** Tokens of its prompt that the best of the candidates holds. */
export function bestCachedTokens(
  { promptTokens, blockSizeTokens }: RoutingRequest,
  { blocks, creditFactors }: Overlaps,
  count: number,
): number {
  let best = 0
  for (let i = 0; i < count; i++) {
    const credited = Math.floor(blocks[i]! * creditFactors[i]! * blockSizeTokens)
    if (credited > best) best = credited
  }
  return Math.min(promptTokens, best)
}

/** Whether all candidates are past the rule for a request with so many uncached tokens. */
export function isBusy(
  rules: readonly RoomRule[],
  { candidates, load }: Known,
  uncachedTokens: number,
): boolean {
  const rule = rules.findLast(({ uncachedTokensMin }) => uncachedTokens >= uncachedTokensMin)
  if (rule === undefined) return false
  const queued = rule.byStep ? load.engines?.queuedTokens : undefined
  if (queued !== undefined) {
    return candidates.every(({ worker }, i) => queued[i]! >= worker.maxBatchedTokens.value)
  }
  const workers = candidates.map(({ worker }, i) => ({
    activePrefillTokens: load.activePrefillTokens[i]!,
    batchedTokensMax: worker.maxBatchedTokens.value,
  }))
  return thresholdState(rule, workers) === 'past'
}
