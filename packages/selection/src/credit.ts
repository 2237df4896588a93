/**
 * Credit: how much of an overlap counts, by how far it may be believed.
 *
 *   credit factor = (PRIOR_REQUESTS · prior + n · precision) / (PRIOR_REQUESTS + n)
 *
 *   prior       what the trust in the worker key is worth before anything was measured: CREDIT_PRIORS
 *   precision   of what was predicted to be cached for the last n requests, the part that was delivered: 0 … 1
 *
 * So an exact 60 % beats an approximate 70 % (0.8 · 70 = 56), until the estimates of that worker have proved to be
 * better than that: after 64 requests that all found what was predicted, the factor is 0.96.
 */

/** How far the index may be believed about a worker key. */
export type CreditTrust = 'exact' | 'partial' | 'approximate' | 'none'

/** `partial` knows of nothing that is not there, as far as its events tell: it is close to `exact`. */
export const CREDIT_PRIORS: Readonly<Record<CreditTrust, number>> = {
  exact: 1,
  partial: 0.9,
  approximate: 0.8,
  none: 0,
}

/** The prior weighs as much as this many measured requests. */
export const PRIOR_REQUESTS = 16

/** 0 … 1. `precision`, 0 … 1, over `requests` ≥ 0 requests for which something was predicted. */
export function creditFactor(trust: CreditTrust, precision: number, requests: number): number {
  if (trust === 'none') return 0
  const bounded = Math.min(1, Math.max(0, precision))
  return (PRIOR_REQUESTS * CREDIT_PRIORS[trust] + requests * bounded) / (PRIOR_REQUESTS + requests)
}
