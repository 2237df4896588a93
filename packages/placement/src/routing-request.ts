/** Routing request: what the router must know of a request to place it. */

import type { Handover } from '@homing/fleet'
import type { SeparatedPrompt } from '@homing/protocol'
import type { SelectionOverride, WorkerConstraints } from '@homing/selection'
import type { LegCosts } from './leg-costs.ts'
import type { MoeQuery } from './moe-query.ts'
import type { RequestTracking } from './tracking.ts'

/** Where the first slice of a prompt ends, and how much longer each further one is. */
export interface FirstSlice {
  readonly endTokens: number
  readonly stepTokens: number
}

/** A part of a prompt that is sent in slices, or the rest of it: see prompt-slices.ts. */
export interface PromptSlice {
  /** Worker key of the slices before it: no other may take it. */
  readonly worker: string
  /** Tokens of the prompt that those computed, or found computed. */
  readonly computedTokens: number
  /** Number of slices before it. */
  readonly sent: number
  /** It is the request of the client itself, after the last slice. */
  readonly isLast: boolean
  /** Id of the decision that chose the worker, for the whole prompt. */
  readonly decisionId: string
}

/** An answer with which another worker goes on. */
export interface ContinuedAnswer {
  /** Id of the decision for the worker that failed. */
  readonly decisionId: string
  /** Tokens of the answer that its client has; they are the end of this prompt. */
  readonly deliveredTokens: number
}

/** A second worker is asked for a stream whose first token is late: the first token of the two counts. */
export interface Hedge {
  /** Id of the decision for the worker that is late. */
  readonly decisionId: string
}

/** The part of a request that is placed, where prefill and decode are apart: see request-leg.ts. */
export type RequestLeg =
  | { readonly kind: 'prefill' }
  | {
      readonly kind: 'decode'
      readonly handover: Handover
      /** Id of the decision for its prefill leg. */
      readonly prefillId: string
      /** Taints that the worker must have: those that say where its prefill leg was. */
      readonly topology: readonly string[]
    }

/** Tokens of a prompt where no length of the model bounds them: no engine takes as many. */
export const PROMPT_TOKENS_MAX = 10_000_000

/** What is believed of the length that an engine says a prompt has. */
export function believedTokens({ estimate }: Pick<RoutingRequest, 'estimate'>, saidTokens: number): number {
  return Math.min(saidTokens, estimate?.tokensMax ?? PROMPT_TOKENS_MAX, PROMPT_TOKENS_MAX)
}

/** What the router must know of a request to place it. */
export interface RoutingRequest {
  readonly requestId: string
  /** The client's name for it: a base model or an adapter. */
  readonly model: string
  readonly promptTokens: number
  /** `promptTokens` is an estimate, and the engine may count up to `tokensMax`; undefined: it was counted. */
  readonly estimate?: { readonly tokensMax: number } | undefined
  /** Of which party's tokens `promptTokens` is the count, of the whole prompt; undefined: of none. */
  readonly counted?: { readonly by: 'router' | 'engine'; readonly route: string } | undefined
  readonly blockSizeTokens: number
  /** The answer comes token by token; default false. */
  readonly isStream?: boolean
  /** Expected tokens of the answer; undefined: not known. */
  readonly expectedOutputTokens?: number | undefined
  /** Longest answer that the client allows, in tokens, of each choice; undefined: not given. */
  readonly outputTokensMax?: number | undefined
  /** Answers that the client wants of the prompt; default 1. */
  readonly choicesCount?: number
  /** What of the request counts as load; undefined: as set for the router. */
  readonly tracking?: RequestTracking | undefined
  /** Its hints that did not count, and why; undefined: all of them counted. */
  readonly ignoredHints?: string | undefined
  /** Local and sequence hashes [lo, hi] of the full prompt blocks; empty if the prompt is not known. */
  readonly localHashes: Int32Array
  readonly sequenceHashes: Int32Array
  /** Why the prompt is not known; undefined when it is. */
  readonly unknownPromptReason: string | undefined
  /**
   * Why the hashes are of pieces of text instead of tokens; such hashes match only prompts that this router
   * sent before. Undefined: they are of tokens.
   */
  readonly textBlocksReason: string | undefined
  /**
   * Its beginning in events that do not name its separators (packages/protocol); undefined: no separators.
   */
  readonly separated?: SeparatedPrompt | undefined
  /**
   * Why its answer will say nothing about the cache: `unread`, the engine computes the whole prompt; or
   * `unreported`, it does not tell how much it reused; or `claimed`, it tells that of another prompt, maybe:
   * this one is the word of its client. Undefined: the answer can be audited.
   */
  readonly cacheUse?: 'unread' | 'unreported' | 'claimed' | undefined
  /** The client's id of the conversation, if it gives one. */
  readonly sessionId?: string | undefined
  /** Replaces the router's own settings; unset members leave them unchanged. */
  readonly override: SelectionOverride
  /** The experts that its worker should have blocks of; undefined: any. */
  readonly moeQuery?: MoeQuery | undefined
  /** Undefined: any worker may take it. */
  readonly constraints?: WorkerConstraints | undefined
  readonly pinnedInstanceId: number | undefined
  readonly pinnedRank: number | undefined
  /** Undefined: it is not sent in slices, or this is the choice of the worker for all of them. */
  readonly slice?: PromptSlice | undefined
  /** The part of it that is placed; undefined: all of it. */
  readonly leg?: RequestLeg | undefined
  /** What it was expected to cost whole and in two legs; undefined: that was not asked. */
  readonly legCosts?: LegCosts | undefined
  /** It is the rest of an answer whose worker failed in the middle; undefined: it is no such rest. */
  readonly continues?: ContinuedAnswer | undefined
  /** A worker that is well has it: busy thresholds leave out no other one. Default: false. */
  readonly isAdmitted?: boolean | undefined
  /** It is asked of a second worker, while the first one is still asked; undefined: it is not. */
  readonly hedges?: Hedge | undefined
  /** Ids of workers that have failed this request already, or that the router knows to have left. */
  readonly excludedWorkers: readonly string[]
}
