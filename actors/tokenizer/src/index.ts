export { TokenizerOverloadedError } from './errors.ts'
export type {
  CompletionRoute,
  ReadRequest,
  ReadResult,
  TokenizerMessage,
  TokenizerPath,
  TokenizerStatus,
} from './messages.ts'
export { type GivenTokenizers, readGivenTokenizers } from './model-table.ts'
export {
  inlineTaskPool,
  type StartTaskPool,
  type TaskPool,
  type TaskPoolOptions,
  taskPoolCapability,
} from './task-pool.ts'
export { type TokenizerArgs, tokenizer } from './tokenizer.ts'
export { tokenizerArgsFromSettings } from './tokenizer-args.ts'
