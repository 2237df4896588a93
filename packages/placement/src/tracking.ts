/** Tracking: what of a request counts as load. */

export interface TrackingSettings {
  /** False: no blocks count. */
  readonly activeBlocks: boolean
  /** False: no prefill counts. What the load model of `auto` knows stays. */
  readonly prefillTokens: boolean
  /** Blocks of what is generated count, too. */
  readonly outputBlocks: boolean
  /** False: engines do not share the blocks of equal prompts, so each request has its own. */
  readonly assumesReuse: boolean
}

/**
 * What of one request counts as load, where it says so itself; undefined members leave the settings as they
 * are.
 */
export interface RequestTracking {
  readonly prefillTokens: boolean | undefined
  readonly assumesReuse: boolean | undefined
}
