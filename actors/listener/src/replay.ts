/**
 * Replay: the requests to a replay socket, and the meaning of its replies. It proves that replies belong to
 * the current history before they continue it, and that they belong to the live socket before live batches
 * continue them.
 *
 *   request                      the reply continues the history when
 *   the batches from a hole on   the last batch applied, requested again, comes first and is the same
 *   a check                      the same, from the last seam on (life.ts)
 *   those after a checkpoint     its last batches, which are requested again, are the same
 *   a snapshot                   all of its parts came, in order; a large one is asked for again, once, by
 *                                hashes, if its publisher offers that
 *   all from 0 on                always: nothing is held before
 *
 * Live batches continue the reply when it repeats, with the same content, one that the live socket had
 * brought before the request. An engine keeps what it publishes, so a reply without that batch is of another
 * engine. Before that, an end or a silence lets live batches continue it only while the first of them is
 * believed (live-watch.ts).
 *
 * It decides nothing about the source: every reply has an outcome, and the follower acts on it.
 */

import type { SnapshotReply } from '@homing/protocol'
import type { Attempts } from './attempts.ts'
import type { HistoryPoint } from './checkpoint.ts'
import type { Contradictions } from './contradictions.ts'
import type { Drained, HeldBack } from './held-back.ts'
import type { History } from './history.ts'
import type { Life } from './life.ts'
import type { PendingBatch } from './pending-batches.ts'
import { fingerprintOf } from './seen-batches.ts'
import type { Snapshots } from './snapshots.ts'
import type { SourceCounters } from './source-counters.ts'

/**
 * What a replay socket is asked: for a snapshot, for all batches from a sequence on, or for both, in this
 * order.
 */
export interface ReplayQuestion {
  readonly snapshot: boolean
  /** The snapshot in its form `hashes`. */
  readonly byHashes?: true
  readonly fromSequence?: number
  /**
   * The batches are asked for once the snapshot is whole: a publisher answers one question at a time, and
   * another one ends the answer before.
   */
  readonly isRestLater?: true
}

/** A reply of a replay. */
export type ReplayedReply =
  | { readonly kind: 'batch'; readonly sequence: number; readonly payload: Uint8Array }
  | { readonly kind: 'end' }
  | { readonly kind: 'malformed' }

/**
 * What follows. `more`: the attempt goes on. `joined`: the attempt goes on, and the history has reached the
 * live socket. `live`: nothing is missing any more. `again`, `pause`: another attempt, at once or later.
 * `retry`: the indexer refused something. `startFromLive`: the history begins with what the live socket
 * brought. `restart`: the replay is of another life than the history at hand. `contradict`: it is of another
 * life than the live socket. `behind`: what the live socket brought up to there is, or may be, of the life
 * before.
 */
export type ReplayOutcome =
  | { readonly next: 'more' | 'joined' | 'live' | 'again' | 'pause' | 'retry' | 'giveUp' }
  | { readonly next: 'contradict' | 'startFromLive'; readonly reason: string }
  | { readonly next: 'rebuild' | 'restart'; readonly reason: string; readonly behind?: number }
  /** The attempt goes on with the batches from there on, which are to be asked for now. */
  | { readonly next: 'rest'; readonly fromSequence: number }

export interface ReplayParts {
  readonly hasReplay: boolean
  readonly attempts: Attempts
  readonly contradictions: Contradictions
  readonly counters: SourceCounters
  readonly heldBack: HeldBack
  readonly history: History
  readonly life: Life
  readonly snapshots: Snapshots
  /** Past it, a check asks for the last batch only. */
  readonly checkBatchesMax: number
  /** The live socket and the history are of one life, or it is too early to know. */
  readonly isConfirmed: () => boolean
  /** The offered checkpoint was taken over, or refused for this reason. */
  readonly checkpointSettled: (refusal: string | undefined) => void
  /** A publisher offered a snapshot by hashes, and is asked by tokens from now on. `why`: what was wrong. */
  readonly hashesFailed: (why: string) => void
}

const NOT_ALL_READ = 'the publisher beside the engine could not read all events; blocks may be stale'
export const FORGOTTEN = 'batches were lost and the engine no longer keeps them'

const MORE: ReplayOutcome = { next: 'more' }
const JOINED: ReplayOutcome = { next: 'joined' }
const LIVE: ReplayOutcome = { next: 'live' }
const AGAIN: ReplayOutcome = { next: 'again' }
const NOT_THE_LIVE_ONE: ReplayOutcome = {
  next: 'contradict',
  reason: 'the engine restarted, or its replay is not its own: it contradicts the live events',
}
const LACKS_LIVE: ReplayOutcome = {
  next: 'contradict',
  reason: 'the engine restarted, or its replay is not its own: it lacks batches that came live',
}

export class Replay {
  readonly #parts: ReplayParts
  /** The offered checkpoint, while it is not proven. */
  #checkpoint: HistoryPoint | undefined
  /** Batches of it that the engine has repeated. */
  readonly #proofs = new Set<number>()
  #hasUnusable = false
  /** The replay has brought a batch, so its engine keeps batches. */
  #hasTold = false
  /** The attempt under way has not asked for its batches yet. */
  #isRestLater = false

  constructor(parts: ReplayParts) {
    this.#parts = parts
  }

  offer(checkpoint: HistoryPoint): void {
    this.#checkpoint = checkpoint
  }

  dropCheckpoint(why: string): void {
    if (this.#checkpoint === undefined) return
    this.#checkpoint = undefined
    this.#parts.checkpointSettled(why)
  }

  /** Unreadable messages came, or messages under another topic: an empty history may not be empty. */
  sawUnusable(): void {
    this.#hasUnusable = true
  }

  forgetUnusable(): void {
    this.#hasUnusable = false
  }

  /** Whether a replay may be asked for batches to apply. */
  get canAsk(): boolean {
    const { attempts, contradictions, hasReplay } = this.#parts
    return hasReplay && !attempts.isPaused && !contradictions.isApart
  }

  /** Whether a replay can show that the history at hand is of the engine's present life. */
  get canProve(): boolean {
    const { history, life, snapshots } = this.#parts
    if (history.isEmpty) return true
    if (!life.remembers(history.expected! - 1)) return false
    return life.link === 'linked' || snapshots.isOffered || life.remembers(life.joinedMax)
  }

  /** Begins an attempt. */
  ask(): ReplayQuestion {
    const { counters, history, heldBack, life, snapshots } = this.#parts
    counters.replays++
    this.#proofs.clear()
    snapshots.beginAttempt()
    if (!history.isEmpty) {
      const from = this.#repeatedFrom
      return this.#asked(snapshots.isUnknown, from, life.remembers(from) ? from : undefined)
    }
    if (history.expected !== undefined) return this.#asked(snapshots.isUnknown, history.expected, undefined)
    life.askedForHistory()
    if (snapshots.isOffered) {
      // After the snapshot, the live batches are requested, to see that both are of one publisher.
      const heard = heldBack.first?.sequence ?? (life.liveMax >= 0 ? life.liveMax : undefined)
      return this.#asked(true, heard, undefined)
    }
    return this.#asked(snapshots.isUnknown, this.#checkpointFrom, undefined)
  }

  /** A reply to the attempt under way. `began`: called with the first batch of it. */
  replied(reply: ReplayedReply, began: () => void): ReplayOutcome {
    const { attempts, counters, snapshots } = this.#parts
    attempts.replied()
    if (reply.kind === 'malformed') {
      counters.malformedFrames++
      return MORE
    }
    // The publisher went on to the replay before the snapshot was whole.
    if (snapshots.isUnderWay) return this.#snapshotFailed()
    if (attempts.current.asksSnapshot) snapshots.notOffered()
    if (reply.kind === 'end') return this.ended(true)
    return this.#batch(reply.sequence, reply.payload, began)
  }

  /** A part of a snapshot, or the answer that there is none now. */
  snapshot(reply: Exclude<SnapshotReply, { readonly kind: 'malformed' }>): ReplayOutcome {
    const { attempts, history, snapshots } = this.#parts
    attempts.replied()
    const isNews = snapshots.offered()
    this.dropCheckpoint('its publisher offers snapshots')
    if (history.expected !== undefined) {
      // The history was taken for one of an engine.
      return isNews ? { next: 'rebuild', reason: 'its publisher offers snapshots' } : MORE
    }
    if (reply.kind === 'refused') {
      snapshots.askAgainLater()
      return this.#rest()
    }
    if (snapshots.isOutdated(reply)) {
      const reason = 'the engine restarted, and the publisher beside it has not confirmed that it knows'
      return { next: 'startFromLive', reason }
    }
    if (!attempts.isSpent && snapshots.prefersHashes(reply)) return AGAIN
    const events = snapshots.isNext(reply.part) ? history.applyPart(reply.payload) : 'missing'
    if (events === 'unreadable' && reply.form === 'hashes') {
      snapshots.useTokens(reply.publisherId)
      this.#parts.hashesFailed('a part of it cannot be read')
    }
    if (typeof events !== 'number') return this.#snapshotFailed()
    if (!snapshots.took(reply, events)) return MORE
    const { nextSequence, isWhole, mayBeStale } = reply
    attempts.current.applied++
    history.beginBehindSnapshot(nextSequence, isWhole)
    if (mayBeStale) history.lacksSome(NOT_ALL_READ)
    // The publisher knows nothing of the cache yet: it will, with the engine's first batch.
    if (!isWhole && nextSequence === 0) snapshots.askAgainWithItsNextBatch()
    // The earlier live batches are in the replay that follows the snapshot.
    if (this.#parts.life.canBeLinked && attempts.current.from !== undefined) return this.#rest()
    return this.#drain() === 'empty' ? LIVE : this.ended(false)
  }

  /** The current attempt has ended: with an end marker, or by silence. */
  ended(isMarked: boolean): ReplayOutcome {
    const { attempts, history, snapshots } = this.#parts
    if (!isMarked && snapshots.fellSilent()) this.#parts.hashesFailed('it does not answer')
    if (snapshots.isUnderWay) return this.#snapshotFailed()
    if (this.#checkpoint !== undefined) {
      this.dropCheckpoint(
        isMarked ? 'the engine has published less since' : 'the replay socket does not answer',
      )
      return AGAIN
    }
    if (isMarked && attempts.current.toRepeat !== undefined) return this.#notRepeated()
    if (isMarked && this.#lacksLive()) {
      if (attempts.current.repliedMax >= 0) return LACKS_LIVE
      attempts.givenUp({ isLasting: true, mayHeal: true })
      return { next: 'startFromLive', reason: "the engine's replay keeps none of its batches" }
    }
    const drained = this.#drain()
    if (drained === 'older' || drained === 'otherRank') return NOT_THE_LIVE_ONE
    if (drained === 'refused') return { next: 'retry' }
    if (isMarked && history.expected === undefined && drained === 'empty') {
      if (this.#hasUnusable) {
        const reason = 'the replayed batches are under another topic, or cannot be read'
        return { next: 'startFromLive', reason }
      }
      // An end without a single batch: nothing was published yet.
      history.begin(0, 'replay')
    }
    const isBegun = history.expected !== undefined
    const reachesLive = drained === 'empty' && isBegun && history.expected > attempts.toldMax
    const verdict = attempts.currentEnded(isMarked, reachesLive)
    return verdict === 'live' ? LIVE : { next: verdict }
  }

  /** The batches behind the snapshot, which the attempt asks for once. */
  #rest(): ReplayOutcome {
    const { from } = this.#parts.attempts.current
    if (!this.#isRestLater || from === undefined) return MORE
    this.#isRestLater = false
    return { next: 'rest', fromSequence: from }
  }

  #asked(snapshot: boolean, from: number | undefined, toRepeat: number | undefined): ReplayQuestion {
    this.#parts.attempts.next({ asksSnapshot: snapshot, from, toRepeat, heardMax: this.#parts.life.liveMax })
    const { snapshots } = this.#parts
    const byHashes = snapshot && snapshots.asked()
    this.#isRestLater = snapshot && snapshots.isOffered && from !== undefined
    return {
      snapshot,
      ...(byHashes ? { byHashes } : {}),
      ...(from === undefined ? {} : { fromSequence: from }),
      ...(this.#isRestLater ? { isRestLater: true } : {}),
    }
  }

  /**
   * The sequence that is requested again: the last batch, or the one before the last seam if both sides of
   * the seam are not known to be of one life.
   */
  get #repeatedFrom(): number {
    const { attempts, checkBatchesMax, history, life } = this.#parts
    const last = history.expected! - 1
    const isSeamKnown = life.link === 'linked' && attempts.purpose !== 'check'
    const { unprovenFrom } = history
    const isLinked = life.link === 'linked'
    if (isLinked && !isSeamKnown && unprovenFrom !== undefined && last - unprovenFrom <= checkBatchesMax)
      return unprovenFrom
    const isFar = isLinked && last - life.joinedMax > checkBatchesMax
    if (isSeamKnown || isFar) return last
    // Of a snapshot no batch is known.
    return life.remembers(life.joinedMax) ? life.joinedMax : Math.min(last, life.joinedMax + 1)
  }

  get #checkpointFrom(): number {
    if (this.#checkpoint === undefined) return 0
    return this.#checkpoint.nextSequence - this.#checkpoint.fingerprints.length
  }

  #batch(sequence: number, payload: Uint8Array, began: () => void): ReplayOutcome {
    const { attempts, history, life } = this.#parts
    const fingerprint = fingerprintOf(payload)
    const attempt = attempts.current
    this.#hasTold = true
    attempts.told(sequence)
    const isFirst = !attempt.hasReplies
    if (isFirst) {
      attempt.hasReplies = true
      began()
    }
    if (history.expected === undefined && this.#checkpoint !== undefined) {
      return this.#proveCheckpoint(this.#checkpoint, { sequence, payload, fingerprint })
    }
    if (attempt.toRepeat !== undefined) {
      if (sequence < attempt.toRepeat) return MORE
      // A replay cannot continue what it does not repeat. A check may do with less if the engine keeps less.
      const isLess = attempts.purpose === 'check' && life.link === 'linked' && sequence < history.expected!
      if (sequence > attempt.toRepeat && !isLess) return this.#notRepeated()
      if (life.compare(sequence, fingerprint) !== 'same') return this.#otherHistory(sequence)
      attempt.toRepeat = undefined
      if (attempts.purpose === 'check') life.joinedAt(sequence)
    }
    const heard = life.compareHeard(sequence, fingerprint)
    if (heard === 'other') return NOT_THE_LIVE_ONE
    if (history.expected === undefined && !this.#begin(sequence, heard === 'same')) return NOT_THE_LIVE_ONE
    const expected = history.expected as number
    // A full socket never loses the first reply of a replay. So the engine no longer keeps what is missing
    // before it.
    if (isFirst && sequence > expected && attempts.purpose !== 'rebuild')
      return { next: 'rebuild', reason: FORGOTTEN }
    if (sequence < expected) {
      const likeness = life.compare(sequence, fingerprint)
      if (likeness === 'other') return this.#otherHistory(sequence)
      if (likeness === 'same') history.repeated(sequence)
      life.joined(sequence)
    } else if (sequence > expected) {
      attempt.hadHole = true
      return MORE
    } else {
      const applied = history.apply({ sequence, payload, fingerprint }, 'replay')
      if (applied === 'otherRank') return NOT_THE_LIVE_ONE
      if (applied !== 'applied') {
        attempt.hadHole = true
        attempt.wasRefused = true
        return MORE
      }
      attempt.applied++
    }
    if (heard === 'same') life.linked()
    return this.#join()
  }

  /**
   * Begins with the first batch of the replay, or, if the live socket told the same batch, with the live
   * batches before it. False: those are not of one life.
   */
  #begin(sequence: number, wasHeard: boolean): boolean {
    const { heldBack, history, snapshots } = this.#parts
    const before = wasHeard && !snapshots.isOffered ? heldBack.beginningBefore(sequence) : undefined
    if (before === undefined) {
      history.begin(sequence, 'replay')
      return true
    }
    history.begin(before, 'live')
    history.explain(`the engine's replay begins at sequence ${sequence}`)
    const drained = heldBack.drain()
    return drained !== 'older' && drained !== 'otherRank'
  }

  /**
   * A reply to the request for the checkpoint's last batches. All repeated ones must be the same, and the
   * last one must be repeated. An engine that restarted and went on with its numbers keeps none of the life
   * before: if some batches are not repeated, the history is not exact.
   */
  #proveCheckpoint(
    checkpoint: HistoryPoint,
    { sequence, payload, fingerprint }: PendingBatch,
  ): ReplayOutcome {
    const { attempts, history } = this.#parts
    const { nextSequence, fingerprints } = checkpoint
    const last = nextSequence - 1
    const known = fingerprints[sequence - (nextSequence - fingerprints.length)]
    const refusal =
      sequence > last
        ? `the engine no longer keeps batch ${last}`
        : known !== undefined && known !== fingerprint
          ? 'the engine has restarted since'
          : undefined
    if (known === fingerprint) this.#proofs.add(sequence)
    if (refusal === undefined && sequence < last) return MORE
    if (refusal !== undefined || !history.restore(checkpoint, payload, this.#proofs)) {
      this.dropCheckpoint(refusal ?? 'the indexer did not take it')
      return AGAIN
    }
    this.#checkpoint = undefined
    attempts.current.applied++
    this.#parts.checkpointSettled(undefined)
    return this.#join()
  }

  /**
   * If the batches held back begin here, further replies are known already, or were lost by the live socket.
   */
  #join(): ReplayOutcome {
    const { attempts, heldBack, history, life } = this.#parts
    if (heldBack.first === undefined || heldBack.first.sequence > history.expected!) return MORE
    if (life.link !== 'linked' || attempts.purpose === 'check') return MORE
    const drained = heldBack.drain()
    if (drained === 'older' || drained === 'otherRank') return NOT_THE_LIVE_ONE
    return drained === 'empty' ? JOINED : MORE
  }

  /**
   * The batches held back came too long ago to follow by their numbers alone. The replay was requested before
   * they came; requested again, it repeats one of them or contradicts them.
   */
  get isProofDue(): boolean {
    const { heldBack, isConfirmed, life } = this.#parts
    return heldBack.first !== undefined && life.link !== 'linked' && !isConfirmed()
  }

  #drain(): Drained {
    return this.isProofDue ? 'hole' : this.#parts.heldBack.drain()
  }

  /**
   * The replay does not contain the batch that should show that the engine is still the same.
   */
  #notRepeated(): ReplayOutcome {
    const { attempts, life } = this.#parts
    const behind = attempts.current.toRepeat!
    const isCheck = attempts.purpose === 'check' && life.link === 'linked'
    if (!isCheck || attempts.current.repliedMax >= 0) return { next: 'rebuild', reason: FORGOTTEN, behind }
    // A replay that never kept a batch proves nothing.
    return this.#hasTold ? this.#otherHistory(behind) : LIVE
  }

  /**
   * The replay is of another life than the history, up to this batch. Later live batches show whether it is
   * of their life. If there are none, a live batch that came before contradicts it, and the next live batch
   * decides which is right.
   */
  #otherHistory(behind: number): ReplayOutcome {
    const { liveMax } = this.#parts.life
    if (liveMax >= 0 && liveMax <= behind) return NOT_THE_LIVE_ONE
    return { next: 'restart', reason: 'the engine restarted: its replay has another history', behind }
  }

  /**
   * The replay ends before a live batch that came before the request, and cannot have lost it.
   */
  #lacksLive(): boolean {
    const { attempts } = this.#parts
    const { from, heardMax, repliedMax } = attempts.current
    return from !== undefined && from <= heardMax && repliedMax < heardMax && !attempts.mayLackEnd
  }

  /** A part is missing: forgets what was applied, and asks again. */
  #snapshotFailed(): ReplayOutcome {
    const { attempts, history, snapshots } = this.#parts
    snapshots.cut()
    history.forget('a snapshot was cut short')
    return { next: attempts.currentFailed() }
  }
}
