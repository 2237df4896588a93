/**
 * What selection reads and answers: candidates and the request in, the winner and every term of
 * every cost out. Arrays run over the candidates; element i of each belongs to candidate i.
 */

export type RouterMode = 'kv' | 'random' | 'round-robin' | 'least-loaded'

export const ROUTER_MODES: readonly RouterMode[] = ['kv', 'random', 'round-robin', 'least-loaded']

/** The eligible worker keys with what is known about each. Only read; arrays may be longer than `count`. */
export interface Candidates {
  readonly count: number
  /** Slot of the worker key; echoed, never interpreted. */
  readonly workerSlots: ArrayLike<number>
  /** Leading blocks of the prompt that it holds. More than the prompt has counts as all of them. */
  readonly overlapBlocks: ArrayLike<number>
  /** What its overlap counts for, 0 … 1: see `creditFactor`. */
  readonly creditFactors: ArrayLike<number>
  /** Blocks in use by its running requests. */
  readonly activeBlocks: ArrayLike<number>
  /** Blocks of this prompt that are not active there. */
  readonly newBlocks: ArrayLike<number>
  /** Tokens booked there and not yet prefilled. */
  readonly activePrefillTokens: ArrayLike<number>
  readonly activeRequests: ArrayLike<number>
}

export interface SelectionSettings {
  readonly mode: RouterMode
  /** Weight of prefill blocks against decode blocks, ≥ 0. 0: only decode blocks count. */
  readonly overlapWeight: number
  /** 0: the cheapest wins. Above: softmax over costs normalised by their range. */
  readonly temperature: number
}

/** What one request may change of the settings; undefined keeps them. */
export interface SelectionOverride {
  readonly overlapWeight?: number | undefined
  readonly temperature?: number | undefined
}

export interface SelectionRequest {
  /** ≥ 0; 0 where the prompt is not known: then only load counts. */
  readonly promptTokens: number
  /** ≥ 1. */
  readonly blockSizeTokens: number
  readonly override?: SelectionOverride | undefined
}

/** Every term of every cost. Owned by the Selector and overwritten by its next `choose`. */
export interface ChoiceTerms {
  /** As used: clamped to the full blocks of the prompt. */
  readonly overlapBlocks: Int32Array
  /** Queued prefill tokens of the worker plus the tokens of this request that are not credited as cached. */
  readonly prefillTokens: Float64Array
  /** prefillTokens / blockSizeTokens, a fraction. */
  readonly prefillBlocks: Float64Array
  /** Active blocks plus new blocks. */
  readonly decodeBlocks: Float64Array
  /** overlapWeight · prefillBlocks + decodeBlocks; lower is better. Filled in every mode. */
  readonly costBlocks: Float64Array
  /** Chance that this candidate had to win, given the costs; sums to 1. */
  readonly probability: Float64Array
}

/** Owned by the Selector and overwritten by its next `choose`. */
export interface Choice {
  readonly count: number
  /** Index of the winner among the candidates. */
  readonly winner: number
  /** Index of the cheapest other candidate (least-loaded: the least loaded other one); −1 when there is none. */
  readonly runnerUp: number
  /** Pass as `turn` next time; only 'round-robin' advances it. */
  readonly nextTurn: number
  /** The weight and temperature that were used, after the override. */
  readonly overlapWeight: number
  readonly temperature: number
  readonly terms: ChoiceTerms
}

/** The terms of one candidate as a plain record, for a receipt. */
export interface CandidateTerms {
  readonly workerSlot: number
  readonly overlapBlocks: number
  readonly creditFactor: number
  readonly prefillTokens: number
  readonly prefillBlocks: number
  readonly decodeBlocks: number
  readonly costBlocks: number
  readonly probability: number
}

/** Which worker slots may serve a request at all. Sets are given by the caller per request. */
export interface Constraints {
  /** Only these slots (a pinned worker: all its ranks; a pinned rank: one). Undefined: not pinned. */
  readonly pinned?: ReadonlySet<number> | undefined
  /** Only these slots. Undefined: all. */
  readonly allowed?: ReadonlySet<number> | undefined
  /** True for a slot that fails for another reason (taints, model, tried before). */
  readonly isExcluded?: ((workerSlot: number) => boolean) | undefined
  /** True for a slot over a busy threshold. */
  readonly isOverloaded?: ((workerSlot: number) => boolean) | undefined
}

/**
 * 'eligible': at least one slot passed. 'no_worker': no slot is compatible. 'pin_not_allowed': the
 * pinned slots are not in the allowed set. 'pin_overloaded': the pinned slots are all overloaded; no
 * other is tried. 'all_overloaded': compatible slots exist and all are overloaded.
 */
export type Eligibility = 'eligible' | 'no_worker' | 'pin_not_allowed' | 'pin_overloaded' | 'all_overloaded'
