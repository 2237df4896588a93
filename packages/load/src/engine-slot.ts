/**
 * Engine slot: the state of an engine book for one worker slot: its open requests, their measured times, and
 * the busy period under observation.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { KNEES, shortOfKnee } from './prefill-costs.ts'

const { CHURN_REQUESTS, RATE_REACH_MS } = AUTO_CONSTANTS.book
const { SLOW_FROM_TIMES, SLOW_TIMES_MAX, SLOW_FREE_MS, SLOW_MS_MAX } = AUTO_CONSTANTS.stranger

/** A request, from when it is sent until it ends. */
export interface BookedRequest {
  readonly id: string
  readonly slot: number
  readonly promptTokens: number
  readonly newTokens: number
  readonly stepTokens: number
  /** Steps that its prefill takes if it runs alone; at least one. */
  readonly prefillSteps: number
  readonly sentMs: number
  /** Time in the router before it was sent. */
  readonly waitedMs: number
  /** Prefill time, estimated when it was sent. */
  readonly prefillMs: number
  /** Time from sending to the first token in ms, estimated when it was sent; ≥ 0. */
  readonly expectedFirstTokenMs: number
  /** `expectedFirstTokenMs` uses learned step times, not the priors. */
  readonly isExpectationLearned: boolean
  /** Time that decoding on the slot was expected to add to its prefill, in ms; ≥ 0. */
  readonly decodeAddedMs: number
  /** No report of its first token will come: the estimated time is used. */
  readonly isSilent: boolean
  /** This router sent it, not another replica. */
  readonly isOwn: boolean
  /** Its prompt is not known: its figures are estimates. */
  readonly isUnknown: boolean
  /** Tokens that are handed over to it, if their time can be seen; −1: it cannot. */
  readonly handedTokens: number
  /** The most tokens that its answer can have; Infinity: not known. */
  readonly outputTokensMax: number
  firstTokenMs: number
  /** Its part of the slot's contextTokens while it decodes. */
  contextTokens: number
  /** prefilledMs, decodingMs and contextMs of the slot, at its first token. */
  prefilledMs: number
  decodingMs: number
  contextMs: number
  /** The busy period in which its prompt was computed; undefined until its first token. */
  period: Period | undefined
  /** The step of its period in which its prompt ended. First tokens that come together are of one step. */
  step: number
  /** It is the first request of its step. */
  isFirstOfStep: boolean
  /** False: its events are reported late, so their times are not known. */
  isTimed: boolean
}

/** Amount of prefill, in the units of the fit. */
export interface Work {
  steps: number
  /** New tokens of each step in which prompts ended. */
  readonly tokensOfStep: (number | undefined)[]
  /** Charged tokens, one figure for each of KNEES. */
  readonly chargedTokens: number[]
  attention: number
}

/**
 * A busy period of a slot. The fit learns from it after all its requests have ended: only then does the
 * engine report how much of their prompts was cached.
 */
export interface Period {
  readonly startMs: number
  decodeMs: number
  lastMs: number
  /** Estimated prefill of its requests, as when they were sent. */
  expectedMs: number
  /** Steps in which prompts ended. */
  ends: number
  /** Its duration without decoding; −1 until it is over, and forever if that cannot be measured. */
  observedMs: number
  /** Its requests that have not ended. */
  open: number
  readonly predicted: Work
  // The next three count its requests that have ended.
  readonly delivered: Work
  requests: number
  unsaid: number
}

/** Open and past bookings of a worker slot. */
export interface Slot {
  /** Requests without a first token, in the order in which they were sent. */
  readonly queue: Set<BookedRequest>
  queuedMs: number
  queuedTokens: number
  requests: number
  decoding: number
  contextTokens: number
  /** New tokens, faded with each request of the fleet; as of request number insertedAt. */
  inserted: number
  insertedAt: number
  /** All new tokens since the slot is known, without fading. */
  receivedTokens: number
  /** Requests that came, faded with time; as of cameAtMs. */
  cameRequests: number
  cameAtMs: number
  /** Earliest time at which the prefill of the head can have begun. */
  headMs: number
  /** Latest `sentMs` of this router's requests that have a first token. */
  newestServedSentMs: number
  /** Estimated time of all prefill done. */
  prefilledMs: number
  /** Integrals of decoding and contextTokens over time, up to integratedMs. */
  decodingMs: number
  contextMs: number
  integratedMs: number
  /** The current busy period. */
  period: Period | undefined
  /** Figures of its engine that cannot be true. */
  disbelieved: number
}

/**
 * Estimated prefill time left in the queue of a slot. The head counts as running since headMs. Time that the
 * head takes beyond its estimate is not added here: see overdueOf.
 */
export function backlogOf(entry: Slot, now: number): number {
  if (entry.queue.size === 0) return 0
  const [head] = entry.queue
  return Math.max(entry.queuedMs - head!.prefillMs, entry.queuedMs - (now - entry.headMs), 0)
}

/**
 * The same where the worker may be slower than known: its queue takes as many times its estimate as its busy
 * period does so far. `weight`, 0 … 1, is how far that is taken for its speed. At most SLOW_MS_MAX more than
 * backlogOf.
 */
export function lateBacklogOf(entry: Slot, now: number, weight: number): number {
  const backlogMs = backlogOf(entry, now)
  const [head] = entry.queue
  if (head === undefined) return 0
  const elapsedMs = now - entry.headMs
  const times = 1 + weight * (lateTimes(entry, head, elapsedMs) - 1)
  const { queuedMs } = entry
  const lateMs = Math.max(times * (queuedMs - head.prefillMs), times * queuedMs - elapsedMs)
  return Math.max(backlogMs, Math.min(backlogMs + SLOW_MS_MAX, lateMs))
}

/**
 * How many times its estimate the prefill of the busy period takes so far, at least 1. A slow worker that is
 * never idle teaches only when its period is over; until then more would be sent there as if it were fast.
 */
function lateTimes({ period, newestServedSentMs }: Slot, head: BookedRequest, headTookMs: number): number {
  let expectedMs = SLOW_FREE_MS
  let tookMs = SLOW_FREE_MS
  if (period !== undefined && period.ends > 0) {
    expectedMs += period.expectedMs
    tookMs += period.lastMs - period.startMs - period.decodeMs
  }
  // One that was overtaken, is told late or does not stream says nothing: see overdueOf.
  const isHeadTold = head.isTimed && !head.isSilent && head.sentMs >= newestServedSentMs
  if (isHeadTold && headTookMs > head.prefillMs) {
    expectedMs += head.prefillMs
    tookMs += headTookMs
  }
  const times = tookMs / expectedMs
  return times < SLOW_FROM_TIMES ? 1 : Math.min(times, SLOW_TIMES_MAX)
}

/** Recent new tokens of the slot, faded to request number `sentTotal` of the fleet. */
export function fadedTokens({ inserted, insertedAt }: Slot, sentTotal: number): number {
  return inserted * Math.exp((insertedAt - sentTotal) / CHURN_REQUESTS)
}

/** The share of what came `agoMs` ago that still counts for the rate. */
export function rateShare(agoMs: number): number {
  return Math.exp(-agoMs / RATE_REACH_MS)
}

/** Advances the integrals of the slot to `now`. */
export function integrate(entry: Slot, now: number): void {
  const elapsed = now - entry.integratedMs
  entry.decodingMs += entry.decoding * elapsed
  entry.contextMs += entry.contextTokens * elapsed
  entry.integratedMs = now
}

/** Adds the prefill of a request to the work of its busy period. */
export function addWork(
  work: Work,
  { promptTokens, stepTokens, step, isFirstOfStep }: BookedRequest,
  newTokens: number,
): void {
  const steps = isFirstOfStep ? Math.max(1, Math.ceil(newTokens / stepTokens)) : 1
  if (isFirstOfStep) work.steps += steps
  const before = work.tokensOfStep[step]
  const after = (before ?? 0) + newTokens - (steps - 1) * stepTokens
  work.tokensOfStep[step] = after
  for (const [at, knee] of KNEES.entries()) {
    const counted = before === undefined ? 0 : shortOfKnee(before, stepTokens, knee)
    work.chargedTokens[at]! += newTokens + shortOfKnee(after, stepTokens, knee) - counted
  }
  work.attention += newTokens * (promptTokens - newTokens / 2)
}

/** A busy period without requests. */
export function newPeriod(startMs: number): Period {
  return {
    startMs,
    decodeMs: 0,
    lastMs: -1,
    expectedMs: 0,
    ends: 0,
    observedMs: -1,
    open: 0,
    predicted: newWork(),
    delivered: newWork(),
    requests: 0,
    unsaid: 0,
  }
}

function newWork(): Work {
  return { steps: 0, tokensOfStep: [], chargedTokens: KNEES.map(() => 0), attention: 0 }
}

/** A slot without any request so far. */
export function newSlot(): Slot {
  return {
    queue: new Set(),
    queuedMs: 0,
    queuedTokens: 0,
    requests: 0,
    decoding: 0,
    contextTokens: 0,
    inserted: 0,
    insertedAt: 0,
    receivedTokens: 0,
    cameRequests: 0,
    cameAtMs: 0,
    headMs: 0,
    newestServedSentMs: 0,
    prefilledMs: 0,
    decodingMs: 0,
    contextMs: 0,
    integratedMs: 0,
    period: undefined,
    disbelieved: 0,
  }
}

/** A number of tokens as it counts: whole, and 0 if it is none. */
export function tokens(value: number): number {
  return value > 0 && value < Infinity ? Math.round(value) : 0
}
