export type { AnswerMessage, DispatcherMessage, UpstreamRequest } from './messages.ts'
