/**
 * Sequence follower: turns what a live socket and a replay socket bring into one history, in order,
 * without a batch applied twice, and knows how much of the history it has.
 *
 *   state          what happens                             then
 *   connecting     socket is up, or a batch comes           recovering: clear, replay from 0
 *   recovering     reply at the expected sequence           applied
 *                  reply after a hole                       left; asked for again from the hole
 *                  first reply of a gap is after the hole   recovering: clear, replay from 0
 *                  live batch                               held back (bounded; past the bound dropped)
 *                  replay reached the batches held back     live: they are applied in order
 *                  end or silence, nothing missing          live; but where replies may be lost at the end (a hole was
 *                                                           seen, or there were as many as a socket drops after),
 *                                                           asked again until nothing new comes
 *                  end or silence, something missing        next attempt, at most `replayAttempts…Max`
 *                  a snapshot                               applied part by part; the history begins behind it
 *                  a checkpoint, and the engine repeats     taken over; the history goes on behind it
 *                  the last batch of it
 *                  …and it repeats another, or none         the checkpoint is dropped; replay from 0
 *                  attempts used up, filling a gap          recovering: clear, replay from 0
 *                  attempts used up, replaying from 0       live from the batches held back: clear, partial
 *                  first live batch has sequence 0          live: the whole history is at hand
 *   live           expected sequence                        applied
 *                  …and in it the cache was cleared         the history is whole from here on
 *                  lower, seen with the same content        duplicate: dropped
 *                  lower, missing until now                 late: fills its hole
 *                  lower, anything else                     the engine restarted: recovering, from 0
 *                  higher                                   recovering the gap: replay from the hole
 *                  higher, replay impossible                live: clear, start anew here, partial
 *                  partial, since the replay failed         asked again now and then; an answer: recovering
 *   any            resync, engine restarted, reconnected    recovering: clear, replay from 0
 *                  socket is down                           disconnected: clear, trust none
 *   disconnected   socket is up                             recovering: clear, replay from 0
 *                  batch                                    dropped: left over from before
 *
 * Invariants
 *   I1  Between two clears the batches applied have sequences s, s + 1, …; none twice, none left out.
 *   I2  Trust `exact` only while s is 0, or the cache was cleared since s, and every batch since then could be read; or
 *       nothing was published at all.
 *   I3  What is applied is a suffix of the history of one life of the engine. So without trust
 *       `exact` too, what counts as held is held: a history with a hole is never kept, because a removal in
 *       the hole would leave a block that counts for ever. (A batch that cannot be decoded is such
 *       a hole, and kept with trust `partial`: its engine would send it again just the same.)
 *   I4  A recovery repeats the last batch applied, as proof that the engine is still the same. So it is with a checkpoint
 *       of an earlier life of this router: what it holds counts once its last batch was repeated, not before.
 *   I5  A batch held back follows one of a replay only if it is not older: it may be left over from a life of the
 *       engine that ended, unnoticed, before the replay was answered.
 *   I6  There is at most one wait at a time, and every state but `live`, `connecting` and `disconnected`
 *       has one: nothing waits for ever.
 *
 * Publishers beside an engine (a sidecar) number their own batches. Where they do not know the engine's cache, they publish a
 * withdrawal: a clear that does not say that the cache is empty. They offer snapshots, which say whether they know all of it. So
 * a snapshot is asked for with the first replay; an engine drops that request and answers the replay behind it.
 *
 * A batch whose application is refused (the indexer's mailbox is full) counts as not received:
 * it is held back and tried again. The follower touches no socket and no clock; see `FollowerEffects`.
 */

import type { ResyncCause } from '@homing/indexer'
import {
  decodeKvBatch,
  type KvBatch,
  type KvCleared,
  type KvEvent,
  MalformedKvBatchError,
  type SnapshotReply,
} from '@homing/protocol'
import type { HistoryPoint } from './checkpoint.ts'
import type { ListenerLimits } from './limits.ts'
import type { SourceStatus, SourceTrust, Trust } from './messages.ts'
import { PendingBatches } from './pending-batches.ts'
import { fingerprintOf, SeenBatches } from './seen-batches.ts'

/** What a follower can do to the world. */
export interface FollowerEffects {
  nowMs(): number
  /** Hands events on, in order. False: refused, nothing was taken. */
  apply(events: readonly KvEvent[]): boolean
  /** Forgets everything applied. False: refused, to be tried again. */
  clear(): boolean
  /** Hands on what the checkpoint holds that was offered, behind a clear. False: refused, nothing was taken. */
  restore(): boolean
  /** The checkpoint that was offered is done with: taken over, or of no use for this reason. */
  checkpointSettled(refusal: string | undefined): void
  /**
   * Asks for a snapshot, for all batches from a sequence on, or for both, in this order; replies carry the attempt. Ends
   * the attempt before.
   */
  startReplay(attempt: number, asked: { readonly snapshot: boolean; readonly fromSequence?: number }): void
  stopReplay(): void
  /** Calls `wake(wait)` after the delay; a later wait replaces an earlier one. */
  setWait(wait: number, delayMs: number): void
  trustChanged(trust: SourceTrust): void
}

export interface FollowerOptions {
  /** For people, in reasons. */
  readonly eventsEndpoint: string
  readonly hasReplay: boolean
  readonly dpRank: number
  readonly limits: ListenerLimits
}

type Phase =
  | 'connecting'
  | 'disconnected'
  | 'live'
  /** A replay is under way. */
  | 'replaying'
  /** Between two replays, or between two tries to hand something on. */
  | 'pausing'

type WaitFor = 'replies' | 'attempt' | 'retry' | 'settle' | 'rebuild' | 'knock'

/** An engine's replay socket keeps 1,000 messages for a peer, and drops further ones without a word. */
const LOSSLESS_REPLIES_MAX = 1000
const FORGOTTEN = 'batches were lost and the engine no longer keeps them'

export class SequenceFollower {
  readonly #effects: FollowerEffects
  readonly #options: FollowerOptions
  /** Batches of this epoch that were applied. */
  readonly #applied: SeenBatches
  /** Batches that the live socket brought since it is up or the engine restarted. */
  readonly #seenLive: SeenBatches
  readonly #pending: PendingBatches

  #phase: Phase = 'connecting'
  /** A batch came before the socket said that it is up; its word will not begin another epoch. */
  #upByBatch = false
  /** A clear that was refused. Nothing is applied before it is done. */
  #owesClear = false
  /** Why a rebuild is due that came too soon after the last one. */
  #owesRebuild: string | undefined

  // The epoch.
  #epoch = 0
  /** The next sequence to apply; undefined: nothing applied yet, any batch may be the first. */
  #expected: number | undefined
  #firstSequence = 0
  /** The history begins with an empty cache: at sequence 0, or where it was cleared. */
  #isWhole = false
  #wasCleared = false
  #unreadableBatches = 0
  #clearReason = ''
  /** By the engine's clock: the last batch applied, and the same if it came from a replay. */
  #appliedSeconds: number | undefined
  #replayedSeconds: number | undefined
  /** The highest sequence among them. */
  #liveMax = -1

  // The recovery.
  #isRebuilding = false
  /** A replay only to make sure that nothing fell between replay and subscription. */
  #isSettling = false
  /** A replay was asked for only to see whether the replay socket answers. */
  #isKnocking = false
  #attempt = 0
  #attemptApplied = 0
  #attemptHasReplies = false
  /** The snapshot was asked for with this attempt. */
  #attemptAsksSnapshot = false
  /** The part of a snapshot that comes next; undefined: none is under way. */
  #nextPart: number | undefined
  #attemptHadHole = false
  #attemptRefused = false
  #attemptsFruitless = 0
  #attemptsTotal = 0
  #recoveryReplies = 0
  #recoveryHadHole = false
  #lastReplyMs = 0
  /** Until then no replay is asked for: the last recovery failed with it. */
  #replayPausedUntilMs = Number.NEGATIVE_INFINITY
  /** The last recovery failed because the replay socket did not answer, or lost some of what it sent. */
  #mayHealLater = false
  /** Whether the source offers snapshots, and so is no engine; undefined: not known yet. */
  #offersSnapshots: boolean | undefined
  /** It had none to give in this rebuild, or none with anything in it: it is asked again later. */
  #asksSnapshotAgain = false

  /** Messages came that are unreadable, or under another topic, since the socket is up. */
  #hasUnusable = false
  /** Live batches were lost during this recovery. */
  #hasLostLive = false
  /** A rebuild from the beginning did not bring the parents that are unknown; in this life of the engine. */
  #hasRebuiltOrphans = false
  /** Why the index lacks something of this epoch that was applied. */
  #lacks: string | undefined
  /** What was offered and is not yet proven. */
  #checkpoint: HistoryPoint | undefined

  #wait = 0
  #waitFor: WaitFor | undefined
  #lastRebuildMs = Number.NEGATIVE_INFINITY
  #lastTrust = ''

  // Counters.
  #lastSequence: number | undefined
  #lastBatchMs: number | undefined
  #batches = 0
  #events = 0
  #gaps = 0
  #replays = 0
  #restarts = 0
  #duplicates = 0
  #malformed = 0
  #skippedEvents = 0
  #dropped = 0
  #foreignRanks = 0

  constructor(effects: FollowerEffects, options: FollowerOptions) {
    this.#effects = effects
    this.#options = options
    this.#applied = new SeenBatches(options.limits.seenBatchesMax)
    this.#seenLive = new SeenBatches(options.limits.seenBatchesMax)
    this.#pending = new PendingBatches({
      batchesMax: options.limits.pendingBatchesMax,
      bytesMax: options.limits.pendingBytesMax,
    })
    this.#reportTrust()
  }

  /** Everything but what only the listener around it can know. */
  status(): Omit<SourceStatus, 'foreignTopics' | 'lostFrames' | 'checkpoint'> {
    const phase = this.#phase
    return {
      state: phase === 'replaying' || phase === 'pausing' ? 'recovering' : phase,
      lastSequence: this.#lastSequence,
      epoch: this.#epoch,
      batches: this.#batches,
      events: this.#events,
      gaps: this.#gaps,
      replays: this.#replays,
      restarts: this.#restarts,
      duplicates: this.#duplicates,
      malformedFrames: this.#malformed,
      skippedEvents: this.#skippedEvents,
      droppedBatches: this.#dropped,
      foreignRanks: this.#foreignRanks,
      lastEventAgeMs:
        this.#lastBatchMs === undefined ? undefined : Math.max(0, this.#effects.nowMs() - this.#lastBatchMs),
    }
  }

  /** Before anything else: where an earlier life of this listener stood. It counts when the engine proves it. */
  offer(checkpoint: HistoryPoint): void {
    this.#checkpoint = checkpoint
    if (!this.#options.hasReplay) this.#dropCheckpoint('no replay endpoint is known, so nothing can prove it')
  }

  /** Where the history stands; undefined: not at a point that could be proven later. */
  point(): (HistoryPoint & { readonly epoch: number }) | undefined {
    const isSettled = this.#phase === 'live' && !this.#owesClear && this.#owesRebuild === undefined
    const isMissing = this.#unreadableBatches > 0 || this.#lacks !== undefined
    if (!isSettled || isMissing || this.#offersSnapshots === true) return undefined
    if (this.#expected === undefined || !this.#options.hasReplay) return undefined
    const fingerprint = this.#applied.fingerprintOf(this.#expected - 1)
    if (fingerprint === undefined) return undefined
    return {
      nextSequence: this.#expected,
      fingerprint,
      isWhole: this.#isWhole,
      wasCleared: this.#wasCleared,
      gapReason: this.#isWhole ? '' : this.#clearReason,
      epoch: this.#epoch,
    }
  }

  connected(): void {
    const wasUp = this.#upByBatch
    this.#upByBatch = false
    if (wasUp) return
    const isFirst = this.#phase === 'connecting'
    this.#forgetLive()
    this.#rebuild(isFirst ? 'the event socket is up' : 'the event socket came back')
  }

  disconnected(): void {
    if (this.#phase === 'connecting') return
    this.#upByBatch = false
    this.#forgetLive()
    this.#beginEpoch('the event socket is down')
    this.#phase = 'disconnected'
    this.#effects.stopReplay()
    this.#cancelWait()
    if (this.#owesClear) this.#waitUntil('retry', this.#options.limits.backoffMsMin)
    this.#reportTrust()
  }

  /** The engine runs as another process: what was applied is of a cache that is gone. */
  engineRestarted(): void {
    if (this.#phase === 'connecting' || this.#phase === 'disconnected') return
    this.#noticeRestart('the engine restarted')
  }

  /**
   * What was applied is lost: rebuilds now, or when the last rebuild is old enough. Orphans are no
   * reason where the history does not begin at its beginning: they would come again.
   */
  resync(cause: ResyncCause, reason: string): void {
    if (this.#phase === 'connecting' || this.#phase === 'disconnected') return
    if (cause === 'orphans' && !this.#isWhole) return
    if (cause === 'orphans' && this.#hasRebuiltOrphans) {
      // They would come again, and again.
      this.incomplete(reason)
      return
    }
    if (cause === 'orphans') this.#hasRebuiltOrphans = true
    if (this.#resyncDueMs() <= 0) {
      this.#rebuild(reason)
      return
    }
    this.#owesRebuild = reason
    if (this.#phase === 'live') this.#waitUntil('rebuild', this.#resyncDueMs())
    this.#reportTrust()
  }

  /** A message that cannot be read at all: its sequence is unknown, so it will show as a gap. */
  malformed(): void {
    this.#malformed++
    this.#hasUnusable = true
  }

  /** A message under another topic: there is a history, and it is not heard. */
  foreign(): void {
    this.#hasUnusable = true
  }

  /** Live batches came and are lost, which ones nobody knows. They may have been the last for long. */
  lostLive(): void {
    if (this.#phase === 'connecting' || this.#phase === 'disconnected') return
    if (this.#phase !== 'live') {
      this.#hasLostLive = true
      return
    }
    this.#gaps++
    this.#recoverGap()
  }

  /** Replies came and are lost: a hole in the replay, perhaps at its end. */
  lostReplies(): void {
    this.#attemptHadHole = true
  }

  /** Not all that was applied is in the index, until the next clear. */
  incomplete(reason: string): void {
    this.#lacks = reason
    this.#reportTrust()
  }

  live(sequence: number, payload: Uint8Array): void {
    if (this.#phase === 'disconnected') {
      // Left over in a queue; the history it belongs to has ended.
      this.#dropped++
      return
    }
    if (this.#phase === 'connecting') {
      this.#upByBatch = true
      this.#rebuild('the event socket is up')
    }
    const verdict = this.#classify(sequence, payload)
    if (verdict === 'repeated') {
      this.#duplicates++
      return
    }
    if (verdict === 'restarted') {
      this.#noticeRestart(`the engine restarted: its sequence went back to ${sequence}`)
    }
    this.#liveMax = Math.max(this.#liveMax, sequence)
    this.#seenLive.add(sequence, payload)
    if (verdict === 'replayed') {
      this.#duplicates++
      return
    }
    if (this.#phase === 'live') this.#liveInOrder(sequence, payload)
    else this.#liveHeldBack(sequence, payload)
  }

  replayed(
    attempt: number,
    reply:
      | { readonly kind: 'batch'; readonly sequence: number; readonly payload: Uint8Array }
      | { readonly kind: 'end' }
      | { readonly kind: 'malformed' },
  ): void {
    if (attempt !== this.#attempt) return
    if (this.#phase === 'live' && this.#isKnocking) {
      this.#replayPausedUntilMs = Number.NEGATIVE_INFINITY
      this.#mayHealLater = false
      this.#rebuild('the replay socket answers again')
      return
    }
    if (this.#phase !== 'replaying') return
    this.#lastReplyMs = this.#effects.nowMs()
    this.#recoveryReplies++
    if (reply.kind === 'malformed') {
      this.#malformed++
      return
    }
    if (this.#nextPart !== undefined) {
      // The publisher went on to the replay before the snapshot was whole.
      this.#snapshotFailed()
      return
    }
    if (this.#attemptAsksSnapshot) this.#offersSnapshots ??= false
    if (reply.kind === 'end') this.#attemptEnded(true)
    else this.#replayedBatch(reply.sequence, reply.payload)
  }

  /** A part of a snapshot, or the word that there is none now. */
  snapshot(attempt: number, reply: Exclude<SnapshotReply, { readonly kind: 'malformed' }>): void {
    if (attempt !== this.#attempt || this.#phase !== 'replaying' || !this.#attemptAsksSnapshot) return
    this.#lastReplyMs = this.#effects.nowMs()
    this.#recoveryReplies++
    const isNews = this.#offersSnapshots === undefined
    this.#offersSnapshots = true
    this.#dropCheckpoint('its publisher offers snapshots')
    if (this.#expected !== undefined) {
      // The history was taken for one of an engine.
      if (isNews) this.#rebuild('its publisher offers snapshots')
      return
    }
    if (reply.kind === 'refused') {
      this.#asksSnapshotAgain = true
      return
    }
    const { part, parts, payload } = reply
    if (part !== (this.#nextPart ?? 0) || !this.#applySnapshot(payload)) {
      this.#snapshotFailed()
      return
    }
    this.#nextPart = part + 1
    if (this.#nextPart === parts) this.#snapshotEnded(reply.nextSequence, reply.isWhole)
  }

  wake(wait: number): void {
    if (wait !== this.#wait || this.#waitFor === undefined) return
    const reason = this.#waitFor
    this.#waitFor = undefined
    if (reason === 'replies') this.#awaitReplies()
    else if (reason === 'attempt') this.#startAttempt()
    else if (reason === 'retry') this.#retry()
    else if (reason === 'rebuild') this.#rebuild(this.#owesRebuild ?? this.#clearReason)
    else if (reason === 'knock') this.#knock()
    else if (this.#canReplay()) {
      this.#isSettling = true
      this.#startAttempt()
    }
  }

  // The live socket.

  /**
   * `repeated`: it was taken before, from the live socket, or late, when a replay had brought it. `replayed`:
   * a replay brought it, and the live socket has now come to it.
   */
  #classify(sequence: number, payload: Uint8Array): 'new' | 'repeated' | 'replayed' | 'restarted' {
    const { limits } = this.#options
    if (sequence > this.#liveMax) {
      if (this.#expected === undefined || sequence >= this.#expected) return 'new'
      // The live socket is not older than the replay, which was asked for after it was up.
      if (sequence < this.#firstSequence) return 'restarted'
      return this.#applied.compare(sequence, payload) === 'other' ? 'restarted' : 'replayed'
    }
    // A publisher never goes back, though a batch may be overtaken on its way: a lower sequence is a
    // repetition, or late, or of another process. The first batch of all is never late.
    const live = this.#seenLive.compare(sequence, payload)
    if (live !== 'unknown') return live === 'same' ? 'repeated' : 'restarted'
    if (sequence === 0 || this.#liveMax - sequence >= limits.seenBatchesMax) return 'restarted'
    if (this.#expected !== undefined && sequence >= this.#expected) return 'new'
    return this.#applied.compare(sequence, payload) === 'same' ? 'repeated' : 'restarted'
  }

  #liveInOrder(sequence: number, payload: Uint8Array): void {
    if (this.#expected === undefined) {
      this.#begin(sequence, 'live')
      this.#reportTrust()
    }
    if (sequence === this.#expected) {
      if (this.#apply(sequence, payload)) return
      this.#hold(sequence, payload)
      this.#pause('retry')
      return
    }
    this.#gaps++
    this.#hold(sequence, payload)
    this.#recoverGap()
  }

  #liveHeldBack(sequence: number, payload: Uint8Array): void {
    this.#hold(sequence, payload)
    const isFree = this.#expected === undefined && this.#nextPart === undefined
    if (isFree && this.#pending.first?.sequence === 0) this.#begin(0, 'live')
    const continues = !this.#owesClear && this.#pending.first?.sequence === this.#expected
    if (continues && this.#drain() === 'empty') this.#goLive()
    else if (this.#isSettling) this.#gapWhileSettling()
  }

  /** The replay that was to make sure has something to find: what is held back may be a removal. */
  #gapWhileSettling(): void {
    this.#gaps++
    this.#isSettling = false
    this.#resetAttempts()
    this.#reportTrust()
  }

  #hold(sequence: number, payload: Uint8Array): void {
    if (!this.#pending.tryAdd({ sequence, payload })) this.#dropped++
  }

  // Recovery.

  /** Clears, and replays from 0 where that is possible. Batches held back stay held back. */
  #rebuild(reason: string): void {
    this.#beginEpoch(reason)
    this.#lastRebuildMs = this.#effects.nowMs()
    this.#owesRebuild = undefined
    this.#asksSnapshotAgain = false
    this.#isRebuilding = true
    this.#isSettling = false
    this.#resetAttempts()
    if (this.#owesClear) this.#pause('retry')
    else this.#replayOrGoOn()
    this.#reportTrust()
  }

  #recoverGap(): void {
    this.#isRebuilding = false
    this.#isSettling = false
    this.#resetAttempts()
    if (this.#canReplay()) this.#startAttempt()
    else this.#startFromPending('batches were lost and there is no replay')
    this.#reportTrust()
  }

  #replayOrGoOn(): void {
    if (this.#canReplay()) this.#startAttempt()
    else this.#startFromPending(this.#clearReason)
  }

  #noticeRestart(reason: string): void {
    this.#restarts++
    this.#forgetLive()
    this.#rebuild(reason)
  }

  #applySnapshot(payload: Uint8Array): boolean {
    if (this.#owesClear && !this.#tryClear()) return false
    const batch = this.#decode(payload)
    if (batch === undefined || batch.skipped.malformed > 0) return false
    return batch.events.length === 0 || this.#effects.apply(batch.events)
  }

  #snapshotEnded(nextSequence: number, isWhole: boolean): void {
    this.#nextPart = undefined
    this.#attemptApplied++
    this.#expected = nextSequence
    this.#firstSequence = nextSequence
    this.#isWhole = isWhole
    this.#lastSequence = nextSequence - 1
    if (!isWhole) {
      this.#clearReason = 'the publisher beside the engine has not seen its whole history'
      // Nor anything of it: with the engine's first batch it will know.
      this.#asksSnapshotAgain = nextSequence === 0
    }
    if (this.#drain() === 'empty') this.#goLive()
    else this.#attemptEnded(false)
  }

  /** Something of it is missing: forgets what was applied, and asks again. */
  #snapshotFailed(): void {
    this.#nextPart = undefined
    this.#effects.stopReplay()
    this.#beginEpoch('a snapshot was cut short')
    this.#attemptsFruitless++
    if (this.#attemptsFruitless >= this.#options.limits.replayAttemptsMax) this.#giveUp()
    else this.#pause('attempt')
  }

  #startAttempt(): void {
    const expected = this.#expected
    this.#phase = 'replaying'
    this.#isKnocking = false
    this.#attempt++
    this.#attemptsTotal++
    this.#attemptApplied = 0
    this.#attemptHasReplies = false
    this.#nextPart = undefined
    this.#attemptRefused = false
    this.#attemptHadHole = false
    this.#replays++
    this.#lastReplyMs = this.#effects.nowMs()
    const repeatsLast = expected !== undefined && this.#applied.has(expected - 1)
    const proven = this.#checkpoint === undefined ? 0 : this.#checkpoint.nextSequence - 1
    const from = expected === undefined ? proven : repeatsLast ? expected - 1 : expected
    this.#waitUntil('replies', this.#options.limits.replayTimeoutMs)
    const isUnknown = this.#offersSnapshots === undefined
    this.#attemptAsksSnapshot = isUnknown || (expected === undefined && this.#offersSnapshots === true)
    const asksSnapshotOnly = this.#attemptAsksSnapshot && !isUnknown
    this.#effects.startReplay(this.#attempt, {
      snapshot: this.#attemptAsksSnapshot,
      ...(asksSnapshotOnly ? {} : { fromSequence: from }),
    })
  }

  #replayedBatch(sequence: number, payload: Uint8Array): void {
    if (this.#expected === undefined && this.#checkpoint !== undefined) {
      this.#proveCheckpoint(this.#checkpoint, sequence, payload)
      return
    }
    if (this.#expected === undefined) this.#begin(sequence, 'replay')
    const expected = this.#expected as number
    const isFirst = this.#replyCame()
    if (isFirst && sequence > expected && !this.#isRebuilding) {
      // A replay loses what its socket has no room for, which is never the first: the engine no longer keeps what is missing.
      this.#rebuild(FORGOTTEN)
      return
    }
    if (sequence < expected) {
      if (this.#applied.compare(sequence, payload) === 'other') {
        this.#noticeRestart('the engine restarted: its replay tells another history')
      }
      return
    }
    if (sequence > expected) {
      this.#attemptHadHole = true
      return
    }
    if (!this.#apply(sequence, payload)) {
      this.#attemptHadHole = true
      this.#attemptRefused = true
      return
    }
    this.#attemptApplied++
    this.#replayedSeconds = this.#appliedSeconds
    this.#drainReplay()
  }

  /** Where the batches held back begin here, what else this replay brings is known already. */
  #drainReplay(): void {
    if (this.#pending.first === undefined || this.#pending.first.sequence > this.#expected!) return
    if (this.#drain() === 'empty') this.#goLive()
  }

  /** The first reply to the question for its last batch. */
  #proveCheckpoint(checkpoint: HistoryPoint, sequence: number, payload: Uint8Array): void {
    const { nextSequence, fingerprint, isWhole, wasCleared, gapReason } = checkpoint
    if (sequence !== nextSequence - 1) {
      this.#replayWithoutCheckpoint(`the engine no longer keeps batch ${nextSequence - 1}`)
    } else if (fingerprintOf(payload) !== fingerprint) {
      this.#replayWithoutCheckpoint('the engine has restarted since')
    } else if ((this.#owesClear && !this.#tryClear()) || !this.#effects.restore()) {
      this.#replayWithoutCheckpoint('the indexer did not take it')
    } else {
      this.#checkpoint = undefined
      this.#expected = nextSequence
      this.#firstSequence = sequence
      this.#isWhole = isWhole
      this.#wasCleared = wasCleared
      if (!isWhole) this.#clearReason = gapReason
      this.#lastSequence = sequence
      this.#applied.addFingerprint(sequence, fingerprint)
      this.#appliedSeconds = this.#decode(payload)?.timestampSeconds
      this.#replayedSeconds = this.#appliedSeconds
      this.#replyCame()
      this.#attemptApplied++
      this.#effects.checkpointSettled(undefined)
      this.#drainReplay()
    }
  }

  #replayWithoutCheckpoint(why: string): void {
    this.#dropCheckpoint(why)
    this.#startAttempt()
  }

  #dropCheckpoint(why: string): void {
    if (this.#checkpoint === undefined) return
    this.#checkpoint = undefined
    this.#effects.checkpointSettled(why)
  }

  /** True for the first one of its attempt. */
  #replyCame(): boolean {
    if (this.#attemptHasReplies) return false
    this.#attemptHasReplies = true
    this.#waitUntil('replies', this.#silenceMsMax)
    return true
  }

  /** A replay that has begun comes from memory: when it falls silent, its end was lost. */
  get #silenceMsMax(): number {
    const { replayTimeoutMs, replaySilenceMs } = this.#options.limits
    return this.#attemptHasReplies ? Math.min(replayTimeoutMs, replaySilenceMs) : replayTimeoutMs
  }

  /** Nothing came for a while: the end of the replay, unless something came since the wait began. */
  #awaitReplies(): void {
    const dueMs = this.#lastReplyMs + this.#silenceMsMax - this.#effects.nowMs()
    if (dueMs > 0) this.#waitUntil('replies', dueMs)
    else this.#attemptEnded(false)
  }

  #attemptEnded(isMarked: boolean): void {
    if (this.#nextPart !== undefined) {
      this.#snapshotFailed()
      return
    }
    if (this.#checkpoint !== undefined) {
      const why = isMarked ? 'the engine has published less since' : 'the replay socket does not answer'
      this.#replayWithoutCheckpoint(why)
      return
    }
    this.#effects.stopReplay()
    this.#cancelWait()
    const drained = this.#drain()
    if (drained === 'restarted') return
    if (drained === 'refused') {
      this.#pause('retry')
      return
    }
    if (isMarked && this.#expected === undefined && drained === 'empty') {
      if (this.#hasUnusable) {
        this.#startFromPending('what the engine repeats is under another topic, or cannot be read')
        return
      }
      // An end without a single batch: nothing was published yet.
      this.#begin(0, 'replay')
    }
    const isAnswered = isMarked || this.#attemptApplied > 0 || this.#isSettling
    if (this.#attemptHadHole) this.#recoveryHadHole = true
    const mayLackEnd = this.#recoveryHadHole || this.#recoveryReplies >= LOSSLESS_REPLIES_MAX
    const isComplete = drained === 'empty' && !this.#attemptHadHole && this.#expected !== undefined
    if (isAnswered && isComplete && !(mayLackEnd && this.#attemptApplied > 0)) {
      this.#goLive()
      return
    }
    this.#isSettling = false
    if (this.#attemptApplied > 0) this.#attemptsFruitless = 0
    else if (!this.#attemptRefused) this.#attemptsFruitless++
    const { replayAttemptsMax, replayAttemptsTotalMax } = this.#options.limits
    if (this.#attemptsFruitless >= replayAttemptsMax || this.#attemptsTotal >= replayAttemptsTotalMax) {
      this.#giveUp()
    } else if (this.#attemptApplied > 0) {
      this.#startAttempt()
    } else {
      this.#pause('attempt')
    }
  }

  #giveUp(): void {
    const answers = this.#recoveryReplies > 0
    if (answers && !this.#isRebuilding) {
      this.#rebuild(FORGOTTEN)
      return
    }
    // The next snapshot is a newer one.
    if (this.#offersSnapshots === true) this.#asksSnapshotAgain = true
    else this.#replayPausedUntilMs = this.#effects.nowMs() + this.#options.limits.replayPauseMs
    this.#mayHealLater = !answers || this.#recoveryHadHole
    this.#startFromPending(
      answers ? 'the replay does not reach the live events' : 'the replay socket does not answer',
    )
  }

  /** Without replay: forgets the history and begins at the newest run of batches at hand, or the next one. */
  #startFromPending(reason: string): void {
    if (this.#expected !== undefined) this.#beginEpoch(reason)
    else this.#clearReason = reason
    this.#isSettling = false
    this.#pending.keepLastRun()
    const first = this.#pending.first
    // A batch was dropped after those at hand: the next one to come begins the history.
    if (first !== undefined && first.sequence + this.#pending.size <= this.#liveMax) this.#pending.clear()
    else if (first !== undefined) this.#begin(first.sequence, 'live')
    // Nothing was replayed in this epoch, so no restart can show here.
    if (this.#owesClear || this.#drain() === 'refused') this.#pause('retry')
    else this.#goLive()
  }

  /** Applies what is held back as far as it continues the history. `restarted`: another recovery has begun. */
  #drain(): 'empty' | 'hole' | 'refused' | 'restarted' {
    for (let batch = this.#pending.first; batch !== undefined; batch = this.#pending.first) {
      if (this.#expected === undefined) return 'hole'
      const { sequence, payload } = batch
      if (sequence > this.#expected) return 'hole'
      if (sequence < this.#expected) {
        if (this.#applied.compare(sequence, payload) === 'other') return 'hole'
        this.#duplicates++
      } else if (this.#isOlderThanReplay(payload)) {
        this.#noticeRestart('the engine restarted: batches held back are older than its replay')
        return 'restarted'
      } else if (!this.#apply(sequence, payload)) {
        return 'refused'
      } else {
        this.#replayedSeconds = undefined
      }
      this.#pending.removeFirst()
    }
    const reached = this.#expected === undefined ? this.#liveMax < 0 : this.#expected > this.#liveMax
    return reached ? 'empty' : 'hole'
  }

  #isOlderThanReplay(payload: Uint8Array): boolean {
    if (this.#replayedSeconds === undefined) return false
    const batch = this.#decode(payload)
    return batch !== undefined && batch.timestampSeconds < this.#replayedSeconds
  }

  /** Something was refused: tries again, and goes on where it stopped. */
  #retry(): void {
    if (this.#owesClear && !this.#tryClear()) {
      this.#waitUntil('retry', this.#options.limits.backoffMsMin)
      return
    }
    if (this.#phase === 'disconnected') return
    if (this.#expected === undefined) {
      this.#replayOrGoOn()
      this.#reportTrust()
      return
    }
    const drained = this.#drain()
    if (drained === 'refused') this.#waitUntil('retry', this.#options.limits.backoffMsMin)
    else if (drained === 'empty') this.#goLive()
    else if (drained === 'hole') this.#recoverGap()
  }

  #goLive(): void {
    const settles = this.#isRebuilding && this.#canReplay()
    this.#effects.stopReplay()
    this.#phase = 'live'
    this.#isRebuilding = false
    this.#isSettling = false
    this.#cancelWait()
    if (this.#hasLostLive) {
      this.#hasLostLive = false
      this.#gaps++
      this.#recoverGap()
      return
    }
    if (this.#owesRebuild !== undefined) this.#waitUntil('rebuild', Math.max(0, this.#resyncDueMs()))
    else if (this.#asksSnapshotAgain) this.#waitUntil('rebuild', Math.max(0, this.#resyncDueMs()))
    else if (settles) this.#waitUntil('settle', this.#options.limits.settleMs)
    else if (this.#mayHealLater && !this.#isWhole)
      this.#waitUntil('knock', this.#options.limits.replayPauseMs)
    this.#reportTrust()
  }

  #pause(waitFor: 'attempt' | 'retry'): void {
    const { backoffMsMin, backoffMsMax } = this.#options.limits
    this.#phase = 'pausing'
    this.#isSettling = false
    const doublings = waitFor === 'attempt' ? Math.min(16, Math.max(0, this.#attemptsFruitless - 1)) : 0
    this.#waitUntil(waitFor, Math.min(backoffMsMax, backoffMsMin * 2 ** doublings))
    this.#reportTrust()
  }

  /** Asks the replay socket that never answered for nothing, to see whether it does now. */
  #knock(): void {
    this.#attempt++
    this.#replays++
    this.#isKnocking = true
    this.#waitUntil('knock', this.#options.limits.replayPauseMs)
    this.#effects.startReplay(this.#attempt, { snapshot: false, fromSequence: this.#liveMax + 1 })
  }

  #canReplay(): boolean {
    return this.#options.hasReplay && this.#effects.nowMs() >= this.#replayPausedUntilMs
  }

  #resetAttempts(): void {
    this.#attemptsFruitless = 0
    this.#attemptsTotal = 0
    this.#recoveryReplies = 0
    this.#recoveryHadHole = false
    this.#mayHealLater = false
  }

  // The epoch.

  #beginEpoch(reason: string): void {
    this.#epoch++
    this.#expected = undefined
    this.#lastSequence = undefined
    this.#nextPart = undefined
    this.#isWhole = false
    this.#wasCleared = false
    this.#unreadableBatches = 0
    this.#lacks = undefined
    this.#clearReason = reason
    this.#replayedSeconds = undefined
    this.#applied.reset()
    this.#tryClear()
  }

  #begin(sequence: number, source: 'live' | 'replay'): void {
    this.#dropCheckpoint('the history at hand begins without it')
    this.#expected = sequence
    this.#firstSequence = sequence
    this.#isWhole = sequence === 0 && this.#offersSnapshots !== true
    if (this.#isWhole) return
    if (this.#offersSnapshots === true) {
      this.#clearReason = 'the publisher beside the engine has not said how much it knows'
    } else if (source === 'replay') this.#clearReason = `the engine's replay begins at sequence ${sequence}`
    else if (!this.#options.hasReplay) {
      this.#clearReason = `the first batch seen was ${sequence} and no replay endpoint is known`
    }
  }

  /** The live socket begins anew: what it brought belongs to the past, and so do failed replays. */
  #forgetLive(): void {
    this.#hasUnusable = false
    this.#hasLostLive = false
    this.#hasRebuiltOrphans = false
    this.#pending.clear()
    this.#seenLive.reset()
    this.#liveMax = -1
    this.#replayPausedUntilMs = Number.NEGATIVE_INFINITY
    this.#mayHealLater = false
  }

  #tryClear(): boolean {
    this.#owesClear = !this.#effects.clear()
    return !this.#owesClear
  }

  /** False: refused, to be tried again. A batch that cannot be decoded counts as applied. */
  #apply(sequence: number, payload: Uint8Array): boolean {
    if (this.#owesClear && !this.#tryClear()) return false
    const batch = this.#decode(payload)
    if (batch !== undefined && batch.events.length > 0 && !this.#effects.apply(batch.events)) return false
    this.#expected = sequence + 1
    this.#lastSequence = sequence
    this.#lastBatchMs = this.#effects.nowMs()
    this.#appliedSeconds = batch?.timestampSeconds
    this.#applied.add(sequence, payload)
    this.#batches++
    const clear = batch?.events.findLast(({ kind }) => kind === 'cleared') as KvCleared | undefined
    if (clear !== undefined) this.#nothingIsHeld(clear.isWithdrawal)
    // An event of a kind that is not known may be a removal.
    if (batch === undefined || batch.skipped.malformed + batch.skipped.unknownTag > 0) {
      this.#unreadableBatches++
      if (batch === undefined) this.#malformed++
      this.#reportTrust()
    }
    if (batch !== undefined) {
      this.#events += batch.events.length
      this.#skippedEvents += batch.skipped.malformed + batch.skipped.unknownTag
      if (batch.rank !== undefined && batch.rank !== this.#options.dpRank) this.#foreignRanks++
    }
    return true
  }

  /**
   * Nothing counts that came before: what is unknown of it, or was not readable, no longer matters. Either the cache was
   * cleared, or a publisher beside the engine withdrew what it had told, and does not know the cache.
   */
  #nothingIsHeld(isWithdrawal: boolean): void {
    this.#isWhole = !isWithdrawal
    this.#wasCleared = true
    this.#unreadableBatches = 0
    this.#lacks = undefined
    this.#hasRebuiltOrphans = false
    if (!this.#isWhole) {
      // Nothing is to be forgotten, but what answers have said of the history before is not true of this one.
      this.#epoch++
      this.#clearReason = 'the publisher beside the engine withdrew what it had told'
    }
    if (this.#phase !== 'live') return
    // The next snapshot may know more.
    if (!this.#isWhole && this.#offersSnapshots === true)
      this.#waitUntil('rebuild', Math.max(this.#options.limits.settleMs, this.#resyncDueMs()))
    this.#reportTrust()
  }

  #decode(payload: Uint8Array): KvBatch | undefined {
    try {
      return decodeKvBatch(payload)
    } catch (error) {
      if (error instanceof MalformedKvBatchError) return undefined
      throw error
    }
  }

  // Trust.

  #reportTrust(): void {
    const [trust, reason] = this.#trust()
    const isMissing = this.#unreadableBatches > 0 || this.#lacks !== undefined
    const isSuffix = trust === 'partial' && this.#phase === 'live' && !isMissing
    const epoch = this.#epoch
    const text = `${trust} ${reason} ${epoch} ${isSuffix}`
    if (text === this.#lastTrust) return
    this.#lastTrust = text
    this.#effects.trustChanged({ trust, reason, epoch, isSuffix })
  }

  #trust(): readonly [Trust, string] {
    const { eventsEndpoint } = this.#options
    if (this.#phase === 'connecting') return ['none', `no connection to ${eventsEndpoint} yet`]
    if (this.#phase === 'disconnected') return ['none', 'event socket is down']
    if (this.#phase !== 'live' && this.#isRebuilding) {
      return ['none', `rebuilding from the engine's replay: ${this.#clearReason}`]
    }
    if (this.#owesRebuild !== undefined) return ['none', `a rebuild is due: ${this.#owesRebuild}`]
    if (this.#phase !== 'live' && !this.#isSettling) {
      return ['partial', `catching up from sequence ${this.#expected ?? 0}`]
    }
    if (this.#unreadableBatches > 0) {
      return [
        'partial',
        `${this.#unreadableBatches} batches could not be read, or not all of them; blocks may be missing or stale`,
      ]
    }
    if (this.#lacks !== undefined) return ['partial', `blocks are missing: ${this.#lacks}`]
    if (this.#isWhole && this.#wasCleared) {
      return ['exact', 'every batch since the engine last cleared its cache is applied']
    }
    if (this.#isWhole) return ['exact', 'every batch since the engine started is applied']
    return ['partial', `older blocks are unknown: ${this.#clearReason}`]
  }

  #resyncDueMs(): number {
    return this.#lastRebuildMs + this.#options.limits.resyncMsMin - this.#effects.nowMs()
  }

  // Waiting.

  #waitUntil(waitFor: WaitFor, delayMs: number): void {
    this.#wait++
    this.#waitFor = waitFor
    this.#effects.setWait(this.#wait, delayMs)
  }

  #cancelWait(): void {
    this.#wait++
    this.#waitFor = undefined
  }
}
