/**
 * product: the prefill that a worker has before it, times its requests.
 *
 *   cost = prefill tokens · (active requests + 1)
 *
 * It needs no weight: a worker is avoided in proportion to either.
 *
 * Source   the LMetric policy; Dynamo has it as "lmetric", with decode blocks in place of requests.
 */

import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'

export const product: Policy = {
  name: 'product',
  terms: [
    {
      name: 'prefill_tokens',
      unit: 'tokens',
      means: 'Tokens that the worker would have to prefill, its queue included.',
    },
    { name: 'requests', unit: 'requests', means: 'Requests that would be active there, this one included.' },
  ],
  rules: [{ name: 'product', formula: 'prefill_tokens · requests', unit: 'token-requests' }],

  score({ count, activeRequests }, _request, _weights, { prefillTokens, ofPolicy, cost }) {
    for (let i = 0, term = 0; i < count; i++, term += POLICY_TERMS_MAX) {
      const tokens = prefillTokens[i]!
      const requestsThere = activeRequests[i]! + 1
      ofPolicy[term] = tokens
      ofPolicy[term + 1] = requestsThere
      cost[i] = tokens * requestsThere
    }
    return 0
  },
}
