export {
  type AuditOutcome,
  type AuditState,
  Audits,
  type AuditVerdict,
  ERROR_BOUNDS_BLOCKS,
  type KeyAudit,
  type Prediction,
} from './audits.ts'
export { CREDIT_PRIORS, type CreditTrust, creditFactor, PRIOR_REQUESTS } from './credit.ts'
export { filterEligible } from './filter.ts'
export { candidateTerms, Selector } from './selector.ts'
export {
  type Candidates,
  type CandidateTerms,
  type Choice,
  type ChoiceTerms,
  type Constraints,
  type Eligibility,
  ROUTER_MODES,
  type RouterMode,
  type SelectionOverride,
  type SelectionRequest,
  type SelectionSettings,
} from './types.ts'
