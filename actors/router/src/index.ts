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
  CandidateTerms,
  DecideResult,
  Decision,
  Delivery,
  GuardReceipt,
  GuardStatus,
  LayerTerm,
  Receipt,
  RouterMessage,
  RoutingRequest,
} from './messages.ts'
export { type GuessSettings, type RouterArgs, router } from './router.ts'
