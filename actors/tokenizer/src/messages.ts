import type { Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/directory'
import type { ErrorRecord } from '@homing/errors'
import type { BodyEdit } from '@homing/openai'

export type CompletionRoute = 'chat' | 'completions'

/** What the gateway and the router need of a request, read from its bytes on a pool thread. */
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
  readonly unknownPrompt: string | undefined
  /** Why the hashes are those of pieces of the text (packages/blocks); undefined: they are not. */
  readonly textBlocks: string | undefined
  /** Who tokenized. */
  readonly tokenizedBy: 'router' | 'engine' | 'client' | 'nobody'
  readonly overlapScoreWeight: number | undefined
  readonly temperature: number | undefined
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
      readonly reply: Reply<ReadResult>
    }
