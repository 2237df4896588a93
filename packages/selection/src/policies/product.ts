/**
 * product: the prefill that a worker has before it, times its requests.
 *
 *   cost = prefill tokens · (active requests + 1)
 *
 * It needs no weight: a worker is avoided in proportion to either.
 *
 * Source   the LMetric policy; Dynamo has it as "lmetric", with decode blocks in place of requests.
 */

import type { Policy } from '../policy.ts'

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
    const prefill = ofPolicy[0]!
    const requests = ofPolicy[1]!
    for (let i = 0; i < count; i++) {
      const tokens = prefillTokens[i]!
      const requestsThere = activeRequests[i]! + 1
      prefill[i] = tokens
      requests[i] = requestsThere
      cost[i] = tokens * requestsThere
    }
    return 0
  },
}
