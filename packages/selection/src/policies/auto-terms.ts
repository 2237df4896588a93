/**
 * The terms of `auto`: what a placement costs in milliseconds, to the request itself, to those that are
 * there, and to those that come.
 *
 *   cost = wait + prefill + later + evict + decode + others + unsure + bonus
 *
 * One pure function for each term, for one worker, in the order of the sum; before them the prices that are
 * the same for all workers, after them the quantities that several terms share. auto.ts has the same sum as a
 * loop over all workers, written out for speed; a property test holds the two equal to the last bit. The docs
 * of a function name its section of docs/decisions/0037-what-auto-weighs.md, where the reasons and
 * measurements are; every number is a row of packages/load/src/auto-constants.ts.
 *
 * Units are in names. Of a PRICE, 1 means that a millisecond costs a millisecond.
 */

import { AUTO_CONSTANTS, type EngineFigures, type EngineProjection } from '@homing/load'
import type { TermDescription } from '../policy.ts'

const { PRICED_PREFILLS_MAX, EVICT_EXPONENT, CAPACITY_TOKENS_ASSUMED, EMPTIED_SHARE } = AUTO_CONSTANTS.cost
const { FIRST_END_REQUESTS, IDLE_EXPONENT, UNSHARED_SHARE, CHURN_MAX, UNSURE_MS } = AUTO_CONSTANTS.cost
const { UNLIKE_WEIGHT, CHANCE_SPREAD, UNLIKE_PRICE_MAX } = AUTO_CONSTANTS.cost
const { HOLD_UP_PRICE, HOLD_UP_EXPONENT, FREE_STEPS_SHARED, FREE_STEPS_UNSHARED } = AUTO_CONSTANTS.cost

/** What is known of all workers together: the part of an engine projection that prices depend on. */
export type AutoFleet = Pick<
  EngineProjection,
  | 'busyShare'
  | 'kneeTokens'
  | 'outputTokensExpected'
  | 'prefillMeanMs'
  | 'speedSpread'
  | 'transferMs'
  | 'transferTokenMs'
  | 'waitingShare'
>

/** The prompt that is placed. */
export interface AutoPrompt {
  readonly promptTokens: number
  readonly blockSizeTokens: number
  /** Blocks of it that were looked for among the active ones. */
  readonly soughtBlocks: number
  /** What a block that will be cached counts for, 0 … 1. */
  readonly overlapCredit: number
  /** See `isUnshared`. */
  readonly isUnshared: boolean
}

/** One worker, as `auto` sees it. */
export interface AutoWorker extends EngineFigures {
  /** Tokens of the prompt that are not credited as cached there. */
  readonly uncachedTokens: number
  /** Blocks of the prompt that are not active there. */
  readonly newBlocks: number
  /** Blocks in use by its running requests. */
  readonly activeBlocks: number
  /** The part of them that is of answers. */
  readonly outputBlocks: number
  /** Requests that are booked there, as the load counts them. */
  readonly activeRequests: number
  /** Blocks that it must read out of pooled memory first; they are not among `uncachedTokens`. */
  readonly readBlocks: number
  /** Blocks that count as cached beside those that are: what labels of blocks add. */
  readonly bonusBlocks: number
  /** How far its caches are believed, 0 … 1. */
  readonly creditFactor: number
  /** Tokens that its KV cache holds; 0 where that is not known. */
  readonly capacityTokens: number
  /** Blocks in its cache, as its events say; −1 where they do not. */
  readonly heldBlocks: number
  /** Tokens that it computes in one step at most. */
  readonly stepTokens: number
}

export interface AutoTerm extends TermDescription {
  /** The term in ms; ≥ 0, but for `bonus_ms`. */
  readonly of: (worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet) => number
}

// ── Prices: the same for all workers ─────────────────────────────────────────────────────────────

/**
 * Whether nobody else uses the cached blocks of the prompt: running requests hold no more of it than caches
 * do, less one block. `newBlocksMin` is the least `newBlocks` of all workers and of `soughtBlocks`,
 * `uncachedTokensMin` the least `uncachedTokens`. docs/decisions/0037, section Choice.
 */
export function isUnshared(
  promptTokens: number,
  blockSizeTokens: number,
  soughtBlocks: number,
  newBlocksMin: number,
  uncachedTokensMin: number,
): boolean {
  const activeTokensMax = (soughtBlocks - newBlocksMin) * blockSizeTokens
  return activeTokensMax <= promptTokens - uncachedTokensMin - blockSizeTokens
}

/** Price of a millisecond of prefill for the requests that come. docs/decisions/0037, section later_ms. */
export function laterPrice({ busyShare }: AutoFleet): number {
  return busyShare / (1 - busyShare)
}

/** Price of a millisecond of prefill whose blocks push out others. docs/decisions/0037, section evict_ms. */
export function evictPrice({ busyShare }: AutoFleet): number {
  return wholePower(1 - busyShare, EVICT_EXPONENT)
}

/** Price of a millisecond of decoding. docs/decisions/0037, section decode_ms. */
export function decodePrice(
  { busyShare, waitingShare, speedSpread }: AutoFleet,
  isUnshared: boolean,
): number {
  const sharedPrice = Math.max(waitingShare, wholePower(1 - busyShare, IDLE_EXPONENT))
  const spreadBeyondChance = Math.max(0, speedSpread - CHANCE_SPREAD)
  const unlikePrice = Math.min(UNLIKE_PRICE_MAX, UNLIKE_WEIGHT * spreadBeyondChance)
  return Math.max(unlikePrice, isUnshared ? UNSHARED_SHARE * sharedPrice : sharedPrice)
}

/**
 * Extra price of a felt millisecond that decoding requests are held up. docs/decisions/0037, section
 * others_ms.
 */
export function holdUpPrice({ busyShare }: AutoFleet): number {
  return HOLD_UP_PRICE * wholePower(1 - busyShare, HOLD_UP_EXPONENT)
}

/**
 * Decode steps that a prompt may hold up others before that is felt. docs/decisions/0037, section others_ms.
 */
export function freeSteps(isUnshared: boolean): number {
  return isUnshared ? FREE_STEPS_UNSHARED : FREE_STEPS_SHARED
}

/**
 * The longest prefill that others pay for, in ms; Infinity before any was seen. docs/decisions/0037, section
 * later_ms.
 */
export function pricedPrefillMsMax({ prefillMeanMs }: AutoFleet): number {
  return prefillMeanMs > 0 ? PRICED_PREFILLS_MAX * prefillMeanMs : Infinity
}

/** What is not certain of a new token, in ms a token. docs/decisions/0037, section unsure_ms. */
export function unsureMsPerToken(promptTokens: number): number {
  return promptTokens > 0 ? UNSURE_MS / promptTokens : 0
}

// ── Terms, in ms ─────────────────────────────────────────────────────────────────────────────────

/**
 * Until its prefill begins or there is room, and what decoding adds to it. docs/decisions/0037, section
 * wait_ms.
 */
export function waitMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const freeInMs = Math.max(worker.backlogMs, roomMs(worker, prompt, fleet), readMs(worker, prompt, fleet))
  return freeInMs + decodeDelayMs(worker, newTokens(worker, prompt, fleet))
}

/** Prefill of its new tokens alone. docs/decisions/0037, section prefill_ms. */
export function prefillMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const tokens = newTokens(worker, prompt, fleet)
  const steps = stepsOf(tokens, worker.stepTokens)
  return (
    worker.prefillStepMs * steps +
    worker.prefillTokenMs * chargedTokens(tokens, worker.stepTokens, fleet.kneeTokens) +
    attentionMsPerToken(worker, prompt, tokens) * tokens
  )
}

/** What its prefill makes the requests wait that come after it. docs/decisions/0037, section later_ms. */
export function laterMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  return Math.min(prefillMs(worker, prompt, fleet), pricedPrefillMsMax(fleet)) * laterPrice(fleet)
}

/** Prefill that is paid again because its blocks push out others. docs/decisions/0037, section evict_ms. */
export function evictMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const tokens = newTokens(worker, prompt, fleet)
  if (!pushesOut(worker, prompt, tokens)) return 0
  const tokensMs = (worker.prefillTokenMs + attentionMsPerToken(worker, prompt, tokens)) * tokens
  return Math.min(tokensMs, pricedPrefillMsMax(fleet)) * evictPrice(fleet) * worker.churn
}

/** Its own decoding. docs/decisions/0037, section decode_ms. */
export function decodeMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const { decodeStepMs, decodeRequestMs, decodeTokenMs, requests, contextTokens, queuedTokens } = worker
  const ownStepMs =
    decodeStepMs +
    decodeRequestMs * requests +
    decodeTokenMs * (contextTokens + queuedTokens) +
    addedStepMs(worker, prompt, fleet)
  return decodePrice(fleet, prompt.isUnshared) * fleet.outputTokensExpected * ownStepMs
}

/** What it adds to the decoding of others. docs/decisions/0037, section others_ms. */
export function othersMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const price = decodePrice(fleet, prompt.isUnshared)
  const stepsLeft = (price * fleet.outputTokensExpected) / 2
  const delayMs = price * feltDelayMs(worker, prompt, fleet)
  return worker.requests * (delayMs + stepsLeft * addedStepMs(worker, prompt, fleet))
}

/** Within this, the other terms cannot tell workers apart. docs/decisions/0037, section unsure_ms. */
export function unsureMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const { activeRequests, churn } = worker
  const doubts = activeRequests > 0 || churn > CHURN_MAX ? 2 : 1 + churn / CHURN_MAX
  return unsureMsPerToken(prompt.promptTokens) * newTokens(worker, prompt, fleet) * doubts
}

/**
 * What labels of blocks count for beyond time: less, by at most what it costs until the first token.
 * docs/decisions/0037, section bonus_ms.
 */
export function bonusMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const { bonusBlocks, prefillTokenMs, prefillPairMs } = worker
  if (!(bonusBlocks > 0)) return 0
  const tokenMs = prefillTokenMs + (prefillPairMs * prompt.promptTokens) / 2
  const savedMs = bonusBlocks * prompt.blockSizeTokens * tokenMs
  return 0 - Math.min(savedMs, waitMs(worker, prompt, fleet) + prefillMs(worker, prompt, fleet))
}

/** The terms as receipts show them, in the order of the sum. */
export const AUTO_TERMS: readonly AutoTerm[] = [
  {
    name: 'wait_ms',
    unit: 'ms',
    means:
      'Until its prefill begins, there is room for it, and its pooled blocks are read; and what decoding there adds to it.',
    of: waitMs,
  },
  {
    name: 'prefill_ms',
    unit: 'ms',
    means: 'Prefill of its tokens that neither are cached there nor will be when its turn comes.',
    of: prefillMs,
  },
  {
    name: 'later_ms',
    unit: 'ms',
    means: 'What its prefill makes those wait that come after it.',
    of: laterMs,
  },
  {
    name: 'evict_ms',
    unit: 'ms',
    means: 'Prefill that is paid again because its blocks push out others, where caches turn over fast.',
    of: evictMs,
  },
  {
    name: 'decode_ms',
    unit: 'ms',
    means: 'Its own decoding, times what a millisecond of decoding counts.',
    of: decodeMs,
  },
  {
    name: 'others_ms',
    unit: 'ms',
    means: 'What it adds to the decoding of others, times what a millisecond of decoding counts.',
    of: othersMs,
  },
  {
    name: 'unsure_ms',
    unit: 'ms',
    means:
      'For the share of the prompt that is new there, more where more was new of late: within this the other terms cannot tell workers apart.',
    of: unsureMs,
  },
  {
    name: 'bonus_ms',
    unit: 'ms',
    means:
      'What matching experts, and pooled blocks that weigh more than others, take off; at most what it costs until the first token.',
    of: bonusMs,
  },
]

// ── What terms share ─────────────────────────────────────────────────────────────────────────────

/**
 * Tokens that the worker must compute: those that neither are cached there nor will be when its turn comes,
 * because a running request has them in its prompt. The latter credit is left out if it is worth more than
 * the longest priced prefill. docs/decisions/0037, section prefill_ms.
 */
export function newTokens(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const { uncachedTokens, newBlocks, creditFactor, prefillTokenMs } = worker
  const { promptTokens, blockSizeTokens, soughtBlocks, overlapCredit } = prompt
  const soonCachedTokens = blockSizeTokens * overlapCredit * creditFactor * (soughtBlocks - newBlocks)
  const remainingTokens = Math.max(promptTokens - soonCachedTokens, 1)
  if (remainingTokens >= uncachedTokens) return uncachedTokens
  const creditMs = prefillTokenMs * (uncachedTokens - remainingTokens)
  return creditMs <= pricedPrefillMsMax(fleet) ? remainingTokens : uncachedTokens
}

/**
 * Until the blocks that it reads out of pooled memory are there, in ms: as long as transfers between workers
 * take. The worker computes other prompts meanwhile. docs/decisions/0037, section wait_ms.
 */
export function readMs(
  { readBlocks }: AutoWorker,
  { blockSizeTokens }: AutoPrompt,
  { transferMs, transferTokenMs }: AutoFleet,
): number {
  return readBlocks > 0 ? transferMs + transferTokenMs * readBlocks * blockSizeTokens : 0
}

/** Engine steps of so many tokens, at least one. */
export function stepsOf(tokens: number, stepTokens: number): number {
  return tokens <= stepTokens ? 1 : Math.ceil(tokens / stepTokens)
}

/** Tokens, and what the last step lacks to the knee. docs/decisions/0037, section The knee. */
export function chargedTokens(tokens: number, stepTokens: number, kneeTokens: number): number {
  const lastTokens = tokens - (stepsOf(tokens, stepTokens) - 1) * stepTokens
  const leastTokens = Math.min(stepTokens, kneeTokens)
  return lastTokens < leastTokens ? tokens + leastTokens - lastTokens : tokens
}

/** Attention of a new token to the tokens before it, in ms, as a mean over the new tokens. */
export function attentionMsPerToken(
  { prefillPairMs }: EngineFigures,
  { promptTokens }: AutoPrompt,
  tokens: number,
): number {
  return prefillPairMs * (promptTokens - tokens / 2)
}

/** What requests and contexts add to a decode step there, in ms. */
export function decodeLoadMs({
  decoding,
  contextTokens,
  decodeRequestMs,
  decodeTokenMs,
}: EngineFigures): number {
  return decodeRequestMs * decoding + decodeTokenMs * contextTokens
}

/** What a decode step takes there now, in ms. docs/decisions/0037, section Choice. */
export function decodeStepMsNow(worker: EngineFigures): number {
  return worker.decodeStepMs + decodeLoadMs(worker)
}

/**
 * What this request adds to each decode step, in ms, halfway through its answer. docs/decisions/0037, section
 * others_ms.
 */
export function addedStepMs(
  { decodeRequestMs, decodeTokenMs }: EngineFigures,
  { promptTokens }: AutoPrompt,
  { outputTokensExpected }: AutoFleet,
): number {
  return decodeRequestMs + decodeTokenMs * (promptTokens + outputTokensExpected / 2)
}

/**
 * What decoding there adds until the first token, in ms: half of the step that is under way, and a part of
 * each step of the prompts before it and of its own. docs/decisions/0037, section wait_ms.
 */
export function decodeDelayMs(worker: AutoWorker, tokens: number): number {
  if (!(worker.decoding > 0)) return 0
  const stepsBefore = stepsOf(tokens + worker.queuedTokens, worker.stepTokens)
  return decodeStepMsNow(worker) / 2 + decodeLoadMs(worker) * stepsBefore
}

/**
 * Until the KV cache has room for the prompt and all outputs, in ms; 0 where it has, or where its size is not
 * known. Enough running requests must end, which all take as long. What answers have sent is a part of what
 * is expected of them, until it is more. docs/decisions/0037, section wait_ms.
 */
export function roomMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const { capacityTokens, requests, activeBlocks, outputBlocks, newBlocks } = worker
  const { blockSizeTokens } = prompt
  const outputTokens = fleet.outputTokensExpected
  if (!(capacityTokens > 0 && requests > 0)) return 0
  const sentTokens = Math.min(outputBlocks * blockSizeTokens, outputTokens * requests)
  const missingTokens =
    outputTokens * (requests + 1) - capacityTokens + (activeBlocks + newBlocks) * blockSizeTokens - sentTokens
  if (!(missingTokens > 0)) return 0
  const tokensEach = (activeBlocks * blockSizeTokens - sentTokens) / requests + outputTokens
  const answerMs = outputTokens * decodeStepMsNow(worker)
  return roomMsOf(missingTokens, tokensEach, requests, answerMs, capacityTokens)
}

/**
 * Until enough requests of `tokensEach` have ended to free `missingTokens` of a cache of `capacityTokens`, in
 * ms. `answerMs`: from the first token of an answer to its last.
 */
export function roomMsOf(
  missingTokens: number,
  tokensEach: number,
  requests: number,
  answerMs: number,
  capacityTokens: number,
): number {
  const running = Math.max(1, Math.min(requests, capacityTokens / tokensEach))
  return (answerMs * (missingTokens / tokensEach + FIRST_END_REQUESTS)) / (running + 1)
}

/** Whether new tokens push other blocks out of the cache. docs/decisions/0037, section evict_ms. */
export function pushesOut(worker: AutoWorker, { blockSizeTokens }: AutoPrompt, tokens: number): boolean {
  const { receivedTokens, capacityTokens, heldBlocks } = worker
  const capacity = capacityTokens > 0 ? capacityTokens : CAPACITY_TOKENS_ASSUMED
  return receivedTokens + tokens > capacity && !isEmptied(heldBlocks, blockSizeTokens, capacityTokens)
}

/** Whether a cache was emptied, as its events say. docs/decisions/0037, section evict_ms. */
export function isEmptied(heldBlocks: number, blockSizeTokens: number, capacityTokens: number): boolean {
  return heldBlocks >= 0 && heldBlocks * blockSizeTokens < EMPTIED_SHARE * capacityTokens
}

/**
 * How long its prefill holds up one decoding request, in ms, with what is felt of that at its extra price.
 * docs/decisions/0037, section others_ms.
 */
export function feltDelayMs(worker: AutoWorker, prompt: AutoPrompt, fleet: AutoFleet): number {
  const steps = stepsOf(newTokens(worker, prompt, fleet), worker.stepTokens)
  const delayMs = Math.max(prefillMs(worker, prompt, fleet) - worker.decodeStepMs * steps, 0)
  const feltMs = delayMs - freeSteps(prompt.isUnshared) * decodeStepMsNow(worker)
  return feltMs > 0 ? delayMs + holdUpPrice(fleet) * feltMs : delayMs
}

/** `base` to a whole `exponent` ≥ 1. The operator takes three times as long, three times in a decision. */
function wholePower(base: number, exponent: number): number {
  let power = 1
  for (let square = base, left = exponent; left > 0; left >>= 1, square *= square)
    if ((left & 1) === 1) power *= square
  return power
}
