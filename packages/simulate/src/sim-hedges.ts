/**
 * Sim hedges: requests of a simulated fleet whose first token is late are asked of a second worker, by the
 * rules of the gateway (actors/gateway/src/hedge.ts), on virtual time. The second one is a request of its
 * own, with the index of the first and a half; which of the two has the first token is the request from then
 * on.
 *
 *   sent ──late──▶ asked twice ──first token of either──▶ the other is cancelled
 *             └─ over budget, or no worker fits
 */

import { FirstTokenTimes } from '@homing/load'
import { RetryBudget } from '@homing/placement'
import type { HedgeFigures, HedgeSpec } from './cell-types.ts'
import { newSimRequest, type SimRequest } from './sim-request.ts'

export interface SimHedgesParts {
  /** Places and sends it, if a worker fits. */
  readonly place: (second: SimRequest) => boolean
  /** Ends what is at an engine without a token. `isLate`: a worker that was asked later was quicker. */
  readonly cancel: (request: SimRequest, isLate: boolean) => void
}

interface Due {
  readonly atMs: number
  readonly request: SimRequest
}

export class SimHedges {
  readonly #spec: HedgeSpec
  readonly #parts: SimHedgesParts
  readonly #budget: RetryBudget
  readonly #times = new FirstTokenTimes()
  /** In order of time. */
  #due: Due[] = []
  #taken = 0
  /** Each of two that are asked, to the other. */
  readonly #other = new Map<SimRequest, SimRequest>()
  readonly #figures = { won: 0, lost: 0, notPlaced: 0, overBudget: 0, twiceTokens: 0 }

  constructor(spec: HedgeSpec, parts: SimHedgesParts) {
    this.#spec = spec
    this.#parts = parts
    this.#budget = new RetryBudget(spec.budgetShare)
  }

  get figures(): HedgeFigures {
    return this.#figures
  }

  /** Infinite: none is expected. */
  get nextMs(): number {
    return this.#due[this.#taken]?.atMs ?? Number.POSITIVE_INFINITY
  }

  /** The first worker has got it. */
  sent(request: SimRequest, nowMs: number): void {
    this.#budget.requested()
    const { afterMs, rule } = this.#spec
    const usualMs = rule === 'fixed' ? 0 : this.#times.lateMs(request.bookedTokens)
    if (usualMs === undefined) return
    const due = { atMs: nowMs + Math.max(afterMs, usualMs), request }
    const all = this.#due
    let at = all.length
    while (at > this.#taken && all[at - 1]!.atMs > due.atMs) at--
    all.splice(at, 0, due)
  }

  /** Looks at the request that is due. */
  look(): void {
    const { request } = this.#due[this.#taken++]!
    if (this.#taken > 1024 && this.#taken * 2 > this.#due.length) {
      this.#due = this.#due.slice(this.#taken)
      this.#taken = 0
    }
    if (request.firstTokenMs >= 0) return
    if (!this.#budget.allowsHedge) {
      this.#figures.overBudget++
      return
    }
    const { trace, index, blockIds, blocks, router, answerIds, worker } = request
    const second: SimRequest = {
      ...newSimRequest(trace, index + 0.5, blockIds, blocks, router, answerIds),
      hints: { ...request.hints, excludedWorkers: [String(worker)], hedges: { decisionId: String(index) } },
    }
    if (!this.#parts.place(second)) {
      this.#figures.notPlaced++
      return
    }
    this.#budget.placedAgain()
    this.#other.set(request, second)
    this.#other.set(second, request)
  }

  /** Its first token has come. */
  firstToken(request: SimRequest, nowMs: number): void {
    this.#times.came(request.bookedTokens, nowMs - request.placedMs)
    const other = this.#other.get(request)
    if (other === undefined) return
    this.#other.delete(request)
    this.#other.delete(other)
    const isFirst = Number.isInteger(request.index)
    if (isFirst) this.#figures.lost++
    else {
      this.#figures.won++
      this.#times.came(other.bookedTokens, nowMs - other.placedMs)
    }
    this.#figures.twiceTokens += other.bookedTokens
    this.#parts.cancel(other, !isFirst)
  }
}
