/**
 * auto: the cost of a placement in milliseconds, for all workers at once.
 *
 *   cost = wait + prefill + later + evict + decode + others + unsure + bonus
 *
 * auto-terms.ts defines the terms, one function each, and says what they mean;
 * docs/decisions/0037-what-auto-weighs.md says why. The loop below computes the same for every worker, to the
 * last bit: a property test compares them. It does not call the functions, since that takes 10 to 25 % longer
 * with 1,024 workers. A comment names the function that the lines under it stand for.
 */

import { AUTO_CONSTANTS, FIGURE_OFFSET, FIGURES_PER_SLOT, STEP_TOKENS_DEFAULT } from '@homing/load'
import { POLICY_TERMS_MAX, type Policy } from '../policy.ts'
import {
  AUTO_TERMS,
  decodePrice,
  evictPrice,
  freeSteps,
  holdUpPrice,
  isEmptied,
  isUnshared,
  laterPrice,
  pricedPrefillMsMax,
  roomMsOf,
  unsureMsPerToken,
} from './auto-terms.ts'

// Constants of this module: read from the imported object, or imported one by one, they make a decision 5 %
// slower.
const { CAPACITY_TOKENS_ASSUMED, CHURN_MAX } = AUTO_CONSTANTS.cost
const { backlogMs: BACKLOG_MS, queuedTokens: QUEUED_TOKENS, receivedTokens: RECEIVED_TOKENS } = FIGURE_OFFSET
const { requests: REQUESTS, decoding: DECODING, contextTokens: CONTEXT_TOKENS, churn: CHURN } = FIGURE_OFFSET
const { prefillStepMs: PREFILL_STEP_MS, prefillTokenMs: PREFILL_TOKEN_MS } = FIGURE_OFFSET
const { prefillPairMs: PREFILL_PAIR_MS, decodeStepMs: DECODE_STEP_MS } = FIGURE_OFFSET
const { decodeRequestMs: DECODE_REQUEST_MS, decodeTokenMs: DECODE_TOKEN_MS } = FIGURE_OFFSET

export const auto: Policy = {
  name: 'auto',
  // Without their functions: receipts are sent between threads.
  terms: AUTO_TERMS.map(({ name, unit, means }) => ({ name, unit, means })),
  rules: [{ name: 'auto', formula: AUTO_TERMS.map(({ name }) => name).join(' + '), unit: 'ms' }],

  score(
    {
      count,
      engines,
      activeBlocks,
      activeRequests,
      bonusBlocks,
      creditFactors,
      heldBlocksOf,
      kvCapacityTokens,
      newBlocks,
      outputBlocks,
      readBlocks,
      soughtBlocks,
      stepTokens,
    },
    { promptTokens, blockSizeTokens },
    { overlapCredit },
    { newTokens: uncachedTokens, newTokensMin: uncachedTokensMin, ofPolicy, cost },
  ) {
    if (engines === undefined) throw new RangeError('cannot score by policy auto without candidates.engines')
    const { figures, kneeTokens, outputTokensExpected: output, transferMs, transferTokenMs } = engines
    const sought = soughtBlocks ?? Math.floor(promptTokens / blockSizeTokens)
    // A smaller minimum can only make it shared: the first one that does ends the search.
    let isAlone = isUnshared(promptTokens, blockSizeTokens, sought, sought, uncachedTokensMin)
    for (let i = 0, newBlocksMin = sought; isAlone && i < count; i++) {
      if (newBlocks[i]! >= newBlocksMin) continue
      newBlocksMin = newBlocks[i]!
      isAlone = isUnshared(promptTokens, blockSizeTokens, sought, newBlocksMin, uncachedTokensMin)
    }
    const priceOfLater = laterPrice(engines)
    const priceOfEviction = evictPrice(engines)
    const priceOfDecoding = decodePrice(engines, isAlone)
    const priceOfOutput = priceOfDecoding * output
    const priceOfHoldUp = holdUpPrice(engines)
    const stepsFree = freeSteps(isAlone)
    const pricedMsMax = pricedPrefillMsMax(engines)
    const unsurePerToken = unsureMsPerToken(promptTokens)
    const halfwayTokens = promptTokens + output / 2
    const creditPerBlock = blockSizeTokens * overlapCredit
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
      const prefillTokenMs = figures[(at + PREFILL_TOKEN_MS) | 0]!
      const decodeStepMs = figures[(at + DECODE_STEP_MS) | 0]!
      const decodeRequestMs = figures[(at + DECODE_REQUEST_MS) | 0]!
      const decodeTokenMs = figures[(at + DECODE_TOKEN_MS) | 0]!
      const step = stepTokens === undefined ? STEP_TOKENS_DEFAULT : stepTokens[i]!
      const capacity = kvCapacityTokens === undefined ? 0 : kvCapacityTokens[i]!
      const inactive = newBlocks[i]!

      // newTokens
      let tokens = uncachedTokens[i]!
      if (inactive < sought) {
        const soonCached = creditPerBlock * creditFactors[i]! * (sought - inactive)
        const remaining = Math.max(promptTokens - soonCached, 1)
        if (remaining < tokens && prefillTokenMs * (tokens - remaining) <= pricedMsMax) tokens = remaining
      }

      // prefillMs: stepsOf, chargedTokens, attentionMsPerToken
      const steps = tokens <= step ? 1 : Math.ceil(tokens / step)
      const last = tokens - (steps - 1) * step
      const least = Math.min(step, kneeTokens)
      const charged = last < least ? tokens + least - last : tokens
      const attention = figures[(at + PREFILL_PAIR_MS) | 0]! * (promptTokens - tokens / 2)
      const prefill =
        figures[(at + PREFILL_STEP_MS) | 0]! * steps + prefillTokenMs * charged + attention * tokens

      // waitMs: decodeLoadMs, decodeStepMsNow, roomMs, readMs, decodeDelayMs
      const loadMs = decodeRequestMs * decoding + decodeTokenMs * context
      const stepMs = decodeStepMs + loadMs
      let wait = figures[(at + BACKLOG_MS) | 0]!
      if (capacity > 0 && requests > 0) {
        const active = activeBlocks[i]!
        const sent =
          outputBlocks === undefined ? 0 : Math.min(outputBlocks[i]! * blockSizeTokens, output * requests)
        const missing = output * (requests + 1) - capacity + (active + inactive) * blockSizeTokens - sent
        if (missing > 0) {
          const each = (active * blockSizeTokens - sent) / requests + output
          wait = Math.max(wait, roomMsOf(missing, each, requests, output * stepMs, capacity))
        }
      }
      // readMs
      const read = readBlocks === undefined ? 0 : readBlocks[i]!
      if (read > 0) wait = Math.max(wait, transferMs + transferTokenMs * read * blockSizeTokens)
      if (decoding > 0) {
        const before = tokens + queued
        wait += stepMs / 2 + loadMs * (before <= step ? 1 : Math.ceil(before / step))
      }

      // laterMs
      const later = Math.min(prefill, pricedMsMax) * priceOfLater

      // evictMs: pushesOut
      let evict = 0
      if (
        figures[(at + RECEIVED_TOKENS) | 0]! + tokens >
        (capacity > 0 ? capacity : CAPACITY_TOKENS_ASSUMED)
      ) {
        const held = heldBlocksOf === undefined ? -1 : heldBlocksOf(i)
        if (!isEmptied(held, blockSizeTokens, capacity))
          evict = Math.min((prefillTokenMs + attention) * tokens, pricedMsMax) * priceOfEviction * churn
      }

      // decodeMs: addedStepMs
      const addedMs = decodeRequestMs + decodeTokenMs * halfwayTokens
      const decode =
        priceOfOutput *
        (decodeStepMs + decodeRequestMs * requests + decodeTokenMs * (context + queued) + addedMs)

      // othersMs: feltDelayMs
      const delay = Math.max(prefill - decodeStepMs * steps, 0)
      const felt = delay - stepsFree * stepMs
      const priced = felt > 0 ? delay + priceOfHoldUp * felt : delay
      const others = requests * (priceOfDecoding * priced + (priceOfOutput / 2) * addedMs)

      // unsureMs
      const doubts = activeRequests[i]! > 0 || churn > CHURN_MAX ? 2 : 1 + churn / CHURN_MAX
      const unsure = unsurePerToken * tokens * doubts

      // bonusMs
      const extra = bonusBlocks === undefined ? 0 : bonusBlocks[i]!
      let bonus = 0
      if (extra > 0) {
        const tokenMs = prefillTokenMs + (figures[(at + PREFILL_PAIR_MS) | 0]! * promptTokens) / 2
        bonus = 0 - Math.min(extra * blockSizeTokens * tokenMs, wait + prefill)
      }

      ofPolicy[term] = wait
      ofPolicy[(term + 1) | 0] = prefill
      ofPolicy[(term + 2) | 0] = later
      ofPolicy[(term + 3) | 0] = evict
      ofPolicy[(term + 4) | 0] = decode
      ofPolicy[(term + 5) | 0] = others
      ofPolicy[(term + 6) | 0] = unsure
      ofPolicy[(term + 7) | 0] = bonus
      cost[i] = wait + prefill + later + evict + decode + others + unsure + bonus
    }
    return 0
  },
}
