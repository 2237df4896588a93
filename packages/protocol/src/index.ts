export { AttentionGroups } from './attention-groups.ts'
export { ACCESSIBLE_WORKERS_MAX, type KvExpert, type KvLabels, type KvPoolPlace } from './block-labels.ts'
export {
  addsCopies,
  CacheReading,
  type CacheReadingRecord,
  type EventFault,
  HELD_TIERS,
  type HeldTier,
  isPlaceholder,
  type LeftCopies,
  type RemovableBlocks,
} from './cache-reading.ts'
export { MalformedEventFramesError, MalformedKvBatchError, MalformedTokenRequestError } from './errors.ts'
export {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
  type ReplayForm,
  type ReplayReply,
  replayRequestFrames,
} from './event-frames.ts'
export { decodeKvBatch, decodeSnapshotBatch } from './kv-batch-decoder.ts'
export { encodeKvBatch, type KvBatchForm, type KvHashForm } from './kv-batch-encoder.ts'
export {
  isContentKnown,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  type KvCleared,
  type KvEvent,
  type KvMedia,
  type KvRemoved,
  type KvStored,
  type KvStoredFields,
  type KvTier,
  type KvTransition,
  kvRemoved,
  kvStored,
  unreadEvents,
} from './kv-event.ts'
export {
  isMembersText,
  LABEL_MEMBERS_BYTES_MAX,
  LABEL_MEMBERS_DEPTH_MAX,
  LabelMembersError,
  labelMembers,
} from './label-members.ts'
export { decodeMessagePack, type MessagePackBounds } from './message-pack.ts'
export { BrokenMessageError, MessagePackReader, WrongTypeError } from './message-pack-reader.ts'
export { MessagePackWriter } from './message-pack-writer.ts'
export { isLegalTransition, POOL_STATES, POOL_TRANSITIONS, type PoolState } from './pool-states.ts'
export {
  openSealedBody,
  type SealedFault,
  type SealedFields,
  type SealedForm,
  sealBody,
} from './sealed-body.ts'
export { ADAPTER, ALL_SEPARATORS, EXTRA_KEY, SALT, type SeparatedPrompt } from './separators.ts'
export {
  encodeSnapshotReply,
  parseSnapshotReply,
  parseSnapshotRequest,
  type SnapshotForm,
  type SnapshotHeader,
  type SnapshotReply,
  snapshotRequestFrames,
} from './snapshot-frames.ts'
export { type TensorRtAnswer, TensorRtEvents } from './tensorrt-events.ts'
export {
  encodeTokenLine,
  encodeTokenRequest,
  readTokenLine,
  readTokenRequest,
  TOKEN_LINE_BYTES_MAX,
  TOKENS_PATH,
  TOKENS_TYPE,
  type TokenLine,
  TokenLines,
  type TokenOutput,
  type TokenRequest,
  type TokenStops,
} from './token-requests.ts'
