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
