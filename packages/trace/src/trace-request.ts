/** One request of a trace, and the sources that requests come from. */

/** Tokens that one id of a published trace stands for. */
export const TRACE_BLOCK_TOKENS = 512

/** A line of a trace. */
export interface TraceRequest {
  /** Arrival, milliseconds from the start. */
  readonly timestampMs: number
  /** Prompt tokens, ≥ 0. */
  readonly inputTokens: number
  /** Tokens that are generated, ≥ 0. */
  readonly outputTokens: number
  /**
   * One prefix id per block of the prompt: it stands for the block and all before it. The last, partial block
   * may have an id too.
   */
  readonly hashIds: ArrayLike<number>
  /**
   * Blocks that its answer fills behind the full ones of the prompt, where that is known; of a decision log.
   */
  readonly answerIds?: ArrayLike<number>
  /** The conversation that it belongs to, where the trace says it. */
  readonly sessionId?: string
  readonly model?: string
  /** The tenant, if the trace names it. */
  readonly tenant?: string
  /** Where it really went, from 0; of a decision log. */
  readonly worker?: number
}

/**
 * Requests in order of arrival. A source that is read twice (see `scanTrace`) must start anew at each
 * iteration.
 */
export type TraceSource = Iterable<TraceRequest> | AsyncIterable<TraceRequest>
