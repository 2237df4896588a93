/**
 * linear: blocks to prefill, weighed against blocks to decode.
 *
 *   cost = overlapWeight · prefill tokens / block size + active blocks + new blocks
 *        + activeRequestWeight · active requests
 *
 * Source   NVIDIA Dynamo's key-value router: its linear rule, and its later credit form, of which
 *          `overlapWeight` is the prefill load scale.
 */

import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'

export const linear: Policy = {
  name: 'linear',
  terms: [
    {
      name: 'prefill_blocks',
      unit: 'blocks',
      means: 'Blocks that the worker would have to prefill, its queue included, times the overlap weight.',
    },
    { name: 'decode_blocks', unit: 'blocks', means: 'Blocks that would be in use there.' },
    {
      name: 'request_blocks',
      unit: 'blocks',
      means: 'Active requests there, times their weight.',
    },
  ],
  rules: [{ name: 'linear', formula: 'prefill_blocks + decode_blocks + request_blocks', unit: 'blocks' }],

  score(
    { count, activeBlocks, newBlocks, activeRequests },
    { blockSizeTokens },
    { overlapWeight, activeRequestWeight },
    { prefillTokens, ofPolicy, cost },
  ) {
    for (let i = 0, term = 0; i < count; i++, term += POLICY_TERMS_MAX) {
      const prefillBlocks = overlapWeight * (prefillTokens[i]! / blockSizeTokens)
      const decodeBlocks = activeBlocks[i]! + newBlocks[i]!
      const requestBlocks = activeRequestWeight * activeRequests[i]!
      ofPolicy[term] = prefillBlocks
      ofPolicy[term + 1] = decodeBlocks
      ofPolicy[term + 2] = requestBlocks
      cost[i] = prefillBlocks + decodeBlocks + requestBlocks
    }
    return 0
  },
}
