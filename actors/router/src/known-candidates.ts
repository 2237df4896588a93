/** What is known of the candidates for a request, and what selection is asked about them. */

import type { CandidateLoads, RoutingRequest } from '@homing/placement'
import type { Candidates, CandidateWorker, SelectionRequest } from '@homing/selection'
import type { Eligible } from './eligible.ts'
import type { Candidate, Overlaps } from './overlap-lookup.ts'

/** The candidates with all that is known of them; element i of each list belongs to candidate i. */
export interface Known extends Eligible {
  readonly workerSlots: Int32Array
  readonly overlaps: Overlaps
  readonly load: CandidateLoads
}

/** What selection is asked about: all that is known of the candidates. `heldBlocks`: see OverlapLookup. */
export function inputOf(
  { candidates, preferences, workerSlots, overlaps, load }: Known,
  heldBlocks: (candidate: Candidate) => number,
): Candidates {
  return {
    count: candidates.length,
    workerSlots,
    overlapBlocks: overlaps.blocks,
    creditFactors: overlaps.creditFactors,
    lowerTierBlocks: overlaps.lowerTierBlocks,
    heldBlocksOf: i => heldBlocks(candidates[i]!),
    preferences,
    nameOf: i => nameOf(candidates[i]!),
    ...load,
    ...(load.engines === undefined ? {} : limitsOf(candidates)),
  }
}

/** Of each candidate: KV tokens, 0 where they are not known, and tokens of a step. */
function limitsOf(candidates: readonly Candidate[]): Pick<Candidates, 'kvCapacityTokens' | 'stepTokens'> {
  const kvCapacityTokens = new Float64Array(candidates.length)
  const stepTokens = new Float64Array(candidates.length)
  for (const [i, { worker }] of candidates.entries()) {
    const { kvBlocks, blockSizeTokens, maxBatchedTokens } = worker
    kvCapacityTokens[i] = (kvBlocks?.value ?? 0) * (blockSizeTokens?.value ?? 0)
    stepTokens[i] = maxBatchedTokens.value
  }
  return { kvCapacityTokens, stepTokens }
}

export function nameOf({ worker, key }: Candidate): CandidateWorker {
  return { worker: key.key, instanceId: worker.instanceId, dpRank: key.dpRank, taints: worker.taints }
}

export function selectionRequestOf({
  model,
  promptTokens,
  blockSizeTokens,
  override,
  unknownPromptReason,
}: RoutingRequest): SelectionRequest {
  return {
    model,
    promptTokens: Math.max(1, promptTokens),
    blockSizeTokens,
    override,
    isPromptKnown: unknownPromptReason === undefined,
  }
}
