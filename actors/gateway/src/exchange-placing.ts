/**
 * Exchange placing: from a request that has been read to the decision for the worker that answers it, and the
 * placement that the exchange has by then, until it leaves that. What comes before that worker's turn comes
 * here: the leg of a prefill worker (exchange-legs.ts), the slices of a long prompt (exchange-slices.ts).
 *
 *   placing ──▶ call: a worker is to be called
 *      │ ▲ ├──▶ unplaced: the queue or the router refuses, or the prompt breaks workers
 *      │ │ └──▶ sliceLost: the worker that has computed slices takes nothing more
 *      ▼ │
 *   prefilling ──▶ refused, or answered: the first token was all of the answer
 *   slicing ─────▶ refused
 *
 * Invariants
 *   I1  At most one placement at a time; slices own theirs. `leave` hands it to the exchange, which settles
 *       it. The caller of `offer` takes the offer after `leave`, or settles it (`drop`).
 *   I2  After `leave`, `run` begins nothing more, and ends with `left`. What it answers reaches the caller a
 *       few microtasks later, so the caller looks once more whether it was settled meanwhile.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Decision, RoutingRequest } from '@homing/placement'
import { DeadlyPromptError } from './errors.ts'
import type { ExchangeFigures } from './exchange-figures.ts'
import type { ExchangeLegs, LegsEnd, LegsRequest } from './exchange-legs.ts'
import type { CommonParts } from './exchange-parts.ts'
import type { ExchangeRequest } from './exchange-request.ts'
import type { ExchangeSlices } from './exchange-slices.ts'
import type { Placement } from './placement.ts'
import { DEADLINE } from './placing-codes.ts'
import { UNCALLED } from './uncalled-delivery.ts'

/** What is asked for. */
export interface Asked {
  /** As the client sent it; undefined: there is none, or how often it goes on is bounded otherwise. */
  readonly body: Uint8Array | undefined
  /** No worker was called yet. */
  readonly isFirst: boolean
  /** Ids of the workers that are not to get it. */
  readonly excludedWorkers: readonly string[]
}

/** A placement at another worker, while the exchange still has its own. */
export interface Offer {
  readonly placement: Placement
  readonly decision: Decision
  readonly routing: RoutingRequest
  readonly askedMs: number
  isTaken: boolean
}

export interface PlacingOwner {
  /** It asks for the first placement. */
  waits(): void
  /** A worker gets the first slice. */
  sent(): void
}

export type PlacingEnd =
  | { readonly kind: 'call' }
  | { readonly kind: 'unplaced'; readonly error: ErrorRecord }
  | { readonly kind: 'sliceLost'; readonly error: ErrorRecord }
  | Exclude<LegsEnd, { readonly kind: 'place' }>
  /** The exchange has left it meanwhile. */
  | typeof LEFT

const LEFT = { kind: 'left' } as const

/** Steps of the same exchange that it goes through. */
export interface PlacingSteps {
  readonly request: ExchangeRequest
  readonly legs: ExchangeLegs
  readonly slices: ExchangeSlices
  readonly figures: ExchangeFigures
}

export type PlacingParts = Pick<CommonParts, 'context' | 'placements' | 'deadlyPrompts' | 'tracker'>

export class ExchangePlacing {
  readonly #parts: PlacingParts
  readonly #request: ExchangeRequest
  readonly #legs: ExchangeLegs
  readonly #slices: ExchangeSlices
  readonly #figures: ExchangeFigures
  readonly #owner: PlacingOwner
  #placement: Placement | undefined
  #decision: Decision | undefined

  constructor(parts: PlacingParts, { request, legs, slices, figures }: PlacingSteps, owner: PlacingOwner) {
    this.#parts = parts
    this.#request = request
    this.#legs = legs
    this.#slices = slices
    this.#figures = figures
    this.#owner = owner
  }

  /** The last decision, also of a placement that was left; undefined: none yet. */
  get decision(): Decision | undefined {
    return this.#decision
  }

  /** Asks until a worker is to be called, or the request is not placed. */
  async run(asked: Asked): Promise<PlacingEnd> {
    const { body, isFirst } = asked
    const { ready } = this.#request
    for (;;) {
      this.#request.goesTo('placing')
      const brokenBy = body && this.#parts.deadlyPrompts.brokenBy(body, this.#nowMs)
      if (brokenBy !== undefined)
        return { kind: 'unplaced', error: toErrorRecord(new DeadlyPromptError(brokenBy)) }
      if (isFirst && !this.#slices.wereTried) this.#owner.waits()
      if (this.#legs.mayBegin(ready)) {
        this.#request.goesTo('prefilling')
        const end = await this.#legs.run(ready, this.#ageMs)
        if (this.#request.isSettled) return LEFT
        if (end.kind === 'place') continue
        return end
      }
      const end = await this.#ask(asked)
      if (this.#request.isSettled) return LEFT
      if ('kind' in end) return end
      const { placement, decision } = end
      if (!placement.isSliced || decision.slice === undefined) return { kind: 'call' }
      this.#request.goesTo('slicing')
      this.#owner.sent()
      this.#placement = undefined
      const waitedMs = this.#ageMs
      const sliced = await this.#slices.run({ ready, prompt: ready.prompt!, placement, decision, waitedMs })
      if (this.#request.isSettled) return LEFT
      if (sliced.kind === 'refused') return sliced
    }
  }

  /**
   * Asks for a placement of this request at another worker, and keeps its own. It was admitted before, so it
   * does not wait, and busy thresholds leave out no worker. Undefined: no worker takes it now.
   */
  async offer(
    ready: LegsRequest,
    { body, excludedWorkers }: Omit<Asked, 'isFirst'>,
  ): Promise<Offer | undefined> {
    const { deadlyPrompts, placements } = this.#parts
    if (body !== undefined && deadlyPrompts.brokenBy(body, this.#nowMs) !== undefined) return undefined
    const asked = { ...ready.routing, excludedWorkers, isAdmitted: true }
    const routing = this.#legs.isHanded ? asked : this.#legs.routing(asked)
    const askedMs = this.#nowMs
    const placement = placements.ask(routing, undefined, this.#ageMs)
    const decision = await placement.answer
    if (!('code' in decision)) return { placement, decision, routing, askedMs, isTaken: false }
    placement.settle({ ...UNCALLED, error: decision }, false, true)
    return undefined
  }

  /** The exchange, which has left its placement, has this one from now on. */
  take(offer: Offer): void {
    const { placement, decision, routing, askedMs } = offer
    offer.isTaken = true
    this.#placement = placement
    this.#decision = decision
    this.#figures.decided(routing, decision, askedMs, false)
  }

  /** Settles an offer that was not taken. */
  drop(offer: Offer | undefined): void {
    if (offer?.isTaken === false) offer.placement.settle(UNCALLED, false, true)
  }

  /** The exchange has the placement of a second worker from now on. */
  adopt(placement: Placement, decision: Decision): void {
    this.#placement = placement
    this.#decision = decision
  }

  /** The prefill is over. `teaches`: when that was shows how fast its worker is. */
  prefilled(teaches: boolean): void {
    const placement = this.#placement!
    this.#parts.tracker.tell({ type: 'prefillComplete', decisionId: placement.id, teaches })
    placement.prefilled()
    this.#slices.prefilled()
  }

  /** The first token of a stream came so long after the call. */
  firstToken(firstTokenMs: number): void {
    this.#placement!.firstToken(firstTokenMs)
  }

  /** A sign of life of its booking. */
  touch(outputTokens: number | undefined): void {
    this.#parts.tracker.tell({ type: 'touch', decisionId: this.#placement!.id, outputTokens })
  }

  /**
   * Ends what is under way. Returns the placement, which the caller settles; undefined: there is none.
   * `isServed`: the client has its answer.
   */
  leave(isServed: boolean): Placement | undefined {
    const placement = this.#placement
    this.#placement = undefined
    this.#slices.abort()
    this.#legs.left(isServed)
    return placement
  }

  async #ask({
    isFirst,
    excludedWorkers,
  }: Asked): Promise<{ placement: Placement; decision: Decision } | PlacingEnd> {
    const { ready } = this.#request
    const slice = this.#slices.computed
    const routing = this.#legs.routing({ ...ready.routing, excludedWorkers, slice })
    const { isHanded } = this.#legs
    const askedMs = this.#nowMs
    const placement = this.#parts.placements.ask(
      routing,
      // What was computed for it waits elsewhere, and not for long.
      isHanded ? undefined : ready.waiting,
      this.#ageMs - this.#slices.computingMs - this.#legs.tookMs,
      isFirst && !isHanded && this.#slices.mayBegin(ready),
    )
    this.#placement = placement
    const answer = await placement.answer
    if (this.#placement !== placement) return LEFT
    if ('code' in answer) {
      // The worker of its slices is gone.
      if (slice !== undefined && answer.code !== DEADLINE) return { kind: 'sliceLost', error: answer }
      return { kind: 'unplaced', error: answer }
    }
    this.#decision = this.#legs.decision(answer)
    // The worker of a prompt in slices was chosen, and counted, before them.
    this.#figures.decided(routing, answer, askedMs, slice !== undefined)
    return { placement, decision: answer }
  }

  get #ageMs(): number {
    return this.#nowMs - this.#figures.arrivedMs
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}
