/**
 * Prompt slices: how a long prompt is divided that is sent in slices.
 *
 *   prompt   | cached there | new tokens of slice 1 | slice 2 | … | the rest |
 *                           0                       1         2   ▲
 *            slice k is the prompt up to the end of its tokens ───┘ and the request itself computes the rest
 *
 * The engine finds the blocks of earlier slices in its cache, so it computes each token once. Ends are at
 * block boundaries: the tokens of a partial block would be computed twice.
 *
 * A new token also attends to all tokens before it, so the last slice, of one step, takes the longest. No
 * slice has fewer tokens, and those before it have as many as take LONGEST_SHARE of its time: each slice
 * costs the way between router and engine, and what came meanwhile shares fewer steps.
 *
 *   time of n tokens behind c, in times of a token   n + r·n·(c + n/2)       r: attention of a pair of tokens
 */

import { figureOf } from '@homing/load'
import { sliceTokens } from '@homing/queue'
import type { Placed } from './place.ts'
import type { FirstSlice, RoutingRequest, SlicePace } from './routing-request.ts'

const LONGEST_SHARE = 1
/** What is learned of attention may be wrong. */
const SLICE_STEPS_MAX = 3
/** Attention to 1,000 tokens before it costs at most as much as the rest of a token. */
const PAIR_RATIO_MAX = 1 / 1000

/** Undefined: what the winner has to compute of the prompt is a step or less, so it is sent whole. */
export function firstSlice(placed: Placed): FirstSlice | undefined {
  const { request, winner, overlapBlocks } = placed
  const pace = {
    stepTokens: sliceTokens(winner.worker.maxBatchedTokens.value),
    pairRatio: pairRatioOf(placed),
  }
  const endTokens = sliceEnd(request, overlapBlocks * request.blockSizeTokens, pace)
  return endTokens === undefined ? undefined : { ...pace, endTokens }
}

/**
 * Where the slice ends that begins after `computedTokens`; undefined: it would have the whole prompt, or not
 * a block more than before.
 */
export function sliceEnd(
  { promptTokens, blockSizeTokens }: Pick<RoutingRequest, 'promptTokens' | 'blockSizeTokens'>,
  computedTokens: number,
  pace: SlicePace,
): number | undefined {
  const newTokens = tokensAt(computedTokens, promptTokens, pace)
  const endTokens = Math.floor((computedTokens + newTokens) / blockSizeTokens) * blockSizeTokens
  return endTokens > computedTokens && endTokens < promptTokens ? endTokens : undefined
}

/** New tokens of a slice behind `computedTokens`: `stepTokens` … SLICE_STEPS_MAX · `stepTokens`. */
function tokensAt(
  computedTokens: number,
  promptTokens: number,
  { stepTokens, pairRatio }: SlicePace,
): number {
  const longest = stepTokens * (1 + pairRatio * Math.max(0, promptTokens - stepTokens / 2))
  const time = LONGEST_SHARE * longest
  const first = 1 + pairRatio * computedTokens
  // The positive root of pairRatio/2 · n² + first · n − time.
  const tokens = (2 * time) / (first + Math.sqrt(first * first + 2 * pairRatio * time))
  return Math.max(stepTokens, Math.min(SLICE_STEPS_MAX * stepTokens, tokens))
}

/** Of the winner's prefill, what a pair of tokens adds ÷ what a token adds; 0: not known. */
function pairRatioOf({ input, choice }: Placed): number {
  if (input.engines === undefined) return 0
  const tokenMs = figureOf(input.engines, choice.winner, 'prefillTokenMs')
  const pairMs = figureOf(input.engines, choice.winner, 'prefillPairMs')
  return tokenMs > 0 && pairMs > 0 ? Math.min(PAIR_RATIO_MAX, pairMs / tokenMs) : 0
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
