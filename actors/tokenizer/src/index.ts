export type {
  CompletionRoute,
  ReadRequest,
  ReadResult,
  TokenizerMessage,
  TokenizerPath,
  TokenizerStatus,
} from './messages.ts'
export { readGivenTokenizers } from './model-table.ts'
export { tokenizer } from './tokenizer.ts'
export type { TokenizerArgs } from './tokenizer-args.ts'
export { tokenizerArgsFromSettings } from './tokenizer-args.ts'
