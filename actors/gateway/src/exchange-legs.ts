/**
 * Exchange legs: what one exchange has to do with prefill and decode on workers of their own
 * (docs/disaggregation.md), from whether its request goes in two legs to what becomes of the hand-over. Which
 * step comes when is the exchange's; the call to the prefill worker is prefill-leg.ts, the bytes are
 * leg-bodies.ts.
 *
 *   kv_transfer   prefill placed ─▶ called ─▶ answered ─▶ decode placed, with what the answer says
 *   bootstrap     prefill placed ─▶ decode placed ─▶ both called at once
 *        ├─▶ alone      no hand-over is possible: the request goes whole, with a warning and a count
 *        ├─▶ answered   the first token ended the answer: it is the answer
 *        └─▶ refused    the queue, a pin or --enforce-disagg will have it so
 *
 * Invariants
 *   I1  At most one prefill leg at a time; each is settled once. After `left` none is open.
 *   I2  A hand-over is used once: when a decode worker may have taken it, the request goes on without it.
 *   I3  Only the queue, a pin, an overload or --enforce-disagg refuses; no prefill worker fails a request.
 */

import type { WaitingHints } from '@homing/actors/queue'
import type { CompletionRoute } from '@homing/actors/tokenizer'
import { type ErrorRecord, type Random, toErrorRecord } from '@homing/base'
import { handoverOf, topologyOf } from '@homing/fleet'
import type { BodyHold } from '@homing/http'
import {
  type Decision,
  decodeLeg,
  goesApart,
  type HandedOver,
  type LegCosts,
  type PrefillPin,
  prefillLeg,
  type RetryBudget,
  type RoutingRequest,
  type WorkerFault,
} from '@homing/placement'
import { NoHandoverError } from './errors.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import { LegBodies, readPrefillAnswer, roomFor } from './leg-bodies.ts'
import type { Placement, Placements } from './placement.ts'
import { ALL_BUSY, DEADLINE, MODEL_NOT_FOUND } from './placing-codes.ts'
import { type PrefillEnd, PrefillLeg, type PrefillLegParts } from './prefill-leg.ts'
import type { AloneReason, LegOutcome, PrefillPools } from './prefill-pools.ts'
import { UNCALLED } from './uncalled-delivery.ts'
import type { UpstreamRequest } from './worker-call.ts'

/** What a client says of two legs, and on which route; a request of no such route has none. */
export interface LegWishes {
  readonly route: CompletionRoute
  /** One worker is to have all of it. */
  readonly isWholePin: boolean
  readonly prefillPin: PrefillPin | undefined
}

export interface LegsRequest {
  readonly routing: RoutingRequest
  readonly waiting?: WaitingHints | undefined
  readonly upstream: UpstreamRequest
  readonly legs?: LegWishes | undefined
}

/** What it shares with its exchange. */
export interface ExchangeLegsParts extends PrefillLegParts {
  readonly metrics: GatewayMetrics
  readonly placements: Placements
  readonly retryBudget: RetryBudget
  readonly pools: PrefillPools
  readonly limits: { readonly silenceMsMax: number; readonly retriesMax: number }
}

export type LegsEnd =
  /** To be placed: as the decode leg, or whole. */
  | { readonly kind: 'place' }
  | {
      readonly kind: 'answered'
      readonly decision: Decision
      readonly answer: PrefillEnd & { kind: 'answered' }
    }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }

/** It sheds load: the hand-over is unused. */
const OVERLOADED = 503
/** Errors of a placement that hold for the whole request, and not for its prefill leg alone. */
const FINAL: ReadonlySet<string> = new Set([ALL_BUSY, MODEL_NOT_FOUND])
const isOfQueue = (code: string): boolean => code.startsWith('HOMING_QUEUE_')

interface Handed extends HandedOver {
  readonly decision: Decision
  readonly body: Uint8Array
  /** Of the bootstrap: called together with the decode leg. */
  readonly leg: PrefillLeg | undefined
}

export class ExchangeLegs {
  readonly #parts: ExchangeLegsParts
  readonly #hold: BodyHold
  readonly #random: Random
  #placing: Placement | undefined
  #running: PrefillLeg | undefined
  /** The leg of a bootstrap that was called; a repeated call of the decode leg does not call it again. */
  #called: PrefillLeg | undefined
  #handed: Handed | undefined
  #model = ''
  /** What it was expected to cost, if that was asked. */
  #costs: LegCosts | undefined
  #isDone = false
  /** A decode leg has failed. */
  #wasLost = false
  /** Grows with each `left`. */
  #turn = 0
  #tookMs = 0
  #failedWorkers: readonly string[] = []
  /** Prefill workers that failed after they had taken the prompt, and are not reported yet. */
  #suspects: { readonly decision: Decision; readonly fault: WorkerFault; readonly calledMs: number }[] = []

  constructor(parts: ExchangeLegsParts, hold: BodyHold) {
    this.#parts = parts
    this.#hold = hold
    this.#random = parts.context.random
  }

  /** Without its decode worker, both legs begin anew: `forget`. */
  get beginsAnew(): boolean {
    const handed = this.#handed
    return handed !== undefined && (handed.leg !== undefined || this.#parts.pools.settings.isEnforced)
  }

  /** The next placement is for the decode leg. */
  get isHanded(): boolean {
    return this.#handed !== undefined
  }

  /** The worker that answers was called together with that which computes the prompt. */
  get waitsForPrefill(): boolean {
    return this.#handed?.handover === 'bootstrap'
  }

  /** Milliseconds in which the prompt was computed elsewhere, and nothing waited. */
  get tookMs(): number {
    return this.#tookMs
  }

  /** Whether the request may go in two legs, or must, because its client or the operator wants that. */
  mayBegin({ routing, legs, upstream }: LegsRequest): boolean {
    if (this.#isDone || legs === undefined || upstream.body === undefined) return false
    const { pools } = this.#parts
    const isAsked = legs.prefillPin !== undefined
    if (!isAsked && (legs.isWholePin || pools.isPlain)) return false
    return isAsked || pools.settings.isEnforced || pools.state(routing.model) !== undefined
  }

  /** The prefill leg, as far as it comes before the decode leg. Does not end after `left`. */
  async run(request: LegsRequest, ageMs: number): Promise<LegsEnd> {
    this.#isDone = true
    this.#model = request.routing.model
    const { pools } = this.#parts
    const { routing, legs, upstream } = request
    const isPinned = legs!.prefillPin !== undefined
    // Its error names the models that there are.
    if (!isPinned && !pools.serves(routing.model)) return { kind: 'place' }
    if (!isPinned && pools.state(routing.model) !== 'active') return this.#alone('inactive', routing)
    const bodies = new LegBodies(upstream.body!)
    const isFit = bodies.hasOnePrompt(legs!.route) && bodies.hasNoTies
    const hasRoom = isFit && this.#hasRoom(upstream.body!)
    // What is unfit is served whole all the same; for want of room only where no hand-over is asked for.
    const why = isFit ? NO_ROOM : UNFIT
    if (!hasRoom && (isPinned || (isFit && pools.settings.isEnforced)))
      return { kind: 'refused', error: toErrorRecord(new NoHandoverError(routing.model, why)) }
    if (!hasRoom) return this.#whole(isFit ? 'no_room' : 'unfit')
    const turn = this.#turn
    const stays = isPinned ? undefined : await this.#reasonToStay(routing)
    // Its client has left meanwhile.
    if (turn !== this.#turn) return new Promise(() => {})
    if (stays !== undefined) return this.#whole(stays)
    return this.#prefill(request, bodies, ageMs)
  }

  /** As it is placed next. */
  routing(routing: RoutingRequest): RoutingRequest {
    const handed = this.#handed
    const legCosts = this.#costs
    if (handed === undefined) return legCosts === undefined ? routing : { ...routing, legCosts }
    const { model, excludedWorkers, pinnedInstanceId } = routing
    const avoided =
      pinnedInstanceId === undefined
        ? this.#parts.pools.avoided(model, handed.topology, excludedWorkers, this.#nowMs)
        : []
    return decodeLeg({ ...routing, legCosts, excludedWorkers: [...excludedWorkers, ...avoided] }, handed)
  }

  decision(decision: Decision): Decision {
    if (this.#handed === undefined) return decision
    return { ...decision, prefillWorker: this.#handed.decision.worker }
  }

  /** As the worker gets it. */
  upstream(upstream: UpstreamRequest): UpstreamRequest {
    if (this.#handed === undefined) return upstream
    return { ...upstream, body: this.#handed.body }
  }

  /**
   * Whether a decode worker that answers so could not take the prompt over: others could not either. Once for
   * a request: another hand-over that fails is a failure like any other, within the retries.
   */
  isLostBy(status: number): boolean {
    return this.#handed !== undefined && !this.#wasLost && status >= 500 && status !== OVERLOADED
  }

  /** The decode leg is called. `broke`: its prefill leg has failed, so it would wait in vain. */
  called(broke: (reason: string) => void): void {
    const leg = this.#handed?.leg
    if (leg === undefined || this.#called === leg) return
    this.#called = leg
    this.#running = leg
    void leg.run().then(end => {
      this.#running = undefined
      if (end.kind === 'answered') this.#ended('handed_over')
      else {
        this.#failed(leg, end)
        broke(end.reason)
      }
    })
  }

  look(nowMs: number): void {
    this.#running?.look(nowMs)
  }

  /** A decode worker that could not take the prompt over: see `isLostBy`. */
  lostBy(workerId: string): void {
    const { pools, context } = this.#parts
    if (pools.lost.lost(workerId, this.#nowMs))
      context.log.warn({ worker: workerId }, 'decode worker fails hand-overs, and gets none for a while')
  }

  /**
   * A worker answers; undefined: the prefill worker. Prefill workers that failed before did so by themselves.
   */
  served(workerId?: string): void {
    if (workerId !== undefined && this.#handed !== undefined) this.#parts.pools.lost.took(workerId)
    for (const { decision, fault, calledMs } of this.#suspects.splice(0))
      this.#report(decision, fault, calledMs)
  }

  /** The placement that it belongs to has ended. `isServed`: the client has its answer. */
  left(isServed: boolean): void {
    const [placing, running, leg] = [this.#placing, this.#running, this.#handed?.leg]
    this.#turn++
    this.#placing = undefined
    this.#running = undefined
    placing?.settle(UNCALLED, false, true)
    // The decode leg has all that it was to get, though the answer of this one is still on its way.
    if (running !== undefined && isServed) this.#ended('handed_over')
    running?.abort(isServed)
    if (leg !== running) leg?.abort()
  }

  /**
   * The decode leg has failed. `wasTaken`: it may have used the hand-over. Strictly, both legs begin anew;
   * else the request goes on whole. A bootstrap begins anew while prefill workers are left. Returns why the
   * request is refused, if it is.
   */
  forget(routing: RoutingRequest, wasTaken: boolean): ErrorRecord | undefined {
    const handed = this.#handed
    if (handed === undefined || (!wasTaken && handed.leg === undefined)) return undefined
    this.#handed = undefined
    this.#wasLost = true
    const isBootstrap = handed.leg !== undefined
    const mayRepeat = this.#failedWorkers.length <= this.#parts.limits.retriesMax
    if ((isBootstrap || this.#parts.pools.settings.isEnforced) && mayRepeat) {
      this.#isDone = false
      return undefined
    }
    const end = this.#alone('lost', routing, 'the hand-over failed')
    return end.kind === 'refused' ? end.error : undefined
  }

  // ── The prefill leg ──────────────────────────────────────────────────────────────────────────

  async #prefill(request: LegsRequest, bodies: LegBodies, ageMs: number): Promise<LegsEnd> {
    const { metrics, placements, context } = this.#parts
    const { routing, legs, waiting } = request
    const isPinned = legs!.prefillPin !== undefined
    let waitedMs = ageMs
    for (;;) {
      const asked = { ...prefillLeg(routing, legs!.prefillPin), excludedWorkers: this.#failedWorkers }
      const askedMs = this.#nowMs
      const placement = placements.ask(asked, waiting, waitedMs)
      this.#placing = placement
      const answer = await placement.answer
      if (this.#placing !== placement) return new Promise(() => {})
      this.#placing = undefined
      waitedMs += this.#nowMs - askedMs
      if ('code' in answer) {
        placement.settle({ ...UNCALLED, error: answer }, false, true)
        metrics.legEnded(answer.code === DEADLINE ? 'deadline' : 'not_placed')
        const isFinal = isPinned || FINAL.has(answer.code) || isOfQueue(answer.code)
        return isFinal ? { kind: 'refused', error: answer } : this.#alone('failed', routing, answer.message)
      }
      const worker = this.#parts.pools.worker(answer.workerId)
      if (worker !== undefined && handoverOf(worker) === 'bootstrap' && worker.bootstrap !== undefined) {
        const { host, port } = worker.bootstrap
        const room = roomFor(this.#random.bytes(8), worker.keys.length, answer.dpRank)
        const body = bodies.meeting({ host, port: port.value, room })
        this.#meet(request, placement, answer, body, topologyOf(worker))
        return { kind: 'place' }
      }
      const leg = this.#leg(request, placement, answer, bodies.prefill(legs!.route), waitedMs)
      this.#running = leg
      const beganMs = this.#nowMs
      const end = await leg.run()
      this.#running = undefined
      this.#tookMs += this.#nowMs - beganMs
      const next = end.kind === 'answered' ? this.#handOver(request, bodies, answer, end) : undefined
      if (next !== undefined) return next
      const reason = end.kind === 'answered' ? 'its answer hands nothing over' : end.reason
      const { worker: key } = answer
      const { requestId } = routing
      context.log.warn({ worker: key, requestId, reason }, 'prefill worker hands nothing over')
      if (end.kind === 'answered') return this.#alone('failed', routing, reason)
      this.#failed(leg, end)
      const isCharged = !end.isLoss || this.#failedWorkers.length > 1
      if (end.why === 'refused' || !this.#mayTryOther(isCharged))
        return this.#alone('failed', routing, end.reason)
      if (isCharged) this.#parts.retryBudget.placedAgain()
    }
  }

  /** Undefined: it hands nothing over. */
  #handOver(
    { routing }: LegsRequest,
    bodies: LegBodies,
    decision: Decision,
    answer: PrefillEnd & { readonly kind: 'answered' },
  ): LegsEnd | undefined {
    const read = readPrefillAnswer(answer.body)
    if (read?.params !== undefined) {
      const worker = this.#parts.pools.worker(decision.workerId)
      this.#handed = {
        handover: 'kv_transfer',
        prefillId: decision.id,
        topology: worker === undefined ? [] : topologyOf(worker),
        decision,
        body: bodies.decode(read.params),
        leg: undefined,
      }
      this.#ended('handed_over')
      return { kind: 'place' }
    }
    this.#ended(read?.isWhole === true ? 'answered' : 'not_handed_over')
    if (read?.isWhole !== true) return undefined
    const isSame = routing.isStream !== true && (routing.choicesCount ?? 1) === 1
    // Its one token is another sample of the same answer: a stream is made by the decode worker.
    return isSame ? { kind: 'answered', decision, answer } : { kind: 'place' }
  }

  #meet(
    request: LegsRequest,
    placement: Placement,
    decision: Decision,
    body: Uint8Array,
    topology: readonly string[],
  ): void {
    this.#handed = {
      handover: 'bootstrap',
      prefillId: decision.id,
      topology,
      decision,
      body,
      leg: this.#leg(request, placement, decision, Buffer.from(body), 0),
    }
  }

  #leg(
    { routing, upstream }: LegsRequest,
    placement: Placement,
    decision: Decision,
    body: Uint8Array,
    waitedMs: number,
  ): PrefillLeg {
    const { accept: _, ...headers } = upstream.headers
    return new PrefillLeg(this.#parts, {
      placement,
      decision,
      upstream: { ...upstream, headers, body, usageEdit: undefined },
      requestId: routing.requestId,
      waitedMs,
    })
  }

  #failed(leg: PrefillLeg, end: PrefillEnd & { readonly kind: 'failed' }): void {
    const { decision } = leg
    this.#failedWorkers = [...this.#failedWorkers, decision.workerId]
    this.#ended(end.why)
    // One whose connection had as many calls as it takes is not to blame, either.
    if (end.why === 'refused' || (!end.wasReached && !end.isSure)) return
    const fault: WorkerFault = { kind: 'failed', reason: `prefill: ${end.reason}` }
    if (end.isSure) this.#report(decision, fault, leg.calledMs)
    else this.#suspects.push({ decision, fault, calledMs: leg.calledMs })
  }

  #report(decision: Decision, fault: WorkerFault, calledMs: number): void {
    this.#parts.placements.workerFailed({
      type: 'workerFailed',
      workerId: decision.workerId,
      workerJoinedMs: decision.workerJoinedMs,
      model: this.#model,
      fault,
      ageMs: this.#nowMs - calledMs,
    })
  }

  #mayTryOther(isCharged: boolean): boolean {
    const { limits, retryBudget } = this.#parts
    return this.#failedWorkers.length <= limits.retriesMax && !(isCharged && retryBudget.isEmpty)
  }

  /** The request goes whole although a hand-over was wanted; strictly, it is refused. */
  #alone(
    reason: 'inactive' | 'failed' | 'lost',
    { model, requestId }: RoutingRequest,
    why?: string,
  ): LegsEnd {
    const { pools, context } = this.#parts
    const { isEnforced } = pools.settings
    const state = pools.state(model) ?? 'pending'
    const said = why ?? `prefill of this model is ${state}: GET /workers shows the roles of its workers`
    if (isEnforced) return { kind: 'refused', error: toErrorRecord(new NoHandoverError(model, said)) }
    if (reason !== 'inactive')
      context.log.warn({ model, requestId, reason: said }, 'decode worker has all of a request')
    return this.#whole(reason)
  }

  #whole(reason: AloneReason): LegsEnd {
    this.#parts.metrics.decodedAlone(reason)
    return { kind: 'place' }
  }

  /** Why its prompt is computed at the worker that answers; undefined: it is computed apart. */
  async #reasonToStay(routing: RoutingRequest): Promise<'cached' | 'cheaper' | undefined> {
    const { stay } = this.#parts.pools.settings
    const { promptTokens, unknownPromptReason } = routing
    if (stay === undefined || unknownPromptReason !== undefined || promptTokens === 0) return undefined
    if (stay === 'auto') {
      this.#costs = await this.#parts.placements.weighLegs(routing)
      return this.#costs === undefined || goesApart(this.#costs) ? undefined : 'cheaper'
    }
    const measured = await this.#parts.placements.measure(routing)
    if ('code' in measured) return undefined
    const newTokens = promptTokens - measured.cachedTokens
    return newTokens < stay.tokens && newTokens / promptTokens < stay.share ? 'cached' : undefined
  }

  /** Each leg has a body of its own. */
  #hasRoom(body: Uint8Array): boolean {
    try {
      this.#hold.take(LEG_BODIES * body.length)
      return true
    } catch {
      return false
    }
  }

  #ended(outcome: LegOutcome): void {
    this.#parts.metrics.legEnded(outcome)
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}

const LEG_BODIES = 2
const NO_ROOM =
  'the bodies of its legs would be more than all bodies may have together: see --max-bodies-bytes'
const UNFIT = 'several prompts, and members such as echo or kv_transfer_params, need one worker for all of it'
