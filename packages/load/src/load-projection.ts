/**
 * Load projection: the arrays in which an active load tells what a request would find on each worker slot.
 */

export interface OwnLoadProjection {
  count: number
  readonly activeBlocks: Int32Array
  readonly outputBlocks: Int32Array
  readonly newBlocks: Int32Array
  readonly activePrefillTokens: Float64Array
  readonly activeRequests: Int32Array
}

/** With room for the given number of worker slots. */
export function newLoadProjection(slots: number): OwnLoadProjection {
  return {
    count: 0,
    activeBlocks: new Int32Array(slots),
    outputBlocks: new Int32Array(slots),
    newBlocks: new Int32Array(slots),
    activePrefillTokens: new Float64Array(slots),
    activeRequests: new Int32Array(slots),
  }
}
