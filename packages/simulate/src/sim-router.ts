/**
 * Sim router: one router of a simulated fleet. It gathers as the router actor does, from its own books and
 * view, and places by the same code (packages/placement), on virtual time.
 *
 * Knows    its own decisions, at once; first tokens and completions of its own requests, when their signals
 *          arrive; the caches of the engines through its view; messages of other routers, if there is replica
 *          sync. It never looks at an engine, unless the spec wants an oracle.
 * Owns     its ActiveLoad, Audits, guard, sessions and turn. A view of events may be shared with other
 *          routers, a view of guesses is its own.
 */

import type { ErrorRecord, Random } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { Trust } from '@homing/index'
import { ActiveLoad, copyProjection, EngineBook, type LoadTotals, type SaidUsage } from '@homing/load'
import {
  type AffinitySettings,
  type Busy,
  bestCachedTokens,
  type Candidate,
  type CandidateLoads,
  ConversationAffinity,
  candidatesFor,
  decodeLeg,
  eligibleByAffinity,
  type GuardedDelivery,
  goesApart,
  type LayerTerm,
  type Overlaps,
  otherRanks,
  type Placed,
  type PlacementSettings,
  place,
  placedMs,
  placementSettings,
  prefillLeg,
  type Receipt,
  RoutingGuard,
  type RoutingRequest,
  type Situation,
  slotsOf,
  thresholdsFor,
  transferMs,
  type WorkerHealth,
  withLabels,
  writeReceipt,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import { Audits, type AuditVerdict, creditFactor, selectionSettings } from '@homing/selection'
import type { CellSpec, GuardFigures } from './cell-types.ts'
import { engineProfile } from './engine-profile.ts'
import type { FleetView } from './fleet-view.ts'
import { ForeignBlocks } from './foreign-blocks.ts'
import { GuardTally } from './guard-tally.ts'
import type { Replica, ReplicaOperation } from './replica-sync.ts'
import { trustOf } from './sim-fleet.ts'
import type { Recovers, SimRequest } from './sim-request.ts'
import { SimSelector } from './sim-selector.ts'

/** Bytes that the product takes a token of text for. */
const TEXT_BYTES_PER_TOKEN = 4
const TEXT_BYTES_PER_TOKEN_DEFAULT = 4.5
const REQUESTS_MAX = 16_777_216
const ACTIVE_BLOCKS_MAX = 268_435_456
const NO_HASHES = new Int32Array(0)
const NO_SLOTS = new Int32Array(0)
const NO_WORKERS: readonly string[] = []
const HANDED_OVER = { handover: 'kv_transfer', prefillId: '', topology: [] } as const
const NO_LAYERS: readonly (readonly LayerTerm[])[] = []
const NO_TERMS: readonly LayerTerm[] = []
/** Default of --router-pooled-migration-weight. */
const MIGRATION_WEIGHT = 2

/** The true state of the engines. */
export interface Oracle {
  readonly view: FleetView
  activeBlocks(worker: number): number
  pendingPrefillTokens(worker: number): number
  requests(worker: number): number
  outstandingTokens(worker: number): number
}

export interface SimRouterOptions {
  readonly spec: CellSpec
  readonly view: FleetView
  readonly oracle: Oracle | undefined
  readonly random: Random
  /** Of the guard, so that it does not change the other draws. */
  readonly guardRandom: Random
  /** Undefined: sessions are bound to no worker. */
  readonly affinity?: AffinitySettings
  /** Tells the other routers. */
  readonly tell?: (operation: ReplicaOperation, nowMs: number) => void
  /** Called with the receipt of each request; undefined: no receipts are written. */
  readonly receipt?: (receipt: Receipt) => void
  /** Failures of the workers; undefined: none fails. */
  readonly health?: WorkerHealth
  /** Share of its KV blocks in use, as the engine of a worker reports it; undefined: none does. */
  readonly reportedShare?: (worker: number) => number
  /** Called when the answers of a worker contradict what its events say, or agree with it. */
  readonly verdict?: (worker: number, verdict: AuditVerdict) => void
}

/** `busy`: every worker is past the rules, and nothing was booked. */
export type SimDecision =
  | { readonly kind: 'placed' }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }
  | Busy

export class SimRouter implements Replica {
  readonly #spec: CellSpec
  readonly #view: FleetView
  readonly #oracle: Oracle | undefined
  readonly #random: Random
  readonly #load: ActiveLoad
  readonly #book: EngineBook
  readonly #audits = new Audits()
  readonly #selector: SimSelector
  readonly #settings: PlacementSettings
  readonly #affinity: ConversationAffinity | undefined
  readonly #trust: Trust
  readonly #countsTokens: boolean
  /** Prompt tokens as this router sees them, per token. */
  readonly #promptScale: number
  readonly #measures: boolean
  /** Undefined: there is none. */
  readonly #guard: RoutingGuard | undefined
  readonly #guardTally = new GuardTally()
  readonly #tell: SimRouterOptions['tell']
  readonly #receipt: SimRouterOptions['receipt']
  readonly #health: WorkerHealth | undefined
  readonly #reportedShare: SimRouterOptions['reportedShare']
  readonly #verdict: SimRouterOptions['verdict']
  readonly #foreignBlocks: ForeignBlocks
  readonly #stepTokens: number
  #turn = 0
  #questions = 0

  // By worker.
  readonly #outstandingTokens: Float64Array
  readonly #overlaps: Int32Array
  readonly #credits: Float64Array

  /** What a block counts for before anything was measured. */
  readonly #creditAtFirst: number

  // By candidate: scratch of one decision.
  readonly #overlapBlocks: Int32Array
  readonly #creditFactors: Float64Array
  readonly #noBlocks: Int32Array
  readonly #noCredits: Float64Array
  readonly #activeBlocks: Float64Array
  readonly #newBlocks: Float64Array
  readonly #prefillTokens: Float64Array
  readonly #requests: Float64Array

  #sequenceHashes = new Int32Array(512)
  #completedOutputTokens = 0
  #completed = 0

  constructor(options: SimRouterOptions) {
    const { spec, view, oracle, random, guardRandom, affinity } = options
    const { workers } = spec
    this.#tell = options.tell
    this.#receipt = options.receipt
    this.#health = options.health
    this.#reportedShare = options.reportedShare
    this.#verdict = options.verdict
    this.#spec = spec
    this.#view = oracle?.view ?? view
    this.#oracle = oracle
    this.#random = random
    this.#load = new ActiveLoad({
      workerSlotsMax: workers,
      requestsMax: REQUESTS_MAX,
      activeBlocksMax: ACTIVE_BLOCKS_MAX,
    })
    this.#foreignBlocks = new ForeignBlocks(this.#load)
    this.#book = new EngineBook({ workerSlotsMax: workers })
    this.#stepTokens = engineProfile(spec.profile).stepTokensMax
    this.#settings = placementSettings(selectionSettings(spec.selection))
    this.#selector = new SimSelector(spec)
    this.#affinity = affinity && new ConversationAffinity(affinity)
    this.#trust = trustOf(spec.view)
    this.#countsTokens = spec.loadCounts === 'tokens'
    const bytesPerToken = spec.view.textBytesPerToken ?? TEXT_BYTES_PER_TOKEN_DEFAULT
    this.#promptScale = spec.view.kind === 'text' ? bytesPerToken / TEXT_BYTES_PER_TOKEN : 1
    this.#measures = spec.view.credit !== 'full' && oracle === undefined
    const { guardShare } = spec.selection
    this.#guard = guardShare === undefined ? undefined : new RoutingGuard({ share: guardShare }, guardRandom)
    this.#outstandingTokens = new Float64Array(workers)
    this.#overlaps = new Int32Array(workers)
    this.#creditAtFirst = this.#measures ? creditFactor(this.#trust, 1, 0) : 1
    this.#credits = new Float64Array(workers).fill(this.#creditAtFirst)
    this.#overlapBlocks = new Int32Array(workers)
    this.#creditFactors = new Float64Array(workers)
    this.#noBlocks = new Int32Array(workers)
    this.#noCredits = new Float64Array(workers)
    this.#activeBlocks = new Float64Array(workers)
    this.#newBlocks = new Float64Array(workers)
    this.#prefillTokens = new Float64Array(workers)
    this.#requests = new Float64Array(workers)
  }

  /**
   * Chooses one of the workers, and books the request there; or, if all are past the rules, books nothing.
   */
  decide(request: SimRequest, fleet: Fleet, nowMs: number, rules?: readonly RoomRule[]): SimDecision {
    // Placed again after the death of its worker.
    this.#guard?.ended(request.guarded, undefined, nowMs)
    request.guarded = undefined
    const hashed = this.#countsTokens ? 0 : this.#hash(request)
    const routing = this.#routingOf(request, hashed)
    const found = candidatesFor({
      ...this.#candidatesQuestion(routing, fleet, nowMs),
      settings: this.#settings,
      mayTry: true,
      mayWait: rules !== undefined,
    })
    if ('code' in found) return { kind: 'refused', error: found }
    if ('kind' in found) return found
    this.#questions++
    this.#selector.request = request
    const situation = this.#situationOf(request, routing, fleet, found, hashed, nowMs, rules)
    const means = {
      selector: this.#selector,
      guard: this.#guard,
      random: this.#random,
      turn: this.#turn,
    }
    const placed = place(situation, this.#settings, means)
    if ('code' in placed) return { kind: 'refused', error: placed }
    if ('kind' in placed) return placed
    this.#receipt?.(writeReceipt(placed, String(request.index), nowMs, () => 0))
    this.#turn = placed.nextTurn
    this.#sent(request, placed, hashed, nowMs, rules !== undefined)
    return { kind: 'placed' }
  }

  /** Whether its prompt is to be computed apart: see leg-costs.ts. Changes nothing. */
  goesApart(request: SimRequest, fleet: Fleet, nowMs: number): boolean {
    const costOf = (leg: SimRequest): number => {
      const placed = this.#looked(leg, fleet, nowMs)
      return placed === undefined ? Number.POSITIVE_INFINITY : placedMs(placed)!
    }
    const [wholeMs, prefillMs] = [costOf(request), costOf({ ...request, leg: 'prefill' })]
    const decode = this.#looked({ ...request, leg: 'decode' }, fleet, nowMs)
    if (decode === undefined) return false
    return goesApart({
      wholeMs,
      prefillMs,
      decodeMs: placedMs(decode)!,
      transferMs: transferMs(decode, request.inputTokens)!,
    })
  }

  /** Where it would be placed; undefined: nowhere. */
  #looked(request: SimRequest, fleet: Fleet, nowMs: number): Placed | undefined {
    const hashed = this.#countsTokens ? 0 : this.#hash(request)
    const routing = this.#routingOf(request, hashed)
    const question = { ...this.#candidatesQuestion(routing, fleet, nowMs), settings: this.#settings }
    const found = candidatesFor({ ...question, mayWait: false })
    if (!('candidates' in found)) return undefined
    this.#selector.request = request
    const situation = this.#situationOf(request, routing, fleet, found, hashed, nowMs, undefined)
    const means = { selector: this.#selector, guard: undefined, random: this.#random, turn: this.#turn }
    const placed = place({ ...situation, isReal: false }, this.#settings, means)
    return 'choice' in placed ? placed : undefined
  }

  /** Books a request where it was placed, and sends the booking to all other routers. */
  #sent(
    request: SimRequest,
    { request: routing, winner, overlapBlocks, pooledBlocks, prefillTokens: placedTokens, guard }: Placed,
    hashed: number,
    nowMs: number,
    hasQueue: boolean,
  ): void {
    const { promptTokens } = routing
    const worker = winner.key.workerSlot
    const prefillTokens = request.leg === 'decode' ? 0 : placedTokens
    request.worker = worker
    request.predictedTokens = overlapBlocks * this.#spec.blockTokens
    request.bookedTokens = prefillTokens
    const outcome = this.#load.book(String(request.index), worker, {
      sequenceHashes: this.#sequenceHashes,
      count: request.leg === 'prefill' ? 0 : hashed,
      promptTokens,
      prefillTokens,
    })
    if (outcome !== 'booked') throw new RangeError(`cannot book request ${request.index}: ${outcome}`)
    // Without a queue, one that is placed again after the death of its worker has not waited here.
    request.waitedMs = hasQueue ? nowMs - request.arrivalMs : 0
    const { waitedMs } = request
    const isUnknown =
      routing.unknownPromptReason !== undefined || request.leg === 'decode' || pooledBlocks > 0
    const { outputTokensMax } = routing
    const tokens = { promptTokens, newTokens: prefillTokens, outputTokensMax }
    const pooledTokens = pooledBlocks > 0 ? pooledBlocks * this.#spec.blockTokens : undefined
    const handedTokens = request.leg === 'decode' ? request.inputTokens : pooledTokens
    const sent = { ...tokens, isUnknown, handedTokens, waitedMs, nowMs }
    const booked = this.#spec.trouble === 'crossed-book' ? (worker + 1) % this.#spec.workers : worker
    this.#book.sent(String(request.index), booked, sent, winner.worker.maxBatchedTokens.value)
    if (guard !== undefined) {
      request.guarded = this.#guard!.decided(guard, promptTokens, nowMs, worker)
      this.#guardTally.add(guard)
    }
    const session = this.#affinity?.keyOf(routing)
    if (session !== undefined) {
      const { key, worker: record } = winner
      request.session = { key: session, worker: key.key, joinedMs: record.joinedMs }
      this.#affinity!.placed(session, key.key, record.joinedMs, nowMs)
    }
    request.bookedOutstanding = request.inputTokens + this.#expectedOutput(request)
    this.#outstandingTokens[worker]! += request.bookedOutstanding
    this.#tell?.(
      {
        kind: 'booked',
        id: String(request.index),
        worker,
        learnedAt: booked,
        activeBlocks: this.#load.ownBlocks(worker),
        promptTokens,
        newTokens: prefillTokens,
        waitedMs,
        outstandingTokens: request.bookedOutstanding,
      },
      nowMs,
    )
    this.#view.sent(request.blockIds, request.blocks, worker, nowMs)
  }

  /** Tokens of its prompt that the best of the workers that may take it holds. */
  cachedTokens(request: SimRequest, fleet: Fleet, nowMs: number): number {
    const hashed = this.#countsTokens ? 0 : this.#hash(request)
    const routing = this.#routingOf(request, hashed)
    const found = eligibleByAffinity(this.#candidatesQuestion(routing, fleet, nowMs))
    if ('code' in found) return 0
    const overlaps = this.#overlapsOf(request, found.candidates, nowMs)
    return bestCachedTokens(routing, overlaps, found.candidates.length)
  }

  /** The signal of the first token arrived. */
  firstToken(request: SimRequest, nowMs: number): void {
    // The wait at the router is not the worker's time.
    this.#guard?.firstToken(request.guarded, nowMs - request.arrivalMs - request.waitedMs, nowMs)
    this.#book.firstToken(String(request.index), nowMs)
    this.#load.prefillComplete(String(request.index))
    this.#tell?.({ kind: 'firstToken', id: String(request.index), worker: request.worker }, nowMs)
  }

  /** The signal of the last token arrived. What its engine says of it is that of `request`. */
  completed(request: SimRequest, nowMs: number, streamEvents = request.outputTokens): void {
    const { guarded, inputTokens, outputTokens } = request
    const reusedTokens = saidTokens(request)
    if (request.leg !== 'prefill') {
      this.#completedOutputTokens += outputTokens
      this.#completed++
    }
    this.#ended(
      request,
      { outputTokens, cachedShare: reusedTokens / inputTokens, streamEvents },
      // The wait at the router is not the worker's time.
      delivered(outputTokens, nowMs - request.arrivalMs - request.waitedMs),
      nowMs,
    )
    if (this.#measures) this.#audit(request, guarded)
  }

  /** Its worker, or the client, ended it without an answer. */
  failed(request: SimRequest, delivery: GuardedDelivery, nowMs: number): void {
    const id = String(request.index)
    this.#book.prefillEnded(id, nowMs)
    this.#load.prefillComplete(id)
    this.#ended(request, {}, delivery, nowMs)
  }

  #ended(request: SimRequest, said: SaidUsage, delivery: GuardedDelivery, nowMs: number): void {
    const { worker, guarded, session, bookedOutstanding: outstandingTokens } = request
    const id = String(request.index)
    const { outputTokens, cachedShare } = this.#book.believed(id, said, nowMs)
    this.#book.ended(id, nowMs, outputTokens, cachedShare)
    this.#load.free(id)
    this.#outstandingTokens[worker]! -= outstandingTokens
    this.#guard?.ended(guarded, delivery, nowMs)
    request.guarded = undefined
    if (session !== undefined)
      this.#affinity!.ended(session.key, session.worker, session.joinedMs, false, nowMs)
    const activeBlocks = this.#load.ownBlocks(worker)
    this.#tell?.(
      { kind: 'freed', id, worker, activeBlocks, outputTokens, cachedShare, outstandingTokens },
      nowMs,
    )
  }

  /**
   * Books, or ends, what another router has at a worker: in the load, with its blocks as a number, and in the
   * book of the engines, which learns from it as from its own.
   */
  heard(from: number, operation: ReplicaOperation, nowMs: number): boolean {
    const { id, worker } = operation
    switch (operation.kind) {
      case 'booked': {
        const { promptTokens, newTokens, waitedMs, outstandingTokens, learnedAt } = operation
        const figures = { sequenceHashes: NO_HASHES, count: 0, promptTokens, prefillTokens: newTokens }
        const outcome = this.#load.book(id, worker, figures)
        if (outcome !== 'booked')
          throw new RangeError(`cannot book request ${id} of router ${from}: ${outcome}`)
        const sent = { promptTokens, newTokens, waitedMs, isOwn: false, nowMs }
        this.#book.sent(id, learnedAt, sent, this.#stepTokens)
        this.#outstandingTokens[worker]! += outstandingTokens
        this.#foreignBlocks.set(from, worker, operation.activeBlocks)
        return false
      }
      case 'firstToken':
        this.#book.firstToken(id, nowMs)
        return this.#load.prefillComplete(id)
      case 'freed':
        this.#book.ended(id, nowMs, operation.outputTokens, operation.cachedShare)
        this.#outstandingTokens[worker]! -= operation.outstandingTokens
        this.#foreignBlocks.set(from, worker, operation.activeBlocks)
        return this.#load.free(id)
    }
  }

  /** The load of a worker as this router knows it: its own requests and those of other routers. */
  totals(worker: number): LoadTotals {
    return this.#load.totals(worker)
  }

  get guardFigures(): GuardFigures | undefined {
    return this.#guard && this.#guardTally.figures(this.#guard.status)
  }

  /** Forgets the requests and the cache of a worker that died. */
  workerDied(worker: number): void {
    this.#load.freeWorker(worker)
    this.#book.forget(worker)
    this.#outstandingTokens[worker] = 0
    this.#foreignBlocks.clear(worker)
    this.#view.clear(worker)
  }

  #routingOf(request: SimRequest, hashed: number): RoutingRequest {
    const whole: RoutingRequest = {
      requestId: String(request.index),
      model: '',
      promptTokens: Math.max(1, Math.round(request.inputTokens * this.#promptScale)),
      blockSizeTokens: this.#spec.blockTokens,
      localHashes: NO_HASHES,
      sequenceHashes: this.#sequenceHashes.subarray(0, 2 * hashed),
      unknownPromptReason: undefined,
      textBlocksReason: this.#spec.view.kind === 'text' ? 'no engine tokenizes' : undefined,
      override: {},
      pinnedInstanceId: undefined,
      pinnedRank: undefined,
      excludedWorkers: NO_WORKERS,
      ...request.hints,
    }
    if (request.leg === 'prefill') return prefillLeg(whole, undefined)
    return request.leg === 'decode' ? decodeLeg(whole, HANDED_OVER) : whole
  }

  #candidatesQuestion(request: RoutingRequest, fleet: Fleet, nowMs: number) {
    const [questions, affinity, health] = [this.#questions, this.#affinity, this.#health]
    return { fleet, request, questions, affinity, health, nowMs }
  }

  #situationOf(
    request: SimRequest,
    routing: RoutingRequest,
    fleet: Fleet,
    found: Situation['found'],
    hashed: number,
    nowMs: number,
    roomRules: readonly RoomRule[] | undefined,
  ): Situation {
    const { candidates } = found
    const workerSlots = slotsOf(candidates)
    const overlaps = this.#overlapsOf(request, candidates, nowMs)
    const others = thresholdsFor(fleet, routing) === undefined ? NO_SLOTS : otherRanks(candidates)
    let load = this.#loadOf(request, workerSlots, overlaps, hashed, nowMs)
    let otherLoads: Situation['otherLoads']
    if (others.length > 0) {
      load = ownLoads(load)
      otherLoads = { workerSlots: others, load: this.#bookedLoad(others, 0, undefined) }
    }
    const held = this.#view.heldBlocks
    return {
      fleet,
      request: routing,
      found,
      workerSlots,
      overlaps,
      load,
      heldBlocks:
        held === undefined || this.#oracle !== undefined ? undefined : ({ key }) => held[key.workerSlot]!,
      otherLoads,
      roomRules,
      isWaiting: roomRules !== undefined && nowMs > request.arrivalMs,
      isReal: true,
    }
  }

  #overlapsOf(request: SimRequest, candidates: readonly Candidate[], nowMs: number): Overlaps {
    this.#view.overlaps(request.blockIds, request.blocks, this.#overlaps, nowMs)
    const blocks = this.#overlapBlocks
    const creditFactors = this.#creditFactors
    for (let i = 0; i < candidates.length; i++) {
      const slot = candidates[i]!.key.workerSlot
      // A text is known in pieces of its own size.
      const held = Math.floor(this.#overlaps[slot]! * this.#promptScale)
      blocks[i] = held
      // Without an overlap and without exact trust nothing was measured: the first credit counts.
      const isMeasured = held > 0 || this.#trust === 'exact'
      creditFactors[i] = isMeasured ? this.#credits[slot]! : this.#creditAtFirst
    }
    const isGuess = this.#trust === 'approximate'
    const { recovers } = request
    if (recovers !== undefined && recovers.pooledTokens > 0) return this.#pooled(recovers, candidates.length)
    return {
      blocks,
      creditFactors,
      lowerTierBlocks: this.#noCredits,
      guessedBlocks: isGuess ? blocks : this.#noBlocks,
      layers: this.#receipt === undefined ? NO_LAYERS : this.#layersOf(candidates.length, isGuess),
    }
  }

  /** As for a stream that goes on: pooled blocks behind those that each worker holds. */
  #pooled({ pooledTokens }: Recovers, count: number): Overlaps {
    const { recovery, blockTokens } = this.#spec
    const weight = recovery?.weight ?? MIGRATION_WEIGHT
    const blocks = this.#overlapBlocks.slice(0, count)
    const open = {
      blocks,
      creditFactors: this.#creditFactors.slice(0, count),
      lowerTierBlocks: new Float64Array(count),
      guessedBlocks: new Int32Array(count),
      layers: Array.from({ length: count }, () => NO_TERMS),
    }
    const pooled = blocks.map(held => Math.max(0, pooledTokens / blockTokens - held))
    const labels = { moe: new Int32Array(count), pooled }
    return withLabels(open, labels, { moe: 0, pooled: 1, migration: weight }, true)
  }

  #layersOf(count: number, isGuess: boolean): readonly (readonly LayerTerm[])[] {
    return Array.from({ length: count }, (_, i) => {
      const blocks = this.#overlapBlocks[i]!
      return isGuess && blocks > 0 ? [{ layer: 'guessed', blocks, factor: this.#creditFactors[i]! }] : []
    })
  }

  #loadOf(
    request: SimRequest,
    workerSlots: Int32Array,
    overlaps: Overlaps,
    hashed: number,
    nowMs: number,
  ): CandidateLoads {
    const oracle = this.#oracle
    if (oracle !== undefined) return this.#trueLoad(request, workerSlots, overlaps, oracle)
    const load = this.#bookedLoad(workerSlots, hashed, nowMs)
    if (!this.#countsTokens) return load
    const { blockTokens } = this.#spec
    const count = workerSlots.length
    for (let i = 0; i < count; i++) {
      this.#activeBlocks[i] = this.#outstandingTokens[workerSlots[i]!]! / blockTokens
    }
    this.#newBlocks.fill(request.inputTokens / blockTokens, 0, count)
    return { ...load, activeBlocks: this.#activeBlocks, newBlocks: this.#newBlocks }
  }

  /** `nowMs`: undefined where the backlog of the engines is not needed. */
  #bookedLoad(workerSlots: Int32Array, hashed: number, nowMs: number | undefined): CandidateLoads {
    const { activeBlocks, newBlocks, activePrefillTokens, activeRequests } = this.#load.project(
      this.#sequenceHashes,
      hashed,
      workerSlots,
    )
    const wantsEngines = nowMs !== undefined && this.#settings.usual.policy === 'auto'
    return {
      activeBlocks,
      newBlocks,
      soughtBlocks: hashed,
      activePrefillTokens,
      activeRequests,
      engines: wantsEngines ? this.#book.project(workerSlots, nowMs) : undefined,
      reportedShares: this.#reportedShare && Float64Array.from(workerSlots, this.#reportedShare),
      falls: 0,
    }
  }

  #trueLoad(
    request: SimRequest,
    workerSlots: Int32Array,
    { blocks }: Overlaps,
    oracle: Oracle,
  ): CandidateLoads {
    const { blockTokens } = this.#spec
    for (let i = 0; i < workerSlots.length; i++) {
      const worker = workerSlots[i]!
      this.#prefillTokens[i] = oracle.pendingPrefillTokens(worker)
      this.#requests[i] = oracle.requests(worker)
      if (this.#countsTokens) {
        this.#activeBlocks[i] = oracle.outstandingTokens(worker) / blockTokens
        this.#newBlocks[i] = request.inputTokens / blockTokens
      } else {
        this.#activeBlocks[i] = oracle.activeBlocks(worker)
        this.#newBlocks[i] = request.blocks - blocks[i]!
      }
    }
    return {
      activeBlocks: this.#activeBlocks,
      newBlocks: this.#newBlocks,
      soughtBlocks: request.blocks,
      activePrefillTokens: this.#prefillTokens,
      activeRequests: this.#requests,
      engines: undefined,
      reportedShares: undefined,
      falls: 0,
    }
  }

  /** Compares the predicted overlap with the reuse that the engine reported. */
  #audit(request: SimRequest, guarded: SimRequest['guarded']): void {
    const trust = this.#trust
    const { worker, predictedTokens } = request
    if (trust === 'none' || request.leg === 'decode' || request.hints?.cacheUse !== undefined) return
    const isGuess = trust === 'approximate'
    const prediction = {
      worker: String(worker),
      workerSlot: worker,
      epoch: 0,
      predictedTokens,
      guessedTokens: isGuess ? predictedTokens : 0,
      pooledTokens: 0,
      trust,
      blockSizeTokens: this.#spec.blockTokens,
    }
    const { verdict } = this.#audits.add(prediction, saidTokens(request))
    if (verdict !== undefined) this.#verdict?.(worker, verdict)
    this.#guard?.audited(guarded, predictedTokens, saidTokens(request))
    const sample = isGuess ? this.#audits.guessPrecision(worker) : this.#audits.precision(worker)
    this.#credits[worker] = creditFactor(trust, sample.precision, sample.requests)
  }

  #expectedOutput(request: SimRequest): number {
    if (this.#spec.knowsOutput) return request.outputTokens
    return this.#completed === 0 ? 0 : this.#completedOutputTokens / this.#completed
  }

  /** Fills the sequence hashes: pairs of words; an id is used for both. Returns the number of blocks. */
  #hash({ blockIds, blocks }: SimRequest): number {
    if (this.#sequenceHashes.length < 2 * blocks) this.#sequenceHashes = new Int32Array(4 * blocks)
    const words = this.#sequenceHashes
    for (let i = 0; i < blocks; i++) {
      const id = blockIds[i]!
      words[2 * i] = id | 0
      words[2 * i + 1] = Math.floor(id / 4_294_967_296)
    }
    return blocks
  }
}

/** A copy: the next projection overwrites the arrays of the original. */
function ownLoads(load: CandidateLoads): CandidateLoads {
  return {
    ...load,
    activeBlocks: load.activeBlocks.slice(),
    newBlocks: load.newBlocks.slice(),
    activePrefillTokens: load.activePrefillTokens.slice(),
    activeRequests: load.activeRequests.slice(),
    engines: load.engines && copyProjection(load.engines),
  }
}

/** A whole answer, as the guard looks at it. */
function delivered(completionTokens: number, durationMs: number): GuardedDelivery {
  return {
    outcome: 'ok',
    status: 200,
    completionTokens,
    durationMs,
    streamEvents: completionTokens,
    error: undefined,
  }
}

/** Cached tokens in the usage of an answer: blocks that were read out of a pool are among them. */
function saidTokens({ recovers, reusedTokens, skippedTokens }: SimRequest): number {
  return recovers === undefined ? reusedTokens : skippedTokens
}
