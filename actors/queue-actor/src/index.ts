export type {
  ModelQueueStatus,
  PlaceResult,
  QueueMessage,
  QueueStatus,
  WaitingHints,
} from './messages.ts'
export { type QueueArgs, type QueueRules, queue } from './queue.ts'
