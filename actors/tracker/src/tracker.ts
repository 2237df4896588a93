/**
 * Tracker: the slot manager, the sole writer of the load of every worker key.
 *
 * In     `project`, `book` and `free` from the router; first byte and signs of life of answers from the
 *        gateway; lost worker keys from the fleet; new lives of gateways; KV cache use that engines report.
 * Out    replies; `loadFell` to the queue, if it watches; `drained` to the directory, when a draining worker
 *        has no open request; what was learned to the keeper, with each sweep, and to a file.
 * Owns   ActiveLoad: active blocks, prefill tokens and requests of every worker slot. EngineBook: the
 *        backlog of each slot in milliseconds, and its learned speed. The KV cache use that engines report
 *        is kept apart from both.
 * Order  a router that awaits each `book` before its next `project` never decides on stale load.
 * Fails  bookings of a gateway's ended life are freed when the next life begins. A booking that nobody
 *        touches for `idleMsMax` is freed and counted: its owner has lost it. After a restart no request is
 *        booked; a `free` of one booked before has no effect. What was learned is as of the last sweep.
 */

import { type ActorContext, type ActorRef, defineActor } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { ActiveLoad, copyProjection, EngineBook, LearnedValues } from '@homing/load'
import type { CandidateLoads, TrackingSettings } from '@homing/placement'
import { newLife, type ReplicaSnapshot } from '@homing/replication'
import { LearnedFile, learnedStore, SAVE_MS } from './learned-file.ts'
import type { LearnedImage } from './learned-image.ts'
import { LearnedLives, type LearnedSource } from './learned-lives.ts'
import type {
  BookedPlace,
  Booking,
  BookingOutcome,
  GatewayLife,
  KvUsageReport,
  LoadFellMessage,
  LoadReport,
  OwnOperationsMessage,
  TellAgainMessage,
  TrackerMessage,
  TrackerUsage,
  WorkerLoad,
  WorkerOddMark,
} from './messages.ts'
import { OddAlarm } from './odd-alarm.ts'
import { OutputBlocks } from './output-blocks.ts'
import { ReplicaBookings } from './replica-bookings.ts'
import type { TrackerArgs } from './tracker-args.ts'
import { TRACK_ALL, trackedHashes, trackingOf } from './tracking.ts'

const SWEEP_INTERVAL_MS = 5000
const KEPT_MS_MAX = 1000
/** A pause between images for the keeper, as a multiple of the time that one takes. */
const KEEP_PAUSE_TIMES = 500
const NO_HASHES = new Int32Array(0)

export const tracker = defineActor(
  import.meta.url,
  'tracker',
)<TrackerMessage, TrackerArgs>({
  async setup(context, args) {
    const { learnedFile: path, workerSlotsMax } = args
    const file =
      path === undefined
        ? undefined
        : new LearnedFile(context.log, context.use(learnedStore), path, workerSlotsMax)
    const state = new Tracker(context, args, file)
    const kept = await keptOf(context, args)
    if (kept !== undefined) state.inherit(kept, 'tracker')
    else state.inherit(await file?.read(), 'file')
    if (file !== undefined) context.schedule(SAVE_MS, { type: 'saveLearnedDue' })
    context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })
    return {
      fleet: ({ fleet }) => state.takeFleet(fleet),
      project: question => question.reply(state.project(question)),
      reportedUsage: ({ reports }) => state.reportedUsage(reports),
      watchLoad: ({ watcher, falls }) => state.watchLoad(watcher, falls),
      book: ({ booking, reply }) => reply(state.book(booking)),
      isBooked: ({ decisionId, reply }) => reply(state.isBooked(decisionId)),
      whereBooked: ({ decisionIds, reply }) => reply(decisionIds.map(id => state.whereBooked(id))),
      prefillComplete: ({ decisionId, teaches = true }) => state.prefillComplete(decisionId, teaches),
      touch: ({ decisionId, outputTokens }) => state.touch(decisionId, outputTokens),
      outputBlocks: ({ decisionId, blocks, weight }) => state.outputBlocks(decisionId, blocks, weight),
      free: ({ type: _, decisionId, isOwn, session, ...said }) => {
        if (isOwn !== true || !state.isElsewhere(decisionId)) state.free(decisionId, said, session)
      },
      gatewayStarted: ({ gateway }) => state.gatewayStarted(gateway),
      loads: ({ reply }) => reply(state.loads()),
      replicate: ({ bridge, reply }) => state.replicate(bridge, reply),
      ownBookings: ({ reply }) => reply(state.ownBookings()),
      replicaOperations: ({ replica, operations, isLate }) =>
        state.fellIf(state.replicas?.apply(replica, operations, isLate)),
      replicaBookings: ({ replica, bookings }) => state.fellIf(state.replicas?.reset(replica, bookings)),
      replicasKnown: ({ replicas }) => state.fellIf(state.replicas?.retain(replicas)),
      flushOperations: () => state.flush(),
      saveLearned: ({ reply }) => void state.saveLearned().then(reply),
      saveLearnedDue() {
        void state.saveLearned()
        context.schedule(SAVE_MS, { type: 'saveLearnedDue' })
      },
      sweep() {
        state.sweep()
        context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })
      },
    }
  },
})

/** What earlier lives have learned, from the keeper. */
async function keptOf(
  { log }: ActorContext<TrackerMessage>,
  { keeper }: TrackerArgs,
): Promise<LearnedImage | undefined> {
  if (keeper === undefined) return undefined
  try {
    return await keeper.ask({ type: 'keptLearned' }, { timeout: KEPT_MS_MAX })
  } catch (error) {
    log.error({ error: toErrorRecord(error) }, 'what was learned of the speed of workers is lost')
    return undefined
  }
}

type MessageOf<T extends TrackerMessage['type']> = Extract<TrackerMessage, { readonly type: T }>

class Tracker {
  /** Undefined: there are no other routers. */
  readonly replicas: ReplicaBookings | undefined
  readonly #context: ActorContext<TrackerMessage>
  readonly #directory: TrackerArgs['directory']
  readonly #tracking: TrackingSettings
  readonly #idleMsMax: number
  readonly #replicationMs: number
  readonly #load: ActiveLoad
  readonly #book: EngineBook
  readonly #learned: LearnedValues
  readonly #alarm: OddAlarm
  readonly #keeper: TrackerArgs['keeper']
  #nextKeepMs = Number.NEGATIVE_INFINITY
  readonly #lives: LearnedLives
  readonly #file: LearnedFile | undefined
  /** Undefined: output blocks are not counted. */
  readonly #outputs: OutputBlocks | undefined
  /** Callers have told blocks of answers. */
  #hasToldOutputs = false
  #keysBySlot = new Map<number, string>()
  #slotsByKey = new Map<string, number>()
  /** By worker slot: the worker key that had it last, where none has it now. */
  readonly #leftKeys = new Map<number, string>()
  /** By worker id: `promptsEpoch`, which grows when it runs as another process. */
  #processes: ReadonlyMap<string, number> = new Map()
  /** The gateway of each booking, by decision id. */
  readonly #gateways = new Map<string, GatewayLife>()
  /** By worker slot. */
  readonly #reported = new Map<number, NonNullable<WorkerLoad['reported']>>()
  /** Worker slots of draining workers, by worker id. */
  readonly #draining = new Map<string, readonly number[]>()
  #falls = 0
  #watcher: ActorRef<LoadFellMessage> | undefined
  #bridge: ActorRef<OwnOperationsMessage | TellAgainMessage> | undefined
  #isFlushDue = false
  #flushedMs = Number.NEGATIVE_INFINITY

  constructor(context: ActorContext<TrackerMessage>, args: TrackerArgs, file: LearnedFile | undefined) {
    const { workerSlotsMax, requestsMax, activeBlocksMax, tracking = TRACK_ALL } = args
    const { replicationMs } = args
    this.#context = context
    this.#directory = args.directory
    this.#tracking = tracking
    this.#idleMsMax = args.idleMsMax
    this.#replicationMs = replicationMs ?? 0
    this.#load = new ActiveLoad({ workerSlotsMax, requestsMax, activeBlocksMax })
    const learned = new LearnedValues()
    this.#book = new EngineBook({ workerSlotsMax, learned })
    this.#learned = learned
    this.#alarm = new OddAlarm(context.log)
    this.#keeper = args.keeper
    this.#lives = new LearnedLives(learned, workerSlotsMax)
    this.#file = file
    this.#outputs = tracking.outputBlocks ? new OutputBlocks(this.#load) : undefined
    this.replicas =
      replicationMs === undefined
        ? undefined
        : new ReplicaBookings({
            load: this.#load,
            book: this.#book,
            life: newLife(context.random),
            nowMs: () => context.clock.nowMs(),
            slotOf: worker => this.#slotsByKey.get(worker),
            reported: ({ id, isFreed }) => (isFreed ? this.free(id) : this.prefillComplete(id, true)),
          })
  }

  /** Before the first fleet. */
  inherit(image: LearnedImage | undefined, source: LearnedSource): void {
    if (image !== undefined) this.#lives.offer(image, source)
  }

  /** False: there is no file, or it cannot be written. */
  async saveLearned(): Promise<boolean> {
    return (await this.#file?.save(this.#lives.image(this.#context.clock.wallMs()))) ?? false
  }

  takeFleet({ workers }: Fleet): void {
    const present = new Map<number, string>()
    this.#draining.clear()
    const processes = new Map<string, number>()
    for (const worker of workers) {
      const { id, promptsEpoch = 0, keys } = worker
      processes.set(id, promptsEpoch)
      if ((this.#processes.get(id) ?? promptsEpoch) !== promptsEpoch)
        for (const { key, workerSlot } of keys)
          if (this.#keysBySlot.get(workerSlot) === key) this.#book.restarted(workerSlot)
      if (worker.isDraining === true)
        this.#draining.set(
          worker.id,
          worker.keys.map(key => key.workerSlot),
        )
      for (const { key, workerSlot } of worker.keys) present.set(workerSlot, key)
    }
    for (const [workerSlot, key] of this.#keysBySlot) {
      if (present.get(workerSlot) === key) continue
      this.#forget(workerSlot)
      this.#leftKeys.set(workerSlot, key)
    }
    for (const workerSlot of present.keys()) this.#leftKeys.delete(workerSlot)
    const isNew = [...present.values()].some(key => !this.#slotsByKey.has(key))
    this.#processes = processes
    this.#keysBySlot = present
    this.#slotsByKey = new Map([...present].map(([slot, key]) => [key, slot]))
    const taken = this.#lives.takeFleet(workers, this.#context.clock.wallMs())
    if (taken.length > 0)
      this.#context.log.info({ workerKeys: taken.length }, 'what was learned of workers is taken over')
    this.#alarm.takeFleet(workers)
    if (isNew) this.#bridge?.tell({ type: 'tellAgain' })
    this.#flushLater()
    this.#fell()
  }

  project(question: MessageOf<'project'>): CandidateLoads {
    const { workerSlots, wantsEngines, wantsReported } = question
    const { random, clock } = this.#context
    this.#endSilentPrefills(workerSlots)
    const counts = trackingOf(this.#tracking, question.tracking)
    const sequenceHashes = trackedHashes(question.sequenceHashes, counts, random)
    const soughtBlocks = sequenceHashes.length / 2
    const projection = this.#load.project(sequenceHashes, soughtBlocks, workerSlots)
    const { count } = projection
    const newBlocks = projection.newBlocks.slice(0, count)
    if (counts.assumesReuse) this.replicas?.lessNew(sequenceHashes, workerSlots, newBlocks)
    return {
      activeBlocks: projection.activeBlocks.slice(0, count),
      outputBlocks: this.#countsOutputs ? projection.outputBlocks.slice(0, count) : undefined,
      newBlocks,
      soughtBlocks,
      activePrefillTokens: projection.activePrefillTokens.slice(0, count),
      activeRequests: projection.activeRequests.slice(0, count),
      engines: wantsEngines ? copyProjection(this.#book.project(workerSlots, clock.nowMs())) : undefined,
      reportedShares:
        wantsReported === true
          ? Float64Array.from(workerSlots, slot => this.#reported.get(slot)?.share ?? Number.NaN)
          : undefined,
      falls: this.#falls,
    }
  }

  reportedUsage(reports: readonly KvUsageReport[]): void {
    let isLess = false
    for (const { worker, workerSlot, share, reason } of reports) {
      if (this.#keysBySlot.get(workerSlot) !== worker) continue
      isLess ||= (share ?? 0) < (this.#reported.get(workerSlot)?.share ?? 0)
      this.#reported.set(workerSlot, { share, reason })
    }
    this.fellIf(isLess)
  }

  watchLoad(watcher: ActorRef<LoadFellMessage>, falls: number): void {
    if (falls === this.#falls) this.#watcher = watcher
    else {
      this.#watcher = undefined
      watcher.tell({ type: 'loadFell' })
    }
  }

  book(booking: Booking): BookingOutcome {
    const { decisionId, gateway, workerSlot, promptTokens, prefillTokens } = booking
    const { isStream, isUnknown = false, waitedMs = 0, stepTokens, outputTokensMax, handedTokens } = booking
    const { clock, random } = this.#context
    if (this.replicas?.holds(decisionId) === true) return 'duplicate'
    if (this.#isGone(booking)) return 'gone'
    const counts = trackingOf(this.#tracking, booking.tracking)
    const sequenceHashes = trackedHashes(booking.sequenceHashes, counts, random)
    const outcome = this.#load.book(decisionId, workerSlot, {
      sequenceHashes,
      count: sequenceHashes.length / 2,
      promptTokens,
      prefillTokens: counts.prefillTokens ? prefillTokens : 0,
      nowMs: clock.nowMs(),
    })
    if (outcome !== 'booked') return outcome
    this.#gateways.set(decisionId, gateway)
    this.#outputs?.booked(booking)
    const worker = this.#keysBySlot.get(workerSlot)
    if (worker !== undefined) {
      const sharedHashes = counts.assumesReuse ? sequenceHashes : NO_HASHES
      this.replicas?.booked(booking, worker, counts.prefillTokens, sharedHashes)
    }
    this.#flushLater()
    const newTokens = prefillTokens
    const sent = { promptTokens, newTokens, outputTokensMax, isStream, isUnknown, handedTokens, waitedMs }
    this.#book.sent(decisionId, workerSlot, { ...sent, nowMs: clock.nowMs() }, stepTokens)
    return outcome
  }

  /**
   * A slot that was in no fleet yet may be of one that is on its way, or of an earlier life of this tracker.
   */
  #isGone({ worker, workerSlot }: Booking): boolean {
    const present = this.#keysBySlot.get(workerSlot)
    return present === undefined ? this.#leftKeys.get(workerSlot) === worker : present !== worker
  }

  /** Here or at another replica. */
  isBooked(decisionId: string): boolean {
    return this.whereBooked(decisionId) !== undefined
  }

  whereBooked(decisionId: string): BookedPlace {
    if (this.#gateways.has(decisionId)) return 'here'
    return this.replicas?.holds(decisionId) === true ? 'elsewhere' : undefined
  }

  prefillComplete(decisionId: string, teaches: boolean): void {
    const { clock } = this.#context
    if (this.#isReported(decisionId, false)) return
    const isLess = this.#load.prefillComplete(decisionId, clock.nowMs())
    if (teaches) this.#book.firstToken(decisionId, clock.nowMs())
    else this.#book.prefillEnded(decisionId, clock.nowMs())
    this.replicas?.firstToken(decisionId)
    this.#flushLater()
    this.fellIf(isLess)
  }

  /** Sent once a second for each open answer, so a prefill ends without a question of the router, too. */
  touch(decisionId: string, outputTokens: number | undefined): void {
    const { clock } = this.#context
    if (!this.#load.touch(decisionId, clock.nowMs())) return
    const workerSlot = this.#book.slotOf(decisionId)
    if (workerSlot !== undefined) this.#endSilentPrefills([workerSlot])
    if (outputTokens === undefined) return
    this.#book.grew(decisionId, outputTokens, clock.nowMs())
    this.fellIf(this.#outputs?.grew(decisionId, outputTokens) === 'less')
  }

  outputBlocks(decisionId: string, blocks: number, weight: number): void {
    if (!this.#load.touch(decisionId, this.#context.clock.nowMs())) return
    this.#hasToldOutputs = true
    this.#load.setOutputBlocks(decisionId, blocks, weight)
    this.fellIf(weight < 1)
  }

  get #countsOutputs(): boolean {
    return this.#outputs !== undefined || this.replicas !== undefined || this.#hasToldOutputs
  }

  /** Only another replica has a booking of this id. */
  isElsewhere(decisionId: string): boolean {
    return !this.#gateways.has(decisionId) && this.replicas?.holds(decisionId) === true
  }

  free(decisionId: string, said: TrackerUsage = {}, session?: string): void {
    if (this.#isReported(decisionId, true)) return
    const { outputTokens, cachedShare } = this.#book.believed(decisionId, said, this.#context.clock.nowMs())
    this.#gateways.delete(decisionId)
    this.#outputs?.ended(decisionId)
    const isFreed = this.#load.free(decisionId)
    this.replicas?.freed(decisionId, { outputTokens, cachedShare }, session)
    this.#flushLater()
    this.#book.ended(decisionId, this.#context.clock.nowMs(), outputTokens, cachedShare)
    this.fellIf(isFreed)
  }

  /** The booking is another replica's, which was told. */
  #isReported(decisionId: string, isFreed: boolean): boolean {
    if (this.#gateways.has(decisionId) || this.replicas?.report(decisionId, isFreed) !== true) return false
    this.#flushLater()
    return true
  }

  gatewayStarted(gateway: GatewayLife): void {
    for (const [decisionId, { name, life }] of this.#gateways)
      if (name === gateway.name && life !== gateway.life) this.free(decisionId)
  }

  loads(): LoadReport {
    const rows: WorkerLoad[] = []
    for (const [workerSlot, worker] of this.#keysBySlot) {
      const { activeBlocks, activePrefillTokens, activeRequests } = this.#load.totals(workerSlot)
      rows.push({
        worker,
        workerSlot,
        activeBlocks,
        activePrefillTokens,
        activeRequests,
        reported: this.#reported.get(workerSlot),
        learned: this.#book.learned(workerSlot),
        disbelieved: this.#book.disbelieved(workerSlot),
        odd: this.#oddMarks(worker),
      })
    }
    return { rows, stats: this.#load.stats, learnedFile: this.#file?.status, replicas: this.replicas?.counts }
  }

  #oddMarks(worker: string): readonly WorkerOddMark[] {
    const { clock } = this.#context
    const startMs = clock.wallMs() - clock.nowMs()
    return this.#alarm.marks(worker).map(mark => ({ ...mark, sinceMs: Math.round(startMs + mark.sinceMs) }))
  }

  replicate(
    bridge: ActorRef<OwnOperationsMessage | TellAgainMessage>,
    reply: MessageOf<'replicate'>['reply'],
  ): void {
    this.#bridge = bridge
    const { replicas } = this
    replicas?.reportAgain()
    reply(replicas?.outbox.life)
    // Sent even if empty: an empty batch shows the bridge that nothing was lost.
    if (replicas !== undefined) bridge.tell({ type: 'ownOperations', batch: replicas.outbox.take() })
  }

  ownBookings(): ReplicaSnapshot | undefined {
    this.flush()
    return this.replicas?.outbox.snapshot()
  }

  flush(): void {
    this.#isFlushDue = false
    if (this.replicas?.outbox.isDue !== true) return
    this.#flushedMs = this.#context.clock.nowMs()
    // A batch without a bridge is lost; the next snapshot contains its open bookings.
    this.#bridge?.tell({ type: 'ownOperations', batch: this.replicas.outbox.take() })
  }

  sweep(): void {
    const idleMsMax = this.#idleMsMax
    this.replicas?.keepAlive()
    const expired = this.#load.expire(this.#context.clock.nowMs(), idleMsMax)
    for (const decisionId of expired) {
      this.free(decisionId)
      this.#context.log.warn({ decisionId, idleMsMax }, 'booking freed: no sign of life')
    }
    this.fellIf(expired.length > 0)
    this.#alarm.look(this.#learned, this.#context.clock.nowMs())
    this.#keep()
  }

  /** In a fleet of thousands an image takes a while, so it is made the more seldom. */
  #keep(): void {
    const { clock } = this.#context
    const fromMs = clock.nowMs()
    if (this.#keeper === undefined || fromMs < this.#nextKeepMs) return
    this.#keeper.tell({ type: 'keepLearned', image: this.#lives.image(clock.wallMs()) })
    this.#nextKeepMs = fromMs + KEEP_PAUSE_TIMES * (clock.nowMs() - fromMs)
  }

  fellIf(isLess: boolean | undefined): void {
    if (isLess === true) this.#fell()
  }

  /** An answer that does not stream does not show when its prefill ends: it ends when the book says so. */
  #endSilentPrefills(workerSlots: ArrayLike<number>): void {
    const nowMs = this.#context.clock.nowMs()
    let isLess = false
    for (const decisionId of this.#book.silentPrefillsEnded(workerSlots, nowMs)) {
      isLess = this.#load.prefillComplete(decisionId) || isLess
      // The router of another replica's request sends the end of its prefill itself.
      if (this.#gateways.has(decisionId)) this.replicas?.firstToken(decisionId)
    }
    this.#flushLater()
    this.fellIf(isLess)
  }

  /** The worker key of this slot is gone: its requests no longer count as load. */
  #forget(workerSlot: number): void {
    for (const decisionId of this.#load.freeWorker(workerSlot)) {
      this.#gateways.delete(decisionId)
      this.#outputs?.ended(decisionId)
      this.replicas?.freed(decisionId, {})
      this.replicas?.forgotten(decisionId, workerSlot)
    }
    this.#book.forget(workerSlot)
    this.#reported.delete(workerSlot)
  }

  #fell(): void {
    this.#falls++
    if (this.#draining.size > 0) this.#tellDrained()
    this.#watcher?.tell({ type: 'loadFell' })
    this.#watcher = undefined
  }

  #tellDrained(): void {
    for (const [workerId, slots] of this.#draining) {
      if (slots.some(slot => this.#load.totals(slot).activeRequests > 0)) continue
      // If the mailbox is full, the next fleet or the next request that ends sends it again.
      if (this.#directory?.tell({ type: 'drained', workerId }) === 'ok') this.#draining.delete(workerId)
    }
  }

  /**
   * Flushes `replicationMs` after the last flush. If that time is over, flushes after the messages that are
   * already in the mailbox.
   */
  #flushLater(): void {
    if (this.replicas === undefined || this.#isFlushDue || !this.replicas.outbox.isDue) return
    this.#isFlushDue = true
    const waitMs = this.#flushedMs + this.#replicationMs - this.#context.clock.nowMs()
    if (waitMs > 0 || this.#context.self.tell({ type: 'flushOperations' }) !== 'ok')
      this.#context.schedule(Math.max(0, waitMs), { type: 'flushOperations' })
  }
}
