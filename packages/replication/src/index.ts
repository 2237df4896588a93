export { DIGEST_HASHES_MAX, DIGEST_LENGTH_MAX, MESSAGE_HASHES_MAX } from './digest-bounds.ts'
export { newLife } from './life.ts'
export { Mirror, type MirrorState } from './mirror.ts'
export { Outbox } from './outbox.ts'
export type {
  BookedDigest,
  DigestBatch,
  FreedOperation,
  MovedBinding,
  OpenBooking,
  ReplicaBatch,
  ReplicaOperation,
  ReplicaSnapshot,
  ReportedOperation,
  WaitingRow,
} from './types.ts'
export {
  decodeBatch,
  decodeDigests,
  decodeMoved,
  decodeOpenDigests,
  decodeSnapshotPart,
  decodeWaiting,
  encodeBatch,
  encodeBye,
  encodeDigests,
  encodeMoved,
  encodeOpenDigests,
  encodeQuestion,
  encodeSnapshot,
  encodeWaiting,
  isBye,
  isQuestion,
  SnapshotParts,
  withDigests,
} from './wire.ts'
