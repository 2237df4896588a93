export type { CandidateLoads } from './candidate-loads.ts'
export type { DecideResult, Decision, Measured } from './decision.ts'
export {
  AllBusyError,
  AllFilteredError,
  ModelNotFoundError,
  NoWorkerError,
  PinNotAllowedError,
  PinnedWorkerError,
  TooManyRequestsError,
  WorkerNotNamedError,
} from './errors.ts'
export type {
  CandidateTerms,
  Delivery,
  GuardReceipt,
  GuardStatus,
  LayerTerm,
  QueueReceipt,
  Receipt,
} from './receipt.ts'
export { type ReceiptBounds, Receipts } from './receipts.ts'
export type { RoutingRequest } from './routing-request.ts'
export type { RequestTracking, TrackingSettings } from './tracking.ts'
