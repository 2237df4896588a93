/**
 * The prefill of every candidate: what of the prompt is credited as cached there, and what is left to
 * compute.
 *
 *   overlap         = min(overlap, full blocks of the prompt)
 *   credited tokens = block size · (overlapCredit · decay · (overlap · creditFactor − lower) + lower)
 *   new tokens      = max(1, prompt tokens − credited tokens)
 *   prefill tokens  = queued prefill tokens + new tokens
 *
 *   lower   the part of overlap · creditFactor that is not on the device
 *   decay   1 / (1 + creditDecay · excess); excess = prefill queued beyond the least of all candidates, in
 *           prompts of this size
 *
 * An engine always computes the last token: hence the 1; it is 0 for a prompt of 0 tokens. A credit above 1
 * makes up for queued prefill, too, down to that.
 *
 * Source   the credit form of NVIDIA Dynamo's key-value router.
 */

import type { Candidates, ChoiceTerms, SelectionRequest } from './types.ts'

export function fillPrefill(
  candidates: Candidates,
  request: SelectionRequest,
  overlapCredit: number,
  creditDecay: number,
  terms: ChoiceTerms,
): void {
  const { count, overlapBlocks, creditFactors, activePrefillTokens } = candidates
  const { promptTokens, blockSizeTokens } = request
  const promptBlocks = Math.floor(promptTokens / blockSizeTokens)
  const least = Math.min(1, promptTokens)
  const isPlain = overlapCredit === 1 && creditDecay === 0
  let newTokensMin = promptTokens
  for (let i = 0; i < count; i++) {
    const overlap = Math.min(overlapBlocks[i]!, promptBlocks)
    const newTokens = Math.max(least, promptTokens - overlap * creditFactors[i]! * blockSizeTokens)
    terms.overlapBlocks[i] = overlap
    newTokensMin = Math.min(newTokensMin, newTokens)
    terms.newTokens[i] = newTokens
    terms.prefillTokens[i] = activePrefillTokens[i]! + newTokens
  }
  terms.newTokensMin = newTokensMin
  if (!isPlain) creditByDevice(candidates, request, overlapCredit, creditDecay, least, terms)
}

function creditByDevice(
  { count, creditFactors, lowerTierBlocks, activePrefillTokens }: Candidates,
  { promptTokens, blockSizeTokens }: SelectionRequest,
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
    const credited = blockSizeTokens * (overlapCredit * decay * (blocks - lower) + lower)
    const newTokens = Math.max(least, promptTokens - credited)
    // What the credit has beyond the prompt is taken off the queue.
    const beyond = Math.min(queued, Math.max(0, credited - promptTokens))
    newTokensMin = Math.min(newTokensMin, newTokens)
    terms.newTokens[i] = newTokens
    terms.prefillTokens[i] = queued - beyond + newTokens
  }
  terms.newTokensMin = newTokensMin
}
