/**
 * OpenAI requests and responses as the router sees them: byte ranges and the few fields routing needs.
 *
 * A body is never parsed into values and written again: that would turn 1.0 into 1, round large
 * integers and reorder integer-like keys. Members are found, cut and spliced as bytes.
 *
 *   scan.ts       where the top-level members are         splice.ts    cut and insert members
 *   request.ts    the fields that routing needs           token-ids.ts ids straight from bytes
 *   api-error.ts  answers with an error                   usage-tap.ts usage, from an answer as it passes
 *   usage-edit.ts asks for usage for the client           stream-form.ts undoes what that changes
 */

/** Bytes start … end − 1. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

/** One top-level member of the request object. */
export interface Member {
  readonly name: string
  /** From the opening quote of the name to the end of the value; no comma. */
  readonly member: ByteRange
  /** The value alone, without white space around it. */
  readonly value: ByteRange
}

/** Where the top-level members of a valid JSON object are. */
export interface RequestScan {
  /** In order of appearance, repeated names included. */
  readonly members: readonly Member[]
  /** By name; of repeated names the last, as JSON.parse and Python's json have it. */
  readonly byName: ReadonlyMap<string, Member>
  /** Position of the opening and of the closing brace. */
  readonly open: number
  readonly close: number
  /** The first member of that name that is a list; undefined: there is none. */
  readonly messages: MessageList | undefined
}

/** Where the messages of a chat are. */
export interface MessageList {
  /** Which of the members it is, from 0. */
  readonly number: number
  /** Position of the quote before its name, and of its bracket. */
  readonly start: number
  readonly valueStart: number
  /** Where each message ends; of a scan from a ScanPoint on, those behind it. */
  readonly ends: readonly number[]
}

/** A point of a scan behind a message: it depends on nothing that follows. */
export interface ScanPoint {
  readonly at: number
  readonly open: number
  /** Members in front of the messages. */
  readonly before: readonly Member[]
  readonly messages: Omit<MessageList, 'ends'>
}

/** Request headers, names in lower case. */
export type RequestHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

export type PromptShape = 'none' | 'messages' | 'text' | 'texts' | 'tokens' | 'token-lists'

/** nvext and the headers that override it, validated. Absent fields are undefined. */
export interface RoutingHints {
  /**
   * Pinned worker, decimal text of a u64 (it may exceed 2^53): the header, else backend_instance_id, else
   * decode_worker_id.
   */
  readonly workerId: string | undefined
  /** `backend_instance_id` alone names the worker: one worker is to have all of the request. */
  readonly isWholePin?: boolean
  /** Worker and rank for its prefill, where that is apart; likewise a header, else prefill_worker_id. */
  readonly prefillWorkerId?: string | undefined
  readonly prefillDpRank?: number | undefined
  readonly dpRank: number | undefined
  /** Range of nvext.token_data in the body: read it with `parseTokenIds`, which checks the ids. */
  readonly tokenData: ByteRange | undefined
  readonly annotations: readonly string[]
  readonly extraFields: readonly string[]
  readonly override: RoutingOverride
  /** Undefined: any worker may take the request, and it prefers none. */
  readonly constraints: RoutingConstraints | undefined
  /** Undefined: it says nothing of how it wants to wait. */
  readonly priority: PriorityHints | undefined
  /** agent_hints.osl: tokens that its answer is expected to have. */
  readonly expectedOutputTokens: number | undefined
  /** router_config_override.moe_query, else agent_hints.moe_query; undefined: any expert will do. */
  readonly moeQuery: MoeQueryHint | undefined
  /** Undefined: it counts as load as the router's settings have it. */
  readonly tracking: TrackingHints | undefined
}

/** Which experts of an MoE model a request wants; all numbers are u32. */
export interface MoeQueryHint {
  readonly layerId: number
  /** expert_ids; empty: any. */
  readonly expertIds: readonly number[]
  readonly expertGroup: number | undefined
  /** fallback_to_unlabeled: false: only workers with such blocks, if there are any. Default true. */
  readonly fallbackToUnlabeled: boolean
}

/** What of a request counts as load; undefined members leave the router's settings as they are. */
export interface TrackingHints {
  /** router_config_override.assume_kv_reuse: false: no other request shares its blocks. */
  readonly assumesReuse: boolean | undefined
  /** router_config_override.track_prefill_tokens: false: its prompt is not counted as prefill. */
  readonly prefillTokens: boolean | undefined
}

/** Where a request wants to be among those that wait. */
export interface PriorityHints {
  /**
   * Seconds of head start: a header, else agent_hints.priority, else latency_sensitivity; may be negative.
   */
  readonly jumpSeconds: number
  /** Requests of a higher one go first, all of them: a header, else agent_hints.strict_priority. */
  readonly strict: number
}

/** What a request changes of the settings of selection. */
export interface RoutingOverride {
  /**
   * overlap_score_weight or prefill_load_scale of router_config_override, else
   * agent_hints.kv_overlap_score_weight.
   */
  readonly overlapWeight: number | undefined
  /** router_config_override.overlap_score_credit. */
  readonly overlapCredit: number | undefined
  /** router_config_override.router_temperature. */
  readonly temperature: number | undefined
}

/** Which workers may take a request, and which of them it prefers. */
export interface RoutingConstraints {
  /** nvext.allowed_worker_ids; undefined: all. Ids past 2^53 name no worker. */
  readonly allowedInstanceIds: readonly number[] | undefined
  /** Taints that a worker must have. */
  readonly requiredTaints: readonly string[]
  /** Weight by taint: above 0 draws the request to workers that have it, below 0 away from them. */
  readonly preferredTaints: Readonly<Record<string, number>>
}

/** What routing needs of a request. */
export interface RequestFields {
  readonly model: string | undefined
  readonly isStream: boolean
  /** n; 1 when absent. */
  readonly choicesCount: number
  /** max_completion_tokens, else max_tokens. */
  readonly outputTokensMax: number | undefined
  /** stream_options.include_usage. */
  readonly includesUsage: boolean
  /** Of a request for a response: the response that it goes on from. */
  readonly previousResponseId: string | undefined
  /** The text of a member that names the session (`ReadOptions.affinityFields`). */
  readonly session: string | undefined
  /** Header, else nvext, else top level; empty counts as absent. */
  readonly cacheSalt: string | undefined
  readonly cacheUse: CacheUse | undefined
  /** SGLang's `extra_key`: equal prompts share nothing under another one. */
  readonly hasExtraKey: boolean
  /** SGLang's `lora_path`: an adapter that the model does not name. */
  readonly hasLoraPath: boolean
  readonly promptShape: PromptShape
  /** Value of `prompt` (or of `token_ids`, where a body of /route has it). */
  readonly prompt: ByteRange | undefined
  readonly messages: ByteRange | undefined
  readonly hints: RoutingHints
  /** The body has members for the router alone: cut ROUTER_MEMBERS before it goes to an engine. */
  readonly hasNvext: boolean
}

/**
 * How a request keeps the engine's cache out of its answer. `unread`: the engine computes the whole prompt,
 * whatever it has cached. `unreported`: it reads its cache, but the answer does not tell how much.
 */
export type CacheUse = 'unread' | 'unreported'

/** Everything that the router itself may answer with an error for. */
export type ApiErrorKind =
  | 'malformed_http'
  | 'headers_timeout'
  | 'headers_too_large'
  | 'expectation_failed'
  | 'malformed_json'
  | 'invalid_value'
  | 'empty_prompt'
  | 'pin_not_allowed'
  | 'unauthorized'
  | 'forbidden'
  | 'what_if_busy'
  | 'worker_conflict'
  | 'route_not_found'
  | 'model_not_found'
  | 'method_not_allowed'
  | 'body_timeout'
  | 'duplicate_request'
  | 'body_too_large'
  | 'unsupported_encoding'
  | 'malformed_encoding'
  | 'rate_limited'
  | 'overloaded'
  | 'queue_full'
  | 'class_limit'
  | 'deadline'
  | 'do_not_queue'
  | 'no_worker'
  | 'shutting_down'
  | 'upstream_failed'
  | 'timeout'
  | 'internal_error'

/** An answer in OpenAI's form: `{error: {message, type, param, code}}`. */
export interface ApiError {
  readonly kind: ApiErrorKind
  readonly status: number
  readonly message: string
  readonly type: string
  readonly param: string | null
  readonly code: string
  /** content-type, and where they apply retry-after and x-should-retry. */
  readonly headers: Readonly<Record<string, string>>
}
