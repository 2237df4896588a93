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
/** A regret, or a mean of regrets, of each rule. */
export type Regrets = Readonly<Record<ShadowName, number>>

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
    let fewest = activeRequests[first]!
    let least = prefillTokens[first]! * (fewest + 1)
    let byLoad = first
    let byProduct = first
    for (let i = 0; i < count; i++) {
      const requests = activeRequests[i]!
      // Of equals, takes the first one at or after `first`, in turn. Most are worse: one comparison.
      if (requests <= fewest && (requests < fewest || (byLoad < first && i >= first))) {
        fewest = requests
        byLoad = i
      }
      const product = prefillTokens[i]! * (requests + 1)
      if (product <= least && (product < least || (byProduct < first && i >= first))) {
        least = product
        byProduct = i
      }
    }
    this.picks[0] = first
    this.picks[1] = chosen !== undefined && fewest === 0 && isIdle(activeRequests, count) ? chosen : byLoad
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
  count(regrets: Regrets = byShadow(this.regrets)): void {
    const weight = 1 / Math.min(REGRET_DECISIONS, ++this.#decisions)
    this.#add(0, weight, regrets['round-robin'])
    this.#add(1, weight, regrets['least-loaded'])
    this.#add(2, weight, regrets.product)
    this.#turn = (this.#turn + 1) % Number.MAX_SAFE_INTEGER
  }

  #add(s: number, weight: number, regret: number): void {
    this.meanRegrets[s]! += weight * (regret - this.meanRegrets[s]!)
  }
}

/** One value for each rule, in the order of SHADOW_NAMES, by name; written out, as each decision needs it. */
export function byShadow(values: ArrayLike<number>): Regrets {
  return { 'round-robin': values[0]!, 'least-loaded': values[1]!, product: values[2]! }
}

/** No worker has a request. */
function isIdle(activeRequests: ArrayLike<number>, count: number): boolean {
  for (let i = 0; i < count; i++) if (activeRequests[i] !== 0) return false
  return true
}
