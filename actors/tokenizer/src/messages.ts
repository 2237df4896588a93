import type { Reply } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type {
  BodyEdit,
  PriorityHints,
  RoutingConstraints,
  RoutingOverride,
  TrackingHints,
} from '@homing/openai'
import type { SeparatedPrompt } from '@homing/protocol'

/** `messages`: Anthropic's; `responses`: OpenAI's. Of both, engines make a chat. */
export type CompletionRoute = 'chat' | 'completions' | 'messages' | 'responses'

/** What the gateway and the router need of a request, read from its bytes. */
export interface ReadRequest {
  readonly model: string
  readonly isStream: boolean
  /** Tokens of the prompt; about how many where only its text is known; 0 when nothing is. */
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly localHashes: Int32Array
  readonly sequenceHashes: Int32Array
  /** The prompt's ids, only when asked for. */
  readonly tokenIds: Int32Array | undefined
  /** Why the prompt is not known (no tokenizer, pictures in it, …); undefined when it is. */
  readonly unknownPromptReason: string | undefined
  /** Why the hashes are those of pieces of the text (packages/blocks); undefined: they are not. */
  readonly textBlocksReason: string | undefined
  /** How it begins in events that do not name its separators; undefined: it has none. */
  readonly separated: SeparatedPrompt | undefined
  /** The party that tokenized. */
  readonly tokenizedBy: 'router' | 'engine' | 'client' | 'nobody'
  readonly override: RoutingOverride
  readonly constraints: RoutingConstraints | undefined
  /** Where it wants to be among those that wait; undefined: it does not say. */
  readonly priority?: PriorityHints | undefined
  /** Tokens that its answer is expected to have, as the client says. */
  readonly expectedOutputTokens?: number | undefined
  /** What of it counts as load; undefined: as the router's settings have it. */
  readonly tracking?: TrackingHints | undefined
  /** The response that this one goes on from, which only its engine has. */
  readonly previousResponseId?: string | undefined
  readonly pinnedInstanceId: number | undefined
  readonly pinnedRank: number | undefined
  /** Annotations of `nvext`, such as `query_instance_id`. */
  readonly annotations: readonly string[]
  readonly extraFields: readonly string[]
  /** The body to send upstream when it differs from the client's (`nvext` cut out); else undefined. */
  readonly upstreamBody: Uint8Array | undefined
  /** What asks the engine for usage, in the body sent upstream; undefined: nothing is to be asked. */
  readonly usageEdit: BodyEdit | undefined
}

/** Who encodes the prompts of a tokenizer directory. */
export interface TokenizerPath {
  readonly directory: string
  /** Names of the models that it is used for. */
  readonly models: readonly string[]
  /** Our own encoder, the JavaScript library, or engines, which are asked. */
  readonly path: 'own' | 'library' | 'engine'
  /** Why it is not our own encoder; undefined: it is. */
  readonly reason: string | undefined
}

export interface TokenizerStatus {
  /** Those that models need and that are loaded, or could not be. */
  readonly tokenizers: readonly TokenizerPath[]
  /** Prompts whose ids were compared with those of their engine, since the start. */
  readonly checks: number
  /** Of those, prompts with other ids. */
  readonly differences: number
  /** Prompts that an engine did not encode when asked for such a comparison. */
  readonly checksFailed: number
  /** Bytes of what is remembered of bodies and prompts. */
  readonly promptCacheBytes: number
  /** Bytes of the words that tokenizers have seen, over all threads. */
  readonly wordTableBytes: number
  /** Bytes of the vocabularies and merges of the own encoder, which all threads share. */
  readonly vocabularyBytes: number
}

export type ReadResult =
  | { readonly kind: 'read'; readonly request: ReadRequest }
  | { readonly kind: 'refused'; readonly error: ErrorRecord; readonly param: string | undefined }

export type TokenizerMessage =
  | FleetMessage
  | {
      readonly type: 'read'
      readonly route: CompletionRoute
      /** The client's bytes; only read. */
      readonly body: Uint8Array
      /** Lower-cased request headers that change routing (nvext headers); others are ignored. */
      readonly headers: Readonly<Record<string, string>>
      readonly wantTokenIds: boolean
      /**
       * Longest wait for a thread, in milliseconds; past it the request is refused, and its body is no longer
       * kept.
       */
      readonly waitMsMax: number
      readonly reply: Reply<ReadResult>
    }
  | {
      readonly type: 'tokenizers'
      readonly reply: Reply<TokenizerStatus>
    }
  | {
      readonly type: 'whenStarted'
      /** Once every thread runs; or why one cannot be started. */
      readonly reply: Reply<ErrorRecord | undefined>
    }
