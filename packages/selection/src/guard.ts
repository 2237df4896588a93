/**
 * Guard: measures whether following the caches pays, from finished requests, not from the cost model.
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
 *   seen        errors, time to the first token, whole time; the times ÷ the running mean of all requests of
 *               about the same size (usual-times.ts); means and variances of each arm fade
 *   worse       by the rule of outcome-differences.ts: beyond Z_WORSE standard errors, and by more than
 *               WORSE_RATIO
 *   off         first tokens come far sooner or later than predicted (CALIBRATION_OFF), too few of the
 *               predicted tokens were cached (CACHED_OFF), or workers fail requests (ERRORS_OFF); compared
 *               with the last time that a test found nothing
 *
 * The policy may do well with half of the decisions, but not with all of them. If first tokens come much
 * later than in the last test, a new test begins. If the affinity was shrunk and then trusted again, it is
 * shrunk again without a test.
 *
 * Each test without a finding doubles the pause before the next test. Once nothing was found for an hour,
 * experiments have a budget (experiment-budget.ts). A request counts for the phase in which it was decided:
 * otherwise a phase would begin with the requests that end soon. For the same reason a test lasts until
 * enough of its requests have ended.
 *
 * Pure and bounded: a few numbers per arm, per size of request and per worker slot. Values that are not
 * finite or not positive are ignored. `state` and `restore` carry all but the pending decisions over a
 * restart of the owner.
 *
 * Source   docs/policies.md and docs/decisions/0037-what-auto-weighs.md, section The guard; the constants are
 *          rows of packages/load/src/auto-constants.ts.
 */

import type { Random } from '@homing/base'
import { AUTO_CONSTANTS } from '@homing/load'
import { ArmOutcomes } from './arm-outcomes.ts'
import { boundedTokens, ExperimentBudget } from './experiment-budget.ts'
import { FadingMean } from './fading-mean.ts'
import type {
  ArmReport,
  GuardArm,
  GuardedAnswer,
  GuardedDecision,
  GuardedRequest,
  GuardPhase,
  GuardReport,
  GuardSettings,
  GuardStanding,
  GuardState,
} from './guard-types.ts'
import {
  type Differences,
  errorDifference,
  NO_DIFFERENCES,
  timeDifference,
  worseBy,
} from './outcome-differences.ts'
import { boundedMs, UsualTimes } from './usual-times.ts'
import { WorkerOutcomes } from './worker-outcomes.ts'

export const GUARD_SHARE_DEFAULT: number = AUTO_CONSTANTS.guard.SHARE_DEFAULT

interface OwnDecision extends GuardedDecision {
  readonly workerSlot: number | undefined
  /** Number of the phase in which it was made. */
  readonly phaseNumber: number
  readonly sinceMs: number
  /** 1 ÷ the mean for prompts of this length; 0 if that is not known. */
  readonly weight: number
  /** Its first token is pending, and counts for its arm. */
  isWaiting: boolean
  /** Its end is pending. */
  isOpen: boolean
  hasFirstToken: boolean
}

const { LOSS_MAX, AFFINITY_SHARE_MIN, TEST_SHARE, JUDGE_EVERY, WORSE_RATIO } = AUTO_CONSTANTS.guard
const { DEAR_TIMES, DEAR_SHARE_MIN, DEAR_TEST_SHARE_MIN } = AUTO_CONSTANTS.guard
const { GUARD_OUTLIER_TIMES, FIRST_TOKEN_OUTCOMES, LOG_MAX } = AUTO_CONSTANTS.guard
const { SUSPICION_OUTCOMES, CALIBRATION_OFF, CACHED_OFF, ERRORS_OFF } = AUTO_CONSTANTS.guard
const { ARM_OUTCOMES_MIN, TEST_OUTCOMES, TEST_OPEN_MAX } = AUTO_CONSTANTS.guard
const { Z_WORSE, Z_SUSPECT, Z_CERTAIN, Z_EVEN, Z_BETTER } = AUTO_CONSTANTS.guard
const { PAUSE_MIN, PAUSE_MAX, FORGIVEN_PAUSES, RELAPSE_OUTCOMES, RELAPSE_RATIO } = AUTO_CONSTANTS.guard

export class Guard {
  readonly share: number
  readonly #affinity = new ArmOutcomes()
  readonly #control = new ArmOutcomes()
  readonly #times = new UsualTimes()
  readonly #ttft = new FadingMean(FIRST_TOKEN_OUTCOMES)
  /** Times to the first token in this phase. */
  readonly #recent = new FadingMean(RELAPSE_OUTCOMES)
  /** log2 of seen ÷ predicted. */
  readonly #calibration = new FadingMean(SUSPICION_OUTCOMES)
  /** Delivered ÷ predicted cached tokens. */
  readonly #cached = new FadingMean(SUSPICION_OUTCOMES)
  /** 1 for a request that its worker failed, 0 for a decision: those that fail at once are not seen first. */
  readonly #failures = new FadingMean(SUSPICION_OUTCOMES)
  readonly #budget = new ExperimentBudget()
  readonly #workers = new WorkerOutcomes()
  readonly #standing: GuardStanding = {
    phase: 'trusting',
    testedMs: 0,
    calibrationAllowed: 0,
    cachedAllowed: 1,
    failedAllowed: 0,
    wasOff: false,
    outcomes: 0,
    unjudged: 0,
    pausedUntil: 0,
    pause: PAUSE_MIN,
    isSavingTest: false,
    tests: 0,
    shrinks: 0,
    unseen: 0,
    promptTokens: 0,
    extraTokens: 0,
    hasShrunk: false,
    wasGivenBack: false,
    shrunkBy: 0,
  }
  #phaseNumber = 0
  #nowMs = 0
  /** Affinity against control in this phase. */
  #differences: Differences = NO_DIFFERENCES

  /** Throws RangeError if `share` is out of range. */
  constructor({ share }: GuardSettings) {
    if (!(share >= 0 && share <= TEST_SHARE))
      throw new RangeError(`cannot guard with a share of ${share}: use a number from 0 to ${TEST_SHARE}`)
    this.share = share
  }

  get phase(): GuardPhase {
    return this.#standing.phase
  }

  get phaseNumber(): number {
    return this.#phaseNumber
  }

  /** Nothing was found for an hour, so experiments have a budget. */
  get isQuiet(): boolean {
    return this.#budget.isQuiet(this.#nowMs)
  }

  /** Share of the experiments that go by least-loaded now. */
  get controlShare(): number {
    if (this.share === 0) return 0
    const { phase, isSavingTest } = this.#standing
    if (phase === 'trusting') return this.isQuiet ? this.#budget.triedShare(this.share) : this.share
    if (phase === 'testing')
      return isSavingTest && !this.#budget.hasSavings ? this.#budget.triedShare(this.share) : TEST_SHARE
    return 1 - this.#affinityShare
  }

  /** Probability that a decision counts for one of the arms. `extraMs`: predicted extra cost of control. */
  experimentChance(extraMs: number): number {
    const { phase } = this.#standing
    if (phase === 'testing' && Math.min(this.#affinity.open, this.#control.open) >= TEST_OPEN_MAX) return 0
    const dearMs = DEAR_TIMES * this.#ttft.mean
    if (phase === 'shrunk' || this.#ttft.count === 0 || !(extraMs > dearMs)) return 1
    return Math.max(phase === 'testing' ? DEAR_TEST_SHARE_MIN : DEAR_SHARE_MIN, dearMs / extraMs)
  }

  /**
   * Draws the arm of the next decision, if the two arms differ: one of them with `chance`, which
   * `experimentChance` gives, and of these control with `controlShare`. Undefined: the policy decides, and
   * the decision counts for neither arm. Does not change the guard.
   */
  draw(random: Random, chance: number): GuardArm | undefined {
    const share = this.controlShare
    if (share === 0) return undefined
    if (chance < 1 && random.next() >= chance) return undefined
    return random.next() < share ? 'control' : 'affinity'
  }

  /** Records a decision. The caller must call `finished`, `failed` or `gone` for it later. */
  decided(request: GuardedRequest, nowMs: number): GuardedDecision {
    const { arm, promptTokens, predictedMs, extraTokens = 0, workerSlot } = request
    const sinceMs = this.#time(nowMs)
    const weight = this.#times.firstTokenWeight(promptTokens)
    const { phaseNumber } = this
    const isWaiting = arm !== undefined && weight > 0
    const decision: OwnDecision = {
      arm,
      promptTokens,
      predictedMs,
      workerSlot,
      phaseNumber,
      sinceMs,
      weight,
      isWaiting,
      isOpen: true,
      hasFirstToken: false,
    }
    const standing = this.#standing
    standing.promptTokens += boundedTokens(promptTokens)
    this.#failures.add(0)
    this.#budget.decided(promptTokens, arm === undefined ? undefined : extraTokens, sinceMs)
    if (arm === undefined) return decision
    const own = this.#arm(arm)
    own.decisions++
    own.open++
    if (isWaiting) own.wait(weight, sinceMs)
    if (arm === 'control') {
      standing.extraTokens += boundedTokens(extraTokens)
      if (standing.isSavingTest) this.#budget.spend(extraTokens)
    }
    return decision
  }

  /**
   * Its first token came, `firstTokenMs` after it was sent. A repeated call, or one after its end, changes
   * only the means.
   */
  firstToken(decision: GuardedDecision, firstTokenMs: number, nowMs: number): void {
    const own = decision as OwnDecision
    const now = this.#time(nowMs)
    const isCounted = this.#stopWaiting(own)
    const { arm, promptTokens, predictedMs, weight, workerSlot, isOpen, hasFirstToken } = own
    if (!(firstTokenMs > 0 && firstTokenMs < Infinity)) return
    const ms = boundedMs(firstTokenMs)
    if (predictedMs > 0 && predictedMs < Infinity)
      this.#calibration.add(Math.max(-LOG_MAX, Math.min(LOG_MAX, Math.log2(ms / predictedMs))))
    const bounded = this.#times.firstToken(promptTokens, ms)
    this.#ttft.add(bounded)
    this.#recent.add(bounded)
    this.#standing.outcomes++
    const corrected = Math.min(GUARD_OUTLIER_TIMES, ms * weight)
    if (isCounted && arm !== undefined) {
      this.#arm(arm).outcomes++
      this.#arm(arm).seen.add(corrected)
    }
    if (isOpen && !hasFirstToken && weight > 0 && workerSlot !== undefined)
      this.#workers.firstToken(workerSlot, arm === 'control', corrected)
    own.hasFirstToken = true
    this.#judge(now)
  }

  /** The whole answer came. */
  finished(decision: GuardedDecision, answer: GuardedAnswer, nowMs: number): void {
    const own = decision as OwnDecision
    const now = this.#time(nowMs)
    if (!own.isOpen) return
    const arm = this.#end(own, true)
    const { durationMs, outputTokens, isStream } = answer
    if (!isStream) this.#standing.unseen++
    const isTimed = durationMs > 0 && durationMs < Infinity
    const corrected = isTimed ? this.#times.answer(own.promptTokens, outputTokens, durationMs) : 0
    if (own.workerSlot !== undefined) this.#workers.finished(own.workerSlot, own.arm === 'control', corrected)
    if (arm !== undefined) {
      arm.finished++
      arm.errors.add(0)
      if (corrected > 0) arm.durations.add(corrected)
    }
    this.#judge(now)
  }

  /** Its worker failed the request, before or after its first token. */
  failed(decision: GuardedDecision, nowMs: number): void {
    const own = decision as OwnDecision
    const now = this.#time(nowMs)
    if (!own.isOpen) return
    const arm = this.#end(own, true)
    this.#failures.add(1)
    if (own.workerSlot !== undefined) this.#workers.failed(own.workerSlot, own.arm === 'control')
    if (arm !== undefined) {
      arm.failed++
      arm.errors.add(1)
    }
    this.#judge(now)
  }

  /** No end will be reported: the request was cancelled, or was refused for its own sake. */
  gone(decision: GuardedDecision): void {
    this.#end(decision as OwnDecision, (decision as OwnDecision).hasFirstToken)
  }

  /** Records the predicted cached tokens of a prompt, and those that the engine reported. */
  audited(predictedTokens: number, cachedTokens: number): void {
    if (!(predictedTokens > 0 && predictedTokens < Infinity && cachedTokens >= 0)) return
    this.#cached.add(Math.min(1, cachedTokens / predictedTokens))
  }

  /** Forgets the outcomes of the workers of all other slots. */
  keepOnly(workerSlots: ReadonlySet<number>): void {
    this.#workers.keepOnly(workerSlots)
  }

  report(): GuardReport {
    const differences = this.#differencesAt(this.#nowMs)
    const { count, mean } = this.#calibration
    const { phase, tests, shrinks, unseen, promptTokens, extraTokens } = this.#standing
    return {
      phase,
      controlShare: this.controlShare,
      affinity: reportOf(this.#affinity),
      control: reportOf(this.#control),
      z: differences.ttft.z,
      differences,
      worseBy: worseBy(differences, Z_WORSE),
      calibration: count === 0 ? 0 : 2 ** mean,
      cachedShare: this.#cached.count === 0 ? 1 : this.#cached.mean,
      tests,
      shrinks,
      unseen,
      promptTokens,
      extraTokens,
      isQuiet: this.isQuiet,
      workers: this.#workers.report(),
    }
  }

  get state(): GuardState {
    return {
      standing: { ...this.#standing },
      affinity: this.#affinity.state,
      control: this.#control.state,
      times: this.#times.state,
      means: this.#means.map(({ state }) => state),
      budget: this.#budget.state(this.#nowMs),
      workers: this.#workers.state,
    }
  }

  /** Takes over what an earlier life knew; its pending decisions are forgotten. Only before any decision. */
  restore({ standing, affinity, control, times, means, budget, workers }: GuardState): void {
    Object.assign(this.#standing, standing)
    this.#affinity.restore(affinity)
    this.#control.restore(control)
    this.#times.restore(times)
    for (const [m, mean] of this.#means.entries()) mean.restore(means[m]!)
    this.#budget.restore(budget)
    this.#workers.restore(workers)
    this.#compare(this.#nowMs)
  }

  /** The means of all arms together. */
  get #means(): readonly FadingMean[] {
    return [this.#ttft, this.#recent, this.#calibration, this.#cached, this.#failures]
  }

  // ── Phases ───────────────────────────────────────────────────────────────────────────────────

  #judge(nowMs: number): void {
    if (this.share === 0) return
    const standing = this.#standing
    // Judging costs time in every request, and a single outcome does not matter.
    if (standing.phase === 'trusting' && ++standing.unjudged < JUDGE_EVERY) return
    standing.unjudged = 0
    if (standing.phase === 'trusting') {
      this.#mayTest(nowMs)
      return
    }
    this.#compare(nowMs)
    switch (standing.phase) {
      case 'testing':
        // What is off may cost more than what is saved.
        if (standing.isSavingTest && this.#isOff) standing.isSavingTest = false
        if (this.#worseBy(Z_WORSE) > WORSE_RATIO - 1) this.#shrink(this.#worseBy(Z_WORSE))
        else if (this.#fewerEnded < ARM_OUTCOMES_MIN) return
        // While something is still off, a few good answers are not enough.
        else if (
          this.#fewerEnded >= TEST_OUTCOMES ||
          (this.#worseBy(-Z_BETTER) < 0 && !standing.hasShrunk && !this.#isOff)
        )
          this.#trust()
        return
      case 'shrunk':
        if (standing.outcomes < standing.pausedUntil) return
        if (
          (standing.wasOff && !this.#isOff) ||
          (this.#fewerEnded >= ARM_OUTCOMES_MIN && this.#worseBy(Z_EVEN) <= 0)
        )
          this.#test()
    }
  }

  #mayTest(nowMs: number): void {
    const { wasGivenBack, shrunkBy, outcomes, pausedUntil } = this.#standing
    if (this.#isRelapse && wasGivenBack) this.#shrink(shrunkBy)
    else if (this.#isRelapse) this.#test()
    else if (outcomes < pausedUntil) return
    else if (this.#isOff) this.#test()
    else if (this.#looksWorse(nowMs)) this.#testSuspicion(nowMs)
  }

  #testSuspicion(nowMs: number): void {
    this.#compare(nowMs)
    if (this.#worseBy(Z_CERTAIN) > 0) this.#test()
    else if (this.#worseBy(Z_SUSPECT) <= 0) return
    else if (!this.isQuiet) this.#test()
    else if (this.#budget.paysTest) this.#test(true)
  }

  #test(isSavingTest = false): void {
    const standing = this.#standing
    standing.tests++
    standing.isSavingTest = isSavingTest
    // After a long time without a test, the pause starts small again.
    if (standing.outcomes > standing.pausedUntil + FORGIVEN_PAUSES * standing.pause)
      standing.pause = PAUSE_MIN
    this.#enter('testing')
  }

  #trust(): void {
    const standing = this.#standing
    standing.testedMs = this.#recent.mean
    standing.wasGivenBack = standing.hasShrunk
    if (standing.hasShrunk) this.#budget.found(this.#nowMs)
    standing.hasShrunk = false
    this.#enter('trusting')
    standing.calibrationAllowed = this.#calibration.mean
    standing.cachedAllowed = this.#cached.count === 0 ? 1 : this.#cached.mean
    standing.failedAllowed = this.#failures.mean
    this.#putOff()
  }

  #shrink(worse: number): void {
    const standing = this.#standing
    standing.shrinks++
    standing.hasShrunk = true
    this.#budget.found(this.#nowMs)
    // Used until the new phase has its own outcomes.
    standing.shrunkBy = worse
    this.#enter('shrunk')
    standing.wasOff = this.#isOff
    this.#putOff()
  }

  #putOff(): void {
    const standing = this.#standing
    standing.isSavingTest = false
    standing.pausedUntil = standing.outcomes + standing.pause
    standing.pause = Math.min(PAUSE_MAX, 2 * standing.pause)
  }

  #enter(phase: GuardPhase): void {
    this.#standing.phase = phase
    this.#phaseNumber++
    this.#affinity.clear()
    this.#control.clear()
    this.#recent.clear()
    this.#differences = NO_DIFFERENCES
  }

  get #affinityShare(): number {
    const isKnown = this.#fewerEnded >= ARM_OUTCOMES_MIN
    const worse = isKnown ? this.#worseBy(0) : this.#standing.shrunkBy
    return Math.min(TEST_SHARE, Math.max(AFFINITY_SHARE_MIN, LOSS_MAX / Math.max(LOSS_MAX, worse)))
  }

  /**
   * Whether first tokens now come much later, with all decisions by the policy, than in the last test, with
   * half of them.
   */
  get #isRelapse(): boolean {
    const { count, mean } = this.#recent
    const { testedMs } = this.#standing
    return testedMs > 0 && count >= RELAPSE_OUTCOMES && mean > RELAPSE_RATIO * testedMs
  }

  get #fewerEnded(): number {
    return Math.min(this.#affinity.ended, this.#control.ended)
  }

  get #isOff(): boolean {
    const calibration = this.#calibration
    const cached = this.#cached
    const failures = this.#failures
    const { calibrationAllowed, cachedAllowed, failedAllowed } = this.#standing
    return (
      (calibration.count >= SUSPICION_OUTCOMES &&
        Math.abs(calibration.mean - calibrationAllowed) > CALIBRATION_OFF) ||
      (cached.count >= SUSPICION_OUTCOMES && cached.mean < cachedAllowed - CACHED_OFF) ||
      (failures.count >= SUSPICION_OUTCOMES && failures.mean > failedAllowed + ERRORS_OFF)
    )
  }

  /** Whether affinity is worse by any mean: otherwise there is no need to compare. */
  #looksWorse(nowMs: number): boolean {
    const [affinity, control] = [this.#affinity, this.#control]
    return (
      affinity.errors.mean > control.errors.mean ||
      affinity.durations.mean > control.durations.mean ||
      affinity.firstTokensAt(nowMs, control).mean > control.firstTokensAt(nowMs, affinity).mean
    )
  }

  #compare(nowMs: number): void {
    this.#differences = this.#differencesAt(nowMs)
  }

  #differencesAt(nowMs: number): Differences {
    const [affinity, control] = [this.#affinity, this.#control]
    return {
      errors: errorDifference(affinity.errors, control.errors),
      ttft: timeDifference(affinity.firstTokensAt(nowMs, control), control.firstTokensAt(nowMs, affinity)),
      duration: timeDifference(affinity.durations, control.durations),
    }
  }

  #worseBy(zMin: number): number {
    return worseBy(this.#differences, zMin)
  }

  /** Its first token is no longer pending. Returns whether that counts for its arm. */
  #stopWaiting(decision: OwnDecision): boolean {
    const { arm, isWaiting, phaseNumber, weight, sinceMs } = decision
    decision.isWaiting = false
    if (!isWaiting || arm === undefined || phaseNumber !== this.#phaseNumber) return false
    this.#arm(arm).waited(weight, sinceMs)
    return true
  }

  /** Ends a decision. Returns the arm that its end counts for. `isSeen`: something was seen of it. */
  #end(decision: OwnDecision, isSeen: boolean): ArmOutcomes | undefined {
    const { arm, isOpen, phaseNumber, hasFirstToken } = decision
    this.#stopWaiting(decision)
    decision.isOpen = false
    if (isOpen && isSeen && !hasFirstToken) this.#standing.outcomes++
    if (!isOpen || arm === undefined || phaseNumber !== this.#phaseNumber) return undefined
    const own = this.#arm(arm)
    own.open--
    if (isSeen) own.ended++
    return own
  }

  #time(nowMs: number): number {
    if (nowMs > this.#nowMs && nowMs <= Number.MAX_SAFE_INTEGER) this.#nowMs = nowMs
    return this.#nowMs
  }

  #arm(arm: GuardArm): ArmOutcomes {
    return arm === 'control' ? this.#control : this.#affinity
  }
}

function reportOf(arm: ArmOutcomes): ArmReport {
  const { decisions, outcomes, finished, failed, seen, durations, errors } = arm
  return {
    decisions,
    outcomes,
    finished,
    failed,
    correctedTtft: seen.mean,
    correctedDuration: durations.mean,
    errorShare: errors.mean,
  }
}
