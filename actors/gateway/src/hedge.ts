/**
 * Hedge: asks a second worker for a stream whose first token is late (--hedge-after). One for each exchange,
 * which owns the first worker's call; this owns the second one's until it has won.
 *
 *   idle ──begin──▶ waiting ──late──▶ placing ──decided──▶ calling ──its token──▶ `take`: the exchange's
 *                      │                 └─ none fits         └─ it fails
 *                      ▼                       ▼                    ▼
 *                    over ◀────────────────────┴────────────────────┴── the first worker answers, or the
 *                                                                       request ends: `end`
 *
 * Invariants
 *   I1  At most one second worker for each request, and none once the first one has sent output.
 *   I2  Its placement is settled exactly once: here, or by the exchange that has taken it.
 *   I3  It is placed within the retry budget, which is charged before the router is asked, once: not again
 *       where the first worker fails and this one has the request. It never waits in the queue, and binds its
 *       session only if it serves the request.
 *   I4  What its worker answers is kept apart from what the first one does, until it has won.
 *   I5  After `end` or `take` nothing of it calls the exchange.
 */

import type { Clock, Timer } from '@homing/base'
import type { FirstTokenTimes } from '@homing/load'
import type { Decision, Delivery, RetryBudget, RoutingRequest } from '@homing/placement'
import type { ReadyRequest } from './exchange-parts.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { HedgeLimits, HedgeOutcome } from './hedge-limits.ts'
import type { Placement, Placements } from './placement.ts'
import { UNCALLED } from './uncalled-delivery.ts'
import type { UpstreamRequest, WorkerCall } from './worker-call.ts'

export interface HedgeParts {
  readonly limits: HedgeLimits
  readonly placements: Placements
  readonly retryBudget: RetryBudget
  readonly firstTokens: FirstTokenTimes
  readonly metrics: Pick<GatewayMetrics, 'hedged' | 'decided' | 'requests'>
  readonly clock: Clock
  /** Tells the tracker that a booking lives. */
  readonly touch: (decisionId: string) => void
}

/** The call that may be late, and how a second one is made. */
export interface HedgedCall {
  readonly ready: ReadyRequest
  /** Of the first worker. */
  readonly decision: Decision
  readonly arrivedMs: number
  /** Workers that are not asked, the first one among them. */
  readonly excludedWorkers: readonly string[]
  readonly call: (decision: Decision, upstream: UpstreamRequest) => WorkerCall
  /** Ends the call of the second worker. */
  readonly drop: (call: WorkerCall) => void
  /** Handles a bug of ours. */
  readonly fault: (thrown: unknown) => void
}

/** The second worker's part of a request. */
export interface HedgeLeg {
  readonly placement: Placement
  readonly decision: Decision
  readonly call: WorkerCall
  /** What was sent there. */
  readonly upstream: UpstreamRequest
  readonly calledMs: number
}

export class FirstTokenHedge {
  readonly #parts: HedgeParts
  #timer: Timer | undefined
  #hedged: HedgedCall | undefined
  #placement: Placement | undefined
  #leg: HedgeLeg | undefined
  #isTried = false
  #isRedone = false

  constructor(parts: HedgeParts) {
    this.#parts = parts
  }

  /** A second worker is being asked. */
  get isCalling(): boolean {
    return this.#leg !== undefined
  }

  /** This is the call to the second worker. */
  owns(call: WorkerCall): boolean {
    return this.#leg?.call === call
  }

  /** The first worker is called. */
  begin(hedged: HedgedCall): void {
    const { limits, firstTokens, clock } = this.#parts
    const { hedgeMsMin = 0, hedgeRule = 'auto' } = limits
    if (hedgeMsMin === 0 || this.#isTried || this.#hedged !== undefined || !mayHedge(hedged.ready)) return
    const usualMs = hedgeRule === 'fixed' ? 0 : firstTokens.lateMs(hedged.decision.prefillTokens)
    if (usualMs === undefined) return
    this.#hedged = hedged
    this.#timer = clock.after(Math.max(hedgeMsMin, usualMs), () => void this.#late().catch(hedged.fault), {
      unref: true,
    })
  }

  /** A sign of life of its booking. */
  look(): void {
    if (this.#leg !== undefined) this.#parts.touch(this.#leg.placement.id)
  }

  /** It had closed an idle connection: its call is made again, once. False: that was done before. */
  redo(): boolean {
    const leg = this.#leg
    if (leg === undefined || this.#isRedone) return false
    this.#isRedone = true
    const { drop, call: newCall } = this.#hedged!
    drop(leg.call)
    const call = newCall(leg.decision, leg.upstream)
    this.#leg = { ...leg, call }
    call.start()
    return true
  }

  /** The second worker failed before its first token; returns what is known of it. */
  failed(): HedgeLeg | undefined {
    const leg = this.#leg
    if (leg !== undefined) this.#over('error', 'failed')
    return leg
  }

  /** The exchange owns that part from now on. `twiceTokens`: the first worker computed them in vain. */
  take(twiceTokens: number): HedgeLeg | undefined {
    const leg = this.#leg
    if (leg === undefined) return undefined
    this.#leg = undefined
    this.#placement = undefined
    this.#hedged = undefined
    this.#parts.metrics.hedged('won', twiceTokens)
    return leg
  }

  /** The first worker answers, or the request ends. */
  end(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    if (this.#hedged === undefined) return
    if (this.#leg !== undefined) this.#over('aborted', 'lost')
    else this.#drop()
  }

  async #late(): Promise<void> {
    const { placements, retryBudget, metrics, clock } = this.#parts
    const hedged = this.#hedged!
    this.#timer = undefined
    this.#isTried = true
    if (!retryBudget.allowsHedge) {
      metrics.hedged('budget', 0)
      this.#hedged = undefined
      return
    }
    const { ready, decision: first, excludedWorkers } = hedged
    const routing: RoutingRequest = {
      ...ready.routing,
      excludedWorkers,
      hedges: { decisionId: first.id },
    }
    // Others that are late now must see it.
    retryBudget.placedAgain()
    const hints = ready.waiting && { ...ready.waiting, doNotQueue: true }
    const placement = placements.ask(routing, hints, clock.nowMs() - hedged.arrivedMs)
    this.#placement = placement
    const answer = await placement.answer
    if (this.#placement !== placement) return
    if ('code' in answer) {
      metrics.hedged('not_placed', 0)
      this.#drop()
      return
    }
    metrics.requests.decided(routing, answer, false)
    metrics.decided(routing, answer)
    const calledMs = clock.nowMs()
    const upstream = { ...ready.upstream, tokens: ready.upstream.tokens?.again() }
    const call = hedged.call(answer, upstream)
    this.#leg = { placement, decision: answer, call, upstream, calledMs }
    call.start()
  }

  /** The second worker's part ends here. */
  #over(outcome: Delivery['outcome'], why: HedgeOutcome): void {
    const { placement, decision, call, calledMs } = this.#leg!
    const { decision: first, drop } = this.#hedged!
    const { status } = call
    this.#leg = undefined
    this.#placement = undefined
    this.#hedged = undefined
    drop(call)
    const durationMs = this.#parts.clock.nowMs() - calledMs
    placement.settle({ ...UNCALLED, outcome, status, durationMs, otherLeg: first.id }, true, true)
    this.#parts.metrics.hedged(why, decision.prefillTokens)
  }

  /** No second worker has been called. */
  #drop(): void {
    const placement = this.#placement
    this.#placement = undefined
    this.#hedged = undefined
    if (placement === undefined) return
    this.#parts.retryBudget.givenBack()
    placement.settle(UNCALLED, false, true)
  }
}

/** A stream of which any worker makes the same, and that has left nothing at the first one. */
function mayHedge({ routing, legs }: ReadyRequest): boolean {
  if (routing.isStream !== true || routing.continues !== undefined) return false
  if (legs === undefined || (legs.route !== 'chat' && legs.route !== 'completions')) return false
  const isPinned = routing.pinnedInstanceId !== undefined || routing.pinnedRank !== undefined
  return !isPinned && legs.prefillPin === undefined && !legs.isWholePin
}
