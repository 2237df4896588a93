export { ActiveLoad } from './active-load.ts'
export {
  copyProjection,
  EngineBook,
  type EngineProjection,
  filterProjection,
  prefillCost,
  type SentRequest,
  STEP_TOKENS_DEFAULT,
} from './engine-book.ts'
export { type Coefficients, DECODE_PRIOR, LearnedCosts, PREFILL_PRIOR } from './engine-costs.ts'
export type {
  ActiveLoadMethods,
  ActiveLoadOptions,
  BookedLoad,
  BookOutcome,
  LoadProjection,
  LoadStats,
  LoadTotals,
} from './types.ts'
