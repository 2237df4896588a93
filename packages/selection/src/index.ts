export { type AuditState, Audits, type AuditVerdict, ERROR_BOUNDS_BLOCKS, type KeyAudit } from './audits.ts'
export type { Choice } from './choice.ts'
export { CREDIT_PRIORS, creditFactor } from './credit.ts'
export {
  CustomPolicy,
  type CustomSelection,
  CustomSelectionError,
  defineSelection,
  faultOfSelection,
  type SelectedRequest,
  type SelectionCandidate,
} from './custom-selection.ts'
export { endToEndMs } from './end-to-end.ts'
export { GUARD_SHARE_DEFAULT, Guard } from './guard.ts'
export {
  type ArmReport,
  GUARD_ARMS,
  GUARD_PHASES,
  type GuardArm,
  type GuardedAnswer,
  type GuardedDecision,
  type GuardedRequest,
  type GuardPhase,
  type GuardReport,
  type GuardSettings,
  type GuardState,
} from './guard-types.ts'
export { type Difference, GUARD_MEASURES, type GuardMeasure } from './outcome-differences.ts'
export { POLICIES } from './policies.ts'
export {
  type CostDescription,
  FIXED_POLICY_NAMES,
  type FixedPolicyName,
  POLICY_NAMES,
  POLICY_TERMS_MAX,
  type Policy,
  type PolicyName,
} from './policy.ts'
export { predictedFirstTokenMs } from './predicted-first-token.ts'
export {
  AGREEMENTS,
  type CountedKind,
  type CountVerdict,
  DIFFERENCES,
  PromptCounts,
} from './prompt-counts.ts'
export type { SelectionSettings } from './selection-settings.ts'
export { SELECTION_DEFAULTS, selectionSettings } from './selection-settings.ts'
export { costTerms, describeCost, Selector } from './selector.ts'
export { byShadow, type Regrets, SHADOW_NAMES, ShadowCosts, type ShadowName } from './shadow-costs.ts'
export {
  type Candidates,
  type CandidateWorker,
  type ChoiceTerms,
  ROUTER_MODES,
  type RouterMode,
  type SelectionOverride,
  type SelectionRequest,
} from './types.ts'
export { withoutTerm } from './without-term.ts'
export { type WorkerConstraints, WorkerFilter } from './worker-filter.ts'
export type { OutcomeMeans, WorkerOutcomeReport } from './worker-outcomes.ts'
