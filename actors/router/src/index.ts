export { ModelNotFoundError, NoWorkerError, PinnedWorkerError, TooManyRequestsError } from './errors.ts'
export type {
  CandidateTerms,
  DecideResult,
  Decision,
  Delivery,
  Receipt,
  RouterMessage,
  RouterOverride,
  RoutingRequest,
} from './messages.ts'
export { type RouterArgs, router } from './router.ts'
