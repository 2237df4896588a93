/** Guard types: what the guard is told, what it reports, and what it keeps over a restart. */

import type { ArmState } from './arm-outcomes.ts'
import type { ExperimentBudgetState } from './experiment-budget.ts'
import type { FadingMeanState } from './fading-mean.ts'
import type { Differences } from './outcome-differences.ts'
import type { UsualTimesState } from './usual-times.ts'
import type { WorkerOutcomeReport, WorkerOutcomesState } from './worker-outcomes.ts'

export const GUARD_ARMS = ['affinity', 'control'] as const
export type GuardArm = (typeof GUARD_ARMS)[number]

export const GUARD_PHASES = ['trusting', 'testing', 'shrunk'] as const
export type GuardPhase = (typeof GUARD_PHASES)[number]

export interface GuardSettings {
  /** Share of the decisions that follow least-loaded while the policy is trusted, 0 … 0.5. 0: none, ever. */
  readonly share: number
}

/** A decision whose request has not ended. Owned by the guard; the caller only keeps it. */
export interface GuardedDecision {
  /** Undefined: the decision counts for neither arm. */
  readonly arm: GuardArm | undefined
  readonly promptTokens: number
  /** Predicted time to the first token, in ms. */
  readonly predictedMs: number
}

/** What is known of a decision when it is made. */
export interface GuardedRequest {
  readonly arm: GuardArm | undefined
  readonly promptTokens: number
  readonly predictedMs: number
  /** Of an experiment: tokens that are computed only if control decides; default 0. */
  readonly extraTokens?: number | undefined
  /** Undefined: its worker is not told apart. */
  readonly workerSlot?: number | undefined
}

/** A whole answer. */
export interface GuardedAnswer {
  /** From the call of the worker. */
  readonly durationMs: number
  /** 0 if that is not known. */
  readonly outputTokens: number
  readonly isStream: boolean
}

export interface ArmReport {
  /** Decisions of this arm, without those in which both arms agreed. */
  readonly decisions: number
  /** Number of first tokens seen. */
  readonly outcomes: number
  /** Whole answers, and requests that their workers failed. */
  readonly finished: number
  readonly failed: number
  /** Time to the first token ÷ the mean of prompts of similar length; 0 before the first one. */
  readonly correctedTtft: number
  /** Time of whole answers ÷ the mean of similar requests; 0 before the first one. */
  readonly correctedDuration: number
  /** Recent share of failed requests. */
  readonly errorShare: number
}

export interface GuardReport {
  readonly phase: GuardPhase
  /** Current share of the decisions that follow least-loaded. */
  readonly controlShare: number
  readonly affinity: ArmReport
  readonly control: ArmReport
  /** How much later the first tokens of affinity come, in standard errors; below 0, sooner. */
  readonly z: number
  /** Of affinity, against control. */
  readonly differences: Differences
  /** How much worse affinity is by the rule, in mean times, beyond chance; 0: no difference. */
  readonly worseBy: number
  /** Observed ÷ predicted time to the first token, recent geometric mean; 0 before the first one. */
  readonly calibration: number
  /** Recent share of the predicted cached tokens that were really cached; 1 before the first request. */
  readonly cachedShare: number
  /** Number of tests begun, and of times that the affinity was shrunk. */
  readonly tests: number
  readonly shrinks: number
  /** Answers that did not stream, so they have no time to the first token. */
  readonly unseen: number
  /** Prompt tokens of all decisions, and those computed only because control decided. */
  readonly promptTokens: number
  readonly extraTokens: number
  /** Nothing was found for an hour, so experiments have a budget. */
  readonly isQuiet: boolean
  /** One for each worker slot that was used. */
  readonly workers: readonly WorkerOutcomeReport[]
}

/** What a guard knows, as plain data. */
export interface GuardState {
  readonly standing: Readonly<GuardStanding>
  readonly affinity: ArmState
  readonly control: ArmState
  readonly times: UsualTimesState
  readonly means: readonly FadingMeanState[]
  readonly budget: ExperimentBudgetState
  readonly workers: WorkerOutcomesState
}

/** Where the guard stands, beside its means. */
export interface GuardStanding {
  phase: GuardPhase
  /** Mean of the relative times to the first token in the last test; 0 before the first. */
  testedMs: number
  /** The calibration, cached share and share of failed requests that a test has found harmless. */
  calibrationAllowed: number
  cachedAllowed: number
  failedAllowed: number
  /** Whether something was off when the affinity was shrunk. */
  wasOff: boolean
  /** Requests of which something was seen. */
  outcomes: number
  /** First tokens and ends since the last judgement. */
  unjudged: number
  pausedUntil: number
  pause: number
  /** The test under way was begun by chance alone: the savings pay for it. */
  isSavingTest: boolean
  tests: number
  shrinks: number
  unseen: number
  promptTokens: number
  extraTokens: number
  /** The affinity was shrunk since it was last trusted. */
  hasShrunk: boolean
  /** The affinity was shrunk, then trusted again after a test. */
  wasGivenBack: boolean
  /** How much worse the affinity arm was when it was shrunk, in mean times. */
  shrunkBy: number
}
