/**
 * Engine projection: what a request would find on each worker slot, as an engine book tells it.
 *
 * Columns beside each other: what is read of one worker lies at the same place in each.
 */

/** Element i belongs to the i-th slot that was asked for. Overwritten by the next call. */
export interface EngineProjection {
  count: number
  /** Prefill before it, in ms. */
  backlogMs: Float64Array
  /** New tokens that are queued there. */
  queuedTokens: Float64Array
  requests: Float64Array
  decoding: Float64Array
  /** Tokens that decoding requests hold, output included. */
  contextTokens: Float64Array
  /** Tokens that lately were new there, as a share of the mean of all slots. */
  churn: Float64Array
  /** New tokens that it was sent since it is known. Until they are as many as its cache holds, nothing is pushed out there. */
  receivedTokens: Float64Array
  /** Six for each slot: p0, p1, p2, q0, q1, q2. */
  coefficients: Float64Array
  /** Tokens below which a step of prefill takes no less: see prefill-costs.ts. */
  kneeTokens: number
  /** Share of the workers that were asked about with a prompt in their queue, over the last decisions. */
  busyShare: number
  outputTokensExpected: number
  /** What a millisecond of decoding counts for against one of waiting for the first token, from what was seen. */
  waitingShare: number
  /** Mean of the prefill of requests, as estimated when they were sent. */
  prefillMeanMs: number
}

/** One of its own, as long as its count. */
export function copyProjection(projection: EngineProjection): EngineProjection {
  const { count, busyShare, outputTokensExpected, waitingShare, prefillMeanMs, kneeTokens } = projection
  return {
    count,
    backlogMs: projection.backlogMs.slice(0, count),
    queuedTokens: projection.queuedTokens.slice(0, count),
    requests: projection.requests.slice(0, count),
    decoding: projection.decoding.slice(0, count),
    contextTokens: projection.contextTokens.slice(0, count),
    churn: projection.churn.slice(0, count),
    receivedTokens: projection.receivedTokens.slice(0, count),
    coefficients: projection.coefficients.slice(0, 6 * count),
    busyShare,
    outputTokensExpected,
    waitingShare,
    prefillMeanMs,
    kneeTokens,
  }
}

/** One of its own, with the slots that are kept. */
export function filterProjection(projection: EngineProjection, isKept: readonly boolean[]): EngineProjection {
  const slots = Array.from({ length: projection.count }, (_, i) => i).filter(i => isKept[i] !== false)
  const kept = newProjection(slots.length)
  const columns = [
    'backlogMs',
    'queuedTokens',
    'requests',
    'decoding',
    'contextTokens',
    'churn',
    'receivedTokens',
  ] as const
  for (const [to, from] of slots.entries()) {
    for (const column of columns) kept[column][to] = projection[column][from]!
    kept.coefficients.set(projection.coefficients.subarray(6 * from, 6 * from + 6), 6 * to)
  }
  const { busyShare, outputTokensExpected, waitingShare, prefillMeanMs, kneeTokens } = projection
  return {
    ...kept,
    count: slots.length,
    busyShare,
    outputTokensExpected,
    waitingShare,
    prefillMeanMs,
    kneeTokens,
  }
}

/** With room for so many slots; what it says is to be filled in. */
export function newProjection(slots: number): EngineProjection {
  return {
    count: 0,
    backlogMs: new Float64Array(slots),
    queuedTokens: new Float64Array(slots),
    requests: new Float64Array(slots),
    decoding: new Float64Array(slots),
    contextTokens: new Float64Array(slots),
    churn: new Float64Array(slots),
    receivedTokens: new Float64Array(slots),
    coefficients: new Float64Array(6 * slots),
    busyShare: 0,
    outputTokensExpected: 0,
    waitingShare: 0,
    prefillMeanMs: 0,
    kneeTokens: 0,
  }
}
