export { ModelNotFoundError, NoWorkerError, PinnedWorkerError, TooManyRequestsError } from './errors.ts'
export type {
  CandidateTerms,
  DecideResult,
  Decision,
  Delivery,
  LayerTerm,
  Receipt,
  RouterMessage,
  RouterOverride,
  RoutingRequest,
} from './messages.ts'
export { type PredictionSettings, type RouterArgs, router } from './router.ts'
