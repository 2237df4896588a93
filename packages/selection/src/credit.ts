/**
 * Credit: the weight of an overlap, from the trust in it.
 *
 *   credit factor = (PRIOR_REQUESTS · prior + n · precision) / (PRIOR_REQUESTS + n)
 *
 *   prior       weight by the trust in the worker key, before any measurement: CREDIT_PRIORS
 *   precision   delivered share of the tokens predicted as cached, over the last n requests: 0 … 1
 *
 * So an exact 60 % beats an approximate 70 % (0.8 · 70 = 56), until the estimates of that worker have proved
 * better: after 64 requests with a correct prediction, the factor is 0.96.
 */

import type { Trust } from '@homing/index'

/** With `partial`, every known block is there, as far as events show: so it is close to `exact`. */
export const CREDIT_PRIORS: Readonly<Record<Trust, number>> = {
  exact: 1,
  partial: 0.9,
  approximate: 0.8,
  none: 0,
}

/** The prior weighs as much as this many measured requests. */
export const PRIOR_REQUESTS = 16

/** 0 … 1. `precision`, 0 … 1, over `requests` ≥ 0 requests for which something was predicted. */
export function creditFactor(trust: Trust, precision: number, requests: number): number {
  if (trust === 'none') return 0
  const bounded = Math.min(1, Math.max(0, precision))
  return (PRIOR_REQUESTS * CREDIT_PRIORS[trust] + requests * bounded) / (PRIOR_REQUESTS + requests)
}
