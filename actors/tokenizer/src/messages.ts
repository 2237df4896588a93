import type { ActorRef, Reply } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { DecoderTables } from '@homing/tokenization'
import type { GivenBody, ReadResult } from './read-request.ts'
import type { ReaderConfiguration } from './reader-tasks.ts'

/** The encoder used for the prompts of a tokenizer directory. */
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
  /** Checked prompts whose ids differed. */
  readonly differences: number
  /** Prompts that an engine did not encode when asked for such a comparison. */
  readonly checksFailed: number
  /** Questions to a further engine because those asked before were silent. */
  readonly hedges: number
  /** Ids of workers that are not asked for a while, because they were silent. */
  readonly setAside: readonly string[]
  /** Bytes of what is remembered of bodies and prompts. */
  readonly promptCacheBytes: number
  /** Bytes of the words that tokenizers have seen, over all threads. */
  readonly wordTableBytes: number
  /** Bytes of the vocabularies and merges of the own encoder, which all threads share. */
  readonly vocabularyBytes: number
}

/** The configuration of readers, in one life of the tokenizer. */
export interface NearConfiguration {
  /** Another one for each configuration of each life. */
  readonly name: string
  readonly configuration: ReaderConfiguration
}

/** To a near tokenizer (near-tokenizer.ts). */
export type NearTokenizerMessage =
  /** From its gateway. `elsewhere`: the tokenizer has to read it. */
  | (GivenBody & {
      readonly type: 'read'
      readonly reply: Reply<ReadResult | { readonly kind: 'elsewhere' }>
    })
  /** From the tokenizer, when it has changed. */
  | ({ readonly type: 'configure' } & NearConfiguration)
  /** To itself, periodically: what it has is told to the tokenizer. */
  | { readonly type: 'report' }

export type TokenizerMessage =
  | FleetMessage
  | (GivenBody & {
      readonly type: 'read'
      /**
       * Longest wait for a thread, in milliseconds; past it the request is refused, and its body is no longer
       * kept.
       */
      readonly waitMsMax: number
      readonly reply: Reply<ReadResult>
    })
  /**
   * From a near tokenizer, repeated: its life is to follow the configuration; `has`: the name of the one that
   * it has, and what it remembers.
   */
  | {
      readonly type: 'follow'
      readonly follower: ActorRef<NearTokenizerMessage>
      readonly has: string | undefined
      readonly promptCacheBytes: number
      readonly wordTableBytes: number
    }
  /** From a near tokenizer: a prompt that it has tokenized and that is to be compared with its engine. */
  | ({ readonly type: 'check' } & GivenBody)
  /** To itself: engines that made other tokens of a chat are compared again. */
  | { readonly type: 'compareChats' }
  | {
      readonly type: 'tokenizers'
      readonly reply: Reply<TokenizerStatus>
    }
  /** What makes text of the token ids of this model, for those who write answers. */
  | {
      readonly type: 'decoder'
      readonly model: string
      readonly reply: Reply<DecoderTables | ErrorRecord>
    }
  | {
      readonly type: 'whenStarted'
      /** Once every thread runs; or why one cannot be started. */
      readonly reply: Reply<ErrorRecord | undefined>
    }
