export { SettingsError } from '@homing/config'
export {
  type CustomSelection,
  defineSelection,
  type SelectedRequest,
  type SelectionCandidate,
} from '@homing/selection'
export type { DemoFleet, GivenDemoSettings } from './demo-fleet.ts'
export type { GenerateOutput, GenerateUsage } from './generate-event.ts'
export { type GeneratePlace, GenerateStream } from './generate-stream.ts'
export {
  type BestWorker,
  type GivenKvRouterSettings,
  KvRouter,
  type KvRouterWorker,
  type PotentialLoad,
  type PrefixOverlap,
} from './kv-router.ts'
export type {
  BestWorkerOptions,
  GenerateRequest,
  MoeQueryOptions,
  PromptOptions,
  RouterConfigOverride,
  SamplingOptions,
  StopConditions,
  TokenIds,
} from './kv-router-options.ts'
export type { RunningService } from './running-service.ts'
export type { GivenIndexerSettings, RunningIndexer } from './start-indexer.ts'
export type { GivenRouterSettings, RunningRouter } from './start-router.ts'
export type { GivenSelectSettings } from './start-select.ts'
export type { GivenSlotsSettings } from './start-slots.ts'
export { startDemoFleet, startIndexer, startRouter, startSelect, startSlots } from './starts.ts'
export type { StopReport } from './stop-service.ts'
export { version } from './version.ts'
