/** Choice: the winner among the candidates, and every term of every cost. */

import type { Policy } from './policy.ts'
import type { ChoiceTerms } from './types.ts'

/** Owned by the Selector and overwritten by its next `choose`. */
export interface Choice {
  readonly count: number
  /** Index of the winner among the candidates. */
  readonly winner: number
  /**
   * Index of the cheapest other candidate, or of the least loaded other one in the modes that compare load;
   * −1 when there is none.
   */
  readonly runnerUp: number
  /** Pass as `turn` next time; only 'round-robin' advances it. */
  readonly nextTurn: number
  /** Whose costs these are: what its terms are called and measured in. */
  readonly policy: Policy
  /** Which of `policy.rules` the costs follow. */
  readonly rule: number
  /** The weight, credit and temperature that were used, after the override. */
  readonly overlapWeight: number
  readonly overlapCredit: number
  readonly temperature: number
  readonly terms: ChoiceTerms
}
