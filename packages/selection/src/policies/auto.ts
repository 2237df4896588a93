/**
 * auto: what a placement costs in milliseconds, to the request itself, to those that are there, and to those that come.
 *
 *   cost = wait + prefill + later + evict + decode + others + unsure
 *
 *   n        tokens to compute: those that neither are cached nor will be when its turn comes, since a request there has them in its prompt;
 *            in s = ⌈n/step⌉ steps;  x = p0·s + p1·m + p2·n·(prompt − n/2): its prefill alone, where m is n, and what the last
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
 *   B backlog in ms, g = q0 + q1·d + q2·C a decode step, d decoding requests with C tokens, L requests, o expected output,
 *   R = o·g·(e + ½)/(r + 1) if its KV cache has no room: e requests must end first, of r that run,
 *   b = min(1, churn/4), 1 for a worker that has a request,
 *   ρ share of workers with a prompt in their queue, churn = new tokens of late ÷ the mean of all workers
 *
 * w is what a millisecond of decoding counts: 1 in an idle fleet, where a millisecond is a millisecond; down to the share of
 * its time that a request spends waiting as queues fill, because then prefill is what is short: max(waiting share, (1 − ρ)^8).
 * A tenth of that for a prompt of which nobody else uses what is cached, as of a conversation: to be computed anew elsewhere
 * comes back to nobody, and a hundredth of such moves is the 99th percentile of the time to the first token. A prompt that
 * others share moves with less regret: what is computed there serves those that come.
 * In an idle fleet nobody has to be held up: there is room elsewhere. That is what the factor 30 says, and only there, and only for what
 * is felt: beyond f steps, f = ½ for a prompt that others share, 4 for one that would be computed anew for nobody else.
 * The prices for others stop growing at twice the mean prefill: a very long prompt would else wait for its cached blocks behind
 * everybody, and that is the 99th percentile of the time to the first token. What is about to be cached
 * does not count if its tokens would take longer than that: all who share a long prefix would else wait for the first of them, and what many
 * want would have one copy only.
 *
 * Source   the steps are those of an engine with chunked prefill; the prices for others and the weight of what is shared were found by simulation.
 */

import { STEP_TOKENS_DEFAULT, shortOfKnee } from '@homing/load'
import type { Policy } from '../policy.ts'

const PRICED_PREFILLS_MAX = 2
const EVICT_EXPONENT = 4
/** Tokens that fit into a cache whose size its engine does not say: a few tens of gigabytes of a mid-sized model. */
const CAPACITY_UNKNOWN = 262_144
const IDLE_EXPONENT = 8
/** Of w, for a prompt whose cached blocks nobody else uses. */
const UNSHARED_WEIGHT = 0.1
/** What holding up somebody costs in an idle fleet beyond the time that it takes, and how fast that falls as queues fill. */
const HOLD_UP_PRICE = 30
const HOLD_UP_EXPONENT = 24
/** Decode steps that somebody is held up before that price begins: for a prompt that others use, and for one whose cached blocks nobody else uses. */
const FREE_STEPS = 0.5
const FREE_STEPS_UNSHARED = 4
/** A cache that holds less than this share was emptied, as when its engine starts again. One under load has so much that nobody refers to. */
const EMPTY_SHARE = 0.5
/** Who was sent so many times the new tokens of the mean worker costs UNSURE_MS more for a prompt that nobody holds. */
const CHURN_MAX = 4
/** The first request whose end is waited for is halfway to it. */
const FIRST_END_SHARE = 0.5
/** Differences of learned times below this are noise: of timers, of queues of the system, of the few requests that taught them. */
const UNSURE_MS = 2

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
      heldBlocks,
      kvCapacityTokens,
      newBlocks,
      soughtBlocks,
      stepTokens,
    },
    { promptTokens, blockSizeTokens },
    { overlapCredit },
    { newTokens, ofPolicy, cost },
  ) {
    if (engines === undefined) throw new RangeError('cannot score by policy auto without candidates.engines')
    const waits = ofPolicy[0]!
    const prefills = ofPolicy[1]!
    const laters = ofPolicy[2]!
    const evicts = ofPolicy[3]!
    const decodes = ofPolicy[4]!
    const othersOf = ofPolicy[5]!
    const unsures = ofPolicy[6]!
    const { coefficients, kneeTokens, busyShare, outputTokensExpected: output } = engines
    const { backlogMs, churn, contextTokens, decoding: decodings, queuedTokens, requests: running } = engines
    const laterPrice = busyShare / (1 - busyShare)
    const evictPrice = (1 - busyShare) ** EVICT_EXPONENT
    const idlePrice = Math.max(engines.waitingShare, (1 - busyShare) ** IDLE_EXPONENT)
    const holdUpPrice = HOLD_UP_PRICE * (1 - busyShare) ** HOLD_UP_EXPONENT
    const sought = soughtBlocks ?? Math.floor(promptTokens / blockSizeTokens)
    let newTokensMin = promptTokens
    let sharedTokensMax = 0
    for (let i = 0; i < count; i++) {
      newTokensMin = Math.min(newTokensMin, newTokens[i]!)
      sharedTokensMax = Math.max(sharedTokensMax, (sought - newBlocks[i]!) * blockSizeTokens)
    }
    const isUnshared = sharedTokensMax <= promptTokens - newTokensMin - blockSizeTokens
    const decodePrice = isUnshared ? UNSHARED_WEIGHT * idlePrice : idlePrice
    const freeSteps = isUnshared ? FREE_STEPS_UNSHARED : FREE_STEPS
    const pricedMax = engines.prefillMeanMs > 0 ? PRICED_PREFILLS_MAX * engines.prefillMeanMs : Infinity
    const heldTokens = promptTokens + output / 2
    const landedShare = blockSizeTokens * overlapCredit
    const unsurePerToken = promptTokens > 0 ? UNSURE_MS / promptTokens : 0
    for (let i = 0, c = 0; i < count; i++, c += 6) {
      const p0 = coefficients[c]!
      const p1 = coefficients[c + 1]!
      const p2 = coefficients[c + 2]!
      const q0 = coefficients[c + 3]!
      const q1 = coefficients[c + 4]!
      const q2 = coefficients[c + 5]!
      const step = stepTokens?.[i] ?? STEP_TOKENS_DEFAULT
      const inactive = newBlocks[i]!
      let tokens = newTokens[i]!
      if (inactive < sought) {
        const landed = (sought - inactive) * landedShare * creditFactors[i]!
        const unlanded = Math.max(1, promptTokens - landed)
        if (unlanded < tokens && p1 * (tokens - unlanded) <= pricedMax) tokens = unlanded
      }
      const steps = Math.ceil(tokens / step)
      const charged = tokens + shortOfKnee(tokens - (steps - 1) * step, step, kneeTokens)
      const attention = p2 * (promptTokens - tokens / 2)
      const prefill = p0 * steps + p1 * charged + attention * tokens
      const priced = Math.min(prefill, pricedMax)
      const context = contextTokens[i]!
      const queued = queuedTokens[i]!
      const requests = running[i]!
      const decoding = decodings[i]!
      const capacity = kvCapacityTokens?.[i] ?? 0
      const addedMs = q1 * decoding + q2 * context
      const stepMs = q0 + addedMs
      const shared = decoding > 0 ? stepMs / 2 + addedMs * Math.ceil((tokens + queued) / step) : 0
      const reserved = output * (requests + 1)
      let before = backlogMs[i]!
      if (capacity > 0 && requests > 0) {
        const active = activeBlocks[i]! * blockSizeTokens
        const missing = active + inactive * blockSizeTokens + reserved - capacity
        if (missing > 0)
          before = Math.max(
            before,
            roomMs(missing, active / requests + output, requests, output * stepMs, capacity),
          )
      }
      const wait = before + shared
      const later = priced * laterPrice
      const holds = capacity > 0 ? capacity : CAPACITY_UNKNOWN
      const held = heldBlocks?.[i] ?? -1
      const isEmptied = held >= 0 && held * blockSizeTokens < EMPTY_SHARE * capacity
      const isFull = engines.receivedTokens[i]! + tokens > holds && !isEmptied
      const evict = isFull ? Math.min((p1 + attention) * tokens, pricedMax) * evictPrice * churn[i]! : 0
      const decode = decodePrice * output * (q0 + q1 * (requests + 1) + q2 * (context + queued + heldTokens))
      const heldUp = Math.max(0, prefill - q0 * steps)
      const felt = heldUp + holdUpPrice * Math.max(0, heldUp - freeSteps * stepMs)
      const others = decodePrice * requests * (felt + ((q1 + q2 * heldTokens) * output) / 2)
      const balance = activeRequests[i]! > 0 ? 1 : Math.min(1, churn[i]! / CHURN_MAX)
      const unsure = unsurePerToken * tokens * (1 + balance)
      waits[i] = wait
      prefills[i] = prefill
      laters[i] = later
      evicts[i] = evict
      decodes[i] = decode
      othersOf[i] = others
      unsures[i] = unsure
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
  return (endMs * (missing / each + FIRST_END_SHARE)) / (running + 1)
}
