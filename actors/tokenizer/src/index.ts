export type { NearTokenizerMessage, TokenizerMessage, TokenizerPath, TokenizerStatus } from './messages.ts'
export { readGivenTokenizers } from './model-table.ts'
export {
  type NearTokenizerArgs,
  nearTokenizer,
  nearTokenizerArgsFromSettings,
} from './near-tokenizer.ts'
export type { CompletionRoute, GivenBody, ReadRequest, ReadResult } from './read-request.ts'
export { tokenizer } from './tokenizer.ts'
export type { TokenizerArgs } from './tokenizer-args.ts'
export { tokenizerArgsFromSettings } from './tokenizer-args.ts'
