export { type DispatcherArgs, dispatcher } from './dispatcher.ts'
export { DispatcherRestartedError, NoAnswerError, UpstreamFailedError } from './errors.ts'
export type { AnswerMessage, DispatcherMessage, UpstreamRequest } from './messages.ts'
export { upstreamHeaders } from './upstream-headers.ts'
