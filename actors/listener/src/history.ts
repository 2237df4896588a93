/**
 * History: which batches of a source are applied, where they begin, and which are missing. Only this module
 * sends events to the indexer.
 *
 *   forget ──▶ empty ──begin, take over──▶ s … expected − 1 ──apply──▶ s … expected
 *
 * Invariants
 *   I1  Between two clears the batches applied have sequences s, s + 1, …; none twice, none left out.
 *   I2  It has a beginning only while s is 0, or the cache was cleared since s.
 *   I3  Nothing is applied before the indexer has taken a pending clear, and then what the history begins
 *       with.
 *   I4  `epoch` grows with every clear, and whenever predictions made from it must stop counting.
 *
 * A batch that cannot be decoded counts as applied: its engine would send the same again. `missing` reports
 * it until the next clear.
 */

import {
  decodeKvBatch,
  decodeSnapshotBatch,
  type KvBatch,
  type KvCleared,
  type KvEvent,
  MalformedKvBatchError,
  unreadEvents,
} from '@homing/protocol'
import type { HistoryPoint } from './checkpoint.ts'
import type { BatchSource, Extent, Life } from './life.ts'
import type { PendingBatch } from './pending-batches.ts'
import type { Snapshots } from './snapshots.ts'
import type { SourceCounters } from './source-counters.ts'

/** How the indexer takes a history. */
export interface HistoryEffects {
  nowMs(): number
  /** Hands events on, in order. False: refused, nothing was taken. */
  apply(events: readonly KvEvent[]): boolean
  /**
   * Forgets everything applied. False: refused, to be tried again. `isParted`: because the source cannot be
   * heard.
   */
  clear(isParted: boolean): boolean
  /**
   * Hands on the content of the offered checkpoint, after a clear. False: refused, nothing was taken.
   */
  restore(): boolean
  /** Whether anything is known of the cache before a history that begins in the middle. */
  hasBase(): boolean
  /** Hands that on, after a clear. False: refused, to be tried again. */
  restoreBase(): boolean
  /** Forgets it: a history has begun without it, or the engine has restarted since. */
  dropBase(): void
}

/** `unknown`: the cache held older blocks that no batch told of. Else it was empty at the beginning. */
export type Beginning = 'unknown' | 'start' | 'cleared'

/**
 * What became of a batch. `refused`: the indexer did not take it. `otherRank`, `older`: it is of another
 * publisher, or of an earlier life; nothing of it was taken.
 */
export type Applied = 'applied' | 'refused' | 'otherRank' | 'older'

/** What the trust in a history depends on. */
export interface HistoryView {
  readonly epoch: number
  readonly expected: number | undefined
  readonly beginning: Beginning
  /** Why the history has no beginning, or was forgotten. */
  readonly reason: string
  /** Batches that could not be read, or only in part. */
  readonly unreadableBatches: number
  /** Why the index lacks something that was applied. */
  readonly lacks: string | undefined
  /** Why some applied batches may be of an earlier life of the engine. */
  readonly doubt: string | undefined
}

export interface HistoryParts {
  readonly counters: SourceCounters
  readonly life: Life
  /** They show which kind of publisher this is. */
  readonly snapshots: Snapshots
  readonly hasReplay: boolean
  readonly dpRank: number
  /** The first batch of the history is known, and no checkpoint can come before it any more. */
  readonly began: () => void
  /**
   * `unreadable`: a batch, or a part of it. `cleared`: nothing applied before is held; `withdrawn`: the same,
   * but the cache is not known.
   */
  readonly changed: (what: 'unreadable' | 'cleared' | 'withdrawn') => void
}

export class History implements Extent, HistoryView {
  readonly #effects: HistoryEffects
  readonly #parts: HistoryParts
  /** Why the last clear was, or is to be. */
  #isParted = false
  #owesClear = false
  /** The indexer refused what the history begins with. */
  #owesBase = false
  #epoch = 0
  #expected: number | undefined
  #firstSequence = 0
  #lastSequence: number | undefined
  #beginning: Beginning = 'unknown'
  #reason = ''
  #unreadableBatches = 0
  #lacks: string | undefined
  /**
   * Sequences that the engine must repeat before the checkpoint counts as of its present life, and how many
   * were requested.
   */
  readonly #unproven = new Set<number>()
  #proofs = 0

  constructor(effects: HistoryEffects, parts: HistoryParts) {
    this.#effects = effects
    this.#parts = parts
  }

  get epoch(): number {
    return this.#epoch
  }

  /** The next sequence to apply; undefined: nothing applied yet, any batch may be the first. */
  get expected(): number | undefined {
    return this.#expected
  }

  get firstSequence(): number {
    return this.#firstSequence
  }

  /** Undefined: none is applied. */
  get lastSequence(): number | undefined {
    return this.#lastSequence
  }

  get beginning(): Beginning {
    return this.#beginning
  }

  get isWhole(): boolean {
    return this.#beginning !== 'unknown'
  }

  get reason(): string {
    return this.#reason
  }

  get unreadableBatches(): number {
    return this.#unreadableBatches
  }

  get lacks(): string | undefined {
    return this.#lacks
  }

  get doubt(): string | undefined {
    if (this.#unproven.size === 0) return undefined
    const repeated = this.#proofs - this.#unproven.size
    return `the engine repeats ${repeated} of the last ${this.#proofs} batches of the checkpoint`
  }

  /** The first batch that the engine is to repeat, to end a doubt; undefined: there is none. */
  get unprovenFrom(): number | undefined {
    return this.#unproven.values().next().value
  }

  /** The engine has repeated a batch that was applied, with the same content. */
  repeated(sequence: number): void {
    this.#unproven.delete(sequence)
  }

  /** The history can hold no block. */
  get isEmpty(): boolean {
    return this.#lastSequence === undefined || this.#expected === 0
  }

  get isMissingSome(): boolean {
    return this.#unreadableBatches > 0 || this.#lacks !== undefined
  }

  /** A clear was refused. */
  get owesClear(): boolean {
    return this.#owesClear
  }

  /** Forgets everything, and begins another epoch. `isParted`: because the source cannot be heard. */
  forget(reason: string, isParted = false): void {
    this.#epoch++
    this.#expected = undefined
    this.#lastSequence = undefined
    this.#beginning = 'unknown'
    this.#unreadableBatches = 0
    this.#lacks = undefined
    this.#unproven.clear()
    this.#reason = reason
    this.#owesBase = false
    this.#parts.life.forgetApplied()
    this.#isParted = isParted
    this.tryClear()
  }

  /** Gives a better reason why the history is empty. */
  explain(reason: string): void {
    this.#reason = reason
  }

  /** The batch with this sequence is to be the first. */
  begin(sequence: number, source: BatchSource): void {
    const isWhole = sequence === 0 && !this.#parts.snapshots.isOffered
    const why = this.#whyNotWhole(sequence, source)
    const hasBase = !isWhole && source === 'replay' && this.#effects.hasBase()
    this.#beginAt(
      sequence,
      isWhole,
      hasBase ? `${why}; what was before is of a snapshot that nothing proves` : why,
    )
    this.#parts.life.begin(sequence, source)
    this.#owesBase = hasBase
    if (hasBase) this.#tryOwed()
    else this.dropBase()
  }

  /** Begins after a snapshot that was applied. */
  beginBehindSnapshot(nextSequence: number, isWhole: boolean): void {
    this.#beginAt(nextSequence, isWhole, 'the publisher beside the engine has not seen its whole history')
    this.dropBase()
    this.#lastSequence = nextSequence - 1
    this.#parts.life.begin(nextSequence, 'replay')
  }

  /**
   * Takes over what an earlier life of the router knew; `payload` is its last batch. `repeated`: which of its
   * last batches the engine has repeated. False: refused.
   */
  restore(point: HistoryPoint, payload: Uint8Array, repeated: ReadonlySet<number>): boolean {
    const { nextSequence, fingerprints, isWhole, wasCleared, gapReason } = point
    if (!this.#tryOwed() || !this.#effects.restore()) return false
    this.dropBase()
    this.#expected = nextSequence
    this.#firstSequence = nextSequence - 1
    this.#lastSequence = nextSequence - 1
    this.#beginning = !isWhole ? 'unknown' : wasCleared ? 'cleared' : 'start'
    if (!isWhole) this.#reason = gapReason
    this.#proofs = fingerprints.length
    for (let sequence = nextSequence - this.#proofs; sequence < nextSequence; sequence++)
      if (!repeated.has(sequence)) this.#unproven.add(sequence)
    this.#parts.life.takenOver(nextSequence, fingerprints, tryDecode(payload)?.timestampSeconds)
    return true
  }

  /** What a snapshot that nothing proves knew of the cache no longer counts. */
  dropBase(): void {
    this.#effects.dropBase()
  }

  /** Where it stands; undefined: nowhere that could be proven later. */
  point(): (HistoryPoint & { readonly epoch: number }) | undefined {
    if (this.#expected === undefined || this.isMissingSome) return undefined
    const fingerprints = this.#parts.life.lastFingerprints(this.#expected, PROOF_BATCHES_MAX)
    if (fingerprints.length === 0) return undefined
    const { doubt } = this
    const isWhole = this.isWhole && doubt === undefined
    return {
      nextSequence: this.#expected,
      fingerprints,
      isWhole,
      wasCleared: isWhole && this.#beginning === 'cleared',
      gapReason: isWhole ? '' : (doubt ?? this.#reason),
      epoch: this.#epoch,
    }
  }

  /** The index lacks some of what was applied, until the next clear. */
  lacksSome(reason: string): void {
    this.#lacks = reason
  }

  /** True: nothing is held that was applied before. */
  tryClear(): boolean {
    this.#owesClear = !this.#effects.clear(this.#isParted)
    return !this.#owesClear
  }

  /** Applies the expected batch. A batch that was held back must not be older than its predecessor. */
  apply(batch: PendingBatch, source: BatchSource, wasHeldBack = false): Applied {
    if (!this.#tryOwed()) return 'refused'
    const { life } = this.#parts
    const { sequence, payload, fingerprint } = batch
    const wasEmpty = this.isEmpty
    const read = tryDecode(payload)
    if (life.isOtherRank(read?.rank)) return 'otherRank'
    const isOlder = source === 'live' && life.isOlder(read?.timestampSeconds)
    if (wasHeldBack && isOlder) return 'older'
    if (read !== undefined && read.events.length > 0 && !this.#effects.apply(read.events)) return 'refused'
    this.#expected = sequence + 1
    this.#lastSequence = sequence
    life.applied(sequence, fingerprint, read?.timestampSeconds)
    this.#count(read)
    const clear = read?.events.findLast(({ kind }) => kind === 'cleared') as KvCleared | undefined
    this.#parts.snapshots.applied(read?.events ?? [], read?.timestampSeconds)
    if (clear !== undefined) this.#nothingIsHeld(clear.isWithdrawal)
    if (source === 'replay') life.joined(sequence)
    // The engine's clock was set back; or the batch is left over from a life that ended, and its number fits
    // by chance.
    else if (isOlder) life.openSeam(sequence - 1)
    // All that is held was told by the live socket since.
    else if (wasEmpty || clear !== undefined) life.begin(sequence, 'live')
    // An event of a kind that is not known may be a removal.
    const isUnreadable = read === undefined || unreadEvents(read) > 0
    if (isUnreadable) this.#unreadableBatches++
    if (clear !== undefined) this.#parts.changed(clear.isWithdrawal ? 'withdrawn' : 'cleared')
    else if (isUnreadable) this.#parts.changed('unreadable')
    return 'applied'
  }

  /** Applies a part of a snapshot: how many events it has. `refused`: the indexer did not take it. */
  applyPart(payload: Uint8Array): number | 'refused' | 'unreadable' {
    if (!this.#tryOwed()) return 'refused'
    const batch = tryDecode(payload, decodeSnapshotBatch)
    if (batch === undefined || unreadEvents(batch) > 0) return 'unreadable'
    const { length } = batch.events
    return length === 0 || this.#effects.apply(batch.events) ? length : 'refused'
  }

  /** True: the indexer has taken what comes before the next batch. */
  #tryOwed(): boolean {
    if (this.#owesClear && !this.tryClear()) return false
    if (this.#owesBase) this.#owesBase = !this.#effects.restoreBase()
    return !this.#owesBase
  }

  #beginAt(sequence: number, isWhole: boolean, whyNot: string | undefined): void {
    this.#expected = sequence
    this.#firstSequence = sequence
    this.#beginning = isWhole ? 'start' : 'unknown'
    if (!isWhole && whyNot !== undefined) this.#reason = whyNot
    this.#parts.began()
  }

  /** Undefined: the reason given before still holds. */
  #whyNotWhole(sequence: number, source: BatchSource): string | undefined {
    if (this.#parts.snapshots.isOffered) {
      return 'the publisher beside the engine has not said how much it knows'
    }
    if (source === 'replay') return `the engine's replay begins at sequence ${sequence}`
    if (this.#parts.hasReplay) return undefined
    return `the first batch seen was ${sequence} and no replay endpoint is known`
  }

  /**
   * Nothing before counts any more, so unknown or unreadable batches no longer matter. Either the cache was
   * cleared, or a publisher beside the engine withdrew what it had told, and does not know the cache.
   */
  #nothingIsHeld(isWithdrawal: boolean): void {
    this.#beginning = isWithdrawal ? 'unknown' : 'cleared'
    this.#unreadableBatches = 0
    this.#lacks = undefined
    this.#unproven.clear()
    if (!isWithdrawal) return
    // Nothing is to be forgotten, but answers given about the history before do not hold for this one.
    this.#epoch++
    this.#reason = 'the publisher beside the engine withdrew its earlier events'
  }

  #count(batch: KvBatch | undefined): void {
    const { counters, dpRank } = this.#parts
    counters.batches++
    counters.lastBatchMs = this.#effects.nowMs()
    if (batch === undefined) {
      counters.malformedFrames++
      return
    }
    counters.events += batch.events.length
    counters.skippedEvents += unreadEvents(batch)
    if (batch.rank !== undefined && batch.rank !== dpRank) counters.foreignRanks++
  }
}

/**
 * The last batches of a history that its engine is to repeat, as far as it keeps them, before a checkpoint of
 * it counts.
 */
const PROOF_BATCHES_MAX = 16

/** Undefined: the payload cannot be decoded. */
export function tryDecode(payload: Uint8Array, decode = decodeKvBatch): KvBatch | undefined {
  try {
    return decode(payload)
  } catch (error) {
    if (error instanceof MalformedKvBatchError) return undefined
    throw error
  }
}
