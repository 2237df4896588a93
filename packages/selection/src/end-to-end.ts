/**
 * End to end: what a placement costs all requests together, in milliseconds from request to last token.
 *
 *   cost = wait + prefill + later + decode + others
 *
 * The policy `auto` compares workers that all would compute the same prompt, where a millisecond of decoding
 * counts for less than one of waiting. Whether a prompt is computed at the worker that answers, or elsewhere,
 * is another question: what it takes from those that decode there is all that speaks against it. So here a
 * millisecond costs a millisecond, and a delay of a decode step is counted with what it leads to:
 *
 *   step now ÷ step of none   requests that stay longer make each other's steps longer
 *   1 + room ÷ answer         where the KV cache has no room, those that wait for room are delayed as well
 *
 * And it delays those that come meanwhile, as many as came of late.
 *
 * docs/decisions/0047-when-legs-pay.md says why.
 */

import { type EngineProjection, figureOf, figuresOf, STEP_TOKENS_DEFAULT } from '@homing/load'
import type { Choice } from './choice.ts'
import {
  type AutoPrompt,
  type AutoWorker,
  addedStepMs,
  decodeStepMsNow,
  newTokens,
  prefillMs,
  roomMs,
  stepsOf,
  waitMs,
} from './policies/auto-terms.ts'
import type { Candidates, SelectionRequest } from './types.ts'

/**
 * The winner's cost in ms, ≥ 0. `isDecoded`: the answer is made there, not only its first token. Undefined:
 * nothing is known of the engines, as under another policy than `auto`.
 */
export function endToEndMs(
  candidates: Candidates,
  request: SelectionRequest,
  choice: Choice,
  isDecoded: boolean,
): number | undefined {
  const { engines } = candidates
  if (engines === undefined) return undefined
  const worker = autoWorkerOf(candidates, engines, choice, choice.winner)
  const { promptTokens, blockSizeTokens } = request
  const prompt: AutoPrompt = {
    promptTokens,
    blockSizeTokens,
    soughtBlocks: candidates.soughtBlocks ?? Math.floor(promptTokens / blockSizeTokens),
    overlapCredit: choice.overlapWeight === 0 ? 0 : Math.min(1, choice.overlapCredit),
    isUnshared: false,
  }
  const tokens = newTokens(worker, prompt, engines)
  const computedMs = prefillMs(worker, prompt, engines)
  const ownMs = waitMs(worker, prompt, engines) + computedMs
  const comingMs = computedMs * requestsComing(candidates.count, engines, computedMs)
  // Those before it at a worker that only computes prompts are gone when its turn comes.
  if (!isDecoded) return ownMs + comingMs
  const { outputTokensExpected } = engines
  const addedMs = addedStepMs(worker, prompt, engines)
  const stepMs = decodeStepMsNow(worker)
  const answerMs = outputTokensExpected * stepMs
  // A step reads the weights once, for prefill and decoding; its tokens are computed all the same.
  const sharedMs = worker.decodeStepMs * stepsOf(tokens, worker.stepTokens)
  const delayMs = Math.max(computedMs - sharedMs, worker.prefillTokenMs * tokens)
  const ofSteps = worker.decodeStepMs > 0 ? stepMs / worker.decodeStepMs : 1
  const ofRoom = answerMs > 0 ? 1 + roomMs(worker, prompt, engines) / answerMs : 1
  return (
    ownMs +
    answerMs +
    outputTokensExpected * addedMs +
    (worker.requests * delayMs * ofRoom + comingMs) * ofSteps +
    worker.requests * (outputTokensExpected / 2) * addedMs
  )
}

/**
 * Requests that come to a worker until what is there is computed, and half of what comes to it now. Others of
 * these workers take them meanwhile, so backlogs are a mean.
 */
function requestsComing(count: number, engines: EngineProjection, computedMs: number): number {
  let backlogMs = 0
  for (let i = 0; i < count; i++) backlogMs += figureOf(engines, i, 'backlogMs')
  return (engines.sentPerMs * (backlogMs + computedMs / 2)) / count
}

function autoWorkerOf(
  candidates: Candidates,
  engines: EngineProjection,
  { terms }: Choice,
  i: number,
): AutoWorker {
  return {
    ...figuresOf(engines, i),
    uncachedTokens: terms.newTokens[i]!,
    newBlocks: candidates.newBlocks[i]!,
    activeBlocks: candidates.activeBlocks[i]!,
    outputBlocks: candidates.outputBlocks?.[i] ?? 0,
    activeRequests: candidates.activeRequests[i]!,
    readBlocks: candidates.readBlocks?.[i] ?? 0,
    bonusBlocks: candidates.bonusBlocks?.[i] ?? 0,
    creditFactor: candidates.creditFactors[i]!,
    capacityTokens: candidates.kvCapacityTokens?.[i] ?? 0,
    heldBlocks: candidates.heldBlocksOf?.(i) ?? -1,
    stepTokens: candidates.stepTokens?.[i] ?? STEP_TOKENS_DEFAULT,
  }
}
