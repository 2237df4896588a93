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
 * `rebuild`: from the beginning. `gap`: from a hole. `check`: only to make sure that nothing is missing, and
 * that nothing is of another life.
 */
export type Purpose = 'rebuild' | 'gap' | 'check'

/** What an attempt asks for, and what is known at the time. */
export interface AttemptQuestion {
  /** A snapshot was asked for with it. */
  readonly asksSnapshot: boolean
  /** The first sequence that it asks for; undefined: for none. */
  readonly from: number | undefined
  /** The batch that the reply must repeat before it counts; undefined: none, or already repeated. */
  readonly toRepeat: number | undefined
  /** The highest sequence that the live socket had brought; −1: none. */
  readonly heardMax: number
}

/** One question to the replay socket. */
export interface Attempt extends AttemptQuestion {
  readonly number: number
  /** `comparison`: only to see whether the replay answers, and repeats the last live batch. */
  readonly asksFor: 'history' | 'comparison'
  toRepeat: number | undefined
  /** The highest sequence that it brought; −1: none. */
  repliedMax: number
  /** Batches, or snapshots, that it brought. */
  applied: number
  hasReplies: boolean
  hadHole: boolean
  /** The indexer refused a part of the reply. */
  wasRefused: boolean
}

/** `live`: nothing is missing any more. `again`: at once. `pause`: again after `pauseMs`. */
export type AttemptVerdict = 'live' | 'again' | 'pause' | 'giveUp'

/** An engine's replay socket keeps 1,000 messages for a peer, and drops further ones silently. */
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
  /** An attempt ended without an end marker: the rest of its replies may have been late. */
  #fellSilent = false
  #lastReplyMs = 0
  /** Until then no replay is requested: in the last recovery the replay failed. */
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

  /** The recovery began as a rebuild; its purpose may have changed since. */
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

  /** Replies may have been lost, the end of the replay included. */
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
    // Filling a gap, or a check, does not change what was unknown before.
    if (purpose === 'rebuild') this.#mayHealLater = false
  }

  /** One attempt beside the live socket. It counts as vain until it has confirmed the history. */
  beginCheck(): void {
    this.begin('gap')
    this.#purpose = 'check'
    this.#vainChecks++
  }

  /**
   * The history has reached the live socket: further replies of the attempt may be batches that the live
   * socket has lost since.
   */
  joined(): void {
    this.#purpose = 'check'
  }

  /** The check could not confirm the history: what follows fills a gap. */
  checkFailed(): void {
    if (this.#purpose === 'check') this.#purpose = 'gap'
  }

  /**
   * The recovery has ended. `isConfirmed`: it has confirmed all that it should have confirmed of the live
   * socket.
   */
  ended(isConfirmed: boolean): void {
    if (isConfirmed) this.#vainChecks = 0
    this.#purpose = 'gap'
  }

  /** Further replies of the attempt under way no longer count. */
  fence(): void {
    this.#attempt = { ...this.#attempt, number: this.#attempt.number + 1 }
  }

  /** A failed replay says nothing about another connection or life. */
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

  /** Asks for the last live batch. */
  compare(heardMax: number): Attempt {
    const from = Math.max(0, heardMax)
    const question = { asksSnapshot: false, from, toRepeat: undefined, heardMax }
    this.#attempt = newAttempt(this.#attempt.number + 1, 'comparison', question)
    return this.#attempt
  }

  /**
   * The highest sequence that any attempt of this recovery has told; −1: none. Batches up to it may be
   * requested again.
   */
  get toldMax(): number {
    return this.#toldMax
  }

  /** The attempt under way brought a batch. */
  told(sequence: number): void {
    this.#attempt.repliedMax = Math.max(this.#attempt.repliedMax, sequence)
    this.#toldMax = Math.max(this.#toldMax, sequence)
  }

  /** The attempt under way brought a reply. */
  replied(): void {
    this.#lastReplyMs = this.#nowMs()
    this.#replies++
  }

  /**
   * How long a silence must be to end the attempt. A replay that has begun comes from memory: when it falls
   * silent, its end was lost.
   */
  get silenceMsMax(): number {
    const { replayTimeoutMs, replaySilenceMs } = this.#limits
    return this.#attempt.hasReplies ? Math.min(replayTimeoutMs, replaySilenceMs) : replayTimeoutMs
  }

  /** When the silence is long enough. */
  get silenceDueMs(): number {
    return this.#lastReplyMs + this.silenceMsMax - this.#nowMs()
  }

  /** `isMarked`: with an end marker. `reachesLive`: nothing is known to be missing. */
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
    if (this.isSpent) return 'giveUp'
    return applied > 0 ? 'again' : 'pause'
  }

  /** The attempt brought nothing that could be used. */
  currentFailed(): 'pause' | 'giveUp' {
    this.#fruitless++
    return this.isSpent ? 'giveUp' : 'pause'
  }

  /** No further attempt may begin (I2). */
  get isSpent(): boolean {
    const { replayAttemptsMax, replayAttemptsTotalMax } = this.#limits
    return this.#fruitless >= replayAttemptsMax || this.#total >= replayAttemptsTotalMax
  }

  /** `isLasting`: the next attempt would bring the same. `mayHeal`: a later one may bring more. */
  givenUp({ isLasting, mayHeal }: { readonly isLasting: boolean; readonly mayHeal: boolean }): void {
    if (isLasting) this.#pausedUntilMs = this.#nowMs() + this.#limits.replayPauseMs
    this.#mayHealLater = mayHeal || !this.hasAnswers || this.#hadHole || this.#fellSilent
  }

  /** The replay failed and is left alone now; it may bring more when the pause is over. */
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
