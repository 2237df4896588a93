/** Arguments of the tokenizer, from the settings of the router. */

import type { RouterSettings } from '@homing/config'
import type { TokenizerArgs } from './tokenizer.ts'

export type TokenizerSettings = Pick<
  RouterSettings,
  | 'tokenizers'
  | 'tokenizerThreads'
  | 'promptCacheBytes'
  | 'wordTableBytes'
  | 'inlineBodyBytesMax'
  | 'tokenizeCheckEvery'
  | 'openRequestsMax'
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
    queueMax: settings.openRequestsMax,
    tokenizeMsMax: TOKENIZE_MS_MAX,
  }
}
