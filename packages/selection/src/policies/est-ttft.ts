/**
 * est-ttft: an estimate of the time to the first token, in milliseconds.
 *
 *   cost = prefillMsPerToken · (queued prefill tokens + new tokens)
 *        + attentionMsPerMillionPairs · new tokens · CONTEXT_SHARE · prompt tokens / 1,000,000
 *
 * It does not look at requests that decode.
 *
 * Source   the rule of Mooncake's scheduler, without the transfer of blocks between workers.
 */

import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'

/**
 * Part of the prompt that a new token attends to on average: between half of it, for a cold prompt, and
 * nearly all of it.
 */
const CONTEXT_SHARE = 0.6

export const estTtft: Policy = {
  name: 'est-ttft',
  terms: [
    { name: 'queued_prefill_ms', unit: 'ms', means: 'Time for the prompts that are queued there.' },
    { name: 'prefill_ms', unit: 'ms', means: 'Time for the new tokens of this prompt, without attention.' },
    {
      name: 'attention_ms',
      unit: 'ms',
      means: 'Time for the attention of its new tokens to the tokens before them.',
    },
  ],
  rules: [{ name: 'est-ttft', formula: 'queued_prefill_ms + prefill_ms + attention_ms', unit: 'ms' }],

  score(
    { count },
    { promptTokens },
    { prefillMsPerToken, attentionMsPerMillionPairs },
    { newTokens, prefillTokens, ofPolicy, cost },
  ) {
    const attentionMsPerToken = (attentionMsPerMillionPairs / 1e6) * CONTEXT_SHARE * promptTokens
    for (let i = 0, term = 0; i < count; i++, term += POLICY_TERMS_MAX) {
      const tokens = newTokens[i]!
      const queuedMs = prefillMsPerToken * (prefillTokens[i]! - tokens)
      const prefillMs = prefillMsPerToken * tokens
      const attentionMs = attentionMsPerToken * tokens
      ofPolicy[term] = queuedMs
      ofPolicy[term + 1] = prefillMs
      ofPolicy[term + 2] = attentionMs
      cost[i] = queuedMs + prefillMs + attentionMs
    }
    return 0
  },
}
