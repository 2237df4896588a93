/**
 * Sequence follower: turns the batches of a live socket and a replay socket into one history, in order,
 * without applying a batch twice, and knows how much of the history it has.
 *
 * It only coordinates; each of its parts owns one concern:
 *   life            which batches are of the same life of the engine
 *   history         what is applied, and what is missing of it
 *   held back       live batches that wait for an earlier one
 *   trust           how far the history may be believed
 *   contradictions  when a restart is no longer believed
 *   recovery        what follows when the history is broken
 *   live watch      what is checked when it is not broken
 *   replay          what replies mean, and what proves them
 *   attempts        attempts at a replay, and when to stop
 *   snapshots       snapshots of publishers that are not engines
 *
 * Transitions: for each state, what happens and what follows. A row with "…" narrows the row above it.
 *
 * connecting
 *   the socket is up, or a batch comes       recovering: clear, replay from 0
 *
 * recovering
 *   reply at the expected sequence           applied
 *   reply after a hole                       dropped; requested again from the hole on
 *   first reply is not the last batch        recovering: clear, replay from 0
 *   applied, which was requested again
 *   …it is, but with other content           the engine restarted
 *   reply differs from the live batch of     contradicted
 *   its number, or the replay ends before a
 *   live batch that came before the request
 *   live batch                               held back (bounded; past the bound dropped)
 *   replay reached the batches held back,    they are applied in order, and live batches from here on;
 *   and repeated a batch of the live socket  the attempt ends as a check does
 *   end or silence, nothing missing          live; if replies may be lost at the end (a hole was seen, or
 *                                            there were so many that a socket drops the rest), requested
 *                                            again until nothing new comes
 *   end or silence, something missing        next attempt, at most `replayAttempts…Max`
 *   …the live batches held back came more    next attempt; its replay repeats one of them, or is
 *   than `unconfirmedMsMax` ago, and the     contradicted
 *   replay has repeated none of them
 *   end, and the replay keeps nothing of     live from the batches held back: clear, partial
 *   what the live socket told
 *   a snapshot                               applied part by part; the history begins after it
 *   a checkpoint, and the engine repeats     taken over; the history goes on after it
 *   the last batches of it
 *   …the last one, but not all of them       the same; partial until checks have them repeated
 *   …it repeats another batch, or none       the checkpoint is dropped; replay from 0
 *   attempts used up, filling a gap          recovering: clear, replay from 0
 *   attempts used up, replaying from 0       live from the batches held back: clear, partial
 *   first live batch has sequence 0          live: the whole history is at hand
 *   live batches fill the hole, and the      live; checked from before the hole, partial until the replay
 *   last batch before it is not repeated     has told both sides
 *   first reply goes on from live batches    the history begins with those live batches
 *   that were held back
 *
 * live
 *   expected sequence                        applied
 *   …the first one after a replay or a       applied and checked: a replay from the last seam on, while
 *   silence; also from time to time          live batches are applied as before
 *   …no replay confirms the first one        partial after `unconfirmedMsMax`; requested again
 *   …the cache was cleared in it             the history is whole from here on
 *   …of another dp rank                      contradicted
 *   …older than the batch before it          checked from before it, partial until both are told
 *   lower, seen with the same content        duplicate: dropped
 *   lower, missing until now                 late: fills its hole, if it is not younger than its successor
 *   lower, no batch of it is remembered      held back; clear, replay from 0, which shows whether it belongs
 *   lower, anything else, and not younger    dropped; clear, replay from 0; without replay nothing is held,
 *                                            and no history begins with it
 *   lower, anything else                     the engine restarted
 *   higher                                   recovering the gap: replay from the hole on
 *   …older than the newest batch             dropped; clear, replay from 0, which repeats it; without replay
 *                                            nothing is held, and for `lateMsMax` no history begins with
 *                                            an older batch
 *   higher, replay impossible                live: clear, start anew here, partial
 *   partial, because the replay failed       compared from time to time; when the replay repeats the last
 *                                            batch: recovering
 *
 * any state
 *   the engine restarted                     recovering: clear, replay from 0; the batch that showed the
 *                                            restart is held back
 *   contradicted                             clear; recovering, with the next live batch held back
 *   …too often (contradictions.ts)           live: clear, partial, only what the live socket tells; nothing
 *                                            if it contradicts itself. Compared less and less often
 *   resync, reconnected, or a probe found    recovering: clear, replay from 0
 *   another process of the engine
 *   the socket is down                       disconnected: clear, trust none
 *
 * disconnected
 *   the socket is up                         recovering: clear, replay from 0
 *   batch                                    dropped: left over from the connection before
 *
 * Invariants
 *   I1  Between two clears the batches applied have sequences s, s + 1, …; none twice, none left out.
 *   I2  Trust is `exact` only if s is 0 or the cache was cleared since s, and every batch since then could be
 *       read; or if nothing was published at all.
 *   I3  The applied batches are a suffix of the history of one life of the engine. So blocks that count as
 *       held are held even without trust `exact`. A history with a hole is never kept: a removal in the hole
 *       would leave a block that counts forever. (A batch that cannot be decoded is such a hole, and is kept
 *       with trust `partial`: its engine would send the same again.)
 *   I4  A number alone never continues a history; but a live batch may follow one that the live socket told
 *       or confirmed before. A replay repeats the last batch applied, or the last before the seam in
 *       question; the last batches of a checkpoint are repeated before it counts. A batch that is not
 *       remembered proves nothing.
 *   I5  Live batches follow replayed ones only if the replay has told one of them, with the same content.
 *       Before any live batch came, and for `unconfirmedMsMax` after the first, an engine is believed to
 *       answer its own replays; not after a contradiction.
 *   I6  At most one wait for a move at a time. Every state but `live`, `connecting` and `disconnected` has
 *       one: nothing waits forever.
 *
 * Publishers beside an engine (sidecars) number their own batches. When they do not know the engine's cache,
 * they publish a withdrawal: a clear that does not say that the cache is empty. They offer snapshots, which
 * say whether they know all of it. So a snapshot is requested with the first replay; an engine drops that
 * request and answers the replay request after it.
 *
 * A batch whose application is refused (the indexer's mailbox is full) counts as not received:
 * it is held back and tried again. The follower touches no socket and no clock; see `FollowerEffects`.
 */

import type { ResyncCause } from '@homing/actors/indexer'
import type { SnapshotReply } from '@homing/protocol'
import { Attempts } from './attempts.ts'
import type { HistoryPoint } from './checkpoint.ts'
import { type ContradictionKind, Contradictions } from './contradictions.ts'
import { HeldBack } from './held-back.ts'
import { History, type HistoryEffects, tryDecode } from './history.ts'
import { Life, type LiveVerdict } from './life.ts'
import type { ListenerLimits } from './limits.ts'
import type { SourceStatus, SourceTrust } from './messages.ts'
import type { PendingBatch } from './pending-batches.ts'
import { Recovery, type RecoveryEffects } from './recovery.ts'
import { Replay, type ReplayedReply } from './replay.ts'
import { fingerprintOf } from './seen-batches.ts'
import { Snapshots } from './snapshots.ts'
import { SourceCounters } from './source-counters.ts'
import { trustOf } from './source-trust.ts'

/** What a follower can do to the world. */
export interface FollowerEffects extends HistoryEffects, RecoveryEffects {
  /** The offered checkpoint was taken over, or refused for this reason. */
  checkpointSettled(refusal: string | undefined): void
  /** A snapshot by hashes was offered, and is of no use. `why`: what was wrong with it. */
  hashesFailed(why: string): void
  trustChanged(trust: SourceTrust): void
}

export interface FollowerOptions {
  /** For people, in reasons. */
  readonly eventsEndpoint: string
  /** The same; undefined: there is no replay. */
  readonly replayEndpoint: string | undefined
  readonly dpRank: number
  readonly limits: ListenerLimits
}

export class SequenceFollower {
  readonly #effects: FollowerEffects
  readonly #options: FollowerOptions
  readonly #counters = new SourceCounters()
  readonly #snapshots = new Snapshots()
  readonly #life: Life
  readonly #history: History
  readonly #heldBack: HeldBack
  readonly #attempts: Attempts
  readonly #contradictions: Contradictions
  readonly #replay: Replay
  readonly #recovery: Recovery
  /** A batch came before the socket reported that it is up; that report will not begin another epoch. */
  #upByBatch = false
  /** In this life of the engine, a rebuild from the beginning did not bring the unknown parents. */
  #hasRebuiltOrphans = false
  #lastTrust = ''
  /** The live batch with the latest time stamp, of this life or of one that may be the same. */
  #newest: Uint8Array | undefined
  /** A batch came late: until then, others may. */
  #lateUntilMs = Number.NEGATIVE_INFINITY
  /** The rank in the last batch that was not followed, since the socket is up. */
  #otherRank: number | undefined

  constructor(effects: FollowerEffects, options: FollowerOptions) {
    const { limits, replayEndpoint, dpRank } = options
    const hasReplay = replayEndpoint !== undefined
    const nowMs = () => effects.nowMs()
    const [counters, snapshots, life] = [this.#counters, this.#snapshots, new Life(limits.seenBatchesMax)]
    const history = new History(effects, {
      counters,
      life,
      snapshots,
      hasReplay,
      dpRank,
      began: () => this.#replay.dropCheckpoint('the known history begins without it'),
      changed: what => this.#historyChanged(what),
    })
    const heldBack = new HeldBack(history, life, counters, limits)
    const attempts = new Attempts(limits, nowMs)
    const contradictions = new Contradictions(limits, options, nowMs)
    const replay = new Replay({
      hasReplay,
      attempts,
      contradictions,
      counters,
      heldBack,
      history,
      life,
      snapshots,
      checkBatchesMax: limits.checkBatchesMax,
      isConfirmed: () => this.#recovery.watch.isConfirmed,
      checkpointSettled: refusal => effects.checkpointSettled(refusal),
      hashesFailed: why => effects.hashesFailed(why),
    })
    this.#effects = effects
    this.#options = options
    this.#life = life
    this.#history = history
    this.#heldBack = heldBack
    this.#attempts = attempts
    this.#contradictions = contradictions
    this.#replay = replay
    this.#recovery = new Recovery(effects, {
      attempts,
      contradictions,
      counters,
      heldBack,
      history,
      life,
      replay,
      snapshots,
      limits,
      moved: () => this.#reportTrust(),
      restarted: () => this.#restarted(),
      mayHaveRestarted: () => this.#mayHaveRestarted(),
      restartedBehind: sequence => this.#restartedBehind(sequence),
    })
    this.#reportTrust()
  }

  /** Everything except what only the listener around it knows. */
  status(): Omit<SourceStatus, 'foreignTopics' | 'lostFrames' | 'path' | 'checkpoint'> {
    const { phase } = this.#recovery
    return {
      state: phase === 'replaying' || phase === 'pausing' || phase === 'apart' ? 'recovering' : phase,
      lastSequence: this.#history.lastSequence,
      epoch: this.#history.epoch,
      ...this.#counters.status(this.#effects.nowMs()),
    }
  }

  /**
   * Called first: where an earlier life of this listener stood. It counts once the engine proves it.
   */
  offer(checkpoint: HistoryPoint): void {
    this.#replay.offer(checkpoint)
    if (this.#options.replayEndpoint !== undefined) return
    this.#replay.dropCheckpoint('no replay endpoint is known, so nothing can prove it')
  }

  /** Where the history stands; undefined: not at a point that could be proven later. */
  point(): (HistoryPoint & { readonly epoch: number }) | undefined {
    const { phase, owedRebuild } = this.#recovery
    const isSettled = phase === 'live' && !this.#history.owesClear && owedRebuild === undefined
    const isBelieved = this.#life.link !== 'due' && this.#contradictions.reason === undefined
    const canBeProven = this.#options.replayEndpoint !== undefined && !this.#snapshots.isOffered
    return isSettled && isBelieved && canBeProven ? this.#history.point() : undefined
  }

  /** Its publisher gives snapshots itself, and has told all up to what is followed live. */
  get isToldByPublisher(): boolean {
    return this.#snapshots.isOffered && this.#recovery.phase === 'live' && this.#history.isWhole
  }

  /** Live batches wait for earlier ones, or for the indexer. */
  get holdsBack(): boolean {
    return this.#heldBack.first !== undefined
  }

  connected(): void {
    const wasUp = this.#upByBatch
    this.#upByBatch = false
    if (wasUp) return
    const isFirst = this.#recovery.phase === 'connecting'
    this.#otherRank = undefined
    this.#restarted()
    this.#recovery.connected(isFirst ? 'the event socket is connected' : 'the event socket came back')
  }

  disconnected(): void {
    if (this.#recovery.phase === 'connecting') return
    this.#upByBatch = false
    this.#restarted()
    this.#recovery.disconnected()
  }

  /**
   * The engine runs as another process: the applied batches are of a cache that is gone. `startSeconds`: when
   * the process began; undefined: the engine does not say.
   */
  engineRestarted(startSeconds: number | undefined): void {
    this.#snapshots.otherProcess(startSeconds)
    this.#history.dropBase()
    if (this.#recovery.isUp) this.#recovery.restart('the engine restarted')
  }

  /** A probe found the engine's process unchanged. */
  engineRuns(): void {
    this.#snapshots.sameProcess()
  }

  /**
   * The applied batches are lost: rebuilds now, or when the last rebuild is old enough. Orphans are no reason
   * if the history lacks its beginning: they would come again.
   */
  resync(cause: ResyncCause, reason: string): void {
    if (!this.#recovery.isUp || (cause === 'orphans' && !this.#history.isWhole)) return
    if (cause === 'orphans' && this.#hasRebuiltOrphans) {
      // They would come again, and again.
      this.incomplete(reason)
      return
    }
    if (cause === 'orphans') this.#hasRebuiltOrphans = true
    this.#recovery.rebuildSoon(reason)
  }

  /** A message cannot be read at all: its sequence is unknown, so it will show as a gap. */
  malformed(): void {
    this.#counters.malformedFrames++
    this.#replay.sawUnusable()
  }

  /** A message came under another topic: there is a history that is not heard. */
  foreign(): void {
    this.#replay.sawUnusable()
  }

  /** Live batches came and are lost; it is unknown which. They may have been the last for a long time. */
  lostLive(): void {
    if (this.#recovery.isUp) this.#recovery.lostLive()
  }

  /** Replies came and are lost: the replay has a hole, perhaps at its end. */
  lostReplies(): void {
    this.#attempts.current.hadHole = true
  }

  /** The index lacks some of what was applied, until the next clear. */
  incomplete(reason: string): void {
    this.#history.lacksSome(reason)
    this.#reportTrust()
  }

  live(sequence: number, payload: Uint8Array): void {
    const [life, recovery] = [this.#life, this.#recovery]
    if (recovery.phase === 'disconnected' || recovery.phase === 'apart') {
      // Left over in a queue from a history that has ended, or of an unknown source.
      this.#counters.droppedBatches++
      return
    }
    if (recovery.phase === 'connecting') {
      this.#upByBatch = true
      recovery.connected('the event socket is connected')
    }
    const batch = { sequence, payload, fingerprint: fingerprintOf(payload) }
    const { link, canBeLinked } = life
    const isFirst = life.liveMax < 0
    const { lastBatchMs } = this.#counters
    const verdict = life.classify(sequence, batch.fingerprint, this.#history)
    if (verdict === 'repeated') this.#counters.duplicates++
    else if (this.#isLate(verdict, batch)) this.#late(batch)
    else if (verdict === 'restarted' || verdict === 'contradicted') {
      const kind = verdict === 'restarted' ? 'live' : 'replay'
      this.#begunAnew(batch, kind, `the engine restarted: its sequence went back to ${sequence}`)
    } else {
      if (sequence > life.liveMax) this.#newest = payload
      life.heard(sequence, batch.fingerprint)
      if (verdict === 'replayed') this.#counters.duplicates++
      else if (verdict === 'doubtful')
        this.#replayBehind(batch, `the engine may have restarted: ${sequence} is the first batch heard`)
      else if (recovery.phase === 'live') this.#liveInOrder(batch)
      else this.#liveHeldBack(batch)
    }
    if (life.link !== link || life.canBeLinked !== canBeLinked) recovery.linkChanged()
    else if (this.#wasSilentSince(lastBatchMs)) recovery.liveAfterSilence()
    if (isFirst) recovery.heardFirst()
  }

  replayed(attempt: number, reply: ReplayedReply): void {
    if (attempt === this.#attempts.current.number) this.#recovery.replied(reply)
  }

  /** A part of a snapshot, or the answer that there is none now. */
  snapshot(attempt: number, reply: Exclude<SnapshotReply, { readonly kind: 'malformed' }>): void {
    if (attempt === this.#attempts.current.number) this.#recovery.snapshotReplied(reply)
  }

  wake(wait: number): void {
    this.#recovery.wake(wait)
  }

  #wasSilentSince(lastBatchMs: number | undefined): boolean {
    if (lastBatchMs === undefined) return false
    return this.#counters.lastBatchMs! - lastBatchMs >= this.#options.limits.checkSilenceMs
  }

  #liveInOrder(batch: PendingBatch): void {
    const history = this.#history
    const { sequence } = batch
    if (history.expected === undefined) {
      if (this.#life.isContradicted) {
        this.#replayBehind(batch, 'the next live batch shows which engine the replay belongs to')
        return
      }
      history.begin(sequence, 'live')
      this.#reportTrust()
    }
    if (sequence === history.expected) {
      const applied = history.apply(batch, 'live')
      if (applied === 'applied') return
      if (applied === 'refused') {
        this.#heldBack.hold(batch)
        this.#recovery.pause('retry')
        return
      }
      this.#begunAnew(batch, this.#life.link === 'linked' ? 'live' : 'replay', 'another dp rank publishes')
      return
    }
    this.#counters.gaps++
    this.#heldBack.hold(batch)
    this.#recovery.gap()
  }

  #liveHeldBack(batch: PendingBatch): void {
    const [heldBack, history] = [this.#heldBack, this.#history]
    heldBack.hold(batch)
    // A snapshot of a publisher beside the engine says more than its first batch.
    const isFree = history.expected === undefined && !this.#snapshots.isOffered
    if (isFree && heldBack.first?.sequence === 0) history.begin(0, 'live')
    const isNext = !history.owesClear && heldBack.first?.sequence === history.expected
    this.#recovery.heldOneBack(isNext && this.#recovery.mayJoin ? heldBack.drain() : 'hole')
  }

  /**
   * A batch that does not continue the batch before is late if it was not published after that one; if there
   * is a hole between the two, or the one before was forgotten, only if it was published before it.
   */
  #isLate(verdict: LiveVerdict, { sequence, payload }: PendingBatch): boolean {
    const { liveMax } = this.#life
    const { expected } = this.#history
    const isBehindHole =
      expected === undefined
        ? this.#recovery.phase === 'live' && this.#effects.nowMs() < this.#lateUntilMs
        : sequence > Math.max(expected, liveMax + 1)
    const isOpen = liveMax < 0 || (verdict === 'new' && isBehindHole)
    if (this.#newest === undefined || (verdict !== 'restarted' && !isOpen)) return false
    const [before, late] = [tryDecode(this.#newest), tryDecode(payload)]
    if (before === undefined || late === undefined) return false
    return verdict === 'restarted'
      ? late.timestampSeconds <= before.timestampSeconds
      : late.timestampSeconds < before.timestampSeconds
  }

  /**
   * No history begins with a late batch. But an engine that restarted with its clock set back would look the
   * same, so no history goes on either.
   */
  #late({ sequence, payload, fingerprint }: PendingBatch): void {
    this.#counters.droppedBatches++
    this.#lateUntilMs = this.#effects.nowMs() + this.#options.limits.lateMsMax
    // A replay must tell this batch too; alone it would prove a replay that lacks the batches before it.
    if (this.#life.liveMax >= 0) this.#life.heard(sequence, fingerprint)
    this.#recovery.late(this.#isOfOtherRank(payload), `batch ${sequence} came after later ones`)
  }

  /** The batch is of another life than the history, and may be the first live one of that life. */
  #begunAnew(batch: PendingBatch, kind: ContradictionKind, reason: string): void {
    const isProof = this.#isOfOtherRank(batch.payload)
    this.#restarted()
    this.#newest = batch.payload
    this.#life.heard(batch.sequence, batch.fingerprint)
    this.#heldBack.hold(batch)
    this.#recovery.contradicted(kind, reason, isProof)
  }

  /**
   * The batch has another rank than the history, or than the last batch that was not followed: two engines
   * publish here, because no engine changes its rank.
   */
  #isOfOtherRank(payload: Uint8Array): boolean {
    const before = this.#life.rank ?? this.#otherRank
    const rank = tryDecode(payload)?.rank
    this.#contradictions.mark('dp ranks', before, rank)
    this.#otherRank = rank ?? before
    return before !== undefined && rank !== undefined && rank !== before
  }

  /** A replay requested now contains this batch if it is of the same life. */
  #replayBehind(batch: PendingBatch, reason: string): void {
    this.#heldBack.hold(batch)
    this.#recovery.rebuild(reason)
  }

  /** Live batches up to now and failed replays belong to the past. */
  #restarted(): void {
    this.#newest = undefined
    this.#mayHaveRestarted()
  }

  #mayHaveRestarted(): void {
    this.#hasRebuiltOrphans = false
    this.#life.forgetLive()
    this.#recovery.forgetLive()
  }

  /** The same, but only up to this sequence. */
  #restartedBehind(sequence: number): void {
    this.#hasRebuiltOrphans = false
    this.#life.forgetLiveUpTo(sequence)
  }

  #historyChanged(what: 'unreadable' | 'cleared' | 'withdrawn'): void {
    if (what !== 'unreadable') this.#hasRebuiltOrphans = false
    if (what === 'withdrawn') this.#recovery.withdrawn()
    if (what === 'unreadable' || this.#recovery.phase === 'live') this.#reportTrust()
  }

  #reportTrust(): void {
    const { phase, owedRebuild } = this.#recovery
    const trust = trustOf({
      phase,
      purpose: this.#attempts.purpose,
      owedRebuild,
      eventsEndpoint: this.#options.eventsEndpoint,
      replayEndpoint: this.#options.replayEndpoint,
      owesClear: this.#history.owesClear,
      contradiction: this.#contradictions.reason,
      isConfirmed: this.#recovery.watch.isConfirmed,
      history: this.#history,
    })
    const text = JSON.stringify(trust)
    if (text === this.#lastTrust) return
    this.#lastTrust = text
    this.#effects.trustChanged(trust)
  }
}
