/**
 * Life: what proves that batches are of one life of one engine, whichever way they came.
 *
 * An engine that restarts numbers its batches from 0 again, and nothing in them names their life. A replay
 * socket may even belong to another engine. These signs tell lives apart:
 *   content     the same number with different content belongs to another life (seen-batches.ts)
 *   direction   a publisher never goes back, although a batch may be overtaken on its way
 *   dp rank     a publisher never changes it
 *   time stamp  a later batch is not older
 *
 * There are two memories: of the applied batches, wherever they came from, and of those from the live socket.
 * Each keeps the last `rememberedMax` sequences. A batch that is not remembered proves nothing.
 *
 * The **link** says whether the live socket and the current history are of one life:
 *
 *   unheard  ──a live batch──▶                                                                    due
 *   unheard  ──the history begins with a live batch, or a live batch clears the cache──▶          linked
 *   due      ──the replay and the live socket tell one sequence with the same content──▶          linked
 *   linked   ──a live batch is older than the one before it, or fills a hole late──▶              due
 *
 * A **seam** is a place where only the number says that a batch is the next one. One is where a live batch
 * continues a history from a replay: the engine may have restarted in between, and may have published unheard
 * as many batches as were replayed. `joinedMax` is the last sequence up to which a replay has told the
 * history at a time when it was already there.
 *
 * A batch that the next life overtook may have just the number that is expected of the next life. And the
 * batches of the next life may go on from the last number of the life before, after a hole. So a live batch
 * that is older than the one before it, or fills a hole late, opens a seam before itself. Until the seam is
 * closed, the history is **doubted**.
 *
 * Invariants
 *   I1  `applied` remembers only batches of the current history: both are forgotten together.
 *   I2  `live` remembers batches since the socket came up, or since the last sign of another life.
 *   I3  A link never rests on a number alone, nor on a batch that is not remembered.
 */

import { SeenBatches } from './seen-batches.ts'

/** `unknown`: not remembered. */
export type Likeness = 'same' | 'other' | 'unknown'

/**
 * `new`: of this life as far as can be told, to be applied. `repeated`: it was taken before, from the live
 * socket, or late, when a replay had brought it. `replayed`: a replay brought it, and the live socket has now
 * come to it. `doubtful`: it may be that, or of another life. `restarted`: the live socket contradicts
 * itself. `contradicted`: it contradicts what was replayed.
 */
export type LiveVerdict = 'new' | 'repeated' | 'replayed' | 'doubtful' | 'restarted' | 'contradicted'

export type Link = 'unheard' | 'due' | 'linked'

/** Where a batch came from. */
export type BatchSource = 'live' | 'replay'

/** The history at hand. */
export interface Extent {
  /** The next sequence to apply; undefined: nothing is applied yet. */
  readonly expected: number | undefined
  readonly firstSequence: number
}

export class Life {
  readonly #rememberedMax: number
  readonly #applied: SeenBatches
  readonly #live: SeenBatches
  #liveMax = -1
  #link: Link = 'unheard'
  /**
   * The replay contradicted the live socket: until they agree, not even an idle source is believed.
   */
  #mustAgree = false
  #isDoubted = false
  /** A live batch came before the current history was requested. */
  #wasHeardBefore = false
  #joinedMax = -1
  /** Rank of the current history. */
  #rank: number | undefined
  /** By the engine's clock: the last batch applied. */
  #appliedSeconds: number | undefined

  constructor(rememberedMax: number) {
    this.#rememberedMax = rememberedMax
    this.#applied = new SeenBatches(rememberedMax)
    this.#live = new SeenBatches(rememberedMax)
  }

  /** The highest sequence that the live socket brought; −1: none yet. */
  get liveMax(): number {
    return this.#liveMax
  }

  get link(): Link {
    return this.#link
  }

  /** The link is due, and there is a live batch that a replay can be asked to repeat. */
  get canBeLinked(): boolean {
    return this.#link === 'due' && this.#liveMax >= 0
  }

  /** The replay contradicted the live socket, and they have not agreed since. */
  get isContradicted(): boolean {
    return this.#mustAgree
  }

  /**
   * There is a sign that the last applied batches are of another life than those before, and no replay has
   * told both yet.
   */
  get isDoubted(): boolean {
    return this.#isDoubted
  }

  /** The dp rank that the batches of the history name; undefined: none has named one yet. */
  get rank(): number | undefined {
    return this.#rank
  }

  get joinedMax(): number {
    return this.#joinedMax
  }

  /** The live socket begins anew: its batches up to now belong to the past. */
  forgetLive(): void {
    this.#live.reset()
    this.#liveMax = -1
    if (this.#link === 'due') this.#link = this.#unlinked
  }

  /**
   * The live batches up to here are of another life than the one that a replay tells now. Later ones may be
   * of the new life.
   */
  forgetLiveUpTo(sequence: number): void {
    this.#live.forgetUpTo(sequence)
    if (this.#liveMax <= sequence) this.#liveMax = -1
  }

  /** The replay contradicts the live socket. */
  contradict(): void {
    this.#mustAgree = true
  }

  /** The history at hand is forgotten. */
  forgetApplied(): void {
    this.#applied.reset()
    this.#rank = undefined
    this.#appliedSeconds = undefined
    this.#joinedMax = -1
    this.#isDoubted = false
    this.#link = this.#unlinked
  }

  /** The history begins with this batch. */
  begin(sequence: number, source: BatchSource): void {
    this.#joinedMax = source === 'live' ? sequence : sequence - 1
    if (source === 'live') this.linked()
    else this.#link = this.#unlinked
  }

  /** A history is asked for from its beginning. */
  askedForHistory(): void {
    this.#wasHeardBefore = this.#liveMax >= 0
  }

  /** The live socket brought this batch. */
  heard(sequence: number, fingerprint: number): void {
    this.#liveMax = Math.max(this.#liveMax, sequence)
    this.#live.add(sequence, fingerprint)
    if (this.#link === 'unheard') this.#link = 'due'
  }

  /** The live socket and the history are of one life. */
  linked(): void {
    this.#link = 'linked'
    this.#mustAgree = false
    this.#isDoubted = false
  }

  /** The live batches behind this one, which was applied, may be of another life. */
  openSeam(sequence: number): void {
    // Up to here there was no doubt. That the live socket told this batch proves nothing about later ones.
    if (this.#link === 'linked') this.joinedAt(sequence)
    this.#live.forgetUpTo(sequence)
    this.#link = 'due'
    this.#isDoubted = true
  }

  /** It was applied. `seconds`: its time stamp; undefined: it cannot be read. */
  applied(sequence: number, fingerprint: number, seconds: number | undefined): void {
    this.#applied.add(sequence, fingerprint)
    this.#appliedSeconds = seconds
  }

  /** The engine repeated the last batches of a checkpoint, which was taken over. */
  takenOver(nextSequence: number, fingerprints: readonly number[], seconds: number | undefined): void {
    const first = nextSequence - fingerprints.length
    for (const [i, fingerprint] of fingerprints.entries()) this.#applied.add(first + i, fingerprint)
    this.#appliedSeconds = seconds
    this.begin(nextSequence, 'replay')
  }

  /**
   * A replay repeated this sequence, or the sequence was applied from a replay: no seam up to here is open.
   */
  joined(sequence: number): void {
    if (sequence === this.#joinedMax + 1) this.#joinedMax = sequence
  }

  /** Too many batches follow the last seam to request them all again for it. */
  joinedAt(sequence: number): void {
    this.#joinedMax = Math.max(this.#joinedMax, sequence)
  }

  /** Whether a replay can be asked to repeat this batch, as proof that it is of this life. */
  remembers(sequence: number): boolean {
    return this.#applied.has(sequence)
  }

  /** Fingerprints of the last batches applied, at most `count`, up to the one before `nextSequence`. */
  lastFingerprints(nextSequence: number, count: number): readonly number[] {
    const fingerprints: number[] = []
    for (let sequence = nextSequence - 1; sequence >= nextSequence - count; sequence--) {
      const fingerprint = this.#applied.fingerprintOf(sequence)
      if (fingerprint === undefined) break
      fingerprints.unshift(fingerprint)
    }
    return fingerprints
  }

  /** Compares with the batch applied under this sequence. */
  compare(sequence: number, fingerprint: number): Likeness {
    return this.#applied.compare(sequence, fingerprint)
  }

  /** Compares with the live batch of this sequence. */
  compareHeard(sequence: number, fingerprint: number): Likeness {
    return this.#live.compare(sequence, fingerprint)
  }

  /** Whether the next batch has another rank than the history, which is the first rank that a batch named. */
  isOtherRank(rank: number | undefined): boolean {
    if (rank === undefined) return false
    this.#rank ??= rank
    return rank !== this.#rank
  }

  /** Whether the next batch was published before the last one applied. */
  isOlder(seconds: number | undefined): boolean {
    return seconds !== undefined && this.#appliedSeconds !== undefined && seconds < this.#appliedSeconds
  }

  get #unlinked(): Link {
    return this.#liveMax >= 0 || this.#mustAgree ? 'due' : 'unheard'
  }

  /** Classifies a live batch, before `heard`. */
  classify(sequence: number, fingerprint: number, { expected, firstSequence }: Extent): LiveVerdict {
    if (sequence > this.#liveMax) {
      if (expected === undefined || sequence >= expected) return 'new'
      const likeness = this.#applied.compare(sequence, fingerprint)
      if (likeness === 'other') return 'contradicted'
      if (likeness === 'same') {
        this.linked()
        return 'replayed'
      }
      // It continues linked batches, or batches that came before the history was requested; then the history
      // begins after it.
      const isBehind = this.#wasHeardBefore && (sequence < firstSequence || this.#liveMax >= 0)
      return this.#link === 'linked' || isBehind ? 'replayed' : 'doubtful'
    }
    // A lower sequence is a repetition, or late, or of another process.
    const likeness = this.#live.compare(sequence, fingerprint)
    if (likeness !== 'unknown') return likeness === 'same' ? 'repeated' : 'restarted'
    if (this.#applied.compare(sequence, fingerprint) === 'same') return 'repeated'
    // No replay has told it: so it is not the very first batch, come late, but the first one of another life.
    if (sequence === 0 || this.#liveMax - sequence >= this.#rememberedMax) return 'restarted'
    return expected !== undefined && sequence >= expected ? 'new' : 'restarted'
  }
}
