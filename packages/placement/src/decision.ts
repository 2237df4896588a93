/** Decision: where a request goes, or why it goes nowhere yet. */

import type { ErrorRecord } from '@homing/base'
import type { Trust } from '@homing/index'

/** The answer to `decide`: where to send it. */
export interface Decision {
  readonly id: string
  readonly workerId: string
  /** As in its record: which life of this id it is. */
  readonly workerJoinedMs: number
  readonly worker: string
  readonly workerSlot: number
  readonly origin: string
  readonly dpRank: number
  /** More than one rank: the engine must be told which. */
  readonly pinRank: boolean
  /** The router has an API key for it: a 401 is not the client's fault. */
  readonly usesKey: boolean
  /** Its engine is of a family that knows `stream_options.include_usage`. */
  readonly takesUsageOption: boolean
  readonly overlapBlocks: number
  readonly blockSizeTokens: number
  /** The largest overlap of a candidate. */
  readonly bestOverlapBlocks: number
  /** Time that the look into the index took, and the whole choice, in milliseconds. */
  readonly lookupMs: number
  readonly decisionMs: number
  /** Tokens of the prompt that are predicted to be cached. */
  readonly predictedTokens: number
  /** The part of those that counts as cached because it was sent there. */
  readonly guessedTokens: number
  readonly trust: Trust
  /** Epoch of the worker key, according to the fleet, when it was chosen. */
  readonly epoch: number
}

/** What the router says of a request before it is placed; see `DecideResult`. */
export interface Measured {
  readonly cachedTokens: number
  readonly boundWorker: string | undefined
}

/**
 * `refused`: the error says why and what would help. `busy`: it is to wait; nothing was booked, counted or
 * kept. `cachedTokens`: what the best of the workers that could take it holds of its prompt; `falls`: the
 * tracker's count when the router looked, undefined if no worker has been probed yet, as far as it knows.
 * `boundWorker`: the worker key to which its session is bound, if only that one may take it.
 */
export type DecideResult =
  | { readonly kind: 'decided'; readonly decision: Decision }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }
  | ({ readonly kind: 'busy'; readonly falls: number | undefined } & Measured)
