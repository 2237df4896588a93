export { CAPACITY_SHARE, CAPACITY_STEPS, type Capacity, searchCapacity } from './capacity-search.ts'
export { CellRunner, RunnerStopped } from './cell-runner.ts'
export {
  type CellResult,
  type CellRun,
  type CellSelection,
  type CellSpec,
  type ClosedLoop,
  CUSTOM_RULES,
  type Goodput,
  type Imbalance,
  type InlineProfile,
  type PoolsSpec,
  type QueueSpec,
  type RecoveryFigures,
  type RecoveryKind,
  type RecoverySpec,
  type ServedRequest,
  TROUBLES,
  type Trouble,
} from './cell-types.ts'
export {
  COLUMN_NAMES,
  type Column,
  FIXED_COLUMNS,
  isAutoSelection,
  parseColumn,
  UnknownPolicyError,
} from './column.ts'
export { FLEET_NAMES, FLEETS, type FleetName, operatingSpeeds } from './fleets.ts'
export { type KnowingRun, type KnowingSpec, placeKnowingAll } from './knowing-placement.ts'
export { FIT_LIMITS, fitLog, fitText, type LogFit, type LogTrace, logTrace, PoorFitError } from './log-fit.ts'
export { isSure, pairedDifference, type SeedMean, seedMean, tQuantile } from './paired.ts'
export { BadProfileError, readProfile } from './profile-file.ts'
export type { ReportAbout } from './report/about.ts'
export { renderHtml } from './report/html.ts'
export { renderJson } from './report/json.ts'
export { type Summary, type SummaryRow, summarize } from './report/summary.ts'
export { renderText } from './report/text-table.ts'
export { UnwritableReportError } from './report/unwritable.ts'
export { ResultStore, resultKey } from './result-store.ts'
export { simulateCell } from './simulate-cell.ts'
export { SimulationError } from './simulation-error.ts'
export {
  runSweep,
  type SweepOutcome,
  type SweepPlan,
  type SweepWorkload,
  type SweptCell,
  type TierName,
} from './sweep.ts'
export {
  detectBinMs,
  logWorkload,
  openWorkload,
  parseWorkload,
  type Workload,
  workloadIdentity,
} from './workload.ts'
