/**
 * auto: what a placement costs in milliseconds, to the request itself, to those that are there, and to those that come.
 *
 *   cost = wait + prefill + later + evict + decode
 *
 *   n        new tokens;  x = p0·⌈n/step⌉ + p1·n + p2·n·(prompt − n/2): its prefill alone;  x' = min(x, 2·mean x)
 *   wait     B + K + g/2 + g·⌈(n + queued)/step⌉    the prompts before it, until blocks are free, and the steps that it
 *            shares with those that decode; K = excess · o · g / held
 *   prefill  x
 *   later    x' · ρ/(1 − ρ)          what a millisecond of prefill costs those that come: as many milliseconds as wait for it
 *   evict    x' · churn · (1 − ρ)^4  new blocks push others out; more of those are missed where the cache turns over faster
 *   decode   w · (o·(q0 + q1·(L + 1) + q2·(C + queued + prompt + o/2))    its own tokens
 *               + x·L                                                    those that its prefill holds up
 *               + (q1 + q2·(prompt + o/2)) · L·o/2)                      the later steps that it makes longer
 *
 *   B backlog in ms, g = q0 + q1·d + q2·C a decode step, d decoding requests with C tokens, L requests, o expected output,
 *   ρ share of workers with a prompt in their queue, churn = new tokens of late ÷ the mean of all workers
 *
 * w is what a millisecond of decoding counts: 1 in an idle fleet, where a millisecond is a millisecond; down to the share of
 * its time that a request spends waiting as queues fill, because then prefill is what is short: max(waiting share, (1 − ρ)^8).
 * The prices for others stop growing at twice the mean prefill: a very long prompt would else wait for its cached blocks behind
 * everybody, and that is the 99th percentile of the time to the first token.
 *
 * Source   the steps are those of an engine with chunked prefill; the two prices for others were found by simulation.
 */

import { STEP_TOKENS_DEFAULT } from '@homing/load'
import type { Policy } from '../policy.ts'

const PRICED_PREFILLS_MAX = 2
const EVICT_EXPONENT = 4
const IDLE_EXPONENT = 8

export const auto: Policy = {
  name: 'auto',
  terms: [
    { name: 'wait_ms', unit: 'ms', means: 'Until its prefill begins, and what decoding there adds to it.' },
    { name: 'prefill_ms', unit: 'ms', means: 'Prefill of its new tokens.' },
    { name: 'later_ms', unit: 'ms', means: 'What its prefill makes those wait that come after it.' },
    {
      name: 'evict_ms',
      unit: 'ms',
      means: 'Prefill that is paid again because its blocks push out others, where caches turn over fast.',
    },
    {
      name: 'decode_ms',
      unit: 'ms',
      means:
        'Its own decoding and what it adds to that of others, times what a millisecond of decoding counts.',
    },
  ],
  rules: [{ name: 'auto', formula: 'wait_ms + prefill_ms + later_ms + evict_ms + decode_ms', unit: 'ms' }],

  score(
    { count, engines, kvCapacityTokens, stepTokens },
    { promptTokens },
    _weights,
    { newTokens, ofPolicy, cost },
  ) {
    if (engines === undefined) throw new RangeError('cannot score by policy auto without candidates.engines')
    const waits = ofPolicy[0]!
    const prefills = ofPolicy[1]!
    const laters = ofPolicy[2]!
    const evicts = ofPolicy[3]!
    const decodes = ofPolicy[4]!
    const { coefficients, busyShare, outputTokensExpected: output } = engines
    const laterPrice = busyShare / (1 - busyShare)
    const evictPrice = (1 - busyShare) ** EVICT_EXPONENT
    const decodePrice = Math.max(engines.waitingShare, (1 - busyShare) ** IDLE_EXPONENT)
    const pricedMax = engines.prefillMeanMs > 0 ? PRICED_PREFILLS_MAX * engines.prefillMeanMs : Infinity
    const heldTokens = promptTokens + output / 2
    for (let i = 0; i < count; i++) {
      const c = 6 * i
      const step = stepTokens?.[i] ?? STEP_TOKENS_DEFAULT
      const q0 = coefficients[c + 3]!
      const q1 = coefficients[c + 4]!
      const q2 = coefficients[c + 5]!
      const tokens = newTokens[i]!
      const prefill =
        coefficients[c]! * Math.ceil(tokens / step) +
        coefficients[c + 1]! * tokens +
        coefficients[c + 2]! * tokens * (promptTokens - tokens / 2)
      const priced = Math.min(prefill, pricedMax)
      const context = engines.contextTokens[i]!
      const queued = engines.queuedTokens[i]!
      const requests = engines.requests[i]!
      const decoding = engines.decoding[i]!
      const held = engines.heldTokens[i]!
      const capacity = kvCapacityTokens?.[i] ?? 0
      const stepMs = q0 + q1 * decoding + q2 * context
      const shared = decoding > 0 ? stepMs / 2 + stepMs * Math.ceil((tokens + queued) / step) : 0
      const excess = capacity > 0 ? held + tokens + output - capacity : 0
      const full = excess > 0 && held > 0 ? (excess * output * stepMs) / held : 0
      const wait = engines.backlogMs[i]! + full + shared
      const later = priced * laterPrice
      const evict = priced * evictPrice * engines.churn[i]!
      const decode =
        decodePrice *
        (output * (q0 + q1 * (requests + 1) + q2 * (context + queued + heldTokens)) +
          prefill * requests +
          ((q1 + q2 * heldTokens) * requests * output) / 2)
      waits[i] = wait
      prefills[i] = prefill
      laters[i] = later
      evicts[i] = evict
      decodes[i] = decode
      cost[i] = wait + prefill + later + evict + decode
    }
    return 0
  },
}
