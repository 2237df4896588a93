/**
 * Potential loads: what each worker key that may take a request would have to do with it, for programs that
 * choose by a rule of their own.
 *
 *   potential prefill tokens = active prefill tokens + tokens of this prompt that it would compute
 *   potential decode blocks  = active blocks + blocks of this prompt that would become active
 *
 * Both are what the tracker would count if the request were booked there.
 */

import type { Trust } from '@homing/index'
import type { Candidate } from './candidate.ts'
import type { CandidateLoads } from './candidate-loads.ts'
import type { Overlaps } from './overlaps.ts'
import { tokensToCompute } from './place.ts'
import type { RoutingRequest } from './routing-request.ts'

export interface PotentialKeyLoad {
  /** Worker key. */
  readonly worker: string
  /** Id by which requests name the worker. */
  readonly instanceId: number
  readonly dpRank: number
  /** Base URL of the worker. */
  readonly origin: string
  readonly trust: Trust
  /** Leading blocks of the prompt that it holds, in all layers. */
  readonly overlapBlocks: number
  /** Blocks that it holds with an expert that the request asks for. */
  readonly moeScore: number
  /** The part of `overlapBlocks` that it reaches in pooled memory alone. */
  readonly cxlAccessibleScore: number
  /** Tokens, with those of this prompt. */
  readonly potentialPrefillTokens: number
  /** Blocks, with those of this prompt. */
  readonly potentialDecodeBlocks: number
  /** Without this one. */
  readonly activeRequests: number
}

/** Element i of overlaps and load belongs to candidate i. */
export function potentialLoads(
  request: RoutingRequest,
  candidates: readonly Candidate[],
  overlaps: Overlaps,
  load: CandidateLoads,
): readonly PotentialKeyLoad[] {
  return candidates.map(({ worker, key }, i) => {
    const overlapBlocks = overlaps.blocks[i]!
    const newTokens = tokensToCompute(request, overlapBlocks, overlaps.creditFactors[i]!)
    return {
      worker: key.key,
      instanceId: worker.instanceId,
      dpRank: key.dpRank,
      origin: worker.origin,
      trust: key.trust,
      overlapBlocks,
      moeScore: overlaps.labels?.moe[i] ?? 0,
      cxlAccessibleScore: overlaps.labels?.pooled[i] ?? 0,
      potentialPrefillTokens: load.activePrefillTokens[i]! + newTokens,
      potentialDecodeBlocks: load.activeBlocks[i]! + load.newBlocks[i]!,
      activeRequests: load.activeRequests[i]!,
    }
  })
}
