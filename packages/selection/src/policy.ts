/**
 * Policy: a rule that gives every candidate a cost, and describes the terms of that cost, so that a receipt
 * or a page can show them without knowing the policy.
 */

import type { Candidates, ChoiceTerms, SelectionRequest } from './types.ts'

export type PolicyName = 'auto' | 'linear' | 'product' | 'est-ttft' | 'threshold'

/** Policies that do not learn. */
export type FixedPolicyName = Exclude<PolicyName, 'auto'>

export const FIXED_POLICY_NAMES: readonly FixedPolicyName[] = ['linear', 'product', 'est-ttft', 'threshold']

export const POLICY_NAMES: readonly PolicyName[] = ['auto', ...FIXED_POLICY_NAMES]

/** One term of a cost. */
export interface TermDescription {
  /** Its name in receipts, which ends with the unit: 'prefill_tokens'. */
  readonly name: string
  /** 'blocks', 'tokens', 'ms', 'requests', 'token-requests', 'share', or the unit of a custom selection. */
  readonly unit: string
  /** For people, one sentence. */
  readonly means: string
}

/** One way in which a policy computes the cost from its terms; most policies have one. */
export interface PolicyRule {
  /** Its name in receipts. */
  readonly name: string
  /** The formula with the names of the terms: 'queued_prefill_ms + prefill_ms'. */
  readonly formula: string
  readonly unit: string
}

/** The figures that the formulas use, after the override of the request. */
export interface PolicyWeights {
  overlapWeight: number
  activeRequestWeight: number
  prefillMsPerToken: number
  attentionMsPerMillionPairs: number
  /** Weight of a block that will be cached, 0 … 1. */
  overlapCredit: number
}

export interface Policy {
  readonly name: string
  readonly terms: readonly TermDescription[]
  readonly rules: readonly PolicyRule[]
  /**
   * Fills `terms.ofPolicy` and `terms.cost`; overlap, new tokens and prefill tokens are already filled.
   * Returns the index of the rule used. Must not allocate: it runs for every request.
   */
  score(candidates: Candidates, request: SelectionRequest, weights: PolicyWeights, terms: ChoiceTerms): number
}

/** Description of the costs, as plain data. */
export interface CostDescription {
  /** Name of the policy. */
  readonly policy: string
  readonly rule: string
  readonly formula: string
  readonly unit: string
  readonly terms: readonly TermDescription[]
}

/** Most terms that a policy may have. */
export const POLICY_TERMS_MAX = 8
