export { type DemoFleet, startDemoFleet } from './demo-fleet.ts'
export { type RunningIndexer, startIndexer } from './start-indexer.ts'
export { type RunningRouter, type StopReport, startRouter } from './start-router.ts'
export { version } from './version.ts'
