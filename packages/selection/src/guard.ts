/**
 * Guard: measures whether following the caches pays, from observed times, not from the cost model.
 *
 * A share of the decisions follows least-loaded (the control arm), the rest follows the policy (the affinity
 * arm). Only decisions in which the two would take different workers count. The worse arm gets so few
 * requests that they cost at most LOSS_MAX of the mean.
 *
 *                        something is off, or control looks better
 *   trusting  ─────────────────────────────────────────────────▶  testing
 *   control: `share`  ◀───── no worse ────────────────────────    half and half
 *                                                                  │     ▲  no longer worse, or what was
 *                                             affinity is worse    ▼     │  off is right again
 *                                                                 shrunk
 *                                                                 affinity: LOSS_MAX / (how much worse it is)
 *
 *   seen        time to the first token ÷ the running mean of all requests with about as long a prompt (log2
 *               of its tokens), at most GUARD_OUTLIER_TIMES; means and variances of each arm fade
 *   failed      a request that its worker failed counts as GUARD_OUTLIER_TIMES
 *   worse       Welch's z above Z_WORSE, and the mean by more than WORSE_RATIO
 *   off         first tokens come far sooner or later than predicted (CALIBRATION_OFF), or too few of the
 *               predicted tokens were cached (CACHED_OFF); compared with the last time that a test found
 *               nothing
 *
 * The policy may do well with half of the decisions, but not with all of them. If first tokens come much
 * later than in the last test, a new test begins. If the affinity was shrunk and then trusted again, it is
 * shrunk again without a test.
 *
 * Each test without a finding doubles the pause before the next test. A request counts for the phase in which
 * it was decided: otherwise a phase would begin with the requests that end soon.
 *
 * Pure and bounded: a few numbers per arm and per prompt length. Values that are not finite or not positive
 * are ignored.
 *
 * Source   docs/policies.md and docs/decisions/0037-what-auto-weighs.md, section The guard; the constants are
 *          rows of packages/load/src/auto-constants.ts.
 */

import type { Random } from '@homing/base'
import { AUTO_CONSTANTS } from '@homing/load'
import { ArmOutcomes } from './arm-outcomes.ts'
import { FadingMean } from './fading-mean.ts'

export const GUARD_ARMS = ['affinity', 'control'] as const
export type GuardArm = (typeof GUARD_ARMS)[number]

export const GUARD_PHASES = ['trusting', 'testing', 'shrunk'] as const
export type GuardPhase = (typeof GUARD_PHASES)[number]

export const GUARD_SHARE_DEFAULT: number = AUTO_CONSTANTS.guard.SHARE_DEFAULT

export interface GuardSettings {
  /** Share of the decisions that follow least-loaded while the policy is trusted, 0 … 0.5. 0: none, ever. */
  readonly share: number
}

/** A decision whose first token is pending. Owned by the guard; the caller only keeps it. */
export interface GuardedDecision {
  /** Undefined: the decision counts for neither arm. */
  readonly arm: GuardArm | undefined
  readonly promptTokens: number
  /** Predicted time to the first token, in ms. */
  readonly predictedMs: number
}

interface OwnDecision extends GuardedDecision {
  /** Number of the phase in which it was made. */
  readonly phaseNumber: number
  readonly sinceMs: number
  /** 1 ÷ the mean for prompts of this length; 0 if that is not known. */
  readonly weight: number
  isOpen: boolean
}

export interface ArmReport {
  /** Decisions of this arm, without those in which both arms agreed. */
  readonly decisions: number
  /** Number of first tokens seen. */
  readonly outcomes: number
  /** Time to the first token ÷ the mean of prompts of similar length; 0 before the first one. */
  readonly correctedTtft: number
}

export interface GuardReport {
  readonly phase: GuardPhase
  /** Current share of the decisions that follow least-loaded. */
  readonly controlShare: number
  readonly affinity: ArmReport
  readonly control: ArmReport
  /** How much worse the affinity arm is, in standard errors; below 0 it is better. */
  readonly z: number
  /** Observed ÷ predicted time to the first token, recent geometric mean; 0 before the first one. */
  readonly calibration: number
  /** Recent share of the predicted cached tokens that were really cached; 1 before the first request. */
  readonly cachedShare: number
  /** Number of tests begun, and of times that the affinity was shrunk. */
  readonly tests: number
  readonly shrinks: number
  /** Answers that did not stream, so they have no time to the first token. */
  readonly unseen: number
}

const { LOSS_MAX, AFFINITY_SHARE_MIN, TEST_SHARE, JUDGE_EVERY } = AUTO_CONSTANTS.guard
const { DEAR_TIMES, DEAR_SHARE_MIN, DEAR_TEST_SHARE_MIN } = AUTO_CONSTANTS.guard
const { GUARD_OUTLIER_TIMES, FIRST_TOKEN_MS_MIN, FIRST_TOKEN_MS_MAX, LOG_MAX } = AUTO_CONSTANTS.guard
const { LENGTH_CLASSES, LENGTH_OUTCOMES_MIN, LENGTH_OUTCOMES, FIRST_TOKEN_OUTCOMES } = AUTO_CONSTANTS.guard
const { SUSPICION_OUTCOMES, CALIBRATION_OFF, CACHED_OFF } = AUTO_CONSTANTS.guard
const { ARM_OUTCOMES_MIN, TEST_OUTCOMES, WORSE_RATIO } = AUTO_CONSTANTS.guard
const { Z_WORSE, Z_SUSPECT, Z_EVEN, Z_BETTER } = AUTO_CONSTANTS.guard
const { PAUSE_MIN, PAUSE_MAX, FORGIVEN_PAUSES, RELAPSE_OUTCOMES, RELAPSE_RATIO } = AUTO_CONSTANTS.guard

export class Guard {
  readonly share: number
  readonly #affinity = new ArmOutcomes()
  readonly #control = new ArmOutcomes()
  /** Time to the first token by log2 of the prompt's tokens. */
  readonly #lengths: readonly FadingMean[] = Array.from(
    { length: LENGTH_CLASSES },
    () => new FadingMean(LENGTH_OUTCOMES),
  )
  readonly #ttft = new FadingMean(FIRST_TOKEN_OUTCOMES)
  /** Relative times to the first token in this phase. */
  readonly #recent = new FadingMean(RELAPSE_OUTCOMES)
  /** Mean of `#recent` in the last test; 0 before the first. */
  #testedMs = 0
  /** log2 of seen ÷ predicted. */
  readonly #calibration = new FadingMean(SUSPICION_OUTCOMES)
  /** Delivered ÷ predicted cached tokens. */
  readonly #cached = new FadingMean(SUSPICION_OUTCOMES)
  #phase: GuardPhase = 'trusting'
  #phaseNumber = 0
  /** The calibration and cached share that a test has found harmless. */
  #calibrationAllowed = 0
  #cachedAllowed = 1
  /** Whether something was off when the affinity was shrunk. */
  #wasOff = false
  #nowMs = 0
  #outcomes = 0
  #pausedUntil = 0
  #pause: number = PAUSE_MIN
  #tests = 0
  #shrinks = 0
  #unseen = 0
  /** The affinity was shrunk since it was last trusted. */
  #hasShrunk = false
  /** The affinity was shrunk, then trusted again after a test. */
  #wasGivenBack = false
  /** How much worse the affinity arm was when it was shrunk, as a share of the control mean. */
  #shrunkBy = 0

  // Comparison of the arms in this phase: decisions of the arm with fewer; how much worse affinity is, in
  // standard errors and as a share of the control mean.
  #fewer = 0
  #z = 0
  #excess = 0

  /** Throws RangeError if `share` is out of range. */
  constructor({ share }: GuardSettings) {
    if (!(share >= 0 && share <= TEST_SHARE))
      throw new RangeError(`cannot guard with a share of ${share}: use a number from 0 to ${TEST_SHARE}`)
    this.share = share
  }

  get phase(): GuardPhase {
    return this.#phase
  }

  get phaseNumber(): number {
    return this.#phaseNumber
  }

  /** Share of the decisions that go by least-loaded now. */
  get controlShare(): number {
    if (this.share === 0) return 0
    if (this.#phase === 'trusting') return this.share
    if (this.#phase === 'testing') return TEST_SHARE
    return 1 - this.#affinityShare
  }

  /** Probability that `draw` returns 'control'. */
  controlChance(extraMs: number): number {
    return this.#experimentChance(extraMs) * this.controlShare
  }

  /**
   * Draws the arm of the next decision, if the two arms differ. Undefined: the policy decides, and the
   * decision counts for neither arm. `extraMs`: predicted extra cost of control. Does not change the guard.
   */
  draw(random: Random, extraMs: number): GuardArm | undefined {
    const share = this.controlShare
    if (share === 0) return undefined
    const chance = this.#experimentChance(extraMs)
    if (chance < 1 && random.next() >= chance) return undefined
    return random.next() < share ? 'control' : 'affinity'
  }

  /** Records a decision. The caller must call `firstToken` or `gone` for it later. */
  decided(
    arm: GuardArm | undefined,
    promptTokens: number,
    predictedMs: number,
    nowMs: number,
  ): GuardedDecision {
    const sinceMs = this.#time(nowMs)
    const length = this.#lengths[binOf(promptTokens)]!
    const weight = length.count >= LENGTH_OUTCOMES_MIN && length.mean > 0 ? 1 / length.mean : 0
    const isOpen = arm !== undefined && weight > 0
    const { phaseNumber } = this
    const decision: OwnDecision = { arm, promptTokens, predictedMs, phaseNumber, sinceMs, weight, isOpen }
    if (arm !== undefined) {
      const own = this.#arm(arm)
      own.decisions++
      if (isOpen) own.wait(weight, sinceMs)
    }
    return decision
  }

  /**
   * Its first token came, `firstTokenMs` after it was sent. A repeated call, or one after `gone`, changes
   * only the means.
   */
  firstToken(decision: GuardedDecision, firstTokenMs: number, nowMs: number): void {
    const now = this.#time(nowMs)
    const isCounted = this.#close(decision as OwnDecision)
    const { arm, promptTokens, predictedMs, weight } = decision as OwnDecision
    if (!(firstTokenMs > 0 && firstTokenMs < Infinity)) return
    const ms = Math.min(FIRST_TOKEN_MS_MAX, Math.max(FIRST_TOKEN_MS_MIN, firstTokenMs))
    if (predictedMs > 0 && predictedMs < Infinity)
      this.#calibration.add(Math.max(-LOG_MAX, Math.min(LOG_MAX, Math.log2(ms / predictedMs))))
    const length = this.#lengths[binOf(promptTokens)]!
    const bounded = length.count === 0 ? ms : Math.min(GUARD_OUTLIER_TIMES * length.mean, ms)
    length.add(bounded)
    this.#ttft.add(bounded)
    this.#recent.add(bounded)
    this.#outcomes++
    if (isCounted && arm !== undefined) {
      const own = this.#arm(arm)
      own.outcomes++
      own.seen.add(Math.min(GUARD_OUTLIER_TIMES, ms * weight))
    }
    this.#judge(now)
  }

  /**
   * Its worker failed the request. Counts like a first token that came as late as any may: an arm whose
   * requests fail is worse, however quickly they fail.
   */
  failed(decision: GuardedDecision, nowMs: number): void {
    const now = this.#time(nowMs)
    if (!this.#close(decision as OwnDecision)) return
    const own = this.#arm(decision.arm!)
    own.outcomes++
    own.seen.add(GUARD_OUTLIER_TIMES)
    this.#outcomes++
    this.#judge(now)
  }

  /**
   * No first token will be reported: the request was cancelled, was refused for its own sake, or does not
   * stream.
   */
  gone(decision: GuardedDecision, isStream = true): void {
    this.#close(decision as OwnDecision)
    if (!isStream) this.#unseen++
  }

  /** Records the predicted cached tokens of a prompt, and those that the engine reported. */
  audited(predictedTokens: number, cachedTokens: number): void {
    if (!(predictedTokens > 0 && predictedTokens < Infinity && cachedTokens >= 0)) return
    this.#cached.add(Math.min(1, cachedTokens / predictedTokens))
  }

  report(): GuardReport {
    const { count, mean } = this.#calibration
    return {
      phase: this.#phase,
      controlShare: this.controlShare,
      affinity: reportOf(this.#affinity),
      control: reportOf(this.#control),
      z: this.#z,
      calibration: count === 0 ? 0 : 2 ** mean,
      cachedShare: this.#cached.count === 0 ? 1 : this.#cached.mean,
      tests: this.#tests,
      shrinks: this.#shrinks,
      unseen: this.#unseen,
    }
  }

  // ── Phases ───────────────────────────────────────────────────────────────────────────────────

  #judge(nowMs: number): void {
    if (this.share === 0) return
    // Judging costs time in every request, and a single outcome does not matter.
    if (this.#phase === 'trusting' && this.#outcomes % JUDGE_EVERY !== 0) return
    this.#compare(nowMs)
    const z = this.#z
    const outcomes = this.#fewer
    switch (this.#phase) {
      case 'trusting':
        if (this.#isRelapse && this.#wasGivenBack) this.#shrink(this.#shrunkBy)
        else if (this.#isRelapse) this.#test()
        else if (this.#outcomes < this.#pausedUntil) return
        else if (this.#isOff || (outcomes >= ARM_OUTCOMES_MIN && z > Z_SUSPECT)) this.#test()
        return
      case 'testing':
        if (outcomes < ARM_OUTCOMES_MIN) return
        if (z > Z_WORSE && this.#excess > WORSE_RATIO - 1) this.#shrink(this.#excess)
        // While something is still off, a few good answers are not enough.
        else if (this.#fewerSeen >= TEST_OUTCOMES || (z < Z_BETTER && !this.#hasShrunk && !this.#isOff))
          this.#trust()
        return
      case 'shrunk':
        if (this.#outcomes < this.#pausedUntil) return
        if ((this.#wasOff && !this.#isOff) || (outcomes >= ARM_OUTCOMES_MIN && z < Z_EVEN)) this.#test()
    }
  }

  #test(): void {
    this.#tests++
    // After a long time without a test, the pause starts small again.
    if (this.#outcomes > this.#pausedUntil + FORGIVEN_PAUSES * this.#pause) this.#pause = PAUSE_MIN
    this.#enter('testing')
  }

  #trust(): void {
    this.#testedMs = this.#recent.mean
    this.#wasGivenBack = this.#hasShrunk
    this.#hasShrunk = false
    this.#enter('trusting')
    this.#calibrationAllowed = this.#calibration.mean
    this.#cachedAllowed = this.#cached.count === 0 ? 1 : this.#cached.mean
    this.#putOff()
  }

  #shrink(worseBy: number): void {
    this.#shrinks++
    this.#hasShrunk = true
    // Used until the new phase has its own outcomes.
    this.#shrunkBy = worseBy
    this.#enter('shrunk')
    this.#wasOff = this.#isOff
    this.#putOff()
  }

  #putOff(): void {
    this.#pausedUntil = this.#outcomes + this.#pause
    this.#pause = Math.min(PAUSE_MAX, 2 * this.#pause)
  }

  #enter(phase: GuardPhase): void {
    this.#phase = phase
    this.#phaseNumber++
    this.#affinity.clear()
    this.#control.clear()
    this.#recent.clear()
    this.#fewer = this.#z = this.#excess = 0
  }

  /** Probability that a decision counts for one of the arms. */
  #experimentChance(extraMs: number): number {
    const dearMs = DEAR_TIMES * this.#ttft.mean
    if (this.#phase === 'shrunk' || this.#ttft.count === 0 || !(extraMs > dearMs)) return 1
    return Math.max(this.#phase === 'testing' ? DEAR_TEST_SHARE_MIN : DEAR_SHARE_MIN, dearMs / extraMs)
  }

  get #affinityShare(): number {
    const worseBy = this.#fewer >= ARM_OUTCOMES_MIN ? this.#excess : this.#shrunkBy
    return Math.min(TEST_SHARE, Math.max(AFFINITY_SHARE_MIN, LOSS_MAX / Math.max(LOSS_MAX, worseBy)))
  }

  /**
   * Whether first tokens now come much later, with all decisions by the policy, than in the last test, with
   * half of them.
   */
  get #isRelapse(): boolean {
    const { count, mean } = this.#recent
    return this.#testedMs > 0 && count >= RELAPSE_OUTCOMES && mean > RELAPSE_RATIO * this.#testedMs
  }

  get #fewerSeen(): number {
    return Math.min(this.#affinity.seen.count, this.#control.seen.count)
  }

  get #isOff(): boolean {
    const calibration = this.#calibration
    const cached = this.#cached
    return (
      (calibration.count >= SUSPICION_OUTCOMES &&
        Math.abs(calibration.mean - this.#calibrationAllowed) > CALIBRATION_OFF) ||
      (cached.count >= SUSPICION_OUTCOMES && cached.mean < this.#cachedAllowed - CACHED_OFF)
    )
  }

  #compare(nowMs: number): void {
    const affinity = this.#affinity.at(nowMs, this.#control)
    const control = this.#control.at(nowMs, this.#affinity)
    this.#fewer = Math.min(affinity.decisions, control.decisions)
    this.#z = this.#excess = 0
    if (this.#fewer < 1 || affinity.decisions + control.decisions < 3) return
    const error = Math.sqrt(affinity.variance / affinity.effective + control.variance / control.effective)
    const difference = affinity.mean - control.mean
    this.#z = error > 0 ? difference / error : Math.sign(difference) * LOG_MAX
    this.#excess = control.mean > 0 ? difference / control.mean : 0
  }

  /** Closes the decision. Returns whether it counts for its arm. */
  #close(decision: OwnDecision): boolean {
    const { arm, isOpen, phaseNumber, weight, sinceMs } = decision
    decision.isOpen = false
    if (!isOpen || arm === undefined || phaseNumber !== this.#phaseNumber) return false
    this.#arm(arm).waited(weight, sinceMs)
    return true
  }

  #time(nowMs: number): number {
    if (nowMs > this.#nowMs && nowMs <= Number.MAX_SAFE_INTEGER) this.#nowMs = nowMs
    return this.#nowMs
  }

  #arm(arm: GuardArm): ArmOutcomes {
    return arm === 'control' ? this.#control : this.#affinity
  }
}

function binOf(promptTokens: number): number {
  if (!(promptTokens >= 1)) return 0
  return promptTokens < 2 ** 32 ? 31 - Math.clz32(promptTokens) : LENGTH_CLASSES - 1
}

function reportOf({ decisions, outcomes, seen }: ArmOutcomes): ArmReport {
  return { decisions, outcomes, correctedTtft: seen.mean }
}
