/** Settings of `homing router`: prefill and decode on workers of their own (docs/disaggregation.md). */

import type { SettingDescriptor } from '../descriptor.ts'

export const disaggSettings = [
  {
    key: 'enforceDisagg',
    name: 'enforce-disagg',
    group: 'Prefill and decode apart',
    kind: 'flag',
    default: false,
    envAliases: [{ name: 'DYN_ENFORCE_DISAGG' }],
    help: 'Refuse requests with 503 whose prompt no prefill worker (role=prefill) can compute and hand over to a decode worker. Otherwise one decode worker gets such a request whole, with a warning, and homing_gateway_decode_alone_total counts it. Requests that need one worker for all of them (several prompts, echo) are served whole all the same.',
  },
  {
    key: 'disaggRule',
    name: 'disagg-rule',
    group: 'Prefill and decode apart',
    kind: 'choice',
    choices: ['always', 'auto'],
    default: 'always',
    help: 'Which prompts are computed apart. always: all that can be. auto: those that cost less apart, by what prefill, decoding and hand-overs were seen to take and by what waits at each worker; what a prompt takes from those that decode counts in full. Needs --router-policy auto. Costs three more looks at the fleet for each request of a model with prefill workers.',
  },
  {
    key: 'conditionalDisagg',
    name: 'router-conditional-disagg',
    group: 'Prefill and decode apart',
    kind: 'flag',
    default: false,
    envAliases: [{ name: 'DYN_ROUTER_CONDITIONAL_DISAGG' }],
    help: 'Keep a prompt at a decode worker of which so much is cached there that a hand-over does not pay: with fewer new tokens than --router-conditional-disagg-tokens, and a smaller share of them than --router-conditional-disagg-share. Costs one more question to the router for each request of a model with prefill workers. Not for engines that hand over by bootstrap (SGLang).',
  },
  {
    key: 'conditionalDisaggTokens',
    name: 'router-conditional-disagg-tokens',
    group: 'Prefill and decode apart',
    kind: 'integer',
    default: 2048,
    min: 1,
    max: 10_000_000,
    unit: 'tokens',
    help: 'A prompt with as many new tokens or more, at the decode worker that holds most of it, goes to a prefill worker (--router-conditional-disagg).',
  },
  {
    key: 'conditionalDisaggShare',
    name: 'router-conditional-disagg-share',
    group: 'Prefill and decode apart',
    kind: 'number',
    default: 0.7,
    min: 0,
    max: 1,
    help: 'A prompt of which this share of the tokens or more is new there goes to a prefill worker (--router-conditional-disagg).',
  },
] as const satisfies readonly SettingDescriptor[]
