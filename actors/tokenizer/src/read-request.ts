/** A request body that is to be read, and what gateway and router need of it. */

import type { ErrorRecord } from '@homing/base'
import type {
  BodyEdit,
  CacheUse,
  MoeQueryHint,
  PriorityHints,
  RoutingConstraints,
  RoutingOverride,
  TrackingHints,
} from '@homing/openai'
import type { SeparatedPrompt } from '@homing/protocol'

/** `messages`: Anthropic's; `responses`: OpenAI's. Of both, engines make a chat. */
export type CompletionRoute = 'chat' | 'completions' | 'messages' | 'responses'

/** The parts of a request that gateway and router need, read from its bytes. */
export interface ReadRequest {
  readonly model: string
  readonly isStream: boolean
  /** Tokens of the prompt, of all of them if there are several. */
  readonly promptTokens: number
  /** `promptTokens` is an estimate, and the engine may count up to `tokensMax`; undefined: it was counted. */
  readonly estimate?: { readonly tokensMax: number } | undefined
  /** `promptTokens` counts the whole prompt, in tokens of the router or an engine; default false. */
  readonly isCounted?: boolean
  readonly blockSizeTokens: number
  readonly localHashes: Int32Array
  readonly sequenceHashes: Int32Array
  /** The prompt's ids, only when asked for. */
  readonly tokenIds: Int32Array | undefined
  /** Why the prompt is not known (no tokenizer, pictures in it, …); undefined when it is. */
  readonly unknownPromptReason: string | undefined
  /** Why pieces of the text were hashed, not tokens (packages/blocks); undefined: tokens were hashed. */
  readonly textBlocksReason: string | undefined
  /** How it begins in events that do not name its separators; undefined: it has none. */
  readonly separated: SeparatedPrompt | undefined
  /** Why its answer says nothing about the engine's cache; undefined: it may. */
  readonly cacheUse?: CacheUse | 'claimed' | undefined
  /** The party that tokenized. */
  readonly tokenizedBy: 'router' | 'engine' | 'client' | 'nobody'
  readonly override: RoutingOverride
  readonly moeQuery?: MoeQueryHint | undefined
  readonly constraints: RoutingConstraints | undefined
  /** Priority hints for waiting in the queue; undefined: the client gave none. */
  readonly priority?: PriorityHints | undefined
  /** Expected tokens of the answer, given by the client. */
  readonly expectedOutputTokens?: number | undefined
  /** Longest answer that the client allows, in tokens: of each of `choicesCount` answers. */
  readonly outputTokensMax?: number | undefined
  /** Default 1. */
  readonly choicesCount?: number
  /** The session that a member of the body names. */
  readonly session?: string | undefined
  /** Which parts of the request count as load; undefined: use the router's settings. */
  readonly tracking?: TrackingHints | undefined
  /** The response that this request continues, which only its engine has. */
  readonly previousResponseId?: string | undefined
  readonly pinnedInstanceId: number | undefined
  readonly pinnedRank: number | undefined
  /** One worker is to have all of it, even where prefill and decode are apart; default false. */
  readonly isWholePin?: boolean
  /** Where its prefill is to be; undefined: anywhere. */
  readonly prefillPin?: { readonly instanceId: number | undefined; readonly rank: number | undefined }
  /** Annotations of `nvext`, such as `query_instance_id`. */
  readonly annotations: readonly string[]
  readonly extraFields: readonly string[]
  /** The body to send upstream when it differs from the client's (`nvext` cut out); else undefined. */
  readonly upstreamBody: Uint8Array | undefined
  /** Edit of the upstream body that asks the engine for usage; undefined: not needed. */
  readonly usageEdit: BodyEdit | undefined
}

export type ReadResult =
  | { readonly kind: 'read'; readonly request: ReadRequest }
  | { readonly kind: 'refused'; readonly error: ErrorRecord; readonly param: string | undefined }

/** A request body that is to be read. */
export interface GivenBody {
  readonly route: CompletionRoute
  /** The client's bytes; only read. */
  readonly body: Uint8Array
  /**
   * The prompt, where a program gives ids and the body has no prompt, as bit patterns of u32; only read.
   * Undefined: it is in the body.
   */
  readonly promptIds?: Int32Array | undefined
  /** Lower-cased request headers that change routing (nvext headers); others are ignored. */
  readonly headers: Readonly<Record<string, string>>
  readonly wantTokenIds: boolean
}

/**
 * How long a thread reads it, in bytes of JSON: in the time of one, 11 ns, it hashes 2 to 5 ids (`pnpm bench
 * decide`).
 */
export function sizeToRead({ body, promptIds }: Pick<GivenBody, 'body' | 'promptIds'>): number {
  return body.length + (promptIds?.length ?? 0) / IDS_FOR_BYTE
}

const IDS_FOR_BYTE = 4
