export { SettingsError } from '@homing/config'
export {
  type CustomSelection,
  defineSelection,
  type SelectedRequest,
  type SelectionCandidate,
} from '@homing/selection'
export { type DemoFleet, type GivenDemoSettings, startDemoFleet } from './demo-fleet.ts'
export { type GivenIndexerSettings, type RunningIndexer, startIndexer } from './start-indexer.ts'
export { type GivenRouterSettings, type RunningRouter, startRouter } from './start-router.ts'
export type { StopReport } from './stop-service.ts'
export { version } from './version.ts'
