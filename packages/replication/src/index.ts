export { Mirror, type MirrorCounters, type MirrorEffects, type MirrorState } from './mirror.ts'
export { Outbox } from './outbox.ts'
export type {
  BookedOperation,
  FirstTokenOperation,
  FreedOperation,
  OpenBooking,
  ReplicaBatch,
  ReplicaOperation,
  ReplicaSnapshot,
  SnapshotPart,
} from './types.ts'
export {
  decodeBatch,
  decodeSnapshotPart,
  encodeBatch,
  encodeQuestion,
  encodeSnapshot,
  isQuestion,
  SnapshotParts,
} from './wire.ts'
