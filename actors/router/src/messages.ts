import type { Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/actors/directory'
import type { ShardMemoryMessage } from '@homing/actors/indexer'
import type { GatewayLife, RequestTracking } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { KeyLayer, Trust } from '@homing/index'
import type { SeparatedPrompt } from '@homing/protocol'
import type { RoomRule } from '@homing/queue'
import type {
  CostDescription,
  GuardArm,
  GuardPhase,
  GuardReport,
  KeyAudit,
  SelectionOverride,
  ShadowName,
  WorkerConstraints,
} from '@homing/selection'

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
  /** Why the hashes are of pieces of its text, which only what was sent before can match; undefined: they are not. */
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
  /** Blocks of all layers together. */
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
  /** What its cost is multiplied by: below 1 if the request prefers its taints, above 1 if it avoids them. */
  readonly preference: number
  /** Element t: the term that `cost.terms[t]` of the receipt describes. */
  readonly terms: readonly number[]
  /** In `cost.unit` of the receipt. */
  readonly cost: number
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
  /** From the arrival of the request to its first call, or to its end where none was made. */
  readonly waitedMs: number
  /** From its first call. */
  readonly timeToFirstByteMs: number | undefined
  /** From its first call. */
  readonly durationMs: number
  /** Events of the answer that passed; undefined: it is no stream. */
  readonly streamEvents: number | undefined
  readonly error: ErrorRecord | undefined
}

/** What the guard had to do with a decision by `auto`. */
export interface GuardReceipt {
  /** Who decided, where it was an experiment; undefined: it was none, and the policy did. */
  readonly arm: GuardArm | undefined
  readonly phase: GuardPhase
  /** Share of the experiments that went by least-loaded then. */
  readonly controlShare: number
  /** Wait and prefill at the chosen worker. */
  readonly predictedFirstTokenMs: number
  /** The cost of the chosen worker minus that of the one that the rule would have taken. */
  readonly regretMs: Readonly<Record<ShadowName, number>>
}

export interface GuardStatus extends GuardReport {
  /** As it was set. */
  readonly share: number
  /** Decisions by `auto`. */
  readonly decisions: number
  /** Mean of the last ones. */
  readonly meanRegretMs: Readonly<Record<ShadowName, number>>
}

/** What the last hour has brought, or the time since the router began. */
export interface HourReport {
  /** How long it looks back. */
  readonly spanMs: number
  /** The oldest first; the last one is not over. */
  readonly minutes: readonly {
    readonly requests: number
    readonly promptTokens: number
    readonly cachedTokens: number
  }[]
  /** Requests that were placed and are over. */
  readonly requests: number
  /** Of answers whose engine says what was cached. */
  readonly promptTokens: number
  readonly cachedTokens: number
  /** Tokens fewer that were charged than if nothing had been cached: element i as the i-th of KNEES charges them. */
  readonly sparedTokens: readonly number[]
  /** Pairs of tokens whose attention was not computed. */
  readonly cachedPairs: number
  /** Streams with a first token, and how long it took from their arrival, to 9 %. */
  readonly firstTokens: number
  readonly firstTokenMs: { readonly p50: number; readonly p90: number; readonly p99: number } | undefined
  /** Mean of what first tokens were off from their prediction, as a share of what they took; undefined: there was none. */
  readonly predictionError: number | undefined
  /** Decisions by `auto`, and the sums of their regrets: below 0, the rule would have cost more. */
  readonly guarded: number
  readonly regretMs: Readonly<Record<ShadowName, number>>
}

/** Why a request went where it went. */
export interface Receipt {
  readonly id: string
  readonly requestId: string
  /** Unix milliseconds. */
  readonly atMs: number
  /** The router's mode; 'least-loaded' instead of 'kv' where the prompt is not known. */
  readonly mode: string
  /** What the costs are made of. Only mode kv chooses by them. */
  readonly cost: CostDescription
  readonly model: string
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly promptBlocks: number
  readonly unknownPromptReason: string | undefined
  readonly textBlocksReason: string | undefined
  readonly overlapWeight: number
  readonly temperature: number
  readonly worker: string
  readonly runnerUp: string | undefined
  /** Trust in the worker's credited overlap: `approximate` if a part of it is guessed, whatever its events are worth. */
  readonly trust: Trust
  readonly overlapBlocks: number
  readonly candidates: readonly CandidateTerms[]
  /** Candidates that were there and are no longer in the list: the receipt is old, and memory for them bounded. */
  readonly candidatesLeftOut: number
  /** Workers that serve the model but could not be chosen, with the reason. */
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
  readonly excludedLeftOut: number
  /** Undefined: another policy or mode decided. */
  readonly guard: GuardReceipt | undefined
  /** Undefined: it went at once. */
  readonly queue?: QueueReceipt | undefined
  readonly decisionMs: number
  readonly delivery: Delivery | undefined
}

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

/** Why a request did not go at once, and how long it waited for that; as the queue saw it last. */
export interface QueueReceipt {
  readonly waitedMs: number
  readonly why: string
  /** How long it was expected to wait when it began; undefined: nothing had drained yet. */
  readonly expectedMs: number | undefined
}

/** What the router says of a request before it is placed; see `DecideResult`. */
export interface Measured {
  readonly cachedTokens: number
  readonly boundWorker: string | undefined
}

/**
 * `refused`: the error says why and what would help. `busy`: it is to wait; nothing was booked, counted or kept. `cachedTokens`: what the
 * best of the workers that could take it holds of its prompt; `falls`: the tracker's count when the router looked, undefined if no worker
 * has been probed yet, as far as it knows. `boundWorker`: the worker key to which its session is bound, if only that one may take it.
 */
export type DecideResult =
  | { readonly kind: 'decided'; readonly decision: Decision }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }
  | ({ readonly kind: 'busy'; readonly falls: number | undefined } & Measured)

/** Where a session was bound by another router. */
export interface AffinityBinding {
  readonly session: string
  /** Worker key. */
  readonly worker: string
}

export type RouterMessage =
  | FleetMessage
  | ShardMemoryMessage
  /** Other routers of the same workers have bound sessions. */
  | { readonly type: 'boundElsewhere'; readonly bindings: readonly AffinityBinding[] }
  /** Asks the indexers where their shards are. Of the router to itself. */
  | { readonly type: 'attachToShards' }
  /**
   * Chooses and books; the booking exists before the reply. Whatever the reply is, and also where none came, `settled` with
   * the same id follows.
   */
  | {
      readonly type: 'decide'
      /** Id of the decision. */
      readonly id: string
      readonly gateway: GatewayLife
      readonly request: RoutingRequest
      /** By ascending `uncachedTokensMin`, the last that applies counts; undefined: it is placed, however busy all are. */
      readonly roomRules?: readonly RoomRule[] | undefined
      /** Undefined: it did not wait. */
      readonly queue?: QueueReceipt | undefined
      readonly reply: Reply<DecideResult>
    }
  /** What the best of the workers that could take it holds of its prompt; changes nothing. */
  | {
      readonly type: 'measure'
      readonly request: RoutingRequest
      readonly reply: Reply<Measured | ErrorRecord>
    }
  /**
   * What was decided is over: its booking is freed, its receipt completed. Where the worker never worked on it
   * (`wasTaken`), what it was guessed to hold is taken back.
   */
  | {
      readonly type: 'settled'
      readonly id: string
      readonly delivery: Delivery
      readonly wasTaken: boolean
      /** Another placement of the same request follows; default false. */
      readonly isPlacedAgain?: boolean
    }
  /** The first token of a decision came, so many milliseconds after its first call. */
  | { readonly type: 'firstToken'; readonly id: string; readonly firstTokenMs: number }
  /** Requests refused because all workers were busy, by model. */
  | { readonly type: 'busyRefused'; readonly reply: Reply<readonly (readonly [string, number])[]> }
  | { readonly type: 'lastHour'; readonly reply: Reply<HourReport> }
  /** What the guard has seen and does; undefined where no decision is its business. */
  | { readonly type: 'guard'; readonly reply: Reply<GuardStatus | undefined> }
  /** Answers when all that was settled before is in the decision log (true), or cannot be written. */
  | {
      readonly type: 'flushDecisionLog'
      readonly timeoutMs: number
      readonly reply: Reply<boolean>
    }
  /** What this gateway had decided in another life, and not settled, is over. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** The receipt that `decide` would write; changes nothing. */
  | {
      readonly type: 'explain'
      readonly request: RoutingRequest
      readonly reply: Reply<Receipt | ErrorRecord>
    }
  /** What was predicted against what was delivered, per worker key. */
  | { readonly type: 'audits'; readonly reply: Reply<readonly KeyAudit[]> }
  | { readonly type: 'receipt'; readonly id: string; readonly reply: Reply<Receipt | undefined> }
  | { readonly type: 'receipts'; readonly limit: number; readonly reply: Reply<readonly Receipt[]> }
