/** How long a request that comes now is expected to wait. */

import type { ClassAccount } from './entry.ts'
import type { Tenant } from './tenant.ts'

export interface Waiting {
  readonly classes: readonly ClassAccount[]
  /** The weights of all tenants that have something waiting, together. */
  readonly waitingWeight: number
  /** How fast the queue drains; undefined: nothing has drained yet. */
  readonly tokensPerMs: number | undefined
}

/**
 * In ms: until what waits of the tenant, of the class, or of all has drained at the share that each has,
 * whichever is first. undefined: nothing has drained yet.
 */
export function expectedWaitMs(
  { classes, waitingWeight, tokensPerMs }: Waiting,
  policyClass: ClassAccount | undefined,
  tenant: Tenant | undefined,
): number | undefined {
  if (tokensPerMs === undefined) return undefined
  let quanta = 0
  let waitingTokens = 0
  for (const { policy, waitingRequests, waitingUncachedTokens } of classes) {
    if (waitingRequests > 0) quanta += policy.quantum
    waitingTokens += waitingUncachedTokens
  }
  if (policyClass !== undefined) {
    const { waitingRequests, waitingUncachedTokens, policy } = policyClass
    const all = waitingRequests > 0 ? quanta : quanta + policy.quantum
    waitingTokens = Math.min(waitingTokens, (waitingUncachedTokens * all) / policy.quantum)
  }
  if (tenant !== undefined) {
    const ofTenant = (tenant.waitingTokens * waitingWeight) / tenant.weight
    waitingTokens = Math.min(waitingTokens, ofTenant)
  }
  return waitingTokens / tokensPerMs
}
