export type { StreamOptions } from '@homing/transport'
export { BatchRing, type BatchRingOptions, type BufferedBatch } from './batch-ring.ts'
export type { CxlMetadata, MoeMetadata } from './block-metadata.ts'
export type { EngineHash } from './engine-hash.ts'
export { BadBlockError, BlockSizeError, PublisherClosedError, PublisherOptionsError } from './errors.ts'
export {
  EventService,
  type EventServiceOptions,
  type EventServiceStats,
} from './event-service.ts'
export type { FrozenBlocks } from './frozen-blocks.ts'
export { BLOCK_BYTES } from './held-block.ts'
export { HeldBlocks, type HeldStats } from './held-blocks.ts'
export {
  type EventRange,
  LOCAL_INDEXER_DEFAULTS,
  LocalIndexer,
  type LocalIndexerOptions,
  type LocalIndexerStats,
  type TreeDump,
} from './local-indexer.ts'
export { PacedReplies, type PacedRepliesOptions } from './paced-replies.ts'
export { PolledSidecar, type PolledSidecarOptions, type PolledSidecarStatus } from './polled-sidecar.ts'
export {
  type CxlTransition,
  createPublisher,
  type KvPublisher,
  PUBLISHER_DEFAULTS,
  type PublisherOptions,
  type PublisherStats,
  type StoredBlock,
  type StoredOptions,
} from './publisher.ts'
export { BadRegistrationError } from './registration/errors.ts'
export type { RequestHandler, WorkerAnswer, WorkerRequest } from './registration/handle-request.ts'
export {
  type Registered,
  type RegisterOptions,
  registerWorker,
  registerWorker as register,
} from './registration/register-worker.ts'
export {
  encodeRegistration,
  readRegistration,
  registrationEndpoint,
  requestSubjectOf,
} from './registration/registration.ts'
export type { RequestLimits, ServeRequests } from './registration/request-settings.ts'
export { type ServedRequests, serveRequests } from './registration/serve-requests.ts'
export { Republisher, type RepublisherOptions, type RepublisherStatus } from './republisher.ts'
export { Sidecar, type SidecarOptions, type SidecarStatus } from './sidecar.ts'
