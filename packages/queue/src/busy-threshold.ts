/** The threshold of the queue: a request waits while every eligible worker has more prefill tokens than its class accepts. */

import type { PolicyClass } from './policy-classes.ts'

export type Thresholds = Pick<PolicyClass, 'busyTokens' | 'busyFraction'>

/** What is known of an eligible worker. */
export interface PrefillLoad {
  readonly activePrefillTokens: number
  /** Its token budget for one step; undefined: not known. */
  readonly batchedTokensMax: number | undefined
}

/**
 * 'room': some worker is not past the threshold, or there is none, or no worker. 'past': all are. 'unknown': all would be but for workers
 * whose token budget nobody knows, so the threshold cannot hold anything back.
 */
export type ThresholdState = 'room' | 'past' | 'unknown'

/** Whether requests of a class have to wait, by the load of all eligible workers. */
export function thresholdState(policyClass: Thresholds, workers: Iterable<PrefillLoad>): ThresholdState {
  const { busyTokens, busyFraction } = policyClass
  if (busyTokens === undefined && busyFraction === undefined) return 'room'
  let state: ThresholdState | undefined
  for (const { activePrefillTokens, batchedTokensMax } of workers) {
    if (busyTokens !== undefined && activePrefillTokens > busyTokens) {
      state ??= 'past'
    } else if (busyFraction !== undefined && batchedTokensMax === undefined) {
      state = 'unknown'
    } else if (busyFraction !== undefined && activePrefillTokens > busyFraction * batchedTokensMax!) {
      state ??= 'past'
    } else {
      return 'room'
    }
  }
  return state ?? 'room'
}
