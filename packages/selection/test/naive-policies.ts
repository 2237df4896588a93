/** Policies by their definitions, one candidate at a time: what the tests compare selection with. */

import type { FixedPolicyName, SelectionSettings } from '../src/index.ts'

export interface Candidate {
  readonly overlap: number
  readonly credit: number
  /** Share of the overlap, 0 … 1, that is not on the device. */
  readonly lowerShare: number
  readonly active: number
  readonly fresh: number
  readonly prefill: number
  readonly requests: number
}

export interface Prompt {
  readonly promptTokens: number
  readonly blockSizeTokens: number
}

type Weights = Omit<SelectionSettings, 'mode' | 'policy' | 'temperature'>

/** Tokens to compute, and with those that are queued. */
export function naivePrefill(
  candidate: Candidate,
  all: readonly Candidate[],
  { promptTokens, blockSizeTokens }: Prompt,
  weights: Weights,
): { newTokens: number; prefillTokens: number } {
  const blocks = Math.min(candidate.overlap, Math.floor(promptTokens / blockSizeTokens)) * candidate.credit
  const lower = Math.min(blocks, lowerTierBlocks(candidate))
  const credit = weights.overlapWeight === 0 ? 0 : weights.overlapCredit
  const promptsAhead =
    (candidate.prefill - Math.min(...all.map(({ prefill }) => prefill))) /
    blockSizeTokens /
    Math.ceil(promptTokens / blockSizeTokens)
  const decay = 1 / (1 + weights.creditDecay * promptsAhead)
  const credited = (credit * decay * (blocks - lower) + lower) * blockSizeTokens
  return {
    newTokens: Math.max(1, promptTokens - credited),
    prefillTokens:
      credited <= promptTokens - 1
        ? candidate.prefill + promptTokens - credited
        : 1 + Math.max(0, candidate.prefill - Math.max(0, credited - promptTokens)),
  }
}

export function lowerTierBlocks({ overlap, credit, lowerShare }: Candidate): number {
  return overlap * credit * lowerShare
}

/** The cost of every candidate. */
export function naiveCosts(
  policy: FixedPolicyName,
  all: readonly Candidate[],
  prompt: Prompt,
  weights: Weights,
): number[] {
  const { promptTokens, blockSizeTokens } = prompt
  const prefills = all.map(candidate => naivePrefill(candidate, all, prompt, weights))
  switch (policy) {
    case 'linear':
      return all.map(
        ({ active, fresh, requests }, i) =>
          (weights.overlapWeight * prefills[i]!.prefillTokens) / blockSizeTokens +
          (active + fresh) +
          weights.activeRequestWeight * requests,
      )
    case 'product':
      return all.map(({ requests }, i) => prefills[i]!.prefillTokens * (requests + 1))
    case 'est-ttft':
      return prefills.map(
        ({ newTokens, prefillTokens }) =>
          weights.prefillMsPerToken * prefillTokens +
          1e-6 * weights.attentionMsPerMillionPairs * newTokens * 0.6 * promptTokens,
      )
    case 'threshold': {
      const requests = all.map(candidate => candidate.requests)
      const [fewest, most] = [Math.min(...requests), Math.max(...requests)]
      const shares = prefills.map(({ newTokens }) => newTokens / promptTokens)
      const isBalanced = !(most - fewest > 64 && most > 1.5 * fewest)
      const cached = promptTokens - Math.min(...prefills.map(({ newTokens }) => newTokens))
      return isBalanced && cached / promptTokens > 0.3 ? shares : requests
    }
  }
}
