/**
 * Attempts of a recovery to get the missing batches from a replay: which one is under way, what it brought,
 * and when to stop.
 *
 *   begin ──▶ attempt ──end or silence──▶ live | again | pause, then again | give up
 *
 * Invariants
 *   I1  Replies count only for the current attempt: each has a number, and none is used twice.
 *   I2  A recovery has at most `replayAttemptsTotalMax` attempts, and at most `replayAttemptsMax` in a row
 *       that brought nothing.
 *   I3  A replay that may have lost replies at its end is asked again until nothing new comes.
 */

import type { ListenerLimits } from './limits.ts'

/**
 * `rebuild`: from the beginning. `gap`: from a hole. `check`: only to make sure that nothing is missing, or
 * of another life.
 */
export type Purpose = 'rebuild' | 'gap' | 'check'

/** What an attempt asks for, and what is known at the time. */
export interface AttemptQuestion {
  /** A snapshot was asked for with it. */
  readonly asksSnapshot: boolean
  /** The first sequence that it asks for; undefined: for none. */
  readonly from: number | undefined
  /** The batch that its reply is to repeat before it counts; undefined: none, or it has. */
  readonly toRepeat: number | undefined
  /** The highest sequence that the live socket had brought; −1: none. */
  readonly heardMax: number
}

/** One question to the replay socket. */
export interface Attempt extends AttemptQuestion {
  readonly number: number
  /** `comparison`: only to see whether it answers, and repeats what the live socket brought last. */
  readonly asksFor: 'history' | 'comparison'
  toRepeat: number | undefined
  /** The highest sequence that it brought; −1: none. */
  repliedMax: number
  /** Batches, or snapshots, that it brought. */
  applied: number
  hasReplies: boolean
  hadHole: boolean
  /** The indexer refused something of it. */
  wasRefused: boolean
}

/** `live`: nothing is missing any more. `again`: at once. `pause`: again after `pauseMs`. */
export type AttemptVerdict = 'live' | 'again' | 'pause' | 'giveUp'

/** An engine's replay socket keeps 1,000 messages for a peer, and drops further ones without a word. */
const LOSSLESS_REPLIES_MAX = 1000

export class Attempts {
  readonly #limits: ListenerLimits
  readonly #nowMs: () => number
  #purpose: Purpose = 'gap'
  #isRebuild = false
  #attempt: Attempt = newAttempt(0, 'comparison', {
    asksSnapshot: false,
    from: undefined,
    toRepeat: undefined,
    heardMax: -1,
  })
  #fruitless = 0
  #total = 0
  #replies = 0
  #hadHole = false
  #toldMax = -1
  /** An attempt ended without an end marker: what was to come of it may have been late. */
  #fellSilent = false
  #lastReplyMs = 0
  /** Until then no replay is asked for: the last recovery failed with it. */
  #pausedUntilMs = Number.NEGATIVE_INFINITY
  #mayHealLater = false
  /** In a row. */
  #vainChecks = 0

  constructor(limits: ListenerLimits, nowMs: () => number) {
    this.#limits = limits
    this.#nowMs = nowMs
  }

  get purpose(): Purpose {
    return this.#purpose
  }

  /** It began as a rebuild, whatever its purpose has become. */
  get isRebuild(): boolean {
    return this.#isRebuild
  }

  /** The one that began last. */
  get current(): Attempt {
    return this.#attempt
  }

  /**
   * The last recovery failed because the replay socket did not answer, fell silent, or lost some of what it
   * sent.
   */
  get mayHealLater(): boolean {
    return this.#mayHealLater
  }

  get isPaused(): boolean {
    return this.#nowMs() < this.#pausedUntilMs
  }

  get pausedForMs(): number {
    return Math.max(0, this.#pausedUntilMs - this.#nowMs())
  }

  get hasAnswers(): boolean {
    return this.#replies > 0
  }

  /** Something that the replay socket sent may have been lost, and so may be its end. */
  get mayLackEnd(): boolean {
    return this.#hadHole || this.#attempt.hadHole || this.#replies >= LOSSLESS_REPLIES_MAX
  }

  begin(purpose: 'rebuild' | 'gap'): void {
    this.#purpose = purpose
    this.#isRebuild = purpose === 'rebuild'
    this.#fruitless = 0
    this.#total = 0
    this.#replies = 0
    this.#hadHole = false
    this.#fellSilent = false
    this.#toldMax = -1
    // A gap that is filled, or a check, leaves as unknown what was unknown before it.
    if (purpose === 'rebuild') this.#mayHealLater = false
  }

  /** One attempt beside the live socket. It is in vain until it is known to have confirmed the history. */
  beginCheck(): void {
    this.begin('gap')
    this.#purpose = 'check'
    this.#vainChecks++
  }

  /**
   * The history has reached the live socket: what is still to come of the attempt may be what that has lost
   * since.
   */
  joined(): void {
    this.#purpose = 'check'
  }

  /** It was not able to make sure: what follows fills a gap. */
  checkFailed(): void {
    if (this.#purpose === 'check') this.#purpose = 'gap'
  }

  /**
   * The recovery has ended. `isConfirmed`: there is nothing of the live socket that it should have confirmed,
   * and did not.
   */
  ended(isConfirmed: boolean): void {
    if (isConfirmed) this.#vainChecks = 0
    this.#purpose = 'gap'
  }

  /** What is still to come of the attempt under way no longer counts. */
  fence(): void {
    this.#attempt = { ...this.#attempt, number: this.#attempt.number + 1 }
  }

  /** A failed replay says nothing of another connection, or life. */
  forgetFailure(): void {
    this.#pausedUntilMs = Number.NEGATIVE_INFINITY
    this.#mayHealLater = false
    this.#vainChecks = 0
  }

  next(question: AttemptQuestion): Attempt {
    this.#total++
    this.#lastReplyMs = this.#nowMs()
    this.#attempt = newAttempt(this.#attempt.number + 1, 'history', question)
    return this.#attempt
  }

  /** Asks for what the live socket brought last. */
  compare(heardMax: number): Attempt {
    const from = Math.max(0, heardMax)
    const question = { asksSnapshot: false, from, toRepeat: undefined, heardMax }
    this.#attempt = newAttempt(this.#attempt.number + 1, 'comparison', question)
    return this.#attempt
  }

  /**
   * The highest sequence that any attempt of this recovery has told; −1: none. What is there up to it may be
   * asked for again.
   */
  get toldMax(): number {
    return this.#toldMax
  }

  /** A batch came of the attempt under way. */
  told(sequence: number): void {
    this.#attempt.repliedMax = Math.max(this.#attempt.repliedMax, sequence)
    this.#toldMax = Math.max(this.#toldMax, sequence)
  }

  /** Something came of the attempt under way. */
  replied(): void {
    this.#lastReplyMs = this.#nowMs()
    this.#replies++
  }

  /**
   * How long a silence ends the attempt. A replay that has begun comes from memory: when it falls silent, its
   * end was lost.
   */
  get silenceMsMax(): number {
    const { replayTimeoutMs, replaySilenceMs } = this.#limits
    return this.#attempt.hasReplies ? Math.min(replayTimeoutMs, replaySilenceMs) : replayTimeoutMs
  }

  /** Until the silence is over. */
  get silenceDueMs(): number {
    return this.#lastReplyMs + this.silenceMsMax - this.#nowMs()
  }

  /** `isMarked`: with an end marker. `reachesLive`: nothing is missing that is known of. */
  currentEnded(isMarked: boolean, reachesLive: boolean): AttemptVerdict {
    const { applied, hadHole, wasRefused } = this.#attempt
    const isAnswered = isMarked || applied > 0 || this.#purpose === 'check'
    const mayLackEnd = this.mayLackEnd
    if (hadHole) this.#hadHole = true
    if (!isMarked) this.#fellSilent = true
    const isComplete = reachesLive && !hadHole
    if (isAnswered && isComplete && !(mayLackEnd && applied > 0)) return 'live'
    this.checkFailed()
    if (applied > 0) this.#fruitless = 0
    else if (!wasRefused) this.#fruitless++
    const { replayAttemptsMax, replayAttemptsTotalMax } = this.#limits
    if (this.#fruitless >= replayAttemptsMax || this.#total >= replayAttemptsTotalMax) return 'giveUp'
    return applied > 0 ? 'again' : 'pause'
  }

  /** The attempt brought nothing that could be used. */
  currentFailed(): 'pause' | 'giveUp' {
    this.#fruitless++
    return this.#fruitless >= this.#limits.replayAttemptsMax ? 'giveUp' : 'pause'
  }

  /** `isLasting`: the next attempt would bring the same. `mayHeal`: a later one may bring more. */
  givenUp({ isLasting, mayHeal }: { readonly isLasting: boolean; readonly mayHeal: boolean }): void {
    if (isLasting) this.#pausedUntilMs = this.#nowMs() + this.#limits.replayPauseMs
    this.#mayHealLater = mayHeal || !this.hasAnswers || this.#hadHole || this.#fellSilent
  }

  /** What is left alone now, because it failed, may bring more when the pause is over. */
  resumeLater(): void {
    if (this.isPaused) this.#mayHealLater = true
  }

  /** Before the next attempt. */
  get pauseMs(): number {
    const { backoffMsMin, backoffMsMax } = this.#limits
    return Math.min(backoffMsMax, doubled(backoffMsMin, this.#fruitless - 1))
  }

  /** Before the next check of a source that is not to be believed without one; 0: at once. */
  get checkPauseMs(): number {
    const { backoffMsMin, replayPauseMs } = this.#limits
    if (this.#vainChecks === 0) return 0
    return Math.min(replayPauseMs, doubled(backoffMsMin, this.#vainChecks - 1))
  }
}

function newAttempt(number: number, asksFor: Attempt['asksFor'], question: AttemptQuestion): Attempt {
  return {
    ...question,
    number,
    asksFor,
    repliedMax: -1,
    applied: 0,
    hasReplies: false,
    hadHole: false,
    wasRefused: false,
  }
}

function doubled(ms: number, times: number): number {
  return ms * 2 ** Math.min(16, Math.max(0, times))
}
