/**
 * Exchange end: what happens where an exchange leaves a placement, and at its end, when its client is told
 * and what it holds is freed.
 *
 *   open ──leave──▶ open, to be placed again
 *     └──refuse, fail, passOn, served, gone──▶ settled ──▶ released, once its reader is done
 *
 * Invariants
 *   I1  `leave` is the only place where a placement of the exchange ends: its call ends, its booking is
 *       freed, its receipt is complete.
 *   I2  What the exchange holds is freed once it is settled and its reader is done.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Delivery } from '@homing/placement'
import { UpstreamFailedError } from './errors.ts'
import type { ArrivedRequest, ExchangeSteps } from './exchange-steps.ts'
import { leaseOf } from './keyed-exchange.ts'
import type { Refusal } from './worker-call.ts'

/** How a placement ended. */
export interface Outcome {
  readonly outcome: Delivery['outcome']
  readonly error?: ErrorRecord
  /** False: the worker has not worked on the request. */
  readonly wasTaken: boolean
  /** Default: false. */
  readonly isPlacedAgain?: boolean
  /** Id of the decision for a second worker that was quicker; default: there is none. */
  readonly otherLeg?: string | undefined
}

export class ExchangeEnd {
  readonly #steps: ExchangeSteps
  readonly #arrived: ArrivedRequest
  /** Called when the exchange holds nothing any more. */
  readonly #released: () => void
  /** The reader (or the tokenizer) may still be reading the body. */
  #isBeingRead = true

  constructor(steps: ExchangeSteps, arrived: ArrivedRequest, released: () => void) {
    this.#steps = steps
    this.#arrived = arrived
    this.#released = released
  }

  /** The reader is done with the body. */
  wasRead(): void {
    this.#isBeingRead = false
    if (this.#steps.request.isSettled) this.#release()
  }

  /** Leaves the placement, if there is one, and its call. */
  leave({ outcome, error, wasTaken, isPlacedAgain = false, otherLeg }: Outcome): void {
    const { calls, placing, continuation, slices, legs, figures } = this.#steps
    const call = calls.current
    calls.endSecond()
    const usage = call?.usage
    const placement = placing.leave(outcome === 'ok')
    const whole = continuation.wholeUsage(usage)
    this.#arrived.note?.left({ outcome, error, usage: whole, isStream: call?.isStream })
    this.charge(usage?.completionTokens ?? (call?.isStream === true ? (usage?.eventsCount ?? 0) : 0))
    const sliceTokens = slices.tokensAt(placing.decision?.workerId)
    const elsewhereMs = legs.tookMs
    const { notContinued } = continuation
    const delivery = figures.delivery({
      ...{ outcome, error, otherLeg, notContinued },
      ...{ call, sliceTokens, elsewhereMs },
    })
    calls.end()
    placement?.settle(delivery, wasTaken, isPlacedAgain)
  }

  /** Tokens that the request has taken count against its client. */
  charge(tokens: number): void {
    if (tokens > 0) leaseOf(this.#arrived.http)?.charge(tokens, this.#steps.figures.nowMs)
  }

  /** The client has, or gets with `bytes`, all of a worker's answer. `isSuccess`: it is no error. */
  served(isSuccess: boolean, bytes?: Uint8Array): void {
    this.#settle({ outcome: isSuccess ? 'ok' : 'error', wasTaken: true })
    this.#steps.reply.end(bytes)
  }

  /** A worker's answer, with all of its bytes, is the client's. */
  servedWhole(answer: Refusal): void {
    this.#settle({ outcome: 'ok', wasTaken: true })
    this.#steps.reply.whole(answer)
  }

  /** The request was answered without a worker. */
  servedHere(): void {
    this.#settled()
  }

  /** Refuses a request that was sent to no worker. */
  refuse(given: unknown): void {
    const { reply } = this.#steps
    const thrown = reply.told(given)
    this.#settle({ outcome: 'error', error: toErrorRecord(thrown), wasTaken: false })
    reply.refuse(thrown)
  }

  /** Ends a request that no worker served. */
  fail(given: ErrorRecord, wasTaken: boolean = this.#mayBeTaken): void {
    const { reply, calls, placing, request } = this.#steps
    const error = reply.toldRecord(given)
    const { hasBegun } = request
    const { decision } = placing
    reply.passWhole(calls.current)
    this.#settle({ outcome: 'error', error, wasTaken })
    reply.fail(error, hasBegun, decision)
  }

  /** A refusal that another worker would answer in the same way is the client's answer. */
  passOn(refusal: Refusal): void {
    const { decision, status } = refusal
    if (this.#steps.continuation.isRest)
      this.fail(toErrorRecord(new UpstreamFailedError(decision.worker, `answered ${status}`)))
    else {
      this.#settle({ outcome: 'error', wasTaken: false })
      this.#steps.reply.whole(refusal)
    }
  }

  /** The client has left. */
  gone(): void {
    this.#settle({ outcome: 'aborted', wasTaken: this.#mayBeTaken })
  }

  /** Writing the answer fails, so the answer is cut: it must not look complete. */
  cut(error: ErrorRecord): void {
    this.#settle({ outcome: 'error', error, wasTaken: true })
    this.#arrived.http.destroy()
  }

  /** A worker may have worked on the request. */
  get #mayBeTaken(): boolean {
    return this.#steps.request.state !== 'placing'
  }

  #settle(outcome: Outcome): void {
    this.leave(outcome)
    this.#settled()
  }

  #settled(): void {
    const { request, slices, continuation, failures, placing } = this.#steps
    request.goesTo('settled')
    slices.prefilled()
    continuation.close()
    failures.over(placing.decision?.workerId)
    if (!this.#isBeingRead) this.#release()
  }

  #release(): void {
    const { calls, request } = this.#steps
    calls.release(request.release())
    this.#released()
  }
}
