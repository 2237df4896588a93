/**
 * Decider: gathers what the router knows of a request and of the workers, asks packages/placement where the
 * request goes, and books the result.
 *
 *   fleet ─▶ candidatesFor ─▶ overlaps (index shards) ─▶ loads (tracker) ─▶ place ─▶ receipt ─▶ booking
 *
 * Owns   its copy of the fleet, the open decisions, the audits, the guard, the health of the workers, the
 *        turn of round-robin. Bindings of sessions (affinity-bindings.ts) and refusals (busy-refusals.ts)
 *        have a state of their own.
 */

import type { ActorContext } from '@homing/actor'
import type { GatewayLife } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import { type Fleet, handoverOf, topologyOf, type WorkerKeyRecord, type WorkerRecord } from '@homing/fleet'
import {
  type Busy,
  bestCachedTokens,
  type Candidate,
  type ChosenBefore,
  candidateChosen,
  candidatesFor,
  cutPrompt,
  type DecideResult,
  decisionOf,
  decodeLeg,
  eligibleByAffinity,
  firstSlice,
  isBeginning,
  type LegCosts,
  type Measured,
  OverlapLookup,
  type Placed,
  type PlacementSettings,
  type PotentialKeyLoad,
  place,
  placedMs,
  placementSettings,
  potentialLoads,
  prefillLeg,
  type QueueReceipt,
  type Receipt,
  type Receipts,
  RoutingGuard,
  type RoutingRequest,
  type Situation,
  type SlicesReceipt,
  settingsFor,
  slotsOf,
  TooManyRequestsError,
  tokensToHandOver,
  transferMs,
  WorkerGoneError,
  WorkerHealth,
  writeReceipt,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import { Audits, CustomSelectionError, PromptCounts, Selector } from '@homing/selection'
import { customRandom, urlAlphabet } from 'nanoid'
import { AffinityBindings } from './affinity-bindings.ts'
import { BlindThresholds } from './blind-thresholds.ts'
import { bookingOf } from './bookings.ts'
import { BusyRefusals } from './busy-refusals.ts'
import type { RouterMessage } from './messages.ts'
import { NamespacedPrompts } from './namespaced-prompts.ts'
import {
  type CountedPrompt,
  type LoggedDecision,
  type OpenDecision,
  OpenDecisions,
} from './open-decisions.ts'
import { ProjectedLoads } from './projected-loads.ts'
import { PromptGuesses } from './prompt-guesses.ts'
import type { RouterArgs } from './router-args.ts'
import { ShardMemories } from './shard-memories.ts'

/** One question from the queue. */
interface Question {
  readonly id: string
  readonly gateway: GatewayLife
  readonly request: RoutingRequest
  readonly roomRules?: readonly RoomRule[] | undefined
  readonly queue?: QueueReceipt | undefined
  readonly slicedBeside?: readonly string[] | undefined
  readonly chosen?: ChosenBefore | undefined
  /** Worker slots whose workers have left, as the tracker knows; the next fleet will say so. */
  readonly leftSlots?: readonly number[] | undefined
}

/** A place; what it was chosen by holds until the next one is found. */
interface Found {
  readonly placed: Placed
  readonly startedMs: number
  readonly lookupMs: number
}

/** A place with its receipt. */
interface Chosen extends Found {
  readonly receipt: Receipt
}

/**
 * Characters of a receipt id made for `explain`, which has no decision id. They are drawn from nanoid's
 * alphabet with the thread's randomness.
 */
const ID_LENGTH = 21
const ALL_BUSY = 'HOMING_ROUTER_ALL_BUSY'

export class Decider {
  fleet: Fleet = { version: 0, workers: [] }
  #workers: ReadonlyMap<string, WorkerRecord> = new Map()
  readonly audits = new Audits()
  readonly promptCounts = new PromptCounts()
  readonly open: OpenDecisions
  readonly health = new WorkerHealth()
  readonly guard: RoutingGuard
  readonly namespacedPrompts: NamespacedPrompts
  readonly shards: ShardMemories
  readonly bindings: AffinityBindings
  readonly refusals: BusyRefusals

  readonly #context: ActorContext<RouterMessage>
  readonly #args: RouterArgs
  readonly #lookup: OverlapLookup
  readonly #blind: BlindThresholds
  readonly #loads: ProjectedLoads
  readonly #guesses: PromptGuesses
  readonly #selector: Selector
  readonly #settings: PlacementSettings
  readonly #newId: () => string
  /** The next turn of round-robin. */
  #turn = 0
  /** Number of questions that had candidates; one in TRIAL_EVERY considers workers on trial, too. */
  #questions = 0

  constructor(context: ActorContext<RouterMessage>, args: RouterArgs) {
    this.#context = context
    this.#args = args
    this.open = new OpenDecisions(args.openMax)
    this.bindings = new AffinityBindings(args.affinity, context.clock)
    this.refusals = new BusyRefusals(context.clock, args.unlisted?.adapterBase)
    this.#loads = new ProjectedLoads(args)
    this.#guesses = new PromptGuesses(args)
    this.#blind = new BlindThresholds(context.log, args.tracking)
    this.guard = new RoutingGuard(args.guard, context.random)
    this.namespacedPrompts = new NamespacedPrompts(args.indexers)
    this.#lookup = new OverlapLookup({
      indexMemories: args.indexMemories,
      workerSlotsMax: args.workerSlotsMax,
      weights: args.layerWeights,
      labelWeights: args.labelWeights,
      guessesPending: args.guesses.ttlUntilEventsMs !== undefined,
    })
    this.shards = new ShardMemories({
      indexers: args.indexers,
      reader: context.self,
      lookup: this.#lookup,
      restarted: shard => this.namespacedPrompts.indexerRestarted(shard),
    })
    this.#selector = new Selector(args.workerSlotsMax)
    this.#settings = placementSettings(args.selection, args.overloadStatus)
    this.#newId = customRandom(urlAlphabet, ID_LENGTH, count => context.random.bytes(count))
  }

  /** Whether the guard applies to the decisions of this router. */
  get usesGuard(): boolean {
    return RoutingGuard.isFor(this.#args.selection)
  }

  /**
   * Chooses, books, keeps the receipt. If the tracker does not answer, this request is refused; the router
   * goes on.
   */
  async decide(question: Question, receipts: Receipts): Promise<DecideResult> {
    const { id, gateway, queue } = question
    const chosen = await this.#choose(question.request, question)
    if ('code' in chosen) return this.#refuse(id, gateway, question.request, chosen)
    if ('kind' in chosen) return chosen
    const { placed, lookupMs } = chosen
    const { winner } = placed
    this.#turn = placed.nextTurn
    const slice = question.slicedBeside !== undefined ? firstSlice(placed) : undefined
    // From here on the request is what is sent now.
    const request = slice === undefined ? question.request : cutPrompt(question.request, slice.endTokens)
    const isSlice = slice !== undefined || request.slice?.isLast === false
    const isPrefill = request.leg?.kind === 'prefill'
    const session = this.bindings.of(request)
    const waitedMs = queue?.waitedMs ?? 0
    const booking = bookingOf({
      id,
      gateway,
      placed,
      request,
      isSlice,
      session,
      waitedMs,
      chosen: question.chosen,
    })
    let hasLeft = false
    try {
      const booked = await this.#args.tracker.ask(
        { type: 'book', booking },
        { timeout: this.#args.trackerMsMax },
      )
      hasLeft = booked === 'gone'
      if (hasLeft && question.chosen !== undefined) throw new WorkerGoneError(winner.key.key)
      if (!hasLeft && booked !== 'booked') throw new TooManyRequestsError(booked)
    } catch (thrown) {
      // The tracker may have booked the request although no answer came. The gateway also settles refused
      // requests, which frees the booking.
      return this.#refuse(id, gateway, request, toErrorRecord(thrown))
    }
    if (hasLeft) {
      const leftSlots = [...(question.leftSlots ?? []), winner.key.workerSlot]
      return this.decide({ ...question, leftSlots }, receipts)
    }
    this.refusals.placed(this.fleet, request.model)
    const slices = slicesOf(id, request, slice !== undefined)
    const receipt = { ...chosen.receipt, queue, ...(slices === undefined ? {} : { slices }) }
    if (request.slice?.isLast !== false) receipts.add(receipt)
    const unwell = this.health.unwell(request.model, this.#context.clock.nowMs())
    const decision = {
      ...decisionOf(receipt, placed, lookupMs),
      ...(slice && { slice }),
      ...(unwell.length > 0 && { unwell }),
    }
    // This comes before the request is sent, and so before any KV event that the request causes.
    this.namespacedPrompts.sent(request, winner.key)
    const takeBack = this.#guesses.add(request, winner, id)
    const guarded =
      receipt.guard === undefined || isSlice
        ? undefined
        : this.guard.decided(
            receipt.guard,
            request.promptTokens,
            this.#context.clock.nowMs(),
            winner.key.workerSlot,
          )
    if (session !== undefined) this.bindings.placed(session, decision)
    const { guard } = receipt
    const decidedMs = this.#context.clock.nowMs()
    this.health.decided(winner.worker.id, request.model, id, decidedMs)
    this.#open(id, {
      gateway,
      decision,
      model: request.model,
      decidedMs,
      takeBack,
      guarded,
      guard,
      session,
      hedgedSession: this.bindings.hedged(request),
      counted: isSlice || isPrefill ? undefined : countedPrompt(request, winner),
      logged: isSlice || isPrefill ? undefined : this.#logged(request),
    })
    return { kind: 'decided', decision }
  }

  #refuse(id: string, gateway: GatewayLife, request: RoutingRequest, error: ErrorRecord): DecideResult {
    const logged = this.#logged(request)
    const decidedMs = this.#context.clock.nowMs()
    if (logged !== undefined)
      this.#open(id, {
        gateway,
        decision: undefined,
        model: request.model,
        decidedMs,
        takeBack: undefined,
        guarded: undefined,
        logged,
      })
    return { kind: 'refused', error }
  }

  /** Keeps an open decision. If the oldest one is dropped for it, the guard gets no outcome of that one. */
  #open(id: string, open: OpenDecision): void {
    this.guard.ended(this.open.add(id, open)?.guarded, undefined, open.decidedMs)
  }

  /** What the decision log and what-if need to know of the request; undefined: both are off. */
  #logged(request: RoutingRequest): LoggedDecision | undefined {
    if (this.#args.decisionLog === undefined && this.#args.whatIf === undefined) return undefined
    if (request.slice?.isLast === false || request.leg?.kind === 'prefill') return undefined
    const { mode, policy: fixed, custom } = settingsFor(this.#settings, request)
    const policy = mode === 'kv' ? (custom?.name ?? fixed) : mode
    return { request, policy, decidedMs: this.#context.clock.nowMs() }
  }

  /** How much of the prompt the best eligible worker holds, or why no worker is eligible. */
  measure(request: RoutingRequest): Measured | ErrorRecord {
    const found = eligibleByAffinity(this.#candidatesQuestion(request))
    if ('code' in found) return isBeginning(this.fleet) ? { cachedTokens: 0, boundWorker: undefined } : found
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.audits)
    const cachedTokens = bestCachedTokens(request, overlaps, found.candidates.length)
    return { cachedTokens, boundWorker: found.boundWorker }
  }

  /** See the message `weighLegs`. */
  async weighLegs(request: RoutingRequest): Promise<LegCosts | undefined> {
    const wholeMs = await this.#look(request, placedMs)
    if (wholeMs === undefined) return undefined
    const prefill = await this.#look(prefillLeg(request, undefined), placed => {
      const { worker } = placed.winner
      return { ms: placedMs(placed), handover: handoverOf(worker), topology: topologyOf(worker) }
    })
    if (prefill?.ms === undefined) return undefined
    const decode = decodeLeg(request, { ...prefill, prefillId: '' })
    const legs = await this.#look(decode, placed => ({
      decodeMs: placedMs(placed),
      transferMs: transferMs(placed, tokensToHandOver(placed)),
    }))
    if (legs?.decodeMs === undefined || legs.transferMs === undefined) return undefined
    return { wholeMs, prefillMs: prefill.ms, decodeMs: legs.decodeMs, transferMs: legs.transferMs }
  }

  /** `of` the best placement, which holds until the next one; undefined: there is none. Changes nothing. */
  async #look<T>(request: RoutingRequest, of: (placed: Placed) => T): Promise<T | undefined> {
    const found = await this.#find(request, undefined)
    return 'placed' in found ? of(found.placed) : undefined
  }

  /** The receipt of the best placement, or why there is none. Changes nothing. */
  async explain(request: RoutingRequest): Promise<Receipt | ErrorRecord> {
    const chosen = await this.#choose(request, undefined)
    // Without room rules the answer is never "busy".
    return 'receipt' in chosen ? chosen.receipt : (chosen as Exclude<typeof chosen, Busy>)
  }

  /**
   * What each worker key that may take the request would have to do with it; sessions, health and busy
   * thresholds leave none out. Changes nothing.
   */
  async potentialLoads(request: RoutingRequest): Promise<readonly PotentialKeyLoad[] | ErrorRecord> {
    const found = eligibleByAffinity({
      ...this.#candidatesQuestion(request),
      questions: 0,
      affinity: undefined,
      health: undefined,
    })
    if ('code' in found) return found
    const { candidates } = found
    const overlaps = this.#lookup.lookUp(request, candidates, this.audits)
    if (!overlaps.isComplete) this.shards.askForStale()
    const load = await this.#loads.of(this.fleet, slotsOf(candidates), request.sequenceHashes, request, false)
    return 'code' in load ? load : potentialLoads(request, candidates, overlaps, load)
  }

  #candidatesQuestion(request: RoutingRequest) {
    return {
      fleet: this.fleet,
      request,
      questions: this.#questions,
      affinity: this.bindings.affinity,
      health: this.health,
      unlisted: this.#args.unlisted && { ...this.#args.unlisted, wallMs: this.#context.clock.wallMs() },
      nowMs: this.#context.clock.nowMs(),
    }
  }

  /** With a receipt. */
  async #choose(
    request: RoutingRequest,
    question: Question | undefined,
  ): Promise<Chosen | Busy | ErrorRecord> {
    const { clock, log } = this.#context
    const found = await this.#find(request, question)
    if (!('placed' in found)) return found
    const id = question?.id ?? this.#newId()
    const elapsedMs = (): number => clock.nowMs() - found.startedMs
    const receipt = writeReceipt(found.placed, id, clock.wallMs(), elapsedMs)
    log.debug({ ...receipt, candidates: receipt.candidates.length }, 'worker selected')
    return { ...found, receipt }
  }

  /** Without a question (`explain`) the guard makes no experiment, and the result is never busy. */
  async #find(
    request: RoutingRequest,
    question: Question | undefined,
    mayTry = question !== undefined,
  ): Promise<Found | Busy | ErrorRecord> {
    const { clock } = this.#context
    const startedMs = clock.nowMs()
    const roomRules = question?.roomRules
    const chosen = question?.chosen
    const found =
      chosen !== undefined
        ? candidateChosen(this.fleet, chosen)
        : candidatesFor({
            slicedBeside: question?.slicedBeside,
            ...this.#candidatesQuestion(request),
            fleet: fleetWithout(this.fleet, question?.leftSlots),
            settings: this.#settings,
            mayWait: roomRules !== undefined,
            mayTry,
          })
    if (!('candidates' in found)) return found
    if (question !== undefined) this.#questions++
    const workerSlots = slotsOf(found.candidates)
    const beforeLookupMs = clock.nowMs()
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.audits)
    const lookupMs = clock.nowMs() - beforeLookupMs
    if (!overlaps.isComplete) this.shards.askForStale()
    const load = await this.#loads.of(
      this.fleet,
      workerSlots,
      request.sequenceHashes,
      request,
      this.#wantsEngines,
    )
    if ('code' in load) return load
    const otherLoads = await this.#loads.ofOthers(this.fleet, found.candidates, request)
    if (otherLoads !== undefined && 'code' in otherLoads) return otherLoads
    const situation: Situation = {
      fleet: this.fleet,
      request,
      found,
      workerSlots,
      overlaps,
      load,
      heldBlocks: candidate => this.#lookup.heldBlocks(candidate),
      otherLoads,
      roomRules,
      isWaiting: question?.queue !== undefined,
      isChosen: chosen !== undefined,
      isReal: question !== undefined && question.slicedBeside === undefined,
    }
    const placed = this.#place(situation)
    // An ejected worker without room is no reason to refuse what the others would take.
    const isFull = 'kind' in placed || ('code' in placed && placed.code === ALL_BUSY)
    if (isFull && found.trialOf !== undefined) return this.#find(request, question, false)
    if ('code' in placed) {
      if (question === undefined || placed.code !== ALL_BUSY) return placed
      return this.refusals.refused(this.fleet, request.model, placed)
    }
    if ('kind' in placed) return placed
    return { placed, startedMs, lookupMs }
  }

  #place(situation: Situation): Placed | Busy | ErrorRecord {
    const { random, log } = this.#context
    const means = { selector: this.#selector, guard: this.guard, random, turn: this.#turn }
    try {
      return place(situation, this.#settings, means)
    } catch (thrown) {
      // A program that embeds the router may have a selection of its own, whose errors end here. Our own bugs
      // are thrown on.
      if (!(thrown instanceof CustomSelectionError)) throw thrown
      log.error({ error: thrown }, 'selection failed')
      return toErrorRecord(thrown)
    }
  }

  takeFleet(fleet: Fleet, keys: readonly WorkerKeyRecord[]): void {
    for (const worker of fleet.workers) {
      const before = this.#workers.get(worker.id)
      if (before !== undefined && namesOf(before) !== namesOf(worker)) this.health.modelsRead(worker.id)
    }
    this.#workers = new Map(fleet.workers.map(worker => [worker.id, worker]))
    this.health.keepOnly(fleet)
    this.fleet = fleet
    this.#blind.look(fleet)
    this.bindings.takeFleet(fleet)
    this.refusals.takeFleet(fleet)
    this.namespacedPrompts.keepOnly(keys)
  }

  get #wantsEngines(): boolean {
    const { policy, custom } = this.#args.selection
    return policy === 'auto' && custom === undefined
  }
}

/** Undefined: the count cannot be compared with that of the engine. */
function countedPrompt(
  { model, promptTokens, counted }: RoutingRequest,
  { worker: { id, models, promptsEpoch = 0 } }: Candidate,
): CountedPrompt | undefined {
  if (counted === undefined) return undefined
  const base = models.find(({ name }) => name === model)?.base ?? model
  return { kind: { workerId: id, promptsEpoch, model: base, ...counted }, tokens: promptTokens }
}

function slicesOf(id: string, { slice }: RoutingRequest, isFirst: boolean): SlicesReceipt | undefined {
  if (isFirst) return { sent: 0, decisionId: id }
  return slice && { sent: slice.sent, decisionId: slice.decisionId }
}

/** The names of a worker's models, as one text. */
function namesOf({ models }: WorkerRecord): string {
  return models.map(({ name }) => name).join('\n')
}

function fleetWithout(fleet: Fleet, leftSlots: readonly number[] | undefined): Fleet {
  if (leftSlots === undefined) return fleet
  const workers = fleet.workers.map(worker =>
    worker.keys.some(({ workerSlot }) => leftSlots.includes(workerSlot))
      ? { ...worker, state: 'down' as const, stateReason: 'it has just left' }
      : worker,
  )
  return { ...fleet, workers }
}
