export {
  AllFilteredError,
  ModelNotFoundError,
  NoWorkerError,
  PinNotAllowedError,
  PinnedWorkerError,
  TooManyRequestsError,
  WorkerNotNamedError,
} from './errors.ts'
export type {
  AffinityBinding,
  CandidateTerms,
  DecideResult,
  Decision,
  Delivery,
  GuardReceipt,
  GuardStatus,
  HourReport,
  LayerTerm,
  Measured,
  QueueReceipt,
  Receipt,
  RouterMessage,
  RoutingRequest,
} from './messages.ts'
export { router } from './router.ts'
export type { GuessSettings, RouterArgs } from './router-args.ts'
