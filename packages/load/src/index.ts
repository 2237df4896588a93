export { ActiveLoad } from './active-load.ts'
export type {
  ActiveLoadMethods,
  ActiveLoadOptions,
  Booking,
  BookOutcome,
  LoadProjection,
  LoadStats,
  LoadTotals,
} from './types.ts'
