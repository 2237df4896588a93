export type { ModelQueueStatus, PlaceResult, QueueMessage, QueueStatus, WaitingHints } from './messages.ts'
export { queue } from './queue.ts'
export { isQueueOn, type QueueArgs, queueArgsFromSettings } from './queue-args.ts'
export { queueOrderOf } from './queue-rules.ts'
