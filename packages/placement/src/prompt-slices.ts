/**
 * Prompt slices: how a long prompt is divided that is sent in slices.
 *
 *   prompt   | cached there | a step of new tokens | a step | … | the rest |
 *                           0                      1        2   ▲
 *            slice k is the prompt up to the end of step k ─────┘ and the request itself computes the rest
 *
 * The engine finds the blocks of earlier slices in its cache, so it computes each token once. Ends are at
 * block boundaries: the tokens of a partial block would be computed twice.
 */

import { sliceTokens } from '@homing/queue'
import type { Placed } from './place.ts'
import type { FirstSlice, RoutingRequest } from './routing-request.ts'

/** Undefined: what the winner has to compute of the prompt is a step or less, so it is sent whole. */
export function firstSlice({ request, winner, overlapBlocks }: Placed): FirstSlice | undefined {
  const stepTokens = sliceTokens(winner.worker.maxBatchedTokens.value)
  const endTokens = sliceEnd(request, overlapBlocks * request.blockSizeTokens, stepTokens)
  return endTokens === undefined ? undefined : { endTokens, stepTokens }
}

/**
 * Where the slice ends that computes up to `stepTokens` after `computedTokens`; undefined: it would have the
 * whole prompt, or not a block more than before.
 */
export function sliceEnd(
  { promptTokens, blockSizeTokens }: Pick<RoutingRequest, 'promptTokens' | 'blockSizeTokens'>,
  computedTokens: number,
  stepTokens: number,
): number | undefined {
  const endTokens = Math.floor((computedTokens + stepTokens) / blockSizeTokens) * blockSizeTokens
  return endTokens > computedTokens && endTokens < promptTokens ? endTokens : undefined
}

/** The request as a slice that ends at `endTokens`, a block boundary of the prompt. */
export function cutPrompt(request: RoutingRequest, endTokens: number): RoutingRequest {
  const words = (2 * endTokens) / request.blockSizeTokens
  return {
    ...request,
    promptTokens: endTokens,
    localHashes: request.localHashes.slice(0, words),
    sequenceHashes: request.sequenceHashes.slice(0, words),
    isStream: true,
    expectedOutputTokens: 1,
    outputTokensMax: 1,
    choicesCount: 1,
  }
}

/**
 * Tokens that the winner computes of what is sent to it now: `sent` is the placed request, or a slice of it.
 * What slices before it computed is there, although its KV events may not have come yet.
 */
export function prefillTokensOf({ request, prefillTokens }: Placed, sent: RoutingRequest): number {
  const { promptTokens, slice } = sent
  const newTokens = prefillTokens - (request.promptTokens - promptTokens)
  return Math.max(1, Math.min(newTokens, promptTokens - (slice?.computedTokens ?? 0)))
}
