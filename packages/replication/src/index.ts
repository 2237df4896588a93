export { newLife } from './life.ts'
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
  WaitingRow,
} from './types.ts'
export {
  decodeBatch,
  decodeSnapshotPart,
  decodeWaiting,
  encodeBatch,
  encodeBye,
  encodeQuestion,
  encodeSnapshot,
  encodeWaiting,
  isBye,
  isQuestion,
  SnapshotParts,
} from './wire.ts'
