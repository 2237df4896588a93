/** The account of one tenant. */

import { FadingSum } from './drain-rate.ts'
import type { RefusalReason } from './types.ts'

export class Tenant {
  readonly name: string
  readonly weight: number
  waitingRequests = 0
  waitingTokens = 0
  askedRequests = 0
  askedLong = 0
  servedRequests = 0
  servedTokens = 0
  readonly recentTokens = new FadingSum()
  /** Undefined until the first; there may be many tenants. */
  refused: Map<RefusalReason, number> | undefined
  /** Workers that compute a long prompt of it. */
  longPromptWorkers = 0
  /** Long prompts of it that workers compute. */
  longPrompts = 0
  /** Requests of it that engines still count. */
  openCharges = 0
  idleSinceMs = 0

  constructor(name: string, weight: number) {
    this.name = name
    this.weight = weight
  }

  get isIdle(): boolean {
    return (
      this.waitingRequests === 0 &&
      this.askedRequests === 0 &&
      this.longPromptWorkers === 0 &&
      this.openCharges === 0
    )
  }
}
