/** Arguments of the tokenizer, from the settings of the router. */

import { AFFINITY_FIELDS, type ModelAlias, type RouterSettings, readModelAlias } from '@homing/config'
import type { LoadedTokenizer } from '@homing/tokenization'

export interface TokenizerArgs {
  /** By directory: tokenizers that are loaded already. */
  readonly loaded: ReadonlyMap<string, LoadedTokenizer>
  /**
   * One in this many prompts that are tokenized here is also tokenized by its engine, and the ids are
   * compared; 0: none.
   */
  readonly checkEvery: number
  readonly threads: number
  /** `[MODEL=]DIR`. */
  readonly tokenizers: readonly string[]
  /** Names that clients use for models; default: none. */
  readonly modelAliases?: readonly ModelAlias[]
  /** The base model of names that no worker lists; undefined: they are not known. */
  readonly unlistedAdaptersOf?: string | undefined
  /** Members of a body that name its session, the first that is there counts; default: none. */
  readonly affinityFields?: readonly string[]
  /** Requests that may wait for a thread. */
  readonly queueMax: number
  /** Bytes for what is remembered of request bodies and prompts, over all threads. */
  readonly promptCacheBytes: number
  /** Bytes for the words that each tokenizer has seen, on each thread that reads requests. */
  readonly wordTableBytes: number
  /** Bodies up to this size are read on the thread of this actor where that is cheap; in bytes. */
  readonly inlineBodyBytesMax: number
  /** Longest wait for an engine's `/tokenize`, in milliseconds. */
  readonly tokenizeMsMax: number
}

export type TokenizerSettings = Pick<
  RouterSettings,
  | 'tokenizers'
  | 'tokenizerThreads'
  | 'promptCacheBytes'
  | 'wordTableBytes'
  | 'inlineBodyBytesMax'
  | 'tokenizeCheckEvery'
  | 'openRequestsMax'
  | 'modelAliases'
  | 'unlistedAdaptersOf'
  | 'affinityFields'
>

const TOKENIZE_MS_MAX = 10_000

/** `loaded`: by directory, the tokenizers that are loaded already. */
export function tokenizerArgsFromSettings(
  settings: TokenizerSettings,
  parts: Pick<TokenizerArgs, 'loaded'>,
): TokenizerArgs {
  return {
    loaded: parts.loaded,
    tokenizers: settings.tokenizers,
    threads: settings.tokenizerThreads,
    promptCacheBytes: settings.promptCacheBytes,
    wordTableBytes: settings.wordTableBytes,
    inlineBodyBytesMax: settings.inlineBodyBytesMax,
    checkEvery: settings.tokenizeCheckEvery,
    modelAliases: settings.modelAliases.map(readModelAlias),
    unlistedAdaptersOf: settings.unlistedAdaptersOf,
    affinityFields: settings.affinityFields.length > 0 ? settings.affinityFields : AFFINITY_FIELDS,
    queueMax: settings.openRequestsMax,
    tokenizeMsMax: TOKENIZE_MS_MAX,
  }
}
