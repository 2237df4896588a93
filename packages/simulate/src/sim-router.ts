/**
 * Sim router: one router of a simulated fleet. It decides as the router actor does, from what it sees itself
 * (router-sight.ts) and what it has booked (router-books.ts), and places by the same code
 * (packages/placement), on virtual time.
 *
 * Knows    its own decisions, at once; first tokens and completions of its own requests, when their signals
 *          arrive; the caches of the engines through its view; messages of other routers, if there is replica
 *          sync. It never looks at an engine, unless the spec wants an oracle.
 * Owns     its guard, sessions and turn; its books, its sight and its credits (reuse-credits.ts) have a state
 *          of their own each.
 */

import type { ErrorRecord, Random } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { LoadTotals, SaidUsage } from '@homing/load'
import {
  type AffinitySettings,
  type Busy,
  bestCachedTokens,
  ConversationAffinity,
  candidatesFor,
  eligibleByAffinity,
  type GuardedDelivery,
  goesApart,
  type Placed,
  type PlacementSettings,
  place,
  placedMs,
  placementSettings,
  type Receipt,
  RoutingGuard,
  type RoutingRequest,
  transferMs,
  type WorkerHealth,
  writeReceipt,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import { type AuditVerdict, selectionSettings } from '@homing/selection'
import type { CellSpec, GuardFigures } from './cell-types.ts'
import type { FleetView } from './fleet-view.ts'
import { GuardTally } from './guard-tally.ts'
import type { Replica, ReplicaOperation } from './replica-sync.ts'
import { ReuseCredits, saidTokens } from './reuse-credits.ts'
import { RouterBooks } from './router-books.ts'
import { type Oracle, RouterSight } from './router-sight.ts'
import type { SimRequest } from './sim-request.ts'
import { SimSelector } from './sim-selector.ts'

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
  readonly #books: RouterBooks
  readonly #credits: ReuseCredits
  readonly #sight: RouterSight
  readonly #selector: SimSelector
  readonly #settings: PlacementSettings
  readonly #random: Random
  readonly #affinity: ConversationAffinity | undefined
  readonly #measures: boolean
  /** Undefined: there is none. */
  readonly #guard: RoutingGuard | undefined
  readonly #guardTally = new GuardTally()
  readonly #receipt: SimRouterOptions['receipt']
  readonly #health: WorkerHealth | undefined
  #turn = 0
  #questions = 0

  constructor(options: SimRouterOptions) {
    const { spec, view, oracle, random, guardRandom, affinity, receipt, reportedShare } = options
    this.#receipt = receipt
    this.#health = options.health
    this.#random = random
    this.#settings = placementSettings(selectionSettings(spec.selection))
    this.#selector = new SimSelector(spec)
    this.#affinity = affinity && new ConversationAffinity(affinity)
    this.#measures = spec.view.credit !== 'full' && oracle === undefined
    const { guardShare } = spec.selection
    this.#guard = guardShare === undefined ? undefined : new RoutingGuard({ share: guardShare }, guardRandom)
    this.#books = new RouterBooks(spec, options.tell)
    this.#credits = new ReuseCredits(spec, this.#measures, options.verdict)
    this.#sight = new RouterSight({
      spec,
      view,
      oracle,
      books: this.#books,
      credits: this.#credits,
      hasReceipts: receipt !== undefined,
      wantsEngines: this.#settings.usual.policy === 'auto',
      reportedShare,
    })
  }

  /**
   * Chooses one of the workers, and books the request there; or, if all are past the rules, books nothing.
   */
  decide(request: SimRequest, fleet: Fleet, nowMs: number, rules?: readonly RoomRule[]): SimDecision {
    // Placed again after the death of its worker.
    this.#guard?.ended(request.guarded, undefined, nowMs)
    request.guarded = undefined
    const hashed = this.#sight.hash(request)
    const routing = this.#sight.routingOf(request, hashed)
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
    const situation = this.#sight.situation(request, routing, fleet, found, hashed, nowMs, rules)
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
    const hashed = this.#sight.hash(request)
    const routing = this.#sight.routingOf(request, hashed)
    const question = { ...this.#candidatesQuestion(routing, fleet, nowMs), settings: this.#settings }
    const found = candidatesFor({ ...question, mayWait: false })
    if (!('candidates' in found)) return undefined
    this.#selector.request = request
    const situation = this.#sight.situation(request, routing, fleet, found, hashed, nowMs, undefined)
    const means = { selector: this.#selector, guard: undefined, random: this.#random, turn: this.#turn }
    const placed = place({ ...situation, isReal: false }, this.#settings, means)
    return 'choice' in placed ? placed : undefined
  }

  /** Books a request where it was placed, and sends the booking to all other routers. */
  #sent(request: SimRequest, placed: Placed, hashed: number, nowMs: number, hasQueue: boolean): void {
    const { request: routing, winner, guard } = placed
    this.#books.sent(request, placed, this.#sight.sequenceHashes, hashed, nowMs, hasQueue)
    if (guard !== undefined) {
      request.guarded = this.#guard!.decided(guard, routing.promptTokens, nowMs, request.worker)
      this.#guardTally.add(guard)
    }
    const session = this.#affinity?.keyOf(routing)
    if (session !== undefined) {
      const { key, worker: record } = winner
      request.session = { key: session, worker: key.key, joinedMs: record.joinedMs }
      this.#affinity!.placed(session, key.key, record.joinedMs, nowMs)
    }
    this.#sight.sent(request, nowMs)
  }

  /** Tokens of its prompt that the best of the workers that may take it holds. */
  cachedTokens(request: SimRequest, fleet: Fleet, nowMs: number): number {
    const hashed = this.#sight.hash(request)
    const routing = this.#sight.routingOf(request, hashed)
    const found = eligibleByAffinity(this.#candidatesQuestion(routing, fleet, nowMs))
    if ('code' in found) return 0
    const overlaps = this.#sight.overlaps(request, found.candidates, nowMs)
    return bestCachedTokens(routing, overlaps, found.candidates.length)
  }

  /** The signal of the first token arrived. */
  firstToken(request: SimRequest, nowMs: number): void {
    // The wait at the router is not the worker's time.
    this.#guard?.firstToken(request.guarded, nowMs - request.arrivalMs - request.waitedMs, nowMs)
    this.#books.firstToken(request, nowMs)
  }

  /** The signal of the last token arrived. What its engine says of it is that of `request`. */
  completed(request: SimRequest, nowMs: number, streamEvents = request.outputTokens): void {
    const { guarded, inputTokens, outputTokens } = request
    const reusedTokens = saidTokens(request)
    this.#books.answered(request)
    // One token that no client sees says nothing of answers, as in the product.
    const answerTokens = request.leg === 'prefill' ? undefined : outputTokens
    this.#ended(
      request,
      { outputTokens: answerTokens, cachedShare: reusedTokens / inputTokens, streamEvents },
      // The wait at the router is not the worker's time.
      delivered(outputTokens, nowMs - request.arrivalMs - request.waitedMs),
      nowMs,
    )
    if (this.#measures && this.#credits.audit(request))
      this.#guard?.audited(guarded, request.predictedTokens, reusedTokens)
  }

  /** Its worker, or the client, ended it without an answer. */
  failed(request: SimRequest, delivery: GuardedDelivery, nowMs: number): void {
    this.#books.failed(request, nowMs)
    this.#ended(request, {}, delivery, nowMs)
  }

  #ended(request: SimRequest, said: SaidUsage, delivery: GuardedDelivery, nowMs: number): void {
    const { guarded, session } = request
    this.#books.ended(request, said, nowMs)
    this.#guard?.ended(guarded, delivery, nowMs)
    request.guarded = undefined
    if (session !== undefined)
      this.#affinity!.ended(session.key, session.worker, session.joinedMs, false, nowMs)
  }

  /** Another router has told what it did with a request. True: load fell. */
  heard(from: number, operation: ReplicaOperation, nowMs: number): boolean {
    return this.#books.heard(from, operation, nowMs)
  }

  /** The load of a worker as this router knows it: its own requests and those of other routers. */
  totals(worker: number): LoadTotals {
    return this.#books.totals(worker)
  }

  get guardFigures(): GuardFigures | undefined {
    return this.#guard && this.#guardTally.figures(this.#guard.status)
  }

  /** Forgets the requests and the cache of a worker that died. */
  workerDied(worker: number): void {
    this.#books.workerDied(worker)
    this.#sight.workerDied(worker)
  }

  #candidatesQuestion(request: RoutingRequest, fleet: Fleet, nowMs: number) {
    const [questions, affinity, health] = [this.#questions, this.#affinity, this.#health]
    return { fleet, request, questions, affinity, health, nowMs }
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
