/** Write receipt: the receipt of a choice, and the decision that goes to the gateway. */

import { costTerms, describeCost } from '@homing/selection'
import type { Decision } from './decision.ts'
import { selectionRequestOf } from './known-candidates.ts'
import type { Placed, PlacedFigures } from './place.ts'
import type { LegReceipt, Receipt } from './receipt.ts'
import type { RequestLeg } from './routing-request.ts'

/**
 * Every term of every candidate's cost. Call it before the selector of the placement chooses again.
 * `elapsedMs`: how long the decision has taken; read after the terms are written.
 */
export function writeReceipt(
  { request, mode, known, choice, input, guard, winner }: Placed,
  id: string,
  atMs: number,
  elapsedMs: () => number,
): Receipt {
  const {
    candidates,
    excluded,
    overlaps: { guessedBlocks, layers, labels, bonusBlocks },
  } = known
  const selectionRequest = selectionRequestOf(request)
  const promptBlocks = Math.floor(request.promptTokens / request.blockSizeTokens)
  return {
    id,
    requestId: request.requestId,
    atMs,
    mode,
    cost: describeCost(choice),
    model: request.model,
    promptTokens: request.promptTokens,
    isEstimated: request.estimate !== undefined,
    blockSizeTokens: request.blockSizeTokens,
    promptBlocks: Math.ceil(request.promptTokens / request.blockSizeTokens),
    unknownPromptReason: request.unknownPromptReason,
    textBlocksReason: request.textBlocksReason,
    cacheUse: request.cacheUse,
    ignoredHints: request.ignoredHints,
    overlapWeight: choice.overlapWeight,
    temperature: choice.temperature,
    worker: winner.key.key,
    runnerUp: candidates[choice.runnerUp]?.key.key,
    trust:
      request.unknownPromptReason !== undefined
        ? 'none'
        : guessedBlocks[choice.winner]! > 0 || request.textBlocksReason !== undefined
          ? 'approximate'
          : winner.key.trust,
    overlapBlocks: choice.terms.overlapBlocks[choice.winner]!,
    candidates: candidates.map(({ key }, i) => {
      const terms = costTerms(choice, input, selectionRequest, i)
      return {
        worker: key.key,
        trust: key.trust,
        overlapBlocks: terms.overlapBlocks,
        creditFactor: terms.creditFactor,
        layers: layers[i]!,
        score: Math.min(promptBlocks, terms.overlapBlocks + (bonusBlocks?.[i] ?? 0)),
        moeScore: labels?.moe[i] ?? 0,
        cxlAccessibleScore: labels?.pooled[i] ?? 0,
        activePrefillTokens: input.activePrefillTokens[i]!,
        prefillTokens: terms.prefillTokens,
        prefillBlocks: terms.prefillBlocks,
        activeBlocks: input.activeBlocks[i]!,
        newBlocks: input.newBlocks[i]!,
        decodeBlocks: terms.decodeBlocks,
        activeRequests: input.activeRequests[i]!,
        preference: input.preferences?.[i] ?? 1,
        terms: terms.ofPolicy,
        cost: terms.cost,
        probability: terms.probability,
      }
    }),
    candidatesLeftOut: 0,
    excluded,
    excludedLeftOut: 0,
    guard,
    ...(request.legCosts === undefined ? {} : { legCosts: request.legCosts }),
    ...(request.continues === undefined ? {} : { continues: request.continues }),
    ...(request.hedges === undefined ? {} : { hedges: request.hedges.decisionId }),
    ...(request.leg === undefined ? {} : { leg: legReceipt(request.leg) }),
    decisionMs: elapsedMs(),
    delivery: undefined,
  }
}

function legReceipt(leg: RequestLeg): LegReceipt {
  return { kind: leg.kind, prefillId: leg.kind === 'decode' ? leg.prefillId : undefined }
}

/** The decision for the gateway: where to send the request. */
export function decisionOf(
  receipt: Receipt,
  { winner: { worker, key }, guessedBlocks, pooledBlocks, bestOverlapBlocks, prefillTokens }: PlacedFigures,
  lookupMs: number,
): Decision {
  return {
    id: receipt.id,
    workerId: worker.id,
    workerJoinedMs: worker.joinedMs,
    worker: key.key,
    workerSlot: key.workerSlot,
    origin: worker.origin,
    dpRank: key.dpRank,
    pinRank: worker.keys.length > 1,
    usesKey: worker.usesKey === true,
    takesUsageOption: worker.engine !== 'unknown',
    overlapBlocks: receipt.overlapBlocks,
    bestOverlapBlocks,
    lookupMs,
    decisionMs: receipt.decisionMs,
    blockSizeTokens: receipt.blockSizeTokens,
    prefillTokens,
    predictedTokens: receipt.overlapBlocks * receipt.blockSizeTokens,
    guessedTokens: guessedBlocks * receipt.blockSizeTokens,
    pooledTokens: pooledBlocks * receipt.blockSizeTokens,
    trust: receipt.trust,
    epoch: key.epoch,
    isUnaudited: receipt.cacheUse !== undefined,
  }
}
