/** Routing request: what must be known of a request to place it. */

import type { SeparatedPrompt } from '@homing/protocol'
import type { SelectionOverride, WorkerConstraints } from '@homing/selection'
import type { RequestTracking } from './tracking.ts'

/** What the router must know of a request to place it. */
export interface RoutingRequest {
  readonly requestId: string
  /** As the client named it: a base model or an adapter. */
  readonly model: string
  readonly promptTokens: number
  readonly blockSizeTokens: number
  /** Its answer comes token by token. Default: it does not. */
  readonly isStream?: boolean
  /** Tokens that the answer is expected to have; undefined: nobody says. */
  readonly expectedOutputTokens?: number | undefined
  /** What of it counts as load; undefined: as the settings have it. */
  readonly tracking?: RequestTracking | undefined
  /** Local and sequence hashes [lo, hi] of the full prompt blocks; empty where the prompt is not known. */
  readonly localHashes: Int32Array
  readonly sequenceHashes: Int32Array
  /** Why the prompt is not known; undefined when it is. */
  readonly unknownPromptReason: string | undefined
  /**
   * Why the hashes are of pieces of its text, which only what was sent before can match; undefined: they are
   * not.
   */
  readonly textBlocksReason: string | undefined
  /** How it begins in events that do not name its separators (packages/protocol); undefined: it has none. */
  readonly separated?: SeparatedPrompt | undefined
  /** The client's name for the conversation, where it gives one. */
  readonly sessionId?: string | undefined
  /** Replaces the router's own settings; unset members leave them as they are. */
  readonly override: SelectionOverride
  /** Undefined: any worker may take it. */
  readonly constraints?: WorkerConstraints | undefined
  readonly pinnedInstanceId: number | undefined
  readonly pinnedRank: number | undefined
  /** Worker ids that have failed this request already. */
  readonly excludedWorkers: readonly string[]
}
