/**
 * Exchange turns: what an exchange does where its request leaves a worker that has not answered it whole: it
 * leaves the placement, and has the request placed again, or a second worker's call taken over, or another
 * worker go on with the stream, or it ends. Which turn it is worker-failures.ts says.
 *
 *   callAgain    the same worker, once
 *   placeAgain   the second worker's call, if one is being asked; else a new placement
 *   goOn         what is left of the stream, as a request of its own; else its end
 *   fail, passOn the end
 *
 * Invariants
 *   I1  A placement is left before the exchange has, or asks for, the next one. A second worker's part is
 *       taken out of the hedge (`calls.take`) before that, since leaving ends what is there; it is adopted
 *       after it. A worker that is well is left once another one has taken the request (`placing.offer`):
 *       where none does, all stays as it is. Only a stream of which both legs begin anew leaves it first.
 *   I2  What prefill worker or slices have computed is not counted on again, unless no worker has taken it.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { Decision } from '@homing/placement'
import type { UnfitReason } from './continuation-memory.ts'
import { UpstreamFailedError } from './errors.ts'
import type { ExchangeEnd } from './exchange-end.ts'
import type { CommonParts } from './exchange-parts.ts'
import type { Offer } from './exchange-placing.ts'
import type { ExchangeSteps } from './exchange-steps.ts'
import type { HedgeLeg } from './hedge.ts'
import type { ContinuationStep } from './stream-continuation.ts'
import type { Refusal } from './worker-call.ts'
import type { FailedCall, PlaceAgain, Turn } from './worker-failures.ts'

export interface TurnsOwner {
  /** Places the request, as it is now. Never rejects. */
  place(): Promise<void>
  /** Calls the worker of the current decision. */
  call(): void
  /** Runs a step; what it throws ends the exchange. */
  guard(run: () => void): void
  /** Ends the exchange with what a step has thrown. */
  fault(thrown: unknown): void
}

/** Pause between two offers of one request to other workers. */
const OFFER_INTERVAL_MS = 5000

export type TurnsParts = Pick<CommonParts, 'context' | 'metrics' | 'placements' | 'retryBudget'>

export class ExchangeTurns {
  readonly #parts: TurnsParts
  readonly #steps: ExchangeSteps
  readonly #end: ExchangeEnd
  readonly #owner: TurnsOwner
  #nextOfferMs = Number.NEGATIVE_INFINITY
  /** Id of the worker at which its stream stays, since no other one can go on with it. */
  #staysAt: string | undefined
  /** Why its last worker was left; undefined: none was. */
  #leftBecause: ErrorRecord | undefined

  constructor(parts: TurnsParts, steps: ExchangeSteps, end: ExchangeEnd, owner: TurnsOwner) {
    this.#parts = parts
    this.#steps = steps
    this.#end = end
    this.#owner = owner
  }

  /** The current call, as one that fails now. */
  get failed(): FailedCall {
    const { request, figures, calls, continuation } = this.#steps
    const isRelaying = request.state === 'relaying'
    const isRest = !isRelaying && continuation.isRest
    return {
      decision: this.#decision!,
      model: request.ready.routing.model,
      calledMs: figures.attemptMs,
      body: request.givenBody,
      isRelaying,
      isRest,
      mayGoOn: isRest && continuation.canGoOn,
      mayCallAgain: !calls.isRepeated,
      isHedging: calls.isHedging,
    }
  }

  /** What its client is told where no other worker takes it: also why it needs another one. */
  unplaced(error: ErrorRecord): ErrorRecord {
    const because = this.#leftBecause
    return because === undefined ? error : { ...error, message: `${error.message}; ${because.message}` }
  }

  /** The prefill leg has failed while the decode leg waits for it. */
  prefillBroke(reason: string): void {
    if (this.#steps.request.state === 'calling') this.#handoverLost(`no hand-over: ${reason}`)
  }

  /** The request goes on without its hand-over, and its decode worker is not to blame. */
  #handoverLost(reason: string): void {
    const { request, figures, slices, legs } = this.#steps
    const { routing } = request.ready
    const error = toErrorRecord(new UpstreamFailedError(this.#decision!.worker, reason))
    this.#parts.metrics.requests.placedAgain(routing.model, 'broke')
    figures.placedAgain()
    slices.forget()
    this.#end.leave({ outcome: 'error', error, wasTaken: true, isPlacedAgain: true })
    const refused = legs.forget(routing, true)
    if (refused === undefined) void this.#owner.place()
    else this.#end.refuse(fromErrorRecord(refused))
  }

  /** The second worker has sent its first token first: the first one is left. */
  secondWins(): void {
    const { calls, figures, failures } = this.#steps
    const decision = this.#decision!
    const leg = calls.take(decision.prefillTokens)!
    figures.overtaken(decision)
    failures.overtaken(this.failed, leg)
    this.#end.leave({
      outcome: 'aborted',
      wasTaken: true,
      isPlacedAgain: true,
      otherLeg: leg.placement.id,
    })
    this.#adopt(leg)
  }

  /** From now on the second worker's call is that of the exchange. */
  #adopt(leg: HedgeLeg): void {
    const { request, placing, calls, figures } = this.#steps
    request.goesTo('calling')
    request.sent(leg.upstream)
    placing.adopt(leg.placement, leg.decision)
    calls.adopt(leg)
    figures.adopted(leg.decision, leg.calledMs)
  }

  /** The worker refused, and other workers may be tried. */
  refused(status: number, refusal: Refusal | undefined): void {
    const { legs, failures, reply } = this.#steps
    if (legs.isLostBy(status)) {
      this.#parts.retryBudget.placedAgain()
      legs.lostBy(this.#decision!.workerId)
      this.#handoverLost(`answered ${status} to a hand-over`)
      return
    }
    const turn = failures.refused(this.failed, status, refusal)
    if (refusal !== undefined) reply.keep(refusal)
    this.take(turn)
  }

  /** The worker has failed the request. */
  take(turn: Turn): void {
    if (turn.kind === 'passOn') this.#end.passOn(turn.refusal)
    else if (turn.kind === 'fail') this.#end.fail(turn.error, turn.wasTaken)
    else if (turn.kind === 'goOn') this.#goOnOr(turn.error, turn.wasTaken)
    else if (turn.kind === 'placeAgain') this.#placeAgain(turn)
    else {
      this.#steps.calls.repeat()
      this.#owner.call()
    }
  }

  /** `offer`: where, if that is known. */
  #placeAgain(
    { why, reason, wasTaken, isCharged = true, pinnedInstanceId }: PlaceAgain,
    offer?: Offer,
  ): void {
    const { request, placing, calls, figures, failures, slices, legs } = this.#steps
    if (isCharged && !calls.isHedging) this.#parts.retryBudget.placedAgain()
    const { worker, workerId } = this.#decision!
    const { requestId, model } = request.ready.routing
    if (pinnedInstanceId !== undefined) request.pin(pinnedInstanceId)
    this.#parts.metrics.requests.placedAgain(model, why)
    figures.placedAgain()
    if (why === 'drained') failures.leftBlameless(workerId)
    else failures.left(workerId)
    const error = toErrorRecord(new UpstreamFailedError(worker, reason))
    this.#leftBecause = error
    const second = calls.take(0)
    const otherLeg = second?.placement.id
    const outcome = why === 'drained' ? 'aborted' : 'error'
    this.#end.leave({ outcome, error, wasTaken, isPlacedAgain: true, otherLeg })
    if (second !== undefined) {
      this.#adopt(second)
      return
    }
    this.#parts.context.log.warn({ worker, requestId, reason }, 'request is placed again')
    slices.forget()
    const refused = legs.forget(request.ready.routing, wasTaken)
    if (refused !== undefined) this.#end.fail(refused)
    else if (offer === undefined) void this.#owner.place()
    else {
      placing.take(offer)
      this.#owner.call()
    }
  }

  /** Has another worker go on with the stream; else ends it with this error. */
  #goOnOr(error: ErrorRecord, wasTaken = true): void {
    const { request, reply, calls, continuation } = this.#steps
    reply.passWhole(calls.current)
    if (!continuation.mayGoOn()) {
      this.#end.fail(error, wasTaken)
      return
    }
    request.goesTo('continuing')
    calls.abort()
    void this.#continue(error, wasTaken)
  }

  /**
   * Its worker is well, and is to be left for this reason: another one gets the request, or goes on with its
   * stream, if one can; else all stays as it is. A stream of which both legs begin anew leaves it first. Ends
   * when others have been asked, and never rejects; undefined: they are not asked now.
   */
  move(reason: string): Promise<void> | undefined {
    const { nowMs } = this.#steps.figures
    if (nowMs < this.#nextOfferMs || !this.#mayMove) return undefined
    this.#nextOfferMs = nowMs + OFFER_INTERVAL_MS
    return this.#offer(reason).catch((thrown: unknown) => this.#owner.fault(thrown))
  }

  async #offer(reason: string): Promise<void> {
    const { request } = this.#steps
    const { workerId } = this.#decision!
    // What is left once cannot be had back.
    const { routing } = request.ready
    const excludedWorkers = this.#othersThan(workerId)
    const measured = await this.#parts.placements.measure({ ...routing, excludedWorkers })
    if ('code' in measured || !this.#mayLeave(workerId)) return
    if (request.state === 'relaying') await this.#move(reason)
    else await this.#moveUnbegun(reason)
  }

  /** Nothing of its answer has come: its worker is left once another one has taken the request. */
  async #moveUnbegun(reason: string): Promise<void> {
    const { request, calls, placing } = this.#steps
    const { workerId } = this.#decision!
    const body = request.hasBegun ? undefined : request.givenBody
    const asked = { body, excludedWorkers: this.#othersThan(workerId) }
    const isAsked = !calls.isHedging
    const offer = isAsked ? await placing.offer(request.ready, asked) : undefined
    // A hedge that is under way is preferred to the offer.
    const isUnbegun = this.#mayLeave(workerId) && request.state === 'calling'
    if (isUnbegun && (offer !== undefined || calls.isHedging))
      this.#owner.guard(() => {
        request.waitsNoMore()
        const again = {
          kind: 'placeAgain',
          why: 'drained',
          reason,
          wasTaken: true,
          isCharged: false,
        } as const
        this.#placeAgain(again, offer)
      })
    placing.drop(offer)
  }

  /** Workers that are not asked if this one is left. */
  #othersThan(workerId: string): readonly string[] {
    return [...this.#steps.failures.workers, workerId]
  }

  #mayLeave(workerId: string): boolean {
    return this.#decision!.workerId === workerId && this.#mayMove
  }

  /** Whether another worker may take over from one that is well. */
  get #mayMove(): boolean {
    const { request, continuation, legs } = this.#steps
    if (request.state === 'relaying')
      return this.#staysAt !== this.#decision!.workerId && continuation.mayMove
    // What was handed over is there already, so its stream begins soon.
    if (request.state !== 'calling' || request.ready.legs === undefined || legs.isHanded) return false
    const { routing, upstream } = request.ready
    // What such a rest says is known before its client has it.
    return routing.pinnedInstanceId === undefined && upstream.tokens?.resumed === undefined
  }

  #move(reason: string): Promise<void> {
    const { request, calls } = this.#steps
    const { worker, workerId } = this.#decision!
    request.goesTo('continuing')
    calls.holdBack()
    return this.#continue(toErrorRecord(new UpstreamFailedError(worker, reason)), true, isForGood => {
      if (isForGood) this.#staysAt = workerId
      request.goesTo('relaying')
      calls.letGo()
    })
  }

  /**
   * `error`: what the client gets if no worker can go on with it. `stays`: called in place of that, and of
   * the end of the stream, with whether that holds until its end; default: it cannot stay.
   */
  async #continue(
    error: ErrorRecord,
    wasTaken: boolean,
    stays?: (isForGood: boolean) => void,
  ): Promise<void> {
    const { request, placing, continuation, figures, failures, slices, legs } = this.#steps
    const { id: decisionId, worker, workerId } = this.#decision!
    const { requestId } = request.ready.routing
    const { log } = this.#parts.context
    const step = await continuation.next(stays === undefined)
    if (request.state !== 'continuing') return
    // If both legs begin anew, the worker is left before the request is placed.
    const mayStay = stays !== undefined && !legs.beginsAnew
    const offer = mayStay && step.kind === 'place' ? await this.#offerRest(step, decisionId) : undefined
    try {
      if (request.state !== 'continuing') return
      if (mayStay && step.kind === 'place' && offer === undefined) {
        continuation.stays()
        this.#owner.guard(() => stays(false))
      } else if (stays !== undefined && step.kind !== 'place')
        this.#owner.guard(() => stays(staysForGood(step)))
      else if (step.kind === 'end') this.#owner.guard(() => this.#end.served(true, step.bytes))
      else if (step.kind === 'place') {
        log.warn({ worker, requestId, reason: error.message }, 'stream is continued elsewhere')
        const outcome = stays === undefined ? 'error' : 'aborted'
        this.#end.leave({ outcome, error, wasTaken, isPlacedAgain: true })
        continuation.goesOn(error)
        figures.goesOn()
        failures.leftCut(workerId)
        slices.forget()
        const refused = legs.forget(request.ready.routing, true)
        request.goesOn(step, decisionId)
        if (refused !== undefined) this.#end.fail(refused)
        else if (offer === undefined) void this.#owner.place()
        else
          this.#owner.guard(() => {
            placing.take(offer)
            this.#owner.call()
          })
      } else {
        if (step.kind === 'unread')
          log.warn({ worker, requestId, error: step.error }, 'what is left of a stream cannot be read')
        this.#end.fail(error)
      }
    } finally {
      placing.drop(offer)
    }
  }

  /** A placement of the rest of a stream whose worker is well. */
  #offerRest(
    { ready, deliveredTokens }: ContinuationStep & { readonly kind: 'place' },
    decisionId: string,
  ): Promise<Offer | undefined> {
    const routing = { ...ready.routing, continues: { decisionId, deliveredTokens } }
    const excludedWorkers = this.#othersThan(this.#decision!.workerId)
    return this.#steps.placing.offer({ ...ready, routing }, { body: undefined, excludedWorkers })
  }

  get #decision(): Decision | undefined {
    return this.#steps.placing.decision
  }
}

/** Whether a stream stays at its worker until its end: no other worker can go on with it later, either. */
function staysForGood(step: ContinuationStep): boolean {
  return step.kind === 'end' || (step.kind === 'unfit' && !PASSING.has(step.why))
}

/** Room comes, a tokenizer answers again, a text goes on behind what may have been a stop string. */
const PASSING: ReadonlySet<UnfitReason> = new Set(['memory', 'prompt', 'stops'])
