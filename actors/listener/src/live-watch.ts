/**
 * Live watch: watches a source that is not known to miss anything. It checks periodically, and when there is
 * a reason to, that the engine still repeats the applied batches. It notices when a replay that failed, or
 * contradicted the live socket, agrees with it again. And it limits how long a live batch may be unconfirmed.
 *
 *   check     asks for what was applied since the last check: after a rebuild; with the first live batch
 *             after a replay; with a live batch after a silence; every `checkIntervalMs`
 *   compare   asks for the last live batch only, while nothing of the replay is believed
 *
 * Invariant  the answer to a comparison is never applied; that of a check is, as any reply (replay.ts).
 */

import type { Attempts } from './attempts.ts'
import type { Contradictions } from './contradictions.ts'
import type { History } from './history.ts'
import type { Life } from './life.ts'
import type { ListenerLimits } from './limits.ts'
import type { Replay, ReplayedReply, ReplayQuestion } from './replay.ts'
import { fingerprintOf } from './seen-batches.ts'
import type { SourceCounters } from './source-counters.ts'
import type { Waits } from './waits.ts'

export interface LiveWatchParts {
  readonly attempts: Attempts
  readonly contradictions: Contradictions
  readonly counters: SourceCounters
  readonly history: History
  readonly life: Life
  readonly limits: ListenerLimits
  readonly replay: Replay
  readonly waits: Waits
  readonly nowMs: () => number
  readonly startReplay: (attempt: number, asked: ReplayQuestion) => void
  readonly stopReplay: () => void
  /** Begins the attempt that was prepared. */
  readonly startAttempt: () => void
  readonly rebuild: (reason: string) => void
  /** The trust may be another one. */
  readonly moved: () => void
}

export class LiveWatch {
  readonly #parts: LiveWatchParts
  #nextCheckMs = Number.NEGATIVE_INFINITY
  /** When a failed replay is compared next; checks come in between. Undefined: never. */
  #compareDueMs: number | undefined
  /** Since when a live batch waits for a replay that confirms it; undefined: none does. */
  #unconfirmedSinceMs: number | undefined

  constructor(parts: LiveWatchParts) {
    this.#parts = parts
  }

  /**
   * True if the live socket and the history are known to be of one life, or if it is too early to know.
   */
  get isConfirmed(): boolean {
    const { life } = this.#parts
    if (life.isContradicted || life.isDoubted) return false
    return this.#unconfirmedSinceMs === undefined || this.#graceMs > 0
  }

  /**
   * The source has become live, or has a batch to be confirmed: what it waits for. `isRebuilt`: behind a
   * rebuild.
   */
  next(isRebuilt: boolean): void {
    const { attempts, contradictions, history, life, limits, replay, waits, nowMs } = this.#parts
    const mayHeal = !contradictions.isApart && attempts.mayHealLater && !history.isWhole
    if (!mayHeal) this.#compareDueMs = undefined
    if (contradictions.isApart) {
      waits.set('compare', contradictions.dueMs!)
    } else if (mayHeal) {
      this.#compareDueMs ??= nowMs() + limits.replayPauseMs
      waits.set('compare', Math.max(0, this.#compareDueMs - nowMs()))
    } else if (!replay.canAsk) {
      if (attempts.isPaused) waits.set('check', attempts.pausedForMs)
    } else if (!life.canBeLinked) {
      waits.set('check', isRebuilt ? limits.settleMs : Math.max(0, this.#nextCheckMs - nowMs()))
    } else if (attempts.checkPauseMs > 0) {
      waits.set('check', attempts.checkPauseMs)
    } else {
      this.check()
    }
  }

  /** One attempt to make sure that nothing is missing, and that nothing is of another life. */
  check(): void {
    const { attempts, history, life, limits, replay, waits, nowMs } = this.#parts
    if (!replay.canAsk || history.expected === undefined) return
    this.#nextCheckMs = nowMs() + limits.checkIntervalMs
    if (!replay.canProve && !life.canBeLinked) {
      waits.set('check', limits.checkIntervalMs)
      return
    }
    attempts.beginCheck()
    if (replay.canProve) this.#parts.startAttempt()
    else this.#parts.rebuild('the replay repeated no batch of the known history')
  }

  /**
   * Asks the replay socket for the last live batch, to see whether it answers with the same content.
   */
  compare(): void {
    const { attempts, contradictions, counters, life, limits, waits, nowMs } = this.#parts
    if (contradictions.isApart) contradictions.stayApart()
    this.#compareDueMs = nowMs() + limits.replayPauseMs
    waits.set('compare', contradictions.isApart ? contradictions.dueMs! : limits.replayPauseMs)
    if (contradictions.isApart && life.liveMax < 0) return
    counters.replays++
    const { number, from } = attempts.compare(life.liveMax)
    this.#parts.startReplay(number, { snapshot: false, fromSequence: from! })
  }

  /** The first reply to that. */
  compared(reply: ReplayedReply): void {
    const { attempts, contradictions, counters, life, waits } = this.#parts
    if (reply.kind === 'malformed') {
      counters.malformedFrames++
      return
    }
    const isHeard = life.liveMax >= 0
    const likeness =
      reply.kind === 'end' ? 'other' : life.compareHeard(reply.sequence, fingerprintOf(reply.payload))
    this.#parts.stopReplay()
    attempts.fence()
    if (!isHeard || likeness === 'same') {
      attempts.forgetFailure()
      contradictions.reconcile()
      const what = isHeard ? 'the replay socket repeats the live events' : 'the replay socket answers again'
      this.#parts.rebuild(what)
    } else if (likeness === 'other' && contradictions.isApart) {
      counters.contradictions++
      contradictions.note('replay', false)
      waits.set('compare', contradictions.dueMs!)
      this.#parts.moved()
    }
  }

  /** Waits for the time at which the trust changes by itself. */
  timeTrust(): void {
    const { contradictions, life, waits, nowMs } = this.#parts
    if (life.link !== 'due') this.#unconfirmedSinceMs = undefined
    else this.#unconfirmedSinceMs ??= nowMs()
    if (this.#unconfirmedSinceMs !== undefined && this.#graceMs > 0) waits.setTrust(this.#graceMs)
    else waits.setTrust(contradictions.isCalming ? contradictions.dueMs : undefined)
  }

  get #graceMs(): number {
    return this.#unconfirmedSinceMs! + this.#parts.limits.unconfirmedMsMax - this.#parts.nowMs()
  }
}
