export { newLife } from './life.ts'
export { Mirror, type MirrorState } from './mirror.ts'
export { Outbox } from './outbox.ts'
export type {
  FreedOperation,
  OpenBooking,
  ReplicaBatch,
  ReplicaOperation,
  ReplicaSnapshot,
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
