/**
 * Engine slot: what an engine book keeps of one worker slot: the requests that it has, what they have taken,
 * the busy period that is observed.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { KNEES, shortOfKnee } from './prefill-costs.ts'

const { CHURN_REQUESTS } = AUTO_CONSTANTS.book

/** A request from its sending to its end. */
export interface BookedRequest {
  readonly slot: number
  readonly promptTokens: number
  readonly newTokens: number
  readonly stepTokens: number
  /** Steps that its prefill takes alone; at least one. */
  readonly prefillSteps: number
  readonly sentMs: number
  /** In the router, before it was sent. */
  readonly waitedMs: number
  /** Prefill as estimated when it was sent. */
  readonly prefillMs: number
  /** From its sending to its first token in ms, as estimated when it was sent; ≥ 0. */
  readonly expectedFirstTokenMs: number
  /** That rests on step times that were learned, not on the priors. */
  readonly isExpectationLearned: boolean
  /** What decoding there was to add to its prefill, in ms; ≥ 0. */
  readonly decodeAddedMs: number
  /** Nobody will say when its first token comes: it is taken to be when it was estimated. */
  readonly isSilent: boolean
  /** This router has sent it. */
  readonly isOwn: boolean
  firstTokenMs: number
  /** What it counts for in contextTokens while it decodes. */
  contextTokens: number
  /** prefilledMs, decodingMs and contextMs of its slot at its first token. */
  prefilledMs: number
  decodingMs: number
  contextMs: number
  /** The busy period in which its prompt was computed, once its first token came. */
  period: Period | undefined
  /**
   * The step of its period in which its prompt ended: requests whose first tokens come together were in one.
   */
  step: number
  /** It is the first of its step. */
  isFirstOfStep: boolean
  /** False: what is told of it is told later than it happened. */
  isTimed: boolean
}

/** Prefill, as the fit counts it. */
export interface Work {
  steps: number
  /** Of each step in which prompts ended. */
  readonly tokensOfStep: (number | undefined)[]
  /** As each of KNEES charges them. */
  readonly chargedTokens: number[]
  attention: number
}

/**
 * A busy period of a slot. It teaches when its requests have ended: only then do engines say how much of
 * their prompts was cached.
 */
export interface Period {
  readonly startMs: number
  decodeMs: number
  lastMs: number
  /** Steps in which prompts ended. */
  ends: number
  /** What it took, without decoding; −1 until it is over, and for good if that cannot be told. */
  observedMs: number
  /** Requests of it that have not ended. */
  open: number
  readonly predicted: Work
  // Of those that have ended.
  readonly delivered: Work
  requests: number
  unsaid: number
}

/** What is booked on a worker slot, and what of it is over. */
export interface Slot {
  /** In order of sending. */
  readonly queue: Set<BookedRequest>
  queuedMs: number
  queuedTokens: number
  requests: number
  decoding: number
  contextTokens: number
  /** New tokens, fading by requests of the fleet; at request number insertedAt. */
  inserted: number
  insertedAt: number
  /** New tokens since it is known, none faded. */
  receivedTokens: number
  /** When prefill of the head can have begun. */
  headMs: number
  /** When the newest own request was sent that has its first token. */
  newestServedSentMs: number
  /** Prefill that was done, as estimated. */
  prefilledMs: number
  /** Integrals of decoding and contextTokens over time, until integratedMs. */
  decodingMs: number
  contextMs: number
  integratedMs: number
  /** The busy period that is observed. */
  period: Period | undefined
}

/**
 * The head is under way since it could begin. What it takes longer than estimated is not held against those
 * behind it here: see overdueOf.
 */
export function backlogOf(entry: Slot, now: number): number {
  if (entry.queue.size === 0) return 0
  const [head] = entry.queue
  return Math.max(entry.queuedMs - head!.prefillMs, entry.queuedMs - (now - entry.headMs), 0)
}

/** Tokens that lately were new there, after so many requests of the fleet. */
export function fadedTokens({ inserted, insertedAt }: Slot, sentTotal: number): number {
  return inserted * Math.exp((insertedAt - sentTotal) / CHURN_REQUESTS)
}

/** Decoding and its context until now. */
export function integrate(entry: Slot, now: number): void {
  const elapsed = now - entry.integratedMs
  entry.decodingMs += entry.decoding * elapsed
  entry.contextMs += entry.contextTokens * elapsed
  entry.integratedMs = now
}

/** The prefill of a request, as one step or more of its busy period. */
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

/** A slot to which nothing was sent. */
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
    headMs: 0,
    newestServedSentMs: 0,
    prefilledMs: 0,
    decodingMs: 0,
    contextMs: 0,
    integratedMs: 0,
    period: undefined,
  }
}
