export { otherRanks, thresholdsFor } from './busy-workers.ts'
export { callerDelivery } from './caller-delivery.ts'
export { type Candidate, slotsOf } from './candidate.ts'
export type { CandidateLoads } from './candidate-loads.ts'
export { type ChosenBefore, candidateChosen } from './chosen-before.ts'
export { type AffinityBinding, type AffinitySettings, ConversationAffinity } from './conversation-affinity.ts'
export type { DecideResult, Decision, Measured } from './decision.ts'
export type { UnlistedModels } from './eligible.ts'
export {
  ModelNotFoundError,
  ModelNotListedYetError,
  TooManyRequestsError,
  WorkerGoneError,
} from './errors.ts'
export { LabelLookup, type LabelWeights } from './label-lookup.ts'
export { goesApart, type LegCosts } from './leg-costs.ts'
export { type MoeQuery, matchesExpert } from './moe-query.ts'
export { OverlapLookup } from './overlap-lookup.ts'
export { type LayerWeights, type Overlaps, withLabels } from './overlaps.ts'
export {
  type Busy,
  candidatesFor,
  eligibleByAffinity,
  isBeginning,
  type Placed,
  type PlacementSettings,
  place,
  placementSettings,
  type Situation,
  settingsFor,
  tokensToCompute,
} from './place.ts'
export { placedMs, tokensToHandOver, transferMs } from './placed-costs.ts'
export { type PotentialKeyLoad, potentialLoads } from './potential-loads.ts'
export { cutPrompt, firstSlice, prefillTokensOf, sliceEnd } from './prompt-slices.ts'
export type {
  CandidateTerms,
  Delivery,
  GuardReceipt,
  GuardStatus,
  LayerTerm,
  LegReceipt,
  QueueReceipt,
  Receipt,
  SlicesReceipt,
} from './receipt.ts'
export { reusedTokens } from './receipt.ts'
export { receiptView } from './receipt-view.ts'
export { Receipts } from './receipts.ts'
export {
  decodeLeg,
  type HandedOver,
  type PrefillPin,
  prefillLeg,
} from './request-leg.ts'
export { RetryBudget } from './retry-budget.ts'
export { bestCachedTokens } from './room.ts'
export { type GuardedDelivery, RoutingGuard, type RoutingGuardState } from './routing-guard.ts'
export {
  believedTokens,
  type FirstSlice,
  PROMPT_TOKENS_MAX,
  type PromptSlice,
  type RequestLeg,
  type RoutingRequest,
} from './routing-request.ts'
export type { RequestTracking, TrackingSettings } from './tracking.ts'
export { type HealthStatus, type WorkerFault, WorkerHealth } from './worker-health.ts'
export { decisionOf, writeReceipt } from './write-receipt.ts'
