export {
  CAPACITY_SHARE,
  CAPACITY_STEPS,
  type Capacity,
  searchCapacity,
} from './capacity-search.ts'
export { TIERS, type Tier } from './cell-metrics.ts'
export { CellRunner, type CellRunnerOptions, type RunnerProgress, RunnerStopped } from './cell-runner.ts'
export {
  type CellCost,
  type CellProgress,
  type CellResult,
  type CellRun,
  type CellSelection,
  type CellSpec,
  type ClosedLoop,
  type CompanyFigures,
  CUSTOM_RULES,
  type CustomRule,
  type FleetChange,
  type Goodput,
  type GuardFigures,
  type Imbalance,
  type InlineProfile,
  type LatencyFigures,
  type QueueFigures,
  type QueueSpec,
  type RequestFigures,
  type ServedRequest,
  type SimulateCell,
  type SimulateOptions,
  type TenantFigures,
  TROUBLES,
  type Trouble,
  type ViewKind,
  type ViewSpec,
} from './cell-types.ts'
export {
  BASELINE_COLUMN,
  COLUMN_NAMES,
  type Column,
  FIXED_COLUMNS,
  isAutoSelection,
  parseColumn,
  UnknownPolicyError,
} from './column.ts'
export { FLEET_NAMES, FLEETS, type FleetName, type NamedFleet, operatingSpeeds } from './fleets.ts'
export {
  FIT_LIMITS,
  type FitFigures,
  fitLog,
  fitText,
  type LogFit,
  type LogFitOptions,
  type LogTrace,
  logTrace,
  PoorFitError,
} from './log-fit.ts'
export { isSure, pairedDifference, type SeedMean, seedMean, tQuantile } from './paired.ts'
export { BadProfileError, PROFILE_FIELDS, readProfile } from './profile-file.ts'
export type { ReportAbout, WorkloadAbout } from './report/about.ts'
export { renderHtml } from './report/html.ts'
export { renderJson } from './report/json.ts'
export { figureText, METRICS, type Metric, type MetricKey } from './report/metrics.ts'
export {
  type Summary,
  type SummaryCapacity,
  type SummaryFigure,
  type SummaryPoint,
  type SummaryRow,
  summarize,
  type WorkloadSummary,
} from './report/summary.ts'
export { renderText } from './report/text-table.ts'
export { UnwritableReportError } from './report/unwritable.ts'
export type { SummaryQueue, SummaryTenant } from './report/waiting.ts'
export { ResultStore, type ResultStoreOptions, resultKey } from './result-store.ts'
export { simulateCell } from './simulate-cell.ts'
export { SimulationError } from './simulation-error.ts'
export {
  type LoadPoint,
  runSweep,
  type SweepOutcome,
  type SweepPlan,
  type SweepWorkload,
  type SweptCapacity,
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
