export type {
  Assumed,
  ModelQueueStatus,
  PlaceResult,
  QueueMessage,
  QueueStatus,
  WaitingHints,
} from './messages.ts'
export { type QueueArgs, queue } from './queue.ts'
