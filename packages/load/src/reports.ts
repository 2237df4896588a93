/** What an engine book is told of requests, and what it tells of workers. */

import type { CostKnowledge } from './engine-costs.ts'

export interface SentRequest {
  readonly promptTokens: number
  /** Tokens that must be computed, as predicted at dispatch. */
  readonly newTokens: number
  /** Its first token will be reported. Default true. */
  readonly isStream?: boolean
  /** The most tokens that its answer can have, if that is known; default: it is not. */
  readonly outputTokensMax?: number | undefined
  /**
   * `promptTokens` is an estimate of a prompt that is not known: its time teaches nothing of prefill. Default
   * false.
   */
  readonly isUnknown?: boolean
  /**
   * Tokens whose blocks another worker hands over to this one; the time until they are there is a part of
   * that to its first token. Default: it is no hand-over.
   */
  readonly handedTokens?: number | undefined
  /** How long it waited in the router before it was sent; default 0. */
  readonly waitedMs?: number
  /**
   * This router has sent it; default true. The times of another router's request are those at which this
   * router was told.
   */
  readonly isOwn?: boolean
  readonly nowMs: number
}

/** What an engine says of an answer; undefined: it does not say. */
export interface SaidUsage {
  readonly outputTokens?: number | undefined
  /** Share of the prompt that was cached, 0 … 1. */
  readonly cachedShare?: number | undefined
  /**
   * Events of its stream, as the router counts them; undefined: it does not stream, or they are not counted.
   */
  readonly streamEvents?: number | undefined
}

/** Coefficients of prefill and of decoding: see prefill-costs.ts and engine-costs.ts. */
export interface LearnedSpeed {
  readonly prefill: CostKnowledge & {
    /** A step with fewer tokens takes no less time than one with as many. */
    readonly kneeTokens: number
  }
  readonly decode: CostKnowledge
}
