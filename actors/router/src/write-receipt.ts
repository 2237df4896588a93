/** The receipt of a choice, and the decision that goes to the gateway. */

import type { Clock } from '@homing/base'
import type { Decision, GuardReceipt, Receipt, RoutingRequest } from '@homing/placement'
import { type Candidates, type Choice, costTerms, describeCost, type RouterMode } from '@homing/selection'
import { type Known, selectionRequestOf } from './known-candidates.ts'
import type { Candidate } from './overlap-lookup.ts'

/** Every term of every candidate's cost. `startedMs`: by `clock`, when the choice began. */
export function writeReceipt(
  clock: Clock,
  id: string,
  request: RoutingRequest,
  mode: RouterMode,
  { candidates, excluded, overlaps: { guessedBlocks, layers } }: Known,
  choice: Choice,
  input: Candidates,
  guard: GuardReceipt | undefined,
  startedMs: number,
): Receipt {
  const selectionRequest = selectionRequestOf(request)
  const winner = candidates[choice.winner]!
  return {
    id,
    requestId: request.requestId,
    atMs: clock.wallMs(),
    mode,
    cost: describeCost(choice),
    model: request.model,
    promptTokens: request.promptTokens,
    blockSizeTokens: request.blockSizeTokens,
    promptBlocks: Math.ceil(request.promptTokens / request.blockSizeTokens),
    unknownPromptReason: request.unknownPromptReason,
    textBlocksReason: request.textBlocksReason,
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
    decisionMs: clock.nowMs() - startedMs,
    delivery: undefined,
  }
}

/** What a receipt does not say of the choice. */
export interface DecisionFigures {
  /** The guessed part of the winner's overlap. */
  readonly guessedBlocks: number
  /** The largest overlap of a candidate. */
  readonly bestOverlapBlocks: number
  readonly lookupMs: number
}

/** Where to send it. */
export function decisionOf(
  receipt: Receipt,
  { worker, key }: Candidate,
  { guessedBlocks, bestOverlapBlocks, lookupMs }: DecisionFigures,
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
    predictedTokens: receipt.overlapBlocks * receipt.blockSizeTokens,
    guessedTokens: guessedBlocks * receipt.blockSizeTokens,
    trust: receipt.trust,
    epoch: key.epoch,
  }
}
