/**
 * auto: what a placement costs in milliseconds, to the request itself, to those that are there, and to those that come.
 *
 *   cost = wait + prefill + later + evict + decode + others + unsure
 *
 *   n        tokens to compute: those that neither are cached nor will be when its turn comes, since a request there has them in its prompt;
 *            in s = ⌈n/step⌉ steps, at least one;  x = p0·s + p1·m + p2·n·(prompt − n/2): its prefill alone, where m is n, and what the last
 *            step has less than the knee;  x' = min(x, 2·mean x);  x″ = min(p1·n + p2·n·(prompt − n/2), 2·mean x): what its tokens add
 *   wait     max(B, R) + g/2 + (g − q0)·⌈(n + queued)/step⌉   the prompts before it, or room for it; where some decode, also half of the
 *            step that is under way and what decoding adds to the steps of a prompt. Those steps have their fixed time q0 but once: it is in x
 *   prefill  x
 *   later    x' · ρ/(1 − ρ)              what a millisecond of prefill costs those that come: as many milliseconds as wait for it
 *   evict    x″ · churn · (1 − ρ)^4      new blocks push others out; more of those are missed where the cache turns over faster.
 *            Nothing is pushed out of a cache until it was sent as many new tokens as it holds, nor while its events say that it is not half full
 *   decode   w · o·(q0 + q1·(L + 1) + q2·(C + queued + prompt + o/2))   its own tokens
 *   others   w · ((h + 30·(1 − ρ)^24 · max(0, h − f·g))·L    h = max(0, x − q0·s): what its prefill holds up those that decode: they get
 *               + (q1 + q2·(prompt + o/2)) · L·o/2)          a token with each step of it; and the later steps that it makes longer
 *
 *   unsure   2 ms · n/prompt · (1 + b)   what is learned is no more exact than this. Within it, a prompt stays with its blocks, and one that
 *            no worker holds goes to an idle worker where the least was new of late: those that share its prefix will follow it
 *
 *   B backlog in ms: own bookings, and what is overdue where others use the workers (unseen-load.ts); g = q0 + q1·d + q2·C a decode step,
 *   d decoding requests with C tokens, L requests, o expected output,
 *   R = o·g·(e + ½)/(r + 1) if its KV cache has no room: e requests must end first, of r that run,
 *   b = min(1, churn/4), 1 for a worker that has a request,
 *   ρ share of workers with a prompt in their queue, churn = new tokens of late ÷ the mean of all workers
 *
 * w is what a millisecond of decoding counts: 1 in an idle fleet, where a millisecond is a millisecond; down to the share of
 * its time that a request spends waiting as queues fill, because then prefill is what is short: max(waiting share, (1 − ρ)^8).
 * A tenth of that for a prompt of which nobody else uses what is cached, as of a conversation: to be computed anew elsewhere
 * comes back to nobody, and a hundredth of such moves is the 99th percentile of the time to the first token. A prompt that
 * others share moves with less regret: what is computed there serves those that come.
 * Where workers are not alike it is min(0.05, 0.22 · (v − 0.1)) at least, v = standard deviation ÷ mean of q0: else the fast ones, for the
 * sake of their prefill, would get more requests than they can decode.
 * In an idle fleet nobody has to be held up: there is room elsewhere. That is what the factor 30 says, and only there, and only for what
 * is felt: beyond f steps, f = ½ for a prompt that others share, 4 for one that would be computed anew for nobody else.
 * The prices for others stop growing at twice the mean prefill: a very long prompt would else wait for its cached blocks behind
 * everybody, and that is the 99th percentile of the time to the first token. What is about to be cached
 * does not count if its tokens would take longer than that: all who share a long prefix would else wait for the first of them, and what many
 * want would have one copy only.
 *
 * Source   the steps are those of an engine with chunked prefill; the prices for others and the weight of what is shared were found by simulation.
 */

import { AUTO_CONSTANTS, FIGURE_OFFSET, FIGURES_PER_SLOT, STEP_TOKENS_DEFAULT } from '@homing/load'
import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'

const { PRICED_PREFILLS_MAX, EVICT_EXPONENT, CAPACITY_TOKENS_ASSUMED, EMPTIED_SHARE } = AUTO_CONSTANTS.cost
const { FIRST_END_REQUESTS, IDLE_EXPONENT, UNSHARED_SHARE, CHURN_MAX, UNSURE_MS } = AUTO_CONSTANTS.cost
const { UNLIKE_WEIGHT, CHANCE_SPREAD, UNLIKE_PRICE_MAX } = AUTO_CONSTANTS.cost
const { HOLD_UP_PRICE, HOLD_UP_EXPONENT, FREE_STEPS_SHARED, FREE_STEPS_UNSHARED } = AUTO_CONSTANTS.cost

// Constants of this module: read from the imported object, or imported one by one, they make a decision 5 % slower.
const {
  backlogMs: BACKLOG_MS,
  queuedTokens: QUEUED_TOKENS,
  requests: REQUESTS,
  decoding: DECODING,
} = FIGURE_OFFSET
const { contextTokens: CONTEXT_TOKENS, churn: CHURN, receivedTokens: RECEIVED_TOKENS } = FIGURE_OFFSET
const { prefillStepMs: P0, prefillTokenMs: P1, prefillPairMs: P2 } = FIGURE_OFFSET
const { decodeStepMs: Q0, decodeRequestMs: Q1, decodeTokenMs: Q2 } = FIGURE_OFFSET

export const auto: Policy = {
  name: 'auto',
  terms: [
    {
      name: 'wait_ms',
      unit: 'ms',
      means: 'Until its prefill begins or there is room for it, and what decoding there adds to it.',
    },
    {
      name: 'prefill_ms',
      unit: 'ms',
      means: 'Prefill of its tokens that neither are cached there nor will be when its turn comes.',
    },
    { name: 'later_ms', unit: 'ms', means: 'What its prefill makes those wait that come after it.' },
    {
      name: 'evict_ms',
      unit: 'ms',
      means: 'Prefill that is paid again because its blocks push out others, where caches turn over fast.',
    },
    {
      name: 'decode_ms',
      unit: 'ms',
      means: 'Its own decoding, times what a millisecond of decoding counts.',
    },
    {
      name: 'others_ms',
      unit: 'ms',
      means: 'What it adds to the decoding of others, times what a millisecond of decoding counts.',
    },
    {
      name: 'unsure_ms',
      unit: 'ms',
      means:
        'For the share of the prompt that is new there, more where more was new of late: within this the other terms cannot tell workers apart.',
    },
  ],
  rules: [
    {
      name: 'auto',
      formula: 'wait_ms + prefill_ms + later_ms + evict_ms + decode_ms + others_ms + unsure_ms',
      unit: 'ms',
    },
  ],

  score(
    {
      count,
      engines,
      activeBlocks,
      activeRequests,
      creditFactors,
      heldBlocksOf,
      kvCapacityTokens,
      newBlocks,
      soughtBlocks,
      stepTokens,
    },
    { promptTokens, blockSizeTokens },
    { overlapCredit },
    { newTokens, newTokensMin, ofPolicy, cost },
  ) {
    if (engines === undefined) throw new RangeError('cannot score by policy auto without candidates.engines')
    const { figures, kneeTokens, busyShare, outputTokensExpected: output } = engines
    const laterPrice = busyShare / (1 - busyShare)
    const evictPrice = (1 - busyShare) ** EVICT_EXPONENT
    const idlePrice = Math.max(engines.waitingShare, (1 - busyShare) ** IDLE_EXPONENT)
    const holdUpPrice = HOLD_UP_PRICE * (1 - busyShare) ** HOLD_UP_EXPONENT
    const sought = soughtBlocks ?? Math.floor(promptTokens / blockSizeTokens)
    let newBlocksMin = sought
    for (let i = 0; i < count; i++) if (newBlocks[i]! < newBlocksMin) newBlocksMin = newBlocks[i]!
    const sharedTokensMax = (sought - newBlocksMin) * blockSizeTokens
    const isUnshared = sharedTokensMax <= promptTokens - newTokensMin - blockSizeTokens
    const spread = Math.max(0, engines.speedSpread - CHANCE_SPREAD)
    const decodePriceMin = Math.min(UNLIKE_PRICE_MAX, UNLIKE_WEIGHT * spread)
    const decodePrice = Math.max(decodePriceMin, isUnshared ? UNSHARED_SHARE * idlePrice : idlePrice)
    const decodeWeight = decodePrice * output
    const halfWeight = decodeWeight / 2
    const freeSteps = isUnshared ? FREE_STEPS_UNSHARED : FREE_STEPS_SHARED
    const pricedMax = engines.prefillMeanMs > 0 ? PRICED_PREFILLS_MAX * engines.prefillMeanMs : Infinity
    const heldTokens = promptTokens + output / 2
    const landedShare = blockSizeTokens * overlapCredit
    const unsurePerToken = promptTokens > 0 ? UNSURE_MS / promptTokens : 0
    // `| 0`: without it each index is tested for overflow, which is a tenth of the loop.
    for (
      let i = 0, at = 0, term = 0;
      i < count;
      i++, at = (at + FIGURES_PER_SLOT) | 0, term = (term + POLICY_TERMS_MAX) | 0
    ) {
      const queued = figures[(at + QUEUED_TOKENS) | 0]!
      const requests = figures[(at + REQUESTS) | 0]!
      const decoding = figures[(at + DECODING) | 0]!
      const context = figures[(at + CONTEXT_TOKENS) | 0]!
      const churn = figures[(at + CHURN) | 0]!
      const p0 = figures[(at + P0) | 0]!
      const p1 = figures[(at + P1) | 0]!
      const p2 = figures[(at + P2) | 0]!
      const q0 = figures[(at + Q0) | 0]!
      const q1 = figures[(at + Q1) | 0]!
      const q2 = figures[(at + Q2) | 0]!
      const step = stepTokens === undefined ? STEP_TOKENS_DEFAULT : stepTokens[i]!
      const capacity = kvCapacityTokens === undefined ? 0 : kvCapacityTokens[i]!
      const inactive = newBlocks[i]!
      let tokens = newTokens[i]!
      if (inactive < sought) {
        const landed = landedShare * creditFactors[i]! * (sought - inactive)
        const left = promptTokens - landed
        const unlanded = Math.max(left, 1)
        if (unlanded < tokens && p1 * (tokens - unlanded) <= pricedMax) tokens = unlanded
      }
      const steps = tokens <= step ? 1 : Math.ceil(tokens / step)
      const last = tokens - (steps - 1) * step
      const least = Math.min(step, kneeTokens)
      const charged = last < least ? tokens + least - last : tokens
      const attention = p2 * (promptTokens - tokens / 2)
      const prefill = p0 * steps + p1 * charged + attention * tokens
      const priced = Math.min(prefill, pricedMax)
      const addedMs = q1 * decoding + q2 * context
      const stepMs = q0 + addedMs
      const queuedAndOwn = tokens + queued
      const stepsBefore = queuedAndOwn <= step ? 1 : Math.ceil(queuedAndOwn / step)
      const shared = decoding > 0 ? stepMs / 2 + addedMs * stepsBefore : 0
      let freeInMs = figures[(at + BACKLOG_MS) | 0]!
      if (capacity > 0 && requests > 0) {
        const active = activeBlocks[i]!
        const missing = output * (requests + 1) - capacity + (active + inactive) * blockSizeTokens
        if (missing > 0) {
          const each = (active * blockSizeTokens) / requests + output
          freeInMs = Math.max(freeInMs, roomMs(missing, each, requests, output * stepMs, capacity))
        }
      }
      const wait = freeInMs + shared
      const later = priced * laterPrice
      let evict = 0
      if (
        figures[(at + RECEIVED_TOKENS) | 0]! + tokens >
        (capacity > 0 ? capacity : CAPACITY_TOKENS_ASSUMED)
      ) {
        const held = heldBlocksOf === undefined ? -1 : heldBlocksOf(i)
        const isEmptied = held >= 0 && held * blockSizeTokens < EMPTIED_SHARE * capacity
        if (!isEmptied) evict = Math.min((p1 + attention) * tokens, pricedMax) * evictPrice * churn
      }
      const ownMs = q1 + q2 * heldTokens
      const decode = decodeWeight * (q0 + q1 * requests + q2 * (context + queued) + ownMs)
      const computing = prefill - q0 * steps
      const heldUp = Math.max(computing, 0)
      const beyond = heldUp - freeSteps * stepMs
      const felt = beyond > 0 ? heldUp + holdUpPrice * beyond : heldUp
      const others = requests * (decodePrice * felt + halfWeight * ownMs)
      const unsureTimes = activeRequests[i]! > 0 || churn > CHURN_MAX ? 2 : 1 + churn / CHURN_MAX
      const unsure = unsurePerToken * tokens * unsureTimes
      ofPolicy[term] = wait
      ofPolicy[(term + 1) | 0] = prefill
      ofPolicy[(term + 2) | 0] = later
      ofPolicy[(term + 3) | 0] = evict
      ofPolicy[(term + 4) | 0] = decode
      ofPolicy[(term + 5) | 0] = others
      ofPolicy[(term + 6) | 0] = unsure
      cost[i] = wait + prefill + later + evict + decode + others + unsure
    }
    return 0
  },
}

/**
 * Milliseconds until a KV cache of `capacity` tokens has room for `missing` more: enough of its requests must end, which hold `each` tokens and
 * take `endMs` from their first token to their last.
 */
function roomMs(missing: number, each: number, requests: number, endMs: number, capacity: number): number {
  const running = Math.max(1, Math.min(requests, capacity / each))
  return (endMs * (missing / each + FIRST_END_REQUESTS)) / (running + 1)
}
