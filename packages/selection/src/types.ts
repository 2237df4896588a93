/**
 * Inputs and outputs of selection: candidates and the request in, the winner and every term of
 * every cost out. Arrays run over the candidates; element i of each belongs to candidate i.
 */

import type { EngineProjection } from '@homing/load'

/**
 * `kv` chooses by the cost of a policy; the others do not look at the cache. `direct` chooses among the ranks
 * of the worker that the request names: the caller leaves out all other candidates.
 */
export type RouterMode = 'kv' | 'random' | 'round-robin' | 'least-loaded' | 'power-of-two' | 'direct'

export const ROUTER_MODES: readonly RouterMode[] = [
  'kv',
  'random',
  'round-robin',
  'least-loaded',
  'power-of-two',
  'direct',
]

/** Which worker key a candidate is. */
export interface CandidateWorker {
  /** Name of the worker key. */
  readonly worker: string
  /** Instance id of its worker: see GET /workers. */
  readonly instanceId: number
  readonly dpRank: number
  readonly taints: readonly string[]
}

/** The eligible worker keys with what is known about each. Only read; arrays may be longer than `count`. */
export interface Candidates {
  readonly count: number
  /** Slot of the worker key; echoed, never interpreted. */
  readonly workerSlots: ArrayLike<number>
  /** Leading blocks of the prompt that it holds, in all tiers; clamped to the blocks of the prompt. */
  readonly overlapBlocks: ArrayLike<number>
  /** Weight of its overlap, 0 … 1, a mean over its tiers: see `creditFactor`. */
  readonly creditFactors: ArrayLike<number>
  /**
   * The part of overlap · credit factor that is not on the device, in blocks. `overlapCredit` and
   * `creditDecay` do not change it. Undefined: all of the overlap is on the device.
   */
  readonly lowerTierBlocks?: ArrayLike<number> | undefined
  /**
   * Blocks beside the overlap that count as cached for the cost, though they are not: what labels of blocks
   * add. Undefined: none.
   */
  readonly bonusBlocks?: ArrayLike<number> | undefined
  /**
   * The part of overlap · credit factor that must be read out of pooled memory first, in blocks. Only `auto`
   * looks at it. Undefined: none.
   */
  readonly readBlocks?: ArrayLike<number> | undefined
  /** Blocks in use by its running requests. */
  readonly activeBlocks: ArrayLike<number>
  /** The part of `activeBlocks` that is of answers. Undefined: 0, blocks of answers do not count. */
  readonly outputBlocks?: ArrayLike<number> | undefined
  /** Blocks of this prompt that are not active there. */
  readonly newBlocks: ArrayLike<number>
  /** Blocks of this prompt that were looked for among the active ones. Undefined: all full ones. */
  readonly soughtBlocks?: number | undefined
  /**
   * Blocks on the device of a candidate, from its events; −1: not known. Undefined: not known for any
   * candidate. Called only for a cache that was sent at least as many tokens as it holds.
   */
  readonly heldBlocksOf?: ((index: number) => number) | undefined
  /** Tokens booked there and not yet prefilled. */
  readonly activePrefillTokens: ArrayLike<number>
  readonly activeRequests: ArrayLike<number>
  /** Factor of each cost: see `WorkerFilter`. Undefined: 1. */
  readonly preferences?: ArrayLike<number> | undefined
  /** Used only by a custom selection. */
  readonly nameOf?: ((index: number) => CandidateWorker) | undefined
  /** For `auto`: load and step times of each worker. */
  readonly engines?: EngineProjection | undefined
  /** Most KV tokens that each can hold; 0: not known. One for each candidate. */
  readonly kvCapacityTokens?: ArrayLike<number> | undefined
  /** Most tokens that each computes in one step. One for each candidate. */
  readonly stepTokens?: ArrayLike<number> | undefined
}

/** Settings that one request may override; undefined: no override. */
export interface SelectionOverride {
  readonly overlapWeight?: number | undefined
  readonly overlapCredit?: number | undefined
  readonly temperature?: number | undefined
}

export interface SelectionRequest {
  /** ≥ 0; 0 if the prompt is not known: then only load counts. */
  readonly promptTokens: number
  /** ≥ 1. */
  readonly blockSizeTokens: number
  /**
   * For a custom selection: the model name given by the client, and whether the prompt is known (default:
   * yes).
   */
  readonly model?: string | undefined
  readonly isPromptKnown?: boolean | undefined
  /**
   * For `auto`: the prompt is computed elsewhere, and no candidate has to compute more than its last token.
   */
  readonly isComputed?: boolean | undefined
  readonly override?: SelectionOverride | undefined
}

/** Every term of every cost. Owned by the Selector and overwritten by its next `choose`. */
export interface ChoiceTerms {
  /** Clamped to the full blocks of the prompt. */
  readonly overlapBlocks: Int32Array
  /**
   * Tokens of this prompt that are not credited as cached; at least 1, as an engine always computes the last
   * one.
   */
  readonly newTokens: Float64Array
  /** The least of `newTokens`, at most the prompt. */
  newTokensMin: number
  /** Queued prefill tokens of the worker plus `newTokens`. */
  readonly prefillTokens: Float64Array
  /** Element i · POLICY_TERMS_MAX + t: the term `policy.terms[t]` of candidate i. */
  readonly ofPolicy: Float64Array
  /** Cost in the unit of the rule used; lower is better. Filled in every mode. */
  readonly cost: Float64Array
  /**
   * Chance that this candidate had to win, given the costs and, for power-of-two, the two that were drawn;
   * sums to 1.
   */
  readonly probability: Float64Array
}

/** The terms of one candidate as a plain record, for a receipt. */
export interface CostTerms {
  readonly workerSlot: number
  readonly overlapBlocks: number
  readonly creditFactor: number
  readonly newTokens: number
  readonly prefillTokens: number
  /** prefillTokens / blockSizeTokens, a fraction. */
  readonly prefillBlocks: number
  /** Active blocks plus new blocks. */
  readonly decodeBlocks: number
  /** Element t: the term that `policy.terms[t]` describes. */
  readonly ofPolicy: readonly number[]
  readonly cost: number
  readonly probability: number
}
