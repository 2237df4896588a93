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
  // Those before it at a worker that only computes prompts are gone when its turn comes.
  if (!isDecoded) return ownMs + computedMs * queuePrice(candidates.count, engines)
  const { outputTokensExpected } = engines
  const addedMs = addedStepMs(worker, prompt, engines)
  const stepMs = decodeStepMsNow(worker)
  const answerMs = outputTokensExpected * stepMs
  // A step reads the weights once, for prefill and decoding; its tokens are computed all the same.
  const sharedMs = worker.decodeStepMs * stepsOf(tokens, worker.stepTokens)
  const delayMs = Math.max(computedMs - sharedMs, worker.prefillTokenMs * tokens)
  // One more comes in the time of an answer; if in the time of its prefill, it waits for half of it.
  const comingMs = answerMs > 0 ? (computedMs * computedMs) / 2 / answerMs : 0
  const ofSteps = worker.decodeStepMs > 0 ? stepMs / worker.decodeStepMs : 1
  const ofRoom = answerMs > 0 ? 1 + roomMs(worker, prompt, engines) / answerMs : 1
  return (
    ownMs +
    computedMs * queuePrice(candidates.count, engines) +
    answerMs +
    outputTokensExpected * addedMs +
    comingMs +
    worker.requests * (delayMs * ofSteps * ofRoom + (outputTokensExpected / 2) * addedMs)
  )
}

/**
 * Ms that those wait who come after it, for each that it computes: as many times as prompts are there for
 * each worker. In a queue that is what those ahead of it leave for those behind it. Of these workers and now,
 * for others may be in another state.
 */
function queuePrice(count: number, engines: EngineProjection): number {
  if (!(engines.prefillMeanMs > 0)) return 0
  let backlogMs = 0
  for (let i = 0; i < count; i++) backlogMs += figureOf(engines, i, 'backlogMs')
  return backlogMs / engines.prefillMeanMs / count
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
