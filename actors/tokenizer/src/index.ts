export type { CompletionRoute, ReadRequest, ReadResult, TokenizerMessage } from './messages.ts'
