/** Candidate loads: the work that each candidate for a request has already. */

import type { EngineProjection } from '@homing/load'

/**
 * Parallel arrays: index i belongs to the i-th worker slot that was asked about. They may be longer.
 */
export interface CandidateLoads {
  readonly activeBlocks: Int32Array | Float64Array
  /** The part of `activeBlocks` that is of answers; undefined: blocks of answers do not count. */
  readonly outputBlocks?: Int32Array | Float64Array | undefined
  /** Prompt blocks of the request that would become active there. */
  readonly newBlocks: Int32Array | Float64Array
  /** Blocks of the prompt, of which `newBlocks` are new; 0 if active blocks do not count. */
  readonly soughtBlocks: number
  readonly activePrefillTokens: Int32Array | Float64Array
  readonly activeRequests: Int32Array | Float64Array
  /** The work queued before the request at each of them, in milliseconds; undefined if not asked for. */
  readonly engines: EngineProjection | undefined
  /**
   * Share of KV blocks in use as the engine reports it, 0 … 1; NaN: not reported; undefined: not asked for.
   */
  readonly reportedShares: Float64Array | undefined
  /** How often load has fallen so far; see `watchLoad`. */
  readonly falls: number
}
