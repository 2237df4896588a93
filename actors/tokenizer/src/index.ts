export type {
  CompletionRoute,
  ReadRequest,
  ReadResult,
  TokenizerMessage,
  TokenizerPath,
  TokenizerStatus,
} from './messages.ts'
export { readGivenTokenizers } from './model-table.ts'
export { type TokenizerArgs, tokenizer } from './tokenizer.ts'
export { tokenizerArgsFromSettings } from './tokenizer-args.ts'
