/**
 * Decider: what a router knows of workers and caches, and where it sends a request by that.
 *
 *   fleet ─▶ eligible ─▶ overlaps (shards of the index) ─▶ load (tracker) ─▶ room ─▶ selector ─▶ guard ─▶ receipt ─▶ booking
 *
 * Owns   its copy of the fleet, the open decisions, the audits, the guard, the turn of round-robin.
 */

import type { ActorContext } from '@homing/actor'
import type { GatewayLife } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet, WorkerKeyRecord } from '@homing/fleet'
import { filterProjection } from '@homing/load'
import {
  AllBusyError,
  AllFilteredError,
  type CandidateLoads,
  type DecideResult,
  type Decision,
  type Delivery,
  type Measured,
  type QueueReceipt,
  type Receipt,
  type Receipts,
  type RoutingRequest,
  TooManyRequestsError,
  WorkerNotNamedError,
} from '@homing/placement'
import { Overload, type RoomRule } from '@homing/queue'
import {
  Audits,
  type Candidates,
  CustomSelectionError,
  type SelectionSettings,
  Selector,
} from '@homing/selection'
import { customRandom, urlAlphabet } from 'nanoid'
import { BlindThresholds, BusyCheck, otherRanks, thresholdsFor } from './busy-workers.ts'
import { type AffinityBinding, ConversationAffinity } from './conversation-affinity.ts'
import { type Eligible, eligible } from './eligible.ts'
import { inputOf, type Known, selectionRequestOf } from './known-candidates.ts'
import type { RouterMessage } from './messages.ts'
import { type LoggedDecision, type OpenDecision, OpenDecisions } from './open-decisions.ts'
import { type Candidate, OverlapLookup } from './overlap-lookup.ts'
import { bestCachedTokens, isBusy } from './room.ts'
import type { RouterArgs } from './router-args.ts'
import { RoutingGuard } from './routing-guard.ts'
import { SeparatedPrompts } from './separated-prompts.ts'
import { ShardMemories } from './shard-memories.ts'
import { type DecisionFigures, decisionOf, writeReceipt } from './write-receipt.ts'

/** One question of the queue. */
interface Question {
  readonly id: string
  readonly gateway: GatewayLife
  readonly request: RoutingRequest
  readonly roomRules: readonly RoomRule[] | undefined
  readonly queue: QueueReceipt | undefined
}

type Busy = Extract<DecideResult, { readonly kind: 'busy' }>

interface Placed {
  readonly receipt: Receipt
  readonly winner: Candidate
  readonly figures: DecisionFigures
  readonly prefillTokens: number
  /** Turn of round-robin, once this place is taken. */
  readonly nextTurn: number
}

/** Id for `explain`, which decides nothing: 21 characters of nanoid's alphabet, drawn from the thread's randomness. */
const ID_LENGTH = 21
/** Of so many decisions, one looks at workers on trial, too. */
const TRIAL_EVERY = 20
const ALL_BUSY = 'HOMING_ROUTER_ALL_BUSY'
const NO_HASHES = new Int32Array(0)

export class Decider {
  fleet: Fleet = { version: 0, workers: [] }
  /** When each worker key joined; empty where no sessions are bound. */
  #joinedMsByKey: ReadonlyMap<string, number> = new Map()
  readonly audits = new Audits()
  readonly open: OpenDecisions
  readonly guard: RoutingGuard
  readonly separatedPrompts: SeparatedPrompts
  readonly shards: ShardMemories
  /** Requests that no worker took because all were busy, by model. */
  readonly busyRefused = new Map<string, number>()
  /** Of the same models. */
  readonly #overloads = new Map<string, Overload>()

  readonly #context: ActorContext<RouterMessage>
  readonly #args: RouterArgs
  readonly #lookup: OverlapLookup
  readonly #blind: BlindThresholds
  readonly #affinity: ConversationAffinity | undefined
  readonly #selector: Selector
  /** For prompts that are not known. */
  readonly #byLoad: SelectionSettings
  /** For requests with a weight of their own, where auto is the policy. */
  readonly #linear: SelectionSettings
  readonly #newId: () => string
  #turn = 0
  #questions = 0

  constructor(context: ActorContext<RouterMessage>, args: RouterArgs) {
    this.#context = context
    this.#args = args
    this.open = new OpenDecisions(args.openMax)
    this.#affinity = args.affinity && new ConversationAffinity(args.affinity)
    this.#blind = new BlindThresholds(context.log, args.tracking)
    this.guard = new RoutingGuard(args.guard, context.random)
    this.separatedPrompts = new SeparatedPrompts(args.indexers)
    this.#lookup = new OverlapLookup({
      indexMemories: args.indexMemories,
      workerSlotsMax: args.workerSlotsMax,
      weights: args.layerWeights,
      guessesPending: args.guesses.ttlUntilEventsMs !== undefined,
    })
    this.shards = new ShardMemories({
      indexers: args.indexers,
      reader: context.self,
      lookup: this.#lookup,
      restarted: shard => this.separatedPrompts.indexerRestarted(shard),
    })
    this.#selector = new Selector(args.workerSlotsMax)
    this.#byLoad = { ...args.selection, mode: 'least-loaded' }
    this.#linear = { ...args.selection, policy: 'linear' }
    this.#newId = customRandom(urlAlphabet, ID_LENGTH, count => context.random.bytes(count))
  }

  /** Whether its guard has decisions to look at. */
  get usesGuard(): boolean {
    return RoutingGuard.isFor(this.#args.selection)
  }

  /** Chooses, books, keeps the receipt. A tracker that does not answer refuses the request, not the router. */
  async decide(question: Question, receipts: Receipts): Promise<DecideResult> {
    const { id, gateway, request, queue } = question
    const placed = await this.#choose(request, question)
    if ('code' in placed) return this.#refuse(id, gateway, request, placed)
    if ('kind' in placed) return placed
    const { winner, figures, prefillTokens } = placed
    this.#turn = placed.nextTurn
    const booking = {
      decisionId: id,
      gateway,
      workerSlot: winner.key.workerSlot,
      sequenceHashes: request.sequenceHashes,
      promptTokens: request.promptTokens,
      prefillTokens,
      blockSizeTokens: request.blockSizeTokens,
      expectedOutputTokens: request.expectedOutputTokens,
      tracking: request.tracking,
      session: this.#affinity?.keyOf(request),
      isStream: request.isStream === true,
      waitedMs: queue?.waitedMs ?? 0,
      stepTokens: winner.worker.maxBatchedTokens.value,
    }
    try {
      const booked = await this.#args.tracker.ask(
        { type: 'book', booking },
        { timeout: this.#args.trackerMsMax },
      )
      if (booked !== 'booked') throw new TooManyRequestsError(booked)
    } catch (thrown) {
      // It may have been booked although nobody said so: it is settled, too.
      return this.#refuse(id, gateway, request, toErrorRecord(thrown))
    }
    this.#overloads.get(request.model)?.placed(this.#context.clock.nowMs())
    const receipt = queue === undefined ? placed.receipt : { ...placed.receipt, queue }
    receipts.add(receipt)
    const decision = decisionOf(receipt, winner, figures)
    // Before it is sent, so before any event that it causes.
    this.separatedPrompts.sent(request, winner.key)
    const takeBack = this.#guess(request, winner, id)
    const guarded =
      receipt.guard === undefined
        ? undefined
        : this.guard.decided(receipt.guard, request.promptTokens, this.#context.clock.nowMs())
    const session = this.#affinity?.keyOf(request)
    if (session !== undefined) {
      const { worker, workerJoinedMs } = decision
      this.#affinity!.placed(session, worker, workerJoinedMs, this.#context.clock.nowMs())
    }
    const { guard } = receipt
    this.#open(id, { gateway, decision, takeBack, guarded, guard, session, logged: this.#logged(request) })
    return { kind: 'decided', decision }
  }

  #refuse(id: string, gateway: GatewayLife, request: RoutingRequest, error: ErrorRecord): DecideResult {
    const logged = this.#logged(request)
    if (logged !== undefined)
      this.#open(id, { gateway, decision: undefined, takeBack: undefined, guarded: undefined, logged })
    return { kind: 'refused', error }
  }

  #open(id: string, open: OpenDecision): void {
    this.guard.ended(this.open.add(id, open)?.guarded, undefined)
  }

  /** What those who keep it will be told of it. */
  #logged(request: RoutingRequest): LoggedDecision | undefined {
    if (this.#args.decisionLog === undefined && this.#args.whatIf === undefined) return undefined
    const { mode, policy: fixed, custom } = this.#settingsFor(request)
    const policy = mode === 'kv' ? (custom?.name ?? fixed) : mode
    return { request, policy, decidedMs: this.#context.clock.nowMs() }
  }

  /** Another router of the same workers has sent requests of these sessions. */
  boundElsewhere(bindings: readonly AffinityBinding[]): void {
    const nowMs = this.#context.clock.nowMs()
    if (this.#affinity === undefined) return
    for (const { session, worker } of bindings) {
      this.#affinity.placedElsewhere(session, worker, this.#joinedMsByKey.get(worker), nowMs)
    }
  }

  sessionEnded(session: string, { worker, workerJoinedMs }: Decision, { outcome }: Delivery): void {
    this.#affinity?.ended(session, worker, workerJoinedMs, outcome === 'error', this.#context.clock.nowMs())
  }

  #eligible(request: RoutingRequest): Eligible | ErrorRecord {
    const found = eligible(this.fleet, request, this.#questions % TRIAL_EVERY === 0)
    const session = this.#affinity?.keyOf(request)
    if ('code' in found || session === undefined) return found
    return this.#affinity!.applied(found, session, this.#context.clock.nowMs())
  }

  /** No worker has been probed yet, as far as it knows. */
  get #isBeginning(): boolean {
    const { version, workers } = this.fleet
    return version === 0 || (workers.length > 0 && workers.every(({ state }) => state === 'probing'))
  }

  /** What the best of the workers that could take it holds of its prompt, or why none could. */
  measure(request: RoutingRequest): Measured | ErrorRecord {
    const found = this.#eligible(request)
    if ('code' in found) return this.#isBeginning ? { cachedTokens: 0, boundWorker: undefined } : found
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.audits)
    const cachedTokens = bestCachedTokens(request, overlaps, found.candidates.length)
    return { cachedTokens, boundWorker: found.boundWorker }
  }

  /** The receipt of the best place, or why there is none. Changes nothing. */
  async explain(request: RoutingRequest): Promise<Placed | ErrorRecord> {
    const placed = await this.#choose(request, undefined)
    // Nobody is made to wait without rules.
    return placed as Exclude<typeof placed, Busy>
  }

  /** Without a question it is no experiment of the guard, and never busy. */
  async #choose(
    request: RoutingRequest,
    question: Question | undefined,
  ): Promise<Placed | Busy | ErrorRecord> {
    const startedMs = this.#context.clock.nowMs()
    if (this.#args.selection.mode === 'direct' && request.pinnedInstanceId === undefined) {
      return toErrorRecord(new WorkerNotNamedError())
    }
    const found = this.#eligible(request)
    if ('code' in found) {
      // This life of the router, or of the directory, has just begun: what may wait is not lost by that.
      const mayWait = question?.roomRules !== undefined && this.#isBeginning
      return mayWait ? { kind: 'busy', cachedTokens: 0, boundWorker: undefined, falls: undefined } : found
    }
    if (question !== undefined) this.#questions++
    const { boundWorker } = found
    const workerSlots = Int32Array.from(found.candidates, candidate => candidate.key.workerSlot)
    const beforeLookupMs = this.#context.clock.nowMs()
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.audits)
    const times = { startedMs, lookupMs: this.#context.clock.nowMs() - beforeLookupMs }
    if (!overlaps.isComplete) this.shards.askForStale()
    const load = await this.#load(workerSlots, request.sequenceHashes, request)
    if ('code' in load) return load
    try {
      const all = this.#filtered({ ...found, workerSlots, overlaps, load }, request)
      if ('code' in all) return all
      const known = await this.#notBusy(all, request)
      if ('code' in known) {
        if (question === undefined || known.code !== ALL_BUSY) return known
        if (question.queue === undefined) {
          this.busyRefused.set(request.model, (this.busyRefused.get(request.model) ?? 0) + 1)
          return this.#overloaded(known, request.model)
        }
        // What waits already waits on.
        const cachedTokens = bestCachedTokens(request, all.overlaps, all.candidates.length)
        return { kind: 'busy', cachedTokens, boundWorker, falls: load.falls }
      }
      const roomRules = question?.roomRules
      if (roomRules !== undefined) {
        const cachedTokens = bestCachedTokens(request, known.overlaps, known.candidates.length)
        if (isBusy(roomRules, known, request.promptTokens - cachedTokens))
          return { kind: 'busy', cachedTokens, boundWorker, falls: load.falls }
      }
      return this.#place(question?.id, request, known, times)
    } catch (thrown) {
      // The code of whoever embeds the router; a bug of ours goes on.
      if (!(thrown instanceof CustomSelectionError)) throw thrown
      this.#context.log.error({ error: thrown }, 'selection failed')
      return toErrorRecord(thrown)
    }
  }

  /** With when to come back, by how fast others got a place since the first was refused. */
  #overloaded(error: ErrorRecord, model: string): ErrorRecord {
    let overload = this.#overloads.get(model)
    if (overload === undefined) {
      overload = new Overload()
      this.#overloads.set(model, overload)
    }
    const retryAfterSeconds = overload.refused(this.#context.clock.nowMs())
    return retryAfterSeconds === undefined
      ? error
      : { ...error, details: { ...error.details, retryAfterSeconds } }
  }

  #inputOf(known: Known): Candidates {
    return inputOf(known, candidate => this.#lookup.heldBlocks(candidate))
  }

  /** Without the candidates that the filter of a selection of one's own leaves out. */
  #filtered(known: Known, request: RoutingRequest): Known | ErrorRecord {
    const { custom } = this.#args.selection
    if (custom === undefined) return known
    const isKept = this.#selector.eligible(
      this.#inputOf(known),
      selectionRequestOf(request),
      this.#args.selection,
    )
    if (isKept === undefined) return known
    const reason = `the filter of the selection ${custom.name} left it out`
    const left = this.#without(known, request, i => (isKept[i] === true ? undefined : reason))
    if (left !== undefined) return left
    const names = known.candidates.map(({ key }) => key.key)
    return toErrorRecord(new AllFilteredError(custom.name, names))
  }

  /** Without the candidates that are past a busy threshold of the model. */
  async #notBusy(known: Known, request: RoutingRequest): Promise<Known | ErrorRecord> {
    const thresholds = thresholdsFor(this.fleet, request)
    if (thresholds === undefined) return known
    const { candidates } = known
    const check = new BusyCheck(thresholds)
    check.add(known.workerSlots, known.load)
    const others = otherRanks(candidates)
    if (others.length > 0) {
      const load = await this.#load(others, NO_HASHES, request)
      if ('code' in load) return load
      check.add(others, load)
    }
    const left = this.#without(known, request, i => check.reason(candidates[i]!))
    if (left !== undefined) return left
    const busy = candidates.map(one => `${one.key.key}: ${check.reason(one)}`)
    const isPinned = request.pinnedInstanceId !== undefined
    return toErrorRecord(new AllBusyError(busy, isPinned, this.#args.overloadStatus))
  }

  /** Without the candidates that there is a reason against; undefined: none is left. */
  #without(
    known: Known,
    request: RoutingRequest,
    reasonAgainst: (i: number) => string | undefined,
  ): Known | undefined {
    const reasons = known.candidates.map((_, i) => reasonAgainst(i))
    const isKept = reasons.map(reason => reason === undefined)
    if (!isKept.includes(false)) return known
    if (!isKept.includes(true)) return undefined
    const only = (_: unknown, i: number): boolean => isKept[i] === true
    const candidates = known.candidates.filter(only)
    const leftOut = known.candidates.flatMap(({ key }, i) => {
      const reason = reasons[i]
      return reason === undefined ? [] : [{ worker: key.key, reason }]
    })
    const { load, preferences, workerSlots } = known
    return {
      candidates,
      excluded: [...known.excluded, ...leftOut],
      preferences: preferences?.filter(only),
      workerSlots: workerSlots.filter(only),
      overlaps: this.#lookup.lookUp(request, candidates, this.audits),
      load: {
        activeBlocks: load.activeBlocks.filter(only),
        newBlocks: load.newBlocks.filter(only),
        soughtBlocks: load.soughtBlocks,
        activePrefillTokens: load.activePrefillTokens.filter(only),
        activeRequests: load.activeRequests.filter(only),
        engines: load.engines === undefined ? undefined : filterProjection(load.engines, isKept),
        reportedShares: load.reportedShares?.filter(only),
        falls: load.falls,
      },
    }
  }

  #place(
    decisionId: string | undefined,
    request: RoutingRequest,
    known: Known,
    { startedMs, lookupMs }: { readonly startedMs: number; readonly lookupMs: number },
  ): Placed {
    const { candidates, overlaps } = known
    const { creditFactors } = overlaps
    const settings = this.#settingsFor(request)
    const input = this.#inputOf(known)
    const choice = this.#selector.choose(
      input,
      selectionRequestOf(request),
      settings,
      this.#context.random,
      this.#turn,
    )
    const isReal = decisionId !== undefined
    const guard = this.guard.consider(request, settings, input, choice, this.#selector, isReal)
    const receipt = writeReceipt(
      this.#context.clock,
      decisionId ?? this.#newId(),
      request,
      settings.mode,
      known,
      choice,
      input,
      guard,
      startedMs,
    )
    const creditedTokens = receipt.overlapBlocks * request.blockSizeTokens * creditFactors[choice.winner]!
    const prefillTokens = Math.max(0, Math.round(request.promptTokens - creditedTokens))
    // The choice is overwritten by the next one.
    const { nextTurn } = choice
    const winner = candidates[choice.winner]!
    this.#context.log.debug({ ...receipt, candidates: receipt.candidates.length }, 'worker selected')
    const figures = {
      guessedBlocks: overlaps.guessedBlocks[choice.winner]!,
      bestOverlapBlocks: largest(overlaps.blocks, candidates.length),
      lookupMs,
    }
    return { receipt, winner, figures, prefillTokens, nextTurn }
  }

  takeFleet(fleet: Fleet, keys: readonly WorkerKeyRecord[]): void {
    this.fleet = fleet
    this.#blind.look(fleet)
    if (this.#affinity !== undefined) {
      const joined = fleet.workers.flatMap(({ keys, joinedMs }) =>
        keys.map(({ key }) => [key, joinedMs] as const),
      )
      this.#joinedMsByKey = new Map(joined)
    }
    const models = new Set(fleet.workers.flatMap(worker => worker.models.map(({ name }) => name)))
    for (const model of this.busyRefused.keys()) {
      if (models.has(model)) continue
      this.busyRefused.delete(model)
      this.#overloads.delete(model)
    }
    this.separatedPrompts.keepOnly(keys)
  }

  /** What is sent counts as held for a while, where no events tell, or until they come. Returns what takes that back. */
  #guess(request: RoutingRequest, { worker, key }: Candidate, id: string): (() => void) | undefined {
    const { ttlWithoutEventsMs, ttlUntilEventsMs, blocksMax } = this.#args.guesses
    const isGuess = key.trust === 'approximate' || request.textBlocksReason !== undefined
    const lifeMs = isGuess ? ttlWithoutEventsMs : ttlUntilEventsMs
    if (lifeMs === undefined || key.trust === 'none' || request.localHashes.length === 0) return undefined
    const { workerSlot, epoch, shard } = key
    const { localHashes } = request
    const indexer = this.#args.indexers[shard]
    indexer?.tell({
      type: 'routed',
      id,
      workerSlot,
      epoch,
      localHashes,
      ttlMs: lifeMs,
      blocksMax: Math.min(blocksMax, worker.kvBlocks?.value ?? blocksMax),
    })
    return () => void indexer?.tell({ type: 'unrouted', id, workerSlot, epoch, localHashes })
  }

  /**
   * A prompt that is not known has no cost: every worker would be as cheap. It goes where the fewest
   * requests are, whose number is known of all. A selection of one's own is told. A request that brings a weight or a temperature means
   * the linear rule: auto has none.
   */
  #settingsFor({ unknownPromptReason, override }: RoutingRequest): SelectionSettings {
    const { selection } = this.#args
    if (selection.mode !== 'kv' || selection.custom !== undefined) return selection
    if (unknownPromptReason !== undefined) return this.#byLoad
    const isWeighed = override.overlapWeight !== undefined || override.temperature !== undefined
    return isWeighed && selection.policy === 'auto' ? this.#linear : selection
  }

  async #load(
    workerSlots: Int32Array,
    sequenceHashes: Int32Array,
    request: RoutingRequest,
  ): Promise<CandidateLoads | ErrorRecord> {
    const { policy, custom } = this.#args.selection
    const { tracking } = request
    try {
      return await this.#args.tracker.ask(
        {
          type: 'project',
          workerSlots,
          sequenceHashes,
          tracking,
          wantsEngines: policy === 'auto' && custom === undefined,
          wantsReported: thresholdsFor(this.fleet, request)?.decodeBlocksFraction !== undefined,
        },
        { timeout: this.#args.trackerMsMax },
      )
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }
}

/** Of the first `count`; 0 if there are none. */
function largest(values: ArrayLike<number>, count: number): number {
  let found = 0
  for (let i = 0; i < count; i++) if (values[i]! > found) found = values[i]!
  return found
}
