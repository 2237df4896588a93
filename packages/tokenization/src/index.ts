export {
  chatOfMessages,
  chatOfResponses,
  type DisabledEffort,
  disabledThinkingEffort,
} from './chat-forms.ts'
export type { ChatServerOptions } from './chat-request.ts'
export { ChatTemplate } from './chat-template.ts'
export { type ContentFormat, detectContentFormat, type EngineDialect } from './content-format.ts'
export { CACHE_MARK, conversationText, type MediaTokens } from './conversation-text.ts'
export { buildDecoderTables, type DecoderTables, loadDecoder } from './decoder/decoder-tables.ts'
export { TokenDecoder, TokenTexts } from './decoder/token-decoder.ts'
export { EncodeError, RenderingRefusedError, TokenizerLoadError } from './errors.ts'
export { fromParsedJson, tryParseJson } from './json.ts'
export { ByteWindows, type PrefixNode, PrefixTree, TextWindows } from './prefix-tree.ts'
export { PromptCache } from './prompt-cache.ts'
export {
  type EncoderPath,
  encoderPath,
  type LoadedTokenizer,
  loadTokenizer,
  type NoTokens,
  PromptTokenizer,
  type PromptTokenizerOptions,
  type PromptTokens,
  type RenderedChat,
  type RequestBody,
  type Tokens,
} from './prompt-tokenizer.ts'
export {
  type DumpOptions,
  dumpJson,
  type PythonDict,
  PythonFloat,
  PythonFunction,
  PythonIterable,
  PythonObject,
  PythonTuple,
  type PythonValue,
  toRepr,
  toText,
} from './python-value.ts'
export type { RenderOptions } from './template-builtins.ts'
