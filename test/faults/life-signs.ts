/**
 * Signs: for each block, the time since when an observer of an engine could know that the engine no longer
 * holds it.
 *
 * A sign is a message that contradicts "nothing has changed". Signs are read from the wire; the follower's
 * conclusions play no part.
 *
 *   message                                     shows
 *   a batch, live or repeated                   what this life of the engine did before the batch: the change
 *                                               is in it, or in an earlier batch, which is then missing
 *   a live batch of another life                that the earlier life is over; but a batch with exactly the
 *                                               expected sequence fits every history, and shows nothing
 *   a repeated batch of another life            always the same: a follower can request the last batch that
 *                                               it has, and compare
 *   the end of the connection                   that every earlier life is over
 *   a probe that names another process          that the lives of the earlier process are over
 *
 * Blocks of another engine, which this one never held, came over sockets that are not its own. There are
 * signs of that, too:
 *
 *   two dp ranks on one socket                          two engines publish there
 *   live sequences that go back, for the third time     the same: one or two may be restarts
 *   a live batch, when another engine answers replays   a follower that requests a repetition sees another
 *                                                       batch. Not if both engines published equal batches,
 *                                                       at the same time and under the same sequence: then
 *                                                       only batches repeated later show it
 *
 * A life has *passed for another* if its end came with a live batch of the expected sequence: nothing shows
 * that its blocks are gone, until one of the other signs comes. A checkpoint written meanwhile has the same
 * flaw after it is taken over, if the engine repeats every batch that may be requested to prove it, and all
 * of them are of the other life.
 *
 * A life is *in doubt* if its end shows only by a hole, or by a proof of a checkpoint that is shorter than it
 * might be. That is a sign, so none of its blocks counts as exact; but nothing distinguishes its blocks from
 * those of the next life.
 */

import type { Clock } from '@homing/base'
import type { BatchOrigin, LifeEngine, Moments } from './life-engine.ts'
import { BLOCKS } from './life-prompts.ts'

interface Known {
  /** When the block went, as `Gone` has it. */
  readonly moment: number
  readonly atMs: number
}

/** Why an observer could not know that blocks of an ended life are gone. */
export type Unobservable =
  | 'a life began with the number expected'
  | 'a checkpoint joined two such lives'
  | 'two lives told the batch before a hole alike'
  | 'two engines told a batch alike'

/** The state of signs when a checkpoint is taken over. */
export interface TakenOver {
  /** Which process ran when it was written. */
  readonly process: number
  /** Lives that had passed for others. */
  readonly passed: readonly number[]
  /** All the batches that prove it are of the life that ran. */
  readonly isOfOneLife: boolean
}

/** So often may an engine restart. */
const SETBACKS_MAX = 3

export class Signs {
  readonly engine: LifeEngine
  readonly #clock: Clock
  readonly #moments: Moments
  readonly #known: (Known | undefined)[] = BLOCKS.map(() => undefined)
  /** End of the history that was heard; undefined: nothing was heard since the connection is up. */
  #life: number | undefined
  #nextSequence = 0
  /** Its batch before that. */
  #last: BatchOrigin | undefined
  /** The first sequence heard of that life. */
  #firstSequence = 0
  #firstHeard: BatchOrigin | undefined
  /** Lives that have passed for others, and how. */
  readonly #passed = new Map<number, Unobservable>()
  /** Lives in doubt, and the number that was to come next of each. */
  readonly #doubted = new Map<number, number>()
  #process: number | undefined
  /** The highest live batch, since the connection is up or sequences went back. */
  #highest: BatchOrigin | undefined
  #setbacks = 0
  /** Since when it shows that there are two publishers. */
  #mixedMs: number | undefined
  #ownMs: number | undefined
  #repeatedByOtherMs: number | undefined
  /** Another engine has repeated a batch that this one, too, has published. */
  #isProvenByOther = false

  constructor(engine: LifeEngine, clock: Clock, moments: Moments) {
    this.engine = engine
    this.#clock = clock
    this.#moments = moments
  }

  /**
   * For how long it could be known that this block is gone, in milliseconds; undefined: it could not, or is
   * held.
   */
  knownForMs(block: number): number | undefined {
    const gone = this.engine.gone(block)
    const known = this.#known[block]
    if (gone === undefined || known === undefined || known.moment !== gone.moment) return undefined
    return this.#clock.nowMs() - known.atMs
  }

  /**
   * Everything credited from now on was published again: only messages from now on can show that it is wrong.
   */
  connected(): void {
    this.#known.fill(undefined)
  }

  /**
   * The same for a block taken from another observer that followed the engine before. No sequence says how
   * far that observer had read, so changes before the first batch heard here, and lives that were over by
   * then, show no sign.
   */
  knownOfWordForMs(block: number): number | undefined {
    const first = this.#firstHeard
    const gone = this.engine.gone(block)
    // A change comes one moment before the batch that reports it.
    if (first === undefined || gone === undefined || gone.moment < first.moment - 1) return undefined
    for (let life = 0; life < first.life; life++) if (this.engine.heldIn[life]!.has(block)) return undefined
    return this.knownForMs(block)
  }

  /**
   * For how long an observer could know that another engine is mistaken for this one; undefined: it could
   * not.
   */
  get mistakenForMs(): number | undefined {
    const sinceMs = [this.#mixedMs]
    if (this.#ownMs !== undefined && this.#repeatedByOtherMs !== undefined)
      sinceMs.push(Math.max(this.#ownMs, this.#repeatedByOtherMs))
    const known = sinceMs.filter(ms => ms !== undefined)
    return known.length === 0 ? undefined : this.#clock.nowMs() - Math.min(...known)
  }

  live(one: BatchOrigin): void {
    const origin = this.#alike(one)
    if (origin.isShared) {
      this.#ownMs = undefined
      this.#repeatedByOtherMs = undefined
    }
    const nowMs = this.#clock.nowMs()
    const highest = this.#highest
    const isBack = highest !== undefined && origin.sequence <= highest.sequence
    if (highest === undefined || !isBack || highest.engine !== origin.engine) this.#highest = origin
    if (highest !== undefined && highest.engine !== origin.engine) {
      if (isBack) this.#setbacks++
      const isSeen = this.#setbacks >= SETBACKS_MAX || highest.engine.rank !== origin.engine.rank
      if (isSeen) this.#mixedMs ??= nowMs
    }
    if (origin.engine !== this.engine) return
    if (!origin.isShared) this.#ownMs ??= nowMs
    const { life, sequence } = origin
    const before = this.#life
    if (before !== undefined && life > before) {
      const next = this.#nextSequence
      if (sequence !== next) this.#passed.clear()
      for (let over = before; over < life; over++) {
        if (sequence === next) this.#passed.set(over, 'a life began with the number expected')
        else if (sequence > next && this.#last?.again.some(again => again.life === life))
          this.#passed.set(over, 'two lives told the batch before a hole alike')
        else if (sequence > next) this.#doubted.set(over, next)
      }
    }
    this.#heard(origin, one)
  }

  repeated(one: BatchOrigin): void {
    const origin = this.#alike(one)
    if (origin.isShared) {
      // It proves as much as a batch that only this engine published: only later repeated batches can show
      // the difference.
      this.#repeatedByOtherMs = undefined
      this.#isProvenByOther = true
    }
    if (origin.engine !== this.engine) {
      if (!origin.isShared) this.#repeatedByOtherMs ??= this.#clock.nowMs()
      return
    }
    if (this.#life !== undefined && origin.life > this.#life) this.#passed.clear()
    for (const [life, next] of this.#doubted) {
      if (origin.life > life && origin.sequence < next) this.#doubted.delete(life)
    }
    this.#heard(origin, one)
  }

  /** Of lives that have said the same under the same number, the one that was to be heard. */
  #alike(origin: BatchOrigin): BatchOrigin {
    if (origin.again.length === 0) return origin
    const all = [origin, ...origin.again]
    return (
      all.find(({ life }) => life === this.#life) ??
      all.find(({ life }) => life > (this.#life ?? 0)) ??
      origin
    )
  }

  disconnected(): void {
    this.#life = undefined
    this.#nextSequence = 0
    this.#passed.clear()
    this.#doubted.clear()
    this.#highest = undefined
    this.#setbacks = 0
    this.#mixedMs = undefined
    this.#ownMs = undefined
    this.#repeatedByOtherMs = undefined
    this.#isProvenByOther = false
    this.#tell(this.#moments.now, Number.POSITIVE_INFINITY)
  }

  /** A probe answered and named its process. */
  probed(process: number): void {
    if (this.#process !== undefined && process > this.#process) {
      const firstLife = this.engine.firstLives[process]!
      this.#tellLivesBefore(firstLife)
    }
    this.#process = process
  }

  /** Lives that have passed for others: nothing shows that their blocks are gone. */
  get hasPassed(): boolean {
    return this.#passed.size > 0
  }

  /**
   * Why an observer could not know that a block is gone; undefined: an observer could, or the engine holds
   * it.
   */
  unobservable(block: number): Unobservable | undefined {
    const isGone = this.engine.gone(block) !== undefined
    for (const [life, how] of this.#passed) if (isGone && this.engine.heldIn[life]!.has(block)) return how
    const isMistaken = this.#isProvenByOther && this.mistakenForMs === undefined
    return isMistaken ? 'two engines told a batch alike' : undefined
  }

  /** A life in doubt held the block: a sign shows its end, but not which of its blocks are left. */
  isDoubted(block: number): boolean {
    const { heldIn } = this.engine
    const lives = [...this.#doubted.keys(), ...this.#passed.keys()]
    return lives.some(life => heldIn[life]!.has(block))
  }

  /** The state of signs for a checkpoint written now; `provenFrom`: the first batch of its proof. */
  takenOver(process: number, provenFrom: () => number): TakenOver {
    const passed = [...this.#passed.keys()]
    return { process, passed, isOfOneLife: passed.length > 0 && this.#firstSequence <= provenFrom() }
  }

  /** Answers have said that something is not held; up to a moment. */
  contradicted(moment = this.#moments.now): void {
    this.#tell(moment, Number.POSITIVE_INFINITY)
  }

  /** The observer's state comes from a checkpoint. */
  resumed({ process, passed, isOfOneLife }: TakenOver): void {
    for (const life of passed) {
      if (isOfOneLife) this.#passed.set(life, 'a checkpoint joined two such lives')
      else this.#doubted.set(life, 0)
    }
    for (let block = 0; block < BLOCKS.length; block++)
      if (this.#wasHeldByPassed(block)) this.#known[block] = undefined
    if (this.#process === undefined) this.#process = process
    else if (process < this.#process) this.#tellLivesBefore(this.engine.firstLives[this.#process]!)
  }

  /** `one`: with all lives that have said the same. */
  #heard(origin: BatchOrigin, one: BatchOrigin): void {
    const { life, sequence, moment } = origin
    this.#firstHeard ??= origin
    if (this.#life === undefined || life > this.#life) {
      this.#life = life
      this.#firstSequence = sequence
      this.#nextSequence = sequence + 1
    } else if (life === this.#life) {
      this.#firstSequence = Math.min(this.#firstSequence, sequence)
      this.#nextSequence = Math.max(this.#nextSequence, sequence + 1)
    }
    if (sequence === this.#nextSequence - 1) this.#last = one
    this.#tell(moment, life)
  }

  #wasHeldByPassed(block: number): boolean {
    for (const life of this.#passed.keys()) if (this.engine.heldIn[life]!.has(block)) return true
    return false
  }

  #tellLivesBefore(firstLife: number): void {
    for (const lives of [this.#passed, this.#doubted])
      for (const life of lives.keys()) if (life < firstLife) lives.delete(life)
    this.#tell(Number.POSITIVE_INFINITY, firstLife - 1)
  }

  /** Changes up to a moment, of lives up to one. */
  #tell(moment: number, life: number): void {
    const atMs = this.#clock.nowMs()
    for (let block = 0; block < BLOCKS.length; block++) {
      const gone = this.engine.gone(block)
      if (gone === undefined || gone.moment > moment || gone.life > life) continue
      // A store of the next life may pass for a second copy, so it goes for later removals too.
      if (this.#wasHeldByPassed(block)) continue
      // No batch reports this change, so only a sign from another life or process counts.
      if (gone.isHidden && gone.life === life) continue
      if (this.#known[block]?.moment !== gone.moment) this.#known[block] = { moment: gone.moment, atMs }
    }
  }
}
