import type { Reply } from '@homing/actor'
import type { FleetMessage, Trust } from '@homing/directory'
import type { ErrorRecord } from '@homing/errors'
import type { KeyLayer } from '@homing/index'
import type { ShardMemoryMessage } from '@homing/indexer'
import type { KeyAudit } from '@homing/selection'

/** Per-request settings that override the router's own; unset fields fall back. */
export interface RouterOverride {
  readonly overlapScoreWeight?: number
  readonly temperature?: number
}

/** What the router must know of a request to place it. */
export interface RoutingRequest {
  readonly requestId: string
  /** As the client named it: a base model or an adapter. */
  readonly model: string
  readonly promptTokens: number
  readonly blockSizeTokens: number
  /** Local and sequence hashes [lo, hi] of the full prompt blocks; empty where the prompt is not known. */
  readonly localHashes: Int32Array
  readonly sequenceHashes: Int32Array
  /** Why the prompt is not known; undefined when it is. */
  readonly unknownPrompt: string | undefined
  /** Why the hashes are of pieces of its text, which only what was sent before can match; undefined: they are not. */
  readonly textBlocks: string | undefined
  readonly override: RouterOverride
  readonly pinnedInstanceId: number | undefined
  readonly pinnedRank: number | undefined
  /** Worker ids that have failed this request already. */
  readonly excludedWorkers: readonly string[]
}

/** Blocks of a prompt that a worker key is credited with in one layer. */
export interface LayerTerm {
  readonly layer: KeyLayer
  readonly blocks: number
  /** What each of them counts for, 0 … 1. */
  readonly factor: number
}

/** One candidate in a receipt, every term of its cost. */
export interface CandidateTerms {
  readonly worker: string
  readonly trust: Trust
  /** Of all layers together. */
  readonly overlapBlocks: number
  /** What they count for, 0 … 1: the mean over the blocks of `layers`. */
  readonly creditFactor: number
  /** Layers with blocks; none where all of them are on the device. */
  readonly layers: readonly LayerTerm[]
  readonly activePrefillTokens: number
  readonly prefillTokens: number
  readonly prefillBlocks: number
  readonly activeBlocks: number
  readonly newBlocks: number
  readonly decodeBlocks: number
  readonly activeRequests: number
  readonly costBlocks: number
  readonly probability: number
}

/** What was delivered, filled in when the answer has ended. */
export interface Delivery {
  readonly outcome: 'ok' | 'error' | 'aborted'
  readonly status: number | undefined
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  /** What the engine says it reused; undefined when it does not report it. */
  readonly cachedTokens: number | undefined
  readonly timeToFirstByteMs: number | undefined
  readonly durationMs: number
  readonly error: ErrorRecord | undefined
}

/** Why a request went where it went. */
export interface Receipt {
  readonly id: string
  readonly requestId: string
  /** Unix milliseconds. */
  readonly atMs: number
  /** The router's mode; 'least-loaded' instead of 'kv' where the prompt is not known. */
  readonly mode: string
  readonly model: string
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly promptBlocks: number
  readonly unknownPrompt: string | undefined
  readonly textBlocks: string | undefined
  readonly overlapScoreWeight: number
  readonly temperature: number
  readonly worker: string
  readonly runnerUp: string | undefined
  /** Of what the worker is credited with: `approximate` where a part of it is predicted, whatever its events are worth. */
  readonly trust: Trust
  readonly overlapBlocks: number
  readonly candidates: readonly CandidateTerms[]
  /** Candidates that were there and are no longer in the list: the receipt is old, and memory for them bounded. */
  readonly candidatesLeftOut: number
  /** Workers that serve the model but could not be chosen, with the reason. */
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
  readonly excludedLeftOut: number
  readonly decisionMs: number
  readonly delivery: Delivery | undefined
}

/** The answer to `decide`: where to send it. */
export interface Decision {
  readonly id: string
  readonly workerId: string
  readonly worker: string
  readonly workerSlot: number
  readonly origin: string
  readonly dpRank: number
  /** More than one rank: the engine must be told which. */
  readonly pinRank: boolean
  /** Its engine is of a family that knows `stream_options.include_usage`. */
  readonly takesUsageOption: boolean
  readonly overlapBlocks: number
  readonly blockSizeTokens: number
  /** Tokens of the prompt that are predicted to be cached. */
  readonly predictedTokens: number
  /** Of those, what is taken to be cached because it was sent there. */
  readonly guessedTokens: number
  readonly trust: Trust
  /** Of the worker key, as the fleet said when it was chosen. */
  readonly epoch: number
}

/** `refused`: the error says why and what would help. */
export type DecideResult =
  | { readonly kind: 'decided'; readonly decision: Decision }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }

export type RouterMessage =
  | FleetMessage
  | ShardMemoryMessage
  /** Asks the indexers where their shards are. Of the router to itself. */
  | { readonly type: 'attachToShards' }
  /** Chooses and books; the booking exists before the reply. */
  | { readonly type: 'decide'; readonly request: RoutingRequest; readonly reply: Reply<DecideResult> }
  /** The receipt that `decide` would write; changes nothing. */
  | {
      readonly type: 'explain'
      readonly request: RoutingRequest
      readonly reply: Reply<Receipt | ErrorRecord>
    }
  | { readonly type: 'delivered'; readonly decision: Decision; readonly delivery: Delivery }
  /** What was predicted against what was delivered, per worker key. */
  | { readonly type: 'audits'; readonly reply: Reply<readonly KeyAudit[]> }
  | { readonly type: 'receipt'; readonly id: string; readonly reply: Reply<Receipt | undefined> }
  | { readonly type: 'receipts'; readonly limit: number; readonly reply: Reply<readonly Receipt[]> }
