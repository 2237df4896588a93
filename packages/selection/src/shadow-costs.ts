/**
 * Shadow costs: the workers that simpler rules would have taken for the same request, and their costs in this
 * decision.
 *
 *   round-robin   the next in its own turn
 *   least-loaded  the fewest active requests; of equals, the first from that turn on
 *   product       the least prefill tokens · (active requests + 1), likewise
 *
 *   regret = cost of the candidate that was taken − cost of the one that the rule would have taken
 *
 * Below 0: the rule would have cost more. Regrets come from the cost model; the guard checks whether the
 * model is right.
 *
 * Cost: one pass over the candidates, without allocation.
 */

import type { Candidates, ChoiceTerms } from './types.ts'

export const SHADOW_NAMES = ['round-robin', 'least-loaded', 'product'] as const
export type ShadowName = (typeof SHADOW_NAMES)[number]

/** Running means reach back this many decisions. */
export const REGRET_DECISIONS = 1000

export class ShadowCosts {
  /** Element s: index of the candidate that rule s of SHADOW_NAMES would take. Overwritten by `find`. */
  readonly picks = new Int32Array(SHADOW_NAMES.length)
  /** Element s: regret of the decision, in the unit of the costs. Overwritten by `score`. */
  readonly regrets = new Float64Array(SHADOW_NAMES.length)
  /** Element s: mean regret of the last decisions. */
  readonly meanRegrets = new Float64Array(SHADOW_NAMES.length)
  #decisions = 0
  #turn = 0

  /** Decisions that were counted. */
  get decisions(): number {
    return this.#decisions
  }

  /** Index of the candidate that least-loaded would take, after `find`. */
  get leastLoaded(): number {
    return this.picks[1]!
  }

  /**
   * Fills `picks` and changes nothing else. Needs at least one candidate and the terms of the costs.
   * `chosen`: the chosen candidate. If no worker has a request, least-loaded takes it, too, so there is no
   * experiment: an idle fleet follows its caches.
   */
  find({ count, activeRequests }: Candidates, { prefillTokens }: ChoiceTerms, chosen?: number): void {
    const first = this.#turn % count
    let requestsOfAll = 0
    let fewest = activeRequests[first]!
    let least = prefillTokens[first]! * (fewest + 1)
    let byLoad = first
    let byProduct = first
    for (let i = 0; i < count; i++) {
      const requests = activeRequests[i]!
      requestsOfAll += requests
      // Of equals, takes the first one at or after `first`, in turn.
      if (requests < fewest || (requests === fewest && byLoad < first && i >= first)) {
        fewest = requests
        byLoad = i
      }
      const product = prefillTokens[i]! * (requests + 1)
      if (product < least || (product === least && byProduct < first && i >= first)) {
        least = product
        byProduct = i
      }
    }
    this.picks[0] = first
    this.picks[1] = chosen !== undefined && requestsOfAll === 0 ? chosen : byLoad
    this.picks[2] = byProduct
  }

  /** Fills `regrets` for a candidate that may be taken. Changes nothing else. */
  score({ cost }: ChoiceTerms, taken: number): void {
    for (let s = 0; s < this.picks.length; s++) {
      const regret = cost[taken]! - cost[this.picks[s]!]!
      this.regrets[s] = Number.isFinite(regret) ? regret : 0
    }
  }

  /** Counts the regrets of a decision, by default of the last `score`, and advances the turn. */
  count(regrets: ArrayLike<number> = this.regrets): void {
    const { meanRegrets } = this
    const weight = 1 / Math.min(REGRET_DECISIONS, ++this.#decisions)
    for (let s = 0; s < meanRegrets.length; s++) meanRegrets[s]! += weight * (regrets[s]! - meanRegrets[s]!)
    this.#turn = (this.#turn + 1) % Number.MAX_SAFE_INTEGER
  }
}
