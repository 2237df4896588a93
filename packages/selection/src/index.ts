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
