/** Sim guard: the product's guard and shadow costs beside one simulated router, and what they did. */

import type { Random } from '@homing/base'
import { type Candidates, type Choice, Guard, predictedFirstTokenMs, ShadowCosts } from '@homing/selection'
import type { GuardFigures } from './cell-types.ts'
import type { SimRequest } from './sim-request.ts'

export class SimGuard {
  readonly #guard: Guard
  readonly #shadows = new ShadowCosts()
  readonly #random: Random
  readonly #regretSums = new Float64Array(3)
  #decisions = 0
  #controls = 0
  #shrunk = 0
  #shrunkAfter: number | undefined

  constructor(share: number, random: Random) {
    this.#guard = new Guard({ share })
    this.#random = random
  }

  /** The candidate to take: the winner of the choice, or that of the control arm. */
  decide(
    request: SimRequest,
    candidates: Candidates,
    choice: Choice,
    promptTokens: number,
    nowMs: number,
  ): number {
    const guard = this.#guard
    const shadows = this.#shadows
    const { terms, winner } = choice
    shadows.find(candidates, terms, winner)
    const arm =
      shadows.leastLoaded === winner
        ? undefined
        : guard.draw(this.#random, terms.cost[shadows.leastLoaded]! - terms.cost[winner]!)
    const taken = arm === 'control' ? shadows.leastLoaded : winner
    shadows.score(terms, taken)
    shadows.count()
    const { phase } = guard
    if (phase === 'shrunk') {
      this.#shrunkAfter ??= this.#decisions
      this.#shrunk++
    }
    this.#decisions++
    if (arm === 'control') this.#controls++
    for (let s = 0; s < this.#regretSums.length; s++) this.#regretSums[s]! += shadows.regrets[s]!
    const predictedMs = predictedFirstTokenMs(choice, taken)
    request.guarded = guard.decided(arm, promptTokens, predictedMs, nowMs)
    return taken
  }

  /** What it waited at the router is not the worker's. */
  firstToken({ guarded, arrivalMs, waitedMs }: SimRequest, nowMs: number): void {
    if (guarded !== undefined) this.#guard.firstToken(guarded, nowMs - arrivalMs - waitedMs, nowMs)
  }

  /** It is over, or its worker is gone; mostly after its first token. */
  ended(request: SimRequest): void {
    if (request.guarded !== undefined) this.#guard.gone(request.guarded)
    request.guarded = undefined
  }

  audited(predictedTokens: number, cachedTokens: number): void {
    this.#guard.audited(predictedTokens, cachedTokens)
  }

  get figures(): GuardFigures {
    const { shrinks, tests, calibration } = this.#guard.report()
    const decisions = Math.max(1, this.#decisions)
    return {
      ...(this.#shrunkAfter !== undefined && { shrunkAfter: this.#shrunkAfter }),
      shrinks,
      tests,
      controlShare: this.#controls / decisions,
      shrunkShare: this.#shrunk / decisions,
      regretMs: Array.from(this.#regretSums, sum => sum / decisions),
      calibration,
    }
  }
}
