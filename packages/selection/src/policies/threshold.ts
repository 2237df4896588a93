/**
 * threshold: by load when the fleet is out of balance, else by overlap when there is enough of it, else by
 * load.
 *
 *   imbalance   max L − min L > IMBALANCE_REQUESTS and max L > IMBALANCE_RATIO · min L:  cost = L
 *   overlap     else, the largest overlap share > OVERLAP_SHARE_MIN:                     cost = 1 − overlap
 *               share
 *   load        else                                                                     cost = L
 *
 *   L = active requests; overlap share = tokens that are credited as cached / prompt tokens
 *
 * Source   the cache-aware rule of SGLang's router and its constants. Its last rule takes the worker whose
 *          tree has received the fewest tokens; this one takes the worker with the fewest requests.
 */

import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'

const IMBALANCE_REQUESTS = 64
const IMBALANCE_RATIO = 1.5
const OVERLAP_SHARE_MIN = 0.3

const IMBALANCE_RULE = 0
const OVERLAP_RULE = 1
const LOAD_RULE = 2

export const threshold: Policy = {
  name: 'threshold',
  terms: [
    { name: 'requests', unit: 'requests', means: 'Active requests there.' },
    {
      name: 'uncached_share',
      unit: 'share',
      means: 'Share of the prompt that is not credited as cached there.',
    },
  ],
  rules: [
    { name: 'imbalance', formula: 'requests', unit: 'requests' },
    { name: 'overlap', formula: 'uncached_share', unit: 'share' },
    { name: 'load', formula: 'requests', unit: 'requests' },
  ],

  score({ count, activeRequests }, { promptTokens }, _weights, { newTokens, newTokensMin, ofPolicy, cost }) {
    let fewest = Number.POSITIVE_INFINITY
    let most = 0
    for (let i = 0, term = 0; i < count; i++, term += POLICY_TERMS_MAX) {
      const requestsThere = activeRequests[i]!
      const tokens = newTokens[i]!
      ofPolicy[term] = requestsThere
      ofPolicy[term + 1] = promptTokens > 0 ? tokens / promptTokens : 1
      cost[i] = requestsThere
      if (requestsThere < fewest) fewest = requestsThere
      if (requestsThere > most) most = requestsThere
    }
    if (most - fewest > IMBALANCE_REQUESTS && most > IMBALANCE_RATIO * fewest) return IMBALANCE_RULE
    if (!((promptTokens - newTokensMin) / promptTokens > OVERLAP_SHARE_MIN)) return LOAD_RULE
    for (let i = 0; i < count; i++) cost[i] = ofPolicy[i * POLICY_TERMS_MAX + 1]!
    return OVERLAP_RULE
  },
}
