/** Settings of `homing router`: when workers take no more, and what clients are told then. */

import type { SettingDescriptor } from '../descriptor.ts'

const RUNTIME = 'POST /busy_threshold changes it at run time, for one model.'

export const overloadSettings = [
  {
    key: 'activeDecodeBlocksThreshold',
    name: 'active-decode-blocks-threshold',
    group: 'Overload',
    kind: 'number',
    default: undefined,
    min: 0,
    max: 1,
    unsetMeans: 'never',
    aliases: ['busy-threshold'],
    envAliases: [{ name: 'DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD' }],
    help: `A worker takes no more requests while more than this part of its KV cache is in use by requests, on all its ranks. If that is so of all workers that could take a request, it is refused. It needs to know how many blocks an engine has: GET /workers shows kv_blocks. ${RUNTIME}`,
  },
  {
    key: 'activePrefillTokensThreshold',
    name: 'active-prefill-tokens-threshold',
    group: 'Overload',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    unit: 'tokens',
    unsetMeans: 'never',
    envAliases: [{ name: 'DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD' }],
    help: `The same, while more prefill tokens than this are under way at a worker, on all its ranks. ${RUNTIME}`,
  },
  {
    key: 'activePrefillTokensThresholdFraction',
    name: 'active-prefill-tokens-threshold-frac',
    group: 'Overload',
    kind: 'number',
    default: undefined,
    min: 0,
    max: 1e9,
    unsetMeans: 'never',
    envAliases: [{ name: 'DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC' }],
    help: `The same, while more prefill tokens are under way than this many times its max_num_batched_tokens. ${RUNTIME}`,
  },
  {
    key: 'overloadStatus',
    name: 'http-overload-status-code',
    group: 'Overload',
    kind: 'integer',
    default: 503,
    min: 400,
    max: 599,
    envAliases: [{ name: 'DYN_HTTP_OVERLOAD_STATUS_CODE' }],
    help: 'HTTP status of requests that are refused because workers are busy or the queue does not take them. Some clients and load balancers expect 429 or 529. The code in the body says why in any case.',
  },
] as const satisfies readonly SettingDescriptor[]
