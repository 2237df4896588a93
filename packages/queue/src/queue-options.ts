/** How a queue is set up. */

import type { PolicyProfile } from './policy-classes.ts'
import type { QueueRoom } from './queue-room.ts'
import type { UnnamedTenants } from './tenant-names.ts'
import type { QueueRefusal } from './types.ts'

export const CONTENTION_MS_DEFAULT = 30_000
/** What starves gets one placement of 17: the higher priorities lose little by it. */
export const PASSED_OVER_MAX_DEFAULT = 16

export interface PriorityQueueOptions {
  /** Its classes decide the order in each and the shares between them. */
  readonly profile: PolicyProfile
  /** Bounds of what waits; several queues can share one. */
  readonly room: QueueRoom
  /** Worker keys that serve the model: see `setWorkers`. */
  readonly workers: number
  /** A request that waited is not here any more: it made room for one of another tenant, in any queue. */
  readonly displaced?: (id: string, refusal: QueueRefusal) => void
  /** Shares of tenants. */
  readonly tenantWeights?: ReadonlyMap<string, number>
  /** What tenants have that are not in `tenantWeights`, where that names any. Default 'own'. */
  readonly unnamedTenants?: UnnamedTenants
  /**
   * Tenants with an account of their own at one time, beside those in `tenantWeights`; the rest share one.
   * Default 1,024.
   */
  readonly tenantsMax?: number
  /** Tokens of an engine step; prompts with more uncached tokens are long. Default 8,192. */
  readonly stepTokens?: number
  /** The rule for long prompts holds while another tenant was served within this time. Default 30,000. */
  readonly contentionMs?: number
  /** Requests that have waited this long go first: see orders.ts. Default 60,000. */
  readonly agingMs?: number
  /** Placements of higher strict priorities after which one of a lower goes that has aged. Default 16. */
  readonly passedOverMax?: number
  /** Requests at one time that were charged an estimate and can still be corrected. Default 65,536. */
  readonly chargesMax?: number
}
