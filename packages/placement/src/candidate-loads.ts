/** Candidate loads: what each candidate for a request has to do already. */

import type { EngineProjection } from '@homing/load'

/**
 * Arrays beside each other: index i belongs to the i-th worker slot that was asked about. They may be longer.
 */
export interface CandidateLoads {
  readonly activeBlocks: Int32Array | Float64Array
  /** Prompt blocks of the request that would become active there. */
  readonly newBlocks: Int32Array | Float64Array
  /** Of so many prompt blocks; 0 where active blocks do not count. */
  readonly soughtBlocks: number
  readonly activePrefillTokens: Int32Array | Float64Array
  readonly activeRequests: Int32Array | Float64Array
  /** What is before each of them in milliseconds; undefined if it was not asked for. */
  readonly engines: EngineProjection | undefined
  /**
   * Share of the KV blocks in use as its engine says, 0 … 1, NaN where it does not; undefined if it was not
   * asked for.
   */
  readonly reportedShares: Float64Array | undefined
  /** How often load has fallen so far: see `watchLoad`. */
  readonly falls: number
}
