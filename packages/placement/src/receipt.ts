/** Receipt: why a request went where it went, and what was delivered. */

import type { ErrorRecord } from '@homing/base'
import type { KeyLayer, Trust } from '@homing/index'
import type { CostDescription, GuardArm, GuardPhase, GuardReport, ShadowName } from '@homing/selection'

/** Blocks of a prompt that a worker key is credited with in one layer. */
export interface LayerTerm {
  readonly layer: KeyLayer
  readonly blocks: number
  /** What each of them counts for, 0 … 1. */
  readonly factor: number
}

/** One candidate in a receipt, every term of its cost. */
export interface CandidateTerms {
  readonly worker: string
  readonly trust: Trust
  /** Blocks of all layers together. */
  readonly overlapBlocks: number
  /** What they count for, 0 … 1: the mean over the blocks of `layers`. */
  readonly creditFactor: number
  /** Layers with blocks; none where all of them are on the device. */
  readonly layers: readonly LayerTerm[]
  readonly activePrefillTokens: number
  readonly prefillTokens: number
  readonly prefillBlocks: number
  readonly activeBlocks: number
  readonly newBlocks: number
  readonly decodeBlocks: number
  readonly activeRequests: number
  /** What its cost is multiplied by: below 1 if the request prefers its taints, above 1 if it avoids them. */
  readonly preference: number
  /** Element t: the term that `cost.terms[t]` of the receipt describes. */
  readonly terms: readonly number[]
  /** In `cost.unit` of the receipt. */
  readonly cost: number
  readonly probability: number
}

/** What was delivered, filled in when the answer has ended. */
export interface Delivery {
  readonly outcome: 'ok' | 'error' | 'aborted'
  readonly status: number | undefined
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  /** What the engine says it reused; undefined when it does not report it. */
  readonly cachedTokens: number | undefined
  /** From the arrival of the request to its first call, or to its end where none was made. */
  readonly waitedMs: number
  /** From its first call. */
  readonly timeToFirstByteMs: number | undefined
  /** From its first call. */
  readonly durationMs: number
  /** Events of the answer that passed; undefined: it is no stream. */
  readonly streamEvents: number | undefined
  readonly error: ErrorRecord | undefined
}

/** What the guard had to do with a decision by `auto`. */
export interface GuardReceipt {
  /** Who decided, where it was an experiment; undefined: it was none, and the policy did. */
  readonly arm: GuardArm | undefined
  readonly phase: GuardPhase
  /** Share of the experiments that went by least-loaded then. */
  readonly controlShare: number
  /** Wait and prefill at the chosen worker. */
  readonly predictedFirstTokenMs: number
  /** The cost of the chosen worker minus that of the one that the rule would have taken. */
  readonly regretMs: Readonly<Record<ShadowName, number>>
}

export interface GuardStatus extends GuardReport {
  /** As it was set. */
  readonly share: number
  /** Decisions by `auto`. */
  readonly decisions: number
  /** Mean of the last ones. */
  readonly meanRegretMs: Readonly<Record<ShadowName, number>>
}

/** Why a request did not go at once, and how long it waited for that; as the queue saw it last. */
export interface QueueReceipt {
  readonly waitedMs: number
  readonly why: string
  /** How long it was expected to wait when it began; undefined: nothing had drained yet. */
  readonly expectedMs: number | undefined
}

/** Why a request went where it went. */
export interface Receipt {
  readonly id: string
  readonly requestId: string
  /** Unix milliseconds. */
  readonly atMs: number
  /** The router's mode; 'least-loaded' instead of 'kv' where the prompt is not known. */
  readonly mode: string
  /** What the costs are made of. Only mode kv chooses by them. */
  readonly cost: CostDescription
  readonly model: string
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly promptBlocks: number
  readonly unknownPromptReason: string | undefined
  readonly textBlocksReason: string | undefined
  readonly overlapWeight: number
  readonly temperature: number
  readonly worker: string
  readonly runnerUp: string | undefined
  /**
   * Trust in the worker's credited overlap: `approximate` if a part of it is guessed, whatever its events are
   * worth.
   */
  readonly trust: Trust
  readonly overlapBlocks: number
  readonly candidates: readonly CandidateTerms[]
  /**
   * Candidates that were there and are no longer in the list: the receipt is old, and memory for them
   * bounded.
   */
  readonly candidatesLeftOut: number
  /** Workers that serve the model but could not be chosen, with the reason. */
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
  readonly excludedLeftOut: number
  /** Undefined: another policy or mode decided. */
  readonly guard: GuardReceipt | undefined
  /** Undefined: it went at once. */
  readonly queue?: QueueReceipt | undefined
  readonly decisionMs: number
  readonly delivery: Delivery | undefined
}
