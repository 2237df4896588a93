/** Arguments of the tokenizer, from the settings of the router. */

import type { ActorRef } from '@homing/actor'
import type { PromptsMessage } from '@homing/actors/directory'
import { AFFINITY_FIELDS, type ModelAlias, type RouterSettings, readModelAlias } from '@homing/config'
import type { LoadedTokenizer } from '@homing/tokenization'
import { type GivenChatOptions, givenChatOptions } from './chat-options.ts'

export interface TokenizerArgs {
  /** By directory: tokenizers that are loaded already. */
  readonly loaded: ReadonlyMap<string, LoadedTokenizer>
  /**
   * One in this many prompts that are tokenized here is also tokenized by its engine, and the ids are
   * compared; 0: none.
   */
  readonly checkEvery: number
  /** Told of engines that make other tokens of a chat; undefined: they are not compared. */
  readonly directory?: ActorRef<PromptsMessage> | undefined
  readonly threads: number
  /** Readers are on the thread of this actor, and hold it up. Default: each has its own. */
  readonly isOnOneThread?: boolean
  /** `[MODEL=]DIR`. */
  readonly tokenizers: readonly string[]
  /** How engines write chats, where the directory does not say; undefined: as it says. */
  readonly chats?: GivenChatOptions | undefined
  /** Names that clients use for models; default: none. */
  readonly modelAliases?: readonly ModelAlias[]
  /** The base model of names that no worker lists; undefined: they are not known. */
  readonly unlistedAdaptersOf?: string | undefined
  /** `nvext.token_data` is the prompt; default: it is checked, and the prompt of the body is read. */
  readonly trustsTokenData?: boolean
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
  /** Wait for one engine's `/tokenize` before another one is asked as well, in milliseconds; 0: never. */
  readonly tokenizeHedgeMs: number
}

export type TokenizerSettings = Pick<
  RouterSettings,
  | 'tokenizers'
  | 'chatTemplateContentFormats'
  | 'defaultChatTemplateKwargs'
  | 'tokenizerThreads'
  | 'promptCacheBytes'
  | 'wordTableBytes'
  | 'inlineBodyBytesMax'
  | 'tokenizeCheckEvery'
  | 'tokenizeHedgeMs'
  | 'openRequestsMax'
  | 'modelAliases'
  | 'unlistedAdaptersOf'
  | 'trustTokenData'
  | 'affinityFields'
>

/** A request that made room for another may still be read. */
const READINGS_PER_REQUEST = 2
const TOKENIZE_MS_MAX = 10_000

/** This thread reads short requests; it gets this part of the bytes for remembering bodies and prompts. */
export const INLINE_CACHE_SHARE = 1 / 8

interface TokenizerParts extends Pick<TokenizerArgs, 'loaded' | 'directory' | 'isOnOneThread'> {
  /** Texts of chat templates, by model. */
  readonly chatTemplates?: ReadonlyMap<string, string> | undefined
}

/** `loaded`: by directory, the tokenizers that are loaded already. */
export function tokenizerArgsFromSettings(
  settings: TokenizerSettings,
  { chatTemplates = new Map(), ...parts }: TokenizerParts,
): TokenizerArgs {
  return {
    ...parts,
    chats: givenChatOptions(settings, chatTemplates),
    tokenizers: settings.tokenizers,
    threads: settings.tokenizerThreads,
    promptCacheBytes: settings.promptCacheBytes,
    wordTableBytes: settings.wordTableBytes,
    inlineBodyBytesMax: settings.inlineBodyBytesMax,
    checkEvery: settings.tokenizeCheckEvery,
    modelAliases: settings.modelAliases.map(readModelAlias),
    unlistedAdaptersOf: settings.unlistedAdaptersOf,
    trustsTokenData: settings.trustTokenData,
    affinityFields: settings.affinityFields.length > 0 ? settings.affinityFields : AFFINITY_FIELDS,
    queueMax: settings.openRequestsMax * READINGS_PER_REQUEST,
    tokenizeMsMax: TOKENIZE_MS_MAX,
    tokenizeHedgeMs: settings.tokenizeHedgeMs,
  }
}
