/**
 * The prefill of every candidate: the part of the prompt that is credited as cached, and the part that is
 * left to compute.
 *
 *   overlap         = min(overlap, full blocks of the prompt)
 *   credited tokens = block size · (overlapCredit · decay · (overlap · creditFactor − lower) + lower + bonus)
 *   new tokens      = max(1, prompt tokens − credited tokens)
 *   prefill tokens  = queued prefill tokens + new tokens − excess
 *
 *   lower   the part of overlap · creditFactor that is not on the device
 *   bonus   what labels of blocks add; none for most requests. auto weighs it by itself, in milliseconds
 *   excess  credited tokens beyond the prompt, at most the queue: with a credit above 1, or with a bonus
 *   decay   1 / (1 + creditDecay · queue); queue = prefill queued beyond the least of all candidates, in
 *           prompts of this size
 *
 * The 1 is there because an engine always computes the last token; it is 0 for a prompt of 0 tokens.
 *
 * Source   the credit form of NVIDIA Dynamo's key-value router.
 */

import type { Candidates, ChoiceTerms, SelectionRequest } from './types.ts'

/**
 * `isComputed`: nothing of the prompt is left to compute. `bonusBlocks`: see Candidates; undefined: none
 * count. Both are arguments of their own, because a copy of `request` and `candidates` would cost more than
 * the loop does for a few workers.
 */
export function fillPrefill(
  candidates: Candidates,
  request: SelectionRequest,
  isComputed: boolean,
  bonusBlocks: Candidates['bonusBlocks'],
  overlapCredit: number,
  creditDecay: number,
  terms: ChoiceTerms,
): void {
  const { count, overlapBlocks, creditFactors, activePrefillTokens } = candidates
  const { promptTokens, blockSizeTokens } = request
  const promptBlocks = Math.floor(promptTokens / blockSizeTokens)
  const least = Math.min(1, promptTokens)
  const isPlain = isComputed || (overlapCredit === 1 && creditDecay === 0)
  let newTokensMin = promptTokens
  for (let i = 0; i < count; i++) {
    const overlap = Math.min(overlapBlocks[i]!, promptBlocks)
    const credited = isComputed ? promptTokens : overlap * creditFactors[i]! * blockSizeTokens
    const newTokens = Math.max(least, promptTokens - credited)
    terms.overlapBlocks[i] = overlap
    newTokensMin = Math.min(newTokensMin, newTokens)
    terms.newTokens[i] = newTokens
    terms.prefillTokens[i] = activePrefillTokens[i]! + newTokens
  }
  terms.newTokensMin = newTokensMin
  if (!isPlain) creditByDevice(candidates, request, bonusBlocks, overlapCredit, creditDecay, least, terms)
  else if (bonusBlocks !== undefined) addBonus(candidates, bonusBlocks, request, isComputed, least, terms)
}

/** A loop of its own: most requests have no bonus, and are not to pay for one. */
function addBonus(
  { count, creditFactors, activePrefillTokens }: Candidates,
  bonusBlocks: ArrayLike<number>,
  { promptTokens, blockSizeTokens }: SelectionRequest,
  isComputed: boolean,
  least: number,
  terms: ChoiceTerms,
): void {
  let newTokensMin = promptTokens
  for (let i = 0; i < count; i++) {
    const held = isComputed ? promptTokens : terms.overlapBlocks[i]! * creditFactors[i]! * blockSizeTokens
    const credited = held + bonusBlocks[i]! * blockSizeTokens
    const newTokens = Math.max(least, promptTokens - credited)
    const queued = activePrefillTokens[i]!
    const beyond = Math.min(queued, Math.max(0, credited - promptTokens))
    newTokensMin = Math.min(newTokensMin, newTokens)
    terms.newTokens[i] = newTokens
    terms.prefillTokens[i] = queued - beyond + newTokens
  }
  terms.newTokensMin = newTokensMin
}

function creditByDevice(
  { count, creditFactors, lowerTierBlocks, activePrefillTokens }: Candidates,
  { promptTokens, blockSizeTokens }: SelectionRequest,
  bonusBlocks: Candidates['bonusBlocks'],
  overlapCredit: number,
  creditDecay: number,
  least: number,
  terms: ChoiceTerms,
): void {
  let queuedMin = Number.POSITIVE_INFINITY
  for (let i = 0; i < count; i++) queuedMin = Math.min(queuedMin, activePrefillTokens[i]!)
  let newTokensMin = promptTokens
  const requestTokens = Math.max(1, Math.ceil(promptTokens / blockSizeTokens)) * blockSizeTokens
  for (let i = 0; i < count; i++) {
    const queued = activePrefillTokens[i]!
    const blocks = terms.overlapBlocks[i]! * creditFactors[i]!
    const lower = lowerTierBlocks === undefined ? 0 : Math.min(blocks, lowerTierBlocks[i]!)
    const decay = 1 / (1 + creditDecay * ((queued - queuedMin) / requestTokens))
    const held = blockSizeTokens * (overlapCredit * decay * (blocks - lower) + lower)
    const credited = bonusBlocks === undefined ? held : held + bonusBlocks[i]! * blockSizeTokens
    const newTokens = Math.max(least, promptTokens - credited)
    // The credit beyond the prompt is subtracted from the queue.
    const beyond = Math.min(queued, Math.max(0, credited - promptTokens))
    newTokensMin = Math.min(newTokensMin, newTokens)
    terms.newTokens[i] = newTokens
    terms.prefillTokens[i] = queued - beyond + newTokens
  }
  terms.newTokensMin = newTokensMin
}
