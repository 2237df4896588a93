/** Decision: where a request goes, or why it goes nowhere yet. */

import type { ErrorRecord } from '@homing/base'
import type { Trust } from '@homing/index'
import type { FirstSlice } from './routing-request.ts'

/** The answer to `decide`: where to send the request. */
export interface Decision {
  readonly id: string
  readonly workerId: string
  /** From the worker's record: tells lives of the same worker id apart. */
  readonly workerJoinedMs: number
  readonly worker: string
  readonly workerSlot: number
  readonly origin: string
  readonly dpRank: number
  /** The worker has more than one rank, so the engine must be told which. */
  readonly pinRank: boolean
  /** The router has an API key for the worker: a 401 is not the client's fault. */
  readonly usesKey: boolean
  /** Its engine family knows `stream_options.include_usage`. */
  readonly takesUsageOption: boolean
  readonly overlapBlocks: number
  readonly blockSizeTokens: number
  /** The largest overlap of a candidate. */
  readonly bestOverlapBlocks: number
  /** Time that the look into the index took, and the whole choice, in milliseconds. */
  readonly lookupMs: number
  readonly decisionMs: number
  /** Prompt tokens that the worker is predicted to compute. */
  readonly prefillTokens: number
  /** Tokens of the prompt that are predicted to be cached. */
  readonly predictedTokens: number
  /** The part of `predictedTokens` that is guessed: it counts as cached because it was sent there. */
  readonly guessedTokens: number
  /** The part in pooled memory, behind all others: events of other workers may have said so. */
  readonly pooledTokens: number
  readonly trust: Trust
  /** Its answer will say nothing about the cache; default false. */
  readonly isUnaudited?: boolean
  /** It is for the first slice of the prompt only; undefined: for all of it. */
  readonly slice?: FirstSlice
  /** Worker key of its prefill leg; undefined: it has none. */
  readonly prefillWorker?: string
  /** Ids of workers that are left out because they fail requests; default: none. */
  readonly unwell?: readonly string[]
  /** Epoch of the worker key in the fleet at the time of the choice. */
  readonly epoch: number
}

/** What the router knows of a request before it is placed; see `DecideResult`. */
export interface Measured {
  readonly cachedTokens: number
  readonly boundWorker: string | undefined
}

/**
 * `refused`: the error says why and what would help. `busy`: the request must wait; nothing was booked,
 * counted or kept. `cachedTokens`: how much of the prompt the best eligible worker holds. `falls`: the
 * tracker's count of load falls when the router looked; undefined if the router knows of no probed worker
 * yet. `boundWorker`: the worker key to which the session is bound, if only that one may take the request.
 */
export type DecideResult =
  | { readonly kind: 'decided'; readonly decision: Decision }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }
  | ({ readonly kind: 'busy'; readonly falls: number | undefined } & Measured)
