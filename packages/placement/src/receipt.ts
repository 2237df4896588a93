/** Receipt: why a request went to its worker, and what was delivered. */

import type { ErrorRecord } from '@homing/base'
import type { KeyLayer, Trust } from '@homing/index'
import type {
  CostDescription,
  GuardArm,
  GuardPhase,
  GuardReport,
  Regrets,
  WorkerOutcomeReport,
} from '@homing/selection'
import type { RoutingRequest } from './routing-request.ts'

/** Blocks of a prompt that a worker key is credited with in one layer. */
export interface LayerTerm {
  /** `pooled`: in pooled memory that the worker reaches. */
  readonly layer: KeyLayer | 'pooled'
  readonly blocks: number
  /** What each of these blocks counts for, 0 … 1. */
  readonly factor: number
}

/** One candidate in a receipt, with every term of its cost. */
export interface CandidateTerms {
  readonly worker: string
  readonly trust: Trust
  /** Blocks of all layers together. */
  readonly overlapBlocks: number
  /** What they count for, 0 … 1: the mean over the blocks of `layers`. */
  readonly creditFactor: number
  /** Layers with blocks; empty if all blocks are on the device. */
  readonly layers: readonly LayerTerm[]
  /** Blocks that it is credited with, labels included; never more than the full blocks of the prompt. */
  readonly score: number
  /** Blocks that it holds with an expert that the request asks for. */
  readonly moeScore: number
  /** Blocks in pooled memory that continue those it holds. */
  readonly cxlAccessibleScore: number
  readonly activePrefillTokens: number
  readonly prefillTokens: number
  readonly prefillBlocks: number
  readonly activeBlocks: number
  readonly newBlocks: number
  readonly decodeBlocks: number
  readonly activeRequests: number
  /** Factor of its cost: below 1 if the request prefers its taints, above 1 if it avoids them. */
  readonly preference: number
  /** Element t is the term that `cost.terms[t]` of the receipt describes. */
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
  /** Tokens that the engine says it reused; undefined if it does not report them. */
  readonly cachedTokens: number | undefined
  /** Tokens of the prompt that slices of this very request had computed at this worker; default 0. */
  readonly sliceTokens?: number
  /** From the arrival of the request to its first call, or to its end if there was no call. */
  readonly waitedMs: number
  /** From its first call. */
  readonly timeToFirstByteMs: number | undefined
  /** From its first call. */
  readonly durationMs: number
  /** Events of the answer that passed; undefined: not a stream. */
  readonly streamEvents: number | undefined
  /** Id of the decision for the other worker of a hedge; default: only one worker was asked. */
  readonly otherLeg?: string | undefined
  /**
   * Why no other worker went on with its stream, which was cut, as homing_gateway_continuations_total has it;
   * default: it was not cut, or another one did.
   */
  readonly notContinued?: string | undefined
  readonly error: ErrorRecord | undefined
}

/** What the engine reused of what was there before the request came; undefined: it does not say. */
export function reusedTokens({
  cachedTokens,
  sliceTokens = 0,
}: Pick<Delivery, 'cachedTokens' | 'sliceTokens'>) {
  return cachedTokens === undefined ? undefined : Math.max(0, cachedTokens - sliceTokens)
}

/** The guard's part in a decision by `auto`. */
export interface GuardReceipt {
  /** The arm that decided, if it was an experiment; undefined: no experiment, the policy decided. */
  readonly arm: GuardArm | undefined
  readonly phase: GuardPhase
  /** Share of experiments that went by least-loaded at that time. */
  readonly controlShare: number
  /** Predicted wait and prefill at the chosen worker. */
  readonly predictedFirstTokenMs: number
  /** Of an experiment: tokens that are computed only if least-loaded decides; otherwise 0. */
  readonly extraTokens: number
  /** Cost of the chosen worker minus the cost of the worker that each rule would have chosen. */
  readonly regretMs: Regrets
}

export interface GuardStatus extends Omit<GuardReport, 'workers'> {
  /** The share that was set. */
  readonly share: number
  /** Decisions by `auto`. */
  readonly decisions: number
  /** Mean over the last decisions. */
  readonly meanRegretMs: Regrets
  /** One for each worker key that was used. */
  readonly workers: readonly WorkerOutcomes[]
}

/** How requests end at a worker key. */
export interface WorkerOutcomes extends Omit<WorkerOutcomeReport, 'workerSlot'> {
  readonly worker: string
}

/** Why a request had to wait and for how long, as the queue saw it last. */
export interface QueueReceipt {
  readonly waitedMs: number
  readonly why: string
  /** Expected wait when it began to wait; undefined: nothing had left the queue yet. */
  readonly expectedMs: number | undefined
}

/** Of a prompt that was sent in slices. */
export interface SlicesReceipt {
  /** Slices before this; 0: this one chose the worker, and what it delivered is the first slice. */
  readonly sent: number
  /** Id of the decision that chose the worker. */
  readonly decisionId: string
}

/** Of a request whose prefill and decode are apart. */
export interface LegReceipt {
  readonly kind: 'prefill' | 'decode'
  /** Of the decode leg: id of the decision for its prefill leg; undefined: this is that leg. */
  readonly prefillId: string | undefined
}

/** Why a request went to its worker. */
export interface Receipt {
  readonly id: string
  readonly requestId: string
  /** Unix milliseconds. */
  readonly atMs: number
  /** The router's mode; 'least-loaded' instead of 'kv' if the prompt is not known, see `settingsFor`. */
  readonly mode: string
  /** Describes the terms of the costs. Only mode kv chooses by them. */
  readonly cost: CostDescription
  readonly model: string
  readonly promptTokens: number
  /** `promptTokens` is an estimate: of text, of media, or by the word of the client; default false. */
  readonly isEstimated?: boolean
  readonly blockSizeTokens: number
  readonly promptBlocks: number
  readonly unknownPromptReason: string | undefined
  readonly textBlocksReason: string | undefined
  /** As in its `RoutingRequest`. */
  readonly cacheUse?: RoutingRequest['cacheUse']
  /** As in its `RoutingRequest`. */
  readonly ignoredHints?: RoutingRequest['ignoredHints']
  readonly overlapWeight: number
  readonly temperature: number
  readonly worker: string
  readonly runnerUp: string | undefined
  /**
   * Trust in the worker's credited overlap: `approximate` if a part of it is guessed, whatever the trust in
   * its events.
   */
  readonly trust: Trust
  readonly overlapBlocks: number
  readonly candidates: readonly CandidateTerms[]
  /**
   * Candidates that were dropped from this list later: the memory for old receipts is bounded.
   */
  readonly candidatesLeftOut: number
  /** Workers that serve the model but could not be chosen, with the reason. */
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
  readonly excludedLeftOut: number
  /** Undefined: another policy or mode decided. */
  readonly guard: GuardReceipt | undefined
  /** Undefined: it did not wait. */
  readonly queue?: QueueReceipt | undefined
  /** Undefined: it was sent whole. */
  readonly slices?: SlicesReceipt | undefined
  /** As in its `RoutingRequest`. */
  readonly legCosts?: RoutingRequest['legCosts']
  /** As in its `RoutingRequest`. */
  readonly continues?: RoutingRequest['continues']
  /** Id of the decision beside which it asked a second worker; undefined: it was the first. */
  readonly hedges?: string | undefined
  /** Undefined: one worker has all of it. */
  readonly leg?: LegReceipt | undefined
  /** Of the decode leg, when it is read: the receipt of its prefill leg, if that is still kept. */
  readonly prefill?: Receipt | undefined
  readonly decisionMs: number
  readonly delivery: Delivery | undefined
}
