/**
 * Policy: a rule that gives every candidate a cost, and describes the terms of that cost, so that a receipt
 * or a page can show them without knowing the policy.
 */

import type { Candidates, ChoiceTerms, SelectionRequest } from './types.ts'

export type PolicyName = 'auto' | 'linear' | 'product' | 'est-ttft' | 'threshold'

/** Rules that learn nothing. */
export type FixedPolicyName = Exclude<PolicyName, 'auto'>

export const FIXED_POLICY_NAMES: readonly FixedPolicyName[] = ['linear', 'product', 'est-ttft', 'threshold']

export const POLICY_NAMES: readonly PolicyName[] = ['auto', ...FIXED_POLICY_NAMES]

/** One term of a cost. */
export interface TermDescription {
  /** As in a receipt, with its unit at the end: 'prefill_tokens'. */
  readonly name: string
  /**
   * 'blocks', 'tokens', 'ms', 'requests', 'token-requests', 'share', or what a selection of one's own says.
   */
  readonly unit: string
  /** For people, one sentence. */
  readonly means: string
}

/** One way in which a policy comes from its terms to the cost; most have one. */
export interface PolicyRule {
  /** As in a receipt. */
  readonly name: string
  /** The names of terms and what is done with them: 'queued_prefill_ms + prefill_ms'. */
  readonly formula: string
  readonly unit: string
}

/** The figures that the formulas use, after the override of the request. */
export interface PolicyWeights {
  overlapWeight: number
  activeRequestWeight: number
  prefillMsPerToken: number
  attentionMsPerMillionPairs: number
  /** What a block that will be cached counts for, 0 … 1. */
  overlapCredit: number
}

export interface Policy {
  readonly name: string
  readonly terms: readonly TermDescription[]
  readonly rules: readonly PolicyRule[]
  /**
   * Fills `terms.ofPolicy` and `terms.cost`; the overlap, new tokens and prefill tokens of `terms` are there.
   * Returns the index of the rule that it used. Allocates nothing: it runs for every request.
   */
  score(candidates: Candidates, request: SelectionRequest, weights: PolicyWeights, terms: ChoiceTerms): number
}

/** What costs are made of, as plain data. */
export interface CostDescription {
  /** Name of the policy. */
  readonly policy: string
  readonly rule: string
  readonly formula: string
  readonly unit: string
  readonly terms: readonly TermDescription[]
}

/** Most terms of a policy. */
export const POLICY_TERMS_MAX = 8
