/**
 * A sequence follower between a simulated source and a real index, where every wire may fail: live batches
 * are lost, repeated and overtake each other, replies are dropped, applications refused, engine and router
 * restart. `check` compares what counts as held with the source's cache after any step, `checkTruth` at rest.
 */

import assert from 'node:assert/strict'
import type { KeyImage } from '@homing/actors/indexer'
import { type Random, SimulatedClock, seededRandom } from '@homing/base'
import { BlockIndex, layeredOptions, type Trust } from '@homing/index'
import type { SnapshotReply } from '@homing/protocol'
import { EventApplier } from '../../indexer/src/event-applier.ts'
import { LayerSlots } from '../../indexer/src/layer-slots.ts'
import type { HistoryPoint } from '../src/checkpoint.ts'
import { LISTENER_LIMITS } from '../src/limits.ts'
import { SequenceFollower } from '../src/sequence-follower.ts'
import { hexOf, type PublishedBatch, SimulatedSource } from './simulated-source.ts'

const LIMITS = { ...LISTENER_LIMITS, pendingBatchesMax: 6, resyncMsMin: 300, replayPauseMs: 2000 }

/** Waits that a follower may set without any time going by: one for each message, and a few more. */
const WAITS_MAX = 1000

/** A live batch that no replay has told is believed no longer; and a little. */
const UNCONFIRMED_MS_MAX = 100

type SnapshotPart = Extract<SnapshotReply, { readonly kind: 'part' }>

export class FollowerWorld {
  readonly clock = new SimulatedClock()
  readonly source: SimulatedSource
  /** Another engine, whose replay port may be taken for this one's. */
  readonly neighbour: SimulatedSource
  isPortWrong = false
  /** It was, at some time. */
  isLied = false
  /**
   * Once the number of a batch was all that told of it: an engine that keeps little can never show that it
   * was of another life.
   */
  wasSpliced = false
  /** When the first live batch came since the socket is up. */
  #heardMs: number | undefined
  index = BlockIndex.create(layeredOptions(1 << 20, 1))
  applier = new EventApplier(this.index, new LayerSlots(1))
  follower: SequenceFollower
  readonly #hasReplay: boolean
  readonly #random: Random
  readonly #offersSnapshots: boolean
  #isUp = false
  #live: (PublishedBatch & { readonly isSure: boolean; readonly life: number })[] = []
  #lives = 0
  #heardLife = 0
  #heardSequence = -1
  /**
   * Since the socket is up: which life a sequence was last told of, live and by replay; and when the first
   * live batch of a life came.
   */
  readonly #heardLives = new Map<number, number>()
  readonly #toldLives = new Map<number, number>()
  readonly #heardSinceMs = new Map<number, number>()
  /** A live batch that is held back, and follows what a replay told of another life by its number alone. */
  #waiting: { readonly sequence: number; readonly life: number; readonly isSign: boolean } | undefined
  /** From then on the history may be of two lives, and only its number said that a batch was the next one. */
  #spliced: { readonly atMs: number; readonly isSign: boolean } | undefined
  #last: PublishedBatch | undefined
  #replies: {
    readonly attempt: number
    readonly life: number
    readonly batch: PublishedBatch | 'end' | SnapshotPart
  }[] = []
  #attempt = 0
  /** The attempt whose first reply has come. */
  #repliesBegun = 0
  trust: Trust = 'none'
  reason = ''
  /** Applications that will be refused. */
  refusals = 0
  replayAnswers = true
  /** Checkpoints that were taken over. */
  resumed = 0
  #saved: { readonly point: HistoryPoint; readonly image: KeyImage } | undefined
  /** Waits that were set at this time. */
  #waits = { atMs: 0, count: 0 }

  /** `offersSnapshots`: a publisher that knows its cache from its first batch on. */
  constructor(seed: number, hasReplay: boolean, keptMax: number, offersSnapshots: boolean) {
    this.#random = seededRandom(seed)
    this.#offersSnapshots = offersSnapshots
    this.#hasReplay = hasReplay
    this.source = new SimulatedSource(this.#random, keptMax)
    this.neighbour = new SimulatedSource(this.#random, 10_000, 'vllm-map', { life: 1000 })
    this.follower = this.#newFollower()
  }

  /** Writes a checkpoint, if the follower stands where one can be. */
  save(): void {
    const point = this.follower.point()
    const image = point && this.applier.image(0)
    if (point !== undefined && image !== undefined) this.#saved = structuredClone({ point, image })
  }

  /** The router begins anew with the last checkpoint. */
  restartRouter(): void {
    this.disconnect()
    this.refusals = 0
    this.#repliesBegun = 0
    this.trust = 'none'
    this.index = BlockIndex.create(layeredOptions(1 << 20, 1))
    this.applier = new EventApplier(this.index, new LayerSlots(1))
    this.follower = this.#newFollower()
    if (this.#saved !== undefined) this.follower.offer(this.#saved.point)
  }

  #newFollower(): SequenceFollower {
    const { offersSnapshots, hasReplay } = {
      offersSnapshots: this.#offersSnapshots,
      hasReplay: this.#hasReplay,
    }
    return new SequenceFollower(
      {
        nowMs: () => this.clock.nowMs(),
        apply: events => {
          if (this.#isRefused()) return false
          const { resync } = this.applier.apply(0, undefined, events)
          assert.equal(resync, undefined)
          return true
        },
        clear: () => {
          if (this.#isRefused()) return false
          this.applier.open(0)
          return true
        },
        restore: () => {
          if (this.#isRefused()) return false
          this.resumed++
          return this.applier.load(0, this.#saved!.image)
        },
        hasBase: () => false,
        restoreBase: () => true,
        dropBase: () => {},
        checkpointSettled: () => {},
        hashesFailed: () => {},
        startReplay: (attempt, { snapshot, fromSequence, isRestLater }) => {
          this.#attempt = attempt
          this.#replies = []
          if (!this.replayAnswers) return
          const life = this.#lives
          if (snapshot && offersSnapshots) {
            const parts = this.source.snapshot()
            const nextSequence = this.source.lastSequence + 1
            const known = { publisherId: '0', nextSequence, isWhole: true, mayBeStale: false }
            const header = { ...known, form: 'tokens', offersHashes: false } as const
            for (const [part, payload] of parts.entries()) {
              const reply = { kind: 'part', ...header, part, parts: parts.length, payload } as const
              this.#replies.push({ attempt, life, batch: reply })
            }
          }
          if (fromSequence !== undefined && isRestLater !== true) this.#answerFrom(fromSequence)
        },
        askRest: fromSequence => this.#answerFrom(fromSequence),
        stopReplay: () => {
          this.#replies = []
        },
        // A wait of an earlier follower is nobody's.
        setWait: (wait, delayMs) => {
          this.#countWait()
          const follower = this.follower
          this.clock.after(delayMs, () => {
            if (follower !== this.follower) return
            this.follower.wake(wait)
            this.#noteJoined()
          })
        },
        trustChanged: ({ trust, reason }) => {
          this.trust = trust
          this.reason = reason
        },
      },
      {
        eventsEndpoint: 'tcp://engine:5557',
        replayEndpoint: hasReplay ? 'tcp://engine:6557' : undefined,
        dpRank: 0,
        limits: LIMITS,
      },
    )
  }

  /** A follower that waits for no time again and again would spin. */
  #countWait(): void {
    const nowMs = this.clock.nowMs()
    if (this.#waits.atMs !== nowMs) this.#waits = { atMs: nowMs, count: 0 }
    assert.ok(++this.#waits.count <= WAITS_MAX, `${WAITS_MAX} waits at ${nowMs} ms`)
  }

  /** Batches of the replay, and its end, in the attempt under way. */
  #answerFrom(sequence: number): void {
    const [attempt, life] = [this.#attempt, this.#lives]
    const told = this.isPortWrong ? this.neighbour : this.source
    for (const batch of told.replay(sequence)) this.#replies.push({ attempt, life, batch })
    this.#replies.push({ attempt, life, batch: 'end' })
  }

  #isRefused(): boolean {
    if (this.refusals === 0) return false
    this.refusals--
    return true
  }

  publish(batch: PublishedBatch, isSure = false): void {
    if (this.#isUp) this.#live.push({ ...batch, isSure, life: this.#lives })
  }

  connect(): void {
    if (this.#isUp) return
    this.#isUp = true
    this.follower.connected()
  }

  disconnect(): void {
    if (!this.#isUp) return
    this.#isUp = false
    this.#live = []
    this.#replies = []
    this.#forgetHeard()
    this.follower.disconnected()
  }

  /** The engine is replaced and nobody says so, but its first batch. */
  restartInPlace(): void {
    this.restartUnheard()
    this.#live = []
    this.#replies = []
    this.publish(this.source.publish(), true)
  }

  /** The same, and what is on its way comes still. */
  restartUnheard(): void {
    this.source.restart()
    this.#lives++
  }

  /** Its process start moved: it begins anew, as a socket that came up. */
  engineRestarted(): void {
    this.#forgetHeard()
    this.follower.engineRestarted(undefined)
  }

  deliver(fate: 'deliver' | 'lose' | 'twice' | 'overtake'): void {
    const [first, second] = this.#live
    if (first === undefined) return
    if (fate === 'overtake' && second !== undefined && !first.isSure) {
      this.#live[0] = second
      this.#live[1] = first
    }
    const batch = this.#live[0]!
    this.#live.shift()
    if (fate === 'lose' && !batch.isSure) return
    this.#last = batch
    const { lastSequence = -1 } = this.follower.status()
    const goesOn = batch.life !== this.#heardLife && this.#heardSequence === batch.sequence - 1
    const continues = lastSequence === batch.sequence - 1 && !this.#isOfLife(lastSequence, batch.life)
    // One that comes late, behind others of its life, is a sign.
    const isSign = this.#heardMs === undefined || batch.life === this.#heardLife
    if (goesOn || continues) this.#noteSplice(isSign)
    this.#heardLife = batch.life
    this.#heardSequence = batch.sequence
    this.#heardMs ??= this.clock.nowMs()
    this.#heardLives.set(batch.sequence, batch.life)
    if (!this.#heardSinceMs.has(batch.life)) this.#heardSinceMs.set(batch.life, this.clock.nowMs())
    this.follower.live(batch.sequence, batch.payload)
    if (fate === 'twice') this.follower.live(batch.sequence, batch.payload)
    this.#noteJoined()
  }

  repeatLast(): void {
    if (this.#isUp && this.#last !== undefined && this.#live.length === 0) {
      const isCurrent = this.source.replay(this.#last.sequence)[0]?.payload === this.#last.payload
      if (isCurrent) this.follower.live(this.#last.sequence, this.#last.payload)
    }
  }

  reply(count: number, fate: 'deliver' | 'lose'): void {
    for (let i = 0; i < count; i++) {
      const reply = this.#replies.shift()
      if (reply === undefined) return
      const { attempt, life, batch } = reply
      // A replay socket drops what does not fit its queue: never the first.
      if (fate === 'lose' && this.#repliesBegun === attempt) continue
      this.#repliesBegun = attempt
      if (batch === 'end') this.follower.replayed(attempt, { kind: 'end' })
      else if ('parts' in batch) this.follower.snapshot(attempt, batch)
      else {
        this.#noteWaiting(batch.sequence + 1, life)
        this.#toldLives.set(batch.sequence, life)
        this.follower.replayed(attempt, { kind: 'batch', ...batch })
      }
      this.#noteJoined()
    }
  }

  /** What the live socket brought before is held back, and may seem to follow what a replay tells now. */
  #noteWaiting(sequence: number, replayedLife: number): void {
    const life = this.#heardLives.get(sequence)
    const { lastSequence = -1 } = this.follower.status()
    if (life === undefined || life === replayedLife || lastSequence >= sequence) return
    // Where the live socket told nothing of the life that is replayed, no batch can link the two.
    this.#waiting = { sequence, life, isSign: !this.#heardSinceMs.has(replayedLife) }
  }

  /** It is believed by its number for so long after the first of its life; later, a replay has to tell it. */
  #noteJoined(): void {
    if (this.#waiting === undefined) return
    const { sequence, life, isSign } = this.#waiting
    const { lastSequence = -1 } = this.follower.status()
    if (lastSequence < sequence) return
    this.#waiting = undefined
    const heardForMs = this.clock.nowMs() - (this.#heardSinceMs.get(life) ?? Number.NEGATIVE_INFINITY)
    if (!isSign || heardForMs <= UNCONFIRMED_MS_MAX) this.#noteSplice(isSign)
  }

  #isOfLife(sequence: number, life: number): boolean {
    return this.#heardLives.get(sequence) === life || this.#toldLives.get(sequence) === life
  }

  #noteSplice(isSign: boolean): void {
    // One that nothing tells of stays one, whatever follows it.
    this.#spliced = { atMs: this.clock.nowMs(), isSign: isSign && this.#spliced?.isSign !== false }
    this.wasSpliced = true
  }

  /** The follower forgets its history, too. */
  #forgetHeard(): void {
    this.#heardMs = undefined
    this.#heardLives.clear()
    this.#toldLives.clear()
    this.#heardSinceMs.clear()
    this.#waiting = undefined
    this.#spliced = undefined
  }

  /** From here nothing fails; runs until nothing is left to do. */
  settle(): void {
    this.#spliced = undefined
    this.refusals = 0
    this.replayAnswers = true
    this.connect()
    for (let round = 0; round < 400; round++) {
      while (this.#live.length > 0) this.deliver('deliver')
      while (this.#replies.length > 0) this.reply(1, 'deliver')
      this.clock.advance(100)
    }
  }

  /** The same, with a batch now and then, until every pause is over and every check was made. */
  settleForLong(): void {
    for (let minute = 0; minute < 4; minute++) {
      this.settle()
      for (let i = 0; i < 3; i++) this.publish(this.source.publish())
      this.settle()
    }
  }

  /** At rest: what is believed is so. */
  checkTruth(): void {
    const held = this.held()
    const cached = this.source.cached
    const said = `${this.trust} (${this.reason})`
    if (this.trust === 'none') return
    for (const key of held) assert.ok(cached.has(key), `trust ${said}: held that is not cached`)
    if (this.trust === 'exact') assert.equal(held.size, cached.size, `trust ${said}: something is missing`)
  }

  held(): ReadonlySet<string> {
    const held = new Set<string>()
    for (const entry of this.index.dump(0)) if (entry.isReachable) held.add(hexOf(entry.engineHash))
    return held
  }

  /** What the trust promises, about the cache as it was after the last batch applied. */
  check(): void {
    const offersSnapshots = this.#offersSnapshots
    const { state, lastSequence } = this.follower.status()
    const held = this.held()
    if (state === 'disconnected' || state === 'connecting') assert.equal(this.trust, 'none')
    // A snapshot is taken over part by part; nothing counts until it is whole.
    if (lastSequence === undefined || (offersSnapshots && this.trust === 'none')) return
    // What a wrong port told is believed until the live socket has said a word.
    const isHeard = this.#heardMs !== undefined && this.clock.nowMs() - this.#heardMs > UNCONFIRMED_MS_MAX
    if (this.isLied && !(isHeard && this.trust === 'exact')) return
    if (this.#spliced !== undefined) {
      const { atMs, isSign } = this.#spliced
      if (!isSign || this.clock.nowMs() - atMs <= UNCONFIRMED_MS_MAX || this.trust !== 'exact') return
    }
    const caches = lastSequence < 0 ? [new Set<string>()] : this.source.cachedAfter(lastSequence)
    const isSubset = held.size === 0 || caches.some(cache => [...held].every(key => cache.has(key)))
    assert.ok(isSubset, `trust ${this.trust} (${this.reason}): something counts as held that is not`)
    if (this.trust !== 'exact' || state !== 'live') return
    const isEqual = caches.some(cache => cache.size === held.size && [...held].every(key => cache.has(key)))
    assert.ok(isEqual, `trust exact (${this.reason}), but a block is missing`)
  }
}
