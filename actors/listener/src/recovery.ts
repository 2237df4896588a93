/**
 * Recovery: acts when a history is broken, or may be. It owns the phase of a source, and carries out the
 * outcomes of a replay. The table of its transitions is at the head of sequence-follower.ts.
 *
 * Invariants
 *   I1  At most one wait for a move at a time. Every phase but `live`, `connecting` and `disconnected` has
 *       one: nothing waits forever.
 *   I2  A rebuild begins with a clear, and nothing is replayed before the indexer has taken it.
 *   I3  While the replay is kept apart from the live socket, no part of it is applied.
 */

import type { SnapshotReply } from '@homing/protocol'
import type { Attempts } from './attempts.ts'
import type { ContradictionKind, Contradictions } from './contradictions.ts'
import type { Drained, HeldBack } from './held-back.ts'
import type { History } from './history.ts'
import type { Life } from './life.ts'
import type { ListenerLimits } from './limits.ts'
import { LiveWatch } from './live-watch.ts'
import {
  FORGOTTEN,
  type Replay,
  type ReplayedReply,
  type ReplayOutcome,
  type ReplayQuestion,
} from './replay.ts'
import type { Snapshots } from './snapshots.ts'
import type { SourceCounters } from './source-counters.ts'
import type { Phase } from './source-trust.ts'
import { Waits } from './waits.ts'

export interface RecoveryEffects {
  nowMs(): number
  /** Replies carry the number of the attempt. Ends the attempt before. */
  startReplay(attempt: number, asked: ReplayQuestion): void
  /** Asks for batches in the attempt under way, whose snapshot is whole. */
  askRest(fromSequence: number): void
  stopReplay(): void
  /** Calls `wake(wait)` after the delay; a later wait replaces an earlier one. */
  setWait(wait: number, delayMs: number): void
}

export interface RecoveryParts {
  readonly attempts: Attempts
  readonly contradictions: Contradictions
  readonly counters: SourceCounters
  readonly heldBack: HeldBack
  readonly history: History
  readonly life: Life
  readonly replay: Replay
  readonly snapshots: Snapshots
  readonly limits: ListenerLimits
  /** The trust may have changed. */
  readonly moved: () => void
  /** Another life of the engine has begun: what the live socket brought belongs to the one before. */
  readonly restarted: () => void
  /**
   * The same, unless the replay is wrong. In both cases batches older than the live ones are late.
   */
  readonly mayHaveRestarted: () => void
  /** The same, but only up to this sequence. */
  readonly restartedBehind: (sequence: number) => void
}

const HELD_BACK_IS_OTHER = 'the engine restarted: the batches held back are of another life than its replay'

export class Recovery {
  readonly #effects: RecoveryEffects
  readonly #parts: RecoveryParts
  readonly #waits: Waits
  readonly watch: LiveWatch
  #phase: Phase = 'connecting'
  #owedRebuild: string | undefined
  #lastRebuildMs = Number.NEGATIVE_INFINITY
  #hasLostLive = false

  constructor(effects: RecoveryEffects, parts: RecoveryParts) {
    this.#effects = effects
    this.#parts = parts
    const nowMs = () => effects.nowMs()
    this.#waits = new Waits(nowMs, (wait, delayMs) => effects.setWait(wait, delayMs))
    this.watch = new LiveWatch({
      ...parts,
      waits: this.#waits,
      nowMs,
      startReplay: (attempt, asked) => effects.startReplay(attempt, asked),
      stopReplay: () => effects.stopReplay(),
      startAttempt: () => this.#startAttempt(),
      rebuild: reason => this.rebuild(reason),
      moved: () => this.#moved(),
    })
  }

  get phase(): Phase {
    return this.#phase
  }

  /** It follows a socket that is up. */
  get isUp(): boolean {
    return this.#phase !== 'connecting' && this.#phase !== 'disconnected'
  }

  /** Why a rebuild is due; it waits because the last one was too recent. */
  get owedRebuild(): string | undefined {
    return this.#owedRebuild
  }

  /** Live batches may continue the history at once. */
  get mayJoin(): boolean {
    const { attempts, life } = this.#parts
    return life.link === 'linked' || attempts.purpose === 'check'
  }

  /** The socket is up, for the first time or again. */
  connected(reason: string): void {
    this.#parts.contradictions.reconcile()
    this.rebuild(reason)
  }

  /** The socket is down. */
  disconnected(): void {
    const { history, limits } = this.#parts
    this.#forgetHistory('the event socket is down', true)
    this.#phase = 'disconnected'
    this.#effects.stopReplay()
    this.#waits.cancel()
    if (history.owesClear) this.#waits.set('retry', limits.backoffMsMin)
    this.#moved()
  }

  /** Live batches up to now, received or lost, and failed replays belong to the past. */
  forgetLive(): void {
    const { attempts, heldBack, replay } = this.#parts
    this.#hasLostLive = false
    heldBack.forget()
    replay.forgetUnusable()
    attempts.forgetFailure()
  }

  /** Clears, and replays from 0 where that is possible. Batches held back stay held back. */
  rebuild(reason: string): void {
    const { attempts, history, snapshots } = this.#parts
    this.#forgetHistory(reason)
    this.#lastRebuildMs = this.#effects.nowMs()
    this.#owedRebuild = undefined
    snapshots.beginRebuild()
    attempts.begin('rebuild')
    if (history.owesClear) this.pause('retry')
    else this.#replayOrGoOn()
    this.#moved()
  }

  /** The same, when the last rebuild is old enough. */
  rebuildSoon(reason: string): void {
    if (this.#rebuildDueMs <= 0) {
      this.rebuild(reason)
      return
    }
    this.#owedRebuild = reason
    if (this.#phase === 'live') this.#waits.set('rebuild', this.#rebuildDueMs)
    this.#moved()
  }

  /** The engine is known to run as another process. */
  restart(reason: string): void {
    const { contradictions, counters, replay, restarted } = this.#parts
    counters.restarts++
    contradictions.excuse()
    replay.dropCheckpoint('the engine has restarted since')
    restarted()
    this.rebuild(reason)
  }

  /**
   * Batches are of different lives. One contradiction means a restart. Too many do not, and neither does one
   * that no restart explains (`isProof`).
   */
  contradicted(kind: ContradictionKind, reason: string, isProof = false): void {
    this.#parts.history.dropBase()
    if (this.#noteContradiction(kind, isProof)) return
    this.#parts.counters.restarts++
    this.rebuild(reason)
  }

  /** A batch is missing before those held back. */
  gap(): void {
    const { attempts, replay } = this.#parts
    attempts.begin('gap')
    if (!this.#parts.replay.canAsk) this.#startFromLive('batches were lost and there is no replay')
    else if (replay.canProve) this.#startAttempt()
    else this.rebuild('batches were lost, and no batch before them could be repeated')
    this.#moved()
  }

  /** A batch came that belongs before the applied ones, or is of another life. */
  late(isProof: boolean, reason: string): void {
    this.#parts.heldBack.forget()
    if (!this.#noteContradiction('live', isProof)) this.rebuild(reason)
  }

  /** Live batches were lost; it is unknown which. */
  lostLive(): void {
    this.#hasLostLive = true
    if (this.#phase === 'live') this.#goLive()
  }

  /** A live batch came during a recovery; the batches held back were drained as far as possible. */
  heldOneBack(drained: Drained): void {
    const { attempts, counters, life } = this.#parts
    const isCheck = attempts.purpose === 'check'
    if (drained === 'otherRank' || drained === 'older') this.#contradict(HELD_BACK_IS_OTHER)
    else if (drained === 'empty' && !isCheck) {
      const { toRepeat } = attempts.current
      // The hole was filled late, and the engine has not repeated the batch before it.
      if (toRepeat !== undefined) life.openSeam(toRepeat)
      this.#goLive()
    } else if (drained !== 'empty' && isCheck) {
      // The check has something to find: a batch held back may be a removal.
      counters.gaps++
      attempts.checkFailed()
      this.#moved()
    }
  }

  /** A live batch is not confirmed by a replay, or has been confirmed at last. */
  linkChanged(): void {
    const { contradictions, life } = this.#parts
    if (this.#phase === 'live' && life.link === 'linked') contradictions.agreed()
    if (this.#phase === 'live' && life.canBeLinked) this.#awaitMove(false)
    this.#moved()
  }

  /** The first live batch came: a publisher that had no snapshot may have one now. */
  heardFirst(): void {
    if (this.#phase === 'live' && this.#parts.snapshots.isDue(true)) this.#awaitMove(false)
  }

  /** A live batch came after a silence in which the engine may have restarted. */
  liveAfterSilence(): void {
    if (this.#phase === 'live' && this.#parts.life.link === 'linked') this.watch.check()
  }

  /** A publisher beside the engine has withdrawn what it told: its next snapshot may know more. */
  withdrawn(): void {
    const { limits, snapshots } = this.#parts
    if (this.#phase === 'live' && snapshots.isOffered)
      this.#waits.set('rebuild', Math.max(limits.settleMs, this.#rebuildDueMs))
  }

  /** A reply to the attempt under way. */
  replied(reply: ReplayedReply): void {
    const { attempts, replay } = this.#parts
    if (this.#phase === 'live' && attempts.current.asksFor === 'comparison') this.watch.compared(reply)
    else if (this.#phase === 'replaying') {
      this.#follow(replay.replied(reply, () => this.#waits.set('replies', attempts.silenceMsMax)))
    }
  }

  /** The same, of a snapshot. */
  snapshotReplied(reply: Exclude<SnapshotReply, { readonly kind: 'malformed' }>): void {
    const { attempts, replay } = this.#parts
    if (this.#phase === 'replaying' && attempts.current.asksSnapshot) this.#follow(replay.snapshot(reply))
  }

  wake(wait: number): void {
    switch (this.#waits.over(wait)) {
      case 'replies':
        this.#awaitReplies()
        return
      case 'attempt':
        this.#startAttempt()
        return
      case 'retry':
        this.#retry()
        return
      case 'rebuild':
        this.rebuild(this.#owedRebuild ?? this.#parts.history.reason)
        return
      case 'compare':
        this.watch.compare()
        return
      case 'check':
        this.watch.check()
        return
      case 'reconcile':
        this.#parts.contradictions.reconcile()
        this.rebuild('two publishers were heard')
        return
      case 'trust':
        this.#parts.contradictions.calm()
        this.#moved()
        return
      case undefined:
    }
  }

  /** Between two attempts, or until what was refused is tried again. */
  pause(waitFor: 'attempt' | 'retry'): void {
    const { attempts, limits } = this.#parts
    this.#phase = 'pausing'
    attempts.checkFailed()
    this.#waits.set(waitFor, waitFor === 'attempt' ? attempts.pauseMs : limits.backoffMsMin)
    this.#moved()
  }

  get #rebuildDueMs(): number {
    return this.#lastRebuildMs + this.#parts.limits.resyncMsMin - this.#effects.nowMs()
  }

  #forgetHistory(reason: string, isParted = false): void {
    this.#parts.snapshots.cut()
    this.#parts.history.forget(reason, isParted)
  }

  #replayOrGoOn(): void {
    const { history, life } = this.#parts
    if (!this.#parts.replay.canAsk) this.#startFromLive(history.reason)
    // The replay counts once it agrees with the live socket: with the next live batch.
    else if (life.isContradicted && life.liveMax < 0) this.#goLive()
    else this.#startAttempt()
  }

  /** The replayed batches are of another life than the live ones. */
  #contradict(reason: string): void {
    const { life, mayHaveRestarted } = this.#parts
    mayHaveRestarted()
    life.contradict()
    this.contradicted('replay', reason)
  }

  /** True: there are too many contradictions, and nothing is rebuilt for now. */
  #noteContradiction(kind: ContradictionKind, isProof: boolean): boolean {
    const { contradictions, counters } = this.#parts
    counters.contradictions++
    contradictions.note(kind, isProof)
    if (contradictions.isApart) this.#keepApart()
    return contradictions.isApart
  }

  /**
   * Until the pause is over, only the live socket is followed; nothing is followed if it contradicts itself.
   */
  #keepApart(): void {
    const { attempts, contradictions, history, limits, restarted } = this.#parts
    const reason = contradictions.reason!
    this.#effects.stopReplay()
    this.#waits.cancel()
    attempts.begin('gap')
    if (contradictions.kind === 'replay') {
      this.#startFromLive(reason)
    } else {
      restarted()
      this.#forgetHistory(reason)
      this.#phase = 'apart'
      if (history.owesClear) this.#waits.set('retry', limits.backoffMsMin)
      else this.#waits.set('reconcile', contradictions.dueMs!)
    }
    this.#moved()
  }

  #startAttempt(): void {
    const { attempts, limits, replay } = this.#parts
    this.#phase = 'replaying'
    const question = replay.ask()
    this.#waits.set('replies', limits.replayTimeoutMs)
    this.#effects.startReplay(attempts.current.number, question)
  }

  /** A silence ends the replay, unless a reply came since the wait began. */
  #awaitReplies(): void {
    const { attempts, replay } = this.#parts
    const dueMs = attempts.silenceDueMs
    if (dueMs > 0) this.#waits.set('replies', dueMs)
    else this.#follow(replay.ended(false))
  }

  #follow(outcome: ReplayOutcome): void {
    if (outcome.next === 'more') return
    if (outcome.next === 'rest') {
      this.#effects.askRest(outcome.fromSequence)
      return
    }
    if (outcome.next === 'joined') {
      this.#joined()
      return
    }
    this.#effects.stopReplay()
    this.#waits.cancel()
    switch (outcome.next) {
      case 'live':
        this.#goLive()
        return
      case 'again':
        this.#startAttempt()
        return
      case 'pause':
        this.pause('attempt')
        return
      case 'retry':
        this.pause('retry')
        return
      case 'giveUp':
        this.#giveUp()
        return
      case 'rebuild':
        if (outcome.behind !== undefined) this.#parts.restartedBehind(outcome.behind)
        this.rebuild(outcome.reason)
        return
      case 'restart':
        if (outcome.behind !== undefined) this.#parts.restartedBehind(outcome.behind)
        this.contradicted('replay', outcome.reason)
        return
      case 'contradict':
        this.#contradict(outcome.reason)
        return
      case 'startFromLive':
        this.#startFromLive(outcome.reason)
    }
  }

  #giveUp(): void {
    const { attempts, snapshots } = this.#parts
    const answers = attempts.hasAnswers
    if (answers && attempts.purpose !== 'rebuild') {
      this.rebuild(FORGOTTEN)
      return
    }
    // The next snapshot is a newer one.
    if (snapshots.isOffered) snapshots.askAgainLater()
    attempts.givenUp({ isLasting: !snapshots.isOffered, mayHeal: false })
    this.#startFromLive(
      answers ? 'the replay does not reach the live events' : 'the replay socket does not answer',
    )
  }

  /** Without replay: forgets the history and begins at the newest run of batches at hand, or the next one. */
  #startFromLive(reason: string): void {
    const { attempts, heldBack, history } = this.#parts
    if (history.expected !== undefined) this.#forgetHistory(reason)
    else history.explain(reason)
    attempts.checkFailed()
    attempts.resumeLater()
    const first = heldBack.keepNewestRun()
    if (first !== undefined) history.begin(first.sequence, 'live')
    // Nothing was replayed in this epoch, so no restart can show here.
    if (history.owesClear || heldBack.drain() === 'refused') this.pause('retry')
    else this.#goLive()
  }

  /** The indexer refused something: tries again, and goes on where it stopped. */
  #retry(): void {
    const { contradictions, heldBack, history, limits, replay } = this.#parts
    if (history.owesClear && !history.tryClear()) {
      this.#waits.set('retry', limits.backoffMsMin)
      return
    }
    if (this.#phase === 'disconnected') return
    if (this.#phase === 'apart') {
      this.#waits.set('reconcile', contradictions.dueMs!)
      this.#moved()
      return
    }
    if (history.expected === undefined) {
      this.#replayOrGoOn()
      this.#moved()
      return
    }
    // During the wait a proof may have become due.
    const drained = replay.canAsk && replay.isProofDue ? 'hole' : heldBack.drain()
    if (drained === 'refused') this.#waits.set('retry', limits.backoffMsMin)
    else if (drained === 'empty') this.#goLive()
    else if (drained === 'hole') this.gap()
    else this.#contradict(HELD_BACK_IS_OTHER)
  }

  /** Live batches are applied from here on as they come, and the attempt goes on beside them. */
  #joined(): void {
    const { attempts, contradictions, life } = this.#parts
    attempts.joined()
    if (life.link === 'linked') contradictions.agreed()
    this.#moved()
  }

  #goLive(): void {
    const { attempts, contradictions, counters, life } = this.#parts
    const { isRebuild } = attempts
    this.#effects.stopReplay()
    this.#phase = 'live'
    attempts.ended(life.link !== 'due')
    this.#waits.cancel()
    if (this.#hasLostLive) {
      this.#hasLostLive = false
      counters.gaps++
      this.gap()
      return
    }
    if (life.link === 'linked') contradictions.agreed()
    this.#awaitMove(isRebuild)
    this.#moved()
  }

  /** The next move of a source that is live. */
  #awaitMove(isRebuilt: boolean): void {
    const { life, snapshots } = this.#parts
    if (this.#owedRebuild !== undefined || snapshots.isDue(life.liveMax >= 0))
      this.#waits.set('rebuild', Math.max(0, this.#rebuildDueMs))
    else this.watch.next(isRebuilt)
  }

  #moved(): void {
    this.watch.timeTrust()
    this.#parts.moved()
  }
}
