/** Known candidates: all that is known of the candidates for a request, and the input of selection. */

import { type EngineProjection, filterProjection } from '@homing/load'
import type { Candidates, CandidateWorker, SelectionRequest } from '@homing/selection'
import type { Candidate } from './candidate.ts'
import type { CandidateLoads } from './candidate-loads.ts'
import type { Eligible } from './eligible.ts'
import { keptOverlaps, type Overlaps } from './overlaps.ts'
import type { RoutingRequest } from './routing-request.ts'

/** The candidates and all that is known of them; element i of each list belongs to candidate i. */
export interface Known extends Eligible {
  readonly workerSlots: Int32Array
  readonly overlaps: Overlaps
  readonly load: CandidateLoads
}

/** Leaves out the candidates that have a reason against them; undefined: none is left. */
export function without(known: Known, reasonAgainst: (i: number) => string | undefined): Known | undefined {
  const reasons = known.candidates.map((_, i) => reasonAgainst(i))
  const isKept = reasons.map(reason => reason === undefined)
  if (!isKept.includes(false)) return known
  if (!isKept.includes(true)) return undefined
  const only = (_: unknown, i: number): boolean => isKept[i] === true
  const leftOut = known.candidates.flatMap(({ key }, i) => {
    const reason = reasons[i]
    return reason === undefined ? [] : [{ worker: key.key, reason }]
  })
  const { load, preferences, workerSlots, overlaps } = known
  return {
    candidates: known.candidates.filter(only),
    excluded: [...known.excluded, ...leftOut],
    preferences: preferences?.filter(only),
    workerSlots: workerSlots.filter(only),
    overlaps: keptOverlaps(overlaps, isKept),
    load: {
      activeBlocks: kept(load.activeBlocks, isKept),
      outputBlocks: load.outputBlocks && kept(load.outputBlocks, isKept),
      newBlocks: kept(load.newBlocks, isKept),
      soughtBlocks: load.soughtBlocks,
      activePrefillTokens: kept(load.activePrefillTokens, isKept),
      activeRequests: kept(load.activeRequests, isKept),
      engines: load.engines === undefined ? undefined : filterProjection(load.engines, isKept),
      reportedShares: load.reportedShares?.filter(only),
      falls: load.falls,
    },
  }
}

/** The kept part of figures; the array may be longer than the list of candidates. */
function kept(figures: Int32Array | Float64Array, isKept: readonly boolean[]): Int32Array | Float64Array {
  const only = (_: unknown, i: number): boolean => isKept[i] === true
  return figures instanceof Int32Array ? figures.filter(only) : figures.filter(only)
}

/**
 * What reaching all of the prompt in pooled memory takes off the cost of a decode worker. The blocks are
 * handed over whichever worker it is, and a read takes about as long: enough to break ties, and no more.
 */
const POOLED_DECODE_SHARE = 0.1

/** The input of selection: all that is known of the candidates. `heldBlocks`: see OverlapLookup. */
export function inputOf(
  known: Known,
  request: Pick<RoutingRequest, 'leg' | 'promptTokens' | 'blockSizeTokens'>,
  heldBlocks: ((candidate: Candidate) => number) | undefined,
): Candidates {
  const { candidates, workerSlots, overlaps, load } = known
  const isHandedOver = request.leg?.kind === 'decode'
  return {
    count: candidates.length,
    workerSlots,
    overlapBlocks: overlaps.blocks,
    creditFactors: overlaps.creditFactors,
    lowerTierBlocks: overlaps.lowerTierBlocks,
    bonusBlocks: overlaps.bonusBlocks,
    readBlocks: isHandedOver ? undefined : overlaps.readBlocks,
    heldBlocksOf: heldBlocks && (i => heldBlocks(candidates[i]!)),
    preferences: isHandedOver ? decodePreferences(known, request) : known.preferences,
    nameOf: i => nameOf(candidates[i]!),
    ...load,
    ...(load.engines === undefined
      ? {}
      : { ...limitsOf(candidates), engines: enginesFor(load.engines, request) }),
  }
}

/** Those of the request, with one for workers that reach the prompt in pooled memory. */
function decodePreferences(
  { candidates, preferences, overlaps: { readBlocks } }: Known,
  { promptTokens, blockSizeTokens }: Pick<RoutingRequest, 'promptTokens' | 'blockSizeTokens'>,
): Float64Array | undefined {
  if (readBlocks === undefined) return preferences
  const promptBlocks = Math.max(1, Math.floor(promptTokens / blockSizeTokens))
  return Float64Array.from(candidates, (_, i) => {
    const share = Math.min(1, readBlocks[i]! / promptBlocks)
    return (preferences?.[i] ?? 1) * (1 - POOLED_DECODE_SHARE * share)
  })
}

/** A prefill leg makes one token: how long answers are where it goes tells nothing of it. */
function enginesFor(engines: EngineProjection, { leg }: Pick<RoutingRequest, 'leg'>): EngineProjection {
  return leg?.kind === 'prefill' ? { ...engines, outputTokensExpected: 1 } : engines
}

/** Per candidate: KV capacity in tokens (0: not known), and tokens of a step. */
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
  leg,
}: RoutingRequest): SelectionRequest {
  return {
    model,
    promptTokens: Math.max(1, promptTokens),
    blockSizeTokens,
    override,
    isPromptKnown: unknownPromptReason === undefined,
    isComputed: leg?.kind === 'decode',
  }
}
