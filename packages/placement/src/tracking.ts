/** Tracking: which parts of a request count as load. */

export interface TrackingSettings {
  /** False: blocks do not count. */
  readonly activeBlocks: boolean
  /** False: prefill does not count. The load model of `auto` still sees it. */
  readonly prefillTokens: boolean
  /** Blocks of generated tokens count, too. */
  readonly outputBlocks: boolean
  /** False: engines do not share the blocks of equal prompts, so each request has its own. */
  readonly assumesReuse: boolean
}

/**
 * Which parts of one request count as load, if the request says so; undefined members leave the settings
 * unchanged.
 */
export interface RequestTracking {
  readonly prefillTokens: boolean | undefined
  readonly assumesReuse: boolean | undefined
  /** Default undefined. */
  readonly activeBlocks?: boolean
}
