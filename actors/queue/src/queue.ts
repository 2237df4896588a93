/**
 * Queue: holds the requests that wait between exchange and router, and decides which goes next. Only the
 * queue asks the router to decide.
 *
 * In     `place` and `settled` from gateways; the fleet; from the tracker, while requests wait: load fell.
 * Out    to the router: `decide`, one question at a time for waiting requests; `measure` of requests that
 *        come while others wait; `settled` and `gatewayStarted`, passed on. To the tracker: `watchLoad`. To
 *        the replica bridge, on request: what waits here, in exchange for what waits at other routers; both
 *        count towards the limits of classes.
 * Owns   the waiting requests (a PriorityQueue for each model of the fleet, in one room: packages/queue) and
 *        the open questions about them. It owns neither load nor placements.
 *
 *   state      waits for                          goes on to
 *   measured   how much of it is cached           asked (nothing is before it), waiting, refused
 *   asked      the router                         placed, refused by the router, waiting (busy)
 *   waiting    its turn, and room                 asked; refused (its deadline, no worker left)
 *   any        `settled`, or a new life of        gone
 *              its gateway
 *
 *   While nothing waits for its model, a short request starts as asked, so the queue adds one message to it.
 *   A request that never waits is passed to the router with its reply, so the router answers the gateway.
 *
 * Order  what a gateway settles here reaches the router after every question about that request, so the
 *        router finds all effects of the questions. While the router decides about one request, a newer one
 *        may come and be asked about. If the answer about the first is then 'busy', the newer one may go
 *        before it.
 * Fails  at a restart the waiting requests are forgotten and their asks fail: the gateway answers 503.
 *        `settled` waits in the mailbox meanwhile. It then undoes what the router did for open questions. A
 *        lost message cannot make a request hang: while requests wait, the queue looks again every
 *        QUEUE_LOOK_MS.
 */

import { type ActorContext, AskRefusedError, defineActor, type Reply } from '@homing/actor'
import type { RouterMessage } from '@homing/actors/router'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { DecideResult, Measured, QueueReceipt } from '@homing/placement'
import {
  QUEUE_LOOK_MS,
  type QueueRefusal,
  type QueueRequest,
  QueueRoom,
  type RoomRule,
  SLICE_RULES,
  TenantNames,
  type WaitingElsewhere,
  type WaitReason,
} from '@homing/queue'
import type { WaitingRow } from '@homing/replication'
import { CancelledError, refusedError } from './errors.ts'
import { laneOf } from './lane.ts'
import type { PlaceResult, QueueMessage, QueueStatus } from './messages.ts'
import { type QueueModel, QueueModels } from './models.ts'
import type { QueueArgs } from './queue-args.ts'

type Arm<T extends QueueMessage['type']> = Extract<QueueMessage, { readonly type: T }>
type Place = Arm<'place'>
type Model = QueueModel<Waiting>

/** A request that the queue of its model has admitted. */
interface Waiting extends QueueRequest {
  readonly place: Place
  readonly model: Model
}

interface Open {
  readonly place: Place
  readonly model: Model
  readonly cameMs: number
  /** Undefined: it is not admitted yet. */
  waiting: Waiting | undefined
  /** Number of the open question; 0: none is open. */
  questionNumber: number
  /** Why it waits; undefined: it does not. */
  why: WaitReason | undefined
  /** How long it was expected to wait when it began to wait. */
  expectedMs: number | undefined
}

export const queue = defineActor(
  import.meta.url,
  'queue',
)<QueueMessage, QueueArgs>({
  setup(context, args) {
    const waitingRoom = new WaitingRoom(context, args)
    return {
      place: message => waitingRoom.place(message),
      answered: message => waitingRoom.answered(message),
      settled: message => waitingRoom.settled(message),
      gatewayStarted: message => waitingRoom.gatewayStarted(message),
      prefillComplete: ({ id, model }) => waitingRoom.prefillComplete(id, model),
      counted: message => waitingRoom.counted(message),
      fleet: ({ fleet }) => waitingRoom.takeFleet(fleet),
      loadFell: () => waitingRoom.loadFell(),
      look: () => waitingRoom.look(),
      exchangeWaiting: ({ elsewhere, reply }) => reply(waitingRoom.exchangeWaiting(elsewhere)),
      queueStatus: ({ reply }) => reply(waitingRoom.status()),
    }
  },
})

class WaitingRoom {
  readonly #context: ActorContext<QueueMessage>
  readonly #args: QueueArgs
  readonly #room: QueueRoom
  readonly #models: QueueModels<Waiting>
  /** By id, all requests that have no answer yet. */
  readonly #open = new Map<string, Open>()
  #questions = 0
  /** The waiting request that the router is asked about now; one at most. */
  #released: Open | undefined
  /**
   * Load fell while a waiting request was asked about: all lanes are reopened once nothing more can be taken.
   */
  #isReopenDue = false
  /** Index of the model that may go next, in turns. */
  #turn = 0
  /** The tracker's count of load falls at the first answer 'busy' since the lanes were reopened. */
  #falls: number | undefined
  #isWatching = false
  #isLooking = false
  /** Messages that found the router's mailbox full; `look` sends them again. */
  #untold: RouterMessage[] = []

  constructor(context: ActorContext<QueueMessage>, args: QueueArgs) {
    this.#context = context
    this.#args = args
    const { tenantWeights = new Map(), unnamedTenants = 'own' } = args
    const tenants = new TenantNames(tenantWeights, unnamedTenants)
    this.#room = new QueueRoom({ ...args, tenants })
    const displaced = (id: string, refusal: QueueRefusal) => this.#refuse(this.#open.get(id)!, refusal)
    this.#models = new QueueModels(args, this.#room, displaced, context.log)
  }

  place(place: Place): void {
    const { id, gateway, request, hints, reply } = place
    const model = hints && this.#models.of(request.model)
    if (hints === undefined || model === undefined || !model.rules.mayWait) {
      // Without room rules the router never answers that it is busy.
      const decided = reply as Reply<DecideResult>
      const told = this.#args.router.tell({ type: 'decide', id, gateway, request, reply: decided })
      if (told === 'ok') return
      reply({ kind: 'refused', error: toErrorRecord(new AskRefusedError('router', 'decide', 'its mailbox')) })
      return
    }
    if (this.#open.has(id)) {
      const refusal = { reason: 'duplicate' } as const
      reply({ kind: 'refused', error: toErrorRecord(refusedError(refusal, {})) })
      return
    }
    const nowMs = this.#nowMs
    const cameMs = nowMs - place.ageMs
    const open: Open = {
      place,
      model,
      cameMs,
      waiting: undefined,
      questionNumber: 0,
      why: undefined,
      expectedMs: undefined,
    }
    this.#open.set(id, open)
    // If the rule for long prompts may hold the request, its uncached tokens are measured before it is asked
    // about.
    const { slice } = request
    const mayBeHeld =
      slice === undefined &&
      model.queue.isLong(request.promptTokens) &&
      model.queue.isContended(hints.tenant, nowMs)
    if (model.queue.waiting === 0 && !mayBeHeld) {
      const rules = slice === undefined ? model.rules.ofFamily(hints.policyClass) : SLICE_RULES
      this.#ask(open, rules, undefined)
    } else if (slice === undefined) this.#measure(open)
    // What its worker has computed of it is known.
    else this.#admit(open, { cachedTokens: slice.computedTokens, boundWorker: undefined })
    this.#goOn()
  }

  answered({ id, questionNumber, result }: Arm<'answered'>): void {
    const open = this.#open.get(id)
    // The request was settled or dropped meanwhile: the router learns that from the message that did it.
    if (open === undefined || open.questionNumber !== questionNumber) return
    open.questionNumber = 0
    if (this.#released === open) this.#released = undefined
    const { model, waiting } = open
    const nowMs = this.#nowMs
    if (result.kind === 'measured') this.#admit(open, result)
    else if (result.kind === 'busy') {
      this.#falls ??= result.falls
      if (waiting === undefined) this.#admit(open, result, true)
      else this.#busy(open, result)
    } else if (result.kind === 'refused') {
      model.queue.cancel(id, nowMs)
      this.#answer(open, result)
    } else {
      const { decision } = result
      const { computedTokens = 0 } = open.place.request.slice ?? {}
      const cachedTokens = Math.max(decision.predictedTokens, computedTokens)
      const measured = { cachedTokens, boundWorker: undefined }
      const placed = waiting ?? this.#waitingOf(open, measured)
      const isSliced = waiting !== undefined && model.queue.sliced(id) !== undefined
      if (waiting === undefined) model.queue.placedAtOnce(placed, decision.worker, nowMs)
      else model.queue.placed(id, decision.worker, nowMs)
      const isLong = model.queue.isLongRequest(placed)
      const isEstimated = placed.estimate !== undefined
      const isMore = isLong || isEstimated
      this.#answer(open, isMore ? { kind: 'decided', decision, isLong, isEstimated, isSliced } : result)
    }
    this.#goOn()
  }

  settled(message: Arm<'settled'>): void {
    const open = this.#open.get(message.id)
    if (open !== undefined) this.#drop(open)
    // It may have been placed, with an answer that was too late for its gateway: it stays as estimated.
    else for (const { queue: placed } of this.#models) placed.settled(message.id, undefined, this.#nowMs)
    this.#tellRouter(message)
    this.#goOn()
  }

  gatewayStarted(message: Arm<'gatewayStarted'>): void {
    const { name, life } = message.gateway
    for (const open of [...this.#open.values()]) {
      const { gateway } = open.place
      if (gateway.name === name && gateway.life !== life) this.#drop(open)
    }
    for (const model of this.#models) model.queue.ownerStarted(name, life, this.#nowMs)
    // It reaches the router after the questions of the earlier life.
    this.#tellRouter(message)
    this.#goOn()
  }

  prefillComplete(id: string, model: string): void {
    this.#models.get(model)?.queue.prefillComplete(id, this.#nowMs)
    this.#goOn()
  }

  counted({ id, model, counted }: Arm<'counted'>): void {
    this.#models.get(model)?.queue.settled(id, counted, this.#nowMs)
    this.#goOn()
  }

  takeFleet(fleet: Fleet): void {
    this.#models.takeFleet(fleet, new Set([...this.#open.values()].map(({ model }) => model)))
    this.#reopen()
    this.#goOn()
  }

  loadFell(): void {
    this.#isWatching = false
    // Earlier answers 'busy' were about a load that has changed since.
    this.#falls = undefined
    if (this.#released === undefined) this.#reopen()
    else this.#isReopenDue = true
    this.#goOn()
  }

  look(): void {
    this.#isLooking = false
    for (const message of this.#untold.splice(0)) this.#tellRouter(message)
    const nowMs = this.#nowMs
    for (const { queue: waiting } of this.#models) {
      for (const { id } of waiting.expire(nowMs)) {
        const open = this.#open.get(id)!
        this.#refuse(open, { reason: 'deadline' })
      }
    }
    this.#reopen()
    // The tracker is asked to watch again, because it may have restarted and forgotten.
    this.#isWatching = false
    this.#goOn()
  }

  exchangeWaiting(elsewhere: readonly WaitingRow[]): WaitingRow[] {
    const byModel = Map.groupBy(elsewhere, ({ model }) => model)
    for (const { name, queue: waiting } of this.#models) {
      waiting.setElsewhere(sumsByClass(byModel.get(name) ?? []))
    }
    return [...this.#models].flatMap(({ name, queue: waiting }) =>
      Array.from(waiting.waitingByClass(), row => ({ model: name, ...row })),
    )
  }

  status(): QueueStatus {
    const nowMs = this.#nowMs
    const models = [...this.#models]
    const { requests, requestsMax, tokens, tokensMax, bytes, bytesMax } = this.#room
    return {
      isOn: models.some(({ rules }) => rules.mayWait),
      requests,
      requestsMax,
      tokens,
      tokensMax,
      bytes,
      bytesMax,
      models: models.map(({ name, rules, workers, queue: waiting }) => ({
        model: name,
        isOn: rules.mayWait,
        workers,
        assumed: this.#models.assumedOf(name),
        snapshot: waiting.snapshot(nowMs),
      })),
    }
  }

  // ── Questions ────────────────────────────────────────────────────────────────────────────────

  #ask(open: Open, roomRules: readonly RoomRule[], receipt: QueueReceipt | undefined): void {
    const { id, gateway, request } = open.place
    const questionNumber = this.#question(open)
    this.#context.pipe(
      this.#args.router.ask(
        {
          ...{ type: 'decide', id, gateway, request, roomRules, queue: receipt },
          slicedBeside: open.waiting && open.model.queue.sliced(id),
        },
        { timeout: this.#args.askMsMax },
      ),
      result => ({ type: 'answered', id, questionNumber, result }),
      thrown => failed(id, questionNumber, toErrorRecord(thrown)),
    )
  }

  #measure(open: Open): void {
    const { id, request } = open.place
    const questionNumber = this.#question(open)
    this.#context.pipe(
      this.#args.router.ask({ type: 'measure', request }, { timeout: this.#args.askMsMax }),
      measured =>
        'code' in measured
          ? failed(id, questionNumber, measured)
          : { type: 'answered', id, questionNumber, result: { kind: 'measured', ...measured } },
      thrown => failed(id, questionNumber, toErrorRecord(thrown)),
    )
  }

  #question(open: Open): number {
    open.questionNumber = ++this.#questions
    return open.questionNumber
  }

  #rulesOf({ id, model, policyClass, isContinued }: Waiting): readonly RoomRule[] {
    const isSlice = isContinued === true || model.queue.sliced(id) !== undefined
    return isSlice ? SLICE_RULES : model.rules.ofClass(policyClass)
  }

  /** `isBusy`: the router has already answered that no worker has room. */
  #admit(open: Open, measured: Measured, isBusy = false): void {
    const { model } = open
    const waiting = this.#waitingOf(open, measured)
    const admission = model.queue.admit(waiting, this.#nowMs)
    if (typeof admission === 'object') {
      this.#refuse(open, admission)
      return
    }
    open.waiting = waiting
    if (admission === 'waiting') {
      this.#begins(open)
      return
    }
    if (isBusy) this.#busy(open, measured)
    else this.#ask(open, this.#rulesOf(waiting), undefined)
  }

  #busy(open: Open, { boundWorker }: Measured): void {
    const { id, request } = open.place
    // The lane may be another one: the session may have been bound or unbound since the request began to
    // wait.
    const { maySlice = false, uncachedTokens = 0 } = open.waiting ?? {}
    const isSliced = maySlice && open.model.queue.isLong(uncachedTokens)
    const outcome = open.model.queue.busy(id, this.#nowMs, laneOf(request, boundWorker, isSliced))
    if (typeof outcome === 'object') this.#refuse(open, outcome)
    else if (open.why === undefined) this.#begins(open)
  }

  /** The request begins to wait: keeps why, and how long it is expected to wait. */
  #begins(open: Open): void {
    const outlook = open.model.queue.outlook(open.place.id, this.#nowMs)
    open.why = outlook?.why ?? 'no_room'
    open.expectedMs = outlook?.expectedWaitMs
  }

  #waitingOf(open: Open, { cachedTokens, boundWorker }: Measured): Waiting {
    const { place, model, cameMs } = open
    const { id, request, gateway } = place
    const hints = place.hints!
    const uncachedTokens = Math.max(0, request.promptTokens - Math.floor(cachedTokens))
    const { estimate, cacheUse } = request
    const maySlice = place.maySlice === true && estimate === undefined
    return {
      id,
      place,
      model,
      arrivedMs: cameMs,
      promptTokens: request.promptTokens,
      uncachedTokens,
      maySlice,
      isContinued: request.slice !== undefined,
      estimate: estimate && {
        // Several prompts of one request are as long as the model each; their bytes bound them.
        tokensMax: Number.isFinite(estimate.tokensMax) ? estimate.tokensMax : model.tokensMax,
        isUnpredicted: cacheUse !== undefined,
      },
      bytes: hints.bytes,
      policyClass: model.rules.classOf(hints.policyClass, uncachedTokens),
      tenant: hints.tenant,
      priorityJumpSeconds: hints.priorityJumpSeconds,
      strictPriority: hints.strictPriority,
      deadlineMs: deadlineOf(open, this.#args),
      doNotQueue: hints.doNotQueue,
      lane: laneOf(request, boundWorker, maySlice && model.queue.isLong(uncachedTokens)),
      owner: gateway.name,
      ownerLife: gateway.life,
    }
  }

  // ── Going on ─────────────────────────────────────────────────────────────────────────────────

  /**
   * Called at the end of every message after which a request may go. Asks about the next waiting request that
   * can go. While requests wait, it also schedules a look and, once one found no room, asks the tracker to
   * report when load falls.
   */
  #goOn(): void {
    // Usually nothing waits, and then this must be cheap: the clock is not even read.
    if (this.#room.requests === 0 && this.#untold.length === 0) return
    this.#release()
    let waits = this.#untold.length > 0
    let dueMs = QUEUE_LOOK_MS
    const nowMs = this.#nowMs
    for (const { queue: waiting } of this.#models) {
      if (waiting.waiting === 0) continue
      waits = true
      dueMs = Math.min(dueMs, Math.max(1, waiting.nextDueMs - nowMs))
    }
    if (!waits) return
    if (!this.#isLooking) {
      this.#isLooking = true
      this.#context.schedule(dueMs, { type: 'look' })
    }
    if (!this.#isWatching && this.#falls !== undefined) {
      this.#isWatching = true
      const { self } = this.#context
      this.#args.tracker.tell({ type: 'watchLoad', watcher: self, falls: this.#falls })
    }
  }

  #release(): void {
    if (this.#released !== undefined || this.#room.requests === 0) return
    if (this.#releaseNext() || !this.#isReopenDue) return
    this.#reopen()
    this.#releaseNext()
  }

  #releaseNext(): boolean {
    const models = [...this.#models]
    const nowMs = this.#nowMs
    for (let i = 0; i < models.length; i++) {
      const model = models[(this.#turn + i) % models.length]!
      const next = model.queue.take(nowMs)
      if (next === undefined) continue
      this.#turn = (this.#turn + i + 1) % models.length
      const open = this.#open.get(next.id)!
      this.#released = open
      const { cameMs, why = 'no_room', expectedMs } = open
      const receipt = { waitedMs: nowMs - cameMs, why, expectedMs }
      this.#ask(open, this.#rulesOf(next), receipt)
      return true
    }
    return false
  }

  #reopen(): void {
    this.#falls = undefined
    this.#isReopenDue = false
    for (const { queue: waiting } of this.#models) waiting.reopen()
  }

  // ── Ends ─────────────────────────────────────────────────────────────────────────────────────

  #refuse(open: Open, refusal: QueueRefusal): void {
    const { model, place } = open
    const { hints, request } = place
    const policyClass =
      open.waiting?.policyClass ?? model.rules.classOf(hints?.policyClass, request.promptTokens)
    const retryAfterSeconds = model.queue.retryAfterSeconds(policyClass, this.#nowMs)
    const { overloadStatus } = this.#args
    const error = refusedError(refusal, { retryAfterSeconds, overloadStatus })
    this.#answer(open, { kind: 'refused', error: toErrorRecord(error) })
  }

  /** Removes a request whose gateway no longer wants an answer. */
  #drop(open: Open): void {
    open.model.queue.cancel(open.place.id, this.#nowMs)
    this.#answer(open, { kind: 'refused', error: CANCELLED })
  }

  #answer(open: Open, result: PlaceResult): void {
    this.#open.delete(open.place.id)
    if (this.#released === open) this.#released = undefined
    open.place.reply(result)
  }

  #tellRouter(message: RouterMessage): void {
    if (this.#args.router.tell(message) === 'full') this.#untold.push(message)
  }

  get #nowMs(): number {
    return this.#context.clock.nowMs()
  }
}

/** What waits at all other routers together, by policy class. */
function sumsByClass(rows: readonly WaitingRow[]): Map<string, WaitingElsewhere> {
  const sums = new Map<string, WaitingElsewhere>()
  for (const { policyClass, requests, promptTokens, uncachedTokens } of rows) {
    const sum = sums.get(policyClass)
    sums.set(policyClass, {
      requests: requests + (sum?.requests ?? 0),
      promptTokens: promptTokens + (sum?.promptTokens ?? 0),
      uncachedTokens: uncachedTokens + (sum?.uncachedTokens ?? 0),
    })
  }
  return sums
}

const CANCELLED = toErrorRecord(new CancelledError())

function deadlineOf({ place, cameMs }: Open, { waitMsMax }: QueueArgs): number {
  return cameMs + Math.min(waitMsMax, place.hints?.deadlineMs ?? waitMsMax)
}

function failed(id: string, questionNumber: number, error: ErrorRecord): Arm<'answered'> {
  return { type: 'answered', id, questionNumber, result: { kind: 'refused', error } }
}
