/**
 * Reader tasks: the tasks of readers and their outcomes. Errors are records in outcomes, because an error
 * class is lost on the way between threads.
 */

import type { ErrorRecord } from '@homing/base'
import type { HashNamespace } from '@homing/blocks'
import type { ModelNames } from '@homing/fleet'
import type { DecoderTables, LoadedTokenizer } from '@homing/tokenization'
import type { ModelTable } from './model-table.ts'
import type { CompletionRoute, ReadRequest, ReadResult } from './read-request.ts'

/** Configuration of every reader; sent when it changes, not with each task. */
export interface ReaderConfiguration {
  /** The greater version is newer. */
  readonly version: number
  readonly table: ModelTable
  /** Aliases of models; default: none. */
  readonly names?: ModelNames
  /** The base model of names that are in neither; undefined: they are not known. */
  readonly unlistedAdaptersOf?: string | undefined
  /** `nvext.token_data` is the prompt; default: it is checked, and the prompt of the body is read. */
  readonly trustsTokenData?: boolean
  /** Members of a body that name its session; default: none. */
  readonly affinityFields?: readonly string[]
  /** Tokenizers that one reader has loaded for all, by directory. A reader loads any other by itself. */
  readonly tokenizers: ReadonlyMap<string, LoadedTokenizer>
  /** Directories whose ids were seen to differ from an engine's: engines are asked instead. */
  readonly distrusted: ReadonlySet<string>
}

export interface ReadTask {
  readonly type: 'read'
  readonly route: CompletionRoute
  readonly body: Uint8Array
  /** As in `GivenBody`. */
  readonly promptIds?: Int32Array | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly wantTokenIds: boolean
  /** Version of the configuration that the task needs. */
  readonly version: number
  /** Unix milliseconds, for templates that print the date. */
  readonly wallMs: number
  /** Why no engine is to be asked for this request any more; undefined: one may be. */
  readonly unaskable: string | undefined
}

/** Asks for the token ids of a prompt, and for the question that gets the engine's ids. */
export interface CheckTask extends Omit<ReadTask, 'type'> {
  readonly type: 'check'
}

export interface HashTask {
  readonly type: 'hash'
  /** Body of the `/tokenize` reply. */
  readonly reply: Uint8Array
  /** The result of `read`. */
  readonly request: ReadRequest
  readonly namespace: HashNamespace
  readonly wantTokenIds: boolean
}

export type ReaderTask =
  | ReadTask
  | CheckTask
  | HashTask
  /** Loads a tokenizer for all readers. */
  | LoadTask

export interface LoadTask {
  /** `decoder`: the tables that make text of token ids. */
  readonly type: 'load' | 'decoder'
  readonly directory: string
}

export type ReaderOutcome =
  | ReadResult
  | {
      readonly kind: 'ask-engine'
      /** Everything but the prompt. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      /** Body for `/tokenize`: the client's own members, as bytes. */
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Why this reader cannot tokenize it. */
      readonly why: string
    }
  | {
      readonly kind: 'check'
      readonly model: string
      readonly directory: string
      readonly tokenIds: Int32Array
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Stands for the body in reports, since that must not be told. */
      readonly bodyHash: string
    }
  /** No engine can be asked for this prompt, or it is not one that was tokenized here. */
  | { readonly kind: 'uncheckable' }
  /** The reader has an older configuration than the task needs, or none. */
  | { readonly kind: 'unconfigured' }
  | { readonly kind: 'loaded'; readonly loaded: LoadedTokenizer }
  | { readonly kind: 'decoder'; readonly tables: DecoderTables }
  /** `mayComeBack`: this machine lacked something. */
  | { readonly kind: 'notLoaded'; readonly error: ErrorRecord; readonly mayComeBack: boolean }

export interface ReaderAnswer {
  readonly outcome: ReaderOutcome
  /** Bytes of what the reader remembers. */
  readonly cacheBytes: number
  /** Bytes of the words that its tokenizers have seen. */
  readonly wordTableBytes: number
}
